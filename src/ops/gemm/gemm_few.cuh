/* gemm_few.cuh - gemm of few rows of a on Hopper: f16, bf16 or e4m3, up to 64 rows, at the speed of reading b; f16 or
 * bf16 with i4 or i8 weights in groups (codes), up to 512.
 * SPDX-License-Identifier: Apache-2.0
 *
 * b's columns are the rows of the matrix instructions, a's rows their columns: a block has ROWS rows of a, all that
 * there are (with codes, tiles may lie below each other), and 64 columns of b. Each of two warpgroups takes every
 * second 128 bytes of k, with codes every second 128 k's (`apart`); of gates in halves, 64 columns of one half, and a
 * block has 128. One more warp has the copy engine fill a ring of stages, as many as fit. Where there are few tiles, k
 * is cut over the blocks of a cluster, for one block gets 80 GB/s from the copy engine and no more. Each block owns the
 * sums of some rows of a: the others send it theirs, and it adds them in one order. Blocks stay and walk over the
 * tiles, and the stages of the next one fill while sums are exchanged and written. Sums of fp8 products leave the
 * tensor cores after every step, as in gemm_tma.cuh, whether or not they may stay: b is waited for anyway. Such a
 * kernel takes ten microseconds, and code that nobody has run yet comes from memory as slowly as data: what a product
 * without options runs through is short, and the rest is a call. */
#ifndef SKR_GEMM_FEW_CUH
#define SKR_GEMM_FEW_CUH

#include "gemm_code_stages.cuh"

/* Bytes of the sums of so many rows of a, and what they leave for stages. */
template <int ROWS> constexpr int gemm_few_sums = SKR_GEMM_FEW_COLUMNS * 4 * ROWS;
template <int ROWS> constexpr int gemm_few_room = SKR_GEMM_TMA_SHARED - 2048 - gemm_few_sums<ROWS>;

/* Where the sums of a tile lie for the options: 128 columns for each row of a. */
SKR_DEVICE uint32_t gemm_few_at(uint32_t sums, int row, int column)
{
    return sums + (row * SKR_GEMM_FEW_COLUMNS + column) * 4;
}

SKR_DEVICE void gemm_few_load8(uint32_t sums, int row, int column, float (&f)[8])
{
    unpack<SKR_F32>(shared_load16(gemm_few_at(sums, row, column)), f);
    unpack<SKR_F32>(shared_load16(gemm_few_at(sums, row, column + 4)), f + 4);
}

/* Eight columns to a thread; of gates, the tile's first half. d's columns come in eights, and what is stored beside d,
 * added to it or differentiated is not here. */
SKR_DEVICE void gemm_few_vectors(const skr_gemm_job &job, uint32_t sums, int col, const gemm_batch &z, int first,
                                 int rows)
{
    const int width = (int)(job.gated ? job.n / 2 : job.n);
    const int shift = !job.gated && job.work.rows == 128 ? 4 : 3; /* log2 of a row's threads */
    const int c = (threadIdx.x & ((1 << shift) - 1)) * 8, n = (job.gated ? col / 2 : col) + c;
    gemm_columns8 gate, up; /* up: the column itself, without gates */
    if (n >= width)
        return;
    up.read(job, z, job.gated ? n + width : n);
    if (job.gated)
        gate.read(job, z, n);
#pragma unroll 1
    for (int r = threadIdx.x >> shift; r < rows && first + r < job.m; r += 256 >> shift) {
        const float factor = gemm_row_factor(job, z, first + r);
        float f[8], x[8];
        gemm_few_load8(sums, r, job.gated ? 64 + c : c, f);
        up.apply(factor, f);
        if (job.gated) {
            gemm_few_load8(sums, r, c, x);
            gate.apply(factor, x);
            forward_vector<true, 8>(job.act, 1.702f, 7.0f, x, f, f);
        } else if (job.act) {
            forward_vector<false, 8>(job.act, 0.0f, 0.0f, f, f, f);
        }
        any_store<8>(job.d.at.type,
                     (char *)job.d.at.data + (z.d + (first + r) * job.d.row + n) * skr_type_bytes(job.d.at.type), f);
    }
}

/* Every option: 256 threads write the sums of `rows` rows of a, from `first` on. */
static __device__ __noinline__ void gemm_few_options(const skr_gemm_job &job, uint32_t sums, int col, int batch,
                                                     int first, int rows)
{
    const gemm_batch z(job, batch);
    if (job.work.store) {
        gemm_few_vectors(job, sums, col, z, first, rows);
        return;
    }
    const int lanes = job.work.rows / 2, c = threadIdx.x % lanes * 2;
    const int64_t n = col + c;
    if (n < job.n)
#pragma unroll 1
        for (int r = threadIdx.x / lanes; r < rows && first + r < job.m; r += 256 / lanes) {
            /* Of gates in halves, the one half's columns are the tile's first 64. */
            const bool halves = job.gated == SKR_GEMM_HALVES;
            float x[2] = {shared_load4(gemm_few_at(sums, r, halves ? c / 2 : c)),
                          shared_load4(gemm_few_at(sums, r, halves ? 64 + c / 2 : c + 1))};
            gemm_finish_pair(job, z, first + r, n, n + 1 < job.n, x);
        }
}

/* B: b's type. BT: n runs along memory in b, not k. */
template <int T, int B, int ROWS, bool BT> struct gemm_few
    : gemm_code_stages<T, B, ROWS, BT, gemm_few_room<ROWS>, true> {
    static constexpr bool STEPWISE = T == SKR_E4M3, CODES = T != B;
    static constexpr int BOXES = SKR_GEMM_CODE_BOXES(T, B);                                 /* of a, for one of b */
    static constexpr int EACH = SKR_GEMM_TMA_BYTES / (STEPWISE ? 1 : 2), BK = EACH * BOXES; /* k's of a's box, of b's */
    static constexpr int SUMS = gemm_few_sums<ROWS>;
    typedef gemm_code_stages<T, B, ROWS, BT, gemm_few_room<ROWS>, true> stages;
    using stages::advance, stages::apart, stages::base, stages::empty, stages::full, stages::A_BYTES, stages::B_BYTES,
        stages::A_BOX, stages::PANEL, stages::STAGE, stages::STAGES;
    typedef gemm_code_columns<T, B> columns;
    static constexpr int K_EACH = B == SKR_I4 ? 2 : 1; /* k's of an element that the copy engine knows */
    static constexpr int AHEAD = 2; /* steps that L2 is asked for before the kernel before has ended */
    static_assert((2 * STAGES + 2) * 8 <= 1024, "what the alignment leaves of 2048");

    const skr_gemm_job &job;
    uint32_t sums, arrived, taken;       /* arrived: the peers' sums; taken: mine, by all of them */
    int cluster, cut, rank, unit, tiles; /* cut: log2 of cluster */

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        gemm_roles(gemm_few(job, gemm_stages_at()));
    }

    __device__ __forceinline__ gemm_few(const skr_gemm_job &j, uint32_t at)
        : stages{at, at + STAGES * STAGE + SUMS, at + STAGES * (STAGE + 8) + SUMS, 1, j.work.rows == 64}, job(j),
          sums(at + STAGES * STAGE), arrived(empty + STAGES * 8), taken(arrived + 8), cluster(j.work.cluster),
          cut(31 - __clz(cluster)), rank((int)cluster_rank()), unit((int)blockIdx.x >> cut),
          tiles(j.work.tiles_m * j.work.tiles_n * j.work.batches)
    {
    }

    __device__ __forceinline__ void start() const
    {
        if (threadIdx.x == 256) {
            tensor_prefetch(&job.work.a);
            tensor_prefetch(&job.work.b);
        }
        if (threadIdx.x == 0) {
            this->init_stages();
            barrier_init(arrived, 1);
            barrier_init(taken, cluster);
            barrier_init_done();
        }
        __syncthreads();
        if (cluster > 1)
            cluster_arrive();
        ask_ahead();
    }

    /* The steps of k that this block takes: from step_at(rank) to step_at(rank + 1). */
    __device__ __forceinline__ int step_at(int which) const
    {
        return job.work.steps * which >> cut;
    }

    /* row: of codes, several tiles may be below each other. */
    __device__ __forceinline__ void place(int tile, int &row, int &col, int &z) const
    {
        row = 0;
        if (CODES) {
            const int above = tile / job.work.tiles_m;
            row = (tile - above * job.work.tiles_m) * ROWS, tile = above;
        }
        z = job.work.batches > 1 ? tile / job.work.tiles_n : 0;
        col = (tile - z * job.work.tiles_n) * job.work.rows;
    }

    /* Where b's panel 0 or 1 of a step is: the next k's of the same columns, or the other half's columns. */
    __device__ __forceinline__ void panel_at(int step, int panel, int col, int &k, int &n) const
    {
        k = (apart ? 2 * step + panel : step) * BK;
        n = apart ? col : col / 2 + panel * (int)(job.n / 2);
    }

    /* The first of b that this block will read, and of codes the scales of 64 columns of its first tile, which are all
     * (of gates in halves, one half's). Kernels before this one may still be running, and write it: L2 is where they
     * write. */
    __device__ __forceinline__ void ask_ahead() const
    {
        int row, col, z, k, n, step = step_at(rank) + (int)threadIdx.x / 2;
        place(unit, row, col, z);
        if (threadIdx.x < 2 * AHEAD && step < step_at(rank + 1)) {
            panel_at(step, threadIdx.x % 2, col, k, n);
            tensor_ask(&job.work.b, BT ? n : k / K_EACH, BT ? k : n, job.work.batch_b ? z : 0);
        }
        if constexpr (CODES)
            if (threadIdx.x < 256) {
                panel_at(step_at(rank), 0, col, k, n);
                columns::ask_ahead(job, gemm_batch(job, z), n, job.n, k, step_at(rank + 1) * (apart ? 2 * BK : BK));
            }
    }

    __device__ __forceinline__ void produce() const
    {
        if (CODES)
            registers_down<40>();
        if (threadIdx.x == 256) {
            const int rows = CODES ? min((int)job.m, ROWS) : (int)job.m; /* of a box */
            const int bytes = 2 * PANEL + (apart ? 2 : 1) * rows * 128 * BOXES;
            int stage = 0, phase = 0, first = step_at(rank), last = step_at(rank + 1);
#pragma unroll 1
            for (int tile = unit; tile < tiles; tile += job.work.cut.units) {
                int row, col, z;
                place(tile, row, col, z);
                int za = job.work.batch_a ? z : 0, zb = job.work.batch_b ? z : 0;
#pragma unroll 1
                for (int step = first; step < last; step++) {
                    uint32_t at = base + stage * STAGE, barrier = full + stage * 8;
                    int k, l, left, right;
                    panel_at(step, 0, col, k, left);
                    panel_at(step, 1, col, l, right);
                    barrier_wait(empty + stage * 8, phase ^ 1);
                    barrier_expect(barrier, bytes);
                    tensor_load_once(at, &job.work.b, barrier, BT ? left : k / K_EACH, BT ? k : left, zb);
                    tensor_load_once(at + PANEL, &job.work.b, barrier, BT ? right : l / K_EACH, BT ? l : right, zb);
#pragma unroll
                    for (int i = 0; i < BOXES; i++) {
                        tensor_load(at + A_BYTES + i * A_BOX, &job.work.a, barrier, k + i * EACH, row, za);
                        if (apart)
                            tensor_load(at + A_BYTES + B_BYTES + i * A_BOX, &job.work.a, barrier, l + i * EACH, row,
                                        za);
                    }
                    advance(stage, phase);
                }
            }
        }
        __syncwarp();
        if (cluster > 1)
            cluster_wait();
    }

    /* ---------------------------------------------------------------- the warpgroups that multiply */

    __device__ __forceinline__ void multiply_stepwise(float (&d)[ROWS / 2], int steps, int &stage, int &phase) const
    {
#pragma unroll
        for (int i = 0; i < ROWS / 2; i++)
            d[i] = 0.0f;
        const auto add = [&](int, int, float(&part)[ROWS / 2]) {
#pragma unroll
            for (int i = 0; i < ROWS / 2; i++)
                d[i] += part[i];
        };
        this->template multiply_apart<ROWS>(
            steps, stage, phase, [](int) {}, add);
    }

    __device__ __forceinline__ void multiply_codes(float (&d)[ROWS / 2], int col, int z, int steps, int &stage,
                                                   int &phase) const
    {
        const int half = threadIdx.x / 128, stride = apart ? 2 * BK : BK;
        const int64_t width = apart ? job.n : job.n / 2;
        const columns own(job, gemm_batch(job, z), apart ? col : col / 2 + half * width,
                          apart ? job.n : (half + 1) * width);
        stages::multiply_codes(own, step_at(rank) * stride + (apart ? half * BK : 0), stride, steps, stage, phase, d);
    }

    /* Pairs of rows of a that a block owns, and log2 of their number. */
    __device__ __forceinline__ int pairs_shift() const
    {
        return (ROWS == 64 ? 5 : 3) - cut;
    }

    /* A block has 16 bytes for each group of 4 lanes (64 in a sending block) and pair of rows that it owns: columns c
     * and c + 8 of both. */
    __device__ __forceinline__ uint32_t place_of(int group, int pair) const
    {
        return sums + ((group << pairs_shift()) + pair) * 16;
    }

    __device__ __forceinline__ void send(const float (&d)[ROWS / 2], int thread) const
    {
#pragma unroll
        for (int j = 0; j < ROWS / 8; j++) {
            int p = j * 4 + (thread & 3), owner = p >> pairs_shift();
            uint32_t to = place_of(rank * 64 + thread / 4, p & ((1 << pairs_shift()) - 1));
            if (owner == rank)
                shared_store16(to, d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]);
            else
                send16(peer_address(to, owner), d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3],
                       peer_address(arrived, owner));
        }
    }

    /* Of a pair of rows and 16 columns, the sums of all senders, in their order: x[2 i + h] has 8 columns,
     * the first or second 8, of row i. */
    __device__ __forceinline__ void gather(int pair, int sixteen, float (&x)[4][8]) const
    {
#pragma unroll
        for (int i = 0; i < 32; i++)
            x[i / 8][i % 8] = 0.0f;
#pragma unroll 1
        for (int group = sixteen * 8; group < cluster * 64; group += job.work.rows / 2)
#pragma unroll
            for (int g = 0; g < 8; g++) {
                float f[4];
                unpack<SKR_F32>(shared_load16(place_of(group + g, pair)), f);
                x[0][g] += f[0], x[2][g] += f[1], x[1][g] += f[2], x[3][g] += f[3];
            }
    }

    /* Nothing but one factor, d of 16 bits whose columns come in eights. */
    __device__ __forceinline__ void write_plain(int m, int n, int z, const float (&x)[4][8]) const
    {
        const float factor = gemm_one_factor(job);
        char *d = (char *)job.d.at.data + (z * job.d.at.stride[0] + m * job.d.row + n) * 2; /* one batch dimension */
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float f[8];
#pragma unroll
            for (int c = 0; c < 8; c++)
                f[c] = x[i][c] * factor;
            if (m + i / 2 < job.m && n + i % 2 * 8 < job.n)
                store16_once(d + (i / 2 * job.d.row + i % 2 * 8) * 2,
                             job.d.at.type == SKR_F16 ? pack<SKR_F16>(f) : pack<SKR_BF16>(f));
        }
    }

    __device__ __forceinline__ void write(int row, int col, int z, int thread) const
    {
        static_assert(ROWS <= 64, "a thread has 16 columns of one pair");
        const int pairs = 1 << pairs_shift(), first = row + rank * pairs * 2;
        const int pair = thread & (pairs - 1), sixteen = thread >> pairs_shift();
        const bool mine = sixteen < job.work.rows / 16;
        float x[4][8];
        if (mine)
            gather(pair, sixteen, x);
        if (job.work.plain) {
            if (mine)
                write_plain(first + pair * 2, col + sixteen * 16, z, x);
            return;
        }
        consumers_sync();
        if (mine)
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < 8; c += 4)
                    shared_store16(gemm_few_at(sums, pair * 2 + i / 2, sixteen * 16 + i % 2 * 8 + c), x[i][c],
                                   x[i][c + 1], x[i][c + 2], x[i][c + 3]);
        consumers_sync();
        gemm_few_options(job, sums, col, z, first, pairs * 2);
    }

    __device__ __forceinline__ void consume() const
    {
        int stage = 0, phase = 0;
        if (CODES)
            registers_up<232>(); /* 128 * 40 + 256 * 232: what 384 threads begin with, 168 each */
        if (cluster > 1)
            cluster_wait();
#pragma unroll 1
        for (int tile = unit, turn = 0; tile < tiles; tile += job.work.cut.units, turn ^= 1) {
            int row, col, z, thread = (int)threadIdx.x;
            float d[1][ROWS / 2];
            place(tile, row, col, z);
            const int steps = step_at(rank + 1) - step_at(rank);
            if constexpr (CODES)
                multiply_codes(d[0], col, z, steps, stage, phase);
            else if constexpr (STEPWISE)
                multiply_stepwise(d[0], steps, stage, phase);
            else
                this->template multiply<1>(d, steps, stage, phase, [](uint32_t, int) {});
            asm volatile("" : "+r"(thread)); /* addresses of sums are made here, not kept from tile to tile */
            if (tile != unit) {              /* the sums before are read, here and by the peers */
                consumers_sync();
                if (cluster > 1)
                    barrier_wait(taken, turn ^ 1);
            }
            if (cluster > 1 && threadIdx.x == 0)
                barrier_expect(arrived, (uint32_t)(cluster - 1) * 1024 << pairs_shift());
            send(d[0], thread);
            consumers_sync();
            if (cluster > 1)
                barrier_wait(arrived, turn);
            write(row, col, z, thread);
            if (cluster > 1 && tile + job.work.cut.units < tiles) {
                consumers_sync();
                if ((int)threadIdx.x < cluster)
                    barrier_arrive_peer(taken, (uint32_t)threadIdx.x);
            }
        }
    }
};

#endif
