/* cross_entropy_rows.cuh - loss and gradient of rows that fit the registers of their owner: one read, one write.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An owner (some lanes, a block, a cluster) takes one row, VPT vectors of it in every thread, and is done. Each thread
 * takes the exponentials of its share against its own maximum; one exchange brings the sums together. KEEP: the
 * exponentials stay in registers and the second pass multiplies them; otherwise the packed logits stay, half the
 * registers for 16-bit types, and the second pass takes the exponentials again. The thread that holds the target's
 * column knows the loss. */
#ifndef SKR_CROSS_ENTROPY_ROWS_CUH
#define SKR_CROSS_ENTROPY_ROWS_CUH

#include "cross_entropy_row.cuh"

template <int T, class Owner, int VPT, bool KEEP, bool FULL> struct cross_entropy_rows {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;
    static_assert(!(KEEP && FULL), "softcap needs the logits again");

    const skr_cross_entropy_job &job;
    int row, start, valid; /* of this thread: its row (-1: none), its vectors start, start + L, ... */
    int mine, place;       /* where the target's column is: vector of this thread, element; mine < 0: elsewhere */
    uint4 raw[VPT];
    float kept[KEEP ? VPT * V : 1];

    SKR_DEVICE void run(const skr_cross_entropy_job &job)
    {
        __shared__ __align__(16) typename Owner::shared memory;
        Owner owner(memory);
        owner.start();
        wait_for_previous();
        let_next_start();
        cross_entropy_rows k(job, owner);
        k.all(owner);
    }

    __device__ __forceinline__ cross_entropy_rows(const skr_cross_entropy_job &j, const Owner &owner) : job(j)
    {
        int lane = threadIdx.x % L;
        row = owner.index() * Owner::groups + threadIdx.x / L;
        row_slice<Owner> slice = row_slice<Owner>::template of<V>(owner, j.n);
        start = slice.first + lane, valid = slice.valid;
        if (row >= (int)j.rows.m)
            row = -1, valid = 0;
    }

    /* Worked out anew where it is needed: less to keep. */
    __device__ __forceinline__ skr_row at() const
    {
        return row_of(job.rows, max(row, 0));
    }

    /* s of vector i. */
    __device__ __forceinline__ void get(int i, float *f)
    {
        unpack<T>(raw[i], f);
        if (FULL && job.softcap != 0.0f) {
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = i < valid ? capped(f[c], job.softcap) : -INFINITY;
        }
    }

    __device__ __forceinline__ void all(Owner &owner)
    {
        const char *x = row_at<const char>(job.logits, at(), skr_elem<T>::bytes) + start * 16;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            ce_vector<T, V> v;
            v.none();
            raw[i] = v.raw;
            if (i < valid)
                raw[i] = load16_once(x + i * L * 16);
        }
        bool leader = row >= 0 && threadIdx.x % L == 0 && owner.rank() == 0;
        ce_target<skr_row> t(job, at(), leader);
        skr_ce_scale scale = scale_of(job);
        int away = (int)t.hit / V - start;
        mine = t.hit >= 0 && away >= 0 && away % L == 0 && away / L < valid ? away / L : -1;
        place = (int)t.hit % V;
        /* Read again by the one thread that will write this column: picking it out of registers costs all of them. */
        float at_target = 0.0f;
        if (mine >= 0)
            at_target = any_load1(T, x + (mine * L * V + place) * skr_elem<T>::bytes);
        owner.ready();

        float top = packed_max<T, VPT>(raw), smooth = 0.0f, part[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (FULL && job.softcap != 0.0f) /* it grows with its argument; a thread without columns must stay neutral */
            top = valid > 0 ? capped(top, job.softcap) : -INFINITY;
        float own = exp_base(top);
        skr_exponent e(top);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            get(i, f);
            if (FULL && job.smoothing != 0.0f && i < valid) {
                float w[V];
                class_weights<V>(job, (int64_t)(start + i * L) * V, w);
#pragma unroll
                for (int c = 0; c < V; c++)
                    smooth = __fmaf_rn(f[c], scale.k * w[c], smooth);
            }
#pragma unroll
            for (int c = 0; c < V; c++) {
                float p = e.at(f[c]);
                part[c & 3] += p;
                if (KEEP)
                    kept[i * V + c] = p;
            }
        }
        float sum = ((part[0] + part[1]) + (part[2] + part[3])) * e.fix;
        join_sums(owner, top, sum);
        if (FULL && job.smoothing != 0.0f)
            smooth = owner.template reduce<skr_sum>(smooth);

        float lse = leader || mine >= 0 || job.z_loss != 0.0f ? lse_of(top, sum) : 0.0f;
        if (leader && job.lse.data)
            ((float *)job.lse.data)[stat_offset(job.rows, job.lse, at())] = lse;
        if (leader && !t.counts)
            put_loss(job, at(), row, skr_ce_loss{0.0f, 0.0f});
        if (mine >= 0) {
            if (FULL)
                at_target = capped(at_target, job.softcap);
            put_loss(job, at(), row, skr_ce_loss_of(&scale, job.z_loss, t.weight, lse, at_target, smooth));
        }

        float grad = job.grad.data ? ((const float *)job.grad.data)[stat_offset(job.rows, job.grad, at())] : 1.0f;
        skr_ce_coef k = skr_ce_coef_of(&scale, job.z_loss, t.counts, t.weight, lse, grad, 0.0f);
        skr_exponent again(top);
        float by = __fdividef(k.a, sum) * (KEEP ? e.fix * exp_flush(own - exp_base(top)) : again.fix);
        if (is_zero(k))
            zeros();
        else if (job.dlogits.type == T)
            write<true>(k, again, by);
        else
            write<false>(k, again, by);
    }

    template <bool SAME> __device__ __forceinline__ void write(const skr_ce_coef &k, const skr_exponent &e, float by)
    {
        int bytes = SAME ? skr_elem<T>::bytes : skr_type_bytes(job.dlogits.type);
        char *y = row_at<char>(job.dlogits, at(), bytes) + (int64_t)start * V * bytes;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            if (i >= valid)
                continue;
            float x[V], f[V];
            if (!KEEP) {
                opaque(raw[i]); /* or the compiler keeps the f32 values from the first pass: twice the registers */
                unpack<T>(raw[i], x);
            }
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = (KEEP ? kept[KEEP ? i * V + c : 0] : e.at(FULL ? capped(x[c], job.softcap) : x[c])) * by;
            finish_gradient<V, FULL>(job, k, i == mine ? place : V, (int64_t)(start + i * L) * V, x, f);
            put_vector<T, V, SAME>(job.dlogits.type, y + i * (L * V * bytes), f);
        }
    }

    __device__ __forceinline__ void zeros()
    {
        int bytes = skr_type_bytes(job.dlogits.type);
        char *y = row_at<char>(job.dlogits, at(), bytes) + (int64_t)start * V * bytes;
        float f[V] = {};
#pragma unroll
        for (int i = 0; i < VPT; i++)
            if (i < valid)
                put_vector<T, V, false>(job.dlogits.type, y + i * (L * V * bytes), f);
    }
};

#endif
