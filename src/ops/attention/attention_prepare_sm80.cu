/* attention_prepare_sm80.cu - where attention's sequences lie, and attention_merge.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_prepare.cuh"

extern "C" __global__ void __launch_bounds__(1024) skr_attention_spans(const __grid_constant__ skr_attention_job job)
{
    attention_make_spans<1024>(job);
}

extern "C" __global__ void __launch_bounds__(32) skr_attention_count(const __grid_constant__ skr_attention_job job)
{
    let_next_start();
    wait_for_previous();
    attention_start_count(job);
}

extern "C" __global__ void __launch_bounds__(256)
    skr_attention_merge(const __grid_constant__ skr_attention_merge_job job)
{
    attention_merge_rows(job);
}
