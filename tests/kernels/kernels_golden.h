/* SPDX-License-Identifier: MIT
 *
 * For the kernels' tests against PyTorch: inputs drawn as tests/lib/golden.py draws them, and
 * answers compared within rounding. */
#ifndef DDP_TESTS_KERNELS_GOLDEN_H
#define DDP_TESTS_KERNELS_GOLDEN_H

#include "core/rng.h"
#include "tests/lib/golden.h"
#include "tests/kernels/kernels_test.h"

/* One line of a golden file while its parts are drawn and compared in order. */
struct golden_case {
    const struct golden *line;
    struct ddp_rng rng;
    int word, answer;
};

static inline struct golden_case golden_case_of(const struct golden *line)
{
    struct golden_case c = {.line = line, .word = 1};
    return c;
}

static inline int64_t golden_number(struct golden_case *c)
{
    ck_assert_int_lt(c->word, c->line->word_count);
    return strtoll(c->line->words[c->word++], NULL, 10);
}

static inline void golden_seed(struct golden_case *c)
{
    ddp_rng_seed(&c->rng, (uint64_t)golden_number(c));
}

/* torch.rand() - 0.5 */
static inline void golden_draw(struct golden_case *c, float *values, int64_t count)
{
    ddp_rng_fill_uniform01(&c->rng, values, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        values[i] -= 0.5f;
}

/* The next `count` answers. */
static inline void golden_compare(struct golden_case *c, const char *what, const float *values,
                                  int64_t count, double tolerance)
{
    ck_assert_int_le(c->answer + count, c->line->answer_count);
    for (int64_t i = 0; i < count; i++) {
        const uint32_t word = (uint32_t)strtoul(c->line->answer[c->answer++], NULL, 16);
        float expected;
        memcpy(&expected, &word, sizeof expected);
        ck_assert_msg(fabs((double)values[i] - (double)expected) <= tolerance,
                      "%s: %s[%lld] is %.9g, not %.9g", c->line->name, what, (long long)i,
                      (double)values[i], (double)expected);
    }
}

static inline void golden_end(const struct golden_case *c)
{
    ck_assert_int_eq(c->answer, c->line->answer_count);
}

/* Runs all lines of a kind; there must be some. */
static inline void golden_run(const char *file_name, const char *kind,
                              void (*run)(struct golden_case *c))
{
    FILE *file = golden_open(file_name);
    struct golden line;
    int found = 0;
    while (golden_next(file, &line)) {
        if (strcmp(line.words[0], kind) == 0) {
            struct golden_case c = golden_case_of(&line);
            run(&c);
            golden_end(&c);
            found++;
        }
        golden_free(&line);
    }
    fclose(file);
    ck_assert_int_gt(found, 0);
}

#endif
