/* gemm_tma_out.cuh - the ways out of the Hopper kernels: a warpgroup's 64 x BN sums, straight from its registers.
 * SPDX-License-Identifier: Apache-2.0
 *
 *   slot    to the workspace, for gemm_finish.cuh to add up and to do the rest
 *   exact   d of i32
 *   panels  d of 16 bits without a function, with c of the operands' type; in tiles of 256 columns also with GELU, or
 *           SiLU's gates; tiles whose width is not a multiple of 64 have no way out but this with one factor
 *   full    every activation, gates in halves, c, d of f32: 32 results of a thread at a time, so that the code of the
 *           functions is there once
 *
 * A thread reads scales and bias of two columns, before the sums are made where there are registers for them, and finds
 * the others in shared memory. They are applied to all sums first or, where the code is to be short (LEAN), by `full`.
 *
 * d of 16 bits goes through shared memory to the copy engine, in panels of 64 columns; larger elements are stored as
 * they lie, whole sectors for a warp. A thread has rows lane / 4 and 8 below of its warp's 16, columns 8 j + 2 (lane %
 * 4) and the next. */
#ifndef SKR_GEMM_TMA_OUT_CUH
#define SKR_GEMM_TMA_OUT_CUH

#include "../../cuda/sm90.cuh"
#include "gemm_epilogue.cuh"
#include "gemm_work.cuh"

/* C: the type of halves that a product without other options adds as it is written (SKR_F32: none), all else of c goes
 * through `full`; -1: c is left to gemm_finish.cuh (with scales along k there are no registers for it). */
template <class S, int BN, int C, bool GROUPS = false> struct gemm_tma_out {
    static constexpr int PANEL = 64 * 128; /* 64 rows of 128 bytes */
    static constexpr int BYTES = 2 * PANEL;
    static constexpr int PARTS = BN / 64; /* of `full`: 64 columns of b each */
    static constexpr bool ONLY_PLAIN = BN % 64 != 0;
    static constexpr bool INTS = S(0.5) == S(0);
    /* `full` adjusts sums, a part at a time. Small tiles are often a block's only ones, so that all of the code comes
     * from memory; and with groups' sums adjusted in place matrix instructions would wait for each other. Integers have
     * to become floats first. */
    static constexpr bool LEAN = !INTS && (GROUPS || BN <= 128);

    const skr_gemm_job &job;
    uint32_t staging; /* BYTES of this warpgroup, for d */

    __device__ __forceinline__ static bool elected()
    {
        return (threadIdx.x & 127) == 0;
    }

    /* Before the block leaves: d is written. */
    __device__ __forceinline__ void done() const
    {
        if (job.work.store && elected())
            bulk_store_wait<0>();
    }

    /* What sums are multiplied by and what is added: of a thread's two rows, and of columns 2 t and 2 t + 1 of the tile
     * for thread t of the warpgroup. */
    struct options {
        float factor[2], more[2], scale[2];
        uint32_t bias[2]; /* as it lies in memory */
    };

    /* w: col, z and slot of a gemm_work. d's place is that of the results: with a second array the compiler spills. Of
     * integers every sum is read before its place is written. */
    template <class W>
    __device__ __forceinline__ void write(S (&d)[BN / 2], int row, const W &w, const options &o) const
    {
        if constexpr (ONLY_PLAIN) {
            panels<SKR_ACT_NONE, BN>(d, gemm_one_factor(job), row, w.col, w.z);
        } else if (w.slot >= 0) {
            slot(d, row, w.slot);
        } else if (INTS && job.exact) {
            exact(d, row, w.col, w.z);
        } else if (job.work.plain == SKR_GEMM_ONE_FACTOR) {
            panels<SKR_ACT_NONE, BN>(d, gemm_one_factor(job), row, w.col, w.z);
        } else if (C > SKR_F32 && job.work.plain == SKR_GEMM_FACTOR_AND_C) {
            panels<SKR_ACT_NONE, BN, true>(d, gemm_one_factor(job), row, w.col, w.z);
        } else {
            float(&x)[BN / 2] = reinterpret_cast<float(&)[BN / 2]>(d);
            const bool adjusted = !LEAN || (!GROUPS && job.work.plain);
            share(o);
            if (adjusted)
                adjust<BN / 2>(o, 0, d, x);
            if (adjusted && !job.act && !job.gated && !has_c() && job.work.store)
                panels<SKR_ACT_NONE, BN>(x, 1.0f, row, w.col, w.z);
            else if (job.gated && !usual_gates(x, row, w.col, w.z))
                full<true>(x, o, row, w.col, w.z);
            else if (!job.gated && (has_c() || !usual_function(x, row, w.col, w.z)))
                full<false>(x, o, row, w.col, w.z);
        }
    }

    /* The functions that products are asked for most have code for all sums of a thread: a third of the instructions of
     * `full` is about which sums are next. False: it is another one. */
    __device__ __forceinline__ bool usual_function(const float (&x)[BN / 2], int row, int col, int z) const
    {
        if constexpr (BN == 256)
            if (job.act == SKR_ACT_GELU && job.work.store) {
                panels<SKR_ACT_GELU, BN>(x, 1.0f, row, col, z);
                return true;
            }
        return false;
    }

    __device__ __forceinline__ bool usual_gates(float (&x)[BN / 2], int row, int col, int z) const
    {
        if constexpr (BN == 256)
            if (job.act == SKR_ACT_SILU && job.work.store && multiply_gates(x)) {
                panels<SKR_ACT_NONE, BN / 2>(x, 1.0f, row, col / 2, z);
                return true;
            }
        return false;
    }

    /* SiLU of the gates times what they multiply; false: a gate is too large for the short formula (forward_all() asks
     * the same, of fewer). */
    __device__ __forceinline__ bool multiply_gates(float (&x)[BN / 2]) const
    {
        float top = 0.0f;
#pragma unroll
        for (int i = 0; i < BN / 4; i++)
            top = fmaxf(top, fabsf(x[i]));
        if (any_of_warpgroup(top > near_limit(SKR_ACT_SILU, 0.0f)))
            return false;
#pragma unroll
        for (int i = 0; i < BN / 4; i++)
            x[i] = forward_of<SKR_ACT_SILU, true, true>(x[i], x[BN / 4 + i], 0.0f, 0.0f);
        return true;
    }

    /* By way of the staging, behind bias and scales. Once, between share() and the first panel: their barriers keep the
     * votes from what comes before and after. */
    __device__ __forceinline__ bool any_of_warpgroup(bool x) const
    {
        const uint32_t votes = shared_options() + 2 * SCALES;
        x = __any_sync(0xffffffff, x);
        if ((threadIdx.x & 31) == 0)
            shared_store4(votes + (threadIdx.x / 32 & 3) * 4, x);
        warpgroup_sync();
        const uint4 v = shared_load16(votes);
        return v.x || v.y || v.z || v.w;
    }

    /* ---------------------------------------------------------------- to the workspace */

    __device__ __forceinline__ void slot(const S (&d)[BN / 2], int row, int number) const
    {
        int thread = threadIdx.x & 127;
        if (row + thread / 32 * 16 + thread % 32 / 4 >= job.m)
            return;
        char *to = gemm_slot(job, number, (int)threadIdx.x / 128) + thread * 16;
#pragma unroll
        for (int i = 0; i < BN / 8; i++)
            put4(to + i * 2048, d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]);
    }

    /* Sums are stored as what they are: a float that is reinterpreted makes the compiler keep the loop's sums as
     * integers, and copy them between its multiplications. */
    __device__ __forceinline__ static void put4(char *to, float a, float b, float c, float e)
    {
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(to), "f"(a), "f"(b), "f"(c), "f"(e) : "memory");
    }
    __device__ __forceinline__ static void put4(char *to, int32_t a, int32_t b, int32_t c, int32_t e)
    {
        asm volatile("st.global.v4.s32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(a), "r"(b), "r"(c), "r"(e) : "memory");
    }
    __device__ __forceinline__ static void put2(char *to, float a, float b)
    {
        asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(a), "f"(b) : "memory");
    }
    __device__ __forceinline__ static void put2(char *to, int32_t a, int32_t b)
    {
        asm volatile("st.global.v2.s32 [%0], {%1, %2};" ::"l"(to), "r"(a), "r"(b) : "memory");
    }

    /* ---------------------------------------------------------------- elements of 4 bytes, as they lie */

    /* Column n and the next; n is even, and rows are aligned to 16 bytes. */
    template <class V> __device__ __forceinline__ static void put_pair(char *to, int n, int width, V a, V b)
    {
        if (n + 1 < width)
            put2(to + n * 4, a, b);
        else if (n < width)
            *(V *)(to + n * 4) = a;
    }

    /* NULL: scatter leaves it out. */
    template <int SIZE> __device__ __forceinline__ char *row_of(const gemm_batch &at, int64_t m) const
    {
        if (GROUPS)
            m = gemm_d_row(job, at, m);
        return GROUPS && m < 0 ? NULL : (char *)job.d.at.data + (at.d + m * job.d.row) * SIZE;
    }

    __device__ __forceinline__ void exact(const S (&d)[BN / 2], int row, int col, int z) const
    {
        const gemm_batch at(job, z);
        int lane = threadIdx.x & 31, m = row + (threadIdx.x / 32 & 3) * 16 + lane / 4;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (m + 8 * h >= job.m)
                return;
            char *to = row_of<4>(at, m + 8 * h);
#pragma unroll
            for (int i = 0; i < BN / 8; i++)
                put_pair(to, col + i * 8 + (lane & 3) * 2, (int)job.n, d[4 * i + 2 * h], d[4 * i + 2 * h + 1]);
        }
    }

    /* ---------------------------------------------------------------- elements of 16 bits */

    __device__ __forceinline__ uint32_t pack_out(float x, float y) const
    {
        return job.d.at.type == SKR_F16 ? pack2<SKR_F16>(x, y) : pack2<SKR_BF16>(x, y);
    }

    /* 16 columns of a panel, from column 16 j on: of the first 8 and of the next, two columns of both rows each. */
    __device__ __forceinline__ void put16(uint32_t panel, int j, const float *x) const
    {
        const uint32_t v[4] = {pack_out(x[0], x[1]), pack_out(x[2], x[3]), pack_out(x[4], x[5]), pack_out(x[6], x[7])};
        int lane = threadIdx.x & 31, r = (threadIdx.x / 32 & 3) * 16 + (lane & 15), chunk = j * 2 + (lane >> 4);
        store_matrices(panel + r * 128 + ((chunk ^ (r & 7)) << 4), v);
    }

    /* Of all that was sent but the last LEFT, nothing is read any more; by all threads of the warpgroup. */
    template <int LEFT> __device__ __forceinline__ static void staging_free()
    {
        if (elected())
            bulk_store_wait_read<LEFT>();
        warpgroup_sync();
    }

    /* A staged panel, columns from n on: by all threads of the warpgroup. */
    __device__ __forceinline__ void send(uint32_t panel, int n, int row, int z) const
    {
        if (GROUPS && job.scatter.data) {
            send_rows(panel, n, row, z);
        } else if (elected()) {
            if (GROUPS && job.groups.of == SKR_GEMM_OF_ROWS) {
                const skr_gemm_group g = gemm_group_table(job)[z];
                row += job.groups.limit - (int)g.count, z = (int)(g.first + g.count); /* box_of_rows() says why */
            }
            tensor_store(&job.work.d, panel, n, row, z);
            bulk_store_commit();
        }
    }

    /* To rows that lie anywhere: 16 bytes of a row for each thread. Columns of d come in eights. */
    __device__ __forceinline__ void send_rows(uint32_t panel, int n, int row, int z) const
    {
        const gemm_batch at(job, z);
        const int c = threadIdx.x & 7, width = (int)(job.gated ? job.n / 2 : job.n);
        if (n + c * 8 >= width)
            return;
        for (int r = (threadIdx.x & 127) / 8; r < 64 && row + r < at.m; r += 16) {
            char *to = row_of<2>(at, row + r);
            if (to)
                *(uint4 *)(to + (n + c * 8) * 2) = shared_load16(panel + r * 128 + ((c ^ (r & 7)) << 4));
        }
    }

    /* ACT of WIDTH columns times a factor; ADDS: and beta * c. Panels are written one or two at a time, those that are
     * alone into the two in turn. Where the width is not a multiple of a panel's, the last one begins early and writes
     * columns of the one before again: the copy engine's box stays the same. */
    template <int ACT, int WIDTH, bool ADDS = false, class V>
    __device__ __forceinline__ void panels(const V (&x)[BN / 2], float factor, int row, int col, int z) const
    {
        static_assert(ACT == SKR_ACT_NONE || ACT == SKR_ACT_GELU, "one formula for all numbers");
        constexpr int PANELS = WIDTH % 128 ? 1 : 2, COUNT = (WIDTH + 63) / 64;
#pragma unroll
        for (int part = 0; part < COUNT; part += PANELS) {
            const int first = min(part * 64, WIDTH - PANELS * 64); /* column */
            const uint32_t to = staging + (PANELS == 1 ? part & 1 : 0) * PANEL;
            if (PANELS == 2 || part == 0)
                staging_free<0>();
            else
                staging_free<1>();
            uint32_t c[4][4]; /* of four times 16 columns */
#pragma unroll
            for (int j = 0; j < 4 * PANELS; j++) { /* 16 columns each */
                float y[8];
                if (ADDS && j % 4 == 0)
                    load_c(z, row, col + first + j * 16, c);
#pragma unroll
                for (int i = 0; i < 8; i++)
                    y[i] = act_value<ACT, true>((float)x[first / 2 + j * 8 + i] * factor, 0.0f);
                if (ADDS)
                    add_words(c[j & 3], y);
                put16(to + (j >> 2) * PANEL, j & 3, y);
            }
            fence_async();
            warpgroup_sync();
            for (int i = 0; i < PANELS; i++)
                send(to + i * PANEL, col + first + i * 64, row, z);
        }
    }

    /* ---------------------------------------------------------------- scales, bias, activation, gates */

    /* Column of b of the tile's column c. */
    __device__ __forceinline__ int64_t column(int col, int c) const
    {
        int half = (int)job.n / 2; /* what is beyond the last is not written */
        if (job.gated)
            return c < BN / 2 ? min(col / 2 + c, half - 1) : half + min(col / 2 + c - BN / 2, half - 1);
        return min(col + c, (int)job.n - 1);
    }

    __device__ __forceinline__ bool scales_columns() const
    {
        return gemm_scaled_late(job) && job.b_scale.at.data;
    }

    /* Of the rows alone. */
    __device__ __forceinline__ void read_rows(int row, int z, options &o) const
    {
        const gemm_batch at(job, z);
        const int lane = threadIdx.x & 31, bytes = skr_type_bytes(job.bias.type);
        const char *bias = (const char *)job.bias.data;
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int64_t m = min((int64_t)row + (threadIdx.x / 32 & 3) * 16 + lane / 4 + 8 * h, at.m - 1);
            o.factor[h] = gemm_row_factor(job, at, m);
            o.more[h] = bias && job.bias_rows ? any_load1(job.bias.type, bias + m * job.bias.stride * bytes) : 0.0f;
        }
    }

    /* Before the sums are made. */
    template <class W> __device__ __forceinline__ void read_options(int row, const W &w, options &o) const
    {
        if (ONLY_PLAIN || w.slot >= 0 || (INTS && job.exact))
            return;
        if (job.work.plain == SKR_GEMM_ONE_FACTOR || job.work.plain == SKR_GEMM_FACTOR_AND_C)
            return;
        read_rows(row, w.z, o);
        const gemm_batch at(job, w.z);
        const int thread = threadIdx.x & 127, bytes = skr_type_bytes(job.bias.type);
        const char *bias = (const char *)job.bias.data + (GROUPS && job.bias.data ? at.bias * bytes : 0);
#pragma unroll
        for (int i = 0; i < 2; i++) {
            int64_t n = column(w.col, min(2 * thread + i, BN - 1));
            if (scales_columns())
                o.scale[i] = gemm_column_factor(job, at, n);
            if (bias && !job.bias_rows && bytes == 4)
                o.bias[i] = *(const uint32_t *)(bias + n * job.bias.stride * 4);
            else if (bias && !job.bias_rows)
                o.bias[i] = *(const uint16_t *)(bias + n * job.bias.stride * 2);
        }
    }

    __device__ __forceinline__ float bias_value(uint32_t raw) const
    {
        float lo, hi;
        if (job.bias.type == SKR_F16)
            unpack2<SKR_F16>(raw, lo, hi);
        else if (job.bias.type == SKR_BF16)
            unpack2<SKR_BF16>(raw, lo, hi);
        else
            lo = __uint_as_float(raw);
        return lo;
    }

    /* Where bias and scales of the columns are: in the staging of d, as long as nothing is written there. Where `full`
     * adjusts the sums it has two parts, of which the second goes there. */
    static constexpr int SCALES = BN * 4; /* bytes of bias before them */
    __device__ __forceinline__ uint32_t shared_options() const
    {
        static_assert(!LEAN || PARTS <= 2, "the second part is written last");
        return staging + (LEAN ? PANEL : 0);
    }

    __device__ __forceinline__ void share(const options &o) const
    {
        const int thread = threadIdx.x & 127;
        const uint32_t to = shared_options() + thread * 8;
        staging_free<0>();
        if (thread < BN / 2) {
            float add[2] = {-0.0f, -0.0f}; /* what changes nothing, not even -0 */
            if (job.bias.data && !job.bias_rows)
                add[0] = bias_value(o.bias[0]), add[1] = bias_value(o.bias[1]);
            shared_store8(to, add[0], add[1]);
            if (scales_columns())
                shared_store8(to + SCALES, o.scale[0], o.scale[1]);
        }
        warpgroup_sync();
    }

    /* Scales and bias for COUNT sums of a thread, of which the first is that of column `first` of the tile. */
    template <int COUNT, class V>
    __device__ __forceinline__ void adjust(const options &o, int first, const V *d, float *x) const
    {
        const uint32_t mine = shared_options() + first * 4 + (threadIdx.x & 3) * 8;
        if (scales_columns()) {
#pragma unroll
            for (int j = 0; j < COUNT / 4; j++) {
                const float2 add = shared_load8f(mine + j * 32), by = shared_load8f(mine + SCALES + j * 32);
#pragma unroll
                for (int i = 4 * j; i < 4 * j + 4; i++)
                    x[i] = __fmaf_rn((float)d[i], o.factor[i / 2 & 1] * (i & 1 ? by.y : by.x), i & 1 ? add.y : add.x);
            }
        } else {
#pragma unroll
            for (int j = 0; j < COUNT / 4; j++) {
                const float2 add = shared_load8f(mine + j * 32);
#pragma unroll
                for (int i = 4 * j; i < 4 * j + 4; i++)
                    x[i] = __fmaf_rn((float)d[i], o.factor[i / 2 & 1], i & 1 ? add.y : add.x);
            }
        }
        if (job.bias.data && job.bias_rows)
#pragma unroll
            for (int i = 0; i < COUNT; i++)
                x[i] += o.more[i / 2 & 1];
    }

    /* ---------------------------------------------------------------- c */

    __device__ __forceinline__ bool has_c() const
    {
        return C >= 0 && job.c.at.data;
    }

    /* Halves of c for put16(), four times: a thread's two rows, two columns of the first 8 and of the next. */
    __device__ __forceinline__ void load_c(int z, int row, int n, uint32_t (&to)[4][4]) const
    {
        const char *c[2] = {my_c(z, row, n, 0), my_c(z, row, n, 1)};
        const int left = (int)job.n - n - (threadIdx.x & 3) * 2;
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int i = 0; i < 4; i++) { /* columns of c come in eights, as d's do */
                const int at = j * 16 + i / 2 * 8;
                to[j][i] = c[i & 1] && at < left ? *(const uint32_t *)(c[i & 1] + at * 2) : 0;
            }
    }

    __device__ __forceinline__ void add_words(const uint32_t (&c)[4], float (&y)[8]) const
    {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            float lo, hi;
            unpack2<C == SKR_F16 ? SKR_F16 : SKR_BF16>(c[i], lo, hi);
            y[2 * i] = __fmaf_rn(job.beta, lo, y[2 * i]), y[2 * i + 1] = __fmaf_rn(job.beta, hi, y[2 * i + 1]);
        }
    }

    /* A thread's rows of c, from column n on. */
    __device__ __forceinline__ const char *my_c(int z, int row, int n, int h) const
    {
        int thread = (int)threadIdx.x;
        asm volatile("" : "+r"(thread)); /* places in c are found where they are needed, not kept beside the sums */
        const int m = row + (thread / 32 & 3) * 16 + (thread & 31) / 4 + 8 * h;
        return m < job.m ? gemm_c_at(job, z, m, n + (thread & 3) * 2) : NULL;
    }

    /* x += beta * c: 32 sums of a thread, of columns from n on. */
    __device__ __forceinline__ void add_c(int z, int row, int n, float (&x)[32]) const
    {
        if (job.c.at.type == SKR_F32) {
            add_row<2, 0>(z, row, n, x);
            add_row<2, 1>(z, row, n, x);
        } else {
            add_row<1, 0>(z, row, n, x);
            add_row<1, 1>(z, row, n, x);
        }
    }

    /* One of the thread's two rows. WORDS: of a pair of columns, which is read at once; n is even. */
    template <int WORDS, int H> __device__ __forceinline__ void add_row(int z, int row, int n, float (&x)[32]) const
    {
        const char *c = my_c(z, row, n, H);
        const int width = c ? (int)job.n - n - (threadIdx.x & 3) * 2 : 0;
        uint32_t raw[8][WORDS] = {};
#pragma unroll
        for (int i = 0; i < 8; i++)
            if (i * 8 + 1 < width)
                load_words<WORDS>(raw[i], c + i * 16 * WORDS);
            else if (i * 8 < width)
                raw[i][0] = WORDS == 2 ? *(const uint32_t *)(c + i * 32) : *(const uint16_t *)(c + i * 16);
#pragma unroll
        for (int i = 0; i < 8; i++) {
            float lo = __uint_as_float(raw[i][0]), hi = __uint_as_float(raw[i][WORDS - 1]);
            if (WORDS == 1 && job.c.at.type == SKR_F16)
                unpack2<SKR_F16>(raw[i][0], lo, hi);
            else if (WORDS == 1)
                unpack2<SKR_BF16>(raw[i][0], lo, hi);
            float &first = x[4 * i + 2 * H], &second = x[4 * i + 2 * H + 1];
            first = __fmaf_rn(job.beta, lo, first), second = __fmaf_rn(job.beta, hi, second);
            asm volatile("" : "+f"(first), "+f"(second)); /* now, not when the other row of c is there */
        }
    }

    template <int WORDS> __device__ __forceinline__ static void load_words(uint32_t (&to)[WORDS], const char *from)
    {
        if constexpr (WORDS == 2) {
            const uint2 two = *(const uint2 *)from;
            to[0] = two.x, to[1] = two.y;
        } else {
            to[0] = *(const uint32_t *)from;
        }
    }

    /* The 32 values of a part: 64 neighbouring columns, or 32 of the gate and the 32 that it multiplies. */
    template <bool GATED, int P>
    __device__ __forceinline__ static void take(const float (&all)[BN / 2], int part, float (&x)[32])
    {
        if (part == P) {
#pragma unroll
            for (int i = 0; i < 32; i++)
                x[i] = all[!GATED ? P * 32 + i : i < 16 ? P * 16 + i : BN / 4 + P * 16 + i - 16];
        } else if constexpr (P + 1 < PARTS) {
            take<GATED, P + 1>(all, part, x);
        }
    }

    template <bool GATED> __device__ __forceinline__ void function(float (&x)[32]) const
    {
#pragma unroll
        for (int i = 0; i < 16; i += 8)
            if (GATED) {
                forward_vector<true, 8>(job.act, 1.702f, 7.0f, x + i, x + 16 + i, x + i);
            } else {
                forward_vector<false, 16>(job.act, 0.0f, 0.0f, x + 2 * i, x + 2 * i, x + 2 * i);
            }
    }

    template <bool GATED>
    __device__ __forceinline__ void full(const float (&all)[BN / 2], const options &o, int row, int col, int z) const
    {
        constexpr int EACH = GATED ? 2 : 1, COUNT = GATED ? 16 : 32; /* parts of a panel, results of a part */
        int width = (int)(GATED ? job.n / 2 : job.n), first = GATED ? col / 2 : col;
#pragma unroll 1
        for (int part = 0; part < PARTS; part++) {
            int n = first + part * 2 * COUNT;
            uint32_t panel = staging + (part / EACH & 1) * PANEL;
            float x[32];
            if (n >= width && part % EACH == 0)
                return;
            take<GATED, 0>(all, part, x);
            if (LEAN) {
                adjust<COUNT>(o, part * 2 * COUNT, x, x);
                if (GATED)
                    adjust<16>(o, BN / 2 + part * 32, x + 16, x + 16);
            }
            if (!GATED && has_c())
                add_c(z, row, n, x);
            if (GATED || job.act)
                function<GATED>(x);
            if (!job.work.store) {
                store_part<COUNT>(z, row, n, width, x);
                continue;
            }
            if (part == 0)
                staging_free<0>();
            else if (part % EACH == 0)
                staging_free<1>();
#pragma unroll
            for (int j = 0; j < COUNT / 8; j++)
                put16(panel, part % EACH * 2 + j, x + j * 8);
            if (part % EACH == EACH - 1) {
                fence_async();
                warpgroup_sync();
                send(panel, first + part / EACH * 64, row, z);
            }
        }
    }

    /* d of f32: rows row + ..., columns from n on. */
    template <int COUNT>
    __device__ __forceinline__ void store_part(int z, int row, int n, int width, const float (&x)[32]) const
    {
        const gemm_batch at(job, z);
        int lane = threadIdx.x & 31, m = row + (threadIdx.x / 32 & 3) * 16 + lane / 4;
#pragma unroll
        for (int h = 0; h < 2; h++)
            if (char *to = m + 8 * h < at.m ? row_of<4>(at, m + 8 * h) : NULL) {
#pragma unroll
                for (int i = 0; i < COUNT / 4; i++)
                    put_pair(to, n + (lane & 3) * 2 + i * 8, width, x[4 * i + 2 * h], x[4 * i + 2 * h + 1]);
            }
    }
};

#endif
