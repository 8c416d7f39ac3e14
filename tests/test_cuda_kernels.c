/* test_cuda_kernels.c - every case of every suite planned for a GPU, against the fake driver: the kernel is the one
 * that the case names. Nothing runs, so this needs no kernels and no memory. A line "kernel <symbol>" for each kernel
 * of each plan goes to the file that $PLANNED names, for GPUs with less shared memory "ampere <symbol>" and "consumer
 * <symbol>" (check_kernels.sh reads it). SPDX-License-Identifier: Apache-2.0 */
#include "cuda_host.h"
#include "suite.h"

enum { TEXT_BYTES = 8192 };

/* What `saker_explain` says about the case; tensors get made-up addresses, which it never follows. */
static saker_status explained(saker_context *ctx, const suite *s, const suite_case *c, char *text)
{
    static int64_t shape[SUITE_MAX_TENSORS][SUITE_MAX_DIMS], stride[SUITE_MAX_TENSORS][SUITE_MAX_DIMS];
    static saker_tensor tensor[SUITE_MAX_TENSORS];
    static _Alignas(8) unsigned char args[SUITE_ARGS_BYTES];
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        int place = i;
        for (int k = 0; t->alias && k < i; k++)
            if (!strcmp(c->tensor[k].field, t->alias))
                place = k;
        memcpy(shape[i], t->shape, sizeof t->shape);
        suite_strides(t, stride[i]);
        tensor[i] = saker_tensor_of((void *)((uintptr_t)(place + 1) << 40), t->type, t->ndim, shape[i], stride[i]);
    }
    CHECK(suite_bind(s, c, tensor, args));
    return saker_explain(ctx, s->op, args, text, TEXT_BYTES);
}

/* The kernels of the steps that explain() told. */
static void note_kernels(FILE *out, const char *gpu, const char *text)
{
    for (const char *line = text; (line = strstr(line, "\nstep ")); line++) {
        const char *name = strstr(line, ": ");
        if (name)
            fprintf(out, "%s %.*s\n", gpu, (int)strcspn(name + 2, ","), name + 2);
    }
}

/* A kernel's static shared memory counts, too. Of those that ask for a dynamic part only Hopper's own have more, and
 * the fake driver says so much of all. */
enum { STATIC_BYTES = 1024 };

/* Every step's shared memory is there on this GPU. */
static void check_shared(saker_context *ctx, const suite *s, const suite_case *c, const char *text)
{
    for (const char *line = text; (line = strstr(line, "\nstep ")); line++) {
        const char *at = strstr(line, ", shared ");
        long bytes = at ? strtol(at + 9, NULL, 10) : 0;
        if (bytes == 0 || bytes + STATIC_BYTES <= ctx->target.shared_bytes)
            continue;
        char what[512];
        snprintf(what, sizeof what, "%s '%s' asks for %ld bytes of shared memory, this GPU has %d", s->op, c->name,
                 bytes, ctx->target.shared_bytes);
        record(false, __LINE__, what, NULL);
    }
}

/* The case is planned, and by the kernel that it names where it names one. */
static void check_plan(saker_context *ctx, const suite *s, const suite_case *c, saker_status status, const char *first,
                       const char *needs)
{
    char empty[64], line[512];
    snprintf(empty, sizeof empty, "%s: nothing", s->op);
    if (!status && (!needs || !strncmp(first, empty, strlen(empty)) || strstr(first, needs)))
        return;
    snprintf(line, sizeof line, "%s '%s' is planned as '%.200s', expected '%s'", s->op, c->name,
             status ? saker_context_error(ctx) : first, needs ? needs : "any kernel");
    record(false, __LINE__, line, "");
}

/* What 99 KiB of shared memory are too few for: attention whose products are f32, with a head beyond 256. */
static bool too_large(const suite *s, const suite_case *c)
{
    int64_t widest = 0;
    bool f32 = false;
    if (strcmp(s->op, "attention") && strcmp(s->op, "attention_backward"))
        return false;
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        bool q = !strcmp(t->field, "q"), v = !strcmp(t->field, "v");
        if ((q || v) && t->shape[t->ndim - 1] > widest)
            widest = t->shape[t->ndim - 1];
        f32 |= q && t->type == SAKER_F32;
    }
    return f32 && widest > 256;
}

/* small: a GPU with 99 KiB of shared memory, where a call may be refused, with a sentence that says so. gpu: for the
 * lines in out. */
static void cases_of(saker_context *ctx, const suite *s, bool small, const char *gpu, FILE *out)
{
    char text[TEXT_BYTES];
    suite_case c;
    int planned = 0, names = 0, refused = 0;
    for (int i = 0; s->at(i, &c); i++) {
        if (!(c.use & (SUITE_CHECK | SUITE_ALL | SUITE_BENCH_CUDA)) || c.use & SUITE_CPU_ONLY)
            continue;
        saker_status status = explained(ctx, s, &c, text);
        if (small && status == SAKER_UNSUPPORTED && too_large(s, &c) &&
            strstr(saker_context_error(ctx), "shared memory")) {
            refused++;
            continue;
        }
        if (out && !status && c.use & (SUITE_CHECK | SUITE_ALL))
            note_kernels(out, gpu, text);
        if (!status)
            check_shared(ctx, s, &c, text);
        char *end = strchr(text, '\n');
        if (end)
            *end = 0;
        const char *needs = suite_kernel_of(&c, true, text);
        check_plan(ctx, s, &c, status, text, needs);
        planned++;
        names += needs != NULL;
    }
    printf("     %-24s %5d cases planned, %5d of them name their kernel, %5d refused\n", s->op, planned, names,
           refused);
    record(true, __LINE__, s->op, "");
}

static void all_cases(bool small, const char *gpu)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    FILE *planned = getenv("PLANNED") ? fopen(getenv("PLANNED"), "a") : NULL;
    for (int i = 0; i < suite_count(); i++)
        cases_of(ctx, suite_at(i), small, gpu, planned);
    if (planned)
        fclose(planned);
    saker_context_destroy(ctx);
}

static void hopper(void)
{
    all_cases(false, "kernel");
}

static void portable(void)
{
    setenv("SAKER_CUDA_ISA", "sm80", 1);
    all_cases(false, "kernel");
}

/* 163 KiB of shared memory for a block, and 99. */
static void ampere(void)
{
    setenv("FAKE_CUDA_SM", "80", 1);
    all_cases(false, "ampere");
}

static void consumer(void)
{
    setenv("FAKE_CUDA_SM", "120", 1);
    all_cases(true, "consumer");
}

int main(int argc, char **argv)
{
    static const scenario_row rows[] = {SCENARIO(hopper), SCENARIO(portable), SCENARIO(ampere), SCENARIO(consumer)};
    return run_with_fake(argc, argv, rows, sizeof rows / sizeof *rows);
}
