/* SPDX-License-Identifier: MIT
 *
 * "ddprun status": shows the user's running jobs from another terminal. Boards are found through
 * the descriptors of processes, so there is no daemon, no port and no file. */
#ifndef DDP_LAUNCHER_STATUS_H
#define DDP_LAUNCHER_STATUS_H

/* argv: "status" and the process ids of jobs, or none for all. Returns ddprun's exit code. */
int status_main(int argc, char *const *argv);

#endif
