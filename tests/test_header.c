/* test_header.c - saker.h alone, as strict C11: every macro in use, nothing included before it.
 * SPDX-License-Identifier: Apache-2.0 */
#include "saker.h"

static saker_tensor made(float *data)
{
    saker_tensor t = SAKER_TENSOR(data, SAKER_F32, 1, 4);
    t.shape = 0; /* the array lived in this block */
    return t;
}

int main(void)
{
    float in[4] = {1, 2, 3, 4}, out[4] = {0, 0, 0, 0};
    int64_t shape[2] = {1, 4};
    saker_context *ctx = 0;
    saker_tensor x = SAKER_TENSOR(in, SAKER_F32, 1, 4);
    saker_tensor y = saker_tensor_of(out, SAKER_F32, 2, shape, 0);
    saker_rms_norm_args a = SAKER_INIT(rms_norm);
    saker_dtype type = SAKER_DTYPE(SAKER_BF16);
    a.x = &x;
    a.y = &y;
    if (made(in).ndim != 2 || type.bits != 16 || saker_context_create(&ctx, 0))
        return 1;
    saker_status s = saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &x, .y = &y));
    float first = out[3];
    s = s ? s : saker_rms_norm(ctx, &a);
    saker_context_destroy(ctx);
    return s != SAKER_OK || first != out[3] || !(out[3] > 1.4f && out[3] < 1.5f);
}
