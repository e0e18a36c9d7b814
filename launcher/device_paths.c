/* SPDX-License-Identifier: MIT
 *
 * See device_paths.h. */
#include "config.h"

#include "launcher/device_paths.h"

#include "core/text.h"
#include "launcher/system/nvml.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { FAR_LEVEL = 20, FAR_UNKNOWN = 20 + 60 };

/* --- what NVML says --------------------------------------------------------------------------- */

/* A GPU and where its NVLinks lead: to others, or to a switch, which leads to all. */
struct end {
    nvml_device handle; /* NULL: not found */
    const char *bus_id;
    int to_switch, count;
    char to[NVML_LINKS][NVML_BUS_ID_BYTES];
};

static void find_links(const struct nvml *nvml, struct end *end)
{
    if (!nvml->link_state || !nvml->link_pci)
        return;
    for (unsigned int i = 0; i < NVML_LINKS; i++) {
        struct nvml_pci remote;
        int active = 0, type = -1;
        if (nvml->link_state(end->handle, i, &active) != NVML_OK || !active)
            continue;
        if (nvml->link_type && nvml->link_type(end->handle, i, &type) == NVML_OK &&
            type == NVML_LINK_TO_SWITCH)
            end->to_switch++;
        else if (nvml->link_pci(end->handle, i, &remote) == NVML_OK)
            memcpy(end->to[end->count++], remote.bus_id, sizeof remote.bus_id);
    }
}

static int find_path(const struct nvml *nvml, const struct end *a, const struct end *b)
{
    int level, links = a->to_switch < b->to_switch ? a->to_switch : b->to_switch;
    if (!a->handle || !b->handle)
        return FAR_UNKNOWN;
    for (int i = 0; i < a->count; i++)
        links += strncasecmp(a->to[i], b->bus_id, sizeof a->to[i]) == 0;
    if (links > 0)
        return NVML_LINKS + 1 - (links < NVML_LINKS ? links : NVML_LINKS);
    if (nvml->ancestor && nvml->ancestor(a->handle, b->handle, &level) == NVML_OK &&
        level >= NVML_INTERNAL && level <= NVML_SYSTEM)
        return FAR_LEVEL + level;
    return FAR_UNKNOWN;
}

void device_paths_find(struct device_paths *paths, const struct devices *devices)
{
    struct nvml nvml;
    struct end ends[DEVICE_PATHS_MAX] = {{.handle = NULL}};
    const int count = devices->count;
    paths->count = 0;
    if (count < 2 || count > DEVICE_PATHS_MAX || devices->mig || !nvml_open(&nvml))
        return;
    for (int i = 0; i < count; i++) {
        const struct device *device = &devices->list[i];
        ends[i].bus_id = device->bus_id;
        if (device->uuid[0] && nvml.by_uuid(device->uuid, &ends[i].handle) == NVML_OK)
            find_links(&nvml, &ends[i]);
        else
            ends[i].handle = NULL;
        for (int j = 0; j <= i; j++) {
            const int far = i == j ? 0 : find_path(&nvml, &ends[i], &ends[j]);
            paths->far[i][j] = paths->far[j][i] = (unsigned char)far;
            if (far > 0 && far != FAR_UNKNOWN)
                paths->count = count;
        }
    }
    nvml_close(&nvml);
}

/* --- the order -------------------------------------------------------------------------------- */

/* GPUs at `at` and behind it in an order, which stand together. */
struct group {
    int at, count;
};

static int farthest(const struct device_paths *paths, const int *order, const struct group *a,
                    const struct group *b)
{
    int far = 0;
    for (int i = 0; i < a->count; i++)
        for (int j = 0; j < b->count; j++) {
            const int one = paths->far[order[a->at + i]][order[b->at + j]];
            far = one > far ? one : far;
        }
    return far;
}

static void reverse(int *order, int count)
{
    for (int i = 0; i < count / 2; i++) {
        const int first = order[i];
        order[i] = order[count - 1 - i];
        order[count - 1 - i] = first;
    }
}

/* Turns each of two groups around where that brings the ends near that meet in a ring. */
static void turn(const struct device_paths *paths, int *a, int a_count, int *b, int b_count)
{
    int best = 0, least = -1;
    for (int way = 0; way < 4; way++) {
        const int a_first = a[way & 1 ? a_count - 1 : 0], a_last = a[way & 1 ? 0 : a_count - 1];
        const int b_first = b[way & 2 ? b_count - 1 : 0], b_last = b[way & 2 ? 0 : b_count - 1];
        const int far = paths->far[a_last][b_first] + paths->far[b_last][a_first];
        if (least < 0 || far < least) {
            least = far;
            best = way;
        }
    }
    if (best & 1)
        reverse(a, a_count);
    if (best & 2)
        reverse(b, b_count);
}

/* Moves group b behind group a, before which it does not stand. */
static void join(int *order, struct group *groups, int *group_count, int a, int b)
{
    int moved[DEVICE_PATHS_MAX];
    const struct group taken = groups[b];
    const int to = groups[a].at + groups[a].count;
    memcpy(moved, order + taken.at, (size_t)taken.count * sizeof *order);
    memmove(order + to + taken.count, order + to, (size_t)(taken.at - to) * sizeof *order);
    memcpy(order + to, moved, (size_t)taken.count * sizeof *order);
    for (int g = a + 1; g < b; g++)
        groups[g].at += taken.count;
    groups[a].count += taken.count;
    memmove(groups + b, groups + b + 1, (size_t)(--*group_count - b) * sizeof *groups);
}

/* Of a ring of `count` from `start` on, and of its pairs, which add up first. */
static int cost(const struct device_paths *paths, const int *order, int start, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++) {
        const int here = order[(start + i) % paths->count];
        const int next = order[(start + (i + 1) % count) % paths->count];
        sum += paths->far[here][next] * (i % 2 == 0 ? 2 : 1);
    }
    return sum;
}

/* The two groups nearest to each other by their farthest members become one, small ones first,
 * until there is one: GPUs of a switch stand together, then those of a processor. Then as many as
 * are used are taken where they are nearest. */
bool device_paths_order(const struct device_paths *paths, int ranks, int order[DEVICE_PATHS_MAX])
{
    struct group groups[DEVICE_PATHS_MAX];
    int count = paths->count, same[DEVICE_PATHS_MAX] = {0}, start = 0;
    if (ranks < 2 || ranks > count)
        return false;
    for (int i = 0; i < count; i++) {
        order[i] = same[i] = i;
        groups[i] = (struct group){i, 1};
    }
    while (count > 1) {
        int a = 0, b = 1, least = -1;
        for (int i = 0; i < count; i++)
            for (int j = i + 1; j < count; j++) {
                const int far =
                    farthest(paths, order, &groups[i], &groups[j]) * 2 * DEVICE_PATHS_MAX +
                    groups[i].count + groups[j].count;
                if (least < 0 || far < least) {
                    least = far;
                    a = i;
                    b = j;
                }
            }
        turn(paths, order + groups[a].at, groups[a].count, order + groups[b].at, groups[b].count);
        join(order, groups, &count, a, b);
    }
    for (int i = 1; i < paths->count; i++)
        if (cost(paths, order, i, ranks) < cost(paths, order, start, ranks))
            start = i;
    if (cost(paths, order, start, ranks) >= cost(paths, same, 0, ranks))
        return false;
    memcpy(same, order, sizeof same);
    for (int i = 0; i < paths->count; i++)
        order[i] = same[(start + i) % paths->count];
    return true;
}

static bool are_islands(const struct device_paths *paths, int ranks, int size)
{
    for (int i = 0; i < ranks; i++)
        for (int j = 0; j < i; j++)
            if ((paths->far[i][j] <= NVML_LINKS) != (i / size == j / size))
                return false;
    return true;
}

/* Of the first `ranks` devices. */
static int find_island(const struct devices *devices, int ranks)
{
    struct device_paths paths;
    int size = ranks / 2;
    device_paths_find(&paths, devices);
    while (size > 1 && (ranks > paths.count || ranks % size || !are_islands(&paths, ranks, size)))
        size--;
    return size > 1 ? size : 0;
}

bool devices_sort(struct devices *devices, int ranks, int *island)
{
    struct device_paths paths;
    struct device was[DEVICE_PATHS_MAX];
    int order[DEVICE_PATHS_MAX];
    devices_identify(devices);
    device_paths_find(&paths, devices);
    if (!device_paths_order(&paths, ranks, order)) {
        *island = find_island(devices, ranks);
        return false;
    }
    memcpy(was, devices->list, (size_t)devices->count * sizeof *was);
    for (int i = 0; i < devices->count; i++)
        devices->list[i] = was[order[i]];
    *island = find_island(devices, ranks);
    return true;
}

/* --- the matrix ------------------------------------------------------------------------------- */

static void name_path(int far, char text[8])
{
    static const char *const levels[] = {"PIX", "PIX", "PXB", "PHB", "NODE", "SYS"};
    if (far == 0)
        strcpy(text, "X");
    else if (far <= NVML_LINKS)
        snprintf(text, 8, "NV%d", NVML_LINKS + 1 - far);
    else
        strcpy(text, far == FAR_UNKNOWN ? "?" : levels[(far - FAR_LEVEL) / 10]);
}

void device_paths_show(int ranks, FILE *out)
{
    struct devices devices;
    struct device_paths paths;
    char text[8], shown[DDP_TEXT_SHOWN], islands[32] = "";
    int island = 0;
    const bool listed = getenv("CUDA_VISIBLE_DEVICES");
    if (devices_find(&devices) != DDP_OK)
        return;
    devices_identify(&devices);
    if (!listed)
        devices_sort(&devices, ranks > 0 ? ranks : devices.count, &island);
    device_paths_find(&paths, &devices);
    if (island > 0)
        snprintf(islands, sizeof islands, ", islands of %d", island);
    if (paths.count > 0)
        fprintf(out, "GPUs: %d, in the order of ranks%s%s, and what joins them:\n", paths.count,
                listed ? " (CUDA_VISIBLE_DEVICES)" : "", islands);
    for (int i = 0; i < paths.count; i++) {
        fprintf(out, "  %-6s", ddp_text_show(shown, devices.list[i].token));
        for (int j = 0; j < paths.count; j++) {
            name_path(paths.far[i][j], text);
            fprintf(out, " %4s", text);
        }
        fprintf(out, "  %s\n", devices.list[i].bus_id);
    }
    devices_free(&devices);
}
