/* SPDX-License-Identifier: MIT
 *
 * ddpreport scale: what a step would take, and hold, on more machines. The batch of a worker stays
 * what it was in the run that is asked about, so the global batch grows with the workers.
 *
 * A step takes the time t that it took on one machine, and what its exchange adds to that: the part
 * of the wire's time that nothing hides, and the processors' time for the bytes. A machine of N
 * sends 2 (N-1)/N of the gradients' bytes, in 2 (N-1) messages or more. The way there is hidden by
 * backward, at most 2/3 of t; the way back is not where it carries weights. */
#ifndef DDP_REPORTER_SCALE_H
#define DDP_REPORTER_SCALE_H

#include "reporter/run_log.h"
#include "reporter/settings.h"

enum way { ACCUMULATION, DDP, ZERO_1, ZERO_2, ZERO_3, PIPELINE, LOCAL, WAYS };

enum bound { BY_ARITHMETIC, BY_MEMORY, BY_WIRE, BY_PROCESSORS, BY_BUBBLE };

#define SCALE_HIDDEN (2.0 / 3) /* backward */

/* What is known of a training, from its run on one machine, and of the machines. */
struct scale_model {
    double step;                                       /* s, of a worker with its shards */
    double weights, optimizer, gradients, activations; /* bytes, all of them; of a worker */
    double shards;                                     /* of a worker */
    double hidden;         /* share of the step that hides what is sent, at most SCALE_HIDDEN */
    double price;          /* s of a worker for a byte that it sends */
    bool host;             /* workers of a machine have one copy of what they share */
    int64_t workers;       /* of a machine */
    double memory;         /* bytes of a machine, or of each GPU; 0: not known */
    double rate, latency;  /* of its link: bytes/s; s of a message */
    int64_t every, stages; /* of local steps, of a pipeline */
};

struct forecast {
    double seconds, efficiency; /* of a step; speed of a worker, beside one that is alone */
    double memory;              /* bytes, as in the model */
    bool fits;
    enum bound bound;
};

struct forecast scale_predict(const struct scale_model *model, enum way way, int64_t nodes);

/* Sets `hidden` and `price` so that the model predicts what was measured on so many machines. */
void scale_fit(struct scale_model *model, enum way way, int64_t nodes, double seconds);

/* The best way that fits: the fastest, and of those within 1 % the one that holds least; WAYS: none
 * fits. Accumulation is not asked, nor are local steps, which end in other weights. */
enum way scale_best(const struct scale_model *model, int64_t nodes);

#endif
