/* gemm_stages.cuh - what Hopper's product kernels share: a ring of stages that the copy engine fills, and the two
 * warpgroups that multiply what is in them. SPDX-License-Identifier: Apache-2.0
 *
 * A stage has 128 bytes of k: BM rows of the first operand in panels of 64, of which every second one is a warpgroup's,
 * and behind them BN of the second operand, which both multiply by. AT, BT: the operand's other dimension runs along
 * memory, not k. Where the first operand is i4 or i8 codes (gemm_code_stages.cuh), a stage has 128 k's: their codes,
 * and two boxes of 64 k's of the second operand beside each other. */
#ifndef SKR_GEMM_STAGES_CUH
#define SKR_GEMM_STAGES_CUH

#include "../../cuda/sm90.cuh"
#include "../../cuda/wgmma.cuh"

/* The matrix instruction for operands of types A and B, BN columns. */
template <int A, int B, int BN, bool AT, bool BT> struct gemm_mma;
#define SKR_GEMM_MMA(A, B, BN, AT, BT, S, c, shape, types, modifiers)                                                  \
    template <> struct gemm_mma<A, B, BN, AT, BT> {                                                                    \
        typedef S sum;                                                                                                 \
        SKR_WGMMA(run, BN, S, c, shape, types, modifiers)                                                              \
    };
#define SKR_GEMM_HALF(T, types)                                                                                        \
    SKR_GEMM_MMA(T, T, 16, 0, 0, float, "+f", "m64n16k16", types, ", 1, 1, 0, 0")                                      \
    SKR_GEMM_MMA(T, T, 16, 1, 0, float, "+f", "m64n16k16", types, ", 1, 1, 1, 0")                                      \
    SKR_GEMM_MMA(T, T, 64, 1, 0, float, "+f", "m64n64k16", types, ", 1, 1, 1, 0")                                      \
    SKR_GEMM_MMA(T, T, 64, 0, 0, float, "+f", "m64n64k16", types, ", 1, 1, 0, 0")                                      \
    SKR_GEMM_MMA(T, T, 128, 0, 0, float, "+f", "m64n128k16", types, ", 1, 1, 0, 0")                                    \
    SKR_GEMM_MMA(T, T, 128, 0, 1, float, "+f", "m64n128k16", types, ", 1, 1, 0, 1")                                    \
    SKR_GEMM_MMA(T, T, 128, 1, 0, float, "+f", "m64n128k16", types, ", 1, 1, 1, 0")                                    \
    SKR_GEMM_MMA(T, T, 128, 1, 1, float, "+f", "m64n128k16", types, ", 1, 1, 1, 1")                                    \
    SKR_GEMM_MMA(T, T, 144, 0, 0, float, "+f", "m64n144k16", types, ", 1, 1, 0, 0")                                    \
    SKR_GEMM_MMA(T, T, 160, 0, 0, float, "+f", "m64n160k16", types, ", 1, 1, 0, 0")                                    \
    SKR_GEMM_MMA(T, T, 192, 0, 0, float, "+f", "m64n192k16", types, ", 1, 1, 0, 0")                                    \
    SKR_GEMM_MMA(T, T, 192, 0, 1, float, "+f", "m64n192k16", types, ", 1, 1, 0, 1")                                    \
    SKR_GEMM_MMA(T, T, 192, 1, 0, float, "+f", "m64n192k16", types, ", 1, 1, 1, 0")                                    \
    SKR_GEMM_MMA(T, T, 192, 1, 1, float, "+f", "m64n192k16", types, ", 1, 1, 1, 1")                                    \
    SKR_GEMM_MMA(T, T, 224, 0, 0, float, "+f", "m64n224k16", types, ", 1, 1, 0, 0")                                    \
    SKR_GEMM_MMA(T, T, 256, 0, 0, float, "+f", "m64n256k16", types, ", 1, 1, 0, 0")                                    \
    SKR_GEMM_MMA(T, T, 256, 0, 1, float, "+f", "m64n256k16", types, ", 1, 1, 0, 1")                                    \
    SKR_GEMM_MMA(T, T, 256, 1, 0, float, "+f", "m64n256k16", types, ", 1, 1, 1, 0")                                    \
    SKR_GEMM_MMA(T, T, 256, 1, 1, float, "+f", "m64n256k16", types, ", 1, 1, 1, 1")
SKR_GEMM_HALF(SKR_BF16, "f32.bf16.bf16")
SKR_GEMM_HALF(SKR_F16, "f32.f16.f16")
SKR_GEMM_MMA(SKR_F32, SKR_F32, 64, 0, 0, float, "+f", "m64n64k8", "f32.tf32.tf32", ", 1, 1")
SKR_GEMM_MMA(SKR_F32, SKR_F32, 128, 0, 0, float, "+f", "m64n128k8", "f32.tf32.tf32", ", 1, 1")
SKR_GEMM_MMA(SKR_F32, SKR_F32, 192, 0, 0, float, "+f", "m64n192k8", "f32.tf32.tf32", ", 1, 1")
SKR_GEMM_MMA(SKR_F32, SKR_F32, 256, 0, 0, float, "+f", "m64n256k8", "f32.tf32.tf32", ", 1, 1")
SKR_GEMM_MMA(SKR_I8, SKR_I8, 128, 0, 0, int32_t, "+r", "m64n128k32", "s32.s8.s8", "")
SKR_GEMM_MMA(SKR_I8, SKR_I8, 192, 0, 0, int32_t, "+r", "m64n192k32", "s32.s8.s8", "")
SKR_GEMM_MMA(SKR_I8, SKR_I8, 256, 0, 0, int32_t, "+r", "m64n256k32", "s32.s8.s8", "")
#define SKR_GEMM_FP8(A, B, types)                                                                                      \
    SKR_GEMM_MMA(A, B, 64, 0, 0, float, "+f", "m64n64k32", types, ", 1, 1")                                            \
    SKR_GEMM_MMA(A, B, 128, 0, 0, float, "+f", "m64n128k32", types, ", 1, 1")                                          \
    SKR_GEMM_MMA(A, B, 256, 0, 0, float, "+f", "m64n256k32", types, ", 1, 1")
SKR_GEMM_FP8(SKR_E4M3, SKR_E4M3, "f32.e4m3.e4m3")
SKR_GEMM_MMA(SKR_E4M3, SKR_E4M3, 16, 0, 0, float, "+f", "m64n16k32", "f32.e4m3.e4m3", ", 1, 1")
SKR_GEMM_MMA(SKR_E4M3, SKR_E4M3, 96, 0, 0, float, "+f", "m64n96k32", "f32.e4m3.e4m3", ", 1, 1")
SKR_GEMM_MMA(SKR_E4M3, SKR_E4M3, 144, 0, 0, float, "+f", "m64n144k32", "f32.e4m3.e4m3", ", 1, 1")
SKR_GEMM_MMA(SKR_E4M3, SKR_E4M3, 192, 0, 0, float, "+f", "m64n192k32", "f32.e4m3.e4m3", ", 1, 1")
SKR_GEMM_FP8(SKR_E4M3, SKR_E5M2, "f32.e4m3.e5m2")
SKR_GEMM_FP8(SKR_E5M2, SKR_E4M3, "f32.e5m2.e4m3")
SKR_GEMM_FP8(SKR_E5M2, SKR_E5M2, "f32.e5m2.e5m2")

/* What all lanes of a warp have in common, in a way that the compiler sees it, too: descriptors are made in uniform
 * registers then and need not be moved there, four moves to an instruction. */
SKR_DEVICE uint32_t gemm_uniform(uint32_t x)
{
    return __shfl_sync(0xffffffff, x, 0);
}

/* ROOM: bytes for all stages. APART: a stage has room for a second operand of each warpgroup. BOXES: panels of 128
 * bytes of the second operand that a stage has beside each other; A_ROW: bytes of a row of the first one. */
template <int A, int B, int BM, int BN, bool AT, bool BT, int ROOM, bool APART = false, int BOXES = 1, int A_ROW = 128>
struct gemm_stages {
    typedef gemm_mma<A, B, BN, AT, BT> mma;
    static constexpr int PANEL = 64 * A_ROW, A_BYTES = BM * A_ROW, B_BYTES = BN * 128 * BOXES;
    static constexpr int STAGE = A_BYTES + B_BYTES * (APART ? 2 : 1), STAGES = ROOM / STAGE;

    uint32_t base, full, empty; /* stages, their barriers */
    int sharers;                /* 2: two blocks of a cluster write to each other's stages */
    bool apart;                 /* APART: the second warpgroup has a second operand of its own */

    /* By one thread, before barrier_init_done(). Short, for code comes from memory the first time. */
    __device__ __forceinline__ void init_stages() const
    {
#pragma unroll 1
        for (int s = 0; s < STAGES; s++) {
            barrier_init(full + s * 8, 1);
            barrier_init(empty + s * 8, 2 * sharers);
        }
    }

    __device__ __forceinline__ static void advance(int &stage, int &phase)
    {
        if (++stage == STAGES)
            stage = 0, phase ^= 1;
    }

    /* Where this warpgroup's second operand is in a stage. */
    __device__ __forceinline__ uint32_t second() const
    {
        return A_BYTES + (APART ? gemm_uniform(apart ? threadIdx.x / 128 * B_BYTES : 0) : 0);
    }

    /* This warpgroup has read the stage: tells every block that writes to it. One thread arrives for all 128, and
     * that orders none of their loads before the copy engine's writing. Nor need it: the products that read the stage
     * were waited for, and so were loads of shared memory (gemm_code_stages.cuh), for what a warp loads last from a
     * stage goes into registers of a product of the whole warpgroup, which was waited for, too. */
    __device__ __forceinline__ void release(int stage) const
    {
        int thread = threadIdx.x & 127;
        if (sharers > 1) {
            if (thread < 2)
                barrier_arrive_peer(empty + stage * 8, thread);
        } else if (thread == 0) {
            barrier_arrive(empty + stage * 8);
        }
    }

    /* The sums of `steps` stages, of COUNT panels of this warpgroup. arrived(at, step): a stage is there. */
    template <int COUNT, class S, int N, class F>
    __device__ __forceinline__ void multiply(S (&d)[N], int steps, int &stage, int &phase, const F &arrived) const
    {
        int last = -1;
        const uint32_t panel = gemm_uniform(threadIdx.x / 128 * PANEL), other = second();
        constexpr int A_STEP = AT ? 128 : 2, B_STEP = BT ? 128 : 2;
        for (int k = 0; k < steps; k++) {
            uint32_t at = gemm_uniform(base + stage * STAGE);
            barrier_wait(full + stage * 8, phase);
            arrived(at, k);
            uint64_t a = wgmma_tile(at + panel, AT ? PANEL : 16), b = wgmma_tile(at + other, BT ? PANEL : 16);
            pin<COUNT>(d);
            wgmma_begin();
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int c = 0; c < COUNT; c++)
                    mma::run(d[c], a + c * (2 * PANEL >> 4) + i * A_STEP, b + i * B_STEP, k > 0 || i > 0);
            wgmma_commit();
            pin<COUNT>(d);
            wgmma_wait<1>(); /* the stage before is free while this one is multiplied */
            if (last >= 0)
                release(last);
            last = stage;
            advance(stage, phase);
        }
        wgmma_wait<0>();
        pin<COUNT>(d);
        release(last);
    }

    /* The sums of `steps` stages, of one panel, which leave the tensor cores after each. Two stages at a time: ptxas
     * takes no sums that are on their way over the end of a loop. */
    template <int WIDTH, class G, class F> __device__ __forceinline__ void
    multiply_apart(int steps, int &stage, int &phase, const G &begins, const F &add) const
    {
        for (int k = 0; k < steps / 2; k++)
            multiply_parts<2, WIDTH>(stage, phase, begins, add);
        if (steps % 2)
            multiply_parts<1, WIDTH>(stage, phase, begins, add);
    }

    /* STEPS stages in parts of WIDTH columns: while one is made, add(step, c, part) adds the one before, from c on.
     * begins(step): the ones before it are added. */
    template <int STEPS, int WIDTH, class G, class F>
    __device__ __forceinline__ void multiply_parts(int &stage, int &phase, const G &begins, const F &add) const
    {
        constexpr int EACH = BN / WIDTH, ALL = STEPS * EACH; /* parts: of a stage, of all */
        float part[2][WIDTH / 2];
        uint64_t a = 0, b = 0;
        int last = 0;
#pragma unroll
        for (int i = 0; i <= ALL; i++) {
            const bool arrives = i < ALL && i % EACH == 0;
            if (arrives) {
                uint32_t at = gemm_uniform(base + stage * STAGE);
                barrier_wait(full + stage * 8, phase);
                a = wgmma_tile(at + gemm_uniform(threadIdx.x / 128 * PANEL), 16), b = wgmma_tile(at + second(), 16);
            }
            if (i < ALL) {
                wgmma_pin(part[i % 2]);
                wgmma_begin();
#pragma unroll
                for (int k = 0; k < 4; k++)
                    gemm_mma<A, B, WIDTH, AT, BT>::run(part[i % 2], a + k * 2,
                                                       b + i % EACH * (WIDTH * 128 >> 4) + k * 2, k > 0);
                wgmma_commit();
                wgmma_pin(part[i % 2]);
            }
            if (i > 0) {
                if (i < ALL)
                    wgmma_wait<1>();
                else
                    wgmma_wait<0>();
                wgmma_pin(part[(i - 1) % 2]);
                if (i % EACH == 0)
                    release(last);
                add((i - 1) / EACH, (i - 1) % EACH * WIDTH, part[(i - 1) % 2]);
            }
            if (arrives) {
                last = stage;
                advance(stage, phase);
                begins(i / EACH);
            }
        }
    }

    /* No panel is this warpgroup's: the stages pass by. */
    template <class F> __device__ __forceinline__ void pass(int steps, int &stage, int &phase, const F &arrived) const
    {
        for (int k = 0; k < steps; k++) {
            barrier_wait(full + stage * 8, phase);
            arrived(base + stage * STAGE, k);
            warpgroup_sync();
            release(stage);
            advance(stage, phase);
        }
    }

    template <int COUNT, class D> __device__ __forceinline__ static void pin(D &d)
    {
#pragma unroll
        for (int c = 0; c < COUNT; c++)
            wgmma_pin(d[c]);
    }
};

/* Where stages begin. */
SKR_DEVICE uint32_t gemm_stages_at()
{
    extern __shared__ __align__(16) unsigned char dynamic[];
    return (shared_address(dynamic) + 1023) & ~1023u;
}

/* The two warpgroups that multiply meet, at the barrier that warpgroup_sync() has for the first: one kernel takes one
 * of them. */
SKR_DEVICE void consumers_sync()
{
    asm volatile("bar.sync %0, %1;" ::"r"(1), "n"(256) : "memory");
}

/* A kernel: two warpgroups multiply, the threads behind them feed them. */
template <class G> SKR_DEVICE void gemm_roles(const G &g)
{
    g.start();
    wait_for_previous();
    let_next_start();
    if (threadIdx.x >= 256)
        g.produce();
    else
        g.consume();
}

#endif
