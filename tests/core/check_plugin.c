/* SPDX-License-Identifier: MIT
 *
 * Loading of plugins: one that fits, and the exact message for each that does not. */
#include "config.h"

#include "core/plugin.h"
#include "tests/lib/runner.h"
#include "tests/lib/scratch.h"

/* Where libtool leaves modules, seen from the build directory. */
#define MODULES "tests/core/.libs"

static const struct ddp_plugin *const untouched = (const struct ddp_plugin *)&scratch;

START_TEST(test_good)
{
    const struct ddp_plugin *plugin, *again;
    setenv("DDP_PLUGIN_PATH", MODULES, 1);
    ck_assert_int_eq(ddp_plugin_load(&plugin, "testgood", true), DDP_OK);
    ck_assert_uint_eq(plugin->abi, DDP_PLUGIN_ABI);
    ck_assert_str_eq(plugin->name, "testgood");
    ck_assert_int_eq(ddp_plugin_load(&again, "testgood", false), DDP_OK);
    ck_assert_ptr_eq(plugin, again);
}
END_TEST

/* Required: the message. Not required: silence. The status is the same. */
static void check_refused(const char *name, enum ddp_status status, const char *message)
{
    for (int required = 0; required < 2; required++) {
        const struct ddp_plugin *plugin = untouched;
        capture_start();
        enum ddp_status got = ddp_plugin_load(&plugin, name, required);
        const char *text = capture_stop();
        ck_assert_int_eq(got, status);
        ck_assert_ptr_eq(plugin, untouched);
        if (required || status == DDP_ERR_INVALID)
            ck_assert_msg(strstr(text, message) != NULL, "no '%s' in: %s", message, text);
        else
            ck_assert_str_eq(text, "");
    }
}

START_TEST(test_missing)
{
    setenv("DDP_PLUGIN_PATH", scratch, 1);
    char message[2 * PATH_MAX];
    snprintf(message, sizeof message,
             "error: %s/libddp-cuda.so does not exist: install the package ddprun-cuda\n", scratch);
    check_refused("cuda", DDP_ERR_UNSUPPORTED, message);
    unsetenv("DDP_PLUGIN_PATH"); /* the default directory */
    check_refused("testnone", DDP_ERR_UNSUPPORTED,
                  "error: " PKGLIBDIR
                  "/libddp-testnone.so does not exist: install the package ddprun-testnone\n");
}
END_TEST

START_TEST(test_misfits)
{
    setenv("DDP_PLUGIN_PATH", MODULES, 1);
    check_refused("testabi", DDP_ERR_UNSUPPORTED,
                  "error: " MODULES
                  "/libddp-testabi.so: it belongs to another version: install the "
                  "package ddprun-testabi of version " PACKAGE_VERSION "\n");
    check_refused("testempty", DDP_ERR_UNSUPPORTED,
                  "error: " MODULES
                  "/libddp-testempty.so: it has no symbol ddp_plugin: install the "
                  "package ddprun-testempty of version " PACKAGE_VERSION "\n");
    check_refused("testname", DDP_ERR_UNSUPPORTED,
                  "error: " MODULES
                  "/libddp-testname.so: it is a plugin with another name: install "
                  "the package ddprun-testname of version " PACKAGE_VERSION "\n");
}
END_TEST

START_TEST(test_not_a_library)
{
    setenv("DDP_PLUGIN_PATH", scratch, 1);
    scratch_write("libddp-cuda.so", "not a library", 13);
    char message[2 * PATH_MAX];
    snprintf(message, sizeof message, "error: cannot load %s/libddp-cuda.so", scratch);
    check_refused("cuda", DDP_ERR_UNSUPPORTED, message);
    check_refused("cuda", DDP_ERR_UNSUPPORTED,
                  ": install the package ddprun-cuda and its dependencies\n");
    scratch_write("libddp-cuda.so", "", 0);
    check_refused("cuda", DDP_ERR_UNSUPPORTED, message);
}
END_TEST

START_TEST(test_names)
{
    static const char *const names[] = {NULL,   "",    "../x", "a/b",
                                        "CUDA", "a-b", "a b",  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_refused(names[i], DDP_ERR_INVALID, "is not a plugin's name\n");
    char *directory = malloc(2 * PATH_MAX);
    memset(directory, 'd', 2 * PATH_MAX - 1);
    directory[2 * PATH_MAX - 1] = '\0';
    setenv("DDP_PLUGIN_PATH", directory, 1);
    check_refused("cuda", DDP_ERR_INVALID, "DDP_PLUGIN_PATH: the directory's name is too long\n");
    free(directory);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("plugin");
    TCase *tc = test_case(suite, "plugin", 20);
    tcase_add_checked_fixture(tc, scratch_make, scratch_remove);
    tcase_add_test(tc, test_good);
    tcase_add_test(tc, test_missing);
    tcase_add_test(tc, test_misfits);
    tcase_add_test(tc, test_not_a_library);
    tcase_add_test(tc, test_names);
    return suite;
}
