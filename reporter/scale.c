/* SPDX-License-Identifier: MIT
 *
 * See scale.h. */
#include "config.h"

#include "reporter/scale.h"

#include <math.h>

#define PAYLOAD (1448.0 / 1514) /* of TCP in frames of Ethernet */
#define MESSAGE (1 << 20)       /* bytes, at most: comm/nodes.h */
#define NOTABLE 0.1             /* of a step: what adds less does not bind it */

/* Seconds in which a machine of several sends these bytes once to all others, and gets as many. */
static double one_way(const struct scale_model *model, int64_t nodes, double bytes)
{
    const double others = (double)(nodes - 1);
    const double slice = bytes / (double)(model->workers * nodes);
    return bytes * others / (double)nodes / (model->rate * PAYLOAD) +
           others * ceil(slice / MESSAGE) * model->latency;
}

static double above(double value)
{
    return value > 0 ? value : 0;
}

/* What a step's exchange needs: of the wire what nothing hides, and the bytes that a machine
 * sends. */
struct exchange {
    double exposed, sent;
};

static struct exchange exchange_of(const struct scale_model *model, enum way way, int64_t nodes)
{
    const double hidden = model->hidden * model->step, bytes = model->gradients;
    const double once = one_way(model, nodes, bytes);
    const double sent = bytes * (double)(nodes - 1) / (double)nodes;
    const int64_t replicas = nodes / model->stages;
    const double part = bytes / (double)model->stages;
    switch (way) {
    case DDP: /* sums come back while backward goes on */
        return (struct exchange){above(2 * once - hidden), 2 * sent};
    case ZERO_1:
    case ZERO_2:
        return (struct exchange){above(once - hidden) + once, 2 * sent};
    case ZERO_3: /* weights come before forward and before backward, while others compute */
        return (struct exchange){above(3 * once - 1.5 * hidden), 3 * sent};
    case LOCAL: /* weights and state, and nothing computes meanwhile */
        return (struct exchange){4 * once / (double)model->every, 4 * sent / (double)model->every};
    case PIPELINE: /* between the replicas of a stage; what crosses its cuts is small beside it */
        if (nodes < model->stages || replicas < 2)
            return (struct exchange){0};
        return (struct exchange){2 * one_way(model, replicas, part),
                                 2 * part * (double)(replicas - 1) / (double)replicas};
    default:
        return (struct exchange){0};
    }
}

/* Of a machine, or of each GPU. */
static double memory_of(const struct scale_model *model, enum way way, int64_t nodes)
{
    const double workers = model->host ? (double)model->workers : 1;
    const double shares = model->host ? (double)nodes : (double)(nodes * model->workers);
    const double copies = model->host && way != DDP && way != LOCAL ? 1 : workers;
    const double stages = (double)(nodes < model->stages ? nodes : model->stages);
    double weights = model->weights * copies, optimizer = model->optimizer * copies;
    double gradients = model->gradients * workers, activations = model->activations * workers;
    if (way == ACCUMULATION)
        return model->weights + model->optimizer + model->gradients + model->activations;
    if (way == PIPELINE)
        return (weights + optimizer + gradients) / stages + activations;
    if (way == ZERO_1 || way == ZERO_2 || way == ZERO_3)
        optimizer /= shares;
    if (way == ZERO_2 || way == ZERO_3)
        gradients = model->gradients / (model->host ? shares : shares / workers);
    if (way == ZERO_3)
        weights /= shares;
    return weights + optimizer + gradients + activations;
}

struct forecast scale_predict(const struct scale_model *model, enum way way, int64_t nodes)
{
    const double units = (double)(nodes * model->workers);
    const struct exchange exchange =
        nodes > 1 ? exchange_of(model, way, nodes) : (struct exchange){0};
    const double processors = model->price * exchange.sent / (double)model->workers;
    const double stages = (double)(nodes < model->stages ? nodes : model->stages);
    /* A pipeline of S stages runs the shards of S workers. */
    const double bubble =
        way == PIPELINE ? model->step * (stages - 1) / (stages * model->shards) : 0;
    const double arithmetic = model->step * (way == ACCUMULATION ? units : 1);
    const double added = bubble + exchange.exposed + processors;
    struct forecast forecast = {
        .seconds = arithmetic + added,
        .memory = memory_of(model, way, nodes),
        .bound = BY_ARITHMETIC,
    };
    forecast.efficiency = model->step / forecast.seconds;
    forecast.fits = model->memory == 0 || forecast.memory <= model->memory;
    if (!forecast.fits)
        forecast.bound = BY_MEMORY;
    else if (added > NOTABLE * arithmetic)
        forecast.bound = 2 * bubble > added               ? BY_BUBBLE
                         : exchange.exposed >= processors ? BY_WIRE
                                                          : BY_PROCESSORS;
    return forecast;
}

/* Less and less of the wire is hidden, and then bytes cost more and more: a step gets longer. */
static void set_loss(struct scale_model *model, double loss)
{
    model->hidden = loss < 1 ? (1 - loss) * SCALE_HIDDEN : 0;
    model->price = loss < 1 ? 0 : (loss - 1) * 1e-9;
}

void scale_fit(struct scale_model *model, enum way way, int64_t nodes, double seconds)
{
    double low = 0, high = 1e3;
    for (int i = 0; i < 60; i++) {
        const double middle = (low + high) / 2;
        set_loss(model, middle);
        if (scale_predict(model, way, nodes).seconds < seconds)
            low = middle;
        else
            high = middle;
    }
    set_loss(model, low);
}

enum way scale_best(const struct scale_model *model, int64_t nodes)
{
    struct forecast best = {.efficiency = 0};
    enum way found = WAYS;
    for (int way = DDP; way < LOCAL; way++) {
        const struct forecast next = scale_predict(model, (enum way)way, nodes);
        const bool alike = found < WAYS && next.efficiency > 0.99 * best.efficiency;
        if (next.fits && (found == WAYS || next.efficiency > 1.01 * best.efficiency ||
                          (alike && next.memory < best.memory))) {
            best = next;
            found = (enum way)way;
        }
    }
    return found;
}
