/* SPDX-License-Identifier: MIT
 *
 * data/loader: every batch in its order, against the sampler; cursors, epochs, several threads,
 * errors, early ends. */
#include "config.h"

#include "data/loader.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

/* A dataset whose sample i is {i, 2i} with label i % 7, and which can be slow. */
struct numbers {
    struct ddp_dataset base;
    int delay_us;
    _Atomic int64_t rows; /* read so far */
};

static enum ddp_status numbers_read(const ddp_dataset *dataset, const int64_t *indices,
                                    size_t count, void *data, int32_t *labels)
{
    struct numbers *numbers = (struct numbers *)(uintptr_t)dataset;
    if (numbers->delay_us)
        nanosleep(&(struct timespec){.tv_nsec = numbers->delay_us * 1000l}, NULL);
    float *x = data;
    for (size_t i = 0; i < count; i++) {
        x[2 * i] = (float)indices[i];
        x[2 * i + 1] = 2 * (float)indices[i];
        if (labels)
            labels[i] = (int32_t)(indices[i] % 7);
    }
    atomic_fetch_add(&numbers->rows, (int64_t)count);
    return DDP_OK;
}

static const struct ddp_dataset_ops numbers_ops = {.read = numbers_read};

static struct numbers make_numbers(int64_t count, int64_t classes)
{
    return (struct numbers){.base = {.ops = &numbers_ops,
                                     .info = {.source = "numbers",
                                              .path = "",
                                              .sample_count = count,
                                              .class_count = classes,
                                              .dim_count = 1,
                                              .dims = {2},
                                              .label_count = classes > 0,
                                              .x_dtype = DDP_F32,
                                              .sample_values = 2,
                                              .sample_bytes = 2 * sizeof(float),
                                              .channel_count = 1,
                                              .std = {1}}}};
}

static void check_batch(const struct ddp_batch *batch, int64_t classes)
{
    ck_assert_uint_eq((uintptr_t)batch->x % 4096, 0);
    ck_assert((batch->labels != NULL) == (classes > 0));
    const float *x = batch->x;
    for (int64_t i = 0; i < batch->rows; i++) {
        ck_assert_float_eq(x[2 * i], (float)batch->indices[i]);
        ck_assert_float_eq(x[2 * i + 1], 2 * (float)batch->indices[i]);
        if (batch->labels)
            ck_assert_int_eq(batch->labels[i], batch->indices[i] % 7);
    }
}

/* Walks through all batches from the config's cursor on and compares each with what the sampler
 * says. */
static void check_all(struct ddp_loader_config config)
{
    ddp_loader *loader;
    ddp_sampler *sampler;
    const struct ddp_batch *batch;
    const struct ddp_dataset_info *info = ddp_dataset_info(config.dataset);
    config.sampler.sample_count = info->sample_count;
    int64_t samples = ddp_sampler_shard_samples(&config.sampler);
    int64_t steps = ddp_loader_steps_per_epoch(&config.sampler, config.batch_size);
    ck_assert_int_eq(ddp_sampler_create(&sampler, &config.sampler), DDP_OK);
    ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
    for (int64_t epoch = config.epoch; epoch < config.end_epoch; epoch++) {
        ddp_sampler_set_epoch(sampler, epoch);
        for (int64_t step = epoch == config.epoch ? config.step : 0; step < steps; step++)
            for (int64_t s = config.first_shard; s < config.first_shard + config.shard_count; s++) {
                ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
                ck_assert_ptr_nonnull(batch);
                ck_assert_int_eq(batch->epoch, epoch);
                ck_assert_int_eq(batch->step, step);
                ck_assert_int_eq(batch->shard, s);
                int64_t first = step * config.batch_size, left = samples - first;
                ck_assert_int_eq(batch->rows, left < config.batch_size ? left : config.batch_size);
                for (int64_t i = 0; i < batch->rows; i++)
                    ck_assert_int_eq(batch->indices[i], ddp_sampler_index(sampler, s, first + i));
                check_batch(batch, info->class_count);
                ddp_loader_release(loader, batch);
            }
    }
    for (int again = 0; again < 2; again++) {
        ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
        ck_assert_ptr_null(batch);
    }
    ddp_loader_destroy(loader);
    ddp_sampler_destroy(sampler);
}

START_TEST(every_batch_in_its_order)
{
    static const struct {
        int64_t samples, shards, first, count, batch;
        bool shuffle, drop_last;
    } cases[] = {
        {100, 4, 0, 4, 8, true, false}, {101, 4, 1, 2, 8, true, false},
        {101, 4, 3, 1, 8, true, true},  {8, 2, 0, 2, 4, false, false},
        {2, 5, 0, 5, 3, true, false},   {1, 1, 0, 1, 1, true, false},
        {64, 8, 0, 8, 8, true, false},  {7, 3, 0, 3, 1000, true, false},
        {97, 1, 0, 1, 5, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int threads = 1; threads <= 4; threads += 3)
            for (int depth = 0; depth <= 1; depth++) {
                struct numbers numbers = make_numbers(cases[i].samples, i % 2 ? 7 : 0);
                check_all((struct ddp_loader_config){
                    .dataset = &numbers.base,
                    .sampler = {.shard_count = cases[i].shards,
                                .shuffle = cases[i].shuffle,
                                .drop_last = cases[i].drop_last,
                                .seed = i},
                    .batch_size = cases[i].batch,
                    .first_shard = cases[i].first,
                    .shard_count = cases[i].count,
                    .end_epoch = 5,
                    .threads = threads,
                    .depth = depth,
                });
            }
}
END_TEST

START_TEST(any_cursor)
{
    struct numbers numbers = make_numbers(50, 7);
    for (int64_t epoch = 0; epoch < 3; epoch++)
        for (int64_t step = 0; step <= 5;
             step++) /* 25 samples of a shard in batches of 6: 5 steps */
            check_all((struct ddp_loader_config){
                .dataset = &numbers.base,
                .sampler = {.shard_count = 2, .shuffle = true, .seed = 9},
                .batch_size = 6,
                .shard_count = 2,
                .epoch = epoch,
                .step = step,
                .end_epoch = 4,
                .threads = 2,
            });
}
END_TEST

START_TEST(evaluation_reads_each_sample_once)
{
    struct numbers numbers = make_numbers(103, 7);
    int seen[103] = {0};
    for (int64_t worker = 0; worker < 120;
         worker++) { /* more workers than samples: some have none */
        int64_t begin, end;
        ddp_loader *loader;
        const struct ddp_batch *batch;
        ddp_evaluation_range(103, 120, worker, &begin, &end);
        ck_assert_int_eq(ddp_loader_create_range(&loader, &numbers.base, begin, end, 10, 1),
                         DDP_OK);
        while (ddp_loader_next(loader, &batch) == DDP_OK && batch) {
            check_batch(batch, 7);
            for (int64_t i = 0; i < batch->rows; i++)
                seen[batch->indices[i]]++;
            ddp_loader_release(loader, batch);
        }
        ddp_loader_destroy(loader);
    }
    for (int i = 0; i < 103; i++)
        ck_assert_int_eq(seen[i], 1);

    ddp_loader *loader;
    const struct ddp_batch *batch;
    ck_assert_int_eq(ddp_loader_create_range(&loader, &numbers.base, 40, 75, 10, 2), DDP_OK);
    for (int64_t next = 40; next < 75;) {
        ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
        ck_assert_int_eq(batch->rows, next < 70 ? 10 : 5);
        for (int64_t i = 0; i < batch->rows; i++)
            ck_assert_int_eq(batch->indices[i], next++);
        ddp_loader_release(loader, batch);
    }
    ddp_loader_destroy(loader);
}
END_TEST

START_TEST(several_held_and_released_in_any_order)
{
    struct numbers numbers = make_numbers(64, 7);
    ddp_loader *loader;
    const struct ddp_batch *held[4], *more;
    struct ddp_loader_config config = {.dataset = &numbers.base,
                                       .sampler = {.shard_count = 4, .shuffle = true},
                                       .batch_size = 4,
                                       .shard_count = 4,
                                       .end_epoch = -1,
                                       .threads = 2,
                                       .depth = 4};
    ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
    for (int round = 0; round < 200; round++) {
        for (int i = 0; i < 4; i++) {
            ck_assert_int_eq(ddp_loader_next(loader, &held[i]), DDP_OK);
            ck_assert_int_eq(held[i]->shard, i);
        }
        for (int i = 0; i < 4; i++)
            check_batch(held[i], 7);
        capture_start();
        enum ddp_status status = ddp_loader_next(loader, &more);
        one_message(capture_stop(), "batch of 4 calls ago is still held", "release");
        ck_assert_int_eq(status, DDP_ERR_INVALID);
        for (int i = 0; i < 4; i++)
            ddp_loader_release(loader, held[(i * 3 + round) % 4]);
    }
    ddp_loader_release(loader, NULL);
    ddp_loader_destroy(loader);
}
END_TEST

/* A sample beyond the end, as a broken source would ask for: the dataset shrinks under the loader.
 */
START_TEST(errors_come_out_in_their_turn)
{
    struct numbers numbers = make_numbers(40, 7);
    ddp_loader *loader;
    const struct ddp_batch *batch;
    struct ddp_loader_config config = {.dataset = &numbers.base,
                                       .sampler = {.shard_count = 1},
                                       .batch_size = 10,
                                       .shard_count = 1,
                                       .end_epoch = 2,
                                       .threads = 1,
                                       .depth = 1};
    ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
    ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
    numbers.base.info.sample_count = 25; /* the one slot is held: no thread reads now */
    capture_start();
    ddp_loader_release(loader, batch);
    int second = ddp_loader_next(loader, &batch);
    ddp_loader_release(loader, batch);
    int third = ddp_loader_next(loader, &batch);
    int fourth = ddp_loader_next(loader, &batch);
    ddp_loader_destroy(loader);
    one_message(capture_stop(), "sample 25 does not exist", "0 to 24");
    ck_assert_int_eq(second, DDP_OK);
    ck_assert_int_eq(third, DDP_ERR_INVALID);
    ck_assert_int_eq(fourth, DDP_ERR_INVALID);
}
END_TEST

START_TEST(destroyed_at_any_moment)
{
    struct numbers numbers = make_numbers(1000, 7);
    numbers.delay_us = 20;
    for (int round = 0; round < 300; round++) {
        ddp_loader *loader;
        const struct ddp_batch *batch;
        struct ddp_loader_config config = {.dataset = &numbers.base,
                                           .sampler = {.shard_count = 2, .shuffle = true},
                                           .batch_size = 10,
                                           .shard_count = 2,
                                           .end_epoch = round % 3 ? -1 : 1,
                                           .threads = 1 + round % 4,
                                           .depth = 8};
        ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
        for (int i = 0; i < round % 7; i++) {
            ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
            if (i % 2)
                ddp_loader_release(loader, batch);
        }
        ddp_loader_destroy(loader);
    }
    ddp_loader_destroy(NULL);
}
END_TEST

START_TEST(waiting_is_measured_and_prefetching_hides_it)
{
    struct numbers numbers = make_numbers(1000, 7);
    const struct ddp_batch *batch;
    ddp_loader *loader;
    struct ddp_loader_config config = {.dataset = &numbers.base,
                                       .sampler = {.shard_count = 1},
                                       .batch_size = 10,
                                       .shard_count = 1,
                                       .end_epoch = -1,
                                       .depth = 4};
    numbers.delay_us = 100000; /* a busy machine may take long to come to the call */
    ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_OK);
    ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
    ck_assert_double_ge(ddp_loader_wait_seconds(loader), 0.01); /* nothing was ready */
    int64_t deadline = ddp_deadline_ns(10000);
    while (atomic_load(&numbers.rows) < 40 && !ddp_deadline_passed(deadline))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    ck_assert_int_eq(atomic_load(&numbers.rows), 40); /* it read ahead, as far as the ring goes */
    ddp_loader_destroy(loader);
}
END_TEST

/* Batches lie where the caller wants them, all are given back, also when there are too few. */
struct lender {
    int left, lent; /* how many more there are, and how many are out */
};

static enum ddp_status lend(void *arg, size_t bytes, void **memory)
{
    struct lender *lender = arg;
    if (lender->left-- == 0)
        return ddp_fail(DDP_ERR_MEMORY, "none left");
    lender->lent++;
    *memory = ddp_pages_alloc(bytes);
    return DDP_OK;
}

static void take_back(void *arg, void *memory, size_t bytes)
{
    struct lender *lender = arg;
    lender->lent--;
    ddp_pages_free(memory, bytes);
}

START_TEST(memory_of_the_caller)
{
    struct numbers numbers = make_numbers(50, 7);
    struct lender lender = {.left = 1000};
    struct ddp_loader_config config = {.dataset = &numbers.base,
                                       .sampler = {.shard_count = 2},
                                       .batch_size = 3,
                                       .shard_count = 2,
                                       .end_epoch = 2,
                                       .memory = {lend, take_back, &lender},
                                       .depth = 5};
    if (_i == 5) {
        check_all(config);
        ck_assert_int_eq(lender.left, 995);
    } else { /* a process each, lack of memory is logged once in a while */
        ddp_loader *loader = NULL;
        lender.left = _i;
        capture_start();
        ck_assert_int_eq(ddp_loader_create(&loader, &config), DDP_ERR_MEMORY);
        one_message(capture_stop(), "error: ", "none left");
    }
    ck_assert_int_eq(lender.lent, 0);
}
END_TEST

static enum ddp_status try_config(struct ddp_loader_config config)
{
    ddp_loader *loader = NULL;
    capture_start();
    enum ddp_status status = ddp_loader_create(&loader, &config);
    const char *text = capture_stop();
    if (status != DDP_OK)
        one_message(text, "error: ", "");
    ddp_loader_destroy(loader);
    return status;
}

START_TEST(bad_configurations)
{
    struct numbers numbers = make_numbers(10, 7);
    const struct ddp_loader_config good = {.dataset = &numbers.base,
                                           .sampler = {.shard_count = 2},
                                           .batch_size = 5,
                                           .shard_count = 2,
                                           .end_epoch = -1};
    struct ddp_loader_config c = good;
    ck_assert_int_eq(try_config(c), DDP_OK);
    for (int64_t b = -1; b <= 1ll << 40; b += (1ll << 40) / 2 + 1)
        if (c.batch_size = b, b < 1 || b > INT32_MAX)
            ck_assert_int_eq(try_config(c), DDP_ERR_INVALID);
    c = good, c.batch_size = INT32_MAX; /* more than there are: only what is there costs memory */
    ck_assert_int_eq(try_config(c), DDP_OK);
    c = good, c.first_shard = 1;
    ck_assert_int_eq(try_config(c), DDP_ERR_INVALID);
    c = good, c.first_shard = -1;
    ck_assert_int_eq(try_config(c), DDP_ERR_INVALID);
    c = good, c.shard_count = 0;
    ck_assert_int_eq(try_config(c), DDP_ERR_INVALID);
    c = good, c.sampler.shard_count = 0;
    ck_assert_int_eq(try_config(c), DDP_ERR_INVALID);
    c = good, c.sampler.shard_count = 11, c.sampler.drop_last = true;
    ck_assert_int_eq(try_config(c), DDP_ERR_INVALID);
    c = good, c.step = 2; /* an epoch has one */
    ck_assert_int_eq(try_config(c), DDP_ERR_INVALID);
    c = good, c.step = -1;
    ck_assert_int_eq(try_config(c), DDP_ERR_INVALID);
    c = good, c.threads = 1000;
    ck_assert_int_eq(try_config(c), DDP_ERR_INVALID);
    c = good, c.threads = -1;
    ck_assert_int_eq(try_config(c), DDP_ERR_INVALID);
    ddp_loader *loader;
    capture_start();
    int beyond = ddp_loader_create_range(&loader, &numbers.base, 5, 11, 2, 1);
    int backward = ddp_loader_create_range(&loader, &numbers.base, 5, 4, 2, 1);
    capture_stop();
    ck_assert_int_eq(beyond, DDP_ERR_INVALID);
    ck_assert_int_eq(backward, DDP_ERR_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("loader");
    TCase *tc = test_case(suite, "loader", 120);
    tcase_add_test(tc, every_batch_in_its_order);
    tcase_add_test(tc, any_cursor);
    tcase_add_test(tc, evaluation_reads_each_sample_once);
    tcase_add_test(tc, several_held_and_released_in_any_order);
    tcase_add_test(tc, errors_come_out_in_their_turn);
    tcase_add_test(tc, destroyed_at_any_moment);
    tcase_add_test(tc, waiting_is_measured_and_prefetching_hides_it);
    tcase_add_loop_test(tc, memory_of_the_caller, 0, 6);
    tcase_add_test(tc, bad_configurations);
    return suite;
}
