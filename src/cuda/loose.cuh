/* loose.cuh - 16-byte vectors of rows that start at any element and have any width.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Columns belong to the same threads as in aligned rows, so a row's bits do not depend on where it lies. A vector is
 * put together from the two aligned ones that it lies in; at the ends of a row, where those reach beyond it, it is
 * taken by elements. Nothing outside of the row is touched. */
#ifndef SKR_LOOSE_CUH
#define SKR_LOOSE_CUH

#include "device.cuh"

/* Vector v of a row of n elements; what lies beyond the row is -infinity. */
template <int T> SKR_DEVICE uint4 load16_loose(const char *row, int64_t v, int64_t n)
{
    constexpr int V = skr_elem<T>::vec, B = skr_elem<T>::bytes;
    const char *p = row + v * 16;
    uint32_t off = (uint32_t)(uintptr_t)p & 15;
    if (off == 0 && v * V + V <= n)
        return load16_once(p);
    if (v > 0 && (v + 2) * V <= n) {
        uint4 a = load16_once(p - off), b = load16_once(p - off + 16);
        if (off & 8)
            a.x = a.z, a.y = a.w, a.z = b.x, a.w = b.y, b.x = b.z, b.y = b.w;
        if (off & 4)
            a.x = a.y, a.y = a.z, a.z = a.w, a.w = b.x, b.x = b.y;
        if (B == 2 && off & 2) {
            a.x = __funnelshift_r(a.x, a.y, 16), a.y = __funnelshift_r(a.y, a.z, 16);
            a.z = __funnelshift_r(a.z, a.w, 16), a.w = __funnelshift_r(a.w, b.x, 16);
        }
        return a;
    }
    float f[V];
#pragma unroll
    for (int c = 0; c < V; c++)
        f[c] = v * V + c < n ? any_load1(T, p + c * B) : -INFINITY;
    return pack<T>(f);
}

/* Elements first .. last - 1 of a packed vector. */
template <int T> SKR_DEVICE void store_elements(char *p, const uint4 &raw, int first, int last)
{
    constexpr int V = skr_elem<T>::vec, B = skr_elem<T>::bytes;
    const uint32_t word[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int c = 0; c < V; c++)
        if (c >= first && c < last) {
            if (B == 4)
                *(uint32_t *)(p + c * 4) = word[c & 3];
            else
                *(uint16_t *)(p + c * 2) = (uint16_t)(word[c / 2 & 3] >> 16 * (c & 1));
        }
}

/* Stores vector v of the row, all lanes of a warp together, neighbours with neighbouring vectors: each writes the
 * aligned 16 bytes that its vector begins in, with the end of the one before. What has no such neighbour goes by
 * elements. A vector's bytes are written in this step only, so dlogits may be logits. in: this lane has a vector. */
template <int T> SKR_DEVICE void store16_loose(char *row, int64_t v, int64_t n, bool in, uint4 raw)
{
    constexpr int V = skr_elem<T>::vec, B = skr_elem<T>::bytes;
    char *p = row + v * 16;
    uint32_t off = (uint32_t)(uintptr_t)p & 15, lane = threadIdx.x & 31;
    bool whole = in && v * V + V <= n;
    bool before = __shfl_up_sync(0xffffffffu, whole, 1) && lane > 0;
    bool after = __shfl_down_sync(0xffffffffu, whole, 1) && lane < 31;
    uint4 b;
    b.x = __shfl_up_sync(0xffffffffu, raw.x, 1), b.y = __shfl_up_sync(0xffffffffu, raw.y, 1);
    b.z = __shfl_up_sync(0xffffffffu, raw.z, 1), b.w = __shfl_up_sync(0xffffffffu, raw.w, 1);
    if (off == 0 || !whole) {
        if (whole)
            store16_once(p, raw);
        else if (in)
            store_elements<T>(p, raw, 0, (int)(n - v * V));
        return;
    }
    int head = (int)(16 - off) / B; /* elements up to the next aligned address */
    if (before) {                   /* the last off bytes of b, then the first of raw */
        uint4 a = raw;
        if (B == 2 && off & 2) { /* shift b and raw up by two bytes: now a multiple of four is left */
            a.w = __funnelshift_l(raw.z, raw.w, 16), a.z = __funnelshift_l(raw.y, raw.z, 16);
            a.y = __funnelshift_l(raw.x, raw.y, 16), a.x = __funnelshift_l(b.w, raw.x, 16);
            b.w = __funnelshift_l(b.z, b.w, 16), b.z = __funnelshift_l(b.y, b.z, 16);
            b.y = __funnelshift_l(b.x, b.y, 16);
        }
        if (off & 4)
            a.w = a.z, a.z = a.y, a.y = a.x, a.x = b.w, b.w = b.z, b.z = b.y;
        if (off & 8)
            a.w = a.y, a.z = a.x, a.y = b.w, a.x = b.z;
        store16_once(p - off, a);
    } else {
        store_elements<T>(p, raw, 0, head);
    }
    if (!after)
        store_elements<T>(p, raw, head, V);
}

#endif
