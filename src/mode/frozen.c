/* SPDX-License-Identifier: MIT
 *
 * See frozen.h. */
#include "config.h"

#include "mode/frozen.h"

#include "comm/thin.h"
#include "core/bf16.h"
#include "core/blocks.h"
#include "core/hash.h"
#include "core/memory.h"
#include "kernels/bf16.h"

#include <stdlib.h>
#include <string.h>

#define BOUNCE_BYTES ((size_t)4 << 20) /* that travel at once */

/* Bytes of a parameter's memory, and of its copy, which is half as large. */
static size_t room_of(const struct ddp_parameter *frozen)
{
    return ddp_align_up(ddp_frozen_bytes(frozen), 2 * DDP_CACHE_LINE);
}

static bool has_copy(const struct ddp_parameter *frozen, enum ddp_dtype compute)
{
    return compute == DDP_BF16 && frozen->dtype == DDP_F32;
}

size_t ddp_frozen_host_bytes(const ddp_graph *graph, enum ddp_dtype compute)
{
    return ddp_graph_frozen_bytes(graph) +
           (compute == DDP_BF16 ? ddp_graph_frozen_f32_bytes(graph) / 2 : 0);
}

static bool is_read(const ddp_graph *graph, const ddp_graph *early, int i)
{
    return ddp_graph_reads_frozen(graph, i) || (early && ddp_graph_reads_frozen(early, i));
}

size_t ddp_frozen_device_bytes(const ddp_graph *graph, const ddp_graph *early,
                               enum ddp_dtype compute)
{
    size_t bytes = 0;
    for (int i = 0; i < ddp_graph_frozen_count(graph); i++) {
        const struct ddp_parameter *frozen = ddp_graph_frozen_at(graph, i);
        if (is_read(graph, early, i))
            bytes += room_of(frozen) + (has_copy(frozen, compute) ? room_of(frozen) / 2 : 0);
    }
    return bytes;
}

/* --- on the host ------------------------------------------------------------------------------ */

static void place_rounded(struct ddp_frozen_host *host, const ddp_graph *graph)
{
    if (host->bytes > ddp_graph_frozen_bytes(graph))
        host->rounded = (void *)((char *)host->values + ddp_graph_frozen_bytes(graph));
}

enum ddp_status ddp_frozen_host_alloc(struct ddp_frozen_host *host, const ddp_graph *graph,
                                      ddp_comm *comm, bool host_memory, enum ddp_dtype compute)
{
    enum ddp_status status = DDP_OK;
    *host = (struct ddp_frozen_host){.comm = comm};
    if (ddp_graph_frozen_count(graph) == 0)
        return DDP_OK;
    host->bytes = ddp_frozen_host_bytes(graph, host_memory ? compute : DDP_F32);
    host->shared = host_memory && comm;
    if (host->shared)
        status = ddp_comm_alloc_shared(comm, host->bytes, &host->values);
    else if (!comm || ddp_comm_rank(comm) == 0)
        host->values = ddp_pages_alloc(host->bytes);
    else
        return DDP_OK;
    if (status == DDP_OK && !host->values)
        status = DDP_ERR_MEMORY;
    if (status == DDP_OK)
        place_rounded(host, graph);
    return status;
}

enum ddp_status ddp_frozen_host_alloc_thin(struct ddp_frozen_host *host, const ddp_graph *graph,
                                           ddp_comm *comm, enum ddp_dtype compute)
{
    enum ddp_status status = DDP_OK;
    *host = (struct ddp_frozen_host){.comm = comm, .shared = true, .thin = true};
    host->bytes = ddp_frozen_host_bytes(graph, compute);
    if (host->bytes == 0)
        return DDP_OK;
    status = ddp_comm_alloc_thin_shared(comm, host->bytes, &host->values);
    if (status == DDP_OK && ddp_comm_rank(comm) == 0)
        status = ddp_comm_provide(comm, host->values, host->bytes);
    if (status == DDP_OK)
        place_rounded(host, graph);
    return status;
}

static void round_copies(struct ddp_frozen_host *host, const ddp_graph *graph)
{
    const float *values = host->values;
    const size_t count = ddp_graph_frozen_f32_bytes(graph) / sizeof *values;
    for (size_t i = 0; host->rounded && i < count; i++)
        host->rounded[i] = ddp_bf16_of(values[i]);
}

enum ddp_status ddp_frozen_host_complete(struct ddp_frozen_host *host, const ddp_graph *graph,
                                         int nodes)
{
    if (host->values && (!host->comm || ddp_comm_rank(host->comm) == 0))
        round_copies(host, graph);
    if (!host->shared || host->thin)
        return DDP_OK;
    return nodes > 1 ? ddp_comm_broadcast(host->comm, host->values, host->bytes / sizeof(float),
                                          DDP_F32, 0)
                     : ddp_comm_barrier(host->comm);
}

void ddp_frozen_host_free(struct ddp_frozen_host *host)
{
    if (host->values && !host->shared)
        ddp_pages_free(host->values, host->bytes);
    *host = (struct ddp_frozen_host){0};
}

uint64_t ddp_frozen_hash(const ddp_graph *graph, const void *values)
{
    uint64_t hash = 0;
    for (int i = 0; i < ddp_graph_frozen_count(graph); i++) {
        const struct ddp_parameter *p = ddp_graph_frozen_at(graph, i);
        const uint64_t parts[] = {
            hash,
            ddp_hash(p->name, strlen(p->name)),
            ddp_hash(p->dims, sizeof p->dims),
            (uint64_t)p->dtype,
            ddp_hash((const char *)values + p->place, ddp_values_bytes(p->dtype, p->count)),
        };
        hash = ddp_hash(parts, sizeof parts);
    }
    return hash;
}

/* --- on a device ------------------------------------------------------------------------------ */

static void use_host(struct ddp_frozen *frozen, const struct ddp_frozen_host *host,
                     const ddp_graph *graph)
{
    for (int i = 0; i < ddp_graph_frozen_count(graph); i++) {
        const struct ddp_parameter *p = ddp_graph_frozen_at(graph, i);
        frozen->values[i] = (char *)host->values + p->place;
        if (frozen->rounded && p->dtype == DDP_F32)
            frozen->rounded[i] = host->rounded + p->place / sizeof(float);
    }
}

/* Those that are read, one behind the other. */
static enum ddp_status alloc_own(struct ddp_frozen *frozen, const ddp_graph *graph,
                                 const ddp_graph *early, enum ddp_dtype compute)
{
    char *at;
    frozen->bytes = ddp_frozen_device_bytes(graph, early, compute);
    if (frozen->bytes == 0)
        return DDP_OK;
    enum ddp_status status = ddp_device_alloc(frozen->device, frozen->bytes, &frozen->memory);
    at = frozen->memory;
    for (int i = 0; status == DDP_OK && i < ddp_graph_frozen_count(graph); i++) {
        const struct ddp_parameter *p = ddp_graph_frozen_at(graph, i);
        if (!is_read(graph, early, i))
            continue;
        frozen->values[i] = at;
        at += room_of(p);
        if (has_copy(p, compute)) {
            frozen->rounded[i] = (void *)at;
            at += room_of(p) / 2;
        }
    }
    return status;
}

/* Rank 0 sends a parameter, which the device may read or not. */
static enum ddp_status send(struct ddp_frozen *frozen, const struct ddp_frozen_host *host,
                            const struct ddp_parameter *p, int i, char *bounce)
{
    const bool travels = host->comm && ddp_comm_size(host->comm) > 1;
    const size_t bytes = room_of(p);
    enum ddp_status status = DDP_OK;
    for (size_t at = 0; status == DDP_OK && at < bytes; at += BOUNCE_BYTES) {
        const size_t part = bytes - at < BOUNCE_BYTES ? bytes - at : BOUNCE_BYTES;
        if (host->values)
            memcpy(bounce, (const char *)host->values + p->place + at, part);
        if (travels)
            status = ddp_comm_broadcast(host->comm, bounce, part / sizeof(float), DDP_F32, 0);
        if (status == DDP_OK && frozen->values[i])
            status =
                ddp_device_copy_in(frozen->device, (char *)frozen->values[i] + at, bounce, part);
        if (status == DDP_OK)
            status = ddp_device_synchronize(frozen->device);
    }
    return status;
}

static enum ddp_status round_own(struct ddp_frozen *frozen, const struct ddp_parameter *p, int i)
{
    const struct ddp_to_bf16 args = {
        .count = p->count + p->padding, .x = frozen->values[i], .y = frozen->rounded[i]};
    return ddp_device_kernels(frozen->device)->to_bf16(&args, ddp_device_stream(frozen->device));
}

static enum ddp_status fill_own(struct ddp_frozen *frozen, const struct ddp_frozen_host *host,
                                const ddp_graph *graph)
{
    char *bounce = ddp_array_alloc(BOUNCE_BYTES, 1);
    enum ddp_status status = bounce ? DDP_OK : DDP_ERR_MEMORY;
    for (int i = 0; status == DDP_OK && i < ddp_graph_frozen_count(graph); i++) {
        const struct ddp_parameter *p = ddp_graph_frozen_at(graph, i);
        status = send(frozen, host, p, i, bounce);
        if (status == DDP_OK && frozen->rounded && frozen->rounded[i])
            status = round_own(frozen, p, i);
    }
    free(bounce);
    return status == DDP_OK ? ddp_device_synchronize(frozen->device) : status;
}

enum ddp_status ddp_frozen_open(struct ddp_frozen *frozen, ddp_device *device,
                                const struct ddp_frozen_host *host, const ddp_graph *graph,
                                const ddp_graph *early, enum ddp_dtype compute)
{
    const size_t count = (size_t)ddp_graph_frozen_count(graph);
    *frozen = (struct ddp_frozen){.device = device};
    if (count == 0)
        return DDP_OK;
    frozen->values = ddp_array_alloc(count, sizeof *frozen->values);
    frozen->rounded = compute == DDP_BF16 ? ddp_array_alloc(count, sizeof *frozen->rounded) : NULL;
    if (!frozen->values || (compute == DDP_BF16 && !frozen->rounded))
        return DDP_ERR_MEMORY;
    if (host && host->values && ddp_device_host_memory(device)) {
        use_host(frozen, host, graph);
        return DDP_OK;
    }
    enum ddp_status status = alloc_own(frozen, graph, early, compute);
    return status == DDP_OK && host ? fill_own(frozen, host, graph) : status;
}

void ddp_frozen_close(struct ddp_frozen *frozen)
{
    if (frozen->memory)
        ddp_device_free(frozen->device, frozen->memory, frozen->bytes);
    free(frozen->values);
    free(frozen->rounded);
    *frozen = (struct ddp_frozen){0};
}
