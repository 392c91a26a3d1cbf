/* kube_options: a step's options for its pods, checked against src/tbl/kubernetes_options.def:
 * every name is known, every value has its type, and none is an option that we can't honour. */
#include <stdlib.h>
#include <string.h>

#include "away/kubernetes/kube.h"
#include "base/text.h"
#include "base/units.h"

typedef enum { TEXT, BOOL, WHOLE, CPU, MIB, TEXTS, PAIRS, LIST, OBJECT } type;
typedef enum { HONOURED, STACK, REFUSED } how;

typedef struct option {
    const char *name, *same;
    type type;
    const char *from;
    how how;
    const char *words;
} option;

static const option table[] = {
#define X(name, same, type, from, how, words) {name, same, type, from, how, words},
#include "tbl/kubernetes_options.def"
#undef X
};
enum { N = sizeof table / sizeof *table };

static const char *const type_words[] = {
    [TEXT] = "text",
    [BOOL] = "true or false",
    [WHOLE] = "a whole number, 0 or more",
    [CPU] = "a number above 0",
    [MIB] = "a number of MiB or a string like \"8GiB",
    [TEXTS] = "a list of names, or a string with commas between them",
    [PAIRS] = "a mapping of strings, or a string like \"key=value,other=value",
    [LIST] = "a list of objects of the Kubernetes API",
    [OBJECT] = "an object of the Kubernetes API"};

static const option *find(const char *name)
{
    for (size_t i = 0; i < N; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

/* Keys that are said elsewhere: of a step's `resources`, of a stack. */
static const char *const of_resources[] = {"cpu_count", "gpu_count", "gpu_memory",
                                           "gpu_class", "any_of",    NULL};
static const char *const of_stack[] = {"store",    "store_volume", "default_image", "image_map",
                                       "registry", "runner_image", "carry_volume",  "carry",
                                       "pending",  "limits",       "pools",         NULL};

static bool is_among(const char *name, const char *const *words)
{
    while (*words != NULL && strcmp(*words, name) != 0) {
        words++;
    }
    return *words != NULL;
}

static int unknown(const char *where, const char *name, stk_err *err)
{
    const char *names[N];
    for (size_t i = 0; i < N; i++) {
        names[i] = table[i].name;
    }
    const char *near = stk_units_nearest(name, names, N);
    (void)stk_err_set(err, STK_E_SPEC, "%s: Kubernetes has no option '%.80s'", where, name);
    if (is_among(name, of_resources)) {
        stk_err_hint(err, "it belongs under `resources`, of the step or of the stack");
    } else if (is_among(name, of_stack)) {
        stk_err_hint(err, "it is a key of the stack itself, beside `options`");
    } else if (near != NULL) {
        stk_err_hint(err, "did you mean '%s'?", near);
    } else {
        stk_err_hint(err, "docs/kubernetes.md lists the options; set other fields of the API by "
                          "additional_pod_spec_args");
    }
    return STK_E_SPEC;
}

/* --- values by type; false: the value doesn't have the type --- */

/* Adds "a,b" to a list `all`, or "k=v,l=w" to a map. */
static bool split(stk_arena *arena, const char *text, stk_json *all)
{
    bool pairs = stk_json_is_map(all), is_good = text != NULL;
    for (const char *c = stk_text_or(text, ""); is_good && *c != '\0';) {
        size_t n = strcspn(c, ","), n_key = strcspn(c, "=");
        const char *word = stk_arena_dupn(arena, c, n);
        c += n + (c[n] == ',');
        if (word == NULL || (pairs && n_key >= n)) {
            return false;
        }
        if (pairs) {
            const char *key = stk_arena_dupn(arena, word, n_key);
            is_good = key != NULL &&
                      stk_json_set(arena, all, key, stk_json_of_text(word + n_key + 1)) != NULL;
        } else if (n > 0) {
            is_good = stk_json_append(arena, all, stk_json_of_text(word)) != NULL;
        }
    }
    return is_good;
}

/* A scalar as text, for a map of texts. */
static const char *scalar_text(const stk_json *value)
{
    if (stk_json_is_kind(value, STK_JSON_INT)) {
        return value->text;
    }
    if (stk_json_is_kind(value, STK_JSON_BOOL)) {
        return value->truth ? "true" : "false";
    }
    return stk_json_text(value);
}

static bool pairs_of(stk_arena *arena, const stk_json *value, stk_json *all)
{
    bool is_good = stk_json_is_map(value) || stk_json_is_list(value);
    *all = stk_json_of_map();
    if (stk_json_is_kind(value, STK_JSON_TEXT)) {
        return split(arena, stk_json_text(value), all);
    }
    for (uint32_t i = 0; is_good && i < stk_json_n_members(value); i++) {
        const char *text = scalar_text(stk_json_value(value, i));
        is_good = text != NULL && stk_json_set(arena, all, stk_json_key(value, i)->text,
                                               stk_json_of_text(text)) != NULL;
    }
    for (uint32_t i = 0; is_good && i < stk_json_n_items(value); i++) {
        is_good = split(arena, stk_json_text(&value->items[i]), all);
    }
    return is_good;
}

static bool texts_of(stk_arena *arena, const stk_json *value, stk_json *all)
{
    *all = stk_json_of_list();
    if (!stk_json_is_list(value)) {
        return split(arena, stk_json_text(value), all);
    }
    bool is_good = true;
    for (uint32_t i = 0; is_good && i < value->n; i++) {
        const stk_json *name = &value->items[i];
        if (stk_json_is_map(name)) {
            name = stk_json_get(name, "name");
        }
        is_good = stk_json_text(name) != NULL && stk_json_append(arena, all, *name) != NULL;
    }
    return is_good;
}

static bool digits_of(const char *digits, stk_json_kind kind, stk_json *ret)
{
    *ret = stk_json_of_digits(stk_text_or(digits, ""), kind);
    return digits != NULL;
}

static bool number_of(const stk_json *value, double *ret)
{
    const char *text = stk_json_text(value);
    char *end = NULL;
    if (text == NULL) {
        return stk_json_real(value, ret);
    }
    *ret = strtod(text, &end);
    return end != text && *end == '\0';
}

static bool whole_of(stk_arena *arena, const stk_json *value, stk_json *ret)
{
    double d = 0;
    bool is_good = number_of(value, &d) && d >= 0 && d <= 1e12 && d == (double)(int64_t)d;
    return is_good && digits_of(stk_arena_printf(arena, "%lld", (long long)d), STK_JSON_INT, ret);
}

static bool above_zero(const stk_json *value, double *ret)
{
    return number_of(value, ret) && *ret > 0 && *ret < 1e9;
}

static bool cpu_of(stk_arena *arena, const stk_json *value, stk_json *ret)
{
    double d = 0;
    char digits[32];
    if (!above_zero(value, &d)) {
        return false;
    }
    stk_json_format_real(d, digits);
    return digits_of(stk_arena_dup(arena, digits), STK_JSON_REAL, ret);
}

/* *ret is in bytes. */
static bool memory_of(stk_arena *arena, const stk_json *value, stk_json *ret)
{
    double mib = 0;
    int64_t bytes = 0;
    const char *text = stk_json_text(value);
    if (above_zero(value, &mib)) {
        bytes = (int64_t)(mib * (1 << 20));
    } else if (text == NULL || stk_units_parse_memory(text, &bytes, NULL) != 0) {
        return false;
    }
    return digits_of(stk_arena_printf(arena, "%lld", (long long)bytes), STK_JSON_INT, ret);
}

static bool truth_of(const stk_json *value, stk_json *ret)
{
    bool yes = stk_json_is_true(value) || stk_json_is(value, "true") || stk_json_is(value, "True");
    *ret = stk_json_of_bool(yes);
    return yes || stk_json_is_false(value) || stk_json_is(value, "false") ||
           stk_json_is(value, "False");
}

/* Refuses NUL bytes, which JSON writes only as \u0000: no program's argument can have one. */
static const stk_json *read_json(stk_arena *arena, const char *text)
{
    for (const char *c = strchr(stk_text_or(text, ""), '\\'); c != NULL; c = strchr(c + 2, '\\')) {
        if (strncmp(c + 1, "u0000", 5) == 0 || c[1] == '\0') {
            return NULL;
        }
    }
    return stk_json_read(arena, text);
}

/* A command line gives objects and lists as JSON in a text. */
static bool shape_of(stk_arena *arena, const stk_json *value, type t, stk_json *ret)
{
    static const stk_json_kind shapes[] = {[LIST] = STK_JSON_LIST, [OBJECT] = STK_JSON_MAP};
    const char *text = stk_json_text(value);
    if (text != NULL) {
        value = read_json(arena, text);
    }
    if (t == LIST && stk_json_is_map(value)) {
        *ret = stk_json_of_list();
        return stk_json_append(arena, ret, *value) != NULL;
    }
    if (value != NULL) {
        *ret = *value;
    }
    return stk_json_is_kind(value, shapes[t]);
}

static bool value_of(stk_arena *arena, const stk_json *value, type t, stk_json *ret)
{
    switch (t) {
    case TEXT:
        *ret = *value;
        return stk_json_is_kind(value, STK_JSON_TEXT);
    case BOOL:
        return truth_of(value, ret);
    case WHOLE:
        return whole_of(arena, value, ret);
    case CPU:
        return cpu_of(arena, value, ret);
    case MIB:
        return memory_of(arena, value, ret);
    case TEXTS:
        return texts_of(arena, value, ret);
    case PAIRS:
        return pairs_of(arena, value, ret);
    default:
        return shape_of(arena, value, t, ret);
    }
}

/* --- all of them --- */

/* An option given under both of its names is one option: maps and lists are joined. */
static int add(stk_arena *arena, stk_json *all, const option *o, const char *where, stk_json value,
               stk_err *err)
{
    const char *name = o->name;
    if (*o->same != '\0') {
        name = o->same;
    }
    const stk_json *there = stk_json_get(all, name);
    bool is_good = true;
    if (stk_json_is_map(there) && stk_json_is_map(&value)) {
        stk_json both = *there;
        is_good = stk_json_update(arena, &both, &value);
        value = both;
    } else if (stk_json_is_list(there) && stk_json_is_list(&value)) {
        stk_json both = *there;
        for (uint32_t i = 0; is_good && i < value.n; i++) {
            is_good = stk_json_append(arena, &both, value.items[i]) != NULL;
        }
        value = both;
    } else if (there != NULL && !stk_json_equal(there, &value)) {
        return stk_err_set(err, STK_E_SPEC,
                           "%s: '%s' and '%s' contradict each other; remove one of them", where,
                           o->name, name);
    }
    if (!is_good || stk_json_set(arena, all, name, value) == NULL) {
        return stk_err_nomem(err);
    }
    return 0;
}

static int read_all(stk_arena *arena, const stk_json *map, const char *where, stk_json *all,
                    stk_err *err)
{
    for (uint32_t i = 0; i < map->n; i++) {
        const char *key = stk_json_key(map, i)->text;
        const stk_json *value = stk_json_value(map, i);
        const option *o = find(key);
        stk_json read;
        if (o == NULL) {
            return unknown(where, key, err);
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (o->how == REFUSED) {
            return stk_err_set(err, STK_E_SPEC, "%s: Kubernetes doesn't support '%s'; %s", where,
                               key, o->words);
        }
        if (!value_of(arena, value, o->type, &read)) {
            return stk_err_set(err, STK_E_SPEC, "%s: '%s' must be %s, not %.100s", where, key,
                               type_words[o->type],
                               stk_text_or(stk_json_dump_in(value, arena), "this"));
        }
        if (strcmp(key, "pod_settings") == 0) {
            STK_TRY(read_all(arena, &read, where, all, err));
        } else {
            STK_TRY(add(arena, all, o, where, read, err));
        }
    }
    return 0;
}

int stk_kube_options(const char *text, const char *where, stk_arena *arena, stk_json *ret,
                     stk_err *err)
{
    const stk_json *map = read_json(arena, text);
    stk_json all = stk_json_of_map();
    if (!stk_json_is_map(map)) {
        return stk_err_set(err, STK_E_SPEC,
                           "%s: options of Kubernetes must be a mapping without NUL bytes", where);
    }
    STK_TRY(read_all(arena, map, where, &all, err));
    *ret = all;
    return 0;
}

const char *stk_kube_text(const stk_json *options, const char *name)
{
    return stk_text_if_any(stk_json_get_text(options, name));
}

int64_t stk_kube_whole(const stk_json *options, const char *name)
{
    int64_t number = -1;
    (void)stk_json_int(stk_json_get(options, name), &number);
    return number;
}

bool stk_kube_true(const stk_json *options, const char *name, bool otherwise)
{
    const stk_json *node = stk_json_get(options, name);
    return stk_json_is_true(node) || (otherwise && !stk_json_is_false(node));
}
