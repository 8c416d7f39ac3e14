/* launch.h - how an op names its CUDA kernels.
 * SPDX-License-Identifier: Apache-2.0
 *
 * In src/ops/<op>/<op>_cuda.c:
 *
 *     SKR_FATBIN(norm_sm90)                     // build/cuda/norm_sm90.fatbin, from norm_sm90.cu
 *     static skr_cuda_kernel forward[] = {
 *         SKR_KERNEL(norm_sm90, "skr_rms_norm_f32", 200 * 1024, 16),
 *         SKR_KERNEL(norm_sm90, "skr_rms_norm_bf16", 0, 1),
 *     };
 *     ...
 *     skr_step *step = skr_plan_step(plan);     // in plan(): pure, touches no driver
 *     step->kernel = &forward[i];
 *     step->grid = blocks; step->block = 256; step->cluster = 4; step->shared_bytes = bytes;
 *
 * and in the .cu:  extern "C" __global__ void skr_rms_norm_f32(const __grid_constant__ skr_norm_job job).
 *
 * A library built without nvcc still links: the images are weak, and a launch then answers with a sentence. */
#ifndef SKR_CUDA_LAUNCH_H
#define SKR_CUDA_LAUNCH_H

#include "../core/op.h"
#include "driver.h"

enum { SKR_CUDA_MAX_DEVICES = 16 };

/* One embedded fatbin. Loaded once per process, on the first launch of one of its kernels. */
typedef struct skr_fatbin {
    const char *name;
    const unsigned char *image; /* NULL: built without nvcc */
    skr_cu_library library;     /* NULL until loaded; module.c's lock guards it */
} skr_fatbin;

/* One __global__ function. The whole job struct is its only parameter, by value. */
typedef struct skr_cuda_kernel {
    skr_fatbin *fatbin;
    const char *symbol;
    uint32_t max_shared;  /* most dynamic shared bytes that any plan gives it; 0 when that is at most 48 KiB */
    uint32_t max_cluster; /* largest cluster that any plan gives it; above 8 the kernel is marked non-portable */
    _Atomic(skr_cu_kernel) ready[SKR_CUDA_MAX_DEVICES]; /* set when loaded and prepared on that device */
} skr_cuda_kernel;

/* Names the fatbin of <name>.cu for the kernels of this C file. At file scope, no semicolon. One C file per fatbin. */
#define SKR_FATBIN(name)                                                                                               \
    extern const unsigned char skr_fatbin_##name[] __attribute__((weak, visibility("hidden")));                        \
    static skr_fatbin fatbin_##name = {#name, skr_fatbin_##name, NULL};

/* Initialiser of a skr_cuda_kernel. */
#define SKR_KERNEL(name, symbol_text, most_shared, most_cluster)                                                       \
    {                                                                                                                  \
        .fatbin = &fatbin_##name, .symbol = symbol_text, .max_shared = most_shared, .max_cluster = most_cluster        \
    }

/* Row-major matrices for the bulk tensor copies. Elements are moved as they are; coordinates out of range read as zero
 * and are not written. */
typedef struct skr_matrix_box {
    void *data;            /* 16-byte aligned */
    int32_t type;          /* skr_type */
    int64_t rows, cols;    /* each 1 to 2^32 */
    int64_t row_stride;    /* elements; in bytes a multiple of 16, below 2^40 */
    int64_t batches;       /* matrices, 1 to 2^32 */
    int64_t batch_stride;  /* elements between them, by the rule of row_stride; not read for one */
    int32_t box_rows;      /* 1 to 256; a box lies in one matrix */
    int32_t box_cols;      /* 1 to 256; in bytes a multiple of 16, and at most swizzle_bytes when that is not 0 */
    int32_t swizzle_bytes; /* 0, 32, 64 or 128 */
    bool tf32;             /* f32 is rounded to tf32 on its way */
} skr_matrix_box;
/* Encodes a tensor map (a cheap host function). INVALID_ARG with a sentence when a rule above is broken, UNSUPPORTED
 * for a type that cannot be moved so. */
saker_status skr_tensor_map_3d(skr_call *call, const skr_matrix_box *box, skr_cu_tensor_map *map);

#endif
