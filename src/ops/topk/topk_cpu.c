/* topk_cpu.c - the largest values of each row. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * First a bound, which k elements of the row reach and few others: the k-th of the maxima of about 4 k groups. Then one
 * pass that picks what is above it. Survivors are collected until there are more than twice as many as wanted, then cut
 * to the best k, whose least is the bound from then on. In the end they are cut once more, if they are many, and
 * sorted. */
#include "../../cpu/rows.h"
#include "../../cpu/simd/vmath.h"
#include "topk.h"

typedef skr_topk_job job_t;

enum { BLOCK = 8 * SKR_LANES };

/* ---------------------------------------------------------------- elements */

static inline uint32_t bits_of(float f)
{
    uint32_t u;
    __builtin_memcpy(&u, &f, 4);
    return u;
}

static inline uint64_t element_of(float f, int64_t index)
{
    uint32_t u = bits_of(f), key;
    if ((u & 0x7fffffff) > 0x7f800000)
        key = UINT32_MAX;
    else if (u == 0x80000000)
        key = 0x80000000;
    else
        key = u >> 31 ? ~u : u | 0x80000000;
    return (uint64_t)key << 32 | (uint32_t)~index;
}

static inline float value_of(uint64_t element)
{
    uint32_t key = (uint32_t)(element >> 32), u = key >> 31 ? key & 0x7fffffff : ~key;
    float f;
    __builtin_memcpy(&f, &u, 4);
    return f;
}

/* ---------------------------------------------------------------- survivors */

typedef struct survivors {
    uint64_t *a, *spare, *more; /* room elements each; until they are sorted those of a are in the order of the row */
    int64_t n, k, room;
    uint64_t least; /* what a new one must beat: a bound or the k-th of those that were there before; 0: none */
} survivors;

/* Few elements, descending. */
static void sort_few(uint64_t *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        uint64_t e = a[i];
        int64_t j = i;
        for (; j > 0 && a[j - 1] < e; j--)
            a[j] = a[j - 1];
        a[j] = e;
    }
}

/* `to` becomes a with what is larger than some element (the pivot) first; returns how many that are; none: to[0] is the
 * largest. The pivot is the middle of three whose places come from a counter, so that no input is bad but by chance.
 * Without branches: which way an element goes cannot be guessed. */
static int64_t split(const uint64_t *a, uint64_t *to, int64_t n, uint32_t *seed)
{
    uint64_t p[3];
    for (int i = 0; i < 3; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        p[i] = a[(int64_t)((uint64_t)(*seed >> 8) * (uint64_t)n >> 24)];
    }
    uint64_t high = p[0] > p[1] ? p[0] : p[1], low = p[0] > p[1] ? p[1] : p[0];
    uint64_t pivot = p[2] > high ? high : p[2] < low ? low : p[2];
    int64_t left = 0, right = n, pivot_at = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t larger = a[i] > pivot;
        right -= 1 - larger;
        pivot_at = a[i] == pivot ? right : pivot_at;
        to[larger ? left : right] = a[i];
        left += larger;
    }
    if (left == 0) {
        to[pivot_at] = to[0];
        to[0] = pivot;
    }
    return left;
}

enum { FEW = 12 };

/* The k-th largest of s->a, which stays as it is. */
static uint64_t select_kth(const survivors *s)
{
    const uint64_t *from = s->a;
    uint64_t *to = s->spare, few[FEW];
    int64_t n = s->n, k = s->k;
    uint32_t seed = (uint32_t)n;
    while (n > FEW) {
        int64_t larger = split(from, to, n, &seed), skip = larger ? larger : 1;
        from = to;
        to = to == s->spare ? s->more : s->spare;
        if (larger >= k) {
            n = larger;
        } else if (k == 1) {
            return from[0]; /* the pivot */
        } else {
            from += skip;
            n -= skip;
            k -= skip;
        }
    }
    __builtin_memcpy(few, from, (size_t)n * sizeof *few);
    sort_few(few, n);
    return few[k - 1];
}

/* Keeps the k largest. */
static void cut(survivors *s)
{
    int64_t kept = 0;
    s->least = select_kth(s);
    for (int64_t i = 0; i < s->n; i++) {
        s->a[kept] = s->a[i];
        kept += s->a[i] >= s->least;
    }
    s->n = s->k;
}

static void collect(survivors *s, uint64_t e)
{
    if (e <= s->least)
        return;
    s->a[s->n++] = e;
    if (s->n == s->room)
        cut(s);
}

static void exchange(survivors *s)
{
    uint64_t *t = s->a;
    s->a = s->spare;
    s->spare = t;
}

/* Descending. Up to RANKED each goes where as many are larger; more go by the bytes of their keys from the lowest up,
 * where bytes that all share are passed over: equal keys stay in the order of the row. */
static void sort(survivors *s)
{
    enum { RANKED = 128 };
    if (s->n <= RANKED) {
        const uint64_t *a = s->a;
        const int64_t n = s->n, eights = (n + 7) / 8;
        for (int64_t i = n; i < 8 * eights; i++)
            s->a[i] = 0;
        for (int64_t i = 0; i < n; i++) {
            int64_t larger = 0;
            for (int64_t j = 0; j < 8 * eights; j++)
                larger += a[j] > a[i];
            s->spare[larger] = a[i];
        }
        exchange(s);
        return;
    }
    uint32_t count[4][256] = {{0}};
    for (int64_t i = 0; i < s->n; i++)
        for (int byte = 0; byte < 4; byte++)
            count[byte][s->a[i] >> (32 + 8 * byte) & 255]++;
    for (int byte = 0; byte < 4; byte++) {
        int shift = 32 + 8 * byte;
        uint32_t *place = count[byte], at = 0;
        if (place[s->a[0] >> shift & 255] == s->n)
            continue;
        for (int d = 255; d >= 0; d--) {
            uint32_t here = place[d];
            place[d] = at;
            at += here;
        }
        for (int64_t i = 0; i < s->n; i++)
            s->spare[place[s->a[i] >> shift & 255]++] = s->a[i];
        exchange(s);
    }
}

/* ---------------------------------------------------------------- one row */

/* What was picked and not yet offered to the survivors. */
typedef struct picked {
    float f[2 * BLOCK + SKR_LANES];
    int32_t at[2 * BLOCK + SKR_LANES];
    int n;
} picked;

static void offer(picked *p, survivors *s)
{
    for (int i = 0; i < p->n; i++)
        collect(s, element_of(p->f[i], p->at[i]));
    p->n = 0;
}

SKR_FN void scan(int type, const void *x, int64_t n, survivors *s)
{
    _Alignas(64) static const float lane[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    picked p; /* an initialiser would clear all of it for each row */
    p.n = 0;
    vi lanes = v_to_int(v_load(SKR_F32, lane, 0));
    vf least = v_set1(value_of(s->least)); /* of 0 it is a NaN: all are above it */
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        vf2 a = v_load2(type, x, i), b = v_load2(type, x, i + 2 * SKR_LANES);
        vf2 c = v_load2(type, x, i + 4 * SKR_LANES), d = v_load2(type, x, i + 6 * SKR_LANES);
        const vf all[] = {a.lo, a.hi, b.lo, b.hi, c.lo, c.hi, d.lo, d.hi};
        vm m[8], any;
        SKR_UNROLL
        for (int k = 0; k < 8; k++)
            m[k] = v_not_le(all[k], least);
        any = vm_or(vm_or(vm_or(m[0], m[1]), vm_or(m[2], m[3])), vm_or(vm_or(m[4], m[5]), vm_or(m[6], m[7])));
        if (!vm_any(any))
            continue;
        SKR_UNROLL
        for (int k = 0; k < 8; k++) {
            vi at = vi_add(lanes, vi_set1((int32_t)i + k * SKR_LANES));
            p.n += v_pick(m[k], all[k], at, p.f + p.n, p.at + p.n);
        }
        if (p.n < BLOCK)
            continue;
        offer(&p, s);
        least = v_set1(value_of(s->least));
        if (s->least >> 32 == UINT32_MAX)
            return; /* k NaNs: nothing that comes later is larger */
    }
    for (; i + SKR_LANES <= n; i += SKR_LANES) { /* less than a block */
        vf a = v_load(type, x, i);
        p.n += v_pick(v_not_le(a, least), a, vi_add(lanes, vi_set1((int32_t)i)), p.f + p.n, p.at + p.n);
    }
    v_store(SKR_F32, p.f, p.n, v_load_n(type, x, i, (int)(n - i)));
    for (; i < n; i++)
        p.at[p.n++] = (int32_t)i;
    offer(&p, s);
}

/* A key that at least k of n floats reach, whole vectors of them; for more than one its leading half, by trying bits. A
 * NaN reaches nothing there, so that the key may be too low, never too high. */
SKR_FN uint32_t reached_by(int64_t k, const float *f, int64_t n)
{
    uint32_t key = 0;
    if (k == 1) {
        vf top = v_load(SKR_F32, f, 0);
        for (int64_t i = SKR_LANES; i < n; i += SKR_LANES)
            top = v_at_least(top, v_load(SKR_F32, f, i));
        return (uint32_t)(element_of(v_hmax(top), 0) >> 32);
    }
    for (uint32_t bit = 1u << 31; bit >= 1u << 16; bit >>= 1) {
        const uint32_t trial = key | bit;
        if (trial < 0x00800000 || trial > 0xff800000) /* a NaN, which nothing reaches */
            continue;
        vf least = v_set1(value_of((uint64_t)trial << 32));
        int64_t reach = 0;
        for (int64_t i = 0; i < n; i += SKR_LANES)
            reach += vm_count(v_le(least, v_load(SKR_F32, f, i)));
        key = reach >= k ? trial : key;
    }
    return key;
}

/* A bound for new survivors, from the first part of the row: element i belongs to group i modulo the number of groups,
 * and the maxima of the groups are elements of the row. */
SKR_FN void set_bound(int type, const void *x, int64_t n, survivors *s)
{
    enum { FIRST_OF_ONE = 4096, FIRST = 1 << 17 };
    int64_t first = s->k == 1 ? FIRST_OF_ONE : FIRST < 64 * s->k ? 64 * s->k : FIRST;
    first = n < first ? n : first;
    int64_t groups = (4 * s->k + BLOCK - 1) / BLOCK * BLOCK;
    if (2 * groups > first) /* each element by itself */
        groups = first / (2 * SKR_LANES) * (2 * SKR_LANES);
    if (n < 2 * s->k || !groups)
        return;
    float *most = (float *)s->a; /* nothing is there yet, nor in what follows it */
    for (int64_t g = 0; g < groups; g += 2 * SKR_LANES)
        v_store2(SKR_F32, most, g, v_load2(type, x, g));
    for (int64_t i = groups; i + 2 * SKR_LANES <= first; i += groups) {
        int64_t end = first - i < groups ? (first - i) / (2 * SKR_LANES) * (2 * SKR_LANES) : groups;
        for (int64_t g = 0; g < end; g += 2 * SKR_LANES) {
            vf2 v = v_load2(type, x, i + g);
            v_store(SKR_F32, most, g, v_at_least(v_load(SKR_F32, most, g), v.lo));
            v_store(SKR_F32, most, g + SKR_LANES, v_at_least(v_load(SKR_F32, most, g + SKR_LANES), v.hi));
        }
    }
    for (; groups % (2 * SKR_LANES) == 0 && groups / 2 >= 4 * s->k; groups /= 2)
        for (int64_t g = 0; g < groups / 2; g += SKR_LANES)
            v_store(SKR_F32, most, g, v_at_least(v_load(SKR_F32, most, g), v_load(SKR_F32, most, g + groups / 2)));
    uint32_t key = reached_by(s->k, most, groups);
    if (key > 0x7f7fffff && key < 0x80800000) /* a caller's mode may take subnormals for 0: -FLT_MIN, which all reach */
        key = 0x7f7fffff;
    /* Of what is at -infinity or below, value_of() gives no number to compare with: there is no bound then. */
    if (key > 0x00800000)
        s->least = (((uint64_t)key - 1) << 32) - 1; /* one less: 0 does not beat -0 */
}

SKR_FN void scan_row(int type, const void *x, int64_t n, survivors *s)
{
    set_bound(type, x, n, s);
    scan(type, x, n, s);
}

static void scan_f32(const void *x, int64_t n, survivors *s)
{
    scan_row(SKR_F32, x, n, s);
}

static void scan_f16(const void *x, int64_t n, survivors *s)
{
    scan_row(SKR_F16, x, n, s);
}

static void scan_bf16(const void *x, int64_t n, survivors *s)
{
    scan_row(SKR_BF16, x, n, s);
}

/* f becomes its softmax; the first is the largest. */
static void softmax(float *f, int64_t k)
{
    float top = f[0];
    double sum = 0;
    for (int64_t i = 0; i < k; i += SKR_LANES) {
        int left = k - i < SKR_LANES ? (int)(k - i) : SKR_LANES;
        v_store_n(SKR_F32, f, i, v_exp(v_sub(v_load_n(SKR_F32, f, i, left), v_set1(top))), left);
    }
    for (int64_t i = 0; i < k; i++)
        sum += (double)f[i];
    for (int64_t i = 0; i < k; i++)
        f[i] = top == -__builtin_inff() ? 0.0f : (float)((double)f[i] / sum);
}

static void put_row(const job_t *job, int64_t row, const survivors *s, float *f)
{
    const char *x = row_of(&job->rows, &job->x, row);
    if (job->indices.data) {
        int32_t *to = (int32_t *)row_of(&job->rows, &job->indices, row);
        for (int64_t i = 0; i < job->k; i++)
            to[i * job->indices.col_stride] = (int32_t) ~(uint32_t)s->a[i];
    }
    if (!job->values.data)
        return;
    char *to = row_of(&job->rows, &job->values, row);
    for (int64_t i = 0; i < job->k; i++) /* from x: a key does not know -0 */
        f[i] = load_element(job->x.type, x, (int32_t) ~(uint32_t)s->a[i]);
    if (job->softmax)
        softmax(f, job->k);
    for (int64_t i = 0; i < job->k; i++)
        store_element(job->values.type, to, i * job->values.col_stride, f[i]);
}

void SKR_KERNEL(topk)(const void *job, int step, int64_t task, int worker);
void SKR_KERNEL(topk)(const void *job, int step, int64_t task, int worker)
{
    (void)step;
    const job_t *j = job;
    char *scratch = (char *)j->head.workspace + worker * j->scratch_bytes;
    int64_t end = (task + 1) * j->rows_per_task;
    end = end < j->rows.m ? end : j->rows.m;
    for (int64_t row = task * j->rows_per_task; row < end; row++) {
        uint64_t *room = (uint64_t *)scratch;
        survivors s = {.a = room, .spare = room + j->room, .more = room + 2 * j->room, .k = j->k, .room = j->room};
        const char *x = row_of(&j->rows, &j->x, row);
        (j->x.type == SKR_F32 ? scan_f32 : j->x.type == SKR_F16 ? scan_f16 : scan_bf16)(x, j->n, &s);
        if (s.n > s.k + s.k / 2 + FEW) /* a few more are sorted, too */
            cut(&s);
        sort(&s);
        put_row(j, row, &s, (float *)(room + 3 * j->room));
    }
}
