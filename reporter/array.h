/* SPDX-License-Identifier: MIT
 *
 * Arrays that grow by one element at a time. */
#ifndef DDP_REPORTER_ARRAY_H
#define DDP_REPORTER_ARRAY_H

#include <stddef.h>

/* Room for one more element behind `count` of them; returns the array, moved, or NULL without
 * memory (logged; the old one is then still there). Elements may be taken off the end in between.
 */
void *array_grown(void *elements, size_t count, size_t size);

#endif
