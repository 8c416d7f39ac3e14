/* guard.c - see guard.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "guard.h"

#include <sys/mman.h>
#include <unistd.h>

bool guard_alloc(guarded *g, size_t bytes, size_t offset, bool at_end)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *g = (guarded){0};
    g->page_bytes = (bytes + offset + page - 1) / page * page;
    g->page_bytes += g->page_bytes ? 0 : page;
    g->map_bytes = g->page_bytes + 2 * page;
    g->map = mmap(NULL, g->map_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (g->map == MAP_FAILED)
        return false;
    g->pages = g->map + page;
    if (mprotect(g->pages, g->page_bytes, PROT_READ | PROT_WRITE)) {
        munmap(g->map, g->map_bytes);
        return false;
    }
    g->data = at_end ? g->pages + g->page_bytes - bytes : g->pages + offset;
    return true;
}

void guard_free(guarded *g)
{
    if (g->map)
        munmap(g->map, g->map_bytes);
    *g = (guarded){0};
}

unsigned long guard_float_control(void)
{
#if defined(__aarch64__)
    unsigned long control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return control;
#elif defined(__x86_64__)
    unsigned mxcsr;
    unsigned short x87;
    __asm__ volatile("stmxcsr %0" : "=m"(mxcsr));
    __asm__ volatile("fnstcw %0" : "=m"(x87));
    return (mxcsr & ~0x3fu) | (unsigned long)x87 << 32;
#else
    return 0;
#endif
}
