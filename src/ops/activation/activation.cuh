/* activation.cuh - activation and activation_backward on the GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * flat: one or two vectors of 16 bytes a thread and done, all float tensors of one type. rows: an owner (some lanes, a
 * block) keeps a row of results in registers for its scale. any: elements of any type and alignment, and rows that are
 * walked twice. columns: a thread walks down its columns and leaves their sums for dbias. */
#ifndef SKR_ACTIVATION_CUH
#define SKR_ACTIVATION_CUH

#include "../../cuda/act.cuh"
#include "../../cuda/chunk.cuh"
#include "../../cuda/flat.cuh"
#include "../../cuda/rows.cuh"
#include "activation.h"

enum { PLAIN, SPLIT, PAIRS }; /* not gated; gate and up apart; gate and up interleaved */
enum { FLAT_THREADS = 256, ANY_THREADS = 256 };

/* Gate and up of one vector of a row as f32, bias added. */
template <int T, int FORM> struct operand_vector {
    static constexpr int V = skr_elem<T>::vec;
    uint4 raw[2];

    __device__ __forceinline__ void load(const skr_act_head &a, int row, int vector, bool in)
    {
        raw[0] = raw[1] = make_uint4(0, 0, 0, 0);
        if (!in)
            return;
        const char *gate = (const char *)a.gate.data + row * a.gate.stride[0] * skr_elem<T>::bytes;
        if (FORM == PAIRS) {
            raw[0] = load16_once(gate + (int64_t)vector * 32);
            raw[1] = load16_once(gate + (int64_t)vector * 32 + 16);
        } else {
            raw[0] = load16_once(gate + (int64_t)vector * 16);
            if (FORM == SPLIT)
                raw[1] = load16_once((const char *)a.up.data + row * a.up.stride[0] * skr_elem<T>::bytes +
                                     (int64_t)vector * 16);
        }
    }

    __device__ __forceinline__ void widen(const skr_act_head &a, int vector, bool in, float *g, float *u) const
    {
        if (FORM == PAIRS) {
            float f[2 * V];
            unpack<T>(raw[0], f), unpack<T>(raw[1], f + V);
#pragma unroll
            for (int c = 0; c < V; c++)
                g[c] = f[2 * c], u[c] = f[2 * c + 1];
        } else {
            unpack<T>(raw[0], g);
            if (FORM == SPLIT)
                unpack<T>(raw[1], u);
        }
        if (!a.bias.data || !in)
            return;
        const char *b = (const char *)a.bias.data;
        int bytes = skr_type_bytes(a.bias.type);
        int64_t at = (int64_t)vector * V;
        float f[V];
        if (FORM == PAIRS) {
#pragma unroll
            for (int h = 0; h < 2; h++) {
                any_load<V>(a.bias.type, b + (2 * at + h * V) * bytes, f);
#pragma unroll
                for (int c = 0; c < V / 2; c++)
                    g[h * V / 2 + c] += f[2 * c], u[h * V / 2 + c] += f[2 * c + 1];
            }
            return;
        }
        any_load<V>(a.bias.type, b + at * bytes, f);
#pragma unroll
        for (int c = 0; c < V; c++)
            g[c] += f[c];
        if (FORM == SPLIT) {
            any_load<V>(a.bias.type, b + (at + a.bias_up) * bytes, f);
#pragma unroll
            for (int c = 0; c < V; c++)
                u[c] += f[c];
        }
    }
};

/* ---------------------------------------------------------------- flat */

/* One vector of results: as it is, and quantised. Every lane of the warp comes here. */
template <int T> SKR_DEVICE void put_flat(const skr_activation_job &job, int row, int vector, bool in, float *y)
{
    constexpr int V = skr_elem<T>::vec;
    if (job.y.data) {
        uint4 raw = pack<T>(y);
        if (in)
            store16_once((char *)job.y.data + row * job.y.stride[0] * skr_elem<T>::bytes + (int64_t)vector * 16, raw);
        if (!job.quant)
            return;
        unpack<T>(raw, y);
    }
    float top = vector_top<V>(y), scale;
    if (job.quant == SKR_QUANT_TENSOR) {
        scale = *(const float *)job.scale.data;
    } else {
        constexpr int lanes = SKR_QUANT_GROUP / V;
        scale = lanes_scale<V, lanes>(job.y_quant.type, top, y);
        if (in && threadIdx.x % lanes == 0)
            ((float *)job.scale.data)[row * job.scale.stride[0] + vector / lanes * job.scale.col_stride] = scale;
    }
    quantise<V>(job.y_quant.type, (char *)job.y_quant.data + row * job.y_quant.stride[0] + (int64_t)vector * V, in,
                scale, divide_by(scale), top, y);
}

/* g is of type bf16: there is no bias in it. */
template <int T> SKR_DEVICE bool is_bf16(const skr_act_head &a)
{
    return T == SKR_BF16 && !a.bias.data;
}

template <int T, int FORM> SKR_DEVICE void forward_flat(const skr_activation_job &job)
{
    constexpr int V = skr_elem<T>::vec, U = SKR_ACT_VECTORS(T, FORM);
    wait_for_previous();
    let_next_start();
    const skr_act_head &a = job.a;
    uint32_t first = blockIdx.x * (FLAT_THREADS * U) + threadIdx.x;
    int vector[U], row[U];
    operand_vector<T, FORM> o[U];
#pragma unroll
    for (int k = 0; k < U; k++) {
        uint32_t i = first + k * FLAT_THREADS;
        row[k] = flat_row(a.flat, i < a.flat.total ? i : 0, vector[k]);
        o[k].load(a, row[k], vector[k], i < a.flat.total);
    }
    float y[U * V], u[U * V];
#pragma unroll
    for (int k = 0; k < U; k++)
        o[k].widen(a, vector[k], first + k * FLAT_THREADS < a.flat.total, y + k * V, u + k * V);
    forward_vector<FORM != PLAIN, U * V>(a.act, a.alpha, a.limit, y, u, y, is_bf16<T>(a));
#pragma unroll
    for (int k = 0; k < U; k++)
        put_flat<T>(job, row[k], vector[k], first + k * FLAT_THREADS < a.flat.total, y + k * V);
}

template <int T, int FORM> SKR_DEVICE void backward_flat(const skr_activation_backward_job &job)
{
    constexpr int V = skr_elem<T>::vec, B = skr_elem<T>::bytes;
    wait_for_previous();
    let_next_start();
    const skr_act_head &a = job.a;
    uint32_t i = blockIdx.x * FLAT_THREADS + threadIdx.x;
    if (i >= a.flat.total)
        return;
    int vector, row = flat_row(a.flat, i, vector);
    operand_vector<T, FORM> o;
    o.load(a, row, vector, true);
    uint4 raw = load16_once((const char *)job.dy.data + row * job.dy.stride[0] * B + (int64_t)vector * 16);
    float dy[V], g[V], u[V];
    o.widen(a, vector, true, g, u);
    unpack<T>(raw, dy);
    backward_vector<FORM != PLAIN, V>(a.act, a.alpha, a.limit, dy, g, u);
    if (FORM == PAIRS) {
        char *p = (char *)job.dgate.data + row * job.dgate.stride[0] * B + (int64_t)vector * 32;
        float f[2 * V];
#pragma unroll
        for (int c = 0; c < V; c++)
            f[2 * c] = g[c], f[2 * c + 1] = u[c];
        store16_once(p, pack<T>(f));
        store16_once(p + 16, pack<T>(f + V));
        return;
    }
    if (job.dgate.data)
        store16_once((char *)job.dgate.data + row * job.dgate.stride[0] * B + (int64_t)vector * 16, pack<T>(g));
    if (FORM == SPLIT && job.dup.data)
        store16_once((char *)job.dup.data + row * job.dup.stride[0] * B + (int64_t)vector * 16, pack<T>(u));
}

/* ---------------------------------------------------------------- rows: one scale a row */

template <int T, class Owner, int VPT> struct forward_rows {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;

    template <int FORM> SKR_DEVICE void results(const skr_act_head &a, int row, bool in, int lane, float (&y)[VPT][V])
    {
        constexpr int G = VPT < 4 ? VPT : 4; /* vectors under way at once */
#pragma unroll
        for (int i = 0; i < VPT; i += G) {
            operand_vector<T, FORM> o[G];
#pragma unroll
            for (int k = 0; k < G; k++)
                o[k].load(a, row, (i + k) * L + lane, in && (i + k) * L + lane < a.flat.vectors);
#pragma unroll
            for (int k = 0; k < G; k++) {
                bool there = in && (i + k) * L + lane < a.flat.vectors;
                float u[V];
                o[k].widen(a, (i + k) * L + lane, there, y[i + k], u);
                forward_vector<FORM != PLAIN, V>(a.act, a.alpha, a.limit, y[i + k], u, y[i + k], is_bf16<T>(a));
                if (!there)
#pragma unroll
                    for (int c = 0; c < V; c++)
                        y[i + k][c] = 0.0f; /* sigmoid(0) is not 0 */
            }
        }
    }

    SKR_DEVICE void run(const skr_activation_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        wait_for_previous();
        let_next_start();
        Owner owner(memory);
        const skr_act_head &a = job.a;
        int row = blockIdx.x * Owner::groups + threadIdx.x / L, lane = threadIdx.x % L;
        bool in = row < a.rows.m;
        row = in ? row : 0;
        float y[VPT][V];
        if (a.step == 2)
            results<PAIRS>(a, row, in, lane, y);
        else if (a.gated)
            results<SPLIT>(a, row, in, lane, y);
        else
            results<PLAIN>(a, row, in, lane, y);
        float top = 0.0f;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            if (job.y.data) {
                uint4 raw = pack<T>(y[i]);
                if (in && i * L + lane < a.flat.vectors)
                    store16_once((char *)job.y.data + row * job.y.stride[0] * skr_elem<T>::bytes +
                                     (int64_t)(i * L + lane) * 16,
                                 raw);
                unpack<T>(raw, y[i]);
            }
            top = fmaxf(top, vector_top<V>(y[i]));
        }
        float amax = top = owner.template reduce<skr_max>(top);
        if (L < 32 ? __any_sync(0xffffffffu, top > 3.402823466e38f) : top > 3.402823466e38f) {
            float finite = 0.0f;
#pragma unroll
            for (int i = 0; i < VPT; i++)
                finite = fmaxf(finite, vector_finite_top<V>(y[i]));
            finite = owner.template reduce<skr_max>(finite);
            amax = top > 3.402823466e38f ? finite : amax;
        }
        float scale = quant_scale(job.y_quant.type, amax);
        skr_divider by = divide_by(scale);
        if (in && lane == 0)
            ((float *)job.scale.data)[row * job.scale.stride[0]] = scale;
        char *q = (char *)job.y_quant.data + row * job.y_quant.stride[0] + lane * V;
#pragma unroll
        for (int i = 0; i < VPT; i++)
            quantise<V>(job.y_quant.type, q + (int64_t)i * L * V, in && i * L + lane < a.flat.vectors, scale, by, top,
                        y[i]);
    }
};

/* ---------------------------------------------------------------- any */

/* Gate and up of the columns of a chunk, bias added; V is 1. */
SKR_DEVICE void any_operands(const skr_act_head &a, const chunk<1> &c, const char *gate, const char *up, float *g,
                             float *u)
{
    int bytes = skr_type_bytes(a.gate.type), up_bytes = skr_type_bytes(a.up.type), b = skr_type_bytes(a.bias.type);
#pragma unroll
    for (int j = 0; j < 4; j++) {
        int64_t at = c.column(j) * a.step, of_bias = c.column(j) * a.bias_step;
        g[j] = u[j] = 0.0f;
        if (!c.in(j))
            continue;
        g[j] = any_load1(a.gate.type, gate + at * bytes);
        if (a.gated)
            u[j] = any_load1(a.up.type, up + at * up_bytes);
        if (a.bias.data) {
            g[j] += any_load1(a.bias.type, (const char *)a.bias.data + of_bias * b);
            if (a.gated)
                u[j] += any_load1(a.bias.type, (const char *)a.bias.data + (of_bias + a.bias_up) * b);
        }
    }
}

/* A task is a piece of a row, pieces being whole blocks of 128 columns; with one scale a row, the row. */
SKR_DEVICE void forward_any(const skr_activation_job &job)
{
    using Owner = block_owner<ANY_THREADS, ANY_THREADS>;
    __shared__ __align__(16) typename Owner::shared memory;
    wait_for_previous();
    let_next_start();
    Owner owner(memory);
    const skr_act_head &a = job.a;
    int warp = threadIdx.x / 32;
    for (int64_t task = blockIdx.x; task < a.rows.m * a.pieces; task += gridDim.x) {
        int64_t row = a.pieces == 1 ? task : task / a.pieces, first = (task - row * a.pieces) * (a.piece / SKR_CHUNK);
        int64_t chunks = (a.n + SKR_CHUNK - 1) / SKR_CHUNK, last = min(first + a.piece / SKR_CHUNK, chunks);
        const char *gate = any_row(a.rows, a.gate, row), *up = any_row(a.rows, a.up, row);
        char *y = any_row(a.rows, job.y, row), *q = any_row(a.rows, job.y_quant, row);
        float *scales = job.quant > SKR_QUANT_TENSOR ? (float *)any_row(a.rows, job.scale, row) : nullptr, amax = 0.0f;
        skr_tamer by = tame(job.quant == SKR_QUANT_TENSOR ? *(const float *)job.scale.data : 1.0f);
        for (int pass = 0; pass < (job.quant == SKR_QUANT_ROW ? 2 : 1); pass++) {
            if (pass) {
                float scale = quant_scale(job.y_quant.type, owner.template reduce<skr_max>(amax));
                if (threadIdx.x == 0)
                    *scales = scale;
                by = tame(scale);
            }
            for (int64_t k = first + warp; k < last; k += ANY_THREADS / 32) {
                chunk<1> c(k, a.n);
                float f[4], g[4], u[4];
                if (pass && y) { /* the rounded y is what is quantised, and x may be gone: y may be x */
                    c.load(job.y.type, y, f);
                } else {
                    any_operands(a, c, gate, up, g, u);
                    if (a.gated)
                        forward_vector<true, 4>(a.act, a.alpha, a.limit, g, u, f);
                    else
                        forward_vector<false, 4>(a.act, a.alpha, a.limit, g, u, f);
                    if (y) {
                        c.store(job.y.type, y, f);
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            f[j] = any_rounded(job.y.type, f[j]);
                    }
                }
                if (job.quant == SKR_QUANT_BLOCK) {
                    float scale = quant_scale(job.y_quant.type, lanes_reduce<skr_max, 32>(c.amax(f)));
                    if ((threadIdx.x & 31) == 0)
                        scales[k * job.scale.col_stride] = scale;
                    by = tame(scale);
                }
                if (job.quant == SKR_QUANT_ROW && !pass)
                    amax = fmaxf(amax, c.amax(f));
                else if (job.quant)
                    c.store_quant(job.y_quant.type, q, by, f);
            }
        }
    }
}

SKR_DEVICE void any_store_columns(const skr_rows &t, char *row, int step, const chunk<1> &c, const float *f)
{
    if (!t.data)
        return;
    int bytes = skr_type_bytes(t.type);
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (c.in(j))
            any_store1(t.type, row + c.column(j) * step * bytes, f[j]);
}

SKR_DEVICE void backward_any(const skr_activation_backward_job &job)
{
    wait_for_previous();
    let_next_start();
    const skr_act_head &a = job.a;
    int warp = threadIdx.x / 32;
    for (int64_t task = blockIdx.x; task < a.rows.m * a.pieces; task += gridDim.x) {
        int64_t row = a.pieces == 1 ? task : task / a.pieces, first = (task - row * a.pieces) * (a.piece / SKR_CHUNK);
        int64_t chunks = (a.n + SKR_CHUNK - 1) / SKR_CHUNK, last = min(first + a.piece / SKR_CHUNK, chunks);
        const char *gate = any_row(a.rows, a.gate, row), *up = any_row(a.rows, a.up, row),
                   *dy = any_row(a.rows, job.dy, row);
        char *dgate = any_row(a.rows, job.dgate, row), *dup = any_row(a.rows, job.dup, row);
        for (int64_t k = first + warp; k < last; k += ANY_THREADS / 32) {
            chunk<1> c(k, a.n);
            float d[4], g[4], u[4];
            c.load(job.dy.type, dy, d);
            any_operands(a, c, gate, up, g, u);
            if (a.gated)
                backward_vector<true, 4>(a.act, a.alpha, a.limit, d, g, u);
            else
                backward_vector<false, 4>(a.act, a.alpha, a.limit, d, g, u);
            any_store_columns(job.dgate, dgate, a.step, c, g);
            any_store_columns(job.dup, dup, a.step, c, u);
        }
    }
}

/* ---------------------------------------------------------------- columns: with dbias */

/* A block has 1024 columns (a chunk a warp) and one part of the rows. */
SKR_DEVICE void backward_columns(const skr_activation_backward_job &job)
{
    wait_for_previous();
    let_next_start();
    const skr_act_head &a = job.a;
    int64_t tiles = (a.n + 4 * ANY_THREADS - 1) / (4 * ANY_THREADS), part = blockIdx.x / tiles;
    chunk<1> c(blockIdx.x % tiles * (ANY_THREADS / 32) + threadIdx.x / 32, a.n);
    int64_t end = min((part + 1) * job.rows_per_part, a.rows.m);
    float sum[2][4] = {};
#pragma unroll 2
    for (int64_t row = part * job.rows_per_part; row < end; row++) {
        float d[4], g[4], u[4];
        c.load(job.dy.type, any_row(a.rows, job.dy, row), d);
        any_operands(a, c, any_row(a.rows, a.gate, row), any_row(a.rows, a.up, row), g, u);
        if (a.gated)
            backward_vector<true, 4>(a.act, a.alpha, a.limit, d, g, u);
        else
            backward_vector<false, 4>(a.act, a.alpha, a.limit, d, g, u);
        any_store_columns(job.dgate, any_row(a.rows, job.dgate, row), a.step, c, g);
        any_store_columns(job.dup, any_row(a.rows, job.dup, row), a.step, c, u);
#pragma unroll
        for (int j = 0; j < 4; j++)
            sum[0][j] += g[j], sum[1][j] += u[j];
    }
    float *parts = (float *)job.head.workspace + part * (a.gated ? 2 * a.n : a.n);
#pragma unroll
    for (int j = 0; j < 4; j++)
        if (c.in(j)) {
            parts[c.column(j) * a.bias_step] = sum[0][j];
            if (a.gated)
                parts[c.column(j) * a.bias_step + a.bias_up] = sum[1][j];
        }
}

#endif
