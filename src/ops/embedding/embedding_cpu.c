/* embedding_cpu.c - rows of a table by index. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0 */
#include "embedding_cpu.h"

typedef skr_embedding_job job_t;

/* Which rows come is no pattern that a core can guess: they are asked for some rows ahead, their first bytes where they
 * are short, or so long (beyond GUESSED bytes) that the core finds out in time; others whole, a piece at a time. */
enum { FIRST = 512, GUESSED = 8192, PIECE = 1024, PIECES_AHEAD = 4 };

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
        widen(from, x, -0.0f, y, n); /* it adds that: x stays as it is, also -0 */
    else if (from == SKR_F32)
        narrow(to, x, y, n);
    else if (to == SKR_F16)
        convert_body(SKR_BF16, SKR_F16, x, y, n);
    else
        convert_body(SKR_F16, SKR_BF16, x, y, n);
}

/* Row `row` of the table's rows that the task picks, where there is one; else `otherwise`. */
SKR_FN const char *picked_row(const job_t *job, int64_t row, int64_t end, const char *otherwise)
{
    int64_t id = row < end ? id_at(&job->rows, &job->ids, row) : -1;
    int64_t bytes = skr_type_bytes(job->table.type);
    return id >= 0 && id < job->v ? (const char *)job->table.data + id * job->table.stride * bytes : otherwise;
}

/* Columns [i, i + n) of a row. */
SKR_FN void take(const job_t *job, const char *x, char *y, int64_t i, int64_t n)
{
    int from = job->table.type, to = job->out.type;
    int64_t bytes = skr_type_bytes(from);
    if (from != to)
        convert(from, to, x + i * bytes, y + i * skr_type_bytes(to), n);
    else
        copy_out(&job->head, y + i * bytes, x + i * bytes, n * bytes);
}

/* A row in pieces: with each the same piece of a later row is asked for, so that the requests come evenly. */
static void take_pieces(const job_t *job, const char *x, const char *later, char *y)
{
    int64_t bytes = skr_type_bytes(job->table.type), piece = PIECE / bytes;
    for (int64_t i = 0; i < job->d; i += piece) {
        int64_t n = job->d - i < piece ? job->d - i : piece;
        prefetch_block(later + i * bytes, n * bytes);
        take(job, x, y, i, n);
    }
}

void SKR_KERNEL(embedding)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(embedding)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    (void)worker;
    const job_t *j = job;
    int64_t bytes = j->d * skr_type_bytes(j->table.type);
    int pieces = bytes > FIRST && bytes <= GUESSED;
    int64_t end = (task + 1) * j->rows_per_task, ahead = pieces ? PIECES_AHEAD : ROWS_AHEAD;
    end = end < j->rows.m ? end : j->rows.m;
    for (int64_t row = task * j->rows_per_task; row < end; row++) {
        char *y = row_of(&j->rows, &j->out, row);
        const char *x = picked_row(j, row, end, NULL), *later = picked_row(j, row + ahead, end, x);
        if (!x) {
            report_bad_index(&j->head);
            __builtin_memset(y, 0, (size_t)(j->d * skr_type_bytes(j->out.type)));
        } else if (pieces) {
            take_pieces(j, x, later, y);
        } else {
            prefetch_block(later, bytes < FIRST ? bytes : FIRST);
            take(j, x, y, 0, j->d);
        }
    }
}
