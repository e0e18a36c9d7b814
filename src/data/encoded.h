/* SPDX-License-Identifier: MIT
 *
 * Texts as tokens, in a file of the cache or in memory: tokens of 16 or 32 bits one after another,
 * where each document begins, and a trailer with sums over all of it. The highest bit of a token of
 * 32 bits says that it is trained. A file is read on demand (core/input_file.h). */
#ifndef DDP_DATA_ENCODED_H
#define DDP_DATA_ENCODED_H

#include "data/blob.h"

#define DDP_ENCODED_TRAINED UINT32_C(0x80000000)

/* A document that can be trained on by itself, and where it came from. */
struct ddp_encoded_document {
    uint64_t begin; /* token */
    uint32_t file;  /* number of the file, from 0 */
    uint32_t line;  /* from 1; 0: the whole file */
};

struct ddp_encoded_facts {
    uint64_t key;           /* of what was encoded, and how */
    int64_t width;          /* bytes of a token: 2 or 4 */
    int64_t token_count;    /* end tokens included */
    int64_t document_count; /* with places below, or 0: they are a stream of tokens */
    int64_t text_bytes;     /* that the tokens stand for */
    int64_t largest;        /* token */
};

/* Of a document's file: the answer is rejected, or bad. */
#define DDP_ENCODED_BAD (UINT32_C(1) << 31)

struct ddp_encoded {
    struct ddp_input_file file;
    struct ddp_blob blob;
    unsigned char *memory; /* NULL: the blob is the file */
    struct ddp_encoded_facts facts;
};

/* --- reading --- */

/* Opens a file and checks all of it.
 *   encoded [out]  stays where it is while it is open; closed after a failure
 * DDP_ERR_IO; DDP_ERR_FORMAT: it is damaged or of another key. */
enum ddp_status ddp_encoded_open(struct ddp_encoded *encoded, const char *path, uint64_t key);
void ddp_encoded_close(struct ddp_encoded *encoded); /* also a zeroed one */

/* Reads `count` tokens of 32 bits from `first` on, which are there. DDP_ERR_IO. */
enum ddp_status ddp_encoded_read(const struct ddp_encoded *encoded, uint64_t first, size_t count,
                                 uint32_t *tokens);

/* All documents, and behind them one that begins where the tokens end.
 *   documents [out]  freed with free()
 * DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_encoded_documents(const struct ddp_encoded *encoded,
                                      struct ddp_encoded_document **documents);

/* --- writing --- */

typedef struct ddp_encoded_writer ddp_encoded_writer;

/*   path  NULL: into memory
 *   width of the tokens
 * DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_encoded_writer_open(ddp_encoded_writer **writer, const char *path, int width);
void ddp_encoded_writer_close(ddp_encoded_writer *writer); /* NULL is fine */

/* Adds tokens.
 *   place  of the document that they are, 32 bits wide; NULL: they belong to a stream */
enum ddp_status ddp_encoded_writer_add(ddp_encoded_writer *writer, const uint32_t *tokens,
                                       size_t count, const struct ddp_encoded_document *place);

/* Ends the file and opens it.
 *   text_bytes, key  as in the facts */
enum ddp_status ddp_encoded_writer_finish(ddp_encoded_writer *writer, uint64_t key,
                                          int64_t text_bytes, struct ddp_encoded *encoded);

/* Whether the last failure came from writing the file, not from its contents. */
bool ddp_encoded_writer_failed(const ddp_encoded_writer *writer);

#endif
