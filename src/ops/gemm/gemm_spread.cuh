/* gemm_spread.cuh - a tile of Hopper's product kernel whose k is cut over the blocks of a cluster.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Small products have fewer tiles than there are SMs, and cutting k by way of the workspace takes a second kernel. Here
 * each block of a cluster owns some of the tile's columns: the others send it their sums of them, and it adds them in
 * the order of k and writes them. Sums go where the stages were, once all blocks have read theirs; a cluster has one
 * tile. d has 16 bits, is written in vectors, and there is no option but one factor. */
#ifndef SKR_GEMM_SPREAD_CUH
#define SKR_GEMM_SPREAD_CUH

#include "../../cuda/sm90.cuh"
#include "gemm_epilogue.cuh"

template <int BN> struct gemm_spread {
    const skr_gemm_job &job;
    uint32_t sums, ready, arrived; /* ready: all blocks have read their stages; arrived: sums of the others */
    int rank;

    /* By one thread, before barrier_init_done(). */
    __device__ __forceinline__ void init() const
    {
        barrier_init(ready, 1 << job.work.spread);
        barrier_init(arrived, 1);
    }

    __device__ __forceinline__ static void meet(int threads)
    {
        asm volatile("bar.sync %0, %1;" ::"n"(3), "r"(threads) : "memory");
    }

    /* Columns that a block owns, in eights. */
    __device__ __forceinline__ int each() const
    {
        return BN / 8 >> job.work.spread;
    }

    /* 16 bytes of each thread: columns 8 eight + 2 (lane % 4) and the next of two rows, as block `from` has them. */
    __device__ __forceinline__ uint32_t place(int from, int eight, int thread) const
    {
        return sums + ((from * each() + eight) * 256 + thread) * 16;
    }

    /* By the warpgroups that have rows. */
    __device__ __forceinline__ void write(const float (&d)[BN / 2], int row, int col, int z) const
    {
        const int blocks = 1 << job.work.spread, threads = row + 64 < job.m ? 256 : 128, own = each();
        const int thread = (int)threadIdx.x;
        meet(threads);
        if (thread < blocks)
            barrier_arrive_peer(ready, thread);
        if (thread == 0)
            barrier_expect(arrived, (blocks - 1) * own * threads * 16);
        barrier_wait(ready, 0);
#pragma unroll
        for (int j = 0; j < BN / 8; j++) {
            const int owner = j / own;
            const uint32_t to = place(rank, j % own, thread);
            if (owner == rank)
                shared_store16(to, d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]);
            else
                send16(peer_address(to, owner), d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3],
                       peer_address(arrived, owner));
        }
        meet(threads);
        barrier_wait(arrived, 0);
        const float factor = gemm_one_factor(job);
#pragma unroll 1
        for (int i = thread; i < threads / 4 * own; i += threads) {
            const int eight = i % own, four = i / own; /* of threads, which have 8 columns of two rows together */
            const int n = col + (rank * own + eight) * 8, m = row + four / 8 * 16 + four % 8;
            float f[2][8];
            add(eight, four, f);
            if (n >= job.n)
                continue;
#pragma unroll
            for (int h = 0; h < 2; h++) {
#pragma unroll
                for (int c = 0; c < 8; c++)
                    f[h][c] *= factor;
                const int64_t at = z * job.d.at.stride[0] + (m + 8 * h) * job.d.row + n;
                if (m + 8 * h < job.m)
                    any_store<8>(job.d.at.type, (char *)job.d.at.data + at * 2, f[h]);
            }
        }
    }

    __device__ __forceinline__ void add(int eight, int four, float (&f)[2][8]) const
    {
#pragma unroll
        for (int c = 0; c < 16; c++)
            f[c / 8][c % 8] = 0.0f;
#pragma unroll 1
        for (int from = 0; from < 1 << job.work.spread; from++)
#pragma unroll
            for (int c = 0; c < 4; c++) {
                float x[4];
                unpack<SKR_F32>(shared_load16(place(from, eight, four * 4 + c)), x);
                f[0][2 * c] += x[0], f[0][2 * c + 1] += x[1], f[1][2 * c] += x[2], f[1][2 * c + 1] += x[3];
            }
    }
};

#endif
