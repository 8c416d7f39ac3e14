/* sm90.cuh - what needs a Hopper GPU: clusters, distributed shared memory, transaction barriers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Only files compiled for sm_90 alone include this. */
#ifndef SKR_CUDA_SM90_CUH
#define SKR_CUDA_SM90_CUH

#include "owner.cuh"

SKR_DEVICE uint32_t cluster_rank()
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

SKR_DEVICE uint32_t cluster_size()
{
    uint32_t r;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(r));
    return r;
}

/* Split so that the wait can hide behind other work: nothing may be sent to a peer before the wait. The arrival orders
 * no memory (a release would wait for all of this thread's stores); what the peers must see is fenced on its own:
 * barrier_init_done(). */
SKR_DEVICE void cluster_arrive()
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

SKR_DEVICE void cluster_wait()
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* Address in the shared memory of another block of the cluster. */
SKR_DEVICE uint32_t peer_address(uint32_t shared, uint32_t rank)
{
    uint32_t r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(shared), "r"(rank));
    return r;
}

SKR_DEVICE void barrier_init(uint32_t barrier, uint32_t arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* Makes initialised barriers visible to the cluster; cluster_arrive() follows. */
SKR_DEVICE void barrier_init_done()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

SKR_DEVICE void barrier_expect(uint32_t barrier, uint32_t bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

/* Bytes that peers sent are visible after this. (Acquire at cluster scope would also throw away this SM's L1, and the
 * weights in it.) */
SKR_DEVICE void barrier_wait(uint32_t barrier, uint32_t parity)
{
    asm volatile("{\n"
                 ".reg .pred done;\n"
                 "again:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again;\n"
                 "}" ::"r"(barrier),
                 "r"(parity)
                 : "memory");
}

/* Stores into a peer and counts the bytes on the peer's barrier. */
SKR_DEVICE void send4(uint32_t peer, float f, uint32_t peer_barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(peer),
                 "r"(__float_as_uint(f)), "r"(peer_barrier)
                 : "memory");
}

SKR_DEVICE void send8(uint32_t peer, float f, float g, uint32_t peer_barrier)
{
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.u32 [%0], {%1, %2}, [%3];" ::"r"(peer),
                 "r"(__float_as_uint(f)), "r"(__float_as_uint(g)), "r"(peer_barrier)
                 : "memory");
}

SKR_DEVICE void send16(uint32_t peer, float a, float b, float c, float d, uint32_t peer_barrier)
{
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(peer),
        "f"(a), "f"(b), "f"(c), "f"(d), "r"(peer_barrier)
        : "memory");
}

/* The 128 threads of a warpgroup meet; the first two warpgroups of a block have barriers 1 and 2. */
SKR_DEVICE void warpgroup_sync()
{
    asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / 128) : "memory");
}

/* The copy engine moves contiguous bytes to shared memory (addresses and size multiples of 16) and counts them on the
 * barrier as they arrive; barrier_expect() announced them. */
SKR_DEVICE void bulk_load(uint32_t to, const void *from, uint32_t bytes, uint32_t barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* Contiguous bytes (address and size multiples of 16) come to L2. */
SKR_DEVICE void bulk_prefetch(const void *from, uint32_t bytes)
{
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

SKR_DEVICE void barrier_arrive(uint32_t barrier)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

/* An arrival on the barrier of another block (or of this one) of the cluster. It orders no memory: enough where what
 * the copy engine will overwrite was read by the tensor cores, or loaded to registers of products that were waited for
 * (release() in gemm_stages.cuh); a release costs a fifth of a whole gemm. */
SKR_DEVICE void barrier_arrive_peer(uint32_t barrier, uint32_t rank)
{
    asm volatile("mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%0];" ::"r"(peer_address(barrier, rank))
                 : "memory");
}

/* ---------------------------------------------------------------- boxes of matrices: tensor maps */

/* x counts columns, y rows, z matrices. */
SKR_DEVICE void tensor_load(uint32_t to, const skr_tensor_map *map, uint32_t barrier, int x, int y, int z)
{
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], "
        "[%2];" ::"r"(to),
        "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
        : "memory");
}

/* The same for what is read once: L2 keeps it for the shortest time, and what others left there for longer. */
SKR_DEVICE void tensor_load_once(uint32_t to, const skr_tensor_map *map, uint32_t barrier, int x, int y, int z)
{
    asm volatile("{\n"
                 ".reg .b64 first;\n"
                 "createpolicy.fractional.L2::evict_first.b64 first, 1.0;\n"
                 "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
                 "[%1, {%3, %4, %5}], [%2], first;\n"
                 "}" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* L2 is asked for a box. */
SKR_DEVICE void tensor_ask(const skr_tensor_map *map, int x, int y, int z)
{
    asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];" ::"l"(map), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

/* The map itself is on its way before the first box is asked for. */
SKR_DEVICE void tensor_prefetch(const skr_tensor_map *map)
{
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

/* To the same place in every block of the cluster whose bit is set. */
SKR_DEVICE void tensor_load_each(uint32_t to, const skr_tensor_map *map, uint32_t barrier, int x, int y, int z,
                                 uint16_t mask)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], "
                 "[%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
                 "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(mask)
                 : "memory");
}

SKR_DEVICE void tensor_store(const skr_tensor_map *map, uint32_t from, int x, int y, int z)
{
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
                 "r"(from), "r"(x), "r"(y), "r"(z)
                 : "memory");
}

SKR_DEVICE void bulk_store_commit()
{
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

template <int N> SKR_DEVICE void bulk_store_wait()
{
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}

/* Shared memory may be written again; the stores may still be on their way. */
template <int N> SKR_DEVICE void bulk_store_wait_read()
{
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

/* What this thread wrote to shared memory is there for the copy engine; then a barrier. */
SKR_DEVICE void fence_async()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Four 8 x 8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8. */
SKR_DEVICE void store_matrices(uint32_t to, const uint32_t (&v)[4])
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(v[0]), "r"(v[1]),
                 "r"(v[2]), "r"(v[3])
                 : "memory");
}

/* Registers of each thread of the warpgroup from here on. */
template <int N> SKR_DEVICE void registers_up()
{
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}

template <int N> SKR_DEVICE void registers_down()
{
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}

/* A row that belongs to a cluster of blocks (block_owner in device.cuh has the interface). Every warp sends its partial
 * straight into every block of the cluster: lane p to block p, one instruction. A block's barrier counts the bytes that
 * come in. Two areas alternate, and that is enough: a block sends partial i + 2 only after it has received all of i +
 * 1, and a warp sends i + 1 only after it has read all of i. A block leaves when it has read its last partials, so
 * nobody sends to a block that is gone. Clusters of two or more only: in a launch without a cluster the sending
 * instruction itself is illegal. */
template <int THREADS> struct cluster_owner {
    static constexpr int lanes = THREADS, threads = THREADS, groups = 1, warps = THREADS / 32, most = 16;
    struct shared {
        __align__(16) float partial[2][2 * most * warps];
        uint64_t barrier[2];
    };
    shared &memory;
    uint32_t turn; /* bit 0: area; bit 1: parity */
    uint32_t my_rank, my_size;

    __device__ __forceinline__ cluster_owner(shared &m)
        : memory(m), turn(3), my_rank(cluster_rank()), my_size(cluster_size())
    {
    }

    __device__ __forceinline__ void start()
    {
        if (threadIdx.x == 0) {
            barrier_init(shared_address(&memory.barrier[0]), 1);
            barrier_init(shared_address(&memory.barrier[1]), 1);
            barrier_init_done();
        }
        cluster_arrive();
    }
    /* Before the first reduction: the peers' barriers are there. */
    __device__ __forceinline__ void ready()
    {
        cluster_wait();
    }
    __device__ __forceinline__ int index() const
    {
        return (int)(blockIdx.x / my_size);
    }
    __device__ __forceinline__ int count() const
    {
        return (int)(gridDim.x / my_size);
    }
    __device__ __forceinline__ int rank() const
    {
        return (int)my_rank;
    }
    __device__ __forceinline__ int size() const
    {
        return (int)my_size;
    }

    template <class Op> __device__ __forceinline__ float reduce(float f)
    {
        f = lanes_reduce<Op, 32>(f);
        next(4);
        uint32_t area = turn & 1, lane = threadIdx.x & 31, warp = threadIdx.x / 32, total = my_size * warps;
        if (lane < my_size)
            send4(peer_address(shared_address(&memory.partial[area][my_rank * warps + warp]), lane), f,
                  peer_address(shared_address(&memory.barrier[area]), lane));
        barrier_wait(shared_address(&memory.barrier[area]), turn >> 1);
        f = lane < total ? memory.partial[area][lane] : 0.0f; /* 0 is neutral: sums, and maxima of sizes */
        for (uint32_t k = lane + 32; k < total; k += 32)
            f = Op::join(f, memory.partial[area][k]);
        return lanes_reduce<Op, 32>(f);
    }

    template <class A, class B> __device__ __forceinline__ void reduce2(float &a, float &b)
    {
        float mine = warp_reduce2<A, B>(a, b);
        next(8);
        uint32_t area = turn & 1, lane = threadIdx.x & 31, warp = threadIdx.x / 32, total = my_size * warps;
        uint32_t to = lane & 15, which = lane / 16;
        if (to < my_size)
            send4(peer_address(shared_address(&memory.partial[area][2 * (my_rank * warps + warp) + which]), to), mine,
                  peer_address(shared_address(&memory.barrier[area]), to));
        barrier_wait(shared_address(&memory.barrier[area]), turn >> 1);
        const float2 *pair = (const float2 *)memory.partial[area];
        float2 s = lane < total ? pair[lane] : make_float2(0.0f, 0.0f);
        for (uint32_t k = lane + 32; k < total; k += 32)
            s.x = A::join(s.x, pair[k].x), s.y = B::join(s.y, pair[k].y);
        a = lanes_reduce<A, 32>(s.x), b = lanes_reduce<B, 32>(s.y);
    }

    template <class Pair> __device__ __forceinline__ void join(const Pair &pair, float &a, float &b)
    {
        next(8);
        uint32_t area = turn & 1, lane = threadIdx.x & 31, warp = threadIdx.x / 32, total = my_size * warps;
        if (lane < my_size)
            send8(peer_address(shared_address(&memory.partial[area][2 * (my_rank * warps + warp)]), lane), a, b,
                  peer_address(shared_address(&memory.barrier[area]), lane));
        barrier_wait(shared_address(&memory.barrier[area]), turn >> 1);
        const float2 *all = (const float2 *)memory.partial[area];
        float2 s = lane < total ? all[lane] : make_float2(Pair::none, 0.0f);
        for (uint32_t k = lane + 32; k < total; k += 32)
            pair.join(s.x, s.y, all[k].x, all[k].y);
        pair.template lanes<32>(s.x, s.y);
        a = s.x, b = s.y;
    }

  private:
    /* The next exchange: area and parity go 0/0, 1/0, 0/1, 1/1, 0/0 ... */
    __device__ __forceinline__ void next(uint32_t bytes)
    {
        turn = (turn + 1) & 3;
        if (threadIdx.x == 0)
            barrier_expect(shared_address(&memory.barrier[turn & 1]), bytes * my_size * warps);
    }
};

#endif
