/* suite_list.h - a growing list of cases, the words and tensors that make one, and how an oracle finds them again.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SUITE_LIST_H
#define SUITE_LIST_H

#include <stddef.h>

#include "suite.h"

/* The types that operations compute with, and those they quantise rows to. */
static const saker_type floats[] = {SAKER_F32, SAKER_F16, SAKER_BF16};
static const saker_type quants[] = {SAKER_I8, SAKER_E4M3, SAKER_E5M2};

#define foreach(i, array) for (size_t i = 0; i < sizeof(array) / sizeof *(array); i++)
/* The leading dimensions of a description that has `lead` and `n_lead`. */
#define ROWS(...) .lead = {__VA_ARGS__}, .n_lead = sizeof((int[]){__VA_ARGS__}) / sizeof(int)

/* ---------------------------------------------------------------- memory */

/* Room for n things and one more, all zero; when there is none a sentence, and the program ends with 1. */
void *suite_room(int64_t n, size_t size);
/* The sentence and the end. */
_Noreturn void suite_no_room(void);

/* ---------------------------------------------------------------- lists */

typedef struct suite_list {
    suite_case *c;
    int n, room;
    int *index; /* [2 room] by name: 1 + its place in c, 0 empty */
} suite_list;

/* Adds a case; one of the same name gains its uses. A name says everything: what differs must not share one. */
void suite_list_add(suite_list *l, const suite_case *c);
bool suite_list_at(const suite_list *l, int i, suite_case *out);

/* Calls add(rows, columns, type, uses) for the shapes that a GPU is timed with: 2^27 elements in every width, and those
 * that QuACK publishes figures for. */
void suite_gpu_shapes(void (*add)(int64_t m, int64_t n, saker_type type, int use));

/* ---------------------------------------------------------------- names */

/* Appends to the case's name. */
__attribute__((format(printf, 2, 3))) void suite_say(suite_case *c, const char *format, ...);
/* "3x17x1000": n_lead numbers, and one more unless it is negative. */
void suite_say_shape(suite_case *c, int n_lead, const int64_t *lead, int64_t columns);
/* The word of each bit that is set. */
void suite_say_bits(suite_case *c, int bits, int n, const char *const *word);
const char *suite_type_text(saker_type type);
const char *suite_fill_text(suite_fill fill); /* "" for SUITE_NORMAL, else a space and a word */
const char *suite_quant_text(int quant);      /* "row" for SAKER_QUANT_ROW */

/* ---------------------------------------------------------------- tensors */

/* Adds a tensor that has no dimensions yet. */
suite_tensor *suite_add(suite_case *c, const char *field, suite_role role, saker_type type, suite_fill fill);
/* Adds a tensor [lead..., columns]; gap > 0: rows that many elements apart more than they need. columns < 0: no such
 * dimension. */
suite_tensor *suite_add_rows(suite_case *c, const char *field, suite_role role, saker_type type, int n_lead,
                             const int64_t *lead, int64_t columns, int64_t gap);

/* How a tensor's elements lie in memory. */
typedef enum suite_layout {
    SUITE_COMPACT,
    SUITE_PADDED,   /* a gap after the last dimension: rows further apart than they need */
    SUITE_PERMUTED, /* dimensions in the opposite order: they cannot be merged */
    SUITE_GAPPED,   /* a gap after each dimension: none can be merged */
    SUITE_EXPANDED, /* inputs: the first of several dimensions has stride 0 */
    SUITE_APART     /* as SUITE_GAPPED and dense, by 16 times the gap: rows are aligned as vectors need them */
} suite_layout;

const char *suite_layout_text(suite_layout layout); /* "" for SUITE_COMPACT, else a space and a word */
/* Strides of that layout for t's shape. dense: the elements of the last dimension stay side by side, as rows need them;
 * else SUITE_PERMUTED moves it too, and SUITE_GAPPED leaves out every other element. */
void suite_lay_out(suite_tensor *t, suite_layout layout, int64_t gap, bool dense);
/* A gap by the number of tensors so far: another one in each. */
int64_t suite_gap(const suite_case *c);
/* Lets t share the memory of an earlier field, of whose shape it is. */
void suite_share(const suite_case *c, suite_tensor *t, const char *field);

/* Bytes of all its tensors. */
double suite_all_bytes(const suite_case *c);

/* ---------------------------------------------------------------- reading a case */

/* The tensor of a field; -1: the case has none. */
int suite_index(const suite_case *c, const char *field);
/* The same in the oracle's hands: all NULL when it is absent; bound may be NULL. */
typedef struct suite_column {
    const suite_tensor *t;
    double *v, *bound;
} suite_column;
suite_column suite_column_of(const suite_case *c, double *const *value, double *const *bound, const char *field);
/* Product of all dimensions but the last. */
int64_t suite_row_count(const suite_tensor *t);

#endif
