/* SPDX-License-Identifier: MIT
 *
 * Messages on standard error: one write(2) a line, so lines of several processes never mix. Every
 * error is logged once, where it is first known, and then only propagated as a status. Texts from
 * outside may go into a message as they are: control characters are escaped here (core/text.h). */
#ifndef DDP_CORE_LOG_H
#define DDP_CORE_LOG_H

#include "ddp.h"

#ifdef __cplusplus
extern "C" {
#endif

enum ddp_log_level {
    DDP_LOG_ERROR = 0,
    DDP_LOG_WARNING = 1,
    DDP_LOG_INFO = 2, /* default: what a user should know even when all is well */
    DDP_LOG_DEBUG = 3,
};

/* The name before each line, by default the one the program was started by, and the rank shown with
 * it (-1: none). The name is not copied. Level: more verbose messages are dropped;
 * DDP_LOG=error|warning|info|debug in the environment is the default. */
void ddp_log_set_name(const char *name);
const char *ddp_log_name(void);
void ddp_log_set_rank(int rank);
void ddp_log_set_level(enum ddp_log_level level);

/* Writes "name: [rank N: ]error: text\n"; warnings say "warning:", the other levels nothing. A bar
 * on the terminal is removed first (core/terminal.h). */
void ddp_log(enum ddp_log_level level, const char *format, ...) DDP_PRINTF(2, 3);

/* From now on errors of this thread are held back, the first of them in `text`, until it is NULL
 * again: for work done ahead, whose failure is reported only when its turn comes. */
void ddp_log_hold(char *text, size_t size);

/* The same, around a call into the program: returns where errors went before, to be passed back
 * after it. */
struct ddp_log_held {
    char *text; /* NULL: to standard error */
    size_t size;
};
struct ddp_log_held ddp_log_exchange(struct ddp_log_held to);

/* From now on messages of this copy of the library go, as text without name and rank, to the copy
 * in the program that loaded this plugin. */
void ddp_log_set_sink(void (*sink)(int level, const char *text));

/* The ranks of one job: an error that several of them find is to be logged by one. speaks(key) says
 * whether this process logs an error; said(key) follows its line. The key is a hash of the text
 * without name and rank; all DDP_ERR_MEMORY of ddp_fail() have the same. NULL: each process logs
 * its own errors. */
struct ddp_log_peers {
    bool (*speaks)(uint64_t key);
    void (*said)(uint64_t key);
};
void ddp_log_set_peers(const struct ddp_log_peers *peers);

/* ddp_fail() of ddp.h; of many DDP_ERR_MEMORY within a second only the first is logged.
 *
 * The same for a failed system call on a file: "PATH: cannot WHAT: " and what errno says.
 * DDP_ERR_IO or DDP_ERR_MEMORY. */
enum ddp_status ddp_fail_path(const char *path, const char *what);

/* What errno says; for a file (or shared memory) that is too large, also which limit. */
const char *ddp_strerror(int error);

/* Whether this process has called ddp_fail() with DDP_ERR_IO while errno said that a disk, or the
 * user's quota on it, is full. */
bool ddp_fail_disk_full(void);

/* The status for a failed system call: DDP_ERR_MEMORY for ENOMEM, else `other`. */
enum ddp_status ddp_errno_status(int error, enum ddp_status other);

#ifdef __cplusplus
}
#endif

#endif
