/* gemm_many_cuda.c - gemm's plan for many rows with i4 or i8 weights on Hopper (gemm_many.cuh), and what gemm_few.cuh
 * asks of such weights, too. SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cuda.h"

SKR_FATBIN(gemm_many_sm90)

static const struct {
    int type, code;
    const char *variant;
} shapes[] = {
#define SKR_GEMM_MANY(types, T, B) {T, B, "tma " #types " kk"},
#include "gemm_many.def"
};
static skr_cuda_kernel kernels[] = {
#define SKR_GEMM_MANY(types, T, B) SKR_KERNEL(gemm_many_sm90, "skr_gemm_many_" #types, SKR_GEMM_TMA_SHARED, 2),
#include "gemm_many.def"
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, K_STEP = 128, MAX_K = 1 << 20, TOGETHER = 16 };

bool skr_gemm_are_codes(const skr_gemm_job *job)
{
    return job->b.at.type == SKR_I4 || job->b.at.type == SKR_I8;
}

bool skr_gemm_suits_codes(const skr_gemm_job *job)
{
    const int64_t groups = skr_ceil_div(job->k, skr_max(job->group, 1));
    return skr_gemm_are_codes(job) && (job->a.at.type == SKR_F16 || job->a.at.type == SKR_BF16) &&
           job->scaling == SKR_GEMM_GROUP && (job->group >= job->k || job->group % 32 == 0) && job->k <= MAX_K &&
           job->b.row == 1 && job->b_scale.at.data && (!job->b_zero.at.data || job->b_zero.at.type == SKR_I8) &&
           skr_gemm_near(job, &job->b_scale, groups, job->n) && skr_gemm_near(job, &job->b_zero, groups, job->n);
}

const char *skr_gemm_code_box(const skr_gemm_job *job, skr_matrix_box *out)
{
    skr_gemm_matrix b = job->b;
    int64_t k = job->k;
    if (b.at.type == SKR_I4) { /* the copy engine knows bytes */
        if (k % 2 || (job->n > 1 && b.at.col_stride % 2) || b.at.stride[0] % 2)
            return "has columns that begin in the middle of a byte";
        b.at.type = SKR_I8, b.at.col_stride /= 2, b.at.stride[0] /= 2, k /= 2;
    }
    const char *bad = skr_gemm_box(job, &b, k, job->n, true, 64, out);
    out->box_cols = out->swizzle_bytes = SKR_GEMM_CODE_BYTES(job->b.at.type);
    return bad;
}

/* Rounded up; the group of some 32 k's, which is their number times this over 2^31, is exact while numbers times groups
 * stay below 2^31. */
int64_t skr_gemm_code_groups(const skr_gemm_job *job)
{
    return job->group >= job->k ? 0 : skr_ceil_div((int64_t)1 << 31, job->group / 32);
}

static bool suits(const skr_gemm_job *job, const skr_target *target)
{
    skr_matrix_box box[2];
    return skr_gemm_suits_few(job, target, SKR_GEMM_PERSISTENT) && skr_gemm_suits_codes(job) &&
           skr_gemm_along(&job->a, job->m, job->k) == 0 && !skr_gemm_few_boxes(job, SKR_GEMM_MANY_ROWS, box);
}

/* Tiles of 128 x 128; blocks beside each other share rows of a. */
typedef struct tiling {
    int64_t cluster, m, n, units; /* clusters of so many blocks; tiles of clusters; clusters that are busy */
} tiling;

static tiling tiling_of(const skr_gemm_job *job, const skr_target *target)
{
    const int64_t columns = skr_ceil_div(job->n, SKR_GEMM_FEW_COLUMNS);
    tiling t = {.cluster = skr_min(columns, 2), .m = skr_ceil_div(job->m, SKR_GEMM_MANY_ROWS)};
    t.n = skr_ceil_div(columns, t.cluster);
    t.units = skr_min(skr_mul(skr_mul(t.m, t.n), job->batch.m), skr_max(1, skr_gemm_clusters(target, (int)t.cluster)));
    return t;
}

double skr_gemm_many_us(const skr_gemm_job *job, const skr_target *target)
{
    const tiling t = tiling_of(job, target);
    const int64_t waves = skr_ceil_div(skr_mul(skr_mul(t.m, t.n), job->batch.m), t.units);
    return (double)waves * ((double)skr_ceil_div(job->k, K_STEP) * 1.0 + 3); /* on an H200 */
}

bool skr_gemm_plan_many(skr_gemm_job *job, const skr_target *target, skr_plan *plan)
{
    skr_gemm_work *t = &job->work;
    int i = 0;
    if (!suits(job, target))
        return false;
    const tiling c = tiling_of(job, target);
    const int64_t tiles = skr_mul(skr_mul(c.m, c.n), job->batch.m);
    while (i < N_SHAPES && (shapes[i].type != job->a.at.type || shapes[i].code != job->b.at.type))
        i++;
    if (i == N_SHAPES || tiles > 1 << 24)
        return false;
    t->rows = SKR_GEMM_FEW_COLUMNS;
    t->cluster = (int32_t)c.cluster;
    t->group = TOGETHER;
    t->cut.units = (int32_t)c.units;
    skr_gemm_few_work(job, SKR_GEMM_MANY_ROWS, c.n, K_STEP);
    plan->variant = shapes[i].variant;
    skr_why(plan, "%lld tiles of %d rows and %d columns, %d of them beside each other, %d k steps, %d clusters",
            (long long)(tiles * c.cluster), t->columns, t->rows, t->cluster, t->steps, t->cut.units);
    skr_gemm_few_step(job, plan, &kernels[i]);
    return true;
}
