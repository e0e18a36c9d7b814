/* SPDX-License-Identifier: MIT
 *
 * Names, exit codes and the version: the part of ddp.h that belongs to no room. */
#include "config.h"

#include "ddp.h"

static const struct {
    const char *text;
    int exit_code;
} table[] = {
    [-DDP_OK] = {"success", 0},
    [-DDP_ERR_INVALID] = {"invalid argument", 2},
    [-DDP_ERR_MEMORY] = {"out of memory", 5},
    [-DDP_ERR_IO] = {"input/output error", 4},
    [-DDP_ERR_FORMAT] = {"bad file contents", 3},
    [-DDP_ERR_SYSTEM] = {"system call failed", 1},
    [-DDP_ERR_TIMEOUT] = {"timed out waiting for other ranks", 7},
    [-DDP_ERR_ABORTED] = {"another rank failed", 6},
    [-DDP_ERR_MISMATCH] = {"ranks disagree on a collective", 8},
    [-DDP_ERR_UNSUPPORTED] = {"not supported here", 9},
    [-DDP_ERR_PREEMPTED] = {"stopped on request", 75},
    [-DDP_ERR_DIVERGED] = {"loss or gradient not finite", 10},
    [-DDP_ERR_DIFFERS] = {"other weights than before", 11},
};

static bool known(enum ddp_status status)
{
    return status <= 0 && (size_t)-status < sizeof table / sizeof table[0];
}

const char *ddp_status_string(enum ddp_status status)
{
    return known(status) ? table[-status].text : "unknown status";
}

int ddp_status_exit_code(enum ddp_status status)
{
    return known(status) ? table[-status].exit_code : 1;
}

const char *ddp_version(void)
{
    return PACKAGE_VERSION;
}

size_t ddp_dtype_bytes(enum ddp_dtype dtype)
{
    switch (dtype) {
    case DDP_F32:
    case DDP_I32:
        return 4;
    case DDP_F64:
    case DDP_I64:
        return 8;
    case DDP_BF16:
        return 2;
    case DDP_F16:
    case DDP_NF4: /* less than one */
    case DDP_NF4_BF16:
    case DDP_Q8_0:
    case DDP_Q4_0:
    case DDP_Q4_K:
    case DDP_Q6_K:
        break;
    }
    return 0;
}
