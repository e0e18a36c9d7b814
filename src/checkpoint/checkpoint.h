/* SPDX-License-Identifier: MIT
 *
 * Checkpoints: DIR/step-00000100/ with the weights (model.safetensors), the optimizer's state
 * (optimizer.safetensors), perhaps state of the program's own (own-NAME), and state.json, which has
 * the cursor and a checksum of everything. The writer copies what it is given and writes in a
 * thread of its own; the reader takes a checkpoint only after it has checked every byte. */
#ifndef DDP_CHECKPOINT_CHECKPOINT_H
#define DDP_CHECKPOINT_CHECKPOINT_H

#include "graph/graph.h"
#include "checkpoint/directory.h"
#include "checkpoint/state.h"
#include "weights/weights.h"

/* An array whose name ends so has all tensors, not those alone that are learned. */
#define DDP_CHECKPOINT_WHOLE ".weights"

/* --- Writing: one rank does it, from one thread ----------------------------------------------- */

typedef struct ddp_checkpoint_writer ddp_checkpoint_writer;

struct ddp_checkpoint_writer_config {
    const struct ddp_checkpoint_dir *dir; /* outlives the writer, as does the graph */
    const ddp_graph *graph;
    int64_t keep;   /* checkpoints that stay, the newest ones; 0: all */
    bool keep_best; /* and the one of the best evaluation, to which DIR/best is made to point */
    /* Flat host arrays of ddp_graph_flat_count() elements that a checkpoint has: the weights first,
     * then the optimizer's state arrays with their names. */
    int array_count;
    const char *const *array_names; /* copied; the first is not used */
    /* NULL: a checkpoint is written from a copy of the arrays. Or else from their parts, one after
     * another, before ddp_checkpoint_start() returns. */
    const struct ddp_flat_source *source;
};

/* Takes the copy's memory, so that it is not missing later. DDP_ERR_MEMORY, DDP_ERR_SYSTEM. */
enum ddp_status ddp_checkpoint_writer_create(ddp_checkpoint_writer **writer,
                                             const struct ddp_checkpoint_writer_config *config);

/* Waits for the last write. What it had to say was logged. */
void ddp_checkpoint_writer_destroy(ddp_checkpoint_writer *writer);

/* Waits for the write before, whose failure is returned, and gives the arrays to fill; NULL: they
 * come from a source. */
enum ddp_status ddp_checkpoint_begin(ddp_checkpoint_writer *writer, float *const **arrays);

/* After that and before the start: this checkpoint does not have array i. */
void ddp_checkpoint_leave_out(ddp_checkpoint_writer *writer, int i);

/* After that and before the start: state of the program's own goes into this checkpoint. Copied.
 *   file  its name, as ddp_checkpoint_is_own() wants it */
enum ddp_status ddp_checkpoint_add_own(ddp_checkpoint_writer *writer, const char *file,
                                       const void *bytes, size_t count);

/* Starts to write the filled arrays; they are the writer's until the next begin. With a source,
 * writes them; ddp_checkpoint_poll() and _wait() tell of failures.
 *   state  what it says of the files is filled in by the writer */
enum ddp_status ddp_checkpoint_start(ddp_checkpoint_writer *writer,
                                     const struct ddp_checkpoint_state *state);

/* The failure of a write that has ended; DDP_OK while it runs. Never blocks. */
enum ddp_status ddp_checkpoint_poll(ddp_checkpoint_writer *writer);

/* Whether what was started is still being written. Never blocks. */
bool ddp_checkpoint_is_writing(const ddp_checkpoint_writer *writer);

/* Waits until what was started is durable. DDP_ERR_IO: disk full, say; older checkpoints are
 * untouched. */
enum ddp_status ddp_checkpoint_wait(ddp_checkpoint_writer *writer);

/* --- Reading ---------------------------------------------------------------------------------- */

/* A checkpoint, every byte checked; its files of tensors are open. */
struct ddp_checkpoint {
    char *path; /* NULL: there is none */
    struct ddp_checkpoint_state state;
    ddp_safetensors *files[DDP_CHECKPOINT_PARTS];
    void *own; /* state of the program's own; NULL: none */
};

/* Reads the checkpoint with the highest step in a directory that is whole; others are skipped with
 * a warning each that says what is wrong. An empty directory gives path == NULL.
 * DDP_ERR_FORMAT: there are checkpoints, but none is whole. DDP_ERR_IO, DDP_ERR_MEMORY. */
enum ddp_status ddp_checkpoint_read_latest(struct ddp_checkpoint *checkpoint,
                                           const struct ddp_checkpoint_dir *dir);

/* Reads DIR/step-..., or the latest in DIR. DDP_ERR_FORMAT: it is not whole; says why. */
enum ddp_status ddp_checkpoint_read(struct ddp_checkpoint *checkpoint, const char *path);
void ddp_checkpoint_free(struct ddp_checkpoint *checkpoint);

/* Finds the file of weights of the checkpoint DIR/step-..., or of the latest one in DIR, and
 * compares it with its checksum. Damaged ones in DIR are skipped.
 *   tell        warn of them
 *   file [out]  its path, freed with free(); NULL: there is no checkpoint
 * DDP_ERR_FORMAT: there are some, but none is whole. */
enum ddp_status ddp_checkpoint_find_weights(char **file, const char *path, bool tell);

/* Gives the files back; path, state and the program's own stay. */
void ddp_checkpoint_drop_files(struct ddp_checkpoint *checkpoint);

/* Reads `count` elements of a flat array, from `begin`: all of its tensors that lie there.
 *   array  NULL: the weights; else the name of a state array
 * DDP_ERR_FORMAT: a tensor is not there, or not with the graph's shape. DDP_ERR_IO. */
enum ddp_status ddp_checkpoint_take(const struct ddp_checkpoint *checkpoint, const ddp_graph *graph,
                                    const char *array, int64_t begin, int64_t count, float *values);

/* For the writer: the tensors of a flat array, with the names they have in the file.
 *   array       NULL: the weights; else the name of a state array
 *   flat        NULL: the tensors get no data
 *   tensors     one for each tensor of the graph that is saved
 *   names       their names, freed with free() one by one
 *   parameters  whose values they have */
enum ddp_status ddp_checkpoint_tensors(const ddp_graph *graph, const char *array, const float *flat,
                                       struct ddp_safetensor *tensors, char **names,
                                       const struct ddp_parameter **parameters);

/* How many those are: all of the graph's parameters, or those that are learned. */
size_t ddp_checkpoint_tensor_count(const ddp_graph *graph, const char *array);

/* Whether this is whole, by its state.json and the sizes of its files alone: a quick look at many
 * checkpoints.
 *   dir_fd  of the directory of checkpoints */
bool ddp_checkpoint_looks_whole(int dir_fd, int64_t step);

#endif
