/* SPDX-License-Identifier: MIT
 *
 * The simulated cuDNN: handles, descriptors and their attributes, and how the plugin finds it. */
#include "config.h"

#include "tests/cudasim/cudnn_sim.h"

#include "tests/cudasim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VISIBLE __attribute__((visibility("default")))

enum { DESCRIPTOR_MAGIC = 0x644e4e64, HANDLE_MAGIC = 0x644e4e68, RELEASE = 91900 };

struct cudnnContext {
    uint32_t magic;
    cudaStream_t stream;
};

cudnnStatus_t cudnn_sim_refuse(cudnnStatus_t status, const char *format, ...)
{
    const char *level = getenv("CUDNN_LOGLEVEL_DBG");
    if (level && atoi(level) > 0) {
        va_list arguments;
        fputs("cudasim: cuDNN: ", stderr);
        va_start(arguments, format);
        vfprintf(stderr, format, arguments);
        va_end(arguments);
        fputc('\n', stderr);
    }
    return status;
}

static cudnnStatus_t fault(const char *name)
{
    int code = CUDNN_STATUS_INTERNAL_ERROR;
    return sim_fault(name, &code) ? (cudnnStatus_t)code : CUDNN_STATUS_SUCCESS;
}

/* --- handles -------------------------------------------------------------------------------- */

VISIBLE size_t cudnnGetVersion(void)
{
    return RELEASE;
}

VISIBLE const char *cudnnGetErrorString(cudnnStatus_t status)
{
    static const struct {
        cudnnStatus_t status;
        const char *name;
    } names[] = {
        {CUDNN_STATUS_SUCCESS, "CUDNN_STATUS_SUCCESS"},
        {CUDNN_STATUS_NOT_INITIALIZED, "CUDNN_STATUS_NOT_INITIALIZED"},
        {CUDNN_STATUS_BAD_PARAM, "CUDNN_STATUS_BAD_PARAM"},
        {CUDNN_STATUS_NOT_SUPPORTED, "CUDNN_STATUS_NOT_SUPPORTED"},
        {CUDNN_STATUS_INTERNAL_ERROR, "CUDNN_STATUS_INTERNAL_ERROR"},
        {CUDNN_STATUS_EXECUTION_FAILED, "CUDNN_STATUS_EXECUTION_FAILED"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].status == status || (int)names[i].status == (int)status / 1000 * 1000)
            return names[i].name;
    return "CUDNN_UNKNOWN_STATUS";
}

VISIBLE cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    cudnnStatus_t status = fault("cudnnCreate");
    int device;
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!handle)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (cudaGetDevice(&device) != cudaSuccess)
        return CUDNN_STATUS_NOT_INITIALIZED;
    struct cudnnContext *context = calloc(1, sizeof *context);
    if (!context)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    context->magic = HANDLE_MAGIC;
    *handle = context;
    return CUDNN_STATUS_SUCCESS;
}

VISIBLE cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    if (!handle || handle->magic != HANDLE_MAGIC)
        return CUDNN_STATUS_BAD_PARAM;
    handle->magic = 0;
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

VISIBLE cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    cudnnStatus_t status = fault("cudnnSetStream");
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!handle || handle->magic != HANDLE_MAGIC)
        return CUDNN_STATUS_BAD_PARAM;
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

/* --- descriptors ---------------------------------------------------------------------------- */

struct cudnn_sim_descriptor *cudnn_sim_descriptor_of(cudnnBackendDescriptor_t handle)
{
    struct cudnn_sim_descriptor *descriptor = handle;
    return descriptor && descriptor->magic == DESCRIPTOR_MAGIC ? descriptor : NULL;
}

static void free_value(struct cudnn_sim_value *value)
{
    cudnnBackendDescriptor_t part;
    for (int64_t i = 0; value->type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < value->count; i++) {
        memcpy(&part, (char *)value->data + (size_t)i * sizeof part, sizeof part);
        cudnn_sim_release(cudnn_sim_descriptor_of(part));
    }
    free(value->data);
    free(value);
}

void cudnn_sim_release(struct cudnn_sim_descriptor *descriptor)
{
    if (!descriptor || --descriptor->references > 0)
        return;
    for (struct cudnn_sim_value *value = descriptor->values, *next; value; value = next) {
        next = value->next;
        free_value(value);
    }
    free(descriptor->program);
    descriptor->magic = 0;
    free(descriptor);
}

const struct cudnn_sim_value *cudnn_sim_value_of(const struct cudnn_sim_descriptor *descriptor,
                                                 cudnnBackendAttributeName_t name)
{
    for (const struct cudnn_sim_value *value = descriptor->values; value; value = value->next)
        if (value->name == name)
            return value;
    return NULL;
}

int64_t cudnn_sim_number(const struct cudnn_sim_descriptor *descriptor,
                         cudnnBackendAttributeName_t name, int64_t otherwise)
{
    const struct cudnn_sim_value *value = cudnn_sim_value_of(descriptor, name);
    int64_t wide;
    int32_t word;
    bool yes;
    if (!value)
        return otherwise;
    if (value->type == CUDNN_TYPE_INT64)
        return memcpy(&wide, value->data, sizeof wide), wide;
    if (value->type == CUDNN_TYPE_BOOLEAN)
        return memcpy(&yes, value->data, sizeof yes), yes;
    memcpy(&word, value->data, sizeof word);
    return word;
}

struct cudnn_sim_descriptor *cudnn_sim_part(const struct cudnn_sim_descriptor *descriptor,
                                            cudnnBackendAttributeName_t name)
{
    const struct cudnn_sim_value *value = cudnn_sim_value_of(descriptor, name);
    cudnnBackendDescriptor_t part = NULL;
    if (value)
        memcpy(&part, value->data, sizeof part);
    return cudnn_sim_descriptor_of(part);
}

VISIBLE cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                   cudnnBackendDescriptor_t *descriptor)
{
    cudnnStatus_t status = fault("cudnnBackendCreateDescriptor");
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!descriptor)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    struct cudnn_sim_descriptor *made = calloc(1, sizeof *made);
    if (!made)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    made->magic = DESCRIPTOR_MAGIC;
    made->type = type;
    made->references = 1;
    *descriptor = made;
    return CUDNN_STATUS_SUCCESS;
}

VISIBLE cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t handle)
{
    struct cudnn_sim_descriptor *descriptor = cudnn_sim_descriptor_of(handle);
    if (!descriptor)
        return CUDNN_STATUS_BAD_PARAM;
    cudnn_sim_release(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

VISIBLE cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t handle)
{
    struct cudnn_sim_descriptor *descriptor = cudnn_sim_descriptor_of(handle);
    cudnnStatus_t status = fault("cudnnBackendFinalize");
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!descriptor || descriptor->finalized)
        return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "no descriptor, or finalized twice");
    status = cudnn_sim_check(descriptor);
    descriptor->finalized = status == CUDNN_STATUS_SUCCESS;
    return status;
}

/* --- attributes ----------------------------------------------------------------------------- */

/* Descriptors that others refer to are finalized before, and live on for them. */
static cudnnStatus_t take_parts(const struct cudnn_sim_value *value)
{
    cudnnBackendDescriptor_t part;
    for (int64_t i = 0; i < value->count; i++) {
        memcpy(&part, (char *)value->data + (size_t)i * sizeof part, sizeof part);
        if (!cudnn_sim_descriptor_of(part))
            return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d: no descriptor",
                                    (int)value->name);
        if (!cudnn_sim_descriptor_of(part)->finalized)
            return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                                    "attribute %d: a descriptor that is not finalized",
                                    (int)value->name);
    }
    for (int64_t i = 0; i < value->count; i++) {
        memcpy(&part, (char *)value->data + (size_t)i * sizeof part, sizeof part);
        cudnn_sim_descriptor_of(part)->references++;
    }
    return CUDNN_STATUS_SUCCESS;
}

VISIBLE cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t handle,
                                               cudnnBackendAttributeName_t name,
                                               cudnnBackendAttributeType_t type, int64_t count,
                                               const void *elements)
{
    struct cudnn_sim_descriptor *descriptor = cudnn_sim_descriptor_of(handle);
    cudnnStatus_t status = fault("cudnnBackendSetAttribute");
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!descriptor || !elements)
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (descriptor->finalized)
        return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "attribute %d is set after finalizing",
                                (int)name);
    status = cudnn_sim_check_set(descriptor->type, name, type, count);
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    const size_t bytes = (size_t)count * cudnn_sim_type_bytes(type);
    struct cudnn_sim_value *value = calloc(1, sizeof *value);
    void *data = malloc(bytes > 0 ? bytes : 1);
    if (!value || !data) {
        free(value);
        free(data);
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    }
    memcpy(data, elements, bytes);
    *value = (struct cudnn_sim_value){
        .next = descriptor->values, .name = name, .type = type, .count = count, .data = data};
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        status = take_parts(value);
    if (status == CUDNN_STATUS_SUCCESS) {
        descriptor->values = value; /* the last setting counts */
        return status;
    }
    free(data);
    free(value);
    return status;
}

VISIBLE cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t handle,
                                               cudnnBackendAttributeName_t name,
                                               cudnnBackendAttributeType_t type, int64_t requested,
                                               int64_t *count, void *elements)
{
    struct cudnn_sim_descriptor *descriptor = cudnn_sim_descriptor_of(handle);
    cudnnStatus_t status = fault("cudnnBackendGetAttribute");
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!descriptor || !count || (requested > 0 && !elements))
        return CUDNN_STATUS_BAD_PARAM_NULL_POINTER;
    if (!descriptor->finalized)
        return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED,
                                "attribute %d is asked for before finalizing", (int)name);
    return cudnn_sim_get(descriptor, name, type, requested, count, elements);
}

/* --- execution ------------------------------------------------------------------------------ */

static void *pointer_at(const struct cudnn_sim_value *value, int64_t i)
{
    void *pointer;
    memcpy(&pointer, (char *)value->data + (size_t)i * sizeof pointer, sizeof pointer);
    return pointer;
}

/* Where tensor `id` is; NULL: the pack lacks it, or has it twice. */
static void *find(const struct cudnn_sim_descriptor *pack, int64_t id)
{
    const struct cudnn_sim_value *ids =
        cudnn_sim_value_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const struct cudnn_sim_value *pointers =
        cudnn_sim_value_of(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    void *found = NULL;
    for (int64_t i = 0; i < ids->count; i++) {
        int64_t other;
        memcpy(&other, (char *)ids->data + (size_t)i * sizeof other, sizeof other);
        if (other == id && found)
            return NULL;
        if (other == id)
            found = pointer_at(pointers, i);
    }
    return found;
}

static size_t bytes_of(const struct cudnn_sim_tensor *tensor)
{
    const size_t element = tensor->type == CUDNN_DATA_BFLOAT16 ? 2 : 4;
    return (size_t)cudnn_sim_span(tensor) * element;
}

static cudnnStatus_t bind(struct cudnn_sim_program *program,
                          const struct cudnn_sim_descriptor *pack, int device)
{
    int64_t wanted = 0;
    for (int i = 0; i < program->tensor_count; i++) {
        struct cudnn_sim_tensor *tensor = &program->tensors[i];
        if (tensor->is_virtual)
            continue;
        wanted++;
        tensor->memory = find(pack, tensor->id);
        if (!tensor->memory)
            return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld has no memory, or twice",
                                    (long long)tensor->id);
        if (tensor->by_value) {
            memcpy(&tensor->value, tensor->memory, sizeof tensor->value);
            continue;
        }
        if ((uintptr_t)tensor->memory % (uintptr_t)tensor->alignment != 0)
            return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                                    "tensor %lld is not aligned to %lld bytes",
                                    (long long)tensor->id, (long long)tensor->alignment);
        sim_check_pointer("cudnnBackendExecute", "a tensor", tensor->memory, bytes_of(tensor),
                          device);
    }
    if (wanted != cudnn_sim_value_of(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->count)
        return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "memory for a tensor that is not there");
    return CUDNN_STATUS_SUCCESS;
}

VISIBLE cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                          cudnnBackendDescriptor_t pack)
{
    static uint64_t serial;
    const struct cudnn_sim_descriptor *p = cudnn_sim_descriptor_of(plan);
    const struct cudnn_sim_descriptor *v = cudnn_sim_descriptor_of(pack);
    cudnnStatus_t status = fault("cudnnBackendExecute");
    if (status != CUDNN_STATUS_SUCCESS)
        return status;
    if (!handle || handle->magic != HANDLE_MAGIC || !p || !v || !p->finalized || !v->finalized ||
        p->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
        v->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)
        return cudnn_sim_refuse(CUDNN_STATUS_BAD_PARAM, "no handle, plan or pack");
    const int device = sim_stream_device(handle->stream);
    const struct cudnn_sim_value *workspace =
        cudnn_sim_value_of(v, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    struct cudnn_sim_program *program = malloc(sizeof *program);
    if (!program)
        return CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED;
    *program = *p->program;
    program->serial = __atomic_add_fetch(&serial, 1, __ATOMIC_RELAXED);
    program->workspace = workspace ? pointer_at(workspace, 0) : NULL;
    status = bind(program, v, device);
    if (status == CUDNN_STATUS_SUCCESS && program->workspace_bytes > 0)
        sim_check_pointer("cudnnBackendExecute", "the workspace", program->workspace,
                          program->workspace_bytes, device);
    if (status == CUDNN_STATUS_SUCCESS &&
        sim_enqueue(handle->stream, "cudnnBackendExecute", SIM_RUN, cudnn_sim_run, program,
                    sizeof *program) != cudaSuccess)
        status = CUDNN_STATUS_EXECUTION_FAILED;
    free(program);
    return status;
}

/* --- how the plugin finds it ---------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*function)(void);
} functions[] = {
    {"cudnnGetVersion", (void (*)(void))cudnnGetVersion},
    {"cudnnGetErrorString", (void (*)(void))cudnnGetErrorString},
    {"cudnnCreate", (void (*)(void))cudnnCreate},
    {"cudnnDestroy", (void (*)(void))cudnnDestroy},
    {"cudnnSetStream", (void (*)(void))cudnnSetStream},
    {"cudnnBackendCreateDescriptor", (void (*)(void))cudnnBackendCreateDescriptor},
    {"cudnnBackendDestroyDescriptor", (void (*)(void))cudnnBackendDestroyDescriptor},
    {"cudnnBackendSetAttribute", (void (*)(void))cudnnBackendSetAttribute},
    {"cudnnBackendGetAttribute", (void (*)(void))cudnnBackendGetAttribute},
    {"cudnnBackendFinalize", (void (*)(void))cudnnBackendFinalize},
    {"cudnnBackendExecute", (void (*)(void))cudnnBackendExecute},
};

VISIBLE void *cudasim_dlopen(const char *name)
{
    static char library;
    if (sim_fault("dlopen", NULL) || strcmp(name, "libcudnn.so.9") != 0)
        return NULL;
    return &library;
}

VISIBLE void *cudasim_dlsym(void *library, const char *name)
{
    void *symbol = NULL;
    if (!library || sim_fault("dlsym", NULL))
        return NULL;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            memcpy(&symbol, &functions[i].function, sizeof symbol);
    return symbol;
}
