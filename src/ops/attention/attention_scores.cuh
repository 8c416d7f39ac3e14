/* attention_scores.cuh - from products q . k to scores: scale, softcap, bias, slopes, and what is not seen; and what
 * dropout keeps. SPDX-License-Identifier: Apache-2.0
 *
 * A warp holds sums of 16 * MI rows and 8 * NJ columns in the layout of mma_k16. Rows are queries and columns keys, or
 * with FLIP the other way round. Every option is a pass of its own over all sums: one branch that is the same for the
 * whole grid, and none inside. */
#ifndef SKR_ATTENTION_SCORES_CUH
#define SKR_ATTENTION_SCORES_CUH

#include "../../cuda/exponent.cuh"
#include "attention_work.cuh"

/* Within 2^-22 of it: a series near 0, where the difference of exponentials would lose digits. */
SKR_DEVICE float attention_tanh(float x)
{
    float e = exp2_fast<true>(-2.0f * SKR_LOG2E * fabsf(x)), y = x * x;
    float p = __fmaf_rn(y, 2.18694885e-2f, -5.39682540e-2f);
    p = __fmaf_rn(y, p, 1.33333333e-1f);
    p = __fmaf_rn(y, p, -3.33333333e-1f);
    float near = __fmaf_rn(x * y, p, x), far = copysignf(__fdividef(1.0f - e, 1.0f + e), x);
    return y < 0.0625f ? near : far;
}

/* What changes a score beyond scale, window and the sequence's end; the same for the whole grid. */
SKR_DEVICE bool attention_has_masks(const skr_attention_job &job)
{
    return job.key_mask.data || job.q_ids.data || job.mask.data || job.q_positions.data || job.k_positions.data;
}

/* A descale that all tokens of a head share; 1 where there is none, or one for each block of them. */
SKR_DEVICE float attention_descale(const skr_attention_job &job, const skr_attention_scales &t, int b, int h)
{
    return t.data && !job.descale_block ? t.data[b * t.batch + h * t.head] : 1.0f;
}

SKR_DEVICE float attention_scale(const skr_attention_job &job, int b, int h, int kv_h)
{
    float q = job.q_descale.data ? attention_descale(job, job.q_descale, b, h / (int)job.q_descale_group) : 1.0f;
    return job.scale * q * attention_descale(job, job.k_descale, b, kv_h);
}

/* What o is multiplied by at the end. */
SKR_DEVICE float attention_o_scale(const skr_attention_job &job, int b, int kv_h)
{
    return job.keep_scale * attention_descale(job, job.v_descale, b, kv_h) *
           (job.mode == SKR_ATTENTION_I8_P ? job.p_scale : 1.0f);
}

template <int MI, int NJ, bool FLIP> struct attention_scores {
    static constexpr float none = -__builtin_huge_valf();
    const skr_attention_job &job;
    const attention_sequence &s;
    int h;
    int row, column; /* of this thread's first sum, in the sequence */

    /* f(sum, query, key) for every sum. */
    template <class F> __device__ __forceinline__ void each(float (&x)[MI][NJ][4], const F &f) const
    {
#pragma unroll
        for (int j = 0; j < NJ; j++)
#pragma unroll
            for (int i = 0; i < MI; i++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int r = row + 16 * i + 8 * (e >> 1), c = column + 8 * j + (e & 1);
                    f(x[i][j][e], FLIP ? c : r, FLIP ? r : c);
                }
    }

    /* Sequence's end, window, causal, by place: the columns that a row sees lie between two numbers. */
    __device__ __forceinline__ void limit(float (&x)[MI][NJ][4]) const
    {
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int at = row + 16 * i + 8 * r;
                int first = (FLIP ? s.first_row(at) : s.first_key(at)) - column;
                int end = (FLIP ? (at < s.keys ? s.end_row(at) : 0) : s.end_key(at)) - column;
#pragma unroll
                for (int j = 0; j < NJ; j++)
#pragma unroll
                    for (int e = 0; e < 2; e++)
                        x[i][j][2 * r + e] = 8 * j + e >= first && 8 * j + e < end ? x[i][j][2 * r + e] : none;
            }
    }

    /* Everything, to natural units. inside: all of it is seen as far as limit() is concerned. bend, where it is given:
     * the derivative of softcap. */
    __device__ __forceinline__ void finish(float (&x)[MI][NJ][4], float scale, bool inside,
                                           float (*bend)[NJ][4] = nullptr) const
    {
        if (job.descale_block)
            each(x, [&](float &f, int i, int j) {
                if (i < s.rows && j < s.keys)
                    f *= of_block(job.q_descale, h / (int)job.q_descale_group, i) *
                         of_block(job.k_descale, h / (int)job.group, j);
            });
        if (job.softcap > 0.0f) {
            const float most = 3.402823466e38f; /* not infinite: a score of 0 stays 0 */
            float unit = fmaxf(fminf(scale / job.softcap, most), -most), cap = job.softcap;
#pragma unroll
            for (int n = 0; n < MI * NJ * 4; n++) {
                float &f = x[n / (4 * NJ)][n / 4 % NJ][n & 3], t = attention_tanh(f * unit);
                if (bend)
                    bend[n / (4 * NJ)][n / 4 % NJ][n & 3] = __fmaf_rn(-t, t, 1.0f);
                f = cap * t;
            }
        } else {
            each(x, [&](float &f, int, int) { f *= scale; });
        }
        if (job.bias.data)
            add_bias(x);
        if (job.slopes.data)
            add_slopes(x);
        if (!inside)
            limit(x);
        if (attention_has_masks(job))
            hide(x);
    }

    /* What p multiplies v with: quantised, without what dropout leaves out, times what values are to be multiplied by.
     */
    __device__ __forceinline__ void weigh(float (&x)[MI][NJ][4]) const
    {
        if (job.mode == SKR_ATTENTION_I8_P) {
            float over = 1.0f / job.p_scale;
            each(x, [&](float &f, int, int) { f = f != f ? f : fminf(rintf(f * over), 127.0f); });
        }
        if (job.drop) {
            uint64_t kept = draw();
#pragma unroll
            for (int n = 0; n < MI * NJ * 4; n++) {
                float &f = x[n / (4 * NJ)][n / 4 % NJ][n & 3];
                f = kept >> n & 1 ? f : 0.0f;
            }
        }
        if (job.descale_block && job.v_descale.data)
            each(x, [&](float &f, int, int j) {
                f = j < s.keys && f != 0.0f ? f * of_block(job.v_descale, h / (int)job.group, j) : f;
            });
    }

    /* The slope's share in ds: - sum of ds times distance. */
    __device__ __forceinline__ float slopes_gradient(float (&ds)[MI][NJ][4]) const
    {
        float sum = 0.0f;
        bool positions = job.q_positions.data || job.k_positions.data;
        each(ds, [&](float &f, int i, int j) {
            if (i < s.rows && j < s.keys && f != 0.0f)
                sum = __fmaf_rn(-f,
                                positions
                                    ? fabsf((float)(place(job.q_positions, s.q, i) - place(job.k_positions, s.k, j)))
                                    : fabsf((float)(i + s.diagonal - j)),
                                sum);
        });
        return sum;
    }

  private:
    __device__ __forceinline__ float of_block(const skr_attention_scales &t, int head, int i) const
    {
        return t.data ? t.data[s.b * t.batch + head * t.head + i / (int)job.descale_block * t.block] : 1.0f;
    }

    __device__ __forceinline__ void add_bias(float (&x)[MI][NJ][4]) const
    {
        const skr_attention_matrix &m = job.bias;
        int bytes = skr_type_bytes(m.type);
        const char *at = (const char *)m.data + (s.b * m.batch + h * m.head) * bytes;
        each(x, [&](float &f, int i, int j) {
            if (i < s.rows && j < s.keys)
                f += any_load1(m.type, at + (i * m.query + j * m.key) * bytes);
        });
    }

    /* Distances of positions may need 33 bits. */
    __device__ __forceinline__ void add_slopes(float (&x)[MI][NJ][4]) const
    {
        float slope = job.slopes.data[s.b * job.slopes.batch + h * job.slopes.head];
        if (job.q_positions.data || job.k_positions.data)
            each(x, [&](float &f, int i, int j) {
                if (i < s.rows && j < s.keys)
                    f = __fmaf_rn(-slope,
                                  fabsf((float)(place(job.q_positions, s.q, i) - place(job.k_positions, s.k, j))), f);
            });
        else
            each(x, [&](float &f, int i, int j) { f = __fmaf_rn(-slope, fabsf((float)(i + s.diagonal - j)), f); });
    }

    __device__ __forceinline__ int64_t place(const skr_attention_tokens &t, int first, int i) const
    {
        return skr_attention_place(&t, job.packed ? 0 : s.b, first, i);
    }

    /* f(row) for the rows that this thread has sums of, f(column) for the columns: 0 beyond the sequence's end. */
    template <class F> __device__ __forceinline__ void each_row(int (&of)[MI][2], int end, const F &f) const
    {
#pragma unroll
        for (int n = 0; n < 2 * MI; n++) {
            int at = row + 8 * n;
            of[n / 2][n % 2] = at < end ? f(at) : 0;
        }
    }
    template <class F> __device__ __forceinline__ void each_column(int (&of)[NJ][2], int end, const F &f) const
    {
#pragma unroll
        for (int n = 0; n < 2 * NJ; n++) {
            int at = column + 8 * (n / 2) + n % 2;
            of[n / 2][n % 2] = at < end ? f(at) : 0;
        }
    }

    /* Hides what hidden(of_query(i), of_key(j)) says. Numbers are fetched once for each row and column. */
    template <class Q, class K, class F> __device__ __forceinline__ void
    hide_by(float (&x)[MI][NJ][4], const Q &of_query, const K &of_key, const F &hidden) const
    {
        int rows[MI][2], columns[NJ][2];
        if constexpr (FLIP) {
            each_row(rows, s.keys, of_key);
            each_column(columns, s.rows, of_query);
        } else {
            each_row(rows, s.rows, of_query);
            each_column(columns, s.keys, of_key);
        }
#pragma unroll
        for (int i = 0; i < MI; i++)
#pragma unroll
            for (int j = 0; j < NJ; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int a = rows[i][e >> 1], b = columns[j][e & 1];
                    x[i][j][e] = hidden(FLIP ? b : a, FLIP ? a : b) ? none : x[i][j][e];
                }
    }

    __device__ __forceinline__ void hide(float (&x)[MI][NJ][4]) const
    {
        int64_t b = job.packed ? 0 : s.b;
        if (job.q_positions.data || job.k_positions.data)
            hide_by(
                x, [&](int i) { return (int)place(job.q_positions, s.q, i); },
                [&](int j) { return (int)place(job.k_positions, s.k, j); },
                [&](int i, int j) {
                    int64_t from = (int64_t)j - i;
                    return from < -job.left || from > job.right;
                });
        if (job.key_mask.data) {
            const uint8_t *at = (const uint8_t *)job.key_mask.data + b * job.key_mask.batch + s.k * job.key_mask.token;
            hide_by(
                x, [](int) { return 0; }, [&](int j) { return (int)at[j * job.key_mask.token]; },
                [](int, int j) { return j == 0; });
        }
        if (job.q_ids.data)
            hide_by(
                x, [&](int i) { return (int)skr_attention_token(&job.q_ids, b, s.q + i); },
                [&](int j) { return (int)skr_attention_token(&job.k_ids, b, s.k + j); },
                [&](int i, int j) { return job.id_rule == SKR_ID_SAME ? i != j : j > i; });
        if (job.mask.data) {
            const skr_attention_matrix &m = job.mask;
            const uint8_t *at = (const uint8_t *)m.data + s.b * m.batch + h * m.head;
            each(x, [&](float &f, int i, int j) {
                if (i < s.rows && j < s.keys)
                    f = at[i * m.query + j * m.key] ? f : none;
            });
        }
    }

  public:
    /* Which sums dropout keeps: bit 4 * (NJ * i + j) + e for x[i][j][e]. One loop, not unrolled: the words of a counter
     * are some eighty instructions. Two keys side by side mostly share a counter. */
    __device__ __forceinline__ uint64_t draw() const
    {
        static_assert(MI * NJ <= 16, "a bit for each sum");
        uint64_t kept = 0;
#pragma unroll 1
        for (int n = 0; n < MI * NJ * 4; n += 2) {
            int r = row + 16 * (n / (4 * NJ)) + 8 * (n >> 1 & 1), c = column + 8 * (n / 4 % NJ);
            skr_philox w;
            int64_t drawn = -1;
#pragma unroll
            for (int e = 0; e < 2; e++) {
                int query = FLIP ? c + e : r, key = FLIP ? r : c + e;
                bool there = query < s.rows && key < s.keys;
                int64_t pi = there ? place(job.q_positions, s.q, query) : 0;
                int64_t pj = there ? place(job.k_positions, s.k, key) : 0;
                if (e == 0 || FLIP || (uint32_t)pj >> 2 != (uint32_t)drawn >> 2)
                    w = skr_attention_words(&job, s.b, h, pi, pj);
                drawn = pj;
                uint32_t word = pj & 2 ? (pj & 1 ? w.word[3] : w.word[2]) : (pj & 1 ? w.word[1] : w.word[0]);
                kept |= (uint64_t)skr_attention_kept(&job, word) << (n + e);
            }
        }
        return kept;
    }
};

#endif
