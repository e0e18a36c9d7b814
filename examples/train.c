/* SPDX-License-Identifier: MIT
 *
 * A training run from a program of one's own: the options are those of trainer(1), set by name.
 * Alone it accumulates over two shards; as two workers under ddprun it trains the same shards side
 * by side, to the same weights:
 *
 *   cc train.c -o train $(pkg-config --cflags --libs libddp)
 *   ./train
 *   ddprun -n 2 ./train
 */
#include <ddp.h>

int main(void)
{
    static const char *const options[][2] = {
        {"model", "article"},  {"data-size", "8"}, {"batch-size", "4"},
        {"global-batch", "8"}, {"epochs", "2"},
    };
    ddp_train *train = NULL;
    enum ddp_status status = ddp_train_create(&train);
    for (size_t i = 0; status == DDP_OK && i < sizeof options / sizeof options[0]; i++)
        status = ddp_train_set(train, options[i][0], options[i][1]);
    if (status == DDP_OK)
        status = ddp_train_run(train, stdout);
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}
