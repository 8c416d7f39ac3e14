/* quantize_cpu.c - quantize and dequantize on the CPU. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cpu/quant.h"
#include "quantize.h"

typedef skr_quantize_job job_t;

/* The slabs and columns of a task. */
typedef struct region {
    int64_t begin, end, first, last;
} region;

static region region_of(const job_t *job, int64_t task)
{
    region r = {.begin = task / job->pieces * job->slabs_per_task, .first = task % job->pieces * job->piece};
    r.end = r.begin + job->slabs_per_task < job->rows.m ? r.begin + job->slabs_per_task : job->rows.m;
    r.last = r.first + job->piece < job->n ? r.first + job->piece : job->n;
    return r;
}

/* Row k of a slab. */
static char *x_row(const job_t *job, int64_t slab, int64_t k)
{
    return row_of(&job->rows, &job->x, slab) + k * job->x_step * skr_type_bytes(job->x.type);
}

static uint8_t *q_row(const job_t *job, int64_t slab, int64_t k)
{
    return (uint8_t *)row_of(&job->rows, &job->q, slab) + k * job->q_step;
}

static int64_t slab_rows(const job_t *job, int64_t slab)
{
    if (job->slab == 1)
        return 1;
    int64_t left = job->matrix - slab % job->slabs * job->slab;
    return left < job->slab ? left : job->slab;
}

static float *scale_at(const job_t *job, int64_t slab, int64_t column)
{
    if (job->quant == SKR_QUANT_TENSOR)
        return job->scale.data;
    return (float *)row_of(&job->rows, &job->scale, slab) + column / job->group * job->scale.col_stride;
}

static row_top top_of(const job_t *job, int64_t slab, int64_t column, int64_t n)
{
    row_top top = {0, 1};
    for (int64_t k = 0, rows = slab_rows(job, slab); k < rows; k++) {
        row_top t = amax_of(job->x.type, x_row(job, slab, k) + column * skr_type_bytes(job->x.type), n);
        top.amax = t.amax > top.amax ? t.amax : top.amax;
        top.finite &= t.finite;
    }
    return top;
}

/* ---------------------------------------------------------------- codes */

/* Columns of one scale, in every row of the slab. column is even where codes are packed. */
static void segment(const job_t *job, int64_t slab, int64_t column, int64_t n, float scale, row_top top)
{
    int64_t bytes = skr_type_bytes(job->x.type);
    for (int64_t k = 0, rows = slab_rows(job, slab); k < rows; k++) {
        const char *x = x_row(job, slab, k) + column * bytes;
        uint8_t *q = q_row(job, slab, k);
        if (job->type != SKR_I4 && !(SKR_PAST && skr_past(&job->head))) {
            quant_codes(job->x.type, job->type, x, q + column, scale, top, n);
            continue;
        }
        for (int64_t i = 0; i < n; i += QUANT_SPAN) {
            uint8_t code[QUANT_SPAN];
            int64_t len = n - i < QUANT_SPAN ? n - i : QUANT_SPAN;
            quant_codes(job->x.type, job->type, x + i * bytes, code, scale, top, len);
            if (job->type == SKR_I4)
                pack_nibbles(code, q + (column + i) / 2, len);
            else
                copy_past((char *)q + column + i, (const char *)code, len);
        }
    }
}

/* i4 in groups of an odd number of columns: a byte may hold codes of two groups. */
static void odd_groups(const job_t *job, int64_t slab, const region *r)
{
    int64_t bytes = skr_type_bytes(job->x.type), group = job->group, n = job->n;
    const char *x = x_row(job, slab, 0);
    row_top top = {0, 1};
    float scale = 1;
    for (int64_t base = r->first; base < r->last; base += QUANT_SPAN) {
        uint8_t code[QUANT_SPAN];
        int64_t end = base + QUANT_SPAN < r->last ? base + QUANT_SPAN : r->last;
        for (int64_t i = base; i < end;) {
            int64_t stop = (i / group + 1) * group;
            if (i % group == 0) {
                top = amax_of(job->x.type, x + i * bytes, (stop < n ? stop : n) - i);
                scale = *scale_at(job, slab, i) = quant_scale(top.amax, SKR_I4);
            }
            stop = stop < end ? stop : end;
            quant_codes(job->x.type, SKR_I4, x + i * bytes, code + (i - base), scale, top, stop - i);
            i = stop;
        }
        pack_nibbles(code, q_row(job, slab, 0) + base / 2, end - base);
    }
}

static void codes(const job_t *job, int64_t task)
{
    region r = region_of(job, task);
    for (int64_t slab = r.begin; slab < r.end; slab++) {
        if (job->n == 0)
            *scale_at(job, slab, 0) = quant_scale(0.0f, job->type);
        if (job->type == SKR_I4 && job->quant == SKR_QUANT_GROUPS && job->group % 2) {
            odd_groups(job, slab, &r);
            continue;
        }
        for (int64_t i = r.first; i < r.last; i += job->group) {
            int64_t len = r.last - i < job->group ? r.last - i : job->group;
            row_top top = top_of(job, slab, i, len);
            float *scale = scale_at(job, slab, i);
            if (job->quant != SKR_QUANT_TENSOR)
                *scale = quant_scale(top.amax, job->type);
            segment(job, slab, i, len, *scale, top);
        }
    }
}

static void part(const job_t *job, int64_t task)
{
    region r = region_of(job, task);
    float amax = 0;
    for (int64_t slab = r.begin; slab < r.end; slab++) {
        float top = top_of(job, slab, r.first, r.last - r.first).amax;
        amax = top > amax ? top : amax;
    }
    ((float *)job->head.workspace)[task] = amax;
}

static void fold(const job_t *job)
{
    const float *parts = job->head.workspace;
    float amax = 0;
    for (int64_t i = 0; i < job->n_tasks; i++)
        amax = parts[i] > amax ? parts[i] : amax;
    *(float *)job->scale.data = quant_scale(amax, job->type);
}

void SKR_KERNEL(quantize)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(quantize)(const void *job, int step, int64_t task, int worker)
{
    (void)worker;
    if (step == SKR_QUANTIZE_PARTS)
        part(job, task);
    else if (step == SKR_QUANTIZE_FOLD)
        fold(job);
    else
        codes(job, task);
}

/* ---------------------------------------------------------------- and back */

/* Codes i ... of `blocks` times four vectors, one step of all before the next: the steps wait for each other. */
SKR_FN void values_step(int qt, int type, const uint8_t *q, void *y, int64_t i, vf scale, int blocks, int past)
{
    vf a[16];
    for (int k = 0; k < blocks; k++)
        v_load4_codes(qt, q + i + 4 * SKR_LANES * k, a + 4 * k);
    for (int k = 0; k < 4 * blocks; k++)
        a[k] = v_mul(a[k], scale);
    for (int k = 0; k < 4 * blocks; k += 2)
        v_out2(type, y, i + k * SKR_LANES, (vf2){a[k], a[k + 1]}, past);
}

SKR_FN void values_body(int qt, int type, const uint8_t *q, void *y, float scale1, int64_t n, int past)
{
    vf scale = v_set1(scale1);
    int64_t i = 0;
    for (; SKR_LANES == 4 && i + 16 * SKR_LANES <= n; i += 16 * SKR_LANES)
        values_step(qt, type, q, y, i, scale, 4, past);
    for (; i + 4 * SKR_LANES <= n; i += 4 * SKR_LANES)
        values_step(qt, type, q, y, i, scale, 1, past);
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES) {
        vf2 a = {v_of_code(qt, vi_load_u8(q + i)), v_of_code(qt, vi_load_u8(q + i + SKR_LANES))};
        v_out2(type, y, i, v2_scale(a, scale), past);
    }
    for (; i < n; i += SKR_LANES) {
        uint8_t some[SKR_LANES] = {0};
        int m = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        for (int k = 0; k < m; k++)
            some[k] = q[i + k];
        v_store_n(type, y, i, v_mul(v_of_code(qt, vi_load_u8(some)), scale), m);
    }
}

typedef void (*values_fn)(const uint8_t *q, void *y, float scale, int64_t n, int past);
#define VALUES(qt, type)                                                                                               \
    static void values_##qt##_##type(const uint8_t *q, void *y, float scale, int64_t n, int past)                      \
    {                                                                                                                  \
        values_body(SKR_##qt, SKR_##type, q, y, scale, n, past);                                                       \
    }
#define VALUES_OF(qt) VALUES(qt, F32) VALUES(qt, F16) VALUES(qt, BF16)
VALUES_OF(E4M3)
VALUES_OF(E5M2)
VALUES_OF(I8)
static const values_fn values_table[3][3] = {{values_E4M3_F32, values_E4M3_F16, values_E4M3_BF16},
                                             {values_E5M2_F32, values_E5M2_F16, values_E5M2_BF16},
                                             {values_I8_F32, values_I8_F16, values_I8_BF16}};

/* Codes [column, column + n) of a row of i4, as i8. */
static void unpack_nibbles(const uint8_t *q, int64_t column, uint8_t *code, int64_t n)
{
    int64_t i = 0;
    if (column % 2)
        code[i++] = (uint8_t)((int8_t)q[column / 2] >> 4);
    q += (column + i) / 2;
    for (; i + 1 < n; i += 2, q++) {
        code[i] = (uint8_t)((int8_t)(uint8_t)(*q << 4) >> 4);
        code[i + 1] = (uint8_t)((int8_t)*q >> 4);
    }
    if (i < n)
        code[i] = (uint8_t)((int8_t)(uint8_t)(*q << 4) >> 4);
}

static void values_row(const job_t *job, const uint8_t *q, char *y, int64_t column, int64_t n, float scale)
{
    int64_t bytes = skr_type_bytes(job->x.type);
    y += column * bytes;
    int past = goes_past(&job->head, y);
    if (job->type != SKR_I4) {
        values_table[job->type - SKR_E4M3][job->x.type](q + column, y, scale, n, past);
        return;
    }
    for (int64_t i = 0; i < n; i += QUANT_SPAN) {
        uint8_t code[QUANT_SPAN];
        int64_t len = n - i < QUANT_SPAN ? n - i : QUANT_SPAN;
        unpack_nibbles(q, column + i, code, len);
        values_table[SKR_I8 - SKR_E4M3][job->x.type](code, y + i * bytes, scale, len, past);
    }
}

void SKR_KERNEL(dequantize)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(dequantize)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    (void)worker;
    const job_t *j = job;
    region r = region_of(j, task);
    for (int64_t slab = r.begin; slab < r.end; slab++)
        for (int64_t k = 0, rows = slab_rows(j, slab); k < rows; k++)
            for (int64_t i = r.first; i < r.last; i += j->group)
                values_row(j, q_row(j, slab, k), x_row(j, slab, k), i, r.last - i < j->group ? r.last - i : j->group,
                           *scale_at(j, slab, i));
}
