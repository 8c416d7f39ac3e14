/* attention_sums_sm80.cu - the sums beside attention's gradients. SPDX-License-Identifier: Apache-2.0 */
#include "attention_sums.cuh"

extern "C" __global__ void __launch_bounds__(256) skr_attention_stats(const __grid_constant__ skr_attention_job job)
{
    attention_make_stats(job);
}

extern "C" __global__ void __launch_bounds__(512) skr_attention_dslopes(const __grid_constant__ skr_attention_job job)
{
    attention_slope_sums<16>(job);
}

extern "C" __global__ void __launch_bounds__(512) skr_attention_dsinks(const __grid_constant__ skr_attention_job job)
{
    attention_sink_sums<16>(job);
}
