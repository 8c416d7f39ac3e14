/* owner.cuh - who owns a row: some lanes of a warp or a block (a cluster of blocks: sm90.cuh), and how they join their
 * partial sums, maxima, means and variances. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_OWNER_CUH
#define SKR_OWNER_CUH

#include "device.cuh"

/* ---------------------------------------------------------------- mean and variance
 *
 * A row is held in pieces, one to a warp (or to as few lanes as a row has). Each takes a pivot, the mean of some of
 * what it holds (at least an eighth, so that the pivot lies within a few deviations of the mean), and sums the
 * deviations from it and their squares. The pieces are joined around the pivot of the first: nothing large is ever
 * subtracted from its like, and rows far from 0 keep their accuracy. */

struct skr_moments {
    float mean, low; /* the mean is their sum: what one f32 cannot hold is not lost */
    float variance;
};

/* What a piece is of its row. */
struct skr_piece {
    float inverse_first; /* 1 / number of elements that the pivot is the mean of */
    float inverse;       /* 1 / number of elements; 0 where there are none */
    float share;         /* elements / those of the row */
    float inverse_n;     /* 1 / elements of the row */
};

SKR_DEVICE float inverse_of(int count)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"((float)count));
    return count > 0 ? r : 0.0f;
}

/* A piece's part of the variance of the row: around its own mean. */
SKR_DEVICE float piece_variance(float low, float square, const skr_piece &piece)
{
    float v = __fmaf_rn(-low * piece.share, low, square * piece.inverse_n);
    return v < 0.0f ? 0.0f : v; /* NaN stays */
}

/* all: pivot, mean deviation, sum of squares, share of each of `total` pieces; LANES neighbouring lanes (a power of
 * two) work together and get the same bits. */
template <int LANES> SKR_DEVICE skr_moments join_moments(const float4 *all, int total, float inverse_n)
{
    float pivot = all[0].x, shift = 0.0f, variance = 0.0f;
    int lane = threadIdx.x & (LANES - 1);
    for (int k = lane; k < total; k += LANES) {
        float4 p = all[k];
        shift = __fmaf_rn(p.w, (p.x - pivot) + p.y, shift);
    }
    shift = lanes_reduce<skr_sum, LANES>(shift);
    for (int k = lane; k < total; k += LANES) {
        float4 p = all[k];
        float off = ((p.x - pivot) + p.y) - shift;
        variance += __fmaf_rn(p.w * off, off, piece_variance(p.y, p.z, {0.0f, 0.0f, p.w, inverse_n}));
    }
    return {pivot, shift, lanes_reduce<skr_sum, LANES>(variance)};
}

/* ---------------------------------------------------------------- who owns a row
 *
 * A row kernel is written once over an owner: TPR lanes of a warp, a whole block, or (sm90.cuh) a cluster of blocks. An
 * owner says which slice of the row this block holds and joins the partial sums; all its threads call reduce together.
 */

template <int TPR, int THREADS> struct block_owner {
    static constexpr int lanes = TPR, threads = THREADS, groups = THREADS / TPR, warps = THREADS / 32;
    static_assert(TPR <= 32 || TPR == THREADS, "a row belongs to part of a warp or to the whole block");
    struct shared {
        float partial[2][4][warps < 4 ? 4 : warps];
    };
    shared &memory;
    int turn;

    __device__ __forceinline__ block_owner(shared &m) : memory(m), turn(0)
    {
    }
    __device__ __forceinline__ void start()
    {
    }
    __device__ __forceinline__ void ready()
    {
    }
    __device__ __forceinline__ int index() const
    {
        return (int)blockIdx.x;
    }
    __device__ __forceinline__ int count() const
    {
        return (int)gridDim.x;
    }
    __device__ __forceinline__ int rank() const
    {
        return 0;
    }
    __device__ __forceinline__ int size() const
    {
        return 1;
    }

    template <class Op> __device__ __forceinline__ float reduce(float f)
    {
        if (TPR <= 32)
            return lanes_reduce < Op, TPR <= 32 ? TPR : 32 > (f);
        turn ^= 1;
        return block_reduce<Op, warps>(f, memory.partial[turn][0]);
    }

    /* Two reductions in one exchange. */
    template <class A, class B> __device__ __forceinline__ void reduce2(float &a, float &b)
    {
        if constexpr (TPR < 32) {
            a = lanes_reduce<A, TPR>(a), b = lanes_reduce<B, TPR>(b);
            return;
        }
        float mine = warp_reduce2<A, B>(a, b);
        if constexpr (TPR <= 32) {
            a = __shfl_sync(0xffffffffu, mine, 0), b = __shfl_sync(0xffffffffu, mine, 16);
            return;
        }
        turn ^= 1;
        if ((threadIdx.x & 15) == 0)
            memory.partial[turn][threadIdx.x / 16 % 2][threadIdx.x / 32] = mine;
        __syncthreads();
        a = gather<A, warps>(memory.partial[turn][0]);
        b = gather<B, warps>(memory.partial[turn][1]);
    }

    /* Moments of the row. low and square: this thread's sums of deviations from the pivot of its piece, over the
     * piece's elements, and of their squares. */
    __device__ __forceinline__ skr_moments moments(float pivot, float low, float square, const skr_piece &piece)
    {
        if constexpr (TPR <= 32) {
            reduce2<skr_sum, skr_sum>(low, square);
            return {pivot, low, piece_variance(low, square, piece)};
        } else {
            float mine = warp_reduce2<skr_sum, skr_sum>(low, square);
            turn ^= 1;
            float4 *all = (float4 *)memory.partial[turn];
            if ((threadIdx.x & 15) == 0)
                ((float2 *)all)[threadIdx.x / 16] =
                    threadIdx.x & 16 ? make_float2(mine, piece.share) : make_float2(pivot, mine);
            __syncthreads();
            return join_moments<warps>(all, warps, piece.inverse_n);
        }
    }

    /* Joins pairs that all lanes of a warp (or all TPR of them) agree on. */
    template <class Pair> __device__ __forceinline__ void join(const Pair &pair, float &a, float &b)
    {
        if (TPR <= 32 || warps == 1)
            return;
        turn ^= 1;
        if ((threadIdx.x & 31) == 0)
            memory.partial[turn][0][threadIdx.x / 32] = a, memory.partial[turn][1][threadIdx.x / 32] = b;
        __syncthreads();
        a = memory.partial[turn][0][threadIdx.x % warps], b = memory.partial[turn][1][threadIdx.x % warps];
        pair.template lanes<warps>(a, b);
    }
};

#endif
