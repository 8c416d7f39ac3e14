/* job.h - what a kernel is given: plain numbers and pointers, the same bytes for C and for CUDA.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every op has a job struct that starts with skr_job_head. check() fills it; kernels only read it.
 * Kernel files include this, their own job header and their backend's vocabulary, nothing else. */
#ifndef SKR_JOB_H
#define SKR_JOB_H

#include <stdint.h>

/* Element types as kernels switch on them. Order is fixed: CUDA instance tables index by it. */
typedef enum skr_type {
    SKR_F32,
    SKR_F16,
    SKR_BF16,
    SKR_E4M3,
    SKR_E5M2,
    SKR_I8,
    SKR_I4,
    SKR_I32,
    SKR_I64,
    SKR_U8,
    SKR_BOOL,
    SKR_N_TYPES
} skr_type;

enum { SKR_JOB_BYTES = 2560, SKR_ROW_DIMS = 4, SKR_QUANT_GROUP = 128 };

/* Values of quant; the same numbers as saker_quant. */
enum { SKR_QUANT_NONE, SKR_QUANT_TENSOR, SKR_QUANT_ROW, SKR_QUANT_BLOCK, SKR_QUANT_BLOCK2D, SKR_QUANT_GROUPS };

/* Values of act; the same numbers as saker_act. */
enum {
    SKR_ACT_NONE,
    SKR_ACT_SIGMOID,
    SKR_ACT_TANH,
    SKR_ACT_SILU,
    SKR_ACT_GELU,
    SKR_ACT_GELU_TANH,
    SKR_ACT_RELU,
    SKR_ACT_RELU2,
    SKR_ACT_SWIGLU_OAI
};

/* A matrix as the GPU's copy engine sees it (cuda/launch.h makes it). */
typedef struct skr_tensor_map {
#ifdef __CUDACC__
    alignas(128) uint64_t opaque[16];
#else
    _Alignas(128) uint64_t opaque[16]; /* what the newest header asks; older ones ask 64 */
#endif
} skr_tensor_map;

typedef struct skr_job_head {
    void *workspace;     /* 256-byte aligned scratch of the size that plan asked for; contents undefined */
    int32_t *error_word; /* kernels store a saker_status here for what only they can see; CPU: then skr_past's word */
} skr_job_head;

enum { SKR_BAD_INDEX = 12 }; /* the one such status, SAKER_BAD_INDEX */

/* The rows that all row tensors of a job share: M rows, indexed by up to SKR_ROW_DIMS merged leading dimensions,
 * outermost first. n_dims is 1 in the common case; a row's offset is then row * stride[0]. */
typedef struct skr_row_space {
    int64_t m;
    int32_t n_dims;
    int32_t reserved;
    int64_t dims[SKR_ROW_DIMS];
} skr_row_space;

/* One row tensor: element offset of row (i0, i1, ...) is the sum of i_k * stride[k]; within a row elements are
 * col_stride apart (1, or free for scales). */
typedef struct skr_rows {
    void *data; /* NULL: absent */
    int64_t stride[SKR_ROW_DIMS];
    int64_t col_stride;
    int32_t type; /* skr_type */
    int32_t reserved;
} skr_rows;

/* CUDA: division of numbers below 2^31 by a known one: the high word of a product, shifted (cuda/rows_plan.h). */
typedef struct skr_divisor {
    uint32_t factor;
    int32_t shift; /* negative: by 1 */
} skr_divisor;

/* CUDA: all rows as one run of vectors, numbered below 2^31. Vector i belongs to row i / vectors, which is the high
 * word of i * mul, shifted right; mul 0: one row, or one vector a row. */
typedef struct skr_flat {
    uint32_t vectors, mul, shift, total;
} skr_flat;

/* A parameter [N] or [H, N]: row h starts h * stride elements in. */
typedef struct skr_param {
    void *data; /* NULL: absent */
    int64_t stride;
    int32_t type;
    int32_t reserved;
} skr_param;

#ifdef __CUDACC__
#define SKR_INLINE __device__ __forceinline__
#else
#define SKR_INLINE static inline
#endif

/* CPU: whether large outputs are written past the caches (run.c decides). Not a field of the head: kernels on a GPU get
 * that too, and with parameters that lie elsewhere some of them spill registers. */
SKR_INLINE int skr_past(const skr_job_head *head)
{
    return head->error_word[1];
}

SKR_INLINE uint32_t skr_divide(skr_divisor by, uint32_t i)
{
    return by.shift < 0 ? i : (uint32_t)((uint64_t)i * by.factor >> 32) >> by.shift;
}

SKR_INLINE int64_t skr_row_offset(const skr_row_space *space, const int64_t *stride, int64_t row)
{
    if (space->n_dims == 1)
        return row * stride[0];
    int64_t offset = 0;
    for (int k = space->n_dims - 1; k > 0; k--) {
        int64_t next = row / space->dims[k];
        offset += (row - next * space->dims[k]) * stride[k];
        row = next;
    }
    return offset + row * stride[0];
}

/* CPU: addresses SKR_L1_WAY apart share a set of L1 (of its four ways, on a Neoverse V1). From SKR_L1_COLUMNS of f32 on
 * it matters where partial sums begin. */
enum { SKR_L1_WAY = 16384, SKR_L1_COLUMNS = 2048 };

/* CPU: elements from one partial row of count sums to the next, which another thread may write: a kilobyte between
 * them, or what a core fetches ahead of its own would be taken from the other. Long ones begin in the same set of L1.
 */
SKR_INLINE int64_t skr_part_stride(int64_t count)
{
    const int64_t between = 256, unit = (count < SKR_L1_COLUMNS ? 64 : SKR_L1_WAY) / 4;
    return (count + between + unit - 1) / unit * unit;
}

SKR_INLINE int skr_type_bytes(int type)
{
    return type == SKR_F32 || type == SKR_I32 ? 4 : type == SKR_F16 || type == SKR_BF16 ? 2 : type == SKR_I64 ? 8 : 1;
}

#endif
