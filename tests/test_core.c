/* test_core.c - contexts, status codes, self-description, explain, workspace, empty tensors, memory and time helpers.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "check.h"
#include "saker.h"

static saker_context *create(saker_config *c)
{
    saker_context *ctx = NULL;
    saker_status s = saker_context_create(&ctx, c);
    CHECK_TEXT(s == SAKER_OK, "create: %s", saker_context_error(NULL));
    return ctx;
}

/* ---------------------------------------------------------------- contexts */

static void expect_no_context(saker_config *c, saker_status want, const char *word)
{
    saker_context *ctx = (saker_context *)c;
    saker_status got = saker_context_create(&ctx, c);
    CHECK_TEXT(got == want && ctx == NULL, "%s: got %s, expected %s", word, saker_status_name(got),
               saker_status_name(want));
    CHECK_TEXT(strstr(saker_context_error(NULL), word), "the sentence does not have '%s': %s", word,
               saker_context_error(NULL));
    if (!got)
        saker_context_destroy(ctx);
}

static void lanes_of(void *user, int64_t n, void (*lane)(void *, int64_t), void *arg)
{
    (void)user;
    for (int64_t i = 0; i < n; i++)
        lane(arg, i);
}

static void contexts(void)
{
    saker_config good = {.struct_size = sizeof good}, c;
    saker_context_destroy(NULL);
    saker_context_destroy(create(NULL));
    saker_context_destroy(create(&good));
    CHECK(saker_context_create(NULL, NULL) == SAKER_NULL_POINTER);
    c = good, c.struct_size = 0, expect_no_context(&c, SAKER_VERSION, "struct_size");
    c = good, c.struct_size = 4, expect_no_context(&c, SAKER_VERSION, "struct_size");
    c = good, c.struct_size = (uint64_t)1 << 50, expect_no_context(&c, SAKER_VERSION, "struct_size");
    c = good, c.device_type = 3, expect_no_context(&c, SAKER_UNSUPPORTED, "device_type");
    c = good, c.device_type = -1, expect_no_context(&c, SAKER_UNSUPPORTED, "device_type");
    c = good, c.threads = -1, expect_no_context(&c, SAKER_INVALID_ARG, "threads");
    c = good, c.parallel_width = -2, expect_no_context(&c, SAKER_INVALID_ARG, "parallel_width");
    c.parallel_for = lanes_of, expect_no_context(&c, SAKER_INVALID_ARG, "parallel_width is -2");
    c = good, c.check_level = 4, expect_no_context(&c, SAKER_INVALID_ARG, "check_level");
    c = good, c.flags = 2, expect_no_context(&c, SAKER_UNSUPPORTED, "flags");
    c = good, c.flags = (uint64_t)1 << 63, expect_no_context(&c, SAKER_UNSUPPORTED, "flags");
    c = good, c.reserved = 1, expect_no_context(&c, SAKER_UNSUPPORTED, "reserved");
    c = good, c.stream = &c, expect_no_context(&c, SAKER_INVALID_ARG, "stream");
    c = good, c.device_id = 1, expect_no_context(&c, SAKER_INVALID_ARG, "device_id");
    c = good, c.parallel_width = 2, expect_no_context(&c, SAKER_INVALID_ARG, "parallel_width");
    c = good, c.isa = "sse2.718", expect_no_context(&c, SAKER_UNSUPPORTED, "sse2.718");
    c = good, c.isa = "", expect_no_context(&c, SAKER_UNSUPPORTED, "isa");

    struct { /* a config of a later version */
        saker_config c;
        uint64_t later;
    } longer = {{.struct_size = sizeof longer}, 0};
    saker_context_destroy(create(&longer.c));
    longer.later = 1;
    expect_no_context(&longer.c, SAKER_UNSUPPORTED, "config");

    c = good;
    c.threads = 1000000, c.flags = SAKER_ALLOW_NONDETERMINISTIC, c.check_level = 3;
    saker_context *ctx = create(&c);
    CHECK(!strcmp(saker_context_kernel(ctx), ""));
    CHECK(!strcmp(saker_context_error(ctx), ""));
    CHECK(saker_context_set_stream(ctx, NULL) == SAKER_OK);
    CHECK(saker_context_set_stream(ctx, &c) == SAKER_INVALID_ARG);
    CHECK(saker_context_check(ctx) == SAKER_OK);
    CHECK(saker_context_sync(ctx) == SAKER_OK);
    saker_context_destroy(ctx);

    CHECK(saker_context_sync(NULL) == SAKER_NULL_POINTER);
    CHECK(saker_context_check(NULL) == SAKER_NULL_POINTER);
    CHECK(saker_context_set_stream(NULL, NULL) == SAKER_NULL_POINTER);
    CHECK(saker_context_set_workspace(NULL, NULL, 0) == SAKER_NULL_POINTER);
    CHECK(!strcmp(saker_context_kernel(NULL), ""));

    c = good, c.device_type = SAKER_CUDA; /* here or not, never a crash, and words when it is not */
    const char *why = NULL;
    if (saker_cuda_count(&why) == 0) {
        CHECK(why && *why);
        CHECK(saker_context_create(&ctx, &c) == SAKER_DEVICE && !ctx && *saker_context_error(NULL));
        saker_cuda_info info;
        CHECK(saker_cuda_at(0, &info) == SAKER_DEVICE || saker_cuda_at(0, &info) == SAKER_INVALID_ARG);
    }
    CHECK(saker_cuda_count(NULL) >= 0);
}

/* ---------------------------------------------------------------- names and tables */

static void names(void)
{
    static const char *const codes[] = {"OK",          "INVALID_ARG", "UNSUPPORTED", "NULL_POINTER",  "MISALIGNED",
                                        "ALIAS",       "OVERFLOW",    "WORKSPACE",   "OUT_OF_MEMORY", "DEVICE",
                                        "DEVICE_LOST", "COMM",        "BAD_INDEX",   "VERSION"};
    for (int i = 0; i < 14; i++)
        CHECK_TEXT(!strcmp(saker_status_name((saker_status)i), codes[i]), "status %d is %s", i,
                   saker_status_name((saker_status)i));
    CHECK(saker_status_name((saker_status)14) && saker_status_name((saker_status)-1));

    static const struct {
        saker_type type;
        const char *name;
    } types[] = {{SAKER_F32, "f32"},   {SAKER_F16, "f16"}, {SAKER_BF16, "bf16"}, {SAKER_E4M3, "e4m3"},
                 {SAKER_E5M2, "e5m2"}, {SAKER_I8, "i8"},   {SAKER_I4, "i4"},     {SAKER_I32, "i32"},
                 {SAKER_I64, "i64"},   {SAKER_U8, "u8"},   {SAKER_BOOL, "bool"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const char *name = saker_type_name(SAKER_DTYPE(types[i].type));
        CHECK_TEXT(name && !strcmp(name, types[i].name), "type %zu is %s", i, name ? name : "NULL");
    }
    CHECK(saker_type_name((saker_dtype){99, 8, 1}) == NULL);
    CHECK(saker_type_name((saker_dtype){2, 32, 2}) == NULL);

    char version[32];
    snprintf(version, sizeof version, "%d.%d.%d", SAKER_VERSION_MAJOR, SAKER_VERSION_MINOR, SAKER_VERSION_PATCH);
    CHECK(!strcmp(saker_version(), version));
    CHECK(strlen(saker_build_info()) > 0);

    CHECK(saker_op_count() >= 3);
    CHECK(saker_op_at(-1) == NULL && saker_op_at(saker_op_count()) == NULL);
    CHECK(saker_op_find("no such op") == NULL && saker_op_find("") == NULL);
    for (int i = 0; i < saker_op_count(); i++) {
        const saker_op_info *op = saker_op_at(i);
        CHECK(op && saker_op_find(op->name) == op && op->doc && *op->doc && op->n_fields > 0);
    }

    CHECK(saker_level_count() > 0 && !strcmp(saker_level_at(0).name, "scalar") && saker_level_at(0).usable);
    for (int i = 0; i < saker_level_count(); i++) {
        saker_level_info l = saker_level_at(i);
        CHECK_TEXT(!!l.usable == !*l.why_not, "level %s: usable %d, '%s'", l.name, l.usable, l.why_not);
        saker_config c = {.struct_size = sizeof c, .isa = l.name};
        saker_context *ctx = create(&c); /* a level that cannot run is a limit, not an error */
        saker_context_destroy(ctx);
    }
    CHECK(saker_level_at(-1).name && !saker_level_at(-1).usable && !saker_level_at(1000).usable);
    CHECK(!saker_level_at(saker_level_count()).usable && !*saker_level_at(saker_level_count()).name);
    CHECK(saker_thread_count() >= 1);
}

/* ---------------------------------------------------------------- explain, workspace, kernel */

static void questions(void)
{
    saker_context *ctx = create(NULL);
    /* Nothing may be touched by a question: memory that cannot be read. */
    char *closed = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    saker_tensor x = SAKER_TENSOR(closed, SAKER_BF16, 16, 64), y = SAKER_TENSOR(closed + 4096, SAKER_BF16, 16, 64);
    saker_tensor w = SAKER_TENSOR(closed + 8192, SAKER_BF16, 64);
    saker_rms_norm_args a = {.struct_size = sizeof a, .x = &x, .weight = &w, .y = &y};
    char text[1024], small[8], kernel[160];
    size_t bytes = 12345;
    memset(text, '#', sizeof text);
    CHECK(saker_explain(ctx, "rms_norm", &a, text, sizeof text) == SAKER_OK);
    CHECK_TEXT(!strncmp(text, "rms_norm/", 9) && strstr(text, "workspace"), "explain says: %s", text);
    snprintf(kernel, sizeof kernel, "%.*s", (int)strcspn(text, "\n"), text);
    CHECK(saker_explain(ctx, "rms_norm", &a, small, sizeof small) == SAKER_OK && strlen(small) == 7);
    CHECK(saker_explain(ctx, "rms_norm", &a, small, 1) == SAKER_OK && strlen(small) == 0);
    CHECK(saker_explain(ctx, "rms_norm", &a, NULL, 5) == SAKER_NULL_POINTER);
    CHECK(saker_explain(ctx, "rms_norm", &a, text, 0) == SAKER_NULL_POINTER);
    CHECK(saker_explain(ctx, "rms_morn", &a, text, sizeof text) == SAKER_INVALID_ARG);
    CHECK(strstr(saker_context_error(ctx), "rms_morn"));
    CHECK(saker_explain(ctx, NULL, &a, text, sizeof text) == SAKER_INVALID_ARG);
    CHECK(saker_explain(NULL, "rms_norm", &a, text, sizeof text) == SAKER_NULL_POINTER);
    CHECK(saker_workspace_bytes(ctx, "rms_norm", &a, &bytes) == SAKER_OK && bytes != 12345);
    CHECK(saker_workspace_bytes(ctx, "rms_norm", &a, NULL) == SAKER_NULL_POINTER);
    CHECK(saker_workspace_bytes(ctx, "?", &a, &bytes) == SAKER_INVALID_ARG);
    CHECK(saker_workspace_bytes(NULL, "rms_norm", &a, &bytes) == SAKER_NULL_POINTER);
    CHECK(!strcmp(saker_context_kernel(ctx), "")); /* still nothing has run */
    munmap(closed, 1 << 20);

    uint16_t px[16 * 64] = {0}, pw[64] = {0}, py[16 * 64];
    x.data = px, w.data = pw, y.data = py;
    CHECK(saker_rms_norm(ctx, &a) == SAKER_OK);
    CHECK_TEXT(!strcmp(saker_context_kernel(ctx), kernel), "explain said %s, %s ran", kernel,
               saker_context_kernel(ctx));
    a.eps = -1; /* a failure leaves the record of the last success */
    CHECK(saker_rms_norm(ctx, &a) != SAKER_OK);
    CHECK(!strcmp(saker_context_kernel(ctx), kernel));
    CHECK(strlen(saker_context_error(ctx)) > 0);
    saker_context_destroy(ctx);
}

/* Check level 3: memory that would fault is refused before anybody touches it. */
static void unreadable(void)
{
    saker_config c = {.struct_size = sizeof c, .check_level = 3};
    saker_context *ctx = create(&c);
    char *closed = mmap(NULL, 1 << 16, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), byte = 0, copy = 1;
    float open[2][8] = {{1}};
    struct iovec here = {&copy, 1}, there = {&byte, 1};
    saker_tensor x = SAKER_TENSOR(open[0], SAKER_F32, 1, 8), y = SAKER_TENSOR(open[1], SAKER_F32, 1, 8);
    saker_tensor shut = SAKER_TENSOR(closed, SAKER_F32, 1, 8);
    CHECK(saker_hadamard(ctx, SAKER_ARGS(hadamard, .x = &x, .y = &y)) == SAKER_OK);
    errno = ERANGE;
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1) {
        CHECK(saker_hadamard(ctx, SAKER_ARGS(hadamard, .x = &shut, .y = &y)) == SAKER_INVALID_ARG);
        CHECK_TEXT(!!strstr(saker_context_error(ctx), "x points to memory that this process cannot read"), "%s",
                   saker_context_error(ctx));
        CHECK(saker_hadamard(ctx, SAKER_ARGS(hadamard, .x = &x, .y = &shut)) == SAKER_INVALID_ARG);
        CHECK(errno == ERANGE); /* the caller's own */
    } else {
        CHECK_SKIP("check level 3: the system does not copy memory for us");
    }
    saker_context_destroy(ctx);
    c.check_level = 2; /* nobody looks; explain touches nothing */
    ctx = create(&c);
    char text[512];
    CHECK(saker_explain(ctx, "hadamard", SAKER_ARGS(hadamard, .x = &shut, .y = &y), text, sizeof text) == SAKER_OK);
    munmap(closed, 1 << 16);
    saker_context_destroy(ctx);
}

/* Outputs of 32 MiB go past the caches where that pays; smaller ones do not, and none in place. */
static void past_caches(void)
{
#if defined(__x86_64__)
    const bool pays = true;
#else
    const bool pays = false;
#endif
    enum { MIB = 1 << 20 };
    static const struct {
        int rows;
        bool in_place, past;
    } expected[] = {{8192, false, true}, {8191, false, false}, {8192, true, false}};
    saker_context *ctx = create(NULL);
    char *closed = mmap(NULL, 64 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), text[1024];
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        saker_tensor x = SAKER_TENSOR(closed, SAKER_F32, expected[i].rows, 1024), y = x;
        y.data = expected[i].in_place ? closed : closed + 32 * MIB;
        CHECK(saker_explain(ctx, "rms_norm", SAKER_ARGS(rms_norm, .x = &x, .y = &y), text, sizeof text) == SAKER_OK);
        bool said = strstr(text, "past the caches");
        CHECK_TEXT(said == (pays && expected[i].past), "case %zu, explain says: %s", i, text);
    }
    munmap(closed, 64 * MIB);
    saker_context_destroy(ctx);
}

/* ---------------------------------------------------------------- empty tensors, odd rows */

static void empty(void)
{
    saker_context *ctx = create(NULL);
    saker_tensor x = SAKER_TENSOR(NULL, SAKER_F32, 0, 64), y = SAKER_TENSOR(NULL, SAKER_F32, 0, 64);
    CHECK(saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &x, .y = &y)) == SAKER_OK);
    CHECK(!strcmp(saker_context_kernel(ctx), "rms_norm/empty"));
    float dw[64], db[64];
    for (int i = 0; i < 64; i++)
        dw[i] = db[i] = 7;
    saker_tensor dwt = SAKER_TENSOR(dw, SAKER_F32, 64), dbt = SAKER_TENSOR(db, SAKER_F32, 64);
    saker_rms_norm_backward_args b = {.struct_size = sizeof b, .dy = &x, .x = &x, .dweight = &dwt, .dbias = &dbt};
    b.accumulate = 1;
    CHECK(saker_rms_norm_backward(ctx, &b) == SAKER_OK && dw[0] == 7 && db[63] == 7);
    b.accumulate = 0;
    CHECK(saker_rms_norm_backward(ctx, &b) == SAKER_OK && dw[0] == 0 && dw[63] == 0 && db[0] == 0 && db[63] == 0);
    int64_t sum = 99;
    saker_tensor none = SAKER_TENSOR(NULL, SAKER_U8, 0), check = SAKER_TENSOR(&sum, SAKER_I64, 1);
    CHECK(saker_stream(ctx, SAKER_ARGS(stream, .x0 = &none, .checksum = &check)) == SAKER_OK && sum == 0);

    /* The high bits of the checksum, which the suite's doubles cannot hold. */
    int64_t words[3] = {(int64_t)0x8123456789abcdefu, (int64_t)0x7fffffffffffffffu, 0x0102030405060708}, copy[3];
    saker_tensor in = SAKER_TENSOR(words, SAKER_I64, 3), out = SAKER_TENSOR(copy, SAKER_F32, 6);
    CHECK(saker_stream(ctx, SAKER_ARGS(stream, .x0 = &in, .y0 = &out, .checksum = &check)) == SAKER_OK);
    CHECK(sum == (words[0] ^ words[1] ^ words[2]) && !memcmp(words, copy, sizeof words));
    CHECK(saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &x, .y = &y)) == SAKER_OK); /* after one that was not */
    CHECK(!strcmp(saker_context_kernel(ctx), "rms_norm/empty"));
    saker_context_destroy(ctx);
}

/* ---------------------------------------------------------------- little work for many threads */

/* Scratch memory is for the threads that have work. */
static void wide_contexts(void)
{
    static float memory[16 * 64], result[64];
    saker_tensor x = SAKER_TENSOR(memory, SAKER_F32, 1, 16, 1, 64), one = SAKER_TENSOR(memory, SAKER_F32, 1, 1, 1, 64);
    saker_tensor o = SAKER_TENSOR(result, SAKER_F32, 1, 1, 1, 64);
    size_t bytes[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        saker_config c = {.struct_size = sizeof c, .parallel_for = lanes_of, .parallel_width = i ? 4096 : 1};
        saker_context *ctx = create(&c);
        CHECK(saker_workspace_bytes(ctx, "attention", SAKER_ARGS(attention, .q = &one, .k = &x, .v = &x, .o = &o),
                                    &bytes[i]) == SAKER_OK);
        saker_context_destroy(ctx);
    }
    CHECK_TEXT(bytes[0] && bytes[1] == bytes[0], "%zu bytes for one thread, %zu for 4096", bytes[0], bytes[1]);

    /* A row of scratch memory for each: as many as the caller says, no more than the machine has. */
    saker_tensor row = SAKER_TENSOR(memory, SAKER_F32, 1, 64), y = SAKER_TENSOR(result, SAKER_F32, 1, 64);
    static const struct {
        saker_parallel_for own;
        int width, threads;
    } given[] = {{NULL, 0, 1}, {NULL, 0, 0}, {NULL, 0, 1000000}, {lanes_of, 0, 0}, {lanes_of, 5000, 0}};
    size_t each[5] = {0}, all = (size_t)saker_thread_count();
    for (int i = 0; i < 5; i++) {
        saker_config c = {.struct_size = sizeof c, .threads = given[i].threads};
        c.parallel_for = given[i].own, c.parallel_width = given[i].width;
        saker_context *ctx = create(&c);
        CHECK(saker_workspace_bytes(ctx, "hadamard", SAKER_ARGS(hadamard, .x = &row, .y = &y), &each[i]) == SAKER_OK);
        saker_context_destroy(ctx);
    }
    CHECK_TEXT(each[0] && each[1] == all * each[0] && each[2] == each[1] && each[3] == each[1],
               "%zu, %zu, %zu and %zu bytes with %zu threads", each[0], each[1], each[2], each[3], all);
    CHECK_TEXT(each[4] == 5000 * each[0], "%zu bytes for 5000 lanes, %zu for one", each[4], each[0]);
}

/* ---------------------------------------------------------------- many dimensions */

/* Eight dimensions are fine as long as they merge to four groups of rows; more is refused in words. */
static void many_dims(void)
{
    saker_context *ctx = create(NULL);
    static float x[3 * 4 * 5 * 6 * 7 * 64], y[32 * 16], z[32 * 16];
    for (int i = 0; i < (int)(sizeof x / sizeof *x); i++)
        x[i] = (float)(i % 101) - 50;
    saker_tensor flat = SAKER_TENSOR(x, SAKER_F32, 32, 16), deep = SAKER_TENSOR(x, SAKER_F32, 2, 1, 2, 2, 1, 2, 2, 16);
    saker_tensor fy = SAKER_TENSOR(y, SAKER_F32, 32, 16), dy = SAKER_TENSOR(z, SAKER_F32, 2, 1, 2, 2, 1, 2, 2, 16);
    CHECK(saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &flat, .y = &fy)) == SAKER_OK);
    CHECK(saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &deep, .y = &dy)) == SAKER_OK && !memcmp(y, z, sizeof y));
    saker_tensor five = SAKER_TENSOR(x, SAKER_F32, 2, 2, 2, 2, 2, 16),
                 fo = SAKER_TENSOR(y, SAKER_F32, 2, 2, 2, 2, 2, 16);
    five.strides = (int64_t[]){6 * 7 * 64 * 4, 7 * 64 * 5, 64 * 15, 64 * 3, 17, 1};
    CHECK(saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &five, .y = &fo)) == SAKER_UNSUPPORTED);
    CHECK_TEXT(strstr(saker_context_error(ctx), "5 groups"), "%s", saker_context_error(ctx));
    five.strides = (int64_t[]){6 * 7 * 64 * 4, 7 * 64 * 5, 64 * 15, 34, 17, 1}; /* the last two merge */
    CHECK_TEXT(saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &five, .y = &fo)) == SAKER_OK, "%s",
               saker_context_error(ctx));
    saker_tensor last = SAKER_TENSOR(x + 6 * 7 * 64 * 4 + 7 * 64 * 5 + 64 * 15 + 34 + 17, SAKER_F32, 16);
    saker_tensor lo = SAKER_TENSOR(z, SAKER_F32, 16); /* the very last row, alone */
    CHECK(saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &last, .y = &lo)) == SAKER_OK);
    CHECK(!memcmp(z, y + 31 * 16, 16 * sizeof *y));
    saker_context_destroy(ctx);
}

/* ---------------------------------------------------------------- memory and time */

static void helpers(void)
{
    saker_context *ctx = create(NULL);
    void *memory = NULL;
    CHECK(saker_memory_alloc(ctx, 0, &memory) == SAKER_OK && memory);
    CHECK(saker_memory_free(ctx, memory) == SAKER_OK && saker_memory_free(ctx, NULL) == SAKER_OK);
    CHECK(saker_memory_alloc(ctx, 100, NULL) == SAKER_NULL_POINTER);
    CHECK(saker_memory_alloc(NULL, 100, &memory) == SAKER_NULL_POINTER);
    CHECK(saker_memory_alloc(ctx, SIZE_MAX, &memory) == SAKER_OUT_OF_MEMORY && !memory);
    CHECK(saker_memory_alloc(ctx, (size_t)1 << 60, &memory) == SAKER_OUT_OF_MEMORY && !memory);
    CHECK(saker_memory_alloc(ctx, 9 << 20, &memory) == SAKER_OK && (uintptr_t)memory % 256 == 0);
    int from = 42, to = 0;
    CHECK(saker_memory_copy(ctx, memory, &from, sizeof from) == SAKER_OK);
    CHECK(saker_memory_copy(ctx, &to, memory, sizeof to) == SAKER_OK && to == 42);
    CHECK(saker_memory_copy(ctx, NULL, memory, 0) == SAKER_OK);
    CHECK(saker_memory_copy(ctx, NULL, memory, 1) == SAKER_NULL_POINTER);
    double us[3] = {-1, -1, -1};
    saker_tensor x = SAKER_TENSOR(memory, SAKER_U8, 1 << 20);
    saker_tensor y = SAKER_TENSOR((char *)memory + (2 << 20), SAKER_U8, 1 << 20);
    saker_stream_args a = {.struct_size = sizeof a, .x0 = &x, .y0 = &y};
    CHECK(saker_measure(ctx, "stream", &a, 3, 1 << 16, us) == SAKER_OK && us[0] > 0 && us[1] > 0 && us[2] > 0);
    CHECK(saker_measure(ctx, "stream", &a, 0, 0, NULL) == SAKER_OK);
    CHECK(saker_measure(ctx, "stream", &a, 1, 0, NULL) == SAKER_NULL_POINTER);
    CHECK(saker_measure(ctx, "steam", &a, 1, 0, us) == SAKER_INVALID_ARG);
    CHECK(saker_measure(NULL, "stream", &a, 1, 0, us) == SAKER_NULL_POINTER);
    a.y0 = &x;
    CHECK(saker_measure(ctx, "stream", &a, 1, 0, us) == SAKER_ALIAS);
    CHECK(saker_memory_free(ctx, memory) == SAKER_OK);
    saker_context_destroy(ctx);
}

int main(void)
{
    contexts();
    names();
    questions();
    unreadable();
    past_caches();
    empty();
    wide_contexts();
    many_dims();
    helpers();
    return check_report("test_core");
}
