/* Parameters: declarations, and values from the command line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "base/units.h"
#include "model/spec/spec_read.h"

static const char *const types[] = {"int", "float", "str", "bool", "json"};
enum { N_TYPES = sizeof types / sizeof *types };

static bool fits(const stk_json *value, const char *type)
{
    switch ((stk_json_kind)value->kind) {
    case STK_JSON_NULL:
        return true;
    case STK_JSON_INT:
        return strcmp(type, "int") == 0 || strcmp(type, "float") == 0 || strcmp(type, "json") == 0;
    case STK_JSON_REAL:
        return strcmp(type, "float") == 0 || strcmp(type, "json") == 0;
    case STK_JSON_TEXT:
        return strcmp(type, "str") == 0 || strcmp(type, "json") == 0;
    case STK_JSON_BOOL:
        return strcmp(type, "bool") == 0 || strcmp(type, "json") == 0;
    default:
        return strcmp(type, "json") == 0;
    }
}

/* Without a declared type, the default gives the type; null gives none. */
static const char *type_of_default(const stk_json *value)
{
    static const char *const of[] = {
        [STK_JSON_NULL] = NULL,    [STK_JSON_BOOL] = "bool", [STK_JSON_INT] = "int",
        [STK_JSON_REAL] = "float", [STK_JSON_TEXT] = "str",  [STK_JSON_LIST] = "json",
        [STK_JSON_MAP] = "json"};
    return of[value->kind];
}

/* A run recorded with such a value could not be read again. */
static int refuse_value(const stk_param *param, const char *why, stk_err *err)
{
    stk_err_set(err, STK_E_SPEC, "parameter '%s' is or holds %s, so the run can't be recorded",
                param->name, why);
    stk_err_hint(err, "write it as a string, or pass a file that a step reads");
    return STK_E_SPEC;
}

static int set_value(stk_spec_reader *r, const stk_json *value, stk_param *param)
{
    double number;
    const char *why = stk_json_not_kept(value, NULL);
    if (why != NULL) {
        int rc = refuse_value(param, why, r->err);
        stk_err_at(r->err, r->path, (int)value->line);
        return rc;
    }
    if (param->type != NULL && strcmp(param->type, "float") == 0 && stk_json_real(value, &number)) {
        char text[32];
        stk_json_format_real(number, text); /* 1, 1.0 and 1.00 are the same float */
        param->value = stk_arena_dup(r->arena, text);
        return stk_spec_if_null(r, param->value);
    }
    return stk_spec_read_json(r, value, &param->value);
}

static int read_declaration(stk_spec_reader *r, const stk_json *map, stk_param *param)
{
    static const char *const keys[] = {"type", "default", "help", "required"};
    const stk_json *preset = NULL;
    bool required = false;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_key(r, stk_json_key(map, i), keys, 4, param->name);
        if (key < 0) {
            stk_err_hint(r->err, "write a parameter as its default or as {type, default, help, "
                                 "required}; a default that is a mapping as {default: {…}}");
            return key;
        }
        if (key == 1) {
            preset = value;
        } else if (value->kind == STK_JSON_NULL) {
            continue;
        } else if (key == 0) {
            rc = stk_spec_read_text(r, value, "type", &param->type);
            bool known = false;
            for (int j = 0; rc == 0 && j < N_TYPES; j++) {
                known |= strcmp(types[j], param->type) == 0;
            }
            if (rc == 0 && !known) {
                return stk_spec_wrong(r, value, "type", "int, float, str, bool or json");
            }
        } else if (key == 2) {
            rc = stk_spec_read_text(r, value, "help", &param->help);
        } else {
            rc = stk_spec_read_bool(r, value, "required", &required);
        }
    }
    if (rc < 0 || preset == NULL) {
        return rc;
    }
    if (required) {
        return stk_spec_fail(
            r, preset, "parameter '%s': 'required' and 'default' exclude each other", param->name);
    }
    if (param->type != NULL && !fits(preset, param->type)) {
        return stk_spec_wrong(r, preset, param->name, param->type);
    }
    param->type = stk_text_or(param->type, type_of_default(preset));
    return set_value(r, preset, param);
}

int stk_spec_read_params(stk_spec_reader *r, const stk_json *node)
{
    int rc = stk_spec_read_map(r, node, "parameters");
    if (rc < 0) {
        return rc;
    }
    if (node->n > STK_LIMIT_ENV) {
        return stk_spec_fail_code(r, STK_E_LIMIT, node, "%u parameters; %d is the limit",
                                  (unsigned)node->n, STK_LIMIT_ENV);
    }
    stk_param *params = stk_arena_array(r->arena, node->n, sizeof *params);
    if (params == NULL) {
        return stk_spec_no_memory(r);
    }
    for (uint32_t i = 0; rc == 0 && i < node->n; i++) {
        const stk_json *key = stk_json_key(node, i);
        const stk_json *value = stk_json_value(node, i);
        params[i].name = key->text;
        if (!stk_units_is_name(key->text, true)) {
            return stk_spec_fail(r, key,
                                 "parameter '%.80s': a name is made of letters, digits and _ . -",
                                 key->text);
        }
        params[i].type = type_of_default(value);
        if (value->kind == STK_JSON_MAP) {
            params[i].type = NULL;
            rc = read_declaration(r, value, &params[i]);
        } else {
            rc = set_value(r, value, &params[i]);
        }
    }
    r->spec->params = params;
    r->spec->n_params = node->n;
    return rc;
}

/* --- values from outside --- */

static stk_param *find_param(const stk_spec *spec, const char *name)
{
    for (uint32_t i = 0; i < spec->n_params; i++) {
        if (strcmp(spec->params[i].name, name) == 0) {
            return &spec->params[i];
        }
    }
    return NULL;
}

static int unknown(const stk_spec *spec, const char *name, stk_err *err)
{
    const char **names = calloc((size_t)spec->n_params + 1, sizeof *names);
    stk_err_set(err, STK_E_USAGE, "pipeline '%s' has no parameter '%.128s'", spec->name, name);
    for (uint32_t i = 0; names != NULL && i < spec->n_params; i++) {
        names[i] = spec->params[i].name;
    }
    const char *near = NULL;
    if (names != NULL) {
        near = stk_units_nearest(name, names, spec->n_params);
    }
    if (near != NULL) {
        stk_err_hint(err, "did you mean '%s'?", near);
    }
    free(names);
    return STK_E_USAGE;
}

static const char *type_of(const stk_param *param)
{
    return stk_text_or(param->type, "any");
}

static int parse_value(stk_spec *spec, const char *text, stk_json *ret_node)
{
    static const stk_json_limits limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES,
                                           STK_LIMIT_DEPTH};
    return stk_json_parse(text, strlen(text), NULL, &limits, spec->arena, ret_node, NULL);
}

static int wrong_value(const stk_param *param, const char *type, const char *value, stk_err *err)
{
    static const struct {
        const char *type, *words;
    } table[] = {{"int", "a whole number"},
                 {"float", "a number"},
                 {"bool", "true or false"},
                 {"json", "JSON"},
                 {"str", "text"}};
    const char *words = type;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (strcmp(table[i].type, type) == 0) {
            words = table[i].words;
        }
    }
    return stk_err_set(err, STK_E_USAGE, "parameter '%s' takes %s, not '%.80s'", param->name, words,
                       value);
}

/* Reads text from a command line as `type`. Accepts numbers in Python's forms: 1e-3, +5, .5. */
static int read_as(stk_spec *spec, const char *type, const char *text, stk_json *ret_node)
{
    char *end;
    *ret_node = (stk_json){.kind = STK_JSON_TEXT, .text = text, .n = (uint32_t)strlen(text)};
    if (strcmp(type, "str") == 0) {
        return 0;
    }
    if (strcmp(type, "bool") == 0) {
        bool yes = strcasecmp(text, "true") == 0 || strcmp(text, "1") == 0;
        bool no = strcasecmp(text, "false") == 0 || strcmp(text, "0") == 0;
        *ret_node = stk_json_of_bool(yes);
        return yes || no ? 0 : -1;
    }
    if (strcmp(type, "float") == 0) {
        char digits[32];
        double number = strtod(text, &end);
        if (end == text || *end != '\0' || !isfinite(number) || strpbrk(text, "xX \t\n") != NULL) {
            return -1;
        }
        stk_json_format_real(number, digits);
        ret_node->text = stk_arena_dup(spec->arena, digits);
        ret_node->n = (uint32_t)strlen(digits);
        ret_node->kind = STK_JSON_REAL;
        return ret_node->text == NULL ? -1 : 0;
    }
    if (strcmp(type, "int") == 0) {
        text += *text == '+';
        return parse_value(spec, text, ret_node) < 0 || ret_node->kind != STK_JSON_INT ? -1 : 0;
    }
    if (parse_value(spec, text, ret_node) == 0) {
        return 0;
    }
    if (strcmp(type, "any") == 0) {
        *ret_node = (stk_json){.kind = STK_JSON_TEXT, .text = text, .n = (uint32_t)strlen(text)};
        return 0;
    }
    return -1;
}

int stk_spec_set_param(stk_spec *spec, const char *name, const char *value, stk_err *err)
{
    stk_param *param = find_param(spec, name);
    if (param == NULL) {
        return unknown(spec, name, err);
    }
    const char *type = type_of(param);
    stk_json node;
    if (!stk_json_is_utf8(value, strlen(value))) {
        return refuse_value(param, "text that isn't UTF-8", err);
    }
    if (read_as(spec, type, value, &node) < 0) {
        return wrong_value(param, type, value, err);
    }
    const char *why = stk_json_not_kept(&node, NULL);
    if (why != NULL) {
        return refuse_value(param, why, err);
    }
    const char *json = stk_json_dump_in(&node, spec->arena);
    if (json == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for parameter '%s'", name);
    }
    param->value = json;
    stk_spec_free_titles(spec);
    return 0;
}

int stk_spec_set_param_json(stk_spec *spec, const char *name, const char *json, stk_err *err)
{
    stk_param *param = find_param(spec, name);
    stk_json node;
    if (param == NULL) {
        return unknown(spec, name, err);
    }
    const char *type = type_of(param);
    if (parse_value(spec, json, &node) < 0 || (strcmp(type, "any") != 0 && !fits(&node, type))) {
        return wrong_value(param, type, json, err);
    }
    stk_spec_reader r = {.arena = spec->arena, .path = spec->path, .err = err, .spec = spec};
    stk_spec_free_titles(spec);
    return set_value(&r, &node, param);
}

int stk_spec_check_params(const stk_spec *spec, stk_err *err)
{
    STK_BUF_AUTO names = STK_BUF_INIT(400);
    uint32_t n = 0;
    for (uint32_t i = 0; i < spec->n_params; i++) {
        if (spec->params[i].value == NULL) {
            stk_buf_separate(&names, ", ");
            stk_buf_printf(&names, "'%s'", spec->params[i].name);
            n++;
        }
    }
    if (n == 0) {
        return 0;
    }
    stk_err_set(err, STK_E_USAGE, "pipeline '%s' needs a value for %s %s", spec->name,
                stk_text_noun(n, "parameter", "parameters"), stk_text_or(names.data, ""));
    stk_err_hint(err, "give each with --param NAME=VALUE");
    return STK_E_USAGE;
}
