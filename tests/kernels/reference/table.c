/* SPDX-License-Identifier: MIT
 *
 * The plain versions in a table; see kernels.h. */
#include "config.h"

#include "tests/kernels/reference/reference.h"

#define ENTRY(operation) .operation = ddp_##operation##_reference,

const struct ddp_kernels ddp_kernels_reference = {.name = "reference", DDP_KERNELS(ENTRY)};
