/* SPDX-License-Identifier: MIT
 *
 * MUNGE credentials through libmunge, which is opened at run time: a cluster that has Slurm has it,
 * other machines need not. */
#ifndef DDP_LAUNCHER_MUNGE_H
#define DDP_LAUNCHER_MUNGE_H

#include "ddp.h"

#include <stdbool.h>
#include <stddef.h>

/* Where munged listens, if not where libmunge thinks. */
#define MUNGE_SOCKET_VARIABLE "DDPRUN_MUNGE_SOCKET"

struct munge;

/* Opens the library and tries it. NULL: it is not there, or munged does not answer; `why` [out]
 * says which, as the end of a sentence. */
struct munge *munge_open(char *why, size_t size);

/* A credential that only processes of our user can decode, as a string. False: `why` [out]. */
bool munge_make(const struct munge *munge, const void *data, size_t bytes, char *out, size_t size,
                char *why, size_t why_size);

/* Whether it is a credential that our user has made over these data and a secret of secret_bytes
 * [out], and new here. False: `why` [out]. Its age does not matter, and neither do clocks that
 * differ: the data have a number that we have just drawn. */
bool munge_check(const struct munge *munge, const char *credential, const void *data, size_t bytes,
                 void *secret, size_t secret_bytes, char *why, size_t why_size);

void munge_close(struct munge *munge);

#endif
