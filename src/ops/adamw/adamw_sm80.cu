/* adamw_sm80.cu - the AdamW step on the GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Types are run-time values: at 14 to 28 bytes an element there are issue slots to spare. What matters is that the
 * loads of all tensors are under way before the first value is used, so loads and unpacking are apart. A thread does V
 * elements of each tensor and is done: what comes and goes is faster than what stays and walks (norm_cuda.md). */
#include "../../cuda/device.cuh"
#include "adamw.h"

/* V elements of a tensor as they are in memory. */
template <int V> struct raw_vector {
    uint4 a, b;

    __device__ __forceinline__ void load(int type, const char *p)
    {
        if (V == 1) {
            a.x = type == SKR_F32 ? *(const uint32_t *)p : *(const uint16_t *)p;
        } else if (type == SKR_F32) {
            a = load16_once(p);
            if (V == 8)
                b = load16_once(p + 16);
        } else if (V == 8) {
            a = load16_once(p);
        } else {
            uint2 r = load8_once(p);
            a.x = r.x, a.y = r.y;
        }
    }

    __device__ __forceinline__ void unpack_to(int type, float *f) const
    {
        if (type == SKR_F32) {
            f[0] = __uint_as_float(a.x);
            if (V > 1)
                unpack<SKR_F32>(a, f);
            if (V == 8)
                unpack<SKR_F32>(b, f + 4);
            return;
        }
        const uint32_t word[4] = {a.x, a.y, a.z, a.w};
        float lo, hi;
#pragma unroll
        for (int k = 0; k < (V + 1) / 2; k++) {
            if (type == SKR_F16)
                unpack2<SKR_F16>(word[k], lo, hi);
            else
                unpack2<SKR_BF16>(word[k], lo, hi);
            f[2 * k] = lo;
            if (V > 1)
                f[2 * k + 1] = hi;
        }
    }
};

template <int V> SKR_DEVICE void store_vector(int type, char *p, const float *f)
{
    if constexpr (V == 1)
        any_store1(type, p, f[0]);
    else
        any_store<V>(type, p, f);
}

SKR_DEVICE char *at(const skr_rows &t, int type, const skr_row_space &rows, int64_t row, int64_t i)
{
    return (char *)t.data + (skr_row_offset(&rows, t.stride, row) + i) * skr_type_bytes(type);
}

/* sqrt within 2^-23 and a / b within 2 units in the last place, for all numbers: the IEEE ones take three times as many
 * instructions, and those of bf16 did not fit the time of its bytes. */
SKR_DEVICE float quick_sqrt(float f)
{
    float r;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(f));
    return r;
}

SKR_DEVICE float quick_divide(float a, float b)
{
    float r;
    asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}

/* V neighbours of a row from element i on. T: type of all tensors, without amsgrad; -1: what the job says. */
template <int T, int V> SKR_DEVICE void update(const skr_adamw_job &job, int64_t row, int64_t i, float factor)
{
    const bool amsgrad = T < 0 && job.max_sq.data != nullptr;
    const int gt = T < 0 ? job.grad.type : T, pt = T < 0 ? job.param.type : T, mt = T < 0 ? job.exp_avg.type : T;
    const int vt = T < 0 ? job.exp_avg_sq.type : T, tt = job.max_sq.type;
    char *gp = at(job.grad, gt, job.rows, row, i), *pp = at(job.param, pt, job.rows, row, i);
    char *mp = at(job.exp_avg, mt, job.rows, row, i), *vp = at(job.exp_avg_sq, vt, job.rows, row, i);
    char *tp = amsgrad ? at(job.max_sq, tt, job.rows, row, i) : nullptr;
    raw_vector<V> g_raw, p_raw, m_raw, v_raw, t_raw;
    g_raw.load(gt, gp);
    p_raw.load(pt, pp);
    m_raw.load(mt, mp);
    v_raw.load(vt, vp);
    if (amsgrad)
        t_raw.load(tt, tp);
    float g[V], p[V], m[V], v[V], top[V];
    g_raw.unpack_to(gt, g);
    p_raw.unpack_to(pt, p);
    m_raw.unpack_to(mt, m);
    v_raw.unpack_to(vt, v);
    if (amsgrad)
        t_raw.unpack_to(tt, top);
#pragma unroll
    for (int k = 0; k < V; k++) {
        float s = g[k] * factor;
        m[k] = __fmaf_rn(job.grad1, s, __fmul_rn(job.beta1, m[k]));
        v[k] = __fmaf_rn(__fmul_rn(job.grad2, s), s, __fmul_rn(job.beta2, v[k]));
        float under = v[k];
        if (amsgrad)
            under = top[k] = top[k] > v[k] || top[k] != top[k] ? top[k] : v[k];
        float denominator = __fmaf_rn(quick_sqrt(under), job.inv_root, job.eps);
        p[k] = __fmaf_rn(-job.step_size, quick_divide(m[k], denominator), __fmul_rn(p[k], job.decay));
    }
    store_vector<V>(pt, pp, p);
    store_vector<V>(mt, mp, m);
    store_vector<V>(vt, vp, v);
    if (amsgrad)
        store_vector<V>(tt, tp, top);
}

template <int T, int V> SKR_DEVICE void adamw(const skr_adamw_job &job)
{
    wait_for_previous();
    let_next_start();
    float root = job.sum_squares ? __fsqrt_rn(*job.sum_squares) : 0.0f;
    float factor = skr_adamw_factor(&job, root);
    for (int64_t tile = blockIdx.x; tile < job.rows.m * job.pieces; tile += gridDim.x) {
        int64_t row = job.rows.m == 1 ? 0 : tile / job.pieces;
        int64_t i = ((tile - row * job.pieces) * SKR_ADAMW_THREADS + threadIdx.x) * V;
        if (i + V <= job.n)
            update<T, V>(job, row, i, factor);
        else
            for (; i < job.n; i++)
                update<T, 1>(job, row, i, factor);
    }
}

#define KERNEL(name, t, v)                                                                                             \
    extern "C" __global__ void __launch_bounds__(SKR_ADAMW_THREADS)                                                    \
        skr_adamw_##name(const __grid_constant__ skr_adamw_job job)                                                    \
    {                                                                                                                  \
        adamw<t, v>(job);                                                                                              \
    }
KERNEL(1, -1, 1)
KERNEL(4, -1, 4)
KERNEL(8, -1, 8)
KERNEL(f32, SKR_F32, 4)
KERNEL(f16, SKR_F16, 8)
KERNEL(bf16, SKR_BF16, 8)
