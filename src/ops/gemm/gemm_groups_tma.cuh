/* gemm_groups_tma.cuh - grouped_gemm on Hopper's tensor cores, fed by the copy engine.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The stages of gemm_tma.cuh with tiles of up to 256 x 128: one to four blocks of 64 rows, as many as a group has,
 * which two warpgroups multiply in turn; no more is read or multiplied than that. Two blocks of a cluster lie beside
 * each other and share a. Of the third warpgroup one warp finds the tiles (gemm_groups.cuh), which takes several waits
 * for memory, ahead of all others; another has the copy engine fill the stages. One map shows all rows of a. Groups of
 * rows: a block of 64 rows may end among the next group's, of which nothing reaches d. Groups of k's: what the last
 * step reads of the next group is overwritten with zeros, in a and in b, for 0 times infinity is not 0. */
#ifndef SKR_GEMM_GROUPS_TMA_CUH
#define SKR_GEMM_GROUPS_TMA_CUH

#include "gemm_groups.cuh"
#include "gemm_tma.cuh"

/* A tile, as everyone but its finder sees it. */
struct __align__(16) gemm_group_tile
{
    static constexpr int slot = -1; /* gemm_tma_out.cuh: d itself */
    int row, col, z;
    int first;       /* the group's first row, or k */
    int blocks;      /* of 64 rows; 0: there are no more tiles */
    int steps, tail; /* of k; k's of the last step */
};

/* Tiles that were found and that not everyone has taken. */
struct gemm_group_ring {
    static constexpr int DEPTH = 4, TAKERS = 9; /* eight warps that multiply and one thread that loads */
    struct shared {
        gemm_group_tile tile[DEPTH];
        uint64_t full[DEPTH], empty[DEPTH];
    };
    shared &memory;
    uint32_t turn; /* puts or takes so far */

    __device__ __forceinline__ gemm_group_ring(shared &m) : memory(m), turn(0)
    {
    }

    /* By one thread, before barrier_init_done(). */
    __device__ __forceinline__ void start() const
    {
        for (int i = 0; i < DEPTH; i++) {
            barrier_init(shared_address(&memory.full[i]), 1);
            barrier_init(shared_address(&memory.empty[i]), TAKERS);
        }
    }

    __device__ __forceinline__ void put(const gemm_group_tile &t)
    {
        const uint32_t at = turn % DEPTH;
        barrier_wait(shared_address(&memory.empty[at]), (turn++ / DEPTH & 1) ^ 1);
        memory.tile[at] = t;
        barrier_arrive(shared_address(&memory.full[at]));
    }

    /* By a whole warp, or by one thread. */
    template <bool WARP> __device__ __forceinline__ gemm_group_tile take()
    {
        const uint32_t at = turn % DEPTH;
        barrier_wait(shared_address(&memory.full[at]), turn++ / DEPTH & 1);
        const gemm_group_tile t = memory.tile[at];
        if (WARP)
            __syncwarp();
        if (!WARP || (threadIdx.x & 31) == 0)
            barrier_arrive(shared_address(&memory.empty[at]));
        return t;
    }
};

/* AT, BT: m or n runs along memory, not k. KS: groups of k's, not of rows. */
template <int T, bool AT, bool BT, bool KS> struct gemm_groups_tma
    : gemm_tma<T, T, SKR_GEMM_KEPT, 128, AT, BT, SKR_GEMM_GROUP_ROWS> {
    typedef gemm_tma<T, T, SKR_GEMM_KEPT, 128, AT, BT, SKR_GEMM_GROUP_ROWS> product;
    typedef gemm_tma_out<float, 128, -1, true> out_type;
    using product::advance, product::base, product::sharers, product::empty, product::full, product::job;
    using product::out, product::rank;
    static constexpr int BN = 128, BK = product::BK, BLOCK = 64, PANEL = product::PANEL, STAGE = product::STAGE;
    static constexpr int A_BYTES = product::A_BYTES, B_BYTES = product::B_BYTES, OWN = SKR_GEMM_GROUP_ROWS / BLOCK / 2;

    gemm_group_ring::shared &tiles;

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        __shared__ gemm_group_ring::shared tiles;
        if (threadIdx.x == 0)
            gemm_group_ring(tiles).start();
        gemm_roles(gemm_groups_tma(job, gemm_stages_at(), tiles));
    }

    __device__ __forceinline__ gemm_groups_tma(const skr_gemm_job &j, uint32_t at, gemm_group_ring::shared &t)
        : product(j, at), tiles(t)
    {
    }

    __device__ __forceinline__ void produce() const
    {
        registers_down<40>(); /* 128 * 40 + 256 * 232: what 384 threads begin with; finding takes more than 24 */
        if (threadIdx.x == 256)
            load();
        else if (threadIdx.x == 288)
            find();
    }

    /* ---------------------------------------------------------------- the thread that finds the tiles */

    __device__ __forceinline__ void find() const
    {
        gemm_group_ring ring(tiles);
        gemm_group_walk walk((int)blockIdx.x / sharers, (int)gridDim.x / sharers);
        gemm_tile_at t;
        while (walk.next(job, BK, t)) {
            const skr_gemm_group g = gemm_group_table(job)[t.z];
            /* All tiles of a group have the same number of blocks, or one more. */
            const int rows = (int)(KS ? job.m : g.count), blocks = (rows + BLOCK - 1) / BLOCK;
            const int high = (blocks + 2 * OWN - 1) / (2 * OWN), each = blocks / high, more = blocks % high;
            const int i = t.row / SKR_GEMM_GROUP_ROWS, steps = max(t.last, 1); /* without k's: a step of zeros */
            const int tail = KS ? (int)g.count - (steps - 1) * BK : BK;
            ring.put({(i * each + min(i, more)) * BLOCK, t.col + rank * BN, t.z, (int)g.first, each + (i < more), steps,
                      tail});
        }
        ring.put({});
    }

    /* ---------------------------------------------------------------- the copy engine's thread */

    __device__ __forceinline__ void load() const
    {
        int stage = 0, phase = 0;
        gemm_group_ring ring(tiles);
        for (gemm_group_tile t = ring.take<false>(); t.blocks; t = ring.take<false>()) {
            const int z = job.work.batch_b ? t.z : 0;
            const int left = this->half_columns(0, t.col, true), right = this->half_columns(1, t.col, true);
            for (int k = 0; k < t.steps; k++) {
                const uint32_t at = base + stage * STAGE, barrier = full + stage * 8;
                const int y = k * BK + (KS ? t.first : 0);
                barrier_wait(empty + stage * 8, phase ^ 1);
                barrier_expect(barrier, t.blocks * PANEL + (left + right) * 128);
                for (int i = rank; i < t.blocks; i += sharers)
                    load_a(at + i * PANEL, barrier, t.row + i * BLOCK + (KS ? 0 : t.first), y);
                this->load_b(job.work.b, at + A_BYTES, barrier, 0, left, t.col, y, z, false);
                this->load_b(job.work.b, at + A_BYTES, barrier, 1, right, t.col, y, z, false);
                advance(stage, phase);
            }
        }
        this->stay(stage, phase);
    }

    /* 64 rows, for this block or for both. */
    __device__ __forceinline__ void load_a(uint32_t to, uint32_t barrier, int row, int k) const
    {
        const int x = AT ? row : k, y = AT ? k : row;
        if (sharers > 1)
            tensor_load_each(to, &job.work.a, barrier, x, y, 0, 3);
        else
            tensor_load(to, &job.work.a, barrier, x, y, 0);
    }

    /* ---------------------------------------------------------------- the warpgroups that multiply */

    __device__ __forceinline__ void consume() const
    {
        registers_up<232>();
        const int group = threadIdx.x / 128;
        const out_type way = {job, out + group * product::OUT};
        int stage = 0, phase = 0;
        gemm_group_ring ring(tiles);
        for (gemm_group_tile t = ring.take<true>(); t.blocks; t = ring.take<true>()) {
            const int own = (t.blocks + 1 - group) / 2; /* blocks of this warpgroup: every second one */
            typename out_type::options o;
            float d[OWN][BN / 2];
            const int row = t.row + group * BLOCK;
            if (own)
                way.read_options(row, t, o);
            const auto arrived = [&](uint32_t at, int k) {
                if (KS && k == t.steps - 1)
                    clear_tail(at, t);
            };
            if (own == 2)
                this->template multiply<2>(d, t.steps, stage, phase, arrived);
            else if (own == 1)
                this->template multiply<1>(d, t.steps, stage, phase, arrived);
            else
                this->pass(t.steps, stage, phase, arrived);
#pragma unroll
            for (int b = 0; b < OWN; b++)
                if (b < own && t.col < job.n) {
                    if (b && !job.work.plain)
                        way.read_rows(row + 2 * BLOCK, t.z, o);
                    way.write(d[b], row + b * 2 * BLOCK, t, o);
                }
        }
        way.done();
    }

    /* By both warpgroups: zeros for the k's of the last step that are not the group's. A k is a row of each panel. */
    __device__ __forceinline__ void clear_tail(uint32_t at, const gemm_group_tile &t) const
    {
        if (t.tail == BK)
            return;
        for (int p = 0; p < t.blocks + BN / 64; p++) {
            const uint32_t panel = at + (p < t.blocks ? p * PANEL : A_BYTES + (p - t.blocks) * PANEL);
            for (int i = t.tail * 128 + (int)threadIdx.x * 16; i < PANEL; i += 256 * 16)
                shared_store16(panel + i, make_uint4(0, 0, 0, 0));
        }
        fence_async();
        asm volatile("bar.sync %0, %1;" ::"n"(3), "n"(256) : "memory"); /* 1 and 2 are those of a warpgroup */
    }
};

/* The kernels of a type: k along memory in both; k and n; groups of k's, m and n. */
#define SKR_GEMM_GROUPS_KERNEL(type, layout, ...)                                                                      \
    extern "C" __global__ void __launch_bounds__(384, 1)                                                               \
        skr_gemm_groups_##type##_##layout(const __grid_constant__ skr_gemm_job job)                                    \
    {                                                                                                                  \
        gemm_groups_tma<__VA_ARGS__>::run(job);                                                                        \
    }
#define SKR_GEMM_GROUPS(type, T)                                                                                       \
    SKR_GEMM_GROUPS_KERNEL(type, kk, T, false, false, false)                                                           \
    SKR_GEMM_GROUPS_KERNEL(type, kn, T, false, true, false)                                                            \
    SKR_GEMM_GROUPS_KERNEL(type, mn, T, true, true, true)

#endif
