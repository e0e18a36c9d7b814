/* SPDX-License-Identifier: MIT
 *
 * A directory that is gone when the test is, files in it, and what a call wrote to standard error.
 */
#ifndef DDP_TESTS_SCRATCH_H
#define DDP_TESTS_SCRATCH_H

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char scratch[PATH_MAX / 2];

static inline void scratch_make(void)
{
    const char *parent = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/ddp-check.XXXXXX", parent && *parent ? parent : "/tmp");
    ck_assert_msg(mkdtemp(scratch) != NULL, "cannot make a directory under %s", parent);
}

/* "scratch/name"; the next eight calls leave it alone. */
static inline const char *scratch_path(const char *name)
{
    static char paths[8][PATH_MAX];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", scratch, name);
    return path;
}

/* Counts the entries of the directory; with `clear`, removes them. */
static inline int scratch_entries(bool clear)
{
    int count = 0;
    DIR *directory = opendir(scratch);
    if (!directory)
        return 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        count++;
        if (clear && unlink(scratch_path(entry->d_name)) < 0)
            rmdir(scratch_path(entry->d_name));
    }
    closedir(directory);
    return count;
}

/* For a checked fixture: each test begins with an empty directory. */
static inline void scratch_clear(void)
{
    chmod(scratch, 0700);
    scratch_entries(true);
}

/* For an unchecked fixture with scratch_make(): it runs in the parent, so also when a test has
 * failed. */
static inline void scratch_remove(void)
{
    scratch_clear();
    rmdir(scratch);
}

static inline void scratch_write(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(scratch_path(name), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

static inline char *scratch_read(const char *name, size_t *bytes)
{
    static char content[1 << 21];
    FILE *file = fopen(scratch_path(name), "rb");
    ck_assert_ptr_nonnull(file);
    *bytes = fread(content, 1, sizeof content, file);
    fclose(file);
    return content;
}

/* Root may read and write anything: be nobody until seteuid(getuid()). False: not possible here. */
static inline bool scratch_give_up_root(void)
{
    if (geteuid() != 0 || seteuid(65534) == 0)
        return true;
    fputs("skipped: root cannot become nobody here\n", stderr);
    return false;
}

static int scratch_stderr = -1;

/* Standard error goes to a file until stop, which gives its text. */
static inline void capture_start(void)
{
    FILE *file = tmpfile();
    ck_assert_ptr_nonnull(file);
    scratch_stderr = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    fclose(file);
}

static inline const char *capture_stop(void)
{
    static char text[8192];
    ssize_t n = pread(STDERR_FILENO, text, sizeof text - 1, 0);
    dup2(scratch_stderr, STDERR_FILENO);
    close(scratch_stderr);
    text[n > 0 ? n : 0] = '\0';
    return text;
}

/* One line, which says this and that. */
static inline void one_message(const char *text, const char *this, const char *that)
{
    const char *end = strchr(text, '\n');
    ck_assert_msg(end != NULL && end[1] == '\0', "not one line: %s", text);
    ck_assert_msg(strstr(text, this) != NULL, "no '%s' in: %s", this, text);
    ck_assert_msg(strstr(text, that) != NULL, "no '%s' in: %s", that, text);
}

#endif
