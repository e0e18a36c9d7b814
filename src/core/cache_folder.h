/* SPDX-License-Identifier: MIT
 *
 * Where files are kept that can be made again: ${XDG_CACHE_HOME:-~/.cache}/ddprun, as the XDG Base
 * Directory Specification has it. */
#ifndef DDP_CORE_CACHE_FOLDER_H
#define DDP_CORE_CACHE_FOLDER_H

#include "ddp.h"

/* Finds the folder, and makes it where it is missing.
 *   folder [out]  its path
 *   why [out]     why there is none that can be written; "" where there is */
bool ddp_cache_folder(char *folder, size_t size, char *why, size_t why_size);

#endif
