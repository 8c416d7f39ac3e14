/* rms_norm_cuda.c - the same on a GPU: device memory, one asynchronous call, and the time it took. No CUDA toolkit is
 * needed to build it. Build: cc examples/rms_norm_cuda.c $(pkg-config --cflags --libs saker) -lm
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <saker.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 4096, WIDTH = 8192 };

static saker_context *ctx;

/* A program of its own may simply stop; a library would pass the status on. */
static void must(saker_status status)
{
    if (status == SAKER_OK)
        return;
    fprintf(stderr, "%s: %s\n", saker_status_name(status), saker_context_error(ctx));
    exit(1);
}

int main(void)
{
    const char *why;
    if (saker_cuda_count(&why) == 0) {
        printf("no GPU here: %s\n", why);
        return 0;
    }
    saker_config config = {.struct_size = sizeof config, .device_type = SAKER_CUDA};
    must(saker_context_create(&ctx, &config));

    size_t bytes = (size_t)ROWS * WIDTH * sizeof(float);
    float *host = malloc(bytes);
    if (!host)
        return 1;
    for (size_t i = 0; i < (size_t)ROWS * WIDTH; i++)
        host[i] = (float)(i % 7) - 3;
    void *x, *y;
    must(saker_memory_alloc(ctx, bytes, &x));
    must(saker_memory_alloc(ctx, bytes, &y));
    must(saker_memory_copy(ctx, x, host, bytes));

    saker_tensor tx = SAKER_TENSOR(x, SAKER_F32, ROWS, WIDTH), ty = SAKER_TENSOR(y, SAKER_F32, ROWS, WIDTH);
    saker_rms_norm_args args = {.struct_size = sizeof args, .x = &tx, .y = &ty};
    must(saker_rms_norm(ctx, &args)); /* returns at once; copies below wait for it */
    must(saker_memory_copy(ctx, host, y, bytes));
    double sum = 0;
    for (int i = 0; i < WIDTH; i++)
        sum += (double)host[i] * host[i];

    double us[20], best = INFINITY;
    must(saker_measure(ctx, "rms_norm", &args, 20, 0, us));
    for (int i = 0; i < 20; i++)
        best = us[i] < best ? us[i] : best;
    printf("mean square of row 0: %.6f (1 is right); %s, %.1f us, %.0f GB/s\n", sum / WIDTH, saker_context_kernel(ctx),
           best, 2 * (double)bytes / best * 1e-3);
    must(saker_memory_free(ctx, x));
    must(saker_memory_free(ctx, y));
    saker_context_destroy(ctx);
    free(host);
    return fabs(sum / WIDTH - 1) < 1e-3 ? 0 : 1;
}
