/* test_big.c - offsets past 2^31 elements in small views of a sparse mapping, rows a million wide, long sequences.
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

/* attention over three tokens that are 2^31 + 7 elements apart, and the same side by side. */
static void far_tokens(saker_context *ctx)
{
    enum { D = 20, USED = 8 }; /* q k v o d_o dq dk dv */
    const int64_t apart = ((int64_t)1 << 31) + 7;
    size_t span = (size_t)(2 * apart + D) * 4;
    int64_t shape[4] = {1, ROWS, 1, D}, strides[4] = {0, apart, 0, 1}, stat[3] = {1, 1, ROWS};
    float near[USED][ROWS * D], lse[2][ROWS], *base[USED];
    saker_tensor far_t[USED], near_t[USED], lse_t[2];
    srand(5);
    for (int k = 0; k < USED; k++) {
        base[k] = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base[k] == MAP_FAILED) {
            CHECK_SKIP("%zu bytes of addresses are not to be had", span);
            while (k-- > 0)
                munmap(base[k], span);
            return;
        }
        for (int i = 0; i < ROWS * D; i++)
            base[k][i / D * apart + i % D] = near[k][i] = (float)(rand() % 200 - 100) / 64;
        far_t[k] = saker_tensor_of(base[k], SAKER_F32, 4, shape, strides);
        near_t[k] = saker_tensor_of(near[k], SAKER_F32, 4, shape, NULL);
    }
    for (int k = 0; k < 2; k++)
        lse_t[k] = saker_tensor_of(lse[k], SAKER_F32, 3, stat, NULL);
    for (int k = 0; k < 2; k++) {
        saker_tensor *t = k ? near_t : far_t;
        CHECK_TEXT(saker_attention(ctx, SAKER_ARGS(attention, .q = &t[0], .k = &t[1], .v = &t[2], .o = &t[3],
                                                   .lse = &lse_t[k], .causal = 1)) == SAKER_OK,
                   "%s", saker_context_error(ctx));
        CHECK_TEXT(saker_attention_backward(ctx, SAKER_ARGS(attention_backward, .d_o = &t[4], .q = &t[0], .k = &t[1],
                                                            .v = &t[2], .o = &t[3], .lse = &lse_t[k], .dq = &t[5],
                                                            .dk = &t[6], .dv = &t[7], .causal = 1)) == SAKER_OK,
                   "%s", saker_context_error(ctx));
    }
    CHECK(!memcmp(lse[0], lse[1], sizeof lse[0]));
    for (int k = 0; k < USED; k++) {
        for (int r = 0; r < ROWS; r++)
            CHECK_TEXT(!memcmp(base[k] + r * apart, near[k] + r * D, D * 4), "token %d, tensor %d", r, k);
        munmap(base[k], span);
    }
}

/* Memory of attention beyond its tensors: twice the length, twice the memory. */
static void long_sequences(saker_context *ctx)
{
    size_t bytes[2][2];
    float *nowhere = (float *)(uintptr_t)4096; /* nothing is read */
    for (int k = 0; k < 2; k++) {
        int64_t shape[4] = {1, 8, (int64_t)16384 << k, 128}, stat[3] = {1, 8, shape[2]}, all = 8 * shape[2] * 128;
        saker_tensor t[8], lse = saker_tensor_of(nowhere, SAKER_F32, 3, stat, NULL);
        for (int i = 0; i < 8; i++)
            t[i] = saker_tensor_of(nowhere + (i + 1) * all, SAKER_F32, 4, shape, NULL);
        saker_attention_args a = {.struct_size = sizeof a, .q = &t[0], .k = &t[1], .v = &t[2], .o = &t[3], .layout = 1};
        saker_attention_backward_args b = {.struct_size = sizeof b,
                                           .d_o = &t[4],
                                           .q = &t[0],
                                           .k = &t[1],
                                           .v = &t[2],
                                           .o = &t[3],
                                           .lse = &lse,
                                           .dq = &t[5],
                                           .dk = &t[6],
                                           .dv = &t[7],
                                           .layout = 1};
        CHECK_TEXT(saker_workspace_bytes(ctx, "attention", &a, &bytes[0][k]) == SAKER_OK, "%s",
                   saker_context_error(ctx));
        CHECK_TEXT(saker_workspace_bytes(ctx, "attention_backward", &b, &bytes[1][k]) == SAKER_OK, "%s",
                   saker_context_error(ctx));
    }
    for (int i = 0; i < 2; i++)
        CHECK_TEXT(bytes[i][1] <= 2 * bytes[i][0], "%zu bytes, then %zu", bytes[i][0], bytes[i][1]);
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
        far_tokens(ctx);
        long_sequences(ctx);
        saker_context_destroy(ctx);
    }
    return check_report("test_big");
}
