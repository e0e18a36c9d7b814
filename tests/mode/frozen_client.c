/* SPDX-License-Identifier: MIT
 *
 * A program whose model of bytes is frozen but for an adapter and a norm: FROZEN is f32, bf16, nf4
 * (of layers; the table is bf16), all (nothing is learned), table (which is refused in blocks), or
 * nothing, where all is learned. BASE is the deviation of what the base
 * begins as. It takes all options of trainer(1). */
#include "config.h"

#include "ddp.h"

#include <stdlib.h>
#include <string.h>

#define WIDTH 64

static const char *kind;

static bool is(const char *name)
{
    return strcmp(kind, name) == 0;
}

static void begin(ddp_graph *graph, bool table)
{
    if (kind)
        ddp_graph_begin_frozen(graph, is("table") || (is("nf4") && !table) ? DDP_NF4
                                      : is("bf16") || is("nf4")            ? DDP_BF16
                                                                           : DDP_F32);
}

static void end(ddp_graph *graph)
{
    if (!kind || strcmp(kind, "all") != 0)
        ddp_graph_end_frozen(graph);
}

/* Adds what is learned. */
static ddp_tensor *adapted(ddp_graph *graph, ddp_tensor *x, const char *down, const char *up)
{
    ddp_tensor *inner = ddp_graph_linear_layer(graph, down, x, 4, false, DDP_ACTIVATION_NONE);
    return ddp_graph_add(
        graph, x, ddp_graph_linear_layer(graph, up, inner, WIDTH, false, DDP_ACTIVATION_NONE));
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_shape *shape, void *arg)
{
    const struct ddp_init *init = arg;
    const int64_t dims[] = {shape->batch, shape->dims[0]};
    ddp_tensor *tokens = ddp_graph_input(graph, "tokens", DDP_I32, 2, dims);
    ddp_tensor *labels = ddp_graph_input(graph, "labels", DDP_I32, 2, dims);
    begin(graph, true);
    ddp_tensor *wte =
        ddp_graph_parameter(graph, "wte", 2, (int64_t[]){shape->classes, WIDTH}, *init);
    begin(graph, false);
    ddp_tensor *x = ddp_graph_embedding(graph, tokens, wte, NULL);
    ddp_tensor *up = ddp_graph_linear_layer(graph, "up", x, 4 * WIDTH, true, DDP_ACTIVATION_GELU);
    x = ddp_graph_add(graph, x,
                      ddp_graph_linear_layer(graph, "down", up, WIDTH, true, DDP_ACTIVATION_NONE));
    end(graph);
    x = adapted(graph, x, "a.down", "a.up");
    begin(graph, false);
    x = ddp_graph_linear_layer(graph, "middle", x, WIDTH, true, DDP_ACTIVATION_GELU);
    end(graph);
    x = ddp_graph_layer_norm_layer(graph, "norm", x, 1e-5f);
    begin(graph, true); /* the head is the embedding's table */
    x = ddp_graph_linear(graph, x, wte, NULL, DDP_ACTIVATION_NONE);
    end(graph);
    return ddp_graph_finish(graph, x, ddp_graph_softmax_cross_entropy(graph, x, labels));
}

int main(int argc, char **argv)
{
    const char *base = getenv("BASE");
    struct ddp_init init = {DDP_INIT_NORMAL, 0, base ? atof(base) : 0.25};
    ddp_train *train = NULL;
    kind = getenv("FROZEN");
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK)
        status = ddp_train_parse(train, argc, argv);
    if (status == DDP_OK) {
        ddp_train_set_model(train, "adapted", build, &init);
        status = ddp_train_run(train, stdout);
    }
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}
