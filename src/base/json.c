/* Access, construction and output; json_read.c reads. */
#include "base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* --- asking --- */

const char *stk_json_text(const stk_json *node)
{
    if (node == NULL || node->kind != STK_JSON_TEXT || strlen(node->text) != node->n) {
        return NULL;
    }
    return node->text;
}

bool stk_json_is(const stk_json *text, const char *word)
{
    const char *have = stk_json_text(text);
    return have != NULL && strcmp(have, word) == 0;
}

bool stk_json_int(const stk_json *node, int64_t *ret_number)
{
    if (node == NULL || node->kind != STK_JSON_INT) {
        return false;
    }
    errno = 0;
    long long number = strtoll(node->text, NULL, 10);
    if (errno != 0) {
        return false;
    }
    *ret_number = number;
    return true;
}

bool stk_json_real(const stk_json *node, double *ret_number)
{
    if (node == NULL || (node->kind != STK_JSON_INT && node->kind != STK_JSON_REAL)) {
        return false;
    }
    double number = strtod(node->text, NULL);
    if (!isfinite(number)) {
        return false;
    }
    *ret_number = number;
    return true;
}

int64_t stk_json_whole(const stk_json *node, int64_t otherwise)
{
    int64_t number = otherwise;
    double real;
    if (stk_json_is_kind(node, STK_JSON_REAL) && stk_json_real(node, &real) && fabs(real) < 9e18) {
        return (int64_t)real;
    }
    (void)stk_json_int(node, &number);
    return number;
}

double stk_json_number(const stk_json *node, double otherwise)
{
    double number = otherwise;
    (void)stk_json_real(node, &number);
    return number;
}

const char *stk_json_get_text(const stk_json *map, const char *key)
{
    return stk_json_text(stk_json_get(map, key));
}

int64_t stk_json_get_whole(const stk_json *map, const char *key, int64_t otherwise)
{
    return stk_json_whole(stk_json_get(map, key), otherwise);
}

double stk_json_get_number(const stk_json *map, const char *key, double otherwise)
{
    return stk_json_number(stk_json_get(map, key), otherwise);
}

/* The nesting limit at parse time bounds this recursion, and all others below. */
bool stk_json_equal(const stk_json *a, const stk_json *b)
{
    if (a->kind != b->kind || (a->kind != STK_JSON_BOOL && a->n != b->n)) {
        return a->kind == b->kind && a->kind == STK_JSON_REAL &&
               stk_json_number(a, 0) == stk_json_number(b, 0);
    }
    bool same = true;
    switch ((stk_json_kind)a->kind) {
    case STK_JSON_NULL:
        return true;
    case STK_JSON_BOOL:
        return a->truth == b->truth;
    case STK_JSON_REAL:
        return stk_json_number(a, 0) == stk_json_number(b, 0);
    case STK_JSON_INT:
    case STK_JSON_TEXT:
        return memcmp(a->text, b->text, a->n) == 0;
    case STK_JSON_LIST:
        for (uint32_t i = 0; same && i < a->n; i++) {
            same = stk_json_equal(&a->items[i], &b->items[i]);
        }
        return same;
    case STK_JSON_MAP:
        for (uint32_t i = 0; same && i < a->n; i++) {
            const stk_json *other = stk_json_get(b, stk_json_key(a, i)->text);
            same = other != NULL && stk_json_equal(stk_json_value(a, i), other);
        }
        return same;
    }
    return false;
}

const char *stk_json_kind_words(stk_json_kind kind)
{
    static const char *const words[] = {"null",     "true or false", "a whole number", "a number",
                                        "a string", "a list",        "a mapping"};
    return words[kind];
}

void stk_json_format_real(double number, char ret_text[32])
{
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(ret_text, 32, "%.*g", digits, number);
        if (strtod(ret_text, NULL) == number) {
            break;
        }
    }
    if (strpbrk(ret_text, ".e") == NULL) {
        strcat(ret_text, ".0"); /* at most 17 digits and a sign so far */
    }
}

/* --- making --- */

stk_json stk_json_of_text(const char *text)
{
    return stk_json_of_digits(text, STK_JSON_TEXT);
}

stk_json stk_json_of_digits(const char *digits, stk_json_kind kind)
{
    return (stk_json){.text = digits, .n = (uint32_t)strlen(digits), .kind = (uint32_t)kind & 7u};
}

/* Makes room for `each` more nodes. A made node has room up to the next power of two; a parsed one
 * has none. */
static stk_json *reserve_items(stk_arena *arena, stk_json *node, size_t each)
{
    if (!node->made || (node->n >= 4 && (node->n & (node->n - 1)) == 0)) {
        size_t cap = 4;
        while (cap <= node->n) {
            cap *= 2;
        }
        stk_json *items = stk_arena_array(arena, cap * each, sizeof *items);
        if (items == NULL) {
            return NULL;
        }
        if (node->n > 0) {
            memcpy(items, node->items, node->n * each * sizeof *items);
        }
        node->items = items;
        node->made = 1;
        node->indexed = 0;
    }
    return (stk_json *)(uintptr_t)node->items;
}

stk_json *stk_json_append(stk_arena *arena, stk_json *list, stk_json value)
{
    stk_json *items = reserve_items(arena, list, 1);
    if (items == NULL) {
        return NULL;
    }
    items[list->n] = value;
    return &items[list->n++];
}

stk_json *stk_json_set(stk_arena *arena, stk_json *map, const char *key, stk_json value)
{
    stk_json *items = reserve_items(arena, map, 2);
    if (items == NULL) {
        return NULL;
    }
    stk_json *there = (stk_json *)(uintptr_t)stk_json_get(map, key);
    if (there == NULL) {
        const char *own = stk_arena_dup(arena, key);
        if (own == NULL) {
            return NULL;
        }
        items[2 * (size_t)map->n] = stk_json_of_text(own);
        there = &items[2 * (size_t)map->n++ + 1];
    }
    *there = value;
    return there;
}

bool stk_json_update(stk_arena *arena, stk_json *map, const stk_json *more)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < stk_json_n_members(more); i++) {
        ok =
            stk_json_set(arena, map, stk_json_key(more, i)->text, *stk_json_value(more, i)) != NULL;
    }
    return ok;
}

bool stk_json_remove(stk_arena *arena, stk_json *map, const char *key)
{
    stk_json less = stk_json_of_map();
    bool ok = true;
    for (uint32_t i = 0; ok && i < stk_json_n_members(map); i++) {
        const char *name = stk_json_key(map, i)->text;
        ok = strcmp(name, key) == 0 ||
             stk_json_set(arena, &less, name, *stk_json_value(map, i)) != NULL;
    }
    *map = ok ? less : *map;
    return ok;
}

/* --- writing --- */

/* Starts the next item's line; does nothing if `indent` is below 0. */
static void new_line(stk_buf *buf, int indent)
{
    if (indent >= 0) {
        stk_buf_printf(buf, "\n%*s", indent, "");
    }
}

static void dump_items(const stk_json *node, stk_buf *buf, int indent);

static void dump(const stk_json *node, stk_buf *buf, int indent)
{
    static const stk_json null = {.kind = STK_JSON_NULL};
    if (node == NULL) {
        node = &null;
    }
    switch ((stk_json_kind)node->kind) {
    case STK_JSON_NULL:
        stk_buf_add(buf, "null", 4);
        break;
    case STK_JSON_BOOL:
        stk_buf_text(buf, node->truth ? "true" : "false");
        break;
    case STK_JSON_INT:
    case STK_JSON_REAL:
        stk_buf_add(buf, node->text, node->n);
        break;
    case STK_JSON_TEXT:
        (void)stk_buf_json_text(buf, node->text, node->n);
        break;
    case STK_JSON_LIST:
    case STK_JSON_MAP:
        stk_buf_char(buf, node->kind == STK_JSON_MAP ? '{' : '[');
        dump_items(node, buf, indent < 0 ? indent : indent + 2);
        if (node->n > 0) {
            new_line(buf, indent);
        }
        stk_buf_char(buf, node->kind == STK_JSON_MAP ? '}' : ']');
        break;
    }
}

static void dump_items(const stk_json *node, stk_buf *buf, int indent)
{
    for (uint32_t i = 0; i < node->n; i++) {
        if (i > 0) {
            stk_buf_char(buf, ',');
        }
        new_line(buf, indent);
        if (node->kind == STK_JSON_LIST) {
            dump(&node->items[i], buf, indent);
            continue;
        }
        const stk_json *key = stk_json_key(node, i);
        (void)stk_buf_json_text(buf, key->text, key->n);
        stk_buf_text(buf, indent < 0 ? ":" : ": ");
        dump(stk_json_value(node, i), buf, indent);
    }
}

void stk_json_dump(const stk_json *node, stk_buf *buf)
{
    dump(node, buf, -1);
}

void stk_json_dump_pretty(const stk_json *node, stk_buf *buf)
{
    dump(node, buf, 0);
}

const char *stk_json_dump_in(const stk_json *node, stk_arena *arena)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(SIZE_MAX / 2);
    if (node == NULL) {
        return NULL;
    }
    dump(node, &buf, -1);
    return stk_buf_keep(&buf, arena);
}

/* --- member by member --- */

void stk_json_put_key(stk_buf *out, const char *key)
{
    /* strchr also matches the NUL that ends a protocol message's prefix. */
    if (out->len > 0 && strchr("{[:\n", out->data[out->len - 1]) == NULL) {
        (void)stk_buf_char(out, ',');
    }
    if (key != NULL) {
        (void)stk_buf_json(out, key);
        (void)stk_buf_char(out, ':');
    }
}

void stk_json_open(stk_buf *out, const char *key, char bracket)
{
    stk_json_put_key(out, key);
    (void)stk_buf_char(out, bracket);
}

void stk_json_close(stk_buf *out, char bracket)
{
    (void)stk_buf_char(out, bracket);
}

void stk_json_put(stk_buf *out, const char *key, const stk_json *value)
{
    stk_json_put_key(out, key);
    dump(value, out, -1);
}

void stk_json_put_raw(stk_buf *out, const char *key, const char *json)
{
    stk_json_put_key(out, key);
    (void)stk_buf_text(out, stk_text_or(json, "null"));
}

void stk_json_put_text(stk_buf *out, const char *key, const char *text)
{
    if (text == NULL) {
        stk_json_put_raw(out, key, NULL);
        return;
    }
    stk_json_put_key(out, key);
    (void)stk_buf_json(out, text);
}

void stk_json_put_texts(stk_buf *out, const char *key, const char *const *texts)
{
    size_t n = 0;
    while (texts != NULL && texts[n] != NULL) {
        n++;
    }
    stk_json_put_n_texts(out, key, texts, n);
}

void stk_json_put_n_texts(stk_buf *out, const char *key, const char *const *texts, size_t n)
{
    stk_json_open(out, key, '[');
    for (size_t i = 0; i < n; i++) {
        stk_json_put_text(out, NULL, texts[i]);
    }
    stk_json_close(out, ']');
}

void stk_json_put_whole(stk_buf *out, const char *key, int64_t number)
{
    stk_json_put_key(out, key);
    (void)stk_buf_printf(out, "%lld", (long long)number);
}

void stk_json_put_known_raw(stk_buf *out, const char *key, const char *json)
{
    if (json != NULL) {
        stk_json_put_raw(out, key, json);
    }
}

void stk_json_put_known_text(stk_buf *out, const char *key, const char *text)
{
    if (text != NULL) {
        stk_json_put_text(out, key, text);
    }
}

void stk_json_put_known_whole(stk_buf *out, const char *key, int64_t number)
{
    if (number >= 0) {
        stk_json_put_whole(out, key, number);
    }
}

void stk_json_put_int(stk_buf *out, const char *key, int64_t number)
{
    if (number >= 0) {
        stk_json_put_whole(out, key, number);
    } else {
        stk_json_put_raw(out, key, NULL);
    }
}

void stk_json_put_real(stk_buf *out, const char *key, double number)
{
    if (!(number >= 0)) {
        stk_json_put_raw(out, key, NULL);
        return;
    }
    stk_json_put_key(out, key);
    (void)stk_buf_printf(out, "%.15g", number);
}

void stk_json_put_bool(stk_buf *out, const char *key, int truth)
{
    static const char *const words[] = {"false", "true"};
    stk_json_put_raw(out, key, truth < 0 ? NULL : words[truth != 0]);
}
