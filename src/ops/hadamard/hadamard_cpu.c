/* hadamard_cpu.c - the Hadamard transform of rows. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A row goes through scratch memory as f32, up to four stages in a pass on up to sixteen vectors at once. The first
 * pass reads the input and takes the stages inside of vectors, too; the last one scales and rounds. */
#include "../../cpu/rows.h"
#include "hadamard.h"

typedef skr_hadamard_job job_t;

enum {
#if defined(SKR_LEVEL_avx2) || defined(SKR_LEVEL_scalar) /* 16 registers */
    MOST_STAGES = 3,
#else
    MOST_STAGES = 4,
#endif
    MOST = 1 << MOST_STAGES
};

/* The stages of distances below a vector and below n. */
SKR_FN vf inside(vf v, int64_t n)
{
    _Alignas(64) static const float signs[4][16] = {
        {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
        {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
        {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
        {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1},
    };
    SKR_UNROLL
    for (int d = 1; d < SKR_LANES; d *= 2)
        if (d < n)
            v = v_fma(v, v_load(SKR_F32, signs[__builtin_ctz((unsigned)d)], 0), v_swap(v, d));
    return v;
}

/* Stages between `count` vectors, all of them. */
SKR_FN void between(int count, vf *v)
{
    SKR_UNROLL
    for (int step = 1; step < count; step *= 2)
        SKR_UNROLL
    for (int k = 0; k < count; k++)
        if (!(k & step)) {
            vf sum = v_add(v[k], v[k + step]);
            v[k + step] = v_sub(v[k], v[k + step]);
            v[k] = sum;
        }
}

/* y = the stages inside of groups of `count` vectors of x. With `out` they are all: scaled and rounded they go there.
 */
SKR_FN void first_pass_of(int type, int count, const void *x, float *y, int64_t n, float scale, void *out)
{
    for (int64_t i = 0; i < n; i += count * SKR_LANES) {
        vf v[MOST];
        SKR_UNROLL
        for (int k = 0; k < count; k++)
            v[k] = inside(v_load(type, x, i + k * SKR_LANES), SKR_LANES);
        between(count, v);
        SKR_UNROLL
        for (int k = 0; k < count; k++)
            if (out)
                v_store(type, out, i + k * SKR_LANES, v_mul(v[k], v_set1(scale)));
            else
                v_store(SKR_F32, y, i + k * SKR_LANES, v[k]);
    }
}

/* The stages h, 2 h, ... h * count / 2, in y. With `out` they are the last ones: scaled and rounded they go there. */
SKR_FN void pass_of(int type, int count, float *y, int64_t n, int64_t h, float scale, void *out)
{
    for (int64_t i = 0; i < n; i += count * h)
        for (int64_t j = i; j < i + h; j += SKR_LANES) {
            vf v[MOST];
            SKR_UNROLL
            for (int k = 0; k < count; k++)
                v[k] = v_load(SKR_F32, y, j + k * h);
            between(count, v);
            SKR_UNROLL
            for (int k = 0; k < count; k++)
                if (out)
                    v_store(type, out, j + k * h, v_mul(v[k], v_set1(scale)));
                else
                    v_store(SKR_F32, y, j + k * h, v[k]);
        }
}

/* One function for each number of stages. */
SKR_FN void first_pass(int type, int stages, const void *x, float *y, int64_t n, float scale, void *out)
{
    if (stages == 4)
        first_pass_of(type, MOST, x, y, n, scale, out);
    else if (stages == 3)
        first_pass_of(type, 8, x, y, n, scale, out);
    else if (stages == 2)
        first_pass_of(type, 4, x, y, n, scale, out);
    else if (stages == 1)
        first_pass_of(type, 2, x, y, n, scale, out);
    else
        first_pass_of(type, 1, x, y, n, scale, out);
}

SKR_FN void pass(int type, int stages, float *y, int64_t n, int64_t h, float scale, void *out)
{
    if (stages == 4)
        pass_of(type, MOST, y, n, h, scale, out);
    else if (stages == 3)
        pass_of(type, 8, y, n, h, scale, out);
    else if (stages == 2)
        pass_of(type, 4, y, n, h, scale, out);
    else if (stages == 1)
        pass_of(type, 2, y, n, h, scale, out);
    else
        pass_of(type, 1, y, n, h, scale, out);
}

static void read_row(int type, int stages, const void *x, float *y, int64_t n, float scale, void *out)
{
    if (type == SKR_F32)
        first_pass(SKR_F32, stages, x, y, n, scale, out);
    else if (type == SKR_F16)
        first_pass(SKR_F16, stages, x, y, n, scale, out);
    else
        first_pass(SKR_BF16, stages, x, y, n, scale, out);
}

static void middle_pass(int stages, float *y, int64_t n, int64_t h)
{
    pass(SKR_F32, stages, y, n, h, 1.0f, NULL);
}

static void write_row(int type, int stages, float *y, int64_t n, int64_t h, float scale, void *out)
{
    if (type == SKR_F32)
        pass(SKR_F32, stages, y, n, h, scale, out);
    else if (type == SKR_F16)
        pass(SKR_F16, stages, y, n, h, scale, out);
    else
        pass(SKR_BF16, stages, y, n, h, scale, out);
}

static int stages_of(int64_t vectors)
{
    return 63 - __builtin_clzll((unsigned long long)vectors);
}

/* Stages from *h up to `end` in passes of about as many stages each, but for the last pass: its stages are returned. */
static int passes(float *y, int64_t n, int64_t *h, int64_t end)
{
    int left = stages_of(end / *h);
    for (int more = (left + MOST_STAGES - 1) / MOST_STAGES; more > 1; more--) {
        int stages = (left + more - 1) / more;
        middle_pass(stages, y, n, *h);
        *h <<= stages;
        left -= stages;
    }
    return left;
}

/* Less than a vector. */
static void short_row(const job_t *job, const void *x, float *part, void *y)
{
    int n = (int)job->n;
    widen(job->x.type, x, 0.0f, part, n);
    vf v = v_mul(inside(v_load_n(SKR_F32, part, 0, n), n), v_set1(job->scale));
    v_store_n(SKR_F32, part, 0, v, n);
    if (job->y.type == SKR_F32)
        __builtin_memcpy(y, part, (size_t)n * sizeof *part);
    else
        narrow(job->y.type, part, y, n);
}

static void do_row(const job_t *job, int64_t row, float *part)
{
    /* Blocks of this many elements stay in L1 for all stages inside of them. */
    enum { L1 = 4096 };
    const char *x = row_of(&job->rows, &job->x, row);
    void *y = row_of(&job->rows, &job->y, row);
    int64_t n = job->n, inner = n < L1 ? n : L1, h = SKR_LANES;
    if (n < SKR_LANES) {
        short_row(job, x, part, y);
        return;
    }
    int first = stages_of(inner / SKR_LANES);
    first = first < MOST_STAGES ? first : MOST_STAGES;
    if (n == (int64_t)SKR_LANES << first && job->x.type == job->y.type) {
        read_row(job->x.type, first, x, NULL, n, job->scale, y);
        return;
    }
    for (int64_t b = 0; b < n; b += inner) {
        h = (int64_t)SKR_LANES << first;
        read_row(job->x.type, first, x + b * skr_type_bytes(job->x.type), part + b, inner, 1.0f, NULL);
        int left = passes(part + b, inner, &h, inner);
        if (inner < n) {
            middle_pass(left, part + b, inner, h);
            h = inner;
        }
    }
    int left = passes(part, n, &h, n); /* between blocks; of one block only the last pass is left */
    write_row(job->y.type, left, part, n, left ? h : SKR_LANES, job->scale, y);
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
