/* topk_cpu.c - the largest values of each row. Compiled once per instruction-set level.
 * SPDX-License-Identifier: Apache-2.0
 *
 * One pass over the row: blocks of vectors are compared with the smallest survivor so far, and only a block with
 * something larger (or a NaN) is looked at element by element. Few survivors are kept sorted by insertion; many are
 * collected until there are twice as many as wanted, then cut to the best k. What is too small from the beginning is
 * found out first: for few by maxima of groups, for many, where k is a good part of the row, by a count of leading
 * bits. Elements that come later lose against an equal survivor, so only what is strictly larger counts. */
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
    uint64_t *a, *spare; /* room elements each */
    int64_t n, k, room;
    uint64_t least; /* what a new one must beat; with less than k of them a bound, or 0 */
} survivors;

static void insert(survivors *s, uint64_t e)
{
    if (e <= s->least)
        return;
    int64_t last = s->n < s->k ? s->n : s->k - 1, at = last;
    for (; at > 0 && s->a[at - 1] < e; at--)
        s->a[at] = s->a[at - 1];
    s->a[at] = e;
    s->n = last + 1;
    if (s->n == s->k)
        s->least = s->a[s->k - 1];
}

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

/* Puts what is larger than some element (the pivot) first and returns how many that are; none: a[0] is the largest. The
 * pivot is the middle of three whose places come from a counter, so that no input is bad but by chance. Without
 * branches: which way an element goes cannot be guessed. */
static int64_t split(uint64_t *a, uint64_t *spare, int64_t n, uint32_t *seed)
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
        spare[larger ? left : right] = a[i];
        left += larger;
    }
    if (left == 0) {
        spare[pivot_at] = spare[0];
        spare[0] = pivot;
    }
    __builtin_memcpy(a, spare, (size_t)n * sizeof *a);
    return left;
}

enum { FEW = 12 };

/* Puts the k largest first. */
static void cut(survivors *s)
{
    uint64_t *a = s->a;
    int64_t low = 0, high = s->n;
    uint32_t seed = (uint32_t)s->n;
    while (high - low > FEW) {
        int64_t middle = low + split(a + low, s->spare, high - low, &seed);
        if (middle == low)
            low++;
        else if (middle >= s->k)
            high = middle;
        else
            low = middle;
        if (low == s->k)
            break;
    }
    if (low < s->k)
        sort_few(a + low, high - low);
    s->n = s->k;
    s->least = a[0];
    for (int64_t i = 1; i < s->n; i++)
        s->least = a[i] < s->least ? a[i] : s->least;
}

static void collect(survivors *s, uint64_t e)
{
    if (e <= s->least)
        return;
    s->a[s->n++] = e;
    if (s->n == s->room)
        cut(s);
}

/* Descending. The stack stays shallow: the larger part is done by the loop. */
static void sort_split(uint64_t *a, uint64_t *spare, int64_t n, uint32_t *seed)
{
    while (n > FEW) {
        int64_t larger = split(a, spare, n, seed);
        larger += larger == 0;
        if (larger < n - larger) {
            sort_split(a, spare, larger, seed);
            a += larger;
            n -= larger;
        } else {
            sort_split(a + larger, spare, n - larger, seed);
            n = larger;
        }
    }
    sort_few(a, n);
}

/* Descending; many by bytes from the lowest up, where bytes that all share are passed over. The result is in s->a. */
static void sort(survivors *s)
{
    if (s->n < 1024) {
        uint32_t seed = 1;
        sort_split(s->a, s->spare, s->n, &seed);
        return;
    }
    for (int byte = 0; byte < 8; byte++) {
        int64_t count[256] = {0};
        for (int64_t i = 0; i < s->n; i++)
            count[s->a[i] >> 8 * byte & 255]++;
        if (count[s->a[0] >> 8 * byte & 255] == s->n)
            continue;
        int64_t at = 0;
        for (int d = 255; d >= 0; d--) {
            int64_t here = count[d];
            count[d] = at;
            at += here;
        }
        for (int64_t i = 0; i < s->n; i++)
            s->spare[count[s->a[i] >> 8 * byte & 255]++] = s->a[i];
        uint64_t *t = s->a;
        s->a = s->spare;
        s->spare = t;
    }
}

/* ---------------------------------------------------------------- one row */

static void offer(survivors *s, const float *f, int64_t index, int n)
{
    if (s->k <= SKR_TOPK_INSERT)
        for (int i = 0; i < n; i++)
            insert(s, element_of(f[i], index + i));
    else
        for (int i = 0; i < n; i++)
            collect(s, element_of(f[i], index + i));
}

SKR_FN int beats(vf f, const survivors *s)
{
    return vm_any(v_lt(v_set1(value_of(s->least)), f));
}

SKR_FN void scan(int type, const void *x, int64_t n, survivors *s)
{
    float f[SKR_LANES];
    int64_t i = 0;
    while (i + BLOCK <= n) {
        vf2 a = v_load2(type, x, i), b = v_load2(type, x, i + 2 * SKR_LANES);
        vf2 c = v_load2(type, x, i + 4 * SKR_LANES), d = v_load2(type, x, i + 6 * SKR_LANES);
        vf most = v_max(v_max(v_max(a.lo, a.hi), v_max(b.lo, b.hi)), v_max(v_max(c.lo, c.hi), v_max(d.lo, d.hi)));
        int nan = vm_any(v_is_nan(most));
        if (nan || s->least == 0 || beats(most, s)) {
            const vf all[] = {a.lo, a.hi, b.lo, b.hi, c.lo, c.hi, d.lo, d.hi};
            for (int k = 0; k < 8; k++)
                if (nan || s->least == 0 || beats(all[k], s)) {
                    v_store(SKR_F32, f, 0, all[k]);
                    offer(s, f, i + k * SKR_LANES, SKR_LANES);
                }
            if (s->least >> 32 == UINT32_MAX)
                return; /* k NaNs: nothing that comes later is larger */
        }
        i += BLOCK;
    }
    for (; i < n; i += SKR_LANES) {
        int left = n - i < SKR_LANES ? (int)(n - i) : SKR_LANES;
        v_store(SKR_F32, f, 0, v_load_n(type, x, i, left));
        offer(s, f, i, left);
    }
}

/* New survivors must reach this, which at least k elements do. Of what is at -infinity or below, value_of() gives no
 * number to compare with: there is no bound then. */
static void bound_at(survivors *s, uint32_t key)
{
    if (key > 0x00800000)
        s->least = (((uint64_t)key - 1) << 32) - 1; /* one less: 0 does not beat -0 */
}

/* A bound for few survivors, from the row's first part: its vectors go around eight maxima. Each of those numbers is an
 * element of its own, so that k elements are at least as large as the k-th of them. */
SKR_FN void set_bound_few(int type, const void *x, int64_t n, survivors *s)
{
    enum { GROUPS = 8, FIRST = 4096 };
    vf most[GROUPS];
    float all[GROUPS * SKR_LANES];
    uint64_t room[SKR_TOPK_INSERT];
    for (int g = 0; g < GROUPS; g += 2) {
        vf2 v = v_load2(type, x, g * SKR_LANES);
        most[g] = v.lo, most[g + 1] = v.hi;
    }
    for (int64_t i = BLOCK; i + BLOCK <= n && i < FIRST; i += BLOCK)
        for (int g = 0; g < GROUPS; g += 2) {
            vf2 v = v_load2(type, x, i + g * SKR_LANES);
            most[g] = v_max(most[g], v.lo), most[g + 1] = v_max(most[g + 1], v.hi);
        }
    int groups = GROUPS;
    for (; groups > 1 && groups * SKR_LANES / 2 >= 4 * s->k; groups /= 2)
        for (int g = 0; g < groups / 2; g++)
            most[g] = v_max(most[g], most[g + groups / 2]);
    for (int g = 0; g < groups; g++)
        v_store(SKR_F32, all, g * SKR_LANES, most[g]);
    survivors best = {.a = room, .k = s->k};
    for (int i = 0; i < groups * SKR_LANES; i++) {
        if (all[i] != all[i])
            return; /* it says nothing about the others of its group */
        insert(&best, element_of(all[i], i));
    }
    if (best.n == best.k)
        bound_at(s, (uint32_t)(best.least >> 32));
}

/* A bound for many, by the leading bits of the keys. Here -0 and NaNs with a sign count as smaller than they are, so
 * that the bound may be too low, never too high. */
SKR_FN void set_bound(int type, const void *x, int64_t n, survivors *s)
{
    enum { DIGIT = 11, SHIFT = 32 - DIGIT, LOWEST = 0x00800000 >> SHIFT };
    uint32_t count[1 << DIGIT] = {0}, digit = (1 << DIGIT) - 1;
    float f[2 * SKR_LANES];
    for (int64_t i = 0; i < n; i += 2 * SKR_LANES) {
        int left = n - i < 2 * SKR_LANES ? (int)(n - i) : 2 * SKR_LANES;
        v_store2(SKR_F32, f, 0, left < 2 * SKR_LANES ? v_load2_n(type, x, i, left) : v_load2(type, x, i));
        for (int k = 0; k < left; k++) {
            uint32_t u = bits_of(f[k]);
            count[(u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000)) >> SHIFT]++;
        }
    }
    for (int64_t above = count[digit]; above < s->k && digit > LOWEST; above += count[digit])
        digit--;
    bound_at(s, digit << SHIFT);
}

enum { OFTEN = 64 }; /* rows of up to so many times k have the bound set first */

SKR_FN void scan_row(int type, const void *x, int64_t n, survivors *s)
{
    if (s->k > 1 && s->k <= SKR_TOPK_INSERT && n >= 2 * BLOCK)
        set_bound_few(type, x, n, s);
    else if (s->k > SKR_TOPK_INSERT && n < OFTEN * s->k)
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
        survivors s = {.a = (uint64_t *)scratch, .spare = (uint64_t *)scratch + j->room, .k = j->k, .room = j->room};
        const char *x = row_of(&j->rows, &j->x, row);
        (j->x.type == SKR_F32 ? scan_f32 : j->x.type == SKR_F16 ? scan_f16 : scan_bf16)(x, j->n, &s);
        if (j->k > SKR_TOPK_INSERT) {
            if (s.n > s.k)
                cut(&s);
            sort(&s);
        }
        put_row(j, row, &s, (float *)((uint64_t *)scratch + 2 * j->room));
    }
}
