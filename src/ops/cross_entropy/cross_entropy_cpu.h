/* cross_entropy_cpu.h - what the CPU kernels of the cross-entropy operations share: targets, the sums before and after
 * the rows, scalar functions. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CROSS_ENTROPY_CPU_H
#define SKR_CROSS_ENTROPY_CPU_H

#include "../../cpu/rows.h"
#include "../../cpu/simd/vmath.h"
#include "cross_entropy.h"

/* saker_status; kernels do not see saker.h. */
enum { BAD_INDEX = 12 };

static inline float exp1(float x)
{
    float y[SKR_LANES];
    v_store(SKR_F32, y, 0, v_exp(v_set1(x)));
    return y[0];
}

static inline float log1(float x)
{
    float y[SKR_LANES];
    v_store(SKR_F32, y, 0, v_log(v_set1(x)));
    return y[0];
}

static inline float tanh1(float x)
{
    float y[SKR_LANES];
    v_store(SKR_F32, y, 0, v_tanh(v_set1(x)));
    return y[0];
}

static inline float load1(int type, const void *p, int64_t i)
{
    float y[SKR_LANES];
    vf v = type == SKR_F32   ? v_load_n(SKR_F32, p, i, 1)
           : type == SKR_F16 ? v_load_n(SKR_F16, p, i, 1)
                             : v_load_n(SKR_BF16, p, i, 1);
    v_store(SKR_F32, y, 0, v);
    return y[0];
}

static inline void store1(int type, void *p, int64_t i, float x)
{
    vf v = v_set1(x);
    if (type == SKR_F32)
        v_store_n(SKR_F32, p, i, v, 1);
    else if (type == SKR_F16)
        v_store_n(SKR_F16, p, i, v, 1);
    else
        v_store_n(SKR_BF16, p, i, v, 1);
}

/* What a row's target says. */
typedef struct aim {
    int64_t class;
    int counts; /* neither ignored nor out of range */
    float weight;
} aim;

typedef struct aims {
    const skr_row_space *rows;
    const skr_rows *target;
    const skr_param *weight;
    int64_t ignore_index, vocab;
    int32_t *error_word;
} aims;

static inline aim aim_of(const aims *a, int64_t row)
{
    aim r = {skr_ce_target(a->target, skr_row_offset(a->rows, a->target->stride, row)), 0, 0.0f};
    if (r.class == a->ignore_index)
        return r;
    r.counts = r.class >= 0 && r.class < a->vocab;
    if (r.counts)
        r.weight = a->weight->data ? load1(a->weight->type, a->weight->data, r.class) : 1.0f;
    else
        __atomic_store_n(a->error_word, BAD_INDEX, __ATOMIC_RELAXED);
    return r;
}

/* Part `part` of the numbers 0 .. n - 1. */
static inline int64_t part_begin(int64_t n, int64_t part)
{
    return n / SKR_CE_PARTS * part + (n % SKR_CE_PARTS) * part / SKR_CE_PARTS;
}

/* PREPARE: one part of the weights of targets and of classes. */
static void prepare_part(const aims *a, const skr_job_head *head, const skr_ce_room *room, int64_t part)
{
    double target_weight = 0, rows = 0, class_weight = 0;
    for (int64_t r = part_begin(a->rows->m, part); r < part_begin(a->rows->m, part + 1); r++) {
        aim t = aim_of(a, r);
        target_weight += (double)t.weight;
        rows += t.counts;
    }
    for (int64_t c = part_begin(a->vocab, part); a->weight->data && c < part_begin(a->vocab, part + 1); c++)
        class_weight += (double)load1(a->weight->type, a->weight->data, c);
    skr_ce_part *to = (skr_ce_part *)((char *)head->workspace + room->part_at) + part;
    *to = (skr_ce_part){(float)target_weight, (float)rows, (float)class_weight, 0.0f};
}

static skr_ce_scale scale_of(const skr_job_head *head, const skr_ce_room *room, int reduction, float smoothing, float k,
                             int weighted)
{
    double sum[3] = {0, 0, 0};
    const char *workspace = head->workspace;
    const skr_ce_part *p = room->part_at >= 0 ? (const skr_ce_part *)(workspace + room->part_at) : NULL;
    for (int i = 0; p && i < SKR_CE_PARTS; i++) {
        sum[0] += (double)p[i].target_weight;
        sum[1] += (double)p[i].rows;
        sum[2] += (double)p[i].class_weight;
    }
    return skr_ce_scale_of(reduction, smoothing, k, weighted, (float)sum[0], (float)sum[1], (float)sum[2]);
}

/* SUM: one part of the losses. */
static void sum_part(const skr_job_head *head, const skr_ce_room *room, int64_t m, int64_t part)
{
    const skr_ce_loss *loss = (const skr_ce_loss *)((const char *)head->workspace + room->loss_at);
    skr_ce_sum sum = {0, 0};
    for (int64_t r = part_begin(m, part); r < part_begin(m, part + 1); r++) {
        sum.entropy += (double)loss[r].entropy;
        sum.z += (double)loss[r].z;
    }
    ((skr_ce_sum *)((char *)head->workspace + room->sum_at))[part] = sum;
}

/* FINISH: the one number. */
static void finish(const skr_job_head *head, const skr_ce_room *room, int reduction, float *total)
{
    const skr_ce_sum *part = (const skr_ce_sum *)((const char *)head->workspace + room->sum_at);
    const skr_ce_part *p = (const skr_ce_part *)((const char *)head->workspace + room->part_at);
    double entropy = 0, z = 0, weight = 0, rows = 0;
    for (int k = 0; k < SKR_CE_PARTS; k++) {
        entropy += part[k].entropy;
        z += part[k].z;
        weight += reduction == SKR_REDUCE_MEAN ? (double)p[k].target_weight : 0.0;
        rows += reduction == SKR_REDUCE_MEAN ? (double)p[k].rows : 0.0;
    }
    if (reduction == SKR_REDUCE_MEAN) {
        entropy /= weight;
        z = rows > 0 ? z / rows : z;
    }
    *total = (float)(entropy + z);
}

#endif
