/* ring.cuh - what row kernels that stay and walk over rows share: places in a ring of slots that the copy engine fills,
 * and row sums whose sending and receiving are apart. SPDX-License-Identifier: Apache-2.0
 *
 * Only files compiled for sm_90 alone include this. */
#ifndef SKR_CUDA_RING_CUH
#define SKR_CUDA_RING_CUH

#include "sm90.cuh"

/* Where a walk over S slots stands; parity: how often it went round, modulo 2. */
template <int S> struct ring_place {
    int slot = 0;
    uint32_t parity = 0;
    __device__ __forceinline__ void next()
    {
        if (++slot == S)
            slot = 0, parity ^= 1;
    }
};

/* A slot's two barriers: full counts the bytes that the copy engine brings, empty the warps that are done with them. */
template <int S> struct ring_shared {
    uint64_t full[S], empty[S];
};

template <int S> SKR_DEVICE void ring_init(ring_shared<S> &memory, uint32_t warps)
{
    for (int s = 0; s < S; s++) {
        barrier_init(shared_address(&memory.full[s]), 1);
        barrier_init(shared_address(&memory.empty[s]), warps);
    }
}

/* Sums of VALUES numbers over a block, or over a cluster of two or more blocks, of THREADS threads each. send() and
 * receive() may have other sends between them: row k + 1 can be summed while the sums of row k are on their way. One
 * warp more than those that send adds up what arrives (collect), so that the others only read the result.
 * Four areas alternate, and that is enough while a warp receives number k before it sends number k + 2: who sends k + 4
 * has received k + 2, which every warp sent after it had read k. All warps send in the same order. */
template <int THREADS, bool CLUSTER, int VALUES> struct split_sum {
    static constexpr int warps = THREADS / 32, most = CLUSTER ? 16 : 1, areas = 4;
    static_assert(VALUES == 1 || VALUES == 2, "one or two");
    struct shared {
        __align__(16) float partial[areas][VALUES * most * warps];
        float2 total[areas];
        uint64_t arrived[areas], ready[areas];
    };
    shared &memory;
    uint32_t sent, received;
    uint32_t my_rank, my_size;

    __device__ __forceinline__ split_sum(shared &m)
        : memory(m), sent(0), received(0), my_rank(CLUSTER ? cluster_rank() : 0), my_size(CLUSTER ? cluster_size() : 1)
    {
    }

    /* By one thread; a barrier of the block or cluster follows. */
    __device__ __forceinline__ void init() const
    {
        for (int a = 0; a < areas; a++) {
            barrier_init(shared_address(&memory.arrived[a]), CLUSTER ? 1 : VALUES * warps);
            barrier_init(shared_address(&memory.ready[a]), 1);
        }
    }
    __device__ __forceinline__ int index() const
    {
        return (int)(blockIdx.x / my_size);
    }
    __device__ __forceinline__ int count() const
    {
        return (int)(gridDim.x / my_size);
    }

    __device__ __forceinline__ void send(const float (&f)[VALUES])
    {
        uint32_t area = sent++ % areas, lane = threadIdx.x & 31, warp = threadIdx.x / 32;
        uint32_t to = lane & 15, which = lane / 16; /* lanes from 16 on have the second value */
        float mine;
        if constexpr (VALUES == 1)
            mine = lanes_reduce<skr_sum, 32>(f[0]);
        else
            mine = warp_reduce2<skr_sum, skr_sum>(f[0], f[VALUES - 1]);
        uint32_t barrier = shared_address(&memory.arrived[area]);
        float *place = &memory.partial[area][VALUES * (my_rank * warps + warp) + which];
        if (CLUSTER) {
            if (threadIdx.x == 0)
                barrier_expect(barrier, 4 * VALUES * my_size * warps);
            if (to < my_size && which < VALUES)
                send4(peer_address(shared_address(place), to), mine, peer_address(barrier, to));
        } else if (to == 0 && which < VALUES) {
            *place = mine;
            barrier_arrive(barrier);
        }
    }

    /* By the warp that adds up, for as many sums as are sent. */
    __device__ __forceinline__ void collect(int rounds)
    {
        uint32_t lane = threadIdx.x & 31, total = my_size * warps;
        for (; rounds > 0; rounds--, received++) {
            uint32_t area = received % areas;
            barrier_wait(shared_address(&memory.arrived[area]), received / areas & 1);
            const float *partial = memory.partial[area];
            float a = 0.0f, b = 0.0f;
#pragma unroll 4
            for (uint32_t k = lane; k < total; k += 32) {
                if constexpr (VALUES == 1) {
                    a += partial[k];
                } else {
                    float2 pair = ((const float2 *)partial)[k];
                    a += pair.x, b += pair.y;
                }
            }
            a = lanes_reduce<skr_sum, 32>(a);
            if (VALUES == 2)
                b = lanes_reduce<skr_sum, 32>(b);
            if (lane == 0) {
                memory.total[area] = make_float2(a, b);
                barrier_arrive(shared_address(&memory.ready[area]));
            }
        }
    }

    /* The sums that were sent first and not received yet. */
    __device__ __forceinline__ void receive(float (&f)[VALUES])
    {
        uint32_t area = received % areas;
        barrier_wait(shared_address(&memory.ready[area]), received / areas & 1);
        received++;
        float2 total = memory.total[area];
        f[0] = total.x;
        if (VALUES == 2)
            f[VALUES - 1] = total.y;
    }
};

#endif
