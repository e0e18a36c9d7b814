/* SPDX-License-Identifier: MIT
 *
 * Stopping on request: signals become a word on the board, and the ranks agree on a step. */
#include "config.h"

#include "core/log.h"
#include "core/terminal.h"
#include "job/state.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const int stop_signals[] = {SIGTERM, SIGUSR1, SIGINT};
#define STOP_SIGNALS (sizeof stop_signals / sizeof stop_signals[0])

static _Atomic(struct ddp_board_memory *) stop_board; /* where the handler writes */
static _Atomic int stop_bell;                         /* which it rings then, or -1 */
static struct sigaction old_actions[STOP_SIGNALS];
static sigset_t blocked_before;
static char interrupt_text[128];

/* The second Ctrl-C finds the action that was there before. */
static void ask_to_stop(int signal, siginfo_t *info, void *context)
{
    const int saved_errno = errno;
    struct ddp_board_memory *memory = atomic_load(&stop_board);
    (void)context;
    if (memory) {
        atomic_store(&memory->stop_request, 1);
        ddp_bell_ring(atomic_load(&stop_bell));
    }
    if (signal == SIGINT) {
        if (info->si_code == SI_KERNEL) /* a key, which the terminal has shown */
            ddp_bar_end_line();
        if (write(STDERR_FILENO, interrupt_text, strlen(interrupt_text)) < 0)
            errno = 0; /* the error cannot be reported */
        ddp_bar_guard(signal);
    }
    errno = saved_errno;
}

enum ddp_status ddp_job_accept_stop(ddp_job *job)
{
    struct ddp_board_memory *none = NULL;
    struct sigaction action = {.sa_sigaction = ask_to_stop};
    sigset_t taken, mask;
    if (!atomic_compare_exchange_strong(&stop_board, &none, job->board.memory))
        return ddp_fail(DDP_ERR_INVALID,
                        "another job of this process already accepts requests to stop");
    atomic_store(&stop_bell, job->bell_fd);
    /* First: a launcher that sees a handler, and not this, would take it for one that ends. */
    atomic_store(&job->line->accepts_stop, DDP_BOARD_ACCEPTS_STOP);
    snprintf(interrupt_text, sizeof interrupt_text,
             "%.64s: SIGINT: stopping after this step; again: ending at once\n", ddp_log_name());
    sigemptyset(&action.sa_mask);
    sigemptyset(&taken);
    sigemptyset(&blocked_before);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    for (size_t i = 0; i < STOP_SIGNALS; i++) {
        const int signal = stop_signals[i];
        action.sa_flags = signal == SIGINT ? SA_RESTART | SA_RESETHAND : SA_RESTART;
        action.sa_flags |= SA_SIGINFO;
        sigaction(signal, NULL, &old_actions[i]);
        if (signal == SIGINT && old_actions[i].sa_handler == SIG_IGN)
            continue; /* a background job of a script: Ctrl-C is not for it */
        sigaction(signal, &action, NULL);
        sigaddset(&taken, signal);
        if (sigismember(&mask, signal))
            sigaddset(&blocked_before, signal);
    }
    pthread_sigmask(SIG_UNBLOCK, &taken, NULL);
    return DDP_OK;
}

void ddp_job_accept_change(ddp_job *job)
{
    atomic_store(&job->line->accepts_stop, DDP_BOARD_ACCEPTS_CHANGE);
}

void ddp_job_limit_workers(ddp_job *job, int most)
{
    atomic_store(&job->board.memory->most_workers, (uint32_t)most);
}

void ddp_stop_refuse(ddp_job *job)
{
    atomic_store(&job->line->accepts_stop, 0);
    if (atomic_load(&stop_board) != job->board.memory)
        return;
    pthread_sigmask(SIG_BLOCK, &blocked_before, NULL);
    for (size_t i = 0; i < STOP_SIGNALS; i++)
        sigaction(stop_signals[i], &old_actions[i], NULL);
    atomic_store(&stop_board, NULL);
}

/* On one machine. The first rank that sees the request before its step s names step s + 1: it has
 * not given its part of step s yet, so no rank can have asked about s + 1, and every rank sees the
 * name before it does. A world of one stops at once. */
static bool agree(ddp_job *job, int64_t step)
{
    struct ddp_board_memory *m = job->board.memory;
    int64_t agreed = atomic_load(&m->stop_step);
    if (agreed == INT64_MAX && atomic_load(&m->stop_request)) {
        const bool alone = ddp_board_job_size(&job->board) == 1;
        int64_t mine = alone || step >= INT64_MAX - 1 ? step : step + 1;
        if (atomic_compare_exchange_strong(&m->stop_step, &agreed, mine))
            agreed = mine;
    }
    return step >= agreed;
}

/* Over several nodes node 0 names the step after the last one that any rank has passed. Launchers
 * set the hold word, then read what has been passed; ranks write that, then read the hold word. So
 * a rank whose step a launcher has missed sees the word, and waits for the name. */
static bool ask(ddp_job *job, int64_t step)
{
    struct ddp_board_memory *m = job->board.memory;
    const int64_t before = atomic_load(&job->line->passed);
    atomic_store(&job->line->passed, step);
    if (atomic_load(&m->hold) == DDP_HOLD_NONE)
        return false;
    atomic_store(&job->line->passed, before);
    if (ddp_wait_change(job, &m->hold, DDP_HOLD_SET, INT64_MAX) != DDP_OK)
        return false; /* the next collective says that the job is aborted */
    if (step >= atomic_load(&m->stop_step))
        return true;
    atomic_store(&job->line->passed, step);
    return false;
}

bool ddp_job_should_stop(ddp_job *job, int64_t step)
{
    return job->board.shape.nodes > 1 ? ask(job, step) : agree(job, step);
}
