/* The limits of a container's processes: {nofile: 1024}, or as docker-py's Ulimit has them,
 * [{name: nofile, soft: 1024, hard: 4096}], with the engine's capitals, too. */
#include <string.h>

#include "base/text.h"
#include "model/spec/spec_read.h"

static const char *const kinds[] = {"core",    "cpu",      "data",   "fsize",      "locks",
                                    "memlock", "msgqueue", "nice",   "nofile",     "nproc",
                                    "rss",     "rtprio",   "rttime", "sigpending", "stack"};
static const char *const fields[] = {"name", "soft", "hard", "Name", "Soft", "Hard"};

enum { NAME, SOFT, HARD, N_FIELDS };

static const stk_json *field_of(const stk_json *item, int field)
{
    const stk_json *value = stk_json_get(item, fields[field]);
    if (value == NULL || value->kind == STK_JSON_NULL) {
        value = stk_json_get(item, fields[N_FIELDS + field]);
    }
    return value == NULL || value->kind == STK_JSON_NULL ? NULL : value;
}

static int check_item(stk_spec_reader *r, const stk_json *item, const char *key)
{
    if (item->kind != STK_JSON_MAP) {
        return stk_spec_wrong(r, item, key, "a list of {name: nofile, soft: 1024, hard: 4096}");
    }
    for (uint32_t i = 0; i < item->n; i++) {
        int known = stk_spec_key(r, stk_json_key(item, i), fields, STK_SPEC_N(fields), key);
        if (known < 0) {
            return known;
        }
    }
    const stk_json *name = field_of(item, NAME), *soft = field_of(item, SOFT);
    const stk_json *hard = field_of(item, HARD);
    int64_t number = 0;
    if (name == NULL || (soft == NULL && hard == NULL)) {
        return stk_spec_fail(r, item, "an item of '%s' needs `name`, and `soft` or `hard`", key);
    }
    if (stk_json_text(name) == NULL) {
        return stk_spec_wrong(r, name, "ulimits.name", "text");
    }
    if (stk_spec_find_key(name, kinds, STK_SPEC_N(kinds)) < 0) {
        stk_spec_fail(r, name, "unknown limit '%.80s' in '%s'", name->text, key);
        stk_spec_did_you_mean(r, name->text, kinds, STK_SPEC_N(kinds));
        return STK_E_SPEC;
    }
    if (soft != NULL) {
        STK_TRY(stk_spec_read_int(r, soft, name->text, -1, INT64_MAX, &number));
    }
    if (hard == NULL) {
        return 0;
    }
    return stk_spec_read_int(r, hard, name->text, -1, INT64_MAX, &number);
}

int stk_spec_check_ulimits(stk_spec_reader *r, const stk_json *node, const char *key)
{
    int64_t number = 0;
    if (node->kind == STK_JSON_LIST) {
        for (uint32_t i = 0; i < node->n; i++) {
            STK_TRY(check_item(r, &node->items[i], key));
        }
        return 0;
    }
    if (node->kind != STK_JSON_MAP) {
        return stk_spec_wrong(r, node, key,
                              "a mapping of names to numbers like {nofile: 65536}, or a list of "
                              "{name: nofile, soft: 1024, hard: 4096}");
    }
    for (uint32_t i = 0; i < node->n; i++) {
        int known = stk_spec_key(r, stk_json_key(node, i), kinds, STK_SPEC_N(kinds), key);
        if (known < 0) {
            return known;
        }
        STK_TRY(
            stk_spec_read_int(r, stk_json_value(node, i), kinds[known], -1, INT64_MAX, &number));
    }
    return 0;
}

uint32_t stk_spec_n_ulimits(const stk_json *node)
{
    return stk_json_n_members(node) + stk_json_n_items(node);
}

stk_spec_ulimit stk_spec_ulimit_at(const stk_json *node, uint32_t i)
{
    stk_spec_ulimit one = {.name = ""};
    if (stk_json_is_map(node)) {
        one.name = stk_json_key(node, i)->text;
        (void)stk_json_int(stk_json_value(node, i), &one.soft);
        one.hard = one.soft;
        return one;
    }
    const stk_json *item = &node->items[i];
    const stk_json *soft = field_of(item, SOFT), *hard = field_of(item, HARD);
    one.name = stk_text_or(stk_json_text(field_of(item, NAME)), "");
    (void)stk_json_int(soft != NULL ? soft : hard, &one.soft);
    (void)stk_json_int(hard != NULL ? hard : soft, &one.hard);
    return one;
}
