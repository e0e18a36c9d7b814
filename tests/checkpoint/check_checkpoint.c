/* SPDX-License-Identifier: MIT
 *
 * Checkpoints below the trainer: state.json and its checksum, the directory, what is read back. */
#include "config.h"

#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <jansson.h>

static const struct ddp_checkpoint_cursor cursor = {
    .seed = 7, .step = 123456789012, .epoch = 3, .step_in_epoch = 5, .sample = 320};

static struct ddp_checkpoint_state make_state(void)
{
    struct ddp_checkpoint_state state = {
        .cursor = cursor,
        .best = {.samples = "640 of 1f", .step = 30, .loss = 0x1.23456789abcdp-3, .since = 2},
        .has_rate = true,
        .rate = 0x1.23456789abcdep-7,
        .loss_scale = 0x1.234568p90,
        .good_steps = 1999,
        .skipped_steps = 1,
        .own_file = "own-a.B_9-",
        .own = {.bytes = 7, .crc32 = 0x89abcdef},
        .parts = {{.bytes = 104, .crc32 = 0xfedcba98}, {.bytes = 1ull << 40, .crc32 = 0}}};
    ddp_checkpoint_fact_add(&state.facts, "model", "%s", "gpt2 \"quoted\" \\ \xc3\xa9");
    ddp_checkpoint_fact_add(&state.facts, "batch size", "%d", 64);
    return state;
}

START_TEST(state_reads_back)
{
    struct ddp_checkpoint_state state = make_state(), back;
    char *text = NULL, reason[DDP_CHECKPOINT_REASON] = "";
    size_t bytes = 0;
    ck_assert_int_eq(ddp_checkpoint_state_format(&text, &bytes, &state), DDP_OK);
    ck_assert_msg(ddp_checkpoint_state_parse(&back, text, bytes, reason), "%s", reason);
    ck_assert_mem_eq(&back.cursor, &cursor, sizeof cursor);
    ck_assert_int_eq(back.facts.count, 2);
    ck_assert_str_eq(back.facts.facts[0].value, state.facts.facts[0].value);
    ck_assert_str_eq(back.facts.facts[1].name, "batch size");
    ck_assert_str_eq(back.best.samples, state.best.samples);
    ck_assert_int_eq(back.best.step, 30);
    ck_assert_double_eq(back.best.loss, state.best.loss);
    ck_assert_int_eq(back.best.since, 2);
    ck_assert(back.has_rate && back.rate == state.rate);
    ck_assert(back.loss_scale == state.loss_scale && back.good_steps == 1999);
    ck_assert_int_eq(back.skipped_steps, state.skipped_steps);
    ck_assert_str_eq(back.own_file, state.own_file);
    ck_assert_uint_eq(back.own.bytes, 7);
    ck_assert_uint_eq(back.own.crc32, 0x89abcdef);
    for (int i = 0; i < DDP_CHECKPOINT_PARTS; i++) {
        ck_assert_uint_eq(back.parts[i].bytes, state.parts[i].bytes);
        ck_assert_uint_eq(back.parts[i].crc32, state.parts[i].crc32);
    }
    free(text);
}
END_TEST

/* The file's numbers end at INT64_MAX, seeds do not. */
START_TEST(state_keeps_every_seed)
{
    const uint64_t seeds[] = {0, INT64_MAX, (uint64_t)INT64_MAX + 1, UINT64_MAX};
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        struct ddp_checkpoint_state state = make_state(), back;
        char *text = NULL, reason[DDP_CHECKPOINT_REASON] = "";
        size_t bytes = 0;
        state.cursor.seed = seeds[i];
        ck_assert_int_eq(ddp_checkpoint_state_format(&text, &bytes, &state), DDP_OK);
        ck_assert_msg(ddp_checkpoint_state_parse(&back, text, bytes, reason), "%s", reason);
        ck_assert_uint_eq(back.cursor.seed, seeds[i]);
        free(text);
        /* A step beyond INT64_MAX is none. */
        state.cursor.step = -1;
        ck_assert_int_eq(ddp_checkpoint_state_format(&text, &bytes, &state), DDP_OK);
        ck_assert(!ddp_checkpoint_state_parse(&back, text, bytes, reason));
        free(text);
    }
}
END_TEST

/* Every bit of the file, every length of it. */
START_TEST(state_notices_every_change)
{
    struct ddp_checkpoint_state state = make_state(), back;
    char *text = NULL, reason[DDP_CHECKPOINT_REASON];
    size_t bytes = 0;
    ck_assert_int_eq(ddp_checkpoint_state_format(&text, &bytes, &state), DDP_OK);
    for (size_t i = 0; i < bytes * 8; i++) {
        text[i / 8] ^= (char)(1 << i % 8);
        reason[0] = '\0';
        ck_assert_msg(!ddp_checkpoint_state_parse(&back, text, bytes, reason), "bit %zu", i);
        ck_assert_uint_gt(strlen(reason), 0);
        text[i / 8] ^= (char)(1 << i % 8);
    }
    for (size_t i = 0; i < bytes; i++)
        ck_assert_msg(!ddp_checkpoint_state_parse(&back, text, i, reason), "%zu bytes", i);
    free(text);
}
END_TEST

/* json_object_set_new() fails when this comes to 0. */
static int sets_to_failure = -1;
int __real_json_object_set_new(json_t *object, const char *key, json_t *value);
int __wrap_json_object_set_new(json_t *object, const char *key, json_t *value);
int __wrap_json_object_set_new(json_t *object, const char *key, json_t *value)
{
    if (sets_to_failure < 0 || sets_to_failure-- > 0)
        return __real_json_object_set_new(object, key, value);
    json_decref(value);
    return -1;
}

/* Each member in turn cannot be added: there is no state that lacks it. */
START_TEST(state_is_whole_or_out_of_memory)
{
    struct ddp_checkpoint_state state = make_state();
    enum ddp_status status = DDP_ERR_MEMORY;
    int failures = 0;
    while (status != DDP_OK) {
        char *text = NULL;
        size_t bytes;
        sets_to_failure = failures++;
        status = ddp_checkpoint_state_format(&text, &bytes, &state);
        const bool failed = sets_to_failure == -1;
        sets_to_failure = -1;
        ck_assert_int_eq(status, failed ? DDP_ERR_MEMORY : DDP_OK);
        free(text);
    }
    ck_assert_int_gt(failures, 5 + state.facts.count);
}
END_TEST

START_TEST(match_names_all_differences)
{
    struct ddp_checkpoint_state state = make_state();
    struct ddp_checkpoint_facts now = {0};
    ddp_checkpoint_fact_add(&now, "model", "gpt2 \"quoted\" \\ \xc3\xa9");
    ddp_checkpoint_fact_add(&now, "batch size", "64");
    ck_assert_int_eq(ddp_checkpoint_state_match(&state, "p", 7, &now, false), DDP_OK);
    /* An earlier version did not write it. */
    ddp_checkpoint_fact_add(&now, DDP_CHECKPOINT_DATA, "1");
    ck_assert_int_eq(ddp_checkpoint_state_match(&state, "p", 7, &now, false), DDP_OK);
    now.count--;
    ddp_checkpoint_fact_add(&now, "new", "x");
    snprintf(now.facts[1].value, sizeof now.facts[1].value, "32");
    capture_start();
    enum ddp_status status = ddp_checkpoint_state_match(&state, "p", 8, &now, false);
    const char *message = capture_stop();
    ck_assert_int_eq(status, DDP_ERR_INVALID);
    one_message(message, "seed 7 (now 8), batch size 64 (now 32)", "new unknown (now x)");
    now.count = 1;
    capture_start();
    status = ddp_checkpoint_state_match(&state, "p", 7, &now, false);
    message = capture_stop();
    ck_assert_int_eq(status, DDP_ERR_INVALID);
    one_message(message, "batch size 64 (now unknown)", "p: ");
}
END_TEST

START_TEST(match_names_the_parts_that_differ)
{
    struct ddp_checkpoint_state state = {.cursor.seed = 7};
    struct ddp_checkpoint_facts now = {0};
    ddp_checkpoint_fact_add(&state.facts, "model", "gpt2 layers=2 heads=2 context=64");
    ddp_checkpoint_fact_add(&state.facts, DDP_CHECKPOINT_SHARDS, "8");
    ddp_checkpoint_fact_add(&state.facts, DDP_CHECKPOINT_BATCH, "16");
    ddp_checkpoint_fact_add(&now, "model", "gpt2 layers=4 heads=2 context=64");
    ddp_checkpoint_fact_add(&now, DDP_CHECKPOINT_SHARDS, "4");
    ddp_checkpoint_fact_add(&now, DDP_CHECKPOINT_BATCH, "16");
    capture_start();
    enum ddp_status status = ddp_checkpoint_state_match(&state, "p", 7, &now, false);
    const char *message = capture_stop();
    ck_assert_int_eq(status, DDP_ERR_INVALID);
    one_message(message, ": model gpt2 layers=2 (now gpt2 layers=4), shards 8 (now 4). ",
                "add --batch-size 16 --global-batch 128. ");
    snprintf(now.facts[0].value, sizeof now.facts[0].value, "mlp hidden=5");
    snprintf(now.facts[2].value, sizeof now.facts[2].value, "32");
    capture_start();
    status = ddp_checkpoint_state_match(&state, "p", 7, &now, false);
    message = capture_stop();
    ck_assert_int_eq(status, DDP_ERR_INVALID);
    one_message(message, ": model gpt2 (now mlp), shards", "batch size 16 (now 32). To start");
}
END_TEST

/* A linear model of 3 inputs and 2 outputs. */
static ddp_graph *make_graph(void)
{
    ddp_graph *graph;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){1, 3});
    x = ddp_graph_linear_layer(graph, "fc", x, 2, true, DDP_ACTIVATION_NONE);
    ck_assert_int_eq(ddp_graph_finish(graph, x, ddp_graph_sum(graph, x)), DDP_OK);
    return graph;
}

/* best: the step of the best evaluation so far, whose checkpoint is to be kept; 0: none is */
static void write_next(struct ddp_checkpoint_dir *dir, const ddp_graph *graph, int64_t step,
                       float value, int64_t keep, int64_t best)
{
    struct ddp_checkpoint_writer_config config = {.dir = dir,
                                                  .graph = graph,
                                                  .keep = keep,
                                                  .keep_best = best > 0,
                                                  .array_count = 2,
                                                  .array_names = (const char *[]){NULL, "sum"}};
    struct ddp_checkpoint_state state = make_state();
    state.best.step = best;
    ddp_checkpoint_writer *writer;
    float *const *arrays;
    state.cursor.step = step;
    ck_assert_int_eq(ddp_checkpoint_writer_create(&writer, &config), DDP_OK);
    ck_assert_int_eq(ddp_checkpoint_begin(writer, &arrays), DDP_OK);
    for (int64_t i = 0; i < ddp_graph_flat_count(graph); i++) {
        arrays[0][i] = value + (float)i;
        arrays[1][i] = -arrays[0][i];
    }
    ck_assert_int_eq(ddp_checkpoint_start(writer, &state), DDP_OK);
    ck_assert_int_eq(ddp_checkpoint_wait(writer), DDP_OK);
    ddp_checkpoint_writer_destroy(writer);
}

static void write_one(struct ddp_checkpoint_dir *dir, const ddp_graph *graph, int64_t step,
                      float value, int64_t keep)
{
    write_next(dir, graph, step, value, keep, 0);
}

static void remove_all(struct ddp_checkpoint_dir *dir)
{
    int64_t *steps;
    size_t count;
    ck_assert_int_eq(ddp_checkpoint_dir_list(dir, &steps, &count), DDP_OK);
    for (size_t i = 0; i < count; i++)
        ddp_checkpoint_dir_remove(dir, steps[i]);
    free(steps);
    ddp_checkpoint_dir_close(dir);
}

START_TEST(newest_is_read_and_replaced)
{
    struct ddp_checkpoint_dir dir;
    struct ddp_checkpoint found;
    ddp_graph *graph = make_graph();
    const size_t count = (size_t)ddp_graph_flat_count(graph);
    float *flat = calloc(count, sizeof *flat);
    ck_assert_int_eq(ddp_checkpoint_dir_open(&dir, scratch_path("c"), 0), DDP_OK);
    ck_assert_int_eq(ddp_checkpoint_read_latest(&found, &dir), DDP_OK);
    ck_assert_ptr_null(found.path);
    write_one(&dir, graph, 9, 1, 0);
    write_one(&dir, graph, 10, 2, 0);
    write_one(&dir, graph, 10, 3, 0); /* in the place of the one before */
    write_one(&dir, graph, 8, 4, 0);
    ck_assert_int_eq(ddp_checkpoint_read_latest(&found, &dir), DDP_OK);
    ck_assert_int_eq(found.state.cursor.step, 10);
    const struct ddp_parameter *bias = ddp_graph_parameter_at(graph, 1);
    ck_assert_int_eq(ddp_checkpoint_take(&found, graph, "sum", 0, (int64_t)count, flat), DDP_OK);
    ck_assert_float_eq(flat[bias->offset + 1], -(3 + (float)bias->offset + 1));
    ck_assert_int_eq(ddp_checkpoint_take(&found, graph, NULL, bias->offset + 1, 1, flat), DDP_OK);
    ck_assert_float_eq(flat[0], 3 + (float)bias->offset + 1);
    capture_start();
    enum ddp_status status = ddp_checkpoint_take(&found, graph, "other", 0, (int64_t)count, flat);
    one_message(capture_stop(), "state.fc.weight.other", "optimizer.safetensors");
    ck_assert_int_eq(status, DDP_ERR_FORMAT);
    ddp_checkpoint_free(&found);
    remove_all(&dir);
    ck_assert_int_eq(rmdir(scratch_path("c")), 0); /* nothing was left in it */
    free(flat);
    ddp_graph_destroy(graph);
}
END_TEST

/* Only older ones go, and damaged ones neither go nor count. */
START_TEST(old_ones_go)
{
    struct ddp_checkpoint_dir dir;
    int64_t *steps;
    size_t count;
    ddp_graph *graph = make_graph();
    ck_assert_int_eq(ddp_checkpoint_dir_open(&dir, scratch_path("c"), 0), DDP_OK);
    for (int64_t step = 1; step <= 4; step++)
        write_one(&dir, graph, step, 1, 0);
    write_one(&dir, graph, 9, 1, 0);
    ck_assert_int_eq(truncate(scratch_path("c/step-00000004/model.safetensors"), 10), 0);
    write_one(&dir, graph, 5, 1, 2);
    ck_assert_int_eq(ddp_checkpoint_dir_list(&dir, &steps, &count), DDP_OK);
    ck_assert_uint_eq(count, 4);
    ck_assert_int_eq(steps[0], 9);
    ck_assert_int_eq(steps[1], 5);
    ck_assert_int_eq(steps[2], 4);
    ck_assert_int_eq(steps[3], 3);
    free(steps);
    remove_all(&dir);
    rmdir(scratch_path("c"));
    ddp_graph_destroy(graph);
}
END_TEST

static bool is_there(const char *name)
{
    return access(scratch_path(name), F_OK) == 0;
}

/* The link follows the best one, which stays beside the newest, also in a run that keeps none,
 * and where the link cannot be made. */
START_TEST(best_one_stays)
{
    struct ddp_checkpoint_dir dir;
    struct ddp_checkpoint found;
    ddp_graph *graph = make_graph();
    ck_assert_int_eq(ddp_checkpoint_dir_open(&dir, scratch_path("c"), 0), DDP_OK);
    ck_assert_int_eq(ddp_checkpoint_dir_best(&dir), -1);
    write_next(&dir, graph, 1, 1, 1, 1);
    write_next(&dir, graph, 2, 1, 1, 2);
    ck_assert_int_eq(ddp_checkpoint_dir_best(&dir), 2);
    ck_assert(!is_there("c/step-00000001"));
    write_next(&dir, graph, 3, 1, 1, 2);
    write_next(&dir, graph, 4, 1, 1, 2);
    write_one(&dir, graph, 5, 1, 1);
    ck_assert(is_there("c/step-00000002") && is_there("c/step-00000005"));
    ck_assert(!is_there("c/step-00000003") && !is_there("c/step-00000004"));
    ck_assert_int_eq(ddp_checkpoint_read(&found, scratch_path("c/best")), DDP_OK);
    ck_assert_int_eq(found.state.cursor.step, 2);
    ddp_checkpoint_free(&found);
    ck_assert_int_eq(unlink(scratch_path("c/best")), 0);
    ck_assert_int_eq(mkdir(scratch_path("c/best"), 0777), 0);
    capture_start();
    write_next(&dir, graph, 6, 1, 1, 6);
    one_message(capture_stop(), "c/best: cannot make this link to step-00000006", "directory");
    write_next(&dir, graph, 7, 1, 1, 6);
    ck_assert(is_there("c/step-00000006") && is_there("c/step-00000007"));
    ck_assert_int_eq(rmdir(scratch_path("c/best")), 0);
    ck_assert_int_eq(symlink("elsewhere", scratch_path("c/best")), 0);
    ck_assert_int_eq(ddp_checkpoint_dir_best(&dir), -1);
    ck_assert_int_eq(unlink(scratch_path("c/best")), 0);
    remove_all(&dir);
    ck_assert_int_eq(rmdir(scratch_path("c")), 0);
    ddp_graph_destroy(graph);
}
END_TEST

START_TEST(lock_and_leftovers)
{
    struct ddp_checkpoint_dir dir, second;
    char name[DDP_CHECKPOINT_NAME];
    int fd;
    ck_assert_str_eq(ddp_checkpoint_name(name, 7), "step-00000007");
    ck_assert_str_eq(ddp_checkpoint_name(name, 1234567890), "step-1234567890");
    ck_assert_int_eq(ddp_checkpoint_dir_open(&dir, scratch_path("c"), 0), DDP_OK);
    ck_assert(dir.locked);
    capture_start();
    enum ddp_status status = ddp_checkpoint_dir_open(&second, scratch_path("c"), 0);
    one_message(capture_stop(), "another trainer", scratch_path("c"));
    ck_assert_int_eq(status, DDP_ERR_IO);
    ck_assert_int_eq(ddp_checkpoint_dir_begin(&dir, 3, &fd), DDP_OK);
    close(fd); /* killed here, or at the link to the best one */
    ck_assert_int_eq(symlink("step-00000002", scratch_path("c/.best.tmp-7")), 0);
    ddp_checkpoint_dir_close(&dir);
    ck_assert_int_ne(rmdir(scratch_path("c")), 0);
    ck_assert_int_eq(ddp_checkpoint_dir_open(&dir, scratch_path("c"), 0), DDP_OK);
    ddp_checkpoint_dir_close(&dir);
    ck_assert_int_eq(rmdir(scratch_path("c")), 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("checkpoint");
    TCase *tests = tcase_create("checkpoint");
    tcase_add_unchecked_fixture(tests, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tests, scratch_clear, NULL);
    tcase_add_test(tests, state_reads_back);
    tcase_add_test(tests, state_keeps_every_seed);
    tcase_add_test(tests, state_notices_every_change);
    tcase_add_test(tests, state_is_whole_or_out_of_memory);
    tcase_add_test(tests, match_names_all_differences);
    tcase_add_test(tests, match_names_the_parts_that_differ);
    tcase_add_test(tests, newest_is_read_and_replaced);
    tcase_add_test(tests, old_ones_go);
    tcase_add_test(tests, best_one_stays);
    tcase_add_test(tests, lock_and_leftovers);
    suite_add_tcase(suite, tests);
    return suite;
}
