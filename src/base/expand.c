#include "base/expand.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_BYTES = 256 };

typedef struct expansion {
    const char *(*get)(void *arg, const char *name);
    void *arg;
    char *out;
    size_t n;
    int failed; /* errno */
} expansion;

static void put(expansion *e, const char *text, size_t n)
{
    if (e->failed == 0 && e->n + n >= STK_EXPAND_MAX) {
        e->failed = E2BIG;
    }
    if (e->failed == 0) {
        memcpy(e->out + e->n, text, n);
        e->n += n;
    }
}

static size_t name_length(const char *text)
{
    size_t n = 0;
    if (isalpha((unsigned char)*text) || *text == '_') {
        while (isalnum((unsigned char)text[n]) || text[n] == '_') {
            n++;
        }
    }
    return n < NAME_MAX_BYTES ? n : 0;
}

/* Returns the position after the '}' that closes the open '{'; NULL: none does. */
static const char *find_end(const char *text, const char *end)
{
    for (int depth = 1; text < end; text++) {
        if (*text == '\\' && text + 1 < end) {
            text++;
        } else if (*text == '{' && text[-1] == '$') {
            depth++;
        } else if (*text == '}' && --depth == 0) {
            return text + 1;
        }
    }
    return NULL;
}

static void expand(expansion *e, const char *text, const char *end, int depth);

static const char *value_of(expansion *e, const char *name, size_t n)
{
    char key[NAME_MAX_BYTES];
    memcpy(key, name, n);
    key[n] = '\0';
    return e->get(e->arg, key);
}

/* Expands the variable at a '$' and returns the position after it; NULL: it is no variable. */
static const char *take_variable(expansion *e, const char *text, const char *end, int depth)
{
    bool braced = text + 1 < end && text[1] == '{';
    const char *name = text + 1 + braced;
    size_t n = name_length(name); /* the text ends in a NUL */
    const char *after = name + n;
    if (n == 0 || after > end) {
        return NULL;
    }
    if (!braced) {
        const char *value = value_of(e, name, n);
        if (value != NULL) {
            put(e, value, strlen(value));
        }
        return after;
    }
    const char *behind = find_end(name, end);
    bool colon = behind != NULL && *after == ':';
    const char *word = after + colon;
    if (behind == NULL || (*word != '-' && *word != '+' && (colon || *word != '}'))) {
        return NULL;
    }
    const char *value = value_of(e, name, n);
    bool is_there = value != NULL && (!colon || *value != '\0');
    if ((*word == '+' && is_there) || (*word == '-' && !is_there)) {
        expand(e, word + 1, behind - 1, depth + 1);
    } else if (*word != '+' && value != NULL) {
        put(e, value, strlen(value));
    }
    return behind;
}

static void expand(expansion *e, const char *text, const char *end, int depth)
{
    if (depth > STK_EXPAND_DEPTH) {
        if (e->failed == 0) {
            e->failed = ELOOP;
        }
        return;
    }
    while (text < end && e->failed == 0) {
        const char *after = NULL;
        if (text[0] == '\\' && text + 1 < end && text[1] == '$') {
            put(e, "$", 1);
            after = text + 2;
        } else if (*text == '$') {
            after = take_variable(e, text, end, depth);
        }
        if (after == NULL) {
            put(e, text, 1);
            after = text + 1;
        }
        text = after;
    }
}

char *stk_expand(const char *text, const char *(*get)(void *arg, const char *name), void *arg)
{
    expansion e = {.get = get, .arg = arg, .out = malloc(STK_EXPAND_MAX)};
    if (e.out == NULL) {
        return NULL;
    }
    expand(&e, text, text + strlen(text), 0);
    if (e.failed != 0) {
        free(e.out);
        errno = e.failed;
        return NULL;
    }
    e.out[e.n] = '\0';
    char *whole = realloc(e.out, e.n + 1);
    return whole != NULL ? whole : e.out;
}
