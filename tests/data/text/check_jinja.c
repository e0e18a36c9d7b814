/* SPDX-License-Identifier: MIT
 *
 * data/text/jinja: texts are those of Jinja; templates that do not end, and others that are
 * refused; where the bytes of a text are from. */
#include "config.h"

#include "data/text/jinja.h"
#include "tests/lib/golden.h"
#include "tests/lib/messages.h"
#include "tests/lib/runner.h"

static enum ddp_status render(const char *template, const json_t *data, struct ddp_jinja_text *out)
{
    ddp_jinja *jinja = NULL;
    enum ddp_status status = ddp_jinja_parse(&jinja, "a.jinja", template, strlen(template));
    if (status == DDP_OK)
        status = ddp_jinja_render(jinja, "f: line 3", data, "messages", out);
    ddp_jinja_free(jinja);
    return status;
}

START_TEST(test_golden)
{
    catch_messages();
    FILE *file = fopen(golden_path("data/text/golden/jinja.txt"), "r");
    char *line = NULL;
    size_t room = 0, count = 0, refused = 0;
    ck_assert_ptr_nonnull(file);
    ck_assert_int_gt(getline(&line, &room, file), 0);
    json_t *data = json_loads(line, 0, NULL);
    ck_assert_uint_gt(json_array_size(data), 5);
    for (; getline(&line, &room, file) > 0; count++) {
        struct ddp_jinja_text out = {0};
        json_t *one = json_loads(line, 0, NULL);
        const char *template = json_string_value(json_array_get(one, 0));
        const char *expected = json_string_value(json_array_get(one, 2));
        const size_t number = (size_t)json_integer_value(json_array_get(one, 1));
        const enum ddp_status status = render(template, json_array_get(data, number), &out);
        ck_assert_msg((status == DDP_OK) == (expected != NULL), "%s\n%zu: %s", template, number,
                      ddp_status_string(status));
        ck_assert_msg(!expected || strcmp(out.at, expected) == 0, "%s\n%zu: %s\nnot %s", template,
                      number, out.at, expected);
        refused += !expected;
        free(out.at);
        free(out.owners);
        json_decref(one);
    }
    ck_assert_uint_gt(count, 100);
    ck_assert_uint_gt(refused, 10);
    json_decref(data);
    free(line);
    fclose(file);
}
END_TEST

/* Each within a second or two and 128 MiB. */
static const struct {
    const char *template, *message;
} endless[] = {
    {"{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}", "inside each other"},
    {"{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
     "it does not end: stopped"},
    {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
     "it does not end: stopped"},
    {"{% set n = namespace(a=[1]) %}{% for i in range(99) %}{% set n.a = [n.a, n.a] %}{% endfor %}"
     "{{ n.a }}",
     "it does not end: stopped"},
    {"{% set s = 'x' * 999999 %}{% for i in range(999) %}{{ 'y' in s }}{% endfor %}",
     "it does not end: stopped after millions of steps"},
    {"{% set n = namespace(a=[1]) %}{% for i in range(999) %}{% set n.a = [n.a] %}{% endfor %}"
     "{{ n.a }}",
     "200 levels"},
    {"{{ range(1000000) }}", "more than 100000"},
};

START_TEST(test_endless)
{
    catch_messages();
    struct ddp_jinja_text out = {0};
    json_t *data = json_object();
    for (size_t i = 0; i < sizeof endless / sizeof *endless; i++) {
        ck_assert_int_ne(render(endless[i].template, data, &out), DDP_OK);
        expect_message(endless[i].message);
    }
    ck_assert_ptr_null(out.at);
    json_decref(data);
}
END_TEST

START_TEST(test_refused)
{
    catch_messages();
    struct ddp_jinja_text out = {0};
    char deep[4096] = "{{ ";
    json_t *data = json_object();
    ck_assert_int_eq(render("a\n{% include 'x' %}", data, &out), DDP_ERR_UNSUPPORTED);
    expect_message(
        "a.jinja: the chat template, line 2: a statement that is not supported at \"inc");
    ck_assert_int_eq(render("{% if a %}\n\n{{ b }}", data, &out), DDP_ERR_FORMAT);
    expect_message("a.jinja: the chat template, line 3: the end of an if");
    ck_assert_int_eq(render("{{ 'a\nb", data, &out), DDP_ERR_FORMAT);
    expect_message("line 1: a string without its end");
    ck_assert_int_eq(render("{{ a ? b }}", data, &out), DDP_ERR_FORMAT);
    expect_message("begins nothing of Jinja");
    ck_assert_int_eq(render("\xff", data, &out), DDP_ERR_FORMAT);
    expect_message("a.jinja: the chat template is not UTF-8");
    ck_assert_int_eq(render("\n{{ raise_exception('No ' + 'way') }}", data, &out), DDP_ERR_FORMAT);
    expect_message("f: line 3: the chat template (a.jinja, line 2): No way");
    ck_assert_int_eq(render("{{ ''.__class__.__mro__ }}", data, &out), DDP_ERR_FORMAT);
    expect_message("__class__ is undefined");
    memset(deep + 3, '+', sizeof deep - 9);
    memcpy(deep + sizeof deep - 6, "1 }}", 5);
    ck_assert_int_eq(render(deep, data, &out), DDP_ERR_FORMAT);
    expect_message("more than 100 things inside each other");
    json_decref(data);
}
END_TEST

/* A digit for each byte: whose it is; in {% generation %}, a letter. */
static const char *owners(const char *template, const json_t *data)
{
    static char shown[256];
    struct ddp_jinja_text out = {0};
    ck_assert_int_eq(render(template, data, &out), DDP_OK);
    for (size_t i = 0; i < out.bytes; i++)
        shown[i] = (char)((out.owners[i] & DDP_JINJA_GENERATED ? 'a' : '0') +
                          (out.owners[i] & DDP_JINJA_OWNER_MASK));
    shown[out.bytes] = '\0';
    free(out.at);
    free(out.owners);
    return shown;
}

#define EACH(what) "{% for m in messages %}" what "{% endfor %}"

START_TEST(test_owners)
{
    json_t *data =
        json_pack("{s:[{s:s,s:s},{s:s,s:s,s:[s,i]}],s:s}", "messages", "role", "r", "content",
                  " ab ", "role", "s", "content", "c,d", "calls", "x\"", 12, "other", "o");
    ck_assert_str_eq(owners(EACH("{{ m.role }}:{{ m.content }}{{ other }}"), data), "0011110"
                                                                                    "002220");
    ck_assert_str_eq(owners(EACH("{{ m.content | trim ~ '.' }}"), data), "110"
                                                                         "2220");
    ck_assert_str_eq(owners(EACH("{{ m.content.split(',') | join('--') | upper }}"), data), "1111"
                                                                                            "2002");
    ck_assert_str_eq(owners(EACH("{{ m.content | replace('b', '!!') }}"), data), "11001"
                                                                                 "222");
    ck_assert_str_eq(owners("{{ messages[1].calls | tojson }}", data), "00222000000");
    ck_assert_str_eq(
        owners("{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(messages[1].content[:1]) }}"
               "{% set y %}{{ messages[0].content }}{% endset %}{{ y[1:] }}",
               data),
        "020"
        "111");
    ck_assert_str_eq(
        owners(EACH("{{ 'x' }}{% generation %}{{ m.content[1:3] }}y{% endgeneration %}"), data),
        "0bba"
        "0cca");
    json_decref(data);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("jinja");
    TCase *golden = tcase_create("golden");
    tcase_add_test(golden, test_golden);
    suite_add_tcase(suite, golden);
    TCase *other = tcase_create("other");
    tcase_set_timeout(other, 60);
    tcase_add_test(other, test_endless);
    tcase_add_test(other, test_refused);
    tcase_add_test(other, test_owners);
    suite_add_tcase(suite, other);
    return suite;
}
