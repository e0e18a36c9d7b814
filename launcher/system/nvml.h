/* SPDX-License-Identifier: MIT
 *
 * The functions of NVML that are used, with the values of nvml.h. The library is opened at run
 * time: there may be none. */
#ifndef DDP_LAUNCHER_SYSTEM_NVML_H
#define DDP_LAUNCHER_SYSTEM_NVML_H

#include <stdbool.h>

typedef struct nvmlDevice_st *nvml_device;

#define NVML_BUS_ID_BYTES 32

/* nvmlPciInfo_t, of which only the end is of interest. */
struct nvml_pci {
    char legacy[16];
    unsigned int numbers[5];
    char bus_id[NVML_BUS_ID_BYTES];
};

enum {
    NVML_OK = 0,
    NVML_NOT_FOUND = 6,
    NVML_GPU_IS_LOST = 15,
};

/* nvmlGpuTopologyLevel_t: what the way from one GPU to another goes through. */
enum {
    NVML_INTERNAL = 0,
    NVML_SINGLE = 10,   /* one PCIe switch */
    NVML_MULTIPLE = 20, /* several, but no host bridge */
    NVML_HOST_BRIDGE = 30,
    NVML_NODE = 40,   /* host bridges of one NUMA node */
    NVML_SYSTEM = 50, /* the link between NUMA nodes */
};

enum { NVML_LINKS = 18 };         /* at most, of a GPU */
enum { NVML_LINK_TO_SWITCH = 2 }; /* nvmlIntNvLinkDeviceType_t */

/* NULL: this driver lacks it. Each returns NVML_OK or an error. */
struct nvml {
    void *library;
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned int *count);
    int (*by_index)(unsigned int index, nvml_device *device);
    int (*by_uuid)(const char *uuid, nvml_device *device);
    int (*parent)(nvml_device part, nvml_device *whole); /* of a MIG device; or NULL */
    int (*uuid)(nvml_device device, char *text, unsigned int size);
    int (*pci)(nvml_device device, struct nvml_pci *pci);
    int (*ancestor)(nvml_device a, nvml_device b, int *level); /* or NULL, as below */
    int (*link_state)(nvml_device device, unsigned int link, int *active);
    int (*link_type)(nvml_device device, unsigned int link, int *type);
    int (*link_pci)(nvml_device device, unsigned int link, struct nvml_pci *remote);
};

/* False: there is no NVML, or it cannot be used. */
bool nvml_open(struct nvml *nvml);
void nvml_close(struct nvml *nvml);

#endif
