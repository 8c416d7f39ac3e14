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
        emu_wgmma_start({d, a, b, keep, N, types, modifiers, false, {}});                                              \
    }

/* The 32 bytes of this thread's two rows, of which four lanes have 8 each. */
SKR_DEVICE void emu_held_rows(const uint32_t (&a)[4], unsigned char (&rows)[2][32])
{
    for (int i = 0; i < 4; i++)
        for (int from = 0; from < 4; from++) {
            uint32_t word = __shfl_sync(0xffffffff, a[i], (int)(threadIdx.x & 28) + from);
            memcpy(&rows[i % 2][i / 2 * 16 + from * 4], &word, 4);
        }
}

#define SKR_WGMMA_HELD(name, N, shape, types, modifiers)                                                               \
    SKR_DEVICE void name(float(&d)[N / 2], const uint32_t(&a)[4], uint64_t b, int keep)                                \
    {                                                                                                                  \
        emu_wgmma what = {d, 0, b, keep, N, types, modifiers, true, {}};                                               \
        emu_held_rows(a, what.rows);                                                                                   \
        emu_wgmma_start(what);                                                                                         \
    }

#endif
