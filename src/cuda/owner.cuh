/* owner.cuh - who owns a row: some lanes of a warp or a block (a cluster of blocks: sm90.cuh), and how they join their
 * partial sums and maxima. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_OWNER_CUH
#define SKR_OWNER_CUH

#include "device.cuh"

/* ---------------------------------------------------------------- who owns a row
 *
 * A row kernel is written once over an owner: TPR lanes of a warp, a whole block, or (sm90.cuh) a cluster of blocks. An
 * owner says which slice of the row this block holds and joins the partial sums; all its threads call reduce together.
 */

template <int TPR, int THREADS> struct block_owner {
    static constexpr int lanes = TPR, threads = THREADS, groups = THREADS / TPR, warps = THREADS / 32;
    static_assert(TPR <= 32 || TPR == THREADS, "a row belongs to part of a warp or to the whole block");
    struct shared {
        float partial[2][2][warps < 4 ? 4 : warps];
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
