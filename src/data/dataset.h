/* SPDX-License-Identifier: MIT
 *
 * Where samples come from. A source is one file with one const struct in the table of dataset.c; it
 * opens a training set and, where it has one, a test set that is scaled with the training set's
 * mean and deviation. */
#ifndef DDP_DATA_DATASET_H
#define DDP_DATA_DATASET_H

#include "ddp.h"

#define DDP_DATASET_MAX_DIMS     4
#define DDP_DATASET_MAX_CHANNELS 4

/* Debian's package dataset-fashion-mnist: what the trainer learns when nothing else is asked for.
 */
#define DDP_DATASET_DEFAULT_DIR "/usr/share/datasets/fashion-mnist"

/* What to do where a test set is missing: the end of a message. */
#define DDP_DATASET_NO_TEST                                                                        \
    "; or set some training data aside with --val-split 0.1, or train without "                    \
    "evaluation with --no-eval"

/* What messages call the data of ddp_train_set_data(). */
#define DDP_DATASET_OWN      "own data"
#define DDP_DATASET_OWN_TEST "own test data"

typedef struct ddp_dataset ddp_dataset;

/* What the values of a token file are. */
enum ddp_token_kind {
    DDP_TOKENS_AUTO, /* from the file's first bytes and its name */
    DDP_TOKENS_GPT2, /* llm.c's files, with their header: GPT-2's or Llama 3's tokens */
    DDP_TOKENS_UINT16,
    DDP_TOKENS_UINT32,
    DDP_TOKENS_BYTES, /* any file: each byte is a token */
};

extern const char *const ddp_token_kind_names[]; /* ends in NULL */

/* How documents come to rows of --seq-len tokens. */
enum ddp_packing_kind {
    DDP_PACKING_DOCUMENTS, /* several in a row, with borders */
    DDP_PACKING_PAD,       /* each has a row of its own */
};
extern const char *const ddp_packing_names[]; /* ends in NULL */

/* What is done with documents that are longer than a row. */
enum ddp_long_kind { DDP_LONG_CUT, DDP_LONG_DROP, DDP_LONG_REFUSE };
extern const char *const ddp_long_names[]; /* ends in NULL */

/* Lines of preferences instead of examples. */
enum ddp_preferences_kind {
    DDP_PREFERENCES_NONE,
    DDP_PREFERENCES_PAIRS, /* chosen and rejected */
    DDP_PREFERENCES_RATED, /* answers one by one */
};

/* Called now and then while texts are encoded, or another process does it: a sign of life, and
 * whether to go on.
 *   share  done, from 0 to 1; negative: another process works */
struct ddp_dataset_watch {
    bool (*goes_on)(void *arg, double share); /* NULL: nobody asks */
    void *arg;
};

struct ddp_tokenizer;
struct ddp_wordpiece;

struct ddp_dataset_options {
    const char *path; /* a directory, a file, a glob or "X.npy,Y.npy", as the source has it; NULL:
                         DDP_DATASET_DEFAULT_DIR */
    const struct ddp_data *own, *own_test; /* a program's data instead; NULL: none */
    const char *val; /* the same for the test set; NULL: as the source finds it */
    /* Cut a test part off: this share of the samples (below 1), or this many. 0: none. */
    double val_split;
    bool unlabelled;     /* the test set needs no labels */
    bool embeds;         /* sentences: each text is for itself, whatever the labels are */
    bool normalize;      /* numbers to mean 0 and deviation 1 (data/normalize.h) */
    int64_t class_count; /* classes, or tokens of the vocabulary, that labels may name; 0: as the
                            source says */
    int64_t seq_len;     /* tokens: T, of a sample */
    enum ddp_token_kind tokens;
    const struct ddp_tokenizer *tokenizer; /* of texts; borrowed while they are opened. NULL: their
                                              bytes are the tokens */
    const struct ddp_wordpiece *wordpiece; /* of sentences; borrowed likewise */
    const char *chat;                      /* the name of a template; NULL: the tokenizer's own */
    enum ddp_packing_kind packing;
    enum ddp_long_kind long_samples;
    enum ddp_preferences_kind preferences;
    int64_t group; /* rated answers: so many in a row are compared with each other */
    struct ddp_dataset_watch watch;
    int64_t data_size;                 /* article: samples, and numbers of each */
    uint64_t seed;                     /* article: of the generator that draws them */
    int64_t image_height, image_width; /* images: what they are resized to; 0: as they are */
    bool image_reduced;                /* ... decoded at a reduced size, where that is no smaller */
    /* Tables: the column to predict, and which others to use or to leave out: names with commas
     * between; NULL: not given. Whether the first line is a header, where that is given. */
    const char *target, *columns, *ignore;
    bool header_given, header;
    bool keep_rows;          /* tables: as they were written, for predictions beside them */
    const char *description; /* that was kept with the weights; NULL: none */
};

/* What a dataset is; constant while it is open. */
struct ddp_dataset_info {
    const char *source;     /* the source's name: "idx" */
    const char *path;       /* where it was read from, for messages; "" when from nowhere */
    int64_t sample_count;   /* > 0 */
    int64_t class_count;    /* labels are 0 .. class_count-1; 0: no labels */
    int64_t vocabulary;     /* sentences: tokens are below it */
    int64_t label_count;    /* of one sample: 0, 1 for a class, T for the next tokens */
    bool float_labels;      /* they are float32 numbers in the place of int32 */
    enum ddp_dtype x_dtype; /* DDP_F32, or DDP_I32 for tokens */
    int dim_count;          /* of one sample */
    int64_t dims[DDP_DATASET_MAX_DIMS]; /* channels, height, width for images; T for tokens */
    size_t sample_values;               /* the product of dims */
    /* Tables: so many of the last numbers of a sample are the bits of int32, words by their rows of
     * one embedding with `word_rows`; the columns have up to `word_most` each. */
    int64_t word_count, word_rows, word_most;
    size_t sample_bytes; /* ... in a batch */
    size_t memory_bytes; /* what it holds in memory */
    double filled;       /* sentences: the share of a sample's tokens that are there, on average */
    double token_bytes;  /* of text that a token stands for, on average; 0: not known */
    bool bytes;          /* tokens are the bytes of a text */
    uint64_t tokenizer;  /* its ddp_tokenizer_hash(); 0: none was given */
    bool shuffled;       /* training takes a random order by default */
    bool normalized;     /* by ddp_normalize() */
    /* Of each channel of an image, otherwise the first of each: taken off and divided by, in units
     * of the source. 0 and 1: none. */
    int channel_count;
    double mean[DDP_DATASET_MAX_CHANNELS], std[DDP_DATASET_MAX_CHANNELS];
    bool compared;                  /* samples are told apart, and labels are not looked at */
    const char *const *class_names; /* class_count of them; NULL: classes have no names */
    /* Labels that are numbers were taken off and divided by these; std 0: they are as they were. */
    double label_mean, label_std;
    const char *description; /* what else new samples need, as JSON to keep with weights; or NULL */
    const char
        *table_header;  /* the names of samples are lines of a table with this header; or NULL */
    char separator;     /* of its fields */
    const char *notice; /* a line that the user should read once; NULL: none */
    bool planned; /* only the shape is known: there are no samples, and their number is made up */
};

struct ddp_augment;

struct ddp_dataset_ops {
    /* See ddp_dataset_read(); the indices are already checked. */
    enum ddp_status (*read)(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                            void *x, int32_t *labels);
    /* See ddp_dataset_read_resized(); NULL: samples are not decoded from images. */
    enum ddp_status (*read_resized)(const ddp_dataset *dataset, const struct ddp_augment *augment,
                                    int64_t epoch, const int64_t *indices, size_t count, void *x,
                                    int32_t *labels);
    /* See ddp_dataset_sample_name(); NULL: samples have no names. */
    const char *(*sample_name)(const ddp_dataset *dataset, int64_t index);
    /* See ddp_dataset_references(); NULL: there are none. */
    float *(*references)(const ddp_dataset *dataset, int64_t sample, int64_t *count);
    /* Cuts the last part off, as ddp_split() does a random one, where samples follow one another.
     * NULL: they do not. */
    enum ddp_status (*cut)(ddp_dataset *train, ddp_dataset **test, double amount);
    /* After a random split: describes itself by the samples of the training part alone, and tells
     * both parts. NULL: that changes nothing. */
    enum ddp_status (*split)(ddp_dataset *whole, ddp_dataset *train, ddp_dataset *test);
    /* Frees what the source's struct refers to, also of one that was not opened to the end. */
    void (*close)(ddp_dataset *dataset);
};

/* Each source's own struct begins with this. */
struct ddp_dataset {
    const struct ddp_dataset_ops *ops;
    char *path;
    struct ddp_dataset_info info;
};

/* A source's struct of so many bytes, zeroed except its beginning. NULL (logged): no memory. */
void *ddp_dataset_alloc(size_t bytes, const struct ddp_dataset_ops *ops, const char *path);

struct ddp_dataset_source {
    const char *name;
    const char *help;      /* a phrase for lists of sources */
    const char *looks_for; /* what makes a directory one of this source's, for messages */
    bool takes_val;        /* --val means something to it */
    bool takes_size;       /* --image-size does */
    /* Whether this file, directory or pattern is one of this source's. NULL: it reads none. */
    bool (*recognise)(const char *path);
    /* train, test [out]  NULL before; what was made is closed by the caller, also after a failure.
     * *test stays NULL without a test set, also with val_split, which asks for the whole; test
     * NULL: none is wanted. */
    enum ddp_status (*open)(const struct ddp_dataset_options *options, ddp_dataset **train,
                            ddp_dataset **test);
};

/* The table's rows in turn; NULL after the last. */
const struct ddp_dataset_source *ddp_dataset_source_at(size_t i);

/* Whether ddp_dataset_open() will find tokens, a table or directories of images there, by names and
 * the beginnings of files. Reports nothing. */
bool ddp_dataset_holds_tokens(const char *source, const char *path);
bool ddp_dataset_holds_table(const char *source, const char *path);
bool ddp_dataset_holds_images(const char *source, const char *path);

/* Opens a source.
 *   source       its name; NULL: the one that recognises the path
 *   train [out]  freed with ddp_dataset_close()
 *   test [out]   the same; NULL where the source has none. Not required: pass NULL.
 * DDP_ERR_INVALID (no such source, bad option), DDP_ERR_IO, DDP_ERR_FORMAT, DDP_ERR_MEMORY; the
 * message names the file. */
enum ddp_status ddp_dataset_open(const char *source, const struct ddp_dataset_options *options,
                                 ddp_dataset **train, ddp_dataset **test);
void ddp_dataset_close(ddp_dataset *dataset);

/* A dataset of which only the shape is known, for a plan: it cannot be read.
 *   shape  x_dtype, dim_count, dims, class_count and label_count; the rest follows */
enum ddp_status ddp_dataset_open_shape(const struct ddp_dataset_info *shape, ddp_dataset **dataset);

const struct ddp_dataset_info *ddp_dataset_info(const ddp_dataset *dataset);

/* What messages call the data: the path, or the source's name where there is none. */
const char *ddp_dataset_where(const struct ddp_dataset_info *info);

/* The index of the i-th of `count` samples that are spread evenly over `total`, from the first to
 * the last. */
int64_t ddp_dataset_spread(int64_t total, int64_t count, int64_t i);

/* Copies samples out. Any number of threads may read at a time.
 *   indices       count numbers, each 0 .. sample_count-1 (else DDP_ERR_INVALID)
 *   x [out]       (count, dims...) of x_dtype
 *   labels [out]  (count, label_count) i32, or f32 with float_labels; NULL: not wanted; not written
 *                 by a dataset without any
 * DDP_ERR_IO, DDP_ERR_FORMAT: a file that is read on demand is gone, has shrunk or holds an invalid
 * sample. */
enum ddp_status ddp_dataset_read(const ddp_dataset *dataset, const int64_t *indices, size_t count,
                                 void *x, int32_t *labels);

/* The same of regions of images that are drawn for an epoch, each scaled to the size of a sample:
 * ddp_augment_box(). DDP_ERR_INVALID: samples are not decoded from images. */
enum ddp_status ddp_dataset_read_resized(const ddp_dataset *dataset,
                                         const struct ddp_augment *augment, int64_t epoch,
                                         const int64_t *indices, size_t count, void *x,
                                         int32_t *labels);

/* What a sample is called: its file, relative to info.path. NULL: samples of this source have no
 * names. */
const char *ddp_dataset_sample_name(const ddp_dataset *dataset, int64_t index);

/* Preferences: what the reference says of a sample's sequences, in their order, to be filled in
 * before samples are read: the log-probabilities of their answers; 0 at first.
 *   sample       negative: of all, split or not
 *   count [out]  of them
 * NULL: the data are no preferences. */
float *ddp_dataset_references(const ddp_dataset *dataset, int64_t sample, int64_t *count);

/* A hash of some samples, spread over the whole set, with their labels: it differs for other
 * data, and does not depend on the files. DDP_ERR_MEMORY, and as ddp_dataset_read(). */
enum ddp_status ddp_dataset_fingerprint(const ddp_dataset *dataset, uint64_t *fingerprint);

/* Checks a program's data and copies the struct. `what`: for messages. DDP_ERR_INVALID, and
 * DDP_ERR_UNSUPPORTED for a struct with members that are set and not known here. */
enum ddp_status ddp_dataset_take_own(struct ddp_data *data, const struct ddp_data *given,
                                     const char *what);

/* The sources. */
extern const struct ddp_dataset_source ddp_dataset_idx;
extern const struct ddp_dataset_source ddp_dataset_cifar;
extern const struct ddp_dataset_source ddp_dataset_npy;
extern const struct ddp_dataset_source ddp_dataset_images;
extern const struct ddp_dataset_source ddp_dataset_table;
extern const struct ddp_dataset_source ddp_dataset_tokens;
extern const struct ddp_dataset_source ddp_dataset_sentences;
extern const struct ddp_dataset_source ddp_dataset_article;
extern const struct ddp_dataset_source ddp_dataset_custom; /* of a program; it is not listed */

#endif
