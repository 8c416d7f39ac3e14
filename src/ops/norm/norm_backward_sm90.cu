/* norm_backward_sm90.cu - the backward kernels whose rows belong to a cluster of blocks or come through a ring.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/sm90.cuh"
#include "norm_backward_ring.cuh"
#include "norm_backward_rows.cuh"
#include "norm_kernels.cuh"

#define SKR_BACKWARD_CLUSTER(norm, type, threads, vpt, stages, least, most, parts)                                     \
    BACKWARD(skr_##norm##_norm_backward_##type##_c##threads##x##vpt, threads, 1,                                       \
             norm_backward<CENTRE_##norm, TYPE_##type, cluster_owner<threads>, vpt, stages,                            \
                           WEIGHTS_SHARED(norm, type, vpt), false>::run(job))
#define SKR_BACKWARD_RING(norm, type, threads, p, slots, ahead, shared, blocks, least, most)                           \
    BACKWARD(skr_##norm##_norm_backward_ring_##type##_##threads##x##p##_##least, threads + 64, blocks,                 \
             norm_backward_ring<CENTRE_##norm, TYPE_##type, threads, (least > 1), p, slots, ahead, shared>::run(job))
#include "norm_kernels.def"
