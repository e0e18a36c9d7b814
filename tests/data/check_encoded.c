/* SPDX-License-Identifier: MIT
 *
 * What chats are made of before they are samples: lines of files, records, the file of encoded
 * texts, and the packing of rows. */
#include "config.h"

#include "core/rng.h"
#include "data/encode.h"
#include "data/line_reader.h"
#include "data/packing.h"
#include "data/record.h"
#include "data/token_file.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <endian.h>
#include <inttypes.h>

static void put(const char *name, const char *text)
{
    scratch_write(name, text, strlen(text));
}

/* --- packing --- */

/* Each document once, rows not too long, in the order of their first document. Returns the rows. */
static int64_t check_rows(const int32_t *lengths, int64_t count, int64_t row_length, bool alone)
{
    static bool seen[5000];
    struct ddp_packing packing;
    int64_t first = -1, listed = 0;
    memset(seen, 0, sizeof seen);
    ck_assert_int_eq(ddp_packing_make(&packing, lengths, count, row_length, alone), DDP_OK);
    for (int64_t row = 0; row < packing.row_count; row++) {
        int64_t used = 0, before = -1;
        ck_assert_int_lt(packing.begins[row], packing.begins[row + 1]);
        ck_assert_int_gt(packing.documents[packing.begins[row]], first);
        first = packing.documents[packing.begins[row]];
        for (int64_t i = packing.begins[row]; i < packing.begins[row + 1]; i++, listed++) {
            const int64_t document = packing.documents[i];
            ck_assert(document > before && document < count && !seen[document]);
            seen[document] = true;
            used += lengths[document];
            before = document;
        }
        ck_assert_int_le(used, row_length);
    }
    ck_assert_int_eq(listed, count);
    const int64_t rows = packing.row_count;
    ddp_packing_free(&packing);
    return rows;
}

START_TEST(rows_are_full)
{
    static const int32_t halves[] = {3, 5, 4, 4, 2, 6}, whole[] = {8, 8, 8}, one[] = {1};
    static const int32_t poor[] = {4, 4, 4, 5, 5, 5}; /* of 9: taken as they come, four rows */
    ck_assert_int_eq(check_rows(halves, 6, 8, false), 3);
    ck_assert_int_eq(check_rows(halves, 6, 8, true), 6);
    ck_assert_int_eq(check_rows(whole, 3, 8, false), 3);
    ck_assert_int_eq(check_rows(one, 1, 8, false), 1);
    ck_assert_int_eq(check_rows(one, 1, 1, false), 1);
    ck_assert_int_eq(check_rows(poor, 6, 9, false), 3);
    ck_assert_int_eq(check_rows(one, 0, 8, false), 0);
}
END_TEST

START_TEST(rows_of_random_documents)
{
    static int32_t lengths[5000];
    struct ddp_rng rng;
    for (uint64_t seed = 0; seed < 40; seed++) {
        ddp_rng_seed(&rng, seed);
        const int64_t count = 1 + (int64_t)(ddp_rng_u64(&rng) % 5000);
        const int64_t row = 1 + (int64_t)(ddp_rng_u64(&rng) % 300);
        int64_t sum = 0;
        for (int64_t i = 0; i < count; i++)
            sum += lengths[i] = 1 + (int32_t)(ddp_rng_u64(&rng) % (uint64_t)row);
        /* No two rows would fit into one. */
        ck_assert_int_le(check_rows(lengths, count, row, false) * row, 2 * sum + row);
        check_rows(lengths, count, row, true);
        for (int64_t i = 0; i < count; i++) /* small ones leave nothing open but the last row */
            lengths[i] = 1;
        ck_assert_int_eq(check_rows(lengths, count, row, false), (count + row - 1) / row);
    }
}
END_TEST

/* --- the file of encoded texts --- */

/* 1000 documents of 0, 1, 2 ... 9 tokens. */
static void write_encoded(struct ddp_encoded *encoded, const char *path)
{
    ddp_encoded_writer *writer;
    uint32_t tokens[10];
    ck_assert_int_eq(ddp_encoded_writer_open(&writer, path, 4), DDP_OK);
    for (uint32_t i = 0; i < 1000; i++) {
        const struct ddp_encoded_document place = {.file = i / 500, .line = i + 1};
        for (uint32_t k = 0; k < i % 10; k++)
            tokens[k] = (i + k) | (k % 2 ? DDP_ENCODED_TRAINED : 0);
        ck_assert_int_eq(ddp_encoded_writer_add(writer, tokens, i % 10, &place), DDP_OK);
    }
    ck_assert_int_eq(ddp_encoded_writer_finish(writer, 77, 12345, encoded), DDP_OK);
    ck_assert(!ddp_encoded_writer_failed(writer));
    ddp_encoded_writer_close(writer);
}

static void check_encoded(struct ddp_encoded *encoded)
{
    struct ddp_encoded_document *documents;
    uint32_t tokens[10];
    ck_assert_int_eq(encoded->facts.token_count, 4500);
    ck_assert_int_eq(encoded->facts.document_count, 1000);
    ck_assert_int_eq(encoded->facts.text_bytes, 12345);
    ck_assert_int_eq(encoded->facts.largest, 999 + 8);
    ck_assert_int_eq(encoded->facts.width, 4);
    ck_assert_int_eq(ddp_encoded_documents(encoded, &documents), DDP_OK);
    for (uint32_t i = 0; i < 1000; i++) {
        const size_t count = documents[i + 1].begin - documents[i].begin;
        ck_assert_uint_eq(count, i % 10);
        ck_assert_uint_eq(documents[i].file, i / 500);
        ck_assert_uint_eq(documents[i].line, i + 1);
        ck_assert_int_eq(ddp_encoded_read(encoded, documents[i].begin, count, tokens), DDP_OK);
        for (uint32_t k = 0; k < count; k++)
            ck_assert_uint_eq(tokens[k], (i + k) | (k % 2 ? DDP_ENCODED_TRAINED : 0));
    }
    free(documents);
}

START_TEST(what_is_encoded_comes_back)
{
    struct ddp_encoded encoded;
    write_encoded(&encoded, NULL);
    check_encoded(&encoded);
    ddp_encoded_close(&encoded);
    write_encoded(&encoded, scratch_path("encoded"));
    check_encoded(&encoded);
    ddp_encoded_close(&encoded);
    ck_assert_int_eq(ddp_encoded_open(&encoded, scratch_path("encoded"), 77), DDP_OK);
    check_encoded(&encoded);
    ddp_encoded_close(&encoded);
}
END_TEST

/* Opens it silently. */
static enum ddp_status open_status(const char *path, uint64_t key)
{
    struct ddp_encoded encoded;
    capture_start();
    const enum ddp_status status = ddp_encoded_open(&encoded, path, key);
    one_message(capture_stop(), status == DDP_OK ? "" : "encoded", "");
    return status;
}

START_TEST(damage_is_found)
{
    struct ddp_encoded encoded;
    size_t bytes;
    write_encoded(&encoded, scratch_path("encoded"));
    ddp_encoded_close(&encoded);
    char *content = scratch_read("encoded", &bytes);
    for (size_t i = 0; i < bytes; i += i + 80 < bytes ? 997 : 1) { /* all of the trailer */
        content[i] ^= 4;
        scratch_write("flipped", content, bytes);
        ck_assert_int_eq(open_status(scratch_path("flipped"), 77), DDP_ERR_FORMAT);
        content[i] ^= 4;
    }
    for (size_t cut = 0; cut < bytes; cut += 501) {
        scratch_write("cut", content, cut);
        ck_assert_int_eq(open_status(scratch_path("cut"), 77), DDP_ERR_FORMAT);
    }
    ck_assert_int_eq(open_status(scratch_path("encoded"), 78), DDP_ERR_FORMAT);
}
END_TEST

/* --- files of tokens --- */

static void check_token_file(const char *name, int width, int64_t count)
{
    static uint32_t words[3000];
    static uint16_t halves[3000];
    static int32_t out[3000], raw[3000];
    struct ddp_token_file file;
    for (uint32_t i = 0; i < 3000; i++) {
        words[i] = htole32(width == 2 ? 65535 - i : 100000 + i);
        halves[i] = htole16((uint16_t)(65535 - i));
    }
    const struct ddp_blob blob = {.name = "blob",
                                  .memory = width == 2 ? (const void *)halves : (const void *)words,
                                  .bytes = sizeof words};
    ck_assert_int_eq(ddp_token_file_write(scratch_path(name), &blob, count, width), DDP_OK);
    ck_assert_int_eq(ddp_token_file_open(&file, scratch_path(name), DDP_TOKENS_AUTO, true, 1000),
                     DDP_OK);
    ck_assert_int_eq(file.count, count);
    ck_assert_int_eq(file.width, width);
    ck_assert_int_eq(ddp_token_file_read(&file, 0, (size_t)count, 1 << 20, raw, out), DDP_OK);
    for (int64_t i = 0; i < count; i++)
        ck_assert_int_eq(out[i], (int32_t)le32toh(words[i]));
    ddp_token_file_close(&file);
}

START_TEST(token_files_are_read_again)
{
    check_token_file("a.bin", 2, 3000);
    check_token_file("a.bin", 4, 3000);
    check_token_file("a.npy", 2, 3000);
    check_token_file("a.npy", 4, 3000);
    check_token_file("a.npy", 4, 1);
}
END_TEST

START_TEST(too_many_for_a_header)
{
    const struct ddp_blob blob = {.name = "blob", .memory = (const void *)"", .bytes = 0};
    capture_start();
    const enum ddp_status status =
        ddp_token_file_write(scratch_path("a.bin"), &blob, INT64_C(1) << 32, 2);
    one_message(capture_stop(), "a.bin", ".npy");
    ck_assert_int_eq(status, DDP_ERR_INVALID);
    ck_assert_int_ne(access(scratch_path("a.bin"), F_OK), 0);
}
END_TEST

/* --- lines --- */

START_TEST(lines_have_numbers)
{
    struct ddp_line lines[3];
    ddp_line_reader *reader;
    size_t count;
    static const struct {
        const char *text;
        uint32_t number;
    } expected[] = {{"a", 1}, {"b\r", 3}, {" c", 6}, {"d", 7}};
    put("lines", "\xef\xbb\xbf"
                 "a\n\nb\r\n \t\r\n\n c\nd");
    ck_assert_int_eq(ddp_line_reader_open(&reader, scratch_path("lines")), DDP_OK);
    for (size_t i = 0; i < 4; i += count) {
        ck_assert_int_eq(ddp_line_reader_next(reader, lines, 3, &count), DDP_OK);
        ck_assert(count > 0 && i + count <= 4);
        for (size_t k = 0; k < count; k++) {
            ck_assert_uint_eq(lines[k].number, expected[i + k].number);
            ck_assert_uint_eq(lines[k].bytes, strlen(expected[i + k].text));
            ck_assert_mem_eq(lines[k].at, expected[i + k].text, lines[k].bytes);
        }
    }
    ck_assert_int_eq(ddp_line_reader_next(reader, lines, 3, &count), DDP_OK);
    ck_assert_uint_eq(count, 0);
    ddp_line_reader_close(reader);
}
END_TEST

/* Longer than what is read at once, and one behind it. */
START_TEST(long_lines)
{
    enum { LONG = 9 << 20 };
    struct ddp_line lines[4];
    ddp_line_reader *reader;
    size_t count;
    FILE *file = fopen(scratch_path("long"), "wb");
    ck_assert_ptr_nonnull(file);
    fputs("first\n", file);
    for (int i = 0; i < LONG; i++)
        fputc('a' + i % 26, file);
    fputs("\nlast\n", file);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(ddp_line_reader_open(&reader, scratch_path("long")), DDP_OK);
    ck_assert_int_eq(ddp_line_reader_next(reader, lines, 4, &count), DDP_OK);
    ck_assert_uint_eq(count, 1);
    ck_assert_int_eq(ddp_line_reader_next(reader, lines, 4, &count), DDP_OK);
    ck_assert(count >= 1 && lines[0].bytes == LONG && lines[0].number == 2);
    int same = 0;
    while (same < LONG && lines[0].at[same] == 'a' + same % 26)
        same++;
    ck_assert_int_eq(same, LONG);
    if (count == 1)
        ck_assert_int_eq(ddp_line_reader_next(reader, lines + 1, 3, &count), DDP_OK);
    ck_assert(lines[1].bytes == 4 && memcmp(lines[1].at, "last", 4) == 0);
    ddp_line_reader_close(reader);
}
END_TEST

/* --- records --- */

START_TEST(records_of_three_kinds)
{
    struct ddp_record record;
    const char *text = "{\"id\": 5, \"text\": \"a\\u0000b\"}";
    const char *prompt = "{\"prompt\": \"Q\", \"completion\": \" A\", \"text\": \"QA\"}";
    const char *chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\", \"name\": \"x\"},"
                       " {\"role\": \"assistant\", \"content\": \"\"}], \"prompt\": \"Hi\"}";
    ck_assert_int_eq(ddp_record_parse(&record, NULL, text, strlen(text), "here"), DDP_OK);
    ck_assert(record.kind == DDP_RECORD_TEXT && record.text_bytes == 3);
    ck_assert_mem_eq(record.text, "a\0b", 3);
    ddp_record_free(&record);
    ck_assert_int_eq(ddp_record_parse(&record, NULL, prompt, strlen(prompt), "here"), DDP_OK);
    ck_assert(record.kind == DDP_RECORD_PROMPT && record.text_bytes == 1);
    ck_assert(record.completion_bytes == 2 && memcmp(record.completion, " A", 2) == 0);
    ddp_record_free(&record);
    ck_assert_int_eq(ddp_record_parse(&record, NULL, chat, strlen(chat), "here"), DDP_OK);
    ck_assert(record.kind == DDP_RECORD_CHAT && record.message_count == 2);
    ck_assert_str_eq(record.messages[0].role, "user");
    ck_assert(record.messages[0].bytes == 2 && record.messages[1].bytes == 0);
    ddp_record_free(&record);
}
END_TEST

/* What both answers begin with is the prompt, as TRL has it: characters, less a space. */
START_TEST(records_of_preferences)
{
    static const struct {
        const char *line, *prompt, *chosen, *rejected;
    } rows[] = {
        {"{\"prompt\": \"Q\", \"chosen\": \"A\", \"rejected\": \"AB\"}", "Q", "A", "AB"},
        {"{\"chosen\": \"Q: yes\", \"rejected\": \"Q: no\"}", "Q:", " yes", " no"},
        {"{\"chosen\": \"ab\", \"rejected\": \"abc\"}", "a", "b", "bc"},
        {"{\"chosen\": \"a\u00e4\", \"rejected\": \"a\u00e5\"}", "a", "\xc3\xa4", "\xc3\xa5"},
        {"{\"chosen\": \"a\", \"rejected\": \"\"}", "", "a", ""},
        {"{\"prompt\": \"Q\", \"completion\": \"A\", \"label\": true}", "Q", "A", NULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct ddp_record record;
        const char *line = rows[i].line;
        ck_assert_int_eq(ddp_record_parse_preference(&record, NULL, line, strlen(line), "here"),
                         DDP_OK);
        const struct ddp_said *said[] = {&record.prompt, &record.answers[0], &record.answers[1]};
        const char *expected[] = {rows[i].prompt, rows[i].chosen, rows[i].rejected};
        for (int k = 0; k < 3 && expected[k]; k++) {
            ck_assert_uint_eq(said[k]->bytes, strlen(expected[k]));
            ck_assert_mem_eq(said[k]->text, expected[k], said[k]->bytes);
        }
        ck_assert(record.kind == (rows[i].rejected ? DDP_RECORD_PAIR : DDP_RECORD_RATED));
        ddp_record_free(&record);
    }
    const char *chat = "{\"chosen\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": "
                       "\"assistant\", \"content\": \"A\"}], \"rejected\": [{\"role\": \"user\", "
                       "\"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"B\"}]}";
    struct ddp_record record;
    ck_assert_int_eq(ddp_record_parse_preference(&record, NULL, chat, strlen(chat), "here"),
                     DDP_OK);
    ck_assert(record.prompt.message_count == 1 && record.answers[1].message_count == 1);
    ck_assert_str_eq(record.prompt.messages[0].content, "Q");
    ck_assert_str_eq(record.answers[0].messages[0].content, "A");
    ck_assert_str_eq(record.answers[1].messages[0].content, "B");
    ddp_record_free(&record);
}
END_TEST

/* What other programs call a chat: all of these are the same one. */
START_TEST(chats_of_other_programs)
{
    static const char *const lines[] = {
        ("{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", "
         "\"content\": \"Q\"}, {\"role\": \"assistant\", \"content\": \"A\"}, {\"role\": \"user\", "
         "\"content\": \"I\\nin\\u0000\"}, {\"role\": \"assistant\", \"content\": \"B\"}], "
         "\"tools\": []}"),
        ("{\"conversations\": [{\"from\": \"system\", \"value\": \"S\"}, {\"from\": \"human\", "
         "\"value\": \"Q\"}, {\"from\": \"gpt\", \"value\": \"A\"}, {\"from\": \"human\", "
         "\"value\": "
         "\"I\\nin\\u0000\"}, {\"from\": \"gpt\", \"value\": \"B\"}], \"tools\": \"\"}"),
        ("{\"instruction\": \"I\", \"input\": \"in\\u0000\", \"output\": \"B\", \"system\": \"S\", "
         "\"history\": [[\"Q\", \"A\"]], \"tools\": null}"),
    };
    static const char *const expected[][2] = {{"system", "S"},
                                              {"user", "Q"},
                                              {"assistant", "A"},
                                              {"user", "I\nin\0"},
                                              {"assistant", "B"}};
    struct ddp_record record;
    for (size_t i = 0; i < 3; i++) {
        ck_assert_int_eq(ddp_record_parse(&record, NULL, lines[i], strlen(lines[i]), "here"),
                         DDP_OK);
        ck_assert(record.kind == DDP_RECORD_CHAT && record.message_count == 5);
        for (size_t k = 0; k < 5; k++) {
            const struct ddp_chat_message *m = &record.messages[k];
            ck_assert_str_eq(m->role, expected[k][0]);
            ck_assert_uint_eq(m->bytes, k == 3 ? 5 : 1);
            ck_assert_mem_eq(m->content, expected[k][1], m->bytes);
        }
        ddp_record_free(&record);
    }
    const char *plain =
        "{\"instruction\": \"I\", \"input\": \"\", \"output\": \"B\", \"text\": \"x\"}";
    ck_assert_int_eq(ddp_record_parse(&record, NULL, plain, strlen(plain), "here"), DDP_OK);
    ck_assert(record.message_count == 2 && record.messages[0].bytes == 1);
    ddp_record_free(&record);
    const char *trl = "{\"prompt\": [{\"role\": \"user\", \"content\": \"Q\"}], \"completion\": "
                      "[{\"role\": \"assistant\", \"content\": \"A\"}]}";
    ck_assert_int_eq(ddp_record_parse(&record, NULL, trl, strlen(trl), "here"), DDP_OK);
    ck_assert(record.kind == DDP_RECORD_PROMPT && record.prompt.message_count == 1);
    ck_assert_str_eq(record.answers[0].messages[0].content, "A");
    ddp_record_free(&record);
}
END_TEST

/* LLaMA-Factory's preferences: messages too. */
START_TEST(preferences_of_other_programs)
{
    static const char *const lines[] = {
        "{\"instruction\": \"Q\", \"input\": \"\", \"chosen\": \"A\", \"rejected\": \"B\"}",
        "{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}], \"chosen\": {\"from\": "
        "\"gpt\", \"value\": \"A\"}, \"rejected\": {\"from\": \"gpt\", \"value\": \"B\"}}",
    };
    for (size_t i = 0; i < 2; i++) {
        struct ddp_record record;
        ck_assert_int_eq(
            ddp_record_parse_preference(&record, NULL, lines[i], strlen(lines[i]), "here"), DDP_OK);
        ck_assert(record.kind == DDP_RECORD_PAIR && record.prompt.message_count == 1);
        ck_assert_str_eq(record.prompt.messages[0].role, "user");
        ck_assert_str_eq(record.prompt.messages[0].content, "Q");
        for (int k = 0; k < 2; k++) {
            ck_assert(record.answers[k].message_count == 1);
            ck_assert_str_eq(record.answers[k].messages[0].role, "assistant");
            ck_assert_str_eq(record.answers[k].messages[0].content, k == 0 ? "A" : "B");
        }
        ddp_record_free(&record);
    }
}
END_TEST

/* Reads the option, and a line with it; returns what was said. */
static const char *said_of(const char *text, const char *line, struct ddp_record *record)
{
    struct ddp_columns columns;
    capture_start();
    *record = (struct ddp_record){.root = NULL};
    if (ddp_columns_read(&columns, text) == DDP_OK)
        (void)ddp_record_parse(record, &columns, line, strlen(line), "f: line 7");
    return capture_stop();
}

START_TEST(columns_have_other_names)
{
    static const char *const wrong[][3] = {
        {"prompt", "{}", "name pairs"},
        {"prompt=", "{}", "name pairs"},
        {"prompt=a,question=b", "{}", "no record has a \"question\""},
        {"text=a,text=b", "{}", "twice"},
        {"prompt=q,completion=a", "{\"q\": \"Q\", \"b\": 1}", "it has no \"a\""},
        {"prompt=q,completion=a", "{\"q\": \"Q\", \"b\": 1}", "it has q, b"},
    };
    struct ddp_record record;
    ck_assert_str_eq(said_of("completion=prompt,prompt=q",
                             "{\"q\": \"Q\", \"prompt\": \"A\", "
                             "\"messages\": 5}",
                             &record),
                     "");
    ck_assert(record.kind == DDP_RECORD_PROMPT && *record.text == 'Q' && *record.completion == 'A');
    ddp_record_free(&record);
    ck_assert_str_eq(
        said_of("instruction=q,input=i,output=a", "{\"q\": \"Q\", \"a\": \"A\"}", &record), "");
    ck_assert(record.kind == DDP_RECORD_CHAT && record.message_count == 2);
    ddp_record_free(&record);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        one_message(said_of(wrong[i][0], wrong[i][1], &record), wrong[i][2], "");
        ddp_record_free(&record);
    }
}
END_TEST

START_TEST(records_of_other_shapes)
{
    static const char *const bad[][2] = {
        {"{\"text\": \"a\"", "column"},
        {"{\"text\": \"\xff\"}", "column"},
        {"{\"text\": \"\\ud800\"}", "column"},
        {"5", "column"},
        {"[\"text\"]", "a JSON array"},
        {"[", "a JSON array"},
        {"{}", "no text in it"},
        {"{\"text\": 5}", "no text in it"},
        {"{\"prompt\": \"Q\"}", "no text in it"},
        {"{\"completion\": \"A\"}", "\"prompt\" is not a string"},
        {"{\"prompt\": \"Q\", \"completion\": null}", "\"completion\" is not a string"},
        {"{\"prompt\": [], \"completion\": \"A\"}", "\"prompt\" is not a string"},
        {"{\"prompt\": [], \"completion\": []}", "a message each"},
        {"{\"a\": 1, \"b\": 2}", "this one has a, b"},
        {"{\"conversations\": []}", "\"conversations\" is not an array"},
        {"{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}]}", "no message of the"},
        {"{\"conversations\": [{\"from\": \"gpt\"}]}", "message 1 has no string \"value\""},
        {"{\"instruction\": 5, \"output\": \"A\"}", "\"instruction\" is not a string"},
        {"{\"instruction\": \"Q\", \"output\": null}", "\"output\" is not a string"},
        {"{\"instruction\": \"Q\", \"input\": 5, \"output\": \"A\"}", "\"input\" is not a string"},
        {"{\"instruction\": \"Q\", \"history\": [[\"a\"]], \"output\": \"A\"}", "pairs of strings"},
        {"{\"text\": \"a\", \"tools\": [{\"type\": \"function\"}]}", "it has tools"},
        {"{\"text\": \"a\", \"tools\": \"[{}]\"}", "it has tools"},
        {"{\"messages\": []}", "messages in it"},
        {"{\"messages\": {}}", "messages in it"},
        {"{\"messages\": \"Hi\"}", "messages in it"},
        {"{\"messages\": [\"Hi\"]}", "message 1 is not an object"},
        {"{\"messages\": [{\"content\": \"Hi\"}]}", "message 1 is not an object"},
        {"{\"messages\": [{\"role\": 5, \"content\": \"Hi\"}]}", "message 1 is not an object"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\"}]}",
         "message 2 has no string"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\"}]}]}",
         "message 1 has no string"},
        {"{\"messages\": [{\"role\": \"assistant\", \"tool_calls\": []}]}", "no string"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"\"}], \"tools\": {}}",
         "\"tools\" is not a list"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"\"}], \"tools\": \"[{\"}",
         "\"tools\" is not a list"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}", "no message of the"},
    };
    struct ddp_record record;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        capture_start();
        const enum ddp_status status =
            ddp_record_parse(&record, NULL, bad[i][0], strlen(bad[i][0]), "f: line 7");
        one_message(capture_stop(), "f: line 7", bad[i][1]);
        ck_assert_int_eq(status, DDP_ERR_FORMAT);
        ddp_record_free(&record);
    }
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("encoded");
    TCase *tc = test_case(suite, "encoded", 60);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tc, scratch_clear, scratch_clear);
    tcase_add_test(tc, rows_are_full);
    tcase_add_test(tc, rows_of_random_documents);
    tcase_add_test(tc, what_is_encoded_comes_back);
    tcase_add_test(tc, damage_is_found);
    tcase_add_test(tc, token_files_are_read_again);
    tcase_add_test(tc, too_many_for_a_header);
    tcase_add_test(tc, lines_have_numbers);
    tcase_add_test(tc, long_lines);
    tcase_add_test(tc, records_of_three_kinds);
    tcase_add_test(tc, records_of_preferences);
    tcase_add_test(tc, chats_of_other_programs);
    tcase_add_test(tc, preferences_of_other_programs);
    tcase_add_test(tc, columns_have_other_names);
    tcase_add_test(tc, records_of_other_shapes);
    return suite;
}
