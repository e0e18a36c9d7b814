/* SPDX-License-Identifier: MIT
 *
 * See output.h. A stream with one destination costs nothing: the worker writes there itself. */
#include "config.h"

#include "launcher/output.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/write.h"
#include "launcher/system/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIPE_BYTES 262144

static const char *const file_names[] = {"stdout.log", "stderr.log"};

/* What happens to one stream of a rank. */
struct route {
    bool shown;
    bool relayed; /* through a pipe to us */
    bool filed;
};

static const char *filters_of(const struct settings *s, int index)
{
    return index == 0 ? s->stdout_filters : s->stderr_filters;
}

static int streams_to_tee(const struct settings *s, int rank)
{
    return s->log_dir && !s->tee && !s->redirects ? 3 : settings_streams(s->tee, rank);
}

static struct route route_of(const struct output *output, int rank, int index)
{
    const struct settings *s = output->plan->settings;
    bool tee = streams_to_tee(s, rank) & (1 << index);
    bool redirect = settings_streams(s->redirects, rank) & (1 << index);
    struct route route = {.filed = tee || redirect,
                          .shown = settings_shown(s, rank) && (tee || !redirect)};
    /* Rank 0 keeps the terminal itself: progress bars and questions work as without ddprun. */
    bool owns_terminal = output->plan->first_rank + rank == 0 && isatty(index + 1);
    route.relayed = (route.shown && (route.filed || (output->prefixed && !owns_terminal))) ||
                    (tee && filters_of(s, index));
    return route;
}

/* --- log files -------------------------------------------------------------------------------- */

static enum ddp_status make_run_directory(struct output *output)
{
    const struct settings *s = output->plan->settings;
    const char *temporary = getenv("TMPDIR");
    char *base = NULL;
    int n = s->log_dir ? asprintf(&base, "%s", s->log_dir)
                       : asprintf(&base, "%s", temporary && *temporary ? temporary : "/tmp");
    if (n < 0)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = ddp_make_directories(base, false);
    if (status == DDP_OK &&
        asprintf(&output->directory, "%s/%s_XXXXXX", base, s->log_dir ? s->run_id : "ddprun") < 0)
        status = ddp_fail(DDP_ERR_MEMORY, "out of memory");
    else if (status == DDP_OK && !mkdtemp(output->directory))
        status = ddp_fail(DDP_ERR_IO, "--log-dir %s: cannot be written: %s", base, strerror(errno));
    free(base);
    if (status == DDP_OK && !s->log_dir)
        ddp_log(DDP_LOG_INFO, "log files are in %s", output->directory);
    return status;
}

/* DIRECTORY/attempt_N/RANK/NAME, with the rank in the job. Freed with free(); NULL without memory.
 */
static char *path_of(const struct output *output, int rank, const char *name)
{
    char *path;
    int n = asprintf(&path, "%s/attempt_%d/%d/%s", output->directory, output->plan->restart,
                     output->plan->first_rank + rank, name);
    return n < 0 ? NULL : path;
}

static enum ddp_status make_directory_of(const char *path)
{
    char *directory = ddp_directory_of(path);
    enum ddp_status status = directory ? ddp_make_directories(directory, false)
                                       : ddp_fail(DDP_ERR_MEMORY, "out of memory");
    free(directory);
    return status;
}

/* *path [out] is freed with free(), also after a failure. */
static enum ddp_status open_file(const struct output *output, int rank, int index, int *fd,
                                 char **path)
{
    *path = path_of(output, rank, file_names[index]);
    if (!*path)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = make_directory_of(*path);
    if (status != DDP_OK)
        return status;
    *fd = open(*path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    return *fd >= 0 ? DDP_OK
                    : ddp_fail(DDP_ERR_IO, "%s: cannot be opened: %s", *path, strerror(errno));
}

/* --- opening ---------------------------------------------------------------------------------- */

/* The file for lines of all ranks that the --duplicate option of this stream names. */
static enum ddp_status open_matching(struct output *output, int index)
{
    static const char *const names[] = {"filtered_stdout.log", "filtered_stderr.log"};
    char *path;
    if (!filters_of(output->plan->settings, index) || !output->directory)
        return DDP_OK;
    if (asprintf(&path, "%s/attempt_%d/%s", output->directory, output->plan->restart,
                 names[index]) < 0)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    enum ddp_status status = make_directory_of(path);
    if (status == DDP_OK) {
        output->matching[index] = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (output->matching[index] < 0)
            status = ddp_fail(DDP_ERR_IO, "%s: cannot be opened: %s", path, strerror(errno));
    }
    free(path);
    return status;
}

enum ddp_status output_open(struct output *output, const struct launch_plan *plan,
                            const struct ddp_board *board, char *directory)
{
    int shown = 0, relayed = 0;
    bool filed = plan->settings->log_dir;
    *output =
        (struct output){.plan = plan, .board = board, .directory = directory, .matching = {-1, -1}};
    output->slots = ddp_array_alloc((size_t)plan->nproc, sizeof *output->slots);
    if (!output->slots) {
        output_close(output, false);
        return DDP_ERR_MEMORY;
    }
    for (int rank = 0; rank < plan->nproc; rank++) {
        output->slots[rank][0] = output->slots[rank][1] = -1;
        shown += settings_shown(plan->settings, rank);
    }
    output->prefixed = shown > 1 || plan->place->node_count > 1;
    for (int rank = 0; rank < plan->nproc; rank++)
        for (int index = 0; index < 2; index++) {
            struct route route = route_of(output, rank, index);
            relayed += route.relayed;
            filed = filed || route.filed;
        }
    enum ddp_status status = filed && !directory ? make_run_directory(output) : DDP_OK;
    for (int index = 0; index < 2 && status == DDP_OK; index++)
        status = open_matching(output, index);
    if (status == DDP_OK && relayed > 0) {
        descriptors_raise(relayed + 64);
        status = relay_start(&output->relay, relayed);
    }
    const struct route first = route_of(output, 0, 1);
    if (status == DDP_OK && output->relay && plan->first_rank == 0 && first.shown && !first.relayed)
        relay_lacks_rank_0(output->relay);
    if (status != DDP_OK)
        output_close(output, false);
    return status;
}

/* --- connecting a worker --------------------------------------------------------------------- */

/* Both ends of what a worker's stream is connected to; -1 where there is nothing. */
struct connection {
    int child;  /* for the worker */
    int source; /* for the relay */
    int file;   /* for the relay */
    char *path; /* of the log file, for the relay */
};

static const struct connection not_connected = {-1, -1, -1, NULL};

static void disconnect(struct connection *connection)
{
    const int fds[] = {connection->child, connection->source, connection->file};
    for (int i = 0; i < 3; i++)
        if (fds[i] >= 0)
            close(fds[i]);
    free(connection->path);
    *connection = not_connected;
}

static enum ddp_status connect_stream(const struct output *output, int rank, int index,
                                      const struct spawner *spawner, struct connection *connection)
{
    struct route route = route_of(output, rank, index);
    int ends[2], file = -1;
    if (route.filed) {
        enum ddp_status status = open_file(output, rank, index, &file, &connection->path);
        if (status != DDP_OK)
            return status;
    }
    if (!route.relayed) {
        connection->child = file;
        if (!route.shown && file < 0)
            connection->child = fcntl(spawner->null_fd, F_DUPFD_CLOEXEC, 3);
        return DDP_OK;
    }
    connection->file = file;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return ddp_fail(DDP_ERR_SYSTEM, "rank %d: cannot make a pipe for its output: %s%s",
                        output->plan->first_rank + rank, strerror(errno),
                        errno == EMFILE ? " (ulimit -n)" : "");
    fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES); /* fewer switches between it and us */
    connection->source = ends[0];
    connection->child = ends[1];
    return DDP_OK;
}

/* Fills in ${role_name}, ${local_rank}, ${rank} and ${hostname} as torchrun's template has them. */
static void expand_prefix(const char *template, const struct launch_plan *plan, int rank,
                          char prefix[RELAY_PREFIX])
{
    static const char *const fields[] = {"${role_name}", "${hostname}", "${local_rank}", "${rank}"};
    char host[HOST_NAME_MAX + 1] = "";
    size_t used = 0;
    gethostname(host, sizeof host - 1);
    while (*template && used + 1 < RELAY_PREFIX) {
        size_t field = 0;
        while (field < 4 && strncmp(template, fields[field], strlen(fields[field])) != 0)
            field++;
        int n = field < 2   ? snprintf(prefix + used, RELAY_PREFIX - used, "%s",
                                     field ? host : plan->settings->role)
                : field < 4 ? snprintf(prefix + used, RELAY_PREFIX - used, "%d",
                                       field == 2 ? rank : plan->first_rank + rank)
                            : snprintf(prefix + used, RELAY_PREFIX - used, "%c", *template);
        used += (size_t)n;
        template += field < 4 ? strlen(fields[field]) : 1;
    }
    prefix[used < RELAY_PREFIX ? used : RELAY_PREFIX - 1] = 0;
}

static enum ddp_status relay_stream(struct output *output, int rank, int index,
                                    struct connection *connection)
{
    const struct settings *settings = output->plan->settings;
    struct relay_stream stream = {
        .rank = output->plan->first_rank + rank,
        .source = connection->source,
        .shown_on = route_of(output, rank, index).shown ? index + 1 : -1,
        .matching = {.filters = filters_of(settings, index), .file = output->matching[index]},
        .file = connection->file,
        .file_path = connection->path};
    const char *template = settings->prefix_template;
    if (!template)
        template = getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    if (connection->source < 0)
        return DDP_OK;
    if (output->prefixed)
        expand_prefix(template ? template : "[${rank}]: ", output->plan, rank, stream.prefix);
    if (index == 0)
        stream.bare = &output->board->memory->sole_output;
    enum ddp_status status = relay_add(output->relay, &stream, &output->slots[rank][index]);
    if (status == DDP_OK)
        *connection = (struct connection){.child = connection->child, .source = -1, .file = -1};
    return status;
}

/* Names the file in which torch's record decorator leaves its reason, and makes its directory. */
static enum ddp_status name_error_file(const struct output *output, int rank, char **path)
{
    *path = output_error_file(output, rank);
    return *path ? make_directory_of(*path) : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

enum ddp_status output_start_worker(struct output *output, const struct spawner *spawner, int rank,
                                    pid_t *pid)
{
    char *error_file = NULL;
    struct connection streams[2] = {not_connected, not_connected};
    enum ddp_status status = connect_stream(output, rank, 0, spawner, &streams[0]);
    if (status == DDP_OK)
        status = connect_stream(output, rank, 1, spawner, &streams[1]);
    if (status == DDP_OK && output->directory)
        status = name_error_file(output, rank, &error_file);
    if (status == DDP_OK)
        status = spawner_start(spawner, rank, streams[0].child, streams[1].child, error_file, pid);
    free(error_file);
    for (int index = 0; index < 2 && status == DDP_OK; index++)
        status = relay_stream(output, rank, index, &streams[index]);
    disconnect(&streams[0]);
    disconnect(&streams[1]);
    return status;
}

/* The end of a log file that the worker wrote itself. */
static void file_tail(const struct output *output, int rank, char text[RELAY_TAIL + 1])
{
    char *path = path_of(output, rank, file_names[1]);
    if (!path)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* it may be a pipe by now */
    free(path);
    if (fd < 0)
        return;
    off_t size = lseek(fd, 0, SEEK_END);
    ssize_t n = pread(fd, text, RELAY_TAIL, size > RELAY_TAIL ? size - RELAY_TAIL : 0);
    text[n > 0 ? n : 0] = 0;
    close(fd);
}

void output_tail(struct output *output, int rank, char text[RELAY_TAIL + 1], bool *in_sight)
{
    text[0] = 0;
    *in_sight = false;
    if (output->slots[rank][1] >= 0)
        relay_tail(output->relay, output->slots[rank][1], 300, text, in_sight);
    else if (route_of(output, rank, 1).filed)
        file_tail(output, rank, text);
}

char *output_error_file(const struct output *output, int rank)
{
    return output->directory ? path_of(output, rank, "error.json") : NULL;
}

/* A worker that writes into its log file itself, and does not look whether it can, says nothing of
 * a full disk. Its file cannot grow then. */
static void check_file(const struct output *output, int rank, int index)
{
    struct stat info;
    char *path = path_of(output, rank, file_names[index]);
    int fd = path ? open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) &&
        fallocate(fd, FALLOC_FL_KEEP_SIZE, info.st_size, 1) < 0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        relay_lose_file(path);
    if (fd >= 0)
        close(fd);
    free(path);
}

void output_check_files(const struct output *output)
{
    for (int rank = 0; rank < output->plan->nproc; rank++)
        for (int index = 0; index < 2; index++) {
            struct route route = route_of(output, rank, index);
            if (route.filed && !route.relayed)
                check_file(output, rank, index);
        }
}

bool output_shows_errors(const struct output *output, int rank)
{
    return route_of(output, rank, 1).shown;
}

uint64_t output_bytes(const struct output *output)
{
    return output->relay ? relay_bytes(output->relay) : 0;
}

bool output_passes(const struct output *output, int rank)
{
    return output->slots[rank][0] >= 0 && output->slots[rank][1] >= 0;
}

void output_failed_alike(const struct output *output)
{
    if (output->relay)
        relay_failed_alike(output->relay);
}

bool output_only_shows_errors(const struct output *output)
{
    for (int rank = 0; rank < output->plan->nproc; rank++) {
        const struct route route = route_of(output, rank, 1);
        if (!route.shown || route.filed)
            return false;
    }
    return true;
}

int output_end(struct output *output)
{
    return output->relay ? relay_end(output->relay) : -1;
}

char *output_take_directory(struct output *output)
{
    char *directory = output->directory;
    output->directory = NULL;
    return directory;
}

void output_close(struct output *output, bool written)
{
    if (output->relay && written)
        relay_close(output->relay);
    for (int index = 0; index < 2; index++)
        if (output->matching[index] >= 0 && (written || !output->relay))
            close(output->matching[index]);
    free(output->slots);
    free(output->directory);
    *output = (struct output){0};
}
