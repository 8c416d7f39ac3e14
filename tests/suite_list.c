/* suite_list.c - see suite_list.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "suite_list.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool same_tensors(const suite_case *a, const suite_case *b)
{
    bool same = a->n_tensors == b->n_tensors && !memcmp(a->args, b->args, sizeof a->args);
    for (int i = 0; same && i < a->n_tensors; i++) {
        const suite_tensor *s = &a->tensor[i], *t = &b->tensor[i];
        same = !strcmp(s->field, t->field) && s->role == t->role && s->type == t->type && s->fill == t->fill &&
               s->ndim == t->ndim && !memcmp(s->shape, t->shape, sizeof s->shape) &&
               !memcmp(s->stride, t->stride, sizeof s->stride);
    }
    return same;
}

void suite_list_add(suite_list *l, const suite_case *c)
{
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->c[i].name, c->name)) {
            if (!same_tensors(&l->c[i], c)) {
                fprintf(stderr, "two different cases are named '%s'\n", c->name);
                abort();
            }
            l->c[i].use |= c->use;
            return;
        }
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 512;
        l->c = realloc(l->c, (size_t)l->room * sizeof *l->c);
        if (!l->c)
            abort();
    }
    l->c[l->n++] = *c;
}

bool suite_list_at(const suite_list *l, int i, suite_case *out)
{
    if (i < 0 || i >= l->n)
        return false;
    *out = l->c[i];
    return true;
}

void suite_say(suite_case *c, const char *format, ...)
{
    size_t at = strlen(c->name);
    va_list list;
    va_start(list, format);
    vsnprintf(c->name + at, sizeof c->name - at, format, list);
    va_end(list);
}

const char *suite_type_text(saker_type type)
{
    saker_dtype d = {(uint8_t)type, (uint8_t)((int)type >> 8), 1};
    return saker_type_name(d);
}

const char *suite_fill_text(suite_fill fill)
{
    static const char *const names[] = {
        "",     " uniform",  " zero",   " constant", " large", " huge",  " tiny",  " max",  " alternating", " nan",
        " inf", " positive", " offset", " bits",     " edges", " range", " count", " ties", " masked"};
    return names[fill];
}

suite_tensor *suite_add_rows(suite_case *c, const char *field, suite_role role, saker_type type, int n_lead,
                             const int64_t *lead, int64_t columns, int64_t gap)
{
    suite_tensor *t = &c->tensor[c->n_tensors++];
    *t = (suite_tensor){.field = field, .role = role, .type = type, .ndim = n_lead};
    memcpy(t->shape, lead, (size_t)n_lead * sizeof *lead);
    if (columns >= 0)
        t->shape[t->ndim++] = columns;
    int64_t next = 1;
    for (int d = t->ndim - 1; gap && d >= 0; d--) {
        t->stride[d] = next;
        next = next * t->shape[d] + (d == t->ndim - 1 ? gap : 0);
    }
    return t;
}

double suite_all_bytes(const suite_case *c)
{
    double total = 0;
    for (int i = 0; i < c->n_tensors; i++)
        total += (double)suite_elements(&c->tensor[i]) * suite_type_bytes(c->tensor[i].type);
    return total;
}
