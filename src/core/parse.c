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

/* What a unit stands for; 0: there is none of that name. */
static double unit_of(const char *text)
{
    static const char letters[] = "kMGTP";
    const char letter = *text == 'K' ? 'k' : *text;
    const bool binary = *text && text[1] == 'i';
    const char *at = letter ? strchr(letters, letter) : NULL;
    if (strcmp(text, "B") == 0)
        return 1;
    if (!at || strcmp(text + 1 + binary, binary ? "B" : text[1] ? "B" : "") != 0)
        return 0;
    double unit = binary ? 1024 : 1000;
    for (; at > letters; at--)
        unit *= binary ? 1024 : 1000;
    return unit;
}

bool ddp_parse_bytes(const char *text, double *bytes)
{
    char number[32];
    const size_t digits = text ? strspn(text, "0123456789.") : 0;
    double value;
    if (digits == 0 || digits >= sizeof number)
        return false;
    memcpy(number, text, digits);
    number[digits] = '\0';
    const double unit = unit_of(text + digits);
    if (unit == 0 || !ddp_parse_double(number, 0, 1e18, &value) || value * unit < 1 ||
        value * unit > 1e18)
        return false;
    *bytes = value * unit;
    return true;
}
