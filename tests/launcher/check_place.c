/* SPDX-License-Identifier: MIT
 *
 * Tests of the texts that say where a ddprun is among nodes, and of what its workers are told. */
#include "config.h"

#include "tests/lib/runner.h"

#include "launcher/launch_plan.h"
#include "launcher/place_text.h"

#include <stdlib.h>
#include <string.h>

START_TEST(numbers_of_nodes)
{
    static const struct {
        const char *text;
        int least, most; /* 0: refused */
    } rows[] = {{"1", 1, 1},
                {"4", 4, 4},
                {"4:4", 4, 4},
                {"1:1", 1, 1},
                {"4096", 4096, 4096},
                {"0", 0, 0},
                {"4097", 0, 0},
                {"-1", 0, 0},
                {"", 0, 0},
                {"x", 0, 0},
                {"4x", 0, 0},
                {"4:", 0, 0},
                {":4", 0, 0},
                {"4:4:4", 0, 0},
                {"1:4", 1, 4},
                {"0:4", 0, 0},
                {"2:4097", 0, 0},
                {"4:1", 0, 0},
                {" 4", 0, 0},
                {"4 ", 0, 0},
                {"99999999999999999999", 0, 0},
                {"4:99999999999999999999", 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int least = 0, most = 0;
        const char *wrong = place_read_nodes(rows[i].text, &least, &most);
        ck_assert_msg(!wrong == (rows[i].most > 0), "%s", rows[i].text);
        ck_assert_msg(least == rows[i].least && most == rows[i].most, "%s: %d to %d", rows[i].text,
                      least, most);
    }
}
END_TEST

START_TEST(first_hosts)
{
    static const struct {
        const char *list, *host; /* NULL: refused */
    } rows[] = {{"n1", "n1"},
                {"n1,n2", "n1"},
                {"dn[0-1]", "dn0"},
                {"n[001-010,7],m3", "n001"},
                {"n[7]", "n7"},
                {"rack[0-1]n[3,5]", "rack0n3"},
                {"n[08-11]-ib.site.org", "n08-ib.site.org"},
                {"a_b.c-d", "a_b.c-d"},
                {"[1-3]", "1"},
                {"", NULL},
                {",n1", NULL},
                {"n[", NULL},
                {"n[]", NULL},
                {"n[1", NULL},
                {"n[1-", NULL},
                {"n[1-]", NULL},
                {"n[2-1]", NULL},
                {"n[1,]", NULL},
                {"n[1;2]", NULL},
                {"n[a-b]", NULL},
                {"n[[1]]", NULL},
                {"n]1", NULL},
                {"n 1", NULL},
                {"n\n", NULL},
                {"n[99999999999999999999]", NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char host[32];
        const bool read = place_first_host(rows[i].list, host, sizeof host);
        ck_assert_msg(read == (rows[i].host != NULL), "%s", rows[i].list);
        if (read)
            ck_assert_str_eq(host, rows[i].host);
    }
}
END_TEST

/* A host takes what there is room for, with its end, and not a byte more. */
START_TEST(rooms)
{
    char host[8];
    int port;
    ck_assert(place_first_host("abcdefg", host, sizeof host));
    ck_assert(!place_first_host("abcdefgh", host, sizeof host));
    ck_assert(place_first_host("abcde[10-20]", host, sizeof host));
    ck_assert_str_eq(host, "abcde10");
    ck_assert(!place_first_host("abcde[100]", host, sizeof host));
    ck_assert(!place_first_host("abcdefg[1]", host, sizeof host));
    ck_assert(place_read_endpoint("abcdefg:1", host, sizeof host, &port));
    ck_assert(!place_read_endpoint("abcdefgh:1", host, sizeof host, &port));
}
END_TEST

START_TEST(tasks_of_nodes)
{
    ck_assert(place_one_task_each("1(x2)", 2));
    ck_assert(place_one_task_each("1", 1));
    ck_assert(place_one_task_each("1,1(x2)", 3));
    ck_assert(place_one_task_each("1(x64)", 64));
    static const char *const wrong[] = {"2(x2)",
                                        "1(x2),2",
                                        "1",
                                        "1(x3)",
                                        "",
                                        "1(x2",
                                        "1(x)",
                                        "1(2)",
                                        "1(x2),",
                                        "x",
                                        "0,1,1",
                                        "1(x-2)",
                                        "1 (x2)",
                                        "1(x2)\n",
                                        "1(x2147483647),1(x2147483647)",
                                        "1(x99999999999999999999)"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        ck_assert_msg(!place_one_task_each(wrong[i], 2), "%s", wrong[i]);
}
END_TEST

START_TEST(endpoints)
{
    static const struct {
        const char *text, *host; /* NULL: refused */
        int port;
    } rows[] = {{"n1:29500", "n1", 29500},
                {"n1", "n1", 0},
                {"10.0.0.1:1", "10.0.0.1", 1},
                {"[::1]:7", "::1", 7},
                {"[fe80::1%eth0]", "fe80::1%eth0", 0},
                {"n1:0", "n1", 0},
                {"", NULL, 0},
                {":1", NULL, 0},
                {"n1:", NULL, 0},
                {"n1:65536", NULL, 0},
                {"n1:x", NULL, 0},
                {"::1", NULL, 0},
                {"[::1", NULL, 0},
                {"[]:1", NULL, 0},
                {"n1:1:2", NULL, 0},
                {"n 1:1", NULL, 0},
                {"n1:-1", NULL, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char host[64];
        int port = -1;
        const bool read = place_read_endpoint(rows[i].text, host, sizeof host, &port);
        ck_assert_msg(read == (rows[i].host != NULL), "%s", rows[i].text);
        if (read) {
            ck_assert_str_eq(host, rows[i].host);
            ck_assert_int_eq(port, rows[i].port);
        }
    }
}
END_TEST

/* Node 1 of 2, with two workers each, when the nodes have met. */
static struct launch_plan plan_of_two(const struct settings *settings)
{
    static const struct place place = {.kind = PLACE_OPTIONS, .node = 1, .node_count = 2};
    return (struct launch_plan){.settings = settings,
                                .place = &place,
                                .nproc = 2,
                                .cores = 2,
                                .node = 1,
                                .node_count = 2,
                                .first_rank = 2,
                                .job_size = 4,
                                .master_addr = "10.77.0.10",
                                .master_port = 4321,
                                .interface = "eth0"};
}

static const struct settings plain = {.role = "default", .run_id = "none"};

/* The value of a variable, or NULL; it must not be there twice. */
static const char *value_of(char *const *environment, const char *name)
{
    const size_t length = strlen(name);
    const char *value = NULL;
    for (; *environment; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=') {
            ck_assert_ptr_null(value);
            value = *environment + length + 1;
        }
    return value;
}

static void told(char *const *environment, const char *name, const char *value)
{
    const char *got = value_of(environment, name);
    ck_assert_msg(got && strcmp(got, value) == 0, "%s=%s, not %s", name, got ? got : "", value);
}

START_TEST(workers_of_nodes)
{
    const struct launch_plan plan = plan_of_two(&plain);
    setenv("RANK", "77", 1);
    char **environment = launch_plan_environment(&plan, 1, 3, 4, NULL);
    told(environment, "RANK", "3");
    told(environment, "LOCAL_RANK", "1");
    told(environment, "WORLD_SIZE", "4");
    told(environment, "LOCAL_WORLD_SIZE", "2");
    told(environment, "GROUP_RANK", "1");
    told(environment, "GROUP_WORLD_SIZE", "2");
    told(environment, "ROLE_RANK", "3");
    told(environment, "ROLE_WORLD_SIZE", "4");
    told(environment, "MASTER_ADDR", "10.77.0.10");
    told(environment, "MASTER_PORT", "4321");
    told(environment, "GLOO_SOCKET_IFNAME", "eth0");
    told(environment, "NCCL_SOCKET_IFNAME", "=eth0");
    ck_assert_ptr_null(value_of(environment, "NCCL_HOSTID"));
    free(environment);
}
END_TEST

START_TEST(interface_of_the_user)
{
    const struct launch_plan plan = plan_of_two(&plain);
    setenv("GLOO_SOCKET_IFNAME", "ib0", 1);
    setenv("NCCL_SOCKET_IFNAME", "ib", 1);
    char **environment = launch_plan_environment(&plan, 0, 3, 4, NULL);
    told(environment, "GLOO_SOCKET_IFNAME", "ib0");
    told(environment, "NCCL_SOCKET_IFNAME", "ib");
    free(environment);
}
END_TEST

/* Workers that share a GPU count as hosts: over nodes no two may have one id, and loopback does not
 * lead to the other nodes. */
START_TEST(shared_gpus)
{
    struct device gpu = {.token = (char *)"0"};
    struct launch_plan plan = plan_of_two(&plain);
    plan.devices.list = &gpu;
    plan.devices.count = 1;
    plan.oversubscribed = plan.own_device = true;
    char **environment = launch_plan_environment(&plan, 1, 3, 4, NULL);
    told(environment, "NCCL_HOSTID", "ddprun-3");
    told(environment, "NCCL_SOCKET_IFNAME", "=eth0");
    free(environment);
    plan.node = plan.first_rank = 0;
    plan.node_count = 1;
    plan.interface[0] = 0;
    environment = launch_plan_environment(&plan, 1, 3, 4, NULL);
    told(environment, "NCCL_HOSTID", "ddprun-1");
    told(environment, "NCCL_SOCKET_IFNAME", "lo");
    free(environment);
}
END_TEST

/* ddprun is the launcher's client; a worker would be a second one. The key is nobody else's. */
START_TEST(variables_of_launchers)
{
    static const char *const names[] = {
        "PMIX_RANK",       "PMIX_NAMESPACE",       "PMIX_SERVER_URI41", "PMI_RANK",
        "PMI_FD",          "OMPI_COMM_WORLD_SIZE", "OMPI_MCA_pml",      "SLURM_STEP_NUM_NODES",
        "MPI_LOCALNRANKS", "MPI_LOCALRANKID",      "PET_NNODES",        "PET_NODE_RANK"};
    const size_t count = sizeof names / sizeof names[0];
    struct launch_plan plan = plan_of_two(&plain);
    for (size_t i = 0; i < count; i++)
        setenv(names[i], "1", 1);
    setenv("SLURM_JOB_ID", "7", 1);
    setenv("SLURM_PROCID", "1", 1);
    setenv("PET_NPROC_PER_NODE", "2", 1);
    setenv("DDPRUN_KEY", "secret", 1);
    char **environment = launch_plan_environment(&plan, 0, 3, 4, NULL);
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(!value_of(environment, names[i]), "%s", names[i]);
    told(environment, "SLURM_JOB_ID", "7");
    told(environment, "SLURM_PROCID", "1");
    told(environment, "PET_NPROC_PER_NODE", "2");
    ck_assert_ptr_null(value_of(environment, "DDPRUN_KEY"));
    free(environment);
    plan.node = plan.first_rank = 0;
    plan.place = &(struct place){.node_count = 1};
    plan.node_count = 1;
    environment = launch_plan_environment(&plan, 0, 3, 4, NULL);
    for (size_t i = 0; i < count; i++)
        told(environment, names[i], "1");
    ck_assert_ptr_null(value_of(environment, "DDPRUN_KEY"));
    free(environment);
}
END_TEST

Suite *test_suite(void)
{
    Suite *suite = suite_create("place");
    TCase *tc = test_case(suite, "texts", 20);
    tcase_add_test(tc, numbers_of_nodes);
    tcase_add_test(tc, first_hosts);
    tcase_add_test(tc, rooms);
    tcase_add_test(tc, tasks_of_nodes);
    tcase_add_test(tc, endpoints);
    tc = test_case(suite, "workers", 20);
    tcase_add_test(tc, workers_of_nodes);
    tcase_add_test(tc, interface_of_the_user);
    tcase_add_test(tc, shared_gpus);
    tcase_add_test(tc, variables_of_launchers);
    return suite;
}
