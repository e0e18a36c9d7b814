/* SPDX-License-Identifier: MIT
 *
 * Graphs of cuDNN's operations; see cudnn_graph.h. Sums are in float32 everywhere; what is stored
 * has its tensor's type. */
#include "config.h"

#include "kernels/cuda/cudnn_graph.h"

#include <assert.h>
#include <string.h>

#define ALIGNMENT 16

struct attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *values;
};

void ddp_cudnn_graph_begin(struct ddp_cudnn_graph *graph, struct ddp_cudnn *cudnn)
{
    memset(graph, 0, sizeof *graph);
    graph->cudnn = cudnn;
}

void ddp_cudnn_graph_end(struct ddp_cudnn_graph *graph)
{
    const struct ddp_cudnn_calls *calls = &graph->cudnn->calls;
    for (int i = 0; i < graph->operation_count; i++)
        (void)calls->destroy_descriptor(graph->operations[i]);
    for (int i = 0; i < graph->other_count; i++)
        (void)calls->destroy_descriptor(graph->others[i]);
    for (int i = 1; i <= graph->tensor_count; i++)
        (void)calls->destroy_descriptor(graph->tensors[i]);
    graph->operation_count = graph->other_count = graph->tensor_count = 0;
}

/* A finalized descriptor with these attributes; those without values are left out. NULL on failure,
 * which the graph keeps. */
static cudnnBackendDescriptor_t describe(struct ddp_cudnn_graph *graph, const char *what,
                                         cudnnBackendDescriptorType_t type,
                                         const struct attribute *attributes, int count)
{
    const struct ddp_cudnn_calls *calls = &graph->cudnn->calls;
    cudnnBackendDescriptor_t descriptor = NULL;
    if (graph->status != CUDNN_STATUS_SUCCESS)
        return NULL;
    graph->status = calls->create_descriptor(type, &descriptor);
    for (int i = 0; i < count && graph->status == CUDNN_STATUS_SUCCESS; i++)
        if (attributes[i].values)
            graph->status = calls->set(descriptor, attributes[i].name, attributes[i].type,
                                       attributes[i].count, attributes[i].values);
    if (graph->status == CUDNN_STATUS_SUCCESS)
        graph->status = calls->finalize(descriptor);
    if (graph->status == CUDNN_STATUS_SUCCESS)
        return descriptor;
    graph->failed = what;
    if (descriptor)
        (void)calls->destroy_descriptor(descriptor);
    return NULL;
}

#define DESCRIBE(graph, what, type, attributes)                                                    \
    describe(graph, what, type, attributes, (int)(sizeof(attributes) / sizeof *(attributes)))

static void add_operation(struct ddp_cudnn_graph *graph, cudnnBackendDescriptor_t operation)
{
    if (!operation)
        return;
    assert(graph->operation_count < DDP_CUDNN_OPERATIONS);
    graph->operations[graph->operation_count++] = operation;
}

static cudnnBackendDescriptor_t keep(struct ddp_cudnn_graph *graph, cudnnBackendDescriptor_t other)
{
    if (other) {
        assert(graph->other_count < DDP_CUDNN_OPERATIONS);
        graph->others[graph->other_count++] = other;
    }
    return other;
}

/* --- tensors -------------------------------------------------------------------------------- */

int ddp_cudnn_tensor(struct ddp_cudnn_graph *graph, const struct ddp_cudnn_shape *shape,
                     cudnnDataType_t type, enum ddp_cudnn_place place)
{
    assert(graph->tensor_count < DDP_CUDNN_TENSORS);
    const int number = graph->tensor_count + 1;
    const int64_t id = number, alignment = ALIGNMENT;
    const bool yes = true;
    const struct attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DDP_CUDNN_RANK, shape->dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DDP_CUDNN_RANK, shape->strides},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
        {CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
         place == DDP_CUDNN_VIRTUAL ? &yes : NULL},
    };
    cudnnBackendDescriptor_t descriptor =
        DESCRIBE(graph, "a tensor", CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes);
    if (!descriptor)
        return 0;
    graph->tensors[number] = descriptor;
    return graph->tensor_count = number;
}

/* Of an attribute that is a tensor; NULL for tensor 0. */
static const cudnnBackendDescriptor_t *tensor(const struct ddp_cudnn_graph *graph, int number)
{
    return number ? &graph->tensors[number] : NULL;
}

/* --- operations ----------------------------------------------------------------------------- */

void ddp_cudnn_pointwise(struct ddp_cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int b,
                         int y)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const struct attribute how[] = {
        {CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode},
        {CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type},
    };
    const cudnnBackendDescriptor_t pointwise =
        keep(graph, DESCRIBE(graph, "a pointwise mode", CUDNN_BACKEND_POINTWISE_DESCRIPTOR, how));
    const struct attribute attributes[] = {
        {CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
         &pointwise},
        {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensor(graph, x)},
        {CUDNN_ATTR_OPERATION_POINTWISE_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensor(graph, b)},
        {CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensor(graph, y)},
    };
    add_operation(graph, DESCRIBE(graph, "a pointwise operation",
                                  CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, attributes));
}

/* What the three passes call the same things. */
struct convolution_names {
    cudnnBackendAttributeName_t alpha, beta, convolution, image, weight, result;
};

static struct convolution_names names_of(cudnnBackendDescriptorType_t operation)
{
    static const struct convolution_names forward = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
    };
    static const struct convolution_names data = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
    };
    static const struct convolution_names filter = {
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
    };
    return operation == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR         ? forward
           : operation == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR ? data
                                                                                       : filter;
}

static cudnnBackendDescriptor_t convolution_of(struct ddp_cudnn_graph *graph,
                                               const struct ddp_cudnn_convolution *args)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t spatial = 2, strides[] = {args->stride, args->stride};
    const int64_t padding[] = {args->padding, args->padding};
    const int64_t dilation[] = {args->dilation, args->dilation};
    const struct attribute attributes[] = {
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, padding},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, padding},
    };
    return keep(graph,
                DESCRIBE(graph, "a convolution", CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes));
}

void ddp_cudnn_convolve(struct ddp_cudnn_graph *graph, cudnnBackendDescriptorType_t operation,
                        const struct ddp_cudnn_convolution *args)
{
    const struct convolution_names names = names_of(operation);
    const cudnnBackendDescriptor_t convolution = convolution_of(graph, args);
    const float one = 1; /* of the type of the products: a double is read as a float, which is 0 */
    const struct attribute attributes[] = {
        {names.convolution, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &convolution},
        {names.image, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensor(graph, args->image)},
        {names.weight, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensor(graph, args->weight)},
        {names.result, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, tensor(graph, args->result)},
        {names.alpha, CUDNN_TYPE_FLOAT, 1, &one},
        {names.beta, CUDNN_TYPE_FLOAT, 1, &args->beta},
    };
    add_operation(graph, DESCRIBE(graph, "a convolution", operation, attributes));
}
