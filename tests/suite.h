/* suite.h - what an op's <op>_test.c provides: cases and oracle, for the runner, `saker check` and `saker bench`.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Test-side only: nothing here is linked into the library. suite_case.c holds the helpers declared at the end. */
#ifndef SUITE_H
#define SUITE_H

#include <stdbool.h>
#include <stdint.h>

#include "saker.h"

typedef enum suite_fill {
    SUITE_NORMAL,      /* N(0,1) */
    SUITE_UNIFORM,     /* U(-2,2) */
    SUITE_ZERO,        /* of both signs in turn */
    SUITE_CONSTANT,    /* 3.0 everywhere */
    SUITE_LARGE,       /* N(0,1) times 1e4, clipped to the type */
    SUITE_HUGE,        /* N(0,1) times 1e15, clipped to the type: squares stay finite in f32, cubes do not */
    SUITE_TINY,        /* denormals of the type and around */
    SUITE_MAX,         /* plus or minus the largest finite value of the type */
    SUITE_ALTERNATING, /* +1, -1, ... */
    SUITE_ONE_NAN,     /* normal, one NaN in the middle row */
    SUITE_ONE_INF,     /* normal, one infinity in the middle row */
    SUITE_POSITIVE,    /* U(0.5, 2): weights, scales, rstd */
    SUITE_OFFSET,      /* 1000 + N(0,1) */
    SUITE_BITS,        /* any bit pattern (integers only) */
    SUITE_EDGES,       /* normal, but the first and last of each row are as large as all others together: sqrt(N) */
    SUITE_RANGE,       /* whole numbers from low to high */
    SUITE_COUNT,       /* low, low + 1, low + 2, ... */
    SUITE_TIES,        /* multiples of 1/4 in [-1, 1]: many are equal */
    SUITE_MASKED,      /* normal; a third is -infinity, and so is the whole first row */
    SUITE_CUTS,        /* low, whole numbers that never fall, high: where packed sequences begin, and their end */
    SUITE_MIXED,       /* low, low + 1, ... each once, in another order */
    SUITE_MINUS_NAN    /* as SUITE_ONE_NAN, with the sign bit set */
} suite_fill;

typedef enum suite_role {
    SUITE_IN,   /* read, unchanged afterwards */
    SUITE_OUT,  /* written, whatever it held */
    SUITE_INOUT /* read and written: accumulated into */
} suite_role;

/* What of a tensor's shape no other argument fixes: another one there is no error. */
typedef enum suite_free { SUITE_FIXED, SUITE_ANY_WIDTH, SUITE_ANY_SHAPE } suite_free;

enum { SUITE_MAX_TENSORS = 28, SUITE_MAX_DIMS = 5, SUITE_ARGS_BYTES = 512, SUITE_NAME = 160 };

typedef struct suite_tensor {
    const char *field; /* argument name */
    suite_role role;
    saker_type type;
    int ndim;
    int64_t shape[SUITE_MAX_DIMS];
    int64_t stride[SUITE_MAX_DIMS]; /* all 0: compact */
    suite_fill fill;
    double factor;     /* on what the fill draws, before it is rounded; 0: 1 */
    const char *alias; /* NULL, or the field whose memory this one shares exactly (that one comes first) */
    int align;         /* bytes that the op demands; 0: the element's own */
    int64_t low, high; /* SUITE_RANGE, SUITE_COUNT, SUITE_CUTS */
    suite_free free_shape;
} suite_tensor;

/* Where a case is used. Cases without SUITE_CHECK may be gigabytes: nothing is allocated by the table. */
typedef enum suite_use {
    SUITE_CHECK = 1,       /* correctness, on every level and device */
    SUITE_BENCH = 2,       /* CPU bench, larger than any cache */
    SUITE_DEMO = 4,        /* also part of `make demo`, on the device that the other bits name */
    SUITE_CACHE = 8,       /* CPU bench, in cache */
    SUITE_BENCH_CUDA = 16, /* GPU bench */
    SUITE_CPU_ONLY = 32,   /* CHECK is not for a GPU: there is no kernel for it yet */
    SUITE_ALL = 64,        /* correctness, only when everything is asked for (runner --all) */
    SUITE_GPU_SIZED = 128  /* CHECK is as large as a GPU's waves of tiles: on the CPU only with --all */
} suite_use;

typedef struct suite_case {
    char name[SUITE_NAME]; /* unique within the op; can be pasted back with --case */
    int use;               /* suite_use bits */
    int n_tensors;
    suite_tensor tensor[SUITE_MAX_TENSORS];
    /* The argument struct: struct_size and options set, tensors NULL. */
    _Alignas(8) unsigned char args[SUITE_ARGS_BYTES];
    /* Text that saker_context_kernel() must contain, or NULL. portable_kernel: on a GPU, without Hopper's own kernels.
     */
    const char *cpu_kernel, *cuda_kernel, *portable_kernel;
    double bytes, flops; /* the least the operation must move and compute */
    int reads, writes;   /* streams, for a probe of the same shape; bytes are split evenly */
    int check;           /* what saker_context_check() reports afterwards; SUITE_ANY_CHECK: not known */
    const char *ran;     /* for the oracle: the kernel that is judged, where its bound depends on it; else NULL */
} suite_case;

enum { SUITE_ANY_CHECK = -1 };

/* How a one-row case sits in its parent: tensor i of the row is elements first[i] ... of the parent's tensor i (logical
 * order); first[i] < 0: an output that cannot be compared (a sum over rows). */
typedef struct suite_slice {
    int64_t first[SUITE_MAX_TENSORS];
} suite_slice;

typedef struct suite {
    const char *op;
    /* Stores case i and returns true, or returns false when there is none. */
    bool (*at)(int i, suite_case *out);
    /* value[i] are the elements of tensor i in logical order, as double. Inputs (and INOUT tensors) arrive filled; the
     * oracle fills the outputs and, per element, how far a correct kernel may be off (bound, from the magnitudes that
     * were summed; half an output ulp included). A NaN value means NaN is required. An aliased output has its own value
     * and bound array. bound[i] of inputs is NULL. */
    void (*oracle)(const suite_case *c, double *const *value, double *const *bound);
    /* The same in plain float, the way one would write it first, rounded to the output types: what an honest simple
     * kernel gives. May be NULL (exact ops). */
    void (*plain)(const suite_case *c, double *const *value);
    /* Row ops: the case that computes row `row` alone. Returns the number of rows (also when one is NULL); NULL if not
     * a row op. */
    int64_t (*row)(const suite_case *c, int64_t row, suite_case *one, suite_slice *slice);
    /* Whether on a GPU a row alone goes to another kernel, and so has other bits than among others; NULL: never. */
    bool (*cuda_rows_vary)(const suite_case *c);
    /* Part of the names of kernels whose instructions are less exact than all others', or NULL. Only for them
     * suite_case.ran is set. */
    const char *inexact;
} suite;

#define SKR_OP(name) extern const suite skr_suite_##name;
#include "../src/core/ops.def"
#undef SKR_OP

/* ---------------------------------------------------------------- helpers (suite_case.c) */

/* What the case says about the kernel that ran, or NULL: on GPUs with less shared memory than Hopper's another one may
 * be taken. */
const char *suite_kernel_of(const suite_case *c, bool cuda, const char *ran);

/* What goes to suite_case.ran. */
const char *suite_judged(const suite *s, const char *ran);

/* All suites in ops.def order. */
int suite_count(void);
const suite *suite_at(int i);
const suite *suite_find(const char *op);

int64_t suite_elements(const suite_tensor *t);
int suite_type_bytes(saker_type type);
/* Strides that are in force: given, or compact. */
void suite_strides(const suite_tensor *t, int64_t *stride);
/* Bytes from the first element's first byte to the last element's last byte; 0 when empty. */
int64_t suite_span_bytes(const suite_tensor *t);
bool suite_compact(const suite_tensor *t);
/* Fills value with tensor i's contents: a pure function of (case name, tensor, seed), already rounded to the tensor's
 * type. */
void suite_values(const suite_case *c, int i, uint64_t seed, double *value);
/* Between logical values and memory; data points at element 0. */
void suite_store(const suite_tensor *t, const double *value, void *data);
void suite_load(const suite_tensor *t, const void *data, double *value);
/* The same with the elements' bytes as they are, packed in logical order. */
void suite_scatter(const suite_tensor *t, const void *packed, void *data);
void suite_gather(const suite_tensor *t, const void *data, void *packed);
/* i4: puts the spare nibbles of rows of odd width in `from` in place of those in data. False: one in data was not 0, as
 * who writes the row leaves it. */
bool suite_spare_from(const suite_tensor *t, const void *from, void *data);
/* A descriptor for data; shape and strides are borrowed from t, strides NULL when compact. */
saker_tensor suite_describe(const suite_tensor *t, void *data);
/* Copies the case's argument struct to args (SUITE_ARGS_BYTES) and points each tensor field at tensors[i]. False: no
 * such field. */
bool suite_bind(const suite *s, const suite_case *c, const saker_tensor *tensors, void *args);

#endif
