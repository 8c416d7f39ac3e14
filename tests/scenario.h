/* scenario.h - tests that each need a process of their own: checks that count across them, and the loop that runs them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct counts {
    int passed, failed, skipped;
} counts;
static counts *total; /* shared with the children */
static const char *scenario = "";

/* ---------------------------------------------------------------- checks */

static void record(bool good, int line, const char *what, const char *found)
{
    if (good) {
        total->passed++;
        return;
    }
    total->failed++;
    printf("FAIL %s, line %d: %s%s%s\n", scenario, line, what, found ? "\n     found: " : "", found ? found : "");
}

static void skip(const char *why)
{
    total->skipped++;
    printf("SKIP %s: %s\n", scenario, why);
}

static void same_text(const char *found, const char *expected, int line)
{
    record(strcmp(found, expected) == 0, line, expected, found);
}

static void same_number(long long found, long long expected, int line, const char *what)
{
    char text[160];
    snprintf(text, sizeof text, "%lld, expected %lld", found, expected);
    record(found == expected, line, what, text);
}

#define CHECK(condition)        record(condition, __LINE__, #condition, NULL)
#define TEXT(found, expected)   same_text(found, expected, __LINE__)
#define NUMBER(found, expected) same_number((long long)(found), (long long)(expected), __LINE__, #found)

/* ---------------------------------------------------------------- scenarios */

typedef struct scenario_row {
    const char *name;
    void (*run)(void);
} scenario_row;
#define SCENARIO(name)                                                                                                 \
    {                                                                                                                  \
#name, name                                                                                                    \
    }

/* Each scenario in a child process; only is NULL or the name of the one to run. Returns what main() returns. */
static int run_scenarios(const scenario_row *rows, size_t n, const char *only)
{
    setvbuf(stdout, NULL, _IOLBF, 0); /* a child that dies has said what it saw */
    total = mmap(NULL, sizeof *total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < n; i++) {
        scenario = rows[i].name;
        if (only && strcmp(only, scenario) != 0)
            continue;
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            rows[i].run();
            exit(0); /* through exit(): a hang there is a fault, too */
        }
        int status = -1;
        waitpid(child, &status, 0);
        if (status) {
            total->failed++;
            printf("FAIL %s: the process ended with %s %d\n", scenario, WIFSIGNALED(status) ? "signal" : "code",
                   WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
    }
    printf("%d passed, %d failed, %d skipped\n", total->passed, total->failed, total->skipped);
    return total->failed != 0;
}

#endif
