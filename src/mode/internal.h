/* SPDX-License-Identifier: MIT
 *
 * What modes share: a mode is one file that ends in one const struct ddp_mode_ops, and one line in
 * mode.c. Its own struct begins with a struct ddp_mode. */
#ifndef DDP_MODE_INTERNAL_H
#define DDP_MODE_INTERNAL_H

#include "mode/network.h"
#include "mode/updater.h"

struct ddp_share_reader;

struct ddp_mode {
    const struct ddp_mode_ops *ops;
    struct ddp_mode_setup setup;
    struct ddp_replica
        *replicas;              /* setup.replicas; the first has the weights to evaluate and save */
    struct ddp_updater updater; /* of the first one's weights */
    bool averages;              /* the array of their moving average is filled */
    bool averaged;              /* ... which is in their place, and they in that array */
    bool lacks_weights;         /* other workers have the new float32 values of some weights */
    bool everywhere;            /* what the mode is given now, all ranks have: it does not travel */
    bool failed;                /* transfers to or from others will not finish */
};

struct ddp_mode_ops {
    size_t bytes; /* of the mode's own struct, which comes zeroed except setup and replicas */
    /* Opens the replicas and the updater. close() and what follows are called even after a
     * failure. */
    enum ddp_status (*open)(ddp_mode *mode);
    /* Closes what is the mode's own, before updater and replicas are closed. */
    void (*close)(ddp_mode *mode);
    enum ddp_status (*step)(ddp_mode *mode, ddp_loader *loader, double rate, int64_t step,
                            float *loss);
    /* As ddp_mode_save_state() and ddp_mode_load_state(); NULL: there is one rank, with all of the
     * updater's state. */
    enum ddp_status (*save_state)(ddp_mode *mode, int i, int64_t begin, int64_t count,
                                  float *values);
    enum ddp_status (*load_state)(ddp_mode *mode, int i, int64_t begin, int64_t count,
                                  const float *values);
    /* As ddp_mode_get_weights(); NULL: the first replica has them all. */
    enum ddp_status (*get_weights)(ddp_mode *mode, int64_t begin, int64_t count, float *values);
    /* As ddp_mode_complete_weights(), if weights are missing, for at least these elements: as long
     * as lacks_weights remains, until the next ones are asked for. */
    enum ddp_status (*complete_weights)(ddp_mode *mode, int64_t begin, int64_t count);
    /* As ddp_mode_own_weights(); NULL: the first replica has them all. */
    enum ddp_status (*own_weights)(ddp_mode *mode, int64_t begin, int64_t count, float *values,
                                   bool *own);
    /* As ddp_mode_put_weights(). */
    enum ddp_status (*put_weights)(ddp_mode *mode, int64_t begin, int64_t count,
                                   const float *values);
    /* As ddp_mode_state_name(), ddp_mode_has_state() and ddp_mode_apart_now(), i from 0 after the
     * optimizer's arrays; NULL: there are no others. */
    const char *(*array_name)(const ddp_mode *mode, int i);
    bool (*has_array)(const ddp_mode *mode, int i, const struct ddp_mode_apart *apart);
    struct ddp_mode_apart (*apart)(const ddp_mode *mode);
    /* As ddp_mode_average(); NULL: there are no local steps. */
    enum ddp_status (*average)(ddp_mode *mode);
    /* As ddp_mode_idle_share(); NULL: it is not measured. */
    double (*idle_share)(const ddp_mode *mode);
    /* After a step: brings the sums of these gradients into the first replica; NULL: they are. */
    enum ddp_status (*gather_gradients)(ddp_mode *mode, int64_t begin, int64_t count);
    /* Copies sums of gradients to host memory; NULL: the first replica has them all. */
    enum ddp_status (*get_gradients)(ddp_mode *mode, int64_t begin, int64_t count, float *values);
    /* What a network's passes read, where a machine does not have all weights; leaves NULL where it
     * has. NULL: all have. */
    enum ddp_status (*open_reader)(ddp_mode *mode, const ddp_graph *graph, unsigned parts,
                                   struct ddp_share_reader **reader);
    /* NULL: a network is an exec on the first replica's device. */
    const struct ddp_network_ops *network;
};

/* A kind of network's own struct begins with this one. */
struct ddp_network {
    const struct ddp_network_ops *ops;
    ddp_mode *mode;
    ddp_device *device; /* the mode's, unless open() has set another one */
    ddp_exec *exec;     /* NULL: another worker has the output */
};

struct ddp_network_ops {
    size_t bytes; /* of its own struct, which comes zeroed except ops, mode and device */
    /* After a failure close() is called. */
    enum ddp_status (*open)(ddp_network *network, const ddp_graph *graph, unsigned parts);
    void (*close)(ddp_network *network);
    enum ddp_status (*run)(ddp_network *network, const void *x, const void *labels);
    enum ddp_status (*idle)(ddp_network *network); /* NULL: nobody waits for it */
};

extern const struct ddp_mode_ops ddp_mode_ddp, ddp_mode_dp, ddp_mode_pipeline;

/* What each worker or replica runs; in DataParallel only the master has the loss. */
#define DDP_MODE_WORKER_PARTS  (DDP_EXEC_NETWORK | DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)
#define DDP_MODE_REPLICA_PARTS (DDP_EXEC_NETWORK | DDP_EXEC_BACKWARD)
#define DDP_MODE_MASTER_PARTS  (DDP_EXEC_LOSS | DDP_EXEC_BACKWARD)

/* DataParallel: whether this replica takes gradients from another device's memory, through its own
 * array. */
bool ddp_dp_stages(const struct ddp_mode_setup *setup, bool host_memory, int replica);

/* Array i of the optimizer's state, in device memory; NULL after the last. */
float *ddp_mode_state(const ddp_mode *mode, int i);
int ddp_mode_state_count(const ddp_mode *mode);

/* Copies elements to or from host memory; done when these return. */
enum ddp_status ddp_mode_copy_state_out(const ddp_mode *mode, int i, int64_t begin, int64_t count,
                                        float *values);
enum ddp_status ddp_mode_copy_state_in(const ddp_mode *mode, int i, int64_t begin, int64_t count,
                                       const float *values);

#endif
