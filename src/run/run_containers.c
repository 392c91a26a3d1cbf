#include "run/run_containers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "run/run_carry.h"
#include "run/run_check.h"
#include "run/run_python.h"
#include "store/package/package.h"
#include "sys/clock.h"
#include "sys/file.h"

enum {
    END_MS = 5000, /* for an engine that is silent at a run's end */
    AGAIN_NS = 50000000
};

/* --- places --- */

static int at_step(const stk_spec *spec, const stk_step *step, stk_err *err)
{
    if (err->file[0] == '\0' && stk_spec_path(spec) != NULL) {
        stk_err_at(err, stk_spec_path(spec), step->line);
    } else if (err->file[0] == '\0') {
        stk_err_at(err, step->source, 0);
    }
    return err->code;
}

int stk_run_places(const stk_spec *spec, const stk_run_options *options, stk_arena *arena,
                   stk_run_containers *ret, stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    stk_run_containers c = {.arena = arena,
                            .program = options->program,
                            .places = stk_arena_array(arena, n, sizeof *c.places)};
    stk_stack *run = stk_arena_alloc(arena, sizeof *run); /* places point to it */
    int rc = c.places == NULL || run == NULL
                 ? stk_err_nomem(err)
                 : stk_stack_find(stk_spec_folder(spec), options->with, arena, &c.stack, err);
    if (rc == 0) {
        *run = c.stack;
    }
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        rc = stk_stack_place(run, step->name, step->settings, arena, &c.places[i], err);
        if (rc < 0) {
            return at_step(spec, step, err);
        }
        bool inside = c.places[i].kind == STK_PLACE_DOCKER;
        if (inside && step->settings->gang.nodes > 1) {
            stk_err_set(err, STK_E_SPEC,
                        "step '%s' asks for %lld nodes and to run in a container: ranks on several "
                        "nodes start on the machines themselves",
                        step->name, (long long)step->settings->gang.nodes);
            stk_err_hint(err, "say `backend: local` for it, or leave out gang.nodes");
            return at_step(spec, step, err);
        }
        c.n += inside;
        c.n_kept += c.places[i].kind == STK_PLACE_LOCAL && step->settings->docker != NULL ? 1 : 0;
    }
    if (rc == 0) {
        *ret = c;
    }
    return rc;
}

/* --- images --- */

static const char *in_env(const char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; env != NULL && *env != NULL; env++) {
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=') {
            return *env + n + 1;
        }
    }
    return NULL;
}

static bool is_same(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* What this step does with its image is added to what others do. */
static int join(stk_image_want *w, const stk_step *step, bool devices, stk_arena *arena,
                stk_err *err)
{
    w->use.devices = w->use.devices || devices;
    w->use.python = w->use.python || step->python != NULL;
    w->allows_cpu_build = w->allows_cpu_build && stk_run_allows_cpu_build(step);
    if (step->n_uses == 0) {
        return 0;
    }
    const char **uses = stk_arena_array(arena, (size_t)w->use.n_uses + step->n_uses, sizeof *uses);
    STK_TRY(stk_err_if_null(uses, err));
    uint32_t n = w->use.n_uses;
    if (n > 0) {
        memcpy(uses, w->use.uses, n * sizeof *uses);
    }
    for (uint32_t i = 0; i < step->n_uses; i++) {
        bool there = false;
        for (uint32_t k = 0; k < n && !there; k++) {
            there = strcmp(uses[k], step->uses[i]) == 0;
        }
        if (!there) {
            uses[n++] = step->uses[i];
        }
    }
    w->use.uses = uses;
    w->use.n_uses = n;
    return 0;
}

/* One want for each different image; c->i_want says whose is whose. */
static int gather(stk_run_containers *c, const stk_spec *spec, const stk_plan *plan, stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    c->wants = stk_arena_array(c->arena, c->n, sizeof *c->wants);
    c->i_want = stk_arena_array(c->arena, n, sizeof *c->i_want);
    int rc = c->wants == NULL || c->i_want == NULL ? stk_err_nomem(err) : 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const stk_place *place = &c->places[i];
        const stk_step *step = stk_spec_step(spec, i);
        if (place->kind != STK_PLACE_DOCKER) {
            continue;
        }
        const char *docker = stk_image_builds(place->docker) ? place->docker : NULL;
        uint32_t k = 0;
        while (k < c->n_wants && (!is_same(c->wants[k].image, place->image) ||
                                  !is_same(c->wants[k].docker, docker))) {
            k++;
        }
        if (k == c->n_wants) {
            c->wants[c->n_wants++] = (stk_image_want){.step = step->name,
                                                      .image = place->image,
                                                      .docker = docker,
                                                      .allows_cpu_build = true};
        }
        c->i_want[i] = k;
        rc = join(&c->wants[k], step, stk_plan_request(plan, i)->n_asks > 0, c->arena, err);
    }
    return rc;
}

/* For a plan nothing is pulled or built: what isn't here is a note. What was built of these inputs
 * earlier is known (`w` is complete then). True: it can be made ready at no cost. */
static bool is_here(stk_run_containers *c, const stk_image_prepare *how, stk_image_want *w,
                    stk_plan *plan, int *rc, stk_err *err)
{
    stk_image_config config = {0};
    bool here =
        w->image != NULL && stk_image_local(&c->engine, w->image, c->arena, &config, NULL) == 0;
    if (w->docker == NULL && here) {
        return true;
    }
    const stk_image_recipe recipe = {.docker = w->docker,
                                     .parent = w->image,
                                     .parent_id = here ? config.id : NULL,
                                     .folder = how->folder,
                                     .python = how->python};
    if (w->docker != NULL && (here || w->image == NULL)) {
        const char *note = NULL;
        bool is_built = stk_image_built(&c->engine, &recipe, c->arena, &config, &note, NULL) == 0;
        *rc = note != NULL ? stk_plan_remark(plan, err, "step '%s': %s", w->step, note) : 0;
        if (is_built || *rc < 0) {
            w->id = config.id;
            w->env = config.env;
            return false;
        }
    }
    *rc = w->docker != NULL
              ? stk_plan_remark(plan, err,
                                "the image of step '%s' isn't there yet: a run builds it", w->step)
              : stk_plan_remark(plan, err, "image '%s' isn't on this machine yet: a run gets it",
                                w->image);
    return false;
}

static int make_ready(stk_run_containers *c, const stk_spec *spec, const stk_run_options *options,
                      const char *logs, stk_accel *accel, stk_plan *plan, bool soft, stk_err *err)
{
    char venv[4096];
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *origin = stk_json_read(scratch, stk_spec_origin(spec));
    const char *python = stk_json_get_text(origin, "python");
    if (options->python != NULL || python == NULL) {
        python = stk_run_python(options->python, venv, sizeof venv);
    }
    const stk_image_prepare how = {.folder = stk_spec_folder(spec),
                                   .python = python,
                                   .registry = c->stack.registry,
                                   .logs = logs,
                                   .say = soft ? NULL : options->say,
                                   .arg = options->arg};
    stk_findings findings = {.arena = c->arena};
    int rc = 0;
    for (uint32_t k = 0; k < c->n_wants && rc == 0; k++) {
        if (!soft || is_here(c, &how, &c->wants[k], plan, &rc, err)) {
            rc = stk_image_make_ready(&c->engine, &how, &c->wants[k], 1, accel, &findings, err);
        }
    }
    for (uint32_t i = 0; i < findings.n && rc == 0; i++) {
        if (findings.items[i].level >= STK_CHECK_WARNING) {
            rc = stk_plan_remark(plan, err, "%s", findings.items[i].text);
        }
    }
    return rc;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const stk_json *)a)->text, ((const stk_json *)b)->text);
}

/* The same with the members of maps in the order of their keys. */
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

static bool is_said(const stk_json *value)
{
    return value != NULL && value->kind != STK_JSON_NULL;
}

/* An option of a place, or of its run_args. */
static const stk_json *known(const stk_json *options, const char *name)
{
    const stk_json *value = stk_json_get(options, name);
    return value != NULL ? value : stk_json_get(stk_json_get(options, "run_args"), name);
}

int stk_run_how_it_runs(const stk_place *place, stk_arena *arena, const char **ret, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *docker = stk_json_read(scratch, place->docker);
    const stk_json *options = stk_json_read(scratch, place->options);
    const stk_json *values[] = {stk_json_get(docker, "entrypoint"),
                                stk_json_get(docker, "environment"), known(options, "python"),
                                stk_json_get(docker, "runtime_environment"),
                                is_said(stk_json_get(docker, "user")) ? stk_json_get(docker, "user")
                                                                      : known(options, "user")};
    static const char *const names[] = {"entrypoint", "environment", "python",
                                        "runtime_environment", "user"};
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    stk_json_open(&text, NULL, '{');
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) { /* by their names */
        if (is_said(values[i])) {
            stk_json value = in_order(values[i], scratch);
            stk_json_put(&text, names[i], &value);
        }
    }
    stk_json_close(&text, '}');
    *ret = text.len <= 2 ? NULL : stk_arena_dup(arena, text.data);
    return text.failed || scratch == NULL || (*ret == NULL && text.len > 2) ? stk_err_nomem(err)
                                                                            : 0;
}

int stk_run_check_python(const stk_spec *spec, const stk_step *step, const char *main_file,
                         stk_err *err)
{
    bool nested = strchr(step->python, '<') != NULL; /* <locals>, <lambda> */
    bool nowhere = strncmp(step->python, "__main__:", 9) == 0 && main_file == NULL;
    if (!nested && !nowhere) {
        return 0;
    }
    stk_err_set(err, STK_E_SPEC, "step '%s' can't run in a container: its function is defined %s",
                step->name,
                nested ? "inside of another function" : "in a notebook or an interactive session");
    stk_err_hint(err, "define it at the top level of a .py file, or let it run on this machine "
                      "(`step_operator=\"local\"`, `backend: local`)");
    return at_step(spec, step, err);
}

const char *stk_run_main_file(const stk_spec *spec, stk_arena *arena)
{
    const char *text = stk_spec_origin(spec);
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *origin = stk_json_read(scratch, text);
    bool by_python = stk_json_get(origin, "argv") != NULL;
    const char *file = stk_json_get_text(origin, "file");
    const char *kept = by_python && file != NULL ? stk_arena_dup(arena, file) : NULL;
    return kept;
}

/* One sentence for all the steps with the same. */
static int add_note(const stk_run_containers *c, const stk_spec *spec, uint32_t i, stk_plan *plan,
                    stk_err *err)
{
    const stk_place *place = &c->places[i];
    uint32_t n = 0, second = 0;
    for (uint32_t k = 0; k < stk_spec_n_steps(spec) && place->note_many != NULL; k++) {
        const char *many = c->places[k].note_many;
        if (many != NULL && strcmp(many, place->note_many) == 0) {
            if (k < i) {
                return 0; /* told with that one */
            }
            if (n == 1) {
                second = k;
            }
            n++;
        }
    }
    if (n < 2) {
        return stk_plan_remark(plan, err, "%s", place->note);
    }
    char more[32] = "";
    (void)snprintf(more, sizeof more, " and %u more", n - 2);
    return stk_plan_remark(plan, err, "steps '%s', '%s'%s %s", stk_spec_step(spec, i)->name,
                           stk_spec_step(spec, second)->name, n > 2 ? more : "", place->note_many);
}

static int add_notes(const stk_run_containers *c, const stk_spec *spec, stk_plan *plan,
                     stk_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < stk_spec_n_steps(spec) && rc == 0; i++) {
        rc = c->places[i].note == NULL ? 0 : add_note(c, spec, i, plan, err);
    }
    if (rc == 0 && c->n_kept > 0 && c->stack.kind == STK_PLACE_LOCAL) {
        rc = stk_plan_remark(plan, err,
                             c->n == 0 ? "docker settings are kept with the run; they apply on "
                                         "container backends, this run is local (--with docker)"
                                       : "docker settings of steps that run on this machine itself "
                                         "are kept with the run, without effect (--with docker)");
    }
    return rc;
}

int stk_run_images(stk_run_containers *c, const stk_spec *spec, const stk_run_options *options,
                   const char *logs, stk_accel *accel, stk_plan *plan, bool soft, stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    stk_err why = {0};
    int rc = add_notes(c, spec, plan, err);
    if (rc < 0 || c->n == 0) {
        return rc;
    }
    c->ids = stk_arena_array(c->arena, n, sizeof *c->ids);
    c->paths = stk_arena_array(c->arena, n, sizeof *c->paths);
    c->pins = stk_arena_array(c->arena, n, sizeof *c->pins);
    c->exec.main_file = stk_run_main_file(spec, c->arena);
    if (c->ids == NULL || c->paths == NULL || c->pins == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        if (c->places[i].kind == STK_PLACE_DOCKER && step->python != NULL) {
            rc = stk_run_check_python(spec, step, c->exec.main_file, err);
        }
    }
    STK_TRY(rc);
    rc = stk_engine_find(c->stack.socket, c->arena, &c->engine, &why);
    if (rc < 0 && soft) {
        return stk_plan_remark(plan, err, "%s", why.text);
    }
    if (rc < 0) {
        *err = why;
        return rc;
    }
    rc = gather(c, spec, plan, err);
    rc = rc < 0 ? rc : make_ready(c, spec, options, logs, accel, plan, soft, err);
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        const stk_image_want *w = &c->wants[c->i_want[i]];
        if (c->places[i].kind == STK_PLACE_DOCKER && w->id != NULL) {
            c->ids[i] = w->id;
            c->pins[i] = w->pinned;
            c->paths[i] = in_env(w->env, "PYTHONPATH");
            const char *how = NULL;
            rc = stk_run_how_it_runs(&c->places[i], c->arena, &how, err);
            rc = rc < 0 ? rc : stk_plan_set_image(plan, i, w->id, how, err);
        }
    }
    return rc;
}

/* --- code --- */

/* Mounted over these, the project would hide what every image has there. */
int stk_run_check_project(const char *root, stk_err *err)
{
    static const char *const taken[] = {"",     "/",    "/tmp", "/home", "/root", "/usr", "/etc",
                                        "/var", "/opt", "/srv", "/mnt",  "/bin",  "/lib", "/dev"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        if (strcmp(root, taken[i]) == 0) {
            stk_err_set(err, STK_E_USAGE,
                        "the project's folder is %s, which can't be replaced inside of a container",
                        *root == '\0' ? "/" : root);
            stk_err_hint(err, "put the project into a folder of its own");
            return STK_E_USAGE;
        }
    }
    return 0;
}

const char *stk_run_project(const stk_spec *spec, const char *main_file, stk_arena *arena)
{
    const char *slash = main_file == NULL ? NULL : strrchr(main_file, '/');
    const char *folder = slash == NULL
                             ? stk_spec_folder(spec)
                             : stk_arena_dupn(arena, main_file, (size_t)(slash - main_file));
    return folder == NULL ? NULL : stk_package_root(folder, arena);
}

static bool has_python(const stk_run_containers *c, const stk_spec *spec)
{
    bool has = false;
    for (uint32_t i = 0; i < stk_spec_n_steps(spec) && !has; i++) {
        has = c->places[i].kind == STK_PLACE_DOCKER && stk_spec_step(spec, i)->python != NULL;
    }
    return has;
}

/* Ranks are started by this program, and a Python worker sums large files by it. */
static bool needs_program(const stk_run_containers *c, const stk_spec *spec)
{
    bool needs = false;
    for (uint32_t i = 0; i < stk_spec_n_steps(spec) && !needs; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        needs = c->places[i].kind == STK_PLACE_DOCKER &&
                (step->python != NULL || step->settings->gang.ranks != 0);
    }
    return needs;
}

/* Labels of one run's containers, NULL-terminated. */
static int remove_old(const stk_engine *engine, const char *run, uint32_t *ret_n, stk_err *err)
{
    char label[128];
    (void)snprintf(label, sizeof label, "stoker.run=%s", run);
    const char *labels[] = {label, NULL};
    return stk_contain_remove(engine, labels, ret_n, err);
}

int stk_run_package(stk_store *store, const char *root, stk_plan *plan, stk_artifact *ret,
                    stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *note = NULL;
    int rc = arena == NULL ? stk_err_nomem(err)
                           : stk_package_add(store, root, 0, arena, ret, &note, err);
    bool told = false;
    for (uint32_t i = 0; rc == 0 && note != NULL && i < stk_plan_n_notes(plan); i++) {
        told = told || strcmp(stk_plan_note(plan, i), note) == 0;
    }
    return rc < 0 || note == NULL || told ? rc : stk_plan_remark(plan, err, "%s", note);
}

static bool code_travels(const stk_run_containers *c, const stk_spec *spec)
{
    bool travels = false;
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        travels = travels || c->places[i].kind == STK_PLACE_DOCKER ||
                  stk_place_is_elsewhere(c->places[i].kind);
    }
    return travels;
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
    const char *root =
        arena == NULL ? NULL : stk_run_project(spec, stk_run_main_file(spec, arena), arena);
    STK_TRY(stk_err_if_null(root, err));
    int rc = stk_run_check_project(root, &why);
    rc = rc < 0 ? rc : stk_package_private(store, root, arena, &note, &why);
    if (rc < 0) {
        return stk_plan_remark(plan, err, "refused: %s", why.text);
    }
    if (note == NULL) {
        return 0;
    }
    return stk_plan_remark(plan, err, "%s", note);
}

/* The name of another user, who is to read the code as well. */
static bool has_user(const stk_place *place)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *how = NULL;
    return place->kind == STK_PLACE_DOCKER &&
           (arena == NULL || stk_run_how_it_runs(place, arena, &how, NULL) < 0 ||
            (how != NULL && strstr(how, "\"user\":") != NULL));
}

int stk_run_code(stk_run_containers *c, const stk_spec *spec, stk_plan *plan, stk_store *store,
                 const char *run, bool resumed, stk_err *err)
{
    uint32_t n_old = 0;
    if (c->n == 0) {
        return 0;
    }
    const char *root = stk_run_project(spec, c->exec.main_file, c->arena);
    const char *folder = stk_store_run_folder(store, run, c->arena);
    const char *code = folder == NULL ? NULL : stk_arena_printf(c->arena, "%s/code", folder);
    int rc = root == NULL || code == NULL ? stk_err_nomem(err) : stk_run_check_project(root, err);
    rc = rc < 0 || !resumed ? rc : remove_old(&c->engine, run, &n_old, err);
    rc = rc < 0 ? rc : stk_file_remove_tree(code, err);
    stk_artifact package;
    rc = rc < 0 ? rc : stk_run_package(store, root, plan, &package, err);
    rc = rc < 0 ? rc : stk_package_view(store, package.digest, code, err);
    bool is_shared = false;
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        is_shared = is_shared || has_user(&c->places[i]);
    }
    if (rc == 0 && chmod(code, is_shared ? 0755 : 0700) < 0) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "%s", code);
    }
    STK_TRY(rc);
    char owner[64];
    (void)snprintf(owner, sizeof owner, "%u:%u", c->engine.is_rootless ? 0 : getuid(),
                   c->engine.is_rootless ? 0 : getgid());
    c->exec = (stk_exec_containers){.places = c->places,
                                    .images = c->ids,
                                    .pins = c->pins,
                                    .python_paths = c->paths,
                                    .socket = c->engine.socket,
                                    .owner = stk_arena_dup(c->arena, owner),
                                    .limits_memory = c->engine.limits_memory,
                                    .root = root,
                                    .code = code,
                                    .main_file = c->exec.main_file};
    if (has_python(c, spec)) {
        c->exec.front = stk_run_front(c->program, c->arena);
        if (c->exec.front == NULL) {
            stk_err_set(err, STK_E_ENV, "the Python front is not beside %s", c->program);
            stk_err_hint(err, "install Stoker's wheel, or run `make build` in its source tree");
            return STK_E_ENV;
        }
    }
    rc = c->exec.owner == NULL ? stk_err_nomem(err) : 0;
    return rc < 0 || !needs_program(c, spec) ? rc
                                             : stk_run_carry(store, c->arena, &c->exec.bin, err);
}

/* --- what the dead left --- */

void stk_run_end_containers(const stk_run_containers *c, const stk_view *view)
{
    const stk_view_run *run = view == NULL ? NULL : stk_view_get_run(view);
    uint32_t n = 0;
    if (run == NULL || c->n == 0 ||
        run->n_attempts_extra + run->n[STK_TASK_FAILED] + run->n[STK_TASK_CANCELLED] == 0) {
        return; /* each ended by itself, and was removed */
    }
    stk_engine engine = c->engine;
    engine.idle_ms = END_MS;
    int64_t until = stk_clock_mono_ms(&stk_clock_real) + END_MS;
    /* One whose monitor was killed may be refused at first, and is looked for again. */
    while ((remove_old(&engine, run->id, &n, NULL) < 0 || n > 0) &&
           stk_clock_mono_ms(&stk_clock_real) < until) {
        (void)nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
    }
}

int stk_run_drop_containers(stk_store *store, bool dry_run, uint32_t *ret_n, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO body = STK_BUF_INIT(256u << 20);
    stk_engine engine;
    int status = 0;
    *ret_n = 0;
    if (arena == NULL || stk_engine_find(NULL, arena, &engine, NULL) < 0) {
        return 0;
    }
    int rc = stk_engine_call(
        &engine, "GET", "/containers/json?all=1&filters=%7B%22label%22%3A%5B%22stoker.run%22%5D%7D",
        NULL, &status, &body, err);
    const stk_json *list = rc < 0 ? NULL : stk_json_readn(arena, body.data, body.len);
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        const stk_json *item = stk_json_item(list, i);
        const stk_json *labels = stk_json_get(item, "Labels");
        const char *run = stk_json_get_text(labels, "stoker.run");
        const char *of = stk_json_get_text(labels, "stoker.store");
        uint32_t n = 0;
        if (rc < 0 || run == NULL || of == NULL || strcmp(of, stk_store_path(store)) != 0 ||
            stk_store_run_is_live(store, run)) {
            continue;
        }
        rc = dry_run ? 0 : remove_old(&engine, run, &n, err);
        *ret_n += dry_run ? 1 : n;
    }
    return rc;
}
