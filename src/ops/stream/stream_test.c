/* stream_test.c - oracle and cases of the bandwidth probe. Everything is exact.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Values travel as double, so 8-byte elements hold at most 52 bits here; byte tensors cover the rest. */
#include <stdio.h>
#include <string.h>

#include "../../../tests/suite_list.h"

static const char *const inputs[] = {"x0", "x1", "x2", "x3"};
static const char *const outputs[] = {"y0", "y1"};
static suite_list list;

/* ---------------------------------------------------------------- oracle */

static bool is(const suite_case *c, int i, char first)
{
    return c->tensor[i].field[0] == first;
}

/* What is written without inputs: 0x5a in each byte. As double, an 8-byte element loses its low bits, on both sides
 * alike. */
static double filler(saker_type type)
{
    return suite_type_bytes(type) == 8 ? (double)0x5a5a5a5a5a5a5a5a : 0x5a;
}

static void oracle(const suite_case *c, double *const *value, double *const *bound)
{
    int64_t checksum = 0;
    for (int i = 0; i < c->n_tensors; i++)
        for (int64_t k = 0; is(c, i, 'x') && c->tensor[i].type == SAKER_I64 && k < suite_elements(&c->tensor[i]); k++)
            checksum ^= (int64_t)value[i][k];
    for (int o = 0; o < c->n_tensors; o++) {
        if (is(c, o, 'x'))
            continue;
        for (int64_t k = 0; k < suite_elements(&c->tensor[o]); k++) {
            bool any = false;
            int64_t all = 0;
            for (int i = 0; i < c->n_tensors; i++)
                if (is(c, i, 'x')) {
                    all ^= is(c, o, 'y') ? (int64_t)value[i][k] : 0;
                    any = true;
                }
            value[o][k] = is(c, o, 'c') ? (double)checksum : any ? (double)all : filler(c->tensor[o].type);
            bound[o][k] = 0;
        }
    }
}

/* ---------------------------------------------------------------- cases */

/* name NULL: made of all the others. */
static void add(int reads, int writes, bool checksum, saker_type type, int64_t bytes, int use, const char *name)
{
    int64_t elements = bytes / suite_type_bytes(type), four = 4;
    suite_case c = {.use = use, .reads = reads, .writes = writes, .cpu_kernel = "bytes", .cuda_kernel = "bytes"};
    saker_stream_args a = {.struct_size = sizeof a};
    memcpy(c.args, &a, sizeof a);
    for (int i = 0; i < reads + writes; i++) {
        bool folded = i % 2 && elements % 4 == 0; /* the shape does not matter, only the bytes do */
        suite_tensor *t =
            suite_add_rows(&c, i < reads ? inputs[i] : outputs[i - reads], i < reads ? SUITE_IN : SUITE_OUT, type,
                           folded ? 1 : 0, &four, folded ? elements / 4 : elements, 0);
        t->fill = SUITE_BITS;
        t->align = 8;
    }
    if (checksum)
        suite_add_rows(&c, "checksum", SUITE_OUT, SAKER_I64, 0, NULL, 1, 0)->align = 8;
    c.bytes = (double)bytes * (reads + writes);
    if (name)
        suite_say(&c, "%s", name);
    else
        suite_say(&c, "%s %lld bytes, %d read, %d written%s", suite_type_text(type), (long long)bytes, reads, writes,
                  checksum ? ", checksum" : "");
    suite_list_add(&list, &c);
}

static const struct {
    const char *name;
    int reads, writes;
    bool checksum;
} probes[] = {{"copy", 1, 1, false},
              {"read", 1, 0, true},
              {"write", 0, 1, false},
              {"2 read 1 written", 2, 1, false},
              {"2 read 2 written", 2, 2, false},
              {"3 read 1 written", 3, 1, false}};

static void build(void)
{
    static const int64_t sizes[] = {0, 8, 16, 24, 56, 64, 72, 1000, 4096, 65544, 1048584, 5000000};
    foreach (s, sizes) {
        add(1, 1, false, SAKER_U8, sizes[s], SUITE_CHECK, NULL);
        add(0, 1, false, SAKER_U8, sizes[s], SUITE_CHECK, NULL);
        add(0, 1, false, SAKER_I64, sizes[s], SUITE_CHECK, NULL);
        add(1, 0, true, SAKER_I64, sizes[s], SUITE_CHECK, NULL);
        add(2, 1, true, SAKER_I64, sizes[s], SUITE_CHECK, NULL);
    }
    for (int reads = 0; reads <= 4; reads++)
        for (int writes = 0; writes <= 2; writes++)
            for (int64_t bytes = 200; bytes <= 200000; bytes *= 1000) {
                if (writes)
                    add(reads, writes, false, SAKER_I8, bytes, SUITE_CHECK, NULL);
                if (reads)
                    add(reads, writes, true, SAKER_I64, bytes, SUITE_CHECK, NULL);
            }
    foreach (p, probes) {
        static const struct {
            const char *text;
            int64_t mib, kib;
            int use;
        } sizes_of[] = {{"256 MiB a stream", 256, 0, SUITE_BENCH},
                        {"256 KiB in all", 0, 256, SUITE_CACHE},
                        {"512 MiB a stream", 512, 0, SUITE_BENCH_CUDA}};
        foreach (k, sizes_of) {
            char name[96];
            int streams = probes[p].reads + probes[p].writes;
            int64_t bytes = (sizes_of[k].mib << 20) + (sizes_of[k].kib << 10) / streams / 64 * 64;
            snprintf(name, sizeof name, "%s, %s", probes[p].name, sizes_of[k].text);
            add(probes[p].reads, probes[p].writes, probes[p].checksum, SAKER_I64, bytes,
                sizes_of[k].use | (p == 0 && sizes_of[k].mib ? SUITE_DEMO : 0), name);
        }
    }
}

static bool at(int i, suite_case *out)
{
    if (!list.n)
        build();
    return suite_list_at(&list, i, out);
}

const suite skr_suite_stream = {.op = "stream", .at = at, .oracle = oracle};
