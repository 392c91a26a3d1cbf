/* Small choices between texts. */
#ifndef STK_BASE_TEXT_H
#define STK_BASE_TEXT_H

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

/* "s" of a noun behind a number, unless it is 1. */
static inline const char *stk_text_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* The line after this one; NULL: it is the last. */
static inline const char *stk_text_next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end == NULL || end[1] == '\0' ? NULL : end + 1;
}

#endif
