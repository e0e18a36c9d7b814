/* SPDX-License-Identifier: MIT
 *
 * See link.h. */
#include "config.h"

#include "launcher/link.h"

#include "core/log.h"

enum ddp_status link_open(struct link **link, const struct link_setup *setup)
{
    *link = NULL;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "node %d of %d: this build cannot link nodes yet",
                    setup->node, setup->node_count);
}

int link_fd(const struct link *link)
{
    (void)link;
    return -1;
}

bool link_next(struct link *link, struct link_message *message)
{
    (void)link, (void)message;
    return false;
}

enum ddp_status link_send(struct link *link, enum link_kind kind, const void *data, size_t bytes)
{
    (void)link, (void)kind, (void)data, (void)bytes;
    return DDP_ERR_ABORTED;
}

enum ddp_status link_send_to(struct link *link, int node, enum link_kind kind, const void *data,
                             size_t bytes)
{
    (void)node;
    return link_send(link, kind, data, bytes);
}

void link_set_status(struct link *link, const struct link_status *status)
{
    (void)link, (void)status;
}

const struct link_status *link_status(const struct link *link, int node)
{
    (void)link, (void)node;
    return NULL;
}

int link_node(const struct link *link)
{
    (void)link;
    return 0;
}

int link_node_count(const struct link *link)
{
    (void)link;
    return 1;
}

bool link_node_alive(const struct link *link, int node)
{
    (void)link, (void)node;
    return false;
}

const char *link_node_name(const struct link *link, int node)
{
    (void)link, (void)node;
    return "";
}

const char *link_address(const struct link *link)
{
    (void)link;
    return "";
}

int link_worker_port(const struct link *link)
{
    (void)link;
    return 0;
}

uint64_t link_job_id(const struct link *link)
{
    (void)link;
    return 0;
}

const char *link_interface(const struct link *link)
{
    (void)link;
    return "";
}

void link_close(struct link *link)
{
    (void)link;
}
