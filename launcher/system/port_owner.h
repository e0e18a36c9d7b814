/* SPDX-License-Identifier: MIT
 *
 * Which process listens on a port of this machine, as far as /proc tells: for messages only. */
#ifndef DDP_LAUNCHER_PORT_OWNER_H
#define DDP_LAUNCHER_PORT_OWNER_H

#include <stdbool.h>
#include <stddef.h>

/* "python3 (pid 123)" or, of another user whose processes we may not see, "a process of user eve".
 * False: nothing is known; out is "" then. */
bool port_owner(int port, char *out, size_t size);

#endif
