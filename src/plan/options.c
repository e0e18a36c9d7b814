/* SPDX-License-Identifier: MIT
 *
 * The table of training options. trainer --help, the man page and the completion are checked
 * against it. */
#include "config.h"

#include "plan/options.h"

#include "core/parse.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define OPTION_STRUCT struct ddp_train_options

const char *const ddp_file_dtype_names[] = {"auto", "fp32", "bf16", NULL};
static const char *const frozen_dtypes[] = {"auto", "fp32", "bf16", "nf4",
                                            "q8_0", "q4_0", "q4_k", NULL};
static const char *const wire_dtypes[] = {"fp32", "bf16", NULL};
static const char *const dtype_names[] = {"fp32", "bf16", "fp16", NULL};
const char *const ddp_nan_names[] = {
    [DDP_NAN_STOP] = "stop", [DDP_NAN_SKIP] = "skip", [DDP_NAN_WARN] = "warn", NULL};

#define BETA_MAX 0.9999999999

#define IMAGE_SIDE_MAX 8192

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
    if (!options->custom)
        options->model = model;
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

/* "0.1" of the samples, or "1000" of them. */
static const char *read_val_split(void *member, const char *value)
{
    double *amount = member;
    return ddp_parse_double(value, DBL_MIN, DDP_COUNT_MAX, amount) &&
                   (*amount < 1 || floor(*amount) == *amount)
               ? NULL
               : "must be a share of the samples between 0 and 1, such as 0.1, or a number of them";
}

static const char *read_augment(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    return ddp_augment_parse(&options->augment, value);
}

/* "0,1": numbers of GPUs, which may repeat. */
static const char *read_devices(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    return ddp_option_list(value, ",", DDP_TRAIN_DEVICES, 0, 1023, false, options->devices,
                           &options->device_count)
               ? NULL
               : "must be at most 64 numbers of GPUs, counted from 0, with commas between";
}

/* "3,32,32" or "3,32,32:10": what a plan without data takes samples for. */
static const char *read_shape(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char text[64];
    const size_t length = strcspn(value, ":");
    options->classes = 0;
    snprintf(text, sizeof text, "%.*s", (int)length, value);
    return length < sizeof text &&
                   ddp_option_list(text, ",", 4, 1, 1 << 30, false, options->shape,
                                   &options->shape_count) &&
                   (!value[length] ||
                    ddp_parse_int64(value + length + 1, 1, 1 << 24, &options->classes))
               ? NULL
               : "must be 1 to 4 numbers, such as 256 or 3,32,32, and classes such as 3,32,32:10";
}

/* "80G". */
static const char *read_plan_memory(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    options->plan = true;
    return ddp_parse_bytes(value, &options->plan_memory)
               ? NULL
               : "must be a size with its unit, such as 80G, 79.6GiB or 500M";
}

/* "30:60:80" */
static const char *read_milestones(void *member, const char *value)
{
    struct ddp_train_milestones *milestones = member;
    return ddp_option_list(value, ":", DDP_SCHEDULE_MILESTONES, 1, 1000000000, true,
                           milestones->epochs, &milestones->count)
               ? NULL
               : "must be at most 16 rising numbers of epochs, such as 30:60:80";
}

/* Two numbers from 1 to `max` with that letter between them, or one for both. */
static bool read_pair(const char *value, char between, int64_t max, int64_t *first, int64_t *second)
{
    char text[64];
    if (snprintf(text, sizeof text, "%s", value) >= (int)sizeof text)
        return false;
    char *other = strchr(text, between);
    if (other)
        *other++ = '\0';
    return ddp_parse_int64(text, 1, max, first) &&
           ddp_parse_int64(other ? other : text, 1, max, second);
}

/* "trace.json,steps=20-40", or "steps=20". */
static const char *read_trace(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    const char *comma = strstr(value, ",steps=");
    const size_t length = comma ? (size_t)(comma - value) : strlen(value);
    if (length == 0 || length >= sizeof options->trace_text)
        return "must begin with the path of what is written";
    snprintf(options->trace_text, sizeof options->trace_text, "%.*s", (int)length, value);
    options->report.trace = options->trace_text;
    if (!comma)
        return NULL;
    return read_pair(comma + strlen(",steps="), '-', DDP_COUNT_MAX, &options->report.trace_first,
                     &options->report.trace_last) &&
                   options->report.trace_first <= options->report.trace_last
               ? NULL
               : "steps= takes the first and the last step, such as 20-40";
}

/* "224" or "200x300,reduced": height, width */
static const char *read_image_size(void *destination, const char *value)
{
    struct ddp_train_options *options = destination;
    char size[32];
    snprintf(size, sizeof size, "%.*s", (int)strcspn(value, ","), value);
    options->image_reduced = strcmp(value + strcspn(value, ","), ",reduced") == 0;
    return (options->image_reduced || !strchr(value, ',')) &&
                   read_pair(size, 'x', IMAGE_SIDE_MAX, &options->image_height,
                             &options->image_width)
               ? NULL
               : "must be a side or height x width, from 1 to 8192, such as 224 or "
                 "200x300,reduced";
}

/* Those of the models stand between the first rows and the others. */
static const struct ddp_option first_rows[] = {
    {OPTION_SECTION("What to train"), OPTION_CUSTOM("model", read_model, "NAME"),
     .scope = DDP_WITH_TEXT | DDP_WITH_CONVERSION, .example = "--model resnet",
     .help = "mlp, cnn, resnet, gpt2, llama, bert, or article, the linear model of the example "
             "(default: that of --load; else gpt2 for text and tokens, mlp for other data)"},
    {OPTION_TEXT("size", size, "NAME"), .example = "--size 124M",
     .help =
         "gpt2: d2, d4 (default), d6, d12 or 124M, d24 or 355M, d36 or 774M, d48 or 1558M; "
         "llama: d2, d4 (default), d6, smollm2-135m, qwen3-0.6b, llama3.2-1b and others; "
         "bert: tiny, mini (default) and others; resnet: 20 (default), 32, 44, 56, 110, 18 or 34"},
    {0},
};

static const struct ddp_option rows[] = {
    {OPTION_TEXT("config", config, "FILE"), .excludes = "size",
     .help = "FILE.yaml: options, by their names, which the command line overrides; gpt2, llama: "
             "shape from this config.json of Hugging Face"},
    {OPTION_CHOICE("dtype", dtype, dtype_names, "TYPE[,WHAT...]"), .example = "--dtype bf16",
     .help =
         "type of the operands of products: fp32 (default), bf16 (on GPUs of activations too) or "
         "fp16 (scale=S: the loss is multiplied by it, default 65536; every=N: it doubles after N "
         "steps, default 2000); weights are fp32 (wire=bf16: sums of gradients are rounded, and "
         "nodes send half the bytes)"},
    {OPTION_REAL("dtype ...,scale", loss_scale, 1, 1 << 30, "S")},
    {OPTION_INT("dtype ...,every", scale_every, 1, INT32_MAX, "N")},
    {OPTION_CHOICE("dtype ...,wire", wire_dtype, wire_dtypes, "TYPE")},
    {OPTION_TEXT("data", data, "PATH"), .scope = DDP_OF_DATA, .example = "--data book.txt",
     .letter = 'd',
     .help = "training data: a directory (images, texts, IDX, CIFAR, train.bin), X.npy,Y.npy, "
             "FILE.npz, a table (.csv, .tsv), a token file, a text (also .gz or .jsonl) or a glob "
             "of them (several by weight: a.jsonl:2,b.jsonl:1; default: Debian's Fashion-MNIST)"},
    {OPTION_CUSTOM("dataset", read_dataset, "NAME"), .scope = DDP_OF_DATA,
     .help = "format of --data, if it is not detected: idx, cifar, npy, images, table, tokens or "
             "article"},
    {OPTION_TEXT("val", val, "PATH"), .scope = DDP_OF_DATA, .excludes = "val-split",
     .help = "data for evaluation, if --data has none"},
    {OPTION_CUSTOM_AT("val-split", val_split, read_val_split, "X"),
     .help = "set samples of --data aside for evaluation: this share of them, such as 0.1, or "
             "this many"},
    {OPTION_FLAG("normalize", normalize),
     .help = "numbers: scale each channel or feature to mean 0 and deviation 1"},
    {OPTION_TEXT("target", target, "COLUMN"), .scope = DDP_OF_DATA | DDP_OF_TABLE,
     .help = "tables: the column to predict: its numbers, or its words or few whole numbers as "
             "classes"},
    {OPTION_TEXT("columns", columns, "NAME,..."), .scope = DDP_OF_DATA, .excludes = "ignore",
     .help = "tables: the columns to predict it from (default: all others); lines of JSON: what "
             "members are called there, such as prompt=question,completion=answer"},
    {OPTION_TEXT("ignore", ignore, "NAME,..."), .scope = DDP_OF_DATA | DDP_OF_TABLE,
     .help = "tables: columns to leave out"},
    {OPTION_NEGATABLE("header", header), .scope = DDP_OF_DATA | DDP_OF_TABLE,
     .help = "tables: the first line names the columns (default: if it has no number)"},
    {OPTION_INT("seq-len", seq_len, 1, 1 << 24, "T"), .scope = DDP_OF_DATA | DDP_OF_TOKENS,
     .help = "tokens: length of a sample (default 256)"},
    {OPTION_CHOICE("tokens", tokens, ddp_token_kind_names, "KIND"),
     .scope = DDP_OF_DATA | DDP_OF_TOKENS,
     .help =
         "tokens: format of the files: auto (default), gpt2 (llm.c's), uint16, uint32 or bytes"},
    {OPTION_INT("vocab-size", vocab_size, 2, 1 << 24, "N"), .scope = DDP_OF_DATA | DDP_OF_TOKENS,
     .help = "tokens: how many there are (default: as --load, --config or --size says, else 50257 "
             "for 16 bits, 128256 for 32, 256 for bytes)"},
    {OPTION_TEXT("tokenizer", tokenizer, "PATH"),
     .scope = DDP_WITH_TEXT | DDP_OF_DATA | DDP_OF_TOKENS,
     .help =
         "texts: encode them with this tokenizer.json, or that of this directory (default: that "
         "in the directory of --load; without one, bytes are tokens)"},
    {OPTION_TEXT("chat-template", chat_template, "NAME|FILE"),
     .scope = DDP_WITH_TEXT | DDP_OF_DATA | DDP_OF_TOKENS,
     .help =
         "chats: a file NAME.jinja, or chatml, qwen2.5, qwen3, qwen3-training, llama3, llama3.1 "
         "(default: the tokenizer's own), or none for a --prompt that is plain text"},
    {OPTION_CHOICE("packing", packing, ddp_packing_names, "KIND[,long=WHAT]"),
     .scope = DDP_OF_DATA | DDP_OF_TOKENS,
     .help = "chats and prompts: documents (default) puts several into a row, with borders; pad "
             "gives each a row; long=cut (default), drop or refuse: those above --seq-len"},
    {OPTION_CHOICE("packing ...,long", long_samples, ddp_long_names, "WHAT"),
     .scope = DDP_OF_DATA | DDP_OF_TOKENS},
    {OPTION_CUSTOM_AT("objective", objective, ddp_train_read_objective, "NAME[,WHAT...]"),
     .scope = DDP_OF_DATA | DDP_OF_TOKENS,
     .help = "llama: learn preferences, from lines with a chosen and a rejected answer: dpo, ipo, "
             "orpo or simpo; kto: from rated answers; beta=X (default 0.1), simpo: gamma=X "
             "(0.5), kto: desirable=X, undesirable=X (1)"},
    {OPTION_INT("show-masks", show_masks, 1, 1e6, "N"), .scope = DDP_OF_DATA | DDP_OF_TOKENS,
     .help = "texts: print the first N samples as the model sees them, with what is trained"},
    {OPTION_CUSTOM("image-size", read_image_size, "N|HxW[,reduced]"), .scope = DDP_OF_DATA,
     .help = "images: scale to this height and width, and cut out the middle (default: the size "
             "that all have; reduced: decode JPEG at 1/2 to 1/8 where that is no smaller)"},
    {OPTION_CUSTOM("augment", read_augment, "LIST"),
     .help = "change training images at random, a list of: crop (4 pixels of padding), flip (left "
             "and right), resized=AREA (a region of at least this share, 0.08, scaled), "
             "jitter=FACTOR (colours, 0.4), mixup=ALPHA (with each other, 0.2); smooth=SHARE (of "
             "labels over all classes, 0.1); none (default)"},
    {OPTION_INT("data-threads", data_threads, 1, 64, "N"), .scope = DDP_OF_MACHINE | DDP_OF_NODE,
     .help = "threads of each worker that read samples ahead (default 1)"},
    {OPTION_INT("data-size", data_size, 1, 1e9, "N"), .scope = DDP_OF_DATA,
     .help = "article: number of samples, and of numbers in each (default 16)"},
    {OPTION_CUSTOM("load", ddp_train_read_load, "PATH[,frozen]"),
     .scope = DDP_WITH_TEXT | DDP_WITH_CONVERSION, .example = "--load model.safetensors",
     .help = "start from these weights: a file from --save, a model of Hugging Face (a directory, "
             "or a file of GPT-2) or llm.c, a checkpoint, or a directory of checkpoints (resnet: "
             "frozen: all but the head stay as they are)"},
    {OPTION_TEXT("save", save, "FILE"), .scope = DDP_OF_TRAINING,
     .example = "--save model.safetensors",
     .help = "write the weights to this safetensors file at the end"},
    {OPTION_CUSTOM("export", ddp_train_read_export, "PATH[,WHAT...]"),
     .scope = DDP_OF_TRAINING | DDP_WITH_CONVERSION, .example = "--export tuned",
     .help =
         "write the weights at the end for other programs (gpt2: a file, and format=hf, llmc or "
         "llmc-bf16, by default as its suffix says; llama: a directory, and dtype=fp32 or "
         "bf16, shard=5G for files of at most this size, merge for the whole model instead of "
         "adapters)"},
    {OPTION_TEXT("adapters", adapters, "PATH"), .scope = DDP_WITH_TEXT | DDP_WITH_CONVERSION,
     .help = "llama, bert: start from these low-rank adapters to the model of --load: a directory "
             "of PEFT, a GGUF file, or a checkpoint or file of a run with --lora"},
    {OPTION_CHOICE("frozen-dtype", frozen_dtype, frozen_dtypes, "TYPE"),
     .scope = DDP_WITH_TEXT | DDP_WITH_CONVERSION,
     .help = "llama with --lora: type of the frozen matrices in memory: as loaded (default; fp32 "
             "without --load), fp32, bf16, or quantised, nf4 as in QLoRA, q8_0, q4_0 or q4_k"},
    {OPTION_UINT("seed", seed, "N"), .scope = DDP_WITH_TEXT,
     .help = "seed of initial weights and sample order, from 0 to 2^64-1 (default 0)"},

    {OPTION_SECTION("Generating text, instead of training"),
     OPTION_INT("generate", generate, 1, 1e6, "N"), .scope = DDP_WITH_TEXT,
     .example = "--generate 200",
     .help = "continue the prompt by N tokens with the gpt2 or llama that --load names"},
    {OPTION_TEXT("prompt", prompt, "TEXT|FILE"), .scope = DDP_OF_TEXT,
     .help = "text to continue, or a file with it; numbers where tokens are neither bytes nor have "
             "a tokenizer"},
    {OPTION_REAL("temperature", temperature, 0, 100, "X[,top-k=K]"), .scope = DDP_OF_TEXT,
     .help = "values below 1 favour likely tokens; 0 takes the most likely one (default 0.8); "
             "top-k: sample from the K most likely only (default 200; 0: from all)"},
    {OPTION_INT("temperature ...,top-k", top_k, 0, 1e6, "K"), .scope = DDP_OF_TEXT},
    {OPTION_INT("samples", samples, 1, 1024, "K"), .scope = DDP_OF_TEXT,
     .help = "generate K continuations of the prompt together (default 1)"},
    {OPTION_TEXT("stop", stop, "TEXT"), .scope = DDP_OF_TEXT,
     .help = "a continuation ends when it contains this text, or these numbers in a row"},

    {OPTION_SECTION("Evaluating and predicting, instead of training"),
     OPTION_FLAG("eval-only", eval_only), .scope = DDP_OF_EVALUATION,
     .example = "--eval-only --load model.safetensors",
     .help = "evaluate the model that --load or --checkpoint names on the test set, once"},
    {OPTION_TEXT("predict", predict, "FILE"),
     .example = "--predict classes.csv --load model.safetensors",
     .help = "write the class and probability of each test sample to this .csv, or all "
             "probabilities to this .npy; without a test set, of each sample of --data"},

    {OPTION_SECTION("Where it runs"), OPTION_CHOICE("mode", mode, ddp_mode_names, "MODE"),
     .example = "--mode dp",
     .help = "accum (default alone), ddp (default under ddprun), dp or pipeline"},
    {OPTION_FLAG("distributed", distributed), .help = "the same as --mode ddp"},
    {OPTION_INT("replicas", replicas, 1, DDP_TRAIN_DEVICES, "N"), .scope = DDP_OF_MODE(DDP_MODE_DP),
     .help = "dp: number of replicas, a thread each (default: the number of GPUs; 2 on the CPU)"},
    {OPTION_INT("stages", stages, 2, DDP_STAGES_MAX, "S"), .scope = DDP_OF_MODE(DDP_MODE_PIPELINE),
     .help = "pipeline: cut the model into S stages, each a worker under ddprun, else a thread and "
             "device (default: the number of workers, or of GPUs; 2 on the CPU)"},
    {OPTION_TEXT("cut", cut, "NAME,NAME,..."), .scope = DDP_OF_MODE(DDP_MODE_PIPELINE),
     .help = "pipeline: the layers at which the second and later stages begin, such as h.4,h.8 "
             "(default: stages that take about the same time)"},
    {OPTION_TEXT("device", device, "KIND"), .scope = DDP_OF_MACHINE | DDP_WITH_TEXT,
     .help = "where to compute: auto (a GPU if there is one), cpu or cuda"},
    {OPTION_CUSTOM("devices", read_devices, "N,N,..."), .scope = DDP_OF_MACHINE | DDP_WITH_TEXT,
     .help = "numbers of the GPUs for the replicas, stages or workers; one may be named twice"},
    {OPTION_FLAG("fast", fast),
     .help = "ddp on GPUs: NCCL's own all-reduce; the bits may then depend on the machine"},
    {OPTION_INT("threads", threads, 1, 1024, "N"),
     .scope = DDP_WITH_TEXT | DDP_WITH_CONVERSION | DDP_OF_NODE, .example = "--threads 4",
     .letter = 't',
     .help = "computing threads of each worker, replica or stage (default: OMP_NUM_THREADS, or its "
             "share of the cores)"},
    {OPTION_REAL("bucket-mb", bucket_mb, 0.001, 1048576, "MB"),
     .scope = DDP_OF_UPDATE | DDP_OF_MODE(DDP_MODE_DDP),
     .help = "ddp: size in MiB of the buckets of gradients that are all-reduced (default 25)"},
    {OPTION_INT("zero", zero, 0, 3, "STAGE"), .scope = DDP_OF_UPDATE,
     .help =
         "ddp: 1 splits the update over the workers (default on the CPU), 2 also the gradients, 3 "
         "over nodes the weights too, 0 repeats it in each (default on GPUs with the memory)"},
    {OPTION_FLAG("sync-batch-norm", sync_batch_norm),
     .help = "ddp: batch norm over the samples of all workers, not over those of each worker"},
    {OPTION_INT("sync-every", sync_every, 1, DDP_COUNT_MAX, "H[,WHAT...]"),
     .scope = DDP_OF_UPDATE | DDP_OF_MODE(DDP_MODE_DDP),
     .help = "ddp: workers update weights of their own, and average them every H steps (default 1: "
             "they add up the gradients of each step); from=STEP: only after so many steps; "
             "lr=RATE, momentum=M: of an outer Nesterov SGD towards the average"},
    {OPTION_INT("sync-every ...,from", local_from, 0, DDP_COUNT_MAX, "STEP"),
     .scope = DDP_OF_UPDATE | DDP_OF_LOCAL},
    {OPTION_REAL("sync-every ...,lr", outer_rate, 0, 100, "RATE"),
     .scope = DDP_OF_UPDATE | DDP_OF_LOCAL},
    {OPTION_REAL("sync-every ...,momentum", outer_momentum, 0, 0.9999, "M"),
     .scope = DDP_OF_UPDATE | DDP_OF_LOCAL},
    {OPTION_FLAG("recompute", recompute),
     .help =
         "compute the activations of each block again in backward instead of keeping them: less "
         "memory, more time"},

    {OPTION_SECTION("How long and how much at a time"), OPTION_INT("epochs", epochs, 1, 1e9, "N"),
     .example = "--epochs 10", .letter = 'e', .help = "passes over the data (default 5)"},
    {OPTION_INT("steps", steps, 1, DDP_COUNT_MAX, "N"), .excludes = "epochs",
     .example = "--steps 1000", .letter = 's', .help = "optimizer steps instead of epochs"},
    {OPTION_INT("batch-size", batch_size, 1, 1e6, "N"), .example = "--batch-size 32", .letter = 'b',
     .help = "samples of one shard: one forward and backward pass (default 64; gpt2, llama 8; bert "
             "32)"},
    {OPTION_INT("acc-steps", acc_steps, 1, 1e6, "N"), .scope = DDP_OF_UPDATE, .letter = 'a',
     .help = "shards that a worker or replica runs before each update (default 1)"},
    {OPTION_INT("lanes", lanes, 1, DDP_TRAIN_LANES, "N"),
     .help = "gradients are added one after another in each of N lanes, and the lanes' sums in a "
             "tree (default 8); 1 takes the least memory"},
    {OPTION_INT("global-batch", global_batch, 1, 1e9, "N"), .scope = DDP_OF_UPDATE, .letter = 'g',
     .help = "samples of an update over all workers; determines --acc-steps"},
    {OPTION_NEGATABLE("shuffle", shuffle),
     .help = "a new random order each epoch (default except for article)"},
    {OPTION_FLAG("drop-last", drop_last),
     .help = "leave out samples that do not fill all shards, instead of repeating some"},

    {OPTION_SECTION("Optimizer"),
     OPTION_CHOICE("optimizer", optimizer, ddp_optimizer_names, "NAME[,WHAT...]"),
     .example = "--optimizer adamw",
     .help = "sgd, adam or adamw (default: depends on the model, see trainer(1); adam, adamw: "
             "beta1=B, beta2=B, decay rates of the mean gradient and square, by default 0.9 and "
             "0.999; eps=E, added to the root of the mean square, by default 1e-8; ema=D: what is "
             "evaluated and saved is the moving average of the weights with this decay, as 0.999)"},
    {OPTION_REAL("optimizer ...,beta1", beta1, 0, BETA_MAX, "B")},
    {OPTION_REAL("optimizer ...,beta2", beta2, 0, BETA_MAX, "B")},
    {OPTION_REAL("optimizer ...,eps", eps, 0, 1e6, "E")},
    {OPTION_REAL("optimizer ...,ema", average, 0, 0.999999, "D")},
    {OPTION_REAL("lr", rate, 0, 1e6, "RATE[,scale]"), .example = "--lr 0.01",
     .help = "learning rate (default: 0.1 for mlp, 0.01 for article; 0.001 with adam and adamw; "
             "scale: times the number of shards, workers x --acc-steps)"},
    {OPTION_FLAG("lr ...,scale", scale_rate)},
    {OPTION_REAL("momentum", momentum, 0, 1, "M[,nesterov]"),
     .help = "sgd: momentum (default 0.9), or Nesterov's"},
    {OPTION_FLAG("momentum ...,nesterov", nesterov)},
    {OPTION_REAL("weight-decay", weight_decay, 0, 1e6, "D[,on=WHAT]"),
     .help = "weight decay (default: 0.01 with adamw, else 0); on=all parameters (default), or "
             "on=matrices: not of biases and norms"},
    {OPTION_CHOICE("weight-decay ...,on", decay_on, ddp_train_decay_names, "WHAT")},
    {OPTION_REAL("clip-grad-norm", clip_norm, 0, 1e30, "N"),
     .help = "clip gradients to this global norm (default 0: no clipping)"},

    {OPTION_SECTION("Learning rate over the run"),
     OPTION_CHOICE("schedule", schedule, ddp_schedule_names, "NAME[,WHAT...]"),
     .example = "--schedule cosine",
     .help = "constant (default for article), linear (for mlp), cosine or step (linear, cosine: "
             "min=RATE at the end, by default 0; step: gamma=G, the factor by which the rate "
             "drops, by default 0.1, every=N epochs, by default 30, or after epochs at=N:N...)"},
    {OPTION_REAL("schedule ...,min", min_rate, 0, 1e6, "RATE")},
    {OPTION_REAL("schedule ...,gamma", gamma, 0, 1, "G")},
    {OPTION_INT("schedule ...,every", step_size, 1, 1e9, "N"), .excludes = "schedule ...,at"},
    {OPTION_CUSTOM_AT("schedule ...,at", milestones, read_milestones, "N:N...")},
    {OPTION_INT("warmup-steps", warmup_steps, 0, DDP_COUNT_MAX, "N"),
     .help = "steps over which the rate first rises (default 0)"},

    {OPTION_SECTION("Checkpoints"), OPTION_TEXT("checkpoint", checkpoint, "DIR"),
     .example = "--checkpoint runs/first",
     .help = "write checkpoints to this directory; Ctrl-C, SIGTERM and SIGUSR1 then write one and "
             "stop the job with exit code 75"},
    {OPTION_INT("checkpoint-every", checkpoint_every, 1, DDP_COUNT_MAX, "N"),
     .scope = DDP_OF_TRAINING, .needs = "checkpoint",
     .help = "a checkpoint every N steps and at the end (default: after each epoch)"},
    {OPTION_INT("copy-every", copy_every, 1, DDP_COUNT_MAX, "N"), .scope = DDP_OF_TRAINING,
     .help = "under a ddprun that may restart workers: a copy of the state in memory every N steps "
             "(default: as often as 2 % of the time allows)"},
    {OPTION_INT("keep", keep, 0, DDP_COUNT_MAX, "N[,best]"), .scope = DDP_OF_TRAINING,
     .needs = "checkpoint",
     .help = "remove all but the newest N checkpoints (default 3; 0: keep all); best: write one "
             "whenever the test loss is the lowest so far, and keep that one too, as DIR/best"},
    {OPTION_FLAG("keep ...,best", keep_best), .scope = DDP_OF_TRAINING | DDP_OF_EVALUATION},
    {OPTION_FLAG("resume", resume), .needs = "checkpoint", .example = "--resume",
     .help = "resume from the newest complete checkpoint in --checkpoint DIR; start from the "
             "beginning if there is none"},
    {OPTION_TEXT("resume-from", resume_from, "DIR"),
     .help = "resume from this checkpoint (.../step-N), or the newest one in this directory"},
    {OPTION_FLAG("extend", extend), .scope = DDP_OF_TRAINING,
     .help = "when resuming with another number of steps: plan a rate that falls towards the end "
             "anew, from where it is now"},

    {OPTION_SECTION("What is shown"), OPTION_FLAG("plan", plan), .example = "--plan",
     .help =
         "print the plan with memory, traffic and what would fit, and exit; with --verbose each "
         "operation"},
    {OPTION_CUSTOM("plan-memory", read_plan_memory, "SIZE"),
     .help = "the same for so much memory of a GPU, or of the machine on the CPU, with a table of "
             "what fits by mode, workers and type"},
    {OPTION_CUSTOM("shape", read_shape, "N,N,...[:K]"), .scope = DDP_OF_DATA | DDP_OF_PLAN,
     .excludes = "data|seq-len|resume|resume-from",
     .help = "--plan: samples are C,H,W images, T tokens or N numbers, of K classes (default 10), "
             "instead of --data"},
    {OPTION_NEGATABLE("eval", evaluate), .help = "test accuracy after each epoch (default)"},
    {OPTION_INT("eval-every", eval_every, 1, DDP_COUNT_MAX, "N"),
     .scope = DDP_OF_TRAINING | DDP_OF_EVALUATION,
     .help = "evaluate every N steps and at the end, instead of after each epoch"},
    {OPTION_INT("eval-steps", eval_steps, 1, 1e9, "N"), .scope = DDP_OF_EVALUATION,
     .help = "evaluate on the first N batches of the test set: N times --batch-size samples "
             "(default: all)"},
    {OPTION_INT("patience", patience, 1, DDP_COUNT_MAX, "N"),
     .scope = DDP_OF_TRAINING | DDP_OF_EVALUATION,
     .help = "end the training when N evaluations in a row have not lowered the test loss"},
    {OPTION_INT("sample-every", sample_every, 1, DDP_COUNT_MAX, "N[,length=L]"),
     .scope = DDP_OF_TRAINING,
     .help = "gpt2, llama: continue --prompt by L tokens (default 200) with the current weights "
             "every N steps, and print the text"},
    {OPTION_INT("sample-every ...,length", sample_length, 1, 1e6, "L")},
    {OPTION_INT("log-every", report.log_every, 0, DDP_COUNT_MAX, "N"),
     .help = "print the loss every N steps (default 0: a bar on a terminal, else a line every half "
             "minute)"},
    {OPTION_CHOICE("nan", nan, ddp_nan_names, "WHAT"),
     .help = "when a loss is not finite: stop and name the first tensor that is not (default), "
             "skip the update, or warn only"},
    {OPTION_TEXT("log", report.log, "FILE"), .example = "--log steps.jsonl",
     .help = "append the figures of each step and evaluation to this file, as JSON lines"},
    {OPTION_INT("hash-every", report.hash_every, 1, DDP_COUNT_MAX, "N"), .scope = DDP_OF_TRAINING,
     .needs = "log",
     .help = "put into --log what trainer verify needs, and the hash of the weights every N steps "
             "and at the end"},
    {OPTION_INT("step", verify_step, 1, DDP_COUNT_MAX, "K"),
     .help = "trainer verify: the step to compute again (default: the last that has a hash)"},
    {OPTION_TEXT("tensorboard", report.tensorboard, "DIR"),
     .help = "write them to an event file in this directory, for TensorBoard"},
    {OPTION_CUSTOM("trace", read_trace, "FILE[,steps=A-B]"),
     .help =
         "write a trace of each worker to this file, for Perfetto or chrome://tracing, of these "
         "steps (default 1-1000)"},
    {OPTION_FLAG("verbose", report.verbose), .scope = DDP_WITH_TEXT | DDP_WITH_CONVERSION,
     .letter = 'v', .help = "print every step, and the weights of small models"},
    {OPTION_FLAG("quiet", quiet), .scope = DDP_WITH_TEXT | DDP_OF_NODE | DDP_WITH_CONVERSION,
     .letter = 'q', .help = "print errors and warnings only"},
    OPTION_GONE("beta1", "use --optimizer adamw,beta1=B"),
    OPTION_GONE("beta2", "use --optimizer adamw,beta2=B"),
    OPTION_GONE("check-replicas", "workers that update alike are checked by the tests"),
    OPTION_GONE("classes", "data have theirs; for random data use --shape 3,32,32:10"),
    OPTION_GONE("decay-on", "use --weight-decay D,on=matrices"),
    OPTION_GONE("eps", "use --optimizer adamw,eps=E"),
    OPTION_GONE("export-dtype", "use --export PATH,dtype=bf16"),
    OPTION_GONE("export-format", "use --export PATH,format=llmc"),
    OPTION_GONE("keep-best", "use --keep N,best"),
    OPTION_GONE("local-from", "use --sync-every H,from=STEP"),
    OPTION_GONE("long-samples", "use --packing KIND,long=drop"),
    OPTION_GONE("lr-gamma", "use --schedule step,gamma=G"),
    OPTION_GONE("lr-milestones", "use --schedule step,at=N:N"),
    OPTION_GONE("lr-step-size", "use --schedule step,every=N"),
    OPTION_GONE("merge", "use --export PATH,merge"),
    OPTION_GONE("mfu", "the speed of the model is printed always; leave it out"),
    OPTION_GONE("min-lr", "use --schedule NAME,min=RATE"),
    OPTION_GONE("nesterov", "use --momentum M,nesterov"),
    OPTION_GONE("outer-lr", "use --sync-every H,lr=RATE"),
    OPTION_GONE("outer-momentum", "use --sync-every H,momentum=M"),
    OPTION_GONE("sample-length", "use --sample-every N,length=L"),
    OPTION_GONE("scale-lr", "use --lr RATE,scale"),
    OPTION_GONE("shard-size", "use --export PATH,shard=5G"),
    OPTION_GONE("shared-weights", "workers on the CPU share the weights always; leave it out"),
    OPTION_GONE("sync-state", "only weights are averaged; leave it out"),
    OPTION_GONE("top-k", "use --temperature X,top-k=K"),
    OPTION_GONE("trace-steps", "use --trace FILE,steps=A-B"),
    OPTION_GONE("warmup-epochs", "use --warmup-steps N"),
    {0},
};

static struct ddp_option table[DDP_OPTIONS + 1];

static void add_rows(const struct ddp_option *row, size_t offset)
{
    static size_t count;
    for (; row && row->name; row++) {
        assert(count < DDP_OPTIONS);
        table[count] = *row;
        table[count++].offset += offset;
    }
}

static void make_table(void)
{
    int count = 0;
    add_rows(first_rows, 0);
    for (int i = 0; ddp_model_at(i); i++) {
        assert(i < DDP_MODELS - 1);
        if (ddp_model_options_of(i) == i)
            add_rows(ddp_model_at(i)->options, offsetof(struct ddp_train_options, models[i]));
    }
    add_rows(rows, 0);
    while (table[count].name)
        count++;
    table[count].help = "trainer --help all"; /* also of a program that has no --help */
}

const struct ddp_option *ddp_train_option_table(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_table);
    return table;
}

void ddp_train_options_default(struct ddp_train_options *options)
{
    *options = (struct ddp_train_options){
        .model = &ddp_model_mlp,
        .data_size = 16,
        .seq_len = 256,
        .temperature = 0.8,
        .top_k = 200,
        .samples = 1,
        .sample_length = 200,
        .data_threads = 1,
        .shuffle = true,
        .epochs = 5,
        .batch_size = 64,
        .acc_steps = 1,
        .lanes = 8,
        .device = "auto",
        .momentum = 0.9,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .eps = 1e-8,
        .gamma = 0.1,
        .step_size = 30,
        .bucket_mb = 25,
        .zero = 1,
        .loss_scale = 65536,
        .scale_every = 2000,
        .sync_every = 1,
        .outer_rate = 1,
        .keep = 3,
        .evaluate = true,
        .report.trace_first = 1,
        .report.trace_last = 1000,
    };
}
