#include "model/spec/spec_read.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "base/units.h"

static int report_at(stk_spec_reader *r, int code, const stk_json *node, const char *fmt,
                     va_list ap)
{
    char text[640];
    (void)vsnprintf(text, sizeof text, fmt, ap);
    if (r->step != NULL) {
        stk_err_set(r->err, code, "step '%s': %s", r->step, text);
    } else {
        stk_err_set(r->err, code, "%s", text);
    }
    stk_err_at(r->err, r->path, node == NULL ? 0 : (int)node->line);
    return code;
}

int stk_spec_fail_code(stk_spec_reader *r, int code, const stk_json *node, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)report_at(r, code, node, fmt, ap);
    va_end(ap);
    return code;
}

int stk_spec_fail(stk_spec_reader *r, const stk_json *node, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)report_at(r, STK_E_SPEC, node, fmt, ap);
    va_end(ap);
    return STK_E_SPEC;
}

int stk_spec_no_memory(stk_spec_reader *r)
{
    return stk_spec_fail_code(r, STK_E_NOMEM, NULL, "out of memory while reading the document");
}

int stk_spec_if_null(stk_spec_reader *r, const void *p)
{
    if (p != NULL) {
        return 0;
    }
    return stk_spec_no_memory(r);
}

int stk_spec_wrong(stk_spec_reader *r, const stk_json *node, const char *key, const char *what)
{
    if (node->kind == STK_JSON_TEXT && strlen(node->text) != node->n) {
        return stk_spec_fail(r, node, "'%s' holds a NUL byte", key);
    }
    if (node->kind == STK_JSON_TEXT || node->kind == STK_JSON_INT || node->kind == STK_JSON_REAL) {
        const char *quote = stk_text_when(node->kind == STK_JSON_TEXT, "'");
        return stk_spec_fail(r, node, "'%s' must be %s, not %s%.60s%s", key, what, quote,
                             node->text, quote);
    }
    if (node->kind == STK_JSON_BOOL) {
        return stk_spec_fail(r, node, "'%s' must be %s, not %s", key, what,
                             node->truth ? "true" : "false");
    }
    return stk_spec_fail(r, node, "'%s' must be %s, not %s", key, what,
                         stk_json_kind_words(node->kind));
}

void stk_spec_did_you_mean(stk_spec_reader *r, const char *word, const char *const *candidates,
                           size_t n)
{
    const char *near = stk_units_nearest(word, candidates, n);
    if (near != NULL) {
        stk_err_hint(r->err, "did you mean '%s'?", near);
    }
}

int stk_spec_find_key(const stk_json *key, const char *const *known, int n_known)
{
    for (int i = 0; i < n_known; i++) {
        if (strcmp(known[i], key->text) == 0) {
            return i;
        }
    }
    return -1;
}

int stk_spec_key(stk_spec_reader *r, const stk_json *key, const char *const *known, int n_known,
                 const char *where)
{
    int i = stk_spec_find_key(key, known, n_known);
    if (i >= 0) {
        return i;
    }
    if (where != NULL) {
        stk_spec_fail(r, key, "unknown key '%.80s' in '%s'", key->text, where);
    } else {
        stk_spec_fail(r, key, "unknown key '%.80s'", key->text);
    }
    stk_spec_did_you_mean(r, key->text, known, (size_t)n_known);
    return STK_E_SPEC;
}

int stk_spec_read_map(stk_spec_reader *r, const stk_json *node, const char *key)
{
    if (node->kind != STK_JSON_MAP) {
        return stk_spec_wrong(r, node, key, "a mapping");
    }
    return 0;
}

int stk_spec_read_text(stk_spec_reader *r, const stk_json *node, const char *key,
                       const char **ret_text)
{
    const char *text = stk_json_text(node);
    if (text == NULL) {
        return stk_spec_wrong(r, node, key, "text");
    }
    *ret_text = text;
    return 0;
}

int stk_spec_read_bool(stk_spec_reader *r, const stk_json *node, const char *key, bool *ret)
{
    if (node->kind != STK_JSON_BOOL) {
        return stk_spec_wrong(r, node, key, "true or false");
    }
    *ret = node->truth;
    return 0;
}

int stk_spec_read_int(stk_spec_reader *r, const stk_json *node, const char *key, int64_t min,
                      int64_t max, int64_t *ret)
{
    int64_t number;
    if (node->kind != STK_JSON_INT) {
        return stk_spec_wrong(r, node, key, "a whole number");
    }
    if (!stk_json_int(node, &number) || number < min || number > max) {
        return stk_spec_fail(r, node, "'%s' is %.40s; it must be between %lld and %lld", key,
                             node->text, (long long)min, (long long)max);
    }
    *ret = number;
    return 0;
}

int stk_spec_read_real(stk_spec_reader *r, const stk_json *node, const char *key, double min,
                       double max, double *ret)
{
    double number;
    if (!stk_json_real(node, &number)) {
        return stk_spec_wrong(r, node, key, "a number");
    }
    if (!(number >= min && number <= max)) {
        return stk_spec_fail(r, node, "'%s' is %.40s; it must be between %g and %g", key,
                             node->text, min, max);
    }
    *ret = number;
    return 0;
}

int stk_spec_read_duration(stk_spec_reader *r, const stk_json *node, const char *key,
                           int64_t *ret_ms)
{
    double seconds;
    int64_t ms;
    const char *text = stk_json_text(node);
    if (text != NULL) {
        if (stk_units_parse_duration(text, &ms, r->err) < 0) {
            return stk_spec_wrong(r, node, key, "a time like 90, 90s, 10m or 2h");
        }
    } else if (stk_json_real(node, &seconds)) {
        ms = seconds < 0 ? -1 : llround(MIN(seconds, 1e12) * 1000);
    } else {
        return stk_spec_wrong(r, node, key, "a time like 90, 90s, 10m or 2h");
    }
    if (ms < 0 || ms > STK_LIMIT_TIMEOUT_MS) {
        return stk_spec_fail(r, node, "'%s' is %.40s; it must be between 0 and %lld days", key,
                             node->text, STK_LIMIT_TIMEOUT_MS / 86400000);
    }
    *ret_ms = ms;
    return 0;
}

int stk_spec_read_texts(stk_spec_reader *r, const stk_json *node, const char *key,
                        const char *const **ret_texts, uint32_t *ret_n)
{
    if (node->kind != STK_JSON_LIST) {
        return stk_spec_wrong(r, node, key, "a list of strings");
    }
    const char **texts = stk_arena_array(r->arena, node->n, sizeof *texts);
    if (texts == NULL) {
        return stk_spec_no_memory(r);
    }
    for (uint32_t i = 0; i < node->n; i++) {
        texts[i] = stk_json_text(&node->items[i]);
        if (texts[i] == NULL || texts[i][0] == '\0') {
            return stk_spec_wrong(r, &node->items[i], key, "a list of strings, none of them empty");
        }
    }
    *ret_texts = texts;
    *ret_n = node->n;
    return 0;
}

int stk_spec_read_json(stk_spec_reader *r, const stk_json *node, const char **ret_json)
{
    const char *json = stk_json_dump_in(node, r->arena);
    if (json == NULL) {
        return stk_spec_no_memory(r);
    }
    *ret_json = json;
    return 0;
}

int stk_spec_read_entry(stk_spec_reader *r, const stk_json *node, const char *key,
                        const char **ret_entry)
{
    const char *text = stk_json_text(node);
    const char *colon = strchr(stk_text_or(text, ""), ':');
    if (colon == NULL || colon == text || colon[1] == '\0' || strchr(colon + 1, ':') != NULL ||
        strpbrk(text, " \t\r\n/") != NULL) {
        return stk_spec_wrong(r, node, key, "module:function");
    }
    *ret_entry = text;
    return 0;
}

static int read_field(stk_spec_reader *r, const stk_json *value, const stk_spec_field *field,
                      char *at)
{
    int64_t n = 0;
    switch (field->kind) {
    case STK_SPEC_OWN:
        return field->read(r, value, field->label, at);
    case STK_SPEC_TEXT:
        return stk_spec_read_text(r, value, field->label, (const char **)(void *)at);
    case STK_SPEC_TEXTS:
        return stk_spec_read_texts(r, value, field->label, (const char *const **)(void *)at,
                                   (uint32_t *)(void *)(at + sizeof(char **)));
    case STK_SPEC_BOOL:
        return stk_spec_read_bool(r, value, field->label, (bool *)at);
    case STK_SPEC_COUNT:
        STK_TRY(stk_spec_read_int(r, value, field->label, 0, field->max, &n));
        *(uint32_t *)(void *)at = (uint32_t)n;
        return 0;
    case STK_SPEC_INT:
        return stk_spec_read_int(r, value, field->label, field->min, field->max,
                                 (int64_t *)(void *)at);
    case STK_SPEC_REAL:
        return stk_spec_read_real(r, value, field->label, (double)field->min, (double)field->max,
                                  (double *)(void *)at);
    case STK_SPEC_DURATION:
        return stk_spec_read_duration(r, value, field->label, (int64_t *)(void *)at);
    case STK_SPEC_OBJECT:
        STK_TRY(stk_spec_read_map(r, value, field->label));
        return stk_spec_read_json(r, value, (const char **)(void *)at);
    }
    return 0;
}

int stk_spec_read_fields(stk_spec_reader *r, const stk_json *map, const char *where,
                         const stk_spec_field *fields, int n_fields, void *to)
{
    enum { MOST = 16 };
    const char *keys[MOST];
    for (int i = 0; i < n_fields; i++) {
        const char *dot = strrchr(fields[i].label, '.');
        keys[i] = dot == NULL ? fields[i].label : dot + 1;
    }
    STK_TRY(stk_spec_read_map(r, map, where));
    for (uint32_t i = 0; i < map->n; i++) {
        int key = stk_spec_key(r, stk_json_key(map, i), keys, n_fields, where);
        STK_TRY(key);
        if (stk_json_value(map, i)->kind != STK_JSON_NULL) {
            STK_TRY(
                read_field(r, stk_json_value(map, i), &fields[key], (char *)to + fields[key].at));
        }
    }
    return 0;
}

/* The depth limit of documents bounds the recursion. */
int stk_spec_merge(stk_spec_reader *r, const stk_json *base, const stk_json *over,
                   stk_json *ret_node)
{
    if (over->kind == STK_JSON_NULL) {
        *ret_node = *base;
        return 0;
    }
    if (base->kind != STK_JSON_MAP || over->kind != STK_JSON_MAP) {
        *ret_node = *over;
        return 0;
    }
    stk_json *items = stk_arena_array(r->arena, 2 * ((size_t)base->n + over->n), sizeof *items);
    STK_MAP_AUTO index = {0};
    uint32_t n = 0;
    STK_TRY(stk_spec_if_null(r, items));
    for (; n < base->n; n++) {
        items[2 * n] = *stk_json_key(base, n);
        items[2 * n + 1] = *stk_json_value(base, n);
        if (stk_map_put(&index, items[2 * n].text, n) < 0) {
            return stk_spec_no_memory(r);
        }
    }
    for (uint32_t i = 0; i < over->n; i++) {
        uint64_t at;
        const stk_json *key = stk_json_key(over, i);
        if (stk_map_get(&index, key->text, &at)) {
            STK_TRY(
                stk_spec_merge(r, &items[2 * at + 1], stk_json_value(over, i), &items[2 * at + 1]));
        } else {
            items[2 * n] = *key;
            items[2 * n + 1] = *stk_json_value(over, i);
            n++;
        }
    }
    *ret_node = (stk_json){.items = items, .n = n, .kind = STK_JSON_MAP, .line = over->line};
    return 0;
}
