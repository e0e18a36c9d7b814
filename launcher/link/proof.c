/* SPDX-License-Identifier: MIT
 *
 * See proof.h. */
#include "config.h"

#include "launcher/link/proof.h"

#include "core/log.h"
#include "launcher/link/munge.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <nettle/version.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define SAID_MAX 1024

const char *proof_method_name(uint32_t method)
{
    static const char *const names[] = {
        [PROOF_NONE] = "no key (--insecure-link)",
        [PROOF_KEY] = "a key (--key-file or " PROOF_KEY_VARIABLE ")",
        [PROOF_PMIX] = "a key from PMIx",
        [PROOF_MUNGE] = "MUNGE",
    };
    return method > 0 && method <= PROOF_MUNGE ? names[method] : "an unknown method";
}

enum ddp_status proof_random(void *out, size_t bytes)
{
    assert(bytes <= 256); /* then it comes whole */
    ssize_t n;
    while ((n = getrandom(out, bytes, 0)) < 0 && errno == EINTR)
        ;
    if (n != (ssize_t)bytes)
        return ddp_fail(DDP_ERR_SYSTEM, "the system gives no random numbers: %s", strerror(errno));
    return DDP_OK;
}

enum ddp_status proof_take_key(struct proof *proof, const void *key, size_t bytes)
{
    unsigned char *copy = malloc(bytes);
    if (!copy)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory for the key of the link");
    memcpy(copy, key, bytes);
    proof->key = copy;
    proof->key_bytes = bytes;
    return DDP_OK;
}

/* A key as people write it: the newline at its end is not part of it. */
static enum ddp_status take_text(struct proof *proof, const char *source, const char *text,
                                 size_t bytes)
{
    while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
        bytes--;
    if (bytes < PROOF_KEY_MIN)
        return ddp_fail(
            DDP_ERR_INVALID,
            "%s: the key has %zu bytes, and %d or more are needed; openssl rand -hex 32 "
            "makes one",
            source, bytes, PROOF_KEY_MIN);
    if (bytes > PROOF_KEY_MAX)
        return ddp_fail(DDP_ERR_INVALID, "%s: the key has more than %d bytes", source,
                        PROOF_KEY_MAX);
    return proof_take_key(proof, text, bytes);
}

static enum ddp_status check_file(int fd, const char *path)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return ddp_fail_path(path, "read");
    if (!S_ISREG(info.st_mode))
        return ddp_fail(DDP_ERR_INVALID, "--key-file %s is not a regular file", path);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return ddp_fail(DDP_ERR_INVALID, "--key-file %s belongs to user %ld, who knows the key",
                        path, (long)info.st_uid);
    if (info.st_mode & (S_IRWXG | S_IRWXO))
        return ddp_fail(DDP_ERR_INVALID,
                        "--key-file %s: others may read or write it (mode %03o); use chmod 600",
                        path, (unsigned)info.st_mode & 0777);
    return DDP_OK;
}

static enum ddp_status read_file(struct proof *proof, const char *path)
{
    char text[PROOF_KEY_MAX + 3], source[512];
    size_t used = 0;
    ssize_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return ddp_fail(DDP_ERR_IO, "--key-file %s: cannot open it: %s", path, strerror(errno));
    enum ddp_status status = check_file(fd, path);
    while (status == DDP_OK && used < sizeof text &&
           ((n = read(fd, text + used, sizeof text - used)) > 0 || (n < 0 && errno == EINTR)))
        used += n > 0 ? (size_t)n : 0;
    if (status == DDP_OK && n < 0)
        status = ddp_fail(DDP_ERR_IO, "--key-file %s: cannot read it: %s", path, strerror(errno));
    close(fd);
    snprintf(source, sizeof source, "--key-file %s", path);
    if (status == DDP_OK)
        status = take_text(proof, source, text, used);
    explicit_bzero(text, sizeof text);
    return status;
}

/* Takes the key out of our environment, and its characters out of our memory, which
 * /proc/PID/environ shows. */
static void forget_variable(char *value)
{
    if (value)
        explicit_bzero(value, strlen(value));
    unsetenv(PROOF_KEY_VARIABLE);
}

static enum ddp_status open_munge(struct proof *proof, bool insecure)
{
    char why[PROOF_WHY];
    proof->munge = munge_open(why, sizeof why);
    if (proof->munge) {
        proof->method = PROOF_MUNGE;
        return DDP_OK;
    }
    if (insecure)
        return DDP_OK;
    return ddp_fail(DDP_ERR_UNSUPPORTED,
                    "the nodes cannot prove to each other who they are: %s; give them a key "
                    "(--key-file or " PROOF_KEY_VARIABLE "), or --insecure-link on a network where "
                    "nobody else can connect",
                    why);
}

enum ddp_status proof_open(struct proof *proof, const struct proof_setup *setup)
{
    char *value = getenv(PROOF_KEY_VARIABLE);
    enum ddp_status status = DDP_OK;
    *proof = (struct proof){.method = PROOF_NONE};
    if (setup->key_file) {
        proof->method = PROOF_KEY;
        status = read_file(proof, setup->key_file);
    } else if (value && *value) {
        proof->method = PROOF_KEY;
        status = take_text(proof, PROOF_KEY_VARIABLE, value, strlen(value));
    } else if (setup->pmix) {
        proof->method = PROOF_PMIX;
    } else if (setup->munge) {
        status = open_munge(proof, setup->insecure);
    } else if (!setup->insecure) {
        status = ddp_fail(DDP_ERR_INVALID,
                          "the nodes need a key, so that nobody else can join: the same file on "
                          "each with --key-file, or " PROOF_KEY_VARIABLE " in the environment "
                          "(openssl rand -hex 32 makes one); --insecure-link starts without one");
    }
    forget_variable(value);
    if (status != DDP_OK)
        proof_close(proof);
    return status;
}

void proof_close(struct proof *proof)
{
    if (proof->key)
        explicit_bzero(proof->key, proof->key_bytes);
    free(proof->key);
    munge_close(proof->munge);
    proof->key = NULL;
    proof->munge = NULL;
}

/* What a credential is made over, with room for a secret behind it. Returns its length. */
static size_t payload(unsigned char out[SAID_MAX], const char *role, const void *said,
                      size_t said_bytes)
{
    const size_t role_bytes = strlen(role) + 1;
    assert(role_bytes + said_bytes + PROOF_SECRET_BYTES <= SAID_MAX);
    memcpy(out, role, role_bytes);
    memcpy(out + role_bytes, said, said_bytes);
    return role_bytes + said_bytes;
}

/* Over two parts. */
static void make_hmac(const unsigned char *key, size_t key_bytes, const void *first,
                      size_t first_bytes, const void *second, size_t second_bytes,
                      unsigned char out[SHA256_DIGEST_SIZE])
{
    struct hmac_sha256_ctx context;
    hmac_sha256_set_key(&context, key_bytes, key);
    hmac_sha256_update(&context, first_bytes, first);
    hmac_sha256_update(&context, second_bytes, second);
#if NETTLE_VERSION_MAJOR >= 4
    hmac_sha256_digest(&context, out);
#else
    hmac_sha256_digest(&context, SHA256_DIGEST_SIZE, out);
#endif
    explicit_bzero(&context, sizeof context);
}

static void make_own(const struct proof *proof, const char *role, const void *said,
                     size_t said_bytes, unsigned char out[SHA256_DIGEST_SIZE])
{
    assert(proof->key);
    make_hmac(proof->key, proof->key_bytes, role, strlen(role) + 1, said, said_bytes, out);
}

enum ddp_status proof_make(const struct proof *proof, const char *role, const void *said,
                           size_t said_bytes, unsigned char out[PROOF_MAX], size_t *bytes,
                           unsigned char secret[PROOF_SECRET_BYTES])
{
    unsigned char data[SAID_MAX];
    char why[PROOF_WHY];
    *bytes = 0;
    memset(secret, 0, PROOF_SECRET_BYTES);
    if (proof->method == PROOF_MUNGE) {
        const size_t length = payload(data, role, said, said_bytes);
        enum ddp_status status = proof_random(secret, PROOF_SECRET_BYTES);
        if (status != DDP_OK)
            return status;
        memcpy(data + length, secret, PROOF_SECRET_BYTES);
        const bool made = munge_make(proof->munge, data, length + PROOF_SECRET_BYTES, (char *)out,
                                     PROOF_MAX, why, sizeof why);
        explicit_bzero(data, sizeof data);
        if (!made)
            return ddp_fail(DDP_ERR_SYSTEM, "cannot make a credential for the other nodes: %s",
                            why);
        *bytes = strlen((const char *)out) + 1;
    } else if (proof->method != PROOF_NONE) {
        make_own(proof, role, said, said_bytes, out);
        *bytes = SHA256_DIGEST_SIZE;
    }
    return DDP_OK;
}

bool proof_check(const struct proof *proof, const char *role, const void *said, size_t said_bytes,
                 const unsigned char *given, size_t given_bytes,
                 unsigned char secret[PROOF_SECRET_BYTES], char why[static PROOF_WHY])
{
    unsigned char data[SAID_MAX], own[SHA256_DIGEST_SIZE];
    memset(secret, 0, PROOF_SECRET_BYTES);
    if (proof->method == PROOF_NONE)
        return true;
    if (proof->method == PROOF_MUNGE) {
        const size_t length = payload(data, role, said, said_bytes);
        if (given_bytes > 0 && given[given_bytes - 1] == 0)
            return munge_check(proof->munge, (const char *)given, data, length, secret,
                               PROOF_SECRET_BYTES, why, PROOF_WHY);
        snprintf(why, PROOF_WHY, "what it sent is not a MUNGE credential");
        return false;
    }
    make_own(proof, role, said, said_bytes, own);
    const bool right = given_bytes == sizeof own && memeql_sec(own, given, sizeof own);
    explicit_bzero(own, sizeof own);
    if (!right)
        snprintf(why, PROOF_WHY, "it has another key");
    return right;
}

void proof_seal_begin(struct proof_seal *seal, const struct proof *proof, const char *role,
                      const void *said, size_t said_bytes)
{
    static const unsigned char none[1];
    *seal = (struct proof_seal){.on = true};
    make_hmac(proof->key ? proof->key : none, proof->key_bytes, role, strlen(role) + 1, said,
              said_bytes, seal->key);
}

void proof_seal_make(struct proof_seal *seal, const void *frame, size_t bytes,
                     unsigned char out[PROOF_SEAL_BYTES])
{
    unsigned char whole[SHA256_DIGEST_SIZE];
    make_hmac(seal->key, sizeof seal->key, &seal->number, sizeof seal->number, frame, bytes, whole);
    seal->number++;
    memcpy(out, whole, PROOF_SEAL_BYTES);
}
