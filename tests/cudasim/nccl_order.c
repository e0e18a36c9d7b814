/* SPDX-License-Identifier: MIT
 *
 * When an operation of the simulated NCCL may begin, beside its turn in its stream and
 * communicator. The environment asks for what only GPUs do:
 *   DDP_CUDASIM_NCCL_ROOM=1      a GPU has room for one operation, of any communicator, so that
 *                                opposite orders on two ranks wait for ever. Where several could
 *                                begin, odd ranks prefer the youngest. A lone send or receive needs
 *                                no room
 *   DDP_CUDASIM_NCCL_CONNECT=MS  so long takes what a communicator calls for the first time, of
 *                                each kind: NCCL connects ranks then
 */
#include "config.h"

#include "tests/cudasim/internal.h"
#include "tests/cudasim/nccl_sim.h"

#include "tests/cudasim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define YIELD_NS INT64_C(20000000) /* how long an operation lets others of the device go first */

/* Of a device, in this process. */
static struct {
    const struct nccl_sim_batch *running; /* in its only room */
    uint64_t placed, begun;               /* operations, in the order of the calls */
} devices[SIM_MAX_DEVICES];

static long setting(const char *name)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 10) : 0;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void nccl_sim_place(struct nccl_sim_batch *batch)
{
    batch->place = ++devices[batch->comm->device].placed;
}

static bool is_alone(const struct nccl_sim_batch *batch)
{
    return batch->count == 1 && batch->tasks[0].signature.kind >= NCCL_SIM_SEND;
}

static bool is_connected(struct nccl_sim_batch *batch)
{
    struct ncclComm *comm = batch->comm;
    const long ms = setting("DDP_CUDASIM_NCCL_CONNECT");
    unsigned kinds = 0;
    for (size_t i = 0; i < batch->count; i++)
        kinds |= 1u << batch->tasks[i].signature.kind;
    if (ms > 0 && (kinds & ~comm->connected)) {
        comm->connected_ns = comm->connected_ns ? comm->connected_ns : now_ns() + ms * 1000000;
        if (now_ns() < comm->connected_ns)
            return false;
    }
    comm->connected |= kinds;
    comm->connected_ns = 0;
    return true;
}

/* Should another operation of the device begin first, and may it still come? */
static bool yields(struct nccl_sim_batch *batch)
{
    const struct ncclComm *comm = batch->comm;
    const uint64_t placed = devices[comm->device].placed;
    const bool first = batch->place == devices[comm->device].begun + 1;
    if (comm->rank % 2 ? batch->place == placed : first)
        return false;
    batch->since_ns = batch->since_ns ? batch->since_ns : now_ns();
    return now_ns() - batch->since_ns < YIELD_NS;
}

bool nccl_sim_may_begin(struct nccl_sim_batch *batch)
{
    const int device = batch->comm->device;
    const bool needs_room = setting("DDP_CUDASIM_NCCL_ROOM") != 0 && !is_alone(batch);
    if (needs_room && (devices[device].running || yields(batch)))
        return false;
    if (!is_connected(batch))
        return false;
    if (needs_room)
        devices[device].running = batch;
    nccl_sim_skip(batch);
    return true;
}

void nccl_sim_skip(struct nccl_sim_batch *batch)
{
    devices[batch->comm->device].begun += batch->place > 0;
    batch->place = 0;
    batch->since_ns = 0;
}

void nccl_sim_ended(const struct nccl_sim_batch *batch)
{
    if (devices[batch->comm->device].running == batch)
        devices[batch->comm->device].running = NULL;
}
