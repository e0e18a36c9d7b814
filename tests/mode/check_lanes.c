/* SPDX-License-Identifier: MIT
 *
 * Lanes: how many there are, that a replica adds its shards up in them, and that modes and splits
 * with the same lanes end in the same bits. */
#include "config.h"

#include "tests/mode/mode_test.h"
#include "kernels/reduce.h"

/* The shard's gradients are written, or added to what is there. */
static void run_shard(ddp_exec *exec, const struct ddp_batch *batch, float *gradients, bool adding)
{
    ddp_exec_bind_input(exec, 0, batch->x);
    ddp_exec_bind_input(exec, 1, batch->labels);
    ddp_exec_set_gradients(exec, gradients);
    ddp_exec_set_adding(exec, adding);
    ck_assert_int_eq(ddp_exec_forward(exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss(exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_loss_backward(exec), DDP_OK);
    ck_assert_int_eq(ddp_exec_backward(exec, NULL, NULL), DDP_OK);
}

/* The gradients of the lanes, each lane alone; those of its shards, added up here, are near them.
 */
static void run_lanes_alone(float *const *alone, ddp_loader *loader, int64_t shards, int64_t count)
{
    const size_t elements = (size_t)ddp_graph_flat_count(graph);
    float *shard = calloc(elements, sizeof *shard), *sum = calloc(elements, sizeof *sum);
    ddp_device *device;
    ddp_exec *exec;
    ck_assert(shard && sum);
    ck_assert_int_eq(ddp_device_open(&device, "cpu", 0, 1), DDP_OK);
    ck_assert_int_eq(ddp_exec_create(&exec, graph, device, ALL_PARTS, weights), DDP_OK);
    for (int64_t s = 0; s < shards; s++) {
        const struct ddp_batch *batch;
        int64_t lane = 0;
        while (shards * (lane + 1) / count <= s) /* where the next one begins */
            lane++;
        const bool first = s == shards * lane / count;
        ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
        run_shard(exec, batch, shard, false);
        run_shard(exec, batch, alone[lane], !first);
        ddp_loader_release(loader, batch);
        for (size_t i = 0; i < elements; i++) {
            sum[i] = first ? shard[i] : sum[i] + shard[i];
            ck_assert_float_eq_tol(alone[lane][i], sum[i], 1e-4f);
        }
        ck_assert_float_eq(alone[lane][0], sum[0]); /* the loss */
    }
    free(shard);
    free(sum);
    ddp_exec_destroy(exec);
    ddp_device_close(device);
}

/* A replica adds its shards up one after another in each lane, and the lanes in the tree, loss
 * included, twice in a row. */
static void check_tree(int64_t shards, int64_t count_of_lanes)
{
    float *alone[SHARDS], *tree;
    struct ddp_replica replica = {0};
    lanes = count_of_lanes;
    open_setup(1, shards);
    lanes = 0;
    const size_t count = (size_t)ddp_graph_flat_count(graph);
    for (int64_t l = 0; l < count_of_lanes; l++)
        ck_assert_ptr_nonnull(alone[l] = calloc(count, sizeof(float)));
    ck_assert_ptr_nonnull(tree = calloc(count, sizeof(float)));
    ddp_loader *loader = open_loader();
    run_lanes_alone(alone, loader, shards, count_of_lanes);
    ddp_loader_destroy(loader);
    struct ddp_reduce reduce = {.source_count = (int)count_of_lanes,
                                .destination_count = 1,
                                .sources = (const void *const *)alone,
                                .destinations = (void *const[]){tree},
                                .count = (int64_t)count,
                                .dtype = DDP_F32,
                                .op = DDP_SUM};
    ck_assert_int_eq(ddp_reduce_reference(&reduce), DDP_OK);

    ck_assert_int_eq(ddp_replica_open(&replica, &setup, 0, ALL_PARTS, NULL), DDP_OK);
    for (int round = 0; round < 2; round++) {
        loader = open_loader();
        for (int64_t s = 0; s < shards; s++) {
            const struct ddp_batch *batch;
            ck_assert_int_eq(ddp_loader_next(loader, &batch), DDP_OK);
            ck_assert_int_eq(ddp_replica_bind(&replica, s, batch), DDP_OK);
            ck_assert_int_eq(ddp_replica_run(&replica, NULL, NULL), DDP_OK);
            ddp_loader_release(loader, batch);
        }
        ddp_loader_destroy(loader);
        ck_assert_msg(memcmp(replica.gradients, tree, count * sizeof(float)) == 0,
                      "%lld shards in %lld lanes, round %d: not the tree", (long long)shards,
                      (long long)count_of_lanes, round);
    }
    ddp_replica_close(&replica);
    for (int64_t l = 0; l < count_of_lanes; l++)
        free(alone[l]);
    free(tree);
    close_setup();
}

START_TEST(local_sum_is_the_tree)
{
    for (int64_t count = 1; count <= _i; count++)
        check_tree(_i, count);
}
END_TEST

/* As many as were asked for, where there are shards, and at least one for each unit. */
START_TEST(lanes_are_counted)
{
    ck_assert_int_eq(ddp_lanes_count(16, 8, 1), 8);
    ck_assert_int_eq(ddp_lanes_count(12, 8, 3), 8);
    ck_assert_int_eq(ddp_lanes_count(6, 8, 4), 6);
    ck_assert_int_eq(ddp_lanes_count(16, 8, 16), 16);
    ck_assert_int_eq(ddp_lanes_count(4, 1, 2), 2);
    ck_assert_int_eq(ddp_lanes_count(1000000, 1024, 1), 1024);
    ck_assert_int_eq(ddp_lanes_partials(1), 0);
    ck_assert_int_eq(ddp_lanes_partials(8), 3);
    ck_assert_int_eq(ddp_lanes_partials(5), 3);
    ck_assert_int_eq(ddp_lanes_partials(1024), 10);
}
END_TEST

/* Runs share all lanes and shards out, as evenly as possible, with the rooms that they need. */
START_TEST(runs_are_even)
{
    srand(1);
    for (int i = 0; i < 400; i++) {
        const int64_t shards = 1 + rand() % 2000, most = shards < 1024 ? shards : 1024;
        const int64_t count = 1 + rand() % most, units = 1 + rand() % count;
        const struct ddp_lanes_room room = ddp_lanes_room(shards, count, units);
        int64_t lane = 0, shard = 0;
        int roots = 0;
        for (int64_t unit = 0; unit < units; unit++) {
            const struct ddp_lanes_run run = ddp_lanes_run_of(shards, count, units, unit);
            int ends[DDP_REDUCE_ROOTS];
            const int own = ddp_lanes_roots(&run, ends);
            ck_assert_int_eq(run.first, lane);
            ck_assert_int_ge(run.end - run.first, count / units);
            ck_assert_int_le(run.end - run.first, (count + units - 1) / units);
            ck_assert_int_eq(ddp_lanes_first_shard(&run), shard);
            ck_assert_int_le(own, room.roots);
            ck_assert_int_eq(ends[own - 1], run.end);
            lane = run.end;
            shard += ddp_lanes_shards(&run);
            roots += own;
        }
        ck_assert_int_eq(lane, count);
        ck_assert_int_eq(shard, shards);
        ck_assert_int_eq(roots, room.exchanged);
    }
    const struct ddp_lanes_room three = ddp_lanes_room(16, 8, 3), one = ddp_lanes_room(16, 8, 1);
    ck_assert(three.roots == 2 && three.partials == 1 && three.exchanged == 5);
    ck_assert(one.roots == 1 && one.partials == 3 && one.exchanged == 1);
    /* Written by the last pass alone: lanes of one shard, at most two of them in the last root. */
    ck_assert_int_eq(three.kept, 2);
    ck_assert_int_eq(ddp_lanes_room(8, 8, 8).kept, 0);
    ck_assert_int_eq(ddp_lanes_room(8, 8, 4).kept, 0);
    ck_assert_int_eq(ddp_lanes_room(8, 8, 3).kept, 1);
    ck_assert_int_eq(ddp_lanes_room(8, 8, 2).kept, 1);
    ck_assert_int_eq(ddp_lanes_room(8, 4, 4).kept, 1);
}
END_TEST

/* A unit in the middle has several roots; alone it adds them up from the right. */
START_TEST(unit_adds_its_roots_up)
{
    struct ddp_replica replica = {0};
    open_setup(1, 21);
    setup.run = ddp_lanes_run_of(64, 64, 3, 1);
    ck_assert_int_eq(ddp_replica_open(&replica, &setup, 0, ALL_PARTS, NULL), DDP_OK);
    ddp_loader *loader = open_loader();
    ck_assert_int_eq(ddp_replica_run_shards(&replica, loader, NULL, NULL), DDP_OK);
    ddp_loader_destroy(loader);
    const int64_t count = replica.flat_count, stride = ddp_lanes_stride(count);
    float *sum = calloc((size_t)count, sizeof *sum);
    ck_assert_ptr_nonnull(sum);
    ck_assert_int_eq(replica.lanes.root_end[4], replica.lanes.run.end);
    for (int64_t i = 0; i < count; i++) {
        sum[i] = replica.gradients[4 * stride + i];
        for (int root = 3; root >= 0; root--)
            sum[i] = replica.gradients[root * stride + i] + sum[i];
    }
    ck_assert_int_eq(ddp_lanes_sum(&replica.lanes, 0, 16), DDP_OK);
    ck_assert_int_eq(ddp_lanes_sum(&replica.lanes, 16, count), DDP_OK);
    ck_assert_mem_eq(replica.gradients, sum, (size_t)count * sizeof *sum);
    free(sum);
    ddp_replica_close(&replica);
    close_setup();
}
END_TEST

/* The same with fewer lanes than shards, over units that have whole lanes. */
START_TEST(lanes_end_in_the_same_bits)
{
    const int64_t shards = _i;
    update = (int)shards % 3;
    for (int64_t wanted = 1; wanted < shards; wanted *= 2) {
        lanes = wanted;
        struct result accum = train(DDP_MODE_ACCUM, 1, shards), other;
        other = train(DDP_MODE_DDP, 1, shards);
        same(&accum, &other, "ddp", shards);
        for (int units = 2; units <= wanted; units *= 2) {
            if (shards % units)
                continue;
            other = train(DDP_MODE_DP, units, shards / units);
            same(&accum, &other, "dp", shards);
        }
    }
    lanes = 0;
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("lanes");
    TCase *tc = test_case(suite, "lanes", 60);
    tcase_add_checked_fixture(tc, open_job, close_job);
    tcase_add_test(tc, lanes_are_counted);
    tcase_add_test(tc, runs_are_even);
    tcase_add_test(tc, unit_adds_its_roots_up);
    tcase_add_loop_test(tc, local_sum_is_the_tree, 1, SHARDS + 1);
    tcase_add_loop_test(tc, lanes_end_in_the_same_bits, 1, 13);
    return suite;
}
