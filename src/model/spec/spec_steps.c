/* Steps: reads each step's own fields first, then the references to other steps, once all names are
 * known. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/units.h"
#include "model/spec/spec_read.h"

enum {
    K_RUN,
    K_PYTHON,
    K_INTERPRETER,
    K_CWD,
    K_INPUTS,
    K_OUTPUTS,
    K_AFTER,
    K_CODE,
    K_USES,
    K_SOURCE,
    K_DESCRIPTION,
    K_NEXT,
    K_FOREACH,
    K_NUM_PARALLEL,
    K_SWITCH,
    K_CASES,
    K_JOIN,
    K_FALLBACK,
    K_N
};
static const char *const step_keys[K_N] = {
    [K_RUN] = "run",           [K_PYTHON] = "python",
    [K_CWD] = "cwd",           [K_INPUTS] = "inputs",
    [K_OUTPUTS] = "outputs",   [K_AFTER] = "after",
    [K_CODE] = "code",         [K_USES] = "uses",
    [K_SOURCE] = "source",     [K_DESCRIPTION] = "description",
    [K_NEXT] = "next",         [K_FOREACH] = "foreach",
    [K_SWITCH] = "switch",     [K_NUM_PARALLEL] = "num_parallel",
    [K_CASES] = "cases",       [K_JOIN] = "join",
    [K_FALLBACK] = "fallback", [K_INTERPRETER] = "interpreter"};

enum { FEW = 16 }; /* up to this many names, a linear search */

typedef struct steps_reader {
    stk_spec_reader *r;
    const stk_json *map;
    stk_step *steps;
    stk_map *outputs; /* for each step with more than FEW outputs: name → index */
    stk_map shared;   /* text of a step's settings → stk_settings */
    stk_buf scratch;
} steps_reader;

/* --- one step's own fields --- */

static int unknown_key(stk_spec_reader *r, const stk_json *key)
{
    const char *names[K_N + 32];
    const char *const *settings;
    size_t n_settings = stk_spec_setting_names(&settings);
    memcpy(names, step_keys, K_N * sizeof *names);
    memcpy(names + K_N, settings, n_settings * sizeof *names);
    stk_spec_fail(r, key, "unknown key '%.80s'", key->text);
    stk_spec_did_you_mean(r, key->text, names, K_N + n_settings);
    return STK_E_SPEC;
}

static int read_command(stk_spec_reader *r, const stk_json *node, stk_step *step)
{
    static const char *const shell[] = {"/bin/sh", "-c"};
    bool list = node->kind == STK_JSON_LIST;
    if ((!list && (stk_json_text(node) == NULL || node->n == 0)) || (list && node->n == 0)) {
        return stk_spec_wrong(r, node, "run",
                              "a command: a string for /bin/sh, or a list of words");
    }
    uint32_t n = list ? node->n : 3;
    const char **argv = stk_arena_array(r->arena, (size_t)n + 1, sizeof *argv);
    if (argv == NULL) {
        return stk_spec_no_memory(r);
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_json *word = list ? &node->items[i] : node;
        bool number = word->kind == STK_JSON_INT || word->kind == STK_JSON_REAL;
        if (!list && i < 2) {
            argv[i] = shell[i];
        } else {
            argv[i] = number ? word->text : stk_json_text(word);
        }
        if (argv[i] == NULL || (i == 0 && argv[i][0] == '\0')) {
            return stk_spec_wrong(r, word, "run", "a list of strings and numbers");
        }
    }
    step->argv = argv;
    step->n_argv = n;
    return 0;
}

static int read_cwd(stk_spec_reader *r, const stk_json *node, stk_step *step)
{
    const char *text;
    STK_TRY(stk_spec_read_text(r, node, "cwd", &text));
    if (*text == '/') {
        step->cwd = text;
        return 0;
    }
    step->cwd = stk_arena_printf(r->arena, "%s%s%s", r->spec->folder,
                                 stk_text_when(strcmp(r->spec->folder, "/") != 0, "/"), text);
    return stk_spec_if_null(r, step->cwd);
}

static int compare_pairs(const void *a, const void *b)
{
    return strcmp(((const stk_pair *)a)->key, ((const stk_pair *)b)->key);
}

static int read_code(stk_spec_reader *r, const stk_json *map, stk_step *step)
{
    STK_TRY(stk_spec_read_map(r, map, "code"));
    stk_pair *code = stk_arena_array(r->arena, map->n, sizeof *code);
    STK_TRY(stk_spec_if_null(r, code));
    for (uint32_t i = 0; i < map->n; i++) {
        code[i].key = stk_json_key(map, i)->text;
        STK_TRY(stk_spec_read_text(r, stk_json_value(map, i), "code", &code[i].value));
    }
    qsort(code, map->n, sizeof *code, compare_pairs);
    step->code = code;
    step->n_code = map->n;
    return 0;
}

static const stk_spec_field output_fields[] = {
    {.label = "type", .kind = STK_SPEC_TEXT, .at = offsetof(stk_output, type)},
    {.label = "tags", .kind = STK_SPEC_TEXTS, .at = offsetof(stk_output, tags)}};

static int64_t find_output(const steps_reader *s, uint32_t i_step, const char *name)
{
    const stk_step *step = &s->steps[i_step];
    uint64_t i;
    if (step->n_outputs > FEW) {
        if (!stk_map_get(&s->outputs[i_step], name, &i)) {
            return -1;
        }
        return (int64_t)i;
    }
    for (i = 0; i < step->n_outputs; i++) {
        if (strcmp(step->outputs[i].name, name) == 0) {
            return (int64_t)i;
        }
    }
    return -1;
}

static int read_outputs(steps_reader *s, const stk_json *node, uint32_t i_step)
{
    stk_spec_reader *r = s->r;
    stk_step *step = &s->steps[i_step];
    bool map = node->kind == STK_JSON_MAP;
    if (!map && node->kind != STK_JSON_LIST) {
        return stk_spec_wrong(r, node, "outputs", "a list of names, or a mapping");
    }
    if (node->n > STK_LIMIT_OUTPUTS) {
        return stk_spec_fail_code(r, STK_E_LIMIT, node, "%u outputs; %d is the limit of a step",
                                  (unsigned)node->n, STK_LIMIT_OUTPUTS);
    }
    stk_output *outputs = stk_arena_array(r->arena, node->n, sizeof *outputs);
    if (outputs == NULL) {
        return stk_spec_no_memory(r);
    }
    for (uint32_t i = 0; i < node->n; i++) {
        const stk_json *key = map ? stk_json_key(node, i) : &node->items[i];
        outputs[i].name = stk_json_text(key);
        if (outputs[i].name == NULL || !stk_units_is_name(outputs[i].name, true)) {
            return stk_spec_wrong(
                r, key, "outputs",
                "names of letters, digits and _ . - that don't begin with . or -");
        }
        if (map && stk_json_value(node, i)->kind != STK_JSON_NULL) {
            STK_TRY(stk_spec_read_fields(r, stk_json_value(node, i), outputs[i].name, output_fields,
                                         STK_SPEC_N(output_fields), &outputs[i]));
        }
    }
    step->outputs = outputs;
    for (uint32_t i = 0; i < node->n; i++) {
        step->n_outputs = i; /* number of outputs before this one */
        bool twice = node->n > FEW ? stk_map_get(&s->outputs[i_step], outputs[i].name, NULL)
                                   : find_output(s, i_step, outputs[i].name) >= 0;
        if (twice) {
            return stk_spec_fail(r, map ? stk_json_key(node, i) : &node->items[i],
                                 "output '%s' is listed twice", outputs[i].name);
        }
        if (node->n > FEW && stk_map_put(&s->outputs[i_step], outputs[i].name, i) < 0) {
            return stk_spec_no_memory(r);
        }
    }
    step->n_outputs = node->n;
    return 0;
}

/* Steps whose settings have the same text share one stk_settings, which keeps a million steps
 * small. */
static int read_step_settings(steps_reader *s, const stk_json *map, stk_step *step)
{
    stk_spec_reader *r = s->r;
    uint64_t at;
    stk_buf_clear(&s->scratch);
    for (uint32_t i = 0; i < map->n; i++) {
        if (stk_spec_is_setting(stk_json_key(map, i))) {
            stk_json_dump(stk_json_key(map, i), &s->scratch);
            stk_json_dump(stk_json_value(map, i), &s->scratch);
        }
    }
    if (s->scratch.failed) {
        return stk_spec_no_memory(r);
    }
    if (stk_map_get(&s->shared, s->scratch.data, &at)) {
        step->settings = (const stk_settings *)(uintptr_t)at;
        return 0;
    }
    stk_spec_base *own = stk_arena_alloc(r->arena, sizeof *own);
    const char *text = stk_arena_dup(r->arena, s->scratch.data);
    if (own == NULL || text == NULL || stk_map_put(&s->shared, text, (uintptr_t)&own->s) < 0) {
        return stk_spec_no_memory(r);
    }
    step->settings = &own->s;
    return stk_spec_read_settings(r, r->spec->base, map, own);
}

static int read_interpreter(stk_spec_reader *r, const stk_json *node, stk_step *step)
{
    const char *path = stk_json_text(node);
    if (path == NULL || path[0] != '/') {
        return stk_spec_wrong(r, node, "interpreter", "the absolute path of a Python interpreter");
    }
    step->interpreter = path;
    return 0;
}

static int read_field(steps_reader *s, int key, const stk_json *value, uint32_t i_step)
{
    stk_spec_reader *r = s->r;
    stk_step *step = &s->steps[i_step];
    switch (key) {
    case K_RUN:
        return read_command(r, value, step);
    case K_PYTHON:
        return stk_spec_read_entry(r, value, "python", &step->python);
    case K_INTERPRETER:
        return read_interpreter(r, value, step);
    case K_CWD:
        return read_cwd(r, value, step);
    case K_OUTPUTS:
        return read_outputs(s, value, i_step);
    case K_CODE:
        return read_code(r, value, step);
    case K_USES:
        return stk_spec_read_texts(r, value, "uses", &step->uses, &step->n_uses);
    case K_SOURCE:
        return stk_spec_read_text(r, value, "source", &step->source);
    case K_DESCRIPTION:
        return stk_spec_read_text(r, value, "description", &step->description);
    case K_JOIN:
        return stk_spec_read_bool(r, value, "join", &step->is_join);
    case K_FALLBACK:
        return stk_spec_read_bool(r, value, "fallback", &step->fallback);
    default:
        return 0; /* the second pass reads inputs, after, next */
    }
}

static int read_step(steps_reader *s, uint32_t i_step)
{
    stk_spec_reader *r = s->r;
    stk_step *step = &s->steps[i_step];
    const stk_json *map = stk_json_value(s->map, i_step);
    bool own_settings = false;
    if (map->kind != STK_JSON_MAP) {
        return stk_spec_fail(r, map, "a step must be a mapping with 'run' or 'python', not %s",
                             stk_json_kind_words(map->kind));
    }
    step->line = (int)stk_json_key(s->map, i_step)->line;
    step->settings = &r->spec->base->s;
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        int key = stk_spec_find_key(stk_json_key(map, i), step_keys, K_N);
        if (key < 0 && !stk_spec_is_setting(stk_json_key(map, i))) {
            return unknown_key(r, stk_json_key(map, i));
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        own_settings |= key < 0;
        if (key >= 0) {
            STK_TRY(read_field(s, key, value, i_step));
        }
    }
    if ((step->argv == NULL) == (step->python == NULL)) {
        return stk_spec_fail(r, stk_json_key(s->map, i_step), "%s",
                             step->argv == NULL ? "'run' or 'python' is missing"
                                                : "'run' and 'python' exclude each other");
    }
    if (step->python != NULL && step->cwd != NULL) {
        return stk_spec_fail(
            r, stk_json_get(map, "cwd"),
            "'cwd' is only for commands; a Python step runs in the folder of its pipeline");
    }
    if (step->argv != NULL && step->interpreter != NULL) {
        return stk_spec_fail(r, stk_json_get(map, "interpreter"),
                             "'interpreter' is only for Python steps; a command names its own");
    }
    if (step->argv != NULL && step->cwd == NULL) {
        step->cwd = r->spec->folder;
    }
    if (own_settings) {
        return read_step_settings(s, map, step);
    }
    return 0;
}

/* --- what refers to other steps --- */

int stk_spec_unknown_step(stk_spec_reader *r, const stk_json *node, const char *what,
                          const char *name)
{
    uint32_t n = r->spec->n_steps;
    const char **names = calloc((size_t)n + 1, sizeof *names);
    stk_spec_fail(r, node, "%s: there is no step '%.128s'", what, name);
    for (uint32_t i = 0; names != NULL && i < n; i++) {
        names[i] = r->spec->steps[i].name;
    }
    if (names != NULL) {
        stk_spec_did_you_mean(r, name, names, n);
    }
    free(names);
    return STK_E_SPEC;
}

static int unknown_output(steps_reader *s, const stk_json *node, const char *what, uint32_t i_step,
                          const char *name)
{
    stk_spec_reader *r = s->r;
    const stk_step *step = &s->steps[i_step];
    if (step->n_outputs == 0) {
        return stk_spec_fail(r, node, "%s: step '%s' declares no outputs", what, step->name);
    }
    const char **names = calloc(step->n_outputs, sizeof *names);
    stk_spec_fail(r, node, "%s: step '%s' has no output '%.128s'", what, step->name, name);
    for (uint32_t i = 0; names != NULL && i < step->n_outputs; i++) {
        names[i] = step->outputs[i].name;
    }
    if (names != NULL && stk_units_nearest(name, names, step->n_outputs) != NULL) {
        stk_spec_did_you_mean(r, name, names, step->n_outputs);
    } else if (step->n_outputs == 1) {
        stk_err_hint(r->err, "its output is '%s'", step->outputs[0].name);
    }
    free(names);
    return STK_E_SPEC;
}

/* Reads "step.output". */
static int read_reference(steps_reader *s, const stk_json *node, const char *what,
                          stk_input *ret_input)
{
    stk_spec_reader *r = s->r;
    const char *text = stk_json_text(node);
    uint64_t i_step;
    if (text == NULL) {
        return stk_spec_wrong(r, node, what, "step.output");
    }
    const char *dot = strchr(text, '.');
    if (dot == NULL) {
        stk_spec_fail(r, node, "%s: '%.128s' names a step without its output", what, text);
        if (stk_map_get(&r->spec->step_index, text, &i_step) && s->steps[i_step].n_outputs > 0) {
            stk_err_hint(r->err, "write %s.%s", text, s->steps[i_step].outputs[0].name);
        } else {
            stk_err_hint(r->err, "write step.output");
        }
        return STK_E_SPEC;
    }
    if (!stk_map_getn(&r->spec->step_index, text, (size_t)(dot - text), &i_step)) {
        char name[STK_LIMIT_NAME + 1];
        (void)snprintf(name, sizeof name, "%.*s", (int)(dot - text), text);
        return stk_spec_unknown_step(r, node, what, name);
    }
    int64_t i_output = find_output(s, (uint32_t)i_step, dot + 1);
    if (i_output < 0) {
        return unknown_output(s, node, what, (uint32_t)i_step, dot + 1);
    }
    ret_input->kind = STK_INPUT_OUTPUT;
    ret_input->step = (uint32_t)i_step;
    ret_input->output = (uint32_t)i_output;
    return 0;
}

static int read_from(steps_reader *s, const stk_json *node, const char *what, stk_input *input)
{
    if (node->kind != STK_JSON_LIST) {
        return read_reference(s, node, what, input);
    }
    stk_input *items = stk_arena_array(s->r->arena, node->n, sizeof *items);
    if (items == NULL) {
        return stk_spec_no_memory(s->r);
    }
    for (uint32_t i = 0; i < node->n; i++) {
        STK_TRY(read_reference(s, &node->items[i], what, &items[i]));
    }
    input->kind = STK_INPUT_LIST;
    input->items = items;
    input->n_items = node->n;
    return 0;
}

static int read_param(stk_spec_reader *r, const stk_json *node, const char *what, stk_input *input)
{
    const char *name = stk_json_text(node);
    if (name == NULL) {
        return stk_spec_wrong(r, node, what, "the name of a parameter");
    }
    for (uint32_t i = 0; i < r->spec->n_params; i++) {
        if (strcmp(r->spec->params[i].name, name) == 0) {
            input->kind = STK_INPUT_PARAM;
            input->text = name;
            input->i_param = i;
            return 0;
        }
    }
    const char **names = calloc((size_t)r->spec->n_params + 1, sizeof *names);
    stk_spec_fail(r, node, "%s: the pipeline has no parameter '%.128s'", what, name);
    for (uint32_t i = 0; names != NULL && i < r->spec->n_params; i++) {
        names[i] = r->spec->params[i].name;
    }
    if (names != NULL) {
        stk_spec_did_you_mean(r, name, names, r->spec->n_params);
    }
    free(names);
    return STK_E_SPEC;
}

static int read_source(steps_reader *s, const stk_json *key, const stk_json *value,
                       const char *what, stk_input *input)
{
    static const char *const keys[] = {"from", "param", "file", "artifact", "value", "item"};
    stk_spec_reader *r = s->r;
    int kind = stk_spec_key(r, key, keys, 6, what);
    switch (kind) {
    case 0:
        return read_from(s, value, what, input);
    case 1:
        return read_param(r, value, what, input);
    case 2:
        input->kind = STK_INPUT_FILE;
        input->text = stk_json_text(value);
        if (input->text == NULL || value->n == 0) {
            return stk_spec_wrong(r, value, what, "a path");
        }
        return 0;
    case 3:
        input->kind = STK_INPUT_ARTIFACT;
        input->text = stk_json_text(value);
        if (input->text == NULL || value->n != 64 ||
            strspn(input->text, "0123456789abcdef") != 64) {
            return stk_spec_wrong(r, value, what, "a digest of 64 lower-case hex digits");
        }
        return 0;
    case 4:
        input->kind = STK_INPUT_VALUE;
        return stk_spec_read_json(r, value, &input->text);
    case 5:
        input->kind = STK_INPUT_ITEM;
        if (value->kind != STK_JSON_BOOL || !value->truth) {
            return stk_spec_wrong(r, value, what, "{item: true}, the item of the foreach");
        }
        return 0;
    default:
        return kind;
    }
}

/* Reads {artifact: digest, format, type, meta}: the store knows the content, but not its format. */
static int read_artifact(steps_reader *s, const stk_json *map, const char *what, stk_input *input)
{
    static const char *const keys[] = {"artifact", "format", "type", "meta"};
    stk_json *about = stk_arena_array(s->r->arena, 2 * (size_t)map->n, sizeof *about);
    stk_json whole = {.items = about, .kind = STK_JSON_MAP, .line = map->line};
    const char *text = NULL;
    STK_TRY(stk_spec_if_null(s->r, about));
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *key = stk_json_key(map, i);
        const stk_json *value = stk_json_value(map, i);
        int kind = stk_spec_key(s->r, key, keys, 4, what);
        STK_TRY(kind);
        if (kind == 0) {
            STK_TRY(read_source(s, key, value, what, input));
            continue;
        }
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (kind == 3) {
            STK_TRY(stk_spec_read_map(s->r, value, "meta"));
        } else {
            STK_TRY(stk_spec_read_text(s->r, value, keys[kind], &text));
        }
        about[2 * (size_t)whole.n] = *key;
        about[2 * (size_t)whole.n + 1] = *value;
        whole.n++;
    }
    if (whole.n == 0) {
        return 0;
    }
    return stk_spec_read_json(s->r, &whole, &input->about);
}

static int read_input(steps_reader *s, const stk_json *key, const stk_json *node, stk_input *input)
{
    stk_spec_reader *r = s->r;
    char what[STK_LIMIT_NAME + 16];
    if (!stk_units_is_name(key->text, true)) {
        return stk_spec_fail(r, key, "input '%.80s': a name is made of letters, digits and _ . -",
                             key->text);
    }
    (void)snprintf(what, sizeof what, "inputs.%s", key->text);
    input->name = key->text;
    if (node->kind != STK_JSON_MAP) {
        input->kind = STK_INPUT_VALUE;
        return stk_spec_read_json(r, node, &input->text);
    }
    if (node->n > 1 && stk_json_get(node, "artifact") != NULL) {
        return read_artifact(s, node, what, input);
    }
    if (node->n != 1) {
        return stk_spec_fail(r, node,
                             "'%s' needs exactly one of from, param, file, artifact, item and "
                             "value; write a mapping that is the value as {value: {…}}",
                             what);
    }
    int rc = read_source(s, stk_json_key(node, 0), stk_json_value(node, 0), what, input);
    if (rc < 0 && r->err != NULL && r->err->hint[0] == '\0' &&
        strstr(r->err->text, "unknown key") != NULL) {
        stk_err_hint(r->err, "write a mapping that is the value as {value: {…}}");
    }
    return rc;
}

static int read_inputs(steps_reader *s, const stk_json *map, stk_step *step)
{
    stk_spec_reader *r = s->r;
    STK_TRY(stk_spec_read_map(r, map, "inputs"));
    stk_input *inputs = stk_arena_array(r->arena, map->n, sizeof *inputs);
    size_t n = map->n;
    STK_TRY(stk_spec_if_null(r, inputs));
    for (uint32_t i = 0; i < map->n && n <= STK_LIMIT_INPUTS; i++) {
        STK_TRY(read_input(s, stk_json_key(map, i), stk_json_value(map, i), &inputs[i]));
        n += inputs[i].n_items;
    }
    if (n > STK_LIMIT_INPUTS) {
        return stk_spec_fail_code(r, STK_E_LIMIT, map,
                                  "more than %d inputs; gather some of them in an additional step",
                                  STK_LIMIT_INPUTS);
    }
    step->inputs = inputs;
    step->n_inputs = map->n;
    return 0;
}

static int read_after(steps_reader *s, const stk_json *list, stk_step *step)
{
    stk_spec_reader *r = s->r;
    if (list->kind != STK_JSON_LIST) {
        return stk_spec_wrong(r, list, "after", "a list of steps");
    }
    if (list->n > STK_LIMIT_INPUTS) {
        return stk_spec_fail_code(r, STK_E_LIMIT, list, "'after' names more than %d steps",
                                  STK_LIMIT_INPUTS);
    }
    uint32_t *after = stk_arena_array(r->arena, list->n, sizeof *after);
    if (after == NULL) {
        return stk_spec_no_memory(r);
    }
    for (uint32_t i = 0; i < list->n; i++) {
        uint64_t i_step;
        const char *name = stk_json_text(&list->items[i]);
        if (name == NULL) {
            return stk_spec_wrong(r, &list->items[i], "after", "a list of steps");
        }
        if (!stk_map_get(&r->spec->step_index, name, &i_step)) {
            return stk_spec_unknown_step(r, &list->items[i], "after", name);
        }
        after[i] = (uint32_t)i_step;
    }
    step->after = after;
    step->n_after = list->n;
    return 0;
}

/* Each name in a step's own cache.ignore_inputs must be one of its inputs. */
static int check_ignored(steps_reader *s, const stk_json *map, const stk_step *step)
{
    const stk_json *list = stk_json_get(stk_json_get(map, "cache"), "ignore_inputs");
    const stk_json *inputs = stk_json_get(map, "inputs");
    for (uint32_t i = 0; list != NULL && i < list->n; i++) {
        const char *name = step->settings->cache.ignore_inputs[i];
        if (stk_json_get(inputs, name) == NULL) {
            return stk_spec_fail(
                s->r, &list->items[i],
                "'cache.ignore_inputs' names '%.80s', which isn't an input of the step", name);
        }
    }
    return 0;
}

/* True if the step's own environment sets the variable of this input. */
static bool has_variable(const stk_step *step, const char *input)
{
    for (uint32_t i = 0; i < step->settings->n_env; i++) {
        const char *key = step->settings->env[i].key;
        if (strncmp(key, "STOKER_PARAM_", 13) == 0 && strcmp(key + 13, input) == 0) {
            return true;
        }
    }
    return false;
}

/* The shell text may use $STOKER_PARAM_x only if x is an input, because it is empty otherwise. With
 * a default, as in ${STOKER_PARAM_x:-1}, it may. */
static int check_parameters(steps_reader *s, const stk_json *map, const stk_step *step)
{
    static const char mark[] = "STOKER_PARAM_";
    const stk_json *run = stk_json_get(map, step_keys[K_RUN]);
    const char *text = stk_json_text(run);
    for (const char *at = text; at != NULL && (at = strstr(at, mark)) != NULL;) {
        const char *name = at + strlen(mark);
        size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
        bool is_plain = at > text && at[-1] == '$';
        bool is_braced = at > text + 1 && at[-1] == '{' && at[-2] == '$' && name[n] == '}';
        const char *input = stk_arena_printf(s->r->arena, "%.*s", (int)n, name);
        STK_TRY(input == NULL ? stk_spec_no_memory(s->r) : 0);
        at = name;
        if ((is_plain || is_braced) && n > 0 &&
            stk_json_get(stk_json_get(map, step_keys[K_INPUTS]), input) == NULL &&
            !has_variable(step, input)) {
            stk_spec_fail(s->r, run,
                          "$STOKER_PARAM_%.80s would be empty: the step has no input '%.80s'",
                          input, input);
            stk_err_hint(s->r->err, "declare it: inputs: {%.80s: {param: %.80s}}", input, input);
            return STK_E_SPEC;
        }
    }
    return 0;
}

static int read_links(steps_reader *s, uint32_t i_step)
{
    const stk_json *map = stk_json_value(s->map, i_step);
    stk_step *step = &s->steps[i_step];
    for (uint32_t i = 0; i < map->n; i++) {
        const stk_json *key = stk_json_key(map, i);
        const stk_json *value = stk_json_value(map, i);
        if (value->kind == STK_JSON_NULL) {
            continue;
        }
        if (strcmp(key->text, step_keys[K_INPUTS]) == 0) {
            STK_TRY(read_inputs(s, value, step));
        } else if (strcmp(key->text, step_keys[K_AFTER]) == 0) {
            STK_TRY(read_after(s, value, step));
        } else if (strcmp(key->text, "cache") == 0) {
            STK_TRY(check_ignored(s, map, step));
        }
    }
    STK_TRY(check_parameters(s, map, step));
    return stk_spec_read_next(s->r, map, step);
}

/* --- all of them --- */

static int read_names(steps_reader *s)
{
    stk_spec_reader *r = s->r;
    for (uint32_t i = 0; i < s->map->n; i++) {
        const stk_json *key = stk_json_key(s->map, i);
        if (!stk_units_is_name(key->text, false)) {
            return stk_spec_fail(
                r, key,
                "step '%.80s': a step's name must have only letters, digits, _ and -, at most %d",
                key->text, STK_LIMIT_NAME);
        }
        s->steps[i].name = key->text;
        if (stk_map_put(&r->spec->step_index, key->text, i) < 0) {
            return stk_spec_no_memory(r);
        }
    }
    return 0;
}

int stk_spec_read_steps(stk_spec_reader *r, const stk_json *map)
{
    int rc = stk_spec_read_map(r, map, "steps");
    if (rc < 0) {
        return rc;
    }
    if (map->n > STK_LIMIT_STEPS) {
        return stk_spec_fail_code(r, STK_E_LIMIT, map, "%u steps; %d is the limit",
                                  (unsigned)map->n, STK_LIMIT_STEPS);
    }
    steps_reader s = {.r = r, .map = map, .scratch = STK_BUF_INIT(SIZE_MAX / 2)};
    s.steps = stk_arena_array(r->arena, map->n, sizeof *s.steps);
    s.outputs = calloc((size_t)map->n + 1, sizeof *s.outputs);
    if (s.steps == NULL || s.outputs == NULL) {
        rc = stk_spec_no_memory(r);
    } else {
        rc = read_names(&s);
    }
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        r->step = s.steps[i].name;
        rc = read_step(&s, i);
    }
    r->spec->steps = s.steps;
    r->spec->n_steps = rc < 0 ? 0 : map->n;
    for (uint32_t i = 0; rc == 0 && i < map->n; i++) {
        r->step = s.steps[i].name;
        rc = read_links(&s, i);
    }
    r->step = NULL;
    for (uint32_t i = 0; s.outputs != NULL && i < map->n; i++) {
        stk_map_done(&s.outputs[i]);
    }
    free(s.outputs);
    stk_map_done(&s.shared);
    stk_buf_done(&s.scratch);
    if (rc == 0) {
        rc = stk_spec_check_growth(r, map);
    }
    if (rc < 0 || r->spec->grows) {
        return rc;
    }
    return stk_spec_order_steps(r, s.steps, map->n);
}
