/* SPDX-License-Identifier: MIT
 *
 * Command lines from one table: parsing, ranges, --help. In long names '-' and '_' are the same.
 *   values  --name value, --name=value, -x value, -xvalue
 *   flags   --name, -x, and --no-name where the row allows it
 *   parts   --name value,word=value or --name value,word: the row of the word follows that of the
 *           name and is called "name ...,word". A member of CUSTOM begins with an int, 0 unless
 *           given. What is given again replaces all parts.
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
    const char *name; /* "batch-size"; NULL ends the table, and help says what prints it, if that is
                         not --help */
    char letter;      /* 'n', or 0 */
    enum ddp_option_type type;
    size_t offset;   /* of the member in the destination struct */
    double min, max; /* INT (exact up to 2^53), REAL */
    const char *const *choices;
    const char *argument; /* what --help calls the value: "N" */
    const char *help;     /* one sentence, no full stop; NULL: not in --help */
    const char *example;  /* "--batch-size 32": the short help shows the row; NULL: it does not */
    const char *section;  /* starts a new section in --help; NULL: the same section */
    const char *gone;     /* an option of earlier versions: what to use now; the rest is unused */
    const char *alias_of; /* the name of the row that this is another spelling of; the rest is
                             unused then */
    /* CUSTOM (value is NULL for a flag-like use: argument == NULL). Gets what stands at the offset,
     * which is the whole destination where none is given. Returns NULL, or what is wrong with the
     * value, as a phrase after "--name VALUE: ". */
    const char *(*read)(void *member, const char *value);
    const char *environment; /* a variable with the value when the command line has none; or NULL */
    bool negatable;          /* FLAG: --no-name turns it off */
    const char *needs;       /* the name of another row that must be given too; NULL: none */
    const char *excludes;    /* names of rows that must not, separated by '|'; NULL: none */
    unsigned scope;          /* bits that mean something to the table's owner */
};

/* Parts of a row, beside its help. The file with the table defines OPTION_STRUCT, the type
 * of its destination; a member whose type is not the row's is a compile error. */
#define OPTION_AT(member, type)                                                                    \
    offsetof(OPTION_STRUCT, member) + 0 * sizeof(&((OPTION_STRUCT *)0)->member == (type *)0)
#define OPTION_SECTION(title) .section = title
#define OPTION_FLAG(title, member)                                                                 \
    .name = title, .type = DDP_OPTION_FLAG, .offset = OPTION_AT(member, bool)
#define OPTION_NEGATABLE(title, member) OPTION_FLAG(title, member), .negatable = true
#define OPTION_INT(title, member, low, high, word)                                                 \
    .name = title, .type = DDP_OPTION_INT, .offset = OPTION_AT(member, int64_t),                   \
    .min = (double)(low), .max = (double)(high), .argument = word
#define OPTION_UINT(title, member, word)                                                           \
    .name = title, .type = DDP_OPTION_UINT, .offset = OPTION_AT(member, uint64_t), .argument = word
#define OPTION_REAL(title, member, low, high, word)                                                \
    .name = title, .type = DDP_OPTION_REAL, .offset = OPTION_AT(member, double), .min = low,       \
    .max = high, .argument = word
#define OPTION_TEXT(title, member, word)                                                           \
    .name = title, .type = DDP_OPTION_TEXT, .offset = OPTION_AT(member, const char *),             \
    .argument = word
#define OPTION_CHOICE(title, member, words, word)                                                  \
    .name = title, .type = DDP_OPTION_CHOICE, .offset = OPTION_AT(member, int), .choices = words,  \
    .argument = word
#define OPTION_CUSTOM(title, reader, word)                                                         \
    .name = title, .type = DDP_OPTION_CUSTOM, .read = reader, .argument = word
#define OPTION_GONE(title, instead)                                                                \
    {                                                                                              \
        .name = title, .gone = instead                                                             \
    }
#define OPTION_CUSTOM_AT(title, member, reader, word)                                              \
    OPTION_CUSTOM(title, reader, word), .offset = offsetof(OPTION_STRUCT, member)

#define DDP_OPTIONS 192 /* rows of a table, at most */

#define DDP_OPTION_PART " ...," /* in the name of a part, after that of its row */

/* Which rows of a table were given, on the command line, in the environment or by
 * ddp_options_set(). Begins as zeros. */
struct ddp_options_given {
    uint64_t rows[DDP_OPTIONS / 64];
    const char *values[DDP_OPTIONS]; /* as they were given; of flags: NULL if on, "" if
                                         off; of parts: NULL */
    uint64_t before[DDP_OPTIONS];    /* of parts: what the member held before */
};

/* Reads argv[1..] into `destination`. With stop_at_first, the first argument that is not an option
 * ends the options (for "ddprun [options] program ..."), and *rest is its index (argc without one);
 * "--" always ends them. Without it, a stray argument is an error. DDP_ERR_INVALID: logged, with
 * the flag and what would be right.
 *   given  [in,out]  what was given before and is given now */
enum ddp_status ddp_options_parse(const struct ddp_option *table, void *destination,
                                  struct ddp_options_given *given, int argc, char *const *argv,
                                  bool stop_at_first, int *rest);

/* Sets one option by name, as ddp_options_parse() would. */
enum ddp_status ddp_options_set(const struct ddp_option *table, void *destination,
                                struct ddp_options_given *given, const char *name,
                                const char *value);

/* The row of that name, no part of another; it may be one that is gone. NULL: there is none. */
const struct ddp_option *ddp_options_find(const struct ddp_option *table, const char *name);

/* Whether the option of this name, which the table has, was given. */
bool ddp_options_given(const struct ddp_option *table, const struct ddp_options_given *given,
                       const char *name);

/* The first row in the table that was given and has one of these bits of scope; NULL: none. */
const struct ddp_option *ddp_options_given_of(const struct ddp_option *table,
                                              const struct ddp_options_given *given,
                                              unsigned scope);

/* Checks that the given rows have what they need, and nothing that they exclude. DDP_ERR_INVALID:
 * logged. */
enum ddp_status ddp_options_check(const struct ddp_option *table,
                                  const struct ddp_options_given *given);

/* As if the option had not been given, or had. Its value stays. */
void ddp_options_forget(const struct ddp_option *table, struct ddp_options_given *given,
                        const char *name);
void ddp_options_mark(const struct ddp_option *table, struct ddp_options_given *given,
                      const char *name);

/* Reads "5,3,8", at most `most` numbers from min to max; false: it is something else.
 *   between  what separates them
 *   rising  each is above the one before
 *   count [out]  how many there are */
bool ddp_option_list(const char *value, const char *between, int most, int64_t min, int64_t max,
                     bool rising, int64_t *numbers, int *count);

/* Prints the table, a line or more for each row. Lines are as long as COLUMNS or the terminal
 * allows, from 40 to 100 columns, otherwise 80. */
void ddp_options_help(const struct ddp_option *table, FILE *out);

/* The same for the rows with an example, which precedes the help, without its asides. */
void ddp_options_help_short(const struct ddp_option *table, FILE *out);

#endif
