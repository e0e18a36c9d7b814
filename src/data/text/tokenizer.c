/* SPDX-License-Identifier: MIT
 *
 * See tokenizer.h: what a tokenizer says of itself and of its tokens. */
#include "config.h"

#include "core/hash.h"
#include "core/memory.h"
#include "data/text/encoder.h"

void ddp_tokenizer_close(ddp_tokenizer *tokenizer)
{
    if (!tokenizer)
        return;
    if (tokenizer->idle)
        ddp_encoders_destroy(tokenizer);
    if (tokenizer->lock)
        pthread_mutex_destroy(tokenizer->lock);
    free(tokenizer->lock);
    free(tokenizer->idle);
    ddp_vocabulary_clear(&tokenizer->vocabulary);
    ddp_added_clear(&tokenizer->raw_added);
    ddp_added_clear(&tokenizer->normal_added);
    for (int i = 0; i < DDP_STEPS_MOST; i++) {
        free(tokenizer->steps[i].from.at);
        free(tokenizer->steps[i].to.at);
        ddp_regex_destroy(tokenizer->regexes[i]);
    }
    free(tokenizer->space.at);
    free(tokenizer->decode.from.at);
    free(tokenizer->decode.to.at);
    free(tokenizer->junctions);
    free(tokenizer->before);
    free(tokenizer->after);
    free(tokenizer->chat_template);
    free(tokenizer->chat_file);
    free(tokenizer->path);
    free(tokenizer);
}

const char *ddp_tokenizer_path(const ddp_tokenizer *tokenizer)
{
    return tokenizer->path;
}

int32_t ddp_tokenizer_ids(const ddp_tokenizer *tokenizer)
{
    return (int32_t)tokenizer->vocabulary.ids;
}

int32_t ddp_tokenizer_bos(const ddp_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t ddp_tokenizer_eos(const ddp_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

uint64_t ddp_tokenizer_hash(const ddp_tokenizer *tokenizer)
{
    const uint64_t parts[] = {
        1, /* of this code: another number when the ids of a text change */
        tokenizer->hash,
        ddp_hash(tokenizer->before, tokenizer->before_count * sizeof *tokenizer->before),
        ddp_hash(tokenizer->after, tokenizer->after_count * sizeof *tokenizer->after),
    };
    return ddp_hash(parts, sizeof parts);
}

const char *ddp_tokenizer_chat_template(const ddp_tokenizer *tokenizer, const char **file)
{
    *file = tokenizer->chat_file;
    return tokenizer->chat_template;
}

int32_t ddp_tokenizer_find(const ddp_tokenizer *tokenizer, const char *text, size_t bytes)
{
    return ddp_vocabulary_find(&tokenizer->vocabulary, text, bytes);
}

const char *ddp_tokenizer_token(const ddp_tokenizer *tokenizer, int32_t id, size_t *bytes)
{
    const struct ddp_vocabulary *v = &tokenizer->vocabulary;
    if (id < 0 || (size_t)id >= v->ids || !v->tokens[id].present)
        return NULL;
    if (bytes)
        *bytes = v->tokens[id].bytes;
    return ddp_vocabulary_text(v, id);
}

bool ddp_tokenizer_is_special(const ddp_tokenizer *tokenizer, int32_t id)
{
    return ddp_tokenizer_token(tokenizer, id, NULL) && tokenizer->vocabulary.tokens[id].special;
}

/* --- tokenizer_config.json -------------------------------------------------------------------- */

/* The id of the token at a key, which is a string or an object with "content"; stays what it is
 * without one. */
static enum ddp_status read_token(const ddp_tokenizer *t, const char *name, const json_t *config,
                                  const char *key, int32_t *id)
{
    const json_t *value = json_object_get(config, key);
    if (json_is_object(value))
        value = json_object_get(value, "content");
    if (!value || json_is_null(value))
        return DDP_OK;
    if (!json_is_string(value))
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s is not a string", name, key);
    const int32_t found =
        ddp_tokenizer_find(t, json_string_value(value), json_string_length(value));
    if (found < 0)
        return ddp_fail(DDP_ERR_FORMAT, "%s: %s is \"%s\", which is not a token of %s", name, key,
                        json_string_value(value), t->path);
    *id = found;
    return DDP_OK;
}

/* Whether add_bos_token or add_eos_token is there: then it decides, not the template. */
static enum ddp_status read_frame(const json_t *config, const char *key, int32_t id, int32_t **ids,
                                  size_t *count)
{
    const json_t *value = json_object_get(config, key);
    if (!json_is_boolean(value))
        return DDP_OK;
    free(*ids);
    *ids = NULL;
    *count = 0;
    return json_is_true(value) && id >= 0 ? ddp_array_append(ids, count, &id, sizeof id) : DDP_OK;
}

/* A template is a string, or a list of {name, template} of which "default" counts. */
static enum ddp_status read_template(ddp_tokenizer *t, const char *name, const json_t *config)
{
    const json_t *text = json_object_get(config, "chat_template");
    for (size_t i = 0; json_is_array(text) && i < json_array_size(text); i++) {
        const json_t *one = json_array_get(text, i);
        const char *kind = json_string_value(json_object_get(one, "name"));
        if (kind && strcmp(kind, "default") == 0)
            text = json_object_get(one, "template");
    }
    if (!json_is_string(text))
        return DDP_OK;
    char *copy = strdup(json_string_value(text)), *file = strdup(name);
    if (!copy || !file) {
        free(copy);
        free(file);
        return ddp_fail(DDP_ERR_MEMORY, "out of memory: a chat template");
    }
    free(t->chat_template);
    free(t->chat_file);
    t->chat_template = copy;
    t->chat_file = file;
    return DDP_OK;
}

enum ddp_status ddp_tokenizer_configure(ddp_tokenizer *tokenizer, const char *name,
                                        const json_t *config)
{
    enum ddp_status status = read_token(tokenizer, name, config, "bos_token", &tokenizer->bos);
    if (status == DDP_OK)
        status = read_token(tokenizer, name, config, "eos_token", &tokenizer->eos);
    if (status == DDP_OK)
        status = read_frame(config, "add_bos_token", tokenizer->bos, &tokenizer->before,
                            &tokenizer->before_count);
    if (status == DDP_OK)
        status = read_frame(config, "add_eos_token", tokenizer->eos, &tokenizer->after,
                            &tokenizer->after_count);
    return status == DDP_OK ? read_template(tokenizer, name, config) : status;
}
