/* SPDX-License-Identifier: MIT
 *
 * The confusion matrix of the last evaluation, as --verbose shows it. See predict.h. */
#include "config.h"

#include "train/predict.h"

#include "core/memory.h"
#include "core/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int width_of_number(int64_t value)
{
    return snprintf(NULL, 0, "%" PRId64, value);
}

static void print_matrix(const struct ddp_run *run, const int64_t *counts, int64_t classes)
{
    const struct ddp_dataset_info *info = ddp_dataset_info(run->planned.test);
    char(*labels)[24] = ddp_array_alloc((size_t)classes, sizeof *labels);
    int label_width = 5, width = 2;
    if (!labels)
        return;
    for (int64_t i = 0; i < classes * classes; i++)
        if (width < 1 + width_of_number(counts[i]))
            width = 1 + width_of_number(counts[i]);
    for (int64_t i = 0; i < classes; i++) {
        const bool named = info->class_names && i < info->class_count;
        const int n = snprintf(labels[i], sizeof labels[i], "%" PRId64 "%s", i, named ? " " : "");
        if (named)
            ddp_text_clean(labels[i] + n, sizeof labels[i] - (size_t)n, info->class_names[i],
                           strlen(info->class_names[i]));
        const int columns = ddp_text_columns(labels[i], strlen(labels[i]));
        label_width = columns > label_width ? columns : label_width;
        width = width < 1 + width_of_number(i) ? 1 + width_of_number(i) : width;
    }
    fprintf(run->out, "%-*s", label_width, "label");
    for (int64_t i = 0; i < classes; i++)
        fprintf(run->out, "%*" PRId64, width, i);
    fputs("    recall\n", run->out);
    for (int64_t i = 0; i < classes; i++) {
        int64_t sum = 0;
        fprintf(run->out, "%s%*s", labels[i],
                label_width - ddp_text_columns(labels[i], strlen(labels[i])), "");
        for (int64_t k = 0; k < classes; k++) {
            fprintf(run->out, "%*" PRId64, width, counts[i * classes + k]);
            sum += counts[i * classes + k];
        }
        if (sum > 0)
            fprintf(run->out, "%8.2f %%\n", 100 * (double)counts[i * classes + i] / (double)sum);
        else
            fputs("       -\n", run->out);
    }
    free(labels);
}

void ddp_run_print_confusion(const struct ddp_run *run)
{
    const int64_t classes = run->planned.model_config.classes;
    if (!run->out || !run->planned.options->report.verbose || !run->evaluator || classes < 2 ||
        ddp_dataset_info(run->planned.test)->label_count != 1)
        return;
    const int64_t *counts = ddp_train_evaluator_confusion(run->evaluator);
    if (!counts) {
        fprintf(run->out,
                "confusion matrix: not shown: there are %" PRId64 " classes, and it is for at most "
                "%d; --predict FILE.csv writes each prediction\n",
                classes, DDP_CONFUSION_CLASSES);
        return;
    }
    fputs("confusion matrix: samples of each label (row) by predicted class (column)\n", run->out);
    print_matrix(run, counts, classes);
    fflush(run->out);
}
