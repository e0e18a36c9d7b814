/* SPDX-License-Identifier: MIT
 *
 * What the first line of a run says it was started with; see run_log.h. Members that later versions
 * add become facts without a change here. */
#include "config.h"

#include "reporter/run_log.h"

#include "core/memory.h"
#include "core/text.h"

#include <string.h>

#define FACTS 256 /* of a run: more are no description */

static struct log_fact *find(const struct log_run *run, const char *name)
{
    for (size_t i = 0; i < run->fact_count; i++)
        if (strcmp(run->facts[i].name, name) == 0)
            return &run->facts[i];
    return NULL;
}

const char *run_log_fact(const struct log_run *run, const char *name)
{
    const struct log_fact *fact = find(run, name);
    return fact ? fact->value : "-";
}

/* An option that is given twice has both values. */
static enum ddp_status add(struct log_run *run, const char *name, const char *value)
{
    struct log_fact fact = {.name = ""};
    ddp_text_clean(fact.name, sizeof fact.name, name, strlen(name));
    struct log_fact *before = find(run, fact.name);
    char *to = before ? before->value : fact.value;
    size_t used = strlen(to);
    if (used > 0 && used + 1 < LOG_VALUE)
        to[used++] = ' ';
    ddp_text_clean(to + used, LOG_VALUE - used, value, strlen(value));
    if (before || run->fact_count == FACTS)
        return DDP_OK;
    return ddp_array_append(&run->facts, &run->fact_count, &fact, sizeof fact);
}

static enum ddp_status add_member(struct log_run *run, const char *name, const json_t *member)
{
    char text[40];
    switch (json_typeof(member)) {
    case JSON_STRING:
        return add(run, name, json_string_value(member));
    case JSON_INTEGER:
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT, json_integer_value(member));
        return add(run, name, text);
    case JSON_REAL:
        snprintf(text, sizeof text, "%.6g", json_real_value(member));
        return add(run, name, text);
    case JSON_TRUE:
    case JSON_FALSE:
        return add(run, name, json_is_true(member) ? "yes" : "no");
    default:
        return DDP_OK;
    }
}

/* Other names of trainer's options. */
static const struct {
    const char *given, *name;
} others[] = {{"-a", "--acc-steps"}, {"-b", "--batch-size"},     {"-d", "--data"},
              {"-e", "--epochs"},    {"-g", "--global-batch"},   {"-s", "--steps"},
              {"-t", "--threads"},   {"--lr", "--learning-rate"}};

/* The description has this option already, as global_batch for --global-batch; and which log it is
 * says the run's name. */
static bool is_known(const struct log_run *run, const char *option)
{
    char name[LOG_NAME];
    snprintf(name, sizeof name, "%s", option[1] == '-' ? option + 2 : option);
    for (char *at = name; *at; at++)
        *at = *at == '-' ? '_' : *at;
    return find(run, name) || strcmp(name, "log") == 0;
}

/* "--name value", "--name=value", "-n value", "-nvalue" and "--name". */
static enum ddp_status add_command(struct log_run *run, const json_t *words)
{
    enum ddp_status status = DDP_OK;
    char name[LOG_NAME];
    for (size_t i = 1; status == DDP_OK && i < json_array_size(words); i++) {
        const char *word = json_string_value(json_array_get(words, i));
        const char *next = json_string_value(json_array_get(words, i + 1));
        if (!word || word[0] != '-' || word[1] == '\0')
            continue;
        const bool is_long = word[1] == '-';
        const size_t length = is_long ? strcspn(word, "=") : 2;
        const char *value = word + length + (word[length] == '=');
        snprintf(name, sizeof name, "%.*s", (int)(length < LOG_NAME ? length : LOG_NAME), word);
        for (char *at = name; *at; at++)
            *at = *at == '_' ? '-' : *at;
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
            if (strcmp(name, others[k].given) == 0)
                snprintf(name, sizeof name, "%s", others[k].name);
        if (word[length] == '\0' && next && next[0] != '-') {
            value = next;
            i++;
        } else if (word[length] == '\0') {
            value = "yes";
        }
        if (!is_known(run, name))
            status = add(run, name, value);
    }
    return status;
}

enum ddp_status run_facts_read(struct log_run *run, const json_t *object)
{
    static const char *const left_out[] = {"event",      "format",       "time",
                                           "first_step", "memory_bytes", "exchange_bytes"};
    enum ddp_status status = DDP_OK;
    const char *key, *inner_key;
    json_t *member, *inner;
    json_object_foreach((json_t *)object, key, member)
    {
        bool wanted = status == DDP_OK;
        for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++)
            wanted = wanted && strcmp(key, left_out[i]) != 0;
        if (wanted && !json_is_object(member))
            status = add_member(run, key, member);
        json_object_foreach(member, inner_key, inner) if (wanted && status == DDP_OK) status =
            add_member(run, inner_key, inner);
    }
    if (status == DDP_OK)
        status = add_command(run, json_object_get(object, "command"));
    return status;
}
