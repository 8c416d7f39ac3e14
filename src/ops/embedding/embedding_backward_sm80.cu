/* embedding_backward_sm80.cu - the gradient of embedding's table on the GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The places of the tokens are sorted by id in passes of up to nine bits (count, scan, scatter: stable, so equal ids
 * keep their order). Then each stretch of SKR_EMBED_RUN sorted places is summed by its own blocks; an id that lies
 * within a stretch is written at once, one that goes on into the next stretch leaves partial sums, which a last kernel
 * adds. */
#include "../../cuda/device.cuh"
#include "embedding.h"

typedef skr_embedding_backward_job job_t;

enum { THREADS = SKR_EMBED_THREADS, BINS = 1 << SKR_EMBED_DIGIT, WARPS = THREADS / 32, SHARE = SKR_EMBED_TILE / WARPS };

SKR_DEVICE char *space(const job_t &job, int64_t at)
{
    return (char *)job.head.workspace + at;
}

SKR_DEVICE int shift_of(const job_t &job, int pass)
{
    int shift = 0;
    for (int p = 0; p < pass; p++)
        shift += job.pass_bits[p];
    return shift;
}

/* Id and place number i as pass number PASS finds them; ids without a gradient become v, which is sorted last. */
template <int PASS> SKR_DEVICE void item(const job_t &job, int i, uint32_t &id, int32_t &place)
{
    if (PASS > 0) {
        id = ((const uint32_t *)space(job, job.ids_at[(PASS - 1) & 1]))[i];
        place = ((const int32_t *)space(job, job.list_at[(PASS - 1) & 1]))[i];
        return;
    }
    int64_t at = skr_row_offset(&job.rows, job.ids.stride, i);
    int64_t given = job.ids.type == SKR_I32 ? ((const int32_t *)job.ids.data)[at] : ((const int64_t *)job.ids.data)[at];
    bool good = given >= 0 && given < job.v;
    if (!good)
        *job.head.error_word = SKR_BAD_INDEX;
    id = (uint32_t)(good && given != job.padding ? given : job.v);
    place = i;
}

template <int PASS> SKR_DEVICE void count(const job_t &job)
{
    __shared__ uint32_t histogram[BINS];
    wait_for_previous();
    let_next_start();
    for (int d = threadIdx.x; d < BINS; d += THREADS)
        histogram[d] = 0;
    __syncthreads();
    int shift = shift_of(job, PASS), begin = (int)blockIdx.x * SKR_EMBED_TILE, m = (int)job.rows.m;
    for (int i = begin + threadIdx.x; i < min(begin + SKR_EMBED_TILE, m); i += THREADS) {
        uint32_t id;
        int32_t place;
        item<PASS>(job, i, id, place);
        atomicAdd(&histogram[id >> shift & ((1u << job.pass_bits[PASS]) - 1)], 1);
    }
    __syncthreads();
    uint32_t *counts = (uint32_t *)space(job, job.counts_at);
    for (int d = threadIdx.x; d < BINS; d += THREADS)
        counts[(int64_t)d * job.tiles + blockIdx.x] = histogram[d];
}

template <int PASS> SKR_DEVICE void scatter(const job_t &job)
{
    __shared__ uint32_t next[WARPS][BINS];
    wait_for_previous();
    let_next_start();
    for (int d = threadIdx.x; d < WARPS * BINS; d += THREADS)
        (&next[0][0])[d] = 0;
    __syncthreads();
    int warp = threadIdx.x / 32, lane = threadIdx.x & 31, shift = shift_of(job, PASS), m = (int)job.rows.m;
    int begin = (int)blockIdx.x * SKR_EMBED_TILE + warp * SHARE;
    uint32_t mask = (1u << job.pass_bits[PASS]) - 1, id[SHARE / 32];
    int32_t place[SHARE / 32];
#pragma unroll
    for (int r = 0; r < SHARE / 32; r++) {
        int i = begin + r * 32 + lane;
        id[r] = 0, place[r] = 0;
        if (i < m) {
            item<PASS>(job, i, id[r], place[r]);
            atomicAdd(&next[warp][id[r] >> shift & mask], 1);
        }
    }
    __syncthreads();
    const uint32_t *counts =
        (const uint32_t *)space(job, job.counts_at); /* scanned: where each digit of a tile begins */
    for (int d = threadIdx.x; d < BINS; d += THREADS) {
        uint32_t at = counts[(int64_t)d * job.tiles + blockIdx.x];
        for (int w = 0; w < WARPS; w++) {
            uint32_t here = next[w][d];
            next[w][d] = at;
            at += here;
        }
    }
    __syncthreads();
    uint32_t *ids = (uint32_t *)space(job, job.ids_at[PASS & 1]);
    int32_t *list = (int32_t *)space(job, job.list_at[PASS & 1]);
#pragma unroll
    for (int r = 0; r < SHARE / 32; r++) {
        bool some = begin + r * 32 + lane < m;
        uint32_t digit = some ? id[r] >> shift & mask : BINS; /* lanes past the end are by themselves */
        uint32_t same = __match_any_sync(0xffffffffu, digit);
        uint32_t before = __popc(same & ((1u << lane) - 1));
        uint32_t at = some ? next[warp][digit] + before : 0;
        __syncwarp();
        if (some) {
            if (before == 0)
                next[warp][digit] += __popc(same);
            ids[at] = id[r];
            list[at] = place[r];
        }
        __syncwarp();
    }
}

#define SORT(pass)                                                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        skr_embedding_count_##pass(const __grid_constant__ job_t job)                                                  \
    {                                                                                                                  \
        count<pass>(job);                                                                                              \
    }                                                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        skr_embedding_scatter_##pass(const __grid_constant__ job_t job)                                                \
    {                                                                                                                  \
        scatter<pass>(job);                                                                                            \
    }
SORT(0)
SORT(1)
SORT(2)
SORT(3)

/* One block turns the counts into where each (digit, tile) begins. */
extern "C" __global__ void __launch_bounds__(1024) skr_embedding_scan(const __grid_constant__ job_t job)
{
    __shared__ uint32_t warp_sum[32];
    wait_for_previous();
    let_next_start();
    uint32_t *counts = (uint32_t *)space(job, job.counts_at), carry = 0;
    int64_t n = (int64_t)BINS * job.tiles;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    for (int64_t first = 0; first < n; first += 4096) {
        int64_t i = first + threadIdx.x * 4; /* n is a multiple of 4 */
        uint4 c = i < n ? *(const uint4 *)(counts + i) : make_uint4(0, 0, 0, 0);
        uint32_t mine = c.x + c.y + c.z + c.w, sum = mine;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            uint32_t left = __shfl_up_sync(0xffffffffu, sum, d);
            sum += lane >= d ? left : 0;
        }
        if (lane == 31)
            warp_sum[warp] = sum;
        __syncthreads();
        uint32_t before = 0, all = 0;
        for (int w = 0; w < 32; w++) {
            before += w < warp ? warp_sum[w] : 0;
            all += warp_sum[w];
        }
        uint32_t at = carry + before + sum - mine;
        if (i < n)
            *(uint4 *)(counts + i) = make_uint4(at, at + c.x, at + c.x + c.y, at + c.x + c.y + c.z);
        carry += all;
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) skr_embedding_zero(const __grid_constant__ job_t job)
{
    wait_for_previous();
    let_next_start();
    int size = skr_type_bytes(job.dtable.type);
    for (int64_t v = blockIdx.x; v < job.v; v += gridDim.x) {
        char *to = (char *)job.dtable.data + v * job.dtable.stride * size;
        if (job.vec > 1)
            for (int64_t i = threadIdx.x; i < job.d * size / 16; i += THREADS)
                store16_once(to + i * 16, make_uint4(0, 0, 0, 0));
        else
            for (int64_t i = threadIdx.x; i < job.d; i += THREADS)
                any_store1(job.dtable.type, to + i * size, 0.0f);
    }
}

/* ---------------------------------------------------------------- sums */

template <int V> SKR_DEVICE void put(const job_t &job, uint32_t id, int64_t column, float *sum)
{
    int size = skr_type_bytes(job.dtable.type);
    char *to = (char *)job.dtable.data + ((int64_t)id * job.dtable.stride + column) * size;
    float held[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        held[k] = job.accumulate ? any_load1(job.dtable.type, to + k * size) : 0.0f;
#pragma unroll
    for (int k = 0; k < V; k++)
        held[k] = job.accumulate ? held[k] + sum[k] : sum[k];
    if constexpr (V == 1)
        any_store1(job.dtable.type, to, held[0]);
    else
        any_store<V>(job.dtable.type, to, held);
}

template <int V> SKR_DEVICE float *partial(const job_t &job, int64_t part, int last, int64_t column)
{
    return (float *)space(job, job.sums_at) + (2 * part + last) * job.d + column;
}

template <int V> SKR_DEVICE void store_partial(float *to, const float *sum)
{
    if constexpr (V == 1)
        *to = sum[0];
    else
#pragma unroll
        for (int k = 0; k < V; k += 4)
            *(float4 *)(to + k) = make_float4(sum[k], sum[k + 1], sum[k + 2], sum[k + 3]);
}

/* T: type of dout. WIDE: 16 bytes a thread, else one element. */
template <int T, bool WIDE> SKR_DEVICE void sums(const job_t &job)
{
    constexpr int V = WIDE ? skr_elem<T>::vec : 1, bytes = skr_elem<T>::bytes, RUN = SKR_EMBED_RUN, AHEAD = 8;
    __shared__ uint32_t ids[RUN + 2]; /* with the neighbours on both sides; v + 1 where there is none */
    __shared__ int64_t rows[RUN];
    wait_for_previous();
    let_next_start();
    int part = (int)blockIdx.x / job.column_blocks, m = (int)job.rows.m, begin = part * RUN, n = min(RUN, m - begin);
    int64_t column = ((int64_t)((int)blockIdx.x % job.column_blocks) * THREADS + threadIdx.x) * V;
    const uint32_t *sorted = (const uint32_t *)space(job, job.ids_at[job.last_pass & 1]);
    const int32_t *list = (const int32_t *)space(job, job.list_at[job.last_pass & 1]);
    for (int i = threadIdx.x; i < n + 2; i += THREADS) {
        int at = begin + i - 1;
        ids[i] = at >= 0 && at < m ? sorted[at] : (uint32_t)job.v + 1;
        if (i < n)
            rows[i] = skr_row_offset(&job.rows, job.dout.stride, list[begin + i]) * bytes;
    }
    __syncthreads();
    if (column >= job.d)
        return;
    const char *x = (const char *)job.dout.data + column * bytes;
    float sum[V] = {};
    for (int first = 0; first < n; first += AHEAD) {
        uint4 raw[WIDE ? AHEAD : 1];
        float one[WIDE ? 1 : AHEAD];
#pragma unroll
        for (int u = 0; u < AHEAD; u++)
            if (first + u < n && ids[first + u + 1] < (uint32_t)job.v) {
                if constexpr (WIDE)
                    raw[u] = load16_once(x + rows[first + u]);
                else
                    one[u] = any_load1(T, x + rows[first + u]);
            }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            int i = first + u;
            if (i >= n || ids[i + 1] >= (uint32_t)job.v)
                continue;
            float f[V];
            if constexpr (WIDE)
                unpack<T>(raw[u], f);
            else
                f[0] = one[u];
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] += f[k];
            uint32_t id = ids[i + 1];
            if (i + 1 < n && ids[i + 2] == id)
                continue;
            bool from_left = ids[0] == id, to_right = i + 1 == n && ids[i + 2] == id;
            if (from_left || to_right)
                store_partial<V>(partial<V>(job, part, !from_left, column), sum);
            else
                put<V>(job, id, column, sum);
#pragma unroll
            for (int k = 0; k < V; k++)
                sum[k] = 0.0f;
        }
    }
}

/* The ids that begin in a stretch and go on into the next. */
template <int V> SKR_DEVICE void join(const job_t &job)
{
    constexpr int RUN = SKR_EMBED_RUN;
    wait_for_previous();
    let_next_start();
    int part = (int)blockIdx.x / job.column_blocks, m = (int)job.rows.m;
    int64_t column = ((int64_t)((int)blockIdx.x % job.column_blocks) * THREADS + threadIdx.x) * V;
    const uint32_t *sorted = (const uint32_t *)space(job, job.ids_at[job.last_pass & 1]);
    int end = (part + 1) * RUN;
    if (end >= m || column >= job.d)
        return;
    uint32_t id = sorted[end];
    if (id >= (uint32_t)job.v || sorted[end - 1] != id)
        return;
    if (sorted[end - RUN] == id && end > RUN && sorted[end - RUN - 1] == id)
        return; /* it began before this stretch */
    float sum[V];
#pragma unroll
    for (int k = 0; k < V; k++)
        sum[k] = partial<V>(job, part, 1, column)[k];
    for (int p = part + 1;; p++) {
#pragma unroll
        for (int k = 0; k < V; k++)
            sum[k] += partial<V>(job, p, 0, column)[k];
        end = (p + 1) * RUN;
        if (end >= m || sorted[end] != id)
            break;
    }
    put<V>(job, id, column, sum);
}

#define SUMS(name, type, wide)                                                                                         \
    extern "C" __global__ void __launch_bounds__(THREADS) skr_embedding_sums_##name(const __grid_constant__ job_t job) \
    {                                                                                                                  \
        sums<type, wide>(job);                                                                                         \
    }
SUMS(f32_wide, SKR_F32, true)
SUMS(f16_wide, SKR_F16, true)
SUMS(bf16_wide, SKR_BF16, true)
SUMS(f32_any, SKR_F32, false)
SUMS(f16_any, SKR_F16, false)
SUMS(bf16_any, SKR_BF16, false)

#define JOIN(v)                                                                                                        \
    extern "C" __global__ void __launch_bounds__(THREADS) skr_embedding_join_##v(const __grid_constant__ job_t job)    \
    {                                                                                                                  \
        join<v>(job);                                                                                                  \
    }
JOIN(1)
JOIN(4)
JOIN(8)
