/* cases.c - a suite's case on a device: memory, contents, choice. compare.c holds the comparison with the oracle.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cases.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 4096 };

const char *cli_arena_need(cli_place *place, cli_arena *arena, size_t bytes)
{
    arena->fresh = false;
    if (bytes <= arena->bytes)
        return NULL;
    cli_arena_free(place, arena);
    if (saker_memory_alloc(place->ctx, bytes, &arena->memory)) {
        arena->memory = NULL;
        return saker_context_error(place->ctx);
    }
    arena->bytes = bytes;
    arena->fresh = true;
    return NULL;
}

void cli_arena_free(cli_place *place, cli_arena *arena)
{
    saker_memory_free(place->ctx, arena->memory);
    arena->memory = NULL;
    arena->bytes = 0;
}

/* ---------------------------------------------------------------- filling */

typedef struct tiling {
    char *to;
    const char *tile;
    size_t bytes, tile_bytes;
} tiling;

static void tile_part(void *arg, int i, int n)
{
    const tiling *t = arg;
    size_t part =
        (t->bytes / (size_t)n + 4096) & ~(size_t)4095; /* whole pages, so that each is first touched by one thread */
    size_t at = part * (size_t)i, end = at + part < t->bytes ? at + part : t->bytes;
    while (at < end) {
        size_t phase = at % t->tile_bytes, n_bytes = t->tile_bytes - phase;
        if (n_bytes > end - at)
            n_bytes = end - at;
        memcpy(t->to + at, t->tile + phase, n_bytes);
        at += n_bytes;
    }
}

const char *cli_tile(cli_place *place, cli_team *team, void *to, size_t bytes, const void *tile, size_t tile_bytes)
{
    if (!place->cuda) {
        tiling t = {to, tile, bytes, tile_bytes};
        cli_team_run(team, tile_part, &t);
        return NULL;
    }
    size_t done = tile_bytes < bytes ? tile_bytes : bytes;
    saker_status status = saker_memory_copy(place->ctx, to, tile, done);
    for (size_t n; !status && done < bytes; done += n) { /* doubles what is there, within the device */
        n = done < bytes - done ? done : bytes - done;
        status = saker_memory_copy(place->ctx, (char *)to + done, to, n);
    }
    return status ? saker_context_error(place->ctx) : NULL;
}

const char *cli_case_fill(cli_case *k, cli_team *team)
{
    enum { BLOCK = 262139 }; /* elements; a prime, so that neighbouring rows differ */
    double *value = malloc(BLOCK * sizeof *value);
    char *tile = malloc((size_t)BLOCK * 8);
    const char *wrong = value && tile ? NULL : "out of memory";
    for (int i = 0; i < k->c.n_tensors && !wrong; i++) {
        const suite_tensor *t = &k->c.tensor[i];
        if (t->alias)
            continue;
        suite_case block = k->c;
        suite_tensor *b = &block.tensor[i];
        int64_t n = suite_elements(t);
        *b = (suite_tensor){.field = t->field,
                            .type = t->type,
                            .ndim = 1,
                            .shape = {n < BLOCK ? n : BLOCK},
                            .fill = t->fill,
                            .factor = t->factor,
                            .low = t->low,
                            .high = t->high};
        suite_values(&block, i, 1, value);
        suite_store(b, value, tile);
        wrong = cli_tile(k->place, team, k->data[i], (size_t)suite_span_bytes(t), tile, (size_t)suite_span_bytes(b));
    }
    free(value);
    free(tile);
    return wrong;
}

/* ---------------------------------------------------------------- layout */

static size_t room(const suite_tensor *t)
{
    return ((size_t)suite_span_bytes(t) + ALIGN - 1) & ~(size_t)(ALIGN - 1);
}

size_t cli_case_bytes(const suite_case *c)
{
    size_t bytes = 2 * ALIGN; /* to align the first one; never zero, also when all tensors are empty */
    for (int i = 0; i < c->n_tensors; i++)
        bytes += c->tensor[i].alias ? 0 : room(&c->tensor[i]);
    return bytes;
}

const char *cli_case_bind(cli_case *k, cli_place *place, void *memory, const suite *s, const suite_case *c)
{
    memset(k, 0, sizeof *k);
    k->place = place;
    k->suite = s;
    k->c = *c;
    k->op = saker_op_find(s->op);
    char *at = memory;
    at += ALIGN - (uintptr_t)at % ALIGN;
    for (int i = 0; i < c->n_tensors; i++) {
        const suite_tensor *t = &k->c.tensor[i];
        if (!t->alias) {
            k->data[i] = at;
            at += room(t);
        }
        for (int a = 0; t->alias && a < i; a++)
            if (!strcmp(k->c.tensor[a].field, t->alias))
                k->data[i] = k->data[a];
        k->tensor[i] = suite_describe(t, k->data[i]);
    }
    return suite_bind(s, &k->c, k->tensor, k->args) ? NULL
                                                    : "the case names an argument that the operation does not have";
}

/* ---------------------------------------------------------------- choice */

bool cli_case_matches(const suite *s, const suite_case *c, const char *op, const char *pattern)
{
    if (op && strcmp(op, s->op))
        return false;
    if (!pattern)
        return true;
    return strpbrk(pattern, "*?[") ? fnmatch(pattern, c->name, 0) == 0 : strstr(c->name, pattern) != NULL;
}

const char *cli_case_type(const suite_case *c)
{
    const char *name = c->n_tensors ? saker_type_name(SAKER_DTYPE((uint32_t)c->tensor[0].type)) : NULL;
    return name ? name : "";
}
