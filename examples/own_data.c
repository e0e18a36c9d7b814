/* SPDX-License-Identifier: MIT
 *
 * Training on data of one's own: a table, read from a CSV file into arrays. A small network learns
 * the last column from the others. After the file it takes the options of trainer(1):
 *
 *   cc own_data.c -o own_data $(pkg-config --cflags --libs libddp)
 *   ./own_data table.csv --epochs 20 --val-split 0.1 --normalize --lr 0.01
 *   ddprun -n 2 ./own_data table.csv --epochs 20 --checkpoint DIR --resume
 */
#include <ddp.h>

#include <stdlib.h>
#include <string.h>

struct table {
    int64_t rows, features;
    float *x, *y; /* (rows, features) and (rows) */
};

static enum ddp_status add_row(struct table *table, const float *values, int64_t count)
{
    const size_t rows = (size_t)table->rows + 1, features = (size_t)count - 1;
    float *x = (float *)realloc(table->x, rows * features * sizeof *x);
    table->x = x ? x : table->x;
    float *y = (float *)realloc(table->y, rows * sizeof *y);
    table->y = y ? y : table->y;
    if (!x || !y)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory for %lld rows", (long long)rows);
    memcpy(x + (rows - 1) * features, values, features * sizeof *x);
    y[rows - 1] = values[features];
    table->features = count - 1;
    table->rows++;
    return DDP_OK;
}

/* A line of numbers; names may come before the first. */
static enum ddp_status read_line(struct table *table, const char *line, const char *path)
{
    float values[64];
    int64_t count = 0;
    char *end = NULL;
    for (const char *at = line; count < 64; at = end + 1) {
        values[count++] = strtof(at, &end);
        if (end == at && table->rows == 0)
            return DDP_OK;
        if (end == at || *end != ',')
            break;
    }
    if (count < 2 || *end != '\n' || (table->rows > 0 && count != table->features + 1))
        return ddp_fail(DDP_ERR_FORMAT, "%s: bad row %lld", path, (long long)table->rows + 1);
    return add_row(table, values, count);
}

static enum ddp_status read_csv(struct table *table, const char *path)
{
    char line[4096];
    enum ddp_status status = DDP_OK;
    FILE *file = path ? fopen(path, "r") : NULL;
    if (!file)
        return ddp_fail(DDP_ERR_IO, "%s: cannot open", path ? path : "own_data FILE.csv OPTIONS");
    while (status == DDP_OK && fgets(line, sizeof line, file))
        status = read_line(table, line, path);
    fclose(file);
    return status;
}

static enum ddp_status build(ddp_graph *graph, const struct ddp_model_shape *shape, void *arg)
{
    const int64_t dims[] = {shape->batch, shape->dims[0]}, of_targets[] = {shape->batch, 1};
    (void)arg;
    ddp_tensor *x = ddp_graph_input(graph, "numbers", shape->dtype, 2, dims);
    ddp_tensor *targets = ddp_graph_input(graph, "targets", shape->label_dtype, 2, of_targets);
    x = ddp_graph_linear_layer(graph, "hidden", x, 16, true, DDP_ACTIVATION_GELU);
    x = ddp_graph_linear_layer(graph, "output", x, 1, true, DDP_ACTIVATION_NONE);
    return ddp_graph_finish(graph, x, ddp_graph_mse(graph, x, targets));
}

int main(int argc, char **argv)
{
    struct table table = {0, 0, NULL, NULL};
    ddp_train *train = NULL;
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK)
        status = read_csv(&table, argc > 1 ? argv[1] : NULL);
    const struct ddp_data data =
        ddp_data_arrays(table.rows, table.features, table.x, 0, 1, table.y);
    if (status == DDP_OK)
        status = ddp_train_set_data(train, &data, NULL);
    if (status == DDP_OK)
        status = ddp_train_parse(train, argc - 1, argv + 1);
    if (status == DDP_OK) {
        ddp_train_set_model(train, "table", build, NULL);
        status = ddp_train_run(train, stdout);
    }
    ddp_train_destroy(train);
    free(table.x);
    free(table.y);
    return ddp_status_exit_code(status);
}
