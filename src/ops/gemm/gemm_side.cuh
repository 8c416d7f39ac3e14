/* gemm_side.cuh - how one operand's tile gets from memory into the shared memory of gemm_mma.cuh.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A step's tile has 128 rows (of a; columns of b) of 64 bytes along k. Each of the 256 threads brings two chunks of 16
 * bytes. In shared memory rows follow each other and chunk c of row r is at c ^ (r / 2 % 4); or, TURNED, 32 k's follow
 * each other, 256 bytes each, and chunk c of k is at c ^ (k % 8): eight chunks that a matrix load reads at once lie in
 * different banks either way. TURNED is for 16-bit types whose rows are neighbours in memory.
 *
 * T is what is multiplied; WIDE operands may lie in memory as something narrower, and are widened on the way: fp8, i8
 * and i4 are exact in T. */
#ifndef SKR_GEMM_SIDE_CUH
#define SKR_GEMM_SIDE_CUH

#include "gemm_epilogue.cuh"

/* Chunks of a narrower type as 16 bytes of T. */
template <int T> struct gemm_widen {
    /* Sixteen i4 as i8. */
    __device__ __forceinline__ static void nibbles(uint32_t word, uint32_t &lo, uint32_t &hi)
    {
        uint32_t even = word & 0x0f0f0f0fu, odd = word >> 4 & 0x0f0f0f0fu;
        even |= (even & 0x08080808u) * 0x1eu; /* bit 3 is the sign */
        odd |= (odd & 0x08080808u) * 0x1eu;
        lo = __byte_perm(even, odd, 0x5140), hi = __byte_perm(even, odd, 0x7362);
    }

    /* Two whole numbers, less the zero point: 2^23 + u is a float whose last bits are u's. */
    __device__ __forceinline__ static uint32_t whole(uint32_t u0, uint32_t u1, float less)
    {
        return pack2<T>(__uint_as_float(0x4b000000u | u0) - less, __uint_as_float(0x4b000000u | u1) - less);
    }

    __device__ __forceinline__ static uint4 chunk(int type, const uint4 &raw, float zero)
    {
        uint4 out;
        if constexpr (T == SKR_I8) {
            nibbles(raw.x, out.x, out.y);
            nibbles(raw.y, out.z, out.w);
        } else if (type == SKR_E4M3) {
            out.x = fp8_halves2<SKR_E4M3>(raw.x & 0xffffu), out.y = fp8_halves2<SKR_E4M3>(raw.x >> 16);
            out.z = fp8_halves2<SKR_E4M3>(raw.y & 0xffffu), out.w = fp8_halves2<SKR_E4M3>(raw.y >> 16);
        } else if (type == SKR_E5M2) {
            out.x = fp8_halves2<SKR_E5M2>(raw.x & 0xffffu), out.y = fp8_halves2<SKR_E5M2>(raw.x >> 16);
            out.z = fp8_halves2<SKR_E5M2>(raw.y & 0xffffu), out.w = fp8_halves2<SKR_E5M2>(raw.y >> 16);
        } else if (type == SKR_I8) {
            uint32_t x = raw.x ^ 0x80808080u, y = raw.y ^ 0x80808080u;
            float less = 8388736.0f + zero;
            out.x = whole(x & 0xffu, x >> 8 & 0xffu, less), out.y = whole(x >> 16 & 0xffu, x >> 24, less);
            out.z = whole(y & 0xffu, y >> 8 & 0xffu, less), out.w = whole(y >> 16 & 0xffu, y >> 24, less);
        } else {
            uint32_t x = raw.x ^ 0x88888888u;
            float less = 8388616.0f + zero;
            out.x = whole(x & 0xfu, x >> 4 & 0xfu, less), out.y = whole(x >> 8 & 0xfu, x >> 12 & 0xfu, less);
            out.z = whole(x >> 16 & 0xfu, x >> 20 & 0xfu, less), out.w = whole(x >> 24 & 0xfu, x >> 28, less);
        }
        return out;
    }
};

/* ANY: operands may lie in any way; otherwise they are copied as they lie. */
template <int T, bool TURNED, bool ANY, bool WIDE> struct gemm_side {
    static constexpr int BYTES = T == SKR_F32 ? 4 : T == SKR_I8 ? 1 : 2, EACH = 16 / BYTES, SIDE = SKR_GEMM_MMA_SIDE;

    const skr_gemm_matrix &matrix;
    const int load;      /* SKR_GEMM_COPY, ... */
    const int64_t along; /* elements between k's */
    int64_t at[2];       /* elements to the thread's two chunks, ANY: at k = 0, otherwise in the next step */
    int k;               /* of the first chunk in a step */
    int inside[2];       /* bytes of the chunks in the matrix, before k ends; 0: none */
    uint32_t to;         /* of the first chunk in shared memory */
    uint2 raw[2];        /* VECTORS: on the way */
    float zero[2];       /* what is subtracted from them */
    int64_t zero_at[2];  /* elements to the zero points of the chunks' columns */

    __device__ __forceinline__ gemm_side(const skr_gemm_matrix &m, int how, int64_t k_stride)
        : matrix(m), load(how), along(k_stride)
    {
        if (TURNED) {
            int c = (int)threadIdx.x % 16, kk = (int)threadIdx.x / 16;
            k = kk;
            to = (uint32_t)(kk * 256 + ((c ^ (kk & 7)) << 4));
        } else {
            int r = row(0), c = (int)(by_rows() ? threadIdx.x / SIDE : threadIdx.x % 4);
            k = c * EACH;
            to = (uint32_t)(r * 64 + ((c ^ (r >> 1 & 3)) << 4));
        }
    }

    /* Neighbouring threads take neighbouring rows, since these are neighbours in memory. */
    __device__ __forceinline__ bool by_rows() const
    {
        return ANY && along != 1;
    }

    /* The row of the tile (TURNED: the first of the chunk's) that chunk i belongs to. */
    __device__ __forceinline__ int row(int i) const
    {
        if (TURNED)
            return (int)threadIdx.x % 16 * 8;
        return (int)(by_rows() ? threadIdx.x % SIDE : threadIdx.x / 4 + i * 64);
    }

    /* TURNED chunks differ in k alone. */
    __device__ __forceinline__ static int of(int i)
    {
        return TURNED ? 0 : i;
    }

    /* Where chunk i begins in a step, and where it goes. */
    __device__ __forceinline__ int k_of(int i) const
    {
        return TURNED ? k + i * 16 : by_rows() ? k + i * 2 * EACH : k;
    }

    __device__ __forceinline__ uint32_t to_of(int i) const
    {
        return !TURNED && by_rows() ? to ^ (uint32_t)(i * 32) : to + i * 4096;
    }

    /* Chunk i is `first` elements into the matrix at k = 0, and `rows` rows are there from it on. k0: of the first step
     * that is fetched. */
    __device__ __forceinline__ void place(int i, int64_t first, int64_t rows, int k0)
    {
        at[of(i)] = ANY ? first : first + (k0 + k) * along;
        inside[of(i)] = rows <= 0 ? 0 : TURNED ? (int)min(rows * BYTES, (int64_t)16) : 16;
    }

    __device__ __forceinline__ uint32_t element(int64_t i) const
    {
        const void *data = matrix.at.data;
        if (WIDE && matrix.at.type == SKR_I4)
            return ((const uint8_t *)data)[i >> 1] >> (int)(i & 1) * 4 & 0xfu;
        if (BYTES == 1 || (WIDE && matrix.at.type != T))
            return ((const uint8_t *)data)[i];
        return BYTES == 2 ? ((const uint16_t *)data)[i] : ((const uint32_t *)data)[i];
    }

    /* The elements of a chunk one by one, packed as they lie. left: how many there are. */
    __device__ __forceinline__ uint4 elements(int64_t first, int left) const
    {
        uint4 w = make_uint4(0, 0, 0, 0);
        const int bits = !WIDE || matrix.at.type == T ? BYTES * 8 : matrix.at.type == SKR_I4 ? 4 : 8;
#pragma unroll 4
        for (int e = EACH - 1; e >= 0; e--) { /* the last one first: those before it push it up */
            uint32_t code = e < left ? element(first + e * along) : 0;
            w.w = __funnelshift_lc(w.z, w.w, bits), w.z = __funnelshift_lc(w.y, w.z, bits);
            w.y = __funnelshift_lc(w.x, w.y, bits), w.x = __funnelshift_lc(0, w.x, bits) | code;
        }
        return w;
    }

    /* A whole chunk of a narrower type. */
    __device__ __forceinline__ uint2 vector(int64_t first) const
    {
        const char *p = (const char *)matrix.at.data + (matrix.at.type == SKR_I4 ? first >> 1 : first);
        return matrix.at.type == SKR_I4 && T != SKR_I8 ? make_uint2(*(const uint32_t *)p, 0) : load8(p);
    }

    __device__ __forceinline__ uint4 widened(const uint4 &packed, float zero_point) const
    {
        return !WIDE || matrix.at.type == T ? packed : gemm_widen<T>::chunk(matrix.at.type, packed, zero_point);
    }

    /* Starts bringing the step that begins at k0, of which `left` k's are there, to shared memory at `stage`. zeros:
     * NULL, or the zero points of this step's k's. */
    __device__ __forceinline__ void fetch(uint32_t stage, int k0, int left, const int8_t *zeros)
    {
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int more = left - k_of(i);
            int64_t first = ANY ? at[i] + (k0 + k_of(i)) * along : at[of(i)] + (TURNED ? i * 16 * along : 0);
            if (!ANY || load == SKR_GEMM_COPY) {
                int bytes = TURNED ? (more > 0 ? inside[0] : 0) : min(inside[i], min(max(more, 0), EACH) * BYTES);
                const char *from = (const char *)matrix.at.data + (bytes ? first * BYTES : 0);
                copy_async16_part(stage + to_of(i), from, bytes);
                continue;
            }
            more = inside[i] ? more : 0;
            float zero_point = WIDE && zeros && more > 0 ? (float)zeros[zero_at[i]] : 0.0f;
            if (WIDE && load == SKR_GEMM_VECTORS) {
                if (more >= EACH) {
                    raw[i] = vector(first);
                } else {
                    uint4 packed = elements(first, more);
                    raw[i] = make_uint2(packed.x, packed.y);
                }
                zero[i] = zero_point;
            } else {
                shared_store16(stage + to_of(i), widened(elements(first, more), zero_point));
            }
        }
        if (!ANY)
#pragma unroll
            for (int i = 0; i <= of(1); i++)
                at[i] += SKR_GEMM_MMA_BYTES / BYTES * (TURNED ? along : 1);
    }

    /* WIDE: the rest of it, once the vectors are there. */
    __device__ __forceinline__ void put(uint32_t stage) const
    {
        if (load == SKR_GEMM_VECTORS)
#pragma unroll
            for (int i = 0; i < 2; i++)
                shared_store16(stage + to_of(i), widened(make_uint4(raw[i].x, raw[i].y, 0, 0), zero[i]));
    }
};

#endif
