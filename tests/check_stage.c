/* SPDX-License-Identifier: MIT
 *
 * Stages of graphs: in pieces each model leaves the bits that it leaves whole. */
#include "config.h"

#include "tests/graph_test.h"
#include "tests/stage_test.h"

/* clang-format off */
static const struct subject subjects[] = {
    {&ddp_model_mlp, {"hidden", "9,8,7"}, {.batch = 5, .features = 7, .classes = 4}},
    {&ddp_model_cnn, {NULL}, {.batch = 3, .features = 192, .dim_count = 3, .dims = {3, 8, 8}, .classes = 5}},
    {&ddp_model_resnet, {NULL},
     {.batch = 3, .features = 192, .dim_count = 3, .dims = {3, 8, 8}, .classes = 5, .size = "20"}},
    {&ddp_model_gpt2,
     {"layers", "2", "heads", "2", "channels", "16", "dropout", "0.2"},
     {.batch = 2, .dim_count = 1, .dims = {6}, .classes = 13, .label_count = 6}},
};
/* clang-format on */
enum { SUBJECTS = sizeof subjects / sizeof *subjects, GPT2 = SUBJECTS - 1 };

static const struct way ways[] = {
    {"cpu", DDP_F32, DDP_F32, false, false, false},
    {"cpu", DDP_F32, DDP_F32, false, true, false},
    {"cpu", DDP_BF16, DDP_F32, false, true, false},
    {"cpu", DDP_BF16, DDP_F32, false, false, true},
};
enum { WAYS = sizeof ways / sizeof *ways };

START_TEST(every_cut_of_every_model)
{
    for (int way = 0; way < WAYS; way++)
        compare_every_cut(&subjects[_i], &ways[way]);
}
END_TEST

START_TEST(many_cuts_of_every_model)
{
    chance = (uint64_t)_i + 1;
    for (int way = 0; way < WAYS; way++)
        for (int count = 3; count <= MOST_PIECES; count++)
            compare_some_cuts(&subjects[_i], &ways[way], count);
}
END_TEST

/* Joins of joins, in-place operations and blocks, cut apart wherever. */
START_TEST(random_graphs)
{
    static const struct ddp_model model = {.name = "random", .build = build_random};
    const struct subject subject = {.model = &model, .config = small};
    for (int number = _i * 25; number < _i * 25 + 25; number++) {
        const struct way *way = &ways[number % WAYS];
        const uint64_t seed = (uint64_t)number * 2654435761u + 1;
        chance = seed;
        compare_every_cut(&subject, way);
        chance = seed;
        compare_some_cuts(&subject, way, 3 + number % 3);
    }
}
END_TEST

START_TEST(shared_tensors)
{
    const struct subject subject = {.model = &sharing, .config = small};
    for (int way = 0; way < WAYS; way++) {
        compare_every_cut(&subject, &ways[way]);
        for (int count = 3; count <= MOST_PIECES; count++)
            compare_some_cuts(&subject, &ways[way], count);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("stage");
    TCase *tc = test_case(suite, "stage", 120);
    tcase_add_loop_test(tc, every_cut_of_every_model, 0, SUBJECTS);
    tcase_add_loop_test(tc, many_cuts_of_every_model, 0, SUBJECTS);
    tcase_add_loop_test(tc, random_graphs, 0, 4);
    tcase_add_test(tc, shared_tensors);
    return suite;
}
