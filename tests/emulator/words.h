/* words.h - CUDA's words and the PTX instructions that the kernels use, in C++ for this machine.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Included before each rewritten kernel file. An instruction is a function emu_<its name>(outputs, inputs). */
#ifndef EMULATOR_WORDS_H
#define EMULATOR_WORDS_H

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <type_traits>
#include <utility>

#include "machine.h"

#define __device__
#define __global__ __attribute__((visibility("default")))
#define __host__
#define __grid_constant__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __shared__    static
#define __align__(n)  __attribute__((aligned(n)))
#ifndef __CUDA_ARCH__
#define __CUDA_ARCH__ 900
#endif
#define _Alignas(n) alignas(n)

struct __align__(8) float2
{
    float x, y;
};
struct __align__(16) float4
{
    float x, y, z, w;
};
struct __align__(16) int4
{
    int x, y, z, w;
};
struct __align__(8) uint2
{
    unsigned x, y;
};
struct __align__(16) uint4
{
    unsigned x, y, z, w;
};
#define MAKE2(type, part)                                                                                              \
    inline type make_##type(part a, part b)                                                                            \
    {                                                                                                                  \
        return {a, b};                                                                                                 \
    }
#define MAKE4(type, part)                                                                                              \
    inline type make_##type(part a, part b, part c, part d)                                                            \
    {                                                                                                                  \
        return {a, b, c, d};                                                                                           \
    }
MAKE2(float2, float)
MAKE2(uint2, unsigned)
MAKE4(float4, float)
MAKE4(int4, int)
MAKE4(uint4, unsigned)

/* ---------------------------------------------------------------- arithmetic */

template <class A, class B> inline std::common_type_t<A, B> min(A a, B b)
{
    typedef std::common_type_t<A, B> T;
    return (T)a < (T)b ? (T)a : (T)b;
}
template <class A, class B> inline std::common_type_t<A, B> max(A a, B b)
{
    typedef std::common_type_t<A, B> T;
    return (T)a > (T)b ? (T)a : (T)b;
}

#define WORD(head, expression)                                                                                         \
    inline head                                                                                                        \
    {                                                                                                                  \
        return expression;                                                                                             \
    }
WORD(float __fadd_rn(float a, float b), a + b)
WORD(float __fsub_rn(float a, float b), a - b)
WORD(float __fmul_rn(float a, float b), a *b)
WORD(float __fdiv_rn(float a, float b), a / b)
WORD(float __fdividef(float a, float b), a / b)
WORD(float __fmaf_rn(float a, float b, float c), fmaf(a, b, c))
WORD(float __frcp_rn(float a), 1 / a)
WORD(float __fsqrt_rn(float a), sqrtf(a))
WORD(float __frsqrt_rn(float a), (float)(1 / sqrt((double)a)))
WORD(uint32_t __umulhi(uint32_t a, uint32_t b), (uint32_t)((uint64_t)a *b >> 32))
WORD(int __clz(int x), x ? __builtin_clz((unsigned)x) : 32)
WORD(int __ffs(int x), __builtin_ffs(x))
WORD(int __popc(unsigned x), __builtin_popcount(x))

inline float __uint_as_float(uint32_t u)
{
    float f;
    memcpy(&f, &u, 4);
    return f;
}
inline uint32_t __float_as_uint(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
WORD(int __float_as_int(float f), (int)__float_as_uint(f))
WORD(float __int_as_float(int i), __uint_as_float((uint32_t)i))

inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t select)
{
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++)
        r |= (uint32_t)(both >> 8 * (select >> 4 * i & 7) & 0xff) << 8 * i;
    return r;
}
inline uint32_t __funnelshift_lc(uint32_t low, uint32_t high, uint32_t shift)
{
    uint64_t both = (uint64_t)high << 32 | low;
    return (uint32_t)(both << (shift > 32 ? 32 : shift) >> 32);
}
template <class A, class B> inline A atomicAdd(A *p, B v)
{
    A old = *p;
    *p = old + (A)v;
    return old;
}

#define INSTRUCTION(name, statement, ...)                                                                              \
    inline void emu_##name(__VA_ARGS__)                                                                                \
    {                                                                                                                  \
        statement;                                                                                                     \
    }
INSTRUCTION(ex2_approx_f32, y = exp2f(x), float &y, float x)
INSTRUCTION(ex2_approx_ftz_f32, y = exp2f(x), float &y, float x)
INSTRUCTION(rcp_approx_ftz_f32, y = 1 / x, float &y, float x)
INSTRUCTION(sqrt_approx_f32, y = sqrtf(x), float &y, float x)
INSTRUCTION(rsqrt_approx_f32, y = __frsqrt_rn(x), float &y, float x)
INSTRUCTION(div_full_f32, y = a / b, float &y, float a, float b)
INSTRUCTION(min_NaN_f32, r = a != a ? a : b != b ? b : a < b ? a : b, float &r, float a, float b)
INSTRUCTION(max_NaN_f32, r = a != a ? a : b != b ? b : a > b ? a : b, float &r, float a, float b)

/* ---------------------------------------------------------------- types */

/* The nearest number with that many bits behind the first, whose exponents begin at 1 - bias; ties to even. */
inline uint32_t emu_narrow(float f, int bits, int bias, double most, uint32_t beyond, uint32_t nan, int sign_at)
{
    uint32_t sign = __float_as_uint(f) >> 31 << sign_at;
    double a = fabs((double)f);
    int e;
    if (f != f)
        return sign | nan;
    frexp(a, &e);
    e = a == 0 || e - 1 < 1 - bias ? 1 - bias : e - 1;
    double q = nearbyint(ldexp(a, bits - e));
    if (q >= ldexp(1, bits + 1))
        q /= 2, e++;
    if (ldexp(q, e - bits) > most)
        return sign | beyond;
    bool normal = q >= ldexp(1, bits);
    return sign | (normal ? (uint32_t)(e + bias) << bits | ((uint32_t)q & ((1u << bits) - 1)) : (uint32_t)q);
}
inline float emu_widen(uint32_t code, int bits, int bias, int sign_at)
{
    int e = (int)((code & ((1u << sign_at) - 1)) >> bits);
    uint32_t m = code & ((1u << bits) - 1);
    float v = e ? ldexpf((float)(m | 1u << bits), e - bias - bits) : ldexpf((float)m, 1 - bias - bits);
    return code >> sign_at & 1 ? -v : v;
}

WORD(float emu_of_bf16(uint32_t h), __uint_as_float(h << 16))
inline uint32_t emu_to_bf16(float f)
{
    uint32_t u = __float_as_uint(f);
    return f != f ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
const float *emu_halves(); /* of every code */
WORD(float emu_of_f16(uint32_t h), emu_halves()[h & 0xffff])
WORD(uint32_t emu_to_f16(float f), emu_narrow(f, 10, 15, 65504, 0x7c00, 0x7fff, 15))
inline float emu_of_e4m3(uint32_t c)
{
    return (c & 0x7f) == 0x7f ? NAN : emu_widen(c, 3, 7, 7);
}
WORD(float emu_of_e5m2(uint32_t c), emu_of_f16(c << 8))
WORD(uint32_t emu_to_e4m3(float f), emu_narrow(f, 3, 7, 448, 0x7e, 0x7f, 7))
WORD(uint32_t emu_to_e5m2(float f), emu_narrow(f, 2, 15, 57344, 0x7b, 0x7f, 7))
/* Ties away from zero. */
inline uint32_t emu_to_tf32(float f)
{
    uint32_t u = __float_as_uint(f);
    return f != f ? 0x7fffffff : fabsf(f) > 3.4e38f ? u : (u + 0x1000) & 0xffffe000;
}

INSTRUCTION(cvt_rn_bf16x2_f32, r = emu_to_bf16(hi) << 16 | emu_to_bf16(lo), uint32_t &r, float hi, float lo)
INSTRUCTION(cvt_rn_f16x2_f32, r = emu_to_f16(hi) << 16 | emu_to_f16(lo), uint32_t &r, float hi, float lo)
inline void emu_cvt_f32_f16(float &lo, float &hi, uint32_t two)
{
    lo = emu_of_f16(two & 0xffff);
    hi = emu_of_f16(two >> 16);
}
INSTRUCTION(cvt_rn_f16x2_e4m3x2, r = emu_to_f16(emu_of_e4m3(c & 255)) | emu_to_f16(emu_of_e4m3(c >> 8)) << 16,
            uint32_t &r, uint16_t c)
INSTRUCTION(cvt_rn_f16x2_e5m2x2, r = (c & 255u) << 8 | (c >> 8u) << 24, uint32_t &r, uint16_t c)
INSTRUCTION(cvt_rn_satfinite_e4m3x2_f32, r = (uint16_t)(emu_to_e4m3(hi) << 8 | emu_to_e4m3(lo)), uint16_t &r, float hi,
            float lo)
INSTRUCTION(cvt_rn_satfinite_e5m2x2_f32, r = (uint16_t)(emu_to_e5m2(hi) << 8 | emu_to_e5m2(lo)), uint16_t &r, float hi,
            float lo)
INSTRUCTION(cvt_rna_tf32_f32, r = emu_to_tf32(f), uint32_t &r, float f)
template <class I> inline void emu_cvt_rni_s32_f32(I &r, float f)
{
    r = (I)(f != f ? 0 : f >= 0x1p31f ? INT32_MAX : f < -0x1p31f ? INT32_MIN : (int32_t)nearbyintf(f));
}

/* a * b + c of each pair of halves. */
template <bool BF16> uint32_t emu_fma_halves(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t r = 0;
    for (int i = 0; i < 32; i += 16) {
        const auto value = [i](uint32_t h) {
            return (double)(BF16 ? emu_of_bf16(h >> i & 0xffff) : emu_of_f16(h >> i & 0xffff));
        };
        float f = (float)(value(a) * value(b) + value(c));
        r |= (BF16 ? emu_to_bf16(f) : emu_to_f16(f)) << i;
    }
    return r;
}
/* With the table 0x6a, the only one that is used. */
INSTRUCTION(lop3_b32, r = (a & b) ^ c, uint32_t &r, uint32_t a, uint32_t b, uint32_t c)
INSTRUCTION(fma_rn_bf16x2, r = emu_fma_halves<true>(a, b, c), uint32_t &r, uint32_t a, uint32_t b, uint32_t c)
INSTRUCTION(fma_rn_f16x2, r = emu_fma_halves<false>(a, b, c), uint32_t &r, uint32_t a, uint32_t b, uint32_t c)

/* The larger (smaller) of each pair of halves; a number where the other is NaN. */
template <bool BF16, bool LARGER> uint32_t emu_select_halves(uint32_t a, uint32_t b)
{
    uint32_t r = 0;
    for (int i = 0; i < 32; i += 16) {
        uint32_t x = a >> i & 0xffff, y = b >> i & 0xffff;
        float p = BF16 ? emu_of_bf16(x) : emu_of_f16(x), q = BF16 ? emu_of_bf16(y) : emu_of_f16(y);
        r |= (p != p ? y : q != q ? x : (LARGER ? p > q : p < q) ? x : y) << i;
    }
    return r;
}
#define HALVES uint32_t &r, uint32_t a, uint32_t b
INSTRUCTION(max_bf16x2, r = (emu_select_halves<true, true>(a, b)), HALVES)
INSTRUCTION(min_bf16x2, r = (emu_select_halves<true, false>(a, b)), HALVES)
INSTRUCTION(max_f16x2, r = (emu_select_halves<false, true>(a, b)), HALVES)
INSTRUCTION(min_f16x2, r = (emu_select_halves<false, false>(a, b)), HALVES)

/* ---------------------------------------------------------------- memory */

inline uint32_t __cvta_generic_to_shared(const void *p)
{
    return emu_shared(p);
}
template <class V> inline V emu_read(const void *p)
{
    V v;
    emu_need_aligned((uintptr_t)p, sizeof v);
    emu_need_global(p, sizeof v);
    memcpy(&v, p, sizeof v);
    return v;
}
template <class V> inline void emu_write(void *p, const V &v)
{
    emu_need_aligned((uintptr_t)p, sizeof v);
    emu_need_global(p, sizeof v);
    memcpy(p, &v, sizeof v);
}
template <class V> inline V emu_read_shared(uint32_t at)
{
    V v;
    emu_need_aligned(at, sizeof v);
    memcpy(&v, emu_at(at), sizeof v);
    return v;
}
template <class V> inline void emu_write_shared(uint32_t at, const V &v)
{
    emu_need_aligned(at, sizeof v);
    memcpy(emu_at(at), &v, sizeof v);
}
#define FOUR uint32_t &a, uint32_t &b, uint32_t &c, uint32_t &d
inline void emu_ld_global_v4_u32(FOUR, const void *p)
{
    uint4 v = emu_read<uint4>(p);
    a = v.x, b = v.y, c = v.z, d = v.w;
}
inline void emu_ld_global_v2_u32(uint32_t &a, uint32_t &b, const void *p)
{
    uint2 v = emu_read<uint2>(p);
    a = v.x, b = v.y;
}
inline void emu_red_relaxed_gpu_global_add_v4_f32(float4 *p, float a, float b, float c, float d)
{
    atomicAdd(&p->x, a), atomicAdd(&p->y, b), atomicAdd(&p->z, c), atomicAdd(&p->w, d);
}
INSTRUCTION(ld_global_u32, a = emu_read<uint32_t>(p), uint32_t &a, const void *p)
INSTRUCTION(st_global_v4_u32, emu_write(p, make_uint4(a, b, c, d)), void *p, uint32_t a, uint32_t b, uint32_t c,
            uint32_t d)
INSTRUCTION(st_global_v4_s32, emu_write(p, make_int4(a, b, c, d)), void *p, int a, int b, int c, int d)
INSTRUCTION(st_global_v4_f32, emu_write(p, make_float4(a, b, c, d)), void *p, float a, float b, float c, float d)
INSTRUCTION(st_global_v2_u32, emu_write(p, make_uint2(a, b)), void *p, uint32_t a, uint32_t b)
INSTRUCTION(st_global_v2_s32, emu_write(p, make_uint2((uint32_t)a, (uint32_t)b)), void *p, int a, int b)
INSTRUCTION(st_global_v2_f32, emu_write(p, make_float2(a, b)), void *p, float a, float b)
INSTRUCTION(st_global_u32, emu_write(p, a), void *p, uint32_t a)
inline void emu_ld_shared_v4_u32(FOUR, uint32_t p)
{
    uint4 v = emu_read_shared<uint4>(p);
    a = v.x, b = v.y, c = v.z, d = v.w;
}
inline void emu_ld_shared_v2_u32(uint32_t &a, uint32_t &b, uint32_t p)
{
    uint2 v = emu_read_shared<uint2>(p);
    a = v.x, b = v.y;
}
inline void emu_ld_shared_v2_f32(float &a, float &b, uint32_t p)
{
    float2 v = emu_read_shared<float2>(p);
    a = v.x, b = v.y;
}
INSTRUCTION(ld_shared_f32, f = emu_read_shared<float>(p), float &f, uint32_t p)
INSTRUCTION(st_shared_v4_u32, emu_write_shared(p, make_uint4(a, b, c, d)), uint32_t p, uint32_t a, uint32_t b,
            uint32_t c, uint32_t d)
INSTRUCTION(st_shared_v2_f32, emu_write_shared(p, make_float2(a, b)), uint32_t p, float a, float b)
INSTRUCTION(st_shared_u32, emu_write_shared(p, a), uint32_t p, uint32_t a)
INSTRUCTION(st_shared_v4_f32, emu_write_shared(p, make_float4(a, b, c, d)), uint32_t p, float a, float b, float c,
            float d)

#define COPY(name, size)                                                                                               \
    INSTRUCTION(name, emu_copy(to, from, size, size), uint32_t to, const void *from)                                   \
    INSTRUCTION(name, emu_copy(to, from, size, bytes), uint32_t to, const void *from, int bytes)
COPY(cp_async_cg_shared_global_16, 16)
COPY(cp_async_ca_shared_global_8, 8)
COPY(cp_async_ca_shared_global_4, 4)
INSTRUCTION(cp_async_ca_shared_global_4_unless, emu_copy(to, from, 4, bits ? 0 : 4), uint32_t to, const void *from,
            uint32_t bits)
INSTRUCTION(cp_async_commit_group, emu_copy_commit(), )
INSTRUCTION(cp_async_wait_group, emu_copy_wait(groups), int groups)

/* ---------------------------------------------------------------- Hopper: clusters, barriers, the copy engine */

INSTRUCTION(cluster_ctarank, r = emu_cluster_rank(), uint32_t &r)
INSTRUCTION(cluster_nctarank, r = emu_cluster_size(), uint32_t &r)
INSTRUCTION(barrier_cluster_arrive_relaxed_aligned, emu_cluster_arrive(), )
INSTRUCTION(barrier_cluster_wait_acquire_aligned, emu_cluster_wait(), )
INSTRUCTION(mapa_shared_cluster_u32, r = 0x80000000u | rank << 24 | at, uint32_t &r, uint32_t at, uint32_t rank)
INSTRUCTION(mbarrier_init_shared_cta_b64, emu_barrier_init(at, n), uint32_t at, uint32_t n)
INSTRUCTION(mbarrier_arrive_expect_tx_shared_cta_b64, emu_barrier_arrive(at, bytes), uint32_t at, uint32_t bytes)
INSTRUCTION(mbarrier_arrive_shared_cta_b64, emu_barrier_arrive(at, 0), uint32_t at)
INSTRUCTION(mbarrier_arrive_relaxed_cluster_shared_cluster_b64, emu_barrier_arrive(at, 0), uint32_t at)
INSTRUCTION(mbarrier_try_wait_parity_shared_cta_b64, emu_barrier_wait(at, parity), uint32_t at, uint32_t parity)
INSTRUCTION(cp_async_bulk_shared_cluster_global_mbarrier_complete_tx_bytes, emu_bulk_load(to, from, bytes, barrier),
            uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
INSTRUCTION(st_async_shared_cluster_mbarrier_complete_tx_bytes_u32, emu_send(to, &a, 1, barrier), uint32_t to,
            uint32_t a, uint32_t barrier)
inline void emu_st_async_shared_cluster_mbarrier_complete_tx_bytes_v2_u32(uint32_t to, uint32_t a, uint32_t b,
                                                                          uint32_t barrier)
{
    uint32_t two[2] = {a, b};
    emu_send(to, two, 2, barrier);
}
inline void emu_st_async_shared_cluster_mbarrier_complete_tx_bytes_v4_f32(uint32_t to, float a, float b, float c,
                                                                          float d, uint32_t barrier)
{
    uint32_t four[4] = {__float_as_uint(a), __float_as_uint(b), __float_as_uint(c), __float_as_uint(d)};
    emu_send(to, four, 4, barrier);
}
#define BOX uint32_t to, const void *map, uint32_t barrier, int x, int y, int z
INSTRUCTION(cp_async_bulk_tensor_3d_shared_cluster_global_mbarrier_complete_tx_bytes,
            emu_tensor_load(to, map, barrier, x, y, z, 0), BOX)
INSTRUCTION(tensor_once, emu_tensor_load(to, map, barrier, x, y, z, 0), BOX)
INSTRUCTION(cp_async_bulk_tensor_3d_shared_cluster_global_mbarrier_complete_tx_bytes_multicast_cluster,
            emu_tensor_load(to, map, barrier, x, y, z, mask), BOX, uint16_t mask)
INSTRUCTION(cp_async_bulk_tensor_3d_global_shared_cta_bulk_group, emu_tensor_store(map, from, x, y, z), const void *map,
            uint32_t from, int x, int y, int z)
INSTRUCTION(cp_async_bulk_commit_group, emu_store_commit(), )
INSTRUCTION(cp_async_bulk_wait_group, emu_store_wait(groups), int groups)
INSTRUCTION(cp_async_bulk_wait_group_read, emu_store_wait(groups), int groups)
INSTRUCTION(bar_sync, emu_bar(id, threads), int id, int threads = 128)
INSTRUCTION(bar_arrive, emu_bar_pass(id, threads), int id, int threads)
/* What only orders memory, or asks for speed. */
INSTRUCTION(fence_mbarrier_init_release_cluster, , )
INSTRUCTION(fence_proxy_async_shared_cta, , )
INSTRUCTION(griddepcontrol_launch_dependents, , )
INSTRUCTION(griddepcontrol_wait, , )
/* A comment, for tools/portable_fatbin.sh: what it gives on sm_80 is 0. */
template <class... Outputs> inline void emu___(Outputs &...out)
{
    ((out = 0), ...);
}
INSTRUCTION(prefetch_tensormap, , const void *)
INSTRUCTION(cp_async_bulk_prefetch_L2_global, , const void *, uint32_t)
INSTRUCTION(prefetch_global_L2, , const void *)
INSTRUCTION(cp_async_bulk_prefetch_tensor_3d_L2_global, , const void *, int, int, int)
INSTRUCTION(setmaxnreg_dec_sync_aligned_u32, , int)
INSTRUCTION(setmaxnreg_inc_sync_aligned_u32, , int)

/* ---------------------------------------------------------------- warps and blocks */

inline void __syncthreads()
{
    emu_block_barrier();
}
WORD(int __syncthreads_or(int x), emu_block_any(x != 0))
WORD(int __syncthreads_and(int x), !emu_block_any(x == 0))
inline void __syncwarp(unsigned = 0xffffffffu)
{
    uint32_t w[EMU_WORDS];
    emu_warp(w, [](uint32_t(*)[EMU_WORDS]) {});
}
/* The value of lane `from`, of 4 or 8 bytes. */
template <class V> V emu_shuffle(V v, int from)
{
    uint32_t w[EMU_WORDS] = {};
    memcpy(w, &v, sizeof v);
    w[2] = (uint32_t)from & 31;
    emu_warp(w, [](uint32_t(*lane)[EMU_WORDS]) {
        uint32_t old[32][2];
        for (int i = 0; i < 32; i++)
            memcpy(old[i], lane[i], 8);
        for (int i = 0; i < 32; i++)
            memcpy(lane[i], old[lane[i][2]], 8);
    });
    memcpy(&v, w, sizeof v);
    return v;
}
template <class V> V __shfl_sync(unsigned, V v, int lane, int width = 32)
{
    return emu_shuffle(v, (threadIdx.x & 31 & -width) + lane % width);
}
template <class V> V __shfl_up_sync(unsigned, V v, int by)
{
    int lane = threadIdx.x & 31;
    return emu_shuffle(v, lane < by ? lane : lane - by);
}
template <class V> V __shfl_down_sync(unsigned, V v, int by)
{
    int lane = threadIdx.x & 31;
    return emu_shuffle(v, lane + by > 31 ? lane : lane + by);
}
template <class V> V __shfl_xor_sync(unsigned, V v, int mask)
{
    return emu_shuffle(v, (int)(threadIdx.x & 31) ^ mask);
}
inline unsigned __match_any_sync(unsigned, unsigned x)
{
    uint32_t w[EMU_WORDS] = {x};
    emu_warp(w, [](uint32_t(*lane)[EMU_WORDS]) {
        for (int i = 0; i < 32; i++) {
            lane[i][1] = 0;
            for (int k = 0; k < 32; k++)
                lane[i][1] |= (uint32_t)(lane[k][0] == lane[i][0]) << k;
        }
    });
    return w[1];
}
inline int __any_sync(unsigned mask, int x)
{
    bool differ = __match_any_sync(mask, x != 0) != mask; /* every lane has to take part */
    return x || differ;
}

/* ---------------------------------------------------------------- matrix instructions of a warp */

template <bool TRANS> inline void emu_load_matrices(FOUR, uint32_t at)
{
    uint32_t w[EMU_WORDS] = {at};
    emu_need_aligned(at, 16);
    emu_warp(w, [](uint32_t(*lane)[EMU_WORDS]) {
        for (int m = 0; m < 4; m++)
            for (int i = 0; i < 32; i++)
                for (int e = 0; e < 2; e++) {
                    int row = TRANS ? i % 4 * 2 + e : i / 4, column = TRANS ? i / 4 : i % 4 * 2 + e;
                    memcpy((char *)&lane[i][4 + m] + 2 * e, emu_at(lane[m * 8 + row][0]) + 2 * column, 2);
                }
    });
    a = w[4], b = w[5], c = w[6], d = w[7];
}
INSTRUCTION(ldmatrix_sync_aligned_m8n8_x4_shared_b16, emu_load_matrices<false>(a, b, c, d, at), FOUR, uint32_t at)
INSTRUCTION(ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16, emu_load_matrices<true>(a, b, c, d, at), FOUR, uint32_t at)
inline void emu_stmatrix_sync_aligned_m8n8_x4_shared_b16(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    uint32_t w[EMU_WORDS] = {at, 0, 0, 0, a, b, c, d};
    emu_need_aligned(at, 16);
    emu_warp(w, [](uint32_t(*lane)[EMU_WORDS]) {
        for (int m = 0; m < 4; m++)
            for (int i = 0; i < 32; i++)
                memcpy(emu_at(lane[m * 8 + i / 4][0]) + i % 4 * 4, &lane[i][4 + m], 4);
    });
}

/* d (16 x 8) += a (16 x K) b (K x 8); words of a lane: 0-3 d, 4-7 a, 8-9 b. get: element e of a word. */
template <int K, class S, class GET> void emu_multiply(uint32_t (*lane)[EMU_WORDS], GET get)
{
    const int per = K == 8 ? 1 : K == 16 ? 2 : 4, half = K / 2;
    double a[16][K], b[K][8];
    for (int i = 0; i < 32; i++)
        for (int e = 0; e < per; e++) {
            int k = i % 4 * per + e;
            for (int w = 0; w < 4; w++)
                a[i / 4 + w % 2 * 8][w / 2 * half + k] = get(lane[i][4 + w], e);
            for (int w = 0; w < 2; w++)
                b[w * half + k][i / 4] = get(lane[i][8 + w], e);
        }
    for (int i = 0; i < 32; i++)
        for (int w = 0; w < 4; w++) {
            double sum = 0;
            S d;
            for (int k = 0; k < K; k++)
                sum += a[i / 4 + w / 2 * 8][k] * b[k][i % 4 * 2 + w % 2];
            memcpy(&d, &lane[i][w], 4);
            d = std::is_same<S, float>::value ? (S)((double)d + sum) : (S)((uint32_t)d + (uint32_t)(int64_t)sum);
            memcpy(&lane[i][w], &d, 4);
        }
}
#define PRODUCT(name, S, K, element)                                                                                   \
    inline void emu_mma_sync_aligned_##name(S &d0, S &d1, S &d2, S &d3, uint32_t a0, uint32_t a1, uint32_t a2,         \
                                            uint32_t a3, uint32_t b0, uint32_t b1)                                     \
    {                                                                                                                  \
        uint32_t w[EMU_WORDS] = {0, 0, 0, 0, a0, a1, a2, a3, b0, b1};                                                  \
        S *d[4] = {&d0, &d1, &d2, &d3};                                                                                \
        for (int i = 0; i < 4; i++)                                                                                    \
            memcpy(&w[i], d[i], 4);                                                                                    \
        emu_warp(w, [](uint32_t(*lane)[EMU_WORDS]) {                                                                   \
            emu_multiply<K, S>(lane, [](uint32_t x, int e) -> double { return (void)e, element; });                    \
        });                                                                                                            \
        for (int i = 0; i < 4; i++)                                                                                    \
            memcpy(d[i], &w[i], 4);                                                                                    \
    }
PRODUCT(m16n8k16_row_col_f32_bf16_bf16_f32, float, 16, emu_of_bf16(x >> 16 * e & 0xffff))
PRODUCT(m16n8k16_row_col_f32_f16_f16_f32, float, 16, emu_of_f16(x >> 16 * e & 0xffff))
PRODUCT(m16n8k32_row_col_s32_s8_s8_s32, int32_t, 32, (int8_t)(x >> 8 * e))
PRODUCT(m16n8k8_row_col_f32_tf32_tf32_f32, float, 8, __uint_as_float(x & 0xffffe000))

#endif
