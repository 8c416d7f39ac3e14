/* hadamard_cpu.c - the Hadamard transform of rows. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A row becomes f32 in scratch memory. Its stages are taken three at a time on eight vectors; those whose distance is
 * less than a vector come first, four neighbours at a time, in plain C that compilers turn into interleaved loads. The
 * first sweep reads the input as it is, the last one scales and rounds. */
#include "../../cpu/rows.h"
#include "hadamard.h"

typedef skr_hadamard_job job_t;

/* Distances 1 and 2: n is a multiple of 4. */
static void first_two(float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += 4) {
        float a = y[i] + y[i + 1], b = y[i] - y[i + 1], c = y[i + 2] + y[i + 3], d = y[i + 2] - y[i + 3];
        y[i] = a + c;
        y[i + 1] = b + d;
        y[i + 2] = a - c;
        y[i + 3] = b - d;
    }
}

/* One stage of a distance below a vector, or of a row too short for vectors. */
static void small_stage(float *y, int64_t n, int64_t h)
{
    for (int64_t i = 0; i < n; i += 2 * h)
        for (int64_t j = i; j < i + h; j++) {
            float a = y[j], b = y[j + h];
            y[j] = a + b;
            y[j + h] = a - b;
        }
}

SKR_FN void butterfly(vf *a, vf *b)
{
    vf sum = v_add(*a, *b);
    *b = v_sub(*a, *b);
    *a = sum;
}

/* COUNT = 2^stages vectors that are h apart: the stages h, 2h, ... */
SKR_FN void stages(int count, float *y, int64_t n, int64_t h)
{
    for (int64_t i = 0; i < n; i += count * h)
        for (int64_t j = i; j < i + h; j += SKR_LANES) {
            vf v[8];
            SKR_UNROLL
            for (int k = 0; k < count; k++)
                v[k] = v_load(SKR_F32, y, j + k * h);
            SKR_UNROLL
            for (int step = 1; step < count; step *= 2)
                SKR_UNROLL
            for (int k = 0; k < count; k++)
                if (!(k & step))
                    butterfly(&v[k], &v[k + step]);
            SKR_UNROLL
            for (int k = 0; k < count; k++)
                v_store(SKR_F32, y, j + k * h, v[k]);
        }
}

SKR_FN void scale_body(int type, const float *x, float scale, void *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES)
        v_store2(type, y, i, v2_scale(v_load2(SKR_F32, x, i), v_set1(scale)));
    if (i < n) {
        int left = (int)(n - i);
        v_store2_n(type, y, i, v2_scale(v_load2_n(SKR_F32, x, i, left), v_set1(scale)), left);
    }
}

static void scale_to(int type, const float *x, float scale, void *y, int64_t n)
{
    if (type == SKR_F32)
        scale_body(SKR_F32, x, scale, y, n);
    else if (type == SKR_F16)
        scale_body(SKR_F16, x, scale, y, n);
    else
        scale_body(SKR_BF16, x, scale, y, n);
}

/* Stages from distance h up to below `end`. */
static void large_stages(float *y, int64_t n, int64_t h, int64_t end)
{
    while (h < end) {
        if (h * 4 < end) {
            stages(8, y, n, h);
            h *= 8;
        } else if (h * 2 < end) {
            stages(4, y, n, h);
            h *= 4;
        } else {
            stages(2, y, n, h);
            h *= 2;
        }
    }
}

static void do_row(const job_t *job, int64_t row, float *y)
{
    /* Blocks of this many elements stay in L1 for all stages inside of them. */
    enum { L1 = 4096 };
    const void *x = row_of(&job->rows, &job->x, row);
    int64_t n = job->n, inner = n < L1 ? n : L1;
    for (int64_t b = 0; b < n; b += inner) {
        float *part = y + b;
        int64_t h = inner >= 4 ? 4 : 1;
        widen(job->x.type, (const char *)x + b * skr_type_bytes(job->x.type), 0.0f, part, inner);
        if (h == 4)
            first_two(part, inner);
        for (; h < inner && (h < SKR_LANES || inner < 4); h *= 2)
            small_stage(part, inner, h);
        large_stages(part, inner, h, inner);
    }
    large_stages(y, n, inner, n);
    scale_to(job->y.type, y, job->scale, row_of(&job->rows, &job->y, row), n);
}

void SKR_KERNEL(hadamard)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(hadamard)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    const job_t *j = job;
    int64_t end = (task + 1) * j->rows_per_task;
    end = end < j->rows.m ? end : j->rows.m;
    float *scratch = (float *)((char *)j->head.workspace + worker * j->scratch_bytes);
    for (int64_t row = task * j->rows_per_task; row < end; row++)
        do_row(j, row, scratch);
}
