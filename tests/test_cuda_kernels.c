/* test_cuda_kernels.c - every case of every suite planned for a GPU, against the fake driver: the kernel is the one
 * that the case names. Nothing runs, so this needs no kernels and no memory. A line "kernel <symbol>" for each kernel
 * of each plan goes to the file that $PLANNED names, for GPUs with less shared memory "ampere <symbol>" and "consumer
 * <symbol>" (check_kernels.sh reads it). SPDX-License-Identifier: Apache-2.0 */
#include "cuda_host.h"
#include "suite.h"

enum { TEXT_BYTES = 8192 };

/* One tensor that is an element beside its place: where it begins, or in one of its strides. */
typedef struct nudge {
    int tensor, dim; /* dim: -1: where it begins */
} nudge;

/* What `saker_explain` says about the case; tensors get made-up addresses, which it never follows. */
static saker_status explained(saker_context *ctx, const suite *s, const suite_case *c, const nudge *beside, char *text)
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
        uintptr_t at = (uintptr_t)(place + 1) << 40;
        if (beside && beside->tensor == place && beside->dim < 0)
            at += (uintptr_t)(t->align ? t->align : suite_type_bytes(t->type));
        if (beside && beside->tensor == place && beside->dim >= 0)
            stride[i][beside->dim]++;
        tensor[i] = saker_tensor_of((void *)at, t->type, t->ndim, shape[i], stride[i]);
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

/* Every step has blocks, in whole clusters, of threads that one may have, and their shared memory is there on this GPU.
 */
static void check_steps(saker_context *ctx, const suite *s, const suite_case *c, const char *text)
{
    for (const char *line = text; (line = strstr(line, "\nstep ")); line++) {
        unsigned grid = 0, block = 0, cluster = 1, bytes = 0;
        const char *at = strstr(line, ", grid ");
        int n = at ? sscanf(at, ", grid %u, block %u, cluster %u, shared %u", &grid, &block, &cluster, &bytes) : 0;
        bool launches = n == 4 && grid > 0 && grid <= INT32_MAX && block > 0 && block <= 1024 && grid % cluster == 0;
        if (launches && (bytes == 0 || bytes + STATIC_BYTES <= (unsigned)ctx->target.shared_bytes))
            continue;
        char what[512];
        snprintf(what, sizeof what, "%s '%s' asks for %u blocks of %u in clusters of %u with %u bytes, this GPU has %d",
                 s->op, c->name, grid, block, cluster, bytes, ctx->target.shared_bytes);
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
        saker_status status = explained(ctx, s, &c, NULL, text);
        if (small && status == SAKER_UNSUPPORTED && too_large(s, &c) &&
            strstr(saker_context_error(ctx), "shared memory")) {
            refused++;
            continue;
        }
        if (out && !status && c.use & (SUITE_CHECK | SUITE_ALL))
            note_kernels(out, gpu, text);
        if (!status)
            check_steps(ctx, s, &c, text);
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
    saker_context_destroy(ctx);
    const saker_config any_order = {
        .struct_size = sizeof any_order, .device_type = SAKER_CUDA, .flags = SAKER_ALLOW_NONDETERMINISTIC};
    NUMBER(saker_context_create(&ctx, &any_order), SAKER_OK);
    cases_of(ctx, suite_find("attention_backward"), small, gpu, planned);
    saker_context_destroy(ctx);
    if (planned)
        fclose(planned);
}

/* Tensors that kernels read or write in vectors, the variants that are not chosen where one of these alone is beside
 * its place (NULL: all others than those after them), and cases for which that does not hold. */
static const struct {
    const char *op, *fields, *not_, *else_, *but;
} in_vectors[] = {
    {"activation", " x up bias y y_quant ", NULL, "any", NULL},
    {"activation_backward", " dy x up bias dx dup ", NULL, "any|columns|empty sums", NULL},
    {"adamw", " param grad exp_avg exp_avg_sq max_exp_avg_sq ", NULL, "1 element", NULL},
    {"cross_entropy", " logits dlogits ", NULL, "any|no rows", NULL},
    {"cross_entropy_backward", " logits dlogits ", NULL, "any", NULL},
    {"embedding", " table out ", NULL, "any", NULL},
    {"embedding_backward", " dout dtable ", NULL, "1 element", NULL},
    {"hadamard", " x y ", NULL, "any|pieces", NULL},
    {"quantize", " x q ", NULL, "any|empty", NULL},
    {"dequantize", " q y ", NULL, "any", NULL},
    {"rms_norm", " x weight bias residual y residual_out y_quant ", NULL, "any warp1|any block1", NULL},
    {"layer_norm", " x weight bias residual y residual_out y_quant ", NULL, "any warp1|any block1", NULL},
    {"rms_norm_backward", " dy x weight dresidual_out dx ", NULL, "any warp1|any block1|empty sums", NULL},
    {"layer_norm_backward", " dy x weight dresidual_out dx ", NULL, "any warp1|any block1|empty sums", NULL},
    {"rope", " q k cos sin q_weight k_weight q_out k_out ", NULL, "any|empty sums", NULL},
    /* a gradient that is not asked for is not computed */
    {"rope_backward", " dq_out dk_out q k cos sin q_weight k_weight dq dk ", NULL, "any|empty sums", " -d"},
    {"softmax", " x mask y ", NULL, "any", NULL},
    {"softmax_backward", " dy y dx ", NULL, "any", NULL},
    {"sum_squares", " x ", NULL, "1 element", NULL},
    {"attention", " q k v ", "plain|scored", NULL, NULL},
    {"attention_backward", " d_o q k v ", "plain|scored", NULL, NULL},
    {"gemm", " a ", "tma|few rows|vector f32 kk", NULL, NULL},
    {"gemm", " b ", "tma|few rows|vector", NULL, NULL},
    {"grouped_gemm", " a b ", "tma", NULL, NULL},
    {"linear_cross_entropy", " weight ", "tma|few rows|vector", NULL, NULL}, /* x is planned run by run */
};

/* One of the words between bars. */
static bool has_word(const char *text, const char *words)
{
    char word[32];
    for (; words && *words; words += strcspn(words, "|"), words += *words == '|') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(words, "|"), words);
        if (strstr(text, word))
            return true;
    }
    return false;
}

static void nudged(saker_context *ctx, const suite *s, const suite_case *c, const nudge *beside, const char *not_,
                   const char *else_)
{
    char text[TEXT_BYTES], line[512];
    if (explained(ctx, s, c, beside, text))
        return;                       /* refused: of two tensors that share their memory, say */
    if (strstr(text, "after a copy")) /* which is where it has to be */
        return;
    char *end = strchr(text, '\n');
    if (end)
        *end = 0;
    if (strstr(text, ": nothing") || (not_ ? !has_word(text, not_) : has_word(text, else_)))
        return;
    snprintf(line, sizeof line, "%s '%s' is planned as '%.100s' though %s is an element beside its place (%s %d)",
             s->op, c->name, text, c->tensor[beside->tensor].field, beside->dim < 0 ? "address" : "stride",
             beside->dim);
    record(false, __LINE__, line, "");
}

/* Whatever is no multiple of a vector keeps the kernels away that need it to be. */
static void out_of_line(void)
{
    load_fake("");
    saker_context *ctx = made(0, NULL);
    for (size_t k = 0; k < sizeof in_vectors / sizeof *in_vectors; k++) {
        const suite *s = suite_find(in_vectors[k].op);
        suite_case c;
        for (int i = 0; s->at(i, &c); i++) {
            if (!(c.use & (SUITE_CHECK | SUITE_ALL)) || c.use & SUITE_CPU_ONLY ||
                (in_vectors[k].but && strstr(c.name, in_vectors[k].but)))
                continue;
            for (int t = 0; t < c.n_tensors; t++) {
                const suite_tensor *of = &c.tensor[t];
                int64_t stride[SUITE_MAX_DIMS], bytes = suite_type_bytes(of->type);
                char field[64];
                snprintf(field, sizeof field, " %s ", of->field);
                if (of->alias || !strstr(in_vectors[k].fields, field) || suite_elements(of) == 0)
                    continue;
                suite_strides(of, stride);
                if (of->shape[of->ndim - 1] == 1) /* a mask's one element for a row */
                    continue;
                for (int dim = -1; dim < of->ndim - 1; dim++)
                    if (dim < 0 || (of->shape[dim] > 1 && stride[dim] > 0 && stride[dim] * bytes % 16 == 0))
                        nudged(ctx, s, &c, &(nudge){t, dim}, in_vectors[k].not_, in_vectors[k].else_);
            }
        }
        record(true, __LINE__, s->op, "");
    }
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
    static const scenario_row rows[] = {SCENARIO(hopper), SCENARIO(portable), SCENARIO(ampere), SCENARIO(consumer),
                                        SCENARIO(out_of_line)};
    return run_with_fake(argc, argv, rows, sizeof rows / sizeof *rows);
}
