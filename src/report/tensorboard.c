/* SPDX-License-Identifier: MIT
 *
 * --tensorboard DIR: an event file with the scalars of the run, as TensorBoard reads it. A record
 * is the length of a message, a checksum of that, the message (events.proto), a checksum of it. */
#include "config.h"

#include "report/metrics.h"

#include "core/append_file.h"
#include "core/clock.h"
#include "core/crc32c.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/write.h"

#ifdef HAVE_PROTOBUF_C

#include "report/events.pb-c.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SCALARS   18
#define DT_STRING 7

struct tensorboard {
    const struct ddp_train_facts *facts;
    ddp_append_file *file;
    unsigned char *record;
    size_t capacity;
};

static void put_le(unsigned char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        to[i] = (unsigned char)(value >> (8 * i));
}

/* The checksum is masked, because records may hold records. */
static void put_checksum(unsigned char *to, const unsigned char *data, size_t bytes)
{
    const uint32_t crc = ddp_crc32c(data, bytes);
    put_le(to, ((crc >> 15) | (crc << 17)) + UINT32_C(0xa282ead8), 4);
}

static void write_event(struct tensorboard *board, const Ddp__Events__Event *event)
{
    const size_t bytes = ddp__events__event__get_packed_size(event);
    if (bytes + 16 > board->capacity) {
        unsigned char *larger = realloc(board->record, bytes + 16);
        if (!larger)
            return; /* a point is missing in the curve; training continues */
        board->record = larger;
        board->capacity = bytes + 16;
    }
    put_le(board->record, bytes, 8);
    put_checksum(board->record + 8, board->record, 8);
    ddp__events__event__pack(event, board->record + 12);
    put_checksum(board->record + 12 + bytes, board->record + 12, bytes);
    ddp_append_file_write(board->file, board->record, bytes + 16);
}

/* Scalars of one moment, written together. */
struct scalars {
    Ddp__Events__Value values[SCALARS];
    Ddp__Events__Value *pointers[SCALARS];
    char names[SCALARS][48]; /* of some */
    size_t count;
};

static void add_scalar(struct scalars *scalars, const char *tag, double value)
{
    if (scalars->count == SCALARS)
        return;
    Ddp__Events__Value *v = &scalars->values[scalars->count];
    ddp__events__value__init(v);
    v->tag = (char *)tag; /* only read */
    v->value_case = DDP__EVENTS__VALUE__VALUE_SIMPLE_VALUE;
    v->simple_value = (float)value;
    scalars->pointers[scalars->count++] = v;
}

static void write_summary(struct tensorboard *board, int64_t step, Ddp__Events__Value **values,
                          size_t count)
{
    Ddp__Events__Summary summary = DDP__EVENTS__SUMMARY__INIT;
    Ddp__Events__Event event = DDP__EVENTS__EVENT__INIT;
    summary.value = values;
    summary.n_value = count;
    event.wall_time = ddp_clock_wall();
    event.step = step;
    event.what_case = DDP__EVENTS__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    write_event(board, &event);
}

/* A text in Markdown, for the page "Text". */
static void write_text(struct tensorboard *board, int64_t step, const char *tag, const char *text)
{
    ProtobufCBinaryData data = {strlen(text), (uint8_t *)text};
    Ddp__Events__Shape shape = DDP__EVENTS__SHAPE__INIT; /* no dimension: one string */
    Ddp__Events__Tensor tensor = DDP__EVENTS__TENSOR__INIT;
    Ddp__Events__PluginData plugin = DDP__EVENTS__PLUGIN_DATA__INIT;
    Ddp__Events__Metadata metadata = DDP__EVENTS__METADATA__INIT;
    Ddp__Events__Value value = DDP__EVENTS__VALUE__INIT;
    tensor.dtype = DT_STRING;
    tensor.tensor_shape = &shape;
    tensor.string_val = &data;
    tensor.n_string_val = 1;
    plugin.plugin_name = (char *)"text";
    metadata.plugin_data = &plugin;
    value.tag = (char *)tag;
    value.value_case = DDP__EVENTS__VALUE__VALUE_TENSOR;
    value.tensor = &tensor;
    value.metadata = &metadata;
    write_summary(board, step, &(Ddp__Events__Value *){&value}, 1);
}

/* The first record names the format. After a resumption TensorBoard must forget what an earlier
 * file has about this step and later ones. */
static void write_head(struct tensorboard *board, const struct ddp_train_facts *facts)
{
    Ddp__Events__Event event = DDP__EVENTS__EVENT__INIT;
    event.wall_time = ddp_clock_wall();
    event.what_case = DDP__EVENTS__EVENT__WHAT_FILE_VERSION;
    event.file_version = (char *)"brain.Event:2";
    write_event(board, &event);
    if (facts->first_step > 0) {
        Ddp__Events__SessionLog session = DDP__EVENTS__SESSION_LOG__INIT;
        session.status = 1;
        event.step = facts->first_step + 1;
        event.what_case = DDP__EVENTS__EVENT__WHAT_SESSION_LOG;
        event.session_log = &session;
        write_event(board, &event);
    }
    char text[1024];
    snprintf(text, sizeof text,
             "| | |\n|---|---|\n| model | %s, %" PRId64 " parameters |\n| data | %s, %" PRId64
             " samples |\n| mode | %s, %d workers on %d node%s, %d threads each, %s |\n| global "
             "batch | %" PRId64 " x %" PRId64 " samples |\n| steps | %" PRId64 ", %" PRId64
             " an epoch |\n| learning rate | %g, %s |\n| ddprun | %s |\n",
             facts->model, ddp_graph_element_count(facts->graph), facts->data->path,
             facts->data->sample_count, ddp_mode_names[facts->mode], facts->world_size,
             facts->nodes, facts->nodes == 1 ? "" : "s", facts->threads, facts->device,
             facts->global_shards, facts->batch_size, facts->total_steps, facts->steps_per_epoch,
             facts->schedule.rate, ddp_schedule_names[facts->schedule.kind], ddp_version());
    write_text(board, 0, "run", text);
}

static enum ddp_status board_open(void **state, const struct ddp_train_facts *facts)
{
    const char *directory = facts->options.tensorboard;
    char host[256] = "", path[4608];
    if (!directory)
        return DDP_OK;
    enum ddp_status status = ddp_make_directories(directory, false);
    if (status != DDP_OK)
        return status;
    struct tensorboard *board = ddp_array_alloc(1, sizeof *board);
    if (!board)
        return DDP_ERR_MEMORY;
    board->facts = facts;
    gethostname(host, sizeof host - 1);
    snprintf(path, sizeof path, "%s/events.out.tfevents.%010.0f.%s.%ld", directory,
             floor(ddp_clock_wall()), host, (long)getpid());
    status = ddp_append_file_open(&board->file, path, false);
    if (status != DDP_OK) {
        free(board);
        return status;
    }
    write_head(board, facts);
    *state = board;
    return DDP_OK;
}

static void add_preferences(struct scalars *scalars, const char *prefix,
                            const struct ddp_preferences *preferences)
{
    for (int i = 0; ddp_train_preference_names[i].name && scalars->count < SCALARS; i++) {
        const double value = ddp_train_preference(preferences, i);
        char *tag = scalars->names[scalars->count];
        snprintf(tag, sizeof scalars->names[0], "%s%s", prefix, ddp_train_preference_names[i].name);
        if (!isnan(value))
            add_scalar(scalars, tag, value);
    }
}

static void board_step(void *state, const struct ddp_train_event *step)
{
    struct tensorboard *board = state;
    char rate_tag[48];
    struct scalars scalars = {.count = 0};
    if (!step->logged)
        return;
    snprintf(rate_tag, sizeof rate_tag, "train/%s_per_second", step->unit);
    add_scalar(&scalars, "train/loss", step->loss);
    add_scalar(&scalars, "train/nodes", board->facts->nodes);
    add_scalar(&scalars, "train/workers", board->facts->world_size);
    add_scalar(&scalars, "train/learning_rate", step->rate);
    add_scalar(&scalars, rate_tag, step->items / (step->seconds + 1e-9));
    add_scalar(&scalars, "train/waiting_for_data", step->wait_seconds / (step->seconds + 1e-9));
    if (step->flops > 0)
        add_scalar(&scalars, "train/model_gflops", 1e-9 * step->flops / (step->seconds + 1e-9));
    if (step->peak_flops > 0)
        add_scalar(&scalars, "train/share_of_peak",
                   step->flops / (step->seconds + 1e-9) / step->peak_flops);
    if (!isnan(step->gradient_norm))
        add_scalar(&scalars, "train/gradient_norm", step->gradient_norm);
    if (!isnan(step->noise_scale))
        add_scalar(&scalars, "train/gradient_noise_scale", step->noise_scale);
    if (step->loss_scale > 0)
        add_scalar(&scalars, "train/loss_scale", step->loss_scale);
    if (step->has_preferences)
        add_preferences(&scalars, "train/", &step->preferences);
    write_summary(board, step->step + 1, scalars.pointers, scalars.count);
}

static void board_evaluation(void *state, const struct ddp_train_evaluation *evaluation)
{
    struct scalars scalars = {.count = 0};
    add_scalar(&scalars, "test/loss", evaluation->scores.loss);
    if (!isnan(evaluation->scores.accuracy))
        add_scalar(&scalars, "test/accuracy", evaluation->scores.accuracy);
    if (evaluation->scores.has_perplexity)
        add_scalar(&scalars, "test/perplexity", evaluation->scores.perplexity);
    if (evaluation->scores.has_bits_per_byte)
        add_scalar(&scalars, "test/bits_per_byte", evaluation->scores.bits_per_byte);
    if (evaluation->scores.has_errors) {
        add_scalar(&scalars, "test/r2", evaluation->scores.r2);
        add_scalar(&scalars, "test/squared_error", evaluation->scores.squared_error);
        add_scalar(&scalars, "test/absolute_error", evaluation->scores.absolute_error);
    }
    if (evaluation->scores.has_choices)
        add_scalar(&scalars, "test/accuracy_norm", evaluation->scores.normalized);
    if (evaluation->scores.has_preferences)
        add_preferences(&scalars, "test/", &evaluation->scores.preferences);
    write_summary(state, evaluation->step + 1, scalars.pointers, scalars.count);
}

/* Indented, which is how Markdown shows a text as it is. */
static void board_text(void *state, const struct ddp_train_text *text)
{
    char tag[32], *indented = NULL;
    size_t size;
    FILE *out = open_memstream(&indented, &size);
    if (!out)
        return; /* a text is missing; training continues */
    for (const char *line = text->text; line;
         line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        fprintf(out, "    %.*s\n", (int)strcspn(line, "\n"), line);
    snprintf(tag, sizeof tag, "sample/%" PRId64, text->index + 1);
    if (fclose(out) == 0)
        write_text(state, text->step + 1, tag, indented);
    free(indented);
}

static void board_close(void *state, enum ddp_status status)
{
    struct tensorboard *board = state;
    (void)status;
    ddp_append_file_close(board->file);
    free(board->record);
    free(board);
}

const struct ddp_train_sink_ops ddp_train_sink_tensorboard = {
    .open = board_open,
    .step = board_step,
    .evaluation = board_evaluation,
    .text = board_text,
    .close = board_close,
};

#else

static enum ddp_status board_open(void **state, const struct ddp_train_facts *facts)
{
    (void)state;
    if (!facts->options.tensorboard)
        return DDP_OK;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "--tensorboard: this build was made without protobuf-c; "
                                         "--log writes the same figures as JSON lines");
}

const struct ddp_train_sink_ops ddp_train_sink_tensorboard = {.open = board_open};

#endif
