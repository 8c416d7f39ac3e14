/* cross_entropy_rows.cuh - loss and gradient of rows that fit the registers of their owner: one read, one write.
 * SPDX-License-Identifier: Apache-2.0
 *
 * An owner (some lanes, a block, a cluster) takes one row, VPT vectors of it in every thread, and is done. Each thread
 * takes the exponentials of its share against its own maximum; one exchange brings the sums together; the second pass
 * takes them again against the row's maximum. The thread that holds the target's column knows the loss. */
#ifndef SKR_CROSS_ENTROPY_ROWS_CUH
#define SKR_CROSS_ENTROPY_ROWS_CUH

#include "cross_entropy_row.cuh"

template <int T, class Owner, int VPT, bool FULL> struct cross_entropy_rows {
    static constexpr int V = skr_elem<T>::vec, L = Owner::lanes;

    const skr_cross_entropy_job &job;
    int row, start, valid; /* of this thread: its row, its vectors start, start + L, ... */
    skr_row at;
    uint4 raw[VPT];

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
        start = slice.first + lane, valid = row < (int)j.rows.m ? slice.valid : 0;
        at = row_of(j.rows, row < (int)j.rows.m ? row : 0);
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
        const char *x = row_at<const char>(job.logits, at, skr_elem<T>::bytes) + start * 16;
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            ce_vector<T, V> v;
            v.none();
            raw[i] = v.raw;
            if (i < valid)
                raw[i] = load16_once(x + i * L * 16);
        }
        bool in = row < (int)job.rows.m, leader = in && threadIdx.x % L == 0 && owner.rank() == 0;
        ce_target<skr_row> t(job, at, leader);
        skr_ce_scale scale =
            scale_of(job.head.workspace, job.room, job.reduction, job.smoothing, job.vocab, job.weight.data != nullptr);
        owner.ready();

        float max = packed_max<T, VPT>(raw), sum = 0.0f, smooth = 0.0f;
        if (FULL && job.softcap != 0.0f) /* it grows with its argument; a thread without columns must stay neutral */
            max = valid > 0 ? capped(max, job.softcap) : -INFINITY;
        float base = exp_base(max);
        /* The target's column: vector `mine` of this thread, if it is here. */
        int mine = -1, place = 0;
        float at_target = 0.0f;
        int away = (int)(t.hit / V) - start;
        if (t.hit >= 0 && away >= 0 && away % L == 0 && away / L < valid)
            mine = away / L, place = (int)(t.hit % V);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            float f[V];
            opaque(raw[i]); /* so that nothing is widened twice at the same time */
            get(i, f);
            if (i == mine) {
#pragma unroll
                for (int c = 0; c < V; c++)
                    at_target = c == place ? f[c] : at_target;
            }
            if (FULL && job.smoothing != 0.0f && i < valid) {
                float w[V];
                class_weights<V>(job, (int64_t)(start + i * L) * V, w);
#pragma unroll
                for (int c = 0; c < V; c++)
                    smooth = __fmaf_rn(f[c], scale.k * w[c], smooth);
            }
#pragma unroll
            for (int c = 0; c < V; c++)
                sum += exp_fast(f[c] - base);
        }
        owner.reduce_exp(max, sum);
        if (FULL && job.smoothing != 0.0f)
            smooth = owner.template reduce<skr_sum>(smooth);

        float lse = lse_of(max, sum);
        if (leader && job.lse.data)
            ((float *)job.lse.data)[stat_offset(job.rows, job.lse, at)] = lse;
        if (leader && !t.counts)
            put_loss(job, at, row, skr_ce_loss{0.0f, 0.0f});
        if (mine >= 0)
            put_loss(job, at, row, skr_ce_loss_of(&scale, job.z_loss, t.weight, lse, at_target, smooth));

        float grad = job.grad.data ? ((const float *)job.grad.data)[stat_offset(job.rows, job.grad, at)] : 1.0f;
        skr_ce_coef k = skr_ce_coef_of(&scale, job.z_loss, t.counts, t.weight, lse, grad, 0.0f);
        write(k, exp_base(max), k.a / sum, t.hit);
    }

    __device__ __forceinline__ void write(const skr_ce_coef &k, float base, float by, int64_t hit)
    {
        int bytes = skr_type_bytes(job.dlogits.type);
        char *y = row_at<char>(job.dlogits, at, bytes) + (int64_t)start * V * bytes;
        bool zero = is_zero(k);
#pragma unroll
        for (int i = 0; i < VPT; i++) {
            if (i >= valid)
                continue;
            float x[V], f[V];
            opaque(raw[i]); /* or the compiler keeps the f32 values from the first pass: twice the registers */
            unpack<T>(raw[i], x);
#pragma unroll
            for (int c = 0; c < V; c++)
                f[c] = zero ? 0.0f : exp_fast((FULL ? capped(x[c], job.softcap) : x[c]) - base) * by;
            if (!zero)
                finish_gradient<V, FULL>(job, k, hit, (int64_t)(start + i * L) * V, x, f);
            put_vector<T, V>(job.dlogits.type, y + (int64_t)i * L * V * bytes, f);
        }
    }
};

#endif
