/* gemm_skinny_widen_neon_cpu.h - one or two rows of bf16 times eight columns of i8 or i4 weights in groups: the weights
 * become bf16 in registers, on their way to BFMMLA.
 * SPDX-License-Identifier: Apache-2.0
 *
 * What limits this is the number of vector instructions for a weight, and how many of them the core finds that do not
 * wait for each other. So the loop is in assembly, and a unit (16 k's of two columns, one link of their chain of sums)
 * is multiplied while the next ones are at earlier stages of becoming bf16: no instruction needs what the one before it
 * makes. (The compilers' order of the same instructions took 1.3 times as long.)
 *
 * Registers: 0 to 3 are a's, for each four k's of a unit; 4 to 6 tables and masks; 10 to 13 low and high bytes of two
 * times eight numbers, 16 to 19 the unit as bf16, 22 to 25 sums of four pairs of columns. */
#ifndef SKR_GEMM_SKINNY_WIDEN_NEON_CPU_H
#define SKR_GEMM_SKINNY_WIDEN_NEON_CPU_H

#include "../../cpu/gemm/widen_neon.h"
#include "gemm_cpu.h"

enum { WIDE = 8, WIDE_UNIT = 16 }; /* columns; k values of a unit */

#if defined(SKR_LEVEL_neonmm)

/* Eight columns over some groups of k. */
typedef struct wide_run {
    const uint8_t *b[WIDE];
    const uint8_t *a;    /* two rows: four k's of one, the same of the other, and so on */
    int64_t groups;      /* at least one */
    int64_t units;       /* of a group; at least one */
    const float *scales; /* of the first group's columns; each next group's are scale_row further */
    int64_t scale_row;
} wide_run;

/* Half a unit's two links of the chain in acc; its registers take the next unit's bytes from low and high. */
#define WIDE_MULTIPLY(acc, a0, a1, v0, v1, low, high)                                                                  \
    "bfmmla v" #acc ".4s, v" #a0 ".8h, v" #v0 ".8h\n"                                                                  \
    "zip1 v" #v0 ".16b, v" #low ".16b, v" #high ".16b\n"                                                               \
    "bfmmla v" #acc ".4s, v" #a1 ".8h, v" #v1 ".8h\n"                                                                  \
    "zip2 v" #v1 ".16b, v" #low ".16b, v" #high ".16b\n"
#define WIDE_JOIN                                                                                                      \
    "zip1 v16.16b, v10.16b, v12.16b\n"                                                                                 \
    "zip2 v17.16b, v10.16b, v12.16b\n"                                                                                 \
    "zip1 v18.16b, v11.16b, v13.16b\n"                                                                                 \
    "zip2 v19.16b, v11.16b, v13.16b\n"
#define WIDE_ADVANCE(shift)                                                                                            \
    "subs %[left], %[left], #1\n" /* after the last unit there is none to load: that one again */                      \
    "cset %[more], ne\n"                                                                                               \
    "add %[at], %[at], %[more], lsl #" #shift "\n"

/* i4. Stages: bytes of two columns, four k's by four, as nibbles in 20 and 21; these in the order of k in 14 and 15;
 * looked up; joined; multiplied. */
#define NIBBLE_CONSTANTS      "ldp q4, q5, [%[tables]]\nldr q6, [%[tables], #32]\n"
#define NIBBLE_LOAD(x, y)     "ldr d7, [%[b" #x "], %[at]]\nldr d8, [%[b" #y "], %[at]]\n"
#define NIBBLE_PAIR           "zip1 v9.8h, v7.8h, v8.8h\n"
#define NIBBLE_SPLIT          "and v20.16b, v9.16b, v6.16b\nushr v21.16b, v9.16b, #4\n"
#define NIBBLE_ORDER(half, i) #half " v" #i ".16b, v20.16b, v21.16b\n"
#define NIBBLE_LOOK(low, high, i)                                                                                      \
    "tbl v" #low ".16b, {v4.16b}, v" #i ".16b\n"                                                                       \
    "tbl v" #high ".16b, {v5.16b}, v" #i ".16b\n"
#define NIBBLE_SLOT(acc, x, y)                                                                                         \
    NIBBLE_LOAD(x, y)                                                                                                  \
    NIBBLE_PAIR                                                                                                        \
    WIDE_MULTIPLY(acc, 0, 1, 16, 17, 10, 12)                                                                           \
    NIBBLE_LOOK(10, 12, 14)                                                                                            \
    NIBBLE_ORDER(zip1, 14)                                                                                             \
    WIDE_MULTIPLY(acc, 2, 3, 18, 19, 11, 13)                                                                           \
    NIBBLE_LOOK(11, 13, 15)                                                                                            \
    NIBBLE_ORDER(zip2, 15)                                                                                             \
    NIBBLE_SPLIT
#define NIBBLE_START(x, y) NIBBLE_LOAD(x, y) NIBBLE_PAIR NIBBLE_SPLIT
#define NIBBLE_INDEX       NIBBLE_ORDER(zip1, 14) NIBBLE_ORDER(zip2, 15)
#define NIBBLE_BOTH        NIBBLE_LOOK(10, 12, 14) NIBBLE_LOOK(11, 13, 15)
#define NIBBLE_PRIME                                                                                                   \
    NIBBLE_START(0, 1)                                                                                                 \
    NIBBLE_INDEX NIBBLE_START(2, 3) NIBBLE_BOTH NIBBLE_INDEX NIBBLE_START(4, 5)                                        \
        WIDE_JOIN NIBBLE_BOTH NIBBLE_INDEX NIBBLE_START(6, 7)
#define NIBBLE_UNIT                                                                                                    \
    WIDE_ADVANCE(3)                                                                                                    \
    NIBBLE_SLOT(22, 0, 1) NIBBLE_SLOT(23, 2, 3) NIBBLE_SLOT(24, 4, 5) NIBBLE_SLOT(25, 6, 7)

/* i8. Stages: bytes of two columns in 7 and 8, their sizes in 14 and 15, leading zeros in 20 and 21; both bytes of the
 * result; joined; multiplied. */
#define BYTE_CONSTANTS  "ldr q4, [%[tables]]\nldr q6, [%[tables], #16]\n"
#define BYTE_LOAD(x, y) "ldr q30, [%[b" #x "], %[at]]\nldr q31, [%[b" #y "], %[at]]\n"
#define BYTE_RESULT(low, high, v, size, n)                                                                             \
    "ushl v" #low ".16b, v" #size ".16b, v" #n ".16b\n"                                                                \
    "tbl v" #high ".16b, {v4.16b}, v" #n ".16b\n"                                                                      \
    "sli v" #low ".16b, v" #n ".16b, #7\n"                                                                             \
    "bit v" #high ".16b, v" #v ".16b, v6.16b\n"
#define BYTE_SIZE(zip, v, size) #zip " v" #v ".4s, v30.4s, v31.4s\nabs v" #size ".16b, v" #v ".16b\n"
#define BYTE_ZEROS              "clz v20.16b, v14.16b\nclz v21.16b, v15.16b\n"
#define BYTE_SLOT(acc, x, y)                                                                                           \
    BYTE_LOAD(x, y)                                                                                                    \
    WIDE_MULTIPLY(acc, 0, 1, 16, 17, 10, 12)                                                                           \
    BYTE_RESULT(10, 12, 7, 14, 20)                                                                                     \
    BYTE_SIZE(zip1, 7, 14)                                                                                             \
    WIDE_MULTIPLY(acc, 2, 3, 18, 19, 11, 13)                                                                           \
    BYTE_RESULT(11, 13, 8, 15, 21)                                                                                     \
    BYTE_SIZE(zip2, 8, 15)                                                                                             \
    BYTE_ZEROS
#define BYTE_START(x, y) BYTE_LOAD(x, y) BYTE_SIZE(zip1, 7, 14) BYTE_SIZE(zip2, 8, 15) BYTE_ZEROS
#define BYTE_BOTH        BYTE_RESULT(10, 12, 7, 14, 20) BYTE_RESULT(11, 13, 8, 15, 21)
#define BYTE_PRIME       BYTE_START(0, 1) BYTE_BOTH BYTE_START(2, 3) WIDE_JOIN BYTE_BOTH BYTE_START(4, 5)
#define BYTE_UNIT                                                                                                      \
    BYTE_SLOT(22, 6, 7)                                                                                                \
    WIDE_ADVANCE(4)                                                                                                    \
    BYTE_SLOT(23, 0, 1) BYTE_SLOT(24, 2, 3) BYTE_SLOT(25, 4, 5)

/* The group's sums, scaled, to what t holds. */
#define WIDE_SCALE(acc, pair)                                                                                          \
    "ldr d31, [%[scales], #" #pair " * 8]\n"                                                                           \
    "ldr q30, [%[t], #" #pair " * 16]\n"                                                                               \
    "dup v31.2d, v31.d[0]\n"                                                                                           \
    "fmla v30.4s, v" #acc ".4s, v31.4s\n"                                                                              \
    "str q30, [%[t], #" #pair " * 16]\n"

#define WIDE_RUN(name, table, constants, prime, unit)                                                                  \
    static void name(const wide_run *run, float *t)                                                                    \
    {                                                                                                                  \
        const uint8_t *a = run->a;                                                                                     \
        const float *scales = run->scales;                                                                             \
        int64_t groups = run->groups, left = groups * run->units, at = 0, n, more;                                     \
        __asm__ volatile(constants prime "1:\n"                                                                        \
                                         "movi v22.2d, #0\n"                                                           \
                                         "movi v23.2d, #0\n"                                                           \
                                         "movi v24.2d, #0\n"                                                           \
                                         "movi v25.2d, #0\n"                                                           \
                                         "mov %[n], %[units]\n"                                                        \
                                         "2:\n"                                                                        \
                                         "ldp q0, q1, [%[a]]\n"                                                        \
                                         "ldp q2, q3, [%[a], #32]\n"                                                   \
                                         "add %[a], %[a], #64\n" unit "subs %[n], %[n], #1\n"                          \
                                         "b.ne 2b\n" WIDE_SCALE(22, 0) WIDE_SCALE(23, 1) WIDE_SCALE(24, 2)             \
                                             WIDE_SCALE(25, 3) "add %[scales], %[scales], %[scale_row], lsl #2\n"      \
                                                               "subs %[groups], %[groups], #1\n"                       \
                                                               "b.ne 1b\n"                                             \
                         : [a] "+r"(a), [scales] "+r"(scales), [groups] "+r"(groups), [left] "+r"(left),               \
                           [at] "+r"(at), [n] "=&r"(n), [more] "=&r"(more)                                             \
                         : [t] "r"(t), [tables] "r"(table), [units] "r"(run->units), [scale_row] "r"(run->scale_row),  \
                           [b0] "r"(run->b[0]), [b1] "r"(run->b[1]), [b2] "r"(run->b[2]), [b3] "r"(run->b[3]),         \
                           [b4] "r"(run->b[4]), [b5] "r"(run->b[5]), [b6] "r"(run->b[6]), [b7] "r"(run->b[7])          \
                         : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11",   \
                           "v12", "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24",  \
                           "v25", "v30", "v31");                                                                       \
    }
WIDE_RUN(wide_i4, widen_i4, NIBBLE_CONSTANTS, NIBBLE_PRIME, NIBBLE_UNIT)
WIDE_RUN(wide_i8, widen_i8, BYTE_CONSTANTS, BYTE_PRIME, BYTE_UNIT)
#undef WIDE_RUN

#endif

#endif
