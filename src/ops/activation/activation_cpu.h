/* activation_cpu.h - what the CPU kernels of activation and activation_backward share: rows of any type and layout as
 * f32. SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ACTIVATION_CPU_H
#define SKR_ACTIVATION_CPU_H

#include "../../cpu/rows.h"
#include "../../cpu/simd/act.h"
#include "activation.h"

/* Four vectors from element i. */
SKR_FN void load4(int type, const void *p, int64_t i, vf *x)
{
    vf2 a = v_load2(type, p, i), b = v_load2(type, p, i + 2 * SKR_LANES);
    x[0] = a.lo, x[1] = a.hi, x[2] = b.lo, x[3] = b.hi;
}

SKR_FN void store4(int type, void *p, int64_t i, const vf *x, int past)
{
    v_out2(type, p, i, (vf2){x[0], x[1]}, past);
    v_out2(type, p, i + 2 * SKR_LANES, (vf2){x[2], x[3]}, past);
}

/* ---------------------------------------------------------------- rows as f32 */

enum { SPAN = 512 }; /* elements on their way through f32 */

/* Gate and up of SPAN columns as f32: where they lie, or in the buffers behind. */
typedef struct operands {
    const float *gate, *up;
    float buffer[2][SPAN], pair[2 * SPAN];
} operands;

static const char *element(const skr_act_head *a, const skr_rows *t, int64_t row, int64_t column)
{
    return row_of(&a->rows, t, row) + column * a->step * skr_type_bytes(t->type);
}

static const float *bias_of(const skr_job_head *head, const skr_act_head *a)
{
    return a->bias.data ? param_row(head, &a->bias, a->bias_at, 0, 0) : NULL;
}

static void add_bias(float *to, const float *from, const float *bias, int64_t step, int64_t n)
{
    if (step == 1)
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i] + bias[i];
    else
        for (int64_t i = 0; i < n; i++)
            to[i] = from[i] + bias[2 * i];
}

static const float *as_f32(int type, const void *x, float *buffer, int64_t n)
{
    if (type == SKR_F32)
        return x;
    widen(type, x, 0.0f, buffer, n);
    return buffer;
}

static void get_operands(const skr_job_head *head, const skr_act_head *a, int64_t row, int64_t column, int64_t n,
                         operands *o)
{
    const char *gate = element(a, &a->gate, row, column);
    o->up = NULL;
    if (a->step == 2) {
        const float *pair = as_f32(a->gate.type, gate, o->pair, 2 * n);
        for (int64_t i = 0; i < n; i++) {
            o->buffer[0][i] = pair[2 * i];
            o->buffer[1][i] = pair[2 * i + 1];
        }
        o->gate = o->buffer[0];
        o->up = o->buffer[1];
    } else {
        o->gate = as_f32(a->gate.type, gate, o->buffer[0], n);
        if (a->up.data)
            o->up = as_f32(a->up.type, element(a, &a->up, row, column), o->buffer[1], n);
    }
    const float *bias = bias_of(head, a);
    if (bias) {
        bias += column * a->bias_step;
        add_bias(o->buffer[0], o->gate, bias, a->bias_step, n);
        o->gate = o->buffer[0];
        if (o->up) {
            add_bias(o->buffer[1], o->up, bias + a->bias_up, a->bias_step, n);
            o->up = o->buffer[1];
        }
    }
}

/* Where a result of n elements is to be made so that put() has it in its place: there itself, or the buffer. */
static float *room_for(int type, void *y, float *buffer)
{
    return y && type == SKR_F32 ? y : buffer;
}

static void put(int type, const float *from, void *y, int64_t n)
{
    if (y && type != SKR_F32)
        narrow(type, from, y, n);
}

/* The bias as f32: a task of the first step. */
static void copy_bias(const skr_job_head *head, const skr_act_head *a, int64_t task)
{
    int64_t columns = a->gated ? 2 * a->n : a->n, begin = task * SKR_ACT_PARAM_PIECE, end = begin + SKR_ACT_PARAM_PIECE;
    copy_param(head, &a->bias, 0.0f, a->bias_at, 0, 0, begin, end < columns ? end : columns);
}

/* The rows and columns of a task. */
typedef struct region {
    int64_t begin, end, first, last;
} region;

static region region_of(const skr_act_head *a, int64_t task)
{
    region r = {.begin = task / a->pieces * a->rows_per_task, .first = task % a->pieces * a->piece};
    r.end = r.begin + a->rows_per_task < a->rows.m ? r.begin + a->rows_per_task : a->rows.m;
    r.last = r.first + a->piece < a->n ? r.first + a->piece : a->n;
    return r;
}

#endif
