/* SPDX-License-Identifier: MIT
 *
 * Structs of ddp.h that a program fills in and that grow at their ends: their first member is
 * size_t struct_bytes, which says how much of it the program knows. */
#ifndef DDP_CORE_VERSIONED_H
#define DDP_CORE_VERSIONED_H

#include "ddp.h"

/* Copies such a struct; members that an older program does not know become zero.
 *   bytes  of the struct here
 *   name   for messages
 * DDP_ERR_INVALID: it is NULL; struct_bytes is not set; a newer program uses a member that is not
 * known here. */
enum ddp_status ddp_versioned_take(void *taken, size_t bytes, const void *given, const char *name);

#endif
