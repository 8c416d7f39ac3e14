/* topk.cuh - a block finds the k largest elements of a row by radix select, and sorts them.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Elements are ordered by key, then by lower index: as one number of key bits and index bits. Its digits are decided
 * from the top, one pass over the row each: a histogram of the digit among the elements that share the digits found so
 * far says which value the k-th largest has there. As soon as all that are not yet ruled out fit the list of survivors
 * (for ordinary data after one or two passes), they are collected and sorted. Ties beyond that are decided by digits of
 * the index, so any row ends, and the result does not depend on who comes first.
 *
 * Where the keys of a row fit shared memory the row is read once. */
#ifndef SKR_TOPK_CUH
#define SKR_TOPK_CUH

#include "../../cuda/device.cuh"
#include "topk.h"

template <int T> struct topk_key {
    static constexpr int bits = 32;
    typedef uint32_t stored;
    SKR_DEVICE uint32_t of(uint32_t u)
    {
        u = u == 0x80000000u ? 0u : u;
        uint32_t key = u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
        return (u & 0x7fffffffu) > 0x7f800000u ? 0xffffffffu : key;
    }
};
template <int T> struct topk_key16 {
    static constexpr int bits = 16;
    typedef uint16_t stored;
    SKR_DEVICE uint32_t of(uint32_t u)
    {
        u = u == 0x8000u ? 0u : u;
        uint32_t key = u ^ (u >> 15 ? 0xffffu : 0x8000u);
        return (u & 0x7fffu) > (T == SKR_F16 ? 0x7c00u : 0x7f80u) ? 0xffffu : key;
    }
};
template <> struct topk_key<SKR_F16> : topk_key16<SKR_F16> {
};
template <> struct topk_key<SKR_BF16> : topk_key16<SKR_BF16> {
};

/* A survivor as one number, ties decided by the lower index: key, then inverted index. Half as long where both have 16
 * bits. */
template <bool NARROW> struct topk_number {
    typedef uint64_t type;
    SKR_DEVICE uint64_t of(uint32_t key, int key_bits, int i)
    {
        return (uint64_t)key << (64 - key_bits) | (uint32_t)~i;
    }
    SKR_DEVICE int index(uint64_t e)
    {
        return (int)~(uint32_t)e;
    }
};
template <> struct topk_number<true> {
    typedef uint32_t type;
    SKR_DEVICE uint32_t of(uint32_t key, int, int i)
    {
        return key << 16 | (uint16_t)~i;
    }
    SKR_DEVICE int index(uint32_t e)
    {
        return (uint16_t)~e;
    }
};

/* What the block shares besides histogram, survivors and keys. */
struct topk_shared {
    uint32_t warp[32];
    uint32_t digit, above, here; /* the digit found: its value, elements with a larger one, elements with this one */
    uint32_t count;
    __align__(16) float partial[2][32];
};

/* Finds the largest digit at which at least `want` elements are reached, from the top. */
template <int THREADS, int BITS> SKR_DEVICE void find_digit(const uint32_t *histogram, uint32_t want, topk_shared &s)
{
    constexpr int bins = 1 << BITS, each = (bins + THREADS - 1) / THREADS;
    int top = bins - 1 - (int)threadIdx.x * each;
    uint32_t mine = 0;
#pragma unroll
    for (int i = 0; i < each; i++)
        mine += top - i >= 0 ? histogram[top - i] : 0;
    uint32_t sum = mine;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        uint32_t left = __shfl_up_sync(0xffffffffu, sum, d);
        sum += (threadIdx.x & 31) >= d ? left : 0;
    }
    if (THREADS > 32) {
        if ((threadIdx.x & 31) == 31)
            s.warp[threadIdx.x / 32] = sum;
        __syncthreads();
        for (int w = 0; w < (int)threadIdx.x / 32; w++)
            sum += s.warp[w];
    }
    uint32_t before = sum - mine;
    if (before < want && want <= sum) {
        int d = top;
        for (; before + histogram[d] < want; d--)
            before += histogram[d];
        s.digit = (uint32_t)d, s.above = before, s.here = histogram[d];
    }
    __syncthreads();
}

/* Calls visit(index, key) for each element of the row, in any order: from the cache, or from memory. */
template <int T, int THREADS, class Visit>
SKR_DEVICE void each_element(const skr_topk_job &job, const char *x, Visit visit)
{
    constexpr int V = skr_elem<T>::vec, bytes = skr_elem<T>::bytes, UNROLL = 4;
    int n = (int)job.n, done = 0;
    if (job.wide) {
        done = n / V * V;
        for (int first = (int)threadIdx.x * V; first < done; first += THREADS * V * UNROLL) {
            uint4 raw[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                if (first + u * THREADS * V < done)
                    raw[u] = load16_once(x + (int64_t)(first + u * THREADS * V) * bytes);
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                int i = first + u * THREADS * V;
                if (i >= done)
                    break;
                const uint32_t word[4] = {raw[u].x, raw[u].y, raw[u].z, raw[u].w};
#pragma unroll
                for (int w = 0; w < 4; w++) {
                    if (bytes == 4) {
                        visit(i + w, topk_key<T>::of(word[w]));
                    } else {
                        visit(i + 2 * w, topk_key<T>::of(word[w] & 0xffffu));
                        visit(i + 2 * w + 1, topk_key<T>::of(word[w] >> 16));
                    }
                }
            }
        }
    }
    for (int i = done + (int)threadIdx.x; i < n; i += THREADS)
        visit(i, topk_key<T>::of(bytes == 4 ? ((const uint32_t *)x)[i] : ((const uint16_t *)x)[i]));
}

/* Where survivor i stands: one place of padding after eight keeps the sort free of bank conflicts. */
SKR_DEVICE int place_of(int i)
{
    return i + (i >> 3);
}

/* STAGES stages of the bitonic sort at once, distances 2^top and below, on 2^STAGES elements in registers. run: length
 * of the sorted runs that are being made. */
template <int THREADS, int STAGES, class Number> SKR_DEVICE void bitonic_stages(Number *a, int size, int run, int top)
{
    constexpr int E = 1 << STAGES;
    int low = top - STAGES + 1; /* log2 of the smallest distance */
    __syncthreads();
    for (int p = threadIdx.x; p < size / E; p += THREADS) {
        int first = (p & ((1 << low) - 1)) | (p >> low) << (top + 1);
        bool down = (first & run) == 0;
        Number e[E];
#pragma unroll
        for (int k = 0; k < E; k++)
            e[k] = a[place_of(first + (k << low))];
#pragma unroll
        for (int step = E / 2; step > 0; step /= 2)
#pragma unroll
            for (int k = 0; k < E; k++)
                if (!(k & step)) {
                    Number x = e[k], y = e[k + step];
                    bool swap = (x < y) == down;
                    e[k] = swap ? y : x;
                    e[k + step] = swap ? x : y;
                }
#pragma unroll
        for (int k = 0; k < E; k++)
            a[place_of(first + (k << low))] = e[k];
    }
}

/* Descending; size is a power of two. a may be shared or global memory of this block. */
template <int THREADS, class Number> SKR_DEVICE void bitonic_sort(Number *a, int size)
{
    constexpr int most = THREADS > 512 ? 2 : 3; /* what registers allow */
    int bits = 31 - __clz(size);
    for (int m = 1; m <= bits; m++)
        for (int left = m; left > 0;) { /* stages of this run that are still to do: distances 2^(left - 1) ... 1 */
            if (left >= most) {
                bitonic_stages<THREADS, most>(a, size, 1 << m, left - 1);
                left -= most;
            } else if (left == 2) {
                bitonic_stages<THREADS, 2>(a, size, 1 << m, left - 1);
                left -= 2;
            } else {
                bitonic_stages<THREADS, 1>(a, size, 1 << m, left - 1);
                left -= 1;
            }
        }
    __syncthreads();
}

/* softmax over the k sorted values and the outputs. */
template <int T, int THREADS, class Format> SKR_DEVICE void put_row(const skr_topk_job &job, int64_t row, const char *x,
                                                                    const typename Format::type *list, topk_shared &s)
{
    constexpr int bytes = skr_elem<T>::bytes;
    auto value = [&](int i) { return any_load1(T, x + (int64_t)Format::index(list[place_of(i)]) * bytes); };
    int k = (int)job.k;
    if (job.indices.data) {
        int32_t *to = (int32_t *)job.indices.data + skr_row_offset(&job.rows, job.indices.stride, row);
        for (int i = threadIdx.x; i < k; i += THREADS)
            to[i * job.indices.col_stride] = Format::index(list[place_of(i)]);
    }
    if (!job.values.data)
        return;
    float top = 0, sum = 1;
    if (job.softmax) {
        top = value(0);
        sum = 0;
        for (int i = threadIdx.x; i < k; i += THREADS)
            sum += expf(value(i) - top);
        sum = block_reduce<skr_sum, THREADS / 32>(sum, s.partial[row & 1]);
    }
    int size = skr_type_bytes(job.values.type);
    char *to = (char *)job.values.data + skr_row_offset(&job.rows, job.values.stride, row) * size;
    for (int i = threadIdx.x; i < k; i += THREADS) {
        float f = value(i);
        if (job.softmax)
            f = top == -__int_as_float(0x7f800000) ? 0.0f : expf(f - top) / sum;
        any_store1(job.values.type, to + i * job.values.col_stride * size, f);
    }
}

/* FEW: survivors are few enough to be sorted by counting. */
template <int T, int THREADS, int BITS, bool FEW, class Format>
SKR_DEVICE void topk_row(const skr_topk_job &job, int64_t row, uint32_t *histogram, typename Format::type *list,
                         typename Format::type *ranked, typename topk_key<T>::stored *keys, topk_shared &s)
{
    typedef topk_key<T> key_type;
    constexpr int bins = 1 << BITS;
    const char *x = (const char *)job.x.data + skr_row_offset(&job.rows, job.x.stride, row) * skr_elem<T>::bytes;
    const uint32_t n = (uint32_t)job.n;
    const int index_bits = n > 1 ? 32 - __clz(n - 1) : 0;
    const uint32_t last = index_bits < 32 ? (1u << index_bits) - 1 : 0xffffffffu;
    uint32_t want = (uint32_t)job.k, taken = 0;
    int shift = key_type::bits + index_bits; /* bits that are not decided yet */
    uint64_t prefix = 0;
    /* An element as one number. */
    auto number = [&](uint32_t i, uint32_t key) { return (uint64_t)key << index_bits | (last - i); };
    auto each_again = [&](auto visit) {
        if (job.cached)
            for (uint32_t i = threadIdx.x; i < n; i += THREADS)
                visit((int)i, (uint32_t)keys[i]);
        else
            each_element<T, THREADS>(job, x, visit);
    };
    bool first = true;
    do {
        int bits = shift < BITS ? shift : BITS, next = shift - bits;
        for (int i = threadIdx.x; i < bins; i += THREADS)
            histogram[i] = 0;
        if (threadIdx.x == 0)
            s.count = 0;
        __syncthreads();
        if (first) {
            constexpr int drop = key_type::bits - BITS;
            bool cached = job.cached;
            each_element<T, THREADS>(job, x, [&](int i, uint32_t key) {
                if (cached)
                    keys[i] = (typename key_type::stored)key;
                atomicAdd(&histogram[key >> drop], 1);
            });
        } else {
            uint32_t mask = (1u << bits) - 1;
            each_again([&](int i, uint32_t key) {
                uint64_t e = number((uint32_t)i, key);
                if (e >> shift == prefix)
                    atomicAdd(&histogram[(uint32_t)(e >> next) & mask], 1);
            });
        }
        first = false;
        __syncthreads();
        find_digit<THREADS, BITS>(histogram, want, s);
        prefix = prefix << bits | s.digit;
        want -= s.above;
        taken += s.above;
        shift = next;
    } while (taken + s.here > (uint32_t)job.cap && shift > 0);

    const int found = (int)(taken + s.here);
    each_again([&](int i, uint32_t key) {
        if (number((uint32_t)i, key) >> shift >= prefix)
            list[place_of((int)atomicAdd(&s.count, 1))] = Format::of(key, key_type::bits, i);
    });
    __syncthreads();
    if constexpr (FEW) { /* each survivor's place is the number of larger ones */
        for (int i = threadIdx.x; i < found; i += THREADS) {
            typename Format::type mine = list[place_of(i)];
            int larger = 0;
            for (int j = 0; j < found; j++)
                larger += list[place_of(j)] > mine;
            ranked[place_of(larger)] = mine;
        }
        list = ranked;
        __syncthreads();
    } else {
        int size = 2;
        while (size < found)
            size *= 2;
        for (int i = found + threadIdx.x; i < size; i += THREADS)
            list[place_of(i)] = 0;
        bitonic_sort<THREADS>(list, size);
    }
    put_row<T, THREADS, Format>(job, row, x, list, s);
    __syncthreads(); /* the next row's survivors take the same place */
}

/* Shared memory: histogram, ranked, survivors (unless they are in the workspace), keys. */
template <int T, int THREADS, int BITS, bool FEW> SKR_DEVICE void topk(const skr_topk_job &job)
{
    extern __shared__ __align__(16) unsigned char memory[];
    __shared__ topk_shared s;
    uint32_t *histogram = (uint32_t *)memory;
    typedef topk_number<SKR_TOPK_NARROW(T, THREADS)> format;
    typedef typename format::type number;
    number *ranked = (number *)(histogram + (1 << BITS)), *list = ranked + (FEW ? SKR_TOPK_PADDED(SKR_TOPK_RANK) : 0);
    bool here = job.cap <= SKR_TOPK_LIST;
    auto *keys = (typename topk_key<T>::stored *)(list + (here ? SKR_TOPK_PADDED(job.cap) : 0));
    if (!here)
        list = (number *)job.head.workspace + (int64_t)blockIdx.x * SKR_TOPK_PADDED(job.cap);
    wait_for_previous();
    let_next_start();
    for (int64_t row = blockIdx.x; row < job.rows.m; row += gridDim.x)
        topk_row<T, THREADS, BITS, FEW, format>(job, row, histogram, list, ranked, keys, s);
}

#endif
