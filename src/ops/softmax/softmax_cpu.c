/* softmax_cpu.c - forward. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Three sweeps over a row: its maximum, the exponentials with their sum, the result. The exponentials wait in y where
 * that is f32 and stays in the caches, else in this worker's scratch row. An exponential costs more than anything else
 * here, so none is computed twice, and memory is read ahead while they are computed. With a mask, or a causal one, s is
 * first written to the scratch row. Rows across memory: tiles (softmax_cpu.h). */
#include "softmax_cpu.h"

typedef skr_softmax_job job_t;

/* PAIRS of vectors at once: exponentials of four vectors keep the pipelines full without spilling. */
enum { PAIRS = 2, STEP = 2 * PAIRS * SKR_LANES };

SKR_FN vf2 v2_sub1(vf2 a, vf b)
{
    return (vf2){v_sub(a.lo, b), v_sub(a.hi, b)};
}

SKR_FN vf v_most(int negative, vf a, vf b)
{
    return negative ? v_min(a, b) : v_max(a, b);
}

SKR_FN vf2 v2_most(int negative, vf2 a, vf2 b)
{
    return (vf2){v_most(negative, a.lo, b.lo), v_most(negative, a.hi, b.hi)};
}

/* scale * x - m, rounded once. */
SKR_FN vf2 v2_less(vf2 x, vf scale, vf minus_m)
{
    return (vf2){v_fma(x.lo, scale, minus_m), v_fma(x.hi, scale, minus_m)};
}

/* ---------------------------------------------------------------- sweeps over one row */

/* The largest scale * x: scale times the largest x, or the smallest where scale is negative. */
SKR_FN float max_body(int type, int negative, const void *x, float scale, int64_t n)
{
    const vf2 least = v2_set1(negative ? __builtin_inff() : -__builtin_inff());
    vf2 m[4] = {least, least, least, least};
    int64_t i = 0;
    for (; i + 8 * SKR_LANES <= n; i += 8 * SKR_LANES)
        SKR_UNROLL
    for (int k = 0; k < 4; k++)
        m[k] = v2_most(negative, m[k], v_load2(type, x, i + 2 * k * SKR_LANES));
    vf2 top = v2_most(negative, v2_most(negative, m[0], m[1]), v2_most(negative, m[2], m[3]));
    vf best = v_mul(v_most(negative, top.lo, top.hi), v_set1(scale));
    float most = i ? v_hmax(best) : -__builtin_inff();
    for (; i < n; i += SKR_LANES) { /* the last vector is filled up with its own first element */
        int left = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        float lane[SKR_LANES];
        v_store(SKR_F32, lane, 0, v_mul(v_load_n(type, x, i, left), v_set1(scale)));
        for (int k = left; k < SKR_LANES; k++)
            lane[k] = lane[0];
        float here = v_hmax(v_load(SKR_F32, lane, 0));
        most = here > most || here != here ? here : most;
    }
    return most;
}

SKR_TAIL float exp_tail(int type, int keep, const void *x, float scale, float m, float *e, int64_t i, int64_t n)
{
    float sum = 0.0f;
    for (; i < n; i += SKR_LANES) {
        int left = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        float lane[SKR_LANES];
        vf a = v_exp_raised(v_fma(v_load_n(type, x, i, left), v_set1(scale), v_set1(-m)));
        v_store(SKR_F32, lane, 0, a);
        for (int k = 0; k < left; k++)
            sum += lane[k];
        if (keep)
            v_store_n(SKR_F32, e, i, a, left);
    }
    return sum;
}

/* e = 2^24 * exp(scale * x - m) of one chunk, stored if keep, and its sum. */
SKR_FN float exp_body(int type, int keep, const void *x, float scale1, float m1, float *e, const char *ahead, int64_t n)
{
    const int bytes = type == SKR_F32 ? 4 : 2;
    vf scale = v_set1(scale1), m = v_set1(-m1);
    vf2 sum[PAIRS];
    SKR_UNROLL
    for (int k = 0; k < PAIRS; k++)
        sum[k] = v2_set1(0.0f);
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        prefetch_block(ahead + i * bytes, STEP * bytes);
        vf2 a[PAIRS];
        SKR_UNROLL
        for (int k = 0; k < PAIRS; k++)
            a[k] = v2_less(v_load2(type, x, i + 2 * k * SKR_LANES), scale, m);
        v_exp_raised_pairs(a);
        SKR_UNROLL
        for (int k = 0; k < PAIRS; k++) {
            sum[k] = v2_add(sum[k], a[k]);
            if (keep)
                v_store2(SKR_F32, e, i + 2 * k * SKR_LANES, a[k]);
        }
    }
    vf2 all = v2_add(sum[0], sum[1]);
    float total = v_sum(v_add(all.lo, all.hi));
    return i < n ? total + exp_tail(type, keep, x, scale1, m1, e, i, n) : total;
}

/* y = e * factor. */
SKR_FN void product_body(int yt, const float *e, void *y, float factor1, int64_t n, int past)
{
    vf factor = v_set1(factor1);
    int64_t i = 0;
    for (; i + 8 * SKR_LANES <= n; i += 8 * SKR_LANES) {
        vf2 a[4];
        SKR_UNROLL
        for (int k = 0; k < 4; k++)
            a[k] = v2_scale(v_load2(SKR_F32, e, i + 2 * k * SKR_LANES), factor);
        SKR_UNROLL
        for (int k = 0; k < 4; k++)
            v_out2(yt, y, i + 2 * k * SKR_LANES, a[k], past);
    }
    for (; i < n; i += SKR_LANES) {
        int left = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        v_store_n(yt, y, i, v_mul(v_load_n(SKR_F32, e, i, left), factor), left);
    }
}

/* y = (scale * x - m) - ln. */
SKR_FN void log_body(int type, int yt, const void *x, void *y, float scale1, float m1, float ln1, int64_t n, int past)
{
    vf scale = v_set1(scale1), m = v_set1(-m1), ln = v_set1(ln1);
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES)
        v_out2(yt, y, i, v2_sub1(v2_less(v_load2(type, x, i), scale, m), ln), past);
    for (; i < n; i += SKR_LANES) {
        int left = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        v_store_n(yt, y, i, v_sub(v_fma(v_load_n(type, x, i, left), scale, m), ln), left);
    }
}

typedef float (*max_fn)(const void *x, float scale, int64_t n);
typedef float (*exp_fn)(const void *x, float scale, float m, float *e, const char *ahead, int64_t n);
typedef void (*product_fn)(const float *e, void *y, float factor, int64_t n, int past);
typedef void (*log_fn)(const void *x, void *y, float scale, float m, float ln, int64_t n, int past);

#define SWEEPS(t)                                                                                                      \
    static float max_##t(const void *x, float scale, int64_t n)                                                        \
    {                                                                                                                  \
        return scale < 0 ? max_body(SKR_##t, 1, x, scale, n) : max_body(SKR_##t, 0, x, scale, n);                      \
    }                                                                                                                  \
    static float exp_##t(const void *x, float scale, float m, float *e, const char *ahead, int64_t n)                  \
    {                                                                                                                  \
        return exp_body(SKR_##t, 1, x, scale, m, e, ahead, n);                                                         \
    }                                                                                                                  \
    static float sum_##t(const void *x, float scale, float m, float *e, const char *ahead, int64_t n)                  \
    {                                                                                                                  \
        return exp_body(SKR_##t, 0, x, scale, m, e, ahead, n);                                                         \
    }                                                                                                                  \
    static void product_##t(const float *e, void *y, float factor, int64_t n, int past)                                \
    {                                                                                                                  \
        product_body(SKR_##t, e, y, factor, n, past);                                                                  \
    }
FLOATS(SWEEPS)
#define LOG(t, yt)                                                                                                     \
    static void log_##t##_##yt(const void *x, void *y, float scale, float m, float ln, int64_t n, int past)            \
    {                                                                                                                  \
        log_body(SKR_##t, SKR_##yt, x, y, scale, m, ln, n, past);                                                      \
    }
FLOATS1(LOG, F32)
FLOATS1(LOG, F16)
FLOATS1(LOG, BF16)

/* Indexed by skr_type: F32, F16, BF16 are 0, 1, 2. */
static const max_fn maxima[3] = {max_F32, max_F16, max_BF16};
static const exp_fn exps[3] = {exp_F32, exp_F16, exp_BF16}, sums[3] = {sum_F32, sum_F16, sum_BF16};
static const product_fn products[3] = {product_F32, product_F16, product_BF16};
static const log_fn logs[3][3] = {{log_F32_F32, log_F32_F16, log_F32_BF16},
                                  {log_F16_F32, log_F16_F16, log_F16_BF16},
                                  {log_BF16_F32, log_BF16_F16, log_BF16_BF16}};

static float log_of(float x)
{
    float lane[SKR_LANES];
    v_store(SKR_F32, lane, 0, v_log(v_set1(x)));
    return lane[0];
}

/* The end of a row: exponents are taken against `against`, y is e * factor, or (s - against) - ln. Nothing but
 * -infinity in a row gives 0, and -infinity as logarithm. */
typedef struct norm {
    float against, factor, ln;
} norm;

static float against(float m)
{
    return m == -__builtin_inff() ? 0.0f : m;
}

static norm norm_of(const job_t *job, float m, double sum)
{
    bool none = m == -__builtin_inff();
    norm r = {.against = against(m)};
    if (job->log)
        r.ln = none ? 0.0f : log_of((float)(sum * 0x1p-24));
    else
        r.factor = none ? 0.0f : (float)(1.0 / sum);
    return r;
}

/* ---------------------------------------------------------------- rows */

/* s of a row as f32: scale * x + mask, -infinity outside of what is seen. */
static void make_s(const job_t *job, int64_t row, const char *x, float *s)
{
    skr_span seen = skr_seen_of(&job->seen, job->n, row);
    int64_t n = seen.end - seen.begin;
    int xb = skr_type_bytes(job->x.type), mb = skr_type_bytes(job->mask.type);
    vf scale = v_set1(job->scale);
    for (int64_t i = 0; i < seen.begin; i++)
        s[i] = -__builtin_inff();
    for (int64_t i = seen.begin + n; i < job->n; i++)
        s[i] = -__builtin_inff();
    s += seen.begin;
    x += seen.begin * xb;
    const char *mask = job->mask.data ? row_of(&job->rows, &job->mask, row) : NULL;
    for (int64_t i = 0; i < n; i += CHUNK) {
        float m[CHUNK];
        int64_t len = chunk_len(n, i);
        widen(job->x.type, x + i * xb, 0.0f, s + i, len);
        if (mask)
            get_run(job->mask.type, mask + (seen.begin + i) * job->mask.col_stride * mb, job->mask.col_stride, m, len);
        for (int64_t k = 0; k < len; k += SKR_LANES) {
            int left = len - k < SKR_LANES ? (int)(len - k) : SKR_LANES;
            vf a = v_mul(v_load_n(SKR_F32, s + i, k, left), scale);
            if (mask)
                a = v_fma(v_load_n(SKR_F32, s + i, k, left), scale, v_load_n(SKR_F32, m, k, left));
            v_store_n(SKR_F32, s + i, k, a, left);
        }
    }
}

static float max_of(int type, const char *x, float scale, int64_t n)
{
    float m = -__builtin_inff();
    for (int64_t i = 0; i < n; i += CHUNK) {
        float here = maxima[type](x + i * skr_type_bytes(type), scale, chunk_len(n, i));
        m = here > m || here != here ? here : m;
    }
    return m;
}

/* Up to here m may be rounded: all exponents of a row are off by the same, at most 1/2, which cancels. From 1.5e9 on it
 * could be more than exp takes, and it may be infinite where no x is. The exponents of a far row are (x - top) * scale,
 * top being the largest x. */
#define FAR 0x1p24f

/* (sign * x - m) * times: sign is that of scale, and one half where the difference could overflow, but not its product
 * with scale. */
typedef struct far_row {
    float sign, m, times;
} far_row;

static far_row far_of(int type, const char *x, float scale, int64_t n, float *top)
{
    float sign = scale < 0 ? -1.0f : 1.0f, size = sign * scale, part = size < 1 ? 0.5f : 1.0f;
    *top = max_of(type, x, sign, n);
    return (far_row){sign * part, part * *top, size / part};
}

static void far_chunk(const far_row *f, int type, const char *x, float *a, int64_t n)
{
    widen(type, x, 0.0f, a, n);
    for (int64_t i = 0; i < n; i += SKR_LANES) {
        int left = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        vf d = v_fma(v_load_n(SKR_F32, a, i, left), v_set1(f->sign), v_set1(-f->m));
        v_store_n(SKR_F32, a, i, v_mul(d, v_set1(f->times)), left);
    }
}

/* The end of rows() for a far row: the same sweeps over its exponents. False: it is not one, an x is infinite. */
static bool far_rest(const job_t *job, int type, const char *x, char *y, float *e)
{
    float top, a[CHUNK];
    far_row f = far_of(type, x, job->scale, job->n, &top);
    if (__builtin_fabsf(top) > 0x1.fffffep127f)
        return false;
    int xb = skr_type_bytes(type), yt = job->y.type, yb = skr_type_bytes(yt);
    double sum = 0;
    for (int64_t i = 0; i < job->n; i += CHUNK) {
        int64_t len = chunk_len(job->n, i);
        far_chunk(&f, type, x + i * xb, a, len);
        sum += (double)(job->log ? sums : exps)[SKR_F32](a, 1.0f, 0.0f, e + i, (const char *)a, len);
    }
    norm r = norm_of(job, top, sum);
    for (int64_t i = 0; i < job->n; i += CHUNK) {
        int64_t len = chunk_len(job->n, i);
        if (job->log) {
            far_chunk(&f, type, x + i * xb, a, len);
            logs[SKR_F32][yt](a, y + i * yb, 1.0f, 0.0f, r.ln, len, 0);
        } else {
            products[yt](e + i, y + i * yb, r.factor, len, 0);
        }
    }
    return true;
}

static void rows(const job_t *job, int64_t begin, int64_t end, float *scratch)
{
    bool plain = !job->mask.data && job->seen.how == SKR_SEEN_ALL;
    int64_t n = job->n;
    int type = plain ? job->x.type : SKR_F32, yt = job->y.type;
    int xb = skr_type_bytes(job->x.type), sb = skr_type_bytes(type), yb = skr_type_bytes(yt);
    float scale = plain ? job->scale : 1.0f;
    lead a = lead_of(&job->x, n);
    for (int64_t row = begin; row < end; row++) {
        const char *x = row_of(&job->rows, &job->x, row), *s = x;
        const char *next = row + 1 < end ? row_of(&job->rows, &job->x, row + 1) : x;
        char *y = row_of(&job->rows, &job->y, row);
        if (!plain) {
            make_s(job, row, x, scratch);
            s = (const char *)scratch;
        }
        float m = max_of(type, s, scale, n), *e = scratch ? scratch : (float *)y;
        if (plain && __builtin_fabsf(m) >= FAR && far_rest(job, type, s, y, e))
            continue;
        double sum = 0;
        for (int64_t i = 0; i < n; i += CHUNK) {
            const char *ahead = a.rows ? ahead_at(&a, &job->rows, &job->x, row, end, i * xb) : next + i * xb;
            sum += (double)(job->log ? sums : exps)[type](s + i * sb, scale, against(m), e + i, ahead, chunk_len(n, i));
        }
        norm r = norm_of(job, m, sum);
        int past = goes_past(&job->head, y);
        for (int64_t i = 0; i < n; i += CHUNK) {
            int64_t len = chunk_len(n, i);
            if (job->log)
                logs[type][yt](s + i * sb, y + i * yb, scale, r.against, r.ln, len, past);
            else
                products[yt](e + i, y + i * yb, r.factor, len, past);
        }
    }
}

/* ---------------------------------------------------------------- tiles */

/* s of a tile, [n][SKR_SOFTMAX_TILE], and the maxima of its rows. */
static void tile_s(const job_t *job, tile t, float *s, float *m)
{
    tile_view x = tile_view_of(&job->rows, &job->x, t.row), mask = tile_view_of(&job->rows, &job->mask, t.row);
    skr_span span[SKR_SOFTMAX_TILE];
    float add[SKR_SOFTMAX_TILE];
    int width = t.width, padded = (width + SKR_LANES - 1) / SKR_LANES * SKR_LANES;
    vf scale = v_set1(job->scale), top[SKR_SOFTMAX_TILE / SKR_LANES];
    tile_spans(&job->seen, job->n, t, span);
    for (int r = 0; r < padded; r += SKR_LANES)
        top[r / SKR_LANES] = v_set1(-__builtin_inff());
    for (int r = width; r < padded; r++)
        add[r] = 0.0f;
    for (int64_t k = 0; k < job->n; k++, s += job->cpu.tile) {
        get_run(x.type, tile_column(&x, k), x.step, s, width);
        for (int r = width; r < padded; r++)
            s[r] = 0.0f;
        if (mask.data)
            get_run(mask.type, tile_column(&mask, k), mask.step, add, width);
        for (int r = 0; r < padded; r += SKR_LANES) {
            vf a = v_load(SKR_F32, s, r);
            a = mask.data ? v_fma(a, scale, v_load(SKR_F32, add, r)) : v_mul(a, scale);
            v_store(SKR_F32, s, r, a);
        }
        if (job->seen.how != SKR_SEEN_ALL)
            for (int r = 0; r < width; r++)
                s[r] = k >= span[r].begin && k < span[r].end ? s[r] : -__builtin_inff();
        for (int r = 0; r < padded; r += SKR_LANES)
            top[r / SKR_LANES] = v_max(top[r / SKR_LANES], v_load(SKR_F32, s, r));
    }
    for (int r = 0; r < padded; r += SKR_LANES)
        v_store(SKR_F32, m, r, top[r / SKR_LANES]);
}

/* Exponentials in place of s (kept unless the logarithm is wanted), and their sums, in parts of PART columns. */
static void tile_exp(const job_t *job, int width, float *s, const float *m, float *sum)
{
    int padded = (width + SKR_LANES - 1) / SKR_LANES * SKR_LANES;
    vf total[SKR_SOFTMAX_TILE / SKR_LANES], part[SKR_SOFTMAX_TILE / SKR_LANES];
    for (int r = 0; r < padded; r += SKR_LANES)
        total[r / SKR_LANES] = v_set1(0.0f);
    for (int64_t k0 = 0; k0 < job->n; k0 += PART) {
        int64_t k1 = job->n - k0 < PART ? job->n : k0 + PART;
        for (int r = 0; r < padded; r += SKR_LANES)
            part[r / SKR_LANES] = v_set1(0.0f);
        for (int64_t k = k0; k < k1; k++, s += job->cpu.tile)
            for (int r = 0; r < padded; r += SKR_LANES) {
                vf e = v_exp_raised(v_sub(v_load(SKR_F32, s, r), v_load(SKR_F32, m, r)));
                part[r / SKR_LANES] = v_add(part[r / SKR_LANES], e);
                if (!job->log)
                    v_store(SKR_F32, s, r, e);
            }
        for (int r = 0; r < padded; r += SKR_LANES)
            total[r / SKR_LANES] = v_add(total[r / SKR_LANES], part[r / SKR_LANES]);
    }
    for (int r = 0; r < padded; r += SKR_LANES)
        v_store(SKR_F32, sum, r, total[r / SKR_LANES]);
}

static void tile_rows(const job_t *job, tile t, float *s)
{
    float top[SKR_SOFTMAX_TILE], m[SKR_SOFTMAX_TILE], sum[SKR_SOFTMAX_TILE];
    int width = t.width, padded = (width + SKR_LANES - 1) / SKR_LANES * SKR_LANES;
    tile_s(job, t, s, top);
    for (int r = 0; r < padded; r++)
        m[r] = against(top[r]);
    tile_exp(job, width, s, m, sum);
    for (int r = 0; r < padded; r++) {
        norm end = norm_of(job, top[r], (double)sum[r]);
        sum[r] = job->log ? end.ln : end.factor;
    }
    tile_view y = tile_view_of(&job->rows, &job->y, t.row);
    for (int64_t k = 0; k < job->n; k++, s += job->cpu.tile) {
        for (int r = 0; r < padded; r += SKR_LANES) {
            vf a = v_load(SKR_F32, s, r), f = v_load(SKR_F32, sum, r);
            a = job->log ? v_sub(v_sub(a, v_load(SKR_F32, m, r)), f) : v_mul(a, f);
            v_store(SKR_F32, s, r, a);
        }
        put_run(y.type, s, tile_column(&y, k), y.step, width);
    }
}

void SKR_KERNEL(softmax)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(softmax)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    const job_t *j = job;
    float *scratch = NULL;
    if (j->cpu.scratch_bytes)
        scratch = (float *)((char *)j->head.workspace + worker * j->cpu.scratch_bytes);
    bool across = j->x.col_stride != 1 || j->y.col_stride != 1;
    int64_t all = across ? tile_count(&j->rows, j->cpu.tile) : j->rows.m;
    int64_t begin = task * j->cpu.per_task, end = begin + j->cpu.per_task;
    end = end < all ? end : all;
    if (!across)
        rows(j, begin, end, scratch);
    for (int64_t i = begin; across && i < end; i++)
        tile_rows(j, tile_at(&j->rows, j->cpu.tile, i), scratch);
}
