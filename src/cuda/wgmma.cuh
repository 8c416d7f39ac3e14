/* wgmma.cuh - the matrix instructions of Hopper's warpgroups: operands in shared memory, sums in registers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * SKR_WGMMA(name, N, sum type, constraint, shape, types, modifiers) defines name(d, a, b, keep): d = a x b + (keep ? d
 * : 0) for 64 rows and N columns, queued; d belongs to the tensor cores until wgmma_wait(). a and b are descriptors.
 * SKR_WGMMA_LEFT defines the same with a in registers, four words of 16-bit elements as mma_k16 has them, which belong
 * to the tensor cores, too.
 * The operand lists below are what the instruction takes, written out: N / 2 registers a thread. */
#ifndef SKR_WGMMA_CUH
#define SKR_WGMMA_CUH

#include "device.cuh"

/* A tile of 128-byte rows in the 128-byte swizzle, at a multiple of 1024 bytes; 8 rows are 1024 bytes. With k along the
 * rows (16 bits, 8 bits: the only way), `panel` is not used; the next step of 32 bytes along k is + 2. With m or n
 * along them, panel is the distance between neighbouring panels of 64 elements, and the next 16 k are + 128. */
SKR_DEVICE uint64_t wgmma_tile(uint32_t address, uint32_t panel)
{
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(panel >> 4) << 16 | (uint64_t)(1024 >> 4) << 32 |
           (uint64_t)1 << 62;
}

/* The sums cannot move across this: before the first instruction that takes them, and after the last. */
template <class S, int N> SKR_DEVICE void wgmma_pin(S (&d)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++)
        if constexpr (S(0.5) == S(0))
            asm volatile("" : "+r"(d[i])::"memory");
        else
            asm volatile("" : "+f"(d[i])::"memory");
}

SKR_DEVICE void wgmma_begin()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

SKR_DEVICE void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* All but the newest N groups are done. */
template <int N> SKR_DEVICE void wgmma_wait()
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

/* clang-format off */
#define SKR_WGMMA_LIST_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define SKR_WGMMA_SUMS_16(c, d) c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7])
#define SKR_WGMMA_A_16 "%8"
#define SKR_WGMMA_B_16 "%9"
#define SKR_WGMMA_KEEP_16 "%10"
#define SKR_WGMMA_LEFT_16 "{%8, %9, %10, %11}, %12"
#define SKR_WGMMA_LEFT_KEEP_16 "%13"
#define SKR_WGMMA_LIST_64                                                                                              \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                           \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define SKR_WGMMA_SUMS_64(c, d)                                                                                        \
    c(d[0]), c(d[1]), c(d[2]), c(d[3]), c(d[4]), c(d[5]), c(d[6]), c(d[7]),                                            \
    c(d[8]), c(d[9]), c(d[10]), c(d[11]), c(d[12]), c(d[13]), c(d[14]), c(d[15]),                                      \
    c(d[16]), c(d[17]), c(d[18]), c(d[19]), c(d[20]), c(d[21]), c(d[22]), c(d[23]),                                    \
    c(d[24]), c(d[25]), c(d[26]), c(d[27]), c(d[28]), c(d[29]), c(d[30]), c(d[31])
#define SKR_WGMMA_A_64 "%32"
#define SKR_WGMMA_B_64 "%33"
#define SKR_WGMMA_KEEP_64 "%34"
#define SKR_WGMMA_LEFT_64 "{%32, %33, %34, %35}, %36"
#define SKR_WGMMA_LEFT_KEEP_64 "%37"
#define SKR_WGMMA_LIST_96                                                                                              \
    SKR_WGMMA_LIST_64 ", "                                                                                             \
    "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define SKR_WGMMA_SUMS_96(c, d)                                                                                        \
    SKR_WGMMA_SUMS_64(c, d),                                                                                           \
    c(d[32]), c(d[33]), c(d[34]), c(d[35]), c(d[36]), c(d[37]), c(d[38]), c(d[39]),                                    \
    c(d[40]), c(d[41]), c(d[42]), c(d[43]), c(d[44]), c(d[45]), c(d[46]), c(d[47])
#define SKR_WGMMA_A_96 "%48"
#define SKR_WGMMA_B_96 "%49"
#define SKR_WGMMA_KEEP_96 "%50"
#define SKR_WGMMA_LEFT_96 "{%48, %49, %50, %51}, %52"
#define SKR_WGMMA_LEFT_KEEP_96 "%53"
#define SKR_WGMMA_LIST_128                                                                                             \
    SKR_WGMMA_LIST_96 ", "                                                                                             \
    "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define SKR_WGMMA_SUMS_128(c, d)                                                                                       \
    SKR_WGMMA_SUMS_96(c, d),                                                                                           \
    c(d[48]), c(d[49]), c(d[50]), c(d[51]), c(d[52]), c(d[53]), c(d[54]), c(d[55]),                                    \
    c(d[56]), c(d[57]), c(d[58]), c(d[59]), c(d[60]), c(d[61]), c(d[62]), c(d[63])
#define SKR_WGMMA_A_128 "%64"
#define SKR_WGMMA_B_128 "%65"
#define SKR_WGMMA_KEEP_128 "%66"
#define SKR_WGMMA_LEFT_128 "{%64, %65, %66, %67}, %68"
#define SKR_WGMMA_LEFT_KEEP_128 "%69"
#define SKR_WGMMA_LIST_144                                                                                             \
    SKR_WGMMA_LIST_128 ", "                                                                                            \
    "%64, %65, %66, %67, %68, %69, %70, %71"
#define SKR_WGMMA_SUMS_144(c, d)                                                                                       \
    SKR_WGMMA_SUMS_128(c, d),                                                                                          \
    c(d[64]), c(d[65]), c(d[66]), c(d[67]), c(d[68]), c(d[69]), c(d[70]), c(d[71])
#define SKR_WGMMA_A_144 "%72"
#define SKR_WGMMA_B_144 "%73"
#define SKR_WGMMA_KEEP_144 "%74"
#define SKR_WGMMA_LIST_160                                                                                             \
    SKR_WGMMA_LIST_144 ", "                                                                                            \
    "%72, %73, %74, %75, %76, %77, %78, %79"
#define SKR_WGMMA_SUMS_160(c, d)                                                                                       \
    SKR_WGMMA_SUMS_144(c, d),                                                                                          \
    c(d[72]), c(d[73]), c(d[74]), c(d[75]), c(d[76]), c(d[77]), c(d[78]), c(d[79])
#define SKR_WGMMA_A_160 "%80"
#define SKR_WGMMA_B_160 "%81"
#define SKR_WGMMA_KEEP_160 "%82"
#define SKR_WGMMA_LIST_192                                                                                             \
    SKR_WGMMA_LIST_160 ", "                                                                                            \
    "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define SKR_WGMMA_SUMS_192(c, d)                                                                                       \
    SKR_WGMMA_SUMS_160(c, d),                                                                                          \
    c(d[80]), c(d[81]), c(d[82]), c(d[83]), c(d[84]), c(d[85]), c(d[86]), c(d[87]),                                    \
    c(d[88]), c(d[89]), c(d[90]), c(d[91]), c(d[92]), c(d[93]), c(d[94]), c(d[95])
#define SKR_WGMMA_A_192 "%96"
#define SKR_WGMMA_B_192 "%97"
#define SKR_WGMMA_KEEP_192 "%98"
#define SKR_WGMMA_LIST_224                                                                                             \
    SKR_WGMMA_LIST_192 ", "                                                                                            \
    "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define SKR_WGMMA_SUMS_224(c, d)                                                                                       \
    SKR_WGMMA_SUMS_192(c, d),                                                                                          \
    c(d[96]), c(d[97]), c(d[98]), c(d[99]), c(d[100]), c(d[101]), c(d[102]), c(d[103]),                                \
    c(d[104]), c(d[105]), c(d[106]), c(d[107]), c(d[108]), c(d[109]), c(d[110]), c(d[111])
#define SKR_WGMMA_A_224 "%112"
#define SKR_WGMMA_B_224 "%113"
#define SKR_WGMMA_KEEP_224 "%114"
#define SKR_WGMMA_LIST_256                                                                                             \
    SKR_WGMMA_LIST_224 ", "                                                                                            \
    "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define SKR_WGMMA_SUMS_256(c, d)                                                                                       \
    SKR_WGMMA_SUMS_224(c, d),                                                                                          \
    c(d[112]), c(d[113]), c(d[114]), c(d[115]), c(d[116]), c(d[117]), c(d[118]), c(d[119]),                            \
    c(d[120]), c(d[121]), c(d[122]), c(d[123]), c(d[124]), c(d[125]), c(d[126]), c(d[127])
#define SKR_WGMMA_A_256 "%128"
#define SKR_WGMMA_B_256 "%129"
#define SKR_WGMMA_KEEP_256 "%130"
#define SKR_WGMMA_LEFT_256 "{%128, %129, %130, %131}, %132"
#define SKR_WGMMA_LEFT_KEEP_256 "%133"
#define SKR_WGMMA(name, N, S, c, shape, types, modifiers)                                                              \
SKR_DEVICE void name(S (&d)[N / 2], uint64_t a, uint64_t b, int keep)                                                  \
{                                                                                                                      \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " SKR_WGMMA_KEEP_##N ", 0;\n"                                 \
                 "wgmma.mma_async.sync.aligned." shape "." types " {" SKR_WGMMA_LIST_##N "}, " SKR_WGMMA_A_##N ", "    \
                 SKR_WGMMA_B_##N ", keep" modifiers ";\n}\n"                                                           \
                 : SKR_WGMMA_SUMS_##N(c, d) : "l"(a), "l"(b), "r"(keep));                                              \
}
#define SKR_WGMMA_LEFT(name, N, types, modifiers)                                                                      \
SKR_DEVICE void name(float (&d)[N / 2], const uint32_t (&a)[4], uint64_t b, int keep)                                  \
{                                                                                                                      \
    asm volatile("{\n.reg .pred keep;\nsetp.ne.b32 keep, " SKR_WGMMA_LEFT_KEEP_##N ", 0;\n"                            \
                 "wgmma.mma_async.sync.aligned.m64n" #N "k16." types " {" SKR_WGMMA_LIST_##N "}, "                     \
                 SKR_WGMMA_LEFT_##N ", keep" modifiers ";\n}\n"                                                        \
                 : SKR_WGMMA_SUMS_##N("+f", d)                                                                         \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(keep));                                     \
}
/* clang-format on */

#endif
