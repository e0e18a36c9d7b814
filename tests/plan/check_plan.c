/* SPDX-License-Identifier: MIT
 *
 * From options to a plan: shards, batches, steps and errors, row by row, for a world of one. */
#include "config.h"

#include "core/parse.h"
#include "job/board.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "plan/options.h"

#define WORDS 12

struct row {
    const char *words[WORDS]; /* the command line */
    int64_t samples;          /* of the data set */
    int64_t batch, local, global, steps_per_epoch, tail, steps;
};

static const struct row good[] = {
    /* the command line, samples, batch, local and global shards, steps an epoch, tail, steps */
    {{"--epochs", "2"}, 100, 64, 1, 1, 2, 36, 4},
    {{"--epochs", "2"}, 128, 64, 1, 1, 2, 64, 4},
    {{"--epochs", "1"}, 10, 10, 1, 1, 1, 10, 1}, /* one batch is the whole epoch */
    {{"--steps", "7"}, 100, 64, 1, 1, 2, 36, 7},
    {{"--epochs", "1", "--acc-steps", "3", "--batch-size", "4"}, 100, 4, 3, 3, 9, 2, 9},
    {{"--epochs", "1", "--acc-steps", "3", "--batch-size", "4", "--drop-last"},
     100,
     4,
     3,
     3,
     9,
     1,
     9},
    {{"--epochs", "1", "--global-batch", "256"}, 1024, 64, 4, 4, 4, 64, 4},
    {{"--epochs", "1", "--global-batch", "96"}, 960, 48, 2, 2, 10, 48, 10},
    {{"--epochs", "1", "--global-batch", "7"}, 70, 7, 1, 1, 10, 7, 10},
    {{"--epochs", "1", "--global-batch", "97"}, 97, 1, 97, 97, 1, 1, 1}, /* a prime above 64 */
    {{"--epochs", "1", "--global-batch", "96", "--batch-size", "32"}, 960, 32, 3, 3, 10, 32, 10},
    {{"--epochs", "1", "--global-batch", "96", "--acc-steps", "2"}, 960, 48, 2, 2, 10, 48, 10},
    {{"--epochs", "1", "--global-batch", "96", "--acc-steps", "2", "--batch-size", "48"},
     960,
     48,
     2,
     2,
     10,
     48,
     10},
    {{"--mode", "dp", "--epochs", "1", "--batch-size", "8"}, 160, 8, 1, 2, 10, 8, 10},
    {{"--mode", "dp", "--replicas", "3", "--acc-steps", "2", "--batch-size", "5", "--epochs", "1"},
     61,
     5,
     2,
     6,
     3,
     1,
     3},
    {{"--mode", "dp", "--replicas", "4", "--global-batch", "128", "--epochs", "1"},
     1280,
     32,
     1,
     4,
     10,
     32,
     10},
    {{"--mode", "ddp", "--acc-steps", "2", "--batch-size", "5", "--epochs", "1"},
     100,
     5,
     2,
     2,
     10,
     5,
     10},
    {{"--distributed", "--bucket-mb", "1", "--epochs", "1", "--batch-size", "50"},
     100,
     50,
     1,
     1,
     2,
     50,
     2},
    {{"--epochs", "1", "--acc-steps", "8", "--batch-size", "2"}, 3, 1, 8, 8, 1, 1, 1}, /* repeats */
    {{"--global-batch", "1000000000", "--batch-size", "1", "--steps", "1"},
     10,
     1,
     1000000000,
     1000000000,
     1,
     1,
     1},
};

static const struct {
    const char *words[WORDS];
    int64_t samples;
    const char *says, *also;
} bad[] = {
    {{"--distributed", "--mode", "dp"}, 100, "--distributed", "--mode dp"},
    {{"--replicas", "2"}, 100, "--replicas", "--mode dp"},
    {{"--mode", "dp", "--bucket-mb", "1"}, 100, "--bucket-mb", "--mode ddp"},
    {{"--mode", "dp", "--acc-steps", "16001", "--replicas", "1"}, 100, "--acc-steps", "16000"},
    {{"--model", "article", "--data", "d"}, 8, "--data", "article"},
    {{"--model", "article", "--hidden", "3"}, 8, "--hidden", "mlp"},
    {{"--data-size", "3"}, 100, "--data-size", "article"},
    {{"--dropout", "0"}, 100, "--dropout", "gpt2"},
    {{"--momentum", "0,nesterov"}, 100, "--momentum 0,nesterov", "above 0"},
    {{"--momentum", "0.5", "--optimizer", "adamw"}, 100, "--momentum", "--optimizer sgd"},
    {{"--optimizer", "sgd,beta1=0.5"}, 100, "--optimizer ...,beta1", "--optimizer adam or adamw"},
    {{"--optimizer", "sgd,beta2=0.5"}, 100, "--optimizer ...,beta2", "--optimizer adam or adamw"},
    {{"--optimizer", "sgd,eps=0.5"}, 100, "--optimizer ...,eps", "--optimizer adam or adamw"},
    {{"--schedule", "linear,min=0.2"}, 100, "--schedule ...,min=0.2", "0.1"},
    {{"--schedule", "constant,min=0.01"}, 100, "--schedule ...,min", "--schedule linear or cosine"},
    {{"--schedule", "linear,gamma=0.5"}, 100, "--schedule ...,gamma", "--schedule step"},
    {{"--schedule", "linear,every=5"}, 100, "--schedule ...,every", "--schedule step"},
    {{"--schedule", "linear,at=5:6"}, 100, "--schedule ...,at", "--schedule step"},
    {{"--schedule", "step,at=5,every=5"}, 100, "--schedule ...,every", "--schedule ...,at"},
    {{"--zero", "1"}, 100, "--zero 1", "--mode ddp"},
    {{"--sync-batch-norm"}, 100, "--sync-batch-norm", "--mode accum has one worker"},
    {{"--mode", "dp", "--sync-batch-norm"}, 100, "--sync-batch-norm", "--mode dp has one worker"},
    {{"--mode", "ddp", "--acc-steps", "3", "--sync-batch-norm"},
     100,
     "3 shards of a step one after another",
     "--acc-steps 1"},
    {{"--steps", "3", "--epochs", "3"}, 100, "--steps", "--epochs"},
    {{"--global-batch", "100", "--batch-size", "64"}, 100, "--global-batch 100", "64 or 128"},
    {{"--global-batch", "10", "--batch-size", "64"}, 100, "--global-batch 10", ": 64 would fit"},
    {{"--global-batch", "7", "--mode", "dp", "--acc-steps", "1"},
     100,
     "--global-batch 7",
     "6 or 8 would fit"},
    {{"--global-batch", "1", "--mode", "dp"}, 100, "--global-batch 1", "2 would fit"},
    {{"--global-batch", "12", "--batch-size", "2", "--acc-steps", "3"},
     100,
     "--global-batch 12",
     "contradicts"},
    {{"--drop-last", "--acc-steps", "8"}, 7, "7 samples", "at least 8"},
    {{"--stages", "2", "--mode", "accum"}, 100, "--stages belongs to", "the mode is accum"},
    {{"--cut", "a", "--mode", "dp"}, 100, "--cut belongs to", "the mode is dp"},
    {{"--stages", "2", "--zero", "1"}, 100, "--zero 1", "pipeline"},
    {{"--stages", "2", "--zero", "2"}, 100, "--zero 2", "pipeline"},
};

static enum ddp_status plan_of(const char *const *words, int64_t samples, bool launched,
                               struct ddp_train_plan *plan)
{
    struct ddp_train_options options;
    struct ddp_dataset_info info = {.sample_count = samples, .path = "", .shuffled = true};
    const char *argv[WORDS + 2] = {"trainer"};
    int argc = 1, rest;
    ddp_job *job;
    while (argc <= WORDS && words[argc - 1]) {
        argv[argc] = words[argc - 1];
        argc++;
    }
    ddp_train_options_default(&options);
    ck_assert_int_eq(ddp_options_parse(ddp_train_option_table(), &options, &options.given, argc,
                                       (char *const *)argv, false, &rest),
                     DDP_OK);
    ck_assert_int_eq(ddp_job_open(&job), DDP_OK);
    enum ddp_status status = ddp_train_check_pairs(&options);
    if (status == DDP_OK)
        status = ddp_train_plan_workers(plan, &options, job, launched);
    if (status == DDP_OK)
        status = ddp_train_plan_steps(plan, &options, &info);
    ddp_job_close(job);
    return status;
}

START_TEST(good_rows)
{
    const struct row *row = &good[_i];
    struct ddp_train_plan plan;
    ck_assert_int_eq(plan_of(row->words, row->samples, false, &plan), DDP_OK);
    ck_assert_int_eq(plan.batch_size, row->batch);
    ck_assert_int_eq(plan.local_shards, row->local);
    ck_assert_int_eq(plan.global_shards, row->global);
    ck_assert_int_eq(plan.steps_per_epoch, row->steps_per_epoch);
    ck_assert_int_eq(plan.tail_rows, row->tail);
    ck_assert_int_eq(plan.total_steps, row->steps);
    ck_assert_int_eq(plan.schedule.total_steps, row->steps);
    ck_assert_int_ge(plan.threads, 1);
}
END_TEST

/* What the optimizer's flags, or their absence, come to. */
START_TEST(optimizer_rows)
{
    static const struct {
        const char *words[WORDS];
        const char *name;
        double rate, decay, beta2, clip;
        int64_t warmup;
    } rows[] = {
        {{NULL}, "sgd", 0.1, 0, 0.999, 0, 0},
        {{"--optimizer", "adamw"}, "adamw", 0.001, 0.01, 0.999, 0, 0},
        {{"--optimizer", "adam,beta2=0.95", "--weight-decay", "0.5", "--lr", "0.2"},
         "adam",
         0.2,
         0.5,
         0.95,
         0,
         0},
        {{"--optimizer", "adamw", "--weight-decay", "0", "--clip-grad-norm", "1"},
         "adamw",
         0.001,
         0,
         0.999,
         1,
         0},
        {{"--lr", "0.1,scale", "--acc-steps", "4", "--warmup-steps", "2"},
         "sgd",
         0.4,
         0,
         0.999,
         0,
         2},
        {{"--lr", "0.1,scale", "--mode", "dp", "--replicas", "4", "--warmup-steps", "7"},
         "sgd",
         0.4,
         0,
         0.999,
         0,
         7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ddp_train_plan plan;
        ck_assert_int_eq(plan_of(rows[i].words, 100, false, &plan), DDP_OK);
        ck_assert_str_eq(plan.optimizer.name, rows[i].name);
        ck_assert_double_eq(plan.schedule.rate, rows[i].rate);
        ck_assert_double_eq(plan.optimizer.weight_decay, rows[i].decay);
        ck_assert_double_eq(plan.optimizer.beta2, rows[i].beta2);
        ck_assert_double_eq(plan.clip_norm, rows[i].clip);
        ck_assert_int_eq(plan.schedule.warmup_steps, rows[i].warmup);
        ck_assert(!plan.decay_matrices_only);
    }
}
END_TEST

/* Epochs become steps: 13 shards of 8 and fewer samples an epoch. */
START_TEST(step_schedule)
{
    const char *const every[WORDS] = {"--schedule", "step,every=2", "--batch-size", "8"};
    const char *const at[WORDS] = {"--schedule",   "step,every=2,min=1",
                                   "--schedule",   "step,at=1:3,gamma=0.5",
                                   "--batch-size", "8"};
    struct ddp_train_plan plan;
    ck_assert_int_eq(plan_of(every, 100, false, &plan), DDP_OK);
    ck_assert_int_eq(plan.steps_per_epoch, 13);
    ck_assert_int_eq(plan.schedule.step_size, 26);
    ck_assert_double_eq(plan.schedule.gamma, 0.1);
    ck_assert_int_eq(plan_of(at, 100, false, &plan), DDP_OK);
    ck_assert_int_eq(plan.schedule.step_size, 0);
    ck_assert_int_eq(plan.schedule.milestone_count, 2);
    ck_assert_int_eq(plan.schedule.milestones[1], 39);
    ck_assert_double_eq(ddp_schedule_rate(&plan.schedule, 12), 0.1);
    ck_assert_double_eq(ddp_schedule_rate(&plan.schedule, 13), 0.05);
    ck_assert_double_eq(ddp_schedule_rate(&plan.schedule, 39), 0.025);
}
END_TEST

START_TEST(bad_rows)
{
    struct ddp_train_plan plan;
    capture_start();
    enum ddp_status status = plan_of(bad[_i].words, bad[_i].samples, false, &plan);
    const char *text = capture_stop();
    ck_assert_msg(status == DDP_ERR_INVALID, "row %d: %s", _i, ddp_status_string(status));
    one_message(text, bad[_i].says, bad[_i].also);
}
END_TEST

/* Under ddprun the mode is ddp unless another is named; alone it is accum. */
START_TEST(default_mode)
{
    const char *const none[WORDS] = {NULL}, *const dp[WORDS] = {"--mode", "dp"};
    struct ddp_train_plan plan;
    ck_assert_int_eq(plan_of(none, 100, false, &plan), DDP_OK);
    ck_assert_int_eq(plan.mode, DDP_MODE_ACCUM);
    ck_assert_int_eq(plan_of(none, 100, true, &plan), DDP_OK);
    ck_assert_int_eq(plan.mode, DDP_MODE_DDP);
    ck_assert_int_eq(plan_of(dp, 100, true, &plan), DDP_OK);
    ck_assert_int_eq(plan.mode, DDP_MODE_DP);
    ck_assert_int_eq(plan.replicas, 2);
}
END_TEST

/* Alone all stages are threads of one replica, which has the shards. */
START_TEST(pipelines)
{
    static const struct {
        const char *words[WORDS];
        int stages;
        int64_t shards;
        double bubble;
    } rows[] = {
        {{"--mode", "pipeline"}, 2, 1, 1.0 / 2},
        {{"--stages", "3", "--acc-steps", "4"}, 3, 4, 2.0 / 6},
        {{"--cut", "h.1,h.2,h.3", "--acc-steps", "5"}, 4, 5, 3.0 / 8},
        {{"--stages", "4", "--global-batch", "96", "--batch-size", "8"}, 4, 12, 3.0 / 15},
    };
    struct ddp_train_plan plan;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(plan_of(rows[i].words, 100, i % 2, &plan), DDP_OK);
        ck_assert_int_eq(plan.mode, DDP_MODE_PIPELINE);
        ck_assert_int_eq(plan.stages, rows[i].stages);
        ck_assert_int_eq(plan.replicas, 1);
        ck_assert_int_eq(plan.local_shards, rows[i].shards);
        ck_assert_int_eq(plan.global_shards, rows[i].shards);
        ck_assert_int_eq(ddp_train_plan_units(&plan), 1);
        ck_assert_int_eq(ddp_train_plan_stage_workers(&plan), 1);
        ck_assert_int_eq(ddp_train_plan_local_devices(&plan), rows[i].stages);
        ck_assert_double_eq_tol(ddp_train_plan_bubble(&plan), rows[i].bubble, 1e-12);
    }
}
END_TEST

/* OMP_NUM_THREADS counts, --threads wins. */
START_TEST(threads)
{
    const char *const none[WORDS] = {NULL}, *const three[WORDS] = {"--threads", "3"};
    struct ddp_train_plan plan;
    setenv("OMP_NUM_THREADS", "5", 1);
    ck_assert_int_eq(plan_of(none, 100, false, &plan), DDP_OK);
    ck_assert_int_eq(plan.threads, 5);
    ck_assert_int_eq(plan_of(three, 100, false, &plan), DDP_OK);
    ck_assert_int_eq(plan.threads, 3);
    setenv("OMP_NUM_THREADS", "many", 1);
    ck_assert_int_eq(plan_of(none, 100, false, &plan), DDP_OK);
    ck_assert_int_ge(plan.threads, 1);
}
END_TEST

/* What --plan-memory takes. */
START_TEST(sizes)
{
    double d = 0;
    static const struct {
        const char *text;
        double bytes;
    } rows[] = {{"7", 0},
                {"7B", 7},
                {"2k", 2000},
                {"80G", 80e9},
                {"1.5GB", 15e8},
                {"1KiB", 1024},
                {"1kiB", 1024},
                {"2MiB", 2097152},
                {"0.5T", 5e11},
                {"1P", 1e15},
                {"80Gi", 0},
                {"80Gb", 0},
                {"G", 0},
                {"", 0},
                {"0", 0},
                {"0.5", 0},
                {"-1G", 0},
                {"1e3", 0},
                {"1 G", 0},
                {"5000P", 0},
                {"1.2.3k", 0},
                {"1BB", 0},
                {"1GBx", 0},
                {"9X", 0},
                {"00000000000000000000000000000001", 0}};
    for (size_t n = 0; n < sizeof rows / sizeof rows[0]; n++) {
        ck_assert_msg(ddp_parse_bytes(rows[n].text, &d) == (rows[n].bytes > 0), "%s", rows[n].text);
        ck_assert_msg(rows[n].bytes == 0 || d == rows[n].bytes, "%s: %g", rows[n].text, d);
    }
    ck_assert(!ddp_parse_bytes(NULL, &d));
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("plan");
    TCase *tc = test_case(suite, "plan", 20);
    unsetenv("OMP_NUM_THREADS");
    tcase_add_loop_test(tc, good_rows, 0, sizeof good / sizeof good[0]);
    tcase_add_test(tc, optimizer_rows);
    tcase_add_test(tc, step_schedule);
    tcase_add_loop_test(tc, bad_rows, 0, sizeof bad / sizeof bad[0]);
    tcase_add_test(tc, default_mode);
    tcase_add_test(tc, pipelines);
    tcase_add_test(tc, threads);
    tcase_add_test(tc, sizes);
    return suite;
}
