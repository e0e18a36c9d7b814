/* SPDX-License-Identifier: MIT
 *
 * See continuation.h. */
#include "config.h"

#include "generate/continuation.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "core/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define BYTE_VOCABULARY 256
#define PROMPT_MAX      (1 << 20) /* bytes of a prompt's file */

/* --prompt names a file or is the text itself. *text is freed with free(). */
static enum ddp_status read_prompt(const char *prompt, char **text, size_t *length)
{
    struct stat about;
    FILE *file = stat(prompt, &about) == 0 && S_ISREG(about.st_mode) ? fopen(prompt, "rb") : NULL;
    if (!file) {
        *text = strdup(prompt);
        *length = strlen(prompt);
        return *text ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "--prompt: out of memory");
    }
    char *bytes = malloc(PROMPT_MAX);
    const size_t got = bytes ? fread(bytes, 1, PROMPT_MAX, file) : 0;
    const bool failed = ferror(file), more = fgetc(file) != EOF;
    fclose(file);
    if (!bytes)
        return ddp_fail(DDP_ERR_MEMORY, "--prompt %s: out of memory", prompt);
    if (failed || more || got == 0) {
        free(bytes);
        return ddp_fail(DDP_ERR_IO, "--prompt %s: the file %s", prompt,
                        failed ? "cannot be read"
                        : more ? "is longer than a megabyte"
                               : "is empty");
    }
    *text = bytes;
    *length = got;
    return DDP_OK;
}

/* Numbers with spaces, commas or line ends between. */
static enum ddp_status parse_numbers(const char *flag, char *text, int64_t vocabulary,
                                     int32_t *tokens, int64_t *count)
{
    int64_t token;
    for (char *rest = text, *word; (word = strsep(&rest, " ,\t\r\n"));) {
        if (!*word)
            continue;
        if (!ddp_parse_int64(word, 0, vocabulary - 1, &token))
            return ddp_fail(DDP_ERR_INVALID,
                            "%s: '%s' is not a token: this model's tokens are numbers from 0 to "
                            "%" PRId64,
                            flag, word, vocabulary - 1);
        tokens[(*count)++] = (int32_t)token;
    }
    return DDP_OK;
}

/* `length` bytes of text, which is changed, and a zero behind them.
 *   tokens [out]  freed with free() */
static enum ddp_status make_tokens(const char *flag, char *text, size_t length, int64_t vocabulary,
                                   int32_t **tokens, int64_t *count)
{
    enum ddp_status status = DDP_OK;
    *count = 0;
    *tokens = ddp_array_alloc(length + 1, sizeof **tokens);
    if (!*tokens)
        return DDP_ERR_MEMORY;
    if (vocabulary == BYTE_VOCABULARY)
        for (size_t i = 0; i < length; i++)
            (*tokens)[(*count)++] = (unsigned char)text[i];
    else
        status = parse_numbers(flag, text, vocabulary, *tokens, count);
    if (status == DDP_OK && *count == 0)
        return vocabulary == BYTE_VOCABULARY
                   ? ddp_fail(DDP_ERR_INVALID, "%s: the text is empty", flag)
                   : ddp_fail(DDP_ERR_INVALID,
                              "%s: give at least one token, a number from 0 to %" PRId64, flag,
                              vocabulary - 1);
    return status;
}

/* --- with a tokenizer ------------------------------------------------------------------------- */

/* The template of the model; NULL: it has none, or one that does not work, which a note says. */
static ddp_chat_template *find_template(const ddp_tokenizer *tokenizer)
{
    char said[1024] = "";
    ddp_chat_template *chat = NULL;
    const char *file;
    const struct ddp_log_held before = ddp_log_exchange((struct ddp_log_held){said, sizeof said});
    const enum ddp_status status = ddp_chat_template_choose(&chat, tokenizer, NULL);
    ddp_log_exchange(before);
    if (status != DDP_OK && ddp_tokenizer_chat_template(tokenizer, &file))
        ddp_log(DDP_LOG_INFO, "note: %s, or none: the prompt is continued as plain text", said);
    return status == DDP_OK ? chat : NULL;
}

/* What ends a text, and what ends a turn of the template; *chat is NULL for plain text. */
static enum ddp_status find_ends(struct ddp_continuation *c,
                                 const struct ddp_train_options *options, ddp_chat_template **chat)
{
    const char *name = options->chat_template;
    enum ddp_status status = DDP_OK;
    if (name && strcmp(name, "none") != 0)
        status = ddp_chat_template_choose(chat, c->tokenizer, name);
    else if (!name)
        *chat = find_template(c->tokenizer);
    c->end_tokens[0] = ddp_tokenizer_eos(c->tokenizer);
    if (status == DDP_OK && *chat)
        c->end_tokens[1] = ddp_chat_template_end(*chat);
    return status;
}

static enum ddp_status encode(struct ddp_continuation *c, const ddp_chat_template *chat,
                              const char *text, size_t length)
{
    struct ddp_tokens tokens = {0};
    struct ddp_buffer trained = {0};
    enum ddp_status status;
    if (chat) {
        const struct ddp_chat_message message = {"user", text, length, NULL};
        const struct ddp_chat asked = {&message, 1, NULL, true};
        status = ddp_chat_encode(chat, c->tokenizer, "--prompt", &asked, &tokens, &trained);
    } else {
        const struct ddp_text_part part = {.at = text, .bytes = length, .name = "--prompt"};
        status = ddp_tokenizer_encode(c->tokenizer, &part, DDP_ENCODE_BOS, &tokens);
    }
    free(trained.at);
    c->prompt = tokens.ids;
    c->prompt_count = (int64_t)tokens.count;
    return status;
}

static enum ddp_status check_prompt(const struct ddp_continuation *c, int64_t vocabulary)
{
    if (c->prompt_count == 0)
        return ddp_fail(DDP_ERR_INVALID, "--prompt: the text is empty");
    for (int64_t i = 0; i < c->prompt_count; i++)
        if (c->prompt[i] >= vocabulary)
            return ddp_fail(DDP_ERR_INVALID,
                            "--prompt: encoded, it has token %" PRId32
                            ": the model's vocabulary has %" PRId64
                            " tokens, from 0: give the tokenizer of this model",
                            c->prompt[i], vocabulary);
    return DDP_OK;
}

/* Without a prompt a text begins: with bos, or where there is none behind the end of another. */
static enum ddp_status read_encoded(struct ddp_continuation *c,
                                    const struct ddp_train_options *options, int64_t vocabulary)
{
    ddp_chat_template *chat = NULL;
    const int32_t bos = ddp_tokenizer_bos(c->tokenizer), eos = ddp_tokenizer_eos(c->tokenizer);
    char *text = NULL;
    size_t length = 0;
    enum ddp_status status = find_ends(c, options, &chat);
    c->stop_text = options->stop;
    if (status == DDP_OK)
        status = ddp_decoder_create(&c->decoder, c->tokenizer, true);
    if (status == DDP_OK && !options->prompt && (bos >= 0 || eos >= 0)) {
        c->prompt = ddp_array_alloc(1, sizeof *c->prompt);
        status = c->prompt ? DDP_OK : DDP_ERR_MEMORY;
        if (c->prompt)
            c->prompt[c->prompt_count++] = bos >= 0 ? bos : eos;
    } else if (status == DDP_OK) {
        status = read_prompt(options->prompt ? options->prompt : "\n", &text, &length);
        if (status == DDP_OK)
            status = encode(c, chat, text, length);
        free(text);
    }
    ddp_chat_template_close(chat);
    return status == DDP_OK ? check_prompt(c, vocabulary) : status;
}

/* Has the newest token of a sample completed --stop? What the newest tokens say is looked at: as
 * many as the text can be made of. */
static bool says_stop(struct ddp_continuation *c, const int32_t *tokens, int64_t count)
{
    const int64_t most = (int64_t)strlen(c->stop_text) + 1;
    const int64_t begin = count - c->prompt_count > most ? count - most : c->prompt_count;
    const char *text = "", *rest;
    size_t bytes = 0, more;
    bool found = false;
    if (ddp_decoder_next(c->decoder, tokens + begin, (size_t)(count - begin), &text, &bytes) ==
        DDP_OK)
        found = memmem(text, bytes, c->stop_text, strlen(c->stop_text)) != NULL;
    (void)ddp_decoder_end(c->decoder, &rest, &more);
    return found;
}

/* --- opening ---------------------------------------------------------------------------------- */

static enum ddp_status read_texts(struct ddp_continuation *c,
                                  const struct ddp_train_options *options, int64_t vocabulary)
{
    char *text = NULL;
    size_t length = 0;
    const char *prompt = options->prompt ? options->prompt : c->is_text ? "\n" : "0";
    if (c->tokenizer)
        return read_encoded(c, options, vocabulary);
    enum ddp_status status = read_prompt(prompt, &text, &length);
    if (status == DDP_OK)
        status = make_tokens("--prompt", text, length, vocabulary, &c->prompt, &c->prompt_count);
    free(text);
    if (status != DDP_OK || !options->stop)
        return status;
    text = strdup(options->stop);
    status = text ? make_tokens("--stop", text, strlen(text), vocabulary, &c->stop, &c->stop_count)
                  : ddp_fail(DDP_ERR_MEMORY, "--stop: out of memory");
    free(text);
    return status;
}

enum ddp_status ddp_continuation_open(struct ddp_continuation *c,
                                      const struct ddp_train_options *options,
                                      const ddp_tokenizer *tokenizer, const struct ddp_model *model,
                                      const struct ddp_model_config *config, ddp_device *device,
                                      const float *weights, const struct ddp_frozen *frozen,
                                      int64_t length)
{
    *c = (struct ddp_continuation){.samples = options->samples,
                                   .length = length,
                                   .tokenizer = tokenizer,
                                   .is_text = !tokenizer && config->classes == BYTE_VOCABULARY,
                                   .end_tokens = {-1, -1}};
    enum ddp_status status = read_texts(c, options, config->classes);
    c->ends = ddp_array_alloc((size_t)c->samples, sizeof *c->ends);
    if (status == DDP_OK && !c->ends)
        status = DDP_ERR_MEMORY;
    if (status != DDP_OK)
        return status;
    const struct ddp_generator_config generator = {
        .model = model,
        .model_config = config,
        .device = device,
        .weights = weights,
        .frozen = frozen,
        .samples = c->samples,
        .prompt_count = c->prompt_count,
        .length = length,
        .temperature = options->temperature,
        .top_k = options->top_k,
        .seed = options->seed,
    };
    status = ddp_generator_create(&c->generator, &generator);
    if (status == DDP_OK)
        ddp_continuation_begin(c);
    return status;
}

void ddp_continuation_close(struct ddp_continuation *c)
{
    ddp_generator_destroy(c->generator);
    ddp_decoder_destroy(c->decoder);
    free(c->prompt);
    free(c->stop);
    free(c->ends);
    *c = (struct ddp_continuation){.samples = 0};
}

void ddp_continuation_begin(struct ddp_continuation *c)
{
    ddp_generator_begin(c->generator, c->prompt);
    memset(c->ends, 0, (size_t)c->samples * sizeof *c->ends);
    c->ending = 0;
}

bool ddp_continuation_goes_on(const struct ddp_continuation *c)
{
    return c->ending < c->samples &&
           ddp_generator_count(c->generator) < c->prompt_count + c->length;
}

/* Is the newest of what was added to the prompt what --stop names, or an end? */
static bool stops(struct ddp_continuation *c, int64_t sample)
{
    const int64_t count = ddp_generator_count(c->generator);
    const int32_t *tokens = ddp_generator_tokens(c->generator, sample);
    for (int i = 0; i < 2; i++)
        if (tokens[count - 1] == c->end_tokens[i])
            return true;
    if (c->stop_text)
        return says_stop(c, tokens, count);
    return c->stop_count > 0 && count - c->prompt_count >= c->stop_count &&
           memcmp(tokens + count - c->stop_count, c->stop,
                  (size_t)c->stop_count * sizeof *tokens) == 0;
}

enum ddp_status ddp_continuation_next(struct ddp_continuation *c)
{
    const enum ddp_status status = ddp_generator_next(c->generator);
    for (int64_t i = 0; status == DDP_OK && i < c->samples; i++)
        if (c->ends[i] == 0 && stops(c, i)) {
            c->ends[i] = ddp_generator_count(c->generator);
            c->ending++;
            ddp_generator_end(c->generator, i);
        }
    return status;
}

const int32_t *ddp_continuation_tokens(const struct ddp_continuation *c, int64_t sample,
                                       int64_t *count)
{
    *count = c->ends[sample] > 0 ? c->ends[sample] : ddp_generator_count(c->generator);
    return ddp_generator_tokens(c->generator, sample);
}

/* Lines are cleaned one by one: what stands between them stays. */
static void clean_lines(char *out, size_t size, const char *text, size_t bytes)
{
    for (size_t at = 0; at <= bytes;) {
        const char *end = memchr(text + at, '\n', bytes - at);
        const size_t line = end ? (size_t)(end - text) - at : bytes - at;
        const size_t used = ddp_text_clean(out, size, text + at, line);
        out += used;
        size -= used;
        at += line + 1;
        if (end) {
            *out++ = '\n';
            size--;
        }
    }
    *out = '\0';
}

/* Of the tokenizer's text. */
static char *decode(const struct ddp_continuation *c, const int32_t *tokens, int64_t count)
{
    const char *part, *end = "";
    size_t bytes = 0, end_bytes = 0;
    char *text = NULL, *copy = NULL;
    if (ddp_decoder_next(c->decoder, tokens, (size_t)count, &part, &bytes) == DDP_OK &&
        (copy = ddp_array_alloc(bytes + 1, 1)))
        memcpy(copy, part, bytes);
    if (ddp_decoder_end(c->decoder, &end, &end_bytes) == DDP_OK && copy &&
        (text = ddp_array_alloc(6 * (bytes + end_bytes) + 1, 1))) {
        const size_t room = 6 * (bytes + end_bytes) + 1;
        clean_lines(text, room, copy, bytes);
        clean_lines(text + strlen(text), room - strlen(text), end, end_bytes);
    }
    free(copy);
    return text;
}

char *ddp_continuation_text(const struct ddp_continuation *c, int64_t sample)
{
    int64_t count;
    const int32_t *tokens = ddp_continuation_tokens(c, sample, &count);
    if (c->tokenizer)
        return decode(c, tokens, count);
    const size_t room = 12 * (size_t)count + 1; /* a number and a space; a byte as \x1b or \u009b */
    char *text = ddp_array_alloc(room, 1);
    char *bytes = c->is_text ? ddp_array_alloc((size_t)count, 1) : NULL;
    if (text && bytes) {
        for (int64_t i = 0; i < count; i++)
            bytes[i] = (char)tokens[i];
        clean_lines(text, room, bytes, (size_t)count);
    } else if (text && !c->is_text) {
        for (int64_t i = 0, used = 0; i < count; i++)
            used +=
                snprintf(text + used, room - (size_t)used, "%s%" PRId32, i ? " " : "", tokens[i]);
    } else {
        free(text);
        text = NULL;
    }
    free(bytes);
    return text;
}
