/* SPDX-License-Identifier: MIT
 *
 * The plugin libddp-pmix.so: see pmix.h. PMIx calls back on a thread of its own. The plugin has no
 * part of core: ddprun logs for it. */
#include "config.h"

#include "launcher/pmix.h"

#include "core/log.h"
#include "core/plugin.h"

#include <errno.h>
#include <limits.h>
#include <pmix.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

static const char key_name[] = "ddprun.node0";

static struct ddp_plugin_host host;
static pmix_proc_t self;
static bool is_open;

/* What this process waits for, one thing after another: PMIx's thread, or one of ours in a call of
 * PMIx that waits without a limit, tells its end, perhaps after the deadline. Then this process
 * ends. */
static int done_fd = -1; /* an eventfd */
static _Atomic pmix_status_t done_status;
static const char *_Atomic doing;
static pmix_value_t *value; /* that was got */

static enum ddp_status fail(enum ddp_status status, const char *format, ...) DDP_PRINTF(2, 3);

static enum ddp_status fail(enum ddp_status status, const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    host.log(DDP_LOG_ERROR, text);
    return status;
}

static enum ddp_status failed(const char *what, pmix_status_t status)
{
    return fail(DDP_ERR_SYSTEM, "PMIx: cannot %s: %s", what, PMIx_Error_string(status));
}

/* All that these events mean is that nobody looks after this job any more. ddprun ends its workers
 * when it gets SIGTERM, as it does when a scheduler sends that itself. */
static void aborted(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t *info,
                    size_t info_count, pmix_info_t *results, size_t result_count,
                    pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void)id, (void)source, (void)info, (void)info_count, (void)results, (void)result_count;
    host.log(DDP_LOG_WARNING,
             status == PMIX_ERR_LOST_CONNECTION
                 ? "the PMIx server of this node is gone: the scheduler has ended the job"
                 : "the scheduler aborts the job");
    kill(getpid(), SIGTERM);
    if (done)
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
}

static void done(pmix_status_t status, void *data)
{
    (void)data;
    done_status = status;
    (void)!eventfd_write(done_fd, 1);
}

/* Waits for what has begun, or until `interrupt_fd` is readable. */
static enum ddp_status await(double seconds, int interrupt_fd)
{
    struct pollfd fds[] = {{.fd = done_fd, .events = POLLIN},
                           {.fd = interrupt_fd, .events = POLLIN}};
    const int limit_ms = seconds < INT_MAX / 1000 ? (int)(seconds * 1000) : INT_MAX;
    eventfd_t count;
    while (poll(fds, 2, limit_ms) < 0 && errno == EINTR)
        continue;
    if (fds[0].revents) {
        (void)!eventfd_read(done_fd, &count);
        return done_status == PMIX_SUCCESS ? DDP_OK : failed(doing, done_status);
    }
    return fds[1].revents ? DDP_ERR_ABORTED : DDP_ERR_TIMEOUT;
}

static void *run(void *call)
{
    done((*(pmix_status_t(**)(void))call)(), NULL);
    return NULL;
}

/* A call of PMIx that waits, in a thread that is left behind if it does not end. */
static enum ddp_status limited(pmix_status_t (*call)(void), double seconds, int interrupt_fd)
{
    static pmix_status_t (*function)(void);
    sigset_t all, before;
    pthread_t thread;
    function = call;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* it and PMIx's threads take no signals */
    const int error = pthread_create(&thread, NULL, run, &function);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return fail(DDP_ERR_SYSTEM, "cannot start a thread for PMIx: %s", strerror(error));
    enum ddp_status status = await(seconds, interrupt_fd);
    if (status == DDP_OK || status == DDP_ERR_SYSTEM)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    if (status == DDP_ERR_TIMEOUT)
        return fail(
            status,
            "PMIx: cannot %s: the scheduler's server on this node has not answered for %g s "
            "(--node-timeout): is its daemon stopped?",
            doing, seconds);
    return status;
}

static void leave(void)
{
    if (is_open)
        (void)PMIx_Finalize(NULL, 0); /* what fails here is the server's own end */
    is_open = false;
}

static pmix_status_t connect_server(void)
{
    pmix_status_t codes[] = {PMIX_ERR_LOST_CONNECTION, PMIX_ERR_JOB_ABORTED,
                             PMIX_ERR_JOB_KILLED_BY_CMD, PMIX_ERR_JOB_ABORTED_BY_SIG,
                             PMIX_ERR_JOB_CANCELED};
    doing = "connect to the server of this node";
    pmix_status_t status = PMIx_Init(&self, NULL, 0);
    if (status != PMIX_SUCCESS)
        return status;
    pmix_proc_t job = self;
    job.rank = PMIX_RANK_WILDCARD;
    doing = "ask for the size of the job";
    status = PMIx_Get(&job, PMIX_JOB_SIZE, NULL, 0, &value);
    if (status == PMIX_SUCCESS)
        PMIx_Register_event_handler(codes, sizeof codes / sizeof codes[0], NULL, 0, aborted, NULL,
                                    NULL);
    else
        (void)PMIx_Finalize(NULL, 0);
    return status;
}

static enum ddp_status join(int *rank, int *size, double seconds, int interrupt_fd)
{
    done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (done_fd < 0)
        return fail(DDP_ERR_SYSTEM, "cannot make an eventfd: %s", strerror(errno));
    enum ddp_status status = limited(connect_server, seconds, interrupt_fd);
    if (status != DDP_OK)
        return status;
    is_open = true;
    *size = (int)value->data.uint32;
    *rank = (int)self.rank;
    PMIX_VALUE_RELEASE(value);
    return DDP_OK;
}

static enum ddp_status put(const void *data, size_t bytes)
{
    pmix_value_t own = {.type = PMIX_BYTE_OBJECT};
    own.data.bo.bytes = (char *)data;
    own.data.bo.size = bytes;
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key_name, &own);
    if (status == PMIX_SUCCESS)
        status = PMIx_Commit();
    return status == PMIX_SUCCESS ? DDP_OK : failed("publish the address of node 0", status);
}

static pmix_status_t get_value(void)
{
    pmix_proc_t first = self;
    first.rank = 0;
    return PMIx_Get(&first, key_name, NULL, 0, &value);
}

static enum ddp_status get(void *data, size_t bytes, double seconds, int interrupt_fd)
{
    doing = "read the address of node 0";
    enum ddp_status status = limited(get_value, seconds, interrupt_fd);
    if (status != DDP_OK)
        return status;
    const bool fits = value->type == PMIX_BYTE_OBJECT && value->data.bo.size == bytes;
    if (fits)
        memcpy(data, value->data.bo.bytes, bytes);
    PMIX_VALUE_RELEASE(value);
    if (!fits)
        return fail(DDP_ERR_MISMATCH, "PMIx: node 0 runs another version of ddprun: install "
                                      "the same one on all nodes");
    return DDP_OK;
}

static enum ddp_status share(void *data, size_t bytes, double seconds, int interrupt_fd)
{
    static pmix_info_t collect; /* read until the fence has ended */
    static pmix_proc_t job;
    bool yes = true;
    if (self.rank == 0 && put(data, bytes) != DDP_OK)
        return DDP_ERR_SYSTEM;
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    job = self;
    job.rank = PMIX_RANK_WILDCARD;
    doing = "wait for the other nodes";
    pmix_status_t begun = PMIx_Fence_nb(&job, 1, &collect, 1, done, NULL);
    if (begun != PMIX_SUCCESS && begun != PMIX_OPERATION_SUCCEEDED)
        return failed(doing, begun);
    enum ddp_status status = DDP_OK;
    if (begun == PMIX_SUCCESS) /* else it has ended, and nothing is called */
        status = await(seconds, interrupt_fd);
    if (status == DDP_ERR_TIMEOUT)
        return fail(status,
                    "not every node of the job has a ddprun after %g s (--node-timeout): PMIx does "
                    "not say which are missing",
                    seconds);
    if (status == DDP_OK && self.rank != 0)
        status = get(data, bytes, seconds, interrupt_fd);
    return status;
}

static const struct pmix_ops ops = {.open = join, .share = share, .close = leave};

static void attach(const struct ddp_plugin_host *lent)
{
    host = *lent;
}

extern DDP_API const struct ddp_plugin ddp_plugin;
const struct ddp_plugin ddp_plugin = {
    .abi = DDP_PLUGIN_ABI,
    .name = "pmix",
    .pmix = &ops,
    .attach = attach,
};
