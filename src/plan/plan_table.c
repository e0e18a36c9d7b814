/* SPDX-License-Identifier: MIT
 *
 * The table of --plan-memory: each mode, number of workers, way to update and type, with the
 * largest batch that fits. */
#include "config.h"

#include "plan/planned.h"

#include "core/log.h"
#include "core/text.h"

#include <inttypes.h>
#include <string.h>

#define ROWS 64

struct row {
    enum ddp_mode_kind mode;
    int units;                /* workers, replicas or stages */
    int cuts[DDP_STAGES_MAX]; /* of stages */
    bool zero;
    enum ddp_train_dtype dtype;
    int64_t batch, shards; /* of a unit and step; batch 0: nothing fits */
    struct ddp_memory memory;
};

/* The run's plan, as this row has it, with so many shards a unit. */
static struct ddp_train_plan plan_of(const struct ddp_planned *planned, const struct row *row,
                                     int64_t shards)
{
    struct ddp_train_plan plan = planned->plan;
    const bool dp = row->mode == DDP_MODE_DP;
    plan.mode = row->mode;
    plan.rank = 0;
    plan.world_size = dp ? 1 : row->units;
    plan.stages = 1;
    if (row->mode == DDP_MODE_PIPELINE) {
        plan.stages = row->units;
        memcpy(plan.cuts, row->cuts, sizeof plan.cuts);
    }
    if (plan.world_size != planned->plan.world_size) {
        plan.starts = NULL;
        if (plan.world_size % plan.nodes != 0)
            plan.nodes = 1;
        plan.node_workers = plan.world_size / plan.nodes;
    }
    plan.replicas = dp ? row->units : 1;
    plan.gpu_workers = 1;
    for (int r = 0; r < row->units; r++)
        plan.devices[r] = r;
    plan.zero = row->zero;
    plan.shared_weights = row->zero && planned->plan.device.host_memory;
    plan.thin_gradients = row->zero && planned->options->zero > 1;
    plan.thin_weights = plan.thin_gradients && planned->options->zero > 2 && plan.nodes > 1;
    plan.local_shards = shards;
    plan.global_shards = ddp_train_plan_units(&plan) * shards;
    plan.sampler.shard_count = plan.global_shards;
    ddp_train_plan_lanes(&plan, planned->plan.wanted_lanes);
    return plan;
}

/* What the shards are shared out over: all stages run the same ones. */
static int runners(const struct row *row)
{
    return row->mode == DDP_MODE_PIPELINE ? 1 : row->units;
}

/* With --global-batch: the largest batch up to `most` that divides a unit's part of it, in shards
 * one after another, whose lanes fit too. */
static enum ddp_status divide(const struct ddp_planned *planned, struct row *row,
                              const struct ddp_model_config *config,
                              const struct ddp_memory_limits *limits, int64_t most)
{
    const int64_t part = planned->options->global_batch / runners(row);
    row->batch = 0;
    if (planned->options->global_batch % runners(row) != 0)
        return DDP_OK;
    for (int64_t batch = most < part ? most : part; batch > 0; batch--) {
        if (part % batch != 0)
            continue;
        struct ddp_train_plan plan = plan_of(planned, row, part / batch);
        ddp_memory_set_batch(planned, &plan, batch);
        enum ddp_status status = ddp_memory_plan(planned, &plan, config, &row->memory);
        row->shards = part / batch;
        if (status != DDP_OK)
            return status;
        if (ddp_memory_fits(&plan, &row->memory, limits)) {
            row->batch = batch;
            return DDP_OK;
        }
    }
    return DDP_OK;
}

/* Into stages of about the same work, or as the run's own. False: there are too many stages. */
static bool cut(const struct ddp_planned *planned, struct row *row)
{
    char message[256];
    struct ddp_stages stages;
    if (row->units == planned->plan.stages) {
        memcpy(row->cuts, planned->plan.cuts, sizeof row->cuts);
        return true;
    }
    ddp_log_hold(message, sizeof message);
    enum ddp_status status = ddp_stages_estimate(planned->graph, row->units, row->cuts);
    if (status == DDP_OK)
        status = ddp_stages_make(&stages, planned->graph, row->units, row->cuts);
    ddp_log_hold(NULL, 0);
    return status == DDP_OK;
}

static enum ddp_status fill_row(const struct ddp_planned *planned, struct row *row,
                                const struct ddp_memory_limits *limits)
{
    const bool divided = ddp_train_given(planned->options, "global-batch");
    struct ddp_model_config config = planned->model_config;
    row->shards = divided ? 1 : planned->options->acc_steps;
    if (row->mode == DDP_MODE_PIPELINE && !cut(planned, row))
        return DDP_OK;
    struct ddp_train_plan plan = plan_of(planned, row, row->shards);
    ddp_train_config_dtype(&config, &plan, row->dtype);
    if (ddp_sampler_shard_samples(&plan.sampler) == 0) /* the data are too few */
        return DDP_OK;
    enum ddp_status status =
        ddp_memory_largest_batch(planned, &plan, &config, limits, &row->memory, &row->batch);
    return status == DDP_OK && divided && row->batch > 0
               ? divide(planned, row, &config, limits, row->batch)
               : status;
}

/* --- which rows there are --------------------------------------------------------------------- */

struct table {
    const struct ddp_planned *planned;
    const struct ddp_memory_limits *limits;
    FILE *out;
    struct row rows[ROWS];
    int count;
};

static enum ddp_status add_row(struct table *table, enum ddp_mode_kind mode, int units, bool zero,
                               enum ddp_train_dtype dtype)
{
    const struct ddp_train_options *options = table->planned->options;
    if (table->count == ROWS || (ddp_train_given(options, "mode") && options->mode != (int)mode) ||
        ((ddp_train_given(options, "stages") || options->cut) && mode != DDP_MODE_PIPELINE) ||
        (ddp_train_given(options, "dtype") ? options->dtype != (int)dtype
                                           : dtype == DDP_TRAIN_FP16) ||
        (ddp_train_given(options, "zero") && mode == DDP_MODE_DDP && (options->zero > 0) != zero) ||
        (options->sync_every > 1 && (mode != DDP_MODE_DDP || zero)) ||
        (options->sync_batch_norm && mode != DDP_MODE_DDP) ||
        (mode != DDP_MODE_PIPELINE && units > options->lanes))
        return DDP_OK;
    struct row *row = &table->rows[table->count++];
    *row = (struct row){.mode = mode, .units = units, .zero = zero, .dtype = dtype};
    return fill_row(table->planned, row, table->limits);
}

static enum ddp_status add_rows(struct table *table, int units, enum ddp_train_dtype dtype)
{
    if (units == 1)
        return add_row(table, DDP_MODE_ACCUM, 1, false, dtype);
    enum ddp_status status = add_row(table, DDP_MODE_DDP, units, false, dtype);
    if (status == DDP_OK)
        status = add_row(table, DDP_MODE_DDP, units, true, dtype);
    if (status == DDP_OK)
        status = add_row(table, DDP_MODE_DP, units, false, dtype);
    if (status == DDP_OK && table->planned->plan.mode == DDP_MODE_PIPELINE)
        status = add_row(table, DDP_MODE_PIPELINE, units, false, dtype);
    return status;
}

static double exchanged(const struct row *row)
{
    return ddp_mode_traffic_total(&row->memory.traffic);
}

/* The one with the most samples at once, which is the fastest; of equals the one that exchanges
 * least. -1: nothing fits. */
static int recommended(const struct table *table)
{
    int best = -1;
    for (int i = 0; i < table->count; i++) {
        const struct row *row = &table->rows[i], *than = best < 0 ? NULL : &table->rows[best];
        const int64_t samples = row->batch * runners(row);
        if (row->batch == 0)
            continue;
        if (!than || samples > than->batch * runners(than) ||
            (samples == than->batch * runners(than) && exchanged(row) < exchanged(than)))
            best = i;
    }
    return best;
}

/* --- printing --------------------------------------------------------------------------------- */

static int mode_width(const struct table *table)
{
    return table->planned->plan.mode == DDP_MODE_PIPELINE ? 8 : 5;
}

static void print_row(const struct table *table, int number, int best)
{
    static const char *const dtypes[] = {"fp32", "bf16", "fp16"};
    const struct row *row = &table->rows[number];
    const struct ddp_memory *memory = &row->memory;
    const double moved = exchanged(row);
    char batch[24] = "none", shards[24] = "-", samples[24] = "-", text[3][DDP_TEXT_BYTES];
    if (row->batch > 0) {
        snprintf(batch, sizeof batch, "%" PRId64, row->batch);
        snprintf(shards, sizeof shards, "%" PRId64, row->shards);
        snprintf(samples, sizeof samples, "%" PRId64, row->batch * row->shards * runners(row));
    }
    fprintf(table->out, "%c %-*s %7d %4s %5s %7s %5s %8s %9s %9s %9s\n", number == best ? '*' : ' ',
            mode_width(table), ddp_mode_names[row->mode], row->units,
            row->mode != DDP_MODE_DDP           ? "-"
            : !row->zero                        ? "0"
            : table->planned->options->zero > 2 ? "3"
            : table->planned->options->zero > 1 ? "2"
                                                : "1",
            dtypes[row->dtype], batch, shards, samples, ddp_text_bytes(memory->unit_total, text[0]),
            ddp_text_bytes(memory->host_total, text[1]),
            moved > 0 ? ddp_text_bytes(moved, text[2]) : "-");
}

static void print_table(const struct table *table)
{
    const struct ddp_planned *planned = table->planned;
    const bool gpu = !planned->plan.device.host_memory;
    const int best = recommended(table);
    char text[DDP_TEXT_BYTES];
    fprintf(table->out, "\nwhat fits %s %s, with the largest batch of each:\n",
            ddp_text_bytes(planned->options->plan_memory, text),
            gpu ? "of memory of each GPU" : "of memory of the machine");
    fprintf(table->out, "  %-*s %7s %4s %5s %7s %5s %8s %9s %9s %9s\n", mode_width(table), "mode",
            "workers", "zero", "dtype", "batch", "acc", "samples", gpu ? "a GPU" : "a worker",
            gpu ? "the host" : "machine", "exchange");
    for (int i = 0; i < table->count; i++)
        print_row(table, i, best);
    if (best >= 0)
        fputs("* has the most samples at once\n", table->out);
    else
        fputs("nothing fits: a row shows what one sample takes; use a smaller model or --lanes 1\n",
              table->out);
}

enum ddp_status ddp_planned_print_table(const struct ddp_planned *planned,
                                        const struct ddp_memory_limits *limits, FILE *out)
{
    static const int units[] = {1, 2, 4, 8};
    const bool staged = planned->plan.mode == DDP_MODE_PIPELINE;
    const int own = staged ? planned->plan.stages : ddp_train_plan_units(&planned->plan),
              count = sizeof units / sizeof units[0];
    struct table table = {.planned = planned, .limits = limits, .out = out};
    enum ddp_status status = DDP_OK;
    for (int dtype = 0; status == DDP_OK && dtype <= DDP_TRAIN_FP16; dtype++) {
        bool listed = false;
        for (int i = 0; status == DDP_OK && i < count; i++) {
            listed = listed || own == units[i];
            status = add_rows(&table, units[i], (enum ddp_train_dtype)dtype);
        }
        if (status == DDP_OK && !listed)
            status = add_rows(&table, own, (enum ddp_train_dtype)dtype);
    }
    if (status == DDP_OK)
        print_table(&table);
    return status;
}
