/* Small choices between texts. */
#ifndef STK_BASE_TEXT_H
#define STK_BASE_TEXT_H

#include <stddef.h>

/* `text`, or `otherwise` where it is NULL. */
static inline const char *stk_text_or(const char *text, const char *otherwise)
{
    return text != NULL ? text : otherwise;
}

#endif
