/* SPDX-License-Identifier: MIT
 *
 * Standard error caught in a temporary file, for tests of the words of messages. */
#ifndef TESTS_MESSAGES_H
#define TESTS_MESSAGES_H

#include <check.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static FILE *caught;
static char messages[8192];

static inline void catch_messages(void)
{
    fflush(stderr);
    caught = tmpfile();
    ck_assert_ptr_nonnull(caught);
    ck_assert_int_ge(dup2(fileno(caught), STDERR_FILENO), 0);
}

/* What was written so far; the next call tells only what came later. */
static inline const char *take_messages(void)
{
    ssize_t n = pread(fileno(caught), messages, sizeof messages - 1, 0);
    messages[n > 0 ? n : 0] = 0;
    ck_assert_int_eq(ftruncate(fileno(caught), 0), 0);
    lseek(fileno(caught), 0, SEEK_SET);
    return messages;
}

static inline void expect_message(const char *part)
{
    const char *text = take_messages();
    ck_assert_msg(strstr(text, part) != NULL, "expected \"%s\", got \"%s\"", part, text);
    ck_assert_msg(strchr(text, '\n') == text + strlen(text) - 1, "not one line: \"%s\"", text);
}

#endif
