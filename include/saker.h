/* saker.h - the whole public interface of Saker, and its manual.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Saker is a library of fused transformer kernels for the CPU (aarch64 and x86-64) and for NVIDIA GPUs.
 * What is not in this file is not part of the interface.
 *
 *     saker_context *ctx;
 *     saker_context_create(&ctx, NULL);                              // CPU, all allowed cores
 *
 *     saker_tensor x = SAKER_TENSOR(px, SAKER_BF16, 4096, 8192);     // data, type, shape
 *     saker_tensor w = SAKER_TENSOR(pw, SAKER_BF16, 8192);
 *     saker_tensor y = SAKER_TENSOR(py, SAKER_BF16, 4096, 8192);
 *     if (saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &x, .weight = &w, .y = &y)))
 *         fprintf(stderr, "%s\n", saker_context_error(ctx));
 *
 * Order of this file: 1 tensors, 2 status, 3 contexts, 4 calls and workspace, 5 operations, 6 memory and time, 7 the
 * library describes itself.
 *
 * Threads: a context is used by one thread at a time; different contexts are independent and may run at once.
 * Nothing here aborts, exits, changes the floating-point mode, or prints more than the lines that Environment names.
 * The pool's workers block all signals but SIGPROF and those of faults, so a process whose own threads have all ended
 * by pthread_exit neither ends nor answers SIGTERM: end it by exit. A thread must not be cancelled inside of a call.
 *
 * Environment, read once: SAKER_VERBOSE=1 logs contexts, calls and failures to standard error; SAKER_ISA=<level> lowers
 * the CPU instruction set ("scalar", "neon", "avx2", ...); SAKER_CUDA_ISA=sm80 runs the portable CUDA kernels on every
 * GPU; SAKER_THREADS=<n> limits the threads; SAKER_PAST_BYTES=<n> is from how many bytes of outputs on x86-64 writes
 * them past the caches (0: never). A value that makes no sense is ignored, with one warning line.
 */
#ifndef SAKER_H
#define SAKER_H

#include <stddef.h>
#include <stdint.h>

#define SAKER_VERSION_MAJOR 0
#define SAKER_VERSION_MINOR 1
#define SAKER_VERSION_PATCH 0

#if defined(_WIN32)
#define SAKER_API
#else
#define SAKER_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================ 1. Tensors
 *
 * saker_tensor has the memory layout and the numeric codes of DLPack's DLTensor: a DLPack tensor can be passed as it
 * is.
 * - The address of element 0 is data + byte_offset. No alignment beyond the element's own is assumed.
 * - strides count elements, not bytes; NULL means compact, last dimension fastest. Negative strides are refused.
 * - A tensor with a zero dimension is legal, and its data may be NULL.
 * - A stride of 0 (a broadcast view) is legal for inputs, not for outputs.
 * - device.device_type 0 means "where the context runs"; otherwise it must agree with the context.
 * The descriptor is only read during the call; it may live on the stack. */

typedef struct saker_device {
    int32_t device_type; /* one of saker_device_type, or 0: the context's device */
    int32_t device_id;
} saker_device;

typedef struct saker_dtype {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes; /* always 1 */
} saker_dtype;

typedef struct saker_tensor {
    void *data;
    saker_device device;
    int32_t ndim; /* 0 to SAKER_MAX_DIMS */
    saker_dtype dtype;
    int64_t *shape;
    int64_t *strides;
    uint64_t byte_offset;
} saker_tensor;

enum { SAKER_MAX_DIMS = 8 };

typedef enum saker_device_type {
    SAKER_CPU = 1,
    SAKER_CUDA = 2,
    SAKER_CUDA_HOST = 3,    /* pinned host memory: both devices can use it */
    SAKER_CUDA_MANAGED = 13 /* managed memory: both devices can use it */
} saker_device_type;

/* Element types. The value is DLPack's code, bits and lanes in one number, low byte first. */
#define SAKER_TYPE(code, bits) ((code) | (bits) << 8 | 1 << 16)
typedef enum saker_type {
    SAKER_F32 = SAKER_TYPE(2, 32),
    SAKER_F16 = SAKER_TYPE(2, 16),
    SAKER_BF16 = SAKER_TYPE(4, 16),
    SAKER_E4M3 = SAKER_TYPE(10, 8), /* OCP e4m3: no infinity, largest value 448 */
    SAKER_E5M2 = SAKER_TYPE(12, 8), /* OCP e5m2: largest value 57344 */
    SAKER_I8 = SAKER_TYPE(0, 8),
    SAKER_I4 = SAKER_TYPE(0, 4), /* two in a byte, low nibble first */
    SAKER_I32 = SAKER_TYPE(0, 32),
    SAKER_I64 = SAKER_TYPE(0, 64),
    SAKER_U8 = SAKER_TYPE(1, 8),
    SAKER_BOOL = SAKER_TYPE(6, 8)
} saker_type;

/* Name of a type ("bf16"), or NULL if Saker does not know it. */
SAKER_API const char *saker_type_name(saker_dtype type);

#ifndef __cplusplus
#define SAKER_DTYPE(type) ((saker_dtype){(uint8_t)(type), (uint8_t)((type) >> 8), (uint16_t)((type) >> 16)})
/* A compact tensor on the context's device: SAKER_TENSOR(pointer, SAKER_F32, rows, columns). Lives as long as the
 * enclosing block. */
#define SAKER_TENSOR(pointer, type, ...)                                                                               \
    {                                                                                                                  \
        .data = (void *)(pointer), .ndim = (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),              \
        .dtype = {(uint8_t)(type), (uint8_t)((type) >> 8), (uint16_t)((type) >> 16)}, .shape = (int64_t[])             \
        {                                                                                                              \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#endif

/* The same for any language: strides may be NULL. The arrays are not copied. */
static inline saker_tensor saker_tensor_of(void *data, saker_type type, int32_t ndim, int64_t *shape, int64_t *strides)
{
    saker_tensor t;
    t.data = data;
    t.device.device_type = 0;
    t.device.device_id = 0;
    t.ndim = ndim;
    t.dtype.code = (uint8_t)type;
    t.dtype.bits = (uint8_t)((unsigned)type >> 8);
    t.dtype.lanes = (uint16_t)((unsigned)type >> 16);
    t.shape = shape;
    t.strides = strides;
    t.byte_offset = 0;
    return t;
}

/* ================================================================ 2. Status
 *
 * Every function that can fail returns one of these; the numbers never change. The sentence behind a failure
 * (operation, argument, what was found, what was expected) is saker_context_error(). A call that fails with any code
 * but DEVICE or DEVICE_LOST has not written a byte of its outputs (on a GPU OUT_OF_MEMORY may come from a later kernel
 * of a call, when its code is loaded for the first time).
 *
 * Descriptors are trusted to say where memory is: a pointer or a size that lies is not noticed. All else about them is
 * checked. Values inside index tensors (ids, targets, positions, offsets, sequence bounds) are not trusted: whatever
 * they hold, nothing outside of the tensors is read or written. */

typedef enum saker_status {
    SAKER_OK = 0,
    SAKER_INVALID_ARG = 1,  /* a shape, stride or value that the operation's contract forbids */
    SAKER_UNSUPPORTED = 2,  /* legal, but there is no kernel for it, or the option is unknown */
    SAKER_NULL_POINTER = 3, /* a required argument is NULL */
    SAKER_MISALIGNED = 4,   /* a data pointer is below its element's own alignment */
    SAKER_ALIAS = 5,        /* an output overlaps another tensor in a way that is not documented as allowed */
    SAKER_OVERFLOW = 6,     /* a size does not fit 63 bits */
    SAKER_WORKSPACE = 7,    /* the lent workspace is too small or not 256-byte aligned */
    SAKER_OUT_OF_MEMORY = 8,
    SAKER_DEVICE = 9,       /* no driver, no device, no kernel image, or the driver refused */
    SAKER_DEVICE_LOST = 10, /* the device faulted; every later call on it fails */
    SAKER_COMM = 11,        /* a communicator failed */
    SAKER_BAD_INDEX = 12,   /* a value inside an index tensor was out of range (reported by saker_context_check) */
    SAKER_VERSION = 13      /* struct_size is not one that this library knows */
} saker_status;

/* "INVALID_ARG" and so on; never NULL. */
SAKER_API const char *saker_status_name(saker_status status);

/* ================================================================ 3. Contexts
 *
 * A context says where and how to run. It is cheap: the worker threads are one pool per process, started by the first
 * call that needs them. */

typedef struct saker_context saker_context;

/* Runs fn(arg, i) once for each i in [0, n), in any order, on any threads, and returns when all are done. */
typedef void (*saker_parallel_for)(void *user, int64_t n, void (*fn)(void *arg, int64_t i), void *arg);

typedef enum saker_flag {
    SAKER_ALLOW_NONDETERMINISTIC = 1 /* a faster kernel may give other bits from run to run */
} saker_flag;

/* What a context is made of; zero means the default everywhere. */
typedef struct saker_config {
    uint64_t struct_size; /* sizeof(saker_config) */
    int32_t device_type;  /* SAKER_CPU (default) or SAKER_CUDA */
    int32_t device_id;    /* CUDA device number as the driver counts, 0 to 15 */
    int32_t threads;      /* CPU: at most this many threads, the caller's included; 0: all cores this process may use */
    int32_t check_level;  /* 0, 1, 2: all that the host can see (the default). 3: also whether each tensor's first byte
                             is memory that the device can use (asks the system, or the driver) */
    uint64_t flags;       /* saker_flag bits */
    const char *isa;      /* CPU: highest instruction-set level, by name; NULL: the best this machine has */
    void *stream;         /* CUDA: CUstream / cudaStream_t; NULL: the legacy default stream */
    saker_parallel_for parallel_for; /* CPU: the caller's own threads instead of the pool */
    void *parallel_user;
    int32_t parallel_width; /* how many of its calls can run at once (sizes scratch memory); 0: the allowed cores */
    int32_t reserved;       /* 0 */
} saker_config;

/* config may be NULL. On failure *out is NULL and saker_context_error(NULL) holds the sentence (per thread). */
SAKER_API saker_status saker_context_create(saker_context **out, const saker_config *config);
/* NULL is fine. Waits for the device where calls have not been waited for (saker_context_sync); that spoils a capture
 * that is under way on any stream of it. A CUDA graph that was captured with the context must not be replayed
 * afterwards. */
SAKER_API void saker_context_destroy(saker_context *ctx);

/* Sentence of the last failure in this context, "" if there was none. ctx NULL: this thread's last failed create, or
 * call without a context. */
SAKER_API const char *saker_context_error(const saker_context *ctx);
/* Kernel that the last successful call ran, as "op/level variant"; "" before the first, "op/empty" when there was
 * nothing to do. */
SAKER_API const char *saker_context_kernel(saker_context *ctx);

/* The stream for the next calls (CUDA). Work of earlier calls is not waited for, neither here nor by later waits: those
 * (saker_context_check, saker_context_sync, saker_memory_free) wait for the stream that the context has then. Wait for
 * one before leaving it, or make the new one wait for it. */
SAKER_API saker_status saker_context_set_stream(saker_context *ctx, void *stream);
/* Lends scratch memory (on the context's device, 256-byte aligned) that stays the caller's: from then on the context
 * allocates nothing, and a call that needs more fails with SAKER_WORKSPACE. NULL and 0 give it back: the context
 * allocates for itself again. */
SAKER_API saker_status saker_context_set_workspace(saker_context *ctx, void *memory, size_t bytes);

/* Waits for the context's stream, then reports and clears what only a kernel could see (SAKER_BAD_INDEX: an index
 * tensor held a value out of range, which was treated as the operation's text says). */
SAKER_API saker_status saker_context_check(saker_context *ctx);

/* ================================================================ 4. Calls and workspace
 *
 * Each operation is one function with one argument struct. struct_size is its first field, so structs can grow at the
 * end. Zero means default. C:    saker_rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &x, .y = &y)); C++:  auto a =
 * SAKER_INIT(rms_norm); a.x = &x; a.y = &y; saker_rms_norm(ctx, &a);
 *
 * CUDA calls are asynchronous on the context's stream, never synchronise, never read device data on the host, and can
 * be captured in a CUDA graph (lend a workspace for that, or let the context allocate it stream-ordered). CPU calls
 * return when the result is there.
 *
 * The same inputs give the same bits: any thread count, any repeat, any stream; a row's bits do not depend on how many
 * rows there are. Excepted are attention_decode without split, whose parts are chosen by batch and heads, and on a GPU
 * products, whose kernel and schedule are chosen by all sizes. There another alignment or stride of the tensors, or
 * 2^28 rows and more, may choose another kernel. */

#ifdef __cplusplus
#define SAKER_INIT(op) ::saker_sized<saker_##op##_args>()
#else
#define SAKER_INIT(op)      ((saker_##op##_args){.struct_size = sizeof(saker_##op##_args)})
#define SAKER_ARGS(op, ...) (&(saker_##op##_args){.struct_size = sizeof(saker_##op##_args), __VA_ARGS__})
#endif

/* Scratch bytes that a call with these arguments needs; args are checked as in the call. op is the name, "rms_norm". */
SAKER_API saker_status saker_workspace_bytes(saker_context *ctx, const char *op, const void *args, size_t *bytes);
/* Which kernel would run with these arguments and why others would not, as text; reads no element (of packed weights
 * only what says how they were packed), launches nothing (pointers are checked as in the call). Writes at most size
 * bytes, always terminated. The status is that of the call itself. */
SAKER_API saker_status saker_explain(saker_context *ctx, const char *op, const void *args, char *text, size_t size);

/* ================================================================ 5. Operations
 *
 * M rows of width N: the last dimension is N with stride 1, all dimensions before it are rows, with any strides (those
 * that lie as one in all tensors of a call count as one; four may remain, or it is UNSUPPORTED).
 * "float" is f32, f16 or bf16; each tensor of a call may have its own float type. Sums are in f32 (f64 for long ones);
 * results are rounded once, to nearest even. Tensors marked ? are optional (NULL). */

/* How quantised outputs are scaled. value = round(y / scale); scale is what multiplies back. fp8 saturates, i8 is
 * clamped to +-127, i4 to +-7. NaN gives 0 in integers and NaN in fp8. Dynamic scales are amax / largest (amax over the
 * finite and NaN-free values; 0 gives scale 1). The last two modes are those of quantize alone. */
typedef enum saker_quant {
    SAKER_QUANT_NONE = 0,
    SAKER_QUANT_TENSOR = 1,  /* one scale: given and read; quantize can also compute it */
    SAKER_QUANT_ROW = 2,     /* scale: [M], written */
    SAKER_QUANT_BLOCK = 3,   /* scale: [M, ceil(N/128)], written: one per 128 neighbours of a row */
    SAKER_QUANT_BLOCK2D = 4, /* scale: [..., ceil(R/128), ceil(N/128)] for x [..., R, N]: one per 128 x 128 */
    SAKER_QUANT_GROUP = 5    /* scale: [M, ceil(N/group)]: one per `group` neighbours of a row */
} saker_quant;

/* rms_norm: y = s * rstd * (weight + weight_offset) + bias, rstd = 1 / sqrt(mean(s*s) + eps), s = x + residual.
 *
 * With residual_out, s is first rounded to its type, stored there, and that rounded value is normalised; backward takes
 * it as x. weight and bias are [N], or [H, N] when x is [..., H, N] (one row per head). Absent: 1 and 0. weight_offset
 * is added in f32. rstd is f32, of x's shape without the last dimension, or [M]. The quantised output y_quant (i8,
 * e4m3, e5m2; x's shape) may come beside y (then the rounded y is quantised) or instead of it. y may be x, and
 * residual_out may be residual (the same memory, exactly). No other overlap with outputs is allowed. A row with a NaN
 * or an infinity gives NaN as the formula does; other rows are not touched by it. Where the squares of a row add up
 * beyond f32's range, rstd is 0 and y the bias. Rows of no columns have none of these: rstd and y_scale stay as they
 * are. */
typedef struct saker_rms_norm_args {
    uint64_t struct_size;
    const saker_tensor *x;            /* [..., N] float */
    const saker_tensor *weight;       /* ? [N] or [H, N] float */
    const saker_tensor *bias;         /* ? [N] or [H, N] float */
    const saker_tensor *residual;     /* ? x's shape, float */
    const saker_tensor *y;            /* ? out: x's shape, float. y or y_quant must be there */
    const saker_tensor *residual_out; /* ? out: x's shape, float */
    const saker_tensor *rstd;         /* ? out: f32 [M] or x's leading shape */
    const saker_tensor *y_quant;      /* ? out: x's shape, i8, e4m3 or e5m2; needs quant and y_scale */
    const saker_tensor *y_scale;      /* ? f32; read or written as quant says */
    float eps;                        /* 0: 1e-6 */
    float weight_offset;              /* added to the weight; 1 for Gemma */
    int32_t
        round_before_weight; /* 1: s * rstd is rounded to x's type before the weight, as Hugging Face's Llama does */
    int32_t quant;           /* saker_quant */
} saker_rms_norm_args;
SAKER_API saker_status saker_rms_norm(saker_context *ctx, const saker_rms_norm_args *args);

/* rms_norm_backward: the gradients of rms_norm, with h = s * rstd, g = dy * (weight + weight_offset):
 *   dx = rstd * (g - h * mean(g * h)) + dresidual_out        (it is the gradient of x and of residual alike)
 *   dweight = sum over rows of dy * h,  dbias = sum over rows of dy     (f32 sums in a fixed order; per head when [H,
 * N])
 *
 * x is what forward normalised: its x, or its residual_out where there was a residual. rstd is what forward saved;
 * without it, it is recomputed with eps. With round_before_weight, h in dweight is rounded to x's type as forward did.
 * Any output may be left out, but not all; dresidual_out needs dx. dx may be dy or dresidual_out (the same memory,
 * exactly). With accumulate, dweight and dbias are added to what the tensors hold. */
typedef struct saker_rms_norm_backward_args {
    uint64_t struct_size;
    const saker_tensor *dy;            /* [..., N] float */
    const saker_tensor *x;             /* dy's shape, float */
    const saker_tensor *weight;        /* ? [N] or [H, N] float */
    const saker_tensor *rstd;          /* ? f32 [M] or x's leading shape */
    const saker_tensor *dresidual_out; /* ? dy's shape, float: the gradient that arrives at residual_out */
    const saker_tensor *dx;            /* ? out: dy's shape, float */
    const saker_tensor *dweight;       /* ? out: [N] or [H, N] (weight's shape where there is a weight), float */
    const saker_tensor *dbias;         /* ? out: [N] or [H, N], float */
    float eps;                         /* 0: 1e-6; used only without rstd */
    float weight_offset;
    int32_t round_before_weight;
    int32_t accumulate; /* 1: dweight and dbias += instead of = */
} saker_rms_norm_backward_args;
SAKER_API saker_status saker_rms_norm_backward(saker_context *ctx, const saker_rms_norm_backward_args *args);

/* layer_norm: y = (s - mean) * rstd * (weight + weight_offset) + bias, with mean = mean(s),
 * rstd = 1 / sqrt(mean((s - mean)^2) + eps), s = x + residual.
 *
 * Everything that rms_norm says of its arguments holds here. mean and rstd are f32, each of x's shape without the last
 * dimension, or [M]; either may be left out. The variance is that of the centred values, and the mean is kept to more
 * than f32 while the row is computed: a row far from zero (1000 +- 1) is as accurate as one around it. The squares of
 * the values must stay in f32's range (|s| up to 1e18): larger rows may give NaN or zeros. A row with a NaN or an
 * infinity gives NaN. */
typedef struct saker_layer_norm_args {
    uint64_t struct_size;
    const saker_tensor *x;            /* [..., N] float */
    const saker_tensor *weight;       /* ? [N] or [H, N] float */
    const saker_tensor *bias;         /* ? [N] or [H, N] float */
    const saker_tensor *residual;     /* ? x's shape, float */
    const saker_tensor *y;            /* ? out: x's shape, float. y or y_quant must be there */
    const saker_tensor *residual_out; /* ? out: x's shape, float */
    const saker_tensor *mean;         /* ? out: f32 [M] or x's leading shape */
    const saker_tensor *rstd;         /* ? out: f32 [M] or x's leading shape */
    const saker_tensor *y_quant;      /* ? out: x's shape, i8, e4m3 or e5m2; needs quant and y_scale */
    const saker_tensor *y_scale;      /* ? f32; read or written as quant says */
    float eps;                        /* 0: 1e-5 */
    float weight_offset;              /* added to the weight */
    int32_t round_before_weight;      /* 1: (s - mean) * rstd is rounded to x's type before the weight */
    int32_t quant;                    /* saker_quant */
} saker_layer_norm_args;
SAKER_API saker_status saker_layer_norm(saker_context *ctx, const saker_layer_norm_args *args);

/* layer_norm_backward: the gradients of layer_norm, with h = (x - mean) * rstd, g = dy * (weight + weight_offset):
 *   dx = rstd * (g - mean(g) - h * mean(g * h)) + dresidual_out        (it is the gradient of x and of residual alike)
 *   dweight = sum over rows of dy * h,  dbias = sum over rows of dy
 *
 * As rms_norm_backward. mean and rstd are what forward saved, both or neither: without them both are recomputed from x,
 * with eps and rounded to f32 as forward saves them. */
typedef struct saker_layer_norm_backward_args {
    uint64_t struct_size;
    const saker_tensor *dy;            /* [..., N] float */
    const saker_tensor *x;             /* dy's shape, float */
    const saker_tensor *weight;        /* ? [N] or [H, N] float */
    const saker_tensor *mean;          /* ? f32 [M] or x's leading shape */
    const saker_tensor *rstd;          /* ? f32 [M] or x's leading shape */
    const saker_tensor *dresidual_out; /* ? dy's shape, float: the gradient that arrives at residual_out */
    const saker_tensor *dx;            /* ? out: dy's shape, float */
    const saker_tensor *dweight;       /* ? out: [N] or [H, N] (weight's shape where there is a weight), float */
    const saker_tensor *dbias;         /* ? out: [N] or [H, N], float */
    float eps;                         /* 0: 1e-5; used only without mean and rstd */
    float weight_offset;
    int32_t round_before_weight;
    int32_t accumulate; /* 1: dweight and dbias += instead of = */
} saker_layer_norm_backward_args;
SAKER_API saker_status saker_layer_norm_backward(saker_context *ctx, const saker_layer_norm_backward_args *args);
/* hadamard: y = H x / sqrt(N) for each row, H the Hadamard matrix in Sylvester's order (H_ij = -1 to the number of bits
 * that i and j share), N a power of two; f32 arithmetic. It is its own inverse and its own gradient. y may be x (the
 * same memory, exactly). N up to 2^30; CUDA: 2^20. */
typedef struct saker_hadamard_args {
    uint64_t struct_size;
    const saker_tensor *x; /* [..., N] float */
    const saker_tensor *y; /* out: x's shape, float */
} saker_hadamard_args;
SAKER_API saker_status saker_hadamard(saker_context *ctx, const saker_hadamard_args *args);

/* embedding: out[i] = table[ids[i]]. An id outside of [0, V) gives a row of zeros, and saker_context_check then says
 * SAKER_BAD_INDEX. */
typedef struct saker_embedding_args {
    uint64_t struct_size;
    const saker_tensor *table; /* [V, D] float, V below 2^31; CUDA: D below 2^31 */
    const saker_tensor *ids;   /* [...] i32 or i64, any strides */
    const saker_tensor *out;   /* out: [..., D] float */
} saker_embedding_args;
SAKER_API saker_status saker_embedding(saker_context *ctx, const saker_embedding_args *args);

/* embedding_backward: dtable[v] = the sum of dout[i] over all i with ids[i] = v, f32 sums in a fixed order (that of i);
 * zero where there is none. With accumulate it is added to what dtable holds. Rows with padding_idx (where
 * has_padding_idx is set) and with an id outside of [0, V) are left out; the latter are reported as in forward. Up to
 * 2^30 ids. */
typedef struct saker_embedding_backward_args {
    uint64_t struct_size;
    const saker_tensor *dout;   /* [..., D] float */
    const saker_tensor *ids;    /* [...] i32 or i64, any strides */
    const saker_tensor *dtable; /* out: [V, D] float */
    int64_t padding_idx;        /* with has_padding_idx */
    int32_t has_padding_idx;    /* 1: rows with padding_idx have no gradient */
    int32_t accumulate;         /* 1: dtable += instead of = */
} saker_embedding_backward_args;
SAKER_API saker_status saker_embedding_backward(saker_context *ctx, const saker_embedding_backward_args *args);

/* topk: the k largest values of each row and where they stand, in descending order; equal values by lower index. k is
 * the last dimension of values and indices, from 0 to N. NaN is larger than anything, all NaNs are equal, -0 equals +0.
 * With softmax, values are softmax over the k (a NaN makes all NaN, k times -inf gives zeros). */
typedef struct saker_topk_args {
    uint64_t struct_size;
    const saker_tensor *x;       /* [..., N] float, N below 2^31; CUDA: at most 2^31 - 2^16, and k at most 2^30 */
    const saker_tensor *values;  /* ? out: [..., k] float, any strides. values or indices must be there */
    const saker_tensor *indices; /* ? out: [..., k] i32, any strides */
    int32_t softmax;             /* 1: values are softmax over the k */
    int32_t reserved;            /* 0 */
} saker_topk_args;
SAKER_API saker_status saker_topk(saker_context *ctx, const saker_topk_args *args);

/* topk_backward: dx is dvalues at the indices and zero elsewhere. With values, which forward gave with softmax, it is
 * values * (dvalues - sum(values * dvalues)) instead of dvalues. The indices of a row are distinct. One outside of
 * [0, N) is left out, and saker_context_check then says SAKER_BAD_INDEX. */
typedef struct saker_topk_backward_args {
    uint64_t struct_size;
    const saker_tensor *dvalues; /* [..., k] float, any strides */
    const saker_tensor *indices; /* [..., k] i32, any strides */
    const saker_tensor *values;  /* ? [..., k] float, any strides: forward's values where it had softmax */
    const saker_tensor *dx;      /* out: [..., N] float, N as in topk */
} saker_topk_backward_args;
SAKER_API saker_status saker_topk_backward(saker_context *ctx, const saker_topk_backward_args *args);

/* sum_squares: out = sum of x * x over all elements, f32 (f64 inside), in a fixed order; added to what out holds with
 * accumulate. The square of a global norm: one call for each gradient, all into one out, which adamw reads to clip. */
typedef struct saker_sum_squares_args {
    uint64_t struct_size;
    const saker_tensor *x;   /* [..., N] float */
    const saker_tensor *out; /* out: f32, one element */
    int32_t accumulate;      /* 1: out += instead of = */
    int32_t reserved;        /* 0 */
} saker_sum_squares_args;
SAKER_API saker_status saker_sum_squares(saker_context *ctx, const saker_sum_squares_args *args);

/* adamw: one step of torch.optim.AdamW for one tensor, in place; all arithmetic in f32, each tensor rounded once:
 *   g = grad * grad_scale * clip                         (negated with maximize)
 *   param      = param * (1 - lr * weight_decay)
 *   exp_avg    = beta1 * exp_avg + (1 - beta1) * g
 *   exp_avg_sq = beta2 * exp_avg_sq + (1 - beta2) * g * g
 *   param      = param - lr / (1 - beta1^step) * exp_avg / (sqrt(exp_avg_sq / (1 - beta2^step)) + eps)
 * With max_exp_avg_sq (amsgrad) it is set to the larger of itself and exp_avg_sq, and stands under the root instead.
 * grad_scale and grad_sum_squares are read when the kernel runs. With grad_sum_squares, what sum_squares collected over
 * all gradients, clip = min(1, max_norm / (norm + 1e-6)), norm = |grad_scale| * sqrt(grad_sum_squares), as
 * torch.nn.utils.clip_grad_norm_ does; without, clip = 1. The four (five) tensors may have a float type each. */
typedef struct saker_adamw_args {
    uint64_t struct_size;
    const saker_tensor *param;            /* in and out: [..., N] float */
    const saker_tensor *grad;             /* param's shape, float */
    const saker_tensor *exp_avg;          /* in and out: param's shape, float */
    const saker_tensor *exp_avg_sq;       /* in and out: param's shape, float */
    const saker_tensor *max_exp_avg_sq;   /* ? in and out: param's shape, float */
    const saker_tensor *grad_scale;       /* ? f32, one element */
    const saker_tensor *grad_sum_squares; /* ? f32, one element; needs max_norm */
    double lr;                            /* 0 or more */
    double beta1, beta2;                  /* below 1; 0: 0.9 and 0.999 */
    double eps;                           /* 0: 1e-8 */
    double weight_decay;                  /* 0 or more */
    double max_norm;                      /* above 0 with grad_sum_squares, else 0 */
    int64_t step;                         /* counts from 1 */
    int32_t maximize;                     /* 1: g is negated */
    int32_t reserved;                     /* 0 */
} saker_adamw_args;
SAKER_API saker_status saker_adamw(saker_context *ctx, const saker_adamw_args *args);

/* softmax: y = exp(s - max) / sum of exp(s - max) along one dimension, s = scale * x + mask; with log, y is its
 * logarithm, (s - max) - ln(sum).
 *
 * The dimension is counted from the last one, which is the default. No dimension needs stride 1. mask is added in f32;
 * its shape is x's after broadcasting (missing leading dimensions, and sizes of 1, are repeated). With causal, element
 * [..., i, j] of x [..., Q, K] counts as -infinity where j > i + K - Q, whatever x and mask hold there (the last row
 * sees everything). Where all of s along the dimension is -infinity, y is 0, and -infinity with log. NaN or +infinity
 * in s gives NaN along the whole dimension, and nowhere else; a scale * x that f32 does not hold may count as infinite.
 * y may be x (the same memory, exactly). Elements that are neighbours in memory are added in another order than those
 * that are not: x [N, 1] along its first dimension may have other last bits than a column of [N, 2]. */
typedef struct saker_softmax_args {
    uint64_t struct_size;
    const saker_tensor *x;    /* float, at least one dimension */
    const saker_tensor *mask; /* ? float, broadcastable to x's shape */
    const saker_tensor *y;    /* out: x's shape, float */
    int64_t dim_from_last;    /* 0: along the last dimension, 1: along the one before it, ... */
    float scale;              /* 0: 1 */
    int32_t causal;           /* 1: as said above; x has at least two dimensions */
    int32_t log;              /* 1: log_softmax */
    int32_t reserved;         /* 0 */
} saker_softmax_args;
SAKER_API saker_status saker_softmax(saker_context *ctx, const saker_softmax_args *args);

/* softmax_backward: the gradient of softmax, from its result:
 *   dx = scale * y * (dy - sum of dy * y)            with log: dx = scale * (dy - exp(y) * sum of dy)
 *
 * With causal, dx is 0 where forward saw nothing, and dy and y are not used there. What arrives at mask is dx / scale,
 * summed over what was repeated. dx may be dy or y (the same memory, exactly). Options as in forward. */
typedef struct saker_softmax_backward_args {
    uint64_t struct_size;
    const saker_tensor *dy; /* y's shape, float */
    const saker_tensor *y;  /* float: what forward gave */
    const saker_tensor *dx; /* out: y's shape, float */
    int64_t dim_from_last;
    float scale; /* 0: 1 */
    int32_t causal;
    int32_t log;
    int32_t reserved; /* 0 */
} saker_softmax_backward_args;
SAKER_API saker_status saker_softmax_backward(saker_context *ctx, const saker_softmax_backward_args *args);
/* How the losses of rows become one number. */
typedef enum saker_reduction {
    SAKER_REDUCE_NONE = 0, /* one loss a row */
    SAKER_REDUCE_MEAN = 1, /* divided by the weight of the rows that are not ignored; NaN when there is none */
    SAKER_REDUCE_SUM = 2
} saker_reduction;

/* cross_entropy: the loss of rows of logits against one target class each; optionally the gradient in the same pass.
 *
 *   s = logits, or softcap * tanh(logits / softcap);  lse = log(sum over the V columns of exp(s));  e = label_smoothing
 *   loss = (1 - e) * w[t] * (lse - s[t]) + e / V * sum_c w[c] * (lse - s[c]) + z_loss * lse^2,  w: class weight, or 1
 *
 * as PyTorch combines them; mean divides by the sum of w[t], and its z-loss part by the number of rows, ignored rows
 * not counted. A row whose target is ignore_index is ignored: its loss is 0, and its gradient is 0 whatever its logits
 * hold; lse is that of the row all the same. ignore_index counts when has_ignore_index is 1, so that it can be 0;
 * otherwise it is -100. A target outside [0, V) that is not ignore_index counts as ignored and is reported by
 * saker_context_check (SAKER_BAD_INDEX).
 *
 * dlogits is the gradient of the (reduced) loss times grad: one read and one write of the logits in all. dlogits may
 * be logits (the same memory, exactly). Any output may be left out, but not all.
 *
 * A row with a NaN or a +infinity gives NaN (with softcap: a NaN), one of -infinity only lse -infinity and NaN
 * elsewhere; other rows are not touched, only what is summed over rows. Exponentials below 2^-126 count as 0.
 *
 * A shard of a vocabulary of `vocab` classes that holds columns vocab_start, vocab_start + 1, ... gives partial
 * results: for each row max s, sum of exp(s - max), s[t] (0 when another shard holds it) and e / V * sum_c w[c] * s[c].
 * cross_entropy_merge makes losses of them, cross_entropy_backward each shard's gradient. weight is that of the whole
 * vocabulary. */
typedef struct saker_cross_entropy_args {
    uint64_t struct_size;
    const saker_tensor *logits;  /* [..., V] float */
    const saker_tensor *target;  /* i32 or i64, [M] or logits' leading shape */
    const saker_tensor *weight;  /* ? [V] float: class weights */
    const saker_tensor *grad;    /* ? f32: gradient of loss, [M] (reduction none) or one element; absent: 1 */
    const saker_tensor *loss;    /* ? out: f32, [M] or logits' leading shape (reduction none), else one element */
    const saker_tensor *lse;     /* ? out: f32, [M] or logits' leading shape */
    const saker_tensor *dlogits; /* ? out: logits' shape, float */
    const saker_tensor *partial; /* ? out: f32 [..., 4] for a shard; instead of the other outputs */
    float label_smoothing;       /* 0 to 1 */
    float z_loss;                /* 0 or more */
    float softcap;               /* 0: none */
    int32_t reduction;           /* saker_reduction */
    int32_t has_ignore_index;    /* 1: ignore_index counts; 0: it is -100 */
    int32_t reserved;            /* 0 */
    int64_t ignore_index;
    int64_t vocab_start; /* of a shard: class of its first column */
    int64_t vocab;       /* of a shard: classes in all; 0: V */
} saker_cross_entropy_args;
SAKER_API saker_status saker_cross_entropy(saker_context *ctx, const saker_cross_entropy_args *args);

/* cross_entropy_backward: the gradient of cross_entropy from the lse that it saved, with p = exp(s - lse):
 *   dlogits = (grad * d(reduced loss)/ds + dlse * p) * ds/dlogits
 *
 * Options and weight as in forward. dlse is a gradient that arrives at lse; it reaches ignored rows too. A row whose
 * gradients are all 0 gets zeros, whatever its logits hold. dlogits may be logits (the same memory, exactly). A shard
 * takes the lse of the whole row. */
typedef struct saker_cross_entropy_backward_args {
    uint64_t struct_size;
    const saker_tensor *logits;  /* [..., V] float */
    const saker_tensor *target;  /* i32 or i64, [M] or logits' leading shape */
    const saker_tensor *lse;     /* f32, [M] or logits' leading shape */
    const saker_tensor *weight;  /* ? [V] float */
    const saker_tensor *grad;    /* ? f32: gradient of loss, [M] (reduction none) or one element; absent: 1 */
    const saker_tensor *dlse;    /* ? f32: gradient of lse, [M] or logits' leading shape */
    const saker_tensor *dlogits; /* out: logits' shape, float */
    float label_smoothing;
    float z_loss;
    float softcap;
    int32_t reduction;
    int32_t has_ignore_index;
    int32_t reserved; /* 0 */
    int64_t ignore_index;
    int64_t vocab_start;
    int64_t vocab;
} saker_cross_entropy_backward_args;
SAKER_API saker_status saker_cross_entropy_backward(saker_context *ctx, const saker_cross_entropy_backward_args *args);

/* cross_entropy_merge: losses from the partial results of all S shards of a vocabulary. Options as in forward; vocab,
 * the number of classes in all, must be given. */
typedef struct saker_cross_entropy_merge_args {
    uint64_t struct_size;
    const saker_tensor *partials; /* f32 [S, ..., 4]: the shards' partial results, in any order */
    const saker_tensor *target;   /* i32 or i64, [...] or [M] */
    const saker_tensor *weight;   /* ? [vocab] float */
    const saker_tensor *loss;     /* ? out: f32, [...] or [M] (reduction none), else one element */
    const saker_tensor *lse;      /* ? out: f32, [...] or [M] */
    float label_smoothing;
    float z_loss;
    int32_t reduction;
    int32_t has_ignore_index;
    int64_t ignore_index;
    int64_t vocab;
} saker_cross_entropy_merge_args;
SAKER_API saker_status saker_cross_entropy_merge(saker_context *ctx, const saker_cross_entropy_merge_args *args);

/* linear_cross_entropy: cross_entropy of logits = x * weight^T + bias, and all gradients in the same pass, without ever
 * holding the logits of all M rows.
 *
 * loss, lse, reduction and the options are cross_entropy's; class_weight is its weight. Logits are rounded to x's type,
 * as a linear layer's output is, and so is their gradient: dx = dlogits * weight, dweight = dlogits^T * x and dbias =
 * the sums of dlogits over its rows, each summed in f32 and rounded once. They are the gradients of the (reduced) loss
 * times grad; with f16, grad is where a factor belongs that keeps small gradients above 2^-24. With accumulate, dweight
 * and dbias are added to what they hold. The dlogits of an ignored row are 0; 0 times what is not finite in x or weight
 * is NaN in dweight or dx, as in any product.
 *
 * The rows are taken chunk_rows at a time. Besides what gemm takes for such products the workspace holds the logits of
 * so many rows in x's type (their width a multiple of 64); for a dweight of type f16 or bf16 its sums in f32, unless
 * all rows are taken at once; 8 bytes a row where the loss is reduced; 8 bytes a class and part of the rows where dbias
 * is wanted; on the CPU 4 bytes a class for each thread. Nothing grows with M * V. chunk_rows 0 takes as many rows as
 * have 2^28 bytes of logits on the CPU, 2^30 on a GPU or, where that is more, as many bytes as dweight's sums in f32;
 * and at least 256 rows. More of them save passes over dweight. Where the rows of x, dx and what has a value for each
 * row are not all one stride apart, they come in runs that are, and no chunk is in two of them. The order of the sums,
 * and so their bits, depends on chunk_rows, not on the number of threads. No output may share memory with another
 * tensor. */
typedef struct saker_linear_cross_entropy_args {
    uint64_t struct_size;
    const saker_tensor *x;            /* [..., H] float */
    const saker_tensor *weight;       /* [V, H] of x's type */
    const saker_tensor *target;       /* i32 or i64, [M] or x's leading shape */
    const saker_tensor *bias;         /* ? [V] float */
    const saker_tensor *class_weight; /* ? [V] float */
    const saker_tensor *grad;         /* ? f32: gradient of loss, [M] (reduction none) or one element; absent: 1 */
    const saker_tensor *loss;         /* ? out: f32, [M] or x's leading shape (reduction none), else one element */
    const saker_tensor *lse;          /* ? out: f32, [M] or x's leading shape */
    const saker_tensor *dx;           /* ? out: x's shape, float */
    const saker_tensor *dweight;      /* ? out: [V, H] float */
    const saker_tensor *dbias;        /* ? out: [V] float */
    float label_smoothing;            /* 0 to 1 */
    float z_loss;                     /* 0 or more */
    float softcap;                    /* 0: none */
    int32_t reduction;                /* saker_reduction */
    int32_t has_ignore_index;         /* 1: ignore_index counts; 0: it is -100 */
    int32_t accumulate;               /* 1: dweight += and dbias += */
    int32_t allow_tf32;               /* 1: a GPU may round f32 to tf32 in the products */
    int32_t reserved;                 /* 0 */
    int64_t ignore_index;
    int64_t chunk_rows; /* rows whose logits are held at once; 0: as said above */
} saker_linear_cross_entropy_args;
SAKER_API saker_status saker_linear_cross_entropy(saker_context *ctx, const saker_linear_cross_entropy_args *args);
/* How a tensor with heads lies: batch B, sequence S, heads H, head size D. THD: the sequences of a batch one after the
 * other, T tokens in all; cu_seqlens says where each begins. */
typedef enum saker_layout {
    SAKER_BSHD = 0, /* [B, S, H, D] */
    SAKER_BHSD = 1, /* [B, H, S, D] */
    SAKER_THD = 2   /* [T, H, D] */
} saker_layout;

/* How the frequencies of rope are stretched beyond the length that a model was trained with. f_i = base^(-2i/R). */
typedef enum saker_rope_scaling {
    SAKER_ROPE_NONE = 0,
    SAKER_ROPE_LINEAR = 1, /* f_i / factor */
    SAKER_ROPE_NTK = 2,    /* base * factor^(R / (R - 2)) instead of base */
    SAKER_ROPE_YARN = 3,  /* f_i / factor where a turn is longer than the trained length, f_i where it is short, blended
                             between columns c(beta_fast) and c(beta_slow), c(n) = R ln(original_length / (2 pi n)) / (2
                             ln base), rounded outwards to whole columns unless no_truncate */
    SAKER_ROPE_LLAMA3 = 4 /* f_i / factor for turns longer than original_length / low_freq_factor, f_i for turns shorter
                             than original_length / high_freq_factor, blended between */
} saker_rope_scaling;

/* rope: rotates pairs of columns of each head of q and k by position * frequency: (a, b) becomes (a cos - b sin, b cos
 * + a sin). Pair i is columns (i, i + R/2), or (2i, 2i + 1) with interleaved; columns from R on are copied.
 *
 * cos and sin are tables [positions, R/2], of one type, used as they are (scaling, attention_factor and base are not
 * given with them); without them angle_i = position * f_i, from base and scaling, and cos and sin are multiplied by
 * attention_factor. Angles are formed and reduced in f64: off by at most |angle|
 * 2^-50, so that at position 1e6 cos and sin are as good as f32 is. The position of a token is its place in its
 * sequence plus offsets[b], or positions[b, s]. With cu_seqlens (layout thd) sequence b is tokens cu_seqlens[b] to
 * cu_seqlens[b + 1] - 1, its first at position 0; without it all T tokens are one sequence. With norm, each head is
 * first normalised over all its D columns: x * rstd * (weight + weight_offset), rstd = 1 / sqrt(mean(x*x) + eps);
 * q_weight and k_weight are [D], absent: 1.
 *
 * q and k have one type, q_out and k_out have one type. q_out may be q and k_out may be k (the same memory, exactly).
 * A position outside of a given table counts as the nearest one inside (where it is the place alone, the table has to
 * have a row for each). cu_seqlens that does not begin with 0, falls, or does not end with T is cut to [0, T]; tokens
 * of no sequence give zeros. Both set SAKER_BAD_INDEX (saker_context_check). A NaN stays in its pair, with norm in its
 * head. */
typedef struct saker_rope_args {
    uint64_t struct_size;
    const saker_tensor *q;          /* [B, S, Hq, D], [B, Hq, S, D] or [T, Hq, D] float, as layout says */
    const saker_tensor *k;          /* ? the same with any number of heads Hk, q's type */
    const saker_tensor *cos;        /* ? [positions, R/2] float */
    const saker_tensor *sin;        /* ? cos's shape and type; both or none */
    const saker_tensor *offsets;    /* ? i32 [B] (thd: one for each sequence): added to the place in the sequence */
    const saker_tensor *positions;  /* ? i32 or i64 [B, S] (thd: [T]); not with offsets or cu_seqlens */
    const saker_tensor *cu_seqlens; /* ? i32 [sequences + 1], layout thd */
    const saker_tensor *q_weight;   /* ? [D] float, with norm */
    const saker_tensor *k_weight;   /* ? [D] float, with norm */
    const saker_tensor *q_out;      /* out: q's shape, float */
    const saker_tensor *k_out;      /* ? out: k's shape, q_out's type; with k */
    int64_t rotary_dim;             /* R, even; 0: twice the columns of cos, or D */
    int64_t original_length;        /* YaRN, Llama-3: the trained length; needed */
    double base;                    /* 0: 10000 */
    double factor;                  /* of the scaling; 0: 1 */
    float attention_factor;         /* on cos and sin; 0: 1, with YaRN 0.1 ln(factor) + 1 (1 for a factor up to 1) */
    float beta_fast, beta_slow;     /* YaRN; 0: 32 and 1 */
    float low_freq_factor;          /* Llama-3; 0: 1 */
    float high_freq_factor;         /* Llama-3; 0: 4 */
    float eps;                      /* norm; 0: 1e-6 */
    float weight_offset;            /* norm: added to the weights; 1 for Gemma */
    int32_t layout;                 /* saker_layout */
    int32_t interleaved;            /* 1: pairs are neighbours (GPT-J), 0: half a rotary dim apart (GPT-NeoX, Llama) */
    int32_t scaling;                /* saker_rope_scaling */
    int32_t no_truncate;            /* YaRN: ends of the blend are not rounded to whole columns (gpt-oss) */
    int32_t norm;                   /* 1: RMSNorm of each head before the rotation */
} saker_rope_args;
SAKER_API saker_status saker_rope(saker_context *ctx, const saker_rope_args *args);

/* rope_backward: the gradients of rope. Without norm dq is dq_out rotated back (by minus the angle, times
 * attention_factor). With norm it then goes through the norm: g = rotated back, h = q * rstd,
 *   dq = rstd * (g * w - h * mean(g * w * h)),  dq_weight = sum over tokens and heads of g * h,  w = q_weight +
 * weight_offset (rstd is computed again; sums in a fixed order).
 * With norm, q and k are what forward was given. Any output may be left out, but not all. dq may be dq_out and dk may
 * be dk_out (the same memory, exactly). dq_out and dk_out have one type, so have q and k, and dq and dk. Tokens of no
 * sequence give zeros. */
typedef struct saker_rope_backward_args {
    uint64_t struct_size;
    const saker_tensor *dq_out;     /* forward's q_out's shape, float */
    const saker_tensor *dk_out;     /* ? forward's k_out's shape */
    const saker_tensor *q;          /* ? forward's q; with norm */
    const saker_tensor *k;          /* ? forward's k; with norm */
    const saker_tensor *cos;        /* ? as in forward, like all up to the weights */
    const saker_tensor *sin;        /* ? */
    const saker_tensor *offsets;    /* ? */
    const saker_tensor *positions;  /* ? */
    const saker_tensor *cu_seqlens; /* ? */
    const saker_tensor *q_weight;   /* ? */
    const saker_tensor *k_weight;   /* ? */
    const saker_tensor *dq;         /* ? out: dq_out's shape, float */
    const saker_tensor *dk;         /* ? out: dk_out's shape, dq's type */
    const saker_tensor *dq_weight;  /* ? out: [D] float; with norm */
    const saker_tensor *dk_weight;  /* ? out: [D] float; with norm */
    int64_t rotary_dim;             /* the options: as in forward */
    int64_t original_length;
    double base;
    double factor;
    float attention_factor;
    float beta_fast, beta_slow;
    float low_freq_factor;
    float high_freq_factor;
    float eps;
    float weight_offset;
    int32_t layout;
    int32_t interleaved;
    int32_t scaling;
    int32_t no_truncate;
    int32_t norm;
    int32_t accumulate; /* 1: dq_weight and dk_weight += instead of = */
    int32_t reserved;   /* 0 */
} saker_rope_backward_args;
SAKER_API saker_status saker_rope_backward(saker_context *ctx, const saker_rope_backward_args *args);

/* Activation functions. s(x) = 1 / (1 + e^-x). */
typedef enum saker_act {
    SAKER_ACT_NONE = 0,      /* x */
    SAKER_ACT_SIGMOID = 1,   /* s(x) */
    SAKER_ACT_TANH = 2,      /* tanh(x) */
    SAKER_ACT_SILU = 3,      /* x s(x) */
    SAKER_ACT_GELU = 4,      /* x (1 + erf(x / sqrt 2)) / 2 */
    SAKER_ACT_GELU_TANH = 5, /* x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 */
    SAKER_ACT_RELU = 6,      /* max(x, 0) */
    SAKER_ACT_RELU2 = 7,     /* max(x, 0)^2 */
    SAKER_ACT_SWIGLU_OAI = 8 /* gated only: g s(alpha g) (u + 1), g = min(gate, limit), u = up within +-limit */
} saker_act;

/* Where the gate and what it multiplies lie in one tensor [..., 2N]. */
typedef enum saker_gated {
    SAKER_GATED_NO = 0,
    SAKER_GATED_HALVES = 1,     /* gate: columns 0 .. N-1, up: N .. 2N-1 */
    SAKER_GATED_INTERLEAVED = 2 /* gate: even columns, up: odd ones */
} saker_gated;

/* activation: y = act(x + bias), or gated y = act(gate + bias of gate) * (up + bias of up); bias is added in f32.
 *
 * Gated: x is [..., 2N] in the layout that gated names; or x is the gate [..., N] and up a tensor of its own (gated is
 * then NO). bias is [N]; gated [2N], in x's layout (gate first where up is a tensor of its own). Everything is computed
 * in f32 and rounded once. The quantised output y_quant (y's shape) may come beside y (then the rounded y is quantised)
 * or instead of it. y may be x (not where x is [..., 2N]) or up, the same memory exactly. NaN gives NaN; an infinity
 * gives what the formula gives. */
typedef struct saker_activation_args {
    uint64_t struct_size;
    const saker_tensor *x;       /* [..., N] or [..., 2N] float */
    const saker_tensor *up;      /* ? [..., N] float */
    const saker_tensor *bias;    /* ? [N] or [2N] float */
    const saker_tensor *y;       /* ? out: [..., N] float. y or y_quant must be there */
    const saker_tensor *y_quant; /* ? out: [..., N] i8, e4m3 or e5m2; needs quant and y_scale */
    const saker_tensor *y_scale; /* ? f32; read or written as quant says */
    int32_t act;                 /* saker_act */
    int32_t gated;               /* saker_gated */
    int32_t quant;               /* saker_quant, up to BLOCK */
    float alpha;                 /* SWIGLU_OAI; 0: 1.702 */
    float limit;                 /* SWIGLU_OAI; 0: 7 */
    int32_t reserved;            /* 0 */
} saker_activation_args;
SAKER_API saker_status saker_activation(saker_context *ctx, const saker_activation_args *args);

/* activation_backward: the gradients of activation; the activation is recomputed from what forward was given.
 *   dx = dy act'(x + bias);  gated: dgate = dy ((up + bias) act'(gate + bias)), dup = dy act(gate + bias)
 *   dbias = sum over rows of dx (of dgate and dup) before they are rounded      (f32 sums in a fixed order)
 *
 * Gated, with x [..., 2N], dx holds dgate and dup in x's layout; where up is a tensor of its own, dx is dgate and dup
 * is dup. relu' is 0 at 0; a clamp passes the gradient where it changes nothing. Any output may be left out, but not
 * all. dx may be x or dy, dup may be up or dy (the same memory, exactly). With accumulate, dbias is added to what the
 * tensor holds. */
typedef struct saker_activation_backward_args {
    uint64_t struct_size;
    const saker_tensor *dy;    /* [..., N] float */
    const saker_tensor *x;     /* [..., N] or [..., 2N] float: forward's */
    const saker_tensor *up;    /* ? [..., N] float: forward's */
    const saker_tensor *bias;  /* ? [N] or [2N] float: forward's */
    const saker_tensor *dx;    /* ? out: x's shape, float */
    const saker_tensor *dup;   /* ? out: up's shape, float; needs up */
    const saker_tensor *dbias; /* ? out: [N] or [2N] float */
    int32_t act;
    int32_t gated;
    float alpha;
    float limit;
    int32_t accumulate; /* 1: dbias += instead of = */
    int32_t reserved;   /* 0 */
} saker_activation_backward_args;
SAKER_API saker_status saker_activation_backward(saker_context *ctx, const saker_activation_backward_args *args);

/* quantize: q = round(x / scale), as saker_quant says; quant NONE is refused.
 *
 * q has x's shape. i4 is packed along the last dimension, two in a byte, low nibble first; its rows start at whole
 * bytes (strides are even), and the spare nibble of a row of odd width is written as 0. A q of type u8 and shape
 * [..., ceil(N/2)] is the same bytes, for callers whose arrays have no i4. With quant TENSOR, dynamic says whether the
 * scale is computed and written, or read. With BLOCK2D blocks cover the last two dimensions of x, of at least two. */
typedef struct saker_quantize_args {
    uint64_t struct_size;
    const saker_tensor *x;     /* [..., N] float */
    const saker_tensor *q;     /* out: x's shape, i8, e4m3, e5m2 or i4; or u8 */
    const saker_tensor *scale; /* f32, any strides; read or written */
    int64_t group;             /* GROUP: columns that share a scale, 1 or more; otherwise 0 */
    int32_t quant;             /* saker_quant */
    int32_t dynamic;           /* TENSOR: 1: scale is written */
} saker_quantize_args;
SAKER_API saker_status saker_quantize(saker_context *ctx, const saker_quantize_args *args);

/* dequantize: y = q * scale, the reverse of quantize, rounded to y's type. */
typedef struct saker_dequantize_args {
    uint64_t struct_size;
    const saker_tensor *q;     /* as quantize writes it */
    const saker_tensor *scale; /* f32, any strides */
    const saker_tensor *y;     /* out: [..., N] float */
    int64_t group;             /* GROUP: as in quantize; otherwise 0 */
    int32_t quant;             /* saker_quant */
    int32_t reserved;          /* 0 */
} saker_dequantize_args;
SAKER_API saker_status saker_dequantize(saker_context *ctx, const saker_dequantize_args *args);

/* What a_scale and b_scale of gemm multiply. Every scale is f32, with any strides. */
typedef enum saker_gemm_scaling {
    SAKER_GEMM_SCALE_NONE = 0,
    SAKER_GEMM_SCALE_TENSOR = 1,     /* one number each */
    SAKER_GEMM_SCALE_ROW_COLUMN = 2, /* a_scale: [..., M], one for each row of a; b_scale: [..., N], each column of b */
    SAKER_GEMM_SCALE_BLOCK = 3,      /* a_scale: [..., M, ceil(K/128)]; b_scale: [..., ceil(K/128), ceil(N/128)] */
    SAKER_GEMM_SCALE_GROUP = 4       /* b_scale: [..., ceil(K/group), N]; a_scale: [..., M] or absent */
} saker_gemm_scaling;

/* How the product is cut into work. All give the same result up to the order of sums, each the same bits from run to
 * run; on the CPU all give the same bits. There DATA_PARALLEL and PERSISTENT are blocks of d, taken one after the other
 * by whichever thread is free; with SPLIT_K and STREAM_K the blocks of k are tasks of their own, too. AUTO chooses
 * (saker_explain says what). A GPU chooses its kernel by M, too: the bits of a row may depend on how many there are. */
typedef enum saker_gemm_schedule {
    SAKER_GEMM_AUTO = 0,
    SAKER_GEMM_DATA_PARALLEL = 1,
    SAKER_GEMM_PERSISTENT = 2,
    SAKER_GEMM_SPLIT_K = 3,
    SAKER_GEMM_STREAM_K = 4
} saker_gemm_schedule;

/* gemm: d = act(v), v = alpha * scales * (a x b) + beta * c + bias.
 *
 * a is [..., M, K], b is [..., K, N], c and d are [..., M, N], each with any strides: a transposed matrix is a view.
 * Leading dimensions are batches: those of a and b are broadcast against each other (aligned at the right, sizes equal
 * or 1), d has the result, and those of c, saved and the scales are broadcast to it; pre has all of them.
 *
 * Types of a and b: f32 and f32; f16 and f16; bf16 and bf16; e4m3 or e5m2, any pair; i8 and i8; i32 and i32; and with
 * GROUP scaling f16, bf16 or i8 activations with i8 or i4 weights (i8 with i4 only). c, bias, d, pre and saved are
 * float, each its own type; sums are in f32 (f32 products are true f32). With d of type i32 (from i8, and always from
 * i32) the result is exact modulo 2^32: c, bias and pre are then i32, alpha is 1, beta 0 or 1, and there are no scales
 * and no activation; dbias is not given. With other d the sums of i8 (with GROUP, of each group) are i32 as well: up to
 * 131071 k's they fit whatever a and b are, beyond it they may wrap. An i4 matrix is packed along a dimension of stride
 * 1; all its other strides are even. b of type u8 is the same bytes, for callers whose arrays have no i4: [..., K,
 * N/2], or, where it has not as many rows as a has columns, [..., ceil(K/2), N].
 *
 * Hopper's tensor cores keep about 13 bits of a sum of fp8 products. There the sums of each 128 k's are added in f32;
 * with fast_accum they need not be, which is faster and less exact the longer K is. The CPU and the kernels for other
 * GPUs sum fp8 products in f32 with and without it.
 *
 * A weight's value with GROUP scaling is (b - b_zero) * b_scale, both taken from group k / group of its column.
 * bias is [N], or [M] with bias_rows. Gated: v is [..., M, N] and d is [..., M, N/2]: act(gate) * up.
 * pre: v, rounded to its type. With saved (the pre that forward gave), d = v * act'(saved) instead of act(v).
 * dbias: the sums of d over all its rows and batches, before d is rounded, in a fixed order. Neither goes with gated.
 * K = 0 gives a product of zeros. With beta 0, c is not read. d may be c (the same memory, exactly).
 *
 * With b_packed, b's data is what gemm_pack wrote, and b's shape [K, N] and type are those of the matrix that was
 * packed; all else is as without it, and so is every bit of the result. */
typedef struct saker_gemm_args {
    uint64_t struct_size;
    const saker_tensor *a;       /* [..., M, K] */
    const saker_tensor *b;       /* [..., K, N]; u8: see above */
    const saker_tensor *c;       /* ? [..., M, N] float, or i32 */
    const saker_tensor *bias;    /* ? [N] or [M] float, or i32 */
    const saker_tensor *a_scale; /* ? f32, as scaling says; absent: 1. With a scaling, this or b_scale */
    const saker_tensor *b_scale; /* ? f32, as scaling says; absent: 1 */
    const saker_tensor *b_zero;  /* ? i8 or f32, b_scale's shape: GROUP only; absent: 0 */
    const saker_tensor *saved;   /* ? [..., M, N] float: forward's pre */
    const saker_tensor *d;       /* out: [..., M, N], gated [..., M, N/2]; float, or i32 */
    const saker_tensor *pre;     /* ? out: [..., M, N] float, or i32 */
    const saker_tensor *dbias;   /* ? out: [N] float */
    int64_t group;               /* GROUP: rows of b that share a scale; otherwise 0 */
    float alpha;                 /* 0: 1 */
    float beta;                  /* 0: c is not read */
    int32_t scaling;             /* saker_gemm_scaling */
    int32_t act;                 /* saker_act; SWIGLU_OAI with alpha 1.702 and limit 7 */
    int32_t gated;               /* saker_gated */
    int32_t bias_rows;           /* 1: bias is [M], one for each row */
    int32_t accumulate;          /* 1: dbias += instead of = */
    int32_t allow_tf32;          /* 1: a GPU may round f32 inputs to tf32 */
    int32_t fast_accum;          /* 1: a GPU may keep the sums of fp8 products short, as above */
    int32_t schedule;            /* saker_gemm_schedule */
    int32_t b_packed;            /* 1: b is [K, N] as gemm_pack wrote it; CPU only */
    int32_t reserved;            /* 0 */
} saker_gemm_args;
SAKER_API saker_status saker_gemm(saker_context *ctx, const saker_gemm_args *args);

/* gemm_pack: b of gemm in the order in which this context's kernels read it, for weights that are used many times (CPU
 * only; a GPU reads b as it lies).
 *
 * b is one matrix (u8: i4, two in a byte along the dimension of stride 1); scaling, group, gated, b_scale and b_zero
 * are those that gemm will be given (those of groups and blocks are two-dimensional), and for_a is the type of its a
 * where that is not b's own (fp8: any fp8). bytes is how many bytes packed must have at least; without packed only
 * bytes is written. packed is then b's data for gemm, with b_packed. It is at a multiple of 16 bytes (64 is faster),
 * and is for contexts of this library on the same instruction-set level; gemm refuses one that was made for something
 * else. b_scale and b_zero must not change in between.
 *
 * packed has the types that are multiplied: i4 and i8 weights beside floats take 2 to 8 times their memory there. Up to
 * 16 rows of a they are best left as they lie, which is faster then, for one row up to four times. */
typedef enum saker_gemm_for {
    SAKER_GEMM_FOR_SAME = 0, /* a has b's type */
    SAKER_GEMM_FOR_F16 = 1,
    SAKER_GEMM_FOR_BF16 = 2,
    SAKER_GEMM_FOR_I8 = 3
} saker_gemm_for;

typedef struct saker_gemm_pack_args {
    uint64_t struct_size;
    const saker_tensor *b;       /* [K, N] */
    const saker_tensor *b_scale; /* ? f32, as scaling says */
    const saker_tensor *b_zero;  /* ? i8 or f32, b_scale's shape: GROUP only */
    const saker_tensor *packed;  /* ? out: u8 [bytes or more] */
    const saker_tensor *bytes;   /* ? out: i64, one element: how many bytes packed needs */
    int64_t group;               /* GROUP: rows of b that share a scale; otherwise 0 */
    int32_t scaling;             /* saker_gemm_scaling */
    int32_t gated;               /* saker_gated */
    int32_t for_a;               /* saker_gemm_for */
    int32_t reserved;            /* 0 */
} saker_gemm_pack_args;
SAKER_API saker_status saker_gemm_pack(saker_context *ctx, const saker_gemm_pack_args *args);

/* grouped_gemm: a product for each of G groups: of rows of a (the experts of a mixture), or of k's (the gradients of
 * their weights). Group g has rows (k's) offsets[g] to offsets[g + 1] - 1, any number of them, of T in all.
 *
 * Groups of rows: d[r] = act(v), v = alpha * scales * (a[r] x b[g]) + bias[g], for each r of group g. a is [T, K], b is
 * [G, K, N], d is [T, N], gated [T, N/2]. With gather row r is row gather[r] of a, and with scatter it goes to row
 * scatter[r] of d: a and d then have any number of rows. Indices of scatter are all different; rows of d that it does
 * not name are not written. pre and saved are in the order of r; a_scale has the rows of a.
 * Groups of k's (along_k): d[g] = alpha * (a[:, t] x b[t, :]) + beta * c[g] over the t of group g. a is [M, T], b is
 * [T, N], c and d are [G, M, N]; d may be c (the same memory, exactly). There are no scales, bias, activation, gather
 * and scatter.
 *
 * Types, scales and activations are gemm's, with G in front of the shapes of b's scales; on the CPU a group has the
 * bits of gemm with its rows alone. A group without k's gives beta * c. offsets that do not begin with 0, fall, or end
 * elsewhere than at T are kept within those. Rows of no group give zeros in d and in pre; with scatter only in pre, and
 * the rows of d that they name are not written. A row whose gather is outside of a counts as a row of zeros; one whose
 * scatter is outside of d is dropped, its pre is written. saker_context_check then reports BAD_INDEX. A GPU reads
 * offsets, gather and scatter when the kernel runs; the host never waits for them. Its sizes are below 2^31. */
typedef struct saker_grouped_gemm_args {
    uint64_t struct_size;
    const saker_tensor *a;       /* [T, K]; along_k [M, T] */
    const saker_tensor *b;       /* [G, K, N], u8 as in gemm; along_k [T, N] */
    const saker_tensor *offsets; /* i32 or i64 [G + 1] */
    const saker_tensor *gather;  /* ? i32 or i64 [T] */
    const saker_tensor *scatter; /* ? i32 or i64 [T] */
    const saker_tensor *c;       /* ? [G, M, N]: along_k only */
    const saker_tensor *bias;    /* ? [G, N] */
    const saker_tensor *a_scale; /* ? f32, as scaling says, with a's rows */
    const saker_tensor *b_scale; /* ? f32, as scaling says: [G, N], [G, ceil(K/128), ceil(N/128)], ... */
    const saker_tensor *b_zero;  /* ? i8 or f32, b_scale's shape: GROUP only */
    const saker_tensor *saved;   /* ? [T, N] float: forward's pre */
    const saker_tensor *d;       /* out: [T, N], gated [T, N/2]; along_k [G, M, N] */
    const saker_tensor *pre;     /* ? out: [T, N] */
    int64_t group;               /* GROUP: rows of b that share a scale; otherwise 0 */
    float alpha;                 /* 0: 1 */
    float beta;                  /* 0: c is not read */
    int32_t scaling;             /* saker_gemm_scaling */
    int32_t act;                 /* saker_act */
    int32_t gated;               /* saker_gated */
    int32_t along_k;             /* 1: groups of k's */
    int32_t allow_tf32;          /* 1: a GPU may round f32 inputs to tf32 */
    int32_t fast_accum;          /* 1: a GPU may keep the sums of fp8 products short, see gemm */
} saker_grouped_gemm_args;
SAKER_API saker_status saker_grouped_gemm(saker_context *ctx, const saker_grouped_gemm_args *args);

/* What moe_route scores experts with, and what a group of experts is worth. */
typedef enum saker_moe_score {
    SAKER_MOE_SOFTMAX = 0, /* softmax over all experts */
    SAKER_MOE_SIGMOID = 1  /* 1 / (1 + exp(-logit)) of each */
} saker_moe_score;
typedef enum saker_moe_group_score {
    SAKER_MOE_GROUP_MAX = 0, /* the largest choice in the group */
    SAKER_MOE_GROUP_TOP2 = 1 /* the sum of its two largest choices (without bias: scores) */
} saker_moe_group_score;

/* moe_route: which k of E experts each of T tokens goes to, with which weights, and the tokens in the experts' order.
 *
 * score = softmax or sigmoid of the logits; choice = score + bias, without bias the logit itself, whose order is that
 * of the exact scores. With n_groups the experts are so many groups of neighbours, and only those of the top_groups
 * best groups can be chosen. ids are the k largest choices, descending; equal choices (and equal groups) by lower
 * index, NaN is larger than anything, -0 equals +0. weights are the scores of the chosen, without bias; with
 * renormalise divided by their sum (0 where that is 0; of a softmax this is the softmax over the k chosen logits alone,
 * and is computed so); times scale. A softmax of -inf only is zeros, one of a NaN or of +inf is NaN.
 *
 * Row t * k + j is the j-th choice of token t, tokens counted through all leading dimensions. counts is how many rows
 * each expert has, offsets where they begin when rows are sorted by expert (the last is T k), order which row stands at
 * each sorted place (those of an expert in their order), place the reverse of order, token the token that stands at a
 * place: order / k. grouped_gemm takes offsets, with token as gather and order as scatter. No output may share memory
 * with another tensor. */
typedef struct saker_moe_route_args {
    uint64_t struct_size;
    const saker_tensor *logits;  /* [..., E] float, E up to 1024 */
    const saker_tensor *bias;    /* ? [E] f32 */
    const saker_tensor *ids;     /* out: [..., k] i32, any strides */
    const saker_tensor *weights; /* ? out: [..., k] float, any strides */
    const saker_tensor *counts;  /* ? out: i32 [E]. With this or one of the next, T k is at most 2^30 */
    const saker_tensor *offsets; /* ? out: i32 [E + 1] */
    const saker_tensor *order;   /* ? out: i32 [T k] */
    const saker_tensor *place;   /* ? out: i32 [T k] */
    const saker_tensor *token;   /* ? out: i32 [T k] */
    int64_t n_groups;            /* 0: no groups; else it divides E */
    int64_t top_groups;          /* with n_groups: 1 to n_groups */
    float scale;                 /* 0: 1 */
    int32_t score;               /* saker_moe_score */
    int32_t group_score;         /* saker_moe_group_score */
    int32_t renormalise;         /* 1: weights are divided by their sum */
} saker_moe_route_args;
SAKER_API saker_status saker_moe_route(saker_context *ctx, const saker_moe_route_args *args);

/* moe_route_backward: the gradient of the logits through the weights, with the choice held fixed.
 *   g = scale * dweights;  p = weights / scale: scores of the chosen, or their shares with renormalise
 *   softmax: dlogits = [chosen] p g - s sum(p g),  s = score of the expert, with renormalise [chosen] p
 *   sigmoid: dlogits = [chosen] p (1 - score) (g - [renormalise] sum(p g)),  other experts have 0
 *
 * The ids of a row are distinct. One outside of [0, E) is left out, also of the sums, and saker_context_check then says
 * SAKER_BAD_INDEX. score, renormalise and scale are forward's; bias and groups have no part in it. */
typedef struct saker_moe_route_backward_args {
    uint64_t struct_size;
    const saker_tensor *dweights; /* [..., k] float, any strides */
    const saker_tensor *ids;      /* [..., k] i32, any strides: from forward */
    const saker_tensor *logits;   /* [..., E] float: forward's */
    const saker_tensor *dlogits;  /* out: [..., E] float */
    float scale;                  /* 0: 1 */
    int32_t score;                /* saker_moe_score */
    int32_t renormalise;
    int32_t reserved; /* 0 */
} saker_moe_route_backward_args;
SAKER_API saker_status saker_moe_route_backward(saker_context *ctx, const saker_moe_route_backward_args *args);

/* moe: experts of a gated (or plain) MLP, of which each token has k, and their weighted sum.
 *   y[t] = sum over j of weights[t, j] * z[place[t * k + j]],  j in order, in f32
 *   z[r] = down[e] h[r] + down_bias[e]
 *   h[r] = act(v), or gated act(gate) * up, of v = gate_up[e] x[token[r]] + gate_up_bias[e]
 * for the rows r of expert e, offsets[e] to offsets[e + 1] - 1, of T k in all. h and z are rounded to x's type.
 *
 * offsets, token and place are moe_route's. Offsets are kept within the rows as grouped_gemm does; rows of no expert
 * give z = 0. A token outside of x counts as a row of zeros, a place outside of the rows as z = 0.
 * saker_context_check reports all three as BAD_INDEX. Gated, gate_up has 2 I rows in the layout that gated names, else
 * I.
 *
 * The weights have x's type; or, with group, x is f16 or bf16 and both are i8 or both i4 in groups along their last
 * dimension: (weight - zero) * scale. i4 is packed along it, and u8 of half the width is the same bytes. The workspace
 * holds h and z, on a GPU in f16 and bf16 also the rows of x. y shares no memory with another tensor. */
typedef struct saker_moe_args {
    uint64_t struct_size;
    const saker_tensor *x;             /* [T, H] float */
    const saker_tensor *weights;       /* [T, k] float, any strides */
    const saker_tensor *offsets;       /* i32 or i64 [E + 1] */
    const saker_tensor *token;         /* i32 or i64 [T k] */
    const saker_tensor *place;         /* i32 or i64 [T k] */
    const saker_tensor *gate_up;       /* [E, 2 I, H], not gated [E, I, H] */
    const saker_tensor *down;          /* [E, H, I] of gate_up's type */
    const saker_tensor *gate_up_bias;  /* ? [E, 2 I] or [E, I] float */
    const saker_tensor *down_bias;     /* ? [E, H] float */
    const saker_tensor *gate_up_scale; /* ? f32 [E, 2 I or I, ceil(H/group)]: with group */
    const saker_tensor *gate_up_zero;  /* ? i8 or f32, gate_up_scale's shape; absent: 0 */
    const saker_tensor *down_scale;    /* ? f32 [E, H, ceil(I/group)]: with group */
    const saker_tensor *down_zero;     /* ? i8 or f32, down_scale's shape; absent: 0 */
    const saker_tensor *y;             /* out: [T, H] float */
    int64_t group;                     /* neighbours of a row that share a scale; 0: no scales */
    int32_t act;                       /* saker_act */
    int32_t gated;                     /* saker_gated */
    int32_t allow_tf32;                /* 1: a GPU may round f32 to tf32 in the products */
    int32_t reserved;                  /* 0 */
} saker_moe_args;
SAKER_API saker_status saker_moe(saker_context *ctx, const saker_moe_args *args);

/* What q_ids and k_ids of attention say. */
typedef enum saker_id_rule {
    SAKER_ID_SAME = 0, /* a query sees the keys whose id is its own: documents that share a sequence */
    SAKER_ID_UP_TO = 1 /* a query sees the keys whose id is at most its own: a prefix that all see (ids 0), then 1, 2,
                          ... for what follows, one by one or in blocks */
} saker_id_rule;

/* attention: o = softmax(s) v for each query head h, with the keys and values of head h / (Hq / Hk).
 *   s_ij = scale * q_i . k_j;  with softcap c: c * tanh(s / c);  + bias_ij;  - slope_h * |i + diagonal - j|;  masks
 *   p_ij = e^(s_ij - lse_i) over the keys that i sees;  lse_i = ln(sum over these of e^s_ij, + e^sink_h)
 *   o_i = sum over j of p_ij z_ij v_j;  z: dropout, 0 or 1 / (1 - dropout); without it 1
 *
 * Layouts as in rope. thd: cu_seqlens_q and cu_seqlens_k, [B + 1], say where each sequence's tokens begin (without
 * them all tokens are one sequence); i and j count from the sequence's first. D is 1 to 576, Dv 1 to 512; the last
 * dimension of q, k, v and o has stride 1. q, k and v have one type; o has any float type. GPUs with 99 KiB of shared
 * memory for a block (compute capability 8.6, 8.9, 12.0) refuse f32 products, here and in attention_backward, where D
 * or Dv is beyond 256. On any GPU lengths, batch and heads are below 2^28.
 *
 * diagonal: Sk - Sq (of the sequence), so that the last query sees the last key; with top_left 0. causal: i sees
 * j <= i + diagonal. has_window: i sees i + diagonal - window_left <= j <= i + diagonal + window_right; -1: no bound on
 * that side. q_positions and k_positions replace i and j in these formulas, in ALiBi and in dropout's counter
 * (where one is absent, its index counts); the diagonal is then 0. bias (float), mask (nonzero: seen) and their
 * gradients stay indexed by i and j; each is broadcast to [B, Hq, Sq, Sk] (thd: the longest Sq and Sk; a longer
 * sequence is cut off there, with SAKER_BAD_INDEX), any strides. key_mask (nonzero: seen) and ids: one for each token.
 * A score of -infinity, from a bias or otherwise, is a key that is not seen. A query that sees nothing gives o = 0 and
 * lse = -infinity (with a sink: the sink). What is not seen has no effect, even if it is NaN or infinite.
 *
 * Dropout keeps an element when its uniform is >= dropout. The uniform is (word >> 8) 2^-24 of word j mod 4 of
 * Philox4x32-10 with key seed and counter (j / 4, i, b * Hq + h, offset); the same on every device.
 *
 * Sums are f32. p is rounded to v's type before it multiplies v, where that is a half type. Quantised q, k, v:
 *   i8 q, k, v             scores from exact integer sums times scale and descales; p and v are in o's type
 *   i8 q, k, v and p_scale e^(s - the maximum so far) is quantised too: round(p / p_scale), at most 127; then dropout
 *   float q, i8 k, v       k and v are brought to q's type before each product, or stay f32 where that is multiplied
 *   e4m3 q, k, v           as the first, in fp8
 * value = code * descale. A descale is f32 [H], [B, H] or, with descale_block n, [B, H, ceil(S / n)]: one for n
 * neighbouring tokens (thd: of the longest S). H is Hq for q_descale and Hk for the others; e4m3: Hk for all, and no
 * descale_block. Absent: 1. quantize prepares them: quant ROW with descale_block 1, or BLOCK2D with 128 for D up to
 * 128.
 *
 * cu_seqlens that does not begin with 0, falls, or does not end with the number of tokens is cut to rise within it;
 * tokens of no sequence give zeros and lse = -infinity, and SAKER_BAD_INDEX is set (saker_context_check). max_q and
 * max_k may say how long the longest sequence is: hints, which change no result. o shares memory with no other
 * tensor. */
typedef struct saker_attention_args {
    uint64_t struct_size;
    const saker_tensor *q;            /* [B, Sq, Hq, D], [B, Hq, Sq, D] or [Tq, Hq, D]: float, i8 or e4m3 */
    const saker_tensor *k;            /* [B, Sk, Hk, D], ...; q's type, or i8 beside a float q */
    const saker_tensor *v;            /* [B, Sk, Hk, Dv], ...; k's type */
    const saker_tensor *o;            /* out: [B, Sq, Hq, Dv], ...; float */
    const saker_tensor *lse;          /* ? out: f32 [B, Hq, Sq]; thd: [Hq, Tq] */
    const saker_tensor *bias;         /* ? float, repeated to [B, Hq, Sq, Sk] */
    const saker_tensor *mask;         /* ? bool or u8, repeated to [B, Hq, Sq, Sk] */
    const saker_tensor *key_mask;     /* ? bool or u8 [B, Sk]; thd: [Tk] */
    const saker_tensor *slopes;       /* ? f32 [Hq] or [B, Hq]: ALiBi */
    const saker_tensor *sinks;        /* ? f32 [Hq] */
    const saker_tensor *cu_seqlens_q; /* ? i32 [B + 1], layout thd; both or none */
    const saker_tensor *cu_seqlens_k; /* ? i32 [B + 1] */
    const saker_tensor *q_positions;  /* ? i32 [B, Sq]; thd: [Tq] */
    const saker_tensor *k_positions;  /* ? i32 [B, Sk]; thd: [Tk] */
    const saker_tensor *q_ids;        /* ? i32 [B, Sq]; thd: [Tq]; both or none */
    const saker_tensor *k_ids;        /* ? i32 [B, Sk]; thd: [Tk] */
    const saker_tensor *q_descale;    /* ? f32; quantised q, k, v */
    const saker_tensor *k_descale;    /* ? f32 */
    const saker_tensor *v_descale;    /* ? f32 */
    int64_t seed;                     /* dropout: any 64 bits */
    int64_t offset;                   /* dropout: 0 to 2^32 - 1 */
    int64_t window_left;              /* with has_window: 0 or more, or -1 */
    int64_t window_right;             /* with has_window: 0 or more, or -1 */
    int64_t descale_block;            /* tokens that share a descale; 0: all of a head */
    int64_t max_q, max_k;             /* thd: the longest sequence; 0: not known */
    float scale;                      /* 0: 1 / sqrt(D) */
    float softcap;                    /* 0: none */
    float dropout;                    /* 0 <= dropout < 1: the share of p that is left out */
    float p_scale;                    /* i8: 0: p stays float; 1 / 127 uses the whole range */
    int32_t layout;                   /* saker_layout */
    int32_t causal;
    int32_t top_left; /* 1: the diagonal is i = j */
    int32_t has_window;
    int32_t id_rule;  /* saker_id_rule */
    int32_t reserved; /* 0 */
} saker_attention_args;
SAKER_API saker_status saker_attention(saker_context *ctx, const saker_attention_args *args);

/* attention_backward: the gradients of attention. With delta_i = d_o_i . o_i and dp_ij = z_ij (d_o_i . v_j):
 *   ds_ij = p_ij (dp_ij - delta_i + dlse_i);  du = ds, with softcap ds (1 - tanh^2)
 *   dq_i = scale * sum over j of du_ij k_j;  dk_j = scale * sum over i, and over the heads that share it, of du_ij q_i
 *   dv_j = sum over these of p_ij z_ij d_o_i;  dbias = ds, summed over what bias repeats
 *   dslopes = - sum of ds_ij |i + diagonal - j|;  dsinks = sum over i of e^(sink - lse_i) (dlse_i - delta_i)
 *
 * q, k, v and all options are what forward was given, o and lse what it gave (p is computed again from lse; where that
 * is -infinity, or 2^26 or more in size, p is 0: rows that see nothing, or are masked by large finite numbers). They
 * are float: a quantised forward has the gradients of its dequantised inputs. d_o has o's
 * type and shape; dlse, of lse's shape, is a gradient that arrives at lse. p and ds are rounded to q's type before
 * they multiply, where that is a half type; sums are f32. Any output may be left out, but not all; each gradient has
 * its tensor's shape and any float type (dbias: bias's, dslopes and dsinks: f32). With accumulate all of them are added
 * to what the tensors hold. Deterministic; with SAKER_ALLOW_NONDETERMINISTIC a GPU may add dq in any order. Tokens of
 * no sequence give zeros, and so does the part of a padded dbias that no sequence reaches. */
typedef struct saker_attention_backward_args {
    uint64_t struct_size;
    const saker_tensor *d_o;          /* o's shape and type */
    const saker_tensor *q;            /* float, as all up to k_ids as in forward */
    const saker_tensor *k;            /* q's type */
    const saker_tensor *v;            /* q's type */
    const saker_tensor *o;            /* float */
    const saker_tensor *lse;          /* f32 [B, Hq, Sq]; thd: [Hq, Tq] */
    const saker_tensor *dlse;         /* ? f32, lse's shape */
    const saker_tensor *bias;         /* ? */
    const saker_tensor *mask;         /* ? */
    const saker_tensor *key_mask;     /* ? */
    const saker_tensor *slopes;       /* ? */
    const saker_tensor *sinks;        /* ? */
    const saker_tensor *cu_seqlens_q; /* ? */
    const saker_tensor *cu_seqlens_k; /* ? */
    const saker_tensor *q_positions;  /* ? */
    const saker_tensor *k_positions;  /* ? */
    const saker_tensor *q_ids;        /* ? */
    const saker_tensor *k_ids;        /* ? */
    const saker_tensor *dq;           /* ? out: q's shape, float */
    const saker_tensor *dk;           /* ? out: k's shape, float */
    const saker_tensor *dv;           /* ? out: v's shape, float */
    const saker_tensor *dbias;        /* ? out: bias's shape and type */
    const saker_tensor *dslopes;      /* ? out: f32, slopes's shape */
    const saker_tensor *dsinks;       /* ? out: f32 [Hq] */
    int64_t seed;
    int64_t offset;
    int64_t window_left;
    int64_t window_right;
    int64_t max_q, max_k;
    float scale;
    float softcap;
    float dropout;
    int32_t layout;
    int32_t causal;
    int32_t top_left;
    int32_t has_window;
    int32_t id_rule;
    int32_t accumulate; /* 1: += instead of = */
    int32_t reserved;   /* 0 */
} saker_attention_backward_args;
SAKER_API saker_status saker_attention_backward(saker_context *ctx, const saker_attention_backward_args *args);

/* attention_merge: attention over two sets of keys from the results of each (sinks given to one of them only):
 *   lse = ln(e^lse_a + e^lse_b);  o = e^(lse_a - lse) o_a + e^(lse_b - lse) o_b
 *
 * In f32, rounded once. A part whose lse is -infinity has no effect, whatever its o holds; both: o = 0, lse =
 * -infinity. o_a and o_b have any float types. o may be o_a or o_b, lse may be lse_a or lse_b (the same memory,
 * exactly). */
typedef struct saker_attention_merge_args {
    uint64_t struct_size;
    const saker_tensor *o_a;   /* [B, S, H, D], [B, H, S, D] or [T, H, D] float, as layout says */
    const saker_tensor *lse_a; /* f32 [B, H, S]; thd: [H, T] */
    const saker_tensor *o_b;   /* o_a's shape, float */
    const saker_tensor *lse_b; /* lse_a's shape */
    const saker_tensor *o;     /* out: o_a's shape, float */
    const saker_tensor *lse;   /* ? out: f32, lse_a's shape */
    int32_t layout;            /* saker_layout */
    int32_t reserved;          /* 0 */
} saker_attention_merge_args;
SAKER_API saker_status saker_attention_merge(saker_context *ctx, const saker_attention_merge_args *args);

/* attention_decode: attention of a few new queries against a cache of keys and values, with what goes into the cache:
 *   total_b = lengths[b] + Sn;  token lengths[b] + n of the caches of sequence b becomes k_new[b, n] and v_new[b, n]
 *   o_bi = softmax over j < total_b of s_bij, times v_bj;  i sits at position total_b - Sq + i
 * with s, softcap, ALiBi, window and sinks as in attention, where Sk is total_b: the last query sits at the last key.
 *
 * Token j of sequence b is row j of batch b of a cache [B, Smax, Hk, D]. With block_table it is row j % page_size of
 * page block_table[b, j / page_size] of a cache [pages, page_size, Hk, D]; pages may belong to several sequences, but
 * a row that two of them append to holds what either wrote. The capacity, Smax or max_pages * page_size, is at least
 * Sn. lengths say how many tokens there are before the call; the caller advances them. Without v_cache a row of k_cache
 * begins with its value: V is its first Dv columns, and k_new, where given, is all that is appended (multi-head latent
 * attention: Hk = 1, D = 576, Dv = 512). D is 1 to 576, Dv 1 to 512, Sq 1 to 16; the last dimension of q, o, k_new,
 * v_new and the caches has stride 1.
 *
 * cos and sin, tables [positions, R/2] as in rope (interleaved, too), rotate columns rotary_offset to rotary_offset +
 * R - 1 of k_new and of q at their positions; q is then rounded to its type. Without k_new they rotate q alone.
 *
 * The caches are of q's type, or both of i8, e4m3 or i4 (two in a byte along D, as quantize writes them; also given as
 * u8 [..., ceil(D/2)]). Then value = code * scale, k_scale for k_cache and v_scale for v_cache, f32 of any strides:
 *   [..., Hk]     the cache's shape without the last dimension: one for each token and head
 *   [..., Hk, G]  G of these, each for D / G neighbouring columns
 *   [Hk]          one for each head, given and only read (i8 and e4m3); absent: 1
 * k_new and v_new become codes as in quantize, with such a dynamic scale (written), or the given one. What is attended
 * is what the cache then holds: the same as a later call would see.
 *
 * Sums are f32, and so is p. split: that many keys at a time are one part, summed apart from the others; the parts are
 * merged in their order. 0: chosen by B, Hk and the capacity alone (on a GPU also by its number of multiprocessors);
 * with a given split the bits of a row do not depend on anything but its own sequence. The workspace holds o in f32 for
 * each part of sequences as long as the capacity; chosen parts are so long that these are about 128 MiB at most.
 *
 * Values of lengths and block_table are not trusted: a length below 0 counts as 0, one above the capacity less Sn as
 * that. Keys of a page that does not exist are not seen, and what would be appended to it is dropped. A position
 * outside of cos and sin counts as the nearest inside. All three set SAKER_BAD_INDEX (saker_context_check); entries of
 * block_table that no query sees a key of, and nothing is appended to, may hold anything. What is not seen has no
 * effect, even if it is NaN. A query that sees nothing gives o = 0 and lse = -infinity (with a sink: the sink). o, lse
 * and, with k_new, the caches and their written scales share memory with no other tensor. */
typedef struct saker_attention_decode_args {
    uint64_t struct_size;
    const saker_tensor *q;           /* [B, Sq, Hq, D] float */
    const saker_tensor *k_cache;     /* [B, Smax, Hk, D] or [pages, page_size, Hk, D]; with k_new also out */
    const saker_tensor *v_cache;     /* ? k_cache's type and shape, with Dv; with v_new also out */
    const saker_tensor *lengths;     /* i32 [B] */
    const saker_tensor *o;           /* out: [B, Sq, Hq, Dv] float */
    const saker_tensor *lse;         /* ? out: f32 [B, Hq, Sq] */
    const saker_tensor *block_table; /* ? i32 [B, max_pages] */
    const saker_tensor *k_new;       /* ? [B, Sn, Hk, D] float */
    const saker_tensor *v_new;       /* ? [B, Sn, Hk, Dv] float; with k_new and v_cache */
    const saker_tensor *cos;         /* ? [positions, R/2] float */
    const saker_tensor *sin;         /* ? cos's shape and type; both or none */
    const saker_tensor *k_scale;     /* ? f32, codes; with k_new also out, unless [Hk] */
    const saker_tensor *v_scale;     /* ? f32, codes; with v_new also out, unless [Hk] */
    const saker_tensor *slopes;      /* ? f32 [Hq] or [B, Hq]: ALiBi */
    const saker_tensor *sinks;       /* ? f32 [Hq] */
    int64_t window_left;             /* with has_window: 0 or more, or -1 */
    int64_t window_right;            /* with has_window: 0 or more, or -1 */
    int64_t split;                   /* keys of a part; 0: chosen */
    int64_t rotary_offset;           /* with cos: columns before the rotated ones */
    float scale;                     /* 0: 1 / sqrt(D) */
    float softcap;                   /* 0: none */
    int32_t causal;
    int32_t has_window;
    int32_t interleaved; /* with cos: 1: pairs are neighbours, 0: R/2 apart */
    int32_t reserved;    /* 0 */
} saker_attention_decode_args;
SAKER_API saker_status saker_attention_decode(saker_context *ctx, const saker_attention_decode_args *args);

/* stream: the bandwidth probe. Reads x0..x3 and writes y0, y1, as many as are given, each byte once.
 * Every output element is the exclusive-or of the input elements at its place (0x5a in each byte without inputs), so
 * x0 -> y0 is a copy. With checksum, the exclusive-or of all 8-byte words of all inputs is written there (a read-only
 * probe needs it). All others: compact, the same number of bytes, a multiple of 8, 8-byte aligned, any type but i4. */
typedef struct saker_stream_args {
    uint64_t struct_size;
    const saker_tensor *x0, *x1, *x2, *x3; /* ? */
    const saker_tensor *y0, *y1;           /* ? out */
    const saker_tensor *checksum;          /* ? out: i64, one element */
} saker_stream_args;
SAKER_API saker_status saker_stream(saker_context *ctx, const saker_stream_args *args);

/* ================================================================ 6. Memory and time
 *
 * Small helpers for programs and tests that would otherwise need the CUDA runtime. Nothing else in the library uses
 * them. */

/* Memory on the context's device, 256-byte aligned (CPU: huge pages where the system gives them). */
SAKER_API saker_status saker_memory_alloc(saker_context *ctx, size_t bytes, void **memory);
SAKER_API saker_status saker_memory_free(saker_context *ctx,
                                         void *memory); /* waits for the context's stream; NULL is fine */
/* Copies between host and the context's device, or within either, in stream order, and waits for it. */
SAKER_API saker_status saker_memory_copy(saker_context *ctx, void *to, const void *from, size_t bytes);
/* Waits for the context's stream (CUDA). */
SAKER_API saker_status saker_context_sync(saker_context *ctx);
/* Runs the call once to warm up, then n times, and stores each run's microseconds (CUDA: events around the launch; CPU:
 * the clock). flush_bytes > 0: before each run so many bytes of other memory are written, so that no cache holds the
 * tensors. */
SAKER_API saker_status saker_measure(saker_context *ctx, const char *op, const void *args, int32_t n,
                                     size_t flush_bytes, double *microseconds);

/* ================================================================ 7. The library describes itself
 *
 * Every argument struct has a table of its fields. Bindings, the command and the tests are driven by it. */

typedef enum saker_field_kind {
    SAKER_FIELD_IN = 0,    /* const saker_tensor *, read */
    SAKER_FIELD_OUT = 1,   /* const saker_tensor *, written */
    SAKER_FIELD_INOUT = 2, /* const saker_tensor *, read or written as an option says */
    SAKER_FIELD_F32 = 3,   /* float; must be finite */
    SAKER_FIELD_BOOL = 4,  /* int32_t, 0 or 1 */
    SAKER_FIELD_ENUM = 5,  /* int32_t, 0 .. number of choices - 1 */
    SAKER_FIELD_I64 = 6,   /* int64_t; the operation says which values it takes */
    SAKER_FIELD_F64 = 7    /* double; must be finite */
} saker_field_kind;

typedef struct saker_field {
    const char *name;
    const char *doc;  /* one line */
    int32_t kind;     /* saker_field_kind */
    int32_t required; /* tensors: must not be NULL */
    uint32_t offset;  /* in the argument struct */
    uint32_t reserved;
    const uint32_t *types; /* tensors: accepted saker_type values, ended by 0 */
    const char *choices;   /* enums: names in order, "none|tensor|row|block" */
    double default_value;  /* what zero means */
} saker_field;

typedef struct saker_op_info {
    const char *name;
    const char *doc; /* one line */
    const saker_field *fields;
    int32_t n_fields;
    uint32_t args_size; /* sizeof the argument struct in this library */
} saker_op_info;

SAKER_API int32_t saker_op_count(void);
SAKER_API const saker_op_info *saker_op_at(int32_t index);      /* NULL outside [0, count) */
SAKER_API const saker_op_info *saker_op_find(const char *name); /* NULL if unknown */
/* The call behind every saker_<op>(): args is that operation's struct. */
SAKER_API saker_status saker_call(saker_context *ctx, const saker_op_info *op, const void *args);

/* "0.1.0"; the build line says compiler, levels and whether CUDA kernels are inside. */
SAKER_API const char *saker_version(void);
SAKER_API const char *saker_build_info(void);

/* CPU instruction-set levels built into this library, lowest first. usable says whether this machine can run it;
 * why_not is "" or the reason. */
typedef struct saker_level_info {
    const char *name;
    int32_t usable;
    int32_t reserved;
    const char *why_not;
} saker_level_info;
SAKER_API int32_t saker_level_count(void);
SAKER_API saker_level_info saker_level_at(int32_t index);
/* Threads a context with threads = 0 uses: allowed cores, cgroup quota (v1 and v2), SAKER_THREADS. */
SAKER_API int32_t saker_thread_count(void);

/* CUDA devices the driver shows. 0 with a sentence in *why (never NULL afterwards) when there are none. why may be
 * NULL. */
typedef struct saker_cuda_info {
    char name[128];
    int32_t compute_major, compute_minor;
    int32_t multiprocessors;
    int32_t driver_version; /* 13000 for 13.0 */
    int64_t memory_bytes;
    int64_t l2_bytes;
    int64_t shared_bytes; /* per block, after opting in */
    int32_t has_image;    /* this library holds kernels that run on it */
    int32_t reserved;
} saker_cuda_info;
SAKER_API int32_t saker_cuda_count(const char **why);
SAKER_API saker_status saker_cuda_at(int32_t index, saker_cuda_info *info);

#ifdef __cplusplus
} /* extern "C" */
template <class Args> inline Args saker_sized()
{
    Args a = Args();
    a.struct_size = sizeof(Args);
    return a;
}
#endif

#endif /* SAKER_H */
