/* machine.h - what the rewritten kernels ask of the machine that runs them (machine.cpp).
 * SPDX-License-Identifier: Apache-2.0
 *
 * Threads are fibers: one runs until it waits. What is asynchronous on a GPU happens late here: cp.async and wgmma at
 * their waits, copies that count on a barrier at some later time, in any order. A wrong index, a missing wait, a
 * barrier too few, a misaligned or foreign address, a block that leaves while something is on its way: all of it ends
 * the program with a line that names the kernel. Speed and the order of memory operations are not what this shows. */
#ifndef EMULATOR_MACHINE_H
#define EMULATOR_MACHINE_H

#include <cstddef>
#include <cstdint>

struct emu_dim {
    unsigned x, y, z;
};
extern emu_dim threadIdx, blockIdx, blockDim, gridDim;

/* ---------------------------------------------------------------- shared memory: addresses are those of PTX */

char *emu_dynamic();
uint32_t emu_place(size_t bytes); /* room for a variable of a kernel, the same in every block */
char *emu_static(uint32_t place);
char *emu_at(uint32_t address);
uint32_t emu_shared(const void *p);
void emu_need_aligned(uint64_t address, unsigned bytes);
void emu_need_global(const void *p, size_t bytes);

/* ---------------------------------------------------------------- threads that wait for each other */

enum { EMU_WORDS = 12 };
/* A warp's lanes bring words; fn sees and changes those of all. */
typedef void (*emu_warp_function)(uint32_t (*lane)[EMU_WORDS]);
void emu_warp(uint32_t (&words)[EMU_WORDS], emu_warp_function fn);
void emu_bar(int id, int threads);
void emu_bar_pass(int id, int threads);
void emu_block_barrier();
bool emu_block_any(bool x);
void emu_cluster_arrive();
void emu_cluster_wait();
uint32_t emu_cluster_rank();
uint32_t emu_cluster_size();

/* ---------------------------------------------------------------- barriers in memory, and what counts on them */

void emu_barrier_init(uint32_t barrier, uint32_t arrivals);
void emu_barrier_arrive(uint32_t barrier, uint32_t expected_bytes);
void emu_barrier_wait(uint32_t barrier, uint32_t parity);
void emu_bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier);
void emu_send(uint32_t peer, const uint32_t *words, int n, uint32_t peer_barrier);
/* mask: the blocks of the cluster that receive it; 0: this one. */
void emu_tensor_load(uint32_t to, const void *map, uint32_t barrier, int x, int y, int z, int mask);

/* ---------------------------------------------------------------- groups of copies of one thread */

void emu_copy(uint32_t to, const void *from, int size, int bytes); /* the rest of size is zeros */
void emu_copy_commit();
void emu_copy_wait(int groups);
void emu_tensor_store(const void *map, uint32_t from, int x, int y, int z);
void emu_store_commit();
void emu_store_wait(int groups);

struct emu_wgmma {
    void *d;
    uint64_t a, b;
    int keep, columns;
    const char *types, *modifiers;
    uint32_t left[16]; /* a is EMU_IN_REGISTERS: a's two rows, of lane i / 4 word i % 4 */
};
constexpr uint64_t EMU_IN_REGISTERS = ~(uint64_t)0;
void emu_wgmma_start(const emu_wgmma &what);
void emu_wgmma_commit();
void emu_wgmma_wait(int groups);

#endif
