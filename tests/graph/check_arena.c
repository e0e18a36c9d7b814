/* SPDX-License-Identifier: MIT
 *
 * The memory plan of graphs. */
#include "config.h"

#include "tests/graph/graph_test.h"
#include "tests/lib/model_option.h"
#include "tests/lib/runner.h"

static void plan_is_disjoint(const ddp_graph *graph, unsigned parts)
{
    struct ddp_graph_plan plan;
    size_t sum = 0;
    ck_assert_int_eq(ddp_graph_plan_make(graph, parts, &plan), DDP_OK);
    for (int i = 0; i < plan.item_count; i++) {
        const struct placement *a = &plan.items[i];
        sum += a->bytes;
        ck_assert_uint_le(a->offset + a->bytes, plan.bytes);
        ck_assert_int_le(a->first, a->last);
        for (int j = 0; j < i; j++) {
            const struct placement *b = &plan.items[j];
            bool time = a->first <= b->last && b->first <= a->last;
            bool place = a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            ck_assert_msg(!(time && place), "parts %u: %d and %d overlap", parts, i, j);
        }
    }
    if (parts == (DDP_EXEC_NETWORK | DDP_EXEC_LOSS))
        ck_assert_uint_lt(plan.bytes, sum); /* without backward, memory is used again */
    ddp_graph_plan_free(&plan);
}

/* What overlaps in time must not overlap in memory, for every combination of parts. */
START_TEST(plan_never_overlaps)
{
    ddp_graph *graph;
    struct ddp_model_config deep = small;
    set_model_option(&deep, &ddp_model_mlp, "hidden", "3,14,25,3,14,25");
    for (int m = 0; m < 2; m++) {
        ck_assert_int_eq(ddp_model_build(&graph, m ? &sharing : &ddp_model_mlp, &deep), DDP_OK);
        for (unsigned parts = 1; parts <= ALL_PARTS; parts++)
            plan_is_disjoint(graph, parts);
        ddp_graph_destroy(graph);
    }
}
END_TEST

/* A norm that is done together with the sum before it is written while that sum's inputs are read.
 */
START_TEST(fused_norms_begin_with_their_sums)
{
    ddp_graph *graph;
    struct ddp_graph_plan plan;
    int fused = 0;
    ck_assert_int_eq(ddp_model_build(&graph, &sharing, &small), DDP_OK);
    for (int n = 0; n < graph->node_count; n++)
        ck_assert(!ddp_graph_fuses(graph, n));
    ddp_graph_set_offers(graph, &(struct ddp_graph_offers){.fuses_norms = true});
    for (unsigned parts = 1; parts <= ALL_PARTS; parts++)
        plan_is_disjoint(graph, parts);
    ck_assert_int_eq(ddp_graph_plan_make(graph, ALL_PARTS, &plan), DDP_OK);
    for (int n = 0; n < graph->node_count; n++) {
        const struct node *sum = &graph->nodes[n], *norm = sum + 1;
        if (!ddp_graph_fuses(graph, n))
            continue;
        fused++;
        ck_assert_str_eq(norm->op->name, "layer_norm");
        ck_assert_int_eq(plan.items[plan.value[norm->output->id].forward].first, n);
        ck_assert_int_eq(plan.items[plan.saved[n + 1].forward].first, n);
        for (int i = 0; i < 2; i++)
            ck_assert_int_ge(plan.items[plan.value[sum->inputs[i]->id].forward].last, n);
    }
    ck_assert_int_eq(fused, 1);
    ddp_graph_plan_free(&plan);
    ddp_graph_destroy(graph);
}
END_TEST

/* GPT-2 124M of 4 x 1024 tokens: recomputed blocks take at most 0.35 of the memory. In every model
 * no two lives meet in one place. */
START_TEST(recomputation_shrinks_the_arena)
{
    struct ddp_model_config large = {
        .batch = 4, .dim_count = 1, .dims = {1024}, .classes = 50257, .size = "d12"};
    size_t bytes[2];
    ddp_graph *graph;
    ck_assert_int_eq(ddp_model_configure(&ddp_model_gpt2, &large), DDP_OK);
    ck_assert_int_eq(ddp_model_build(&graph, &ddp_model_gpt2, &large), DDP_OK);
    ck_assert_int_eq(ddp_graph_block_count(graph), 12);
    for (int i = 0; i < 2; i++) {
        ddp_graph_set_recompute(graph, i);
        ck_assert_int_eq(ddp_exec_arena_bytes(graph, ALL_PARTS, &bytes[i]), DDP_OK);
    }
    for (int fuses = 0; fuses < 2; fuses++) {
        ddp_graph_set_offers(graph, &(struct ddp_graph_offers){.fuses_norms = fuses});
        for (unsigned parts = 1; parts <= ALL_PARTS; parts++)
            plan_is_disjoint(graph, parts);
    }
    ck_assert_double_lt((double)bytes[1], 0.35 * (double)bytes[0]);
    ddp_graph_destroy(graph);
}
END_TEST

/* A block's sum is computed again from two values that backward itself does not read: they, and no
 * others, are kept; what it makes lives twice, and nothing lives again that is not needed. */
START_TEST(recomputation_keeps_what_it_reads)
{
    ddp_graph *graph;
    struct ddp_graph_plan plan;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_tensor *in = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){2, 3});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 1, (int64_t[]){2});
    ddp_tensor *p = ddp_graph_linear_layer(graph, "p", in, 3, true, DDP_ACTIVATION_NONE);
    ddp_tensor *q = ddp_graph_linear_layer(graph, "q", in, 3, true, DDP_ACTIVATION_NONE);
    ddp_graph_begin_block(graph);
    ddp_tensor *sum = ddp_graph_add(graph, p, q);
    ddp_tensor *y = ddp_graph_linear_layer(graph, "y", sum, 3, true, DDP_ACTIVATION_NONE);
    ddp_graph_end_block(graph);
    ddp_tensor *z = ddp_graph_linear_layer(graph, "z", y, 3, true, DDP_ACTIVATION_NONE);
    ck_assert_int_eq(ddp_graph_finish(graph, z, ddp_graph_softmax_cross_entropy(graph, z, labels)),
                     DDP_OK);
    ddp_graph_set_recompute(graph, true);
    ck_assert_int_eq(ddp_graph_plan_make(graph, ALL_PARTS, &plan), DDP_OK);
    int again = -1;
    for (int i = 0; i < plan.backward_count; i++)
        if (plan.backward[i] < 0) {
            ck_assert_int_eq(again, -1);
            again = graph->node_count + i;
            ck_assert_ptr_eq(graph->nodes[~plan.backward[i]].output, sum);
        }
    ck_assert_int_ge(again, 0);
    ck_assert_int_ge(plan.value[sum->id].again, 0);
    ck_assert_int_lt(plan.items[plan.value[sum->id].forward].last, again);
    ck_assert_int_ge(plan.items[plan.value[p->id].forward].last, again);
    ck_assert_int_ge(plan.items[plan.value[q->id].forward].last, again);
    ck_assert_int_lt(plan.value[y->id].again, 0);
    ddp_graph_plan_free(&plan);
    ddp_graph_destroy(graph);
}
END_TEST

/* GPT-2 124M of 4 x 1024 tokens: with bf16 activations the arena is about half as large. */
START_TEST(bf16_activations_halve_the_arena)
{
    struct ddp_model_config config = {.batch = 4,
                                      .dim_count = 1,
                                      .dims = {1024},
                                      .classes = 50257,
                                      .size = "d12",
                                      .compute = DDP_BF16};
    size_t bytes[2];
    ck_assert_int_eq(ddp_model_configure(&ddp_model_gpt2, &config), DDP_OK);
    for (int i = 0; i < 2; i++) {
        ddp_graph *graph;
        config.activations = i ? DDP_BF16 : DDP_F32;
        ck_assert_int_eq(ddp_model_build(&graph, &ddp_model_gpt2, &config), DDP_OK);
        ck_assert_int_eq(ddp_exec_arena_bytes(graph, ALL_PARTS, &bytes[i]), DDP_OK);
        for (int n = 0; n < graph->node_count; n++)
            ck_assert_int_eq(graph->nodes[n].output->dtype,
                             i && graph->nodes[n].output != graph->loss ? DDP_BF16 : DDP_F32);
        ddp_graph_destroy(graph);
    }
    ck_assert_uint_gt(bytes[1], bytes[0] * 2 / 5);
    ck_assert_uint_lt(bytes[1], bytes[0] * 52 / 100);
}
END_TEST

/* The residual connections of a transformer's block cost no memory for gradients: both inputs of a
 * join share its output's. A join of a join may not. */
START_TEST(joins_share_gradients)
{
    ddp_graph *graph;
    struct ddp_graph_plan plan;
    int shared = 0, joins = 0;
    ck_assert_int_eq(ddp_model_build(&graph, &sharing, &small), DDP_OK);
    ck_assert_int_eq(ddp_graph_plan_make(graph, ALL_PARTS, &plan), DDP_OK);
    for (int n = 0; n < graph->node_count; n++) {
        const struct node *node = &graph->nodes[n];
        if (!node->op->joins)
            continue;
        joins++;
        shared += plan.gradient[node->inputs[0]->id] == plan.gradient[node->output->id];
        shared += plan.gradient[node->inputs[1]->id] == plan.gradient[node->output->id];
    }
    ck_assert_int_eq(joins, 5);
    ck_assert_int_ge(shared, 4);
    ddp_graph_plan_free(&plan);
    ddp_graph_destroy(graph);
}
END_TEST

/* Elementwise gradients cost no memory: SwiGLU's go where the values of its inputs were, of which
 * nothing is needed any more, in the life that backward sees; those of rotations stay where they
 * are. The table is there all the time. */
START_TEST(elementwise_gradients_take_a_place)
{
    ddp_graph *graph;
    struct ddp_graph_plan plan;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    ddp_tensor *in = ddp_graph_input(graph, "x", DDP_F32, 3, (int64_t[]){1, 2, 6});
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 2, (int64_t[]){1, 2});
    ddp_tensor *table = ddp_graph_rope_table(graph, 2, 2, (const float[]){1}, 1);
    ddp_graph_begin_block(graph);
    ddp_tensor *q = ddp_graph_linear_layer(graph, "q", in, 6, true, DDP_ACTIVATION_NONE);
    ddp_tensor *turned = ddp_graph_rope(graph, q, 3, table);
    ddp_tensor *gate = ddp_graph_linear_layer(graph, "gate", turned, 8, true, DDP_ACTIVATION_NONE);
    ddp_tensor *up = ddp_graph_linear_layer(graph, "up", turned, 8, true, DDP_ACTIVATION_NONE);
    ddp_tensor *y = ddp_graph_swiglu(graph, gate, up);
    y = ddp_graph_linear_layer(graph, "down", y, 3, true, DDP_ACTIVATION_NONE);
    ddp_graph_end_block(graph);
    ddp_tensor *z = ddp_graph_linear_layer(graph, "z", y, 3, true, DDP_ACTIVATION_NONE);
    ck_assert_int_eq(ddp_graph_finish(graph, z, ddp_graph_softmax_cross_entropy(graph, z, labels)),
                     DDP_OK);
    for (int recompute = 0; recompute < 2; recompute++) {
        ddp_graph_set_recompute(graph, recompute);
        for (unsigned parts = 1; parts <= ALL_PARTS; parts++)
            plan_is_disjoint(graph, parts);
        ck_assert_int_eq(ddp_graph_plan_make(graph, ALL_PARTS, &plan), DDP_OK);
        const struct lives *gates = &plan.value[gate->id], *ups = &plan.value[up->id];
        ck_assert(recompute == (gates->again >= 0) && recompute == (ups->again >= 0));
        ck_assert_int_eq(plan.gradient[gate->id], recompute ? gates->again : gates->forward);
        ck_assert_int_eq(plan.gradient[up->id], recompute ? ups->again : ups->forward);
        ck_assert_int_eq(plan.gradient[q->id], plan.gradient[turned->id]);
        ck_assert_int_eq(plan.value[q->id].forward, plan.value[turned->id].forward);
        const struct placement *kept = &plan.items[plan.value[table->id].forward];
        for (int i = 0; i < plan.item_count; i++)
            ck_assert(kept->first <= plan.items[i].first && kept->last >= plan.items[i].last);
        ddp_graph_plan_free(&plan);
    }
    ddp_graph_destroy(graph);
}
END_TEST

/* Beside a frozen weight what costs little is made again of what is kept anyway: a norm, since its
 * backward reads what it normed, and SwiGLU; not a rotation of what nothing else keeps. */
START_TEST(what_costs_little_is_made_again)
{
    for (int frozen = 0; frozen < 2; frozen++) {
        ddp_graph *graph;
        struct ddp_graph_plan plan;
        ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
        ddp_tensor *in = ddp_graph_input(graph, "x", DDP_F32, 3, (int64_t[]){1, 2, 6});
        ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 2, (int64_t[]){1, 2});
        ddp_tensor *table = ddp_graph_rope_table(graph, 2, 2, (const float[]){1}, 1);
        ddp_tensor *x = ddp_graph_linear_layer(graph, "in", in, 6, false, DDP_ACTIVATION_NONE);
        ddp_graph_begin_block(graph);
        ddp_tensor *normed = ddp_graph_rms_norm_layer(graph, "norm", x, 1e-5f);
        if (frozen)
            ddp_graph_begin_frozen(graph, DDP_F32);
        ddp_tensor *q = ddp_graph_linear_layer(graph, "q", normed, 6, false, DDP_ACTIVATION_NONE);
        if (frozen)
            ddp_graph_end_frozen(graph);
        ddp_tensor *turned = ddp_graph_rope(graph, q, 3, table);
        ddp_tensor *k = ddp_graph_linear_layer(graph, "k", normed, 6, false, DDP_ACTIVATION_NONE);
        ddp_tensor *sum = ddp_graph_swiglu(graph, turned, k);
        ddp_tensor *y = ddp_graph_linear_layer(graph, "y", sum, 3, false, DDP_ACTIVATION_NONE);
        ddp_graph_end_block(graph);
        ck_assert_int_eq(
            ddp_graph_finish(graph, y, ddp_graph_softmax_cross_entropy(graph, y, labels)), DDP_OK);
        for (unsigned parts = 1; parts <= ALL_PARTS; parts++)
            plan_is_disjoint(graph, parts);
        ck_assert_int_eq(ddp_graph_plan_make(graph, ALL_PARTS, &plan), DDP_OK);
        ck_assert_int_eq(plan.value[normed->id].again >= 0, frozen);
        ck_assert_int_eq(plan.value[sum->id].again >= 0, frozen);
        ck_assert_int_lt(plan.value[turned->id].again, 0);
        ck_assert_int_lt(plan.value[k->id].again, 0);
        ddp_graph_plan_free(&plan);
        ddp_graph_destroy(graph);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("arena");
    TCase *tc = test_case(suite, "arena", 60);
    tcase_add_test(tc, plan_never_overlaps);
    tcase_add_test(tc, fused_norms_begin_with_their_sums);
    tcase_add_test(tc, recomputation_shrinks_the_arena);
    tcase_add_test(tc, recomputation_keeps_what_it_reads);
    tcase_add_test(tc, bf16_activations_halve_the_arena);
    tcase_add_test(tc, joins_share_gradients);
    tcase_add_test(tc, elementwise_gradients_take_a_place);
    tcase_add_test(tc, what_costs_little_is_made_again);
    return suite;
}
