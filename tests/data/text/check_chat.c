/* SPDX-License-Identifier: MIT
 *
 * data/text/chat: texts, ids and masks are those of Jinja and the `tokenizers` library; templates
 * are recognised; bad chats. */
#include "config.h"

#include "data/text/chat.h"
#include "tests/lib/messages.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "tests/data/text/tokenizer_test.h"

static struct ddp_chat_message message(const char *role, const char *content)
{
    return (struct ddp_chat_message){role, content, strlen(content)};
}

/* --- golden --- */

static void check_chat(const struct golden *g)
{
    const ddp_tokenizer *t = tokenizer_named(g->words[1]);
    const ddp_chat_template *chat = ddp_chat_template_find(g->words[2]);
    const bool prompt = g->words[3][0] == '1';
    struct ddp_chat_message turns[8];
    size_t count = 0;
    ck_assert_ptr_nonnull(chat);
    for (int i = 4; i + 1 < g->word_count; i += 2) {
        const struct ddp_text_part part = from_hex(g->words[i + 1]);
        turns[count++] = (struct ddp_chat_message){g->words[i], part.at, part.bytes};
    }
    struct ddp_chat_text text = {0};
    ck_assert_int_eq(ddp_chat_render(chat, "a chat", turns, count, prompt, &text), DDP_OK);
    ck_assert_msg(strcmp(text.text.at, from_hex(g->answer[0]).at) == 0, "%s:\n%s", g->name,
                  text.text.at);

    struct ddp_tokens tokens = {0};
    struct ddp_buffer trained = {0};
    for (int twice = 0; twice < 2; twice++) { /* the second one behind the first */
        const size_t before = tokens.count;
        ck_assert_int_eq(
            ddp_chat_encode(chat, t, "a chat", turns, count, prompt, &tokens, &trained), DDP_OK);
        ck_assert_msg(
            strcmp(ids_shown(tokens.ids + before, tokens.count - before), answer_shown(g, 1)) == 0,
            "%s:\n%s\n%s", g->name, ids_shown(tokens.ids, tokens.count), answer_shown(g, 1));
        const char *mask = g->answer[g->answer_count - 1];
        ck_assert_uint_eq(strlen(mask), tokens.count - before);
        for (size_t i = 0; mask[i]; i++)
            ck_assert_msg(trained.at[before + i] == mask[i] - '0', "%s: token %zu of %s", g->name,
                          i, mask);
    }
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
    const ddp_chat_template *chat = NULL;
    const char *file = NULL;
    ddp_tokenizer *t = open_with_template("chat_template.jinja", CHATML_JINJA "\n");
    ck_assert_int_eq(ddp_chat_template_choose(&chat, t, NULL), DDP_OK);
    ck_assert_str_eq(ddp_chat_template_name(chat), "chatml");
    ck_assert_str_eq(ddp_tokenizer_chat_template(t, &file), CHATML_JINJA "\n");
    ck_assert_str_eq(file, scratch_path("chat_template.jinja"));
    ck_assert_int_eq(ddp_chat_template_end(chat, t), ddp_tokenizer_find(t, "<|im_end|>", 10));
    ck_assert_int_eq(ddp_chat_template_choose(&chat, t, "llama3.1"), DDP_OK);
    ck_assert_str_eq(ddp_chat_template_name(chat), "llama3.1");
    ddp_tokenizer_close(t);

    t = open_with_template("tokenizer_config.json", "{\"chat_template\": \"{{ other }}\"}");
    ck_assert_int_eq(ddp_chat_template_choose(&chat, t, NULL), DDP_OK); /* the file goes first */
    ddp_tokenizer_close(t);
    unlink(scratch_path("chat_template.jinja"));
    ck_assert_int_eq(ddp_tokenizer_open(&t, scratch), DDP_OK);
    ck_assert_int_eq(ddp_chat_template_choose(&chat, t, NULL), DDP_ERR_INVALID);
    expect_message("tokenizer_config.json: its chat template (hash ");
    ddp_tokenizer_close(t);
}
END_TEST

START_TEST(test_choose_refused)
{
    catch_messages();
    const ddp_chat_template *chat = NULL;
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
    const ddp_chat_template *chat = ddp_chat_template_find("chatml");
    struct ddp_chat_text text = {0};
    struct ddp_chat_message turns[] = {message("user", "hi"), message("tool", "x")};
    ck_assert_int_eq(ddp_chat_render(chat, "f: line 3", turns, 0, false, &text), DDP_ERR_FORMAT);
    expect_message("f: line 3: the chat has no messages");
    ck_assert_int_eq(ddp_chat_render(chat, "f: line 3", turns, 2, false, &text), DDP_ERR_FORMAT);
    expect_message("f: line 3: message 2 has the role \"tool\"");
    turns[1] = message("assistant", "ab\xff");
    ck_assert_int_eq(ddp_chat_render(chat, "f: line 3", turns, 2, false, &text), DDP_ERR_FORMAT);
    expect_message("f: line 3: message 2: byte 2 (0xff) is not UTF-8");
    free(text.text.at);
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
    tcase_add_test(other, test_bad_chats);
    tcase_add_test(other, test_unknown_characters);
    suite_add_tcase(suite, other);
    return suite;
}
