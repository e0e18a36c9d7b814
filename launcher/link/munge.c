/* SPDX-License-Identifier: MIT
 *
 * See munge.h. The declarations are those of munge.h 0.5, whose library is libmunge.so.2. */
#include "config.h"

#include "launcher/link/munge.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define OPT_SOCKET          8
#define OPT_UID_RESTRICTION 9

enum { SUCCESS = 0, EXPIRED = 15, REWOUND = 16 };

struct munge {
    void *library;
    void *(*ctx_create)(void);
    void (*ctx_destroy)(void *ctx);
    int (*ctx_set)(void *ctx, int option, ...);
    const char *(*ctx_strerror)(void *ctx);
    const char *(*strerror)(int error);
    int (*encode)(char **credential, void *ctx, const void *data, int bytes);
    int (*decode)(const char *credential, void *ctx, void **data, int *bytes, uid_t *uid,
                  gid_t *gid);
};

static bool find_all(struct munge *munge)
{
    const struct {
        const char *name;
        void *place;
    } names[] = {
        {"munge_ctx_create", &munge->ctx_create}, {"munge_ctx_destroy", &munge->ctx_destroy},
        {"munge_ctx_set", &munge->ctx_set},       {"munge_ctx_strerror", &munge->ctx_strerror},
        {"munge_strerror", &munge->strerror},     {"munge_encode", &munge->encode},
        {"munge_decode", &munge->decode},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        void *address = dlsym(munge->library, names[i].name);
        if (!address)
            return false;
        memcpy(names[i].place, &address, sizeof address);
    }
    return true;
}

/* NULL: there is no memory. */
static void *new_context(const struct munge *munge)
{
    const char *socket = getenv(MUNGE_SOCKET_VARIABLE);
    void *ctx = munge->ctx_create();
    if (!ctx)
        return NULL;
    if (munge->ctx_set(ctx, OPT_UID_RESTRICTION, geteuid()) != SUCCESS ||
        (socket && *socket && munge->ctx_set(ctx, OPT_SOCKET, socket) != SUCCESS)) {
        munge->ctx_destroy(ctx);
        return NULL;
    }
    return ctx;
}

static void explain(const struct munge *munge, void *ctx, int error, char *why, size_t size)
{
    const char *text = ctx ? munge->ctx_strerror(ctx) : NULL;
    snprintf(why, size, "MUNGE says: %s", text ? text : munge->strerror(error));
}

struct munge *munge_open(char *why, size_t size)
{
    char credential[2048];
    struct munge *munge = calloc(1, sizeof *munge);
    if (!munge) {
        snprintf(why, size, "out of memory");
        return NULL;
    }
    munge->library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!munge->library) {
        snprintf(why, size, "libmunge.so.2 is not installed");
    } else if (!find_all(munge)) {
        snprintf(why, size, "libmunge.so.2 lacks a function");
    } else if (munge_make(munge, "", 0, credential, sizeof credential, why, size)) {
        return munge;
    }
    munge_close(munge);
    return NULL;
}

bool munge_make(const struct munge *munge, const void *data, size_t bytes, char *out, size_t size,
                char *why, size_t why_size)
{
    char *credential = NULL;
    void *ctx = new_context(munge);
    if (!ctx) {
        snprintf(why, why_size, "out of memory");
        return false;
    }
    int error = munge->encode(&credential, ctx, data, (int)bytes);
    bool made = error == SUCCESS && credential && strlen(credential) < size;
    if (made)
        memcpy(out, credential, strlen(credential) + 1);
    else if (error != SUCCESS)
        explain(munge, ctx, error, why, why_size);
    else
        snprintf(why, why_size, "its MUNGE credential is too long");
    free(credential);
    munge->ctx_destroy(ctx);
    return made;
}

bool munge_check(const struct munge *munge, const char *credential, const void *data, size_t bytes,
                 void *secret, size_t secret_bytes, char *why, size_t why_size)
{
    void *found = NULL, *ctx = new_context(munge);
    int found_bytes = 0;
    uid_t uid = (uid_t)-1;
    gid_t gid = (gid_t)-1;
    if (!ctx) {
        snprintf(why, why_size, "out of memory");
        return false;
    }
    int error = munge->decode(credential, ctx, &found, &found_bytes, &uid, &gid);
    bool right = false;
    /* With these two munged has checked everything but the time. */
    if (error != SUCCESS && error != EXPIRED && error != REWOUND)
        explain(munge, ctx, error, why, why_size);
    else if (uid != geteuid())
        snprintf(why, why_size, "it runs as user %ld, this ddprun as user %ld", (long)uid,
                 (long)geteuid());
    else if (found_bytes < 0 || (size_t)found_bytes != bytes + secret_bytes ||
             memcmp(found, data, bytes) != 0)
        snprintf(why, why_size, "its MUNGE credential was made for another connection");
    else
        right = true;
    if (right)
        memcpy(secret, (const unsigned char *)found + bytes, secret_bytes);
    if (found_bytes > 0 && found)
        explicit_bzero(found, (size_t)found_bytes);
    free(found);
    munge->ctx_destroy(ctx);
    return right;
}

void munge_close(struct munge *munge)
{
    if (!munge)
        return;
    if (munge->library)
        dlclose(munge->library);
    free(munge);
}
