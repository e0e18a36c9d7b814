/* SPDX-License-Identifier: MIT
 *
 * See explain.h. */
#include "config.h"

#include "launcher/explain.h"

#include "core/plugin.h"
#include "core/text.h"
#include "launcher/link/address.h"
#include "launcher/link/proof.h"

#include <limits.h>
#include <net/if.h>
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

/* The interface through which another machine is reached, and our address there. Nothing is sent.
 * False: there is no way. */
static bool route_to(const struct address *address, struct address *from, char name[IF_NAMESIZE])
{
    int fd = socket(address->socket.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    const bool found =
        connect(fd, (const struct sockaddr *)&address->socket, address->length) == 0 &&
        address_of_socket(fd, false, from);
    close(fd);
    if (found)
        address_interface(from, name, IF_NAMESIZE);
    return found && *name;
}

/* What else could be given. */
static void print_own(FILE *out)
{
    struct address own;
    char list[512], host[LINK_NAME_BYTES];
    if (addresses_own(&own, 0, list, sizeof list)) {
        address_host(&own, host);
        fprintf(out, "    Address of this machine: %s\n", host);
    } else {
        fprintf(out, "    Addresses of this machine: %s\n", *list ? list : "none");
    }
}

/* The name stands beside 127.0.1.1 in /etc/hosts. Node 0 takes its one other address then. */
static void print_trap(const struct place *place, const char *name, const char *host, FILE *out)
{
    struct address own;
    char list[512], other[LINK_NAME_BYTES];
    fprintf(out, " here: that is this machine itself, and no other machine can reach it there\n");
    if (place->node == 0 && addresses_own(&own, 0, list, sizeof list)) {
        address_host(&own, other);
        fprintf(out, "    Node 0 listens on its one other address instead: %s\n", other);
        return;
    }
    fprintf(out,
            "    Remove %s from the line with %s in /etc/hosts, or give --master-addr an address "
            "of node 0\n",
            name, host);
    if (place->node == 0)
        print_own(out);
}

static void print_address(const struct place *place, const char *name,
                          const struct address *address, bool trap, FILE *out)
{
    char host[LINK_NAME_BYTES], own[LINK_NAME_BYTES], interface[IF_NAMESIZE] = "";
    struct address from;
    address_host(address, host);
    address_interface(address, interface, sizeof interface);
    fprintf(out, "  %s", name);
    if (strcmp(host, place->address) != 0)
        fprintf(out, " is %s", host);
    if (trap) {
        print_trap(place, name, host, out);
    } else if (address_is_loopback(address)) {
        fputs(", the loopback interface: all nodes must run on this machine\n", out);
    } else if (*interface) {
        fprintf(out, ", on interface %s of this machine%s\n", interface,
                place->node == 0 ? "" : ", which is not node 0");
    } else if (place->node == 0) {
        fputs(", which is not an address of this machine, so node 0 cannot listen there\n", out);
        print_own(out);
    } else if (route_to(address, &from, interface)) {
        address_host(&from, own);
        fprintf(out, ", reached through interface %s (%s)\n", interface, own);
    } else {
        fputs(", to which this machine has no route\n", out);
    }
}

/* `name`: of node 0, as it may be shown. */
static void print_network(const struct place *place, const char *name, FILE *out)
{
    struct addresses found;
    char why[256];
    bool again;
    if (!addresses_find(&found, place->address, place->port, why, sizeof why, &again)) {
        fprintf(out, "  %s cannot be resolved on this machine: %s\n", name, why);
        return;
    }
    for (int i = 0; i < found.count; i++)
        print_address(place, name, &found.list[i], found.trap, out);
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

/* `pmix`: it can be used. */
static void print_security(const struct place *place, const struct settings *settings, bool pmix,
                           FILE *out)
{
    struct proof proof = {0};
    const struct proof_setup setup = {.key_file = settings->key_file,
                                      .pmix = pmix,
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
    const struct ddp_plugin *plugin;
    if (place->node_count == 1) {
        fprintf(out, "nodes: 1, this machine: %s\n", why_alone(settings));
        return;
    }
    fprintf(out, "started: %s\nnodes: ", who_started(place->kind));
    if (place_is_elastic(place))
        fprintf(out, "%d to %d, which come and go; this is %snode 0\n", place->least_nodes,
                place->node_count, place->node > 0 ? "not " : "");
    else
        fprintf(out, "%d; this is node %d\n", place->node_count, place->node);
    const bool pmix = place->pmix && ddp_plugin_load(&plugin, "pmix", false) == DDP_OK;
    if (pmix)
        fputs("node 0 tells the others through PMIx where it listens\n", out);
    else if (place->pmix)
        fputs("there is a PMIx server, but not ddprun's plugin for it, libddp-pmix.so (package "
              "ddprun-pmix)\n",
              out);
    if (*place->address) {
        fprintf(out, "node 0 listens at: %s (%s), ", ddp_text_show(shown, place->address),
                address_source(place, settings));
        print_port(place, out);
        fputc('\n', out);
        print_network(place, shown, out);
    } else if (!pmix) {
        fputs("  nothing else says where node 0 is: --master-addr is needed then\n", out);
    }
    print_security(place, settings, pmix, out);
    fprintf(out, "time for all nodes to join: %g s (--node-timeout)\n",
            settings->node_timeout_seconds);
}
