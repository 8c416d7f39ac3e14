/* activation_backward_cpu.c - activation_backward on the CPU. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * As in forward: one loop where all tensors are of one type and there is no bias, else through f32 buffers. dbias is
 * summed over the rows of a part in their order; the last step adds the parts. */
#include "activation_cpu.h"

typedef skr_activation_backward_job job_t;

/* Of n vectors: those of the gate in place of dy, those of up in place of the gate. */
SKR_FN void gradients(int act, int gated, vf *dy, vf *g, const vf *u, float alpha, float limit1, int n)
{
    vf limit = v_set1(limit1), zero = v_set1(0.0f), slope[4], held[4];
    for (int i = 0; i < n && act == SKR_ACT_SWIGLU_OAI; i++) {
        held[i] = g[i];
        g[i] = v_min(g[i], limit);
    }
    act_both_each(act, g, slope, alpha, n);
    for (int i = 0; i < n; i++) {
        vf factor = u[i];
        g[i] = v_mul(dy[i], g[i]);
        if (act == SKR_ACT_SWIGLU_OAI)
            factor = swiglu_oai_up(u[i], limit1);
        dy[i] = v_mul(dy[i], gated ? v_mul(factor, slope[i]) : slope[i]);
        if (act == SKR_ACT_SWIGLU_OAI) {
            dy[i] = v_select(v_lt(limit, held[i]), zero, dy[i]);
            g[i] = v_select(v_lt(limit, v_abs(u[i])), zero, g[i]);
        }
    }
}

/* What one loop reads and writes, n elements each; up and dup only where it is gated. */
typedef struct spans {
    const void *dy, *gate, *up;
    void *dgate, *dup;
    int past; /* the results are written past the caches */
} spans;

SKR_TAIL void tail(int act, int type, const spans *s, float alpha, float limit, int64_t i, int64_t n)
{
    for (; i < n; i += SKR_LANES) {
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        vf dy = v_load_n(type, s->dy, i, m), g = v_load_n(type, s->gate, i, m);
        vf u = s->up ? v_load_n(type, s->up, i, m) : v_set1(0.0f);
        gradients(act, s->up != NULL, &dy, &g, &u, alpha, limit, 1);
        v_store_n(type, s->dgate, i, dy, m);
        if (s->up)
            v_store_n(type, s->dup, i, g, m);
    }
}

SKR_FN void body(int act, int gated, int type, const spans *s, float alpha, float limit, int64_t n)
{
    int64_t i = 0;
    for (; i + 4 * SKR_LANES <= n; i += 4 * SKR_LANES) {
        vf dy[4], g[4], u[4];
        load4(type, s->dy, i, dy);
        load4(type, s->gate, i, g);
        load4(type, gated ? s->up : s->gate, i, u);
        gradients(act, gated, dy, g, u, alpha, limit, 4);
        store4(type, s->dgate, i, dy, s->past);
        if (gated)
            store4(type, s->dup, i, g, s->past);
    }
    if (i < n)
        tail(act, type, s, alpha, limit, i, n);
}

typedef void (*backward_fn)(const spans *s, float alpha, float limit, int64_t n);

#define LOOP(act, form, gated, type)                                                                                   \
    static void form##_##act##_##type(const spans *s, float alpha, float limit, int64_t n)                             \
    {                                                                                                                  \
        body(SKR_ACT_##act, gated, SKR_##type, s, alpha, limit, n);                                                    \
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
static const backward_fn loops[][2][3] = {EACH_ACT(CELL)};

/* ---------------------------------------------------------------- rows */

static void add_to(float *sum, const float *from, int64_t step, int64_t n, int first)
{
    if (first && step == 1)
        for (int64_t i = 0; i < n; i++)
            sum[i] = from[i];
    else if (first)
        for (int64_t i = 0; i < n; i++)
            sum[2 * i] = from[i];
    else if (step == 1)
        for (int64_t i = 0; i < n; i++)
            sum[i] += from[i];
    else
        for (int64_t i = 0; i < n; i++)
            sum[2 * i] += from[i];
}

static char *output(const job_t *job, const skr_rows *t, int64_t row, int64_t column)
{
    return t->data ? (char *)element(&job->a, t, row, column) : NULL;
}

/* Columns [column, column + n <= SPAN) of a row, through f32; sum: of this part, or NULL. */
static void staged(const job_t *job, int64_t row, int64_t column, int64_t n, float *sum, int first)
{
    const skr_act_head *a = &job->a;
    operands o;
    float dy[SPAN], dgate[SPAN], dup[SPAN];
    get_operands(&job->head, a, row, column, n, &o);
    const char *from = row_of(&a->rows, &job->dy, row) + column * skr_type_bytes(job->dy.type);
    char *to[2] = {output(job, &job->dgate, row, column), output(job, &job->dup, row, column)};
    int apart = a->step == 1; /* interleaved results are made in the buffers */
    spans s = {.dy = as_f32(job->dy.type, from, dy, n),
               .gate = o.gate,
               .up = o.up,
               .dgate = room_for(job->dgate.type, apart ? to[0] : NULL, dgate),
               .dup = room_for(job->dup.type, apart ? to[1] : NULL, dup)};
    loops[a->act][o.up != NULL][SKR_F32](&s, a->alpha, a->limit, n);
    if (sum) {
        add_to(sum + column * a->bias_step, s.dgate, a->bias_step, n, first);
        if (o.up)
            add_to(sum + column * a->bias_step + a->bias_up, s.dup, a->bias_step, n, first);
    }
    if (apart) {
        put(job->dgate.type, s.dgate, to[0], n);
        if (o.up)
            put(job->dup.type, s.dup, to[1], n);
    } else if (to[0]) {
        float *pair = room_for(job->dgate.type, to[0], o.pair);
        for (int64_t i = 0; i < n; i++) {
            pair[2 * i] = dgate[i];
            pair[2 * i + 1] = dup[i];
        }
        put(job->dgate.type, pair, to[0], 2 * n);
    }
}

/* All tensors of one type and all there: no buffers. */
static int is_direct(const job_t *job)
{
    const skr_act_head *a = &job->a;
    int type = job->dy.type, gated = a->gated;
    return a->step == 1 && !a->bias.data && !job->dbias.data && a->gate.type == type && job->dgate.data &&
           job->dgate.type == type && (!gated || (a->up.type == type && job->dup.data && job->dup.type == type));
}

static void rows(const job_t *job, int64_t task)
{
    const skr_act_head *a = &job->a;
    region r = region_of(a, task);
    int gated = a->gated, direct = is_direct(job);
    int64_t columns = gated ? 2 * a->n : a->n;
    float *sum = NULL;
    if (job->dbias.data)
        sum = (float *)((char *)job->head.workspace + job->sums_at) + task / a->pieces * skr_part_stride(columns);
    for (int64_t row = r.begin; row < r.end; row++) {
        if (direct) {
            spans s = {.dy = row_of(&a->rows, &job->dy, row) + r.first * skr_type_bytes(job->dy.type),
                       .gate = element(a, &a->gate, row, r.first),
                       .up = gated ? element(a, &a->up, row, r.first) : NULL,
                       .dgate = output(job, &job->dgate, row, r.first),
                       .dup = output(job, &job->dup, row, r.first)};
            s.past = goes_past(&job->head, s.dgate) && (!gated || goes_past(&job->head, s.dup));
            loops[a->act][gated][job->dy.type](&s, a->alpha, a->limit, r.last - r.first);
            continue;
        }
        for (int64_t i = r.first; i < r.last; i += SPAN)
            staged(job, row, i, r.last - i < SPAN ? r.last - i : SPAN, sum, row == r.begin);
    }
}

void SKR_KERNEL(activation_backward)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(activation_backward)(const void *job, int step, int64_t task, int worker)
{
    (void)worker;
    const job_t *j = job;
    int64_t columns = j->a.gated ? 2 * j->a.n : j->a.n;
    if (step == SKR_ACT_PARAMS) {
        copy_bias(&j->head, &j->a, task);
    } else if (step == SKR_ACT_ROWS) {
        rows(j, task);
    } else {
        int64_t begin = task * SKR_ACT_SUM_PIECE, end = begin + SKR_ACT_SUM_PIECE;
        sum_parts(&j->head, &j->dbias, j->accumulate, j->sums_at, j->n_parts, 1, columns, 0, begin,
                  end < columns ? end : columns);
    }
}
