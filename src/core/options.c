/* SPDX-License-Identifier: MIT
 *
 * See options.h. */
#include "config.h"

#include "core/options.h"

#include "core/log.h"
#include "core/parse.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define HELP_WIDTH         80
#define HELP_NARROW        40
#define HELP_WIDE          100
#define HELP_COLUMN        26 /* where the help of an option begins */
#define HELP_COLUMN_NARROW 10 /* ... in less than HELP_WIDTH columns */

/* --- finding rows ---------------------------------------------------------------------------- */

static char folded(char c)
{
    return c == '_' ? '-' : c;
}

/* True when the first `length` bytes of `text` are the name, '-' and '_' being the same. */
static bool same_name(const char *name, const char *text, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (!name[i] || folded(name[i]) != folded(text[i]))
            return false;
    return !name[length];
}

static const struct ddp_option *find_name(const struct ddp_option *table, const char *text,
                                          size_t length)
{
    for (const struct ddp_option *row = table; row->name; row++)
        if (same_name(row->name, text, length))
            return row;
    return NULL;
}

static const struct ddp_option *named(const struct ddp_option *table, const char *name)
{
    const struct ddp_option *row = find_name(table, name, strlen(name));
    assert(row); /* a misspelt name is a fault of the program */
    return row;
}

static const struct ddp_option *find_letter(const struct ddp_option *table, char letter)
{
    for (const struct ddp_option *row = table; row->name; row++)
        if (row->letter && row->letter == letter)
            return row;
    return NULL;
}

/* The row that holds the destination: an alias leads to it. */
static const struct ddp_option *resolve(const struct ddp_option *table,
                                        const struct ddp_option *row)
{
    return row && row->alias_of ? find_name(table, row->alias_of, strlen(row->alias_of)) : row;
}

static bool takes_value(const struct ddp_option *row)
{
    return row->type != DDP_OPTION_FLAG && !(row->type == DDP_OPTION_CUSTOM && !row->argument);
}

/* The only message for an unknown option. */
static enum ddp_status unknown(const struct ddp_option *table, const char *dashes, const char *text,
                               size_t length)
{
    while (table->name)
        table++;
    return ddp_fail(DDP_ERR_INVALID, "%s%.*s: unknown option; see %s", dashes, (int)length, text,
                    table->help ? table->help : "--help");
}

/* Edit distance of two short words; large when one is too long to bother. */
static size_t distance(const char *a, const char *b, size_t b_length)
{
    enum { LONGEST = 40 };
    size_t row[LONGEST + 1], a_length = strlen(a);
    if (a_length > LONGEST || b_length > LONGEST)
        return LONGEST;
    for (size_t j = 0; j <= b_length; j++)
        row[j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t above = row[j];
            size_t change = diagonal + (folded(a[i - 1]) != folded(b[j - 1]));
            size_t step = 1 + (above < row[j - 1] ? above : row[j - 1]);
            row[j] = step < change ? step : change;
            diagonal = above;
        }
    }
    return row[b_length];
}

static enum ddp_status unknown_name(const struct ddp_option *table, const char *text, size_t length)
{
    const char *best = NULL;
    size_t least = 3; /* two slips of the finger */
    for (const struct ddp_option *row = table; row->name; row++) {
        size_t d = distance(row->name, text, length);
        if (!row->gone && !strchr(row->name, ' ') && d < least && 2 * d < length) {
            least = d;
            best = row->name;
        }
    }
    if (best)
        return ddp_fail(DDP_ERR_INVALID, "--%.*s: unknown option; did you mean --%s?", (int)length,
                        text, best);
    return unknown(table, "--", text, length);
}

/* --- values ---------------------------------------------------------------------------------- */

/* Writes "a, b or c". */
static void list_choices(const char *const *choices, char *text, size_t size)
{
    size_t used = 0;
    text[0] = 0;
    for (int i = 0; choices[i] && used < size; i++) {
        const char *between = i == 0 ? "" : choices[i + 1] ? ", " : " or ";
        int n = snprintf(text + used, size - used, "%s%s", between, choices[i]);
        used += n > 0 ? (size_t)n : 0;
    }
}

static enum ddp_status set_choice(const struct ddp_option *row, int *choice, const char *value,
                                  const char *shown)
{
    char list[256];
    for (int i = 0; row->choices[i]; i++)
        if (strcmp(row->choices[i], value) == 0) {
            *choice = i;
            return DDP_OK;
        }
    list_choices(row->choices, list, sizeof list);
    return ddp_fail(DDP_ERR_INVALID, "%s: must be %s", shown, list);
}

/* Sets a member by its row.
 *   value  NULL for a row without one
 *   shown  how the user wrote it */
static enum ddp_status set_value(const struct ddp_option *row, void *destination, bool on,
                                 const char *value, const char *shown)
{
    void *member = (char *)destination + row->offset;
    const char *wrong;
    switch (row->type) {
    case DDP_OPTION_FLAG:
        *(bool *)member = on;
        return DDP_OK;
    case DDP_OPTION_INT:
        if (ddp_parse_int64(value, (int64_t)row->min, (int64_t)row->max, member))
            return DDP_OK;
        return ddp_fail(DDP_ERR_INVALID, "%s: must be a whole number from %.0f to %.0f", shown,
                        row->min, row->max);
    case DDP_OPTION_UINT:
        if (ddp_parse_uint64(value, member))
            return DDP_OK;
        return ddp_fail(DDP_ERR_INVALID, "%s: must be a whole number from 0 to %" PRIu64, shown,
                        UINT64_MAX);
    case DDP_OPTION_REAL:
        if (ddp_parse_double(value, row->min, row->max, member))
            return DDP_OK;
        return ddp_fail(DDP_ERR_INVALID, "%s: must be a number from %g to %g", shown, row->min,
                        row->max);
    case DDP_OPTION_CHOICE:
        return set_choice(row, member, value, shown);
    case DDP_OPTION_TEXT:
        if (!*value)
            return ddp_fail(DDP_ERR_INVALID, "%s: must not be empty", shown);
        *(const char **)member = value;
        return DDP_OK;
    case DDP_OPTION_CUSTOM:
        wrong = row->read(member, value);
        return wrong ? ddp_fail(DDP_ERR_INVALID, "%s: %s", shown, wrong) : DDP_OK;
    }
    return DDP_OK;
}

/* What one parse needs to know. */
struct parse {
    const struct ddp_option *table;
    void *destination;
    int argc;
    char *const *argv;
    int next; /* index of the argument after the one being read */
    struct ddp_options_given *given;
};

static bool is_given(const struct ddp_option *table, const struct ddp_options_given *given,
                     const struct ddp_option *row)
{
    const size_t index = (size_t)(row - table);
    return given->rows[index / 64] >> index % 64 & 1;
}

/* value: NULL for a flag */
static void mark_given(const struct parse *parse, const struct ddp_option *row, bool on,
                       const char *value)
{
    const size_t index = (size_t)(row - parse->table);
    assert(index < DDP_OPTIONS);
    parse->given->rows[index / 64] |= UINT64_C(1) << index % 64;
    parse->given->values[index] = value || on ? value : "";
}

/* What a row after `row` is called as a part of it; NULL: it is none. */
static const char *part_name(const struct ddp_option *row, const struct ddp_option *part)
{
    const size_t name = strlen(row->name), dots = strlen(DDP_OPTION_PART);
    return part->name && strncmp(part->name, row->name, name) == 0 &&
                   strncmp(part->name + name, DDP_OPTION_PART, dots) == 0
               ? part->name + name + dots
               : NULL;
}

static size_t member_size(const struct ddp_option *part)
{
    return part->type == DDP_OPTION_FLAG                                        ? sizeof(bool)
           : part->type == DDP_OPTION_CHOICE || part->type == DDP_OPTION_CUSTOM ? sizeof(int)
                                                                                : sizeof(int64_t);
}

/* The row is given again: its parts become what they were before. */
static void undo_parts(const struct parse *parse, const struct ddp_option *row)
{
    for (const struct ddp_option *part = row + 1; part_name(row, part); part++)
        if (is_given(parse->table, parse->given, part)) {
            memcpy((char *)parse->destination + part->offset,
                   &parse->given->before[part - parse->table], member_size(part));
            ddp_options_forget(parse->table, parse->given, part->name);
        }
}

static enum ddp_status set_part(const struct parse *parse, const struct ddp_option *row, char *word,
                                const char *shown)
{
    char at[320];
    const size_t length = strcspn(word, "=");
    const struct ddp_option *part = row + 1;
    const char *name;
    while ((name = part_name(row, part)) && !same_name(name, word, length))
        part++;
    if (!name || takes_value(part) != (word[length] == '='))
        return ddp_fail(DDP_ERR_INVALID, "%s: \"%s\" is unknown: --%s takes %s; see --help all",
                        shown, word, row->name, row->argument);
    snprintf(at, sizeof at, "--%s" DDP_OPTION_PART "%s", row->name, word);
    if (!is_given(parse->table, parse->given, part))
        memcpy(&parse->given->before[part - parse->table],
               (char *)parse->destination + part->offset, member_size(part));
    enum ddp_status status =
        set_value(part, parse->destination, true, word + length + takes_value(part), at);
    if (status == DDP_OK)
        mark_given(parse, part, true, NULL);
    return status;
}

/* Sets a row, and its parts. */
static enum ddp_status set_parts(const struct parse *parse, const struct ddp_option *row, bool on,
                                 const char *value, const char *shown)
{
    const char *const given = value;
    char text[256];
    const bool parted = value && part_name(row, row + 1);
    if (parted && snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
        return ddp_fail(DDP_ERR_INVALID, "%s: is too long", shown);
    char *rest = text;
    if (parted) {
        value = strsep(&rest, ",");
        undo_parts(parse, row);
    }
    enum ddp_status status = set_value(row, parse->destination, on, value, shown);
    if (status == DDP_OK)
        mark_given(parse, row, on, given);
    for (char *word; parted && status == DDP_OK && (word = strsep(&rest, ","));)
        status = set_part(parse, row, word, shown);
    return status;
}

/* `value` is what came with the option itself, or NULL: then the next argument is taken if one is
 * needed. `name` is the option as the user wrote it, with its dashes. */
static enum ddp_status apply(struct parse *parse, const struct ddp_option *row, bool on,
                             const char *name, int name_length, const char *value)
{
    char shown[256];
    const bool wanted = takes_value(row);
    if (row->gone)
        return ddp_fail(DDP_ERR_INVALID, "%.*s was removed: %s", name_length, name, row->gone);
    if (!wanted && value)
        return ddp_fail(DDP_ERR_INVALID, "%.*s: takes no value", name_length, name);
    if (wanted && !value && parse->next < parse->argc)
        value = parse->argv[parse->next++];
    if (wanted && !value)
        return ddp_fail(DDP_ERR_INVALID, "%.*s: needs a value, %s", name_length, name,
                        row->argument);
    snprintf(shown, sizeof shown, "%.*s%s%s", name_length, name, wanted ? " " : "",
             wanted && !*value ? "''"
             : wanted          ? value
                               : "");
    return set_parts(parse, row, on, value, shown);
}

static enum ddp_status parse_long(struct parse *parse, const char *arg)
{
    const char *text = arg + 2, *equals = strchr(text, '=');
    size_t length = equals ? (size_t)(equals - text) : strlen(text);
    const char *value = equals ? equals + 1 : NULL;
    const struct ddp_option *row = resolve(parse->table, find_name(parse->table, text, length));
    if (row)
        return apply(parse, row, true, arg, (int)length + 2, value);
    if (length > 3 && same_name("no-", text, 3))
        row = resolve(parse->table, find_name(parse->table, text + 3, length - 3));
    if (!row || (!row->gone && (row->type != DDP_OPTION_FLAG || !row->negatable)))
        return unknown_name(parse->table, text, length);
    return apply(parse, row, false, arg, (int)length + 2, value);
}

/* -x value, -xvalue, -abc for flags. */
static enum ddp_status parse_letters(struct parse *parse, const char *arg)
{
    for (const char *letter = arg + 1; *letter; letter++) {
        char name[3] = {'-', *letter, 0};
        const struct ddp_option *row = resolve(parse->table, find_letter(parse->table, *letter));
        if (!row)
            return unknown(parse->table, "-", letter, 1);
        bool with_value = takes_value(row);
        const char *value = with_value && letter[1] ? letter + 1 : NULL;
        enum ddp_status status = apply(parse, row, true, name, 2, value);
        if (status != DDP_OK || with_value)
            return status;
    }
    return DDP_OK;
}

static bool read_switch(const char *value, bool *on)
{
    static const char *const words[] = {"0", "1", "no", "yes", "false", "true", "off", "on"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(value, words[i]) == 0) {
            *on = i % 2 == 1;
            return true;
        }
    return false;
}

static enum ddp_status apply_environment(const struct parse *parse, const struct ddp_option *row)
{
    const char *value = getenv(row->environment);
    const bool wanted = takes_value(row);
    char shown[256];
    bool on = true;
    if (!value || !*value)
        return DDP_OK;
    snprintf(shown, sizeof shown, "%s=%s", row->environment, value);
    if (!wanted && !read_switch(value, &on))
        return ddp_fail(DDP_ERR_INVALID, "%s: must be 1 or 0", shown);
    if (!on && row->type == DDP_OPTION_CUSTOM)
        return DDP_OK;
    return set_parts(parse, row, on, wanted ? value : NULL, shown);
}

static enum ddp_status parse_arguments(struct parse *parse, bool stop_at_first, int *rest)
{
    while (parse->next < parse->argc) {
        const char *arg = parse->argv[parse->next];
        bool end = strcmp(arg, "--") == 0;
        if (end || arg[0] != '-' || !arg[1]) {
            parse->next += end;
            if (!stop_at_first && parse->next < parse->argc)
                return ddp_fail(DDP_ERR_INVALID,
                                "%s: unexpected argument; options start with --, and a "
                                "pattern such as '*.txt' needs quotes",
                                parse->argv[parse->next]);
            break;
        }
        parse->next++;
        enum ddp_status status = arg[1] == '-' ? parse_long(parse, arg) : parse_letters(parse, arg);
        if (status != DDP_OK)
            return status;
    }
    if (rest)
        *rest = parse->next;
    return DDP_OK;
}

enum ddp_status ddp_options_parse(const struct ddp_option *table, void *destination,
                                  struct ddp_options_given *given, int argc, char *const *argv,
                                  bool stop_at_first, int *rest)
{
    struct parse parse = {.table = table,
                          .destination = destination,
                          .argc = argc,
                          .argv = argv,
                          .next = argc < 1 ? argc : 1,
                          .given = given};
    enum ddp_status status = parse_arguments(&parse, stop_at_first, rest);
    for (const struct ddp_option *row = table; row->name && status == DDP_OK; row++)
        if (row->environment && !is_given(table, given, row))
            status = apply_environment(&parse, row);
    return status;
}

const struct ddp_option *ddp_options_find(const struct ddp_option *table, const char *name)
{
    return strchr(name, ' ') ? NULL : resolve(table, find_name(table, name, strlen(name)));
}

enum ddp_status ddp_options_set(const struct ddp_option *table, void *destination,
                                struct ddp_options_given *given, const char *name,
                                const char *value)
{
    char shown[256];
    const struct ddp_option *row = ddp_options_find(table, name);
    struct parse parse = {.table = table, .destination = destination, .given = given};
    if (!row)
        return unknown_name(table, name, strlen(name));
    snprintf(shown, sizeof shown, "--%s", name);
    return apply(&parse, row, true, shown, (int)strlen(shown), value);
}

bool ddp_options_given(const struct ddp_option *table, const struct ddp_options_given *given,
                       const char *name)
{
    return is_given(table, given, named(table, name));
}

const struct ddp_option *ddp_options_given_of(const struct ddp_option *table,
                                              const struct ddp_options_given *given, unsigned scope)
{
    for (const struct ddp_option *row = table; row->name; row++)
        if (row->scope & scope && is_given(table, given, row))
            return row;
    return NULL;
}

/* Of the rows that are named, with '|' between, the first that was given. */
static const struct ddp_option *first_given(const struct ddp_option *table,
                                            const struct ddp_options_given *given,
                                            const char *names)
{
    while (*names) {
        const size_t length = strcspn(names, "|");
        const struct ddp_option *row = find_name(table, names, length);
        assert(row);
        if (is_given(table, given, row))
            return row;
        names += length + strspn(names + length, "|");
    }
    return NULL;
}

enum ddp_status ddp_options_check(const struct ddp_option *table,
                                  const struct ddp_options_given *given)
{
    for (const struct ddp_option *row = table; row->name; row++) {
        if (!is_given(table, given, row))
            continue;
        const struct ddp_option *other =
            row->excludes ? first_given(table, given, row->excludes) : NULL;
        if (other)
            return ddp_fail(DDP_ERR_INVALID, "--%s and --%s exclude each other: give one",
                            row->name, other->name);
        if (row->needs && !first_given(table, given, row->needs))
            return ddp_fail(DDP_ERR_INVALID, "--%s needs --%s %s", row->name, row->needs,
                            find_name(table, row->needs, strlen(row->needs))->argument);
    }
    return DDP_OK;
}

void ddp_options_forget(const struct ddp_option *table, struct ddp_options_given *given,
                        const char *name)
{
    const size_t index = (size_t)(named(table, name) - table);
    given->rows[index / 64] &= ~(UINT64_C(1) << index % 64);
}

void ddp_options_mark(const struct ddp_option *table, struct ddp_options_given *given,
                      const char *name)
{
    const struct parse parse = {.table = table, .given = given};
    mark_given(&parse, named(table, name), true, NULL);
}

bool ddp_option_list(const char *value, const char *between, int most, int64_t min, int64_t max,
                     bool rising, int64_t *numbers, int *count)
{
    char text[512];
    if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
        return false;
    *count = 0;
    for (char *rest = text, *word; (word = strsep(&rest, between));) {
        const int64_t least = rising && *count > 0 ? numbers[*count - 1] + 1 : min;
        if (*count == most || !ddp_parse_int64(word, least, max, &numbers[*count]))
            return false;
        (*count)++;
    }
    return true;
}

/* --- help ------------------------------------------------------------------------------------ */

/* Columns of a line. */
static int help_width(FILE *out)
{
    struct winsize size;
    int64_t width = HELP_WIDTH;
    if (!ddp_parse_int64(getenv("COLUMNS"), 1, INT32_MAX, &width) && isatty(fileno(out)) &&
        ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
        width = size.ws_col;
    return (int)(width < HELP_NARROW ? HELP_NARROW : width > HELP_WIDE ? HELP_WIDE : width);
}

/* Prints words from `column` on, wrapped and indented. */
static void print_wrapped(FILE *out, const char *text, int column, int width)
{
    int at = column;
    while (*text) {
        int word = (int)strcspn(text, " ");
        if (at > column && at + 1 + word > width) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        }
        at += fprintf(out, "%s%.*s", at > column ? " " : "", word, text);
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* What is to be typed, and beside or below it what it does. */
static void print_row(FILE *out, const char *words, const char *help, int width)
{
    const int column = width < HELP_WIDTH ? HELP_COLUMN_NARROW : HELP_COLUMN;
    int used = fprintf(out, "%s", words);
    const bool wide = used > column - 2;
    fprintf(out, "%s%*s", wide ? "\n" : "", wide ? column : column - used, "");
    print_wrapped(out, help, column, width);
}

static void option_words(const struct ddp_option *row, char *text, size_t size)
{
    const char *argument = takes_value(row) ? row->argument : "", *space = *argument ? " " : "";
    snprintf(text, size, "  %c%c%s--%s%s%s%s", row->letter ? '-' : ' ',
             row->letter ? row->letter : ' ', row->letter ? ", " : "  ",
             row->negatable ? "[no-]" : "", row->name, space, argument);
}

void ddp_options_help(const struct ddp_option *table, FILE *out)
{
    char words[256];
    const int width = help_width(out);
    for (const struct ddp_option *row = table; row->name; row++) {
        if (row->section)
            fprintf(out, "%s%s:\n", row == table ? "" : "\n", row->section);
        if (!row->help || row->alias_of)
            continue;
        option_words(row, words, sizeof words);
        print_row(out, words, row->help, width);
    }
}

/* Without what stands in parentheses. */
static void leave_out_asides(const char *help, char *text, size_t size)
{
    size_t used = 0;
    for (int inside = 0; *help && used + 1 < size; help++) {
        inside += *help == '(';
        if (inside == 0 && !(*help == ' ' && help[1] == '('))
            text[used++] = *help;
        inside -= *help == ')';
    }
    text[used] = '\0';
}

void ddp_options_help_short(const struct ddp_option *table, FILE *out)
{
    char words[256], help[512];
    const int width = help_width(out);
    for (const struct ddp_option *row = table; row->name; row++)
        if (row->example) {
            snprintf(words, sizeof words, "  %s", row->example);
            leave_out_asides(row->help, help, sizeof help);
            print_row(out, words, help, width);
        }
}
