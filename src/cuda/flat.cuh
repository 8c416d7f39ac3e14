/* flat.cuh - elementwise kernels over rows: one vector a thread, and the stores of quantised vectors.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_FLAT_CUH
#define SKR_FLAT_CUH

#include "device.cuh"

SKR_DEVICE int flat_row(const skr_flat &flat, uint32_t i, int &vector)
{
    uint32_t row = flat.mul ? __umulhi(i, flat.mul) >> flat.shift : flat.vectors == 1 ? i : 0;
    vector = (int)(i - row * flat.vectors);
    return (int)row;
}

/* max |f|, infinities counted, NaN not. */
template <int V> SKR_DEVICE float vector_top(const float *f)
{
    float top[2] = {0.0f, 0.0f};
#pragma unroll
    for (int c = 0; c < V; c++)
        top[c & 1] = fmaxf(top[c & 1], fabsf(f[c]));
    return fmaxf(top[0], top[1]);
}

template <int V> SKR_DEVICE float vector_finite_top(const float *f)
{
    float top = 0.0f;
#pragma unroll
    for (int c = 0; c < V; c++)
        top = fmaxf(top, finite_size(f[c]));
    return top;
}

/* Two i4 codes in a byte; NaN gives 0. */
SKR_DEVICE uint32_t nibbles2(float lo, float hi)
{
    int a, b;
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(a) : "f"(lo));
    asm("cvt.rni.s32.f32 %0, %1;" : "=r"(b) : "f"(hi));
    return (uint32_t)(min(max(a, -7), 7) & 15) | (uint32_t)(min(max(b, -7), 7) & 15) << 4;
}

/* Codes of V values, one byte each (i4: low and high nibble), stored where in says so. */
template <int TYPE, int V> SKR_DEVICE void store_codes(void *p, bool in, const float *f)
{
    if (TYPE == SKR_I4) {
        uint32_t word = 0;
#pragma unroll
        for (int c = 0; c < V; c += 2)
            word |= nibbles2(f[c], f[c + 1]) << 4 * c;
        if (in && V == 8)
            store4_once(p, word);
        else if (in)
            *(uint16_t *)p = (uint16_t)word;
        return;
    }
    uint32_t word[V / 4];
#pragma unroll
    for (int c = 0; c < V; c += 4)
        word[c / 4] = quant2<TYPE>(f[c], f[c + 1]) | quant2<TYPE>(f[c + 2], f[c + 3]) << 16;
    if (in && V == 8)
        store8_once(p, make_uint2(word[0], word[V / 4 - 1]));
    else if (in)
        store4_once(p, word[0]);
}

template <int V> SKR_DEVICE void store_codes_any(int type, void *p, bool in, const float *f)
{
    if (type == SKR_E4M3)
        store_codes<SKR_E4M3, V>(p, in, f);
    else if (type == SKR_E5M2)
        store_codes<SKR_E5M2, V>(p, in, f);
    else if (type == SKR_I8)
        store_codes<SKR_I8, V>(p, in, f);
    else
        store_codes<SKR_I4, V>(p, in, f);
}

/* V values divided by their scale, as codes. top: at least the largest of them in magnitude. */
template <int V>
SKR_DEVICE void quantise(int type, void *p, bool in, float scale, const skr_divider &by, float top, const float *f)
{
    float q[V];
    if (divides(scale, top)) {
#pragma unroll
        for (int c = 0; c < V; c++)
            q[c] = divide(by, f[c]);
    } else {
        skr_tamer t = tame(scale);
        skr_divider careful = divide_by(t.scale);
#pragma unroll
        for (int c = 0; c < V; c++)
            q[c] = divide(careful, tamed(t, f[c]));
    }
    store_codes_any<V>(type, p, in, q);
}

/* The largest of each of U numbers over LANES lanes, in U - 1 + log2(LANES / U) shuffles: every step halves the lanes
 * or the numbers. A lane gets that of number own_number<LANES, U>(). */
template <int LANES, int U> SKR_DEVICE float lanes_max(const float (&f)[U])
{
    if constexpr (U == 1) {
        return lanes_reduce<skr_max, LANES>(f[0]);
    } else {
        bool upper = threadIdx.x & (LANES / 2);
        float half[U / 2];
#pragma unroll
        for (int i = 0; i < U / 2; i++) {
            float keep = upper ? f[U / 2 + i] : f[i], give = upper ? f[i] : f[U / 2 + i];
            half[i] = fmaxf(keep, __shfl_xor_sync(0xffffffffu, give, LANES / 2));
        }
        return lanes_max<LANES / 2, U / 2>(half);
    }
}

template <int LANES, int U> SKR_DEVICE int own_number()
{
    return threadIdx.x % LANES / (LANES / U);
}

/* The scale of LANES neighbouring lanes' vectors; every lane of the warp comes here. */
template <int V, int LANES> SKR_DEVICE float lanes_scale(int type, float &top, const float *f)
{
    top = lanes_reduce<skr_max, LANES>(top);
    float amax = top;
    if (__any_sync(0xffffffffu, top > 3.402823466e38f)) {
        float finite = lanes_reduce<skr_max, LANES>(vector_finite_top<V>(f));
        amax = top > 3.402823466e38f ? finite : top;
    }
    return quant_scale(type, amax);
}

#endif
