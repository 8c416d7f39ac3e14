/* quantize.cuh - quantize and dequantize on the GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * flat: some vectors of 16 bytes a thread; the lanes whose vectors share a scale agree on it by shuffles. rows: an
 * owner keeps a row in registers. tile: a block keeps 128 x 128 elements in registers. any: everything else, element by
 * element. A scale for the whole tensor comes from two small kernels before. */
#ifndef SKR_QUANTIZE_CUH
#define SKR_QUANTIZE_CUH

#include "../../cuda/chunk.cuh"
#include "../../cuda/flat.cuh"
#include "../../cuda/rows.cuh"
#include "quantize.h"

enum { FLAT_THREADS = 256, TILE_THREADS = 256, ANY_THREADS = 256, FOLD_THREADS = 256 };

SKR_DEVICE int64_t code_bytes(int type, int64_t columns)
{
    return type == SKR_I4 ? columns / 2 : columns;
}

/* ---------------------------------------------------------------- flat */

/* Vectors of a thread, so that several loads and shuffles are under way: 64 bytes of f32, 32 of the others. */
#ifndef SKR_QUANTIZE_UNROLL
#define SKR_QUANTIZE_UNROLL(T) (T == SKR_F32 ? 4 : 2)
#endif

/* Where a vector's elements, codes and scale are. RUN: all rows follow one another. */
template <int T, bool RUN> struct flat_place {
    int row, vector;

    __device__ __forceinline__ flat_place(const skr_quantize_job &job, uint32_t i) : row(0), vector((int)i)
    {
        if (!RUN)
            row = flat_row(job.flat, i, vector);
    }
    __device__ __forceinline__ const char *x(const skr_quantize_job &job) const
    {
        return (const char *)job.x.data + row * job.x.stride[0] * skr_elem<T>::bytes + (int64_t)vector * 16;
    }
    __device__ __forceinline__ char *q(const skr_quantize_job &job) const
    {
        return (char *)job.q.data + row * job.q.stride[0] + code_bytes(job.type, (int64_t)vector * skr_elem<T>::vec);
    }
    __device__ __forceinline__ float *scale(const skr_quantize_job &job, int lanes) const
    {
        return (float *)job.scale.data + row * job.scale.stride[0] + vector / lanes * job.scale.col_stride;
    }
};

/* W vectors from number i on, FLAT_THREADS apart, each with a scale that LANES lanes share. The lanes divide the
 * numbers among them: each makes the scale of one, and gets the others from its neighbours. */
template <int T, int LANES, int W, bool RUN>
SKR_DEVICE void quantize_shared(const skr_quantize_job &job, uint32_t i, const uint4 *raw)
{
    constexpr int V = skr_elem<T>::vec;
    float f[W][V], top[W];
#pragma unroll
    for (int k = 0; k < W; k++) {
        unpack<T>(raw[k], f[k]);
        top[k] = vector_top<V>(f[k]);
    }
    float amax = lanes_max<LANES, W>(top), scale = quant_scale(job.type, amax);
    skr_divider by = divide_by(scale);
    if (!__any_sync(0xffffffffu, !divides(scale, amax))) {
        uint32_t own = i + own_number<LANES, W>() * FLAT_THREADS;
        if (threadIdx.x % (LANES / W) == 0 && own < job.flat.total)
            *flat_place<T, RUN>(job, own).scale(job, LANES) = scale;
#pragma unroll
        for (int k = 0; k < W; k++) {
            skr_divider d = {__shfl_sync(0xffffffffu, by.scale, k * (LANES / W), LANES),
                             __shfl_sync(0xffffffffu, by.inverse, k * (LANES / W), LANES)};
            uint32_t at = i + k * FLAT_THREADS;
#pragma unroll
            for (int c = 0; c < V; c++)
                f[k][c] = divide(d, f[k][c]);
            store_codes_any<V>(job.type, flat_place<T, RUN>(job, at).q(job), at < job.flat.total, f[k]);
        }
        return;
    }
#pragma unroll
    for (int k = 0; k < W; k++) { /* one by one, with care */
        uint32_t at = i + k * FLAT_THREADS;
        bool in = at < job.flat.total;
        flat_place<T, RUN> place(job, at);
        scale = lanes_scale<V, LANES>(job.type, top[k], f[k]);
        if (in && threadIdx.x % LANES == 0)
            *place.scale(job, LANES) = scale;
        quantise<V>(job.type, place.q(job), in, scale, divide_by(scale), top[k], f[k]);
    }
}

template <int T, int LANES, bool RUN> SKR_DEVICE void quantize_vectors(const skr_quantize_job &job)
{
    constexpr int V = skr_elem<T>::vec, U = SKR_QUANTIZE_UNROLL(T), lanes = LANES ? LANES : 1;
    uint32_t first = blockIdx.x * (FLAT_THREADS * U) + threadIdx.x;
    uint4 raw[U];
#pragma unroll
    for (int k = 0; k < U; k++) {
        uint32_t i = first + k * FLAT_THREADS;
        raw[k] = make_uint4(0, 0, 0, 0);
        if (i < job.flat.total)
            raw[k] = load16_once(flat_place<T, RUN>(job, i).x(job));
    }
    if constexpr (LANES > 0) {
        constexpr int W = U < lanes ? U : lanes;
#pragma unroll
        for (int k = 0; k < U; k += W)
            quantize_shared<T, LANES, W, RUN>(job, first + k * FLAT_THREADS, raw + k);
    } else {
        float scale = *(const float *)job.scale.data;
        skr_divider by = divide_by(scale);
#pragma unroll
        for (int k = 0; k < U; k++) {
            uint32_t i = first + k * FLAT_THREADS;
            float f[V];
            unpack<T>(raw[k], f);
            quantise<V>(job.type, flat_place<T, RUN>(job, i).q(job), i < job.flat.total, scale, by, vector_top<V>(f),
                        f);
        }
    }
}

/* LANES: lanes that share a scale; 0: the one that is given. */
template <int T, int LANES> SKR_DEVICE void quantize_flat(const skr_quantize_job &job)
{
    wait_for_previous();
    let_next_start();
    if (job.flat.mul || job.flat.vectors == 1)
        quantize_vectors<T, LANES, false>(job);
    else
        quantize_vectors<T, LANES, true>(job);
}

/* ---------------------------------------------------------------- rows */

template <int T, class Owner, int VPT> struct quantize_rows {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;

    SKR_DEVICE void run(const skr_quantize_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        wait_for_previous();
        let_next_start();
        Owner owner(memory);
        int row = blockIdx.x * Owner::groups + threadIdx.x / L, lane = threadIdx.x % L;
        bool in = row < job.rows.m;
        row = in ? row : 0;
        const char *x = (const char *)job.x.data + row * job.x.stride[0] * skr_elem<T>::bytes + lane * 16;
        uint4 raw[VPT];
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            raw[i] = make_uint4(0, 0, 0, 0);
            if (in && i * L + lane < job.flat.vectors)
                raw[i] = load16_once(x + (int64_t)i * L * 16);
        }
        float top = 0.0f;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            unpack<T>(raw[i], f);
            top = fmaxf(top, vector_top<V>(f));
        }
        float amax = top = owner.template reduce<skr_max>(top);
        if (L < 32 ? __any_sync(0xffffffffu, top > 3.402823466e38f) : top > 3.402823466e38f) {
            float finite = 0.0f;
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                float f[V];
                unpack<T>(raw[i], f);
                finite = fmaxf(finite, vector_finite_top<V>(f));
            }
            finite = owner.template reduce<skr_max>(finite);
            amax = top > 3.402823466e38f ? finite : amax;
        }
        float scale = quant_scale(job.type, amax);
        skr_divider by = divide_by(scale);
        if (in && lane == 0)
            ((float *)job.scale.data)[row * job.scale.stride[0]] = scale;
        char *q = (char *)job.q.data + row * job.q.stride[0] + code_bytes(job.type, lane * V);
        int step = (int)code_bytes(job.type, L * V);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            opaque(raw[i]); /* or the compiler keeps the f32 values from the first pass: twice the registers */
            unpack<T>(raw[i], f);
            quantise<V>(job.type, q + (int64_t)i * step, in && i * L + lane < job.flat.vectors, scale, by, top, f);
        }
    }
};

/* ---------------------------------------------------------------- tile: 128 x 128 */

/* A block of 16 * V columns' lanes by rows: 128 / V vectors wide, TILE_THREADS * V / 128 rows at a time. */
template <int T> SKR_DEVICE void quantize_tile(const skr_quantize_job &job)
{
    using Owner = block_owner<TILE_THREADS, TILE_THREADS>;
    constexpr int V = skr_elem<T>::vec, wide = SKR_QUANT_GROUP / V, high = TILE_THREADS / wide,
                  VPT = SKR_QUANT_GROUP / high;
    __shared__ __align__(16) typename Owner::shared memory;
    wait_for_previous();
    let_next_start();
    Owner owner(memory);
    int64_t tiles = (job.n + SKR_QUANT_GROUP - 1) / SKR_QUANT_GROUP, slab = blockIdx.x / tiles,
            tile = blockIdx.x - slab * tiles;
    int64_t column = tile * SKR_QUANT_GROUP + threadIdx.x % wide * V;
    int first = threadIdx.x / wide, rows = 0;
    if (column < job.n)
        rows = (int)min((int64_t)SKR_QUANT_GROUP, job.matrix - slab % job.slabs * SKR_QUANT_GROUP);
    const char *x = any_row(job.rows, job.x, slab) + (first * job.x_step + column) * skr_elem<T>::bytes;
    uint4 raw[VPT];
    float top = 0.0f;
#pragma unroll
    for (int i = 0; i < VPT; i++) {
        raw[i] = make_uint4(0, 0, 0, 0);
        if (first + i * high < rows)
            raw[i] = load16_once(x + i * high * job.x_step * skr_elem<T>::bytes);
    }
#pragma unroll
    for (int i = 0; i < VPT; i++) {
        float f[V];
        unpack<T>(raw[i], f);
        top = fmaxf(top, vector_top<V>(f));
    }
    float amax = top = owner.template reduce<skr_max>(top);
    if (top > 3.402823466e38f) {
        amax = 0.0f;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            unpack<T>(raw[i], f);
            amax = fmaxf(amax, vector_finite_top<V>(f));
        }
        amax = owner.template reduce<skr_max>(amax);
    }
    float scale = quant_scale(job.type, amax);
    skr_divider by = divide_by(scale);
    if (threadIdx.x == 0)
        ((float *)any_row(job.rows, job.scale, slab))[tile * job.scale.col_stride] = scale;
    char *q = any_row(job.rows, job.q, slab) + first * job.q_step + code_bytes(job.type, column);
    int64_t step = high * job.q_step;
    int left = rows - first;
    if (job.type == SKR_E4M3 && divides(scale, top)) { /* the usual case: no question for each vector */
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            opaque(raw[i]);
            unpack<T>(raw[i], f);
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = divide(by, f[c]);
            store_codes<SKR_E4M3, V>(q, i * high < left, f);
            q += step;
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < VPT; i++) {
        float f[V];
        opaque(raw[i]);
        unpack<T>(raw[i], f);
        quantise<V>(job.type, q, i * high < left, scale, by, top, f);
        q += step;
    }
}

/* ---------------------------------------------------------------- the scale of a tensor */

/* Element e of all elements, in order of slabs (which are rows here). */
SKR_DEVICE float element_of(const skr_quantize_job &job, int64_t e)
{
    int64_t row = job.rows.m == 1 ? 0 : e / job.n;
    return any_load1(job.x.type, any_row(job.rows, job.x, row) + (e - row * job.n) * skr_type_bytes(job.x.type));
}

SKR_DEVICE void quantize_parts(const skr_quantize_job &job)
{
    using Owner = block_owner<FOLD_THREADS, FOLD_THREADS>;
    __shared__ __align__(16) typename Owner::shared memory;
    wait_for_previous();
    let_next_start();
    Owner owner(memory);
    float amax = 0.0f;
    int64_t thread = (int64_t)blockIdx.x * FOLD_THREADS + threadIdx.x, threads = (int64_t)gridDim.x * FOLD_THREADS;
    if (job.flat.total) { /* one run of vectors */
#pragma unroll 4
        for (int64_t i = thread; i < job.flat.total; i += threads) {
            float f[8];
            uint4 raw = load16_once((const char *)job.x.data + i * 16);
            if (job.x.type == SKR_F32)
                unpack<SKR_F32>(raw, f), f[4] = f[5] = f[6] = f[7] = 0.0f;
            else if (job.x.type == SKR_F16)
                unpack<SKR_F16>(raw, f);
            else
                unpack<SKR_BF16>(raw, f);
            amax = fmaxf(amax, vector_finite_top<8>(f));
        }
    } else {
        for (int64_t i = thread; i < job.rows.m * job.n; i += threads)
            amax = fmaxf(amax, finite_size(element_of(job, i)));
    }
    amax = owner.template reduce<skr_max>(amax);
    if (threadIdx.x == 0)
        ((float *)job.head.workspace)[blockIdx.x] = amax;
}

SKR_DEVICE void quantize_fold(const skr_quantize_job &job)
{
    using Owner = block_owner<FOLD_THREADS, FOLD_THREADS>;
    __shared__ __align__(16) typename Owner::shared memory;
    wait_for_previous();
    let_next_start();
    Owner owner(memory);
    float amax = 0.0f;
    for (int64_t i = threadIdx.x; i < job.n_parts; i += FOLD_THREADS)
        amax = fmaxf(amax, ((const float *)job.head.workspace)[i]);
    amax = owner.template reduce<skr_max>(amax);
    if (threadIdx.x == 0)
        *(float *)job.scale.data = quant_scale(job.type, amax);
}

/* ---------------------------------------------------------------- any */

/* The group of a column, both counted from the start of a piece: a piece has whole groups, and fewer than 2^31 columns
 * if it has more than one. */
SKR_DEVICE uint32_t group_of(const skr_quantize_job &job, int64_t column)
{
    return job.group >= job.n ? 0 : (uint32_t)column / (uint32_t)job.group;
}

/* A block finds each scale of its slab, a group at a time, and then writes the slab's codes, two columns a thread. */
SKR_DEVICE void quantize_any(const skr_quantize_job &job)
{
    using Owner = block_owner<ANY_THREADS, ANY_THREADS>;
    __shared__ __align__(16) typename Owner::shared memory;
    wait_for_previous();
    let_next_start();
    Owner owner(memory);
    int bytes = skr_type_bytes(job.x.type), warp = threadIdx.x / 32, lane = threadIdx.x & 31;
    int64_t groups = (job.n + job.group - 1) / job.group;
    bool small = job.group <= 1024 && job.slab == 1; /* a warp for each group, else the block */
    for (int64_t task = blockIdx.x; task < job.rows.m * job.pieces; task += gridDim.x) {
        int64_t slab = task / job.pieces, from = task % job.pieces * job.piece, to = min(from + job.piece, job.n);
        int64_t rows = 1;
        if (job.slab > 1)
            rows = min((int64_t)job.slab, job.matrix - slab % job.slabs * job.slab);
        const char *x = any_row(job.rows, job.x, slab);
        uint8_t *q = (uint8_t *)any_row(job.rows, job.q, slab);
        float *scales = (float *)job.scale.data;
        if (job.quant != SKR_QUANT_TENSOR) {
            scales = (float *)any_row(job.rows, job.scale, slab);
            int64_t last = job.n ? min((to + job.group - 1) / job.group, groups) : 1; /* a row of nothing has one */
            for (int64_t g = from / job.group + (small ? warp : 0); g < last; g += small ? ANY_THREADS / 32 : 1) {
                float amax = 0.0f;
                int64_t end = min((g + 1) * job.group, job.n);
                for (int64_t k = 0; k < rows; k++)
                    for (int64_t c = g * job.group + (small ? lane : threadIdx.x); c < end;
                         c += small ? 32 : ANY_THREADS)
                        amax = fmaxf(amax, finite_size(any_load1(job.x.type, x + (k * job.x_step + c) * bytes)));
                amax = small ? lanes_reduce<skr_max, 32>(amax) : owner.template reduce<skr_max>(amax);
                if (small ? lane == 0 : threadIdx.x == 0)
                    scales[g * job.scale.col_stride] = quant_scale(job.type, amax);
            }
            __syncthreads();
        }
        if (job.quant != SKR_QUANT_TENSOR)
            scales += from / job.group * job.scale.col_stride;
        for (int64_t k = 0; k < rows; k++)
            for (int64_t c = from + 2 * threadIdx.x; c < to; c += 2 * ANY_THREADS) {
                float f[2] = {0.0f, 0.0f};
#pragma unroll
                for (int h = 0; h < 2; h++)
                    if (c + h < to) {
                        skr_tamer t = tame(scales[group_of(job, c + h - from) * job.scale.col_stride]);
                        f[h] = divide(divide_by(t.scale),
                                      tamed(t, any_load1(job.x.type, x + (k * job.x_step + c + h) * bytes)));
                    }
                uint32_t word;
                if (job.type == SKR_E4M3)
                    word = quant2<SKR_E4M3>(f[0], f[1]);
                else if (job.type == SKR_E5M2)
                    word = quant2<SKR_E5M2>(f[0], f[1]);
                else if (job.type == SKR_I8)
                    word = quant2<SKR_I8>(f[0], f[1]);
                else
                    word = nibbles2(f[0], f[1]);
                uint8_t *at = q + k * job.q_step + code_bytes(job.type, c);
                at[0] = (uint8_t)word;
                if (job.type != SKR_I4 && c + 1 < to)
                    at[1] = (uint8_t)(word >> 8);
            }
        __syncthreads(); /* the scales of the next task */
    }
}

/* ---------------------------------------------------------------- and back */

/* The bytes of V codes. */
template <int V> SKR_DEVICE uint2 load_codes(int type, const void *p)
{
    if (V == 8 && type != SKR_I4)
        return load8_once(p);
    if (V == 4 && type == SKR_I4)
        return make_uint2(*(const uint16_t *)p, 0);
    return make_uint2(*(const uint32_t *)p, 0);
}

template <int TYPE, int V> SKR_DEVICE void values_of(const uint2 &raw, float *f)
{
#pragma unroll
    for (int c = 0; c < V; c += 2) {
        uint32_t word = TYPE == SKR_I4 ? raw.x >> 4 * c : (c < 4 ? raw.x : raw.y) >> 8 * (c % 4);
        if (TYPE == SKR_I4)
            f[c] = value_of<TYPE>(word), f[c + 1] = value_of<TYPE>(word >> 4);
        else if (TYPE == SKR_I8)
            f[c] = value_of<TYPE>(word), f[c + 1] = value_of<TYPE>(word >> 8);
        else
            fp8_values2<TYPE>(word, f[c], f[c + 1]);
    }
}

template <int V> SKR_DEVICE void values_any(int type, const uint2 &raw, float *f)
{
    if (type == SKR_E4M3)
        values_of<SKR_E4M3, V>(raw, f);
    else if (type == SKR_E5M2)
        values_of<SKR_E5M2, V>(raw, f);
    else if (type == SKR_I8)
        values_of<SKR_I8, V>(raw, f);
    else
        values_of<SKR_I4, V>(raw, f);
}

SKR_DEVICE float scale_at(const skr_quantize_job &job, int64_t row, int64_t column)
{
    if (job.quant == SKR_QUANT_TENSOR)
        return *(const float *)job.scale.data;
    int64_t at = job.quant == SKR_QUANT_ROW     ? 0
                 : job.group == SKR_QUANT_GROUP ? (int64_t)((uint64_t)column / SKR_QUANT_GROUP)
                                                : (int64_t)((uint32_t)column / (uint32_t)job.group);
    return ((const float *)job.scale.data)[row * job.scale.stride[0] + at * job.scale.col_stride];
}

template <int T> SKR_DEVICE void dequantize_flat(const skr_quantize_job &job)
{
    constexpr int V = skr_elem<T>::vec, U = SKR_QUANTIZE_UNROLL(T);
    wait_for_previous();
    let_next_start();
    uint32_t first = blockIdx.x * (FLAT_THREADS * U) + threadIdx.x;
    int vector[U], row[U];
    uint2 raw[U];
    float scale[U];
#pragma unroll
    for (int k = 0; k < U; k++) {
        uint32_t i = first + k * FLAT_THREADS;
        row[k] = flat_row(job.flat, i, vector[k]);
        if (i < job.flat.total) {
            raw[k] = load_codes<V>(job.type, (const char *)job.q.data + row[k] * job.q.stride[0] +
                                                 code_bytes(job.type, (int64_t)vector[k] * V));
            scale[k] = scale_at(job, row[k], (int64_t)vector[k] * V);
        }
    }
#pragma unroll
    for (int k = 0; k < U; k++) {
        float f[V];
        values_any<V>(job.type, raw[k], f);
#pragma unroll
        for (int c = 0; c < V; c++)
            f[c] *= scale[k];
        if (first + k * FLAT_THREADS < job.flat.total)
            store16_once((char *)job.x.data + row[k] * job.x.stride[0] * skr_elem<T>::bytes + (int64_t)vector[k] * 16,
                         pack<T>(f));
    }
}

SKR_DEVICE void dequantize_any(const skr_quantize_job &job)
{
    wait_for_previous();
    let_next_start();
    int bytes = skr_type_bytes(job.x.type);
    for (int64_t task = blockIdx.x; task < job.rows.m * job.pieces; task += gridDim.x) {
        int64_t slab = task / job.pieces, from = task % job.pieces * job.piece, to = min(from + job.piece, job.n);
        int64_t rows = 1;
        if (job.slab > 1)
            rows = min((int64_t)job.slab, job.matrix - slab % job.slabs * job.slab);
        char *y = any_row(job.rows, job.x, slab);
        const uint8_t *q = (const uint8_t *)any_row(job.rows, job.q, slab);
        const float *scales = (const float *)job.scale.data;
        if (job.quant != SKR_QUANT_TENSOR)
            scales = (const float *)any_row(job.rows, job.scale, slab) + from / job.group * job.scale.col_stride;
        for (int64_t k = 0; k < rows; k++)
            for (int64_t c = from + threadIdx.x; c < to; c += ANY_THREADS) {
                uint32_t code = q[k * job.q_step + code_bytes(job.type, c)];
                float f;
                if (job.type == SKR_E4M3)
                    f = value_of<SKR_E4M3>(code);
                else if (job.type == SKR_E5M2)
                    f = value_of<SKR_E5M2>(code);
                else if (job.type == SKR_I8)
                    f = value_of<SKR_I8>(code);
                else
                    f = value_of<SKR_I4>(c & 1 ? code >> 4 : code);
                f *= scales[group_of(job, c - from) * job.scale.col_stride];
                any_store1(job.x.type, y + (k * job.x_step + c) * bytes, f);
            }
    }
}

#endif
