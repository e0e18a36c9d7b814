/* SPDX-License-Identifier: MIT
 *
 * The cache of encoded texts: ddp_encode_texts(). A file is named after its key, appears whole or
 * not at all, and is checked when it is opened. The process that encodes holds a lock on a byte
 * that the key chooses, in one file for all: the kernel takes a lock back from a process that dies,
 * and locks leave no files behind. */
#include "config.h"

#include "core/cache_folder.h"
#include "core/clock.h"
#include "core/hash.h"
#include "core/log.h"
#include "core/memory.h"
#include "data/encode.h"
#include "data/text_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FORMAT      2 /* of what is kept: another number makes other keys */
#define BLOCK_BYTES ((size_t)1 << 20)
#define NAP_NS      20000000
#define WAIT_MS     3600000 /* for another process; then this one encodes for itself */

struct cache {
    const struct ddp_encoding *encoding;
    uint64_t key;
    int width;
    char folder[3800];
    char path[4096]; /* "" where there is no cache */
    int lock;        /* descriptor; -1: none */
};

static bool goes_on(const struct cache *c, double share)
{
    const struct ddp_dataset_watch *watch = &c->encoding->watch;
    return !watch->goes_on || watch->goes_on(watch->arg, share);
}

/* --- the key ---------------------------------------------------------------------------------- */

static void add(uint64_t *key, const void *data, size_t bytes)
{
    const uint64_t both[2] = {*key, ddp_hash(data, bytes)};
    *key = ddp_hash(both, sizeof both);
}

static enum ddp_status add_file(struct cache *c, const char *path, void *block)
{
    struct ddp_input_file file = {.fd = -1};
    enum ddp_status status = ddp_input_file_open(&file, path, true);
    const uint64_t facts[2] = {status == DDP_OK ? file.bytes : 0, ddp_text_is_jsonl(path)};
    add(&c->key, facts, sizeof facts);
    for (uint64_t at = 0, n; status == DDP_OK && at < file.bytes; at += n) {
        n = file.bytes - at < BLOCK_BYTES ? file.bytes - at : BLOCK_BYTES;
        status = ddp_input_file_read(&file, at, block, (size_t)n);
        if (status == DDP_OK)
            add(&c->key, block, (size_t)n);
        if (status == DDP_OK && !goes_on(c, 0))
            status = DDP_ERR_ABORTED;
    }
    if (file.path)
        ddp_input_file_close(&file);
    return status;
}

static enum ddp_status make_key(struct cache *c)
{
    const struct ddp_encoding *e = c->encoding;
    const char *file, *of_chat = ddp_tokenizer_chat_template(e->tokenizer, &file);
    const char *chat = e->chat;
    const uint64_t facts[] = {FORMAT,
                              ddp_tokenizer_hash(e->tokenizer),
                              (uint64_t)ddp_tokenizer_eos(e->tokenizer),
                              (uint64_t)c->width,
                              e->files->count,
                              e->preferences};
    void *block = ddp_array_alloc(BLOCK_BYTES, 1);
    enum ddp_status status = block ? DDP_OK : DDP_ERR_MEMORY;
    add(&c->key, facts, sizeof facts);
    add(&c->key, PACKAGE_VERSION, sizeof PACKAGE_VERSION);
    add(&c->key, chat ? chat : "", chat ? strlen(chat) : 0);
    if (status == DDP_OK && chat && ddp_chat_template_is_file(chat))
        status = add_file(c, chat, block);
    if (!chat && of_chat)
        add(&c->key, of_chat, strlen(of_chat));
    for (int i = 0; e->columns && i < e->columns->count; i++) {
        add(&c->key, e->columns->ours[i], strlen(e->columns->ours[i]));
        add(&c->key, e->columns->theirs[i], strlen(e->columns->theirs[i]));
    }
    for (size_t i = 0; status == DDP_OK && i < e->files->count; i++)
        status = add_file(c, e->files->at[i], block);
    free(block);
    return status;
}

/* --- the lock --------------------------------------------------------------------------------- */

static bool try_lock(const struct cache *c)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = (off_t)(c->key >> 8), .l_len = 1};
    return fcntl(c->lock, F_OFD_SETLK, &lock) == 0 || (errno != EAGAIN && errno != EACCES);
}

/* Waits while another process encodes the same texts. A file system without locks lets all work:
 * each then writes the same file. */
static enum ddp_status lock(struct cache *c)
{
    const int64_t deadline_ns = ddp_deadline_ns(WAIT_MS);
    const struct timespec nap = {.tv_nsec = NAP_NS};
    char path[4096];
    snprintf(path, sizeof path, "%s/encoding.lock", c->folder);
    c->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    while (c->lock >= 0 && !try_lock(c) && !ddp_deadline_passed(deadline_ns)) {
        if (!goes_on(c, -1))
            return DDP_ERR_ABORTED;
        nanosleep(&nap, NULL);
    }
    return DDP_OK;
}

/* --- the file --------------------------------------------------------------------------------- */

/* Without a file *found is false.
 *   tell  that it is damaged */
static enum ddp_status open_kept(const struct cache *c, struct ddp_encoded *encoded, bool tell,
                                 bool *found)
{
    char said[1024] = "";
    *found = false;
    if (!*c->path || access(c->path, F_OK) != 0)
        return DDP_OK;
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    const enum ddp_status status = ddp_encoded_open(encoded, c->path, c->key);
    ddp_log_exchange(before);
    *found = status == DDP_OK;
    if (status == DDP_ERR_MEMORY)
        return ddp_fail(status, "%s", said);
    if (status != DDP_OK && tell)
        ddp_log(DDP_LOG_WARNING, "%s: it will be written again", said);
    return DDP_OK;
}

/* path NULL: into memory
 *   failed [out]  the file could not be written; *said why */
static enum ddp_status encode(const struct cache *c, const char *path, struct ddp_encoded *encoded,
                              bool *failed)
{
    ddp_encoded_writer *writer = NULL;
    int64_t text_bytes = 0;
    enum ddp_status status = ddp_encoded_writer_open(&writer, path, c->width);
    *failed = path && status == DDP_ERR_IO;
    if (status != DDP_OK)
        return status;
    status = ddp_encode_into(writer, c->encoding, &text_bytes);
    if (status == DDP_OK)
        status = ddp_encoded_writer_finish(writer, c->key, text_bytes, encoded);
    *failed = ddp_encoded_writer_failed(writer);
    ddp_encoded_writer_close(writer);
    return status;
}

/* A cache that cannot be written costs time, and stops nothing. */
static enum ddp_status encode_and_keep(const struct cache *c, struct ddp_encoded *encoded)
{
    char said[1024] = "";
    bool failed = false;
    if (!*c->path)
        return encode(c, NULL, encoded, &failed);
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    const enum ddp_status status = encode(c, c->path, encoded, &failed);
    ddp_log_exchange(before);
    if (status == DDP_OK)
        ddp_log(DDP_LOG_DEBUG, "%s: encoded texts are kept here", c->path);
    if (!failed)
        return status == DDP_OK || !*said ? status : ddp_fail(status, "%s", said);
    ddp_log(DDP_LOG_WARNING, "encoded texts are not kept: %s", said);
    return encode(c, NULL, encoded, &failed);
}

static enum ddp_status find_or_encode(struct cache *c, struct ddp_encoded *encoded)
{
    char why[512];
    bool found = false;
    enum ddp_status status = make_key(c);
    if (status != DDP_OK)
        return status;
    if (ddp_cache_folder(c->folder, sizeof c->folder, why, sizeof why))
        snprintf(c->path, sizeof c->path, "%s/texts-%016" PRIx64, c->folder, c->key);
    else
        ddp_log(DDP_LOG_DEBUG, "encoded texts are not kept: %s", why);
    status = open_kept(c, encoded, false, &found);
    if (status != DDP_OK || found)
        return status;
    if (*c->path)
        status = lock(c);
    if (status == DDP_OK)
        status = open_kept(c, encoded, true, &found); /* by the process that had the lock */
    return status == DDP_OK && !found ? encode_and_keep(c, encoded) : status;
}

enum ddp_status ddp_encode_texts(struct ddp_encoded **encoded, const struct ddp_encoding *encoding)
{
    const bool examples = encoding->preferences || ddp_encode_makes_examples(encoding);
    const bool narrow = !examples && ddp_tokenizer_ids(encoding->tokenizer) <= UINT16_MAX + 1;
    struct ddp_encoded *e = ddp_array_alloc(1, sizeof *e);
    struct cache *c = ddp_array_alloc(1, sizeof *c);
    enum ddp_status status = e && c ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK) {
        *c = (struct cache){.encoding = encoding, .width = narrow ? 2 : 4, .lock = -1};
        e->file.fd = -1;
        status = find_or_encode(c, e);
        if (c->lock >= 0)
            close(c->lock);
    }
    free(c);
    if (status == DDP_OK)
        *encoded = e;
    else
        ddp_encode_close(e);
    return status;
}

void ddp_encode_close(struct ddp_encoded *encoded)
{
    if (encoded)
        ddp_encoded_close(encoded);
    free(encoded);
}
