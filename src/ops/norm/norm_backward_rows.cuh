/* norm_backward_rows.cuh - rms_norm and layer_norm (CENTRE) backward on rows that fit their owner, 16-byte accesses
 * throughout. SPDX-License-Identifier: Apache-2.0
 *
 * x and dy (of one type T) are read once, dx is written once. The problem is cut into n_parts parts, one block or
 * cluster each, which walk over their rows with a fixed stride, keep their columns' dweight sums in registers and write
 * them once, as one row of the workspace [n_parts / heads, heads, n] f32; a second kernel adds those rows in order. A
 * part has rows of one head only. The sums of dbias, where it is wanted, are kept in each thread's own slots in shared
 * memory: registers would be taken from everybody. Each thread copies its own vectors of the next STAGES rows to its
 * own slots in shared memory, so that bytes are always under way.
 *
 * LEAN is the common case, with about half the instructions a row: the statistics are given, rows have one stride, the
 * same for x, dy and dx (of T), one weight, no dres, no dbias (layer_norm: with or without), no round_before_weight.
 * W_SHARED: weights in shared memory, not in registers. */
#ifndef SKR_NORM_BACKWARD_ROWS_CUH
#define SKR_NORM_BACKWARD_ROWS_CUH

#include "norm_rows.cuh"

template <bool CENTRE, int T, class Owner, int VPT, int STAGES, bool W_SHARED, bool LEAN> struct norm_backward {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes, THREADS = Owner::threads;
    /* Of wide rows with one stage, dy stays in its slots until the second pass, which refills each slot as it empties
     * it: fewer registers. */
    static constexpr bool LATE = STAGES == 1 && VPT * V > 16;
    static constexpr int KEPT = LATE ? 1 : VPT;
    /* Few sums of dbias stay in registers after all. */
    static constexpr bool DB_HELD = LEAN && CENTRE && VPT * V <= 16;
    /* Shared memory: x and dy of each stage, rstd (and mean) of each stage, weights, sums of dbias, dres of each stage
     * and one more. */
    static constexpr int STATS = CENTRE ? 2 : 1, RSTD_AT = STAGES * 2 * VPT * THREADS * 16,
                         WEIGHT_AT = RSTD_AT + STAGES * STATS * THREADS * 4,
                         DBIAS_AT = WEIGHT_AT + (W_SHARED ? VPT * V * 4 * THREADS : 0);

    const skr_norm_backward_job &job;
    row_slice<Owner> slice;
    int first_column;
    int head, rows, first,
        step; /* rows of this head: first, first + step, ...; first is that of the block's first group */
    uint32_t slots, dres_slots;
    int dres_bytes;
    float w[W_SHARED ? 1 : VPT][V];
    float dw[VPT][V], db[DB_HELD ? VPT : 1][V];

    SKR_DEVICE void run(const skr_norm_backward_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        extern __shared__ __align__(128) unsigned char dynamic[];
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        norm_backward k(job, owner, shared_address(dynamic));
        k.walk(owner);
        float *out = (float *)job.head.workspace + (int64_t)owner.index() * job.n;
        if (job.dweight.data) {
            k.write_part(out, (float *)dynamic);
            out += job.n_parts * job.n;
        }
        if (k.dbias()) {
            k.fetch_dbias();
            k.write_part(out, (float *)dynamic);
        }
    }

    __device__ __forceinline__ norm_backward(const skr_norm_backward_job &j, const Owner &owner, uint32_t dynamic)
        : job(j)
    {
        slice = row_slice<Owner>::template of<V>(owner, j.n);
        first_column = (slice.first + threadIdx.x % L) * V;
        int part = owner.index();
        head = param_row(j.heads, part);
        int heads = (int)j.heads, sub = part / heads, subs = (int)j.n_parts / heads;
        rows = (int)j.rows.m / heads;
        first = sub * Owner::groups;
        step = subs * Owner::groups;
        slots = dynamic + threadIdx.x * 16;
        dres_bytes = V * skr_type_bytes(j.dres.type);
        dres_slots =
            dynamic + DBIAS_AT + ((!LEAN && j.dbias.data) ? VPT * V * 4 * THREADS : 0) + threadIdx.x * dres_bytes;
    }

    __device__ __forceinline__ bool rstd() const
    {
        return LEAN || job.rstd.data;
    }
    __device__ __forceinline__ bool dres() const
    {
        return !LEAN && job.dres.data;
    }
    __device__ __forceinline__ bool dbias() const
    {
        return (!LEAN || CENTRE) && job.dbias.data;
    }
    __device__ __forceinline__ skr_row row(int k) const
    {
        return LEAN ? skr_row{{k, 0, 0, 0}, true} : row_of(job.rows, k * (int)job.heads + head);
    }
    __device__ __forceinline__ int mine(int k) const
    {
        return k + (Owner::groups > 1 ? threadIdx.x / L : 0);
    }
    __device__ __forceinline__ int column(int i) const
    {
        return first_column + i * L * V;
    }

    __device__ __forceinline__ char *at(const skr_rows &t, const skr_row &index, int bytes) const
    {
        if (LEAN) /* x, dy and dx have one stride */
            return (char *)t.data + (index.at[0] * job.x.stride[0] + column(0)) * skr_elem<T>::bytes;
        return row_at<char>(t, index, bytes) + column(0) * bytes;
    }

    __device__ __forceinline__ uint32_t slot(int stage, int which, int i) const
    {
        return slots + ((stage * 2 + which) * VPT + i) * THREADS * 16;
    }
    /* which: 0 rstd, 1 mean */
    __device__ __forceinline__ uint32_t stats_slot(int stage, int which) const
    {
        return slots + RSTD_AT - threadIdx.x * 12 + (stage * STATS + which) * THREADS * 4;
    }
    __device__ __forceinline__ uint32_t weight_slot(int i, int c) const
    {
        return slots + WEIGHT_AT + (i * V + c) * 4 * THREADS;
    }
    __device__ __forceinline__ uint32_t dbias_slot(int i, int c) const
    {
        return slots + DBIAS_AT + (i * V + c) * 4 * THREADS;
    }
    __device__ __forceinline__ uint32_t dres_slot(int stage, int i) const
    {
        return dres_slots + (stage * VPT + i) * THREADS * dres_bytes;
    }

    template <bool DY> __device__ __forceinline__ void copy(int k, int stage, int dres_stage) const
    {
        if (mine(k) < rows) {
            skr_row index = row(mine(k));
            const char *x = at(job.x, index, skr_elem<T>::bytes), *dy = at(job.dy, index, skr_elem<T>::bytes);
            asm volatile("" : "+l"(x), "+l"(dy)); /* one address each, and constants added to it */
#pragma unroll
            for (int i = 0; i < VPT; i++)
                if (i < slice.valid) {
                    copy_async16(slot(stage, 0, i), x + i * L * 16);
                    if (DY)
                        copy_async16(slot(stage, 1, i), dy + i * L * 16);
                }
            if (rstd()) {
                copy_async4(stats_slot(stage, 0), row_at<char>(job.rstd, index, 4));
                if (CENTRE)
                    copy_async4(stats_slot(stage, CENTRE), row_at<char>(job.mean, index, 4));
            }
            if (dres()) {
                const char *d = at(job.dres, index, skr_type_bytes(job.dres.type));
#pragma unroll
                for (int i = 0; i < VPT; i++)
                    if (i < slice.valid)
                        any_copy_async<V>(job.dres.type, dres_slot(dres_stage, i), d + i * L * dres_bytes);
            }
        }
        copy_async_commit();
    }

    __device__ __forceinline__ void weights(int i, float *to) const
    {
        if (W_SHARED) {
#pragma unroll
            for (int c = 0; c < V; c += 4)
                unpack<SKR_F32>(shared_load16(weight_slot(i, c)), to + c);
        } else {
#pragma unroll
            for (int c = 0; c < V; c++)
                to[c] = w[W_SHARED ? 0 : i][c];
        }
    }

    __device__ __forceinline__ void add_dbias(int i, const float *dy)
    {
        if constexpr (DB_HELD) {
#pragma unroll
            for (int c = 0; c < V; c++)
                db[i][c] += dy[c];
        } else {
#pragma unroll
            for (int c = 0; c < V; c += 4) {
                float sum[4];
                unpack<SKR_F32>(shared_load16(dbias_slot(i, c)), sum);
                sum[0] += dy[c], sum[1] += dy[c + 1], sum[2] += dy[c + 2], sum[3] += dy[c + 3];
                shared_store16(dbias_slot(i, c), pack<SKR_F32>(sum));
            }
        }
    }

    /* dweight has been written: its registers take the sums of dbias. */
    __device__ __forceinline__ void fetch_dbias()
    {
#pragma unroll
        for (int i = 0; i < VPT; i++)
#pragma unroll
            for (int c = 0; c < V; c += 4)
                if (DB_HELD)
                    unpack<SKR_F32>(pack<SKR_F32>(db[DB_HELD ? i : 0] + c), dw[i] + c);
                else
                    unpack<SKR_F32>(shared_load16(dbias_slot(i, c)), dw[i] + c);
    }

    __device__ __forceinline__ void walk(Owner &owner)
    {
#pragma unroll
        for (int s = 0; s < STAGES; s++)
            copy<true>(first + s * step, s, s);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = dw[i][c] = db[DB_HELD ? i : 0][c] = 0.0f;
            if (i < slice.valid)
                load_weight<V>(job.weight, job.weight_offset, head * job.weight.stride + column(i), f);
#pragma unroll
            for (int c = 0; c < V; c += 4) {
                if (W_SHARED)
                    shared_store16(weight_slot(i, c), pack<SKR_F32>(f + c));
                if (!DB_HELD && dbias())
                    shared_store16(dbias_slot(i, c), make_uint4(0, 0, 0, 0));
            }
            if (!W_SHARED)
#pragma unroll
                for (int c = 0; c < V; c++)
                    w[W_SHARED ? 0 : i][c] = f[c];
        }
        owner.ready();
        float inverse = __frcp_rn((float)job.n);
        int stage = 0, dres_stage = 0;
        for (; first < rows; first += step) { /* the same for all threads of a block */
            copy_async_wait<STAGES - 1>();
            bool in = mine(first) < rows;
            uint4 x[VPT], dy[KEPT];
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                x[i] = fetch(in, stage, 0, i);
                if (!LATE)
                    dy[i < KEPT ? i : 0] = fetch(in, stage, 1, i);
            }
            norm_stats stats = {0.0f, 0.0f, 0.0f, 0.0f};
            if (rstd() && in) {
                stats.rstd = shared_load4(stats_slot(stage, 0));
                if (CENTRE)
                    stats.mean = shared_load4(stats_slot(stage, CENTRE));
            }
            if constexpr (CENTRE && !LEAN)
                if (!rstd())
                    stats = row_stats<CENTRE, V, VPT>(owner, job.n, job.eps, slice.valid,
                                                      [&](int i, float *f) { unpack<T>(x[i], f); });

            /* Sums of g * (x - mean), and of g (CENTRE) or of the squares of x. */
            float dot[2] = {0.0f, 0.0f}, other[2] = {0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                float fx[V], fdy[V], fw[V];
                unpack<T>(x[i], fx), unpack<T>(LATE ? fetch(in, stage, 1, i) : dy[i < KEPT ? i : 0], fdy),
                    weights(i, fw);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float g = fdy[c] * fw[c];
                    dot[c & 1] = __fmaf_rn(g, CENTRE ? fx[c] - stats.mean : fx[c], dot[c & 1]);
                    if (CENTRE)
                        other[c & 1] += g;
                }
                if (!CENTRE && !rstd())
#pragma unroll
                    for (int c = 0; c < V; c++)
                        other[c & 1] = __fmaf_rn(fx[c], fx[c], other[c & 1]);
            }
            int last = dres_stage == 0
                           ? STAGES
                           : dres_stage - 1; /* the slot after the newest row's: dres is still needed below */
            copy<!LATE>(first + STAGES * step, stage, last);
            float sum = dot[0] + dot[1], second = other[0] + other[1];
            if (!CENTRE && rstd())
                sum = owner.template reduce<skr_sum>(sum);
            else
                owner.template reduce2<skr_sum, skr_sum>(sum, second);
            if (CENTRE && !LEAN) /* an infinity is in sum already, and 0 * inf would be NaN */
                sum = __fmaf_rn(-stats.low, fabsf(second) <= 3.402823466e38f ? second : 0.0f, sum);
            else if (!CENTRE && !rstd())
                stats.rstd = rstd_of(second, job.n, job.eps);
            float mean = sum * inverse * stats.rstd;
            /* The sum of squares overflowed, the other sum may have: take it over h. Rows that share a warp do so
             * together. */
            bool over_h = in && stats.rstd == 0.0f;
            if (L < 32 ? __any_sync(0xffffffffu, over_h) : over_h) {
                float again = owner.template reduce<skr_sum>(dot_h(in, stats, x, dy)) * inverse;
                mean = over_h ? again : mean;
            }
            finish(in, mean, CENTRE ? second * inverse : 0.0f, stats, x, dy, dres_stage);
            stage = stage + 1 < STAGES ? stage + 1 : 0;
            dres_stage = dres_stage < STAGES ? dres_stage + 1 : 0;
        }
    }

    /* A vector of x (which: 0) or dy (1). */
    __device__ __forceinline__ uint4 fetch(bool in, int stage, int which, int i) const
    {
        return in && i < slice.valid ? shared_load16(slot(stage, which, i)) : make_uint4(0, 0, 0, 0);
    }

    __device__ __forceinline__ float dot_h(bool in, const norm_stats &stats, const uint4 (&x)[VPT],
                                           const uint4 (&dy)[KEPT]) const
    {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float fx[V], fdy[V], fw[V];
            unpack<T>(x[i], fx), unpack<T>(LATE ? fetch(in, 0, 1, i) : dy[i < KEPT ? i : 0], fdy), weights(i, fw);
#pragma unroll
            for (int c = 0; c < V; c++)
                sum = __fmaf_rn(fdy[c] * fw[c], normal<CENTRE>(stats, fx[c]), sum);
        }
        return sum;
    }

    /* dx = rstd * (g - mean(g) - h * mean(g * h)) + dres, mean(g) only with CENTRE; dw += dy * h; db += dy */
    __device__ __forceinline__ void finish(bool in, float mean, float mean_g, const norm_stats &stats, uint4 (&x)[VPT],
                                           uint4 (&dy)[KEPT], int dres_stage)
    {
        bool more = LATE && mine(first + step) < rows;
        const char *next = at(job.dy, row(mine(first + step)), skr_elem<T>::bytes);
        bool write = job.dx.data && in;
        int dx_bytes = V * skr_type_bytes(job.dx.type);
        char *dx = at(job.dx, row(mine(first)), skr_type_bytes(job.dx.type));
        asm volatile("" : "+l"(dx));
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float fx[V], fdy[V], fw[V];
            if (LATE) {
                dy[0] = fetch(in, 0, 1, i);
                if (more && i < slice.valid)
                    copy_async16(slot(0, 1, i), next + i * L * 16);
            }
            opaque(x[i]), opaque(dy[i < KEPT ? i : 0]);
            unpack<T>(x[i], fx), unpack<T>(dy[i < KEPT ? i : 0], fdy), weights(i, fw);
#pragma unroll
            for (int c = 0; c < V; c++) {
                float h = normal<CENTRE>(stats, fx[c]), g = fdy[c] * fw[c];
                fw[c] = stats.rstd * __fmaf_rn(-h, mean, CENTRE ? g - mean_g : g);
                fx[c] = h;
            }
            if (!LEAN && job.round_before_weight)
#pragma unroll
                for (int c = 0; c < V; c++)
                    fx[c] = rounded<T>(fx[c]);
#pragma unroll
            for (int c = 0; c < V; c++)
                dw[i][c] = __fmaf_rn(fdy[c], fx[c], dw[i][c]);
            if (dbias())
                add_dbias(i, fdy);
            if (!write || i >= slice.valid)
                continue;
            if (dres()) {
                float d[V];
                any_shared_load<V>(job.dres.type, dres_slot(dres_stage, i), d);
#pragma unroll
                for (int c = 0; c < V; c++)
                    fw[c] += d[c];
            }
            if (LEAN || job.dx.type == T)
                store16_once(dx + i * L * 16, pack<T>(fw));
            else
                any_store<V>(job.dx.type, dx + i * L * dx_bytes, fw);
        }
        if (LATE)
            copy_async_commit();
    }

    /* One row of the workspace for this part, from the sums in dw. */
    __device__ __forceinline__ void write_part(float *out, float *shared)
    {
        if (Owner::groups == 1) {
#pragma unroll
            for (int i = 0; i < VPT; i++)
                if (i < slice.valid)
#pragma unroll
                    for (int c = 0; c < V; c += 4)
                        *(uint4 *)(out + column(i) + c) = pack<SKR_F32>(dw[i] + c);
            return;
        }
        copy_async_wait<0>();
        __syncthreads(); /* the slots are free */
        int n = (int)job.n;
#pragma unroll
        for (int i = 0; i < VPT; i++)
            if (i < slice.valid)
#pragma unroll
                for (int c = 0; c < V; c += 4)
                    *(uint4 *)(shared + threadIdx.x / L * n + column(i) + c) = pack<SKR_F32>(dw[i] + c);
        __syncthreads();
        for (int c = threadIdx.x; c < n; c += THREADS) {
            float sum = shared[c];
            for (int g = 1; g < Owner::groups; g++)
                sum += shared[g * n + c];
            out[c] = sum;
        }
        __syncthreads(); /* the next sums may come */
    }
};

#endif
