/* .dockerignore: which files stay out of a build's context? Docker's rules: a pattern is relative
 * to the context's root, `**` is any number of folders, what is below a match is matched too, `!`
 * takes one back, the last match counts. */
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "image/image_private.h"
#include "image/image_recipe.h"

enum { MAX_PATTERNS = 10000, MAX_PARTS = 4096 };

/* `[a-z]`, `[^x]`: does it take `c`? *end: behind it; NULL where it isn't closed. */
static bool takes(const char *set, char c, const char **end)
{
    bool negated = set[1] == '^' || set[1] == '!', found = false;
    const char *p = set + 1 + negated, *first = p;
    for (; *p != '\0' && (*p != ']' || p == first); p++) {
        p += *p == '\\' && p[1] != '\0';
        char low = *p, high = low;
        if (p[1] == '-' && p[2] != ']' && p[2] != '\0') {
            p += 2;
            p += *p == '\\' && p[1] != '\0';
            high = *p;
        }
        found = found || (c >= low && c <= high);
    }
    *end = *p == ']' ? p + 1 : NULL;
    return found != negated;
}

/* One character of a path by what stands at `p`, which is no star. */
static bool takes_one(const char *p, char c)
{
    const char *end;
    switch (*p) {
    case '[':
        return c != '/' && takes(p, c, &end) && end != NULL;
    case '?':
        return c != '/';
    case '\\':
        return c != '/' && (p[1] != '\0' ? p[1] : '\\') == c;
    default:
        return *p == c;
    }
}

/* What stands at `p`: a star, two with or without a slash, a set, or one character. */
static const char *behind(const char *p)
{
    const char *end = NULL;
    if (p[0] == '*' && p[1] == '*') {
        return p + 2 + (p[2] == '/');
    }
    if (*p == '[') {
        (void)takes(p, '\0', &end);
        return stk_text_or(end, p + strlen(p));
    }
    return p + 1 + (*p == '\\' && p[1] != '\0');
}

/* The parts of a pattern that the path so far leads to; all at once, so that no pattern takes more
 * than its length for each character. */
typedef struct reached {
    bool at[MAX_PARTS + 1];    /* this part is next */
    bool below[MAX_PARTS + 1]; /* two stars that have taken something */
} reached;

static bool is_star(const char *p)
{
    return *p == '*';
}

static bool are_two(const char *p)
{
    return p[0] == '*' && p[1] == '*';
}

static void step(const char *const *parts, uint32_t n, char c, const reached *from, reached *to)
{
    memset(to, 0, sizeof *to);
    for (uint32_t i = 0; i < n; i++) {
        const char *p = parts[i];
        if (are_two(p)) {
            to->below[i] = from->at[i] || from->below[i];
            to->at[i + 1] = to->at[i + 1] || (to->below[i] && (c == '/' || i + 1 == n));
        } else if (is_star(p)) {
            to->at[i] = to->at[i] || (from->at[i] && c != '/');
        } else {
            to->at[i + 1] = to->at[i + 1] || (from->at[i] && takes_one(p, c));
        }
    }
}

/* Stars may be nothing. */
static void pass_stars(const char *const *parts, uint32_t n, reached *r)
{
    for (uint32_t i = 0; i < n; i++) {
        r->at[i + 1] = r->at[i + 1] || (r->at[i] && is_star(parts[i]));
    }
}

/* The pattern fits the path or a folder above it. */
static bool fits_pattern(const char *pattern, const char *path)
{
    const char *parts[MAX_PARTS];
    reached both[2] = {{.at = {true}}};
    uint32_t n = 0;
    for (const char *p = pattern; *p != '\0' && n < MAX_PARTS; p = behind(p)) {
        parts[n++] = p;
    }
    pass_stars(parts, n, &both[0]);
    for (size_t i = 0; path[i] != '\0'; i++) {
        reached *now = &both[(i + 1) % 2];
        step(parts, n, path[i], &both[i % 2], now);
        pass_stars(parts, n, now);
        if (now->at[n] && (path[i + 1] == '/' || path[i + 1] == '\0')) {
            return true;
        }
    }
    return false;
}

bool stk_image_is_ignored(const stk_image_ignore *ignore, const char *path)
{
    bool ignored = false;
    for (uint32_t i = 0; ignore->patterns[i] != NULL; i++) {
        bool exception = ignore->patterns[i][0] == '!';
        if (ignored == exception && fits_pattern(ignore->patterns[i] + exception, path)) {
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
        slash = stk_text_or(slash, pattern);
        named =
            *pattern == '!' && strchr("*?[", slash[1]) == NULL && fits_pattern(pattern + 1, path);
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
        size_t size = (size_t)(MAX(line + len, from) - from);
        line += len + (line[len] == '\n');
        while (size > 0 && strchr(" \t\r/", from[size - 1]) != NULL) {
            size--;
        }
        bool exception = size > 0 && *from == '!';
        const char *bare = from + exception;
        size_t bare_size = size - exception;
        while (bare_size > 0 && (*bare == '/' || *bare == ' ' ||
                                 (bare_size > 1 && bare[0] == '.' && bare[1] == '/'))) {
            size_t skip = 1 + (*bare == '.');
            bare += skip;
            bare_size -= skip;
        }
        if (bare_size == 0 || *from == '#') {
            continue;
        }
        if (bare_size > MAX_PARTS) {
            return stk_err_set(err, STK_E_LIMIT,
                               "a pattern of excluded files has %zu bytes; %d is the limit",
                               bare_size, MAX_PARTS);
        }
        if (n >= MAX_PATTERNS) {
            return stk_err_set(err, STK_E_LIMIT, "more than %d patterns of excluded files",
                               MAX_PATTERNS);
        }
        patterns = stk_arena_grow(arena, patterns, n, sizeof *patterns, &cap);
        const char *clean =
            stk_arena_printf(arena, "%.*s%.*s", exception, "!", (int)bare_size, bare);
        STK_TRY(stk_err_need(patterns, "for patterns", err));
        STK_TRY(stk_err_need(clean, "for patterns", err));
        patterns[n++] = clean;
        exceptions = exceptions || exception;
    }
    patterns = stk_arena_grow(arena, patterns, n, sizeof *patterns, &cap);
    STK_TRY(stk_err_need(patterns, "for patterns", err));
    patterns[n] = NULL;
    *ret = (stk_image_ignore){patterns, exceptions};
    return 0;
}
