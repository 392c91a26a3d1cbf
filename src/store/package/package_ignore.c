/* Finds what git would leave out: its patterns (gitignore(5)), and the tracked files, which it
 * keeps. */
#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

#include "store/package/package_private.h"
#include "sys/file.h"

enum {
    FILE_BYTES = 4 << 20,
    RULES_MAX = 100000,
    INDEX_BYTES = 512 << 20,
    INDEX_ENTRY = 62 /* bytes before the name */
};

/* --- matching --- */

static const struct {
    const char *name;
    int (*is)(int c);
} classes[] = {{"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
               {"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
               {"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit}};

/* Matches a set; `p` is after '['. *ret_end: after its ']'; NULL if the set never ends. */
static bool in_set(const char *p, unsigned char c, const char **ret_end)
{
    bool negated = *p == '!' || *p == '^';
    bool found = false;
    const char *first = p += negated;
    *ret_end = NULL;
    for (; *p != '\0' && (*p != ']' || p == first);) {
        if (p[0] == '[' && p[1] == ':') {
            const char *end = strstr(p + 2, ":]");
            for (size_t i = 0; end != NULL && i < sizeof classes / sizeof *classes; i++) {
                size_t n = strlen(classes[i].name);
                bool named = (size_t)(end - p - 2) == n && memcmp(p + 2, classes[i].name, n) == 0;
                found = found || (named && classes[i].is(c) != 0);
            }
            if (end == NULL) {
                return false;
            }
            p = end + 2;
            continue;
        }
        p += *p == '\\' && p[1] != '\0';
        unsigned char low = (unsigned char)*p++;
        unsigned char high = low;
        if (p[0] == '-' && p[1] != ']' && p[1] != '\0') {
            p += p[1] == '\\' && p[2] != '\0' ? 2 : 1;
            high = (unsigned char)*p++;
        }
        found = found || (low <= c && c <= high);
    }
    if (*p != ']') {
        return false;
    }
    *ret_end = p + 1;
    return found != negated && c != '/';
}

/* Returns the position after the pattern part at `p` if that matches the character, else NULL. */
static const char *take_part(const char *p, char c)
{
    const char *end;
    if (*p == '[') {
        return in_set(p + 1, (unsigned char)c, &end) ? end : NULL;
    }
    if (*p == '?') {
        return c != '/' ? p + 1 : NULL;
    }
    p += *p == '\\' && p[1] != '\0';
    return *p == c ? p + 1 : NULL;
}

/* After a mismatch, matching resumes at the last '*', which takes one more character; if that
 * fails, at the last "**", which takes one more folder. Earlier stars need no retry: a '*' ends
 * with its part of the path, and a "**" that took as little as possible leaves the most. So
 * matching takes at most the square of the text's length. */
bool stk_ignore_match(const char *pattern, const char *text)
{
    const char *star = NULL;
    const char *star_at = NULL;
    const char *folders = NULL;
    const char *folders_at = NULL;
    const char *p = pattern;
    const char *t = text;
    for (;;) {
        bool part = p == pattern || p[-1] == '/';
        if (part && p[0] == '*' && p[1] == '*' && (p[2] == '/' || (p[2] == '\0' && p != pattern))) {
            if (p[2] == '\0') {
                return true; /* "x/" and two stars: everything below */
            }
            folders = p += 3;
            folders_at = t;
            star = NULL;
            continue;
        }
        if (*p == '*') {
            star = p += strspn(p, "*");
            star_at = t;
            continue;
        }
        if (*p == '\0' && *t == '\0') {
            return true;
        }
        const char *next = NULL;
        if (*p != '\0' && *t != '\0') {
            next = take_part(p, *t);
        }
        if (next != NULL) {
            if (*t == '/') {
                star = NULL;
            }
            p = next;
            t++;
        } else if (star != NULL && *star_at != '\0' && *star_at != '/') {
            p = star;
            t = ++star_at;
        } else if (folders != NULL && (t = strchr(folders_at, '/')) != NULL) {
            folders_at = ++t;
            p = folders;
            star = NULL;
        } else {
            return false;
        }
    }
}

/* --- the files --- */

/* Parses one line without its end; false: it is no rule. */
static bool read_rule(char *line, ignore_rule *ret)
{
    size_t n = strlen(line);
    n -= n > 0 && line[n - 1] == '\r';
    while (n > 0 && line[n - 1] == ' ' && (n < 2 || line[n - 2] != '\\')) {
        n--;
    }
    line[n] = '\0';
    *ret = (ignore_rule){.negated = line[0] == '!'};
    if (line[0] == '#' || n == 0) {
        return false;
    }
    line += ret->negated;
    n -= ret->negated;
    ret->folders_only = n > 0 && line[n - 1] == '/';
    n -= ret->folders_only;
    line[n] = '\0';
    ret->anchored = strchr(line, '/') != NULL;
    line += line[0] == '/';
    ret->pattern = line;
    return *line != '\0';
}

int stk_ignore_read(const char *folder, const char *name, ignore_list *above, stk_arena *arena,
                    ignore_list **ret, stk_err *err)
{
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    const char *path = stk_arena_printf(arena, "%s/%s", folder, name);
    *ret = above;
    if (path != NULL && !stk_file_exists(path)) {
        return 0;
    }
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_file_read(path, FILE_BYTES, &text, &len, err));
    char *kept = stk_arena_dup(arena, text);
    ignore_list *list = stk_arena_alloc(arena, sizeof *list);
    const char *base = stk_arena_dup(arena, folder);
    if (kept == NULL || list == NULL || base == NULL) {
        return stk_err_nomem(err);
    }
    uint32_t cap = 0;
    *list = (ignore_list){.base = base, .above = above};
    char *line = strncmp(kept, "\xef\xbb\xbf", 3) == 0 ? kept + 3 : kept;
    for (char *next; line != NULL; line = next) {
        ignore_rule rule;
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        if (!read_rule(line, &rule)) {
            continue;
        }
        ignore_rule *rules = stk_arena_grow(arena, list->rules, list->n, sizeof *rules, &cap);
        if (rules == NULL || list->n == RULES_MAX) {
            return stk_err_set(err, STK_E_LIMIT, "%s has more than %d patterns", path, RULES_MAX);
        }
        list->rules = rules;
        list->rules[list->n++] = rule;
    }
    *ret = list;
    return 0;
}

/* The last rule that matches, or NULL. */
static const ignore_rule *rule_for(const ignore_list *list, const char *path, bool is_folder)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    for (; list != NULL; list = list->above) {
        size_t n = strlen(list->base);
        if (n == 1) {
            n = 0; /* "/" */
        }
        if (strncmp(path, list->base, n) != 0 || path[n] != '/') {
            continue;
        }
        for (uint32_t i = list->n; i-- > 0;) {
            const ignore_rule *rule = &list->rules[i];
            if ((!rule->folders_only || is_folder) &&
                stk_ignore_match(rule->pattern, rule->anchored ? path + n + 1 : name)) {
                return rule;
            }
        }
    }
    return NULL;
}

int stk_ignore_ask(const ignore_list *list, const char *path, bool is_folder)
{
    const ignore_rule *rule = rule_for(list, path, is_folder);
    if (rule == NULL) {
        return -1;
    }
    return !rule->negated;
}

bool stk_ignore_names(const ignore_list *list, const char *path, bool is_folder)
{
    const ignore_rule *rule = rule_for(list, path, is_folder);
    if (rule == NULL || !rule->negated) {
        return false;
    }
    const char *slash = strrchr(rule->pattern, '/');
    return strchr("*?[", slash != NULL ? slash[1] : rule->pattern[0]) == NULL;
}

/* --- the index --- */

static uint32_t be32(const char *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return ntohl(value);
}

static int keep(const char *top, const char *name, stk_arena *arena, stk_map *ret)
{
    char *path = stk_arena_printf(arena, "%s/%s", top, name);
    const size_t n = strlen(top);
    if (path == NULL || stk_map_put(ret, path, 1) < 0) {
        return STK_E_NOMEM;
    }
    for (char *slash; (slash = strrchr(path, '/')) != path + n;) {
        path = stk_arena_dupn(arena, path, (size_t)(slash - path));
        if (path != NULL && stk_map_get(ret, path, NULL)) {
            return 0; /* the folders above are known too */
        }
        if (path == NULL || stk_map_put(ret, path, 1) < 0) {
            return STK_E_NOMEM;
        }
    }
    return 0;
}

/* In version 4, names are stored as the difference from the previous one. */
static const char *next_name(const char **at, const char *end, uint32_t version, char *name,
                             size_t size)
{
    bool extended = (ntohs(*(const uint16_t *)(const void *)(*at + INDEX_ENTRY - 2)) & 0x4000) != 0;
    const char *p = *at + INDEX_ENTRY + 2 * extended;
    const char *nul = NULL;
    if (p < end) {
        nul = memchr(p, '\0', (size_t)(end - p));
    }
    size_t kept = 0;
    if (nul == NULL) {
        return NULL;
    }
    if (version == 4) {
        size_t drop = *p & 0x7f;
        while ((*p++ & 0x80) != 0) {
            drop = ((drop + 1) << 7) | (*p & 0x7f);
        }
        nul = memchr(p, '\0', (size_t)(end - p));
        size_t len = strlen(name);
        if (nul == NULL || drop > len) {
            return NULL;
        }
        kept = len - drop;
    }
    size_t n = (size_t)(nul - p);
    if (kept + n >= size) {
        return NULL;
    }
    memcpy(name + kept, p, n + 1);
    size_t used = (size_t)(nul - *at);
    *at += version == 4 ? used + 1 : (used + 8) & ~(size_t)7;
    return name;
}

int stk_ignore_tracked(const char *top, stk_arena *arena, stk_map *ret, stk_err *err)
{
    STK_TEXT_AUTO data = NULL;
    size_t len = 0;
    char name[4096] = "";
    const char *path = stk_arena_printf(arena, "%s/.git/index", top);
    if (path == NULL || stk_file_read(path, INDEX_BYTES, &data, &len, NULL) < 0 || len < 12 ||
        memcmp(data, "DIRC", 4) != 0) {
        return stk_err_if_null(path, err);
    }
    uint32_t version = be32(data + 4);
    uint32_t n = 0;
    if (version >= 2 && version <= 4) {
        n = be32(data + 8);
    }
    const char *end = data + len;
    int rc = 0;
    const char *at = data + 12;
    for (uint32_t i = 0; rc == 0 && i < n && end - at > INDEX_ENTRY; i++) {
        if (next_name(&at, end, version, name, sizeof name) == NULL) {
            break;
        }
        rc = keep(top, name, arena, ret);
    }
    if (rc >= 0) {
        return 0;
    }
    return stk_err_nomem(err);
}
