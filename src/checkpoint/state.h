/* SPDX-License-Identifier: MIT
 *
 * state.json of a checkpoint: the progress of the training, the settings that a resumed run must
 * share with the one that wrote it, and the sizes and checksums of the other files. Text in, text
 * out: no files here. */
#ifndef DDP_CHECKPOINT_STATE_H
#define DDP_CHECKPOINT_STATE_H

#include "core/json.h"

#define DDP_CHECKPOINT_FACTS       32
#define DDP_CHECKPOINT_STATE_BYTES 65536 /* a longer state.json is refused */
#define DDP_CHECKPOINT_REASON      512
#define DDP_CHECKPOINT_NO_MEMORY   "out of memory" /* a reason that is not the file's fault */

/* A fact that earlier versions did not write: checkpoints without it match. */
#define DDP_CHECKPOINT_DATA "fingerprint of the data"

/* Facts that a message explains. */
#define DDP_CHECKPOINT_SHARDS "shards"
#define DDP_CHECKPOINT_BATCH  "batch size"

/* Of facts that are not compared like the others. */
#define DDP_CHECKPOINT_LANES     "lanes"
#define DDP_CHECKPOINT_FROZEN    "frozen parameters"
#define DDP_CHECKPOINT_REFERENCE "weights of the reference"

/* Nothing here depends on the number of workers. */
struct ddp_checkpoint_cursor {
    uint64_t seed;
    int64_t step;          /* optimizer steps done; the next one's number, from 0 */
    int64_t epoch;         /* of the next step, from 0 */
    int64_t step_in_epoch; /* of the next step, from 0 */
    int64_t sample;        /* position in the epoch's order that the next step begins at */
};

/* Something that decides the bits: "batch size" is "64". */
struct ddp_checkpoint_fact {
    char name[32];
    char value[512]; /* milestones are the longest */
};

struct ddp_checkpoint_facts {
    int count;
    struct ddp_checkpoint_fact facts[DDP_CHECKPOINT_FACTS];
};

enum ddp_checkpoint_part {
    DDP_CHECKPOINT_MODEL,
    DDP_CHECKPOINT_OPTIMIZER,
    DDP_CHECKPOINT_PARTS,
};

extern const char *const ddp_checkpoint_part_names[DDP_CHECKPOINT_PARTS]; /* file names */

struct ddp_checkpoint_part_sum {
    uint64_t bytes;
    uint32_t crc32; /* as zlib's */
};

/* The evaluation with the lowest loss so far. */
struct ddp_checkpoint_best {
    char samples[64]; /* what was evaluated, as a text to compare; "": nothing yet */
    int64_t step;     /* steps done then; 0: no loss was finite */
    double loss;      /* finite */
    int64_t since;    /* evaluations after it */
};

/* Of local steps: what each worker had for itself, in arrays of its own. */
struct ddp_checkpoint_apart {
    int64_t workers;     /* 0: no step is local */
    bool weights, state; /* weights: it was written between two synchronisations */
};

/* A program's own state is in a file of the name that it gave, behind this. */
#define DDP_CHECKPOINT_OWN      "own-"
#define DDP_CHECKPOINT_OWN_NAME 37 /* bytes of the file's name, with its end */

/* Whether it is such a name. */
bool ddp_checkpoint_is_own(const char *file);

struct ddp_checkpoint_state {
    struct ddp_checkpoint_cursor cursor;
    struct ddp_checkpoint_facts facts;
    struct ddp_checkpoint_best best;
    struct ddp_checkpoint_apart apart;
    bool has_rate;         /* the program has set the learning rate, in the schedule's place: */
    double rate;           /* finite */
    double loss_scale;     /* of losses that are scaled, a float; 0: they are not */
    int64_t good_steps;    /* since it changed, without an infinite gradient */
    int64_t skipped_steps; /* of all, with one */
    struct ddp_checkpoint_part_sum parts[DDP_CHECKPOINT_PARTS];
    char own_file[DDP_CHECKPOINT_OWN_NAME]; /* "": there is none */
    struct ddp_checkpoint_part_sum own;
};

/* Adds or replaces a fact; the value is cut where it is too long, on both sides of a comparison
 * alike. */
void ddp_checkpoint_fact_add(struct ddp_checkpoint_facts *facts, const char *name,
                             const char *format, ...) DDP_PRINTF(3, 4);

const char *ddp_checkpoint_fact_value(const struct ddp_checkpoint_facts *facts,
                                      const char *name); /* "unknown" when there is none */

/* Facts as an object of strings, NULL without memory; and the reverse, false with a reason of
 * DDP_CHECKPOINT_REASON bytes. */
json_t *ddp_checkpoint_facts_object(const struct ddp_checkpoint_facts *facts);
bool ddp_checkpoint_facts_read(struct ddp_checkpoint_facts *facts, json_t *object, char *reason);

/* The text of state.json, with a checksum of its own.
 *   text [out]  freed with free()
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_checkpoint_state_format(char **text, size_t *bytes,
                                            const struct ddp_checkpoint_state *state);

/* The reverse. Any change of any byte is found out.
 *   reason [out]  DDP_CHECKPOINT_REASON bytes: what is wrong, when false is returned. Nothing is
 * logged: the caller may have another checkpoint. */
bool ddp_checkpoint_state_parse(struct ddp_checkpoint_state *state, const char *text, size_t bytes,
                                char *reason);

/* Sets a reason of DDP_CHECKPOINT_REASON bytes; always false, so that a `return` of it reads well.
 */
bool ddp_checkpoint_wrong(char *reason, const char *format, ...) DDP_PRINTF(2, 3);

/* Writes every difference between two runs with both values: "batch size 8 (now 4), ...".
 *   text [out]  freed with free(); NULL: there is none
 * DDP_ERR_MEMORY. */
enum ddp_status ddp_checkpoint_differences(char **text, uint64_t saved_seed,
                                           const struct ddp_checkpoint_facts *saved, uint64_t seed,
                                           const struct ddp_checkpoint_facts *facts);

/* DDP_ERR_INVALID when a run with this seed and these facts would not continue as the saved one
 * would have: one message with every difference and both values.
 *   path   of the checkpoint, for the message
 *   again  the run is computed again, not continued: no advice */
enum ddp_status ddp_checkpoint_state_match(const struct ddp_checkpoint_state *saved,
                                           const char *path, uint64_t seed,
                                           const struct ddp_checkpoint_facts *facts, bool again);

#endif
