/* SPDX-License-Identifier: MIT
 *
 * The collectives over several machines, which are one here: what every communicator must do, with
 * the bits of the one tree however the ranks are spread; calls that differ; and ranks that die. */
#include "config.h"

#include "comm/comm.h"
#include "core/clock.h"
#include "core/log.h"
#include "job/job.h"
#include "tests/comm_ranks.h"
#include "tests/runner.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct {
    int nodes, per_node;
} shapes[] = {{2, 1}, {4, 1}, {2, 2}, {3, 1}, {2, 3}, {3, 2}, {3, 3}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static void run_shape(int shape, ranks_body *body)
{
    run_nodes(shapes[shape].nodes, shapes[shape].per_node, body, -1);
}

START_TEST(collectives)
{
    run_shape(_i, row_collectives);
}
END_TEST

START_TEST(overlap)
{
    run_shape(_i, row_overlap);
}
END_TEST

START_TEST(slices)
{
    run_shape(_i, row_slices);
}
END_TEST

START_TEST(returns)
{
    run_shape(_i, row_returns);
}
END_TEST

START_TEST(memory)
{
    run_nodes(2, 2, row_bf16, -1);
    run_nodes(3, 1, row_bf16, -1);
    run_nodes(2, 2, row_memory, -1);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("nodes");
    TCase *tc = test_case(suite, "nodes", 120);
    setenv("DDP_PLUGIN_PATH", ".libs", 0);
    tcase_add_loop_test(tc, collectives, 0, SHAPES);
    tcase_add_loop_test(tc, overlap, 0, SHAPES);
    tcase_add_loop_test(tc, slices, 0, SHAPES);
    tcase_add_loop_test(tc, returns, 0, SHAPES);
    tcase_add_test(tc, memory);
    return suite;
}
