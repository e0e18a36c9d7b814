/* SPDX-License-Identifier: MIT
 *
 * See predict.h. Each rank keeps what it has found of its own samples; at the end the ranks hand
 * that to rank 0 in turn, a piece at a time, which writes the file in the order of the samples.
 * Probabilities are computed on the host from the network's output, always in the same way. */
#include "config.h"

#include "train/predict.h"

#include "core/atomic_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/portable_math.h"
#include "core/terminal.h"
#include "core/text.h"
#include "core/trace.h"
#include "data/describe.h"
#include "data/normalize.h"
#include "graph/exec.h"
#include "train/best.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES  ((int64_t)1 << 20) /* handed over at a time */
#define NPY_ALIGN    64                 /* of the values, as NumPy writes them */
#define LEAST_LENGTH 1e-12              /* torch.nn.functional.normalize() divides by no less */

/* A line of a CSV file. */
struct prediction {
    int32_t label; /* -1: not known */
    int32_t class;
    float probability;
};

struct predictions {
    const ddp_dataset *data;
    char **names;     /* of classes, from the weights; NULL: those of the data */
    bool matrix;      /* all probabilities or numbers, for an array */
    bool numbers;     /* the model gives no classes: what it gives is written, beside the targets */
    double mean, std; /* of numbers that were scaled: they are written in their own unit */
    int64_t unit;     /* numbers that are brought to length 1 together; 0: none */
    int64_t classes;  /* or numbers */
    int64_t begin, end;
    size_t row_bytes; /* of what is kept of a sample */
    char *rows;
    double *exponentials; /* of one sample */
};

/* --- one batch --- */

/* Softmax in double: exp(logit - largest) by their sum. Returns the first of the most likely
 * classes. */
static int32_t softmax(const float *logits, int64_t classes, double *probabilities)
{
    int32_t best = 0;
    double sum = 0;
    for (int64_t i = 1; i < classes; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    for (int64_t i = 0; i < classes; i++)
        sum += probabilities[i] = ddp_math_exp((double)logits[i] - (double)logits[best]);
    for (int64_t i = 0; i < classes; i++)
        probabilities[i] /= sum;
    return best;
}

/* Vectors of `width` numbers, each divided by its length, as sentence-transformers does. */
static void make_units(float *values, int64_t count, int64_t width)
{
    for (int64_t at = 0; width > 0 && at < count; at += width) {
        double sum = 0;
        for (int64_t k = at; k < at + width; k++)
            sum += (double)values[k] * (double)values[k];
        const double length = sqrt(sum) > LEAST_LENGTH ? sqrt(sum) : LEAST_LENGTH;
        for (int64_t k = at; k < at + width; k++)
            values[k] = (float)((double)values[k] / length);
    }
}

/* Of a sample: its targets, if they are wanted and known, then what the model gives. */
static enum ddp_status take_numbers(const struct predictions *p, int64_t first,
                                    const struct ddp_batch *batch, const float *outputs)
{
    const size_t bytes = (size_t)p->classes * sizeof(float), before = p->row_bytes - bytes;
    char *row = p->rows + (size_t)(first - p->begin) * p->row_bytes;
    for (int64_t i = 0; i < batch->rows; i++, row += p->row_bytes, outputs += p->classes) {
        for (int64_t k = 0; k < p->classes; k++)
            if (!isfinite(outputs[k]))
                return ddp_fail(DDP_ERR_INVALID,
                                "sample %" PRId64 ": the model's output is not finite; look for "
                                "infinite values in the data and the weights",
                                first + i);
        if (before > 0)
            memcpy(row, (const char *)batch->labels + (size_t)i * before, before);
        memcpy(row + before, outputs, bytes);
        float *values = (void *)row;
        for (size_t k = 0; p->std > 0 && k < p->row_bytes / sizeof *values; k++)
            values[k] = (float)((double)values[k] * p->std + p->mean);
        make_units(values + before / sizeof *values, p->classes, p->unit);
    }
    return DDP_OK;
}

static enum ddp_status take_batch(void *arg, int64_t first, const struct ddp_batch *batch,
                                  const float *logits)
{
    struct predictions *p = arg;
    if (p->numbers)
        return take_numbers(p, first, batch, logits);
    char *row = p->rows + (size_t)(first - p->begin) * p->row_bytes;
    for (int64_t i = 0; i < batch->rows; i++, row += p->row_bytes) {
        const int32_t class = softmax(logits + i * p->classes, p->classes, p->exponentials);
        if (!isfinite(p->exponentials[class]))
            return ddp_fail(DDP_ERR_INVALID,
                            "sample %" PRId64 " has no probabilities: the model's output is not "
                            "finite; look for infinite values in the data and the weights",
                            first + i);
        if (p->matrix) {
            float *values = (void *)row;
            for (int64_t k = 0; k < p->classes; k++)
                values[k] = (float)p->exponentials[k];
        } else {
            *(struct prediction *)(void *)row = (struct prediction){
                .label = batch->labels ? batch->labels[i] : -1,
                .class = class,
                .probability = (float)p->exponentials[class],
            };
        }
    }
    return DDP_OK;
}

/* --- the file --- */

struct writer {
    const struct predictions *p;
    ddp_atomic_file *file;
    int64_t next; /* sample */
    char *text;   /* of a piece, growing */
    size_t used, size;
};

static enum ddp_status add(struct writer *w, const char *text, size_t bytes)
{
    if (w->used + bytes > w->size) {
        const size_t size = 2 * (w->used + bytes) + PIECE_BYTES;
        char *larger = realloc(w->text, size);
        if (!larger)
            return ddp_fail(DDP_ERR_MEMORY, "out of memory for the predictions");
        w->text = larger;
        w->size = size;
    }
    memcpy(w->text + w->used, text, bytes);
    w->used += bytes;
    return DDP_OK;
}

/* A field of a CSV file (RFC 4180), and what separates it from the next. */
static enum ddp_status add_field(struct writer *w, const char *field, const char *separator)
{
    const bool quoted = field[strcspn(field, ",\t\"\r\n")] != '\0';
    enum ddp_status status = quoted ? add(w, "\"", 1) : DDP_OK;
    for (const char *at = field; status == DDP_OK && *at; at++)
        status = *at == '"' ? add(w, "\"\"", 2) : add(w, at, 1);
    if (status == DDP_OK && quoted)
        status = add(w, "\"", 1);
    return status == DDP_OK ? add(w, separator, strlen(separator)) : status;
}

static enum ddp_status add_integer(struct writer *w, int64_t value, const char *separator)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return add_field(w, text, separator);
}

static enum ddp_status add_class(struct writer *w, int32_t class)
{
    const char *const *names =
        w->p->names ? (const char *const *)w->p->names : ddp_dataset_info(w->p->data)->class_names;
    return names && (w->p->names || class < ddp_dataset_info(w->p->data)->class_count)
               ? add_field(w, names[class], ",")
               : add_integer(w, class, ",");
}

/* A line of the table that is predicted, whose separator is used. */
static enum ddp_status add_row(struct writer *w, const char *row)
{
    const char separator = ddp_dataset_info(w->p->data)->separator;
    const enum ddp_status status = add(w, row, strlen(row));
    return status == DDP_OK ? add(w, &separator, 1) : status;
}

/* The table's next row with what is predicted of it. */
static enum ddp_status add_to_row(struct writer *w, const void *kept)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(w->p->data);
    const struct prediction *prediction = kept;
    const char separator[] = {info->separator, '\0'};
    char text[32];
    enum ddp_status status = add_row(w, ddp_dataset_sample_name(w->p->data, w->next++));
    const double number =
        w->p->numbers ? (double)((const float *)kept)[0] : (double)prediction->probability;
    snprintf(text, sizeof text, "%.9g", number);
    if (status == DDP_OK && !w->p->numbers)
        status = add_field(w, info->class_names[prediction->class], separator);
    return status == DDP_OK ? add_field(w, text, "\n") : status;
}

static enum ddp_status add_prediction(struct writer *w, const struct prediction *prediction)
{
    const char *name = ddp_dataset_sample_name(w->p->data, w->next);
    enum ddp_status status = add_integer(w, w->next, ",");
    if (status == DDP_OK && name)
        status = add_field(w, name, ",");
    if (status == DDP_OK && ddp_dataset_info(w->p->data)->label_count > 0)
        status = add_class(w, prediction->label);
    if (status == DDP_OK)
        status = add_class(w, prediction->class);
    w->next++;
    char text[32];
    snprintf(text, sizeof text, "%.9g", (double)prediction->probability);
    return status == DDP_OK ? add_field(w, text, "\n") : status;
}

/* Columns of targets and of outputs; `values` NULL: their names, with numbers if there are
 * several. */
static enum ddp_status add_numbers(struct writer *w, const float *values)
{
    const int64_t outputs = w->p->classes;
    const int64_t all = (int64_t)(w->p->row_bytes / sizeof(float)), targets = all - outputs;
    enum ddp_status status = DDP_OK;
    for (int64_t i = 0; status == DDP_OK && i < all; i++) {
        const bool target = i < targets;
        const int64_t count = target ? targets : outputs, at = target ? i : i - targets;
        char text[64];
        if (values)
            snprintf(text, sizeof text, "%.9g", (double)values[i]);
        else if (count == 1)
            snprintf(text, sizeof text, "%s", target ? "target" : "output");
        else
            snprintf(text, sizeof text, "%s%" PRId64, target ? "target" : "output", at);
        status = add_field(w, text, i + 1 < all ? "," : "\n");
    }
    return status;
}

static enum ddp_status add_line_of_numbers(struct writer *w, const float *values)
{
    enum ddp_status status = add_integer(w, w->next++, ",");
    return status == DDP_OK ? add_numbers(w, values) : status;
}

/* "index,file,label,prediction,probability": those that are known of the data. */
static enum ddp_status add_csv_header(struct writer *w)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(w->p->data);
    if (info->table_header) {
        const char separator[] = {info->separator, '\0'};
        enum ddp_status of_row = add_row(w, info->table_header);
        if (of_row == DDP_OK && !w->p->numbers)
            of_row = add_field(w, "prediction", separator);
        return of_row == DDP_OK ? add_field(w, w->p->numbers ? "prediction" : "probability", "\n")
                                : of_row;
    }
    if (w->p->numbers) {
        enum ddp_status of_index = add_field(w, "index", ",");
        return of_index == DDP_OK ? add_numbers(w, NULL) : of_index;
    }
    enum ddp_status status = add_field(w, "index", ",");
    if (status == DDP_OK && ddp_dataset_sample_name(w->p->data, 0))
        status = add_field(w, "file", ",");
    if (status == DDP_OK && ddp_dataset_info(w->p->data)->label_count > 0)
        status = add_field(w, "label", ",");
    if (status == DDP_OK)
        status = add_field(w, "prediction", ",");
    return status == DDP_OK ? add_field(w, "probability", "\n") : status;
}

static enum ddp_status add_npy_header(struct writer *w)
{
    char text[2 * NPY_ALIGN + 64];
    const size_t prefix = 10;
    int n =
        snprintf(text + prefix, sizeof text - prefix,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }",
                 ddp_dataset_info(w->p->data)->sample_count, w->p->classes);
    size_t bytes = prefix + (size_t)n;
    while ((bytes + 1) % NPY_ALIGN != 0)
        text[bytes++] = ' ';
    text[bytes++] = '\n';
    memcpy(text, "\x93NUMPY\x01\x00", 8);
    text[8] = (char)((bytes - prefix) & 0xff);
    text[9] = (char)((bytes - prefix) >> 8);
    return add(w, text, bytes);
}

/* Rows of the next samples, as they were kept. */
static enum ddp_status write_rows(struct writer *w, const char *rows, int64_t count)
{
    const size_t bytes = w->p->row_bytes;
    enum ddp_status status = DDP_OK;
    if (w->p->matrix)
        status = add(w, rows, (size_t)count * bytes);
    for (int64_t i = 0; !w->p->matrix && status == DDP_OK && i < count; i++) {
        const void *row = rows + (size_t)i * bytes;
        status = ddp_dataset_info(w->p->data)->table_header ? add_to_row(w, row)
                 : w->p->numbers                            ? add_line_of_numbers(w, row)
                                                            : add_prediction(w, row);
    }
    if (status == DDP_OK)
        status = ddp_atomic_file_write(w->file, w->text, w->used);
    w->used = 0;
    return status;
}

/* Rank 0 gets the rows of all ranks in their order. Collective. */
static enum ddp_status gather(const struct predictions *p, ddp_comm *comm, struct writer *w)
{
    const int64_t most = PIECE_BYTES / (int64_t)p->row_bytes + 1;
    char *piece = ddp_array_alloc((size_t)most, p->row_bytes);
    enum ddp_status status = piece ? DDP_OK : DDP_ERR_MEMORY;
    for (int rank = 0; status == DDP_OK && rank < ddp_comm_size(comm); rank++) {
        const bool own = rank == ddp_comm_rank(comm);
        int64_t range[2] = {p->begin, p->end};
        status = ddp_comm_broadcast(comm, range, 2, DDP_I64, rank);
        for (int64_t at = range[0]; status == DDP_OK && at < range[1]; at += most) {
            const int64_t count = range[1] - at < most ? range[1] - at : most;
            const size_t bytes = (size_t)count * p->row_bytes;
            if (own)
                memcpy(piece, p->rows + (size_t)(at - p->begin) * p->row_bytes, bytes);
            if (rank != 0) /* rows are whole words */
                status = ddp_comm_broadcast(comm, piece, bytes / sizeof(int32_t), DDP_I32, rank);
            if (status == DDP_OK && w)
                status = write_rows(w, piece, count);
        }
    }
    free(piece);
    return status;
}

/* Collective. */
static enum ddp_status write_file(const struct predictions *p, const struct ddp_run *run)
{
    const bool writes = run->planned.plan.rank == 0;
    struct writer w = {.p = p};
    enum ddp_status status = DDP_OK;
    if (writes)
        status = ddp_atomic_file_open(&w.file, run->planned.options->predict);
    if (status == DDP_OK && writes)
        status = p->matrix ? add_npy_header(&w) : add_csv_header(&w);
    if (status == DDP_OK)
        status = gather(p, run->comm, writes ? &w : NULL);
    if (status == DDP_OK && writes)
        status = ddp_atomic_file_commit(w.file);
    ddp_atomic_file_close(w.file);
    free(w.text);
    return status;
}

/* --- predicting --- */

/* The test part, or where there is none all data. */
static const ddp_dataset *to_predict(const struct ddp_run *run)
{
    return run->planned.test ? run->planned.test : run->planned.data;
}

/* Numbers that the model gives of a sample. */
static int64_t outputs_of(const struct ddp_run *run)
{
    const size_t width = ddp_dtype_bytes(run->planned.model_config.activations);
    return (int64_t)(ddp_exec_graph_output_bytes(run->planned.graph) / width) /
           run->planned.model_config.batch;
}

static enum ddp_status predict(struct ddp_run *run)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(to_predict(run));
    const bool numbers = run->planned.model_config.classes == 0;
    const int64_t outputs = outputs_of(run);
    struct predictions p = {
        .data = to_predict(run),
        .numbers = numbers,
        .mean = info->label_mean,
        .std = info->label_std,
        .unit = ddp_planned_unit_width(&run->planned),
        .classes = numbers ? outputs : run->planned.model_config.classes,
    };
    struct ddp_train_evaluator_setup setup =
        ddp_run_evaluator_setup(run, p.data, info->sample_count);
    setup.visit = take_batch;
    setup.visit_arg = &p;
    setup.outputs = numbers ? outputs : 0;
    ddp_train_evaluator *evaluator = NULL;
    struct ddp_train_scores scores;
    char shown[DDP_TEXT_SHOWN];
    p.matrix = ddp_text_ends_with(run->planned.options->predict, ".npy");
    p.row_bytes =
        p.matrix || numbers ? (size_t)p.classes * sizeof(float) : sizeof(struct prediction);
    if (numbers && !p.matrix && !info->table_header && !info->compared)
        p.row_bytes += (size_t)info->label_count * sizeof(float);
    ddp_job_report(run->job, "predict", 0);
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = ddp_train_evaluator_create(&evaluator, &setup);
    if (status == DDP_OK) {
        ddp_train_evaluator_range(evaluator, &p.begin, &p.end);
        p.rows = ddp_array_alloc((size_t)(p.end - p.begin), p.row_bytes);
        p.exponentials = ddp_array_alloc((size_t)p.classes, sizeof *p.exponentials);
        status =
            p.rows && p.exponentials ? ddp_train_evaluator_run(evaluator, &scores) : DDP_ERR_MEMORY;
    }
    ddp_trace_flush(true); /* the names of operations are the evaluator's */
    ddp_train_evaluator_destroy(evaluator);
    if (status == DDP_OK && !info->class_names && info->label_count == 0)
        status = ddp_dataset_class_names(run->planned.load.data, p.classes, &p.names);
    if (status == DDP_OK)
        status = write_file(&p, run);
    free(p.rows);
    free(p.exponentials);
    free(p.names);
    ddp_trace_end("predict", begin, NULL, 0);
    if (status == DDP_OK && run->out)
        ddp_terminal_print(run->out, "predictions of %" PRId64 " samples of %s are in %s\n",
                           info->sample_count, run->planned.test ? "the test set" : "the data",
                           ddp_text_show(shown, run->planned.options->predict));
    return status;
}

void ddp_run_print_model(const struct ddp_run *run)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(to_predict(run));
    const char *adapters =
        run->planned.load.saved ? run->planned.load.saved : run->planned.load.adapters;
    char shown[3][DDP_TEXT_SHOWN];
    ddp_terminal_print(run->out,
                       "model    %s, %" PRId64 " parameters, weights from %s%s%s\n"
                       "data     %s, %" PRId64 " samples%s\n",
                       run->planned.plan.model->name, ddp_graph_element_count(run->planned.graph),
                       ddp_text_show(shown[0], run->planned.options->load),
                       adapters ? ", adapters from " : "",
                       adapters ? ddp_text_show(shown[2], adapters) : "",
                       ddp_text_show(shown[1], ddp_dataset_where(info)), info->sample_count,
                       run->planned.test ? " of the test set" : "");
    fflush(run->out);
}

/* Samples alone are measured for themselves, and the model has seen others. */
static void warn_scaled(const struct ddp_run *run)
{
    struct ddp_dataset_info info = *ddp_dataset_info(run->planned.data);
    const bool kept = !info.normalized && ddp_dataset_pixel_scale(run->planned.load.data, &info);
    if (!run->planned.test && !kept && run->planned.plan.rank == 0 &&
        ddp_dataset_is_scaled(ddp_dataset_info(run->planned.data)))
        ddp_log(
            DDP_LOG_WARNING,
            "the samples are scaled by their own mean and deviation: if the model was trained on "
            "other data, name those with --data, and the samples to predict with --val");
}

enum ddp_status ddp_run_without_training(struct ddp_run *run)
{
    enum ddp_status status = DDP_OK;
    if (run->planned.options->eval_only && run->evaluator)
        status = ddp_run_evaluate(run, 0, NULL);
    if (status == DDP_OK)
        ddp_run_print_confusion(run);
    if (status == DDP_OK && run->planned.options->predict) {
        warn_scaled(run);
        status = predict(run);
    }
    return status;
}

/* --- options --- */

void ddp_run_drop_training(struct ddp_train_options *options)
{
    const char *trained = options->resume_from ? options->resume_from : options->checkpoint;
    if (!options->load) {
        options->load = trained;
    } else if (trained &&
               (ddp_train_given(options, "lora") || (options->adapters && options->resume_from))) {
        options->adapters = trained; /* such checkpoints hold adapters alone */
        ddp_options_forget(ddp_train_option_table(), &options->given, "lora");
    }
    options->checkpoint = options->resume_from = NULL;
    options->resume = options->extend = options->keep_best = false;
    options->save = options->export_path = NULL;
    options->sample_every = options->eval_every = options->patience = options->copy_every = 0;
    if (options->plan)
        return;
    options->sync_batch_norm = false;
    options->sync_every = 1;
    options->acc_steps = 1;
    /* How a training uses its workers is refused where it does not suit them. */
    for (const char *name; (name = ddp_train_given_of(options, DDP_OF_UPDATE));)
        ddp_options_forget(ddp_train_option_table(), &options->given, name);
}

static bool ends_well(const char *path)
{
    return ddp_text_ends_with(path, ".csv") || ddp_text_ends_with(path, ".npy");
}

enum ddp_status ddp_run_check_prediction(const struct ddp_run *run)
{
    const struct ddp_train_options *options = run->planned.options;
    const struct ddp_model *model = run->planned.plan.model;
    const char *name = options->eval_only ? "eval-only" : "predict";
    if (!ddp_train_evaluates_only(options))
        return DDP_OK;
    if (!options->load)
        return ddp_fail(DDP_ERR_INVALID,
                        "--%s needs a model that was trained: name its weights with --load, or its "
                        "checkpoints with --checkpoint DIR",
                        name);
    if (ddp_train_given(options, "lora"))
        return ddp_fail(DDP_ERR_INVALID,
                        "--%s: the adapters of --lora are new, and change nothing: name trained "
                        "ones with --adapters or --checkpoint, or leave --lora out",
                        name);
    if (options->predict && !ends_well(options->predict))
        return ddp_fail(DDP_ERR_INVALID,
                        "--predict %s: the name must end in .csv, for a line a sample, or in .npy, "
                        "for an array of all probabilities or embeddings",
                        options->predict);
    if (options->predict && model->x_dtype == DDP_I32 && !model->sentence)
        return ddp_fail(DDP_ERR_INVALID,
                        "--predict: the model %s predicts the next token and no class: use "
                        "--generate, or --eval-only for its loss",
                        model->name);
    if (options->predict && !options->custom && !model->labels)
        return ddp_fail(DDP_ERR_INVALID, "--predict: the model %s does not predict classes",
                        model->name);
    return DDP_OK;
}
