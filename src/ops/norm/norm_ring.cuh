/* norm_ring.cuh - plain rms_norm and layer_norm (CENTRE) forward for the widest rows: bulk copies bring them through a
 * ring in shared memory. SPDX-License-Identifier: Apache-2.0
 *
 * A row belongs to a cluster, which stays and walks over the rows. Chunks of a vector a thread go to its blocks in
 * turn, at most P to each, so that the cluster reads from one place of the row at a time. In each block one warp more
 * than compute only starts copies: as soon as a chunk is written out, its slot (of S) is filled with one of a later
 * row. The weights stay in registers, packed; of layer_norm's biases only some do. */
#ifndef SKR_NORM_RING_CUH
#define SKR_NORM_RING_CUH

#include "../../cuda/ring.cuh"
#include "norm_rows.cuh"

template <bool CENTRE, int T, int THREADS, int P, int S> struct norm_ring {
    using Owner = cluster_owner<THREADS>;
    using place = ring_place<S>;
    static constexpr int V = skr_elem<T>::vec, L = THREADS; /* L: vectors of a chunk */
    static constexpr int BIASES = P < 4 ? P : 4;            /* in registers at a time */
    struct shared {
        typename Owner::shared owner;
        ring_shared<S> ring;
    };

    const skr_norm_job &job;
    int vectors, chunks; /* of the row; of this block */
    int first, stride;   /* vector where this block's first chunk starts; from there to the next */
    int row, step, turns;
    uint32_t ring, full, empty;

    SKR_DEVICE void run(const skr_norm_job &job)
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
        norm_ring k(job, owner, memory, shared_address(dynamic));
        if (threadIdx.x < L) {
            k.compute(owner);
        } else {
            owner.ready();
            if (threadIdx.x == L)
                k.fill();
        }
    }

    __device__ __forceinline__ norm_ring(const skr_norm_job &j, const Owner &owner, shared &memory, uint32_t dynamic)
        : job(j)
    {
        vectors = (int)(j.n / V);
        first = owner.rank() * L, stride = owner.size() * L;
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
                uint32_t bytes = min(vectors - at, L) * 16, barrier = full + p.slot * 8;
                if (loads >= S)
                    barrier_wait(empty + p.slot * 8, p.parity ^ 1);
                barrier_expect(barrier, bytes);
                bulk_load(ring + p.slot * L * 16, x + (int64_t)at * 16, bytes, barrier);
                p.next();
            }
        }
    }

    /* Vector i of this thread: its place in the row. */
    __device__ __forceinline__ int column(int i) const
    {
        return first + i * stride + threadIdx.x;
    }

    __device__ __forceinline__ uint4 slot(const place &p) const
    {
        return shared_load16(ring + (p.slot * L + threadIdx.x) * 16);
    }

    __device__ __forceinline__ void compute(Owner &owner) const
    {
        uint4 w[P], b[BIASES];
        bool packed = CENTRE || (job.weight.data && job.weight.type == T && job.heads == 1);
#pragma unroll
        for (int i = 0; i < P; i++)
            if (packed && column(i) < vectors) {
                int64_t from = (int64_t)column(i) * 16;
                w[i] = !CENTRE || job.weight.data ? load16((const char *)job.weight.data + from) : packed_ones<T>();
                if (i < BIASES)
                    b[i < BIASES ? i : 0] = bias(i);
            }
        owner.ready();
        int valid = (vectors - column(0) + stride - 1) / stride;
        place p;
        for (int t = 0; t < turns; t++) {
            place start = p;
            skr_row at = row_of(job.rows, row + t * step);
            norm_stats stats = row_stats<CENTRE, V, P>(owner, job.n, job.eps, valid, [&](int i, float *f) {
                if (i == 0)
                    p = start;
                get(p, i, f);
            });
            if (threadIdx.x == 0 && owner.rank() == 0)
                save_stats<CENTRE>(job, at, stats);
            char *y = row_at<char>(job.y, at, skr_elem<T>::bytes);
            if (packed)
                write<true>(start, row + t * step, y, stats, w, b);
            else
                write<CENTRE>(start, row + t * step, y, stats, w, b);
        }
    }

    __device__ __forceinline__ uint4 bias(int i) const
    {
        if (!CENTRE || !job.bias.data || column(i) >= vectors)
            return make_uint4(0, 0, 0, 0);
        return load16((const char *)job.bias.data + (int64_t)column(i) * 16);
    }

    /* Vector i; zeros where this thread has none. */
    __device__ __forceinline__ void get(place &p, int i, float *f) const
    {
#pragma unroll
        for (int c = 0; c < V; c++)
            f[c] = 0.0f;
        if (i >= chunks)
            return;
        barrier_wait(full + p.slot * 8, p.parity);
        if (column(i) < vectors)
            unpack<T>(slot(p), f);
        p.next();
    }

    template <bool PACKED> __device__ __forceinline__ void write(place p, int at, char *y, const norm_stats &stats,
                                                                 uint4 (&w)[P], uint4 (&b)[BIASES]) const
    {
#pragma unroll
        for (int i = 0; i < P; i++) {
            if (i >= chunks)
                continue;
            if (column(i) < vectors) {
                float f[V], g[V], a[V];
                if (PACKED) {
                    opaque(w[i]); /* or the compiler keeps them as f32 over the rows */
                    unpack<T>(w[i], g);
#pragma unroll
                    for (int c = 0; c < V; c++)
                        g[c] += job.weight_offset;
                    if (CENTRE) {
                        opaque(b[i % BIASES]);
                        unpack<T>(b[i % BIASES], a);
                    }
                } else {
                    load_weight<V>(job.weight, job.weight_offset,
                                   param_row(job.heads, at) * job.weight.stride + (int64_t)column(i) * V, g);
                }
                unpack<T>(slot(p), f);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float h = normal<CENTRE>(stats, f[c]);
                    f[c] = CENTRE ? __fmaf_rn(h, g[c], a[c]) : h * g[c];
                }
                store16_once(y + (int64_t)column(i) * 16, pack<T>(f));
            }
            if (CENTRE && BIASES < P) /* what this register is for next: in this row, or in the next one */
                b[i % BIASES] = bias(i + BIASES < chunks ? i + BIASES : i % BIASES);
            __syncwarp();
            if ((threadIdx.x & 31) == 0)
                barrier_arrive(empty + p.slot * 8);
            p.next();
        }
    }
};

#endif
