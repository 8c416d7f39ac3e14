/* gemm_skinny_widen_neon_cpu.h - one or two rows of bf16 times eight columns of i8 or i4 weights in groups: the weights
 * become bf16 in registers, on their way to BFMMLA.
 * SPDX-License-Identifier: Apache-2.0
 *
 * What limits this is the number of vector instructions for a weight, and on which of the four pipes the core puts
 * them. It sends an instruction after the one whose result it waits for; tables have two of the pipes, so what follows
 * a table at once shares those two with it (8 instructions in 4 cycles, where all pipes need 2). Hence assembly, and a
 * pipeline: a unit (16 k's of two columns, one link of their chain of sums) is multiplied while the next ones are at
 * earlier stages of becoming bf16, and bytes are joined a unit or two after their tables.
 *
 * Registers: 0 to 3 are a's, for each four k's of a unit; 4 and 5 tables (i8: 4 and 6, a table and a mask); 18 to 21
 * the unit as bf16, 22 to 25 sums of four pairs of columns. */
#ifndef SKR_GEMM_SKINNY_WIDEN_NEON_CPU_H
#define SKR_GEMM_SKINNY_WIDEN_NEON_CPU_H

#include <stddef.h>

#include "../../cpu/gemm/widen_neon.h"
#include "gemm_cpu.h"

enum { WIDE = 8, WIDE_UNIT = 16, WIDE_AHEAD = 768 }; /* columns; k values of a unit; bytes that are fetched ahead */

#if defined(SKR_LEVEL_neonmm)

/* Eight columns over some groups of k. */
typedef struct wide_run {
    const uint8_t *b[WIDE];
    const uint8_t *a;    /* two rows: four k's of one, the same of the other, and so on */
    int64_t groups;      /* at least one */
    int64_t units;       /* of a group; at least two */
    const float *scales; /* of the first group's columns; each next group's are scale_row further */
    int64_t scale_row;
} wide_run;

/* What runs add to: four blocks of two rows and two columns. */
typedef struct wide_sums {
    _Alignas(64) float t[2 * WIDE]; /* of the groups of a k block so far */
    uint8_t room[WIDE * WIDE_UNIT]; /* for weights on their way from the integer side */
    float total[2 * WIDE];          /* of the k blocks before */
    int64_t left, of_block;         /* groups until the k block's end; of a k block */
    int64_t last, next; /* from `last` bytes of this run on, what will be read soon is `next` bytes further */
} wide_sums;
_Static_assert(offsetof(wide_sums, room) == 64 && offsetof(wide_sums, total) == 192 &&
                   offsetof(wide_sums, left) == 256 && offsetof(wide_sums, last) == 272,
               "the assembly says so");

#define WIDE_MULTIPLY(acc, a, v) "bfmmla v" #acc ".4s, v" #a ".8h, v" #v ".8h\n"
#define WIDE_ADVANCE(shift)                                                                                            \
    "subs %[left], %[left], #1\n" /* after the last unit there is none to load: that one again */                      \
    "cset %[x], gt\n"                                                                                                  \
    "add %[at], %[at], %[x], lsl #" #shift "\n"

/* i4. The integer side does what it can, while the vector pipes are busy: it loads 8 bytes of two columns, splits them
 * into nibbles and stores both columns' side by side, two units' time before they are loaded as vectors. Those with an
 * even k are first looked up in the tables and joined into bf16, then the odd ones: so the k's of a unit come as
 * 0 4 8 12, 1 5 9 13, 2 6 10 14, 3 7 11 15, which is the order of the panels (turn_ks), too.
 * A slot multiplies a unit, looks up the second next and loads the fourth next; even units use the registers 6, 7 and
 * 10 to 13, odd ones 8, 9 and 14 to 17. The order within is the best of some thousand. */
#define NIBBLE_CONSTANTS "ldp q4, q5, [%[tables]]\n"
#define NIBBLE_BYTES(x, y, pair)                                                                                       \
    "ldr %[x], [%[b" #x "], %[at]]\n"                                                                                  \
    "ldr %[y], [%[b" #y "], %[at]]\n"                                                                                  \
    "and %[p], %[x], #0x0f0f0f0f0f0f0f0f\n"                                                                            \
    "and %[q], %[y], #0x0f0f0f0f0f0f0f0f\n"                                                                            \
    "and %[x], %[mask], %[x], lsr #4\n"                                                                                \
    "and %[y], %[mask], %[y], lsr #4\n"                                                                                \
    "stp %[p], %[q], [%[t], #64 + " #pair " * 32]\n"                                                                   \
    "stp %[x], %[y], [%[t], #64 + " #pair " * 32 + 16]\n"
#define NIBBLE_LOAD(even, odd, pair)                                                                                   \
    "ldr q" #even ", [%[t], #64 + " #pair " * 32]\n"                                                                   \
    "ldr q" #odd ", [%[t], #64 + " #pair " * 32 + 16]\n"
#define NIBBLE_LOOK(table, to, index)   "tbl v" #to ".16b, {v" #table ".16b}, v" #index ".16b\n"
#define NIBBLE_JOIN(trn, to, low, high) #trn " v" #to ".16b, v" #low ".16b, v" #high ".16b\n"
#define NIBBLE_SLOT(acc, bx, by, pair, even, odd, low0, high0, low1, high1)                                            \
    NIBBLE_JOIN(trn2, 21, low1, high1)                                                                                 \
    NIBBLE_JOIN(trn1, 18, low0, high0)                                                                                 \
    NIBBLE_JOIN(trn1, 20, low1, high1)                                                                                 \
    WIDE_MULTIPLY(acc, 0, 18)                                                                                          \
    NIBBLE_JOIN(trn2, 19, low0, high0)                                                                                 \
    NIBBLE_LOOK(5, high0, even)                                                                                        \
    NIBBLE_LOOK(4, low0, even)                                                                                         \
    NIBBLE_LOOK(4, low1, odd)                                                                                          \
    "ldr q" #even ", [%[t], #64 + " #pair " * 32]\n"                                                                   \
    "ldr %[y], [%[b" #by "], %[at]]\n"                                                                                 \
    "and %[q], %[y], #0x0f0f0f0f0f0f0f0f\n"                                                                            \
    "and %[y], %[mask], %[y], lsr #4\n"                                                                                \
    "ldr %[x], [%[b" #bx "], %[at]]\n" NIBBLE_LOOK(                                                                    \
        5, high1, odd) "ldr q" #odd ", [%[t], #64 + " #pair " * 32 + 16]\n" WIDE_MULTIPLY(acc, 1, 20)                  \
        WIDE_MULTIPLY(acc, 2, 19) WIDE_MULTIPLY(acc, 3, 21) "and %[p], %[x], #0x0f0f0f0f0f0f0f0f\n"                    \
                                                            "stp %[p], %[q], [%[t], #64 + " #pair " * 32]\n"           \
                                                            "and %[x], %[mask], %[x], lsr #4\n"                        \
                                                            "stp %[x], %[y], [%[t], #64 + " #pair " * 32 + 16]\n"
#define NIBBLE_FOUR NIBBLE_BYTES(0, 1, 0) NIBBLE_BYTES(2, 3, 1) NIBBLE_BYTES(4, 5, 2) NIBBLE_BYTES(6, 7, 3)
#define NIBBLE_BOTH(even, odd, low0, high0, low1, high1)                                                               \
    NIBBLE_LOOK(4, low0, even)                                                                                         \
    NIBBLE_LOOK(5, high0, even) NIBBLE_LOOK(4, low1, odd) NIBBLE_LOOK(5, high1, odd)
#define NIBBLE_PRIME                                                                                                   \
    NIBBLE_FOUR                                                                                                        \
    NIBBLE_LOAD(6, 7, 0)                                                                                               \
    NIBBLE_LOAD(8, 9, 1)                                                                                               \
    NIBBLE_BOTH(6, 7, 10, 11, 12, 13)                                                                                  \
    NIBBLE_BOTH(8, 9, 14, 15, 16, 17) NIBBLE_LOAD(6, 7, 2) NIBBLE_LOAD(8, 9, 3) WIDE_ADVANCE(3) NIBBLE_FOUR
#define NIBBLE_UNIT                                                                                                    \
    WIDE_ADVANCE(3)                                                                                                    \
    NIBBLE_SLOT(22, 0, 1, 0, 6, 7, 10, 11, 12, 13)                                                                     \
    NIBBLE_SLOT(23, 2, 3, 1, 8, 9, 14, 15, 16, 17)                                                                     \
    NIBBLE_SLOT(24, 4, 5, 2, 6, 7, 10, 11, 12, 13)                                                                     \
    NIBBLE_SLOT(25, 6, 7, 3, 8, 9, 14, 15, 16, 17)

/* i8. The integer side puts four bytes of one column beside four of the other. A number's leading zeros give its
 * exponent and shift it into its place (widen_i8). A slot multiplies a unit, finds both bytes of the next one's
 * numbers, loads the second next and counts its zeros; the two sets of registers (numbers, low bytes, leading zeros,
 * high bytes of half a unit, the same of the other half) take turns. */
#define BYTE_EVEN              5, 7, 8, 9, 10, 11, 12, 13
#define BYTE_ODD               14, 15, 16, 17, 26, 27, 28, 29
#define BYTE_CONSTANTS         "ldr q4, [%[tables]]\nldr q6, [%[tables], #16]\nadd %[q], %[at], #8\n"
#define BYTE_ADVANCE           WIDE_ADVANCE(4) "add %[q], %[at], #8\n"
#define BYTE_ROOM(place, half) "[%[t], #64 + " #place " * 32 + " #half " * 16]\n"
#define BYTE_BESIDE(bx, by, at, place, half)                                                                           \
    "ldr %[x], [%[b" #bx "], %[" #at "]]\n"                                                                            \
    "ldr %[y], [%[b" #by "], %[" #at "]]\n"                                                                            \
    "mov %[p], %[x]\n"                                                                                                 \
    "bfi %[p], %[y], #32, #32\n"                                                                                       \
    "bfxil %[y], %[x], #32, #32\n"                                                                                     \
    "stp %[p], %[y], " BYTE_ROOM(place, half)
#define BYTE_PAIR(bx, by, place)      BYTE_BESIDE(bx, by, at, place, 0) BYTE_BESIDE(bx, by, q, place, 1)
#define BYTE_LOAD(v, place, half)     "ldr q" #v ", " BYTE_ROOM(place, half)
#define BYTE_ABS(low, v)              "abs v" #low ".16b, v" #v ".16b\n"
#define BYTE_ZEROS(n, low)            "clz v" #n ".16b, v" #low ".16b\n"
#define BYTE_SHIFT(low, n)            "ushl v" #low ".16b, v" #low ".16b, v" #n ".16b\n"
#define BYTE_LAST(low, n)             "sli v" #low ".16b, v" #n ".16b, #7\n"
#define BYTE_LOOK(high, n)            "tbl v" #high ".16b, {v4.16b}, v" #n ".16b\n"
#define BYTE_SIGN(high, v)            "bit v" #high ".16b, v" #v ".16b, v6.16b\n"
#define BYTE_JOIN(zip, to, low, high) #zip " v" #to ".16b, v" #low ".16b, v" #high ".16b\n"
/* Sets of registers: this unit's and the second next's, the next one's. */
#define BYTE_SLOT(...) BYTE_SLOT_OF(__VA_ARGS__)
#define BYTE_SLOT_OF(acc, bx, by, place, v0, l0, n0, h0, v1, l1, n1, h1, V0, L0, N0, H0, V1, L1, N1, H1)               \
    BYTE_LOAD(v0, place, 0)                                                                                            \
    BYTE_SHIFT(L1, N1)                                                                                                 \
    BYTE_JOIN(zip1, 18, l0, h0)                                                                                        \
    BYTE_JOIN(zip2, 19, l0, h0)                                                                                        \
    BYTE_ABS(l0, v0)                                                                                                   \
    BYTE_LOAD(v1, place, 1)                                                                                            \
    BYTE_SHIFT(L0, N0)                                                                                                 \
    BYTE_LAST(L0, N0)                                                                                                  \
    BYTE_LAST(L1, N1)                                                                                                  \
    BYTE_LOOK(H0, N0)                                                                                                  \
    BYTE_PAIR(bx, by, place)                                                                                           \
    BYTE_SIGN(H0, V0)                                                                                                  \
    BYTE_ZEROS(n0, l0)                                                                                                 \
    BYTE_LOOK(H1, N1)                                                                                                  \
    BYTE_JOIN(zip1, 20, l1, h1)                                                                                        \
    BYTE_JOIN(zip2, 21, l1, h1)                                                                                        \
    BYTE_ABS(l1, v1)                                                                                                   \
    BYTE_ZEROS(n1, l1)                                                                                                 \
    BYTE_SIGN(H1, V1)                                                                                                  \
    WIDE_MULTIPLY(acc, 0, 18)                                                                                          \
    WIDE_MULTIPLY(acc, 1, 19)                                                                                          \
    WIDE_MULTIPLY(acc, 2, 20)                                                                                          \
    WIDE_MULTIPLY(acc, 3, 21)
#define BYTE_SIZES(...) BYTE_SIZES_OF(__VA_ARGS__)
#define BYTE_SIZES_OF(place, v0, l0, n0, h0, v1, l1, n1, h1)                                                           \
    BYTE_LOAD(v0, place, 0)                                                                                            \
    BYTE_LOAD(v1, place, 1) BYTE_ABS(l0, v0) BYTE_ABS(l1, v1) BYTE_ZEROS(n0, l0) BYTE_ZEROS(n1, l1)
#define BYTE_BOTH(...) BYTE_BOTH_OF(__VA_ARGS__)
#define BYTE_BOTH_OF(v0, l0, n0, h0, v1, l1, n1, h1)                                                                   \
    BYTE_SHIFT(l0, n0)                                                                                                 \
    BYTE_SHIFT(l1, n1)                                                                                                 \
    BYTE_LAST(l0, n0)                                                                                                  \
    BYTE_LAST(l1, n1) BYTE_LOOK(h0, n0) BYTE_LOOK(h1, n1) BYTE_SIGN(h0, v0) BYTE_SIGN(h1, v1)
#define BYTE_PRIME                                                                                                     \
    BYTE_PAIR(0, 1, 0)                                                                                                 \
    BYTE_PAIR(2, 3, 1)                                                                                                 \
    BYTE_SIZES(0, BYTE_EVEN)                                                                                           \
    BYTE_BOTH(BYTE_EVEN)                                                                                               \
    BYTE_SIZES(1, BYTE_ODD)                                                                                            \
    BYTE_PAIR(4, 5, 0) BYTE_PAIR(6, 7, 1) BYTE_ADVANCE BYTE_PAIR(0, 1, 2) BYTE_PAIR(2, 3, 3)
#define BYTE_UNIT                                                                                                      \
    BYTE_SLOT(22, 4, 5, 0, BYTE_EVEN, BYTE_ODD)                                                                        \
    BYTE_SLOT(23, 6, 7, 1, BYTE_ODD, BYTE_EVEN)                                                                        \
    BYTE_ADVANCE                                                                                                       \
    BYTE_SLOT(24, 0, 1, 2, BYTE_EVEN, BYTE_ODD)                                                                        \
    BYTE_SLOT(25, 2, 3, 3, BYTE_ODD, BYTE_EVEN)

/* The group's sums, scaled, to what t holds. */
#define WIDE_SCALE(acc, pair)                                                                                          \
    "ldr d31, [%[scales], #" #pair " * 8]\n"                                                                           \
    "ldr q30, [%[t], #" #pair " * 16]\n"                                                                               \
    "dup v31.2d, v31.d[0]\n"                                                                                           \
    "fmla v30.4s, v" #acc ".4s, v31.4s\n"                                                                              \
    "str q30, [%[t], #" #pair " * 16]\n"

/* After a group. Its scales may be a line of their own, of 16 columns: the next one's on its way to L2 (rows of a
 * power-of-two width are in one set of L1). After the last of a k block: total += t, and t begins anew. */
#define WIDE_BLOCK(pair)                                                                                               \
    "ldr q30, [%[t], #" #pair " * 16]\n"                                                                               \
    "ldr q31, [%[t], #192 + " #pair " * 16]\n"                                                                         \
    "fadd v31.4s, v31.4s, v30.4s\n"                                                                                    \
    "str q31, [%[t], #192 + " #pair " * 16]\n"                                                                         \
    "str q22, [%[t], #" #pair " * 16]\n"
#define WIDE_SCALES                                                                                                    \
    WIDE_SCALE(22, 0)                                                                                                  \
    WIDE_SCALE(23, 1)                                                                                                  \
    WIDE_SCALE(24, 2)                                                                                                  \
    WIDE_SCALE(25, 3)                                                                                                  \
    "prfm pldl2keep, [%[scales], #64]\n"                                                                               \
    "add %[scales], %[scales], %[scale_row], lsl #2\n"                                                                 \
    "ldp %[x], %[y], [%[t], #256]\n"                                                                                   \
    "subs %[x], %[x], #1\n"                                                                                            \
    "csel %[y], %[y], %[x], eq\n"                                                                                      \
    "str %[y], [%[t], #256]\n"                                                                                         \
    "b.ne 4f\n"                                                                                                        \
    "movi v22.2d, #0\n" WIDE_BLOCK(0) WIDE_BLOCK(1) WIDE_BLOCK(2) WIDE_BLOCK(3) "4:\n"

/* Once a line: what comes WIDE_AHEAD bytes later, on its way to L1. After a column's end that is in the next eight. */
#define WIDE_FETCH                                                                                                     \
    "tst %[at], #63\n"                                                                                                 \
    "b.ne 3f\n"                                                                                                        \
    "ldp %[x], %[y], [%[t], #272]\n"                                                                                   \
    "cmp %[at], %[x]\n"                                                                                                \
    "csel %[x], %[y], xzr, ge\n"                                                                                       \
    "add %[x], %[x], %[at]\n"                                                                                          \
    "add %[x], %[x], %[ahead]\n"                                                                                       \
    "prfm pldl1keep, [%[b0], %[x]]\n"                                                                                  \
    "prfm pldl1keep, [%[b1], %[x]]\n"                                                                                  \
    "prfm pldl1keep, [%[b2], %[x]]\n"                                                                                  \
    "prfm pldl1keep, [%[b3], %[x]]\n"                                                                                  \
    "prfm pldl1keep, [%[b4], %[x]]\n"                                                                                  \
    "prfm pldl1keep, [%[b5], %[x]]\n"                                                                                  \
    "prfm pldl1keep, [%[b6], %[x]]\n"                                                                                  \
    "prfm pldl1keep, [%[b7], %[x]]\n"                                                                                  \
    "3:\n"
#define WIDE_OPERANDS                                                                                                  \
    "ldp q0, q1, [%[a]]\n"                                                                                             \
    "ldp q2, q3, [%[a], #32]\n"                                                                                        \
    "add %[a], %[a], #64\n"
#define WIDE_ZERO "movi v22.2d, #0\nmovi v23.2d, #0\nmovi v24.2d, #0\nmovi v25.2d, #0\n"
#define WIDE_RUN(name, table, constants, prime, unit)                                                                  \
    static void name(const wide_run *run, wide_sums *sums)                                                             \
    {                                                                                                                  \
        const uint8_t *a = run->a;                                                                                     \
        const float *scales = run->scales;                                                                             \
        int64_t groups = run->groups, left = groups * run->units, at = 0, n, x, y, p, q;                               \
        __asm__ volatile(constants prime "1:\n" WIDE_ZERO "mov %[n], %[units]\n"                                       \
                                         "2:\n" WIDE_OPERANDS WIDE_FETCH unit "subs %[n], %[n], #1\n"                  \
                                         "b.ne 2b\n" WIDE_SCALES "subs %[groups], %[groups], #1\n"                     \
                                         "b.ne 1b\n"                                                                   \
                         : [a] "+r"(a), [scales] "+r"(scales), [groups] "+r"(groups), [left] "+r"(left),               \
                           [at] "+r"(at), [n] "=&r"(n), [x] "=&r"(x), [y] "=&r"(y), [p] "=&r"(p), [q] "=&r"(q)         \
                         : [t] "r"(sums), [tables] "r"(table), [units] "r"(run->units),                                \
                           [scale_row] "r"(run->scale_row), [mask] "r"(0x0f0f0f0f0f0f0f0f), [ahead] "i"(WIDE_AHEAD),   \
                           [b0] "r"(run->b[0]), [b1] "r"(run->b[1]), [b2] "r"(run->b[2]), [b3] "r"(run->b[3]),         \
                           [b4] "r"(run->b[4]), [b5] "r"(run->b[5]), [b6] "r"(run->b[6]), [b7] "r"(run->b[7])          \
                         : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",   \
                           "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",  \
                           "v25", "v26", "v27", "v28", "v29", "v30", "v31");                                           \
    }
WIDE_RUN(wide_i4, widen_i4, NIBBLE_CONSTANTS, NIBBLE_PRIME, NIBBLE_UNIT)
WIDE_RUN(wide_i8, widen_i8, BYTE_CONSTANTS, BYTE_PRIME, BYTE_UNIT)
#undef WIDE_RUN

#endif

#endif
