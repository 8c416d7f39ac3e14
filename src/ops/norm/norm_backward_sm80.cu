/* norm_backward_sm80.cu - the backward kernels that run on every supported GPU, and the sum of their parts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "norm_any.cuh"
#include "norm_backward_rows.cuh"
#include "norm_kernels.cuh"
#include "norm_parts.cuh"

#define SKR_BACKWARD(norm, type, lanes, threads, vpt, stages, blocks, parts)                                           \
    BACKWARD(skr_##norm##_norm_backward_##type##_##lanes##x##vpt, threads, blocks,                                     \
             norm_backward<CENTRE_##norm, TYPE_##type, block_owner<lanes, threads>, vpt, stages,                       \
                           WEIGHTS_SHARED(norm, type, vpt), false>::run(job))
#include "norm_kernels.def"

#define ANY(norm)                                                                                                      \
    BACKWARD(skr_##norm##_norm_backward_stats_warp, 128, 1, norm_backward_stats<CENTRE_##norm, 32, 128>::run(job))     \
    BACKWARD(skr_##norm##_norm_backward_stats_block, 512, 1, norm_backward_stats<CENTRE_##norm, 512, 512>::run(job))   \
    BACKWARD(skr_##norm##_norm_backward_columns1, 256, 1, norm_backward_columns<CENTRE_##norm, 8, 1>::run(job))        \
    BACKWARD(skr_##norm##_norm_backward_columns4, 256, 1, norm_backward_columns<CENTRE_##norm, 8, 4>::run(job))        \
    BACKWARD(skr_##norm##_norm_backward_dx_warp1, 128, 1, norm_backward_dx<CENTRE_##norm, 32, 128, 1>::run(job))       \
    BACKWARD(skr_##norm##_norm_backward_dx_warp4, 128, 1, norm_backward_dx<CENTRE_##norm, 32, 128, 4>::run(job))       \
    BACKWARD(skr_##norm##_norm_backward_dx_block1, 512, 1, norm_backward_dx<CENTRE_##norm, 512, 512, 1>::run(job))     \
    BACKWARD(skr_##norm##_norm_backward_dx_block4, 512, 1, norm_backward_dx<CENTRE_##norm, 512, 512, 4>::run(job))
ANY(rms)
ANY(layer)
BACKWARD(skr_norm_add_parts1, 1024, 1, norm_add_parts<1>(job))
BACKWARD(skr_norm_add_parts4, 1024, 1, norm_add_parts<4>(job))
