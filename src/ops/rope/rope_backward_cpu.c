/* rope_backward_cpu.c - the gradient of rope on the CPU. Compiled once per level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Without a norm it is the forward kernel with the other sign of sin. With one, a head's gradient is rotated back into
 * an f32 row, which then goes through the norm in two sweeps; what it adds to the weight's gradient is summed in f32
 * over CHAIN heads, and chains are added in f64, in an order that depends on the problem only. */
#include "rope_cpu.h"

void SKR_KERNEL(rope)(const void *job, int step, int64_t task, int worker);

enum { STEP = 2 * SKR_LANES };

/* ---------------------------------------------------------------- one head through the norm */

typedef struct head {
    const float *g, *weight; /* the rotated gradient; weight + offset */
    const char *x;
    char *dx;   /* NULL: not wanted */
    float *sum; /* dweight of the tile; NULL: not wanted */
    int64_t d;
    float eps;
    int past; /* dx is written past the caches */
} head;

/* Sums of x * x and of g * w * x. */
SKR_FN void sums(int xt, const head *h, double *squares, double *dot)
{
    *squares = *dot = 0;
    for (int64_t at = 0; at < h->d; at += CHUNK) {
        int64_t end = at + chunk_len(h->d, at), i = at;
        vf2 a[2] = {v2_set1(0.0f), v2_set1(0.0f)}, b[2] = {v2_set1(0.0f), v2_set1(0.0f)};
        for (; i + 2 * STEP <= end; i += 2 * STEP)
            SKR_UNROLL
        for (int k = 0; k < 2; k++) {
            vf2 x = v_load2(xt, h->x, i + k * STEP);
            vf2 gw = v2_mul(v_load2(SKR_F32, h->g, i + k * STEP), v_load2(SKR_F32, h->weight, i + k * STEP));
            a[k] = v2_fma(x, x, a[k]);
            b[k] = v2_fma(gw, x, b[k]);
        }
        for (; i < end; i += STEP) {
            int n = end - i < STEP ? (int)(end - i) : STEP;
            vf2 x = v_load2_n(xt, h->x, i, n);
            vf2 gw = v2_mul(v_load2_n(SKR_F32, h->g, i, n), v_load2_n(SKR_F32, h->weight, i, n));
            a[0] = v2_fma(x, x, a[0]);
            b[0] = v2_fma(gw, x, b[0]);
        }
        vf2 p = v2_add(a[0], a[1]), q = v2_add(b[0], b[1]);
        *squares += (double)v_sum(v_add(p.lo, p.hi));
        *dot += (double)v_sum(v_add(q.lo, q.hi));
    }
}

/* mean(g w h) where squares beyond f32 left rstd 0: h is 0, or NaN where x is infinite. */
static float mean_of_nothing(int xt, const head *h)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < h->d; i++) {
        float x;
        widen(xt, h->x + i * skr_type_bytes(xt), 0.0f, &x, 1);
        sum += h->g[i] * h->weight[i] * (x * 0.0f);
    }
    return sum;
}

/* rstd and mean(g w h) of a head. */
SKR_FN void head_numbers(int xt, const head *h, float *rstd, float *mean)
{
    double squares, dot, one_over_d = 1.0 / (double)h->d;
    sums(xt, h, &squares, &dot);
    *rstd = rstd_of(squares, one_over_d, h->eps);
    *mean = *rstd == 0 ? mean_of_nothing(xt, h) : (float)(dot * one_over_d * (double)*rstd);
}

SKR_FN void head_results(int xt, int yt, const head *from, float rstd1, float mean1)
{
    const head h = *from;
    vf rstd = v_set1(rstd1), mean = v_set1(mean1);
    for (int64_t i = 0; i < h.d; i += STEP) {
        int n = h.d - i < STEP ? (int)(h.d - i) : STEP;
        vf2 x, g, w;
        if (n == STEP) {
            x = v_load2(xt, h.x, i), g = v_load2(SKR_F32, h.g, i), w = v_load2(SKR_F32, h.weight, i);
        } else {
            x = v_load2_n(xt, h.x, i, n), g = v_load2_n(SKR_F32, h.g, i, n);
            w = v_load2_n(SKR_F32, h.weight, i, n);
        }
        vf2 hat = v2_scale(x, rstd), gw = v2_mul(g, w);
        if (h.sum) {
            vf2 sum = n == STEP ? v_load2(SKR_F32, h.sum, i) : v_load2_n(SKR_F32, h.sum, i, n);
            sum = v2_fma(g, hat, sum);
            if (n == STEP)
                v_store2(SKR_F32, h.sum, i, sum);
            else
                v_store2_n(SKR_F32, h.sum, i, sum, n);
        }
        if (h.dx) {
            vf2 dx = {v_fnma(hat.lo, mean, gw.lo), v_fnma(hat.hi, mean, gw.hi)};
            dx = v2_scale(dx, rstd);
            if (n == STEP)
                v_out2(yt, h.dx, i, dx, h.past);
            else
                v_store2_n(yt, h.dx, i, dx, n);
        }
    }
}

/* Up to SKR_ROPE_HEADS heads. */
SKR_FN void heads_body(int xt, int yt, const head *h, int n)
{
    float rstd[SKR_ROPE_HEADS], mean[SKR_ROPE_HEADS];
    for (int k = 0; k < n; k++)
        head_numbers(xt, &h[k], &rstd[k], &mean[k]);
    for (int k = 0; k < n; k++)
        head_results(xt, yt, &h[k], rstd[k], mean[k]);
}

typedef void (*head_fn)(const head *h, int n);
#define HEAD(xt, yt)                                                                                                   \
    static void head_##xt##_##yt(const head *h, int n)                                                                 \
    {                                                                                                                  \
        heads_body(SKR_##xt, SKR_##yt, h, n);                                                                          \
    }
#define HEADS(xt) HEAD(xt, F32) HEAD(xt, F16) HEAD(xt, BF16)
HEADS(F32)
HEADS(F16)
HEADS(BF16)
static const head_fn heads[3][3] = {{head_F32_F32, head_F32_F16, head_F32_BF16},
                                    {head_F16_F32, head_F16_F16, head_F16_BF16},
                                    {head_BF16_F32, head_BF16_F16, head_BF16_BF16}};

/* ---------------------------------------------------------------- tiles */

/* Heads in one f32 chain of a sum. */
enum { CHAIN = 64 };

/* A chain's sum goes to the task's, in f64. part: NULL where none is wanted. */
static void settle(float *sum, double *part, int64_t d)
{
    for (int64_t j = 0; part && j < d; j++) {
        part[j] += (double)sum[j];
        sum[j] = 0.0f;
    }
}

/* t->sum is zero before and after. */
static void tile_heads(const tile *t, int which, run_fn rotate, head_fn norm, double *part)
{
    const job_t *job = t->job;
    float *sum = t->sum + which * job->d;
    run w = {.r = job->r, .d = job->d, .n = 1};
    head h[SKR_ROPE_HEADS];
    int waiting = 0, summed = 0, tokens_inside = job->in[which].head > job->in[which].token;
    int64_t outer = tokens_inside ? job->heads[which] : t->n, inner = tokens_inside ? t->n : job->heads[which];
    for (int64_t i = 0; i < outer; i++)
        for (int64_t j = 0; j < inner; j++) {
            int64_t k = tokens_inside ? j : i, n = tokens_inside ? i : j;
            char *dx = head_at(&job->out[which], job->out_type, t, k, n);
            if (nowhere(t, k)) {
                zero_head(dx, job->out_type, job->d);
                continue;
            }
            float *g = t->row + waiting * job->d;
            w.x = head_at(&job->in[which], job->in_type, t, k, n);
            w.y = (char *)g;
            w.table = t->table + k * 2 * job->r;
            rotate(&w);
            h[waiting++] = (head){.g = g,
                                  .weight = weight_of(job, which),
                                  .x = head_at(&job->x[which], job->x_type, t, k, n),
                                  .dx = dx,
                                  .sum = part ? sum : NULL,
                                  .d = job->d,
                                  .eps = job->eps,
                                  .past = goes_past(&job->head, dx)};
            if (waiting == SKR_ROPE_HEADS) {
                norm(h, waiting);
                summed += waiting;
                waiting = 0;
            }
            if (summed >= CHAIN) {
                settle(sum, part, job->d);
                summed = 0;
            }
        }
    norm(h, waiting);
    settle(sum, part, job->d);
}

static double *part_of(const job_t *job, int which, int64_t part)
{
    return (double *)((char *)job->head.workspace + job->cpu.parts_at[which]) + part * job->d;
}

static void rows(const job_t *job, int64_t task, int worker)
{
    int64_t begin = task * job->cpu.tiles_per_task, end = begin + job->cpu.tiles_per_task, d = job->d;
    end = end < job->cpu.tiles ? end : job->cpu.tiles;
    run_fn rotate = SKR_KERNEL(rope_run)(0, job->interleaved, job->in_type, SKR_F32);
    head_fn norm = heads[job->x_type][job->out_type];
    tile t = tile_start(job, worker);
    double *part[2] = {NULL, NULL};
    for (int which = 0; which < 2; which++) {
        if (job->dweight[which].data)
            part[which] = part_of(job, which, task);
        for (int64_t j = 0; part[which] && j < d; j++) {
            part[which][j] = 0.0;
            t.sum[which * d + j] = 0.0f;
        }
    }
    for (int64_t i = begin; i < end; i++) {
        tile_at(&t, i);
        for (int which = 0; which < 2; which++)
            if (job->heads[which])
                tile_heads(&t, which, rotate, norm, part[which]);
    }
}

/* The parts of a weight's gradient, in order. */
static void add_parts(const job_t *job, int which)
{
    const skr_param *p = &job->dweight[which];
    int bytes = skr_type_bytes(p->type);
    for (int64_t j = 0; p->data && j < job->d; j++) {
        char *to = (char *)p->data + j * bytes;
        float held = 0.0f, all;
        double sum = 0;
        for (int64_t part = 0; part < job->cpu.n_parts; part++)
            sum += part_of(job, which, part)[j];
        if (job->accumulate)
            widen(p->type, to, 0.0f, &held, 1);
        all = (float)(sum + (double)held);
        if (p->type == SKR_F32)
            *(float *)(void *)to = all;
        else
            narrow(p->type, &all, to, 1);
    }
}

void SKR_KERNEL(rope_backward)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(rope_backward)(const void *job, int step, int64_t task, int worker)
{
    const job_t *j = job;
    if (step == SKR_ROPE_SUM) {
        add_parts(j, 0);
        add_parts(j, 1);
    } else if (step == SKR_ROPE_ROWS && j->norm) {
        rows(j, task, worker);
    } else {
        SKR_KERNEL(rope)(job, step, task, worker);
    }
}
