/* rope_any.cuh - what has no row kernel: any types, alignments and sizes, a warp for each head. And the first step:
 * positions of packed tokens, and tables.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ROPE_ANY_CUH
#define SKR_ROPE_ANY_CUH

#include "../../cuda/parts.cuh"
#include "rope.cuh"

/* ---------------------------------------------------------------- before the heads */

/* cos and sin of position * turns (an angle in turns), times scale. The product is rounded once; what follows up to the
 * polynomials is exact: 4 t = k + r, |r| <= 1/2. Their error is below 2e-10 (tools/minimax.py: cos and sin of vmath.h),
 * so that the rounding to f32 decides. Beyond 2^46 turns a double has no fraction to speak of: the angle is 0. */
SKR_DEVICE void cos_sin_of(double position, double turns, double scale, float *cosine, float *sine)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52: the sum's last bit is 1 */
    double t = position * turns * 4;
    t = t < 0x1p48 && t > -0x1p48 ? t : 0;
    union {
        double f;
        uint64_t bits;
    } k;
    k.f = t + magic;
    double r = (t - (k.f - magic)) * 1.5707963267948966, z = r * r;
    double s = r + r * z * (-0x1.555556p-3 + z * (0x1.111174p-7 + z * (-0x1.a058e4p-13 + z * 0x1.7bf104p-19)));
    double c = 1 - 0.5 * z + z * z * (0x1.55554ap-5 + z * (-0x1.6c0c1ap-10 + z * 0x1.99e112p-16));
    uint64_t swap = (uint64_t)0 - (k.bits & 1);
    union {
        double f;
        uint64_t bits;
    } u, v;
    u.f = c * scale, v.f = s * scale;
    uint64_t other = (u.bits ^ v.bits) & swap;
    u.bits ^= other ^ ((k.bits + 1) & 2) << 62;
    v.bits ^= other ^ (k.bits & 2) << 62;
    *cosine = (float)u.f, *sine = (float)v.f;
}

enum { ROPE_PREPARE_ROWS = 32, ROPE_PREPARE_THREADS = 256 };

/* A block takes some tokens (or places): their positions first, then a thread makes cos and sin of one pair for several
 * of them, so that its frequency is computed once. */
SKR_DEVICE void rope_prepare(const skr_rope_job &job)
{
    __shared__ int64_t position[ROPE_PREPARE_ROWS];
    wait_for_previous();
    let_next_start();
    int64_t first = (int64_t)blockIdx.x * ROPE_PREPARE_ROWS, tokens = job.batch * job.length;
    char *workspace = (char *)job.head.workspace;
    if (threadIdx.x < ROPE_PREPARE_ROWS) {
        int64_t i = first + threadIdx.x, p = 0;
        if (job.cuda.positions_at >= 0) {
            if (i < tokens) {
                p = skr_rope_packed(&job, i);
                ((int64_t *)(workspace + job.cuda.positions_at))[i] = p;
            }
            if (i <= job.sequences && !skr_rope_good_entry(&job, i))
                *job.head.error_word = SKR_BAD_INDEX;
        } else if (i < job.cuda.made_rows) {
            int64_t b = i / job.length;
            p = skr_rope_position(&job, b, i - b * job.length);
        }
        position[threadIdx.x] = p;
    }
    __syncthreads();
    if (job.cuda.table_at < 0)
        return;
    int64_t pairs = job.r / 2, rows = job.cuda.made_rows - first;
    int lanes = pairs < ROPE_PREPARE_THREADS ? (int)pairs : ROPE_PREPARE_THREADS;
    int side = lanes ? ROPE_PREPARE_THREADS / lanes : 1, row = lanes ? threadIdx.x / lanes : 0;
    float *cosine = (float *)(workspace + job.cuda.table_at), *sine = cosine + job.cuda.made_rows * pairs;
    if (row >= side)
        return;
    for (int64_t i = lanes ? threadIdx.x - row * lanes : 0; i < pairs; i += lanes) {
        double turns = skr_rope_turns(&job.angles, i);
        for (int k = row; k < ROPE_PREPARE_ROWS && k < rows; k += side) {
            int64_t at = (first + k) * pairs + i;
            cos_sin_of((double)position[k], turns, (double)job.angles.attention, &cosine[at], &sine[at]);
        }
    }
}

/* ---------------------------------------------------------------- one head, a warp */

struct rope_head {
    const skr_rope_job &job;
    int which, lane;
    const char *in, *x; /* x: backward with norm */
    char *out;          /* NULL: not wanted */
    rope_token t;
    float *part;

    __device__ __forceinline__ float load(int j) const
    {
        return any_load1(job.in_type, in + (int64_t)j * skr_type_bytes(job.in_type));
    }
    __device__ __forceinline__ float load_x(int j) const
    {
        return any_load1(job.x_type, x + (int64_t)j * skr_type_bytes(job.x_type));
    }
    __device__ __forceinline__ void store(int j, float f) const
    {
        if (out)
            any_store1(job.out_type, out + (int64_t)j * skr_type_bytes(job.out_type), f);
    }
    __device__ __forceinline__ float weight(int j) const
    {
        const skr_param &p = which ? job.weight[1] : job.weight[0];
        return (p.data ? any_load1(p.type, (const char *)p.data + (int64_t)j * skr_type_bytes(p.type)) : 1.0f) +
               job.weight_offset;
    }

    /* Pair i, or, beyond the pairs, one copied column: how many columns it has. */
    __device__ __forceinline__ int items() const
    {
        return (int)(job.d - job.r / 2);
    }
    __device__ __forceinline__ int columns(int i, int (&j)[2]) const
    {
        int pairs = (int)job.r / 2;
        j[0] = i >= pairs ? i + pairs : job.interleaved ? 2 * i : i;
        j[1] = job.interleaved ? 2 * i + 1 : i + pairs;
        return i < pairs ? 2 : 1;
    }
    __device__ __forceinline__ void turn(int i, float (&f)[2]) const
    {
        int bytes = skr_type_bytes(t.type);
        float c = any_load1(t.type, t.cos + (int64_t)i * bytes), s = any_load1(t.type, t.sin + (int64_t)i * bytes);
        s = job.backward ? -s : s;
        float a = f[0], b = f[1];
        f[0] = __fmaf_rn(-b, s, a * c);
        f[1] = __fmaf_rn(a, s, b * c);
    }

    __device__ __forceinline__ void zero() const
    {
        for (int j = lane; j < (int)job.d; j += 32)
            store(j, 0.0f);
    }

    __device__ __forceinline__ void forward() const
    {
        float rstd = 1.0f;
        bool norm = job.norm && !job.backward;
        if (norm) {
            float sum = 0.0f;
            for (int j = lane; j < (int)job.d; j += 32) {
                float f = load(j);
                sum = __fmaf_rn(f, f, sum);
            }
            rstd = head_rstd(job, lanes_reduce<skr_sum, 32>(sum));
        }
        for (int i = lane; i < items(); i += 32) {
            int j[2];
            float f[2] = {0.0f, 0.0f};
            int n = columns(i, j);
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (k < n)
                    f[k] = norm ? load(j[k]) * rstd * weight(j[k]) : load(j[k]);
            if (n == 2)
                turn(i, f);
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (k < n)
                    store(j[k], f[k]);
        }
    }

    __device__ __forceinline__ void backward() const
    {
        float squares = 0.0f, dot = 0.0f, rstd = 0.0f, mean = 0.0f;
        for (int pass = 0; pass < 3; pass++) { /* sums; again with h where rstd is 0; results */
            if (pass == 1 && rstd != 0.0f)
                continue;
            for (int i = lane; i < items(); i += 32) {
                int j[2];
                float g[2] = {0.0f, 0.0f};
                int n = columns(i, j);
#pragma unroll
                for (int k = 0; k < 2; k++)
                    if (k < n)
                        g[k] = load(j[k]);
                if (n == 2)
                    turn(i, g);
#pragma unroll
                for (int k = 0; k < 2; k++) {
                    if (k >= n)
                        continue;
                    float v = load_x(j[k]), hat = v * rstd, gw = g[k] * weight(j[k]);
                    if (pass == 0)
                        squares = __fmaf_rn(v, v, squares);
                    if (pass < 2)
                        dot = __fmaf_rn(gw, pass ? hat : v, dot);
                    if (pass == 2 && part)
                        part[j[k]] = __fmaf_rn(g[k], hat, part[j[k]]);
                    if (pass == 2)
                        store(j[k], __fmaf_rn(-hat, mean, gw) * rstd);
                }
            }
            if (pass == 0)
                rstd = head_rstd(job, lanes_reduce<skr_sum, 32>(squares));
            if (pass < 2)
                mean = lanes_reduce<skr_sum, 32>(dot) * (pass ? 1.0f : rstd) * job.inverse_d;
            dot = 0.0f;
        }
    }
};

/* Warps walk: the first parts[0] over the heads of q, the others over those of k. GRADIENT: of the norm. */
template <bool GRADIENT> SKR_DEVICE void rope_any(const skr_rope_job &job)
{
    wait_for_previous();
    let_next_start();
    int64_t warp = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int which = warp >= job.cuda.parts[0];
    int64_t part = warp - (which ? job.cuda.parts[0] : 0), parts = job.cuda.parts[which], heads = job.heads[which];
    if (part >= parts)
        return;
    rope_head h = {job, which, (int)threadIdx.x & 31, nullptr, nullptr, nullptr, {}, nullptr};
    if (GRADIENT && job.cuda.parts_at[which] >= 0) {
        h.part = (float *)((char *)job.head.workspace + job.cuda.parts_at[which]) + part * job.d;
        /* A column belongs to the lane that has its pair, so that only that lane ever touches its sum. */
        for (int i = h.lane; i < h.items(); i += 32) {
            int j[2];
            int n = h.columns(i, j);
#pragma unroll
            for (int k = 0; k < 2; k++)
                if (k < n)
                    h.part[j[k]] = 0.0f;
        }
    }
    /* Divisions before the loop and in 32 bits, which are enough for parts; 64-bit ones are calls that cost registers.
     */
    uint32_t heads32 = (uint32_t)min(heads, (int64_t)INT32_MAX),
             length32 = (uint32_t)min(job.length, (int64_t)INT32_MAX);
    uint32_t token = (uint32_t)part / heads32, by_token = (uint32_t)parts / heads32, by_batch = by_token / length32;
    int64_t n = part - token * heads, b = token / length32, s = token - b * job.length;
    int64_t by_head = parts - by_token * heads, by_place = by_token - by_batch * job.length;
    while (b < job.batch) {
        const skr_rope_rows &in = job.in[which], &out = job.out[which], &x = job.x[which];
        h.in = (const char *)in.data + head_offset(in, b, s, n) * skr_type_bytes(job.in_type);
        if (GRADIENT)
            h.x = (const char *)x.data + head_offset(x, b, s, n) * skr_type_bytes(job.x_type);
        h.out = out.data ? (char *)out.data + head_offset(out, b, s, n) * skr_type_bytes(job.out_type) : nullptr;
        h.t = token_at(job, b, s);
        if (h.t.nowhere)
            h.zero();
        else if (GRADIENT)
            h.backward();
        else
            h.forward();
        n += by_head, s += by_place, b += by_batch;
        if (n >= heads)
            n -= heads, s++;
        if (s >= job.length)
            s -= job.length, b++;
    }
}

/* Weight gradients from their parts. */
SKR_DEVICE void rope_add_parts(const skr_rope_job &job)
{
    wait_for_previous();
    let_next_start();
#pragma unroll
    for (int t = 0; t < 2; t++)
        if (job.dweight[t].data)
            add_parts<1>(job.dweight[t], 1, job.d, job.accumulate,
                         (const float *)((const char *)job.head.workspace + job.cuda.parts_at[t]), job.cuda.parts[t]);
}

#endif
