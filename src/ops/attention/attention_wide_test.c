/* attention_wide_test.c - options with heads for which GPUs with little shared memory have kernels of their own.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_cases_test.h"

void attention_wide_cases(void)
{
    static const int64_t halves[][2] = {{256, 256}, {249, 130}, {530, 264}};
    static const int64_t f32[][2] = {{256, 256}, {249, 130}, {100, 72}};
    static const struct {
        unsigned has;
        int layout;
        suite_fill v;
    } options[] = {{.has = CAUSAL | BIAS},
                   {.has = WINDOW | DROPOUT},
                   {.has = SOFTCAP | SLOPES | SINKS},
                   {.has = CAUSAL | DLSE, .layout = SAKER_THD},
                   {.has = MASK | BIAS | DROPOUT | ACCUMULATE, .layout = SAKER_BHSD},
                   {.has = CAUSAL, .v = SUITE_ONE_NAN}};
    foreach (t, floats)
        foreach (i, halves)
            foreach (o, options) {
                const int64_t *size = floats[t] == SAKER_F32 ? f32[i] : halves[i];
                bool packed = options[o].layout == SAKER_THD;
                struct spec s = {.type = floats[t],
                                 .b = packed ? 2 : 1,
                                 .s = 37,
                                 .sk = 70,
                                 .hq = 2,
                                 .hk = 1,
                                 .d = size[0],
                                 .dv = size[1],
                                 .has = options[o].has,
                                 .layout = options[o].layout,
                                 .v = options[o].v,
                                 .left = 9,
                                 .right = 4,
                                 .bias_dims = o ? H | SK : SQ | SK,
                                 .mask_dims = SQ | SK,
                                 .note = "wide"};
                attention_backward(s);
                s.has &= ~(unsigned)(DLSE | ACCUMULATE);
                attention_forward(s);
            }
}
