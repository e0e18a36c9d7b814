/* SPDX-License-Identifier: MIT
 *
 * data/custom: a program's samples and labels as a dataset, the messages of its read function, and
 * structs of older and newer programs. */
#include "config.h"

#include "core/log.h"
#include "data/dataset.h"
#include "tests/lib/runner.h"

#include <string.h>

#define COUNT 40

static float x[COUNT][3], y[COUNT][2];
static int32_t classes[COUNT];

static void setup(void)
{
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k < 3; k++)
            x[i][k] = (float)(10 * i + k);
        y[i][0] = (float)i / 2;
        y[i][1] = -(float)i;
        classes[i] = i % 3;
    }
}

static struct ddp_data of_numbers(void)
{
    return ddp_data_arrays(COUNT, 3, x[0], 0, 2, y);
}

static struct ddp_data of_classes(void)
{
    return ddp_data_arrays(COUNT, 3, x[0], 3, 1, classes);
}

static enum ddp_status open_own(const struct ddp_data *data, double val_split, ddp_dataset **train,
                                ddp_dataset **test)
{
    const struct ddp_dataset_options options = {.own = data, .val_split = val_split};
    return ddp_dataset_open(NULL, &options, train, test);
}

START_TEST(samples_and_targets_come_as_they_are)
{
    const struct ddp_data data = of_numbers();
    const int64_t indices[] = {7, 0, 39};
    ddp_dataset *set;
    float got[3][3], targets[3][2];
    int32_t labels[6];
    ck_assert_int_eq(open_own(&data, 0, &set, NULL), DDP_OK);
    const struct ddp_dataset_info *info = ddp_dataset_info(set);
    ck_assert(info->float_labels && info->class_count == 0 && info->label_count == 2);
    ck_assert_int_eq(ddp_dataset_read(set, indices, 3, got, labels), DDP_OK);
    memcpy(targets, labels, sizeof targets);
    for (int i = 0; i < 3; i++) {
        ck_assert(memcmp(got[i], x[indices[i]], sizeof got[i]) == 0);
        ck_assert(memcmp(targets[i], y[indices[i]], sizeof targets[i]) == 0);
    }
    ck_assert_int_eq(ddp_dataset_read(set, (int64_t[]){COUNT}, 1, got, labels), DDP_ERR_INVALID);
    ddp_dataset_close(set);
}
END_TEST

/* Both parts of a split have the targets of their samples. */
START_TEST(a_part_is_cut_off)
{
    const struct ddp_data data = of_numbers();
    ddp_dataset *sets[2];
    ck_assert_int_eq(open_own(&data, 0.25, &sets[0], &sets[1]), DDP_OK);
    for (int part = 0; part < 2; part++) {
        const int64_t count = ddp_dataset_info(sets[part])->sample_count;
        ck_assert_int_eq(count, part ? COUNT / 4 : COUNT - COUNT / 4);
        ck_assert(ddp_dataset_info(sets[part])->float_labels);
        for (int64_t i = 0; i < count; i++) {
            float got[3], targets[2];
            int32_t labels[2];
            ck_assert_int_eq(ddp_dataset_read(sets[part], &i, 1, got, labels), DDP_OK);
            memcpy(targets, labels, sizeof targets);
            ck_assert_float_eq(targets[1], -got[0] / 10);
        }
        ddp_dataset_close(sets[part]);
    }
}
END_TEST

static uint64_t fingerprint_of(const struct ddp_data *data)
{
    ddp_dataset *set;
    uint64_t fingerprint;
    ck_assert_int_eq(open_own(data, 0, &set, NULL), DDP_OK);
    ck_assert_int_eq(ddp_dataset_fingerprint(set, &fingerprint), DDP_OK);
    ddp_dataset_close(set);
    return fingerprint;
}

START_TEST(the_fingerprint_sees_targets)
{
    const struct ddp_data data = of_numbers();
    const uint64_t first = fingerprint_of(&data);
    ck_assert(fingerprint_of(&data) == first);
    y[11][1] += 1;
    ck_assert(fingerprint_of(&data) != first);
}
END_TEST

/* --- read functions --- */

static enum ddp_status read_says(void *arg, int64_t index, void *sample, void *label)
{
    memcpy(sample, x[index], sizeof x[index]);
    memcpy(label, &classes[index], sizeof classes[index]); /* there is room in any case */
    const enum ddp_status status = *(const enum ddp_status *)arg;
    return status == DDP_ERR_IO ? ddp_fail(status, "row %d is torn", (int)index) : status;
}

/* The function's own message is part of ours, also where ours is kept for later. */
START_TEST(a_failing_function_is_heard)
{
    static const struct {
        enum ddp_status gives, expected;
        const char *message;
    } cases[] = {
        {DDP_OK, DDP_OK, ""},
        {DDP_ERR_IO, DDP_ERR_IO, "own data: sample 5: row 5 is torn"},
        {DDP_ERR_UNSUPPORTED, DDP_ERR_UNSUPPORTED, "own data: the read function failed for sample"},
        {DDP_ERR_ABORTED, DDP_ERR_INVALID, "own data: the read function returned -7 for"},
        {DDP_ERR_PREEMPTED, DDP_ERR_INVALID, "own data: the read function returned -10 for"},
        {DDP_ERR_DIVERGED, DDP_ERR_INVALID, "own data: the read function returned -11 for"},
        {(enum ddp_status)1, DDP_ERR_INVALID, "own data: the read function returned 1 for"},
    };
    const int64_t index = 5;
    char said[256];
    float got[3];
    ddp_dataset *set;
    struct ddp_data data = of_classes();
    data.read = read_says;
    data.arg = (void *)(uintptr_t)&cases[_i].gives;
    ck_assert_int_eq(open_own(&data, 0, &set, NULL), DDP_OK);
    ddp_log_hold(said, sizeof said);
    ck_assert_int_eq(ddp_dataset_read(set, &index, 1, got, NULL), cases[_i].expected);
    ddp_log_hold(NULL, 0);
    ck_assert_msg(strncmp(said, cases[_i].message, strlen(cases[_i].message)) == 0, "%s", said);
    ck_assert(cases[_i].gives != DDP_OK || *said == '\0');
    ddp_dataset_close(set);
}
END_TEST

START_TEST(labels_out_of_range)
{
    static const int32_t bad[] = {3, -1, INT32_MAX, INT32_MIN};
    enum ddp_status fine = DDP_OK;
    const int64_t index = 8;
    float got[3];
    int32_t label;
    ddp_dataset *set = NULL;
    struct ddp_data data = of_classes();
    classes[8] = bad[_i];
    ck_assert_int_eq(open_own(&data, 0, &set, NULL), DDP_ERR_INVALID);
    data.read = read_says;
    data.arg = &fine;
    ck_assert_int_eq(open_own(&data, 0, &set, NULL), DDP_OK);
    ck_assert_int_eq(ddp_dataset_read(set, &index, 1, got, &label), DDP_ERR_INVALID);
    ddp_dataset_close(set);
}
END_TEST

/* --- the struct --- */

/* As a program has it that was compiled with a later ddp.h. */
struct newer {
    struct ddp_data known;
    int64_t more[2];
};

START_TEST(structs_of_other_sizes)
{
    struct ddp_data taken, data = of_classes();
    struct newer newer = {.known = data};
    newer.known.struct_bytes = sizeof newer;
    ck_assert_int_eq(ddp_dataset_take_own(&taken, &newer.known, "data"), DDP_OK);
    ck_assert(taken.count == data.count && taken.samples == x && taken.labels == classes);
    newer.more[1] = 1;
    ck_assert_int_eq(ddp_dataset_take_own(&taken, &newer.known, "data"), DDP_ERR_INVALID);

    /* an older program's, without the last member: what lies behind it is not looked at */
    data.struct_bytes = offsetof(struct ddp_data, labels);
    ck_assert_int_eq(ddp_dataset_take_own(&taken, &data, "data"), DDP_ERR_INVALID);
    data.label_count = data.classes = 0;
    ck_assert_int_eq(ddp_dataset_take_own(&taken, &data, "data"), DDP_OK);
    ck_assert_ptr_null(taken.labels);
    data.struct_bytes = SIZE_MAX; /* not initialised: not read to that end */
    ck_assert_int_eq(ddp_dataset_take_own(&taken, &data, "data"), DDP_ERR_INVALID);
    ck_assert_int_eq(ddp_dataset_take_own(&taken, NULL, "data"), DDP_ERR_INVALID);
}
END_TEST

START_TEST(members_out_of_range)
{
    struct ddp_data taken, data = of_classes();
    switch (_i) {
    case 0:
        data.count = -1;
        break;
    case 1:
        data.dim_count = 0;
        break;
    case 2:
        data.dim_count = DDP_TENSOR_DIMS + 1;
        break;
    case 3:
        data.dims[0] = -3;
        break;
    case 4:
        data.dim_count = 2, data.dims[1] = INT64_MAX;
        break;
    case 5:
        data.dims[0] = (int64_t)INT32_MAX + 1;
        break;
    case 6:
        data.classes = -1;
        break;
    case 7:
        data.classes = (int64_t)INT32_MAX + 1;
        break;
    case 8:
        data.label_count = -1;
        break;
    case 9:
        data.label_count = INT64_MAX;
        break;
    case 10:
        data.dtype = DDP_BF16;
        break;
    default:
        data.struct_bytes = 8;
        break;
    }
    ck_assert_int_eq(ddp_dataset_take_own(&taken, &data, "data"), DDP_ERR_INVALID);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("custom_data");
    TCase *tc = test_case(suite, "custom_data", 60);
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_test(tc, samples_and_targets_come_as_they_are);
    tcase_add_test(tc, a_part_is_cut_off);
    tcase_add_test(tc, the_fingerprint_sees_targets);
    tcase_add_loop_test(tc, a_failing_function_is_heard, 0, 7);
    tcase_add_loop_test(tc, labels_out_of_range, 0, 4);
    tcase_add_test(tc, structs_of_other_sizes);
    tcase_add_loop_test(tc, members_out_of_range, 0, 12);
    return suite;
}
