/* adamw_cpu.c - the AdamW step. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The usual type mixes have loops of their own. Other mixes, and amsgrad, go through f32 copies of a block at a time,
 * which stay in L1. */
#include "../../cpu/rows.h"
#include "adamw.h"

typedef skr_adamw_job job_t;

/* The tensors of a block, from element 0 on. */
typedef struct block {
    void *p, *m, *v, *top;
    const void *g;
    int64_t n;
} block;

/* The constants of a job, once in vectors. */
typedef struct constants {
    vf factor, beta1, grad1, beta2, grad2, decay, step_size, inv_root, eps;
} constants;

SKR_FN constants constants_of(const job_t *job, float factor)
{
    return (constants){v_set1(factor),          v_set1(job->beta1),    v_set1(job->grad1),
                       v_set1(job->beta2),      v_set1(job->grad2),    v_set1(job->decay),
                       v_set1(-job->step_size), v_set1(job->inv_root), v_set1(job->eps)};
}

/* One vector of each; top is the running maximum of v, used with amsgrad. */
SKR_FN void update(const constants *c, vf g, vf *p, vf *m, vf *v, vf *top, int amsgrad)
{
    g = v_mul(g, c->factor);
    *m = v_fma(c->grad1, g, v_mul(c->beta1, *m));
    *v = v_fma(v_mul(c->grad2, g), g, v_mul(c->beta2, *v));
    if (amsgrad)
        *top = v_max(*top, *v);
    vf denominator = v_fma(v_sqrt(amsgrad ? *top : *v), c->inv_root, c->eps);
    *p = v_fma(c->step_size, v_div(*m, denominator), v_mul(*p, c->decay));
}

/* P, G, S: types of param, grad and both states (and top). */
SKR_FN void update_block(int P, int G, int S, int amsgrad, const constants *c, const block *b)
{
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= b->n; i += 2 * SKR_LANES) {
        vf2 g = v_load2(G, b->g, i), p = v_load2(P, b->p, i), m = v_load2(S, b->m, i), v = v_load2(S, b->v, i);
        vf2 top = amsgrad ? v_load2(S, b->top, i) : v;
        update(c, g.lo, &p.lo, &m.lo, &v.lo, &top.lo, amsgrad);
        update(c, g.hi, &p.hi, &m.hi, &v.hi, &top.hi, amsgrad);
        v_store2(P, b->p, i, p);
        v_store2(S, b->m, i, m);
        v_store2(S, b->v, i, v);
        if (amsgrad)
            v_store2(S, b->top, i, top);
    }
    while (i < b->n) {
        int left = b->n - i < SKR_LANES ? (int)(b->n - i) : SKR_LANES;
        vf g = v_load_n(G, b->g, i, left), p = v_load_n(P, b->p, i, left), m = v_load_n(S, b->m, i, left);
        vf v = v_load_n(S, b->v, i, left), top = amsgrad ? v_load_n(S, b->top, i, left) : v;
        update(c, g, &p, &m, &v, &top, amsgrad);
        v_store_n(P, b->p, i, p, left);
        v_store_n(S, b->m, i, m, left);
        v_store_n(S, b->v, i, v, left);
        if (amsgrad)
            v_store_n(S, b->top, i, top, left);
        i += left;
    }
}

static void update_f32(const constants *c, const block *b)
{
    update_block(SKR_F32, SKR_F32, SKR_F32, 0, c, b);
}

static void update_f32_amsgrad(const constants *c, const block *b)
{
    update_block(SKR_F32, SKR_F32, SKR_F32, 1, c, b);
}

static void update_bf16(const constants *c, const block *b)
{
    update_block(SKR_BF16, SKR_BF16, SKR_BF16, 0, c, b);
}

static void update_bf16_f32(const constants *c, const block *b)
{
    update_block(SKR_BF16, SKR_BF16, SKR_F32, 0, c, b);
}

static void update_f32_bf16_f32(const constants *c, const block *b)
{
    update_block(SKR_F32, SKR_BF16, SKR_F32, 0, c, b);
}

/* The f32 form of a block's tensor: itself, or a copy in scratch. */
static void *as_f32(int type, const void *data, float *scratch, int64_t n)
{
    if (type == SKR_F32)
        return (void *)(uintptr_t)data;
    widen(type, data, 0.0f, scratch, n);
    return scratch;
}

static void back(int type, const void *from, void *to, int64_t n)
{
    if (type != SKR_F32)
        narrow(type, from, to, n);
}

static void update_mixed(const job_t *job, const constants *c, const block *b, float *scratch)
{
    enum { B = SKR_ADAMW_BLOCK };
    for (int64_t i = 0; i < b->n; i += B) {
        int64_t n = b->n - i < B ? b->n - i : B;
        char *p = (char *)b->p + i * skr_type_bytes(job->param.type);
        char *m = (char *)b->m + i * skr_type_bytes(job->exp_avg.type);
        char *v = (char *)b->v + i * skr_type_bytes(job->exp_avg_sq.type);
        char *top = b->top ? (char *)b->top + i * skr_type_bytes(job->max_sq.type) : NULL;
        block f = {
            .p = as_f32(job->param.type, p, scratch, n),
            .m = as_f32(job->exp_avg.type, m, scratch + B, n),
            .v = as_f32(job->exp_avg_sq.type, v, scratch + 2 * B, n),
            .top = top ? as_f32(job->max_sq.type, top, scratch + 3 * B, n) : NULL,
            .g = as_f32(job->grad.type, (const char *)b->g + i * skr_type_bytes(job->grad.type), scratch + 4 * B, n),
            .n = n};
        if (top)
            update_f32_amsgrad(c, &f);
        else
            update_f32(c, &f);
        back(job->param.type, f.p, p, n);
        back(job->exp_avg.type, f.m, m, n);
        back(job->exp_avg_sq.type, f.v, v, n);
        if (top)
            back(job->max_sq.type, f.top, top, n);
    }
}

static char *piece_of(const job_t *job, const skr_rows *r, int64_t row, int64_t begin)
{
    return r->data ? row_of(&job->rows, r, row) + begin * skr_type_bytes(r->type) : NULL;
}

void SKR_KERNEL(adamw)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(adamw)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    const job_t *j = job;
    int64_t row = task / j->pieces, begin = task % j->pieces * SKR_ADAMW_PIECE, left = j->n - begin;
    block b = {.p = piece_of(j, &j->param, row, begin),
               .m = piece_of(j, &j->exp_avg, row, begin),
               .v = piece_of(j, &j->exp_avg_sq, row, begin),
               .top = piece_of(j, &j->max_sq, row, begin),
               .g = piece_of(j, &j->grad, row, begin),
               .n = left < SKR_ADAMW_PIECE ? left : SKR_ADAMW_PIECE};
    float root = j->sum_squares ? (float)skr_sqrt((double)*j->sum_squares) : 0.0f;
    constants c = constants_of(j, skr_adamw_factor(j, root));
    int p = j->param.type, g = j->grad.type, m = j->exp_avg.type, v = j->exp_avg_sq.type;
    if (!b.top && m == SKR_F32 && v == SKR_F32 && p == SKR_F32 && g == SKR_F32)
        update_f32(&c, &b);
    else if (!b.top && m == SKR_BF16 && v == SKR_BF16 && p == SKR_BF16 && g == SKR_BF16)
        update_bf16(&c, &b);
    else if (!b.top && m == SKR_F32 && v == SKR_F32 && p == SKR_BF16 && g == SKR_BF16)
        update_bf16_f32(&c, &b);
    else if (!b.top && m == SKR_F32 && v == SKR_F32 && p == SKR_F32 && g == SKR_BF16)
        update_f32_bf16_f32(&c, &b);
    else
        update_mixed(j, &c, &b, (float *)j->head.workspace + (int64_t)worker * SKR_ADAMW_TENSORS * SKR_ADAMW_BLOCK);
}
