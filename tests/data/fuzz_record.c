/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: a file of JSON lines to train on, perhaps compressed. */
#include "config.h"

#include "data/line_reader.h"
#include "data/question.h"
#include "data/record.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINES 5

static volatile size_t used;

/* Touches all that it has. */
static bool take(const struct ddp_line *line)
{
    struct ddp_record record;
    const bool accepted = ddp_record_parse(&record, NULL, line->at, line->bytes, "input") == DDP_OK;
    bool answers = false;
    for (size_t i = 0; accepted && i < record.text_bytes; i++)
        used += (unsigned char)record.text[i];
    for (size_t i = 0; accepted && i < record.completion_bytes; i++)
        used += (unsigned char)record.completion[i];
    for (size_t i = 0; accepted && i < record.message_count; i++) {
        const struct ddp_chat_message *message = &record.messages[i];
        answers = answers || strcmp(message->role, "assistant") == 0;
        assert(message->content[message->bytes] == '\0');
    }
    assert(!accepted || (record.kind == DDP_RECORD_CHAT) == answers);
    const struct ddp_said *said[] = {&record.prompt, &record.answers[0]};
    for (size_t i = 0; accepted && i < 2; i++)
        for (size_t k = 0; k < said[i]->message_count; k++)
            used += said[i]->messages[k].bytes;
    ddp_record_free(&record);
    return accepted;
}

/* The same of preferences: answers are told apart, and end where their texts do. */
static void take_preference(const struct ddp_line *line)
{
    struct ddp_record record;
    const bool accepted =
        ddp_record_parse_preference(&record, NULL, line->at, line->bytes, "input") == DDP_OK;
    const struct ddp_said *said[] = {&record.prompt, &record.answers[0], &record.answers[1]};
    const size_t count = record.kind == DDP_RECORD_PAIR ? 3 : 2;
    for (size_t i = 0; accepted && i < count; i++) {
        assert(!said[i]->text == !record.prompt.text);
        for (size_t k = 0; said[i]->text && k < said[i]->bytes; k++)
            used += (unsigned char)said[i]->text[k];
        assert(!said[i]->text || said[i]->text[said[i]->bytes] == '\0' || i == 0);
        for (size_t k = 0; k < said[i]->message_count; k++)
            used += said[i]->messages[k].bytes;
    }
    ddp_record_free(&record);
}

static void take_question(const struct ddp_line *line)
{
    struct ddp_question question;
    const bool accepted = ddp_question_parse(&question, line->at, line->bytes, "input") == DDP_OK;
    assert(!accepted || (question.count >= 2 && question.answer < question.count));
    for (int32_t i = 0; accepted && i < question.count; i++) {
        const char *choice = json_string_value(json_array_get(question.choices, (size_t)i));
        assert(*choice && question.answer >= 0);
        used += strlen(choice) + strlen(json_string_value(question.prompt));
    }
    json_decref(question.root);
}

static bool read_lines(const char *path)
{
    struct ddp_line lines[LINES];
    ddp_line_reader *reader = NULL;
    size_t count = 1;
    uint32_t last = 0;
    if (ddp_line_reader_open(&reader, path) != DDP_OK)
        return false;
    bool accepted = true;
    while (accepted && count > 0) {
        accepted = ddp_line_reader_next(reader, lines, LINES, &count) == DDP_OK;
        for (size_t i = 0; accepted && i < count; i++) {
            assert(lines[i].number > last && lines[i].bytes > 0);
            last = lines[i].number;
            take_preference(&lines[i]);
            take_question(&lines[i]);
            accepted = take(&lines[i]);
        }
    }
    ddp_line_reader_close(reader);
    return accepted;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    char path[64];
    const int fd = memfd_create("input", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        return false;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const bool accepted = read_lines(path);
    close(fd);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
