/* SPDX-License-Identifier: MIT
 *
 * Stages of graphs: in pieces each model leaves the bits that it leaves whole. */
#include "config.h"

#include "graph/scan.h"
#include "tests/graph/graph_test.h"
#include "tests/graph/stage_test.h"

static const struct subject subjects[] = {
    {&ddp_model_mlp, {"hidden", "9,8,7"}, {.batch = 5, .features = 7, .classes = 4}},
    {&ddp_model_cnn,
     {NULL},
     {.batch = 3, .features = 192, .dim_count = 3, .dims = {3, 8, 8}, .classes = 5}},
    {&ddp_model_resnet,
     {NULL},
     {.batch = 3, .features = 192, .dim_count = 3, .dims = {3, 8, 8}, .classes = 5, .size = "20"}},
    {&packed, {NULL}, {.batch = 3, .dim_count = 1, .dims = {4}, .classes = 7, .label_count = 4}},
    {&ddp_model_gpt2,
     {"layers", "2", "heads", "2", "channels", "16", "dropout", "0.2"},
     {.batch = 2, .dim_count = 1, .dims = {6}, .classes = 61, .label_count = 6}},
};
enum { SUBJECTS = sizeof subjects / sizeof *subjects, RESNET = 2, GPT2 = SUBJECTS - 1 };

static const struct way ways[] = {
    {.device = "cpu"},
    {.device = "cpu", .recomputes = true, .in_flight = true},
    {.device = "cpu", .compute = DDP_BF16, .recomputes = true, .fuses = true},
    {.device = "cpu", .compute = DDP_BF16, .in_flight = true},
    {.device = "cpu", .forward_only = true},
};
enum { WAYS = sizeof ways / sizeof *ways };

/* For the model with most layers each way tries a third of the cuts; together they try all. */
START_TEST(every_cut_of_every_model)
{
    for (int way = 0; way < WAYS; way++)
        if (_i == RESNET)
            compare_cuts(&subjects[_i], &ways[way], 1 + way % 3, 3);
        else
            compare_every_cut(&subjects[_i], &ways[way]);
}
END_TEST

START_TEST(many_cuts_of_every_model)
{
    chance = (uint64_t)_i + 1;
    for (int way = 0; way < WAYS; way++)
        for (int count = 3 + (_i == RESNET && way % 2); count <= MOST_PIECES;
             count += _i == RESNET ? 2 : 1)
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
    const struct subject subject = {.model = _i ? &sharing_head : &sharing, .config = small};
    for (int way = 0; way < WAYS; way++) {
        compare_every_cut(&subject, &ways[way]);
        for (int count = 3; count <= MOST_PIECES; count++)
            compare_some_cuts(&subject, &ways[way], count);
    }
}
END_TEST

/* Multiplies by 2, as the program's own operation. */
static enum ddp_status twice_forward(void *arg, const struct ddp_custom_pass *pass)
{
    const float *x = pass->inputs[0].values;
    (void)arg;
    for (int64_t i = 0; i < pass->output_count; i++)
        pass->output[i] = 2 * x[i];
    return DDP_OK;
}

static enum ddp_status twice_backward(void *arg, const struct ddp_custom_pass *pass)
{
    (void)arg;
    for (int64_t i = 0; i < pass->output_count; i++)
        pass->inputs[0].gradients[i] = 2 * pass->output_gradients[i];
    return DDP_OK;
}

static ddp_tensor *twice(ddp_graph *graph, ddp_tensor *x)
{
    struct ddp_custom_op op = DDP_CUSTOM_OP_INIT;
    op.name = "twice";
    op.input_count = 1;
    op.inputs[0] = x;
    op.dim_count = 2;
    memcpy(op.dims, ddp_graph_dims(x), 2 * sizeof *op.dims);
    op.forward = twice_forward;
    op.backward = twice_backward;
    return ddp_graph_custom(graph, &op);
}

/* Numbers as targets, the program's own operations, a result that needs no gradient, a weight that
 * is made in another shape, a loss that reads what is made before the output, which is a view. */
static enum ddp_status build_odd(ddp_graph *graph, const struct ddp_model_config *config)
{
    const int64_t batch = config->batch, features = config->features;
    const struct ddp_init normal = {.kind = DDP_INIT_NORMAL, .std = 0.5};
    ddp_tensor *x = ddp_graph_input(graph, "x", DDP_F32, 2, (int64_t[]){batch, features});
    ddp_tensor *targets = ddp_graph_input(graph, "targets", DDP_F32, 2, (int64_t[]){batch, 6});
    ddp_tensor *weight = ddp_graph_parameter(graph, "w", 1, (int64_t[]){6 * features}, normal);
    weight = ddp_graph_reshape(graph, weight, 2, (int64_t[]){6, features});
    ddp_tensor *fixed = twice(graph, x);
    x = ddp_graph_linear(graph, x, weight, NULL, DDP_ACTIVATION_NONE);
    ddp_tensor *y = twice(graph, x);
    y = ddp_graph_add(graph, y, x);
    ddp_tensor *side = ddp_graph_linear_layer(graph, "side", fixed, 6, true, DDP_ACTIVATION_NONE);
    y = ddp_graph_add(graph, y, side);
    ddp_tensor *early = ddp_graph_linear_layer(graph, "a", y, 6, true, DDP_ACTIVATION_RELU);
    y = ddp_graph_linear_layer(graph, "b", twice(graph, early), 6, true, DDP_ACTIVATION_GELU);
    y = ddp_graph_reshape(graph, y, 3, (int64_t[]){batch, 2, 3});
    ddp_tensor *end = ddp_graph_reshape(graph, y, 2, (int64_t[]){batch, 6});
    end = ddp_graph_add(graph, end, early);
    return ddp_graph_finish(graph, y, ddp_graph_mse(graph, end, targets));
}

static const struct ddp_model odd = {.name = "odd", .build = build_odd};
static const struct subject odd_subject = {&odd, {NULL}, {.batch = 5, .features = 7, .classes = 4}};

START_TEST(odd_graphs)
{
    for (int way = 0; way < WAYS; way++) {
        struct way float32 = ways[way];
        float32.compute = DDP_F32;
        compare_every_cut(&odd_subject, &float32);
        for (int count = 3; count <= 5; count++)
            compare_some_cuts(&odd_subject, &float32, count);
    }
}
END_TEST

/* --- the interface --- */

static ddp_graph *tied_graph(const struct way *way)
{
    return build_subject(&subjects[GPT2], way);
}

/* Embedding and head on worker 0, the block between them on worker 1. */
static int tied_pieces(const ddp_graph *graph, struct piece *pieces)
{
    const int cuts[] = {1, ddp_graph_find_operation(graph, "h.1")};
    ck_assert_int_eq(pieces_of(graph, cuts, 2, pieces), 3);
    ck_assert_int_eq(pieces[2].worker, 0);
    ck_assert_int_eq(pieces[1].worker, 1);
    return 3;
}

/* What is said of the whole graph holds for a stage. */
START_TEST(a_stage_is_like_the_whole)
{
    for (int recomputes = 0; recomputes < 2; recomputes++) {
        struct way way = {.device = "cpu",
                          .compute = DDP_BF16,
                          .activations = DDP_BF16,
                          .recomputes = recomputes,
                          .fuses = recomputes};
        static size_t arena[2];
        ddp_graph *graph = tied_graph(&way), *part;
        const int begin = ddp_graph_find_operation(graph, "h.1");
        const struct ddp_graph_range range = {begin, ddp_graph_operation_count(graph)};
        ddp_graph_set_description(graph, "a model");
        ck_assert_int_eq(ddp_graph_make_stages(graph, &range, 1, &part), DDP_OK);
        ck_assert_str_eq(ddp_graph_description(part), "a model");
        ck_assert_int_eq(ddp_graph_compute(part), DDP_BF16);
        ck_assert_int_eq(ddp_graph_activations(part), DDP_BF16);
        ck_assert_int_eq(ddp_graph_block_count(part), 2);
        ck_assert_int_eq(ddp_graph_network_count(part), ddp_graph_operation_count(part) - 1);
        ck_assert_int_eq(ddp_graph_cache_width(part), ddp_graph_cache_width(graph));
        ck_assert_int_gt(part->dropout_count, 0);
        for (int n = begin; n < ddp_graph_network_count(graph); n++) {
            ck_assert(ddp_graph_fuses(part, n - begin + 1) == ddp_graph_fuses(graph, n));
            ck_assert_str_eq(ddp_graph_result_name(part, n - begin + 1),
                             ddp_graph_result_name(graph, n));
        }
        ck_assert_uint_eq(ddp_exec_graph_output_bytes(part), ddp_exec_graph_output_bytes(graph));
        ck_assert_int_eq(ddp_exec_arena_bytes(part, TRAINS, &arena[recomputes]), DDP_OK);
        ddp_graph_destroy(part);
        ddp_graph_destroy(graph);
        if (recomputes)
            ck_assert_uint_lt(arena[1], arena[0]);
    }
    struct way way = {.device = "cpu"};
    ddp_graph *graph = build_subject(&odd_subject, &way), *part;
    const struct ddp_graph_range range = {0, 3};
    ck_assert_int_eq(ddp_graph_make_stages(graph, &range, 1, &part), DDP_OK);
    ck_assert_int_eq(ddp_exec_check_device(part, "cuda"), DDP_ERR_UNSUPPORTED);
    ddp_graph_destroy(part);
    ddp_graph_destroy(graph);
}
END_TEST

/* Statistics, then the parameters of the last range first; of one range as in the whole graph; what
 * two ranges read is with the first. */
START_TEST(layout)
{
    struct way way = {.device = "cpu"};
    ddp_graph *graph = tied_graph(&way), *parts[2];
    struct piece pieces[MOST_PIECES];
    tied_pieces(graph, pieces);
    const struct ddp_graph_range ranges[] = {pieces[0].range, pieces[2].range};
    ck_assert_int_eq(ddp_graph_make_stages(graph, ranges, 2, parts), DDP_OK);
    const int count = ddp_graph_parameter_count(parts[0]);
    int64_t elements = 0, end = DDP_FLAT_ALIGN;
    ck_assert_int_eq(count, ddp_graph_parameter_count(parts[1]));
    ck_assert_int_eq(count, 2 + 12 + 2);
    for (int i = 0; i < count; i++) {
        const struct ddp_parameter *a = ddp_graph_parameter_at(parts[0], i);
        const struct ddp_parameter *b = ddp_graph_parameter_at(parts[1], i);
        ck_assert_str_eq(a->name, b->name);
        ck_assert_int_eq(a->offset, b->offset);
        elements += a->count;
        end = ddp_parameter_end(a) > end ? ddp_parameter_end(a) : end;
        if (i > 0)
            ck_assert_int_gt(ddp_graph_stage_source(parts[0], i),
                             ddp_graph_stage_source(parts[1], i - 1));
    }
    for (int p = 0; p < 2; p++) {
        ck_assert_int_eq(ddp_graph_flat_count(parts[p]), end);
        ck_assert_int_eq(ddp_graph_element_count(parts[p]), elements);
        ck_assert_int_eq(ddp_graph_statistics_count(parts[p]), 0);
    }
    /* wte and wpe come first in the table and last in the array, the last norm first there */
    ck_assert_str_eq(ddp_graph_parameter_at(parts[0], 0)->name, "wte.weight");
    ck_assert_int_gt(ddp_graph_parameter_at(parts[0], 0)->offset,
                     ddp_graph_parameter_at(parts[0], 2)->offset);
    ck_assert_str_eq(ddp_graph_parameter_at(parts[0], count - 2)->name, "ln_f.weight");
    ck_assert_int_eq(ddp_graph_parameter_at(parts[0], count - 2)->offset, DDP_FLAT_ALIGN);
    for (int p = 0; p < 2; p++)
        ddp_graph_destroy(parts[p]);
    ddp_graph_destroy(graph);
}
END_TEST

START_TEST(statistics_come_first)
{
    struct way way = {.device = "cpu"};
    ddp_graph *graph = build_subject(&subjects[2], &way), *part;
    const struct ddp_graph_range range = {3, 9};
    int statistics = 0;
    ck_assert_int_eq(ddp_graph_make_stages(graph, &range, 1, &part), DDP_OK);
    const int64_t learned = DDP_FLAT_ALIGN + ddp_graph_statistics_count(part);
    for (int i = 0; i < ddp_graph_parameter_count(part); i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(part, i);
        statistics += parameter->statistic;
        ck_assert(parameter->statistic == (parameter->offset < learned));
        ck_assert(parameter->statistic || parameter->offset >= learned);
    }
    ck_assert_int_gt(statistics, 0);
    ddp_graph_destroy(part);
    ddp_graph_destroy(graph);
}
END_TEST

struct readiness {
    struct world *world;
    int worker, reports;
    int64_t end;
    unsigned char then[1 << 16]; /* the gradients when they were said to be ready */
};

static enum ddp_status note_ready(void *arg, int64_t end)
{
    struct readiness *ready = arg;
    const size_t begin = (size_t)ready->end * sizeof(float);
    ck_assert_int_gt(end, ready->end);
    ck_assert_uint_le((size_t)end * sizeof(float), sizeof ready->then);
    see(ready->world, ready->then + begin,
        (char *)ready->world->gradients[ready->worker].at + begin,
        (size_t)end * sizeof(float) - begin);
    ready->end = end;
    ready->reports++;
    return DDP_OK;
}

/* Of a worker with two pieces the second reports what it finishes, then the first the rest; nothing
 * changes after it was reported. */
START_TEST(gradients_become_ready_in_flat_order)
{
    struct way way = {.device = "cpu"};
    ddp_graph *graph = tied_graph(&way);
    struct piece pieces[MOST_PIECES];
    struct world w;
    struct readiness ready[2] = {{.world = &w, .worker = 0}, {.world = &w, .worker = 1}};
    int64_t after_last = 0;
    open_world(&w, &subjects[GPT2], &way, graph, pieces, tied_pieces(graph, pieces));
    run_forward(&w, 0, NULL);
    for (int p = 2; p >= 0; p--) {
        run_piece_backward(&w, p, 0, note_ready, &ready[pieces[p].worker]);
        after_last = p == 2 ? ready[0].end : after_last;
    }
    for (int i = 0; i < ddp_graph_parameter_count(w.graphs[0]); i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(w.graphs[0], i);
        ck_assert((strncmp(parameter->name, "wte.", 4) == 0 ||
                   strncmp(parameter->name, "wpe.", 4) == 0) == (parameter->offset >= after_last));
    }
    for (int worker = 0; worker < 2; worker++) {
        const ddp_graph *part = w.graphs[worker];
        const size_t bytes = (size_t)ddp_graph_flat_count(part) * sizeof(float);
        ck_assert_int_gt(ready[worker].reports, 1);
        ck_assert_int_eq(ready[worker].end, ddp_graph_flat_count(part));
        ck_assert_mem_eq(ready[worker].then, w.gradients[worker].at, bytes);
    }
    close_world(&w);
    ddp_graph_destroy(graph);
}
END_TEST

/* The later piece writes the shared gradient apart, while it adds everything else; the earlier one
 * adds to it there. */
START_TEST(a_gradient_apart)
{
    struct way way = {.device = "cpu"};
    ddp_graph *graph = tied_graph(&way);
    struct result whole = run_whole(&subjects[GPT2], &way, graph), cut = {NULL, 0};
    struct piece pieces[MOST_PIECES];
    struct world w;
    open_world(&w, &subjects[GPT2], &way, graph, pieces, tied_pieces(graph, pieces));
    const struct ddp_parameter *wte = ddp_graph_parameter_at(w.graphs[0], 0);
    const size_t bytes = (size_t)wte->count * sizeof(float);
    float *sum = (float *)w.gradients[0].at + wte->offset;
    struct memory apart = take(&w, bytes, NULL), before = take(&w, bytes, NULL);
    for (int shard = 0; shard < SHARDS; shard++) {
        spoil(&w, &apart);
        memcpy(before.at, sum, bytes);
        ddp_exec_set_gradient_of(w.execs[2][0], 0, apart.at);
        ddp_exec_set_gradient_of(w.execs[0][0], 0, shard ? NULL : apart.at);
        run_forward(&w, shard, NULL);
        run_piece_backward(&w, 2, shard, NULL, NULL);
        run_piece_backward(&w, 1, shard, NULL, NULL);
        ck_assert_mem_eq(before.at, sum, bytes);
        for (int64_t i = 0; i < wte->count && shard > 0; i++) /* few rows: the same bits */
            sum[i] += ((const float *)apart.at)[i];
        run_piece_backward(&w, 0, shard, NULL, NULL);
        if (shard == 0) {
            ck_assert_mem_eq(before.at, sum, bytes);
            memcpy(sum, apart.at, bytes);
        }
    }
    keep_gradients(&w, &cut);
    ck_assert(same_result(&whole, &cut));
    give(&w, &apart);
    give(&w, &before);
    close_world(&w);
    ddp_graph_destroy(graph);
    free(whole.bytes);
    free(cut.bytes);
}
END_TEST

/* An operation belongs to one stage, with its work and its inputs. */
START_TEST(operations_and_inputs_are_shared_out)
{
    struct way way = {.device = "cpu"};
    for (int i = 0; i < SUBJECTS; i++) {
        ddp_graph *graph = build_subject(&subjects[i], &way), *part;
        const int network = ddp_graph_network_count(graph), end = ddp_graph_operation_count(graph);
        double flops = 0, of_operations = 0;
        ck_assert_int_eq(end, network + 1);
        for (int n = 0; n < network; n++) {
            const struct ddp_graph_range range = {n, n + 1 < network ? n + 1 : end};
            ck_assert_int_eq(ddp_graph_make_stages(graph, &range, 1, &part), DDP_OK);
            ck_assert(ddp_graph_is_finished(part));
            flops += ddp_graph_flops(part);
            of_operations += ddp_graph_operation_flops(graph, n);
            const bool reads = strcmp(ddp_graph_operation_name(graph, n), "select") == 0;
            ck_assert((ddp_exec_graph_input_bytes(part, 0) > 0) == (n == 0 || reads));
            ck_assert((ddp_exec_graph_input_bytes(part, 1) > 0) == (n + 1 == network));
            ck_assert((ddp_exec_graph_output_bytes(part) > 0) == (n + 1 == network));
            ddp_graph_destroy(part);
        }
        ck_assert_double_eq(flops, ddp_graph_flops(graph));
        ck_assert_double_eq(of_operations, flops);
        ddp_graph_destroy(graph);
    }
}
END_TEST

START_TEST(messages_have_these_sizes)
{
    struct way way = {.device = "cpu"};
    const size_t stream = 2 * 6 * 16 * sizeof(float);
    ddp_graph *graph = build_subject(&subjects[GPT2], &way);
    const int block = ddp_graph_find_operation(graph, "h.1");
    ck_assert_uint_eq(ddp_graph_cut_values(graph, 0), 0);
    ck_assert_uint_eq(ddp_graph_cut_values(graph, block), stream);
    ck_assert_uint_eq(ddp_graph_cut_gradients(graph, block), stream);
    ck_assert_uint_eq(ddp_graph_cut_values(graph, block + 1), 2 * stream); /* norm and residual */
    ck_assert_uint_eq(ddp_graph_cut_values(graph, ddp_graph_operation_count(graph)), 0);
    ddp_graph_destroy(graph);
    /* 5 x 9 and 5 x 8 numbers fill no cache line; a cast of samples has no gradient */
    way.compute = way.activations = DDP_BF16;
    graph = build_subject(&subjects[0], &way);
    ck_assert_str_eq(ddp_graph_operation_name(graph, 0), "to_bf16");
    ck_assert_uint_eq(ddp_graph_cut_values(graph, 1), 128);
    ck_assert_uint_eq(ddp_graph_cut_gradients(graph, 1), 0);
    ck_assert_uint_eq(ddp_graph_cut_gradients(graph, 2), 128);
    ddp_graph_destroy(graph);
}
END_TEST

START_TEST(operations_are_found_by_name)
{
    struct way way = {.device = "cpu"};
    ddp_graph *graph = build_subject(&subjects[GPT2], &way);
    const int block = ddp_graph_find_operation(graph, "h.1");
    ck_assert_int_eq(ddp_graph_find_operation(graph, "wte"), 0);
    ck_assert_int_eq(ddp_graph_find_operation(graph, "wte.weight"), 0);
    ck_assert_int_eq(ddp_graph_find_operation(graph, "wte.wei"), -1);
    ck_assert_int_eq(ddp_graph_find_operation(graph, "wt"), -1);
    ck_assert_int_eq(ddp_graph_find_operation(graph, ""), -1);
    ck_assert_int_eq(ddp_graph_find_operation(graph, "h.1.ln_1"), block);
    ck_assert_str_eq(ddp_graph_operation_name(graph, block), "layer_norm");
    ck_assert_str_eq(ddp_graph_result_name(graph, block), "h.1.ln_1");
    ck_assert_str_eq(ddp_graph_result_name(graph, block + 1), "h.1.attn.c_attn");
    for (int n = 0; n < ddp_graph_operation_count(graph); n++)
        ck_assert(ddp_graph_reads(graph, n, 0) ==
                  (n == 0 || n + 1 == ddp_graph_network_count(graph)));
    ddp_graph_destroy(graph);
    graph = build_subject(&odd_subject, &way); /* through a view */
    ck_assert(ddp_graph_reads(graph, 1, 0));
    ck_assert_int_eq(ddp_graph_find_operation(graph, "w"), 1);
    ddp_graph_destroy(graph);
}
END_TEST

START_TEST(bad_ranges_are_refused)
{
    struct way way = {.device = "cpu"};
    ddp_graph *graph = build_subject(&subjects[0], &way), *parts[2] = {NULL, NULL};
    const int network = ddp_graph_network_count(graph), end = ddp_graph_operation_count(graph);
    const struct ddp_graph_range bad[][2] = {
        {{-1, 1}, {1, end}},    {{0, 0}, {1, end}},
        {{2, 1}, {2, end}},     {{0, 2}, {1, end}},
        {{0, 1}, {1, end + 1}}, {{0, 1}, {1, network}},
        {{1, end}, {0, 1}},     {{0, network - 1}, {network, end}},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        ck_assert_int_eq(ddp_graph_make_stages(graph, bad[i], 2, parts), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_graph_make_stages(graph, bad[0], 0, parts), DDP_ERR_INVALID);
    ck_assert_ptr_null(parts[0]);
    ddp_graph_destroy(graph);
}
END_TEST

/* A stage's own tensors are looked at, and nothing else. */
START_TEST(a_stage_is_searched)
{
    struct way way = {.device = "cpu"};
    ddp_graph *graph = tied_graph(&way);
    struct piece pieces[MOST_PIECES];
    struct world w;
    struct ddp_scan scan;
    open_world(&w, &subjects[GPT2], &way, graph, pieces, tied_pieces(graph, pieces));
    for (int number = 0; number < 3; number++) {
        for (int p = 0; p < 3; p++) {
            ddp_exec_bind_input(w.execs[p][0], 0, w.inputs[0][0].at);
            ddp_exec_bind_input(w.execs[p][0], 1, w.inputs[0][1].at);
            ddp_exec_set_messages(w.execs[p][0], &(struct ddp_exec_messages){
                                                     w.values_in[p].at, w.gradients_in[p].at,
                                                     w.values_out[p].at, w.gradients_out[p].at});
            memset(w.values_in[p].at ? w.values_in[p].at : &(int){0}, 0, w.values_in[p].bytes);
        }
        if (number == 1)
            ((float *)w.values_in[1].at)[3] = INFINITY;
        if (number == 2)
            ((float *)w.gradients_in[1].at)[3] = INFINITY;
        ck_assert_int_eq(ddp_exec_scan(w.execs[1][0], &scan), DDP_OK);
        ck_assert_int_eq(scan.kind, number == 0   ? DDP_SCAN_NOTHING
                                    : number == 1 ? DDP_SCAN_OUTPUT
                                                  : DDP_SCAN_GRADIENT);
        if (number > 0)
            ck_assert_str_eq(scan.operation, number == 1 ? "receive" : "send");
        ck_assert_int_eq(ddp_exec_scan(w.execs[2][0], &scan), DDP_OK);
        ck_assert_int_eq(scan.kind, DDP_SCAN_NOTHING);
    }
    close_world(&w);
    ddp_graph_destroy(graph);
}
END_TEST

static int allocations_left = -1; /* until one fails; negative: none does */

void *__real_ddp_array_alloc(size_t count, size_t size);
void *__wrap_ddp_array_alloc(size_t count, size_t size);
void *__wrap_ddp_array_alloc(size_t count, size_t size)
{
    if (allocations_left == 0)
        return NULL;
    allocations_left -= allocations_left > 0;
    return __real_ddp_array_alloc(count, size);
}

START_TEST(memory_runs_out)
{
    struct way way = {.device = "cpu"};
    ddp_graph *graph = tied_graph(&way), *parts[2];
    struct piece pieces[MOST_PIECES];
    tied_pieces(graph, pieces);
    const struct ddp_graph_range ranges[] = {pieces[0].range, pieces[2].range};
    enum ddp_status status = DDP_ERR_MEMORY;
    int number = 0;
    for (; status == DDP_ERR_MEMORY; number++) {
        allocations_left = number;
        status = ddp_graph_make_stages(graph, ranges, 2, parts);
    }
    allocations_left = -1;
    ck_assert_int_eq(status, DDP_OK);
    ck_assert_int_gt(number, 50);
    for (int p = 0; p < 2; p++)
        ddp_graph_destroy(parts[p]);
    ddp_graph_destroy(graph);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("stage");
    TCase *tc = test_case(suite, "bits", 240);
    tcase_add_loop_test(tc, every_cut_of_every_model, 0, SUBJECTS);
    tcase_add_loop_test(tc, many_cuts_of_every_model, 0, SUBJECTS);
    tcase_add_loop_test(tc, random_graphs, 0, 4);
    tcase_add_loop_test(tc, shared_tensors, 0, 2);
    tcase_add_test(tc, odd_graphs);
    tc = test_case(suite, "interface", 60);
    tcase_add_test(tc, a_stage_is_like_the_whole);
    tcase_add_test(tc, layout);
    tcase_add_test(tc, statistics_come_first);
    tcase_add_test(tc, gradients_become_ready_in_flat_order);
    tcase_add_test(tc, a_gradient_apart);
    tcase_add_test(tc, operations_and_inputs_are_shared_out);
    tcase_add_test(tc, messages_have_these_sizes);
    tcase_add_test(tc, operations_are_found_by_name);
    tcase_add_test(tc, bad_ranges_are_refused);
    tcase_add_test(tc, a_stage_is_searched);
    tcase_add_test(tc, memory_runs_out);
    return suite;
}
