/* SPDX-License-Identifier: MIT
 *
 * See stacks.h. Python's faulthandler writes the stacks of all threads into the worker's memfd when
 * the signal comes; a process that does not catch it, or has closed the memfd, is not sent it. For
 * another Python there may be py-spy. Of all other programs the kernel says what each thread waits
 * for. */
#include "config.h"

#include "launcher/stacks.h"

#include "core/clock.h"
#include "core/hash.h"
#include "core/memory.h"
#include "core/text.h"
#include "launcher/system/entries.h"
#include "launcher/system/proc.h"
#include "launcher/python.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_MS   1000
#define QUIET_MS    30    /* after this time without more text it is complete */
#define PY_SPY_MS   3000  /* for all ranks: meanwhile ddprun does nothing else */
#define STACK_BYTES 65536 /* of a worker */
#define THREADS     16    /* that are listed of a worker */

/* --- Python --------------------------------------------------------------------------------- */

static bool catches(pid_t pid, int signal)
{
    char text[4096];
    proc_read(pid, "status", text, sizeof text);
    const char *caught = strstr(text, "\nSigCgt:");
    return caught && strtoull(caught + strlen("\nSigCgt:"), NULL, 16) >> (signal - 1) & 1;
}

struct search {
    const struct stat *wanted;
    bool found;
};

static void compare(void *arg, int directory, const char *name)
{
    struct search *search = arg;
    struct stat info;
    if (fstatat(directory, name, &info, 0) == 0 && info.st_dev == search->wanted->st_dev &&
        info.st_ino == search->wanted->st_ino)
        search->found = true;
}

/* Does the process still have the file open? */
static bool holds(pid_t pid, int fd)
{
    char path[64];
    struct stat info;
    struct search search = {.wanted = &info};
    snprintf(path, sizeof path, "/proc/%ld/fd", (long)pid);
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory >= 0 && fstat(fd, &info) == 0)
        entries_visit(directory, compare, &search);
    if (directory >= 0)
        close(directory);
    return search.found;
}

/* Asks for the stacks. What it looks at and what it signals are the same process. */
static bool ask(const struct stack_source *source)
{
    if (source->pid <= 0 || source->fd < 0)
        return false;
    int process = (int)syscall(SYS_pidfd_open, source->pid, 0);
    bool asked = process >= 0 && catches(source->pid, PYTHON_STACK_SIGNAL) &&
                 holds(source->pid, source->fd) && ftruncate(source->fd, 0) == 0 &&
                 syscall(SYS_pidfd_send_signal, process, PYTHON_STACK_SIGNAL, NULL, 0) == 0;
    if (process >= 0)
        close(process);
    return asked;
}

static off_t size_of(int fd)
{
    struct stat info;
    return fstat(fd, &info) == 0 ? info.st_size : 0;
}

static off_t sum_of(const struct stack_source *sources, const bool *asked, int count, bool *all)
{
    off_t sum = 0;
    *all = true;
    for (int rank = 0; rank < count; rank++)
        if (asked[rank]) {
            const off_t size = size_of(sources[rank].fd);
            sum += size;
            *all = *all && size > 0;
        }
    return sum;
}

/* Until all have answered and nothing more comes. */
static void await(const struct stack_source *sources, const bool *asked, int count)
{
    const struct timespec pause = {.tv_nsec = 5000000};
    const int64_t deadline_ns = ddp_deadline_ns(ANSWER_MS);
    int64_t quiet_ns = ddp_deadline_ns(QUIET_MS);
    bool all;
    off_t last = sum_of(sources, asked, count, &all);
    while (!ddp_deadline_passed(deadline_ns) && !(all && ddp_deadline_passed(quiet_ns))) {
        nanosleep(&pause, NULL);
        const off_t now = sum_of(sources, asked, count, &all);
        if (now != last)
            quiet_ns = ddp_deadline_ns(QUIET_MS);
        last = now;
    }
}

/* Takes out addresses, which differ between ranks: " 0x00007f...". */
static void drop_addresses(char *text)
{
    char *to = text;
    for (const char *from = text; *from;) {
        size_t digits = strncmp(from, " 0x", 3) == 0 ? strspn(from + 3, "0123456789abcdef") : 0;
        if (digits > 0)
            from += 3 + digits;
        else
            *to++ = *from++;
    }
    *to = 0;
}

/* The answer of a worker; "" when it has not come. */
static void read_answer(int fd, char *text, size_t size)
{
    ssize_t n = pread(fd, text, size - 1, 0);
    text[n > 0 ? n : 0] = 0;
    drop_addresses(text);
}

/* Reads a pipe until its end or the deadline. */
static void read_pipe(int fd, char *text, size_t size, int64_t deadline_ns)
{
    size_t used = 0;
    struct pollfd watched = {.fd = fd, .events = POLLIN};
    while (used < size - 1 && !ddp_deadline_passed(deadline_ns)) {
        if (poll(&watched, 1, 50) <= 0)
            continue;
        ssize_t n = read(fd, text + used, size - 1 - used);
        if (n <= 0)
            break;
        used += (size_t)n;
    }
    text[used] = 0;
}

/* What py-spy says of a process; "" without it, or when it may not look. */
static void ask_py_spy(pid_t pid, char *text, size_t size, int64_t deadline_ns)
{
    char number[24];
    char *const argv[] = {(char *)"py-spy", (char *)"dump", (char *)"--pid", number, NULL};
    int ends[2];
    pid_t child;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none;
    text[0] = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    snprintf(number, sizeof number, "%ld", (long)pid);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    const bool started = posix_spawnp(&child, argv[0], &actions, &attributes, argv, environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    close(ends[1]);
    if (started) {
        read_pipe(ends[0], text, size, deadline_ns);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    close(ends[0]);
}

/* --- the kernel ----------------------------------------------------------------------------- */

static const char *state_word(char letter)
{
    switch (letter) {
    case 'R':
        return "running";
    case 'D':
        return "waiting for a device";
    case 'T':
        return "stopped";
    case 't':
        return "stopped by a debugger";
    case 'Z':
    case 'X':
        return "dead";
    }
    return "waiting";
}

struct threads {
    pid_t pid;
    FILE *out;
    int count;
};

/* One thread: "  thread 77 (name) waiting in futex_wait_queue, system call 202". */
static void write_thread(void *arg, int directory, const char *name)
{
    struct threads *threads = arg;
    char part[64], stat[512], channel[128], call[128], shown[DDP_TEXT_SHOWN];
    (void)directory;
    if (name[strspn(name, "0123456789")] != 0 || ++threads->count > THREADS)
        return;
    snprintf(part, sizeof part, "task/%.20s/stat", name);
    proc_read(threads->pid, part, stat, sizeof stat);
    snprintf(part, sizeof part, "task/%.20s/wchan", name);
    proc_read(threads->pid, part, channel, sizeof channel);
    snprintf(part, sizeof part, "task/%.20s/syscall", name);
    proc_read(threads->pid, part, call, sizeof call);
    char *open = strchr(stat, '('), *end = strrchr(stat, ')');
    if (!open || !end || !end[1])
        return;
    *end = 0;
    fprintf(threads->out, "  thread %.20s (%s) %s", name, ddp_text_show(shown, open + 1),
            state_word(end[2]));
    if (channel[0] && strcmp(channel, "0") != 0)
        fprintf(threads->out, " in %s", ddp_text_show(shown, channel));
    if (call[0] >= '0' && call[0] <= '9')
        fprintf(threads->out, ", system call %d", atoi(call));
    fputc('\n', threads->out);
}

static void write_kernel(pid_t pid, FILE *out)
{
    char path[64];
    struct threads threads = {.pid = pid, .out = out};
    snprintf(path, sizeof path, "/proc/%ld/task", (long)pid);
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) {
        fputs("  it is dead, or /proc is missing\n", out);
        return;
    }
    entries_visit(directory, write_thread, &threads);
    close(directory);
    if (threads.count > THREADS)
        fprintf(out, "  and %d more threads\n", threads.count - THREADS);
}

/* --- all together --------------------------------------------------------------------------- */

static void write_lines(char *text, FILE *out)
{
    char shown[1024], *save = NULL;
    for (char *line = text; (line = strtok_r(line, "\n", &save)); line = NULL) {
        ddp_text_clean(shown, sizeof shown, line, strlen(line));
        fprintf(out, "  %s\n", shown);
    }
}

/* Runs Python, as far as its file says? */
static bool runs_python(pid_t pid)
{
    char path[64], target[4096];
    snprintf(path, sizeof path, "/proc/%ld/exe", (long)pid);
    ssize_t n = readlink(path, target, sizeof target - 1);
    target[n > 0 ? n : 0] = 0;
    return python_is(target);
}

static void write_rank(const struct stack_source *source, int64_t deadline_ns, char *text,
                       FILE *out)
{
    if (source->pid <= 0) {
        fprintf(out, "rank %d: no process\n", source->rank);
        return;
    }
    if (!*text && !ddp_deadline_passed(deadline_ns) && runs_python(source->pid))
        ask_py_spy(source->pid, text, STACK_BYTES, deadline_ns);
    fprintf(out, "rank %d (pid %ld):\n", source->rank, (long)source->pid);
    if (*text)
        write_lines(text, out);
    else
        write_kernel(source->pid, out);
}

/* A rank that is where an earlier one is needs no stack of its own. */
static void write_answers(const struct stack_source *sources, const bool *asked, int count,
                          uint64_t *hashes, char *text, FILE *out)
{
    const int64_t deadline_ns = ddp_deadline_ns(PY_SPY_MS);
    for (int rank = 0; rank < count; rank++) {
        int same = 0;
        text[0] = 0;
        if (asked[rank])
            read_answer(sources[rank].fd, text, STACK_BYTES);
        hashes[rank] = *text ? ddp_hash(text, strlen(text)) | 1 : 0;
        while (hashes[same] != hashes[rank])
            same++;
        if (*text && same < rank)
            fprintf(out, "rank %d (pid %ld): as rank %d\n", sources[rank].rank,
                    (long)sources[rank].pid, sources[same].rank);
        else
            write_rank(&sources[rank], deadline_ns, text, out);
    }
}

void stacks_write(const struct stack_source *sources, int count, FILE *out)
{
    bool *asked = ddp_array_alloc((size_t)count, sizeof *asked);
    uint64_t *hashes = ddp_array_alloc((size_t)count, sizeof *hashes);
    char *text = ddp_array_alloc(STACK_BYTES, 1);
    if (asked && hashes && text) {
        bool any = false;
        for (int rank = 0; rank < count; rank++)
            any |= asked[rank] = ask(&sources[rank]);
        if (any)
            await(sources, asked, count);
        write_answers(sources, asked, count, hashes, text, out);
    }
    free(asked);
    free(hashes);
    free(text);
}
