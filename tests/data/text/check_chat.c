/* SPDX-License-Identifier: MIT
 *
 * data/text/chat: texts, ids and masks are those of Jinja and the `tokenizers` library; the model's
 * own templates; bad chats. */
#include "config.h"

#include "data/text/chat.h"
#include "tests/lib/messages.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "tests/data/text/tokenizer_test.h"

static struct ddp_chat_message message(const char *role, const char *content)
{
    return (struct ddp_chat_message){role, content, strlen(content), NULL};
}

/* --- golden --- */

static void check_chat(const struct golden *g)
{
    const ddp_tokenizer *t = tokenizer_named(g->words[1]);
    ddp_chat_template *chat = NULL;
    struct ddp_chat_message turns[8];
    size_t count = 0;
    ck_assert_int_eq(ddp_chat_template_choose(&chat, t, g->words[2]), DDP_OK);
    for (int i = 4; i + 1 < g->word_count; i += 2) {
        const struct ddp_text_part part = from_hex(g->words[i + 1]);
        turns[count++] = (struct ddp_chat_message){g->words[i], part.at, part.bytes, NULL};
    }
    const struct ddp_chat whole = {turns, count, NULL, g->words[3][0] == '1'};
    struct ddp_chat_text text = {0};
    ck_assert_int_eq(ddp_chat_render(chat, "a chat", &whole, &text), DDP_OK);
    ck_assert_msg(strcmp(text.text.at, from_hex(g->answer[0]).at) == 0, "%s:\n%s", g->name,
                  text.text.at);

    struct ddp_tokens tokens = {0};
    struct ddp_buffer trained = {0};
    for (int twice = 0; twice < 2; twice++) { /* the second one behind the first */
        const size_t before = tokens.count;
        ck_assert_int_eq(ddp_chat_encode(chat, t, "a chat", &whole, &tokens, &trained), DDP_OK);
        ck_assert_msg(
            strcmp(ids_shown(tokens.ids + before, tokens.count - before), answer_shown(g, 1)) == 0,
            "%s:\n%s\n%s", g->name, ids_shown(tokens.ids, tokens.count), answer_shown(g, 1));
        const char *mask = g->answer[g->answer_count - 1];
        ck_assert_uint_eq(strlen(mask), tokens.count - before);
        for (size_t i = 0; mask[i]; i++)
            ck_assert_msg(trained.at[before + i] == mask[i] - '0', "%s: token %zu of %s", g->name,
                          i, mask);
    }
    ddp_chat_template_close(chat);
    free(text.text.at);
    free(text.spans);
    free(tokens.ids);
    free(trained.at);
}

START_TEST(test_golden)
{
    FILE *file = golden_open("data/text/golden/chats.txt");
    struct golden g;
    int count = 0;
    for (; golden_next(file, &g); golden_free(&g), count++)
        check_chat(&g);
    fclose(file);
    ck_assert_int_gt(count, 100);
    tokenizer_named("");
}
END_TEST

/* --- choosing --- */

static ddp_tokenizer *open_with_template(const char *name, const char *text)
{
    size_t bytes = 0;
    ddp_tokenizer *t = NULL;
    FILE *from = fopen(tokenizer_path("qwen"), "rb"), *to;
    char *copy = malloc(1 << 16);
    ck_assert_ptr_nonnull(from);
    bytes = fread(copy, 1, 1 << 16, from);
    fclose(from);
    to = fopen(scratch_path("tokenizer.json"), "wb");
    ck_assert_uint_eq(fwrite(copy, 1, bytes, to), bytes);
    fclose(to);
    free(copy);
    scratch_write(name, text, strlen(text));
    ck_assert_int_eq(ddp_tokenizer_open(&t, scratch), DDP_OK);
    return t;
}

#define CHATML_JINJA                                                                               \
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] " \
    "+ '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ "                         \
    "'<|im_start|>assistant\n' }}{% endif %}"

START_TEST(test_choose_own)
{
    catch_messages();
    ddp_chat_template *chat = NULL;
    const char *file = NULL;
    ddp_tokenizer *t = open_with_template("chat_template.jinja", CHATML_JINJA "\n");
    ck_assert_int_eq(ddp_chat_template_choose(&chat, t, NULL), DDP_OK);
    ck_assert_str_eq(ddp_chat_template_name(chat), scratch_path("chat_template.jinja"));
    ck_assert_str_eq(ddp_tokenizer_chat_template(t, &file), CHATML_JINJA "\n");
    ck_assert_str_eq(file, scratch_path("chat_template.jinja"));
    ck_assert_int_eq(ddp_chat_template_end(chat), ddp_tokenizer_find(t, "<|im_end|>", 10));
    ddp_chat_template_close(chat);
    ck_assert_int_eq(ddp_chat_template_choose(&chat, t, "llama3.1"), DDP_OK);
    ck_assert_str_eq(ddp_chat_template_name(chat), "llama3.1");
    ddp_chat_template_close(chat);
    ck_assert_int_eq(ddp_chat_template_choose(&chat, t, scratch_path("chat_template.jinja")),
                     DDP_OK);
    ddp_chat_template_close(chat);
    ddp_tokenizer_close(t);

    t = open_with_template("tokenizer_config.json", "{\"chat_template\": \"{{ other }}\"}");
    ck_assert_int_eq(ddp_chat_template_choose(&chat, t, NULL), DDP_OK); /* the file goes first */
    ddp_chat_template_close(chat);
    ddp_tokenizer_close(t);
    unlink(scratch_path("chat_template.jinja"));
    ck_assert_int_eq(ddp_tokenizer_open(&t, scratch), DDP_OK);
    ck_assert_int_eq(ddp_chat_template_choose(&chat, t, NULL), DDP_ERR_INVALID);
    expect_message("tokenizer_config.json: the chat template does not write what the assistant");
    ddp_tokenizer_close(t);
}
END_TEST

/* A chat with a template of its own: which bytes of the text are learned, in brackets, as the
 * tokens say. */
static const char *learned(const char *template, const struct ddp_chat *chat)
{
    static char shown[1024];
    ddp_chat_template *chosen = NULL;
    struct ddp_tokens tokens = {0};
    struct ddp_buffer trained = {0};
    ddp_tokenizer *t = open_with_template("chat_template.jinja", template);
    ddp_decoder *decoder = NULL;
    size_t used = 0;
    ck_assert_int_eq(ddp_chat_template_choose(&chosen, t, NULL), DDP_OK);
    ck_assert_int_eq(ddp_chat_encode(chosen, t, "a chat", chat, &tokens, &trained), DDP_OK);
    ck_assert_int_eq(ddp_decoder_create(&decoder, t, false), DDP_OK);
    for (size_t i = 0; i < tokens.count; i++) {
        const char *text;
        size_t bytes;
        const bool was = i > 0 && trained.at[i - 1],
                   will = i + 1 < tokens.count && trained.at[i + 1];
        ck_assert_int_eq(ddp_decoder_next(decoder, &tokens.ids[i], 1, &text, &bytes), DDP_OK);
        used += (size_t)snprintf(shown + used, sizeof shown - used, "%s%.*s%s",
                                 trained.at[i] && !was ? "[" : "", (int)bytes, text,
                                 trained.at[i] && !will ? "]" : "");
    }
    ddp_decoder_destroy(decoder);
    ddp_chat_template_close(chosen);
    ddp_tokenizer_close(t);
    free(tokens.ids);
    free(trained.at);
    return shown;
}

#define END "<|im_end|>"
#define OF_ROLES(answer)                                                                           \
    "{% for m in messages %}{% if m.role == 'user' %}U{{ m.content }}{{ '" END "' }}"              \
    "{% elif m.role == 'assistant' %}" answer "{% endif %}{% endfor %}"                            \
    "{% if add_generation_prompt %}A<think>{% endif %}"

/* What begins a turn is what an answer is asked with, as far as it is there; what ends it, the
 * token that ends each; or all that the template names. */
START_TEST(test_learned)
{
    struct ddp_chat_message turns[] = {message("user", "12"), message("assistant", "34"),
                                       message("user", "5"), message("assistant", "")};
    struct ddp_chat chat = {.messages = turns, .count = 4};
    ck_assert_str_eq(learned(OF_ROLES("A{{ m.content }}" END), &chat),
                     "U12" END "A[34" END "]U5" END "A[" END "]");
    ck_assert_str_eq(learned(OF_ROLES("A<think></think>{{ m.content | trim }}!" END "\n"), &chat),
                     "U12" END "A<think>[</think>34!" END "]\nU5" END "A<think>[</think>!" END
                     "]\n");
    /* Not the text of another message, nor what follows a turn without an end. */
    ck_assert_str_eq(learned(OF_ROLES("A{{ m.content }}."), &chat), "U12" END "A[34]."
                                                                    "U5" END "A.");
    ck_assert_str_eq(
        learned(OF_ROLES("A{% generation %}{{ m.content + '9' }}{% endgeneration %}" END), &chat),
        "U12" END "A[349]" END "U5" END "A[9]" END);
    /* Calls are the assistant's, with what the template writes around them. */
    json_t *more = json_pack("{s:[{s:{s:s,s:{s:i}}}]}", "tool_calls", "function", "name", "f",
                             "arguments", "a", 7);
    turns[1] = (struct ddp_chat_message){"assistant", "", 0, more};
    chat.count = 2;
    ck_assert_str_eq(
        learned(
            OF_ROLES("A{{ m.content }}{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}"
                     "={{ c.function.arguments | tojson }}</call>{% endfor %}" END),
            &chat),
        "U12" END "A[<call>f={\"a\": 7}</call>" END "]");
    json_decref(more);
}
END_TEST

/* What a template never reads is not left out without a word. */
START_TEST(test_tools)
{
    catch_messages();
    json_t *tools = json_pack("[{s:s}]", "type", "function");
    json_t *more = json_pack("{s:[{}]}", "tool_calls");
    struct ddp_chat_message turns[] = {message("user", "x"), message("assistant", "y")};
    struct ddp_chat chat = {.messages = turns, .count = 2, .tools = tools};
    struct ddp_chat_text text = {0};
    ddp_chat_template *chatml = NULL;
    const ddp_tokenizer *t = tokenizer_named("qwen");
    ck_assert_int_eq(ddp_chat_template_choose(&chatml, t, "chatml"), DDP_OK);
    ck_assert_int_eq(ddp_chat_render(chatml, "f: line 3", &chat, &text), DDP_ERR_FORMAT);
    expect_message("f: line 3: it has tools, which the chat template chatml does not write");
    chat.tools = NULL;
    turns[1].more = more;
    ck_assert_int_eq(ddp_chat_render(chatml, "f: line 3", &chat, &text), DDP_ERR_FORMAT);
    expect_message("f: line 3: it has tool_calls, which");
    ddp_chat_template_close(chatml);
    free(text.text.at);
    json_decref(tools);
    json_decref(more);
    tokenizer_named("");
}
END_TEST

START_TEST(test_choose_refused)
{
    catch_messages();
    ddp_chat_template *chat = NULL;
    ck_assert_int_eq(ddp_chat_template_choose(&chat, tokenizer_named("gpt2"), NULL),
                     DDP_ERR_INVALID);
    expect_message("no chat template beside it: choose one with --chat-template (chatml, ");
    ck_assert_int_eq(ddp_chat_template_choose(&chat, tokenizer_named("gpt2"), "qwen4"),
                     DDP_ERR_INVALID);
    expect_message("--chat-template qwen4: chats need one of chatml, ");
    ck_assert_int_eq(ddp_chat_template_choose(&chat, tokenizer_named("gpt2"), "llama3"),
                     DDP_ERR_INVALID);
    expect_message("no token <|begin_of_text|>");
    ck_assert_ptr_null(chat);
    tokenizer_named("");
}
END_TEST

/* --- bad chats --- */

START_TEST(test_bad_chats)
{
    catch_messages();
    ddp_chat_template *chatml = NULL;
    struct ddp_chat_text text = {0};
    struct ddp_chat_message turns[] = {message("user", "hi"), message("function", "x")};
    struct ddp_chat chat = {.messages = turns};
    ck_assert_int_eq(ddp_chat_template_choose(&chatml, tokenizer_named("qwen"), "chatml"), DDP_OK);
    ck_assert_int_eq(ddp_chat_render(chatml, "f: line 3", &chat, &text), DDP_ERR_FORMAT);
    expect_message("f: line 3: the chat has no messages");
    chat.count = 2;
    ck_assert_int_eq(ddp_chat_render(chatml, "f: line 3", &chat, &text), DDP_ERR_FORMAT);
    expect_message("f: line 3: message 2 has the role \"function\"");
    turns[1] = message("assistant", "ab\xff");
    ck_assert_int_eq(ddp_chat_render(chatml, "f: line 3", &chat, &text), DDP_ERR_FORMAT);
    expect_message("f: line 3: message 2: byte 2 (0xff) is not UTF-8");
    ddp_chat_template_close(chatml);
    free(text.text.at);
    tokenizer_named("");
}
END_TEST

/* Where characters have no token, nobody can tell which tokens are the assistant's. */
START_TEST(test_unknown_characters)
{
    catch_messages();
    const size_t marks[] = {1, 2};
    size_t first[2];
    struct ddp_tokens tokens = {0};
    const struct ddp_text_part part = text_part("a\u0416b");
    ck_assert_int_eq(
        ddp_tokenizer_encode_marked(tokenizer_named("unknown"), &part, 0, marks, 2, &tokens, first),
        DDP_ERR_UNSUPPORTED);
    expect_message("characters that the vocabulary lacks");
    ck_assert_uint_eq(tokens.count, 0);
    free(tokens.ids);
    tokenizer_named("");
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("chat");
    TCase *golden = tcase_create("golden");
    tcase_add_test(golden, test_golden);
    suite_add_tcase(suite, golden);
    TCase *other = tcase_create("choice");
    tcase_add_unchecked_fixture(other, scratch_make, scratch_remove);
    tcase_add_checked_fixture(other, scratch_clear, NULL);
    tcase_add_test(other, test_choose_own);
    tcase_add_test(other, test_choose_refused);
    tcase_add_test(other, test_learned);
    tcase_add_test(other, test_tools);
    tcase_add_test(other, test_bad_chats);
    tcase_add_test(other, test_unknown_characters);
    suite_add_tcase(suite, other);
    return suite;
}
