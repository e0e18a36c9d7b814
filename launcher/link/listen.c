/* SPDX-License-Identifier: MIT
 *
 * See listen.h. */
#include "config.h"

#include "launcher/link/listen.h"
#include "launcher/link/peers.h"
#include "launcher/system/port_owner.h"

#include "core/clock.h"
#include "core/log.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* An address that others can reach, in place of one that means this machine to itself. */
static enum ddp_status leave_trap(const struct link_setup *s, struct addresses *addresses)
{
    char list[512], host[LINK_NAME_BYTES];
    struct address own;
    address_host(&addresses->list[0], host);
    if (addresses_own(&own, s->port, list, sizeof list)) {
        addresses->list[0] = own;
        addresses->count = 1;
        address_host(&own, list);
        ddp_log(
            DDP_LOG_INFO,
            "%s is %s on this machine (see /etc/hosts), which other machines cannot reach: node 0 "
            "listens on %s",
            s->address, host, list);
        return DDP_OK;
    }
    if (!list[0])
        return DDP_OK; /* there is nothing else, and nobody else */
    return ddp_fail(
        DDP_ERR_INVALID,
        "%s is %s on this machine (see /etc/hosts), which other machines cannot reach, and "
        "this machine has several addresses (%s): give one to all nodes with "
        "--master-addr",
        s->address, host, list);
}

static enum ddp_status find_own(const struct link_setup *s, struct addresses *addresses)
{
    char list[512], why[256];
    bool again;
    if (s->host[0] && addresses_find(addresses, s->host, s->port, why, sizeof why, &again) &&
        !addresses->trap)
        return DDP_OK;
    addresses->count = 1;
    if (addresses_own(&addresses->list[0], s->port, list, sizeof list))
        return DDP_OK;
    return ddp_fail(DDP_ERR_INVALID,
                    "it is not clear by which address the other nodes reach this machine (%s): "
                    "give one to all nodes with --master-addr",
                    list[0] ? list : "it has none");
}

static enum ddp_status find_addresses(const struct link_setup *s, int64_t deadline_ns,
                                      struct addresses *addresses)
{
    char why[256];
    bool again, told = false;
    const char *name = s->address;
    if (!*name)
        return find_own(s, addresses);
    while (!addresses_find(addresses, name, s->port, why, sizeof why, &again)) {
        if (!again || ddp_deadline_passed(deadline_ns))
            return ddp_fail(DDP_ERR_IO, "node 0 has no address: %s: %s", name, why);
        if (!told)
            ddp_log(DDP_LOG_INFO, "%s: %s; trying again", name, why);
        told = true;
        const enum ddp_status status = link_pause(s, -1, 0, 500);
        if (status != DDP_ERR_TIMEOUT)
            return status;
    }
    return addresses->trap ? leave_trap(s, addresses) : DDP_OK;
}

int link_listen_at(const struct address *address)
{
    const int family = address->socket.ss_family, one = 1;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
    if (bind(fd, (const struct sockaddr *)&address->socket, address->length) == 0 &&
        listen(fd, SOMAXCONN) == 0)
        return fd;
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

static enum ddp_status cannot_listen(const struct link_setup *s, const struct address *address,
                                     int error)
{
    char shown[LINK_NAME_BYTES], owner[160] = "";
    address_show(address, shown);
    if (error == EADDRINUSE)
        port_owner(address_port(address), owner, sizeof owner);
    if (error == EADDRNOTAVAIL)
        return ddp_fail(DDP_ERR_INVALID,
                        "node 0 cannot listen on %s: this machine does not have that address; "
                        "--master-addr is to name the machine of node 0",
                        shown);
    if (error == EADDRINUSE && s->port_count > 1)
        return ddp_fail(
            DDP_ERR_IO,
            "node 0 cannot listen on %s: this port and the %d before it are taken%s%s; give "
            "a free one to all nodes with --master-port",
            shown, s->port_count - 1, *owner ? ", this one by " : "", owner);
    return ddp_fail(DDP_ERR_IO,
                    "node 0 cannot listen on %s: %s%s%s; give another port to all nodes with "
                    "--master-port",
                    shown, strerror(error), *owner ? ", by " : "", owner);
}

enum ddp_status link_listen(const struct link_setup *s, int64_t deadline_ns, int *listener,
                            struct address *address)
{
    struct addresses addresses;
    int fd = -1, error = EADDRNOTAVAIL;
    enum ddp_status status = find_addresses(s, deadline_ns, &addresses);
    if (status != DDP_OK)
        return status;
    /* Of ports that nobody chose, any is as good where the others are told which. */
    const int port_count = s->port_count + (s->exchange && s->port_count > 1);
    for (int port = 0; port < port_count && fd < 0; port++)
        for (int i = 0; i < addresses.count && fd < 0; i++) {
            *address = addresses.list[i];
            address_set_port(address, port < s->port_count ? s->port + port : 0);
            if (address_is_any(address))
                return ddp_fail(DDP_ERR_INVALID,
                                "--master-addr %s names no machine: give the address of node 0",
                                s->address);
            fd = link_listen_at(address);
            /* Of several addresses of a name, those of other machines say nothing. */
            if (fd < 0 && errno != EADDRNOTAVAIL)
                error = errno;
        }
    if (fd < 0)
        return cannot_listen(s, address, error);
    address_of_socket(fd, false, address);
    *listener = fd;
    return DDP_OK;
}
