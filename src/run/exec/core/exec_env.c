/* The environment of a step's program: its identity, its inputs, the user's variables, secrets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_reads.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

void stk_exec_env_add(exec_env *env, const char *key, const char *value)
{
    uint32_t n_used = env->n == 0 ? 0 : env->n + 1; /* the list ends with a NULL */
    const char **items = stk_arena_grow(env->arena, env->items, n_used, sizeof *items, &env->cap);
    const char *item = NULL;
    if (value != NULL) { /* NULL: out of memory */
        item = stk_arena_printf(env->arena, "%s=%s", key, value);
    }
    if (item == NULL || items == NULL) {
        env->failed = true;
        return;
    }
    env->items = items;
    env->items[env->n++] = item;
}

void stk_exec_env_set(exec_env *env, const char *key, const char *value)
{
    size_t n = strlen(key);
    for (uint32_t i = 0; i < env->n; i++) {
        if (strncmp(env->items[i], key, n) == 0 && env->items[i][n] == '=') {
            const char *item = stk_arena_printf(env->arena, "%s=%s", key, value);
            env->items[i] = stk_text_or(item, env->items[i]);
            env->failed = env->failed || item == NULL;
            return;
        }
    }
    stk_exec_env_add(env, key, value);
}

/* Adds STOKER_PARAM_<name>: a string as it is, other values as JSON. */
static void env_param(exec_env *env, const char *name, const char *json)
{
    char key[STK_LIMIT_NAME + 32];
    const char *value = json;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    (void)snprintf(key, sizeof key, "STOKER_PARAM_%s", name);
    if (json[0] == '"') {
        value = stk_json_text(stk_json_read(scratch, json));
    }
    if (value == NULL) {
        env->failed = true;
    } else if (strlen(key) + strlen(value) <
               STK_LIMIT_ENV_BYTES) { /* a longer one is in task.json only */
        stk_exec_env_add(env, key, value);
    }
}

/* Makes the folder in/NAME with a link for each item of a list. */
static int link_items(stk_exec *x, uint32_t task, exec_env *env, const stk_input *in,
                      const char *folder, stk_err *err)
{
    const char **digests = NULL;
    uint32_t n = 0;
    STK_TRY(stk_exec_input_digests(x, task, in, env->arena, &digests, &n, err));
    STK_TRY(stk_file_mkdirs(folder, 0755, err));
    for (uint32_t i = 0; i < n; i++) {
        const char *path = NULL;
        bool is_own;
        if (digests[i] != NULL) {
            const char *at = stk_exec_input_item(env->arena, folder, n, i);
            STK_TRY(stk_exec_artifact(x, env->is_away, digests[i], env->arena, &path, NULL, err));
            STK_TRY(stk_exec_input_put(x, &env->inputs, path, at, &is_own, err));
        }
    }
    return 0;
}

/* `name` NULL: the variables that each task of a foreach has, if the items are JSON. */
static int env_item(stk_exec *x, uint32_t task, exec_env *env, const char *name, stk_err *err)
{
    char number[16];
    const char *item = NULL;
    uint32_t index = UINT32_MAX;
    stk_err why = {0};
    int rc = stk_exec_scope_item(x, task, &item, &index, &why);
    if (rc == STK_E_NOMEM || (rc < 0 && name != NULL)) {
        *err = why;
        return rc;
    }
    if (name != NULL) {
        env_param(env, name, item);
        return 0;
    }
    if (index != UINT32_MAX) {
        (void)snprintf(number, sizeof number, "%u", index);
        stk_exec_env_add(env, "STOKER_INDEX", number);
    }
    if (rc == 0 && strlen(item) < STK_LIMIT_ENV_BYTES - sizeof "STOKER_ITEM=") {
        stk_exec_env_add(env, "STOKER_ITEM", item);
    }
    return 0;
}

/* Makes in/NAME; *ret_path: the input's path for the step. */
static int put_input(stk_exec *x, uint32_t task, exec_env *env, const char *dir,
                     const stk_input *in, const char **ret_path, stk_err *err)
{
    const char *path = NULL, *at = stk_arena_printf(env->arena, "%s/in/%s", dir, in->name);
    const char **digests = NULL;
    uint32_t n = 0;
    bool is_own = false;
    exec_inputs as_link = {.is_elsewhere = true};
    STK_TRY(stk_err_if_null(at, err));
    if (in->kind == STK_INPUT_LIST ||
        (in->kind == STK_INPUT_OUTPUT && stk_exec_step(x, task)->is_join)) {
        *ret_path = at;
        return link_items(x, task, env, in, at, err);
    }
    if (in->kind == STK_INPUT_FILE) { /* a file of the user's */
        STK_TRY(stk_exec_file(x, task, env->is_away, in->text, &path, NULL, err));
        STK_TRY(stk_exec_input_put(x, &as_link, path, at, &is_own, err));
    } else {
        STK_TRY(stk_exec_input_digests(x, task, in, env->arena, &digests, &n, err));
        STK_TRY(stk_exec_artifact(x, env->is_away, digests[0], env->arena, &path, NULL, err));
        STK_TRY(stk_exec_input_put(x, &env->inputs, path, at, &is_own, err));
    }
    *ret_path = is_own ? at : path;
    return 0;
}

static int env_input(stk_exec *x, uint32_t task, exec_env *env, const char *dir,
                     const stk_input *in, bool many, stk_err *err)
{
    char key[STK_LIMIT_NAME + 32];
    const char *path = NULL, *text = stk_exec_literal(x->spec, in);
    if (text != NULL) {
        env_param(env, in->name, text);
        return 0;
    }
    if (in->kind == STK_INPUT_ITEM) {
        return env_item(x, task, env, in->name, err);
    }
    STK_TRY(put_input(x, task, env, dir, in, &path, err));
    if (!many) { /* thousands would exceed the system's limit */
        (void)snprintf(key, sizeof key, "STOKER_INPUT_%s", in->name);
        stk_exec_env_add(env, key, path);
    }
    return 0;
}

static int env_secrets(const stk_settings *s, exec_env *env, stk_err *err)
{
    for (uint32_t i = 0; i < s->n_secrets; i++) {
        char name[STK_LIMIT_NAME + 32];
        (void)snprintf(name, sizeof name, "STOKER_SECRET_%s", s->secrets[i]);
        const char *value = getenv(name);
        if (value == NULL && strpbrk(name, "-.") != NULL) {
            return stk_err_set(err, STK_E_ENV,
                               "secret '%s' is not known here, and no shell can set a variable "
                               "with such a name; name it with letters, digits and _ only",
                               s->secrets[i]);
        }
        if (value == NULL) {
            return stk_err_set(err, STK_E_ENV,
                               "secret '%s' is not known here; set %s in the environment of stoker",
                               s->secrets[i], name);
        }
        stk_exec_env_set(env, s->secrets[i], value);
    }
    return 0;
}

int stk_exec_job_env(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir, bool is_hook,
                     exec_env *env, stk_err *err)
{
    env->is_away = !is_hook && stk_exec_is_away(x, task); /* hooks run here */
    env->inputs.arena = env->arena;
    env->inputs.may_mount = stk_exec_may_mount(x, task);
    env->inputs.is_elsewhere = stk_exec_is_away(x, task) || stk_exec_is_contained(x, task);
    const stk_step *step = stk_exec_step(x, task);
    const stk_settings *s = step->settings;
    const exec_slot *slot = x->tasks[task].slot;
    char number[16], id[16];
    (void)snprintf(number, sizeof number, "%u", attempt);
    (void)snprintf(id, sizeof id, "%u", stk_exec_id(x, task));
    stk_exec_env_add(env, "STOKER_RUN", x->config.run);
    stk_exec_env_add(env, "STOKER_PIPELINE", stk_spec_name(x->spec));
    stk_exec_env_add(env, "STOKER_STEP", step->name);
    stk_exec_env_add(env, "STOKER_TASK", id);
    stk_exec_env_add(env, "STOKER_ATTEMPT", number);
    stk_exec_env_add(env, "STOKER_TASK_DIR", dir);
    stk_exec_env_add(env, "STOKER_INPUT", stk_arena_printf(env->arena, "%s/in", dir));
    stk_exec_env_add(env, "STOKER_OUTPUT", stk_arena_printf(env->arena, "%s/out", dir));
    stk_exec_env_add(env, "STOKER_METRICS", stk_arena_printf(env->arena, "%s/metrics.jsonl", dir));
    stk_exec_env_add(env, "STOKER_CHECKPOINT_DIR", stk_exec_checkpoints(x, task, env->arena));
    stk_exec_env_add(env, "STOKER_STORE", stk_store_path(x->config.store));
    if (!is_hook) {
        stk_exec_reads_env(x, task, dir, env);
    }
    if (getenv("PYTHONUNBUFFERED") == NULL) { /* prints appear at once; the user's settings win */
        stk_exec_env_add(env, "PYTHONUNBUFFERED", "1");
    }
    if (x->graph.grow != NULL && step->python == NULL) {
        STK_TRY(env_item(x, task, env, NULL, err));
    }
    for (uint32_t i = 0; i < step->n_inputs && step->python == NULL; i++) {
        bool many = step->n_inputs > STK_LIMIT_INPUTS_ENV;
        STK_TRY(env_input(x, task, env, dir, &step->inputs[i], many, err));
    }
    if (slot != NULL && slot->n_cpus > 0) {
        static const char *const names[] = {
#define X(name) name,
#include "tbl/threads.def"
#undef X
        };
        (void)snprintf(number, sizeof number, "%u", slot->n_cpus);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            stk_exec_env_add(env, names[i], number);
        }
    }
    if (x->config.accel != NULL && !env->is_away) { /* elsewhere the agent sets them */
        const char *pairs[64][2];
        stk_lease none = {0};
        uint32_t n = stk_lease_env(x->config.accel, slot != NULL ? &slot->lease : &none, env->arena,
                                   pairs, 64);
        for (uint32_t i = 0; i < n; i++) {
            stk_exec_env_add(env, pairs[i][0], pairs[i][1]);
        }
    }
    for (uint32_t i = 0; i < s->n_env; i++) {
        stk_exec_env_set(env, s->env[i].key, s->env[i].value);
    }
    STK_TRY(env_secrets(s, env, err));
    if (!env->failed) {
        return 0;
    }
    return stk_err_nomem(err);
}
