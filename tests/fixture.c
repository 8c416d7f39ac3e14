/* fixture.c - see fixture.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <stdlib.h>
#include <string.h>

#include "suite_convert.h"

void fixture_open(fixture *f, const suite *s, const suite_case *c)
{
    *f = (fixture){.s = s, .op = saker_op_find(s->op), .c = *c};
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        double *value = malloc((size_t)suite_elements(t) * sizeof *value + 1);
        if (!value || !guard_alloc(&f->memory[i], (size_t)suite_span_bytes(t), 0, true))
            abort();
        memset(f->memory[i].pages, 0xa5, f->memory[i].page_bytes);
        suite_values(c, i, 1, value);
        if (t->role != SUITE_OUT)
            suite_store(t, value, f->memory[i].data);
        free(value);
        f->before[i] = malloc(f->memory[i].page_bytes);
        if (!f->before[i])
            abort();
        memcpy(f->before[i], f->memory[i].pages, f->memory[i].page_bytes);
    }
    fixture_reset(f);
}

void fixture_close(fixture *f)
{
    for (int i = 0; i < f->c.n_tensors; i++) {
        guard_free(&f->memory[i]);
        free(f->before[i]);
    }
}

void fixture_reset(fixture *f)
{
    for (int i = 0; i < f->c.n_tensors; i++) {
        const suite_tensor *t = &f->c.tensor[i];
        memset(f->shape[i], 0, sizeof f->shape[i]);
        memset(f->stride[i], 0, sizeof f->stride[i]);
        memcpy(f->shape[i], t->shape, sizeof t->shape);
        suite_strides(t, f->stride[i]);
        f->tensor[i] = saker_tensor_of(f->memory[i].data, t->type, t->ndim, f->shape[i], f->stride[i]);
    }
    if (!suite_bind(f->s, &f->c, f->tensor, f->args))
        abort();
}

int fixture_find(const fixture *f, const char *field)
{
    for (int i = 0; i < f->c.n_tensors; i++)
        if (!strcmp(f->c.tensor[i].field, field))
            return i;
    return -1;
}

bool fixture_untouched(const fixture *f)
{
    for (int i = 0; i < f->c.n_tensors; i++)
        if (memcmp(f->memory[i].pages, f->before[i], f->memory[i].page_bytes))
            return false;
    return true;
}

const saker_field *fixture_field(const fixture *f, const char *name)
{
    for (int i = 0; i < f->op->n_fields; i++)
        if (!strcmp(f->op->fields[i].name, name))
            return &f->op->fields[i];
    return NULL;
}

/* Small (16 KiB of floats, or of bytes), not empty, nothing aliased, at least two rows and columns where there are
 * dimensions, and no random combination: another one must not change what is tried here. */
static bool usable(const suite_case *c)
{
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        if (t->alias || suite_elements(t) == 0 || suite_elements(t) > (t->type == SAKER_U8 ? 16384 : 4096))
            return false;
        for (int d = 0; t->ndim > 1 && d < t->ndim; d++)
            if (t->shape[d] < 2)
                return false;
    }
    return c->use & SUITE_CHECK && strncmp(c->name, "random", 6);
}

int fixture_cases(const suite *s, suite_case *out, int room)
{
    const saker_op_info *op = saker_op_find(s->op);
    int n = 0;
    for (;;) {
        suite_case c;
        int best = 0;
        for (int i = 0; n < room && s->at(i, &c); i++) {
            int fresh = 0;
            for (int k = 0; usable(&c) && k < c.n_tensors; k++) {
                bool known = false;
                for (int m = 0; m < n && !known; m++)
                    for (int q = 0; q < out[m].n_tensors; q++)
                        known |= !strcmp(out[m].tensor[q].field, c.tensor[k].field);
                fresh += !known;
            }
            if (fresh > best) {
                best = fresh;
                out[n] = c;
            }
        }
        if (!best || !op)
            return n;
        n++;
    }
}
