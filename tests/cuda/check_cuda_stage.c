/* SPDX-License-Identifier: MIT
 *
 * Stages of graphs on a CUDA device: in pieces each model leaves the bits that it leaves whole, in
 * float32 and with activations in bf16. */
#include "config.h"

#include "tests/cuda/cuda_test.h"
#include "tests/graph/graph_test.h"
#include "tests/graph/stage_test.h"

static const struct subject subjects[] = {
    {&ddp_model_mlp, {"hidden", "9,8,7"}, {.batch = 5, .features = 7, .classes = 4}},
    {&ddp_model_cnn,
     {NULL},
     {.batch = 2, .features = 192, .dim_count = 3, .dims = {3, 8, 8}, .classes = 5}},
    {&ddp_model_gpt2,
     {"layers", "1", "heads", "2", "channels", "16", "dropout", "0.2"},
     {.batch = 2, .dim_count = 1, .dims = {6}, .classes = 13, .label_count = 6}},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects };

static const struct way ways[] = {
    {.device = "cuda", .recomputes = true, .fuses = true, .in_flight = true},
    {.device = "cuda", .compute = DDP_BF16, .activations = DDP_BF16, .fuses = true},
    {.device = "cuda", .compute = DDP_BF16, .activations = DDP_BF16, .recomputes = true},
};
enum { WAYS = sizeof ways / sizeof *ways };

START_TEST(every_cut_of_every_model)
{
    for (int way = 0; way < WAYS; way++)
        compare_every_cut(&subjects[_i], &ways[way]);
}
END_TEST

START_TEST(shared_tensors)
{
    const struct subject subject = {.model = _i ? &sharing_head : &sharing, .config = small};
    chance = 1;
    for (int way = 0; way < WAYS; way++)
        for (int count = 2; count <= MOST_PIECES; count++)
            compare_some_cuts(&subject, &ways[way], count);
}
END_TEST

START_TEST(random_graphs)
{
    static const struct ddp_model model = {.name = "random", .build = build_random};
    const struct subject subject = {.model = &model, .config = small};
    for (int number = 0; number < 12; number++) {
        chance = (uint64_t)number * 2654435761u + 1;
        compare_some_cuts(&subject, &ways[number % WAYS], 2 + number % 3);
    }
}
END_TEST

Suite *test_suite(void)
{
    cuda_test_begin();
    Suite *suite = suite_create("cuda_stage");
    TCase *tc = test_case(suite, "stage", 240);
    tcase_add_loop_test(tc, every_cut_of_every_model, 0, SUBJECTS);
    tcase_add_loop_test(tc, shared_tensors, 0, 2);
    tcase_add_test(tc, random_graphs);
    return suite;
}
