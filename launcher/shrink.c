/* SPDX-License-Identifier: MIT
 *
 * See shrink.h. */
#include "config.h"

#include "launcher/shrink.h"

#include "core/log.h"

#include <string.h>

#define FAILURES_IN_A_ROW 2

static void count_failure(struct failures *failures, int rank)
{
    if (rank < 0 || rank != failures->rank)
        failures->count = 0;
    failures->rank = rank;
    failures->count += rank >= 0;
}

/* Takes out the GPUs that are lost, and names them. */
static int drop_lost(struct launch_plan *plan, char *names, size_t size)
{
    size_t used = 0;
    int count = 0, lost;
    names[0] = 0;
    while ((lost = devices_find_lost(&plan->devices)) >= 0) {
        const struct device *device = &plan->devices.list[lost];
        bool named = strcmp(device->token, device->uuid) == 0;
        if (used < size)
            used += (size_t)snprintf(names + used, size - used, "%sGPU %s%s%s%s", count ? ", " : "",
                                     device->token, named ? "" : " (", named ? "" : device->uuid,
                                     named ? "" : ")");
        devices_drop(&plan->devices, lost);
        plan->island = 0;
        count++;
    }
    plan->own_list = plan->own_list || count > 0;
    return count;
}

bool shrink_decide(struct launch_plan *plan, struct failures *failures, int failed_rank, char *why,
                   size_t size)
{
    const int least = (int)plan->settings->min_nproc;
    bool with_devices = plan->devices.count > 0 && plan->devices.count >= plan->nproc;
    char names[256];
    why[0] = 0;
    if (least == 0)
        return true;
    count_failure(failures, failed_rank);
    int lost = with_devices ? drop_lost(plan, names, sizeof names) : 0;
    if (lost > 0) {
        snprintf(why, size, "%s %s gone", names, lost == 1 ? "is" : "are");
        if (plan->devices.count < least) {
            ddp_log(DDP_LOG_ERROR, "not restarting: %s, and %d left, fewer than --nproc %d:", why,
                    plan->devices.count, least);
            return false;
        }
        if (plan->nproc > plan->devices.count)
            plan->nproc = plan->devices.count;
        failures->count = 0;
    } else if (failures->count >= FAILURES_IN_A_ROW && plan->nproc > least) {
        snprintf(why, size, "rank %d failed %d times in a row", failed_rank, failures->count);
        plan->nproc--;
        if (with_devices) {
            devices_drop(&plan->devices, failed_rank);
            plan->own_list = true;
        }
        failures->count = 0;
    }
    return true;
}
