/* norm_backward_ring.cuh - rms_norm and layer_norm (CENTRE) backward for wide rows: bulk copies bring x and dy through
 * a ring in shared memory. SPDX-License-Identifier: Apache-2.0
 *
 * The lean case of norm_backward_rows.cuh with a weight of x's type (or none) and no offset. A row belongs to a block
 * or a cluster, which is one part. Chunks of a vector a thread go to the blocks in turn, at most P to each; a slot (of
 * S) of the ring holds one chunk of x and of dy. In each block one warp more than compute only starts copies, another
 * adds up sums. AHEAD: the sums of row k + 1 are taken before row k is written, so that the exchange of row k's sums
 * costs nothing; both rows stay in their slots meanwhile. Weights stay packed in registers (W_SHARED: in shared memory)
 * beside the sums of the columns' dweight and, of layer_norm, dbias. */
#ifndef SKR_NORM_BACKWARD_RING_CUH
#define SKR_NORM_BACKWARD_RING_CUH

#include "../../cuda/ring.cuh"
#include "norm_rows.cuh"

template <bool CENTRE, int T, int THREADS, bool CLUSTER, int P, int S, bool AHEAD, bool W_SHARED>
struct norm_backward_ring {
    static constexpr int SUMS = CENTRE ? 2 : 1; /* of g * h and, with CENTRE, of g */
    using Sums = split_sum<THREADS, CLUSTER, SUMS>;
    using Place = ring_place<S>;
    static constexpr int V = skr_elem<T>::vec, SLOT = 2 * THREADS * 16;
    static_assert((AHEAD ? 2 : 1) * P <= S, "the rows that are in use fit the ring");
    struct shared {
        typename Sums::shared sums;
        ring_shared<S> ring;
    };

    const skr_norm_backward_job &job;
    int vectors, chunks; /* of the row; of this block */
    int first, stride;   /* vector where this block's first chunk starts; from there to the next */
    int row, step, turns;
    int64_t row_bytes; /* from one row to the next: of x, dy and dx */
    float inverse;     /* 1 / n */
    uint32_t slots, full, empty;
    uint4 w[W_SHARED ? 1 : P];
    float dw[P][V], db[CENTRE ? P : 1][V];

    SKR_DEVICE void run(const skr_norm_backward_job &job)
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
        norm_backward_ring k(job, sums, memory, shared_address(dynamic));
        if (CLUSTER)
            cluster_wait();
        if (threadIdx.x < THREADS)
            k.compute(sums);
        else if (threadIdx.x >= THREADS + 32)
            sums.collect(k.turns);
        else if (threadIdx.x == THREADS)
            k.fill();
    }

    __device__ __forceinline__ norm_backward_ring(const skr_norm_backward_job &j, const Sums &sums, shared &memory,
                                                  uint32_t dynamic)
        : job(j)
    {
        vectors = (int)(j.n / V);
        first = (int)sums.my_rank * THREADS, stride = (int)sums.my_size * THREADS;
        chunks = max(0, (vectors - first + stride - 1) / stride);
        row = sums.index(), step = sums.count();
        turns = ((int)j.rows.m - row + step - 1) / step;
        row_bytes = j.x.stride[0] * skr_elem<T>::bytes;
        inverse = __frcp_rn((float)j.n);
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
                uint32_t bytes = min(vectors - at, THREADS) * 16, barrier = full + p.slot * 8,
                         to = slots + p.slot * SLOT;
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

    __device__ __forceinline__ norm_stats stats_of(int t) const
    {
        norm_stats s = {0.0f, 0.0f, 0.0f, 0.0f};
        if (t < turns) {
            skr_row at = {{row + t * step, 0, 0, 0}, true};
            s.rstd = *row_at<const float>(job.rstd, at, 4);
            if (CENTRE)
                s.mean = *row_at<const float>(job.mean, at, 4);
        }
        return s;
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

    /* The sums of g * (x - mean) and of g; where rstd is 0 the sum of squares overflowed and the first may: over h
     * then. */
    __device__ __forceinline__ void add_up(Place &p, const norm_stats &stats, float (&sum)[SUMS]) const
    {
        float dot[4] = {0.0f, 0.0f, 0.0f, 0.0f}, all[2] = {0.0f, 0.0f};
        bool over_h = stats.rstd == 0.0f;
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
#pragma unroll
                for (int c = 0; CENTRE && c < V; c++)
                    fx[c] -= stats.mean;
                if (over_h)
#pragma unroll
                    for (int c = 0; c < V; c++)
                        fx[c] *= stats.rstd;
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float g = fdy[c] * fw[c];
                    dot[c & 3] = __fmaf_rn(g, fx[c], dot[c & 3]);
                    if (CENTRE)
                        all[c & 1] += g;
                }
            }
            p.next();
        }
        sum[0] = (dot[0] + dot[1]) + (dot[2] + dot[3]);
        if (CENTRE)
            sum[SUMS - 1] = all[0] + all[1];
    }

    /* dx = rstd * (g - mean(g) - h * mean(g * h)), mean(g) only with CENTRE; dw += dy * h; db += dy. Gives the slots
     * back. */
    __device__ __forceinline__ void finish(Place &p, int t, const norm_stats &stats, const float (&sum)[SUMS])
    {
        float mean = sum[0] * inverse, mean_g = CENTRE ? sum[SUMS - 1] * inverse : 0.0f;
        if (stats.rstd != 0.0f)
            mean *= stats.rstd;
        char *dx = (char *)job.dx.data + (row + t * step) * row_bytes;
#pragma unroll
        for (int i = 0; i < P; i++) {
            if (i >= chunks)
                continue;
            if (column(i) < vectors) {
                uint4 x, dy;
                float fx[V], fdy[V], fw[V];
                get(p, x, dy);
                unpack<T>(x, fx), unpack<T>(dy, fdy), weights(i, fw);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float h = normal<CENTRE>(stats, fx[c]), g = fdy[c] * fw[c];
                    fw[c] = stats.rstd * __fmaf_rn(-h, mean, CENTRE ? g - mean_g : g);
                    dw[i][c] = __fmaf_rn(fdy[c], h, dw[i][c]);
                    if (CENTRE)
                        db[CENTRE ? i : 0][c] += fdy[c];
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
                f[c] = dw[i][c] = db[CENTRE ? i : 0][c] = 0.0f;
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
        float sum[SUMS];
        norm_stats stats = {0.0f, 0.0f, 0.0f, 0.0f}, next = stats_of(0);
        for (int t = AHEAD ? -1 : 0; t < turns; t++) { /* with AHEAD: sums of row t + 1, then row t */
            int ahead = t + AHEAD;
            norm_stats after = stats_of(ahead + 1);
            if (ahead < turns) {
                add_up(read, next, sum);
                sums.send(sum);
            }
            if (!AHEAD)
                stats = next;
            if (t >= 0) {
                sums.receive(sum);
                finish(done, t, stats, sum);
            }
            stats = next, next = after;
        }
        float *out = (float *)job.head.workspace + (int64_t)sums.index() * job.n;
        if (job.dweight.data) {
            write_part(out, dw);
            out += job.n_parts * job.n;
        }
        if constexpr (CENTRE)
            if (job.dbias.data)
                write_part(out, db);
    }

    /* One row of the workspace for this part. */
    __device__ __forceinline__ void write_part(float *out, const float (&sum)[P][V]) const
    {
#pragma unroll
        for (int i = 0; i < P; i++)
            if (i < chunks && column(i) < vectors)
#pragma unroll
                for (int c = 0; c < V; c += 4)
                    *(uint4 *)(out + (int64_t)column(i) * V + c) = pack<SKR_F32>(sum[i] + c);
    }
};

#endif
