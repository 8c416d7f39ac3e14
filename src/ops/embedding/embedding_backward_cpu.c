/* embedding_backward_cpu.c - the gradient of embedding's table. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * One task sorts the places by id (counting, in order). Table rows without a place become zeros, neighbours at once;
 * then tasks own table rows and columns, and add what belongs to each in the order of the places: stretches of
 * SKR_EMBED_RUN rows, then their sums. */
#include "embedding_cpu.h"

typedef skr_embedding_backward_job job_t;

static int32_t *starts_of(const job_t *job)
{
    return (int32_t *)((char *)job->head.workspace + job->starts_at);
}

static int32_t *places_of(const job_t *job)
{
    return (int32_t *)((char *)job->head.workspace + job->places_at);
}

/* The id of a row, -1 where there is nothing to add. */
static int64_t used_id(const job_t *job, int64_t row)
{
    int64_t id = id_at(&job->rows, &job->ids, row);
    return id < 0 || id >= job->v || id == job->padding ? -1 : id;
}

static void sort_places(const job_t *job)
{
    int32_t *starts = starts_of(job), *places = places_of(job), at = 0;
    __builtin_memset(starts, 0, (size_t)(job->v + 1) * sizeof *starts);
    for (int64_t i = 0; i < job->rows.m; i++) {
        int64_t id = id_at(&job->rows, &job->ids, i);
        if (id < 0 || id >= job->v)
            report_bad_index(&job->head);
        else if (id != job->padding)
            starts[id + 1]++;
    }
    for (int64_t v = 0; v <= job->v; v++) {
        at += starts[v];
        starts[v] = at;
    }
    /* Placing moves starts[v] to where v's places end, which is the start of v + 1: one entry further it is right. */
    for (int64_t i = 0; i < job->rows.m; i++) {
        int64_t id = used_id(job, i);
        if (id >= 0)
            places[starts[id]++] = (int32_t)i;
    }
    for (int64_t v = job->v; v > 0; v--)
        starts[v] = starts[v - 1];
    starts[0] = 0;
}

SKR_FN void add_body(int type, const void *x, float *y, int64_t n, int first)
{
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES) {
        vf2 a = v_load2(type, x, i);
        v_store2(SKR_F32, y, i, first ? a : v2_add(v_load2(SKR_F32, y, i), a));
    }
    if (i < n) {
        int left = (int)(n - i);
        vf2 a = v_load2_n(type, x, i, left);
        v_store2_n(SKR_F32, y, i, first ? a : v2_add(v_load2_n(SKR_F32, y, i, left), a), left);
    }
}

/* y += x, or y = x for the first. */
static void add_row(int type, const void *x, float *y, int64_t n, int first)
{
    if (type == SKR_F32)
        add_body(SKR_F32, x, y, n, first);
    else if (type == SKR_F16)
        add_body(SKR_F16, x, y, n, first);
    else
        add_body(SKR_BF16, x, y, n, first);
}

static int64_t last_row(const job_t *job, int64_t first)
{
    return job->v < first + SKR_EMBED_TABLE_ROWS ? job->v : first + SKR_EMBED_TABLE_ROWS;
}

/* Zeros, past the caches where results are large. */
static void zero_bytes(const skr_job_head *head, char *to, int64_t bytes)
{
    if (!(SKR_PAST && skr_past(head))) {
        __builtin_memset(to, 0, (size_t)bytes);
        return;
    }
    int64_t i = -(int64_t)(uintptr_t)to & (LINE - 1);
    i = i < bytes ? i : bytes;
    __builtin_memset(to, 0, (size_t)i);
    for (; i + SKR_VB_BYTES <= bytes; i += SKR_VB_BYTES)
        vb_stream(to + i, vb_set1(0));
    __builtin_memset(to + i, 0, (size_t)(bytes - i));
}

static void zero_task(const job_t *job, int64_t task)
{
    const int32_t *starts = starts_of(job);
    int64_t v = task * SKR_EMBED_TABLE_ROWS, last = last_row(job, v);
    int64_t bytes = skr_type_bytes(job->dtable.type), row = job->d * bytes, stride = job->dtable.stride * bytes;
    for (; v < last; v++) {
        char *to = (char *)job->dtable.data + v * stride;
        int64_t rows = 0;
        while (v + rows < last && starts[v + rows] == starts[v + rows + 1])
            rows++;
        if (stride == row)
            zero_bytes(&job->head, to, rows * row);
        else
            for (int64_t k = 0; k < rows; k++)
                zero_bytes(&job->head, to + k * stride, row);
        v += rows;
    }
}

/* Asks for a place's row, if it is one of the task's: they are no pattern that a core can guess. Inlined, always: gcc
 * leaves out calls of functions that do nothing but prefetch. */
SKR_FN void ask_for(const job_t *job, int64_t place, int64_t last, int64_t begin, int64_t n)
{
    int64_t bytes = skr_type_bytes(job->dout.type);
    if (place < last)
        prefetch_block(row_of(&job->rows, &job->dout, places_of(job)[place]) + begin * bytes, n * bytes);
}

/* The sum of places [at, end) of columns [begin, begin + n), in the order of the places. Those up to `last` come
 * next. */
static void sum_places(const job_t *job, int64_t at, int64_t end, int64_t last, int64_t begin, int64_t n, float *total)
{
    float *run = total + SKR_EMBED_COLUMNS;
    int64_t bytes = skr_type_bytes(job->dout.type);
    for (int64_t place = at; place < end; place++) {
        int64_t i = place - at, k = i % SKR_EMBED_RUN;
        float *to = i < SKR_EMBED_RUN ? total : run;
        ask_for(job, place + ROWS_AHEAD, last, begin, n);
        const char *x = row_of(&job->rows, &job->dout, places_of(job)[place]) + begin * bytes;
        add_row(job->dout.type, x, to, n, k == 0);
        if (to == run && (k == SKR_EMBED_RUN - 1 || place == end - 1))
            add_row(SKR_F32, run, total, n, 0);
    }
}

static void sum_task(const job_t *job, int64_t task, int worker)
{
    int64_t columns = (job->d + SKR_EMBED_COLUMNS - 1) / SKR_EMBED_COLUMNS;
    int64_t begin = task % columns * SKR_EMBED_COLUMNS, first = task / columns * SKR_EMBED_TABLE_ROWS;
    int64_t n = job->d - begin < SKR_EMBED_COLUMNS ? job->d - begin : SKR_EMBED_COLUMNS;
    int64_t last = last_row(job, first);
    float *total = (float *)((char *)job->head.workspace + job->sums_at) + (int64_t)worker * 2 * SKR_EMBED_COLUMNS;
    const int32_t *starts = starts_of(job), *places = places_of(job);
    int type = job->dtable.type;
    int64_t bytes = skr_type_bytes(type);
    for (int64_t v = first; v < last; v++) {
        int32_t at = starts[v], end = starts[v + 1];
        if (at == end)
            continue;
        char *to = (char *)job->dtable.data + (v * job->dtable.stride + begin) * bytes;
        if (end == at + 1 && type == job->dout.type && !job->accumulate) {
            ask_for(job, at + ROWS_AHEAD, starts[last], begin, n);
            copy_out(&job->head, to, row_of(&job->rows, &job->dout, places[at]) + begin * bytes, n * bytes);
            continue;
        }
        sum_places(job, at, end, starts[last], begin, n, total);
        if (job->accumulate)
            add_row(type, to, total, n, 0);
        if (type == SKR_F32)
            copy_out(&job->head, to, (const char *)total, n * bytes);
        else
            narrow(type, total, to, n);
    }
}

void SKR_KERNEL(embedding_backward)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(embedding_backward)(const void *job, int step, int64_t task, int worker)
{
    if (step == SKR_EMBED_SORT)
        sort_places(job);
    else if (step == SKR_EMBED_ZERO)
        zero_task(job, task);
    else
        sum_task(job, task, worker);
}
