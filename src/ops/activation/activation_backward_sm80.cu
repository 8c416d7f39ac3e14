/* activation_backward_sm80.cu - the kernels of activation_backward that run on every supported GPU.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/parts.cuh"
#include "activation.cuh"

#define KERNEL(name, threads, ...)                                                                                     \
    extern "C" __global__ void __launch_bounds__(threads)                                                              \
        name(const __grid_constant__ skr_activation_backward_job job)                                                  \
    {                                                                                                                  \
        __VA_ARGS__(job);                                                                                              \
    }

#define FLAT(type, T)                                                                                                  \
    KERNEL(skr_activation_backward_flat_##type##_0, FLAT_THREADS, backward_flat<T, PLAIN>)                             \
    KERNEL(skr_activation_backward_flat_##type##_1, FLAT_THREADS, backward_flat<T, SPLIT>)                             \
    KERNEL(skr_activation_backward_flat_##type##_2, FLAT_THREADS, backward_flat<T, PAIRS>)
FLAT(f32, SKR_F32)
FLAT(f16, SKR_F16)
FLAT(bf16, SKR_BF16)

KERNEL(skr_activation_backward_any, ANY_THREADS, backward_any)
KERNEL(skr_activation_backward_columns, ANY_THREADS, backward_columns)

SKR_DEVICE void add_bias_parts(const skr_activation_backward_job &job)
{
    wait_for_previous();
    let_next_start();
    add_parts<1>(job.dbias, 1, job.a.gated ? 2 * job.a.n : job.a.n, job.accumulate, (const float *)job.head.workspace,
                 job.n_parts);
}
KERNEL(skr_activation_add_parts, 1024, add_bias_parts)
