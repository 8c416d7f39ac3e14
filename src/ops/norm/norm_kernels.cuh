/* norm_kernels.cuh - words that the lines of norm_kernels.def are read with.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_NORM_KERNELS_CUH
#define SKR_NORM_KERNELS_CUH

#define TYPE_f32  SKR_F32
#define TYPE_f16  SKR_F16
#define TYPE_bf16 SKR_BF16

#define CENTRE_rms   false
#define CENTRE_layer true

/* Backward with every option: the weights do not fit the registers beside the rest. */
#define WEIGHTS_SHARED(norm, type, vpt) (vpt * skr_elem<TYPE_##type>::vec > (CENTRE_##norm ? 8 : 16))

#define FORWARD(name, threads, blocks, ...)                                                                            \
    extern "C" __global__ void __launch_bounds__(threads, blocks) name(const __grid_constant__ skr_norm_job job)       \
    {                                                                                                                  \
        __VA_ARGS__::run(job);                                                                                         \
    }
#define BACKWARD(name, threads, blocks, ...)                                                                           \
    extern "C" __global__ void __launch_bounds__(threads, blocks)                                                      \
        name(const __grid_constant__ skr_norm_backward_job job)                                                        \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }

#endif
