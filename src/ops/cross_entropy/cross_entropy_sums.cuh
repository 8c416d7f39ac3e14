/* cross_entropy_sums.cuh - the small kernels around the rows: weights before them, the sum of losses after them, and
 * the merge of shards. SPDX-License-Identifier: Apache-2.0
 *
 * Sums are cut into SKR_CE_PARTS parts, one block each, whatever the GPU: the order is a function of the problem. */
#ifndef SKR_CROSS_ENTROPY_SUMS_CUH
#define SKR_CROSS_ENTROPY_SUMS_CUH

#include "cross_entropy_row.cuh"

enum { SKR_CE_SUM_THREADS = 512 };

SKR_DEVICE double warp_sum(double f)
{
#pragma unroll
    for (int k = 16; k > 0; k /= 2)
        f += __shfl_xor_sync(0xffffffffu, f, k);
    return f;
}

/* Thread 0 has the sum; partial is used by this call alone. */
SKR_DEVICE double block_sum(double f, double *partial)
{
    f = warp_sum(f);
    if ((threadIdx.x & 31) == 0)
        partial[threadIdx.x / 32] = f;
    __syncthreads();
    double all = 0.0;
    if (threadIdx.x == 0)
        for (int w = 0; w < SKR_CE_SUM_THREADS / 32; w++)
            all += partial[w];
    return all;
}

SKR_DEVICE int64_t part_begin(int64_t n, int64_t part)
{
    return n / SKR_CE_PARTS * part + (n % SKR_CE_PARTS) * part / SKR_CE_PARTS;
}

SKR_DEVICE float weight_at(const skr_param &w, int64_t class_number)
{
    return w.data ? any_load1(w.type, (const char *)w.data + class_number * skr_type_bytes(w.type)) : 1.0f;
}

template <class Job> SKR_DEVICE void cross_entropy_prepare(const Job &job)
{
    __shared__ double partial[3][SKR_CE_SUM_THREADS / 32];
    wait_for_previous();
    let_next_start();
    double target_weight = 0.0, rows = 0.0, class_weight = 0.0;
    int64_t end = part_begin(job.rows.m, blockIdx.x + 1);
    for (int64_t r = part_begin(job.rows.m, blockIdx.x) + threadIdx.x; r < end; r += SKR_CE_SUM_THREADS) {
        int64_t t = skr_ce_target(&job.target, skr_row_offset(&job.rows, job.target.stride, r));
        if (t >= 0 && t < job.vocab && t != job.ignore_index) {
            rows += 1.0;
            target_weight += (double)weight_at(job.weight, t);
        }
    }
    end = part_begin(job.vocab, blockIdx.x + 1);
    if (job.weight.data && job.smoothing != 0.0f)
#pragma unroll 4
        for (int64_t c = part_begin(job.vocab, blockIdx.x) + threadIdx.x; c < end; c += SKR_CE_SUM_THREADS)
            class_weight += (double)weight_at(job.weight, c);
    target_weight = block_sum(target_weight, partial[0]), rows = block_sum(rows, partial[1]);
    class_weight = block_sum(class_weight, partial[2]);
    if (threadIdx.x == 0)
        ((float4 *)((char *)job.head.workspace + job.room.part_at))[blockIdx.x] =
            make_float4((float)target_weight, (float)rows, (float)class_weight, 0.0f);
}

template <class Job> SKR_DEVICE void cross_entropy_sum(const Job &job)
{
    __shared__ double partial[2][SKR_CE_SUM_THREADS / 32];
    wait_for_previous();
    let_next_start();
    const float2 *loss = (const float2 *)((char *)job.head.workspace + job.room.loss_at);
    double entropy = 0.0, z = 0.0;
    int64_t end = part_begin(job.rows.m, blockIdx.x + 1);
#pragma unroll 4
    for (int64_t r = part_begin(job.rows.m, blockIdx.x) + threadIdx.x; r < end; r += SKR_CE_SUM_THREADS) {
        float2 l = loss[r];
        entropy += (double)l.x, z += (double)l.y;
    }
    entropy = block_sum(entropy, partial[0]), z = block_sum(z, partial[1]);
    if (threadIdx.x == 0)
        ((skr_ce_sum *)((char *)job.head.workspace + job.room.sum_at))[blockIdx.x] = skr_ce_sum{entropy, z};
}

/* One warp. */
template <class Job> SKR_DEVICE void cross_entropy_finish(const Job &job)
{
    wait_for_previous();
    let_next_start();
    skr_ce_sum s = ((const skr_ce_sum *)((char *)job.head.workspace + job.room.sum_at))[threadIdx.x];
    double entropy = warp_sum(s.entropy), z = warp_sum(s.z);
    if (job.reduction == SKR_REDUCE_MEAN) {
        float4 p = ((const float4 *)((char *)job.head.workspace + job.room.part_at))[threadIdx.x];
        double weight = warp_sum((double)p.x), rows = warp_sum((double)p.y);
        entropy /= weight;
        z = rows > 0.0 ? z / rows : z;
    }
    if (threadIdx.x == 0)
        *job.total = (float)(entropy + z);
}

/* A thread per row. */
SKR_DEVICE void cross_entropy_merge(const skr_cross_entropy_merge_job &job)
{
    wait_for_previous();
    let_next_start();
    skr_ce_scale scale = scale_of(job);
    int64_t step = job.partials.col_stride;
    for (int64_t r = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; r < job.rows.m;
         r += (int64_t)gridDim.x * blockDim.x) {
        const float *p = (const float *)job.partials.data + skr_row_offset(&job.rows, job.partials.stride, r);
        float max = -INFINITY, sum = 0.0f, hit = 0.0f, smooth = 0.0f;
        for (int64_t k = 0; k < job.shards; k++) {
            float m = p[k * job.shard_stride];
            max = m > max || m != m ? m : max;
        }
        float base = max == max ? exp_base(max) : max;
        for (int64_t k = 0; k < job.shards; k++) {
            const float *q = p + k * job.shard_stride;
            if (q[0] != -INFINITY) /* a shard of -infinity adds nothing */
                sum = __fmaf_rn(q[step], exp_flush(q[0] - base), sum);
            hit += q[2 * step], smooth += q[3 * step];
        }
        float lse = lse_of(max, sum);
        int64_t t = skr_ce_target(&job.target, skr_row_offset(&job.rows, job.target.stride, r));
        skr_ce_loss loss = {0.0f, 0.0f};
        if (t >= 0 && t < job.vocab && t != job.ignore_index)
            loss = skr_ce_loss_of(&scale, job.z_loss, weight_at(job.weight, t), lse, hit, smooth);
        else if (t != job.ignore_index)
            *(volatile int32_t *)job.head.error_word = SKR_CE_BAD_INDEX;
        if (job.lse.data)
            ((float *)job.lse.data)[skr_row_offset(&job.rows, job.lse.stride, r)] = lse;
        if (job.loss.data)
            ((float *)job.loss.data)[skr_row_offset(&job.rows, job.loss.stride, r)] = loss.entropy + loss.z;
        if (job.room.loss_at >= 0)
            ((skr_ce_loss *)((char *)job.head.workspace + job.room.loss_at))[r] = loss;
    }
}

#endif
