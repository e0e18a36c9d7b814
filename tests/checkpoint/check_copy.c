/* SPDX-License-Identifier: MIT
 *
 * The copy in memory: two slots in turn, of which one is whole at any moment, whatever process ends
 * between two calls. Each process of a run is an opened copy here that is not closed. */
#include "config.h"

#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "checkpoint/copy.h"
#include "core/memory.h"
#include "job/board.h"

#include <unistd.h>

#define ARRAYS 3
#define COUNT  5000 /* elements: no whole number of pages */
#define BYTES  (COUNT * sizeof(float))

static int fd;

static ddp_copy *open_copy(uint64_t run)
{
    ddp_copy *copy = NULL;
    ck_assert_int_eq(ddp_copy_open(&copy, fd, run), DDP_OK);
    return copy;
}

static void make_file(void)
{
    ck_assert_int_eq(ddp_board_create_copy(&fd), DDP_OK);
}

static void close_file(void)
{
    close(fd);
}

/* Array a of a copy of that step. */
static float value(int64_t step, int a, int i)
{
    return (float)(step * 10 + a) + (float)i / COUNT;
}

static void fill(float *const *arrays, int64_t step, int end)
{
    for (int a = 0; a < end; a++)
        for (int i = 0; i < COUNT; i++)
            arrays[a][i] = value(step, a, i);
}

static void write_copy(ddp_copy *copy, int64_t step, const char *own)
{
    float *const *arrays;
    struct ddp_checkpoint_state state = {.cursor = {.seed = 3, .step = step}};
    if (own) {
        snprintf(state.own_file, sizeof state.own_file, "own-x");
        state.own.bytes = strlen(own);
    }
    char *text;
    size_t bytes;
    ck_assert_int_eq(ddp_checkpoint_state_format(&text, &bytes, &state), DDP_OK);
    char *words = malloc(bytes + (size_t)state.own.bytes);
    ck_assert_ptr_nonnull(words);
    memcpy(words, text, bytes);
    if (own)
        memcpy(words + bytes, own, strlen(own));
    ck_assert_int_eq(ddp_copy_begin(copy, words, bytes, (size_t)state.own.bytes, &arrays), DDP_OK);
    free(words);
    free(text);
    fill(arrays, step, ARRAYS);
    ddp_copy_end(copy, step);
}

/* A new process finds the copy of that step, and nothing of another. */
static ddp_copy *find(int64_t step, const char *own)
{
    const float *flat;
    char reason[DDP_CHECKPOINT_REASON] = "";
    struct ddp_checkpoint_state state;
    void *bytes = NULL;
    ddp_copy *copy = open_copy(1);
    ck_assert_int_eq(ddp_copy_step(copy), step);
    if (step < 0)
        return copy;
    ck_assert_msg(ddp_copy_read(copy, &state, &bytes, reason), "%s", reason);
    ck_assert_int_eq(state.cursor.step, step);
    ck_assert_int_eq(bytes != NULL, own != NULL);
    if (own)
        ck_assert_mem_eq(bytes, own, strlen(own));
    free(bytes);
    for (int a = 0; a < ARRAYS; a++) {
        ck_assert_int_eq(ddp_copy_array(copy, a, BYTES, &flat), DDP_OK);
        for (int i = 0; i < COUNT; i++)
            ck_assert(flat[i] == value(step, a, i));
    }
    ck_assert_int_eq(ddp_copy_array(copy, ARRAYS, BYTES, &flat), DDP_ERR_FORMAT);
    ck_assert_int_eq(ddp_copy_array(copy, 0, BYTES - 4, &flat), DDP_ERR_FORMAT);
    return copy;
}

static ddp_copy *find_and_reserve(int64_t step, const char *own)
{
    ddp_copy *copy = find(step, own);
    ck_assert_int_eq(ddp_copy_reserve(copy, ARRAYS, BYTES), DDP_OK);
    return copy;
}

START_TEST(one_is_whole_at_any_moment)
{
    float *const *arrays;
    ddp_copy *copy = find_and_reserve(-1, NULL);
    ck_assert_int_eq(ddp_copy_begin(copy, "", 0, 0, &arrays), DDP_OK);
    fill(arrays, 1, 2);
    ddp_copy_close(find(-1, NULL), false); /* killed in the first one */
    write_copy(copy, 1, NULL);
    ddp_copy_close(find(-1, NULL), false); /* before it counts */
    ddp_copy_publish(copy);
    ddp_copy_close(find(1, NULL), false);
    for (int64_t step = 2; step < 6; step++) {
        write_copy(copy, step, NULL);
        write_copy(copy, step, NULL); /* again: that before is not touched */
        ddp_copy_close(find(step - 1, NULL), false);
        ddp_copy_publish(copy);
        ddp_copy_publish(copy); /* nothing more */
        ck_assert_int_eq(ddp_copy_begin(copy, "", 0, 0, &arrays), DDP_OK);
        fill(arrays, 9, 2);
        ddp_copy_close(copy, false);
        copy = find_and_reserve(step, NULL); /* killed in the next one */
    }
    ddp_copy_close(copy, true);
    ck_assert_int_eq(lseek(fd, 0, SEEK_END), DDP_PAGE);
    copy = find(-1, NULL); /* in one process: the next training */
    ck_assert(!ddp_copy_has_begun(copy));
    ddp_copy_close(copy, false);
}
END_TEST

/* A slot that has become too small lies elsewhere then. */
START_TEST(own_state_grows)
{
    char own[9000];
    ddp_copy *copy = find_and_reserve(-1, NULL);
    for (int64_t step = 1; step < 9; step++) {
        memset(own, 'a' + (int)step, sizeof own);
        own[step * 1000] = '\0';
        write_copy(copy, step, own);
        ddp_copy_publish(copy);
        ddp_copy_close(copy, false);
        copy = find_and_reserve(step, own);
    }
    write_copy(copy, 9, NULL);
    ddp_copy_publish(copy);
    ddp_copy_close(find(9, NULL), false);
    ddp_copy_close(copy, false);
}
END_TEST

START_TEST(other_runs_and_damage_count_as_nothing)
{
    char reason[DDP_CHECKPOINT_REASON] = "";
    struct ddp_checkpoint_state state;
    void *own;
    ddp_copy *copy = find_and_reserve(-1, NULL);
    ddp_copy_start(copy, 0);
    write_copy(copy, 4, NULL);
    ddp_copy_publish(copy);
    for (int64_t at = 4096; at < 4096 + 200; at += 8) /* the text of both slots */
        ck_assert_int_eq(pwrite(fd, "x", 1, at), 1);
    const off_t other = (off_t)(ddp_copy_bytes(ARRAYS, BYTES) / 2);
    ck_assert_int_eq(pwrite(fd, "x", 1, 4096 + other + 9), 1);
    ck_assert(!ddp_copy_read(copy, &state, &own, reason));
    ck_assert_str_ne(reason, "");
    ddp_copy_close(copy, false);
    copy = open_copy(2);
    ck_assert(!ddp_copy_has_begun(copy));
    ck_assert_int_eq(ddp_copy_step(copy), -1);
    ddp_copy_close(copy, false);
}
END_TEST

/* Each word of what the header says of the slots. */
START_TEST(damaged_headers_are_seen)
{
    char reason[DDP_CHECKPOINT_REASON] = "";
    struct ddp_checkpoint_state state;
    const uint64_t wrong = UINT64_MAX / 3;
    void *own;
    ddp_copy *copy = find_and_reserve(-1, NULL);
    write_copy(copy, 4, "own");
    ddp_copy_publish(copy);
    ddp_copy_close(copy, false);
    for (off_t at = 80; at < 80 + 7 * 8; at += 8) {
        uint64_t words[2];
        for (int i = 0; i < 2; i++) {
            ck_assert_int_eq(pread(fd, &words[i], 8, at + i * 56), 8);
            ck_assert_int_eq(pwrite(fd, &wrong, 8, at + i * 56), 8);
        }
        copy = open_copy(1);
        ck_assert_msg(!ddp_copy_read(copy, &state, &own, reason), "word at %d", (int)at);
        ck_assert_ptr_null(own);
        ddp_copy_close(copy, false);
        for (int i = 0; i < 2; i++)
            ck_assert_int_eq(pwrite(fd, &words[i], 8, at + i * 56), 8);
    }
    ddp_copy_close(find(4, "own"), false);
}
END_TEST

START_TEST(cost_is_added_up)
{
    ddp_copy *copy = find_and_reserve(-1, NULL);
    ck_assert(!ddp_copy_has_begun(copy));
    ddp_copy_start(copy, 0);
    ck_assert(ddp_copy_has_begun(copy));
    ddp_copy_progress(copy, 10);
    ddp_copy_start(copy, 7); /* lost; then again on the way */
    ddp_copy_progress(copy, 8);
    ck_assert_int_eq(ddp_copy_cost(copy).ns, 0);
    ddp_copy_start(copy, 7);
    ddp_copy_progress(copy, 9);
    ck_assert_int_eq(ddp_copy_cost(copy).ns, 0);
    ddp_copy_progress(copy, 10);
    const struct ddp_copy_cost cost = ddp_copy_cost(copy);
    ck_assert_int_eq(cost.restarts, 2);
    ck_assert_int_eq(cost.steps, 4);
    ck_assert_int_gt(cost.ns, 0);
    ddp_copy_progress(copy, 11);
    ck_assert_int_eq(ddp_copy_cost(copy).ns, cost.ns);
    ddp_copy_close(copy, false);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("copy");
    TCase *tests = tcase_create("copy");
    tcase_add_checked_fixture(tests, make_file, close_file);
    tcase_add_test(tests, one_is_whole_at_any_moment);
    tcase_add_test(tests, own_state_grows);
    tcase_add_test(tests, other_runs_and_damage_count_as_nothing);
    tcase_add_test(tests, damaged_headers_are_seen);
    tcase_add_test(tests, cost_is_added_up);
    suite_add_tcase(suite, tests);
    return suite;
}
