/* SPDX-License-Identifier: MIT
 *
 * Tests of the log, and of what it does to texts from outside. */
#include "config.h"

#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include "core/log.h"
#include "core/terminal.h"
#include "core/text.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <pty.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>

/* What was written since the last call, or since capture_start(). */
static const char *take_messages(void)
{
    const char *text = capture_stop();
    capture_start();
    return text;
}

START_TEST(log_lines)
{
    char big[6000];
    capture_start();
    ddp_log(DDP_LOG_INFO, "unnamed");
    ck_assert_str_eq(take_messages(), "check_log: unnamed\n");
    ddp_log_set_name("prog");
    ddp_log(DDP_LOG_INFO, "plain %d", 1);
    ck_assert_str_eq(take_messages(), "prog: plain 1\n");
    ddp_log_set_rank(3);
    ck_assert_int_eq(ddp_fail(DDP_ERR_IO, "f: %s", "gone"), DDP_ERR_IO);
    ck_assert_str_eq(take_messages(), "prog: rank 3: error: f: gone\n");
    ddp_log(DDP_LOG_DEBUG, "hidden");
    ck_assert_str_eq(take_messages(), "");
    ddp_log_set_level(DDP_LOG_DEBUG);
    ddp_log(DDP_LOG_DEBUG, "shown");
    ck_assert_str_eq(take_messages(), "prog: rank 3: shown\n");
    ddp_log_set_level(DDP_LOG_ERROR);
    ddp_log(DDP_LOG_WARNING, "hidden");
    ck_assert_str_eq(take_messages(), "");
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = 0;
    ddp_log(DDP_LOG_ERROR, "%s", big);
    const char *text = take_messages();
    ck_assert_uint_lt(strlen(text), 1100);
    ck_assert_ptr_nonnull(strstr(text, "error: xxx"));
    ck_assert_ptr_nonnull(strstr(text, "xxx ... xxx"));
    ck_assert(text[strlen(text) - 1] == '\n');
    /* A long name takes away neither what was before it nor what is behind it. */
    ddp_log(DDP_LOG_ERROR, "--load %s: it is %s: give another", "f", big);
    text = take_messages();
    ck_assert_ptr_nonnull(strstr(text, "error: --load f: it is xxx"));
    ck_assert_ptr_nonnull(strstr(text, "xxx: give another\n"));
    char kept[2048];
    ddp_log_hold(kept, sizeof kept);
    (void)ddp_fail(DDP_ERR_IO, "%s: give another", big);
    ddp_log_hold(NULL, 0);
    ck_assert_uint_lt(strlen(kept), 1100);
    ck_assert_ptr_nonnull(strstr(kept, "xxx: give another"));
}
END_TEST

/* What must not reach a terminal as it is, and how it is written; the rest stays. */
static const struct {
    const char *text, *shown;
} texts[] = {
    {"", ""},
    {"a\\b~\t\xc2\xa0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf",
     "a\\b~\t\xc2\xa0\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xf4\x8f\xbf\xbf"},
    {"\x1b]0;x\a\r\n\x7f\x01", "\\x1b]0;x\\x07\\x0d\\x0a\\x7f\\x01"},
    {"\xc2\x9b"
     "31m\xc2\x80\xc2\x9f",
     "\\u009b31m\\u0080\\u009f"},
    {"\x9b"
     "31m\x80\xff",
     "\\x9b31m\\x80\\xff"},
    {"\xc0\x80\xe0\x80\x80", "\\xc0\\x80\\xe0\\x80\\x80"}, /* overlong */
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"},                   /* a surrogate */
    {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},          /* above all characters */
    {"\xe2\x82", "\\xe2\\x82"},                            /* cut */
    {"\xe2\x82z\xc3", "\\xe2\\x82z\\xc3"},
};

START_TEST(log_escapes)
{
    const char *text = texts[_i].text, *shown = texts[_i].shown;
    char whole[256], clean[128], exact[128];
    const size_t bytes = strlen(shown);
    ck_assert_uint_eq(ddp_text_clean(clean, sizeof clean, text, strlen(text)), bytes);
    ck_assert_str_eq(clean, shown);
    for (size_t size = 1; size <= bytes + 1; size++) { /* cut: a beginning of it, and no more */
        memset(exact, '#', sizeof exact);
        const size_t used = ddp_text_clean(exact, size, text, strlen(text));
        ck_assert_uint_lt(used, size);
        ck_assert_int_eq(exact[used], 0);
        ck_assert_int_eq(exact[used + 1], '#');
        ck_assert_mem_eq(exact, shown, used);
    }
    capture_start();
    ddp_log_set_name("prog");
    ddp_fail(DDP_ERR_IO, "f: %s", text);
    snprintf(whole, sizeof whole, "prog: error: f: %s\n", shown);
    ck_assert_str_eq(take_messages(), whole);
}
END_TEST

START_TEST(log_tells_lack_of_memory_once)
{
    char held[64];
    capture_start();
    ddp_log_set_name("prog");
    ck_assert_int_eq(ddp_fail(DDP_ERR_MEMORY, "out"), DDP_ERR_MEMORY);
    ck_assert_int_eq(ddp_fail(DDP_ERR_MEMORY, "out again"), DDP_ERR_MEMORY);
    ck_assert_int_eq(ddp_fail(DDP_ERR_IO, "other"), DDP_ERR_IO);
    ck_assert_str_eq(take_messages(), "prog: error: out\nprog: error: other\n");
    ddp_log_hold(held, sizeof held); /* held messages are logged later, if at all */
    ddp_fail(DDP_ERR_MEMORY, "kept");
    ddp_log_hold(NULL, 0);
    ck_assert_str_eq(held, "kept");
    ck_assert_int_eq(ddp_errno_status(ENOMEM, DDP_ERR_IO), DDP_ERR_MEMORY);
    ck_assert_int_eq(ddp_errno_status(EIO, DDP_ERR_IO), DDP_ERR_IO);
}
END_TEST

/* A message too long is not cut inside of a character or an escape. */
START_TEST(log_cuts_between_characters)
{
    char big[6000], escapes[6000];
    capture_start();
    ddp_log_set_name("prog");
    for (size_t shift = 0; shift < 4; shift++) {
        memset(big, 'x', sizeof big);
        for (size_t i = shift; i + 3 < sizeof big; i += 3)
            memcpy(big + i, "\xe2\x82\xac", 4);
        ddp_log(DDP_LOG_ERROR, "%s", big);
        const char *text = take_messages();
        ck_assert_uint_ge(strlen(text), 1000);
        ck_assert_ptr_null(strchr(text, '\\'));
        memset(escapes, 'x', sizeof escapes);
        memset(escapes + shift, 27, sizeof escapes - shift - 1);
        escapes[sizeof escapes - 1] = 0;
        ddp_log(DDP_LOG_ERROR, "%s", escapes);
        text = take_messages();
        ck_assert_uint_ge(strlen(text), 4000);
        ck_assert_str_eq(text + strlen(text) - 5, "\\x1b\n");
    }
}
END_TEST

/* A terminal of `columns`, on which `text` was shown; what was written there is in shown. */
static int terminal_main, terminal_fd;
static char shown[512];

static void open_terminal(unsigned short columns)
{
    struct winsize size = {.ws_row = 24, .ws_col = columns};
    struct termios modes;
    ck_assert_int_eq(openpty(&terminal_main, &terminal_fd, NULL, NULL, &size), 0);
    ck_assert_int_eq(tcgetattr(terminal_fd, &modes), 0);
    cfmakeraw(&modes);
    ck_assert_int_eq(tcsetattr(terminal_fd, TCSANOW, &modes), 0);
}

static const char *read_terminal(void)
{
    struct pollfd ready = {.fd = terminal_main, .events = POLLIN};
    size_t used = 0;
    for (ssize_t n; used < sizeof shown - 1 && poll(&ready, 1, 0) > 0; used += (size_t)n)
        if ((n = read(terminal_main, shown + used, sizeof shown - 1 - used)) <= 0)
            break;
    shown[used] = '\0';
    return shown;
}

static void *log_a_line(void *arg)
{
    (void)arg;
    ddp_log(DDP_LOG_ERROR, "a line of another thread");
    return NULL;
}

/* A bar is removed before a line, once, by whoever writes it. */
START_TEST(log_removes_the_bar)
{
    static _Atomic uint32_t shared;
    pthread_t thread;
    open_terminal(20);
    ddp_bar_shown(10);
    ck_assert(!ddp_bar_clear()); /* there is no terminal */
    ddp_bar_set_terminal(terminal_fd);
    ddp_bar_share(&shared);
    ddp_log(DDP_LOG_ERROR, "nothing to remove");
    ck_assert_str_eq(read_terminal(), "");
    ddp_bar_shown(20);
    ck_assert_int_eq(shared, 20);
    ddp_log(DDP_LOG_DEBUG, "not wanted");
    ck_assert_str_eq(read_terminal(), "");
    ck_assert_int_eq(pthread_create(&thread, NULL, log_a_line, NULL), 0);
    pthread_join(thread, NULL);
    ck_assert_str_eq(read_terminal(), "\r\033[J");
    ddp_fail(DDP_ERR_IO, "it is gone");
    ck_assert_str_eq(read_terminal(), "");
    ddp_bar_shown(41); /* the window became narrower: three rows */
    ck_assert(ddp_bar_clear());
    ck_assert_str_eq(read_terminal(), "\033[A\033[A\r\033[J");
    ddp_bar_unshare(&shared);
    ddp_bar_shown(10);
    ck_assert_int_eq(shared, 0);
    ddp_bar_set_terminal(-1);
}
END_TEST

static const struct {
    int columns;
    const char *text, *shown;
} folded[] = {
    {20, "short\n", "short\n"},
    {20, "exactly as many here\n", "exactly as many here\n"},
    {20, "exactly as many heres\n", "exactly as many\n  heres\n"},
    {20, "one line\nand a second that is long\n", "one line\nand a second that is\n  long\n"},
    {20, "a-word-that-fits-in-no-row at all\n", "a-word-that-fits-in-no-row\n  at all\n"},
    {20, "label    of two parts, of three\n", "label    of two\n  parts, of three\n"},
    {30, "label    of two parts, of three words\n",
     "label    of two parts, of\n         three words\n"},
    {20, "label    a-word-that-fits-in-no-row at\n", "label\n  a-word-that-fits-in-no-row\n  at\n"},
    {30, "label    a-word-too-long-for-any-row-here at\n",
     "label    a-word-too-long-for-any-row-here\n         at\n"},
    {30, "label of two parts, and of three words\n", "label of two parts, and of\n  three words\n"},
    {20, "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9 0123456789 x",
     "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9 0123456789\n  x"},
    {0, "a terminal that does not say how wide it is\n",
     "a terminal that does not say how wide it is\n"},
    {4, "a b c d e f\n", "a b c d e f\n"},
    {20, "", ""},
};

START_TEST(terminal_breaks_lines_between_words)
{
    open_terminal((unsigned short)folded[_i].columns);
    FILE *out = fdopen(terminal_fd, "w");
    ddp_terminal_print(out, "%s", folded[_i].text);
    fflush(out);
    ck_assert_str_eq(read_terminal(), folded[_i].shown);
    fclose(out);
}
END_TEST

START_TEST(terminal_collects_pieces_of_lines)
{
    struct ddp_terminal_text text;
    open_terminal(30);
    FILE *out = fdopen(terminal_fd, "w");
    FILE *pieces = ddp_terminal_begin(&text, out);
    fputs("label    of two parts", pieces);
    fputs(", of three words\n", pieces);
    ddp_terminal_end(&text);
    ck_assert_str_eq(read_terminal(), "label    of two parts, of\n         three words\n");
    fclose(out);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("log");
    TCase *log = test_case(suite, "log", 10);
    tcase_add_test(log, log_lines);
    tcase_add_loop_test(log, log_escapes, 0, sizeof texts / sizeof texts[0]);
    tcase_add_test(log, log_cuts_between_characters);
    tcase_add_test(log, log_tells_lack_of_memory_once);
    tcase_add_test(log, log_removes_the_bar);
    tcase_add_loop_test(log, terminal_breaks_lines_between_words, 0,
                        sizeof folded / sizeof folded[0]);
    tcase_add_test(log, terminal_collects_pieces_of_lines);
    return suite;
}
