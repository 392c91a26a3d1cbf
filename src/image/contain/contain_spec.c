/* The `container` of a task.json. The engine writes it, so a mistake in it is a usage error. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "image/contain/contain_private.h"
#include "sys/file.h"

enum { TASK_MAX = 64 << 20 };

typedef struct reader {
    stk_arena *arena;
    const char *path;
    const stk_json *map;
    stk_err *err;
    int rc;
} reader;

static void fail_at_key(reader *r, const char *key, const char *wants)
{
    if (r->rc == 0) {
        r->rc = stk_err_set(r->err, STK_E_SPEC, "%s: container.%s must be %s", r->path, key, wants);
    }
}

static void out_of_memory(reader *r)
{
    if (r->rc == 0) {
        r->rc = stk_err_sys(r->err, STK_E_NOMEM, ENOMEM, "%s", r->path);
    }
}

static const stk_json *get_member(reader *r, const char *key, stk_json_kind kind)
{
    const stk_json *v = stk_json_get(r->map, key);
    if (v == NULL || v->kind == STK_JSON_NULL) {
        return NULL;
    }
    if (v->kind != kind) {
        fail_at_key(r, key, stk_json_kind_words(kind));
        return NULL;
    }
    return v;
}

static const char *text(reader *r, const char *key)
{
    const stk_json *v = get_member(r, key, STK_JSON_TEXT);
    const char *t = stk_json_text(v);
    if (v != NULL && t == NULL) {
        fail_at_key(r, key, "a string without NUL bytes");
    }
    return t;
}

static int64_t number_of_key(reader *r, const char *key)
{
    const stk_json *v = get_member(r, key, STK_JSON_INT);
    int64_t n = -1;
    if (v != NULL && (!stk_json_int(v, &n) || n <= 0)) {
        fail_at_key(r, key, "a number above 0");
    }
    return n;
}

static bool truth(reader *r, const char *key)
{
    const stk_json *v = get_member(r, key, STK_JSON_BOOL);
    return v != NULL && v->truth;
}

static const char **texts(reader *r, const char *key, uint32_t *ret_n)
{
    const stk_json *v = get_member(r, key, STK_JSON_LIST);
    uint32_t n = stk_json_n_items(v);
    const char **all = stk_arena_array(r->arena, (size_t)n + 1, sizeof *all);
    for (uint32_t i = 0; all != NULL && i < n; i++) {
        all[i] = stk_json_text(&v->items[i]);
        if (all[i] == NULL) {
            fail_at_key(r, key, "a list of strings");
        }
    }
    if (all == NULL) {
        out_of_memory(r);
    }
    *ret_n = n;
    return all;
}

/* Reads env, and the variables of our own environment that `pass` names. */
static void read_env(reader *r, contain_spec *s)
{
    const stk_json *map = get_member(r, "env", STK_JSON_MAP);
    uint32_t n_pass = 0;
    const char **pass = texts(r, "pass", &n_pass);
    uint32_t n = stk_json_n_members(map);
    s->env = stk_arena_array(r->arena, (size_t)n + n_pass + 1, sizeof *s->env);
    for (uint32_t i = 0; s->env != NULL && r->rc == 0 && i < n; i++) {
        const char *value = stk_json_text(stk_json_value(map, i));
        if (value == NULL) {
            fail_at_key(r, "env", "a mapping of strings");
            return;
        }
        s->env[s->n_env++] = stk_arena_printf(r->arena, "%s=%s", stk_json_key(map, i)->text, value);
    }
    for (uint32_t i = 0; s->env != NULL && r->rc == 0 && i < n_pass; i++) {
        const char *value = getenv(pass[i]);
        if (value != NULL) {
            s->env[s->n_env++] = stk_arena_printf(r->arena, "%s=%s", pass[i], value);
        }
    }
    for (uint32_t i = 0; s->env != NULL && i < s->n_env; i++) {
        if (s->env[i] == NULL) {
            out_of_memory(r);
        }
    }
    if (s->env == NULL) {
        out_of_memory(r);
    }
}

static void read_mounts(reader *r, contain_spec *s)
{
    const stk_json *list = get_member(r, "mounts", STK_JSON_LIST);
    s->n_mounts = stk_json_n_items(list);
    s->mounts = stk_arena_array(r->arena, (size_t)s->n_mounts + 1, sizeof *s->mounts);
    if (s->mounts == NULL) {
        out_of_memory(r);
        return;
    }
    for (uint32_t i = 0; i < s->n_mounts; i++) {
        const stk_json *one = &list->items[i];
        contain_mount *m = &s->mounts[i];
        m->from = stk_json_get_text(one, "from");
        m->to = stk_json_get_text(one, "to");
        m->write = stk_json_is_true(stk_json_get(one, "write"));
        m->to = stk_text_or(m->to, m->from);
        if (m->from == NULL || m->from[0] != '/' || m->to[0] != '/') {
            fail_at_key(r, "mounts",
                        "a list of {\"from\": \"/…\", \"to\": \"/…\", \"write\": false}");
            return;
        }
    }
}

/* Devices join those of the lease, so that one place knows how an engine gets them. */
static void read_volumes(reader *r, contain_spec *s)
{
    const stk_json *list = get_member(r, "volumes", STK_JSON_LIST);
    s->n_volumes = stk_json_n_items(list);
    s->volumes = stk_arena_array(r->arena, (size_t)s->n_volumes + 1, sizeof *s->volumes);
    if (s->volumes == NULL) {
        out_of_memory(r);
        return;
    }
    for (uint32_t i = 0; i < s->n_volumes; i++) {
        const stk_json *one = &list->items[i];
        stk_spec_volume *v = &s->volumes[i];
        v->kind = stk_json_get_text(one, "kind");
        v->from = stk_json_get_text(one, "from");
        v->to = stk_json_get_text(one, "to");
        v->how = stk_text_or(stk_json_get_text(one, "how"), "");
        v->write = stk_json_is_true(stk_json_get(one, "write"));
        if (v->kind == NULL || (v->from == NULL && v->to == NULL)) {
            fail_at_key(r, "volumes", "a list of {\"kind\", \"from\", \"to\", \"how\", \"write\"}");
            return;
        }
    }
}

/* stoker-RUN-STEP-ATTEMPT; a unique name if the document names no run. */
static void make_name(reader *r, const stk_json *root, contain_spec *s)
{
    const char *run = stk_json_get_text(root, "run");
    const char *step = stk_json_get_text(root, "step");
    int64_t task = 0;
    int64_t attempt = 1;
    (void)stk_json_int(stk_json_get(root, "task"), &task);
    (void)stk_json_int(stk_json_get(root, "attempt"), &attempt);
    if (run == NULL || step == NULL) {
        s->name = stk_arena_printf(r->arena, "stoker-%d-%lld", (int)getpid(), (long long)attempt);
    } else if (task > 0) {
        s->name = stk_arena_printf(r->arena, "stoker-%s-%s.%lld-%lld", run, step, (long long)task,
                                   (long long)attempt);
    } else {
        s->name = stk_arena_printf(r->arena, "stoker-%s-%s-%lld", run, step, (long long)attempt);
    }
    if (s->name == NULL) {
        out_of_memory(r);
    }
}

static void read_members(reader *r, contain_spec *s)
{
    s->image = text(r, "image");
    s->shown = text(r, "name");
    s->shown = stk_text_or(s->shown, s->image);
    s->socket = text(r, "socket");
    s->cwd = text(r, "cwd");
    s->user = text(r, "user");
    s->owner = text(r, "owner");
    s->network = text(r, "network");
    s->cpus = text(r, "cpus");
    s->argv = texts(r, "argv", &s->n_argv);
    s->devices = texts(r, "devices", &s->n_devices);
    s->gpus = texts(r, "gpus", &s->n_gpus);
    s->labels = get_member(r, "labels", STK_JSON_MAP);
    const stk_json *ulimits = stk_json_get(r->map, "ulimits");
    s->ulimits = stk_json_is_list(ulimits) ? ulimits : get_member(r, "ulimits", STK_JSON_MAP);
    s->memory_bytes = number_of_key(r, "memory_bytes");
    s->cpu_milli = number_of_key(r, "cpu_milli");
    s->shm_bytes = number_of_key(r, "shm_bytes");
    s->pids = number_of_key(r, "pids");
    s->run_args = get_member(r, "run_args", STK_JSON_MAP);
    s->pids = stk_json_get_whole(s->run_args, "pids_limit", s->pids);
    s->read_only =
        truth(r, "read_only") || stk_json_is_true(stk_json_get(s->run_args, "read_only"));
    const char *entrypoint = text(r, "entrypoint");
    s->keep_entrypoint = entrypoint != NULL && strcmp(entrypoint, "keep") == 0;
    if (entrypoint != NULL && !s->keep_entrypoint && strcmp(entrypoint, "bypass") != 0) {
        fail_at_key(r, "entrypoint", "bypass or keep");
    }
    if (s->network == NULL) {
        s->network = "host";
    }
    if (strcmp(s->network, "host") != 0 && strcmp(s->network, "bridge") != 0 &&
        strcmp(s->network, "none") != 0) {
        fail_at_key(r, "network", "host, bridge or none");
    }
    if (s->image == NULL) {
        fail_at_key(r, "image", "an image");
    }
    if (s->n_argv == 0 && !s->keep_entrypoint) {
        fail_at_key(r, "argv", "the program and its arguments");
    }
    uint32_t n_expand = 0;
    s->expand = texts(r, "expand", &n_expand);
    read_env(r, s);
    read_mounts(r, s);
    read_volumes(r, s);
}

bool stk_contain_switches(const contain_spec *spec)
{
    return spec->owner != NULL && spec->user != NULL && spec->user[0] != '\0' &&
           strcmp(spec->user, spec->owner) != 0;
}

int stk_contain_read(const char *task_json, stk_arena *arena, contain_spec *ret, stk_err *err)
{
    STK_TEXT_AUTO path = stk_file_absolute(task_json);
    STK_TEXT_AUTO data = NULL;
    size_t n = 0;
    stk_json root = {0};
    *ret = (contain_spec){0};
    if (path == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%s", task_json);
    }
    STK_TRY(stk_file_read(path, TASK_MAX, &data, &n, err));
    STK_TRY(stk_json_parse(data, n, path, &stk_engine_limits, arena, &root, err));
    reader r = {.arena = arena, .path = path, .map = stk_json_get(&root, "container"), .err = err};
    if (r.map == NULL || r.map->kind != STK_JSON_MAP) {
        return stk_err_set(err, STK_E_SPEC, "%s: `container` is missing", path);
    }
    ret->dir = stk_arena_dupn(arena, path, (size_t)(strrchr(path, '/') - path));
    read_members(&r, ret);
    make_name(&r, &root, ret);
    if (ret->dir == NULL) {
        out_of_memory(&r);
    }
    return r.rc;
}
