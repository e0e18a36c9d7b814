/* SPDX-License-Identifier: MIT
 *
 * See parse.h. */
#include "config.h"

#include "core/parse.h"

#include <ctype.h>
#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool ddp_parse_int64(const char *text, int64_t min, int64_t max, int64_t *value)
{
    char *end;
    if (!text || (!isdigit((unsigned char)text[0]) && text[0] != '-' && text[0] != '+'))
        return false;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || end == text || *end || number < min || number > max)
        return false;
    *value = number;
    return true;
}

bool ddp_parse_uint64(const char *text, uint64_t *value)
{
    char *end;
    if (!text || !isdigit((unsigned char)text[text[0] == '+']))
        return false; /* strtoull() would take a minus */
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end)
        return false;
    *value = number;
    return true;
}

bool ddp_parse_double(const char *text, double min, double max, double *value)
{
    char *end;
    if (!text || !*text || strspn(text, "+-.0123456789eE") != strlen(text))
        return false; /* no hexadecimal, no inf, no nan, no blanks */
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* the one that is always there */
    if (!c)
        return false;
    errno = 0;
    double number = strtod_l(text, &end, c);
    bool out_of_range = errno == ERANGE && number != 0;
    freelocale(c);
    if (out_of_range || end == text || *end || !isfinite(number) || number < min || number > max)
        return false;
    *value = number;
    return true;
}
