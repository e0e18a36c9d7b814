/* SPDX-License-Identifier: MIT
 *
 * Speed of every convolution of ResNet-20 (CIFAR's, batch 128), with its share of the peak.
 * bench/resnet_torch.py prints the same of PyTorch. */
#include "config.h"

#include "bench/bench.h"
#include "bench/median.h"
#include "core/clock.h"
#include "core/pool.h"
#include "kernels/batch_norm.h"
#include "kernels/conv2d/conv2d.h"
#include "kernels/conv2d/micro.h"
#include "kernels/kernels.h"
#include "kernels/pool2d.h"
#include "kernels/transpose.h"

#include <stdio.h>

#define BATCH   128
#define SAMPLES 9

/* Its convolutions, by shape. */
static const struct {
    int count;
    int64_t size, in, out, kernel, stride;
} layers[] = {
    {1, 32, 3, 16, 3, 1},  {6, 32, 16, 16, 3, 1}, {1, 32, 16, 32, 1, 2}, {1, 32, 16, 32, 3, 2},
    {5, 16, 32, 32, 3, 1}, {1, 16, 32, 64, 1, 2}, {1, 16, 32, 64, 3, 2}, {5, 8, 64, 64, 3, 1},
};
#define LAYERS ((int)(sizeof layers / sizeof layers[0]))

static ddp_pool *pool;

struct taken {
    double wall, cpu; /* milliseconds */
};

static struct taken measure(void (*function)(void *arg), void *arg)
{
    double wall[SAMPLES], cpu[SAMPLES];
    for (int i = -1; i < SAMPLES; i++) { /* the first warms up */
        const int64_t begin = ddp_clock_ns();
        const double used = bench_cpu_seconds();
        function(arg);
        if (i < 0)
            continue;
        cpu[i] = (bench_cpu_seconds() - used) * 1e3;
        wall[i] = (double)(ddp_clock_ns() - begin) / 1e6;
    }
    return (struct taken){median(wall, SAMPLES), median(cpu, SAMPLES)};
}

/* --- one layer --- */

struct layer {
    struct ddp_conv2d_shape shape;
    double gflop;
    float *x, *weight, *y, *dx, *dy, *dweight; /* dx is NULL for the layer that reads the images */
    void *scratch;
};

static struct layer layer_make(int index)
{
    const int64_t size = layers[index].size, in = layers[index].in, out = layers[index].out,
                  kernel = layers[index].kernel, stride = layers[index].stride;
    const int64_t x_count = BATCH * size * size * in;
    const int64_t pixels = BATCH * (size / stride) * (size / stride);
    const int64_t weights = out * in * kernel * kernel;
    struct layer layer = {
        .shape = {BATCH, size, size, in, out, kernel, kernel, stride, kernel / 2, 1},
        .gflop = 2e-9 * (double)pixels * (double)weights};
    layer.x = bench_numbers(x_count);
    layer.dx = index > 0 ? bench_numbers(x_count) : NULL;
    layer.weight = bench_numbers(weights);
    layer.dweight = bench_numbers(weights);
    layer.y = bench_numbers(pixels * out);
    layer.dy = bench_numbers(pixels * out);
    layer.scratch = bench_memory(ddp_conv2d_forward_scratch_bytes(&layer.shape) +
                                 ddp_conv2d_backward_scratch_bytes(&layer.shape));
    return layer;
}

static void conv_forward(void *arg)
{
    const struct layer *l = arg;
    bench_must(ddp_conv2d_forward(
        &(struct ddp_conv2d_forward){
            .shape = l->shape, .x = l->x, .weight = l->weight, .y = l->y, .scratch = l->scratch},
        pool));
}

static void conv_gradients(const struct layer *l, float *dx, float *dweight)
{
    bench_must(ddp_conv2d_backward(&(struct ddp_conv2d_backward){.shape = l->shape,
                                                                 .x = l->x,
                                                                 .weight = l->weight,
                                                                 .dy = l->dy,
                                                                 .dx = dx,
                                                                 .dweight = dweight,
                                                                 .scratch = l->scratch},
                                   pool));
}

static void conv_dx(void *arg)
{
    const struct layer *l = arg;
    conv_gradients(l, l->dx, NULL);
}

static void conv_dweight(void *arg)
{
    const struct layer *l = arg;
    conv_gradients(l, NULL, l->dweight);
}

/* --- what the processor can do --- */

struct probe {
    struct ddp_conv_strip strip;
    int64_t x_offsets[DDP_CONV_PIXELS], y_offsets[DDP_CONV_PIXELS];
};

#define PROBE_CALLS  20000
#define PROBE_LENGTH 64

static void probe_run(void *arg)
{
    const struct probe *probe = arg;
    const struct ddp_conv_micro *micro = ddp_conv_micro(ddp_cpu_isa());
    for (int i = 0; i < PROBE_CALLS; i++)
        micro->strip(&probe->strip, micro->pixels, micro->vectors);
}

/* GFLOP/s of one thread on operands that stay in the first-level cache: the bound for all below. */
static double peak(void)
{
    struct probe probe = {.strip = {.runs = {.outer = 1, .inner = 1, .length = PROBE_LENGTH},
                                    .x = bench_numbers(DDP_CONV_PIXELS * PROBE_LENGTH),
                                    .weight = bench_numbers(2 * PROBE_LENGTH * DDP_CONV_LANES),
                                    .weight_step = PROBE_LENGTH * DDP_CONV_LANES,
                                    .y = bench_numbers(DDP_CONV_PIXELS * 2 * DDP_CONV_LANES)}};
    const struct ddp_conv_micro *micro = ddp_conv_micro(ddp_cpu_isa());
    for (int64_t i = 0; i < DDP_CONV_PIXELS; i++) {
        probe.x_offsets[i] = i * PROBE_LENGTH;
        probe.y_offsets[i] = i * 2 * DDP_CONV_LANES;
    }
    probe.strip.x_offsets = probe.x_offsets;
    probe.strip.y_offsets = probe.y_offsets;
    probe.strip.lanes = micro->vectors * DDP_CONV_LANES;
    const double flop = 2.0 * (double)micro->pixels * (double)micro->vectors * DDP_CONV_LANES *
                        PROBE_LENGTH * PROBE_CALLS;
    return flop / 1e6 / measure(probe_run, &probe).cpu;
}

/* --- the report --- */

static void print_part(const char *name, void (*function)(void *arg), struct layer *layer,
                       double bound, int count, struct taken *total)
{
    const struct taken taken = measure(function, layer);
    printf("  %s %6.2f ms (cpu %6.2f) %4.0f %%", name, taken.wall, taken.cpu,
           100 * layer->gflop / taken.cpu * 1e3 / bound);
    total->wall += count * taken.wall;
    total->cpu += count * taken.cpu;
}

/* Layers of the same shape are measured once. */
static void print_layers(double bound)
{
    struct taken total = {0, 0};
    for (int i = 0; i < LAYERS; i++) {
        const int count = layers[i].count;
        const size_t begin = bench_pieces();
        struct layer l = layer_make(i);
        printf("%dx %3lld^2 %3lld -> %3lld %lldx%lld/%lld", count, (long long)l.shape.height,
               (long long)l.shape.in, (long long)l.shape.out, (long long)l.shape.kernel_height,
               (long long)l.shape.kernel_width, (long long)l.shape.stride);
        print_part("forward", conv_forward, &l, bound, count, &total);
        if (l.dx)
            print_part("dx", conv_dx, &l, bound, count, &total);
        print_part("dweight", conv_dweight, &l, bound, count, &total);
        putchar('\n');
        bench_release(begin);
    }
    printf("convolutions of a step: %.1f ms (cpu %.1f)\n", total.wall, total.cpu);
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 2;
    bench_must(ddp_pool_create(&pool, threads > 0 ? threads : 1));
    const double bound = peak();
    printf("bound %.0f GFLOP/s a thread; %% is the share of it in processor time\n", bound);
    print_layers(bound);
    ddp_pool_destroy(pool);
    return 0;
}
