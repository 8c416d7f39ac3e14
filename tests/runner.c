/* runner.c - runs every case of every op on every level this machine has (or on a GPU) and compares with the oracle.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Per case and level, each run in its own guarded memory:
 *   front     tensors right after a forbidden page; result against the oracle; kernel name
 *   back      tensors right before a forbidden page, other poison; same bits
 *   odd       tensors an odd number of elements in, through byte_offset, all threads; same bits
 *   threads   two threads; serial and reversed parallel_for of the caller; same bits
 *   lent      a workspace of exactly the asked size, full of garbage; same bits
 *   row       single rows alone; the same bits as in the batch
 *   repeats   as often as asked for, one, two and all threads in turn; same bits
 * Every run also checks that inputs, gaps and everything around the tensors are untouched. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "compare.h"
#include "run_case.h"
#include "suite_convert.h"

enum { MAX_OPS = 64, MAX_LEVELS = 12, MAX_JOBS = 64, CASE_SECONDS = 120 };

static struct {
    const char *op, *name, *level;
    uint64_t seed;
    bool list, quick, cuda, everything;
    int jobs, every, lower, repeats;
} opt = {.seed = 1, .jobs = 2, .every = 1, .lower = 1};

/* ---------------------------------------------------------------- what is counted (shared between the jobs) */

typedef struct tally {
    int64_t cases, failed;
    double worst; /* fraction of the bound */
    char worst_case[SUITE_NAME], worst_field[24];
    double nmse[2];     /* largest of one case: [0] f32 outputs, [1] 16-bit outputs */
    double plain_ratio; /* largest rms error / that of the plain float computation, f32 outputs */
} tally;

static struct shared {
    tally t[MAX_JOBS][MAX_OPS][MAX_LEVELS];
    int64_t done[MAX_JOBS];
} * shared;
static int job; /* this process's number */

/* ---------------------------------------------------------------- levels */

typedef struct target {
    const char *name;
    bool cuda;
    saker_context *one, *two, *all, *serial, *reversed;
} target;
static target targets[MAX_LEVELS];
static int n_targets;

static void serial_for(void *user, int64_t n, void (*fn)(void *, int64_t), void *arg)
{
    (void)user;
    for (int64_t i = 0; i < n; i++)
        fn(arg, i);
}

static void reversed_for(void *user, int64_t n, void (*fn)(void *, int64_t), void *arg)
{
    (void)user;
    for (int64_t i = n; i-- > 0;)
        fn(arg, i);
}

static saker_context *context(const saker_config *config)
{
    saker_context *ctx;
    if (saker_context_create(&ctx, config)) {
        printf("runner: cannot make a context: %s\n", saker_context_error(NULL));
        exit(2);
    }
    return ctx;
}

static void open_contexts(target *t)
{
    saker_config c = {.struct_size = sizeof c, .isa = t->cuda ? NULL : t->name};
    if (t->cuda) {
        c.device_type = SAKER_CUDA;
        t->one = context(&c);
        return;
    }
    c.threads = 1;
    t->one = context(&c);
    c.threads = 2;
    t->two = context(&c);
    c.threads = 0;
    t->all = context(&c);
    c.parallel_for = serial_for;
    c.parallel_width = 4;
    t->serial = context(&c);
    c.parallel_for = reversed_for;
    c.parallel_width = 3;
    t->reversed = context(&c);
}

static void close_contexts(target *t)
{
    saker_context_destroy(t->one);
    saker_context_destroy(t->two);
    saker_context_destroy(t->all);
    saker_context_destroy(t->serial);
    saker_context_destroy(t->reversed);
}

/* ---------------------------------------------------------------- reporting */

static const char *current_op, *current_level, *current_case;

/* A line that names everything needed to see it again, and the command for it. */
static void fail_line(const char *step, const char *text)
{
    char line[1400];
    int n = snprintf(line, sizeof line,
                     "FAIL %s level %s case '%s' seed %llu step %s: %s\n"
                     "     again: build/tests/runner --op %s %s%s --case '%s' --seed %llu\n",
                     current_op, current_level, current_case, (unsigned long long)opt.seed, step, text, current_op,
                     opt.cuda ? "--cuda" : "--level ", opt.cuda ? "" : current_level, current_case,
                     (unsigned long long)opt.seed);
    ssize_t ignored = write(STDOUT_FILENO, line, (size_t)(n < (int)sizeof line ? n : (int)sizeof line));
    (void)ignored;
}

/* ---------------------------------------------------------------- one case on one level */

static bool check_kernel(const target *t, const case_data *d, const char *kernel)
{
    char expected[64], text[512];
    const char *needs = suite_kernel_of(&d->c, t->cuda, kernel);
    snprintf(expected, sizeof expected, "%s/empty", d->s->op);
    if (!strcmp(kernel, expected)) {
        bool outputs = false;
        for (int i = 0; i < d->c.n_tensors; i++)
            outputs |= d->c.tensor[i].role != SUITE_IN && d->elements[i] > 0;
        bool some = d->elements[0] > 0 && outputs;
        if (some)
            fail_line("kernel", "nothing was computed although the tensors are not empty");
        return !some;
    }
    snprintf(expected, sizeof expected, "%s/%s ", d->s->op, t->cuda ? "sm" : t->name);
    size_t length = strlen(expected) - (t->cuda ? 1 : 0);
    if (!strncmp(kernel, expected, length) && (!needs || strstr(kernel, needs)))
        return true;
    snprintf(text, sizeof text, "kernel '%s' ran, expected one that starts with '%.*s'%s%s", kernel, (int)length,
             expected, needs ? " and has " : "", needs ? needs : "");
    fail_line("kernel", text);
    return false;
}

static void record(tally *y, const case_data *d, int i, const comparison *c, const double *got)
{
    const suite_tensor *t = &d->c.tensor[i];
    /* Two kinds of cases say nothing about accuracy: squares beyond f32, where rstd is 0 or may be, and scales of
     * quantised rows, where the rounded y may be either of two neighbours. */
    for (int k = 0; k < d->c.n_tensors; k++)
        if (d->c.tensor[k].fill == SUITE_MAX ||
            (d->c.tensor[k].role != SUITE_IN && type_bytes(d->c.tensor[k].type) == 1))
            return;
    if (c->worst > y->worst && t->type == SAKER_F32) { /* narrower types come near their bound by rounding alone */
        y->worst = c->worst;
        snprintf(y->worst_case, sizeof y->worst_case, "%s", d->c.name);
        snprintf(y->worst_field, sizeof y->worst_field, "%s", t->field);
    }
    int size = type_bytes(t->type);
    if (!float_format_of(t->type) || size < 2 || c->want2 == 0)
        return;
    y->nmse[size == 2] = fmax(y->nmse[size == 2], c->error2 / c->want2);
    if (!d->plain[i] || size != 4 || d->elements[i] < 64)
        return;
    double plain2 = 0;
    for (int64_t k = 0; k < d->elements[i]; k++) {
        double e = d->plain[i][k] - d->value[i][k];
        if (isfinite(e) && isfinite(got[k]))
            plain2 += e * e;
    }
    if (plain2 > 0)
        y->plain_ratio = fmax(y->plain_ratio, sqrt(c->error2 / plain2));
}

static bool check_values(const case_data *d, const run_result *r, tally *y)
{
    bool good = true;
    case_data own = {0}; /* with the bounds of the kernel that ran */
    suite_case c = d->c;
    c.ran = suite_judged(d->s, r->kernel);
    if (c.ran) {
        case_prepare(&own, d->s, &c, d->seed);
        d = &own;
    }
    for (int i = 0; i < d->c.n_tensors; i++) {
        const suite_tensor *t = &d->c.tensor[i];
        if (!r->out[i])
            continue;
        double *got = malloc((size_t)d->elements[i] * sizeof *got + 1);
        for (int64_t k = 0; k < d->elements[i]; k++)
            got[k] = decode(t->type, r->out[i] + k * type_bytes(t->type));
        comparison verdict = compare(t->type, d->elements[i], got, d->value[i], d->bound[i]);
        if (verdict.failed) {
            char text[400];
            snprintf(text, sizeof text, "tensor %s index %lld got %.9g want %.9g bound %.3g (%lld of %lld elements)",
                     t->field, (long long)verdict.index, verdict.got, verdict.want, verdict.bound,
                     (long long)verdict.failed, (long long)d->elements[i]);
            fail_line("values", text);
            good = false;
        }
        record(y, d, i, &verdict, got);
        free(got);
    }
    case_release(&own);
    return good;
}

/* Runs d again in another way and demands the bits of base. */
static bool same_again(saker_context *ctx, const target *t, const case_data *d, const run_how *how,
                       const run_result *base, const char *step)
{
    run_result r;
    char text[600];
    int64_t element = 0;
    run_case(ctx, t->cuda, d, how, &r);
    const char *field = r.ran ? run_difference(d, base, &r, &element) : NULL;
    bool good = r.ran && !r.problem[0] && !field;
    if (r.problem[0])
        fail_line(step, r.problem);
    else if (field) {
        snprintf(text, sizeof text, "tensor %s index %lld has other bits than in the first run", field,
                 (long long)element);
        fail_line(step, text);
    }
    run_release(&r);
    return good;
}

/* The same bits, or both NaN: of two NaNs that meet, which one's sign and payload go on is the order of the operands,
 * and the compiler may choose another one for the end of a row than for its middle. */
static bool same_values(saker_type type, const char *a, const char *b, int64_t n)
{
    size_t size = (size_t)type_bytes(type);
    for (int64_t i = 0; i < n; i++, a += size, b += size)
        if (memcmp(a, b, size) && !(isnan(decode(type, a)) && isnan(decode(type, b))))
            return false;
    return true;
}

static bool check_row(const target *t, const case_data *d, int64_t row, const run_result *base)
{
    case_data one;
    suite_slice slice;
    run_result r;
    char text[200];
    bool good = true;
    case_prepare_row(&one, d, row, &slice);
    run_case(t->one, t->cuda, &one, &(run_how){.place = t->cuda ? PLACE_FRONT : PLACE_BACK, .poison = 0x5a}, &r);
    if (r.problem[0]) {
        fail_line("row", r.problem);
        good = false;
    }
    for (int i = 0; good && i < d->c.n_tensors; i++) {
        size_t size = (size_t)type_bytes(d->c.tensor[i].type);
        if (!r.out[i] || slice.first[i] < 0)
            continue;
        if (!same_values(d->c.tensor[i].type, r.out[i], base->out[i] + (size_t)slice.first[i] * size,
                         one.elements[i])) {
            snprintf(text, sizeof text, "row %lld alone has other bits than in the batch: tensor %s", (long long)row,
                     d->c.tensor[i].field);
            fail_line("row", text);
            good = false;
        }
    }
    run_release(&r);
    case_release(&one);
    return good;
}

/* Rows that are tried alone: all of a small batch, else the first, one inside, the last but one and the last. */
static bool check_rows(const target *t, const case_data *d, const run_result *base)
{
    int64_t m = d->s->row ? d->s->row(&d->c, 0, NULL, NULL) : 0, n = d->elements[0];
    if (m < 2 || n == 0 || (t->cuda && d->s->cuda_rows_vary && d->s->cuda_rows_vary(&d->c)))
        return true;
    for (int i = 0; t->cuda && i < d->c.n_tensors; i++)
        if (!suite_compact(&d->c.tensor[i]))
            return true; /* alone a row is aligned as it was not among the others: another kernel, in another order */
    bool good = true;
    int64_t all = opt.quick ? 3 : 64;
    if (m <= all) {
        for (int64_t r = 0; good && r < m; r++)
            good = check_row(t, d, r, base);
        return good;
    }
    int64_t some[] = {0, m / 3, m - 2, m - 1};
    for (int k = opt.quick ? 2 : 0; good && k < 4; k++)
        good = check_row(t, d, some[k], base);
    return good;
}

/* Neighbours in a list differ by one option: a name picks without a pattern. */
static uint32_t hash_of(const suite_case *c)
{
    uint32_t hash = 2166136261u;
    for (const char *p = c->name; *p; p++)
        hash = (hash ^ (unsigned char)*p) * 16777619u;
    return hash;
}

/* A tensor with memory of its own, another one from case to case, counted from 1; 0: there is none. */
static int one_of(const suite_case *c)
{
    for (int i = 0; i < c->n_tensors; i++) {
        int at = (int)((hash_of(c) / 7 + (uint32_t)i) % (uint32_t)c->n_tensors);
        if (!c->tensor[at].alias && suite_elements(&c->tensor[at]) > 0)
            return at + 1;
    }
    return 0;
}

static bool check_case(const target *t, const case_data *d, tally *y)
{
    run_result base;
    bool good = true;
    run_case(t->one, t->cuda, d, &(run_how){.place = PLACE_FRONT, .poison = 0xa5}, &base);
    if (base.problem[0]) {
        fail_line("front", base.problem);
        good = false;
    }
    if (base.ran) {
        good = check_values(d, &base, y) && good;
        good = check_kernel(t, d, base.kernel) && good;
    }
    if (!base.ran || !good) {
        run_release(&base);
        return false;
    }
    run_how back = {.place = PLACE_BACK, .poison = 0x5a, .with_strides = true};
    run_how odd = {.place = PLACE_ODD, .poison = 0x99};
    run_how alone = {.place = PLACE_ODD, .poison = 0x5a, .alone = one_of(&d->c)};
    run_how lent = {.place = PLACE_BACK, .poison = 0xa5, .lend = true};
    if (t->cuda) {
        /* Other alignments may choose other kernels, whose sums have another order: judged by the oracle again. */
        good = same_again(t->one, t, d, &(run_how){.place = PLACE_FRONT, .poison = 0x5a}, &base, "again") && good;
        const run_how *const ways[] = {&back, &odd, &alone};
        for (int k = 0; good && k < 3; k++) {
            run_result r;
            run_case(t->one, true, d, ways[k], &r);
            if (r.problem[0])
                fail_line(k == 0 ? "back" : k == 1 ? "odd" : "one tensor odd", r.problem);
            good = !r.problem[0] && check_values(d, &r, y);
            run_release(&r);
        }
        lent.place = PLACE_FRONT;
        good = good && same_again(t->one, t, d, &lent, &base, "lent");
    } else {
        good = same_again(opt.quick ? t->reversed : t->one, t, d, &back, &base, "back") && good;
        good = same_again(t->all, t, d, &odd, &base, "odd") && good;
        good = same_again(opt.quick ? t->one : t->two, t, d, &lent, &base, "lent, two threads") && good;
        if (!opt.quick) {
            good = same_again(t->serial, t, d, &back, &base, "serial parallel_for") && good;
            good = same_again(t->reversed, t, d, &back, &base, "reversed parallel_for") && good;
        }
    }
    good = check_rows(t, d, &base) && good;
    for (int i = 0; good && i < opt.repeats; i++) {
        saker_context *const ways[] = {t->all, t->two, t->one};
        run_how how = {.place = PLACE_FRONT, .poison = i % 2 ? 0x5a : 0xa5};
        good = same_again(t->cuda ? t->one : ways[i % 3], t, d, &how, &base, "repeats");
    }
    run_release(&base);
    return good;
}

/* ---------------------------------------------------------------- the loop */

/* Every case runs at the best level; of --lower N each level below has every Nth, another one than its neighbour. */
static bool on_level(const suite_case *c, int level)
{
    return level == n_targets - 1 || opt.name || (hash_of(c) / 61 + (uint32_t)level) % (uint32_t)opt.lower == 0;
}

/* Of --every N, all cases with an empty tensor: they are quick, and aarch64 divides by zero without a word, which a
 * sanitizer does not. */
static bool picked(const suite_case *c)
{
    for (int i = 0; i < c->n_tensors; i++)
        if (suite_elements(&c->tensor[i]) == 0)
            return true;
    return hash_of(c) % (uint32_t)opt.every == 0;
}

static bool selected(const suite_case *c)
{
    bool wanted = c->use & SUITE_CHECK || (c->use & SUITE_ALL && (opt.everything || opt.name));
    if (!wanted || (opt.cuda && (c->use & SUITE_CPU_ONLY)) || (opt.name && strcmp(c->name, opt.name)))
        return false;
    if (c->use & SUITE_GPU_SIZED && !opt.cuda && !opt.everything && !opt.name)
        return false;
    if (!opt.name && !picked(c))
        return false;
    if (!opt.quick || opt.name)
        return true;
    int64_t largest = 0;
    for (int i = 0; i < c->n_tensors; i++)
        largest = suite_elements(&c->tensor[i]) > largest ? suite_elements(&c->tensor[i]) : largest;
    return largest <= 140000;
}

static int64_t count_cases(void)
{
    suite_case c;
    int64_t n = 0;
    for (int o = 0; o < suite_count(); o++)
        for (int i = 0; suite_at(o)->at(i, &c); i++)
            n += (!opt.op || !strcmp(opt.op, suite_at(o)->op)) && selected(&c);
    return n;
}

static void progress(int64_t total)
{
    static time_t last;
    int64_t done = 0;
    if (job != 0 || !isatty(STDERR_FILENO) || time(NULL) == last)
        return;
    last = time(NULL);
    for (int j = 0; j < opt.jobs; j++)
        done += shared->done[j];
    fprintf(stderr, "\r%lld of %lld cases ", (long long)done, (long long)total);
}

static void run_share(int64_t total)
{
    int64_t number = 0;
    suite_case c;
    for (int l = 0; l < n_targets; l++)
        open_contexts(&targets[l]);
    for (int o = 0; o < suite_count(); o++) {
        const suite *s = suite_at(o);
        if (opt.op && strcmp(opt.op, s->op))
            continue;
        current_op = s->op;
        for (int i = 0; s->at(i, &c); i++) {
            if (!selected(&c) || number++ % opt.jobs != job)
                continue;
            case_data d;
            current_case = c.name;
            alarm(CASE_SECONDS); /* a hang ends this job: its default action kills, and the parent says so */
            case_prepare(&d, s, &c, opt.seed);
            for (int l = 0; l < n_targets; l++) {
                if (!on_level(&c, l))
                    continue;
                tally *y = &shared->t[job][o][l];
                current_level = targets[l].name;
                y->cases++;
                if (!check_case(&targets[l], &d, y)) {
                    y->failed++;
                    close_contexts(&targets[l]); /* a fault may have left them in any state */
                    open_contexts(&targets[l]);
                }
            }
            case_release(&d);
            shared->done[job]++;
            progress(total);
        }
    }
    alarm(0);
    for (int l = 0; l < n_targets; l++)
        close_contexts(&targets[l]);
}

static void merge(tally *to, const tally *from)
{
    to->cases += from->cases;
    to->failed += from->failed;
    if (from->worst > to->worst) {
        to->worst = from->worst;
        memcpy(to->worst_case, from->worst_case, sizeof to->worst_case);
        memcpy(to->worst_field, from->worst_field, sizeof to->worst_field);
    }
    for (int k = 0; k < 2; k++)
        to->nmse[k] = fmax(to->nmse[k], from->nmse[k]);
    to->plain_ratio = fmax(to->plain_ratio, from->plain_ratio);
}

static int report(int64_t skipped, int64_t died)
{
    int64_t passed = 0, failed = died;
    printf("%-18s %-10s %6s %6s  %-11s %-9s %-9s %s\n", "op", "level", "cases", "failed", "worst/bound", "nmse f32",
           "nmse 16", "error over plain float's | the worst case");
    for (int o = 0; o < suite_count(); o++)
        for (int l = 0; l < n_targets; l++) {
            tally y = {0};
            for (int j = 0; j < opt.jobs; j++)
                merge(&y, &shared->t[j][o][l]);
            if (!y.cases)
                continue;
            passed += y.cases - y.failed;
            failed += y.failed;
            printf("%-18s %-10s %6lld %6lld  %-11.3f %-9.2g %-9.2g %-6.2f | %s %s\n", suite_at(o)->op, targets[l].name,
                   (long long)y.cases, (long long)y.failed, y.worst, y.nmse[0], y.nmse[1], y.plain_ratio, y.worst_case,
                   y.worst_field);
        }
    printf("%lld passed, %lld failed, %lld skipped\n", (long long)passed, (long long)failed, (long long)skipped);
    return failed ? 1 : 0;
}

/* ---------------------------------------------------------------- start */

static int64_t find_targets(void)
{
    int64_t skipped = 0;
    if (opt.cuda) {
        const char *why;
        if (saker_cuda_count(&why) == 0) {
            printf("skipped: CUDA: %s\n", why);
            return 1;
        }
        targets[n_targets++] = (target){.name = "cuda", .cuda = true};
        return 0;
    }
    for (int i = 0; i < saker_level_count() && n_targets < MAX_LEVELS; i++) {
        saker_level_info level = saker_level_at(i);
        if (opt.level && strcmp(opt.level, level.name))
            continue;
        if (level.usable) {
            targets[n_targets++] = (target){.name = level.name};
        } else {
            printf("skipped: level %s: %s\n", level.name, level.why_not);
            skipped++;
        }
    }
    if (opt.level && !n_targets && !skipped) {
        printf("runner: this library has no level named %s\n", opt.level);
        exit(2);
    }
    return skipped;
}

static void usage(void)
{
    puts("runner [--op NAME] [--case 'NAME'] [--level NAME | --cuda] [--seed N] [--quick] [--every N] [--lower N] "
         "[--repeats N]\n"
         "       [--jobs N] [--list]\n"
         "--quick: fewer repetitions of each case. --every: one case in N, picked by name, and all with an empty "
         "tensor.\n"
         "--lower: at the levels below the best one case in N.\n"
         "--repeats: N more runs of each case, which must give the same bits.");
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *v = i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(a, "--quick"))
            opt.quick = true;
        else if (!strcmp(a, "--all"))
            opt.everything = true;
        else if (!strcmp(a, "--cuda"))
            opt.cuda = true;
        else if (!strcmp(a, "--list"))
            opt.list = true;
        else if (v && !strcmp(a, "--op"))
            opt.op = argv[++i];
        else if (v && !strcmp(a, "--case"))
            opt.name = argv[++i];
        else if (v && !strcmp(a, "--level"))
            opt.level = argv[++i];
        else if (v && !strcmp(a, "--seed"))
            opt.seed = strtoull(argv[++i], NULL, 10);
        else if (v && !strcmp(a, "--jobs"))
            opt.jobs = atoi(argv[++i]);
        else if (v && !strcmp(a, "--repeats"))
            opt.repeats = atoi(argv[++i]);
        else if (v && !strcmp(a, "--every"))
            opt.every = atoi(argv[++i]) > 0 ? atoi(argv[i]) : 1;
        else if (v && !strcmp(a, "--lower"))
            opt.lower = atoi(argv[++i]) > 0 ? atoi(argv[i]) : 1;
        else {
            usage();
            exit(2);
        }
    }
    if (opt.op && !suite_find(opt.op)) {
        printf("runner: there is no op named %s\n", opt.op);
        exit(2);
    }
    opt.jobs = opt.cuda || opt.name || opt.jobs < 1 ? 1 : opt.jobs > MAX_JOBS ? MAX_JOBS : opt.jobs;
}

static void list(void)
{
    suite_case c;
    for (int o = 0; o < suite_count(); o++)
        for (int i = 0; suite_at(o)->at(i, &c); i++)
            if (!opt.op || !strcmp(opt.op, suite_at(o)->op))
                printf("%s '%s'%s%s%s%s%s\n", suite_at(o)->op, c.name, c.use & SUITE_CHECK ? " check" : "",
                       c.use & SUITE_BENCH ? " bench" : "", c.use & SUITE_CACHE ? " cache" : "",
                       c.use & SUITE_BENCH_CUDA ? " bench-cuda" : "", c.use & SUITE_DEMO ? " demo" : "");
}

/* Each job is a child process with every jobs-th case. Returns how many ended early. */
static int64_t run_jobs(int64_t total)
{
    pid_t child[MAX_JOBS];
    int64_t died = 0;
    for (job = 0; job < opt.jobs; job++)
        if ((child[job] = fork()) == 0) {
            run_catch_signals();
            run_share(total);
            fflush(stdout);
            _exit(0);
        }
    for (int j = 0; j < opt.jobs; j++) {
        int status = -1;
        if (child[j] > 0 && waitpid(child[j], &status, 0) == child[j] && status == 0)
            continue;
        printf("FAIL: job %d ended early (status %d) after %lld cases\n", j, status, (long long)shared->done[j]);
        died++;
    }
    return died;
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    if (opt.list) {
        list();
        return 0;
    }
    int64_t skipped = find_targets(), died = 0, total = count_cases();
    if (!total) {
        puts("runner: no such case (see --list)");
        return 2;
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    fflush(stdout);
    if (n_targets && (opt.cuda || opt.name)) { /* one process: easy to debug, and CUDA does not survive a fork */
        run_catch_signals();
        run_share(total);
    } else if (n_targets) {
        died = run_jobs(total);
    }
    return report(skipped, died);
}
