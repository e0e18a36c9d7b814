/* SPDX-License-Identifier: MIT
 *
 * See bind.h. Sets are made of whole cores while there are enough of them, else of hardware
 * threads; cores that are neighbours in hwloc's order share caches, so each worker's are such. */
#include "config.h"

#include "launcher/bind.h"

#include "core/log.h"
#include "core/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void bindings_free(struct bindings *bindings)
{
    for (int rank = 0; rank < bindings->count; rank++)
        CPU_FREE(bindings->workers[rank].set);
    free(bindings->workers);
    *bindings = (struct bindings){0};
}

#ifdef HAVE_HWLOC

#include <hwloc.h>

bool bindings_useful(void)
{
    char nodes[64] = "";
    if (getenv("HWLOC_XMLFILE") || getenv("HWLOC_SYNTHETIC"))
        return true;
    FILE *file = fopen("/sys/devices/system/node/online", "re"); /* "0", "0-1", "0,8" */
    if (!file)
        return false;
    bool read = fgets(nodes, sizeof nodes, file);
    fclose(file);
    return read && strpbrk(nodes, ",-");
}

/* While the sets are made. */
struct sharing {
    hwloc_topology_t topology;
    hwloc_bitmap_t allowed; /* CPUs that this process may use */
    int workers;
    hwloc_bitmap_t *near; /* of each worker: allowed CPUs near its GPU; all of them when that is not
                             known */
    const struct devices *devices;
    bool near_known;
    hwloc_obj_type_t domain; /* what a worker gets a whole one of */
    hwloc_bitmap_t *sets;    /* of each worker: what it gets */
};

/* --- the machine ----------------------------------------------------------------------------- */

static enum ddp_status load_topology(hwloc_topology_t *topology, bool with_pci)
{
    /* Plugins look for displays and OpenCL, which takes memory and milliseconds; none is needed. */
    const char *const plugins = "HWLOC_PLUGINS_PATH";
    bool ours = setenv(plugins, "/nonexistent", 0) == 0;
    ours = ours && strcmp(getenv(plugins), "/nonexistent") == 0;
    bool made = hwloc_topology_init(topology) == 0;
    if (ours)
        unsetenv(plugins);
    if (!made)
        return ddp_fail(DDP_ERR_SYSTEM, "hwloc cannot be started: %s", strerror(errno));
    if (with_pci) {
        hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_PCI_DEVICE,
                                       HWLOC_TYPE_FILTER_KEEP_IMPORTANT);
        hwloc_topology_set_type_filter(*topology, HWLOC_OBJ_BRIDGE, HWLOC_TYPE_FILTER_KEEP_NONE);
    }
    if (hwloc_topology_load(*topology) == 0)
        return DDP_OK;
    hwloc_topology_destroy(*topology);
    return ddp_fail(DDP_ERR_SYSTEM, "hwloc cannot read the topology of this machine: %s",
                    strerror(errno));
}

/* What the control groups allow, within our own affinity. */
static bool find_allowed(struct sharing *sharing)
{
    hwloc_bitmap_t own = hwloc_bitmap_alloc();
    sharing->allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(sharing->topology));
    if (own && sharing->allowed &&
        hwloc_get_cpubind(sharing->topology, own, HWLOC_CPUBIND_PROCESS) == 0 &&
        hwloc_bitmap_intersects(own, sharing->allowed))
        hwloc_bitmap_and(sharing->allowed, sharing->allowed, own);
    hwloc_bitmap_free(own);
    return sharing->allowed;
}

/* The CPUs near a GPU, by the PCI tree; NULL when it is not known. */
static hwloc_const_bitmap_t cpus_near(const struct sharing *sharing, const char *bus_id)
{
    unsigned int domain, bus, slot, function = 0;
    if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) < 3)
        return NULL;
    hwloc_obj_t device = hwloc_get_pcidev_by_busid(sharing->topology, domain, bus, slot, function);
    hwloc_obj_t near = device ? hwloc_get_non_io_ancestor_obj(sharing->topology, device) : NULL;
    if (!near || !hwloc_bitmap_intersects(near->cpuset, sharing->allowed))
        return NULL;
    return near->cpuset;
}

/* Finds out which CPUs are near each worker: known for all, or taken as known for none. */
static bool find_near(struct sharing *sharing)
{
    sharing->near = ddp_array_alloc((size_t)sharing->workers, sizeof(hwloc_bitmap_t));
    if (!sharing->near)
        return false;
    sharing->near_known = sharing->devices->count >= sharing->workers;
    for (int rank = 0; rank < sharing->workers; rank++) {
        hwloc_const_bitmap_t near =
            sharing->near_known ? cpus_near(sharing, sharing->devices->list[rank].bus_id) : NULL;
        sharing->near_known = near;
        if (!(sharing->near[rank] = hwloc_bitmap_dup(sharing->allowed)))
            return false;
        if (near)
            hwloc_bitmap_and(sharing->near[rank], sharing->allowed, near);
    }
    for (int rank = 0; rank < sharing->workers && !sharing->near_known; rank++)
        hwloc_bitmap_copy(sharing->near[rank], sharing->allowed);
    return true;
}

/* Leaves of the topology only what is allowed. */
static bool restrict_topology(struct sharing *sharing)
{
    return hwloc_topology_restrict(sharing->topology, sharing->allowed,
                                   HWLOC_RESTRICT_FLAG_REMOVE_CPULESS) == 0;
}

/* --- sharing out ----------------------------------------------------------------------------- */

static int count_in(const struct sharing *sharing, hwloc_obj_type_t type,
                    hwloc_const_bitmap_t available)
{
    int count = 0;
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(sharing->topology, type, object)))
        count += hwloc_bitmap_intersects(object->cpuset, available);
    return count;
}

/* Splits the objects of a type in `available` among the workers of a group, in their order. */
static void split(struct sharing *sharing, hwloc_obj_type_t type, hwloc_const_bitmap_t available,
                  const int *group, int size)
{
    const int count = count_in(sharing, type, available);
    int index = 0, member = 0;
    hwloc_obj_t object = NULL;
    while ((object = hwloc_get_next_obj_by_type(sharing->topology, type, object))) {
        if (!hwloc_bitmap_intersects(object->cpuset, available))
            continue;
        while ((int64_t)(member + 1) * count / size <= index)
            member++;
        hwloc_bitmap_or(sharing->sets[group[member]], sharing->sets[group[member]], object->cpuset);
        index++;
    }
    for (int i = 0; i < size; i++)
        hwloc_bitmap_and(sharing->sets[group[i]], sharing->sets[group[i]], available);
}

/* Disjoint sets for the workers near the same CPUs. Where those are too few they share them. */
static void share_group(struct sharing *sharing, const int *group, int size, hwloc_bitmap_t taken)
{
    hwloc_const_bitmap_t near = sharing->near[group[0]];
    hwloc_bitmap_t available = hwloc_bitmap_alloc();
    if (available)
        hwloc_bitmap_andnot(available, near, taken);
    if (available && count_in(sharing, HWLOC_OBJ_CORE, available) >= size)
        split(sharing, HWLOC_OBJ_CORE, available, group, size);
    else if (available && count_in(sharing, HWLOC_OBJ_PU, available) >= size)
        split(sharing, HWLOC_OBJ_PU, available, group, size);
    else
        for (int i = 0; i < size; i++)
            hwloc_bitmap_copy(sharing->sets[group[i]], near);
    hwloc_bitmap_or(taken, taken, near);
    hwloc_bitmap_free(available);
}

/* BIND_CORE and BIND_GPU: groups of workers near the same CPUs, the smallest sets of CPUs first,
 * since a larger one may contain them. */
static enum ddp_status share_cores(struct sharing *sharing)
{
    int *group = ddp_array_alloc((size_t)sharing->workers, sizeof *group);
    bool *done = ddp_array_alloc((size_t)sharing->workers, sizeof *done);
    hwloc_bitmap_t taken = hwloc_bitmap_alloc();
    bool enough = group && done && taken;
    while (enough) {
        int first = -1, size = 0;
        for (int rank = 0; rank < sharing->workers; rank++)
            if (!done[rank] && (first < 0 || hwloc_bitmap_weight(sharing->near[rank]) <
                                                 hwloc_bitmap_weight(sharing->near[first])))
                first = rank;
        if (first < 0)
            break;
        for (int rank = first; rank < sharing->workers; rank++)
            if (!done[rank] && hwloc_bitmap_isequal(sharing->near[rank], sharing->near[first])) {
                group[size++] = rank;
                done[rank] = true;
            }
        share_group(sharing, group, size, taken);
    }
    hwloc_bitmap_free(taken);
    free(group);
    free(done);
    return enough ? DDP_OK : ddp_fail(DDP_ERR_MEMORY, "out of memory");
}

/* The number-th of the domains (NUMA nodes, say) that have some of the CPUs; nodes of the same CPUs
 * (of another kind of memory) count once. */
static hwloc_obj_t node_of(const struct sharing *sharing, hwloc_const_bitmap_t cpus, int number,
                           int *count)
{
    hwloc_obj_t node = NULL, previous = NULL, found = NULL;
    *count = 0;
    while ((node = hwloc_get_next_obj_by_type(sharing->topology, sharing->domain, node))) {
        bool again = previous && hwloc_bitmap_isequal(previous->cpuset, node->cpuset);
        previous = node;
        if (again || !hwloc_bitmap_intersects(node->cpuset, cpus))
            continue;
        if (*count == number)
            found = node;
        ++*count;
    }
    return found;
}

/* A whole domain for each worker; workers of the same domain share it. */
static void share_nodes(struct sharing *sharing)
{
    for (int rank = 0; rank < sharing->workers; rank++) {
        int nodes, before = 0, size = 0;
        node_of(sharing, sharing->near[rank], 0, &nodes);
        for (int other = 0; other < sharing->workers; other++)
            if (hwloc_bitmap_isequal(sharing->near[other], sharing->near[rank])) {
                before += other < rank;
                size++;
            }
        int number = (int)((int64_t)before * nodes / size);
        hwloc_obj_t node = node_of(sharing, sharing->near[rank], number, &nodes);
        hwloc_bitmap_and(sharing->sets[rank], sharing->allowed,
                         node ? node->cpuset : sharing->allowed);
    }
}

/* --- the result ------------------------------------------------------------------------------ */

static void describe(const struct sharing *sharing, int rank, struct binding *binding)
{
    char cpus[64], nodes[48], near[64] = "", others[48] = "";
    hwloc_bitmap_t nodeset = hwloc_bitmap_alloc();
    hwloc_bitmap_list_snprintf(cpus, sizeof cpus, sharing->sets[rank]);
    if (nodeset)
        hwloc_cpuset_to_nodeset(sharing->topology, sharing->sets[rank], nodeset);
    hwloc_bitmap_list_snprintf(nodes, sizeof nodes, nodeset);
    bool several = nodeset && hwloc_bitmap_weight(nodeset) > 1;
    hwloc_bitmap_free(nodeset);
    if (sharing->near_known)
        snprintf(near, sizeof near, ", near GPU %s", sharing->devices->list[rank].bus_id);
    if (binding->sharers > 1)
        snprintf(others, sizeof others, ", shared by %d workers", binding->sharers);
    snprintf(binding->text, sizeof binding->text, "CPU%s %s of NUMA node%s %s%s%s",
             binding->cpus == 1 ? "" : "s", cpus, several ? "s" : "", nodes, near, others);
}

static enum ddp_status take_result(const struct sharing *sharing, struct bindings *bindings)
{
    bindings->workers = ddp_array_alloc((size_t)sharing->workers, sizeof *bindings->workers);
    if (!bindings->workers)
        return DDP_ERR_MEMORY;
    for (int rank = 0; rank < sharing->workers; rank++) {
        struct binding *binding = &bindings->workers[bindings->count++];
        hwloc_const_bitmap_t set = sharing->sets[rank];
        size_t limit = (size_t)hwloc_bitmap_last(set) + 1;
        binding->set_bytes = CPU_ALLOC_SIZE(limit);
        binding->set = CPU_ALLOC(limit);
        if (!binding->set)
            return ddp_fail(DDP_ERR_MEMORY, "out of memory");
        CPU_ZERO_S(binding->set_bytes, binding->set);
        for (int cpu = hwloc_bitmap_first(set); cpu >= 0; cpu = hwloc_bitmap_next(set, cpu))
            CPU_SET_S((size_t)cpu, binding->set_bytes, binding->set);
        binding->cpus = hwloc_bitmap_weight(set);
        for (int other = 0; other < sharing->workers; other++)
            binding->sharers += hwloc_bitmap_isequal(sharing->sets[other], set);
        describe(sharing, rank, binding);
    }
    return DDP_OK;
}

static bool open_sharing(struct sharing *sharing)
{
    sharing->sets = ddp_array_alloc((size_t)sharing->workers, sizeof(hwloc_bitmap_t));
    if (!sharing->sets)
        return false;
    for (int rank = 0; rank < sharing->workers; rank++)
        if (!(sharing->sets[rank] = hwloc_bitmap_alloc()))
            return false;
    return find_allowed(sharing) && find_near(sharing) && restrict_topology(sharing);
}

static void close_sharing(struct sharing *sharing)
{
    for (int rank = 0; rank < sharing->workers; rank++) {
        if (sharing->sets)
            hwloc_bitmap_free(sharing->sets[rank]);
        if (sharing->near)
            hwloc_bitmap_free(sharing->near[rank]);
    }
    free(sharing->sets);
    free(sharing->near);
    hwloc_bitmap_free(sharing->allowed);
    hwloc_topology_destroy(sharing->topology);
}

/* Is each worker's GPU near one NUMA node, of several? */
static bool nodes_differ(const struct sharing *sharing)
{
    int nodes;
    node_of(sharing, sharing->allowed, 0, &nodes);
    bool useful = sharing->near_known && nodes > 1;
    for (int rank = 0; rank < sharing->workers && useful; rank++) {
        node_of(sharing, sharing->near[rank], 0, &nodes);
        useful = nodes == 1;
    }
    return useful;
}

static enum ddp_status share(struct sharing *sharing, enum bind_kind kind,
                             struct bindings *bindings)
{
    int cpus = hwloc_bitmap_weight(sharing->allowed);
    if (kind == BIND_AUTO && !nodes_differ(sharing))
        return DDP_OK;
    if (kind == BIND_GPU && !sharing->near_known)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "--bind gpu: the GPU of each worker is not known: there %s %d GPU%s "
                        "for %d workers, by CUDA_VISIBLE_DEVICES and NVML; --bind core needs none",
                        sharing->devices->count == 1 ? "is" : "are", sharing->devices->count,
                        sharing->devices->count == 1 ? "" : "s", sharing->workers);
    if (kind == BIND_L3 || kind == BIND_SOCKET)
        sharing->domain = kind == BIND_L3 ? HWLOC_OBJ_L3CACHE : HWLOC_OBJ_PACKAGE;
    if (hwloc_get_nbobjs_by_type(sharing->topology, sharing->domain) <= 0)
        return ddp_fail(DDP_ERR_UNSUPPORTED,
                        "--bind %s: this machine shows no %s; --bind numa "
                        "binds to NUMA nodes",
                        kind == BIND_L3 ? "l3" : "socket",
                        kind == BIND_L3 ? "L3 caches" : "sockets");
    if (kind == BIND_AUTO || kind == BIND_NUMA || kind == BIND_SOCKET || kind == BIND_L3) {
        share_nodes(sharing);
    } else if (!sharing->near_known && sharing->workers > cpus) {
        ddp_log(DDP_LOG_WARNING, "--bind core: %d workers on %d CPU%s: they are not bound",
                sharing->workers, cpus, cpus == 1 ? "" : "s");
        return DDP_OK;
    } else {
        enum ddp_status status = share_cores(sharing);
        if (status != DDP_OK)
            return status;
    }
    return take_result(sharing, bindings);
}

enum ddp_status bindings_make(struct bindings *bindings, enum bind_kind kind, int workers,
                              const struct devices *devices)
{
    struct sharing sharing = {.workers = workers, .devices = devices, .domain = HWLOC_OBJ_NUMANODE};
    *bindings = (struct bindings){0};
    if (kind == BIND_NONE)
        return DDP_OK;
    enum ddp_status status = load_topology(&sharing.topology, devices->count >= workers);
    if (status != DDP_OK)
        return status;
    if (open_sharing(&sharing))
        status = share(&sharing, kind, bindings);
    else
        status = ddp_fail(DDP_ERR_SYSTEM, "--bind: out of memory, or no usable CPU");
    close_sharing(&sharing);
    if (status != DDP_OK)
        bindings_free(bindings);
    return status;
}

#else

bool bindings_useful(void)
{
    return false;
}

enum ddp_status bindings_make(struct bindings *bindings, enum bind_kind kind, int workers,
                              const struct devices *devices)
{
    (void)workers;
    (void)devices;
    *bindings = (struct bindings){0};
    if (kind == BIND_NONE || kind == BIND_AUTO)
        return DDP_OK;
    return ddp_fail(DDP_ERR_UNSUPPORTED, "--bind: this ddprun was built without hwloc; install "
                                         "libhwloc-dev, and configure and build it again");
}

#endif
