/* team.c - a few threads of the command's own: memcpy and peak rates on all cores, filling of big buffers.
 * SPDX-License-Identifier: Apache-2.0
 *
 * Idle members sleep, so that they do not disturb the library's pool while that is timed. */
#include <pthread.h>
#include <stdlib.h>

#include "cli.h"

struct cli_team {
    int n, started;
    pthread_mutex_t lock;
    pthread_cond_t begin, done;
    uint64_t round;
    int running;
    bool stop;
    void (*fn)(void *arg, int i, int n);
    void *arg;
    struct member {
        pthread_t thread;
        cli_team *team;
        int index;
    } member[];
};

static void *work(void *arg)
{
    struct member *me = arg;
    cli_team *team = me->team;
    uint64_t seen = 0;
    pthread_mutex_lock(&team->lock);
    for (;;) {
        while (team->round == seen && !team->stop)
            pthread_cond_wait(&team->begin, &team->lock);
        if (team->stop)
            break;
        seen = team->round;
        pthread_mutex_unlock(&team->lock);
        team->fn(team->arg, me->index, team->n);
        pthread_mutex_lock(&team->lock);
        if (--team->running == 0)
            pthread_cond_signal(&team->done);
    }
    pthread_mutex_unlock(&team->lock);
    return NULL;
}

cli_team *cli_team_create(int n)
{
    cli_team *team = calloc(1, sizeof *team + (size_t)n * sizeof team->member[0]);
    if (!team)
        return NULL;
    team->n = n;
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->begin, NULL);
    pthread_cond_init(&team->done, NULL);
    for (int i = 1; i < n; i++) { /* member 0 is the caller */
        team->member[i] = (struct member){.team = team, .index = i};
        if (pthread_create(&team->member[i].thread, NULL, work, &team->member[i])) {
            cli_team_destroy(team);
            return NULL;
        }
        team->started++;
    }
    return team;
}

void cli_team_destroy(cli_team *team)
{
    if (!team)
        return;
    pthread_mutex_lock(&team->lock);
    team->stop = true;
    pthread_cond_broadcast(&team->begin);
    pthread_mutex_unlock(&team->lock);
    for (int i = 1; i <= team->started; i++)
        pthread_join(team->member[i].thread, NULL);
    pthread_cond_destroy(&team->begin);
    pthread_cond_destroy(&team->done);
    pthread_mutex_destroy(&team->lock);
    free(team);
}

int cli_team_size(const cli_team *team)
{
    return team->n;
}

void cli_team_run(cli_team *team, void (*fn)(void *arg, int i, int n), void *arg)
{
    if (team->n > 1) {
        pthread_mutex_lock(&team->lock);
        team->fn = fn;
        team->arg = arg;
        team->running = team->n - 1;
        team->round++;
        pthread_cond_broadcast(&team->begin);
        pthread_mutex_unlock(&team->lock);
    }
    fn(arg, 0, team->n);
    if (team->n > 1) {
        pthread_mutex_lock(&team->lock);
        while (team->running > 0)
            pthread_cond_wait(&team->done, &team->lock);
        pthread_mutex_unlock(&team->lock);
    }
}
