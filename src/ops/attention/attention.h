/* attention.h - the job of attention, attention_backward and attention_merge, and what every backend reads from it the
 * same way: where a sequence lies, which keys a query sees, what dropout keeps.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   s_ij = cap(scale q_i . k_j) + bias_ij - slope |i + diagonal - j|, -infinity where i does not see j
 *   p_ij = e^(s_ij - lse_i), lse_i = ln(sum of e^s_ij + e^sink);  o_i = sum of p_ij z_ij v_j
 *   ds_ij = p_ij (z_ij d_o_i . v_j - delta_i + dlse_i), delta_i = d_o_i . o_i;  du = ds cap'
 *   dq_i = scale sum of du_ij k_j, dk_j = scale sum of du_ij q_i, dv_j = sum of p_ij z_ij d_o_i
 * All strides count elements. Absent tensors have data NULL. */
#ifndef SKR_ATTENTION_H
#define SKR_ATTENTION_H

#include "../../core/philox.h"
#include "../../core/tile.h"

/* Largest head sizes of q and k, and of v. */
enum { SKR_ATTENTION_MAX_D = 576, SKR_ATTENTION_MAX_DV = 512 };

/* A window without a bound on a side; sums with any index stay within 63 bits. */
#define SKR_ATTENTION_FAR ((int64_t)1 << 40)

/* Values of id_rule; the same numbers as saker_id_rule. */
enum { SKR_ID_SAME, SKR_ID_UP_TO };

/* How q, k and v are given (types are those of the tensors). */
enum {
    SKR_ATTENTION_FLOAT,
    SKR_ATTENTION_I8,   /* q, k, v i8; p stays float */
    SKR_ATTENTION_I8_P, /* q, k, v i8; p is quantised with p_scale */
    SKR_ATTENTION_I8_KV,
    SKR_ATTENTION_E4M3
};

/* [B, S, H, D] in any order of the first three; elements of a head are neighbours. thd: batch is 0, tokens count from
 * the first of all. */
typedef struct skr_attention_rows {
    void *data;
    int64_t batch, token, head;
    int32_t type, reserved;
} skr_attention_rows;

/* f32 [B, H, S]; thd: batch is 0. */
typedef struct skr_attention_stat {
    float *data;
    int64_t batch, head, token;
} skr_attention_stat;

/* [B, Hq, Sq, Sk]: strides are 0 where it repeats. */
typedef struct skr_attention_matrix {
    void *data;
    int64_t batch, head, query, key;
    int32_t type, reserved;
} skr_attention_matrix;

/* One i32 or byte for each token [B, S]; thd: batch is 0. */
typedef struct skr_attention_tokens {
    const void *data;
    int64_t batch, token;
} skr_attention_tokens;

/* f32 for each batch, head and block of tokens; strides are 0 where it repeats. */
typedef struct skr_attention_scales {
    float *data;
    int64_t batch, head, block;
} skr_attention_scales;

typedef struct skr_attention_index {
    const int32_t *data; /* cu_seqlens [batch + 1] */
    int64_t stride;
} skr_attention_index;

/* Sequence b: its tokens of q and of k. A table of these is made first where there is cu_seqlens; otherwise
 * skr_attention_plain says it. */
typedef struct skr_attention_span {
    int64_t q, k;         /* first tokens (0 unless thd) */
    int64_t q_len, k_len; /* not beyond the limits */
} skr_attention_span;

/* CPU: a sequence and what comes before it: rows of panels, blocks of keys and of queries, pairs of a query and a key.
 */
typedef struct skr_attention_sequence {
    skr_attention_span s;
    int64_t k_row, v_row, k_block, q_block;
    double pairs;
} skr_attention_sequence;

/* CPU steps. */
enum {
    SKR_ATTENTION_TABLE,
    SKR_ATTENTION_PACK,
    SKR_ATTENTION_ROWS,
    SKR_ATTENTION_SUM, /* backward: dk and dv of heads that share them, dslopes, dsinks */
    SKR_ATTENTION_DBIAS
};

/* What the CPU plan adds (attention_plan.c). Products have keys (or columns of v) as rows of a and queries as columns
 * of b, so that a vector holds the same key for neighbouring queries: maxima and sums need no turning around. Offsets
 * are bytes into the workspace, or into a worker's scratch memory. */
typedef struct skr_attention_cpu {
    skr_gemm_tile s_tile, v_tile; /* of q k and of p v */
    int32_t s_kind, v_kind;       /* skr_gemm_kind */
    int32_t extras;               /* a bias, mask, ids or positions: more than vectors of queries can tell */
    int64_t block_k, block_q;     /* keys of a block, queries of a task */
    int64_t d_pad, v_panels;
    int64_t table_at;                  /* of packed sequences; -1: none */
    int64_t k_blocks, q_blocks;        /* of all sequences, at most */
    int64_t k_rows, v_rows;            /* keys of a head in the panels, padded */
    int64_t k_at, v_at, kt_at, bad_at; /* panels of k, of v, of k transposed; keys (or values) that are not finite */
    int64_t scratch_at, scratch_bytes;
    int64_t in_q, in_s, in_p, in_rows, in_extra, in_o, in_sums, in_stage; /* scratch memory */
    /* backward */
    int64_t dv_pad;
    int64_t in_do, in_qt, in_dot, in_dq, in_stats, in_bad, in_dp, in_slope, in_keep, in_pt, in_dst, in_dk, in_dv;
    int64_t dk_at, dv_at; /* f32 parts of each query head, where several share a key head; -1: none */
    int64_t slopes_at;    /* f64 [blocks of keys][heads]: parts of dslopes */
    int64_t sinks_at;     /* f64 [batch][heads]: parts of dsinks */
    int64_t pieces;       /* of a long head, each for a thread */
    int64_t bias_blocks_q, bias_blocks_k;
} skr_attention_cpu;

/* From here on an lse, in size, has lost log(sum): f32 has steps of 8 there. Such rows, mostly masked by large finite
 * numbers, take no part in the gradients. Nor do those that see nothing, of -infinity. */
#define SKR_ATTENTION_NO_PART 0x1p26f

/* CUDA: what a kernel knows of the options (attention_forward.cuh). */
enum { SKR_ATTENTION_PLAIN, SKR_ATTENTION_SCORED, SKR_ATTENTION_ANY };

/* CUDA: numbers of the series for softcap, and of the one near 0. */
enum { SKR_ATTENTION_SERIES = 6, SKR_ATTENTION_SHORT = 3 };

/* CUDA: bytes of a tile of ds (attention_any_order.cuh). */
#define SKR_ATTENTION_DS_BYTES(keys, queries) (2 * (keys) * (queries))

/* CUDA: rows that the copy engine brings at a time (attention_tma_gradient.cuh). */
enum { SKR_ATTENTION_BOX = 32 };

/* CUDA: how the heads' tokens are dealt out to blocks, without cu_seqlens. */
typedef struct skr_attention_grid {
    int32_t pieces;     /* of a head */
    int32_t section;    /* heads that go side by side */
    int32_t last_first; /* the longest piece is the last */
} skr_attention_grid;

/* What the CUDA plan adds (attention_cuda.c); offsets are bytes into the workspace. */
typedef struct skr_attention_cuda {
    int64_t spans_at;           /* skr_attention_span [batch + 2] (attention_prepare.cuh); -1 without cu_seqlens */
    int64_t stats_at;           /* backward: (lse in base 2, delta - dlse) [heads, tokens of all batches] */
    int64_t sums_at, sum_bytes; /* backward: sums of dq in any order (attention_any_order.cuh); -1: there are none */
    int64_t sum_lines;          /* of 16 queries of a head, of all sequences */
    int64_t slopes_at;          /* backward: parts of dslopes [heads, pieces of all sequences] */
    int64_t slope_parts;        /* how many for each head */
    int32_t slope_piece;        /* queries of a piece */
    skr_attention_grid grid[2]; /* of queries, of keys */
    int32_t by_head;            /* side by side are a head of all batch indices, which share its bias */
    int32_t aligned;            /* rows of all inputs are whole chunks of 16 bytes */
    int32_t delta_aligned;      /* backward: so are those of o, which has d_o's type */
    int32_t pairs;              /* results are of the type of the products, two elements are aligned */
    float unit;                 /* plain and scored kernels: of the scores before the exponential, in base 2 */
    float over;                 /* what brings natural units to those of the scores */
    float near;                 /* products up to here are capped by a series: x * (series[0] + series[1] x^2 ...) */
    float series[SKR_ATTENTION_SERIES];
    float nearest; /* and up to here by this one */
    float short_series[SKR_ATTENTION_SHORT];
    int32_t pieces[2]; /* on Hopper (attention_warpgroup.cuh): of queries, of keys, of all heads */
    int64_t marks_at;  /* eight bytes for each piece, one of a warp: it was doubtful; -1: other kernels */
    int64_t count_at;  /* [2]: how many pieces were taken; -1: they are dealt out in turn */
    int64_t q_rows, k_rows, v_rows, d_o_rows; /* of the maps: from one batch index to the next */
    skr_tensor_map q, k, v, d_o;
} skr_attention_cuda;

typedef struct skr_attention_job {
    skr_job_head head;
    int64_t batch;            /* B; thd: sequences */
    int64_t heads, heads_k;   /* Hq, Hk */
    int64_t group;            /* Hq / Hk */
    int64_t length, length_k; /* Sq, Sk; thd: all tokens, Tq and Tk */
    int64_t d, d_v;
    int64_t limit_q, limit_k; /* a sequence is cut off at these lengths (a padded bias, mask or descale ends there) */
    int64_t max_q, max_k;     /* thd: hints, 0 if not known */
    skr_attention_rows q, k, v, o;
    skr_attention_rows d_o, dq, dk, dv;
    skr_attention_stat lse, dlse;
    skr_attention_matrix bias, mask, dbias;
    int64_t bias_dims[4]; /* dbias: the tensor's shape, 1 where it repeats */
    skr_attention_tokens key_mask, q_positions, k_positions, q_ids, k_ids;
    skr_attention_scales slopes, sinks, dslopes, dsinks; /* block is 0; sinks: so is batch */
    skr_attention_scales q_descale, k_descale, v_descale;
    skr_attention_index cu_q, cu_k; /* thd with several sequences */
    int64_t descale_block;          /* tokens that share a descale; 0: all */
    int64_t q_descale_group;        /* query heads that share a q_descale: 1, or group for e4m3 */
    int64_t left, right;            /* i sees i + diagonal - left <= j <= i + diagonal + right; causal is in right */
    float scale, softcap;           /* softcap 0: none */
    float p_scale;
    float keep_scale; /* dropout: 1 / (1 - dropout); 1 without */
    uint32_t drop;    /* dropout: words whose upper 24 bits are below it are dropped; 0: none */
    uint32_t seed[2], offset;
    int32_t mode;     /* SKR_ATTENTION_FLOAT ... */
    int32_t packed;   /* layout thd */
    int32_t top_left; /* the diagonal is 0; so it is with positions */
    int32_t bounded;  /* left or right is a bound */
    int32_t id_rule;
    int32_t backward, accumulate, deterministic;
    union {
        skr_attention_cpu cpu;
        skr_attention_cuda cuda;
    };
} skr_attention_job;

/* attention_merge: rows of o_a, o_b and o, and their lse. */
typedef struct skr_attention_merge_job {
    skr_job_head head;
    skr_row_space rows;
    int64_t d;
    skr_rows o_a, o_b, o, lse_a, lse_b, lse;
    int64_t rows_per_task;
} skr_attention_merge_job;

/* ---------------------------------------------------------------- sequences */

SKR_INLINE int64_t skr_attention_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Entry i of a cu_seqlens after the entries before it, whose largest is `before` (0 for the first): rising, and within
 * the tokens. */
SKR_INLINE int64_t skr_attention_cut(const skr_attention_index *cu, int64_t i, int64_t before, int64_t tokens)
{
    int64_t at = cu->data[i * cu->stride];
    return at < before ? before : at > tokens ? tokens : at;
}

/* Entry i is what it must be. */
SKR_INLINE int skr_attention_sound(const skr_attention_index *cu, int64_t i, int64_t batch, int64_t tokens)
{
    int64_t at = cu->data[i * cu->stride];
    if (i == 0 && at != 0)
        return 0;
    return i < batch ? at <= cu->data[(i + 1) * cu->stride] : at == tokens;
}

/* Without cu_seqlens: all of batch b. */
SKR_INLINE skr_attention_span skr_attention_plain(const skr_attention_job *job)
{
    skr_attention_span s = {0, 0, skr_attention_min(job->length, job->limit_q),
                            skr_attention_min(job->length_k, job->limit_k)};
    return s;
}

/* ---------------------------------------------------------------- what a query sees */

SKR_INLINE int64_t skr_attention_diagonal(const skr_attention_job *job, const skr_attention_span *s)
{
    return job->top_left || job->q_positions.data || job->k_positions.data ? 0 : s->k_len - s->q_len;
}

/* A token's entry; b and the token as the tensors count (thd: 0, and from the first of all). */
SKR_INLINE int64_t skr_attention_token(const skr_attention_tokens *t, int64_t b, int64_t token)
{
    return ((const int32_t *)t->data)[b * t->batch + token * t->token];
}

/* i of a query and j of a key in the formulas: its position, or its place in the sequence. */
SKR_INLINE int64_t skr_attention_place(const skr_attention_tokens *t, int64_t b, int64_t first, int64_t i)
{
    return t->data ? skr_attention_token(t, b, first + i) : i;
}

/* Window, causal, key_mask, ids and mask; a bias of -infinity is apart. b: the batch, i and j: places in the sequence,
 * pi and pj: what replaces them in the formulas. */
SKR_INLINE int skr_attention_sees(const skr_attention_job *job, const skr_attention_span *s, int64_t b, int64_t h,
                                  int64_t i, int64_t j, int64_t pi, int64_t pj)
{
    int64_t of_tokens = job->packed ? 0 : b, from = pj - pi - skr_attention_diagonal(job, s);
    if (from < -job->left || from > job->right)
        return 0;
    if (job->key_mask.data &&
        !((const uint8_t *)job->key_mask.data)[of_tokens * job->key_mask.batch + (s->k + j) * job->key_mask.token])
        return 0;
    if (job->q_ids.data) {
        int64_t a = skr_attention_token(&job->q_ids, of_tokens, s->q + i);
        int64_t c = skr_attention_token(&job->k_ids, of_tokens, s->k + j);
        if (job->id_rule == SKR_ID_SAME ? a != c : c > a)
            return 0;
    }
    const skr_attention_matrix *m = &job->mask;
    return !m->data || ((const uint8_t *)m->data)[b * m->batch + h * m->head + i * m->query + j * m->key] != 0;
}

/* ---------------------------------------------------------------- dropout */

/* Four neighbours j, from a multiple of 4 on, of row pi. */
SKR_INLINE skr_philox skr_attention_words(const skr_attention_job *job, int64_t b, int64_t h, int64_t pi, int64_t pj)
{
    return skr_philox_at((uint32_t)pj >> 2, (uint32_t)pi, (uint32_t)(b * job->heads + h), job->offset, job->seed[0],
                         job->seed[1]);
}

SKR_INLINE int skr_attention_kept(const skr_attention_job *job, uint32_t word)
{
    return word >> 8 >= job->drop;
}

/* z_ij. */
SKR_INLINE float skr_attention_keep(const skr_attention_job *job, int64_t b, int64_t h, int64_t pi, int64_t pj)
{
    if (!job->drop)
        return 1.0f;
    skr_philox w = skr_attention_words(job, b, h, pi, pj);
    return skr_attention_kept(job, w.word[(uint32_t)pj & 3]) ? job->keep_scale : 0.0f;
}

#endif
