/* SPDX-License-Identifier: MIT
 *
 * See explain.h. */
#include "config.h"

#include "launcher/explain.h"

#include "core/text.h"
#include "launcher/proof.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- variables ------------------------------------------------------------------------------- */

static const char *const variables[] = {
    "PET_NNODES",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
    "PET_RDZV_ENDPOINT",
    "PET_LOCAL_ADDR",
    "PET_STANDALONE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMI_SIZE",
    "PMI_RANK",
    "MPI_LOCALNRANKS",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "SLURM_JOB_ID",
    "SLURM_NNODES",
    "SLURM_STEP_ID",
    "SLURM_STEP_NUM_NODES",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_STEP_NODELIST",
    "SLURM_PROCID",
    "SLURMD_NODENAME",
    "GLOO_SOCKET_IFNAME",
    "NCCL_SOCKET_IFNAME",
};

void explain_variables(FILE *out)
{
    char shown[DDP_TEXT_SHOWN], host[HOST_NAME_MAX + 1] = "";
    int found = 0;
    gethostname(host, sizeof host - 1);
    fprintf(out, "ddprun %s on %s\nvariables:\n", ddp_version(), ddp_text_show(shown, host));
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *value = getenv(variables[i]);
        if (value)
            fprintf(out, "  %s=%s\n", variables[i], ddp_text_show(shown, value));
        found += value != NULL;
    }
    if (getenv(PROOF_KEY_VARIABLE))
        fprintf(out, "  %s (not shown)\n", PROOF_KEY_VARIABLE);
    else if (found == 0)
        fputs("  none that say anything about nodes\n", out);
}

/* --- who started us -------------------------------------------------------------------------- */

static bool is_set(const char *name)
{
    const char *text = getenv(name);
    return text && *text;
}

static const char *why_alone(const struct settings *settings)
{
    if (settings->standalone)
        return "--standalone";
    if (settings->nnodes == 1)
        return "--nnodes 1";
    if (is_set("OMPI_COMM_WORLD_SIZE"))
        return "mpirun has started one task (OMPI_COMM_WORLD_SIZE)";
    if (is_set("SLURM_STEP_NUM_NODES"))
        return "the step of srun has one node (SLURM_STEP_NUM_NODES)";
    if (is_set("PMI_SIZE"))
        return "mpiexec has started one task (PMI_SIZE)";
    if (is_set("SLURM_JOB_ID"))
        return "this is a batch script or the shell of salloc (no SLURM_STEP_NUM_NODES): srun "
               "--ntasks-per-node=1 ddprun starts one ddprun on each node";
    return "no option or variable names more than one node";
}

static const char *who_started(enum place_kind kind)
{
    switch (kind) {
    case PLACE_OPTIONS:
        return "by hand: --nnodes and --node-rank, or PET_NNODES and PET_NODE_RANK";
    case PLACE_OPEN_MPI:
        return "by Open MPI's mpirun: OMPI_COMM_WORLD_SIZE and OMPI_COMM_WORLD_RANK";
    case PLACE_SLURM:
        return "by srun: SLURM_STEP_NUM_NODES and SLURM_PROCID";
    case PLACE_HYDRA:
        return "by MPICH's mpiexec: PMI_SIZE and PMI_RANK";
    case PLACE_ALONE:
        break;
    }
    return "alone";
}

static const char *address_source(const struct place *place, const struct settings *settings)
{
    if (settings->local_addr && place->node == 0)
        return "--local-addr or PET_LOCAL_ADDR";
    if (settings->master_addr)
        return "--master-addr or PET_MASTER_ADDR";
    if (settings->rdzv_endpoint)
        return "--rdzv-endpoint or PET_RDZV_ENDPOINT";
    return place->kind == PLACE_SLURM ? "the first host of SLURM_STEP_NODELIST" : "MASTER_ADDR";
}

/* --- the network ----------------------------------------------------------------------------- */

union address {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
};

static socklen_t size_of(const struct sockaddr *address)
{
    return address->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                          : sizeof(struct sockaddr_in);
}

static const char *text_of(const struct sockaddr *address, char text[NI_MAXHOST])
{
    if (getnameinfo(address, size_of(address), text, NI_MAXHOST, NULL, 0, NI_NUMERICHOST) != 0)
        snprintf(text, NI_MAXHOST, "?");
    return text;
}

static bool same_host(const struct sockaddr *a, const struct sockaddr *b)
{
    if (!a || !b || a->sa_family != b->sa_family)
        return false;
    if (a->sa_family == AF_INET)
        return ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
               ((const struct sockaddr_in *)b)->sin_addr.s_addr;
    return a->sa_family == AF_INET6 &&
           memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                  &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
}

static bool is_loopback(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

/* The name of the interface that has this address; false: none of this machine has it. */
static bool interface_of(const struct ifaddrs *list, const struct sockaddr *address,
                         char name[IF_NAMESIZE])
{
    for (; list; list = list->ifa_next)
        if (same_host(list->ifa_addr, address)) {
            snprintf(name, IF_NAMESIZE, "%s", list->ifa_name);
            return true;
        }
    return false;
}

/* The address of ours from which another machine is reached. Nothing is sent. */
static bool route_to(const struct sockaddr *address, union address *from)
{
    socklen_t size = sizeof *from;
    int fd = socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    const bool found =
        connect(fd, address, size_of(address)) == 0 && getsockname(fd, &from->any, &size) == 0;
    close(fd);
    return found;
}

/* The addresses that other machines could use. */
static void print_own(const struct ifaddrs *list, FILE *out)
{
    char text[NI_MAXHOST];
    const char *separator = "";
    for (; list; list = list->ifa_next) {
        const struct sockaddr *address = list->ifa_addr;
        if (!address || (address->sa_family != AF_INET && address->sa_family != AF_INET6) ||
            is_loopback(address) || !(list->ifa_flags & IFF_UP) ||
            (address->sa_family == AF_INET6 &&
             IN6_IS_ADDR_LINKLOCAL(&((const struct sockaddr_in6 *)address)->sin6_addr)))
            continue;
        fprintf(out, "%s%s on %s", separator, text_of(address, text), list->ifa_name);
        separator = ", ";
    }
    fputs(*separator ? "" : "none", out);
}

/* A name that stands in /etc/hosts beside 127.0.1.1 is the usual reason. */
static void print_loopback(const struct place *place, const char *numeric,
                           const struct ifaddrs *list, FILE *out)
{
    fputs("\n    This is the loopback interface: it works only if all nodes run on this machine.\n"
          "    ",
          out);
    if (strcmp(numeric, place->address) != 0)
        fprintf(out, "Take %s out of the line with %s in /etc/hosts, or give ", place->address,
                numeric);
    else
        fputs("Give ", out);
    fputs("--master-addr an address of node 0's network.\n    Addresses of this machine: ", out);
    print_own(list, out);
    fputc('\n', out);
}

static void print_address(const struct place *place, const struct sockaddr *address,
                          const struct ifaddrs *list, FILE *out)
{
    char numeric[NI_MAXHOST], own[NI_MAXHOST], interface[IF_NAMESIZE];
    union address from;
    text_of(address, numeric);
    fprintf(out, "  %s is %s", place->address, numeric);
    if (is_loopback(address)) {
        print_loopback(place, numeric, list, out);
    } else if (interface_of(list, address, interface)) {
        fprintf(out, ", on interface %s of this machine%s\n", interface,
                place->node == 0 ? "" : ": but this is not node 0");
    } else if (place->node == 0) {
        fputs(", which is no address of this machine, so node 0 cannot listen there.\n    "
              "Addresses of this machine: ",
              out);
        print_own(list, out);
        fputc('\n', out);
    } else if (route_to(address, &from) && interface_of(list, &from.any, interface)) {
        fprintf(out, ", reached through interface %s (%s)\n", interface, text_of(&from.any, own));
    } else {
        fputs(", to which this machine has no route\n", out);
    }
}

static void print_network(const struct place *place, FILE *out)
{
    struct addrinfo *found = NULL, hints = {.ai_socktype = SOCK_STREAM};
    struct ifaddrs *list = NULL;
    int error = getaddrinfo(place->address, NULL, &hints, &found);
    if (error != 0) {
        fprintf(out, "  %s cannot be resolved on this machine: %s\n", place->address,
                gai_strerror(error));
        return;
    }
    if (getifaddrs(&list) < 0)
        list = NULL;
    for (const struct addrinfo *one = found; one; one = one->ai_next)
        if (one->ai_family == AF_INET || one->ai_family == AF_INET6)
            print_address(place, one->ai_addr, list, out);
    if (list)
        freeifaddrs(list);
    freeaddrinfo(found);
}

/* --- all of it ------------------------------------------------------------------------------- */

static void print_port(const struct place *place, FILE *out)
{
    if (place->port == 0)
        fputs("any free port", out);
    else if (place->port_count > 1)
        fprintf(out, "port %d, or one of the next %d if it is taken", place->port,
                place->port_count - 1);
    else
        fprintf(out, "port %d", place->port);
}

static void print_security(const struct place *place, const struct settings *settings, FILE *out)
{
    struct proof proof = {0};
    const struct proof_setup setup = {.key_file = settings->key_file,
                                      .pmix = place->pmix,
                                      .munge = place->kind == PLACE_SLURM,
                                      .insecure = settings->insecure_link};
    fflush(out);
    if (proof_open(&proof, &setup) == DDP_OK)
        fprintf(out, "secured by: %s\n", proof_method_name(proof.method));
    else
        fputs("secured by: nothing yet, so the nodes would not link up (see the error)\n", out);
    proof_close(&proof);
}

void explain_place(const struct place *place, const struct settings *settings, FILE *out)
{
    char shown[DDP_TEXT_SHOWN];
    if (place->node_count == 1) {
        fprintf(out, "nodes: 1, this machine: %s\n", why_alone(settings));
        return;
    }
    fprintf(out, "started: %s\nnodes: %d; this is node %d\n", who_started(place->kind),
            place->node_count, place->node);
    if (place->pmix)
        fputs("node 0 tells the others through PMIx where it listens; without the plugin for PMIx "
              "they look here:\n",
              out);
    if (*place->address) {
        fprintf(out, "node 0 listens at: %s (%s), ", ddp_text_show(shown, place->address),
                address_source(place, settings));
        print_port(place, out);
        fputc('\n', out);
        print_network(place, out);
    } else {
        fputs("  nothing else says where node 0 is: --master-addr is needed then\n", out);
    }
    print_security(place, settings, out);
    fprintf(out, "time for all nodes to join: %g s (--node-timeout)\n",
            settings->node_timeout_seconds);
}
