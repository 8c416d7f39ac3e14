/* norm_call.h - one rms_norm and its gradient, large enough for the pool, with all results in one place to be compared.
 * SPDX-License-Identifier: Apache-2.0
 *
 * For tests about threads and processes, where only "the same bits as before" matters. The sum with a residual that is
 * stored nowhere is held by each worker in memory of its own. */
#ifndef NORM_CALL_H
#define NORM_CALL_H

#include <stdlib.h>
#include <string.h>

#include "saker.h"

enum { NORM_ROWS = 509, NORM_COLS = 384 };

typedef struct norm_results {
    float y[NORM_ROWS * NORM_COLS], dx[NORM_ROWS * NORM_COLS], dw[NORM_COLS], rstd[NORM_ROWS];
} norm_results;

static float norm_x[NORM_ROWS * NORM_COLS], norm_w[NORM_COLS];

static inline void norm_fill(void)
{
    unsigned state = 1;
    for (int i = 0; i < NORM_ROWS * NORM_COLS; i++)
        norm_x[i] = (float)((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1;
    for (int i = 0; i < NORM_COLS; i++)
        norm_w[i] = (float)((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f;
}

static inline saker_status norm_run(saker_context *ctx, norm_results *r)
{
    saker_tensor x = SAKER_TENSOR(norm_x, SAKER_F32, NORM_ROWS, NORM_COLS),
                 w = SAKER_TENSOR(norm_w, SAKER_F32, NORM_COLS);
    saker_tensor y = SAKER_TENSOR(r->y, SAKER_F32, NORM_ROWS, NORM_COLS),
                 rstd = SAKER_TENSOR(r->rstd, SAKER_F32, NORM_ROWS);
    saker_tensor dx = SAKER_TENSOR(r->dx, SAKER_F32, NORM_ROWS, NORM_COLS),
                 dw = SAKER_TENSOR(r->dw, SAKER_F32, NORM_COLS);
    memset(r, 0xa5, sizeof *r);
    saker_status s =
        saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &x, .residual = &x, .weight = &w, .y = &y, .rstd = &rstd));
    if (s)
        return s;
    return saker_rms_norm_backward(
        ctx, SAKER_ARGS(rms_norm_backward, .dy = &x, .x = &y, .weight = &w, .rstd = &rstd, .dx = &dx, .dweight = &dw));
}

#endif
