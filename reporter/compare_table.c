/* SPDX-License-Identifier: MIT
 *
 * See compare_table.h. */
#include "config.h"

#include "reporter/compare_table.h"

#include "reporter/units.h"

#include <inttypes.h>
#include <string.h>

const char compare_notes[] =
    "A x B: A workers or replicas run B shards each, one after another. ms/step: the median of "
    "all\n"
    "steps of all repeats, and their quartiles. Speed-up and efficiency: against accumulation in\n"
    "one worker with the same shards. Sent: bytes that a step moves, as planned. Exposed: time of "
    "a\n"
    "step in which a worker communicates, or waits for others or for data, and does not compute.\n"
    "Weights: compared bit for bit with those of the same accumulation. Memory: of a worker, or "
    "of\n"
    "all replicas; planned, and the most that the process held, with program and data.\n";

enum { NAME, MS, SPREAD, SPEED, SPEEDUP, EFFICIENCY, SENT, COMMUNICATION, WAITING, SAME, COLUMNS };

static void set_times(struct table *table, const struct comparison *comparison, int i)
{
    const struct variant *variant = &comparison->variants[i];
    const struct measured *measured = &comparison->measured[i];
    const double speedup =
        comparison->measured[variant->baseline].times.median / measured->times.median;
    const size_t row = (size_t)i + 1;
    char text[2][UNITS_TEXT];
    table_set(table, row, NAME, "%s", variant->name);
    table_set(table, row, MS, "%s", units_number(text[0], 1e3 * measured->times.median));
    table_set(table, row, SPREAD, "%s..%s", units_number(text[0], 1e3 * measured->times.low),
              units_number(text[1], 1e3 * measured->times.high));
    table_set(table, row, SPEED, "%s",
              units_number(text[0], comparison->items / measured->times.median));
    table_set(table, row, SPEEDUP, "%.2f", speedup);
    table_set(table, row, EFFICIENCY, "%.0f %%", 100 * speedup / (double)variant->units);
    table_set(table, row, SENT, "%s", units_bytes(text[0], measured->exchange));
    table_set(table, row, COMMUNICATION, "%.3f", 1e3 * measured->communication);
    table_set(table, row, WAITING, "%.3f", 1e3 * measured->waiting);
    table_set(table, row, SAME, "%s",
              variant->baseline == i ? "(baseline)"
              : measured->differs    ? "DIFFER"
                                     : "equal");
}

static void set_memory(struct table *table, const struct comparison *comparison, int i)
{
    const struct measured *measured = &comparison->measured[i];
    const double parts[] = {measured->weights, measured->gradients, measured->optimizer,
                            measured->activations};
    char text[UNITS_TEXT];
    double planned = 0;
    table_set(table, (size_t)i + 1, 0, "%s", comparison->variants[i].name);
    for (size_t k = 0; k < 4; k++) {
        planned += parts[k];
        table_set(table, (size_t)i + 1, k + 1, "%s", units_bytes(text, parts[k]));
    }
    table_set(table, (size_t)i + 1, 5, "%s", units_bytes(text, planned));
    table_set(table, (size_t)i + 1, 6, "%s", units_bytes(text, measured->memory_peak));
}

enum ddp_status compare_tables_make(struct table *time, struct table *memory,
                                    const struct comparison *comparison)
{
    const bool gpu = strcmp(comparison->device, "cpu") != 0;
    const char *const times[COLUMNS] = {
        "time",     "ms/step",    "25..75 %", comparison->tokens ? "tokens/s" : "samples/s",
        "speed-up", "efficiency", "sent",     "comm ms",
        "wait ms",  "weights"};
    const char *const parts[7] = {"memory",
                                  "weights",
                                  "gradients",
                                  "optimizer",
                                  "activations",
                                  gpu ? "planned, GPU" : "planned",
                                  gpu ? "peak, host" : "peak"};
    *memory = (struct table){.rows = 0};
    enum ddp_status status = table_make(time, (size_t)comparison->count + 1, COLUMNS);
    if (status == DDP_OK)
        status = table_make(memory, (size_t)comparison->count + 1, 7);
    if (status != DDP_OK)
        return status;
    for (size_t c = 0; c < COLUMNS; c++)
        table_set(time, 0, c, "%s", times[c]);
    for (size_t c = 0; c < 7; c++)
        table_set(memory, 0, c, "%s", parts[c]);
    for (int i = 0; i < comparison->count; i++) {
        set_times(time, comparison, i);
        set_memory(memory, comparison, i);
    }
    return DDP_OK;
}

void compare_describe(const struct comparison *comparison, FILE *out)
{
    fprintf(out,
            "%s, %" PRId64 " parameters, %s, on %s; global batch %" PRId64 " samples; %" PRId64
            " steps, %" PRId64 " repeat%s",
            comparison->model, comparison->parameters, comparison->data, comparison->device,
            comparison->global_batch, comparison->steps, comparison->repeats,
            comparison->repeats == 1 ? "" : "s");
    if (comparison->threads > 0 && strcmp(comparison->device, "cpu") == 0)
        fprintf(out, "; %" PRId64 " thread%s a worker", comparison->threads,
                comparison->threads == 1 ? "" : "s");
    fputc('\n', out);
}
