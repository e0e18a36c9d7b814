/* SPDX-License-Identifier: MIT
 *
 * Backends that need libraries most machines lack (CUDA, UCX) are shared objects in pkglibdir,
 * loaded when such a device or communicator is asked for. DDP_PLUGIN_PATH in the environment names
 * another directory. */
#ifndef DDP_CORE_PLUGIN_H
#define DDP_CORE_PLUGIN_H

#include "ddp.h"

#include "core/trace.h"

#define DDP_PLUGIN_ABI 15 /* changes with any change of a struct that crosses the border */

/* What the library lends to a plugin, which has its own copy of core and job. */
struct ddp_plugin_host {
    void (*log)(int level, const char *text); /* one message, of enum ddp_log_level; "%s" only */
    const int *trace_recording;               /* for ddp_trace_set_sink(), both */
    void (*trace)(const struct ddp_trace_event *event);
};

/* What a plugin exports under the name "ddp_plugin". */
struct ddp_plugin {
    uint32_t abi;                                       /* DDP_PLUGIN_ABI */
    const char *name;                                   /* "cuda" */
    const struct ddp_device_ops *device;                /* device/device.h, or NULL */
    const struct ddp_comm_ops *comm;                    /* comm/comm.h, or NULL */
    const struct pmix_ops *pmix;                        /* launcher/pmix.h, or NULL */
    const struct ddp_wire_ops *wire;                    /* comm/wire.h, or NULL */
    void (*attach)(const struct ddp_plugin_host *host); /* called once, before all else; or NULL */
};

/* Loads libddp-NAME.so; it stays loaded. With `required`, a missing or wrong plugin is
 * logged with what to install. DDP_ERR_UNSUPPORTED: there is no such plugin. */
enum ddp_status ddp_plugin_load(const struct ddp_plugin **plugin, const char *name, bool required);

#endif
