/* Parses and formats amounts as people write them: memory, durations, ranges. Checks names and
 * finds near misses. */
#ifndef STK_BASE_UNITS_H
#define STK_BASE_UNITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* "16GB", "8gb", "8 GiB", "1.5GB", "16Gi", "8G", "1024" (bytes). K/M/G/T/P(B) are powers of 1000,
 * Ki… of 1024. */
int stk_units_parse_memory(const char *text, int64_t *ret_bytes, stk_err *err);
/* Decimal units, as in "1.5 GB", into buf; returns buf. */
const char *stk_units_format_memory(int64_t bytes, char *buf, size_t size);
/* "90", "90s", "10m", "2h", "1d", "250ms" → milliseconds. */
int stk_units_parse_duration(const char *text, int64_t *ret_ms, stk_err *err);
const char *stk_units_format_duration(int64_t ms, char *buf,
                                      size_t size); /* "0.42 s", "3 m 20 s" */

/* "2:4" → 2 and 4: whole numbers of at least 1, the second larger. Returns false for anything else.
 */
bool stk_units_parse_range(const char *text, int64_t *ret_min, int64_t *ret_max);

/* [A-Za-z0-9_][A-Za-z0-9_.-]{0,127}; `dot` says whether a dot is allowed (pipeline and output
 * names, not steps). */
bool stk_units_is_name(const char *text, bool dot);

/* The candidate nearest to `word` (edit distance ≤ 1/3 of its length, but at least 1 is allowed),
 * else the first one that begins with it (or with all but its plural's s), or NULL. */
const char *stk_units_nearest(const char *word, const char *const *candidates, size_t n_candidates);

#endif
