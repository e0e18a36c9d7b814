/* SPDX-License-Identifier: MIT
 *
 * See loader.h. Batches are numbered from 0 in the order of delivery; batch i lives in slot i %
 * depth. A thread takes the next number and that batch's indices under plan_lock, waits until the
 * slot is free and fills it. next() waits under ring_lock, which is never held while samples are
 * read or an order is computed. */
#include "config.h"

#include "data/loader.h"

#include "core/clock.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/thread.h"
#include "core/trace.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS   256
#define MAX_DEPTH     65536
#define MESSAGE_BYTES 4096
#define MAX_SHARDS    (MAX_DEPTH / 2 - MAX_THREADS) /* of which the default depth holds two each */

enum slot_state {
    SLOT_FREE,
    SLOT_FILLING,
    SLOT_READY,
    SLOT_HELD, /* by the caller */
};

struct slot {
    struct ddp_batch batch;
    struct ddp_soft_labels soft;
    int64_t *indices;
    enum slot_state state; /* under ring_lock */
    enum ddp_status status;
    char *message; /* of a failure, reported when its turn comes */
    bool last;     /* no batch, but the end of all */
};

struct cursor {
    int64_t epoch, step, shard; /* shard: counted from first_shard */
};

struct ddp_loader {
    struct ddp_loader_config config;
    int64_t shard_samples, steps;
    int64_t range_begin; /* added to each index of an evaluation */
    size_t slot_bytes;   /* of x and, from labels_offset, labels */
    size_t labels_offset;

    pthread_mutex_t plan_lock;
    uint64_t planned;         /* number of the next batch to fill */
    struct cursor cursor;     /* ... and its position */
    ddp_sampler *samplers[2]; /* the order of epoch e is in samplers[e % 2]; the other may be ready
                                 for e + 1 */

    pthread_mutex_t ring_lock;
    pthread_cond_t ready, freed;
    struct slot *slots;
    uint64_t delivered; /* number of the next batch for next() */
    int64_t wait_ns;
    bool stopping, failed; /* failed: nothing more is read, the failure's turn will come */

    int started; /* threads */
    pthread_t *threads;
};

int64_t ddp_loader_steps_per_epoch(const struct ddp_sampler_config *sampler, int64_t batch_size)
{
    int64_t samples = ddp_sampler_shard_samples(sampler);
    return samples / batch_size + (samples % batch_size != 0);
}

/* --- the threads ------------------------------------------------------------------------------ */

/* Copies the indices of the batch at the cursor into its slot and moves the cursor on. Under
 * plan_lock. */
static void plan_batch(struct ddp_loader *loader, struct slot *slot)
{
    struct cursor *at = &loader->cursor;
    const struct ddp_loader_config *config = &loader->config;
    slot->last = config->end_epoch >= 0 && at->epoch >= config->end_epoch;
    if (slot->last)
        return;
    ddp_sampler *sampler = loader->samplers[at->epoch % 2];
    ddp_sampler_set_epoch(sampler, at->epoch); /* does nothing when that order is there */
    struct ddp_batch *batch = &slot->batch;
    int64_t first = at->step * config->batch_size;
    int64_t left = loader->shard_samples - first;
    batch->rows = left < config->batch_size ? left : config->batch_size;
    batch->epoch = at->epoch;
    batch->step = at->step;
    batch->shard = config->first_shard + at->shard;
    for (int64_t i = 0; i < batch->rows; i++)
        slot->indices[i] =
            loader->range_begin + ddp_sampler_index(sampler, batch->shard, first + i);
    if (++at->shard < config->shard_count)
        return;
    at->shard = 0;
    if (++at->step < loader->steps)
        return;
    at->step = 0;
    at->epoch++;
}

static bool slot_is_free(struct ddp_loader *loader, const struct slot *slot)
{
    pthread_mutex_lock(&loader->ring_lock);
    bool is_free = slot->state == SLOT_FREE;
    pthread_mutex_unlock(&loader->ring_lock);
    return is_free;
}

/* Waits until the slot is free and marks it; false: the loader is being destroyed. */
static bool take_slot(struct ddp_loader *loader, struct slot *slot)
{
    pthread_mutex_lock(&loader->ring_lock);
    while (slot->state != SLOT_FREE && !loader->stopping && !loader->failed)
        pthread_cond_wait(&loader->freed, &loader->ring_lock);
    bool taken = !loader->stopping && !loader->failed;
    if (taken)
        slot->state = SLOT_FILLING;
    pthread_mutex_unlock(&loader->ring_lock);
    return taken;
}

static void publish_slot(struct ddp_loader *loader, struct slot *slot, enum ddp_status status)
{
    pthread_mutex_lock(&loader->ring_lock);
    loader->failed |= status != DDP_OK;
    slot->status = status;
    slot->state = SLOT_READY;
    pthread_cond_signal(&loader->ready);
    pthread_mutex_unlock(&loader->ring_lock);
}

/* While all slots are full there is time to compute the next epoch's order, so that its start costs
 * none. */
static void prepare_next_epoch(struct ddp_loader *loader)
{
    int64_t next = loader->cursor.epoch + 1;
    if (loader->config.end_epoch < 0 || next < loader->config.end_epoch)
        ddp_sampler_set_epoch(loader->samplers[next % 2], next);
}

/* Takes the next batch in order, with its slot. NULL: stop. */
static struct slot *claim(struct ddp_loader *loader)
{
    pthread_mutex_lock(&loader->plan_lock);
    struct slot *slot = &loader->slots[loader->planned % (uint64_t)loader->config.depth];
    if (!slot_is_free(loader, slot))
        prepare_next_epoch(loader);
    /* The lock is kept while waiting: no thread could do anything with a later slot before. */
    bool taken = take_slot(loader, slot);
    if (taken) {
        loader->planned++;
        plan_batch(loader, slot);
    }
    pthread_mutex_unlock(&loader->plan_lock);
    return taken ? slot : NULL;
}

/* Labels are softened where the loss is. */
static enum ddp_status soften(const struct ddp_loader *loader, struct slot *slot)
{
    const struct ddp_augment *augment = &loader->config.augment;
    const struct ddp_batch *batch = &slot->batch;
    slot->soft = (struct ddp_soft_labels){1, (float)augment->smooth};
    if (augment->mixup <= 0)
        return DDP_OK;
    const double share = ddp_augment_share(augment, batch->epoch, batch->indices[0]);
    slot->soft.share = (float)share;
    return ddp_augment_mix(share, ddp_dataset_info(loader->config.dataset), (size_t)batch->rows,
                           batch->x);
}

static enum ddp_status fill(struct ddp_loader *loader, struct slot *slot)
{
    char message[MESSAGE_BYTES];
    ddp_log_hold(message, sizeof message);
    const int64_t begin = ddp_trace_begin();
    const struct ddp_augment *augment = &loader->config.augment;
    const ddp_dataset *dataset = loader->config.dataset;
    const struct ddp_batch *batch = &slot->batch;
    const size_t rows = (size_t)batch->rows;
    enum ddp_status status =
        augment->resized > 0
            ? ddp_dataset_read_resized(dataset, augment, batch->epoch, slot->indices, rows,
                                       batch->x, batch->labels)
            : ddp_dataset_read(dataset, slot->indices, rows, batch->x, batch->labels);
    if (status == DDP_OK)
        status = ddp_augment_batch(augment, ddp_dataset_info(dataset), batch->epoch, slot->indices,
                                   rows, batch->x);
    if (status == DDP_OK && batch->soft)
        status = soften(loader, slot);
    ddp_log_hold(NULL, 0);
    ddp_trace_end("read batch", begin, "shard", slot->batch.shard);
    if (status != DDP_OK && !(slot->message = strdup(message)))
        (void)ddp_fail(DDP_ERR_MEMORY, "%s", message); /* too early is better than never */
    return status;
}

static void *fill_slots(void *arg)
{
    struct ddp_loader *loader = arg;
    struct slot *slot;
    ddp_trace_name_thread("loader");
    while ((slot = claim(loader)) != NULL) {
        enum ddp_status status = DDP_OK;
        if (!slot->last)
            status = fill(loader, slot);
        bool last = slot->last; /* once published, the slot is the caller's */
        publish_slot(loader, slot, status);
        if (last || status != DDP_OK)
            break;
    }
    return NULL;
}

/* --- making and ending ------------------------------------------------------------------------ */

static enum ddp_status check(const struct ddp_loader_config *c)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(c->dataset);
    if (c->batch_size < 1 || c->batch_size > INT32_MAX)
        return ddp_fail(DDP_ERR_INVALID, "a batch of %lld samples: 1 to %d are possible",
                        (long long)c->batch_size, INT32_MAX);
    if (c->first_shard < 0 || c->shard_count < 1 ||
        c->shard_count > c->sampler.shard_count - c->first_shard)
        return ddp_fail(DDP_ERR_INVALID, "shards %lld to %lld: there are 0 to %lld",
                        (long long)c->first_shard, (long long)(c->first_shard + c->shard_count - 1),
                        (long long)c->sampler.shard_count - 1);
    if (ddp_sampler_shard_samples(&c->sampler) == 0)
        return ddp_fail(
            DDP_ERR_INVALID, "%s has %lld samples: too few to give each of %lld shards one",
            info->source, (long long)c->sampler.sample_count, (long long)c->sampler.shard_count);
    if (c->depth == 0)
        return ddp_fail(DDP_ERR_INVALID,
                        "%lld shards in one process: at most %d are possible; use larger batches",
                        (long long)c->shard_count, MAX_SHARDS);
    if (c->threads < 1 || c->threads > MAX_THREADS || c->depth < 1 || c->depth > MAX_DEPTH)
        return ddp_fail(DDP_ERR_INVALID,
                        "%d loader threads, %d batches ahead: at most %d and %d are possible",
                        c->threads, c->depth, MAX_THREADS, MAX_DEPTH);
    const struct ddp_augment *augment = &c->augment;
    if ((augment->crop || augment->flip || augment->jitter > 0 || augment->resized > 0 ||
         augment->mixup > 0) &&
        !ddp_augment_fits(info))
        return ddp_fail(DDP_ERR_INVALID,
                        "%s holds no images: there is nothing to crop, flip or mix",
                        ddp_dataset_where(info));
    if (ddp_augment_softens(augment) &&
        (info->class_count == 0 || info->label_count != 1 || info->float_labels))
        return ddp_fail(DDP_ERR_INVALID,
                        "--augment %s: the samples of %s have no labels that are classes",
                        augment->smooth > 0 ? "smooth" : "mixup", ddp_dataset_where(info));
    if (augment->jitter > 0 && !ddp_augment_colours_fit(info))
        return ddp_fail(DDP_ERR_INVALID,
                        "--augment jitter: the images of %s are neither grey nor RGB in a scale "
                        "from black to white",
                        ddp_dataset_where(info));
    if (c->epoch < 0 || c->step < 0 ||
        c->step > ddp_loader_steps_per_epoch(&c->sampler, c->batch_size))
        return ddp_fail(DDP_ERR_INVALID,
                        "cannot start at epoch %lld, step %lld: an epoch has %lld steps",
                        (long long)c->epoch, (long long)c->step,
                        (long long)ddp_loader_steps_per_epoch(&c->sampler, c->batch_size));
    return DDP_OK;
}

static enum ddp_status ordinary_alloc(void *arg, size_t bytes, void **memory)
{
    (void)arg;
    *memory = ddp_pages_alloc(bytes);
    return *memory ? DDP_OK : DDP_ERR_MEMORY;
}

static void ordinary_free(void *arg, void *memory, size_t bytes)
{
    (void)arg;
    ddp_pages_free(memory, bytes);
}

static enum ddp_status make_slot(struct ddp_loader *loader, struct slot *slot, size_t rows)
{
    const struct ddp_loader_memory *memory = &loader->config.memory;
    void *pages;
    slot->indices = ddp_array_alloc(rows, sizeof *slot->indices);
    if (!slot->indices)
        return DDP_ERR_MEMORY;
    slot->batch.indices = slot->indices;
    enum ddp_status status = memory->alloc(memory->arg, loader->slot_bytes, &pages);
    if (status != DDP_OK)
        return status;
    slot->batch.x = pages;
    if (ddp_dataset_info(loader->config.dataset)->label_count > 0)
        slot->batch.labels = (int32_t *)(void *)((char *)pages + loader->labels_offset);
    if (ddp_augment_softens(&loader->config.augment))
        slot->batch.soft = &slot->soft;
    return DDP_OK;
}

/* SIZE_MAX: too many. */
static size_t slot_bytes(const struct ddp_dataset_info *info, size_t rows, size_t *labels_offset)
{
    size_t x_bytes, label_bytes, bytes;
    if (!ddp_size_multiply(rows, info->sample_bytes, &x_bytes) ||
        !ddp_size_add(x_bytes, DDP_CACHE_LINE, labels_offset) ||
        !ddp_size_multiply(rows, (size_t)info->label_count * sizeof(int32_t), &label_bytes) ||
        !ddp_size_add(*labels_offset, label_bytes, &bytes))
        return SIZE_MAX;
    *labels_offset = ddp_align_up(x_bytes, DDP_CACHE_LINE);
    return *labels_offset + label_bytes;
}

size_t ddp_loader_slot_bytes(const struct ddp_dataset_info *info, int64_t rows)
{
    size_t labels_offset;
    return slot_bytes(info, (size_t)rows, &labels_offset);
}

static enum ddp_status make_slots(struct ddp_loader *loader)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(loader->config.dataset);
    bool small = loader->shard_samples < loader->config.batch_size;
    size_t rows = (size_t)(small ? loader->shard_samples : loader->config.batch_size);
    enum ddp_status status = DDP_OK;
    loader->slot_bytes = slot_bytes(info, rows, &loader->labels_offset);
    if (loader->slot_bytes == SIZE_MAX)
        return ddp_fail(DDP_ERR_MEMORY, "a batch of %zu samples of %zu bytes does not fit memory",
                        rows, info->sample_bytes);
    loader->slots = ddp_array_alloc((size_t)loader->config.depth, sizeof *loader->slots);
    if (!loader->slots)
        return DDP_ERR_MEMORY;
    for (int i = 0; status == DDP_OK && i < loader->config.depth; i++)
        status = make_slot(loader, &loader->slots[i], rows);
    return status;
}

static enum ddp_status start_threads(struct ddp_loader *loader)
{
    int error = 0;
    loader->threads = ddp_array_alloc((size_t)loader->config.threads, sizeof *loader->threads);
    if (!loader->threads)
        return DDP_ERR_MEMORY;
    while (!error && loader->started < loader->config.threads) {
        error = ddp_thread_create(&loader->threads[loader->started], fill_slots, loader);
        loader->started += !error;
    }
    if (error)
        return ddp_thread_failed(error, "a loader thread");
    return DDP_OK;
}

static void set_defaults(struct ddp_loader_config *c)
{
    if (c->threads == 0)
        c->threads = 1;
    if (!c->memory.alloc)
        c->memory = (struct ddp_loader_memory){ordinary_alloc, ordinary_free, NULL};
    if (c->depth == 0 && c->shard_count > 0 && c->shard_count <= MAX_SHARDS)
        c->depth = (int)c->shard_count * 2 + c->threads;
}

static enum ddp_status create(ddp_loader **loader, const struct ddp_loader_config *config,
                              int64_t range_begin)
{
    struct ddp_loader_config full = *config;
    set_defaults(&full);
    enum ddp_status status = check(&full);
    if (status != DDP_OK)
        return status;
    struct ddp_loader *l = ddp_array_alloc(1, sizeof *l);
    if (!l)
        return DDP_ERR_MEMORY;
    l->config = full;
    l->range_begin = range_begin;
    l->shard_samples = ddp_sampler_shard_samples(&full.sampler);
    l->steps = ddp_loader_steps_per_epoch(&full.sampler, full.batch_size);
    l->cursor = (struct cursor){.epoch = full.epoch, .step = full.step};
    if (full.step == l->steps) /* the end of an epoch is the beginning of the next */
        l->cursor = (struct cursor){.epoch = full.epoch + 1};
    pthread_mutex_init(&l->plan_lock, NULL);
    pthread_mutex_init(&l->ring_lock, NULL);
    pthread_cond_init(&l->ready, NULL);
    pthread_cond_init(&l->freed, NULL);
    for (int i = 0; i < 2 && status == DDP_OK; i++)
        status = ddp_sampler_create(&l->samplers[i], &full.sampler);
    if (status == DDP_OK)
        status = make_slots(l);
    if (status == DDP_OK)
        status = start_threads(l);
    if (status != DDP_OK) {
        ddp_loader_destroy(l);
        return status;
    }
    *loader = l;
    return DDP_OK;
}

enum ddp_status ddp_loader_create(ddp_loader **loader, const struct ddp_loader_config *config)
{
    struct ddp_loader_config full = *config;
    full.sampler.sample_count = ddp_dataset_info(config->dataset)->sample_count;
    return create(loader, &full, 0);
}

enum ddp_status ddp_loader_create_range(ddp_loader **loader, const ddp_dataset *dataset,
                                        int64_t begin, int64_t end, int64_t batch_size, int threads)
{
    int64_t samples = ddp_dataset_info(dataset)->sample_count;
    if (begin < 0 || begin > end || end > samples)
        return ddp_fail(DDP_ERR_INVALID, "samples %lld to %lld do not exist: there are %lld",
                        (long long)begin, (long long)end, (long long)samples);
    struct ddp_loader_config config = {
        .dataset = dataset,
        /* An empty range still needs a sampler: one sample, of which no epoch is delivered. */
        .sampler = {.sample_count = end > begin ? end - begin : 1, .shard_count = 1},
        .batch_size = batch_size,
        .shard_count = 1,
        .end_epoch = end > begin,
        .threads = threads,
    };
    return create(loader, &config, begin);
}

static void free_slots(struct ddp_loader *loader)
{
    const struct ddp_loader_memory *memory = &loader->config.memory;
    for (int i = 0; loader->slots && i < loader->config.depth; i++) {
        struct slot *slot = &loader->slots[i];
        if (slot->batch.x)
            memory->free(memory->arg, slot->batch.x, loader->slot_bytes);
        free(slot->message);
        free(slot->indices);
    }
    free(loader->slots);
}

void ddp_loader_destroy(ddp_loader *loader)
{
    if (!loader)
        return;
    pthread_mutex_lock(&loader->ring_lock);
    loader->stopping = true;
    pthread_cond_broadcast(&loader->freed);
    pthread_mutex_unlock(&loader->ring_lock);
    for (int i = 0; i < loader->started; i++)
        pthread_join(loader->threads[i], NULL);
    free(loader->threads);
    free_slots(loader);
    ddp_sampler_destroy(loader->samplers[0]);
    ddp_sampler_destroy(loader->samplers[1]);
    pthread_cond_destroy(&loader->freed);
    pthread_cond_destroy(&loader->ready);
    pthread_mutex_destroy(&loader->ring_lock);
    pthread_mutex_destroy(&loader->plan_lock);
    free(loader);
}

/* --- the caller's side ------------------------------------------------------------------------ */

enum ddp_status ddp_loader_next(ddp_loader *loader, const struct ddp_batch **batch)
{
    struct slot *slot = &loader->slots[loader->delivered % (uint64_t)loader->config.depth];
    enum ddp_status status = DDP_OK;
    pthread_mutex_lock(&loader->ring_lock);
    if (slot->state == SLOT_HELD) {
        status = ddp_fail(DDP_ERR_INVALID,
                          "the loader's batch of %d calls ago is still held: release it first",
                          loader->config.depth);
    } else {
        int64_t start = slot->state == SLOT_READY ? 0 : ddp_clock_ns();
        const int64_t begin = ddp_trace_begin();
        while (slot->state != SLOT_READY)
            pthread_cond_wait(&loader->ready, &loader->ring_lock);
        if (start) {
            loader->wait_ns += ddp_clock_ns() - start;
            ddp_trace_end("wait for data", begin, NULL, 0);
        }
        status = slot->status;
        if (status != DDP_OK && slot->message) {
            (void)ddp_fail(status, "%s", slot->message);
            free(slot->message);
            slot->message = NULL;
        }
        if (status == DDP_OK && !slot->last) { /* an error and the end stay where they are */
            slot->state = SLOT_HELD;
            loader->delivered++;
            *batch = &slot->batch;
        } else if (status == DDP_OK) {
            *batch = NULL;
        }
    }
    pthread_mutex_unlock(&loader->ring_lock);
    return status;
}

void ddp_loader_release(ddp_loader *loader, const struct ddp_batch *batch)
{
    if (!batch)
        return;
    struct slot *slot = (struct slot *)((char *)batch - offsetof(struct slot, batch));
    pthread_mutex_lock(&loader->ring_lock);
    assert(slot->state == SLOT_HELD);
    slot->state = SLOT_FREE;
    pthread_cond_broadcast(&loader->freed);
    pthread_mutex_unlock(&loader->ring_lock);
}

double ddp_loader_wait_seconds(const ddp_loader *loader)
{
    return (double)loader->wait_ns * 1e-9;
}
