/* SPDX-License-Identifier: MIT
 *
 * See frame.h. */
#include "config.h"

#include "launcher/link/frame.h"

#include "job/board.h"

#include <string.h>

#define IN(phase)     (1u << (phase))
#define RUNNING       IN(PHASE_RUNNING)
#define EXACTLY(type) sizeof(type), sizeof(type)

/* Sizes of kind i are in [least, most]. */
static const struct rule {
    size_t least, most;
    unsigned phases;
} rules[] = {
    [FRAME_HELLO] = {EXACTLY(struct hello), IN(PHASE_HELLO)},
    [FRAME_PROOF] = {0, PROOF_MAX, IN(PHASE_PROOF)},
    [FRAME_JOIN] = {EXACTLY(struct join), IN(PHASE_JOIN)},
    [FRAME_REFUSED] = {EXACTLY(struct refusal),
                       IN(PHASE_HELLO) | IN(PHASE_PROOF) | IN(PHASE_WAITING)},
    [FRAME_MEMBER] = {offsetof(struct member, name) + 1, sizeof(struct member),
                      IN(PHASE_WAITING) | RUNNING},
    [FRAME_WELCOME] = {EXACTLY(struct welcome), IN(PHASE_WAITING) | RUNNING},
    [FRAME_PING] = {EXACTLY(struct link_status), IN(PHASE_JOINED) | IN(PHASE_WAITING) | RUNNING},
    [FRAME_LOST] = {1, FRAME_LOST_MAX, RUNNING},
    [FRAME_GOODBYE] = {0, 0, IN(PHASE_JOINED) | IN(PHASE_WAITING) | RUNNING},
    [LINK_POSTED] = {offsetof(struct link_posted, data), sizeof(struct link_posted), RUNNING},
    [LINK_BARRIER] = {EXACTLY(struct link_step), RUNNING},
    [LINK_STOP] = {EXACTLY(struct link_step), RUNNING},
    [LINK_HOLD] = {EXACTLY(struct link_step), RUNNING},
    [LINK_HELD] = {EXACTLY(struct link_step), RUNNING},
    [LINK_STOP_STEP] = {EXACTLY(struct link_step), RUNNING},
    [LINK_FAILED] = {offsetof(struct link_text, text) + 1, sizeof(struct link_text), RUNNING},
    [LINK_END] = {offsetof(struct link_text, text) + 1, sizeof(struct link_text), RUNNING},
    [LINK_DONE] = {EXACTLY(struct link_step), RUNNING},
    [LINK_RESTART] = {EXACTLY(struct link_step), RUNNING},
    [LINK_ABORT] = {EXACTLY(struct link_step), RUNNING},
    [LINK_SIGNAL] = {EXACTLY(struct link_step), RUNNING},
    [LINK_TIMES] = {EXACTLY(struct link_times), RUNNING},
};

static const struct rule *rule_of(uint32_t kind)
{
    return kind < sizeof rules / sizeof rules[0] && rules[kind].phases ? &rules[kind] : NULL;
}

bool frame_size_fits(uint32_t kind, size_t bytes)
{
    const struct rule *rule = rule_of(kind);
    return rule && bytes >= rule->least && bytes <= rule->most;
}

enum frame_result frame_take(enum frame_phase phase, const unsigned char *input, size_t bytes,
                             struct frame *frame, size_t *wanted)
{
    struct frame_header header;
    *wanted = 0;
    if (bytes < sizeof header)
        return FRAME_NONE;
    memcpy(&header, input, sizeof header);
    const struct rule *rule = rule_of(header.kind);
    if (!rule || !(rule->phases & IN(phase)) || !frame_size_fits(header.kind, header.bytes))
        return FRAME_BAD;
    *wanted = sizeof header + header.bytes;
    if (bytes < *wanted)
        return FRAME_NONE;
    *frame = (struct frame){header.kind, header.bytes, input + sizeof header};
    return FRAME_READY;
}

static bool is_nproc(uint32_t nproc)
{
    return nproc > 0 && nproc <= DDP_BOARD_MAX_WORLD;
}

static bool ends(const char *text, size_t size)
{
    return memchr(text, 0, size) != NULL;
}

bool frame_read(const struct frame *frame, union frame_data *data)
{
    const size_t start = offsetof(struct link_text, text);
    if (frame->bytes > 0)
        memcpy(data->bytes, frame->data, frame->bytes);
    switch (frame->kind) {
    case FRAME_HELLO:
        return data->hello.magic == FRAME_MAGIC &&
               (data->hello.protocol != FRAME_PROTOCOL ||
                (ends(data->hello.version, sizeof data->hello.version) &&
                 data->hello.node_count > 0 && data->hello.node < data->hello.node_count));
    case FRAME_JOIN:
        return is_nproc(data->join.nproc) && ends(data->join.version, sizeof data->join.version) &&
               ends(data->join.host, sizeof data->join.host) &&
               ends(data->join.contact, sizeof data->join.contact) &&
               ends(data->join.command, sizeof data->join.command);
    case FRAME_REFUSED:
        return ends(data->refusal.text, sizeof data->refusal.text);
    case FRAME_WELCOME:
        return data->welcome.worker_port > 0 && data->welcome.worker_port < 65536 &&
               data->welcome.node > 0 && data->welcome.node_count > 0 &&
               data->welcome.restart < INT32_MAX && data->welcome.failures < INT32_MAX &&
               data->welcome.first_size <= DDP_BOARD_MAX_WORLD;
    case FRAME_MEMBER:
        return is_nproc(data->member.nproc) &&
               ends(data->member.contact, sizeof data->member.contact) &&
               data->bytes[frame->bytes - 1] == 0;
    case FRAME_LOST:
        return data->bytes[frame->bytes - 1] == 0;
    case FRAME_PING:
        return ends(data->status.phase, sizeof data->status.phase);
    case LINK_FAILED:
    case LINK_END:
        /* The first 0 is the last byte: what is not shown is not carried either. */
        return memchr(data->text.text, 0, frame->bytes - start) == data->bytes + frame->bytes - 1;
    default:
        return true;
    }
}
