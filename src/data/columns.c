/* SPDX-License-Identifier: MIT
 *
 * See columns.h. */
#include "config.h"

#include "data/columns.h"

#include "core/log.h"

#include <string.h>

/* Not every record has the last ones. */
#define SURE 9
static const char *const names[] = {"text",          "prompt",      "completion", "messages",
                                    "conversations", "output",      "chosen",     "rejected",
                                    "label",         "instruction", "input",      "system",
                                    "history",       "sentence1",   "sentence2",  "anchor",
                                    "positive",      "negative",    NULL};

static int find(const char *name)
{
    int i = 0;
    while (names[i] && strcmp(names[i], name) != 0)
        i++;
    return names[i] ? i : -1;
}

enum ddp_status ddp_columns_read(struct ddp_columns *columns, const char *text)
{
    *columns = (struct ddp_columns){.count = 0};
    if (snprintf(columns->text, sizeof columns->text, "%s", text) >= (int)sizeof columns->text)
        return ddp_fail(DDP_ERR_INVALID, "--columns %s: is too long", text);
    for (char *rest = columns->text, *word; (word = strsep(&rest, ","));) {
        char *theirs = strchr(word, '=');
        if (!theirs || !theirs[1] || columns->count == DDP_COLUMNS)
            return ddp_fail(DDP_ERR_INVALID,
                            "--columns %s: for texts, name pairs with commas between, such as "
                            "prompt=question,completion=answer",
                            text);
        *theirs++ = '\0';
        if (find(word) < 0)
            return ddp_fail(
                DDP_ERR_INVALID,
                "--columns %s: no record has a \"%s\": there are text, prompt, "
                "completion, messages, conversations, instruction, input, output, "
                "system, history, chosen, rejected and label, and for encoders sentence1, "
                "sentence2, anchor, positive and negative",
                text, word);
        for (int i = 0; i < columns->count; i++)
            if (strcmp(columns->ours[i], word) == 0)
                return ddp_fail(DDP_ERR_INVALID, "--columns %s: it names \"%s\" twice", text, word);
        columns->ours[columns->count] = word;
        columns->theirs[columns->count++] = theirs;
    }
    return DDP_OK;
}

const char *ddp_columns_found(const json_t *root, char *text, size_t size)
{
    const char *name;
    json_t *value;
    size_t used = 0;
    snprintf(text, size, "no members");
    json_object_foreach((json_t *)(uintptr_t)root, name, value) if (used < size) used +=
        (size_t)snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
    return text;
}

enum ddp_status ddp_columns_apply(const struct ddp_columns *columns, json_t **root,
                                  const char *where)
{
    char found[256];
    if (!columns)
        return DDP_OK;
    json_t *named = json_object();
    enum ddp_status status = named ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", where);
    for (int i = 0; status == DDP_OK && i < columns->count; i++) {
        json_t *value = json_object_get(*root, columns->theirs[i]);
        if (value && json_object_set(named, columns->ours[i], value) != 0)
            status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", where);
        else if (!value && find(columns->ours[i]) < SURE)
            status = ddp_fail(DDP_ERR_FORMAT,
                              "%s: it has no \"%s\", which --columns names for \"%s\": it has %s",
                              where, columns->theirs[i], columns->ours[i],
                              ddp_columns_found(*root, found, sizeof found));
    }
    json_t *tools = json_object_get(*root, "tools"); /* never has another name */
    if (status == DDP_OK && tools && json_object_set(named, "tools", tools) != 0)
        status = ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", where);
    if (status != DDP_OK) {
        json_decref(named);
        return status;
    }
    json_decref(*root);
    *root = named;
    return DDP_OK;
}
