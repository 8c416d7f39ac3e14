/* stream_cpu.c - the bandwidth probe's loop, for each number of inputs and outputs. Compiled once per instruction-set
 * level. SPDX-License-Identifier: Apache-2.0 */
#include "../../cpu/simd/simd.h"
#include "stream.h"

typedef skr_stream_job job_t;

enum { UNROLL = 4, BLOCK = UNROLL * SKR_VB_BYTES };

typedef struct piece {
    const char *x[SKR_STREAM_INPUTS];
    char *y[SKR_STREAM_OUTPUTS];
    int64_t bytes;
} piece;

SKR_FN uint64_t move_word(int n_in, int n_out, const piece *p, int64_t i)
{
    uint64_t w = n_in ? 0 : SKR_STREAM_FILL * 0x0101010101010101u, word;
    for (int s = 0; s < n_in; s++) {
        __builtin_memcpy(&word, p->x[s] + i, 8);
        w ^= word;
    }
    for (int s = 0; s < n_out; s++)
        __builtin_memcpy(p->y[s] + i, &w, 8);
    return n_in ? w : 0;
}

/* Moves the bytes and returns the exclusive-or of all words read. sum: whether that is wanted; past: store around the
 * caches. */
SKR_FN uint64_t move_body(int n_in, int n_out, int sum, int past, piece p)
{
    vb acc[UNROLL];
    uint64_t words = 0;
    int64_t i = 0;
    SKR_UNROLL
    for (int k = 0; k < UNROLL; k++)
        acc[k] = vb_set1(0);
        /* Single words up to an aligned output (stores past the caches need it) and after the last whole block. */
#define WORD() words ^= move_word(n_in, n_out, &p, i), i += 8
    if (past)
        while (i < p.bytes && (uintptr_t)(p.y[0] + i) % SKR_VB_BYTES)
            WORD();
    for (; i + BLOCK <= p.bytes; i += BLOCK)
        SKR_UNROLL
    for (int k = 0; k < UNROLL; k++) {
        int64_t at = i + k * SKR_VB_BYTES;
        vb a = n_in ? vb_load(p.x[0] + at) : vb_set1(SKR_STREAM_FILL);
        for (int s = 1; s < n_in; s++)
            a = vb_xor(a, vb_load(p.x[s] + at));
        for (int s = 0; s < n_out; s++) {
            if (past)
                vb_stream(p.y[s] + at, a);
            else
                vb_store(p.y[s] + at, a);
        }
        if (sum && n_in)
            acc[k] = vb_xor(acc[k], a);
    }
    while (i < p.bytes)
        WORD();
#undef WORD
    SKR_UNROLL
    for (int k = 0; k < UNROLL; k++)
        words ^= vb_fold(acc[k]);
    return words;
}

/* One function for each (inputs, outputs, what), where what is 0, sum or past; past only where there are outputs. */
enum { PLAIN, SUM, PAST, PAST_SUM };
typedef uint64_t (*move_fn)(const piece *p);
#define MOVE(n_in, n_out)                                                                                              \
    static uint64_t plain_##n_in##n_out(const piece *p)                                                                \
    {                                                                                                                  \
        return move_body(n_in, n_out, 0, 0, *p);                                                                       \
    }                                                                                                                  \
    static uint64_t sum_##n_in##n_out(const piece *p)                                                                  \
    {                                                                                                                  \
        return move_body(n_in, n_out, 1, 0, *p);                                                                       \
    }                                                                                                                  \
    static uint64_t past_##n_in##n_out(const piece *p)                                                                 \
    {                                                                                                                  \
        return move_body(n_in, n_out, 0, n_out > 0, *p);                                                               \
    }                                                                                                                  \
    static uint64_t past_sum_##n_in##n_out(const piece *p)                                                             \
    {                                                                                                                  \
        return move_body(n_in, n_out, 1, n_out > 0, *p);                                                               \
    }
#define MOVES(n_in) MOVE(n_in, 0) MOVE(n_in, 1) MOVE(n_in, 2)
MOVES(0)
MOVES(1)
MOVES(2)
MOVES(3)
MOVES(4)
#define CELL(n_in, n_out)                                                                                              \
    {                                                                                                                  \
        plain_##n_in##n_out, sum_##n_in##n_out, past_##n_in##n_out, past_sum_##n_in##n_out                             \
    }
#define ROW(n_in)                                                                                                      \
    {                                                                                                                  \
        CELL(n_in, 0), CELL(n_in, 1), CELL(n_in, 2)                                                                    \
    }
static const move_fn moves[5][3][4] = {ROW(0), ROW(1), ROW(2), ROW(3), ROW(4)};

static void move(const job_t *job, int64_t task)
{
    int64_t begin = task * SKR_STREAM_PIECE, left = job->bytes - begin;
    piece p = {.bytes = left < SKR_STREAM_PIECE ? left : SKR_STREAM_PIECE};
    for (int s = 0; s < job->n_in; s++)
        p.x[s] = (const char *)job->x[s] + begin;
    for (int s = 0; s < job->n_out; s++)
        p.y[s] = (char *)job->y[s] + begin;
    /* All outputs must reach alignment together to be stored past the caches. */
    int past = skr_past(&job->head) && job->n_out &&
               (job->n_out == 1 || ((uintptr_t)p.y[0] - (uintptr_t)p.y[1]) % SKR_VB_BYTES == 0);
    uint64_t words = moves[job->n_in][job->n_out][(past ? PAST : PLAIN) | (job->checksum ? SUM : PLAIN)](&p);
    if (job->checksum)
        ((uint64_t *)job->head.workspace)[task] = words;
}

void SKR_KERNEL(stream)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(stream)(const void *job, int step, int64_t task, int worker)
{
    (void)worker;
    const job_t *j = job;
    if (step == SKR_STREAM_MOVE) {
        move(j, task);
    } else {
        uint64_t sum = 0;
        for (int64_t i = 0; i < j->n_tasks; i++)
            sum ^= ((const uint64_t *)j->head.workspace)[i];
        *j->checksum = (int64_t)sum;
    }
}
