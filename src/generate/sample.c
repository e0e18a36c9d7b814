/* SPDX-License-Identifier: MIT
 *
 * See sample.h. */
#include "config.h"

#include "generate/sample.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "generate/continuation.h"
#include "plan/weights.h"
#include "plan/load.h"
#include "generate/texts.h"
#include "weights/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sample {
    const struct ddp_train_options *options;
    struct ddp_load load;
    struct ddp_model_config config;
    ddp_graph *graph;
    struct ddp_frozen_host frozen_host;
    struct ddp_frozen frozen;
    ddp_device *device;
    size_t weights_bytes;
    float *weights, *device_weights; /* the latter NULL where the device reads the host's */
    struct ddp_continuation continuation;
    ddp_decoder *decoder; /* NULL: tokens are bytes or numbers */
    FILE *out;
    bool terminal;   /* which must not obey what the model writes */
    char pending[4]; /* there: of a character that has not come whole */
    size_t pending_bytes;
};

/* The weights, in host memory. */
static enum ddp_status read_weights(struct sample *sample, const ddp_graph *graph)
{
    enum ddp_status status =
        ddp_frozen_host_alloc(&sample->frozen_host, graph, NULL, false, DDP_F32);
    sample->weights_bytes = (size_t)ddp_graph_flat_count(graph) * sizeof(float);
    sample->weights = ddp_pages_alloc(sample->weights_bytes);
    if (status == DDP_OK && !sample->weights)
        status = DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = ddp_load_weights(&sample->load, sample->load.model, &sample->config, graph,
                                  sample->weights, sample->frozen_host.values);
    if (status == DDP_OK)
        status = ddp_frozen_host_complete(&sample->frozen_host, graph, 1);
    return status;
}

static enum ddp_status load(struct sample *sample)
{
    const struct ddp_train_options *options = sample->options;
    enum ddp_status status = ddp_load_open(&sample->load, options, true);
    if (status == DDP_OK && !(sample->load.model && sample->load.model->context))
        return ddp_fail(DDP_ERR_INVALID, "--generate: %s is not described as a gpt2 or llama",
                        options->load);
    sample->config = sample->load.config;
    sample->config.batch = 1;
    if (status == DDP_OK && sample->load.directory)
        status = ddp_load_apply(&sample->load, options, &sample->config, NULL);
    if (status == DDP_OK)
        status = ddp_model_build(&sample->graph, sample->load.model, &sample->config);
    return status == DDP_OK ? read_weights(sample, sample->graph) : status;
}

/* Prints the characters that are whole; at the end the rest as well. */
static void print_pending(struct sample *sample, bool end)
{
    char shown[8];
    while (sample->pending_bytes > 0) {
        const int length = ddp_text_character(sample->pending, sample->pending_bytes);
        const size_t taken = length > 0 ? (size_t)length : 1;
        if (length < 0 && !end)
            break;
        ddp_text_clean(shown, sizeof shown, sample->pending, taken);
        fputs(sample->pending[0] == '\n' ? "\n" : shown, sample->out);
        sample->pending_bytes -= taken;
        memmove(sample->pending, sample->pending + taken, sample->pending_bytes);
    }
}

/* Of the tokenizer: the characters that are whole. */
static enum ddp_status print_decoded(struct sample *sample, const char *text, size_t bytes)
{
    if (sample->terminal)
        return ddp_train_print_text(sample->out, text, bytes);
    fwrite(text, 1, bytes, sample->out);
    return DDP_OK;
}

static enum ddp_status decode_token(struct sample *sample, int32_t token)
{
    const char *text;
    size_t bytes;
    const enum ddp_status status = ddp_decoder_next(sample->decoder, &token, 1, &text, &bytes);
    return status == DDP_OK ? print_decoded(sample, text, bytes) : status;
}

static enum ddp_status print_token(struct sample *sample, const int32_t *tokens, int64_t index)
{
    const bool is_text = sample->continuation.is_text;
    if (sample->decoder)
        return decode_token(sample, tokens[index]);
    if (is_text && sample->terminal) {
        sample->pending[sample->pending_bytes++] = (char)tokens[index];
        print_pending(sample, false);
    } else if (is_text)
        fputc(tokens[index], sample->out);
    else
        fprintf(sample->out, "%s%" PRId32, index ? " " : "", tokens[index]);
    return DDP_OK;
}

/* What sample `index` has beside the first `printed` tokens. */
static enum ddp_status print_tokens(struct sample *sample, int64_t index, int64_t *printed)
{
    int64_t count;
    const int32_t *tokens = ddp_continuation_tokens(&sample->continuation, index, &count);
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && *printed < count)
        status = print_token(sample, tokens, (*printed)++);
    return status;
}

static enum ddp_status print_end(struct sample *sample)
{
    const char *text = "";
    size_t bytes = 0;
    enum ddp_status status = DDP_OK;
    print_pending(sample, true);
    if (sample->decoder)
        status = ddp_decoder_end(sample->decoder, &text, &bytes);
    if (status == DDP_OK)
        status = print_decoded(sample, text, bytes);
    fputc('\n', sample->out);
    return status;
}

/* A single sample is printed as it comes; several one after another, when all are there. */
static enum ddp_status run(struct sample *sample)
{
    struct ddp_continuation *c = &sample->continuation;
    const bool single = c->samples == 1;
    enum ddp_status status = DDP_OK;
    int64_t printed = 0;
    while (status == DDP_OK && ddp_continuation_goes_on(c)) {
        if (single) {
            status = print_tokens(sample, 0, &printed);
            fflush(sample->out);
        }
        if (status == DDP_OK)
            status = ddp_continuation_next(c);
    }
    if (status == DDP_ERR_FORMAT)
        ddp_fail(status,
                 "%s: the weights give numbers that are not finite: they are damaged, or the "
                 "training diverged",
                 sample->options->load);
    for (int64_t i = 0; i < c->samples && (single || status == DDP_OK); i++) {
        if (!single)
            fprintf(sample->out, "--- sample %" PRId64 " of %" PRId64 " ---\n", i + 1, c->samples);
        if (!single || status == DDP_OK)
            status = print_tokens(sample, i, &printed);
        const enum ddp_status ended = print_end(sample);
        status = status == DDP_OK ? ended : status;
        printed = 0;
    }
    if (status == DDP_OK && (fflush(sample->out) != 0 || ferror(sample->out)))
        status = ddp_fail(DDP_ERR_IO, "cannot write the text to standard output");
    return status;
}

/* The CPU computes with the weights where they are; others get a copy. */
static enum ddp_status open_device(struct sample *sample)
{
    const struct ddp_train_options *options = sample->options;
    enum ddp_status status = ddp_device_open(
        &sample->device, options->device, options->device_count > 0 ? (int)options->devices[0] : 0,
        ddp_train_threads(options, 1));
    if (status == DDP_OK)
        status = ddp_frozen_open(&sample->frozen, sample->device, &sample->frozen_host,
                                 sample->graph, NULL, DDP_F32);
    if (status != DDP_OK || ddp_device_host_memory(sample->device))
        return status;
    status =
        ddp_device_alloc(sample->device, sample->weights_bytes, (void **)&sample->device_weights);
    if (status == DDP_OK)
        status = ddp_device_copy_in(sample->device, sample->device_weights, sample->weights,
                                    sample->weights_bytes);
    return status == DDP_OK ? ddp_device_synchronize(sample->device) : status;
}

static void close_device(struct sample *sample)
{
    ddp_frozen_close(&sample->frozen);
    if (sample->device)
        ddp_device_free(sample->device, sample->device_weights, sample->weights_bytes);
    ddp_device_close(sample->device);
}

enum ddp_status ddp_train_sample(const struct ddp_train_options *options,
                                 const ddp_tokenizer *tokenizer, FILE *out)
{
    struct sample sample = {.options = options, .out = out, .terminal = isatty(fileno(out))};
    if (!options->load)
        return ddp_fail(DDP_ERR_INVALID, "--generate: name the trained weights with --load PATH");
    enum ddp_status status = ddp_train_check_options(options, NULL);
    if (status == DDP_OK)
        status = load(&sample);
    if (status == DDP_OK && tokenizer)
        ddp_train_note_tokenizer(ddp_tokenizer_hash(tokenizer), sample.load.data);
    if (status == DDP_OK)
        status = open_device(&sample);
    if (status == DDP_OK)
        status = ddp_continuation_open(
            &sample.continuation, options, tokenizer, sample.load.model, &sample.config,
            sample.device, sample.device_weights ? sample.device_weights : sample.weights,
            &sample.frozen, options->generate);
    if (status == DDP_OK && tokenizer)
        status = ddp_decoder_create(&sample.decoder, tokenizer, true);
    if (status == DDP_OK)
        status = run(&sample);
    ddp_decoder_destroy(sample.decoder);
    ddp_continuation_close(&sample.continuation);
    close_device(&sample);
    ddp_pages_free(sample.weights, sample.weights_bytes);
    ddp_frozen_host_free(&sample.frozen_host);
    ddp_graph_destroy(sample.graph);
    ddp_load_close(&sample.load);
    return status;
}
