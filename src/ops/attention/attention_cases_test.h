/* attention_cases_test.h - a case of attention in short, and how it becomes one.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef ATTENTION_CASES_TEST_H
#define ATTENTION_CASES_TEST_H

#include "attention_test.h"

enum { /* options and tensors that a case has */
       CAUSAL = 1 << 0,
       TOP_LEFT = 1 << 1,
       WINDOW = 1 << 2,
       SOFTCAP = 1 << 3,
       SLOPES = 1 << 4,
       SLOPES_BATCH = 1 << 5,
       BIAS = 1 << 6,
       MASK = 1 << 7,
       KEY_MASK = 1 << 8,
       SINKS = 1 << 9,
       DROPOUT = 1 << 10,
       POSITIONS = 1 << 11,
       IDS = 1 << 12,
       IDS_UP_TO = 1 << 13,
       Q_POSITIONS = 1 << 14, /* of queries only */
       NO_LSE = 1 << 15,
       DLSE = 1 << 16,
       ACCUMULATE = 1 << 17,
       NO_CU = 1 << 18, /* thd: one sequence */
       P_SCALE = 1 << 19,
       K_I8 = 1 << 20, /* k and v i8, q float */
       NO_DQ = 1 << 21,
       NO_DK = 1 << 22,
       NO_DV = 1 << 23,
       NO_DSLOPES = 1 << 24
};

enum { B = 8, H = 4, SQ = 2, SK = 1 }; /* dims that bias and mask have; others are 1 */
enum { CU_GOOD, CU_SHORT, CU_RANDOM, CU_COUNT };

struct spec {
    int layout, use, cu;
    unsigned has;
    saker_type type, o, bias;
    int64_t b, s, sk, hq, hk, d, dv; /* hk, dv 0: hq, d. thd: s and sk are all tokens, b sequences */
    int64_t left, right;
    int bias_dims, mask_dims;
    suite_fill q, k, v; /* fills; 0: normal */
    suite_fill bias_fill;
    suite_fill lse; /* backward; 0: positive */
    int64_t large;  /* the largest score, and backward's lse; a bias is up to 9 below it. 0: whatever the fills give */
    suite_layout memory;
    float scale;
    int descale; /* dimensions of the descales */
    int64_t block;
    int64_t pad; /* thd: bias and mask are so much shorter than the tokens (negative: longer) */
    const char *note;
    const char *kernel, *portable, *gradient; /* CUDA: a word of what runs forward, on Hopper and elsewhere, and
                                                 backward; NULL: whatever */
};

extern suite_list attention_forward_list, attention_backward_list;

/* Adds the case to its list. */
void attention_forward(struct spec s);
void attention_backward(struct spec s);
/* Those with options and wide heads. */
void attention_wide_cases(void);
/* attention_merge, with 2x9x3x21 heads, or many for the bench. */
void attention_merge_case(suite_list *l, int layout, saker_type type, saker_type o, suite_layout memory, bool in_place,
                          suite_fill lse, int use);

#endif
