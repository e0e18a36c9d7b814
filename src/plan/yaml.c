/* SPDX-License-Identifier: MIT
 *
 * See yaml.h. Events are taken from libyaml one by one, and the first that does not belong ends the
 * work: nothing nests, so nothing can grow. */
#include "config.h"

#include "plan/yaml.h"

#include "core/log.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
    struct ddp_yaml *yaml;
    const char *name;
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
};

static int line_of(const struct reader *r)
{
    return (int)r->event.start_mark.line + 1;
}

static enum ddp_status wrong(const struct reader *r, const char *what)
{
    return ddp_fail(DDP_ERR_FORMAT, "%s: line %d: %s", r->name, line_of(r), what);
}

static enum ddp_status next(struct reader *r)
{
    yaml_event_delete(&r->event);
    if (yaml_parser_parse(&r->parser, &r->event))
        return DDP_OK;
    const yaml_parser_t *p = &r->parser;
    memset(&r->event, 0, sizeof r->event);
    if (p->error == YAML_MEMORY_ERROR)
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", r->name);
    return ddp_fail(DDP_ERR_FORMAT, "%s: line %d: no YAML: %s", r->name,
                    (int)p->problem_mark.line + 1, p->problem ? p->problem : "unknown");
}

/* The next event, which must be of this kind. */
static enum ddp_status expect(struct reader *r, yaml_event_type_t type, const char *what)
{
    const enum ddp_status status = next(r);
    return status == DDP_OK && r->event.type != type ? wrong(r, what) : status;
}

/* Appends the scalar of the event, and behind it `end`. */
static enum ddp_status take_scalar(struct reader *r, char end)
{
    struct ddp_yaml *y = r->yaml;
    const char *value = (const char *)r->event.data.scalar.value;
    const size_t length = r->event.data.scalar.length;
    if (r->event.data.scalar.anchor || r->event.data.scalar.tag)
        return wrong(r, "anchors and tags (&, !) have no use in options: write the value itself");
    if (memchr(value, '\0', length))
        return wrong(r, "a zero in a string");
    if (length + 1 > y->room - y->used) /* cannot be: see ddp_yaml_parse() */
        return wrong(r, "a string is too long");
    memcpy(y->text + y->used, value, length);
    y->used += length;
    y->text[y->used++] = end;
    return DDP_OK;
}

static enum ddp_status take_list(struct reader *r)
{
    struct ddp_yaml *y = r->yaml;
    const size_t begin = y->used;
    if (r->event.data.sequence_start.anchor || r->event.data.sequence_start.tag)
        return wrong(r, "anchors and tags (&, !) have no use in options: write the list itself");
    enum ddp_status status = next(r);
    while (status == DDP_OK && r->event.type == YAML_SCALAR_EVENT) {
        status = take_scalar(r, ',');
        if (status == DDP_OK)
            status = next(r);
    }
    if (status == DDP_OK && r->event.type != YAML_SEQUENCE_END_EVENT)
        return wrong(r, "a list holds values alone, no list, mapping or alias (*)");
    if (status == DDP_OK && y->used == begin)
        return wrong(r, "an empty list");
    if (status == DDP_OK)
        y->text[y->used - 1] = '\0';
    return status;
}

/* The name is the current event. */
static enum ddp_status take_entry(struct reader *r)
{
    struct ddp_yaml *y = r->yaml;
    struct ddp_yaml_entry entry = {.name = y->text + y->used, .line = line_of(r)};
    if (r->event.type != YAML_SCALAR_EVENT)
        return wrong(r, "the name of an option must stand here, such as lr: 0.001");
    enum ddp_status status = take_scalar(r, '\0');
    for (size_t i = 0; status == DDP_OK && i < y->count; i++)
        if (strcmp(y->entries[i].name, entry.name) == 0)
            return ddp_fail(DDP_ERR_FORMAT, "%s: line %d: %s is also in line %d: give it once",
                            r->name, entry.line, entry.name, y->entries[i].line);
    if (status == DDP_OK)
        status = next(r);
    if (status != DDP_OK)
        return status;
    entry.value = y->text + y->used;
    if (r->event.type == YAML_SCALAR_EVENT) {
        entry.plain = r->event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        status = take_scalar(r, '\0');
    } else if (r->event.type == YAML_SEQUENCE_START_EVENT) {
        entry.list = true;
        status = take_list(r);
    } else
        status = wrong(r, r->event.type == YAML_ALIAS_EVENT
                              ? "an alias (*): write the value itself"
                              : "a value or a list must stand here, not a mapping");
    return status == DDP_OK ? ddp_array_append(&y->entries, &y->count, &entry, sizeof entry)
                            : status;
}

static enum ddp_status take_mapping(struct reader *r)
{
    enum ddp_status status = expect(r, YAML_STREAM_START_EVENT, "no YAML");
    if (status == DDP_OK)
        status = next(r);
    if (status == DDP_OK && r->event.type == YAML_STREAM_END_EVENT)
        return DDP_OK; /* nothing but remarks */
    if (status == DDP_OK)
        status = expect(r, YAML_MAPPING_START_EVENT,
                        "options must stand here, one a line, such as lr: 0.001");
    if (status == DDP_OK && (r->event.data.mapping_start.anchor || r->event.data.mapping_start.tag))
        return wrong(r, "anchors and tags (&, !) have no use in options");
    if (status == DDP_OK)
        status = next(r);
    while (status == DDP_OK && r->event.type != YAML_MAPPING_END_EVENT) {
        status = take_entry(r);
        if (status == DDP_OK)
            status = next(r);
    }
    if (status == DDP_OK)
        status = expect(r, YAML_DOCUMENT_END_EVENT, "no YAML");
    return status == DDP_OK
               ? expect(r, YAML_STREAM_END_EVENT, "a second document: keep one in a file")
               : status;
}

enum ddp_status ddp_yaml_parse(struct ddp_yaml *yaml, const char *name, const char *text,
                               size_t bytes)
{
    struct reader r = {.yaml = yaml, .name = name};
    /* An escape of two bytes is three at most, and each scalar has a byte behind it. */
    const size_t room = 2 * bytes + 16;
    *yaml = (struct ddp_yaml){.text = ddp_array_alloc(room, 1), .room = room};
    if (!yaml->text)
        return DDP_ERR_MEMORY;
    if (!yaml_parser_initialize(&r.parser))
        return ddp_fail(DDP_ERR_MEMORY, "%s: out of memory", name);
    yaml_parser_set_encoding(&r.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, bytes);
    const enum ddp_status status = take_mapping(&r);
    yaml_event_delete(&r.event);
    yaml_parser_delete(&r.parser);
    return status;
}

void ddp_yaml_free(struct ddp_yaml *yaml)
{
    free(yaml->entries);
    free(yaml->text);
    *yaml = (struct ddp_yaml){.count = 0};
}
