// test_header.cpp - saker.h alone, as strict C++17.
// SPDX-License-Identifier: Apache-2.0
#include "saker.h"

int main()
{
    float in[4] = {1, 2, 3, 4}, out[4] = {0, 0, 0, 0};
    int64_t shape[2] = {1, 4};
    saker_context *ctx = nullptr;
    saker_tensor x = saker_tensor_of(in, SAKER_F32, 2, shape, nullptr);
    saker_tensor y = saker_tensor_of(out, SAKER_F32, 2, shape, nullptr);
    auto a = SAKER_INIT(rms_norm);
    static_assert(sizeof(saker_tensor) == 48, "layout");
    a.x = &x;
    a.y = &y;
    if (a.struct_size != sizeof a || saker_context_create(&ctx, nullptr) != SAKER_OK)
        return 1;
    saker_status s = saker_rms_norm(ctx, &a);
    saker_context_destroy(ctx);
    return s != SAKER_OK || !(out[3] > 1.4f && out[3] < 1.5f);
}
