/* attention_warpgroup.cuh - what attention's kernels for Hopper share: products of warpgroups, rings of tiles, results
 * by 16 bytes. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_WARPGROUP_CUH
#define SKR_ATTENTION_WARPGROUP_CUH

#include "../../cuda/sm90.cuh"
#include "../../cuda/wgmma.cuh"
#include "attention_products.cuh"
#include "attention_scored.cuh"

/* scores: k along the rows of both operands. values: the left operand is in registers, the right one's rows are k. */
template <int T, int N> struct attention_mma;
#define SKR_ATTENTION_MMA(T, N, types)                                                                                 \
    template <> struct attention_mma<T, N> {                                                                           \
        SKR_WGMMA(scores, N, float, "+f", "m64n" #N "k16", types, ", 1, 1, 0, 0")                                      \
        SKR_WGMMA_LEFT(values, N, types, ", 1, 1, 1")                                                                  \
    };
SKR_ATTENTION_MMA(SKR_BF16, 64, "f32.bf16.bf16")
SKR_ATTENTION_MMA(SKR_BF16, 96, "f32.bf16.bf16")
SKR_ATTENTION_MMA(SKR_BF16, 128, "f32.bf16.bf16")
SKR_ATTENTION_MMA(SKR_BF16, 256, "f32.bf16.bf16")
SKR_ATTENTION_MMA(SKR_F16, 64, "f32.f16.f16")
SKR_ATTENTION_MMA(SKR_F16, 96, "f32.f16.f16")
SKR_ATTENTION_MMA(SKR_F16, 128, "f32.f16.f16")
SKR_ATTENTION_MMA(SKR_F16, 256, "f32.f16.f16")

/* The rows of both operands are k. */
template <int T> struct attention_across;
template <> struct attention_across<SKR_BF16> {
    SKR_WGMMA(product, 64, float, "+f", "m64n64k16", "f32.bf16.bf16", ", 1, 1, 1, 1")
};
template <> struct attention_across<SKR_F16> {
    SKR_WGMMA(product, 64, float, "+f", "m64n64k16", "f32.f16.f16", ", 1, 1, 1, 1")
};

/* A place in a ring of N. */
template <int N> struct attention_place {
    int stage, phase;
    __device__ __forceinline__ void advance()
    {
        if (++stage == N)
            stage = 0, phase ^= 1;
    }
};

/* Tiles are panels of 64 columns, which are rows of 128 bytes. */
template <int ROWS, int D> struct attention_panels {
    static constexpr int count = D / 64, panel = ROWS * 128, bytes = count * panel;
};

template <int N> __device__ __forceinline__ float (&attention_flat(float (&x)[1][N][4]))[4 * N]
{
    return reinterpret_cast<float(&)[4 * N]>(x);
}

template <int N> __device__ __forceinline__ void attention_pin(float (&x)[1][N][4])
{
    wgmma_pin(attention_flat(x));
}

/* Queues x = 64 rows of a, a tile of A_ROWS, times the BN rows of b, over D columns. */
template <int T, int D, int A_ROWS, int BN>
SKR_DEVICE void attention_multiply_rows(float (&x)[1][BN / 8][4], uint32_t a, uint32_t b)
{
    const uint64_t left = wgmma_tile(a, 16), right = wgmma_tile(b, 16);
    attention_pin(x);
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < D / 16; i++)
        attention_mma<T, BN>::scores(attention_flat(x), left + i / 4 * (A_ROWS * 128 >> 4) + i % 4 * 2,
                                     right + i / 4 * (BN * 128 >> 4) + i % 4 * 2, i > 0);
    wgmma_commit();
}

/* Queues o += x times the BN rows of b. */
template <int T, int D, int BN>
SKR_DEVICE void attention_multiply_left(float (&o)[1][D / 8][4], const uint32_t (&x)[BN / 16][4], uint32_t b)
{
    const uint64_t right = wgmma_tile(b, BN * 128);
    attention_pin(o);
    wgmma_begin();
#pragma unroll
    for (int i = 0; i < BN / 16; i++)
        attention_mma<T, D>::values(attention_flat(o), x[i], right + i * 128, 1);
    wgmma_commit();
}

/* The same for all threads of the warp: descriptors stay in uniform registers. */
SKR_DEVICE int attention_group()
{
    return __shfl_sync(0xffffffff, (int)threadIdx.x / 128, 0);
}

/* By a warpgroup, which has waited for what it read there. */
SKR_DEVICE void attention_release(uint64_t &empty)
{
    if (threadIdx.x % 128 == 0)
        barrier_arrive(shared_address(&empty));
}

/* By each of the 8 warps: it has left the piece before, too, whose description may be written again then. */
SKR_DEVICE void attention_release_rows(uint64_t &empty)
{
    if (threadIdx.x % 32 == 0)
        barrier_arrive(shared_address(&empty));
}

/* a of the lane `apart` above becomes b of this one, and the other way round. */
SKR_DEVICE void attention_exchange(uint32_t &a, uint32_t &b, int upper, int apart)
{
    const uint32_t got = __shfl_xor_sync(0xffffffffu, upper ? a : b, apart);
    if (upper)
        a = got;
    else
        b = got;
}

/* A warp's 16 rows from `row` on to those of a head, whose first is at `data`: those before `rows` from o, zeros behind
 * them up to `room`. The four lanes of a row exchange words: each gets 8 columns, which are 16 bytes, of every 32. */
template <int T, int OJ>
SKR_DEVICE void attention_store_chunks(char *data, int64_t token, int width, int row, int rows, int room,
                                       const float (&o)[1][OJ][4])
{
    const int lane = threadIdx.x & 31, odd = lane & 1, high = lane >> 1 & 1;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        const int at = row + 8 * h + (lane >> 2);
        char *line = data + at * token * 2;
#pragma unroll
        for (int j = 0; j < OJ; j += 4) {
            uint32_t w[4];
#pragma unroll
            for (int i = 0; i < 4; i++)
                w[i] = at < rows ? pack2<T>(o[0][j + i][2 * h], o[0][j + i][2 * h + 1]) : 0;
            attention_exchange(w[0], w[1], odd, 1), attention_exchange(w[2], w[3], odd, 1);
            attention_exchange(w[0], w[2], high, 2), attention_exchange(w[1], w[3], high, 2);
            const int column = 8 * (j + (lane & 3));
            if (at < room && column < width)
                store16_once(line + 2 * column, make_uint4(w[0], w[1], w[2], w[3]));
        }
    }
}

/* Of a warp of piece `index`; keys: of pieces of keys. */
SKR_DEVICE void attention_mark(const skr_attention_job &job, bool keys, int index, bool doubtful)
{
    doubtful = __any_sync(0xffffffffu, doubtful);
    if (threadIdx.x % 32 == 0)
        attention_marks(job, keys)[8 * index + threadIdx.x / 32] = doubtful;
}

/* The piece after `index`. */
SKR_DEVICE int attention_next(const skr_attention_job &job, bool keys, int index)
{
    return job.cuda.count_at < 0 ? index + (int)gridDim.x : (int)gridDim.x + atomicAdd(attention_count(job, keys), 1);
}

#endif
