/* A step's program in an image: its command line, folder and environment. The same code serves
 * containers on this machine and jobs on other machines; only the path of our own files differs
 * (exec_in_image.at). */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"

static int parse_settings(const char *json, stk_arena *arena, stk_json *ret, stk_err *err)
{
    static const stk_json_limits limits = {STK_LIMIT_SPEC_BYTES, STK_LIMIT_YAML_NODES,
                                           STK_LIMIT_DEPTH};
    if (json == NULL) {
        return 0;
    }
    return stk_json_parse(json, strlen(json), NULL, &limits, arena, ret, err);
}

int stk_exec_in_image_open(stk_exec *x, uint32_t task, const stk_place *place, exec_in_image *in,
                           stk_err *err)
{
    in->task = task;
    in->step = stk_exec_step(x, task);
    STK_TRY(parse_settings(place->docker, x->scratch, &in->docker, err));
    return parse_settings(place->options, x->scratch, &in->options, err);
}

const char *stk_exec_below(const char *folder, const char *path)
{
    size_t n = strlen(folder);
    return strncmp(path, folder, n) == 0 && path[n] == '/' ? path + n + 1 : NULL;
}

static const char *our_program(stk_exec *x, const exec_in_image *in)
{
    return stk_arena_printf(x->scratch, "%s/bin/stoker", in->at);
}

/* The launcher runs a gang's command: `stoker launch --gang DIR/task.json -- ARGV`. A Python step
 * needs no such words: its worker starts the launcher. */
const char *const *stk_exec_in_image_argv(stk_exec *x, const exec_in_image *in)
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
        argv[n++] = our_program(x, in);
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

/* The step's `cwd`; else the document's folder, or the project's folder if the project's files are
 * inside and don't contain the document. */
const char *stk_exec_in_image_cwd(const stk_exec *x, const exec_in_image *in)
{
    const char *folder = stk_spec_folder(x->spec);
    bool there = in->root == NULL || strcmp(folder, in->root) == 0 ||
                 stk_exec_below(in->root, folder) != NULL;
    return stk_text_or(in->step->cwd, there ? folder : in->root);
}

/* Whether an image is built: the build puts `environment` into it. */
static bool has_environment(const exec_in_image *in)
{
    return !stk_json_is_true(stk_json_get(&in->docker, "skip_build"));
}

/* The value as Python's str() writes it; NULL: not a scalar. */
static const char *scalar_text(const stk_json *value)
{
    if (value->kind == STK_JSON_BOOL) {
        return value->truth ? "True" : "False";
    }
    return value->kind == STK_JSON_TEXT || stk_json_is_number(value) ? value->text : NULL;
}

/* Puts the variables of `name` in DockerSettings. Skips `environment` if it is built into the
 * image. */
static void put_settings(const exec_in_image *in, const char *name, exec_put_env put, void *arg)
{
    bool expands = strcmp(name, "environment") == 0;
    /* it wins over `environment` */
    const stk_json *later = expands ? stk_json_get(&in->docker, "runtime_environment") : NULL;
    const stk_json *map = stk_json_get(&in->docker, name);
    if (expands && has_environment(in)) {
        return;
    }
    for (uint32_t i = 0; i < stk_json_n_members(map); i++) {
        const char *text = scalar_text(stk_json_value(map, i));
        const char *key = stk_json_key(map, i)->text;
        bool is_ours = in->step->python != NULL && strcmp(key, "PYTHONPATH") == 0;
        if (text != NULL && !is_ours && stk_json_get(later, key) == NULL) {
            put(arg, key, text, expands);
        }
    }
}

/* A copy with a backslash before each '$', so that the expansion keeps it. */
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

/* PYTHONPATH, written as in a Dockerfile: our folder, the document's, then what the settings or the
 * image add. */
static const char *python_path(stk_exec *x, const exec_in_image *in)
{
    STK_BUF_AUTO path = STK_BUF_INIT(SIZE_MAX / 2);
    const char *host = getenv("PYTHONPATH");
    const char *folder = as_written(stk_spec_folder(x->spec), x->scratch);
    const char *more =
        stk_json_get_text(stk_json_get(&in->docker, "runtime_environment"), "PYTHONPATH");
    const char *written = NULL;
    if (!has_environment(in)) {
        written = stk_json_get_text(stk_json_get(&in->docker, "environment"), "PYTHONPATH");
    }
    if (more == NULL && written == NULL) {
        more = stk_exec_asked_variable(x, &in->options, "PYTHONPATH");
    }
    if (more == NULL && written == NULL) {
        more = in->python_path;
    }
    if (more != NULL) {
        written = as_written(more, x->scratch);
    }
    if (folder == NULL || (more != NULL && written == NULL)) {
        return NULL;
    }
    stk_buf_printf(&path, "%s/python", in->at);
    if (host != NULL && strstr(host, "/stoker/_compat") != NULL) {
        stk_buf_printf(&path, ":%s/python/stoker/_compat", in->at);
    }
    stk_buf_printf(&path, ":%s", folder);
    if (written != NULL) {
        stk_buf_printf(&path, ":%s", written);
    }
    return stk_buf_keep(&path, x->scratch);
}

int stk_exec_in_image_env(stk_exec *x, const exec_in_image *in, exec_put_env put, void *arg,
                          stk_err *err)
{
    put_settings(in, "environment", put, arg);
    put_settings(in, "runtime_environment", put, arg);
    if (in->step->python != NULL) {
        const char *path = python_path(x, in);
        STK_TRY(stk_err_if_null(path, err));
        put(arg, "PYTHONPATH", path, true);
    }
    if (in->has_program) {
        const char *program = our_program(x, in);
        STK_TRY(stk_err_if_null(program, err));
        put(arg, "STOKER_BIN", program, false);
    }
    return 0;
}

const char *stk_exec_image_of(const stk_exec *x, uint32_t task)
{
    if (stk_exec_is_contained(x, task)) {
        return stk_exec_container_image(x, task);
    }
    if (!stk_exec_is_away(x, task)) {
        return NULL;
    }
    return stk_exec_away_image(x, task);
}

const char *stk_exec_seen_of_project(const stk_exec *x, uint32_t task, const char *seen,
                                     stk_arena *arena)
{
    const char *root =
        stk_exec_is_contained(x, task) ? x->config.containers->root : x->config.elsewhere->root;
    stk_json map = {0};
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    if (parse_settings(seen, arena, &map, NULL) < 0) {
        return seen; /* the reader of this text reports what is wrong */
    }
    stk_json_open(&text, NULL, '{');
    size_t n_empty = text.len;
    for (uint32_t i = 0; root != NULL && i < stk_json_n_members(&map); i++) {
        const char *path = stk_json_key(&map, i)->text;
        const char *digest = stk_json_text(stk_json_value(&map, i));
        if (digest != NULL && stk_exec_below(root, path) != NULL) {
            stk_json_put_text(&text, path, digest);
        }
    }
    if (text.len == n_empty) {
        return NULL;
    }
    stk_json_close(&text, '}');
    return stk_buf_keep(&text, arena);
}
