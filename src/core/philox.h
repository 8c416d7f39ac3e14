/* philox.h - Philox4x32-10 (Salmon et al., 2011): four random words for each counter, without state; C and CUDA C.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_PHILOX_H
#define SKR_PHILOX_H

#include "job.h"

typedef struct skr_philox {
    uint32_t word[4];
} skr_philox;

SKR_INLINE skr_philox skr_philox_at(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint32_t key0, uint32_t key1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t a = (uint64_t)0xd2511f53u * c0, b = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(b >> 32) ^ c1 ^ key0;
        c2 = (uint32_t)(a >> 32) ^ c3 ^ key1;
        c1 = (uint32_t)b;
        c3 = (uint32_t)a;
        key0 += 0x9e3779b9u;
        key1 += 0xbb67ae85u;
    }
    skr_philox r = {{c0, c1, c2, c3}};
    return r;
}

#endif
