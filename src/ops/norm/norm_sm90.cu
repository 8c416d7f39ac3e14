/* norm_sm90.cu - the forward kernels whose rows belong to a cluster of blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/sm90.cuh"
#include "norm_full.cuh"
#include "norm_kernels.cuh"
#include "norm_lean.cuh"
#include "norm_wide.cuh"

#define SKR_PLAIN_CLUSTER(norm, type, threads, vpt, inside, params, blocks, least, most)                               \
    FORWARD(skr_##norm##_norm_plain_##type##_c##threads##x##vpt##_##least, threads, blocks,                            \
            norm_wide<CENTRE_##norm, TYPE_##type, threads, vpt, inside, params>)
#define SKR_RESIDUAL_CLUSTER(norm, type, threads, vpt, blocks, least, most, walk)                                      \
    FORWARD(skr_##norm##_norm_residual_##type##_c##threads##x##vpt##_##least, threads, blocks,                         \
            norm_residual<CENTRE_##norm, TYPE_##type, cluster_owner<threads>, vpt>)
#define SKR_QUANT_CLUSTER(norm, type, threads, vpt, hold, least, most)                                                 \
    FORWARD(skr_##norm##_norm_quant_##type##_c##threads##x##vpt, threads, 1,                                           \
            norm_quant<CENTRE_##norm, TYPE_##type, cluster_owner<threads>, vpt, 2, hold>)
#define SKR_FULL_CLUSTER(norm, type, threads, vpt, stages, least, most, walk)                                          \
    FORWARD(skr_##norm##_norm_full_##type##_c##threads##x##vpt, threads, 1,                                            \
            norm_full<CENTRE_##norm, TYPE_##type, cluster_owner<threads>, vpt, stages>)
#include "norm_kernels.def"
