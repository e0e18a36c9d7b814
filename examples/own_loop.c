/* SPDX-License-Identifier: MIT
 *
 * Training with a loop of one's own: it halves the learning rate when the test loss has not fallen,
 * and ends after three such evaluations. What the loop knows is in its checkpoints, so a run that
 * is resumed ends in the same weights. It takes all options of trainer(1):
 *
 *   cc own_loop.c -o own_loop $(pkg-config --cflags --libs libddp)
 *   ./own_loop --epochs 20 --checkpoint DIR
 *   ddprun -n 2 ./own_loop --epochs 20 --checkpoint DIR --resume
 */
#include <ddp.h>
#include <string.h>

#define PATIENCE 3

struct progress { /* without pointers: it is saved as bytes */
    int64_t since_best;
};

/* The run keeps the learning rate itself. */
static enum ddp_status save(void *arg, ddp_train *train, const void **bytes, size_t *count)
{
    (void)train;
    *bytes = arg;
    *count = sizeof(struct progress);
    return DDP_OK;
}

static enum ddp_status restore(void *arg, ddp_train *train, const void *bytes, size_t count)
{
    (void)train;
    if (count != sizeof(struct progress))
        return DDP_ERR_FORMAT;
    memcpy(arg, bytes, count);
    return DDP_OK;
}

/* Evaluates, and decides. All ranks get the same numbers, so they decide alike. */
static enum ddp_status judge(ddp_train *train, struct progress *progress,
                             const struct ddp_step *step)
{
    const struct ddp_evaluation *evaluation;
    enum ddp_status status = ddp_train_evaluate(train, &evaluation);
    if (status != DDP_OK)
        return status;
    if (ddp_train_rank(train) == 0)
        printf("after %lld steps: loss %.4f, test loss %.4f, accuracy %.2f %%\n",
               (long long)step->number, step->loss, evaluation->loss, 100 * evaluation->accuracy);
    progress->since_best = evaluation->since_best;
    if (progress->since_best > 0)
        ddp_train_set_rate(train, step->rate / 2);
    return DDP_OK;
}

static enum ddp_status loop(ddp_train *train, struct progress *progress)
{
    enum ddp_status status = DDP_OK;
    const struct ddp_step *step;
    while (status == DDP_OK && ddp_train_steps_left(train) > 0 && progress->since_best < PATIENCE) {
        status = ddp_train_step(train, &step);
        if (status == DDP_OK && step->evaluate)
            status = judge(train, progress, step);
    }
    return status;
}

int main(int argc, char **argv)
{
    ddp_train *train = NULL;
    struct progress progress = {0};
    struct ddp_hooks hooks = DDP_HOOKS_INIT;
    hooks.arg = &progress;
    hooks.state_name = "own_loop";
    hooks.save_state = save;
    hooks.restore_state = restore;
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK)
        status = ddp_train_set_hooks(train, &hooks);
    if (status == DDP_OK)
        status = ddp_train_parse(train, argc, argv);
    if (status == DDP_OK) {
        status = ddp_train_open(train, NULL); /* what there is to see is printed here */
        if (status == DDP_OK)
            status = loop(train, &progress);
        status = ddp_train_close(train, status);
    }
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}
