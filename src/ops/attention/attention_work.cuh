/* attention_work.cuh - which rows of which head a block of the attention kernels works on, what they see, and how tiles
 * of them come into shared memory. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_WORK_CUH
#define SKR_ATTENTION_WORK_CUH

#include "../../cuda/fragment.cuh"
#include "attention.h"

/* A sequence as the kernels count: the plan takes lengths below 2^28 only, and a bound of 2^29 is none. */
struct attention_sequence {
    int b;           /* as the bias counts */
    int q, k;        /* first tokens; 0 unless packed */
    int rows, keys;  /* that take part in attention */
    int room;        /* queries that need a result: from rows on they see nothing */
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
    /* Whether every query of the first range sees every key of the second. */
    __device__ __forceinline__ bool all_seen(int row, int row_end, int key, int key_end) const
    {
        return key_end <= keys && row_end <= rows && key_end - 1 <= row + diagonal + right &&
               key >= row_end - 1 + diagonal - left;
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

/* The block's share of the heads (queries' heads, or keys'), in pieces of `size` tokens of q or of k. Heads of a
 * section, whose keys fit the L2 cache together, go side by side; longest pieces first.
 *
 * Packed: sequence b's pieces begin at slot floor(start / size) + b, which leaves room for all of them whatever the
 * lengths are. The last entry of the table holds the tokens that no sequence has. False: a slot that no piece fills. */
SKR_DEVICE bool attention_find(const skr_attention_job &job, int heads, int size, bool keys, attention_work &w)
{
    int index = (int)blockIdx.x;
    skr_attention_span span;
    if (job.cuda.spans_at < 0) {
        int pieces = job.cuda.pieces, pairs = heads * (int)job.batch, section = job.cuda.section;
        int s = index / (section * pieces), rest = index - s * section * pieces;
        int width = min(section, pairs - s * section);
        int pair = s * section + rest % width;
        w.tile = rest / width;
        w.tile = job.cuda.last_first ? pieces - 1 - w.tile : w.tile;
        w.s.b = pair / heads, w.h = pair - w.s.b * heads;
        span = skr_attention_plain(&job);
        w.s.room = (int)job.length;
    } else {
        const skr_attention_span *spans = attention_spans(job);
        int slot = index / heads, low = 0, high = (int)job.batch;
        w.h = index - slot * heads;
        while (low < high) { /* the last sequence whose first slot is at most this one */
            int middle = (low + high + 1) / 2;
            int start = (int)(keys ? spans[middle].k : spans[middle].q);
            if (start / size + middle <= slot)
                low = middle;
            else
                high = middle - 1;
        }
        span = spans[low];
        w.s.b = low;
        w.tile = slot - (int)(keys ? span.k : span.q) / size - low;
        int64_t end = low < job.batch ? (keys ? spans[low + 1].k : spans[low + 1].q) : keys ? job.length_k : job.length;
        w.s.room = (int)(end - (keys ? span.k : span.q));
        if (w.tile * size >= w.s.room)
            return false;
    }
    w.s.q = (int)span.q, w.s.k = (int)span.k;
    w.s.rows = (int)span.q_len, w.s.keys = (int)span.k_len;
    w.s.diagonal = (int)skr_attention_diagonal(&job, &span);
    bool anywhere = job.q_positions.data || job.k_positions.data; /* places say nothing about positions */
    w.s.left = anywhere ? 1 << 29 : attention_near(job.left);
    w.s.right = anywhere ? 1 << 29 : attention_near(job.right);
    return true;
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

/* Rows of one tensor as tiles of ROWS x D. Elements beyond the tensor's width and rows beyond its end are zeros. */
template <int T, int D, int ROWS, int THREADS> struct attention_source {
    using tile = skr_tile<T, D>;
    const char *data;    /* row 0 */
    int64_t pitch;       /* bytes of a row */
    int rows, width;     /* elements */
    int type;
    bool aligned;        /* T itself, and chunks as they lie */

    __device__ __forceinline__ attention_source(const skr_attention_rows &t, const attention_sequence &s, int first,
                                                int rows_, int h, int width_, bool aligned_)
        : data(attention_rows_at(t, s, first, h)), pitch(t.token * skr_type_bytes(t.type)), rows(rows_), width(width_),
          type(t.type), aligned(aligned_)
    {
    }

    /* Starts to bring rows from `row` on to `to`. */
    __device__ __forceinline__ void load(uint32_t to, int row) const
    {
        if (aligned)
            copy(to, row);
        else
            convert(to, row);
    }

    __device__ __forceinline__ void copy(uint32_t to, int row) const
    {
        constexpr int chunks = tile::chunks, total = ROWS * chunks;
        const char *from = data + row * pitch;
#pragma unroll
        for (int k = 0; k < total / THREADS; k++) {
            int index = k * THREADS + (int)threadIdx.x, r = index / chunks, c = index % chunks;
            copy_async16_or_zero(to + tile::at(r, c), from + r * pitch + 16 * c,
                                 row + r < rows && c * (16 / tile::bytes) < width);
        }
    }

    /* Any type and any alignment. */
    __device__ __noinline__ void convert(uint32_t to, int row) const
    {
        constexpr int vec = 16 / tile::bytes;
        int bytes = skr_type_bytes(type);
        for (int index = (int)threadIdx.x; index < ROWS * tile::chunks; index += THREADS) {
            int r = index / tile::chunks, c = index % tile::chunks;
            float f[vec];
#pragma unroll
            for (int k = 0; k < vec; k++) {
                int column = c * vec + k;
                f[k] = row + r < rows && column < width
                           ? attention_element(type, data + (row + r) * pitch + column * bytes)
                           : 0.0f;
            }
            shared_store16(to + tile::at(r, c), pack<T>(f));
        }
    }
    static_assert(ROWS * tile::chunks % THREADS == 0, "every thread copies as many chunks");
};

#endif
