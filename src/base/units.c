#include "base/units.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/param.h>

/* Splits "1.5 GB" into number and unit; returns false unless it begins with a finite, non-negative
 * decimal number. */
static bool split_amount(const char *text, double *ret_number, const char **ret_unit)
{
    while (isspace((unsigned char)*text)) {
        text++;
    }
    if (!isdigit((unsigned char)*text) && *text != '.') {
        return false;
    }
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        return false;
    }
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (end == text || errno != 0 || !isfinite(number)) {
        return false;
    }
    while (isspace((unsigned char)*end)) {
        end++;
    }
    *ret_number = number;
    *ret_unit = end;
    return true;
}

static const struct {
    bool is_time;
    const char *word;
    double amount;
} units[] = {
#define X(is_time, word, amount) {is_time, word, amount},
#include "tbl/units.def"
#undef X
};
enum { N_UNITS = sizeof units / sizeof *units };

static double memory_factor(const char *unit)
{
    if (*unit == '\0' || strcasecmp(unit, "b") == 0) {
        return 1;
    }
    for (size_t i = 0; i < N_UNITS; i++) {
        if (units[i].is_time || tolower((unsigned char)*unit) != units[i].word[0]) {
            continue;
        }
        bool binary = unit[1] == 'i' || unit[1] == 'I';
        const char *rest = unit + 1 + binary;
        if (*rest == '\0' || strcasecmp(rest, "b") == 0) {
            return pow(binary ? 1024.0 : 1000.0, units[i].amount);
        }
    }
    return 0;
}

int stk_units_parse_memory(const char *text, int64_t *ret_bytes, stk_err *err)
{
    double number;
    const char *unit;
    double factor = 0;
    if (split_amount(text, &number, &unit)) {
        factor = memory_factor(unit);
    }
    if (factor <= 0 || number * factor > 9e18) {
        return stk_err_set(err, STK_E_SPEC,
                           "memory '%s' is not an amount like 16GB, 8 GiB or 1.5GB", text);
    }
    *ret_bytes = (int64_t)llround(number * factor);
    return 0;
}

const char *stk_units_format_memory(int64_t bytes, char *buf, size_t size)
{
    static const char *const words[] = {"B", "KB", "MB", "GB", "TB", "PB"};
    double value = (double)bytes;
    size_t i = 0;
    while (fabs(value) >= 999.5 && i + 1 < sizeof words / sizeof *words) {
        value /= 1000;
        i++;
    }
    int digits = 2;
    if (i == 0 || value >= 99.95 || fabs(value - round(value)) < 0.005) {
        digits = 0;
    } else if (value >= 9.995) {
        digits = 1;
    }
    char number[32];
    (void)snprintf(number, sizeof number, "%.*f", digits, value);
    if (strchr(number, '.') != NULL) {
        char *end = number + strlen(number);
        while (end[-1] == '0') {
            *--end = '\0';
        }
        if (end[-1] == '.') {
            end[-1] = '\0';
        }
    }
    (void)snprintf(buf, size, "%s %s", number, words[i]);
    return buf;
}

int stk_units_parse_duration(const char *text, int64_t *ret_ms, stk_err *err)
{
    double number;
    const char *unit;
    if (split_amount(text, &number, &unit)) {
        for (size_t i = 0; i < N_UNITS; i++) {
            if (units[i].is_time && strcasecmp(unit, units[i].word) == 0 &&
                number * units[i].amount < 9e15) {
                *ret_ms = (int64_t)llround(number * units[i].amount);
                return 0;
            }
        }
    }
    return stk_err_set(err, STK_E_SPEC, "duration '%s' is not a time like 90s, 10m or 2h", text);
}

bool stk_units_parse_range(const char *text, int64_t *ret_min, int64_t *ret_max)
{
    char *colon;
    char *end;
    if (text[0] < '0' || text[0] > '9') { /* strtoll would accept spaces and signs */
        return false;
    }
    errno = 0;
    int64_t min = strtoll(text, &colon, 10);
    if (*colon != ':' || colon[1] < '0' || colon[1] > '9') {
        return false;
    }
    int64_t max = strtoll(colon + 1, &end, 10);
    if (*end != '\0' || errno != 0 || min < 1 || max < min) {
        return false;
    }
    *ret_min = min;
    *ret_max = max;
    return true;
}

const char *stk_units_format_duration(int64_t ms, char *buf, size_t size)
{
    if (ms < 1000) {
        (void)snprintf(buf, size, "%lld ms", (long long)ms);
    } else if (ms < 60000) {
        (void)snprintf(buf, size, "%.*f s", ms < 10000 ? 2 : 1, (double)ms / 1000);
    } else if (ms < 3600000) {
        (void)snprintf(buf, size, "%lld m %lld s", (long long)(ms / 60000),
                       (long long)(ms / 1000 % 60));
    } else {
        (void)snprintf(buf, size, "%lld h %lld m", (long long)(ms / 3600000),
                       (long long)(ms / 60000 % 60));
    }
    return buf;
}

bool stk_units_is_name(const char *text, bool dot)
{
    size_t n = strlen(text);
    if (n == 0 || n > 128 || !(isalnum((unsigned char)text[0]) || text[0] == '_')) {
        return false;
    }
    for (size_t i = 1; i < n; i++) {
        char c = text[i];
        if (!(isalnum((unsigned char)c) || c == '_' || c == '-' || (dot && c == '.'))) {
            return false;
        }
    }
    return true;
}

enum { WORD_MAX = 64 };

static size_t min2(size_t a, size_t b)
{
    return MIN(a, b);
}

/* Edit distance: an inserted, missing or changed letter, or two swapped neighbours (the most common
 * slip), counts 1 each. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t rows[3][WORD_MAX + 1];
    size_t *before = rows[0]; /* the row for two letters of `a` earlier */
    size_t *last = rows[1];
    size_t *row = rows[2];
    for (size_t j = 0; j <= m; j++) {
        last[j] = j;
    }
    for (size_t i = 1; i <= n; i++) {
        int c = tolower((unsigned char)a[i - 1]);
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            int d = tolower((unsigned char)b[j - 1]);
            size_t best = min2(last[j - 1] + (c != d), min2(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && c == tolower((unsigned char)b[j - 2]) &&
                d == tolower((unsigned char)a[i - 2])) {
                best = min2(best, before[j - 2] + 1);
            }
            row[j] = best;
        }
        size_t *oldest = before;
        before = last;
        last = row;
        row = oldest;
    }
    return last[m];
}

/* "gpus" stands for gpu_count, "mem" for memory. */
static const char *begun_by(const char *word, size_t n, const char *const *candidates,
                            size_t n_candidates)
{
    n -= n > 3 && word[n - 1] == 's' ? 1 : 0;
    for (size_t i = 0; i < n_candidates && n >= 3; i++) {
        if (strncmp(word, candidates[i], n) == 0) {
            return candidates[i];
        }
    }
    return NULL;
}

const char *stk_units_nearest(const char *word, const char *const *candidates, size_t n_candidates)
{
    size_t n = strlen(word);
    if (n > WORD_MAX) {
        return NULL;
    }
    size_t best = MAX(n / 3, 1);
    const char *found = NULL;
    for (size_t i = 0; i < n_candidates; i++) {
        size_t m = strlen(candidates[i]);
        if (m > WORD_MAX) {
            continue;
        }
        size_t d = distance(word, n, candidates[i], m);
        if (d < best || (d == best && found == NULL)) {
            best = d;
            found = candidates[i];
        }
    }
    return found != NULL ? found : begun_by(word, n, candidates, n_candidates);
}
