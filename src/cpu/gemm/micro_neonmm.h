/* micro_neonmm.h - register tiles of the matrix instructions of aarch64: BFMMLA and SMMLA.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An accumulator is a 2 x 2 block: two rows of a, two columns of b, summed over 4 (bf16) or 8 (i8) values of k. 8 x 12
 * needs 24 of them. Both instructions read the same panels: 64 bytes of a and 96 of b for each group of k.
 *
 * In assembly, because the compilers cannot be kept from spoiling this loop: gcc 12 copies accumulators around as soon
 * as it is unrolled (66 % of the peak, where this gives above 90 %). Register 8 + 4 * j + i is block (i, j); 0 to 3 are
 * rows of a, 4 to 7 columns of b. */
#ifndef SKR_CPU_MICRO_NEONMM_H
#define SKR_CPU_MICRO_NEONMM_H

#include "tile.h"

_Static_assert((int)neonmm_BF16_MR == 8 && (int)neonmm_BF16_NR == 12, "the tile is 8 x 12");
_Static_assert((int)neonmm_I8_MR == 8 && (int)neonmm_I8_NR == 12, "the tile is 8 x 12");

/* f of every accumulator. */
#define MM_FOUR(f, r0, r1, r2, r3) f(r0) f(r1) f(r2) f(r3)
#define MM_ALL(f)                                                                                                      \
    MM_FOUR(f, 8, 9, 10, 11)                                                                                           \
    MM_FOUR(f, 12, 13, 14, 15)                                                                                         \
    MM_FOUR(f, 16, 17, 18, 19) MM_FOUR(f, 20, 21, 22, 23) MM_FOUR(f, 24, 25, 26, 27) MM_FOUR(f, 28, 29, 30, 31)
#define MM_ZERO(r) "movi v" #r ".2d, #0\n"
/* Two and four blocks of one pair of columns. */
#define MM_HALF(op, type, b, i, j, r0, r1)                                                                             \
    op " v" #r0 ".4s, v" #i "." type ", v" #b "." type "\n" op " v" #r1 ".4s, v" #j "." type ", v" #b "." type "\n"
#define MM_COLUMN(op, type, b, r0, r1, r2, r3) MM_HALF(op, type, b, 0, 1, r0, r1) MM_HALF(op, type, b, 2, 3, r2, r3)
/* a's panels follow each other and come from L2: asked for 512 bytes ahead (256, 1024: 2 to 3 % slower). */
#define MM_AHEAD(at) "prfm pldl1keep, [%[a], #" #at "]\n"
/* Groups of k in pairs. Operands are loaded half a group ahead, each pair of registers right after its last use: with
 * the loads at the head of a group the loop reaches 90 % of the peak, so 98 %. Where exactly the instructions stand
 * that are no products decides about 8 % of that: places found by trying (docs/notes/gemm.md). Within a pair, registers
 * 4 to 7 change parts. */
/* clang-format off */
#define MM_FIRST(op, type) \
    MM_COLUMN(op, type, 4, 8, 9, 10, 11) \
    MM_COLUMN(op, type, 5, 12, 13, 14, 15) "ldp q4, q5, [%[b], #64]\n" MM_AHEAD(512) \
    MM_COLUMN(op, type, 6, 16, 17, 18, 19) \
    MM_COLUMN(op, type, 7, 20, 21, 22, 23) "ldp q6, q7, [%[b], #96]\n" \
    MM_COLUMN(op, type, 4, 24, 25, 26, 27) \
    MM_HALF(op, type, 5, 0, 1, 28, 29) "ldp q0, q1, [%[a], #64]\n" \
    MM_HALF(op, type, 5, 2, 3, 30, 31) "ldp q4, q5, [%[b], #128]\n" "ldp q2, q3, [%[a], #96]\n"
#define MM_SECOND(op, type) \
    MM_COLUMN(op, type, 6, 8, 9, 10, 11) \
    MM_COLUMN(op, type, 7, 12, 13, 14, 15) "ldp q6, q7, [%[b], #160]\n" MM_AHEAD(576) \
    MM_COLUMN(op, type, 4, 16, 17, 18, 19) \
    MM_COLUMN(op, type, 5, 20, 21, 22, 23) "ldp q4, q5, [%[b], #192]\n" \
    MM_COLUMN(op, type, 6, 24, 25, 26, 27) \
    MM_HALF(op, type, 7, 0, 1, 28, 29) "ldp q0, q1, [%[a], #128]\n" "add %[a], %[a], #128\n" \
    MM_HALF(op, type, 7, 2, 3, 30, 31) "subs %[n], %[n], #2\n" \
    "ldp q6, q7, [%[b], #224]\n" "ldp q2, q3, [%[a], #32]\n" "add %[b], %[b], #192\n"
/* clang-format on */
/* The last group, as the first or the second of its pair: nothing is loaded beyond it. */
#define MM_LAST_FIRST(op, type)                                                                                        \
    MM_COLUMN(op, type, 4, 8, 9, 10, 11)                                                                               \
    MM_COLUMN(op, type, 5, 12, 13, 14, 15)                                                                             \
    "ldp q4, q5, [%[b], #64]\n" MM_COLUMN(op, type, 6, 16, 17, 18, 19) MM_COLUMN(op, type, 7, 20, 21, 22, 23)          \
        MM_COLUMN(op, type, 4, 24, 25, 26, 27) MM_COLUMN(op, type, 5, 28, 29, 30, 31)
#define MM_LAST_SECOND(op, type)                                                                                       \
    MM_COLUMN(op, type, 6, 8, 9, 10, 11)                                                                               \
    MM_COLUMN(op, type, 7, 12, 13, 14, 15)                                                                             \
    "ldp q6, q7, [%[b], #160]\n" MM_COLUMN(op, type, 4, 16, 17, 18, 19) MM_COLUMN(op, type, 5, 20, 21, 22, 23)         \
        MM_COLUMN(op, type, 6, 24, 25, 26, 27) MM_COLUMN(op, type, 7, 28, 29, 30, 31)
/* Rows 2i and 2i + 1 of the tile, 48 bytes each, from blocks r0 ... of i. */
#define MM_ROWS(i, r0, r1, r2, r3, r4, r5)                                                                             \
    "zip1 v0.2d, v" #r0 ".2d, v" #r1 ".2d\n"                                                                           \
    "zip1 v1.2d, v" #r2 ".2d, v" #r3 ".2d\n"                                                                           \
    "zip1 v2.2d, v" #r4 ".2d, v" #r5 ".2d\n"                                                                           \
    "zip2 v3.2d, v" #r0 ".2d, v" #r1 ".2d\n"                                                                           \
    "zip2 v4.2d, v" #r2 ".2d, v" #r3 ".2d\n"                                                                           \
    "zip2 v5.2d, v" #r4 ".2d, v" #r5 ".2d\n"                                                                           \
    "stp q0, q1, [%[t], #" #i " * 96]\n"                                                                               \
    "stp q2, q3, [%[t], #" #i " * 96 + 32]\n"                                                                          \
    "stp q4, q5, [%[t], #" #i " * 96 + 64]\n"

/* From operands of the first group of k in registers 0 to 7 to the sums of n groups; a and b end behind them. */
#define MM_SUMS(op, type)                                                                                              \
    "subs %[n], %[n], #3\n" /* pairs that have a group after them */                                                   \
    "b.lt 2f\n"                                                                                                        \
    "1:\n" MM_FIRST(op, type) MM_SECOND(op, type) "b.ge 1b\n"                                                          \
                                                  "2:\n"                                                               \
                                                  "tbnz %[n], #0, 3f\n" /* two are left, or one */                     \
        MM_LAST_FIRST(op, type) "add %[a], %[a], #64\n"                                                                \
                                "add %[b], %[b], #96\n"                                                                \
                                "b 4f\n"                                                                               \
                                "3:\n" MM_FIRST(op, type) MM_LAST_SECOND(op, type) "add %[a], %[a], #128\n"            \
                                                                                   "add %[b], %[b], #192\n"            \
                                                                                   "4:\n"

#define MM_CLOBBERS                                                                                                    \
    "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14",     \
        "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28", "v29",       \
        "v30", "v31"

#define MM_OPERANDS                                                                                                    \
    "ldp q0, q1, [%[a]]\n"                                                                                             \
    "ldp q2, q3, [%[a], #32]\n"                                                                                        \
    "ldp q4, q5, [%[b]]\n"                                                                                             \
    "ldp q6, q7, [%[b], #32]\n"
#define MM_TILE(op, type)                                                                                              \
    __asm__ volatile(MM_ALL(MM_ZERO) MM_OPERANDS MM_SUMS(op, type) MM_ROWS(0, 8, 12, 16, 20, 24, 28)                   \
                         MM_ROWS(1, 9, 13, 17, 21, 25, 29) MM_ROWS(2, 10, 14, 18, 22, 26, 30)                          \
                             MM_ROWS(3, 11, 15, 19, 23, 27, 31)                                                        \
                     : [n] "+&r"(groups), [a] "+&r"(a), [b] "+&r"(b)                                                   \
                     : [t] "r"(t)                                                                                      \
                     : MM_CLOBBERS)

static void micro_bf16(int64_t k, const uint16_t *a, const uint16_t *b, float *t)
{
    int64_t groups = k / 4;
    MM_TILE("bfmmla", "8h");
}

static void micro_i8(int64_t k, const int8_t *a, const int8_t *b, float *t)
{
    int64_t groups = k / 8;
    MM_TILE("smmla", "16b");
}

/* ---------------------------------------------------------------- sums that go on
 *
 * t in the order of the accumulators: block (i, j) is at 16 * j + 4 * i. */

#define MM_TAKE(pair, r0, r1, r2, r3)                                                                                  \
    "ldr d0, [%[factors], #" #pair " * 8]\n"                                                                           \
    "ldp q" #r0 ", q" #r1 ", [%[t], #" #pair " * 64]\n"                                                                \
    "ldp q" #r2 ", q" #r3 ", [%[t], #" #pair " * 64 + 32]\n"                                                           \
    "dup v0.2d, v0.d[0]\n"                                                                                             \
    "fmul v" #r0 ".4s, v" #r0 ".4s, v0.4s\n"                                                                           \
    "fmul v" #r1 ".4s, v" #r1 ".4s, v0.4s\n"                                                                           \
    "fmul v" #r2 ".4s, v" #r2 ".4s, v0.4s\n"                                                                           \
    "fmul v" #r3 ".4s, v" #r3 ".4s, v0.4s\n"
#define MM_PUT(pair, r0, r1, r2, r3)                                                                                   \
    "stp q" #r0 ", q" #r1 ", [%[t], #" #pair " * 64]\n"                                                                \
    "stp q" #r2 ", q" #r3 ", [%[t], #" #pair " * 64 + 32]\n"
#define MM_PAIRS(f)                                                                                                    \
    f(0, 8, 9, 10, 11) f(1, 12, 13, 14, 15) f(2, 16, 17, 18, 19) f(3, 20, 21, 22, 23) f(4, 24, 25, 26, 27)             \
        f(5, 28, 29, 30, 31)

/* t = t times the factors of its columns, and the sums. */
static void micro_bf16_on(int64_t k, const uint16_t *a, const uint16_t *b, const float *factors, float *t)
{
    int64_t groups = k / 4;
    __asm__ volatile(MM_PAIRS(MM_TAKE) MM_OPERANDS MM_SUMS("bfmmla", "8h") MM_PAIRS(MM_PUT)
                     : [n] "+&r"(groups), [a] "+&r"(a), [b] "+&r"(b)
                     : [t] "r"(t), [factors] "r"(factors)
                     : MM_CLOBBERS);
}

/* ---------------------------------------------------------------- several segments of k, with scales of columns
 *
 * t += sums * scales for one segment after the other, t in the order of the accumulators. A pair of columns has its two
 * scales twice in a row (mm_twice), one for each sum of a block.
 * Integers begin as the bits of 3 * 2^22, whose last place is 1, and end as those of a float that is so much more than
 * their sum: no conversion is needed, of which the core makes one a cycle. */

enum { MM_SUM_BITS = 22 }; /* i8: absolute values of a segment's sums up to 2^22 */

/* Arithmetic is what binds here, and stores take two of its four pipes: half of the accumulators begin anew by loads.
 * Sums lose their bias one pair before they are used, what is loaded comes half a pair ahead. */
#define MM_BIAS             "ldr q7, [%[bias]]\n"
#define MM_BIASED(r)        "mov v" #r ".16b, v7.16b\n"
#define MM_RELOADED(r0, r1) "ldp q" #r0 ", q" #r1 ", [%[bias]]\n"
#define MM_ZEROS(r0, r1)    MM_ZERO(r0) MM_ZERO(r1)
#define MM_LESS(r)          "fsub v" #r ".4s, v" #r ".4s, v7.4s\n"
#define MM_KEEP(r)
#define MM_ADD(to, r, s) "fmla v" #to ".4s, v" #r ".4s, v" #s ".4s\n"
/* One pair of columns, whose scales are in register s. Its accumulators begin anew, two by `again`, two by `begin`;
 * what is next is done in between. */
#define MM_SCALE(pair, s, begin, again, next_scales, next, next_t, r0, r1, r2, r3)                                     \
    "ldp q3, q4, [%[t], #" #pair " * 64 + 32]\n" next_scales next MM_ADD(1, r0, s)                                     \
        MM_ADD(2, r1, s) "stp q1, q2, [%[t], #" #pair " * 64]\n" again(r0, r1) next_t MM_ADD(3, r2, s)                 \
            MM_ADD(4, r3, s) "stp q3, q4, [%[t], #" #pair " * 64 + 32]\n" begin(r2) begin(r3)
#define MM_SCALES(pair, s) "ldr q" #s ", [%[scales], #" #pair " * 16]\n"
#define MM_T(pair)         "ldp q1, q2, [%[t], #" #pair " * 64]\n"
#define MM_SCALE_ALL(less, begin, again)                                                                               \
    MM_SCALES(0, 0)                                                                                                    \
    MM_T(0)                                                                                                            \
    MM_FOUR(less, 8, 9, 10, 11)                                                                                        \
    MM_SCALE(0, 0, begin, again, MM_SCALES(1, 5), MM_FOUR(less, 12, 13, 14, 15), MM_T(1), 8, 9, 10, 11)                \
    MM_SCALE(1, 5, begin, again, MM_SCALES(2, 0), MM_FOUR(less, 16, 17, 18, 19), MM_T(2), 12, 13, 14, 15)              \
    MM_SCALE(2, 0, begin, again, MM_SCALES(3, 5), MM_FOUR(less, 20, 21, 22, 23), MM_T(3), 16, 17, 18, 19)              \
    MM_SCALE(3, 5, begin, again, MM_SCALES(4, 0), MM_FOUR(less, 24, 25, 26, 27), MM_T(4), 20, 21, 22, 23)              \
    MM_SCALE(4, 0, begin, again, MM_SCALES(5, 5), MM_FOUR(less, 28, 29, 30, 31), MM_T(5), 24, 25, 26, 27)              \
    MM_SCALE(5, 5, begin, again, "", "", "", 28, 29, 30, 31)
#define MM_SEGMENTS(op, type, bias_of, less, begin, again)                                                             \
    __asm__ volatile(bias_of MM_ALL(begin) "0:\n" MM_OPERANDS "mov %[n], %[groups]\n" MM_SUMS(op, type)                \
                         bias_of MM_SCALE_ALL(less, begin, again) "add %[scales], %[scales], #96\n"                    \
                                                                  "subs %[segments], %[segments], #1\n"                \
                                                                  "b.ne 0b\n"                                          \
                     : [segments] "+&r"(segments), [a] "+&r"(a), [b] "+&r"(b), [scales] "+&r"(scales), [n] "=&r"(n)    \
                     : [t] "r"(t), [groups] "r"(groups), [bias] "r"(bias)                                              \
                     : MM_CLOBBERS)

/* k: of a segment. */
static void micro_bf16_scaled(int64_t segments, int64_t k, const void *a, const void *b, const float *scales, float *t)
{
    int64_t groups = k / 4, n;
    const float *bias = NULL;
    MM_SEGMENTS("bfmmla", "8h", "", MM_KEEP, MM_ZERO, MM_ZEROS);
}

static void micro_i8_scaled(int64_t segments, int64_t k, const void *a, const void *b, const float *scales, float *t)
{
    int64_t groups = k / 8, n;
    static const float bias[8] = {0x3p22f, 0x3p22f, 0x3p22f, 0x3p22f, 0x3p22f, 0x3p22f, 0x3p22f, 0x3p22f};
    MM_SEGMENTS("smmla", "16b", MM_BIAS, MM_LESS, MM_BIASED, MM_RELOADED);
}

static void micro_scaled(int kind, int64_t segments, int64_t k, const void *a, const void *b, const float *scales,
                         float *t)
{
    (kind == SKR_GEMM_BF16 ? micro_bf16_scaled : micro_i8_scaled)(segments, k, a, b, scales, t);
}

/* Scales of the columns of n segments, each once, become what micro_scaled takes. */
static void mm_twice(int64_t n, float *scales)
{
    for (int64_t pair = 6 * n - 1; pair >= 0; pair--) {
        float32x2_t two = vld1_f32(scales + 2 * pair);
        vst1q_f32(scales + 4 * pair, vcombine_f32(two, two));
    }
}

/* Rows of a tile in that order. */
static void mm_rows(const float *blocks, float *t)
{
    UNROLLED
    for (int i = 0; i < 4; i++)
        UNROLLED
    for (int j = 0; j < 6; j += 2) {
        const float *from = blocks + 16 * j + 4 * i;
        float64x2_t x = vreinterpretq_f64_f32(vld1q_f32(from)), y = vreinterpretq_f64_f32(vld1q_f32(from + 16));
        vst1q_f32(t + 24 * i + 2 * j, vreinterpretq_f32_f64(vzip1q_f64(x, y)));
        vst1q_f32(t + 24 * i + 12 + 2 * j, vreinterpretq_f32_f64(vzip2q_f64(x, y)));
    }
}

#endif
