/* wgmma.h - in place of src/cuda/wgmma.cuh: the products of a warpgroup are noted, and made when somebody waits.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EMULATOR_WGMMA_H
#define EMULATOR_WGMMA_H

SKR_DEVICE uint64_t wgmma_tile(uint32_t address, uint32_t panel)
{
    emu_need_aligned(address, 1024);
    return (uint64_t)((address & 0x3ffff) >> 4) | (uint64_t)(panel >> 4) << 16;
}

template <class S, int N> SKR_DEVICE void wgmma_pin(S (&)[N])
{
}

SKR_DEVICE void wgmma_begin()
{
}

SKR_DEVICE void wgmma_commit()
{
    emu_wgmma_commit();
}

template <int N> SKR_DEVICE void wgmma_wait()
{
    emu_wgmma_wait(N);
}

#define SKR_WGMMA(name, N, S, c, shape, types, modifiers)                                                              \
    SKR_DEVICE void name(S(&d)[N / 2], uint64_t a, uint64_t b, int keep)                                               \
    {                                                                                                                  \
        emu_wgmma_start({d, a, b, keep, N, types, modifiers, {}});                                                     \
    }
/* The words of the four lanes that have a row between them. */
#define SKR_WGMMA_LEFT(name, N, types, modifiers)                                                                      \
    SKR_DEVICE void name(float(&d)[N / 2], const uint32_t(&a)[4], uint64_t b, int keep)                                \
    {                                                                                                                  \
        emu_wgmma what = {d, EMU_IN_REGISTERS, b, keep, N, types, ", 1, 1, 0" modifiers, {}};                          \
        for (int i = 0; i < 16; i++)                                                                                   \
            what.left[i] = __shfl_sync(0xffffffff, a[i % 4], (threadIdx.x & 28) + i / 4);                              \
        emu_wgmma_start(what);                                                                                         \
    }

#endif
