/* SPDX-License-Identifier: MIT
 *
 * See nvml.h. */
#include "config.h"

#include "launcher/system/nvml.h"

#include <dlfcn.h>
#include <string.h>

void nvml_close(struct nvml *nvml)
{
    nvml->shutdown();
    dlclose(nvml->library);
}

bool nvml_open(struct nvml *nvml)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (!library)
        return false;
    const struct {
        void *function;
        const char *name;
        bool optional; /* a driver may be older */
    } symbols[] = {
        {&nvml->init, "nvmlInit_v2", false},
        {&nvml->shutdown, "nvmlShutdown", false},
        {&nvml->count, "nvmlDeviceGetCount_v2", false},
        {&nvml->by_index, "nvmlDeviceGetHandleByIndex_v2", false},
        {&nvml->by_uuid, "nvmlDeviceGetHandleByUUID", false},
        {&nvml->uuid, "nvmlDeviceGetUUID", false},
        {&nvml->pci, "nvmlDeviceGetPciInfo_v3", false},
        {&nvml->parent, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", true},
        {&nvml->ancestor, "nvmlDeviceGetTopologyCommonAncestor", true},
        {&nvml->link_state, "nvmlDeviceGetNvLinkState", true},
        {&nvml->link_type, "nvmlDeviceGetNvLinkRemoteDeviceType", true},
        {&nvml->link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2", true},
    };
    memset(nvml, 0, sizeof *nvml);
    nvml->library = library;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(library, symbols[i].name);
        memcpy(symbols[i].function, &symbol, sizeof symbol);
        if (!symbol && !symbols[i].optional)
            goto failed;
    }
    if (nvml->init() == NVML_OK)
        return true;
failed:
    dlclose(library);
    return false;
}
