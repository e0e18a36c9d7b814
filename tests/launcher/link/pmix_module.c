/* SPDX-License-Identifier: MIT
 *
 * A plugin for check_exchange in the place of libddp-pmix.so: a scheduler whose job the test
 * describes in FAKE_PMIX, "RANK SIZE", and that brings each contact to port 7 of "elsewhere". */
#include "config.h"

#include "core/plugin.h"
#include "launcher/link.h"
#include "launcher/pmix.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum ddp_status join(int *rank, int *size, double seconds, int interrupt_fd)
{
    if (seconds != 2.5 || interrupt_fd != 9)
        return DDP_ERR_INVALID;
    return sscanf(getenv("FAKE_PMIX"), "%d %d", rank, size) == 2 ? DDP_OK : DDP_ERR_SYSTEM;
}

static enum ddp_status share(void *data, size_t bytes, double seconds, int interrupt_fd)
{
    struct link_contact *contact = data;
    if (bytes != sizeof *contact || seconds != 2.5 || interrupt_fd != 9)
        return DDP_ERR_INVALID;
    if (atoi(getenv("FAKE_PMIX")) != 0)
        *contact = (struct link_contact){.address = "elsewhere", .port = 7};
    return DDP_OK;
}

static void leave(void)
{
    setenv("FAKE_PMIX", "closed", 1);
}

static const struct pmix_ops ops = {.open = join, .share = share, .close = leave};

extern DDP_API const struct ddp_plugin ddp_plugin;
const struct ddp_plugin ddp_plugin = {.abi = DDP_PLUGIN_ABI, .name = "pmix", .pmix = &ops};
