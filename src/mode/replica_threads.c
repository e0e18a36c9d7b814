/* SPDX-License-Identifier: MIT
 *
 * See replica_threads.h. */
#include "config.h"

#include "mode/replica_threads.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/thread.h"
#include "core/trace.h"

#include <pthread.h>
#include <stdlib.h>

struct member {
    ddp_replica_threads *team;
    int number;
    pthread_t thread;
    enum ddp_status status;
};

struct ddp_replica_threads {
    pthread_mutex_t mutex;
    pthread_cond_t go, done;
    uint64_t phase; /* counts calls of ddp_replica_threads_run() */
    int busy;       /* members that have not finished the phase */
    bool quit;
    ddp_replica_threads_work *work;
    void *arg;
    int size; /* threads that were started */
    struct member members[];
};

static void *member_main(void *arg)
{
    struct member *member = arg;
    ddp_replica_threads *team = member->team;
    uint64_t phase = 0;
    ddp_trace_name_thread("replica");
    pthread_mutex_lock(&team->mutex);
    for (;;) {
        while (team->phase == phase && !team->quit)
            pthread_cond_wait(&team->go, &team->mutex);
        if (team->quit)
            break;
        phase = team->phase;
        pthread_mutex_unlock(&team->mutex);
        enum ddp_status status = team->work(team->arg, member->number);
        pthread_mutex_lock(&team->mutex);
        member->status = status;
        if (--team->busy == 0)
            pthread_cond_signal(&team->done);
    }
    pthread_mutex_unlock(&team->mutex);
    return NULL;
}

enum ddp_status ddp_replica_threads_create(ddp_replica_threads **created, int size)
{
    ddp_replica_threads *t = ddp_array_alloc(1, sizeof *t + (size_t)size * sizeof(struct member));
    if (!t)
        return DDP_ERR_MEMORY;
    pthread_mutex_init(&t->mutex, NULL);
    pthread_cond_init(&t->go, NULL);
    pthread_cond_init(&t->done, NULL);
    for (; t->size < size; t->size++) {
        struct member *member = &t->members[t->size];
        *member = (struct member){.team = t, .number = t->size};
        int error = ddp_thread_create(&member->thread, member_main, member);
        if (error) {
            const enum ddp_status status =
                ddp_thread_failed(error, "thread %d of %d", t->size + 1, size);
            ddp_replica_threads_destroy(t);
            return status;
        }
    }
    *created = t;
    return DDP_OK;
}

void ddp_replica_threads_destroy(ddp_replica_threads *team)
{
    if (!team)
        return;
    pthread_mutex_lock(&team->mutex);
    team->quit = true;
    pthread_cond_broadcast(&team->go);
    pthread_mutex_unlock(&team->mutex);
    for (int i = 0; i < team->size; i++)
        pthread_join(team->members[i].thread, NULL);
    pthread_cond_destroy(&team->done);
    pthread_cond_destroy(&team->go);
    pthread_mutex_destroy(&team->mutex);
    free(team);
}

enum ddp_status ddp_replica_threads_run(ddp_replica_threads *team, ddp_replica_threads_work *work,
                                        void *arg)
{
    enum ddp_status status = DDP_OK;
    pthread_mutex_lock(&team->mutex);
    team->work = work;
    team->arg = arg;
    team->busy = team->size;
    team->phase++;
    pthread_cond_broadcast(&team->go);
    while (team->busy > 0)
        pthread_cond_wait(&team->done, &team->mutex);
    for (int i = team->size - 1; i >= 0; i--)
        if (team->members[i].status != DDP_OK)
            status = team->members[i].status;
    pthread_mutex_unlock(&team->mutex);
    return status;
}
