/* gemm_groups_tma.cuh - grouped_gemm of rows on Hopper's tensor cores, fed by the copy engine.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The stages and the multiplying of gemm_tma.cuh, with tiles of 128 x 256 of the groups (gemm_groups.cuh). One map
 * shows all rows of a and one all groups of b; a tile begins at its group's first row, reads into the next group where
 * its own ends, and stores no more than its own rows. So d cannot go through the copy engine: sums are staged in shared
 * memory, and each thread stores 8 neighbours of a row. */
#ifndef SKR_GEMM_GROUPS_TMA_CUH
#define SKR_GEMM_GROUPS_TMA_CUH

#include "gemm_groups.cuh"
#include "gemm_tma.cuh"

/* BT: n runs along memory in b, not k. */
template <int T, bool BT> struct gemm_groups_tma : gemm_tma<T, 256, false, BT> {
    typedef gemm_tma<T, 256, false, BT> product;
    using product::advance, product::base, product::empty, product::full, product::job, product::out;
    static constexpr int BN = 256, BK = product::BK, WIDTH = 64, PARTS = BN / WIDTH;
    static_assert(64 * WIDTH * sizeof(float) <= product::OUT, "a part of a warpgroup's sums");

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        extern __shared__ __align__(16) unsigned char dynamic[];
        const gemm_groups_tma g(job, (shared_address(dynamic) + 1023) & ~1023u);
        g.start();
        wait_for_previous();
        let_next_start();
        if (threadIdx.x >= 256)
            g.produce();
        else
            g.consume();
    }

    __device__ __forceinline__ gemm_groups_tma(const skr_gemm_job &j, uint32_t at) : product(j, at)
    {
    }

    __device__ __forceinline__ void produce() const
    {
        registers_down<40>(); /* 128 * 40 + 256 * 232: what 384 threads begin with; the walk takes more than 24 */
        if (threadIdx.x != 256)
            return;
        int stage = 0, phase = 0;
        gemm_group_walk walk;
        gemm_tile_at t;
        while (walk.next(job, BK, t)) {
            int row = (int)gemm_group_table(job)[t.z].first + t.row, z = job.work.batch_b ? t.z : 0;
            for (int k = 0; k < t.last; k++) {
                uint32_t at = base + stage * product::STAGE, barrier = full + stage * 8;
                barrier_wait(empty + stage * 8, phase ^ 1);
                barrier_expect(barrier, product::STAGE);
                tensor_load(at, &job.work.a, barrier, k * BK, row, 0);
                this->load_b(at + product::A_BYTES, barrier, 0, t.col, k * BK, z);
                this->load_b(at + product::A_BYTES, barrier, 1, t.col, k * BK, z);
                advance(stage, phase);
            }
        }
    }

    __device__ __forceinline__ void consume() const
    {
        registers_up<232>();
        int stage = 0, phase = 0;
        gemm_group_walk walk;
        gemm_tile_at t;
        while (walk.next(job, BK, t)) {
            t.row += (int)threadIdx.x / 128 * 64;
            if (t.row < gemm_group_table(job)[t.z].count) {
                float d[BN / 2];
                this->multiply(d, t.last, stage, phase);
                write(d, t);
            } else {
                this->pass(t.last, stage, phase);
            }
        }
    }

    /* ---------------------------------------------------------------- to d */

    /* A staged row has 64 sums; groups of 8 are exchanged so that the fragments of a warp meet in no bank. */
    __device__ __forceinline__ uint32_t staged(int row, int column) const
    {
        return out + threadIdx.x / 128 * product::OUT + (row * WIDTH + (column ^ (row & 3) << 3)) * 4;
    }

    /* Columns 64 PART to 64 PART + 63; of gates 32 of each half. */
    template <int PART> __device__ __forceinline__ void stage_part(const float (&d)[BN / 2], int part) const
    {
        if constexpr (PART < PARTS) {
            if (part != PART) {
                stage_part<PART + 1>(d, part);
                return;
            }
            int lane = threadIdx.x & 31, row = (threadIdx.x / 32 & 3) * 16 + lane / 4;
#pragma unroll
            for (int j = 0; j < 8; j++) {
                const int i = (PART * 8 + j) * 4, g = (j < 4 ? PART * 4 + j : BN / 16 + PART * 4 + j - 4) * 4;
#pragma unroll
                for (int q = 0; q < 2; q++) {
                    float x = job.gated ? d[g + 2 * q] : d[i + 2 * q],
                          y = job.gated ? d[g + 2 * q + 1] : d[i + 2 * q + 1];
                    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(staged(row + 8 * q, j * 8 + (lane & 3) * 2)),
                                 "f"(x), "f"(y)
                                 : "memory");
                }
            }
        }
    }

    __device__ __forceinline__ void load8(int row, int column, float (&f)[8]) const
    {
        unpack<SKR_F32>(shared_load16(staged(row, column)), f);
        unpack<SKR_F32>(shared_load16(staged(row, column + 4)), f + 4);
    }

    /* 8 columns to a thread; of gates, 8 of each half. Columns of d come in eights. */
    __device__ __forceinline__ void write(const float (&d)[BN / 2], const gemm_tile_at &t) const
    {
        const gemm_batch z(job, t.z);
        const int lanes = job.gated ? 4 : 8, width = (int)(job.gated ? job.n / 2 : job.n), thread = threadIdx.x & 127;
        const int c = thread % lanes * 8;
#pragma unroll 1
        for (int part = 0; part < PARTS; part++) {
            int n = (t.col + part * WIDTH) / (job.gated ? 2 : 1) + c;
            gemm_columns8 gate, up; /* up: the column itself, without gates */
            if (n < width) {
                up.read(job, z, job.gated ? n + width : n);
                if (job.gated)
                    gate.read(job, z, n);
            }
            product::out_type::group_sync();
            stage_part<0>(d, part);
            product::out_type::group_sync();
            if (n >= width)
                continue;
#pragma unroll 1
            for (int r = thread / lanes; r < 64 && t.row + r < z.m; r += 128 / lanes) {
                const float factor = gemm_row_factor(job, z, t.row + r);
                float f[8], x[8];
                load8(r, job.gated ? 32 + c : c, f);
                up.apply(factor, f);
                if (job.gated) {
                    load8(r, c, x);
                    gate.apply(factor, x);
                    forward_vector<true, 8>(job.act, 1.702f, 7.0f, x, f, f);
                } else if (job.act) {
                    forward_vector<false, 8>(job.act, 0.0f, 0.0f, f, f, f);
                }
                int64_t to = gemm_d_row(job, z, t.row + r);
                if (to >= 0)
                    any_store<8>(job.d.at.type,
                                 (char *)job.d.at.data + (z.d + to * job.d.row + n) * skr_type_bytes(job.d.at.type), f);
            }
        }
    }
};

#endif
