/* op.h - what an operation is, what a plan is, and the helpers that check() is written with.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The one path of every call (run.c): fields -> check -> plan -> workspace -> run -> record.
 *   fields  run.c walks the op's field table: NULLs, types, shapes, strides, devices, alignment, enums. The same for
 * every op. check   the op turns views and options into its job and decides every error that is its own. plan    a pure
 * function of job and target: kernel, tasks or grid, workspace bytes. No device needed, unit-tested. run     the
 * backend executes the plan's steps. Kernels never validate, allocate or fail. */
#ifndef SKR_OP_H
#define SKR_OP_H

#include <stdbool.h>
#include <stddef.h>

#include "job.h"
#include "saker.h"

/* ---------------------------------------------------------------- a call on its way */

typedef struct skr_call {
    saker_context *ctx;
    const struct skr_op *op;
    char *error; /* SKR_ERROR_BYTES */
} skr_call;

enum { SKR_ERROR_BYTES = 512 };

/* Writes "op: sentence" and returns the status. */
__attribute__((format(printf, 3, 4))) saker_status skr_fail(skr_call *call, saker_status status, const char *format,
                                                            ...);

/* A tensor argument after the field checks: resolved pointer, explicit strides. data is NULL when the argument is
 * absent or empty. */
typedef struct skr_view {
    const char *name;
    bool present;
    bool output;
    int32_t type; /* skr_type */
    int32_t ndim;
    char *data;
    int64_t shape[SAKER_MAX_DIMS];
    int64_t stride[SAKER_MAX_DIMS];
    int64_t count; /* elements */
} skr_view;

/* "[4096, 8192]" in a buffer of 160 bytes (for sentences). */
const char *skr_shape_text(const skr_view *v, char *text);

/* ---- shape helpers, each fails with a sentence (tensor.c) */

/* v has the shape of ref. */
saker_status skr_same_shape(skr_call *call, const skr_view *v, const skr_view *ref);
/* v's last dimension has stride 1 (or at most one element). */
saker_status skr_last_contiguous(skr_call *call, const skr_view *v);
/* Makes bytes the i4 that they hold, two along that dimension, which then has width of them. */
saker_status skr_open_nibbles(skr_call *call, skr_view *v, int along, int64_t width);
/* v repeated to ref's shape (missing leading dimensions, sizes of 1): *out has that shape, with stride 0 where it
 * repeats. An absent v stays absent. */
saker_status skr_broadcast(skr_call *call, const skr_view *v, const skr_view *ref, skr_view *out);
/* v with dimension dim moved behind the others. */
skr_view skr_dim_last(const skr_view *v, int dim);
/* A parameter [n] or [heads, n] for x of shape [..., heads, n]; *heads is set on the first one (0 before), and must
 * agree afterwards. */
saker_status skr_param_of(skr_call *call, const skr_view *v, const skr_view *x, int64_t *heads, skr_param *out);

/* Collects the row tensors of a job, then merges their leading dimensions together. */
typedef struct skr_row_builder {
    const skr_view *x; /* gives the leading shape */
    int n;
    struct {
        const skr_view *view;
        skr_rows *out;
        int64_t lead[SAKER_MAX_DIMS];
    } tensor[16];
} skr_row_builder;
void skr_rows_start(skr_row_builder *b, const skr_view *x);
/* x's shape, last dimension contiguous. Absent views leave out->data NULL. */
saker_status skr_rows_add(skr_call *call, skr_row_builder *b, const skr_view *v, skr_rows *out);
/* The same with any stride in the last dimension. */
saker_status skr_rows_add_strided(skr_call *call, skr_row_builder *b, const skr_view *v, skr_rows *out);
/* One value per row: shape [M] or x's leading shape. */
saker_status skr_rows_add_stat(skr_call *call, skr_row_builder *b, const skr_view *v, skr_rows *out);
/* cols values per row: x's leading shape (or [M]) followed by [cols], any strides. */
saker_status skr_rows_add_block(skr_call *call, skr_row_builder *b, const skr_view *v, int64_t cols, skr_rows *out);
saker_status skr_rows_merge(skr_call *call, skr_row_builder *b, skr_row_space *space);

/* The quantised output of a row operation (quant.c). y, q and scale fit together: at least one result, and q, scale and
 * quant all there or none. */
saker_status skr_check_quant(skr_call *call, const skr_view *y, const skr_view *q, const skr_view *scale,
                             int32_t quant);
/* Adds its scales to the rows: the one given, [M], or [M, ceil(n / 128)]. */
saker_status skr_rows_add_scale(skr_call *call, skr_row_builder *b, const skr_view *scale, int32_t quant, int64_t n,
                                skr_rows *out);

/* No two elements of an output share memory, and outputs overlap no other tensor, except pairs the op allows as exact
 * aliases. */
typedef struct skr_alias_pair {
    int8_t a, b; /* field indices */
} skr_alias_pair;
saker_status skr_check_alias(skr_call *call, const skr_view *views, int n, const skr_alias_pair *allowed,
                             int n_allowed);

/* ---------------------------------------------------------------- where it will run */

typedef enum skr_backend { SKR_CPU, SKR_CUDA } skr_backend;

typedef struct skr_target {
    skr_backend backend;
    uint64_t flags; /* saker_flag */
    /* CPU */
    int32_t width;     /* most tasks that run at once: sizes per-worker scratch, never changes results */
    const char *level; /* name of the instruction-set level: kernels whose tiles differ need it to size their scratch */
    int64_t past_bytes; /* outputs of this much in all are written past the caches; 0: never */
    /* CUDA */
    int32_t sm; /* 90 for compute capability 9.0 */
    int32_t n_sms;
    int32_t shared_bytes; /* per block, opted in */
} skr_target;

/* ---------------------------------------------------------------- the plan */

struct skr_cuda_kernel; /* cuda/launch.h */

/* CPU: the op's kernel is called as kernel(job, step index, task, worker) for task in [0, n_tasks), worker in [0,
 * width). CUDA: one launch; the job is the kernel's only parameter, by value. */
typedef struct skr_step {
    int64_t n_tasks;
    struct skr_cuda_kernel *kernel;
    uint32_t grid, block, cluster, shared_bytes;
    uint32_t index; /* CPU: step number given to the kernel */
    bool overlap; /* CUDA: programmatic dependent launch; the kernel waits before it touches memory that others write */
} skr_step;

enum { SKR_MAX_STEPS = 16, SKR_WHY_BYTES = 1024 };

struct skr_part;

typedef struct skr_plan {
    const char *variant; /* static text: what distinguishes the kernel, e.g. "bf16 two-pass" */
    size_t workspace_bytes;
    int64_t traffic_bytes; /* rough, decides whether threads are worth waking */
    int n_steps;
    skr_step step[SKR_MAX_STEPS];
    /* CUDA: NULL, or what must be done to the job before the first launch, with the device's context current: tensor
     * maps cannot be made without one. */
    saker_status (*bind)(skr_call *call, void *job);
    void *bind_job;
    /* An operation made of others has parts instead of steps: part() makes the one that is number i. Pure, as plan is;
     * the workspace of all of them together is this plan's. */
    int64_t n_parts;
    saker_status (*part)(skr_call *call, const void *job, const skr_target *target, int64_t i, struct skr_part *out);
    char *why; /* NULL, or SKR_WHY_BYTES of text where plan may append reasons, one line each (explain) */
} skr_plan;

/* A part of a plan: a job of some operation's kernels and its plan. Made when its turn comes, so there can be any
 * number of them; it arrives empty, and must stay where it is. */
typedef struct skr_part {
    int op_index; /* whose kernel it is */
    skr_plan plan;
    _Alignas(128) unsigned char job[SKR_JOB_BYTES]; /* its head is filled, too */
} skr_part;

__attribute__((format(printf, 2, 3))) void skr_why(skr_plan *plan, const char *format, ...);
/* CPU: `bytes` of results go past the caches if they are many. Asked of the fields that are outputs by their kind
 * before the plan is made; a plan asks it of another that it only writes. */
void skr_write_past(skr_job_head *head, const skr_target *target, int64_t bytes, skr_plan *plan);
/* Adds a step and returns it. */
skr_step *skr_plan_step(skr_plan *plan);
static inline size_t skr_align_up(size_t n, size_t a)
{
    return (n + a - 1) / a * a;
}

/* ---------------------------------------------------------------- the op */

typedef struct skr_op {
    saker_op_info info;
    uint32_t v1_size;     /* size of the argument struct in its first version */
    uint32_t reserved_at; /* where its member `reserved` is, which must be 0; 0: it has none */
    uint32_t job_size;    /* at most SKR_JOB_BYTES */
    /* views[i] belongs to fields[i]; args is complete (grown with zeros when the caller's struct is older). Returns OK
     * with *empty set when there is nothing to compute. */
    saker_status (*check)(skr_call *call, const skr_view *views, const void *args, void *job, bool *empty);
    /* Pure. May write the plan fields at the end of the job. SAKER_OK, or SAKER_UNSUPPORTED through skr_fail when no
     * kernel takes the job. */
    saker_status (*plan)(skr_call *call, void *job, const skr_target *target, skr_plan *plan);
} skr_op;

#define SKR_OP(name) extern const skr_op skr_op_##name;
#include "ops.def"
#undef SKR_OP

enum {
#define SKR_OP(name) SKR_OP_##name,
#include "ops.def"
#undef SKR_OP
    SKR_N_OPS
};
extern const skr_op *const skr_ops[SKR_N_OPS];

/* Field-table rows: SKR_IN(rms_norm, x, required, skr_floats, "doc"). */
#define SKR_FIELD(op, field, ...)                                                                                      \
    {                                                                                                                  \
        .name = #field, .offset = offsetof(saker_##op##_args, field), __VA_ARGS__                                      \
    }
#define SKR_IN(op, field, need, kinds, text)                                                                           \
    SKR_FIELD(op, field, .kind = SAKER_FIELD_IN, .required = need, .types = kinds, .doc = text)
#define SKR_OUT(op, field, need, kinds, text)                                                                          \
    SKR_FIELD(op, field, .kind = SAKER_FIELD_OUT, .required = need, .types = kinds, .doc = text)
#define SKR_INOUT(op, field, need, kinds, text)                                                                        \
    SKR_FIELD(op, field, .kind = SAKER_FIELD_INOUT, .required = need, .types = kinds, .doc = text)
#define SKR_OPTION_F32(op, field, value, text)                                                                         \
    SKR_FIELD(op, field, .kind = SAKER_FIELD_F32, .default_value = value, .doc = text)
#define SKR_OPTION_BOOL(op, field, text) SKR_FIELD(op, field, .kind = SAKER_FIELD_BOOL, .doc = text)
#define SKR_OPTION_I64(op, field, value, text)                                                                         \
    SKR_FIELD(op, field, .kind = SAKER_FIELD_I64, .default_value = value, .doc = text)
#define SKR_OPTION_F64(op, field, value, text)                                                                         \
    SKR_FIELD(op, field, .kind = SAKER_FIELD_F64, .default_value = value, .doc = text)
#define SKR_OPTION_ENUM(op, field, names, text)                                                                        \
    SKR_FIELD(op, field, .kind = SAKER_FIELD_ENUM, .choices = names, .doc = text)

extern const uint32_t skr_floats[]; /* f32 f16 bf16 */
extern const uint32_t skr_f32_only[];
extern const uint32_t skr_i32_only[];
extern const uint32_t skr_i64_only[];
extern const uint32_t skr_index_types[]; /* i32 i64 */
extern const uint32_t skr_quant_types[]; /* i8 e4m3 e5m2 */
extern const uint32_t skr_code_types[];  /* i8 e4m3 e5m2 i4, and u8 for packed i4 */
extern const uint32_t skr_any_type[];

#define SKR_TRY(expression)                                                                                            \
    do {                                                                                                               \
        saker_status skr_try_ = (expression);                                                                          \
        if (skr_try_)                                                                                                  \
            return skr_try_;                                                                                           \
    } while (0)

#endif
