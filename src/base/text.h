/* Small choices between texts. */
#ifndef STK_BASE_TEXT_H
#define STK_BASE_TEXT_H

#include <stddef.h>
#include <string.h>

/* `text`, or `otherwise` where it is NULL. */
static inline const char *stk_text_or(const char *text, const char *otherwise)
{
    return text != NULL ? text : otherwise;
}

/* The line after this one; NULL: it is the last. */
static inline const char *stk_text_next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end == NULL || end[1] == '\0' ? NULL : end + 1;
}

#endif
