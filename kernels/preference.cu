/* SPDX-License-Identifier: MIT
 *
 * Losses of preferences on a GPU; see preference.h. A warp has a row: its lanes load positions side
 * by side, and all of them add up the row's sequences in the order of these. What is then left is
 * little, and done by one thread, as on the CPU. At last a warp for each row hands the tokens their
 * parts. Bound: the latency of three shuffles a position. */
#include "kernels/cuda/cuda.h"
#include "kernels/kernels_cuda.h"
#include "kernels/preference_pairs.h"

struct preference_targets {
    struct ddp_preference args;

    template <int W> __device__ void run(int64_t at) const
    {
        const int64_t b = at / args.length, t = at % args.length;
        const int32_t *labels = args.labels + b * DDP_ROLE_PLANES * args.length + t;
        args.targets[at] =
            ddp_pairs_target(&args, labels[0], labels[args.length]) ? labels[0] : DDP_LABEL_NONE;
    }
};

/* In the scratch. */
struct preference_pass {
    struct ddp_preference args;
    struct ddp_sequence *sequences; /* of row b from b * length on, then of all rows on end */
    int64_t *first;                 /* (B) how many a row has, then which one is its first */
};

/* A position of a row, in each lane another one. */
struct preference_place {
    int32_t label, role, reference;
    float loss;
};

static __device__ inline struct preference_place place_of(const struct ddp_preference &args,
                                                          int64_t t)
{
    const int64_t b = blockIdx.x, n = args.length;
    const int32_t *labels = args.labels + b * DDP_ROLE_PLANES * n + t;
    struct preference_place place = {DDP_LABEL_NONE, 0, 0, 0};
    if (t < n)
        place = {labels[0], labels[n], labels[2 * n], args.losses[b * n + t]};
    return place;
}

static __device__ inline struct ddp_sequence sequence_of(const struct ddp_preference &args,
                                                         int32_t role, int32_t reference)
{
    struct ddp_sequence sequence = {};
    if (ddp_objective_refers(&args.objective))
        sequence.reference = (double)__int_as_float(reference);
    sequence.bad = role & DDP_ROLE_BAD;
    return sequence;
}

/* A row that is none of pairs of answers counts as empty, and is reported. */
static __global__ void __launch_bounds__(DDP_WARP)
    sequences_kernel(struct preference_pass pass, struct ddp_cuda_fault *fault)
{
    const struct ddp_preference &args = pass.args;
    const int lane = (int)threadIdx.x;
    struct ddp_sequence *own = pass.sequences + blockIdx.x * args.length, sequence = {};
    int64_t count = 0;
    bool wrong = false;
    for (int64_t from = 0, ended = 0; !ended && from < args.length; from += DDP_WARP) {
        const struct preference_place place = place_of(args, from + lane);
        const unsigned none = __ballot_sync(DDP_FULL_MASK, place.label == DDP_LABEL_NONE);
        ended = none != 0;
        for (int i = 0; i < (ended ? __ffs((int)none) - 1 : DDP_WARP); i++) {
            const int32_t role = __shfl_sync(DDP_FULL_MASK, place.role, i);
            const int32_t reference = __shfl_sync(DDP_FULL_MASK, place.reference, i);
            const float loss = __shfl_sync(DDP_FULL_MASK, place.loss, i);
            if (role & DDP_ROLE_FIRST) {
                wrong = wrong || (count > 0 && sequence.count == 0);
                if (count > 0 && lane == 0)
                    own[count - 1] = sequence;
                sequence = sequence_of(args, role, reference);
                count++;
            }
            if (count == 0) /* labels of nothing */
                continue;
            wrong = wrong || (count % 2 == 0) != !!(role & DDP_ROLE_SECOND);
            ddp_pairs_take(&sequence, role, (double)loss);
        }
    }
    wrong = wrong || count % 2 != 0 || (count > 0 && sequence.count == 0);
    if (lane > 0)
        return;
    if (count > 0)
        own[count - 1] = sequence;
    pass.first[blockIdx.x] = wrong ? 0 : count;
    if (wrong && fault->code == DDP_CUDA_FAULT_NONE) {
        fault->row = blockIdx.x;
        fault->code = DDP_CUDA_FAULT_PAIRS;
    }
}

static __global__ void __launch_bounds__(1) pairs_kernel(struct preference_pass pass)
{
    const struct ddp_preference &args = pass.args;
    struct ddp_pairs pairs = {};
    pairs.args = &args;
    pairs.sequences = pass.sequences;
    for (int64_t b = 0; b < args.samples; b++) {
        const int64_t count = pass.first[b];
        pass.first[b] = pairs.count;
        for (int64_t i = 0; i < count; i++)
            pass.sequences[pairs.count++] = pass.sequences[b * args.length + i];
    }
    ddp_pairs_finish(&pairs);
}

static __global__ void __launch_bounds__(DDP_WARP) parts_kernel(struct preference_pass pass)
{
    const struct ddp_preference &args = pass.args;
    const int lane = (int)threadIdx.x;
    const int64_t first = pass.first[blockIdx.x];
    int64_t begun = 0; /* sequences before these positions */
    for (int64_t from = 0; from < args.length; from += DDP_WARP) {
        const int64_t t = from + lane, at = blockIdx.x * args.length + t;
        const struct preference_place place = place_of(args, t);
        const bool inside = place.label != DDP_LABEL_NONE;
        const bool begins = inside && (place.role & DDP_ROLE_FIRST);
        const unsigned beginnings = __ballot_sync(DDP_FULL_MASK, begins);
        const int64_t number = begun + __popc(beginnings & ((2u << lane) - 1));
        const struct ddp_sequence *sequence = pass.sequences + first + number - 1;
        begun += __popc(beginnings);
        if (t >= args.length)
            continue;
        if (args.weights)
            args.weights[at] = inside && number > 0 ? ddp_pairs_weight(sequence, place.role) : 0.0f;
        if (args.log_probabilities)
            args.log_probabilities[at] = begins ? (float)sequence->sum : 0.0f;
    }
}

extern "C" enum ddp_status ddp_cuda_preference_targets(const struct ddp_preference *args,
                                                       void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    const struct preference_targets targets = {*args};
    ddp_cuda_elements<1>(targets, args->samples * args->length, true, cuda);
    return ddp_cuda_launched(cuda, "preference targets");
}

extern "C" enum ddp_status ddp_cuda_preference(const struct ddp_preference *args, void *stream)
{
    struct ddp_cuda *cuda = (struct ddp_cuda *)stream;
    struct preference_pass pass;
    pass.args = *args;
    pass.sequences = (struct ddp_sequence *)args->scratch;
    pass.first = (int64_t *)(pass.sequences + args->samples * args->length);
    DDP_LAUNCH(sequences_kernel, (unsigned)args->samples, DDP_WARP, 0, cuda->stream, pass,
               cuda->fault);
    DDP_LAUNCH(pairs_kernel, 1, 1, 0, cuda->stream, pass);
    DDP_LAUNCH(parts_kernel, (unsigned)args->samples, DDP_WARP, 0, cuda->stream, pass);
    return ddp_cuda_launched(cuda, "preference");
}
