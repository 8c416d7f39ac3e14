/* attention_decode.cuh - attention_decode on any GPU: a block works on some rows of one key head with one part of the
 * keys, a tile of them at a time.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A tile of keys, then of values, lies in shared memory as f32, codes times their scales. For scores a thread has one
 * key and all rows of the block, and a quarter of the columns, so that a key is read once and queries are broadcast;
 * for o it has one column of 128 and all rows. Sums of a tile begin at zero: no chain of additions is long. */
#ifndef SKR_ATTENTION_DECODE_CUH
#define SKR_ATTENTION_DECODE_CUH

#include "../../cuda/act.cuh"
#include "../../cuda/quant.cuh"
#include "attention_decode.h"

typedef skr_attention_decode_job decode_job;

enum { DECODE_WARPS = SKR_DECODE_THREADS / 32 };

#define DECODE_NONE (-__builtin_huge_valf())

/* Tokens before the call. */
SKR_DEVICE int64_t decode_length(const decode_job &job, int64_t b)
{
    int bad = 0;
    int64_t n = skr_decode_length(&job, b, &bad);
    if (bad)
        *job.head.error_word = SKR_BAD_INDEX;
    return n;
}

/* ---------------------------------------------------------------- rotation */

/* Turns pairs of columns of a row in shared memory by the angle of a position; all threads of the block. */
SKR_DEVICE void decode_rotate(const decode_job &job, int64_t position, float *x)
{
    const skr_decode_rope &r = job.rope;
    int64_t row = position < 0 ? 0 : position < r.rows ? position : r.rows - 1;
    int bytes = skr_type_bytes(r.type);
    if (row != position && threadIdx.x == 0)
        *job.head.error_word = SKR_BAD_INDEX;
    x += r.first;
    for (int i = (int)threadIdx.x; i < (int)r.pairs; i += SKR_DECODE_THREADS) {
        float c = any_load1(r.type, (const char *)r.cos + (row * r.cos_stride + i) * bytes);
        float s = any_load1(r.type, (const char *)r.sin + (row * r.sin_stride + i) * bytes);
        float *a = x + (r.interleaved ? 2 * i : i), *b = a + (r.interleaved ? 1 : r.pairs), was = *a;
        *a = was * c - *b * s;
        *b = *b * c + was * s;
    }
}

/* ---------------------------------------------------------------- rows of the caches */

/* Columns c to c + V - 1 of a row as f32, times their scales (NULL: 1). */
template <int V>
SKR_DEVICE void decode_load(const skr_decode_cache &cache, const char *row, const float *scale, int c, float *f)
{
    if (cache.type == SKR_I8) {
        uint32_t word = V == 4 ? *(const uint32_t *)(row + c) : (uint32_t)(uint8_t)row[c];
#pragma unroll
        for (int k = 0; k < V; k++)
            f[k] = value_of<SKR_I8>(word >> 8 * k & 0xff);
    } else if (cache.type == SKR_E4M3) {
        uint32_t word = V == 4 ? *(const uint32_t *)(row + c) : (uint32_t)(uint8_t)row[c];
#pragma unroll
        for (int k = 0; k < V; k++)
            f[k] = value_of<SKR_E4M3>(word >> 8 * k & 0xff);
    } else if (cache.type == SKR_I4) {
        uint32_t word =
            V == 4 ? (uint32_t) * (const uint16_t *)(row + c / 2) : (uint32_t)(uint8_t)row[c / 2] >> 4 * (c & 1);
#pragma unroll
        for (int k = 0; k < V; k++)
            f[k] = value_of<SKR_I4>(word >> 4 * k & 15);
    } else if (V == 4) {
        any_load<V == 4 ? 4 : 1>(cache.type, row + (int64_t)c * skr_type_bytes(cache.type), f);
        return;
    } else {
        f[0] = any_load1(cache.type, row + (int64_t)c * skr_type_bytes(cache.type));
        return;
    }
    float by = scale ? scale[c / (int)cache.group * cache.scale_group] : 1.0f; /* four columns have one scale */
#pragma unroll
    for (int k = 0; k < V; k++)
        f[k] *= by;
}

/* Keys of a tile: the block and the row of each, -1 where it is not seen by any row or not there. */
struct decode_keys {
    int64_t block[SKR_DECODE_TILE], row[SKR_DECODE_TILE];
};

/* A tile's rows into shared memory, zeros where there is no key and from `width` up to `padded`. True: this thread had
 * a number that is not finite. */
template <int V> SKR_DEVICE bool decode_stage(const skr_decode_cache &cache, const decode_keys &keys, int64_t h,
                                              int padded, int pitch, float *tile)
{
    const int lane = threadIdx.x & 31, warp = (int)threadIdx.x / 32, width = (int)cache.width;
    float zero = 0.0f;
#pragma unroll 2
    for (int k = warp; k < SKR_DECODE_TILE; k += DECODE_WARPS) {
        const int64_t block = keys.block[k], row = keys.row[k];
        const char *from = cache.data + block * cache.block + row * cache.token + h * cache.head;
        const float *scale =
            cache.scale ? cache.scale + block * cache.scale_block + row * cache.scale_token + h * cache.scale_head
                        : (const float *)nullptr;
        for (int c = lane * V; c < padded; c += 32 * V) {
            float f[V];
#pragma unroll
            for (int i = 0; i < V; i++)
                f[i] = 0.0f;
            if (block >= 0 && c < width)
                decode_load<V>(cache, from, scale, c, f);
#pragma unroll
            for (int i = 0; i < V; i++) {
                tile[k * pitch + c + i] = f[i];
                zero = __fmaf_rn(f[i], 0.0f, zero);
            }
        }
    }
    return zero != 0.0f; /* NaN, too */
}

/* ---------------------------------------------------------------- a part */

/* What a block keeps of its rows in shared memory, beside tile and queries. */
template <int R> struct decode_state {
    float partial[DECODE_WARPS][R][SKR_DECODE_TILE];
    float p[R][SKR_DECODE_TILE];
    float shrink[R];
    int64_t first[R], end[R]; /* keys that a row sees */
    decode_keys keys;
};

/* Queries of rows [row0, row0 + R), padded with zeros. */
template <int R>
SKR_DEVICE void decode_queries(const decode_job &job, int64_t b, int64_t h, int64_t row0, int64_t total, float *q)
{
    const int padded = 4 * job.cuda.quarter, bytes = skr_type_bytes(job.q.type);
    for (int r = 0; r < R; r++) {
        const int64_t row = row0 + r, i = row / job.group, head = h * job.group + row % job.group;
        const char *from = (const char *)job.q.data + (b * job.q.batch + i * job.q.token + head * job.q.head) * bytes;
        for (int c = (int)threadIdx.x; c < padded; c += SKR_DECODE_THREADS)
            q[r * padded + c] = row < job.rows && c < job.d ? any_load1(job.q.type, from + (int64_t)c * bytes) : 0.0f;
    }
    __syncthreads();
    for (int r = 0; job.rope.cos && r < R && row0 + r < job.rows; r++)
        decode_rotate(job, total - job.length + (row0 + r) / job.group, q + r * padded);
    __syncthreads();
    for (int c = (int)threadIdx.x; job.rope.cos && c < R * padded; c += SKR_DECODE_THREADS)
        q[c] = any_rounded(job.q.type, q[c]);
}

/* Where the keys of tile [j0, j0 + 32) lie that lie in [from, to). */
SKR_DEVICE void decode_find(const decode_job &job, int64_t b, int64_t j0, int64_t from, int64_t to, decode_keys &keys)
{
    if (threadIdx.x >= SKR_DECODE_TILE)
        return;
    int64_t j = j0 + threadIdx.x, row = 0, block = -1;
    if (j >= from && j < to) {
        block = skr_decode_block(&job, b, j, &row);
        if (block < 0)
            *job.head.error_word = SKR_BAD_INDEX;
    }
    keys.block[threadIdx.x] = block;
    keys.row[threadIdx.x] = row;
}

/* Products of a warp's quarter of the columns: lane is a key. */
template <int R>
SKR_DEVICE void decode_dots(const decode_job &job, const float *tile, const float *q, decode_state<R> &s)
{
    const int lane = threadIdx.x & 31, warp = (int)threadIdx.x / 32, quarter = job.cuda.quarter;
    const float *k = tile + lane * job.cuda.pitch + warp * quarter;
    float sum[R];
    q += warp * quarter;
#pragma unroll
    for (int r = 0; r < R; r++)
        sum[r] = 0.0f;
    for (int c = 0; c < quarter; c += 4) {
        float4 y = *(const float4 *)(k + c);
#pragma unroll
        for (int r = 0; r < R; r++) {
            float4 x = *(const float4 *)(q + r * 4 * quarter + c);
            sum[r] = __fmaf_rn(x.x, y.x, sum[r]);
            sum[r] = __fmaf_rn(x.y, y.y, sum[r]);
            sum[r] = __fmaf_rn(x.z, y.z, sum[r]);
            sum[r] = __fmaf_rn(x.w, y.w, sum[r]);
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++)
        s.partial[warp][r][lane] = sum[r];
}

/* The score of a row with a key, from its sum. */
SKR_DEVICE float decode_score(const decode_job &job, float sum, float slope, int64_t apart)
{
    float x = sum * job.scale;
    if (job.softcap != 0.0f) {
        float unit = job.scale / job.softcap, most = 0x1.fffffep127f; /* a score of 0 stays 0 */
        x = job.softcap * tanh_of(sum * fminf(fmaxf(unit, -most), most));
    }
    return __fmaf_rn(-slope, (float)apart, x);
}

/* Scores of the tile become p; a warp has whole rows, a lane one key of each. */
template <int R> SKR_DEVICE void decode_softmax(const decode_job &job, int64_t b, int64_t h, int64_t row0,
                                                int64_t total, int64_t j0, decode_state<R> &s, float *top, float *sum)
{
    const int lane = threadIdx.x & 31, warp = (int)threadIdx.x / 32;
    const int64_t j = j0 + lane;
#pragma unroll
    for (int a = 0; a < (R + DECODE_WARPS - 1) / DECODE_WARPS; a++) {
        const int r = warp + a * DECODE_WARPS;
        const int64_t row = row0 + r, head = h * job.group + row % job.group;
        if (r >= R)
            break;
        float x = DECODE_NONE, slope = 0.0f;
        if (job.slopes.data && row < job.rows)
            slope = job.slopes.data[b * job.slopes.batch + head * job.slopes.head];
        if (s.keys.block[lane] >= 0 && j >= s.first[r] && j < s.end[r]) {
            int64_t apart = total - job.length + row / job.group - j;
            x = s.partial[0][r][lane] + s.partial[1][r][lane] + (s.partial[2][r][lane] + s.partial[3][r][lane]);
            x = decode_score(job, x, slope, apart < 0 ? -apart : apart);
        }
        const float max = fmaxf(top[a], lanes_reduce<skr_max, 32>(x)), base = max == DECODE_NONE ? 0.0f : max;
        const float p = exp_minus(base - x), shrink = max == top[a] ? 1.0f : exp_minus(base - top[a]);
        sum[a] = __fmaf_rn(sum[a], shrink, lanes_reduce<skr_sum, 32>(p));
        top[a] = max;
        s.p[r][lane] = p;
        if (lane == 0)
            s.shrink[r] = shrink;
    }
}

/* o = o shrink + p v for the columns of this thread. CAREFUL: p = 0 keeps out what is not finite. */
template <int R, int C, bool CAREFUL>
SKR_DEVICE void decode_values(const decode_job &job, const float *tile, const decode_state<R> &s, float (&o)[R][C])
{
    float sum[R][C];
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++)
            sum[r][c] = 0.0f;
#pragma unroll 1
    for (int k = 0; k < SKR_DECODE_TILE; k += 4) {
        float v[4][C];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int c = 0; c < C; c++) {
                int column = (int)threadIdx.x + c * SKR_DECODE_THREADS;
                v[i][c] = column < job.d_v ? tile[(k + i) * job.cuda.pitch + column] : 0.0f;
            }
#pragma unroll
        for (int r = 0; r < R; r++) {
            float4 four = *(const float4 *)&s.p[r][k];
            const float p[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < C; c++)
                    if (!CAREFUL || p[i] != 0.0f)
                        sum[r][c] = __fmaf_rn(p[i], v[i][c], sum[r][c]);
        }
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++)
            o[r][c] = CAREFUL && s.shrink[r] == 0.0f ? sum[r][c] : __fmaf_rn(o[r][c], s.shrink[r], sum[r][c]);
}

/* R rows of a head with C columns a thread. */
template <int R, int C> SKR_DEVICE void decode_part(const decode_job &job)
{
    extern __shared__ __align__(16) char memory[];
    __shared__ __align__(16) decode_state<R> s;
    const skr_decode_cuda &g = job.cuda;
    float *tile = (float *)memory, *q = tile + SKR_DECODE_TILE * g.pitch;
    constexpr int MINE = (R + DECODE_WARPS - 1) / DECODE_WARPS;
    float o[R][C], top[MINE], sum[MINE];
    wait_for_previous();
    let_next_start();
    int64_t at = blockIdx.x;
    const int64_t row0 = at % g.chunks * R, part = at / g.chunks % job.parts, head = at / g.chunks / job.parts;
    const int64_t h = head % job.heads_k, b = head / job.heads_k, total = decode_length(job, b) + job.appended;
    if (part * job.split >= total && part)
        return;
    if (threadIdx.x < R) {
        int64_t row = row0 + threadIdx.x;
        s.first[threadIdx.x] = s.end[threadIdx.x] = 0;
        if (row < job.rows)
            skr_decode_range(&job, total - job.length + row / job.group, total, &s.first[threadIdx.x],
                             &s.end[threadIdx.x]);
    }
#pragma unroll
    for (int a = 0; a < MINE; a++)
        top[a] = DECODE_NONE, sum[a] = 0.0f;
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++)
            o[r][c] = 0.0f;
    decode_queries<R>(job, b, h, row0, total, q);
    const int64_t last = job.rows - 1 < row0 + R - 1 ? job.rows - 1 - row0 : R - 1, left = job.rows - row0;
    int64_t from = part * job.split, to = from + job.split < total ? from + job.split : total;
    from = s.first[0] > from ? s.first[0] : from;
    to = s.end[last] < to ? s.end[last] : to;
    const int padded = 4 * g.quarter;
#pragma unroll 1
    for (int64_t j0 = from / SKR_DECODE_TILE * SKR_DECODE_TILE; j0 < to; j0 += SKR_DECODE_TILE) {
        __syncthreads(); /* queries, ranges; the tile before is done with */
        decode_find(job, b, j0, from, to, s.keys);
        __syncthreads();
        bool bad = g.vec_k == 4 ? decode_stage<4>(job.k, s.keys, h, padded, g.pitch, tile)
                                : decode_stage<1>(job.k, s.keys, h, padded, g.pitch, tile);
        __syncthreads();
        decode_dots<R>(job, tile, q, s);
        __syncthreads();
        decode_softmax<R>(job, b, h, row0, total, j0, s, top, sum);
        if (!job.latent)
            bad = g.vec_v == 4 ? decode_stage<4>(job.v, s.keys, h, (int)job.d_v, g.pitch, tile)
                               : decode_stage<1>(job.v, s.keys, h, (int)job.d_v, g.pitch, tile);
        if (__syncthreads_or(bad))
            decode_values<R, C, true>(job, tile, s, o);
        else
            decode_values<R, C, false>(job, tile, s, o);
    }
    char *space = (char *)job.head.workspace;
    const int64_t first = (head * job.parts + part) * job.rows + row0;
    float *o_to = (float *)(space + g.o_at) + first * job.d_v, *sums = (float *)(space + g.sums_at) + 2 * first;
#pragma unroll
    for (int a = 0; a < MINE; a++) {
        const int r = (int)threadIdx.x / 32 + a * DECODE_WARPS;
        if ((threadIdx.x & 31) == 0 && r < R && r < left)
            sums[2 * r] = top[a], sums[2 * r + 1] = sum[a];
    }
#pragma unroll
    for (int r = 0; r < R; r++)
#pragma unroll
        for (int c = 0; c < C; c++) {
            int column = (int)threadIdx.x + c * SKR_DECODE_THREADS;
            if (r < left && column < job.d_v)
                o_to[r * job.d_v + column] = o[r][c];
        }
}

/* ---------------------------------------------------------------- the parts together */

/* A block has one row. */
SKR_DEVICE void decode_merge(const decode_job &job)
{
    wait_for_previous();
    let_next_start();
    const int64_t head = blockIdx.x / job.rows, row = blockIdx.x % job.rows, i = row / job.group;
    const int64_t b = head / job.heads_k, hq = head % job.heads_k * job.group + row % job.group;
    const int64_t total = decode_length(job, b) + job.appended;
    const int64_t parts = (total + job.split - 1) / job.split, first = head * job.parts * job.rows + row;
    const char *space = (const char *)job.head.workspace;
    const float *o = (const float *)(space + job.cuda.o_at), *sums = (const float *)(space + job.cuda.sums_at);
    const float sink = job.sinks.data ? job.sinks.data[hq * job.sinks.head] : DECODE_NONE;
    float top = sink, all = 0.0f;
    for (int64_t p = 0; p < parts; p++)
        top = fmaxf(top, sums[2 * (first + p * job.rows)]);
    const float base = top == DECODE_NONE ? 0.0f : top;
    if (sink != DECODE_NONE)
        all = exp_minus(base - sink);
    for (int64_t p = 0; p < parts; p++) {
        const float *at = sums + 2 * (first + p * job.rows);
        all = __fmaf_rn(exp_minus(base - at[0]), at[1], all);
    }
    for (int c = (int)threadIdx.x; c < (int)job.d_v; c += SKR_DECODE_THREADS) {
        float x = 0.0f;
        for (int64_t p = 0; p < parts; p++) {
            float share = exp_minus(base - sums[2 * (first + p * job.rows)]);
            if (share != 0.0f)
                x = __fmaf_rn(share, o[(first + p * job.rows) * job.d_v + c], x);
        }
        x = all == 0.0f ? 0.0f : __fdiv_rn(x, all);
        any_store1(job.o.type,
                   (char *)job.o.data +
                       (b * job.o.batch + i * job.o.token + hq * job.o.head + c) * skr_type_bytes(job.o.type),
                   all != all ? all : x);
    }
    if (job.lse.data && threadIdx.x == 0)
        ((float *)job.lse.data)[b * job.lse.batch + i * job.lse.token + hq * job.lse.head] =
            all == 0.0f ? DECODE_NONE : top + logf(all);
}

/* ---------------------------------------------------------------- what is appended */

/* The code of a quotient, a byte. */
SKR_DEVICE uint32_t decode_code(int type, float x)
{
    if (type == SKR_E4M3)
        return quant2<SKR_E4M3>(x, 0.0f) & 0xff;
    if (type == SKR_I8)
        return quant2<SKR_I8>(x, 0.0f) & 0xff;
    int a;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(a) : "f"(x));
    return (uint32_t)min(max(a, -7), 7) & 15;
}

/* A row in shared memory into a cache; scales: one for each group, in shared memory. */
SKR_DEVICE void decode_store(const skr_decode_cache &cache, int64_t block, int64_t row, int64_t h, const float *x,
                             float *scales)
{
    const int lane = threadIdx.x & 31, warp = (int)threadIdx.x / 32, width = (int)cache.width, group = (int)cache.group;
    char *to = cache.data + block * cache.block + row * cache.token + h * cache.head;
    float *scale = cache.scale
                       ? cache.scale + block * cache.scale_block + row * cache.scale_token + h * cache.scale_head
                       : (float *)nullptr;
    if (cache.type == SKR_F32 || cache.type == SKR_F16 || cache.type == SKR_BF16) {
        for (int c = (int)threadIdx.x; c < width; c += SKR_DECODE_THREADS)
            any_store1(cache.type, to + (int64_t)c * skr_type_bytes(cache.type), x[c]);
        return;
    }
    for (int n = warp; n < width / group; n += DECODE_WARPS) {
        float amax = 0.0f, by = scale ? *scale : 1.0f;
        for (int c = lane; cache.dynamic && c < group; c += 32)
            amax = fmaxf(amax, finite_size(x[n * group + c]));
        if (cache.dynamic) {
            by = quant_scale(cache.type, lanes_reduce<skr_max, 32>(amax));
            if (lane == 0)
                scale[n * cache.scale_group] = by;
        }
        if (lane == 0)
            scales[n] = by;
    }
    __syncthreads();
    const int each = cache.type == SKR_I4 ? 2 : 1; /* columns of a byte */
    for (int i = (int)threadIdx.x; i * each < width; i += SKR_DECODE_THREADS) {
        uint32_t byte = 0;
        for (int k = 0; k < each && i * each + k < width; k++) {
            int c = i * each + k;
            byte |= decode_code(cache.type, __fdiv_rn(x[c], scales[c / group])) << 4 * k;
        }
        to[i] = (char)byte;
    }
}

/* A block has one head of a new token. */
SKR_DEVICE void decode_append(const decode_job &job)
{
    __shared__ float x[SKR_DECODE_MAX_D], scales[SKR_DECODE_MAX_D];
    wait_for_previous();
    let_next_start();
    const int64_t h = blockIdx.x % job.heads_k, n = blockIdx.x / job.heads_k % job.appended;
    const int64_t b = blockIdx.x / job.heads_k / job.appended, place = decode_length(job, b) + n;
    int64_t row, block = skr_decode_block(&job, b, place, &row);
    if (block < 0) {
        *job.head.error_word = SKR_BAD_INDEX;
        return;
    }
    for (int v = 0; v < (job.latent ? 1 : 2); v++) {
        const skr_decode_rows &from = v ? job.v_new : job.k_new;
        const skr_decode_cache &cache = v ? job.v : job.k;
        const int bytes = skr_type_bytes(from.type);
        const char *data = (const char *)from.data + (b * from.batch + n * from.token + h * from.head) * bytes;
        __syncthreads();
        for (int c = (int)threadIdx.x; c < (int)cache.width; c += SKR_DECODE_THREADS)
            x[c] = any_load1(from.type, data + (int64_t)c * bytes);
        __syncthreads();
        if (!v && job.rope.cos)
            decode_rotate(job, place, x);
        __syncthreads();
        decode_store(cache, block, row, h, x, scales);
    }
}

#endif
