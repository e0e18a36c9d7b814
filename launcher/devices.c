/* SPDX-License-Identifier: MIT
 *
 * See devices.h. Where a container lacks NVML, the driver's device nodes are counted. */
#include "config.h"

#include "launcher/devices.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "launcher/system/nvml.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- NVML ------------------------------------------------------------------------------------ */

/* GPUs that NVML counts, or -1 when it cannot be asked. */
static int count_by_nvml(void)
{
    struct nvml nvml;
    unsigned int found = 0;
    if (!nvml_open(&nvml))
        return -1;
    int count = nvml.count(&found) == NVML_OK && found <= DEVICES_MAX ? (int)found : -1;
    nvml_close(&nvml);
    return count;
}

/* The GPU whose UUID begins with the text: CUDA takes such abbreviations. */
static int find_by_prefix(const struct nvml *nvml, const char *prefix, nvml_device *device)
{
    unsigned int count = 0;
    char uuid[96];
    nvml->count(&count);
    for (unsigned int i = 0; i < count && i < DEVICES_MAX; i++)
        if (nvml->by_index(i, device) == NVML_OK &&
            nvml->uuid(*device, uuid, sizeof uuid) == NVML_OK &&
            strncmp(uuid, prefix, strlen(prefix)) == 0)
            return NVML_OK;
    return NVML_NOT_FOUND;
}

static int find_by_token(const struct nvml *nvml, const char *token, nvml_device *device)
{
    int64_t index;
    if (ddp_parse_int64(token, 0, DEVICES_MAX, &index))
        return nvml->by_index((unsigned int)index, device);
    int result = nvml->by_uuid(token, device);
    return result == NVML_OK ? result : find_by_prefix(nvml, token, device);
}

void devices_identify(struct devices *devices)
{
    struct nvml nvml;
    struct nvml_pci pci;
    nvml_device handle, whole;
    if (devices->count == 0 || devices->identified)
        return;
    devices->identified = true;
    if (!nvml_open(&nvml))
        return;
    for (int i = 0; i < devices->count; i++) {
        struct device *device = &devices->list[i];
        if (find_by_token(&nvml, device->token, &handle) != NVML_OK)
            continue;
        if (nvml.uuid(handle, device->uuid, sizeof device->uuid) != NVML_OK)
            device->uuid[0] = 0;
        device->uuid[sizeof device->uuid - 1] = 0;
        if (nvml.parent && nvml.parent(handle, &whole) == NVML_OK)
            handle = whole;
        if (nvml.pci(handle, &pci) == NVML_OK)
            snprintf(device->bus_id, sizeof device->bus_id, "%.*s", (int)sizeof pci.bus_id - 1,
                     pci.bus_id);
    }
    nvml_close(&nvml);
}

int devices_find_lost(const struct devices *devices)
{
    struct nvml nvml;
    nvml_device handle;
    char uuid[96];
    int lost = -1;
    if (devices->count == 0 || !nvml_open(&nvml))
        return -1;
    for (int i = 0; i < devices->count && lost < 0; i++) {
        if (!devices->list[i].uuid[0])
            continue;
        int result = nvml.by_uuid(devices->list[i].uuid, &handle);
        if (result == NVML_OK)
            result = nvml.uuid(handle, uuid, sizeof uuid);
        if (result == NVML_NOT_FOUND || result == NVML_GPU_IS_LOST)
            lost = i;
    }
    nvml_close(&nvml);
    return lost;
}

/* --- tokens ---------------------------------------------------------------------------------- */

static int count_by_nodes(void)
{
    char path[64];
    int count = 0;
    for (int i = 0; i < 64; i++) {
        snprintf(path, sizeof path, "/dev/nvidia%d", i);
        count += access(path, F_OK) == 0;
    }
    return count;
}

static bool names_gpu(const char *token, int present)
{
    int64_t index;
    if (strncmp(token, "GPU-", 4) == 0 || strncmp(token, "MIG-", 4) == 0)
        return present > 0;
    return ddp_parse_int64(token, 0, present - 1, &index);
}

static enum ddp_status add(struct devices *devices, const char *token, size_t length)
{
    char *copy = strndup(token, length);
    if (!copy)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    devices->list[devices->count++].token = copy;
    devices->mig = devices->mig || strncmp(copy, "MIG-", 4) == 0;
    return DDP_OK;
}

static enum ddp_status add_visible(struct devices *devices, const char *visible, int present)
{
    while (devices->count < DEVICES_MAX) {
        visible += strspn(visible, " ");
        size_t length = strcspn(visible, ",");
        size_t bare = length;
        while (bare > 0 && visible[bare - 1] == ' ')
            bare--;
        enum ddp_status status = add(devices, visible, bare);
        if (status != DDP_OK)
            return status;
        if (!names_gpu(devices->list[devices->count - 1].token, present)) {
            devices_drop(devices, devices->count - 1); /* CUDA ignores it and all after it */
            break;
        }
        if (!visible[length])
            break;
        visible += length + 1;
    }
    return DDP_OK;
}

enum ddp_status devices_find(struct devices *devices)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    *devices = (struct devices){.list = ddp_array_alloc(DEVICES_MAX, sizeof *devices->list)};
    if (!devices->list)
        return DDP_ERR_MEMORY;
    if (visible && (!*visible || strcmp(visible, "-1") == 0))
        return DDP_OK; /* hidden on purpose: no need to wake the driver */
    int present = count_by_nvml();
    if (present < 0)
        present = count_by_nodes();
    enum ddp_status status = DDP_OK;
    if (visible) {
        status = add_visible(devices, visible, present);
    } else {
        char token[16];
        for (int i = 0; i < present && status == DDP_OK; i++) {
            snprintf(token, sizeof token, "%d", i);
            status = add(devices, token, strlen(token));
        }
    }
    if (status != DDP_OK)
        devices_free(devices);
    return status;
}

void devices_drop(struct devices *devices, int index)
{
    struct device *device = &devices->list[index];
    free(device->token);
    memmove(device, device + 1, (size_t)(devices->count - index - 1) * sizeof *device);
    memset(&devices->list[--devices->count], 0, sizeof *device);
}

void devices_free(struct devices *devices)
{
    while (devices->count > 0)
        devices_drop(devices, devices->count - 1);
    free(devices->list);
    *devices = (struct devices){0};
}
