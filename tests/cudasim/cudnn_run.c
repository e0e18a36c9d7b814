/* SPDX-License-Identifier: MIT
 *
 * The simulated cuDNN's operations: a program is interpreted tensor by tensor, in float32, each
 * result rounded to its tensor's type. The order of all sums is fixed. */
#include "config.h"

#include "tests/cudasim/cudnn_sim.h"

#include "kernels/bf16.h"
#include "kernels/cpu/gemm.h"
#include "tests/cudasim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A tensor while a program runs: its elements at the offsets that its strides say. */
struct image {
    const struct cudnn_sim_tensor *tensor;
    float *data;
};

static int64_t offset_of(const struct cudnn_sim_tensor *tensor, const int64_t at[CUDNN_SIM_RANK])
{
    int64_t offset = 0;
    for (int i = 0; i < CUDNN_SIM_RANK; i++)
        offset += tensor->dims[i] == 1 ? 0 : at[i] * tensor->strides[i];
    return offset;
}

/* The next element in the order of axes; false after the last. */
static bool step(int64_t at[CUDNN_SIM_RANK], const int64_t dims[CUDNN_SIM_RANK])
{
    for (int i = CUDNN_SIM_RANK - 1; i >= 0; i--) {
        if (++at[i] < dims[i])
            return true;
        at[i] = 0;
    }
    return false;
}

static float rounded(float value, cudnnDataType_t type)
{
    return type == CUDNN_DATA_BFLOAT16 ? ddp_bf16_to_f32(ddp_bf16_of(value)) : value;
}

/* --- memory --------------------------------------------------------------------------------- */

static void read_element(const struct image *image, int64_t offset)
{
    const bool half = image->tensor->type == CUDNN_DATA_BFLOAT16;
    const char *from = (const char *)image->tensor->memory + offset * (half ? 2 : 4);
    uint16_t bits;
    sim_reads(from, half ? 2 : 4);
    if (half) {
        memcpy(&bits, from, sizeof bits);
        image->data[offset] = ddp_bf16_to_f32(bits);
    } else {
        memcpy(&image->data[offset], from, sizeof(float));
    }
}

static void write_element(const struct image *image, int64_t offset)
{
    const bool half = image->tensor->type == CUDNN_DATA_BFLOAT16;
    char *to = (char *)image->tensor->memory + offset * (half ? 2 : 4);
    const uint16_t bits = ddp_bf16_of(image->data[offset]);
    sim_writes(to, half ? 2 : 4);
    if (half)
        memcpy(to, &bits, sizeof bits);
    else
        memcpy(to, &image->data[offset], sizeof(float));
}

static void for_each(const struct image *image, void (*element)(const struct image *, int64_t))
{
    int64_t at[CUDNN_SIM_RANK] = {0};
    do
        element(image, offset_of(image->tensor, at));
    while (step(at, image->tensor->dims));
}

static bool open_images(struct cudnn_sim_program *program, struct image *images)
{
    for (int i = 0; i < program->tensor_count; i++) {
        const struct cudnn_sim_tensor *tensor = &program->tensors[i];
        images[i].tensor = tensor;
        images[i].data = malloc((size_t)cudnn_sim_span(tensor) * sizeof(float));
        if (!images[i].data)
            return false;
        if (tensor->by_value)
            images[i].data[0] = tensor->value;
        else if (!tensor->is_virtual && tensor->read)
            for_each(&images[i], read_element);
    }
    return true;
}

/* --- pointwise operations and sums ---------------------------------------------------------- */

static float apply(const struct cudnn_sim_operation *operation, float x, float b, float t,
                   const int64_t at[CUDNN_SIM_RANK])
{
    switch (operation->mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_RELU_FWD:
        return x > 0 ? x : 0;
    case CUDNN_POINTWISE_GEN_INDEX:
        return (float)at[operation->axis];
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0 ? x : b;
    default:
        return x;
    }
}

static void pointwise(const struct cudnn_sim_operation *operation, const struct image *images)
{
    const struct image *x = &images[operation->x], *y = &images[operation->y];
    const struct image *b = operation->b >= 0 ? &images[operation->b] : NULL;
    const struct image *t = operation->t >= 0 ? &images[operation->t] : NULL;
    int64_t at[CUDNN_SIM_RANK] = {0};
    do {
        /* an index is of the place alone: its operand need not have a value */
        const float first =
            operation->mode == CUDNN_POINTWISE_GEN_INDEX ? 0 : x->data[offset_of(x->tensor, at)];
        const float second = b ? b->data[offset_of(b->tensor, at)] : 0;
        const float third = t ? t->data[offset_of(t->tensor, at)] : 0;
        y->data[offset_of(y->tensor, at)] =
            rounded(apply(operation, first, second, third, at), y->tensor->type);
    } while (step(at, y->tensor->dims));
}

static void reduce(const struct cudnn_sim_operation *operation, const struct image *images)
{
    const struct image *x = &images[operation->x], *y = &images[operation->y];
    const bool max = operation->mode == CUDNN_REDUCE_TENSOR_MAX;
    int64_t at[CUDNN_SIM_RANK] = {0};
    do
        y->data[offset_of(y->tensor, at)] = max ? -INFINITY : 0;
    while (step(at, y->tensor->dims));
    do {
        float *to = &y->data[offset_of(y->tensor, at)];
        const float value = x->data[offset_of(x->tensor, at)];
        *to = !max ? *to + value : value > *to ? value : *to;
    } while (step(at, x->tensor->dims));
}

/* The same memory seen with other strides. */
static void reshape(const struct cudnn_sim_operation *operation, const struct image *images)
{
    const struct image *x = &images[operation->x], *y = &images[operation->y];
    int64_t at[CUDNN_SIM_RANK] = {0};
    do {
        const int64_t offset = offset_of(y->tensor, at);
        y->data[offset] = rounded(x->data[offset], y->tensor->type);
    } while (step(at, y->tensor->dims));
}

/* --- products ------------------------------------------------------------------------------- */

/* Rows x columns of a tensor's last two axes, dense. */
static void take_matrix(float *to, const struct image *from, const int64_t at[CUDNN_SIM_RANK])
{
    const struct cudnn_sim_tensor *tensor = from->tensor;
    const float *data = from->data + at[0] * tensor->strides[0] + at[1] * tensor->strides[1];
    for (int64_t i = 0; i < tensor->dims[2]; i++)
        for (int64_t j = 0; j < tensor->dims[3]; j++)
            *to++ = data[i * tensor->strides[2] + j * tensor->strides[3]];
}

static bool matmul(const struct cudnn_sim_operation *operation, const struct image *images)
{
    const struct image *a = &images[operation->x], *b = &images[operation->b];
    const struct image *c = &images[operation->y];
    const int64_t m = c->tensor->dims[2], n = c->tensor->dims[3], k = a->tensor->dims[3];
    float *memory = malloc((size_t)(m * k + k * n + m * n) * sizeof *memory);
    float *first = memory, *second = memory + m * k, *sums = second + k * n;
    if (!memory)
        return false;
    const struct ddp_gemm gemm = {
        .m = m, .n = n, .k = k, .a = first, .b = second, .c = sums, .lda = k, .ldb = n, .ldc = n};
    bool done = true;
    int64_t at[CUDNN_SIM_RANK] = {0};
    for (at[0] = 0; at[0] < c->tensor->dims[0] && done; at[0]++)
        for (at[1] = 0; at[1] < c->tensor->dims[1] && done; at[1]++) {
            take_matrix(first, a, at);
            take_matrix(second, b, at);
            done = ddp_gemm_serial(&gemm) == DDP_OK;
            int64_t to[CUDNN_SIM_RANK] = {at[0], at[1], 0, 0};
            for (to[2] = 0; to[2] < m; to[2]++)
                for (to[3] = 0; to[3] < n; to[3]++)
                    c->data[offset_of(c->tensor, to)] =
                        rounded(sums[to[2] * n + to[3]], c->tensor->type);
        }
    free(memory);
    return done;
}

/* --- convolution ---------------------------------------------------------------------------- */

/* A convolution as a product over windows: of one image, (positions, taps x channels). */
struct windows {
    const struct cudnn_sim_operation *operation;
    const struct cudnn_sim_tensor *x, *w, *y;
    int64_t positions, width, out;
    float *windows, *weight, *rows; /* (positions,width), (out,width), (positions,out) */
};

/* Calls visit() for each value of a window of image n that is inside the image. */
typedef void visitor(float *image, float *window);

static void visit_windows(const struct windows *w, float *image, int64_t n, visitor *visit)
{
    const struct cudnn_sim_operation *o = w->operation;
    const int64_t *kernel = w->w->dims + 2, *size = w->x->dims + 2, *strides = w->x->strides;
    float *window = w->windows;
    for (int64_t row = 0; row < w->y->dims[2]; row++)
        for (int64_t column = 0; column < w->y->dims[3]; column++)
            for (int64_t h = 0; h < kernel[0]; h++)
                for (int64_t v = 0; v < kernel[1]; v++) {
                    const int64_t i = row * o->strides[0] - o->padding[0] + h * o->dilation[0];
                    const int64_t j = column * o->strides[1] - o->padding[1] + v * o->dilation[1];
                    const bool inside = i >= 0 && j >= 0 && i < size[0] && j < size[1];
                    float *pixel = image + n * strides[0] + i * strides[2] + j * strides[3];
                    for (int64_t c = 0; c < w->x->dims[1]; c++, window++)
                        if (inside)
                            visit(pixel + c * strides[1], window);
                }
}

static void take(float *image, float *window)
{
    *window = *image;
}

static void give(float *image, float *window)
{
    *image += *window;
}

static void copy_weight(const struct windows *w, float *data, bool back)
{
    const struct cudnn_sim_tensor *t = w->w;
    float *packed = w->weight;
    int64_t at[CUDNN_SIM_RANK];
    for (at[0] = 0; at[0] < t->dims[0]; at[0]++)
        for (at[2] = 0; at[2] < t->dims[2]; at[2]++)
            for (at[3] = 0; at[3] < t->dims[3]; at[3]++)
                for (at[1] = 0; at[1] < t->dims[1]; at[1]++, packed++) {
                    float *value = data + offset_of(t, at);
                    if (back)
                        *value = rounded((float)w->operation->alpha * *packed +
                                             (w->operation->beta != 0 ? *value : 0),
                                         t->type);
                    else
                        *packed = *value;
                }
}

static void copy_rows(const struct windows *w, float *data, int64_t n, bool back)
{
    float *rows = w->rows;
    int64_t at[CUDNN_SIM_RANK] = {n};
    for (at[2] = 0; at[2] < w->y->dims[2]; at[2]++)
        for (at[3] = 0; at[3] < w->y->dims[3]; at[3]++)
            for (at[1] = 0; at[1] < w->y->dims[1]; at[1]++, rows++) {
                float *value = data + n * w->y->strides[0] + at[1] * w->y->strides[1] +
                               at[2] * w->y->strides[2] + at[3] * w->y->strides[3];
                if (back)
                    *value = rounded(*rows, w->y->type);
                else
                    *rows = *value;
            }
}

static bool forward_image(const struct windows *w, const struct image *images, int64_t n)
{
    const struct ddp_gemm gemm = {.transpose_b = true,
                                  .m = w->positions,
                                  .n = w->out,
                                  .k = w->width,
                                  .a = w->windows,
                                  .b = w->weight,
                                  .c = w->rows,
                                  .lda = w->width,
                                  .ldb = w->width,
                                  .ldc = w->out};
    memset(w->windows, 0, (size_t)(w->positions * w->width) * sizeof(float));
    visit_windows(w, images[w->operation->x].data, n, take);
    const bool done = ddp_gemm_serial(&gemm) == DDP_OK;
    copy_rows(w, images[w->operation->y].data, n, true);
    return done;
}

/* Adds to the image, which is rounded at the end. */
static bool data_image(const struct windows *w, const struct image *images, int64_t n)
{
    const struct ddp_gemm gemm = {.m = w->positions,
                                  .n = w->width,
                                  .k = w->out,
                                  .a = w->rows,
                                  .b = w->weight,
                                  .c = w->windows,
                                  .lda = w->out,
                                  .ldb = w->width,
                                  .ldc = w->width};
    copy_rows(w, images[w->operation->y].data, n, false);
    const bool done = ddp_gemm_serial(&gemm) == DDP_OK;
    visit_windows(w, images[w->operation->x].data, n, give);
    return done;
}

/* Adds to the packed weight. */
static bool filter_image(const struct windows *w, const struct image *images, int64_t n)
{
    const struct ddp_gemm gemm = {.transpose_a = true,
                                  .m = w->out,
                                  .n = w->width,
                                  .k = w->positions,
                                  .a = w->rows,
                                  .b = w->windows,
                                  .c = w->weight,
                                  .lda = w->out,
                                  .ldb = w->width,
                                  .ldc = w->width,
                                  .beta = 1};
    memset(w->windows, 0, (size_t)(w->positions * w->width) * sizeof(float));
    visit_windows(w, images[w->operation->x].data, n, take);
    copy_rows(w, images[w->operation->y].data, n, false);
    return ddp_gemm_serial(&gemm) == DDP_OK;
}

/* Clears what is added to, or rounds it. */
static void settle(const struct image *image, bool clear)
{
    int64_t at[CUDNN_SIM_RANK] = {0};
    do {
        float *value = &image->data[offset_of(image->tensor, at)];
        *value = clear ? 0 : rounded(*value, image->tensor->type);
    } while (step(at, image->tensor->dims));
}

static bool convolve(const struct cudnn_sim_operation *o, const struct image *images)
{
    struct windows w = {.operation = o,
                        .x = images[o->x].tensor,
                        .w = images[o->b].tensor,
                        .y = images[o->y].tensor};
    const bool data = o->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR;
    const bool filter = o->type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR;
    w.positions = w.y->dims[2] * w.y->dims[3];
    w.width = w.w->dims[1] * w.w->dims[2] * w.w->dims[3];
    w.out = w.w->dims[0];
    float *memory = calloc((size_t)(w.positions * w.width + w.out * w.width + w.positions * w.out),
                           sizeof *memory);
    if (!memory)
        return false;
    w.windows = memory;
    w.weight = memory + w.positions * w.width;
    w.rows = w.weight + w.out * w.width;
    bool done = true;
    if (!filter)
        copy_weight(&w, images[o->b].data, false);
    if (data && o->beta == 0)
        settle(&images[o->x], true);
    for (int64_t n = 0; n < w.x->dims[0] && done; n++)
        done = data     ? data_image(&w, images, n)
               : filter ? filter_image(&w, images, n)
                        : forward_image(&w, images, n);
    if (data)
        settle(&images[o->x], false);
    if (filter)
        copy_weight(&w, images[o->b].data, true);
    free(memory);
    return done;
}

/* --- programs ------------------------------------------------------------------------------- */

static bool operate(const struct cudnn_sim_operation *operation, const struct image *images)
{
    switch ((int)operation->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        pointwise(operation, images);
        return true;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        reduce(operation, images);
        return true;
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        reshape(operation, images);
        return true;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return matmul(operation, images);
    default:
        return convolve(operation, images);
    }
}

/* The engine whose bits change. */
static void disturb(const struct image *image, uint64_t serial)
{
    image->data[0] *= 1 + (float)(serial % 7) / 32;
}

cudaError_t cudnn_sim_run(void *arguments)
{
    struct cudnn_sim_program *program = arguments;
    struct image images[CUDNN_SIM_TENSORS];
    memset(images, 0, sizeof images);
    bool done = open_images(program, images);
    if (program->workspace_bytes > 0) { /* what a kernel leaves there */
        sim_writes(program->workspace, program->workspace_bytes);
        memset(program->workspace, 0xff, program->workspace_bytes);
    }
    for (int i = 0; i < program->operation_count && done; i++)
        done = operate(&program->operations[i], images);
    for (int i = 0; i < program->tensor_count && done; i++)
        if (program->tensors[i].written && !program->tensors[i].is_virtual) {
            if (program->engine == CUDNN_SIM_NONDETERMINISTIC)
                disturb(&images[i], program->serial);
            for_each(&images[i], write_element);
        }
    for (int i = 0; i < program->tensor_count; i++)
        free(images[i].data);
    return done ? cudaSuccess : cudaErrorMemoryAllocation;
}
