/* Reads options of Batch, checks them by the table, and finds them by name. */
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

/* Reads a number, or a number as text from a command line. */
static bool as_number(const stk_json *value, double *ret)
{
    const char *text = stk_json_text(value);
    char *end = NULL;
    if (text == NULL) {
        return stk_json_real(value, ret);
    }
    double number = strtod(text, &end);
    if (end == text || *end != 0 || !isfinite(number)) {
        return false;
    }
    *ret = number;
    return true;
}

static bool as_bool(const stk_json *value, bool *ret)
{
    bool yes = stk_json_is_true(value) || stk_json_is(value, "true") ||
               stk_json_is(value, "True") || stk_json_is(value, "1");
    bool no = stk_json_is_false(value) || stk_json_is(value, "false") ||
              stk_json_is(value, "False") || stk_json_is(value, "0");
    if (yes || no) {
        *ret = yes;
    }
    return yes || no;
}

static bool is_scalar(const stk_json *value)
{
    return value->kind != STK_JSON_LIST && value->kind != STK_JSON_MAP &&
           value->kind != STK_JSON_NULL;
}

static bool is_texts(const stk_json *value, bool pairs)
{
    const stk_json *items;
    uint32_t n = stk_json_as_list(value, &items);
    for (uint32_t i = 0; i < n; i++) {
        const char *text = stk_json_text(&items[i]);
        if (text == NULL || (pairs && strpbrk(text, ":=") == NULL)) {
            return false;
        }
    }
    return true;
}

/* Returns NULL if the value has the type, else the expected form. */
static const char *should_be(const stk_json *value, option_type type)
{
    static const char *const words[] = {[TEXT] = "text",
                                        [WHOLE] = "a whole number, 0 or more",
                                        [NUMBER] = "a number above 0",
                                        [BOOL] = "true or false",
                                        [TEXTS] = "a list of strings",
                                        [PAIRS] = "a mapping, or a list of \"key:value\""};
    double number;
    bool good = true;
    switch (type) {
    case TEXT:
        good = is_scalar(value);
        break;
    case WHOLE:
        good = as_number(value, &number) && number >= 0 && number == floor(number) && number < 1e15;
        break;
    case NUMBER:
        good = as_number(value, &number) && number > 0 && number < 1e9;
        break;
    case BOOL:
        good = as_bool(value, &good);
        break;
    case TEXTS:
        good = is_texts(value, false);
        break;
    case PAIRS:
        for (uint32_t i = 0; i < stk_json_n_members(value); i++) {
            if (!is_scalar(stk_json_value(value, i))) {
                return "a mapping of strings";
            }
        }
        good = stk_json_is_map(value) || is_texts(value, true);
        break;
    }
    return good ? NULL : words[type];
}

/* Formats a value for a message. */
static const char *shown(const stk_json *value, char *buf, size_t size)
{
    if (stk_json_text(value) != NULL) {
        (void)snprintf(buf, size, "'%s'", stk_json_text(value));
        return buf;
    }
    if (stk_json_is_number(value)) {
        return value->text;
    }
    return stk_json_kind_words(value->kind);
}

static int check_options(const char *who, const stk_json *map, bool is_stack, stk_err *err)
{
    static const char *const names[] = {
#define X(name, type, how, text) #name,
#include "tbl/batch_options.def"
#undef X
    };
    for (uint32_t i = 0; i < map->n; i++) {
        const char *name = stk_json_key(map, i)->text;
        const stk_json *value = stk_json_value(map, i);
        size_t k = 0;
        while (k < N_OPTIONS && strcmp(names[k], name) != 0) {
            k++;
        }
        const struct option *option = &options_known[k];
        if (k == N_OPTIONS) {
            const char *near = stk_units_nearest(name, names, N_OPTIONS);
            if (near == NULL) {
                return stk_err_set(err, STK_E_SPEC,
                                   "%sAWS Batch has no option '%s'; docs/batch.md lists them", who,
                                   name);
            }
            return stk_err_set(err, STK_E_SPEC,
                               "%sAWS Batch has no option '%s'; did you mean '%s'?", who, name,
                               near);
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (option->how == REFUSED) {
            return stk_err_set(err, STK_E_SPEC, "%sAWS Batch doesn't support '%s': %s", who, name,
                               option->text);
        }
        if (option->how == STACK && !is_stack) {
            return stk_err_set(err, STK_E_SPEC, "%s'%s' is an option of the stack, not of a step",
                               who, name);
        }
        const char *type = should_be(value, option->type);
        if (type != NULL) {
            char buf[600];
            return stk_err_set(err, STK_E_SPEC, "%soption '%s' of AWS Batch is %s; it must be %s",
                               who, name, shown(value, buf, sizeof buf), type);
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
    STK_TRY(stk_err_if_null(root, err));
    STK_TRY(stk_json_parse(text, strlen(text), "options", &limits, arena, root, err));
    if (root->kind != STK_JSON_MAP) {
        return stk_err_set(err, STK_E_SPEC, "%soptions of AWS Batch are %s; they must be a mapping",
                           who, stk_json_kind_words(root->kind));
    }
    *ret = root;
    return check_options(who, root, is_stack, err);
}

int stk_batch_options_read(const char *step, const char *options, const char *stack_options,
                           stk_arena *arena, stk_batch_options *ret, stk_err *err)
{
    static const char stack[] = "the stack: ";
    *ret = (stk_batch_options){.step = step};
    STK_TRY(read_layer(stack, stack_options, true, arena, &ret->layers[1], err));
    /* A step's options are merged with the stack's, so options of stacks are valid there, too. */
    return read_layer(step != NULL ? "" : stack, options, stack_options != NULL, arena,
                      &ret->layers[0], err);
}

const stk_json *stk_batch_option(const stk_batch_options *options, const char *name)
{
    for (int i = 0; i < 2; i++) {
        const stk_json *value = stk_json_get(options->layers[i], name);
        if (value != NULL && value->kind != STK_JSON_NULL) {
            return value;
        }
    }
    return NULL;
}

const char *stk_batch_text_of(const stk_json *value)
{
    if (value == NULL || value->kind != STK_JSON_BOOL) {
        return value == NULL ? NULL : value->text;
    }
    return value->truth ? "true" : "false";
}

const char *stk_batch_text(const stk_batch_options *options, const char *name)
{
    return stk_batch_text_of(stk_batch_option(options, name));
}

double stk_batch_number(const stk_batch_options *options, const char *name)
{
    double number = -1;
    (void)as_number(stk_batch_option(options, name), &number);
    return number;
}

int64_t stk_batch_whole(const stk_batch_options *options, const char *name)
{
    return (int64_t)stk_batch_number(options, name);
}

bool stk_batch_bool(const stk_batch_options *options, const char *name, bool unless)
{
    const stk_json *value = stk_batch_option(options, name);
    (void)(value != NULL && as_bool(value, &unless));
    return unless;
}
