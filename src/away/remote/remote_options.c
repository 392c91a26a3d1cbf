/* Reads options of a backend, checks them by its table, and finds them by name. */
#include "away/remote/remote_options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"

enum { ROWS = 64 };

static const stk_json_limits limits = {.bytes = 1 << 20, .nodes = 100000, .depth = 16};

static bool read_number(const stk_json *value, double *ret)
{
    const char *text = stk_json_text(value);
    char *end = NULL;
    if (text == NULL) {
        return stk_json_real(value, ret);
    }
    *ret = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*ret);
}

/* A line break would begin another line where an option is written into a script. */
static bool is_line(const stk_json *value)
{
    const char *text = stk_json_text(value);
    return text != NULL && *text != '\0' && strpbrk(text, "\r\n") == NULL;
}

static bool are_lines(const stk_json *value)
{
    const stk_json *items = NULL;
    uint32_t n = stk_json_as_list(value, &items);
    for (uint32_t i = 0; i < n; i++) {
        if (!is_line(&items[i])) {
            return false;
        }
    }
    return true;
}

/* Returns NULL if the value has the type, else the expected form. */
static const char *expected(const stk_json *value, stk_option_type type)
{
    static const char *const forms[] = {[STK_OPTION_TEXT] = "text of one line",
                                        [STK_OPTION_WHOLE] = "a whole number, 0 or more",
                                        [STK_OPTION_NUMBER] = "a number above 0",
                                        [STK_OPTION_BOOL] = "true or false",
                                        [STK_OPTION_TEXTS] = "a list of texts, each of one line"};
    double number = 0;
    bool is_number = read_number(value, &number) && number < 1e9, is_good = false;
    switch (type) {
    case STK_OPTION_TEXT:
        is_good = is_line(value) || stk_json_is_number(value);
        break;
    case STK_OPTION_WHOLE:
        is_good = is_number && number >= 0 && number == floor(number);
        break;
    case STK_OPTION_NUMBER:
        is_good = is_number && number > 0;
        break;
    case STK_OPTION_BOOL:
        is_good = value->kind == STK_JSON_BOOL;
        break;
    case STK_OPTION_TEXTS:
        is_good = are_lines(value);
        break;
    }
    return is_good ? NULL : forms[type];
}

/* A step isn't told of options that are only the stack's. */
static int refuse_unknown(const stk_option_table *table, const char *who, const char *name,
                          stk_err *err)
{
    const char *names[ROWS];
    size_t n = 0;
    bool is_of_step = *who == '\0'; /* its own name stands before the sentence */
    for (uint32_t i = 0; i < table->n && n < ROWS; i++) {
        if (!is_of_step || table->rows[i].how != STK_OPTION_STACK) {
            names[n++] = table->rows[i].name;
        }
    }
    const char *near = stk_units_nearest(name, names, n);
    if (near == NULL) {
        return stk_err_set(err, STK_E_SPEC, "%s%s has no option '%s'; %s", who, table->name, name,
                           table->page);
    }
    return stk_err_set(err, STK_E_SPEC, "%s%s has no option '%s'; did you mean '%s'?", who,
                       table->name, name, near);
}

static int check_one(const stk_option_table *table, const char *who, const char *name,
                     const stk_json *value, stk_err *err)
{
    uint32_t k = 0;
    while (k < table->n && strcmp(table->rows[k].name, name) != 0) {
        k++;
    }
    if (k == table->n) {
        return refuse_unknown(table, who, name, err);
    }
    const stk_option_row *row = &table->rows[k];
    if (value->kind == STK_JSON_NULL) {
        return 0;
    }
    if (row->how == STK_OPTION_REFUSED) {
        return stk_err_set(err, STK_E_SPEC, "%s%s steps have no option '%s': %s", who, table->name,
                           name, row->text);
    }
    const char *form = expected(value, row->type);
    if (form == NULL) {
        return 0;
    }
    const char *given = stk_json_kind_words(value->kind);
    if (value->kind == STK_JSON_TEXT || stk_json_is_number(value)) {
        given = stk_text_or(stk_text_if_any(value->text), "an empty text");
    }
    return stk_err_set(err, STK_E_SPEC, "%soption '%s' of %s must be %s, not %s", who, name,
                       table->name, form, given);
}

static int read_options_of(const stk_option_table *table, const char *who, const char *text,
                           stk_arena *arena, const stk_json **ret, stk_err *err)
{
    stk_json *root = stk_arena_alloc(arena, sizeof *root);
    STK_TRY(stk_err_if_null(root, err));
    STK_TRY(stk_json_parse(text, strlen(text), "options", &limits, arena, root, err));
    if (root->kind != STK_JSON_MAP) {
        return stk_err_set(err, STK_E_SPEC, "%soptions of %s are %s; they must be a mapping", who,
                           table->name, stk_json_kind_words(root->kind));
    }
    for (uint32_t i = 0; i < root->n; i++) {
        STK_TRY(check_one(table, who, stk_json_key(root, i)->text, stk_json_value(root, i), err));
    }
    *ret = root;
    return 0;
}

int stk_remote_options_read(const stk_option_table *table, const char *step, const char *options,
                            const char *stack_options, stk_arena *arena, stk_remote_options *ret,
                            stk_err *err)
{
    static const char stack[] = "the stack: ";
    *ret = (stk_remote_options){0};
    STK_TRY(read_options_of(table, stack, stk_text_or(stack_options, "{}"), arena, &ret->layers[1],
                            err));
    /* A step's options are merged with the stack's, so options of stacks are valid there, too. */
    return read_options_of(table, step == NULL ? stack : "", stk_text_or(options, "{}"), arena,
                           &ret->layers[0], err);
}

const stk_json *stk_remote_option(const stk_remote_options *options, const char *name)
{
    for (int i = 0; i < 2; i++) {
        const stk_json *value = stk_json_get(options->layers[i], name);
        if (value != NULL && value->kind != STK_JSON_NULL) {
            return value;
        }
    }
    return NULL;
}

const char *stk_remote_option_text(const stk_remote_options *options, const char *name)
{
    const stk_json *value = stk_remote_option(options, name);
    return value == NULL ? NULL : value->text;
}

double stk_remote_option_number(const stk_remote_options *options, const char *name,
                                double otherwise)
{
    const stk_json *value = stk_remote_option(options, name);
    double number = 0;
    return value != NULL && read_number(value, &number) ? number : otherwise;
}

uint32_t stk_remote_option_texts(const stk_remote_options *options, const char *name,
                                 const stk_json **ret)
{
    return stk_json_as_list(stk_remote_option(options, name), ret);
}
