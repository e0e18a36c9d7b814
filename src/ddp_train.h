/* SPDX-License-Identifier: MIT
 *
 * libddp's training runs; the conventions of ddp.h apply.
 */
#ifndef DDP_TRAIN_H
#define DDP_TRAIN_H

#include "ddp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- Training --------------------------------------------------------------------------------- */

/* A training run: its options, which are those of the program `trainer` (see trainer(1)), and its
 * result. */
typedef struct ddp_train ddp_train;

/* Makes a run with default options. Freed with ddp_train_destroy(). DDP_ERR_MEMORY. */
DDP_API enum ddp_status ddp_train_create(ddp_train **train);
DDP_API void ddp_train_destroy(ddp_train *train);

/* Sets options from a command line, argv[1] .. argv[argc-1]; argv must outlive the run. In names
 * '-' and '_' are the same. DDP_ERR_INVALID: the message names the flag and says what would be
 * right. */
DDP_API enum ddp_status ddp_train_parse(ddp_train *train, int argc, char *const *argv);

/* Sets one option by its long name, such as "batch-size". A flag takes value NULL. The value must
 * outlive the run. DDP_ERR_INVALID. */
DDP_API enum ddp_status ddp_train_set(ddp_train *train, const char *name, const char *value);

/* Trains this model instead of one of the trainer's, on whatever data the options name.
 *   name  for the plan, without spaces; must outlive the run, as must `arg` */
DDP_API void ddp_train_set_model(ddp_train *train, const char *name, ddp_model_builder *build,
                                 void *arg);

/* --- Your own data ---------------------------------------------------------------------------- */

/* Reads sample `index`, 0 .. count-1. Several threads call it at once, in any order, and
 * repeatedly: the same index must give the same sample, in every process of the job. Fills both
 * arrays. It must not call ddp_train functions on the run.
 *   arg          the struct's
 *   sample [out] (dims...) of dtype
 *   label [out]  (label_count) int32 or float32; NULL without labels
 * Returns DDP_OK or an error, which ends the job; ddp_fail() says why. */
typedef enum ddp_status ddp_data_read(void *arg, int64_t index, void *sample, void *label);

#define DDP_DATA_NO_LABEL                                                                          \
    (-100) /* does not count in loss and accuracy, like PyTorch's ignore_index */

/* Samples, read by a function or from arrays in memory. Initialise it with DDP_DATA_INIT. */
struct ddp_data {
    size_t struct_bytes;           /* sizeof(struct ddp_data) */
    int64_t count;                 /* samples, at least 1 */
    enum ddp_dtype dtype;          /* of a sample: DDP_F32, or DDP_I32 for tokens */
    int dim_count;                 /* of one sample: 1 .. DDP_TENSOR_DIMS */
    int64_t dims[DDP_TENSOR_DIMS]; /* (C,H,W) of images, (T) of tokens, (N) of other numbers */
    int64_t classes;               /* labels are int32, 0 .. classes-1, of tokens the vocabulary, or
                            DDP_DATA_NO_LABEL; 0: they are float32 numbers, or there are none */
    int64_t label_count; /* of one sample: 1 for a class, T for the next tokens; 0: no labels */
    ddp_data_read *read; /* NULL: the arrays are read */
    void *arg;
    const void *samples; /* (count, dims...) */
    const void *labels;  /* (count, label_count) */
};

#define DDP_DATA_INIT                                                                              \
    {                                                                                              \
        sizeof(struct ddp_data), 0, DDP_F32, 0, {0, 0, 0, 0}, 0, 0, NULL, NULL, NULL, NULL         \
    }

/* Arrays in memory: samples (count, features), and labels (count, label_count), which are classes
 * in int32 or, with classes 0, numbers in float32. */
static inline struct ddp_data ddp_data_arrays(int64_t count, int64_t features, const float *samples,
                                              int64_t classes, int64_t label_count,
                                              const void *labels)
{
    struct ddp_data data = DDP_DATA_INIT;
    data.count = count;
    data.dim_count = 1;
    data.dims[0] = features;
    data.classes = classes;
    data.label_count = label_count;
    data.samples = samples;
    data.labels = labels;
    return data;
}

/* Trains on this data instead of what --data names. All ranks pass the same.
 *   training  copied; what it points to must outlive the run
 *   test      the same, of the same shape; NULL: none, unless --val-split sets some aside
 * DDP_ERR_INVALID: the message names the member. A label that is out of range is found when it is
 * read; in arrays, when the run is opened. */
DDP_API enum ddp_status ddp_train_set_data(ddp_train *train, const struct ddp_data *training,
                                           const struct ddp_data *test);

/* Whether ddp_train_run() will call ddp_job_accept_stop(): it does if checkpoints are written. */
DDP_API bool ddp_train_accepts_stop(const ddp_train *train);

/* Prints all options, as `trainer --help all` does. */
DDP_API void ddp_train_help(FILE *out);

/* Prints the common options, each with an example, as `trainer --help` does. */
DDP_API void ddp_train_help_short(FILE *out);

/* Prints what a Hugging Face directory holds and what training it would need, as `trainer info`
 * does. DDP_ERR_INVALID: it is not a directory; DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
DDP_API enum ddp_status ddp_train_info(const char *path, FILE *out);

/* Encodes the text or directory of texts `in` with the tokenizer that the options name, to the file
 * of tokens `to`, as `trainer tokenize` does. Of several workers rank 0 does it.
 *   out  where it prints a line
 * DDP_ERR_INVALID, DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY. */
DDP_API enum ddp_status ddp_train_tokenize(ddp_train *train, const char *in, const char *to,
                                           FILE *out);

/* Computes steps of an earlier run again and compares the weights with the hashes in its log, as
 * `trainer verify` does. The run has the options in the log, except where it is computed, which the
 * options of `train` say. Collective over the job's workers.
 *   log  written with the option hash-every
 *   out  where rank 0 prints plan, progress and the result; NULL: nowhere
 * DDP_ERR_DIFFERS: the weights are others; DDP_ERR_FORMAT: the log was edited; and what
 * ddp_train_run() returns. */
DDP_API enum ddp_status ddp_train_verify(ddp_train *train, const char *log, FILE *out);

/* Trains: joins the job, loads the data, runs all steps, evaluates, saves. Collective over the
 * job's workers. When one fails, the job is aborted.
 *   out  where rank 0 prints plan, progress and results; NULL: nowhere */
DDP_API enum ddp_status ddp_train_run(ddp_train *train, FILE *out);

/* --- Your own loop ---------------------------------------------------------------------------- */

/* ddp_train_run() consists of:
 *
 *   status = ddp_train_open(train, stdout);
 *   while (status == DDP_OK && ddp_train_steps_left(train) > 0) {
 *       status = ddp_train_step(train, &step);
 *       if (status == DDP_OK && step->evaluate)
 *           status = ddp_train_evaluate(train, &evaluation);
 *   }
 *   status = ddp_train_close(train, status);
 *
 * All options keep their meaning. The functions are collective, and their results are the same on
 * all ranks, except the seconds, so decisions based on them are too. The structs belong to the run
 * and are valid until the next call of the function that returned them, or ddp_train_close(); later
 * versions add members at their ends. Once a function has failed, the others return its status,
 * until ddp_train_close(). */

struct ddp_step {
    int64_t number;       /* steps done, with this one and those before a resume */
    int64_t epoch;        /* that it belongs to, from 0 */
    int64_t samples;      /* of its global batch */
    double loss;          /* mean over the global batch, before the update */
    double rate;          /* learning rate */
    double gradient_norm; /* of the mean gradient, before it was clipped; always set */
    double seconds;       /* since the end of the previous step, without evaluations */
    bool evaluate; /* an evaluation is due: at the end of an epoch, or as --eval-every says */
};

struct ddp_evaluation {
    int64_t samples;
    double loss;          /* mean over all predictions, of classes in nats */
    double accuracy;      /* share of correct predictions, 0 .. 1; NaN: labels are numbers */
    double perplexity;    /* exp(loss) of a language model; else NaN */
    double bits_per_byte; /* of its text, where known; else NaN */
    int64_t best_number;  /* steps done at the lowest loss so far; 0: no loss was finite */
    double best_loss;     /* NaN while best_number is 0 */
    int64_t since_best;   /* evaluations after it; an equal loss is not lower */
};

/* Joins the job and prepares the first step, or the next one of a run that is resumed.
 *   out  as for ddp_train_run()
 * Whatever it returns, ddp_train_close() must be called after it. DDP_ERR_INVALID: an option that
 * excludes training (--plan, --generate, --predict, --eval-only); already open. */
DDP_API enum ddp_status ddp_train_open(ddp_train *train, FILE *out);

/* This worker's rank in the job, once the run is open; 0 if it runs alone. */
DDP_API int ddp_train_rank(const ddp_train *train);

/* Steps until the run's end, including the next one, as --steps or --epochs say; --patience may
 * bring it closer. 0 after a failure. */
DDP_API int64_t ddp_train_steps_left(const ddp_train *train);

/* One optimizer step. A checkpoint that is due has been written by then. DDP_ERR_PREEMPTED: the job
 * is to stop, no step was made, and ddp_train_close() leaves a checkpoint, or ddprun has a copy in
 * memory to start again with. DDP_ERR_DIVERGED. DDP_ERR_INVALID: no step is left. */
DDP_API enum ddp_status ddp_train_step(ddp_train *train, const struct ddp_step **step);

/* The learning rate of the steps that follow, instead of the schedule's: a finite number from 0,
 * else the next step returns DDP_ERR_INVALID; the same on all ranks, else DDP_ERR_MISMATCH. NaN
 * restores the schedule. The run must be open. Checkpoints hold the rate: a run that is resumed
 * continues with it. */
DDP_API void ddp_train_set_rate(ddp_train *train, double rate);

/* Evaluates on the test samples. Each call counts as an evaluation, except those before the first
 * step since opening. A loss that is not finite gives DDP_OK. DDP_ERR_INVALID: no test samples. */
DDP_API enum ddp_status ddp_train_evaluate(ddp_train *train,
                                           const struct ddp_evaluation **evaluation);

/* Writes a checkpoint of the run so far, in the background. DDP_ERR_INVALID: no directory is named
 * (--checkpoint). */
DDP_API enum ddp_status ddp_train_checkpoint(ddp_train *train);

/* Writes the weights to a file, as --save does. */
DDP_API enum ddp_status ddp_train_save(ddp_train *train, const char *path);

/* --- Hooks: what a run calls ------------------------------------------------------------------ */

/* Called by the thread that makes the steps, on all ranks except save_state, within ddp_train_run()
 * too. A hook that is NULL is not called. A status other than DDP_OK ends the run, on all ranks. A
 * hook may call ddp_train_rank(), _steps_left(), _set_rate(), _save(), _tensor(), _get_weights(),
 * _put_weights() and _get_gradients(); save_state, which runs on one rank, only ddp_train_rank(),
 * _steps_left(), _tensor() and, where it is local, _get_weights(). Calls that step, evaluate, open
 * or close this run return DDP_ERR_INVALID.
 *
 * The program's own state becomes the file own-NAME of each checkpoint, and part of each copy in
 * memory under ddprun --max-restarts. save_state is called on rank 0, and gives bytes that are
 * copied before anything else is called. restore_state is called
 * at the end of opening, when the run is resumed from a checkpoint that has such a file: on all
 * ranks, with the same bytes.
 *
 * Begin with DDP_HOOKS_INIT. */
struct ddp_hooks {
    size_t struct_bytes; /* sizeof(struct ddp_hooks) */
    void *arg;           /* for all of them; must outlive the run */
    /* number: of the step about to be made; the first is 1 */
    enum ddp_status (*before_step)(void *arg, ddp_train *train, int64_t number);
    enum ddp_status (*after_step)(void *arg, ddp_train *train, const struct ddp_step *step);
    enum ddp_status (*after_evaluation)(void *arg, ddp_train *train,
                                        const struct ddp_evaluation *evaluation);
    const char *state_name; /* 1 to 32 letters, digits, '.', '_' and '-'; must outlive the run */
    enum ddp_status (*save_state)(void *arg, ddp_train *train, const void **bytes, size_t *count);
    enum ddp_status (*restore_state)(void *arg, ddp_train *train, const void *bytes, size_t count);
};
#define DDP_HOOKS_INIT                                                                             \
    {                                                                                              \
        sizeof(struct ddp_hooks), NULL, NULL, NULL, NULL, NULL, NULL, NULL                         \
    }

/* Sets the hooks of runs that are opened later; NULL: none. Copied.
 * DDP_ERR_INVALID: the run is open; the struct is not initialised. */
DDP_API enum ddp_status ddp_train_set_hooks(ddp_train *train, const struct ddp_hooks *hooks);

/* The weights by name, on any device and in any mode, between ddp_train_open() and
 * ddp_train_close(). */

struct ddp_train_tensor {
    const char *name;
    enum ddp_dtype dtype;
    int dim_count;
    int64_t dims[DDP_TENSOR_DIMS];
    size_t count;   /* values */
    bool statistic; /* about the samples, as batch norm keeps: not learned, no gradient */
};

/* Tensor `i` of the model, from 0, in the order in which it was built; NULL after the last, and
 * when the run is not open. Valid until ddp_train_close(). Local. */
DDP_API const struct ddp_train_tensor *ddp_train_tensor(const ddp_train *train, int i);

/* Copies the weights of a tensor out: the same values on all ranks. Local, but collective between
 * synchronisations of local steps (--sync-every), the first time after a step; and, with the same
 * name on all ranks, in a pipeline whose stages are workers, and the first time after a step with
 * --zero 1 and --dtype bf16 on GPUs.
 *   values [out]  row-major, float32, even if the graph computes in bf16
 *   count         of the tensor
 * DDP_ERR_INVALID: no tensor has this name, or it has another count. */
DDP_API enum ddp_status ddp_train_get_weights(ddp_train *train, const char *name, float *values,
                                              size_t count);

/* Replaces the weights of a tensor on all ranks. The run continues as if it had had these weights;
 * the optimizer's state stays as it is, even in a checkpoint that ddp_train_close() writes.
 * Collective, with the same name on all ranks.
 *   values  rank 0's are used; the others pass as many
 * DDP_ERR_INVALID as above; DDP_ERR_MISMATCH. */
DDP_API enum ddp_status ddp_train_put_weights(ddp_train *train, const char *name,
                                              const float *values, size_t count);

/* Copies out the gradient of a tensor in the last step: the mean over the global batch, before it
 * is clipped, and without weight decay. The same values on all ranks. Collective.
 * DDP_ERR_INVALID as above; no step was made yet; the tensor is a statistic. */
DDP_API enum ddp_status ddp_train_get_gradients(ddp_train *train, const char *name, float *values,
                                                size_t count);

/* Ends the run: after DDP_OK, even before its last step, prints and saves what the options name;
 * after DDP_ERR_PREEMPTED waits for the checkpoint; after a failure, including the loop's own,
 * aborts the job.
 *   status  of the loop
 * After DDP_OK and with --checkpoint it also writes a checkpoint of the last step made, if there is
 * none. Returns the first failure of a call with this run, even if the loop ignored it; otherwise
 * status, or the error if closing itself fails. Destroying a run that is open, or exiting, aborts
 * the job. */
DDP_API enum ddp_status ddp_train_close(ddp_train *train, enum ddp_status status);

#ifdef __cplusplus
}
#endif

#endif
