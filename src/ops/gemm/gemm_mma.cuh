/* gemm_mma.cuh - gemm and grouped_gemm on the matrix instructions of a warp, for every GPU and every layout.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block has 128 x 128 of d (columns as gemm_tma.cuh counts them: of gates in halves, 64 of each half) and walks k in
 * steps of 64 bytes, of which four are in shared memory or on their way (gemm_side.cuh). Each of its 8 warps has 64 x
 * 32. T is what the instructions multiply: f16, bf16, i8, or f32 rounded to tf32. ANY: operands may lie in any way.
 * WIDE: they may be narrower than T, and scales may change along k: sums of `seg` k's are then scaled and added up in
 * f32, and no step crosses into the next of them. Tiles and parts of k are dealt out by gemm_work.cuh, or are those of
 * the groups (gemm_groups.cuh). */
#ifndef SKR_GEMM_MMA_CUH
#define SKR_GEMM_MMA_CUH

#include "../../cuda/mma.cuh"
#include "gemm_groups.cuh"
#include "gemm_side.cuh"
#include "gemm_work.cuh"

template <int T> struct gemm_mma_step {
    typedef float sum;

    /* Sums of 16 rows and 8 columns, 32 bytes of k. */
    __device__ __forceinline__ static void run(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        mma_k16<T>(d, a, b0, b1);
    }
};

template <> struct gemm_mma_step<SKR_F32> {
    typedef float sum;

    __device__ __forceinline__ static void run(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        mma_tf32(d, a, b0, b1);
    }
};

template <> struct gemm_mma_step<SKR_I8> {
    typedef int32_t sum;

    __device__ __forceinline__ static void run(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        mma_i8(d, a, b0, b1);
    }
};

/* Four pieces of sums, of 64 rows and columns each. Not inlined: it is longer than all else, and would be
 * compiled anew for every kernel of the file. */
template <class R> static __device__ __noinline__ void gemm_write_tile(const skr_gemm_job &job, gemm_sums<R> *sums,
                                                                       int batch, int row, int col)
{
    const gemm_batch z(job, batch);
#pragma unroll 1
    for (int q = 0; q < 4; q++) {
        int m = row + q / 2 * 64, n = col + q % 2 * 64;
        if (m < z.m && n < job.n)
            sums[q].write(job, z, m, n, batch * job.m_tiles + m / 64);
    }
}

template <int T, bool AT, bool BT, bool ANY, bool WIDE> struct gemm_mma {
    typedef typename gemm_mma_step<T>::sum S;
    typedef typename gemm_mma_step<WIDE ? SKR_F16 : T>::sum R; /* of all of k */
    static constexpr int SIDE = SKR_GEMM_MMA_SIDE, BYTES = T == SKR_F32 ? 4 : T == SKR_I8 ? 1 : 2;
    static constexpr int STEP = SKR_GEMM_MMA_BYTES / BYTES, STAGES = 4, PANEL = SIDE * SKR_GEMM_MMA_BYTES;
    static_assert(STAGES * 2 * PANEL <= SKR_GEMM_MMA_SHARED && 4 * sizeof(gemm_sums<R>) <= SKR_GEMM_MMA_SHARED,
                  "the plan asks for it");

    const skr_gemm_job &job;
    const uint32_t base;
    uint32_t a_at, b_at; /* the lane's first matrix loads in a stage */

    __device__ __forceinline__ gemm_mma(const skr_gemm_job &j, uint32_t shared) : job(j), base(shared)
    {
        int lane = threadIdx.x & 31, wm = threadIdx.x / 128, wn = threadIdx.x / 32 % 4;
        int upper = lane >> 4, middle = lane >> 3 & 1, lower = lane & 7;
        /* a: rows 0 and 8 of the first half of k, then of the second; b: first and second half of k, columns 0, 8 */
        if (AT) {
            int k = upper * 8 + lower;
            a_at = (uint32_t)(k * 256 + wm * 128 + ((middle ^ lower) << 4));
        } else {
            int r = wm * 64 + middle * 8 + lower;
            a_at = (uint32_t)(r * 64 + ((upper ^ (r >> 1 & 3)) << 4));
        }
        if (BT) {
            int k = middle * 8 + lower;
            b_at = (uint32_t)(PANEL + k * 256 + wn / 2 * 128 + (((wn % 2 * 4 + upper) ^ lower) << 4));
        } else {
            int r = wn * 32 + upper * 8 + lower;
            b_at = (uint32_t)(PANEL + r * 64 + ((middle ^ (r >> 1 & 3)) << 4));
        }
    }

    /* ---------------------------------------------------------------- multiplying */

    template <bool TURNED> __device__ __forceinline__ static void load4(uint32_t (&r)[4], uint32_t at)
    {
        if (TURNED)
            ldmatrix4_transposed(r, at);
        else
            ldmatrix4(r, at);
        if (T == SKR_F32) /* the instruction would cut the bits off */
#pragma unroll
            for (int i = 0; i < 4; i++)
                r[i] = tf32(__uint_as_float(r[i]));
    }

    /* Blocks of 16 rows or columns and halves of a step are bits of their own in the address. */
    template <bool TURNED> __device__ __forceinline__ static uint32_t block_at(uint32_t at, int block, int half)
    {
        return TURNED ? (at ^ (uint32_t)(block * 32)) + half * 4096 : (at ^ (uint32_t)(half * 32)) + block * 1024;
    }

    __device__ __forceinline__ void multiply(S (&d)[4][4][4], uint32_t stage, int halves) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (WIDE && h >= halves)
                break;
            uint32_t a[4][4], b[2][4];
#pragma unroll
            for (int j = 0; j < 2; j++)
                load4<BT>(b[j], stage + block_at<BT>(b_at, j, h));
#pragma unroll
            for (int i = 0; i < 4; i++)
                load4<AT>(a[i], stage + block_at<AT>(a_at, i, h));
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int j = 0; j < 4; j++)
                    gemm_mma_step<T>::run(d[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
        }
    }

    /* ---------------------------------------------------------------- scales that change along k */

    /* Column of b that column c of the tile is; -1: none. */
    __device__ __forceinline__ int64_t column(int col, int c) const
    {
        if (job.gated != SKR_GEMM_HALVES)
            return col + c < job.n ? col + c : -1;
        int half = col / 2 + c % (SIDE / 2);
        return half >= job.n / 2 ? -1 : c < SIDE / 2 ? half : half + job.n / 2;
    }

    struct factors {
        float row[4][2], col[4][2];
    };

    __device__ __forceinline__ void load_factors(factors &f, const gemm_batch &z, const gemm_tile_at &t,
                                                 int group) const
    {
        int lane = threadIdx.x & 31, wm = threadIdx.x / 128, wn = threadIdx.x / 32 % 4;
        const float *rows = job.scaling == SKR_GEMM_BLOCK ? (const float *)job.a_scale.at.data : nullptr;
        const float *cols = job.scaling >= SKR_GEMM_BLOCK ? (const float *)job.b_scale.at.data : nullptr;
        int shift = job.scaling == SKR_GEMM_BLOCK ? 7 : 0;
        static_assert(SKR_GEMM_SCALE_BLOCK == 1 << 7, "columns of a block");
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                int64_t m = t.row + wm * 64 + i * 16 + h * 8 + lane / 4;
                m = rows && m < z.m ? gemm_a_row(job, z, m) : -1;
                f.row[i][h] = m < 0 ? 1.0f : rows[z.a_scale + m * job.a_scale.row + group * job.a_scale.at.col_stride];
                int64_t n = cols ? column(t.col, wn * 32 + i * 8 + lane % 4 * 2 + h) : -1;
                f.col[i][h] =
                    n < 0 ? 1.0f : cols[z.b_scale + group * job.b_scale.row + (n >> shift) * job.b_scale.at.col_stride];
            }
    }

    __device__ __forceinline__ static void scale(float (&sum)[4][4][4], S (&part)[4][4][4], const factors &f)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    sum[i][j][e] = __fmaf_rn((float)part[i][j][e], f.row[i][e / 2] * f.col[j][e % 2], sum[i][j][e]);
                    part[i][j][e] = S(0);
                }
    }

    /* ---------------------------------------------------------------- a tile */

    typedef gemm_side<T, AT, ANY, WIDE> a_side;
    typedef gemm_side<T, BT, ANY, WIDE> b_side;

    __device__ __forceinline__ void place(a_side &a, b_side &b, const gemm_batch &z, const gemm_tile_at &t) const
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int64_t m = t.row + a.row(i), rows = z.m - m;
            if (!AT && rows > 0) {
                m = gemm_a_row(job, z, m);
                rows = m < 0 ? 0 : rows;
            }
            a.place(i, z.a + m * job.a.row, rows, t.first * STEP);
            int64_t n = column(t.col, b.row(i)),
                    end = job.gated == SKR_GEMM_HALVES && n < job.n / 2 ? job.n / 2 : job.n;
            b.place(i, z.b + n * job.b.at.col_stride, n < 0 ? 0 : end - n, t.first * STEP);
            if (WIDE)
                b.zero_at[i] = z.b_zero + n * job.b_zero.at.col_stride;
        }
    }

    /* Where step s begins, in k; left: k's from there on that share its scales. */
    __device__ __forceinline__ int step_at(int s, int depth, int &left, int &group) const
    {
        group = 0;
        if (!WIDE) {
            left = depth - s * STEP;
            return s * STEP;
        }
        group = s / (int)job.segs;
        int k = group * (int)job.seg + (s - group * (int)job.segs) * STEP;
        left = (int)min((int64_t)depth, (group + 1) * job.seg) - k;
        return k;
    }

    __device__ __forceinline__ void fetch(a_side &a, b_side &b, int s, int depth, int stage) const
    {
        int left, group, k = step_at(s, depth, left, group);
        uint32_t at = base + stage * 2 * PANEL;
        const int8_t *zeros = WIDE ? (const int8_t *)job.b_zero.at.data : nullptr;
        a.fetch(at, k, left, nullptr);
        b.fetch(at + PANEL, k, left, zeros ? zeros + group * job.b_zero.row : nullptr);
    }

    __device__ __forceinline__ void put(a_side &a, b_side &b, int stage) const
    {
        a.put(base + stage * 2 * PANEL);
        b.put(base + stage * 2 * PANEL + PANEL);
    }

    __device__ __forceinline__ void walk(const gemm_tile_at &t, R (&sum)[4][4][4]) const
    {
        const gemm_batch z(job, t.z);
        a_side a(job.a, job.a_load, job.a.at.col_stride);
        b_side b(job.b, job.b_load, job.b.row);
        place(a, b, z, t);
        const int depth = (int)z.k, last = t.last;
        const bool idle = z.m - t.row <= (int)threadIdx.x / 128 * 64; /* none of the warp's rows is there */
        S part[WIDE ? 4 : 1][4][4];
        if constexpr (WIDE)
#pragma unroll
            for (int i = 0; i < 64; i++)
                part[i / 16][i / 4 % 4][i % 4] = S(0);
#pragma unroll
        for (int i = 0; i < STAGES - 1; i++) {
            if (t.first + i < last) {
                fetch(a, b, t.first + i, depth, i);
                if (WIDE)
                    put(a, b, i);
            }
            copy_async_commit();
        }
        int stage = 0;
#pragma unroll 1
        for (int s = t.first; s < last; s++) {
            copy_async_wait<STAGES - 2>();
            __syncthreads(); /* this step's tiles are there, and all have done with those of the one before */
            int ahead = s + STAGES - 1, into = stage == 0 ? STAGES - 1 : stage - 1;
            if (ahead < last)
                fetch(a, b, ahead, depth, into);
            copy_async_commit();
            const uint32_t at = base + stage * 2 * PANEL;
            if constexpr (WIDE) {
                int left, group;
                step_at(s, depth, left, group);
                bool ends = left <= STEP || s + 1 == last;
                factors f;
                if (ends)
                    load_factors(f, z, t, group);
                if (!idle)
                    multiply(part, at, left > STEP / 2 ? 2 : 1);
                if (ahead < last)
                    put(a, b, into);
                if (ends)
                    scale(sum, part, f);
            } else if (!idle) {
                multiply(sum, at, 2);
            }
            stage = stage + 1 == STAGES ? 0 : stage + 1;
        }
        copy_async_wait<0>();
        __syncthreads();
    }

    /* ---------------------------------------------------------------- what becomes of the sums */

    /* To the workspace, in the order that gemm_finish.cuh reads. */
    __device__ __forceinline__ void keep(const R (&sum)[4][4][4], int slot) const
    {
        int lane = threadIdx.x & 31, wm = threadIdx.x / 128, wn = threadIdx.x / 32 % 4;
        char *to = gemm_slot(job, slot, wm) + wn * 4 * 2048 + lane * 16;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                if constexpr (R(0.5) == R(0))
                    *(int4 *)(to + j * 2048 + i * 512) =
                        make_int4(sum[i][j][0], sum[i][j][1], sum[i][j][2], sum[i][j][3]);
                else
                    *(float4 *)(to + j * 2048 + i * 512) =
                        make_float4(sum[i][j][0], sum[i][j][1], sum[i][j][2], sum[i][j][3]);
    }

    /* Through shared memory to d. */
    __device__ __forceinline__ void stage(const R (&sum)[4][4][4], gemm_sums<R> *out) const
    {
        int lane = threadIdx.x & 31, wm = threadIdx.x / 128, wn = threadIdx.x / 32 % 4;
        const bool halves = job.gated == SKR_GEMM_HALVES;
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int c = wn * 32 + j * 8 + lane % 4 * 2 + e % 2;
                    c = !halves ? c : c < 64 ? 2 * c : 2 * (c - 64) + 1; /* gate and up become neighbours */
                    out[wm * 2 + c / 64].at[i * 16 + e / 2 * 8 + lane / 4][c % 64] = sum[i][j][e];
                }
    }

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        extern __shared__ __align__(128) char pool[];
        __shared__ __align__(16) char dealer[sizeof(gemm_tiles)]; /* here, and not in everyone's registers */
        __shared__ struct {
            gemm_tile_at tile;
            bool more;
        } turn;
        wait_for_previous();
        let_next_start();
        const gemm_mma g(job, shared_address(pool));
        if (threadIdx.x == 0)
            new (dealer) gemm_tiles(job, STEP);
        for (;;) {
            if (threadIdx.x == 0)
                turn.more = ((gemm_tiles *)dealer)->next(turn.tile);
            __syncthreads();
            if (!turn.more)
                break;
            R sum[4][4][4];
#pragma unroll
            for (int i = 0; i < 64; i++)
                sum[i / 16][i / 4 % 4][i % 4] = R(0);
            g.walk(turn.tile, sum);
            if (turn.tile.slot >= 0) {
                g.keep(sum, turn.tile.slot);
                __syncthreads();
                continue;
            }
            g.stage(sum, (gemm_sums<R> *)pool);
            __syncthreads();
            gemm_write_tile<R>(job, (gemm_sums<R> *)pool, turn.tile.z, turn.tile.row, turn.tile.col);
            __syncthreads();
        }
    }
};

#endif
