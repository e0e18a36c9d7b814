/* SPDX-License-Identifier: MIT
 *
 * See hooks.h. */
#include "config.h"

#include "train/hooks.h"

#include "core/log.h"
#include "core/memory.h"
#include "core/versioned.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NO_STATE (-1)

static void name_file(char file[DDP_CHECKPOINT_OWN_NAME + 1], const char *state_name)
{
    snprintf(file, DDP_CHECKPOINT_OWN_NAME + 1, DDP_CHECKPOINT_OWN "%s", state_name);
}

enum ddp_status ddp_hooks_take(struct ddp_hooks *hooks, const struct ddp_hooks *given)
{
    struct ddp_hooks taken = {0};
    char file[DDP_CHECKPOINT_OWN_NAME + 1];
    enum ddp_status status = DDP_OK;
    if (given)
        status = ddp_versioned_take(&taken, sizeof taken, given, "struct ddp_hooks");
    if (status != DDP_OK)
        return status;
    if ((taken.save_state || taken.restore_state) && !taken.state_name)
        return ddp_fail(DDP_ERR_INVALID, "struct ddp_hooks: save_state and restore_state need a "
                                         "state_name, under which the checkpoint has the bytes");
    if (taken.state_name) {
        name_file(file, taken.state_name);
        if (!ddp_checkpoint_is_own(file))
            return ddp_fail(DDP_ERR_INVALID,
                            "struct ddp_hooks: the state_name \"%s\" is not of 1 to %d letters, "
                            "digits, '.', '_' and '-'",
                            taken.state_name,
                            (int)(DDP_CHECKPOINT_OWN_NAME - sizeof DDP_CHECKPOINT_OWN));
    }
    *hooks = taken;
    return DDP_OK;
}

/* What a hook has returned. It cannot ask for a stop, which needs a checkpoint and all ranks. */
static enum ddp_status end_hook(struct ddp_run *run, enum ddp_status status)
{
    const char *name = run->hook;
    run->hook = NULL;
    if (status == DDP_OK || status == DDP_ERR_ABORTED)
        return status;
    if (status > 0 || status == DDP_ERR_PREEMPTED)
        return ddp_fail(DDP_ERR_INVALID, "the hook %s returned %d, which is not a failure's status",
                        name, (int)status);
    return ddp_fail(status, "the program's hook %s failed after step %" PRId64 ": %s", name,
                    run->step, ddp_status_string(status));
}

enum ddp_status ddp_run_before_step(struct ddp_run *run)
{
    const struct ddp_hooks *hooks = run->hooks;
    if (!hooks->before_step)
        return DDP_OK;
    run->hook = "before_step";
    return end_hook(run, hooks->before_step(hooks->arg, run->train, run->step + 1));
}

enum ddp_status ddp_run_after_step(struct ddp_run *run, const struct ddp_step *step)
{
    const struct ddp_hooks *hooks = run->hooks;
    if (!hooks->after_step)
        return DDP_OK;
    run->hook = "after_step";
    return end_hook(run, hooks->after_step(hooks->arg, run->train, step));
}

enum ddp_status ddp_run_after_evaluation(struct ddp_run *run,
                                         const struct ddp_evaluation *evaluation)
{
    const struct ddp_hooks *hooks = run->hooks;
    if (!hooks->after_evaluation)
        return DDP_OK;
    run->hook = "after_evaluation";
    return end_hook(run, hooks->after_evaluation(hooks->arg, run->train, evaluation));
}

/* --- the program's own state ------------------------------------------------------------------ */

enum ddp_status ddp_run_save_own(struct ddp_run *run, struct ddp_own *own)
{
    const struct ddp_hooks *hooks = run->hooks;
    *own = (struct ddp_own){.bytes = NULL};
    if (!hooks->save_state)
        return DDP_OK;
    run->hook = "save_state";
    run->hook_alone = true;
    enum ddp_status status = hooks->save_state(hooks->arg, run->train, &own->bytes, &own->count);
    run->hook_alone = false;
    if (status == DDP_OK && own->count > 0 && !own->bytes)
        status = ddp_fail(DDP_ERR_INVALID, "save_state gives %zu bytes at NULL", own->count);
    name_file(own->file, hooks->state_name);
    return end_hook(run, status);
}

/* Rank 0's bytes, for all.
 *   count  NO_STATE: there are none */
static enum ddp_status spread(struct ddp_run *run, int64_t *count, void **bytes)
{
    void *own = run->resumed.own; /* NULL on all ranks but 0 */
    enum ddp_status status = ddp_comm_broadcast(run->comm, count, 1, DDP_I64, 0);
    *bytes = NULL;
    if (status != DDP_OK || *count == NO_STATE)
        return status;
    const size_t words = ((size_t)*count + sizeof(int64_t) - 1) / sizeof(int64_t);
    *bytes = ddp_array_alloc(words, sizeof(int64_t));
    if (!*bytes)
        return DDP_ERR_MEMORY;
    if (own && *count > 0)
        memcpy(*bytes, own, (size_t)*count);
    return ddp_comm_broadcast(run->comm, *bytes, words, DDP_I64, 0);
}

enum ddp_status ddp_run_restore_own(struct ddp_run *run)
{
    const struct ddp_hooks *hooks = run->hooks;
    const struct ddp_checkpoint *resumed = &run->resumed;
    char file[DDP_CHECKPOINT_OWN_NAME + 1];
    int64_t count = NO_STATE;
    void *bytes = NULL;
    enum ddp_status status = DDP_OK;
    if (run->is_resumed && hooks->restore_state) {
        name_file(file, hooks->state_name);
        if (resumed->own && strcmp(resumed->state.own_file, file) == 0)
            count = (int64_t)resumed->state.own.bytes;
        status = spread(run, &count, &bytes);
    }
    free(run->resumed.own);
    run->resumed.own = NULL;
    if (status == DDP_OK && count != NO_STATE) {
        run->hook = "restore_state";
        status = end_hook(run, hooks->restore_state(hooks->arg, run->train, bytes, (size_t)count));
    }
    free(bytes);
    return status;
}
