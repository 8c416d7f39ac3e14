/* attention_decode.h - the job of attention_decode, and what every backend reads from it the same way: how long a
 * sequence is, where its tokens lie, what a query sees.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   s_ij = cap(scale q_i . k_j) - slope |place_i - j|, place_i = total - Sq + i, -infinity where i does not see j
 *   p_ij = e^(s_ij - lse_i), lse_i = ln(sum of e^s_ij + e^sink);  o_i = sum of p_ij v_j
 * The query heads of a key head and their Sq tokens are rows, token by token: row i * group + g. Keys are cut into
 * parts of `split`, these into blocks of SKR_DECODE_BLOCK, both counted from key 0: a row's sums are cut by its own
 * sequence alone. Strides count elements, those of caches bytes. Absent tensors have data NULL. */
#ifndef SKR_ATTENTION_DECODE_H
#define SKR_ATTENTION_DECODE_H

#include "../../core/job.h"

/* Largest head sizes of q and k, and of v; most queries. */
enum { SKR_DECODE_MAX_D = 576, SKR_DECODE_MAX_DV = 512, SKR_DECODE_MAX_SQ = 16 };

/* Keys of a block, and floats of a row of scores on the CPU: tiles reach beyond the last key. */
enum { SKR_DECODE_BLOCK = 64, SKR_DECODE_SCORES = 80 };

/* A window without a bound on a side; sums with any index stay within 63 bits. */
#define SKR_DECODE_FAR ((int64_t)1 << 40)

/* CPU steps. */
enum { SKR_DECODE_APPEND, SKR_DECODE_PARTS, SKR_DECODE_MERGE };

/* [B, S, H, D], or lse's [B, H, S]. */
typedef struct skr_decode_rows {
    void *data;
    int64_t batch, token, head;
    int32_t type, reserved;
} skr_decode_rows;

/* k_cache or v_cache with its scales: block is a sequence, or a page of tokens. */
typedef struct skr_decode_cache {
    char *data;
    int64_t block, token, head; /* bytes */
    float *scale;               /* codes: NULL: 1 */
    int64_t scale_block, scale_token, scale_head, scale_group;
    int64_t width;   /* columns: D or Dv */
    int64_t group;   /* columns that share a scale */
    int32_t type;    /* i4 also for packed u8 */
    int32_t dynamic; /* scales of tokens: an append writes them */
} skr_decode_cache;

/* f32 for each batch and head; batch is 0 where it repeats. */
typedef struct skr_decode_heads {
    const float *data;
    int64_t batch, head;
} skr_decode_heads;

typedef struct skr_decode_rope {
    const void *cos, *sin; /* [rows, pairs] */
    int64_t cos_stride, sin_stride, rows, pairs, first;
    int32_t type, interleaved;
} skr_decode_rope;

/* What the CPU plan adds. Offsets are bytes into the workspace, or into a worker's scratch memory. */
typedef struct skr_decode_cpu {
    int64_t q_width, o_width; /* floats of a row of q, of o: padded */
    int64_t rows_pad;         /* rows, and one that takes what no row wants */
    int64_t o_at, sums_at;    /* of each part: o [rows][o_width], maximum and sum of each row; -1: one part */
    int64_t scratch_at, scratch_bytes;
    int64_t in_q, in_s, in_o, in_sums, in_k, in_v, in_new, in_careful;
} skr_decode_cpu;

/* CUDA: keys of a tile, threads of a block, most rows that a block works on. */
enum { SKR_DECODE_TILE = 32, SKR_DECODE_THREADS = 128, SKR_DECODE_CHUNK = 8 };

/* What the CUDA plan adds; offsets are bytes into the workspace. */
typedef struct skr_decode_cuda {
    int64_t o_at, sums_at; /* of each part: o [rows][d_v], maximum and sum of each row */
    int32_t chunks;        /* of a head's rows */
    int32_t quarter;       /* columns of a warp in a score; four of them are a row of q */
    int32_t pitch;         /* floats from one row of a tile to the next */
    int32_t vec_k, vec_v;  /* columns of an access: 4 or 1 */
} skr_decode_cuda;

typedef struct skr_attention_decode_job {
    skr_job_head head;
    int64_t batch, length, heads, heads_k; /* B, Sq, Hq, Hk */
    int64_t group, rows;                   /* Hq / Hk; Sq of these */
    int64_t d, d_v;
    int64_t capacity;         /* tokens of a sequence */
    int64_t pages, page_size; /* with block_table */
    int64_t appended;         /* Sn */
    int64_t split, parts;     /* keys of a part, parts of a sequence of full capacity */
    skr_decode_rows q, o, k_new, v_new, lse;
    skr_decode_cache k, v; /* v of a latent cache: k's data and scales, Dv columns */
    const int32_t *lengths, *table;
    int64_t lengths_stride, table_batch, table_page;
    skr_decode_heads slopes, sinks;
    skr_decode_rope rope;
    int64_t left, right; /* i sees place_i - left <= j <= place_i + right; causal is in right */
    float scale, softcap;
    int32_t latent; /* V is the beginning of K's rows */
    int32_t codes;  /* the caches hold codes */
    int32_t paged;  /* with block_table */
    union {
        skr_decode_cpu cpu;
        skr_decode_cuda cuda;
    };
} skr_attention_decode_job;

/* Tokens of sequence b before the call; *bad is set where that is not what lengths says. */
SKR_INLINE int64_t skr_decode_length(const skr_attention_decode_job *job, int64_t b, int *bad)
{
    int64_t most = job->capacity - job->appended, n = job->lengths[b * job->lengths_stride];
    if (n >= 0 && n <= most)
        return n;
    *bad = 1;
    return n < 0 ? 0 : most;
}

/* Block of the caches that has token j of sequence b, and *row, the token's row there; -1: a page that does not exist.
 */
SKR_INLINE int64_t skr_decode_block(const skr_attention_decode_job *job, int64_t b, int64_t j, int64_t *row)
{
    *row = j;
    if (!job->paged)
        return b;
    int64_t page = j / job->page_size;
    *row = j - page * job->page_size;
    int64_t block = job->table[b * job->table_batch + page * job->table_page];
    return block >= 0 && block < job->pages ? block : -1;
}

/* Keys that a query at `place` sees of `total`: [*first, *end). */
SKR_INLINE void skr_decode_range(const skr_attention_decode_job *job, int64_t place, int64_t total, int64_t *first,
                                 int64_t *end)
{
    int64_t low = place - job->left, high = place + job->right + 1;
    *end = high < 0 ? 0 : high < total ? high : total;
    *first = low < 0 ? 0 : low < *end ? low : *end;
}

#endif
