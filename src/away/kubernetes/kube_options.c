/* kube_options: what a step says of its pods, checked by src/tbl/kubernetes_options.def: every name
 * known, every value of its type, nothing that can't be honoured. */
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
    [MIB] = "a number of MiB or text like \"8GiB\"",
    [TEXTS] = "a list of names, or text with commas between them",
    [PAIRS] = "a map of texts, or text like \"key=value,other=value\"",
    [LIST] = "a list of objects as the Kubernetes API has them",
    [OBJECT] = "an object as the Kubernetes API has it"};

static const option *find(const char *name)
{
    for (size_t i = 0; i < N; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

static int unknown(const char *where, const char *name, stk_err *err)
{
    const char *names[N];
    for (size_t i = 0; i < N; i++) {
        names[i] = table[i].name;
    }
    const char *near = stk_units_nearest(name, names, N);
    (void)stk_err_set(err, STK_E_SPEC, "%s: Kubernetes has no option '%.80s'", where, name);
    if (near != NULL) {
        stk_err_hint(err, "did you mean '%s'?", near);
    } else {
        stk_err_hint(err, "docs/kubernetes.md lists them; what the API has beyond them goes into "
                          "additional_pod_spec_args");
    }
    return STK_E_SPEC;
}

/* --- values by type; each returns a new reference, or NULL where it is none --- */

/* "a,b" as a list, "k=v,l=w" as a map. */
static json_t *split(const char *text, bool pairs)
{
    json_t *all = pairs ? json_object() : json_array();
    for (const char *c = text; *c != '\0' && all != NULL;) {
        size_t n = strcspn(c, ",");
        const char *equals = memchr(c, '=', n);
        if (pairs && equals == NULL) {
            json_decref(all);
            return NULL;
        }
        if (pairs) {
            char key[256];
            size_t n_key = (size_t)(equals - c) < sizeof key ? (size_t)(equals - c) : 0;
            memcpy(key, c, n_key);
            key[n_key] = '\0';
            (void)json_object_set_new(all, key,
                                      json_stringn(equals + 1, n - (size_t)(equals - c) - 1));
        } else if (n > 0) {
            (void)json_array_append_new(all, json_stringn(c, n));
        }
        c += n + (c[n] == ',');
    }
    return all;
}

static json_t *scalar_text(const json_t *value)
{
    char number[64];
    if (json_is_integer(value)) {
        (void)snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
        return json_string(number);
    }
    if (json_is_string(value)) {
        return json_string(json_string_value(value));
    }
    if (json_is_boolean(value)) {
        return json_string(json_is_true(value) ? "true" : "false");
    }
    return NULL;
}

static json_t *pairs_of(const json_t *value)
{
    if (json_is_string(value)) {
        return split(json_string_value(value), true);
    }
    json_t *all = json_object();
    const char *key;
    json_t *one;
    size_t i;
    json_object_foreach((json_t *)(uintptr_t)value, key, one)
    {
        json_t *text = scalar_text(one);
        if (text == NULL) {
            json_decref(all);
            return NULL;
        }
        (void)json_object_set_new(all, key, text);
    }
    json_array_foreach(value, i, one)
    {
        json_t *some = json_is_string(one) ? split(json_string_value(one), true) : NULL;
        if (some == NULL) {
            json_decref(all);
            return NULL;
        }
        (void)json_object_update_new(all, some);
    }
    return json_is_object(value) || json_is_array(value) ? all : (json_decref(all), NULL);
}

static json_t *texts_of(const json_t *value)
{
    json_t *all = json_is_string(value) ? split(json_string_value(value), false) : NULL;
    if (json_is_array(value)) {
        size_t i;
        json_t *one;
        all = json_array();
        json_array_foreach(value, i, one)
        {
            const json_t *name = json_is_object(one) ? json_object_get(one, "name") : one;
            if (!json_is_string(name)) {
                json_decref(all);
                return NULL;
            }
            (void)json_array_append_new(all, json_string(json_string_value(name)));
        }
    }
    return all;
}

static json_t *number_of(const json_t *value, bool whole)
{
    char *end = NULL;
    double d = json_number_value(value);
    if (json_is_string(value)) {
        d = strtod(json_string_value(value), &end);
        if (end == json_string_value(value) || *end != '\0') {
            return NULL;
        }
    } else if (!json_is_number(value)) {
        return NULL;
    }
    if (whole) {
        if (d >= 0 && d <= 1e12 && d == (double)(json_int_t)d) {
            return json_integer((json_int_t)d);
        }
        return NULL;
    }
    return d > 0 && d < 1e9 ? json_real(d) : NULL;
}

/* Bytes. */
static json_t *memory_of(const json_t *value)
{
    int64_t bytes = 0;
    json_t *number = number_of(value, false);
    if (number != NULL) {
        bytes = (int64_t)(json_number_value(number) * (1 << 20));
        json_decref(number);
        return json_integer(bytes);
    }
    if (json_is_string(value) &&
        stk_units_parse_memory(json_string_value(value), &bytes, NULL) == 0) {
        return json_integer(bytes);
    }
    return NULL;
}

/* Objects and lists may come as JSON in a text, from a command line. */
static json_t *shape_of(const json_t *value, type t)
{
    json_t *read = json_is_string(value) ? json_loads(json_string_value(value), 0, NULL)
                                         : json_incref((json_t *)(uintptr_t)value);
    if (t == LIST && json_is_object(read)) {
        json_t *list = json_array();
        (void)json_array_append_new(list, read);
        read = list;
    }
    if (read != NULL && (t == LIST ? json_is_array(read) : json_is_object(read))) {
        return read;
    }
    json_decref(read);
    return NULL;
}

static json_t *value_of(const json_t *value, type t)
{
    switch (t) {
    case TEXT:
        return json_is_string(value) ? json_incref((json_t *)(uintptr_t)value) : NULL;
    case BOOL: {
        const char *word = json_string_value(value);
        bool yes = word != NULL && (strcmp(word, "true") == 0 || strcmp(word, "True") == 0);
        bool no = word != NULL && (strcmp(word, "false") == 0 || strcmp(word, "False") == 0);
        if (json_is_boolean(value)) {
            return json_incref((json_t *)(uintptr_t)value);
        }
        if (yes || no) {
            return json_boolean(yes);
        }
        return NULL;
    }
    case WHOLE:
    case CPU:
        return number_of(value, t == WHOLE);
    case MIB:
        return memory_of(value);
    case TEXTS:
        return texts_of(value);
    case PAIRS:
        return pairs_of(value);
    default:
        return shape_of(value, t);
    }
}

/* --- all of them --- */

/* Takes `value` over. What is said under two names is one: maps and lists are joined. */
static int add(json_t *all, const option *o, const char *where, json_t *value, stk_err *err)
{
    const char *name = *o->same == '\0' ? o->name : o->same;
    json_t *there = json_object_get(all, name);
    int failed = 0;
    if (json_is_object(there) && json_is_object(value)) {
        failed = json_object_update(there, value);
        json_decref(value);
    } else if (json_is_array(there) && json_is_array(value)) {
        failed = json_array_extend(there, value);
        json_decref(value);
    } else if (there != NULL && !json_equal(there, value)) {
        json_decref(value);
        return stk_err_set(err, STK_E_SPEC, "%s: '%s' and '%s' say different things; keep one",
                           where, o->name, name);
    } else {
        failed = json_object_set_new(all, name, value);
    }
    if (failed != 0) {
        return stk_err_nomem(err);
    }
    return 0;
}

static int read_all(const json_t *map, const char *where, json_t *all, stk_err *err)
{
    const char *key;
    json_t *value;
    int rc = 0;
    json_object_foreach((json_t *)(uintptr_t)map, key, value)
    {
        const option *o = find(key);
        if (o == NULL) {
            return unknown(where, key, err);
        }
        if (json_is_null(value)) {
            continue;
        }
        if (o->how == REFUSED) {
            return stk_err_set(err, STK_E_SPEC, "%s: '%s' can't be honoured on Kubernetes; %s",
                               where, key, o->words);
        }
        json_t *read = value_of(value, o->type);
        if (read == NULL) {
            char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
            (void)stk_err_set(err, STK_E_SPEC, "%s: '%s' must be %s, not %.100s", where, key,
                              type_words[o->type], stk_text_or(shown, "this"));
            free(shown);
            return STK_E_SPEC;
        }
        if (strcmp(key, "pod_settings") == 0) {
            rc = read_all(read, where, all, err);
            json_decref(read);
        } else {
            rc = add(all, o, where, read, err);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

int stk_kube_options(const char *text, const char *where, json_t **ret, stk_err *err)
{
    json_error_t why;
    STK_KUBE_JSON_AUTO map = json_loads(text, 0, &why);
    if (!json_is_object(map)) {
        return stk_err_set(err, STK_E_SPEC, "%s: options of Kubernetes must be a map: %s", where,
                           why.text);
    }
    json_t *all = json_object();
    int rc = all == NULL ? stk_err_nomem(err) : read_all(map, where, all, err);
    if (rc < 0) {
        json_decref(all);
        return rc;
    }
    *ret = all;
    return 0;
}

const char *stk_kube_text(const json_t *options, const char *name)
{
    const char *text = json_string_value(json_object_get(options, name));
    return stk_text_if_any(text);
}

int64_t stk_kube_whole(const json_t *options, const char *name)
{
    const json_t *node = json_object_get(options, name);
    return json_is_integer(node) ? (int64_t)json_integer_value(node) : -1;
}

bool stk_kube_true(const json_t *options, const char *name, bool otherwise)
{
    const json_t *node = json_object_get(options, name);
    return json_is_boolean(node) ? json_is_true(node) : otherwise;
}

int64_t stk_kube_bytes(const json_t *options, const char *name)
{
    return stk_kube_whole(options, name);
}
