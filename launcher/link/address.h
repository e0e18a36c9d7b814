/* SPDX-License-Identifier: MIT
 *
 * Addresses of nodes: what a name means here, which address this machine has for others, which
 * interface a connection goes through. */
#ifndef DDP_LAUNCHER_LINK_ADDRESS_H
#define DDP_LAUNCHER_LINK_ADDRESS_H

#include "launcher/link/frame.h"

#include <sys/socket.h>

#define ADDRESSES_MAX 16

struct address {
    struct sockaddr_storage socket; /* with a port */
    socklen_t length;
};

struct addresses {
    struct address list[ADDRESSES_MAX];
    int count;
    /* Those of this machine only are left out if there are others. Here there are none, and the
     * name is no literal address and not "localhost": /etc/hosts may have "127.0.1.1 HOSTNAME". */
    bool trap;
};

/* Looks a name or a literal address up; an IPv6 one may have brackets. False: `why` [out];
 * `again` [out]: it may be known later. */
bool addresses_find(struct addresses *addresses, const char *name, int port, char *why, size_t size,
                    bool *again);

/* The one address by which other machines reach this one. False: there is none, or `list` [out]
 * names several. */
bool addresses_own(struct address *own, int port, char *list, size_t size);

/* "10.0.0.1" or "fe80::1%eth0". */
void address_host(const struct address *address, char out[LINK_NAME_BYTES]);
/* "10.0.0.1:29400" or "[::1]:29400". */
void address_show(const struct address *address, char out[LINK_NAME_BYTES]);

/* "10.0.0.2 29500" */
void address_contact(const struct address *address, char out[CONTACT_BYTES]);

/* The same apart. False: it is nothing like that. */
bool address_read_contact(const char *contact, char host[CONTACT_BYTES], int *port);

/* A socket on the way to a port where nobody listens can meet itself. */
bool address_meets_itself(int fd);

int address_port(const struct address *address);
void address_set_port(struct address *address, int port);
bool address_is_loopback(const struct address *address);
bool address_is_any(const struct address *address); /* 0.0.0.0 or :: */

/* Of a socket: its own end or the other one. False: it is not connected. */
bool address_of_socket(int fd, bool peer, struct address *address);

/* The interface that has the address; "" if none has. */
void address_interface(const struct address *address, char *name, size_t size);

#endif
