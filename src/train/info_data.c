/* SPDX-License-Identifier: MIT
 *
 * `trainer info` of what is not a model: data that --data reads, and what runs write beside their
 * weights. See info.h. */
#include "config.h"

#include "train/info.h"

#include "core/json.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "data/dataset.h"
#include "data/idx_file.h"
#include "data/npy_file.h"
#include "data/table_schema.h"
#include "data/text/wordpiece.h"
#include "data/text_file.h"
#include "data/token_file.h"
#include "data/zip_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define LISTED 20 /* columns, keys or members that are named */

const char *ddp_train_info_number(char text[32], int64_t number)
{
    char digits[24];
    size_t used = 0;
    const int length = snprintf(digits, sizeof digits, "%" PRId64, number);
    for (int i = 0; i < length && used < 30; i++) {
        if (i > 0 && (length - i) % 3 == 0)
            text[used++] = ',';
        text[used++] = digits[i];
    }
    text[used] = '\0';
    return text;
}

static void print_file(const char *path, FILE *out)
{
    char shown[DDP_TEXT_SHOWN];
    fprintf(out, "file        %s\n", ddp_text_show(shown, path));
}

static uint64_t memory_limit(void)
{
    return ddp_memory_total() / 2;
}

/* --- a table ---------------------------------------------------------------------------------- */

/* Of a column, the fields of each kind. */
typedef size_t kinds[DDP_TABLE_DATE + 1];

static enum ddp_status take_field(void *arg, const struct ddp_csv *at, size_t row, size_t column,
                                  char *text, size_t bytes)
{
    double number;
    (void)at;
    (void)row;
    ((kinds *)arg)[column][bytes < DDP_TABLE_WORD_BYTES ? ddp_table_value_of(text, &number)
                                                        : DDP_TABLE_WORD]++;
    return DDP_OK;
}

static void print_columns(const struct ddp_table_text *table, kinds *of, FILE *out)
{
    char shown[DDP_TEXT_SHOWN];
    for (size_t i = 0; i < table->count && i < LISTED; i++) {
        const size_t missing = of[i][DDP_TABLE_MISSING];
        fprintf(out, "  %-20s %s", ddp_text_show(shown, table->names[i]),
                of[i][DDP_TABLE_WORD]     ? "words"
                : of[i][DDP_TABLE_DATE]   ? "dates"
                : of[i][DDP_TABLE_NUMBER] ? "numbers"
                                          : "nothing");
        fprintf(out, missing ? ", %zu missing\n" : "\n", missing);
    }
    if (table->count > LISTED)
        fprintf(out, "  and %zu more\n", table->count - LISTED);
}

static enum ddp_status print_table(const char *path, FILE *out)
{
    struct ddp_table_text table = {0};
    struct ddp_text text = {0};
    size_t rows = 0;
    kinds *of = NULL;
    enum ddp_status status = ddp_table_text_open(&table, &text, path, NULL);
    if (status == DDP_OK)
        status = (of = ddp_array_alloc(table.count, sizeof *of)) ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = ddp_table_walk(&table, take_field, of, &rows);
    if (status == DDP_OK) {
        print_file(path, out);
        fprintf(out, "data        a table: %zu rows of %zu columns%s\n", rows, table.count,
                table.header ? "" : ", which have no names");
        print_columns(&table, of, out);
    }
    free(of);
    ddp_table_text_close(&table, &text);
    return status;
}

/* --- lines of JSON ---------------------------------------------------------------------------- */

struct lines {
    size_t count;
    json_t *first, *run; /* the first of all; and of the last that begins a run */
    json_t *events;      /* of a log: how many there are of each */
    double loss;         /* of the last step */
};

/* Takes the next value in; *used: its bytes. */
static enum ddp_status take_value(struct lines *lines, const char *path, const char *text,
                                  size_t bytes, size_t *used)
{
    json_error_t error = {.position = 0};
    json_t *line = NULL;
    enum ddp_status status =
        ddp_json_parse_flags(&line, text, bytes, JSON_DISABLE_EOF_CHECK, &error);
    if (status == DDP_ERR_FORMAT)
        return ddp_fail(DDP_ERR_FORMAT, "%s: object %zu is not JSON: %s", path, lines->count + 1,
                        error.text);
    const char *event = json_string_value(json_object_get(line, "event"));
    const json_t *loss = json_object_get(line, "loss");
    const json_int_t seen = json_integer_value(json_object_get(lines->events, event ? event : ""));
    if (event && json_object_set_new(lines->events, event, json_integer(seen + 1)) != 0)
        status = DDP_ERR_MEMORY;
    if (event && strcmp(event, "step") == 0 && json_is_number(loss))
        lines->loss = json_number_value(loss);
    if (event && strcmp(event, "run") == 0) {
        json_decref(lines->run);
        lines->run = json_incref(line);
    }
    if (lines->count++ == 0)
        lines->first = json_incref(line);
    json_decref(line);
    *used = (size_t)error.position;
    return status;
}

/* A run's first line has what it was. */
static void print_log(const struct lines *lines, FILE *out)
{
    const json_t *config = json_object_get(lines->run, "config");
    const char *model = json_string_value(json_object_get(config, "model"));
    const char *data = json_string_value(json_object_get(config, "data"));
    const json_int_t count = json_integer_value(json_object_get(lines->events, "run"));
    const json_int_t steps = json_integer_value(json_object_get(lines->events, "step"));
    const json_int_t checked = json_integer_value(json_object_get(lines->events, "evaluation"));
    char shown[DDP_TEXT_SHOWN];
    fprintf(out, "log         of %lld run%s, with %lld steps and %lld evaluations%s\n",
            (long long)count, count == 1 ? "" : "s", (long long)steps, (long long)checked,
            json_object_get(lines->events, "end") ? "" : ", not ended");
    if (model)
        fprintf(out, "model       %s\n", ddp_text_show(shown, model));
    if (data && *data)
        fprintf(out, "data        %s\n", ddp_text_show(shown, data));
    if (steps > 0)
        fprintf(out, "loss        %.4f in the last step\n", lines->loss);
}

static void print_keys(json_t *object, FILE *out)
{
    char shown[DDP_TEXT_SHOWN];
    const char *key;
    json_t *value;
    size_t i = 0;
    json_object_foreach(object, key, value)
    {
        if (i++ < LISTED)
            fprintf(out, " %s", ddp_text_show(shown, key));
    }
    fprintf(out, i > LISTED ? " and %zu more\n" : "\n", i - LISTED);
}

static enum ddp_status print_lines(const char *path, FILE *out)
{
    struct lines lines = {.events = json_object()};
    struct ddp_text text = {0};
    FILE *file = fopen(path, "rbe");
    enum ddp_status status = file ? ddp_text_read(&text, file, path, false, memory_limit())
                                  : ddp_fail_path(path, "read");
    const char *at = (const char *)text.at, *end = at ? at + text.bytes : at;
    for (size_t used = 0; status == DDP_OK && at < end; at += used) {
        while (at < end && strchr(" \t\r\n", *at))
            at++;
        used = 0;
        if (at < end)
            status = take_value(&lines, path, at, (size_t)(end - at), &used);
    }
    if (status == DDP_OK) {
        print_file(path, out);
        if (lines.run)
            print_log(&lines, out);
        else if (json_object_get(json_array_get(lines.first, 0), "ph"))
            fprintf(out, "trace       of %zu events, for ui.perfetto.dev\n",
                    json_array_size(lines.first));
        else
            fprintf(out, "data        %zu value%s of JSON%s", lines.count,
                    lines.count == 1 ? "" : "s",
                    json_is_object(lines.first) ? ", the first with" : "\n");
        if (!lines.run && json_is_object(lines.first))
            print_keys(lines.first, out);
    }
    if (file)
        fclose(file);
    free(text.at);
    json_decref(lines.first);
    json_decref(lines.run);
    json_decref(lines.events);
    return status;
}

/* --- arrays ----------------------------------------------------------------------------------- */

static enum ddp_status print_array(const struct ddp_blob *blob, const char *name, FILE *out)
{
    struct ddp_npy npy;
    char text[160], shown[DDP_TEXT_SHOWN];
    const enum ddp_status status = ddp_npy_open(&npy, blob);
    if (status == DDP_OK)
        fprintf(out, "%-11s %s\n", name ? ddp_text_show(shown, name) : "array",
                ddp_npy_describe(&npy, text, sizeof text));
    return status;
}

static enum ddp_status print_archive(const struct ddp_blob *blob, FILE *out)
{
    struct ddp_zip zip = {0};
    enum ddp_status status = ddp_zip_open(&zip, blob);
    for (size_t i = 0; status == DDP_OK && i < zip.member_count && i < LISTED; i++) {
        struct ddp_blob member;
        unsigned char *memory = NULL;
        status = ddp_zip_member_open(&zip, &zip.members[i], zip.members[i].name, &member, &memory);
        if (status == DDP_OK)
            status = print_array(&member, zip.members[i].name, out);
        free(memory);
    }
    ddp_zip_close(&zip);
    return status;
}

static enum ddp_status print_numpy(const char *path, FILE *out)
{
    struct ddp_input_file file;
    enum ddp_status status = ddp_input_file_open(&file, path, true);
    if (status != DDP_OK)
        return status;
    const struct ddp_blob blob = {.name = path, .file = &file, .bytes = file.bytes};
    print_file(path, out);
    status = ddp_text_ends_with(path, ".npz") ? print_archive(&blob, out)
                                              : print_array(&blob, NULL, out);
    ddp_input_file_close(&file);
    return status;
}

static enum ddp_status print_idx(const char *path, FILE *out)
{
    struct ddp_idx_file idx = {0};
    FILE *file = fopen(path, "rbe");
    enum ddp_status status = file ? ddp_idx_file_read(&idx, file, path, 1, DDP_IDX_MAX_DIMS)
                                  : ddp_fail_path(path, "read");
    if (file)
        fclose(file);
    if (status != DDP_OK)
        return status;
    print_file(path, out);
    fputs("array       uint8 of (", out);
    for (int i = 0; i < idx.dim_count; i++)
        fprintf(out, "%s%" PRId64, i ? ", " : "", idx.dims[i]);
    fputs(")\n", out);
    free(idx.values);
    return DDP_OK;
}

/* --- tokens, directories ---------------------------------------------------------------------- */

static enum ddp_status print_tokens(const char *path, FILE *out)
{
    struct ddp_token_file tokens;
    char number[32];
    enum ddp_status status =
        ddp_token_file_open(&tokens, path, DDP_TOKENS_AUTO, false, memory_limit());
    if (status == DDP_OK && tokens.count == 0) {
        ddp_token_file_close(&tokens);
        status = ddp_fail(DDP_ERR_FORMAT, "%s: the file is empty", path);
    }
    if (status != DDP_OK)
        return status;
    print_file(path, out);
    if (tokens.text)
        fprintf(out, "data        a text of %s bytes\n",
                ddp_train_info_number(number, tokens.count));
    else
        fprintf(out, "data        %s tokens of %d bits\n",
                ddp_train_info_number(number, tokens.count), 8 * tokens.width);
    ddp_token_file_close(&tokens);
    return DDP_OK;
}

static enum ddp_status print_vocabulary(const char *path, FILE *out)
{
    ddp_wordpiece *pieces = NULL;
    char number[32];
    const enum ddp_status status = ddp_wordpiece_open(&pieces, path);
    if (status == DDP_OK) {
        print_file(path, out);
        fprintf(out, "vocabulary  %s tokens of WordPiece\n",
                ddp_train_info_number(number, ddp_wordpiece_ids(pieces)));
    }
    ddp_wordpiece_close(pieces);
    return status;
}

static enum ddp_status print_set(const char *path, FILE *out)
{
    const struct ddp_dataset_options options = {.path = path, .seq_len = 1, .unlabelled = true};
    ddp_dataset *set = NULL;
    char shown[DDP_TEXT_SHOWN], number[32];
    const enum ddp_status status = ddp_dataset_open(NULL, &options, &set, NULL);
    if (status == DDP_OK) {
        const struct ddp_dataset_info *info = ddp_dataset_info(set);
        fprintf(out, "directory   %s\n", ddp_text_show(shown, path));
        fprintf(out, "data        %s: %s %s", info->source,
                ddp_train_info_number(number, info->sample_count),
                info->x_dtype == DDP_I32 ? "tokens" : "samples of");
        for (int i = 0; info->x_dtype == DDP_F32 && i < info->dim_count; i++)
            fprintf(out, "%s%" PRId64, i ? " x " : " ", info->dims[i]);
        if (info->class_count > 0 && info->x_dtype == DDP_F32)
            fprintf(out, " in %" PRId64 " classes", info->class_count);
        fputc('\n', out);
    }
    ddp_dataset_close(set);
    return status;
}

/* --- any -------------------------------------------------------------------------------------- */

static bool is_data(const char *path)
{
    const struct ddp_dataset_source *source;
    bool is = false;
    for (size_t i = 0; !is && (source = ddp_dataset_source_at(i)); i++)
        is = source->recognise && source->recognise(path);
    return is;
}

/* A file's first bytes; zeros where it has fewer. */
static enum ddp_status read_start(const char *path, unsigned char start[9])
{
    FILE *file = fopen(path, "rbe");
    if (!file)
        return ddp_fail_path(path, "read");
    memset(start, 0, 9);
    const bool failed = fread(start, 1, 9, file) < 9 && ferror(file);
    const enum ddp_status status = failed ? ddp_fail_path(path, "read") : DDP_OK;
    fclose(file);
    return status;
}

enum ddp_status ddp_train_info_data(const char *path, FILE *out, bool *known)
{
    static const unsigned char idx[] = {0, 0, 8};
    unsigned char start[9];
    struct stat info;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    *known = true;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        *known = is_data(path);
        return *known ? print_set(path, out) : DDP_OK;
    }
    enum ddp_status status = read_start(path, start);
    if (status != DDP_OK)
        return status;
    if (ddp_text_ends_with(path, ".npy") || ddp_text_ends_with(path, ".npz"))
        return print_numpy(path, out);
    if (ddp_dataset_holds_table(NULL, path))
        return print_table(path, out);
    if (memcmp(start, idx, sizeof idx) == 0 || strstr(name, "-ubyte.gz"))
        return print_idx(path, out);
    if (memcmp(start, "[PAD]", 5) == 0)
        return print_vocabulary(path, out);
    if (ddp_text_is_jsonl(path) || ((start[0] == '{' || start[0] == '[') && !memchr(start, 0, 7)))
        return print_lines(path, out);
    if (strncmp(name, "events.out.tfevents.", 20) == 0) {
        print_file(path, out);
        fputs("events      of a run, for TensorBoard\n", out);
        return DDP_OK;
    }
    *known = start[8] != '{' && !ddp_text_ends_with(path, ".safetensors");
    return *known ? print_tokens(path, out) : DDP_OK;
}
