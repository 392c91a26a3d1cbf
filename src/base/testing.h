/* Includes that every unit test starts with: cmocka.h needs these headers before it, in this order.
 * And assert_names, by which a test of an error names its objects and leaves its other words free.
 */
#ifndef STK_BASE_TESTING_H
#define STK_BASE_TESTING_H

/* clang-format off */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */
#include <stdbool.h>
#include <string.h>

/* True if `text` has the pieces of `pattern` between its "…", in order. The first piece stands at
 * the beginning and the last one at the end, unless the pattern begins or ends with "…". */
static inline bool stk_testing_names(const char *text, const char *pattern)
{
    static const char gap[] = "…";
    bool anchored = true;
    for (;;) {
        const char *end = strstr(pattern, gap);
        size_t n = end != NULL ? (size_t)(end - pattern) : strlen(pattern);
        if (end == NULL && !anchored && n <= strlen(text)) {
            text += strlen(text) - n;
        }
        while (!anchored && *text != '\0' && strncmp(text, pattern, n) != 0) {
            text++;
        }
        if (strncmp(text, pattern, n) != 0) {
            return false;
        }
        text += n;
        if (end == NULL) {
            return *text == '\0';
        }
        pattern = end + strlen(gap);
        anchored = false;
    }
}

#define assert_names(text, pattern)                                                                \
    do {                                                                                           \
        if (!stk_testing_names(text, pattern)) {                                                   \
            fail_msg("\"%s\" is not as \"%s\"", text, pattern);                                    \
        }                                                                                          \
    } while (0)

#endif
