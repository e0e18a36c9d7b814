/* SPDX-License-Identifier: MIT
 *
 * The folder for files that can be made again: ${XDG_CACHE_HOME:-~/.cache}/ddprun, as in the XDG
 * Base Directory Specification. */
#ifndef DDP_CORE_CACHE_FOLDER_H
#define DDP_CORE_CACHE_FOLDER_H

#include "ddp.h"

/* Finds the folder, and creates it if it is missing.
 *   folder [out]  its path
 *   why [out]     why there is none that can be written; "" if there is one */
bool ddp_cache_folder(char *folder, size_t size, char *why, size_t why_size);

#endif
