/* peak_aarch64.c - how many multiplies and adds a second an Arm core does out of registers, per instruction.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each kernel is a loop over 24 independent accumulators, enough to hide 4 results a cycle with up to 6 cycles of
 * latency. Instructions are written as encodings (operands v30 and v31, result v0 plus the counter): no assembler needs
 * an option for them, and nothing runs them unless the kernel reports the feature. */
#include "cli.h"

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>

enum { ACCUMULATORS = 24 };

/* 0x3c and 0xbc in each byte are ordinary numbers in every type: about 0.01 (f32, bf16), 1.06 (f16), 60 and -68 (i8).
 * They are loaded each time: a Neoverse V1 takes two instructions a cycle, not four, whose operands were both written
 * long ago. */
static const _Alignas(32) uint8_t operands[32] = {
    0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c, 0x3c,
    0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc, 0xbc,
};
#define PEAK(name, base, step)                                                                                         \
    static void name(int64_t n)                                                                                        \
    {                                                                                                                  \
        __asm__ volatile("1:\n\tldp q30, q31, [%1]\n\t"                                                                \
                         ".irp d,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23\n\t"                    \
                         ".inst " #base " + " #step " * \\d\n\t.endr\n\t"                                              \
                         "subs %0, %0, #1\n\tb.ne 1b\n"                                                                \
                         : "+r"(n)                                                                                     \
                         : "r"(operands)                                                                               \
                         : "cc", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12",      \
                           "v13", "v14", "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v30", "v31"); \
    }
PEAK(fmadd_f32, 0x1f1f03c0, 0x401) /* fmadd s0, s30, s31, s0: accumulator and result count on together */
PEAK(fmla_f32, 0x4e3fcfc0, 1)      /* fmla v0.4s, v30.4s, v31.4s */
PEAK(fmla_f16, 0x4e5f0fc0, 1)      /* fmla v0.8h, v30.8h, v31.8h */
PEAK(fmlal_f16, 0x4e3fefc0, 1)     /* fmlal v0.4s, v30.4h, v31.4h */
PEAK(bfmlalb, 0x2edfffc0, 1)       /* bfmlalb v0.4s, v30.8h, v31.8h */
PEAK(bfdot, 0x6e5fffc0, 1)         /* bfdot v0.4s, v30.8h, v31.8h */
PEAK(bfmmla, 0x6e5fefc0, 1)        /* bfmmla v0.4s, v30.8h, v31.8h */
PEAK(sdot, 0x4e9f97c0, 1)          /* sdot v0.4s, v30.16b, v31.16b */
PEAK(smmla, 0x4e9fa7c0, 1)         /* smmla v0.4s, v30.16b, v31.16b */

static bool always(void)
{
    return true;
}
static bool has_f16(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDHP;
}
static bool has_fmlal(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDFHM;
}
static bool has_dot(void)
{
    return getauxval(AT_HWCAP) & HWCAP_ASIMDDP;
}
static bool has_bf16(void)
{
    return getauxval(AT_HWCAP2) & (1u << 14); /* HWCAP2_BF16, missing from older headers */
}
static bool has_i8mm(void)
{
    return getauxval(AT_HWCAP2) & (1u << 13); /* HWCAP2_I8MM */
}

const cli_peak cli_peaks[] = {
    {"scalar", "f32", "FMADD", 2 * ACCUMULATORS, fmadd_f32, always},
    {"neon", "f32", "FMLA", 8 * ACCUMULATORS, fmla_f32, always},
    {"neon", "f16", "FMLA, f16 sums", 16 * ACCUMULATORS, fmla_f16, has_f16},
    {"neon", "f16", "FMLAL, f32 sums", 8 * ACCUMULATORS, fmlal_f16, has_fmlal},
    {"neon", "i8", "SDOT", 32 * ACCUMULATORS, sdot, has_dot},
    {"neonmm", "bf16", "BFMLALB", 8 * ACCUMULATORS, bfmlalb, has_bf16},
    {"neonmm", "bf16", "BFDOT", 16 * ACCUMULATORS, bfdot, has_bf16},
    {"neonmm", "bf16", "BFMMLA", 32 * ACCUMULATORS, bfmmla, has_bf16},
    {"neonmm", "i8", "SMMLA", 64 * ACCUMULATORS, smmla, has_i8mm},
};
const int cli_n_peaks = sizeof cli_peaks / sizeof cli_peaks[0];
#endif
