/* SPDX-License-Identifier: MIT
 *
 * Training with a loop of one's own: it halves the learning rate when the test loss has not fallen,
 * and ends after three such evaluations. It takes all options of trainer(1):
 *
 *   cc own_loop.c -o own_loop $(pkg-config --cflags --libs libddp)
 *   ./own_loop --epochs 20 --checkpoint DIR
 *   ddprun -n 2 ./own_loop --epochs 20 --checkpoint DIR --resume
 */
#include <ddp.h>

#define PATIENCE 3

struct progress {
    FILE *out; /* NULL on all ranks but one */
    double rate;
    int64_t since_best;
};

static void show(const struct progress *progress, const struct ddp_step *step,
                 const struct ddp_evaluation *evaluation)
{
    if (progress->out)
        fprintf(progress->out, "after %lld steps: loss %.4f, test loss %.4f, accuracy %.2f %%\n",
                (long long)step->number, step->loss, evaluation->loss, 100 * evaluation->accuracy);
}

/* Evaluates, and decides. All ranks get the same numbers, so they decide alike. */
static enum ddp_status judge(ddp_train *train, struct progress *progress,
                             const struct ddp_step *step)
{
    const struct ddp_evaluation *evaluation;
    enum ddp_status status = ddp_train_evaluate(train, &evaluation);
    if (status != DDP_OK)
        return status;
    show(progress, step, evaluation);
    progress->since_best = evaluation->since_best;
    if (progress->since_best > 0) {
        progress->rate = step->rate / 2;
        ddp_train_set_rate(train, progress->rate);
    }
    return DDP_OK;
}

static enum ddp_status loop(ddp_train *train)
{
    struct progress progress = {.out = ddp_train_rank(train) == 0 ? stdout : NULL};
    enum ddp_status status = DDP_OK;
    const struct ddp_step *step;
    while (status == DDP_OK && ddp_train_steps_left(train) > 0 && progress.since_best < PATIENCE) {
        status = ddp_train_step(train, &step);
        if (status == DDP_OK && step->evaluate)
            status = judge(train, &progress, step);
    }
    return status;
}

int main(int argc, char **argv)
{
    ddp_train *train = NULL;
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK)
        status = ddp_train_parse(train, argc, argv);
    if (status == DDP_OK) {
        status = ddp_train_open(train, NULL); /* what there is to see is printed here */
        if (status == DDP_OK)
            status = loop(train);
        status = ddp_train_close(train, status);
    }
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}
