/* SPDX-License-Identifier: MIT
 *
 * reporter: logs and traces read back, curves, and figures. What is accepted and what refused is in
 * the corpora. */
#include "config.h"

#include "core/text.h"
#include "reporter/compare.h"
#include "reporter/table.h"
#include "tests/lib/runner.h"

#include <math.h>
#include <string.h>

#define RUN                                                                                        \
    "{\"event\":\"run\",\"format\":1,\"time\":100.0,\"first_step\":%d,\"world_size\":2,"           \
    "\"config\":{\"model\":\"mlp\",\"global_batch\":8,\"total_steps\":4}}\n"
#define STEP                                                                                       \
    "{\"event\":\"step\",\"step\":%d,\"time\":%d,\"loss\":%s,\"learning_rate\":0.1,"               \
    "\"seconds\":0.5,\"samples_per_second\":16}\n"

static char text[65536];
static size_t used;

static void add_run(int first_step)
{
    used += (size_t)snprintf(text + used, sizeof text - used, RUN, first_step);
}

static void add_steps(int first, int last, const char *loss)
{
    for (int i = first; i <= last; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, STEP, i, 100 + i, loss);
}

static void add(const char *line)
{
    used += (size_t)snprintf(text + used, sizeof text - used, "%s", line);
}

static struct run_log parse(void)
{
    struct run_log log = {.count = 0};
    ck_assert_int_eq(run_log_parse(&log, "dir/name.jsonl", text, used, true), DDP_OK);
    used = 0;
    return log;
}

START_TEST(a_restarted_run_is_one)
{
    add_run(1);
    add_steps(1, 3, "2");
    add("{\"event\":\"checkpoint\",\"step\":1,\"time\":101}\n");
    add("{\"event\":\"checkpoint\",\"step\":3,\"time\":103}\n");
    add("{\"event\":\"evaluation\",\"step\":3,\"test_loss\":1}\n{\"event\":\"st");
    add("\n");
    add_run(2);
    add_steps(2, 4, "1");
    struct run_log log = parse();
    const struct log_run *run = &log.runs[0];
    ck_assert_int_eq(log.count, 1);
    ck_assert_str_eq(run->name, "name");
    ck_assert_int_eq(run->step_count, 4);
    ck_assert(run->steps[0].loss == 2 && run->steps[1].loss == 1 && run->steps[3].step == 4);
    ck_assert_int_eq(run->restart_count, 1);
    ck_assert_int_eq(run->restarts[0].step, 2);
    ck_assert_int_eq(run->checkpoint_count, 1); /* the second belongs to what was done again */
    ck_assert_int_eq(run->evaluation_count, 0);
    ck_assert_int_eq(run->start_count, 2);
    ck_assert_int_eq(run->starts[0].again, 0);
    ck_assert(isnan(run->starts[0].lost));
    ck_assert_int_eq(run->starts[1].again, 2);
    ck_assert(fabs(run->starts[1].lost - (1 - run->steps[3].seconds)) < 1e-9); /* 4 after 3 */
    run_log_free(&log);
}
END_TEST

START_TEST(a_complete_run_and_another_are_two)
{
    add_run(1);
    add_steps(1, 4, "2");
    add("{\"event\":\"end\",\"status\":\"success\",\"memory_peak_bytes\":7}\n");
    add_run(1);
    add_steps(1, 2, "null");
    struct run_log log = parse();
    ck_assert_int_eq(log.count, 2);
    ck_assert_str_eq(log.runs[1].name, "name #2");
    ck_assert(log.runs[0].memory_peak == 7 && isnan(log.runs[1].memory_peak));
    ck_assert(isnan(log.runs[1].steps[1].loss));
    ck_assert_int_eq(log.runs[0].restart_count + log.runs[1].restart_count, 0);
    run_log_free(&log);
}
END_TEST

START_TEST(places_on_axes)
{
    add_run(1);
    add_steps(2, 2, "1");
    add_steps(4, 4, "1"); /* --log-every 2 */
    struct run_log log = parse();
    static const double wanted[][2] = {{2, 4}, {16, 32}, {2, 4}};
    for (int axis = X_STEP; axis <= X_TIME; axis++) {
        struct series series;
        ck_assert_int_eq(series_make(&series, &log.runs[0], PANEL_LOSS, (enum x_axis)axis), DDP_OK);
        ck_assert(series.x[0] == wanted[axis][0] && series.x[1] == wanted[axis][1]);
        ck_assert(series_place(&series, &log.runs[0], 1) == series.x[0]);
        ck_assert(series_place(&series, &log.runs[0], 2) == series.x[0]);
        ck_assert(series_place(&series, &log.runs[0], 3) == series.x[1]);
        ck_assert(series_place(&series, &log.runs[0], 9) == series.x[1]);
        ck_assert(series_end(&log.runs[0], (enum x_axis)axis) == series.x[1]);
        series_free(&series);
    }
    run_log_free(&log);
}
END_TEST

/* Scores are forgotten as steps are, and what a run was started with is that of its last start. */
START_TEST(facts_and_scores)
{
    add_run(1);
    add_steps(1, 3, "2");
    add("{\"event\":\"evaluation\",\"step\":2,\"test_loss\":1,\"test_f1\":0.5,\"test_x\":\"no\"}"
        "\n");
    add("{\"event\":\"evaluation\",\"step\":3,\"test_loss\":null,\"test_f1\":0.75}\n");
    add("{\"event\":\"run\",\"format\":1,\"time\":9,\"host\":\"b\",\"first_step\":3,\"world_size\":"
        "4,");
    add("\"config\":{\"model\":\"mlp\",\"global_batch\":8,\"rate\":0.5,\"on\":true,\"off\":null},");
    add("\"command\":[\"trainer\",\"-g8\",\"--log\",\"x\",\"--load=a\",\"--load\",\"b\",\"--a_b\","
        "\"-s\",\"-5\","
        "\"-d\",\"d\",\"-\",3,\"--lr\"]}\n");
    struct run_log log = parse();
    const struct log_run *run = &log.runs[0];
    ck_assert_int_eq(log.count, 1);
    ck_assert_int_eq(run->score_count, 2);
    ck_assert_int_eq(run->metric_count, 2);
    ck_assert_str_eq(run->metrics[run->scores[1].metric].name, "f1");
    ck_assert(run->scores[1].value == 0.5 && run->scores[1].step == 2);
    ck_assert(run_log_has_metric(run, "loss") && !run_log_has_metric(run, "x"));
    static const char *const wanted[][2] = {
        {"host", "b"},      {"world_size", "4"},     {"model", "mlp"},  {"global_batch", "8"},
        {"rate", "0.5"},    {"on", "yes"},           {"--load", "a b"}, {"--a-b", "yes"},
        {"--steps", "yes"}, {"-5", "yes"},           {"--data", "d"},   {"--learning-rate", "yes"},
        {"off", "-"},       {"--global-batch", "-"}, {"--log", "-"},    {"time", "-"}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        ck_assert_str_eq(run_log_fact(run, wanted[i][0]), wanted[i][1]);
    ck_assert_int_eq(run->fact_count, 12);
    run_log_free(&log);
}
END_TEST

/* Thinning keeps the extremes and the order. */
START_TEST(thinning_keeps_peaks)
{
    static double x[30001], y[30001];
    struct series series = {x, y, 30001};
    for (size_t i = 0; i < series.count; i++) {
        x[i] = (double)i;
        y[i] = i == 12345 ? 100 : i == 23456 ? -100 : sin((double)i);
    }
    size_t shown[SERIES_POINTS];
    const size_t count = series_thin(&series, shown);
    double low = 0, high = 0;
    ck_assert(count <= SERIES_POINTS && count > SERIES_POINTS / 2);
    for (size_t i = 0; i < count; i++) {
        ck_assert(i == 0 || shown[i] > shown[i - 1]);
        low = fmin(low, y[shown[i]]);
        high = fmax(high, y[shown[i]]);
    }
    ck_assert(low == -100 && high == 100);
}
END_TEST

/* The mean begins with the values themselves and does not see NaN. */
START_TEST(smoothing)
{
    double x[40], y[40];
    struct series series = {x, y, 40};
    for (size_t i = 0; i < 40; i++)
        y[i] = i == 7 ? NAN : 3;
    ck_assert(series_smooth(&series));
    for (size_t i = 0; i < 40; i++)
        ck_assert(i == 7 ? isnan(y[i]) : fabs(y[i] - 3) < 1e-12);
    series.count = 5;
    ck_assert(!series_smooth(&series));
}
END_TEST

#define SPAN                                                                                       \
    "{\"name\":\"%s\",\"ph\":\"X\",\"ts\":%g,\"dur\":%g,\"pid\":%d,\"tid\":0,\"args\":{\"step\":"  \
    "3}},\n"

static void add_span(const char *name, double begin, double length, int process)
{
    used += (size_t)snprintf(text + used, sizeof text - used, SPAN, name, begin, length, process);
}

/* What lies in a collective as waiting is waiting alone; what lies in no step does not count. */
START_TEST(exposed_time)
{
    struct trace trace;
    struct trace_exposed exposed = {.steps = 0};
    add("[\n");
    add_span("all-reduce", 60, 30, 0); /* files are not in the order of time */
    add_span("wait", 70, 10, 0);
    add_span("step", 0, 100, 0);
    add_span("forward", 1, 40, 0);
    add_span("wait", 2, 4, 0);
    add_span("step", 0, 100, 1);
    add_span("wait", 200, 50, 1);
    ck_assert_int_eq(trace_parse(&trace, "trace", text, used), DDP_OK);
    trace_exposed(&trace, &exposed);
    ck_assert(fabs(exposed.steps - 200) < 1e-9);
    ck_assert(fabs(exposed.communication - 20) < 1e-9);
    ck_assert(fabs(exposed.waiting - 14) < 1e-9);
    trace_free(&trace);
    used = 0;
}
END_TEST

START_TEST(quantiles)
{
    const struct log_step steps[] = {{.seconds = 99},  {.seconds = 4}, {.seconds = 1},
                                     {.seconds = NAN}, {.seconds = 3}, {.seconds = 2}};
    struct step_times times;
    ck_assert_int_eq(step_times_of(&times, steps, 6), DDP_OK);
    ck_assert(times.median == 2.5 && times.low == 1.75 && times.high == 3.25);
    ck_assert_int_eq(step_times_of(&times, steps, 1), DDP_OK);
    ck_assert(times.median == 99 && times.low == 99);
    ck_assert_int_eq(step_times_of(&times, steps, 0), DDP_OK);
    ck_assert(isnan(times.median));
    struct log_step rounds[12];
    for (int i = 0; i < 12; i++)
        rounds[i] = (struct log_step){.step = 9 + i,
                                      .seconds = (9 + i) % 4 == 0 ? 50
                                                 : i % 2          ? 3
                                                                  : 1};
    ck_assert_int_eq(step_times_of_rounds(&times, rounds, 12, 4), DDP_OK);
    ck_assert_msg(times.median == 1 + (50 - 1) / 4.0 && times.high == 26.5, "%g", times.median);
    ck_assert_int_eq(step_times_of_rounds(&times, rounds, 12, 1), DDP_OK);
    ck_assert(times.median < 4);
    char shown[UNITS_TEXT];
    ck_assert_str_eq(ddp_text_bytes(999.6, shown), "1.0 kB");
    ck_assert_str_eq(ddp_text_bytes(NAN, shown), "-");
}
END_TEST

/* Every way has a baseline with as many shards, in one worker. */
START_TEST(ways_and_baselines)
{
    static struct variant variants[VARIANTS];
    struct settings settings = {.workers = {1, 2, 4}, .worker_count = 3};
    const int count = variants_make(variants, &settings, 16);
    ck_assert_int_eq(count, 7);
    for (int i = 0; i < count; i++) {
        const struct variant *baseline = &variants[variants[i].baseline];
        ck_assert(baseline->shards == variants[i].shards && baseline->units == 1);
        ck_assert_str_eq(baseline->mode, "accum");
        ck_assert_int_eq(variants[i].shards % variants[i].units, 0);
    }
    ck_assert_str_eq(variants[6].name, "DDP 4 x 2");
    ck_assert_int_eq(variants_make(variants, &settings, 12), 5); /* no two shards a worker */
    ck_assert_int_eq(variants_make(variants, &settings, 10), 0);
    settings = (struct settings){.workers = {2, 3}, .worker_count = 2};
    ck_assert_int_eq(variants_make(variants, &settings, 12), 0);
}
END_TEST

/* Local steps of the most workers, in whole rounds: two at least, of which one is timed. */
START_TEST(ways_with_local_steps)
{
    static struct variant variants[VARIANTS];
    struct settings settings = {
        .workers = {1, 2}, .worker_count = 2, .every = {4, 16}, .every_count = 2, .steps = 32};
    ck_assert_int_eq(variants_make(variants, &settings, 6), 5);
    for (int i = 0; i < 5; i++)
        ck_assert(variants[i].every == (i == 3 ? 4 : i == 4 ? 16 : 1));
    ck_assert_str_eq(variants[4].name, "DDP 2 x 1, every 16");
    ck_assert(variants[4].baseline == 0 && variants[4].units == 2 && variants[4].shards == 2);
    settings.steps = 16;
    ck_assert_int_eq(variants_make(variants, &settings, 6), 0);
    settings.steps = 36;
    ck_assert_int_eq(variants_make(variants, &settings, 6), 0);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("report");
    TCase *tcase = tcase_create("report");
    tcase_add_test(tcase, a_restarted_run_is_one);
    tcase_add_test(tcase, a_complete_run_and_another_are_two);
    tcase_add_test(tcase, facts_and_scores);
    tcase_add_test(tcase, places_on_axes);
    tcase_add_test(tcase, thinning_keeps_peaks);
    tcase_add_test(tcase, smoothing);
    tcase_add_test(tcase, exposed_time);
    tcase_add_test(tcase, quantiles);
    tcase_add_test(tcase, ways_and_baselines);
    tcase_add_test(tcase, ways_with_local_steps);
    suite_add_tcase(suite, tcase);
    return suite;
}
