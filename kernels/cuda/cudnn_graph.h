/* SPDX-License-Identifier: MIT
 *
 * cuDNN's backend interface, as conv2d/cudnn.c uses it: the library, found at run time
 * (cudnn_library.c); graphs of operations (cudnn_graph.c); plans for them, kept by shape
 * (cudnn_plan.c). */
#ifndef DDP_KERNELS_CUDA_CUDNN_GRAPH_H
#define DDP_KERNELS_CUDA_CUDNN_GRAPH_H

#include "kernels/cuda/cuda.h"

#include <cudnn.h>

/* --- the library --- */

/* Its functions that we use. */
struct ddp_cudnn_calls {
    size_t (*version)(void);
    const char *(*error_string)(cudnnStatus_t status);
    cudnnStatus_t (*create)(cudnnHandle_t *handle);
    cudnnStatus_t (*destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
    cudnnStatus_t (*create_descriptor)(cudnnBackendDescriptorType_t type,
                                       cudnnBackendDescriptor_t *descriptor);
    cudnnStatus_t (*destroy_descriptor)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values);
    cudnnStatus_t (*get)(const cudnnBackendDescriptor_t descriptor,
                         cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                         int64_t wanted, int64_t *count, void *values);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack);
};

struct ddp_cudnn_plan;

/* What a device has of cuDNN. */
struct ddp_cudnn {
    bool usable; /* false: our own kernels do everything */
    struct ddp_cudnn_calls calls;
    cudnnHandle_t handle;
    struct ddp_cudnn_plan *plans;
};

/* Makes cuda->cudnn, unless it is there. */
enum ddp_status ddp_cudnn_open(struct ddp_cuda *cuda);

/* --- graphs --- */

enum { DDP_CUDNN_RANK = 4, DDP_CUDNN_TENSORS = 6, DDP_CUDNN_OPERATIONS = 3 };

/* (B,C,H,W) of images, (O,C,KH,KW) of weights, in any order in memory. */
struct ddp_cudnn_shape {
    int64_t dims[DDP_CUDNN_RANK], strides[DDP_CUDNN_RANK];
};

enum ddp_cudnn_place {
    DDP_CUDNN_MEMORY, /* on the device, aligned to 16 bytes */
    DDP_CUDNN_VIRTUAL /* between operations only */
};

/* Operations between tensors that are added one by one. The first failure is kept, and makes the
 * rest do nothing. Tensors are known by number, from 1 on, which is their unique id as well. */
struct ddp_cudnn_graph {
    struct ddp_cudnn *cudnn;
    cudnnStatus_t status;
    const char *failed; /* what failed, in words */
    cudnnBackendDescriptor_t tensors[DDP_CUDNN_TENSORS + 1];
    int tensor_count;
    cudnnBackendDescriptor_t operations[DDP_CUDNN_OPERATIONS];
    int operation_count;
    cudnnBackendDescriptor_t others[DDP_CUDNN_OPERATIONS]; /* that operations refer to */
    int other_count;
};

struct ddp_cudnn_convolution {
    int64_t stride, padding, dilation;
    int image, weight, result; /* x, w, y; dx, w, dy or x, dw, dy in backward passes */
    float beta;                /* of what is overwritten */
};

void ddp_cudnn_graph_begin(struct ddp_cudnn_graph *graph, struct ddp_cudnn *cudnn);
void ddp_cudnn_graph_end(struct ddp_cudnn_graph *graph); /* frees its descriptors */

int ddp_cudnn_tensor(struct ddp_cudnn_graph *graph, const struct ddp_cudnn_shape *shape,
                     cudnnDataType_t type, enum ddp_cudnn_place place);
/* y = mode(x, b); 0: the mode takes no b */
void ddp_cudnn_pointwise(struct ddp_cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int b,
                         int y);
/* operation: CUDNN_BACKEND_OPERATION_CONVOLUTION_... */
void ddp_cudnn_convolve(struct ddp_cudnn_graph *graph, cudnnBackendDescriptorType_t operation,
                        const struct ddp_cudnn_convolution *args);

/* --- plans --- */

typedef void ddp_cudnn_describe(struct ddp_cudnn_graph *graph, const int64_t *words);

enum { DDP_CUDNN_WORDS = 13 };

/* All that a plan depends on: what describes its graph, and the shape. */
struct ddp_cudnn_key {
    ddp_cudnn_describe *describe;
    int64_t words[DDP_CUDNN_WORDS];
};

struct ddp_cudnn_plan {
    struct ddp_cudnn_key key;
    struct ddp_cudnn_plan *next;
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN has none */
};

/* The plan for a key, made the first time; NULL: cuDNN has none. `operation` is for messages. */
enum ddp_status ddp_cudnn_plan_of(struct ddp_cuda *cuda, const struct ddp_cudnn_key *key,
                                  const char *operation, const struct ddp_cudnn_plan **out);

/* Puts it on the device's stream.
 *   arrays  of the graph's first tensors */
enum ddp_status ddp_cudnn_run(const struct ddp_cudnn_plan *plan, const void *const *arrays,
                              int count, struct ddp_cuda *cuda, const char *operation);

#endif
