/* SPDX-License-Identifier: MIT
 *
 * The plan of a pipeline: where models are cut, which operations move, and that the passes of all
 * stages, each in its order, fit together. */
#include "config.h"

#include "graph/describe.h"
#include "mode/passes.h"
#include "model/model.h"
#include "tests/lib/model_option.h"
#include "tests/lib/runner.h"

#include <stdlib.h>

enum { MOST_STAGES = 6, MOST_SHARDS = 9, FORWARD = 1, BACKWARD = 2 };

/* --- the order of passes --- */

/* Stages that are no model's: with `extra`, the last one runs what comes before the first too. */
static struct ddp_stages stages_of(int count, bool extra)
{
    struct ddp_stages stages = {.count = count, .piece_count = count + extra, .shared = -1};
    for (int i = 0; i < stages.piece_count; i++)
        stages.pieces[i].stage = i >= extra ? i - extra : count - 1;
    return stages;
}

/* What stages do when each runs its list in order. */
struct run {
    const struct ddp_stages *stages;
    struct ddp_passes passes[MOST_STAGES];
    int64_t at[MOST_STAGES];          /* passes done */
    int64_t time[MOST_STAGES];        /* when the last one ended */
    int64_t done[MOST_STAGES + 1][2]; /* by piece: forward, backward */
    int64_t ends[MOST_STAGES + 1][2][MOST_SHARDS];
};

/* Runs the next pass of a stage, if what it waits for is there. */
static bool run_pass(struct run *run, int stage, int64_t shards)
{
    if (run->at[stage] == run->passes[stage].count)
        return false;
    const struct ddp_pass *pass = &run->passes[stage].list[run->at[stage]];
    const int p = pass->piece, last = run->stages->piece_count - 1;
    int64_t begin = run->time[stage];
    int before = pass->backward ? p + 1 : p - 1;
    bool before_backward = pass->backward;
    if (pass->backward && p == last) {
        before = p;
        before_backward = false;
    }
    ck_assert_int_eq(pass->shard, run->done[p][pass->backward]); /* shards in their order */
    if (before >= 0) {
        if (run->done[before][before_backward] <= pass->shard)
            return false;
        const int64_t ready = run->ends[before][before_backward][pass->shard];
        begin = ready > begin ? ready : begin;
    }
    const bool extra = p == 0 && run->stages->piece_count > run->stages->count;
    run->time[stage] = begin + (extra ? 0 : pass->backward ? BACKWARD : FORWARD);
    run->ends[p][pass->backward][pass->shard] = run->time[stage];
    run->done[p][pass->backward]++;
    run->at[stage]++;
    ck_assert_int_le(run->done[p][0] - run->done[p][1],
                     ddp_passes_in_flight(run->stages, shards, p));
    ck_assert_int_ge(run->done[p][0], run->done[p][1]);
    return true;
}

/* All passes are run, nobody waits for ever, and no stage is idle for longer than it must be. */
START_TEST(passes_fit_together)
{
    const int count = 2 + _i % (MOST_STAGES - 1);
    const bool extra = _i / (MOST_STAGES - 1);
    const struct ddp_stages stages = stages_of(count, extra);
    for (int64_t shards = 1; shards <= MOST_SHARDS; shards++) {
        struct run run = {.stages = &stages};
        for (int s = 0; s < count; s++)
            ck_assert_int_eq(ddp_passes_make(&run.passes[s], &stages, shards, s), DDP_OK);
        for (bool any = true; any;) {
            any = false;
            for (int s = 0; s < count; s++)
                any |= run_pass(&run, s, shards);
        }
        int64_t end = 0;
        for (int s = 0; s < count; s++) {
            ck_assert_msg(run.at[s] == run.passes[s].count, "%d stages, %lld shards: stuck", count,
                          (long long)shards);
            end = run.time[s] > end ? run.time[s] : end;
            ddp_passes_free(&run.passes[s]);
        }
        for (int p = 0; p < stages.piece_count; p++)
            ck_assert(run.done[p][0] == shards && run.done[p][1] == shards);
        ck_assert_int_eq(end, (shards + count - 1) * (FORWARD + BACKWARD));
    }
}
END_TEST

/* 1F1B, by hand: the first of two stages, and the last of two that runs the beginning too. */
START_TEST(the_order_is_1f1b)
{
    static const struct ddp_pass first[] = {{0, 0, false}, {1, 0, false}, {0, 0, true},
                                            {2, 0, false}, {1, 0, true},  {2, 0, true}};
    const struct ddp_stages plain = stages_of(2, false), both = stages_of(2, true);
    struct ddp_passes passes;
    ck_assert_int_eq(ddp_passes_make(&passes, &plain, 3, 0), DDP_OK);
    ck_assert_int_eq(passes.count, 6);
    for (int i = 0; i < 6; i++)
        ck_assert(passes.list[i].shard == first[i].shard &&
                  passes.list[i].backward == first[i].backward);
    ddp_passes_free(&passes);
    ck_assert_int_eq(ddp_passes_make(&passes, &both, 8, 1), DDP_OK);
    ck_assert_int_eq(passes.count, 32);
    ck_assert_int_eq(ddp_passes_ahead(&passes, 2, 0), 2);
    ddp_passes_free(&passes);
}
END_TEST

/* --- where models are cut --- */

static ddp_graph *gpt2(void)
{
    struct ddp_model_config config = {
        .batch = 2, .dim_count = 1, .dims = {8}, .classes = 17, .label_count = 8};
    ddp_graph *graph;
    set_model_option(&config, &ddp_model_gpt2, "layers", "3");
    set_model_option(&config, &ddp_model_gpt2, "heads", "2");
    set_model_option(&config, &ddp_model_gpt2, "channels", "8");
    ck_assert_int_eq(ddp_model_configure(&ddp_model_gpt2, &config), DDP_OK);
    ck_assert_int_eq(ddp_model_build(&graph, &ddp_model_gpt2, &config), DDP_OK);
    return graph;
}

/* The embedding goes to where the head is. */
START_TEST(a_shared_weight_is_in_one_stage)
{
    ddp_graph *graph = gpt2();
    struct ddp_stages stages;
    int cuts[2];
    ck_assert_int_eq(ddp_stages_parse(graph, "h.1,h.2", 3, cuts), DDP_OK);
    ck_assert_int_eq(ddp_stages_make(&stages, graph, 3, cuts), DDP_OK);
    ck_assert_int_eq(stages.piece_count, 4);
    ck_assert_str_eq(ddp_graph_parameter_at(graph, stages.shared)->name, "wte.weight");
    ck_assert_int_eq(stages.pieces[0].stage, 2);
    ck_assert_int_eq(stages.pieces[0].range.end, 1);
    for (int i = 1; i < 4; i++) {
        ck_assert_int_eq(stages.pieces[i].stage, i - 1);
        ck_assert_int_eq(stages.pieces[i].range.first, stages.pieces[i - 1].range.end);
    }
    ck_assert_int_eq(stages.pieces[3].range.end, ddp_graph_operation_count(graph));
    cuts[0] = 1; /* then the first stage would have the embedding alone */
    ck_assert_int_eq(ddp_stages_make(&stages, graph, 3, cuts), DDP_ERR_INVALID);
    ddp_graph_destroy(graph);
}
END_TEST

/* A weight that operations in the middle share cannot be in two stages. */
START_TEST(other_shared_weights_are_refused)
{
    const int64_t shape[2] = {4, 4}, labels[1] = {4};
    ddp_graph *graph;
    struct ddp_stages stages;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, shape);
    ddp_tensor *y = ddp_graph_input(graph, "labels", DDP_I32, 1, labels);
    ddp_tensor *w =
        ddp_graph_parameter(graph, "w", 2, shape, (struct ddp_init){.kind = DDP_INIT_ONES});
    for (int i = 0; i < 4; i++)
        x = ddp_graph_linear(graph, x, w, NULL, DDP_ACTIVATION_NONE);
    ck_assert_int_eq(ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, y)),
                     DDP_OK);
    ck_assert_int_eq(ddp_stages_make(&stages, graph, 2, (int[]){2}), DDP_ERR_UNSUPPORTED);
    ck_assert_int_eq(ddp_stages_make(&stages, graph, 3, (int[]){1, 2}), DDP_ERR_UNSUPPORTED);
    ddp_graph_destroy(graph);
}
END_TEST

START_TEST(cuts_are_checked)
{
    ddp_graph *graph = gpt2();
    struct ddp_stages stages;
    const int end = ddp_graph_network_count(graph);
    int cuts[DDP_STAGES_MAX];
    const struct {
        int count, cuts[2];
    } bad[] = {{1, {0}}, {2, {0}}, {2, {end}}, {2, {-1}}, {3, {4, 4}}, {3, {5, 4}}, {3, {4, end}}};
    static const char *const lists[] = {"",        ",",       "h.1",          "h.1,", "h.2,h.1",
                                        "h.1,h.1", "h.1,h.9", "h.1,h.2,ln_f", ",h.1", "h.1 ,h.2"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(ddp_stages_make(&stages, graph, bad[i].count, bad[i].cuts),
                         DDP_ERR_INVALID);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        ck_assert_msg(ddp_stages_parse(graph, lists[i], 3, cuts) == DDP_ERR_INVALID,
                      "\"%s\" is accepted", lists[i]);
    ck_assert_int_eq(ddp_stages_estimate(graph, end + 1, cuts), DDP_ERR_INVALID);
    ddp_graph_destroy(graph);
}
END_TEST

/* Whether timed or estimated, cuts are valid, and the head's stage has fewer blocks. */
START_TEST(cuts_are_found)
{
    ddp_graph *graph = gpt2();
    ddp_device *device;
    struct ddp_stages stages;
    int cuts[MOST_STAGES];
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    for (int count = 2; count <= MOST_STAGES; count++) {
        ck_assert_int_eq(ddp_stages_estimate(graph, count, cuts), DDP_OK);
        ck_assert_int_eq(ddp_stages_make(&stages, graph, count, cuts), DDP_OK);
        ck_assert_int_eq(ddp_stages_balance(graph, device, count, cuts), DDP_OK);
        ck_assert_int_eq(ddp_stages_make(&stages, graph, count, cuts), DDP_OK);
    }
    ddp_device_close(device);
    ddp_graph_destroy(graph);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("pipeline");
    TCase *tc = test_case(suite, "passes", 60);
    tcase_add_loop_test(tc, passes_fit_together, 0, 2 * (MOST_STAGES - 1));
    tcase_add_test(tc, the_order_is_1f1b);
    tc = test_case(suite, "cuts", 60);
    tcase_add_test(tc, a_shared_weight_is_in_one_stage);
    tcase_add_test(tc, other_shared_weights_are_refused);
    tcase_add_test(tc, cuts_are_checked);
    tcase_add_test(tc, cuts_are_found);
    return suite;
}
