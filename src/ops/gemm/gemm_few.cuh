/* gemm_few.cuh - gemm of up to 64 rows of a on Hopper, f16 or bf16: the speed of reading b.
 * SPDX-License-Identifier: Apache-2.0
 *
 * b's columns are the rows of the matrix instructions, a's rows their columns: a block has 128 columns of b, two
 * warpgroups of 64, and ROWS rows of a, all that there are. One more warp has the copy engine fill a ring of stages,
 * 128 bytes of k at a time, as many as fit: what is on its way from memory decides the speed. Where there are fewer
 * tiles than SMs, k is cut over the blocks of a cluster. Each block owns the sums of some rows of a: the others send it
 * theirs, and it adds them in the order of k. Blocks stay and walk over the tiles, and the stages of the next one fill
 * while sums are exchanged and written. */
#ifndef SKR_GEMM_FEW_CUH
#define SKR_GEMM_FEW_CUH

#include "gemm_epilogue.cuh"
#include "gemm_stages.cuh"

/* Where a tile's sums lie: 128 columns for each row of a. Groups of 8 are exchanged so that the fragments of a warp
 * meet in no bank. */
SKR_DEVICE uint32_t gemm_few_at(uint32_t sums, int row, int column)
{
    return sums + (row * SKR_GEMM_FEW_COLUMNS + (column ^ (row >> 1 & 3) << 3)) * 4;
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
    const int lanes = job.gated ? 8 : 16, width = (int)(job.gated ? job.n / 2 : job.n);
    const int c = threadIdx.x % lanes * 8, n = (job.gated ? col / 2 : col) + c;
    gemm_columns8 gate, up; /* up: the column itself, without gates */
    if (n >= width)
        return;
    up.read(job, z, job.gated ? n + width : n);
    if (job.gated)
        gate.read(job, z, n);
#pragma unroll 1
    for (int r = threadIdx.x / lanes; r < rows && first + r < job.m; r += 256 / lanes) {
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

/* 256 threads write the tile's sums of `rows` rows of a, from `first` on. A call, so that every kernel of a file shares
 * the code of the options. */
static __device__ __noinline__ void gemm_few_write(const skr_gemm_job &job, uint32_t sums, int col, int batch,
                                                   int first, int rows)
{
    const gemm_batch z(job, batch);
    if (job.work.store) {
        gemm_few_vectors(job, sums, col, z, first, rows);
        return;
    }
    const int c = threadIdx.x % 64 * 2;
    const int64_t n = col + c;
    if (n < job.n)
#pragma unroll 1
        for (int r = threadIdx.x / 64; r < rows && first + r < job.m; r += 4) {
            uint2 raw = shared_load8(gemm_few_at(sums, r, c));
            float x[2] = {__uint_as_float(raw.x), __uint_as_float(raw.y)};
            gemm_finish_pair(job, z, first + r, n, n + 1 < job.n, x);
        }
}

/* BT: n runs along memory in b, not k. */
template <int T, int ROWS, bool BT> struct gemm_few
    : gemm_stages<T, T, SKR_GEMM_FEW_COLUMNS, ROWS, BT, false,
                  SKR_GEMM_TMA_SHARED - 2048 - ROWS * SKR_GEMM_FEW_COLUMNS * 4> {
    static constexpr int BK = SKR_GEMM_TMA_BYTES / 2, SUMS = ROWS * SKR_GEMM_FEW_COLUMNS * 4;
    typedef gemm_stages<T, T, SKR_GEMM_FEW_COLUMNS, ROWS, BT, false, SKR_GEMM_TMA_SHARED - 2048 - SUMS> stages;
    using stages::advance, stages::base, stages::empty, stages::full, stages::PANEL, stages::STAGE, stages::STAGES;
    static_assert((2 * STAGES + 2) * 8 <= 1024, "what the alignment leaves of 2048");

    const skr_gemm_job &job;
    uint32_t sums, arrived, taken; /* arrived: the peers' sums; taken: mine at all of them */
    int cluster, rank, unit, tiles;

    SKR_DEVICE void run(const skr_gemm_job &job)
    {
        gemm_roles(gemm_few(job, gemm_stages_at()));
    }

    __device__ __forceinline__ gemm_few(const skr_gemm_job &j, uint32_t at)
        : stages{at, at + STAGES * STAGE + SUMS, at + STAGES * (STAGE + 8) + SUMS, 1}, job(j),
          sums(at + STAGES * STAGE), arrived(empty + STAGES * 8), taken(arrived + 8), cluster(j.work.cluster),
          rank((int)blockIdx.x % cluster), unit((int)blockIdx.x / cluster), tiles(j.work.tiles_n * j.work.batches)
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
    }

    /* The steps of k that this block takes. */
    __device__ __forceinline__ int step_at(int which) const
    {
        return (int)((int64_t)job.work.steps * which / cluster);
    }

    __device__ __forceinline__ void produce() const
    {
        if (threadIdx.x == 256) {
            int stage = 0, phase = 0, first = step_at(rank), last = step_at(rank + 1);
            for (int tile = unit; tile < tiles; tile += job.work.cut.units) {
                int z = tile / job.work.tiles_n, col = (tile - z * job.work.tiles_n) * SKR_GEMM_FEW_COLUMNS;
                int za = job.work.batch_a ? z : 0, zb = job.work.batch_b ? z : 0;
                int left = job.gated == SKR_GEMM_HALVES ? col / 2 : col;
                int right = job.gated == SKR_GEMM_HALVES ? left + (int)(job.n / 2) : col + 64;
                for (int k = first; k < last; k++) {
                    uint32_t at = base + stage * STAGE, barrier = full + stage * 8;
                    barrier_wait(empty + stage * 8, phase ^ 1);
                    barrier_expect(barrier, STAGE);
                    tensor_load_once(at, &job.work.b, barrier, BT ? left : k * BK, BT ? k * BK : left, zb);
                    tensor_load_once(at + PANEL, &job.work.b, barrier, BT ? right : k * BK, BT ? k * BK : right, zb);
                    tensor_load(at + 2 * PANEL, &job.work.a, barrier, k * BK, 0, za);
                    advance(stage, phase);
                }
            }
        }
        __syncwarp();
        if (cluster > 1)
            cluster_wait();
    }

    /* ---------------------------------------------------------------- the warpgroups that multiply */

    __device__ __forceinline__ static void consumers_sync()
    {
        asm volatile("bar.sync %0, %1;" ::"r"(1), "n"(256) : "memory");
    }

    /* Rows 2 p and 2 p + 1 of a, columns c and c + 8 of the tile. Where pairs of columns are written, the gate and what
     * it multiplies become neighbours. */
    __device__ __forceinline__ void put(int p, int c, const float4 &x) const
    {
        bool pairs = job.gated == SKR_GEMM_HALVES && !job.work.store;
        int c0 = pairs ? c % 64 * 2 + c / 64 : c, c1 = pairs ? c0 + 16 : c + 8;
        shared_store4(gemm_few_at(sums, 2 * p, c0), x.x);
        shared_store4(gemm_few_at(sums, 2 * p + 1, c0), x.y);
        shared_store4(gemm_few_at(sums, 2 * p, c1), x.z);
        shared_store4(gemm_few_at(sums, 2 * p + 1, c1), x.w);
    }

    /* Each block of the cluster owns `pairs` pairs of rows of a. It has 16 bytes for each sender, group of 4 lanes (of
     * all 8 warps) and pair: what a lane has of 8 rows. */
    __device__ __forceinline__ void send(const float (&d)[ROWS / 2], int pairs) const
    {
        int lane = threadIdx.x & 31, group = threadIdx.x / 4;
#pragma unroll
        for (int j = 0; j < ROWS / 8; j++) {
            int p = j * 4 + (lane & 3), owner = p / pairs;
            uint32_t to = sums + ((rank * 64 + group) * pairs + p % pairs) * 16;
            send16(peer_address(to, owner), d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3],
                   peer_address(arrived, owner));
        }
    }

    /* What was sent to this block, added in the order of k, as a tile's sums. */
    __device__ __forceinline__ void add(int pairs) const
    {
        constexpr int MOST = ROWS / 16; /* of a thread, with two blocks */
        float4 x[MOST];
#pragma unroll
        for (int i = 0; i < MOST; i++) {
            int at = threadIdx.x + i * 256;
            x[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            if (at < 64 * pairs)
                for (int r = 0; r < cluster; r++) {
                    float f[4];
                    unpack<SKR_F32>(shared_load16(sums + (r * 64 * pairs + at) * 16), f);
                    x[i].x += f[0], x[i].y += f[1], x[i].z += f[2], x[i].w += f[3];
                }
        }
        consumers_sync();
#pragma unroll
        for (int i = 0; i < MOST; i++) {
            int at = threadIdx.x + i * 256, group = at / pairs;
            if (at < 64 * pairs)
                put(at % pairs, group / 8 * 16 + group % 8, x[i]);
        }
    }

    __device__ __forceinline__ void consume() const
    {
        int stage = 0, phase = 0, pairs = ROWS / 2 / cluster;
        if (cluster > 1)
            cluster_wait();
        for (int tile = unit, turn = 0; tile < tiles; tile += job.work.cut.units, turn ^= 1) {
            int z = tile / job.work.tiles_n, col = (tile - z * job.work.tiles_n) * SKR_GEMM_FEW_COLUMNS;
            float sum[1][ROWS / 2], (&d)[ROWS / 2] = sum[0];
            this->template multiply<1>(sum, step_at(rank + 1) - step_at(rank), stage, phase, [](uint32_t, int) {});
            if (cluster > 1) {
                if (threadIdx.x == 0)
                    barrier_expect(arrived, SUMS);
                if (tile != unit)
                    barrier_wait(taken, turn ^ 1);
                send(d, pairs);
                barrier_wait(arrived, turn);
                add(pairs);
            } else {
                int lane = threadIdx.x & 31, group = threadIdx.x / 4;
                if (tile != unit)
                    consumers_sync();
#pragma unroll
                for (int j = 0; j < ROWS / 8; j++)
                    put(j * 4 + (lane & 3), group / 8 * 16 + group % 8,
                        make_float4(d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]));
            }
            consumers_sync();
            gemm_few_write(job, sums, col, z, rank * pairs * 2, pairs * 2);
            if (cluster > 1 && tile + job.work.cut.units < tiles) {
                consumers_sync();
                if ((int)threadIdx.x < cluster)
                    barrier_arrive_peer(taken, (uint32_t)threadIdx.x);
            }
        }
    }
};

#endif
