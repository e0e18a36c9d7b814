/* SPDX-License-Identifier: MIT
 *
 * See array.h. */
#include "config.h"

#include "reporter/array.h"

#include "core/log.h"

#include <stdlib.h>

/* Up to the next power of two there is room. */
void *array_grown(void *elements, size_t count, size_t size)
{
    if ((count & (count - 1)) != 0)
        return elements;
    void *larger = reallocarray(elements, count ? 2 * count : 1, size);
    if (!larger)
        ddp_fail(DDP_ERR_MEMORY, "out of memory");
    return larger;
}
