/* SPDX-License-Identifier: MIT
 *
 * A preload library that lets memory run out: the FAIL_ALLOC-th call of malloc(), calloc(),
 * realloc(), posix_memalign(), aligned_alloc() or mmap() for memory fails, with FAIL_ALLOC_ALL all
 * later ones too. Calls from C++ and the dynamic linker do not count: where they fail the
 * process ends, whoever called; nor does a single one from jansson, which then goes on with a text
 * that lacks a part. At exit the number of calls goes to the file FAIL_ALLOC_COUNT. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

#define SPARED_MAX 64

static struct {
    uintptr_t begin, end;
} spared[SPARED_MAX];
static int spared_count;
static atomic_long calls;
static long first; /* 0: none fails */
static bool all, ready;
static void *(*real_mmap)(void *, size_t, int, int, int, off_t);

static int find_spared(struct dl_phdr_info *info, size_t size, void *arg)
{
    static const char *const names[] = {"libstdc++", "ld-linux", "libgcc_s"};
    (void)size;
    (void)arg;
    bool is = !all && strstr(info->dlpi_name, "libjansson");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        is = is || strstr(info->dlpi_name, names[i]);
    for (int i = 0; is && i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_flags & PF_X && spared_count < SPARED_MAX) {
            spared[spared_count].begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
            spared[spared_count].end = spared[spared_count].begin + info->dlpi_phdr[i].p_memsz;
            spared_count++;
        }
    return 0;
}

static void __attribute__((constructor)) begin(void)
{
    const char *number = getenv("FAIL_ALLOC");
    *(void **)&real_mmap = dlsym(RTLD_NEXT, "mmap");
    first = number ? atol(number) : 0;
    all = getenv("FAIL_ALLOC_ALL") != NULL;
    dl_iterate_phdr(find_spared, NULL);
    ready = true;
}

static void __attribute__((destructor)) end(void)
{
    const char *path = getenv("FAIL_ALLOC_COUNT");
    const long count = atomic_load(&calls);
    ready = false;
    FILE *file = path ? fopen(path, "w") : NULL;
    if (file) {
        fprintf(file, "%ld\n", count);
        fclose(file);
    }
}

static bool fails(const void *caller)
{
    if (!ready)
        return false;
    for (int i = 0; i < spared_count; i++)
        if ((uintptr_t)caller >= spared[i].begin && (uintptr_t)caller < spared[i].end)
            return false;
    const long number = atomic_fetch_add(&calls, 1) + 1;
    if (first == 0 || number < first || (number > first && !all))
        return false;
    errno = ENOMEM;
    return true;
}

#pragma GCC visibility push(default)

#define CALLER __builtin_return_address(0)

void *malloc(size_t bytes)
{
    return fails(CALLER) ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails(CALLER) ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails(CALLER) ? NULL : __libc_realloc(memory, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return fails(CALLER) ? NULL : __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    if (fails(CALLER))
        return ENOMEM;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}

void *mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (flags & MAP_ANONYMOUS && fails(CALLER))
        return MAP_FAILED;
    return real_mmap ? real_mmap(address, bytes, protection, flags, fd, offset) : MAP_FAILED;
}
