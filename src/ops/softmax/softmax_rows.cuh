/* softmax_rows.cuh - softmax forward on rows that fit the registers of their owner: one read, one write, 16-byte
 * accesses. SPDX-License-Identifier: Apache-2.0
 *
 * softmax_plain: x and y of one type, softmax itself. softmax_full: also the logarithm, masks, y of another type.
 * A warp takes its exponentials against its own maximum; one exchange of (maximum, sum) pairs then tells what brings
 * them to the row's. So there is one barrier a row, and each exponential of the plain kernel is computed once: it stays
 * in a register from then on. An owner takes RPG rows and is done (docs/notes/rms_norm_cuda.md). */
#ifndef SKR_SOFTMAX_ROWS_CUH
#define SKR_SOFTMAX_ROWS_CUH

#include "../../cuda/rows.cuh"
#include "softmax.h"

/* 16 bytes of +infinity or -infinity. */
template <int T> SKR_DEVICE uint4 infinities(bool negative)
{
    uint32_t word = T == SKR_F32 ? 0x7f800000u : T == SKR_F16 ? 0x7c007c00u : 0x7f807f80u;
    if (negative)
        word |= T == SKR_F32 ? 0x80000000u : 0x80008000u;
    return make_uint4(word, word, word, word);
}

/* What exponents are taken against; a row (or a warp's part) of -infinity only gives zeros. */
SKR_DEVICE float against(float most)
{
    return most == skr_softmax_sums::none ? 0.0f : most;
}

/* 1 / sum, 0 for the empty sum. The sum is 0, NaN, or between 1 and the width. */
SKR_DEVICE float inverse(float sum)
{
    float r;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(sum));
    return sum == 0.0f ? 0.0f : r;
}

template <int T, class Owner, int VPT, int RPG> struct softmax_plain {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes, W = L < 32 ? L : 32;

    SKR_DEVICE void run(const skr_softmax_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        int m = (int)job.rows.m, first = (owner.index() * Owner::groups + threadIdx.x / L) * RPG;
        row_slice<Owner> slice = row_slice<Owner>::template of<V>(owner, job.n);
        int start = slice.first + threadIdx.x % L;
        float s[RPG][VPT][V];
        load(job, first, m, start, slice.valid, s);
        owner.ready();
        float most[RPG], sum[RPG];
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            most[r] = skr_softmax_sums::none;
#pragma unroll
            for (int i = 0; i < VPT; i++)
#pragma unroll
                for (int c = 0; c < V; c++) {
                    s[r][i][c] *= job.scale;
                    most[r] = fmaxf(most[r], s[r][i][c]);
                }
        }
#pragma unroll
        for (int r = 0; r < RPG; r++)
            most[r] = lanes_reduce<skr_max, W>(most[r]);
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            float top = against(most[r]), part[2] = {0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < VPT; i++)
#pragma unroll
                for (int c = 0; c < V; c++) {
                    s[r][i][c] = exp_fast(s[r][i][c] - top);
                    part[c & 1] += s[r][i][c];
                }
            sum[r] = part[0] + part[1];
        }
#pragma unroll
        for (int r = 0; r < RPG; r++)
            sum[r] = lanes_reduce<skr_sum, W>(sum[r]);
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            float top = most[r];
            owner.template join<skr_softmax_sums>(most[r], sum[r]);
            sum[r] = inverse(sum[r]) * skr_softmax_sums::factor(top, most[r]);
        }
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            char *p = row_at<char>(job.y, row_of(job.rows, first + r), skr_elem<T>::bytes) + start * 16;
#pragma unroll
            for (int i = 0; i < VPT; i++) {
#pragma unroll
                for (int c = 0; c < V; c++)
                    s[r][i][c] *= sum[r];
                if (first + r < m && i < slice.valid)
                    store16_once(p + i * L * 16, pack<T>(s[r][i]));
            }
        }
    }

    /* Beyond the row, what becomes -infinity when multiplied by scale. */
    SKR_DEVICE void load(const skr_softmax_job &job, int first, int m, int start, int valid, float (&s)[RPG][VPT][V])
    {
        uint4 raw[RPG][VPT], none = infinities<T>(!(job.scale < 0.0f));
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            const char *p = row_at<const char>(job.x, row_of(job.rows, first + r), skr_elem<T>::bytes) + start * 16;
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                raw[r][i] = none;
                if (first + r < m && i < valid)
                    raw[r][i] = load16_once(p + i * L * 16);
            }
        }
#pragma unroll
        for (int r = 0; r < RPG; r++)
#pragma unroll
            for (int i = 0; i < VPT; i++)
                unpack<T>(raw[r][i], s[r][i]);
    }
};

/* x of type T; mask and y of any. mask: V of its elements side by side and aligned, or one for the whole row. */
template <int T, class Owner, int VPT> struct softmax_full {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes, W = L < 32 ? L : 32;

    SKR_DEVICE void run(const skr_softmax_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        int row = owner.index() * Owner::groups + threadIdx.x / L;
        bool in = row < (int)job.rows.m;
        row_slice<Owner> slice = row_slice<Owner>::template of<V>(owner, job.n);
        int column = (slice.first + threadIdx.x % L) * V, valid = in ? slice.valid : 0;
        skr_row at = row_of(job.rows, in ? row : 0);
        float s[VPT][V];
        load(job, at, row, column, valid, s);
        owner.ready();
        float most = skr_softmax_sums::none;
#pragma unroll
        for (int i = 0; i < VPT; i++)
#pragma unroll
            for (int c = 0; c < V; c++)
                most = fmaxf(most, s[i][c]);
        most = lanes_reduce<skr_max, W>(most);
        float top = against(most), part[2] = {0.0f, 0.0f};
#pragma unroll
        for (int i = 0; i < VPT; i++)
#pragma unroll
            for (int c = 0; c < V; c++)
                part[c & 1] += exp_fast(s[i][c] - top);
        float sum = lanes_reduce<skr_sum, W>(part[0] + part[1]);
        owner.template join<skr_softmax_sums>(most, sum);
        top = against(most);
        float end = !job.log ? inverse(sum) : sum == 0.0f ? 0.0f : logf(sum);
        int bytes = skr_type_bytes(job.y.type);
        char *y = row_at<char>(job.y, at, bytes) + column * bytes;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            if (i >= valid)
                continue;
#pragma unroll
            for (int c = 0; c < V; c++)
                s[i][c] = job.log ? (s[i][c] - top) - end : exp_fast(s[i][c] - top) * end;
            any_store<V>(job.y.type, y + i * L * V * bytes, s[i]);
        }
    }

    SKR_DEVICE void load(const skr_softmax_job &job, const skr_row &at, int row, int column, int valid,
                         float (&s)[VPT][V])
    {
        uint4 raw[VPT];
        const char *p = row_at<const char>(job.x, at, skr_elem<T>::bytes) + column * skr_elem<T>::bytes;
#pragma unroll
        for (int i = 0; i < VPT; i++)
            if (i < valid)
                raw[i] = load16_once(p + i * L * 16);
        skr_span seen = {0, job.n};
        if (job.seen.how != SKR_SEEN_ALL)
            seen = skr_seen_of(&job.seen, job.n, row);
        int begin = (int)seen.begin, end = (int)seen.end, bytes = skr_type_bytes(job.mask.type);
        const char *mask = row_at<const char>(job.mask, at, bytes);
        float one = job.mask.data && job.mask.col_stride == 0 ? any_load1(job.mask.type, mask) : 0.0f;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            int first = column + i * L * V;
            if (i < valid) {
                float add[V];
                unpack<T>(raw[i], s[i]);
                if (job.mask.data && job.mask.col_stride != 0)
                    any_load<V>(job.mask.type, mask + first * bytes, add);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float f = job.mask.col_stride != 0 ? add[c] : one;
                    s[i][c] = job.mask.data ? __fmaf_rn(s[i][c], job.scale, f) : s[i][c] * job.scale;
                }
            }
#pragma unroll
            for (int c = 0; c < V; c++)
                if (i >= valid || first + c < begin || first + c >= end)
                    s[i][c] = skr_softmax_sums::none;
        }
    }
};

#endif
