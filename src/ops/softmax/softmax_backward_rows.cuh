/* softmax_backward_rows.cuh - softmax_backward on rows that fit the registers of their owner, dy, y and dx of one type.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Both inputs stay packed from the first pass, the sum, to the second, the result. */
#ifndef SKR_SOFTMAX_BACKWARD_ROWS_CUH
#define SKR_SOFTMAX_BACKWARD_ROWS_CUH

#include "../../cuda/exponent.cuh"
#include "../../cuda/rows.cuh"
#include "softmax.h"

template <int T, class Owner, int VPT, int RPG> struct softmax_backward_plain {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;

    SKR_DEVICE void run(const skr_softmax_backward_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        int m = (int)job.rows.m, first = (owner.index() * Owner::groups + threadIdx.x / L) * RPG;
        row_slice<Owner> slice = row_slice<Owner>::template of<V>(owner, job.n);
        int start = slice.first + threadIdx.x % L;
        uint4 dy[RPG][VPT], y[RPG][VPT];
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            skr_row at = row_of(job.rows, first + r);
            get(job.dy, at, first + r < m, start, slice.valid, dy[r]);
            get(job.y, at, first + r < m, start, slice.valid, y[r]);
        }
        owner.ready();
        float sum[RPG];
#pragma unroll
        for (int r = 0; r < RPG; r++) {
            float part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                float d[V], p[V];
                unpack<T>(dy[r][i], d), unpack<T>(y[r][i], p);
#pragma unroll
                for (int c = 0; c < V; c++)
                    part[c & 3] = job.log ? part[c & 3] + d[c] : __fmaf_rn(d[c], p[c], part[c & 3]);
            }
            sum[r] = (part[0] + part[1]) + (part[2] + part[3]);
        }
#pragma unroll
        for (int r = 0; r < RPG; r++)
            sum[r] = owner.template reduce<skr_sum>(sum[r]);
#pragma unroll
        for (int r = 0; r < RPG; r++)
            if (job.log)
                put<true>(job, first + r, m, start, slice.valid, dy[r], y[r], sum[r]);
            else
                put<false>(job, first + r, m, start, slice.valid, dy[r], y[r], sum[r]);
    }

    /* Zeros beyond the row: they add nothing. */
    SKR_DEVICE void get(const skr_rows &t, const skr_row &at, bool in, int start, int valid, uint4 (&raw)[VPT])
    {
        const char *p = row_at<const char>(t, at, skr_elem<T>::bytes) + start * 16;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            raw[i] = make_uint4(0, 0, 0, 0);
            if (in && i < valid)
                raw[i] = load16_once(p + i * L * 16);
        }
    }

    template <bool LOG> SKR_DEVICE void put(const skr_softmax_backward_job &job, int row, int m, int start, int valid,
                                            uint4 (&dy)[VPT], uint4 (&y)[VPT], float sum)
    {
        char *dx = row_at<char>(job.dx, row_of(job.rows, row), skr_elem<T>::bytes) + start * 16;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float d[V], p[V];
            opaque(dy[i]); /* or the compiler keeps the f32 values from the first pass: twice the registers */
            opaque(y[i]);
            unpack<T>(dy[i], d), unpack<T>(y[i], p);
#pragma unroll
            for (int c = 0; c < V; c++) {
                if (LOG)
                    d[c] = job.scale * __fmaf_rn(-exp_fast(p[c]), sum, d[c]);
                else
                    d[c] = job.scale * p[c] * (d[c] - sum);
            }
            if (row < m && i < valid)
                store16_once(dx + i * L * 16, pack<T>(d));
        }
    }
};

#endif
