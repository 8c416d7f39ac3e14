/* test_threads.c - stress for the pool, meant to be run under ThreadSanitizer: many owners, sizes, contexts, no fork.
 * SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "saker.h"
#include "pthread_for.h"

enum { THREADS = 6, ROUNDS = 60, COLS = 256, MAX_ROWS = 1024 };

static float *x, w[COLS], *want_y, want_dw[MAX_ROWS / 64 + 1][COLS];

static saker_status run(saker_context *ctx, int64_t rows, float *y, float *dw)
{
    saker_tensor tx = SAKER_TENSOR(x, SAKER_F32, rows, COLS), tw = SAKER_TENSOR(w, SAKER_F32, COLS);
    saker_tensor ty = SAKER_TENSOR(y, SAKER_F32, rows, COLS), tdw = SAKER_TENSOR(dw, SAKER_F32, COLS);
    saker_status s = saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &tx, .weight = &tw, .y = &ty));
    return s ? s
             : saker_rms_norm_backward(
                   ctx, SAKER_ARGS(rms_norm_backward, .dy = &tx, .x = &tx, .weight = &tw, .dweight = &tdw));
}

static void *work(void *arg)
{
    intptr_t id = (intptr_t)arg, good = 0;
    float *y = malloc(sizeof(float) * MAX_ROWS * COLS), dw[COLS];
    for (int i = 0; i < ROUNDS; i++) {
        saker_config c = {.struct_size = sizeof c, .threads = i % 4};
        if ((id + i) % 5 == 0) {
            c.parallel_for = pthread_for;
            c.parallel_width = 4;
        }
        saker_context *ctx = NULL;
        if (saker_context_create(&ctx, &c))
            break;
        int64_t step = 1 + (id * 7 + i * 3) % (MAX_ROWS / 64), rows = 64 * step;
        good += run(ctx, rows, y, dw) == SAKER_OK && !memcmp(y, want_y, sizeof(float) * (size_t)rows * COLS) &&
                !memcmp(dw, want_dw[step], sizeof dw);
        saker_context_destroy(ctx);
    }
    free(y);
    return (void *)good;
}

int main(void)
{
    x = malloc(sizeof(float) * MAX_ROWS * COLS);
    want_y = malloc(sizeof(float) * MAX_ROWS * COLS);
    for (int i = 0; i < MAX_ROWS * COLS; i++)
        x[i] = (float)(i * 7919 % 2003) / 1000 - 1;
    for (int i = 0; i < COLS; i++)
        w[i] = (float)(i % 17) / 8;
    saker_config one = {.struct_size = sizeof one, .threads = 1};
    saker_context *ctx = NULL;
    CHECK(saker_context_create(&ctx, &one) == SAKER_OK);
    for (int step = 1; step <= MAX_ROWS / 64; step++)
        CHECK(run(ctx, 64 * step, want_y, want_dw[step]) == SAKER_OK);
    saker_context_destroy(ctx);
    pthread_t t[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&t[i], NULL, work, (void *)i);
    for (int i = 0; i < THREADS; i++) {
        void *good;
        pthread_join(t[i], &good);
        CHECK_TEXT((intptr_t)good == ROUNDS, "thread %d: %d of %d rounds are right", i, (int)(intptr_t)good, ROUNDS);
    }
    free(x);
    free(want_y);
    return check_report("test_threads");
}
