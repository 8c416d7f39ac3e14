/* norm_full.cuh - rms_norm and layer_norm (CENTRE) forward with every option, on rows that fit their owner's registers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * x has type T; everything else is decided by branches that are the same for the whole grid, taken once per vector or
 * once per row. s, and then y, stay in f32 registers from the first read to the last write. */
#ifndef SKR_NORM_FULL_CUH
#define SKR_NORM_FULL_CUH

#include "norm_rows.cuh"

template <bool CENTRE, int T, class Owner, int VPT, int STAGES> struct norm_full {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;
    static_assert(VPT == 1 || L * V >= SKR_QUANT_GROUP,
                  "a quantisation block is held by one vector of neighbouring lanes");

    const skr_norm_job &job;
    row_slice<Owner> slice;
    int lane, first_column;
    uint32_t slots, residual_slots;
    int residual_bytes; /* of a vector */
    float s[VPT][V];

    SKR_DEVICE void run(const skr_norm_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        extern __shared__ __align__(128) unsigned char dynamic[];
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        norm_full k(job, owner, shared_address(dynamic));
        k.walk(owner);
    }

    __device__ __forceinline__ norm_full(const skr_norm_job &j, const Owner &owner, uint32_t dynamic) : job(j)
    {
        slice = row_slice<Owner>::template of<V>(owner, j.n);
        lane = threadIdx.x % L;
        first_column = (slice.first + lane) * V;
        slots = dynamic + threadIdx.x * 16;
        residual_bytes = V * skr_type_bytes(j.residual.type);
        residual_slots = dynamic + STAGES * VPT * Owner::threads * 16 + threadIdx.x * residual_bytes;
    }

    __device__ __forceinline__ int column(int i) const
    {
        return first_column + i * L * V;
    }

    /* This thread's first vector in a row of a tensor; vector i is i * L * V elements further. */
    __device__ __forceinline__ char *at(const skr_rows &t, const skr_row &row) const
    {
        int bytes = skr_type_bytes(t.type);
        return row_at<char>(t, row, bytes) + first_column * bytes;
    }

    __device__ __forceinline__ const char *at(const skr_param &p, int head) const
    {
        return (const char *)p.data + (head * p.stride + first_column) * skr_type_bytes(p.type);
    }

    __device__ __forceinline__ uint32_t slot(int stage, int i) const
    {
        return slots + (stage * VPT + i) * Owner::threads * 16;
    }
    __device__ __forceinline__ uint32_t residual_slot(int stage, int i) const
    {
        return residual_slots + (stage * VPT + i) * Owner::threads * residual_bytes;
    }

    __device__ __forceinline__ void copy(int row, int stage) const
    {
        if (row < job.rows.m) {
            skr_row index = row_of(job.rows, row);
            const char *p = at(job.x, index);
#pragma unroll
            for (int i = 0; i < VPT; i++)
                if (i < slice.valid)
                    copy_async16(slot(stage, i), p + i * L * 16);
            if (job.residual.data) {
                const char *q = at(job.residual, index);
#pragma unroll
                for (int i = 0; i < VPT; i++)
                    if (i < slice.valid)
                        any_copy_async<V>(job.residual.type, residual_slot(stage, i), q + i * L * residual_bytes);
            }
        }
        copy_async_commit();
    }

    __device__ __forceinline__ void fetch(int stage)
    {
#pragma unroll
        for (int i = 0; i < VPT; i++)
            unpack<T>(i < slice.valid ? shared_load16(slot(stage, i)) : make_uint4(0, 0, 0, 0), s[i]);
        if (!job.residual.data)
            return;
#pragma unroll
        for (int i = 0; i < VPT; i++)
            if (i < slice.valid) {
                float f[V];
                any_shared_load<V>(job.residual.type, residual_slot(stage, i), f);
#pragma unroll
                for (int c = 0; c < V; c++)
                    s[i][c] += f[c];
            }
    }

    __device__ __forceinline__ void load(int row)
    {
        uint4 raw[VPT];
        bool in = row < job.rows.m;
        skr_row index = row_of(job.rows, row);
        const char *p = at(job.x, index), *q = at(job.residual, index);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            raw[i] = make_uint4(0, 0, 0, 0);
            if (in && i < slice.valid)
                raw[i] = load16_once(p + i * L * 16);
        }
        if (job.residual.data && job.residual.type == T) { /* all loads under way before the first use */
            uint4 other[VPT];
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                other[i] = make_uint4(0, 0, 0, 0);
                if (in && i < slice.valid)
                    other[i] = load16_once(q + i * L * 16);
            }
#pragma unroll
            for (int i = 0; i < VPT; i++) {
                float f[V];
                unpack<T>(raw[i], s[i]), unpack<T>(other[i], f);
#pragma unroll
                for (int c = 0; c < V; c++)
                    s[i][c] += f[c];
            }
            return;
        }
#pragma unroll
        for (int i = 0; i < VPT; i++)
            unpack<T>(raw[i], s[i]);
        if (job.residual.data)
#pragma unroll
            for (int i = 0; i < VPT; i++)
                if (in && i < slice.valid) {
                    float f[V];
                    any_load<V>(job.residual.type, q + i * L * residual_bytes, f);
#pragma unroll
                    for (int c = 0; c < V; c++)
                        s[i][c] += f[c];
                }
    }

    /* s is complete: rounds it to residual_out and stores that, normalises, writes y and the quantised output. */
    __device__ __forceinline__ void finish(Owner &owner, int row)
    {
        bool in = row < job.rows.m;
        skr_row index = row_of(job.rows, row);
        if (job.residual_out.data) {
            int type = job.residual_out.type, bytes = skr_type_bytes(type);
            char *p = at(job.residual_out, index);
#pragma unroll
            for (int i = 0; i < VPT; i++)
                any_store_rounded<V>(type, p + i * L * V * bytes, in && i < slice.valid, s[i]);
        }
        norm_stats stats = row_stats<CENTRE, V, VPT>(owner, job.n, job.eps, slice.valid, [&](int i, float *f) {
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = s[i][c];
        });
        bool leader = in && lane == 0 && owner.rank() == 0;
        if (leader)
            save_stats<CENTRE>(job, index, stats);
        scale_by(stats, param_row(job.heads, row));
        if (job.y.data) {
            int type = job.y.type, bytes = skr_type_bytes(type);
            char *p = at(job.y, index);
#pragma unroll
            for (int i = 0; i < VPT; i++)
                any_store_rounded<V>(type, p + i * L * V * bytes, in && i < slice.valid, s[i]);
        }
        if (job.quant == SKR_QUANT_BLOCK)
            quantise_blocks(index, in);
        else if (job.quant)
            quantise_row(owner, index, in, leader);
    }

    /* y = normal(s) * (w + offset) + b */
    __device__ __forceinline__ void scale_by(const norm_stats &stats, int head)
    {
#pragma unroll
        for (int i = 0; i < VPT; i++)
#pragma unroll
            for (int c = 0; c < V; c++)
                s[i][c] = normal<CENTRE>(stats, s[i][c]);
        if (job.round_before_weight && T != SKR_F32)
#pragma unroll
            for (int i = 0; i < VPT; i++)
#pragma unroll
                for (int c = 0; c < V; c += 2)
                    unpack2<T>(pack2<T>(s[i][c], s[i][c + 1]), s[i][c], s[i][c + 1]);
        if (job.weight.data) {
            const char *p = at(job.weight, head);
            int step = L * V * skr_type_bytes(job.weight.type);
#pragma unroll
            for (int i = 0; i < VPT; i++)
                if (i < slice.valid) {
                    float w[V];
                    any_load<V>(job.weight.type, p + i * step, w);
#pragma unroll
                    for (int c = 0; c < V; c++)
                        s[i][c] *= w[c] + job.weight_offset;
                }
        } else if (job.weight_offset != 0.0f) {
#pragma unroll
            for (int i = 0; i < VPT; i++)
#pragma unroll
                for (int c = 0; c < V; c++)
                    s[i][c] *= 1.0f + job.weight_offset;
        }
        if (job.bias.data) {
            const char *p = at(job.bias, head);
            int step = L * V * skr_type_bytes(job.bias.type);
#pragma unroll
            for (int i = 0; i < VPT; i++)
                if (i < slice.valid) {
                    float b[V];
                    any_load<V>(job.bias.type, p + i * step, b);
#pragma unroll
                    for (int c = 0; c < V; c++)
                        s[i][c] += b[c];
                }
        }
    }

    /* Largest |y| of this thread: as it comes (NaN never counts), or of the finite ones. */
    template <bool FINITE> __device__ __forceinline__ float largest() const
    {
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < VPT; i++)
            if (i < slice.valid)
#pragma unroll
                for (int c = 0; c < V; c++)
                    most = fmaxf(most, FINITE ? finite_size(s[i][c]) : fabsf(s[i][c]));
        return most;
    }

    /* One vector, divided and converted. */
    template <int TYPE>
    __device__ __forceinline__ void store_quant(char *p, const skr_divider &by, const float *f) const
    {
        uint32_t word[V / 4];
#pragma unroll
        for (int c = 0; c < V; c += 4)
            word[c / 4] = quant2<TYPE>(divide(by, f[c]), divide(by, f[c + 1])) |
                          quant2<TYPE>(divide(by, f[c + 2]), divide(by, f[c + 3])) << 16;
        if (V == 8)
            store8_once(p, make_uint2(word[0], word[V / 4 - 1]));
        else
            store4_once(p, word[0]);
    }

    template <int TYPE> __device__ __forceinline__ void store_quant_row(char *p, const skr_divider &by, bool in) const
    {
#pragma unroll
        for (int i = 0; i < VPT; i++)
            if (in && i < slice.valid)
                store_quant<TYPE>(p + i * L * V, by, s[i]);
    }

    /* One scale for the row: given, or from its largest finite value. */
    __device__ __forceinline__ void quantise_row(Owner &owner, const skr_row &index, bool in, bool leader)
    {
        int type = job.y_quant.type;
        float scale;
        bool wild = true;
        if (job.quant == SKR_QUANT_TENSOR) {
            scale = *(const float *)job.scale.data;
        } else {
            float amax = owner.template reduce<skr_max>(largest<false>());
            wild = !(amax <= 3.402823466e38f);
            if (L < 32)
                wild = __any_sync(0xffffffffu, wild);
            if (wild)
                amax = owner.template reduce<skr_max>(largest<true>());
            scale = quant_scale(type, amax);
            wild = wild || !is_tame(scale);
            if (leader)
                *row_at<float>(job.scale, index, 4) = scale;
        }
        if (wild) {
            skr_tamer t = tame(scale);
            scale = t.scale;
#pragma unroll
            for (int i = 0; i < VPT; i++)
#pragma unroll
                for (int c = 0; c < V; c++)
                    s[i][c] = tamed(t, s[i][c]);
        }
        skr_divider by = divide_by(scale);
        char *p = at(job.y_quant, index);
        if (type == SKR_E4M3)
            store_quant_row<SKR_E4M3>(p, by, in);
        else if (type == SKR_E5M2)
            store_quant_row<SKR_E5M2>(p, by, in);
        else
            store_quant_row<SKR_I8>(p, by, in);
    }

    /* One scale for 128 columns, which are neighbouring lanes of one warp. */
    __device__ __forceinline__ void quantise_blocks(const skr_row &index, bool in)
    {
        constexpr int lanes = SKR_QUANT_GROUP / V < L ? SKR_QUANT_GROUP / V : L;
        int type = job.y_quant.type;
        char *p = at(job.y_quant, index);
        float *scales = row_at<float>(job.scale, index, 4);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            bool here = in && i < slice.valid;
            float amax = 0.0f;
            if (here)
#pragma unroll
                for (int c = 0; c < V; c++)
                    amax = fmaxf(amax, finite_size(s[i][c]));
            float scale = quant_scale(type, lanes_reduce<skr_max, lanes>(amax));
            if (!here)
                continue;
            if (column(i) % SKR_QUANT_GROUP == 0)
                scales[column(i) / SKR_QUANT_GROUP * job.scale.col_stride] = scale;
            skr_tamer t = tame(scale);
#pragma unroll
            for (int c = 0; c < V; c++)
                s[i][c] = tamed(t, s[i][c]);
            skr_divider by = divide_by(t.scale);
            if (type == SKR_E4M3)
                store_quant<SKR_E4M3>(p + i * L * V, by, s[i]);
            else if (type == SKR_E5M2)
                store_quant<SKR_E5M2>(p + i * L * V, by, s[i]);
            else
                store_quant<SKR_I8>(p + i * L * V, by, s[i]);
        }
    }

    __device__ __forceinline__ void walk(Owner &owner)
    {
        int m = (int)job.rows.m, step = owner.count() * Owner::groups,
            row = owner.index() * Owner::groups + threadIdx.x / L;
        int turns = (m - owner.index() * Owner::groups + step - 1) / step;
        if constexpr (STAGES > 0) {
#pragma unroll
            for (int k = 0; k < STAGES; k++)
                copy(row + k * step, k);
            owner.ready();
            int stage = 0;
            for (; turns > 0; turns--, row += step) {
                copy_async_wait<STAGES - 1>();
                fetch(stage);
                copy(row + STAGES * step, stage);
                stage = stage + 1 < STAGES ? stage + 1 : 0;
                finish(owner, row);
            }
        } else {
            owner.ready();
            for (; turns > 0; turns--, row += step) {
                load(row);
                finish(owner, row);
            }
        }
    }
};

#endif
