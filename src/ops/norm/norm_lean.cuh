/* norm_lean.cuh - rms_norm and layer_norm (CENTRE) forward with a residual or with a quantised output, where all float
 * tensors are of one type. SPDX-License-Identifier: Apache-2.0
 *
 * The common cases of what norm_full.cuh takes: rows with one stride, one weight, no bias (layer_norm: with or
 * without). norm_residual: x, residual, residual_out and y. s is rounded to T, so the row stays packed in registers.
 * norm_quant: x and y_quant, with one scale a row or one given. The values stay in registers. rms_norm needs one
 * exchange a row: max|y| is rstd * max|x * w|, and that maximum travels with the sum of squares; the quantised value is
 * (x * w) * (rstd / scale). layer_norm needs two: y follows from the statistics, and its maximum gives the scale. Rows
 * where this order of products could overflow or lose bits (wild) are read again and computed with care. */
#ifndef SKR_NORM_LEAN_CUH
#define SKR_NORM_LEAN_CUH

#include "norm_rows.cuh"

template <bool CENTRE, int T, class Owner, int VPT> struct lean_rows {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;

    const skr_norm_job &job;
    row_slice<Owner> slice;
    int lane, leader; /* leader: writes the row's statistics */
    int first, step;  /* first row of this group, rows between its turns */

    __device__ __forceinline__ lean_rows(const skr_norm_job &j, const Owner &owner) : job(j)
    {
        slice = row_slice<Owner>::template of<V>(owner, j.n);
        lane = threadIdx.x % L;
        leader = lane == 0 && owner.rank() == 0;
        first = owner.index() * Owner::groups + threadIdx.x / L;
        step = owner.count() * Owner::groups;
    }

    /* The same for all threads of the owner. */
    __device__ __forceinline__ int turns(const Owner &owner) const
    {
        return ((int)job.rows.m - owner.index() * Owner::groups + step - 1) / step;
    }

    /* This thread's first vector in a row. */
    __device__ __forceinline__ char *at(const skr_rows &t, int row) const
    {
        return (char *)t.data + row * t.stride[0] * skr_elem<T>::bytes + (slice.first + lane) * 16;
    }

    __device__ __forceinline__ float *statistic(const skr_rows &t, int row) const
    {
        return (float *)t.data + row * t.stride[0];
    }

    __device__ __forceinline__ const char *param(const skr_param &p) const
    {
        return (const char *)p.data + (slice.first + lane) * 16;
    }

    __device__ __forceinline__ void save(int row, const norm_stats &s) const
    {
        if (leader)
            save_stats<CENTRE>(job, {{row, 0, 0, 0}, true}, s);
    }

    /* Zeros beyond the row. */
    __device__ __forceinline__ void get(const char *p, bool in, uint4 (&raw)[VPT]) const
    {
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            raw[i] = make_uint4(0, 0, 0, 0);
            if (in && i < slice.valid)
                raw[i] = load16_once(p + i * L * 16);
        }
    }

    /* s of a row, packed; stores residual_out. */
    __device__ __forceinline__ void load(int row, uint4 (&raw)[VPT]) const
    {
        bool in = row < job.rows.m;
        get(at(job.x, row), in, raw);
        uint4 other[VPT];
        get(at(job.residual, row), in, other);
        char *p = at(job.residual_out, row);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V], g[V];
            unpack<T>(raw[i], f), unpack<T>(other[i], g);
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] += g[c];
            raw[i] = pack<T>(f);
            if (in && i < slice.valid)
                store16_once(p + i * L * 16, raw[i]);
        }
    }

    /* Weights of vectors i to i + G - 1, under way together. */
    template <int G> __device__ __forceinline__ void get_weights(const char *p, int i, uint4 (&raw)[G]) const
    {
#pragma unroll
        for (int k = 0; k < G; k++) {
            raw[k] = make_uint4(0, 0, 0, 0);
            if (i + k < slice.valid)
                raw[k] = load16(p + (i + k) * L * 16);
        }
    }

    /* The same of a bias, zeros where there is none. */
    template <int G> __device__ __forceinline__ void get_bias(const char *p, int i, uint4 (&raw)[G]) const
    {
#pragma unroll
        for (int k = 0; k < G; k++) {
            raw[k] = make_uint4(0, 0, 0, 0);
            if (job.bias.data && i + k < slice.valid)
                raw[k] = load16(p + (i + k) * L * 16);
        }
    }

    __device__ __forceinline__ void weights(const uint4 &raw, float *w) const
    {
        unpack<T>(raw, w);
        if (job.weight_offset != 0.0f)
#pragma unroll
            for (int c = 0; c < V; c++)
                w[c] += job.weight_offset;
    }
};

/* ---------------------------------------------------------------- residual */

template <bool CENTRE, int T, class Owner, int VPT> struct norm_residual : lean_rows<CENTRE, T, Owner, VPT> {
    using Base = lean_rows<CENTRE, T, Owner, VPT>;
    using Base::job, Base::slice, Base::L, Base::V;
    static constexpr int G = VPT < 4 ? VPT : 4;

    SKR_DEVICE void run(const skr_norm_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        norm_residual k(job, owner);
        uint4 raw[VPT];
        k.load(k.first, raw);
        owner.ready();
        for (int turns = k.turns(owner); turns > 0; turns--, k.first += k.step) {
            k.finish(owner, raw);
            if (turns > 1)
                k.load(k.first + k.step, raw);
        }
    }

    using Base::Base;

    __device__ __forceinline__ void finish(Owner &owner, uint4 (&raw)[VPT])
    {
        norm_stats stats = row_stats<CENTRE, V, VPT>(owner, job.n, job.eps, slice.valid,
                                                     [&](int i, float *f) {
                                                         opaque(raw[i]);
                                                         unpack<T>(raw[i], f);
                                                     });
        if (this->first >= job.rows.m)
            return;
        int row = this->first;
        this->save(row, stats);
        const char *p = this->param(job.weight), *q = this->param(job.bias);
        char *y = this->at(job.y, row);
#pragma unroll
        for (int i = 0; i < VPT; i += G) {
            uint4 packed[G], other[G];
            this->get_weights(p, i, packed);
            if (CENTRE)
                this->get_bias(q, i, other);
#pragma unroll
            for (int k = 0; k < G; k++) {
                float f[V], w[V], b[V];
                opaque(raw[i + k]); /* or the compiler keeps the f32 values from the first pass: twice the registers */
                unpack<T>(raw[i + k], f), this->weights(packed[k], w);
                if (CENTRE)
                    unpack<T>(other[k], b);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float h = normal<CENTRE>(stats, f[c]);
                    f[c] = CENTRE ? __fmaf_rn(h, w[c], b[c]) : h * w[c];
                }
                if (i + k < slice.valid)
                    store16_once(y + (i + k) * L * 16, pack<T>(f));
            }
        }
    }
};

/* ---------------------------------------------------------------- quantised
 *
 * Each thread copies its vectors of the next STAGES rows to its own slots in shared memory. HOLD keeps the weights in
 * registers, as f32. */

template <bool CENTRE, int T, class Owner, int VPT, int STAGES, bool HOLD> struct norm_quant
    : lean_rows<CENTRE, T, Owner, VPT> {
    using Base = lean_rows<CENTRE, T, Owner, VPT>;
    using Base::job, Base::slice, Base::L, Base::V;
    static constexpr int G = VPT < 4 ? VPT : 4;

    uint32_t slots;
    float held[HOLD ? VPT : 1][V];

    SKR_DEVICE void run(const skr_norm_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        extern __shared__ __align__(128) unsigned char dynamic[];
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        norm_quant k(job, owner);
        k.slots = shared_address(dynamic) + threadIdx.x * 16;
#pragma unroll
        for (int s = 0; s < STAGES; s++)
            k.copy(k.first + s * k.step, s);
        if (HOLD)
            k.hold();
        owner.ready();
        int stage = 0;
        for (int turns = k.turns(owner); turns > 0; turns--, k.first += k.step) {
            k.finish(owner, stage);
            stage = stage + 1 < STAGES ? stage + 1 : 0;
        }
    }

    using Base::Base;

    __device__ __forceinline__ uint32_t slot(int stage, int i) const
    {
        return slots + (stage * VPT + i) * Owner::threads * 16;
    }

    __device__ __forceinline__ void copy(int row, int stage) const
    {
        if (row < job.rows.m) {
            const char *x = this->at(job.x, row);
            asm volatile("" : "+l"(x)); /* one address, and constants added to it */
#pragma unroll
            for (int i = 0; i < VPT; i++)
                if (i < slice.valid)
                    copy_async16(slot(stage, i), x + i * L * 16);
        }
        copy_async_commit();
    }

    __device__ __forceinline__ void hold()
    {
        uint4 packed[VPT];
        this->get_weights(this->param(job.weight), 0, packed);
#pragma unroll
        for (int i = 0; i < VPT; i++)
            this->weights(packed[i], held[HOLD ? i : 0]);
    }

    __device__ __forceinline__ void finish(Owner &owner, int stage)
    {
        int row = this->first;
        bool in = row < job.rows.m;
        copy_async_wait<STAGES - 1>();
        float value[VPT][V], scale, factor; /* factor makes quantised values of the values */
        norm_stats stats = {0.0f, 0.0f, 0.0f, 0.0f};
        bool wild;
        if constexpr (CENTRE)
            wild = !normalise(owner, stage, in, value, stats, scale, factor);
        else
            wild = !multiply(owner, stage, in, value, stats, scale, factor);
        if (in) {
            this->save(row, stats);
            if (this->leader && job.quant == SKR_QUANT_ROW && !wild)
                *this->statistic(job.scale, row) = scale;
        }
        int count = in && !wild ? slice.valid : 0;
        char *q = quant_at(row);
        asm volatile("" : "+l"(q));
        if (job.y_quant.type == SKR_E4M3)
            write<SKR_E4M3>(q, count, factor, value);
        else if (job.y_quant.type == SKR_E5M2)
            write<SKR_E5M2>(q, count, factor, value);
        else
            write<SKR_I8>(q, count, factor, value);
        if (L < 32 ? __any_sync(0xffffffffu, in && wild) : in && wild)
            write_wild(owner, row, in && wild, stats);
    }

    __device__ __forceinline__ uint4 fetch(bool in, int stage, int i) const
    {
        return in && i < slice.valid ? shared_load16(slot(stage, i)) : make_uint4(0, 0, 0, 0);
    }

    /* rms_norm: value is x * w. */
    __device__ __forceinline__ bool multiply(Owner &owner, int stage, bool in, float (&value)[VPT][V],
                                             norm_stats &stats, float &scale, float &factor)
    {
        float part[4] = {0.0f, 0.0f, 0.0f, 0.0f}, size[2] = {0.0f, 0.0f};
        const char *p = this->param(job.weight);
#pragma unroll
        for (int i = 0; i < VPT; i += G) {
            uint4 packed[G];
            if (!HOLD)
                this->get_weights(p, i, packed);
#pragma unroll
            for (int k = 0; k < G; k++) {
                float f[V], w[V];
                unpack<T>(fetch(in, stage, i + k), f);
                if (!HOLD)
                    this->weights(packed[k], w);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    part[c & 3] = __fmaf_rn(f[c], f[c], part[c & 3]);
                    value[i + k][c] = f[c] * (HOLD ? held[HOLD ? i + k : 0][c] : w[c]);
                    size[c & 1] = fmaxf(size[c & 1], fabsf(value[i + k][c]));
                }
            }
        }
        copy(this->first + STAGES * this->step, stage);
        float sum = (part[0] + part[1]) + (part[2] + part[3]), most = fmaxf(size[0], size[1]);
        owner.template reduce2<skr_sum, skr_max>(sum, most);
        stats.rstd = rstd_of(sum, job.n, job.eps);
        scale = scale_of(most * stats.rstd);
        factor = stats.rstd * divide_by(scale).inverse;
        return most <= 3.402823466e38f && is_tame(scale) && factor >= 0x1p-100f && factor <= 0x1p100f;
    }

    /* layer_norm: value is y. */
    __device__ __forceinline__ bool normalise(Owner &owner, int stage, bool in, float (&value)[VPT][V],
                                              norm_stats &stats, float &scale, float &factor)
    {
#pragma unroll
        for (int i = 0; i < VPT; i++)
            unpack<T>(fetch(in, stage, i), value[i]);
        copy(this->first + STAGES * this->step, stage);
        stats = row_stats<CENTRE, V, VPT>(owner, job.n, job.eps, slice.valid, [&](int i, float *f) {
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = value[i][c];
        });
        const char *p = this->param(job.weight), *q = this->param(job.bias);
        float most = 0.0f;
#pragma unroll
        for (int i = 0; i < VPT; i += G) {
            uint4 packed[G], other[G];
            if (!HOLD)
                this->get_weights(p, i, packed);
            this->get_bias(q, i, other);
#pragma unroll
            for (int k = 0; k < G; k++) {
                float w[V], b[V];
                if (!HOLD)
                    this->weights(packed[k], w);
                unpack<T>(other[k], b);
#pragma unroll
                for (int c = 0; c < V; c++) {
                    float h = normal<CENTRE>(stats, value[i + k][c]);
                    value[i + k][c] = __fmaf_rn(h, HOLD ? held[HOLD ? i + k : 0][c] : w[c], b[c]);
                    if (i + k < slice.valid)
                        most = fmaxf(most, fabsf(value[i + k][c]));
                }
            }
        }
        if (job.quant == SKR_QUANT_ROW)
            most = owner.template reduce<skr_max>(most);
        scale = scale_of(most);
        factor = divide_by(scale).inverse;
        return (job.quant == SKR_QUANT_TENSOR || most <= 3.402823466e38f) && is_tame(scale);
    }

    __device__ __forceinline__ char *quant_at(int row) const
    {
        return (char *)job.y_quant.data + row * job.y_quant.stride[0] + (slice.first + this->lane) * V;
    }

    template <int TYPE>
    __device__ __forceinline__ void write(char *q, int count, float factor, const float (&value)[VPT][V]) const
    {
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = value[i][c] * factor;
            store<TYPE>(q + i * L * V, i < count, f);
        }
    }

    template <int TYPE> __device__ __forceinline__ void store(char *p, bool in, const float *f) const
    {
        uint32_t word[V / 4];
#pragma unroll
        for (int c = 0; c < V; c += 4)
            word[c / 4] = quant2<TYPE>(f[c], f[c + 1]) | quant2<TYPE>(f[c + 2], f[c + 3]) << 16;
        if (in && V == 8)
            store8_once(p, make_uint2(word[0], word[V / 4 - 1]));
        else if (in)
            store4_once(p, word[0]);
    }

    __device__ __forceinline__ float scale_of(float most) const
    {
        return job.quant == SKR_QUANT_TENSOR ? *(const float *)job.scale.data : quant_scale(job.y_quant.type, most);
    }

    /* A row that needs care, read again: rare, so short code. Lanes of a warp come here together; mine: it is this
     * lane's row. */
    __device__ __forceinline__ void write_wild(Owner &owner, int row, bool mine, const norm_stats &stats)
    {
        const char *s = this->at(job.x, row);
        int count = mine ? slice.valid : 0;
        float most = 0.0f;
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            float f[V];
            careful(s, i, stats, f);
#pragma unroll
            for (int c = 0; c < V; c++)
                most = fmaxf(most, finite_size(f[c]));
        }
        most = owner.template reduce<skr_max>(most);
        int type = job.y_quant.type;
        float scale = scale_of(most);
        if (job.quant == SKR_QUANT_ROW && mine && this->leader)
            *this->statistic(job.scale, row) = scale;
        skr_tamer t = tame(scale);
        skr_divider by = divide_by(t.scale);
        char *q = quant_at(row);
#pragma unroll 1
        for (int i = 0; i < count; i++) {
            float f[V];
            careful(s, i, stats, f);
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = divide(by, tamed(t, f[c]));
            if (type == SKR_E4M3)
                store<SKR_E4M3>(q + i * L * V, true, f);
            else if (type == SKR_E5M2)
                store<SKR_E5M2>(q + i * L * V, true, f);
            else
                store<SKR_I8>(q + i * L * V, true, f);
        }
    }

    /* y of one vector. */
    __device__ __forceinline__ void careful(const char *s, int i, const norm_stats &stats, float *f) const
    {
        float w[V], b[V];
        unpack<T>(load16_once(s + i * L * 16), f);
        this->weights(load16(this->param(job.weight) + i * L * 16), w);
        if (CENTRE)
            load_bias<V>(job.bias, (slice.first + this->lane + i * L) * V, b);
#pragma unroll
        for (int c = 0; c < V; c++) {
            float h = normal<CENTRE>(stats, f[c]);
            f[c] = CENTRE ? __fmaf_rn(h, w[c], b[c]) : h * w[c];
        }
    }
};

#endif
