/* attention_check.c - what attention and attention_backward check alike: shapes, options, tokens, broadcasts.
 * SPDX-License-Identifier: Apache-2.0 */
#include "attention_op.h"

#include <math.h>
#include <string.h>

const skr_attention_places skr_attention_place_of[3] = {{0, 1, 2}, {0, 2, 1}, {-1, 0, 1}};

/* ---------------------------------------------------------------- heads */

saker_status skr_attention_check_rank(skr_call *call, const skr_view *v, int layout)
{
    static const char *const dims[] = {"[B, S, H, D]", "[B, H, S, D]", "[T, H, D]"};
    char text[192];
    if (v->ndim != (layout == SAKER_THD ? 3 : 4))
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected %s", v->name, skr_shape_text(v, text),
                        dims[layout]);
    return skr_last_contiguous(call, v);
}

static int64_t size_at(const skr_view *v, int dim)
{
    return dim < 0 ? 1 : v->shape[dim];
}

static skr_attention_rows rows_of(const skr_view *v, int layout)
{
    skr_attention_places p = skr_attention_place_of[layout];
    return (skr_attention_rows){
        v->data, p.batch < 0 ? 0 : v->stride[p.batch], v->stride[p.token], v->stride[p.head], v->type, 0};
}

saker_status skr_attention_check_rows(skr_call *call, const skr_view *v, const skr_view *ref, int layout,
                                      skr_attention_rows *out)
{
    if (!v->present)
        return SAKER_OK;
    SKR_TRY(skr_same_shape(call, v, ref));
    SKR_TRY(skr_last_contiguous(call, v));
    *out = rows_of(v, layout);
    return SAKER_OK;
}

/* q, k and v beside each other, and o: all but tokens, heads and head sizes agree. */
static saker_status check_heads(skr_call *call, const skr_attention_views *v, int layout, skr_attention_job *job)
{
    const skr_view *q = v->q, *k = v->k, *w = v->v, *o = v->o;
    const skr_view *all[] = {q, k, w, o};
    skr_attention_places p = skr_attention_place_of[layout];
    char x[192], y[192], z[192];
    for (int i = 0; i < 4; i++)
        SKR_TRY(skr_attention_check_rank(call, all[i], layout));
    job->batch = size_at(q, p.batch);
    job->length = q->shape[p.token];
    job->length_k = k->shape[p.token];
    job->heads = q->shape[p.head];
    job->heads_k = k->shape[p.head];
    job->d = q->shape[q->ndim - 1];
    job->d_v = w->shape[w->ndim - 1];
    if (size_at(k, p.batch) != job->batch || k->shape[k->ndim - 1] != job->d)
        return skr_fail(call, SAKER_INVALID_ARG, "k has shape %s, expected the batch and head size of q, %s",
                        skr_shape_text(k, x), skr_shape_text(q, y));
    if (size_at(w, p.batch) != job->batch || w->shape[p.token] != job->length_k || w->shape[p.head] != job->heads_k)
        return skr_fail(call, SAKER_INVALID_ARG, "v has shape %s, expected that of k, %s, in all but the head size",
                        skr_shape_text(w, x), skr_shape_text(k, y));
    if (size_at(o, p.batch) != job->batch || o->shape[p.token] != job->length || o->shape[p.head] != job->heads ||
        o->shape[o->ndim - 1] != job->d_v)
        return skr_fail(call, SAKER_INVALID_ARG, "o has shape %s, expected that of q, %s, with the head size of v, %s",
                        skr_shape_text(o, x), skr_shape_text(q, y), skr_shape_text(w, z));
    if (job->heads_k ? job->heads % job->heads_k != 0 : job->heads != 0)
        return skr_fail(call, SAKER_INVALID_ARG, "q has %lld heads, expected a multiple of the %lld heads of k",
                        (long long)job->heads, (long long)job->heads_k);
    if (job->d < 1 || job->d > SKR_ATTENTION_MAX_D)
        return skr_fail(call, SAKER_UNSUPPORTED, "q has head size %lld, expected 1 to %d", (long long)job->d,
                        SKR_ATTENTION_MAX_D);
    if (job->d_v < 1 || job->d_v > SKR_ATTENTION_MAX_DV)
        return skr_fail(call, SAKER_UNSUPPORTED, "v has head size %lld, expected 1 to %d", (long long)job->d_v,
                        SKR_ATTENTION_MAX_DV);
    job->group = job->heads_k ? job->heads / job->heads_k : 1;
    job->q = rows_of(q, layout);
    job->k = rows_of(k, layout);
    job->v = rows_of(w, layout);
    job->o = rows_of(o, layout);
    return SAKER_OK;
}

/* ---------------------------------------------------------------- one number for each token, row or head */

static bool shape_is(const skr_view *v, int n, int64_t a, int64_t b, int64_t c)
{
    const int64_t want[] = {a, b, c};
    bool same = v->ndim == n;
    for (int i = 0; same && i < n; i++)
        same = v->shape[i] == want[i];
    return same;
}

/* [B, S], or [T]. */
static saker_status check_tokens(skr_call *call, const skr_view *v, const skr_attention_job *job, bool of_keys,
                                 skr_attention_tokens *out)
{
    int64_t length = of_keys ? job->length_k : job->length;
    char text[192];
    if (!v->present)
        return SAKER_OK;
    if (job->packed ? !shape_is(v, 1, length, 0, 0) : !shape_is(v, 2, job->batch, length, 0))
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected %s: one for each token of %s", v->name,
                        skr_shape_text(v, text), job->packed ? "[T]" : "[B, S]", of_keys ? "k" : "q");
    *out = (skr_attention_tokens){v->data, job->packed ? 0 : v->stride[0], v->stride[v->ndim - 1]};
    return SAKER_OK;
}

static saker_status check_both(skr_call *call, const skr_view *a, const skr_view *b)
{
    if (a->present != b->present)
        return skr_fail(call, SAKER_NULL_POINTER, "%s is NULL but %s is given", (a->present ? b : a)->name,
                        (a->present ? a : b)->name);
    return SAKER_OK;
}

saker_status skr_attention_check_stat(skr_call *call, const skr_view *v, const skr_attention_job *job,
                                      skr_attention_stat *out)
{
    char text[192];
    if (!v->present)
        return SAKER_OK;
    if (job->packed ? !shape_is(v, 2, job->heads, job->length, 0)
                    : !shape_is(v, 3, job->batch, job->heads, job->length))
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected %s of q", v->name, skr_shape_text(v, text),
                        job->packed ? "[H, T]" : "[B, H, S]");
    int head = job->packed ? 0 : 1;
    *out = (skr_attention_stat){(float *)v->data, head ? v->stride[0] : 0, v->stride[head], v->stride[head + 1]};
    return SAKER_OK;
}

saker_status skr_attention_check_heads(skr_call *call, const skr_view *v, int64_t heads, int64_t batch,
                                       skr_attention_scales *out)
{
    char text[192];
    if (!v->present)
        return SAKER_OK;
    bool each = batch >= 0 && shape_is(v, 2, batch, heads, 0);
    if (!each && !shape_is(v, 1, heads, 0, 0))
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld]%s: one for each head", v->name,
                        skr_shape_text(v, text), (long long)heads, batch >= 0 ? " or that of each batch" : "");
    *out = (skr_attention_scales){(float *)v->data, each ? v->stride[0] : 0, v->stride[v->ndim - 1], 0};
    return SAKER_OK;
}

/* ---------------------------------------------------------------- packed sequences */

static saker_status check_cu(skr_call *call, const skr_view *cu, skr_attention_index *out)
{
    char text[192];
    if (cu->ndim != 1 || cu->shape[0] < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [sequences + 1]", cu->name,
                        skr_shape_text(cu, text));
    *out = (skr_attention_index){(const int32_t *)cu->data, cu->stride[0]};
    return SAKER_OK;
}

static saker_status check_sequences(skr_call *call, const skr_attention_views *v, const skr_attention_options *o,
                                    skr_attention_job *job)
{
    SKR_TRY(check_both(call, v->cu_q, v->cu_k));
    if (v->cu_q->present) {
        if (!job->packed)
            return skr_fail(call, SAKER_INVALID_ARG, "cu_seqlens_q is given, expected layout thd with it");
        SKR_TRY(check_cu(call, v->cu_q, &job->cu_q));
        SKR_TRY(check_cu(call, v->cu_k, &job->cu_k));
        if (v->cu_q->shape[0] != v->cu_k->shape[0])
            return skr_fail(call, SAKER_INVALID_ARG, "cu_seqlens_k has %lld entries, expected %lld as cu_seqlens_q",
                            (long long)v->cu_k->shape[0], (long long)v->cu_q->shape[0]);
        job->batch = v->cu_q->shape[0] - 1;
    }
    const int64_t most[] = {o->max_q, o->max_k};
    for (int i = 0; i < 2; i++)
        if (most[i] < 0 || (most[i] && !job->packed))
            return skr_fail(call, SAKER_INVALID_ARG, "max_%c is %lld, expected %s", i ? 'k' : 'q', (long long)most[i],
                            job->packed ? "0 (not known) or more" : "0: it is for layout thd");
    job->max_q = o->max_q;
    job->max_k = o->max_k;
    return SAKER_OK;
}

/* ---------------------------------------------------------------- bias and mask */

/* v repeated to [B, Hq, Sq, Sk]. thd: its own Sq and Sk, where they are not 1, are where sequences are cut off; the
 * only sequence there is without cu_seqlens has a known length, and nothing to cut off. */
static saker_status check_matrix(skr_call *call, const skr_view *v, skr_attention_job *job, skr_attention_matrix *out)
{
    char text[192];
    if (!v->present)
        return SAKER_OK;
    int missing = 4 - v->ndim;
    int64_t dim[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
    const int64_t full[4] = {job->batch, job->heads, job->length, job->length_k};
    bool fits = missing >= 0;
    for (int i = 0; fits && i < v->ndim; i++) {
        int at = missing + i;
        dim[at] = v->shape[i];
        stride[at] = dim[at] == 1 ? 0 : v->stride[i];
        bool padded = job->packed && at >= 2 && (job->cu_q.data || dim[at] > full[at]);
        fits = dim[at] == 1 || dim[at] == full[at] || padded;
    }
    if (!fits && job->cu_q.data)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "%s has shape %s, expected one that can be repeated to [%lld, %lld, longest, longest] (B, Hq, "
                        "Sq, Sk)",
                        v->name, skr_shape_text(v, text), (long long)job->batch, (long long)job->heads);
    if (!fits)
        return skr_fail(
            call, SAKER_INVALID_ARG,
            "%s has shape %s, expected one that can be repeated to [%lld, %lld, %lld, %lld] (B, Hq, Sq, Sk)", v->name,
            skr_shape_text(v, text), (long long)full[0], (long long)full[1], (long long)full[2], (long long)full[3]);
    *out = (skr_attention_matrix){v->data, stride[0], stride[1], stride[2], stride[3], v->type, 0};
    if (job->packed && dim[2] != 1)
        job->limit_q = skr_min(job->limit_q, dim[2]);
    if (job->packed && dim[3] != 1)
        job->limit_k = skr_min(job->limit_k, dim[3]);
    if (v->type != SKR_BOOL && v->type != SKR_U8)
        memcpy(job->bias_dims, dim, sizeof dim);
    return SAKER_OK;
}

/* ---------------------------------------------------------------- options */

static saker_status check_window(skr_call *call, const skr_attention_options *o, skr_attention_job *job)
{
    const int64_t given[] = {o->window_left, o->window_right};
    int64_t bound[] = {SKR_ATTENTION_FAR, SKR_ATTENTION_FAR};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "window_right" : "window_left";
        if (!o->has_window && given[i])
            return skr_fail(call, SAKER_INVALID_ARG, "%s is %lld, expected has_window with it", name,
                            (long long)given[i]);
        if (given[i] < -1)
            return skr_fail(call, SAKER_INVALID_ARG, "%s is %lld, expected 0 or more, or -1: no bound", name,
                            (long long)given[i]);
        if (o->has_window && given[i] >= 0)
            bound[i] = skr_min(given[i], SKR_ATTENTION_FAR);
    }
    job->left = bound[0];
    job->right = o->causal ? 0 : bound[1];
    job->top_left = o->top_left;
    job->bounded = job->left < SKR_ATTENTION_FAR || job->right < SKR_ATTENTION_FAR;
    return SAKER_OK;
}

static saker_status check_numbers(skr_call *call, const skr_attention_options *o, skr_attention_job *job)
{
    if (o->softcap < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "softcap is %g, expected 0 (none) or more", (double)o->softcap);
    if (!(o->dropout >= 0 && o->dropout < 1))
        return skr_fail(call, SAKER_INVALID_ARG, "dropout is %g, expected 0 or more, and less than 1",
                        (double)o->dropout);
    if (o->offset < 0 || o->offset > UINT32_MAX)
        return skr_fail(call, SAKER_INVALID_ARG, "offset is %lld, expected 0 to 4294967295", (long long)o->offset);
    job->scale = o->scale != 0 ? o->scale : (float)(1 / sqrt((double)job->d));
    job->softcap = o->softcap;
    job->drop = (uint32_t)ceil((double)o->dropout * 0x1p24);
    job->keep_scale = (float)(1 / (1 - (double)o->dropout));
    job->seed[0] = (uint32_t)(uint64_t)o->seed;
    job->seed[1] = (uint32_t)((uint64_t)o->seed >> 32);
    job->offset = (uint32_t)o->offset;
    job->id_rule = o->id_rule;
    return SAKER_OK;
}

saker_status skr_attention_check_common(skr_call *call, const skr_attention_views *v, const skr_attention_options *o,
                                        skr_attention_job *job)
{
    memset(job, 0, sizeof *job);
    job->packed = o->layout == SAKER_THD;
    job->limit_q = job->limit_k = INT64_MAX;
    SKR_TRY(check_heads(call, v, o->layout, job));
    SKR_TRY(check_sequences(call, v, o, job));
    SKR_TRY(check_numbers(call, o, job));
    SKR_TRY(check_window(call, o, job));
    SKR_TRY(check_matrix(call, v->mask, job, &job->mask));
    SKR_TRY(check_matrix(call, v->bias, job, &job->bias));
    SKR_TRY(skr_attention_check_stat(call, v->lse, job, &job->lse));
    SKR_TRY(check_tokens(call, v->key_mask, job, true, &job->key_mask));
    SKR_TRY(check_tokens(call, v->q_positions, job, false, &job->q_positions));
    SKR_TRY(check_tokens(call, v->k_positions, job, true, &job->k_positions));
    SKR_TRY(check_both(call, v->q_ids, v->k_ids));
    SKR_TRY(check_tokens(call, v->q_ids, job, false, &job->q_ids));
    SKR_TRY(check_tokens(call, v->k_ids, job, true, &job->k_ids));
    if (o->id_rule && !v->q_ids->present)
        return skr_fail(call, SAKER_INVALID_ARG, "id_rule is up_to, expected q_ids and k_ids with it");
    SKR_TRY(skr_attention_check_heads(call, v->slopes, job->heads, job->batch, &job->slopes));
    return skr_attention_check_heads(call, v->sinks, job->heads, -1, &job->sinks);
}
