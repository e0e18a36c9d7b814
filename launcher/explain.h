/* SPDX-License-Identifier: MIT
 *
 * --explain-launch: what ddprun finds out about its place among nodes, for a person. */
#ifndef DDP_LAUNCHER_EXPLAIN_H
#define DDP_LAUNCHER_EXPLAIN_H

#include "launcher/place.h"

#include <stdio.h>

/* Prints the variables that say something about the place, with their values. */
void explain_variables(FILE *out);

/* Prints what follows from them. Looks node 0's name up. */
void explain_place(const struct place *place, const struct settings *settings, FILE *out);

#endif
