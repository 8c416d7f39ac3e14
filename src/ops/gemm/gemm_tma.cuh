/* gemm_tma.cuh - gemm on Hopper's tensor cores, fed by the copy engine.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block owns 128 x BN of d: two warpgroups multiply 64 rows each, one warp of a third has the copy engine fill a ring
 * of stages, 128 bytes of k at a time. Two blocks of a cluster lie below each other and share b: each loads half of it
 * for both. Blocks stay and walk over the tiles (gemm_work.cuh), in groups that keep what they read in L2; while a tile
 * is being written the next one's stages fill.
 *
 * Three ways out: as the tensor cores left it, times one factor, d of 16 bits, through shared memory and the copy
 * engine (PLAIN); 64 columns at a time through shared memory, with scales, bias, activation and gates (not PLAIN);
 * and to the workspace, for gemm_finish.cuh to add up and to do the rest. */
#ifndef SKR_GEMM_TMA_CUH
#define SKR_GEMM_TMA_CUH

#include "../../cuda/sm90.cuh"
#include "../../cuda/wgmma.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_work.cuh"

/* AT, BT: m or n runs along memory, not k. */
template <int T, int BN, bool AT, bool BT> struct gemm_mma;
#define SKR_GEMM_MMA(T, BN, AT, BT, S, c, shape, types, modifiers)                                                     \
    template <> struct gemm_mma<T, BN, AT, BT> {                                                                       \
        typedef S sum;                                                                                                 \
        SKR_WGMMA(run, BN, S, c, shape, types, modifiers)                                                              \
    };
#define SKR_GEMM_HALF(T, types)                                                                                        \
    SKR_GEMM_MMA(T, 128, 0, 0, float, "+f", "m64n128k16", types, ", 1, 1, 0, 0")                                       \
    SKR_GEMM_MMA(T, 128, 0, 1, float, "+f", "m64n128k16", types, ", 1, 1, 0, 1")                                       \
    SKR_GEMM_MMA(T, 128, 1, 0, float, "+f", "m64n128k16", types, ", 1, 1, 1, 0")                                       \
    SKR_GEMM_MMA(T, 128, 1, 1, float, "+f", "m64n128k16", types, ", 1, 1, 1, 1")                                       \
    SKR_GEMM_MMA(T, 256, 0, 0, float, "+f", "m64n256k16", types, ", 1, 1, 0, 0")                                       \
    SKR_GEMM_MMA(T, 256, 0, 1, float, "+f", "m64n256k16", types, ", 1, 1, 0, 1")                                       \
    SKR_GEMM_MMA(T, 256, 1, 0, float, "+f", "m64n256k16", types, ", 1, 1, 1, 0")                                       \
    SKR_GEMM_MMA(T, 256, 1, 1, float, "+f", "m64n256k16", types, ", 1, 1, 1, 1")
SKR_GEMM_HALF(SKR_BF16, "f32.bf16.bf16")
SKR_GEMM_HALF(SKR_F16, "f32.f16.f16")
SKR_GEMM_MMA(SKR_I8, 128, 0, 0, int32_t, "+r", "m64n128k32", "s32.s8.s8", "")
SKR_GEMM_MMA(SKR_I8, 256, 0, 0, int32_t, "+r", "m64n256k32", "s32.s8.s8", "")

template <int T, int BN, bool AT, bool BT, bool PLAIN> struct gemm_tma {
    typedef gemm_mma<T, BN, AT, BT> mma;
    typedef typename mma::sum S;
    static constexpr int BM = SKR_GEMM_TMA_ROWS, BYTES = T == SKR_I8 ? 1 : 2, BK = SKR_GEMM_TMA_BYTES / BYTES;
    static constexpr int STAGES = BN == 256 ? 4 : 6;
    static constexpr int PANEL = 64 * 128; /* 64 rows of 128 bytes */
    static constexpr int A_BYTES = BM * 128, B_BYTES = BN * 128, STAGE = A_BYTES + B_BYTES;
    static constexpr int OUT = 2 * PANEL; /* staging of d for each warpgroup */

    const skr_gemm_job &job;
    uint32_t base, out, full, empty; /* stages, staging of d, barriers */
    int cluster, rank;

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        extern __shared__ __align__(16) unsigned char dynamic[];
        gemm_tma g(job, (shared_address(dynamic) + 1023) & ~1023u);
        g.start();
        wait_for_previous();
        let_next_start();
        if (threadIdx.x >= 256)
            g.produce();
        else
            g.consume();
    }

    __device__ __forceinline__ gemm_tma(const skr_gemm_job &j, uint32_t at)
        : job(j), base(at), cluster(j.tma.cluster), rank((int)cluster_rank())
    {
        out = base + STAGES * STAGE, full = out + 2 * OUT, empty = full + STAGES * 8;
        static_assert(STAGES * STAGE + 2 * OUT + 2 * STAGES * 8 + 1024 <= SKR_GEMM_TMA_SHARED,
                      "what the plan asks for");
    }

    __device__ __forceinline__ void start() const
    {
        if (threadIdx.x == 0) {
            for (int s = 0; s < STAGES; s++) {
                barrier_init(full + s * 8, 1);
                barrier_init(empty + s * 8, 2 * cluster);
            }
            barrier_init_done();
        }
        __syncthreads();
        if (cluster > 1) {
            cluster_arrive();
            cluster_wait();
        }
    }

    /* ---------------------------------------------------------------- the copy engine's warp */

    /* One half of b's columns, for this block or for both. */
    __device__ __forceinline__ void load_b(uint32_t to, uint32_t barrier, int half, int col, int k, int z) const
    {
        constexpr int COUNT = BN / 2, BOXES = BT ? COUNT / 64 : 1;
        col = job.gated == SKR_GEMM_HALVES ? col / 2 + half * (int)(job.n / 2) : col + half * COUNT;
        to += half * COUNT * 128;
#pragma unroll
        for (int i = 0; i < BOXES; i++) {
            int x = BT ? col + i * 64 : k, y = BT ? k : col;
            if (cluster > 1)
                tensor_load_each(to + i * PANEL, &job.tma.b, barrier, x, y, z, 3);
            else
                tensor_load(to + i * PANEL, &job.tma.b, barrier, x, y, z);
        }
    }

    __device__ __forceinline__ void produce() const
    {
        registers_down<24>(); /* 128 * 24 + 256 * 240: what 384 threads begin with, 168 each; more would wait for ever */
        if (threadIdx.x != 256)
            return;
        int stage = 0, phase = 0, burst = job.tma.burst, ready = 0;
        gemm_work w(job, rank);
        while (w.next()) {
            int za = job.tma.batch_a ? w.z : 0, zb = job.tma.batch_b ? w.z : 0;
            for (int k = w.first; k < w.last; k++) {
                uint32_t at = base + stage * STAGE, barrier = full + stage * 8;
                if (ready == 0) { /* stages are emptied in order: the last of a burst is free when all are */
                    barrier_wait(empty + (stage + burst - 1) * 8, phase ^ 1);
                    ready = burst; /* a divisor of the number of stages */
                }
                ready--;
                barrier_expect(barrier, STAGE);
                if (AT) {
#pragma unroll
                    for (int i = 0; i < BM / 64; i++)
                        tensor_load(at + i * PANEL, &job.tma.a, barrier, w.row + i * 64, k * BK, za);
                } else {
                    tensor_load(at, &job.tma.a, barrier, k * BK, w.row, za);
                }
                if (cluster == 1 || rank == 0)
                    load_b(at + A_BYTES, barrier, 0, w.col, k * BK, zb);
                if (cluster == 1 || rank == 1)
                    load_b(at + A_BYTES, barrier, 1, w.col, k * BK, zb);
                if (++stage == STAGES)
                    stage = 0, phase ^= 1;
            }
        }
        for (int s = 0; cluster > 1 && s < STAGES;
             s++) { /* bursts are of 1 then; the peer still arrives on these barriers: stay for it */
            barrier_wait(empty + stage * 8, phase ^ 1);
            if (++stage == STAGES)
                stage = 0, phase ^= 1;
        }
    }

    /* ---------------------------------------------------------------- the warpgroups that multiply */

    /* This warpgroup has read the stage: tells both blocks of the cluster, for each of them writes to both. */
    __device__ __forceinline__ void release(int stage) const
    {
        int thread = threadIdx.x & 127;
        if (cluster > 1) {
            if (thread < 2)
                barrier_arrive_peer(empty + stage * 8, thread);
        } else if (thread == 0) {
            barrier_arrive(empty + stage * 8);
        }
    }

    __device__ __forceinline__ void multiply(S (&d)[BN / 2], int count, int &stage, int &phase) const
    {
        int group = threadIdx.x / 128, last = -1;
        constexpr int A_STEP = AT ? 128 : 2, B_STEP = BT ? 128 : 2;
        for (int k = 0; k < count; k++) {
            uint32_t at = base + stage * STAGE;
            barrier_wait(full + stage * 8, phase);
            uint64_t a = wgmma_tile(at + group * PANEL, AT ? PANEL : 16), b = wgmma_tile(at + A_BYTES, BT ? PANEL : 16);
            wgmma_pin(d);
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < 4; i++)
                mma::run(d, a + i * A_STEP, b + i * B_STEP, k > 0 || i > 0);
            wgmma_commit();
            wgmma_pin(d);
            wgmma_wait<1>(); /* the stage before is free while this one is multiplied */
            if (last >= 0)
                release(last);
            last = stage;
            if (++stage == STAGES)
                stage = 0, phase ^= 1;
        }
        wgmma_wait<0>();
        wgmma_pin(d);
        release(last);
    }

    /* No row of this warpgroup is in d: the stages pass by. */
    __device__ __forceinline__ void pass(int count, int &stage, int &phase) const
    {
        for (int k = 0; k < count; k++) {
            barrier_wait(full + stage * 8, phase);
            group_sync();
            release(stage);
            if (++stage == STAGES)
                stage = 0, phase ^= 1;
        }
    }

    __device__ __forceinline__ void consume() const
    {
        registers_up<240>();
        int stage = 0, phase = 0;
        gemm_work w(job, rank);
        while (w.next()) {
            int row = w.row + threadIdx.x / 128 * 64;
            if (row < job.m) {
                S d[BN / 2];
                multiply(d, w.last - w.first, stage, phase);
                if (w.slot >= 0)
                    write_slot(d, row, w.slot);
                else if (PLAIN)
                    write_plain(d, row, w.col, w.z);
                else
                    write_staged(d, row, w.col, w.z);
            } else {
                pass(w.last - w.first, stage, phase);
            }
        }
        if (PLAIN && (threadIdx.x & 127) == 0)
            bulk_store_wait<0>();
    }

    __device__ __forceinline__ void group_sync() const
    {
        asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / 128) : "memory");
    }

    /* ---------------------------------------------------------------- to the workspace: as gemm_finish.cuh reads it */

    __device__ __forceinline__ void write_slot(const S (&d)[BN / 2], int row, int slot) const
    {
        int thread = threadIdx.x & 127;
        if (row + thread / 32 * 16 + thread % 32 / 4 >= job.m)
            return;
        char *to = gemm_slot(job, slot, (int)threadIdx.x / 128) + thread * 16;
#pragma unroll
        for (int i = 0; i < BN / 8; i++)
            put4(to + i * 2048, d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
    }

    /* Sums are stored as what they are: a float that is reinterpreted makes the compiler keep the loop's sums as
     * integers, and copy them between its multiplications. */
    __device__ __forceinline__ static void put4(char *to, float a, float b, float c, float e)
    {
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(e) : "memory");
    }
    __device__ __forceinline__ static void put4(char *to, int32_t a, int32_t b, int32_t c, int32_t e)
    {
        asm volatile("st.global.v4.s32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(e) : "memory");
    }
    __device__ __forceinline__ static void put2(uint32_t to, float a, float b)
    {
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(a), "f"(b) : "memory");
    }
    __device__ __forceinline__ static void put2(uint32_t to, int32_t a, int32_t b)
    {
        asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
    }

    /* ---------------------------------------------------------------- d of 16 bits, one factor */

    __device__ __forceinline__ uint32_t pack_out(float x, float y) const
    {
        return job.d.at.type == SKR_F16 ? pack2<SKR_F16>(x, y) : pack2<SKR_BF16>(x, y);
    }

    /* A thread has rows lane / 4 and 8 below of its warp's 16, columns 8 j + 2 (lane % 4) and the next. */
    __device__ __forceinline__ void write_plain(const S (&d)[BN / 2], int row, int col, int z) const
    {
        int lane = threadIdx.x & 31, r = (threadIdx.x / 32 & 3) * 16 + (lane & 15);
        bool elected = (threadIdx.x & 127) == 0;
        uint32_t mine = out + threadIdx.x / 128 * OUT;
        float factor = job.alpha;
        if (job.a_scale.at.data)
            factor *= *(const float *)job.a_scale.at.data;
        if (job.b_scale.at.data)
            factor *= *(const float *)job.b_scale.at.data;
#pragma unroll
        for (int part = 0; part < BN / 128; part++) {
            if (elected)
                bulk_store_wait_read<0>();
            group_sync();
#pragma unroll
            for (int j = 0; j < 8; j++) { /* 16 columns each */
                uint32_t v[4];
#pragma unroll
                for (int q = 0; q < 4; q++) { /* rows 0, rows 8, then the next 8 columns */
                    int i = (part * 8 + j) * 8 + q * 2;
                    v[q] = pack_out((float)d[i] * factor, (float)d[i + 1] * factor);
                }
                int chunk = (j & 3) * 2 + (lane >> 4);
                store_matrices(mine + (j >> 2) * PANEL + r * 128 + ((chunk ^ (r & 7)) << 4), v);
            }
            fence_async();
            group_sync();
            if (elected) {
                for (int i = 0; i < 2; i++)
                    tensor_store(&job.tma.d, mine + i * PANEL, col + part * 128 + i * 64, row, z);
                bulk_store_commit();
            }
        }
    }

    /* ---------------------------------------------------------------- scales, bias, activation, gates */

    /* A staged row has 64 sums; groups of 8 are exchanged so that the fragments of a warp meet in no bank. */
    __device__ __forceinline__ uint32_t staged(int row, int column) const
    {
        return out + threadIdx.x / 128 * OUT + (row * 64 + (column ^ (row & 3) << 3)) * 4;
    }

    template <int PART> __device__ __forceinline__ void stage_part(const S (&d)[BN / 2]) const
    {
        int lane = threadIdx.x & 31, row = (threadIdx.x / 32 & 3) * 16 + lane / 4;
        bool halves = job.gated == SKR_GEMM_HALVES;
#pragma unroll
        for (int j = 0; j < 8; j++) { /* halves: 32 columns of the gate, 32 of what it multiplies */
            constexpr int HALF = BN / 16;
            const int i = (PART * 8 + j) * 4, g = (j < 4 ? PART * 4 + j : HALF + PART * 4 + j - 4) * 4;
#pragma unroll
            for (int q = 0; q < 2; q++) {
                uint32_t to = staged(row + 8 * q, j * 8 + (lane & 3) * 2);
                if (halves)
                    put2(to, d[g + 2 * q], d[g + 2 * q + 1]);
                else
                    put2(to, d[i + 2 * q], d[i + 2 * q + 1]);
            }
        }
    }

    template <int PART> __device__ __forceinline__ void stage_one(const S (&d)[BN / 2], int part) const
    {
        if (part == PART)
            stage_part<PART>(d);
        if constexpr (PART + 1 < BN / 64)
            stage_one<PART + 1>(d, part);
    }

    __device__ __forceinline__ void write_staged(const S (&d)[BN / 2], int row, int col, int z) const
    {
        gemm_batch at(job, z);
        if (job.gated)
            write_parts<true>(d, at, row, col);
        else
            write_parts<false>(d, at, row, col);
    }

    __device__ __forceinline__ void load8(int row, int column, float *f) const
    {
        uint4 lo = shared_load16(staged(row, column)), hi = shared_load16(staged(row, column + 4));
        uint32_t raw[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
#pragma unroll
        for (int i = 0; i < 8; i++)
            f[i] = T == SKR_I8 && !job.exact ? (float)(int32_t)raw[i] : __uint_as_float(raw[i]);
    }

    /* Factor and bias of 8 columns of b, before `end`. */
    __device__ __forceinline__ void columns_of(const gemm_batch &at, int n, int end, float (&scale)[8],
                                               float (&bias)[8]) const
    {
#pragma unroll
        for (int i = 0; i < 8; i++) {
            bool in = n + i < end;
            scale[i] = in ? gemm_column_factor(job, at, n + i) : 0.0f;
            bias[i] = 0.0f;
            if (in && job.bias.data && !job.bias_rows)
                bias[i] = any_load1(job.bias.type, (const char *)job.bias.data +
                                                       (n + i) * job.bias.stride * skr_type_bytes(job.bias.type));
        }
    }

    /* 64 columns at a time; a thread keeps 8 of them, gated: 8 of each half, and takes 2 rows at once, gated one. d's
     * rows are aligned to 16 bytes, and its columns to 8 or the last ones are missing. */
    template <bool GATED>
    __device__ __forceinline__ void write_parts(const S (&d)[BN / 2], const gemm_batch &at, int row, int col) const
    {
        constexpr int LANES = GATED ? 4 : 8, STEP = 128 / LANES;
        int thread = threadIdx.x & 127, c = thread % LANES * 8, width = GATED ? (int)job.n / 2 : (int)job.n;
#pragma unroll 1
        for (int part = 0; part < BN / 64; part++, col += 64) {
            if (col >= job.n)
                return;
            int n = GATED ? col / 2 + c : col + c;
            float scale[8], bias[8], up_scale[8], up_bias[8];
            columns_of(at, n, width, scale, bias); /* on their way while the sums are staged */
            if (GATED)
                columns_of(at, n + width, 2 * width, up_scale, up_bias);
            group_sync();
            stage_one<0>(d, part);
            group_sync();
#pragma unroll 1
            for (int r = thread / LANES; r < 64; r += 2 * STEP) {
                float f[16];
                load8(r, c, f);
                load8(GATED ? r : r + STEP, GATED ? 32 + c : c, f + 8);
                if (GATED) {
                    gate8(f, at, row + r, scale, bias, up_scale, up_bias);
                } else if (!(T == SKR_I8 && job.exact)) {
                    finish8(f, at, row + r, scale, bias);
                    finish8(f + 8, at, row + r + STEP, scale, bias);
                    if (job.act)
                        forward_vector<false, 16>(job.act, 0.0f, 0.0f, f, f, f);
                }
                store8(at, row + r, n, width, f);
                if (GATED) {
                    load8(r + STEP, c, f);
                    load8(r + STEP, 32 + c, f + 8);
                    gate8(f, at, row + r + STEP, scale, bias, up_scale, up_bias);
                }
                store8(at, row + r + STEP, n, width, GATED ? f : f + 8);
            }
        }
    }

    /* Gate and up of a row become act(gate) * up. */
    __device__ __forceinline__ void gate8(float *f, const gemm_batch &at, int64_t m, const float (&scale)[8],
                                          const float (&bias)[8], const float (&up_scale)[8],
                                          const float (&up_bias)[8]) const
    {
        finish8(f, at, m, scale, bias);
        finish8(f + 8, at, m, up_scale, up_bias);
        forward_vector<true, 8>(job.act, 1.702f, 7.0f, f, f + 8, f);
    }

    __device__ __forceinline__ void store8(const gemm_batch &at, int64_t m, int n, int width, const float *f) const
    {
        const int type = job.d.at.type == SKR_I32 ? (int)SKR_F32 : job.d.at.type, bytes = skr_type_bytes(type);
        char *to = (char *)job.d.at.data + (at.d + m * job.d.row + n) * bytes;
        if (m >= job.m)
            return;
        if (n + 8 <= width) {
            any_store<8>(type, to, f);
            return;
        }
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (n + i < width)
                any_store1(type, to + i * bytes, f[i]);
    }

    __device__ __forceinline__ void finish8(float *f, const gemm_batch &at, int64_t m, const float (&scale)[8],
                                            const float (&bias)[8]) const
    {
        if (m >= job.m)
            return;
        float factor = gemm_row_factor(job, at, m), more = 0.0f;
        if (job.bias.data && job.bias_rows)
            more = any_load1(job.bias.type,
                             (const char *)job.bias.data + m * job.bias.stride * skr_type_bytes(job.bias.type));
#pragma unroll
        for (int i = 0; i < 8; i++) {
            f[i] *= factor * scale[i];
            if (job.bias.data)
                f[i] += bias[i] + more; /* one of them is 0 */
        }
    }
};

#endif
