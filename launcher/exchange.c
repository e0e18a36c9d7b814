/* SPDX-License-Identifier: MIT
 *
 * See exchange.h. */
#include "config.h"

#include "launcher/exchange.h"

#include "core/log.h"
#include "core/plugin.h"
#include "launcher/pmix.h"

static enum ddp_status check_job(const struct place *place, int rank, int size)
{
    if (rank == place->node && size == place->node_count)
        return DDP_OK;
    return ddp_fail(DDP_ERR_INVALID,
                    "the PMIx server says task %d of %d, the environment node %d of %d: start one "
                    "ddprun on each node, and nothing else, with one srun or mpirun",
                    rank, size, place->node, place->node_count);
}

enum ddp_status exchange_open(struct exchange *exchange, const struct place *place, double seconds,
                              int interrupt_fd)
{
    const struct ddp_plugin *plugin;
    int rank, size;
    *exchange = (struct exchange){.seconds = seconds, .interrupt_fd = interrupt_fd};
    if (!place->pmix || (place->kind != PLACE_OPEN_MPI && place->kind != PLACE_SLURM))
        return DDP_OK;
    if (ddp_plugin_load(&plugin, "pmix", false) != DDP_OK) {
        if (place->address[0])
            return DDP_OK;
        return ddp_fail(
            DDP_ERR_UNSUPPORTED,
            "mpirun tells where node 0 is through PMIx only, and the plugin libddp-pmix "
            "cannot be loaded: install the package ddprun-pmix, or give --master-addr");
    }
    enum ddp_status status = plugin->pmix->open(&rank, &size, seconds, interrupt_fd);
    if (status != DDP_OK)
        return status;
    exchange->pmix = plugin->pmix;
    status = check_job(place, rank, size);
    if (status != DDP_OK)
        exchange_close(exchange);
    return status;
}

enum ddp_status exchange_contact(void *exchange, struct link_contact *contact)
{
    const struct exchange *self = exchange;
    return self->pmix->share(contact, sizeof *contact, self->seconds, self->interrupt_fd);
}

void exchange_close(struct exchange *exchange)
{
    if (exchange->pmix)
        exchange->pmix->close();
    exchange->pmix = NULL;
}
