/* overhead.c - `saker bench --overhead`: what one call costs the host, without the work.
 * SPDX-License-Identifier: Apache-2.0
 *
 * CPU: a row of 64 numbers, which runs inline. CUDA: calls queued without waiting; the queue is emptied between
 * batches, outside the clock. Beside each the part that is ours: the same arguments checked and planned (and the
 * operation found by its name), nothing run. What a call takes beyond that is the kernel (CPU) or the driver's launch
 * (CUDA). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { ROUNDS = 41, WIDTH = 64 };

/* Microseconds a call; the context has the sentence when it is negative. */
static double batch(cli_place *place, const saker_rms_norm_args *args, bool plan_only, int calls)
{
    size_t bytes;
    double start = cli_seconds();
    for (int i = 0; i < calls; i++)
        if (plan_only ? saker_workspace_bytes(place->ctx, "rms_norm", args, &bytes) : saker_rms_norm(place->ctx, args))
            return -1;
    double us = (cli_seconds() - start) * 1e6 / calls;
    return saker_context_sync(place->ctx) ? -1 : us;
}

static const char *measure(cli_place *place, saker_type type, bool plan_only, bench_row *row)
{
    cli_arena arena = {0};
    const char *wrong = cli_arena_need(place, &arena, 3 * 4096);
    if (wrong)
        return wrong;
    float ones[1024];
    for (int i = 0; i < 1024; i++)
        ones[i] = 1;
    char *at = arena.memory;
    for (int i = 0; i < 3; i++)
        saker_memory_copy(place->ctx, at + 4096 * i, ones, sizeof ones);
    saker_tensor x = SAKER_TENSOR(at, type, 1, WIDTH), w = SAKER_TENSOR(at + 4096, type, WIDTH),
                 y = SAKER_TENSOR(at + 8192, type, 1, WIDTH);
    saker_rms_norm_args args = {.struct_size = sizeof args, .x = &x, .weight = &w, .y = &y};
    int calls = place->cuda ? 200 : 2000; /* fewer than the driver queues before it makes the caller wait */
    double us[ROUNDS];
    double first = batch(place, &args, plan_only, calls);
    for (int i = 0; i < ROUNDS && first >= 0; i++)
        if ((us[i] = batch(place, &args, plan_only, calls)) < 0)
            first = -1;
    if (first < 0)
        wrong = saker_context_error(place->ctx);
    memset(row, 0, sizeof *row);
    if (!wrong) {
        snprintf(row->op, sizeof row->op, "rms_norm");
        const char *what = plan_only ? "check and plan" : place->cuda ? "launch with" : "call with";
        snprintf(row->name, sizeof row->name, "overhead: %s 1x%d %s", what, WIDTH, saker_type_name(x.dtype));
        snprintf(row->dtype, sizeof row->dtype, "%s", saker_type_name(x.dtype));
        snprintf(row->device, sizeof row->device, "%s", place->device);
        snprintf(row->machine, sizeof row->machine, "%s", place->machine);
        snprintf(row->kernel, sizeof row->kernel, "%s", saker_context_kernel(place->ctx));
        row->threads = place->threads;
        row->width = WIDTH;
        row->us = cli_stats_of(us, ROUNDS);
        row->gbps = row->gflops = row->roof_fraction = row->max_error = NAN;
    }
    cli_arena_free(place, &arena);
    return wrong;
}

int bench_overhead(const cli_target *target, void (*emit)(void *arg, const bench_row *row), void *arg)
{
    static const saker_type types[] = {SAKER_F32, SAKER_BF16};
    cli_place place;
    int code = cli_open(target, &place);
    if (code >= 0)
        return code;
    for (int i = 0; i < 4 && code < 0; i++) {
        bench_row row;
        const char *wrong = measure(&place, types[i / 2], i % 2, &row);
        if (wrong)
            code = cli_failed("%s", wrong);
        else
            emit(arg, &row);
    }
    cli_close(&place);
    return code;
}
