/* rms_norm_ring.cuh - plain rms_norm forward for the widest rows: bulk copies bring them through a ring in shared
 * memory. SPDX-License-Identifier: Apache-2.0
 *
 * A row belongs to a cluster, which stays and walks over the rows. Chunks of K vectors a thread go to its blocks in
 * turn, at most P to each, so that the cluster reads from one place of the row at a time. In each block one warp more
 * than compute only starts copies: as soon as a chunk is written out, its slot (of S) is filled with one of a later
 * row. The weights stay in registers, packed. */
#ifndef SKR_RMS_NORM_RING_CUH
#define SKR_RMS_NORM_RING_CUH

#include "../../cuda/ring.cuh"
#include "rms_norm_rows.cuh"

template <int T, int THREADS, int K, int P, int S> struct rms_norm_ring {
    using Owner = cluster_owner<THREADS>;
    using place = ring_place<S>;
    static constexpr int V = skr_elem<T>::vec, L = THREADS, CHUNK = K * L; /* in vectors */
    struct shared {
        typename Owner::shared owner;
        ring_shared<S> ring;
    };

    const skr_rms_norm_job &job;
    int vectors, chunks; /* of the row; of this block */
    int first, stride;   /* vector where this block's first chunk starts; from there to the next */
    int row, step, turns;
    uint32_t ring, full, empty;

    SKR_DEVICE void run(const skr_rms_norm_job &job)
    {
        __shared__ __align__(16) shared memory;
        extern __shared__ __align__(128) unsigned char dynamic[];
        Owner owner(memory.owner);
        if (threadIdx.x == 0)
            ring_init<S>(memory.ring, Owner::warps);
        owner.start();
        __syncthreads();
        wait_for_previous();
        let_next_start();
        rms_norm_ring k(job, owner, memory, shared_address(dynamic));
        if (threadIdx.x < L) {
            k.compute(owner);
        } else {
            owner.ready();
            if (threadIdx.x == L)
                k.fill();
        }
    }

    __device__ __forceinline__ rms_norm_ring(const skr_rms_norm_job &j, const Owner &owner, shared &memory,
                                             uint32_t dynamic)
        : job(j)
    {
        vectors = (int)(j.n / V);
        first = owner.rank() * CHUNK, stride = owner.size() * CHUNK;
        chunks = max(0, (vectors - first + stride - 1) / stride);
        row = owner.index(), step = owner.count();
        turns = ((int)j.rows.m - row + step - 1) / step;
        ring = dynamic, full = shared_address(memory.ring.full), empty = shared_address(memory.ring.empty);
    }

    /* The copying thread: keeps every slot full or on its way. */
    __device__ __forceinline__ void fill() const
    {
        place p;
        int loads = 0;
        for (int t = 0; t < turns; t++) {
            const char *x = row_at<const char>(job.x, row_of(job.rows, row + t * step), skr_elem<T>::bytes);
            for (int c = 0; c < chunks; c++, loads++) {
                int at = first + c * stride;
                uint32_t bytes = min(vectors - at, CHUNK) * 16, barrier = full + p.slot * 8;
                if (loads >= S)
                    barrier_wait(empty + p.slot * 8, p.parity ^ 1);
                barrier_expect(barrier, bytes);
                bulk_load(ring + p.slot * CHUNK * 16, x + (int64_t)at * 16, bytes, barrier);
                p.next();
            }
        }
    }

    /* Vector i of this thread: its place in the row, and whether it has one. */
    __device__ __forceinline__ int column(int i) const
    {
        return first + i / K * stride + i % K * L + threadIdx.x;
    }

    __device__ __forceinline__ uint4 slot(const place &p, int i) const
    {
        return shared_load16(ring + (p.slot * CHUNK + i % K * L + threadIdx.x) * 16);
    }

    __device__ __forceinline__ void compute(Owner &owner) const
    {
        uint4 w[K * P];
        bool packed = job.weight.data && job.weight.type == T && job.heads == 1;
#pragma unroll
        for (int i = 0; i < K * P; i++)
            if (packed && column(i) < vectors)
                w[i] = load16((const char *)job.weight.data + (int64_t)column(i) * 16);
        owner.ready();
        place p;
        for (int t = 0; t < turns; t++) {
            place start = p;
            skr_row at = row_of(job.rows, row + t * step);
            float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < K * P; i++) {
                if (i / K >= chunks)
                    continue;
                if (i % K == 0)
                    barrier_wait(full + p.slot * 8, p.parity);
                if (column(i) < vectors) {
                    float f[V];
                    unpack<T>(slot(p, i), f);
#pragma unroll
                    for (int c = 0; c < V; c++)
                        part[c & 3] = __fmaf_rn(f[c], f[c], part[c & 3]);
                }
                if (i % K == K - 1)
                    p.next();
            }
            float sum = owner.template reduce<skr_sum>((part[0] + part[1]) + (part[2] + part[3]));
            float rstd = rstd_of(sum, job.n, job.eps);
            if (job.rstd.data && threadIdx.x == 0 && owner.rank() == 0)
                *row_at<float>(job.rstd, at, 4) = rstd;
            char *y = row_at<char>(job.y, at, skr_elem<T>::bytes);
            if (packed)
                write<true>(start, row + t * step, y, rstd, w);
            else
                write<false>(start, row + t * step, y, rstd, w);
        }
    }

    template <bool PACKED>
    __device__ __forceinline__ void write(place p, int at, char *y, float rstd, uint4 (&w)[K * P]) const
    {
#pragma unroll
        for (int i = 0; i < K * P; i++) {
            if (i / K >= chunks)
                continue;
            if (column(i) < vectors) {
                float f[V], g[V];
                if (PACKED) {
                    opaque(w[i]); /* or the compiler keeps them as f32 over the rows */
                    unpack<T>(w[i], g);
#pragma unroll
                    for (int c = 0; c < V; c++)
                        g[c] += job.weight_offset;
                } else {
                    load_weight<V>(job.weight, job.weight_offset,
                                   param_row(job.heads, at) * job.weight.stride + (int64_t)column(i) * V, g);
                }
                unpack<T>(slot(p, i), f);
#pragma unroll
                for (int c = 0; c < V; c++)
                    f[c] = f[c] * rstd * g[c];
                store16_once(y + (int64_t)column(i) * 16, pack<T>(f));
            }
            if (i % K == K - 1) {
                __syncwarp();
                if ((threadIdx.x & 31) == 0)
                    barrier_arrive(empty + p.slot * 8);
                p.next();
            }
        }
    }
};

#endif
