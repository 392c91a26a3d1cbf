/* A step's program in an image: its words, its folder, its environment. The same in a container of
 * this machine and on other machines, where our own folder is at the same place inside. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"

static int parse(const char *json, stk_arena *arena, stk_json *ret, stk_err *err)
{
    static const stk_json_limits limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES,
                                           STK_LIMIT_DEPTH};
    if (json == NULL) {
        return 0;
    }
    return stk_json_parse(json, strlen(json), NULL, &limits, arena, ret, err);
}

int stk_exec_inside_open(stk_exec *x, uint32_t task, const stk_place *place, exec_inside *inside,
                         stk_err *err)
{
    inside->task = task;
    inside->step = stk_exec_step(x, task);
    STK_TRY(parse(place->docker, x->scratch, &inside->docker, err));
    return parse(place->options, x->scratch, &inside->options, err);
}

const char *stk_exec_below(const char *folder, const char *path)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

const char *stk_exec_inside_program(stk_exec *x, const exec_inside *in)
{
    return stk_arena_printf(x->scratch, "%s/bin/stoker", in->at);
}

/* A gang's command is the launcher's to run: `stoker launch --gang DIR/task.json -- ARGV`; a Python
 * step's worker starts it itself. */
const char *const *stk_exec_inside_argv(stk_exec *x, const exec_inside *in)
{
    const stk_step *step = in->step;
    const char **argv = stk_arena_array(x->scratch, (size_t)step->n_argv + 8, sizeof *argv);
    uint32_t n = 0;
    if (argv == NULL) {
        return NULL;
    }
    if (step->python != NULL) {
        const char *python = stk_json_get_text(&in->options, "python");
        if (python == NULL) {
            python = stk_json_get_text(&in->options, "executable");
        }
        argv[n++] = stk_text_or(python, "python3");
        argv[n++] = "-m";
        argv[n++] = "stoker._worker";
        argv[n++] = in->dir;
        if (in->main_file != NULL) {
            argv[n++] = "--main";
            argv[n++] = in->main_file;
        }
        return argv;
    }
    if (stk_exec_gang(x, in->task).ranks != 0) {
        argv[n++] = stk_exec_inside_program(x, in);
        argv[n++] = "launch";
        argv[n++] = "--gang";
        argv[n++] = stk_arena_printf(x->scratch, "%s/task.json", in->dir);
        argv[n++] = "--";
        if (argv[0] == NULL || argv[3] == NULL) {
            return NULL;
        }
    }
    if (step->n_argv > 0) {
        memcpy(argv + n, step->argv, step->n_argv * sizeof *argv);
    }
    return argv;
}

/* The document's folder, where the project's files that are inside hold it. */
const char *stk_exec_inside_cwd(const stk_exec *x, const exec_inside *in)
{
    const char *folder = stk_spec_folder(x->spec);
    bool there = in->root == NULL || strcmp(folder, in->root) == 0 ||
                 stk_exec_below(in->root, folder) != NULL;
    return in->step->cwd != NULL ? in->step->cwd : there ? folder : in->root;
}

/* Was an image built, which has `environment` then? */
static bool has_environment(const exec_inside *in)
{
    const stk_json *skip = stk_json_get(&in->docker, "skip_build");
    return skip == NULL || skip->kind != STK_JSON_BOOL || !skip->truth;
}

/* What DockerSettings say; `environment` where nothing is built that would have it. */
static void put_settings(const exec_inside *in, const char *name, exec_put_env put, void *arg)
{
    bool expands = strcmp(name, "environment") == 0;
    const stk_json *map = expands && has_environment(in) ? NULL : stk_json_get(&in->docker, name);
    for (uint32_t i = 0; map != NULL && map->kind == STK_JSON_MAP && i < map->n; i++) {
        const stk_json *value = stk_json_value(map, i);
        const char *text = value->kind == STK_JSON_BOOL ? (value->truth ? "True" : "False")
                           : value->kind == STK_JSON_TEXT || value->kind == STK_JSON_INT ||
                                   value->kind == STK_JSON_REAL
                               ? value->text
                               : NULL;
        const char *key = stk_json_key(map, i)->text;
        bool again =
            expands && stk_json_get(stk_json_get(&in->docker, "runtime_environment"), key) != NULL;
        if (text != NULL && !again &&
            (in->step->python == NULL || strcmp(key, "PYTHONPATH") != 0)) {
            put(arg, key, text, expands);
        }
    }
}

/* With a backslash before each '$'. */
static const char *as_written(const char *text, stk_arena *arena)
{
    char *out = stk_arena_alloc(arena, 2 * strlen(text) + 1);
    char *to = out;
    for (; out != NULL && *text != '\0'; text++) {
        *to = '\\';
        to += *text == '$';
        *to++ = *text;
    }
    if (out != NULL) {
        *to = '\0';
    }
    return out;
}

/* Always as a Dockerfile would have it. */
static const char *python_path(stk_exec *x, const exec_inside *in)
{
    const char *host = getenv("PYTHONPATH");
    bool shim = host != NULL && strstr(host, "/stoker/_compat") != NULL;
    const char *folder = as_written(stk_spec_folder(x->spec), x->scratch);
    const char *written =
        has_environment(in)
            ? NULL
            : stk_json_get_text(stk_json_get(&in->docker, "environment"), "PYTHONPATH");
    const char *plain =
        stk_json_get_text(stk_json_get(&in->docker, "runtime_environment"), "PYTHONPATH");
    if (plain == NULL && written == NULL) {
        plain = in->python_path;
    }
    const char *more = plain != NULL ? as_written(plain, x->scratch) : written;
    if (folder == NULL || (plain != NULL && more == NULL)) {
        return NULL;
    }
    return stk_arena_printf(x->scratch, "%s/python%s%s%s:%s%s%s", in->at, shim ? ":" : "",
                            shim ? in->at : "", shim ? "/python/stoker/_compat" : "", folder,
                            more != NULL ? ":" : "", stk_text_or(more, ""));
}

int stk_exec_inside_env(stk_exec *x, const exec_inside *in, exec_put_env put, void *arg,
                        stk_err *err)
{
    put_settings(in, "environment", put, arg);
    put_settings(in, "runtime_environment", put, arg);
    const char *path = in->step->python == NULL ? "" : python_path(x, in);
    const char *program = in->has_program ? stk_exec_inside_program(x, in) : "";
    if (path == NULL || program == NULL) {
        return stk_err_nomem(err);
    }
    if (in->step->python != NULL) {
        put(arg, "PYTHONPATH", path, true);
    }
    if (in->has_program) {
        put(arg, "STOKER_BIN", program, false);
    }
    return 0;
}

const char *stk_exec_inside_image(const stk_exec *x, uint32_t task)
{
    return stk_exec_is_contained(x, task) ? stk_exec_container_image(x, task)
           : stk_exec_is_away(x, task)    ? stk_exec_away_image(x, task)
                                          : NULL;
}

const char *stk_exec_inside_seen(const stk_exec *x, uint32_t task, const char *seen,
                                 stk_arena *arena)
{
    const char *root =
        stk_exec_is_contained(x, task) ? x->config.containers->root : x->config.elsewhere->root;
    stk_json map = {0};
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    bool any = false;
    if (parse(seen, arena, &map, NULL) < 0) {
        return seen; /* who reads it says what is wrong */
    }
    stk_buf_char(&text, '{');
    for (uint32_t i = 0; root != NULL && map.kind == STK_JSON_MAP && i < map.n; i++) {
        const char *path = stk_json_key(&map, i)->text;
        const char *digest = stk_json_text(stk_json_value(&map, i));
        if (digest != NULL && stk_exec_below(root, path) != NULL) {
            stk_buf_text(&text, any ? "," : "");
            stk_buf_json(&text, path);
            stk_buf_char(&text, ':');
            stk_buf_json(&text, digest);
            any = true;
        }
    }
    stk_buf_char(&text, '}');
    return any && !text.failed ? stk_arena_dup(arena, text.data) : NULL;
}
