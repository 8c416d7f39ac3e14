/* gemm_code_stages.cuh - how Hopper's tensor cores multiply i4 and i8 weights in groups.
 * SPDX-License-Identifier: Apache-2.0
 *
 * b's columns are the rows of the matrix instructions. A stage has 128 k's: their codes, which each warp widens to the
 * registers that the instruction takes them from, exactly and less their zero points, and two boxes of a of 64 k's
 * each. A stage's sums leave the tensor cores to be scaled, and so do a group's that ends in its middle. */
#ifndef SKR_GEMM_CODE_STAGES_CUH
#define SKR_GEMM_CODE_STAGES_CUH

#include "gemm_code_pairs.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_stages.cuh"

template <int T, int N> struct gemm_left;
#define SKR_GEMM_LEFT(T, N, types)                                                                                     \
    template <> struct gemm_left<T, N> {                                                                               \
        SKR_WGMMA_LEFT(run, N, types, ", 1, 1, 0")                                                                     \
    };
SKR_GEMM_LEFT(SKR_BF16, 16, "f32.bf16.bf16")
SKR_GEMM_LEFT(SKR_BF16, 64, "f32.bf16.bf16")
SKR_GEMM_LEFT(SKR_BF16, 128, "f32.bf16.bf16")
SKR_GEMM_LEFT(SKR_F16, 16, "f32.f16.f16")
SKR_GEMM_LEFT(SKR_F16, 64, "f32.f16.f16")
SKR_GEMM_LEFT(SKR_F16, 128, "f32.f16.f16")

/* The two columns of a lane: 8 columns apart, four lanes have the same. */
template <int T, int CODE> struct gemm_code_columns {
    static constexpr int BYTES = SKR_GEMM_CODE_BYTES(CODE); /* of a column's codes in a stage */

    /* What the columns have for k's that belong to a group. */
    struct factors {
        float scale[2];
        int zero[2], group;
    };

    const skr_gemm_job &job;
    int scales[2], zeros[2]; /* where a group's are */
    uint32_t at, quad;       /* at: of the first chunk in a panel; quad: the lane among its four */
    bool whole, fine;        /* groups are whole stages; are no whole blocks of 64 k's */

    /* n: b's column that the warpgroup's panel begins with, of `limit`. Those out of range repeat the last one; their
     * sums are not written. */
    __device__ __forceinline__ gemm_code_columns(const skr_gemm_job &j, const gemm_batch &z, int64_t n, int64_t limit)
        : job(j), quad(threadIdx.x % 4), whole(j.group >= j.k || j.group % 128 == 0), fine(!whole && j.group % 64 != 0)
    {
        const int row = threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
        at = row * BYTES;
        at += (at / 128 & (BYTES / 16 - 1)) << 4; /* as the copy engine swizzles rows of BYTES */
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const int64_t column = min(n + row + 8 * h, limit - 1);
            scales[h] = (int)(z.b_scale + column * job.b_scale.at.col_stride);
            zeros[h] = (int)(z.b_zero + column * job.b_zero.at.col_stride);
        }
    }

    /* L2 is asked for the scales of the groups from k on to `end`: of 64 columns, by two warpgroups. */
    __device__ __forceinline__ static void ask_ahead(const skr_gemm_job &job, const gemm_batch &z, int64_t n,
                                                     int64_t limit, int k, int end)
    {
        const int64_t column = z.b_scale + min(n + threadIdx.x % 64, limit - 1) * job.b_scale.at.col_stride;
#pragma unroll 1
        for (int g = group_of(job, k) + threadIdx.x / 64, last = group_of(job, end - 1); g <= last; g += 4)
            prefetch_l2((const float *)job.b_scale.at.data + column + g * job.b_scale.row);
    }

    __device__ __forceinline__ static int group_of(const skr_gemm_job &job, int k)
    {
        return (int)__umulhi((uint32_t)min(k, (int)job.k - 1) / 32 * 2, (uint32_t)job.seg);
    }

    /* Of the k's from k on; those behind the last one repeat its group. */
    __device__ __forceinline__ void read(int k, factors &f) const
    {
        f.group = group_of(job, k);
#pragma unroll
        for (int h = 0; h < 2; h++)
            f.scale[h] = ((const float *)job.b_scale.at.data)[scales[h] + f.group * (int)job.b_scale.row];
        if (job.b_zero.at.data)
#pragma unroll
            for (int h = 0; h < 2; h++)
                f.zero[h] = ((const int8_t *)job.b_zero.at.data)[zeros[h] + f.group * (int)job.b_zero.row];
    }

    /* The operand's four words for each 16 of a block's 64 k's: k's 2 quad and 2 quad + 8 on, of both columns. low and
     * high: zero points of its halves. */
    __device__ __forceinline__ void widen(uint32_t panel, int block, const int (&low)[2], const int (&high)[2],
                                          uint32_t (&left)[4][4]) const
    {
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if constexpr (CODE == SKR_I4) {
                uint32_t word[8]; /* of 8 codes */
                chunk(panel, 2 * block, h, word);
                chunk(panel, 2 * block + 1, h, word + 4);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    left[i / 2][i % 2 * 2 + h] =
                        gemm_i4_pair<T>(__byte_perm(word[i], 0, 0x4440 + quad) * 0x1001); /* upper code 12 bits up */
            } else {
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    const uint32_t from = chunk_at(panel, 4 * block + i / 2, h) + i % 2 * 8 + quad / 2 * 4;
                    left[i / 2][i % 2 * 2 + h] = gemm_i8_pair<T>(
                        __byte_perm(__float_as_uint(shared_load4(from)), 0, quad % 2 ? 0x4342 : 0x4140));
                }
            }
            if (job.b_zero.at.data) {
                const uint32_t less[2] = {pack2<T>((float)-low[h], (float)-low[h]),
                                          pack2<T>((float)-high[h], (float)-high[h])};
#pragma unroll
                for (int i = 0; i < 8; i++)
                    left[i / 2][i % 2 * 2 + h] = gemm_codes_add2<T>(left[i / 2][i % 2 * 2 + h], less[i / 4]);
            }
        }
    }

  private:
    /* 16 bytes of column h. */
    __device__ __forceinline__ uint32_t chunk_at(uint32_t panel, int chunk, int h) const
    {
        return ((panel + at) ^ chunk << 4) + h * 8 * BYTES;
    }

    __device__ __forceinline__ void chunk(uint32_t panel, int chunk, int h, uint32_t *word) const
    {
        const uint4 all = shared_load16(chunk_at(panel, chunk, h));
        word[0] = all.x, word[1] = all.y, word[2] = all.z, word[3] = all.w;
    }
};

template <int T, int B, int ROWS, bool BT, int ROOM, bool APART> struct gemm_code_stages
    : gemm_stages<T, T, SKR_GEMM_FEW_COLUMNS, ROWS, BT, false, ROOM, APART, SKR_GEMM_CODE_BOXES(T, B),
                  SKR_GEMM_CODE_BYTES(B)> {
    typedef gemm_stages<T, T, SKR_GEMM_FEW_COLUMNS, ROWS, BT, false, ROOM, APART, SKR_GEMM_CODE_BOXES(T, B),
                        SKR_GEMM_CODE_BYTES(B)>
        stages;
    using stages::base, stages::full, stages::STAGE, stages::STAGES, stages::PANEL;
    static constexpr int A_BOX = ROWS * 128; /* bytes of a box of a */

    /* The sums of `steps` stages with this warpgroup's panel, whose k's begin at k and go on by `stride`. */
    __device__ __forceinline__ void multiply_codes(const gemm_code_columns<T, B> &own, int k, int stride, int steps,
                                                   int &stage, int &phase, float (&d)[ROWS / 2]) const
    {
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++)
            d[i] = 0.0f;
        if (own.fine)
            multiply_fine(own, k, stride, steps, stage, phase, d);
        else
            multiply_blocks(own, k, stride, steps, stage, phase, d);
    }

  private:
    /* Groups of 32 k's, or an odd number of these: the sums of each 32 leave the tensor cores on their own. */
    __device__ __forceinline__ void multiply_fine(const gemm_code_columns<T, B> &own, int k, int stride, int steps,
                                                  int &stage, int &phase, float (&d)[ROWS / 2]) const
    {
        const uint32_t panel = gemm_uniform(threadIdx.x / 128 * PANEL), other = this->second();
        float part[ROWS / 2];
        uint32_t left[4][4];
#pragma unroll 1
        for (int step = 0; step < steps; step++, k += stride) {
            const uint32_t at = gemm_uniform(base + stage * STAGE);
            typename gemm_code_columns<T, B>::factors f[2];
            barrier_wait(full + stage * 8, phase);
#pragma unroll 1
            for (int b = 0; b < 2; b++) {
                own.read(k + 64 * b, f[0]);
                own.read(k + 64 * b + 32, f[1]);
                own.widen(at + panel, b, f[0].zero, f[1].zero, left);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    run<2>(part, left, i * 2, at + other + b * A_BOX, true);
                    wgmma_wait<0>();
                    wgmma_pin(part);
                    add(part, f[i].scale, d);
                }
            }
            this->release(stage);
            stages::advance(stage, phase);
        }
    }

    __device__ __forceinline__ void multiply_blocks(const gemm_code_columns<T, B> &own, int k, int stride, int steps,
                                                    int &stage, int &phase, float (&d)[ROWS / 2]) const
    {
        const uint32_t panel = gemm_uniform(threadIdx.x / 128 * PANEL), other = this->second();
        typename gemm_code_columns<T, B>::factors now, next[2]; /* of the block that is multiplied, and the next two */
        float part[ROWS / 2];
        uint32_t left[2][4][4];
        own.read(k, next[0]);
        if (!own.whole)
            own.read(k + 64, next[1]);
        asm volatile("" : "+r"(steps)); /* in a register, not fetched anew after every step */
        barrier_wait(full + stage * 8, phase);
        own.widen(gemm_uniform(base + stage * STAGE) + panel, 0, next[0].zero, next[0].zero, left[0]);
        run<4>(part, left[0], 0, gemm_uniform(base + stage * STAGE) + other, true);
#pragma unroll 1
        for (int step = 1;; step++) {
            const int last = stage;
            const uint32_t at = gemm_uniform(base + stage * STAGE);
            k += stride;
            now = next[0];
            own.read(k, next[0]);
            const int zero[2] = {own.whole ? now.zero[0] : next[1].zero[0], own.whole ? now.zero[1] : next[1].zero[1]};
            own.widen(at + panel, 1, zero, zero, left[1]);
            const bool ends = !own.whole && now.group != next[1].group;
            if (ends) {
                wgmma_wait<0>();
                wgmma_pin(part);
                add(part, now.scale, d);
            }
            run<4>(part, left[1], 0, at + other + A_BOX, ends);
            if (!own.whole)
                now = next[1];
            stages::advance(stage, phase);
            if (step == steps)
                break;
            barrier_wait(full + stage * 8, phase);
            if (!own.whole)
                own.read(k + 64, next[1]);
            wgmma_wait<1>();
            own.widen(gemm_uniform(base + stage * STAGE) + panel, 0, next[0].zero, next[0].zero, left[0]);
            wgmma_wait<0>();
            wgmma_pin(part);
            this->release(last);
            add(part, now.scale, d);
            run<4>(part, left[0], 0, gemm_uniform(base + stage * STAGE) + other, true);
        }
        wgmma_wait<0>();
        wgmma_pin(part);
        this->release(stage ? stage - 1 : STAGES - 1);
        add(part, now.scale, d);
    }

    /* Starts the products of COUNT times 16 k's of a block, from the first-th on, with the box of a at `box`. */
    template <int COUNT> __device__ __forceinline__ static void
    run(float (&part)[ROWS / 2], const uint32_t (&left)[4][4], int first, uint32_t box, bool begins)
    {
        const uint64_t a = wgmma_tile(box, 16) + first * 2;
        wgmma_pin(part);
        wgmma_begin();
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            gemm_left<T, ROWS>::run(part, left[first + i], a + i * 2, !begins || i > 0);
        wgmma_commit();
        wgmma_pin(part);
    }

    __device__ __forceinline__ static void add(const float (&part)[ROWS / 2], const float (&scale)[2],
                                               float (&d)[ROWS / 2])
    {
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++)
            d[i] = __fmaf_rn(part[i], scale[i / 2 % 2], d[i]);
    }
};

#endif
