/* SPDX-License-Identifier: MIT
 *
 * See passes.h. The step is played through with a unit of time for each pass: what can begin
 * first does, and of passes that can begin at the same time a backward one. */
#include "config.h"

#include "mode/passes.h"

#include "core/memory.h"

#include <stdlib.h>

#define FORWARD_TIME  1
#define BACKWARD_TIME 2

/* How far the step has been played. */
struct play {
    const struct ddp_stages *stages;
    int64_t shards;
    int64_t *ends;                       /* (pieces, 2, shards): when a pass ends */
    int64_t next[DDP_STAGES_MAX + 1][2]; /* of each piece: forward, backward passes so far */
    int64_t free_at[DDP_STAGES_MAX];
};

/* Does a piece beside its stage's own: the operations before the first stage? */
static bool is_extra(const struct ddp_stages *stages, int piece)
{
    return piece == 0 && stages->piece_count > stages->count;
}

/* What lies before the first stage is one shard ahead of it. */
int ddp_passes_in_flight(const struct ddp_stages *stages, int64_t shards, int piece)
{
    const int most =
        is_extra(stages, piece) ? stages->count + 1 : stages->count - stages->pieces[piece].stage;
    return shards < most ? (int)shards : most;
}

static int64_t *end_of(const struct play *play, int piece, bool backward, int64_t shard)
{
    return &play->ends[(piece * 2 + backward) * play->shards + shard];
}

/* When the next pass of a piece can begin; -1: it cannot yet, or there is none. */
static int64_t begin_of(const struct play *play, int piece, bool backward)
{
    const int64_t shard = play->next[piece][backward];
    const int64_t in_flight = play->next[piece][0] - play->next[piece][1];
    int before = backward ? piece + 1 : piece - 1; /* the piece that it waits for */
    bool before_backward = backward;
    if (shard == play->shards || (backward && in_flight == 0))
        return -1;
    if (!backward && in_flight >= ddp_passes_in_flight(play->stages, play->shards, piece))
        return -1;
    if (backward && piece == play->stages->piece_count - 1) {
        before = piece;
        before_backward = false;
    }
    if (before >= 0 && play->next[before][before_backward] <= shard)
        return -1;
    const int64_t ready = before < 0 ? 0 : *end_of(play, before, before_backward, shard);
    const int64_t idle = play->free_at[play->stages->pieces[piece].stage];
    return ready > idle ? ready : idle;
}

/* The pass that begins first. Pieces before the first stage cost next to nothing, and others wait
 * for them. */
static struct ddp_pass next_pass(const struct play *play, int64_t *begin)
{
    struct ddp_pass best = {.piece = -1};
    int64_t best_rank = 0;
    *begin = -1;
    for (int piece = 0; piece < play->stages->piece_count; piece++)
        for (int backward = 0; backward < 2; backward++) {
            const int64_t at = begin_of(play, piece, backward);
            const int64_t rank = 2 * is_extra(play->stages, piece) + backward;
            if (at < 0 || (*begin >= 0 && (at > *begin || (at == *begin && rank <= best_rank))))
                continue;
            best = (struct ddp_pass){play->next[piece][backward], piece, backward};
            best_rank = rank;
            *begin = at;
        }
    return best;
}

static void play_pass(struct play *play, const struct ddp_pass *pass, int64_t begin)
{
    const int64_t time = is_extra(play->stages, pass->piece) ? 0
                         : pass->backward                    ? BACKWARD_TIME
                                                             : FORWARD_TIME;
    *end_of(play, pass->piece, pass->backward, pass->shard) = begin + time;
    play->free_at[play->stages->pieces[pass->piece].stage] = begin + time;
    play->next[pass->piece][pass->backward]++;
}

enum ddp_status ddp_passes_make(struct ddp_passes *passes, const struct ddp_stages *stages,
                                int64_t shards, int stage)
{
    struct play play = {.stages = stages, .shards = shards};
    const size_t all = (size_t)stages->piece_count * 2 * (size_t)shards;
    *passes = (struct ddp_passes){0};
    play.ends = ddp_array_alloc(all, sizeof *play.ends);
    passes->list = ddp_array_alloc(4 * (size_t)shards, sizeof *passes->list);
    for (size_t i = 0; play.ends && passes->list && i < all; i++) {
        int64_t begin;
        const struct ddp_pass pass = next_pass(&play, &begin);
        play_pass(&play, &pass, begin);
        if (stages->pieces[pass.piece].stage == stage)
            passes->list[passes->count++] = pass;
    }
    const bool made = play.ends && passes->list;
    free(play.ends);
    if (!made)
        ddp_passes_free(passes);
    return made ? DDP_OK : DDP_ERR_MEMORY;
}

void ddp_passes_free(struct ddp_passes *passes)
{
    free(passes->list);
    *passes = (struct ddp_passes){0};
}

int ddp_passes_ahead(const struct ddp_passes *passes, int piece, int earlier)
{
    int ahead = 0, most = 0;
    for (int64_t i = 0; i < passes->count; i++) {
        const struct ddp_pass *pass = &passes->list[i];
        if (pass->backward && pass->piece == piece && ++ahead > most)
            most = ahead;
        if (pass->backward && pass->piece == earlier)
            ahead--;
    }
    return most;
}
