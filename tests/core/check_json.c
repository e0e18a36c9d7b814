/* SPDX-License-Identifier: MIT
 *
 * What is read and written with jansson. */
#include "config.h"

#include "tests/lib/runner.h"

#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static void check_dump(json_t *value, size_t flags, const char *wanted)
{
    char *text = json_dumps(value, flags);
    ck_assert_ptr_nonnull(text);
    ck_assert_str_eq(text, wanted);
    free(text);
}

START_TEST(written)
{
    json_t *value = json_pack("{s:s, s:i, s:I, s:f, s:b, s:[s], s:{}, s:[], s:o?, s:o}", "text",
                              "a\"\\\b\f\n\r\t\x01/\xc3\xa9\x7f", "int", -5, "wide",
                              (json_int_t)1 << 40, "real", 0.1, "truth", 7, "array", "x", "none",
                              "empty", "null", NULL, "given", json_integer(3));
    check_dump(
        value, JSON_COMPACT | JSON_REAL_PRECISION(15) | JSON_PRESERVE_ORDER,
        "{\"text\":\"a\\\"\\\\\\b\\f\\n\\r\\t\\u0001/"
        "\xc3\xa9\x7f\",\"int\":-5,\"wide\":1099511627776,"
        "\"real\":0.1,\"truth\":true,\"array\":[\"x\"],\"none\":{},\"empty\":[],\"null\":null,"
        "\"given\":3}");
    json_object_set_new(value, "text", json_null());
    check_dump(
        value, JSON_INDENT(2) | JSON_PRESERVE_ORDER,
        "{\n  \"text\": null,\n  \"int\": -5,\n  \"wide\": 1099511627776,\n"
        "  \"real\": 0.10000000000000001,\n  \"truth\": true,\n  \"array\": [\n    \"x\"\n  ],\n"
        "  \"none\": {},\n  \"empty\": [],\n  \"null\": null,\n  \"given\": 3\n}");
    json_decref(value);
    value = json_pack("[i, i, {s:i}]", 1, 2, "a", 3);
    check_dump(value, 0, "[1, 2, {\"a\": 3}]");
    json_decref(value);
    ck_assert_ptr_null(json_pack("{s:s, s:o}", "a", NULL, "b", json_integer(1)));
    ck_assert_ptr_null(json_pack("{s:f}", "a", (double)INFINITY));
    ck_assert_ptr_null(json_string("\xff"));
    value = json_string("alone");
    check_dump(value, JSON_ENCODE_ANY, "\"alone\"");
    json_decref(value);
}
END_TEST

START_TEST(real_numbers_written)
{
    static const struct {
        double value;
        int digits;
        const char *text;
    } rows[] = {
        {1, 0, "[1.0]"},         {-0.0, 0, "[-0.0]"},       {1e-5, 9, "[1e-5]"},
        {1e300, 9, "[1e300]"},   {2.5e+20, 15, "[2.5e20]"}, {1e15, 15, "[1e15]"},
        {123456, 3, "[1.23e5]"}, {1e100, 0, "[1e100]"},
    };
    setlocale(LC_ALL, "de_DE.UTF-8");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        json_t *value = json_pack("[f]", rows[i].value);
        check_dump(value, JSON_REAL_PRECISION(rows[i].digits), rows[i].text);
        json_decref(value);
    }
    setlocale(LC_ALL, "C");
}
END_TEST

/* Also with every allocation of the exact size, so that a sanitizer sees what reads on. */
static json_t *load(const char *text, size_t bytes, size_t flags, json_error_t *error)
{
    char *copy = malloc(bytes ? bytes : 1);
    ck_assert_ptr_nonnull(copy);
    memcpy(copy, text, bytes);
    json_t *value = json_loadb(copy, bytes, flags, error);
    free(copy);
    return value;
}

START_TEST(texts_read)
{
    static const char text[] =
        " { \"a\" : [1, -0, 2.5e-1, 1E2, true, false, null, \"\\u00e9\\ud83d\\ude00\\/\"],\r\n"
        "\t\"b\": {\"c\": \"d\"}, \"b\": 9223372036854775807, \"\": {} } ";
    json_error_t error;
    json_t *value = load(text, sizeof text - 1, 0, &error), *a = json_object_get(value, "a"), *at;
    ck_assert_msg(json_is_object(value), "%s", error.text);
    ck_assert_uint_eq(json_object_size(value), 3);
    ck_assert_uint_eq(json_array_size(a), 8);
    ck_assert(json_integer_value(json_array_get(a, 0)) == 1);
    ck_assert(json_is_integer(json_array_get(a, 1)));
    ck_assert(json_real_value(json_array_get(a, 2)) == 0.25);
    ck_assert(json_number_value(json_array_get(a, 3)) == 100);
    ck_assert(json_is_true(json_array_get(a, 4)) && json_is_boolean(json_array_get(a, 5)));
    ck_assert(json_is_null(json_array_get(a, 6)) && json_array_get(a, 8) == NULL);
    ck_assert_str_eq(json_string_value(json_array_get(a, 7)), "\xc3\xa9\xf0\x9f\x98\x80/");
    ck_assert_uint_eq(json_string_length(json_array_get(a, 7)), 7);
    ck_assert(json_integer_value(json_object_get(value, "b")) == 9223372036854775807);
    const char *key;
    size_t count = 0;
    json_object_foreach(value, key, at) count += strlen(key) + !json_is_null(at);
    ck_assert_uint_eq(count, 5);
    ck_assert_ptr_null(json_object_get(a, "a"));
    ck_assert_ptr_null(json_string_value(a));
    json_decref(value);
    value = load("[\"a\\u0000b\"]", 12, JSON_ALLOW_NUL, NULL);
    ck_assert_uint_eq(json_string_length(json_array_get(value, 0)), 3);
    json_decref(value);
}
END_TEST

START_TEST(refused)
{
    static const char *const bad[] = {
        "",
        " ",
        "1",
        "\"a\"",
        "{",
        "[",
        "[1,]",
        "[1 2]",
        "{\"a\"}",
        "{\"a\":}",
        "{a:1}",
        "{\"a\":1,}",
        "[01]",
        "[1.]",
        "[.5]",
        "[-]",
        "[1e]",
        "[1e999]",
        "[+1]",
        "[nul]",
        "[NaN]",
        "[\"\\x\"]",
        "[\"a",
        "[\"\\u12\"]",
        "[\"\n\"]",
        "[\"\xff\"]",
        "[\"\xc0\x80\"]",
        "[\"\xed\xa0\x80\"]",
        "[\"\\ud800\"]",
        "[\"\\ud800\\u0041\"]",
        "[\"\\udc00\"]",
        "[9223372036854775808]",
        "[1]x",
        "[1]]",
        "[\"\\u0000\"]",
        "{\"a\":1 \"b\":2}",
        "[truefalse]",
        "{\"a\":1,\"a\":2}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        json_error_t error = {.line = -7};
        ck_assert_msg(!load(bad[i], strlen(bad[i]), JSON_REJECT_DUPLICATES, &error), "%s", bad[i]);
        ck_assert_msg(error.text[0] && error.line >= 0, "%s", bad[i]);
    }
    json_error_t error;
    ck_assert_ptr_null(load("[\n1,\n x]", 8, 0, &error));
    ck_assert_int_eq(error.line, 3);
    /* A text is what stands in front of its end, and nothing behind that is read. */
    ck_assert_ptr_null(load("[\"a\"", 4, 0, NULL));
    ck_assert_ptr_null(load("[1.0e", 5, 0, NULL));
    static char deep[100000];
    memset(deep, '[', sizeof deep);
    ck_assert_ptr_null(load(deep, sizeof deep, 0, NULL));
    memset(deep + 1000, ']', 1000);
    json_t *value = load(deep, 2000, 0, NULL);
    ck_assert_ptr_nonnull(value);
    json_decref(value);
}
END_TEST

START_TEST(many_members)
{
    enum { COUNT = 3000 };
    json_t *value = json_object();
    char key[32];
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < COUNT; i++) {
            snprintf(key, sizeof key, "key %d", i);
            ck_assert_int_eq(json_object_set_new(value, key, json_integer(i + round)), 0);
        }
    ck_assert_uint_eq(json_object_size(value), COUNT);
    for (int i = 0; i < COUNT; i++) {
        snprintf(key, sizeof key, "key %d", i);
        ck_assert_int_eq(json_integer_value(json_object_get(value, key)), i + 1);
    }
    ck_assert_ptr_null(json_object_get(value, "key"));
    json_decref(value);
}
END_TEST

START_TEST(checksum)
{
    unsigned char data[1000];
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (unsigned char)(i * i >> 3);
    ck_assert_uint_eq(crc32_z(0, (const Bytef *)"123456789", 9), 0xcbf43926);
    const uLong whole = crc32_z(0, data, sizeof data);
    for (size_t cut = 0; cut <= sizeof data; cut += 37)
        ck_assert_uint_eq(crc32_z(crc32_z(0, data, cut), data + cut, sizeof data - cut), whole);
    uint32_t plain = UINT32_MAX;
    for (size_t i = 0; i < sizeof data; i++) {
        plain ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            plain = (plain & 1 ? 0xedb88320u : 0) ^ (plain >> 1);
    }
    ck_assert_uint_eq(whole, (uint32_t)~plain);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("json");
    TCase *tc = tcase_create("json");
    tcase_add_test(tc, written);
    tcase_add_test(tc, real_numbers_written);
    tcase_add_test(tc, texts_read);
    tcase_add_test(tc, refused);
    tcase_add_test(tc, many_members);
    tcase_add_test(tc, checksum);
    suite_add_tcase(suite, tc);
    return suite;
}
