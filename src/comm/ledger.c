/* SPDX-License-Identifier: MIT
 *
 * See ledger.h. */
#include "config.h"

#include "comm/ledger.h"

#include "comm/heap.h"
#include "comm/wait.h"
#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/trace.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#define SETUP_MS 600000 /* for rank 0 to come up */
#define WATCH_MS 20     /* without a launcher: until the awaited rank is looked after */

const struct ddp_comm_kind_info ddp_comm_kinds[] = {
    [DDP_COMM_CREATE] = {.name = "set-up"},
    [DDP_COMM_DESTROY] = {.name = "end"},
    [DDP_COMM_ALLOC] = {.name = "alloc", .bytes = true},
    [DDP_COMM_ALLOC_SHARED] = {.name = "alloc", .details = "alloc of shared memory", .bytes = true},
    [DDP_COMM_FREE] = {.name = "free"},
    [DDP_COMM_BARRIER] = {.name = "barrier"},
    [DDP_COMM_ALLREDUCE] = {.name = "all-reduce", .elements = true, .reduces = true},
    [DDP_COMM_ALLREDUCE_START] = {.name = "all-reduce",
                                  .board = "all-reduce+",
                                  .details = "all-reduce (started)",
                                  .elements = true,
                                  .reduces = true,
                                  .starts = true},
    [DDP_COMM_REDUCE_SCATTER] = {.name = "reduce-scatter", .elements = true, .reduces = true},
    [DDP_COMM_REDUCE_SLICES_START] = {.name = "reduce-scatter",
                                      .board = "reduce-scatter+",
                                      .details = "reduce-scatter (started)",
                                      .elements = true,
                                      .reduces = true,
                                      .slices = true,
                                      .starts = true},
    [DDP_COMM_ALL_GATHER] = {.name = "all-gather", .elements = true},
    [DDP_COMM_GATHER_SLICES] = {.name = "all-gather",
                                .details = "all-gather of slices",
                                .elements = true,
                                .slices = true},
    [DDP_COMM_GATHER_SLICES_START] = {.name = "all-gather",
                                      .board = "all-gather+",
                                      .details = "all-gather of slices (started)",
                                      .elements = true,
                                      .slices = true,
                                      .starts = true},
    [DDP_COMM_GATHER_RANGES] = {.name = "all-gather",
                                .details = "all-gather of parts",
                                .bytes = true},
    [DDP_COMM_BROADCAST] = {.name = "broadcast", .elements = true},
    [DDP_COMM_OPEN_CHANNEL] = {.name = "open channel", .details = "channel", .bytes = true},
};

/* --- calls in words --- */

void ddp_comm_describe(const struct ddp_comm_place *place, const struct ddp_comm_call *call,
                       char *text, size_t size)
{
    static const char *const dtypes[] = {"f32", "f64", "i32", "i64", "bf16"};
    static const char *const ops[] = {"sum", "min", "max"};
    if ((unsigned)call->kind > DDP_COMM_OPEN_CHANNEL) { /* the others' memory may hold anything */
        snprintf(text, size, "an unknown collective");
        return;
    }
    const struct ddp_comm_kind_info *kind = &ddp_comm_kinds[call->kind];
    char op[16] = "", count[48] = "", root[48] = "";
    if (kind->reduces)
        snprintf(op, sizeof op, " (%s%s)", (unsigned)call->op <= DDP_MAX ? ops[call->op] : "?",
                 call->fast ? ", fast" : "");
    if (kind->elements || kind->bytes)
        snprintf(count, sizeof count, " of %" PRIu64 " %s", call->count,
                 kind->bytes                         ? "bytes"
                 : (unsigned)call->dtype <= DDP_BF16 ? dtypes[call->dtype]
                                                     : "?");
    if (call->kind == DDP_COMM_BROADCAST)
        snprintf(root, sizeof root, " from rank %d", ddp_comm_job_rank(place, call->root));
    if (call->kind == DDP_COMM_OPEN_CHANNEL)
        snprintf(root, sizeof root, ", %u slots, rank %d to %d", call->slots,
                 ddp_comm_job_rank(place, call->root), ddp_comm_job_rank(place, call->to));
    snprintf(text, size, "%s%s%s%s", kind->details ? kind->details : kind->name, op, count, root);
}

/* --- setting up --- */

/* What rank 0 hands to the others. */
struct invitation {
    uint64_t offset, bytes;
};

static enum ddp_status find(struct ddp_ledger *ledger, struct invitation *invitation, size_t bytes)
{
    const struct ddp_comm_place *place = ledger->place;
    if (place->node_rank == 0) {
        invitation->bytes = bytes;
        return ddp_heap_reserve(place->job, bytes, place->node_size, &invitation->offset);
    }
    enum ddp_status status =
        ddp_job_get_node_id(place->job, place->id_slot, invitation, sizeof *invitation,
                            place->timeout_ms < 0 ? SETUP_MS : place->timeout_ms);
    if (status == DDP_OK && invitation->bytes != bytes) {
        ddp_job_abort(place->job); /* the others wait for this rank */
        status = ddp_fail(DDP_ERR_MISMATCH,
                          "ranks create different communicators, or run different versions of "
                          "libddp");
    }
    return status;
}

enum ddp_status ddp_ledger_open(struct ddp_ledger *ledger, const struct ddp_comm_place *place,
                                uint32_t ring, size_t rest_bytes)
{
    const size_t line = sizeof(struct ddp_ledger_line) + ring * sizeof(struct ddp_ledger_entry);
    const size_t lines = (size_t)place->node_size * line;
    const size_t bytes = ddp_align_up(lines + rest_bytes, DDP_PAGE);
    struct invitation invitation = {.offset = 0};
    void *memory;
    ledger->place = place;
    enum ddp_status status = find(ledger, &invitation, bytes);
    if (status == DDP_OK)
        status = ddp_heap_map(place->job, invitation.offset, bytes, invitation.offset,
                              place->node_rank == 0 ? bytes : 0, &memory);
    if (status != DDP_OK)
        return status;
    ledger->lines = memory;
    ledger->line_bytes = line;
    ledger->ring = ring;
    ledger->rest = ledger->lines + lines;
    ledger->bytes = bytes;
    if (place->node_rank == 0)
        return ddp_job_put_node_id(place->job, place->id_slot, &invitation, sizeof invitation);
    return DDP_OK;
}

void ddp_ledger_close(struct ddp_ledger *ledger)
{
    if (ledger->lines)
        munmap(ledger->lines, ledger->bytes);
    ledger->lines = NULL;
}

/* --- announcing --- */

/* Stores a word of this rank's line and wakes who sleeps on it. */
static void publish(struct ddp_ledger *ledger, _Atomic uint32_t *word, uint32_t value)
{
    ddp_comm_publish(word, value, &ddp_ledger_line(ledger, ledger->place->node_rank)->sleepers);
}

/* What all ranks must agree on, beside `count`. No call has slices and a root; ranks are less than
 * 4096 (DDP_BOARD_MAX_WORLD), and slots than 256. */
static uint64_t pack(const struct ddp_comm_call *call)
{
    const uint32_t ends = (uint32_t)call->root | (uint32_t)call->to << 12 | call->slots << 24;
    return (uint64_t)call->kind | (uint64_t)call->dtype << 8 | (uint64_t)call->op << 16 |
           (uint64_t)call->fast << 24 | (uint64_t)(call->grain | ends) << 32;
}

void ddp_comm_pack(const struct ddp_comm_call *call, uint64_t words[2])
{
    words[0] = call->count;
    words[1] = pack(call);
}

static struct ddp_comm_call unpack(const uint64_t words[2])
{
    const uint32_t ends = (uint32_t)(words[1] >> 32);
    return (struct ddp_comm_call){.count = words[0],
                                  .kind = (enum ddp_comm_kind)(words[1] & 255),
                                  .dtype = (enum ddp_dtype)(words[1] >> 8 & 255),
                                  .op = (enum ddp_redop)(words[1] >> 16 & 255),
                                  .fast = words[1] >> 24 & 1,
                                  .root = (int32_t)(ends & 0xfff),
                                  .to = (int32_t)(ends >> 12 & 0xfff),
                                  .slots = ends >> 24};
}

static void say_difference(const struct ddp_comm_place *place, char text[DDP_LEDGER_DIFFERENCE],
                           uint32_t number, const uint64_t own[2], int other,
                           const uint64_t theirs[2])
{
    const struct ddp_comm_call mine = unpack(own), other_call = unpack(theirs);
    char here[96], there[96];
    ddp_comm_describe(place, &mine, here, sizeof here);
    ddp_comm_describe(place, &other_call, there, sizeof there);
    snprintf(text, DDP_LEDGER_DIFFERENCE, "collective %" PRIu32 ": rank %d calls %s, rank %d %s",
             number, ddp_comm_job_rank(place, place->rank), here, ddp_comm_job_rank(place, other),
             there);
}

enum ddp_status ddp_comm_differ(const struct ddp_comm_place *place, uint32_t number,
                                const uint64_t own[2], int other, const uint64_t theirs[2])
{
    char text[DDP_LEDGER_DIFFERENCE];
    say_difference(place, text, number, own, other, theirs);
    return ddp_fail(DDP_ERR_MISMATCH, "%s", text);
}

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

uint32_t ddp_ledger_post(struct ddp_ledger *ledger, const struct ddp_comm_call *call,
                         uint64_t offset, const void *payload, size_t payload_bytes)
{
    const uint32_t number = ledger->next++;
    const uint64_t words[] = {call->count, pack(call)};
    struct ddp_ledger_entry *mine = ddp_ledger_entry(ledger, ledger->place->node_rank, number);
    atomic_store_explicit(&mine->sequence, number, memory_order_relaxed);
    ledger->calls = mix(mix(ledger->calls, words[0]), words[1]);
    atomic_store_explicit(&mine->words[0], words[0], memory_order_release);
    atomic_store_explicit(&mine->words[1], words[1], memory_order_release);
    mine->offset = offset;
    if (payload_bytes > 0)
        memcpy(mine->payload, payload, payload_bytes);
    publish(ledger, &mine->sequence, number + 1);
    return number;
}

void ddp_ledger_done(struct ddp_ledger *ledger, uint32_t number)
{
    publish(ledger, &ddp_ledger_line(ledger, ledger->place->node_rank)->done, number + 1);
}

/* --- comparing --- */

/* False when the rank has overwritten it. */
static bool read_words(const struct ddp_ledger *ledger, int rank, uint32_t number,
                       uint64_t words[2])
{
    struct ddp_ledger_entry *entry = ddp_ledger_entry(ledger, rank, number);
    if (atomic_load_explicit(&entry->sequence, memory_order_acquire) != number + 1)
        return false;
    words[0] = atomic_load_explicit(&entry->words[0], memory_order_acquire);
    words[1] = atomic_load_explicit(&entry->words[1], memory_order_acquire);
    return atomic_load_explicit(&entry->sequence, memory_order_relaxed) == number + 1;
}

/* Compares with a rank that has come to this call. */
static enum ddp_status compare(struct ddp_ledger *ledger, int peer, uint32_t number,
                               const uint64_t mine[2])
{
    const struct ddp_comm_place *place = ledger->place;
    uint64_t theirs[2];
    if (!read_words(ledger, peer, number, theirs) || (mine[0] == theirs[0] && mine[1] == theirs[1]))
        return DDP_OK;
    say_difference(place, ledger->difference, number, mine, place->starts[place->node] + peer,
                   theirs);
    return ddp_fail(DDP_ERR_MISMATCH, "%s", ledger->difference);
}

static bool has_called(const struct ddp_ledger *ledger, int rank, uint32_t number)
{
    return ddp_comm_reached(&ddp_ledger_entry(ledger, rank, number)->sequence, number + 1);
}

enum ddp_status ddp_ledger_look(struct ddp_ledger *ledger, uint32_t number, bool *all)
{
    uint64_t mine[2];
    const bool known = read_words(ledger, ledger->place->node_rank, number, mine);
    *all = true;
    for (int peer = 0; peer < ledger->place->node_size; peer++) {
        const bool there = has_called(ledger, peer, number);
        enum ddp_status status = there && known ? compare(ledger, peer, number, mine) : DDP_OK;
        if (status != DDP_OK)
            return status;
        *all = *all && there;
    }
    return DDP_OK;
}

enum ddp_status ddp_ledger_compare(struct ddp_ledger *ledger)
{
    for (bool all = true; ledger->compared != ledger->next; ledger->compared++) {
        enum ddp_status status = ddp_ledger_look(ledger, ledger->compared, &all);
        if (status != DDP_OK || !all)
            return status;
    }
    return DDP_OK;
}

void ddp_ledger_missing(const struct ddp_ledger *ledger, uint32_t number, char *text, size_t size)
{
    size_t used = 0;
    int count = 0;
    char ranks[100] = "";
    for (int r = 0; ledger->lines && r < ledger->place->node_size; r++)
        if (!has_called(ledger, r, number) && count++ < 16)
            used += (size_t)snprintf(ranks + used, sizeof ranks - used, " %d",
                                     ddp_comm_rank_here(ledger->place, r));
    if (count == 0)
        snprintf(text, size, "%s", "");
    else
        snprintf(text, size, ": rank%s%s%s not arrived", count == 1 ? "" : "s", ranks,
                 count > 16  ? " ... have"
                 : count > 1 ? " have"
                             : " has");
}

/* --- waiting --- */

/* In slices, where there is something to do between them. */
static enum ddp_status wait_in_turns(const struct ddp_ledger *ledger, int peer,
                                     _Atomic uint32_t *word, uint32_t target)
{
    ddp_job *job = ledger->place->job;
    _Atomic uint32_t *sleepers = &ddp_ledger_line(ledger, peer)->sleepers;
    struct ddp_comm_waiting waiting = {.stop = ddp_job_abort_word(job),
                                       .spins = ledger->spins,
                                       .yields = ledger->yields,
                                       .timeout_ms = ledger->place->timeout_ms};
    const int64_t deadline = ddp_deadline_ns(waiting.timeout_ms);
    ddp_turn *turn = ddp_job_turn();
    if (!turn && !ddp_job_hosted(job))
        return ddp_comm_wait(&waiting, word, target, sleepers);
    const int slice = turn ? DDP_TURN_MS : WATCH_MS;
    if (waiting.timeout_ms < 0 || waiting.timeout_ms > slice)
        waiting.timeout_ms = slice;
    for (;;) {
        if (turn)
            turn();
        enum ddp_status status = ddp_comm_wait(&waiting, word, target, sleepers);
        if (status == DDP_ERR_TIMEOUT &&
            ddp_job_check_rank(job, ddp_comm_rank_here(ledger->place, peer)) != DDP_OK)
            return ddp_comm_reached(word, target) ? DDP_OK : DDP_ERR_ABORTED;
        if (status != DDP_ERR_TIMEOUT || ddp_deadline_passed(deadline))
            return status;
        waiting.spins = waiting.yields = 0; /* it takes long: no processor for it */
    }
}

static enum ddp_status wait_until(const struct ddp_ledger *ledger, int peer, _Atomic uint32_t *word,
                                  uint32_t target)
{
    const struct ddp_comm_place *place = ledger->place;
    if (ddp_comm_reached(word, target))
        return DDP_OK;
    const int64_t begin = ddp_trace_begin();
    enum ddp_status status = wait_in_turns(ledger, peer, word, target);
    ddp_trace_end("wait", begin, "for rank", ddp_comm_rank_here(place, peer));
    return status == DDP_ERR_TIMEOUT
               ? ddp_fail(DDP_ERR_TIMEOUT, "waited %d ms for rank %d in a collective",
                          place->timeout_ms, ddp_comm_rank_here(place, peer))
               : status;
}

enum ddp_status ddp_ledger_gather(struct ddp_ledger *ledger, uint32_t number,
                                  const struct ddp_comm_call *call)
{
    const uint64_t mine[] = {call->count, pack(call)};
    const int rank = ledger->place->node_rank, size = ledger->place->node_size;
    for (int i = 1; i < size; i++) {
        const int peer = (rank + i) % size;
        enum ddp_status status =
            wait_until(ledger, peer, &ddp_ledger_entry(ledger, peer, number)->sequence, number + 1);
        if (status == DDP_OK)
            status = compare(ledger, peer, number, mine);
        if (status != DDP_OK)
            return status;
    }
    return DDP_OK;
}

enum ddp_status ddp_ledger_meet(struct ddp_ledger *ledger, const struct ddp_comm_call *call,
                                uint64_t offset, const void *payload, size_t payload_bytes,
                                uint32_t *number)
{
    *number = ddp_ledger_post(ledger, call, offset, payload, payload_bytes);
    return ddp_ledger_gather(ledger, *number, call);
}

enum ddp_status ddp_ledger_vote(struct ddp_ledger *ledger, const struct ddp_comm_call *call,
                                enum ddp_status *status)
{
    enum ddp_status theirs;
    uint32_t number;
    enum ddp_status met =
        ddp_ledger_meet(ledger, call, DDP_LEDGER_NOWHERE, status, sizeof *status, &number);
    for (int r = 0; met == DDP_OK && r < ledger->place->node_size; r++) {
        memcpy(&theirs, ddp_ledger_entry(ledger, r, number)->payload, sizeof theirs);
        *status = theirs < *status ? theirs : *status;
    }
    return met;
}

enum ddp_status ddp_ledger_wait_done(struct ddp_ledger *ledger, uint32_t number)
{
    const int rank = ledger->place->node_rank, size = ledger->place->node_size;
    enum ddp_status status = DDP_OK;
    for (int i = 1; status == DDP_OK && i < size; i++) {
        const int peer = (rank + i) % size;
        status = wait_until(ledger, peer, &ddp_ledger_line(ledger, peer)->done, number + 1);
    }
    return status;
}

bool ddp_ledger_all_done(const struct ddp_ledger *ledger, uint32_t number)
{
    for (int peer = 0; peer < ledger->place->node_size; peer++)
        if (!ddp_comm_reached(&ddp_ledger_line(ledger, peer)->done, number + 1))
            return false;
    return true;
}
