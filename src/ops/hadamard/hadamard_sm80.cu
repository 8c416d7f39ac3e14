/* hadamard_sm80.cu - the Hadamard transform of rows on the GPU.
 * SPDX-License-Identifier: Apache-2.0
 *
 * A block holds a tile of 32 elements a thread: one row, or several short ones. Elements are read in 16-byte vectors,
 * the stages inside of a thread (the low bits of the index, and the high bits by which its vectors differ) are done in
 * registers; then the tile goes through shared memory, where each thread takes 32 elements that differ in five other
 * bits, for as many rounds as there are bits left (at most two), and back to vectors for the store. The padding of one
 * word after 32 keeps all of these free of bank conflicts but few. */
#include "../../cuda/device.cuh"
#include "hadamard.h"

enum { REGS = 1 << SKR_HADAMARD_REGS };

__host__ __device__ constexpr int log2_of(int n)
{
    return n > 1 ? 1 + log2_of(n / 2) : 0;
}

/* Stages on COUNT registers: bit s of the number of the register. */
template <int STEP, int COUNT> SKR_DEVICE void stage(float *f)
{
#pragma unroll
    for (int k = 0; k < COUNT; k++)
        if (!(k & STEP)) {
            float a = f[k], b = f[k + STEP];
            f[k] = a + b;
            f[k + STEP] = a - b;
        }
}

template <int FROM, int TO, int COUNT = REGS> SKR_DEVICE void stages(float *f)
{
    if constexpr (FROM < TO) {
        stage<(1 << FROM), COUNT>(f);
        stages<FROM + 1, TO, COUNT>(f);
    }
}

/* Where element i of a tile stands. For numbers without common bits padded(i + j) = padded(i) + padded(j), and one of
 * them is a constant everywhere below. */
__host__ __device__ constexpr int padded(int i)
{
    return i + (i >> 5);
}

/* Bits [LO, HI) of the index of a tile through shared memory. */
template <int THREADS, int LO, int HI> SKR_DEVICE void rounds(float *tile)
{
    if constexpr (LO < HI) {
        constexpr int base = LO < log2_of(THREADS) ? LO : log2_of(THREADS);
        constexpr int end = base + SKR_HADAMARD_REGS < HI ? base + SKR_HADAMARD_REGS : HI;
        int t = threadIdx.x;
        float f[REGS], *mine = tile + padded((t & ((1 << base) - 1)) | (t >> base) << (base + SKR_HADAMARD_REGS));
        __syncthreads();
#pragma unroll
        for (int k = 0; k < REGS; k++)
            f[k] = mine[padded(k << base)];
        stages<LO - base, end - base>(f);
#pragma unroll
        for (int k = 0; k < REGS; k++)
            mine[padded(k << base)] = f[k];
        rounds<THREADS, end, HI>(tile);
    }
}

template <int T, int LOG_N, int THREADS> SKR_DEVICE void hadamard(const skr_hadamard_job &job)
{
    constexpr int V = skr_elem<T>::vec, bytes = skr_elem<T>::bytes, vectors = REGS / V, low = log2_of(V);
    constexpr int N = 1 << LOG_N, turn = THREADS * V; /* elements from one vector of a thread to its next */
    constexpr int between = log2_of(turn), rows = THREADS * REGS / N;
    extern __shared__ __align__(16) float tile[];
    wait_for_previous();
    let_next_start();
    /* All powers of two: the row and the column of a thread's vectors are those of its first, plus constants. */
    int64_t row = (int64_t)blockIdx.x * rows + ((int)threadIdx.x * V >> LOG_N), column = (int)threadIdx.x * V & (N - 1);
    int64_t left = job.rows.m - row;
    const char *x = (const char *)job.x.data + (row * job.x.stride[0] + column) * bytes;
    char *y = (char *)job.y.data + (row * job.y.stride[0] + column) * bytes;
    uint4 raw[vectors];
#pragma unroll
    for (int j = 0; j < vectors; j++) {
        int rows_on = j * turn / N, columns_on = j * turn % N;
        raw[j] = make_uint4(0, 0, 0, 0);
        if (rows_on < left)
            raw[j] = load16_once(x + (rows_on * job.x.stride[0] + columns_on) * bytes);
    }
    float f[REGS];
#pragma unroll
    for (int j = 0; j < vectors; j++)
        unpack<T>(raw[j], f + j * V);
    stages<0, (low < LOG_N ? low : LOG_N)>(f);
    /* The number of the vector is the high part of the number of the register. */
    constexpr int high = LOG_N - between < SKR_HADAMARD_REGS - low ? LOG_N - between : SKR_HADAMARD_REGS - low;
    stages<low, low + (high > 0 ? high : 0)>(f);
    constexpr int until = LOG_N < between ? LOG_N : between;
    if constexpr (low < until) {
        float *mine = tile + padded((int)threadIdx.x * V);
#pragma unroll
        for (int k = 0; k < REGS; k++)
            mine[padded(k / V * turn) + k % V] = f[k];
        rounds<THREADS, low, until>(tile);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < REGS; k++)
            f[k] = mine[padded(k / V * turn) + k % V];
    }
#pragma unroll
    for (int k = 0; k < REGS; k++)
        f[k] *= job.scale;
#pragma unroll
    for (int j = 0; j < vectors; j++) {
        int rows_on = j * turn / N, columns_on = j * turn % N;
        if (rows_on < left)
            store16_once(y + (rows_on * job.y.stride[0] + columns_on) * bytes, pack<T>(f + j * V));
    }
}

#define INSTANCE(name, type, log_n, threads)                                                                           \
    extern "C" __global__ void __launch_bounds__(threads)                                                              \
        skr_hadamard_##name##_##log_n(const __grid_constant__ skr_hadamard_job job)                                    \
    {                                                                                                                  \
        hadamard<type, log_n, threads>(job);                                                                           \
    }
#define SKR_HADAMARD(log_n, threads)                                                                                   \
    INSTANCE(f32, SKR_F32, log_n, threads)                                                                             \
    INSTANCE(f16, SKR_F16, log_n, threads)                                                                             \
    INSTANCE(bf16, SKR_BF16, log_n, threads)
#include "hadamard_kernels.def"

/* ---------------------------------------------------------------- anything else */

/* A block transforms a row, or a piece of 2^14 elements of a wider one, whose sums go to the workspace as f32. */
extern "C" __global__ void __launch_bounds__(SKR_HADAMARD_ANY)
    skr_hadamard_any(const __grid_constant__ skr_hadamard_job job)
{
    extern __shared__ __align__(16) float whole[];
    wait_for_previous();
    let_next_start();
    int log_piece = min(job.log_n, (int)SKR_HADAMARD_PIECE), n = 1 << log_piece, pieces = 1 << (job.log_n - log_piece);
    int from = skr_type_bytes(job.x.type), to = skr_type_bytes(job.y.type);
    for (int64_t piece = blockIdx.x; piece < job.rows.m * pieces; piece += gridDim.x) {
        int64_t row = piece / pieces, begin = (piece - row * pieces) << log_piece;
        const char *x = (const char *)job.x.data + (skr_row_offset(&job.rows, job.x.stride, row) + begin) * from;
        char *y = (char *)job.y.data + (skr_row_offset(&job.rows, job.y.stride, row) + begin) * to;
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += SKR_HADAMARD_ANY)
            whole[i] = any_load1(job.x.type, x + (int64_t)i * from);
        for (int h = 1; h < n; h *= 2) {
            __syncthreads();
            for (int p = threadIdx.x; p < n / 2; p += SKR_HADAMARD_ANY) {
                int i = 2 * p - (p & (h - 1));
                float a = whole[i], b = whole[i + h];
                whole[i] = a + b;
                whole[i + h] = a - b;
            }
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n; i += SKR_HADAMARD_ANY)
            if (pieces > 1)
                ((float *)job.head.workspace)[row * job.n + begin + i] = whole[i];
            else
                any_store1(job.y.type, y + (int64_t)i * to, whole[i] * job.scale);
    }
}

/* The stages between the pieces of a wide row: a thread has the same column of all of them. */
template <int PIECES> SKR_DEVICE void join_pieces(const skr_hadamard_job &job, int64_t row, int column)
{
    const float *sums = (const float *)job.head.workspace + row * job.n + column;
    int to = skr_type_bytes(job.y.type);
    char *y = (char *)job.y.data + (skr_row_offset(&job.rows, job.y.stride, row) + column) * to;
    float f[PIECES];
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        f[k] = sums[(int64_t)k << SKR_HADAMARD_PIECE];
    stages<0, log2_of(PIECES), PIECES>(f);
#pragma unroll
    for (int k = 0; k < PIECES; k++)
        any_store1(job.y.type, y + ((int64_t)k << SKR_HADAMARD_PIECE) * to, f[k] * job.scale);
}

extern "C" __global__ void __launch_bounds__(SKR_HADAMARD_ANY)
    skr_hadamard_join(const __grid_constant__ skr_hadamard_job job)
{
    wait_for_previous();
    let_next_start();
    constexpr int blocks = (1 << SKR_HADAMARD_PIECE) / SKR_HADAMARD_ANY;
    for (int64_t i = blockIdx.x; i < job.rows.m * blocks; i += gridDim.x) {
        int64_t row = i / blocks;
        int column = (int)(i - row * blocks) * SKR_HADAMARD_ANY + (int)threadIdx.x;
        switch (job.log_n - SKR_HADAMARD_PIECE) {
        case 1:
            join_pieces<2>(job, row, column);
            break;
        case 2:
            join_pieces<4>(job, row, column);
            break;
        case 3:
            join_pieces<8>(job, row, column);
            break;
        case 4:
            join_pieces<16>(job, row, column);
            break;
        case 5:
            join_pieces<32>(job, row, column);
            break;
        default:
            join_pieces<64>(job, row, column);
        }
    }
}
