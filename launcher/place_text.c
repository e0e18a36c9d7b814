/* SPDX-License-Identifier: MIT
 *
 * See place_text.h. */
#include "config.h"

#include "launcher/place_text.h"

#include "core/parse.h"
#include "job/board.h"

#include <stdio.h>
#include <string.h>

#define DIGITS     "0123456789"
#define LETTERS    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define HOST_BYTES DIGITS LETTERS ".-_"

/* Reads the number that a text begins with and moves on behind it. */
static bool read_number(const char **at, int64_t min, int64_t max, int64_t *number)
{
    char digits[16];
    const size_t n = strspn(*at, DIGITS);
    if (n >= sizeof digits)
        return false;
    snprintf(digits, sizeof digits, "%.*s", (int)n, *at);
    *at += n;
    return ddp_parse_int64(digits, min, max, number);
}

const char *place_read_nodes(const char *text, int *least_nodes, int *most_nodes)
{
    int64_t least, most;
    const char *at = text;
    if (!read_number(&at, 1, DDP_BOARD_MAX_WORLD, &least))
        return "must be a number of nodes from 1 to 4096, or the least and the most: 2:4";
    most = least;
    if (*at == ':') {
        at++;
        if (!read_number(&at, 1, DDP_BOARD_MAX_WORLD, &most))
            return "must be a number of nodes from 1 to 4096, or the least and the most: 2:4";
    }
    if (*at)
        return "must be a number of nodes from 1 to 4096, or the least and the most: 2:4";
    if (most < least)
        return "must name the least number of nodes first: 2:4";
    *least_nodes = (int)least;
    *most_nodes = (int)most;
    return NULL;
}

bool place_read_endpoint(const char *text, char *host, size_t size, int *port)
{
    const bool bracket = *text == '[';
    const char *at = text + bracket;
    int64_t number = 0;
    const size_t n = bracket ? strspn(at, DIGITS LETTERS ".:%") : strspn(at, HOST_BYTES);
    if (n == 0 || n >= size)
        return false;
    snprintf(host, size, "%.*s", (int)n, at);
    at += n;
    if (bracket && *at++ != ']')
        return false;
    if (*at == ':') {
        at++;
        if (!read_number(&at, 0, 65535, &number))
            return false;
    }
    *port = (int)number;
    return !*at;
}

/* Copies the first number of "01-04,07]" and moves on behind the bracket. */
static bool take_first(const char **at, char *host, size_t size)
{
    const char *first = *at;
    int64_t number;
    const size_t n = strspn(first, DIGITS);
    if (n >= size)
        return false;
    snprintf(host, size, "%.*s", (int)n, first);
    for (;;) {
        if (!read_number(at, 0, INT64_MAX, &number))
            return false;
        if (**at == '-') {
            ++*at;
            if (!read_number(at, number, INT64_MAX, &number))
                return false;
        }
        if (**at == ']')
            break;
        if (**at != ',')
            return false;
        ++*at;
    }
    ++*at;
    return true;
}

bool place_first_host(const char *list, char *host, size_t size)
{
    size_t used = 0;
    const char *at = list;
    while (*at && *at != ',') {
        if (*at == '[') {
            at++;
            if (!take_first(&at, host + used, size - used))
                return false;
            used += strlen(host + used);
            continue;
        }
        if (used + 1 >= size || !strchr(HOST_BYTES, *at))
            return false;
        host[used++] = *at++;
    }
    host[used] = 0;
    return used > 0;
}

bool place_one_task_each(const char *list, int nodes)
{
    int64_t seen = 0;
    for (const char *at = list;; at++) {
        int64_t tasks, times = 1;
        if (!read_number(&at, 1, 1, &tasks))
            return false;
        if (strncmp(at, "(x", 2) == 0) {
            at += 2;
            if (!read_number(&at, 1, INT32_MAX, &times) || *at++ != ')')
                return false;
        }
        seen += times;
        if (!*at)
            return seen == nodes;
        if (*at != ',' || seen > nodes)
            return false;
    }
}
