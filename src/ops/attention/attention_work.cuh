/* attention_work.cuh - which rows of which head a block of the attention kernels works on, what they see, and how tiles
 * of them come into shared memory. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_WORK_CUH
#define SKR_ATTENTION_WORK_CUH

#include "../../cuda/fragment.cuh"
#include "attention.h"

/* A sequence as the kernels count: the plan takes lengths below 2^28 only, and a bound of 2^29 is none. */
struct attention_sequence {
    int b;          /* as the bias counts */
    int q, k;       /* first tokens; 0 unless packed */
    int rows, keys; /* that take part in attention */
    int room;       /* queries that need a result: from rows on they see nothing */
    int diagonal;
    int left, right; /* i sees i + diagonal - left <= j <= i + diagonal + right */

    /* The keys that queries first to last may see, cut off at the sequence's end. */
    __device__ __forceinline__ int first_key(int first) const
    {
        return max(0, first + diagonal - left);
    }
    __device__ __forceinline__ int end_key(int last) const
    {
        return min(keys, last + diagonal + right + 1);
    }
    /* The queries that may see keys first to last. */
    __device__ __forceinline__ int first_row(int first) const
    {
        return max(0, first - diagonal - right);
    }
    __device__ __forceinline__ int end_row(int last) const
    {
        return min(rows, last - diagonal + left + 1);
    }
    /* Tiles of `size` keys that all queries from first to last see whole: from first_whole(last) on, before
     * end_whole(first). */
    __device__ __forceinline__ int first_whole(int last, int size) const
    {
        return (first_key(last) + size - 1) / size;
    }
    __device__ __forceinline__ int end_whole(int first, int size) const
    {
        return max(0, end_key(first)) / size;
    }
};

SKR_DEVICE int attention_near(int64_t far)
{
    return (int)(far < (1 << 29) ? far : 1 << 29);
}

/* What a block works on: `tile` counts pieces of `size` queries, or keys, of the sequence. */
struct attention_work {
    attention_sequence s;
    int h, tile;
};

SKR_DEVICE const skr_attention_span *attention_spans(const skr_attention_job &job)
{
    return (const skr_attention_span *)((const char *)job.head.workspace + job.cuda.spans_at);
}

/* Eight for each piece of queries, or of keys (attention_warpgroup.cuh). */
SKR_DEVICE uint8_t *attention_marks(const skr_attention_job &job, bool keys)
{
    return (uint8_t *)job.head.workspace + job.cuda.marks_at + (keys ? 8 * (int64_t)job.cuda.pieces[0] : 0);
}

/* Pieces of queries, or of keys, that were taken. */
SKR_DEVICE int *attention_count(const skr_attention_job &job, bool keys)
{
    return (int *)((char *)job.head.workspace + job.cuda.count_at) + keys;
}

/* Nobody has taken a piece. */
SKR_DEVICE void attention_start_count(const skr_attention_job &job)
{
    if (job.cuda.count_at >= 0 && threadIdx.x < 2)
        *attention_count(job, threadIdx.x) = 0;
}

/* What a span says, and the job's limits. */
SKR_DEVICE void attention_set(const skr_attention_job &job, const skr_attention_span &span, attention_sequence &s)
{
    s.q = (int)span.q, s.k = (int)span.k;
    s.rows = (int)span.q_len, s.keys = (int)span.k_len;
    s.diagonal = (int)skr_attention_diagonal(&job, &span);
    bool anywhere = job.q_positions.data || job.k_positions.data; /* places say nothing about positions */
    s.left = anywhere ? 1 << 29 : attention_near(job.left);
    s.right = anywhere ? 1 << 29 : attention_near(job.right);
}

/* Sequence b, whose tokens nobody counts. */
SKR_DEVICE attention_sequence attention_sequence_of(const skr_attention_job &job, int b)
{
    attention_sequence s;
    s.b = b, s.room = 0;
    attention_set(job, job.cuda.spans_at < 0 ? skr_attention_plain(&job) : attention_spans(job)[b + 1], s);
    return s;
}

/* Share `index` of the heads (queries' heads, or keys'), in pieces of `size` tokens of q or of k. Heads of a
 * section, whose keys fit the L2 cache together, go side by side; longest pieces first. by_head: a head of all batch
 * indices after the other, for they share its bias.
 *
 * Packed: the table of attention_prepare.cuh holds the tokens before the first sequence, the sequences, and the tokens
 * behind the last. The pieces of entry n begin at slot floor(start / size) + n, which leaves room for all of them
 * whatever the lengths are. False: a slot that no piece fills. */
SKR_DEVICE bool attention_find(const skr_attention_job &job, int index, int heads, int size, bool keys, bool by_head,
                               attention_work &w)
{
    skr_attention_span span;
    if (job.cuda.spans_at < 0) {
        const skr_attention_grid &grid = job.cuda.grid[keys];
        int pieces = grid.pieces, pairs = heads * (int)job.batch, section = grid.section;
        int s = index / (section * pieces), rest = index - s * section * pieces;
        int width = min(section, pairs - s * section);
        int pair = s * section + rest % width;
        w.tile = rest / width;
        w.tile = grid.last_first ? pieces - 1 - w.tile : w.tile;
        if (by_head)
            w.h = pair / (int)job.batch, w.s.b = pair - w.h * (int)job.batch;
        else
            w.s.b = pair / heads, w.h = pair - w.s.b * heads;
        span = skr_attention_plain(&job);
        w.s.room = (int)(keys ? job.length_k : job.length);
    } else {
        const skr_attention_span *spans = attention_spans(job);
        int slot = index / heads, low = 0, high = (int)job.batch + 1;
        w.h = index - slot * heads;
        while (low < high) { /* the last entry whose first slot is at most this one */
            int middle = (low + high + 1) / 2;
            int start = (int)(keys ? spans[middle].k : spans[middle].q);
            if (start / size + middle <= slot)
                low = middle;
            else
                high = middle - 1;
        }
        span = spans[low];
        int start = (int)(keys ? span.k : span.q), all = (int)(keys ? job.length_k : job.length);
        int end = low > job.batch ? all : (int)(keys ? spans[low + 1].k : spans[low + 1].q);
        w.s.b = low - 1;
        w.tile = slot - start / size - low;
        w.s.room = end - start;
        if (w.tile * size >= w.s.room)
            return false;
    }
    attention_set(job, span, w.s);
    return true;
}

/* The same for the whole block, found by one thread. */
SKR_DEVICE bool attention_find_shared(const skr_attention_job &job, int index, int heads, int size, bool keys,
                                      bool by_head, attention_work &w)
{
    bool found = true;
    if (threadIdx.x == 0)
        found = attention_find(job, index, heads, size, keys, by_head, w);
    return __syncthreads_and(found);
}

/* The block's next marked piece from `at` on, or one behind the last. By the whole block. */
template <int THREADS> SKR_DEVICE int attention_marked(const skr_attention_job &job, bool keys, int at)
{
    const uint64_t *marks = (const uint64_t *)attention_marks(job, keys);
    const int step = (int)gridDim.x, pieces = job.cuda.pieces[keys];
    for (; at < pieces; at += step * THREADS) {
        const int mine = at + (int)threadIdx.x * step;
        if (!__syncthreads_or(mine < pieces && marks[mine]))
            continue;
        while (!marks[at])
            at += step;
        break;
    }
    return at;
}

/* one(index) of the block's piece, or where another kernel has marked pieces, of those. */
template <int THREADS, bool AGAIN, class ONE>
SKR_DEVICE void attention_each(const skr_attention_job &job, bool keys, const ONE &one)
{
    __shared__ int at; /* not in a register: one() has use for all of them */
    const bool again = AGAIN && job.cuda.marks_at >= 0;
    int next = (int)blockIdx.x;
    if (again) {
        wait_for_previous();
        next = attention_marked<THREADS>(job, keys, next);
    }
#pragma unroll 1
    while (!again || next < job.cuda.pieces[keys]) {
        if (AGAIN && threadIdx.x == 0)
            at = next;
        one(next);
        if (!again)
            return;
        __syncthreads();
        next = attention_marked<THREADS>(job, keys, at + (int)gridDim.x);
        __syncthreads();
    }
}

/* Row 0 of a sequence's head. */
SKR_DEVICE char *attention_rows_at(const skr_attention_rows &t, const attention_sequence &s, int first, int h)
{
    return (char *)t.data + (s.b * t.batch + first * t.token + h * t.head) * skr_type_bytes(t.type);
}

SKR_DEVICE float *attention_stat_at(const skr_attention_stat &t, const attention_sequence &s, int h)
{
    return t.data + s.b * t.batch + h * t.head + s.q * t.token;
}

/* ---------------------------------------------------------------- tiles */

/* One element of any type that q, k and v may have. */
SKR_DEVICE float attention_element(int type, const char *p)
{
    if (type == SKR_I8)
        return (float)*(const int8_t *)p;
    if (type == SKR_E4M3) {
        uint32_t code = *(const uint8_t *)p, size = code & 0x7f;
        float f = size == 0x7f ? __uint_as_float(0x7fc00000u) /* 2^120 brings the exponent's bias from 7 to 127 */
                               : __uint_as_float(size << 20) * 0x1p120f;
        return code & 0x80 ? -f : f;
    }
    return any_load1(type, p);
}

/* Rows of one tensor. Kept in shared memory: what is needed once a tile need not stay in registers. */
struct attention_source {
    const char *data; /* row 0 */
    int64_t pitch;    /* bytes of a row */
    int rows, width;  /* elements */
    int type;
    int aligned; /* of the type of the products, and whole chunks of 16 bytes */

    __device__ __forceinline__ void set(const skr_attention_rows &t, const attention_sequence &s, int first, int rows_,
                                        int h, int64_t width_, int aligned_)
    {
        data = attention_rows_at(t, s, first, h);
        pitch = t.token * skr_type_bytes(t.type);
        rows = rows_, width = (int)width_, type = t.type, aligned = aligned_;
    }
    /* A head's bias: queries by keys. */
    __device__ __forceinline__ void set_bias(const skr_attention_matrix &t, const attention_sequence &s, int h)
    {
        type = t.type;
        data = (const char *)t.data + (s.b * t.batch + h * t.head) * skr_type_bytes(type);
        pitch = t.query * skr_type_bytes(type);
        rows = s.rows, width = s.keys, aligned = 1;
    }
};

/* Starts to bring ROWS rows from `row` on to a tile, of the head that begins `head` bytes behind the source's. What is
 * beyond the tensor's width or end becomes zeros; not there: all becomes zeros. ANY: of any type and alignment. */
template <int T, int D, int ROWS, int THREADS, bool ANY>
SKR_DEVICE void attention_load(uint32_t to, const attention_source &s, int row, int64_t head = 0, bool there = true)
{
    using tile = skr_tile<T, D>;
    constexpr int chunks = tile::chunks, vec = 16 / tile::bytes;
    if (ANY && !s.aligned) {
        int bytes = skr_type_bytes(s.type);
#pragma unroll 1
        for (int index = (int)threadIdx.x; index < ROWS * chunks; index += THREADS) {
            int r = index / chunks, c = index % chunks;
            float f[vec];
#pragma unroll
            for (int k = 0; k < vec; k++) {
                int column = c * vec + k;
                f[k] = there && row + r < s.rows && column < s.width
                           ? attention_element(s.type, s.data + head + (row + r) * s.pitch + column * bytes)
                           : 0.0f;
            }
            shared_store16(to + tile::at(r, c), pack<T>(f));
        }
    } else if (THREADS % chunks) {
        for (int index = (int)threadIdx.x; index < ROWS * chunks; index += THREADS) {
            int r = index / chunks, c = index % chunks;
            copy_async16_or_zero(to + tile::at(r, c), s.data + head + (row + r) * s.pitch + 16 * c,
                                 there && row + r < s.rows && c * vec < s.width);
        }
    } else {
        constexpr int a_turn = THREADS / chunks;
        static_assert(THREADS % chunks || ROWS % a_turn == 0, "whole rows in every turn");
        int thread = (int)here(threadIdx.x), r = thread / chunks, c = thread % chunks;
        int64_t step = a_turn * s.pitch;
        const char *from = s.data + head + (row + r) * s.pitch + 16 * c;
        int left = there & (c * vec < s.width) ? s.rows - row - r : 0;
#pragma unroll
        for (int k = 0; k < ROWS; k += a_turn) {
            copy_async16_or_zero(to + tile::at(r + k, c), from, k < left);
            from += step;
        }
    }
}

#endif
