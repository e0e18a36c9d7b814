/* SPDX-License-Identifier: MIT
 *
 * See inputs.h. */
#include "config.h"

#include "mode/inputs.h"

#define PLACE_BYTES (2 * sizeof(uint32_t))

enum ddp_status ddp_inputs_open(struct ddp_inputs *inputs, ddp_device *device, ddp_exec *exec,
                                ddp_exec *tail, bool copied, bool ahead)
{
    const bool host = ddp_device_host_memory(device);
    enum ddp_status status = DDP_OK;
    *inputs = (struct ddp_inputs){.device = device};
    for (int i = 0; i < 2 && (copied || !host); i++) {
        inputs->bytes[i] = ddp_exec_input_bytes(exec, i);
        for (int slot = 0; status == DDP_OK && slot <= (ahead && !host); slot++)
            if (inputs->bytes[i])
                status = ddp_device_alloc(device, inputs->bytes[i], &inputs->memory[i][slot]);
    }
    /* What lets a device work from a recording: the position in its own memory. */
    if (status == DDP_OK && !host && ddp_exec_draws(exec))
        status = ddp_device_alloc(device, PLACE_BYTES, (void **)&inputs->place);
    ddp_exec_set_place(exec, inputs->place);
    if (tail)
        ddp_exec_set_place(tail, inputs->place);
    return status;
}

void ddp_inputs_close(struct ddp_inputs *inputs)
{
    if (!inputs->device)
        return;
    ddp_device_free(inputs->device, inputs->place, PLACE_BYTES);
    ddp_device_free(inputs->device, inputs->soft, sizeof *inputs->soft);
    for (int i = 0; i < 2; i++)
        for (int slot = 0; slot < DDP_DEVICE_SLOTS; slot++)
            ddp_device_free(inputs->device, inputs->memory[i][slot], inputs->bytes[i]);
}

static enum ddp_status load(struct ddp_inputs *inputs, ddp_exec *exec, int input, int slot,
                            const void *host)
{
    if (ddp_device_host_memory(inputs->device) || !host)
        return ddp_exec_load_input(exec, input, host, inputs->memory[input][0]);
    ddp_exec_bind_input(exec, input, inputs->memory[input][slot]);
    return ddp_device_fill(inputs->device, slot, inputs->memory[input][slot], host,
                           ddp_exec_input_bytes(exec, input));
}

enum ddp_status ddp_inputs_soften(struct ddp_soft_labels **memory, ddp_device *device,
                                  ddp_exec *exec, const struct ddp_soft_labels *soft)
{
    enum ddp_status status = DDP_OK;
    const bool copied = soft && !ddp_device_host_memory(device);
    if (copied && !*memory)
        status = ddp_device_alloc(device, sizeof **memory, (void **)memory);
    if (status == DDP_OK && copied)
        status = ddp_device_copy_in(device, *memory, soft, sizeof *soft);
    ddp_exec_set_soft_labels(exec, copied ? *memory : soft);
    return status;
}

enum ddp_status ddp_inputs_load(struct ddp_inputs *inputs, ddp_exec *exec, int slot,
                                const struct ddp_batch *batch,
                                const struct ddp_exec_position *position)
{
    const uint32_t place[2] = {position->shard, position->step};
    enum ddp_status status = load(inputs, exec, 0, slot, batch->x);
    if (status == DDP_OK)
        status = load(inputs, exec, 1, slot, batch->labels);
    if (status == DDP_OK)
        status = ddp_device_arrive(inputs->device, slot);
    ddp_exec_set_position(exec, position);
    if (status == DDP_OK)
        status = ddp_inputs_soften(&inputs->soft, inputs->device, exec, batch->soft);
    return status == DDP_OK && inputs->place
               ? ddp_device_copy_in(inputs->device, inputs->place, place, PLACE_BYTES)
               : status;
}
