/* Small helpers for C strings. */
#ifndef STK_BASE_TEXT_H
#define STK_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* `text`, or `otherwise` if it is NULL. */
static inline const char *stk_text_or(const char *text, const char *otherwise)
{
    return text != NULL ? text : otherwise;
}

/* `text` if it is wanted, else "": a part of a sentence. */
static inline const char *stk_text_when(bool is_wanted, const char *text)
{
    return is_wanted ? text : "";
}

/* `text`, or NULL if it is empty. */
static inline const char *stk_text_if_any(const char *text)
{
    return text == NULL || *text == '\0' ? NULL : text;
}

/* True if both are NULL or equal. */
static inline bool stk_text_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* The plural "s" of a noun after the number `n`: "" for 1. */
static inline const char *stk_text_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* The form of a word after the number `n`. */
static inline const char *stk_text_noun(uint64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

/* The part after the last `c`, or the whole text if it has none. */
static inline const char *stk_text_behind(const char *text, char c)
{
    const char *at = strrchr(text, c);
    return at == NULL ? text : at + 1;
}

/* The part after the first `c`, or NULL if it has none. */
static inline const char *stk_text_behind_first(const char *text, char c)
{
    const char *at = strchr(text, c);
    return at == NULL ? NULL : at + 1;
}

/* Replaces control characters, which could steer a terminal, with '?'. */
static inline void stk_text_tame(char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < ' ' || *text == 0x7f) {
            *text = '?';
        }
    }
}

/* How many bytes of `text` fit into `n` bytes without a character (UTF-8) cut in two. */
static inline int stk_text_cut(const char *text, size_t n)
{
    size_t len = strlen(text);
    if (len <= n) {
        return (int)len;
    }
    while (n > 0 && ((unsigned char)text[n] & 0xC0) == 0x80) {
        n--;
    }
    return (int)n;
}

/* The line after this one, or NULL if this is the last. */
static inline const char *stk_text_next_line(const char *line)
{
    const char *end = strchr(line, '\n');
    return end == NULL || end[1] == '\0' ? NULL : end + 1;
}

#endif
