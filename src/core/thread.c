/* SPDX-License-Identifier: MIT
 *
 * See thread.h. */
#include "config.h"

#include "core/thread.h"

#include "core/log.h"
#include "core/memory.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>

enum ddp_status ddp_thread_failed(int error, const char *format, ...)
{
    char what[256];
    size_t stack = 0;
    pthread_attr_t attributes;
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (pthread_attr_init(&attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack);
        pthread_attr_destroy(&attributes);
    }
    if (error == ENOMEM || !ddp_memory_probe(stack + DDP_PAGE))
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: cannot start %s: no room for its stack",
                        what);
    return ddp_fail(DDP_ERR_SYSTEM, "cannot start %s: %s", what, strerror(error));
}
