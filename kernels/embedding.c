/* SPDX-License-Identifier: MIT
 *
 * Embedding on the CPU; see embedding.h. Backward hands each task a range of columns of all rows:
 * no two threads meet in one element, and rows are added in their order. */
#include "config.h"

#include "kernels/embedding.h"

#include "core/log.h"
#include "kernels/cpu/cpu.h"

#define ELEMENTS 16384 /* of a forward task, about */
#define COLUMNS  64    /* of a backward task */

static enum ddp_status check(const char *name, int64_t batch, int64_t length, int64_t features,
                             int64_t vocabulary, const int32_t *tokens)
{
    if (batch < 0 || length < 0 || features < 0 || vocabulary < 0)
        return ddp_fail(
            DDP_ERR_INVALID, "%s: negative size (%lld x %lld tokens, %lld features, %lld rows)",
            name, (long long)batch, (long long)length, (long long)features, (long long)vocabulary);
    const int64_t count = batch * length;
    if (count > 0 && !tokens)
        return ddp_fail(DDP_ERR_INVALID, "%s: the tokens are NULL", name);
    for (int64_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= vocabulary)
            return ddp_fail(DDP_ERR_INVALID,
                            "%s: token %d in row %lld, place %lld, but the vocabulary has %lld",
                            name, (int)tokens[i], (long long)(i / length), (long long)(i % length),
                            (long long)vocabulary);
    return DDP_OK;
}

static enum ddp_status check_positions(const char *name, int64_t length, int64_t positions)
{
    if (length > positions)
        return ddp_fail(DDP_ERR_INVALID, "%s: %lld tokens in a row, but %lld positions", name,
                        (long long)length, (long long)positions);
    return DDP_OK;
}

/* --- forward ---------------------------------------------------------------------------------- */

DDP_MULTIVERSION
static void look_up_rows(const void *arg, int64_t begin, int64_t end)
{
    const struct ddp_embedding_forward *args = arg;
    const int64_t n = args->features;
    for (int64_t row = begin; row < end; row++) {
        const float *token = args->wte + args->tokens[row] * n;
        float *restrict y = (float *)args->y + row * n;
        if (!args->wpe) {
            memcpy(y, token, (size_t)n * sizeof *y);
            continue;
        }
        const float *place = args->wpe + row % args->length * n;
        for (int64_t j = 0; j < n; j++)
            y[j] = token[j] + place[j];
    }
}

static enum ddp_status check_forward(const struct ddp_embedding_forward *args)
{
    enum ddp_status status = check("embedding", args->batch, args->length, args->features,
                                   args->vocabulary, args->tokens);
    if (status == DDP_OK && args->wpe)
        status = check_positions("embedding", args->length, args->positions);
    if (status)
        return status;
    if (args->batch > 0 && args->length > 0 && args->features > 0 && (!args->wte || !args->y))
        return ddp_fail(DDP_ERR_INVALID, "embedding: wte or y is NULL");
    return ddp_cpu_check_dtype("embedding", args->dtype);
}

enum ddp_status ddp_embedding_forward(const struct ddp_embedding_forward *args, void *stream)
{
    enum ddp_status status = check_forward(args);
    if (status || args->features == 0)
        return status;
    ddp_blocks_run(ddp_blocks_cut(args->batch * args->length, ELEMENTS / args->features + 1, 1),
                   look_up_rows, args, stream);
    return DDP_OK;
}

enum ddp_status ddp_embedding_forward_reference(const struct ddp_embedding_forward *args,
                                                void *stream)
{
    float *y = args->y;
    (void)stream;
    enum ddp_status status = check_forward(args);
    if (status)
        return status;
    const int64_t n = args->features;
    for (int64_t row = 0; row < args->batch * args->length; row++)
        for (int64_t j = 0; j < n; j++) {
            float place = args->wpe ? args->wpe[row % args->length * n + j] : 0;
            y[row * n + j] = args->wte[args->tokens[row] * n + j] + place;
        }
    return DDP_OK;
}

/* --- backward --------------------------------------------------------------------------------- */

static void clear_columns(float *table, int64_t rows, int64_t n, int64_t begin, int64_t count)
{
    for (int64_t i = 0; i < rows; i++)
        memset(table + i * n + begin, 0, (size_t)count * sizeof *table);
}

DDP_MULTIVERSION
static void add_columns(const struct ddp_embedding_backward *args, int64_t begin, int64_t count)
{
    const int64_t n = args->features, rows = args->batch * args->length;
    for (int64_t row = 0; row < rows; row++) {
        const float *dy = (const float *)args->dy + row * n + begin;
        if (args->dwte) {
            float *restrict token = args->dwte + args->tokens[row] * n + begin;
            for (int64_t j = 0; j < count; j++)
                token[j] += dy[j];
        }
        if (args->dwpe) {
            float *restrict place = args->dwpe + row % args->length * n + begin;
            for (int64_t j = 0; j < count; j++)
                place[j] += dy[j];
        }
    }
}

static void backward_task(void *arg, size_t index)
{
    const struct ddp_embedding_backward *args = arg;
    const int64_t begin = (int64_t)index * COLUMNS, left = args->features - begin;
    const int64_t count = left < COLUMNS ? left : COLUMNS;
    if (args->dwte && !args->accumulate_dwte)
        clear_columns(args->dwte, args->vocabulary, args->features, begin, count);
    if (args->dwpe && !args->accumulate_dwpe)
        clear_columns(args->dwpe, args->positions, args->features, begin, count);
    add_columns(args, begin, count);
}

static enum ddp_status check_backward(const struct ddp_embedding_backward *args)
{
    enum ddp_status status = check("embedding backward", args->batch, args->length, args->features,
                                   args->vocabulary, args->tokens);
    if (status == DDP_OK && args->dwpe)
        status = check_positions("embedding backward", args->length, args->positions);
    if (status)
        return status;
    if (args->batch > 0 && args->length > 0 && args->features > 0 && !args->dy)
        return ddp_fail(DDP_ERR_INVALID, "embedding backward: dy is NULL");
    return ddp_cpu_check_dtype("embedding", args->dtype);
}

enum ddp_status ddp_embedding_backward(const struct ddp_embedding_backward *args, void *stream)
{
    enum ddp_status status = check_backward(args);
    if (status)
        return status;
    struct ddp_embedding_backward copy = *args;
    ddp_pool_run(ddp_stream_pool(stream), (size_t)((args->features + COLUMNS - 1) / COLUMNS),
                 backward_task, &copy);
    return DDP_OK;
}

enum ddp_status ddp_embedding_backward_reference(const struct ddp_embedding_backward *args,
                                                 void *stream)
{
    const float *dy = args->dy;
    (void)stream;
    enum ddp_status status = check_backward(args);
    if (status)
        return status;
    const int64_t n = args->features;
    for (int64_t i = 0; args->dwte && !args->accumulate_dwte && i < args->vocabulary * n; i++)
        args->dwte[i] = 0;
    for (int64_t i = 0; args->dwpe && !args->accumulate_dwpe && i < args->positions * n; i++)
        args->dwpe[i] = 0;
    for (int64_t row = 0; row < args->batch * args->length; row++)
        for (int64_t j = 0; j < n; j++) {
            if (args->dwte)
                args->dwte[args->tokens[row] * n + j] += dy[row * n + j];
            if (args->dwpe)
                args->dwpe[row % args->length * n + j] += dy[row * n + j];
        }
    return DDP_OK;
}
