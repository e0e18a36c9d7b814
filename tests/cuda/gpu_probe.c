/* SPDX-License-Identifier: MIT
 *
 * Says which GPUs `make check-gpu` is about to use; exit status 77 where there is none. */
#include "config.h"

#include "device/device.h"

#include <stdio.h>

int main(void)
{
    struct ddp_device_kind kind;
    if (ddp_device_find(&kind, "cuda"))
        return 77;
    for (int i = 0; i < kind.count; i++) {
        ddp_device *device;
        if (ddp_device_open(&device, "cuda", i, 1))
            return 1;
        printf("GPU %d: %s\n", i, ddp_device_describe(device));
        ddp_device_close(device);
    }
    return 0;
}
