/* norm_sm90.cu - the forward kernels whose rows belong to a cluster of blocks.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/sm90.cuh"
#include "norm_full.cuh"
#include "norm_kernels.cuh"
#include "norm_lean.cuh"
#include "norm_ring.cuh"

#define SKR_PLAIN_CLUSTER(norm, type, threads, vpt, early, blocks, least, most, walk)                                  \
    FORWARD(skr_##norm##_norm_plain_##type##_c##threads##x##vpt##_##least, threads, blocks,                            \
            norm_plain<CENTRE_##norm, TYPE_##type, cluster_owner<threads>, vpt, 1, early>)
#define SKR_PLAIN_RING(norm, type, threads, p, slots, least, most)                                                     \
    FORWARD(skr_##norm##_norm_ring_##type##_##threads##x##p, threads + 32, 1,                                          \
            norm_ring<CENTRE_##norm, TYPE_##type, threads, p, slots>)
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
