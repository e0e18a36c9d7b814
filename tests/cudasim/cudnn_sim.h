/* SPDX-License-Identifier: MIT
 *
 * Inside the simulated cuDNN: what its parts share. cudnn.c has handles, descriptors and their
 * attributes; cudnn_check.c what the real library refuses when a descriptor is finalized;
 * cudnn_engines.c engines and plans; cudnn_run.c the operations themselves. */
#ifndef DDP_TESTS_CUDASIM_CUDNN_SIM_H
#define DDP_TESTS_CUDASIM_CUDNN_SIM_H

#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CUDNN_SIM_RANK = 4, CUDNN_SIM_TENSORS = 64, CUDNN_SIM_OPERATIONS = 64 };

/* Engines, by index. */
enum {
    CUDNN_SIM_REFUSING,         /* makes no plan, though it is proposed */
    CUDNN_SIM_NONDETERMINISTIC, /* says so, and gives other bits every time */
    CUDNN_SIM_EXACT,
    CUDNN_SIM_ENGINES
};

/* An attribute that is set. */
struct cudnn_sim_value {
    struct cudnn_sim_value *next;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    void *data; /* owned */
};

struct cudnn_sim_tensor {
    int64_t id, dims[CUDNN_SIM_RANK], strides[CUDNN_SIM_RANK], alignment;
    cudnnDataType_t type;
    bool is_virtual, by_value;
    bool read, written; /* by operations, the first of which reads it: from memory */
    void *memory;       /* when it runs */
    float value;
};

struct cudnn_sim_operation {
    cudnnBackendDescriptorType_t type;
    int mode, axis; /* of a pointwise operation or reduction */
    int x, b, t, y; /* tensors by index, -1: none; a convolution's image, weight and result */
    int64_t strides[2], padding[2], dilation[2];
    double alpha, beta;
};

/* A graph of operations in bytes, which an enqueued execution has a copy of. */
struct cudnn_sim_program {
    int tensor_count, operation_count, engine;
    uint64_t serial; /* of the execution */
    struct cudnn_sim_tensor tensors[CUDNN_SIM_TENSORS];
    struct cudnn_sim_operation operations[CUDNN_SIM_OPERATIONS];
    void *workspace;
    size_t workspace_bytes;
};

struct cudnn_sim_descriptor {
    uint32_t magic;
    cudnnBackendDescriptorType_t type;
    int references;
    bool finalized;
    struct cudnn_sim_value *values;
    struct cudnn_sim_program *program; /* of a graph and a plan, once finalized; owned */
    int engine;                        /* of an engine, a configuration */
};

/* The descriptor behind a handle; NULL for what is none. */
struct cudnn_sim_descriptor *cudnn_sim_descriptor_of(cudnnBackendDescriptor_t handle);
void cudnn_sim_release(struct cudnn_sim_descriptor *descriptor);

/* An attribute that is set; NULL: it is not. */
const struct cudnn_sim_value *cudnn_sim_value_of(const struct cudnn_sim_descriptor *descriptor,
                                                 cudnnBackendAttributeName_t name);
int64_t cudnn_sim_number(const struct cudnn_sim_descriptor *descriptor,
                         cudnnBackendAttributeName_t name, int64_t otherwise);
/* The descriptor that an attribute names; NULL: none. */
struct cudnn_sim_descriptor *cudnn_sim_part(const struct cudnn_sim_descriptor *descriptor,
                                            cudnnBackendAttributeName_t name);

/* Says why a call is refused, on stderr, where CUDNN_LOGLEVEL_DBG is set; returns the status. */
cudnnStatus_t cudnn_sim_refuse(cudnnStatus_t status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether an attribute may be set on such a descriptor, with this type and count. */
cudnnStatus_t cudnn_sim_check_set(cudnnBackendDescriptorType_t descriptor,
                                  cudnnBackendAttributeName_t name,
                                  cudnnBackendAttributeType_t type, int64_t count);
/* Of one element. */
size_t cudnn_sim_type_bytes(cudnnBackendAttributeType_t type);

/* Whether a descriptor is complete and right; a graph's program is made. */
cudnnStatus_t cudnn_sim_check(struct cudnn_sim_descriptor *descriptor);

/* Attributes that are asked for rather than set. */
cudnnStatus_t cudnn_sim_get(struct cudnn_sim_descriptor *descriptor,
                            cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                            int64_t requested, int64_t *count, void *elements);
cudnnStatus_t cudnn_sim_make_plan(struct cudnn_sim_descriptor *plan);

/* Elements from a tensor's first to behind its last. */
int64_t cudnn_sim_span(const struct cudnn_sim_tensor *tensor);

/* How the plugin loads it. */
void *cudasim_dlopen(const char *name);
void *cudasim_dlsym(void *library, const char *name);

/* The operation: a sim_operation on a struct cudnn_sim_program. */
cudaError_t cudnn_sim_run(void *program);

#endif
