/* Options of Batch: read, checked by the table, asked for by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/batch/batch_private.h"
#include "base/text.h"
#include "base/units.h"

typedef enum { TEXT, WHOLE, NUMBER, BOOL, TEXTS, PAIRS } option_type;
typedef enum { JOB, STACK, ELSEWHERE, REFUSED } option_how;

static const struct option {
    const char *name;
    option_type type;
    option_how how;
    const char *text;
} options_known[] = {
#define X(name, type, how, text) {#name, type, how, text},
#include "tbl/batch_options.def"
#undef X
};
enum { N_OPTIONS = sizeof options_known / sizeof *options_known };

static const stk_json_limits limits = {.bytes = 1 << 20, .nodes = 100000, .depth = 16};

static const struct option *find(const char *name)
{
    for (size_t i = 0; i < N_OPTIONS; i++) {
        if (strcmp(options_known[i].name, name) == 0) {
            return &options_known[i];
        }
    }
    return NULL;
}

/* A number, or its text as command lines give it. */
static bool as_number(const stk_json *value, double *ret)
{
    const char *text = stk_json_text(value);
    char *end = NULL;
    if (text == NULL) {
        return stk_json_real(value, ret);
    }
    *ret = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*ret);
}

static bool as_bool(const stk_json *value, bool *ret)
{
    if (value->kind == STK_JSON_BOOL) {
        *ret = value->truth;
        return true;
    }
    *ret = stk_json_is(value, "true") || stk_json_is(value, "True") || stk_json_is(value, "1");
    return *ret || stk_json_is(value, "false") || stk_json_is(value, "False") ||
           stk_json_is(value, "0");
}

static bool is_scalar(const stk_json *value)
{
    return value->kind != STK_JSON_LIST && value->kind != STK_JSON_MAP &&
           value->kind != STK_JSON_NULL;
}

static bool is_texts(const stk_json *value, char needed)
{
    for (uint32_t i = 0; value->kind == STK_JSON_LIST && i < value->n; i++) {
        const char *text = stk_json_text(&value->items[i]);
        if (text == NULL || (needed != 0 && strpbrk(text, ":=") == NULL)) {
            return false;
        }
    }
    const char *alone = stk_json_text(value);
    return value->kind == STK_JSON_LIST ||
           (alone != NULL && (needed == 0 || strpbrk(alone, ":=") != NULL));
}

/* NULL: it is of the type; else what it should be. */
static const char *should_be(const stk_json *value, option_type type)
{
    double number;
    bool truth;
    switch (type) {
    case TEXT:
        return is_scalar(value) ? NULL : "text";
    case WHOLE:
        return as_number(value, &number) && number >= 0 && number == floor(number) && number < 1e15
                   ? NULL
                   : "a whole number from 0 on";
    case NUMBER:
        return as_number(value, &number) && number > 0 && number < 1e9 ? NULL : "a number above 0";
    case BOOL:
        return as_bool(value, &truth) ? NULL : "true or false";
    case TEXTS:
        return is_texts(value, 0) ? NULL : "a list of text";
    case PAIRS:
        if (value->kind != STK_JSON_MAP) {
            return is_texts(value, ':') ? NULL : "a mapping, or a list of \"key:value\"";
        }
        for (uint32_t i = 0; i < value->n; i++) {
            if (!is_scalar(stk_json_value(value, i))) {
                return "a mapping of text";
            }
        }
        return NULL;
    }
    return NULL;
}

static int check(const char *who, const stk_json *map, bool is_stack, stk_err *err)
{
    const char *names[N_OPTIONS];
    for (size_t i = 0; i < N_OPTIONS; i++) {
        names[i] = options_known[i].name;
    }
    for (uint32_t i = 0; i < map->n; i++) {
        const char *name = stk_json_key(map, i)->text;
        const stk_json *value = stk_json_value(map, i);
        const struct option *option = find(name);
        if (option == NULL) {
            const char *near = stk_units_nearest(name, names, N_OPTIONS);
            return stk_err_set(err, STK_E_SPEC, "%sAWS Batch has no option '%s'%s%s%s", who, name,
                               near != NULL ? "; did you mean '" : "; docs/batch.md lists them",
                               stk_text_or(near, ""), near != NULL ? "'?" : "");
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (option->how == REFUSED) {
            return stk_err_set(err, STK_E_SPEC, "%sAWS Batch can't honour '%s': %s", who, name,
                               option->text);
        }
        if (option->how == STACK && !is_stack) {
            return stk_err_set(err, STK_E_SPEC, "%s'%s' is an option of the stack, not of a step",
                               who, name);
        }
        const char *type = should_be(value, option->type);
        if (type != NULL) {
            const char *shown = stk_json_text(value);
            return stk_err_set(err, STK_E_SPEC,
                               "%soption '%s' of AWS Batch is %s%s%s; it must be %s", who, name,
                               shown != NULL ? "'" : "",
                               shown != NULL ? shown
                               : value->kind == STK_JSON_INT || value->kind == STK_JSON_REAL
                                   ? value->text
                                   : stk_json_kind_words(value->kind),
                               shown != NULL ? "'" : "", type);
        }
    }
    return 0;
}

static int read_layer(const char *who, const char *text, bool is_stack, stk_arena *arena,
                      const stk_json **ret, stk_err *err)
{
    if (text == NULL) {
        return 0;
    }
    stk_json *root = stk_arena_alloc(arena, sizeof *root);
    if (root == NULL) {
        return stk_err_nomem(err);
    }
    int rc = stk_json_parse(text, strlen(text), "options", &limits, arena, root, err);
    if (rc == 0 && root->kind != STK_JSON_MAP) {
        rc = stk_err_set(err, STK_E_SPEC, "%soptions of AWS Batch are %s; they must be a mapping",
                         who, stk_json_kind_words(root->kind));
    }
    rc = rc < 0 ? rc : check(who, root, is_stack, err);
    *ret = rc == 0 ? root : NULL;
    return rc;
}

int stk_batch_options_read(const char *step, const char *options, const char *stack_options,
                           stk_arena *arena, stk_batch_options *ret, stk_err *err)
{
    *ret = (stk_batch_options){.step = step};
    int rc = stack_options != NULL
                 ? read_layer("the stack: ", stack_options, true, arena, &ret->layers[1], err)
                 : 0;
    /* A step's options come merged with the stack's, so the stack's own pass there as well. */
    if (rc < 0) {
        return rc;
    }
    return read_layer(step != NULL ? "" : "the stack: ", options, stack_options != NULL, arena,
                      &ret->layers[0], err);
}

const stk_json *stk_batch_option(const stk_batch_options *options, const char *name)
{
    for (int i = 0; i < 2; i++) {
        const stk_json *value =
            options->layers[i] != NULL ? stk_json_get(options->layers[i], name) : NULL;
        if (value != NULL && value->kind != STK_JSON_NULL) {
            return value;
        }
    }
    return NULL;
}

const char *stk_batch_text(const stk_batch_options *options, const char *name)
{
    const stk_json *value = stk_batch_option(options, name);
    if (value == NULL) {
        return NULL;
    }
    if (value->kind == STK_JSON_BOOL) {
        return value->truth ? "true" : "false";
    }
    return value->text;
}

double stk_batch_number(const stk_batch_options *options, const char *name)
{
    double number = -1;
    const stk_json *value = stk_batch_option(options, name);
    return value != NULL && as_number(value, &number) ? number : -1;
}

int64_t stk_batch_whole(const stk_batch_options *options, const char *name)
{
    return (int64_t)stk_batch_number(options, name);
}

bool stk_batch_bool(const stk_batch_options *options, const char *name, bool unless)
{
    bool truth = unless;
    const stk_json *value = stk_batch_option(options, name);
    return value != NULL && as_bool(value, &truth) ? truth : unless;
}
