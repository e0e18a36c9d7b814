/* SPDX-License-Identifier: MIT
 *
 * See devices.h. NVML is opened at run time; where a container lacks it, the driver's device nodes
 * are counted. */
#include "config.h"

#include "launcher/devices.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* GPUs that NVML counts, or -1 when it cannot be asked. */
static int count_by_nvml(void)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    int count = -1;
    unsigned int found = 0;
    if (!library)
        return -1;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*get_count)(unsigned int *) =
        (int (*)(unsigned int *))dlsym(library, "nvmlDeviceGetCount_v2");
    int (*end)(void) = (int (*)(void))dlsym(library, "nvmlShutdown");
    if (init && get_count && end && init() == 0) {
        if (get_count(&found) == 0 && found <= DEVICES_MAX)
            count = (int)found;
        end();
    }
    dlclose(library);
    return count;
}

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
    devices->tokens[devices->count++] = copy;
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
        if (!names_gpu(devices->tokens[devices->count - 1], present)) {
            free(devices->tokens[--devices->count]); /* CUDA ignores it and all after it */
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
    *devices = (struct devices){.tokens = ddp_array_alloc(DEVICES_MAX, sizeof(char *))};
    if (!devices->tokens)
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

void devices_free(struct devices *devices)
{
    for (int i = 0; i < devices->count; i++)
        free(devices->tokens[i]);
    free(devices->tokens);
    *devices = (struct devices){0};
}
