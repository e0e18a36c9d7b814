/* SPDX-License-Identifier: MIT
 *
 * As much of NVML as ddprun uses, for machines without a GPU: FAKE_GPUS in the environment says how
 * many there are; without it the library fails, as one without a driver does. */
#include "config.h"

#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned int *count);

int nvmlInit_v2(void)
{
    return getenv("FAKE_GPUS") ? 0 : 9; /* NVML_ERROR_DRIVER_NOT_LOADED */
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    *count = (unsigned int)atoi(getenv("FAKE_GPUS"));
    return 0;
}
