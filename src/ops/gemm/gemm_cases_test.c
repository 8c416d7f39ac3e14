/* gemm_cases_test.c - the cases of gemm: types, layouts, odd sizes, batches, scales, epilogues; the bench's shapes.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cases_test.h"

/* First, what the wrong-argument tests start from: all fields, no dimension below 4. */
static void full_cases(void)
{
    spec s = {.a = SAKER_F16, .b = SAKER_I4, .d = SAKER_F32, .m = 5, .n = 8, .k = 12, .scaling = 4, .group = 3};
    s.zero = SAKER_F32;
    s.c = SAKER_F32;
    s.beta = 0.5f;
    s.bias = SAKER_F32;
    s.pre = s.saved = s.dbias = SAKER_F32;
    s.act = SAKER_ACT_SILU;
    gemm_case(s);
    s.batch = BOTH;
    s.a = SAKER_BF16;
    s.b = SAKER_I8;
    s.zero = SAKER_I8;
    s.alpha = -1.5f;
    s.accumulate = 1;
    s.dbias = SAKER_BF16;
    gemm_case(s);
    gemm_case((spec){.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 5, .n = 6, .k = 7});
    gemm_case(
        (spec){.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 5, .n = 6, .k = 7, .la = FREE, .dbias = SAKER_F32});
}

static void size_cases(void)
{
    static const int64_t sizes[][3] = {{1, 1, 1},   {1, 1, 5},     {2, 3, 4},     {3, 1, 9},    {7, 5, 3},
                                       {8, 12, 16}, {9, 13, 17},   {16, 24, 64},  {17, 33, 65}, {1, 37, 130},
                                       {37, 1, 70}, {12, 31, 127}, {33, 34, 257}, {70, 50, 40}};
    for (int i = 0; i < N_PAIRS; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++)
            gemm_case(of_pair(i, sizes[k][0], sizes[k][1], sizes[k][2]));
    for (int64_t n = 1; n <= 40; n++) { /* every tail of every tile */
        gemm_case((spec){.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = n, .n = 41 - n, .k = n});
        gemm_case((spec){.a = SAKER_BF16, .b = SAKER_BF16, .d = SAKER_F32, .m = n, .n = n + 1, .k = 2 * n});
        gemm_case((spec){.a = SAKER_I8, .b = SAKER_I8, .d = SAKER_I32, .m = n + 2, .n = n, .k = 3 * n});
    }
    /* More than one k block, and more than one task. */
    static const int64_t long_k[] = {511, 512, 513, 1030, 2100, 4099};
    for (int i = 0; i < N_PAIRS; i++)
        for (int k = 0; k < 6; k++) {
            gemm_case(of_pair(i, 3, 14, long_k[k]));
            if (k == 3 || k == 5)
                gemm_case(of_pair(i, 35, 40, long_k[k]));
        }
    gemm_case(of_pair(0, 300, 150, 600));
    gemm_case(of_pair(2, 150, 300, 1100));
    gemm_case(of_pair(8, 140, 410, 2060));
    static const int64_t few[] = {1, 2, 3, 4, 5, 8, 13, 16};
    for (int i = 0; i < 64; i++) { /* few rows read b as it lies, here in long streams */
        spec s = of_pair((int[]){0, 1, 3, 8}[i % 4], few[i / 8], 539, 1030);
        s.lb = i / 4 % 2 ? COLS : ROWS;
        gemm_case(s);
    }
    for (int i = 0; i < 3; i++) { /* partial sums of dbias: as many rows each, however many threads there are */
        spec s = of_pair(i, 300, 41, 20);
        s.act = SAKER_ACT_SILU;
        s.saved = s.d;
        s.dbias = SAKER_F32;
        gemm_case(s);
    }
    for (int i = 12; i < N_PAIRS; i++)
        gemm_case(of_pair(i, 140, 410, 260));
}

static void layout_cases(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        for (int l = 0; l < 27; l++) {
            spec s = of_pair(i, 18, 29, 37);
            s.la = l % 3;
            s.lb = l / 3 % 3;
            s.ld = l / 9;
            if (s.ld == 0 || l % 4 == 0)
                gemm_case(s);
            s.m = 5;
            s.k = 70;
            if (s.ld == 0)
                gemm_case(s);
            s.m = 40;
            s.n = 3;
            if (l % 3 == 0)
                gemm_case(s);
        }
    for (int i = 0; i < 4; i++) {
        spec s = of_pair(i, 19, 21, 23);
        s.la = s.lb = s.ld = FREE;
        s.bias = SAKER_F32;
        gemm_case(s);
    }
}

static void edge_cases(void)
{
    for (int i = 0; i < N_PAIRS; i++) {
        spec s = of_pair(i, 5, 7, 0); /* K = 0 */
        gemm_case(s);
        s.c = s.d == SAKER_I32 ? SAKER_I32 : SAKER_F32;
        s.beta = 1;
        s.bias = s.c;
        gemm_case(s);
        s.n = 72; /* as many columns as few rows take at once */
        s.lb = COLS;
        gemm_case(s);
        gemm_case(of_pair(i, 0, 7, 9));
        gemm_case(of_pair(i, 5, 0, 9));
        for (int b = BOTH; b <= EXPANDED; b++) {
            s = of_pair(i, 5, 10, 35);
            s.batch = b;
            gemm_case(s);
            s.m = 20;
            s.la = s.lb = COLS;
            gemm_case(s);
        }
    }
    static const suite_fill fills[] = {SUITE_ZERO,    SUITE_LARGE,    SUITE_TINY,  SUITE_ALTERNATING, SUITE_ONE_NAN,
                                       SUITE_ONE_INF, SUITE_POSITIVE, SUITE_EDGES, SUITE_OFFSET};
    for (int i = 0; i < 8; i++)
        for (size_t f = 0; f < sizeof fills / sizeof *fills; f++) {
            if ((pairs[i].a == SAKER_E4M3 || pairs[i].b == SAKER_E4M3) && fills[f] == SUITE_ONE_INF)
                continue;
            spec s = of_pair(i, 9, 14, 133);
            s.fill = fills[f];
            s.d = SAKER_F32;
            gemm_case(s);
            s.m = 30;
            gemm_case(s);
        }
    for (int f = 0; f < 3; f++) { /* beta 0: c is not read, also when it is NaN */
        spec s = {.a = floats[f], .b = floats[f], .d = floats[f], .m = 6, .n = 9, .k = 4, .c = floats[f]};
        s.c_fill = SUITE_ONE_NAN;
        gemm_case(s);
        s.beta = 2;
        gemm_case(s);
        s.c_fill = SUITE_NORMAL;
        s.in_place = true;
        gemm_case(s);
        s.m = 33;
        s.batch = BOTH;
        s.ld = GAPS;
        gemm_case(s);
    }
    gemm_case((spec){.a = SAKER_I8,
                     .b = SAKER_I8,
                     .d = SAKER_I32,
                     .m = 6,
                     .n = 9,
                     .k = 40,
                     .c = SAKER_I32,
                     .beta = 1,
                     .bias = SAKER_I32,
                     .pre = SAKER_I32});
    gemm_case((spec){.a = SAKER_I32,
                     .b = SAKER_I32,
                     .d = SAKER_I32,
                     .m = 20,
                     .n = 9,
                     .k = 40,
                     .c = SAKER_I32,
                     .beta = 1,
                     .bias = SAKER_I32,
                     .bias_rows = 1,
                     .in_place = true});
}

static void epilogue_cases(void)
{
    for (int act = 0; act <= SAKER_ACT_SWIGLU_OAI; act++)
        for (int f = 0; f < 3; f++)
            for (int m = 4; m <= 20; m += 16) {
                spec s = {.a = floats[f], .b = floats[f], .d = floats[f], .m = m, .n = 26, .k = 30, .act = act};
                s.bias = floats[(f + 1) % 3];
                s.gated = act == SAKER_ACT_SWIGLU_OAI;
                s.pre = floats[f];
                gemm_case(s);
                s.bias_rows = 1;
                s.gated = 2;
                s.lb = COLS;
                gemm_case(s);
                s.gated = 1;
                s.c = SAKER_F32;
                s.beta = -0.75f;
                s.k = 1100;
                gemm_case(s);
                if (act == SAKER_ACT_SWIGLU_OAI)
                    continue;
                s.k = 30;
                s.gated = 0;
                s.pre = 0;
                s.saved = floats[f];
                s.dbias = floats[(f + 2) % 3];
                gemm_case(s);
                s.batch = CROSS;
                s.m = 150;
                s.accumulate = 1;
                s.bias = 0;
                gemm_case(s);
            }
    for (int i = 0; i < N_PAIRS; i++) /* one thing beside the sums, in whole panels and in one that is not */
        for (int what = 0; what < 3; what++) {
            if (pairs[i].d == SAKER_I32)
                continue;
            spec s = of_pair(i, 19, 75, 40);
            s.bias = what < 2 ? floats[i % 3] : 0;
            s.bias_rows = what == 1;
            s.alpha = what == 2 ? 0.5f : 0;
            gemm_case(s);
        }
    for (int i = 0; i < N_PAIRS; i++) { /* each kind of sums with an epilogue */
        if (pairs[i].d == SAKER_I32)
            continue;
        for (int gated = 0; gated < 3; gated++) {
            spec s = of_pair(i, 11, 28, 260);
            s.act = SAKER_ACT_GELU;
            s.gated = gated;
            s.bias = SAKER_F32;
            s.alpha = 0.5f;
            gemm_case(s);
            s.m = 21;
            s.ld = COLS;
            gemm_case(s);
        }
    }
    for (int scaling = 1; scaling <= 3; scaling++)
        for (int f = 0; f < 3; f++) {
            spec s = {.a = floats[f], .b = floats[f], .d = floats[f], .m = 20, .n = 140, .k = 200, .scaling = scaling};
            gemm_case(s);
            s.only_a_scale = true;
            gemm_case(s);
            s.only_a_scale = false;
            s.batch = A_ONLY;
            s.m = 7;
            gemm_case(s);
        }
    for (int i = 0; i < 16; i++) { /* few columns: the product is turned around, and a row alone is not */
        spec s = of_pair((int[]){0, 2, 5, 9}[i % 4], i < 8 ? 40 : 19, i < 8 ? 8 : 3, 64);
        s.d = SAKER_F32;
        s.scaling = i / 4 % 2 ? SAKER_GEMM_SCALE_TENSOR : SAKER_GEMM_SCALE_ROW_COLUMN;
        s.alpha = 0.3f;
        gemm_case(s);
    }
    for (int i = 12; i < N_PAIRS; i++)
        for (int zero = 0; zero < 2; zero++)
            for (int64_t group = 1; group <= 200; group = group * 5 + 2) {
                spec s = of_pair(i, 10, 22, 150);
                s.group = group;
                s.zero = zero ? SAKER_I8 : SAKER_F32;
                gemm_case(s);
                s.m = 24;
                s.lb = COLS;
                gemm_case(s);
            }
    spec s = {.a = SAKER_F32, .b = SAKER_F32, .d = SAKER_F32, .m = 8, .n = 8, .k = 8, .schedule = SAKER_GEMM_STREAM_K};
    s.alpha = 1;
    gemm_case(s);
}

/* Few rows with weights in groups, k's neighbours: read as they lie where the groups are long. */
/* Many rows and columns enough for two threads: at level amx tasks have all rows (gemm_columns_cpu.h). With whole tiles
 * of k's and rows at multiples of 64 bytes a is used as it lies; the last rows are fewer than a panel's. */
static void by_columns_cases(void)
{
    for (int i = 0; i < N_PAIRS; i++) {
        spec s = of_pair(i, 270, 530, 128);
        gemm_case(s);
        s.k = 100;
        s.lb = COLS;
        s.bias = s.d == SAKER_I32 ? SAKER_I32 : SAKER_F32;
        gemm_case(s);
    }
    for (int i = 0; i < 4; i++) {
        spec s = of_pair((int[]){0, 2, 3, 9}[i], 291, 534, 64);
        s.la = i == 3 ? COLS : WIDE;
        s.act = SAKER_ACT_SILU;
        s.pre = SAKER_F32;
        gemm_case(s);
        s.n = 1030;
        s.gated = 1 + i % 2;
        gemm_case(s);
        s.gated = 0;
        s.pre = 0;
        s.n = 200;
        s.c = SAKER_F32;
        s.beta = 0.5f;
        s.batch = BOTH;
        gemm_case(s);
    }
    /* k blocks: sums of a panel's rows are kept, and of 512 rows where all k's of the columns are more than L2 holds.
     */
    gemm_case(of_pair(0, 261, 512, 800));
    gemm_case(of_pair(2, 257, 512, 1056));
    gemm_case(of_pair(0, 517, 512, 1056));
    gemm_case(of_pair(3, 515, 512, 2080));
    gemm_case(of_pair(8, 258, 512, 2112));
    gemm_case(of_pair(13, 258, 512, 1088)); /* scales of groups, and of blocks */
    gemm_case(of_pair(10, 258, 512, 2176));
}

static void skinny_group_cases(void)
{
    static const int64_t rows[] = {1, 2, 3, 5, 8}, ks[] = {32, 96, 1056, 2112, 8256}, groups[] = {32, 64, 96, 4096};
    for (int i = 12; i < N_PAIRS; i++)
        for (int r = 0; r < 5; r++)
            for (int k = 0; k < 5; k++) {
                spec s = of_pair(i, rows[r], 9 + 7 * r, ks[k]);
                s.group = groups[(r + k) % 4];
                s.lb = COLS;
                gemm_case(s);
            }
    static const int64_t dot_ks[] = {128, 200, 1056, 2176}, dot_groups[] = {128, 256, 4096};
    for (int i = 0; i < 60; i++) { /* i4 in whole runs of 128, times up to four rows of i8, and five */
        spec s = {.a = SAKER_I8, .b = SAKER_I4, .d = i % 2 ? SAKER_F32 : SAKER_BF16, .scaling = SAKER_GEMM_SCALE_GROUP};
        s.m = 1 + i % 5;
        s.n = 64 + i;
        s.k = dot_ks[i / 5 % 4];
        s.group = dot_groups[i / 20];
        s.lb = COLS;
        s.batch = i % 7 == 3;
        gemm_case(s);
    }
}

/* Few rows of every pair, and enough columns for vectors of them: b is read as it lies, or converted on the way. Rows
 * for one panel of a and for two; several k blocks, the last ones shorter. */
static void skinny_column_cases(void)
{
    static const int64_t rows[] = {1, 3, 6, 10, 13, 16}, ks[] = {31, 96, 1058, 2120};
    for (int i = 0; i < N_PAIRS; i++)
        for (int r = 0; r < 6; r++)
            for (int k = 0; k < 4; k++) {
                spec s = of_pair(i, rows[r], 64 + 13 * r, ks[k]);
                s.lb = COLS;
                if (s.group && (r + k) % 3 == 1)
                    s.zero = SAKER_I8;
                if (s.group && (r + k) % 3 == 2)
                    s.group = 70;
                gemm_case(s);
                s.lb = ROWS;
                gemm_case(s);
                if (k < 2 || s.d == SAKER_I32)
                    continue;
                s.n *= 2;
                s.act = SAKER_ACT_SILU;
                s.gated = 1 + r % 2;
                s.lb = r < 3 ? COLS : ROWS;
                gemm_case(s);
            }
}

/* Whole panels of widened weights, over several groups and k blocks, the last ones shorter. */
static void panel_group_cases(void)
{
    static const int64_t ks[] = {96, 1056, 4384}, groups[] = {32, 96, 128, 256, 4096};
    for (int i = 12; i < N_PAIRS; i++)
        for (int k = 0; k < 3; k++)
            for (int g = 0; g < 5; g++) {
                spec s = of_pair(i, 17, 38, ks[k]);
                s.group = groups[g];
                gemm_case(s);
                s.lb = COLS;
                gemm_case(s);
            }
    static const int64_t odd_groups[] = {514, 1030, 2050}; /* a k block each, and no whole number of granules */
    for (int i = 12; i < N_PAIRS; i++)
        for (int g = 0; g < 6; g++) {
            spec s = of_pair(i, g < 3 ? 20 : 12, 70, 5 * odd_groups[g % 3]);
            s.group = odd_groups[g % 3];
            s.lb = g % 2 ? COLS : ROWS;
            gemm_case(s);
        }
}

static void bench_cases(void)
{
    static const int64_t squares[] = {512, 1024, 2048};
    static const pair types[] = {{SAKER_F32, SAKER_F32, SAKER_F32, 0, 0},    {SAKER_F16, SAKER_F16, SAKER_F16, 0, 0},
                                 {SAKER_BF16, SAKER_BF16, SAKER_BF16, 0, 0}, {SAKER_I8, SAKER_I8, SAKER_I32, 0, 0},
                                 {SAKER_BF16, SAKER_I4, SAKER_BF16, 4, 128}, {SAKER_I8, SAKER_I4, SAKER_BF16, 4, 128},
                                 {SAKER_BF16, SAKER_I8, SAKER_BF16, 4, 128}};
    for (const pair *t = types; t < types + sizeof types / sizeof *types; t++) {
        spec s = {.a = t->a, .b = t->b, .d = t->d, .scaling = t->scaling, .group = t->group, .use = SUITE_BENCH};
        for (int k = 0; k < 3; k++) {
            s.m = s.n = s.k = squares[k];
            gemm_case(s);
        }
        s.m = 1;
        s.n = s.k = 4096;
        s.lb = COLS; /* a linear layer's weight [N, K] */
        gemm_case(s);
        s.lb = ROWS;
        gemm_case(s);
    }
}

bool gemm_case_at(int i, suite_case *out)
{
    if (!gemm_list.n) {
        full_cases();
        size_cases();
        layout_cases();
        edge_cases();
        epilogue_cases();
        by_columns_cases();
        skinny_group_cases();
        skinny_column_cases();
        panel_group_cases();
        gemm_cuda_cases();
        gemm_random_cases();
        bench_cases();
    }
    return suite_list_at(&gemm_list, i, out);
}
