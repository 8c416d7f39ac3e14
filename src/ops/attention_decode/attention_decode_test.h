/* attention_decode_test.h - a case of attention_decode in its short form.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ATTENTION_DECODE_TEST_H
#define ATTENTION_DECODE_TEST_H

#include "../../../tests/suite_list.h"

enum { /* options and tensors that a case has */
       CAUSAL = 1 << 0,
       WINDOW = 1 << 1,
       SOFTCAP = 1 << 2,
       SLOPES = 1 << 3,
       SLOPES_BATCH = 1 << 4,
       SINKS = 1 << 5,
       NO_LSE = 1 << 6,
       ROPE = 1 << 7,
       INTERLEAVED = 1 << 8,
       LATENT = 1 << 9, /* no v_cache */
       ALL_OPTIONS = 10
};

enum { TABLE_MIXED, TABLE_BAD, TABLE_SHARED }; /* each page once; some that do not exist; some more than once */
enum { NO_SCALE, OF_HEADS, OF_TOKENS, OF_GROUPS };

struct spec {
    int use, random, table, scales;
    unsigned has;
    saker_type type, cache, o, news;
    int64_t b, sq, sn, hq, hk, d, dv; /* hk, dv 0: hq, d */
    int64_t smax, page, pages;        /* page 0: contiguous; else smax tokens of whole pages; pages: how many more */
    int64_t low, high;                /* lengths; high 0: all that fit */
    int64_t left, right, split, rotary, rotary_offset, group;
    float scale;
    suite_fill q, k, v;
    suite_layout memory;
    int check; /* SUITE_ANY_CHECK and so on */
    const char *note;
};

/* A case from its short form (attention_decode_case_test.c). */
void attention_decode_case(suite_list *l, struct spec s);
bool attention_decode_at_case(int i, suite_case *out);

#endif
