/* norm_full_sm80.cu - the forward kernels with every option, for every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "norm_full.cuh"
#include "norm_kernels.cuh"

#define SKR_FULL(norm, type, lanes, threads, vpt, stages, blocks, walk)                                                \
    FORWARD(skr_##norm##_norm_full_##type##_##lanes##x##vpt, threads, blocks,                                          \
            norm_full<CENTRE_##norm, TYPE_##type, block_owner<lanes, threads>, vpt, stages>)
#include "norm_kernels.def"
