/* SPDX-License-Identifier: MIT
 *
 * What the nodes must know before they can connect, where a scheduler's PMIx server carries it:
 * loads and uses the plugin of pmix.h. */
#ifndef DDP_LAUNCHER_EXCHANGE_H
#define DDP_LAUNCHER_EXCHANGE_H

#include "launcher/link/link.h"
#include "launcher/place.h"

struct exchange {
    const struct pmix_ops *pmix; /* NULL: nothing is exchanged */
    double seconds;              /* limit of time for all nodes to come */
    int interrupt_fd;            /* readable: stop waiting for them; -1: none */
};

/* Connects to the PMIx server if there is one. Without the plugin: DDP_OK where node 0's address is
 * known by other means, else DDP_ERR_UNSUPPORTED (logged). Ended by exchange_close(), which must
 * not be before this ddprun ends: mpirun takes a client that ends without it for one that
 * crashed. */
enum ddp_status exchange_open(struct exchange *exchange, const struct place *place, double seconds,
                              int interrupt_fd);

/* For struct link_setup, with the exchange as the owner. */
enum ddp_status exchange_contact(void *exchange, struct link_contact *contact);

/* Also of a zeroed struct. */
void exchange_close(struct exchange *exchange);

#endif
