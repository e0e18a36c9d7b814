/* SPDX-License-Identifier: MIT
 *
 * Fuzz target: the texts that say where a ddprun is among nodes. The first word says which one
 * follows: nodes, hosts, tasks or endpoint. */
#include "config.h"

#include "launcher/place_text.h"
#include "tests/lib/fuzz.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define SMALL 12

static bool starts(const char *text, const char *word)
{
    return strncmp(text, word, strlen(word)) == 0;
}

/* A name or an address, which stands in messages as it is. */
static void check_host(const char *host, size_t size)
{
    assert(*host && strlen(host) < size);
    for (const char *at = host; *at; at++)
        assert(*at > ' ' && *at < 0x7f && *at != ',' && *at != '[' && *at != ']');
}

/* A host that fits into the smaller buffer is the same there. */
static bool read_host(const char *list)
{
    char host[256], small[SMALL];
    const bool read = place_first_host(list, host, sizeof host);
    const bool fits = place_first_host(list, small, sizeof small);
    if (read)
        check_host(host, sizeof host);
    assert(!fits || (read && strcmp(host, small) == 0));
    assert(fits || !read || strlen(host) >= sizeof small);
    return read;
}

static bool read_endpoint(const char *text)
{
    char host[256], small[SMALL];
    int port = -1, other = -1;
    const bool read = place_read_endpoint(text, host, sizeof host, &port);
    const bool fits = place_read_endpoint(text, small, sizeof small, &other);
    if (read) {
        check_host(host, sizeof host);
        assert(port >= 0 && port <= 65535);
    }
    assert(!fits || (read && strcmp(host, small) == 0 && port == other));
    return read;
}

static bool read_nodes(const char *text)
{
    int least = 0, most = 0;
    const bool read = !place_read_nodes(text, &least, &most);
    assert(read ? least >= 1 && most >= least && most <= 4096 : least == 0 && most == 0);
    return read;
}

bool fuzz_accepts(const uint8_t *data, size_t size)
{
    bool accepted = false;
    char *text = malloc(size + 1);
    if (!text)
        return false;
    memcpy(text, data, size);
    text[size] = '\0';
    if (starts(text, "nodes "))
        accepted = read_nodes(text + 6);
    else if (starts(text, "hosts "))
        accepted = read_host(text + 6);
    else if (starts(text, "tasks "))
        accepted = place_one_task_each(text + 6, 4);
    else if (starts(text, "endpoint "))
        accepted = read_endpoint(text + 9);
    free(text);
    return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_accepts(data, size);
    return 0;
}
