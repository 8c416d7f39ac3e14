/* norm_test.h - a short description of a case (struct spec), between the tables of cases, their making and the
 * oracle. SPDX-License-Identifier: Apache-2.0
 *
 * norm_cases_test.c lists what is tried, norm_spec_test.c turns each description into a case, norm_test.c has the
 * oracle. All of it serves rms_norm and layer_norm. */
#ifndef NORM_TEST_H
#define NORM_TEST_H

#include "../../../tests/suite_list.h"
#include "../../../tests/suite_random.h"

/* Which of the two. */
enum { RMS, LAYER, N_KINDS };

/* What a case has. The gradient op reads: W weight, R dresidual_out, RSTD, Y dx, DW dweight, DB dbias. For layer_norm
 * RSTD means mean and rstd. */
enum {
    W = 1,
    B = 2,
    R = 4,
    Y = 8,
    RO = 16,
    RSTD = 32,
    HEADS = 64,    /* parameters are [H, N], H the last leading dimension */
    Y_IS_X = 128,  /* in place: y is x; the gradient op: dx is dy */
    RO_IS_R = 256, /* in place: residual_out is residual; the gradient op: dx is dresidual_out */
    RBW = 512,     /* round_before_weight */
    ACC = 1024,    /* accumulate */
    DW = 2048,
    DB = 4096,
    FLAT = 8192,       /* rstd and scales are [M] although x has more leading dimensions */
    SAME_HEAD = 16384, /* the [H, N] parameters show one row to every head (stride 0) */
    DY_INF = 32768,    /* the gradient op: dy has an infinity, and x has none */
    RSTD_ZERO = 65536, /* the gradient op: rstd is 0 or 1 (where x is SUITE_MAX: 0), as forward saves it of huge rows */
    NO_MEAN = 1 << 17, /* layer_norm: RSTD without the mean */
    NO_RSTD = 1 << 18  /* layer_norm: RSTD means the mean alone */
};

struct spec {
    int has, use, quant, n_lead, random;
    suite_layout layout; /* of row tensors */
    int64_t lead[4], n;
    saker_type x, w, b, r, y, ro, q; /* 0: x's type */
    saker_type dw;                   /* 0: w */
    suite_fill fill;
    float eps, offset;
};

/* Adds the case that s describes; a case that is there already gains its uses. */
void norm_add(int kind, const struct spec *s);
void norm_backward_add(int kind, const struct spec *s);

/* Stores case i of what was added, or returns false. */
bool norm_added(int kind, int i, suite_case *out);
bool norm_backward_added(int kind, int i, suite_case *out);

/* The same, after adding what there is to try. */
bool norm_case(int kind, int i, suite_case *out);
bool norm_backward_case(int kind, int i, suite_case *out);

#endif
