/* SPDX-License-Identifier: MIT
 *
 * Tokenizers for scripts:
 *   tokenizer_tool cases TOKENIZER     a JSON list of strings on stdin: a line for each, a list of
 *                                      ids as plain encoding, with special tokens as text, and with
 *                                      the template, and the decoded text of the first
 *   tokenizer_tool file TOKENIZER FILE THREADS [REPEATS]   the ids of a file, "1,2", on stdout; the
 *                                      speed on stderr
 *   tokenizer_tool chats TOKENIZER     a JSON list of {template, messages, add_generation_prompt}:
 *                                      stdin: a line for each, text, ids and mask
 *   tokenizer_tool jinja               a JSON object {template, data} on each line of stdin: a line
 *                                      for each, the text, or null: refused
 */
#include "config.h"

#include "core/clock.h"
#include "core/input_file.h"
#include "data/text/chat.h"
#include "data/text/jinja.h"

#include <stdlib.h>
#include <string.h>

static json_t *ids_json(const struct ddp_tokens *tokens)
{
    json_t *list = json_array();
    for (size_t i = 0; i < tokens->count; i++)
        json_array_append_new(list, json_integer(tokens->ids[i]));
    return list;
}

static json_t *decoded(const ddp_tokenizer *t, const struct ddp_tokens *tokens)
{
    ddp_decoder *decoder = NULL;
    json_t *whole = json_string("");
    char *all = calloc(1, 1);
    size_t used = 0;
    if (ddp_decoder_create(&decoder, t, false) != DDP_OK)
        exit(1);
    for (size_t i = 0; i <= tokens->count; i++) {
        const char *text;
        size_t bytes;
        enum ddp_status status = i < tokens->count
                                     ? ddp_decoder_next(decoder, &tokens->ids[i], 1, &text, &bytes)
                                     : ddp_decoder_end(decoder, &text, &bytes);
        if (status != DDP_OK)
            exit(1);
        all = realloc(all, used + bytes + 1);
        memcpy(all + used, text, bytes);
        used += bytes;
    }
    json_string_setn(whole, all, used);
    free(all);
    ddp_decoder_destroy(decoder);
    return whole;
}

static void print_json(json_t *value)
{
    json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
    putchar('\n');
    json_decref(value);
}

static int cases(const ddp_tokenizer *t, json_t *strings)
{
    static const unsigned flags[] = {0, DDP_ENCODE_AS_TEXT, DDP_ENCODE_BOS};
    for (size_t i = 0; i < json_array_size(strings); i++) {
        const json_t *string = json_array_get(strings, i);
        const struct ddp_text_part part = {json_string_value(string), json_string_length(string),
                                           "stdin", 0};
        json_t *line = json_array();
        for (size_t k = 0; k < 3; k++) {
            struct ddp_tokens tokens = {0};
            if (ddp_tokenizer_encode(t, &part, flags[k], &tokens) != DDP_OK)
                return 1;
            json_array_append_new(line, ids_json(&tokens));
            if (k == 0)
                json_array_append_new(line, decoded(t, &tokens));
            free(tokens.ids);
        }
        print_json(line);
    }
    return 0;
}

static int chats(const ddp_tokenizer *t, json_t *list)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i), *turns = json_object_get(one, "messages");
        struct ddp_chat_message messages[16];
        struct ddp_chat_text text = {0};
        struct ddp_tokens tokens = {0};
        struct ddp_buffer trained = {0};
        size_t count = json_array_size(turns);
        const bool prompt = json_is_true(json_object_get(one, "add_generation_prompt"));
        ddp_chat_template *chat = NULL;
        if (ddp_chat_template_choose(&chat, t,
                                     json_string_value(json_object_get(one, "template"))) != DDP_OK)
            return 1;
        for (size_t m = 0; m < count && m < 16; m++) {
            const json_t *turn = json_array_get(turns, m),
                         *content = json_object_get(turn, "content");
            messages[m] = (struct ddp_chat_message){
                json_string_value(json_object_get(turn, "role")), json_string_value(content),
                json_string_length(content), NULL};
        }
        const struct ddp_chat whole = {messages, count, NULL, prompt};
        if (ddp_chat_render(chat, "stdin", &whole, &text) != DDP_OK ||
            ddp_chat_encode(chat, t, "stdin", &whole, &tokens, &trained) != DDP_OK)
            return 1;
        json_t *line = json_array(), *mask = json_array();
        for (size_t k = 0; k < tokens.count; k++)
            json_array_append_new(mask, json_integer(trained.at[k]));
        json_array_append_new(line, json_stringn(text.text.at, text.text.bytes));
        json_array_append_new(line, ids_json(&tokens));
        json_array_append_new(line, mask);
        print_json(line);
        ddp_chat_template_close(chat);
        free(text.text.at);
        free(text.spans);
        free(tokens.ids);
        free(trained.at);
    }
    return 0;
}

static int encode_file(const ddp_tokenizer *t, const char *path, int threads, int repeats)
{
    char *text = NULL;
    size_t bytes = 0;
    struct ddp_tokens tokens = {0};
    if (ddp_input_file_read_whole(path, "too large", (size_t)1 << 32, &text, &bytes) != DDP_OK)
        return 1;
    const struct ddp_text_part part = {text, bytes, path, 0};
    const int64_t start = ddp_clock_ns();
    for (int i = 0; i < repeats; i++) {
        tokens.count = 0;
        if (ddp_tokenizer_encode_many(t, &part, 1, 0, threads, &tokens, NULL) != DDP_OK)
            return 1;
    }
    const double seconds = (double)(ddp_clock_ns() - start) * 1e-9;
    fprintf(stderr, "%.1f MB/s\n", (double)bytes * repeats / seconds * 1e-6);
    for (size_t i = 0; i < tokens.count; i++)
        printf(i > 0 ? ",%d" : "%d", tokens.ids[i]);
    free(tokens.ids);
    free(text);
    return 0;
}

static int templates(void)
{
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_t *one = json_loads(line, JSON_ALLOW_NUL, NULL);
        const json_t *text = json_object_get(one, "template");
        struct ddp_jinja_text out = {0};
        ddp_jinja *jinja = NULL;
        const bool is = ddp_jinja_parse(&jinja, "stdin", json_string_value(text),
                                        json_string_length(text)) == DDP_OK &&
                        ddp_jinja_render(jinja, "data", json_object_get(one, "data"), "messages",
                                         &out) == DDP_OK;
        print_json(is ? json_stringn(out.at, out.bytes) : json_null());
        ddp_jinja_free(jinja);
        free(out.at);
        free(out.owners);
        json_decref(one);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv)
{
    ddp_tokenizer *t = NULL;
    int result = 2;
    if (argc == 2 && strcmp(argv[1], "jinja") == 0)
        return templates();
    if (argc < 3 || ddp_tokenizer_open(&t, argv[2]) != DDP_OK)
        return 1;
    if (strcmp(argv[1], "file") == 0 && argc > 4) {
        result = encode_file(t, argv[3], atoi(argv[4]), argc > 5 ? atoi(argv[5]) : 1);
    } else {
        json_t *input = json_loadf(stdin, JSON_ALLOW_NUL, NULL);
        result = strcmp(argv[1], "cases") == 0 ? cases(t, input) : chats(t, input);
        json_decref(input);
    }
    ddp_tokenizer_close(t);
    return result;
}
