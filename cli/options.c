/* options.c - command-line options from a table, and opening the place (device) that they name.
 * SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static void complain(const char *format, va_list list)
{
    cli_progress_clear();
    fputs("saker: ", stderr);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
}

int cli_usage(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    complain(format, list);
    va_end(list);
    return CLI_USAGE;
}

int cli_failed(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    complain(format, list);
    va_end(list);
    return CLI_FAILED;
}

static void help(const char *usage, const char *text, const cli_option *options, int n)
{
    printf("usage: saker %s\n\n%s\n\noptions:\n", usage, text);
    for (int i = 0; i < n; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s%s%s", options[i].name, options[i].arg ? " " : "",
                 options[i].arg ? options[i].arg : "");
        printf("  %-28s  %s\n", left, options[i].help);
    }
    printf("  %-28s  %s\n", "--help", "this text");
}

static int store(const cli_option *option, const char *value)
{
    char *end;
    errno = 0;
    if (option->kind == CLI_INT) {
        long v = strtol(value, &end, 10);
        if (end == value || *end || errno || v < 0 || v > INT_MAX)
            return cli_usage("%s needs a whole number of 0 or more, not '%s'", option->name, value);
        *(int *)option->value = (int)v;
    } else if (option->kind == CLI_FLOAT) {
        double v = strtod(value, &end);
        if (end == value || *end || errno || !(v >= 0) || v > 1e9)
            return cli_usage("%s needs a number of 0 or more, not '%s'", option->name, value);
        *(double *)option->value = v;
    } else {
        *(const char **)option->value = value;
    }
    return -1;
}

int cli_parse(int argc, char **argv, const char *usage, const char *text, const cli_option *options, int n_options,
              int *words)
{
    int kept = 0;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            help(usage, text, options, n_options);
            return CLI_OK;
        }
        if (strncmp(argv[i], "--", 2)) {
            if (!words)
                return cli_usage("'%s' is not an option of `saker %s`; see --help", argv[i], argv[0]);
            argv[++kept] = argv[i];
            continue;
        }
        const char *equals = strchr(argv[i], '=');
        size_t length = equals ? (size_t)(equals - argv[i]) : strlen(argv[i]);
        const cli_option *option = NULL;
        for (int k = 0; k < n_options; k++)
            if (strlen(options[k].name) == length && !strncmp(options[k].name, argv[i], length))
                option = &options[k];
        if (!option)
            return cli_usage("unknown option '%s' of `saker %s`; see --help", argv[i], argv[0]);
        if (option->kind == CLI_FLAG) {
            if (equals)
                return cli_usage("%s takes no value", option->name);
            *(bool *)option->value = true;
            continue;
        }
        if (!equals && i + 1 == argc)
            return cli_usage("%s needs a value (%s)", option->name, option->arg);
        int code = store(option, equals ? equals + 1 : argv[++i]);
        if (code >= 0)
            return code;
    }
    if (words)
        *words = kept;
    return -1;
}

/* ---------------------------------------------------------------- the place */

bool cli_level_usable(const char *level)
{
    for (int i = 0; i < saker_level_count(); i++) {
        saker_level_info info = saker_level_at(i);
        if (!strcmp(info.name, level))
            return info.usable;
    }
    return false;
}

static int check_isa(const char *isa)
{
    for (int i = 0; i < saker_level_count(); i++) {
        saker_level_info info = saker_level_at(i);
        if (strcmp(info.name, isa))
            continue;
        if (!info.usable)
            return cli_failed("level %s cannot run here: %s", isa, info.why_not);
        return -1;
    }
    return cli_usage("--isa: no level '%s' in this library; `saker doctor` lists them", isa);
}

static int open_cuda(const char *name, uint64_t flags, cli_place *place)
{
    int index = 0;
    const char *why;
    if (name[4]) {
        char *end;
        long v = strtol(name + 5, &end, 10);
        if (name[4] != ':' || end == name + 5 || *end || v < 0 || v > 1024)
            return cli_usage("--device: '%s' is not cuda or cuda:N", name);
        index = (int)v;
    }
    int count = saker_cuda_count(&why);
    if (count == 0)
        return cli_failed("no CUDA device: %s", why);
    saker_cuda_info info;
    if (index >= count || saker_cuda_at(index, &info))
        return cli_failed("no CUDA device %d: the driver shows %d", index, count);
    saker_config config = {.struct_size = sizeof config, .device_type = SAKER_CUDA, .device_id = index, .flags = flags};
    if (saker_context_create(&place->ctx, &config))
        return cli_failed("%s", saker_context_error(NULL));
    place->cuda = true;
    place->memory = info.memory_bytes / 10 * 9;
    place->cache = info.l2_bytes;
    snprintf(place->device, sizeof place->device, "cuda:%d", index);
    snprintf(place->machine, sizeof place->machine, "%s", info.name);
    return -1;
}

int cli_open(const cli_target *target, cli_place *place)
{
    memset(place, 0, sizeof *place);
    const char *device = target->device ? target->device : "cpu";
    uint64_t flags = target->nondeterministic ? SAKER_ALLOW_NONDETERMINISTIC : 0;
    if (!strcmp(device, "best")) {
        saker_cuda_info info;
        device = "cpu";
        if (saker_cuda_count(NULL) > 0 && saker_cuda_at(0, &info) == SAKER_OK && info.has_image)
            device = "cuda:0";
    }
    if (!strncmp(device, "cuda", 4))
        return open_cuda(device, flags, place);
    if (strcmp(device, "cpu"))
        return cli_usage("--device: '%s' is not cpu, cuda, cuda:N or best", device);
    if (target->isa) {
        int code = check_isa(target->isa);
        if (code >= 0)
            return code;
    }
    saker_config config = {.struct_size = sizeof config,
                           .device_type = SAKER_CPU,
                           .threads = target->threads,
                           .flags = flags,
                           .isa = target->isa};
    if (saker_context_create(&place->ctx, &config))
        return cli_failed("%s", saker_context_error(NULL));
    const cli_machine *machine = cli_machine_get();
    int all = saker_thread_count();
    place->threads = target->threads > 0 && target->threads < all ? target->threads : all;
    place->memory = machine->available / 10 * 7;
    place->cache = cli_cache_bytes(3) ? cli_cache_bytes(3) : cli_cache_bytes(2);
    snprintf(place->device, sizeof place->device, "cpu");
    snprintf(place->machine, sizeof place->machine, "%s", machine->cpu);
    return -1;
}

void cli_close(cli_place *place)
{
    saker_context_destroy(place->ctx);
    place->ctx = NULL;
}
