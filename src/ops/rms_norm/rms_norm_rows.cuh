/* rms_norm_rows.cuh - rms_norm forward on rows that fit the registers of their owner, 16-byte accesses throughout.
 * SPDX-License-Identifier: Apache-2.0
 *
 * One read of each input, one write of each output. An owner (some lanes, a block, a cluster) holds a row as VPT
 * vectors a thread, joins the sum of squares, and writes. Blocks walk over the rows with the stride of the grid; which
 * block gets a row never changes its bits. Plain kernels (x and y of one type, weight, rstd) keep the packed input;
 * full ones (EXT) keep s in f32 and take every option at run time. How input reaches the registers: STAGES 0, AHEAD 0
 * loaded when needed: other blocks of the SM hide the latency STAGES 0, AHEAD 1   the next row is loaded into registers
 * before this one is reduced STAGES > 0          each thread copies its own vectors of the next rows to its own slots
 * in shared memory: no barrier, no registers HOLD keeps the weights in registers, as f32; without it each row reads
 * them again, from L1. */
#ifndef SKR_RMS_NORM_ROWS_CUH
#define SKR_RMS_NORM_ROWS_CUH

#include "../../cuda/device.cuh"
#include "rms_norm.h"

/* weight + offset of V columns; 1 + offset without a weight. */
template <int V> SKR_DEVICE void load_weight(const skr_param &p, float offset, int64_t at, float *w)
{
    if (p.data)
        any_load<V>(p.type, (const char *)p.data + at * skr_type_bytes(p.type), w);
#pragma unroll
    for (int c = 0; c < V; c++)
        w[c] = (p.data ? w[c] : 1.0f) + offset;
}

/* 1 / sqrt(mean + eps), every step rounded as IEEE says. */
SKR_DEVICE float rstd_of(float sum, int64_t n, float eps)
{
    return __frsqrt_rn(__fadd_rn(__fdiv_rn(sum, (float)n), eps));
}

template <class Owner> struct row_slice {
    int first, count; /* vectors of this block: first of the row, how many */
    int valid;        /* of this thread: vectors lane, lane + lanes, ... */

    template <int V> static __device__ __forceinline__ row_slice of(const Owner &owner, int64_t n)
    {
        row_slice s;
        int vectors = (int)(n / V);
        int share = vectors;
        if (owner.size() > 1) { /* whole groups of 128 columns: a quantisation block stays in one thread block */
            constexpr int unit = SKR_QUANT_GROUP / V;
            share = ((vectors + unit - 1) / unit + owner.size() - 1) / owner.size() * unit;
        }
        s.first = min(share * owner.rank(), vectors);
        s.count = min(share, vectors - s.first);
        int lane = threadIdx.x % Owner::lanes;
        s.valid = (s.count - lane + Owner::lanes - 1) / Owner::lanes;
        return s;
    }
};

/* ---------------------------------------------------------------- plain: x and y of type T, weight, offset, rstd */

template <int T, class Owner, int VPT, int RPG, int STAGES, bool AHEAD, bool HOLD> struct rms_norm_plain {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;

    const skr_rms_norm_job &job;
    row_slice<Owner> slice;
    int lane;
    int group, step; /* first row of this group, rows between its turns */
    uint32_t slots;
    float w[HOLD ? VPT : 1][V];

    SKR_DEVICE void run(const skr_rms_norm_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        extern __shared__ __align__(16) unsigned char dynamic[];
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        rms_norm_plain k(job, owner, shared_address(dynamic));
        k.walk(owner);
    }

    __device__ __forceinline__ rms_norm_plain(const skr_rms_norm_job &j, const Owner &owner, uint32_t dynamic) : job(j)
    {
        slice = row_slice<Owner>::template of<V>(owner, j.n);
        lane = threadIdx.x % L;
        group = (owner.index() * Owner::groups + threadIdx.x / L) * RPG;
        step = owner.count() * Owner::groups * RPG;
        slots = dynamic + threadIdx.x * 16;
    }

    __device__ __forceinline__ const char *input(int row) const
    {
        return row_at<const char>(job.x, row_of(job.rows, row), skr_elem<T>::bytes) + (slice.first + lane) * 16;
    }

    __device__ __forceinline__ void load(int first, uint4 (&raw)[RPG][VPT]) const
    {
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            const char *p = input(first + r);
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                raw[r][i] = make_uint4(0, 0, 0, 0);
                if (first + r < job.rows.m && i < slice.valid)
                    raw[r][i] = load16_once(p + i * L * 16);
            }
        }
    }

    __device__ __forceinline__ uint32_t slot(int stage, int i) const
    {
        return slots + (stage * VPT + i) * Owner::threads * 16;
    }

    __device__ __forceinline__ void copy(int row, int stage) const
    {
        if (row < job.rows.m) {
            const char *p = input(row);
#pragma unroll
            for (int i = 0; i < VPT; i++)
                if (i < slice.valid)
                    copy_async16(slot(stage, i), p + i * L * 16);
        }
        copy_async_commit();
    }

    __device__ __forceinline__ int64_t weight_at(int row, int i) const
    {
        return param_row(job.heads, row) * job.weight.stride + (slice.first + i * L + lane) * V;
    }

    __device__ __forceinline__ void hold_weight(int row)
    {
#pragma unroll
        for (int i = 0; i < VPT; i++)
            if (i < slice.valid)
                load_weight<V>(job.weight, job.weight_offset, weight_at(row, i), w[HOLD ? i : 0]);
    }

    __device__ __forceinline__ void finish(Owner &owner, int first, uint4 (&raw)[RPG][VPT])
    {
        float sum[RPG];
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                float f[V];
                unpack<T>(raw[r][i], f);
#pragma unroll
                for (int c = 0; c < V; c++)
                    part[c & 3] = __fmaf_rn(f[c], f[c], part[c & 3]);
            }
            sum[r] = (part[0] + part[1]) + (part[2] + part[3]);
        }
#pragma unroll
        for (int r = 0; r < RPG; r++)
            sum[r] = owner.template reduce<skr_sum>(sum[r]);
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            int row = first + r;
            float rstd = rstd_of(sum[r], job.n, job.eps);
            if (row >= job.rows.m)
                continue;
            skr_row at = row_of(job.rows, row);
            if (job.rstd.data && lane == 0 && owner.rank() == 0)
                *row_at<float>(job.rstd, at, 4) = rstd;
            char *p = row_at<char>(job.y, at, skr_elem<T>::bytes) + (slice.first + lane) * 16;
            if (HOLD && job.heads > 1)
                hold_weight(row);
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                if (i >= slice.valid)
                    continue;
                if (!HOLD)
                    load_weight<V>(job.weight, job.weight_offset, weight_at(row, i), w[0]);
                float f[V];
                opaque(raw[r][i]); /* or the compiler keeps the f32 values from the first pass: twice the registers */
                unpack<T>(raw[r][i], f);
#pragma unroll
                for (int c = 0; c < V; c++)
                    f[c] = f[c] * rstd * w[HOLD ? i : 0][c];
                store16_once(p + i * L * 16, pack<T>(f));
            }
        }
    }

    __device__ __forceinline__ void walk(Owner &owner)
    {
        int m = (int)job.rows.m, first = group;
        int turns =
            (m - owner.index() * Owner::groups * RPG + step - 1) / step; /* the same for all threads of the owner */
        uint4 raw[RPG][VPT];
        if constexpr (STAGES > 0) {
            static_assert(RPG == 1, "slots hold one row");
#pragma unroll
            for (int s = 0; s < STAGES; s++)
                copy(first + s * step, s);
            if (HOLD && job.heads == 1)
                hold_weight(0);
            owner.ready();
            int stage = 0;
            for (; turns > 0; turns--, first += step) {
                copy_async_wait<STAGES - 1>();
#pragma unroll
                for (int i = 0; i < VPT; i++)
                    raw[0][i] = i < slice.valid ? shared_load16(slot(stage, i)) : make_uint4(0, 0, 0, 0);
                copy(first + STAGES * step, stage);
                stage = stage + 1 < STAGES ? stage + 1 : 0;
                finish(owner, first, raw);
            }
        } else {
            load(first, raw);
            if (HOLD && job.heads == 1)
                hold_weight(0);
            owner.ready();
            while (turns > 0) {
                if constexpr (AHEAD) {
                    uint4 next[RPG][VPT];
                    load(first + step, next);
                    finish(owner, first, raw);
#pragma unroll
                    for (int r = 0; r < RPG; r++)
#pragma unroll
                        for (int i = 0; i < VPT; i++)
                            raw[r][i] = next[r][i];
                } else {
                    finish(owner, first, raw);
                    if (turns > 1)
                        load(first + step, raw);
                }
                turns--, first += step;
            }
        }
    }
};

#endif
