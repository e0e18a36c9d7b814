/* SPDX-License-Identifier: MIT
 *
 * See sample.h. A vocabulary of 256 means that tokens are bytes. */
#include "config.h"

#include "train/sample.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/parse.h"
#include "core/text.h"
#include "model/gpt2.h"
#include "train/generate.h"
#include "weights/weights.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BYTE_VOCABULARY 256
#define PROMPT_MAX      (1 << 20) /* bytes of a prompt's file */

struct sample {
    const struct ddp_train_options *options;
    const struct ddp_model *model;
    struct ddp_model_config config;
    float *weights;
    int32_t *tokens; /* the prompt's and those that came */
    int64_t count;
    ddp_generator *generator;
    FILE *out;
    bool terminal;   /* which must not obey what the model writes */
    char pending[4]; /* there: of a character that has not come whole */
    size_t pending_bytes;
};

static bool is_text(const struct sample *sample)
{
    return sample->config.classes == BYTE_VOCABULARY;
}

/* --prompt names a file or is the text itself. *text is freed with free(). */
static enum ddp_status read_prompt(const char *prompt, char **text, size_t *length)
{
    struct stat about;
    if (!prompt)
        prompt = "\n";
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
static enum ddp_status parse_tokens(struct sample *sample, char *text)
{
    const int64_t vocabulary = sample->config.classes;
    int64_t token;
    for (char *rest = text, *word; (word = strsep(&rest, " ,\t\r\n"));) {
        if (!*word)
            continue;
        if (!ddp_parse_int64(word, 0, vocabulary - 1, &token))
            return ddp_fail(DDP_ERR_INVALID,
                            "--prompt: '%s' is not a token: this model's are numbers from 0 to "
                            "%" PRId64,
                            word, vocabulary - 1);
        sample->tokens[sample->count++] = (int32_t)token;
    }
    if (sample->count == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "--prompt: give at least one token, a number from 0 to %" PRId64,
                        vocabulary - 1);
    return DDP_OK;
}

static enum ddp_status set_prompt(struct sample *sample)
{
    char *text = NULL;
    size_t length = 0;
    const char *prompt = sample->options->prompt;
    enum ddp_status status = read_prompt(prompt || is_text(sample) ? prompt : "0", &text, &length);
    if (status != DDP_OK)
        return status;
    sample->tokens =
        ddp_array_alloc(length + 1 + (size_t)sample->options->generate, sizeof *sample->tokens);
    if (!sample->tokens)
        status = DDP_ERR_MEMORY;
    else if (is_text(sample))
        for (size_t i = 0; i < length; i++)
            sample->tokens[sample->count++] = (unsigned char)text[i];
    else
        status = parse_tokens(sample, text);
    free(text);
    return status;
}

static enum ddp_status load(struct sample *sample)
{
    const struct ddp_train_options *options = sample->options;
    ddp_graph *graph = NULL;
    enum ddp_status status =
        ddp_train_weights_model(options->load, &sample->model, &sample->config);
    if (status == DDP_OK && sample->model != &ddp_model_gpt2)
        return ddp_fail(DDP_ERR_INVALID, "--generate: %s is not described as a gpt2",
                        options->load);
    if (status == DDP_OK) {
        sample->config.batch = 1;
        status = ddp_model_build(&graph, sample->model, &sample->config);
    }
    if (status == DDP_OK) {
        sample->weights = ddp_array_alloc((size_t)ddp_graph_flat_count(graph), sizeof(float));
        status = sample->weights
                     ? ddp_train_weights_load(options->load, graph,
                                              ddp_gpt2_in(&sample->config)->heads, sample->weights)
                     : DDP_ERR_MEMORY;
    }
    ddp_graph_destroy(graph);
    return status;
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

static void print_token(struct sample *sample, int64_t index)
{
    if (is_text(sample) && sample->terminal) {
        sample->pending[sample->pending_bytes++] = (char)sample->tokens[index];
        print_pending(sample, false);
    } else if (is_text(sample))
        fputc(sample->tokens[index], sample->out);
    else
        fprintf(sample->out, "%s%" PRId32, index ? " " : "", sample->tokens[index]);
}

static enum ddp_status run(struct sample *sample)
{
    enum ddp_status status = DDP_OK;
    for (int64_t i = 0; i < sample->count; i++)
        print_token(sample, i);
    for (int64_t i = 0; status == DDP_OK && i < sample->options->generate; i++) {
        fflush(sample->out);
        status = ddp_generator_next(sample->generator, sample->tokens, sample->count,
                                    &sample->tokens[sample->count]);
        if (status == DDP_OK)
            print_token(sample, sample->count++);
    }
    print_pending(sample, true);
    fputc('\n', sample->out);
    if (status == DDP_OK && (fflush(sample->out) != 0 || ferror(sample->out)))
        status = ddp_fail(DDP_ERR_IO, "cannot write the text to standard output");
    return status;
}

enum ddp_status ddp_train_sample(const struct ddp_train_options *options, FILE *out)
{
    struct sample sample = {.options = options, .out = out, .terminal = isatty(fileno(out))};
    if (!options->load)
        return ddp_fail(DDP_ERR_INVALID, "--generate: name the trained weights with --load FILE");
    enum ddp_status status = ddp_train_check_options(options, NULL);
    if (status == DDP_OK)
        status = load(&sample);
    if (status == DDP_OK)
        status = set_prompt(&sample);
    if (status == DDP_OK) {
        const struct ddp_generator_config config = {
            .model = sample.model,
            .model_config = &sample.config,
            .weights = sample.weights,
            .device = options->device,
            .index = options->device_count > 0 ? (int)options->devices[0] : 0,
            .threads = ddp_train_threads(options, 1),
            .temperature = options->temperature,
            .top_k = options->top_k,
            .seed = options->seed,
        };
        status = ddp_generator_create(&sample.generator, &config);
    }
    if (status == DDP_OK)
        status = run(&sample);
    ddp_generator_destroy(sample.generator);
    free(sample.tokens);
    free(sample.weights);
    return status;
}
