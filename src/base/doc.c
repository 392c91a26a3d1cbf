/* jansson's documents, as most of us want them read and written. */
#include "base/doc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

json_t *stk_doc_read(const char *text)
{
    if (text == NULL) {
        return NULL;
    }
    return json_loads(text, JSON_ALLOW_NUL, NULL);
}

const char *stk_doc_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

double stk_doc_number(const json_t *object, const char *key, double fallback)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : fallback;
}

int64_t stk_doc_integer(const json_t *object, const char *key, int64_t fallback)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_integer(value)) {
        return json_integer_value(value);
    }
    double real = json_is_real(value) ? json_real_value(value) : NAN;
    return fabs(real) < 9e18 ? (int64_t)real : fallback;
}

static void put_real(stk_buf *out, double value)
{
    char text[40];
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value) {
            break;
        }
    }
    stk_buf_text(out, text);
    if (strpbrk(text, ".en") == NULL) {
        stk_buf_text(out, ".0"); /* stays a real when it is read again */
    }
}

/* Recursion is bounded by jansson's own limit on nesting when it read the value. */
void stk_doc_put(stk_buf *out, const json_t *value)
{
    if (json_is_object(value)) {
        const char *key;
        json_t *member;
        char before = '{';
        json_object_foreach((json_t *)(uintptr_t)value, key, member)
        {
            stk_buf_char(out, before);
            stk_buf_json(out, key);
            stk_buf_char(out, ':');
            stk_doc_put(out, member);
            before = ',';
        }
        stk_buf_text(out, before == '{' ? "{}" : "}");
    } else if (json_is_array(value)) {
        stk_buf_char(out, '[');
        for (size_t i = 0; i < json_array_size(value); i++) {
            stk_buf_text(out, i > 0 ? "," : "");
            stk_doc_put(out, json_array_get(value, i));
        }
        stk_buf_char(out, ']');
    } else if (json_is_string(value)) {
        stk_buf_json(out, json_string_value(value));
    } else if (json_is_integer(value)) {
        stk_buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    } else if (json_is_real(value)) {
        put_real(out, json_real_value(value));
    } else if (json_is_boolean(value)) {
        stk_buf_text(out, json_is_true(value) ? "true" : "false");
    } else {
        stk_buf_text(out, "null");
    }
}

const char *stk_doc_dup(stk_arena *arena, const json_t *value)
{
    if (value == NULL) {
        return NULL;
    }
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2u);
    stk_doc_put(&text, value);
    return stk_buf_keep(&text, arena);
}
