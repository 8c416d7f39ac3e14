/* moe_route_cpu.c - which experts tokens go to. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * The best of few are kept sorted by insertion. Of many, a bound leaves few. */
#include "moe_route_cpu.h"

typedef skr_moe_route_job job_t;

/* ---------------------------------------------------------------- a token's choice */

/* A worker's rows and lists. */
typedef struct room {
    float *x, *score, *choice;
    uint32_t *key, *group_key, *best_group_key;
    int32_t *group_id, *group_chosen, *left;
    uint32_t *left_key;
    uint32_t *best_key;
    int32_t *best;
    float *weight;
} room;

static room room_of(const job_t *job, int worker)
{
    float *at = (float *)((char *)job->head.workspace + job->scratch_at + worker * job->scratch_bytes);
    int64_t n = padded(job->n), k = padded(job->k);
    room r = {.x = at, .score = at + n, .choice = at + 2 * n};
    r.key = (uint32_t *)(at + 3 * n), r.group_key = (uint32_t *)(at + 4 * n);
    r.best_group_key = (uint32_t *)(at + 5 * n);
    r.group_id = (int32_t *)(at + 6 * n), r.group_chosen = (int32_t *)(at + 7 * n);
    r.left = (int32_t *)(at + 8 * n), r.left_key = (uint32_t *)(at + 9 * n);
    at += SKR_ROUTE_ROWS * n;
    r.best_key = (uint32_t *)at, r.best = (int32_t *)(at + k), r.weight = at + 2 * k;
    return r;
}

SKR_FN vi keys_at(const float *f, int64_t i)
{
    vf v = v_load(SKR_F32, f, i);
    vi u = v_bits(v), sign = vi_set1(INT32_MIN);
    u = vi_select(vi_eq(u, sign), vi_set1(0), u);
    vi key = vi_xor(u, vi_or(vi_sra(u, 31), sign));
    return vi_select(v_is_nan(v), vi_set1(-1), key);
}

static uint32_t key_of(float f)
{
    uint32_t u;
    __builtin_memcpy(&u, &f, sizeof u);
    u = u == 0x80000000 ? 0 : u;
    return (u & 0x7fffffff) > 0x7f800000 ? UINT32_MAX : u >> 31 ? ~u : u | 0x80000000;
}

/* The k largest of n keys above 0 and where they stand, descending, equal ones by place; there are as many. at: where
 * the keys stand, ascending, NULL: each at its own place. */
static void insert(const uint32_t *key, const int32_t *at, int64_t n, int64_t k, uint32_t *best, int32_t *id)
{
    int64_t have = 0;
    uint32_t least = 0;
    for (int64_t i = 0; i < n; i++) {
        if (key[i] <= least)
            continue;
        int64_t to = have < k ? have++ : k - 1;
        for (; to > 0 && best[to - 1] < key[i]; to--) {
            best[to] = best[to - 1];
            id[to] = id[to - 1];
        }
        best[to] = key[i];
        id[to] = at ? at[i] : (int32_t)i;
        least = have == k ? best[k - 1] : 0;
    }
}

/* A key that k of the maxima of GROUPS groups reach, and so k keys, and few more: key i belongs to group i modulo
 * GROUPS. */
enum { GROUPS = 64 };
static uint32_t bound_of(const uint32_t *key, int64_t n, int64_t k)
{
    uint32_t most[GROUPS], bound = 1;
    int64_t i = GROUPS;
    __builtin_memcpy(most, key, sizeof most);
    for (; i + GROUPS <= n; i += GROUPS)
        for (int64_t g = 0; g < GROUPS; g++)
            most[g] = key[i + g] > most[g] ? key[i + g] : most[g];
    for (int64_t g = 0; i + g < n; g++)
        most[g] = key[i + g] > most[g] ? key[i + g] : most[g];
    for (int64_t g = 0; g < GROUPS; g++) {
        const uint32_t mine = most[g];
        int32_t reach = 0;
        for (int64_t o = 0; o < GROUPS; o++)
            reach += most[o] >= mine;
        bound = reach >= k && mine > bound ? mine : bound;
    }
    return bound;
}

/* As insert. Of many keys those below a bound are left out first, without branches: which are the best cannot be
 * guessed. What is left goes where as many are larger, unless many are equal. */
static void pick(const uint32_t *key, int64_t n, int64_t k, uint32_t *best, int32_t *id, const room *r)
{
    enum { MOST = 16, RANKED = 32 };
    if (n < GROUPS || k > MOST) {
        insert(key, NULL, n, k, best, id);
        return;
    }
    const uint32_t bound = bound_of(key, n, k);
    int64_t left = 0;
    for (int64_t i = 0; i < n; i++) {
        r->left[left] = (int32_t)i;
        left += key[i] >= bound;
    }
    for (int64_t i = 0; i < left; i++)
        r->left_key[i] = key[r->left[i]];
    if (left > RANKED) {
        insert(r->left_key, r->left, left, k, best, id);
        return;
    }
    for (int64_t i = left; i < RANKED; i++)
        r->left_key[i] = 0;
    for (int64_t i = 0; i < left; i++) {
        const uint32_t mine = r->left_key[i];
        int32_t before = 0;
        for (int32_t o = 0; o < RANKED; o++)
            before += (r->left_key[o] > mine) | ((r->left_key[o] == mine) & (o < i));
        if (before < k)
            id[before] = r->left[i];
    }
}

/* Experts outside of the best groups lose their keys. f: choices, or scores, in the order of the keys. */
static void keep_groups(const job_t *job, const room *r, const float *f)
{
    int64_t per = job->per_group, two = job->group_score == SKR_ROUTE_TOP2 && per > 1 ? 2 : 1;
    for (int64_t g = 0; g < job->n_groups; g++) {
        uint32_t best[2];
        int32_t at[2];
        insert(r->key + g * per, NULL, per, two, best, at);
        r->group_key[g] = two == 2 ? key_of(f[g * per + at[0]] + f[g * per + at[1]]) : best[0];
        r->group_chosen[g] = 0;
    }
    insert(r->group_key, NULL, job->n_groups, job->top_groups, r->best_group_key, r->group_id);
    for (int64_t i = 0; i < job->top_groups; i++)
        r->group_chosen[r->group_id[i]] = 1;
    for (int64_t g = 0; g < job->n_groups; g++)
        if (!r->group_chosen[g])
            __builtin_memset(r->key + g * per, 0, (size_t)per * sizeof *r->key);
}

static void weigh(const job_t *job, const room *r, int scored)
{
    int64_t k = job->k;
    int shares = job->score == SKR_ROUTE_SOFTMAX && job->renormalise;
    const float *from = scored && !shares ? r->score : r->x;
    float *w = r->weight;
    for (int64_t j = 0; j < k; j++)
        w[j] = from[r->best[j]];
    fill_up(w, k);
    if (shares)
        softmax_of(w, w, k);
    else if (!scored)
        sigmoid_of(w, w, k);
    double total = 1;
    if (job->renormalise && !shares) {
        total = 0;
        for (int64_t j = 0; j < k; j++)
            total += (double)w[j];
    }
    int lost = shares && scored && r->score[0] != r->score[0]; /* a NaN or +inf, be it chosen or not */
    for (int64_t j = 0; j < k; j++)
        w[j] = lost ? r->score[0] : total == 0 ? 0.0f : (float)((double)w[j] / total) * job->scale;
}

static void choose(const job_t *job, int64_t row, const room *r)
{
    int64_t n = job->n;
    int softmax = job->score == SKR_ROUTE_SOFTMAX, scored = job->all_scores || (softmax && !job->renormalise);
    widen(job->logits.type, row_of(&job->rows, &job->logits, row), -0.0f, r->x, n);
    fill_up(r->x, n);
    if (scored)
        (softmax ? softmax_of : sigmoid_of)(r->x, r->score, n);
    const float *choice = r->x;
    if (job->bias) {
        for (int64_t i = 0; i < n; i += SKR_LANES) {
            int left = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
            v_store(SKR_F32, r->choice, i, v_add(v_load(SKR_F32, r->score, i), v_load_n(SKR_F32, job->bias, i, left)));
        }
        choice = r->choice;
    }
    for (int64_t i = 0; i < n; i += SKR_LANES)
        v_store(SKR_F32, r->key, i, v_of_bits(keys_at(choice, i)));
    if (job->n_groups)
        keep_groups(job, r, job->bias ? r->choice : r->score);
    pick(r->key, n, job->k, r->best_key, r->best, r);
    weigh(job, r, scored);
}

static void choose_tile(const job_t *job, int64_t tile, int worker)
{
    int64_t end = (tile + 1) * job->tile_rows;
    int32_t *count = (int32_t *)((char *)job->head.workspace + job->counts_at) + tile * job->n;
    room r = room_of(job, worker);
    end = end < job->rows.m ? end : job->rows.m;
    if (job->sorted)
        __builtin_memset(count, 0, (size_t)job->n * sizeof *count);
    for (int64_t row = tile * job->tile_rows; row < end; row++) {
        int32_t *ids = (int32_t *)row_of(&job->rows, &job->ids, row);
        char *weights = row_of(&job->rows, &job->weights, row);
        choose(job, row, &r);
        for (int64_t j = 0; j < job->k; j++)
            ids[j * job->ids.col_stride] = r.best[j];
        for (int64_t j = 0; job->weights.data && j < job->k; j++)
            store_element(job->weights.type, weights, j * job->weights.col_stride, r.weight[j]);
        for (int64_t j = 0; job->sorted && j < job->k; j++)
            count[r.best[j]]++;
    }
}

/* ---------------------------------------------------------------- rows by expert */

/* Counts become the number of rows in the tiles before; the sums of all say where experts begin. */
static void add_up(const job_t *job)
{
    int32_t *count = (int32_t *)((char *)job->head.workspace + job->counts_at);
    int32_t *starts = (int32_t *)((char *)job->head.workspace + job->starts_at), at = 0;
    __builtin_memset(starts, 0, (size_t)(job->n + 1) * sizeof *starts);
    for (int64_t tile = 0; tile < job->tiles; tile++, count += job->n)
        for (int64_t e = 0; e < job->n; e++) {
            int32_t here = count[e];
            count[e] = starts[e];
            starts[e] += here;
        }
    for (int64_t e = 0; e <= job->n; e++) {
        int32_t rows = starts[e];
        if (job->counts && e < job->n)
            job->counts[e] = rows;
        if (job->offsets)
            job->offsets[e] = at;
        starts[e] = at;
        at += rows;
    }
}

static void place_tile(const job_t *job, int64_t tile)
{
    int64_t end = (tile + 1) * job->tile_rows;
    int32_t *before = (int32_t *)((char *)job->head.workspace + job->counts_at) + tile * job->n;
    const int32_t *starts = (const int32_t *)((char *)job->head.workspace + job->starts_at);
    end = end < job->rows.m ? end : job->rows.m;
    for (int64_t row = tile * job->tile_rows; row < end; row++) {
        const char *ids = row_of(&job->rows, &job->ids, row);
        for (int64_t j = 0; j < job->k; j++) {
            int32_t e = id_at(&job->ids, ids, j), at = starts[e] + before[e]++;
            if (job->order)
                job->order[at] = (int32_t)(row * job->k + j);
            if (job->place)
                job->place[row * job->k + j] = at;
            if (job->token)
                job->token[at] = (int32_t)row;
        }
    }
}

void SKR_KERNEL(moe_route)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(moe_route)(const void *job, int step, int64_t task, int worker)
{
    if (step == SKR_ROUTE_CHOOSE)
        choose_tile(job, task, worker);
    else if (step == SKR_ROUTE_ADD_UP)
        add_up(job);
    else
        place_tile(job, task);
}
