/* micro_neon.h - the register tile of f32 on aarch64: 8 x 12, FMLA by element.
 * SPDX-License-Identifier: Apache-2.0
 *
 * FMLA takes one lane of a register as its factor, so nothing has to be broadcast. In assembly for the order of the
 * loads: each pair of registers is loaded anew right after its last use, up to a step of k ahead. Register
 * 8 + 8 * j + i holds row i, columns 4 * j ...; 0 to 3 are a's rows of two steps of k, 4 to 7 are b's columns. */
#ifndef SKR_CPU_MICRO_NEON_H
#define SKR_CPU_MICRO_NEON_H

#include "tile.h"

_Static_assert((int)neon_F32_MR == 8 && (int)neon_F32_NR == 12, "the tile is 8 x 12");

#define F32_LANES(b, a, r0, r1, r2, r3)                                                                                \
    "fmla v" #r0 ".4s, v" #b ".4s, v" #a ".s[0]\n"                                                                     \
    "fmla v" #r1 ".4s, v" #b ".4s, v" #a ".s[1]\n"                                                                     \
    "fmla v" #r2 ".4s, v" #b ".4s, v" #a ".s[2]\n"                                                                     \
    "fmla v" #r3 ".4s, v" #b ".4s, v" #a ".s[3]\n"
/* Column j of one step of k. */
#define F32_COLUMN0(b, a0, a1)   F32_LANES(b, a0, 8, 9, 10, 11) F32_LANES(b, a1, 12, 13, 14, 15)
#define F32_COLUMN1(b, a0, a1)   F32_LANES(b, a0, 16, 17, 18, 19) F32_LANES(b, a1, 20, 21, 22, 23)
#define F32_COLUMN2(b, a0, a1)   F32_LANES(b, a0, 24, 25, 26, 27) F32_LANES(b, a1, 28, 29, 30, 31)
#define F32_LOAD(x, y, from, at) "ldp q" #x ", q" #y ", [%[" #from "], #" #at "]\n"
/* a's panels follow each other and come from L2. */
#define F32_AHEAD(at) "prfm pldl1keep, [%[a], #" #at "]\n"
/* Four steps of k, whose first operands are there. NEXT: what is for the four that follow, loads and the count. */
/* clang-format off */
#define F32_FOUR(NEXT) \
    F32_COLUMN0(4, 0, 1) \
    F32_COLUMN1(5, 0, 1) F32_LOAD(4, 5, b, 64) \
    F32_COLUMN2(6, 0, 1) F32_LOAD(0, 1, a, 64) \
    F32_COLUMN0(7, 2, 3) F32_LOAD(6, 7, b, 96) \
    F32_COLUMN1(4, 2, 3) \
    F32_COLUMN2(5, 2, 3) F32_LOAD(4, 5, b, 128) F32_LOAD(2, 3, a, 96) F32_AHEAD(512) \
    F32_COLUMN0(6, 0, 1) F32_AHEAD(576) \
    F32_COLUMN1(7, 0, 1) F32_LOAD(6, 7, b, 160) \
    F32_COLUMN2(4, 0, 1) NEXT(F32_LOAD(0, 1, a, 128)) \
    F32_LANES(5, 2, 8, 9, 10, 11) F32_LANES(5, 3, 12, 13, 14, 15) \
    F32_LANES(6, 2, 16, 17, 18, 19) NEXT(F32_LOAD(4, 5, b, 192)) F32_LANES(6, 3, 20, 21, 22, 23) \
    F32_COLUMN2(7, 2, 3) NEXT("subs %[n], %[n], #1\n") NEXT(F32_LOAD(6, 7, b, 224)) NEXT(F32_LOAD(2, 3, a, 160)) \
    "add %[a], %[a], #128\n" "add %[b], %[b], #192\n"
/* clang-format on */
#define F32_YES(text) text
#define F32_NO(text)
#define F32_ZERO(r) "movi v" #r ".2d, #0\n"
#define F32_ROW(i, r0, r1, r2)                                                                                         \
    "stp q" #r0 ", q" #r1 ", [%[t], #" #i " * 48]\n"                                                                   \
    "str q" #r2 ", [%[t], #" #i " * 48 + 32]\n"

static void micro_f32(int64_t k, const float *a, const float *b, float *t)
{
    int64_t fours = k / 4, rest = k % 4;
    /* clang-format off */
    __asm__ volatile(
        F32_ZERO(8) F32_ZERO(9) F32_ZERO(10) F32_ZERO(11) F32_ZERO(12) F32_ZERO(13) F32_ZERO(14) F32_ZERO(15)
        F32_ZERO(16) F32_ZERO(17) F32_ZERO(18) F32_ZERO(19) F32_ZERO(20) F32_ZERO(21) F32_ZERO(22) F32_ZERO(23)
        F32_ZERO(24) F32_ZERO(25) F32_ZERO(26) F32_ZERO(27) F32_ZERO(28) F32_ZERO(29) F32_ZERO(30) F32_ZERO(31)
        "cbz %[n], 3f\n"
        F32_LOAD(0, 1, a, 0) F32_LOAD(4, 5, b, 0) F32_LOAD(6, 7, b, 32) F32_LOAD(2, 3, a, 32)
        "subs %[n], %[n], #1\n"
        "b.eq 2f\n"
        "1:\n"
        F32_FOUR(F32_YES)
        "b.ne 1b\n"
        "2:\n"
        F32_FOUR(F32_NO)
        "3:\n"
        "cbz %[rest], 5f\n"
        "4:\n"
        F32_LOAD(0, 1, a, 0) F32_LOAD(4, 5, b, 0)
        "ldr q6, [%[b], #32]\n"
        F32_COLUMN0(4, 0, 1) F32_COLUMN1(5, 0, 1) F32_COLUMN2(6, 0, 1)
        "subs %[rest], %[rest], #1\n"
        "add %[a], %[a], #32\n"
        "add %[b], %[b], #48\n"
        "b.ne 4b\n"
        "5:\n"
        F32_ROW(0, 8, 16, 24) F32_ROW(1, 9, 17, 25) F32_ROW(2, 10, 18, 26) F32_ROW(3, 11, 19, 27)
        F32_ROW(4, 12, 20, 28) F32_ROW(5, 13, 21, 29) F32_ROW(6, 14, 22, 30) F32_ROW(7, 15, 23, 31)
        : [n] "+&r"(fours), [rest] "+&r"(rest), [a] "+&r"(a), [b] "+&r"(b)
        : [t] "r"(t)
        : "memory", "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13",
          "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", "v28",
          "v29", "v30", "v31");
    /* clang-format on */
}

#endif
