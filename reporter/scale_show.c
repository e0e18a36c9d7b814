/* SPDX-License-Identifier: MIT
 *
 * ddpreport scale: what is known of a training, from its logs, the check of the model on runs that
 * it was not fitted to, and the forecast as tables and a picture. */
#include "config.h"

#include "reporter/scale.h"

#include "core/input_file.h"
#include "core/log.h"
#include "core/memory.h"
#include "core/text.h"
#include "reporter/commands.h"
#include "reporter/page.h"
#include "reporter/plan_text.h"
#include "reporter/series.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GPU_SHARE 0.4 /* of its peak that a training reaches: bench/README */

/* In the order of scale_gpus. Dense bf16. */
static const struct {
    double gigabytes, tera_flops;
} gpus[] = {{0, 0}, {80, 312}, {80, 989}, {141, 989}, {180, 2250}, {48, 362}, {24, 165}};

static const char *const ways[WAYS] = {
    [ACCUMULATION] = "accumulation",
    [DDP] = "DDP, zero 0",
    [ZERO_1] = "zero 1",
    [ZERO_2] = "zero 2",
    [ZERO_3] = "zero 3",
    [PIPELINE] = "pipeline",
    [LOCAL] = "local steps",
};

static const char *const bounds[] = {
    [BY_ARITHMETIC] = "arithmetic", [BY_MEMORY] = "memory", [BY_WIRE] = "wire",
    [BY_PROCESSORS] = "processors", [BY_BUBBLE] = "bubble",
};

/* --- what the logs say ------------------------------------------------------------------------ */

/* A run, as far as the model asks. */
struct sample {
    const struct log_run *run;
    int64_t nodes;
    double seconds, shards; /* of a step; of a worker in it */
    enum way way;
    bool fitted;
};

static double number_of(const struct log_run *run, const char *fact)
{
    const double value = strtod(run_log_fact(run, fact), NULL);
    return value > 0 && isfinite(value) ? value : 0;
}

/* A plan has no times, and needs none where a GPU computes. */
static bool is_plan(const struct log_run *run)
{
    return strcmp(run_log_fact(run, "plan"), "-") != 0;
}

static enum ddp_status read_sample(struct sample *sample, const struct log_run *run)
{
    struct step_times times;
    *sample = (struct sample){.run = run, .nodes = (int64_t)number_of(run, "nodes")};
    const bool local = strcmp(run_log_fact(run, "--sync-every"), "-") != 0;
    const char *zero = run_log_fact(run, "--zero");
    sample->way = strcmp(zero, "0") == 0   ? DDP
                  : strcmp(zero, "2") == 0 ? ZERO_2
                  : strcmp(zero, "3") == 0 ? ZERO_3
                                           : ZERO_1;
    enum ddp_status status = step_times_of(&times, run->steps, run->step_count);
    if (status != DDP_OK)
        return status;
    sample->seconds = times.median;
    if (sample->nodes < 1 || run->world_size < 1 || (!(times.median > 0) && !is_plan(run)) ||
        run->parameters < 1)
        return ddp_fail(DDP_ERR_INVALID,
                        "scale: %s has no times of steps, or was written by another version",
                        run->name);
    if ((strcmp(run->mode, "ddp") != 0 && run->world_size > 1) || run->replicas > 1 || local)
        return ddp_fail(DDP_ERR_INVALID,
                        "scale: %s is not accumulation or DDP without local steps: use a log of "
                        "that",
                        run->name);
    sample->shards = number_of(run, "shards") / (double)run->world_size;
    return DDP_OK;
}

/* On one machine a worker's weights and optimizer are its share of one copy, or all of it. */
static void describe_training(struct scale_model *model, const struct sample *base,
                              const struct settings *settings)
{
    const struct log_run *run = base->run;
    const double peak = 1e12 * gpus[settings->gpu].tera_flops;
    const double parameters = (double)run->parameters * sizeof(float);
    const double weights = run->memory[0] > 0 ? run->memory[0] : parameters;
    *model = (struct scale_model){
        .step = base->seconds,
        .weights = run->world_size > 1 ? parameters : weights,
        .gradients = parameters,
        .activations = run->memory[3] > 0 ? run->memory[3] : 0,
        .shards = base->shards,
        .hidden = SCALE_HIDDEN,
        .host = settings->gpu == 0 && strcmp(run->device, "cpu") == 0,
        .workers = settings->node_workers > 0 ? settings->node_workers : run->world_size,
        .memory = 1e9 * (settings->memory > 0 ? settings->memory : gpus[settings->gpu].gigabytes),
        .rate = settings->rate * 1e9 / 8,
        .latency = settings->latency * 1e-6,
        .every = settings->sync_every,
        .stages = settings->stages,
    };
    if (run->memory[2] > 0)
        model->optimizer = run->memory[2] * model->weights / weights;
    if (peak > 0)
        model->step = number_of(run, "flops_of_step") / (double)run->world_size / GPU_SHARE / peak;
}

/* A run's own workers and shards. */
static struct forecast predict_sample(const struct scale_model *model, const struct sample *sample)
{
    struct scale_model own = *model;
    own.workers = sample->run->world_size / sample->nodes;
    own.step *= sample->shards / model->shards;
    own.shards = sample->shards;
    return scale_predict(&own, sample->way, sample->nodes);
}

/* The fewest machines above one: the first such run fits the model, and is not checked. */
static void fit(struct scale_model *model, struct sample *samples, size_t count)
{
    struct sample *least = NULL;
    for (size_t i = 0; i < count; i++)
        if (samples[i].nodes > 1 && (!least || samples[i].nodes < least->nodes))
            least = &samples[i];
    if (!least)
        return;
    struct scale_model own = *model;
    own.workers = least->run->world_size / least->nodes;
    own.step *= least->shards / model->shards;
    scale_fit(&own, least->way, least->nodes, least->seconds);
    model->hidden = own.hidden;
    model->price = own.price;
    least->fitted = true;
}

/* --- tables ----------------------------------------------------------------------------------- */

static enum ddp_status print_samples(const struct scale_model *model, const struct sample *samples,
                                     size_t count)
{
    static const char *const titles[] = {
        "run", "machines x workers", "measured ms", "predicted ms", "error", "used"};
    struct table table;
    char text[UNITS_TEXT];
    enum ddp_status status = table_make(&table, count, 6, titles);
    for (size_t i = 0; status == DDP_OK && i < count; i++) {
        const struct sample *sample = &samples[i];
        const double predicted = predict_sample(model, sample).seconds;
        table_set(&table, i + 1, 0, "%s", sample->run->name);
        table_set(&table, i + 1, 1, "%" PRId64 " x %" PRId64, sample->nodes,
                  sample->run->world_size / sample->nodes);
        table_set(&table, i + 1, 2, "%s", units_number(text, 1e3 * sample->seconds));
        table_set(&table, i + 1, 3, "%s", units_number(text, 1e3 * predicted));
        table_set(&table, i + 1, 4, "%+.0f %%", 100 * (predicted / sample->seconds - 1));
        table_set(&table, i + 1, 5, "%s", i == 0 || sample->fitted ? "fitted" : "checked");
    }
    if (status == DDP_OK)
        table_print(&table, stdout);
    table_free(&table);
    return status;
}

/* One row for each number of machines; `memory`: what they hold, else what a step takes. */
static enum ddp_status print_forecast(const struct scale_model *model,
                                      const struct settings *settings, bool memory)
{
    const char *titles[WAYS + 2] = {memory ? "memory" : "time"};
    struct table table;
    char text[UNITS_TEXT];
    for (size_t way = 0; way < WAYS; way++)
        titles[way + 1] = ways[way];
    titles[WAYS + 1] = "best";
    const size_t columns = memory ? WAYS + 1 : WAYS + 2;
    enum ddp_status status = table_make(&table, (size_t)settings->node_count, columns, titles);
    for (size_t i = 0; status == DDP_OK && i < (size_t)settings->node_count; i++) {
        const int64_t nodes = settings->nodes[i];
        table_set(&table, i + 1, 0, "%" PRId64 " x %" PRId64, nodes, model->workers);
        for (size_t way = 0; way < WAYS; way++) {
            const struct forecast f = scale_predict(model, (enum way)way, nodes);
            if (memory)
                table_set(&table, i + 1, way + 1, "%s%s", ddp_text_bytes(f.memory, text),
                          f.fits ? "" : " !");
            else
                table_set(&table, i + 1, way + 1, "%s ms %.3g %% %s",
                          units_number(text, 1e3 * f.seconds), 100 * f.efficiency, bounds[f.bound]);
        }
        const enum way best = scale_best(model, nodes);
        if (!memory)
            table_set(&table, i + 1, WAYS + 1, "%s", best < WAYS ? ways[best] : "none fits");
    }
    if (status == DDP_OK)
        table_print(&table, stdout);
    table_free(&table);
    return status;
}

static void print_model(const struct scale_model *model, const struct settings *settings,
                        const struct log_run *run, bool fitted)
{
    char memory[UNITS_TEXT] = "memory not given", step[UNITS_TEXT];
    if (model->memory > 0)
        ddp_text_bytes(model->memory, memory);
    printf("%s, %" PRId64 " parameters; a worker's step without other machines: %s ms.\n"
           "%" PRId64 " worker%s a machine%s%s, %s; %g Gbit/s, %g us a message.\n"
           "%s: %.0f %% of a step hides what is sent, and a byte costs a worker %.2g ns.\n"
           "Pipeline: %" PRId64 " stages, its bubble alone; local steps: %" PRId64
           " between synchronisations.\n\n",
           run->model, run->parameters, units_number(step, 1e3 * model->step), model->workers,
           model->workers == 1 ? "" : "s", settings->gpu ? ", each on one " : "",
           settings->gpu ? scale_gpus[settings->gpu] : "", memory, settings->rate,
           settings->latency, fitted ? "Fitted" : "Assumed", 100 * model->hidden,
           1e9 * model->price, model->stages, model->every);
}

/* At a batch of the noise scale a training takes twice the samples that small batches take, and
 * twice the steps that large ones take. */
static void print_noise(const struct scale_model *model, const struct sample *base)
{
    const struct log_run *run = base->run;
    const double batch = (double)run->batch_size * base->shards * (double)model->workers;
    size_t last = run->step_count;
    while (last > 0 && isnan(run->steps[last - 1].noise))
        last--;
    if (last == 0 || !(batch > 0))
        return;
    const double samples = run->steps[last - 1].noise;
    printf(
        "\nThe gradient's noise scale is %.3g samples at the end of %s: a global batch of that,\n"
        "as %.3g machines have, takes twice the samples of a small one; with more machines\n"
        "steps hardly get fewer.\n",
        samples, run->name, samples / batch);
}

/* --- the picture ------------------------------------------------------------------------------ */

static enum ddp_status draw(const struct scale_model *model, const struct settings *settings)
{
    const bool svg = ddp_text_ends_with(settings->output, ".svg");
    struct plot plot;
    char *picture = NULL;
    size_t bytes = 0;
    enum ddp_status status =
        plot_begin(&plot, svg ? PLOT_SVG : PLOT_PNG, "scale", svg ? 1000 : 1400, svg ? 640 : 800);
    if (status != DDP_OK)
        return status;
    for (size_t way = DDP; way < WAYS; way++) {
        fprintf(plot.script, "$way%zu << EOD\n", way);
        for (int i = 0; i < settings->node_count; i++)
            fprintf(plot.script, "%" PRId64 " %.9g\n", settings->nodes[i],
                    100 * scale_predict(model, (enum way)way, settings->nodes[i]).efficiency);
        fputs("EOD\n", plot.script);
    }
    fputs("set logscale x 2\nset yrange [0:105]\nset xlabel 'machines'\n"
          "set ylabel 'efficiency, %'\nplot ",
          plot.script);
    for (size_t way = DDP; way < WAYS; way++) {
        fprintf(plot.script, "%s$way%zu using 1:2 with linespoints lw 2 dt %zu",
                way == DDP ? "" : ", ", way, way % 5 + 1);
        plot_colour(&plot, way, false);
        fputs(" title ", plot.script);
        plot_string(&plot, ways[way]);
    }
    fputc('\n', plot.script);
    status = plot_end(&plot, &picture, &bytes);
    if (status == DDP_OK)
        status = svg ? page_write_svg(settings->output, picture)
                     : page_write_file(settings->output, picture, bytes);
    free(picture);
    return status;
}

/* --- all -------------------------------------------------------------------------------------- */

static const char notes[] =
    "A x B: A machines with B workers each. Time: of a step in which each worker has\n"
    "the batch of the log; the speed of a worker beside one that is alone; and what\n"
    "binds it, when that adds more than a tenth of the arithmetic. Memory: of a\n"
    "machine, or of each of its GPUs, without data; ! does not fit. Best: of the ways\n"
    "that end in the same weights, so not local steps.\n";

/* The run on one machine moves to the front. */
static enum ddp_status read_samples(struct sample *samples, const struct run_log *log)
{
    enum ddp_status status = DDP_OK;
    bool alone = false;
    for (size_t i = 0; status == DDP_OK && i < log->count; i++) {
        status = read_sample(&samples[i], &log->runs[i]);
        if (status == DDP_OK && (strcmp(log->runs[i].model, log->runs[0].model) != 0 ||
                                 log->runs[i].parameters != log->runs[0].parameters))
            status = ddp_fail(DDP_ERR_INVALID, "scale: %s and %s are not of one model",
                              log->runs[0].name, log->runs[i].name);
        if (status == DDP_OK && samples[i].nodes == 1 && !alone) {
            const struct sample base = samples[i];
            samples[i] = samples[0];
            samples[0] = base;
            alone = true;
        }
    }
    if (status == DDP_OK && !alone)
        status = ddp_fail(DDP_ERR_INVALID, "scale: no run was on one machine: also name the log of "
                                           "such a run, with the same batch of a worker");
    return status;
}

static enum ddp_status read_file(struct run_log *log, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    enum ddp_status status =
        ddp_input_file_read_whole(path, "no log of a training", LOG_BYTES, &text, &bytes);
    if (status == DDP_OK)
        status = plan_text_is(text, bytes) ? plan_text_parse(log, path, text, bytes)
                                           : run_log_parse(log, path, text, bytes, false);
    free(text);
    return status;
}

static enum ddp_status read_files(struct run_log *log, const struct settings *settings)
{
    enum ddp_status status = DDP_OK;
    for (int i = 0; status == DDP_OK && i < settings->file_count; i++)
        status = read_file(log, settings->files[i]);
    for (size_t i = 0; status == DDP_OK && i < log->count; i++)
        if (is_plan(&log->runs[i]) && (log->count > 1 || settings->gpu == 0))
            status = ddp_fail(DDP_ERR_INVALID,
                              "scale: %s is a plan, in which nothing was measured: name it alone, "
                              "with the --gpu that computes, or name logs",
                              log->runs[i].name);
    return status;
}

enum ddp_status scale_show(const struct settings *settings)
{
    struct run_log log = {.count = 0};
    struct sample *samples = NULL;
    struct scale_model model;
    enum ddp_status status = runs_check_output(settings);
    if (status == DDP_OK)
        status = page_check_file(settings->output);
    if (status == DDP_OK)
        status = read_files(&log, settings);
    if (status == DDP_OK && !(samples = ddp_array_alloc(log.count, sizeof *samples)))
        status = DDP_ERR_MEMORY;
    if (status == DDP_OK)
        status = read_samples(samples, &log);
    if (status == DDP_OK) {
        describe_training(&model, &samples[0], settings);
        fit(&model, samples, log.count);
        print_model(&model, settings, samples[0].run, model.hidden < SCALE_HIDDEN);
    }
    if (status == DDP_OK && log.count > 1) {
        status = print_samples(&model, samples, log.count);
        fputc('\n', stdout);
    }
    if (status == DDP_OK)
        status = print_forecast(&model, settings, false);
    fputc('\n', stdout);
    if (status == DDP_OK)
        status = print_forecast(&model, settings, true);
    if (status == DDP_OK) {
        print_noise(&model, &samples[0]);
        printf("\n%s", notes);
    }
    fflush(stdout);
    if (status == DDP_OK && settings->output)
        status = draw(&model, settings);
    free(samples);
    run_log_free(&log);
    return status;
}
