/* SPDX-License-Identifier: MIT
 *
 * How two ddpruns of a job show each other that they belong to it: a key that both have, from which
 * each makes an HMAC over what the two have just said, or a MUNGE credential over the same. Owns
 * the key. Knows nothing of connections. */
#ifndef DDP_LAUNCHER_PROOF_H
#define DDP_LAUNCHER_PROOF_H

#include "ddp.h"

#include <stddef.h>
#include <stdint.h>

/* The environment variable that may hold the key. Workers do not get it. */
#define PROOF_KEY_VARIABLE "DDPRUN_KEY"
#define PROOF_KEY_MIN      16 /* bytes: a shorter key can be guessed */
#define PROOF_KEY_MAX      4096
#define PROOF_MAX          2048 /* bytes of a proof */
#define PROOF_WHY          256  /* of a reason, with its 0 */
#define PROOF_SECRET_BYTES 32

/* Part of the protocol: numbers stay as they are. */
enum proof_method {
    PROOF_NONE = 1, /* --insecure-link */
    PROOF_KEY = 2,  /* --key-file or DDPRUN_KEY */
    PROOF_PMIX = 3, /* a random key that PMIx has carried */
    PROOF_MUNGE = 4,
};

struct proof {
    enum proof_method method;
    unsigned char *key;
    size_t key_bytes;
    struct munge *munge;
};

struct proof_setup {
    const char *key_file; /* --key-file, or NULL */
    bool pmix;            /* proof_take_key() follows, with the key that PMIx carries */
    bool munge;           /* Slurm has started us: use MUNGE if there is no key */
    bool insecure;        /* --insecure-link: go on if there is none of these */
};

/* Chooses the method, first match: key_file, DDPRUN_KEY, PMIx, MUNGE, none. DDPRUN_KEY is removed
 * from our environment. DDP_ERR_INVALID (logged): a file that others may read, a key that is too
 * short, or no method at all. DDP_ERR_IO: the file cannot be read. DDP_ERR_UNSUPPORTED: no
 * libmunge, or no munged. Ended by proof_close(). */
enum ddp_status proof_open(struct proof *proof, const struct proof_setup *setup);

/* The key of PROOF_PMIX. Copied. DDP_ERR_MEMORY. */
enum ddp_status proof_take_key(struct proof *proof, const void *key, size_t bytes);

/* Overwrites the key. Also after a failed proof_open(), and of a zeroed struct. */
void proof_close(struct proof *proof);

/* "a key (--key-file or DDPRUN_KEY)", for messages. */
const char *proof_method_name(uint32_t method);

/* Random bytes that nobody can guess. DDP_ERR_SYSTEM (logged). */
enum ddp_status proof_random(void *out, size_t bytes);

/* Shows that we are who we say.
 *   said        all that both sides have sent so far, with both nonces and the role of each
 *   role        "node 0" or "node": a proof of one cannot stand for one of the other
 *   out, *bytes [out]  at most PROOF_MAX
 *   secret      [out] random bytes that only the peer finds in it (MUNGE); else zeros
 * DDP_ERR_SYSTEM (logged): MUNGE failed. */
enum ddp_status proof_make(const struct proof *proof, const char *role, const void *said,
                           size_t said_bytes, unsigned char out[PROOF_MAX], size_t *bytes,
                           unsigned char secret[PROOF_SECRET_BYTES]);

/* Is this the peer's proof? `secret` [out]: its secret. `why` [out], if not: what is wrong with it,
 * such as "it has another key". Takes the same time for any wrong HMAC. */
bool proof_check(const struct proof *proof, const char *role, const void *said, size_t said_bytes,
                 const unsigned char *given, size_t given_bytes,
                 unsigned char secret[PROOF_SECRET_BYTES], char why[static PROOF_WHY]);

/* For what follows on a connection: a key that both sides make of what they have said, and a seal
 * of each frame and its number with it, in which any change shows. With PROOF_NONE there is no
 * secret: it shows damage then, but no forgery.
 *   said   with the secrets of both proofs */
#define PROOF_SEAL_BYTES 16

struct proof_seal {
    bool on;
    unsigned char key[32];
    uint64_t number; /* of the next frame */
};

void proof_seal_begin(struct proof_seal *seal, const struct proof *proof, const char *role,
                      const void *said, size_t said_bytes);

/* Of the next frame. */
void proof_seal_make(struct proof_seal *seal, const void *frame, size_t bytes,
                     unsigned char out[PROOF_SEAL_BYTES]);

#endif
