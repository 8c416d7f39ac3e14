/* test_edges.c - single calls at the edges of what the cases vary: NaN where a gradient is 0 or nobody looks, a cap
 * near 0, a stride that does not count, a caller's floating-point mode. Every level.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "check.h"
#include "saker.h"

static saker_context *ctx;
static const char *level;

static void ran(saker_status got, const char *what)
{
    CHECK_TEXT(got == SAKER_OK, "%s: %s: %s", level, what, saker_context_error(ctx));
}

/* A row whose gradient is 0 gets zeros whatever its logits hold, with z_loss too. */
#define STOPPED(op)                                                                                                    \
    saker_##op(ctx, SAKER_ARGS(op, .logits = &x, .target = &t, .grad = &g, .lse = &l, .dlogits = &d, .z_loss = 0.1f,   \
                               .reduction = SAKER_REDUCE_NONE))
static void stopped_gradient(void)
{
    float logits[2][4] = {{NAN, 1, 2, 3}, {0, 1, 2, 3}}, grad[2] = {0, 1}, lse[2], out[2][4];
    int32_t target[2] = {1, 2};
    saker_tensor x = SAKER_TENSOR(logits, SAKER_F32, 2, 4), t = SAKER_TENSOR(target, SAKER_I32, 2);
    saker_tensor g = SAKER_TENSOR(grad, SAKER_F32, 2), l = SAKER_TENSOR(lse, SAKER_F32, 2);
    saker_tensor d = SAKER_TENSOR(out, SAKER_F32, 2, 4);
    for (int backward = 0; backward < 2; backward++) {
        memset(out, 0x7f, sizeof out);
        ran(backward ? STOPPED(cross_entropy_backward) : STOPPED(cross_entropy), "cross_entropy");
        for (int i = 0; i < 4; i++)
            CHECK_TEXT(out[0][i] == 0 && isfinite(out[1][i]), "%s: backward %d: %g and %g in column %d", level,
                       backward, (double)out[0][i], (double)out[1][i], i);
    }
}

/* A long stretch of -infinity, as masks of a vocabulary are: no share, and a gradient of 0. */
static void masked_stretch(void)
{
    enum { STRETCH = 4096, V = 2 * STRETCH + 10 };
    static float logits[V], out[V];
    float loss = 0;
    int32_t target = V - 1;
    for (int i = 0; i < V; i++)
        logits[i] = i < STRETCH ? -INFINITY : 0, out[i] = 7;
    saker_tensor x = SAKER_TENSOR(logits, SAKER_F32, 1, V), t = SAKER_TENSOR(&target, SAKER_I32, 1);
    saker_tensor l = SAKER_TENSOR(&loss, SAKER_F32, 1), d = SAKER_TENSOR(out, SAKER_F32, 1, V);
    saker_cross_entropy_args a = {.struct_size = sizeof a, .logits = &x, .target = &t, .loss = &l, .dlogits = &d};
    ran(saker_cross_entropy(ctx, &a), "cross_entropy");
    const float p = 1.0f / (V - STRETCH);
    int wrong = fabsf(loss - logf(V - STRETCH)) < 1e-4f ? 0 : 1;
    for (int i = 0; i < V; i++)
        wrong += !(fabsf(out[i] - (i < STRETCH ? 0 : i == target ? p - 1 : p)) < 1e-6f);
    CHECK_TEXT(!wrong, "%s: cross_entropy: loss %g, gradients %g and %g", level, (double)loss, (double)out[0],
               (double)out[V - 1]);
}

/* Products beyond f32 of numbers that are not: as if they were exact. */
static void beyond_f32(void)
{
    static const float x[][4] = {{3e38f, 1, 2, 3},
                                 {-3e38f, -3e38f, -3e38f, -3e38f},
                                 {INFINITY, 0, 0, 0},
                                 {-INFINITY, -INFINITY, -INFINITY, -INFINITY}};
    static const float want[][4] = {{1, 0, 0, 0}, {0.25f, 0.25f, 0.25f, 0.25f}, {NAN, NAN, NAN, NAN}, {0, 0, 0, 0}};
    float y[4];
    for (int i = 0; i < 16; i++) {
        bool log = i / 4 % 2, negative = i / 8;
        float in[4];
        for (int c = 0; c < 4; c++)
            in[c] = negative ? -x[i % 4][c] : x[i % 4][c];
        saker_tensor xt = SAKER_TENSOR(in, SAKER_F32, 1, 4), yt = SAKER_TENSOR(y, SAKER_F32, 1, 4);
        saker_softmax_args a = {.struct_size = sizeof a, .x = &xt, .y = &yt, .scale = negative ? -3 : 3, .log = log};
        ran(saker_softmax(ctx, &a), "softmax");
        for (int c = 0; c < 4; c++) {
            float expected = log ? logf(want[i % 4][c]) : want[i % 4][c];
            CHECK_TEXT(isnan(expected) ? isnan(y[c]) : y[c] == expected || fabsf(y[c] - expected) < 1e-6f,
                       "%s: softmax, case %d, column %d: %g instead of %g", level, i, c, (double)y[c],
                       (double)expected);
        }
    }
}

enum { KEYS = 256, HEAD = 32, BLOCK = 128 };

/* A descale of values that no query sees has no effect; one that is seen has. */
static void unseen_descale(float bad)
{
    static int8_t q[HEAD], k[KEYS * HEAD], v[KEYS * HEAD];
    static float o[2][HEAD], scales[KEYS / BLOCK], broken[KEYS / BLOCK];
    static uint8_t seen[KEYS];
    for (int i = 0; i < KEYS * HEAD; i++)
        k[i] = (int8_t)(i * 37 % 200 - 100), v[i] = (int8_t)(i * 11 % 50);
    for (int i = 0; i < HEAD; i++)
        q[i] = (int8_t)(i * 5 % 90 - 40);
    saker_tensor qt = SAKER_TENSOR(q, SAKER_I8, 1, 1, 1, HEAD), kt = SAKER_TENSOR(k, SAKER_I8, 1, KEYS, 1, HEAD);
    saker_tensor vt = SAKER_TENSOR(v, SAKER_I8, 1, KEYS, 1, HEAD), mask = SAKER_TENSOR(seen, SAKER_U8, 1, KEYS);
    saker_tensor one = SAKER_TENSOR((float[]){0.01f}, SAKER_F32, 1, 1, 1);
    saker_tensor same = SAKER_TENSOR(scales, SAKER_F32, 1, 1, KEYS / BLOCK);
    saker_tensor other = SAKER_TENSOR(broken, SAKER_F32, 1, 1, KEYS / BLOCK);
    for (int i = 0; i < KEYS / BLOCK; i++)
        scales[i] = broken[i] = 0.02f;
    broken[1] = bad;
    for (int p = 0; p < 2; p++)
        for (int all = 0; all < 2; all++) {
            memset(seen, 1, sizeof seen);
            memset(seen + BLOCK, all, KEYS - BLOCK);
            for (int i = 0; i < 2; i++) {
                saker_tensor ot = SAKER_TENSOR(o[i], SAKER_F32, 1, 1, 1, HEAD);
                saker_attention_args a = {.struct_size = sizeof a,
                                          .q = &qt,
                                          .k = &kt,
                                          .v = &vt,
                                          .o = &ot,
                                          .key_mask = &mask,
                                          .q_descale = &one,
                                          .k_descale = &same,
                                          .v_descale = i ? &other : &same,
                                          .descale_block = BLOCK,
                                          .p_scale = p ? 1.0f / 127 : 0};
                ran(saker_attention(ctx, &a), "attention");
            }
            bool equal = !memcmp(o[0], o[1], sizeof o[0]);
            CHECK_TEXT(equal != all && (all != 0) == !isfinite(o[1][0]),
                       "%s: p_scale %d, descale %g, %s: %g instead of %g", level, p, (double)bad,
                       all ? "seen" : "not seen", (double)o[1][0], (double)o[0][0]);
        }
}

/* Quantised, a p beyond the largest code is that: half of what it is here. */
static void largest_p(void)
{
    static int8_t q[HEAD], k[KEYS * HEAD], v[KEYS * HEAD];
    float o[HEAD];
    memset(v, 50, sizeof v);
    saker_tensor qt = SAKER_TENSOR(q, SAKER_I8, 1, 1, 1, HEAD), kt = SAKER_TENSOR(k, SAKER_I8, 1, KEYS, 1, HEAD);
    saker_tensor vt = SAKER_TENSOR(v, SAKER_I8, 1, KEYS, 1, HEAD), ot = SAKER_TENSOR(o, SAKER_F32, 1, 1, 1, HEAD);
    saker_attention_args a = {.struct_size = sizeof a, .q = &qt, .k = &kt, .v = &vt, .o = &ot, .p_scale = 1.0f / 254};
    ran(saker_attention(ctx, &a), "attention");
    CHECK_TEXT(fabsf(o[0] - 25) < 1e-4f, "%s: p_scale 1 / 254: %g instead of 25", level, (double)o[0]);
}

/* A score of 0 stays 0 under the smallest cap: the mean of v. */
static void smallest_cap(void)
{
    float q[4] = {0}, k[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {-1, 0, 0, 1}}, v[3] = {1, 2, 6}, o = 0;
    saker_tensor qt = SAKER_TENSOR(q, SAKER_F32, 1, 1, 1, 4), kt = SAKER_TENSOR(k, SAKER_F32, 1, 3, 1, 4);
    saker_tensor vt = SAKER_TENSOR(v, SAKER_F32, 1, 3, 1, 1), ot = SAKER_TENSOR(&o, SAKER_F32, 1, 1, 1, 1);
    saker_attention_args a = {.struct_size = sizeof a, .q = &qt, .k = &kt, .v = &vt, .o = &ot, .softcap = 1e-39f};
    ran(saker_attention(ctx, &a), "attention");
    CHECK_TEXT(fabsf(o - 3) < 1e-5f, "%s: softcap 1e-39: %g instead of 3", level, (double)o);
}

/* Two columns of i4 are one byte, and the stride of one byte is any. */
static void one_byte(void)
{
    float x[3][2] = {{1, 2}, {3, -4}, {0, 5}}, scale[3], y[3][2];
    uint8_t q[12] = {0};
    int64_t stride[2] = {4, 7};
    saker_tensor xt = SAKER_TENSOR(x, SAKER_F32, 3, 2), st = SAKER_TENSOR(scale, SAKER_F32, 3);
    saker_tensor qt = SAKER_TENSOR(q, SAKER_U8, 3, 1), yt = SAKER_TENSOR(y, SAKER_F32, 3, 2);
    qt.strides = stride;
    saker_quantize_args a = {.struct_size = sizeof a, .x = &xt, .q = &qt, .scale = &st, .quant = SAKER_QUANT_ROW};
    saker_dequantize_args b = {.struct_size = sizeof b, .q = &qt, .y = &yt, .scale = &st, .quant = SAKER_QUANT_ROW};
    ran(saker_quantize(ctx, &a), "quantize");
    ran(saker_dequantize(ctx, &b), "dequantize");
    for (int i = 0; i < 6; i++)
        CHECK_TEXT(fabsf(y[i / 2][i % 2] - x[i / 2][i % 2]) <= scale[i / 2], "%s: row %d: %g instead of %g", level,
                   i / 2, (double)y[i / 2][i % 2], (double)x[i / 2][i % 2]);
}

/* One scale for all, and rows that have gaps on one side only. */
static void gaps_on_one_side(void)
{
    float scale = 1, x[3][6] = {{1, 2, 3, 4, 90, 91}, {5, 6, 7, 8, 92, 93}, {-1, -2, -3, -4, 94, 95}}, y[3][6],
          tight[3][4];
    int8_t q[3][6], codes[3][4];
    int64_t wide[2] = {6, 1};
    saker_tensor st = SAKER_TENSOR(&scale, SAKER_F32, 1), xt = SAKER_TENSOR(x, SAKER_F32, 3, 4);
    saker_tensor qt = SAKER_TENSOR(codes, SAKER_I8, 3, 4), yt = SAKER_TENSOR(y, SAKER_F32, 3, 4);
    xt.strides = yt.strides = wide;
    saker_quantize_args a = {.struct_size = sizeof a, .x = &xt, .q = &qt, .scale = &st, .quant = SAKER_QUANT_TENSOR};
    saker_dequantize_args b = {.struct_size = sizeof b, .q = &qt, .y = &yt, .scale = &st, .quant = SAKER_QUANT_TENSOR};
    ran(saker_quantize(ctx, &a), "quantize");
    memset(y, 0, sizeof y);
    ran(saker_dequantize(ctx, &b), "dequantize");
    for (int i = 0; i < 12; i++)
        CHECK_TEXT((float)codes[i / 4][i % 4] == x[i / 4][i % 4] && y[i / 4][i % 4] == x[i / 4][i % 4] &&
                       y[i / 4][4] == 0,
                   "%s: row %d: %d and %g", level, i / 4, codes[i / 4][i % 4], (double)y[i / 4][i % 4]);
    for (int i = 0; i < 12; i++)
        tight[i / 4][i % 4] = x[i / 4][i % 4];
    xt = (saker_tensor)SAKER_TENSOR(tight, SAKER_F32, 3, 4), qt = (saker_tensor)SAKER_TENSOR(q, SAKER_I8, 3, 4);
    qt.strides = wide;
    memset(q, 0x55, sizeof q);
    ran(saker_quantize(ctx, &a), "quantize");
    for (int i = 0; i < 12; i++)
        CHECK_TEXT(q[i / 4][i % 4] == codes[i / 4][i % 4] && q[i / 4][4] == 0x55, "%s: row %d: %d", level, i / 4,
                   q[i / 4][i % 4]);
}

/* A part that saw nothing has no share, whatever its o holds; an lse that is NaN spoils the row beside any other. */
static void odd_parts(void)
{
    float o_a[3] = {NAN, NAN, 1}, o_b[3] = {5, 7, 2}, o[3];
    float lse_a[3] = {-INFINITY, -INFINITY, NAN}, lse_b[3] = {0, -INFINITY, -INFINITY}, lse[3];
    for (int turned = 0; turned < 2; turned++) {
        saker_tensor oa = SAKER_TENSOR(turned ? o_b : o_a, SAKER_F32, 3, 1, 1),
                     la = SAKER_TENSOR(lse_a, SAKER_F32, 1, 3);
        saker_tensor ob = SAKER_TENSOR(turned ? o_a : o_b, SAKER_F32, 3, 1, 1),
                     lb = SAKER_TENSOR(lse_b, SAKER_F32, 1, 3);
        saker_tensor ot = SAKER_TENSOR(o, SAKER_F32, 3, 1, 1), lt = SAKER_TENSOR(lse, SAKER_F32, 1, 3);
        o_b[1] = NAN; /* neither part saw anything */
        saker_attention_merge_args m = {.struct_size = sizeof m, .o_a = &oa, .o_b = &ob, .o = &ot, .lse = &lt};
        m.lse_a = turned ? &lb : &la, m.lse_b = turned ? &la : &lb, m.layout = SAKER_THD;
        ran(saker_attention_merge(ctx, &m), "attention_merge");
        CHECK_TEXT(o[0] == 5 && lse[0] == 0 && o[1] == 0 && lse[1] == -INFINITY && isnan(o[2]) && isnan(lse[2]),
                   "%s: attention_merge: o %g %g %g, lse %g %g %g", level, (double)o[0], (double)o[1], (double)o[2],
                   (double)lse[0], (double)lse[1], (double)lse[2]);
    }
    float zero[1] = {0};
    saker_tensor none = SAKER_TENSOR(o_a, SAKER_F32, 1, 1, 0), to = SAKER_TENSOR(o, SAKER_F32, 1, 1, 0);
    saker_tensor given = SAKER_TENSOR(zero, SAKER_F32, 1, 1), sum = SAKER_TENSOR(lse, SAKER_F32, 1, 1);
    saker_attention_merge_args m = {.struct_size = sizeof m, .o_a = &none, .o_b = &none, .o = &to, .lse = &sum};
    m.lse_a = m.lse_b = &given, m.layout = SAKER_THD;
    ran(saker_attention_merge(ctx, &m), "attention_merge");
    CHECK_TEXT(fabsf(lse[0] - 0.6931472f) < 1e-6f, "%s: lse of heads without columns: %g", level, (double)lse[0]);
}

/* Bounds of sequences that are not what they must be are reported, and so are tokens that a bias cuts off. */
static void bad_bounds(void)
{
    enum { TOKENS = 6 };
    static const struct {
        int32_t cu[3];
        saker_status check;
        int64_t bias;
    } cases[] = {{{0, 2, 6}, SAKER_OK, TOKENS},
                 {{0, 6, 6}, SAKER_OK, TOKENS},
                 {{1, 2, 6}, SAKER_BAD_INDEX, TOKENS},
                 {{0, 2, 5}, SAKER_BAD_INDEX, TOKENS},
                 {{0, 7, 6}, SAKER_BAD_INDEX, TOKENS},
                 {{-1, 2, 6}, SAKER_BAD_INDEX, TOKENS},
                 {{0, 2, 6}, SAKER_OK, 4},
                 {{0, 2, 6}, SAKER_BAD_INDEX, 3}};
    float x[TOKENS * 4] = {1, 2, 3}, o[TOKENS * 4], bias[TOKENS * TOKENS] = {0};
    saker_tensor xt = SAKER_TENSOR(x, SAKER_F32, TOKENS, 1, 4), ot = SAKER_TENSOR(o, SAKER_F32, TOKENS, 1, 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int side = 0; side < 2; side++) { /* of queries, of keys */
            int32_t good[3] = {0, 2, 6}, other[3];
            memcpy(other, cases[i].cu, sizeof other);
            saker_tensor gt = SAKER_TENSOR(good, SAKER_I32, 3), ct = SAKER_TENSOR(other, SAKER_I32, 3);
            saker_tensor bt =
                SAKER_TENSOR(bias, SAKER_F32, side ? TOKENS : cases[i].bias, side ? cases[i].bias : TOKENS);
            saker_attention_args a = {.struct_size = sizeof a, .q = &xt, .k = &xt, .v = &xt, .o = &ot, .bias = &bt};
            a.cu_seqlens_q = side ? &gt : &ct, a.cu_seqlens_k = side ? &ct : &gt, a.layout = SAKER_THD;
            ran(saker_attention(ctx, &a), "attention");
            saker_status got = saker_context_check(ctx);
            CHECK_TEXT(got == cases[i].check, "%s: bounds %zu, side %d: %s", level, i, side, saker_status_name(got));
        }
}

/* Offsets of groups, likewise: late, early, beyond the rows, falling. */
static void bad_offsets(void)
{
    static const struct {
        int32_t offsets[4];
        saker_status check;
    } cases[] = {{{0, 2, 4, 6}, SAKER_OK},        {{0, 0, 6, 6}, SAKER_OK},        {{1, 2, 4, 6}, SAKER_BAD_INDEX},
                 {{0, 2, 4, 5}, SAKER_BAD_INDEX}, {{0, 7, 7, 7}, SAKER_BAD_INDEX}, {{0, 4, 2, 6}, SAKER_BAD_INDEX}};
    float a[6 * 4] = {1, 2, 3}, b[3 * 4 * 5] = {4, 5, 6}, d[6 * 5];
    saker_tensor at = SAKER_TENSOR(a, SAKER_F32, 6, 4), bt = SAKER_TENSOR(b, SAKER_F32, 3, 4, 5);
    saker_tensor dt = SAKER_TENSOR(d, SAKER_F32, 6, 5);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        saker_tensor ot = SAKER_TENSOR(cases[i].offsets, SAKER_I32, 4);
        ran(saker_grouped_gemm(ctx, SAKER_ARGS(grouped_gemm, .a = &at, .b = &bt, .d = &dt, .offsets = &ot)),
            "grouped_gemm");
        saker_status got = saker_context_check(ctx);
        CHECK_TEXT(got == cases[i].check, "%s: offsets %zu: %s", level, i, saker_status_name(got));
    }
}

/* The norm of a head whose squares are beyond f32 is 0, and so is its gradient. */
static void head_beyond_f32(void)
{
    enum { WIDTH = 24 };
    float x[WIDTH], g[WIDTH], dx[WIDTH], dw[WIDTH];
    for (int i = 0; i < WIDTH; i++)
        x[i] = i % 3 ? 3e38f : -3e38f, g[i] = (float)(1 + i);
    saker_tensor xt = SAKER_TENSOR(x, SAKER_F32, 1, 1, WIDTH), gt = SAKER_TENSOR(g, SAKER_F32, 1, 1, WIDTH);
    saker_tensor dt = SAKER_TENSOR(dx, SAKER_F32, 1, 1, WIDTH), wt = SAKER_TENSOR(dw, SAKER_F32, WIDTH);
    saker_rope_backward_args a = {.struct_size = sizeof a, .dq_out = &gt, .q = &xt, .dq = &dt, .dq_weight = &wt};
    a.layout = SAKER_THD, a.norm = 1;
    ran(saker_rope_backward(ctx, &a), "rope_backward");
    for (int i = 0; i < WIDTH; i++)
        CHECK_TEXT(dx[i] == 0 && dw[i] == 0, "%s: rope_backward, column %d: %g and %g", level, i, (double)dx[i],
                   (double)dw[i]);
}

/* Positions of more than 2^46 turns: there a double knows no angle, and nothing turns. */
static void far_positions(void)
{
    float q[4] = {1, 2, 3, 4}, out[4];
    int64_t positions[2] = {(int64_t)1 << 50, -((int64_t)1 << 50)};
    saker_tensor qt = SAKER_TENSOR(q, SAKER_F32, 2, 1, 2), ot = SAKER_TENSOR(out, SAKER_F32, 2, 1, 2);
    saker_tensor pt = SAKER_TENSOR(positions, SAKER_I64, 2);
    saker_rope_args a = {.struct_size = sizeof a, .q = &qt, .positions = &pt, .q_out = &ot, .layout = SAKER_THD};
    ran(saker_rope(ctx, &a), "rope");
    for (int i = 0; i < 4; i++)
        CHECK_TEXT(out[i] == q[i], "%s: rope, element %d: %g instead of %g", level, i, (double)out[i], (double)q[i]);
}

/* The table's zeros keep their sign in another type. */
static void signed_zeros(void)
{
    static const saker_type narrow[] = {SAKER_F16, SAKER_BF16};
    uint16_t table[2][40];
    float out[40];
    int32_t id = 1;
    for (int i = 0; i < 40; i++)
        table[0][i] = 0, table[1][i] = i % 3 ? 0x8000 : 0;
    for (int t = 0; t < 2; t++) {
        saker_tensor tt = SAKER_TENSOR(table, narrow[t], 2, 40), it = SAKER_TENSOR(&id, SAKER_I32, 1);
        saker_tensor ot = SAKER_TENSOR(out, SAKER_F32, 1, 40);
        ran(saker_embedding(ctx, SAKER_ARGS(embedding, .table = &tt, .ids = &it, .out = &ot)), "embedding");
        for (int i = 0; i < 40; i++)
            CHECK_TEXT(out[i] == 0 && (signbit(out[i]) != 0) == (i % 3 != 0), "%s: column %d is %g", level, i,
                       (double)out[i]);
    }
}

/* A caller whose mode takes subnormals for zeros (PyTorch's set_flush_denormal): topk's bound must leave enough zeros.
 */
static void flush_subnormals(bool on)
{
#if defined(__x86_64__)
    unsigned mode = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(on ? mode | 0x8040 : mode & ~0x8040u);
#else
    uint64_t mode;
    __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
    __asm__ volatile("msr fpcr, %0" ::"r"(on ? mode | 1 << 24 : mode & ~(UINT64_C(1) << 24)));
#endif
}

static void equal_elements_of_topk(void)
{
    enum { N = 1024, ONE = 500 };
    static const float rows[][2] = {{1, 0}, {0, 0}, {1, -INFINITY}, {0, -INFINITY}, {-INFINITY, -INFINITY}, {NAN, NAN}};
    for (int i = 0; i < 24; i++) {
        const float *row = rows[i / 4];
        int64_t k = i % 2 ? 4 : 1;
        float x[N], values[4];
        int32_t indices[4];
        saker_tensor xt = SAKER_TENSOR(x, SAKER_F32, 1, N), vt = SAKER_TENSOR(values, SAKER_F32, 1, k);
        saker_tensor it = SAKER_TENSOR(indices, SAKER_I32, 1, k);
        for (int last = 0; last < 2; last++) { /* the first one leaves other elements in the workspace */
            const int flush = last && i / 2 % 2;
            for (int c = 0; c < N; c++)
                x[c] = last ? row[c != ONE] : (float)c;
            flush_subnormals(flush);
            saker_status status = saker_topk(ctx, SAKER_ARGS(topk, .x = &xt, .values = &vt, .indices = &it));
            flush_subnormals(0);
            ran(status, "topk");
            for (int c = 0; last && c < k; c++) {
                int at = row[0] > row[1] ? c == 0 ? ONE : c - 1 : c;
                CHECK_TEXT(indices[c] == at && !memcmp(&values[c], &x[at], sizeof(float)),
                           "%s: topk, case %d, flush %d: %g at %d in place %d", level, i, flush, (double)values[c],
                           indices[c], c);
            }
        }
    }
}

/* What dropout enlarges beyond f16's numbers stays finite where o is f32. */
static void rare_dropout(void)
{
    enum { B = 16, S = 256, H = 64, D = 8 };
    static uint16_t q[B * S * H * D], kv[B * H * D];
    static float o[B * S * H * D];
    for (int i = 0; i < B * H * D; i++)
        kv[i] = 0x3c00;
    saker_tensor qt = SAKER_TENSOR(q, SAKER_F16, B, S, H, D), kt = SAKER_TENSOR(kv, SAKER_F16, B, 1, H, D);
    saker_tensor ot = SAKER_TENSOR(o, SAKER_F32, B, S, H, D);
    ran(saker_attention(ctx,
                        SAKER_ARGS(attention, .q = &qt, .k = &kt, .v = &kt, .o = &ot, .dropout = 0.99999f, .seed = 1)),
        "attention");
    int kept = 0, wrong = 0;
    for (int i = 0; i < B * S * H * D; i++) {
        kept += o[i] != 0;
        wrong += o[i] != 0 && !(fabsf(o[i] - 1e5f) < 500);
    }
    CHECK_TEXT(kept > 0 && !wrong, "%s: attention: %d kept, %d of them wrong", level, kept, wrong);
}

int main(void)
{
    for (int i = 0; i < saker_level_count(); i++) {
        saker_level_info info = saker_level_at(i);
        if (!info.usable) {
            CHECK_SKIP("%s: %s", info.name, info.why_not);
            continue;
        }
        level = info.name;
        saker_config config = {.struct_size = sizeof config, .isa = info.name};
        CHECK_TEXT(saker_context_create(&ctx, &config) == SAKER_OK, "%s", saker_context_error(NULL));
        stopped_gradient();
        masked_stretch();
        beyond_f32();
        unseen_descale(NAN);
        unseen_descale(INFINITY);
        largest_p();
        smallest_cap();
        one_byte();
        gaps_on_one_side();
        odd_parts();
        bad_bounds();
        bad_offsets();
        head_beyond_f32();
        far_positions();
        signed_zeros();
        equal_elements_of_topk();
        rare_dropout();
        saker_context_destroy(ctx);
    }
    return check_report("test_edges");
}
