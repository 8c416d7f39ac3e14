/* gemm_codes_cases_test.c - cases of gemm's CUDA kernels for i4 and i8 weights in groups: each names the kernel that
 * has to take it. SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cases_test.h"

/* Few rows with weights in groups: all of k's ends, groups that are a chunk's k's, more, fewer, or all. */
static void few_rows(void)
{
    static const int rows[] = {1, 2, 7, 8, 9, 16, 17, 40, 64}, columns[] = {1, 9, 16, 48, 130};
    static const int ks[] = {32, 128, 160, 1056, 4192};
    static const int groups[2][6] = {{128, 32, 384, 96, 64, 5000}, {64, 128, 192, 64, 320, 5000}};
    static const char *const names[2][2][2] = {
        {{"few rows f16 i4", "few rows f16 i8"}, {"few rows bf16 i4", "few rows bf16 i8"}},
        {{"few rows tma f16_i4", "few rows tma f16_i8"}, {"few rows tma bf16_i4", "few rows tma bf16_i8"}}};
    for (int i = 0; i < 144; i++) {
        const bool bytes = i % 3 == 2;
        spec s = {.a = i % 2 ? SAKER_BF16 : SAKER_F16, .b = bytes ? SAKER_I8 : SAKER_I4, .lb = COLS};
        s.m = rows[i % 9];
        s.n = columns[i / 2 % 5];
        s.k = ks[i / 3 % 5];
        s.scaling = SAKER_GEMM_SCALE_GROUP;
        s.group = groups[bytes][i / 5 % 6];
        s.zero = (saker_type[]){0, SAKER_I8, SAKER_F32}[i / 4 % 3];
        s.d = (saker_type[]){s.a, SAKER_F32, SAKER_F16}[i / 7 % 3];
        s.only_b_scale = i % 4 != 1;
        if (i % 5 == 2 && s.zero != SAKER_F32) /* f32 zero points make NaN of one: NUMERICS.md */
            s.fill = SUITE_ONE_INF;
        const bool hopper = s.zero != SAKER_F32 && (s.group >= s.k || s.group % 32 == 0);
        s.cuda = names[hopper][i % 2][bytes];
        switch (i / 11 % 6) {
        case 1:
            s.bias = SAKER_BF16;
            s.act = SAKER_ACT_GELU;
            s.pre = SAKER_F32;
            break;
        case 2:
            s.n += s.n % 2;
            s.gated = i % 2 ? SAKER_GATED_HALVES : SAKER_GATED_INTERLEAVED;
            s.act = SAKER_ACT_SILU;
            break;
        case 3:
            s.c = s.d;
            s.beta = 0.5f;
            s.alpha = -2.0f;
            break;
        case 4:
            s.batch = i % 2 ? BOTH : CROSS;
            s.all_scales = i / 2 % 2;
            s.bias = SAKER_F32;
            s.bias_rows = 1;
            if (s.batch == CROSS) /* two dimensions */
                s.cuda = names[0][i % 2][bytes];
            break;
        case 5:
            s.ld = COLS;
            s.lb = bytes ? TALL : COLS;
            s.la = WIDE;
            break;
        }
        gemm_case(s);
    }
}

/* Many rows with weights in groups: ends of k, of a's boxes, of pairs of tiles of columns, several tiles to a block. */
static void many_rows(void)
{
    static const int rows[] = {65, 128, 130, 200, 321}, columns[] = {1, 64, 130, 272, 400}, ks[] = {32, 128, 352, 1056};
    static const int groups[] = {128, 64, 192, 5000, 32, 96};
    static const char *const names[2][2] = {{"tma f16_i4 kk", "tma f16_i8 kk"}, {"tma bf16_i4 kk", "tma bf16_i8 kk"}};
    for (int i = 0; i < 72; i++) {
        const bool bytes = i % 3 == 2;
        spec s = {.a = i % 2 ? SAKER_BF16 : SAKER_F16, .b = bytes ? SAKER_I8 : SAKER_I4, .lb = COLS};
        s.m = rows[i % 5];
        s.n = columns[i / 2 % 5];
        s.k = ks[i / 3 % 4];
        s.scaling = SAKER_GEMM_SCALE_GROUP;
        s.group = groups[i / 5 % 6];
        s.zero = i / 4 % 2 ? SAKER_I8 : (saker_type)0;
        s.d = (saker_type[]){s.a, SAKER_F32, SAKER_F16}[i / 7 % 3];
        s.only_b_scale = i % 4 != 1;
        if (i % 5 == 2)
            s.fill = SUITE_ONE_INF;
        s.cuda = names[i % 2][bytes];
        if (i / 2 % 4) /* else tiles of few rows may be faster */
            s.schedule = SAKER_GEMM_PERSISTENT;
        switch (i / 11 % 6) {
        case 1:
            s.bias = SAKER_BF16;
            s.act = SAKER_ACT_GELU;
            break;
        case 2:
            s.n += s.n % 2;
            s.gated = i % 2 ? SAKER_GATED_HALVES : SAKER_GATED_INTERLEAVED;
            s.act = SAKER_ACT_SILU;
            break;
        case 3:
            s.c = s.d;
            s.beta = 0.5f;
            s.alpha = -2.0f;
            break;
        case 4:
            s.batch = BOTH;
            s.all_scales = i / 2 % 2;
            s.bias = SAKER_F32;
            s.bias_rows = 1;
            break;
        case 5:
            s.ld = COLS;
            s.la = WIDE;
            s.pre = SAKER_F32;
            break;
        }
        gemm_case(s);
    }
}

/* More tiles than blocks, of 16 columns the last: as few k's as there are and so many that stages come around, gates in
 * halves, k cut over a cluster; and rows of tiles below each other. */
static void few_tiles(void)
{
    enum { BLOCKS = 132, WIDE_N = BLOCKS * 64 + 16 }; /* a tile for each block of an H200, and one more */
    spec s = {.a = SAKER_BF16, .b = SAKER_I4, .d = SAKER_BF16, .m = 7, .n = WIDE_N, .k = 64, .lb = COLS};
    s.use = SUITE_CHECK | SUITE_GPU_SIZED;
    s.scaling = SAKER_GEMM_SCALE_GROUP;
    s.group = 64;
    s.only_b_scale = true;
    s.cuda = "few rows tma bf16_i4 kk 16";
    gemm_case(s);
    s.zero = SAKER_I8;
    s.act = SAKER_ACT_SILU;
    s.gated = SAKER_GATED_HALVES;
    s.n = 2 * WIDE_N;
    s.k = 160;
    gemm_case(s);
    s.act = s.gated = 0;
    s.n = WIDE_N;
    s.k = 2336; /* clusters of two are faster */
    s.group = 128;
    gemm_case(s);
    s.bias = SAKER_F32;
    s.m = 17;
    s.k = 1408;
    s.group = 96;
    s.cuda = "few rows tma bf16_i4 kk 64";
    gemm_case(s);
    s.bias = (saker_type)0;
    s.a = s.d = SAKER_F16;
    s.b = SAKER_I8;
    s.m = 16;
    s.k = 1072;
    s.group = 192;
    s.cuda = "few rows tma f16_i8 kk 16";
    gemm_case(s);
}

/* k that has to be cut over a cluster: the kernel of few rows, whose tiles lie below each other then. */
static void few_of_many_rows(void)
{
    static const int rows[] = {65, 130, 257, 448, 512}, columns[] = {9, 64, 272, 400}, ks[] = {96, 256, 704, 2080};
    static const int groups[] = {128, 64, 5000, 32};
    static const char *const names[2][2] = {{"few rows tma f16_i4 kk 64", "few rows tma f16_i8 kk 64"},
                                            {"few rows tma bf16_i4 kk 64", "few rows tma bf16_i8 kk 64"}};
    for (int i = 0; i < 20; i++) {
        const bool bytes = i % 3 == 2;
        spec s = {.a = i % 2 ? SAKER_BF16 : SAKER_F16, .b = bytes ? SAKER_I8 : SAKER_I4, .lb = COLS};
        s.m = rows[i % 5];
        s.n = columns[i / 2 % 4];
        s.k = ks[i / 3 % 4];
        s.scaling = SAKER_GEMM_SCALE_GROUP;
        s.group = groups[i / 5];
        s.zero = i / 4 % 2 ? SAKER_I8 : (saker_type)0;
        s.d = i % 7 < 4 ? s.a : SAKER_F32;
        s.only_b_scale = i % 4 != 1;
        s.schedule = SAKER_GEMM_SPLIT_K;
        s.cuda = names[i % 2][bytes];
        if (i % 6 == 4) {
            s.batch = BOTH;
            s.all_scales = true;
            s.k = 160;
        } else if (i % 6 == 5) {
            s.n += s.n % 2;
            s.gated = i % 4 == 1 ? SAKER_GATED_HALVES : SAKER_GATED_INTERLEAVED;
            s.act = SAKER_ACT_SILU;
        }
        gemm_case(s);
    }
    spec s = {.a = SAKER_F16, .b = SAKER_I4, .d = SAKER_F16, .m = 130, .n = 45 * 64 + 16, .k = 96, .lb = COLS};
    s.use = SUITE_CHECK | SUITE_GPU_SIZED; /* 138 tiles: more than blocks, too */
    s.scaling = SAKER_GEMM_SCALE_GROUP;
    s.group = 32;
    s.only_b_scale = true;
    s.schedule = SAKER_GEMM_SPLIT_K;
    s.cuda = names[0][0];
    gemm_case(s);
}

/* More tiles than blocks, and more rows of them than are walked together. */
static void many_tiles(void)
{
    spec s = {.a = SAKER_BF16, .b = SAKER_I4, .d = SAKER_BF16, .m = 1100, .n = 2104, .k = 320, .lb = COLS};
    s.scaling = SAKER_GEMM_SCALE_GROUP;
    s.group = 64;
    s.zero = SAKER_I8;
    s.only_b_scale = true;
    s.cuda = "tma bf16_i4 kk";
    gemm_case(s);
    s.b = SAKER_I8;
    s.m = 2200;
    s.n = 1000;
    s.k = 208;
    s.group = 128;
    s.act = SAKER_ACT_SILU;
    s.gated = SAKER_GATED_HALVES;
    s.cuda = "tma bf16_i8 kk";
    gemm_case(s);
}

void gemm_codes_cases(void)
{
    few_rows();
    few_tiles();
    few_of_many_rows();
    many_rows();
    many_tiles();
}
