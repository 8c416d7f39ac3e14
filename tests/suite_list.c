/* suite_list.c - see suite_list.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "suite_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- memory */

void suite_no_room(void)
{
    fflush(stdout);
    fputs("out of memory: no room for the cases or for what the oracle computes with\n", stderr);
    exit(1);
}

void *suite_room(int64_t n, size_t size)
{
    void *p = calloc((size_t)n + 1, size);
    if (!p)
        suite_no_room();
    return p;
}

/* ---------------------------------------------------------------- lists */

static bool same_text(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static bool same_tensors(const suite_case *a, const suite_case *b)
{
    bool same = a->n_tensors == b->n_tensors && !memcmp(a->args, b->args, sizeof a->args) && a->check == b->check;
    for (int i = 0; same && i < a->n_tensors; i++) {
        const suite_tensor *s = &a->tensor[i], *t = &b->tensor[i];
        same = !strcmp(s->field, t->field) && s->role == t->role && s->type == t->type && s->fill == t->fill &&
               s->ndim == t->ndim && !memcmp(s->shape, t->shape, sizeof s->shape) &&
               !memcmp(s->stride, t->stride, sizeof s->stride) && same_text(s->alias, t->alias) && s->low == t->low &&
               s->high == t->high;
    }
    return same;
}

/* The place in l->index for a case of that name: where it is, or the empty one where it would be. */
static int *place_of(const suite_list *l, const char *name)
{
    uint32_t hash = 2166136261u, mask = 2 * (uint32_t)l->room - 1;
    for (const char *p = name; *p; p++)
        hash = (hash ^ (uint8_t)*p) * 16777619u;
    while (l->index[hash & mask] && strcmp(l->c[l->index[hash & mask] - 1].name, name))
        hash++;
    return &l->index[hash & mask];
}

static void grow(suite_list *l)
{
    l->room = l->room ? 2 * l->room : 512;
    l->c = realloc(l->c, (size_t)l->room * sizeof *l->c);
    free(l->index);
    l->index = suite_room(2 * (int64_t)l->room, sizeof *l->index);
    if (!l->c)
        suite_no_room();
    for (int i = 0; i < l->n; i++)
        *place_of(l, l->c[i].name) = i + 1;
}

void suite_list_add(suite_list *l, const suite_case *c)
{
    if (l->n == l->room)
        grow(l);
    int *place = place_of(l, c->name);
    if (!*place) {
        l->c[l->n] = *c;
        *place = ++l->n;
        return;
    }
    suite_case *old = &l->c[*place - 1];
    if (!same_tensors(old, c)) {
        fprintf(stderr, "two different cases are named '%s'\n", c->name);
        exit(1);
    }
    old->use |= c->use;
}

bool suite_list_at(const suite_list *l, int i, suite_case *out)
{
    if (i < 0 || i >= l->n)
        return false;
    *out = l->c[i];
    return true;
}

void suite_gpu_shapes(void (*add)(int64_t m, int64_t n, saker_type type, int use))
{
    static const int64_t quack[][2] = {{32768, 256},   {32768, 512},  {32768, 1024}, {32768, 4096},  {32768, 8192},
                                       {16384, 16384}, {8192, 32768}, {2048, 65536}, {1024, 131072}, {512, 262144}};
    static const int64_t quack_f32[][2] = {{32768, 1024}, {32768, 4096}, {2048, 65536}, {512, 262144}};
    foreach (t, floats)
        for (int64_t n = 256; n <= 262144; n *= 2) {
            int demo = n == 4096 && floats[t] != SAKER_F16 ? SUITE_DEMO : 0;
            add(((int64_t)1 << 27) / n, n, floats[t], SUITE_BENCH_CUDA | demo);
        }
    foreach (i, quack)
        add(quack[i][0], quack[i][1], SAKER_BF16, SUITE_BENCH_CUDA);
    foreach (i, quack_f32)
        add(quack_f32[i][0], quack_f32[i][1], SAKER_F32, SUITE_BENCH_CUDA);
}

/* ---------------------------------------------------------------- names */

void suite_say(suite_case *c, const char *format, ...)
{
    size_t at = strlen(c->name);
    va_list list;
    va_start(list, format);
    vsnprintf(c->name + at, sizeof c->name - at, format, list);
    va_end(list);
}

void suite_say_shape(suite_case *c, int n_lead, const int64_t *lead, int64_t columns)
{
    for (int d = 0; d < n_lead; d++)
        suite_say(c, d ? "x%lld" : "%lld", (long long)lead[d]);
    if (columns >= 0)
        suite_say(c, n_lead ? "x%lld" : "%lld", (long long)columns);
}

void suite_say_bits(suite_case *c, int bits, int n, const char *const *word)
{
    for (int i = 0; i < n; i++)
        if (bits >> i & 1)
            suite_say(c, "%s", word[i]);
}

const char *suite_type_text(saker_type type)
{
    saker_dtype d = {(uint8_t)type, (uint8_t)((int)type >> 8), 1};
    return saker_type_name(d);
}

const char *suite_fill_text(suite_fill fill)
{
    static const char *const names[] = {"",        " uniform", " zero",        " constant", " large", " huge",
                                        " tiny",   " max",     " alternating", " nan",      " inf",   " positive",
                                        " offset", " bits",    " edges",       " range",    " count", " ties",
                                        " masked", " cuts",    " mixed",       " -nan"};
    return names[fill];
}

const char *suite_quant_text(int quant)
{
    static const char *const names[] = {"none", "tensor", "row", "block", "block2d", "group"};
    return names[quant];
}

/* ---------------------------------------------------------------- tensors */

suite_tensor *suite_add(suite_case *c, const char *field, suite_role role, saker_type type, suite_fill fill)
{
    suite_tensor *t = &c->tensor[c->n_tensors++];
    *t = (suite_tensor){.field = field, .role = role, .type = type, .fill = fill};
    return t;
}

suite_tensor *suite_add_rows(suite_case *c, const char *field, suite_role role, saker_type type, int n_lead,
                             const int64_t *lead, int64_t columns, int64_t gap)
{
    suite_tensor *t = suite_add(c, field, role, type, SUITE_NORMAL);
    for (int d = 0; d < n_lead; d++)
        t->shape[t->ndim++] = lead[d];
    if (columns >= 0)
        t->shape[t->ndim++] = columns;
    if (gap)
        suite_lay_out(t, SUITE_PADDED, gap, true);
    return t;
}

const char *suite_layout_text(suite_layout layout)
{
    static const char *const names[] = {"", " padded", " permuted", " gapped", " expanded", " apart"};
    return names[layout];
}

void suite_lay_out(suite_tensor *t, suite_layout layout, int64_t gap, bool dense)
{
    int last = t->ndim - 1;
    if (layout == SUITE_APART)
        layout = SUITE_GAPPED, gap *= 16, dense = true;
    int64_t next = layout == SUITE_GAPPED && !dense ? 2 : 1;
    if (layout == SUITE_COMPACT || last < 0 || (layout == SUITE_EXPANDED && t->role != SUITE_IN))
        return;
    if (layout == SUITE_PERMUTED) { /* the gap follows the dimension whose elements are closest */
        if (dense) {
            t->stride[last--] = 1;
            next = t->shape[last + 1] + gap;
        }
        for (int d = 0; d <= last; d++) {
            t->stride[d] = next;
            next = next * t->shape[d] + (d == 0 && !dense ? gap : 0);
        }
        return;
    }
    for (int d = last; d >= 0; d--) {
        t->stride[d] = next;
        next = next * t->shape[d] + (layout == SUITE_GAPPED || (layout == SUITE_PADDED && d == last) ? gap : 0);
    }
    if (layout == SUITE_EXPANDED && last > 0)
        t->stride[0] = 0;
}

int64_t suite_gap(const suite_case *c)
{
    return 1 + 2 * (c->n_tensors % 4);
}

void suite_share(const suite_case *c, suite_tensor *t, const char *field)
{
    const suite_tensor *other = &c->tensor[suite_index(c, field)];
    t->alias = field;
    t->type = other->type;
    memcpy(t->stride, other->stride, sizeof t->stride);
}

double suite_all_bytes(const suite_case *c)
{
    double total = 0;
    for (int i = 0; i < c->n_tensors; i++)
        total += (double)suite_elements(&c->tensor[i]) * suite_type_bytes(c->tensor[i].type);
    return total;
}

/* ---------------------------------------------------------------- reading a case */

int suite_index(const suite_case *c, const char *field)
{
    for (int i = 0; i < c->n_tensors; i++)
        if (!strcmp(c->tensor[i].field, field))
            return i;
    return -1;
}

suite_column suite_column_of(const suite_case *c, double *const *value, double *const *bound, const char *field)
{
    int i = suite_index(c, field);
    return i < 0 ? (suite_column){NULL, NULL, NULL} : (suite_column){&c->tensor[i], value[i], bound ? bound[i] : NULL};
}

int64_t suite_row_count(const suite_tensor *t)
{
    int64_t m = 1;
    for (int d = 0; d + 1 < t->ndim; d++)
        m *= t->shape[d];
    return m;
}
