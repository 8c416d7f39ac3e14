/* softmax_backward_cpu.c - backward. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two sweeps over a row: the sum of dy * y (log: of dy), then dx. Where all tensors have one type and there is no
 * causal mask, the sum of the next row is formed block by block between the results of this one: memory is read while
 * they are computed. Other rows go through buffers of f32. Rows across memory: tiles (softmax_cpu.h). */
#include "softmax_cpu.h"

typedef skr_softmax_backward_job job_t;

enum { K = 4, BLOCK = 2 * K * SKR_LANES, STAGED = 1024 };

/* ---------------------------------------------------------------- one chunk */

SKR_TAIL float sum_tail(int type, int log, const void *dy, const void *y, int64_t i, int64_t n)
{
    vf a = v_set1(0.0f);
    for (; i < n; i += SKR_LANES) {
        int left = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        vf d = v_load_n(type, dy, i, left);
        a = log ? v_add(a, d) : v_fma(d, v_load_n(type, y, i, left), a);
    }
    return v_sum(a);
}

SKR_FN void sum_block(int type, int log, const void *dy, const void *y, int64_t i, vf2 *a)
{
    SKR_UNROLL
    for (int k = 0; k < K; k++) {
        vf2 d = v_load2(type, dy, i + 2 * k * SKR_LANES);
        a[k] = log ? v2_add(a[k], d) : v2_fma(d, v_load2(type, y, i + 2 * k * SKR_LANES), a[k]);
    }
}

SKR_FN float total(const vf2 *a)
{
    vf2 sum = v2_add(v2_add(a[0], a[1]), v2_add(a[2], a[3]));
    return v_sum(v_add(sum.lo, sum.hi));
}

/* No fused step: it would change the sign of a NaN, or not, as the compiler orders its operands. */
SKR_FN vf grad(int log, vf dy, vf y, vf sum, vf scale)
{
    return log ? v_mul(scale, v_sub(dy, v_mul(v_exp(y), sum))) : v_mul(v_mul(scale, y), v_sub(dy, sum));
}

SKR_TAIL void grad_tail(int type, int log, const void *dy, const void *y, void *dx, float sum, float scale, int64_t i,
                        int64_t n)
{
    for (; i < n; i += SKR_LANES) {
        int left = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        vf d = v_load_n(type, dy, i, left), p = v_load_n(type, y, i, left);
        v_store_n(type, dx, i, grad(log, d, p, v_set1(sum), v_set1(scale)), left);
    }
}

SKR_FN void grad_block(int type, int log, const void *dy, const void *y, void *dx, vf sum, vf scale, int past,
                       int64_t i)
{
    vf2 d[K], p[K];
    SKR_UNROLL
    for (int k = 0; k < K; k++) {
        d[k] = v_load2(type, dy, i + 2 * k * SKR_LANES);
        p[k] = v_load2(type, y, i + 2 * k * SKR_LANES);
    }
    SKR_UNROLL
    for (int k = 0; k < K; k++) {
        d[k].lo = grad(log, d[k].lo, p[k].lo, sum, scale);
        d[k].hi = grad(log, d[k].hi, p[k].hi, sum, scale);
    }
    SKR_UNROLL
    for (int k = 0; k < K; k++)
        v_out2(type, dx, i + 2 * k * SKR_LANES, d[k], past);
}

SKR_FN float sum_body(int type, int log, const void *dy, const void *y, int64_t n)
{
    vf2 a[K] = {v2_set1(0.0f), v2_set1(0.0f), v2_set1(0.0f), v2_set1(0.0f)};
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        sum_block(type, log, dy, y, i, a);
    float sum = total(a);
    return i < n ? sum + sum_tail(type, log, dy, y, i, n) : sum;
}

/* One chunk of a row, and of the next one's sum. */
typedef struct chunk {
    const char *dy, *y, *next_dy, *next_y, *ahead_dy, *ahead_y;
    char *dx;
    float sum, scale;
    int past; /* dx is written past the caches */
} chunk;

SKR_FN void grad_body(int type, int log, const chunk *c, int64_t n)
{
    vf sum = v_set1(c->sum), scale = v_set1(c->scale);
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK)
        grad_block(type, log, c->dy, c->y, c->dx, sum, scale, c->past, i);
    if (i < n)
        grad_tail(type, log, c->dy, c->y, c->dx, c->sum, c->scale, i, n);
}

SKR_FN float both_body(int type, int log, const chunk *c, int64_t n)
{
    const int bytes = type == SKR_F32 ? 4 : 2;
    vf sum = v_set1(c->sum), scale = v_set1(c->scale);
    vf2 a[K] = {v2_set1(0.0f), v2_set1(0.0f), v2_set1(0.0f), v2_set1(0.0f)};
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        prefetch_block(c->ahead_dy + i * bytes, BLOCK * bytes);
        prefetch_block(c->ahead_y + i * bytes, BLOCK * bytes);
        sum_block(type, log, c->next_dy, c->next_y, i, a);
        grad_block(type, log, c->dy, c->y, c->dx, sum, scale, c->past, i);
    }
    float next = total(a);
    if (i < n) {
        next += sum_tail(type, log, c->next_dy, c->next_y, i, n);
        grad_tail(type, log, c->dy, c->y, c->dx, c->sum, c->scale, i, n);
    }
    return next;
}

typedef float (*sum_fn)(const void *dy, const void *y, int64_t n);
typedef void (*grad_fn)(const chunk *c, int64_t n);
typedef float (*both_fn)(const chunk *c, int64_t n);
#define BODIES(t, name, log)                                                                                           \
    static float sum_##name##_##t(const void *dy, const void *y, int64_t n)                                            \
    {                                                                                                                  \
        return sum_body(SKR_##t, log, dy, y, n);                                                                       \
    }                                                                                                                  \
    static void grad_##name##_##t(const chunk *c, int64_t n)                                                           \
    {                                                                                                                  \
        grad_body(SKR_##t, log, c, n);                                                                                 \
    }                                                                                                                  \
    static float both_##name##_##t(const chunk *c, int64_t n)                                                          \
    {                                                                                                                  \
        return both_body(SKR_##t, log, c, n);                                                                          \
    }
#define EACH(t) BODIES(t, plain, 0) BODIES(t, log, 1)
FLOATS(EACH)
#define ROW(name)                                                                                                      \
    {                                                                                                                  \
        {name##_plain_F32, name##_log_F32}, {name##_plain_F16, name##_log_F16},                                        \
        {                                                                                                              \
            name##_plain_BF16, name##_log_BF16                                                                         \
        }                                                                                                              \
    }
/* [type][log] */
static const sum_fn sums[3][2] = ROW(sum);
static const grad_fn grads[3][2] = ROW(grad);
static const both_fn boths[3][2] = ROW(both);

/* ---------------------------------------------------------------- rows of one type */

static double row_sum(const job_t *job, const char *dy, const char *y)
{
    int bytes = skr_type_bytes(job->y.type);
    double sum = 0;
    for (int64_t i = 0; i < job->n; i += CHUNK)
        sum += (double)sums[job->y.type][job->log](dy + i * bytes, y + i * bytes, chunk_len(job->n, i));
    return sum;
}

static void rows_of_one_type(const job_t *job, int64_t begin, int64_t end)
{
    int type = job->y.type, bytes = skr_type_bytes(type);
    lead a = lead_of(&job->y, job->n);
    chunk c = {.dy = row_of(&job->rows, &job->dy, begin), .y = row_of(&job->rows, &job->y, begin)};
    double sum = row_sum(job, c.dy, c.y);
    c.scale = job->scale;
    for (int64_t row = begin; row < end; row++) {
        int64_t next = row + 1 < end ? row + 1 : row;
        const char *next_dy = row_of(&job->rows, &job->dy, next), *next_y = row_of(&job->rows, &job->y, next);
        chunk r = c;
        r.dx = row_of(&job->rows, &job->dx, row);
        r.past = goes_past(&job->head, r.dx);
        r.sum = (float)sum;
        sum = 0;
        for (int64_t i = 0; i < job->n; i += CHUNK) {
            chunk p = r;
            p.dy += i * bytes, p.y += i * bytes, p.dx += i * bytes;
            p.next_dy = next_dy + i * bytes, p.next_y = next_y + i * bytes;
            p.ahead_dy = ahead_at(&a, &job->rows, &job->dy, next, end, i * bytes);
            p.ahead_y = ahead_at(&a, &job->rows, &job->y, next, end, i * bytes);
            if (next > row)
                sum += (double)boths[type][job->log](&p, chunk_len(job->n, i));
            else
                grads[type][job->log](&p, chunk_len(job->n, i));
        }
        c.dy = next_dy, c.y = next_y;
    }
}

/* ---------------------------------------------------------------- other rows, through f32 */

static int64_t staged_len(int64_t n, int64_t i)
{
    return n - i < STAGED ? n - i : STAGED;
}

static void put_zeros(int type, char *p, int64_t n)
{
    static const float zeros[STAGED];
    for (int64_t i = 0; i < n; i += STAGED)
        put_run(type, zeros, p + i * skr_type_bytes(type), 1, staged_len(n, i));
}

static void row_by_f32(const job_t *job, int64_t row)
{
    float dy[STAGED], y[STAGED];
    skr_span seen = skr_seen_of(&job->seen, job->n, row);
    int dyb = skr_type_bytes(job->dy.type), yb = skr_type_bytes(job->y.type), dxb = skr_type_bytes(job->dx.type);
    const char *from_dy = row_of(&job->rows, &job->dy, row), *from_y = row_of(&job->rows, &job->y, row);
    char *dx = row_of(&job->rows, &job->dx, row);
    double sum = 0;
    for (int64_t i = seen.begin; i < seen.end; i += STAGED) {
        int64_t n = staged_len(seen.end, i);
        get_run(job->dy.type, from_dy + i * dyb, 1, dy, n);
        get_run(job->y.type, from_y + i * yb, 1, y, n);
        sum += (double)sums[SKR_F32][job->log](dy, y, n);
    }
    chunk c = {.dy = (char *)dy, .y = (char *)y, .dx = (char *)dy, .sum = (float)sum, .scale = job->scale};
    for (int64_t i = seen.begin; i < seen.end; i += STAGED) {
        int64_t n = staged_len(seen.end, i);
        get_run(job->dy.type, from_dy + i * dyb, 1, dy, n);
        get_run(job->y.type, from_y + i * yb, 1, y, n);
        grads[SKR_F32][job->log](&c, n);
        put_run(job->dx.type, dy, dx + i * dxb, 1, n);
    }
    put_zeros(job->dx.type, dx, seen.begin);
    put_zeros(job->dx.type, dx + seen.end * dxb, job->n - seen.end);
}

/* ---------------------------------------------------------------- tiles */

/* Zeros where row r of the tile does not see column k. */
static void hide(const job_t *job, const skr_span *span, int64_t k, int width, float *a)
{
    for (int r = 0; job->seen.how != SKR_SEEN_ALL && r < width; r++)
        a[r] = k >= span[r].begin && k < span[r].end ? a[r] : 0.0f;
}

static void tile_rows(const job_t *job, tile t)
{
    enum { W = SKR_SOFTMAX_TILE };
    float dy[W], y[W], sum[W], part[W];
    skr_span span[W];
    int width = t.width, padded = (width + SKR_LANES - 1) / SKR_LANES * SKR_LANES;
    tile_view from_dy = tile_view_of(&job->rows, &job->dy, t.row), from_y = tile_view_of(&job->rows, &job->y, t.row);
    tile_view to = tile_view_of(&job->rows, &job->dx, t.row);
    vf scale = v_set1(job->scale);
    tile_spans(&job->seen, job->n, t, span);
    for (int r = 0; r < W; r++)
        dy[r] = y[r] = sum[r] = 0.0f;
    for (int64_t k0 = 0; k0 < job->n; k0 += PART) {
        int64_t k1 = job->n - k0 < PART ? job->n : k0 + PART;
        for (int r = 0; r < padded; r++)
            part[r] = 0.0f;
        for (int64_t k = k0; k < k1; k++) {
            get_run(from_dy.type, tile_column(&from_dy, k), from_dy.step, dy, width);
            get_run(from_y.type, tile_column(&from_y, k), from_y.step, y, width);
            hide(job, span, k, width, dy);
            hide(job, span, k, width, y);
            for (int r = 0; r < padded; r += SKR_LANES) {
                vf d = v_load(SKR_F32, dy, r), a = v_load(SKR_F32, part, r);
                v_store(SKR_F32, part, r, job->log ? v_add(a, d) : v_fma(d, v_load(SKR_F32, y, r), a));
            }
        }
        for (int r = 0; r < padded; r += SKR_LANES)
            v_store(SKR_F32, sum, r, v_add(v_load(SKR_F32, sum, r), v_load(SKR_F32, part, r)));
    }
    for (int64_t k = 0; k < job->n; k++) {
        get_run(from_dy.type, tile_column(&from_dy, k), from_dy.step, dy, width);
        get_run(from_y.type, tile_column(&from_y, k), from_y.step, y, width);
        for (int r = 0; r < padded; r += SKR_LANES) {
            vf d = v_load(SKR_F32, dy, r), p = v_load(SKR_F32, y, r), s = v_load(SKR_F32, sum, r);
            v_store(SKR_F32, dy, r, job->log ? grad(1, d, p, s, scale) : grad(0, d, p, s, scale));
        }
        hide(job, span, k, width, dy);
        put_run(to.type, dy, tile_column(&to, k), to.step, width);
    }
}

void SKR_KERNEL(softmax_backward)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(softmax_backward)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    (void)worker;
    const job_t *j = job;
    bool across = j->dy.col_stride != 1 || j->y.col_stride != 1 || j->dx.col_stride != 1;
    bool one_type = j->dy.type == j->y.type && j->y.type == j->dx.type && j->seen.how == SKR_SEEN_ALL;
    int64_t all = across ? tile_count(&j->rows, j->cpu.tile) : j->rows.m;
    int64_t begin = task * j->cpu.per_task, end = begin + j->cpu.per_task;
    end = end < all ? end : all;
    if (across)
        for (int64_t i = begin; i < end; i++)
            tile_rows(j, tile_at(&j->rows, j->cpu.tile, i));
    else if (one_type)
        rows_of_one_type(j, begin, end);
    else
        for (int64_t row = begin; row < end; row++)
            row_by_f32(j, row);
}
