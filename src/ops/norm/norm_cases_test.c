/* norm_cases_test.c - what is tried with rms_norm, layer_norm and their gradients: correctness, bench and demo.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "norm_test.h"

/* Both norms go through the same tables, one after the other. */
static int kind;

static void add_forward(const struct spec *s)
{
    norm_add(kind, s);
}

static void add_backward(const struct spec *s)
{
    norm_backward_add(kind, s);
}

/* ---------------------------------------------------------------- correctness, forward and gradient */

/* Forward and gradient of the same shape. has names what both understand. */
static void both(struct spec s)
{
    struct spec f = s, b = s;
    f.has |= Y;
    b.has |= Y | DW;
    b.has &= ~(RO | B);
    if (s.has & B)
        b.has |= DB;
    add_forward(&f);
    add_backward(&b);
}

static void widths(void)
{
    static const int64_t n[] = {1,  2,   3,   5,   7,   8,   15,   16,   17,   31,   33,    63,     64,
                                65, 127, 128, 129, 255, 257, 1000, 1024, 4096, 8191, 65537, 1000003};
    foreach (i, n)
        foreach (t, floats) {
            int64_t m = n[i] <= 257 ? 17 : n[i] <= 1024 ? 5 : n[i] <= 8191 ? 3 : n[i] <= 65537 ? 2 : 1;
            both((struct spec){ROWS(m), .n = n[i], .x = floats[t], .has = W | RSTD, .fill = SUITE_EDGES});
        }
    both((struct spec){ROWS(3), .n = 1000003, .x = SAKER_BF16, .has = W | B | R | RO});
    both((struct spec){ROWS(3), .n = 65536, .x = SAKER_F32, .has = W | B | R});
    foreach (t, floats) /* no leading dimension at all */
        both((struct spec){.n = 100, .x = floats[t], .has = W | RSTD});
}

/* Rows that a block, a small cluster or a large one shares, the last of its threads with less than the others. */
static void wide_rows(void)
{
    static const int64_t n[] = {2056, 5128, 12296, 20488, 40008, 100008, 200008, 262144, 300008};
    foreach (i, n)
        foreach (t, floats)
            both((struct spec){ROWS(3), .n = n[i], .x = floats[t], .has = W | RSTD});
    for (size_t i = 3; i < 7; i++) {
        both((struct spec){ROWS(2), .n = n[i], .x = SAKER_BF16, .w = SAKER_F32, .has = W, .offset = 1});
        both((struct spec){ROWS(2), .n = n[i], .x = SAKER_F16, .has = RSTD, .layout = SUITE_PADDED});
        both((struct spec){ROWS(2), .n = n[i], .x = SAKER_F16, .has = W});
        both((struct spec){ROWS(2, 2), .n = n[i], .x = SAKER_F32, .has = W | HEADS});
        both((struct spec){ROWS(3), .n = n[i], .x = SAKER_BF16, .has = W | Y_IS_X});
    }
    /* One type for all, a residual or a quantised output: kernels of their own on CUDA. */
    static const int64_t even[] = {40, 256, 504, 1024, 2048, 4088, 8192, 16384, 32760, 65536, 100008, 262144};
    foreach (i, even)
        foreach (t, floats) {
            struct spec s = {ROWS(3), .n = even[i], .x = floats[t], .has = W | Y | R | RO | RSTD};
            add_forward(&s);
            s = (struct spec){
                ROWS(3),        .n = even[i], .x = floats[t], .q = quants[(i + t) % 3], .quant = SAKER_QUANT_ROW,
                .has = W | RSTD};
            add_forward(&s);
            s.quant = SAKER_QUANT_TENSOR;
            s.fill = SUITE_EDGES;
            add_forward(&s);
            both((struct spec){ROWS(3), .n = even[i], .x = floats[t], .has = W | (i % 2 ? 0 : B) | R});
            both((struct spec){ROWS(3), .n = even[i], .x = floats[t], .has = kind == LAYER ? W | B | RSTD : W | RSTD});
        }
    static const suite_fill fills[] = {SUITE_ONE_NAN, SUITE_ONE_INF, SUITE_HUGE, SUITE_TINY, SUITE_ZERO};
    foreach (f, fills)
        foreach (t, floats) {
            struct spec s = {ROWS(9),  .n = 256,        .x = floats[t], .q = SAKER_E4M3, .quant = SAKER_QUANT_ROW,
                             .has = W, .fill = fills[f]};
            add_forward(&s);
            s.n = 65536;
            s.lead[0] = 2;
            s.q = SAKER_I8;
            add_forward(&s);
        }
    /* More rows than clusters: each walks over several. */
    both((struct spec){ROWS(40), .n = 140008, .x = SAKER_BF16, .has = W | RSTD});
    both((struct spec){ROWS(20), .n = 140008, .x = SAKER_F32, .has = W | RSTD});
    struct spec full = {ROWS(24), .n = 131072, .x = SAKER_F32, .has = W | (kind == LAYER ? B : 0) | Y | RSTD};
    add_forward(&full); /* every block of the widest clusters has all its columns */
}

static void heights(void)
{
    static const int64_t m[] = {0, 1, 2, 3, 4, 5, 17, 64, 65, 257, 1000, 5000};
    static const int64_t n[] = {33, 128};
    foreach (i, m)
        foreach (k, n)
            both((struct spec){ROWS(m[i]), .n = n[k], .x = k ? SAKER_BF16 : SAKER_F32, .has = W | B | RSTD});
    both((struct spec){ROWS(3, 0, 2), .n = 8, .x = SAKER_F32, .has = W | B | R | RO});
    both((struct spec){ROWS(3), .n = 0, .x = SAKER_F32, .has = R | RO});
    /* Enough for several threads. */
    both((struct spec){ROWS(4096), .n = 512, .x = SAKER_BF16, .has = W | B | R | RO | RSTD});
    both((struct spec){ROWS(2048), .n = 640, .x = SAKER_F32, .has = W | B});
    both((struct spec){ROWS(100000), .n = 8, .x = SAKER_F16, .has = W | RSTD});
    both((struct spec){ROWS(200000), .n = 1, .x = SAKER_F32, .has = W | B});
    both((struct spec){ROWS(4), .n = 200000, .x = SAKER_F32, .has = W | B | RSTD});
    /* Parameters and sums apart from the rows in the CPU's L1: as they are, of another type, absent; rows of one stride
     * in one chunk and in two. */
    both((struct spec){ROWS(65), .n = 2050, .x = SAKER_F32, .w = SAKER_BF16, .has = W | RSTD});
    both((struct spec){ROWS(66), .n = 2050, .x = SAKER_F32, .has = W | RSTD});
    both((struct spec){ROWS(65), .n = 4096, .x = SAKER_BF16, .has = W | B | R | RSTD});
    both((struct spec){ROWS(13, 5), .n = 4100, .x = SAKER_F32, .has = RSTD});
}

static void types(void)
{
    foreach (x, floats)
        foreach (y, floats)
            foreach (w, floats) {
                both((struct spec){ROWS(5), .n = 257, .x = floats[x], .y = floats[y], .w = floats[w],
                                   .b = floats[(w + y) % 3], .ro = floats[(x + w) % 3], .has = W | B});
                both((struct spec){ROWS(5), .n = 130, .x = floats[x], .r = floats[y], .ro = floats[w],
                                   .w = floats[(x + y) % 3], .y = floats[(y + w) % 3], .has = W | R | RO});
            }
}

/* Every combination of what may be there or not. */
static void presence(void)
{
    for (int k = 0; k < 32; k++) {
        int has = (k & 1 ? W : 0) | (k & 2 ? B : 0) | (k & 4 ? R : 0) | (k & 8 ? RO : 0) | (k & 16 ? RSTD : 0);
        struct spec s = {ROWS(3), .n = 67, .x = SAKER_BF16, .has = has | Y};
        add_forward(&s);
        s.offset = 1;
        s.has |= RBW;
        add_forward(&s);
        s = (struct spec){ROWS(3), .n = 67, .x = SAKER_F16, .q = SAKER_E4M3, .quant = SAKER_QUANT_ROW, .has = has};
        add_forward(&s);
    }
    for (int k = 0; k < 8; k++)
        for (int out = 1; out < 8; out++) {
            int has = (k & 1 ? W : 0) | (k & 2 ? RSTD : 0) | (k & 4 && out & 1 ? R : 0); /* dresidual_out needs dx */
            has |= (out & 1 ? Y : 0) | (out & 2 ? DW : 0) | (out & 4 ? DB : 0);
            struct spec s = {ROWS(19), .n = 67, .x = SAKER_BF16, .has = has};
            add_backward(&s);
            s.x = SAKER_F32;
            s.offset = 1;
            s.has |= RBW | (out & 6 ? ACC : 0);
            add_backward(&s);
        }
}

static void quantised(void)
{
    static const int64_t n[] = {1, 5, 16, 100, 127, 128, 129, 255, 257, 384, 1000, 4096, 20000};
    foreach (q, quants)
        for (int mode = SAKER_QUANT_TENSOR; mode <= SAKER_QUANT_BLOCK; mode++)
            for (int with_y = 0; with_y < 2; with_y++) {
                struct spec s = {ROWS(4), .n = 300, .q = quants[q], .quant = mode, .has = W | (with_y ? Y : 0)};
                foreach (x, floats) {
                    s.x = floats[x];
                    s.y = floats[(x + q) % 3];
                    add_forward(&s);
                }
                s.has |= B | R | RO | RSTD;
                s.x = SAKER_BF16;
                s.y = SAKER_BF16;
                add_forward(&s);
                s.layout = SUITE_PADDED;
                add_forward(&s);
                s.n_lead = 3;
                s.lead[0] = 2, s.lead[1] = 3, s.lead[2] = 2;
                s.layout = SUITE_PERMUTED;
                add_forward(&s);
                s.layout = SUITE_GAPPED;
                s.has |= FLAT;
                add_forward(&s);
                static const suite_fill fills[] = {SUITE_ZERO,        SUITE_CONSTANT, SUITE_LARGE,   SUITE_TINY,
                                                   SUITE_ALTERNATING, SUITE_ONE_NAN,  SUITE_ONE_INF, SUITE_HUGE};
                foreach (f, fills) {
                    struct spec t = {ROWS(3),        .n = 260, .q = quants[q],  .quant = mode,
                                     .x = SAKER_F32, .has = W, .fill = fills[f]};
                    t.has |= with_y ? Y : 0;
                    add_forward(&t);
                    t.x = SAKER_F16;
                    t.fill = fills[f] == SUITE_HUGE ? SUITE_MAX : fills[f];
                    add_forward(&t);
                }
            }
    foreach (i, n)
        for (int mode = SAKER_QUANT_TENSOR; mode <= SAKER_QUANT_BLOCK; mode++)
            foreach (q, quants) {
                struct spec s = {
                    ROWS(n[i] > 1000 ? 2 : 7), .n = n[i], .x = SAKER_BF16, .q = quants[q], .quant = mode, .has = W};
                add_forward(&s);
            }
    struct spec heads = {
        ROWS(3, 4), .n = 96, .x = SAKER_BF16, .q = SAKER_I8, .quant = SAKER_QUANT_ROW, .has = W | B | HEADS | Y | RBW,
        .offset = 1};
    add_forward(&heads);
    struct spec inplace = {ROWS(9),
                           .n = 257,
                           .x = SAKER_BF16,
                           .q = SAKER_E4M3,
                           .quant = SAKER_QUANT_BLOCK,
                           .has = W | R | RO | Y | Y_IS_X | RO_IS_R};
    add_forward(&inplace);
}

static void layouts(void)
{
    foreach (t, floats)
        for (int layout = SUITE_PADDED; layout <= SUITE_EXPANDED; layout++) {
            int all = W | B | R | RO | RSTD;
            both((struct spec){ROWS(7), .n = 131, .x = floats[t], .has = all, .layout = layout});
            both((struct spec){ROWS(3, 5), .n = 70, .x = floats[t], .has = all, .layout = layout});
            both((struct spec){ROWS(2, 3, 2, 3), .n = 33, .x = floats[t], .has = all, .layout = layout});
            both((struct spec){ROWS(3, 4, 2), .n = 24, .x = floats[t], .has = all | FLAT, .layout = layout});
            both((struct spec){ROWS(3, 5), .n = 1, .x = floats[t], .has = all, .layout = layout});
        }
    foreach (t, floats) { /* in vectors all the same */
        both((struct spec){ROWS(3, 4), .n = 72, .x = floats[t], .has = W | B | R | RO, .layout = SUITE_APART});
        both((struct spec){ROWS(3, 4), .n = 72, .x = floats[t], .has = W, .layout = SUITE_APART});
        both((struct spec){ROWS(2, 3), .n = 4096, .x = floats[t], .has = W | RSTD, .layout = SUITE_APART});
    }
    /* CUDA: more rows than clusters that a GPU holds at once, which then take more than one. */
    struct spec turns = {ROWS(9),         .n = 131088,           .x = SAKER_BF16,
                         .ro = SAKER_F32, .has = W | R | RO | Y, .use = SUITE_CHECK | SUITE_GPU_SIZED};
    add_forward(&turns);
    turns.x = SAKER_F32;
    add_forward(&turns);
    static const int64_t heads[] = {1, 2, 3, 8};
    foreach (h, heads)
        foreach (t, floats)
            for (int layout = SUITE_COMPACT; layout <= SUITE_EXPANDED; layout++) {
                both((struct spec){ROWS(5, heads[h]), .n = 65, .x = floats[t], .has = W | B | HEADS, .layout = layout});
                both((struct spec){ROWS(3, 4, heads[h]), .n = 128, .x = floats[t], .has = W | B | HEADS | RSTD,
                                   .layout = layout});
            }
    both((struct spec){ROWS(300, 6), .n = 64, .x = SAKER_BF16, .has = W | B | R | HEADS});
    both((struct spec){ROWS(5, 3), .n = 40, .x = SAKER_F32, .has = W | B | HEADS | SAME_HEAD});
    both((struct spec){ROWS(0, 3), .n = 40, .x = SAKER_F32, .has = W | B | HEADS});
}

static void in_place(void)
{
    static const int layouts_used[] = {SUITE_COMPACT, SUITE_PADDED, SUITE_PERMUTED};
    foreach (t, floats)
        foreach (l, layouts_used) {
            struct spec s = {ROWS(6, 4), .n = 90, .x = floats[t], .layout = layouts_used[l]};
            static const int kinds[] = {W | Y_IS_X, W | R | RO | RO_IS_R, W | B | R | RO | RO_IS_R | Y_IS_X | RSTD};
            foreach (k, kinds) {
                s.has = kinds[k] | Y;
                add_forward(&s);
            }
            s.has = W | Y | Y_IS_X | DW | DB | RSTD;
            add_backward(&s);
            s.has = W | R | Y | RO_IS_R | DW | DB;
            s.r = floats[(t + 1) % 3];
            add_backward(&s);
        }
    both((struct spec){ROWS(3), .n = 70000, .x = SAKER_F32, .has = W | Y_IS_X});
    both((struct spec){ROWS(2), .n = 300000, .x = SAKER_BF16, .has = W | Y_IS_X});
}

static void fills(void)
{
    foreach (t, floats)
        for (suite_fill f = SUITE_UNIFORM; f <= SUITE_OFFSET; f++) {
            struct spec s = {ROWS(5), .n = 203, .x = floats[t], .has = W | RSTD, .fill = f};
            if (kind == LAYER && f == SUITE_MAX && floats[t] != SAKER_F16) /* squares beyond f32: not promised */
                continue;
            if (f != SUITE_MAX) /* with an rstd that does not belong to x, the gradient itself would overflow */
                both(s);
            s.has |= Y;
            add_forward(&s);
            both((struct spec){ROWS(3), .n = 77, .x = floats[t], .has = W | B, .fill = f});
            if (f != SUITE_MAX) /* x + residual would overflow */
                both((struct spec){ROWS(5), .n = 203, .x = floats[t], .has = W | R | RO, .fill = f});
        }
    struct spec nan = {ROWS(64), .n = 33, .x = SAKER_F32, .has = W | B | Y, .fill = SUITE_ONE_NAN};
    add_forward(&nan);
    static const float eps[] = {1e-12f, 1e-5f, 1};
    static const float offsets[] = {1, -1, 0.5f};
    foreach (t, floats)
        foreach (k, eps) {
            both((struct spec){ROWS(4), .n = 150, .x = floats[t], .has = W | B, .eps = eps[k], .offset = offsets[k]});
            both((struct spec){ROWS(4), .n = 150, .x = floats[t], .has = 0, .eps = eps[k], .offset = offsets[k]});
            both((struct spec){ROWS(4), .n = 150, .x = floats[t], .has = W | RBW, .y = floats[(t + k) % 3],
                               .offset = offsets[k]});
        }
    static const int64_t m[] = {0, 1, 40, 3000};
    foreach (i, m)
        foreach (t, floats) {
            struct spec s = {ROWS(m[i]), .n = 50, .x = floats[t], .w = floats[(t + 1) % 3], .has = W | DW | DB | ACC};
            add_backward(&s);
        }
}

/* Gradients of a row that is unlike its neighbours, in widths of part of a warp, a warp, a block and a cluster: an
 * infinity in dy goes where the formula takes it; a row with an rstd of 0 holds up no other one, and gives zeros also
 * where its products leave f32. */
static void odd_rows(void)
{
    static const int64_t n[] = {67, 136, 256, 1000, 4096, 8192, 20488, 100008};
    foreach (i, n)
        foreach (t, floats) {
            int has = W | RSTD | Y | DW | (kind == LAYER ? DB : 0);
            struct spec s = {ROWS(n[i] > 4096 ? 3 : 37), .n = n[i], .x = floats[t], .has = has | DY_INF};
            add_backward(&s);
            s.has &= ~RSTD;
            add_backward(&s);
            s.has = has | RSTD_ZERO;
            add_backward(&s);
            s.fill = SUITE_MAX;
            add_backward(&s);
            if (kind == RMS && n[i] == 20488 && floats[t] != SAKER_F16) /* squares beyond f32: forward saves 0 */
                both((struct spec){ROWS(2), .n = n[i], .x = floats[t], .has = W, .fill = SUITE_RANGE});
        }
}

/* Rows whose mean is far from zero, beside their spread, in every width that has a path of its own. */
static void centres(void)
{
    static const int64_t n[] = {1, 2, 7, 64, 100, 1024, 4096, 5000, 16384, 100008, 262144};
    static const suite_fill far[] = {SUITE_OFFSET, SUITE_POSITIVE, SUITE_CONSTANT};
    foreach (f, far)
        foreach (i, n)
            foreach (t, floats) {
                struct spec s = {ROWS(n[i] > 5000 ? 2 : 5), .n = n[i], .x = floats[t], .fill = far[f], .y = SAKER_F32};
                s.has = W | B | Y | RSTD;
                add_forward(&s);
                s.has = W | Y | DW | DB;
                add_backward(&s);
                s.y = floats[t];
                s.has = W | R | RO | Y;
                add_forward(&s);
            }
    /* Terms that are two numbers, in turn: their roundings do not even out. */
    static const int64_t wide[] = {594, 968, 1144, 1816, 4096, 4166, 5000};
    foreach (i, wide) {
        struct spec s = {ROWS(9), .n = wide[i], .x = SAKER_F32, .has = RSTD | Y, .fill = SUITE_ALTERNATING};
        add_backward(&s);
    }
    struct spec bench = {ROWS((int64_t)1 << 14), .n = 4096, .x = SAKER_F32, .use = SUITE_BENCH, .fill = SUITE_OFFSET};
    bench.has = W | B | Y;
    add_forward(&bench);
}

/* ---------------------------------------------------------------- random combinations */

static int some_of(uint64_t *r, const int *bits, int n)
{
    int has = 0;
    for (int i = 0; i < n; i++)
        has |= suite_draw_once_in(r, 2) ? bits[i] : 0;
    return has;
}

/* What both directions have. */
static struct spec random_spec(int number, uint64_t *r)
{
    static const float eps[] = {0, 0, 1e-12f, 1e-5f, 1}, offsets[] = {0, 0, 1, -1, 0.5f};
    static const suite_fill fills[] = {SUITE_UNIFORM,     SUITE_ZERO,    SUITE_CONSTANT, SUITE_LARGE,  SUITE_TINY,
                                       SUITE_ALTERNATING, SUITE_ONE_NAN, SUITE_ONE_INF,  SUITE_OFFSET, SUITE_EDGES};
    struct spec s = {.random = 1 + number, .n = suite_draw_width(r)};
    s.n_lead = suite_draw_lead(r, 4, s.n, s.lead);
    s.x = suite_draw_float(r);
    s.w = suite_draw_near(r, s.x);
    s.dw = suite_draw_near(r, s.w);
    s.b = suite_draw_near(r, s.x);
    s.r = suite_draw_near(r, s.x);
    s.y = suite_draw_near(r, s.x);
    s.ro = suite_draw_near(r, s.x);
    s.eps = eps[suite_draw(r, 5)];
    s.offset = offsets[suite_draw(r, 5)];
    s.fill = suite_draw_once_in(r, 3) ? fills[suite_draw(r, 10)] : SUITE_NORMAL;
    s.layout = suite_draw_once_in(r, 2) ? (suite_layout)suite_draw(r, SUITE_EXPANDED + 1) : SUITE_COMPACT;
    if (s.n_lead && suite_draw_once_in(r, 4))
        s.has |= suite_draw_once_in(r, 4) ? HEADS | SAME_HEAD : HEADS;
    return s;
}

static void random_forward(int number)
{
    static const int some[] = {W, B, R, RO, RSTD, RBW, FLAT};
    uint64_t r = suite_draws(number);
    struct spec s = random_spec(number, &r);
    s.has |= some_of(&r, some, 7);
    s.quant = suite_draw_once_in(&r, 3) ? 1 + suite_draw(&r, SAKER_QUANT_BLOCK) : SAKER_QUANT_NONE;
    s.q = quants[suite_draw(&r, 3)];
    if (!s.quant || suite_draw_once_in(&r, 2))
        s.has |= Y;
    if (kind == LAYER && s.has & RSTD && suite_draw_once_in(&r, 3))
        s.has |= suite_draw_once_in(&r, 2) ? NO_MEAN : NO_RSTD;
    if (s.layout != SUITE_EXPANDED && s.has & Y && suite_draw_once_in(&r, 4))
        s.has |= Y_IS_X;
    if (s.layout != SUITE_EXPANDED && s.has & R && s.has & RO && suite_draw_once_in(&r, 3))
        s.has |= RO_IS_R;
    add_forward(&s);
}

static void random_backward(int number)
{
    static const int some[] = {W, RSTD, RBW, FLAT, Y, DW, DB};
    uint64_t r = suite_draws(number);
    struct spec s = random_spec(number, &r);
    s.has |= some_of(&r, some, 7);
    if (!(s.has & (DW | DB)))
        s.has |= Y;
    else if (suite_draw_once_in(&r, 3))
        s.has |= ACC;
    if (s.has & Y && suite_draw_once_in(&r, 2)) /* dresidual_out needs dx */
        s.has |= R;
    if (s.layout != SUITE_EXPANDED && s.has & Y && suite_draw_once_in(&r, 4))
        s.has |= s.has & R && suite_draw_once_in(&r, 2) ? RO_IS_R : Y_IS_X;
    add_backward(&s);
}

/* ---------------------------------------------------------------- bench and demo */

/* What a model has: a weight, and in layer_norm a bias. */
static int bench_has(void)
{
    return kind == LAYER ? W | B | Y : W | Y;
}

static int bench_sums(void)
{
    return kind == LAYER ? RSTD | DW | DB : RSTD | DW;
}

static void bench_pair(int64_t m, int64_t n, saker_type type, int use)
{
    struct spec s = {ROWS(m), .n = n, .x = type, .use = use, .has = bench_has()};
    add_forward(&s);
    s.has |= bench_sums();
    add_backward(&s);
}

static void benches(void)
{
    /* CPU, x of 256 MiB: beyond any cache. */
    static const int64_t wide[] = {1024, 4096, 16384, 65536};
    foreach (t, floats)
        foreach (i, wide) {
            int64_t elements = (int64_t)1 << (floats[t] == SAKER_F32 ? 26 : 27);
            int demo = wide[i] == 4096 && floats[t] != SAKER_F16 ? SUITE_DEMO : 0;
            bench_pair(elements / wide[i], wide[i], floats[t], SUITE_BENCH | demo);
        }
    /* CPU, 256 KiB over all streams. */
    static const int64_t narrow[] = {1024, 4096};
    foreach (t, floats)
        foreach (i, narrow) {
            int64_t row = narrow[i] * suite_type_bytes(floats[t]);
            int demo = narrow[i] == 1024 && floats[t] == SAKER_F32 ? SUITE_DEMO : 0;
            struct spec s = {ROWS(262144 / (2 * row)), .n = narrow[i], .x = floats[t], .use = SUITE_CACHE | demo,
                             .has = bench_has()};
            add_forward(&s);
            s.lead[0] = 262144 / (3 * row);
            s.has |= bench_sums();
            add_backward(&s);
        }
    suite_gpu_shapes(bench_pair);
    /* With the residual stream, and with e4m3 per row instead of y. */
    static const int64_t fused[] = {1024, 4096, 8192, 16384};
    foreach (i, fused) {
        struct spec s = {ROWS(((int64_t)1 << 27) / fused[i]), .n = fused[i], .x = SAKER_BF16};
        int demo = fused[i] == 4096 ? SUITE_DEMO : 0;
        s.use = SUITE_BENCH_CUDA | SUITE_BENCH | demo;
        s.has = bench_has() | R | RO;
        add_forward(&s);
        struct spec q = s;
        q.has = bench_has() & ~Y;
        q.q = SAKER_E4M3;
        q.quant = SAKER_QUANT_ROW;
        add_forward(&q);
    }
}

static void build(void)
{
    static bool built;
    if (built)
        return;
    built = true;
    for (kind = RMS; kind < N_KINDS; kind++) {
        widths();
        wide_rows();
        heights();
        types();
        presence();
        quantised();
        layouts();
        in_place();
        fills();
        odd_rows();
        if (kind == LAYER)
            centres();
        for (int i = 0; i < SUITE_RANDOM; i++) {
            random_forward(i);
            random_backward(i);
        }
        benches();
    }
}

bool norm_case(int which, int i, suite_case *out)
{
    build();
    return norm_added(which, i, out);
}

bool norm_backward_case(int which, int i, suite_case *out)
{
    build();
    return norm_backward_added(which, i, out);
}
