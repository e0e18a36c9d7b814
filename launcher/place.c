/* SPDX-License-Identifier: MIT
 *
 * See place.h. Each launcher has variables of its own; what stands in a batch script as well as in
 * a task tells nothing about who started us. */
#include "config.h"

#include "launcher/place.h"

#include "core/log.h"
#include "core/parse.h"
#include "launcher/place_text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TORCHRUN_PORT    29500 /* torchrun's default */
#define SLURM_PORT       20000 /* below the ports that systems give out by themselves */
#define SLURM_PORTS      10000
#define SLURM_PORT_TRIES 8

/* --- variables ------------------------------------------------------------------------------- */

/* The value, or NULL where it is unset or empty. */
static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

/* Reads a whole number from a variable that must be there. */
static enum ddp_status read_variable(const char *name, int64_t min, int64_t max, int *value)
{
    const char *text = variable(name);
    int64_t number;
    if (!text)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s is not set beside its launcher's other variables: pass it on, or give "
                        "--nnodes 1 for a job on this machine",
                        name);
    if (!ddp_parse_int64(text, min, max, &number))
        return ddp_fail(DDP_ERR_INVALID, "%s=%s: must be a whole number from %lld to %lld", name,
                        text, (long long)min, (long long)max);
    *value = (int)number;
    return DDP_OK;
}

/* A number that only chooses a port; 0 where there is none. */
static uint64_t number_of(const char *name)
{
    const char *text = variable(name);
    uint64_t number = 0;
    return text && ddp_parse_uint64(text, &number) ? number : 0;
}

static bool is_zero(const char *name)
{
    const char *text = variable(name);
    return !text || strcmp(text, "0") == 0;
}

static enum ddp_status fail_once(bool first, const char *format, ...) DDP_PRINTF(2, 3);

/* What all tasks find alike is explained by the first of them: the others name it, each for itself,
 * because nobody knows whether one person reads them all. */
static enum ddp_status fail_once(bool first, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (first)
        return ddp_fail(DDP_ERR_INVALID, "%s", text);
    char *colon = strstr(text, ": ");
    if (colon)
        *colon = 0;
    return ddp_fail(DDP_ERR_INVALID, "%s: the error of task 0 says what to do", text);
}

static enum ddp_status copy_address(struct place *place, const char *name, const char *text)
{
    const size_t length = strlen(text);
    if (length >= sizeof place->address)
        return ddp_fail(DDP_ERR_INVALID, "%s: must have at most %zu bytes", name,
                        sizeof place->address - 1);
    memcpy(place->address, text, length + 1);
    return DDP_OK;
}

/* --- launchers ------------------------------------------------------------------------------- */

/* A launcher of MPI programs, which says how many tasks there are, also on this machine. */
struct mpi_variables {
    enum place_kind kind;
    const char *size, *rank, *local_size, *local_rank;
    const char *one_each; /* how to start one task a node */
};

static const struct mpi_variables open_mpi = {.kind = PLACE_OPEN_MPI,
                                              .size = "OMPI_COMM_WORLD_SIZE",
                                              .rank = "OMPI_COMM_WORLD_RANK",
                                              .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
                                              .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
                                              .one_each = "mpirun -N 1"};
static const struct mpi_variables hydra = {.kind = PLACE_HYDRA,
                                           .size = "PMI_SIZE",
                                           .rank = "PMI_RANK",
                                           .local_size = "MPI_LOCALNRANKS",
                                           .local_rank = "MPI_LOCALRANKID",
                                           .one_each = "mpiexec -ppn 1"};

static enum ddp_status find_mpi(struct place *place, const struct mpi_variables *names)
{
    int local = 1;
    enum ddp_status status = read_variable(names->size, 1, INT32_MAX, &place->node_count);
    if (status != DDP_OK || place->node_count == 1)
        return status;
    if (variable(names->local_size) || names == &open_mpi)
        status = read_variable(names->local_size, 1, INT32_MAX, &local);
    if (status == DDP_OK && local != 1)
        return fail_once(is_zero(names->local_rank),
                         "%s=%d: ddprun starts the workers of a node itself: start one ddprun on "
                         "each node, with %s, or give --nnodes 1 for a job of its own in each task",
                         names->local_size, local, names->one_each);
    if (status == DDP_OK)
        status = read_variable(names->rank, 0, place->node_count - 1, &place->node);
    place->kind = names->kind;
    return status;
}

/* Task 0 must be on the first host of the list, because the others look for it there. */
static enum ddp_status find_slurm_address(struct place *place)
{
    const char *list = variable("SLURM_STEP_NODELIST"), *here = variable("SLURMD_NODENAME");
    if (!list || !place_first_host(list, place->address, sizeof place->address))
        return fail_once(place->node == 0,
                         "SLURM_STEP_NODELIST=%s: is not a list of hosts: give --master-addr, the "
                         "address of node 0",
                         list ? list : "");
    if (place->node == 0 && here && strcmp(here, place->address) != 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "task 0 of the step is on %s, but SLURM_STEP_NODELIST=%s begins with %s, "
                        "where the other nodes look for it: give --master-addr %s, or leave out "
                        "srun's --distribution",
                        here, list, place->address, here);
    return DDP_OK;
}

/* Two jobs that share a node listen on different ports, probably. */
static void find_slurm_port(struct place *place)
{
    const uint64_t job = number_of("SLURM_JOB_ID"), step = number_of("SLURM_STEP_ID");
    place->port = SLURM_PORT + (int)((job % SLURM_PORTS * 7 + step % SLURM_PORTS) % SLURM_PORTS);
    place->port_count = SLURM_PORT_TRIES;
}

/* Only the variables of a step say that srun started us: those of the job stand in batch scripts
 * and in the shell of salloc too. */
static enum ddp_status find_slurm(struct place *place)
{
    const char *tasks = variable("SLURM_STEP_TASKS_PER_NODE");
    enum ddp_status status =
        read_variable("SLURM_STEP_NUM_NODES", 1, INT32_MAX, &place->node_count);
    if (status != DDP_OK || place->node_count == 1)
        return status;
    place->kind = PLACE_SLURM;
    if (!tasks || !place_one_task_each(tasks, place->node_count))
        return fail_once(
            is_zero("SLURM_PROCID"),
            "SLURM_STEP_TASKS_PER_NODE=%s: ddprun starts the workers of a node itself: "
            "start one ddprun on each node, with srun --ntasks-per-node=1, or give "
            "--nnodes 1 for a job of its own in each task",
            tasks ? tasks : "");
    return read_variable("SLURM_PROCID", 0, place->node_count - 1, &place->node);
}

/* Who started us, one task a node; PLACE_ALONE where nobody did. mpirun comes first: inside an
 * allocation its tasks inherit the variables of the step in which its daemons run. */
static enum ddp_status find_launcher(struct place *place)
{
    if (variable(open_mpi.size))
        return find_mpi(place, &open_mpi);
    if (variable(hydra.size) && variable(hydra.local_size))
        return find_mpi(place, &hydra);
    if (variable("SLURM_STEP_NUM_NODES"))
        return find_slurm(place);
    return variable(hydra.size) ? find_mpi(place, &hydra) : DDP_OK;
}

/* --- what the user says ---------------------------------------------------------------------- */

static const char *launcher_name(enum place_kind kind)
{
    return kind == PLACE_SLURM ? "srun" : kind == PLACE_HYDRA ? "mpiexec" : "mpirun";
}

/* srun --no-kill does without a node that is lost; mpirun and mpiexec then end all tasks. */
static enum ddp_status use_range(struct place *place, const struct settings *s)
{
    const char *who = launcher_name(place->kind);
    if (place->kind != PLACE_SLURM)
        return fail_once(place->node == 0,
                         "--nnodes %d:%d, but %s started %d tasks, whose number does not change: "
                         "leave --nnodes out, or start each ddprun by itself",
                         s->least_nnodes, s->nnodes, who, place->node_count);
    if (place->node_count < s->least_nnodes || place->node_count > s->nnodes)
        return fail_once(place->node == 0,
                         "--nnodes %d:%d, but %s started %d tasks, one a node: start a number of "
                         "tasks in that range",
                         s->least_nnodes, s->nnodes, who, place->node_count);
    place->least_nodes = s->least_nnodes;
    place->node_count = s->nnodes;
    return DDP_OK;
}

/* Options may repeat what the launcher says, and must not say something else. */
static enum ddp_status check_launcher(struct place *place, const struct settings *s)
{
    const char *who = launcher_name(place->kind);
    if (s->least_nnodes && use_range(place, s) != DDP_OK)
        return DDP_ERR_INVALID;
    if (!s->least_nnodes && s->nnodes > 0 && s->nnodes != place->node_count)
        return fail_once(place->node == 0,
                         "--nnodes %d, but %s started %d tasks, one a node: leave --nnodes out, or "
                         "start as many tasks",
                         s->nnodes, who, place->node_count);
    if (s->node_rank >= 0 && s->node_rank != place->node)
        return ddp_fail(DDP_ERR_INVALID,
                        "--node-rank %d, but %s says that this is node %d: leave --node-rank out "
                        "(a shell replaces a variable in it before %s starts the tasks)",
                        s->node_rank, who, place->node, who);
    return DDP_OK;
}

/* Without a launcher the options must say it all. */
static enum ddp_status use_options(struct place *place, const struct settings *s)
{
    place->kind = PLACE_OPTIONS;
    place->node_count = s->nnodes;
    place->least_nodes = s->least_nnodes;
    place->node = s->node_rank;
    if (s->node_rank < 0 && place_is_elastic(place)) {
        place->node = s->nnodes - 1; /* behind those that have a wish */
        return DDP_OK;
    }
    if (s->node_rank < 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "--nnodes %d needs --node-rank (or PET_NODE_RANK): 0 on one node, up to %d "
                        "on the others",
                        s->nnodes, s->nnodes - 1);
    if (s->node_rank >= s->nnodes)
        return ddp_fail(DDP_ERR_INVALID, "--node-rank %d: must be from 0 to %d with --nnodes %d",
                        s->node_rank, s->nnodes - 1, s->nnodes);
    return DDP_OK;
}

static enum ddp_status use_endpoint(struct place *place, const char *name, const char *text)
{
    if (!place_read_endpoint(text, place->address, sizeof place->address, &place->port))
        return ddp_fail(DDP_ERR_INVALID, "%s %s: must be the address of node 0: HOST:PORT", name,
                        text);
    return DDP_OK;
}

/* MASTER_ADDR and MASTER_PORT, as scripts and Kubernetes' operators set them: where nothing else
 * says where node 0 is. */
static enum ddp_status use_master_variables(struct place *place)
{
    const char *address = variable("MASTER_ADDR");
    if (!address)
        return DDP_OK;
    enum ddp_status status = copy_address(place, "MASTER_ADDR", address);
    if (status == DDP_OK && variable("MASTER_PORT"))
        status = read_variable("MASTER_PORT", 1, 65535, &place->port);
    return status;
}

static enum ddp_status find_address(struct place *place, const struct settings *s)
{
    enum ddp_status status = DDP_OK;
    if (s->master_addr)
        status = copy_address(place, "--master-addr", s->master_addr);
    else if (s->rdzv_endpoint)
        status = use_endpoint(place, "--rdzv-endpoint", s->rdzv_endpoint);
    else if (place->kind == PLACE_SLURM)
        status = find_slurm_address(place);
    else
        status = use_master_variables(place);
    if (status == DDP_OK && s->local_addr && place->node == 0)
        status = copy_address(place, "--local-addr", s->local_addr);
    if (status != DDP_OK)
        return status;
    if (!*place->address && !place->pmix)
        return fail_once(place->node == 0 || place->kind == PLACE_OPTIONS,
                         "nothing says where node 0 is: give --master-addr, its name or address "
                         "(PET_MASTER_ADDR, MASTER_ADDR)%s",
                         place->kind == PLACE_OPTIONS ? "" : ", on each node");
    if (s->master_port)
        place->port = (int)s->master_port;
    if (place->port == 0 && place->kind == PLACE_SLURM)
        find_slurm_port(place);
    else if (place->port == 0 && *place->address)
        place->port = TORCHRUN_PORT;
    return DDP_OK;
}

static enum ddp_status check_alone(const struct settings *s)
{
    if (s->standalone && s->nnodes > 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "--standalone is a job on this machine: leave it out with --nnodes %d",
                        s->nnodes);
    if (s->node_rank > 0 && (s->nnodes == 1 || s->standalone))
        return ddp_fail(DDP_ERR_INVALID, "--node-rank %d: must be 0 with %s", s->node_rank,
                        s->standalone ? "--standalone" : "--nnodes 1");
    return DDP_OK;
}

enum ddp_status place_find(struct place *place, const struct settings *settings)
{
    const struct settings *s = settings;
    *place = (struct place){.kind = PLACE_ALONE, .node_count = 1, .port_count = 1};
    enum ddp_status status = check_alone(s);
    if (status != DDP_OK || s->nnodes == 1 || s->standalone)
        return status;
    status = find_launcher(place);
    if (status != DDP_OK)
        return status;
    if (place->kind != PLACE_ALONE)
        status = check_launcher(place, s);
    else if (s->nnodes > 1)
        status = use_options(place, s);
    else if (s->node_rank > 0)
        status = ddp_fail(DDP_ERR_INVALID, "--node-rank %d needs --nnodes, the number of nodes",
                          s->node_rank);
    if (status != DDP_OK || place->kind == PLACE_ALONE)
        return status;
    /* PMIx takes a task that is lost for the end of all. */
    place->pmix = !place_is_elastic(place) &&
                  (place->kind == PLACE_OPEN_MPI || place->kind == PLACE_SLURM) &&
                  variable("PMIX_RANK") && variable("PMIX_NAMESPACE");
    return find_address(place, s);
}
