/* SPDX-License-Identifier: MIT
 *
 * Random numbers with the bits of PyTorch's CPU generator: a Mersenne Twister (MT19937), and on it
 * torch.rand, uniform_, normal_, randperm and the initial values of nn.Linear. The same seed and
 * the same calls in the same order give the same numbers as a PyTorch script, on every machine. A
 * generator belongs to one thread. */
#ifndef DDP_CORE_RNG_H
#define DDP_CORE_RNG_H

#include "ddp.h"

#define DDP_RNG_WORDS 624

struct ddp_rng {
    uint32_t words[DDP_RNG_WORDS];
    uint32_t next;      /* index of the next word to hand out; DDP_RNG_WORDS: a new block is due */
    bool has_normal;    /* a second normal number of a pair is waiting */
    double kept_normal; /* ... and this is it, for mean 0 and deviation 1 */
};

/* torch.manual_seed(): the Twister takes the low 32 bits of the seed. */
void ddp_rng_seed(struct ddp_rng *rng, uint64_t seed);

/* The next 32 bits; the next 64 (the first draw is the high half). */
uint32_t ddp_rng_u32(struct ddp_rng *rng);
uint64_t ddp_rng_u64(struct ddp_rng *rng);

/* torch.rand(count): floats in [0, 1), one 32-bit draw each.
 *   out [out]  count floats */
void ddp_rng_fill_uniform01(struct ddp_rng *rng, float *out, size_t count);

/* Tensor.uniform_(lo, hi). The bounds are doubles, as in Python, and rounded to float32 first. */
void ddp_rng_fill_uniform(struct ddp_rng *rng, float *out, size_t count, double lo, double hi);

/* Tensor.normal_(mean, std) of a contiguous float32 tensor. The count chooses the method, as in
 * PyTorch: below 16 pairs in double precision, else blocks of 16 in single precision. */
void ddp_rng_fill_normal(struct ddp_rng *rng, float *out, size_t count, double mean, double std);

/* torch.randperm(n): the numbers 0 .. n-1 in random order.
 *   n          0 <= n < 2^32, else DDP_ERR_INVALID
 *   out [out]  n numbers */
enum ddp_status ddp_rng_permutation(struct ddp_rng *rng, int64_t n, uint32_t *out);

/* The initial values of nn.Linear(fan_in, ...) and, with fan_in = input channels x kernel size, of
 * nn.Conv2d. PyTorch draws the weight first, row-major (out, in), then the bias.
 *   fan_in  > 0 */
void ddp_rng_fill_linear_weight(struct ddp_rng *rng, float *out, size_t count, size_t fan_in);
void ddp_rng_fill_linear_bias(struct ddp_rng *rng, float *out, size_t count, size_t fan_in);

#endif
