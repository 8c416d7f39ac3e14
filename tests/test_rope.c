/* test_rope.c - what the cases of rope cannot say: values inside index tensors, q and k inside one tensor, sentences.
 * SPDX-License-Identifier: Apache-2.0
 *
 * test_rope [--cuda]: the same on a GPU. */
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "saker.h"

static saker_context *ctx;
static bool cuda;

/* Memory on the device with a host copy; all of it is small. */
typedef struct block {
    size_t bytes;
    char *host;
    void *device;
} block;

static block block_of(const void *from, size_t bytes)
{
    block b = {bytes, malloc(bytes), NULL};
    if (!b.host || saker_memory_alloc(ctx, bytes, &b.device))
        abort();
    if (from)
        memcpy(b.host, from, bytes);
    else
        memset(b.host, 0x5a, bytes);
    CHECK(saker_memory_copy(ctx, b.device, b.host, bytes) == SAKER_OK);
    return b;
}

static const float *read_back(block *b)
{
    CHECK(saker_memory_copy(ctx, b->host, b->device, b->bytes) == SAKER_OK);
    return (const float *)(const void *)b->host;
}

static void release(block *b)
{
    saker_memory_free(ctx, b->device);
    free(b->host);
}

static float *some_floats(int64_t n)
{
    float *f = malloc((size_t)n * sizeof *f);
    for (int64_t i = 0; f && i < n; i++)
        f[i] = (float)(rand() % 2001 - 1000) / 512.0f;
    return f;
}

/* ---------------------------------------------------------------- positions outside of a table */

enum { T = 6, H = 2, D = 16, P = 5 };

static void table_ends(saker_type id_type)
{
    static const int64_t asked[][T] = {{0, 4, 5, -1, INT32_MAX, INT32_MIN}, {0, 4, 4, 0, 4, 0}, {0, 1, 2, 3, 4, 5}};
    float *x = some_floats(T * H * D), *table = some_floats(2 * P * D / 2);
    int32_t narrow[3][T];
    for (int i = 0; i < 3 * T; i++)
        narrow[i / T][i % T] = (int32_t)asked[i / T][i % T];
    block q = block_of(x, T * H * D * 4), cos = block_of(table, P * D / 2 * 4);
    block sin = block_of(table + P * D / 2, P * D / 2 * 4), out[3];
    saker_tensor qt = SAKER_TENSOR(q.device, SAKER_F32, T, H, D), ct = SAKER_TENSOR(cos.device, SAKER_F32, P, D / 2);
    saker_tensor st = SAKER_TENSOR(sin.device, SAKER_F32, P, D / 2);
    for (int i = 0; i < 3; i++) {
        block ids = id_type == SAKER_I64 ? block_of(asked[i], sizeof asked[i]) : block_of(narrow[i], T * 4);
        saker_tensor it = SAKER_TENSOR(ids.device, id_type, T);
        out[i] = block_of(NULL, T * H * D * 4);
        saker_tensor ot = SAKER_TENSOR(out[i].device, SAKER_F32, T, H, D);
        saker_rope_args a = {.struct_size = sizeof a, .q = &qt, .cos = &ct, .sin = &st, .positions = &it, .q_out = &ot};
        a.layout = SAKER_THD;
        CHECK_TEXT(saker_rope(ctx, &a) == SAKER_OK, "%s", saker_context_error(ctx));
        CHECK(saker_context_check(ctx) == (i == 1 ? SAKER_OK : SAKER_BAD_INDEX));
        CHECK(saker_context_check(ctx) == SAKER_OK); /* said once */
        read_back(&out[i]);
        release(&ids);
    }
    CHECK(!memcmp(out[0].host, out[1].host, out[0].bytes));
    release(&q), release(&cos), release(&sin), release(&out[0]), release(&out[1]), release(&out[2]);
    free(x), free(table);
}

/* ---------------------------------------------------------------- cu_seqlens that is not sound */

static void cut(const int32_t *cu, int n, bool good, int first, int end)
{
    float *x = some_floats(T * H * D);
    block q = block_of(x, T * H * D * 4), c = block_of(cu, (size_t)n * 4), out = block_of(NULL, T * H * D * 4);
    saker_tensor qt = SAKER_TENSOR(q.device, SAKER_F32, T, H, D), cut = SAKER_TENSOR(c.device, SAKER_I32, n);
    saker_tensor ot = SAKER_TENSOR(out.device, SAKER_F32, T, H, D);
    saker_rope_args a = {.struct_size = sizeof a, .q = &qt, .cu_seqlens = &cut, .q_out = &ot, .layout = SAKER_THD};
    CHECK_TEXT(saker_rope(ctx, &a) == SAKER_OK, "%s", saker_context_error(ctx));
    CHECK(saker_context_check(ctx) == (good ? SAKER_OK : SAKER_BAD_INDEX));
    const float *y = read_back(&out);
    for (int t = 0; t < T && first >= 0; t++) { /* covered: its norm is kept; else zero */
        bool zero = true;
        for (int j = 0; j < H * D; j++)
            zero &= y[t * H * D + j] == 0;
        CHECK_TEXT(zero == (t < first || t >= end), "token %d is %s", t, zero ? "zero" : "not zero");
    }
    release(&q), release(&c), release(&out);
    free(x);
}

static void cuts(void)
{
    cut((int32_t[]){0, 2, 6}, 3, true, 0, 6);
    cut((int32_t[]){0, 0, 6, 6}, 4, true, 0, 6);
    cut((int32_t[]){1, 2, 6}, 3, false, 1, 6);     /* begins late */
    cut((int32_t[]){0, 2, 5}, 3, false, 0, 5);     /* ends early */
    cut((int32_t[]){0, 2, 9}, 3, false, 0, 6);     /* ends late */
    cut((int32_t[]){-5, 2, 6}, 3, false, 0, 6);    /* negative */
    cut((int32_t[]){0, 0, 0}, 3, false, 0, 0);     /* all zero */
    cut((int32_t[]){0}, 1, false, 0, 0);           /* one entry */
    cut((int32_t[]){0, 4, 2, 6}, 4, false, -1, 0); /* falls */
    cut((int32_t[]){0, INT32_MAX, INT32_MIN, 6}, 4, false, -1, 0);
    enum { MORE = 70000 }; /* than one task looks at, and than there are tokens */
    int32_t *many = calloc(MORE + 1, sizeof *many);
    many[MORE] = 5;
    cut(many, MORE + 1, false, 0, 5);
    many[MORE] = 6;
    cut(many, MORE + 1, true, 0, 6);
    free(many);
}

/* A hundred thousand sequences of one token: each at position 0, so nothing turns. */
static void many_sequences(void)
{
    enum { MANY = 100000, W = 4 };
    float *x = some_floats(MANY * W);
    int32_t *cu = malloc((MANY + 1) * sizeof *cu);
    for (int i = 0; i <= MANY; i++)
        cu[i] = i;
    block q = block_of(x, MANY * W * 4), c = block_of(cu, (MANY + 1) * 4), out = block_of(NULL, MANY * W * 4);
    saker_tensor qt = SAKER_TENSOR(q.device, SAKER_F32, MANY, 1, W), ct = SAKER_TENSOR(c.device, SAKER_I32, MANY + 1);
    saker_tensor ot = SAKER_TENSOR(out.device, SAKER_F32, MANY, 1, W);
    saker_rope_args a = {.struct_size = sizeof a, .q = &qt, .cu_seqlens = &ct, .q_out = &ot, .layout = SAKER_THD};
    CHECK_TEXT(saker_rope(ctx, &a) == SAKER_OK, "%s", saker_context_error(ctx));
    CHECK(saker_context_check(ctx) == SAKER_OK);
    CHECK(!memcmp(read_back(&out), x, MANY * W * 4));
    release(&q), release(&c), release(&out);
    free(x), free(cu);
}

/* ---------------------------------------------------------------- q and k inside one tensor, in place */

static void fused(int layout)
{
    enum { B = 2, S = 9, HQ = 4, HK = 2, DIM = 32, WIDTH = (HQ + 2 * HK) * DIM };
    float *x = some_floats(B * S * WIDTH);
    block qkv = block_of(x, B * S * WIDTH * 4),
          apart[2] = {block_of(NULL, B * S * HQ * DIM * 4), block_of(NULL, B * S * HK * DIM * 4)};
    int64_t shape[2][4], stride[4] = {S * WIDTH, WIDTH, DIM, 1};
    if (layout == SAKER_BHSD)
        stride[1] = DIM, stride[2] = WIDTH;
    saker_tensor in[2], out[2];
    for (int i = 0; i < 2; i++) {
        int64_t h = i ? HK : HQ, bshd[] = {B, S, h, DIM}, bhsd[] = {B, h, S, DIM};
        memcpy(shape[i], layout == SAKER_BHSD ? bhsd : bshd, sizeof bshd);
        in[i] = saker_tensor_of((float *)qkv.device + i * HQ * DIM, SAKER_F32, 4, shape[i], stride);
        out[i] = saker_tensor_of(apart[i].device, SAKER_F32, 4, shape[i], NULL);
    }
    saker_rope_args a = {.struct_size = sizeof a, .q = &in[0], .k = &in[1], .q_out = &out[0], .k_out = &out[1]};
    a.layout = layout;
    CHECK_TEXT(saker_rope(ctx, &a) == SAKER_OK, "%s", saker_context_error(ctx));
    a.q_out = &in[0], a.k_out = &in[1];
    CHECK_TEXT(saker_rope(ctx, &a) == SAKER_OK, "%s", saker_context_error(ctx));
    const float *y = read_back(&qkv), *want[2] = {read_back(&apart[0]), read_back(&apart[1])};
    int wrong = 0;
    for (int b = 0; b < B; b++)
        for (int s = 0; s < S; s++)
            for (int h = 0; h < HQ + 2 * HK; h++)
                for (int j = 0; j < DIM; j++) {
                    int at = (b * S + s) * WIDTH + h * DIM + j, k = h >= HQ, heads = k ? HK : HQ, n = h - k * HQ;
                    int64_t row = layout == SAKER_BHSD ? (b * heads + n) * S + s : (b * S + s) * heads + n;
                    wrong += y[at] != (h < HQ + HK ? want[k][row * DIM + j] : x[at]);
                }
    CHECK_TEXT(wrong == 0, "%d elements differ, layout %d", wrong, layout);
    /* Moved by one head they overlap. */
    in[1].data = (float *)qkv.device + (HQ - 1) * DIM;
    CHECK(saker_rope(ctx, &a) == SAKER_ALIAS);
    release(&qkv), release(&apart[0]), release(&apart[1]);
    free(x);
}

/* ---------------------------------------------------------------- sentences */

static void refused(const saker_rope_args *a, const char *text)
{
    saker_status got = saker_rope(ctx, a);
    CHECK_TEXT(got == SAKER_INVALID_ARG && strstr(saker_context_error(ctx), text), "%s: %s", saker_status_name(got),
               got ? saker_context_error(ctx) : "");
}

static void sentences(void)
{
    block q = block_of(NULL, 2 * 3 * 2 * 7 * 4), out = block_of(NULL, 2 * 3 * 2 * 7 * 4);
    saker_tensor odd = SAKER_TENSOR(q.device, SAKER_F32, 2, 3, 2, 7),
                 odd_out = SAKER_TENSOR(out.device, SAKER_F32, 2, 3, 2, 7);
    saker_tensor even = SAKER_TENSOR(q.device, SAKER_F32, 2, 3, 2, 6),
                 even_out = SAKER_TENSOR(out.device, SAKER_F32, 2, 3, 2, 6);
    saker_rope_args a = {.struct_size = sizeof a, .q = &odd, .q_out = &odd_out};
    refused(&a, "rotary_dim is 7, the head size of q, expected an even number");
    a.q = &even, a.q_out = &even_out, a.rotary_dim = 8;
    refused(&a, "rotary_dim is 8 (given), expected 0 to 6, the head size of q");
    a.rotary_dim = 0, a.scaling = SAKER_ROPE_YARN;
    refused(&a, "original_length is 0, expected the trained length with scaling yarn");
    a.scaling = SAKER_ROPE_NONE, a.base = 1;
    refused(&a, "base is 1, expected more than 1");
    a.base = 0, a.factor = -2;
    refused(&a, "factor is -2");
    a.factor = 3;
    refused(&a, "factor is 3, and there is no scaling");
    a.factor = 1, a.layout = SAKER_THD;
    refused(&a, "q has shape [2, 3, 2, 6], expected [T, H, D]");
    saker_tensor table = SAKER_TENSOR(q.device, SAKER_F32, 2, 3);
    a.layout = SAKER_BSHD, a.cos = a.sin = &table;
    refused(&a, "cos has 2 rows, expected at least 3 (the length of q)");
    a.scaling = SAKER_ROPE_LINEAR;
    refused(&a, "scaling is given with cos");
    a.scaling = SAKER_ROPE_NONE, a.attention_factor = 0.5f;
    refused(&a, "attention_factor is given with cos");
    a.attention_factor = 1, a.base = 5e5;
    refused(&a, "base is given with cos");
    int32_t none[1];
    saker_tensor no_q = SAKER_TENSOR(q.device, SAKER_F32, 0, 3, 2, 6), no_offsets = SAKER_TENSOR(none, SAKER_I32, 0);
    a.base = 10000, a.q = a.q_out = &no_q, a.offsets = &no_offsets; /* positions come from offsets: no row is needed */
    CHECK_TEXT(saker_rope(ctx, &a) == SAKER_OK, "an empty batch with offsets: %s", saker_context_error(ctx));
    release(&q), release(&out);
}

int main(int argc, char **argv)
{
    cuda = argc > 1 && !strcmp(argv[1], "--cuda");
    saker_config config = {.struct_size = sizeof config, .device_type = cuda ? SAKER_CUDA : SAKER_CPU};
    if (saker_context_create(&ctx, &config)) {
        printf("FAIL: no context: %s\n", saker_context_error(NULL));
        return 1;
    }
    srand(5);
    table_ends(SAKER_I32);
    table_ends(SAKER_I64);
    cuts();
    many_sequences();
    fused(SAKER_BSHD);
    fused(SAKER_BHSD);
    sentences();
    saker_context_destroy(ctx);
    return check_report(cuda ? "test_rope --cuda" : "test_rope");
}
