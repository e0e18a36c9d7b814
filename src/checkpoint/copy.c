/* SPDX-License-Identifier: MIT
 *
 * See copy.h. The file: a page with the header, then the slots, each where there was room when it
 * had to grow. A slot: the text of state.json, the arrays, the program's own state. It can be
 * written only between begin and end, so that the stray store of a process that is about to crash
 * does not reach the copy that is to make up for that. */
#include "config.h"

#include "checkpoint/copy.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x3179706f63706464) /* "ddpcopy1" */

struct slot {
    uint64_t offset, bytes; /* in the file, page by page; 0: none yet */
    int64_t step;
    uint64_t array_count, array_bytes, text_bytes, own_bytes;
};

struct header {
    uint64_t magic;
    uint64_t run;
    uint32_t began, behind;   /* behind: steps that were done once are computed again */
    int32_t done_by;          /* the process that has done all; 0: none yet */
    _Atomic uint32_t whole;   /* the slot that is, plus one; 0: none */
    int64_t step;             /* done by the newest process */
    int64_t reached, last_ns; /* the most that were done, and when they were first */
    struct ddp_copy_cost cost;
    struct slot slots[2];
};

struct ddp_copy {
    int fd;
    struct header *header;
    int array_count;
    size_t array_bytes;
    float **arrays; /* of the slot that is filled */
    struct {
        char *memory; /* NULL: not mapped */
        size_t bytes;
    } mapped[2];
    int ended; /* the slot that is to be published; -1: none */
};

static enum ddp_status fail_system(const char *what)
{
    return ddp_fail(ddp_errno_status(errno, DDP_ERR_SYSTEM), "cannot %s ddprun's copy: %s", what,
                    strerror(errno));
}

/* Empties the file, but for a header. */
static bool begin_file(int fd)
{
    return ftruncate(fd, 0) == 0 && fallocate(fd, 0, 0, DDP_PAGE) == 0;
}

enum ddp_status ddp_copy_open(ddp_copy **copy, int fd, uint64_t run)
{
    struct stat info;
    if (fstat(fd, &info) < 0 || (info.st_size < DDP_PAGE && !begin_file(fd)))
        return fail_system("size");
    struct header *header = mmap(NULL, DDP_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED)
        return fail_system("map");
    struct ddp_copy *c = NULL;
    enum ddp_status status = DDP_OK;
    if ((header->magic != MAGIC || header->run != run || header->done_by == getpid()) &&
        !begin_file(fd))
        status = fail_system("size");
    if (status == DDP_OK && !(c = ddp_array_alloc(1, sizeof *c)))
        status = DDP_ERR_MEMORY;
    if (status != DDP_OK) {
        munmap(header, DDP_PAGE);
        return status;
    }
    header->magic = MAGIC;
    header->run = run;
    *c = (struct ddp_copy){.fd = fd, .header = header, .ended = -1};
    *copy = c;
    return DDP_OK;
}

enum ddp_status ddp_copy_view(ddp_copy **copy, int fd)
{
    struct stat info;
    if (fstat(fd, &info) < 0 || info.st_size < DDP_PAGE)
        return DDP_OK;
    struct header *header = mmap(NULL, DDP_PAGE, PROT_READ, MAP_SHARED, fd, 0);
    if (header == MAP_FAILED)
        return fail_system("map");
    struct ddp_copy *c = header->magic == MAGIC ? ddp_array_alloc(1, sizeof *c) : NULL;
    const bool wanted = header->magic == MAGIC;
    if (!c) {
        munmap(header, DDP_PAGE);
        return wanted ? DDP_ERR_MEMORY : DDP_OK;
    }
    *c = (struct ddp_copy){.fd = fd, .header = header, .ended = -1};
    *copy = c;
    return DDP_OK;
}

void ddp_copy_close(ddp_copy *copy, bool done)
{
    if (!copy)
        return;
    for (int i = 0; i < 2; i++)
        if (copy->mapped[i].memory)
            munmap(copy->mapped[i].memory, copy->mapped[i].bytes);
    if (done) {
        atomic_store(&copy->header->whole, 0);
        memset(copy->header->slots, 0, sizeof copy->header->slots);
        copy->header->done_by = (int32_t)getpid();
    }
    munmap(copy->header, DDP_PAGE);
    if (done && ftruncate(copy->fd, DDP_PAGE) < 0)
        ddp_log(DDP_LOG_WARNING, "cannot empty ddprun's copy: %s", strerror(errno));
    free(copy->arrays);
    free(copy);
}

/* --- reading ---------------------------------------------------------------------------------- */

static const struct slot *whole_slot(const ddp_copy *copy)
{
    const uint32_t whole = atomic_load(&copy->header->whole);
    return whole == 1 || whole == 2 ? &copy->header->slots[whole - 1] : NULL;
}

bool ddp_copy_has_begun(const ddp_copy *copy)
{
    return copy->header->began != 0;
}

int64_t ddp_copy_step(const ddp_copy *copy)
{
    const struct slot *slot = whole_slot(copy);
    return slot ? slot->step : -1;
}

/* Maps a slot, so that it is also there for what is written in it later. */
static char *map_slot(ddp_copy *copy, int i, int protection)
{
    const struct slot *slot = &copy->header->slots[i];
    if (copy->mapped[i].memory && copy->mapped[i].bytes == slot->bytes)
        return copy->mapped[i].memory;
    if (copy->mapped[i].memory)
        munmap(copy->mapped[i].memory, copy->mapped[i].bytes);
    copy->mapped[i].memory = NULL;
    copy->mapped[i].bytes = slot->bytes;
    void *memory = mmap(NULL, slot->bytes, protection, MAP_SHARED | MAP_POPULATE, copy->fd,
                        (off_t)slot->offset);
    return memory == MAP_FAILED ? NULL : (copy->mapped[i].memory = memory);
}

static uint64_t array_at(const struct slot *slot, uint64_t i)
{
    return DDP_CHECKPOINT_STATE_BYTES + i * slot->array_bytes;
}

/* Does all that the header says of a slot lie in the file? */
static bool is_sound(const ddp_copy *copy, const struct slot *slot)
{
    struct stat info;
    if (fstat(copy->fd, &info) < 0 || slot->offset % DDP_PAGE != 0 ||
        slot->bytes < DDP_CHECKPOINT_STATE_BYTES || slot->bytes > (uint64_t)info.st_size ||
        slot->offset > (uint64_t)info.st_size - slot->bytes || slot->own_bytes > slot->bytes)
        return false;
    const uint64_t room = slot->bytes - DDP_CHECKPOINT_STATE_BYTES;
    return slot->text_bytes <= DDP_CHECKPOINT_STATE_BYTES && slot->array_bytes > 0 &&
           slot->array_count <= room / slot->array_bytes &&
           slot->own_bytes <= room - slot->array_count * slot->array_bytes;
}

bool ddp_copy_read(ddp_copy *copy, struct ddp_checkpoint_state *state, void **own, char *reason)
{
    const struct slot *slot = whole_slot(copy);
    *own = NULL;
    if (!slot || !is_sound(copy, slot))
        return ddp_checkpoint_wrong(reason, "its header is damaged");
    const char *memory = map_slot(copy, (int)(slot - copy->header->slots), PROT_READ);
    if (!memory)
        return ddp_checkpoint_wrong(reason, DDP_CHECKPOINT_NO_MEMORY);
    if (!ddp_checkpoint_state_parse(state, memory, (size_t)slot->text_bytes, reason))
        return false;
    if (state->cursor.step != slot->step)
        return ddp_checkpoint_wrong(reason, "it is of step %" PRId64 ", not %" PRId64,
                                    state->cursor.step, slot->step);
    if (*state->own_file && !(*own = malloc((size_t)slot->own_bytes + 1)))
        return ddp_checkpoint_wrong(reason, DDP_CHECKPOINT_NO_MEMORY);
    if (*own)
        memcpy(*own, memory + array_at(slot, slot->array_count), (size_t)slot->own_bytes);
    return true;
}

enum ddp_status ddp_copy_array(const ddp_copy *copy, int i, size_t bytes, const float **array)
{
    const struct slot *slot = whole_slot(copy);
    if (!slot || (uint64_t)i >= slot->array_count || bytes != slot->array_bytes)
        return ddp_fail(DDP_ERR_FORMAT, "the copy in memory is of another model");
    *array = (const float *)(copy->mapped[slot - copy->header->slots].memory +
                             array_at(slot, (uint64_t)i));
    return DDP_OK;
}

void ddp_copy_start(ddp_copy *copy, int64_t step)
{
    struct header *header = copy->header;
    if (header->began) {
        header->cost.restarts++;
        header->cost.steps += header->step > step ? header->step - step : 0;
        header->behind = 1;
    } else {
        header->last_ns = ddp_clock_ns();
    }
    header->step = step;
    header->began = 1;
}

/* --- writing ---------------------------------------------------------------------------------- */

static size_t slot_bytes(int array_count, size_t array_bytes, size_t own_bytes)
{
    return ddp_align_up(DDP_CHECKPOINT_STATE_BYTES + (size_t)array_count * array_bytes + own_bytes,
                        DDP_PAGE);
}

size_t ddp_copy_bytes(int array_count, size_t array_bytes)
{
    return 2 * slot_bytes(array_count, array_bytes, 0);
}

/* Makes room for a slot and maps it. Pages that fallocate() has made cannot be missing later; the
 * kernel would rather kill than say that there is no memory for them, so that is looked at before.
 */
static enum ddp_status open_slot(ddp_copy *copy, int i, size_t bytes)
{
    struct slot *slot = &copy->header->slots[i];
    struct stat info;
    if (slot->bytes < bytes) {
        if (bytes > ddp_memory_available() || fstat(copy->fd, &info) < 0)
            return DDP_ERR_MEMORY;
        if (slot->bytes > 0)
            fallocate(copy->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)slot->offset,
                      (off_t)slot->bytes);
        slot->bytes = 0;
        if (fallocate(copy->fd, 0, info.st_size, (off_t)bytes) < 0)
            return DDP_ERR_MEMORY;
        slot->offset = (uint64_t)info.st_size;
        slot->bytes = bytes;
    }
    return map_slot(copy, i, PROT_READ | PROT_WRITE) ? DDP_OK : DDP_ERR_MEMORY;
}

/* The one that can be written. */
static int other_slot(const ddp_copy *copy)
{
    return atomic_load(&copy->header->whole) == 1;
}

enum ddp_status ddp_copy_reserve(ddp_copy *copy, int array_count, size_t array_bytes)
{
    const int other = other_slot(copy);
    copy->array_count = array_count;
    copy->array_bytes = array_bytes;
    free(copy->arrays);
    copy->arrays = ddp_array_alloc((size_t)array_count, sizeof *copy->arrays);
    if (!copy->arrays)
        return DDP_ERR_MEMORY;
    enum ddp_status status = open_slot(copy, other, slot_bytes(array_count, array_bytes, 0));
    if (status == DDP_OK && !whole_slot(copy))
        status = open_slot(copy, !other, slot_bytes(array_count, array_bytes, 0));
    return status;
}

enum ddp_status ddp_copy_begin(ddp_copy *copy, const char *bytes, size_t text_bytes,
                               size_t own_bytes, float *const **arrays)
{
    const int i = other_slot(copy);
    struct slot *slot = &copy->header->slots[i];
    copy->ended = -1;
    if (text_bytes > DDP_CHECKPOINT_STATE_BYTES)
        return ddp_fail(DDP_ERR_INVALID, "the state of a checkpoint has %zu bytes: too many",
                        text_bytes);
    enum ddp_status status =
        open_slot(copy, i, slot_bytes(copy->array_count, copy->array_bytes, own_bytes));
    if (status != DDP_OK)
        return status;
    char *memory = copy->mapped[i].memory;
    mprotect(memory, slot->bytes, PROT_READ | PROT_WRITE);
    slot->array_count = (uint64_t)copy->array_count;
    slot->array_bytes = copy->array_bytes;
    slot->text_bytes = text_bytes;
    slot->own_bytes = own_bytes;
    for (int a = 0; a < copy->array_count; a++)
        copy->arrays[a] = (float *)(memory + array_at(slot, (uint64_t)a));
    memcpy(memory, bytes, text_bytes);
    memcpy(memory + array_at(slot, slot->array_count), bytes + text_bytes, own_bytes);
    *arrays = copy->arrays;
    return DDP_OK;
}

void ddp_copy_end(ddp_copy *copy, int64_t step)
{
    const int i = other_slot(copy);
    struct slot *slot = &copy->header->slots[i];
    slot->step = step;
    mprotect(copy->mapped[i].memory, slot->bytes, PROT_READ);
    copy->ended = i;
}

void ddp_copy_publish(ddp_copy *copy)
{
    if (copy->ended < 0)
        return;
    atomic_store(&copy->header->whole, (uint32_t)copy->ended + 1);
    copy->ended = -1;
}

void ddp_copy_progress(ddp_copy *copy, int64_t step)
{
    struct header *header = copy->header;
    header->step = step;
    if (step < header->reached)
        return;
    const int64_t now = ddp_clock_ns();
    if (header->behind)
        header->cost.ns += now - header->last_ns;
    header->behind = 0;
    header->reached = step;
    header->last_ns = now;
}

struct ddp_copy_cost ddp_copy_cost(const ddp_copy *copy)
{
    return copy->header->cost;
}
