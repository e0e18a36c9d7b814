/* SPDX-License-Identifier: MIT
 *
 * Tests of what a run writes about itself: records, JSON lines. TensorBoard's own reader is asked
 * in tensorboard_live.sh. */
#include "config.h"

#include "core/append_file.h"
#include "core/crc32c.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/trace.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <jansson.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

START_TEST(crc32c_known_answers)
{
    /* RFC 3720, B.4 */
    unsigned char bytes[32] = {0};
    ck_assert_uint_eq(ddp_crc32c(bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    ck_assert_uint_eq(ddp_crc32c(bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (unsigned char)i;
    ck_assert_uint_eq(ddp_crc32c(bytes, 32), 0x46dd794e);
    ck_assert_uint_eq(ddp_crc32c("123456789", 9), 0xe3069283);
    ck_assert_uint_eq(ddp_crc32c("", 0), 0);
}
END_TEST

static const char *text_of(const char *name)
{
    size_t bytes;
    char *text = scratch_read(name, &bytes);
    text[bytes] = '\0';
    return text;
}

START_TEST(append_file_ends_a_torn_line)
{
    ddp_append_file *file;
    const char *path = scratch_path("torn");
    scratch_write("torn", "one\ntw", 6);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(ddp_append_file_open(&file, path, true), DDP_OK);
        ddp_append_file_write(file, "three\n", 6);
        ddp_append_file_close(file);
    }
    ck_assert_str_eq(text_of("torn"), "one\ntw\nthree\nthree\n");
}
END_TEST

/* A file that may not grow stands for a full disk: half a record is taken back, a smaller one that
 * fits is still written. */
START_TEST(append_file_keeps_whole_records)
{
    ddp_append_file *file;
    const struct rlimit limit = {16, 16};
    const char *path = scratch_path("full");
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(ddp_append_file_open(&file, path, true), DDP_OK);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0); /* of this test's process alone */
    ddp_append_file_write(file, "0123456789\n", 11);
    ddp_append_file_write(file, "0123456789\n", 11);
    ddp_append_file_write(file, "012\n", 4);
    ddp_append_file_close(file);
    ck_assert_str_eq(text_of("full"), "0123456789\n012\n");
}
END_TEST

START_TEST(append_file_names_the_path)
{
    ddp_append_file *file;
    const char *path = scratch_path("none/log");
    ck_assert_int_eq(ddp_append_file_open(&file, path, true), DDP_ERR_IO);
}
END_TEST

/* Every bit counts, at every place. */
START_TEST(hash_sees_every_bit)
{
    unsigned char bytes[100];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7);
    for (size_t count = 0; count <= sizeof bytes; count++) {
        const uint64_t hash = ddp_hash(bytes, count);
        for (size_t bit = 0; bit < count * 8; bit++) {
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
            ck_assert_uint_ne(ddp_hash(bytes, count), hash);
            bytes[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        ck_assert_uint_eq(ddp_hash(bytes, count), hash);
        ck_assert(count == 0 || ddp_hash(bytes, count - 1) != hash);
    }
}
END_TEST

/* Two epochs of the linear model: 8 samples, 2 steps an epoch. */
static void train(const char *log, const char *every)
{
    ddp_train *train;
    ck_assert_int_eq(ddp_train_create(&train), DDP_OK);
    ck_assert_int_eq(ddp_train_set(train, "model", "article"), DDP_OK);
    ck_assert_int_eq(ddp_train_set(train, "data-size", "8"), DDP_OK);
    ck_assert_int_eq(ddp_train_set(train, "epochs", "2"), DDP_OK);
    ck_assert_int_eq(ddp_train_set(train, "batch-size", "4"), DDP_OK);
    ck_assert_int_eq(ddp_train_set(train, "seed", "18446744073709551615"), DDP_OK);
    ck_assert_int_eq(ddp_train_set(train, "log", log), DDP_OK);
    ck_assert_int_eq(ddp_train_set(train, "log-every", every), DDP_OK);
    ck_assert_int_eq(ddp_train_run(train, NULL), DDP_OK);
    ddp_train_destroy(train);
}

/* The events of a trace, which is whole JSON. */
static size_t events_of(const char *name)
{
    json_error_t error;
    json_t *events = json_loads(text_of(name), 0, &error);
    ck_assert_msg(events && json_is_array(events), "no JSON: %s: %s", error.text, text_of(name));
    const size_t count = json_array_size(events);
    json_decref(events);
    return count;
}

/* Adds `spans` spans to a trace, as one more process of the job. */
static void add_spans(const char *name, int rank, int spans)
{
    ck_assert_int_eq(ddp_trace_open(scratch_path(name), rank, rank == 0), DDP_OK);
    ck_assert_uint_gt(events_of(name), 0);
    ddp_trace_set_recording(true);
    for (int i = 0; i < spans; i++)
        ddp_trace_end("span", ddp_trace_begin(), "number", i);
    ddp_trace_flush(true);
    ck_assert_uint_gt(events_of(name), 0);
    ddp_trace_close(rank == 0);
}

#define EVENTS(spans) (size_t)((spans) + 4) /* two of the process, one of a thread, "write trace" */

/* The file is JSON after each write, wherever another process was killed while it wrote. */
START_TEST(trace_is_json_after_a_torn_write)
{
    size_t bytes;
    add_spans("trace", 0, 3);
    ck_assert_uint_eq(events_of("trace"), EVENTS(3));
    add_spans("trace", 1, 5);
    ck_assert_uint_eq(events_of("trace"), EVENTS(3) + EVENTS(5));
    const char *text = scratch_read("trace", &bytes);
    char whole[4096];
    ck_assert_uint_lt(bytes, sizeof whole);
    memcpy(whole, text, bytes);
    for (size_t cut = 200; cut < bytes; cut += 1 + cut % 17) {
        scratch_write("trace", whole, cut);
        add_spans("trace", 1, 1);
        ck_assert_uint_gt(events_of("trace"), EVENTS(1));
    }
    /* The first bytes of an event over the array's end. */
    memcpy(whole + bytes - 3, ",", 1);
    scratch_write("trace", whole, bytes);
    add_spans("trace", 1, 0);
    ck_assert_uint_gt(events_of("trace"), EVENTS(3) + EVENTS(5));
}
END_TEST

START_TEST(trace_is_json_on_a_full_disk)
{
    struct rlimit limit = {(rlim_t)(600 + 7 * _i), RLIM_INFINITY};
    signal(SIGXFSZ, SIG_IGN);
    ddp_log_set_level(DDP_LOG_ERROR); /* the limit cuts what else is written too */
    add_spans("trace", 0, 2);
    const char *path = scratch_path("trace");
    setrlimit(RLIMIT_FSIZE, &limit); /* of this test's process; assertions write files too */
    const enum ddp_status status = ddp_trace_open(path, 1, false);
    ddp_trace_set_recording(true);
    for (int i = 0; i < 10; i++)
        ddp_trace_end("span", ddp_trace_begin(), "number", i);
    ddp_trace_close(false);
    limit.rlim_cur = RLIM_INFINITY;
    setrlimit(RLIMIT_FSIZE, &limit);
    ck_assert_int_eq(status, DDP_OK);
    const size_t events = events_of("trace");
    ck_assert_uint_ge(events, EVENTS(2));
    ck_assert_uint_lt(events, EVENTS(2) + EVENTS(10));
}
END_TEST

static const char *event_of(const json_t *line)
{
    return json_string_value(json_object_get(line, "event"));
}

static void check_step(const json_t *line, int step)
{
    ck_assert_str_eq(event_of(line), "step");
    ck_assert_int_eq(json_integer_value(json_object_get(line, "step")), step);
    ck_assert_int_eq(json_integer_value(json_object_get(line, "epoch")), (step - 1) / 2 + 1);
    ck_assert(json_real_value(json_object_get(line, "loss")) > 0);
    ck_assert(json_real_value(json_object_get(line, "samples_per_second")) > 0);
    ck_assert(json_real_value(json_object_get(line, "learning_rate")) == 0.01);
}

START_TEST(json_lines_of_a_run)
{
    char *rest;
    size_t bytes;
    json_t *lines[32];
    int count = 0;
    const char *path = scratch_path("log.jsonl");
    train(path, "1");
    train(path, "3"); /* goes on in the same file */
    rest = scratch_read("log.jsonl", &bytes);
    rest[bytes] = '\0';
    for (char *line; (line = strsep(&rest, "\n")) && *line && count < 32;) {
        lines[count] = json_loads(line, 0, NULL);
        ck_assert_msg(lines[count] != NULL, "no JSON: %s", line);
        count++;
    }
    ck_assert_int_eq(count, 10);
    ck_assert_str_eq(event_of(lines[0]), "run");
    const json_t *config = json_object_get(lines[0], "config");
    ck_assert_str_eq(json_string_value(json_object_get(config, "model")), "article");
    ck_assert_int_eq(json_integer_value(json_object_get(config, "total_steps")), 4);
    ck_assert_str_eq(json_string_value(json_object_get(config, "seed")), "18446744073709551615");
    ck_assert_int_eq(json_integer_value(json_object_get(lines[0], "world_size")), 1);
    ck_assert_int_eq(json_integer_value(json_object_get(lines[0], "format")), 1);
    ck_assert(json_real_value(json_object_get(lines[0], "exchange_bytes")) == 0);
    for (int step = 1; step <= 4; step++)
        check_step(lines[step], step);
    ck_assert_str_eq(event_of(lines[5]), "end");
    ck_assert_str_eq(json_string_value(json_object_get(lines[5], "status")), "success");
    ck_assert(json_real_value(json_object_get(lines[5], "memory_peak_bytes")) > 4096);
    ck_assert_str_eq(event_of(lines[6]), "run");
    check_step(lines[7], 3);
    check_step(lines[8], 4); /* the last one always */
    ck_assert_str_eq(event_of(lines[9]), "end");
    while (count > 0)
        json_decref(lines[--count]);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("metrics");
    TCase *tcase = tcase_create("metrics");
    tcase_add_unchecked_fixture(tcase, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tcase, scratch_clear, NULL);
    tcase_add_test(tcase, crc32c_known_answers);
    tcase_add_test(tcase, append_file_ends_a_torn_line);
    tcase_add_test(tcase, append_file_keeps_whole_records);
    tcase_add_test(tcase, append_file_names_the_path);
    tcase_add_test(tcase, trace_is_json_after_a_torn_write);
    tcase_add_loop_test(tcase, trace_is_json_on_a_full_disk, 0, 40);
    tcase_add_test(tcase, hash_sees_every_bit);
    tcase_add_test(tcase, json_lines_of_a_run);
    suite_add_tcase(suite, tcase);
    return suite;
}
