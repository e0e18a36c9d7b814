/* SPDX-License-Identifier: MIT
 *
 * The value of --objective: a loss of preferences and its numbers, TRL's by default; and what it
 * does not go with. */
#include "config.h"

#include "plan/options.h"

#include "core/log.h"
#include "core/parse.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum ddp_objective_kind kind;
} objectives[] = {
    {"dpo", DDP_OBJECTIVE_DPO},     {"ipo", DDP_OBJECTIVE_IPO}, {"orpo", DDP_OBJECTIVE_ORPO},
    {"simpo", DDP_OBJECTIVE_SIMPO}, {"kto", DDP_OBJECTIVE_KTO},
};

static const char *name_of(const struct ddp_objective *objective)
{
    return objectives[objective->kind - 1].name;
}

/* One "name=number" after the objective. Returns NULL, or what is wrong. */
static const char *read_word(struct ddp_objective *objective, const char *word)
{
    const enum ddp_objective_kind kind = objective->kind;
    const struct {
        const char *name;
        double *value;
        bool belongs;
        double least;
    } numbers[] = {
        {"beta=", &objective->beta, true, 1e-9},
        {"gamma=", &objective->gamma, kind == DDP_OBJECTIVE_SIMPO, 0},
        {"desirable=", &objective->desirable, kind == DDP_OBJECTIVE_KTO, 0},
        {"undesirable=", &objective->undesirable, kind == DDP_OBJECTIVE_KTO, 0},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const size_t length = strlen(numbers[i].name);
        if (strncmp(word, numbers[i].name, length) == 0 && numbers[i].belongs)
            return ddp_parse_double(word + length, numbers[i].least, 1e6, numbers[i].value)
                       ? NULL
                       : "beta must be a number above 0, the others numbers from 0";
    }
    if (strncmp(word, "label_smoothing", strlen("label_smoothing")) == 0)
        return "there is no label_smoothing: TRL's sigmoid loss ignores it too";
    return kind == DDP_OBJECTIVE_SIMPO ? "what follows simpo must be beta=X or gamma=X"
           : kind == DDP_OBJECTIVE_KTO
               ? "what follows kto must be beta=X, desirable=X or undesirable=X"
               : "what follows must be beta=X; gamma belongs to simpo, desirable and undesirable "
                 "to kto";
}

/* "simpo,beta=2,gamma=0.5" */
const char *ddp_train_read_objective(void *member, const char *value)
{
    struct ddp_objective read = {.beta = 0.1, .gamma = 0.5, .desirable = 1, .undesirable = 1};
    char copy[256], *rest = copy;
    if (snprintf(copy, sizeof copy, "%s", value) >= (int)sizeof copy)
        return "is too long";
    const char *name = strsep(&rest, ",");
    for (size_t i = 0; i < sizeof objectives / sizeof objectives[0]; i++)
        if (strcmp(objectives[i].name, name) == 0)
            read.kind = objectives[i].kind;
    if (read.kind == DDP_OBJECTIVE_NONE)
        return "must be dpo, ipo, orpo, simpo or kto, perhaps with numbers, as in dpo,beta=0.1";
    while (rest) {
        const char *wrong = read_word(&read, strsep(&rest, ","));
        if (wrong)
            return wrong;
    }
    *(struct ddp_objective *)member = read;
    return NULL;
}

const char *ddp_train_show_objective(const struct ddp_objective *objective,
                                     char text[DDP_TRAIN_OBJECTIVE])
{
    const int used =
        snprintf(text, DDP_TRAIN_OBJECTIVE, "%s, beta %.9g", name_of(objective), objective->beta);
    if (objective->kind == DDP_OBJECTIVE_SIMPO)
        snprintf(text + used, (size_t)(DDP_TRAIN_OBJECTIVE - used), ", gamma %.9g",
                 objective->gamma);
    if (objective->kind == DDP_OBJECTIVE_KTO)
        snprintf(text + used, (size_t)(DDP_TRAIN_OBJECTIVE - used),
                 ", desirable %.9g, undesirable %.9g", objective->desirable,
                 objective->undesirable);
    return text;
}

enum ddp_status ddp_train_check_objective(const struct ddp_train_options *options,
                                          const struct ddp_train_plan *plan)
{
    const struct ddp_objective *objective = &options->objective;
    if (objective->kind == DDP_OBJECTIVE_NONE)
        return DDP_OK;
    if (!plan->model->borders)
        return ddp_fail(DDP_ERR_INVALID,
                        "--objective %s: preferences are learned by --model llama, and the model "
                        "is %s",
                        name_of(objective), plan->model->name);
    if (options->predict || (options->eval_only && ddp_objective_refers(objective)))
        return ddp_fail(DDP_ERR_INVALID,
                        "--objective %s compares with the model that training began with, and --%s "
                        "has only one: leave --objective out",
                        name_of(objective), options->predict ? "predict" : "eval-only");
    if (objective->kind == DDP_OBJECTIVE_KTO && plan->batch_size < 2)
        return ddp_fail(DDP_ERR_INVALID,
                        "--objective kto compares the answers of a batch with each other: give "
                        "--batch-size 2 or more");
    return DDP_OK;
}
