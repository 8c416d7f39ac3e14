/* rms_norm_backward_rows.cuh - rms_norm backward on rows that fit their owner, 16-byte accesses throughout.
 * SPDX-License-Identifier: Apache-2.0
 *
 * x and dy (of one type T) are read once, dx is written once. The problem is cut into n_parts parts, one block or cluster each, which walk
 * over their rows with a fixed stride, keep their columns' dweight sums in registers and write them once, as one row of the workspace
 * [n_parts / heads, heads, n] f32; a second kernel adds those rows in order. A part has rows of one head only.
 * Each thread copies its own vectors of the next STAGES rows to its own slots in shared memory, so that bytes are always under way. */
#ifndef SKR_RMS_NORM_BACKWARD_ROWS_CUH
#define SKR_RMS_NORM_BACKWARD_ROWS_CUH

#include "rms_norm_rows.cuh"

template <int T, class Owner, int VPT, int STAGES> struct rms_norm_backward {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes, THREADS = Owner::threads;
    static constexpr bool W_SHARED = VPT * V > 16; /* weights in shared memory, not in registers */

    const skr_rms_norm_backward_job &job;
    row_slice<Owner> slice;
    int lane;
    int head, rows, turns, first, step; /* rows of this head: first, first + step, ... */
    uint32_t slots, rstd_slots, weight_slots, dres_slots;
    int dres_bytes;
    float w[W_SHARED ? 1 : VPT][V];
    float dw[VPT][V];

    SKR_DEVICE void run(const skr_rms_norm_backward_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        extern __shared__ __align__(16) unsigned char dynamic[];
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        rms_norm_backward k(job, owner, shared_address(dynamic));
        k.walk(owner);
        if (job.dweight.data)
            k.write_part(owner, (float *)dynamic);
    }

    __device__ __forceinline__ rms_norm_backward(const skr_rms_norm_backward_job &j, const Owner &owner, uint32_t dynamic) : job(j)
    {
        slice = row_slice<Owner>::template of<V>(owner, j.n);
        lane = threadIdx.x % L;
        int part = owner.index();
        head = param_row(j.heads, part);
        int heads = (int)j.heads, sub = part / heads, subs = (int)j.n_parts / heads;
        rows = (int)j.rows.m / heads;
        first = sub * Owner::groups + threadIdx.x / L;
        step = subs * Owner::groups;
        turns = (rows - sub * Owner::groups + step - 1) / step;
        slots = dynamic + threadIdx.x * 16;
        rstd_slots = dynamic + STAGES * 2 * VPT * THREADS * 16 + threadIdx.x * 4;
        weight_slots = dynamic + STAGES * THREADS * (2 * VPT * 16 + 4) + threadIdx.x * 16;
        dres_bytes = V * skr_type_bytes(j.dres.type);
        dres_slots = dynamic + STAGES * THREADS * (2 * VPT * 16 + 4) + (W_SHARED ? VPT * V * 4 * THREADS : 0) + threadIdx.x * dres_bytes;
    }

    __device__ __forceinline__ int row_of(int k) const { return k * (int)job.heads + head; }
    __device__ __forceinline__ bool inside(int k) const { return k < rows; }
    __device__ __forceinline__ int column(int i) const { return (slice.first + i * L + lane) * V; }

    __device__ __forceinline__ char *at(const skr_rows &t, int row, int bytes) const
    {
        return row_at<char>(job.rows, t, row, bytes) + column(0) * bytes;
    }

    __device__ __forceinline__ uint32_t slot(int stage, int which, int i) const { return slots + ((stage * 2 + which) * VPT + i) * THREADS * 16; }
    __device__ __forceinline__ uint32_t dres_slot(int stage, int i) const { return dres_slots + (stage * VPT + i) * THREADS * dres_bytes; }

    __device__ __forceinline__ void copy(int k, int stage, int dres_stage) const
    {
        if (inside(k)) {
            int row = row_of(k);
            const char *x = at(job.x, row, skr_elem<T>::bytes), *dy = at(job.dy, row, skr_elem<T>::bytes);
#pragma unroll
            for (int i = 0; i < VPT; i++)
                if (i < slice.valid) {
                    copy_async16(slot(stage, 0, i), x + i * L * 16);
                    copy_async16(slot(stage, 1, i), dy + i * L * 16);
                }
            if (job.rstd.data)
                asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(rstd_slots + stage * THREADS * 4),
                             "l"(row_at<char>(job.rows, job.rstd, row, 4))
                             : "memory");
            if (job.dres.data) {
                const char *d = at(job.dres, row, skr_type_bytes(job.dres.type));
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
                unpack<SKR_F32>(shared_load16(weight_slots + (i * V + c) * 4 * THREADS), to + c);
        } else {
#pragma unroll
            for (int c = 0; c < V; c++)
                to[c] = w[W_SHARED ? 0 : i][c];
        }
    }

    __device__ __forceinline__ void walk(Owner &owner)
    {
#pragma unroll
        for (int s = 0; s < STAGES; s++)
            copy(first + s * step, s, s);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = dw[i][c] = 0.0f;
            if (i < slice.valid)
                load_weight<V>(job.weight, job.weight_offset, head * job.weight.stride + column(i), f);
#pragma unroll
            for (int c = 0; c < V; c++) {
                if (W_SHARED)
                    asm volatile("st.shared.f32 [%0], %1;" ::"r"(weight_slots + (i * V + (c & ~3)) * 4 * THREADS + (c & 3) * 4), "f"(f[c]) : "memory");
                else
                    w[W_SHARED ? 0 : i][c] = f[c];
            }
        }
        owner.ready();
        int stage = 0, dres_stage = 0;
        for (; turns > 0; turns--, first += step) {
            copy_async_wait<STAGES - 1>();
            bool in = inside(first);
            uint4 x[VPT], dy[VPT];
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                x[i] = dy[i] = make_uint4(0, 0, 0, 0);
                if (in && i < slice.valid)
                    x[i] = shared_load16(slot(stage, 0, i)), dy[i] = shared_load16(slot(stage, 1, i));
            }
            float rstd = 0.0f;
            if (job.rstd.data && in)
                asm volatile("ld.shared.f32 %0, [%1];" : "=f"(rstd) : "r"(rstd_slots + stage * THREADS * 4) : "memory");

            float dot[2] = {0.0f, 0.0f}, square[2] = {0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                float fx[V], fdy[V], fw[V];
                unpack<T>(x[i], fx), unpack<T>(dy[i], fdy), weights(i, fw);
#pragma unroll
                for (int c = 0; c < V; c++)
                    dot[c & 1] = __fmaf_rn(fdy[c] * fw[c], fx[c], dot[c & 1]);
                if (!job.rstd.data)
#pragma unroll
                    for (int c = 0; c < V; c++)
                        square[c & 1] = __fmaf_rn(fx[c], fx[c], square[c & 1]);
            }
            int last = dres_stage == 0 ? STAGES : dres_stage - 1; /* the slot after the newest row's: dres is still needed below */
            copy(first + STAGES * step, stage, last);
            float sum = dot[0] + dot[1], sum_square = square[0] + square[1];
            if (job.rstd.data) {
                sum = owner.template reduce<skr_sum>(sum);
            } else {
                owner.sum2(sum, sum_square);
                rstd = rstd_of(sum_square, job.n, job.eps);
            }
            finish(in, sum, rstd, x, dy, dres_stage);
            stage = stage + 1 < STAGES ? stage + 1 : 0;
            dres_stage = dres_stage < STAGES ? dres_stage + 1 : 0;
        }
    }

    /* h = x * rstd; dx = rstd * (g - h * mean(g * h)) + dres; dw += dy * h */
    __device__ __forceinline__ void finish(bool in, float sum, float rstd, uint4 (&x)[VPT], uint4 (&dy)[VPT], int dres_stage)
    {
        int row = row_of(first);
        float mean = __fdiv_rn(sum, (float)job.n) * rstd;
        bool write = job.dx.data && in;
        int dx_bytes = V * skr_type_bytes(job.dx.type);
        char *dx = at(job.dx, row, skr_type_bytes(job.dx.type));
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float fx[V], fdy[V], fw[V];
            opaque(x[i]), opaque(dy[i]);
            unpack<T>(x[i], fx), unpack<T>(dy[i], fdy), weights(i, fw);
#pragma unroll
            for (int c = 0; c < V; c++) {
                float h = fx[c] * rstd;
                fw[c] = rstd * __fmaf_rn(-h, mean, fdy[c] * fw[c]);
                fx[c] = h;
            }
            if (job.round_before_weight)
#pragma unroll
                for (int c = 0; c < V; c++)
                    fx[c] = rounded<T>(fx[c]);
#pragma unroll
            for (int c = 0; c < V; c++)
                dw[i][c] = __fmaf_rn(fdy[c], fx[c], dw[i][c]);
            if (!write || i >= slice.valid)
                continue;
            if (job.dres.data) {
                float d[V];
                any_shared_load<V>(job.dres.type, dres_slot(dres_stage, i), d);
#pragma unroll
                for (int c = 0; c < V; c++)
                    fw[c] += d[c];
            }
            if (job.dx.type == T)
                store16_once(dx + i * L * 16, pack<T>(fw));
            else
                any_store<V>(job.dx.type, dx + i * L * dx_bytes, fw);
        }
    }

    /* One row of the workspace for this part. */
    __device__ __forceinline__ void write_part(Owner &owner, float *shared)
    {
        float *out = (float *)job.head.workspace + (int64_t)owner.index() * job.n;
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
    }
};

#endif
