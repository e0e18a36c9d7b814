/* SPDX-License-Identifier: MIT
 *
 * Where node 0 listens: on one address, that by which the other nodes know it. */
#ifndef DDP_LAUNCHER_LINK_LISTEN_H
#define DDP_LAUNCHER_LINK_LISTEN_H

#include "launcher/link/address.h"

/* Listens at an address of this machine, without waiting: the descriptor, or -1 and errno. */
int link_listen_at(const struct address *address);

/* Opens the listening socket. A name that is not known yet is tried again until the deadline.
 * *listener, *address [out]. The errors of link_open(). */
enum ddp_status link_listen(const struct link_setup *setup, int64_t deadline_ns, int *listener,
                            struct address *address);

#endif
