/* SPDX-License-Identifier: MIT
 *
 * See jinja.h: runs the tree of a template. */
#include "config.h"

#include "data/text/jinja_parts.h"

#define DEEPEST 400 /* expressions, bodies and macros inside each other */

/* Names of a body. What is set in a loop or macro ends with it. */
struct scope {
    struct scope *up;
    struct jinja_dict names;
};

struct jinja_macro {
    const struct jinja_node *node;
    struct scope *scope; /* where it was defined */
};

enum flow { FLOW_ON, FLOW_BREAK, FLOW_CONTINUE };

static const struct jinja_value undefined = {.type = JINJA_UNDEFINED};

static struct jinja_value evaluate(struct jinja_run *run, const struct jinja_node *node,
                                   struct scope *scope);
static enum flow run_body(struct jinja_run *run, const struct jinja_node *node,
                          struct scope *scope);

static struct scope *new_scope(struct jinja_run *run, struct scope *up)
{
    struct scope *scope = ddp_jinja_take(run, 1, sizeof *scope);
    if (scope)
        scope->up = up;
    return scope;
}

static bool is_function(struct jinja_string name)
{
    static const char *const names[] = {"range", "namespace", "dict", "raise_exception",
                                        "strftime_now"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ddp_jinja_is(name, names[i]))
            return true;
    return false;
}

static struct jinja_value look_up(struct jinja_run *run, struct jinja_string name,
                                  const struct scope *scope)
{
    for (; scope && ddp_jinja_work(run, 16 * scope->names.count); scope = scope->up) {
        const struct jinja_value *found = ddp_jinja_find(&scope->names, name);
        if (found)
            return *found;
    }
    return (struct jinja_value){.type = is_function(name) ? JINJA_FUNCTION : JINJA_UNDEFINED,
                                .text = name};
}

/* --- calls ------------------------------------------------------------------------------------ */

static void add_arg(struct jinja_run *run, struct jinja_args *args, struct jinja_value value)
{
    if (args->count == 8)
        (void)ddp_jinja_fail(run, "a call with more than 8 arguments");
    else
        args->at[args->count++] = value;
}

static void gather(struct jinja_run *run, const struct jinja_node *items, struct scope *scope,
                   struct jinja_args *args)
{
    args->count = args->named_count = 0;
    for (; items && run->status == DDP_OK; items = items->next) {
        const bool plain = items->kind != NODE_NAMED && items->kind != NODE_SPREAD;
        const struct jinja_value value = evaluate(run, plain ? items : items->a, scope);
        if (run->status == DDP_OK && items->kind == NODE_SPREAD) {
            const struct jinja_list *list = ddp_jinja_iterate(run, value);
            for (size_t i = 0; i < list->count && run->status == DDP_OK; i++)
                add_arg(run, args, list->at[i]);
        } else if (plain) {
            add_arg(run, args, value);
        } else if (args->named_count == 8) {
            (void)ddp_jinja_fail(run, "a call with more than 8 arguments");
        } else {
            args->named[args->named_count++] = (struct jinja_pair){items->text, value};
        }
    }
}

static struct jinja_value call_macro(struct jinja_run *run, const struct jinja_macro *macro,
                                     const struct jinja_args *args)
{
    struct jinja_builder builder = {0}, *out = run->out;
    struct scope *scope = new_scope(run, macro->scope);
    const struct jinja_node *node = macro->node->items;
    size_t index = 0;
    for (; node && run->status == DDP_OK; node = node->next, index++) {
        struct jinja_value value = {.type = JINJA_UNDEFINED, .text = node->text};
        bool given = index < args->count;
        if (given)
            value = args->at[index];
        for (size_t i = 0; !given && i < args->named_count; i++)
            if (args->named[i].key.bytes == node->text.bytes &&
                memcmp(args->named[i].key.at, node->text.at, node->text.bytes) == 0) {
                value = args->named[i].value;
                given = true;
            }
        if (!given && node->a)
            value = evaluate(run, node->a, scope);
        if (run->status == DDP_OK)
            ddp_jinja_set(run, &scope->names, node->text, value);
    }
    if (run->status == DDP_OK && index < args->count)
        (void)ddp_jinja_fail(run, "the macro %.*s takes %zu arguments, not %zu",
                             (int)macro->node->text.bytes, macro->node->text.at, index,
                             args->count);
    if (run->status != DDP_OK)
        return undefined;
    run->out = &builder;
    (void)run_body(run, macro->node->b, scope);
    run->out = out;
    return ddp_jinja_built(&builder);
}

/* Apart from evaluate(), whose frame stays small. */
static __attribute__((noinline)) struct jinja_value
call(struct jinja_run *run, const struct jinja_node *node, struct scope *scope)
{
    struct jinja_args args;
    const struct jinja_value of = evaluate(run, node->a, scope);
    gather(run, node->items, scope, &args);
    if (run->status != DDP_OK)
        return undefined;
    run->line = node->line;
    if (node->kind == NODE_FILTER)
        return ddp_jinja_filter(run, node->text, of, &args);
    if (node->kind == NODE_TEST)
        return ddp_jinja_bool(ddp_jinja_test(run, node->text, of, &args));
    if (of.type == JINJA_MACRO)
        return call_macro(run, of.macro, &args);
    if (of.type == JINJA_FUNCTION)
        return ddp_jinja_function(run, of.text, &args);
    if (of.type == JINJA_METHOD)
        return ddp_jinja_method(run, of.text, of.list->at[0], &args);
    return ddp_jinja_fail(
        run, "%.*s is called, and is %s", of.type == JINJA_UNDEFINED ? (int)of.text.bytes : 4,
        of.type == JINJA_UNDEFINED && of.text.at ? of.text.at : "this", ddp_jinja_type_name(of));
}

/* --- arithmetic ------------------------------------------------------------------------------- */

static bool is_whole(struct jinja_value value)
{
    return value.type == JINJA_INT || value.type == JINJA_BOOL;
}

static struct jinja_value whole(struct jinja_run *run, char op, bool floor, int64_t a, int64_t b)
{
    int64_t out = 0;
    bool over = false;
    if ((op == '/' || op == '%') && (b == 0 || (b == -1 && a == INT64_MIN)))
        return ddp_jinja_fail(run, "a division by %d", (int)b);
    if (op == '/' && !floor)
        return (struct jinja_value){.type = JINJA_FLOAT, .real = (double)a / (double)b};
    if (op == '/')
        out = a / b - (a % b != 0 && (a < 0) != (b < 0));
    else if (op == '%')
        out = a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
    else
        over = op == '+'   ? __builtin_add_overflow(a, b, &out)
               : op == '-' ? __builtin_sub_overflow(a, b, &out)
                           : __builtin_mul_overflow(a, b, &out);
    return over ? ddp_jinja_fail(run, "a number beyond 64 bits") : ddp_jinja_int(out);
}

static struct jinja_value joined(struct jinja_run *run, struct jinja_value a, struct jinja_value b)
{
    struct jinja_builder builder = {0};
    if (a.type == JINJA_STRING) {
        ddp_jinja_put(run, &builder, a.text);
        ddp_jinja_put(run, &builder, b.text);
        return ddp_jinja_built(&builder);
    }
    const struct jinja_value out = ddp_jinja_list(run, a.list->count + b.list->count);
    for (size_t i = 0; run->status == DDP_OK && i < out.list->count; i++)
        out.list->at[i] = i < a.list->count ? a.list->at[i] : b.list->at[i - a.list->count];
    return out;
}

static struct jinja_value repeated(struct jinja_run *run, struct jinja_string text, int64_t times)
{
    struct jinja_builder builder = {0};
    for (int64_t i = 0; i < times && run->status == DDP_OK; i++)
        ddp_jinja_put(run, &builder, text);
    return ddp_jinja_built(&builder);
}

static struct jinja_value operate(struct jinja_run *run, const char *op, struct jinja_value a,
                                  struct jinja_value b)
{
    const bool both =
        (is_whole(a) || a.type == JINJA_FLOAT) && (is_whole(b) || b.type == JINJA_FLOAT);
    if (*op == '~') {
        a = ddp_jinja_str(run, a);
        b = ddp_jinja_str(run, b);
        return joined(run, a, b);
    }
    if (*op == '+' && a.type == b.type && (a.type == JINJA_STRING || a.type == JINJA_LIST))
        return joined(run, a, b);
    if (*op == '*' && a.type == JINJA_STRING && is_whole(b))
        return repeated(run, a.text, b.number);
    if (is_whole(a) && is_whole(b))
        return whole(run, *op, op[1] == '/', a.number, b.number);
    if (!both || *op == '%' || op[1] == '/')
        return ddp_jinja_fail(run, "%s %s %s", ddp_jinja_type_name(a), op, ddp_jinja_type_name(b));
    const double x = a.type == JINJA_FLOAT ? a.real : (double)a.number;
    const double y = b.type == JINJA_FLOAT ? b.real : (double)b.number;
    if (*op == '/' && y == 0)
        return ddp_jinja_fail(run, "a division by 0");
    const double real = *op == '+' ? x + y : *op == '-' ? x - y : *op == '*' ? x * y : x / y;
    return (struct jinja_value){.type = JINJA_FLOAT, .real = real};
}

/* --- expressions ---------------------------------------------------------------------------- */

static bool compares(struct jinja_run *run, const char *op, struct jinja_value a,
                     struct jinja_value b)
{
    if (*op == 'i' || *op == 'n')
        return ddp_jinja_contains(run, b, a) == (*op == 'i');
    if (*op == '=' || *op == '!')
        return ddp_jinja_equal(run, a, b) == (*op == '=');
    const int order = ddp_jinja_compare(run, a, b);
    return (op[1] == '=' && order == 0) || (*op == '<' ? order < 0 : order > 0);
}

static struct jinja_value compare(struct jinja_run *run, const struct jinja_node *node,
                                  struct scope *scope)
{
    struct jinja_value left = evaluate(run, node->a, scope);
    for (const struct jinja_node *item = node->items; item; item = item->next) {
        const struct jinja_value right = evaluate(run, item->a, scope);
        if (run->status != DDP_OK || !compares(run, item->op, left, right))
            return ddp_jinja_bool(false);
        left = right;
    }
    return ddp_jinja_bool(true);
}

static struct jinja_value make_list(struct jinja_run *run, const struct jinja_node *node,
                                    struct scope *scope)
{
    size_t count = 0;
    for (const struct jinja_node *item = node->items; item; item = item->next)
        count++;
    struct jinja_value list = ddp_jinja_list(run, count);
    list.tuple = node->kind == NODE_TUPLE;
    count = 0;
    for (const struct jinja_node *item = node->items; item && run->status == DDP_OK;
         item = item->next) {
        const struct jinja_value value = evaluate(run, item, scope);
        list.list->at[count++] = value;
    }
    return list;
}

static struct jinja_value make_dict(struct jinja_run *run, const struct jinja_node *node,
                                    struct scope *scope)
{
    struct jinja_value out = {.type = JINJA_DICT};
    out.dict = ddp_jinja_take(run, 1, sizeof *out.dict);
    for (const struct jinja_node *item = node->items; item && run->status == DDP_OK;
         item = item->next->next) {
        const struct jinja_value key = evaluate(run, item, scope);
        const struct jinja_value value = evaluate(run, item->next, scope);
        if (run->status == DDP_OK && key.type != JINJA_STRING)
            (void)ddp_jinja_fail(run, "a dict with %s for a key", ddp_jinja_type_name(key));
        if (run->status == DDP_OK)
            ddp_jinja_set(run, out.dict, key.text, value);
    }
    return run->status == DDP_OK ? out : undefined;
}

static struct jinja_value optional(struct jinja_run *run, const struct jinja_node *node,
                                   struct scope *scope)
{
    return node ? evaluate(run, node, scope) : (struct jinja_value){.type = JINJA_NONE};
}

/* Those that need values of their parts. */
static struct jinja_value evaluate_parts(struct jinja_run *run, const struct jinja_node *node,
                                         struct scope *scope)
{
    struct jinja_value a = evaluate(run, node->a, scope), b, c;
    if (run->status != DDP_OK)
        return undefined;
    switch (node->kind) {
    case NODE_MEMBER:
        return ddp_jinja_member(run, a, node->text);
    case NODE_ITEM:
        b = evaluate(run, node->b, scope);
        return run->status == DDP_OK ? ddp_jinja_item(run, a, b) : undefined;
    case NODE_SLICE:
        b = optional(run, node->b, scope);
        c = optional(run, node->c, scope);
        return ddp_jinja_slice(run, a, b, c, optional(run, node->d, scope));
    case NODE_NOT:
        return ddp_jinja_bool(!ddp_jinja_true(a));
    case NODE_AND:
    case NODE_OR:
        return ddp_jinja_true(a) == (node->kind == NODE_OR) ? a : evaluate(run, node->b, scope);
    case NODE_NEGATIVE:
        if (a.type == JINJA_FLOAT)
            a.real = -a.real;
        return a.type == JINJA_FLOAT ? a : operate(run, "-", ddp_jinja_int(0), a);
    default:
        b = evaluate(run, node->b, scope);
        return run->status == DDP_OK ? operate(run, node->op, a, b) : undefined;
    }
}

static struct jinja_value evaluate(struct jinja_run *run, const struct jinja_node *node,
                                   struct scope *scope)
{
    struct jinja_value value = undefined;
    if (!ddp_jinja_work(run, 0))
        return undefined;
    run->line = node->line;
    if (++run->depth > DEEPEST)
        value =
            ddp_jinja_fail(run, "more than %d calls and expressions inside each other", DEEPEST);
    else if (node->kind == NODE_CONSTANT)
        value = node->constant;
    else if (node->kind == NODE_NAME)
        value = look_up(run, node->text, scope);
    else if (node->kind == NODE_LIST || node->kind == NODE_TUPLE)
        value = make_list(run, node, scope);
    else if (node->kind == NODE_DICT)
        value = make_dict(run, node, scope);
    else if (node->kind == NODE_COMPARE)
        value = compare(run, node, scope);
    else if (node->kind == NODE_IF_ELSE) {
        const bool is = ddp_jinja_true(evaluate(run, node->b, scope));
        if (is || node->c)
            value = evaluate(run, is ? node->a : node->c, scope);
    } else if (node->kind == NODE_CALL || node->kind == NODE_FILTER || node->kind == NODE_TEST)
        value = call(run, node, scope);
    else
        value = evaluate_parts(run, node, scope);
    run->depth--;
    return value;
}

/* --- statements ------------------------------------------------------------------------------- */

static void assign(struct jinja_run *run, const struct jinja_node *target, struct jinja_value value,
                   struct scope *scope)
{
    if (run->status != DDP_OK)
        return;
    if (target->kind == NODE_NAME) {
        ddp_jinja_set(run, &scope->names, target->text, value);
        return;
    }
    const struct jinja_value space = evaluate(run, target->a, scope);
    if (space.type == JINJA_NAMESPACE)
        ddp_jinja_set(run, space.dict, target->text, value);
    else
        (void)ddp_jinja_fail(run, "%.*s is set in what is no namespace", (int)target->text.bytes,
                             target->text.at);
}

/* One target takes the value, several its elements. */
static void assign_all(struct jinja_run *run, const struct jinja_node *targets,
                       struct jinja_value value, struct scope *scope)
{
    size_t count = 0, i = 0;
    if (!targets->next) {
        assign(run, targets, value, scope);
        return;
    }
    const struct jinja_list *list = ddp_jinja_iterate(run, value);
    for (const struct jinja_node *target = targets; target; target = target->next)
        count++;
    if (list->count != count)
        (void)ddp_jinja_fail(run, "%zu values for %zu names", list->count, count);
    for (; targets && run->status == DDP_OK; targets = targets->next)
        assign(run, targets, list->at[i++], scope);
}

/* Those of a list that the filter of a loop lets through. */
static const struct jinja_list *filtered(struct jinja_run *run, const struct jinja_node *node,
                                         const struct jinja_list *list, struct scope *up)
{
    const struct jinja_value out = ddp_jinja_list(run, list->count);
    size_t count = 0;
    for (size_t i = 0; run->status == DDP_OK && i < list->count; i++) {
        struct scope *scope = new_scope(run, up);
        if (scope)
            assign_all(run, node->items, list->at[i], scope);
        if (run->status == DDP_OK && ddp_jinja_true(evaluate(run, node->d, scope)))
            out.list->at[count++] = list->at[i];
    }
    if (run->status != DDP_OK)
        return list;
    out.list->count = count;
    return out.list;
}

static void run_for(struct jinja_run *run, const struct jinja_node *node, struct scope *up)
{
    const struct jinja_list *list = ddp_jinja_iterate(run, evaluate(run, node->a, up));
    enum flow flow = FLOW_ON;
    if (run->status == DDP_OK && node->d)
        list = filtered(run, node, list, up);
    struct jinja_loop *loop = ddp_jinja_take(run, 1, sizeof *loop);
    for (size_t i = 0; run->status == DDP_OK && i < list->count && flow != FLOW_BREAK; i++) {
        struct scope *scope = new_scope(run, up);
        *loop = (struct jinja_loop){.list = list, .index = i};
        const struct jinja_value value = {.type = JINJA_LOOP, .loop = loop};
        if (scope)
            ddp_jinja_set(run, &scope->names, ddp_jinja_text("loop").text, value);
        if (run->status == DDP_OK)
            assign_all(run, node->items, list->at[i], scope);
        if (run->status == DDP_OK)
            flow = run_body(run, node->b, scope);
    }
    if (run->status == DDP_OK && list->count == 0 && node->c)
        (void)run_body(run, node->c, up);
}

static void run_set(struct jinja_run *run, const struct jinja_node *node, struct scope *scope)
{
    struct jinja_builder builder = {0}, *out = run->out;
    struct jinja_value value;
    if (node->b) {
        run->out = &builder;
        (void)run_body(run, node->b, scope);
        run->out = out;
    }
    value = node->a ? evaluate(run, node->a, scope) : ddp_jinja_built(&builder);
    if (run->status == DDP_OK)
        assign_all(run, node->items, value, scope);
}

static void run_macro(struct jinja_run *run, const struct jinja_node *node, struct scope *scope)
{
    struct jinja_macro *macro = ddp_jinja_take(run, 1, sizeof *macro);
    if (!macro)
        return;
    *macro = (struct jinja_macro){node, scope};
    ddp_jinja_set(run, &scope->names, node->text,
                  (struct jinja_value){.type = JINJA_MACRO, .macro = macro});
}

static enum flow run_if(struct jinja_run *run, const struct jinja_node *node, struct scope *scope)
{
    for (;; node = node->c) { /* an elif is an if in the other body */
        const bool is = ddp_jinja_true(evaluate(run, node->a, scope));
        const struct jinja_node *other = node->c;
        if (is || !other || other->kind != NODE_IF || other->next || run->status != DDP_OK)
            return run_body(run, is ? node->b : other, scope);
    }
}

static enum flow run_statement(struct jinja_run *run, const struct jinja_node *node,
                               struct scope *scope)
{
    enum flow flow = FLOW_ON;
    run->line = node->line;
    switch (node->kind) {
    case NODE_TEXT:
        ddp_jinja_put(run, run->out, node->text);
        break;
    case NODE_OUTPUT: {
        const struct jinja_value value = evaluate(run, node->a, scope);
        ddp_jinja_put_value(run, run->out, value);
        break;
    }
    case NODE_IF:
        flow = run_if(run, node, scope);
        break;
    case NODE_FOR:
        run_for(run, node, scope);
        break;
    case NODE_SET:
        run_set(run, node, scope);
        break;
    case NODE_MACRO:
        run_macro(run, node, scope);
        break;
    case NODE_GENERATION:
        run->generating++;
        flow = run_body(run, node->b, scope);
        run->generating--;
        break;
    default:
        flow = node->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE;
    }
    return flow;
}

static enum flow run_body(struct jinja_run *run, const struct jinja_node *node, struct scope *scope)
{
    enum flow flow = FLOW_ON;
    if (++run->depth > DEEPEST)
        (void)ddp_jinja_fail(run, "more than %d calls and bodies inside each other", DEEPEST);
    for (; node && flow == FLOW_ON && ddp_jinja_work(run, 0); node = node->next)
        flow = run_statement(run, node, scope);
    run->depth--;
    return flow;
}

/* --- the whole -------------------------------------------------------------------------------- */

void ddp_jinja_run(struct jinja_run *run, const struct jinja_dict *variables)
{
    struct scope *scope = new_scope(run, NULL), *inner = new_scope(run, scope);
    if (!scope || !inner)
        return;
    scope->names = *variables;
    (void)run_body(run, run->jinja->body, inner);
}
