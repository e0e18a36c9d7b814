/* SPDX-License-Identifier: MIT
 *
 * See jinja.h: tokens to a tree. */
#include "config.h"

#include "data/text/jinja_parts.h"

#define DEEPEST 100 /* expressions and bodies inside each other */

struct parser {
    ddp_jinja *jinja;
    const struct jinja_token *at;
    int depth, loops;
    enum ddp_status status;
    struct jinja_node nothing; /* what is returned after a failure */
};

static struct jinja_node *condition(struct parser *p);
static struct jinja_node *body(struct parser *p, const char *const *ends);

static struct jinja_node *fail_with(struct parser *p, enum ddp_status status, const char *what)
{
    if (p->status == DDP_OK)
        p->status = ddp_fail(status, "%s: the chat template, line %d: %s at \"%.*s\"",
                             p->jinja->name, p->at->line, what,
                             p->at->text.bytes < 40 ? (int)p->at->text.bytes : 40, p->at->text.at);
    return &p->nothing;
}

static struct jinja_node *fail(struct parser *p, const char *what)
{
    return fail_with(p, DDP_ERR_FORMAT, what);
}

static struct jinja_node *make(struct parser *p, enum jinja_node_kind kind, struct jinja_node *a,
                               struct jinja_node *b)
{
    struct jinja_node *node =
        p->status == DDP_OK ? ddp_jinja_alloc(&p->jinja->arena, sizeof *node) : NULL;
    if (!node) {
        p->status = p->status == DDP_OK ? DDP_ERR_MEMORY : p->status;
        return &p->nothing;
    }
    *node = (struct jinja_node){.kind = kind, .line = p->at->line, .a = a, .b = b};
    return node;
}

static struct jinja_node *operation(struct parser *p, const char *op, struct jinja_node *a,
                                    struct jinja_node *b)
{
    struct jinja_node *node = make(p, NODE_OPERATOR, a, b);
    snprintf(node->op, sizeof node->op, "%s", op);
    return node;
}

/* --- tokens ----------------------------------------------------------------------------------- */

/* After a failure there is nothing but the end. */
static bool sees(const struct parser *p, enum jinja_token_kind kind, const char *text)
{
    return p->status == DDP_OK && p->at->kind == kind && (!text || ddp_jinja_is(p->at->text, text));
}

static bool sees_op(const struct parser *p, const char *text)
{
    return sees(p, TOKEN_OPERATOR, text);
}

static bool sees_word(const struct parser *p, const char *text)
{
    return sees(p, TOKEN_NAME, text);
}

static void skip(struct parser *p)
{
    p->at += p->at->kind != TOKEN_END;
}

static bool take(struct parser *p, enum jinja_token_kind kind, const char *text)
{
    const bool is = sees(p, kind, text);
    if (is)
        skip(p);
    return is;
}

static bool take_op(struct parser *p, const char *text)
{
    return take(p, TOKEN_OPERATOR, text);
}

static bool take_word(struct parser *p, const char *text)
{
    return take(p, TOKEN_NAME, text);
}

static void need_op(struct parser *p, const char *text)
{
    char what[32];
    snprintf(what, sizeof what, "%s is missing", text);
    if (!take_op(p, text))
        (void)fail(p, what);
}

static struct jinja_string need_name(struct parser *p)
{
    const struct jinja_string text = p->at->text;
    if (!take(p, TOKEN_NAME, NULL))
        (void)fail(p, "a name is missing");
    return text;
}

static bool deeper(struct parser *p)
{
    if (++p->depth > DEEPEST)
        (void)fail(p, "more than 100 things inside each other");
    return p->status == DDP_OK;
}

/* --- expressions ------------------------------------------------------------------------------ */

/* Arguments until ): also name = value and * list. */
static struct jinja_node *arguments(struct parser *p)
{
    struct jinja_node *first = NULL, **last = &first;
    while (p->status == DDP_OK && !take_op(p, ")")) {
        if (first)
            need_op(p, ",");
        if (first && take_op(p, ")"))
            break;
        const struct jinja_token *token = p->at;
        const bool named = sees(p, TOKEN_NAME, NULL) && token[1].kind == TOKEN_OPERATOR &&
                           ddp_jinja_is(token[1].text, "=");
        if (named)
            p->at += 2;
        const bool spread = take_op(p, "*");
        struct jinja_node *value = condition(p);
        if (spread)
            value = make(p, NODE_SPREAD, value, NULL);
        if (named) {
            value = make(p, NODE_NAMED, value, NULL);
            value->text = token->text;
        }
        *last = value;
        last = &value->next;
    }
    return first;
}

/* Values between commas, until a closing bracket that has been opened. */
static struct jinja_node *values(struct parser *p, const char *close, bool pairs)
{
    struct jinja_node *first = NULL, **last = &first;
    while (p->status == DDP_OK && !take_op(p, close)) {
        if (first)
            need_op(p, ",");
        if (first && take_op(p, close))
            break;
        *last = condition(p);
        last = &(*last)->next;
        if (pairs) {
            need_op(p, ":");
            *last = condition(p);
            last = &(*last)->next;
        }
    }
    return first;
}

/* An expression, or several with commas: a tuple. */
static struct jinja_node *tuple(struct parser *p, const char *close)
{
    struct jinja_node *first = condition(p), **last = &first->next;
    if (!sees_op(p, ","))
        return first;
    while (take_op(p, ",")) {
        if ((close && sees_op(p, close)) || sees(p, TOKEN_CLOSE, NULL))
            break;
        *last = condition(p);
        last = &(*last)->next;
    }
    struct jinja_node *node = make(p, NODE_TUPLE, NULL, NULL);
    node->items = first;
    return node;
}

static struct jinja_node *constant(struct parser *p, struct jinja_value value)
{
    struct jinja_node *node = make(p, NODE_CONSTANT, NULL, NULL);
    node->constant = value;
    return node;
}

static struct jinja_node *primary(struct parser *p)
{
    struct jinja_node *node;
    if (sees(p, TOKEN_STRING, NULL) || sees(p, TOKEN_NUMBER, NULL)) {
        node = constant(p, p->at->kind == TOKEN_STRING ? ddp_jinja_string(p->at->text)
                                                       : p->at->number);
        skip(p);
        return node;
    }
    if (take_word(p, "true") || take_word(p, "True"))
        return constant(p, ddp_jinja_bool(true));
    if (take_word(p, "false") || take_word(p, "False"))
        return constant(p, ddp_jinja_bool(false));
    if (take_word(p, "none") || take_word(p, "None"))
        return constant(p, (struct jinja_value){.type = JINJA_NONE});
    if (sees(p, TOKEN_NAME, NULL)) {
        node = make(p, NODE_NAME, NULL, NULL);
        node->text = need_name(p);
        return node;
    }
    if (take_op(p, "(")) {
        if (take_op(p, ")"))
            return make(p, NODE_TUPLE, NULL, NULL);
        node = tuple(p, ")");
        need_op(p, ")");
        return node;
    }
    if (take_op(p, "[")) {
        node = make(p, NODE_LIST, NULL, NULL);
        node->items = values(p, "]", false);
        return node;
    }
    if (take_op(p, "{")) {
        node = make(p, NODE_DICT, NULL, NULL);
        node->items = values(p, "}", true);
        return node;
    }
    return fail(p, "a value is missing");
}

static struct jinja_node *subscript(struct parser *p, struct jinja_node *of)
{
    struct jinja_node *parts[3] = {NULL};
    int count = 0;
    for (;;) {
        if (!sees_op(p, ":") && !sees_op(p, "]"))
            parts[count] = condition(p);
        if (count == 2 || !take_op(p, ":"))
            break;
        count++;
    }
    struct jinja_node *node = make(p, count > 0 ? NODE_SLICE : NODE_ITEM, of, parts[0]);
    if (count == 0 && !parts[0])
        return fail(p, "an index is missing");
    need_op(p, "]");
    node->c = parts[1];
    node->d = parts[2];
    return node;
}

static struct jinja_node *postfix(struct parser *p, struct jinja_node *node)
{
    while (p->status == DDP_OK) {
        struct jinja_node *of = node;
        if (take_op(p, ".")) {
            node = make(p, NODE_MEMBER, of, NULL);
            node->text = need_name(p);
        } else if (take_op(p, "[")) {
            node = subscript(p, of);
        } else if (take_op(p, "(")) {
            node = make(p, NODE_CALL, of, NULL);
            node->items = arguments(p);
        } else {
            break;
        }
    }
    return node;
}

/* Does a test have an argument without brackets, as in "is divisibleby 3"? */
static bool sees_test_argument(const struct parser *p)
{
    static const char *const others[] = {"else", "or", "and", "is", "if", "in", "not"};
    if (!sees(p, TOKEN_NAME, NULL))
        return sees(p, TOKEN_STRING, NULL) || sees(p, TOKEN_NUMBER, NULL) || sees_op(p, "[") ||
               sees_op(p, "{");
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sees_word(p, others[i]))
            return false;
    return true;
}

/* A filter or a test. */
static struct jinja_node *applied(struct parser *p, enum jinja_node_kind kind,
                                  struct jinja_node *of)
{
    const bool negated = kind == NODE_TEST && take_word(p, "not");
    struct jinja_node *node = make(p, kind, of, NULL);
    node->text = need_name(p);
    if (take_op(p, "("))
        node->items = arguments(p);
    else if (kind == NODE_TEST && sees_test_argument(p))
        node->items = postfix(p, primary(p));
    return negated ? make(p, NODE_NOT, node, NULL) : node;
}

static struct jinja_node *unary(struct parser *p, bool with_filter)
{
    struct jinja_node *node = &p->nothing;
    if (!deeper(p))
        return node;
    if (take_op(p, "-"))
        node = make(p, NODE_NEGATIVE, unary(p, false), NULL);
    else if (take_op(p, "+"))
        node = unary(p, false);
    else
        node = primary(p);
    node = postfix(p, node);
    while (with_filter && p->status == DDP_OK) {
        if (take_op(p, "|"))
            node = applied(p, NODE_FILTER, node);
        else if (take_word(p, "is"))
            node = applied(p, NODE_TEST, node);
        else if (take_op(p, "(")) {
            node = make(p, NODE_CALL, node, NULL);
            node->items = arguments(p);
        } else
            break;
    }
    p->depth--;
    return node;
}

/* Operators that bind alike, from those that bind least. */
static const char *const binary[][5] = {{"+", "-"}, {"~"}, {"*", "/", "//", "%"}};
#define LEVELS (sizeof binary / sizeof *binary)

static struct jinja_node *sums(struct parser *p, size_t level)
{
    if (level == LEVELS)
        return unary(p, true);
    struct jinja_node *node = sums(p, level + 1);
    for (size_t i = 0; p->status == DDP_OK && i < 5 && binary[level][i]; i++)
        if (take_op(p, binary[level][i])) {
            node = operation(p, binary[level][i], node, sums(p, level + 1));
            i = SIZE_MAX; /* from the first again */
        }
    return node;
}

static const char *compare_op(struct parser *p)
{
    static const char *const ops[] = {"==", "!=", "<=", ">=", "<", ">"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if (take_op(p, ops[i]))
            return ops[i];
    if (take_word(p, "in"))
        return "in";
    if (sees_word(p, "not") && p->at[1].kind == TOKEN_NAME && ddp_jinja_is(p->at[1].text, "in")) {
        p->at += 2;
        return "not";
    }
    return NULL;
}

static struct jinja_node *comparison(struct parser *p)
{
    struct jinja_node *first = sums(p, 0), *node = NULL, **last = NULL;
    for (const char *op; (op = compare_op(p));) {
        if (!node) {
            node = make(p, NODE_COMPARE, first, NULL);
            last = &node->items;
        }
        *last = operation(p, op, sums(p, 0), NULL);
        last = &(*last)->next;
    }
    return node ? node : first;
}

static struct jinja_node *negation(struct parser *p)
{
    if (!take_word(p, "not"))
        return comparison(p);
    struct jinja_node *node = deeper(p) ? negation(p) : &p->nothing;
    p->depth--;
    return make(p, NODE_NOT, node, NULL);
}

static struct jinja_node *both(struct parser *p)
{
    struct jinja_node *node = negation(p);
    while (take_word(p, "and"))
        node = make(p, NODE_AND, node, negation(p));
    return node;
}

static struct jinja_node *either(struct parser *p)
{
    struct jinja_node *node = both(p);
    while (take_word(p, "or"))
        node = make(p, NODE_OR, node, both(p));
    return node;
}

static struct jinja_node *condition(struct parser *p)
{
    struct jinja_node *node = &p->nothing;
    if (!deeper(p))
        return node;
    node = either(p);
    while (take_word(p, "if")) {
        node = make(p, NODE_IF_ELSE, node, either(p));
        node->c = take_word(p, "else") ? condition(p) : NULL;
    }
    p->depth--;
    return node;
}

/* --- statements ------------------------------------------------------------------------------- */

static void close_tag(struct parser *p)
{
    if (!take(p, TOKEN_CLOSE, NULL))
        (void)fail(p, "something that should not stand there");
}

/* Names, or members of a namespace, between commas. */
static struct jinja_node *targets(struct parser *p)
{
    struct jinja_node *first = NULL, **last = &first;
    const bool brackets = take_op(p, "(");
    do {
        struct jinja_node *node = make(p, NODE_NAME, NULL, NULL);
        node->text = need_name(p);
        if (take_op(p, ".")) {
            node = make(p, NODE_MEMBER, node, NULL);
            node->text = need_name(p);
        }
        *last = node;
        last = &node->next;
    } while (p->status == DDP_OK && take_op(p, ","));
    if (brackets)
        need_op(p, ")");
    return first;
}

static struct jinja_node *parse_for(struct parser *p)
{
    static const char *const ends[] = {"else", "endfor", NULL}, *const end[] = {"endfor", NULL};
    struct jinja_node *node = make(p, NODE_FOR, NULL, NULL);
    node->items = targets(p);
    if (!take_word(p, "in"))
        return fail(p, "in is missing");
    node->a = either(p); /* an if behind it filters */
    if (take_word(p, "if"))
        node->d = condition(p);
    if (sees_word(p, "recursive"))
        return fail_with(p, DDP_ERR_UNSUPPORTED, "recursive loops are not supported,");
    close_tag(p);
    p->loops++;
    node->b = body(p, ends);
    p->loops--;
    if (take_word(p, "else")) {
        close_tag(p);
        node->c = body(p, end);
    }
    skip(p);
    return node;
}

static struct jinja_node *parse_if(struct parser *p)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const end[] = {"endif",
                                                                                       NULL};
    struct jinja_node *node = make(p, NODE_IF, condition(p), NULL), *part = node;
    close_tag(p);
    part->b = body(p, ends);
    while (take_word(p, "elif")) {
        part->c = make(p, NODE_IF, condition(p), NULL);
        part = part->c;
        close_tag(p);
        part->b = body(p, ends);
    }
    if (take_word(p, "else")) {
        close_tag(p);
        part->c = body(p, end);
    }
    skip(p);
    return node;
}

static struct jinja_node *parse_set(struct parser *p)
{
    static const char *const end[] = {"endset", NULL};
    struct jinja_node *node = make(p, NODE_SET, NULL, NULL);
    node->items = targets(p);
    if (take_op(p, "=")) {
        node->a = tuple(p, NULL);
        return node;
    }
    close_tag(p);
    node->b = body(p, end);
    skip(p);
    return node;
}

static struct jinja_node *parse_macro(struct parser *p)
{
    static const char *const end[] = {"endmacro", NULL};
    struct jinja_node *node = make(p, NODE_MACRO, NULL, NULL), **last = &node->items;
    node->text = need_name(p);
    need_op(p, "(");
    while (p->status == DDP_OK && !take_op(p, ")")) {
        if (last != &node->items)
            need_op(p, ",");
        struct jinja_node *named = make(p, NODE_NAMED, NULL, NULL);
        named->text = need_name(p);
        named->a = take_op(p, "=") ? condition(p) : NULL;
        *last = named;
        last = &named->next;
    }
    const int loops = p->loops;
    p->loops = 0;
    close_tag(p);
    node->b = body(p, end);
    p->loops = loops;
    skip(p);
    return node;
}

static struct jinja_node *parse_generation(struct parser *p)
{
    static const char *const end[] = {"endgeneration", NULL};
    struct jinja_node *node = make(p, NODE_GENERATION, NULL, NULL);
    close_tag(p);
    node->b = body(p, end);
    skip(p);
    return node;
}

/* Behind {%; up to its end, or that of the tag that ends it. */
static struct jinja_node *statement(struct parser *p)
{
    if (take_word(p, "if"))
        return parse_if(p);
    if (take_word(p, "for"))
        return parse_for(p);
    if (take_word(p, "set"))
        return parse_set(p);
    if (take_word(p, "macro"))
        return parse_macro(p);
    if (take_word(p, "generation"))
        return parse_generation(p);
    if (sees_word(p, "break") || sees_word(p, "continue")) {
        if (p->loops == 0)
            return fail(p, "no loop is there to leave");
        return make(p, take_word(p, "break") ? NODE_BREAK : (skip(p), NODE_CONTINUE), NULL, NULL);
    }
    return fail_with(p, DDP_ERR_UNSUPPORTED, "a statement that is not supported");
}

/* Statements up to a tag that begins with one of some words, which is the next token then; or with
 * NULL up to the end. */
static struct jinja_node *body(struct parser *p, const char *const *ends)
{
    struct jinja_node *first = NULL, **last = &first;
    if (!deeper(p))
        return NULL;
    while (p->status == DDP_OK) {
        struct jinja_node *node;
        if (sees(p, TOKEN_DATA, NULL)) {
            node = make(p, NODE_TEXT, NULL, NULL);
            node->text = p->at->text;
            skip(p);
        } else if (take(p, TOKEN_OUTPUT, NULL)) {
            node = make(p, NODE_OUTPUT, tuple(p, NULL), NULL);
            close_tag(p);
        } else if (take(p, TOKEN_BLOCK, NULL)) {
            for (size_t i = 0; ends && ends[i]; i++)
                if (sees_word(p, ends[i])) {
                    p->depth--;
                    return first;
                }
            node = statement(p);
            close_tag(p);
        } else {
            if (ends)
                (void)fail(p, "the end of an if, for, set or macro is missing");
            break;
        }
        *last = node;
        last = &node->next;
    }
    p->depth--;
    return first;
}

/* --- the whole ------------------------------------------------------------------------------- */

enum ddp_status ddp_jinja_build(ddp_jinja *jinja)
{
    struct parser p = {.jinja = jinja, .at = jinja->tokens};
    jinja->body = body(&p, NULL);
    return p.status;
}
