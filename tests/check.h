/* check.h - the few lines a small test program needs: count, say what failed, go on.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CHECK_H
#define CHECK_H

#include <stdbool.h>
#include <stdio.h>

static int check_passed, check_failed, check_skipped;

#define CHECK_TEXT(condition, ...)                                                                                     \
    do {                                                                                                               \
        if (condition) {                                                                                               \
            check_passed++;                                                                                            \
        } else {                                                                                                       \
            check_failed++;                                                                                            \
            printf("FAIL %s:%d: ", __FILE__, __LINE__);                                                                \
            printf(__VA_ARGS__);                                                                                       \
            printf("\n");                                                                                              \
        }                                                                                                              \
    } while (0)
#define CHECK(condition) CHECK_TEXT(condition, "%s", #condition)
#define CHECK_SKIP(...)                                                                                                \
    do {                                                                                                               \
        check_skipped++;                                                                                               \
        printf("skipped: ");                                                                                           \
        printf(__VA_ARGS__);                                                                                           \
        printf("\n");                                                                                                  \
    } while (0)

static inline int check_report(const char *name)
{
    printf("%s: %d passed, %d failed, %d skipped\n", name, check_passed, check_failed, check_skipped);
    return check_failed != 0;
}

#endif
