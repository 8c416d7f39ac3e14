/* stream_cuda.c - the CUDA half of stream's plan.
 * SPDX-License-Identifier: Apache-2.0 */
#include "../../cuda/launch.h"
#include "stream.h"
#include "stream_shape.h"

SKR_FATBIN(stream_sm80)

/* By width of an access (16, 8 bytes) and number of inputs. */
static skr_cuda_kernel kernels[2][SKR_STREAM_INPUTS + 1] = {
    {SKR_KERNEL(stream_sm80, "skr_stream_16_0", 0, 1), SKR_KERNEL(stream_sm80, "skr_stream_16_1", 0, 1),
     SKR_KERNEL(stream_sm80, "skr_stream_16_2", 0, 1), SKR_KERNEL(stream_sm80, "skr_stream_16_3", 0, 1),
     SKR_KERNEL(stream_sm80, "skr_stream_16_4", 0, 1)},
    {SKR_KERNEL(stream_sm80, "skr_stream_8_0", 0, 1), SKR_KERNEL(stream_sm80, "skr_stream_8_1", 0, 1),
     SKR_KERNEL(stream_sm80, "skr_stream_8_2", 0, 1), SKR_KERNEL(stream_sm80, "skr_stream_8_3", 0, 1),
     SKR_KERNEL(stream_sm80, "skr_stream_8_4", 0, 1)},
};
static skr_cuda_kernel fold = SKR_KERNEL(stream_sm80, "skr_stream_fold", 0, 1);

static int access_width(const skr_stream_job *job)
{
    uintptr_t bits = (uintptr_t)job->bytes;
    for (int i = 0; i < job->n_in; i++)
        bits |= (uintptr_t)job->x[i];
    for (int i = 0; i < job->n_out; i++)
        bits |= (uintptr_t)job->y[i];
    return bits % 16 == 0 ? 16 : 8;
}

saker_status skr_stream_plan_cuda(skr_call *call, skr_stream_job *job, const skr_target *target, skr_plan *plan);

saker_status skr_stream_plan_cuda(skr_call *call, skr_stream_job *job, const skr_target *target, skr_plan *plan)
{
    (void)call;
    int width = access_width(job);
    int64_t unroll = job->checksum ? SKR_STREAM_UNROLL : 1;
    int64_t tile = SKR_STREAM_THREADS * unroll * width, tiles = (job->bytes + tile - 1) / tile;
    /* With a checksum few blocks walk over many tiles, so that there are few checksums to fold. */
    int64_t most = job->checksum ? (int64_t)SKR_STREAM_WALK * target->n_sms : INT32_MAX;
    job->n_tasks = tiles < most ? tiles : most;
    plan->variant = width == 16 ? "16 bytes" : "8 bytes";
    if (job->n_tasks > 0) {
        skr_step *step = skr_plan_step(plan);
        step->kernel = &kernels[width == 8][job->n_in];
        step->grid = (uint32_t)job->n_tasks;
        step->block = SKR_STREAM_THREADS;
        step->overlap = true;
    }
    if (job->checksum) {
        plan->workspace_bytes = (size_t)job->n_tasks * sizeof(uint64_t);
        skr_step *step = skr_plan_step(plan);
        step->kernel = &fold;
        step->grid = 1;
        step->block = SKR_STREAM_THREADS;
        step->overlap = true;
    }
    return SAKER_OK;
}
