/* test_dlopen.c - the shared library loaded and unloaded a thousand times, and two copies of it in one process (C5).
 * SPDX-License-Identifier: Apache-2.0
 *
 * Usage: test_dlopen path/to/libsaker.so. Knows the library through dlsym only. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "saker.h"

enum { ROUNDS = 1000, WIDE = 1 << 18 };

typedef struct library {
    void *handle;
    saker_status (*create)(saker_context **, const saker_config *);
    void (*destroy)(saker_context *);
    saker_status (*rms_norm)(saker_context *, const saker_rms_norm_args *);
    const char *(*version)(void);
} library;

static bool open_library(const char *path, library *l)
{
    l->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l->handle)
        return false;
    *(void **)&l->create = dlsym(l->handle, "saker_context_create");
    *(void **)&l->destroy = dlsym(l->handle, "saker_context_destroy");
    *(void **)&l->rms_norm = dlsym(l->handle, "saker_rms_norm");
    *(void **)&l->version = dlsym(l->handle, "saker_version");
    return l->create && l->destroy && l->rms_norm && l->version;
}

static float *x, *y;

/* Large enough that the pool starts. */
static saker_status call(const library *l)
{
    saker_context *ctx;
    saker_status s = l->create(&ctx, NULL);
    if (s)
        return s;
    saker_tensor tx = SAKER_TENSOR(x, SAKER_F32, WIDE / 256, 256), ty = SAKER_TENSOR(y, SAKER_F32, WIDE / 256, 256);
    s = l->rms_norm(ctx, SAKER_ARGS(rms_norm, .x = &tx, .y = &ty));
    l->destroy(ctx);
    return s;
}

static int entries(const char *directory)
{
    int n = 0;
    DIR *d = opendir(directory);
    while (d && readdir(d))
        n++;
    if (d)
        closedir(d);
    return n;
}

static long memory_pages(void)
{
    long total = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*d %ld", &total) != 1)
        total = 0;
    if (f)
        fclose(f);
    return total;
}

static void many_times(const char *path)
{
    int files = 0, threads = 0;
    long pages = 0;
    for (int i = 0; i < ROUNDS; i++) {
        library l;
        if (!open_library(path, &l)) {
            CHECK_TEXT(false, "round %d: %s", i, dlerror());
            return;
        }
        if (i % 10 == 0 && call(&l)) {
            CHECK_TEXT(false, "round %d: the call fails", i);
            return;
        }
        dlclose(l.handle);
        if (i == 100) { /* after the first rounds have filled the allocator's and the loader's caches */
            files = entries("/proc/self/fd");
            threads = entries("/proc/self/task");
            pages = memory_pages();
        }
    }
    CHECK_TEXT(!dlopen(path, RTLD_NOW | RTLD_NOLOAD), "the library is still loaded after the last dlclose");
    CHECK_TEXT(entries("/proc/self/fd") == files, "open files grew from %d to %d", files, entries("/proc/self/fd"));
    CHECK_TEXT(entries("/proc/self/task") == threads, "threads grew from %d to %d", threads,
               entries("/proc/self/task"));
    /* 900 rounds that lost one page each would show; the allocator may keep a few. */
    CHECK_TEXT(memory_pages() - pages < 200, "resident memory grew by %ld pages in %d rounds", memory_pages() - pages,
               ROUNDS - 101);
}

static bool copy_file(const char *from, const char *to)
{
    char command[1200];
    snprintf(command, sizeof command, "cp -L '%s' '%s'", from, to);
    return system(command) == 0;
}

static void two_at_once(const char *path)
{
    char other[1024];
    library a, b;
    snprintf(other, sizeof other, "%s.copy.%d", path, (int)getpid());
    CHECK(copy_file(path, other));
    CHECK_TEXT(open_library(path, &a), "%s", dlerror());
    CHECK_TEXT(open_library(other, &b), "%s", dlerror());
    CHECK((void *)a.rms_norm != (void *)b.rms_norm); /* two libraries indeed */
    for (int i = 0; i < 20; i++)
        CHECK(call(&a) == SAKER_OK && call(&b) == SAKER_OK);
    dlclose(a.handle);
    CHECK(call(&b) == SAKER_OK);
    dlclose(b.handle);
    unlink(other);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        puts("usage: test_dlopen libsaker.so");
        return 2;
    }
    x = calloc(WIDE, sizeof *x);
    y = calloc(WIDE, sizeof *y);
    many_times(argv[1]);
    two_at_once(argv[1]);
    free(x);
    free(y);
    return check_report("test_dlopen");
}
