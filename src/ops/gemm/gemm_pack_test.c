/* gemm_pack_test.c - cases of gemm_pack. What it writes is opaque and differs from level to level, so the oracle takes
 * any bytes; the runner still sees what is read and written, and tests/test_gemm.c what the bytes are good for.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "gemm_test.h"

typedef struct spec {
    saker_type b, zero;
    int64_t k, n;
    int columns; /* b is column-major */
    int scaling;
    int64_t group;
    int gated, for_a, only_bytes;
    int64_t room; /* bytes of packed; 0: more than enough */
} spec;

static const spec specs[] = {
    {SAKER_I4, SAKER_I8, 12, 8, 0, SAKER_GEMM_SCALE_GROUP, 3, 0, SAKER_GEMM_FOR_F16, 0, 128 + 4 * 32 * 32 * 2},
    {SAKER_F32, 0, 7, 6, 0, 0, 0, 0, 0, 0, 128 + 7 * 32 * 4},
    {SAKER_F32, 0, 700, 45, 1, 0, 0, 0, 0, 0, 0},
    {SAKER_F16, 0, 65, 34, 0, 0, 0, SAKER_GATED_HALVES, 0, 0, 0},
    {SAKER_BF16, 0, 1100, 70, 1, 0, 0, SAKER_GATED_INTERLEAVED, 0, 0, 0},
    {SAKER_E4M3, 0, 300, 140, 0, SAKER_GEMM_SCALE_BLOCK, 0, 0, 0, 0, 0},
    {SAKER_I8, 0, 130, 33, 0, SAKER_GEMM_SCALE_ROW_COLUMN, 0, 0, 0, 0, 0},
    {SAKER_I8, SAKER_F32, 130, 33, 1, SAKER_GEMM_SCALE_GROUP, 32, 0, SAKER_GEMM_FOR_BF16, 0, 0},
    {SAKER_I4, 0, 256, 40, 1, SAKER_GEMM_SCALE_GROUP, 64, 0, SAKER_GEMM_FOR_I8, 0, 0},
    {SAKER_I32, 0, 9, 40, 0, 0, 0, 0, 0, 0, 0},
    {SAKER_F32, 0, 700, 45, 0, 0, 0, 0, 0, 1, 0},
    {SAKER_F32, 0, 0, 45, 0, 0, 0, 0, 0, 0, 0},
    {SAKER_BF16, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0},
    {SAKER_F32, 0, 4096, 4096, 1, 0, 0, 0, 0, 0, 0},
    {SAKER_BF16, 0, 4096, 4096, 1, 0, 0, 0, 0, 0, 0},
    {SAKER_I4, 0, 4096, 4096, 1, SAKER_GEMM_SCALE_GROUP, 128, 0, SAKER_GEMM_FOR_BF16, 0, 0},
};

static suite_tensor *add(suite_case *c, const char *field, suite_role role, saker_type type, int64_t rows, int64_t cols)
{
    suite_tensor *t = gemm_add(c, field, role, type, SUITE_NORMAL);
    t->ndim = 2;
    t->shape[0] = rows;
    t->shape[1] = cols;
    return t;
}

static bool case_at(int i, suite_case *out)
{
    if (i < 0 || i >= (int)(sizeof specs / sizeof *specs))
        return false;
    const spec *s = &specs[i];
    *out = (suite_case){
        .use = (s->k * s->n > 1 << 20 ? SUITE_BENCH : SUITE_CHECK) | SUITE_CPU_ONLY, .reads = 1, .writes = 1};
    suite_say(out, "%s %lldx%lld%s%s%s for %d%s", suite_type_text(s->b), (long long)s->k, (long long)s->n,
              s->columns ? " columns" : "", gemm_scaling_text(s->scaling), gemm_gated_text(s->gated), s->for_a,
              s->only_bytes ? " bytes" : "");
    saker_gemm_pack_args args = {
        .struct_size = sizeof args, .group = s->group, .scaling = s->scaling, .gated = s->gated, .for_a = s->for_a};
    memcpy(out->args, &args, sizeof args);
    suite_tensor *b = add(out, "b", SUITE_IN, s->b, s->k, s->n);
    if (s->columns) {
        b->stride[0] = 1;
        b->stride[1] = s->k + s->k % 2;
    } else if (s->b == SAKER_I4) {
        b->stride[0] = s->n + s->n % 2;
        b->stride[1] = 1;
    }
    if (s->scaling == SAKER_GEMM_SCALE_ROW_COLUMN) {
        suite_tensor *t = add(out, "b_scale", SUITE_IN, SAKER_F32, s->n, 0);
        t->ndim = 1;
    } else if (s->scaling) {
        int64_t size = s->group ? s->group : 128, rows = (s->k + size - 1) / size;
        int64_t cols = s->group ? s->n : (s->n + 127) / 128;
        add(out, "b_scale", SUITE_IN, SAKER_F32, rows, cols);
        if (s->zero)
            add(out, "b_zero", SUITE_IN, s->zero, rows, cols);
    }
    if (!s->only_bytes) { /* enough for every level: columns to 64, groups of k to 64, 4 bytes each */
        int64_t size = s->group ? s->group : 128, k = (s->k + size - 1) / size * ((size + 63) / 64 * 64);
        int64_t room = s->room ? s->room : 4096 + k * (s->n + 64) * 4;
        suite_tensor *t = add(out, "packed", SUITE_OUT, SAKER_U8, room, 0);
        t->ndim = 1;
        t->free_shape = SUITE_ANY_WIDTH;
        t->align = 16;
    }
    suite_tensor *t = add(out, "bytes", SUITE_OUT, SAKER_I64, 1, 0);
    t->ndim = 1;
    out->bytes = (double)suite_span_bytes(b);
    return true;
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    for (int i = 0; i < c->n_tensors; i++)
        for (int64_t k = 0; c->tensor[i].role == SUITE_OUT && k < suite_elements(&c->tensor[i]); k++) {
            value[i][k] = 0;
            bound[i][k] = INFINITY;
        }
}

const suite skr_suite_gemm_pack = {.op = "gemm_pack", .at = case_at, .oracle = oracle};
