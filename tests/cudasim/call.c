/* SPDX-License-Identifier: MIT
 *
 * What every call of the runtime has in common: the lock, the errors of threads and devices, and
 * that a process which was forked from one that used CUDA cannot use it. */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <time.h>
#include <unistd.h>

static uint64_t calls;
static pid_t owner; /* the process that used CUDA first */
static cudaError_t device_errors[SIM_MAX_DEVICES];
__thread struct sim_host_thread sim_host_thread;

extern void __tsan_read_range(void *memory, unsigned long bytes) __attribute__((weak));
extern void __tsan_write_range(void *memory, unsigned long bytes) __attribute__((weak));

uint64_t sim_calls(void)
{
    return calls;
}

bool sim_is_owner(void)
{
    return owner == getpid();
}

cudaError_t sim_enter(const char *name)
{
    int code = 0;
    sim_lock();
    calls++;
    if (owner == 0)
        owner = getpid();
    if (owner != getpid())
        return cudaErrorInitializationError;
    if (sim_fault(name, &code))
        return code != 0 ? (cudaError_t)code : cudaErrorUnknown;
    if (sim_settings.device_count == 0)
        return cudaErrorNoDevice;
    return device_errors[sim_host_thread.device];
}

cudaError_t sim_leave(cudaError_t error)
{
    if (error != cudaSuccess)
        sim_host_thread.last_error = error;
    sim_unlock();
    return error;
}

void sim_pause(long microseconds)
{
    struct timespec time = {.tv_nsec = microseconds * 1000};
    sim_unlock();
    nanosleep(&time, NULL);
    sim_lock();
}

cudaError_t sim_device_error(int device)
{
    return device_errors[device];
}

void sim_fail_device(int device, cudaError_t error)
{
    if (device_errors[device] == cudaSuccess)
        device_errors[device] = error;
}

/* The compiler calls this for single accesses; a range is what it calls for a copied struct. */
void sim_reads(const void *memory, size_t bytes)
{
    if (__tsan_read_range && bytes > 0)
        __tsan_read_range((void *)(uintptr_t)memory, bytes);
}

void sim_writes(void *memory, size_t bytes)
{
    if (__tsan_write_range && bytes > 0)
        __tsan_write_range(memory, bytes);
}
