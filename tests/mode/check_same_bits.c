/* SPDX-License-Identifier: MIT
 *
 * The same bits, whatever computes them. What is trained and how are factors with a few values
 * each; a row takes one value of each, and every two values that go together are together in a row,
 * except those who write a checkpoint and those who resume from it.
 * It trains by accumulation in one process, then its way: the weights that are saved must be the
 * same, byte for byte. Ranks are forked: they start in milliseconds. With local steps the reference
 * is one node of as many workers. */
#include "config.h"

#include "ddp_train.h"
#include "tests/comm/comm_ranks.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

#include <string.h>
#include <sys/wait.h>

enum factor {
    MODEL,
    DTYPE,
    OPTIMIZER,
    CLIP,
    SHARDS,
    LOCAL,
    TRAINED, /* before it: what decides the bits */
    SPLIT = TRAINED,
    UPDATE,
    BUCKETS,
    RECOMPUTE,
    THREADS,
    LOOKS,
    WRITER,
    FACTORS
};

/* nodes of so many workers each, 0: a process without a launcher; parts: of the lanes, or the most
 * that there can be; stages; more: workers of the first node beyond that. */
struct value {
    const char *options;
    int nodes, workers, parts, stages, more;
};
#define STEPS   "--steps 5"
#define TEXT    "--data text --val-split 0.2 --seq-len 7 --batch-size 2 "
#define ENCODER "--model bert --size tiny --tokenizer vocab.txt --batch-size 2 "
#define IMAGES  "--data images --batch-size 2 "
#define ACCUMULATION                                                                               \
    {                                                                                              \
        "", 0, 0, 1, 1, 0                                                                          \
    }

static const struct value models[] = {
    {.options = "--model cnn --augment crop,flip,mixup=0.3,smooth=0.1 " IMAGES},
    {.options = "--model resnet --size 20 " IMAGES},
    {.options = "--model gpt2 --layers 2 --heads 2 --channels 16 --dropout 0.1 " TEXT},
    {.options = "--model llama --size d2 " TEXT},
    {.options = "--model llama --size d2 --lora r=4,targets=all-linear,dropout=0.1 " TEXT},
    {.options = "--data table.csv --target y --val-split 5 --hidden 9,8,7 --batch-size 2 "},
    {.options = "--data labelled.jsonl --val-split 4 " ENCODER},
    {.options = "--data pairs.jsonl --val-split 4 --lora r=4,dropout=0.1 " ENCODER},
    {0}};
enum { GPT2 = 2, LLAMA, LORA, TABLE };
static const struct value dtypes[] = {{.options = "--dtype fp32"},
                                      {.options = "--dtype bf16"},
                                      /* some of the gradients are infinite */
                                      {.options = "--dtype fp16,scale=524288,every=2"},
                                      {.options = "--dtype fp32,wire=bf16"},
                                      {0}};
enum { FP16 = 2, WIRE };
static const struct value optimizers[] = {
    {.options = "--optimizer sgd --momentum 0.9,nesterov --weight-decay 1e-2"},
    {.options = "--optimizer adamw --weight-decay 0.1,on=matrices"},
    {.options = "--optimizer adam,ema=0.7"},
    {0}};
enum { AVERAGED = 2 }; /* not of weights that differ from worker to worker */
static const struct value clips[] = {
    {.options = "--clip-grad-norm 0"}, {.options = "--clip-grad-norm 0.05"}, {0}};
/* Epochs of images end in short batches. */
static const struct value shards[] = {
    {.options = "--global-batch 16", .parts = 8},
    {.options = "--global-batch 16 --lanes 3", .parts = 3},
    /* 12 shards in 8 lanes */ {.options = "--global-batch 24", .parts = 8},
    {.options = "--global-batch 12 --lanes 8", .parts = 6},
    {.options = "--batch-size 5 --global-batch 40", .parts = 8},
    {0}};
enum { WHOLE_LANES = 1, LANES_END = 3 }; /* of several shards */
static const struct value local_steps[] = {{.options = ""},
                                           {.options = "--sync-every 3"},
                                           {.options = "--sync-every 2,from=1,lr=0.7,momentum=0.9"},
                                           {0}};
static const struct value splits[] = {ACCUMULATION,
                                      {"", 1, 1, 1, 1, 0},
                                      {"", 1, 2, 2, 1, 0},
                                      {"", 1, 3, 3, 1, 0},
                                      {"", 1, 8, 8, 1, 0},
                                      {"--mode dp --replicas 3", 0, 0, 3, 1, 0},
                                      {"--stages 3", 0, 0, 1, 3, 0},
                                      {"--mode pipeline", 1, 2, 1, 2, 0},
                                      {"--mode pipeline", 1, 4, 1, 4, 0},
                                      {"--stages 2", 1, 4, 2, 2, 0},
                                      {"--stages 2", 1, 6, 3, 2, 0},
                                      {"", 2, 2, 4, 1, 0},
                                      {"", 4, 1, 4, 1, 0},
                                      {"", 2, 2, 6, 1, 2},
                                      {"--mode pipeline", 2, 1, 1, 2, 0},
                                      {"--stages 2", 2, 1, 2, 2, 2},
                                      {"", 3, 1, 3, 1, 0},
                                      {"--stages 2", 3, 2, 3, 2, 0},
                                      {"", 2, 1, 4, 1, 2},
                                      {0}};
static const struct value updates[] = {{.options = ""},
                                       {.options = "--zero 0"},
                                       {.options = "--zero 2"},
                                       {.options = "--zero 3"},
                                       {0}};
enum { ZERO3 = 3 }; /* over nodes */
static const struct value buckets[] = {{.options = ""}, {.options = "--bucket-mb 0.01"}, {0}};
static const struct value recomputed[] = {{.options = ""}, {.options = "--recompute"}, {0}};
static const struct value threads[] = {
    {.options = "--threads 1"}, {.options = "--threads 2 --data-threads 2"}, {0}};
static const struct value looks[] = {{.options = "--no-eval"}, {.options = "--eval-every 1"}, {0}};
/* Who wrote the checkpoint that the row resumes from; the first: it does not. */
static const struct value writers[] = {{.options = ""},
                                       ACCUMULATION,
                                       {"--zero 0", 1, 2, 2, 1, 0},
                                       {"", 1, 3, 3, 1, 0},
                                       {"--bucket-mb 0.02", 1, 4, 4, 1, 0},
                                       {"--mode dp --replicas 2", 0, 0, 2, 1, 0},
                                       {"--mode pipeline", 1, 2, 1, 2, 0},
                                       {"", 2, 2, 4, 1, 0},
                                       {"", 2, 1, 3, 1, 1},
                                       {0}};

static const struct value *const factors[FACTORS] = {
    models,  dtypes,  optimizers, clips,   shards, local_steps, splits,
    updates, buckets, recomputed, threads, looks,  writers};

/* --- the table -------------------------------------------------------------------------------- */

#define MAX_VALUES 25
#define MAX_ROWS   400

static int counts[FACTORS], rows[MAX_ROWS][FACTORS], row_count;
static int step; /* from one row that is run to the next */
static bool covered[FACTORS][MAX_VALUES][FACTORS][MAX_VALUES];
static bool with_nodes;

static bool is_ddp(const struct value *how)
{
    return how->workers > 0 && how->stages == 1;
}

/* Can this way of running compute what is trained? Values below 0 are not chosen yet. */
static bool fits(const int *row, const struct value *how)
{
    if (how->nodes > 1 && !with_nodes)
        return false;
    if (row[SHARDS] >= 0 && how->parts > shards[row[SHARDS]].parts)
        return false;
    if (row[LOCAL] > 0 && !is_ddp(how))
        return false;
    /* A head that shares the first stage's weight has a lane for each shard. */
    return !(how->stages > 1 && row[MODEL] == GPT2 && row[SHARDS] >= WHOLE_LANES &&
             row[SHARDS] < LANES_END);
}

static bool possible(const int *row)
{
    const struct value *split = row[SPLIT] < 0 ? NULL : &splits[row[SPLIT]];
    if (split && (!fits(row, split) || ((row[UPDATE] > 0 || row[BUCKETS] > 0) &&
                                        (!is_ddp(split) || split->workers * split->nodes < 2))))
        return false;
    if (row[UPDATE] == ZERO3 && split && split->nodes < 2)
        return false;
    if (row[WRITER] > 0 && !fits(row, &writers[row[WRITER]]))
        return false;
    if (row[LOCAL] > 0 && split && row[WRITER] > 0 && writers[row[WRITER]].parts != split->parts)
        return false;
    return !(row[LOCAL] > 0 &&
             (row[UPDATE] > 0 || row[DTYPE] >= FP16 || row[OPTIMIZER] == AVERAGED));
}

static unsigned random_below(unsigned count)
{
    static unsigned state = 1;
    state = state * 1664525u + 1013904223u;
    return (state >> 16) % count;
}

/* The pairs of this value and those chosen that no row has yet. */
static int gain(const int *row, int factor, int value)
{
    int pairs = 0;
    for (int f = 0; f < FACTORS; f++)
        pairs += f != factor && row[f] >= 0 && !covered[factor][value][f][row[f]];
    return pairs;
}

/* Chooses what is not chosen yet, in any order, each to cover most. False: a dead end. */
static bool complete(int *row)
{
    for (int left = FACTORS, f = (int)random_below(FACTORS); left-- > 0; f = (f + 5) % FACTORS) {
        int best = -1, most = -1;
        if (row[f] >= 0)
            continue;
        for (int i = 0, v = (int)random_below((unsigned)counts[f]); i < counts[f];
             i++, v = (v + 1) % counts[f]) {
            row[f] = v;
            const bool allowed = possible(row);
            row[f] = -1;
            if (allowed && gain(row, f, v) > most) {
                best = v;
                most = gain(row, f, v);
            }
        }
        if (best < 0)
            return false;
        row[f] = best;
    }
    return true;
}

static void cover(const int *row)
{
    for (int f = 0; f < FACTORS; f++)
        for (int g = 0; g < FACTORS; g++)
            covered[f][row[f]][g][row[g]] = true;
    memcpy(rows[row_count++], row, sizeof rows[0]);
}

/* A rough measure of a row's time: products in bf16 are the slowest, above all those of a large
 * model. */
static int cost(const int *row)
{
    return (row[MODEL] >= LLAMA && row[MODEL] < TABLE ? 4 : 1) *
           (row[DTYPE] > 0 && row[DTYPE] < WIRE ? 4 : 1) * (row[LOOKS] > 0 ? 2 : 1);
}

/* Adds a row with this pair: among some tries the one that covers most, and among equals the
 * cheapest. False: no row can have both. */
static bool add_row(int f, int v, int g, int w)
{
    int best[FACTORS], most = -1;
    for (int tries = 0; tries < 100; tries++) {
        int row[FACTORS], pairs = 0;
        memset(row, -1, sizeof row);
        row[f] = v;
        row[g] = w;
        if (!possible(row))
            return false;
        if (!complete(row))
            continue;
        for (int h = 0; h < FACTORS; h++)
            pairs += gain(row, h, row[h]);
        if (pairs > most || (pairs == most && cost(row) < cost(best)))
            memcpy(best, row, sizeof best);
        most = pairs > most ? pairs : most;
    }
    if (most >= 0)
        cover(best);
    return most >= 0;
}

static void make_rows(void)
{
    for (int f = 0; f < FACTORS; f++)
        while (factors[f][counts[f]].options)
            counts[f]++;
    for (int f = 0; f < FACTORS; f++)
        for (int g = f + 1; g < FACTORS; g++)
            for (int v = 0; v < counts[f]; v++)
                for (int w = 0; w < counts[g]; w++)
                    if (!(f == SPLIT && g == WRITER) && !covered[f][v][g][w])
                        add_row(f, v, g, w);
}

/* --- runs ------------------------------------------------------------------------------------- */

static char command[1024];

static enum ddp_status train_here(void)
{
    static char text[sizeof command], *words[100];
    int count = 1;
    ddp_train *run = NULL;
    strcpy(text, command);
    words[0] = text;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        words[count++] = word;
    enum ddp_status status = chdir(scratch) == 0 ? ddp_train_create(&run) : DDP_ERR_IO;
    if (status == DDP_OK)
        status = ddp_train_parse(run, count, words);
    if (status == DDP_OK)
        status = ddp_train_run(run, NULL);
    ddp_train_destroy(run);
    if (status != DDP_OK)
        fprintf(stderr, "%s: %s\n", ddp_status_string(status), command);
    return status;
}

static void train(int rank)
{
    (void)rank;
    const enum ddp_status status = train_here();
    fflush(NULL);
    _exit(status == DDP_OK ? 0 : 1);
}

/* Trains what the row names, the way that this says, with options of its own. */
static void run(const int *row, const struct value *how, const char *options)
{
    int used = snprintf(command, sizeof command, "%s %s %s --seed 3 --quiet ", how->options,
                        options, STEPS);
    for (int f = 0; f < TRAINED; f++)
        used += snprintf(command + used, sizeof command - (size_t)used, "%s ",
                         factors[f][row[f]].options);
    ck_assert_uint_lt((size_t)used, sizeof command);
    ranks_prepare = train;
    if (how->nodes > 0) {
        int starts[8] = {0};
        for (int n = 0; n < how->nodes; n++)
            starts[n + 1] = starts[n] + how->workers + (n == 0 ? how->more : 0);
        run_starts_alone(how->nodes, starts, NULL, -1);
        return;
    }
    int status = -1;
    const pid_t child = fork();
    if (child == 0)
        train(0);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
}

/* The file is the reference's; there has never been another like it. */
static void same(const char *name, const char *reference)
{
    size_t bytes, expected;
    char *content = malloc(1 << 21);
    memcpy(content, scratch_read(reference, &expected), 1 << 21);
    const char *other = scratch_read(name, &bytes);
    ck_assert_uint_gt(expected, 100);
    ck_assert_msg(bytes == expected && memcmp(content, other, bytes) == 0, "other bits: %s",
                  command);
    free(content);
}

START_TEST(row_has_the_same_bits)
{
    const int *row = rows[_i * step];
    const struct value *writer = &writers[row[WRITER]];
    char how[512];
    const struct value here = {"", 1, splits[row[SPLIT]].parts, splits[row[SPLIT]].parts, 1, 0};
    run(row, row[LOCAL] > 0 ? &here : &splits[0], "--threads 1 --no-eval --save reference");
    if (row[WRITER] > 0) {
        run(row, writer,
            "--threads 1 --no-eval --save written --checkpoint checkpoints --checkpoint-every 3 "
            "--keep 0");
        same("written", "reference");
    }
    snprintf(how, sizeof how, "%s %s %s %s %s %s --save saved", updates[row[UPDATE]].options,
             buckets[row[BUCKETS]].options, recomputed[row[RECOMPUTE]].options,
             threads[row[THREADS]].options, looks[row[LOOKS]].options,
             row[WRITER] > 0 ? "--resume-from checkpoints/step-00000003" : "");
    run(row, &splits[row[SPLIT]], how);
    same("saved", "reference");
}
END_TEST

/* --- what is trained -------------------------------------------------------------------------- */

enum { SAMPLES = 28, SIDE = 8 };

/* Texts of one to three words, whose rows are padded. */
static void write_sentences(void)
{
    static const char vocabulary[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\n##a\n##b\n";
    static const char *const words[] = {"a", "ab", "bba", "a b", "b a ab", "aab"};
    char labelled[4096], pairs[4096];
    size_t used = 0, paired = 0;
    for (int i = 0; i < SAMPLES; i++) {
        const char *const first = words[random_below(6)], *const second = words[random_below(6)];
        used += (size_t)snprintf(labelled + used, sizeof labelled - used,
                                 "{\"text\": \"%s\", \"label\": %d}\n", first, i % 3);
        paired += (size_t)snprintf(pairs + paired, sizeof pairs - paired,
                                   "{\"anchor\": \"%s\", \"positive\": \"%s\"}\n", first, second);
    }
    scratch_write("vocab.txt", vocabulary, sizeof vocabulary - 1);
    scratch_write("labelled.jsonl", labelled, used);
    scratch_write("pairs.jsonl", pairs, paired);
}

static void write_data(void)
{
    unsigned char images[16 + SAMPLES * SIDE * SIDE] = {0, 0, 8, 3,    0, 0, 0, SAMPLES,
                                                        0, 0, 0, SIDE, 0, 0, 0, SIDE};
    unsigned char labels[8 + SAMPLES] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
    char text[640];
    size_t used = 0;
    scratch_make();
    mkdir(scratch_path("images"), 0700);
    for (size_t i = 16; i < sizeof images; i++)
        images[i] = (unsigned char)random_below(256);
    for (size_t i = 8; i < sizeof labels; i++)
        labels[i] = (unsigned char)random_below(10);
    for (int i = 0; used < sizeof text - 64; i++)
        used +=
            (size_t)snprintf(text + used, 64, "line %d: the square of %d is %d.\n", i, i, i * i);
    scratch_write("images/train-images-idx3-ubyte", images, sizeof images);
    scratch_write("images/train-labels-idx1-ubyte", labels, sizeof labels);
    scratch_write("images/t10k-images-idx3-ubyte", images, sizeof images);
    scratch_write("images/t10k-labels-idx1-ubyte", labels, sizeof labels);
    scratch_write("text", text, used);
    used = (size_t)snprintf(text, sizeof text, "a,b,y\n");
    for (int i = 0; i < SAMPLES; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%u,%s,%u.5\n", random_below(99),
                                 i % 5 ? "u" : "", random_below(99));
    scratch_write("table.csv", text, used);
    write_sentences();
}

static void prepare(void)
{
    write_data();
}

static void remove_data(void)
{
    char all[PATH_MAX];
    snprintf(all, sizeof all, "rm -rf '%s'", scratch);
    ck_assert_int_eq(system(all), 0);
}

static void remove_checkpoints(void)
{
    char all[PATH_MAX + 32];
    snprintf(all, sizeof all, "rm -rf '%s'", scratch_path("checkpoints"));
    ck_assert_int_eq(system(all), 0);
}

Suite *test_suite(void)
{
    Suite *suite = suite_create("same bits");
    TCase *tc = test_case(suite, "rows", 60);
    static char plugins[PATH_MAX];
    if (!realpath(".libs", plugins))
        exit(TEST_HARD);
    setenv("DDP_PLUGIN_PATH", plugins, 0);
    with_nodes = access(".libs/libddp-ucx.so", R_OK) == 0;
    make_rows();
    const char *sanitizers = getenv("DDP_SANITIZE");
    step = sanitizers && *sanitizers ? 3 : 1; /* under which a row takes seconds */
    printf("%d rows\n", row_count / step);
    tcase_add_unchecked_fixture(tc, prepare, remove_data);
    tcase_add_checked_fixture(tc, NULL, remove_checkpoints);
    tcase_add_loop_test(tc, row_has_the_same_bits, 0, row_count / step);
    return suite;
}
