/* attention_plan.c - attention on the CPU: arithmetic, tiles, blocks, what is needed of the workspace.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Blocks of keys begin at a sequence's first key and have one length on every machine: a row's bits depend on its
 * sequence alone. Queries are cut into tasks as they come: they do not meet in any sum. */
#include "attention_op.h"

/* A multiple of every tile's rows and granule; a block's scores for a panel of queries stay in L1 beside a panel of v.
 */
enum { BLOCK_K = 384, BLOCK_Q = 96 };

static int kind_bytes(int kind)
{
    return kind == SKR_GEMM_BF16 ? 2 : kind == SKR_GEMM_I8 ? 1 : 4;
}

static void choose(const char *level, int wanted, int32_t *kind, skr_gemm_tile *tile)
{
    const skr_gemm_tile *t = skr_gemm_tile_of(level, wanted);
    *kind = t ? wanted : SKR_GEMM_F32;
    *tile = t ? *t : *skr_gemm_tile_of(level, SKR_GEMM_F32);
}

/* f16 is widened to f32. Codes are multiplied as they are: e4m3 in bf16, where they are exact. p v: in the float type
 * that SEMANTICS calls so, q's or o's. */
static const char *choose_kinds(skr_attention_job *job, const char *level)
{
    skr_attention_cpu *c = &job->cpu;
    int type = job->mode == SKR_ATTENTION_FLOAT || job->mode == SKR_ATTENTION_I8_KV ? job->q.type : job->o.type;
    int s = job->mode == SKR_ATTENTION_I8 || job->mode == SKR_ATTENTION_I8_P ? SKR_GEMM_I8
            : job->q.type == SKR_BF16 || job->mode == SKR_ATTENTION_E4M3     ? SKR_GEMM_BF16
                                                                             : SKR_GEMM_F32;
    choose(level, s, &c->s_kind, &c->s_tile);
    choose(level, type == SKR_BF16 ? SKR_GEMM_BF16 : SKR_GEMM_F32, &c->v_kind, &c->v_tile);
    return c->s_kind == SKR_GEMM_I8 ? "i8" : c->s_kind == SKR_GEMM_BF16 ? "bf16" : "f32";
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

static void cut(skr_attention_job *job, int64_t *at)
{
    skr_attention_cpu *c = &job->cpu;
    c->block_k = BLOCK_K;
    c->block_q = round_up(BLOCK_Q, c->s_tile.nr);
    c->d_pad = round_up(job->d, c->s_tile.granule);
    c->v_panels = skr_ceil_div(job->d_v, c->v_tile.mr);
    c->extras = job->bias.data || job->mask.data || job->key_mask.data || job->q_ids.data || job->q_positions.data ||
                job->k_positions.data;
    c->plain = !c->extras && job->softcap == 0 && !job->slopes.data && job->scale > 0 && !job->drop &&
               job->mode != SKR_ATTENTION_I8_P && !job->descale_block;
    c->table_at = job->cu_k.data ? skr_take(at, skr_mul(job->batch + 1, sizeof(skr_attention_sequence))) : -1;
    c->k_blocks = count_blocks(job, job->length_k, c->block_k);
    c->q_blocks = count_blocks(job, job->length, c->block_q);
    c->k_rows = padded_keys(job, c->s_tile.mr);
    c->v_rows = padded_keys(job, c->v_tile.granule);
    c->k_at = skr_take(at, skr_mul(skr_mul(job->heads_k, c->k_rows), c->d_pad * kind_bytes(c->s_kind)));
    c->v_at =
        skr_take(at, skr_mul(skr_mul(job->heads_k, c->v_rows), c->v_panels * c->v_tile.mr * kind_bytes(c->v_kind)));
    c->bad_at = skr_take(at, skr_mul(job->heads_k, c->v_rows));
}

/* Scratch memory of a worker. */
static void cut_scratch(skr_attention_job *job, int64_t *at, int width)
{
    skr_attention_cpu *c = &job->cpu;
    int nr = c->s_tile.nr;
    int64_t in = 0, panels = c->block_q / nr, block = skr_max(job->d, job->d_v);
    c->in_q = skr_take(&in, panels * nr * c->d_pad * kind_bytes(c->s_kind));
    c->in_s = skr_take(&in, c->block_k * nr * 4);
    c->in_p = c->v_kind == SKR_GEMM_F32 ? c->in_s : skr_take(&in, c->block_k * nr * 2);
    c->in_rows = skr_take(&in, c->block_k * nr * 4);
    c->in_extra = c->extras || job->drop ? skr_take(&in, c->block_k * nr * 4) : 0;
    c->in_o = skr_take(&in, c->v_panels * c->v_tile.mr * nr * panels * 4);
    c->in_sums = skr_take(&in, panels * nr * 2 * 4);
    c->in_stage = skr_take(&in, skr_min(c->block_k, skr_max(job->length_k, nr)) * block * 4);
    c->scratch_bytes = in;
    c->scratch_at = skr_take(at, skr_mul(in, width));
}

saker_status skr_attention_plan_cpu(skr_call *call, skr_attention_job *job, const skr_target *target, skr_plan *plan)
{
    skr_attention_cpu *c = &job->cpu;
    int64_t at = 0;
    plan->variant = choose_kinds(job, target->level);
    cut(job, &at);
    cut_scratch(job, &at, target->width);
    int64_t pairs =
        skr_mul(skr_mul(job->heads, job->length), job->packed ? job->length_k : skr_mul(job->batch, job->length_k));
    plan->traffic_bytes = skr_mul(pairs, job->d + job->d_v);
    if (c->table_at >= 0)
        skr_cpu_step(plan, SKR_ATTENTION_TABLE, 1);
    skr_cpu_step(plan, SKR_ATTENTION_PACK, skr_mul(job->heads_k, c->k_blocks));
    skr_cpu_step(plan, SKR_ATTENTION_ROWS, skr_mul(job->heads, c->q_blocks));
    return skr_take_done(call, at, plan);
}
