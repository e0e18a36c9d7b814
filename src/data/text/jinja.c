/* SPDX-License-Identifier: MIT
 *
 * See jinja.h. Tokens (jinja_lex.c) become a tree (jinja_parse.c), which is run (jinja_run.c) on
 * values (jinja_value.c, jinja_print.c) with filters and methods (jinja_filters.c,
 * jinja_strings.c). */
#include "config.h"

#include "data/text/jinja_parts.h"

#include "core/memory.h"

#define TREE_MOST   ((size_t)64 << 20) /* bytes of a template's tree */
#define MEMORY_MOST ((size_t)128 << 20)
#define STEPS       UINT64_C(10000000) /* of a text: a second or two */

enum ddp_status ddp_jinja_parse(ddp_jinja **jinja, const char *name, const char *text, size_t bytes)
{
    ddp_jinja *made = ddp_array_alloc(1, sizeof *made);
    if (!made)
        return DDP_ERR_MEMORY;
    made->arena.most = TREE_MOST;
    made->name = strdup(name);
    enum ddp_status status = made->name ? ddp_jinja_lex(made, text, bytes)
                                        : ddp_fail(DDP_ERR_MEMORY, "out of memory: a template");
    if (status == DDP_OK)
        status = ddp_jinja_build(made);
    if (made->arena.full)
        status = ddp_fail(DDP_ERR_FORMAT, "%s: the chat template is too large", name);
    if (status == DDP_OK)
        *jinja = made;
    else
        ddp_jinja_free(made);
    return status;
}

void ddp_jinja_free(ddp_jinja *jinja)
{
    if (!jinja)
        return;
    ddp_jinja_arena_free(&jinja->arena);
    free(jinja->tokens);
    free(jinja->name);
    free(jinja);
}

bool ddp_jinja_mentions(const ddp_jinja *jinja, const char *name)
{
    for (size_t i = 0; i < jinja->token_count; i++)
        if ((jinja->tokens[i].kind == TOKEN_NAME || jinja->tokens[i].kind == TOKEN_STRING) &&
            ddp_jinja_is(jinja->tokens[i].text, name))
            return true;
    return false;
}

bool ddp_jinja_has_generation(const ddp_jinja *jinja)
{
    for (size_t i = 1; i < jinja->token_count; i++)
        if (jinja->tokens[i - 1].kind == TOKEN_BLOCK &&
            ddp_jinja_is(jinja->tokens[i].text, "generation"))
            return true;
    return false;
}

static void hand_over(struct jinja_run *run, const struct jinja_builder *builder,
                      struct ddp_jinja_text *out)
{
    const struct ddp_jinja_text made = {ddp_array_alloc(builder->bytes + 1, 1),
                                        ddp_array_alloc(builder->bytes + 1, sizeof *made.owners),
                                        builder->bytes};
    free(out->at);
    free(out->owners);
    *out = made;
    if (!made.at || !made.owners) {
        run->status = DDP_ERR_MEMORY;
    } else if (builder->bytes > 0) {
        memcpy(made.at, builder->at, builder->bytes);
        memcpy(made.owners, builder->owners, builder->bytes * sizeof *made.owners);
    }
}

enum ddp_status ddp_jinja_render(const ddp_jinja *jinja, const char *where, const json_t *data,
                                 const char *owned, struct ddp_jinja_text *out)
{
    struct jinja_builder builder = {0};
    struct jinja_run run = {
        .jinja = jinja, .where = where, .arena.most = MEMORY_MOST, .out = &builder, .steps = STEPS};
    const struct jinja_value variables = ddp_jinja_from_json(&run, data, 0, owned);
    if (run.status == DDP_OK && variables.type == JINJA_DICT)
        ddp_jinja_run(&run, variables.dict);
    if (run.status == DDP_OK)
        hand_over(&run, &builder, out);
    ddp_jinja_arena_free(&run.arena);
    return run.status;
}
