/* SPDX-License-Identifier: MIT
 *
 * Readers of the texts that say where a ddprun is among nodes: an option's value or a variable of
 * Slurm. They log nothing. */
#ifndef DDP_LAUNCHER_PLACE_TEXT_H
#define DDP_LAUNCHER_PLACE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Reads a number of nodes, "4", or the least and the most, "2:4". Returns NULL, or what is wrong
 * with it, as a phrase after "--nnodes VALUE: ". */
const char *place_read_nodes(const char *text, int *least_nodes, int *most_nodes);

/* Reads "HOST:PORT", "[IPv6]:PORT" or a host alone, whose port is then 0. False: it is something
 * else, or the host does not fit. */
bool place_read_endpoint(const char *text, char *host, size_t size, int *port);

/* Copies the first host of a list as Slurm writes it: "n01" of "n[01-04,07],m3", "r0n3" of
 * "r[0-1]n[3,5]". False: it is not such a list, or the host does not fit. */
bool place_first_host(const char *list, char *host, size_t size);

/* Does a list such as "1(x4)" or "2,1(x3)" say that each of `nodes` nodes has one task? */
bool place_one_task_each(const char *list, int nodes);

#endif
