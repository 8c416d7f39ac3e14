/* main.c - the `saker` command: picks the subcommand.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *doc;
} commands[] = {
    {"doctor", cli_doctor, "what this machine offers, and a short self-test of every operation"},
    {"list", cli_list, "the operations, their arguments, types and options"},
    {"explain", cli_explain, "which kernel would run with given arguments, and why others would not"},
    {"roof", cli_roof, "memory bandwidth and arithmetic peaks of this machine"},
    {"check", cli_check, "compare operations with their double-precision oracle"},
    {"bench", cli_bench, "time operations against a bandwidth probe of the same shape"},
    {"demo", cli_demo, "a tour: every operation on the best device, with a report"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void help(FILE *out)
{
    fprintf(out, "saker %s: fused transformer kernels\n\nusage: saker <command> [options]\n\n", saker_version());
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-8s  %s\n", commands[i].name, commands[i].doc);
    fprintf(out, "\n`saker <command> --help` lists its options; every command has --json.\n"
                 "Exit code: 0 fine, 1 something failed, 2 the command line makes no sense.\n");
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        help(stdout);
        return CLI_OK;
    }
    if (!strcmp(name, "--version")) {
        printf("saker %s (%s)\n", saker_version(), saker_build_info());
        return CLI_OK;
    }
    for (int i = 0; i < N_COMMANDS; i++)
        if (!strcmp(name, commands[i].name))
            return commands[i].run(argc - 1, argv + 1);
    return cli_usage("unknown command '%s'; `saker --help` lists them", name);
}

int main(int argc, char **argv)
{
    int code = run(argc, argv);
    if (fflush(stdout) || ferror(stdout))
        return cli_failed("cannot write to standard output");
    return code;
}
