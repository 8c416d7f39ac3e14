/* test_gemm.c - what the cases of gemm cannot say.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Packed weights, i4 as bytes and every schedule give the same bits, in one case of six, or of as many as the argument
 * says; what is packed for something else is refused, and a pre that is broadcast; the largest sums of bytes are exact;
 * which blocks of d there are. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "suite.h"

static saker_context *ctx;
static const char *level;
static int packs, bytes_given, schedules, every = 6;

/* A case with its tensors in memory. */
typedef struct call {
    const suite *s;
    suite_case c;
    char *memory[SUITE_MAX_TENSORS];
    saker_tensor tensor[SUITE_MAX_TENSORS];
} call;

static int index_of(const call *x, const char *field)
{
    for (int i = 0; i < x->c.n_tensors; i++)
        if (!strcmp(x->c.tensor[i].field, field))
            return i;
    return -1;
}

static void fill_call(call *x)
{
    for (int i = 0; i < x->c.n_tensors; i++) {
        const suite_tensor *t = &x->c.tensor[i];
        memset(x->memory[i], 0x5a, (size_t)suite_span_bytes(t) + 8);
        double *value = malloc((size_t)(suite_elements(t) + 1) * sizeof *value);
        if (!value)
            abort();
        suite_values(&x->c, i, 1, value);
        if (t->role != SUITE_OUT)
            suite_store(t, value, x->memory[i]);
        free(value);
    }
}

static void open_call(call *x, const suite *s, const suite_case *c)
{
    *x = (call){.s = s, .c = *c};
    for (int i = 0; i < c->n_tensors; i++) {
        x->memory[i] = malloc((size_t)suite_span_bytes(&c->tensor[i]) + 64);
        if (!x->memory[i])
            abort();
        x->tensor[i] = suite_describe(&x->c.tensor[i], x->memory[i]);
    }
    for (int i = 0; i < c->n_tensors; i++)
        if (c->tensor[i].alias) {
            free(x->memory[i]);
            x->memory[i] = x->memory[index_of(x, c->tensor[i].alias)];
            x->tensor[i].data = x->memory[i];
        }
    fill_call(x);
}

static void close_call(call *x)
{
    for (int i = 0; i < x->c.n_tensors; i++)
        if (!x->c.tensor[i].alias)
            free(x->memory[i]);
}

/* The call's argument struct. */
static saker_gemm_args args_of(call *x)
{
    _Alignas(8) unsigned char bytes[SUITE_ARGS_BYTES];
    saker_gemm_args args;
    CHECK(suite_bind(x->s, &x->c, x->tensor, bytes));
    memcpy(&args, bytes, sizeof args);
    return args;
}

/* All outputs' bytes in a row. */
static char *outputs(const call *x, size_t *bytes)
{
    char *all = NULL;
    *bytes = 0;
    for (int i = 0; i < x->c.n_tensors; i++) {
        if (x->c.tensor[i].role == SUITE_IN)
            continue;
        size_t n = (size_t)suite_span_bytes(&x->c.tensor[i]);
        all = realloc(all, *bytes + n + 1);
        if (!all)
            abort();
        memcpy(all + *bytes, x->memory[i], n);
        *bytes += n;
    }
    return all;
}

static void expect_same(const call *x, const char *want, size_t bytes, const char *what)
{
    size_t n;
    char *got = outputs(x, &n);
    CHECK_TEXT(n == bytes && !memcmp(got, want, n), "%s: %s: other bits with %s", level, x->c.name, what);
    free(got);
}

/* ---------------------------------------------------------------- packed weights */

static saker_gemm_pack_args pack_args(const call *x, const saker_gemm_args *g)
{
    saker_type a = x->c.tensor[index_of(x, "a")].type, b = x->c.tensor[index_of(x, "b")].type;
    return (saker_gemm_pack_args){.struct_size = sizeof(saker_gemm_pack_args),
                                  .b = g->b,
                                  .b_scale = g->b_scale,
                                  .b_zero = g->b_zero,
                                  .group = g->group,
                                  .scaling = g->scaling,
                                  .gated = g->gated,
                                  .for_a = a == b            ? SAKER_GEMM_FOR_SAME
                                           : a == SAKER_F16  ? SAKER_GEMM_FOR_F16
                                           : a == SAKER_BF16 ? SAKER_GEMM_FOR_BF16
                                           : a == SAKER_I8   ? SAKER_GEMM_FOR_I8
                                                             : SAKER_GEMM_FOR_SAME};
}

/* b as gemm_pack writes it, in memory of its own. off: bytes past a multiple of 64. */
static char *pack(call *x, const saker_gemm_args *g, int off, char **memory, int64_t *bytes)
{
    saker_gemm_pack_args p = pack_args(x, g);
    saker_tensor size = SAKER_TENSOR(bytes, SAKER_I64, 1);
    p.bytes = &size;
    CHECK_TEXT(saker_gemm_pack(ctx, &p) == SAKER_OK, "%s: %s", x->c.name, saker_context_error(ctx));
    *memory = malloc((size_t)*bytes + 128);
    if (!*memory)
        abort();
    char *at = *memory + (64 - (uintptr_t)*memory % 64) % 64 + off;
    saker_tensor packed = SAKER_TENSOR(at, SAKER_U8, *bytes - 1);
    p.packed = &packed;
    CHECK(saker_gemm_pack(ctx, &p) == SAKER_INVALID_ARG && strstr(saker_context_error(ctx), "packed has"));
    packed.shape[0]++;
    CHECK_TEXT(saker_gemm_pack(ctx, &p) == SAKER_OK, "%s: %s", x->c.name, saker_context_error(ctx));
    return at;
}

static void check_packed(call *x, saker_gemm_args args, const char *want, size_t n)
{
    char *memory;
    int64_t bytes = 0;
    char *at = pack(x, &args, packs % 3 * 16, &memory, &bytes);
    saker_tensor b = *args.b;
    b.data = at;
    b.strides = NULL;
    args.b = &b;
    args.b_packed = 1;
    fill_call(x);
    saker_status got = saker_gemm(ctx, &args);
    CHECK_TEXT(got == SAKER_OK, "%s: %s: %s", level, x->c.name, saker_context_error(ctx));
    expect_same(x, want, n, "b_packed");
    free(memory);
    packs++;
}

/* ---------------------------------------------------------------- i4 as bytes */

/* b of i4 as u8; its shape and strides are written to `layout`. False: half a byte cannot be said, or b is too small to
 * show which dimension has two codes in a byte. */
static bool as_bytes(const saker_tensor *b, int64_t layout[2][SAKER_MAX_DIMS], saker_tensor *bytes)
{
    const int n = b->ndim - 1, along = !b->strides || b->strides[n] == 1 ? n : n - 1;
    int64_t compact = 1;
    for (int i = n; i >= 0; i--) {
        layout[0][i] = i == along ? (b->shape[i] + 1) / 2 : b->shape[i];
        layout[1][i] = i == along ? 1 : b->strides ? b->strides[i] / 2 : compact;
        compact *= layout[0][i];
    }
    *bytes = *b;
    bytes->dtype = SAKER_DTYPE(SAKER_U8);
    bytes->shape = layout[0];
    bytes->strides = layout[1];
    return b->shape[n - 1] > 1 && (along != n || b->shape[n] % 2 == 0);
}

static void check_bytes(call *x, const char *want, size_t n)
{
    saker_gemm_args args = args_of(x);
    int64_t layout[2][SAKER_MAX_DIMS];
    saker_tensor b;
    if (!as_bytes(args.b, layout, &b))
        return;
    const bool even =
        b.shape[b.ndim - 2] * b.shape[b.ndim - 1] * 2 == args.b->shape[b.ndim - 2] * args.b->shape[b.ndim - 1];
    if (b.ndim == 2 && even) {
        char *memory[2];
        int64_t size[2];
        char *nibbles = pack(x, &args, 0, &memory[0], &size[0]);
        args.b = &b;
        char *bytes = pack(x, &args, 0, &memory[1], &size[1]);
        CHECK_TEXT(size[0] == size[1] && !memcmp(nibbles, bytes, (size_t)size[0]),
                   "%s: %s: b as bytes is packed otherwise", level, x->c.name);
        free(memory[0]);
        free(memory[1]);
        check_packed(x, args, want, n);
    }
    args.b = &b;
    fill_call(x);
    CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s: %s: %s", level, x->c.name, saker_context_error(ctx));
    expect_same(x, want, n, "b as bytes");
    bytes_given++;
}

/* ---------------------------------------------------------------- schedules */

static void check_schedules(call *x, const char *want, size_t n)
{
    for (int schedule = SAKER_GEMM_DATA_PARALLEL; schedule <= SAKER_GEMM_STREAM_K; schedule++) {
        saker_gemm_args args = args_of(x);
        args.schedule = schedule;
        fill_call(x);
        CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
        expect_same(x, want, n, "another schedule");
        schedules++;
    }
}

static void check_case(const suite *s, const suite_case *c)
{
    call x;
    open_call(&x, s, c);
    saker_gemm_args args = args_of(&x);
    size_t n;
    CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
    char *want = outputs(&x, &n);
    const suite_tensor *a = &c->tensor[index_of(&x, "a")];
    if (args.b->ndim == 2)
        check_packed(&x, args, want, n);
    if (c->tensor[index_of(&x, "b")].type == SAKER_I4)
        check_bytes(&x, want, n);
    if (a->shape[a->ndim - 1] > 500)
        check_schedules(&x, want, n);
    free(want);
    close_call(&x);
}

/* ---------------------------------------------------------------- refusals */

static void refused(const saker_gemm_args *args, const char *sentence)
{
    saker_status got = saker_gemm(ctx, args);
    CHECK_TEXT(got != SAKER_OK && strstr(saker_context_error(ctx), sentence), "expected '%s': %s", sentence,
               got ? saker_context_error(ctx) : "(no error)");
}

static void check_refusals(void)
{
    enum { M = 5, N = 40, K = 30 };
    static float a[M * K], d[M * N];
    static _Alignas(64) char memory[(N + 64) * (K + 64) * 4 + 4096];
    saker_tensor at = SAKER_TENSOR(a, SAKER_F32, M, K), bt = SAKER_TENSOR(memory, SAKER_F32, K, N);
    saker_tensor dt = SAKER_TENSOR(d, SAKER_F32, M, N), out = SAKER_TENSOR(memory, SAKER_U8, sizeof memory);
    static float b[K * N];
    saker_tensor raw = SAKER_TENSOR(b, SAKER_F32, K, N);
    saker_gemm_args args = {.struct_size = sizeof args, .a = &at, .b = &bt, .d = &dt, .b_packed = 1};
    memset(memory, 0, sizeof memory);
    refused(&args, "not what gemm_pack wrote");
    saker_gemm_pack_args p = {.struct_size = sizeof p, .b = &raw, .packed = &out};
    CHECK(saker_gemm_pack(ctx, &p) == SAKER_OK && saker_gemm(ctx, &args) == SAKER_OK);
    int64_t other[2] = {K, N - 1}, narrow[2] = {M, N - 1};
    bt.shape = other;
    dt.shape = narrow;
    refused(&args, "b has shape [30, 39], but a matrix [30, 40] was packed");
    int64_t half[2] = {M, N / 2}, whole[2] = {K, N};
    bt.shape = whole;
    dt.shape = half;
    args.gated = SAKER_GATED_HALVES;
    refused(&args, "gated");
    args.gated = 0;
    dt.shape = (int64_t[]){M, N};
    bt.data = memory + 4;
    refused(&args, "multiple of 16");
    bt.data = memory;
    CHECK(saker_gemm(ctx, &args) == SAKER_OK);
    saker_config scalar = {.struct_size = sizeof scalar, .isa = "scalar"};
    saker_context *mine = ctx, *lower = NULL;
    CHECK(saker_context_create(&lower, &scalar) == SAKER_OK);
    ctx = lower;
    if (strcmp(level, "scalar"))
        refused(&args, "was packed for level");
    ctx = mine;
    saker_context_destroy(lower);
}

/* What went into the panels has to be what gemm is given, at every level alike. */
static void check_packed_scales(void)
{
    enum { M = 3, N = 24, K = 32 };
    static uint16_t a[M * K];
    static int8_t b[K * N], zero[2 * N];
    static float scale[2 * N], d[M * N];
    static _Alignas(64) char memory[(N + 64) * (K + 64) * 4 + 4096];
    saker_tensor at = SAKER_TENSOR(a, SAKER_F16, M, K), raw = SAKER_TENSOR(b, SAKER_I8, K, N);
    saker_tensor scales = SAKER_TENSOR(scale, SAKER_F32, 2, N), zeros = SAKER_TENSOR(zero, SAKER_I8, 2, N);
    saker_tensor packed = SAKER_TENSOR(memory, SAKER_I8, K, N), out = SAKER_TENSOR(memory, SAKER_U8, sizeof memory);
    saker_tensor dt = SAKER_TENSOR(d, SAKER_F32, M, N);
    saker_gemm_pack_args p = {.struct_size = sizeof p, .b = &raw, .packed = &out, .group = K / 2};
    p.scaling = SAKER_GEMM_SCALE_GROUP, p.for_a = SAKER_GEMM_FOR_F16;
    saker_gemm_args args = {.struct_size = sizeof args, .a = &at, .b = &packed, .d = &dt, .b_packed = 1};
    args.scaling = SAKER_GEMM_SCALE_GROUP, args.group = K / 2;
    for (int had = 0; had < 3; had++)
        for (int has = 1; has < 3; has++) {
            p.b_scale = had ? &scales : NULL, p.b_zero = had > 1 ? &zeros : NULL;
            args.b_scale = &scales, args.b_zero = has > 1 ? &zeros : NULL;
            CHECK_TEXT(saker_gemm_pack(ctx, &p) == SAKER_OK, "%s", saker_context_error(ctx));
            if (had == has)
                CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
            else
                refused(&args, had > 1 ? "with b_scale and with b_zero"
                               : had   ? "with b_scale and without b_zero"
                                       : "without b_scale and without b_zero");
        }
}

/* Refusals of pre, and of the scales of groups: who says how large they are. */
static void check_shapes_refused(void)
{
    static float memory[8][512];
    saker_tensor a = SAKER_TENSOR(memory[0], SAKER_F32, 3, 4, 5), b = SAKER_TENSOR(memory[1], SAKER_F32, 5, 6);
    saker_tensor d = SAKER_TENSOR(memory[2], SAKER_F32, 3, 4, 6), pre = SAKER_TENSOR(memory[3], SAKER_F32, 3, 4, 6);
    saker_tensor flat = SAKER_TENSOR(memory[3], SAKER_F32, 4, 6), one = SAKER_TENSOR(memory[3], SAKER_F32, 1, 4, 6);
    saker_gemm_args args = {.struct_size = sizeof args, .a = &a, .b = &b, .d = &d, .act = SAKER_ACT_SILU};
    args.pre = &pre;
    CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
    args.pre = &flat; /* one matrix for three would be written three times */
    refused(&args, "gemm: pre has shape [4, 6], expected [3, 4, 6] from a and b");
    args.pre = &one;
    refused(&args, "gemm: pre has shape [1, 4, 6], expected [3, 4, 6] from a and b");

    static const int32_t starts[] = {0, 1, 4};
    saker_tensor rows = SAKER_TENSOR(memory[0], SAKER_F32, 4, 5), offsets = SAKER_TENSOR(starts, SAKER_I32, 3);
    saker_tensor weights = SAKER_TENSOR(memory[1], SAKER_F32, 2, 5, 6), to = SAKER_TENSOR(memory[2], SAKER_F32, 4, 6);
    saker_tensor scales = SAKER_TENSOR(memory[4], SAKER_F32, 3, 6),
                 blocks = SAKER_TENSOR(memory[4], SAKER_F32, 3, 1, 1);
    saker_grouped_gemm_args g = {.struct_size = sizeof g, .a = &rows, .b = &weights, .offsets = &offsets, .d = &to};
    static const char *const sentences[] = {
        "grouped_gemm: b_scale has shape [3, 6], expected [2, 6] from b and offsets",
        "grouped_gemm: b_scale has shape [3, 1, 1], expected [2, 1, 1] from b and offsets"};
    for (int i = 0; i < 2; i++) {
        g.scaling = i ? SAKER_GEMM_SCALE_BLOCK : SAKER_GEMM_SCALE_ROW_COLUMN;
        g.b_scale = i ? &blocks : &scales;
        saker_status got = saker_grouped_gemm(ctx, &g);
        CHECK_TEXT(got == SAKER_INVALID_ARG && !strcmp(saker_context_error(ctx), sentences[i]), "expected '%s': %s",
                   sentences[i], saker_context_error(ctx));
    }
}

/* Few columns turn the product around; packed, and as a group, it is not. The factor has alpha and two scales, whose
 * product depends on its order. */
static void check_turned(void)
{
    enum { M = 40, N = 8, K = 64 };
    static float a[M * K], b[K * N], a_scale[M], b_scale[N], d[3][M * N];
    static _Alignas(64) char memory[(N + 64) * (K + 64) * 4 + 4096];
    static const int32_t starts[] = {0, M};
    for (int i = 0; i < M * K; i++)
        a[i] = (float)(i * 7919 % 1013) / 256 - 2;
    for (int i = 0; i < K * N; i++)
        b[i] = (float)(i * 104729 % 1009) / 256 - 2;
    for (int i = 0; i < M; i++)
        a_scale[i] = 0.1f + (float)i / 7;
    for (int i = 0; i < N; i++)
        b_scale[i] = 0.7f + (float)i / 13;
    for (int i = 0; i < 2; i++) {
        saker_tensor at = SAKER_TENSOR(a, SAKER_F32, M, K), bt = SAKER_TENSOR(b, SAKER_F32, K, N);
        saker_tensor as = SAKER_TENSOR(a_scale, SAKER_F32, i ? M : 1), bs = SAKER_TENSOR(b_scale, SAKER_F32, i ? N : 1);
        saker_tensor d0 = SAKER_TENSOR(d[0], SAKER_F32, M, N), d1 = d0, d2 = d0, packed = bt;
        saker_tensor out = SAKER_TENSOR(memory, SAKER_U8, sizeof memory);
        saker_gemm_args args = {.struct_size = sizeof args, .a = &at, .b = &bt, .d = &d0, .alpha = 0.3f};
        args.a_scale = &as;
        args.b_scale = &bs;
        args.scaling = i ? SAKER_GEMM_SCALE_ROW_COLUMN : SAKER_GEMM_SCALE_TENSOR;
        CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
        saker_gemm_pack_args p = {.struct_size = sizeof p, .b = &bt, .b_scale = &bs, .packed = &out};
        p.scaling = args.scaling;
        CHECK_TEXT(saker_gemm_pack(ctx, &p) == SAKER_OK, "%s", saker_context_error(ctx));
        d1.data = d[1];
        packed.data = memory;
        args.d = &d1;
        args.b = &packed;
        args.b_packed = 1;
        CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
        CHECK_TEXT(!memcmp(d[0], d[1], sizeof d[0]), "%s: alpha and %s scales: other bits with b_packed", level,
                   i ? "rows' and columns'" : "two");
        saker_tensor bg = SAKER_TENSOR(b, SAKER_F32, 1, K, N), sg = SAKER_TENSOR(b_scale, SAKER_F32, 1, N);
        saker_tensor offsets = SAKER_TENSOR(starts, SAKER_I32, 2);
        saker_grouped_gemm_args g = {.struct_size = sizeof g, .a = &at, .b = &bg, .offsets = &offsets, .alpha = 0.3f};
        g.a_scale = &as;
        g.b_scale = i ? &sg : &bs;
        g.scaling = args.scaling;
        d2.data = d[2];
        g.d = &d2;
        CHECK_TEXT(saker_grouped_gemm(ctx, &g) == SAKER_OK, "%s", saker_context_error(ctx));
        CHECK_TEXT(!memcmp(d[0], d[2], sizeof d[0]), "%s: alpha and %s scales: other bits as a group", level,
                   i ? "rows' and columns'" : "two");
    }
}

/* Bytes that are all as large as they can be, in few rows and in many, k's or columns neighbours. */
static void check_largest_sums(void)
{
    enum { M = 20, N = 70, K = 2060 };
    static int8_t a[M * K], b[K * N];
    static int32_t d[M * N];
    static const int values[][2] = {{-128, -128}, {127, -128}, {-128, 127}, {127, 127}};
    for (int i = 0; i < 4 * 2 * 3; i++) {
        int64_t m = (int64_t[]){1, 3, M}[i / 8], strides[2] = {1, K}, wrong = 0;
        memset(a, values[i % 4][0], sizeof a);
        memset(b, values[i % 4][1], sizeof b);
        saker_tensor ta = SAKER_TENSOR(a, SAKER_I8, m, K), tb = SAKER_TENSOR(b, SAKER_I8, K, N),
                     td = SAKER_TENSOR(d, SAKER_I32, m, N);
        tb.strides = i / 4 % 2 ? strides : NULL;
        CHECK_TEXT(saker_gemm(ctx, SAKER_ARGS(gemm, .a = &ta, .b = &tb, .d = &td)) == SAKER_OK, "%s",
                   saker_context_error(ctx));
        for (int64_t j = 0; j < m * N; j++)
            wrong += d[j] != K * values[i % 4][0] * values[i % 4][1];
        CHECK_TEXT(!wrong, "%s: %lld rows of %d times %d: %lld sums are wrong", level, (long long)m, values[i % 4][0],
                   values[i % 4][1], (long long)wrong);
    }
}

/* One to four rows of weights' codes have a kernel of their own: the bits that they have among many rows, which go
 * through panels. Also of numbers so small that sums lose bits of theirs, or AMX has zeros for them. */
static void check_rows_of_codes(void)
{
    enum { M = 20, N = 70, K = 1056, GROUP = 96, GROUPS = K / GROUP };
    static uint16_t a[M * K];
    static uint8_t b[N * K];
    static int8_t zero[GROUPS * N];
    static float scale[GROUPS * N], d[2][M * N];
    for (int i = 0; i < N * K; i++)
        b[i] = (uint8_t)(i * 7919 >> 5 ^ i >> 9);
    for (int i = 0; i < GROUPS * N; i++)
        zero[i] = (int8_t)(i % 15 - 7), scale[i] = (float)(1 + i % 9) * 0x1p64f;
    for (int i = 0; i < 2 * 2 * 2 * 2 * 3; i++) {
        const int small = i & 1, shifted = i >> 1 & 1;
        const int64_t m = (int64_t[]){1, 3, 4}[i / 16];
        const saker_type types[2] = {i & 4 ? SAKER_BF16 : SAKER_F16, i & 8 ? SAKER_I8 : SAKER_I4};
        const unsigned bits = types[0] == SAKER_BF16 ? 7 : 10, least = small ? 1 : types[0] == SAKER_BF16 ? 115 : 10;
        for (unsigned j = 0; j < M * K; j++)
            a[j] = (uint16_t)((j * 40503 >> 4 & 0x8000) | (least + j % 7) << bits | (j * 2654435761u >> (32 - bits)));
        int64_t turned[2] = {1, K};
        saker_tensor at = SAKER_TENSOR(a, types[0], M, K), bt = SAKER_TENSOR(b, types[1], K, N),
                     scales = SAKER_TENSOR(scale, SAKER_F32, GROUPS, N),
                     zeros = SAKER_TENSOR(zero, SAKER_I8, GROUPS, N), dt = SAKER_TENSOR(d[0], SAKER_F32, M, N);
        bt.strides = turned;
        saker_gemm_args args = {.struct_size = sizeof args, .a = &at, .b = &bt, .d = &dt, .b_scale = &scales};
        args.scaling = SAKER_GEMM_SCALE_GROUP, args.group = GROUP, args.b_zero = shifted ? &zeros : NULL;
        CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
        at.shape = (int64_t[]){m, K}, dt.shape = (int64_t[]){m, N}, dt.data = d[1];
        CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
        CHECK_TEXT(!memcmp(d[0], d[1], (size_t)(m * N) * sizeof **d),
                   "%s: %d rows of %s codes%s: other bits than of %d", level, (int)m, i & 8 ? "i8" : "i4",
                   shifted ? " with zero points" : "", M);
    }
}

/* grouped_gemm with i4 as bytes, both ways around. */
static void check_grouped_bytes(void)
{
    enum { GROUPS = 2, T = 5, N = 34, K = 64, SHARE = 32 };
    static const int32_t offset[GROUPS + 1] = {0, 2, T};
    static uint16_t a[T * K];
    static uint8_t b[GROUPS * K * N / 2];
    static float scale[GROUPS * (K / SHARE) * N], d[2][T * N];
    for (unsigned i = 0; i < T * K; i++)
        a[i] = (uint16_t)((i * 40503 >> 4 & 0x8000) | 14 << 10 | i % 1024);
    for (unsigned i = 0; i < sizeof b; i++)
        b[i] = (uint8_t)(i * 7919 >> 5);
    for (int i = 0; i < GROUPS * (K / SHARE) * N; i++)
        scale[i] = (float)(1 + i % 9);
    for (int turned = 0; turned < 2; turned++) {
        int64_t nibbles[] = {K * N, turned ? 1 : N, turned ? K : 1},
                bytes[] = {K * N / 2, turned ? 1 : N / 2, turned ? K / 2 : 1};
        saker_tensor at = SAKER_TENSOR(a, SAKER_F16, T, K), bt = SAKER_TENSOR(b, SAKER_I4, GROUPS, K, N),
                     ot = SAKER_TENSOR((void *)offset, SAKER_I32, GROUPS + 1),
                     st = SAKER_TENSOR(scale, SAKER_F32, GROUPS, K / SHARE, N),
                     dt = SAKER_TENSOR(d[0], SAKER_F32, T, N);
        bt.strides = nibbles;
        saker_grouped_gemm_args args = {
            .struct_size = sizeof args, .a = &at, .b = &bt, .offsets = &ot, .d = &dt, .b_scale = &st};
        args.scaling = SAKER_GEMM_SCALE_GROUP, args.group = SHARE;
        CHECK_TEXT(saker_grouped_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
        bt = (saker_tensor)SAKER_TENSOR(b, SAKER_U8, GROUPS, turned ? K / 2 : K, turned ? N : N / 2);
        bt.strides = bytes, dt.data = d[1];
        CHECK_TEXT(saker_grouped_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
        CHECK_TEXT(!memcmp(d[0], d[1], sizeof d[0]), "%s: grouped_gemm: other bits with b as bytes, two %s in each",
                   level, turned ? "k's" : "columns");
    }
}

static void expect_explained(const saker_gemm_args *args, const char *words, bool said)
{
    char text[4096];
    CHECK_TEXT(saker_explain(ctx, "gemm", args, text, sizeof text) == SAKER_OK, "%s", saker_context_error(ctx));
    CHECK_TEXT(!strstr(text, words) == !said, "%s: '%s' %s in: %s", level, words, said ? "is not" : "is", text);
}

/* At level amx many rows go by columns, with a where it lies, and have the bits that they have in blocks. */
static void check_by_columns(void)
{
    enum { M = 264, N = 288, K = 1152 };
    static const saker_type types[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_I8};
    int64_t packed_bytes = 0;
    char *a = malloc((size_t)M * K * 4), *b = malloc((size_t)N * K * 4), *d[2] = {malloc(M * N * 4), malloc(M * N * 4)};
    if (!a || !b || !d[0] || !d[1])
        abort();
    for (int i = 0; i < 4; i++) {
        static int64_t turned[2] = {1, K}, odd[2] = {K + 1, 1};
        int bytes = suite_type_bytes(types[i]);
        for (int64_t j = 0; j < (int64_t)N * K * bytes; j++) /* no exponent is large */
            b[j] = (char)(bytes > 1 && j % bytes == bytes - 1 ? 0x3b | (j * 7919 >> 3 & 0x80) : j * j * 104729 >> 7);
        memcpy(a, b + 12 * bytes, (size_t)M * K * (size_t)bytes);
        saker_tensor at = SAKER_TENSOR(a, types[i], M, K), bt = SAKER_TENSOR(b, types[i], K, N),
                     dt = SAKER_TENSOR(d[0], types[i] == SAKER_I8 ? SAKER_I32 : types[i], M, N);
        bt.strides = turned;
        saker_gemm_args args = {.struct_size = sizeof args, .a = &at, .b = &bt, .d = &dt};
        bool amx = !strncmp(level, "amx", 3);
        expect_explained(&args, "each packs its own columns of b", amx);
        expect_explained(&args, "a is used as it lies", amx && (i > 1 || (i == 1 && !strcmp(level, "amxfp16"))));
        if (!amx)
            continue;
        CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
        args.schedule = SAKER_GEMM_SPLIT_K;
        dt.data = d[1];
        CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
        expect_explained(&args, "each packs its own columns of b", false);
        CHECK_TEXT(!memcmp(d[0], d[1], (size_t)M * N * dt.dtype.bits / 8), "%s: type %d: other bits", level, types[i]);
        args.schedule = 0;
        saker_tensor size = SAKER_TENSOR(&packed_bytes, SAKER_I64, 1), packed = bt;
        saker_gemm_pack_args p = {.struct_size = sizeof p, .b = &bt, .bytes = &size};
        CHECK(saker_gemm_pack(ctx, &p) == SAKER_OK);
        char *memory = aligned_alloc(64, ((size_t)packed_bytes + 63) / 64 * 64);
        if (!memory)
            abort();
        saker_tensor out = SAKER_TENSOR(memory, SAKER_U8, packed_bytes);
        p.packed = &out;
        CHECK(saker_gemm_pack(ctx, &p) == SAKER_OK);
        packed.data = memory;
        packed.strides = NULL;
        args.b = &packed;
        args.b_packed = 1;
        memset(d[1], 0, (size_t)M * N * 4);
        CHECK_TEXT(saker_gemm(ctx, &args) == SAKER_OK, "%s", saker_context_error(ctx));
        expect_explained(&args, "blocks of d with all rows", true);
        expect_explained(&args, "each packs its own columns of b", false);
        CHECK_TEXT(!memcmp(d[0], d[1], (size_t)M * N * dt.dtype.bits / 8), "%s: type %d: other bits with b_packed",
                   level, types[i]);
        free(memory);
        args.b = &bt;
        args.b_packed = 0;
        at.shape = (int64_t[]){M - 4, K};
        dt.shape = (int64_t[]){M - 4, N};
        at.strides = odd; /* rows that do not begin where lines do */
        expect_explained(&args, "a is used as it lies", false);
    }
    free(a), free(b), free(d[0]), free(d[1]);
}

static void check_level(void)
{
    const suite *s = suite_find("gemm");
    suite_case c;
    for (int i = 0; s->at(i, &c); i++)
        if (c.use & SUITE_CHECK && i % every == 0)
            check_case(s, &c);
    check_refusals();
    check_packed_scales();
    check_shapes_refused();
    check_turned();
    check_largest_sums();
    check_rows_of_codes();
    check_grouped_bytes();
    saker_context *all = ctx;
    saker_config one = {.struct_size = sizeof one, .isa = level, .threads = 1};
    CHECK_TEXT(saker_context_create(&ctx, &one) == SAKER_OK, "%s", saker_context_error(NULL));
    check_by_columns();
    saker_context_destroy(ctx);
    ctx = all;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        every = atoi(argv[1]) > 0 ? atoi(argv[1]) : 1;
    for (int i = 0; i < saker_level_count(); i++) {
        saker_level_info info = saker_level_at(i);
        if (!info.usable) {
            CHECK_SKIP("%s: %s", info.name, info.why_not);
            continue;
        }
        level = info.name;
        saker_config config = {.struct_size = sizeof config, .isa = info.name};
        CHECK_TEXT(saker_context_create(&ctx, &config) == SAKER_OK, "%s", saker_context_error(NULL));
        check_level();
        saker_context_destroy(ctx);
    }
    printf("%d packed, %d as bytes, %d schedules\n", packs, bytes_given, schedules);
    return check_report("test_gemm");
}
