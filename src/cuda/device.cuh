/* device.cuh - the vocabulary that CUDA kernels are written in: types, 16-byte vectors, asynchronous copies,
 * reductions. SPDX-License-Identifier: Apache-2.0
 *
 * Everything here runs on sm_80 and newer; what needs Hopper is in sm90.cuh. Nothing depends on the CUDA runtime's
 * headers beyond the language, and no conversion depends on compiler flags: each is the instruction that is written.
 * Float types are template arguments (SKR_F32, SKR_F16, SKR_BF16) where the loop is hot, and a run-time value that is
 * the same for the whole grid (the functions named any_...) where it is not: such a branch costs an issue slot, and a
 * row kernel has slots to spare. */
#ifndef SKR_CUDA_DEVICE_CUH
#define SKR_CUDA_DEVICE_CUH

#include "../core/job.h"

#define SKR_DEVICE static __device__ __forceinline__

/* ---------------------------------------------------------------- float types */

template <int T> struct skr_elem {
    static constexpr int bytes = T == SKR_F32 ? 4 : 2;
    static constexpr int vec = 16 / bytes; /* elements in 16 bytes */
};

/* Two 16-bit values in one word, the lower address in the low half. */
template <int T> SKR_DEVICE void unpack2(uint32_t word, float &lo, float &hi)
{
    if (T == SKR_BF16) {
        lo = __uint_as_float(word << 16);
        hi = __uint_as_float(word & 0xffff0000u);
    } else {
        asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
            : "=f"(lo), "=f"(hi)
            : "r"(word));
    }
}

template <int T> SKR_DEVICE uint32_t pack2(float lo, float hi)
{
    uint32_t word;
    if (T == SKR_BF16)
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(hi), "f"(lo));
    else
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(hi), "f"(lo));
    return word;
}

/* 16 bytes of T to and from f32. */
template <int T> SKR_DEVICE void unpack(const uint4 &raw, float *f)
{
    if (T == SKR_F32) {
        f[0] = __uint_as_float(raw.x), f[1] = __uint_as_float(raw.y);
        f[2] = __uint_as_float(raw.z), f[3] = __uint_as_float(raw.w);
    } else {
        unpack2<T>(raw.x, f[0], f[1]), unpack2<T>(raw.y, f[2], f[3]);
        unpack2<T>(raw.z, f[4], f[5]), unpack2<T>(raw.w, f[6], f[7]);
    }
}

template <int T> SKR_DEVICE uint4 pack(const float *f)
{
    if (T == SKR_F32)
        return make_uint4(__float_as_uint(f[0]), __float_as_uint(f[1]), __float_as_uint(f[2]), __float_as_uint(f[3]));
    return make_uint4(pack2<T>(f[0], f[1]), pack2<T>(f[2], f[3]), pack2<T>(f[4], f[5]), pack2<T>(f[6], f[7]));
}

/* The value after a trip through a type, in f32 again. */
template <int T> SKR_DEVICE float rounded(float f)
{
    if (T == SKR_F32)
        return f;
    float lo, hi;
    unpack2<T>(pack2<T>(f, 0.0f), lo, hi);
    return lo;
}

SKR_DEVICE float any_rounded(int type, float f)
{
    return type == SKR_F32 ? f : type == SKR_F16 ? rounded<SKR_F16>(f) : rounded<SKR_BF16>(f);
}

/* ---------------------------------------------------------------- global memory */

/* Read once. Not the read-only path: outputs may be the same memory. */
#ifndef SKR_LOAD_ONCE
#define SKR_LOAD_ONCE "ld.global"
#endif
SKR_DEVICE uint4 load16_once(const void *p)
{
    uint4 v;
    asm volatile(SKR_LOAD_ONCE ".v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
    return v;
}

SKR_DEVICE uint2 load8_once(const void *p)
{
    uint2 v;
    asm volatile(SKR_LOAD_ONCE ".v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
    return v;
}

/* Read by every row: stays in L1. */
SKR_DEVICE uint4 load16(const void *p)
{
    return *(const uint4 *)p;
}

SKR_DEVICE uint2 load8(const void *p)
{
    return *(const uint2 *)p;
}

/* Written once and not read back by this kernel. A plain store: the streaming hint costs 1 % of the copy rate. */
#ifndef SKR_STORE_ONCE
#define SKR_STORE_ONCE "st.global"
#endif
SKR_DEVICE void store16_once(void *p, const uint4 &v)
{
    asm volatile(SKR_STORE_ONCE ".v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

SKR_DEVICE void store8_once(void *p, const uint2 &v)
{
    asm volatile(SKR_STORE_ONCE ".v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}

SKR_DEVICE void store4_once(void *p, uint32_t v)
{
    asm volatile(SKR_STORE_ONCE ".u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}

/* Moves the values behind the compiler's back: what is computed from them afterwards is not computed before and kept.
 */
SKR_DEVICE void opaque(uint4 &v)
{
    asm volatile("" : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w));
}

/* ---------------------------------------------------------------- vectors of V elements of a run-time float type */

/* p is aligned to min(16, V * element bytes). V is 4 or 8. */
template <int V> SKR_DEVICE void any_load(int type, const void *p, float *f)
{
    if (type == SKR_F32) {
#pragma unroll
        for (int k = 0; k < V; k += 4)
            unpack<SKR_F32>(load16((const char *)p + 4 * k), f + k);
    } else if (V == 8) {
        uint4 raw = load16(p);
        if (type == SKR_F16)
            unpack<SKR_F16>(raw, f);
        else
            unpack<SKR_BF16>(raw, f);
    } else {
        uint2 raw = load8(p);
        if (type == SKR_F16)
            unpack2<SKR_F16>(raw.x, f[0], f[1]), unpack2<SKR_F16>(raw.y, f[2], f[3]);
        else
            unpack2<SKR_BF16>(raw.x, f[0], f[1]), unpack2<SKR_BF16>(raw.y, f[2], f[3]);
    }
}

template <int V> SKR_DEVICE void any_store(int type, void *p, const float *f)
{
    if (type == SKR_F32) {
#pragma unroll
        for (int k = 0; k < V; k += 4)
            store16_once((char *)p + 4 * k, pack<SKR_F32>(f + k));
    } else if (V == 8) {
        store16_once(p, type == SKR_F16 ? pack<SKR_F16>(f) : pack<SKR_BF16>(f));
    } else {
        uint2 raw = type == SKR_F16 ? make_uint2(pack2<SKR_F16>(f[0], f[1]), pack2<SKR_F16>(f[2], f[3]))
                                    : make_uint2(pack2<SKR_BF16>(f[0], f[1]), pack2<SKR_BF16>(f[2], f[3]));
        store8_once(p, raw);
    }
}

/* Rounds to the type, stores if asked to, and leaves the rounded values in f. */
template <int V> SKR_DEVICE void any_store_rounded(int type, void *p, bool write, float *f)
{
    if (type == SKR_F32) {
        if (write)
            any_store<V>(type, p, f);
        return;
    }
    uint32_t word[V / 2];
#pragma unroll
    for (int k = 0; k < V / 2; k++)
        word[k] = type == SKR_F16 ? pack2<SKR_F16>(f[2 * k], f[2 * k + 1]) : pack2<SKR_BF16>(f[2 * k], f[2 * k + 1]);
    if (write && V == 8)
        store16_once(p, make_uint4(word[0], word[1], word[V / 2 - 2], word[V / 2 - 1]));
    else if (write)
        store8_once(p, make_uint2(word[0], word[1]));
    if (type == SKR_F16) {
#pragma unroll
        for (int k = 0; k < V / 2; k++)
            unpack2<SKR_F16>(word[k], f[2 * k], f[2 * k + 1]);
    } else {
#pragma unroll
        for (int k = 0; k < V / 2; k++)
            unpack2<SKR_BF16>(word[k], f[2 * k], f[2 * k + 1]);
    }
}

/* One element, aligned to itself. */
SKR_DEVICE float any_load1(int type, const void *p)
{
    if (type == SKR_F32)
        return *(const float *)p;
    uint32_t raw = *(const uint16_t *)p;
    float lo, hi;
    if (type == SKR_F16)
        unpack2<SKR_F16>(raw, lo, hi);
    else
        unpack2<SKR_BF16>(raw, lo, hi);
    return lo;
}

SKR_DEVICE void any_store1(int type, void *p, float f)
{
    if (type == SKR_F32)
        *(float *)p = f;
    else
        *(uint16_t *)p = (uint16_t)(type == SKR_F16 ? pack2<SKR_F16>(f, 0.0f) : pack2<SKR_BF16>(f, 0.0f));
}

#include "quant.cuh"

/* ---------------------------------------------------------------- asynchronous copies to shared memory */

SKR_DEVICE uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

SKR_DEVICE void copy_async16(uint32_t to, const void *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* The same, or zeros; `from` is not read then. */
SKR_DEVICE void copy_async16_or_zero(uint32_t to, const void *from, bool there)
{
    int bytes = there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

SKR_DEVICE void copy_async8(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}

SKR_DEVICE void copy_async8_or_zero(uint32_t to, const void *from, bool there)
{
    int bytes = there ? 8 : 0;
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

SKR_DEVICE void copy_async4(uint32_t to, const void *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

/* Zero where any of the bits is set. */
SKR_DEVICE void copy_async4_unless(uint32_t to, const void *from, uint32_t bits)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\ncp.async.ca.shared.global [%0], [%1], 4, p;\n}" ::"r"(to),
                 "l"(from), "r"(bits)
                 : "memory");
}

/* The first bytes of 16, and zeros. */
SKR_DEVICE void copy_async16_part(uint32_t to, const void *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* L2 is asked for the line. */
SKR_DEVICE void prefetch_l2(const void *from)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from));
}

SKR_DEVICE void copy_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* All but the newest N groups of this thread have arrived. */
template <int N> SKR_DEVICE void copy_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* Volatile, so that a value read here is never read again later, when the slot may hold the next row. */
SKR_DEVICE uint4 shared_load16(uint32_t p)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(p)
                 : "memory");
    return v;
}

SKR_DEVICE uint2 shared_load8(uint32_t p)
{
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(p) : "memory");
    return v;
}

SKR_DEVICE float2 shared_load8f(uint32_t p)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(p) : "memory");
    return v;
}

SKR_DEVICE float shared_load4(uint32_t p)
{
    float f;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(f) : "r"(p) : "memory");
    return f;
}

SKR_DEVICE void shared_store16(uint32_t p, const uint4 &v)
{
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(p), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
                 : "memory");
}

SKR_DEVICE void shared_store4(uint32_t p, uint32_t v)
{
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(p), "r"(v) : "memory");
}

/* Of floats that stay floats: a reinterpretation would reach back into sums that the tensor cores own. */
SKR_DEVICE void shared_store16(uint32_t p, float a, float b, float c, float d)
{
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(p), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}

SKR_DEVICE void shared_store8(uint32_t p, float a, float b)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(p), "f"(a), "f"(b) : "memory");
}

/* V elements of a run-time float type into a slot of V * element bytes, and out of it. */
template <int V> SKR_DEVICE void any_copy_async(int type, uint32_t to, const void *from)
{
    if (type == SKR_F32) {
#pragma unroll
        for (int k = 0; k < V; k += 4)
            copy_async16(to + 4 * k, (const char *)from + 4 * k);
    } else if (V == 8) {
        copy_async16(to, from);
    } else {
        copy_async8(to, from);
    }
}

template <int V> SKR_DEVICE void any_shared_load(int type, uint32_t p, float *f)
{
    if (type == SKR_F32) {
#pragma unroll
        for (int k = 0; k < V; k += 4)
            unpack<SKR_F32>(shared_load16(p + 4 * k), f + k);
    } else if (V == 8) {
        uint4 raw = shared_load16(p);
        if (type == SKR_F16)
            unpack<SKR_F16>(raw, f);
        else
            unpack<SKR_BF16>(raw, f);
    } else {
        uint2 raw = shared_load8(p);
        if (type == SKR_F16)
            unpack2<SKR_F16>(raw.x, f[0], f[1]), unpack2<SKR_F16>(raw.y, f[2], f[3]);
        else
            unpack2<SKR_BF16>(raw.x, f[0], f[1]), unpack2<SKR_BF16>(raw.y, f[2], f[3]);
    }
}

/* ---------------------------------------------------------------- reductions */

struct skr_sum {
    SKR_DEVICE float join(float a, float b)
    {
        return a + b;
    }
};
struct skr_max {
    SKR_DEVICE float join(float a, float b)
    {
        return fmaxf(a, b);
    }
};

/* Over aligned groups of LANES lanes; every lane gets the result. A butterfly: both partners add the same two numbers,
 * so all lanes agree to the bit. */
template <class Op, int LANES> SKR_DEVICE float lanes_reduce(float f)
{
#pragma unroll
    for (int k = LANES / 2; k > 0; k /= 2)
        f = Op::join(f, __shfl_xor_sync(0xffffffffu, f, k));
    return f;
}

/* Two reductions over a warp in the shuffles of one: lanes 0 to 15 get that of a, the others that of b. */
template <class A, class B> SKR_DEVICE float warp_reduce2(float a, float b)
{
    bool upper = threadIdx.x & 16;
    float mine = upper ? b : a, other = __shfl_xor_sync(0xffffffffu, upper ? a : b, 16);
    mine = upper ? B::join(mine, other) : A::join(mine, other);
#pragma unroll
    for (int k = 8; k > 0; k /= 2) {
        other = __shfl_xor_sync(0xffffffffu, mine, k);
        mine = upper ? B::join(mine, other) : A::join(mine, other);
    }
    return mine;
}

/* Joins the partials of a block's warps; every thread reads all of them, in the same order. */
template <class Op, int WARPS> SKR_DEVICE float gather(const float *partial)
{
    static_assert(WARPS == 1 || WARPS == 2 || WARPS % 4 == 0, "partials are read four at a time");
    if (WARPS == 1)
        return partial[0];
    if (WARPS == 2)
        return Op::join(partial[0], partial[1]);
    const float4 *four = (const float4 *)partial;
    float4 a = four[0];
#pragma unroll
    for (int k = 1; k < WARPS / 4; k++) {
        float4 b = four[k];
        a.x = Op::join(a.x, b.x), a.y = Op::join(a.y, b.y), a.z = Op::join(a.z, b.z), a.w = Op::join(a.w, b.w);
    }
    return Op::join(Op::join(a.x, a.y), Op::join(a.z, a.w));
}

/* Over a block of WARPS warps; partial holds WARPS floats, 16-byte aligned. One barrier: the caller alternates between
 * two areas, so that the next write cannot meet a late reader. */
template <class Op, int WARPS> SKR_DEVICE float block_reduce(float f, float *partial)
{
    f = lanes_reduce<Op, 32>(f);
    if (WARPS == 1)
        return f;
    if ((threadIdx.x & 31) == 0)
        partial[threadIdx.x / 32] = f;
    __syncthreads();
    return gather<Op, WARPS>(partial);
}

/* ---------------------------------------------------------------- programmatic dependent launch */

/* Nothing that an earlier kernel may write (data, parameters, workspace) is touched before this; every thread of every
 * block passes it. */
SKR_DEVICE void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#else /* for sm_90 all the same: tools/portable_fatbin.sh */
    asm volatile("// sm_90: griddepcontrol.wait;" ::: "memory");
#endif
}

/* The next kernel's blocks may be placed as room appears; its own wait still holds it until this grid has finished. */
SKR_DEVICE void let_next_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#else
    asm volatile("// sm_90: griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---------------------------------------------------------------- rows */

/* The indices of a row, for fewer than 2^31 rows: 32-bit division (a 64-bit one is some hundred instructions and as
 * many registers), once for all tensors. */
struct skr_row {
    int at[SKR_ROW_DIMS]; /* zeros beyond n_dims: the strides there do not matter */
    bool flat;            /* n_dims is 1 */
};

SKR_DEVICE skr_row row_of(const skr_row_space &space, int row)
{
    skr_row r = {{row, 0, 0, 0}, space.n_dims == 1};
    if (r.flat)
        return r;
    uint32_t rest = (uint32_t)row;
#pragma unroll
    for (int k = SKR_ROW_DIMS - 1; k > 0; k--)
        if (k < space.n_dims) {
            uint32_t next = rest / (uint32_t)space.dims[k];
            r.at[k] = (int)(rest - next * (uint32_t)space.dims[k]);
            rest = next;
        }
    r.at[0] = (int)rest;
    return r;
}

template <class P> SKR_DEVICE P *row_at(const skr_rows &t, const skr_row &row, int element_bytes)
{
    int64_t offset = row.at[0] * t.stride[0];
    if (!row.flat) /* three 64-bit products for each tensor and row, jumped over */
#pragma unroll
        for (int k = 1; k < SKR_ROW_DIMS; k++)
            offset += (int64_t)row.at[k] * t.stride[k];
    return (P *)((char *)t.data + offset * element_bytes);
}

SKR_DEVICE int param_row(int64_t heads, int row)
{
    return heads == 1 ? 0 : (int)((uint32_t)row % (uint32_t)heads);
}

#endif
