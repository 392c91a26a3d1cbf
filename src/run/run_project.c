/* The parts of a step and its project that matter in a container or on another machine: the Python
 * file that began the pipeline, the project's folder, and options of how the program runs. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/text.h"
#include "run/run_containers.h"
#include "store/package/package.h"

/* --- steps --- */

int stk_run_at_step(const stk_spec *spec, const stk_step *step, stk_err *err)
{
    if (err->file[0] == '\0' && stk_spec_path(spec) != NULL) {
        stk_err_at(err, stk_spec_path(spec), step->line);
    } else if (err->file[0] == '\0') {
        stk_err_at(err, step->source, 0);
    }
    return err->code;
}

int stk_run_check_python(const stk_spec *spec, const stk_step *step, const char *main_file,
                         stk_err *err)
{
    const char *where = "in a notebook or an interactive session";
    if (step->interpreter != NULL) {
        stk_err_set(err, STK_E_SPEC,
                    "step '%s' has packages of its own (%s), which only this machine has, but it "
                    "runs in a container or on another machine",
                    step->name, step->interpreter);
        stk_err_hint(err, "name an image that has the packages, with the step's @pypi or @conda "
                          "`disabled=True`; or let it run on this machine (`backend: local`)");
        return stk_run_at_step(spec, step, err);
    }
    if (strchr(step->python, '<') != NULL) { /* <locals>, <lambda> */
        where = "inside another function";
    } else if (strncmp(step->python, "__main__:", 9) != 0 || main_file != NULL) {
        return 0;
    }
    stk_err_set(err, STK_E_SPEC, "step '%s' can't run in a container: its function is defined %s",
                step->name, where);
    stk_err_hint(err, "define it at the top level of a .py file, or let it run on this machine "
                      "(`step_operator=\"local\"`, `backend: local`)");
    return stk_run_at_step(spec, step, err);
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const stk_json *)a)->text, ((const stk_json *)b)->text);
}

/* A copy whose maps have their members in the order of the keys. */
static stk_json in_order(const stk_json *value, stk_arena *arena)
{
    stk_json copy = stk_json_of_map();
    if (!stk_json_is_map(value)) {
        return *value;
    }
    for (uint32_t i = 0; i < value->n; i++) {
        (void)stk_json_set(arena, &copy, stk_json_key(value, i)->text,
                           in_order(stk_json_value(value, i), arena));
    }
    if (copy.n > 0) {
        qsort((stk_json *)(uintptr_t)copy.items, copy.n, 2 * sizeof *copy.items, by_key);
    }
    return copy;
}

/* The user as whom the program of a place runs; NULL: the image's. */
static const stk_json *find_user(const stk_json *docker, const stk_json *options)
{
    const stk_json *user = stk_json_get(docker, "user");
    if (user == NULL || user->kind == STK_JSON_NULL) {
        return stk_spec_docker_option(options, "user");
    }
    return user;
}

int stk_run_how_it_runs(const stk_place *place, stk_arena *arena, const char **ret, stk_err *err)
{
    const stk_json *docker = stk_json_read(arena, place->docker);
    const stk_json *options = stk_json_read(arena, place->options);
    const struct {
        const char *name;
        const stk_json *value;
    } said[] = {{"devices", stk_spec_docker_option(options, "devices")}, /* by their names */
                {"entrypoint", stk_json_get(docker, "entrypoint")},
                {"environment", stk_json_get(docker, "environment")},
                {"mounts", stk_spec_docker_option(options, "mounts")},
                {"python", stk_spec_docker_option(options, "python")},
                {"run_args.environment", stk_spec_docker_option(options, "environment")},
                {"runtime_environment", stk_json_get(docker, "runtime_environment")},
                {"user", find_user(docker, options)},
                {"volumes", stk_spec_docker_option(options, "volumes")}};
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    *ret = NULL;
    stk_json_open(&text, NULL, '{');
    for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
        if (said[i].value != NULL && said[i].value->kind != STK_JSON_NULL) {
            stk_json value = in_order(said[i].value, arena);
            stk_json_put(&text, said[i].name, &value);
        }
    }
    stk_json_close(&text, '}');
    STK_TRY(stk_buf_check(&text, err));
    if (text.len == strlen("{}")) {
        return 0;
    }
    *ret = stk_buf_keep(&text, arena);
    return stk_err_if_null(*ret, err);
}

bool stk_run_has_user(const stk_place *place)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    return place->kind == STK_PLACE_DOCKER &&
           (arena == NULL || find_user(stk_json_read(arena, place->docker),
                                       stk_json_read(arena, place->options)) != NULL);
}

/* --- the project --- */

const char *stk_run_main_file(const stk_spec *spec, stk_arena *arena)
{
    const stk_json *origin = stk_json_read(arena, stk_spec_origin(spec));
    if (stk_json_get(origin, "argv") == NULL) { /* by no program */
        return NULL;
    }
    return stk_json_get_text(origin, "file");
}

const char *stk_run_project(const stk_spec *spec, const char *main_file, stk_arena *arena)
{
    const char *slash = main_file == NULL ? NULL : strrchr(main_file, '/');
    const char *folder = stk_spec_folder(spec);
    if (slash != NULL) {
        folder = stk_arena_dupn(arena, main_file, (size_t)(slash - main_file));
    }
    if (folder == NULL) {
        return NULL;
    }
    return stk_package_root(folder, arena);
}

/* A project mounted over one of these folders would hide files that every image needs. */
int stk_run_check_project(const char *root, bool by_file, stk_err *err)
{
    static const char *const taken[] = {"",     "/",    "/tmp", "/home", "/root", "/usr", "/etc",
                                        "/var", "/opt", "/srv", "/mnt",  "/bin",  "/lib", "/dev"};
    for (size_t i = 0; !by_file && i < sizeof taken / sizeof *taken; i++) {
        if (strcmp(root, taken[i]) == 0) {
            stk_err_set(err, STK_E_USAGE,
                        "the project's folder is %s, which can't be replaced in a container",
                        *root == '\0' ? "/" : root);
            stk_err_hint(err, "put the project into a folder of its own");
            return STK_E_USAGE;
        }
    }
    return 0;
}

/* `path` as a file below `root`, or NULL. */
static const char *file_below(const char *root, const char *path)
{
    size_t n = strlen(root);
    struct stat st;
    bool is_file = strncmp(path, root, n) == 0 && path[n] == '/' && stat(path, &st) == 0 &&
                   S_ISREG(st.st_mode);
    return is_file ? path + n + 1 : NULL;
}

/* The files that the steps' commands name. */
static int of_commands(const stk_spec *spec, const char *root, stk_arena *arena, const char **files,
                       uint32_t max, stk_err *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_step *step = stk_spec_step(spec, i);
        for (uint32_t k = 0; k < step->n_argv && n < max; k++) {
            const char *word = step->argv[k];
            const char *path = word;
            if (word[0] != '/') {
                path = stk_arena_printf(arena, "%s/%s", root,
                                        word + (strncmp(word, "./", 2) == 0 ? 2 : 0));
                STK_TRY(stk_err_if_null(path, err));
            }
            files[n] = file_below(root, path);
            n += files[n] != NULL;
        }
    }
    return 0;
}

static uint32_t n_words(const stk_spec *spec)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        n += stk_spec_step(spec, i)->n_argv;
    }
    return n;
}

int stk_run_only(const stk_spec *spec, const char *root, stk_arena *arena, const char *const **ret,
                 stk_err *err)
{
    const stk_json *origin = stk_json_read(arena, stk_spec_origin(spec));
    const stk_json *named = stk_json_get(origin, "files");
    const char *home = getenv("HOME");
    bool in_home = named == NULL && stk_json_get(origin, "argv") == NULL && home != NULL &&
                   strcmp(home, root) == 0;
    uint32_t max = in_home ? n_words(spec) : stk_json_n_items(named);
    const char **files = stk_arena_array(arena, (size_t)max + 1, sizeof *files);
    *ret = NULL;
    if (!in_home && !stk_json_is_list(named)) {
        return 0;
    }
    STK_TRY(stk_err_if_null(files, err));
    *ret = files;
    if (in_home) {
        return of_commands(spec, root, arena, files, max, err);
    }
    for (uint32_t i = 0, n = 0; i < max; i++) {
        files[n] = file_below(root, stk_text_or(stk_json_text(&named->items[i]), ""));
        n += files[n] != NULL;
    }
    return 0;
}

int stk_run_package(stk_store *store, const stk_spec *spec, const char *root, stk_plan *plan,
                    stk_artifact *ret, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *note = NULL;
    const char *const *only = NULL;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_run_only(spec, root, arena, &only, err));
    STK_TRY(stk_package_add_only(store, root, only, 0, arena, ret, &note, err));
    for (uint32_t i = 0; note != NULL && i < stk_plan_n_notes(plan); i++) {
        if (strcmp(stk_plan_note(plan, i), note) == 0) {
            note = NULL; /* reported before */
        }
    }
    if (note == NULL) {
        return 0;
    }
    return stk_plan_remark(plan, err, "%s", note);
}

static bool code_travels(const stk_run_containers *c, const stk_spec *spec)
{
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        stk_place_kind kind = c->places[i].kind;
        if (kind == STK_PLACE_DOCKER || stk_place_is_elsewhere(kind)) {
            return true;
        }
    }
    return false;
}

int stk_run_private_note(const stk_run_containers *c, const stk_spec *spec, const char *store,
                         stk_plan *plan, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *note = NULL;
    stk_err why = {0};
    if (!code_travels(c, spec)) {
        return 0;
    }
    const char *root = stk_run_project(spec, stk_run_main_file(spec, arena), arena);
    const char *const *only = NULL;
    STK_TRY(stk_err_if_null(root, err));
    STK_TRY(stk_run_only(spec, root, arena, &only, err));
    if (stk_run_check_project(root, only != NULL, &why) < 0 ||
        stk_package_private(store, root, only, arena, &note, &why) < 0) {
        return stk_plan_remark(plan, err, "refused: %s", why.text);
    }
    if (note == NULL) {
        return 0;
    }
    return stk_plan_remark(plan, err, "%s", note);
}

/* --- for both --- */

const char *stk_run_env_value(const char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; env != NULL && *env != NULL; env++) {
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=') {
            return *env + n + 1;
        }
    }
    return NULL;
}

int stk_run_note_findings(const stk_findings *findings, stk_plan *plan, stk_err *err)
{
    for (uint32_t i = 0; i < findings->n; i++) {
        if (findings->items[i].level >= STK_CHECK_WARNING) {
            STK_TRY(stk_plan_remark(plan, err, "%s", findings->items[i].text));
        }
    }
    return 0;
}
