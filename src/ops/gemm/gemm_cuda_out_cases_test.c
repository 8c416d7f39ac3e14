/* gemm_cuda_out_cases_test.c - cases of gemm for the ways in which Hopper's tensor core kernels write d.
 * SPDX-License-Identifier: Apache-2.0 */
#include "gemm_cases_test.h"

/* Bias, GELU and SiLU's gates in tiles of 256 columns, which have code of their own. */
static void wide_function_cases(void)
{
    static const struct {
        saker_type type, d, bias;
        int act, gated, bias_rows;
        float alpha; /* 2000: gates that the short formula does not take */
        const char *kernel;
        int k; /* 64 (i8: 128) are a step */
    } all[] = {
        {SAKER_BF16, SAKER_BF16, SAKER_BF16, SAKER_ACT_NONE, 0, 0, 0, "tma bf16 kk 128x256", 136},
        {SAKER_BF16, SAKER_BF16, SAKER_BF16, SAKER_ACT_GELU, 0, 0, 0, "tma bf16 kk 128x256", 16},
        {SAKER_BF16, SAKER_BF16, 0, SAKER_ACT_GELU, 0, 0, 3, "tma bf16 kk 128x256", 16},
        {SAKER_BF16, SAKER_F16, SAKER_F32, SAKER_ACT_GELU, 0, 1, 0, "tma bf16 kk 128x256", 16},
        {SAKER_BF16, SAKER_F32, SAKER_F32, SAKER_ACT_GELU, 0, 0, 0, "tma bf16 kk 128x256", 16},
        {SAKER_BF16, SAKER_BF16, 0, SAKER_ACT_SILU, SAKER_GATED_HALVES, 0, 0, "tma bf16 kk 128x256", 72},
        {SAKER_BF16, SAKER_BF16, SAKER_F32, SAKER_ACT_SILU, SAKER_GATED_HALVES, 0, 2000, "tma bf16 kk 128x256", 16},
        {SAKER_F16, SAKER_BF16, SAKER_F16, SAKER_ACT_SILU, SAKER_GATED_HALVES, 0, 0, "tma f16 kk 128x256", 16},
        {SAKER_F16, SAKER_F16, SAKER_F16, SAKER_ACT_GELU, 0, 0, 0, "tma f16 kk 128x256", 16},
        {SAKER_I8, SAKER_BF16, SAKER_F32, SAKER_ACT_GELU, 0, 0, 0, "tma i8 kk 128x256", 144},
        {SAKER_I8, SAKER_F16, SAKER_F32, SAKER_ACT_SILU, SAKER_GATED_HALVES, 0, 0, "tma i8 kk 128x256", 16},
    };
    foreach (i, all) {
        spec s = {.a = all[i].type, .b = all[i].type, .d = all[i].d, .m = 1032, .n = 5904, .lb = COLS};
        s.scaling = all[i].type == SAKER_I8 ? SAKER_GEMM_SCALE_ROW_COLUMN : 0;
        s.bias = all[i].bias;
        s.act = all[i].act;
        s.gated = all[i].gated;
        s.bias_rows = all[i].bias_rows;
        s.alpha = all[i].alpha;
        s.k = all[i].k;
        s.cuda = all[i].kernel;
        gemm_case(s);
    }
}

/* Rows of d begin at a multiple of 16 bytes and do not end at one: the copy engine would write past them. */
static void ragged_end_cases(void)
{
    static const struct {
        saker_type type, d;
        int m, n, ld;
    } ends[] = {{SAKER_BF16, SAKER_BF16, 1, 100, ROWS},
                {SAKER_F16, SAKER_F16, 1, 2, ROWS},
                {SAKER_BF16, SAKER_F16, 1, 7, ROWS},
                {SAKER_F16, SAKER_F16, 3, 123, GAPS},
                {SAKER_E4M3, SAKER_BF16, 130, 11, GAPS}};
    foreach (i, ends) {
        spec s = {.a = ends[i].type, .b = ends[i].type, .d = ends[i].d, .m = ends[i].m, .n = ends[i].n, .k = 64};
        s.lb = COLS;
        s.ld = ends[i].ld;
        s.schedule = SAKER_GEMM_PERSISTENT;
        s.cuda = "tma";
        gemm_case(s);
    }
}

/* c that Hopper's kernels add themselves: of every type and in every tile, apart from d and in its place, with rows and
 * columns that a tile has no use for, odd widths, and options behind it; then what a second kernel adds. */
static void c_cases(void)
{
    static const struct {
        saker_type type, d, c;
        int m, n, k, la, lb, ld, act, batch, scaling, schedule;
        bool in_place;
        const char *kernel;
    } all[] = {
        {SAKER_BF16, SAKER_BF16, SAKER_BF16, 200, 200, 136, ROWS, COLS, ROWS, 0, ALONE, 0, 0, true, "tma bf16 kk"},
        {SAKER_BF16, SAKER_F32, SAKER_F32, 200, 264, 136, COLS, ROWS, ROWS, 0, ALONE, 0, 0, true, "tma bf16 mn"},
        {SAKER_BF16, SAKER_F32, SAKER_F32, 333, 123, 72, ROWS, COLS, WIDE, 0, ALONE, 0, 0, true, "tma bf16 kk"},
        {SAKER_BF16, SAKER_BF16, SAKER_BF16, 130, 8, 72, ROWS, ROWS, WIDE, 0, ALONE, 0, 0, true, "tma bf16 kn"},
        {SAKER_F16, SAKER_F16, SAKER_F32, 129, 144, 72, ROWS, COLS, ROWS, 1, BOTH, 0, 0, false, "tma f16 kk"},
        {SAKER_F16, SAKER_BF16, SAKER_F16, 70, 392, 72, ROWS, ROWS, ROWS, 0, BOTH, 0, 0, false, "tma f16 kn"},
        {SAKER_F16, SAKER_F16, SAKER_F16, 136, 136, 200, ROWS, COLS, WIDE, 0, BOTH, 0, 0, true, "tma f16 kk"},
        {SAKER_E4M3, SAKER_BF16, SAKER_BF16, 140, 200, 144, ROWS, COLS, ROWS, 0, ALONE, 2, 0, true, "tma e4m3_e4m3 kk"},
        {SAKER_E4M3, SAKER_F32, SAKER_F32, 140, 200, 144, ROWS, COLS, ROWS, 0, ALONE, 3, 0, true,
         "tma e4m3_e4m3_block kk"},
        {SAKER_I8, SAKER_F16, SAKER_F32, 140, 200, 144, ROWS, COLS, ROWS, 2, ALONE, 2, 0, false, "tma i8 kk"},
        {SAKER_I8, SAKER_I32, SAKER_I32, 140, 200, 144, ROWS, COLS, ROWS, 0, ALONE, 0, 0, true, "tma i8 kk"},
        {SAKER_BF16, SAKER_F32, SAKER_F32, 200, 136, 1000, ROWS, COLS, ROWS, 0, ALONE, 0, 3, true, "split-K"},
        {SAKER_BF16, SAKER_F32, SAKER_F32, 200, 136, 1000, ROWS, COLS, ROWS, 0, ALONE, 0, 4, true, "stream-K"},
        {SAKER_BF16, SAKER_F32, SAKER_F32, 1240, 2280, 48, ROWS, COLS, ROWS, 1, ALONE, 0, 0, false,
         "tma bf16 kk 128x192"},
        {SAKER_BF16, SAKER_F32, SAKER_F32, 1032, 5904, 72, ROWS, COLS, ROWS, 0, ALONE, 0, 0, true,
         "tma bf16 kk 128x256"},
        {SAKER_BF16, SAKER_BF16, SAKER_F16, 1032, 5904, 16, ROWS, COLS, ROWS, 0, ALONE, 0, 0, false,
         "tma bf16 kk 128x256"},
        {SAKER_BF16, SAKER_BF16, SAKER_BF16, 1032, 5904, 72, ROWS, COLS, ROWS, 0, ALONE, 0, 0, true,
         "tma bf16 kk 128x256"},
        {SAKER_F16, SAKER_BF16, SAKER_F16, 1240, 2280, 48, ROWS, ROWS, ROWS, 0, ALONE, 0, 0, false,
         "tma f16 kn 128x192"},
        {SAKER_BF16, SAKER_BF16, SAKER_BF16, 136, 152, 72, COLS, COLS, ROWS, 0, ALONE, 1, 0, true, "tma bf16 mk"},
        {SAKER_F32, SAKER_F32, SAKER_F32, 140, 136, 72, ROWS, COLS, ROWS, 0, ALONE, 0, 0, true, "tma tf32 kk"},
        {SAKER_BF16, SAKER_F32, SAKER_F32, 24, 136, 520, ROWS, COLS, ROWS, 0, ALONE, 0, 0, true, "few rows tma"},
    };
    foreach (i, all) {
        spec s = {.a = all[i].type, .b = all[i].type, .d = all[i].d, .c = all[i].c, .m = all[i].m, .n = all[i].n};
        s.k = all[i].k;
        s.la = all[i].la;
        s.lb = all[i].lb;
        s.ld = all[i].ld;
        s.act = all[i].act ? SAKER_ACT_SILU : 0;
        s.bias = all[i].act == 2 ? SAKER_F32 : 0;
        s.batch = all[i].batch;
        s.scaling = all[i].scaling;
        s.schedule = all[i].schedule;
        s.in_place = all[i].in_place;
        s.all_c = true;
        s.tf32 = all[i].type == SAKER_F32;
        s.alpha = i % 2 || s.d == SAKER_I32 ? 0 : 0.5f;
        s.beta = i % 3 && s.d != SAKER_I32 ? -0.75f : 1.0f;
        s.cuda = all[i].kernel;
        gemm_case(s);
    }
}

void gemm_cuda_out_cases(void)
{
    ragged_end_cases();
    wide_function_cases();
    c_cases();
}
