/* SPDX-License-Identifier: MIT
 *
 * As much of NVML as ddprun uses, for machines without a GPU. In the environment, FAKE_GPUS says
 * how many there are; without it the library fails, as one without a driver does. FAKE_GPUS_PCI
 * holds their bus ids, and FAKE_GPUS_LOST names a file with the indices of those that have fallen
 * off the bus, which may change while ddprun runs. The UUIDs are GPU-aa-0, GPU-bb-1, ...
 * FAKE_GPUS_PATHS is what joins them, a row a GPU ending in ";", in words of nvidia-smi topo -m:
 * "X NV2 SYS; NV2 X SYS; SYS SYS X;", and SW4 for four links to a switch. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    OK = 0,
    INVALID = 2,
    NOT_FOUND = 6,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
};

/* The handle of GPU i points at entry i. */
struct gpu {
    char unused;
};
static struct gpu gpus[26];

struct pci {
    char legacy[16];
    unsigned int domain, bus, device, ids[2];
    char bus_id[32];
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned int *count);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct gpu **gpu);
EXPORT int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **gpu);
EXPORT int nvmlDeviceGetUUID(const struct gpu *gpu, char *text, unsigned int size);
EXPORT int nvmlDeviceGetPciInfo_v3(const struct gpu *gpu, struct pci *pci);
EXPORT int nvmlDeviceGetTopologyCommonAncestor(const struct gpu *a, const struct gpu *b,
                                               int *level);
EXPORT int nvmlDeviceGetNvLinkState(const struct gpu *gpu, unsigned int link, int *active);
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(const struct gpu *gpu, unsigned int link, int *type);
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(const struct gpu *gpu, unsigned int link,
                                               struct pci *pci);

int nvmlInit_v2(void)
{
    return getenv("FAKE_GPUS") ? OK : DRIVER_NOT_LOADED;
}

int nvmlShutdown(void)
{
    return OK;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = (unsigned int)atoi(getenv("FAKE_GPUS"));
    return OK;
}

static int is_lost(unsigned int index)
{
    const char *path = getenv("FAKE_GPUS_LOST");
    FILE *file = path ? fopen(path, "re") : NULL;
    unsigned int lost;
    int found = 0;
    while (file && fscanf(file, "%u", &lost) == 1)
        found = found || lost == index;
    if (file)
        fclose(file);
    return found;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, struct gpu **gpu)
{
    unsigned int count;
    nvmlDeviceGetCount_v2(&count);
    if (index >= count || index >= 26)
        return INVALID;
    *gpu = &gpus[index];
    return is_lost(index) ? GPU_IS_LOST : OK;
}

int nvmlDeviceGetUUID(const struct gpu *gpu, char *text, unsigned int size)
{
    int index = (int)(gpu - gpus);
    snprintf(text, size, "GPU-%c%c-%d", 'a' + index, 'a' + index, index);
    return OK;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **gpu)
{
    char text[32];
    unsigned int count;
    nvmlDeviceGetCount_v2(&count);
    for (unsigned int i = 0; i < count && i < 26; i++) {
        nvmlDeviceGetUUID(&gpus[i], text, sizeof text);
        if (strcmp(text, uuid) == 0)
            return nvmlDeviceGetHandleByIndex_v2(i, gpu);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetPciInfo_v3(const struct gpu *gpu, struct pci *pci)
{
    const char *ids = getenv("FAKE_GPUS_PCI");
    memset(pci, 0, sizeof *pci);
    for (size_t skip = (size_t)(gpu - gpus); ids && skip > 0; skip--) {
        ids = strchr(ids, ' ');
        ids = ids ? ids + 1 : NULL;
    }
    if (!ids)
        return NOT_FOUND;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%.*s", (int)strcspn(ids, " "), ids);
    return OK;
}

/* The word at row a, column b; "" where there is none. */
static const char *path(long a, long b)
{
    const char *at = getenv("FAKE_GPUS_PATHS");
    for (; at && a > 0; a--)
        at = strchr(at, ';') ? strchr(at, ';') + 1 : NULL;
    if (!at)
        return "";
    for (at += strspn(at, " "); b > 0; b--) {
        at += strcspn(at, " ;");
        at += strspn(at, " ");
    }
    return at;
}

int nvmlDeviceGetTopologyCommonAncestor(const struct gpu *a, const struct gpu *b, int *level)
{
    static const char *const words[] = {"PIX", "PXB", "PHB", "NODE", "SYS"};
    const char *word = path(a - gpus, b - gpus);
    *level = 50;
    for (int i = 0; i < 5; i++)
        if (strncmp(word, words[i], 3) == 0)
            *level = 10 * (i + 1);
    return *word ? OK : NOT_FOUND;
}

/* The GPU to which a link leads, -2 for a switch, -1 for none. */
static long lead(const struct gpu *gpu, unsigned int link)
{
    const long from = gpu - gpus;
    for (long to = 0; *path(from, to) && *path(from, to) != ';'; to++) {
        const char *word = path(from, to);
        const unsigned int links =
            word[1] == 'V' || word[1] == 'W' ? (unsigned int)atoi(word + 2) : 0;
        if (link < links)
            return word[0] == 'S' ? -2 : to;
        link -= word[0] == 'S' ? 0 : links; /* a switch has the same links to all */
    }
    return -1;
}

int nvmlDeviceGetNvLinkState(const struct gpu *gpu, unsigned int link, int *active)
{
    *active = lead(gpu, link) != -1;
    return OK;
}

int nvmlDeviceGetNvLinkRemoteDeviceType(const struct gpu *gpu, unsigned int link, int *type)
{
    *type = lead(gpu, link) == -2 ? 2 : 0;
    return OK;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(const struct gpu *gpu, unsigned int link, struct pci *pci)
{
    return lead(gpu, link) < 0 ? NOT_FOUND : nvmlDeviceGetPciInfo_v3(&gpus[lead(gpu, link)], pci);
}
