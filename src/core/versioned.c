/* SPDX-License-Identifier: MIT
 *
 * See versioned.h. */
#include "config.h"

#include "core/versioned.h"

#include "core/log.h"

#include <string.h>

enum ddp_status ddp_versioned_take(void *taken, size_t bytes, const void *given, const char *name)
{
    size_t known;
    if (!given)
        return ddp_fail(DDP_ERR_INVALID, "%s: the program gives NULL", name);
    memcpy(&known, given, sizeof known);
    if (known < sizeof known || known > 64 * bytes)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s: struct_bytes is %zu: begin with its initialiser, or set it to the "
                        "size of the struct",
                        name, known);
    for (size_t i = bytes; i < known; i++)
        if (((const char *)given)[i])
            return ddp_fail(DDP_ERR_INVALID,
                            "%s: the program was compiled for a later libddp and uses what %s, "
                            "which runs, does not have",
                            name, ddp_version());
    memset(taken, 0, bytes);
    memcpy(taken, given, known < bytes ? known : bytes);
    return DDP_OK;
}
