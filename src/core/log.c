/* SPDX-License-Identifier: MIT
 *
 * See log.h. */
#include "config.h"

#include "core/log.h"

#include "core/clock.h"
#include "core/hash.h"
#include "core/terminal.h"
#include "core/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES 1024 /* of a message */
#define MEMORY_NS  INT64_C(1000000000)
#define MEMORY_KEY UINT64_C(0x6d656d6f72790001)

static const char *program_name; /* NULL: as the program was started */
static atomic_int program_rank = -1;
static atomic_int max_level = -1;

void ddp_log_set_name(const char *name)
{
    program_name = name;
}

const char *ddp_log_name(void)
{
    return program_name ? program_name : program_invocation_short_name;
}

void ddp_log_set_rank(int rank)
{
    atomic_store(&program_rank, rank);
}

void ddp_log_set_level(enum ddp_log_level level)
{
    atomic_store(&max_level, (int)level);
}

static int level_from_environment(void)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    const char *value = getenv("DDP_LOG");
    for (int i = 0; value && i < 4; i++)
        if (strcmp(value, names[i]) == 0)
            return i;
    return DDP_LOG_INFO;
}

static _Thread_local struct ddp_log_held held; /* where this thread's errors go */

static void (*sink)(int level, const char *text); /* set before there are threads; or NULL */

void ddp_log_set_sink(void (*to)(int level, const char *text))
{
    sink = to;
}

static _Atomic(const struct ddp_log_peers *) log_peers;

void ddp_log_set_peers(const struct ddp_log_peers *peers)
{
    atomic_store(&log_peers, peers);
}

/* Inside a character of UTF-8, not at its beginning? */
static bool is_inside(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

static bool wanted(enum ddp_log_level level)
{
    if (sink) /* which decides */
        return true;
    int max = atomic_load(&max_level);
    if (max < 0) {
        max = level_from_environment();
        atomic_store(&max_level, max);
    }
    return (int)level <= max;
}

static void compose(char text[TEXT_BYTES], const char *format, va_list args) DDP_PRINTF(2, 0);
static void vlog(enum ddp_log_level level, uint64_t key, const char *format, va_list args)
    DDP_PRINTF(3, 0);

static size_t appendf(char *line, size_t size, size_t used, const char *format, ...)
    DDP_PRINTF(4, 5);

/* Appends to a line of `size` bytes; what does not fit is cut. */
static size_t appendf(char *line, size_t size, size_t used, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line + used, size - used, format, args);
    va_end(args);
    if (n < 0)
        return used;
    return (size_t)n < size - used ? used + (size_t)n : size - 1;
}

/* The message alone. Where names from outside make it long its middle is left out: what is wrong,
 * and what to do, stands at the end. */
static void compose(char text[TEXT_BYTES], const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    const int bytes = vsnprintf(text, TEXT_BYTES, format, args);
    char *whole = bytes >= TEXT_BYTES ? malloc((size_t)bytes + 1) : NULL;
    if (whole && vsnprintf(whole, (size_t)bytes + 1, format, again) == bytes) {
        size_t head = TEXT_BYTES / 2, tail = (size_t)bytes - (TEXT_BYTES / 2 - 16);
        for (int i = 0; i < 3 && is_inside(whole[head]); i++)
            head--;
        for (int i = 0; i < 3 && is_inside(whole[tail]); i++)
            tail++;
        snprintf(text + head, TEXT_BYTES - head, " ... %s", whole + tail);
    }
    free(whole);
    va_end(again);
}

/* Writes a line where the bar was. */
static void write_line(const char *line, size_t bytes)
{
    ddp_bar_clear();
    for (size_t done = 0; done < bytes;) {
        ssize_t n = write(STDERR_FILENO, line + done, bytes - done);
        if (n > 0)
            done += (size_t)n;
        else if (n < 0 && errno != EINTR)
            break; /* the error cannot be reported */
    }
}

/* `key`: what other ranks know an error by; 0: its text. */
static void vlog(enum ddp_log_level level, uint64_t key, const char *format, va_list args)
{
    static const char *const words[] = {"error: ", "warning: ", "", ""};
    char text[TEXT_BYTES], line[4096]; /* which a pipe takes at once */
    size_t used = 0;
    int saved_errno = errno;
    int rank = atomic_load(&program_rank);

    compose(text, format, args);
    if (sink) {
        sink((int)level, text);
        errno = saved_errno;
        return;
    }
    used = appendf(line, sizeof line - 1, used, "%s: ", ddp_log_name());
    if (rank >= 0)
        used = appendf(line, sizeof line - 1, used, "rank %d: ", rank);
    used = appendf(line, sizeof line - 1, used, "%s", words[level]);
    const size_t bytes = ddp_text_clean(line + used, sizeof line - 1 - used, text, strlen(text));
    const struct ddp_log_peers *peers = level == DDP_LOG_ERROR ? atomic_load(&log_peers) : NULL;
    if (peers && key == 0)
        key = ddp_hash(line + used, bytes) | 1;
    used += bytes;
    line[used++] = '\n';
    if (!peers || peers->speaks(key)) {
        write_line(line, used);
        if (peers)
            peers->said(key);
    }
    errno = saved_errno;
}

void ddp_log(enum ddp_log_level level, const char *format, ...)
{
    if (!wanted(level))
        return;
    va_list args;
    va_start(args, format);
    vlog(level, 0, format, args);
    va_end(args);
}

void ddp_log_hold(char *text, size_t size)
{
    ddp_log_exchange((struct ddp_log_held){text, size});
    if (text)
        *text = '\0';
}

struct ddp_log_held ddp_log_exchange(struct ddp_log_held to)
{
    const struct ddp_log_held before = held;
    held = to;
    return before;
}

static atomic_bool disk_full;

bool ddp_fail_disk_full(void)
{
    return disk_full;
}

/* When memory runs out, many allocations fail: one of them is logged. */
static bool told_lately(void)
{
    static _Atomic int64_t told_ns;
    const int64_t now = ddp_clock_ns(), before = atomic_exchange(&told_ns, now);
    return before != 0 && now - before < MEMORY_NS;
}

enum ddp_status ddp_fail(enum ddp_status status, const char *format, ...)
{
    va_list args;
    if (status == DDP_ERR_IO && (errno == ENOSPC || errno == EDQUOT))
        atomic_store(&disk_full, true);
    if (status == DDP_ERR_MEMORY && !held.text && told_lately())
        return status;
    va_start(args, format);
    if (!held.text)
        vlog(DDP_LOG_ERROR, status == DDP_ERR_MEMORY ? MEMORY_KEY : 0, format, args);
    else if (!*held.text) {
        char text[TEXT_BYTES];
        compose(text, format, args);
        snprintf(held.text, held.size, "%s", text);
    }
    va_end(args);
    return status;
}

enum ddp_status ddp_errno_status(int error, enum ddp_status other)
{
    return error == ENOMEM ? DDP_ERR_MEMORY : other;
}

const char *ddp_strerror(int error)
{
    return error == EFBIG ? "File too large (see ulimit -f)" : strerror(error);
}

enum ddp_status ddp_fail_path(const char *path, const char *what)
{
    return ddp_fail(ddp_errno_status(errno, DDP_ERR_IO), "%s: cannot %s: %s", path, what,
                    ddp_strerror(errno));
}
