/* SPDX-License-Identifier: MIT
 *
 * Speed of the image kernels, for developers: every convolution of ResNet-20 (CIFAR's, batch 128)
 * with its share of the peak, batch norm in GB/s, and all kernels of a training step in their
 * order. bench/resnet_torch.py prints the same of PyTorch. */
#include "config.h"

#include "core/clock.h"
#include "core/pool.h"
#include "kernels/batch_norm.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/conv2d/micro.h"
#include "kernels/kernels.h"
#include "kernels/pool2d.h"
#include "kernels/transpose.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BATCH   128
#define SAMPLES 9
#define LAYERS  21 /* 19 convolutions of 3x3 and two shortcuts of 1x1 */

static ddp_pool *pool;

static void must(enum ddp_status status)
{
    if (status)
        exit(EXIT_FAILURE);
}

static void *memory(size_t bytes)
{
    bytes = (bytes + 127) / 64 * 64;
    void *block = aligned_alloc(64, bytes);
    if (!block)
        exit(EXIT_FAILURE);
    memset(block, 0, bytes);
    return block;
}

static float *numbers(int64_t count)
{
    float *values = memory((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)(i * 7919 % 2003) / 1001.5f - 1;
    return values;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct taken {
    double wall, cpu; /* milliseconds */
};

static double cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static struct taken median(void (*function)(void *arg), void *arg)
{
    double wall[SAMPLES], cpu[SAMPLES];
    for (int i = -1; i < SAMPLES; i++) { /* the first warms up */
        const int64_t begin = ddp_clock_ns();
        const double used = cpu_ms();
        function(arg);
        if (i < 0)
            continue;
        cpu[i] = cpu_ms() - used;
        wall[i] = (double)(ddp_clock_ns() - begin) / 1e6;
    }
    qsort(wall, SAMPLES, sizeof *wall, by_value);
    qsort(cpu, SAMPLES, sizeof *cpu, by_value);
    return (struct taken){wall[SAMPLES / 2], cpu[SAMPLES / 2]};
}

/* --- one layer: convolution, batch norm, perhaps residual and ReLU
 * -------------------------------- */

struct layer {
    struct ddp_conv2d_shape shape;
    bool relu;
    const struct layer *from;     /* whose y is x; NULL: the images */
    const struct layer *residual; /* whose y is added */
    int64_t x_count, y_count, rows, weight_count;
    const float *x;
    float *weight, *conv, *y; /* conv: before the norm */
    float *gamma, *beta, *saved, *stat;
    float *dweight, *dgamma, *dbeta;
    float *dx, *dy, *dresidual; /* gradients of x, of y, of the residual */
    bool add_dx, add_dresidual; /* another reader has written them */
};

static void *scratch;
static double *sums;

static void layer_make(struct layer *layer, int64_t size, int64_t in, int64_t out, int64_t kernel,
                       int64_t stride)
{
    *layer = (struct layer){
        .shape = {BATCH, size, size, in, out, kernel, kernel, stride, kernel / 2, 1}};
    layer->rows = BATCH * (size / stride) * (size / stride);
    layer->x_count = BATCH * size * size * in;
    layer->y_count = layer->rows * out;
    layer->weight_count = out * in * kernel * kernel;
    layer->weight = numbers(layer->weight_count);
    layer->conv = numbers(layer->y_count);
    layer->y = numbers(layer->y_count);
    layer->dy = numbers(layer->y_count);
    layer->gamma = numbers(out);
    layer->beta = numbers(out);
    layer->saved = numbers(2 * out);
    layer->stat = numbers(2 * out);
    layer->dweight = numbers(layer->weight_count);
    layer->dgamma = numbers(out);
    layer->dbeta = numbers(out);
}

static void conv_forward(void *arg)
{
    const struct layer *l = arg;
    must(ddp_conv2d_forward(
        &(struct ddp_conv2d_forward){
            .shape = l->shape, .x = l->x, .weight = l->weight, .y = l->conv, .scratch = scratch},
        pool));
}

static void conv_gradients(const struct layer *l, const float *dy, float *dx, float *dweight)
{
    must(ddp_conv2d_backward(&(struct ddp_conv2d_backward){.shape = l->shape,
                                                           .x = l->x,
                                                           .weight = l->weight,
                                                           .dy = dy,
                                                           .dx = dx,
                                                           .dweight = dweight,
                                                           .accumulate_dx = l->add_dx,
                                                           .scratch = scratch},
                             pool));
}

static void conv_dx(void *arg)
{
    const struct layer *l = arg;
    conv_gradients(l, l->dy, l->dx, NULL);
}

static void conv_dweight(void *arg)
{
    const struct layer *l = arg;
    conv_gradients(l, l->dy, NULL, l->dweight);
}

static void norm_forward(void *arg)
{
    const struct layer *l = arg;
    must(ddp_batch_norm_sums(&(struct ddp_batch_norm_sums){.rows = l->rows,
                                                           .channels = l->shape.out,
                                                           .x = l->conv,
                                                           .sums = sums,
                                                           .scratch = scratch},
                             pool));
    must(ddp_batch_norm_forward(
        &(struct ddp_batch_norm_forward){.rows = l->rows,
                                         .channels = l->shape.out,
                                         .activation = (enum ddp_activation)l->relu,
                                         .epsilon = 1e-5f,
                                         .x = l->conv,
                                         .gamma = l->gamma,
                                         .beta = l->beta,
                                         .residual = l->residual ? l->residual->y : NULL,
                                         .sums = sums,
                                         .count = (double)l->rows,
                                         .y = l->y,
                                         .saved = l->saved,
                                         .stat_mean = l->stat,
                                         .stat_var = l->stat + l->shape.out},
        pool));
}

/* dy becomes the gradient of the convolution's output. */
static void norm_backward(void *arg)
{
    const struct layer *l = arg;
    must(ddp_batch_norm_backward_sums(
        &(struct ddp_batch_norm_backward_sums){.rows = l->rows,
                                               .channels = l->shape.out,
                                               .activation = (enum ddp_activation)l->relu,
                                               .has_residual = l->residual != NULL,
                                               .x = l->conv,
                                               .y = l->y,
                                               .dy = l->dy,
                                               .gamma = l->gamma,
                                               .beta = l->beta,
                                               .saved = l->saved,
                                               .sums = sums,
                                               .scratch = scratch},
        pool));
    must(ddp_batch_norm_backward(
        &(struct ddp_batch_norm_backward){.rows = l->rows,
                                          .channels = l->shape.out,
                                          .activation = (enum ddp_activation)l->relu,
                                          .x = l->conv,
                                          .y = l->y,
                                          .dy = l->dy,
                                          .gamma = l->gamma,
                                          .beta = l->beta,
                                          .saved = l->saved,
                                          .sums = sums,
                                          .count = (double)l->rows,
                                          .local_sums = sums,
                                          .dx = l->dy,
                                          .dresidual = l->dresidual,
                                          .has_residual = l->residual != NULL,
                                          .dgamma = l->dgamma,
                                          .dbeta = l->dbeta,
                                          .accumulate_dresidual = l->add_dresidual},
        pool));
}

/* --- what the processor can do
 * -------------------------------------------------------------------- */

struct probe {
    struct ddp_conv_strip strip;
    int64_t x_offsets[DDP_CONV_PIXELS], y_offsets[DDP_CONV_PIXELS];
};

#define PROBE_CALLS  20000
#define PROBE_LENGTH 64

static void probe_run(void *arg)
{
    const struct probe *probe = arg;
    const struct ddp_conv_micro *micro = ddp_conv_micro();
    for (int i = 0; i < PROBE_CALLS; i++)
        micro->strip(&probe->strip, micro->pixels, micro->vectors);
}

/* GFLOP/s of one thread on operands that stay in the first-level cache: the bound for all below. */
static double peak(void)
{
    struct probe probe = {.strip = {.runs = {.outer = 1, .inner = 1, .length = PROBE_LENGTH},
                                    .x = numbers(DDP_CONV_PIXELS * PROBE_LENGTH),
                                    .weight = numbers(2 * PROBE_LENGTH * DDP_CONV_LANES),
                                    .weight_step = PROBE_LENGTH * DDP_CONV_LANES,
                                    .y = numbers(DDP_CONV_PIXELS * 2 * DDP_CONV_LANES)}};
    const struct ddp_conv_micro *micro = ddp_conv_micro();
    for (int64_t i = 0; i < DDP_CONV_PIXELS; i++) {
        probe.x_offsets[i] = i * PROBE_LENGTH;
        probe.y_offsets[i] = i * 2 * DDP_CONV_LANES;
    }
    probe.strip.x_offsets = probe.x_offsets;
    probe.strip.y_offsets = probe.y_offsets;
    probe.strip.lanes = micro->vectors * DDP_CONV_LANES;
    const double flop = 2.0 * (double)micro->pixels * (double)micro->vectors * DDP_CONV_LANES *
                        PROBE_LENGTH * PROBE_CALLS;
    return flop / 1e6 / median(probe_run, &probe).cpu;
}

/* --- the network
 * ---------------------------------------------------------------------------------- */

static struct layer layers[LAYERS];
static float *pixels, *pixels_last, *pooled, *dpooled;

static void connect(struct layer *layer, const struct layer *from, const struct layer *residual,
                    bool relu)
{
    layer->from = from;
    layer->x = from ? from->y : pixels_last;
    layer->dx = from ? from->dy : NULL;
    layer->residual = residual;
    layer->dresidual = residual ? residual->dy : NULL;
    layer->relu = relu;
}

/* Backward runs in reverse: the block's second layer hands dy to its residual, then its first layer
 * and its shortcut give dx. Who comes first writes, the others add. */
static void build(void)
{
    int64_t size = 32, channels = 16, next = 1;
    layer_make(&layers[0], 32, 3, 16, 3, 1);
    connect(&layers[0], NULL, NULL, true);
    struct layer *last = &layers[0];
    for (int block = 0; block < 9; block++) {
        const bool down = block == 3 || block == 6;
        const int64_t out = down ? 2 * channels : channels, stride = down ? 2 : 1;
        struct layer *shortcut = last;
        if (down) {
            shortcut = &layers[next++];
            layer_make(shortcut, size, channels, out, 1, stride);
            connect(shortcut, last, NULL, false);
            shortcut->add_dx = true;
        }
        struct layer *first = &layers[next++], *second = &layers[next++];
        layer_make(first, size, channels, out, 3, stride);
        connect(first, last, NULL, true);
        size /= stride;
        channels = out;
        layer_make(second, size, out, out, 3, 1);
        connect(second, first, shortcut, true);
        first->add_dx = !down;
        last = second;
    }
    pooled = numbers((int64_t)BATCH * 64);
    dpooled = numbers((int64_t)BATCH * 64);
}

static const struct ddp_pool2d_shape last_pool = {BATCH, 8, 8, 64, 8, 8, 8, 0};

/* Everything but the linear layer and the loss, which are small. */
static void step(void *arg)
{
    (void)arg;
    struct layer *last = &layers[LAYERS - 1];
    must(ddp_transpose(&(struct ddp_transpose){BATCH, 3, 1024, DDP_F32, pixels, pixels_last, false},
                       pool));
    for (int i = 0; i < LAYERS; i++) {
        conv_forward(&layers[i]);
        norm_forward(&layers[i]);
    }
    must(ddp_avg_pool2d_forward(
        &(struct ddp_avg_pool2d_forward){last_pool, DDP_F32, last->y, pooled}, pool));
    must(ddp_avg_pool2d_backward(
        &(struct ddp_avg_pool2d_backward){last_pool, DDP_F32, dpooled, last->dy, false}, pool));
    for (int i = LAYERS - 1; i >= 0; i--) {
        norm_backward(&layers[i]);
        conv_gradients(&layers[i], layers[i].dy, layers[i].dx, layers[i].dweight);
    }
}

/* --- the report
 * ----------------------------------------------------------------------------------- */

static void print_part(const char *name, struct taken taken, double gflop, double bound)
{
    printf("  %s %6.2f ms (cpu %6.2f) %4.0f %%", name, taken.wall, taken.cpu,
           100 * gflop / taken.cpu * 1e3 / bound);
}

/* Convolutions of the same shape are measured once. */
static void print_layers(double bound)
{
    struct taken total = {0, 0};
    double norm_cpu = 0, norm_bytes = 0;
    for (int i = 0; i < LAYERS; i++) {
        struct layer *l = &layers[i];
        int count = 0, before = 0;
        for (int j = 0; j < LAYERS; j++)
            if (memcmp(&layers[j].shape, &l->shape, sizeof l->shape) == 0) {
                count++;
                before += j < i;
            }
        if (before > 0)
            continue;
        const double gflop = 2e-9 * (double)l->rows * (double)l->weight_count;
        printf("%dx %3lld^2 %3lld -> %3lld %lldx%lld/%lld", count, (long long)l->shape.height,
               (long long)l->shape.in, (long long)l->shape.out, (long long)l->shape.kernel_height,
               (long long)l->shape.kernel_width, (long long)l->shape.stride);
        const struct taken parts[3] = {median(conv_forward, l),
                                       l->dx ? median(conv_dx, l) : (struct taken){0, 0},
                                       median(conv_dweight, l)};
        print_part("forward", parts[0], gflop, bound);
        if (l->dx)
            print_part("dx", parts[1], gflop, bound);
        print_part("dweight", parts[2], gflop, bound);
        putchar('\n');
        for (int part = 0; part < 3; part++) {
            total.wall += count * parts[part].wall;
            total.cpu += count * parts[part].cpu;
        }
        const struct taken norm[2] = {median(norm_forward, l), median(norm_backward, l)};
        printf("     norm%s%s: forward %.2f ms (cpu %.2f), backward %.2f ms (cpu %.2f)\n",
               l->residual ? " + residual" : "", l->relu ? " + ReLU" : "", norm[0].wall,
               norm[0].cpu, norm[1].wall, norm[1].cpu);
        norm_cpu += count * (norm[0].cpu + norm[1].cpu);
        norm_bytes += count * (double)l->y_count * 4 * (3 + 5);
    }
    printf("convolutions of a step: %.1f ms (cpu %.1f); norms: cpu %.1f ms, %.0f GB/s\n",
           total.wall, total.cpu, norm_cpu, norm_bytes / norm_cpu / 1e6);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    must(ddp_pool_create(&pool, threads > 0 ? threads : 1));
    pixels = numbers((int64_t)BATCH * 3 * 1024);
    pixels_last = numbers((int64_t)BATCH * 3 * 1024);
    build();
    size_t bytes = 0;
    for (int i = 0; i < LAYERS; i++) {
        const size_t needs[] = {ddp_conv2d_forward_scratch_bytes(&layers[i].shape),
                                ddp_conv2d_backward_scratch_bytes(&layers[i].shape),
                                ddp_batch_norm_scratch_bytes(layers[i].rows, layers[i].shape.out)};
        for (int j = 0; j < 3; j++)
            bytes = needs[j] > bytes ? needs[j] : bytes;
    }
    scratch = memory(bytes);
    sums = memory(2 * 64 * sizeof *sums);
    const double bound = peak();
    printf("%s, bound %.0f GFLOP/s a thread; %% is the share of it in processor time\n",
           ddp_conv_micro()->name, bound);
    print_layers(bound);
    const struct taken taken = median(step, NULL);
    printf("all kernels of a step, %d threads: %.1f ms (cpu %.1f)\n", threads, taken.wall,
           taken.cpu);
    ddp_pool_destroy(pool);
    return EXIT_SUCCESS;
}
