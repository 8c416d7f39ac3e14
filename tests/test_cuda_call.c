/* test_cuda_call.c - real operations against the fake driver: what is launched, and what a call costs.
 * SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "../src/ops/quantize/quantize.h"
#include "cuda_host.h"

/* ---------------------------------------------------------------- a real op, through the public interface */

enum { ROWS = 64, COLS = 1024 };

typedef struct norm {
    int64_t shape[2], columns[1];
    saker_tensor x, w, y, dw;
} norm;

static void make_norm(norm *n)
{
    *n = (norm){.shape = {ROWS, COLS}, .columns = {COLS}};
    n->x = saker_tensor_of(fake_memory(ROWS * COLS * 2, 0, 'd'), SAKER_BF16, 2, n->shape, NULL);
    n->y = saker_tensor_of(fake_memory(ROWS * COLS * 2, 0, 'd'), SAKER_BF16, 2, n->shape, NULL);
    n->w = saker_tensor_of(fake_memory(COLS * 2, 0, 'd'), SAKER_BF16, 1, n->columns, NULL);
    n->dw = saker_tensor_of(fake_memory(COLS * 4, 0, 'd'), SAKER_F32, 1, n->columns, NULL);
}

/* The first call decides whether there are kernels at all. */
static bool built_in(saker_context *ctx, saker_status status)
{
    if (status == SAKER_DEVICE && strstr(saker_context_error(ctx), "built without CUDA kernels")) {
        skip("the library was built without nvcc");
        return false;
    }
    record(status == SAKER_OK, __LINE__, "the op runs", saker_context_error(ctx));
    return status == SAKER_OK;
}

/* What was launched is what saker_explain says. */
static void as_explained(const char *text, int first)
{
    int launch = first;
    for (const char *at = text; (at = strstr(at, "step ")); launch++) {
        unsigned step, grid, block, cluster, shared;
        char name[64];
        const fake_launch *l = fake_launch_at(launch);
        int n = sscanf(at, "step %u: %63[^,], grid %u, block %u, cluster %u, shared %u", &step, name, &grid, &block,
                       &cluster, &shared);
        at += 5;
        NUMBER(n, 6);
        CHECK(l != NULL);
        if (l && n == 6) {
            TEXT(l->name, name);
            NUMBER(l->grid[0], grid);
            NUMBER(l->block[0], block);
            NUMBER(l->cluster[0] ? l->cluster[0] : 1, cluster);
            NUMBER(l->shared, shared);
        }
    }
    NUMBER(fake_launches(), launch);
    CHECK(launch > first);
}

static void rms_norm_forward(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    norm n;
    make_norm(&n);
    const saker_rms_norm_args *args = SAKER_ARGS(rms_norm, .x = &n.x, .weight = &n.w, .y = &n.y);
    char text[4096];
    fake_parameter_size(sizeof(skr_job_head));
    if (!built_in(ctx, saker_rms_norm(ctx, args)))
        return;
    NUMBER(saker_explain(ctx, "rms_norm", args, text, sizeof text), SAKER_OK);
    as_explained(text, 0);
    const skr_job_head *head = (const skr_job_head *)fake_launch_at(0)->parameter;
    CHECK(head->error_word == ctx->api->error_word(ctx->state));
    fake_set_current(fake_primary(0));
    fake_trace_start();
    NUMBER(saker_rms_norm(ctx, args), SAKER_OK);
    TEXT(fake_trace(), "cuCtxGetCurrent cuLaunchKernelEx ");
    printf("     rms_norm [%d, %d] bf16: %s, kernel %s\n", ROWS, COLS, saker_context_kernel(ctx),
           fake_launch_at(0)->name);
    saker_context_destroy(ctx);
}

static void rms_norm_backward(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    norm n;
    make_norm(&n);
    const saker_rms_norm_backward_args *args =
        SAKER_ARGS(rms_norm_backward, .dy = &n.y, .x = &n.x, .weight = &n.w, .dweight = &n.dw);
    size_t bytes = 0;
    char text[4096];
    if (!built_in(ctx, saker_rms_norm_backward(ctx, args)))
        return;
    NUMBER(saker_explain(ctx, "rms_norm_backward", args, text, sizeof text), SAKER_OK);
    as_explained(text, 0);
    NUMBER(saker_workspace_bytes(ctx, "rms_norm_backward", args, &bytes), SAKER_OK);
    CHECK(bytes > 0);
    NUMBER(fake_calls("cuMemAllocFromPoolAsync"), 1);
    NUMBER(fake_calls("cuMemFreeAsync"), 1);
    /* Lent: nothing is allocated, and too little is said so. */
    void *workspace = fake_memory(bytes, 0, 'd');
    NUMBER(saker_context_set_workspace(ctx, workspace, bytes), SAKER_OK);
    fake_parameter_size(sizeof(skr_job_head));
    const int first = fake_launches();
    NUMBER(saker_rms_norm_backward(ctx, args), SAKER_OK);
    CHECK(((const skr_job_head *)fake_launch_at(first)->parameter)->workspace == workspace);
    NUMBER(fake_calls("cuMemAllocFromPoolAsync"), 1);
    NUMBER(saker_context_set_workspace(ctx, workspace, bytes - 1), SAKER_OK);
    NUMBER(saker_rms_norm_backward(ctx, args), SAKER_WORKSPACE);
    /* O2 through the op: refused, then usable. */
    NUMBER(saker_context_set_workspace(ctx, NULL, 0), SAKER_OK);
    fake_memory_limit(fake_memory_live());
    NUMBER(saker_rms_norm_backward(ctx, args), SAKER_OUT_OF_MEMORY);
    fake_memory_limit((size_t)-1);
    NUMBER(saker_rms_norm_backward(ctx, args), SAKER_OK);
    saker_context_destroy(ctx);
    NUMBER(fake_memory_live(), 0);
}

/* An operation made of others: the launches of all parts, in a captured stream too, one workspace, nothing waited for.
 */
static void parts_of_a_plan(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    int64_t rows[] = {600, 64}, matrix[] = {1001, 64}, one[] = {1};
    saker_tensor x = saker_tensor_of(fake_memory(600 * 64 * 2, 0, 'd'), SAKER_BF16, 2, rows, NULL);
    saker_tensor dx = saker_tensor_of(fake_memory(600 * 64 * 2, 0, 'd'), SAKER_BF16, 2, rows, NULL);
    saker_tensor w = saker_tensor_of(fake_memory(1001 * 64 * 2, 0, 'd'), SAKER_BF16, 2, matrix, NULL);
    saker_tensor dw = saker_tensor_of(fake_memory(1001 * 64 * 2, 0, 'd'), SAKER_BF16, 2, matrix, NULL);
    saker_tensor t = saker_tensor_of(fake_memory(600 * 4, 0, 'd'), SAKER_I32, 1, rows, NULL);
    saker_tensor db = saker_tensor_of(fake_memory(1001 * 4, 0, 'd'), SAKER_F32, 1, matrix, NULL);
    saker_tensor loss = saker_tensor_of(fake_memory(4, 0, 'd'), SAKER_F32, 1, one, NULL);
    const saker_linear_cross_entropy_args *args =
        SAKER_ARGS(linear_cross_entropy, .x = &x, .weight = &w, .target = &t, .loss = &loss, .dx = &dx, .dweight = &dw,
                   .dbias = &db, .reduction = SAKER_REDUCE_MEAN, .chunk_rows = 256);
    char text[8192];
    size_t bytes = 0;
    fake_parameter_size(sizeof(skr_job_head));
    if (!built_in(ctx, saker_linear_cross_entropy(ctx, args)))
        return;
    NUMBER(saker_explain(ctx, "linear_cross_entropy", args, text, sizeof text), SAKER_OK);
    CHECK(strstr(text, "3 pieces of up to 256 rows") != NULL);
    /* 1001 columns are no whole vectors, but their rows have room for them. */
    CHECK(strstr(text, "skr_linear_cross_entropy_ends") != NULL && strstr(text, "skr_cross_entropy_rows") != NULL);
    CHECK(strstr(text, "second kernel") == NULL);
    as_explained(text, 0);
    NUMBER(fake_calls("cuMemAllocFromPoolAsync"), 1);
    NUMBER(fake_calls("cuMemFreeAsync"), 1);
    NUMBER(saker_workspace_bytes(ctx, "linear_cross_entropy", args, &bytes), SAKER_OK);
    char *workspace = fake_memory(bytes, 0, 'd');
    NUMBER(saker_context_set_workspace(ctx, workspace, bytes), SAKER_OK);
    void *stream = fake_stream(0);
    NUMBER(saker_context_set_stream(ctx, stream), SAKER_OK);
    fake_capture(stream, 1);
    const int first = fake_launches();
    NUMBER(saker_linear_cross_entropy(ctx, args), SAKER_OK);
    as_explained(text, first);
    for (int i = first; i < fake_launches(); i++) {
        const skr_job_head *head = (const skr_job_head *)fake_launch_at(i)->parameter;
        const char *own = head->workspace;
        CHECK(own >= workspace && own <= workspace + bytes && head->error_word == ctx->api->error_word(ctx->state));
        NUMBER(fake_launch_at(i)->captured, 1);
    }
    fake_capture(stream, 0);
    NUMBER(fake_capture_spoiled(), 0);
    NUMBER(fake_calls("cuMemAllocFromPoolAsync"), 1);
    NUMBER(saker_context_set_workspace(ctx, workspace, bytes - 1), SAKER_OK);
    NUMBER(saker_linear_cross_entropy(ctx, args), SAKER_WORKSPACE);
    saker_context_destroy(ctx);
    NUMBER(fake_memory_live(), 0);
}

/* c in aligned rows is added by the kernel that multiplies, others by a second one out of the workspace. */
static void gemm_with_c(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    int64_t shape[] = {512, 512}, columns[] = {1, 512};
    saker_tensor a = saker_tensor_of(fake_memory(512 * 512 * 2, 0, 'd'), SAKER_BF16, 2, shape, NULL), b = a;
    saker_tensor rows = saker_tensor_of(fake_memory(512 * 512 * 4 + 8, 0, 'd'), SAKER_F32, 2, shape, NULL);
    saker_tensor turned = rows, moved = rows, d = rows;
    const saker_tensor *c[] = {&rows, &turned, &moved};
    turned.strides = columns;
    moved.byte_offset = 8;
    d.data = fake_memory(512 * 512 * 4, 0, 'd');
    for (int i = 0; i < 4; i++) { /* the last one: d is c */
        const saker_gemm_args *args = SAKER_ARGS(gemm, .a = &a, .b = &b, .c = c[i % 3], .d = i < 3 ? &d : &rows,
                                                 .beta = 1, .schedule = SAKER_GEMM_PERSISTENT);
        const int first = fake_launches();
        size_t bytes = 0;
        if (!built_in(ctx, saker_gemm(ctx, args)))
            return;
        NUMBER(fake_launches() - first, i % 3 ? 2 : 1);
        NUMBER(saker_workspace_bytes(ctx, "gemm", args, &bytes), SAKER_OK);
        NUMBER(bytes > 0, i % 3 > 0);
    }
    saker_context_destroy(ctx);
}

/* P7: check level 3 looks at pointers. */
static void wrong_memory(void)
{
    load_fake("");
    const saker_config config = {.struct_size = sizeof config, .device_type = SAKER_CUDA, .check_level = 3};
    saker_context *ctx = NULL;
    NUMBER(saker_context_create(&ctx, &config), SAKER_OK);
    norm n;
    make_norm(&n);
    float host[COLS];
    n.w = saker_tensor_of(host, SAKER_F32, 1, n.columns, NULL);
    NUMBER(saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &n.x, .weight = &n.w, .y = &n.y)), SAKER_INVALID_ARG);
    TEXT(saker_context_error(ctx),
         "rms_norm: weight points to ordinary host memory, which the context's device cannot use");
    NUMBER(fake_launches(), 0);
    saker_context_destroy(ctx);
}

/* ---------------------------------------------------------------- the cost of a call */

static skr_cu_result free_current(skr_cu_context *out)
{
    *out = (skr_cu_context)fake_primary(0);
    return SKR_CU_SUCCESS;
}

static skr_cu_result free_launch(const skr_cu_launch_config *c, skr_cu_function f, void **p, void **extra)
{
    return c->grid_x && f && p && !extra ? SKR_CU_SUCCESS : SKR_CU_INVALID_VALUE;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* Without the driver's own time: both functions of the hot path are replaced by ones that do nothing. */
static void call_cost(void)
{
    enum { ROUNDS = 20, CALLS = 1000 };
    load_fake("");
    saker_context *ctx = made(0, NULL);
    norm n;
    make_norm(&n);
    const saker_rms_norm_args *args = SAKER_ARGS(rms_norm, .x = &n.x, .weight = &n.w, .y = &n.y);
    if (!built_in(ctx, saker_rms_norm(ctx, args)))
        return;
    const skr_driver fake = skr_cu;
    skr_cu.cuCtxGetCurrent = free_current;
    skr_cu.cuLaunchKernelEx = free_launch;
    double best = 1e30;
    for (int r = 0; r < ROUNDS; r++) {
        double start = now();
        for (int i = 0; i < CALLS; i++)
            saker_rms_norm(ctx, args);
        double each = (now() - start) / CALLS;
        best = each < best ? each : best;
    }
    printf("     one saker_rms_norm call without driver and kernel: %.0f ns\n", best);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(best < 3000);
#endif
    skr_cu = fake;
    saker_context_destroy(ctx);
}

/* ---------------------------------------------------------------- attention */

/* A bf16 tensor [1, tokens, 2, 64] of its own addresses; nothing is read. */
static saker_tensor heads(int64_t *shape, int64_t tokens, int64_t width, uintptr_t place)
{
    memcpy(shape, (const int64_t[]){1, tokens, 2, width}, 4 * sizeof *shape);
    return saker_tensor_of((void *)(place << 40), SAKER_BF16, 4, shape, NULL);
}

/* flags: 0, or that dq may be added up in any order, which is for the kernel of dk and dv to do, where it does. */
static void attention_steps_with(int64_t width, uint64_t flags, bool any_order, int launches)
{
    load_fake("");
    saker_context *ctx;
    const saker_config config = {.struct_size = sizeof config, .device_type = SAKER_CUDA, .flags = flags};
    NUMBER(saker_context_create(&ctx, &config), SAKER_OK);
    int64_t shape[4], rows[3] = {1, 2, 100}, each[1] = {2};
    saker_tensor t[10];
    for (int i = 0; i < 9; i++)
        t[i] = heads(shape, 100, width, (uintptr_t)i + 1);
    t[5] = saker_tensor_of((void *)((uintptr_t)11 << 40), SAKER_F32, 3, rows, NULL);
    t[9] = saker_tensor_of((void *)((uintptr_t)12 << 40), SAKER_F32, 1, each, NULL);
    const saker_attention_backward_args *args =
        SAKER_ARGS(attention_backward, .d_o = &t[0], .q = &t[1], .k = &t[2], .v = &t[3], .o = &t[4], .lse = &t[5],
                   .sinks = flags ? NULL : &t[9], .dq = &t[6], .dk = &t[7], .dv = &t[8]);
    char text[4096];
    if (!built_in(ctx, saker_attention_backward(ctx, args)))
        return;
    NUMBER(fake_launches(), launches);
    NUMBER(saker_explain(ctx, "attention_backward", args, text, sizeof text), SAKER_OK);
    as_explained(text, 0);
    CHECK(!strstr(text, "in any order") == !any_order);
    saker_context_destroy(ctx);
}

/* delta; dk and dv; dq; the two again where they are marked */
static void attention_steps(void)
{
    attention_steps_with(64, 0, false, 5);
}

/* The sums are slower for heads up to 64. */
static void attention_narrow_any_order(void)
{
    attention_steps_with(64, SAKER_ALLOW_NONDETERMINISTIC, false, 5);
}

/* delta; dk, dv and the sums of dq; dk and dv again where they are marked; dq */
static void attention_any_order(void)
{
    attention_steps_with(128, SAKER_ALLOW_NONDETERMINISTIC, true, 4);
}

/* delta; dk and dv; dq */
static void attention_portable_steps(void)
{
    setenv("SAKER_CUDA_ISA", "sm80", 1);
    attention_steps_with(64, 0, false, 3);
}

static void attention_portable_any_order(void)
{
    setenv("SAKER_CUDA_ISA", "sm80", 1);
    attention_steps_with(64, SAKER_ALLOW_NONDETERMINISTIC, true, 3);
}

/* What the kernels cannot count is refused with a sentence. */
static void attention_refused(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    int64_t shape[4];
    saker_tensor q = heads(shape, INT64_C(1) << 28, 64, 1), k = heads(shape, INT64_C(1) << 28, 64, 2);
    saker_tensor v = heads(shape, INT64_C(1) << 28, 64, 3), o = heads(shape, INT64_C(1) << 28, 64, 4);
    NUMBER(saker_attention(ctx, SAKER_ARGS(attention, .q = &q, .k = &k, .v = &v, .o = &o)), SAKER_UNSUPPORTED);
    CHECK(strstr(saker_context_error(ctx), "the GPU kernels count in 32 bits") != NULL);
    saker_context_destroy(ctx);
}

/* ---------------------------------------------------------------- more than 32 bits count */

/* Nobody reads it. */
static saker_tensor large(int place, saker_type type, int64_t *shape)
{
    return saker_tensor_of((void *)((uintptr_t)(place + 1) << 40), type, 2, shape, NULL);
}

static void large_shapes(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    /* 2^33 columns in a row would not fit the division by the group. */
    int64_t columns[] = {131072, 65536}, groups[] = {131072, 1024};
    saker_tensor q = large(0, SAKER_I8, columns), y = large(1, SAKER_F16, columns), s = large(2, SAKER_F32, groups);
    fake_parameter_size(sizeof(skr_quantize_job));
    saker_status status = saker_dequantize(
        ctx, SAKER_ARGS(dequantize, .q = &q, .scale = &s, .y = &y, .quant = SAKER_QUANT_GROUP, .group = 64));
    if (!built_in(ctx, status))
        return;
    TEXT(saker_context_kernel(ctx), "dequantize/sm90 flat");
    NUMBER(((const skr_quantize_job *)fake_launch_at(0)->parameter)->flat.vectors, 65536 / 8);
    /* A step of the kernel beyond the end of the row. */
    int64_t most[] = {1, INT32_MAX - 65535}, more[] = {1, INT32_MAX - 65534}, few[] = {1, 8};
    saker_tensor x = large(0, SAKER_F16, most), i = large(1, SAKER_I32, few);
    NUMBER(saker_topk(ctx, SAKER_ARGS(topk, .x = &x, .indices = &i)), SAKER_OK);
    x = large(0, SAKER_F16, more);
    NUMBER(saker_topk(ctx, SAKER_ARGS(topk, .x = &x, .indices = &i)), SAKER_UNSUPPORTED);
    TEXT(saker_context_error(ctx), "topk: x has rows of 2147418113 elements, expected at most 2^31 - 2^16 on CUDA");
    saker_tensor g = large(2, SAKER_F16, few);
    NUMBER(saker_topk_backward(ctx, SAKER_ARGS(topk_backward, .dvalues = &g, .indices = &i, .dx = &x)),
           SAKER_UNSUPPORTED);
    /* Reads of a row. */
    int64_t wide[] = {2, 2 * ((int64_t)INT32_MAX + 1) + 1}, ids[] = {3, 1}, out[] = {3, wide[1]};
    saker_tensor table = large(0, SAKER_F32, wide), id = large(1, SAKER_I32, ids), rows = large(2, SAKER_BF16, out);
    id.ndim = 1;
    NUMBER(saker_embedding(ctx, SAKER_ARGS(embedding, .table = &table, .ids = &id, .out = &rows)), SAKER_UNSUPPORTED);
    TEXT(saker_context_error(ctx), "embedding: table has rows of 4294967297 elements, read 1 at a time: expected less "
                                   "than 2^31 reads on CUDA");
    saker_context_destroy(ctx);
}

int main(int argc, char **argv)
{
    static const scenario_row rows[] = {
        SCENARIO(rms_norm_forward),
        SCENARIO(rms_norm_backward),
        SCENARIO(parts_of_a_plan),
        SCENARIO(gemm_with_c),
        SCENARIO(wrong_memory),
        SCENARIO(call_cost),
        SCENARIO(attention_steps),
        SCENARIO(attention_narrow_any_order),
        SCENARIO(attention_any_order),
        SCENARIO(attention_portable_steps),
        SCENARIO(attention_portable_any_order),
        SCENARIO(attention_refused),
        SCENARIO(large_shapes),
    };
    return run_with_fake(argc, argv, rows, sizeof rows / sizeof *rows);
}
