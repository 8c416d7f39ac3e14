/* rms_norm_backward_ring.cuh - rms_norm backward for wide rows: bulk copies bring x and dy through a ring in shared
 * memory. SPDX-License-Identifier: Apache-2.0
 *
 * The lean case of rms_norm_backward_rows.cuh with a weight of x's type (or none) and no offset. A row belongs to a
 * block or a cluster, which is one part. Chunks of a vector a thread go to the blocks in turn, at most P to each; a slot
 * of the ring holds one chunk of x and of dy. In each block one warp more than compute only starts copies. The sums of
 * row k + 1 are taken before row k is written, so that the exchange of row k's sums costs nothing; both rows stay in
 * their slots meanwhile (2 P of S; with fewer slots the exchange is waited for). Weights stay packed in registers
 * beside the columns' dweight sums. */
#ifndef SKR_RMS_NORM_BACKWARD_RING_CUH
#define SKR_RMS_NORM_BACKWARD_RING_CUH

#include "../../cuda/ring.cuh"
#include "rms_norm_rows.cuh"

template <int T, int THREADS, bool CLUSTER, int P, int S, bool AHEAD, bool W_SHARED> struct rms_norm_backward_ring {
    using Sums = split_sum<THREADS, CLUSTER, 1>;
    using Place = ring_place<S>;
    static constexpr int V = skr_elem<T>::vec, SLOT = 2 * THREADS * 16;
    static_assert((AHEAD ? 2 : 1) * P <= S, "the rows that are in use fit the ring");
    struct shared {
        typename Sums::shared sums;
        ring_shared<S> ring;
    };

    const skr_rms_norm_backward_job &job;
    int vectors, chunks; /* of the row; of this block */
    int first, stride;   /* vector where this block's first chunk starts; from there to the next */
    int row, step, turns;
    int64_t row_bytes; /* from one row to the next: of x, dy and dx */
    uint32_t slots, full, empty;
    uint4 w[W_SHARED ? 1 : P];
    float dw[P][V];

    SKR_DEVICE void run(const skr_rms_norm_backward_job &job)
    {
        __shared__ __align__(16) shared memory;
        extern __shared__ __align__(128) unsigned char dynamic[];
        Sums sums(memory.sums);
        if (threadIdx.x == 0) {
            ring_init<S>(memory.ring, Sums::warps);
            sums.init();
            barrier_init_done();
        }
        if (CLUSTER)
            cluster_arrive();
        __syncthreads();
        wait_for_previous();
        let_next_start();
        rms_norm_backward_ring k(job, sums, memory, shared_address(dynamic));
        if (CLUSTER)
            cluster_wait();
        if (threadIdx.x < THREADS)
            k.compute(sums);
        else if (threadIdx.x == THREADS)
            k.fill();
    }

    __device__ __forceinline__ rms_norm_backward_ring(const skr_rms_norm_backward_job &j, const Sums &sums,
                                                      shared &memory, uint32_t dynamic)
        : job(j)
    {
        vectors = (int)(j.n / V);
        first = (int)sums.my_rank * THREADS, stride = (int)sums.my_size * THREADS;
        chunks = max(0, (vectors - first + stride - 1) / stride);
        row = sums.index(), step = sums.count();
        turns = ((int)j.rows.m - row + step - 1) / step;
        row_bytes = j.x.stride[0] * skr_elem<T>::bytes;
        slots = dynamic, full = shared_address(memory.ring.full), empty = shared_address(memory.ring.empty);
    }

    /* The copying thread: keeps every slot full or on its way. */
    __device__ __forceinline__ void fill() const
    {
        Place p;
        int loads = 0;
        for (int t = 0; t < turns; t++) {
            const char *x = (const char *)job.x.data + (row + t * step) * row_bytes,
                       *dy = (const char *)job.dy.data + (row + t * step) * row_bytes;
            for (int c = 0; c < chunks; c++, loads++) {
                int at = first + c * stride;
                uint32_t bytes = min(vectors - at, THREADS) * 16, barrier = full + p.slot * 8, to = slots + p.slot * SLOT;
                if (loads >= S)
                    barrier_wait(empty + p.slot * 8, p.parity ^ 1);
                barrier_expect(barrier, 2 * bytes);
                bulk_load(to, x + (int64_t)at * 16, bytes, barrier);
                bulk_load(to + THREADS * 16, dy + (int64_t)at * 16, bytes, barrier);
                p.next();
            }
        }
    }

    /* Vector i of this thread: its place in the row. */
    __device__ __forceinline__ int column(int i) const
    {
        return first + i * stride + threadIdx.x;
    }

    __device__ __forceinline__ float rstd_of_turn(int t) const
    {
        return t < turns ? *row_at<const float>(job.rstd, {{row + t * step, 0, 0, 0}, true}, 4) : 0.0f;
    }

    __device__ __forceinline__ void get(const Place &p, uint4 &x, uint4 &dy) const
    {
        uint32_t at = slots + p.slot * SLOT + threadIdx.x * 16;
        x = shared_load16(at), dy = shared_load16(at + THREADS * 16);
    }

    __device__ __forceinline__ uint32_t weight_slot(int i, int c) const
    {
        return slots + S * SLOT + ((i * V + c) * THREADS + (int)threadIdx.x * 4) * 4;
    }

    __device__ __forceinline__ void weights(int i, float *to) const
    {
        if (W_SHARED) {
#pragma unroll
            for (int c = 0; c < V; c += 4)
                unpack<SKR_F32>(shared_load16(weight_slot(i, c)), to + c);
        } else {
            uint4 g = w[W_SHARED ? 0 : i];
            opaque(g); /* or the compiler keeps the weights as f32 */
            unpack<T>(g, to);
        }
    }

    /* The sum of dy * w * x; where rstd is 0 the sum of squares overflowed and this one may: over h then. */
    __device__ __forceinline__ void add_up(Place &p, float rstd, float (&sum)[1]) const
    {
        float dot[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        bool over_h = rstd == 0.0f;
#pragma unroll
        for (int i = 0; i < P; i++) {
            if (i >= chunks)
                continue;
            barrier_wait(full + p.slot * 8, p.parity);
            if (column(i) < vectors) {
                uint4 x, dy;
                float fx[V], fdy[V], fw[V];
                get(p, x, dy);
                unpack<T>(x, fx), unpack<T>(dy, fdy), weights(i, fw);
                if (over_h)
#pragma unroll
                    for (int c = 0; c < V; c++)
                        fx[c] *= rstd;
#pragma unroll
                for (int c = 0; c < V; c++)
                    dot[c & 3] = __fmaf_rn(fdy[c] * fw[c], fx[c], dot[c & 3]);
            }
            p.next();
        }
        sum[0] = (dot[0] + dot[1]) + (dot[2] + dot[3]);
    }

    /* h = x * rstd; dx = rstd * (g - h * mean(g * h)); dw += dy * h. Gives the slots back. */
    __device__ __forceinline__ void finish(Place &p, int t, float rstd, float sum)
    {
        float mean = __fdiv_rn(sum, (float)job.n);
        if (rstd != 0.0f)
            mean *= rstd;
        char *dx = (char *)job.dx.data + (row + t * step) * row_bytes;
#pragma unroll
        for (int i = 0; i < P; i++) {
            if (i >= chunks)
                continue;
            bool in = column(i) < vectors;
            if (in) {
                uint4 x, dy;
                float fx[V], fdy[V], fw[V];
                get(p, x, dy);
                unpack<T>(x, fx), unpack<T>(dy, fdy), weights(i, fw);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float h = fx[c] * rstd;
                    fw[c] = rstd * __fmaf_rn(-h, mean, fdy[c] * fw[c]);
                    dw[i][c] = __fmaf_rn(fdy[c], h, dw[i][c]);
                }
                if (job.dx.data)
                    store16_once(dx + (int64_t)column(i) * 16, pack<T>(fw));
            }
            __syncwarp();
            if ((threadIdx.x & 31) == 0)
                barrier_arrive(empty + p.slot * 8);
            p.next();
        }
    }

    __device__ __forceinline__ void compute(Sums &sums)
    {
#pragma unroll
        for (int i = 0; i < P; i++) {
            float f[V];
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = dw[i][c] = 0.0f;
            if (column(i) < vectors)
                load_weight<V>(job.weight, job.weight_offset, (int64_t)column(i) * V, f);
            if (W_SHARED) {
#pragma unroll
                for (int c = 0; c < V; c += 4)
                    shared_store16(weight_slot(i, c), pack<SKR_F32>(f + c));
            } else {
                w[W_SHARED ? 0 : i] = pack<T>(f);
            }
        }
        Place read, done;
        float sum[1], rstd = 0.0f, next = rstd_of_turn(0);
        for (int t = AHEAD ? -1 : 0; t < turns; t++) { /* with AHEAD: sums of row t + 1, then row t */
            int ahead = t + AHEAD;
            float after = rstd_of_turn(ahead + 1);
            if (ahead < turns) {
                add_up(read, next, sum);
                sums.send(sum);
            }
            if (!AHEAD)
                rstd = next;
            if (t >= 0) {
                sums.receive(sum);
                finish(done, t, rstd, sum[0]);
            }
            rstd = next, next = after;
        }
        if (!job.dweight.data)
            return;
        float *out = (float *)job.head.workspace + (int64_t)sums.index() * job.n;
#pragma unroll
        for (int i = 0; i < P; i++)
            if (i < chunks && column(i) < vectors)
#pragma unroll
                for (int c = 0; c < V; c += 4)
                    *(uint4 *)(out + (int64_t)column(i) * V + c) = pack<SKR_F32>(dw[i] + c);
    }
};

#endif
