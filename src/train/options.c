/* SPDX-License-Identifier: MIT
 *
 * The table of training options. trainer --help, the man page and the completion are checked
 * against it. */
#include "config.h"

#include "train/options.h"

#include "core/parse.h"

#include <stdlib.h>
#include <string.h>

#define COUNT_MAX 1e15

#define AT(member)    offsetof(struct ddp_train_options, member)
#define GIVEN(member) (ptrdiff_t) offsetof(struct ddp_train_options, member)

static const char *read_model(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    static char message[128];
    const struct ddp_model *model = ddp_model_find(value);
    if (!model) {
        size_t used = (size_t)snprintf(message, sizeof message, "no such model; there are");
        for (int i = 0; ddp_model_at(i) && used < sizeof message; i++)
            used += (size_t)snprintf(message + used, sizeof message - used, " %s",
                                     ddp_model_at(i)->name);
        return message;
    }
    options->model = model->name;
    return NULL;
}

static const char *read_dataset(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    static char message[128];
    size_t used = (size_t)snprintf(message, sizeof message, "no such source of data; there are");
    for (size_t i = 0; ddp_dataset_source_at(i); i++) {
        const char *name = ddp_dataset_source_at(i)->name;
        if (strcmp(name, value) == 0) {
            options->dataset = name;
            return NULL;
        }
        if (used < sizeof message)
            used += (size_t)snprintf(message + used, sizeof message - used, " %s", name);
    }
    return message;
}

/* "crop,flip" */
static const char *read_augment(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char text[64];
    options->crop = options->flip = false;
    if (strcmp(value, "none") == 0)
        return NULL;
    snprintf(text, sizeof text, "%s", value);
    for (char *rest = text, *word; (word = strsep(&rest, ","));)
        if (strcmp(word, "crop") == 0)
            options->crop = true;
        else if (strcmp(word, "flip") == 0)
            options->flip = true;
        else
            return "must be crop, flip, both with a comma between, or none";
    return NULL;
}

/* "512,256": the widths of the hidden layers; "none": a linear classifier. */
static const char *read_hidden(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char text[256];
    int count = 0;
    if (strcmp(value, "none") != 0) {
        if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
            return "too long";
        for (char *rest = text, *word; (word = strsep(&rest, ","));) {
            if (count == DDP_MODEL_LAYERS)
                return "at most 16 layers";
            if (!ddp_parse_int64(word, 1, 1 << 20, &options->hidden[count++]))
                return "must be widths from 1 to 1048576 with commas between, or none";
        }
    }
    options->hidden_count = count;
    options->hidden_given = true;
    return NULL;
}

/* "30,60,80": rising numbers of epochs. */
static const char *read_milestones(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char text[256];
    int count = 0;
    if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
        return "too long";
    for (char *rest = text, *word; (word = strsep(&rest, ","));) {
        const int64_t above = count ? options->milestones[count - 1] : 0;
        if (count == DDP_SCHEDULE_MILESTONES)
            return "at most 16 milestones";
        if (!ddp_parse_int64(word, above + 1, 1000000000, &options->milestones[count++]))
            return "must be rising numbers of epochs with commas between";
    }
    options->milestone_count = count;
    return NULL;
}

/* "20-40", or "20": the steps that a trace shows. */
static const char *read_trace_steps(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char text[64];
    if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
        return "too long";
    char *last = strchr(text, '-');
    if (last)
        *last++ = '\0';
    if (!ddp_parse_int64(text, 1, (int64_t)COUNT_MAX, &options->trace_first) ||
        !ddp_parse_int64(last ? last : text, options->trace_first, (int64_t)COUNT_MAX,
                         &options->trace_last))
        return "must be the first and the last step, such as 20-40";
    options->trace_steps_given = true;
    return NULL;
}

static const char *const device_help =
    "where to compute: auto (a GPU where there is one), cpu or cuda";

#define BETA_MAX 0.9999999999

const struct ddp_option ddp_train_option_table[] = {
    {.section = "What to train",
     .name = "model",
     .type = DDP_OPTION_CUSTOM,
     .read = read_model,
     .argument = "NAME",
     .help = "mlp (default) or article, the linear model of the example"},
    {.name = "hidden",
     .type = DDP_OPTION_CUSTOM,
     .read = read_hidden,
     .argument = "N,N,...",
     .help = "mlp: widths of the hidden layers (default 512,512), or none"},
    {.name = "data",
     .letter = 'd',
     .type = DDP_OPTION_TEXT,
     .offset = AT(data),
     .argument = "PATH",
     .help = "what to learn: a directory (IDX, CIFAR, train.bin), X.npy,Y.npy, FILE.npz, a file of "
             "tokens, a glob of them, or any text (default: Debian's Fashion-MNIST)"},
    {.name = "dataset",
     .type = DDP_OPTION_CUSTOM,
     .read = read_dataset,
     .argument = "NAME",
     .help =
         "how to read --data, where its name does not tell: idx, cifar, npy, tokens or article"},
    {.name = "val",
     .type = DDP_OPTION_TEXT,
     .offset = AT(val),
     .argument = "PATH",
     .help = "what to evaluate on, where --data alone does not say"},
    {.name = "seq-len",
     .type = DDP_OPTION_INT,
     .offset = AT(seq_len),
     .min = 1,
     .max = 1 << 24,
     .given_offset = GIVEN(seq_len_given),
     .argument = "T",
     .help = "tokens: length of a sample (default 256)"},
    {.name = "tokens",
     .type = DDP_OPTION_CHOICE,
     .offset = AT(tokens),
     .choices = ddp_token_kind_names,
     .given_offset = GIVEN(tokens_given),
     .argument = "KIND",
     .help = "tokens: what files hold: auto (default), gpt2 (llm.c's), uint16, uint32 or bytes"},
    {.name = "vocab-size",
     .type = DDP_OPTION_INT,
     .offset = AT(vocab_size),
     .min = 2,
     .max = 1 << 24,
     .given_offset = GIVEN(vocab_size_given),
     .argument = "N",
     .help =
         "tokens: how many there are (default: 50257 for 16 bits, 128256 for 32, 256 for bytes)"},
    {.name = "augment",
     .type = DDP_OPTION_CUSTOM,
     .read = read_augment,
     .argument = "LIST",
     .help = "change training images at random: crop (4 pixels of padding), flip (left and right), "
             "crop,flip or none (default)"},
    {.name = "data-threads",
     .type = DDP_OPTION_INT,
     .offset = AT(data_threads),
     .min = 1,
     .max = 64,
     .argument = "N",
     .help = "threads of each worker that read ahead (default 1)"},
    {.name = "data-size",
     .type = DDP_OPTION_INT,
     .offset = AT(data_size),
     .min = 1,
     .max = 1e9,
     .given_offset = GIVEN(data_size_given),
     .argument = "N",
     .help = "article: number of samples (default 8)"},
    {.name = "load",
     .type = DDP_OPTION_TEXT,
     .offset = AT(load),
     .argument = "FILE",
     .help = "start from the weights in this file: ours, or a GPT-2 of Hugging Face or llm.c"},
    {.name = "save",
     .type = DDP_OPTION_TEXT,
     .offset = AT(save),
     .argument = "FILE",
     .help = "write the weights to this safetensors file at the end, whole or not at all"},
    {.name = "seed",
     .type = DDP_OPTION_INT,
     .offset = AT(seed),
     .min = 0,
     .max = 4294967295.0,
     .argument = "N",
     .help = "seed of initial weights and sample order (default 0)"},

    {.section = "Where it runs",
     .name = "mode",
     .type = DDP_OPTION_CHOICE,
     .offset = AT(mode),
     .choices = ddp_mode_names,
     .given_offset = GIVEN(mode_given),
     .argument = "MODE",
     .help = "accum (default alone), ddp (default under ddprun) or dp"},
    {.name = "distributed",
     .type = DDP_OPTION_FLAG,
     .offset = AT(distributed),
     .help = "the same as --mode ddp"},
    {.name = "replicas",
     .type = DDP_OPTION_INT,
     .offset = AT(replicas),
     .min = 1,
     .max = 64,
     .given_offset = GIVEN(replicas_given),
     .argument = "N",
     .help = "dp: threads with a replica of the model each (default 2)"},
    {.name = "device",
     .type = DDP_OPTION_TEXT,
     .offset = AT(device),
     .argument = "KIND",
     .help = device_help},
    {.name = "threads",
     .letter = 't',
     .type = DDP_OPTION_INT,
     .offset = AT(threads),
     .min = 1,
     .max = 1024,
     .given_offset = GIVEN(threads_given),
     .argument = "N",
     .help = "computing threads of each worker or replica (default: OMP_NUM_THREADS, or its share "
             "of the cores)"},
    {.name = "bucket-mb",
     .type = DDP_OPTION_REAL,
     .offset = AT(bucket_mb),
     .min = 0.001,
     .max = 1048576,
     .given_offset = GIVEN(bucket_mb_given),
     .argument = "MB",
     .help = "ddp: gradients all-reduced together, in MiB (default 25)"},
    {.name = "zero",
     .type = DDP_OPTION_INT,
     .offset = AT(zero),
     .min = 0,
     .max = 1,
     .given_offset = GIVEN(zero_given),
     .argument = "STAGE",
     .help = "ddp: 1 shares the update out over the workers (default), 0 repeats it in each"},
    {.name = "shared-weights",
     .type = DDP_OPTION_FLAG,
     .negatable = true,
     .offset = AT(shared_weights),
     .given_offset = GIVEN(shared_weights_given),
     .help = "ddp: one copy of weights and optimizer state for all workers (default on the CPU)"},

    {.section = "How long and how much at a time",
     .name = "epochs",
     .letter = 'e',
     .type = DDP_OPTION_INT,
     .offset = AT(epochs),
     .min = 1,
     .max = 1e9,
     .given_offset = GIVEN(epochs_given),
     .argument = "N",
     .help = "passes over the data (default 5)"},
    {.name = "steps",
     .letter = 's',
     .type = DDP_OPTION_INT,
     .offset = AT(steps),
     .min = 1,
     .max = COUNT_MAX,
     .argument = "N",
     .help = "optimizer steps instead of epochs"},
    {.name = "batch-size",
     .letter = 'b',
     .type = DDP_OPTION_INT,
     .offset = AT(batch_size),
     .min = 1,
     .max = 1e6,
     .given_offset = GIVEN(batch_size_given),
     .argument = "N",
     .help = "samples of one shard: one forward and backward pass (default 64)"},
    {.name = "acc-steps",
     .letter = 'a',
     .type = DDP_OPTION_INT,
     .offset = AT(acc_steps),
     .min = 1,
     .max = 1e6,
     .given_offset = GIVEN(acc_steps_given),
     .argument = "N",
     .help = "shards that a worker or replica runs before each update (default 1)"},
    {.name = "global-batch",
     .letter = 'g',
     .type = DDP_OPTION_INT,
     .offset = AT(global_batch),
     .min = 1,
     .max = 1e9,
     .given_offset = GIVEN(global_batch_given),
     .argument = "N",
     .help = "samples of an update over all workers; derives --acc-steps"},
    {.name = "shuffle",
     .type = DDP_OPTION_FLAG,
     .negatable = true,
     .offset = AT(shuffle),
     .given_offset = GIVEN(shuffle_given),
     .help = "a new random order each epoch (default; not for article)"},
    {.name = "drop-last",
     .type = DDP_OPTION_FLAG,
     .offset = AT(drop_last),
     .help = "leave out samples that do not fill all shards, instead of repeating some"},

    {.section = "Optimizer",
     .name = "optimizer",
     .type = DDP_OPTION_CHOICE,
     .offset = AT(optimizer),
     .choices = ddp_optimizer_names,
     .given_offset = GIVEN(optimizer_given),
     .argument = "NAME",
     .help = "sgd, adam or adamw (default: what the model is trained with, see trainer(1))"},
    {.name = "lr",
     .type = DDP_OPTION_REAL,
     .offset = AT(rate),
     .min = 0,
     .max = 1e6,
     .given_offset = GIVEN(rate_given),
     .argument = "RATE",
     .help = "learning rate (default: 0.1 for mlp, 0.01 for article; 0.001 with adam and adamw)"},
    {.name = "scale-lr",
     .type = DDP_OPTION_FLAG,
     .offset = AT(scale_rate),
     .help = "multiply the learning rate by the number of shards, workers x --acc-steps"},
    {.name = "momentum",
     .type = DDP_OPTION_REAL,
     .offset = AT(momentum),
     .min = 0,
     .max = 1,
     .given_offset = GIVEN(momentum_given),
     .argument = "M",
     .help = "sgd: momentum (default 0.9)"},
    {.name = "nesterov",
     .type = DDP_OPTION_FLAG,
     .offset = AT(nesterov),
     .help = "sgd: Nesterov's momentum"},
    {.name = "beta1",
     .type = DDP_OPTION_REAL,
     .offset = AT(beta1),
     .min = 0,
     .max = BETA_MAX,
     .given_offset = GIVEN(beta1_given),
     .argument = "B",
     .help = "adam, adamw: how much of the mean gradient is kept (default 0.9)"},
    {.name = "beta2",
     .type = DDP_OPTION_REAL,
     .offset = AT(beta2),
     .min = 0,
     .max = BETA_MAX,
     .given_offset = GIVEN(beta2_given),
     .argument = "B",
     .help = "adam, adamw: how much of the mean square is kept (default 0.999)"},
    {.name = "eps",
     .type = DDP_OPTION_REAL,
     .offset = AT(eps),
     .min = 0,
     .max = 1e6,
     .given_offset = GIVEN(eps_given),
     .argument = "E",
     .help = "adam, adamw: added to the root of the mean square (default 1e-8)"},
    {.name = "weight-decay",
     .type = DDP_OPTION_REAL,
     .offset = AT(weight_decay),
     .min = 0,
     .max = 1e6,
     .given_offset = GIVEN(weight_decay_given),
     .argument = "D",
     .help = "weight decay (default: 0.01 with adamw, else 0)"},
    {.name = "decay-on",
     .type = DDP_OPTION_CHOICE,
     .offset = AT(decay_on),
     .choices = ddp_train_decay_names,
     .given_offset = GIVEN(decay_on_given),
     .argument = "WHAT",
     .help = "weight decay of all parameters (default), or of matrices: not of biases and norms"},
    {.name = "clip-grad-norm",
     .type = DDP_OPTION_REAL,
     .offset = AT(clip_norm),
     .min = 0,
     .max = 1e30,
     .given_offset = GIVEN(clip_norm_given),
     .argument = "N",
     .help = "scale gradients down to this global norm (default 0: never)"},

    {.section = "Learning rate over the run",
     .name = "schedule",
     .type = DDP_OPTION_CHOICE,
     .offset = AT(schedule),
     .choices = ddp_schedule_names,
     .given_offset = GIVEN(schedule_given),
     .argument = "NAME",
     .help = "constant (default for article), linear (for mlp), cosine or step"},
    {.name = "warmup-steps",
     .type = DDP_OPTION_INT,
     .offset = AT(warmup_steps),
     .min = 0,
     .max = COUNT_MAX,
     .given_offset = GIVEN(warmup_steps_given),
     .argument = "N",
     .help = "steps over which the rate first rises (default 0)"},
    {.name = "warmup-epochs",
     .type = DDP_OPTION_REAL,
     .offset = AT(warmup_epochs),
     .min = 0,
     .max = 1e9,
     .given_offset = GIVEN(warmup_epochs_given),
     .argument = "X",
     .help = "the same in epochs, such as 0.5"},
    {.name = "min-lr",
     .type = DDP_OPTION_REAL,
     .offset = AT(min_rate),
     .min = 0,
     .max = 1e6,
     .given_offset = GIVEN(min_rate_given),
     .argument = "RATE",
     .help = "linear, cosine: the rate that they end in (default 0)"},
    {.name = "lr-gamma",
     .type = DDP_OPTION_REAL,
     .offset = AT(gamma),
     .min = 0,
     .max = 1,
     .given_offset = GIVEN(gamma_given),
     .argument = "G",
     .help = "step: what the rate is multiplied by at each fall (default 0.1)"},
    {.name = "lr-step-size",
     .type = DDP_OPTION_INT,
     .offset = AT(step_size),
     .min = 1,
     .max = 1e9,
     .given_offset = GIVEN(step_size_given),
     .argument = "N",
     .help = "step: epochs between falls (default 30)"},
    {.name = "lr-milestones",
     .type = DDP_OPTION_CUSTOM,
     .read = read_milestones,
     .argument = "N,N,...",
     .help = "step: the epochs after which the rate falls, instead"},

    {.section = "Checkpoints",
     .name = "checkpoint",
     .type = DDP_OPTION_TEXT,
     .offset = AT(checkpoint),
     .argument = "DIR",
     .help = "write checkpoints to this directory; SIGTERM and SIGUSR1 then write one and stop the "
             "job with exit code 75"},
    {.name = "checkpoint-every",
     .type = DDP_OPTION_INT,
     .offset = AT(checkpoint_every),
     .min = 1,
     .max = COUNT_MAX,
     .argument = "N",
     .help = "a checkpoint every N steps and at the end (default: after each epoch)"},
    {.name = "keep",
     .type = DDP_OPTION_INT,
     .offset = AT(keep),
     .min = 0,
     .max = COUNT_MAX,
     .given_offset = GIVEN(keep_given),
     .argument = "N",
     .help = "remove all but the newest N checkpoints (default 3; 0: keep all)"},
    {.name = "resume",
     .type = DDP_OPTION_FLAG,
     .offset = AT(resume),
     .help = "go on from the newest checkpoint in --checkpoint DIR that is whole; start anew where "
             "there is none"},
    {.name = "resume-from",
     .type = DDP_OPTION_TEXT,
     .offset = AT(resume_from),
     .argument = "DIR",
     .help = "go on from this checkpoint (.../step-N), or the newest one in this directory"},

    {.section = "What is shown",
     .name = "plan",
     .type = DDP_OPTION_FLAG,
     .offset = AT(plan),
     .help = "print what would be done, with memory and operations, and end; with --verbose each "
             "operation"},
    {.name = "mfu",
     .type = DDP_OPTION_FLAG,
     .offset = AT(mfu),
     .help = "measure what the machine reaches in matrix products, and tell the share of it that "
             "training uses"},
    {.name = "eval",
     .type = DDP_OPTION_FLAG,
     .negatable = true,
     .offset = AT(evaluate),
     .help = "test accuracy after each epoch (default)"},
    {.name = "log-every",
     .type = DDP_OPTION_INT,
     .offset = AT(log_every),
     .min = 0,
     .max = COUNT_MAX,
     .argument = "N",
     .help =
         "print the loss every N steps (default 0: a bar on a terminal, else a line now and then)"},
    {.name = "nan",
     .type = DDP_OPTION_CHOICE,
     .offset = AT(nan),
     .choices = ddp_nan_names,
     .argument = "WHAT",
     .help =
         "when a loss is not finite: stop and name the first tensor that is not (default), skip "
         "the update and go on, or warn only"},
    {.name = "check-replicas",
     .type = DDP_OPTION_INT,
     .offset = AT(check_replicas),
     .min = 0,
     .max = COUNT_MAX,
     .argument = "K",
     .help = "ddp: compare the parameters of all workers every K steps, and name who differs"},
    {.name = "log",
     .type = DDP_OPTION_TEXT,
     .offset = AT(log),
     .argument = "FILE",
     .help = "append the figures of each step and evaluation to this file, as JSON lines"},
    {.name = "tensorboard",
     .type = DDP_OPTION_TEXT,
     .offset = AT(tensorboard),
     .argument = "DIR",
     .help = "write them to an event file in this directory, for TensorBoard"},
    {.name = "trace",
     .type = DDP_OPTION_TEXT,
     .offset = AT(trace),
     .argument = "FILE",
     .help = "write what each worker does when to this file, for Perfetto or chrome://tracing"},
    {.name = "trace-steps",
     .type = DDP_OPTION_CUSTOM,
     .read = read_trace_steps,
     .argument = "A-B",
     .help = "the steps that --trace shows (default 1-1000)"},
    {.name = "verbose",
     .letter = 'v',
     .type = DDP_OPTION_FLAG,
     .offset = AT(verbose),
     .help = "print every step, and the weights of small models"},
    {.name = "quiet",
     .letter = 'q',
     .type = DDP_OPTION_FLAG,
     .offset = AT(quiet),
     .help = "print nothing but errors"},
    {.name = NULL},
};

void ddp_train_options_default(struct ddp_train_options *options)
{
    *options = (struct ddp_train_options){
        .model = ddp_model_mlp.name,
        .data_size = 8,
        .seq_len = 256,
        .data_threads = 1,
        .shuffle = true,
        .hidden = {512, 512},
        .hidden_count = 2,
        .epochs = 5,
        .batch_size = 64,
        .acc_steps = 1,
        .replicas = 2,
        .device = "auto",
        .momentum = 0.9,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .gamma = 0.1,
        .step_size = 30,
        .bucket_mb = 25,
        .zero = 1,
        .shared_weights = true,
        .keep = 3,
        .evaluate = true,
        .trace_first = 1,
        .trace_last = 1000,
    };
}
