/* SPDX-License-Identifier: MIT
 *
 * data/sampler against PyTorch's DistributedSampler (golden/sampler.txt), and the evaluation's
 * ranges. */
#include "config.h"

#include "data/sampler.h"
#include "tests/lib/golden.h"
#include "tests/lib/runner.h"

static long long word(const struct golden *g, int i)
{
    ck_assert_int_lt(i, g->word_count);
    return strtoll(g->words[i], NULL, 10);
}

START_TEST(pytorch_gives_the_same_indices)
{
    struct golden g;
    int cases = 0;
    FILE *file = golden_open("data/golden/sampler.txt");
    for (; golden_next(file, &g); golden_free(&g), cases++) {
        struct ddp_sampler_config config = {
            .sample_count = word(&g, 1),
            .shard_count = word(&g, 2),
            .shuffle = word(&g, 4),
            .drop_last = word(&g, 5),
            .seed = (uint64_t)word(&g, 6),
        };
        ddp_sampler *sampler;
        ck_assert_int_eq(ddp_sampler_create(&sampler, &config), DDP_OK);
        ddp_sampler_set_epoch(sampler, word(&g, 7));
        ck_assert_msg(ddp_sampler_shard_samples(&config) == g.answer_count,
                      "%s: %lld samples, not %d", g.name,
                      (long long)ddp_sampler_shard_samples(&config), g.answer_count);
        for (int k = 0; k < g.answer_count; k++) {
            long long index = ddp_sampler_index(sampler, word(&g, 3), k);
            ck_assert_msg(index == atoll(g.answer[k]), "%s: sample %d is %lld, PyTorch has %s",
                          g.name, k, index, g.answer[k]);
        }
        ddp_sampler_destroy(sampler);
    }
    fclose(file);
    ck_assert_int_ge(cases, 100);
}
END_TEST

/* Every epoch is an order of its own, and going back gives the same one again. */
START_TEST(epochs_differ_and_repeat)
{
    struct ddp_sampler_config config = {.sample_count = 1000, .shard_count = 1, .shuffle = true};
    int64_t first[1000];
    ddp_sampler *sampler;
    ck_assert_int_eq(ddp_sampler_create(&sampler, &config), DDP_OK);
    ddp_sampler_set_epoch(sampler, 0);
    int seen[1000] = {0}, moved = 0;
    for (int k = 0; k < 1000; k++)
        seen[first[k] = ddp_sampler_index(sampler, 0, k)]++;
    for (int k = 0; k < 1000; k++)
        ck_assert_int_eq(seen[k], 1);
    ddp_sampler_set_epoch(sampler, 1);
    for (int k = 0; k < 1000; k++)
        moved += ddp_sampler_index(sampler, 0, k) != first[k];
    ck_assert_int_gt(moved, 900);
    ddp_sampler_set_epoch(sampler, 0);
    for (int k = 0; k < 1000; k++)
        ck_assert_int_eq(ddp_sampler_index(sampler, 0, k), first[k]);
    ddp_sampler_destroy(sampler);
}
END_TEST

START_TEST(bad_configurations)
{
    ddp_sampler *sampler;
    struct ddp_sampler_config config = {.sample_count = 1, .shard_count = 0};
    ck_assert_int_eq(ddp_sampler_create(&sampler, &config), DDP_ERR_INVALID);
    config.shard_count = -3;
    ck_assert_int_eq(ddp_sampler_create(&sampler, &config), DDP_ERR_INVALID);
    config.shard_count = 1ll << 40;
    ck_assert_int_eq(ddp_sampler_create(&sampler, &config), DDP_ERR_INVALID);
    config = (struct ddp_sampler_config){.sample_count = -1, .shard_count = 1};
    ck_assert_int_eq(ddp_sampler_create(&sampler, &config), DDP_ERR_INVALID);
    config.sample_count = 1ll << 32;
    ck_assert_int_eq(ddp_sampler_create(&sampler, &config), DDP_ERR_INVALID);
    ddp_sampler_destroy(NULL);
}
END_TEST

START_TEST(evaluation_covers_each_sample_once)
{
    for (int64_t n = 0; n < 40; n++)
        for (int64_t workers = 1; workers < 12; workers++) {
            int64_t next = 0;
            for (int64_t w = 0; w < workers; w++) {
                int64_t begin, end;
                ddp_evaluation_range(n, workers, w, &begin, &end);
                ck_assert_int_eq(begin, next);
                ck_assert_int_ge(end - begin, n / workers);
                ck_assert_int_le(end - begin, n / workers + 1);
                next = end;
            }
            ck_assert_int_eq(next, n);
        }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("sampler");
    TCase *tc = test_case(suite, "sampler", 60);
    tcase_add_test(tc, pytorch_gives_the_same_indices);
    tcase_add_test(tc, epochs_differ_and_repeat);
    tcase_add_test(tc, bad_configurations);
    tcase_add_test(tc, evaluation_covers_each_sample_once);
    return suite;
}
