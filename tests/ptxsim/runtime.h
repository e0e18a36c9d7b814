/* SPDX-License-Identifier: MIT
 *
 * Inside the runtime that launches PTX. */
#ifndef DDP_TESTS_PTXSIM_RUNTIME_H
#define DDP_TESTS_PTXSIM_RUNTIME_H

#include "tests/ptxsim/ptx.h"

ptx_lookup ptx_device_memory;

/* With DDP_PTXSIM_BARRIERS=FILE, before a launch: children run it without one of the kernel's
 * barriers each, and the file gets, at the end of the process, which of them were missed. */
void ptx_try_barriers(struct ptx_kernel *kernel, const struct ptx_launch *launch);

#endif
