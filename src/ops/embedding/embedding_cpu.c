/* embedding_cpu.c - rows of a table by index. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "embedding_cpu.h"

typedef skr_embedding_job job_t;

SKR_FN void convert_body(int from, int to, const void *x, void *y, int64_t n)
{
    int64_t i = 0;
    for (; i + 2 * SKR_LANES <= n; i += 2 * SKR_LANES)
        v_store2(to, y, i, v_load2(from, x, i));
    if (i < n)
        v_store2_n(to, y, i, v_load2_n(from, x, i, (int)(n - i)), (int)(n - i));
}

static void convert(int from, int to, const void *x, void *y, int64_t n)
{
    if (to == SKR_F32)
        widen(from, x, 0.0f, y, n);
    else if (from == SKR_F32)
        narrow(to, x, y, n);
    else if (to == SKR_F16)
        convert_body(SKR_BF16, SKR_F16, x, y, n);
    else
        convert_body(SKR_F16, SKR_BF16, x, y, n);
}

void SKR_KERNEL(embedding)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(embedding)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    (void)worker;
    const job_t *j = job;
    int from = j->table.type, to = j->out.type;
    int64_t bytes = skr_type_bytes(from), end = (task + 1) * j->rows_per_task;
    end = end < j->rows.m ? end : j->rows.m;
    for (int64_t row = task * j->rows_per_task; row < end; row++) {
        int64_t id = id_at(&j->rows, &j->ids, row);
        char *y = row_of(&j->rows, &j->out, row);
        if (row + ROWS_AHEAD < end) {
            int64_t next = id_at(&j->rows, &j->ids, row + ROWS_AHEAD);
            if (next >= 0 && next < j->v)
                for (int k = 0; k < LINES_AHEAD && k * LINE < j->d * bytes; k++)
                    v_prefetch_l2((const char *)j->table.data + next * j->table.stride * bytes + k * LINE);
        }
        if (id < 0 || id >= j->v) {
            report_bad_index(&j->head);
            __builtin_memset(y, 0, (size_t)(j->d * skr_type_bytes(to)));
            continue;
        }
        const char *x = (const char *)j->table.data + id * j->table.stride * bytes;
        if (from != to)
            convert(from, to, x, y, j->d);
        else
            copy_out(&j->head, y, x, j->d * bytes);
    }
}
