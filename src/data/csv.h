/* SPDX-License-Identifier: MIT
 *
 * Records of a text in memory, with fields between commas or tabs and quotes as in RFC 4180. Lines
 * without anything are no records. */
#ifndef DDP_DATA_CSV_H
#define DDP_DATA_CSV_H

#include "ddp.h"

struct ddp_csv {
    const char *name; /* for messages */
    const char *at, *end;
    char separator;
    size_t line; /* of `at`, from 1 */
};

struct ddp_csv_field {
    const char *at; /* without its quotes; no 0 behind it */
    size_t bytes;
    bool quoted; /* in `at` a quote is two */
    bool last;   /* of its record */
};

/* Begins at a text's first record, behind a byte order mark. It must be UTF-8 without zeros:
 * DDP_ERR_FORMAT names the encoding, or the line. */
enum ddp_status ddp_csv_open(struct ddp_csv *csv, const char *name, const char *text, size_t bytes,
                             char separator);

/* Passes empty lines. Whether there is another record. */
bool ddp_csv_more(struct ddp_csv *csv);

/* The next field, where there is another record or the last field was not a record's last.
 * DDP_ERR_FORMAT names the line: a quote is not closed, or something follows it. */
enum ddp_status ddp_csv_field(struct ddp_csv *csv, struct ddp_csv_field *field);

/* What a field says, with spaces around it left out if it has no quotes. Cut to size - 1 bytes, and
 * ended by a 0. Returns the bytes of all. */
size_t ddp_csv_text(const struct ddp_csv_field *field, char *text, size_t size);

#endif
