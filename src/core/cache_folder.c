/* SPDX-License-Identifier: MIT
 *
 * See cache_folder.h. */
#include "config.h"

#include "core/cache_folder.h"

#include "core/log.h"
#include "core/write.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool find(char *folder, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int bytes = -1;
    if (cache && *cache == '/')
        bytes = snprintf(folder, size, "%s/ddprun", cache);
    else if (home && *home == '/')
        bytes = snprintf(folder, size, "%s/.cache/ddprun", home);
    return bytes > 0 && (size_t)bytes < size;
}

bool ddp_cache_folder(char *folder, size_t size, char *why, size_t why_size)
{
    *why = '\0';
    if (!find(folder, size)) {
        snprintf(why, why_size, "neither XDG_CACHE_HOME nor HOME is a folder");
        return false;
    }
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){why, why_size});
    enum ddp_status status = ddp_make_directories(folder, false);
    if (status == DDP_OK && access(folder, R_OK | W_OK | X_OK) != 0)
        status = ddp_fail_path(folder, "use as a cache");
    ddp_log_exchange(before);
    return status == DDP_OK;
}
