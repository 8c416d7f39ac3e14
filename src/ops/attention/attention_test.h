/* attention_test.h - what the oracles of attention and attention_backward share: the case's tensors, the scores.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Everything is computed in double from the inputs as stored. Bounds, with U = 2^-24, SUM(n) as sum_factor says (twice
 * that for bf16 and fp8, whose instructions round sums of products to odd):
 *   a score s_ij       E = SUM(D) U |scale| sum|q k|, 8 U for each of the magnitudes added to it; k brought to q's type
 *                      from i8 adds half a unit of that type to each product
 *   p_ij, relative     E + 8 U (1 + |s_ij| + |lse_i| and |maximum|): exponents are formed in f32; from 2^20 on (of the
 *                      maximum, or of backward's lse) with |s_ij - it| instead: differences are formed first
 *   p_ij, absolute     2^-120: what is smaller counts as 0
 *   a product with p   half a unit of the type it is rounded to, relative; f16: 2^-25 absolute, too
 *   sums of products   SUM(n) U sum|products|, and as many U again for what the maximum's changes rescale
 *   the output         half an ulp of its type */
#ifndef ATTENTION_TEST_H
#define ATTENTION_TEST_H

#include "../../../tests/suite_list.h"

/* The options that both argument structs have. */
typedef struct attention_options {
    int64_t seed, offset, window_left, window_right, descale_block;
    double scale, softcap, dropout, p_scale;
    int32_t layout, causal, top_left, has_window, id_rule, accumulate;
} attention_options;

/* Tokens of sequence b. */
typedef struct attention_range {
    int64_t q, k, q_len, k_len;
} attention_range;

typedef struct attention_problem {
    attention_options opt;
    suite_column q, k, v, o, lse, bias, mask, key_mask, slopes, sinks, cu_q, cu_k, q_pos, k_pos, q_ids, k_ids;
    suite_column q_descale, k_descale, v_descale;
    suite_column d_o, dlse, dq, dk, dv, dbias, dslopes, dsinks;
    int64_t batch, heads, heads_k, length, length_k, d, d_v;
    double scale;
    attention_range *range; /* [batch] */
    double half_p;          /* half a unit, relative, of the type that p is rounded to; 0: f32 */
    double tiny_p;          /* and absolute */
    double half_k, half_v;  /* of what k and v are brought to; 0: they are used as given */
    double sums;            /* 2 where bf16 instructions make the sums */
} attention_problem;

attention_problem attention_open(const suite_case *c, double *const *value, double *const *bound);
void attention_close(attention_problem *p);

/* One head of one sequence: [q_len][k_len]. s is -infinity where a query does not see a key. */
typedef struct attention_scores {
    double *s, *error; /* scores, and how far they may be off */
    double *z;         /* dropout's factors */
    double *slope;     /* softcap: ds/du; 1 without */
    double *distance;  /* of ALiBi */
} attention_scores;
attention_scores attention_scores_of(const attention_problem *p, int64_t b, int64_t h);
void attention_scores_free(attention_scores *s);

/* Element d of a head of token t (b: its batch; thd: counted from the first). */
double *attention_at(const attention_problem *p, suite_column x, int64_t b, int64_t t, int64_t h, int64_t d);
int64_t attention_place(const attention_problem *p, suite_column x, int64_t b, int64_t t, int64_t h, int64_t d);
/* Of lse and its like. */
int64_t attention_stat(const attention_problem *p, int64_t b, int64_t t, int64_t h);
/* Values as they multiply: code times descale. */
double attention_key(const attention_problem *p, int64_t b, const attention_range *r, int64_t j, int64_t h, int64_t d);
double attention_value(const attention_problem *p, int64_t b, const attention_range *r, int64_t j, int64_t h,
                       int64_t d);
/* Where bias element (b, h, i, j) is. */
int64_t attention_bias_place(suite_column x, int64_t b, int64_t h, int64_t i, int64_t j);
double attention_slope(const attention_problem *p, int64_t b, int64_t h);
/* The magnitudes that the exponent x - from is rounded by; more: one that counts where from is not large. */
double attention_size(double x, double from, double more);

/* The case of one batch alone. */
int64_t attention_row(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice);

bool attention_at_case(int i, suite_case *out);
bool attention_backward_at_case(int i, suite_case *out);
bool attention_merge_at_case(int i, suite_case *out);

#endif
