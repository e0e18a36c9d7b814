/* SPDX-License-Identifier: MIT
 *
 * The beginning of a connection, which both sides share: who speaks, and what a proof is made over.
 *
 *   node -> node 0   HELLO with a random number
 *   node 0 -> node   HELLO with another
 *   node -> node 0   PROOF over both
 *   node 0 -> node   PROOF over both; from here on frames are sealed
 *   node -> node 0   JOIN
 *   node 0 -> node   NAMES, WELCOME, when all have come
 *
 * In place of any answer node 0 may send REFUSED. */
#ifndef DDP_LAUNCHER_LINK_HELLO_H
#define DDP_LAUNCHER_LINK_HELLO_H

#include "launcher/link/state.h"

/* The roles in a proof. */
#define ROLE_NODE0 "ddprun link, node 0"
#define ROLE_NODE  "ddprun link, node"

/* What both sides have said, and what only they know. */
struct said {
    struct hello node;
    struct hello node0;
    unsigned char node_secret[PROOF_SECRET_BYTES], node0_secret[PROOF_SECRET_BYTES];
};

#define SAID_OPENLY offsetof(struct said, node_secret)

/* With a new random number. DDP_ERR_SYSTEM (logged). */
enum ddp_status hello_make(struct hello *hello, const struct link_setup *setup);

/* Sends our proof. DDP_ERR_SYSTEM (logged). */
enum ddp_status hello_send_proof(struct connection *connection, const struct proof *proof,
                                 struct said *said, bool node0);

/* Looks at the other side's. False: `why` [out]. */
bool hello_check_proof(const struct proof *proof, struct said *said, bool node0,
                       const struct frame *frame, char why[static PROOF_WHY]);

/* Both have proved themselves: what we send and what comes is sealed from now on. */
void hello_seal(struct connection *connection, const struct proof *proof, const struct said *said,
                bool node0);

/* "ddprun 0.3.0" or, of a peer with another protocol, "another version of ddprun". */
void hello_show_version(const struct hello *hello, char *out, size_t size);

#endif
