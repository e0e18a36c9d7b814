/* SPDX-License-Identifier: MIT
 *
 * Where tensors live and operations run. A device is one processor that a worker or replica
 * computes on: memory, a stream on which copies and operations happen in order, and the kernels for
 * it. The CPU is built in; others come from plugins. Nothing here knows of graphs or training. */
#ifndef DDP_DEVICE_DEVICE_H
#define DDP_DEVICE_DEVICE_H

#include "ddp.h"

#include "kernels/kernels.h"

typedef struct ddp_device ddp_device;

/* What a kind of device provides. `state` is what open() made. Everything but open, close, alloc
 * and free is ordered on the device's stream and may return before it is done; synchronize() waits.
 * This struct crosses the plugin border: a change in it changes DDP_PLUGIN_ABI. */
struct ddp_device_ops {
    const char *name;   /* "cpu", "cuda" */
    bool host_memory;   /* the host may read and write the device's memory directly */
    int (*count)(void); /* devices of this kind, 0 when unusable */
    enum ddp_status (*open)(void **state, int index,
                            int threads); /* threads: for kinds that compute with host threads */
    void (*close)(void *state);
    enum ddp_status (*alloc)(void *state, size_t bytes, void **memory); /* zeroed, page-aligned */
    void (*free)(void *state, void *memory, size_t bytes);
    enum ddp_status (*copy_in)(void *state, void *device, const void *host, size_t bytes);
    enum ddp_status (*copy_out)(void *state, void *host, const void *device,
                                size_t bytes); /* host is valid after synchronize */
    enum ddp_status (*copy)(void *state, void *destination, const void *source,
                            size_t bytes); /* between devices of this kind */
    enum ddp_status (*synchronize)(void *state);
    void *(*stream)(void *state); /* the last argument of every kernel */
    const struct ddp_kernels *kernels;
};

extern const struct ddp_device_ops ddp_device_cpu;

/* Opens device `index` of a kind: "cpu", "cuda", or "auto" (a GPU where a plugin finds one, else
 * the CPU).
 *   index    the CPU takes any number
 *   threads  host threads that compute on a CPU device, at least 1
 *
 * DDP_ERR_UNSUPPORTED: no such kind here (says what to install) or no device of that index. */
enum ddp_status ddp_device_open(ddp_device **device, const char *kind, int index, int threads);
void ddp_device_close(ddp_device *device);

const char *ddp_device_name(const ddp_device *device);
bool ddp_device_host_memory(const ddp_device *device);
const struct ddp_kernels *ddp_device_kernels(const ddp_device *device);
void *ddp_device_stream(const ddp_device *device);

enum ddp_status ddp_device_alloc(ddp_device *device, size_t bytes, void **memory);
void ddp_device_free(ddp_device *device, void *memory, size_t bytes); /* takes NULL memory */
enum ddp_status ddp_device_copy_in(ddp_device *device, void *destination, const void *host,
                                   size_t bytes);
enum ddp_status ddp_device_copy_out(ddp_device *device, void *host, const void *source,
                                    size_t bytes);
enum ddp_status ddp_device_copy(ddp_device *device, void *destination, const void *source,
                                size_t bytes);
enum ddp_status ddp_device_synchronize(ddp_device *device);

#endif
