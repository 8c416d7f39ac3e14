/* gemm_codes.cuh - gemm of few rows of f16 or bf16 with i4 or i8 weights in groups, k along memory in both: the speed
 * of reading the weights. SPDX-License-Identifier: Apache-2.0
 *
 * As in gemm_rows.cuh b's columns are the rows of the matrix instructions, the order of k in a sum is free, and the
 * warps of a block take the k's in turn. Four lanes read 16 bytes of codes of a column each, a chunk, of which each
 * warp has STAGES on their way to shared memory; there they become halves, exactly, and the sums of a group's k's are
 * scaled in f32. FINE: groups are smaller than a chunk, so that lanes take words of their neighbours' bytes. MT: matrix
 * instructions beside each other, 8 rows of a each; more rows are other blocks', next to this one, for L2 to have the
 * weights. */
#ifndef SKR_GEMM_CODES_CUH
#define SKR_GEMM_CODES_CUH

#include "../../cuda/mma.cuh"
#include "gemm_code_pairs.cuh"
#include "gemm_epilogue.cuh"

/* Every option for two neighbours of a row. Not inlined: it is longer than all else, and would be compiled anew for
 * every kernel of the file. */
static __device__ __noinline__ void gemm_codes_finish(const skr_gemm_job &job, int batch, int64_t m, int64_t n,
                                                      float x0, float x1)
{
    float x[2] = {x0, x1};
    gemm_finish_pair(job, gemm_batch(job, batch), m, n, n + 1 < job.n, x);
}

template <int T, int CODE, int MT, bool FINE> struct gemm_codes {
    static constexpr int WARPS = SKR_GEMM_CODES_THREADS / 32, ROWS = 8 * MT;
    static constexpr int CT = SKR_GEMM_CODES_COLUMNS(ROWS, FINE) / 16,
                         COLUMNS = 16 * CT;             /* 16 to a matrix instruction */
    static constexpr int EACH = CODE == SKR_I4 ? 8 : 4; /* codes of a word */
    static constexpr int CHUNK = 16 * EACH, STAGES = SKR_GEMM_CODES_STAGES / (FINE ? 2 : 1); /* CHUNK: k's */
    static constexpr int SCALES = FINE ? 4 : 1; /* of a chunk, for each column */
    static constexpr int STAGE = 2 * CT * 512;  /* bytes of a warp */
    static_assert(WARPS * STAGES * STAGE <= SKR_GEMM_CODES_SHARED(ROWS, FINE) && COLUMNS * ROWS * 4 <= STAGES * STAGE,
                  "the plan asks for it, and the sums find room there at the end");

    const skr_gemm_job &job;
    const uint32_t group; /* k's of a group */
    const int lane, q;    /* q: the lane among the four of a column */
    const uint32_t ring;  /* the warp's stages */
    const char *columns[2 * CT], *rows[MT];
    const float *scales[2 * CT];
    const char *zeros[2 * CT];
    const bool fractions; /* zero points are f32 */

    /* Columns and rows out of range repeat the last one; their sums are not written. */
    __device__ __forceinline__ gemm_codes(const skr_gemm_job &j, uint32_t shared, const gemm_batch &z, int64_t m0,
                                          int64_t n0)
        : job(j), group((uint32_t)min(j.group, (int64_t)1 << 30)), lane(threadIdx.x & 31), q(threadIdx.x % 4),
          ring(shared + threadIdx.x / 32 * STAGES * STAGE),
          fractions(job.b_zero.at.data && job.b_zero.at.type == SKR_F32)
    {
#pragma unroll
        for (int i = 0; i < 2 * CT; i++) {
            const int64_t n = gemm_column(job, min(n0 + i * 8 + lane / 4, job.n - 1));
            columns[i] = (const char *)job.b.at.data + (z.b + n * job.b.at.col_stride) / (EACH / 4);
            scales[i] = (const float *)job.b_scale.at.data + z.b_scale + n * job.b_scale.at.col_stride;
            zeros[i] =
                (const char *)job.b_zero.at.data + (z.b_zero + n * job.b_zero.at.col_stride) * (fractions ? 4 : 1);
        }
#pragma unroll
        for (int m = 0; m < MT; m++)
            rows[m] = (const char *)job.a.at.data + (z.a + min(m0 + m * 8 + lane / 4, job.m - 1) * job.a.row) * 2;
    }

    /* Where word i of a chunk begins, in k. */
    __device__ __forceinline__ int word_at(int i) const
    {
        return FINE ? i * 4 * EACH + q * EACH : q * 4 * EACH + i * EACH;
    }

    struct factors {
        float scale[SCALES][2 * CT];
        uint32_t zero[SCALES][2 * CT]; /* as it lies, for it need not be here before it is used */
    };

    __device__ __forceinline__ uint32_t read_zero(const char *zero, uint32_t which) const
    {
        if (!job.b_zero.at.data)
            return 0;
        const int64_t at = which * job.b_zero.row;
        return fractions ? ((const uint32_t *)zero)[at] : (uint32_t)((const int8_t *)zero)[at];
    }

    /* A zero point as a whole number that halves can be less than exactly, and what is left of it. That is never more
     * than the distance of the zero point to any code, so sums lose next to nothing when it is taken off them. */
    __device__ __forceinline__ float split(uint32_t zero, float &rest) const
    {
        const float z = fractions ? __uint_as_float(zero) : (float)(int32_t)zero;
        const float whole = fractions ? fminf(fmaxf(rintf(z), -128.0f), 128.0f) : z;
        rest = z - whole;
        return whole;
    }

    /* Starts bringing the chunk from k on; zeros behind the last k. */
    __device__ __forceinline__ void fetch(int k, int stage, factors &f) const
    {
        const int depth = (int)job.k, at = k + q * 4 * EACH;
        if (k < depth) {
#pragma unroll
            for (int i = 0; i < 2 * CT; i++)
                copy_async16_or_zero(ring + stage * STAGE + i * 512 + lane * 16,
                                     columns[i] + (at < depth ? at : 0) / (EACH / 4), at < depth);
#pragma unroll
            for (int s = 0; s < SCALES; s++) {
                const uint32_t which = (uint32_t)min(k + s * CHUNK / SCALES, depth - 1) / group;
#pragma unroll
                for (int i = 0; i < 2 * CT; i++) {
                    f.scale[s][i] = job.b_scale.at.data ? scales[i][which * job.b_scale.row] : 1.0f;
                    f.zero[s][i] = read_zero(zeros[i], which);
                }
            }
        }
        copy_async_commit();
    }

    /* A lane's four words of column i. */
    __device__ __forceinline__ void words(int stage, int i, uint32_t (&w)[4]) const
    {
        const uint32_t at = ring + stage * STAGE + i * 512;
        if constexpr (FINE) {
#pragma unroll
            for (int k = 0; k < 4; k++)
                w[k] = __float_as_uint(shared_load4(at + (lane / 4 * 4 + k) * 16 + q * 4));
        } else {
            const uint4 all = shared_load16(at + lane * 16);
            w[0] = all.x, w[1] = all.y, w[2] = all.z, w[3] = all.w;
        }
    }

    /* The rows of a of a lane, EACH k's, in the order of widen: i4's halves are four k's apart. */
    __device__ __forceinline__ static void halves(const char *a, bool in, uint32_t (&x)[EACH / 2])
    {
        if constexpr (CODE == SKR_I4) {
            const uint4 raw = in ? load16(a) : make_uint4(0, 0, 0, 0);
            x[0] = __byte_perm(raw.x, raw.z, 0x5410), x[1] = __byte_perm(raw.x, raw.z, 0x7632);
            x[2] = __byte_perm(raw.y, raw.w, 0x5410), x[3] = __byte_perm(raw.y, raw.w, 0x7632);
        } else {
            const uint2 raw = in ? load8(a) : make_uint2(0, 0);
            x[0] = raw.x, x[1] = raw.y;
        }
    }

    /* A word of codes less their zero point, which is a whole number: all exact. */
    __device__ __forceinline__ void widen(uint32_t word, float zero, uint32_t (&x)[EACH / 2]) const
    {
        const uint32_t less = pack2<T>(-zero, -zero);
#pragma unroll
        for (int i = 0; i < EACH / 2; i++) {
            x[i] = CODE == SKR_I4 ? gemm_i4_pair<T>(word >> 4 * i)
                                  : gemm_i8_pair<T>(__byte_perm(word, 0, i ? 0x4342 : 0x4140));
            if (job.b_zero.at.data)
                x[i] = gemm_codes_add2<T>(x[i], less);
        }
    }

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        extern __shared__ __align__(128) char pool[];
        let_next_start();
        const uint32_t down = (uint32_t)((job.m + ROWS - 1) / ROWS),
                       across = (uint32_t)((job.n + COLUMNS - 1) / COLUMNS);
        const uint32_t tile = blockIdx.x / down, batch = tile / across;
        const int64_t m0 = (blockIdx.x - tile * down) * ROWS, n0 = (int64_t)(tile - batch * across) * COLUMNS;
        const gemm_codes g(job, shared_address(pool), gemm_batch(job, batch), m0, n0);
        g.ask_ahead();
        wait_for_previous();
        float sum[CT][MT][4] = {};
        g.multiply(sum);
        float *part = (float *)pool + threadIdx.x / 32 * COLUMNS * ROWS; /* [column][row] */
        copy_async_wait<0>();
        __syncthreads(); /* all have done with the stages */
#pragma unroll
        for (int c = 0; c < CT; c++)
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int h = 0; h < 2; h++)
                    *(float2 *)&part[(c * 16 + h * 8 + g.lane / 4) * ROWS + m * 8 + g.q * 2] =
                        make_float2(sum[c][m][2 * h], sum[c][m][2 * h + 1]);
        __syncthreads();
        write((const float *)pool, (int)batch, m0, n0, job);
    }

    /* Adds up the warps' sums, part[warp][column][row]. What a product without options runs through is short: code that
     * nobody has run yet comes from memory as slowly as data. */
    __device__ __forceinline__ static void write(const float *part, int batch, int64_t m0, int64_t n0,
                                                 const skr_gemm_job &job)
    {
        static_assert(ROWS * COLUMNS / 2 <= SKR_GEMM_CODES_THREADS, "a thread has two sums");
        const int r = threadIdx.x / (COLUMNS / 2), c = threadIdx.x % (COLUMNS / 2) * 2;
        const int64_t m = m0 + r, n = n0 + c;
        if (r >= ROWS || m >= job.m || n >= job.n)
            return;
        float x[2] = {0.0f, 0.0f};
#pragma unroll
        for (int w = 0; w < WARPS; w++) {
            const float *at = part + (w * COLUMNS + c) * ROWS + r;
            x[0] += at[0], x[1] += at[ROWS];
        }
        if (!job.work.plain) {
            gemm_codes_finish(job, batch, m, n, x[0], x[1]);
            return;
        }
        const float factor = gemm_one_factor(job), low = x[0] * factor, high = x[1] * factor;
        uint32_t *d = (uint32_t *)job.d.at.data + (gemm_batch::at(job, job.d, batch) + m * job.d.row + n) / 2;
        *d = job.d.at.type == SKR_F16 ? pack2<SKR_F16>(low, high) : pack2<SKR_BF16>(low, high);
    }

    /* L2 is asked for the warp's first codes. Kernels before this one may still be running, and write them: L2 is where
     * they write. */
    __device__ __forceinline__ void ask_ahead() const
    {
        const int64_t at = (threadIdx.x / 32 * STAGES * CHUNK) / (EACH / 4) + q * 64;
        if (q < STAGES && at < job.k / (EACH / 4))
#pragma unroll
            for (int i = 0; i < 2 * CT; i++)
                prefetch_l2(columns[i] + at);
    }

    /* A warp takes STAGES chunks that follow each other, then those of the next round. */
    __device__ __forceinline__ void multiply(float (&sum)[CT][MT][4]) const
    {
        const int depth = (int)job.k, round = WARPS * STAGES * CHUNK;
        int k = (int)threadIdx.x / 32 * STAGES * CHUNK;
        factors f[STAGES];
        uint32_t few[2][4][MT][EACH / 2];
#pragma unroll
        for (int i = 0; i < STAGES; i++)
            fetch(k + i * CHUNK, i, f[i]);
        read_rows(k, few[0]);
#pragma unroll 1
        for (; k < depth; k += round) {
#pragma unroll
            for (int i = 0; i < STAGES; i++) {
                const int at = k + i * CHUNK;
                if (at >= depth)
                    break;
                read_rows(i + 1 < STAGES ? at + CHUNK : k + round, few[(i + 1) % 2]);
                copy_async_wait<STAGES - 1>();
                if (FINE)
                    __syncwarp();
                chunk(i, few[i % 2], f[i], sum);
                if (FINE)
                    __syncwarp();
                fetch(at + round, i, f[i]);
            }
        }
    }

    __device__ __forceinline__ void read_rows(int k, uint32_t (&few)[4][MT][EACH / 2]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int m = 0; m < MT; m++)
                halves(rows[m] + (int64_t)(k + word_at(i)) * 2, k + word_at(i) < (int)job.k, few[i][m]);
    }

    __device__ __forceinline__ void chunk(int stage, const uint32_t (&few)[4][MT][EACH / 2], const factors &f,
                                          float (&sum)[CT][MT][4]) const
    {
        uint32_t word[2 * CT][4];
#pragma unroll
        for (int i = 0; i < 2 * CT; i++)
            words(stage, i, word[i]);
        const uint32_t one = T == SKR_BF16 ? 0x3f803f80u : 0x3c003c00u, ones[4] = {one, one, one, one};
        float part[CT][MT][4] = {}, all[MT][4] = {}; /* all: sums of a alone */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int s = FINE ? i : 0;
            float rest[2 * CT];
#pragma unroll
            for (int c = 0; c < CT; c++) {
                uint32_t low[EACH / 2], high[EACH / 2];
                widen(word[2 * c][i], split(f.zero[s][2 * c], rest[2 * c]), low);
                widen(word[2 * c + 1][i], split(f.zero[s][2 * c + 1], rest[2 * c + 1]), high);
#pragma unroll
                for (int j = 0; j < EACH / 2; j += 2) {
                    const uint32_t wide[4] = {low[j], high[j], low[j + 1], high[j + 1]};
#pragma unroll
                    for (int m = 0; m < MT; m++)
                        mma_k16<T>(part[c][m], wide, few[i][m][j], few[i][m][j + 1]);
                }
            }
            if (fractions)
#pragma unroll
                for (int j = 0; j < EACH / 2; j += 2)
#pragma unroll
                    for (int m = 0; m < MT; m++)
                        mma_k16<T>(all[m], ones, few[i][m][j], few[i][m][j + 1]);
            if (!FINE && i < 3)
                continue;
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
#pragma unroll
                    for (int c = 0; c < CT; c++) {
                        float &p = part[c][m][e];
                        const float r = rest[2 * c + e / 2]; /* 0 leaves infinities of a alone */
                        p = fractions && r != 0.0f ? __fmaf_rn(-r, all[m][e], p) : p;
                        sum[c][m][e] = __fmaf_rn(p, f.scale[s][2 * c + e / 2], sum[c][m][e]);
                        p = 0.0f;
                    }
                    all[m][e] = 0.0f;
                }
        }
    }
};

#endif
