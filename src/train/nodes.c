/* SPDX-License-Identifier: MIT
 *
 * See nodes.h. */
#include "config.h"

#include "train/nodes.h"

#include "core/hash.h"
#include "core/log.h"
#include "core/memory.h"
#include "graph/describe.h"
#include "job/job.h"
#include "train/run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define LOOKS   20 /* for a file that a network file system shows late */
#define LOOK_NS 50000000

/* --- names ------------------------------------------------------------------------------------ */

static enum ddp_status gather_hosts(struct ddp_run *run)
{
    char own[DDP_TRAIN_HOST] = "";
    run->hosts = ddp_array_alloc((size_t)run->planned.plan.world_size, DDP_TRAIN_HOST);
    if (!run->hosts)
        return DDP_ERR_MEMORY;
    gethostname(own, sizeof own - 1);
    return ddp_comm_all_gather(run->comm, own, run->hosts, sizeof own / sizeof(int64_t), DDP_I64);
}

const char *ddp_run_where(const struct ddp_run *run, int rank, char text[DDP_TRAIN_WHERE])
{
    text[0] = '\0';
    if (run->planned.plan.nodes > 1)
        snprintf(text, DDP_TRAIN_WHERE, " on node %d (%.*s)", ddp_job_node_of(run->job, rank),
                 DDP_TRAIN_HOST, run->hosts + (size_t)rank * DDP_TRAIN_HOST);
    return text;
}

/* --- started alike? --------------------------------------------------------------------------- */

/* What must be the same on all ranks, as numbers, each with the words for a message. Paths may
 * differ; what they hold is compared. */
struct traits {
    int count;
    int64_t values[DDP_OPTIONS + 8];
    const char *names[DDP_OPTIONS + 8];
    bool options[DDP_OPTIONS + 8]; /* the name is that of an option */
};

static void add_trait(struct traits *traits, const char *name, bool option, uint64_t value)
{
    traits->names[traits->count] = name;
    traits->options[traits->count] = option;
    traits->values[traits->count++] = (int64_t)value;
}

static uint64_t value_of(const struct ddp_train_options *options, const struct ddp_option *row)
{
    const char *member = (const char *)options + row->offset;
    int number;
    uint64_t value = 0;
    switch (row->type) {
    case DDP_OPTION_FLAG:
        return *(const bool *)member;
    case DDP_OPTION_CHOICE:
        memcpy(&number, member, sizeof number);
        return (uint64_t)number;
    case DDP_OPTION_INT:
    case DDP_OPTION_UINT:
    case DDP_OPTION_REAL:
        memcpy(&value, member, sizeof value);
        return value;
    case DDP_OPTION_TEXT:
    case DDP_OPTION_CUSTOM:
        break;
    }
    return ddp_train_given(options, row->name);
}

static void add_options(struct traits *traits, const struct ddp_train_options *options)
{
    for (const struct ddp_option *row = ddp_train_option_table(); row->name; row++)
        if (!row->alias_of && !row->gone && !(row->scope & DDP_OF_NODE))
            add_trait(traits, row->name, true, value_of(options, row));
}

static enum ddp_status add_data(struct traits *traits, const ddp_dataset *data, const char *name)
{
    uint64_t fingerprint = 0;
    enum ddp_status status = DDP_OK;
    if (data && !ddp_dataset_info(data)->planned)
        status = ddp_dataset_fingerprint(data, &fingerprint);
    add_trait(traits, name, false, data ? (uint64_t)ddp_dataset_info(data)->sample_count : 0);
    add_trait(traits, name, false, fingerprint);
    return status;
}

/* Of its parameters, by name and shape. */
static uint64_t hash_parameters(const ddp_graph *graph)
{
    uint64_t hash = 0;
    for (int i = 0; i < ddp_graph_parameter_count(graph); i++) {
        const struct ddp_parameter *parameter = ddp_graph_parameter_at(graph, i);
        hash = hash * 31 + ddp_hash(parameter->name, strlen(parameter->name));
        hash = hash * 31 + ddp_hash(parameter->dims, sizeof parameter->dims);
    }
    for (int i = 0; i < ddp_graph_frozen_count(graph); i++) {
        const struct ddp_parameter *parameter = ddp_graph_frozen_at(graph, i);
        hash = hash * 31 + ddp_hash(parameter->name, strlen(parameter->name));
        hash = hash * 31 + ddp_hash(parameter->dims, sizeof parameter->dims);
        hash = hash * 31 + (uint64_t)parameter->dtype;
    }
    return hash;
}

static enum ddp_status collect_traits(struct traits *traits, const struct ddp_run *run)
{
    const char *model = ddp_graph_description(run->planned.graph),
               *device = run->planned.plan.device.name;
    traits->count = 0;
    add_options(traits, run->planned.options);
    add_trait(traits, "the device", false, ddp_hash(device, strlen(device)));
    add_trait(traits, "the model", false, ddp_hash(model, strlen(model)));
    add_trait(traits, "the model", false, hash_parameters(run->planned.graph));
    if (run->planned.plan.nodes == 1 && !run->planned.options->own_data)
        return DDP_OK; /* the same files */
    enum ddp_status status = add_data(traits, run->planned.data, "the data");
    return status == DDP_OK ? add_data(traits, run->planned.test, "the test data") : status;
}

/* Rank 0 says which node or rank has what of its own. */
static void tell(const struct ddp_run *run, const struct traits *traits, const int64_t *differs)
{
    char there[DDP_TRAIN_WHERE], here[DDP_TRAIN_WHERE] = " on rank 0";
    int rank = 0;
    while (differs[rank] < 0)
        rank++;
    const char *name = traits->names[differs[rank]];
    const bool option = traits->options[differs[rank]];
    const bool nodes = rank >= ddp_job_node_starts(run->job)[1]; /* not of one */
    if (nodes)
        ddp_run_where(run, 0, here);
    if (nodes)
        ddp_run_where(run, rank, there);
    else
        snprintf(there, sizeof there, " on rank %d", rank);
    ddp_log(DDP_LOG_ERROR, "%s%s%s not the same%s as%s: %s %s %s", option ? "--" : "", name,
            strcmp(name, "the data") == 0 || strcmp(name, "the test data") == 0 ? " are" : " is",
            there, here, option ? "start all" : "all", nodes ? "nodes" : "ranks",
            option ? "with the same options" : "must train the same model, on the same data");
}

/* All ranks learn whether any differs from rank 0. */
static enum ddp_status compare_traits(const struct ddp_run *run, const struct traits *own,
                                      int64_t *first, int64_t *differs)
{
    const int ranks = run->planned.plan.world_size;
    memcpy(first, own->values, sizeof own->values);
    enum ddp_status status =
        ddp_comm_broadcast(run->comm, first, sizeof own->values / sizeof *first, DDP_I64, 0);
    int64_t at = -1;
    for (int i = own->count - 1; i >= 0; i--)
        at = first[i] == own->values[i] ? at : i;
    if (status == DDP_OK)
        status = ddp_comm_all_gather(run->comm, &at, differs, 1, DDP_I64);
    bool same = true;
    for (int r = 0; status == DDP_OK && r < ranks; r++)
        same = same && differs[r] < 0;
    if (status != DDP_OK || same)
        return status;
    const bool changes = ddp_job_nodes_change(run->job);
    if (run->planned.plan.rank == 0 || (changes && at >= 0 && ddp_job_node_rank(run->job) == 0))
        tell(run, own, differs);
    /* No rank ends the job before it is logged; nor does one that a changing job can keep. */
    status = ddp_comm_barrier(run->comm);
    if (status == DDP_OK && changes && at < 0)
        status = ddp_comm_barrier(run->comm);
    return status == DDP_OK ? DDP_ERR_INVALID : status;
}

enum ddp_status ddp_run_meet_nodes(struct ddp_run *run)
{
    const int ranks = run->planned.plan.world_size;
    if (ranks == 1)
        return DDP_OK;
    struct traits *own = ddp_array_alloc(1, sizeof *own);
    int64_t *first = ddp_array_alloc(1, sizeof own->values);
    int64_t *differs = ddp_array_alloc((size_t)ranks, sizeof *differs);
    enum ddp_status status = own && first && differs ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK && run->planned.plan.nodes > 1)
        status = gather_hosts(run);
    if (status == DDP_OK)
        status = collect_traits(own, run);
    if (status == DDP_OK)
        status = compare_traits(run, own, first, differs);
    free(differs);
    free(first);
    free(own);
    return status;
}

/* --- one directory? --------------------------------------------------------------------------- */

enum sight {
    SEES,        /* the mark of rank 0, or did not look */
    SEES_NONE,   /* ... not */
    SEES_OTHERS, /* ... but checkpoints, in a directory of its own */
};

static int64_t look(const struct ddp_run *run, uint64_t mark)
{
    const char *path = run->planned.options->checkpoint;
    const struct timespec pause = {.tv_nsec = LOOK_NS};
    for (int i = 0; i < LOOKS; i++) {
        if (ddp_checkpoint_dir_has_mark(path, mark))
            return SEES;
        nanosleep(&pause, NULL);
    }
    return ddp_checkpoint_dir_has_checkpoints(path) ? SEES_OTHERS : SEES_NONE;
}

/* Rank 0: of the first node that sees another directory. */
static enum ddp_status judge(const struct ddp_run *run, const int64_t *sights)
{
    char there[DDP_TRAIN_WHERE], here[DDP_TRAIN_WHERE];
    const char *path = run->planned.options->checkpoint;
    int found = -1;
    for (int r = run->planned.plan.world_size - 1; r >= 0; r--)
        if (sights[r] != SEES && (found < 0 || sights[r] >= sights[found]))
            found = r;
    if (found < 0)
        return DDP_OK;
    ddp_run_where(run, found, there);
    ddp_run_where(run, 0, here);
    if (run->planned.options->resume && sights[found] == SEES_OTHERS &&
        !ddp_checkpoint_dir_has_checkpoints(path))
        return ddp_fail(DDP_ERR_INVALID,
                        "--resume: %s has no checkpoint%s, which reads them, but it has%s: make "
                        "that node 0, or copy the directory, or keep it where all nodes see it",
                        path, here, there);
    ddp_log(DDP_LOG_WARNING,
            "--checkpoint %s is not shared: what is written%s is not seen%s; to resume, node 0 "
            "must be the same machine again",
            path, here, there);
    return DDP_OK;
}

enum ddp_status ddp_run_check_directory(struct ddp_run *run)
{
    const struct ddp_train_plan *plan = &run->planned.plan;
    const bool marks = plan->rank == 0 && run->checkpoint_dir.path;
    uint64_t mark = 0;
    if (plan->nodes == 1 || !run->planned.options->checkpoint || run->planned.options->plan)
        return DDP_OK;
    int64_t *sights = ddp_array_alloc((size_t)plan->world_size, sizeof *sights);
    enum ddp_status status = sights ? DDP_OK : DDP_ERR_MEMORY;
    if (status == DDP_OK && marks && getrandom(&mark, sizeof mark, 0) != sizeof mark)
        mark = (uint64_t)getpid();
    if (status == DDP_OK && marks)
        status = ddp_checkpoint_dir_mark(&run->checkpoint_dir, mark);
    if (status == DDP_OK)
        status = ddp_comm_broadcast(run->comm, &mark, 1, DDP_I64, 0);
    const bool looks = plan->rank > 0 && ddp_job_node_rank(run->job) == 0;
    const int64_t sight = status == DDP_OK && looks ? look(run, mark) : SEES;
    if (status == DDP_OK)
        status = ddp_comm_all_gather(run->comm, &sight, sights, 1, DDP_I64);
    if (marks)
        ddp_checkpoint_dir_unmark(&run->checkpoint_dir, mark);
    if (status == DDP_OK && plan->rank == 0)
        status = judge(run, sights);
    free(sights);
    return status;
}
