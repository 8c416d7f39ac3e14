/* cross_entropy_test.h - a short description of a case, between the tables of cases and their making.
 * SPDX-License-Identifier: Apache-2.0
 *
 * cross_entropy_cases_test.c lists what is tried, cross_entropy_spec_test.c turns each description into a case,
 * cross_entropy_test.c has the oracle. */
#ifndef CROSS_ENTROPY_TEST_H
#define CROSS_ENTROPY_TEST_H

#include "../../../tests/suite_list.h"
#include "../../../tests/suite_random.h"

enum { FORWARD, BACKWARD, MERGE, N_SUITES };

/* What a case has beside logits and target. */
enum {
    W = 1,
    LOSS = 2,
    LSE = 4,
    DL = 8, /* dlogits */
    IN_PLACE = 16,
    GRAD = 32,     /* one for each row, or one number where the loss is reduced */
    ONE_GRAD = 64, /* one number although the loss is not reduced */
    DLSE = 128,
    PARTIAL = 256,
    IGNORE = 512,    /* has_ignore_index, with ignore as it */
    BAD = 1024,      /* targets outside of the vocabulary: saker_context_check says so */
    SOME_BAD = 2048, /* there may be such targets */
    FLAT = 4096      /* target and what has one value a row are [M] although logits has more leading dimensions */
};

struct spec {
    int has, use, reduction, n_lead, random;
    suite_layout layout;
    int64_t lead[3], n;
    saker_type x, y, w, t; /* logits, dlogits and weight (0: logits' type), target (0: i64) */
    suite_fill fill;
    float smoothing, z, cap;
    int64_t ignore, start, vocab, shards;
    int64_t low, high; /* targets; both 0: all classes */
};

/* Adds the case that s describes; a case that is there already gains its uses. */
void cross_entropy_add(int which, const struct spec *s);
bool cross_entropy_added(int which, int i, suite_case *out);
bool cross_entropy_case(int which, int i, suite_case *out);

#endif
