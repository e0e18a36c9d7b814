/* SPDX-License-Identifier: MIT
 *
 * Convolution on a CUDA device; see conv2d.h. All three passes are products by cublasLt over a
 * matrix of windows, made in pieces of at most the device's spare memory, which the second-level
 * cache of a large GPU holds: tensor cores do bf16, and what is written before a product is read by
 * it without going to memory. The alternative, one kernel that gathers while it multiplies, saves
 * that traffic but has to match cublasLt's products, in each precision and on each GPU; it belongs
 * beside this file, chosen in the two functions at the end.
 *
 *   y        windows of x (positions, taps C) times the weight (O, taps C)^T
 *   dx       windows of dz times the weight (taps O, C); with a stride for each phase of pixels
 *            apart, whose taps are those that meet it, so that nothing is multiplied by zero
 *   dweight  dz^T (O, positions) times windows of x, the pieces added one after another
 *
 * A window of one pixel needs no matrix if the image has the product's type: it is one. Pieces
 * follow from the shape alone. `scratch` holds the weight with its channels last, or the sums of
 * dweight in that order.
 *
 * This is for float32, GPUs below compute capability 8.0 and machines without cuDNN, which does
 * convolutions in bf16 where it is installed (cudnn.c). */
#include "config.h"

#include "kernels/conv2d/conv2d.h"
#include "kernels/bf16.h"

#include "core/log.h"
#include "core/memory.h"
#include "kernels/conv2d/cuda.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/gemm.h"
#include "kernels/conv2d/cudnn.h"
#include "kernels/kernels_cuda.h"

#define PIECE_ROWS 128 /* pieces are whole multiples of this, where they can be */
#define ALIGN      256

static int64_t size_of(enum ddp_dtype type)
{
    return type == DDP_F32 ? 4 : 2;
}

/* Element `at` of an array of `type`. */
static void *element(const void *array, enum ddp_dtype type, int64_t at)
{
    return (char *)(uintptr_t)array + at * size_of(type);
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* Rows of a piece of `rows` that take so many bytes each; 0: not even one fits. */
static int64_t piece_of(int64_t rows, int64_t row_bytes)
{
    int64_t fit = (int64_t)(DDP_CUDA_SPARE_BYTES - 2 * ALIGN) / row_bytes;
    if (fit > PIECE_ROWS)
        fit -= fit % PIECE_ROWS;
    if (fit < 1 || rows <= fit)
        return fit < 1 ? 0 : rows;
    const int64_t even = divide_up(rows, divide_up(rows, fit)); /* none much smaller than others */
    const int64_t whole = divide_up(even, PIECE_ROWS) * PIECE_ROWS;
    return whole < fit ? whole : fit;
}

static enum ddp_status too_large(void)
{
    return ddp_fail(DDP_ERR_UNSUPPORTED, "conv2d: the window is too large for CUDA");
}

/* Is the image itself the matrix of windows? */
static bool is_direct(const struct ddp_conv_windows *w)
{
    const struct ddp_conv_axis *row = &w->row, *column = &w->column;
    return w->type == w->dtype && !w->gate && row->taps == 1 && column->taps == 1 &&
           row->stride == 1 && column->stride == 1 && row->origin == 0 && column->origin == 0 &&
           row->count == row->size && column->count == column->size;
}

static int64_t width_of(const struct ddp_conv_windows *w)
{
    return w->row.taps * w->column.taps * w->channels;
}

/* Rows [first, first + count) of a matrix of windows, wherever they are. */
static enum ddp_status make_windows(struct ddp_conv_windows *w, int64_t first, int64_t count,
                                    const void **matrix, struct ddp_cuda *cuda)
{
    w->first = first;
    w->count = count;
    w->matrix = ddp_cuda_spare(cuda);
    *matrix = is_direct(w) ? element(w->x, w->dtype, first * w->channels) : w->matrix;
    return is_direct(w) ? DDP_OK : ddp_cuda_conv_windows(w, cuda);
}

/* What lies behind a piece's matrix in the spare memory. */
static void *behind(const struct ddp_conv_windows *w, int64_t piece, struct ddp_cuda *cuda)
{
    const size_t bytes = (size_t)(piece * width_of(w) * size_of(w->type));
    return (char *)ddp_cuda_spare(cuda) + (is_direct(w) ? 0 : ddp_align_up(bytes, ALIGN));
}

static int64_t window_bytes(const struct ddp_conv_windows *w)
{
    return is_direct(w) ? 0 : width_of(w) * size_of(w->type);
}

static struct ddp_conv_windows windows_of(const struct ddp_conv2d_shape *shape, const void *x,
                                          enum ddp_dtype dtype, enum ddp_dtype type)
{
    return (struct ddp_conv_windows){
        .row = ddp_conv_axis_of(shape, shape->height, shape->kernel_height),
        .column = ddp_conv_axis_of(shape, shape->width, shape->kernel_width),
        .channels = shape->in,
        .dtype = dtype,
        .x = x,
        .type = type,
    };
}

/* --- forward -------------------------------------------------------------------------------- */

static enum ddp_status pack_weight(const struct ddp_conv2d_forward *args, const void **weight,
                                   struct ddp_cuda *cuda)
{
    const struct ddp_conv2d_shape *shape = &args->shape;
    const int64_t taps = shape->kernel_height * shape->kernel_width;
    *weight = args->weight;
    if (args->compute == DDP_F32 && (taps == 1 || shape->in == 1))
        return DDP_OK; /* it lies right */
    *weight = args->scratch;
    return ddp_cuda_conv_pack(&(struct ddp_conv_taps){.in = shape->in,
                                                      .out = shape->out,
                                                      .all = taps,
                                                      .row_taps = shape->kernel_height,
                                                      .column_taps = shape->kernel_width,
                                                      .row = shape->kernel_width,
                                                      .column = 1,
                                                      .weight = args->weight,
                                                      .type = args->compute,
                                                      .packed = args->scratch},
                              cuda);
}

/* The bias as it is added, of the type of the result: behind the weight in the scratch memory,
 * which has room for a weight of float32 whose outputs are made up to a multiple of 16. */
static enum ddp_status round_bias(const struct ddp_conv2d_forward *args, const void **bias,
                                  struct ddp_cuda *cuda)
{
    const struct ddp_conv2d_shape *s = &args->shape;
    *bias = args->bias;
    if (!args->bias || args->dtype != DDP_BF16)
        return DDP_OK;
    const size_t weight_bytes =
        (size_t)(s->out * s->in * s->kernel_height * s->kernel_width) * sizeof(uint16_t);
    const size_t at = ddp_align_up(weight_bytes, 16);
    const struct ddp_to_bf16 round = {
        .count = s->out, .x = args->bias, .y = (uint16_t *)(void *)((char *)args->scratch + at)};
    *bias = round.y;
    return ddp_cuda_to_bf16(&round, cuda);
}

static enum ddp_status forward_pieces(const struct ddp_conv2d_forward *args, const void *weight,
                                      const void *bias, struct ddp_cuda *cuda)
{
    struct ddp_conv_windows w = windows_of(&args->shape, args->x, args->dtype, args->compute);
    const int64_t rows = args->shape.batch * w.row.count * w.column.count, out = args->shape.out;
    const int64_t piece = is_direct(&w) ? rows : piece_of(rows, window_bytes(&w));
    enum ddp_status status = piece == 0 ? too_large() : DDP_OK;
    for (int64_t first = 0; first < rows && status == DDP_OK; first += piece) {
        struct ddp_cuda_gemm product = {
            .transpose_b = true,
            .m = rows - first < piece ? rows - first : piece,
            .n = out,
            .k = width_of(&w),
            .type = args->compute,
            .b = weight,
            .result = args->dtype,
            .c = element(args->y, args->dtype, first * out),
            .lda = width_of(&w),
            .ldb = width_of(&w),
            .ldc = out,
            .bias = bias,
        };
        status = make_windows(&w, first, product.m, &product.a, cuda);
        if (status == DDP_OK)
            status = ddp_cuda_gemm(&product, cuda, NULL);
        if (status == DDP_OK)
            status = ddp_cuda_activate(product.c, NULL, product.m * out, args->activation,
                                       args->dtype, cuda);
    }
    return status;
}

/* --- backward ------------------------------------------------------------------------------- */

/* Pixels of dx that are stride apart, from (row, column) on, and how they meet dy. */
struct phase {
    int64_t row, column;
    struct ddp_conv_phase down, across;
    struct ddp_conv_windows windows;
};

static struct phase phase_of(const struct ddp_conv2d_backward *args, int64_t row, int64_t column)
{
    const struct ddp_conv2d_shape *shape = &args->shape;
    const struct ddp_conv_windows forward = windows_of(shape, args->x, args->dtype, args->compute);
    struct phase phase = {
        .row = row,
        .column = column,
        .down =
            ddp_conv_phase_of(shape, row, shape->height, forward.row.count, shape->kernel_height),
        .across = ddp_conv_phase_of(shape, column, shape->width, forward.column.count,
                                    shape->kernel_width),
    };
    phase.windows = (struct ddp_conv_windows){
        .row = phase.down.axis,
        .column = phase.across.axis,
        .channels = shape->out,
        .dtype = args->dtype,
        .x = args->dy,
        .gate = args->activation == DDP_ACTIVATION_RELU ? args->y : NULL,
        .type = args->compute,
    };
    return phase;
}

static enum ddp_status pack_phase(const struct ddp_conv2d_backward *args, const struct phase *phase,
                                  struct ddp_cuda *cuda)
{
    const struct ddp_conv2d_shape *shape = &args->shape;
    const struct ddp_conv_taps taps = {
        .in = shape->in,
        .out = shape->out,
        .all = shape->kernel_height * shape->kernel_width,
        .row_taps = phase->down.axis.taps,
        .column_taps = phase->across.axis.taps,
        .first = phase->down.last * shape->kernel_width + phase->across.last,
        .row = -phase->down.every * shape->kernel_width,
        .column = -phase->across.every,
        .by_tap = true,
        .weight = args->weight,
        .type = args->compute,
        .packed = args->scratch,
    };
    return ddp_cuda_conv_pack(&taps, cuda);
}

static enum ddp_status scatter(const struct ddp_conv2d_backward *args, const struct phase *phase,
                               const float *values, int64_t first, int64_t count,
                               struct ddp_cuda *cuda)
{
    const struct ddp_conv2d_shape *shape = &args->shape;
    const struct ddp_conv_scatter pixels = {
        .height = shape->height,
        .width = shape->width,
        .channels = shape->in,
        .stride = shape->stride,
        .row = phase->row,
        .column = phase->column,
        .rows = phase->windows.row.count,
        .columns = phase->windows.column.count,
        .first = first,
        .count = count,
        .values = values,
        .dtype = args->dtype,
        .image = args->dx,
        .add = args->accumulate_dx,
    };
    return ddp_cuda_conv_scatter(&pixels, cuda);
}

static enum ddp_status dx_piece(const struct ddp_conv2d_backward *args, struct phase *phase,
                                int64_t first, int64_t count, float *values, struct ddp_cuda *cuda)
{
    const int64_t in = args->shape.in, width = width_of(&phase->windows);
    struct ddp_cuda_gemm product = {
        .m = count,
        .n = in,
        .k = width,
        .type = args->compute,
        .b = args->scratch,
        .result = values ? DDP_F32 : args->dtype,
        .c = values ? values : element(args->dx, args->dtype, first * in),
        .lda = width,
        .ldb = in,
        .ldc = in,
        .add = !values && args->accumulate_dx,
    };
    enum ddp_status status = make_windows(&phase->windows, first, count, &product.a, cuda);
    if (status == DDP_OK)
        status = ddp_cuda_gemm(&product, cuda, NULL);
    return values && status == DDP_OK ? scatter(args, phase, values, first, count, cuda) : status;
}

static enum ddp_status dx_phase(const struct ddp_conv2d_backward *args, int64_t row, int64_t column,
                                struct ddp_cuda *cuda)
{
    struct phase phase = phase_of(args, row, column);
    struct ddp_conv_windows *w = &phase.windows;
    const int64_t rows = args->shape.batch * w->row.count * w->column.count;
    if (rows == 0)
        return DDP_OK;
    if (width_of(w) == 0) /* no tap meets them */
        return args->accumulate_dx ? DDP_OK : scatter(args, &phase, NULL, 0, rows, cuda);
    const bool apart = args->shape.stride > 1; /* the pixels are not rows of one matrix */
    const int64_t bytes = window_bytes(w) + (apart ? args->shape.in * (int64_t)sizeof(float) : 0);
    const int64_t piece = bytes > 0 ? piece_of(rows, bytes) : rows;
    if (piece == 0)
        return too_large();
    enum ddp_status status = pack_phase(args, &phase, cuda);
    for (int64_t first = 0; first < rows && status == DDP_OK; first += piece)
        status = dx_piece(args, &phase, first, rows - first < piece ? rows - first : piece,
                          apart ? behind(w, piece, cuda) : NULL, cuda);
    return status;
}

/* dz of some positions, as the product takes it. */
static enum ddp_status gradient_of(const struct ddp_conv2d_backward *args, int64_t first,
                                   int64_t count, void *memory, const void **dz,
                                   struct ddp_cuda *cuda)
{
    const bool relu = args->activation == DDP_ACTIVATION_RELU;
    const bool round = args->compute != args->dtype;
    const int64_t at = first * args->shape.out;
    const void *dy = element(args->dy, args->dtype, at);
    *dz = dy;
    if (!relu && !round)
        return DDP_OK;
    *dz = memory;
    const struct ddp_cuda_columns columns = {
        .rows = count,
        .columns = args->shape.out,
        .activation = args->activation,
        .dtype = args->dtype,
        .dy = dy,
        .kept = relu ? element(args->y, args->dtype, at) : NULL,
        .dz = round ? NULL : memory,
        .dz_16 = round ? memory : NULL,
        .type = args->compute,
    };
    return ddp_cuda_columns(&columns, cuda);
}

static enum ddp_status dweight(const struct ddp_conv2d_backward *args, struct ddp_cuda *cuda)
{
    const struct ddp_conv2d_shape *shape = &args->shape;
    struct ddp_conv_windows w = windows_of(shape, args->x, args->dtype, args->compute);
    const int64_t rows = shape->batch * w.row.count * w.column.count, width = width_of(&w);
    const int64_t taps = shape->kernel_height * shape->kernel_width;
    const bool right = taps == 1 || shape->in == 1; /* the order of sums is that of dweight */
    const int64_t bytes = window_bytes(&w) + shape->out * size_of(args->compute);
    const int64_t piece = rows > 0 ? piece_of(rows, bytes) : 1;
    struct ddp_cuda_gemm product = {
        .transpose_a = true,
        .m = shape->out,
        .n = width,
        .type = args->compute,
        .c = right || rows == 0 ? args->dweight : args->scratch,
        .lda = shape->out,
        .ldb = width,
        .ldc = width,
        .add = (right || rows == 0) && args->accumulate_dweight,
    };
    if (rows == 0)
        return ddp_cuda_gemm(&product, cuda, NULL); /* of nothing: zeros, or nothing */
    enum ddp_status status = piece == 0 ? too_large() : DDP_OK;
    for (int64_t first = 0; first < rows && status == DDP_OK; first += piece) {
        product.k = rows - first < piece ? rows - first : piece;
        status = make_windows(&w, first, product.k, &product.b, cuda);
        if (status == DDP_OK)
            status = gradient_of(args, first, product.k, behind(&w, piece, cuda), &product.a, cuda);
        if (status == DDP_OK)
            status = ddp_cuda_gemm(&product, cuda, NULL);
        product.add = true;
    }
    if (right || status)
        return status;
    return ddp_cuda_conv_unpack(args->dweight, args->scratch, DDP_F32, shape->out, taps, shape->in,
                                args->accumulate_dweight, cuda);
}

static enum ddp_status dbias(const struct ddp_conv2d_backward *args, struct ddp_cuda *cuda)
{
    const struct ddp_conv_windows w = windows_of(&args->shape, args->x, args->dtype, args->compute);
    const struct ddp_cuda_columns columns = {
        .rows = args->shape.batch * w.row.count * w.column.count,
        .columns = args->shape.out,
        .activation = args->activation,
        .dtype = args->dtype,
        .dy = args->dy,
        .kept = args->y,
        .sums = args->dbias,
        .add = args->accumulate_dweight,
    };
    return ddp_cuda_columns(&columns, cuda);
}

/* --- the operations -------------------------------------------------------------------------- */

enum ddp_status ddp_cuda_conv2d_forward(const struct ddp_conv2d_forward *args, void *stream)
{
    enum ddp_status status = ddp_conv2d_check_forward(args);
    if (status || args->shape.batch == 0)
        return status;
    if (!args->scratch)
        return ddp_fail(DDP_ERR_INVALID, "conv2d: scratch is NULL");
    struct ddp_cuda *cuda = stream;
    const void *weight, *bias = NULL;
    bool done = false;
    status = ddp_cudnn_conv2d_forward(args, cuda, &done);
    if (status || done)
        return status;
    status = pack_weight(args, &weight, cuda);
    if (status == DDP_OK)
        status = round_bias(args, &bias, cuda);
    return status == DDP_OK ? forward_pieces(args, weight, bias, cuda) : status;
}

enum ddp_status ddp_cuda_conv2d_backward(const struct ddp_conv2d_backward *args, void *stream)
{
    enum ddp_status status = ddp_conv2d_check_backward(args);
    if (status)
        return status;
    if (!args->scratch)
        return ddp_fail(DDP_ERR_INVALID, "conv2d backward: scratch is NULL");
    struct ddp_cuda *cuda = stream;
    bool done = false;
    if (args->dx)
        status = ddp_cudnn_conv2d_dx(args, cuda, &done);
    for (int64_t row = 0; args->dx && !done && row < args->shape.stride; row++)
        for (int64_t column = 0; column < args->shape.stride && status == DDP_OK; column++)
            status = dx_phase(args, row, column, cuda);
    done = false;
    if (args->dweight && status == DDP_OK)
        status = ddp_cudnn_conv2d_dweight(args, cuda, &done);
    if (args->dweight && !done && status == DDP_OK)
        status = dweight(args, cuda);
    if (args->dbias && status == DDP_OK)
        status = dbias(args, cuda);
    return status;
}
