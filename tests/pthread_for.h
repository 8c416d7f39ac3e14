/* pthread_for.h - a caller's own parallel_for: a thread for each of at most 16 lanes.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef PTHREAD_FOR_H
#define PTHREAD_FOR_H

#include <pthread.h>
#include <stdint.h>
#include <stddef.h>

struct lane {
    void (*fn)(void *, int64_t);
    void *arg;
    int64_t i;
};

static void *run_lane(void *arg)
{
    struct lane *l = arg;
    l->fn(l->arg, l->i);
    return NULL;
}

/* user: NULL, or an int that counts the calls. */
static void pthread_for(void *user, int64_t n, void (*fn)(void *, int64_t), void *arg)
{
    pthread_t t[16];
    struct lane l[16];
    if (user)
        ++*(int *)user;
    for (int64_t i = 0; i < n && i < 16; i++) {
        l[i] = (struct lane){fn, arg, i};
        pthread_create(&t[i], NULL, run_lane, &l[i]);
    }
    for (int64_t i = 0; i < n && i < 16; i++)
        pthread_join(t[i], NULL);
}

#endif
