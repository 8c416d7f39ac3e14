/* peak_x86.c - how many multiplies and adds a second an x86-64 core does out of registers, per instruction.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Each kernel loops over independent accumulators (12 of 16 or 24 of 32 registers: 2 results a cycle, 4 or 5 cycles of
 * latency). The asm is plain text for the assembler; nothing runs it unless the library reports the level as usable. */
#include "cli.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <string.h>

/* 0x3c and 0xbc in each byte are ordinary numbers in every type: about 0.01 (f32, bf16), 1.06 (f16), 60 and -68 (i8).
 */
static const uint32_t left = 0x3c3c3c3c, right = 0xbcbcbcbc;

#define REGS_12 "0,1,2,3,4,5,6,7,8,9,10,11"
#define REGS_24 REGS_12 ",12,13,14,15,16,17,18,19,20,21,22,23"
#define CLOBBER_16                                                                                                     \
    "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",         \
        "xmm13", "xmm14", "xmm15"

static void sse_f32(int64_t n)
{
    __asm__ volatile("movss %1, %%xmm14\n\tmovss %2, %%xmm15\n"
                     "1:\n\t.irp d," REGS_12 "\n\tmovaps %%xmm14, %%xmm13\n\tmulss %%xmm15, %%xmm13\n\t"
                     "addss %%xmm13, %%xmm\\d\n\t.endr\n\tdec %0\n\tjnz 1b\n"
                     : "+r"(n)
                     : "m"(left), "m"(right)
                     : "cc", CLOBBER_16);
}

static void fma_avx2(int64_t n)
{
    __asm__ volatile("vbroadcastss %1, %%ymm14\n\tvbroadcastss %2, %%ymm15\n"
                     "1:\n\t.irp d," REGS_12 "\n\tvfmadd231ps %%ymm14, %%ymm15, %%ymm\\d\n\t.endr\n\t"
                     "dec %0\n\tjnz 1b\n\tvzeroupper\n"
                     : "+r"(n)
                     : "m"(left), "m"(right)
                     : "cc", CLOBBER_16);
}

/* The upper 16 vector registers need no clobber: code compiled for plain x86-64 never holds anything in them. */
#define PEAK_512(name, instruction)                                                                                    \
    static void name(int64_t n)                                                                                        \
    {                                                                                                                  \
        __asm__ volatile("vbroadcastss %1, %%zmm30\n\tvbroadcastss %2, %%zmm31\n"                                      \
                         "1:\n\t.irp d," REGS_24 "\n\t" instruction " %%zmm30, %%zmm31, %%zmm\\d\n\t.endr\n\t"         \
                         "dec %0\n\tjnz 1b\n\tvzeroupper\n"                                                            \
                         : "+r"(n)                                                                                     \
                         : "m"(left), "m"(right)                                                                       \
                         : "cc", CLOBBER_16);                                                                          \
    }
PEAK_512(fma_512, "vfmadd231ps")
PEAK_512(vnni_512, "vpdpbusd")
PEAK_512(bf16_512, "vdpbf16ps")

#if defined(__clang__) ? __clang_major__ >= 14                                                                         \
                       : __GNUC__ >= 12 /* the assembler that comes with older ones may not know it */
#define KNOWS_FP16 1
PEAK_512(f16_512, "vfmadd231ph")
#endif

/* Eight tiles: two of A, two of B, four sums, as a real inner loop has them. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
} tile_config;

static void tiles_begin(tile_config *config)
{
    static uint8_t data[16 * 64] __attribute__((aligned(64)));
    memset(config, 0, sizeof *config);
    memset(data, 0x3c, sizeof data);
    config->palette = 1;
    for (int i = 0; i < 8; i++) {
        config->bytes_per_row[i] = 64;
        config->rows[i] = 16;
    }
    __asm__ volatile("ldtilecfg %0\n\ttilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"
                     "tileloadd (%1,%2,1), %%tmm4\n\ttileloadd (%1,%2,1), %%tmm5\n\t"
                     "tileloadd (%1,%2,1), %%tmm6\n\ttileloadd (%1,%2,1), %%tmm7"
                     :
                     : "m"(*config), "r"(data), "r"((int64_t)64)
                     : "memory");
}

#define PEAK_AMX(name, instruction)                                                                                    \
    static void name(int64_t n)                                                                                        \
    {                                                                                                                  \
        tile_config config;                                                                                            \
        tiles_begin(&config);                                                                                          \
        __asm__ volatile("1:\n\t" instruction " %%tmm6, %%tmm4, %%tmm0\n\t" instruction                                \
                         " %%tmm7, %%tmm4, %%tmm1\n\t" instruction " %%tmm6, %%tmm5, %%tmm2\n\t" instruction           \
                         " %%tmm7, %%tmm5, %%tmm3\n\tdec %0\n\tjnz 1b\n\ttilerelease\n"                                \
                         : "+r"(n)::"cc");                                                                             \
    }
static void amx_f16(int64_t n) /* TDPFP16PS in bytes: assemblers before 2.40 do not know it */
{
    tile_config config;
    tiles_begin(&config);
    __asm__ volatile("1:\n\t.byte 0xc4, 0xe2, 0x4b, 0x5c, 0xc4, 0xc4, 0xe2, 0x43, 0x5c, 0xcc\n\t"
                     ".byte 0xc4, 0xe2, 0x4b, 0x5c, 0xd5, 0xc4, 0xe2, 0x43, 0x5c, 0xdd\n\t"
                     "dec %0\n\tjnz 1b\n\ttilerelease\n"
                     : "+r"(n)::"cc");
}
PEAK_AMX(amx_bf16, "tdpbf16ps")
PEAK_AMX(amx_i8, "tdpbssd")

static bool always(void)
{
    return true;
}
static bool has_avx2(void)
{
    return cli_level_usable("avx2");
}
static bool has_avx512(void)
{
    return cli_level_usable("avx512");
}
static bool has_avx512bf16(void)
{
    return cli_level_usable("avx512bf16");
}
static bool has_amx(void)
{
    return cli_level_usable("amx");
}
static bool has_amxfp16(void)
{
    return cli_level_usable("amxfp16");
}
#ifdef KNOWS_FP16
static bool has_fp16(void)
{
    unsigned a, b, c, d;
    return has_avx512() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d >> 23 & 1);
}
#endif

const cli_peak cli_peaks[] = {
    {"scalar", "f32", "MULSS + ADDSS", 2 * 12, sse_f32, always},
    {"avx2", "f32", "VFMADD231PS", 16 * 12, fma_avx2, has_avx2},
    {"avx512", "f32", "VFMADD231PS", 32 * 24, fma_512, has_avx512},
#ifdef KNOWS_FP16
    {"avx512", "f16", "VFMADD231PH, f16 sums", 64 * 24, f16_512, has_fp16},
#endif
    {"avx512", "i8", "VPDPBUSD", 128 * 24, vnni_512, has_avx512},
    {"avx512bf16", "bf16", "VDPBF16PS", 64 * 24, bf16_512, has_avx512bf16},
    {"amx", "bf16", "TDPBF16PS", 4 * 2.0 * 16 * 16 * 32, amx_bf16, has_amx},
    {"amxfp16", "f16", "TDPFP16PS", 4 * 2.0 * 16 * 16 * 32, amx_f16, has_amxfp16},
    {"amx", "i8", "TDPBSSD", 4 * 2.0 * 16 * 16 * 64, amx_i8, has_amx},
};
const int cli_n_peaks = sizeof cli_peaks / sizeof cli_peaks[0];
#endif
