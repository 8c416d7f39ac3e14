/* compare.c - runs a case and holds its outputs against the oracle, whole or a few rows of it.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../tests/compare.h"
#include "cases.h"

typedef struct values {
    double *value[SUITE_MAX_TENSORS], *bound[SUITE_MAX_TENSORS];
} values;

static void values_free(values *v)
{
    for (int i = 0; i < SUITE_MAX_TENSORS; i++) {
        free(v->value[i]);
        free(v->bound[i]);
    }
}

static bool values_alloc(values *v, const suite_case *c)
{
    memset(v, 0, sizeof *v);
    for (int i = 0; i < c->n_tensors; i++) {
        size_t n = (size_t)suite_elements(&c->tensor[i]) + 1;
        v->value[i] = calloc(n, sizeof(double));
        if (c->tensor[i].role != SUITE_IN)
            v->bound[i] = calloc(n, sizeof(double));
        if (!v->value[i] || (c->tensor[i].role != SUITE_IN && !v->bound[i])) {
            values_free(v);
            return false;
        }
    }
    return true;
}

/* Takes a tensor's verdict into the case's: the worst element that passed, or infinity and the first that did not. */
static void judge(const suite_tensor *t, const double *got, const double *want, const double *bound, double *error,
                  char *where)
{
    comparison r = compare(t->type, suite_elements(t), got, want, bound);
    if (r.failed && !isinf(*error)) {
        *error = INFINITY;
        snprintf(where, 96, "%s[%lld] is %.9g, expected %.9g +- %.3g", t->field, (long long)r.index, r.got, r.want,
                 r.bound);
    } else if (r.worst > *error) {
        *error = r.worst;
        snprintf(where, 96, "%s", t->field);
    }
}

/* Makes the call. What went wrong, or NULL. */
static const char *run(cli_case *k)
{
    if (saker_call(k->place->ctx, k->op, k->args))
        return saker_context_error(k->place->ctx);
    int status = saker_context_check(k->place->ctx), wanted = k->c.check; /* some indices may be out of range */
    if (status == wanted || (wanted == SUITE_ANY_CHECK && (status == SAKER_OK || status == SAKER_BAD_INDEX)))
        return NULL;
    return status ? saker_context_error(k->place->ctx) : "no index was reported to be out of range";
}

/* ---------------------------------------------------------------- every element */

/* Sends the values to the device, poison to what is only written. */
static const char *upload(cli_case *k, const values *v)
{
    for (int i = 0; i < k->c.n_tensors; i++) {
        const suite_tensor *t = &k->c.tensor[i];
        size_t span = (size_t)suite_span_bytes(t);
        if (t->alias || !span)
            continue;
        char *host = malloc(span);
        if (!host)
            return "out of memory";
        memset(host, 0xa5, span);
        if (t->role != SUITE_OUT)
            suite_store(t, v->value[i], host);
        saker_status status = saker_memory_copy(k->place->ctx, k->data[i], host, span);
        free(host);
        if (status)
            return saker_context_error(k->place->ctx);
    }
    return NULL;
}

static const char *download(cli_case *k, int i, double *value)
{
    size_t span = (size_t)suite_span_bytes(&k->c.tensor[i]);
    char *host = malloc(span + 1);
    if (!host)
        return "out of memory";
    saker_status status = saker_memory_copy(k->place->ctx, host, k->data[i], span);
    if (!status)
        suite_load(&k->c.tensor[i], host, value);
    free(host);
    return status ? saker_context_error(k->place->ctx) : NULL;
}

const char *cli_case_check_whole(cli_case *k, uint64_t seed, double *error, char *where)
{
    values v;
    *error = 0;
    where[0] = 0;
    if (!values_alloc(&v, &k->c))
        return "out of memory";
    for (int i = 0; i < k->c.n_tensors; i++)
        if (k->c.tensor[i].role != SUITE_OUT)
            suite_values(&k->c, i, seed, v.value[i]);
    const char *wrong = upload(k, &v);
    if (!wrong)
        wrong = run(k);
    k->c.ran = suite_judged(k->suite, saker_context_kernel(k->place->ctx));
    if (!wrong)
        k->suite->oracle(&k->c, v.value, v.bound);
    for (int i = 0; i < k->c.n_tensors && !wrong; i++) {
        const suite_tensor *t = &k->c.tensor[i];
        double *got = t->role == SUITE_IN ? NULL : malloc(((size_t)suite_elements(t) + 1) * sizeof(double));
        if (!got)
            continue;
        wrong = download(k, i, got);
        if (!wrong)
            judge(t, got, v.value[i], v.bound[i], error, where);
        free(got);
    }
    values_free(&v);
    return wrong;
}

/* ---------------------------------------------------------------- a few rows of a big run */

/* All of tensor i at once. */
static const char *fetch_all(cli_case *k, int i, double *value)
{
    size_t span = (size_t)suite_span_bytes(&k->c.tensor[i]);
    char *host = malloc(span + 1);
    if (!host)
        return "out of memory";
    saker_status status = span ? saker_memory_copy(k->place->ctx, host, k->data[i], span) : SAKER_OK;
    if (!status)
        suite_load(&k->c.tensor[i], host, value);
    free(host);
    return status ? saker_context_error(k->place->ctx) : NULL;
}

/* Reads elements [first, first + n) of tensor i, logical order, one run of the last dimension at a time. */
static const char *fetch(cli_case *k, int i, int64_t first, int64_t n, double *value)
{
    const suite_tensor *t = &k->c.tensor[i];
    if (first == 0 && n == suite_elements(t))
        return fetch_all(k, i, value);
    int64_t stride[SUITE_MAX_DIMS], last = t->ndim ? t->shape[t->ndim - 1] : 1;
    int size = suite_type_bytes(t->type);
    suite_strides(t, stride);
    int64_t step = t->ndim ? stride[t->ndim - 1] : 1;
    for (int64_t done = 0; done < n;) {
        int64_t at = first + done, column = at % last, rest = at / last, place = column * step;
        for (int d = t->ndim - 2; d >= 0; d--) {
            place += rest % t->shape[d] * stride[d];
            rest /= t->shape[d];
        }
        int64_t count = last - column < n - done ? last - column : n - done;
        int64_t odd = t->type == SAKER_I4 ? place % 2 : 0; /* a run may begin inside of a byte */
        int64_t from = t->type == SAKER_I4 ? place / 2 : place * size;
        suite_tensor piece = {.type = t->type, .ndim = 2, .shape = {odd + 1, count}, .stride = {1, step}};
        size_t span = (size_t)suite_span_bytes(&piece);
        double *both = malloc((size_t)(2 * count) * sizeof *both); /* what is at from, then what is one further */
        char *host = malloc(span);
        if (!host || !both)
            return "out of memory";
        saker_status status = saker_memory_copy(k->place->ctx, host, (char *)k->data[i] + from, span);
        if (!status) {
            suite_load(&piece, host, both);
            memcpy(value + done, both + odd * count, (size_t)count * sizeof *both);
        }
        free(host);
        free(both);
        if (status)
            return saker_context_error(k->place->ctx);
        done += count;
    }
    return NULL;
}

enum { SAMPLES = 3 }; /* first, middle and last row */

typedef struct sample {
    suite_case one;
    suite_slice slice;
    values v;
} sample;

/* Outputs are fetched after the run, what is read before it. */
static const char *fetch_inputs(cli_case *k, sample *s)
{
    const char *wrong = NULL;
    for (int i = 0; i < s->one.n_tensors && !wrong; i++)
        if (s->one.tensor[i].role != SUITE_OUT && s->slice.first[i] >= 0)
            wrong = fetch(k, i, s->slice.first[i], suite_elements(&s->one.tensor[i]), s->v.value[i]);
    return wrong;
}

static const char *compare_row(cli_case *k, sample *s, double *error, char *where)
{
    const char *wrong = NULL;
    s->one.ran = suite_judged(k->suite, saker_context_kernel(k->place->ctx));
    k->suite->oracle(&s->one, s->v.value, s->v.bound);
    for (int i = 0; i < s->one.n_tensors && !wrong; i++) {
        const suite_tensor *t = &s->one.tensor[i];
        if (t->role == SUITE_IN || s->slice.first[i] < 0)
            continue;
        double *got = malloc(((size_t)suite_elements(t) + 1) * sizeof *got);
        wrong = got ? fetch(k, i, s->slice.first[i], suite_elements(t), got) : "out of memory";
        if (!wrong)
            judge(t, got, s->v.value[i], s->v.bound[i], error, where);
        free(got);
    }
    return wrong;
}

/* The case with its first 128 rows alone, where every tensor has a row for each of them, or one for 128, or is a single
 * number. */
static bool cut_rows(suite_case *c)
{
    enum { ROWS = 128 };
    int64_t m = c->tensor[0].shape[0];
    if (c->tensor[0].ndim < 2 || m <= ROWS)
        return false;
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &c->tensor[i];
        if (suite_elements(t) > 1 && t->shape[0] != m && t->shape[0] != (m + ROWS - 1) / ROWS)
            return false;
    }
    for (int i = 0; i < c->n_tensors; i++)
        if (suite_elements(&c->tensor[i]) > 1)
            c->tensor[i].shape[0] = c->tensor[i].shape[0] == m ? ROWS : 1;
    return true;
}

/* Whether every tensor has n elements, or one. */
static bool one_size(const suite_case *c, int64_t n)
{
    for (int i = 0; i < c->n_tensors; i++)
        if (suite_elements(&c->tensor[i]) != n && suite_elements(&c->tensor[i]) > 1)
            return false;
    return true;
}

/* An op whose rows do not stand alone: the same case over the first rows of its tensors or, where all large ones are of
 * one size, over the first few thousand elements. Neither: not checked here, NaN; `saker check` has smaller cases. */
static const char *check_start(cli_case *k, double *error, char *where)
{
    enum { ELEMENTS = 4096 };
    cli_case *part = malloc(sizeof *part);
    if (!part)
        return "out of memory";
    suite_case c = k->c;
    int64_t n = suite_elements(&c.tensor[0]);
    bool small = cli_case_bytes(&c) <= 1 << 20, cut = !small && cut_rows(&c), flat = !small && !cut && one_size(&c, n);
    for (int i = 0; i < c.n_tensors && flat; i++)
        if (suite_elements(&c.tensor[i]) == n && n > ELEMENTS) {
            c.tensor[i].ndim = 1;
            c.tensor[i].shape[0] = ELEMENTS;
        }
    if (!small && !cut && !flat) {
        free(part);
        *error = NAN;
        return run(k);
    }
    const char *wrong = cli_case_bind(part, k->place, k->data[0], k->suite, &c);
    if (!wrong)
        wrong = cli_case_check_whole(part, 1, error, where);
    free(part);
    return wrong ? wrong : run(k);
}

const char *cli_case_check_rows(cli_case *k, double *error, char *where)
{
    const suite *s = k->suite;
    where[0] = 0;
    int64_t rows = s->row ? s->row(&k->c, 0, NULL, NULL) : 0;
    if (rows <= 0)
        return check_start(k, error, where);
    sample *samples = calloc(SAMPLES, sizeof *samples);
    if (!samples)
        return "out of memory";
    const int64_t at[SAMPLES] = {0, rows / 2, rows - 1};
    const char *wrong = NULL;
    int n = 0;
    for (; n < SAMPLES && !wrong; n++) {
        s->row(&k->c, at[n], &samples[n].one, &samples[n].slice);
        wrong = values_alloc(&samples[n].v, &samples[n].one) ? fetch_inputs(k, &samples[n]) : "out of memory";
    }
    if (!wrong)
        wrong = run(k);
    *error = 0;
    for (int i = 0; i < n && !wrong; i++)
        wrong = compare_row(k, &samples[i], error, where);
    for (int i = 0; i < n; i++)
        values_free(&samples[i].v);
    free(samples);
    return wrong;
}
