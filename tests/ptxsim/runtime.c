/* SPDX-License-Identifier: MIT
 *
 * What nvcc's host code calls: kernels are registered, and launched as PTX on the simulated
 * runtime, whose streams, memory, cuBLASLt and NCCL they share. A kernel with a report ends the
 * process.
 *   DDP_PTXSIM_LOG=FILE       "has KERNEL" for each that is there, "ran KERNEL" once it has run
 *   DDP_PTXSIM_BARRIERS=FILE  see barriers.c */
#include "config.h"

#include "tests/cudasim/internal.h"
#include "tests/ptxsim/machine.h"
#include "tests/ptxsim/runtime.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A kernel, known by the address of the host function that launches it. */
struct function {
    struct function *next;
    const void *host;
    char *name;
    struct ptx_module *module;
    struct ptx_kernel *kernel;  /* read at the first launch */
    struct ptx_traffic largest; /* of the launch that moves the most, for each memory */
};
static struct function *functions;

/* One line in the log, by one write. */
static void log_kernel(const char *what, const char *name)
{
    const char *path = getenv("DDP_PTXSIM_LOG");
    char line[600];
    const int length = snprintf(line, sizeof line, "%s %s\n", what, name);
    const int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (path && (file < 0 || write(file, line, (size_t)length) != length))
        sim_report("%s: cannot be written", path);
    if (file >= 0)
        close(file);
}

static void log_has(const char *name)
{
    log_kernel("has", name);
}

/* --- what stands in an object of nvcc: cudafe's calls, and the fat binary that they pass. ---
 * A fat binary is a header of 16 bytes (magic, version, its own bytes at 6, those of the rest at 8)
 * and entries: kind (1: PTX) at 0, bytes of the entry's header at 4, of its text at 8. */

void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **module);
void __cudaUnregisterFatBinary(void **module);
void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name,
                            int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *size);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared_bytes, cudaStream_t stream);

void **__cudaRegisterFatBinary(void *wrapper)
{
    const struct {
        int magic, version;
        const char *data;
    } *w = wrapper;
    struct ptx_module *module = calloc(1, sizeof *module);
    uint16_t header;
    uint64_t size, bytes;
    if (!module)
        abort();
    memcpy(&header, w->data + 6, sizeof header);
    memcpy(&size, w->data + 8, sizeof size);
    for (const char *at = w->data + header, *end = at + size; at < end;) {
        uint16_t kind;
        uint32_t head;
        memcpy(&kind, at, sizeof kind);
        memcpy(&head, at + 4, sizeof head);
        memcpy(&bytes, at + 8, sizeof bytes);
        if (kind == 1)
            module->text = at + head;
        at += head + bytes;
    }
    if (!module->text || !strstr(module->text, ".version"))
        sim_report("an object without PTX: it takes nvcc's -gencode=arch=...,code=compute_... and "
                   "--no-compress");
    ptx_kernel_names(module->text, log_has);
    return (void **)module;
}

void __cudaRegisterFatBinaryEnd(void **module)
{
    (void)module;
}

void __cudaUnregisterFatBinary(void **module)
{
    (void)module;
}

void __cudaRegisterFunction(void **module, const char *host, char *device, const char *name,
                            int limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *size)
{
    (void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)size;
    struct function *f = calloc(1, sizeof *f);
    if (!f || !(f->name = strdup(name)))
        abort();
    f->host = host;
    f->module = (struct ptx_module *)module;
    f->next = functions;
    functions = f;
}

/* From kernel<<<...>>> to the function that it calls. */
static __thread struct {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
} pushed;

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     struct CUstream_st *stream)
{
    pushed.grid = grid;
    pushed.block = block;
    pushed.shared_bytes = shared_bytes;
    pushed.stream = stream;
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes, void *stream)
{
    *grid = pushed.grid;
    *block = pushed.block;
    *shared_bytes = pushed.shared_bytes;
    *(cudaStream_t *)stream = pushed.stream;
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *host)
{
    *kernel = (cudaKernel_t)(uintptr_t)host;
    return cudaSuccess;
}

/* --- launches --- */

/* The bytes of an operation of a stream. */
struct packed {
    struct function *function;
    dim3 grid, block;
    uint32_t dynamic_bytes;
    char parameters[3500] __attribute__((aligned(16)));
};

/* Memory of the host that a device sees holds what kernels found wrong: any of several writers may
 * win. */
bool ptx_device_memory(uint64_t address, uint64_t *start, uint64_t *end, bool *watched)
{
    const struct sim_allocation *a = sim_find((const void *)(uintptr_t)address);
    if (!a || a->kind == SIM_FREED || a->kind == SIM_UNKNOWN)
        return false;
    *start = (uint64_t)(uintptr_t)a->start;
    *end = *start + a->bytes;
    *watched = a->kind == SIM_DEVICE;
    return true;
}

/* A line in the log for the largest launch of a kernel so far: its traffic, and the instruction
 * that moves the most above the least. */
static void log_traffic(struct function *f)
{
    const struct ptx_kernel *k = f->kernel;
    for (int space = 0; space < 2; space++) {
        uint64_t moves = 0, least = 0;
        int worst = 0;
        char line[400];
        for (int i = 0; i < k->count; i++) {
            const struct ptx_traffic *t = &k->traffic[i], *w = &k->traffic[worst];
            moves += t->moves[space];
            least += t->least[space];
            if (t->moves[space] - t->least[space] > w->moves[space] - w->least[space])
                worst = i;
        }
        if (least < f->largest.least[space] ||
            (least == f->largest.least[space] && moves <= f->largest.moves[space]))
            continue;
        f->largest.least[space] = least;
        f->largest.moves[space] = moves;
        const struct ptx_traffic *w = &k->traffic[worst];
        const char *file = k->module->file[k->code[0].file];
        snprintf(line, sizeof line, "%d %llu %llu %s %s %s %llu of %llu by %s at %s", space,
                 (unsigned long long)moves, (unsigned long long)least,
                 file ? strrchr(file, '/') + 1 : "?", f->name, space ? "rounds" : "sectors",
                 (unsigned long long)w->moves[space], (unsigned long long)w->least[space],
                 k->code[worst].name, ptx_place(k, &k->code[worst]));
        log_kernel("moved", line);
    }
}

static void run(void *arguments)
{
    const struct packed *packed = arguments;
    const dim3 grid = packed->grid, block = packed->block;
    const struct ptx_launch launch = {.kernel = packed->function->kernel,
                                      .grid = {grid.x, grid.y, grid.z},
                                      .block = {block.x, block.y, block.z},
                                      .dynamic_bytes = packed->dynamic_bytes,
                                      .parameters = packed->parameters,
                                      .no_products = cudasim_wrong("mma")};
    ptx_try_barriers(packed->function->kernel, &launch);
    const uint64_t reports = ptx_run(&launch, ptx_device_memory);
    if (reports)
        sim_report("kernel %s: %llu reports of ptxsim", packed->function->name,
                   (unsigned long long)reports);
    log_traffic(packed->function);
}

cudaError_t cudaLaunchKernel(const void *host, dim3 grid, dim3 block, void **arguments,
                             size_t shared_bytes, cudaStream_t stream)
{
    static __thread struct packed packed;
    sim_lock();
    struct function *f = functions;
    while (f && f->host != host)
        f = f->next;
    if (!f)
        sim_report("a launch of a kernel that was not registered");
    if (!f->kernel) {
        f->kernel = ptx_kernel_parse(f->module, f->name);
        log_kernel("ran", f->name);
    }
    const struct ptx_kernel *k = f->kernel;
    if (k->parameter_bytes > sizeof packed.parameters)
        sim_report("kernel %s: %u bytes of parameters", f->name, k->parameter_bytes);
    memset(&packed, 0, sizeof packed);
    packed.function = f;
    packed.grid = grid;
    packed.block = block;
    packed.dynamic_bytes = (uint32_t)shared_bytes;
    for (int i = 0; i < k->parameter_count; i++)
        memcpy(packed.parameters + k->parameter[i].at, arguments[i], k->parameter[i].bytes);
    const struct cudasim_kernel kernel = {
        .name = f->name, .address = host, .call = run, .bytes = sizeof packed, .all_blocks = 1};
    cudasim_launch_kernel(&kernel, grid, block, shared_bytes, stream, &packed);
    sim_unlock();
    return cudaPeekAtLastError();
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared_bytes, cudaStream_t stream)
{
    return cudaLaunchKernel((const void *)kernel, grid, block, arguments, shared_bytes, stream);
}
