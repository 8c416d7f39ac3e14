/* linear_cross_entropy_plan.c - the parts that the operation is made of, and the workspace that they share.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The rows come in pieces. For each of them: logits = x * weight^T + bias, rounded to x's type in the workspace; on a
 * GPU, -infinity behind the last column, up to a vector's end; cross_entropy, which puts the gradient in their place;
 * dbias += its columns' sums; dweight += dlogits^T * x; dx = dlogits * weight. Sums over all rows (what a mean divides
 * by, the one loss) come before and after. The pieces are a function of the problem, and so are all bits. */
#include <string.h>

#include "linear_cross_entropy_op.h"

typedef skr_linear_cross_entropy_job job_t;

/* What is done for a piece. */
enum { LOGITS, ENDS, LOSSES, COLUMNS, DWEIGHT, DX, N_WORKS };

/* Bytes of logits at once, unless chunk_rows says otherwise; rows of a piece at least, and as a multiple: a product has
 * tiles of up to 256 rows. Each piece reads and writes all of dweight's sums, so that there should be few: as many rows
 * are taken as need the memory of those sums, which a single piece of f16 or bf16 goes without. */
enum { CUDA_BYTES = 1 << 30, CPU_BYTES = 1 << 28, ROWS = 256, PITCH = 64 };
/* Each is planned by itself, twice. */
enum { MOST_PIECES = 1 << 16 };

/* Where the workspace will begin, as far as a plan needs to know it. */
#define ALIGNED ((void *)(uintptr_t)256)

static void *room(const job_t *job, int64_t at)
{
    return (char *)job->head.workspace + at;
}

/* ---------------------------------------------------------------- rows of a piece */

typedef struct piece {
    int64_t first, rows;
    bool begins, ends; /* the first of all, the last one */
} piece;

static piece piece_of(const job_t *job, int64_t i)
{
    piece p = {.begins = i == 0, .ends = i == job->pieces - 1};
    if (!job->rows.rows.m)
        return p;
    int64_t at = i % job->pieces_of_run * job->chunk;
    p.first = i / job->pieces_of_run * job->run + at;
    p.rows = skr_min(job->chunk, job->run - at);
    return p;
}

/* The rows of a piece, which are one stride apart. */
static skr_rows rows_of(const job_t *job, const skr_rows *all, const piece *p)
{
    skr_rows r = *all;
    const skr_row_space *space = &job->rows.rows;
    if (!r.data || !space->m)
        return r;
    r.data = (char *)r.data + skr_row_offset(space, r.stride, p->first) * skr_type_bytes(r.type);
    r.stride[0] = r.stride[space->n_dims - 1];
    return r;
}

/* A piece of x or dx as a matrix. */
static skr_gemm_matrix matrix_of(const job_t *job, const skr_rows *all, const piece *p)
{
    skr_rows r = rows_of(job, all, p);
    skr_gemm_matrix m = {.at = {.data = r.data, .type = r.type, .col_stride = r.col_stride}, .row = r.stride[0]};
    return m;
}

static skr_gemm_matrix logits_of(const job_t *job)
{
    skr_gemm_matrix m = {.row = job->pitch};
    m.at = (skr_rows){.data = room(job, job->logits_at), .type = job->x.type, .col_stride = 1};
    return m;
}

static skr_gemm_matrix turned(skr_gemm_matrix m)
{
    int64_t row = m.row;
    m.row = m.at.col_stride;
    m.at.col_stride = row;
    return m;
}

/* ---------------------------------------------------------------- parts */

static void start(const job_t *job, int op_index, int64_t workspace_at, skr_part *out)
{
    skr_job_head *head = (skr_job_head *)out->job;
    out->op_index = op_index;
    head->workspace = room(job, workspace_at);
    head->error_word = job->head.error_word;
}

static skr_gemm_job *start_gemm(const job_t *job, int64_t m, int64_t n, int64_t k, skr_gemm_matrix a, skr_gemm_matrix b,
                                skr_gemm_matrix d, skr_part *out)
{
    skr_gemm_job *g = (skr_gemm_job *)out->job;
    start(job, SKR_OP_gemm, job->scratch_at, out);
    skr_gemm_product(g, m, n, k, a, b, d);
    g->allow_tf32 = job->allow_tf32;
    return g;
}

static saker_status part_logits(skr_call *call, const job_t *job, const skr_target *target, const piece *p,
                                skr_part *out)
{
    if (!p->rows || !job->rows.n)
        return SAKER_OK;
    skr_gemm_job *g = start_gemm(job, p->rows, job->rows.n, job->h, matrix_of(job, &job->x, p), turned(job->weight),
                                 logits_of(job), out);
    g->bias = job->bias;
    g->d_gaps = 1;
    return skr_gemm_plan(call, g, target, &out->plan);
}

/* A job of this operation's own kernels. */
static skr_lce_columns_job *start_columns(const job_t *job, const piece *p, skr_part *out)
{
    skr_lce_columns_job *c = (skr_lce_columns_job *)out->job;
    start(job, SKR_OP_linear_cross_entropy, job->scratch_at, out);
    c->x = room(job, job->logits_at);
    c->rows = p->rows;
    c->columns = job->rows.n;
    c->pitch = job->pitch;
    c->type = job->x.type;
    return c;
}

static saker_status part_ends(skr_call *call, const job_t *job, const piece *p, skr_part *out)
{
    if (!p->rows || !job->ends)
        return SAKER_OK;
    return skr_lce_ends_plan_cuda(call, start_columns(job, p, out), &out->plan);
}

/* Some stages of cross_entropy: of all rows, or of those of a piece. */
static saker_status part_losses(skr_call *call, const job_t *job, const skr_target *target, const piece *p, int stages,
                                skr_part *out)
{
    skr_cross_entropy_job *ce = (skr_cross_entropy_job *)out->job;
    *ce = job->rows;
    start(job, SKR_OP_cross_entropy, 0, out);
    const bool gradient = ce->dlogits.data;
    ce->logits = logits_of(job).at;
    ce->logits.stride[0] = job->pitch;
    if (gradient)
        ce->dlogits = ce->logits;
    if (p) {
        if (!p->rows)
            return SAKER_OK;
        ce->rows = (skr_row_space){.m = p->rows, .n_dims = 1, .dims = {p->rows}};
        ce->n += job->ends;
        ce->target = rows_of(job, &ce->target, p);
        ce->loss = rows_of(job, &ce->loss, p);
        ce->lse = rows_of(job, &ce->lse, p);
        ce->grad = rows_of(job, &ce->grad, p);
        ce->room.loss_at += ce->room.loss_at < 0 ? 0 : p->first * (int64_t)sizeof(skr_ce_loss);
    }
    return skr_cross_entropy_plan(call, ce, target, stages, job->scratch_at, &out->plan);
}

static saker_status part_columns(skr_call *call, const job_t *job, const skr_target *target, const piece *p,
                                 skr_part *out)
{
    if (!job->dbias.data)
        return SAKER_OK;
    skr_lce_columns_job *c = start_columns(job, p, out);
    c->first = p->begins;
    c->last = p->ends;
    c->accumulate = job->accumulate;
    c->dbias = job->dbias;
    c->sums = job->sums_at < 0 ? NULL : room(job, job->sums_at);
    if (target->backend == SKR_CUDA)
        return skr_lce_columns_plan_cuda(call, c, target, &out->plan);
    out->plan.traffic_bytes = skr_mul(c->rows, skr_mul(c->columns, skr_type_bytes(c->type)));
    skr_cpu_step(&out->plan, 0, skr_ceil_div(c->columns, SKR_LCE_COLUMNS));
    return SAKER_OK;
}

/* Between pieces the sums are in dweight itself where it is f32. */
static saker_status part_dweight(skr_call *call, const job_t *job, const skr_target *target, const piece *p,
                                 skr_part *out)
{
    if (!job->dweight.at.data)
        return SAKER_OK;
    skr_gemm_matrix sums = job->dweight;
    if (job->dweight_at >= 0) {
        sums = (skr_gemm_matrix){.row = job->h};
        sums.at = (skr_rows){.data = room(job, job->dweight_at), .type = SKR_F32, .col_stride = 1};
    }
    skr_gemm_job *g = start_gemm(job, job->rows.n, job->h, p->rows, turned(logits_of(job)), matrix_of(job, &job->x, p),
                                 p->ends ? job->dweight : sums, out);
    if (!p->begins || job->accumulate) {
        g->c = p->begins ? job->dweight : sums;
        g->beta = 1;
    }
    return skr_gemm_plan(call, g, target, &out->plan);
}

static saker_status part_dx(skr_call *call, const job_t *job, const skr_target *target, const piece *p, skr_part *out)
{
    if (!job->dx.data || !p->rows)
        return SAKER_OK;
    skr_gemm_job *g =
        start_gemm(job, p->rows, job->h, job->rows.n, logits_of(job), job->weight, matrix_of(job, &job->dx, p), out);
    return skr_gemm_plan(call, g, target, &out->plan);
}

static saker_status part(skr_call *call, const void *given, const skr_target *target, int64_t i, skr_part *out)
{
    const job_t *job = given;
    const int64_t after = job->pieces * N_WORKS + 1;
    if (i == 0 || i == after)
        return part_losses(call, job, target, NULL, i ? SKR_CE_STAGE_AFTER : SKR_CE_STAGE_BEFORE, out);
    const piece p = piece_of(job, (i - 1) / N_WORKS);
    switch ((i - 1) % N_WORKS) {
    case LOGITS:
        return part_logits(call, job, target, &p, out);
    case ENDS:
        return part_ends(call, job, &p, out);
    case LOSSES:
        return part_losses(call, job, target, &p, SKR_CE_STAGE_ROWS, out);
    case COLUMNS:
        return part_columns(call, job, target, &p, out);
    case DWEIGHT:
        return part_dweight(call, job, target, &p, out);
    default:
        return part_dx(call, job, target, &p, out);
    }
}

/* ---------------------------------------------------------------- plan */

/* Columns that a row of logits lacks of whole vectors, which cross_entropy's kernels for a GPU want: with -infinity
 * there they are nothing to a sum of exponentials. A softcap would make a number of it, and class weights end before.
 */
static int64_t missing_columns(const job_t *job, const skr_target *target)
{
    const int64_t vec = 16 / skr_type_bytes(job->x.type);
    const bool able = target->backend == SKR_CUDA && job->rows.softcap == 0 && job->rows.smoothing == 0;
    return able ? (vec - job->rows.n % vec) % vec : 0;
}

/* Runs of rows one stride apart, in pieces of about the same size. */
static saker_status cut_rows(skr_call *call, job_t *job, const skr_target *target)
{
    const skr_row_space *space = &job->rows.rows;
    const int64_t row = skr_mul(job->pitch, skr_type_bytes(job->x.type));
    int64_t sums = job->dweight.at.data ? skr_mul(skr_mul(job->rows.n, job->h), sizeof(float)) : 0;
    int64_t bytes = skr_max(target->backend == SKR_CUDA ? CUDA_BYTES : CPU_BYTES, sums);
    int64_t most = skr_max(bytes / skr_max(row, 1) / ROWS * ROWS, ROWS);
    job->run = space->m ? space->dims[space->n_dims - 1] : 0;
    int64_t even = skr_ceil_div(job->run, skr_max(1, skr_ceil_div(job->run, most)));
    int64_t chunk = job->chunk_rows ? job->chunk_rows : skr_ceil_div(even, ROWS) * ROWS;
    job->chunk = skr_max(1, skr_min(chunk, job->run));
    job->pieces_of_run = skr_ceil_div(job->run, job->chunk);
    job->pieces = space->m ? skr_mul(space->m / job->run, job->pieces_of_run) : 1;
    if (job->pieces > MOST_PIECES)
        return skr_fail(call, SAKER_UNSUPPORTED,
                        "the rows come in %lld pieces, expected at most %d: x, dx and what has a value for each row "
                        "are one stride apart in runs of %lld rows, of which %lld are taken at once",
                        (long long)job->pieces, MOST_PIECES, (long long)job->run, (long long)job->chunk);
    return SAKER_OK;
}

saker_status skr_linear_cross_entropy_plan(skr_call *call, void *given, const skr_target *target, skr_plan *plan)
{
    job_t *job = given;
    const int64_t vocab = job->rows.n;
    const bool gradient = job->dx.data || job->dweight.at.data || job->dbias.data;
    int64_t at = 0;
    job->head.workspace = ALIGNED;
    job->pitch = skr_mul(skr_ceil_div(vocab, PITCH), PITCH);
    job->ends = missing_columns(job, target);
    SKR_TRY(cut_rows(call, job, target));
    job->rows.dlogits.data = gradient ? ALIGNED : NULL;
    skr_cross_entropy_take(&job->rows, target, &at);
    const bool several = job->pieces > 1;
    job->sums_at = several && job->dbias.data ? skr_take(&at, skr_mul(vocab, sizeof(double))) : -1;
    job->dweight_at = several && job->dweight.at.data && job->dweight.at.type != SKR_F32
                          ? skr_take(&at, skr_mul(skr_mul(vocab, job->h), sizeof(float)))
                          : -1;
    job->logits_at = skr_take(&at, skr_mul(job->chunk, skr_mul(job->pitch, skr_type_bytes(job->x.type))));
    job->scratch_at = at;
    plan->n_parts = job->pieces * N_WORKS + 2;
    plan->part = part;
    plan->variant = "no logits";
    int64_t end = at;
    skr_part p;
    for (int64_t i = 0; i < plan->n_parts; i++) {
        memset(&p, 0, sizeof p);
        p.plan.why = i == 1 + LOGITS ? plan->why : NULL;
        SKR_TRY(part(call, job, target, i, &p));
        if (!p.plan.n_steps)
            continue;
        int64_t begin = (char *)((skr_job_head *)p.job)->workspace - (char *)job->head.workspace;
        end = skr_max(end, skr_min(begin + (int64_t)p.plan.workspace_bytes, SKR_HUGE));
        if (i == 1 + LOGITS)
            plan->variant = p.plan.variant;
    }
    skr_why(plan, "%lld pieces of up to %lld rows", (long long)job->pieces, (long long)job->chunk);
    return skr_take_done(call, end, plan);
}
