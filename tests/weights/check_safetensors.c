/* SPDX-License-Identifier: MIT
 *
 * train/safetensors: what is written, that it reads back, and every way in which a file can be
 * wrong. */
#include "config.h"

#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"
#include "weights/safetensors.h"

#include <signal.h>
#include <sys/resource.h>

static const float weight[6] = {1, 2, 3, 4, 5, 6};
static const int64_t step[1] = {7};
static const float bias[2] = {-1, 0.5f};

static const struct ddp_safetensor three[] = {
    {"weight", "F32", 2, {2, 3}, weight, sizeof weight},
    {"step", "I64", 0, {0}, step, sizeof step},
    {"bias", "F32", 1, {2}, bias, sizeof bias},
};
static const struct ddp_safetensors_pair pairs[] = {{"format", "pt"}, {"by", "a \"test\""}};

START_TEST(the_bytes_are_those_of_the_format)
{
    static const char header[] =
        "{\"__metadata__\":{\"by\":\"a \\\"test\\\"\",\"format\":\"pt\"},"
        "\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
        "\"bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]},"
        "\"weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]}}";
    size_t bytes, length = (sizeof header - 1 + 7) / 8 * 8;
    ck_assert_int_eq(ddp_safetensors_write(scratch_path("a"), NULL, NULL, three, 3, pairs, 2),
                     DDP_OK);
    const char *content = scratch_read("a", &bytes);
    ck_assert_uint_eq(bytes, 8 + length + 40);
    uint64_t stored;
    memcpy(&stored, content, 8);
    ck_assert_uint_eq(stored, length);
    ck_assert_mem_eq(content + 8, header, sizeof header - 1);
    for (size_t i = sizeof header - 1; i < length; i++)
        ck_assert_int_eq(content[8 + i], ' ');
    ck_assert_mem_eq(content + 8 + length, step, 8);
    ck_assert_mem_eq(content + 8 + length + 8, bias, 8);
    ck_assert_mem_eq(content + 8 + length + 16, weight, 24);
    ck_assert_int_eq(scratch_entries(false), 1);
}
END_TEST

START_TEST(what_is_written_reads_back)
{
    ddp_safetensors *file;
    ck_assert_int_eq(ddp_safetensors_write(scratch_path("a"), NULL, NULL, three, 3, pairs, 2),
                     DDP_OK);
    ck_assert_int_eq(ddp_safetensors_open(&file, scratch_path("a")), DDP_OK);
    ck_assert_uint_eq(ddp_safetensors_count(file), 3);
    for (int i = 0; i < 3; i++) {
        const struct ddp_safetensor *t = ddp_safetensors_find(file, three[i].name);
        ck_assert_ptr_nonnull(t);
        ck_assert_str_eq(t->dtype, three[i].dtype);
        ck_assert_int_eq(t->dim_count, three[i].dim_count);
        ck_assert_mem_eq(t->dims, three[i].dims, (size_t)t->dim_count * sizeof t->dims[0]);
        ck_assert_uint_eq(t->bytes, three[i].bytes);
        ck_assert_mem_eq(t->data, three[i].data, t->bytes);
    }
    ck_assert_str_eq(ddp_safetensors_at(file, 0)->name, "step");
    ck_assert_ptr_null(ddp_safetensors_at(file, 3));
    ck_assert_ptr_null(ddp_safetensors_find(file, "nothing"));
    ck_assert_str_eq(ddp_safetensors_metadata(file, "format"), "pt");
    ck_assert_ptr_null(ddp_safetensors_metadata(file, "nothing"));
    ddp_safetensors_close(file);
    ddp_safetensors_close(NULL);
}
END_TEST

START_TEST(nothing_and_empty_tensors)
{
    static const struct ddp_safetensor empty[] = {{"b", "F32", 2, {0, 4}, NULL, 0},
                                                  {"a", "F32", 1, {2}, bias, 8},
                                                  {"c", "F32", 1, {0}, NULL, 0}};
    ddp_safetensors *file;
    for (size_t count = 0; count <= 3; count += 3) {
        ck_assert_int_eq(
            ddp_safetensors_write(scratch_path("a"), NULL, NULL, empty, count, NULL, 0), DDP_OK);
        ck_assert_int_eq(ddp_safetensors_open(&file, scratch_path("a")), DDP_OK);
        ck_assert_uint_eq(ddp_safetensors_count(file), count);
        ddp_safetensors_close(file);
    }
}
END_TEST

START_TEST(data_begin_at_a_multiple_of_8)
{
    for (size_t n = 1; n <= 8; n++) {
        struct ddp_safetensor tensor = three[0];
        size_t bytes;
        tensor.name = &"abcdefgh"[8 - n];
        ck_assert_int_eq(ddp_safetensors_write(scratch_path("a"), NULL, NULL, &tensor, 1, NULL, 0),
                         DDP_OK);
        scratch_read("a", &bytes);
        ck_assert_uint_eq(bytes % 8, 0);
    }
}
END_TEST

START_TEST(writer_refuses_what_cannot_be)
{
    struct ddp_safetensor t[2] = {three[0], three[2]};
    const char *path = scratch_path("a");
    capture_start();
    t[1].name = t[0].name;
    int twice = ddp_safetensors_write(path, NULL, NULL, t, 2, NULL, 0);
    t[1].name = "__metadata__";
    int reserved = ddp_safetensors_write(path, NULL, NULL, t, 2, NULL, 0);
    t[1].name = "\xff\xfe";
    int not_utf8 = ddp_safetensors_write(path, NULL, NULL, t, 2, NULL, 0);
    t[1] = three[2];
    t[1].bytes = 12;
    int wrong_bytes = ddp_safetensors_write(path, NULL, NULL, t, 2, NULL, 0);
    t[1] = three[2];
    t[1].dtype = "F31";
    int wrong_dtype = ddp_safetensors_write(path, NULL, NULL, t, 2, NULL, 0);
    const struct ddp_safetensors_pair same[] = {{"k", "v"}, {"k", "w"}};
    int same_key = ddp_safetensors_write(path, NULL, NULL, three, 1, same, 2);
    capture_stop();
    ck_assert_int_eq(twice, DDP_ERR_INVALID);
    ck_assert_int_eq(reserved, DDP_ERR_INVALID);
    ck_assert_int_eq(not_utf8, DDP_ERR_INVALID);
    ck_assert_int_eq(wrong_bytes, DDP_ERR_INVALID);
    ck_assert_int_eq(wrong_dtype, DDP_ERR_INVALID);
    ck_assert_int_eq(same_key, DDP_ERR_INVALID);
    ck_assert_int_eq(scratch_entries(false), 0);
}
END_TEST

START_TEST(sizes_of_shapes)
{
    size_t bytes;
    ck_assert(ddp_safetensors_bytes("BF16", 2, (int64_t[]){3, 5}, &bytes) && bytes == 30);
    ck_assert(ddp_safetensors_bytes("F4", 1, (int64_t[]){6}, &bytes) && bytes == 3);
    ck_assert(!ddp_safetensors_bytes("F4", 1, (int64_t[]){5}, &bytes));
    ck_assert(!ddp_safetensors_bytes("F32", 1, (int64_t[]){-1}, &bytes));
    ck_assert(!ddp_safetensors_bytes("F32", 2, (int64_t[]){INT64_MAX, 4}, &bytes));
    ck_assert(!ddp_safetensors_bytes("X32", 1, (int64_t[]){1}, &bytes));
}
END_TEST

/* --- bad files -------------------------------------------------------------------------------- */

#define ONE "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

static const struct {
    const char *header;
    int data_bytes;
    const char *says;
} bad_headers[] = {
    {ONE "}", 7, "beyond the end"},
    {ONE "}", 9, "1 bytes follow the data"},
    {ONE, 8, "bad header"},
    {ONE "} x", 8, "bad header"},
    {"[]", 0, "does not begin with {"},
    {" {}", 0, "does not begin with {"},
    {ONE ",\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}", 16, "duplicate"},
    {ONE ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12, "overlaps"},
    {ONE ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "overlaps"},
    {ONE ",\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9,17]}}", 17, "hole"},
    {ONE ",\"b\":3}", 8, "not a JSON object"},
    {"{\"a\":{\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no dtype"},
    {"{\"a\":{\"dtype\":5,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "no dtype"},
    {"{\"a\":{\"dtype\":\"F33\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "dtype is unknown"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]}}", 8, "its shape is not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "its shape is not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "its shape is not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8,
     "its shape is not"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,8]}}", 8, "its shape is not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2]}}", 8, "data_offsets are not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]}}", 8, "data_offsets are not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "data_offsets are not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]}}", 8,
     "data_offsets are not"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]}}", 8, "do not agree"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0,
     "too large"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[18446744073709551617],\"data_offsets\":[0,4]}}", 4,
     "bad header"},
    {"{\"__metadata__\":[]}", 0, "__metadata__ is not"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "'k' is not text"},
};

static size_t put_file(const char *name, uint64_t length, const char *header, size_t data_bytes)
{
    char content[4096] = {0};
    size_t header_bytes = strlen(header);
    memcpy(content, &length, 8);
    memcpy(content + 8, header, header_bytes);
    scratch_write(name, content, 8 + header_bytes + data_bytes);
    return 8 + header_bytes + data_bytes;
}

static void must_fail(enum ddp_status wanted, const char *name, const char *says)
{
    ddp_safetensors *file = NULL;
    capture_start();
    enum ddp_status status = ddp_safetensors_open(&file, scratch_path(name));
    const char *text = capture_stop();
    ck_assert_msg(status == wanted, "%s: status %d, not %d: %s", says, status, wanted, text);
    ck_assert_ptr_null(file);
    one_message(text, scratch_path(name), says);
}

START_TEST(bad_header_is_named)
{
    const char *header = bad_headers[_i].header;
    put_file("bad", strlen(header), header, (size_t)bad_headers[_i].data_bytes);
    must_fail(DDP_ERR_FORMAT, "bad", bad_headers[_i].says);
}
END_TEST

START_TEST(bad_lengths_are_named)
{
    must_fail(DDP_ERR_IO, "missing", "No such file");
    ck_assert_int_eq(mkdir(scratch_path("dir"), 0777), 0);
    must_fail(DDP_ERR_IO, "dir", "not a regular file");
    scratch_write("bad", "", 0);
    must_fail(DDP_ERR_FORMAT, "bad", "empty");
    scratch_write("bad", "\2\0\0", 3);
    must_fail(DDP_ERR_FORMAT, "bad", "fewer than");
    put_file("bad", 0, "{}", 0);
    must_fail(DDP_ERR_FORMAT, "bad", "does not begin");
    put_file("bad", 3, "{}", 0);
    must_fail(DDP_ERR_FORMAT, "bad", "truncated");
    put_file("bad", 100000001, "{}", 0);
    must_fail(DDP_ERR_FORMAT, "bad", "over the limit");
    put_file("bad", UINT64_MAX, "{}", 0);
    must_fail(DDP_ERR_FORMAT, "bad", "over the limit");
}
END_TEST

/* --- a disk that is full, a directory that is not ours ---------------------------------------- */

static void old_file_is_whole(void)
{
    ddp_safetensors *file;
    ck_assert_int_eq(ddp_safetensors_open(&file, scratch_path("a")), DDP_OK);
    ck_assert_uint_eq(ddp_safetensors_count(file), 3);
    ddp_safetensors_close(file);
}

START_TEST(full_disk_leaves_the_old_file)
{
    static float large[1 << 16];
    const struct ddp_safetensor tensor = {"large", "F32", 1, {1 << 16}, large, sizeof large};
    struct rlimit limit = {.rlim_cur = 100000, .rlim_max = RLIM_INFINITY};
    ck_assert_int_eq(ddp_safetensors_write(scratch_path("a"), NULL, NULL, three, 3, NULL, 0),
                     DDP_OK);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = 100000;
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    capture_start();
    enum ddp_status status =
        ddp_safetensors_write(scratch_path("a"), NULL, NULL, &tensor, 1, NULL, 0);
    const char *text = capture_stop();
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
    ck_assert_int_eq(status, DDP_ERR_IO);
    one_message(text, scratch_path("a"), "cannot write: File too large");
    ck_assert_int_eq(scratch_entries(false), 1);
    old_file_is_whole();
}
END_TEST

START_TEST(unwritable_directory_leaves_the_old_file)
{
    ck_assert_int_eq(ddp_safetensors_write(scratch_path("a"), NULL, NULL, three, 3, NULL, 0),
                     DDP_OK);
    ck_assert_int_eq(chmod(scratch, 0555), 0);
    if (!scratch_give_up_root())
        return;
    capture_start();
    enum ddp_status status =
        ddp_safetensors_write(scratch_path("a"), NULL, NULL, three, 1, NULL, 0);
    const char *text = capture_stop();
    ck_assert_int_eq(seteuid(getuid()), 0);
    chmod(scratch, 0777);
    ck_assert_int_eq(status, DDP_ERR_IO);
    one_message(text, scratch_path("a"), "Permission denied");
    ck_assert_int_eq(scratch_entries(false), 1);
    old_file_is_whole();
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("safetensors");
    TCase *tc = test_case(suite, "safetensors", 30);
    tcase_add_unchecked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_checked_fixture(tc, scratch_clear, NULL);
    tcase_add_test(tc, the_bytes_are_those_of_the_format);
    tcase_add_test(tc, what_is_written_reads_back);
    tcase_add_test(tc, nothing_and_empty_tensors);
    tcase_add_test(tc, data_begin_at_a_multiple_of_8);
    tcase_add_test(tc, writer_refuses_what_cannot_be);
    tcase_add_test(tc, sizes_of_shapes);
    tcase_add_loop_test(tc, bad_header_is_named, 0, sizeof bad_headers / sizeof bad_headers[0]);
    tcase_add_test(tc, bad_lengths_are_named);
    tcase_add_test(tc, full_disk_leaves_the_old_file);
    tcase_add_test(tc, unwritable_directory_leaves_the_old_file);
    return suite;
}
