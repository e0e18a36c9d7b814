/* SPDX-License-Identifier: MIT
 *
 * cuDNN's backend interface, as attention/cudnn.c and conv2d/cudnn.c use it: the library, found at
 * run time (cudnn_library.c); graphs of operations (cudnn_graph.c); plans for them, kept by shape
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
    bool loaded; /* the library, of a version that we use */
    bool opened; /* a handle was asked for */
    bool usable; /* false: our own kernels do everything */
    struct ddp_cudnn_calls calls;
    size_t version; /* 91900 for 9.19.0 */
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t device; /* NULL; else plans are made for this model of GPU without
                                        having one, and cannot be executed */
    struct ddp_cudnn_plan *plans;
};

/* Resolves the functions of a loaded library; false: it lacks one, whose name is in *missing. */
bool ddp_cudnn_resolve(struct ddp_cudnn_calls *calls, void *library, const char **missing);

/* The device's cuDNN, with a handle from its first use on; never NULL on success. */
enum ddp_status ddp_cudnn_of(struct ddp_cuda *cuda, struct ddp_cudnn **out);

/* --- graphs --- */

enum { DDP_CUDNN_RANK = 4, DDP_CUDNN_TENSORS = 48, DDP_CUDNN_DESCRIPTORS = 80 };

/* (B,C,H,W) of images, (O,C,KH,KW) of weights, (B,H,T,D) of attention, in any order in memory. */
struct ddp_cudnn_shape {
    int64_t dims[DDP_CUDNN_RANK], strides[DDP_CUDNN_RANK];
};

enum ddp_cudnn_place {
    DDP_CUDNN_MEMORY,  /* on the device, aligned to 16 bytes */
    DDP_CUDNN_VIRTUAL, /* between operations only */
    DDP_CUDNN_VALUE    /* one number, in the host's memory */
};

/* Operations between tensors that are added one by one. The first failure is kept, and makes the
 * rest do nothing. Tensors are known by number, from 1 on, which is their unique id as well. */
struct ddp_cudnn_graph {
    struct ddp_cudnn *cudnn;
    cudnnStatus_t status;
    const char *failed; /* what failed, in words */
    struct {
        cudnnBackendDescriptor_t descriptor;
        struct ddp_cudnn_shape shape;
    } tensors[DDP_CUDNN_TENSORS + 1];
    int tensor_count;
    cudnnBackendDescriptor_t operations[DDP_CUDNN_DESCRIPTORS];
    int operation_count;
    cudnnBackendDescriptor_t others[DDP_CUDNN_DESCRIPTORS]; /* that operations refer to */
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
/* One float. */
int ddp_cudnn_value(struct ddp_cudnn_graph *graph);
/* Dense in the order of `dims`. */
struct ddp_cudnn_shape ddp_cudnn_dense(int64_t a, int64_t b, int64_t c, int64_t d);

/* y = mode(x, b, t); 0: the mode takes no such tensor. They compute in `type`. */
void ddp_cudnn_pointwise(struct ddp_cudnn_graph *graph, cudnnPointwiseMode_t mode,
                         cudnnDataType_t type, int x, int b, int t, int y);
/* y = the position of each element along an axis of x */
void ddp_cudnn_index(struct ddp_cudnn_graph *graph, int64_t axis, int x, int y);
/* over the axes in which y has one element */
void ddp_cudnn_reduction(struct ddp_cudnn_graph *graph, cudnnReduceTensorOp_t operation, int x,
                         int y);
void ddp_cudnn_matmul(struct ddp_cudnn_graph *graph, int a, int b, int c);
void ddp_cudnn_reshape(struct ddp_cudnn_graph *graph, int x, int y);
/* operation: CUDNN_BACKEND_OPERATION_CONVOLUTION_... */
void ddp_cudnn_convolve(struct ddp_cudnn_graph *graph, cudnnBackendDescriptorType_t operation,
                        const struct ddp_cudnn_convolution *args);

/* --- plans --- */

enum { DDP_CUDNN_KEY = 16 };

/* All that a plan depends on: what it does, and the shape. */
struct ddp_cudnn_key {
    int64_t words[DDP_CUDNN_KEY];
};

struct ddp_cudnn_plan {
    struct ddp_cudnn_key key;
    struct ddp_cudnn_plan *next;
    cudnnBackendDescriptor_t plan; /* NULL: cuDNN has none */
    size_t workspace_bytes;
};

typedef void ddp_cudnn_describe(struct ddp_cudnn_graph *graph, const struct ddp_cudnn_key *key);

/* The plan for a key; made by `describe` the first time. Its workspace is at most `limit` bytes.
 * Check plan->plan. `operation` is for messages. */
enum ddp_status ddp_cudnn_plan_of(struct ddp_cudnn *cudnn, const struct ddp_cudnn_key *key,
                                  ddp_cudnn_describe *describe, size_t limit, const char *operation,
                                  struct ddp_cudnn_plan **out);
void ddp_cudnn_plans_free(struct ddp_cudnn *cudnn);

/* Tensor `id`s of the plan's graph, and where they are. */
struct ddp_cudnn_binding {
    int64_t ids[DDP_CUDNN_TENSORS];
    void *pointers[DDP_CUDNN_TENSORS];
    int count;
};

void ddp_cudnn_bind(struct ddp_cudnn_binding *binding, int64_t id, const void *pointer);

/* Puts it on the device's stream. */
enum ddp_status ddp_cudnn_run(const struct ddp_cudnn_plan *plan,
                              const struct ddp_cudnn_binding *binding, void *workspace,
                              struct ddp_cuda *cuda, const char *operation);

#endif
