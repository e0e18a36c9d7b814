/* SPDX-License-Identifier: MIT
 *
 * See address.h. */
#include "config.h"

#include "launcher/link/address.h"

#include "core/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct sockaddr_in *as_v4(const struct sockaddr *socket)
{
    return (const struct sockaddr_in *)(const void *)socket;
}

static const struct sockaddr_in6 *as_v6(const struct sockaddr *socket)
{
    return (const struct sockaddr_in6 *)(const void *)socket;
}

static const struct sockaddr *socket_of(const struct address *address)
{
    return (const struct sockaddr *)&address->socket;
}

static bool is_loopback(const struct sockaddr *socket)
{
    if (socket->sa_family == AF_INET)
        return ntohl(as_v4(socket)->sin_addr.s_addr) >> 24 == 127;
    return socket->sa_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&as_v6(socket)->sin6_addr);
}

bool address_is_loopback(const struct address *address)
{
    return is_loopback(socket_of(address));
}

bool address_is_any(const struct address *address)
{
    const struct sockaddr *socket = socket_of(address);
    if (socket->sa_family == AF_INET)
        return as_v4(socket)->sin_addr.s_addr == htonl(INADDR_ANY);
    return socket->sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&as_v6(socket)->sin6_addr);
}

int address_port(const struct address *address)
{
    return ntohs(address->socket.ss_family == AF_INET6 ? as_v6(socket_of(address))->sin6_port
                                                       : as_v4(socket_of(address))->sin_port);
}

void address_set_port(struct address *address, int port)
{
    if (address->socket.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)&address->socket)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)&address->socket)->sin_port = htons((uint16_t)port);
}

void address_host(const struct address *address, char out[LINK_NAME_BYTES])
{
    if (getnameinfo(socket_of(address), address->length, out, LINK_NAME_BYTES, NULL, 0,
                    NI_NUMERICHOST) != 0)
        snprintf(out, LINK_NAME_BYTES, "(unknown)");
}

void address_show(const struct address *address, char out[LINK_NAME_BYTES])
{
    char host[LINK_NAME_BYTES];
    address_host(address, host);
    snprintf(out, LINK_NAME_BYTES, strchr(host, ':') ? "[%.200s]:%d" : "%.200s:%d", host,
             address_port(address));
}

bool address_of_socket(int fd, bool peer, struct address *address)
{
    address->length = sizeof address->socket;
    struct sockaddr *socket = (struct sockaddr *)&address->socket;
    return (peer ? getpeername : getsockname)(fd, socket, &address->length) == 0;
}

void address_contact(const struct address *address, char out[CONTACT_BYTES])
{
    char host[LINK_NAME_BYTES];
    address_host(address, host);
    snprintf(out, CONTACT_BYTES, "%.64s %d", host, address_port(address));
}

bool address_read_contact(const char *contact, char host[CONTACT_BYTES], int *port)
{
    int64_t number;
    const char *space = strrchr(contact, ' ');
    if (!space || !ddp_parse_int64(space + 1, 1, 65535, &number))
        return false;
    snprintf(host, CONTACT_BYTES, "%.*s", (int)(space - contact), contact);
    *port = (int)number;
    return true;
}

bool address_meets_itself(int fd)
{
    struct address own, other;
    return address_of_socket(fd, false, &own) && address_of_socket(fd, true, &other) &&
           own.length == other.length && memcmp(&own.socket, &other.socket, own.length) == 0;
}

/* Without the port. */
static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    if (a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return as_v4(a)->sin_addr.s_addr == as_v4(b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           memcmp(&as_v6(a)->sin6_addr, &as_v6(b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

/* --- names ------------------------------------------------------------------------------------ */

/* Does the user mean this machine when he writes this? */
static bool says_loopback(const char *name)
{
    const size_t length = strlen(name), tail = strlen(".localhost");
    return strcasecmp(name, "localhost") == 0 || strcasecmp(name, "ip6-localhost") == 0 ||
           (length > tail && strcasecmp(name + length - tail, ".localhost") == 0);
}

static bool is_literal(const char *name)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST}, *found = NULL;
    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return false;
    freeaddrinfo(found);
    return true;
}

static void without_brackets(char out[LINK_NAME_BYTES], const char *name)
{
    size_t length = strlen(name);
    const bool brackets = length >= 2 && name[0] == '[' && name[length - 1] == ']';
    snprintf(out, LINK_NAME_BYTES, "%.*s", (int)(brackets ? length - 2 : length),
             name + (brackets ? 1 : 0));
}

static bool is_address(const struct addrinfo *i)
{
    return i->ai_family == AF_INET || i->ai_family == AF_INET6;
}

bool addresses_find(struct addresses *addresses, const char *name, int port, char *why, size_t size,
                    bool *again)
{
    char plain[LINK_NAME_BYTES];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    addresses->count = 0;
    without_brackets(plain, name);
    int error = getaddrinfo(plain, NULL, &hints, &found);
    *again = error == EAI_AGAIN || error == EAI_NONAME || error == EAI_NODATA;
    if (error != 0) {
        snprintf(why, size, "%s", error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
        return false;
    }
    int outside = 0;
    for (struct addrinfo *i = found; i; i = i->ai_next)
        outside += is_address(i) && !is_loopback(i->ai_addr);
    for (struct addrinfo *i = found; i && addresses->count < ADDRESSES_MAX; i = i->ai_next) {
        if (!is_address(i) || (outside > 0 && is_loopback(i->ai_addr)))
            continue;
        struct address *address = &addresses->list[addresses->count++];
        *address = (struct address){.length = i->ai_addrlen};
        memcpy(&address->socket, i->ai_addr, i->ai_addrlen);
        address_set_port(address, port);
    }
    freeaddrinfo(found);
    addresses->trap = outside == 0 && !says_loopback(plain) && !is_literal(plain);
    if (addresses->count == 0)
        snprintf(why, size, "it has no address of IPv4 or IPv6");
    return addresses->count > 0;
}

/* --- this machine ----------------------------------------------------------------------------- */

/* Bridges to containers and virtual machines on this machine lead nowhere else. */
static bool leads_out(const struct ifaddrs *i)
{
    static const char *const inner[] = {"docker", "br-", "virbr", "lxcbr", "cni", "veth"};
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        return false;
    for (size_t k = 0; k < sizeof inner / sizeof inner[0]; k++)
        if (strncmp(i->ifa_name, inner[k], strlen(inner[k])) == 0)
            return false;
    if (i->ifa_addr->sa_family == AF_INET)
        return ntohl(as_v4(i->ifa_addr)->sin_addr.s_addr) >> 16 != 0xa9fe; /* 169.254/16 */
    return i->ifa_addr->sa_family == AF_INET6 &&
           !IN6_IS_ADDR_LINKLOCAL(&as_v6(i->ifa_addr)->sin6_addr);
}

/* Those of one family. Returns how many. */
static int own_of(const struct ifaddrs *all, int family, struct address *own, char *list,
                  size_t size)
{
    int count = 0;
    size_t used = 0;
    for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
        char host[LINK_NAME_BYTES];
        if (!leads_out(i) || i->ifa_addr->sa_family != family)
            continue;
        *own = (struct address){.length = family == AF_INET ? sizeof(struct sockaddr_in)
                                                            : sizeof(struct sockaddr_in6)};
        memcpy(&own->socket, i->ifa_addr, own->length);
        address_host(own, host);
        if (used < size)
            used += (size_t)snprintf(list + used, size - used, "%s%s on %s", count ? ", " : "",
                                     host, i->ifa_name);
        count++;
    }
    return count;
}

bool addresses_own(struct address *own, int port, char *list, size_t size)
{
    struct ifaddrs *all = NULL;
    list[0] = 0;
    if (getifaddrs(&all) != 0)
        return false;
    int count = own_of(all, AF_INET, own, list, size);
    if (count == 0)
        count = own_of(all, AF_INET6, own, list, size);
    freeifaddrs(all);
    if (count == 1)
        address_set_port(own, port);
    return count == 1;
}

void address_interface(const struct address *address, char *name, size_t size)
{
    struct ifaddrs *all = NULL;
    name[0] = 0;
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *i = all; i && !name[0]; i = i->ifa_next)
        if (i->ifa_addr && same_host(i->ifa_addr, socket_of(address)))
            snprintf(name, size, "%s", i->ifa_name);
    freeifaddrs(all);
}
