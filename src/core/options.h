/* SPDX-License-Identifier: MIT
 *
 * Command lines from one table: parsing, ranges, --help. In long names '-' and '_' are the same.
 *   values  --name value, --name=value, -x value, -xvalue
 *   flags   --name, -x, and --no-name where the row allows it
 * A value may also come from the environment; the command line wins. */
#ifndef DDP_CORE_OPTIONS_H
#define DDP_CORE_OPTIONS_H

#include "ddp.h"

enum ddp_option_type {
    DDP_OPTION_FLAG,   /* bool */
    DDP_OPTION_INT,    /* int64_t in [min, max] */
    DDP_OPTION_UINT,   /* uint64_t, any */
    DDP_OPTION_REAL,   /* double in [min, max] */
    DDP_OPTION_TEXT,   /* const char *, points into argv or the environment, not empty */
    DDP_OPTION_CHOICE, /* int: index into choices, a NULL-terminated list of words */
    DDP_OPTION_CUSTOM, /* read() does it all */
};

struct ddp_option {
    const char *name; /* "batch-size"; NULL ends the table */
    char letter;      /* 'n', or 0 */
    enum ddp_option_type type;
    size_t offset;   /* of the member in the destination struct */
    double min, max; /* INT, REAL; both 0: no limits */
    const char *const *choices;
    const char *argument; /* what --help calls the value: "N" */
    const char *help;     /* one sentence, no full stop; NULL: an alias, not in --help */
    const char *section;  /* starts a new section in --help; NULL: the same section */
    const char *alias_of; /* the name of the row that this is another spelling of; the rest is
                             unused then */
    /* CUSTOM (value is NULL for a flag-like use: argument == NULL). Gets the whole destination
     * struct. Returns NULL, or what is wrong with the value, as a phrase that ends "--name VALUE:
     * ". */
    const char *(*read)(void *destination, const char *value);
    const char *environment; /* a variable with the value when the command line has none; or NULL */
    ptrdiff_t given_offset;  /* offset of a bool set when the option was given; 0 or -1: none (so
                              * that bool must not be the first member) */
    size_t given_table; /* of the first row: offset of an array with a bool for each row, set when
                         * it was given; 0: none */
    bool negatable;     /* FLAG: --no-name turns it off */
};

/* Reads argv[1..] into `destination`. With stop_at_first, the first argument that is not an option
 * ends the options (for "ddprun [options] program ..."), and *rest is its index (argc without one);
 * "--" always ends them. Without it, a stray argument is an error. DDP_ERR_INVALID: logged, with
 * the flag and what would be right. */
enum ddp_status ddp_options_parse(const struct ddp_option *table, void *destination, int argc,
                                  char *const *argv, bool stop_at_first, int *rest);

/* Sets one option by name, as ddp_options_parse() would. */
enum ddp_status ddp_options_set(const struct ddp_option *table, void *destination, const char *name,
                                const char *value);

/* Was the option given, on the command line or by ddp_options_set()? The table has a given_table.
 */
bool ddp_options_given(const struct ddp_option *table, const void *destination, const char *name);

/* Prints the table, a line or more for each row, in at most 80 columns. */
void ddp_options_help(const struct ddp_option *table, FILE *out);

#endif
