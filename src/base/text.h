/* Small choices between texts. */
#ifndef STK_BASE_TEXT_H
#define STK_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* `text`, or `otherwise` where it is NULL. */
static inline const char *stk_text_or(const char *text, const char *otherwise)
{
    return text != NULL ? text : otherwise;
}

/* `text`, or NULL where it is empty. */
static inline const char *stk_text_if_any(const char *text)
{
    return text == NULL || *text == '\0' ? NULL : text;
}

/* Both NULL, or the same text. */
static inline bool stk_text_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* "s" of a noun behind a number, unless it is 1. */
static inline const char *stk_text_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* What stands behind the last `c`; all of it where there is none. */
static inline const char *stk_text_behind(const char *text, char c)
{
    const char *at = strrchr(text, c);
    return at == NULL ? text : at + 1;
}

/* What would steer a terminal becomes '?'. */
static inline void stk_text_tame(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            *text = '?';
        }
    }
}

/* The line after this one; NULL: it is the last. */
static inline const char *stk_text_next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end == NULL || end[1] == '\0' ? NULL : end + 1;
}

#endif
