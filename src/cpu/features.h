/* features.h - what this CPU, as the operating system lets us use it, can do.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_FEATURES_H
#define SKR_FEATURES_H

#include <stdbool.h>
#include <stdint.h>

/* One row per feature: name as /proc/cpuinfo or the manuals spell it, and what to say when it is missing. */
#if defined(__aarch64__)
#define SKR_FEATURES(F)                                                                                                \
    F(asimd, "NEON")                                                                                                   \
    F(asimdhp, "half-precision arithmetic (FEAT_FP16)")                                                                \
    F(asimdfhm, "FMLAL (FEAT_FHM)")                                                                                    \
    F(asimddp, "dot products (FEAT_DotProd)")                                                                          \
    F(bf16, "bf16 instructions (FEAT_BF16)")                                                                           \
    F(i8mm, "int8 matrix instructions (FEAT_I8MM)")
#elif defined(__x86_64__)
#define SKR_FEATURES(F)                                                                                                \
    F(ymm_state, "YMM registers saved by the operating system")                                                        \
    F(avx2, "AVX2")                                                                                                    \
    F(fma, "FMA")                                                                                                      \
    F(f16c, "F16C")                                                                                                    \
    F(zmm_state, "ZMM and mask registers saved by the operating system")                                               \
    F(avx512f, "AVX512F")                                                                                              \
    F(avx512bw, "AVX512BW")                                                                                            \
    F(avx512dq, "AVX512DQ")                                                                                            \
    F(avx512vl, "AVX512VL")                                                                                            \
    F(avx512_vnni, "AVX512_VNNI")                                                                                      \
    F(avx512_bf16, "AVX512_BF16")                                                                                      \
    F(amx_tile, "AMX-TILE")                                                                                            \
    F(amx_bf16, "AMX-BF16")                                                                                            \
    F(amx_int8, "AMX-INT8")                                                                                            \
    F(amx_fp16, "AMX-FP16")                                                                                            \
    F(tile_state, "AMX tiles saved by the operating system")                                                           \
    F(tile_permission, "the kernel's permission to use AMX tiles")
#else
#error "Saker runs on aarch64 and x86-64"
#endif

enum {
#define F(name, text) SKR_CPU_BIT_##name,
    SKR_FEATURES(F)
#undef F
        SKR_N_FEATURES
};
enum {
#define F(name, text) SKR_CPU_##name = 1 << SKR_CPU_BIT_##name,
    SKR_FEATURES(F)
#undef F
};

enum {
#define SKR_ISA(name, needs) SKR_ISA_##name,
#include "isa.def"
#undef SKR_ISA
    SKR_N_ISA
};

/* "" when this machine can run the level, else a sentence that names what is missing. Found out once per process. */
const char *skr_isa_why_not(int isa);
const char *skr_isa_name(int isa);

#endif
