/* SPDX-License-Identifier: MIT
 *
 * See state.h. The checksum is the CRC-32 of the text with the checksum's own digits
 * taken as zeros, so that it can be inside the file that it protects. */
#include "config.h"

#include "checkpoint/state.h"

#include "core/log.h"
#include "core/parse.h"
#include "core/json.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define UNKNOWN         "unknown"
#define STATE_FORMAT    "ddprun checkpoint"
#define STATE_VERSION   1
#define CHECKSUM_KEY    "\"checksum\": \""
#define CHECKSUM_DIGITS 8

const char *const ddp_checkpoint_part_names[DDP_CHECKPOINT_PARTS] = {
    [DDP_CHECKPOINT_MODEL] = "model.safetensors",
    [DDP_CHECKPOINT_OPTIMIZER] = "optimizer.safetensors",
};

/* The members of the cursor under their names in the file. */
static const struct {
    const char *name;
    size_t offset;
    uint64_t max;
} cursor_members[] = {
    {"seed", offsetof(struct ddp_checkpoint_cursor, seed), UINT64_MAX},
    {"step", offsetof(struct ddp_checkpoint_cursor, step), INT64_MAX},
    {"epoch", offsetof(struct ddp_checkpoint_cursor, epoch), INT64_MAX},
    {"step_in_epoch", offsetof(struct ddp_checkpoint_cursor, step_in_epoch), INT64_MAX},
    {"sample", offsetof(struct ddp_checkpoint_cursor, sample), INT64_MAX},
};

#define CURSOR_MEMBERS (sizeof cursor_members / sizeof cursor_members[0])

void ddp_checkpoint_fact_add(struct ddp_checkpoint_facts *facts, const char *name,
                             const char *format, ...)
{
    va_list args;
    int at = 0;
    while (at < facts->count && strcmp(facts->facts[at].name, name) != 0)
        at++;
    if (at == DDP_CHECKPOINT_FACTS)
        return;
    struct ddp_checkpoint_fact *fact = &facts->facts[at];
    facts->count += at == facts->count;
    snprintf(fact->name, sizeof fact->name, "%s", name);
    va_start(args, format);
    vsnprintf(fact->value, sizeof fact->value, format, args);
    va_end(args);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* Without memory for a member the whole object is dropped: an incomplete one must not look like a
 * checkpoint. */
static void add(json_t **object, const char *name, json_t *value)
{
    if (json_object_set_new(*object, name, value) == 0)
        return;
    json_decref(*object);
    *object = NULL;
}

static json_t *cursor_object(const struct ddp_checkpoint_cursor *cursor)
{
    json_t *object = json_object();
    for (size_t i = 0; i < CURSOR_MEMBERS; i++) {
        uint64_t value;
        memcpy(&value, (const char *)cursor + cursor_members[i].offset, sizeof value);
        add(&object, cursor_members[i].name, ddp_json_uint64(value));
    }
    return object;
}

json_t *ddp_checkpoint_facts_object(const struct ddp_checkpoint_facts *facts)
{
    json_t *object = json_object();
    for (int i = 0; i < facts->count; i++)
        add(&object, facts->facts[i].name, json_string(facts->facts[i].value));
    return object;
}

static json_t *file_object(const struct ddp_checkpoint_part_sum *sum)
{
    char digits[CHECKSUM_DIGITS + 1];
    snprintf(digits, sizeof digits, "%08" PRIx32, sum->crc32);
    return json_pack("{s:I, s:s}", "bytes", (json_int_t)sum->bytes, "crc32", digits);
}

static json_t *files_object(const struct ddp_checkpoint_state *state)
{
    json_t *object = json_object();
    for (int i = 0; i < DDP_CHECKPOINT_PARTS; i++)
        add(&object, ddp_checkpoint_part_names[i], file_object(&state->parts[i]));
    if (*state->own_file)
        add(&object, state->own_file, file_object(&state->own));
    return object;
}

static json_t *best_object(const struct ddp_checkpoint_best *best)
{
    json_t *object = json_pack("{s:s, s:I}", "samples", best->samples, "evaluations_since_best",
                               (json_int_t)best->since);
    if (object && best->step > 0) {
        add(&object, "best_step", json_integer((json_int_t)best->step));
        add(&object, "best_loss", json_real(best->loss));
    }
    return object;
}

/* Where the digits of the checksum stand; NULL: nowhere. */
static const char *find_digits(const char *text, size_t bytes)
{
    const size_t key = strlen(CHECKSUM_KEY);
    const char *found = memmem(text, bytes, CHECKSUM_KEY, key);
    if (!found || (size_t)(text + bytes - found) < key + CHECKSUM_DIGITS)
        return NULL;
    return found + key;
}

static uint32_t checksum(const char *text, size_t bytes, const char *digits)
{
    const char zeros[] = "00000000";
    const size_t before = (size_t)(digits - text), behind = before + CHECKSUM_DIGITS;
    uLong crc = crc32_z(0, (const Bytef *)text, before);
    crc = crc32_z(crc, (const Bytef *)zeros, CHECKSUM_DIGITS);
    return (uint32_t)crc32_z(crc, (const Bytef *)text + behind, bytes - behind);
}

static void put_checksum(char *text, size_t bytes)
{
    char digits[CHECKSUM_DIGITS + 1];
    char *at = (char *)(uintptr_t)find_digits(text, bytes);
    snprintf(digits, sizeof digits, "%08" PRIx32, checksum(text, bytes, at));
    memcpy(at, digits, CHECKSUM_DIGITS);
}

enum ddp_status ddp_checkpoint_state_format(char **text, size_t *bytes,
                                            const struct ddp_checkpoint_state *state)
{
    json_t *root =
        json_pack("{s:s, s:i, s:s, s:o, s:o, s:o}", "format", STATE_FORMAT, "version",
                  STATE_VERSION, "checksum", "00000000", "cursor", cursor_object(&state->cursor),
                  "run", ddp_checkpoint_facts_object(&state->facts), "files", files_object(state));
    if (*state->best.samples)
        add(&root, "evaluation", best_object(&state->best));
    if (state->apart.workers > 0)
        add(&root, "local",
            json_pack("{s:I, s:b, s:b}", "workers", (json_int_t)state->apart.workers, "weights",
                      state->apart.weights, "state", state->apart.state));
    if (state->has_rate)
        add(&root, "rate", json_real(state->rate));
    if (state->loss_scale > 0)
        add(&root, "loss_scale",
            json_pack("{s:f, s:I, s:I}", "scale", state->loss_scale, "good_steps",
                      (json_int_t)state->good_steps, "skipped_steps",
                      (json_int_t)state->skipped_steps));
    char *dump = root ? ddp_json_text(root, JSON_INDENT(2) | JSON_PRESERVE_ORDER) : NULL;
    json_decref(root);
    if (!dump)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    const size_t length = strlen(dump);
    put_checksum(dump, length);
    dump[length] = '\n'; /* in the place of the terminator */
    *text = dump;
    *bytes = length + 1;
    return DDP_OK;
}

/* --- reading ---------------------------------------------------------------------------------- */

bool ddp_checkpoint_wrong(char *reason, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(reason, DDP_CHECKPOINT_REASON, format, args);
    va_end(args);
    return false;
}

/* Lower-case digits alone: no other text has the same value. */
static bool read_digits(const char *digits, uint32_t *value)
{
    if (strspn(digits, "0123456789abcdef") < CHECKSUM_DIGITS)
        return false;
    char copy[CHECKSUM_DIGITS + 1];
    snprintf(copy, sizeof copy, "%.*s", CHECKSUM_DIGITS, digits);
    *value = (uint32_t)strtoul(copy, NULL, 16);
    return true;
}

static bool check_sum(const char *text, size_t bytes, char *reason)
{
    char copy[CHECKSUM_DIGITS + 1] = "";
    uint32_t value;
    const char *digits = find_digits(text, bytes);
    if (digits)
        memcpy(copy, digits, CHECKSUM_DIGITS);
    if (!digits || !read_digits(copy, &value))
        return ddp_checkpoint_wrong(reason, "it has no checksum");
    /* The newline is not part of it. */
    if (text[bytes - 1] != '\n' || value != checksum(text, bytes - 1, digits))
        return ddp_checkpoint_wrong(reason,
                                    "its checksum is wrong: the file is damaged or was edited");
    return true;
}

static bool read_cursor(struct ddp_checkpoint_cursor *cursor, const json_t *object, char *reason)
{
    for (size_t i = 0; i < CURSOR_MEMBERS; i++) {
        const json_t *member = json_object_get(object, cursor_members[i].name);
        uint64_t value;
        if (!ddp_json_read_uint64(member, &value) || value > cursor_members[i].max)
            return ddp_checkpoint_wrong(reason, "the cursor's %s is not a number from 0",
                                        cursor_members[i].name);
        memcpy((char *)cursor + cursor_members[i].offset, &value, sizeof value);
    }
    return true;
}

bool ddp_checkpoint_facts_read(struct ddp_checkpoint_facts *facts, json_t *object, char *reason)
{
    const char *name;
    json_t *value;
    if (!json_is_object(object) || json_object_size(object) > DDP_CHECKPOINT_FACTS)
        return ddp_checkpoint_wrong(reason, "its \"run\" is not an object of at most %d strings",
                                    DDP_CHECKPOINT_FACTS);
    json_object_foreach(object, name, value)
    {
        struct ddp_checkpoint_fact *fact = &facts->facts[facts->count];
        if (!json_is_string(value) || strlen(name) >= sizeof fact->name ||
            json_string_length(value) >= sizeof fact->value)
            return ddp_checkpoint_wrong(reason, "its \"run\" has values other than short strings");
        snprintf(fact->name, sizeof fact->name, "%s", name);
        snprintf(fact->value, sizeof fact->value, "%s", json_string_value(value));
        facts->count++;
    }
    return true;
}

static bool read_file(struct ddp_checkpoint_part_sum *sum, const json_t *files, const char *name,
                      char *reason)
{
    const json_t *file = json_object_get(files, name);
    const json_t *bytes = json_object_get(file, "bytes");
    const char *digits = json_string_value(json_object_get(file, "crc32"));
    if (!json_is_integer(bytes) || json_integer_value(bytes) < 0 || !digits ||
        strlen(digits) != CHECKSUM_DIGITS || !read_digits(digits, &sum->crc32))
        return ddp_checkpoint_wrong(reason, "it does not give the size and CRC-32 of %s", name);
    sum->bytes = (uint64_t)json_integer_value(bytes);
    return true;
}

bool ddp_checkpoint_is_own(const char *file)
{
    const size_t prefix = strlen(DDP_CHECKPOINT_OWN), length = strlen(file);
    return strncmp(file, DDP_CHECKPOINT_OWN, prefix) == 0 && length > prefix &&
           length < DDP_CHECKPOINT_OWN_NAME &&
           strspn(file, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789._-") == length;
}

/* Files that are not known here are those of later versions. */
static bool read_files(struct ddp_checkpoint_state *state, json_t *files, char *reason)
{
    const char *name;
    json_t *file;
    for (int i = 0; i < DDP_CHECKPOINT_PARTS; i++)
        if (!read_file(&state->parts[i], files, ddp_checkpoint_part_names[i], reason))
            return false;
    json_object_foreach(files, name, file)
    {
        if (strncmp(name, DDP_CHECKPOINT_OWN, strlen(DDP_CHECKPOINT_OWN)) != 0)
            continue;
        if (*state->own_file || !ddp_checkpoint_is_own(name))
            return ddp_checkpoint_wrong(reason, "its \"files\" name more than one program's own "
                                                "state, or one with a bad name");
        snprintf(state->own_file, sizeof state->own_file, "%s", name);
        if (!read_file(&state->own, files, name, reason))
            return false;
    }
    return true;
}

static bool read_rate(struct ddp_checkpoint_state *state, const json_t *rate, char *reason)
{
    state->has_rate = rate != NULL;
    state->rate = json_number_value(rate);
    if (rate && !(json_is_number(rate) && state->rate >= 0))
        return ddp_checkpoint_wrong(reason, "its \"rate\" is not a learning rate");
    return true;
}

static bool read_loss_scale(struct ddp_checkpoint_state *state, const json_t *object, char *reason)
{
    const json_t *scale = json_object_get(object, "scale");
    const json_t *good = json_object_get(object, "good_steps");
    const json_t *skipped = json_object_get(object, "skipped_steps");
    state->loss_scale = json_number_value(scale);
    state->good_steps = json_integer_value(good);
    state->skipped_steps = json_integer_value(skipped);
    return !object ||
           (json_is_real(scale) && state->loss_scale > 0 &&
            (double)(float)state->loss_scale == state->loss_scale && json_is_integer(good) &&
            state->good_steps >= 0 && state->good_steps <= INT32_MAX && json_is_integer(skipped) &&
            state->skipped_steps >= 0 && state->skipped_steps <= state->cursor.step) ||
           ddp_checkpoint_wrong(reason, "its \"loss_scale\" is not a scale and numbers of steps");
}

/* Checkpoints of version 0.2.0, and of runs that evaluate nothing, have none. */
static bool read_best(struct ddp_checkpoint_best *best, int64_t last, const json_t *object,
                      char *reason)
{
    const char *samples = json_string_value(json_object_get(object, "samples"));
    const json_t *since = json_object_get(object, "evaluations_since_best");
    const json_t *step = json_object_get(object, "best_step");
    const json_t *loss = json_object_get(object, "best_loss");
    const json_int_t at = json_integer_value(step);
    if (!object)
        return true;
    if (!samples || !*samples || strlen(samples) >= sizeof best->samples ||
        !json_is_integer(since) || json_integer_value(since) < 0 ||
        (step && (!json_is_integer(step) || at < 1 || at > last || !json_is_number(loss))))
        return ddp_checkpoint_wrong(reason, "its \"evaluation\" is not one of an earlier step");
    snprintf(best->samples, sizeof best->samples, "%s", samples);
    best->since = json_integer_value(since);
    best->step = at;
    best->loss = step ? json_number_value(loss) : 0;
    return true;
}

static bool read_apart(struct ddp_checkpoint_apart *apart, const json_t *object, char *reason)
{
    const json_t *workers = json_object_get(object, "workers");
    const json_t *weights = json_object_get(object, "weights");
    const json_t *state = json_object_get(object, "state");
    if (!object)
        return true;
    apart->workers = json_integer_value(workers);
    apart->weights = json_is_true(weights);
    apart->state = json_is_true(state);
    return (json_is_integer(workers) && apart->workers > 0 && apart->workers <= INT32_MAX &&
            json_is_boolean(weights) && json_is_boolean(state)) ||
           ddp_checkpoint_wrong(reason, "its \"local\" does not say what workers had");
}

static bool read_root(struct ddp_checkpoint_state *state, json_t *root, char *reason)
{
    const char *format = json_string_value(json_object_get(root, "format"));
    const json_int_t version = json_integer_value(json_object_get(root, "version"));
    if (!format || strcmp(format, STATE_FORMAT) != 0)
        return ddp_checkpoint_wrong(reason, "its format is not \"" STATE_FORMAT "\"");
    if (version != STATE_VERSION)
        return ddp_checkpoint_wrong(
            reason, "it has version %" JSON_INTEGER_FORMAT "; this program reads %d", version,
            STATE_VERSION);
    return read_cursor(&state->cursor, json_object_get(root, "cursor"), reason) &&
           ddp_checkpoint_facts_read(&state->facts, json_object_get(root, "run"), reason) &&
           read_files(state, json_object_get(root, "files"), reason) &&
           read_rate(state, json_object_get(root, "rate"), reason) &&
           read_loss_scale(state, json_object_get(root, "loss_scale"), reason) &&
           read_apart(&state->apart, json_object_get(root, "local"), reason) &&
           read_best(&state->best, state->cursor.step, json_object_get(root, "evaluation"), reason);
}

bool ddp_checkpoint_state_parse(struct ddp_checkpoint_state *state, const char *text, size_t bytes,
                                char *reason)
{
    json_error_t error;
    if (bytes == 0 || bytes > DDP_CHECKPOINT_STATE_BYTES)
        return ddp_checkpoint_wrong(reason, "it has %zu bytes; 1 to %d are possible", bytes,
                                    DDP_CHECKPOINT_STATE_BYTES);
    if (!check_sum(text, bytes, reason))
        return false;
    json_t *root;
    const enum ddp_status status = ddp_json_parse(&root, text, bytes, &error);
    if (status == DDP_ERR_MEMORY)
        return ddp_checkpoint_wrong(reason, DDP_CHECKPOINT_NO_MEMORY);
    if (status != DDP_OK)
        return ddp_checkpoint_wrong(reason, "bad JSON in line %d: %s", error.line, error.text);
    *state = (struct ddp_checkpoint_state){0};
    const bool good = read_root(state, root, reason);
    json_decref(root);
    return good;
}

/* --- comparing -------------------------------------------------------------------------------- */

const char *ddp_checkpoint_fact_value(const struct ddp_checkpoint_facts *facts, const char *name)
{
    for (int i = 0; i < facts->count; i++)
        if (strcmp(facts->facts[i].name, name) == 0)
            return facts->facts[i].value;
    return UNKNOWN;
}

/* Is the word one of `text`, with spaces around it? */
static bool has_word(const char *text, const char *word, size_t length)
{
    for (; *text; text += strcspn(text, " "), text += strspn(text, " "))
        if (strcspn(text, " ") == length && memcmp(text, word, length) == 0)
            return true;
    return false;
}

/* "gpt2 layers=2 heads=2" beside a gpt2 of other layers: "gpt2 layers=2"; beside an mlp: "gpt2". */
static void put_value(FILE *out, const char *value, const char *other)
{
    const bool same = has_word(other, value, strcspn(value, " "));
    for (const char *word = value; *word; word += strspn(word, " ")) {
        const size_t length = strcspn(word, " ");
        if (!memchr(word, '=', length) || (same && !has_word(other, word, length)))
            fprintf(out, "%s%.*s", word == value ? "" : " ", (int)length, word);
        word += length;
    }
}

static void put_difference(FILE *out, int *count, const char *name, const char *saved,
                           const char *now)
{
    if (strcmp(saved, now) == 0)
        return;
    fprintf(out, "%s%s ", (*count)++ ? ", " : "", name);
    put_value(out, saved, now);
    fputs(" (now ", out);
    put_value(out, now, saved);
    fputc(')', out);
}

/* Another number of workers changes the shards, unless the global batch is given. */
static const char *global_batch_advice(char *text, size_t size,
                                       const struct ddp_checkpoint_facts *saved,
                                       const struct ddp_checkpoint_facts *now)
{
    int64_t shards, batch;
    const char *of_saved = ddp_checkpoint_fact_value(saved, DDP_CHECKPOINT_SHARDS);
    const char *of_batch = ddp_checkpoint_fact_value(saved, DDP_CHECKPOINT_BATCH);
    text[0] = '\0';
    if (strcmp(of_saved, ddp_checkpoint_fact_value(now, DDP_CHECKPOINT_SHARDS)) != 0 &&
        strcmp(of_batch, ddp_checkpoint_fact_value(now, DDP_CHECKPOINT_BATCH)) == 0 &&
        ddp_parse_int64(of_saved, 1, INT32_MAX, &shards) &&
        ddp_parse_int64(of_batch, 1, INT32_MAX, &batch))
        snprintf(text, size,
                 ". To resume on another number of workers, add --batch-size %" PRId64
                 " --global-batch %" PRId64,
                 batch, shards * batch);
    return text;
}

enum ddp_status ddp_checkpoint_differences(char **text, uint64_t saved_seed,
                                           const struct ddp_checkpoint_facts *saved, uint64_t seed,
                                           const struct ddp_checkpoint_facts *facts)
{
    char before[24], now[24];
    size_t bytes = 0;
    int count = 0;
    *text = NULL;
    FILE *out = open_memstream(text, &bytes);
    if (!out)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    snprintf(before, sizeof before, "%" PRIu64, saved_seed);
    snprintf(now, sizeof now, "%" PRIu64, seed);
    put_difference(out, &count, "seed", before, now);
    for (int i = 0; i < facts->count; i++) {
        const struct ddp_checkpoint_fact *fact = &facts->facts[i];
        if (strcmp(fact->name, DDP_CHECKPOINT_DATA) != 0 ||
            strcmp(ddp_checkpoint_fact_value(saved, fact->name), UNKNOWN) != 0)
            put_difference(out, &count, fact->name, ddp_checkpoint_fact_value(saved, fact->name),
                           fact->value);
    }
    for (int i = 0; i < saved->count; i++) { /* what only the saved run had */
        const struct ddp_checkpoint_fact *fact = &saved->facts[i];
        if (strcmp(ddp_checkpoint_fact_value(facts, fact->name), UNKNOWN) == 0)
            put_difference(out, &count, fact->name, fact->value, UNKNOWN);
    }
    if (fclose(out) != 0 || !*text)
        return ddp_fail(DDP_ERR_MEMORY, "out of memory");
    if (count == 0) {
        free(*text);
        *text = NULL;
    }
    return DDP_OK;
}

enum ddp_status ddp_checkpoint_state_match(const struct ddp_checkpoint_state *saved,
                                           const char *path, uint64_t seed,
                                           const struct ddp_checkpoint_facts *facts, bool again)
{
    char *text, advice[128];
    enum ddp_status status =
        ddp_checkpoint_differences(&text, saved->cursor.seed, &saved->facts, seed, facts);
    if (text && again)
        status = ddp_fail(DDP_ERR_INVALID, "%s: it was written by another run than this: %s", path,
                          text);
    else if (text)
        status =
            ddp_fail(DDP_ERR_INVALID,
                     "%s: cannot resume from it, because it was written by another run: "
                     "%s%s. To start a new run with its weights, use --load %s/%s",
                     path, text, global_batch_advice(advice, sizeof advice, &saved->facts, facts),
                     path, ddp_checkpoint_part_names[DDP_CHECKPOINT_MODEL]);
    free(text);
    return status;
}
