/* SPDX-License-Identifier: MIT
 *
 * Learning-rate schedules, and the table of optimizers. */
#include "config.h"

#include "optim/optim.h"
#include "optim/schedule.h"
#include "tests/lib/runner.h"

#include <math.h>

/* Each schedule's rate at some steps of 10, 2 of them warm-up, rate 1. */
static const struct {
    enum ddp_schedule_kind kind;
    int64_t step;
    double rate;
} rows[] = {
    {DDP_SCHEDULE_CONSTANT, 0, 0.5}, {DDP_SCHEDULE_CONSTANT, 1, 1},
    {DDP_SCHEDULE_CONSTANT, 2, 1},   {DDP_SCHEDULE_CONSTANT, 9, 1},
    {DDP_SCHEDULE_LINEAR, 0, 0.5},   {DDP_SCHEDULE_LINEAR, 1, 1},
    {DDP_SCHEDULE_LINEAR, 2, 1},     {DDP_SCHEDULE_LINEAR, 6, 0.5},
    {DDP_SCHEDULE_LINEAR, 9, 0.125}, {DDP_SCHEDULE_LINEAR, 10, 0},
    {DDP_SCHEDULE_LINEAR, 99, 0},    {DDP_SCHEDULE_COSINE, 1, 1},
    {DDP_SCHEDULE_COSINE, 2, 1},     {DDP_SCHEDULE_COSINE, 4, 0.853553390593274},
    {DDP_SCHEDULE_COSINE, 6, 0.5},   {DDP_SCHEDULE_COSINE, 8, 0.146446609406726},
    {DDP_SCHEDULE_COSINE, 10, 0},    {DDP_SCHEDULE_COSINE, 99, 0},
    {DDP_SCHEDULE_STEP, 0, 0.5},     {DDP_SCHEDULE_STEP, 2, 1},
    {DDP_SCHEDULE_STEP, 3, 0.5},     {DDP_SCHEDULE_STEP, 5, 0.5},
    {DDP_SCHEDULE_STEP, 6, 0.25},    {DDP_SCHEDULE_STEP, 99, 1.0 / (1LL << 33)},
};

START_TEST(rates)
{
    const struct ddp_schedule schedule = {.kind = rows[_i].kind,
                                          .rate = 1,
                                          .warmup_steps = 2,
                                          .total_steps = 10,
                                          .gamma = 0.5,
                                          .step_size = 3};
    ck_assert_double_eq_tol(ddp_schedule_rate(&schedule, rows[_i].step), rows[_i].rate, 1e-15);
}
END_TEST

/* Rates that end above 0, and falls at milestones. */
START_TEST(ends_and_milestones)
{
    struct ddp_schedule schedule = {
        .kind = DDP_SCHEDULE_COSINE, .rate = 1, .min_rate = 0.5, .total_steps = 10};
    ck_assert_double_eq(ddp_schedule_rate(&schedule, 0), 1);
    ck_assert_double_eq_tol(ddp_schedule_rate(&schedule, 5), 0.75, 1e-15);
    ck_assert_double_eq(ddp_schedule_rate(&schedule, 10), 0.5);
    schedule.kind = DDP_SCHEDULE_LINEAR;
    ck_assert_double_eq_tol(ddp_schedule_rate(&schedule, 5), 0.75, 1e-15);
    schedule = (struct ddp_schedule){.kind = DDP_SCHEDULE_STEP,
                                     .rate = 8,
                                     .total_steps = 10,
                                     .gamma = 0.5,
                                     .milestones = {1, 4},
                                     .milestone_count = 2};
    ck_assert_double_eq(ddp_schedule_rate(&schedule, 0), 8);
    ck_assert_double_eq(ddp_schedule_rate(&schedule, 3), 4);
    ck_assert_double_eq(ddp_schedule_rate(&schedule, 4), 2);
}
END_TEST

/* Warm-up as long as the training, or longer, only rises. */
START_TEST(long_warmup)
{
    struct ddp_schedule schedule = {
        .kind = DDP_SCHEDULE_LINEAR, .rate = 2, .warmup_steps = 4, .total_steps = 4};
    ck_assert_double_eq(ddp_schedule_rate(&schedule, 3), 2);
    ck_assert_double_eq(ddp_schedule_rate(&schedule, 4), 2);
    schedule.warmup_steps = 8;
    ck_assert_double_eq(ddp_schedule_rate(&schedule, 3), 1);
}
END_TEST

/* A new plan begins with the rate of the step, and ends in the new end. */
START_TEST(extended)
{
    const struct ddp_schedule before = {
        .kind = DDP_SCHEDULE_COSINE, .rate = 1, .warmup_steps = 2, .total_steps = 10};
    struct ddp_schedule after = before;
    after.total_steps = 26;
    after.min_rate = 0.1;
    ddp_schedule_extend(&after, &before, 6);
    ck_assert_int_eq(after.extended_at, 6);
    ck_assert_double_eq(after.extended_rate, ddp_schedule_rate(&before, 6));
    ck_assert_double_eq(ddp_schedule_rate(&after, 6), ddp_schedule_rate(&before, 6));
    ck_assert_double_eq_tol(ddp_schedule_rate(&after, 16), 0.3, 1e-15);
    ck_assert_double_eq(ddp_schedule_rate(&after, 26), 0.1);
    ck_assert_double_eq(ddp_schedule_rate(&after, 1), 1); /* the warm-up */

    struct ddp_schedule again = after;
    again.kind = DDP_SCHEDULE_LINEAR;
    again.total_steps = 36;
    ddp_schedule_extend(&again, &after, 16);
    ck_assert_double_eq_tol(ddp_schedule_rate(&again, 26), 0.2, 1e-15);

    /* At the end: the rate of the last step, or the lowest, or another. */
    after = before;
    after.total_steps = 20;
    ddp_schedule_extend(&after, &before, 10);
    ck_assert_double_eq(after.extended_rate, ddp_schedule_rate(&before, 9));
    after.min_rate = 0.5;
    ddp_schedule_extend(&after, &before, 10);
    ck_assert_double_eq(after.extended_rate, 0.5);
    after.rate = 0.75;
    ddp_schedule_extend(&after, &before, 10);
    ck_assert_double_eq(after.extended_rate, 0.75);

    /* During the warm-up nothing but the end changes. */
    after = before;
    after.total_steps = 20;
    ddp_schedule_extend(&after, &before, 1);
    ck_assert_int_eq(after.extended_at, 0);
    ck_assert_double_eq(ddp_schedule_rate(&after, 1), 1);
}
END_TEST

START_TEST(names_follow_the_kinds)
{
    ck_assert_str_eq(ddp_schedule_names[DDP_SCHEDULE_CONSTANT], "constant");
    ck_assert_str_eq(ddp_schedule_names[DDP_SCHEDULE_LINEAR], "linear");
    ck_assert_str_eq(ddp_schedule_names[DDP_SCHEDULE_COSINE], "cosine");
    ck_assert_str_eq(ddp_schedule_names[DDP_SCHEDULE_STEP], "step");
    ck_assert_ptr_null(ddp_schedule_names[DDP_SCHEDULE_STEP + 1]);
}
END_TEST

/* State only where there is momentum; the gradient is scaled, decayed and remembered. */
START_TEST(sgd_through_the_table)
{
    ddp_device *device;
    ddp_optimizer *optimizer;
    const char *name = NULL;
    struct ddp_optimizer_config config = {.name = "sgd"};
    float weights[2] = {1, 2};
    const float gradients[2] = {4, 8};
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    ck_assert_int_eq(ddp_optimizer_create(&optimizer, device, 2, &config, NULL), DDP_OK);
    ck_assert_ptr_null(ddp_optimizer_state(optimizer, 0, &name));
    ddp_optimizer_destroy(optimizer);

    config.momentum = 0.5f;
    config.weight_decay = 1;
    ck_assert_int_eq(ddp_optimizer_create(&optimizer, device, 2, &config, NULL), DDP_OK);
    ck_assert_ptr_nonnull(ddp_optimizer_state(optimizer, 0, &name));
    ck_assert_ptr_null(ddp_optimizer_state(optimizer, 1, &name));
    struct ddp_optimizer_step step = {
        .end = 2, .weights = weights, .gradients = gradients, .scale = 0.25f, .rate = 0.5f};
    ck_assert_int_eq(ddp_optimizer_run(optimizer, &step), DDP_OK);
    ck_assert_float_eq(weights[0], 1 - 0.5f * (1 + 1)); /* gradient / 4 + weight */
    ck_assert_float_eq(weights[1], 2 - 0.5f * (2 + 2));
    step.step = 1;
    ck_assert_int_eq(ddp_optimizer_run(optimizer, &step), DDP_OK);
    ck_assert_float_eq(weights[0], 0 - 0.5f * (0.5f * 2 + 1));
    ck_assert_float_eq(weights[1], 0 - 0.5f * (0.5f * 4 + 2));
    ddp_optimizer_destroy(optimizer);

    config = (struct ddp_optimizer_config){.name = "adamw", .beta1 = 0.9, .beta2 = 0.9};
    ck_assert_int_eq(ddp_optimizer_create(&optimizer, device, 2, &config, NULL), DDP_OK);
    ck_assert_ptr_nonnull(ddp_optimizer_state(optimizer, 1, &name));
    ck_assert_ptr_null(ddp_optimizer_state(optimizer, 2, &name));
    step.step = 0;
    step.begin = step.state_begin = 1; /* a part */
    weights[1] = 0;
    ck_assert_int_eq(ddp_optimizer_run(optimizer, &step), DDP_OK);
    ck_assert_float_eq(weights[1], -0.5f); /* the first step's size is the rate */
    ck_assert_float_eq_tol(ddp_optimizer_state(optimizer, 0, &name)[1], 0.2f, 1e-6f);
    ck_assert_str_eq(name, "exp_avg");
    ck_assert_float_eq(ddp_optimizer_state(optimizer, 1, &name)[0], 0);
    ck_assert_str_eq(name, "exp_avg_sq");
    ck_assert_ptr_null(ddp_optimizer_state(optimizer, 2, &name));
    ddp_optimizer_destroy(optimizer);

    config.name = "frobnicate";
    ck_assert_int_eq(ddp_optimizer_create(&optimizer, device, 2, &config, NULL), DDP_ERR_INVALID);
    ddp_device_close(device);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("schedule");
    TCase *tc = test_case(suite, "schedule", 20);
    tcase_add_loop_test(tc, rates, 0, sizeof rows / sizeof rows[0]);
    tcase_add_test(tc, ends_and_milestones);
    tcase_add_test(tc, long_warmup);
    tcase_add_test(tc, extended);
    tcase_add_test(tc, names_follow_the_kinds);
    tcase_add_test(tc, sgd_through_the_table);
    return suite;
}
