/* rms_norm.c - normalise the rows of a tensor on all cores.
 * Build: cc examples/rms_norm.c $(pkg-config --cflags --libs saker)
 * SPDX-License-Identifier: Apache-2.0 */
#include <saker.h>
#include <stdio.h>

static float x[256][1024], w[1024], y[256][1024];

int main(void)
{
    for (int i = 0; i < 256 * 1024; i++)
        x[i / 1024][i % 1024] = (float)(i % 7) - 3, w[i % 1024] = 1;
    saker_context *ctx; /* the CPU, all cores this process may use */
    if (saker_context_create(&ctx, NULL))
        return fprintf(stderr, "%s\n", saker_context_error(NULL)), 1;
    saker_tensor tx = SAKER_TENSOR(x, SAKER_F32, 256, 1024), tw = SAKER_TENSOR(w, SAKER_F32, 1024);
    saker_tensor ty = SAKER_TENSOR(y, SAKER_F32, 256, 1024);
    if (saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &tx, .weight = &tw, .y = &ty)))
        return fprintf(stderr, "%s\n", saker_context_error(ctx)), 1;
    printf("%g %g %g by %s\n", y[0][0], y[0][1], y[255][1023], saker_context_kernel(ctx));
    saker_context_destroy(ctx);
    return 0;
}
