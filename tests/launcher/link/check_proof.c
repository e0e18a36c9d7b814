/* SPDX-License-Identifier: MIT
 *
 * How ddpruns prove that they belong to one job: where the key comes from, what a proof is worth.
 */
#include "config.h"

#include "core/log.h"
#include "launcher/munge.h"
#include "launcher/proof.h"
#include "tests/launcher/link/munged.h"
#include "tests/lib/runner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char error[2048];

static enum ddp_status open_proof(struct proof *proof, struct proof_setup setup)
{
    ddp_log_hold(error, sizeof error);
    enum ddp_status status = proof_open(proof, &setup);
    ddp_log_hold(NULL, 0);
    return status;
}

#define expect_error(call, status, part)                                                           \
    do {                                                                                           \
        ck_assert_int_eq(call, status);                                                            \
        ck_assert_msg(strstr(error, part) != NULL, "expected \"%s\", got \"%s\"", part, error);    \
    } while (0)

static char folder[] = "/tmp/check_proof.XXXXXX";
static char path[64];

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/key", folder);
    unsetenv(PROOF_KEY_VARIABLE);
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
    snprintf(folder, sizeof folder, "/tmp/check_proof.XXXXXX");
}

static void write_key(const char *text, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    close(fd);
}

START_TEST(a_key_file)
{
    struct proof proof;
    write_key("0123456789abcdef\n", 0600);
    ck_assert_int_eq(open_proof(&proof, (struct proof_setup){.key_file = path}), DDP_OK);
    ck_assert_int_eq(proof.method, PROOF_KEY);
    ck_assert_uint_eq(proof.key_bytes, 16); /* without the newline */
    ck_assert_int_eq(memcmp(proof.key, "0123456789abcdef", 16), 0);
    proof_close(&proof);
}
END_TEST

START_TEST(files_that_others_know)
{
    static const mode_t modes[] = {0640, 0604, 0620, 0602, 0610};
    struct proof proof;
    write_key("0123456789abcdef\n", modes[_i]);
    expect_error(open_proof(&proof, (struct proof_setup){.key_file = path, .insecure = true}),
                 DDP_ERR_INVALID, "others may read or write it");
}
END_TEST

START_TEST(files_that_are_no_keys)
{
    struct proof proof;
    char *large = malloc(PROOF_KEY_MAX + 2);
    memset(large, 'x', PROOF_KEY_MAX + 1);
    large[PROOF_KEY_MAX + 1] = 0;
    const struct proof_setup setup = {.key_file = path};
    expect_error(open_proof(&proof, setup), DDP_ERR_IO, "No such file");
    write_key("0123456789abcde\n", 0600);
    expect_error(open_proof(&proof, setup), DDP_ERR_INVALID,
                 "the key has 15 bytes, and 16 or more");
    write_key(large, 0600);
    expect_error(open_proof(&proof, setup), DDP_ERR_INVALID, "more than 4096 bytes");
    large[PROOF_KEY_MAX] = 0;
    write_key(large, 0400);
    ck_assert_int_eq(open_proof(&proof, setup), DDP_OK);
    ck_assert_uint_eq(proof.key_bytes, PROOF_KEY_MAX);
    proof_close(&proof);
    const struct proof_setup directory = {.key_file = folder};
    expect_error(open_proof(&proof, directory), DDP_ERR_INVALID, "is not a regular file");
    unlink(path);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    expect_error(open_proof(&proof, setup), DDP_ERR_INVALID, "is not a regular file");
    free(large);
}
END_TEST

/* Workers must not get the key, and /proc/PID/environ must not show it. */
START_TEST(a_variable)
{
    struct proof proof;
    static char text[] = PROOF_KEY_VARIABLE "=0123456789abcdef";
    ck_assert_int_eq(putenv(text), 0);
    ck_assert_int_eq(open_proof(&proof, (struct proof_setup){0}), DDP_OK);
    ck_assert_int_eq(proof.method, PROOF_KEY);
    ck_assert_uint_eq(proof.key_bytes, 16);
    ck_assert_ptr_null(getenv(PROOF_KEY_VARIABLE));
    for (size_t i = strlen(PROOF_KEY_VARIABLE) + 1; i < sizeof text; i++)
        ck_assert_int_eq(text[i], 0);
    proof_close(&proof);
    ck_assert_int_eq(setenv(PROOF_KEY_VARIABLE, "short", 1), 0);
    expect_error(open_proof(&proof, (struct proof_setup){0}), DDP_ERR_INVALID,
                 PROOF_KEY_VARIABLE ": the key has 5 bytes");
    ck_assert_ptr_null(getenv(PROOF_KEY_VARIABLE));
}
END_TEST

START_TEST(which_method)
{
    struct proof proof;
    expect_error(open_proof(&proof, (struct proof_setup){0}), DDP_ERR_INVALID,
                 "the nodes need a key");
    ck_assert_int_eq(open_proof(&proof, (struct proof_setup){.insecure = true}), DDP_OK);
    ck_assert_int_eq(proof.method, PROOF_NONE);
    ck_assert_int_eq(open_proof(&proof, (struct proof_setup){.insecure = true, .pmix = true}),
                     DDP_OK);
    ck_assert_int_eq(proof.method, PROOF_PMIX);
    write_key("0123456789abcdef", 0600);
    setenv(PROOF_KEY_VARIABLE, "fedcba9876543210", 1);
    ck_assert_int_eq(
        open_proof(&proof, (struct proof_setup){.key_file = path, .pmix = true, .munge = true}),
        DDP_OK);
    ck_assert_int_eq(proof.method, PROOF_KEY);
    ck_assert_int_eq(proof.key[0], '0');
    ck_assert_ptr_null(getenv(PROOF_KEY_VARIABLE));
    proof_close(&proof);
}
END_TEST

/* What printf 'role\0text' | openssl dgst -sha256 -hmac 0123456789abcdef says. */
START_TEST(the_hmac)
{
    static const unsigned char expected[32] = {
        0x13, 0xd4, 0x5e, 0xdd, 0x2c, 0xf8, 0xb4, 0x9a, 0x32, 0x3b, 0x05,
        0xb0, 0x8c, 0xa9, 0x7e, 0x89, 0xf2, 0x94, 0x64, 0x78, 0x3f, 0xa8,
        0x94, 0x75, 0x83, 0xa2, 0xd5, 0xf7, 0x0b, 0xf1, 0xa1, 0xdc,
    };
    struct proof proof = {.method = PROOF_KEY};
    unsigned char out[PROOF_MAX], secret[PROOF_SECRET_BYTES];
    size_t bytes;
    proof_take_key(&proof, "0123456789abcdef", 16);
    ck_assert_int_eq(proof_make(&proof, "role", "text", 4, out, &bytes, secret), DDP_OK);
    ck_assert_uint_eq(bytes, sizeof expected);
    ck_assert_int_eq(memcmp(out, expected, sizeof expected), 0);
    proof_close(&proof);
}
END_TEST

START_TEST(only_the_right_proof_is_taken)
{
    struct proof proof = {.method = PROOF_KEY}, other = {.method = PROOF_KEY};
    unsigned char out[PROOF_MAX], secret[PROOF_SECRET_BYTES];
    char why[PROOF_WHY];
    size_t bytes;
    proof_take_key(&proof, "0123456789abcdef", 16);
    proof_take_key(&other, "0123456789abcdeF", 16);
    ck_assert_int_eq(proof_make(&proof, "role", "text", 4, out, &bytes, secret), DDP_OK);
    ck_assert(proof_check(&proof, "role", "text", 4, out, bytes, secret, why));
    ck_assert(!proof_check(&other, "role", "text", 4, out, bytes, secret, why));
    ck_assert_str_eq(why, "it has another key");
    ck_assert(!proof_check(&proof, "rolf", "text", 4, out, bytes, secret, why));
    ck_assert(!proof_check(&proof, "role", "tex1", 4, out, bytes, secret, why));
    ck_assert(!proof_check(&proof, "rol", "etext", 5, out, bytes, secret, why));
    ck_assert(!proof_check(&proof, "role", "text", 4, out, bytes - 1, secret, why));
    ck_assert(!proof_check(&proof, "role", "text", 4, out, 0, secret, why));
    for (size_t i = 0; i < bytes; i++) {
        out[i] ^= 1;
        ck_assert(!proof_check(&proof, "role", "text", 4, out, bytes, secret, why));
        out[i] ^= 1;
    }
    proof_close(&proof);
    proof_close(&other);
}
END_TEST

START_TEST(random_numbers_differ)
{
    unsigned char a[32], b[32];
    ck_assert_int_eq(proof_random(a, sizeof a), DDP_OK);
    ck_assert_int_eq(proof_random(b, sizeof b), DDP_OK);
    ck_assert_int_ne(memcmp(a, b, sizeof a), 0);
}
END_TEST

/* --- MUNGE, with a munged of our own ---------------------------------------------------------- */

static void check_credentials(void)
{
    struct proof proof;
    unsigned char out[PROOF_MAX], second[PROOF_MAX];
    unsigned char secret[PROOF_SECRET_BYTES], own[PROOF_SECRET_BYTES];
    char why[PROOF_WHY];
    size_t bytes, second_bytes;
    ck_assert_int_eq(open_proof(&proof, (struct proof_setup){.munge = true}), DDP_OK);
    ck_assert_int_eq(proof.method, PROOF_MUNGE);
    ck_assert_int_eq(proof_make(&proof, "role", "text", 4, out, &bytes, own), DDP_OK);
    ck_assert(proof_check(&proof, "role", "text", 4, out, bytes, secret, why));
    ck_assert_mem_eq(own, secret, sizeof own);
    /* Once only. */
    ck_assert(!proof_check(&proof, "role", "text", 4, out, bytes, secret, why));
    ck_assert_msg(strstr(why, "Replayed") != NULL, "%s", why);
    /* For what was said on this connection only, in this role only. */
    ck_assert_int_eq(proof_make(&proof, "role", "text", 4, second, &second_bytes, secret), DDP_OK);
    ck_assert(!proof_check(&proof, "role", "tex1", 4, second, second_bytes, secret, why));
    ck_assert_str_eq(why, "its MUNGE credential was made for another connection");
    ck_assert_int_eq(proof_make(&proof, "role", "text", 4, second, &second_bytes, secret), DDP_OK);
    ck_assert(!proof_check(&proof, "rolf", "text", 4, second, second_bytes, secret, why));
    /* What is none. */
    ck_assert(!proof_check(&proof, "role", "text", 4, second, second_bytes - 1, secret, why));
    ck_assert_str_eq(why, "what it sent is not a MUNGE credential");
    ck_assert(!proof_check(&proof, "role", "text", 4, (const unsigned char *)"x", 2, secret, why));
    ck_assert_msg(strncmp(why, "MUNGE says: ", 12) == 0, "%s", why);
    proof_close(&proof);
}

/* A credential of another user is his, whatever it says. */
static void check_other_user(void)
{
    struct proof proof;
    char command[256], credential[PROOF_MAX], why[PROOF_WHY];
    unsigned char secret[PROOF_SECRET_BYTES];
    snprintf(command, sizeof command,
             "printf 'role\\0text' | setpriv --reuid 65534 --clear-groups munge --socket=%s",
             getenv(MUNGE_SOCKET_VARIABLE));
    FILE *file = geteuid() == 0 && chmod(folder, 0755) == 0 ? popen(command, "r") : NULL;
    size_t bytes = file ? fread(credential, 1, sizeof credential - 1, file) : 0;
    if (!file || pclose(file) != 0 || bytes == 0) {
        puts("a credential of another user is not tested: this user cannot make one");
        return;
    }
    credential[bytes] = 0;
    ck_assert_int_eq(open_proof(&proof, (struct proof_setup){.munge = true}), DDP_OK);
    ck_assert(!proof_check(&proof, "role", "text", 4, (unsigned char *)credential, bytes + 1,
                           secret, why));
    ck_assert_str_eq(why, "it runs as user 65534, this ddprun as user 0");
    proof_close(&proof);
}

/* Clocks of nodes differ, and are set: an old credential over what was just said is right. */
static void check_old(void)
{
    struct proof proof;
    char command[256], credential[PROOF_MAX], why[PROOF_WHY] = "";
    unsigned char secret[PROOF_SECRET_BYTES];
    snprintf(command, sizeof command, "printf 'role\\0text%%032d' 7 | munge --ttl=1 --socket=%s",
             getenv(MUNGE_SOCKET_VARIABLE));
    FILE *file = popen(command, "r");
    size_t bytes = fread(credential, 1, sizeof credential - 1, file);
    if (pclose(file) != 0 || bytes == 0) {
        puts("an old credential is not tested: there is no munge(1)");
        return;
    }
    credential[bytes] = 0;
    credential[strcspn(credential, "\n")] = 0;
    sleep(3); /* it is valid for a second */
    ck_assert_int_eq(open_proof(&proof, (struct proof_setup){.munge = true}), DDP_OK);
    ck_assert_msg(proof_check(&proof, "role", "text", 4, (unsigned char *)credential,
                              strlen(credential) + 1, secret, why),
                  "%s", why);
    ck_assert_mem_eq(secret, "00000000000000000000000000000007", sizeof secret);
    proof_close(&proof);
}

START_TEST(munge_credentials)
{
    struct proof proof;
    if (start_munged(folder)) {
        check_credentials();
        check_other_user();
        check_old();
    }
    stop_munged(folder);
    /* Without it there is an error that says what to do, or no proof at all where that is asked. */
    expect_error(open_proof(&proof, (struct proof_setup){.munge = true}), DDP_ERR_UNSUPPORTED,
                 "give them a key (--key-file or DDPRUN_KEY), or --insecure-link");
    ck_assert_int_eq(open_proof(&proof, (struct proof_setup){.munge = true, .insecure = true}),
                     DDP_OK);
    ck_assert_int_eq(proof.method, PROOF_NONE);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("proof");
    TCase *tc = test_case(suite, "keys", 10);
    tcase_add_checked_fixture(tc, make_folder, remove_folder);
    tcase_add_test(tc, a_key_file);
    tcase_add_loop_test(tc, files_that_others_know, 0, 5);
    tcase_add_test(tc, files_that_are_no_keys);
    tcase_add_test(tc, a_variable);
    tcase_add_test(tc, which_method);
    tcase_add_test(tc, the_hmac);
    tcase_add_test(tc, only_the_right_proof_is_taken);
    tcase_add_test(tc, random_numbers_differ);
    tc = test_case(suite, "munge", 20);
    tcase_add_checked_fixture(tc, make_folder, remove_folder);
    tcase_add_test(tc, munge_credentials);
    return suite;
}
