/* machine.c - what the kernel says about this machine: CPU model, caches, cores, memory; and what this build is.
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"

/* First line of a small file, without its newline; false if it cannot be read. */
static bool first_line(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    bool ok = fgets(text, (int)size, f) != NULL;
    fclose(f);
    if (ok)
        text[strcspn(text, "\n")] = 0;
    return ok;
}

/* Arm writes numbers, not names, into /proc/cpuinfo. Names from the implementers' part lists; others show as numbers.
 */
static const struct {
    unsigned implementer, part;
    const char *name;
} arm_parts[] = {
    {0x41, 0xd08, "Cortex-A72"},    {0x41, 0xd0b, "Cortex-A76"},  {0x41, 0xd0c, "Neoverse N1"},
    {0x41, 0xd40, "Neoverse V1"},   {0x41, 0xd49, "Neoverse N2"}, {0x41, 0xd4f, "Neoverse V2"},
    {0x41, 0xd83, "Neoverse V3AE"}, {0x41, 0xd84, "Neoverse V3"}, {0x41, 0xd8e, "Neoverse N3"},
    {0x46, 0x001, "Fujitsu A64FX"}, {0x48, 0xd01, "Kunpeng 920"}, {0xc0, 0xac3, "Ampere-1"},
    {0xc0, 0xac4, "Ampere-1a"},     {0x61, 0x022, "Apple M1"},    {0x61, 0x032, "Apple M2"},
};

static void cpu_model(char *text, size_t size)
{
    unsigned implementer = 0, part = 0;
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    snprintf(text, size, "unknown CPU");
    while (f && fgets(line, sizeof line, f)) {
        char *value = strchr(line, ':');
        if (!value)
            continue;
        value += value[1] == ' ' ? 2 : 1;
        value[strcspn(value, "\n")] = 0;
        if (!strncmp(line, "model name", 10)) {
            snprintf(text, size, "%s", value);
            break;
        }
        if (!strncmp(line, "CPU implementer", 15))
            implementer = (unsigned)strtoul(value, NULL, 0);
        if (!strncmp(line, "CPU part", 8)) {
            part = (unsigned)strtoul(value, NULL, 0);
            snprintf(text, size, "Arm implementer 0x%02x part 0x%03x", implementer, part);
            for (size_t i = 0; i < sizeof arm_parts / sizeof arm_parts[0]; i++)
                if (arm_parts[i].implementer == implementer && arm_parts[i].part == part)
                    snprintf(text, size, "%s", arm_parts[i].name);
            break;
        }
    }
    if (f)
        fclose(f);
}

static void caches(cli_machine *m)
{
    char path[128], text[64];
    for (int i = 0; i < 8; i++) {
        cli_cache *c = &m->cache[m->n_caches];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        if (!first_line(path, text, sizeof text))
            break;
        c->level = atoi(text);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        if (!first_line(path, c->type, sizeof c->type))
            continue;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (!first_line(path, text, sizeof text))
            continue;
        char *unit;
        c->bytes = strtoll(text, &unit, 10);
        c->bytes <<= *unit == 'K' ? 10 : *unit == 'M' ? 20 : *unit == 'G' ? 30 : 0;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/shared_cpu_list", i);
        if (!first_line(path, c->shared, sizeof c->shared))
            c->shared[0] = 0;
        m->n_caches++;
    }
}

static void memory(cli_machine *m)
{
    char line[128];
    long long kib;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemTotal: %lld", &kib) == 1)
            m->memory = kib << 10;
        if (sscanf(line, "MemAvailable: %lld", &kib) == 1)
            m->available = kib << 10;
    }
    if (f)
        fclose(f);
}

const cli_machine *cli_machine_get(void)
{
    static cli_machine machine;
    static bool ready;
    if (ready)
        return &machine;
    ready = true;
    cpu_model(machine.cpu, sizeof machine.cpu);
    caches(&machine);
    memory(&machine);
    machine.online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    cpu_set_t set;
    machine.allowed = sched_getaffinity(0, sizeof set, &set) ? machine.online : CPU_COUNT(&set);
    struct utsname u;
    if (!uname(&u))
        snprintf(machine.kernel, sizeof machine.kernel, "%.32s %.80s %.32s", u.sysname, u.release, u.machine);
    char text[64], *open = NULL, *end = NULL;
    if (first_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text))
        open = strchr(text, '['), end = open ? strchr(open, ']') : NULL;
    snprintf(machine.huge_pages, sizeof machine.huge_pages, "%.*s", end ? (int)(end - open - 1) : 7,
             end ? open + 1 : "unknown");
    return &machine;
}

int64_t cli_cache_bytes(int level)
{
    const cli_machine *m = cli_machine_get();
    for (int i = 0; i < m->n_caches; i++)
        if (m->cache[i].level == level && strcmp(m->cache[i].type, "Instruction"))
            return m->cache[i].bytes;
    return 0;
}

const char *cli_commit(void)
{
    static char text[64];
#ifdef SAKER_COMMIT
    snprintf(text, sizeof text, "%s", SAKER_COMMIT);
#endif
    if (text[0] && strcmp(text, "unknown"))
        return text;
    text[0] = 0;
    /* Only at the top of a checkout of this project: another repository's commit would be worse than none. */
    FILE *f = popen("test -f src/core/ops.def && test -z \"$(git rev-parse --show-prefix 2>/dev/null)\" && "
                    "git describe --always --dirty --abbrev=12 2>/dev/null",
                    "r");
    if (f) {
        if (!fgets(text, sizeof text, f))
            text[0] = 0;
        pclose(f);
    }
    text[strcspn(text, "\n")] = 0;
    if (!text[0])
        snprintf(text, sizeof text, "unknown");
    return text;
}

const char *cli_compiler(void)
{
#if defined(SAKER_COMPILER)
    return SAKER_COMPILER;
#elif defined(__clang__)
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

const char *cli_date(void)
{
    static char text[32];
    if (!text[0]) {
        time_t now = time(NULL);
        struct tm t;
        strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &t));
    }
    return text;
}

const char *cli_size(int64_t bytes, char *text)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    double v = (double)bytes;
    int i = 0;
    for (; v >= 1024 && i < 4; i++)
        v /= 1024;
    snprintf(text, 32, v == (double)(int64_t)v ? "%.0f %s" : "%.1f %s", v, unit[i]);
    return text;
}
