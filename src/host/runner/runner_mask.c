#include "host/runner/runner_mask.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/grow.h"
#include "base/json.h"
#include "base/text.h"
#include "sys/file.h"

enum {
    SHORTEST_LINE = 8, /* of a multi-line value */
    GRAM_BITS = 16
};

/* A text to find, with the failure table of the Knuth-Morris-Pratt search: for each prefix the
 * longest proper prefix that is also its suffix. So one pass finds all matches, overlapping ones
 * too, however the input is split. */
typedef struct pattern {
    const char *text;
    size_t n;
    uint32_t *falls;
    size_t first; /* scratch: first position of its first bytes */
} pattern;

/* Most texts contain no pattern. `starts`, a bitmap of the hashes of all patterns' first bytes,
 * shows that in one pass. */
struct stk_mask {
    pattern *all;
    uint32_t n, cap;
    size_t reach;
    uint64_t starts[1 << (GRAM_BITS - 6)];
};

static uint32_t gram_of(const char *text)
{
    uint32_t gram;
    memcpy(&gram, text, sizeof gram);
    return gram;
}

static uint32_t hash_of(uint32_t gram)
{
    return gram * 2654435761u >> (32 - GRAM_BITS);
}

/* --- what is hidden --- */

static int add_pattern(stk_mask *m, const char *text, size_t n)
{
    if (n < STK_MASK_SHORTEST || n > UINT32_MAX) {
        return 0;
    }
    pattern *all = stk_grow(m->all, m->n, sizeof *all, &m->cap);
    if (all == NULL) {
        return STK_E_NOMEM;
    }
    m->all = all;
    char *copy = malloc(n);
    uint32_t *falls = calloc(n, sizeof *falls);
    if (copy == NULL || falls == NULL) {
        free(copy);
        free(falls);
        return STK_E_NOMEM;
    }
    memcpy(copy, text, n);
    for (size_t i = 1, k = 0; i < n; i++) {
        while (k > 0 && copy[i] != copy[k]) {
            k = falls[k - 1];
        }
        k += copy[i] == copy[k];
        falls[i] = (uint32_t)k;
    }
    m->all[m->n++] = (pattern){copy, n, falls, 0};
    uint32_t hash = hash_of(gram_of(copy));
    m->starts[hash / 64] |= (uint64_t)1 << hash % 64;
    m->reach = MAX(n, m->reach);
    return 0;
}

static size_t trim(const char **text, size_t n)
{
    while (n > 0 && strchr(" \t\r\n", (*text)[n - 1]) != NULL) {
        n--;
    }
    while (n > 0 && strchr(" \t\r\n", **text) != NULL) {
        ++*text;
        n--;
    }
    return n;
}

static int add_lines(stk_mask *m, const char *text, size_t n)
{
    for (const char *end = text + n; text < end;) {
        size_t len = MIN(strcspn(text, "\n"), (size_t)(end - text));
        const char *line = text;
        size_t shown = trim(&line, len);
        if (shown >= SHORTEST_LINE) {
            STK_TRY(add_pattern(m, line, shown));
        }
        text += len + 1;
    }
    return 0;
}

/* Adds the text's JSON form if that differs. */
static int add_escaped(stk_mask *m, const char *text, size_t n)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(SIZE_MAX / 2);
    STK_TEXT_AUTO copy = strndup(text, n);
    if (copy == NULL || stk_buf_json(&buf, copy) < 0) {
        return STK_E_NOMEM;
    }
    if (buf.len == n + 2) {
        return 0;
    }
    return add_pattern(m, buf.data + 1, buf.len - 2);
}

static int add_value(stk_mask *m, const char *value)
{
    const char *text = value;
    size_t n = trim(&text, strlen(value));
    STK_TRY(add_pattern(m, text, n));
    if (n < STK_MASK_SHORTEST) {
        return 0;
    }
    if (memchr(text, '\n', n) != NULL) {
        STK_TRY(add_lines(m, text, n));
    }
    return add_escaped(m, text, n);
}

int stk_mask_new(const char *const *values, stk_mask **ret_mask, stk_err *err)
{
    *ret_mask = NULL;
    if (values == NULL || values[0] == NULL) {
        return 0;
    }
    stk_mask *m = calloc(1, sizeof *m);
    bool ok = m != NULL;
    for (uint32_t i = 0; ok && values[i] != NULL; i++) {
        ok = add_value(m, values[i]) == 0;
    }
    if (ok && m->n > 0) {
        *ret_mask = m;
        return 0;
    }
    stk_mask_free(m);
    if (ok) {
        return 0;
    }
    return stk_err_set(err, STK_E_NOMEM, "out of memory for a step's secrets");
}

void stk_mask_free(stk_mask *mask)
{
    if (mask == NULL) {
        return;
    }
    for (size_t i = 0; i < mask->n; i++) {
        free((char *)(uintptr_t)mask->all[i].text);
        free(mask->all[i].falls);
    }
    free(mask->all);
    free(mask);
}

size_t stk_mask_reach(const stk_mask *mask)
{
    return mask == NULL ? 0 : mask->reach;
}

/* --- finding --- */

static size_t mark_one(const pattern *p, const char *data, size_t n, unsigned char *stars)
{
    size_t state = 0, marked = 0;
    for (size_t i = 0; i < n; i++) {
        if (state == 0) {
            const char *at = memchr(data + i, p->text[0], n - i);
            if (at == NULL) {
                return 0;
            }
            i = (size_t)(at - data);
        }
        while (state > 0 && data[i] != p->text[state]) {
            state = p->falls[state - 1];
        }
        state += data[i] == p->text[state];
        if (state == p->n) {
            size_t from = MAX(i + 1 - p->n, marked);
            marked = i + 1;
            memset(stars + from, 1, marked - from);
            state = p->falls[state - 1];
        }
    }
    return state;
}

/* Finds the first position of each pattern's first bytes. */
static void find_starts(const stk_mask *m, const char *data, size_t n)
{
    size_t left = m->n;
    for (size_t i = 0; i < m->n; i++) {
        m->all[i].first = SIZE_MAX;
    }
    for (size_t at = 0; at + STK_MASK_SHORTEST <= n && left > 0; at++) {
        uint32_t gram = gram_of(data + at), hash = hash_of(gram);
        if ((m->starts[hash / 64] >> hash % 64 & 1) == 0) {
            continue;
        }
        for (size_t i = 0; i < m->n; i++) {
            pattern *p = &m->all[i];
            if (p->first == SIZE_MAX && gram_of(p->text) == gram) {
                p->first = at;
                left--;
            }
        }
    }
}

/* Replaces the marked bytes by stars. */
static void put_stars(char *text, const unsigned char *stars, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (stars[i]) {
            text[i] = '*';
        }
    }
}

size_t stk_mask_mark(const stk_mask *mask, const char *data, size_t n, unsigned char *stars)
{
    size_t held = 0;
    if (mask == NULL) {
        return 0;
    }
    find_starts(mask, data, n);
    for (size_t i = 0; i < mask->n; i++) {
        const pattern *p = &mask->all[i];
        size_t state = 0;
        if (p->first != SIZE_MAX) {
            state = mark_one(p, data + p->first, n - p->first, stars + p->first);
        }
        size_t most = MIN(n, STK_MASK_SHORTEST - 1);
        for (size_t k = most; p->first == SIZE_MAX && state == 0 && k > 0; k--) {
            state = memcmp(data + n - k, p->text, k) == 0 ? k : 0;
        }
        held = MAX(state, held);
    }
    return held;
}

/* The same for n bytes, which may include NUL. */
static const char *mask_bytes(const stk_mask *mask, const char *text, size_t n, stk_arena *arena)
{
    if (mask == NULL || n == 0) {
        return text;
    }
    STK_TEXT_AUTO stars = calloc(n, 1);
    if (stars == NULL) {
        return NULL;
    }
    (void)stk_mask_mark(mask, text, n, (unsigned char *)stars);
    if (memchr(stars, 1, n) == NULL) {
        return text;
    }
    char *copy = stk_arena_dupn(arena, text, n);
    if (copy != NULL) {
        put_stars(copy, (const unsigned char *)stars, n);
    }
    return copy;
}

const char *stk_mask_text(const stk_mask *mask, const char *text, stk_arena *arena)
{
    return mask_bytes(mask, text, strlen(stk_text_or(text, "")), arena);
}

/* --- documents --- */

int stk_mask_node(const stk_mask *mask, stk_json *node, stk_arena *arena)
{
    if (node->kind == STK_JSON_TEXT) {
        node->text = mask_bytes(mask, node->text, node->n, arena);
        return node->text == NULL ? STK_E_NOMEM : 0;
    }
    uint32_t n = stk_json_n_items(node) + 2 * stk_json_n_members(node);
    uint32_t step = stk_json_is_map(node) ? 2 : 1; /* in a map every second item is a key */
    if (n == 0) {
        return 0;
    }
    stk_json *items = stk_arena_array(arena, n, sizeof *items);
    if (items == NULL) {
        return STK_E_NOMEM;
    }
    memcpy(items, node->items, n * sizeof *items);
    for (uint32_t i = step - 1; i < n; i += step) {
        STK_TRY(stk_mask_node(mask, &items[i], arena));
    }
    node->items = items;
    node->indexed = node->made = 0; /* the new array has no spare room */
    return 0;
}

bool stk_mask_json(const stk_mask *mask, const char *json, size_t n, stk_buf *out)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json *doc = (stk_json *)(uintptr_t)stk_json_readn(arena, json, n);
    if (doc == NULL || stk_mask_node(mask, doc, arena) < 0) {
        return false;
    }
    stk_json_dump(doc, out);
    return !out->failed;
}

/* --- in pieces --- */

int stk_mask_push(stk_mask_stream *s, const char *data, size_t n, stk_buf *out)
{
    if (s->mask == NULL) {
        return stk_buf_add(out, data, n);
    }
    if (s->n + n > s->cap) {
        size_t cap = (s->n + n) * 2;
        char *more = realloc(s->data, cap);
        if (more == NULL) {
            return STK_E_NOMEM;
        }
        s->data = more;
        unsigned char *stars = realloc(s->stars, cap);
        if (stars == NULL) {
            return STK_E_NOMEM;
        }
        s->stars = stars;
        s->cap = cap;
    }
    memcpy(s->data + s->n, data, n);
    memset(s->stars + s->n, 0, n);
    s->n += n;
    size_t sure = s->n - stk_mask_mark(s->mask, s->data, s->n, s->stars);
    put_stars(s->data, s->stars, sure);
    int rc = stk_buf_add(out, s->data, sure);
    s->n -= sure;
    memmove(s->data, s->data + sure, s->n);
    memmove(s->stars, s->stars + sure, s->n);
    return rc;
}

void stk_mask_end(stk_mask_stream *s, stk_buf *out)
{
    if (s->n > 0) {
        put_stars(s->data, s->stars, s->n);
        (void)stk_buf_add(out, s->data, s->n);
    }
    free(s->data);
    free(s->stars);
    *s = (stk_mask_stream){.mask = s->mask};
}
