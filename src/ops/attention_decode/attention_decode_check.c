/* attention_decode_check.c - what attention_decode refuses, and how tensors become a job.
 * SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "../attention/attention_op.h"
#include "attention_decode_op.h"

typedef skr_attention_decode_job job_t;

/* ---------------------------------------------------------------- shapes */

static skr_decode_rows rows_of(const skr_view *v)
{
    return (skr_decode_rows){v->data, v->stride[0], v->stride[1], v->stride[2], v->type, 0};
}

/* v is [B, S, Hk, width]: new tokens. */
static saker_status check_new(skr_call *call, const skr_view *v, const job_t *job, int64_t tokens, int64_t width,
                              skr_decode_rows *out)
{
    char text[192];
    SKR_TRY(skr_attention_check_rank(call, v, SAKER_BSHD));
    if (v->shape[0] != job->batch || v->shape[1] != tokens || v->shape[2] != job->heads_k || v->shape[3] != width)
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected [%lld, %lld, %lld, %lld]", v->name,
                        skr_shape_text(v, text), (long long)job->batch, (long long)tokens, (long long)job->heads_k,
                        (long long)width);
    *out = rows_of(v);
    return SAKER_OK;
}

/* q and o: all but the head size agree. */
static saker_status check_queries(skr_call *call, const skr_view *q, const skr_view *o, job_t *job)
{
    char x[192], y[192];
    SKR_TRY(skr_attention_check_rank(call, q, SAKER_BSHD));
    SKR_TRY(skr_attention_check_rank(call, o, SAKER_BSHD));
    job->batch = q->shape[0];
    job->length = q->shape[1];
    job->heads = q->shape[2];
    job->d = q->shape[3];
    job->d_v = o->shape[3];
    if (o->shape[0] != job->batch || o->shape[1] != job->length || o->shape[2] != job->heads)
        return skr_fail(call, SAKER_INVALID_ARG, "o has shape %s, expected that of q, %s, in all but the head size",
                        skr_shape_text(o, x), skr_shape_text(q, y));
    if (job->length > SKR_DECODE_MAX_SQ)
        return skr_fail(call, SAKER_UNSUPPORTED, "q has %lld queries, expected 1 to %d: attention is for more",
                        (long long)job->length, SKR_DECODE_MAX_SQ);
    if (job->d < 1 || job->d > SKR_DECODE_MAX_D)
        return skr_fail(call, SAKER_UNSUPPORTED, "q has head size %lld, expected 1 to %d", (long long)job->d,
                        SKR_DECODE_MAX_D);
    if (job->d_v < 1 || job->d_v > SKR_DECODE_MAX_DV)
        return skr_fail(call, SAKER_UNSUPPORTED, "o has head size %lld, expected 1 to %d", (long long)job->d_v,
                        SKR_DECODE_MAX_DV);
    job->q = rows_of(q);
    job->o = rows_of(o);
    return SAKER_OK;
}

/* ---------------------------------------------------------------- caches */

/* A cache's rows of `width` columns, the head size of q or o: k's shape with these, two to a byte in u8 and i4. */
static saker_status check_cache(skr_call *call, const skr_view *v, const skr_view *k, const skr_view *of, int64_t width,
                                skr_decode_cache *out)
{
    int64_t columns = v->type == SKR_U8 ? width / 2 + width % 2 : width;
    char text[192];
    bool fits = v->ndim == 4 && v->shape[3] == columns;
    for (int i = 0; fits && i < 3; i++)
        fits = v->shape[i] == k->shape[i];
    if (!fits)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "%s has shape %s, expected [%lld, %lld, %lld, %lld], for the head size of %s", v->name,
                        skr_shape_text(v, text), (long long)k->shape[0], (long long)k->shape[1], (long long)k->shape[2],
                        (long long)columns, of->name);
    SKR_TRY(skr_last_contiguous(call, v));
    int64_t bytes[3];
    for (int i = 0; i < 3; i++) {
        if (v->type == SKR_I4 && v->stride[i] % 2 && v->shape[i] > 1 && v->count)
            return skr_fail(call, SAKER_INVALID_ARG,
                            "%s has stride %lld in dimension %d, expected an even number: rows of i4 start at whole "
                            "bytes",
                            v->name, (long long)v->stride[i], i);
        bytes[i] = v->type == SKR_I4 ? v->stride[i] / 2 : v->stride[i] * skr_type_bytes(v->type);
    }
    out->data = v->data;
    out->block = bytes[0];
    out->token = bytes[1];
    out->head = bytes[2];
    out->width = out->group = width;
    out->type = v->type == SKR_U8 ? SKR_I4 : v->type;
    return SAKER_OK;
}

/* [Hk], or the cache's shape without its last dimension, or that and groups of columns. */
static saker_status check_scale(skr_call *call, const skr_view *v, const skr_view *cache, skr_decode_cache *out)
{
    char text[192], other[192];
    bool codes = out->type == SKR_I8 || out->type == SKR_E4M3 || out->type == SKR_I4;
    if (!v->present)
        return out->type != SKR_I4 ? SAKER_OK
                                   : skr_fail(call, SAKER_NULL_POINTER, "%s is NULL, expected scales for %s of type i4",
                                              v->name, cache->name);
    if (!codes)
        return skr_fail(call, SAKER_INVALID_ARG, "%s is given, and %s has a float type", v->name, cache->name);
    out->scale = (float *)v->data;
    if (v->ndim == 1 && v->shape[0] == cache->shape[2] && out->type != SKR_I4) {
        out->scale_head = v->stride[0];
        return SAKER_OK;
    }
    bool fits = v->ndim == 3 || v->ndim == 4;
    for (int i = 0; fits && i < 3; i++)
        fits = v->shape[i] == cache->shape[i];
    int64_t groups = fits && v->ndim == 4 ? v->shape[3] : 1;
    if (!fits || groups < 1 || out->width % groups)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "%s has shape %s, expected%s that of %s, %s, without the last dimension, or with groups of its "
                        "%lld columns there",
                        v->name, skr_shape_text(v, text), out->type == SKR_I4 ? "" : " [Hk], or", cache->name,
                        skr_shape_text(cache, other), (long long)out->width);
    out->group = out->width / groups;
    out->scale_block = v->stride[0];
    out->scale_token = v->stride[1];
    out->scale_head = v->stride[2];
    out->scale_group = v->ndim == 4 ? v->stride[3] : 0;
    out->dynamic = 1;
    return SAKER_OK;
}

static saker_status check_table(skr_call *call, const skr_view *table, const skr_view *k, job_t *job)
{
    char text[192];
    job->capacity = k->shape[1];
    if (!table->present) {
        if (k->shape[0] != job->batch)
            return skr_fail(call, SAKER_INVALID_ARG,
                            "k_cache has shape %s, expected the batch of q, %lld, or a "
                            "block_table",
                            skr_shape_text(k, text), (long long)job->batch);
        return SAKER_OK;
    }
    if (table->ndim != 2 || table->shape[0] != job->batch)
        return skr_fail(call, SAKER_INVALID_ARG, "block_table has shape %s, expected [%lld, max_pages]",
                        skr_shape_text(table, text), (long long)job->batch);
    job->pages = k->shape[0];
    job->page_size = k->shape[1];
    if (job->page_size < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "k_cache has shape %s, expected pages of at least 1 token",
                        skr_shape_text(k, text));
    if (__builtin_mul_overflow(table->shape[1], job->page_size, &job->capacity))
        return skr_fail(call, SAKER_OVERFLOW, "block_table has %lld pages of %lld tokens: these do not fit 63 bits",
                        (long long)table->shape[1], (long long)job->page_size);
    job->paged = 1;
    job->table = (const int32_t *)table->data;
    job->table_batch = table->stride[0];
    job->table_page = table->stride[1];
    return SAKER_OK;
}

static saker_status check_types(skr_call *call, const skr_view *v, job_t *job)
{
    const skr_view *k = &v[SKR_DECODE_K_CACHE], *w = &v[SKR_DECODE_V_CACHE];
    job->codes = k->type != SKR_F32 && k->type != SKR_F16 && k->type != SKR_BF16;
    if (!job->codes && k->type != v[SKR_DECODE_Q].type)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "k_cache and q differ in type, expected one type for both, or k_cache of type i8, e4m3 or i4");
    if (w->present && w->type != k->type)
        return skr_fail(call, SAKER_INVALID_ARG, "v_cache and k_cache differ in type, expected one type for both");
    return SAKER_OK;
}

static saker_status check_caches(skr_call *call, const skr_view *v, job_t *job)
{
    const skr_view *k = &v[SKR_DECODE_K_CACHE], *w = &v[SKR_DECODE_V_CACHE];
    char text[192];
    if (k->ndim != 4)
        return skr_fail(call, SAKER_INVALID_ARG, "k_cache has shape %s, expected [%s, Hk, D]", skr_shape_text(k, text),
                        v[SKR_DECODE_TABLE].present ? "pages, page_size" : "B, Smax");
    SKR_TRY(check_types(call, v, job));
    SKR_TRY(check_table(call, &v[SKR_DECODE_TABLE], k, job));
    job->heads_k = k->shape[2];
    if (job->heads_k ? job->heads % job->heads_k != 0 : job->heads != 0)
        return skr_fail(call, SAKER_INVALID_ARG, "q has %lld heads, expected a multiple of the %lld heads of k_cache",
                        (long long)job->heads, (long long)job->heads_k);
    job->group = job->heads_k ? job->heads / job->heads_k : 1;
    job->rows = job->length * job->group;
    SKR_TRY(check_cache(call, k, k, &v[SKR_DECODE_Q], job->d, &job->k));
    SKR_TRY(check_scale(call, &v[SKR_DECODE_K_SCALE], k, &job->k));
    job->latent = !w->present;
    if (job->latent) {
        if (job->d_v > job->d)
            return skr_fail(call, SAKER_INVALID_ARG,
                            "o has head size %lld, expected at most the %lld columns of k_cache: v_cache is NULL",
                            (long long)job->d_v, (long long)job->d);
        if (v[SKR_DECODE_V_SCALE].present)
            return skr_fail(call, SAKER_INVALID_ARG, "v_scale is given, expected v_cache with it");
        job->v = job->k;
        job->v.width = job->d_v;
        return SAKER_OK;
    }
    SKR_TRY(check_cache(call, w, k, &v[SKR_DECODE_O], job->d_v, &job->v));
    return check_scale(call, &v[SKR_DECODE_V_SCALE], w, &job->v);
}

/* ---------------------------------------------------------------- what is appended */

static saker_status check_appended(skr_call *call, const skr_view *v, job_t *job)
{
    const skr_view *k = &v[SKR_DECODE_K_NEW], *w = &v[SKR_DECODE_V_NEW];
    if (w->present && (!k->present || job->latent))
        return skr_fail(call, SAKER_INVALID_ARG, "v_new is given, expected %s with it",
                        k->present ? "v_cache" : "k_new");
    if (!k->present)
        return SAKER_OK;
    if (!w->present && !job->latent)
        return skr_fail(call, SAKER_NULL_POINTER, "v_new is NULL but k_new and v_cache are given");
    job->appended = k->ndim == 4 ? k->shape[1] : 0;
    SKR_TRY(check_new(call, k, job, job->appended, job->d, &job->k_new));
    if (!job->latent)
        SKR_TRY(check_new(call, w, job, job->appended, job->d_v, &job->v_new));
    if (job->appended > job->capacity)
        return skr_fail(call, SAKER_INVALID_ARG, "k_new has %lld tokens, expected at most %lld, what a sequence holds",
                        (long long)job->appended, (long long)job->capacity);
    return SAKER_OK;
}

static saker_status check_rope(skr_call *call, const skr_view *c, const skr_view *s,
                               const saker_attention_decode_args *a, job_t *job)
{
    char text[192];
    if (c->present != s->present)
        return skr_fail(call, SAKER_NULL_POINTER, "%s is NULL but %s is given", (c->present ? s : c)->name,
                        (c->present ? c : s)->name);
    if (!c->present) {
        if (a->rotary_offset || a->interleaved)
            return skr_fail(call, SAKER_INVALID_ARG, "%s is %lld, expected cos and sin with it",
                            a->rotary_offset ? "rotary_offset" : "interleaved",
                            (long long)(a->rotary_offset ? a->rotary_offset : a->interleaved));
        return SAKER_OK;
    }
    if (c->ndim != 2 || c->shape[0] < 1)
        return skr_fail(call, SAKER_INVALID_ARG, "cos has shape %s, expected [positions, R/2], of at least 1 position",
                        skr_shape_text(c, text));
    SKR_TRY(skr_same_shape(call, s, c));
    if (s->type != c->type)
        return skr_fail(call, SAKER_INVALID_ARG, "sin and cos differ in type, expected one type for both");
    SKR_TRY(skr_last_contiguous(call, c));
    SKR_TRY(skr_last_contiguous(call, s));
    if (a->rotary_offset < 0 || a->rotary_offset > job->d || c->shape[1] > (job->d - a->rotary_offset) / 2)
        return skr_fail(call, SAKER_INVALID_ARG,
                        "rotary_offset is %lld and cos has %lld columns, for twice as many of the %lld of q",
                        (long long)a->rotary_offset, (long long)c->shape[1], (long long)job->d);
    job->rope = (skr_decode_rope){c->data,     s->data,          c->stride[0], s->stride[0],  c->shape[0],
                                  c->shape[1], a->rotary_offset, c->type,      a->interleaved};
    return SAKER_OK;
}

/* ---------------------------------------------------------------- options, one number for each row or head */

static saker_status check_options(skr_call *call, const saker_attention_decode_args *a, job_t *job)
{
    const int64_t given[] = {a->window_left, a->window_right};
    int64_t bound[] = {SKR_DECODE_FAR, SKR_DECODE_FAR};
    for (int i = 0; i < 2; i++) {
        const char *name = i ? "window_right" : "window_left";
        if (!a->has_window && given[i])
            return skr_fail(call, SAKER_INVALID_ARG, "%s is %lld, expected has_window with it", name,
                            (long long)given[i]);
        if (given[i] < -1)
            return skr_fail(call, SAKER_INVALID_ARG, "%s is %lld, expected 0 or more, or -1: no bound", name,
                            (long long)given[i]);
        if (a->has_window && given[i] >= 0)
            bound[i] = skr_min(given[i], SKR_DECODE_FAR);
    }
    if (a->softcap < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "softcap is %g, expected 0 (none) or more", (double)a->softcap);
    if (a->split < 0)
        return skr_fail(call, SAKER_INVALID_ARG, "split is %lld, expected 0 (chosen) or more", (long long)a->split);
    job->left = bound[0];
    job->right = a->causal ? 0 : bound[1];
    job->scale = a->scale != 0 ? a->scale : (float)(1 / sqrt((double)job->d));
    job->softcap = a->softcap;
    job->split = a->split;
    return SAKER_OK;
}

static saker_status check_heads(skr_call *call, const skr_view *v, int64_t heads, int64_t batch, skr_decode_heads *out)
{
    skr_attention_scales found = {0};
    SKR_TRY(skr_attention_check_heads(call, v, heads, batch, &found));
    *out = (skr_decode_heads){found.data, found.batch, found.head};
    return SAKER_OK;
}

static saker_status check_stats(skr_call *call, const skr_view *v, job_t *job)
{
    const skr_view *lse = &v[SKR_DECODE_LSE], *lengths = &v[SKR_DECODE_LENGTHS];
    char text[192];
    if (lengths->ndim != 1 || lengths->shape[0] != job->batch)
        return skr_fail(call, SAKER_INVALID_ARG, "lengths has shape %s, expected [%lld], the batch of q",
                        skr_shape_text(lengths, text), (long long)job->batch);
    job->lengths = (const int32_t *)lengths->data;
    job->lengths_stride = lengths->stride[0];
    if (!lse->present)
        return SAKER_OK;
    if (lse->ndim != 3 || lse->shape[0] != job->batch || lse->shape[1] != job->heads || lse->shape[2] != job->length)
        return skr_fail(call, SAKER_INVALID_ARG, "lse has shape %s, expected [B, H, S] of q",
                        skr_shape_text(lse, text));
    job->lse = (skr_decode_rows){lse->data, lse->stride[0], lse->stride[2], lse->stride[1], SKR_F32, 0};
    return SAKER_OK;
}

/* Caches that are only read may share memory, with each other and with other inputs. */
static saker_status check_alias(skr_call *call, const skr_view *given, const job_t *job)
{
    skr_view v[SKR_DECODE_TENSORS];
    memcpy(v, given, sizeof v);
    bool writes = job->k_new.data && job->appended;
    v[SKR_DECODE_K_CACHE].output = v[SKR_DECODE_V_CACHE].output = writes;
    v[SKR_DECODE_K_SCALE].output = writes && job->k.dynamic;
    v[SKR_DECODE_V_SCALE].output = writes && job->v.dynamic;
    return skr_check_alias(call, v, SKR_DECODE_TENSORS, NULL, 0);
}

saker_status skr_attention_decode_check(skr_call *call, const skr_view *v, const void *args, void *out, bool *empty)
{
    const saker_attention_decode_args *a = args;
    job_t *job = out;
    memset(job, 0, sizeof *job);
    SKR_TRY(check_queries(call, &v[SKR_DECODE_Q], &v[SKR_DECODE_O], job));
    SKR_TRY(check_caches(call, v, job));
    SKR_TRY(check_appended(call, v, job));
    SKR_TRY(check_rope(call, &v[SKR_DECODE_COS], &v[SKR_DECODE_SIN], a, job));
    SKR_TRY(check_options(call, a, job));
    SKR_TRY(check_stats(call, v, job));
    SKR_TRY(check_heads(call, &v[SKR_DECODE_SLOPES], job->heads, job->batch, &job->slopes));
    SKR_TRY(check_heads(call, &v[SKR_DECODE_SINKS], job->heads, -1, &job->sinks));
    SKR_TRY(check_alias(call, v, job));
    *empty = job->batch == 0 || job->heads_k == 0 || (job->rows == 0 && job->appended == 0);
    return SAKER_OK;
}
