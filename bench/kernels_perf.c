/* SPDX-License-Identifier: MIT
 *
 * What the kernels of a device reach: memory-bound ones beside the speed at which it copies its own
 * memory, by turns, so that all see the same state of the machine; and matrix products. Bytes are
 * those that an operation must read and write at least, once each. One JSON object on stdout;
 * bench/gpu and bench/run read it. Runs on the simulated device too, where its figures mean
 * nothing. */
#include "config.h"

#include "bench/bench.h"
#include "bench/kernels_perf.h"
#include "core/parse.h"
#include "kernels/bf16.h"
#include "kernels/linear.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* To the host where that is the same memory: the CPU then copies with all its threads. */
static enum ddp_status copy(struct device_bench *bench)
{
    const size_t bytes = (size_t)bench->count * sizeof(float);
    return ddp_device_host_memory(bench->device)
               ? ddp_device_copy_out(bench->device, bench->memory[1], bench->memory[0], bytes)
               : ddp_device_copy(bench->device, bench->memory[1], bench->memory[0], bytes);
}

static enum ddp_status product(struct device_bench *bench)
{
    const struct ddp_linear_forward args = {.rows = bench->product,
                                            .in = bench->product,
                                            .out = bench->product,
                                            .compute = bench->compute,
                                            .dtype = bench->activations,
                                            .x = bench->x,
                                            .weight = bench->weight,
                                            .weight_bf16 = bench->weight_bf16,
                                            .y = bench->y,
                                            .scratch = bench->product_scratch};
    return bench->kernels->linear_forward(&args, bench->stream);
}

static void round_to(const struct device_bench *bench, const float *from, void *to, size_t count)
{
    const struct ddp_to_bf16 args = {(int64_t)count, from, to};
    bench_must(bench->kernels->to_bf16(&args, bench->stream));
}

/* FLOP/s of a square product, with operands and result as in training. */
static double product_speed(struct device_bench *bench, int64_t size, enum ddp_dtype compute)
{
    const struct device_row row = {.run = product};
    const size_t count = (size_t)size * (size_t)size, begin = device_pieces();
    double took;
    bench->product = size;
    bench->compute = compute;
    bench->activations =
        compute == DDP_BF16 && bench->kernels->bf16_activations ? DDP_BF16 : DDP_F32;
    const size_t scratch =
        ddp_linear_scratch_bytes(size, size, size, compute, bench->activations, true);
    bench->x = device_memory(bench, count * sizeof(float));
    bench->weight = device_memory(bench, count * sizeof(float));
    bench->y = device_memory(bench, count * sizeof(float));
    bench->weight_bf16 = NULL;
    bench->product_scratch = scratch ? device_memory(bench, scratch) : NULL;
    device_fill(bench, bench->x, count, -1);
    device_fill(bench, bench->weight, count, -1);
    if (compute == DDP_BF16) {
        bench->weight_bf16 = device_memory(bench, count * sizeof(uint16_t));
        round_to(bench, bench->weight, bench->weight_bf16, count);
    }
    if (bench->activations == DDP_BF16)
        round_to(bench, bench->weight, bench->x, count);
    device_measure(bench, &row, 1, &took);
    device_release(bench, begin);
    return 2.0 * (double)size * (double)size * (double)size / took;
}

static void print_rows(struct device_bench *bench)
{
    const int count = 1 + device_row_count(bench);
    struct device_row rows[1 + DEVICE_ROWS] = {{.name = "copy", .bytes = 8, .run = copy}};
    double seconds[1 + DEVICE_ROWS];
    assert(count <= 1 + DEVICE_ROWS);
    memcpy(rows + 1, device_rows, (size_t)(count - 1) * sizeof *rows);
    device_measure(bench, rows, count, seconds);
    const double copied = rows[0].bytes * (double)bench->count / seconds[0];
    printf(",\n \"array_bytes\": %.0f, \"copy_bytes_per_s\": %.4g,\n \"kernels\": [",
           (double)bench->count * sizeof(float), copied);
    for (int i = 1; i < count; i++) {
        const double speed = rows[i].bytes * (double)bench->count / seconds[i];
        printf("%s\n  {\"name\": \"%s\", \"seconds\": %.4g, \"bytes_per_s\": %.4g, "
               "\"share_of_copy\": %.3f}",
               i > 1 ? "," : "", rows[i].name, seconds[i], speed, speed / copied);
    }
    printf("]");
}

static void measure_rows(struct device_bench *bench)
{
    for (int i = 0; i < BENCH_ARRAYS; i++) {
        bench->memory[i] = device_memory(bench, (size_t)bench->count * sizeof(float));
        device_fill(bench, bench->memory[i], (size_t)bench->count, i == BENCH_SQUARES ? 0 : -1);
    }
    for (int i = 0; i < BENCH_HALVES && bench->kernels->bf16_activations; i++) {
        bench->halves[i] = device_memory(bench, (size_t)bench->count * sizeof(uint16_t));
        device_fill_bf16(bench, bench->halves[i], (size_t)bench->count,
                         i == BENCH_HALVES - 1 ? -2 : -1);
    }
    device_rows_open(bench);
    print_rows(bench);
    device_release(bench, 0);
}

static void print_products(struct device_bench *bench, int64_t least)
{
    printf(",\n \"products\": [");
    for (int i = 0; i < 4; i++) {
        const int64_t size = least << i / 2;
        const enum ddp_dtype compute = i % 2 ? DDP_F32 : DDP_BF16;
        printf("%s\n  {\"size\": %" PRId64 ", \"compute\": \"%s\", \"flop_per_s\": %.4g}",
               i ? "," : "", size, i % 2 ? "fp32" : "bf16", product_speed(bench, size, compute));
        fflush(stdout);
    }
    printf("]");
}

/* Of a batch that leaves most of the memory free. */
static void print_layers(struct device_bench *bench, struct device_sizes *sizes, const char *only)
{
    static const char *const kinds[] = {"products", "attention", "convolution"};
    const double logits = 2.0 * 50304; /* bytes of a token's, the largest */
    size_t total = 0, unused = 0;
    bool first = true;
    bench_must(ddp_device_memory(bench->device, &total, &unused));
    while (sizes->batch > 1 &&
           (double)sizes->batch * (double)sizes->length * logits > (double)unused / 4)
        sizes->batch /= 2;
    printf(",\n \"batch\": %" PRId64 ", \"length\": %" PRId64 ", \"images\": %" PRId64
           ",\n \"layers\": [",
           sizes->batch, sizes->length, sizes->images);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strstr(only, kinds[i]))
            device_layers_print(bench, sizes, kinds[i], &first);
    printf("]");
}

struct settings {
    int64_t mebibytes, product, threads, batch, length, images;
    const char *kind, *only;
};

static bool read_settings(struct settings *settings, int argc, char **argv)
{
    const struct {
        const char *name;
        int64_t *to;
    } numbers[] = {{"--mebibytes", &settings->mebibytes}, {"--product", &settings->product},
                   {"--threads", &settings->threads},     {"--batch", &settings->batch},
                   {"--length", &settings->length},       {"--images", &settings->images}};
    for (int i = 1; i < argc; i += 2) {
        bool known = i + 1 < argc;
        if (known && strcmp(argv[i], "--device") == 0) {
            settings->kind = argv[i + 1];
        } else if (known && strcmp(argv[i], "--only") == 0) {
            settings->only = argv[i + 1];
        } else {
            size_t n = 0;
            while (n < sizeof numbers / sizeof *numbers && strcmp(argv[i], numbers[n].name) != 0)
                n++;
            if (!known || n == sizeof numbers / sizeof *numbers ||
                !ddp_parse_int64(argv[i + 1], 1, 1 << 20, numbers[n].to))
                return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    struct device_bench bench = {.round_seconds = 0.03};
    struct settings s = {
        .mebibytes = 256, .threads = 2, .batch = 64, .length = 1024, .images = 512, .kind = "cpu"};
    if (!read_settings(&s, argc, argv)) {
        fprintf(stderr, "usage: kernels_perf [--device cpu|cuda] [--threads N] [--mebibytes N] "
                        "[--product N]\n                    [--batch N] [--length N] [--images N] "
                        "[--only memory,squares,products,attention,convolution]\n");
        return 2;
    }
    struct device_sizes sizes = {s.batch, s.length, s.images, s.mebibytes < 16};
    bench.count = (s.mebibytes << 20) / (int64_t)sizeof(float);
    bench_must(ddp_device_open(&bench.device, s.kind, 0, (int)s.threads));
    bench.kernels = ddp_device_kernels(bench.device);
    bench.stream = ddp_device_stream(bench.device);
    if (s.mebibytes < 16)
        bench.round_seconds = 0; /* to see that it works */
    if (s.product == 0)
        s.product = ddp_device_host_memory(bench.device) ? 1024 : 8192;
    const char *all = bench.kernels->bf16_activations
                          ? "memory,squares,products,attention,convolution"
                          : "memory,squares";
    if (!s.only)
        s.only = all;
    printf("{\"device\": \"%s\"", ddp_device_describe(bench.device));
    if (strstr(s.only, "memory"))
        measure_rows(&bench);
    if (strstr(s.only, "squares"))
        print_products(&bench, s.product);
    if (bench.kernels->bf16_activations && strcmp(s.only, "memory") != 0)
        print_layers(&bench, &sizes, s.only);
    printf("}\n");
    device_release(&bench, 0);
    ddp_device_close(bench.device);
    return 0;
}
