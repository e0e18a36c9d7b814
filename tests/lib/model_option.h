/* SPDX-License-Identifier: MIT
 *
 * For tests that build a model themselves: sets one of its own options, as the trainer would. */
#ifndef TESTS_MODEL_OPTION_H
#define TESTS_MODEL_OPTION_H

#include "model/model.h"
#include "tests/lib/runner.h"

static inline void set_model_option(struct ddp_model_config *config, const struct ddp_model *model,
                                    const char *name, const char *value)
{
    struct ddp_options_given given = {0};
    ck_assert_int_eq(ddp_options_set(model->options, &config->own, &given, name, value), DDP_OK);
}

#endif
