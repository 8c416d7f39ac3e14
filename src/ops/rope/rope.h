/* rope.h - the job of rope and rope_backward, and what every backend computes the same way: frequencies, angles.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Forward:  with norm x = x * rstd * (w + offset);  (a, b) -> (a c - b s, b c + a s) for each pair; the rest copied
 * Backward: (a, b) -> (a c + b s, b c - a s);  with norm, g = that, h = x * rstd:
 *           dx = rstd * (g w - h * mean(g w h));  dw = sum over rows of g h
 * c and s: cos and sin of position * frequency, times the attention factor, or a row of the given tables. */
#ifndef SKR_ROPE_H
#define SKR_ROPE_H

#include "../../core/job.h"

/* Values of scaling; the same numbers as saker_rope_scaling. */
enum { SKR_ROPE_NONE, SKR_ROPE_LINEAR, SKR_ROPE_NTK, SKR_ROPE_YARN, SKR_ROPE_LLAMA3 };

/* Position of a token that belongs to no sequence. */
#define SKR_ROPE_NOWHERE INT64_MIN

/* Heads in memory: element strides of the three dimensions before the head's own. */
typedef struct skr_rope_rows {
    void *data; /* NULL: absent */
    int64_t batch, token, head;
} skr_rope_rows;

/* What the frequencies are made of. check() puts the published formulas into these numbers. */
typedef struct skr_rope_angles {
    double step;      /* log2 of the ratio of neighbouring frequencies */
    double factor;    /* f / factor: the stretched frequency */
    double low, high; /* YaRN: pairs between which the blend runs; Llama-3: turns in the trained length, likewise */
    double length;    /* Llama-3: the trained length */
    float attention;
    int32_t scaling;
} skr_rope_angles;

/* What the CPU plan adds; offsets are bytes into the workspace. */
enum { SKR_ROPE_PREPARE, SKR_ROPE_ROWS, SKR_ROPE_SUM };
/* PIECE: tokens whose positions one task of the first step finds. HEADS: heads that go through the norm together, so
 * that the roots and divisions of one overlap with the sums of the next. */
enum { SKR_ROPE_PIECE = 65536, SKR_ROPE_HEADS = 8 };
typedef struct skr_rope_cpu {
    int64_t turns_at;                  /* frequencies, f64 [R/2]; -1: tables are given */
    int64_t positions_at;              /* i64 [tokens], from cu_seqlens; -1: none */
    int64_t weight_at[2];              /* f32 copies of the weights of q and k; -1: none */
    int64_t parts_at[2];               /* f64 [n_parts, D] */
    int64_t scratch_at, scratch_bytes; /* of each worker */
    int64_t tile;                      /* tokens that are worked on together */
    int64_t tiles, tiles_per_task, n_parts;
} skr_rope_cpu;

/* The CUDA plan's. The tables are then always there: given, or made by the first step. */
typedef struct skr_rope_cuda {
    int64_t positions_at; /* i64 [tokens], from cu_seqlens; -1: none */
    int64_t table_at;     /* cos, then sin, f32 [table_rows, R/2] each; -1: given */
    int64_t parts_at[2];  /* f32 [parts, D] */
    int64_t made_rows;    /* rows of the made table: one for each place in a sequence, or for each token */
    int32_t parts[2];     /* blocks (or warps) that take heads of q, of k */
    int32_t groups[2];    /* of heads that one group of lanes takes together */
    int32_t units;        /* pairs of vectors of a head, one for each lane: rotary, then copied */
    int32_t rotary_units;
    int32_t heads_last; /* neighbouring groups of lanes take neighbouring tokens, not heads */
    skr_divisor by_groups, by_group[2], by_length; /* all groups of a token, those of q and of k, the length */
} skr_rope_cuda;

typedef struct skr_rope_job {
    skr_job_head head;
    int64_t batch, length; /* B and S; thd: 1 and T */
    int64_t d, r;          /* head size, rotary dim */
    int64_t heads[2];      /* of q and of k */
    skr_rope_rows in[2], out[2];
    skr_rope_rows x[2]; /* backward with norm: what forward was given */
    skr_param weight[2], dweight[2];
    const void *cos, *sin; /* NULL: computed */
    int64_t cos_stride, sin_stride, table_rows;
    const int32_t *offsets, *cu;
    int64_t offset_stride, cu_stride, sequences;
    const void *positions;
    int64_t position_batch, position_token;
    skr_rope_angles angles;
    float eps, weight_offset, inverse_d;
    int32_t in_type, out_type, x_type, table_type, position_type;
    int32_t interleaved, norm, backward, accumulate;
    union {
        skr_rope_cpu cpu;
        skr_rope_cuda cuda;
    };
} skr_rope_job;

#ifdef __CUDACC__
#define SKR_ROPE_EXP2(x) exp2(x)
#else
#define SKR_ROPE_EXP2(x) __builtin_exp2(x)
#endif

#define SKR_ROPE_TWO_PI 6.283185307179586

/* Frequency of pair i in turns (of 2 pi) for each position. */
SKR_INLINE double skr_rope_turns(const skr_rope_angles *a, int64_t i)
{
    double f = SKR_ROPE_EXP2(a->step * (double)i), stretched = f / a->factor, keep = 0;
    if (a->scaling == SKR_ROPE_NONE || a->scaling == SKR_ROPE_NTK) {
        keep = 1;
    } else if (a->scaling == SKR_ROPE_YARN) {
        keep = 1 - ((double)i - a->low) / (a->high - a->low);
    } else if (a->scaling == SKR_ROPE_LLAMA3) {
        keep = (a->length * f / SKR_ROPE_TWO_PI - a->low) / (a->high - a->low);
    }
    if (keep < 1)
        f = keep > 0 ? f * keep + stretched * (1 - keep) : stretched;
    return f / SKR_ROPE_TWO_PI;
}

/* Position of a token of a packed batch: its place in its sequence plus the sequence's offset; SKR_ROPE_NOWHERE when it
 * is in none. Its sequence is the last that begins at or before it. Whatever cu_seqlens holds, nothing beyond it is
 * read. */
SKR_INLINE int64_t skr_rope_packed(const skr_rope_job *job, int64_t token)
{
    int64_t low = 0, high = job->sequences + 1; /* cu[low] <= token < cu[high], if the array rises */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (job->cu[middle * job->cu_stride] <= token)
            low = middle;
        else
            high = middle;
    }
    int64_t begin = job->cu[low * job->cu_stride];
    if (low == job->sequences || begin > token)
        return SKR_ROPE_NOWHERE;
    return token - (begin < 0 ? 0 : begin) + (job->offsets ? job->offsets[low * job->offset_stride] : 0);
}

/* Entry i of cu_seqlens is what it must be. */
SKR_INLINE int skr_rope_good_entry(const skr_rope_job *job, int64_t i)
{
    int64_t here = job->cu[i * job->cu_stride], tokens = job->length;
    if (i == 0 && here != 0)
        return 0;
    return i < job->sequences ? here <= job->cu[(i + 1) * job->cu_stride] : here == tokens;
}

/* Position of token s of batch b, where there is no cu_seqlens. */
SKR_INLINE int64_t skr_rope_position(const skr_rope_job *job, int64_t b, int64_t s)
{
    if (!job->positions)
        return s + (job->offsets ? job->offsets[b * job->offset_stride] : 0);
    int64_t at = b * job->position_batch + s * job->position_token;
    return job->position_type == SKR_I32 ? ((const int32_t *)job->positions)[at]
                                         : ((const int64_t *)job->positions)[at];
}

#endif
