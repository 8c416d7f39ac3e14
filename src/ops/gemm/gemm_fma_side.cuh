/* gemm_fma_side.cuh - brings one operand of a tile of gemm_fma.cuh to shared memory, [k][row of a or column of b].
 * SPDX-License-Identifier: Apache-2.0
 *
 * Four ways, by what runs along memory: k one by one (8 k's of 4 rows for each warp, which meet in no bank); k in
 * vectors of 16 bytes, by way of registers, where they stay for half of a step (8 k's of 16 rows for each warp, which
 * meet in no bank); the rows in vectors of 16 bytes; or the rows one by one, which takes any strides. What is out of
 * range arrives as 0, but for rows of the second. */
#ifndef SKR_GEMM_FMA_SIDE_CUH
#define SKR_GEMM_FMA_SIDE_CUH

#include "gemm_epilogue.cuh"

/* WAY: one of these, or SKR_GEMM_FMA_WAYS: `way` says it at run time. */
template <int TILE, int THREADS, int STEP, int WAY> struct gemm_fma_side {
    static constexpr int PITCH = TILE + 4;
    static constexpr int PER_K = THREADS / 8, K_PASSES = TILE / PER_K; /* k along memory */
    /* k in vectors: rows that the block takes at a time, and how many of them a thread has */
    static constexpr int PER_TURN = THREADS / 2, TURNS = WAY == SKR_GEMM_FMA_TURN ? TILE / PER_TURN : 1;
    static constexpr int VECTOR_KS = THREADS / (TILE / 4);
    static constexpr int KS = THREADS > TILE ? THREADS / TILE : 1, PASSES = THREADS > TILE ? 1 : TILE / THREADS;
    /* A step's copies are begun in so many parts, between multiplications. */
    static constexpr int PARTS = WAY == SKR_GEMM_FMA_VECTORS ? STEP / 2 : WAY == SKR_GEMM_FMA_TURN ? STEP / 2 + 1 : 1;

    const skr_gemm_fma_side &plan;
    const char *data;          /* what this thread copies next */
    const char *turned[TURNS]; /* k in vectors: the same for each of its rows, */
    float4 held[TURNS];        /* and what is on its way */
    uint32_t absent; /* a bit for each of the thread's rows that are out of range; vectors: bytes that are there */
    uint32_t now;    /* the same for the step at hand */
    uint32_t to;     /* offset in a stage */

    __device__ __forceinline__ bool is(int which) const
    {
        return WAY != SKR_GEMM_FMA_WAYS ? WAY == which : which != SKR_GEMM_FMA_TURN && plan.way == which;
    }

    /* left: rows from the tile's first on. half: rows to the other half of gates, whose columns are the second half of
     * the tile's; 0 without. */
    __device__ __forceinline__ gemm_fma_side(const skr_gemm_fma_side &p, const float *tile, int64_t row_stride,
                                             int64_t k_stride, int64_t left, int64_t half)
        : plan(p)
    {
        const int t = (int)threadIdx.x, rows = (int)min(half ? left / 2 : left, (int64_t)TILE);
        const int row = is(SKR_GEMM_FMA_K)         ? t / 8
                        : is(SKR_GEMM_FMA_VECTORS) ? t % (TILE / 4) * 4
                                                   : t % TILE;
        const int each = is(SKR_GEMM_FMA_K) ? PER_K : THREADS, width = half ? TILE / 2 : TILE;
        if (is(SKR_GEMM_FMA_TURN)) { /* rows out of range have any numbers, for no one stores their sums */
#pragma unroll
            for (int j = 0; j < TURNS; j++) {
                const int r = t / 2 + j * PER_TURN;
                const int64_t row_of_all = min(r % width, rows - 1) + (r >= width ? half : 0);
                turned[j] = (const char *)(tile + k() + row_of_all * row_stride);
            }
            to = (uint32_t)(k() * PITCH + t / 2) * 4;
            return;
        }
        data = (const char *)(tile + k() * k_stride + (row % width + (row >= width ? half : 0)) * row_stride);
        to = (uint32_t)(k() * PITCH + row) * 4;
        absent = 0;
        if (is(SKR_GEMM_FMA_VECTORS))
            absent = (uint32_t)max(min(rows - row % width, 4), 0) * 4;
        else
#pragma unroll
            for (int j = 0; j < K_PASSES; j++)
                absent |= (uint32_t)((row + j * each) % width >= rows) << j;
    }

    /* The thread's first k of a step. */
    __device__ __forceinline__ int k() const
    {
        const int t = (int)threadIdx.x;
        return is(SKR_GEMM_FMA_K)         ? t % 8
               : is(SKR_GEMM_FMA_TURN)    ? t % 2 * 4
               : is(SKR_GEMM_FMA_VECTORS) ? t / (TILE / 4)
                                          : t / TILE % KS;
    }

    /* Four k's of each of the thread's rows begin their way, or arrive. exist: they are not past the end. */
    __device__ __forceinline__ void turn(bool begin, bool arrive, uint32_t to_stage, bool exist)
    {
#pragma unroll
        for (int j = 0; j < TURNS; j++) {
            if (begin) {
                held[j] = exist ? *(const float4 *)turned[j] : make_float4(0, 0, 0, 0);
                turned[j] += STEP * 4;
            }
            if (arrive) {
                const uint32_t at = to_stage + j * PER_TURN * 4;
                shared_store4(at, __float_as_uint(held[j].x));
                shared_store4(at + PITCH * 4, __float_as_uint(held[j].y));
                shared_store4(at + PITCH * 8, __float_as_uint(held[j].z));
                shared_store4(at + PITCH * 12, __float_as_uint(held[j].w));
            }
        }
    }

    /* One of IN parts of the next step, of which left k's exist. stage: shared memory. */
    template <int IN> __device__ __forceinline__ void fetch(uint32_t stage, int left, int part)
    {
        if (part >= IN)
            return;
        stage += to;
        left -= k();
        if (is(SKR_GEMM_FMA_TURN)) {
            turn(part == 0, part == IN - 1, stage, left > 0);
            return;
        }
        if (part == 0) {
            now = left > 0 ? absent : is(SKR_GEMM_FMA_VECTORS) ? 0 : ~0u;
            asm volatile("" : "+r"(now)); /* one number, not as many conditions */
        }
        if (is(SKR_GEMM_FMA_K)) {
#pragma unroll
            for (int j = 0; j < K_PASSES; j++) {
                if (j * IN / K_PASSES != part)
                    continue;
#pragma unroll
                for (int h = 0; h < STEP; h += 8)
                    copy_async4_unless(stage + (h * PITCH + j * PER_K) * 4, data + h * 4,
                                       (h == 0 || h < left ? now : ~0u) & 1u << j);
                data += plan.far;
                if (K_PASSES > 1 && j == K_PASSES / 2 - 1)
                    data += plan.jump;
            }
            if (part == IN - 1)
                data += plan.next;
        } else if (is(SKR_GEMM_FMA_VECTORS)) {
            constexpr int COUNT = VECTOR_KS < STEP ? STEP / VECTOR_KS : 1;
#pragma unroll
            for (int j = 0; j < COUNT; j++) {
                if (j * IN / COUNT != part)
                    continue;
                if (VECTOR_KS <= STEP || k() < STEP)
                    copy_async16_part(stage + j * VECTOR_KS * PITCH * 4, data,
                                      j == 0 || j * VECTOR_KS < left ? (int)now : 0);
                data += plan.far;
            }
        } else {
#pragma unroll
            for (int h = 0; h < STEP; h += KS) {
                if (h * IN / STEP != part)
                    continue;
#pragma unroll
                for (int j = 0; j < PASSES; j++)
                    copy_async4_unless(stage + (h * PITCH + j * THREADS) * 4, data + j * plan.jump,
                                       (h == 0 || h < left ? now : ~0u) & 1u << j);
                data += plan.far;
            }
        }
    }
};

#endif
