/* SPDX-License-Identifier: MIT
 *
 * A loop of a program's own that looks at the tensors: loop_client ACTION FILE OPTION...
 *   walk       prints them, and what bad calls return
 *   dump       trains, then writes the weights to FILE.RANK
 *   put        replaces the weights by those of FILE before step PUT_AT (0), then trains
 *   gradients  compares the gradient of each step with what the update did, and writes it to
 *              FILE.RANK; CLIP is the norm that --clip-grad-norm names
 * All exit with 0 when what they have compared agrees. */
#include "config.h"

#include "ddp.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct all { /* tensors, one after another */
    float *values;
    size_t count;
};

typedef enum ddp_status get_tensor(ddp_train *train, const char *name, float *values, size_t count);

static enum ddp_status get_all(ddp_train *train, get_tensor *get, bool learned, struct all *all)
{
    const struct ddp_train_tensor *tensor;
    enum ddp_status status = DDP_OK;
    all->count = 0;
    for (int i = 0; status == DDP_OK && (tensor = ddp_train_tensor(train, i)); i++) {
        if (learned && tensor->statistic)
            continue;
        all->values = realloc(all->values, (all->count + tensor->count) * sizeof(float));
        status = get(train, tensor->name, all->values + all->count, tensor->count);
        all->count += tensor->count;
    }
    return status;
}

static FILE *open_own(const ddp_train *train, const char *path)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.%d", path, ddp_train_rank(train));
    return fopen(name, "wb");
}

static enum ddp_status put(FILE *file, const struct all *all)
{
    return file && fwrite(all->values, sizeof(float), all->count, file) == all->count ? DDP_OK
                                                                                      : DDP_ERR_IO;
}

static enum ddp_status train_on(ddp_train *train, int64_t until)
{
    const struct ddp_step *step;
    enum ddp_status status = DDP_OK;
    while (status == DDP_OK && ddp_train_steps_left(train) > until)
        status = ddp_train_step(train, &step);
    return status;
}

static enum ddp_status dump(ddp_train *train, const char *path)
{
    struct all all = {0};
    enum ddp_status status = train_on(train, 0);
    if (status == DDP_OK)
        status = get_all(train, ddp_train_get_weights, false, &all);
    FILE *file = open_own(train, path);
    if (status == DDP_OK)
        status = put(file, &all);
    if (file)
        fclose(file);
    free(all.values);
    return status;
}

/* --- put -------------------------------------------------------------------------------------- */

/* Ranks but 0 give something else, which is not taken. */
static enum ddp_status put_one(ddp_train *train, const struct ddp_train_tensor *tensor,
                               const float *values)
{
    float *given = malloc(tensor->count * sizeof *given);
    float *now = malloc(tensor->count * sizeof *now);
    if (!given || !now)
        return DDP_ERR_MEMORY;
    for (size_t k = 0; k < tensor->count; k++)
        given[k] = ddp_train_rank(train) == 0 ? values[k] : 7;
    enum ddp_status status = ddp_train_put_weights(train, tensor->name, given, tensor->count);
    if (status == DDP_OK)
        status = ddp_train_get_weights(train, tensor->name, now, tensor->count);
    if (status == DDP_OK && memcmp(now, values, tensor->count * sizeof *now) != 0) {
        printf("rank %d: %s has other values than were put\n", ddp_train_rank(train), tensor->name);
        status = DDP_ERR_MISMATCH;
    }
    free(given);
    free(now);
    return status;
}

static enum ddp_status put_all(ddp_train *train, const char *path)
{
    const char *at = getenv("PUT_AT");
    const struct ddp_train_tensor *tensor;
    FILE *file = fopen(path, "rb");
    if (!file)
        return DDP_ERR_IO;
    enum ddp_status status = train_on(train, ddp_train_steps_left(train) - (at ? atoi(at) : 0));
    for (int i = 0; status == DDP_OK && (tensor = ddp_train_tensor(train, i)); i++) {
        float *values = malloc(tensor->count * sizeof *values);
        status = values && fread(values, sizeof *values, tensor->count, file) == tensor->count
                     ? put_one(train, tensor, values)
                     : DDP_ERR_IO;
        free(values);
    }
    fclose(file);
    return status == DDP_OK ? train_on(train, 0) : status;
}

/* --- gradients -------------------------------------------------------------------------------- */

static double norm_of(const struct all *all)
{
    double sum = 0;
    for (size_t i = 0; i < all->count; i++)
        sum += (double)all->values[i] * (double)all->values[i];
    return sqrt(sum);
}

/* The update was -rate times the clipped gradient: plain SGD. */
static enum ddp_status compare(const struct all *before, const struct all *after,
                               const struct all *gradient, const struct ddp_step *step)
{
    const char *clip = getenv("CLIP");
    const double norm = norm_of(gradient);
    double factor = clip ? atof(clip) / (norm + 1e-6) : 1, worst = 0, largest = 0;
    factor = factor < 1 ? factor : 1;
    for (size_t i = 0; i < before->count; i++) {
        const double moved = (double)before->values[i] - (double)after->values[i];
        const double wanted = step->rate * factor * (double)gradient->values[i];
        worst = fmax(worst, fabs(moved - wanted));
        largest = fmax(largest, fabs(wanted));
    }
    if (worst <= 1e-6 && largest > 1e-4 && fabs(norm - step->gradient_norm) <= 1e-5 * norm)
        return DDP_OK;
    printf("step %" PRId64 ": the update is off by %g of %g, the norm is %g and should be %g\n",
           step->number, worst, largest, norm, step->gradient_norm);
    return DDP_ERR_MISMATCH;
}

static enum ddp_status gradients(ddp_train *train, const char *path)
{
    struct all before = {0}, after = {0}, gradient = {0};
    const struct ddp_step *step;
    FILE *file = open_own(train, path);
    enum ddp_status status = file ? DDP_OK : DDP_ERR_IO;
    while (status == DDP_OK && ddp_train_steps_left(train) > 0) {
        status = get_all(train, ddp_train_get_weights, true, &before);
        if (status == DDP_OK)
            status = ddp_train_step(train, &step);
        for (int again = 0; status == DDP_OK && again < 2; again++)
            status = get_all(train, ddp_train_get_gradients, true, &gradient);
        if (status == DDP_OK)
            status = get_all(train, ddp_train_get_weights, true, &after);
        if (status == DDP_OK)
            status = compare(&before, &after, &gradient, step);
        if (status == DDP_OK)
            status = put(file, &gradient);
    }
    if (file)
        fclose(file);
    free(before.values);
    free(after.values);
    free(gradient.values);
    return status;
}

/* --- walk ------------------------------------------------------------------------------------- */

static enum ddp_status walk(ddp_train *train)
{
    const struct ddp_train_tensor *tensor;
    const struct ddp_step *step;
    float one = 0;
    for (int i = 0; (tensor = ddp_train_tensor(train, i)); i++) {
        printf("%s %s", tensor->name, tensor->dtype == DDP_F32 ? "f32" : "?");
        for (int d = 0; d < tensor->dim_count; d++)
            printf("%s%" PRId64, d ? "x" : " ", tensor->dims[d]);
        printf(" %zu%s\n", tensor->count, tensor->statistic ? " statistic" : "");
    }
    const char *first = ddp_train_tensor(train, 0)->name;
    const size_t count = ddp_train_tensor(train, 0)->count;
    float *values = malloc(count * sizeof *values);
    printf("before the first: %p\n", (const void *)ddp_train_tensor(train, -1));
    printf("unknown: %d\n", ddp_train_get_weights(train, "no.such", &one, 1));
    printf("without a name: %d\n", ddp_train_put_weights(train, NULL, &one, 1));
    printf("wrong count: %d\n", ddp_train_put_weights(train, first, &one, 1));
    printf("no memory: %d\n", ddp_train_get_weights(train, first, NULL, count));
    printf("no step: %d\n", ddp_train_get_gradients(train, first, values, count));
    enum ddp_status status = ddp_train_step(train, &step);
    for (int i = 0; (tensor = ddp_train_tensor(train, i)); i++)
        if (tensor->statistic && tensor->count <= count) {
            printf("statistic: %d\n",
                   ddp_train_get_gradients(train, tensor->name, values, tensor->count));
            break;
        }
    free(values);
    return status;
}

int main(int argc, char **argv)
{
    ddp_train *train = NULL;
    const char *action = argc > 2 ? argv[1] : "", *path = argc > 2 ? argv[2] : "";
    float one = 0;
    enum ddp_status status = ddp_train_create(&train);
    if (status == DDP_OK)
        status = argc > 2 ? ddp_train_parse(train, argc - 2, argv + 2) : DDP_ERR_INVALID;
    if (status == DDP_OK && strcmp(action, "walk") == 0)
        printf("not open: %d %p\n", ddp_train_get_weights(train, "fc1.weight", &one, 1),
               (const void *)ddp_train_tensor(train, 0));
    if (status == DDP_OK) {
        status = ddp_train_open(train, NULL);
        if (status == DDP_OK)
            status = strcmp(action, "walk") == 0        ? walk(train)
                     : strcmp(action, "dump") == 0      ? dump(train, path)
                     : strcmp(action, "put") == 0       ? put_all(train, path)
                     : strcmp(action, "gradients") == 0 ? gradients(train, path)
                                                        : DDP_ERR_INVALID;
        status = ddp_train_close(train, status);
    }
    ddp_train_destroy(train);
    return ddp_status_exit_code(status);
}
