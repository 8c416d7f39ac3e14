/* moe_route_sm80.cu - which experts tokens go to on the GPU, and the gradient of their weights.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Three kernels. A warp chooses for a token: each lane keeps the keys of some experts in registers and its own best,
 * and k times the best of all lanes is taken out. Its block counts the experts of its tile of tokens. One block adds
 * the counts up: a warp has an expert, its lanes tiles. Then each tile puts its rows into their places, in order: a
 * warp has neighbouring rows, and lanes of the same expert count those before them. */
#include "../../cuda/device.cuh"
#include "moe_route.h"

typedef skr_moe_route_job job_t;
typedef skr_moe_route_backward_job backward_t;

enum { WARPS = SKR_ROUTE_WARPS, THREADS = 32 * WARPS };

SKR_DEVICE float infinity()
{
    return __int_as_float(0x7f800000);
}

SKR_DEVICE uint32_t key_of(float f)
{
    uint32_t u = __float_as_uint(f);
    u = u == 0x80000000u ? 0u : u;
    uint32_t key = u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
    return (u & 0x7fffffffu) > 0x7f800000u ? 0xffffffffu : key;
}

/* A NaN stays one. */
SKR_DEVICE float larger(float a, float b)
{
    return a > b || a != a ? a : b;
}

SKR_DEVICE float warp_largest(float f)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        f = larger(f, __shfl_xor_sync(0xffffffffu, f, d));
    return f;
}

/* No overflow on the way: small scores keep their digits. */
SKR_DEVICE float sigmoid_of(float x)
{
    float e = expf(-fabsf(x));
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

SKR_DEVICE uint32_t warp_most(uint32_t u)
{
#pragma unroll
    for (int d = 16; d > 0; d /= 2)
        u = max(u, __shfl_xor_sync(0xffffffffu, u, d));
    return u;
}

/* ---------------------------------------------------------------- a token's choice */

/* What a warp has in shared memory. */
struct warp_room {
    float *f;            /* [n]: what groups are judged by; later the weights */
    uint32_t *group_key; /* [n_groups] */
    uint16_t *best;      /* [k] */
};

/* The keys of experts outside of the best groups become 0. */
template <int EACH> SKR_DEVICE void keep_groups(const job_t &job, const warp_room &r, uint32_t *key)
{
    int lane = threadIdx.x & 31, per = job.per_group;
    for (int g = lane; g < job.n_groups; g += 32) {
        float first = r.f[g * per], second = 0;
        uint32_t first_key = key_of(first), second_key = 0;
#pragma unroll 1
        for (int i = 1; i < per; i++) {
            float f = r.f[g * per + i];
            uint32_t k = key_of(f);
            if (k > first_key) {
                second = first, second_key = first_key;
                first = f, first_key = k;
            } else if (k > second_key) {
                second = f, second_key = k;
            }
        }
        r.group_key[g] = job.group_score == SKR_ROUTE_TOP2 && per > 1 ? key_of(first + second) : first_key;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int e = lane + 32 * i, g = e / per, better = 0;
        uint32_t mine = e < job.n ? r.group_key[g] : 0;
#pragma unroll 1
        for (int o = 0; e < job.n && o < job.n_groups; o++)
            better += r.group_key[o] > mine || (r.group_key[o] == mine && o < g);
        key[i] = better < job.top_groups ? key[i] : 0;
    }
    __syncwarp(); /* f may be written again */
}

/* The k largest keys, equal ones by index. */
template <int EACH> SKR_DEVICE void pick(uint32_t *key, int k, uint16_t *best)
{
    int lane = threadIdx.x & 31;
#pragma unroll 1
    for (int j = 0; j < k; j++) {
        uint32_t mine = 0;
        int at = 0;
#pragma unroll
        for (int i = EACH - 1; i >= 0; i--) {
            at = key[i] >= mine ? i : at;
            mine = max(key[i], mine);
        }
        uint32_t most = warp_most(mine);
        uint32_t e = mine == most ? (uint32_t)(lane + 32 * at) : 0xffffffffu;
        e = ~warp_most(~e); /* the least */
#pragma unroll
        for (int i = 0; i < EACH; i++)
            key[i] = (uint32_t)(lane + 32 * i) == e ? 0 : key[i];
        if (lane == 0)
            best[j] = (uint16_t)e;
    }
    __syncwarp();
}

/* Weights of the chosen, in f. sum and top: of the softmax of all experts, where it was taken. */
SKR_DEVICE void weigh(const job_t &job, const char *x, const warp_room &r, float top, float sum)
{
    int lane = threadIdx.x & 31, k = (int)job.k, bytes = skr_type_bytes(job.logits.type);
    bool softmax = job.score == SKR_ROUTE_SOFTMAX;
    auto logit = [&](int j) { return any_load1(job.logits.type, x + r.best[j] * bytes); };
    bool lost = sum != sum;
    if (softmax && job.renormalise) {
        top = -infinity();
#pragma unroll 1
        for (int j = lane; j < k; j += 32)
            top = larger(logit(j), top);
        top = warp_largest(top);
    }
    float total = 0;
#pragma unroll 1
    for (int j = lane; j < k; j += 32) {
        float f = logit(j), w = softmax ? expf(f - top) : sigmoid_of(f);
        w = softmax && top == -infinity() ? 0.0f : w;
        r.f[j] = w;
        total += w;
    }
    total = job.renormalise ? lanes_reduce<skr_sum, 32>(total) : softmax ? sum : 1.0f;
#pragma unroll 1
    for (int j = lane; j < k; j += 32) {
        float w = total == 0.0f ? 0.0f : r.f[j] / total;
        r.f[j] = lost ? sum : w * job.scale;
    }
}

template <int EACH> SKR_DEVICE void route(const job_t &job, int64_t row, const warp_room &r)
{
    int lane = threadIdx.x & 31, n = (int)job.n, bytes = skr_type_bytes(job.logits.type);
    const char *x = (const char *)job.logits.data + skr_row_offset(&job.rows, job.logits.stride, row) * bytes;
    bool softmax = job.score == SKR_ROUTE_SOFTMAX;
    float f[EACH], top = 0, sum = 0;
    uint32_t key[EACH];
#pragma unroll
    for (int i = 0; i < EACH; i++) {
        int e = lane + 32 * i;
        f[i] = e < n ? any_load1(job.logits.type, x + e * bytes) : -infinity();
        key[i] = e < n ? key_of(f[i]) : 0;
    }
    if (softmax && (job.all_scores || !job.renormalise)) {
        top = -infinity();
#pragma unroll
        for (int i = 0; i < EACH; i++)
            top = larger(f[i], top);
        top = warp_largest(top);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            f[i] = top == -infinity() ? 0.0f : expf(f[i] - top);
            sum += f[i];
        }
        sum = lanes_reduce<skr_sum, 32>(sum);
    }
    if (job.all_scores) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int e = lane + 32 * i;
            f[i] = !softmax ? sigmoid_of(f[i]) : sum == 0.0f ? 0.0f : f[i] / sum;
            if (job.bias && e < n) {
                f[i] += job.bias[e];
                key[i] = key_of(f[i]);
            }
        }
    }
    if (job.n_groups) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int e = lane + 32 * i;
            if (e < n)
                r.f[e] = job.all_scores ? f[i] : any_load1(job.logits.type, x + e * bytes);
        }
        __syncwarp();
        keep_groups<EACH>(job, r, key);
    }
    pick<EACH>(key, (int)job.k, r.best);
    weigh(job, x, r, top, sum);
}

template <int EACH> SKR_DEVICE void choose(const job_t &job)
{
    extern __shared__ __align__(16) unsigned char memory[];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, n = (int)job.n, k = (int)job.k;
    uint32_t *count = (uint32_t *)memory, *mine = count + n + warp * job.warp_words;
    warp_room r = {(float *)mine, mine + n, (uint16_t *)(mine + n + job.n_groups)};
    for (int e = threadIdx.x; e < n; e += THREADS)
        count[e] = 0;
    wait_for_previous();
    let_next_start();
    __syncthreads();
    int64_t first = blockIdx.x * job.tile_rows, end = min(first + job.tile_rows, job.rows.m);
    for (int64_t row = first + warp; row < end; row += WARPS) {
        route<EACH>(job, row, r);
        int32_t *ids = (int32_t *)job.ids.data + skr_row_offset(&job.rows, job.ids.stride, row);
#pragma unroll 1
        for (int j = lane; j < k; j += 32) {
            ids[j * job.ids.col_stride] = r.best[j];
            if (job.sorted)
                atomicAdd(&count[r.best[j]], 1);
        }
        if (job.weights.data) {
            int size = skr_type_bytes(job.weights.type);
            char *to = (char *)job.weights.data + skr_row_offset(&job.rows, job.weights.stride, row) * size;
#pragma unroll 1
            for (int j = lane; j < k; j += 32)
                any_store1(job.weights.type, to + j * job.weights.col_stride * size, r.f[j]);
        }
        __syncwarp(); /* the next row takes the same place */
    }
    __syncthreads();
    uint32_t *counts = (uint32_t *)((char *)job.head.workspace + job.counts_at);
    for (int e = threadIdx.x; job.sorted && e < n; e += THREADS)
        counts[(int64_t)e * job.tiles + blockIdx.x] = count[e];
}

#define CHOOSE(each)                                                                                                   \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
        skr_moe_route_choose_##each(const __grid_constant__ job_t job)                                                 \
    {                                                                                                                  \
        choose<each>(job);                                                                                             \
    }
CHOOSE(1)
CHOOSE(2)
CHOOSE(4)
CHOOSE(8)
CHOOSE(16)
CHOOSE(32)

/* ---------------------------------------------------------------- rows by expert */

/* The sum over this lane and those before it. */
SKR_DEVICE uint32_t sum_up_to(uint32_t u)
{
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        uint32_t left = __shfl_up_sync(0xffffffffu, u, d);
        u += (threadIdx.x & 31) >= d ? left : 0;
    }
    return u;
}

extern "C" __global__ void __launch_bounds__(SKR_ROUTE_SCAN) skr_moe_route_add_up(const __grid_constant__ job_t job)
{
    __shared__ uint32_t total[SKR_ROUTE_EXPERTS + 1], warp_sum[32];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, n = (int)job.n, tiles = job.tiles;
    uint32_t *counts = (uint32_t *)((char *)job.head.workspace + job.counts_at);
    wait_for_previous();
    let_next_start();
    for (int e = warp; e < n; e += SKR_ROUTE_SCAN / 32) {
        uint32_t carry = 0;
        for (int first = 0; first < tiles; first += 32) {
            int tile = first + lane;
            uint32_t here = tile < tiles ? counts[(int64_t)e * tiles + tile] : 0, sum = sum_up_to(here);
            if (tile < tiles)
                counts[(int64_t)e * tiles + tile] = carry + sum - here;
            carry += __shfl_sync(0xffffffffu, sum, 31);
        }
        if (lane == 0)
            total[e] = carry;
    }
    __syncthreads();
    /* As many threads as there may be experts, and the end. */
    uint32_t mine = (int)threadIdx.x < n ? total[threadIdx.x] : 0, sum = sum_up_to(mine);
    if (lane == 31)
        warp_sum[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; w++)
        sum += warp_sum[w];
    int32_t *starts = (int32_t *)((char *)job.head.workspace + job.starts_at);
    int e = (int)threadIdx.x;
    if (e < n) {
        starts[e] = (int32_t)(sum - mine);
        if (job.counts)
            job.counts[e] = (int32_t)mine;
        if (job.offsets)
            job.offsets[e + 1] = (int32_t)sum;
    }
    if (e == 0 && job.offsets)
        job.offsets[0] = 0;
}

SKR_DEVICE void place(const job_t &job)
{
    extern __shared__ __align__(16) unsigned char memory[];
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, n = (int)job.n;
    /* Of each warp and expert: how many rows there are, then where the next one goes. */
    uint32_t *all_next = (uint32_t *)memory, *next = all_next + warp * n;
    for (int e = lane; e < n; e += 32)
        next[e] = 0;
    wait_for_previous();
    let_next_start();
    __syncthreads();
    int64_t first = blockIdx.x * job.tile_rows;
    uint32_t k = (uint32_t)job.k, all = (uint32_t)(min(job.tile_rows, job.rows.m - first) * job.k);
    uint32_t share = (all + THREADS - 1) / THREADS * 32, begin = warp * share, end = min(begin + share, all);
    auto id_at = [&](uint32_t i) {
        int64_t row = first + i / k;
        const int32_t *ids = (const int32_t *)job.ids.data + skr_row_offset(&job.rows, job.ids.stride, row);
        return ids[(i % k) * job.ids.col_stride];
    };
    for (uint32_t i = begin + lane; i < end; i += 32)
        atomicAdd(&next[id_at(i)], 1);
    __syncthreads();
    const uint32_t *before = (const uint32_t *)((const char *)job.head.workspace + job.counts_at);
    const uint32_t *starts = (const uint32_t *)((const char *)job.head.workspace + job.starts_at);
    for (int e = threadIdx.x; e < n; e += THREADS) {
        uint32_t at = starts[e] + before[(int64_t)e * job.tiles + blockIdx.x];
        for (int w = 0; w < WARPS; w++) {
            uint32_t here = all_next[w * n + e];
            all_next[w * n + e] = at;
            at += here;
        }
    }
    __syncthreads();
    for (uint32_t i0 = begin; i0 < end; i0 += 32) {
        uint32_t i = i0 + lane;
        bool some = i < end;
        uint32_t e = some ? (uint32_t)id_at(i) : (uint32_t)n; /* lanes past the end are by themselves */
        uint32_t same = __match_any_sync(0xffffffffu, e), earlier = __popc(same & ((1u << lane) - 1));
        uint32_t at = some ? next[e] + earlier : 0;
        __syncwarp();
        if (some) {
            int64_t row = first * k + i;
            if (earlier == 0)
                next[e] += __popc(same);
            if (job.order)
                job.order[at] = (int32_t)row;
            if (job.place)
                job.place[row] = (int32_t)at;
            if (job.token)
                job.token[at] = (int32_t)(first + i / k);
        }
        __syncwarp();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) skr_moe_route_place(const __grid_constant__ job_t job)
{
    place(job);
}

/* ---------------------------------------------------------------- gradient */

/* The gradient of a row; SOFTMAX over all experts, over the chosen (SHARES), or sigmoids. */
SKR_DEVICE void backward_row(const backward_t &job, int64_t row)
{
    int lane = threadIdx.x & 31, n = (int)job.n, k = (int)job.k;
    int bytes = skr_type_bytes(job.logits.type), size = skr_type_bytes(job.dlogits.type);
    int gbytes = skr_type_bytes(job.dweights.type);
    bool softmax = job.score == SKR_ROUTE_SOFTMAX, whole = softmax && !job.renormalise;
    const char *x = (const char *)job.logits.data + skr_row_offset(&job.rows, job.logits.stride, row) * bytes;
    char *dx = (char *)job.dlogits.data + skr_row_offset(&job.rows, job.dlogits.stride, row) * size;
    const char *g = (const char *)job.dweights.data + skr_row_offset(&job.rows, job.dweights.stride, row) * gbytes;
    const int32_t *ids = (const int32_t *)job.ids.data + skr_row_offset(&job.rows, job.ids.stride, row);
    auto id_at = [&](int j) { return ids[j * job.ids.col_stride]; };
    auto inside = [&](int id) { return id >= 0 && id < n; };
    auto logit = [&](int e) { return any_load1(job.logits.type, x + e * bytes); };
    auto gradient = [&](int j) {
        return job.scale * any_load1(job.dweights.type, g + j * job.dweights.col_stride * gbytes);
    };
    float top = -infinity(), total = 0, dot = 0;
    for (int e = lane; whole && e < n; e += 32)
        top = larger(logit(e), top);
    for (int j = lane; j < k; j += 32) {
        int id = id_at(j);
        if (!inside(id))
            *job.head.error_word = SKR_BAD_INDEX;
        else if (softmax && !whole)
            top = larger(logit(id), top);
    }
    top = warp_largest(top);
    /* What is not divided by the total yet. */
    auto part = [&](int e) {
        float f = logit(e);
        return !softmax ? sigmoid_of(f) : top == -infinity() ? 0.0f : expf(f - top);
    };
    for (int e = lane; whole && e < n; e += 32)
        total += part(e);
    for (int j = lane; j < k; j += 32) {
        int id = id_at(j);
        if (!inside(id))
            continue;
        float p = part(id);
        total += whole ? 0.0f : p;
        dot = __fmaf_rn(p, gradient(j), dot);
    }
    total = softmax || job.renormalise ? lanes_reduce<skr_sum, 32>(total) : 1.0f;
    dot = lanes_reduce<skr_sum, 32>(dot);
    dot = softmax || job.renormalise ? (total == 0.0f ? 0.0f : dot / total) : 0.0f;
    for (int e = lane; e < n; e += 32)
        any_store1(job.dlogits.type, dx + (int64_t)e * size, whole && total != 0.0f ? part(e) / total * -dot : 0.0f);
    __syncwarp(); /* the chosen are written again */
    for (int j = lane; j < k; j += 32) {
        int id = id_at(j);
        if (!inside(id))
            continue;
        float p = total == 0.0f ? 0.0f : part(id) / total;
        p *= softmax ? 1.0f : sigmoid_of(-logit(id));
        any_store1(job.dlogits.type, dx + (int64_t)id * size, p * (gradient(j) - dot));
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) skr_moe_route_backward(const __grid_constant__ backward_t job)
{
    wait_for_previous();
    let_next_start();
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; row < job.rows.m;
         row += (int64_t)gridDim.x * WARPS)
        backward_row(job, row);
}
