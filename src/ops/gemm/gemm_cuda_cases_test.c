/* gemm_cuda_cases_test.c - cases of gemm for CUDA's tensor core kernels: every kernel, schedule and way to write d.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cases_test.h"

/* Tiles between 128 x 128 and 128 x 256: they take fewer waves than smaller ones would. Of plain products one
 * has more steps than stages, one takes two waves. */
static void middle_tile_cases(void)
{
    static const struct {
        saker_type type;
        int n, k;
        const char *kernel;
    } plain[] = {{SAKER_BF16, 1720, 328, "tma bf16 kk 128x144"}, {SAKER_F16, 1728, 72, "tma f16 kk 128x144"},
                 {SAKER_BF16, 1896, 72, "tma bf16 kk 128x160"},  {SAKER_F16, 1888, 72, "tma f16 kk 128x160"},
                 {SAKER_BF16, 5640, 72, "tma bf16 kk 128x224"},  {SAKER_F16, 2672, 72, "tma f16 kk 128x224"}};
    foreach (i, plain) {
        spec s = {.a = plain[i].type, .b = plain[i].type, .d = plain[i].type, .m = 1240, .lb = COLS};
        s.n = plain[i].n;
        s.k = plain[i].k;
        s.cuda = plain[i].kernel;
        gemm_case(s);
    }
    static const struct {
        saker_type type, d;
        int la, lb;
        const char *kernel;
    } kinds[] = {
        {SAKER_BF16, SAKER_BF16, ROWS, COLS, "tma bf16 kk 128x192"},
        {SAKER_BF16, SAKER_F16, ROWS, ROWS, "tma bf16 kn 128x192"},
        {SAKER_BF16, SAKER_BF16, COLS, COLS, "tma bf16 mk 128x192"},
        {SAKER_BF16, SAKER_F32, COLS, ROWS, "tma bf16 mn 128x192"},
        {SAKER_F16, SAKER_F16, ROWS, COLS, "tma f16 kk 128x192"},
        {SAKER_F16, SAKER_F16, ROWS, ROWS, "tma f16 kn 128x192"},
        {SAKER_F16, SAKER_F16, COLS, COLS, "tma f16 mk 128x192"},
        {SAKER_F16, SAKER_F16, COLS, ROWS, "tma f16 mn 128x192"},
        {SAKER_I8, SAKER_I32, ROWS, COLS, "tma i8 kk 128x192"},
        {SAKER_F32, SAKER_F32, ROWS, COLS, "tma tf32 kk 128x192"},
    };
    foreach (i, kinds)
        for (int options = 0; options < (kinds[i].d == SAKER_I32 ? 1 : 3); options++) {
            spec s = {.a = kinds[i].type, .b = kinds[i].type, .d = kinds[i].d, .m = 1240, .n = 2280, .k = 48};
            s.la = kinds[i].la;
            s.lb = kinds[i].lb;
            s.tf32 = kinds[i].type == SAKER_F32;
            s.cuda = kinds[i].kernel;
            s.bias = options ? SAKER_F32 : 0;
            s.act = options ? SAKER_ACT_SILU : 0;
            s.c = options == 2 ? SAKER_F32 : 0; /* in rows the kernel adds it, in columns a second one */
            s.beta = options == 2 ? 0.5f : 0.0f;
            gemm_case(s);
        }
}

/* Few tiles and many k's: k is cut over the blocks of a cluster. The last rows are one warpgroup's or both's, the last
 * columns nobody's, half a tile's, or a few; parts of k are of different lengths. */
static void spread_cases(void)
{
    static const struct {
        saker_type type, d;
        int m, n, k, lb, batch;
        const char *kernel;
    } all[] = {
        {SAKER_BF16, SAKER_BF16, 70, 72, 1000, COLS, ALONE, "tma bf16 kk 128x64 split-K in clusters"},
        {SAKER_BF16, SAKER_F16, 190, 128, 1544, COLS, BOTH, "tma bf16 kk 128x64 split-K in clusters"},
        {SAKER_BF16, SAKER_BF16, 260, 456, 968, COLS, ALONE, "tma bf16 kk 128x64 split-K in clusters"},
        {SAKER_BF16, SAKER_BF16, 129, 1304, 3000, COLS, ALONE, "tma bf16 kk 128x64 split-K in clusters"},
        {SAKER_BF16, SAKER_BF16, 100, 200, 2056, ROWS, BOTH, "tma bf16 kn 128x128 split-K in clusters"},
        {SAKER_F16, SAKER_F16, 128, 72, 1032, COLS, BOTH, "tma f16 kk 128x64 split-K in clusters"},
        {SAKER_F16, SAKER_BF16, 140, 680, 2056, COLS, ALONE, "tma f16 kk 128x64 split-K in clusters"},
        {SAKER_F16, SAKER_F16, 65, 520, 1000, ROWS, ALONE, "tma f16 kn 128x128 split-K in clusters"},
        {SAKER_E4M3, SAKER_BF16, 129, 136, 2000, COLS, ALONE, "tma e4m3_e4m3 kk 128x64 split-K in clusters"},
        {SAKER_F32, SAKER_BF16, 67, 120, 1000, COLS, ALONE, "tma tf32 kk 128x64 split-K in clusters"},
    };
    foreach (i, all) {
        spec s = {.a = all[i].type, .b = all[i].type, .d = all[i].d, .m = all[i].m, .n = all[i].n, .k = all[i].k};
        s.lb = all[i].lb;
        s.batch = all[i].batch;
        s.tf32 = all[i].type == SAKER_F32;
        s.alpha = i % 3 ? 0 : 0.5f;
        s.cuda = all[i].kernel;
        gemm_case(s);
    }
}

/* The last rows and columns of a tile, and tiles that have none: boxes of their own, in every layout. */
static void last_box_cases(void)
{
    static const struct {
        int m, n, gated;
    } ends[] = {{129, 264, 0}, {192, 200, 0}, {257, 72, 0},
                {300, 328, 0}, {385, 136, 0}, {100, 784, SAKER_GATED_HALVES}};
    foreach (i, ends)
        for (int l = 0; l < 4; l++) {
            spec s = {.a = SAKER_BF16, .b = SAKER_BF16, .d = SAKER_BF16, .n = ends[i].n, .k = 200};
            s.la = l & 1;
            s.lb = l >> 1;
            s.m = l & 1 ? (ends[i].m + 7) / 8 * 8 : ends[i].m;
            s.gated = ends[i].gated;
            s.act = ends[i].gated ? SAKER_ACT_SILU : 0;
            s.schedule = SAKER_GEMM_PERSISTENT;
            s.cuda = "tma bf16";
            gemm_case(s);
        }
}

/* Hopper's tensor cores: what the copy engine takes, in every layout, schedule and epilogue. */
static void tma_cases(void)
{
    static const char *const schedules[] = {"tma", "data-parallel", "persistent", "split-K", "stream-K"};
    static const int64_t sizes[][3] = {{1, 8, 8}, {3, 264, 72}, {64, 256, 64}, {130, 272, 200}, {260, 136, 136}};
    for (int f = 1; f < 3; f++)
        for (int l = 0; l < 4; l++)
            for (int schedule = 0; schedule <= SAKER_GEMM_STREAM_K; schedule++)
                for (int i = 0; i < 5; i++) {
                    spec s = {.a = floats[f], .b = floats[f], .d = floats[f], .la = l & 1, .lb = l >> 1};
                    s.m = l & 1 ? (sizes[i][0] + 7) / 8 * 8 : sizes[i][0];
                    s.n = sizes[i][1];
                    s.k = sizes[i][2];
                    s.schedule = schedule;
                    if (i != 3 && schedule && (schedule != SAKER_GEMM_STREAM_K || l))
                        continue;
                    s.cuda = i == 3 ? schedules[schedule] : l == 2 && i < 2 && !schedule ? "few rows" : "tma";
                    gemm_case(s);
                    if (i != 3 || schedule > 1)
                        continue;
                    s.d = SAKER_F32;
                    s.bias = SAKER_BF16;
                    s.act = SAKER_ACT_GELU;
                    gemm_case(s);
                    s.d = floats[f];
                    gemm_case(s);
                    s.d = SAKER_F32;
                    s.gated = SAKER_GATED_HALVES;
                    s.act = SAKER_ACT_SILU;
                    gemm_case(s);
                    s.d = floats[3 - f];
                    s.bias_rows = 1;
                    s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
                    gemm_case(s);
                    s.gated = SAKER_GATED_INTERLEAVED;
                    s.pre = SAKER_F32;
                    gemm_case(s);
                    s.gated = 0;
                    s.batch = BOTH;
                    s.c = SAKER_F32;
                    s.beta = 0.5f;
                    s.scaling = SAKER_GEMM_SCALE_TENSOR;
                    gemm_case(s);
                }
    for (int i = 0; i < 3; i++) { /* more tiles than a GPU holds at once: the cost model takes the largest then */
        spec s = {.a = SAKER_BF16, .b = SAKER_BF16, .d = SAKER_BF16, .m = 1032, .n = 5904, .k = 8, .lb = COLS};
        s.cuda = "tma bf16 kk 128x256";
        s.bias = i ? SAKER_BF16 : 0;
        s.act = i ? SAKER_ACT_RELU2 : 0;
        s.gated = i == 2 ? SAKER_GATED_HALVES : 0;
        gemm_case(s);
    }
    static const struct {
        saker_type type, d;
        const char *kernel;
    } widest[] = {{SAKER_F16, SAKER_F16, "tma f16 kk 128x256"},
                  {SAKER_I8, SAKER_I32, "tma i8 kk 128x256"},
                  {SAKER_F32, SAKER_F32, "tma tf32 kk 128x256"}};
    foreach (i, widest) {
        spec s = {
            .a = widest[i].type, .b = widest[i].type, .d = widest[i].d, .m = 1032, .n = 5904, .k = 16, .lb = COLS};
        s.tf32 = widest[i].type == SAKER_F32;
        s.cuda = widest[i].kernel;
        gemm_case(s);
    }
    spec big = {.a = SAKER_F16, .b = SAKER_F16, .d = SAKER_F16, .m = 520, .n = 2056, .k = 136, .lb = COLS};
    big.cuda = "tma f16 kk 128x128";
    gemm_case(big);
    big.a = big.b = big.d = SAKER_F32;
    big.tf32 = true;
    big.cuda = "tma tf32 kk 128x128";
    gemm_case(big);
    for (int l = 1; l < 4; l++) /* types that want k along memory, in other layouts: through a copy */
        for (int i = 0; i < 2; i++) {
            spec s = {.a = SAKER_I8, .b = SAKER_I8, .d = SAKER_I32, .m = 272, .n = 264, .k = 250};
            if (i)
                s.a = s.b = s.d = SAKER_F32, s.tf32 = true;
            s.la = l & 1;
            s.lb = l == 1;
            s.k = l == 3 ? 250 : 272; /* what is not copied has to be aligned */
            s.cuda = i ? "tma tf32" : "tma i8";
            gemm_case(s);
            if (l != 3)
                continue;
            s.batch = EXPANDED;
            s.d = SAKER_F32;
            s.bias = SAKER_F32;
            s.act = SAKER_ACT_SILU;
            s.gated = SAKER_GATED_HALVES;
            s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
            gemm_case(s);
        }
    for (int i = 0; i < 3; i++) { /* tf32 */
        spec s = {.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 130, .n = 272, .k = 200, .lb = COLS};
        s.tf32 = true;
        s.cuda = i == 2 ? "tma tf32" : "tma tf32 kk 128x64";
        s.schedule = i == 2 ? SAKER_GEMM_SPLIT_K : SAKER_GEMM_AUTO;
        s.bias = i == 1 ? SAKER_F32 : 0;
        gemm_case(s);
    }
    for (int schedule = 0; schedule <= SAKER_GEMM_STREAM_K; schedule++)
        for (int b = ALONE; b <= EXPANDED; b++) {
            spec s = {.a = SAKER_BF16, .b = SAKER_BF16, .d = SAKER_BF16, .m = 72, .n = 144, .k = 200, .batch = b};
            s.schedule = schedule;
            s.lb = COLS;
            gemm_case(s);
            s.saved = SAKER_F32;
            s.dbias = SAKER_F32;
            s.act = SAKER_ACT_SILU;
            gemm_case(s);
            s = (spec){.a = SAKER_I8, .b = SAKER_I8, .d = SAKER_I32, .m = b ? 24 : 136, .n = 272, .k = 400, .batch = b};
            s.schedule = schedule;
            s.lb = COLS;
            s.cuda = b == CROSS || b == EMPTY ? NULL : "tma i8";
            gemm_case(s);
            s.d = SAKER_BF16;
            s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
            s.ld = COLS;
            gemm_case(s);
            s.ld = ROWS;
            s.bias = SAKER_F32;
            gemm_case(s);
        }
}

/* Tiles of e4m3 with e4m3, which has more of them than other pairs: an odd number of steps with one factor; an even one
 * with factors of rows and columns, bias and activation, where the tile takes options; and fast. */
static void fp8_tile_cases(void)
{
    static const struct {
        int m, n;
        const char *plain, *options, *fast;
    } tiles[] = {
        {520, 2056, "tma e4m3_e4m3 kk 128x128", "tma e4m3_e4m3 kk 128x128", NULL},
        {1240, 1720, "tma e4m3_e4m3 kk 128x144", NULL, "tma e4m3_e4m3_fast kk 128x144"},
        {1032, 2280, "tma e4m3_e4m3 kk 128x192", "tma e4m3_e4m3 kk 128x192", "tma e4m3_e4m3_fast kk 128x192"},
        {1032, 2896, "tma e4m3_e4m3 kk 128x256", "tma e4m3_e4m3 kk 128x256", "tma e4m3_e4m3_fast kk 128x256"},
    };
    foreach (i, tiles) {
        spec s = {.a = SAKER_E4M3, .b = SAKER_E4M3, .d = SAKER_BF16, .m = tiles[i].m, .n = tiles[i].n, .lb = COLS};
        s.k = 272;
        s.scaling = SAKER_GEMM_SCALE_TENSOR;
        s.cuda = tiles[i].plain;
        gemm_case(s);
        s.k = 144;
        s.fast = true;
        s.cuda = tiles[i].fast;
        if (s.cuda)
            gemm_case(s);
        s.fast = false;
        s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
        s.bias = SAKER_F32;
        s.act = SAKER_ACT_SILU;
        s.cuda = tiles[i].options;
        if (s.cuda)
            gemm_case(s);
    }
}

/* fp8 on Hopper's tensor cores: every pair, tile, schedule and layout, and every way to scale. */
static void fp8_cases(void)
{
    static const saker_type types[] = {SAKER_E4M3, SAKER_E5M2};
    static const saker_type results[] = {SAKER_BF16, SAKER_F32, SAKER_F16};
#define PAIRS(suffix)                                                                                                  \
    {                                                                                                                  \
        "tma e4m3_e4m3" suffix, "tma e4m3_e5m2" suffix, "tma e5m2_e4m3" suffix, "tma e5m2_e5m2" suffix                 \
    }
    static const char *const stepwise[] = PAIRS(" kk"), *const block[] = PAIRS("_block kk");
    static const char *const widest[2][4] = {PAIRS(" kk 128x128"), PAIRS("_fast kk 128x256")};
    static const int64_t sizes[][3] = {{1, 16, 16}, {20, 72, 272}, {64, 128, 128}, {150, 264, 400}, {260, 130, 1040}};
    for (int i = 0; i < 4; i++) {
        spec s = {.a = types[i / 2], .b = types[i % 2], .lb = COLS};
        foreach (k, sizes)
            for (int scaling = 0; scaling <= SAKER_GEMM_SCALE_BLOCK; scaling++) {
                s.m = sizes[k][0], s.n = sizes[k][1], s.k = sizes[k][2];
                s.d = results[(k + (size_t)scaling) % 3];
                s.scaling = scaling;
                s.cuda = scaling == SAKER_GEMM_SCALE_BLOCK ? block[i] : stepwise[i];
                s.schedule = (scaling + (int)k + i) % 5;
                gemm_case(s);
            }
        for (int fast = 0; fast < 2; fast++) { /* the widest tiles */
            s = (spec){.a = types[i / 2], .b = types[i % 2], .d = SAKER_BF16, .m = 1032, .n = 5904, .lb = COLS};
            s.k = i || fast ? 16 : 144;
            s.fast = fast;
            s.cuda = i || fast ? widest[fast][i] : "tma e4m3_e4m3 kk 128x256";
            gemm_case(s);
        }
    }
    fp8_tile_cases();
    for (int i = 0; i < 4; i++) { /* scales of blocks in the widest tiles: one step to three, the epilogue, gates */
        spec s = {.a = SAKER_E4M3, .b = SAKER_E4M3, .d = SAKER_BF16, .m = 1032, .lb = COLS};
        s.n = i == 3 ? 5888 : 5904;
        s.k = (int64_t[]){144, 272, 16, 272}[i];
        s.scaling = SAKER_GEMM_SCALE_BLOCK;
        s.bias = i < 2 ? 0 : SAKER_F32;
        s.act = i < 2 ? 0 : SAKER_ACT_SILU;
        s.gated = i == 3 ? SAKER_GATED_HALVES : 0;
        s.cuda = "tma e4m3_e4m3_block kk 128x256";
        gemm_case(s);
    }
    for (int l = 1; l < 4; l++) { /* through a copy */
        spec s = {.a = SAKER_E4M3, .b = SAKER_E5M2, .d = SAKER_BF16, .m = 272, .n = 264, .k = l == 3 ? 250 : 272};
        s.la = l & 1;
        s.lb = l == 1;
        s.cuda = "tma e4m3_e5m2";
        gemm_case(s);
        s.batch = EXPANDED;
        s.scaling = l;
        s.fast = true;
        gemm_case(s);
    }
    static const suite_fill fills[] = {SUITE_LARGE,   SUITE_TINY,     SUITE_ALTERNATING,
                                       SUITE_ONE_NAN, SUITE_POSITIVE, SUITE_EDGES};
    foreach (f, fills) /* long sums, and those whose addends differ much */
        for (int fast = 0; fast < 2; fast++) {
            spec s = {.a = types[f % 2], .b = SAKER_E4M3, .d = SAKER_F32, .m = 70, .n = 264, .k = 2080, .lb = COLS};
            s.fill = fills[f];
            s.fast = fast;
            s.schedule = SAKER_GEMM_PERSISTENT;
            s.cuda = "tma e";
            gemm_case(s);
        }
    for (int scaling = 0; scaling <= SAKER_GEMM_SCALE_BLOCK; scaling++)
        for (int gated = 0; gated < 3; gated++) { /* epilogues, in the kernel and behind it */
            spec s = {.a = SAKER_E4M3, .b = SAKER_E4M3, .d = SAKER_BF16, .m = 140, .n = 512, .k = 384, .lb = COLS};
            s.scaling = scaling;
            s.gated = gated;
            s.act = SAKER_ACT_SILU;
            s.bias = SAKER_F32;
            s.cuda = scaling == SAKER_GEMM_SCALE_BLOCK ? block[0] : stepwise[0];
            gemm_case(s);
            s.batch = BOTH;
            s.m = 20;
            s.schedule = SAKER_GEMM_STREAM_K;
            gemm_case(s);
            s.schedule = SAKER_GEMM_SPLIT_K;
            s.c = gated ? 0 : SAKER_F32;
            s.beta = gated ? 0 : 0.5f;
            s.pre = SAKER_F32;
            s.ld = gated ? ROWS : COLS;
            gemm_case(s);
        }
    spec s = {
        .a = SAKER_E4M3, .b = SAKER_E4M3, .d = SAKER_BF16, .m = 40, .n = 192, .k = 256, .lb = COLS, .cuda = "mma"};
    s.scaling = SAKER_GEMM_SCALE_BLOCK; /* half of b's columns is not a whole number of blocks */
    s.gated = SAKER_GATED_HALVES;
    gemm_case(s);
}

/* Few rows, or columns: every number of blocks that k is cut over, rows around those of the kernels, every way out.
 * Split-K asks for these kernels where the product is too small for them. */
static void few_cases(void)
{
    static const int rows[] = {1, 2, 5, 6, 8, 11, 15, 16, 17, 24, 31, 33, 48, 60, 63, 64};
    static const int64_t ks[] = {8, 64, 136, 264, 520, 1160};
    foreach (i, rows)
        for (int l = 0; l < 4; l++) {
            saker_type type = floats[1 + l % 2];
            spec s = {.a = type, .b = type, .d = type, .m = rows[i], .n = 48 + (int64_t)i % 4 * 72, .lb = l / 2};
            s.k = ks[(i + (size_t)l) % 6];
            s.schedule = SAKER_GEMM_SPLIT_K;
            s.cuda = "few rows tma";
            gemm_case(s);
            s.ld = COLS;
            gemm_case(s);
            if (l / 2 == COLS) { /* the same transposed */
                spec t = s;
                t.m = 200, t.n = rows[i], t.ld = ROWS;
                gemm_case(t);
            }
            s.ld = ROWS;
            s.k = ks[(i * 5 + (size_t)l) % 6];
            s.bias = SAKER_F32;
            s.act = SAKER_ACT_SILU;
            s.gated = (int)i % 3;
            s.scaling = (int)(i + (size_t)l) % 3;
            if (s.lb == ROWS && s.gated == SAKER_GATED_HALVES && s.n / 2 % 8)
                s.cuda = NULL; /* rows of b whose second halves are not aligned */
            s.batch = i % 4 == 0 ? BOTH : i % 4 == 1 ? EXPANDED : ALONE;
            gemm_case(s);
            s.d = i % 2 ? SAKER_F32 : floats[2 - l % 2];
            s.bias_rows = i % 2;
            gemm_case(s);
            s.pre = SAKER_F32;
            s.c = i % 2 ? SAKER_F32 : 0;
            s.beta = i % 2 ? 0.5f : 0.0f;
            s.n -= 6;
            s.cuda = s.lb == COLS ? "few rows tma" : NULL; /* rows of b that are not aligned */
            gemm_case(s);
            s.c = s.pre = 0;
            s.beta = 0.0f;
            s.gated = 0;
            s.saved = type;
            gemm_case(s);
        }
    foreach (i, rows) { /* fp8 */
        spec s = {.a = SAKER_E4M3, .b = SAKER_E4M3, .d = floats[i % 3], .m = rows[i], .n = 48 + (int64_t)i % 4 * 72};
        s.lb = COLS;
        s.k = 16 + ks[i % 6] / 8 * 16;
        s.schedule = SAKER_GEMM_SPLIT_K;
        s.cuda = "few rows tma e4m3_e4m3 kk";
        gemm_case(s);
        s.fast = true;
        s.k = 16 + ks[(i + 1) % 6] / 8 * 16;
        s.fill = i % 2 ? SUITE_POSITIVE : SUITE_EDGES;
        gemm_case(s);
        s.fast = false;
        s.fill = 0;
        s.bias = SAKER_F32;
        s.act = SAKER_ACT_SILU;
        s.gated = (int)i % 3;
        s.scaling = (int)i % 3;
        s.batch = i % 4 == 0 ? BOTH : i % 4 == 1 ? EXPANDED : ALONE;
        gemm_case(s);
        if (s.batch != EXPANDED && !s.gated) { /* the same transposed */
            s.n = s.m;
            s.m = 200;
            s.cuda = NULL;
            gemm_case(s);
        }
    }
    for (int i = 0; i < 3; i++) { /* more tiles than a GPU holds at once, whole and cut */
        spec s = {.a = SAKER_BF16, .b = SAKER_BF16, .d = SAKER_BF16, .m = 7, .n = 132 * 128 + 16, .lb = i > 0};
        s.k = i == 2 ? 1160 : 24;
        s.m = i == 2 ? 9 : 7;
        s.schedule = i == 2 ? SAKER_GEMM_AUTO : SAKER_GEMM_SPLIT_K;
        s.cuda = i == 2 ? "few rows" : "few rows tma"; /* the one of every GPU takes that as well */
        gemm_case(s);
    }
    for (int f = 1; f < 3; f++) /* small products: the kernel of every GPU */
        for (int64_t k = 8; k < 5000; k = k * 3 + 8)
            for (int m = 1; m <= 16; m += 5) {
                spec s = {.a = floats[f], .b = floats[f], .d = floats[f], .m = m, .n = 43 - m, .k = k, .lb = COLS};
                s.cuda = "few rows";
                gemm_case(s);
                s.m = s.n;
                s.n = m;
                gemm_case(s);
                s.n = 70;
                s.m = m;
                s.bias = SAKER_F32;
                s.act = SAKER_ACT_SILU;
                s.gated = m % 3;
                s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
                s.batch = m % 2 ? CROSS : BOTH;
                s.pre = SAKER_F32;
                gemm_case(s);
            }
}

/* The matrix instructions of a warp: types, layouts and sizes that Hopper's kernels do not take. */
static void mma_cases(void)
{
    static const char *const schedules[] = {"mma", "data-parallel", "persistent", "split-K", "stream-K"};
    for (int i = 1; i < N_PAIRS; i++) /* more than a tile, in every layout */
        for (int l = 0; l < 9; l++) {
            if (pairs[i].a == SAKER_I32)
                continue;
            spec s = of_pair(i, 136, 144, 80);
            s.la = l % 3;
            s.lb = l / 3;
            bool fp8 = pairs[i].a == SAKER_E4M3 || pairs[i].a == SAKER_E5M2;
            if (s.la == GAPS || s.lb == GAPS || (!fp8 && s.scaling >= SAKER_GEMM_SCALE_BLOCK))
                s.cuda = "mma";
            else if (fp8)
                s.cuda = s.la == ROWS && s.lb == COLS ? "tma e" : "mma";
            if (pairs[i].b == SAKER_I8 && pairs[i].a != SAKER_I8 && s.la == ROWS && s.lb == COLS)
                s.cuda = pairs[i].a == SAKER_F16 ? "tma f16_i8 kk" : "tma bf16_i8 kk";
            gemm_case(s);
            s.m = 33;
            s.n = 131;
            s.k = 141;
            s.cuda = pairs[i].a == SAKER_I8 && s.scaling < SAKER_GEMM_SCALE_BLOCK ? "mma i8 kk" : "wide";
            gemm_case(s);
        }
    for (int i = 4; i < N_PAIRS; i++) /* every schedule and epilogue of what is widened */
        for (int schedule = 0; schedule <= SAKER_GEMM_STREAM_K; schedule++) {
            if (pairs[i].d == SAKER_I32 || (pairs[i].a == SAKER_I8 && pairs[i].b == SAKER_I8))
                continue;
            spec s = of_pair(i, 136, 136, 390);
            s.schedule = schedule;
            s.lb = COLS;
            s.cuda = schedules[schedule];
            gemm_case(s);
            if (schedule % 4)
                continue;
            s.gated = SAKER_GATED_HALVES;
            s.act = SAKER_ACT_SILU;
            s.bias = SAKER_F32;
            gemm_case(s);
            s.gated = 0;
            s.m = 70;
            s.batch = BOTH;
            s.saved = s.dbias = SAKER_F32;
            gemm_case(s);
        }
    for (int l = 0; l < 4; l++) /* weights in groups that no step fits, with zero points */
        for (int64_t group = 1; group <= 200; group = group * 5 + 2)
            for (int i = 12; i < N_PAIRS; i++) {
                spec s = of_pair(i, 36, 136, 256);
                s.group = group;
                s.la = l & 1;
                s.lb = l >> 1;
                s.zero = SAKER_I8;
                s.cuda = "wide";
                gemm_case(s);
            }
    for (int l = 0; l < 9; l++) /* tf32; what the copy engine can read is Hopper's */
        for (int64_t k = 1; k < 300; k = k * 5 + 13) {
            spec s = {.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 140, .n = 132, .k = k, .cuda = "tf32"};
            s.la = l % 3;
            s.lb = l / 3;
            s.schedule = (int)(k + l) % 5;
            s.tf32 = true;
            gemm_case(s);
        }
}

/* True f32: every tile, way of copying, schedule and epilogue. */
static void fma_cases(void)
{
    static const char *const schedules[] = {"fma", "data-parallel", "persistent", "split-K", "stream-K"};
    static const int64_t sizes[][3] = {{132, 200, 44}, {133, 201, 45}, {40, 520, 24},
                                       {62, 258, 31},  {12, 264, 72},  {7, 131, 37}};
    for (int l = 0; l < 9; l++)
        foreach (i, sizes) {
            spec s = {.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .la = l % 3, .lb = l / 3, .cuda = "fma"};
            s.m = sizes[i][0];
            s.n = sizes[i][1];
            s.k = sizes[i][2];
            gemm_case(s);
            s.n += s.n % 2; /* gates */
            s.bias = SAKER_F32;
            s.act = SAKER_ACT_GELU_TANH;
            s.gated = l % 2 ? SAKER_GATED_HALVES : SAKER_GATED_INTERLEAVED;
            s.batch = CROSS;
            gemm_case(s);
            s.gated = s.gated == SAKER_GATED_HALVES ? SAKER_GATED_INTERLEAVED : SAKER_GATED_HALVES;
            s.batch = BOTH;
            s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
            gemm_case(s);
            s.gated = 0;
            s.dbias = SAKER_BF16;
            s.saved = SAKER_F32;
            gemm_case(s);
        }
    for (int schedule = 0; schedule <= SAKER_GEMM_STREAM_K; schedule++)
        for (int l = 0; l < 4; l++)
            for (int i = 0; i < 3; i++) {
                spec s = {.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 260, .n = 392, .k = 203};
                s.la = l & 1;
                s.lb = l >> 1;
                s.m = i == 1 ? 60 : i == 2 ? 14 : s.m;
                s.schedule = schedule;
                s.cuda = schedules[schedule];
                gemm_case(s);
                if (i == 0 && schedule >= SAKER_GEMM_SPLIT_K) { /* tiles of 128 x 128 */
                    s.m = 200;
                    s.n = 136;
                    s.k = 2001;
                    s.cuda = "fma f32 128x128";
                    gemm_case(s);
                    s.k = 2004; /* in vectors, and half of a step at the end */
                }
                s.c = SAKER_F32;
                s.beta = 0.5f;
                s.d = SAKER_BF16;
                gemm_case(s);
            }
    for (int l = 0; l < 4; l++) { /* more tiles than a GPU holds at once; d by columns; few columns */
        spec s = {
            .a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 2056, .n = 2312, .k = 12, .cuda = "fma f32 128x128"};
        s.la = l & 1;
        s.lb = l >> 1;
        gemm_case(s);
        s.m = 140;
        s.n = 136;
        s.k = 50;
        s.ld = COLS;
        s.cuda = "fma f32 32x128";
        gemm_case(s);
        s.ld = ROWS;
        s.n = 9;
        s.cuda = "fma f32 16x256";
        gemm_case(s);
    }
    for (int l = 0; l < 3; l++) /* few rows, or columns */
        for (int64_t k = 4; k < 10000; k = k * 5 + 4)
            for (int m = 1; m <= 9; m += m < 4 ? 1 : 2) {
                spec s = {.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = m, .n = 68, .k = k, .lb = COLS};
                s.lb = l ? ROWS : COLS;
                s.la = l == 2 ? GAPS : ROWS;
                s.cuda = m <= (l ? 4 : 8) ? "vector f32" : "fma";
                gemm_case(s);
                s.bias = SAKER_F32;
                s.act = SAKER_ACT_SILU;
                s.gated = l ? SAKER_GATED_INTERLEAVED : 1 + m % 2;
                s.scaling = SAKER_GEMM_SCALE_ROW_COLUMN;
                s.batch = m % 2 ? CROSS : BOTH;
                s.pre = SAKER_F32;
                gemm_case(s);
                s = (spec){.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_BF16, .m = 71, .n = m, .k = k, .lb = COLS};
                s.c = SAKER_F32;
                s.beta = 2.0f;
                gemm_case(s);
            }
}

void gemm_cuda_cases(void)
{
    tma_cases();
    middle_tile_cases();
    fp8_cases();
    few_cases();
    gemm_codes_cases();
    spread_cases();
    last_box_cases();
    gemm_cuda_out_cases();
    mma_cases();
    fma_cases();
}
