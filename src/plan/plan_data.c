/* SPDX-License-Identifier: MIT
 *
 * Do the data, the test data and the model fit each other? */
#include "config.h"

#include "plan/planned.h"

#include "core/log.h"
#include "core/memory.h"
#include "data/choices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 256 /* tokens there are in a text */

/* Can the model learn from such data? And does every option for the data mean something? */
enum ddp_status ddp_planned_check_fit(const struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    const struct ddp_model *model = planned->plan.model;
    const struct ddp_dataset_info *info = ddp_dataset_info(planned->data);
    const bool tokens = info->x_dtype == DDP_I32;
    const char *where = ddp_dataset_where(info);
    if (!options->custom && tokens != (model->x_dtype == DDP_I32))
        return ddp_fail(DDP_ERR_INVALID, "%s holds %s, and the model %s learns from %s%s", where,
                        tokens ? "tokens" : "numbers", model->name, tokens ? "numbers" : "tokens",
                        options->load ? ""
                        : tokens      ? ": use --model gpt2"
                                      : ": use --model mlp, or cnn or resnet for images");
    if (model->context && !model->borders && info->dim_count == 2)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s has prompts or chats, whose boundaries the model %s does not know: use "
                        "--model llama, or lines with a \"text\"",
                        where, model->name);
    if (!options->custom && info->float_labels && !model->numbers)
        return ddp_fail(DDP_ERR_INVALID,
                        "the model %s learns classes, and %s has numbers for labels: use --model "
                        "mlp%s",
                        model->name, where,
                        options->own_data ? ", or give one with ddp_graph_mse() to "
                                            "ddp_train_set_model()"
                                          : "");
    if (!options->custom && info->float_labels && info->label_count != 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "the model %s gives one number, and samples of %s have %" PRId64
                        ": give a model with ddp_graph_mse() to ddp_train_set_model()",
                        model->name, where, info->label_count);
    if (model->labels && info->label_count == 0 && !ddp_train_evaluates_only(options))
        return ddp_fail(
            DDP_ERR_INVALID, "%s has no labels, and the model %s needs them%s", where, model->name,
            strcmp(info->source, "npy") == 0 ? ": name their array too, as in --data X.npy,Y.npy"
            : strcmp(info->source, "images") == 0
                ? ": put the images of each class into a directory of its own"
                : "");
    const char *of_tokens = tokens ? NULL : ddp_train_given_of(options, DDP_OF_TOKENS);
    const bool table = strcmp(info->source, "table") == 0;
    const char *of_tables = table ? NULL
                            : options->columns && !tokens
                                ? "columns"
                                : ddp_train_given_of(options, DDP_OF_TABLE);
    if (of_tables)
        return ddp_fail(DDP_ERR_INVALID,
                        "--%s belongs to tables (.csv, .tsv), and %s is data of the kind %s",
                        of_tables, where, info->source);
    return of_tokens ? ddp_fail(DDP_ERR_INVALID, "--%s belongs to token data, and %s holds numbers",
                                of_tokens, where)
                     : DDP_OK;
}

static const char *kind_of(const struct ddp_dataset_info *info)
{
    return info->dim_count == 2    ? "prompts or chats"
           : info->bytes           ? "a text"
           : info->token_bytes > 0 ? "an encoded text"
                                   : "a file of tokens";
}

/* Questions are evaluated as a whole, in rows with borders. */
static enum ddp_status check_choices(const struct ddp_planned *planned)
{
    const char *path = ddp_dataset_info(planned->test)->path;
    if (!planned->plan.model->borders)
        return ddp_fail(DDP_ERR_INVALID,
                        "--val %s has questions with choices, whose boundaries the model %s does "
                        "not know: use --model llama",
                        path, planned->plan.model->name);
    return planned->options->eval_steps
               ? ddp_fail(DDP_ERR_INVALID,
                          "--eval-steps: --val %s has questions with choices, of which all are "
                          "evaluated: leave --eval-steps out",
                          path)
               : DDP_OK;
}

/* Bytes and other tokens are not the same language, and rows of chats have borders of documents. */
static enum ddp_status check_val(const struct ddp_planned *planned)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(planned->data);
    const struct ddp_dataset_info *test = planned->test ? ddp_dataset_info(planned->test) : info;
    int64_t count;
    if (planned->test && ddp_choices_scores(planned->test, &count))
        return check_choices(planned);
    if (info->bytes == test->bytes && info->dim_count == test->dim_count)
        return DDP_OK;
    return ddp_fail(DDP_ERR_INVALID,
                    "--val %s is %s, and --data %s is %s: both must be of the same kind, encoded "
                    "by the same tokenizer",
                    test->path, kind_of(test), info->path, kind_of(info));
}

/* Would the bytes of a text be taken for tokens of another kind, or are tokens beyond the model's
 * vocabulary? A few samples tell which a file without a header has. */
static enum ddp_status check_vocabulary(const struct ddp_planned *planned)
{
    const struct ddp_train_options *options = planned->options;
    const struct ddp_dataset_info *info = ddp_dataset_info(planned->data);
    const int64_t last = info->sample_count - 1, samples[] = {0, last / 2, last};
    const int64_t vocabulary = ddp_planned_model_classes(planned);
    const char *flag = options->config ? "config" : options->load ? "load" : "size";
    const char *path = options->config ? options->config
                       : options->load ? options->load
                                       : options->size;
    char unsaid[1024];
    if (info->x_dtype != DDP_I32)
        return DDP_OK;
    if (info->bytes && options->vocab_size > BYTES) {
        if (planned->plan.rank == 0)
            ddp_log(DDP_LOG_WARNING,
                    "--vocab-size %" PRId64
                    ": %s is a text, whose bytes are taken as tokens from 0 "
                    "to 255",
                    options->vocab_size, info->path);
        return DDP_OK;
    }
    if (vocabulary == 0 || options->vocab_size)
        return DDP_OK;
    if (info->bytes && vocabulary != BYTES)
        return ddp_fail(DDP_ERR_INVALID,
                        "%s is a text, whose bytes would be taken as tokens of the vocabulary of "
                        "%" PRId64
                        " that --%s %s has: name the model's tokenizer with --tokenizer, "
                        "or train a model of bytes without --%s",
                        info->path, vocabulary, flag, path, flag);
    int32_t *x = ddp_array_alloc(3 * info->sample_values, sizeof *x);
    if (!x)
        return DDP_ERR_MEMORY;
    ddp_log_hold(unsaid, sizeof unsaid);
    const enum ddp_status status = ddp_dataset_read(planned->data, samples, 3, x, NULL);
    ddp_log_hold(NULL, 0);
    free(x);
    if (status != DDP_OK)
        return ddp_fail(
            status == DDP_ERR_FORMAT ? DDP_ERR_INVALID : status,
            "the tokens do not fit the model of --%s %s: %s: give tokens of the model's "
            "tokenizer, or train another model without --%s",
            flag, path, unsaid, flag);
    return DDP_OK;
}

enum ddp_status ddp_planned_check_sets(const struct ddp_planned *planned)
{
    enum ddp_status status = ddp_planned_check_fit(planned);
    if (status == DDP_OK)
        status = check_val(planned);
    if (status == DDP_OK)
        status = check_vocabulary(planned);
    return status == DDP_OK ? ddp_planned_check_evaluation(planned) : status;
}
