/* SPDX-License-Identifier: MIT
 *
 * What the loader delivers, for each format: samples and bytes a second of threads that do nothing
 * else, from files in the page cache. usage: loader_perf [SECONDS [THREADS [BATCH [IMAGES SIDE]]]]
 * With IMAGES, a directory of classes of images, only regions of these, scaled to SIDE pixels and
 * mirrored at random. */
#include "config.h"

#include "bench/bench.h"
#include "bench/median.h"
#include "core/clock.h"
#include "data/loader.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#define ROUNDS       5
#define IMAGES       10000
#define TOKENS       (32 << 20)
#define SEQ_LEN      1024
#define CIFAR_PIXELS 3072

static char directory[PATH_MAX / 2];
static double seconds = 0.5; /* of a round */
static int threads = 1;
static int64_t batch_size = 64;

/* --- files --- */

static char *path_of(const char *name)
{
    static char paths[4][PATH_MAX];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, PATH_MAX, "%s/%s", directory, name);
    return path;
}

static void fail(const char *what)
{
    perror(what);
    exit(EXIT_FAILURE);
}

/* head, then `bytes` bytes that look like anything, of so many values from `least` on. */
static void put(const char *name, const void *head, size_t head_bytes, size_t bytes, int least,
                unsigned values)
{
    static unsigned char chunk[1 << 16];
    uint32_t state = 1;
    FILE *file = fopen(path_of(name), "wb");
    if (!file || fwrite(head, 1, head_bytes, file) != head_bytes)
        fail(name);
    for (size_t done = 0, count; done < bytes; done += count) {
        count = bytes - done < sizeof chunk ? bytes - done : sizeof chunk;
        for (size_t i = 0; i < count; i++) {
            state = state * 1664525u + 1013904223u;
            chunk[i] = (unsigned char)(least + (int)((state >> 24) % values));
        }
        if (fwrite(chunk, 1, count, file) != count)
            fail(name);
    }
    if (fclose(file) != 0)
        fail(name);
}

static void put_idx(void)
{
    static const unsigned char images[16] = {0, 0, 8, 3,  0, 0, IMAGES >> 8, IMAGES & 255,
                                             0, 0, 0, 28, 0, 0, 0,           28};
    static const unsigned char labels[8] = {0, 0, 8, 1, 0, 0, IMAGES >> 8, IMAGES & 255};
    put("train-images-idx3-ubyte", images, sizeof images, (size_t)IMAGES * 784, 0, 100);
    put("train-labels-idx1-ubyte", labels, sizeof labels, IMAGES, 0, 100);
}

static void put_npy(const char *name, const char *descr, int dims, size_t bytes)
{
    char header[256];
    int length = snprintf(header + 10, sizeof header - 10,
                          "{'descr': '%s', 'fortran_order': False, 'shape': (%d, %s), }\n", descr,
                          IMAGES, dims == 3 ? "3, 32, 32" : "");
    memcpy(header, "\x93NUMPY\1", 8);
    header[8] = (char)length;
    header[9] = 0;
    put(name, header, 10 + (size_t)length, bytes, 0, 100);
}

static void put_tokens(void)
{
    put("tokens.bin", "", 0, (size_t)2 * TOKENS, 0, 100); /* each below 25,700 */
    put("tokens32.bin", "", 0, 0, 0, 100);
    FILE *file = fopen(path_of("tokens32.bin"), "wb");
    for (uint32_t i = 0; file && i < TOKENS / 2; i++)
        fwrite(&(uint32_t){i % 128256}, 4, 1, file);
    if (!file || fclose(file) != 0)
        fail("tokens32.bin");
    put("text", "", 0, TOKENS, ' ', 90);
}

static void remove_files(void)
{
    DIR *dir = opendir(directory);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (*entry->d_name != '.')
            unlink(path_of(entry->d_name));
    if (dir)
        closedir(dir);
    rmdir(directory);
}

/* --- measuring --- */

/* Samples a second of one round.
 *   cpu [out]  seconds of processor time a sample, which a busy machine changes less */
static double round_of(const ddp_dataset *dataset, const struct ddp_augment *augment, double *cpu)
{
    ddp_loader *loader;
    const struct ddp_batch *batch;
    int64_t samples = 0;
    const struct ddp_loader_config config = {.dataset = dataset,
                                             .sampler = {.shard_count = 1, .shuffle = true},
                                             .batch_size = batch_size,
                                             .shard_count = 1,
                                             .end_epoch = -1,
                                             .augment = *augment,
                                             .threads = threads,
                                             .depth = 16};
    bench_must(ddp_loader_create(&loader, &config));
    int64_t begin = 0, end = 0;
    double cpu_begin = 0;
    const int64_t warm = augment->resized > 0 ? 2 : 20;
    for (int64_t batches = 0; batches < 2 * warm || (double)(end - begin) < seconds * 1e9;
         batches++) {
        if (batches == warm) { /* what was read ahead does not count */
            begin = ddp_clock_ns();
            cpu_begin = bench_cpu_seconds();
        }
        bench_must(ddp_loader_next(loader, &batch));
        samples += batches >= warm ? batch->rows : 0;
        ddp_loader_release(loader, batch);
        end = ddp_clock_ns();
    }
    *cpu = (bench_cpu_seconds() - cpu_begin) / (double)samples;
    ddp_loader_destroy(loader);
    return (double)samples / ((double)(end - begin) * 1e-9);
}

static void measure(const char *what, const char *source, const char *path,
                    enum ddp_token_kind tokens, bool augment)
{
    ddp_dataset *dataset;
    double rates[ROUNDS], cpu[ROUNDS];
    const struct ddp_augment changes = {.crop = augment, .flip = augment};
    const struct ddp_dataset_options options = {
        .path = path, .tokens = tokens, .seq_len = SEQ_LEN, .val = tokens ? path : NULL};
    const int64_t begin = ddp_clock_ns();
    bench_must(ddp_dataset_open(source, &options, &dataset, NULL));
    const double open_ms = (double)(ddp_clock_ns() - begin) * 1e-6;
    const struct ddp_dataset_info *info = ddp_dataset_info(dataset);
    const double bytes = (double)(info->sample_bytes + (size_t)info->label_count * sizeof(int32_t));
    for (int i = 0; i < ROUNDS; i++)
        rates[i] = round_of(dataset, &changes, &cpu[i]);
    const double rate = median(rates, ROUNDS);
    printf("%-24s %8.0f %12.0f %8.2f %10.2f %9.1f %9.2f\n", what, bytes, rate, rate * bytes * 1e-9,
           median(cpu, ROUNDS) * 1e6, info->x_dtype == DDP_I32 ? rate * SEQ_LEN * 1e-6 : 0.0,
           open_ms);
    fflush(stdout);
    ddp_dataset_close(dataset);
}

/* One round, as JSON: photos.py takes turns. */
static void measure_images(const char *path, int64_t side)
{
    ddp_dataset *dataset;
    double cpu;
    const struct ddp_augment changes = {.resized = DDP_AUGMENT_LEAST, .flip = true};
    const struct ddp_dataset_options options = {
        .path = path, .image_height = side, .image_width = side};
    bench_must(ddp_dataset_open("images", &options, &dataset, NULL));
    const double rate = round_of(dataset, &changes, &cpu);
    printf("{\"images_per_s\": %.6g, \"cpu_us\": %.6g}\n", rate, cpu * 1e6);
    ddp_dataset_close(dataset);
}

int main(int argc, char **argv)
{
    const char *parent = getenv("TMPDIR");
    if (argc > 1)
        seconds = atof(argv[1]);
    if (argc > 2)
        threads = atoi(argv[2]);
    if (argc > 3)
        batch_size = atoi(argv[3]);
    if (argc > 5) {
        measure_images(argv[4], atoi(argv[5]));
        return 0;
    }
    snprintf(directory, sizeof directory, "%s/loader-perf.XXXXXX", parent ? parent : "/tmp");
    if (!mkdtemp(directory))
        fail(directory);
    atexit(remove_files);
    put_idx();
    put("data_batch_1.bin", "", 0, (size_t)IMAGES * (1 + CIFAR_PIXELS), 0, 10);
    put_npy("f4.npy", "<f4", 3, (size_t)IMAGES * CIFAR_PIXELS * 4);
    put_npy("f2.npy", "<f2", 3, (size_t)IMAGES * CIFAR_PIXELS * 2);
    put_npy("u1.npy", "|u1", 3, (size_t)IMAGES * CIFAR_PIXELS);
    put_tokens();
    printf(
        "%d thread%s, batches of %lld, medians of %d rounds of %g s; one sequence has %d tokens\n",
        threads, threads == 1 ? "" : "s", (long long)batch_size, ROUNDS, seconds, SEQ_LEN);
    printf("%-24s %8s %12s %8s %10s %9s %9s\n", "format", "bytes", "samples/s", "GB/s", "CPU us",
           "Mtokens/s", "open ms");
    measure("idx 28x28", "idx", directory, DDP_TOKENS_AUTO, false);
    measure("cifar 3x32x32", "cifar", directory, DDP_TOKENS_AUTO, false);
    measure("cifar, crop and flip", "cifar", directory, DDP_TOKENS_AUTO, true);
    measure("npy uint8 3x32x32", NULL, path_of("u1.npy"), DDP_TOKENS_AUTO, false);
    measure("npy float32 3x32x32", NULL, path_of("f4.npy"), DDP_TOKENS_AUTO, false);
    measure("npy float16 3x32x32", NULL, path_of("f2.npy"), DDP_TOKENS_AUTO, false);
    measure("tokens of 16 bits", NULL, path_of("tokens.bin"), DDP_TOKENS_UINT16, false);
    measure("tokens of 32 bits", NULL, path_of("tokens32.bin"), DDP_TOKENS_UINT32, false);
    measure("text as bytes", NULL, path_of("text"), DDP_TOKENS_BYTES, false);
    return 0;
}
