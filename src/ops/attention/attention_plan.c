/* attention_plan.c - attention on the CPU: arithmetic, tiles, blocks, what is needed of the workspace.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of keys begin at a sequence's first key and have one length on every machine: a row's bits depend on its
 * sequence alone. Queries are cut into tasks as they come: they do not meet in any sum. */
#include "attention_op.h"

/* A multiple of every tile's rows and granule; a block's scores for a panel of queries stay in L1 beside a panel of v.
 */
enum { BLOCK_K = 384, BLOCK_K_BACKWARD = 192, BLOCK_Q = 96 };

static void choose(const char *level, int wanted, int32_t *kind, skr_gemm_tile *tile)
{
    const skr_gemm_tile *t = skr_gemm_tile_of(level, wanted);
    *kind = t ? wanted : SKR_GEMM_F32;
    *tile = t ? *t : *skr_gemm_tile_of(level, SKR_GEMM_F32);
}

/* f16 is widened to f32 where the level does not multiply it. Codes are multiplied as they are: e4m3 in bf16, where
 * they are exact. p v: in the float type that SEMANTICS calls so, q's or o's. */
static const char *choose_kinds(skr_attention_job *job, const char *level)
{
    skr_attention_cpu *c = &job->cpu;
    int type = job->mode == SKR_ATTENTION_FLOAT || job->mode == SKR_ATTENTION_I8_KV ? job->q.type : job->o.type;
    /* f16 holds no numbers that dropout enlarges much: of codes of p, or of gradients. */
    int f16 = job->keep_scale <= 256 ? SKR_GEMM_F16 : SKR_GEMM_F32;
    int s = job->mode == SKR_ATTENTION_I8 || job->mode == SKR_ATTENTION_I8_P ? SKR_GEMM_I8
            : job->q.type == SKR_BF16 || job->mode == SKR_ATTENTION_E4M3     ? SKR_GEMM_BF16
            : job->q.type == SKR_F16                                         ? f16
                                                                             : SKR_GEMM_F32;
    choose(level, s, &c->s_kind, &c->s_tile);
    int v = type == SKR_BF16 ? SKR_GEMM_BF16 : type == SKR_F16 ? f16 : SKR_GEMM_F32;
    choose(level, v, &c->v_kind, &c->v_tile);
    static const char *const names[SKR_GEMM_KINDS] = {"f32", "bf16", "i8", "int", "f16"};
    return names[c->s_kind];
}

static int64_t round_up(int64_t n, int64_t to)
{
    return skr_mul(skr_ceil_div(n, to), to);
}

/* Rows of a head's panels: every sequence begins a new one. */
static int64_t padded_keys(const skr_attention_job *job, int64_t unit)
{
    if (job->cu_k.data)
        return skr_min(job->length_k + skr_mul(job->batch, unit - 1) + unit, SKR_HUGE);
    return skr_mul(job->batch, round_up(job->length_k, unit));
}

static int64_t count_blocks(const skr_attention_job *job, int64_t length, int64_t block)
{
    if (job->cu_k.data)
        return skr_ceil_div(length, block) + job->batch;
    return skr_mul(job->batch, skr_ceil_div(length, block));
}

/* What forward and backward need to know of keys and queries. */
static void cut_keys(skr_attention_job *job, int64_t *at)
{
    skr_attention_cpu *c = &job->cpu;
    c->block_q = round_up(BLOCK_Q, c->s_tile.nr);
    c->d_pad = round_up(job->d, c->s_tile.granule);
    c->v_panels = skr_ceil_div(job->d_v, c->v_tile.mr);
    c->extras = job->bias.data || job->mask.data || job->key_mask.data || job->q_ids.data || job->q_positions.data ||
                job->k_positions.data;
    c->table_at = job->cu_k.data ? skr_take(at, skr_mul(job->batch + 1, sizeof(skr_attention_sequence))) : -1;
    c->k_blocks = count_blocks(job, job->length_k, c->block_k);
    c->q_blocks = count_blocks(job, job->length, c->block_q);
    c->k_rows = padded_keys(job, c->s_tile.mr);
    c->v_rows = padded_keys(job, c->v_tile.granule);
}

static void cut(skr_attention_job *job, int64_t *at)
{
    skr_attention_cpu *c = &job->cpu;
    c->block_k = BLOCK_K;
    cut_keys(job, at);
    c->k_at = skr_take(at, skr_mul(skr_mul(job->heads_k, c->k_rows), c->d_pad * skr_kind_bytes(c->s_kind)));
    c->v_at =
        skr_take(at, skr_mul(skr_mul(job->heads_k, c->v_rows), c->v_panels * c->v_tile.mr * skr_kind_bytes(c->v_kind)));
    c->bad_at = skr_take(at, skr_mul(job->heads_k, c->v_rows));
}

/* Scratch memory for each worker that can have a task: a step has no more of them than tasks. */
static void take_scratch(skr_attention_job *job, int64_t bytes, int64_t tasks, int width, int64_t *at)
{
    job->cpu.scratch_bytes = bytes;
    job->cpu.scratch_at = skr_take(at, skr_mul(bytes, skr_min(tasks, width)));
}

static void cut_scratch(skr_attention_job *job, int64_t *at, int64_t tasks, int width)
{
    skr_attention_cpu *c = &job->cpu;
    int nr = c->s_tile.nr;
    int64_t in = 0, panels = c->block_q / nr, block = skr_max(job->d, job->d_v);
    c->in_q = skr_take(&in, panels * nr * c->d_pad * skr_kind_bytes(c->s_kind));
    c->in_s = skr_take(&in, c->block_k * nr * 4);
    c->in_p = c->v_kind == SKR_GEMM_F32 ? c->in_s : skr_take(&in, c->block_k * nr * 2);
    c->in_rows = skr_take(&in, c->block_k * nr * 4);
    c->in_extra = c->extras || job->drop ? skr_take(&in, c->block_k * nr * 4) : 0;
    c->in_o = skr_take(&in, c->v_panels * c->v_tile.mr * nr * panels * 4);
    c->in_sums = skr_take(&in, panels * nr * 3 * 4);
    c->in_stage = skr_take(&in, skr_min(c->block_k, skr_max(job->length_k, nr)) * block * 4);
    take_scratch(job, in, tasks, width, at);
}

/* ---------------------------------------------------------------- backward */

static void cut_backward(skr_attention_job *job, int64_t *at)
{
    skr_attention_cpu *c = &job->cpu;
    const skr_gemm_tile *t = &c->s_tile;
    int size = skr_kind_bytes(c->s_kind);
    c->block_k = BLOCK_K_BACKWARD;
    c->v_tile = *t;
    c->v_kind = c->s_kind;
    cut_keys(job, at);
    c->dv_pad = round_up(job->d_v, t->granule);
    c->k_at = skr_take(at, skr_mul(skr_mul(job->heads_k, c->k_rows), c->d_pad * size));
    c->v_at = skr_take(at, skr_mul(skr_mul(job->heads_k, c->k_rows), c->dv_pad * size));
    c->kt_at = skr_take(at, skr_mul(skr_mul(job->heads_k, c->v_rows), round_up(job->d, t->mr) * size));
    c->bad_at = skr_take(at, skr_mul(job->heads_k, c->v_rows));
    int64_t keys = skr_mul(job->heads, skr_mul(job->packed ? 1 : job->batch, job->length_k));
    bool parts = job->group != 1; /* without query heads, too: 0 is what they add up to */
    c->dk_at = parts && job->dk.data ? skr_take(at, skr_mul(keys, job->d * 4)) : -1;
    c->dv_at = parts && job->dv.data ? skr_take(at, skr_mul(keys, job->d_v * 4)) : -1;
    c->slopes_at = skr_take(at, skr_mul(skr_mul(c->k_blocks, job->heads), 8));
    c->sinks_at = skr_take(at, skr_mul(skr_mul(job->batch, job->heads), 8));
}

/* Heads that take longer than the others together leave threads idle: they are cut into pieces, at the price of making
 * their scores twice. Which, the kernel finds out (attention_backward_cpu.c); here: whether to look. */
static int64_t pieces_of(const skr_attention_job *job, int width)
{
    enum { MOST_TASKS = 1 << 16 };
    int64_t all = skr_mul(job->heads, job->batch);
    bool uneven = job->cu_k.data && skr_mul(all, 2 * (int64_t)width) <= MOST_TASKS;
    /* More pieces than blocks have no work; but the kernel's question needs more than 1.2 for each head. */
    int64_t blocks =
        skr_max(skr_ceil_div(job->length, job->cpu.block_q), skr_ceil_div(job->length_k, job->cpu.block_k));
    return all < width || uneven ? skr_min(width, skr_max(blocks, all + all / 5 + 1)) : 1;
}

static void cut_backward_scratch(skr_attention_job *job, int64_t *at, int64_t tasks, int width)
{
    skr_attention_cpu *c = &job->cpu;
    const skr_gemm_tile *t = &c->s_tile;
    int size = skr_kind_bytes(c->s_kind), nr = t->nr;
    int64_t in = 0, rows = round_up(job->length, nr), tile = c->block_k * nr * 4;
    c->in_q = skr_take(&in, skr_mul(rows, c->d_pad * size));
    c->in_do = skr_take(&in, skr_mul(rows, c->dv_pad * size));
    c->in_qt = skr_take(&in, skr_mul(rows, round_up(job->d, nr) * size));
    c->in_dot = skr_take(&in, skr_mul(rows, round_up(job->d_v, nr) * size));
    c->in_dq = skr_take(&in, skr_mul(rows, round_up(job->d, t->mr) * 4));
    c->in_stats = skr_take(&in, skr_mul(rows, 2 * 4));
    c->in_bad = skr_take(&in, skr_mul(rows, 2));
    c->in_s = skr_take(&in, tile);
    c->in_dp = skr_take(&in, tile);
    c->in_rows = skr_take(&in, tile);
    c->in_p = skr_take(&in, tile);
    c->in_slope = job->softcap != 0 ? skr_take(&in, tile) : 0;
    c->in_extra = c->extras ? skr_take(&in, tile) : 0;
    c->in_keep = job->drop ? skr_take(&in, tile) : 0;
    c->in_pt = skr_take(&in, c->block_k * c->block_q * size);
    c->in_dst = skr_take(&in, c->block_k * c->block_q * size);
    c->in_dk = skr_take(&in, c->block_k * round_up(job->d, nr) * 4);
    c->in_dv = skr_take(&in, c->block_k * round_up(job->d_v, nr) * 4);
    c->in_o = job->dbias.data ? skr_take(&in, c->block_k * c->block_q * 8) : 0;
    c->in_stage = skr_take(&in, skr_max(c->block_k, c->block_q) * skr_max(job->d, job->d_v) * 4);
    take_scratch(job, in, tasks, width, at);
}

static saker_status plan_backward(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    skr_attention_cpu *c = &job->cpu;
    int64_t at = 0;
    cut_backward(job, &at);
    c->pieces = pieces_of(job, target->width);
    int64_t keys = skr_mul(job->heads_k, c->k_blocks), biases = 0;
    int64_t heads = skr_mul(skr_mul(job->heads, job->batch), c->pieces > 1 ? 2 * c->pieces : 1);
    if (job->dbias.data) {
        c->bias_blocks_q = job->bias_dims[2] > 1 ? skr_ceil_div(job->bias_dims[2], c->block_q) : 1;
        c->bias_blocks_k = job->bias_dims[3] > 1 ? skr_ceil_div(job->bias_dims[3], c->block_k) : 1;
        biases = skr_mul(skr_mul(job->bias_dims[0], job->bias_dims[1]), skr_mul(c->bias_blocks_q, c->bias_blocks_k));
    }
    cut_backward_scratch(job, &at, skr_max(skr_max(keys, heads), biases), target->width);
    if (c->table_at >= 0)
        skr_cpu_step(plan, SKR_ATTENTION_TABLE, 1);
    if (job->length && job->length_k && heads)
        skr_cpu_step(plan, SKR_ATTENTION_PACK, keys);
    if (heads)
        skr_cpu_step(plan, SKR_ATTENTION_ROWS, heads);
    skr_cpu_step(plan, SKR_ATTENTION_SUM, c->dk_at >= 0 || c->dv_at >= 0 ? keys + 1 : 1);
    if (job->dbias.data)
        skr_cpu_step(plan, SKR_ATTENTION_DBIAS, biases);
    return skr_take_done(call, at, plan);
}

saker_status skr_attention_plan_cpu(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    skr_attention_cpu *c = &job->cpu;
    int64_t at = 0, keys = job->packed ? job->length_k : skr_mul(job->batch, job->length_k);
    plan->variant = choose_kinds(job, target->level);
    plan->traffic_bytes = skr_mul(skr_mul(skr_mul(job->heads, job->length), keys), job->d + job->d_v);
    if (job->backward)
        return plan_backward(call, job, target, plan);
    cut(job, &at);
    int64_t packs = skr_mul(job->heads_k, c->k_blocks), rows = skr_mul(job->heads, c->q_blocks);
    cut_scratch(job, &at, skr_max(packs, rows), target->width);
    if (c->table_at >= 0)
        skr_cpu_step(plan, SKR_ATTENTION_TABLE, 1);
    skr_cpu_step(plan, SKR_ATTENTION_PACK, packs);
    skr_cpu_step(plan, SKR_ATTENTION_ROWS, rows);
    return skr_take_done(call, at, plan);
}
