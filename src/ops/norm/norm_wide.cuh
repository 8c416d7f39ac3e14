/* norm_wide.cuh - plain rms_norm and layer_norm (CENTRE) forward on rows that belong to a cluster of blocks.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A cluster takes a row and is done. Of a thread's VPT vectors the last S stay in shared memory, the others in
 * registers; of each parameter P vectors are in shared memory or on their way, and the slot of one that was used is
 * filled with the one that comes P vectors later: the less room a block takes, the more of them an SM has, and each is
 * in another phase. All slots belong to one thread each, so nobody waits for anybody. */
#ifndef SKR_NORM_WIDE_CUH
#define SKR_NORM_WIDE_CUH

#include "../../cuda/sm90.cuh"
#include "norm_rows.cuh"

template <bool CENTRE, int T, int THREADS, int VPT, int S, int P> struct norm_wide {
    using Owner = cluster_owner<THREADS>;
    static constexpr int V = skr_elem<T>::vec, L = THREADS, R = VPT - S;

    const skr_norm_job &job;
    int row, start, valid; /* of this thread: its vectors are start, start + L, ... */
    uint4 raw[R];
    norm_stats stats;
    const char *weight, *bias; /* where its first vector is */
    uint32_t slots;            /* this thread's: S of x, P of the weight, P of the bias */

    SKR_DEVICE void run(const skr_norm_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        extern __shared__ __align__(128) unsigned char dynamic[];
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        norm_wide k(job, owner, shared_address(dynamic));
        bool simple = k.simple();
        if (simple)
            k.template load<true>();
        else
            k.template load<false>();
        owner.ready();
        k.ask_ahead(owner);
        k.make_stats(owner);
        bool packed = params_packed<CENTRE, T>(job);
        if (simple && packed && job.weight_offset == 0.0f)
            k.template write<true, true>();
        else if (packed)
            k.template write<true, false>();
        else
            k.template write<CENTRE, false>();
    }

    __device__ __forceinline__ norm_wide(const skr_norm_job &j, const Owner &owner, uint32_t dynamic)
        : job(j), row(owner.index()), slots(dynamic + threadIdx.x * 16)
    {
        row_slice<Owner> slice = row_slice<Owner>::template of<V>(owner, j.n);
        start = slice.first + threadIdx.x, valid = slice.valid;
        weight = (const char *)job.weight.data + start * 16, bias = (const char *)job.bias.data + start * 16;
    }

    /* Rows have one stride, and the warp has all its vectors. SIMPLE below: without a question at each vector the
     * compiler can put accesses side by side. */
    __device__ __forceinline__ bool simple() const
    {
        return !__any_sync(0xffffffffu, valid < VPT) && job.rows.n_dims == 1;
    }

    template <class D> __device__ __forceinline__ D *vectors_of(const skr_rows &t) const
    {
        return row_at<D>(t, row_of(job.rows, row), skr_elem<T>::bytes) + start * 16;
    }

    static __device__ __forceinline__ uint32_t slot(int i)
    {
        return i * Owner::threads * 16;
    }

    /* Parameters first: they come from L2 and are there when the row is. */
    template <bool SIMPLE> __device__ __forceinline__ void load()
    {
        const char *x = vectors_of<const char>(job.x);
        if (params_packed<CENTRE, T>(job))
#pragma unroll
            for (int i = 0; i < P; i++)
                if (SIMPLE || i < valid)
                    load_param(i);
#pragma unroll
        for (int i = 0; i < R; i++) {
            if (!SIMPLE)
                raw[i] = make_uint4(0, 0, 0, 0);
            if (SIMPLE || i < valid)
                raw[i] = load16_once(x + i * L * 16);
        }
#pragma unroll
        for (int i = R; i < VPT; i++)
            if (SIMPLE || i < valid)
                copy_async16(slots + slot(i - R), x + i * L * 16);
        copy_async_commit();
    }

    /* Ones and zeros for what is absent. */
    __device__ __forceinline__ void load_param(int i) const
    {
        uint32_t at = slots + slot(S + i % P);
        if (!CENTRE || job.weight.data)
            copy_async16(at, weight + i * L * 16);
        else
            shared_store16(at, packed_ones<T>());
        if (CENTRE && job.bias.data)
            copy_async16(at + slot(P), bias + i * L * 16);
        else if (CENTRE)
            shared_store16(at + slot(P), make_uint4(0, 0, 0, 0));
    }

    /* This block's slice of a row that some block will load soon starts its way to L2: what is under way from memory
     * does then not depend on how many rows fit an SM. */
    __device__ __forceinline__ void ask_ahead(const Owner &owner) const
    {
        int ahead = row + max(1, SKR_ROWS_AHEAD / ((int)job.n * skr_elem<T>::bytes));
        if (threadIdx.x == 0 && job.rows.n_dims == 1 && ahead < job.rows.m) {
            row_slice<Owner> slice = row_slice<Owner>::template of<V>(owner, job.n);
            bulk_prefetch((const char *)job.x.data + ahead * job.x.stride[0] * skr_elem<T>::bytes + slice.first * 16,
                          slice.count * 16);
        }
    }

    __device__ __forceinline__ uint4 vector(int i)
    {
        if (i >= R)
            return shared_load16(slots + slot(i - R));
        opaque(raw[i < R ? i : 0]); /* or the compiler keeps the f32 values from the first pass */
        return raw[i < R ? i : 0];
    }

    __device__ __forceinline__ void make_stats(Owner &owner)
    {
        stats = row_stats<CENTRE, V, VPT>(owner, job.n, job.eps, valid, [&](int i, float *f) {
            if (i == R)
                copy_async_wait<0>();
            unpack<T>(i < R || i < valid ? vector(i) : make_uint4(0, 0, 0, 0), f);
        });
        if (threadIdx.x == 0 && owner.rank() == 0)
            save_stats<CENTRE>(job, row_of(job.rows, row), stats);
    }

    template <bool PACKED, bool SIMPLE> __device__ __forceinline__ void write()
    {
        char *y = vectors_of<char>(job.y);
        copy_async_wait<0>();
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V], g[V], a[V];
            if (PACKED && i >= P) /* its parameters were the first of the last P groups */
                copy_async_wait<P - 1>();
            if (SIMPLE || i < valid) {
                if (PACKED) {
                    uint32_t at = slots + slot(S + i % P);
                    unpack<T>(shared_load16(at), g);
                    if (CENTRE)
                        unpack<T>(shared_load16(at + slot(P)), a);
                    if (!SIMPLE && job.weight_offset != 0.0f)
#pragma unroll
                        for (int c = 0; c < V; c++)
                            g[c] += job.weight_offset;
                } else {
                    load_weight<V>(job.weight, job.weight_offset,
                                   param_row(job.heads, row) * job.weight.stride + (start + i * L) * V, g);
                }
                unpack<T>(vector(i), f);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float h = normal<CENTRE>(stats, f[c]);
                    f[c] = CENTRE ? __fmaf_rn(h, g[c], a[c]) : h * g[c];
                }
                store16_once(y + i * L * 16, pack<T>(f));
                if (PACKED && i + P < VPT && (SIMPLE || i + P < valid))
                    load_param(i + P);
            }
            if (PACKED && P < VPT)
                copy_async_commit();
        }
    }
};

#endif
