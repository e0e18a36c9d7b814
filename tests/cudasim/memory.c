/* SPDX-License-Identifier: MIT
 *
 * Memory of devices and page-locked memory: each allocation ends at a page that must not be
 * touched, holds NaN at first, and cannot be touched once it is freed. */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Freed memory whose addresses are kept, so that a late use is reported. */
enum { MAX_FREED = 1024 };

extern void __asan_poison_memory_region(const volatile void *memory, size_t bytes)
    __attribute__((weak));
extern void __asan_unpoison_memory_region(const volatile void *memory, size_t bytes)
    __attribute__((weak));

static struct sim_allocation *table; /* in the order of addresses */
static int table_count, table_room;
static int freed_count;
static size_t used[SIM_MAX_DEVICES];
static bool peers[SIM_MAX_DEVICES][SIM_MAX_DEVICES];

/* The last allocation that starts at or below an address, -1: none. */
static int position(const void *address)
{
    int low = 0, high = table_count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if ((uintptr_t)table[middle].start <= (uintptr_t)address)
            low = middle + 1;
        else
            high = middle;
    }
    return low - 1;
}

const struct sim_allocation *sim_find(const void *address)
{
    int at = position(address);
    if (at < 0)
        return NULL;
    /* One past the end is its own address too, as a pointer. */
    uintptr_t offset = (uintptr_t)address - (uintptr_t)table[at].start;
    return offset <= table[at].bytes ? &table[at] : NULL;
}

static cudaError_t insert(struct sim_allocation allocation)
{
    if (table_count == table_room) {
        int room = table_room ? 2 * table_room : 64;
        struct sim_allocation *larger = realloc(table, (size_t)room * sizeof *table);
        if (!larger)
            return cudaErrorMemoryAllocation;
        table = larger;
        table_room = room;
    }
    int at = position(allocation.start) + 1;
    memmove(table + at + 1, table + at, (size_t)(table_count - at) * sizeof *table);
    table[at] = allocation;
    table_count++;
    return cudaSuccess;
}

static void erase(int at)
{
    table_count--;
    memmove(table + at, table + at + 1, (size_t)(table_count - at) * sizeof *table);
}

/* As aligned as a size allows, so that the end is the end; CUDA promises 256 bytes. */
static size_t alignment_of(size_t bytes)
{
    size_t alignment = bytes & (~bytes + 1);
    return alignment > 256 ? 256 : alignment < 16 ? 16 : alignment;
}

static cudaError_t allocate(void **memory, size_t bytes, enum sim_memory kind, int device)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), alignment = alignment_of(bytes);
    if (!memory)
        return cudaErrorInvalidValue;
    *memory = NULL;
    if (bytes == 0)
        return cudaSuccess;
    if (bytes > SIZE_MAX / 4)
        return cudaErrorMemoryAllocation;
    size_t pages = (bytes + alignment - 1) / page * page + page, mapped = page + pages + page;
    char *mapping =
        mmap(NULL, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    char *start = mapping + page + (pages - bytes) / alignment * alignment;
    struct sim_allocation allocation = {start, bytes, mapping, mapped, kind, device, 0};
    if (mprotect(mapping + page, pages, PROT_READ | PROT_WRITE) != 0 ||
        insert(allocation) != cudaSuccess) {
        munmap(mapping, mapped);
        return cudaErrorMemoryAllocation;
    }
    memset(start, 0xff, bytes);
    /* What lies between the end and the page. */
    char *end = start + bytes, *limit = mapping + page + pages;
    memset(end, 0xff, (size_t)(limit - end));
    if (__asan_poison_memory_region)
        __asan_poison_memory_region(end, (size_t)(limit - end));
    *memory = start;
    return cudaSuccess;
}

/* The oldest addresses are given back when there are many. */
static void drop_freed(void)
{
    if (freed_count < MAX_FREED)
        return;
    for (int i = table_count - 1; i >= 0; i--) {
        if (table[i].kind != SIM_FREED)
            continue;
        munmap(table[i].mapping, table[i].mapping_bytes);
        erase(i);
    }
    freed_count = 0;
}

static void check_slack(const struct sim_allocation *a, const char *call)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const char *end = a->start + a->bytes, *limit = a->mapping + a->mapping_bytes - page;
    if (__asan_unpoison_memory_region)
        __asan_unpoison_memory_region(end, (size_t)(limit - end));
    for (const char *at = end; at < limit; at++)
        if (*(const unsigned char *)at != 0xff)
            sim_report("%s: %zu bytes past the end of %zu bytes at %p were written", call,
                       (size_t)(at - end) + 1, a->bytes, (void *)a->start);
}

static cudaError_t release(const char *call, void *memory, enum sim_memory kind)
{
    int at = position(memory);
    if (!memory)
        return cudaSuccess;
    if (at < 0 || table[at].start != memory || table[at].kind != kind) {
        if (at >= 0 && table[at].start == memory && table[at].kind == SIM_FREED)
            sim_report("%s: %p was freed before", call, memory);
        return cudaErrorInvalidValue;
    }
    struct sim_allocation *a = &table[at];
    if (a->holders > 0)
        sim_report("%s: %p is still registered with a communicator", call, memory);
    sim_protect(false);
    check_slack(a, call);
    if (kind == SIM_DEVICE)
        used[a->device] -= a->bytes;
    a->kind = SIM_FREED;
    /* Takes the pages back and leaves the addresses without rights. */
    if (mmap(a->mapping, a->mapping_bytes, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        sim_report("%s: mmap failed", call);
    freed_count++;
    drop_freed();
    sim_protect(true);
    return cudaSuccess;
}

void sim_hold(const void *memory, int holders)
{
    int at = position(memory);
    if (at >= 0)
        table[at].holders += holders;
}

cudaError_t sim_malloc(void **memory, size_t bytes, int device)
{
    sim_lock();
    cudaError_t error = cudaErrorMemoryAllocation;
    if (bytes <= sim_settings.memory_bytes - used[device])
        error = allocate(memory, bytes, SIM_DEVICE, device);
    if (error == cudaSuccess)
        used[device] += bytes;
    sim_protect(true);
    sim_unlock();
    return error;
}

cudaError_t sim_free(void *memory)
{
    sim_lock();
    cudaError_t error = release("cudaFree", memory, SIM_DEVICE);
    sim_unlock();
    return error;
}

cudaError_t sim_pinned_malloc(void **memory, size_t bytes)
{
    return allocate(memory, bytes, SIM_PINNED, -1);
}

cudaError_t sim_pinned_free(void *memory)
{
    return release("cudaFreeHost", memory, SIM_PINNED);
}

cudaError_t sim_register(void *memory, size_t bytes)
{
    const struct sim_allocation *known = sim_find(memory);
    if (!memory || bytes == 0)
        return cudaErrorInvalidValue;
    if (known && known->kind == SIM_REGISTERED && known->start == memory)
        return cudaErrorHostMemoryAlreadyRegistered;
    return insert((struct sim_allocation){memory, bytes, NULL, 0, SIM_REGISTERED, -1, 0});
}

cudaError_t sim_unregister(void *memory)
{
    int at = position(memory);
    if (at < 0 || table[at].start != memory || table[at].kind != SIM_REGISTERED)
        return cudaErrorHostMemoryNotRegistered;
    erase(at);
    return cudaSuccess;
}

size_t sim_memory_used(int device)
{
    return used[device];
}

bool sim_peer_enabled(int device, int peer)
{
    return device == peer || peers[device][peer];
}

void sim_enable_peer(int device, int peer)
{
    peers[device][peer] = true;
}

void sim_protect(bool on)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    if (!sim_settings.protect)
        return;
    for (int i = 0; i < table_count; i++)
        if (table[i].kind == SIM_DEVICE)
            mprotect(table[i].mapping + page, table[i].mapping_bytes - 2 * page,
                     on ? PROT_NONE : PROT_READ | PROT_WRITE);
}

void sim_check_pointer(const char *call, const char *what, const void *pointer, size_t bytes,
                       int device)
{
    const struct sim_allocation *a = sim_find(pointer);
    if (!pointer && bytes == 0)
        return;
    if (!a)
        sim_report("%s: %s: %p is memory of the host that no device can use", call, what, pointer);
    if (a->kind == SIM_FREED)
        sim_report("%s: %s: %p lies in %zu bytes that were freed", call, what, pointer, a->bytes);
    size_t left = a->bytes - (size_t)((const char *)pointer - a->start);
    if (bytes > left)
        sim_report("%s: %s: %zu bytes at %p, where only %zu of %zu are left", call, what, bytes,
                   pointer, left, a->bytes);
    if (a->kind == SIM_DEVICE && device >= 0 && !sim_peer_enabled(device, a->device))
        sim_report("%s: %s: %p is memory of device %d, used on device %d", call, what, pointer,
                   a->device, device);
}

void sim_describe(const void *address, char *text, size_t size)
{
    static const char *const kinds[] = {"", "device", "page-locked", "registered", "freed"};
    uintptr_t at = (uintptr_t)address;
    snprintf(text, size, "address %p", address);
    for (int i = 0; i < table_count; i++) {
        const struct sim_allocation *a = &table[i];
        uintptr_t start = (uintptr_t)a->start, end = start + a->bytes;
        if (!a->mapping || at - (uintptr_t)a->mapping >= a->mapping_bytes)
            continue;
        if (at >= end)
            snprintf(text, size, "address %p, %zu bytes past the end of %zu bytes of %s memory",
                     address, (size_t)(at - end), a->bytes, kinds[a->kind]);
        else if (at < start)
            snprintf(text, size, "address %p, %zu bytes before %zu bytes of %s memory", address,
                     (size_t)(start - at), a->bytes, kinds[a->kind]);
        else
            snprintf(text, size, "address %p, byte %zu of %zu bytes of %s memory", address,
                     (size_t)(at - start), a->bytes, kinds[a->kind]);
    }
}

/* At the end of the process that used the devices: what it still holds. A failed device keeps what
 * it has, as nothing on it can be freed. */
static void __attribute__((destructor)) report_leaks(void)
{
    int held = 0;
    const struct sim_allocation *first = NULL;
    if (!sim_settings.leaks || !sim_is_owner())
        return;
    for (int i = 0; i < table_count; i++) {
        bool counts =
            table[i].kind == SIM_PINNED ||
            (table[i].kind == SIM_DEVICE && sim_device_error(table[i].device) == cudaSuccess);
        first = counts && !first ? &table[i] : first;
        held += counts;
    }
    if (held > 0)
        sim_report("leak: %d allocations are never freed, among them %zu bytes of %s memory", held,
                   first->bytes, first->kind == SIM_DEVICE ? "device" : "page-locked");
}
