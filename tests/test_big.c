/* test_big.c - offsets past 2^31 elements in small views of a sparse mapping, and rows a million wide.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check.h"
#include "saker.h"

enum { N = 300, ROWS = 3 };

/* A view [3, N] whose rows are 2^31 + 7 elements apart: 16 GiB of addresses, a few pages of memory. */
static void far_rows(saker_context *ctx, saker_type type, size_t size)
{
    const int64_t apart = ((int64_t)1 << 31) + 7;
    size_t span = (size_t)(2 * apart + N) * size;
    char *base[4];
    for (int i = 0; i < 4; i++) {
        base[i] = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base[i] == MAP_FAILED) {
            CHECK_SKIP("%zu bytes of addresses are not to be had", span);
            while (i-- > 0)
                munmap(base[i], span);
            return;
        }
    }
    unsigned char near[4][ROWS * N * 4];
    srand(3);
    for (int i = 0; i < ROWS * N * (int)size; i++) /* finite values of any of the float types: exponent around 1 */
        for (int k = 0; k < 2; k++)
            near[k][i] = (size_t)i % size == size - 1 ? (unsigned char)(0x3e + (rand() & 0x81)) : (unsigned char)rand();
    int64_t shape[2] = {ROWS, N}, strides[2] = {apart, 1};
    saker_tensor far_t[4], near_t[4];
    for (int k = 0; k < 4; k++) {
        far_t[k] = saker_tensor_of(base[k], type, 2, shape, strides);
        near_t[k] = saker_tensor_of(near[k], type, 2, shape, NULL);
        for (int r = 0; r < ROWS && k < 2; r++)
            memcpy(base[k] + (size_t)(r * apart) * size, near[k] + (size_t)(r * N) * size, N * size);
    }
    saker_rms_norm_args a = {.struct_size = sizeof a, .x = &far_t[0], .residual = &far_t[1], .y = &far_t[2]};
    saker_rms_norm_args b = {.struct_size = sizeof b, .x = &near_t[0], .residual = &near_t[1], .y = &near_t[2]};
    a.residual_out = &far_t[3], b.residual_out = &near_t[3];
    CHECK_TEXT(saker_rms_norm(ctx, &a) == SAKER_OK, "%s", saker_context_error(ctx));
    CHECK(saker_rms_norm(ctx, &b) == SAKER_OK);
    for (int r = 0; r < ROWS; r++)
        for (int k = 2; k < 4; k++)
            CHECK_TEXT(!memcmp(base[k] + (size_t)(r * apart) * size, near[k] + (size_t)(r * N) * size, N * size),
                       "forward, row %d, output %d", r, k);
    saker_rms_norm_backward_args c = {.struct_size = sizeof c, .dy = &far_t[0], .x = &far_t[1], .dx = &far_t[2]};
    saker_rms_norm_backward_args d = {.struct_size = sizeof d, .dy = &near_t[0], .x = &near_t[1], .dx = &near_t[2]};
    float dw[2][N];
    saker_tensor dwt[2] = {SAKER_TENSOR(dw[0], SAKER_F32, N), SAKER_TENSOR(dw[1], SAKER_F32, N)};
    c.dweight = &dwt[0], d.dweight = &dwt[1];
    CHECK_TEXT(saker_rms_norm_backward(ctx, &c) == SAKER_OK, "%s", saker_context_error(ctx));
    CHECK(saker_rms_norm_backward(ctx, &d) == SAKER_OK && !memcmp(dw[0], dw[1], sizeof dw[0]));
    for (int r = 0; r < ROWS; r++)
        CHECK_TEXT(!memcmp(base[2] + (size_t)(r * apart) * size, near[2] + (size_t)(r * N) * size, N * size),
                   "backward, row %d", r);
    for (int i = 0; i < 4; i++)
        munmap(base[i], span);
}

/* A broadcast view of 2^33 rows is legal for an input; the output would have to be as large, so this only asks. */
static void many_rows(saker_context *ctx)
{
    float row[8] = {1, 2, 3, 4, 5, 6, 7, 8}, out[8];
    int64_t shape[2] = {(int64_t)1 << 33, 8}, expanded[2] = {0, 1}, one[2] = {1, 8};
    saker_tensor x = saker_tensor_of(row, SAKER_F32, 2, shape, expanded);
    saker_tensor y = saker_tensor_of(out, SAKER_F32, 2, shape, NULL),
                 small = saker_tensor_of(out, SAKER_F32, 2, one, NULL);
    char text[512];
    saker_rms_norm_args a = {.struct_size = sizeof a, .x = &x, .y = &y};
    size_t bytes;
    CHECK(saker_explain(ctx, "rms_norm", &a, text, sizeof text) == SAKER_OK);
    CHECK(saker_workspace_bytes(ctx, "rms_norm", &a, &bytes) == SAKER_OK && bytes < (size_t)1 << 30);
    a.y = &small;
    CHECK(saker_rms_norm(ctx, &a) == SAKER_INVALID_ARG);
}

/* All-zero rows, constant rows, one column, a million columns: finite (N7). */
static void odd_rows(saker_context *ctx)
{
    static const int64_t widths[] = {1, 1000000};
    for (int w = 0; w < 2; w++)
        for (int constant = 0; constant < 2; constant++) {
            int64_t n = widths[w];
            float *x = malloc((size_t)n * 2 * sizeof *x), *y = malloc((size_t)n * 2 * sizeof *y), rstd[2];
            for (int64_t i = 0; i < 2 * n; i++)
                x[i] = constant ? 5.0f : 0.0f;
            saker_tensor xt = SAKER_TENSOR(x, SAKER_F32, 2, n), yt = SAKER_TENSOR(y, SAKER_F32, 2, n);
            saker_tensor rt = SAKER_TENSOR(rstd, SAKER_F32, 2);
            CHECK(saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &xt, .y = &yt, .rstd = &rt)) == SAKER_OK);
            double want = constant ? 5 / sqrt(25 + 1e-6) : 0;
            bool good = true;
            for (int64_t i = 0; i < 2 * n; i++)
                good &= fabs((double)y[i] - want) <= 4 * 0x1p-24 * want;
            CHECK_TEXT(good, "width %lld, %s row", (long long)n, constant ? "constant" : "zero");
            CHECK(isfinite(rstd[0]) && rstd[0] > 0 && rstd[0] == rstd[1]);
            free(x);
            free(y);
        }
}

int main(void)
{
    for (int i = 0; i < saker_level_count(); i++) {
        saker_level_info level = saker_level_at(i);
        saker_config c = {.struct_size = sizeof c, .isa = level.name};
        saker_context *ctx;
        if (!level.usable || saker_context_create(&ctx, &c))
            continue;
        far_rows(ctx, SAKER_F32, 4);
        far_rows(ctx, SAKER_BF16, 2);
        far_rows(ctx, SAKER_F16, 2);
        many_rows(ctx);
        odd_rows(ctx);
        saker_context_destroy(ctx);
    }
    return check_report("test_big");
}
