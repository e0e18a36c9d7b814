/* SPDX-License-Identifier: MIT
 *
 * What the real cuDNN refuses: attributes that a descriptor does not have, or of another type or
 * count; and when one is finalized, attributes that are missing and tensors that do not fit. A
 * graph's operations become a program here. */
#include "config.h"

#include "tests/cudasim/cudnn_sim.h"

#include <stdlib.h>
#include <string.h>

/* --- attributes ----------------------------------------------------------------------------- */

struct row {
    cudnnBackendDescriptorType_t descriptor;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int most; /* elements */
    bool required;
};

#define D(name) CUDNN_BACKEND_##name##_DESCRIPTOR
#define A(name) CUDNN_ATTR_##name
#define T(name) CUDNN_TYPE_##name

static const struct row rows[] = {
    {D(TENSOR), A(TENSOR_DATA_TYPE), T(DATA_TYPE), 1, true},
    {D(TENSOR), A(TENSOR_DIMENSIONS), T(INT64), CUDNN_SIM_RANK, true},
    {D(TENSOR), A(TENSOR_STRIDES), T(INT64), CUDNN_SIM_RANK, true},
    {D(TENSOR), A(TENSOR_UNIQUE_ID), T(INT64), 1, true},
    {D(TENSOR), A(TENSOR_BYTE_ALIGNMENT), T(INT64), 1, true},
    {D(TENSOR), A(TENSOR_IS_VIRTUAL), T(BOOLEAN), 1, false},
    {D(TENSOR), A(TENSOR_IS_BY_VALUE), T(BOOLEAN), 1, false},
    {D(POINTWISE), A(POINTWISE_MODE), T(POINTWISE_MODE), 1, true},
    {D(POINTWISE), A(POINTWISE_MATH_PREC), T(DATA_TYPE), 1, true},
    {D(POINTWISE), A(POINTWISE_AXIS), T(INT64), 1, false},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_PW_DESCRIPTOR), T(BACKEND_DESCRIPTOR), 1, true},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_XDESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_BDESC), T(BACKEND_DESCRIPTOR), 1, false},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_TDESC), T(BACKEND_DESCRIPTOR), 1, false},
    {D(OPERATION_POINTWISE), A(OPERATION_POINTWISE_YDESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(REDUCTION), A(REDUCTION_OPERATOR), T(REDUCTION_OPERATOR_TYPE), 1, true},
    {D(REDUCTION), A(REDUCTION_COMP_TYPE), T(DATA_TYPE), 1, true},
    {D(OPERATION_REDUCTION), A(OPERATION_REDUCTION_DESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(OPERATION_REDUCTION), A(OPERATION_REDUCTION_XDESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(OPERATION_REDUCTION), A(OPERATION_REDUCTION_YDESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(MATMUL), A(MATMUL_COMP_TYPE), T(DATA_TYPE), 1, true},
    {D(OPERATION_MATMUL), A(OPERATION_MATMUL_DESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(OPERATION_MATMUL), A(OPERATION_MATMUL_ADESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(OPERATION_MATMUL), A(OPERATION_MATMUL_BDESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(OPERATION_MATMUL), A(OPERATION_MATMUL_CDESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(OPERATION_RESHAPE), A(OPERATION_RESHAPE_XDESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(OPERATION_RESHAPE), A(OPERATION_RESHAPE_YDESC), T(BACKEND_DESCRIPTOR), 1, true},
    {D(CONVOLUTION), A(CONVOLUTION_COMP_TYPE), T(DATA_TYPE), 1, true},
    {D(CONVOLUTION), A(CONVOLUTION_CONV_MODE), T(CONVOLUTION_MODE), 1, true},
    {D(CONVOLUTION), A(CONVOLUTION_SPATIAL_DIMS), T(INT64), 1, true},
    {D(CONVOLUTION), A(CONVOLUTION_DILATIONS), T(INT64), 2, true},
    {D(CONVOLUTION), A(CONVOLUTION_FILTER_STRIDES), T(INT64), 2, true},
    {D(CONVOLUTION), A(CONVOLUTION_PRE_PADDINGS), T(INT64), 2, true},
    {D(CONVOLUTION), A(CONVOLUTION_POST_PADDINGS), T(INT64), 2, true},
#define CONVOLUTION_ROWS(descriptor, pass, image, weight, result)                                  \
    {D(descriptor), A(pass##_CONV_DESC), T(BACKEND_DESCRIPTOR), 1, true},                          \
        {D(descriptor), A(pass##_##image), T(BACKEND_DESCRIPTOR), 1, true},                        \
        {D(descriptor), A(pass##_##weight), T(BACKEND_DESCRIPTOR), 1, true},                       \
        {D(descriptor), A(pass##_##result), T(BACKEND_DESCRIPTOR), 1, true},                       \
        {D(descriptor), A(pass##_ALPHA), T(DOUBLE), 1, true},                                      \
    {                                                                                              \
        D(descriptor), A(pass##_BETA), T(DOUBLE), 1, true                                          \
    }
    CONVOLUTION_ROWS(OPERATION_CONVOLUTION_FORWARD, OPERATION_CONVOLUTION_FORWARD, X, W, Y),
    CONVOLUTION_ROWS(OPERATION_CONVOLUTION_BACKWARD_DATA, OPERATION_CONVOLUTION_BWD_DATA, DX, W,
                     DY),
    CONVOLUTION_ROWS(OPERATION_CONVOLUTION_BACKWARD_FILTER, OPERATION_CONVOLUTION_BWD_FILTER, X, DW,
                     DY),
    {D(OPERATIONGRAPH), A(OPERATIONGRAPH_HANDLE), T(HANDLE), 1, true},
    {D(OPERATIONGRAPH), A(OPERATIONGRAPH_OPS), T(BACKEND_DESCRIPTOR), CUDNN_SIM_OPERATIONS, true},
    {D(ENGINEHEUR), A(ENGINEHEUR_OPERATION_GRAPH), T(BACKEND_DESCRIPTOR), 1, true},
    {D(ENGINEHEUR), A(ENGINEHEUR_MODE), T(HEUR_MODE), 1, true},
    {D(EXECUTION_PLAN), A(EXECUTION_PLAN_HANDLE), T(HANDLE), 1, true},
    {D(EXECUTION_PLAN), A(EXECUTION_PLAN_ENGINE_CONFIG), T(BACKEND_DESCRIPTOR), 1, true},
    {D(VARIANT_PACK), A(VARIANT_PACK_UNIQUE_IDS), T(INT64), CUDNN_SIM_TENSORS, true},
    {D(VARIANT_PACK), A(VARIANT_PACK_DATA_POINTERS), T(VOID_PTR), CUDNN_SIM_TENSORS, true},
    {D(VARIANT_PACK), A(VARIANT_PACK_WORKSPACE), T(VOID_PTR), 1, false},
};

#define ROWS (sizeof rows / sizeof *rows)

size_t cudnn_sim_type_bytes(cudnnBackendAttributeType_t type)
{
    switch ((int)type) {
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_DOUBLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    default:
        return 4;
    }
}

cudnnStatus_t cudnn_sim_check_set(cudnnBackendDescriptorType_t descriptor,
                                  cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t count)
{
    for (size_t i = 0; i < ROWS; i++) {
        if (rows[i].descriptor != descriptor || rows[i].name != name)
            continue;
        if (rows[i].type != type)
            return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
                                    "attribute %d has type %d, not %d", (int)name,
                                    (int)rows[i].type, (int)type);
        if (count < 1 || count > rows[i].most)
            return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: %lld elements",
                                    (int)name, (long long)count);
        return CUDNN_STATUS_SUCCESS;
    }
    return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "descriptor %d has no attribute %d to set",
                            (int)descriptor, (int)name);
}

static cudnnStatus_t check_required(const struct cudnn_sim_descriptor *descriptor)
{
    for (size_t i = 0; i < ROWS; i++)
        if (rows[i].descriptor == descriptor->type && rows[i].required &&
            !cudnn_sim_value_of(descriptor, rows[i].name))
            return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "descriptor %d lacks attribute %d",
                                    (int)descriptor->type, (int)rows[i].name);
    return CUDNN_STATUS_SUCCESS;
}

/* --- tensors -------------------------------------------------------------------------------- */

int64_t cudnn_sim_span(const struct cudnn_sim_tensor *tensor)
{
    int64_t last = 0;
    for (int i = 0; i < CUDNN_SIM_RANK; i++)
        last += (tensor->dims[i] - 1) * tensor->strides[i];
    return last + 1;
}

static void read_tensor(struct cudnn_sim_tensor *tensor,
                        const struct cudnn_sim_descriptor *descriptor)
{
    memset(tensor, 0, sizeof *tensor);
    tensor->id = cudnn_sim_number(descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
    tensor->alignment = cudnn_sim_number(descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0);
    tensor->type = (cudnnDataType_t)cudnn_sim_number(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, 0);
    tensor->is_virtual = cudnn_sim_number(descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0;
    tensor->by_value = cudnn_sim_number(descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0) != 0;
    memcpy(tensor->dims, cudnn_sim_value_of(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS)->data,
           sizeof tensor->dims);
    memcpy(tensor->strides, cudnn_sim_value_of(descriptor, CUDNN_ATTR_TENSOR_STRIDES)->data,
           sizeof tensor->strides);
}

static cudnnStatus_t check_tensor(const struct cudnn_sim_descriptor *descriptor)
{
    struct cudnn_sim_tensor tensor;
    if (cudnn_sim_value_of(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS)->count != CUDNN_SIM_RANK ||
        cudnn_sim_value_of(descriptor, CUDNN_ATTR_TENSOR_STRIDES)->count != CUDNN_SIM_RANK)
        return cudnn_sim_refuse(CUDNN_STATUS_NOT_SUPPORTED, "only tensors of 4 axes are simulated");
    read_tensor(&tensor, descriptor);
    for (int i = 0; i < CUDNN_SIM_RANK; i++)
        if (tensor.dims[i] < 1 || tensor.strides[i] < 1)
            return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM,
                                    "tensor %lld: axis %d has %lld elements", (long long)tensor.id,
                                    i, (long long)tensor.dims[i]);
    if (tensor.alignment < 1 || (tensor.is_virtual && tensor.by_value))
        return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld: alignment, or place",
                                (long long)tensor.id);
    return CUDNN_STATUS_SUCCESS;
}

/* --- programs ------------------------------------------------------------------------------- */

/* The index of a tensor, which is the same for all mentions of its id; -1: no tensor, -2: refused
 */
static int tensor_of(struct cudnn_sim_program *program,
                     const struct cudnn_sim_descriptor *operation, cudnnBackendAttributeName_t name)
{
    const struct cudnn_sim_descriptor *part = cudnn_sim_part(operation, name);
    struct cudnn_sim_tensor tensor;
    if (!part)
        return -1;
    if (part->type != CUDNN_BACKEND_TENSOR_DESCRIPTOR)
        return -2;
    read_tensor(&tensor, part);
    for (int i = 0; i < program->tensor_count; i++)
        if (program->tensors[i].id == tensor.id) {
            const struct cudnn_sim_tensor *known = &program->tensors[i];
            const bool same = memcmp(known->dims, tensor.dims, sizeof tensor.dims) == 0 &&
                              memcmp(known->strides, tensor.strides, sizeof tensor.strides) == 0 &&
                              known->type == tensor.type && known->is_virtual == tensor.is_virtual;
            return same ? i : -2;
        }
    if (program->tensor_count == CUDNN_SIM_TENSORS)
        return -2;
    program->tensors[program->tensor_count] = tensor;
    return program->tensor_count++;
}

static bool fits(const struct cudnn_sim_program *program, int x, int y)
{
    for (int i = 0; x >= 0 && i < CUDNN_SIM_RANK; i++) {
        const int64_t dim = program->tensors[x].dims[i];
        if (dim != 1 && dim != program->tensors[y].dims[i])
            return false;
    }
    return true;
}

/* How many tensors a pointwise mode takes; 0: not simulated. */
static int operands_of(int mode)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
    case CUDNN_POINTWISE_MUL:
    case CUDNN_POINTWISE_SUB:
    case CUDNN_POINTWISE_DIV:
    case CUDNN_POINTWISE_CMP_GE:
        return 2;
    case CUDNN_POINTWISE_EXP:
    case CUDNN_POINTWISE_LOG:
    case CUDNN_POINTWISE_IDENTITY:
    case CUDNN_POINTWISE_RELU_FWD:
    case CUDNN_POINTWISE_GEN_INDEX:
        return 1;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return 3;
    default:
        return 0;
    }
}

static bool read_pointwise(struct cudnn_sim_program *program, struct cudnn_sim_operation *out,
                           const struct cudnn_sim_descriptor *operation)
{
    const struct cudnn_sim_descriptor *how =
        cudnn_sim_part(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    if (how->type != CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
        return false;
    out->mode = (int)cudnn_sim_number(how, CUDNN_ATTR_POINTWISE_MODE, -1);
    out->axis = (int)cudnn_sim_number(how, CUDNN_ATTR_POINTWISE_AXIS, -1);
    out->x = tensor_of(program, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    out->b = tensor_of(program, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    out->t = tensor_of(program, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
    out->y = tensor_of(program, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    if (out->x < 0 || out->y < 0 || out->b < -1 || out->t < -1)
        return false;
    const int operands = 1 + (out->b >= 0) + (out->t >= 0);
    if (operands != operands_of(out->mode))
        return false;
    if (out->mode == CUDNN_POINTWISE_GEN_INDEX && (out->axis < 0 || out->axis >= CUDNN_SIM_RANK))
        return false;
    return fits(program, out->x, out->y) && fits(program, out->b, out->y) &&
           fits(program, out->t, out->y);
}

static bool read_reduction(struct cudnn_sim_program *program, struct cudnn_sim_operation *out,
                           const struct cudnn_sim_descriptor *operation)
{
    const struct cudnn_sim_descriptor *how =
        cudnn_sim_part(operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    out->mode = (int)cudnn_sim_number(how, CUDNN_ATTR_REDUCTION_OPERATOR, -1);
    out->x = tensor_of(program, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
    out->y = tensor_of(program, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
    return how->type == CUDNN_BACKEND_REDUCTION_DESCRIPTOR && out->x >= 0 && out->y >= 0 &&
           fits(program, out->y, out->x);
}

static bool read_matmul(struct cudnn_sim_program *program, struct cudnn_sim_operation *out,
                        const struct cudnn_sim_descriptor *operation)
{
    const struct cudnn_sim_descriptor *how =
        cudnn_sim_part(operation, CUDNN_ATTR_OPERATION_MATMUL_DESC);
    out->x = tensor_of(program, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
    out->b = tensor_of(program, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
    out->y = tensor_of(program, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
    if (how->type != CUDNN_BACKEND_MATMUL_DESCRIPTOR || out->x < 0 || out->b < 0 || out->y < 0)
        return false;
    const int64_t *a = program->tensors[out->x].dims, *b = program->tensors[out->b].dims;
    const int64_t *c = program->tensors[out->y].dims;
    return a[0] == c[0] && b[0] == c[0] && a[1] == c[1] && b[1] == c[1] && a[2] == c[2] &&
           b[3] == c[3] && a[3] == b[2];
}

static bool read_reshape(struct cudnn_sim_program *program, struct cudnn_sim_operation *out,
                         const struct cudnn_sim_descriptor *operation)
{
    out->x = tensor_of(program, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
    out->y = tensor_of(program, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    return out->x >= 0 && out->y >= 0 &&
           cudnn_sim_span(&program->tensors[out->x]) == cudnn_sim_span(&program->tensors[out->y]);
}

static void read_pair(int64_t pair[2], const struct cudnn_sim_descriptor *descriptor,
                      cudnnBackendAttributeName_t name)
{
    memcpy(pair, cudnn_sim_value_of(descriptor, name)->data, 2 * sizeof *pair);
}

static double real_of(const struct cudnn_sim_descriptor *descriptor,
                      cudnnBackendAttributeName_t name)
{
    double value;
    memcpy(&value, cudnn_sim_value_of(descriptor, name)->data, sizeof value);
    return value;
}

static bool fits_windows(const struct cudnn_sim_program *program,
                         const struct cudnn_sim_operation *c)
{
    const int64_t *image = program->tensors[c->x].dims, *weight = program->tensors[c->b].dims;
    const int64_t *result = program->tensors[c->y].dims;
    for (int i = 0; i < 2; i++) {
        const int64_t span = (weight[2 + i] - 1) * c->dilation[i] + 1;
        const int64_t room = image[2 + i] + 2 * c->padding[i] - span;
        if (c->strides[i] < 1 || room < 0 || result[2 + i] != room / c->strides[i] + 1)
            return false;
    }
    return image[0] == result[0] && image[1] == weight[1] && weight[0] == result[1];
}

static bool read_convolution(struct cudnn_sim_program *program, struct cudnn_sim_operation *out,
                             const struct cudnn_sim_descriptor *operation,
                             const cudnnBackendAttributeName_t names[6])
{
    const struct cudnn_sim_descriptor *how = cudnn_sim_part(operation, names[0]);
    if (how->type != CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR ||
        cudnn_sim_number(how, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0) != 2 ||
        cudnn_sim_number(how, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 0) != CUDNN_CROSS_CORRELATION)
        return false;
    read_pair(out->strides, how, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    read_pair(out->padding, how, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    read_pair(out->dilation, how, CUDNN_ATTR_CONVOLUTION_DILATIONS);
    out->x = tensor_of(program, operation, names[1]);
    out->b = tensor_of(program, operation, names[2]);
    out->y = tensor_of(program, operation, names[3]);
    out->alpha = real_of(operation, names[4]);
    out->beta = real_of(operation, names[5]);
    return out->x >= 0 && out->b >= 0 && out->y >= 0 && fits_windows(program, out);
}

static bool read_operation(struct cudnn_sim_program *program, struct cudnn_sim_operation *out,
                           const struct cudnn_sim_descriptor *operation)
{
#define NAMES(pass, image, weight, result)                                                         \
    (const cudnnBackendAttributeName_t[]){A(pass##_CONV_DESC), A(pass##_##image),                  \
                                          A(pass##_##weight),  A(pass##_##result),                 \
                                          A(pass##_ALPHA),     A(pass##_BETA)}
    memset(out, 0, sizeof *out);
    out->type = operation->type;
    out->x = out->b = out->t = out->y = -1;
    switch ((int)operation->type) {
    case D(OPERATION_POINTWISE):
        return read_pointwise(program, out, operation);
    case D(OPERATION_REDUCTION):
        return read_reduction(program, out, operation);
    case D(OPERATION_MATMUL):
        return read_matmul(program, out, operation);
    case D(OPERATION_RESHAPE):
        return read_reshape(program, out, operation);
    case D(OPERATION_CONVOLUTION_FORWARD):
        return read_convolution(program, out, operation,
                                NAMES(OPERATION_CONVOLUTION_FORWARD, X, W, Y));
    case D(OPERATION_CONVOLUTION_BACKWARD_DATA):
        return read_convolution(program, out, operation,
                                NAMES(OPERATION_CONVOLUTION_BWD_DATA, DX, W, DY));
    case D(OPERATION_CONVOLUTION_BACKWARD_FILTER):
        return read_convolution(program, out, operation,
                                NAMES(OPERATION_CONVOLUTION_BWD_FILTER, X, DW, DY));
    default:
        return false;
    }
}

/* What an operation reads and writes; what is between operations is written before it is read. */
static bool mark(struct cudnn_sim_program *program, const struct cudnn_sim_operation *operation)
{
    const bool dx = operation->type == D(OPERATION_CONVOLUTION_BACKWARD_DATA);
    const bool dw = operation->type == D(OPERATION_CONVOLUTION_BACKWARD_FILTER);
    const int written = dx ? operation->x : dw ? operation->b : operation->y;
    const int all[] = {operation->x, operation->b, operation->t, operation->y};
    for (int i = 0; i < 4; i++) {
        struct cudnn_sim_tensor *tensor = all[i] >= 0 ? &program->tensors[all[i]] : NULL;
        if (!tensor || (all[i] == written && operation->beta == 0))
            continue;
        if (tensor->is_virtual && !tensor->written)
            return false;
        tensor->read |= !tensor->written;
    }
    struct cudnn_sim_tensor *result = &program->tensors[written];
    if (result->written || result->by_value)
        return false;
    return result->written = true;
}

static cudnnStatus_t make_program(struct cudnn_sim_descriptor *graph)
{
    const struct cudnn_sim_value *operations =
        cudnn_sim_value_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
    struct cudnn_sim_program *program = calloc(1, sizeof *program);
    if (!program)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    for (int64_t i = 0; i < operations->count; i++) {
        struct cudnn_sim_operation *operation = &program->operations[program->operation_count++];
        cudnnBackendDescriptor_t part;
        memcpy(&part, (char *)operations->data + (size_t)i * sizeof part, sizeof part);
        if (!read_operation(program, operation, part) || !mark(program, operation)) {
            free(program);
            return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH,
                                    "operation %lld of the graph: tensors that do not fit",
                                    (long long)i);
        }
    }
    graph->program = program;
    return CUDNN_STATUS_SUCCESS;
}

/* An operation alone: its tensors fit. */
static cudnnStatus_t check_operation(const struct cudnn_sim_descriptor *descriptor)
{
    struct cudnn_sim_program *program = calloc(1, sizeof *program);
    if (!program)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    const bool right = read_operation(program, &program->operations[0], descriptor);
    free(program);
    return right ? CUDNN_STATUS_SUCCESS
                 : cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "operation %d: tensors that do not fit",
                                    (int)descriptor->type);
}

/* --- all ------------------------------------------------------------------------------------ */

cudnnStatus_t cudnn_sim_check(struct cudnn_sim_descriptor *descriptor)
{
    cudnnStatus_t status = check_required(descriptor);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    switch ((int)descriptor->type) {
    case D(TENSOR):
        return check_tensor(descriptor);
    case D(OPERATION_POINTWISE):
    case D(OPERATION_REDUCTION):
    case D(OPERATION_MATMUL):
    case D(OPERATION_RESHAPE):
    case D(OPERATION_CONVOLUTION_FORWARD):
    case D(OPERATION_CONVOLUTION_BACKWARD_DATA):
    case D(OPERATION_CONVOLUTION_BACKWARD_FILTER):
        return check_operation(descriptor);
    case D(OPERATIONGRAPH):
        return make_program(descriptor);
    case D(EXECUTION_PLAN):
        return cudnn_sim_make_plan(descriptor);
    case D(VARIANT_PACK):
        return cudnn_sim_value_of(descriptor, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->count ==
                       cudnn_sim_value_of(descriptor, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->count
                   ? CUDNN_STATUS_SUCCESS
                   : CUDNN_STATUS_BAD_PARAM;
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}
