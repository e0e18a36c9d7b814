/* SPDX-License-Identifier: MIT
 *
 * See device.h: chooses the kind of device and forwards to it. */
#include "config.h"

#include "device/device.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/plugin.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct ddp_device {
    const struct ddp_device_ops *ops;
    void *state;
};

/* A plugin's devices; NULL when there is no such plugin. */
static const struct ddp_device_ops *plugin_ops(const char *kind, bool required)
{
    const struct ddp_plugin *plugin;
    if (ddp_plugin_load(&plugin, kind, required) != DDP_OK)
        return NULL;
    if (!plugin->device && required)
        ddp_log(DDP_LOG_ERROR, "--device %s: the plugin has no devices", kind);
    return plugin->device;
}

static const struct ddp_device_ops *choose(const char *kind)
{
    if (strcmp(kind, "cpu") == 0)
        return &ddp_device_cpu;
    if (strcmp(kind, "auto") != 0)
        return plugin_ops(kind, true);
    const struct ddp_device_ops *cuda = plugin_ops("cuda", false);
    return cuda && cuda->count() > 0 ? cuda : &ddp_device_cpu;
}

static enum ddp_status none_found(const struct ddp_device_ops *ops, const char *kind)
{
    const char *reason = ops->reason ? ops->reason() : NULL;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "--device %s: %s", kind,
                    reason ? reason : "no such device here");
}

/* What keeps "auto" from GPUs that may be there. */
static const char *hidden_by(const char *kind)
{
    const struct ddp_device_ops *cuda =
        strcmp(kind, "auto") == 0 ? plugin_ops("cuda", false) : NULL;
    return cuda && cuda->faulty && cuda->faulty() ? cuda->reason() : NULL;
}

enum ddp_status ddp_device_find(struct ddp_device_kind *found, const char *kind)
{
    const struct ddp_device_ops *ops = choose(kind);
    if (!ops)
        return DDP_ERR_UNSUPPORTED;
    const bool cpu = ops == &ddp_device_cpu;
    *found = (struct ddp_device_kind){ops->name, ops->host_memory, cpu ? 0 : ops->count(),
                                      ops->kernels, cpu ? hidden_by(kind) : NULL};
    return !cpu && found->count == 0 ? none_found(ops, kind) : DDP_OK;
}

enum ddp_status ddp_device_open(ddp_device **device, const char *kind, int index, int threads)
{
    const struct ddp_device_ops *ops = choose(kind);
    if (!ops)
        return DDP_ERR_UNSUPPORTED;
    int count = ops->count();
    if (count == 0)
        return none_found(ops, kind);
    if (ops != &ddp_device_cpu && (index < 0 || index >= count))
        return ddp_fail(DDP_ERR_UNSUPPORTED, "--device %s: there is no device %d (%d found)", kind,
                        index, count);
    struct ddp_device *d = ddp_array_alloc(1, sizeof *d);
    if (!d)
        return DDP_ERR_MEMORY;
    d->ops = ops;
    enum ddp_status status = ops->open(&d->state, index, threads);
    if (status != DDP_OK) {
        free(d);
        return status;
    }
    *device = d;
    return DDP_OK;
}

void ddp_device_close(ddp_device *device)
{
    if (!device)
        return;
    device->ops->close(device->state);
    free(device);
}

const char *ddp_device_name(const ddp_device *device)
{
    return device->ops->name;
}

bool ddp_device_host_memory(const ddp_device *device)
{
    return device->ops->host_memory;
}

const struct ddp_kernels *ddp_device_kernels(const ddp_device *device)
{
    return device->ops->kernels;
}

void *ddp_device_stream(const ddp_device *device)
{
    return device->ops->stream(device->state);
}

void *ddp_device_state(const ddp_device *device)
{
    return device->state;
}

enum ddp_status ddp_device_alloc(ddp_device *device, size_t bytes, void **memory)
{
    return device->ops->alloc(device->state, bytes, memory);
}

void ddp_device_free(ddp_device *device, void *memory, size_t bytes)
{
    if (memory)
        device->ops->free(device->state, memory, bytes);
}

enum ddp_status ddp_device_copy_in(ddp_device *device, void *destination, const void *host,
                                   size_t bytes)
{
    return device->ops->copy_in(device->state, destination, host, bytes);
}

enum ddp_status ddp_device_copy_out(ddp_device *device, void *host, const void *source,
                                    size_t bytes)
{
    return device->ops->copy_out(device->state, host, source, bytes);
}

enum ddp_status ddp_device_copy(ddp_device *device, void *destination, const void *source,
                                size_t bytes)
{
    return device->ops->copy(device->state, destination, source, bytes);
}

enum ddp_status ddp_device_synchronize(ddp_device *device)
{
    return device->ops->synchronize(device->state);
}

enum ddp_status ddp_device_mark(ddp_device *device)
{
    return device->ops->mark ? device->ops->mark(device->state) : DDP_OK;
}

enum ddp_status ddp_device_wait_mark(ddp_device *device)
{
    return device->ops->wait_mark ? device->ops->wait_mark(device->state)
                                  : ddp_device_synchronize(device);
}

const char *ddp_device_describe(const ddp_device *device)
{
    return device->ops->describe ? device->ops->describe(device->state) : device->ops->name;
}

enum ddp_status ddp_device_memory(ddp_device *device, size_t *total, size_t *unused)
{
    if (device->ops->memory)
        return device->ops->memory(device->state, total, unused);
    *total = *unused = ddp_memory_total();
    return DDP_OK;
}

enum ddp_status ddp_device_wait(ddp_device *device, ddp_device *other)
{
    assert(device->ops == other->ops);
    return device->ops->wait && device != other ? device->ops->wait(device->state, other->state)
                                                : DDP_OK;
}

void ddp_device_set_poll(ddp_device *device, enum ddp_status (*poll)(void *arg), void *arg)
{
    if (device->ops->set_poll)
        device->ops->set_poll(device->state, poll, arg);
}

enum ddp_status ddp_device_host_alloc(ddp_device *device, size_t bytes, void **memory)
{
    if (device->ops->host_alloc)
        return device->ops->host_alloc(device->state, bytes, memory);
    *memory = ddp_pages_alloc(bytes);
    return *memory ? DDP_OK : DDP_ERR_MEMORY;
}

void ddp_device_host_free(ddp_device *device, void *memory, size_t bytes)
{
    if (!memory)
        return;
    if (device->ops->host_free)
        device->ops->host_free(device->state, memory, bytes);
    else
        ddp_pages_free(memory, bytes);
}

enum ddp_status ddp_device_copied(ddp_device *device)
{
    return device->ops->copied ? device->ops->copied(device->state) : DDP_OK;
}

enum ddp_status ddp_device_aside_alloc(ddp_device *device, size_t bytes, void **memory)
{
    return device->ops->aside_alloc ? device->ops->aside_alloc(device->state, bytes, memory)
                                    : ddp_device_alloc(device, bytes, memory);
}

void ddp_device_aside_free(ddp_device *device, void *memory, size_t bytes)
{
    if (memory && device->ops->aside_free)
        device->ops->aside_free(device->state, memory, bytes);
    else
        ddp_device_free(device, memory, bytes);
}

enum ddp_status ddp_device_aside(ddp_device *device, void **stream)
{
    *stream = ddp_device_stream(device);
    return device->ops->aside ? device->ops->aside(device->state, stream) : DDP_OK;
}

enum ddp_status ddp_device_aside_join(ddp_device *device)
{
    return device->ops->aside_join ? device->ops->aside_join(device->state) : DDP_OK;
}

enum ddp_status ddp_device_fill(ddp_device *device, int slot, void *destination, const void *host,
                                size_t bytes)
{
    return device->ops->fill ? device->ops->fill(device->state, slot, destination, host, bytes)
                             : ddp_device_copy_in(device, destination, host, bytes);
}

enum ddp_status ddp_device_arrive(ddp_device *device, int slot)
{
    return device->ops->arrive ? device->ops->arrive(device->state, slot) : DDP_OK;
}

enum ddp_status ddp_device_leave(ddp_device *device, int slot)
{
    return device->ops->leave ? device->ops->leave(device->state, slot) : DDP_OK;
}

enum ddp_status ddp_device_record_begin(ddp_device *device)
{
    return device->ops->record_begin ? device->ops->record_begin(device->state)
                                     : DDP_ERR_UNSUPPORTED;
}

enum ddp_status ddp_device_record_end(ddp_device *device, void **recording)
{
    return device->ops->record_end(device->state, recording);
}

enum ddp_status ddp_device_replay(ddp_device *device, void *recording)
{
    return device->ops->replay(device->state, recording);
}

void ddp_device_recording_free(ddp_device *device, void *recording)
{
    if (recording)
        device->ops->recording_free(device->state, recording);
}

bool ddp_device_has_choices(const ddp_device *device)
{
    return device->ops->choices_name != NULL;
}

const char *ddp_device_choices_name(ddp_device *device)
{
    return ddp_device_has_choices(device) ? device->ops->choices_name(device->state) : NULL;
}

void ddp_device_tune_begin(ddp_device *device, bool time)
{
    if (ddp_device_has_choices(device))
        device->ops->tune_begin(device->state, time);
}

int ddp_device_tune_end(ddp_device *device)
{
    return ddp_device_has_choices(device) ? device->ops->tune_end(device->state) : 0;
}

enum ddp_status ddp_device_choices_export(ddp_device *device, char **text)
{
    return device->ops->choices_export(device->state, text);
}

enum ddp_status ddp_device_choices_import(ddp_device *device, const char *text, bool replace,
                                          size_t *damaged)
{
    return device->ops->choices_import(device->state, text, replace, damaged);
}

void ddp_device_span_begin(ddp_device *device, int64_t begin)
{
    if (begin && device->ops->span_begin)
        device->ops->span_begin(device->state);
}

void ddp_device_span_end(ddp_device *device, int64_t begin, const char *name, const char *key,
                         const char *text)
{
    const struct ddp_trace_event event = {.name = name, .key = key, .text = text};
    if (begin && device->ops->span_end)
        device->ops->span_end(device->state, &event);
}
