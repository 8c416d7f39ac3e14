/* machine.cpp - runs the rewritten kernels: a cluster of blocks at a time, its threads as fibers, turn by turn.
 * SPDX-License-Identifier: Apache-2.0 */
#include "machine.h"

#include <dlfcn.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "words.h"

enum { STACK = 96 * 1024, DYNAMIC = 240 * 1024, SHARED = 14 << 20, RANKS = 16, WARPS = 32, NAMED = 16, PATIENCE = 50 };

/* ---------------------------------------------------------------- fibers */

extern "C" void emu_switch(void **save, void *load);
#if defined(__aarch64__)
enum { SAVED = 176, ENTRY = 88 }; /* bytes below the stack's end; where the address to return to lies in them */
asm(R"(
.text
.global emu_switch
.hidden emu_switch
emu_switch:
    sub sp, sp, #176
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #176
    ret
)");
#else
enum { SAVED = 64, ENTRY = 48 };
asm(R"(
.text
.global emu_switch
.hidden emu_switch
emu_switch:
    pushq %rbx
    pushq %rbp
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbp
    popq %rbx
    ret
)");
#endif

namespace
{

struct copied {
    uint32_t to;
    const void *from;
    int size, bytes;
};
struct stored {
    const void *map;
    uint32_t from;
    int x, y, z;
};
/* What one thread has started: the group that is being made, and those that were committed. */
template <class T> struct groups {
    std::vector<T> open;
    std::vector<std::vector<T>> closed;
    void commit()
    {
        closed.push_back(std::move(open));
        open.clear();
    }
    bool empty() const
    {
        return open.empty() && closed.empty();
    }
    /* All but the newest n. */
    template <class F> void finish(int n, const F &each)
    {
        while ((int)closed.size() > n) {
            for (T &t : closed.front())
                each(t);
            closed.erase(closed.begin());
        }
    }
};
struct fiber {
    void *stack_at;
    int thread, rank;
    unsigned block;
    bool done;
    uint64_t cluster_turn;
    groups<copied> copies;
    groups<stored> stores;
    groups<emu_wgmma> products;
};
/* Waiting for n; turn counts how often they all came. */
struct meeting {
    int arrived;
    uint64_t turn;
};
struct memory_barrier {
    int count, pending;
    int64_t bytes;
    uint64_t phase;
};
/* Bytes on their way to one block, counted on its barrier. */
struct delivery {
    int rank;
    uint32_t barrier;
    std::vector<std::pair<uint32_t, std::string>> parts;
    int64_t bytes;
};

alignas(4096) char arena[RANKS][SHARED];
uint32_t placed = DYNAMIC;
std::vector<char *> stacks;
std::vector<fiber> fibers;
int current, live[RANKS];
void *scheduler;
void (*kernel)(const void *);
const void *job;
const char *kernel_name;
unsigned n_threads, n_blocks;
uint64_t progress; /* grows when anything happens that others may wait for */
std::vector<meeting> named[RANKS]; /* at() ends the program where a barrier does not exist */
meeting warpgroup[RANKS][WARPS / 4], cluster, warp_in[RANKS][WARPS], warp_out[RANKS][WARPS];
uint32_t warp_words[RANKS][WARPS][32][EMU_WORDS];
bool block_any[RANKS][2];
std::map<uint32_t, memory_barrier> barriers[RANKS];
std::vector<delivery> on_their_way;

fiber &me()
{
    return fibers[(size_t)current];
}

[[noreturn]] void die(const char *what)
{
    fprintf(stderr, "emulator: %s, block %u, thread %d: %s\n", kernel_name, me().block, me().thread, what);
    abort();
}

void yield()
{
    emu_switch(&me().stack_at, scheduler);
}

/* True for the last to come. */
bool arrive(meeting &m, int n)
{
    if (++m.arrived < n)
        return false;
    m.arrived = 0;
    m.turn++;
    progress++;
    return true;
}

void meet(meeting &m, int n)
{
    uint64_t turn = m.turn;
    if (!arrive(m, n))
        while (m.turn == turn)
            yield();
}

} // namespace

emu_dim threadIdx, blockIdx, blockDim, gridDim;
extern "C" int fake_holds(const void *p, size_t bytes); /* fake_cuda.c */

const float *emu_halves()
{
    static const std::vector<float> all = [] {
        std::vector<float> v(65536);
        for (uint32_t i = 0; i < 65536; i++)
            v[i] = (i & 0x7c00) != 0x7c00 ? emu_widen(i, 10, 15, 15) : i & 0x3ff ? NAN : i >> 15 ? -INFINITY : INFINITY;
        return v;
    }();
    return all.data();
}

/* ---------------------------------------------------------------- shared memory
 *
 * An address is a distance from the block's memory; one of a peer has the highest bit and the peer's rank. */

char *emu_dynamic()
{
    return arena[me().rank];
}

uint32_t emu_place(size_t bytes)
{
    uint32_t at = (placed + 127) / 128 * 128;
    placed = at + (uint32_t)bytes;
    if (placed > SHARED)
        die("no room for more shared variables");
    return at;
}

char *emu_static(uint32_t place)
{
    return arena[me().rank] + place;
}

char *emu_at(uint32_t address)
{
    return (address >> 31 ? arena[address >> 24 & 0x7f] : arena[me().rank]) + (address & 0xffffff);
}

uint32_t emu_shared(const void *p)
{
    ptrdiff_t at = (const char *)p - arena[me().rank];
    if (at < 0 || at >= SHARED)
        die("an address that is not in shared memory");
    return (uint32_t)at;
}

void emu_need_aligned(uint64_t address, unsigned bytes)
{
    if (address % bytes)
        die("misaligned address");
}

void emu_need_global(const void *p, size_t bytes)
{
    if (!fake_holds(p, bytes))
        die("an address outside of all memory");
}

/* ---------------------------------------------------------------- waiting for each other */

void emu_warp(uint32_t (&words)[EMU_WORDS], emu_warp_function fn)
{
    int rank = me().rank, warp = me().thread / 32, lane = me().thread % 32;
    uint32_t(*all)[EMU_WORDS] = warp_words[rank][warp];
    memcpy(all[lane], words, sizeof words);
    meeting &in = warp_in[rank][warp];
    uint64_t turn = in.turn;
    if (in.arrived == 31)
        fn(all);
    if (!arrive(in, 32))
        while (in.turn == turn)
            yield();
    memcpy(words, all[lane], sizeof words);
    meet(warp_out[rank][warp], 32); /* nobody writes before all have read */
}

void emu_bar(int id, int threads)
{
    meet(named[me().rank].at((size_t)id), threads);
}

void emu_bar_pass(int id, int threads)
{
    arrive(named[me().rank].at((size_t)id), threads);
}

void emu_block_barrier()
{
    emu_bar(0, (int)n_threads);
}

bool emu_block_any(bool x)
{
    meeting &m = named[me().rank][0];
    bool &any = block_any[me().rank][m.turn % 2];
    any = (m.arrived && any) || x;
    meet(m, (int)n_threads);
    return any;
}

void emu_cluster_arrive()
{
    me().cluster_turn = cluster.turn;
    arrive(cluster, (int)(n_threads * n_blocks));
}

void emu_cluster_wait()
{
    while (cluster.turn == me().cluster_turn)
        yield();
}

uint32_t emu_cluster_rank()
{
    return (uint32_t)me().rank;
}

uint32_t emu_cluster_size()
{
    return n_blocks;
}

/* ---------------------------------------------------------------- barriers in memory */

static memory_barrier &barrier_at(uint32_t address)
{
    int rank = address >> 31 ? (int)(address >> 24 & 0x7f) : me().rank;
    auto found = barriers[rank].find(address & 0xffffff);
    if (!live[rank])
        die("a barrier of a block that is gone");
    if (found == barriers[rank].end())
        die("a barrier that was not initialised");
    return found->second;
}

static void settle(memory_barrier &b)
{
    if (b.pending || b.bytes)
        return;
    b.phase++;
    b.pending = b.count;
    progress++;
}

void emu_barrier_init(uint32_t barrier, uint32_t arrivals)
{
    emu_need_aligned(barrier, 8);
    barriers[me().rank][barrier & 0xffffff] = {(int)arrivals, (int)arrivals, 0, 0};
}

void emu_barrier_arrive(uint32_t barrier, uint32_t expected_bytes)
{
    memory_barrier &b = barrier_at(barrier);
    if (b.pending-- <= 0)
        die("more arrivals than the barrier counts");
    b.bytes += expected_bytes;
    settle(b);
}

void emu_barrier_wait(uint32_t barrier, uint32_t parity)
{
    while ((barrier_at(barrier).phase & 1) == parity)
        yield();
}

static void deliver(const delivery &d)
{
    if (!live[d.rank]) {
        fprintf(stderr, "emulator: %s: bytes arrive in a block that is gone\n", kernel_name);
        abort();
    }
    for (const auto &part : d.parts)
        memcpy(arena[d.rank] + part.first, part.second.data(), part.second.size());
    memory_barrier &b = barriers[d.rank][d.barrier];
    b.bytes -= d.bytes;
    progress++;
    settle(b);
}

static void deliver_some()
{
    static uint32_t random = 12345;
    for (size_t i = 0; i < on_their_way.size();) {
        random = random * 1664525u + 1013904223u;
        if ((random >> 8) % 3 == 0) {
            i++;
            continue;
        }
        delivery d = std::move(on_their_way[i]);
        on_their_way.erase(on_their_way.begin() + (ptrdiff_t)i);
        deliver(d);
    }
}

void emu_bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    emu_need_aligned(to | (uintptr_t)from | bytes, 16);
    emu_need_global(from, bytes);
    barrier_at(barrier);
    std::string data((const char *)from, bytes);
    on_their_way.push_back({me().rank, barrier & 0xffffff, {{to & 0xffffff, data}}, bytes});
}

void emu_send(uint32_t peer, const uint32_t *words, int n, uint32_t peer_barrier)
{
    emu_need_aligned(peer, 4 * (unsigned)n);
    barrier_at(peer_barrier);
    int rank = (int)(peer >> 24 & 0x7f);
    if (!(peer >> 31) || !(peer_barrier >> 31) || rank != (int)(peer_barrier >> 24 & 0x7f))
        die("st.async wants an address and a barrier of one peer");
    std::string data((const char *)words, (size_t)n * 4);
    on_their_way.push_back({rank, peer_barrier & 0xffffff, {{peer & 0xffffff, data}}, n * 4});
}

/* ---------------------------------------------------------------- tensor maps, as fake_cuda_kernels.c writes them */

struct tensor_map { /* swizzle: 2 of 64 bytes, 3 of 128 */
    uint64_t type, data, dims[3], strides[2], box[2], element_strides[2], interleave, swizzle;
};
enum { UINT8 = 0, FLOAT16 = 6, BFLOAT16 = 9, TFLOAT32 = 11 };

static int element_bytes(const tensor_map *m)
{
    return m->type == UINT8 ? 1 : m->type == FLOAT16 || m->type == BFLOAT16 ? 2 : 4;
}

/* Boxes have rows of 128 or 64 bytes; the 16-byte chunks of a row are permuted by the number of its 128 bytes. */
static uint32_t swizzled(uint32_t at, int row = 128)
{
    return at ^ (at >> 7 & (uint32_t)(row / 16 - 1)) << 4;
}

/* Calls each(shared address, global address or NULL) for every element of a box. */
template <class F> static void each_of_box(const tensor_map *m, uint32_t at, int x, int y, int z, const F &each)
{
    const int bytes = element_bytes(m), length = (int)m->box[0] * bytes;
    if (at % 1024 || (int64_t)x * bytes % 16 || length < 64 || length != 16 << m->swizzle)
        die("a box that is not 128 or 64 bytes wide as its swizzle, not at a multiple of 1024, or begins off 16 bytes");
    for (int row = 0; row < (int)m->box[1]; row++)
        for (int column = 0; column < (int)m->box[0]; column++) {
            int64_t gx = x + column, gy = y + row;
            bool in = gx >= 0 && gy >= 0 && z >= 0 && gx < (int64_t)m->dims[0] && gy < (int64_t)m->dims[1] &&
                      z < (int64_t)m->dims[2];
            char *global = (char *)m->data + gx * bytes + gy * (int64_t)m->strides[0] + z * (int64_t)m->strides[1];
            each(swizzled((at & 0xffffff) + (uint32_t)(row * length + column * bytes), length), in ? global : NULL);
        }
}

void emu_tensor_load(uint32_t to, const void *map, uint32_t barrier, int x, int y, int z, int mask)
{
    const tensor_map *m = (const tensor_map *)map;
    size_t bytes = (size_t)element_bytes(m);
    barrier_at(barrier);
    for (int rank = 0; rank < RANKS; rank++) {
        if (mask ? !(mask >> rank & 1) : rank != me().rank)
            continue;
        delivery d = {rank, barrier & 0xffffff, {}, (int64_t)(m->box[0] * m->box[1] * bytes)};
        each_of_box(m, to, x, y, z, [&](uint32_t at, const char *from) {
            if (from)
                emu_need_global(from, bytes);
            std::string element = from ? std::string(from, bytes) : std::string(bytes, '\0');
            if (m->type == TFLOAT32) {
                float f;
                memcpy(&f, element.data(), 4);
                uint32_t u = emu_to_tf32(f);
                element.assign((const char *)&u, 4);
            }
            d.parts.push_back({at, element});
        });
        on_their_way.push_back(std::move(d));
    }
}

void emu_tensor_store(const void *map, uint32_t from, int x, int y, int z)
{
    const tensor_map *m = (const tensor_map *)map;
    if (m->dims[0] * (uint64_t)element_bytes(m) % 16) /* as an H200 does: zeros follow a row's end */
        die("a tensor store whose rows do not end at a multiple of 16 bytes: what follows would be overwritten");
    me().stores.open.push_back({map, from, x, y, z});
}

void emu_store_commit()
{
    me().stores.commit();
}

void emu_store_wait(int n)
{
    me().stores.finish(n, [](const stored &s) {
        const tensor_map *m = (const tensor_map *)s.map;
        each_of_box(m, s.from, s.x, s.y, s.z, [&](uint32_t at, char *to) {
            if (to)
                memcpy(to, arena[me().rank] + at, (size_t)element_bytes(m));
        });
    });
}

/* ---------------------------------------------------------------- copies of a thread */

void emu_copy(uint32_t to, const void *from, int size, int bytes)
{
    emu_need_aligned(to | (uintptr_t)from, (unsigned)size);
    if (bytes < 0 || bytes > size)
        die("cp.async of more than it may copy");
    if (bytes)
        emu_need_global(from, (size_t)bytes);
    me().copies.open.push_back({to, from, size, bytes});
}

void emu_copy_commit()
{
    me().copies.commit();
}

void emu_copy_wait(int n)
{
    me().copies.finish(n, [](const copied &c) {
        memset(emu_at(c.to), 0, (size_t)c.size);
        memcpy(emu_at(c.to), c.from, (size_t)c.bytes);
    });
}

/* ---------------------------------------------------------------- products of a warpgroup */

void emu_wgmma_start(const emu_wgmma &what)
{
    me().products.open.push_back(what);
}

void emu_wgmma_commit()
{
    me().products.commit();
}

/* c + the sum of 32 fp8 products as Hopper has it (docs/NUMERICS.md): addends are cut off 13 bits below the largest
 * exponent, and so is the sum. a_least, b_least: exponents of the types' subnormals. */
static float short_sum(const double *a, const double *b, double c, int a_least, int b_least)
{
    int top = c != 0 ? ilogb(c) : INT_MIN;
    double plain = c;
    for (int k = 0; k < 32; k++) {
        plain += a[k] * b[k];
        if (a[k] * b[k] != 0)
            top = std::max(top, std::max(ilogb(a[k]), a_least) + std::max(ilogb(b[k]), b_least));
    }
    if (top == INT_MIN || !std::isfinite(plain))
        return (float)plain;
    double grain = ldexp(1, top - 13), sum = trunc(c / grain);
    for (int k = 0; k < 32; k++)
        sum += trunc(a[k] * b[k] / grain);
    sum *= grain;
    grain = sum != 0 ? ldexp(1, ilogb(sum) - 13) : 1;
    return (float)(trunc(sum / grain) * grain);
}

/* This thread's two rows, two of each 8 columns. Modifiers end with whether a and b have rows along memory, by 64. */
static void multiply(const emu_wgmma &w)
{
    bool bf16 = strstr(w.types, "bf16"), f16 = !bf16 && strstr(w.types, "f16"), i8 = strstr(w.types, "s8");
    bool fp8 = strstr(w.types, ".e"), a_e4m3 = strstr(w.types, "f32.e4m3"), b_e4m3 = fp8 && w.types[10] == '4';
    int bytes = i8 || fp8 ? 1 : bf16 || f16 ? 2 : 4, K = 32 / bytes, t = me().thread % 128, lane = t % 32;
    size_t length = strlen(w.modifiers);
    bool turns = length >= 12, at = turns && w.modifiers[8] == '1', bt = turns && w.modifiers[length - 1] == '1';
    auto element = [&](uint64_t tile, bool turned, int row, int k) -> double {
        uint32_t start = (uint32_t)(tile & 0x3fff) << 4, panel = (uint32_t)(tile >> 16 & 0x3fff) << 4, code = 0;
        uint32_t from = turned ? start + (uint32_t)(row / 64) * panel + (uint32_t)(k * 128 + row % 64 * 2)
                               : start + (uint32_t)(row * 128 + k * bytes);
        memcpy(&code, arena[me().rank] + swizzled(from), (size_t)bytes);
        if (fp8)
            return (tile == w.a ? a_e4m3 : b_e4m3) ? emu_of_e4m3(code) : emu_of_e5m2(code);
        return i8 ? (int8_t)code : bf16 ? emu_of_bf16(code) : f16 ? emu_of_f16(code) : __uint_as_float(code);
    };
    auto left = [&](int h, int k) -> double {
        uint32_t word = w.left[k % 8 / 2 * 4 + k / 8 * 2 + h], code = k % 2 ? word >> 16 : word & 0xffff;
        return bf16 ? emu_of_bf16(code) : emu_of_f16(code);
    };
    double a[2][32];
    for (int h = 0; h < 2; h++)
        for (int k = 0; k < K; k++)
            a[h][k] = w.a == EMU_IN_REGISTERS ? left(h, k) : element(w.a, at, t / 32 * 16 + lane / 4 + 8 * h, k);
    for (int n = 0; n < w.columns / 4; n++) {
        double b[32];
        for (int k = 0; k < K; k++)
            b[k] = element(w.b, bt, n / 2 * 8 + lane % 4 * 2 + n % 2, k);
        for (int h = 0; h < 2; h++) {
            double sum = 0;
            int to = n / 2 * 4 + h * 2 + n % 2;
            for (int k = 0; k < K; k++)
                sum += a[h][k] * b[k];
            if (fp8)
                ((float *)w.d)[to] =
                    short_sum(a[h], b, w.keep ? ((float *)w.d)[to] : 0, a_e4m3 ? -6 : -14, b_e4m3 ? -6 : -14);
            else if (i8)
                ((uint32_t *)w.d)[to] = (w.keep ? ((uint32_t *)w.d)[to] : 0) + (uint32_t)(int64_t)sum;
            else
                ((float *)w.d)[to] = (float)(sum + (w.keep ? ((float *)w.d)[to] : 0));
        }
    }
}

/* A product is all four warps': who has waited for it may give away what the others have read, too. */
void emu_wgmma_wait(int n)
{
    meeting &all = warpgroup[me().rank][me().thread / 128];
    meet(all, 128);
    me().products.finish(n, multiply);
    meet(all, 128);
}

/* ---------------------------------------------------------------- launches */

static void run_thread()
{
    kernel(job);
    if (!me().stores.empty() || !me().products.empty())
        die("a thread leaves while its stores or products are on their way");
    me().done = true;
    live[me().rank]--;
    progress++;
    yield();
}

static void start_cluster(unsigned first)
{
    size_t n = n_threads * n_blocks;
    while (stacks.size() < n)
        stacks.push_back((char *)malloc(STACK));
    fibers.assign(n, fiber());
    memset(warpgroup, 0, sizeof warpgroup);
    cluster = {};
    for (unsigned r = 0; r < n_blocks; r++) {
        memset(arena[r], 0xff, DYNAMIC);
        named[r].assign(NAMED, {});
        barriers[r].clear();
        live[r] = (int)n_threads;
    }
    for (size_t i = 0; i < n; i++) {
        char *end = (char *)(((uintptr_t)stacks[i] + STACK - 64) & ~(uintptr_t)15), *at = end - SAVED;
        void (*entry)() = run_thread;
        memset(at, 0, SAVED);
        memcpy(at + ENTRY, (void *)&entry, sizeof entry);
        fibers[i].stack_at = at;
        fibers[i].thread = (int)(i % n_threads);
        fibers[i].rank = (int)(i / n_threads);
        fibers[i].block = first + (unsigned)(i / n_threads);
    }
}

/* One turn for every thread that is not done; how many there are. */
static size_t take_turns()
{
    size_t left = 0;
    for (size_t i = 0; i < fibers.size(); i++) {
        if (fibers[i].done)
            continue;
        left++;
        current = (int)i;
        threadIdx = {(unsigned)fibers[i].thread, 0, 0};
        blockIdx = {fibers[i].block, 0, 0};
        emu_switch(&scheduler, fibers[i].stack_at);
    }
    return left;
}

/* Called by the fake driver. Not 0: there is no such kernel, or it asks for too much. */
extern "C" int emu_launch(const char *name, const void *parameter, unsigned grid, unsigned block, unsigned cluster_size,
                          unsigned shared)
{
    static void *const self = dlopen("libcuda.so.1", RTLD_NOW);
    kernel = (void (*)(const void *))dlsym(self, name);
    kernel_name = name;
    job = parameter;
    n_threads = block;
    n_blocks = cluster_size ? cluster_size : 1;
    blockDim = {block, 1, 1};
    gridDim = {grid, 1, 1};
    if (!kernel || n_blocks > RANKS || shared > DYNAMIC || block % 32 || block > 32 * WARPS) {
        fprintf(stderr, "emulator: %s cannot be run\n", name);
        return 1;
    }
    for (unsigned first = 0; first < grid; first += n_blocks) {
        start_cluster(first);
        int idle = 0;
        for (;;) {
            uint64_t before = progress;
            size_t left = take_turns();
            deliver_some();
            if (!left)
                break;
            idle = progress == before ? idle + 1 : 0;
            if (idle > PATIENCE)
                die("nobody can go on");
        }
        if (!on_their_way.empty())
            die("the block leaves while bytes are on their way");
    }
    return 0;
}
