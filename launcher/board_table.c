/* SPDX-License-Identifier: MIT
 *
 * See board_table.h. */
#include "config.h"

#include "launcher/board_table.h"

#include "core/clock.h"
#include "core/log.h"
#include "launcher/system/proc.h"
#include "launcher/report.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Programs that do not use libddp never join the board: of them the first process is known. */
static int process_of(const struct ddp_board_view *view)
{
    return view->pid > 0 ? view->pid : view->started;
}

/* What the kernel says of a process. */
static const char *process_state(const struct ddp_board_view *view)
{
    int pid = process_of(view);
    if (pid <= 0)
        return "not started";
    switch (proc_state(pid)) {
    case 0:
        return kill(pid, 0) < 0 && errno == ESRCH ? "dead" : "unknown";
    case 'R':
        return "running";
    case 'T':
    case 't':
        return "stopped";
    case 'Z':
    case 'X':
        return "dead";
    case 'S':
    case 'D':
        return view->closed ? "finished" : "waiting";
    }
    return "unknown";
}

static double seconds_since(int64_t then_ns)
{
    int64_t now = ddp_clock_ns();
    return then_ns > 0 && then_ns <= now ? (double)(now - then_ns) / 1e9 : 0;
}

/* --- the table: cells with tabs between, until it is known how wide they are --- */

enum { COLUMNS = 9 };

static const char titles[] = "rank\tpid\tstate\tphase\tstep\tcollective\tnumber\tbytes\tseconds\n";
static const bool is_text[COLUMNS] = {[2] = true, [3] = true, [5] = true}; /* begins at the left */

static void write_cells(const struct ddp_board_view *view, int rank, FILE *out)
{
    char step[24] = "-", number[24] = "-", bytes[24] = "-";
    if (view->step >= 0)
        snprintf(step, sizeof step, "%" PRId64, view->step + 1);
    if (view->entered > 0 || view->inside) {
        snprintf(number, sizeof number, "%" PRIu64, view->number);
        snprintf(bytes, sizeof bytes, "%" PRIu64, view->bytes);
    }
    fprintf(out, "%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%.1f\n", rank, process_of(view),
            process_state(view),
            view->phase[0]  ? view->phase
            : view->pid > 0 ? "-"
                            : "not joined",
            step, view->inside ? view->name : "-", number, bytes,
            seconds_since(view->inside ? view->enter_ns : view->changed_ns));
}

/* Each column as wide as its widest cell, so that the table fits a terminal of 80 columns. */
static void write_aligned(const char *cells, FILE *out)
{
    int widths[COLUMNS] = {0};
    int column = 0;
    for (const char *cell = cells; *cell; column = (column + 1) % COLUMNS) {
        const int length = (int)strcspn(cell, "\t\n");
        widths[column] = length > widths[column] ? length : widths[column];
        cell += length + 1;
    }
    for (const char *cell = cells; *cell; column = (column + 1) % COLUMNS) {
        const int length = (int)strcspn(cell, "\t\n");
        const int space = widths[column] - length;
        fprintf(out, "%*s%.*s%*s%c", is_text[column] ? 0 : space, "", length, cell,
                is_text[column] ? space : 0, "", cell[length] == '\n' ? '\n' : ' ');
        cell += length + 1;
    }
}

static void write_ranks(const struct ddp_board *board, FILE *out)
{
    struct ddp_board_view view;
    char *cells = NULL;
    size_t size;
    FILE *pieces = open_memstream(&cells, &size);
    if (!pieces)
        return;
    fputs(titles, pieces);
    for (int rank = 0; rank < board->shape.workers; rank++) {
        ddp_board_read(board, rank, &view);
        write_cells(&view, ddp_board_first_rank(board) + rank, pieces);
    }
    if (fclose(pieces) == 0 && cells)
        write_aligned(cells, out);
    free(cells);
}

/* Writes ranks that `wanted` picks as "rank 3" or "ranks 0 1 2", at most sixteen of them.
 *   front  of a rank in the collective that is asked about */
static int list_ranks(const struct ddp_board *board, const struct ddp_board_view *front,
                      bool (*wanted)(const struct ddp_board *, int, const struct ddp_board_view *),
                      char *text, size_t size)
{
    int count = 0;
    size_t used = 0;
    char numbers[160] = "";
    for (int rank = 0; rank < board->shape.workers; rank++)
        if (wanted(board, rank, front) && count++ < 16)
            used += (size_t)snprintf(numbers + used, sizeof numbers - used, " %d",
                                     ddp_board_first_rank(board) + rank);
    snprintf(text, size, "rank%s%s%s", count == 1 ? "" : "s", numbers, count > 16 ? " ..." : "");
    return count;
}

/* Has the worker to come to the collective? */
static bool is_called(const struct ddp_board *board, int worker, const struct ddp_board_view *front)
{
    const struct ddp_job_group *group = &front->group;
    const int after = ddp_board_first_rank(board) + worker - group->first;
    return group->size == 0 ||
           (after >= 0 && after % group->stride == 0 && after / group->stride < group->size);
}

static uint64_t arrivals(const struct ddp_board_view *front)
{
    return front->group.size > 0 ? front->number + 1 : front->entered;
}

/* Ranks of one group number its collectives alike. */
static bool is_same_group(const struct ddp_board_view *one, const struct ddp_board_view *other)
{
    return one->group.size == other->group.size && one->group.slot == other->group.slot;
}

static bool is_waiting(const struct ddp_board *board, int worker,
                       const struct ddp_board_view *front)
{
    struct ddp_board_view view;
    ddp_board_read(board, worker, &view);
    return view.inside && is_called(board, worker, front) && is_same_group(&view, front) &&
           arrivals(&view) == arrivals(front);
}

static bool is_missing(const struct ddp_board *board, int worker,
                       const struct ddp_board_view *front)
{
    return is_called(board, worker, front) &&
           ddp_board_arrived(board, worker, &front->group) < arrivals(front);
}

static bool is_stopped(const struct ddp_board *board, int worker,
                       const struct ddp_board_view *front)
{
    struct ddp_board_view view;
    (void)front;
    ddp_board_read(board, worker, &view);
    return strcmp(process_state(&view), "stopped") == 0;
}

/* Ranks that arrived and then were stopped hold the others up as well, where each brings a part of
 * the result. */
static void write_stopped(const struct ddp_board *board, FILE *out)
{
    char stopped[200];
    const int count = list_ranks(board, NULL, is_stopped, stopped, sizeof stopped);
    if (count > 0)
        fprintf(out, "; %s %s stopped", stopped, count == 1 ? "is" : "are");
    fputc('\n', out);
}

/* A board has the ranks of one node. */
static const char *here(const struct ddp_board *board)
{
    return board->shape.nodes > 1 ? " of this node" : "";
}

/* The rank whose message, or whose taking one, is awaited; -1: none is. */
static int awaited_peer(const struct ddp_board_view *view, bool *sends)
{
    int peer = -1;
    *sends = sscanf(view->name, "send to %d", &peer) == 1;
    if (!*sends && sscanf(view->name, "recv from %d", &peer) != 1)
        return -1;
    return view->inside ? peer : -1;
}

/* Does a rank of this node wait for anything? */
static bool waits(const struct ddp_board *board, int rank)
{
    const int here = rank - ddp_board_first_rank(board);
    struct ddp_board_view view = {.inside = false};
    if (here >= 0 && here < board->shape.workers)
        ddp_board_read(board, here, &view);
    return view.inside;
}

/* Of the ranks that wait for messages, one that waits for a rank that waits for nothing. */
static bool write_transfer(const struct ddp_board *board, FILE *out)
{
    struct ddp_board_view view;
    bool sends;
    for (int rank = 0; rank < board->shape.workers; rank++) {
        ddp_board_read(board, rank, &view);
        const int peer = awaited_peer(&view, &sends);
        if (peer < 0 || waits(board, peer))
            continue;
        fprintf(out, "rank %d has not %s message %" PRIu64 "; rank %d has waited %.0f s", peer,
                sends ? "taken" : "sent", view.number, ddp_board_first_rank(board) + rank,
                seconds_since(view.enter_ns));
        write_stopped(board, out);
        return true;
    }
    return false;
}

/* Nobody comes who waits elsewhere: 2; a rank is missing that waits for nothing: 3. */
static int urgency(const struct ddp_board *board, const struct ddp_board_view *front)
{
    int found = 1;
    for (int rank = 0; rank < board->shape.workers; rank++)
        if (is_missing(board, rank, front)) {
            if (!waits(board, ddp_board_first_rank(board) + rank))
                return 3;
            found = 2;
        }
    return found;
}

/* Of the collectives that ranks are in, the one that explains most; false: there is none. */
static bool find_front(const struct ddp_board *board, struct ddp_board_view *front)
{
    struct ddp_board_view view;
    bool sends;
    int most = 0;
    for (int rank = 0; rank < board->shape.workers; rank++) {
        ddp_board_read(board, rank, &view);
        if (!view.inside || awaited_peer(&view, &sends) >= 0)
            continue;
        const int found = urgency(board, &view);
        if (found > most || (found == most && view.entered > front->entered)) {
            most = found;
            *front = view;
        }
    }
    return most > 0;
}

/* "all-reduce 7", and whose it is unless all ranks call it. */
static void write_collective(const struct ddp_board *board, const struct ddp_board_view *view,
                             FILE *out)
{
    const struct ddp_job_group *group = &view->group;
    fprintf(out, "%s %" PRIu64, view->name, view->number);
    if (group->size == 0 || group->size == ddp_board_job_size(board))
        return;
    fputs(" of ranks", out);
    for (int i = 0; i < group->size && i < 16; i++)
        fprintf(out, " %d", group->first + i * group->stride);
    fputs(group->size > 16 ? " ..." : "", out);
}

/* Where a missing rank waits instead. */
static void write_elsewhere(const struct ddp_board *board, const struct ddp_board_view *front,
                            FILE *out)
{
    struct ddp_board_view view;
    for (int rank = 0; rank < board->shape.workers; rank++) {
        ddp_board_read(board, rank, &view);
        if (!view.inside || !is_missing(board, rank, front) || is_same_group(&view, front))
            continue;
        fprintf(out, "; rank %d is in ", ddp_board_first_rank(board) + rank);
        write_collective(board, &view, out);
        return;
    }
}

static double waited_least(const struct ddp_board *board, const struct ddp_board_view *front)
{
    double waited = -1;
    struct ddp_board_view view;
    for (int rank = 0; rank < board->shape.workers; rank++)
        if (is_waiting(board, rank, front)) {
            ddp_board_read(board, rank, &view);
            const double seconds = seconds_since(view.enter_ns);
            waited = waited < 0 || seconds < waited ? seconds : waited;
        }
    return waited < 0 ? 0 : waited;
}

/* Names the ranks that the others wait for. */
static void write_reason(const struct ddp_board *board, FILE *out)
{
    struct ddp_board_view front = {.entered = 0};
    char waiting[200], missing[200];
    if (!find_front(board, &front)) {
        fprintf(out, "no rank%s is inside a collective operation", here(board));
        write_stopped(board, out);
        return;
    }
    const int waiting_count = list_ranks(board, &front, is_waiting, waiting, sizeof waiting);
    const int missing_count = list_ranks(board, &front, is_missing, missing, sizeof missing);
    if (missing_count == 0)
        fprintf(out, "all ranks%s have arrived at ", here(board));
    else
        fprintf(out, "%s %s not arrived at ", missing, missing_count == 1 ? "has" : "have");
    write_collective(board, &front, out);
    if (missing_count > 0) {
        fprintf(out, "; %s %s waited %.0f s", waiting, waiting_count == 1 ? "has" : "have",
                waited_least(board, &front));
        write_elsewhere(board, &front, out);
    }
    write_stopped(board, out);
}

void board_table_write(const struct ddp_board *board, FILE *out)
{
    write_ranks(board, out);
    if (!write_transfer(board, out))
        write_reason(board, out);
}

static void write_members(const struct ddp_board *board, FILE *out)
{
    const struct ddp_board_members *members = &board->memory->members;
    if (members->most > 0)
        fprintf(out,
                "nodes: %d now, of %u to %u; %u came, %u left, %u lost; %.1f s without workers\n",
                board->shape.nodes, members->least, members->most, members->came, members->left,
                members->lost, (double)members->paused_ns * 1e-9);
}

void board_table_nodes(const struct ddp_board *board, FILE *out)
{
    char host[DDP_BOARD_HOST_WORDS * 8], phase[DDP_BOARD_NAME];
    if (board->shape.node > 0)
        return;
    write_members(board, out);
    for (int n = 0; n < board->shape.nodes && board->shape.nodes > 1; n++) {
        const struct ddp_board_node *node = ddp_board_node(board, n);
        const uint32_t running = atomic_load(&node->running);
        const uint32_t end = n + 1 < board->shape.nodes ? ddp_board_node(board, n + 1)->first
                                                        : (uint32_t)board->shape.size;
        const int64_t lowest = atomic_load(&node->lowest), highest = atomic_load(&node->highest);
        const int64_t heard_ns = atomic_load(&node->heard_ns);
        ddp_board_load_text(node->host, DDP_BOARD_HOST_WORDS, host);
        ddp_board_load_text(node->phase, DDP_BOARD_WORDS, phase);
        fprintf(out, "node %d (%s): ", n, host);
        if (heard_ns == 0) {
            fputs("not heard yet\n", out);
            continue;
        }
        fprintf(out, "%u of %d workers run", running, (int)(end - node->first));
        if (lowest >= 0 && lowest == highest)
            fprintf(out, ", step %" PRId64, lowest + 1);
        else if (highest >= 0)
            fprintf(out, ", steps %" PRId64 " to %" PRId64, lowest + 1, highest + 1);
        fprintf(out, "%s%s; heard %.1f s ago\n", phase[0] ? ", phase " : "", phase,
                seconds_since(heard_ns));
    }
}

void board_table_log(const struct ddp_board *board)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return;
    board_table_write(board, out);
    if (fclose(out) == 0 && text)
        report_lines(text);
    free(text);
}

struct board_times board_table_times(const struct ddp_board *board)
{
    struct ddp_board_view view;
    struct board_times times = {.least_ns = INT64_MAX};
    for (int rank = 0; rank < board->shape.workers; rank++) {
        ddp_board_read(board, rank, &view);
        if (view.wait_ns < times.least_ns) {
            times.least_ns = view.wait_ns;
            times.latest = ddp_board_first_rank(board) + rank;
        }
        times.most_ns = view.wait_ns > times.most_ns ? view.wait_ns : times.most_ns;
        times.timed = view.timed > times.timed ? view.timed : times.timed;
    }
    return times;
}

void board_times_add(struct board_times *all, const struct board_times *some)
{
    if (some->least_ns < all->least_ns) {
        all->least_ns = some->least_ns;
        all->latest = some->latest;
    }
    all->most_ns = some->most_ns > all->most_ns ? some->most_ns : all->most_ns;
    all->timed = some->timed > all->timed ? some->timed : all->timed;
}

void board_table_stragglers(const struct ddp_board *board)
{
    struct ddp_board_view view;
    for (int rank = 0; rank < board->shape.workers; rank++) {
        ddp_board_read(board, rank, &view);
        ddp_log(DDP_LOG_INFO, "rank %d: %" PRIu64 " collective operations, %.3f s in them",
                ddp_board_first_rank(board) + rank, view.timed, (double)view.wait_ns / 1e9);
    }
}

void board_times_log(const struct board_times *times)
{
    if (times->timed == 0)
        ddp_log(DDP_LOG_INFO,
                "no collective operations: this report needs a program that uses libddp");
    else if (times->most_ns > times->least_ns)
        ddp_log(DDP_LOG_INFO,
                "rank %d arrived last most often: others waited up to %.3f s more than it did",
                times->latest, (double)times->most_ns / 1e9 - (double)times->least_ns / 1e9);
}

uint64_t board_table_progress(const struct ddp_board *board)
{
    struct ddp_board_view view;
    uint64_t sum = 0;
    bool joined = false;
    for (int rank = 0; rank < board->shape.workers; rank++) {
        ddp_board_read(board, rank, &view);
        joined = joined || view.pid > 0;
        sum = sum * 31 + (uint64_t)view.changed_ns + view.entered * 2 + view.inside;
    }
    return joined ? sum | 1 : 0;
}

bool board_table_stepped(const struct ddp_board *board)
{
    struct ddp_board_view view;
    for (int rank = 0; rank < board->shape.workers; rank++) {
        ddp_board_read(board, rank, &view);
        if (view.finished > 0)
            return true;
    }
    return false;
}
