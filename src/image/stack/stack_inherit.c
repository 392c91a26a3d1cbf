/* What a stack says nothing of, and Metaflow's settings do. */
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/text.h"
#include "image/stack/stack_metaflow.h"
#include "image/stack/stack_private.h"
#include "model/spec/spec_read.h"

typedef enum { TEXT, TEXTS, PAIRS, JSON } shape;
typedef enum { OPTION, JOINED, IMAGE, REGISTRY } how;

static const struct row {
    stk_place_kind kind;
    shape shape;
    how how;
    const char *name, *variable;
} rows[] = {
#define X(kind, shape, how, name, variable) {STK_PLACE_##kind, shape, how, name, variable},
#include "tbl/metaflow_settings.def"
#undef X
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static const struct {
    const char *name, *same;
} kubernetes_names[] = {
#define X(name, same, type, from, how, words) {name, same},
#include "tbl/kubernetes_options.def"
#undef X
};

static const stk_json_limits limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES, STK_LIMIT_DEPTH};

/* The name that several names of one option stand for. */
static const char *meaning(stk_place_kind kind, const char *name)
{
    for (size_t i = 0; i < sizeof kubernetes_names / sizeof *kubernetes_names; i++) {
        if (kind == STK_PLACE_KUBERNETES && strcmp(kubernetes_names[i].name, name) == 0 &&
            *kubernetes_names[i].same != '\0') {
            return kubernetes_names[i].same;
        }
    }
    return name;
}

/* "a,b" as a list, "k=v,l" as a map, whose values are text. */
static int split_words(const char *text, bool pairs, stk_arena *arena, stk_json *ret, stk_err *err)
{
    STK_BUF_AUTO json = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    const char *brackets = pairs ? "{}" : "[]";
    stk_json_open(&json, NULL, brackets[0]);
    for (const char *c = text; *c != '\0';) {
        size_t n = strcspn(c, ","), n_key = strcspn(c, "=,"), from = MIN(n_key + 1, n);
        if (n > 0 && pairs) {
            const char *key = stk_text_or(stk_arena_dupn(arena, c, n_key), "");
            const char *value = stk_text_or(stk_arena_dupn(arena, c + from, n - from), "");
            stk_json_put_text(&json, key, value);
        } else if (n > 0) {
            stk_json_put_text(&json, NULL, stk_text_or(stk_arena_dupn(arena, c, n), ""));
        }
        c += n + (c[n] == ',');
    }
    stk_json_close(&json, brackets[1]);
    STK_TRY(stk_buf_check(&json, err));
    return stk_json_parse(json.data, json.len, NULL, &limits, arena, ret, err);
}

static int read_value(const struct row *row, const char *value, stk_arena *arena, stk_json *ret,
                      stk_err *err)
{
    int rc = 0;
    if (row->shape == TEXT) {
        *ret = (stk_json){.text = value, .n = (uint32_t)strlen(value), .kind = STK_JSON_TEXT};
    } else if (row->shape == JSON || *value == '{' || *value == '[') {
        rc = stk_json_parse(value, strlen(value), NULL, &limits, arena, ret, err);
        if (rc == 0 && ret->kind != STK_JSON_MAP && ret->kind != STK_JSON_LIST) {
            rc = stk_err_set(err, STK_E_SPEC, "it must be a list or a mapping");
        }
    } else {
        rc = split_words(value, row->shape == PAIRS, arena, ret, err);
    }
    if (rc < 0) {
        return stk_err_context(err, "%s isn't valid", row->variable);
    }
    return 0;
}

static bool is_inherited(const stk_stack *stack, const char *name)
{
    for (uint32_t i = 0; i < stack->n_inherited; i++) {
        if (strcmp(stack->inherited[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static const stk_json *own_option(const stk_stack *stack, const stk_json *own, const char *name)
{
    for (uint32_t i = 0; own->kind == STK_JSON_MAP && i < own->n; i++) {
        if (strcmp(meaning(stack->kind, stk_json_key(own, i)->text), name) == 0 &&
            stk_json_value(own, i)->kind != STK_JSON_NULL) {
            return stk_json_value(own, i);
        }
    }
    return NULL;
}

int64_t stk_stack_whole_option(const stk_stack *stack, const stk_json *options, const char *name,
                               int64_t otherwise)
{
    const stk_json *value = own_option(stack, options, name);
    const char *text = stk_json_text(value);
    char *end = NULL;
    int64_t number = otherwise;
    if (text == NULL) {
        (void)stk_json_int(value, &number);
        return number;
    }
    number = strtoll(text, &end, 10); /* as a command line has it */
    if (end == text || *end != '\0') {
        return otherwise;
    }
    return number;
}

int stk_stack_inherit(stk_stack *stack, stk_arena *arena, stk_err *err)
{
    stk_inherited *all = stk_arena_array(arena, N_ROWS, sizeof *all);
    stk_json own = {0};
    stack->own_options = stack->options;
    STK_TRY(stk_err_if_null(all, err));
    if (stack->own_options != NULL) {
        STK_TRY(stk_json_parse(stack->own_options, strlen(stack->own_options), NULL, &limits, arena,
                               &own, err));
    }
    stack->inherited = all;
    int64_t pending_s = stk_stack_whole_option(stack, &own, "pending_seconds", -1);
    stack->max_jobs = stk_stack_whole_option(stack, &own, "max_jobs", stack->max_jobs);
    if (pending_s >= 0) {
        stack->pending_ms = pending_s * 1000;
    }
    for (size_t i = 0; i < N_ROWS; i++) {
        const struct row *row = &rows[i];
        stk_inherited one = {.name = row->name,
                             .variable = row->variable,
                             .is_option = row->how <= JOINED,
                             .is_joined = row->how == JOINED};
        bool is_own = row->how == IMAGE && stack->default_image != NULL;
        if (row->kind != stack->kind || is_own || is_inherited(stack, row->name) ||
            (row->how == OPTION && own_option(stack, &own, row->name) != NULL) ||
            (one.value = stk_metaflow_setting(row->variable, &one.from)) == NULL) {
            continue;
        }
        STK_TRY(read_value(row, one.value, arena, &one.node, err));
        if (row->how == IMAGE) {
            stack->default_image = one.value;
        }
        if (row->how == REGISTRY) {
            stack->image_registry = one.value;
        }
        all[stack->n_inherited++] = one;
    }
    if (stack->n_inherited == 0) {
        return 0;
    }
    STK_TRY(stk_stack_lay_over(stack, &own, arena, &own, err));
    stack->options = stk_json_dump_in(&own, arena);
    return stk_err_if_null(stack->options, err);
}

static int join(const stk_json *under, const stk_json *over, stk_arena *arena, stk_json *ret,
                stk_err *err)
{
    stk_spec_reader r = {.arena = arena, .err = err};
    stk_json list = *over;
    int rc = 0;
    if (under->kind != STK_JSON_LIST) {
        return stk_spec_merge(&r, under, over, ret);
    }
    if (stk_json_text(over) != NULL) {
        rc = split_words(over->text, false, arena, &list, err);
    }
    if (rc < 0 || list.kind != STK_JSON_LIST) {
        return rc; /* of another type: whoever reads it says so */
    }
    stk_json *items = stk_arena_array(arena, (size_t)under->n + list.n, sizeof *items);
    STK_TRY(stk_err_if_null(items, err));
    memcpy(items, under->items, under->n * sizeof *items);
    memcpy(items + under->n, list.items, list.n * sizeof *items);
    *ret = (stk_json){.items = items, .n = under->n + list.n, .kind = STK_JSON_LIST};
    return 0;
}

int stk_stack_lay_over(const stk_stack *stack, const stk_json *own, stk_arena *arena, stk_json *ret,
                       stk_err *err)
{
    uint32_t n_own = 0;
    if (own->kind == STK_JSON_MAP) {
        n_own = own->n;
    }
    uint32_t n = n_own;
    stk_json *items =
        stk_arena_array(arena, 2 * ((size_t)n_own + stack->n_inherited), sizeof *items);
    STK_TRY(stk_err_if_null(items, err));
    if (n_own > 0) {
        memcpy(items, own->items, 2 * (size_t)n_own * sizeof *items);
    }
    for (uint32_t i = 0; i < stack->n_inherited; i++) {
        const stk_inherited *one = &stack->inherited[i];
        if (!one->is_option) {
            continue;
        }
        const stk_json *over = own_option(stack, own, one->name);
        if (over == NULL) {
            items[2 * n] = (stk_json){
                .text = one->name, .n = (uint32_t)strlen(one->name), .kind = STK_JSON_TEXT};
            items[2 * n++ + 1] = one->node;
        } else if (one->is_joined) {
            STK_TRY(join(&one->node, over, arena, &items[over - own->items], err));
        }
    }
    *ret = (stk_json){.items = items, .n = n, .kind = STK_JSON_MAP, .line = own->line};
    return 0;
}
