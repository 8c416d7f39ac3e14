/* norm_sm80.cu - the plain forward kernels that run on every supported GPU, and those that take anything.
 * SPDX-License-Identifier: Apache-2.0 */
#include "norm_any.cuh"
#include "norm_kernels.cuh"

#define SKR_PLAIN(norm, type, lanes, threads, vpt, rows, early, blocks)                                                \
    FORWARD(skr_##norm##_norm_plain_##type##_##lanes##x##vpt, threads, blocks,                                         \
            norm_plain<CENTRE_##norm, TYPE_##type, block_owner<lanes, threads>, vpt, rows, early>)
#include "norm_kernels.def"

#define ANY(norm)                                                                                                      \
    FORWARD(skr_##norm##_norm_any_warp1, 128, 1, norm_any<CENTRE_##norm, 32, 128, 1>)                                  \
    FORWARD(skr_##norm##_norm_any_warp4, 128, 1, norm_any<CENTRE_##norm, 32, 128, 4>)                                  \
    FORWARD(skr_##norm##_norm_any_block1, 512, 1, norm_any<CENTRE_##norm, 512, 512, 1>)                                \
    FORWARD(skr_##norm##_norm_any_block4, 512, 1, norm_any<CENTRE_##norm, 512, 512, 4>)
ANY(rms)
ANY(layer)
