/* SPDX-License-Identifier: MIT
 *
 * The frequencies of rotary positions: against those of transformers, and what is refused. The
 * table of a graph: its numbers, and the graph's rotations by it. */
#include "config.h"

#include "graph/internal.h"
#include "model/rope.h"
#include "tests/lib/golden.h"
#include "tests/lib/runner.h"

#include <math.h>
#include <string.h>

static struct ddp_rope rope_of(const struct golden *g)
{
    double n[11];
    for (int i = 1; i <= 10; i++)
        n[i] = strtod(g->words[i], NULL);
    return (struct ddp_rope){.kind = (int64_t)n[1],
                             .size = (int64_t)n[2],
                             .original = (int64_t)n[3],
                             .theta = n[4],
                             .factor = n[5],
                             .low_factor = n[6],
                             .high_factor = n[7],
                             .beta_fast = n[8],
                             .beta_slow = n[9],
                             .attention_factor = 1,
                             .untruncated = n[10] != 0};
}

/* PyTorch's powers are off by a unit in the last place now and then, and what follows rounds. */
START_TEST(frequencies_are_those_of_transformers)
{
    FILE *file = golden_open("model/golden/rope.txt");
    struct golden g;
    int cases = 0;
    for (; golden_next(file, &g); cases++) {
        const struct ddp_rope rope = rope_of(&g);
        float *frequencies = malloc((size_t)rope.size / 2 * sizeof *frequencies);
        ck_assert_ptr_nonnull(frequencies);
        ck_assert_int_eq(g.answer_count, rope.size / 2);
        ck_assert_int_eq(ddp_rope_frequencies(&rope, frequencies), DDP_OK);
        for (int i = 0; i < g.answer_count; i++) {
            const uint32_t bits = (uint32_t)strtoul(g.answer[i], NULL, 16);
            float expected;
            memcpy(&expected, &bits, sizeof expected);
            ck_assert_msg(fabs((double)frequencies[i] / (double)expected - 1) <= 0x1p-22,
                          "%s: frequency %d is %.9g, not %.9g", g.name, i, (double)frequencies[i],
                          (double)expected);
        }
        free(frequencies);
        golden_free(&g);
    }
    fclose(file);
    ck_assert_int_ge(cases, 20);
}
END_TEST

START_TEST(bad_numbers_are_refused)
{
    const struct ddp_rope good = {.kind = DDP_ROPE_YARN,
                                  .size = 8,
                                  .original = 16,
                                  .theta = 1e4,
                                  .factor = 4,
                                  .low_factor = 1,
                                  .high_factor = 4,
                                  .beta_fast = 32,
                                  .beta_slow = 1};
    struct ddp_rope bad[18];
    float frequencies[4];
    ck_assert_int_eq(ddp_rope_frequencies(&good, frequencies), DDP_OK);
    for (int i = 0; i < 18; i++)
        bad[i] = good;
    bad[0].kind = -1;
    bad[1].kind = 4;
    bad[2].size = 0;
    bad[3].size = 7;
    bad[4].theta = 0;
    bad[5].theta = NAN;
    bad[6].theta = INFINITY;
    bad[7].factor = 0;
    bad[8].factor = NAN;
    bad[9].original = 0;
    bad[10].beta_slow = 0;
    bad[11].beta_fast = 0.5;
    bad[12].beta_fast = INFINITY;
    for (int i = 13; i < 18; i++)
        bad[i].kind = DDP_ROPE_LLAMA3;
    bad[13].original = -1;
    bad[14].low_factor = 0;
    bad[15].high_factor = 1;
    bad[16].high_factor = NAN;
    bad[17].factor = INFINITY;
    for (int i = 0; i < 18; i++)
        ck_assert_msg(ddp_rope_frequencies(&bad[i], frequencies) == DDP_ERR_INVALID, "case %d", i);
}
END_TEST

static ddp_graph *graph_of(void)
{
    ddp_graph *graph;
    ck_assert_int_eq(ddp_graph_create(&graph), DDP_OK);
    return graph;
}

START_TEST(the_table_has_cosines_and_sines)
{
    const float frequencies[] = {1, 0.1f, 0.01f};
    ddp_graph *graph = graph_of();
    const ddp_tensor *table = ddp_graph_rope_table(graph, 1000, 6, frequencies, 1.25f);
    ck_assert_ptr_nonnull(table);
    ck_assert(table->dims[0] == 1000 && table->dims[1] == 6);
    for (int64_t p = 0; p < 1000; p++)
        for (int i = 0; i < 3; i++) {
            const double angle = (double)((float)p * frequencies[i]);
            ck_assert_double_eq_tol((double)table->values[p * 6 + i], 1.25 * cos(angle), 2e-7);
            ck_assert_double_eq_tol((double)table->values[p * 6 + 3 + i], 1.25 * sin(angle), 2e-7);
        }
    ddp_graph_destroy(graph);
}
END_TEST

/* Forward of a graph that only rotates what an embedding gives, with and without a cache. */
START_TEST(positions_go_on_behind_a_cache)
{
    enum { B = 2, T = 3, H = 2, D = 4, C = H * D, P = 8 };
    const float frequencies[] = {1, 0.3f};
    const int32_t zeros[B * T] = {0};
    ddp_graph *graph = graph_of();
    ddp_tensor *tokens = ddp_graph_input(graph, "tokens", DDP_I32, 2, (int64_t[]){B, T});
    ddp_tensor *wte = ddp_graph_parameter(graph, "wte", 2, (int64_t[]){1, C},
                                          (struct ddp_init){.kind = DDP_INIT_ONES});
    ddp_tensor *table = ddp_graph_rope_table(graph, P, D, frequencies, 1);
    ddp_tensor *y = ddp_graph_embedding(graph, tokens, wte, NULL);
    y = ddp_graph_rope(graph, _i ? ddp_graph_reshape(graph, y, 4, (int64_t[]){B, T, H, D}) : y, H,
                       table);
    ck_assert_int_eq(ddp_graph_finish(graph, y, ddp_graph_sum(graph, y)), DDP_OK);
    float weights[DDP_FLAT_ALIGN + C + DDP_FLAT_ALIGN];
    ddp_device *device;
    ddp_exec *exec;
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        weights[i] = 1;
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    ck_assert_int_eq(ddp_exec_create(&exec, graph, device, DDP_EXEC_NETWORK, weights), DDP_OK);
    ddp_exec_bind_input(exec, 0, zeros);
    float cache[1] = {0};
    for (int past = 0; past <= P - T + 1; past++) {
        const struct ddp_exec_cache where = {.memory = cache, .capacity = P, .past = past};
        ddp_exec_set_cache(exec, past ? &where : NULL);
        const enum ddp_status status = ddp_exec_forward(exec);
        ck_assert_int_eq(status, past > P - T ? DDP_ERR_INVALID : DDP_OK);
        const float *values = ddp_exec_output(exec);
        for (int i = 0; status == DDP_OK && i < B * T * C; i++) {
            const int t = i / C % T, d = i % D;
            const double angle = (double)((float)(past + t) * frequencies[d % 2]);
            const double expected = d < 2 ? cos(angle) - sin(angle) : cos(angle) + sin(angle);
            ck_assert_double_eq_tol((double)values[i], expected, 1e-6);
        }
    }
    ddp_exec_destroy(exec);
    ddp_device_close(device);
    ddp_graph_destroy(graph);
}
END_TEST

START_TEST(bad_graphs_are_refused)
{
    const float frequencies[] = {1, 0.3f};
    for (int way = 0; way < 10; way++) {
        ddp_graph *graph = graph_of();
        ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 3, (int64_t[]){2, 3, 8});
        ddp_tensor *flat = ddp_graph_reshape(graph, x, 2, (int64_t[]){6, 8});
        ddp_tensor *split = ddp_graph_reshape(graph, x, 4, (int64_t[]){2, 3, 4, 2});
        ddp_tensor *weight = ddp_graph_parameter(graph, "w", 2, (int64_t[]){3, 4},
                                                 (struct ddp_init){.kind = DDP_INIT_ZEROS});
        ddp_tensor *table = ddp_graph_rope_table(graph, way == 0 ? 2 : 3, way == 1 ? 3 : 4,
                                                 way == 2 ? NULL : frequencies, way == 3 ? NAN : 1);
        if (way == 9)
            table = ddp_graph_rope_table(graph, 0, 4, frequencies, 1);
        ck_assert((way == 0 || way > 3) == (graph->status == DDP_OK) || way == 9);
        ddp_tensor *y = ddp_graph_rope(graph,
                                       way == 4   ? flat
                                       : way == 5 ? split
                                                  : x,
                                       way == 6   ? 3
                                       : way == 7 ? 4
                                       : way == 5 ? 2
                                                  : 2,
                                       way == 8 ? weight : table);
        ck_assert_ptr_null(y);
        ck_assert_int_eq(graph->status, DDP_ERR_INVALID);
        ddp_graph_destroy(graph);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("rope");
    TCase *tc = tcase_create("rope");
    tcase_add_test(tc, frequencies_are_those_of_transformers);
    tcase_add_test(tc, bad_numbers_are_refused);
    tcase_add_test(tc, the_table_has_cosines_and_sines);
    tcase_add_loop_test(tc, positions_go_on_behind_a_cache, 0, 2);
    tcase_add_test(tc, bad_graphs_are_refused);
    suite_add_tcase(suite, tc);
    return suite;
}
