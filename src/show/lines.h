/* lines: two texts as a unified diff, the shortest one (Myers' algorithm). */
#ifndef STK_SHOW_LINES_H
#define STK_SHOW_LINES_H

#include "base/buf.h"

/* Calls `each` for every line of the diff: its sign is ' ' (both have it), '-' (only the first),
 * '+' (only the second) or '@' (a hunk begins; the text is "-3,4 +3,5"). The text has no newline
 * and isn't NUL-terminated. Texts of more lines than STK_LINES_MOST are one hunk: the first's
 * lines, then the second's. */
enum { STK_LINES_MOST = 4000, STK_LINES_AROUND = 3 };
typedef void (*stk_lines_each)(void *arg, char sign, const char *text, size_t n);
int stk_lines_diff(const char *a, const char *b, stk_lines_each each, void *arg, stk_err *err);

#endif
