/* activation_cpu.c - activation on the CPU. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Where all tensors are of one type, there is no bias and gate and up are not interleaved, one loop does it all.
 * Everything else goes through f32 buffers, SPAN columns at a time, and the f32 loop. */
#include "../../cpu/quant.h"
#include "activation_cpu.h"

typedef skr_activation_job job_t;

/* Of n vectors, in place of the gate; up is overwritten, too. */
SKR_FN void values(int act, int gated, vf *g, vf *u, float alpha, float limit, int n)
{
    for (int i = 0; i < n && act == SKR_ACT_SWIGLU_OAI; i++) {
        g[i] = v_min(g[i], v_set1(limit));
        u[i] = swiglu_oai_up(u[i], limit);
    }
    act_value_each(act, g, alpha, n);
    for (int i = 0; i < n && gated; i++)
        g[i] = v_mul(g[i], u[i]);
}

SKR_TAIL void tail(int act, int type, const void *gate, const void *up, void *y, float alpha, float limit, int64_t i,
                   int64_t n)
{
    for (; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        vf g = v_load_n(type, gate, i, m), u = up ? v_load_n(type, up, i, m) : v_set1(0.0f);
        values(act, up != NULL, &g, &u, alpha, limit, 1);
        v_store_n(type, y, i, g, m);
    }
}

/* Four vectors at once: the functions are long chains, and what is independent of them hides their latency. */
SKR_FN void body(int act, int gated, int type, const void *gate, const void *up, void *y, float alpha, float limit,
                 int64_t n, int past)
{
    const int64_t bytes = skr_type_bytes(type);
    int64_t i = 0;
    for (; i + 4 * SKR_LANES <= n; i += 4 * SKR_LANES) {
        vf g[4], u[4];
        ask_ahead((const char *)gate + i * bytes, 4 * SKR_LANES * bytes);
        if (gated)
            ask_ahead((const char *)up + i * bytes, 4 * SKR_LANES * bytes);
        load4(type, gate, i, g);
        load4(type, gated ? up : gate, i, u);
        values(act, gated, g, u, alpha, limit, 4);
        store4(type, y, i, g, past);
    }
    if (i < n)
        tail(act, type, gate, up, y, alpha, limit, i, n);
}

typedef void (*forward_fn)(const void *gate, const void *up, void *y, float alpha, float limit, int64_t n, int past);

#define LOOP(act, form, gated, type)                                                                                   \
    static void form##_##act##_##type(const void *gate, const void *up, void *y, float alpha, float limit, int64_t n,  \
                                      int past)                                                                        \
    {                                                                                                                  \
        body(SKR_ACT_##act, gated, SKR_##type, gate, up, y, alpha, limit, n, past);                                    \
    }
#define LOOPS(act)                                                                                                     \
    LOOP(act, plain, 0, F32)                                                                                           \
    LOOP(act, plain, 0, F16)                                                                                           \
    LOOP(act, plain, 0, BF16)                                                                                          \
    LOOP(act, gated, 1, F32)                                                                                           \
    LOOP(act, gated, 1, F16)                                                                                           \
    LOOP(act, gated, 1, BF16)
EACH_ACT(LOOPS)
#define CELL(act)                                                                                                      \
    {{plain_##act##_F32, plain_##act##_F16, plain_##act##_BF16},                                                       \
     {gated_##act##_F32, gated_##act##_F16, gated_##act##_BF16}},
/* [act][gated][type] */
static const forward_fn loops[][2][3] = {EACH_ACT(CELL)};

/* ---------------------------------------------------------------- rows */

/* Columns [column, column + n) of a row, through f32. */
static void staged(const job_t *job, int64_t row, int64_t column, int64_t n, int type, char *y)
{
    const skr_act_head *a = &job->a;
    operands o;
    float result[SPAN];
    for (int64_t i = 0; i < n; i += SPAN) {
        int64_t len = n - i < SPAN ? n - i : SPAN;
        char *to = y + i * skr_type_bytes(type);
        get_operands(&job->head, a, row, column + i, len, &o);
        float *out = room_for(type, to, result);
        loops[a->act][a->gated][SKR_F32](o.gate, o.up, out, a->alpha, a->limit, len, 0);
        put(type, out, to, len);
    }
}

static void quantise(const job_t *job, int64_t row, int64_t column, int64_t n, int type, const char *y)
{
    const skr_act_head *a = &job->a;
    uint8_t *q = (uint8_t *)row_of(&a->rows, &job->y_quant, row) + column;
    int64_t group = job->quant == SKR_QUANT_BLOCK ? SKR_QUANT_GROUP : n;
    float *scale = job->scale.data;
    if (job->quant != SKR_QUANT_TENSOR)
        scale = (float *)row_of(&a->rows, &job->scale, row) + column / SKR_QUANT_GROUP * job->scale.col_stride;
    if (a->n == 0)
        *scale = quant_scale(0.0f, job->y_quant.type);
    quant_row(type, job->y_quant.type, y, q, job->quant, scale, job->scale.col_stride, group, n);
}

static void rows(const job_t *job, int64_t task, int worker)
{
    const skr_act_head *a = &job->a;
    region r = region_of(a, task);
    int type = job->y.data ? job->y.type : SKR_F32;
    int direct = a->step == 1 && !a->bias.data && a->gate.type == type && (!a->up.data || a->up.type == type);
    forward_fn loop = loops[a->act][a->gated][type];
    int64_t n = r.last - r.first;
    for (int64_t row = r.begin; row < r.end; row++) {
        char *y = job->y.data ? row_of(&a->rows, &job->y, row) + r.first * skr_type_bytes(type)
                              : (char *)job->head.workspace + job->scratch_at + worker * job->scratch_bytes;
        if (direct)
            loop(element(a, &a->gate, row, r.first), a->up.data ? element(a, &a->up, row, r.first) : NULL, y, a->alpha,
                 a->limit, n, !job->y_quant.data && goes_past(&job->head, y));
        else
            staged(job, row, r.first, n, type, y);
        if (job->quant) /* y_quant may be empty */
            quantise(job, row, r.first, n, type, y);
    }
}

void SKR_KERNEL(activation)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(activation)(const void *job, int step, int64_t task, int worker)
{
    const job_t *j = job;
    if (step == SKR_ACT_PARAMS)
        copy_bias(&j->head, &j->a, task);
    else
        rows(j, task, worker);
}
