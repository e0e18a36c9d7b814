/* SPDX-License-Identifier: MIT
 *
 * For jinja*.c alone: memory that is freed at once, values, the tree of a template, and a run.
 * After a failure run->status is set and all functions return quickly. */
#ifndef DDP_DATA_TEXT_JINJA_PARTS_H
#define DDP_DATA_TEXT_JINJA_PARTS_H

#include "data/text/jinja.h"

/* --- memory ----------------------------------------------------------------------------------- */

struct ddp_jinja_arena {
    struct ddp_jinja_block *last;
    size_t bytes, most; /* taken from the system, and how many may be */
    bool full;          /* more was asked for */
};

/* Zeroed. NULL: full, or (logged) no memory. */
void *ddp_jinja_alloc(struct ddp_jinja_arena *arena, size_t bytes);
void ddp_jinja_arena_free(struct ddp_jinja_arena *arena);

/* --- the tree --------------------------------------------------------------------------------- */

enum ddp_jinja_type {
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_DICT,
    JINJA_NAMESPACE, /* a dict whose members may be set */
    JINJA_LOOP,
    JINJA_MACRO,
    JINJA_FUNCTION, /* of the environment; `text` has its name */
    JINJA_METHOD    /* `list->at[0]` is whose; `text` has its name */
};

struct jinja_string {
    const char *at;         /* UTF-8 */
    const uint16_t *owners; /* NULL: the template's */
    size_t bytes;
};

struct jinja_value {
    enum ddp_jinja_type type;
    bool tuple;               /* a list that prints as one */
    struct jinja_string text; /* a string, or a name */
    union {
        int64_t number; /* also of a bool */
        double real;
        struct jinja_list *list;
        struct jinja_dict *dict;
        struct jinja_loop *loop;
        struct jinja_macro *macro;
    };
};

struct jinja_list {
    struct jinja_value *at;
    size_t count;
};

struct jinja_dict {
    struct jinja_pair {
        struct jinja_string key;
        struct jinja_value value;
    } * at;
    size_t count, room;
};

struct jinja_loop {
    const struct jinja_list *list;
    size_t index, depth;
};

enum jinja_node_kind {
    NODE_TEXT,       /* text */
    NODE_OUTPUT,     /* a */
    NODE_IF,         /* a: condition; b, c: bodies */
    NODE_FOR,        /* items: targets; a: iterable; b: body; c: else; d: filter */
    NODE_SET,        /* items: targets; a: value, or b: body */
    NODE_MACRO,      /* text: name; items: NODE_NAMED with a default or none; b: body */
    NODE_GENERATION, /* b */
    NODE_BREAK,
    NODE_CONTINUE,
    /* expressions */
    NODE_CONSTANT,
    NODE_NAME,     /* text */
    NODE_MEMBER,   /* a . text */
    NODE_ITEM,     /* a [b] */
    NODE_SLICE,    /* a [b : c : d] */
    NODE_CALL,     /* a (items) */
    NODE_FILTER,   /* a | text (items) */
    NODE_TEST,     /* a is text (items) */
    NODE_NAMED,    /* text = a */
    NODE_SPREAD,   /* * a, in a call */
    NODE_LIST,     /* items */
    NODE_TUPLE,    /* items */
    NODE_DICT,     /* items: key, value, key, value */
    NODE_NOT,      /* a */
    NODE_NEGATIVE, /* a */
    NODE_AND,
    NODE_OR,
    NODE_IF_ELSE, /* a if b else c */
    NODE_COMPARE, /* a, then items: NODE_OPERATOR */
    NODE_OPERATOR /* op a; as an expression, a op b */
};

struct jinja_node {
    enum jinja_node_kind kind;
    int line;
    char op[4]; /* "+", "==", "in", "not" for not in, ... */
    struct jinja_string text;
    struct jinja_value constant;
    struct jinja_node *a, *b, *c, *d, *items;
    struct jinja_node *next; /* in a body or in items */
};

enum jinja_token_kind {
    TOKEN_DATA,
    TOKEN_OUTPUT, /* {{ */
    TOKEN_BLOCK,  /* {% */
    TOKEN_CLOSE,  /* }} or %} */
    TOKEN_NAME,
    TOKEN_STRING, /* strings behind each other are one */
    TOKEN_NUMBER,
    TOKEN_OPERATOR,
    TOKEN_END
};

struct jinja_token {
    enum jinja_token_kind kind;
    int line;
    struct jinja_string text;
    struct jinja_value number;
};

struct ddp_jinja {
    char *name;
    struct ddp_jinja_arena arena;
    struct jinja_token *tokens;
    size_t token_count;
    struct jinja_node *body;
};

/* Cuts a text into jinja->tokens, the last of them TOKEN_END. */
enum ddp_status ddp_jinja_lex(ddp_jinja *jinja, const char *text, size_t bytes);

/* The tokens as a tree, jinja->body. */
enum ddp_status ddp_jinja_build(ddp_jinja *jinja);

static inline bool ddp_jinja_is(struct jinja_string text, const char *what)
{
    return text.bytes == strlen(what) && memcmp(text.at, what, text.bytes) == 0;
}

/* --- a run ------------------------------------------------------------------------------------ */

/* A text that grows. */
struct jinja_builder {
    char *at;
    uint16_t *owners;
    size_t bytes, room;
};

struct jinja_run {
    const ddp_jinja *jinja;
    const char *where;
    struct ddp_jinja_arena arena;
    struct jinja_builder *out; /* of the template, or of a macro or a set */
    int line;                  /* of what is run */
    int depth, generating;
    uint64_t steps; /* that are left */
    enum ddp_status status;
};

struct jinja_args {
    struct jinja_value at[8];
    size_t count;
    struct jinja_pair named[8];
    size_t named_count;
};

void ddp_jinja_run(struct jinja_run *run, const struct jinja_dict *variables);

/* Says what is wrong, once, with the line. Returns an undefined value. */
struct jinja_value ddp_jinja_fail(struct jinja_run *run, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Counts work on so many bytes. False: the run is over. */
bool ddp_jinja_work(struct jinja_run *run, size_t bytes);

void *ddp_jinja_take(struct jinja_run *run, size_t count, size_t size); /* NULL: status is set */
void ddp_jinja_put(struct jinja_run *run, struct jinja_builder *builder, struct jinja_string text);
void ddp_jinja_puts(struct jinja_run *run, struct jinja_builder *builder, const char *text);
void ddp_jinja_put_value(struct jinja_run *run, struct jinja_builder *builder,
                         struct jinja_value value); /* str() of Python */
struct jinja_value ddp_jinja_built(const struct jinja_builder *builder);

struct jinja_value ddp_jinja_int(int64_t number);
struct jinja_value ddp_jinja_bool(bool is);
struct jinja_value ddp_jinja_string(struct jinja_string text);
struct jinja_value ddp_jinja_text(const char *text);
struct jinja_value ddp_jinja_str(struct jinja_run *run, struct jinja_value value);
struct jinja_value ddp_jinja_list(struct jinja_run *run, size_t count); /* of undefined values */
const char *ddp_jinja_type_name(struct jinja_value value);

bool ddp_jinja_true(struct jinja_value value);
bool ddp_jinja_equal(struct jinja_run *run, struct jinja_value a, struct jinja_value b);
/* Below 0, 0 or above; fails for types without an order. */
int ddp_jinja_compare(struct jinja_run *run, struct jinja_value a, struct jinja_value b);
bool ddp_jinja_contains(struct jinja_run *run, struct jinja_value in, struct jinja_value what);

/* NULL: there is none. */
struct jinja_value *ddp_jinja_find(const struct jinja_dict *dict, struct jinja_string key);
void ddp_jinja_set(struct jinja_run *run, struct jinja_dict *dict, struct jinja_string key,
                   struct jinja_value value);

/* The elements of a list, the characters of a string, the keys of a dict. */
const struct jinja_list *ddp_jinja_iterate(struct jinja_run *run, struct jinja_value value);
size_t ddp_jinja_length(struct jinja_run *run, struct jinja_value value);

/* The bytes of the character there, and of the one that ends there. */
size_t ddp_jinja_character(struct jinja_string text, size_t at);
size_t ddp_jinja_character_before(struct jinja_string text, size_t at);

/* A part of a string. */
struct jinja_string ddp_jinja_part(struct jinja_string text, size_t from, size_t to);
/* Where `what` stands in it, from a position on; SIZE_MAX: nowhere. */
size_t ddp_jinja_search(struct jinja_run *run, struct jinja_string text, size_t from,
                        struct jinja_string what);

/*   data    JSON
 *   owner   whose strings these are; 0: the template's */
struct jinja_value ddp_jinja_from_json(struct jinja_run *run, const json_t *data, uint16_t owner,
                                       const char *owned);
void ddp_jinja_put_json(struct jinja_run *run, struct jinja_builder *builder,
                        struct jinja_value value, struct jinja_args *args);

struct jinja_value ddp_jinja_slice(struct jinja_run *run, struct jinja_value of,
                                   struct jinja_value from, struct jinja_value to,
                                   struct jinja_value by);
/* a.text and a[key], undefined where there is none. */
struct jinja_value ddp_jinja_member(struct jinja_run *run, struct jinja_value of,
                                    struct jinja_string name);
struct jinja_value ddp_jinja_item(struct jinja_run *run, struct jinja_value of,
                                  struct jinja_value key);

typedef struct jinja_value jinja_function(struct jinja_run *run, struct jinja_value of,
                                          struct jinja_args *args);

struct jinja_named {
    const char *name;
    jinja_function *run;
};

/* NULL: there is none. */
jinja_function *ddp_jinja_named(const struct jinja_named *table, size_t count,
                                struct jinja_string name);
jinja_function *ddp_jinja_of_strings(struct jinja_string name, bool filter); /* or a method */
struct jinja_value ddp_jinja_lower(struct jinja_run *run, struct jinja_value of);
struct jinja_value ddp_jinja_items(struct jinja_run *run, struct jinja_value of,
                                   struct jinja_args *args);
struct jinja_value ddp_jinja_keys(struct jinja_run *run, struct jinja_value of,
                                  struct jinja_args *args);
struct jinja_value ddp_jinja_join(struct jinja_run *run, struct jinja_value of,
                                  struct jinja_args *args);

struct jinja_value ddp_jinja_filter(struct jinja_run *run, struct jinja_string name,
                                    struct jinja_value value, struct jinja_args *args);
bool ddp_jinja_test(struct jinja_run *run, struct jinja_string name, struct jinja_value value,
                    struct jinja_args *args);
struct jinja_value ddp_jinja_function(struct jinja_run *run, struct jinja_string name,
                                      struct jinja_args *args);
struct jinja_value ddp_jinja_method(struct jinja_run *run, struct jinja_string name,
                                    struct jinja_value of, struct jinja_args *args);
bool ddp_jinja_has_method(struct jinja_value of, struct jinja_string name);
static inline bool ddp_jinja_given(struct jinja_value value)
{
    return value.type != JINJA_UNDEFINED && value.type != JINJA_NONE;
}

/* The argument at that place, or of that name; undefined: not given. */
struct jinja_value ddp_jinja_arg(const struct jinja_args *args, size_t index, const char *name);
/* strip() of Python. */
struct jinja_string ddp_jinja_strip(struct jinja_string text, struct jinja_value drops, bool left,
                                    bool right);

#endif
