/* .dockerignore: which files stay out of a build's context? Docker's rules: a pattern is relative
 * to the context's root, `**` is any number of folders, what is below a match is matched too, `!`
 * takes one back, the last match counts. */
#include <string.h>

#include "image/image_private.h"

enum { MAX_PATTERNS = 10000, MAX_STEPS = 100000 };

/* `[a-z]`, `[^x]`: does it take `c`? *end: behind it; NULL where it isn't closed. */
static bool takes(const char *set, char c, const char **end)
{
    bool negated = set[1] == '^' || set[1] == '!', found = false;
    const char *p = set + 1 + negated, *first = p;
    for (; *p != '\0' && (*p != ']' || p == first); p++) {
        char low = *p == '\\' && p[1] != '\0' ? *++p : *p;
        char high = low;
        if (p[1] == '-' && p[2] != ']' && p[2] != '\0') {
            p += 2;
            high = *p == '\\' && p[1] != '\0' ? *++p : *p;
        }
        found = found || (c >= low && c <= high);
    }
    *end = *p == ']' ? p + 1 : NULL;
    return found != negated;
}

/* `budget`: patterns with many stars must not take for ever. */
static bool matches(const char *p, const char *s, int *budget)
{
    while (*p != '\0') {
        if (--*budget < 0) {
            return false;
        }
        if (p[0] == '*' && p[1] == '*') {
            p += 2;
            p += *p == '/';
            for (const char *at = s;; at++) {
                /* any number of whole folders, or all that is left */
                if ((*p == '\0' || at == s || at[-1] == '/') && matches(p, at, budget)) {
                    return true;
                }
                if (*at == '\0') {
                    return false;
                }
            }
        }
        if (*p == '*') {
            for (const char *at = s;; at++) {
                if (matches(p + 1, at, budget)) {
                    return true;
                }
                if (*at == '\0' || *at == '/') {
                    return false;
                }
            }
        }
        if (*s == '\0' || (*s == '/' && *p != '/')) {
            return false;
        }
        const char *end = p + 1;
        if (*p == '[') {
            if (!takes(p, *s, &end) || end == NULL) {
                return false;
            }
        } else if (*p != '?') {
            const char *c = *p == '\\' && p[1] != '\0' ? p + 1 : p;
            if (*c != *s) {
                return false;
            }
            end = c + 1;
        }
        p = end;
        s++;
    }
    return *s == '\0';
}

/* The pattern fits the path or a folder above it. */
static bool fits(const char *pattern, const char *path)
{
    char part[4096];
    size_t n = strlen(path);
    if (n >= sizeof part) {
        return false;
    }
    for (size_t i = 1; i <= n; i++) {
        if (path[i] == '/' || path[i] == '\0') {
            int budget = MAX_STEPS;
            memcpy(part, path, i);
            part[i] = '\0';
            if (matches(pattern, part, &budget)) {
                return true;
            }
        }
    }
    return false;
}

bool stk_image_is_ignored(const stk_image_ignore *ignore, const char *path)
{
    bool ignored = false;
    for (uint32_t i = 0; ignore->patterns[i] != NULL; i++) {
        bool exception = ignore->patterns[i][0] == '!';
        if (ignored == exception && fits(ignore->patterns[i] + exception, path)) {
            ignored = !exception;
        }
    }
    return ignored;
}

bool stk_image_is_named(const stk_image_ignore *ignore, const char *path)
{
    bool named = false;
    for (uint32_t i = 0; ignore->patterns[i] != NULL && !named; i++) {
        const char *pattern = ignore->patterns[i];
        const char *slash = strrchr(pattern, '/');
        char first = slash != NULL ? slash[1] : pattern[1];
        named = *pattern == '!' && strchr("*?[", first) == NULL && fits(pattern + 1, path);
    }
    return named;
}

int stk_image_ignore_read(const char *text, stk_arena *arena, stk_image_ignore *ret, stk_err *err)
{
    const char **patterns = NULL;
    uint32_t n = 0, cap = 0;
    bool exceptions = false;
    for (const char *line = text; *line != '\0';) {
        size_t len = strcspn(line, "\n");
        const char *from = line + strspn(line, " \t\r");
        size_t size = from >= line + len ? 0 : (size_t)(line + len - from);
        line += len + (line[len] == '\n');
        while (size > 0 && strchr(" \t\r/", from[size - 1]) != NULL) {
            size--;
        }
        bool exception = size > 0 && *from == '!';
        const char *bare = from + exception;
        size_t bare_size = size - exception;
        while (bare_size > 0 && (*bare == '/' || *bare == ' ' ||
                                 (bare_size > 1 && bare[0] == '.' && bare[1] == '/'))) {
            bool dot = *bare == '.';
            bare += dot ? 2 : 1;
            bare_size -= dot ? 2 : 1;
        }
        if (bare_size == 0 || *from == '#') {
            continue;
        }
        patterns =
            n < MAX_PATTERNS ? stk_arena_grow(arena, patterns, n, sizeof *patterns, &cap) : NULL;
        const char *clean =
            stk_arena_printf(arena, "%s%.*s", exception ? "!" : "", (int)bare_size, bare);
        if (patterns == NULL || clean == NULL) {
            return stk_err_set(err, n < MAX_PATTERNS ? STK_E_NOMEM : STK_E_LIMIT,
                               "more than %d patterns of files to leave out", MAX_PATTERNS);
        }
        patterns[n++] = clean;
        exceptions = exceptions || exception;
    }
    patterns = stk_arena_grow(arena, patterns, n, sizeof *patterns, &cap);
    if (patterns == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for patterns");
    }
    patterns[n] = NULL;
    *ret = (stk_image_ignore){patterns, exceptions};
    return 0;
}
