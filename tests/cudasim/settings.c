/* SPDX-License-Identifier: MIT
 *
 * What the environment asks of the simulation: DDP_CUDASIM_STREAMS, _ORDER, _DEVICES, _MEMORY,
 * _PROTECT, _LEAKS, _PTX, _CUDNN, _WRONG and _FAIL. A value that makes no sense is reported, never
 * ignored. */
#include "config.h"

#include "tests/cudasim/internal.h"

#include <ctype.h>
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_FAULTS = 16 };

struct sim_settings sim_settings;
static uint64_t random_state;

/* name:n[:code] of DDP_CUDASIM_FAIL */
static struct {
    char name[48];
    long number, calls;
    int code; /* 0: the function's own */
} faults[MAX_FAULTS];
static int fault_count;

void sim_report(const char *format, ...)
{
    char text[1536];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "cudasim: %s\n", text);
    fflush(stderr);
    abort();
}

uint64_t sim_random(void)
{
    random_state += 0x9e3779b97f4a7c15u;
    uint64_t x = random_state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static long long number(const char *name, const char *text, const char **rest, long long smallest)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 0);
    if (end == text || errno != 0 || value < smallest)
        sim_report("%s: \"%s\" is not a number from %lld", name, text, smallest);
    if (rest)
        *rest = end;
    else if (*end != '\0')
        sim_report("%s: \"%s\" is not a number", name, text);
    return value;
}

static void read_order(const char *text)
{
    if (strcmp(text, "forward") == 0)
        sim_settings.order = SIM_FORWARD;
    else if (strcmp(text, "reverse") == 0)
        sim_settings.order = SIM_REVERSE;
    else if (strncmp(text, "random:", 7) == 0) {
        sim_settings.order = SIM_RANDOM;
        random_state = (uint64_t)number("DDP_CUDASIM_ORDER", text + 7, NULL, 0);
    } else
        sim_report("DDP_CUDASIM_ORDER=%s: forward, reverse or random:SEED", text);
}

static void read_faults(const char *text)
{
    while (*text != '\0') {
        size_t length = strcspn(text, ":");
        if (fault_count == MAX_FAULTS || length == 0 || length >= sizeof faults[0].name ||
            text[length] != ':')
            sim_report("DDP_CUDASIM_FAIL: \"%s\": at most %d times NAME:N[:CODE]", text,
                       MAX_FAULTS);
        memcpy(faults[fault_count].name, text, length);
        faults[fault_count].number = number("DDP_CUDASIM_FAIL", text + length + 1, &text, 1);
        if (*text == ':')
            faults[fault_count].code = (int)number("DDP_CUDASIM_FAIL", text + 1, &text, 1);
        if (*text == ',')
            text++;
        else if (*text != '\0')
            sim_report("DDP_CUDASIM_FAIL: \"%s\" is left over", text);
        fault_count++;
    }
}

/* As the driver reads it: numbers or UUIDs, up to the first that means no device. */
static void read_visible(const char *text)
{
    int count = 0;
    for (const char *at = text; *at != '\0';) {
        int device = -1;
        size_t length = strcspn(at, ",");
        if (isdigit((unsigned char)*at))
            device = atoi(at);
        else if (strncmp(at, "GPU-", 4) == 0 && length > 4)
            device = (int)strtol(at + length - 2, NULL, 16);
        if (device < 0 || device >= sim_settings.device_count || count == SIM_MAX_DEVICES)
            break;
        sim_settings.physical[count++] = device;
        at += length + (at[length] == ',');
    }
    sim_settings.device_count = count;
}

static void read_environment(void)
{
    const char *streams = getenv("DDP_CUDASIM_STREAMS"), *order = getenv("DDP_CUDASIM_ORDER");
    const char *devices = getenv("DDP_CUDASIM_DEVICES"), *memory = getenv("DDP_CUDASIM_MEMORY");
    const char *protect = getenv("DDP_CUDASIM_PROTECT"), *fail = getenv("DDP_CUDASIM_FAIL");
    const char *visible = getenv("CUDA_VISIBLE_DEVICES"), *leaks = getenv("DDP_CUDASIM_LEAKS");
    const char *ptx = getenv("DDP_CUDASIM_PTX");
    const char *cudnn = getenv("DDP_CUDASIM_CUDNN");
    if (streams && strcmp(streams, "eager") != 0 && strcmp(streams, "lazy") != 0)
        sim_report("DDP_CUDASIM_STREAMS=%s: lazy or eager", streams);
    sim_settings.eager = streams && strcmp(streams, "eager") == 0;
    sim_settings.protect = protect && strcmp(protect, "1") == 0;
    sim_settings.leaks = leaks && strcmp(leaks, "1") == 0;
    sim_settings.wrong = getenv("DDP_CUDASIM_WRONG");
    sim_settings.memory_bytes = (size_t)8 << 30;
    if (memory)
        sim_settings.memory_bytes = (size_t)number("DDP_CUDASIM_MEMORY", memory, NULL, 1);
    sim_settings.ptx_version = 90;
    if (ptx)
        sim_settings.ptx_version = (int)number("DDP_CUDASIM_PTX", ptx, NULL, 50);
    if (cudnn)
        sim_settings.cudnn_version = (int)number("DDP_CUDASIM_CUDNN", cudnn, NULL, 1);
    sim_settings.device_count = 2;
    if (devices)
        sim_settings.device_count = (int)number("DDP_CUDASIM_DEVICES", devices, NULL, 0);
    if (sim_settings.device_count > SIM_MAX_DEVICES)
        sim_report("DDP_CUDASIM_DEVICES=%s: at most %d", devices, SIM_MAX_DEVICES);
    for (int i = 0; i < sim_settings.device_count; i++)
        sim_settings.physical[i] = i;
    if (visible)
        read_visible(visible);
    if (order)
        read_order(order);
    if (fail)
        read_faults(fail);
}

bool cudasim_wrong(const char *path)
{
    return sim_settings.wrong && strcmp(sim_settings.wrong, path) == 0;
}

bool sim_fault(const char *name, int *code)
{
    bool fails = false;
    sim_lock();
    for (int i = 0; i < fault_count; i++) {
        if (strcmp(faults[i].name, name) != 0 || ++faults[i].calls != faults[i].number)
            continue;
        fails = true;
        if (faults[i].code != 0 && code)
            *code = faults[i].code;
    }
    sim_unlock();
    return fails;
}

/* The environment is read under the first lock. Recursion is ours, not the mutex's: operations lock
 * again on fibres that ThreadSanitizer takes for other threads. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void start(void)
{
    read_environment();
    sim_catch_faults();
}

void sim_lock(void)
{
    pthread_once(&once, start);
    if (sim_host_thread.lock_depth++ == 0)
        pthread_mutex_lock(&mutex);
}

void sim_unlock(void)
{
    if (--sim_host_thread.lock_depth == 0)
        pthread_mutex_unlock(&mutex);
}
