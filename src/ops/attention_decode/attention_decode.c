/* attention_decode.c - attention_decode: fields and the CPU plan.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each part of a sequence's keys is a task for each key head, so that few sequences keep all threads busy, too. What a
 * part is, shapes alone decide: the bits are the same for any number of threads. */
#include "attention_decode_op.h"

static const uint32_t cache_types[] = {SAKER_F32, SAKER_F16, SAKER_BF16, SAKER_I8, SAKER_E4M3, SAKER_I4, SAKER_U8, 0};

static const saker_field fields[] = {
    [SKR_DECODE_Q] = SKR_IN(attention_decode, q, 1, skr_floats, "[B, Sq, Hq, D]: 1 to 16 queries of each sequence"),
    [SKR_DECODE_K_CACHE] = SKR_INOUT(attention_decode, k_cache, 1, cache_types,
                                     "[B, Smax, Hk, D] or [pages, page_size, Hk, D]; u8: i4 two in a byte"),
    [SKR_DECODE_V_CACHE] =
        SKR_INOUT(attention_decode, v_cache, 0, cache_types, "as k_cache, with Dv; absent: the first columns of that"),
    [SKR_DECODE_LENGTHS] = SKR_IN(attention_decode, lengths, 1, skr_i32_only, "[B]: tokens in the cache before"),
    [SKR_DECODE_O] = SKR_OUT(attention_decode, o, 1, skr_floats, "[B, Sq, Hq, Dv]"),
    [SKR_DECODE_LSE] =
        SKR_OUT(attention_decode, lse, 0, skr_f32_only, "[B, Hq, Sq]: logarithm of the sum of exponentials"),
    [SKR_DECODE_TABLE] = SKR_IN(attention_decode, block_table, 0, skr_i32_only, "[B, max_pages]: pages of a sequence"),
    [SKR_DECODE_K_NEW] = SKR_IN(attention_decode, k_new, 0, skr_floats, "[B, Sn, Hk, D]: appended, then attended"),
    [SKR_DECODE_V_NEW] = SKR_IN(attention_decode, v_new, 0, skr_floats, "[B, Sn, Hk, Dv]"),
    [SKR_DECODE_COS] = SKR_IN(attention_decode, cos, 0, skr_floats, "[positions, R/2]: rotates k_new and q"),
    [SKR_DECODE_SIN] = SKR_IN(attention_decode, sin, 0, skr_floats, "[positions, R/2]"),
    [SKR_DECODE_K_SCALE] = SKR_INOUT(attention_decode, k_scale, 0, skr_f32_only,
                                     "[Hk], or k_cache's shape without D, or with groups of D: scales of its codes"),
    [SKR_DECODE_V_SCALE] = SKR_INOUT(attention_decode, v_scale, 0, skr_f32_only, "the same for v_cache"),
    [SKR_DECODE_SLOPES] = SKR_IN(attention_decode, slopes, 0, skr_f32_only, "[Hq] or [B, Hq]: ALiBi"),
    [SKR_DECODE_SINKS] = SKR_IN(attention_decode, sinks, 0, skr_f32_only, "[Hq]: one more score in each sum"),
    SKR_OPTION_I64(attention_decode, window_left, 0, "keys seen before the diagonal; -1: all"),
    SKR_OPTION_I64(attention_decode, window_right, 0, "keys seen after the diagonal; -1: all"),
    SKR_OPTION_I64(attention_decode, split, 0, "keys of a part, summed apart; 0: chosen by the shapes"),
    SKR_OPTION_I64(attention_decode, rotary_offset, 0, "columns before those that cos and sin rotate"),
    SKR_OPTION_F32(attention_decode, scale, 0, "on q . k; 0: 1 / sqrt(D)"),
    SKR_OPTION_F32(attention_decode, softcap, 0, "c: scores become c tanh(s / c); 0: none"),
    SKR_OPTION_BOOL(attention_decode, causal, "a query sees keys up to its own position"),
    SKR_OPTION_BOOL(attention_decode, has_window, "window_left and window_right bound what a query sees"),
    SKR_OPTION_BOOL(attention_decode, interleaved, "pairs of cos and sin are neighbours, not half of R apart"),
};

/* ---------------------------------------------------------------- plan */

int64_t skr_attention_decode_split(const skr_attention_decode_job *job, int64_t wanted, int64_t least, int64_t most)
{
    /* Of all parts' o: a table of pages may be for far longer sequences than there are. */
    const int64_t most_bytes = (int64_t)128 << 20;
    int64_t heads = skr_max(1, skr_mul(job->batch, job->heads_k)), pieces = skr_max(1, skr_ceil_div(wanted, heads));
    int64_t keys = skr_min(skr_max(skr_ceil_div(job->capacity, pieces), least), most);
    int64_t each = skr_mul(skr_mul(heads, job->rows), job->d_v * (int64_t)sizeof(float));
    while (keys < job->capacity && skr_mul(each, skr_ceil_div(job->capacity, keys)) > most_bytes)
        keys = skr_mul(keys, 2);
    return skr_mul(skr_ceil_div(keys, SKR_DECODE_BLOCK), SKR_DECODE_BLOCK);
}

static int64_t round_up(int64_t n, int64_t to)
{
    return skr_mul(skr_ceil_div(n, to), to);
}

/* 64 tasks of at least 256 keys; and no more than 512, for sequences of a batch have all lengths. */
enum { TASKS = 64, LEAST_KEYS = 256, MOST_KEYS = 512 };
/* Rows are whole vectors of any level. */
enum { WIDEST = 16 };

static void cut_scratch(skr_attention_decode_job *job, const skr_target *target, int64_t tasks, int64_t *at)
{
    skr_decode_cpu *c = &job->cpu;
    int64_t in = 0, f = sizeof(float);
    c->in_q = skr_take(&in, skr_mul(c->rows_pad, c->q_width * f));
    c->in_s = skr_take(&in, skr_mul(c->rows_pad, SKR_DECODE_SCORES * f));
    c->in_o = skr_take(&in, skr_mul(c->rows_pad, c->o_width * f));
    c->in_sums = skr_take(&in, skr_mul(c->rows_pad, 3 * f));
    c->in_k = job->codes ? skr_take(&in, SKR_DECODE_BLOCK * c->q_width * f) : 0;
    c->in_v = job->codes && !job->latent ? skr_take(&in, SKR_DECODE_BLOCK * c->o_width * f) : 0;
    c->in_new = skr_take(&in, 2 * skr_max(c->q_width, c->o_width) * f);
    c->in_careful = skr_take(&in, c->rows_pad);
    c->scratch_bytes = in;
    c->scratch_at = skr_take(at, skr_mul(in, skr_min(tasks, target->width)));
}

static saker_status plan_cpu(skr_call *call, skr_attention_decode_job *job, const skr_target *target, skr_plan *plan)
{
    skr_decode_cpu *c = &job->cpu;
    int64_t at = 0, heads = skr_mul(job->batch, job->heads_k), all = skr_mul(heads, job->capacity);
    if (!job->split)
        job->split = skr_attention_decode_split(job, TASKS, LEAST_KEYS, MOST_KEYS);
    job->parts = skr_max(1, skr_ceil_div(job->capacity, job->split));
    c->q_width = round_up(job->d, WIDEST);
    c->o_width = round_up(job->d_v, WIDEST);
    c->rows_pad = job->rows + 1;
    plan->variant = job->codes ? "codes" : "split";
    plan->traffic_bytes = skr_mul(all, (job->d + job->d_v) * (job->codes ? 1 : skr_type_bytes(job->k.type)));
    int64_t tasks = skr_mul(heads, job->parts), sums = skr_mul(tasks, job->rows);
    c->o_at = c->sums_at = -1;
    if (job->parts > 1) {
        c->o_at = skr_take(&at, skr_mul(sums, c->o_width * (int64_t)sizeof(float)));
        c->sums_at = skr_take(&at, skr_mul(sums, 2 * (int64_t)sizeof(float)));
    }
    cut_scratch(job, target, skr_max(tasks, skr_mul(job->batch, job->appended)), &at);
    if (job->appended)
        skr_cpu_step(plan, SKR_DECODE_APPEND, skr_mul(job->batch, job->appended));
    if (job->rows)
        skr_cpu_step(plan, SKR_DECODE_PARTS, tasks);
    if (job->rows && job->parts > 1)
        skr_cpu_step(plan, SKR_DECODE_MERGE, heads);
    return skr_take_done(call, at, plan);
}

static saker_status plan(skr_call *call, void *job, const skr_target *target, skr_plan *out)
{
    if (target->backend == SKR_CUDA)
        return skr_attention_decode_plan_cuda(call, job, target, out);
    return plan_cpu(call, job, target, out);
}

const skr_op skr_op_attention_decode = {
    .info = {.name = "attention_decode",
             .doc = "attention of new queries against a cache of keys and values: paged, quantised, appended to",
             .fields = fields,
             .n_fields = sizeof fields / sizeof *fields,
             .args_size = sizeof(saker_attention_decode_args)},
    .v1_size = sizeof(saker_attention_decode_args),
    .reserved_at = offsetof(saker_attention_decode_args, reserved),
    .job_size = sizeof(skr_attention_decode_job),
    .check = skr_attention_decode_check,
    .plan = plan,
};

_Static_assert(sizeof(skr_attention_decode_job) <= SKR_JOB_BYTES, "the job must fit");
