/* SPDX-License-Identifier: MIT
 *
 * See variants.h. With M the largest number of workers, the global batch is cut into M shards, and
 * then into 2 M, which M workers run two at a time. */
#include "config.h"

#include "reporter/variants.h"

#include "core/log.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void add(struct variant *variants, int *count, const char *mode, int64_t units,
                int64_t shards, int baseline)
{
    struct variant *variant = &variants[(*count)++];
    *variant =
        (struct variant){.mode = mode, .units = units, .shards = shards, .baseline = baseline};
    const char *name = strcmp(mode, "accum") == 0 ? "accumulation"
                       : strcmp(mode, "dp") == 0  ? "DataParallel"
                                                  : "DDP";
    snprintf(variant->name, sizeof variant->name, "%s %" PRId64 " x %" PRId64, name, units,
             shards / units);
}

static bool is_power_of_two(int64_t value)
{
    return (value & (value - 1)) == 0;
}

int variants_make(struct variant variants[VARIANTS], const struct settings *settings,
                  int64_t global_batch)
{
    const int64_t most = settings->workers[settings->worker_count - 1];
    int count = 0, baseline = 0;
    if (most < 2) {
        ddp_fail(DDP_ERR_INVALID, "--workers: one worker alone has nothing to be compared with: "
                                  "use 1,2 or more");
        return 0;
    }
    if (global_batch % most != 0) {
        ddp_fail(DDP_ERR_INVALID,
                 "a global batch of %" PRId64 " samples cannot be cut into %" PRId64
                 " shards, one a worker: use --global-batch %" PRId64 " or other --workers",
                 global_batch, most, (global_batch / most + 1) * most);
        return 0;
    }
    add(variants, &count, "accum", 1, most, baseline);
    for (int i = 0; i < settings->worker_count; i++) {
        const int64_t units = settings->workers[i];
        if (units == 1)
            continue;
        if (most % units != 0 || !is_power_of_two(most / units)) {
            ddp_fail(DDP_ERR_INVALID,
                     "--workers: %" PRId64 " and %" PRId64 ": the largest must be a number twice, "
                     "four times, ... as large as each other, for equal bits",
                     units, most);
            return 0;
        }
        add(variants, &count, "dp", units, most, baseline);
        add(variants, &count, "ddp", units, most, baseline);
    }
    if (global_batch % (2 * most) == 0) {
        baseline = count;
        add(variants, &count, "accum", 1, 2 * most, baseline);
        add(variants, &count, "ddp", most, 2 * most, baseline);
    }
    return count;
}
