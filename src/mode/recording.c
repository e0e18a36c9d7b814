/* SPDX-License-Identifier: MIT
 *
 * See recording.h. */
#include "config.h"

#include "mode/recording.h"

#include "core/log.h"
#include "core/memory.h"

#include <stdlib.h>
#include <string.h>

#define MESSAGE_BYTES 512

static void drop_parts(struct ddp_recordings *recordings, struct ddp_recording *recording)
{
    for (int i = 0; i < recording->part_count; i++)
        ddp_device_recording_free(recordings->device, recording->parts[i].work);
    free(recording->parts);
    recording->parts = NULL;
    recording->part_count = recording->capacity = 0;
}

static bool make_room(struct ddp_recording *recording)
{
    if (recording->part_count < recording->capacity)
        return true;
    const int capacity = recording->capacity ? 2 * recording->capacity : 4;
    struct ddp_recording_part *parts = ddp_array_alloc((size_t)capacity, sizeof *parts);
    if (!parts)
        return false;
    if (recording->part_count > 0)
        memcpy(parts, recording->parts, (size_t)recording->part_count * sizeof *parts);
    free(recording->parts);
    recording->parts = parts;
    recording->capacity = capacity;
    return true;
}

static void end_part(struct ddp_recordings *recordings, struct ddp_recording *recording,
                     int64_t end)
{
    void *work = NULL;
    if (ddp_device_record_end(recordings->device, &work) != DDP_OK)
        work = NULL;
    if (!work || !make_room(recording)) {
        ddp_device_recording_free(recordings->device, work);
        recordings->failed = true;
        return;
    }
    recording->parts[recording->part_count++] = (struct ddp_recording_part){work, end};
}

enum ddp_status ddp_recordings_cut(struct ddp_recordings *recordings,
                                   struct ddp_recording *recording, int64_t end)
{
    end_part(recordings, recording, end);
    if (!recordings->failed && ddp_device_record_begin(recordings->device) != DDP_OK)
        recordings->failed = true;
    return recordings->failed ? DDP_ERR_UNSUPPORTED : DDP_OK;
}

/* Errors while recording are none: the pass will be run, and fail then if it has to. */
void ddp_recordings_make(struct ddp_recordings *recordings, struct ddp_recording *recording,
                         ddp_recording_pass *pass, void *arg)
{
    char message[MESSAGE_BYTES] = "";
    if (ddp_device_record_begin(recordings->device) != DDP_OK) {
        recordings->off = true;
        return;
    }
    recordings->failed = false;
    ddp_log_hold(message, sizeof message);
    enum ddp_status status = pass(arg);
    if (!recordings->failed)
        end_part(recordings, recording, -1);
    ddp_log_hold(NULL, 0);
    if (status == DDP_OK && !recordings->failed)
        return;
    drop_parts(recordings, recording);
    ddp_log(DDP_LOG_DEBUG, "the step is not recorded: %s", *message ? message : "it cannot be");
}

enum ddp_status ddp_recordings_run(const struct ddp_recordings *recordings,
                                   const struct ddp_recording *recording, ddp_exec_ready *ready,
                                   void *arg)
{
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < recording->part_count; i++) {
        const struct ddp_recording_part *part = &recording->parts[i];
        status = ddp_device_replay(recordings->device, part->work);
        if (status == DDP_OK && ready && part->end >= 0)
            status = ready(arg, part->end);
    }
    return status;
}

void ddp_recordings_free(struct ddp_recordings *recordings)
{
    struct ddp_recording *all = &recordings->of[0][0][0][0][0][0];
    for (size_t i = 0; recordings->device && i < sizeof recordings->of / sizeof *all; i++)
        drop_parts(recordings, all + i);
}
