#include "run/run_containers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "run/run_carry.h"
#include "run/run_check.h"
#include "run/run_python.h"
#include "store/package/package.h"
#include "sys/clock.h"
#include "sys/file.h"

enum {
    END_MS = 5000, /* wait for a silent container engine at a run's end */
    AGAIN_NS = 50000000
};

static int check_nodes(const stk_spec *spec, const stk_step *step, stk_err *err)
{
    if (step->settings->gang.nodes <= 1) {
        return 0;
    }
    stk_err_set(err, STK_E_SPEC,
                "step '%s' asks for %lld nodes and a container, but ranks on several nodes run "
                "without containers",
                step->name, (long long)step->settings->gang.nodes);
    stk_err_hint(err, "set `backend: local` for it, or leave out gang.nodes");
    return stk_run_at_step(spec, step, err);
}

/* The place's stack with another store. */
static int move_store(stk_place *place, const char *share, stk_arena *arena, stk_err *err)
{
    stk_stack *stack = stk_arena_alloc(arena, sizeof *stack);
    STK_TRY(stk_err_if_null(stack, err));
    *stack = *place->stack;
    stack->store = share;
    place->stack = stack;
    return 0;
}

int stk_run_places(const stk_spec *spec, const stk_run_options *options, stk_arena *arena,
                   stk_run_containers *ret, stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    stk_run_containers c = {.arena = arena,
                            .program = options->program,
                            .places = stk_arena_array(arena, n, sizeof *c.places)};
    stk_stack *run = stk_arena_alloc(arena, sizeof *run); /* places point to it */
    if (c.places == NULL || run == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(stk_stack_find(stk_spec_folder(spec), options->with, arena, &c.stack, err));
    *run = c.stack;
    for (uint32_t i = 0; i < n; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        if (stk_stack_place(run, step->name, step->settings, arena, &c.places[i], err) < 0) {
            return stk_run_at_step(spec, step, err);
        }
        if (options->share != NULL && stk_place_is_elsewhere(c.places[i].kind)) {
            STK_TRY(move_store(&c.places[i], options->share, arena, err));
        }
        if (c.places[i].kind == STK_PLACE_DOCKER) {
            STK_TRY(check_nodes(spec, step, err));
            c.n++;
        }
        c.n_kept += c.places[i].kind == STK_PLACE_LOCAL && step->settings->docker != NULL;
    }
    *ret = c;
    return 0;
}

/* Adds this step's use of the image to that of the other steps. */
static int join_want(stk_image_want *w, const stk_step *step, bool devices, stk_arena *arena,
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

/* Makes one want for each different image; c->i_want maps steps to wants. */
static int gather_wants(stk_run_containers *c, const stk_spec *spec, const stk_plan *plan,
                        stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    c->wants = stk_arena_array(c->arena, c->n, sizeof *c->wants);
    c->i_want = stk_arena_array(c->arena, n, sizeof *c->i_want);
    if (c->wants == NULL || c->i_want == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_place *place = &c->places[i];
        const stk_step *step = stk_spec_step(spec, i);
        if (place->kind != STK_PLACE_DOCKER) {
            continue;
        }
        const char *docker = stk_image_builds(place->docker) ? place->docker : NULL;
        uint32_t k = 0;
        while (k < c->n_wants && (!stk_text_same(c->wants[k].image, place->image) ||
                                  !stk_text_same(c->wants[k].docker, docker))) {
            k++;
        }
        if (k == c->n_wants) {
            c->wants[c->n_wants++] = (stk_image_want){.step = step->name,
                                                      .image = place->image,
                                                      .docker = docker,
                                                      .allows_cpu_build = true};
        }
        c->i_want[i] = k;
        STK_TRY(
            join_want(&c->wants[k], step, stk_plan_request(plan, i)->n_asks > 0, c->arena, err));
    }
    return 0;
}

/* A plan pulls and builds nothing: an image that isn't here becomes a note. An earlier build from
 * the same inputs is known, and `w` is then complete. *ret_here: the image costs nothing to make
 * ready. */
static int look_for_image(stk_run_containers *c, const stk_image_prepare *how, stk_image_want *w,
                          stk_plan *plan, bool *ret_here, stk_err *err)
{
    stk_image_config config = {0};
    bool here =
        w->image != NULL && stk_image_local(&c->engine, w->image, c->arena, &config, NULL) == 0;
    *ret_here = here && w->docker == NULL;
    if (*ret_here) {
        return 0;
    }
    if (w->docker == NULL) {
        return stk_plan_remark(plan, err, "image '%s' isn't on this machine yet: a run pulls it",
                               w->image);
    }
    const stk_image_recipe recipe = {.docker = w->docker,
                                     .parent = w->image,
                                     .parent_id = here ? config.id : NULL,
                                     .folder = how->folder,
                                     .python = how->python};
    bool is_built = false;
    if (here || w->image == NULL) {
        const char *note = NULL;
        is_built = stk_image_built(&c->engine, &recipe, c->arena, &config, &note, NULL) == 0;
        if (note != NULL) {
            STK_TRY(stk_plan_remark(plan, err, "step '%s': %s", w->step, note));
        }
    }
    if (is_built) {
        w->id = config.id;
        w->env = config.env;
        return 0;
    }
    return stk_plan_remark(plan, err, "the image of step '%s' doesn't exist yet: a run builds it",
                           w->step);
}

static int make_images(stk_run_containers *c, const stk_spec *spec, const stk_run_options *options,
                       const char *logs, stk_accel *accel, stk_plan *plan, bool soft, stk_err *err)
{
    const stk_image_prepare how = {.folder = stk_spec_folder(spec),
                                   .python = stk_run_spec_python(spec, options->python, c->arena),
                                   .registry = c->stack.registry,
                                   .logs = logs,
                                   .say = soft ? NULL : options->say,
                                   .arg = options->arg};
    stk_findings findings = {.arena = c->arena};
    for (uint32_t k = 0; k < c->n_wants; k++) {
        bool here = true;
        if (soft) {
            STK_TRY(look_for_image(c, &how, &c->wants[k], plan, &here, err));
        }
        if (here) {
            STK_TRY(stk_image_make_ready(&c->engine, &how, &c->wants[k], 1, accel, &findings, err));
        }
    }
    return stk_run_note_findings(&findings, plan, err);
}

/* Adds one note for all steps with the same image. */
static int add_note(const stk_run_containers *c, const stk_spec *spec, uint32_t i, stk_plan *plan,
                    stk_err *err)
{
    const stk_place *place = &c->places[i];
    uint32_t n = 0, second = 0;
    for (uint32_t k = 0; k < stk_spec_n_steps(spec) && place->note_many != NULL; k++) {
        if (stk_text_same(c->places[k].note_many, place->note_many)) {
            if (k < i) {
                return 0; /* in that step's note */
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
    if (n > 2) {
        (void)snprintf(more, sizeof more, " and %u more", n - 2);
    }
    return stk_plan_remark(plan, err, "steps '%s', '%s'%s %s", stk_spec_step(spec, i)->name,
                           stk_spec_step(spec, second)->name, more, place->note_many);
}

static int add_notes(const stk_run_containers *c, const stk_spec *spec, stk_plan *plan,
                     stk_err *err)
{
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        if (c->places[i].note != NULL) {
            STK_TRY(add_note(c, spec, i, plan, err));
        }
    }
    if (c->n_kept == 0 || c->stack.kind != STK_PLACE_LOCAL) {
        return 0;
    }
    return stk_plan_remark(plan, err, "%s",
                           c->n == 0 ? "docker settings have no effect, because this run is local; "
                                       "for containers add --with docker"
                                     : "docker settings of steps that run on this machine itself "
                                       "have no effect; for containers add --with docker");
}

/* Gives the images' ids, pins and paths to the steps that run in them. */
static int set_images(stk_run_containers *c, const stk_spec *spec, stk_plan *plan, stk_err *err)
{
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_image_want *w = &c->wants[c->i_want[i]];
        const char *how = NULL;
        if (c->places[i].kind != STK_PLACE_DOCKER || w->id == NULL) {
            continue;
        }
        c->ids[i] = w->id;
        c->pins[i] = w->pinned;
        c->paths[i] = stk_run_env_value(w->env, "PYTHONPATH");
        STK_TRY(stk_run_how_it_runs(&c->places[i], c->arena, &how, err));
        STK_TRY(stk_plan_set_image(plan, i, w->id, how, err));
    }
    return 0;
}

int stk_run_images(stk_run_containers *c, const stk_spec *spec, const stk_run_options *options,
                   const char *logs, stk_accel *accel, stk_plan *plan, bool soft, stk_err *err)
{
    uint32_t n = stk_spec_n_steps(spec);
    stk_err why = {0};
    STK_TRY(add_notes(c, spec, plan, err));
    if (c->n == 0) {
        return 0;
    }
    c->ids = stk_arena_array(c->arena, n, sizeof *c->ids);
    c->paths = stk_arena_array(c->arena, n, sizeof *c->paths);
    c->pins = stk_arena_array(c->arena, n, sizeof *c->pins);
    c->exec.main_file = stk_run_main_file(spec, c->arena);
    if (c->ids == NULL || c->paths == NULL || c->pins == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        if (c->places[i].kind == STK_PLACE_DOCKER && step->python != NULL) {
            STK_TRY(stk_run_check_python(spec, step, c->exec.main_file, err));
        }
    }
    int rc = stk_engine_find(c->stack.socket, c->arena, &c->engine, &why);
    if (rc < 0 && soft) {
        return stk_plan_remark(plan, err, "%s", why.text);
    }
    if (rc < 0) {
        *err = why;
        return rc;
    }
    STK_TRY(gather_wants(c, spec, plan, err));
    STK_TRY(make_images(c, spec, options, logs, accel, plan, soft, err));
    return set_images(c, spec, plan, err);
}

/* Labels of one run's containers, NULL-terminated. */
static int remove_old(const stk_engine *engine, const char *run, uint32_t *ret_n, stk_err *err)
{
    char label[128];
    (void)snprintf(label, sizeof label, "stoker.run=%s", run);
    const char *labels[] = {label, NULL};
    return stk_contain_remove(engine, labels, ret_n, err);
}

/* Needs of the steps in containers besides their images. */
typedef struct needs {
    bool python;  /* the Python front */
    bool program; /* this program starts ranks, and hashes large files for a Python worker */
    bool shared;  /* another user reads the code */
} needs;

static needs needs_of(const stk_run_containers *c, const stk_spec *spec)
{
    needs all = {0};
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_step *step = stk_spec_step(spec, i);
        if (c->places[i].kind == STK_PLACE_DOCKER) {
            all.python = all.python || step->python != NULL;
            all.program = all.program || all.python || step->settings->gang.ranks != 0;
            all.shared = all.shared || stk_run_has_user(&c->places[i]);
        }
    }
    return all;
}

int stk_run_code(stk_run_containers *c, const stk_spec *spec, stk_plan *plan, stk_store *store,
                 const char *run, bool resumed, stk_err *err)
{
    uint32_t n_old = 0;
    stk_artifact package;
    if (c->n == 0) {
        return 0;
    }
    needs all = needs_of(c, spec);
    const char *root = stk_run_project(spec, c->exec.main_file, c->arena);
    const char *folder = stk_store_run_folder(store, run, c->arena);
    const char *code = folder == NULL ? NULL : stk_arena_printf(c->arena, "%s/code", folder);
    const char *owner = "0:0";
    if (!c->engine.is_rootless) {
        owner = stk_arena_printf(c->arena, "%u:%u", getuid(), getgid());
    }
    if (root == NULL || code == NULL || owner == NULL) {
        return stk_err_nomem(err);
    }
    const char *const *only = NULL;
    STK_TRY(stk_run_only(spec, root, c->arena, &only, err));
    STK_TRY(stk_run_check_project(root, only != NULL, err));
    if (resumed) {
        STK_TRY(remove_old(&c->engine, run, &n_old, err));
    }
    STK_TRY(stk_file_remove_tree(code, err));
    STK_TRY(stk_run_package(store, spec, root, plan, &package, err));
    STK_TRY(stk_package_view(store, package.digest, code, err));
    if (chmod(code, all.shared ? 0755 : 0700) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "%s", code);
    }
    c->exec = (stk_exec_containers){.places = c->places,
                                    .images = c->ids,
                                    .pins = c->pins,
                                    .python_paths = c->paths,
                                    .socket = c->engine.socket,
                                    .owner = owner,
                                    .limits_memory = c->engine.limits_memory,
                                    .root = root,
                                    .code = code,
                                    .by_file = only != NULL,
                                    .main_file = c->exec.main_file};
    if (all.python) {
        STK_TRY(stk_run_need_front(c->program, c->arena, &c->exec.front, err));
    }
    if (!all.program) {
        return 0;
    }
    return stk_run_carry(store, c->arena, &c->exec.bin, err);
}

/* --- containers of ended engines --- */

void stk_run_end_containers(const stk_run_containers *c, const stk_view *view)
{
    const stk_view_run *run = view == NULL ? NULL : stk_view_get_run(view);
    uint32_t n = 0;
    if (run == NULL || c->n == 0 ||
        run->n_attempts_extra + run->n[STK_TASK_FAILED] + run->n[STK_TASK_CANCELLED] == 0) {
        return; /* each container ended by itself and was removed */
    }
    stk_engine engine = c->engine;
    engine.idle_ms = END_MS;
    int64_t until = stk_clock_mono_ms(&stk_clock_real) + END_MS;
    /* The engine may refuse to remove a container whose monitor was killed: tries again. */
    while ((remove_old(&engine, run->id, &n, NULL) < 0 || n > 0) &&
           stk_clock_mono_ms(&stk_clock_real) < until) {
        (void)nanosleep(&(struct timespec){.tv_nsec = AGAIN_NS}, NULL);
    }
}

int stk_run_drop_containers(stk_store *store, bool dry_run, uint32_t *ret_n, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *const labels[] = {"stoker.run", NULL};
    stk_json list = {0};
    stk_engine engine;
    *ret_n = 0;
    if (arena == NULL || stk_engine_find(NULL, arena, &engine, NULL) < 0) {
        return 0;
    }
    int rc = stk_engine_containers(&engine, labels, arena, &list, err);
    for (uint32_t i = 0; i < stk_json_n_items(&list); i++) {
        const stk_json *its = stk_json_get(&list.items[i], "Labels");
        const char *run = stk_json_get_text(its, "stoker.run");
        const char *of = stk_json_get_text(its, "stoker.store");
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
