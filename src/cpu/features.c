/* features.c - see features.h.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "features.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__aarch64__)
#include <sys/auxv.h>

/* Bits of AT_HWCAP and AT_HWCAP2 (the kernel's ABI; older C library headers lack some). */
enum {
    HWCAP_BIT_ASIMD = 1,
    HWCAP_BIT_ASIMDHP = 10,
    HWCAP_BIT_ASIMDDP = 20,
    HWCAP_BIT_ASIMDFHM = 23,
    HWCAP2_BIT_I8MM = 13,
    HWCAP2_BIT_BF16 = 14
};

static uint32_t detect(void)
{
    unsigned long cap = getauxval(AT_HWCAP), cap2 = getauxval(AT_HWCAP2);
    uint32_t found = 0;
    found |= cap >> HWCAP_BIT_ASIMD & 1 ? SKR_CPU_asimd : 0;
    found |= cap >> HWCAP_BIT_ASIMDHP & 1 ? SKR_CPU_asimdhp : 0;
    found |= cap >> HWCAP_BIT_ASIMDDP & 1 ? SKR_CPU_asimddp : 0;
    found |= cap >> HWCAP_BIT_ASIMDFHM & 1 ? SKR_CPU_asimdfhm : 0;
    found |= cap2 >> HWCAP2_BIT_I8MM & 1 ? SKR_CPU_i8mm : 0;
    found |= cap2 >> HWCAP2_BIT_BF16 & 1 ? SKR_CPU_bf16 : 0;
    return found;
}

#else
#include <cpuid.h>

/* XCR0: which register states the operating system saves. */
static uint64_t saved_states(void)
{
    uint32_t low, high;
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

/* Tiles are 8 KiB of state that the kernel only saves for processes that asked (Linux 5.16). It may refuse: a seccomp
 * filter, or an alternate signal stack that is too small for the larger frame. */
static bool may_use_tiles(void)
{
    enum { REQUEST = 0x1023 /* ARCH_REQ_XCOMP_PERM */, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, REQUEST, TILE_DATA) == 0;
}

static uint32_t detect(void)
{
    enum { XMM = 1 << 1, YMM = 1 << 2, OPMASK_ZMM = 7 << 5, TILES = 3 << 17 };
    uint32_t a, b, c, d, found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) /* OSXSAVE: without it XGETBV faults */
        return 0;
    found |= c >> 12 & 1 ? SKR_CPU_fma : 0;
    found |= c >> 29 & 1 ? SKR_CPU_f16c : 0;
    uint64_t saved = saved_states();
    found |= (saved & (XMM | YMM)) == (XMM | YMM) ? SKR_CPU_ymm_state : 0;
    found |= (saved & OPMASK_ZMM) == OPMASK_ZMM ? SKR_CPU_zmm_state : 0;
    found |= (saved & TILES) == TILES ? SKR_CPU_tile_state : 0;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        found |= b >> 5 & 1 ? SKR_CPU_avx2 : 0;
        found |= b >> 16 & 1 ? SKR_CPU_avx512f : 0;
        found |= b >> 17 & 1 ? SKR_CPU_avx512dq : 0;
        found |= b >> 30 & 1 ? SKR_CPU_avx512bw : 0;
        found |= b >> 31 & 1 ? SKR_CPU_avx512vl : 0;
        found |= c >> 11 & 1 ? SKR_CPU_avx512_vnni : 0;
        found |= d >> 22 & 1 ? SKR_CPU_amx_bf16 : 0;
        found |= d >> 24 & 1 ? SKR_CPU_amx_tile : 0;
        found |= d >> 25 & 1 ? SKR_CPU_amx_int8 : 0;
    }
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        found |= a >> 5 & 1 ? SKR_CPU_avx512_bf16 : 0;
        found |= a >> 21 & 1 ? SKR_CPU_amx_fp16 : 0;
    }
    bool has_tiles = (found & SKR_CPU_amx_tile) && (found & SKR_CPU_tile_state);
    found |= has_tiles && may_use_tiles() ? SKR_CPU_tile_permission : 0;
    return found;
}
#endif

static const struct {
    const char *name;
    uint32_t needs;
} levels[SKR_N_ISA] = {
#define SKR_ISA(name, needs) {#name, needs},
#include "isa.def"
#undef SKR_ISA
};

static const char *const texts[SKR_N_FEATURES] = {
#define F(name, text) text,
    SKR_FEATURES(F)
#undef F
};

static char why_not[SKR_N_ISA][160];

static void find_out(void)
{
    uint32_t found = detect();
    for (int i = 0; i < SKR_N_ISA; i++) {
        uint32_t missing = levels[i].needs & ~found;
        if (missing)
            snprintf(why_not[i], sizeof why_not[i], "this machine lacks %s", texts[__builtin_ctz(missing)]);
    }
}

const char *skr_isa_why_not(int isa)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_out);
    return why_not[isa];
}

const char *skr_isa_name(int isa)
{
    return levels[isa].name;
}
