/* SPDX-License-Identifier: MIT
 *
 * A loop of one's own: it halves the learning rate when the test loss has not fallen, ends after
 * three such evaluations, and shows a metric of its own and the weights. What it knows is in the
 * checkpoints, so a run that is resumed ends alike. It takes all options of trainer(1):
 *
 *   cc own_loop.c -o own_loop $(pkg-config --cflags --libs libddp)
 *   ./own_loop --epochs 20 --checkpoint DIR
 *   ddprun -n 2 ./own_loop --epochs 20 --checkpoint DIR --resume
 */
#include <ddp.h>
#include <string.h>

struct own { /* without pointers: it is saved as bytes. The run keeps the learning rate itself. */
    int64_t since_best;
    double loss; /* the metric: a running mean */
};

static enum ddp_status save(void *arg, ddp_train *train, const void **bytes, size_t *count)
{
    (void)train;
    *bytes = arg;
    *count = sizeof(struct own);
    return DDP_OK;
}

static enum ddp_status restore(void *arg, ddp_train *train, const void *bytes, size_t count)
{
    (void)train;
    if (count == sizeof(struct own))
        memcpy(arg, bytes, count);
    return count == sizeof(struct own) ? DDP_OK : DDP_ERR_FORMAT;
}

/* Evaluates, and decides. All ranks get the same numbers, so they decide alike. */
static enum ddp_status judge(ddp_train *train, struct own *own, const struct ddp_step *step)
{
    const struct ddp_evaluation *evaluation;
    enum ddp_status status = ddp_train_evaluate(train, &evaluation);
    if (status == DDP_OK && ddp_train_rank(train) == 0)
        printf("after %lld steps: loss %.4f, test loss %.4f, accuracy %.2f %%\n",
               (long long)step->number, own->loss, evaluation->loss, 100 * evaluation->accuracy);
    own->since_best = status == DDP_OK ? evaluation->since_best : 0;
    if (own->since_best > 0)
        ddp_train_set_rate(train, step->rate / 2);
    return status;
}

/* Prints the tensors that have few. */
static enum ddp_status show_weights(ddp_train *train)
{
    float values[16];
    enum ddp_status status = DDP_OK;
    const struct ddp_train_tensor *tensor;
    for (int i = 0; status == DDP_OK && (tensor = ddp_train_tensor(train, i)); i++) {
        const size_t shown = tensor->count <= 16 ? tensor->count : 0;
        if (shown > 0)
            status = ddp_train_get_weights(train, tensor->name, values, shown);
        for (size_t k = 0; status == DDP_OK && ddp_train_rank(train) == 0 && k < shown; k++)
            printf("%s[%zu] = %.4f\n", tensor->name, k, (double)values[k]);
    }
    return status;
}

static enum ddp_status loop(ddp_train *train, struct own *own)
{
    const struct ddp_step *step;
    enum ddp_status status = ddp_train_open(train, NULL); /* what there is to see is printed here */
    while (status == DDP_OK && ddp_train_steps_left(train) > 0 && own->since_best < 3) {
        status = ddp_train_step(train, &step);
        if (status == DDP_OK)
            own->loss += (step->number == 1 ? 1 : 0.1) * (step->loss - own->loss);
        if (status == DDP_OK && step->evaluate)
            status = judge(train, own, step);
    }
    if (status == DDP_OK)
        status = show_weights(train);
    return ddp_train_close(train, status);
}

int main(int argc, char **argv)
{
    ddp_train *train = NULL;
    struct own own = {0, 0};
    struct ddp_hooks hooks = DDP_HOOKS_INIT;
    hooks.arg = &own;
    hooks.state_name = "own_loop";
    hooks.save_state = save;
    hooks.restore_state = restore;
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK)
        status = ddp_train_set_hooks(train, &hooks);
    if (status == DDP_OK)
        status = ddp_train_parse(train, argc, argv);
    if (status == DDP_OK)
        status = loop(train, &own);
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}
