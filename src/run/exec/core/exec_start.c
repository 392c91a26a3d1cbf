/* Starting an attempt: what it is given, its directory with task.json, its environment, its job. */
#include "run/exec/core/exec_start.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_grown.h"
#include "run/exec/place/exec_bring.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

enum {
    HOOK_TIMEOUT_MS = 300000,
    ERROR_BYTES = 32 << 10 /* as much of a failure as a hook is told */
};

static const char *const hook_names[] = {"on_start", "on_success", "on_failure", "on_end"};

/* --- task.json --- */

static int add_artifact(stk_exec *x, uint32_t task, const exec_ref *ref, stk_buf *buf, stk_err *err)
{
    const char *path = NULL;
    int64_t size = 0;
    STK_TRY(stk_exec_artifact(x, stk_exec_is_away(x, task), ref->digest, x->scratch, &path, &size,
                              err));
    stk_json_put_key(buf, NULL); /* the ref's object, with the path added */
    stk_buf_add(buf, ref->json, strlen(ref->json) - 1);
    stk_json_put_text(buf, "path", path);
    stk_json_close(buf, '}');
    return 0;
}

static void add_value(stk_buf *buf, const char *json)
{
    stk_json_open(buf, NULL, '{');
    stk_json_put_raw(buf, "value", json);
    stk_json_close(buf, '}');
}

static void open_list(stk_buf *buf)
{
    stk_json_open(buf, NULL, '{');
    stk_json_open(buf, "list", '[');
}

/* Of a graph that grows: the parent's, or of a join all that its inputs have. */
static int add_from(stk_exec *x, uint32_t task, const stk_input *in, stk_buf *buf, stk_err *err)
{
    const exec_artifact **found = NULL;
    uint32_t n = 0;
    STK_TRY(stk_exec_scope_from(x, task, in, &found, &n, err));
    if (!stk_exec_step(x, task)->is_join) {
        return add_artifact(x, task, &found[0]->ref, buf, err);
    }
    open_list(buf);
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(add_artifact(x, task, &found[i]->ref, buf, err));
    }
    stk_buf_text(buf, "]}");
    return 0;
}

static int add_item(stk_exec *x, uint32_t task, stk_buf *buf, stk_err *err)
{
    const char *item = NULL;
    uint32_t index = 0;
    STK_TRY(stk_exec_scope_item(x, task, &item, &index, err));
    add_value(buf, item);
    return 0;
}

/* A file of the project's, in the form of an artifact. */
static int add_file(stk_exec *x, uint32_t task, const stk_input *in, stk_buf *buf, stk_err *err)
{
    const char *path = NULL, *digest = NULL;
    STK_TRY(stk_exec_file(x, task, stk_exec_is_away(x, task), in->text, &path, &digest, err));
    stk_json_open(buf, NULL, '{');
    stk_json_put_text(buf, "digest", digest);
    stk_json_put_text(buf, "format", "file");
    stk_json_put_text(buf, "type", "file");
    stk_json_put_raw(buf, "meta", "{}");
    stk_json_put_text(buf, "path", path);
    stk_json_close(buf, '}');
    return 0;
}

/* By its digest; `about` has what else is known of it. */
static int add_named(stk_exec *x, uint32_t task, const stk_input *in, stk_buf *buf, stk_err *err)
{
    const char *path = NULL;
    const char *about = stk_text_or(in->about, "{}");
    int64_t size = 0;
    STK_TRY(
        stk_exec_artifact(x, stk_exec_is_away(x, task), in->text, x->scratch, &path, &size, err));
    stk_json_put_key(buf, NULL);
    stk_buf_add(buf, about, strlen(about) - 1);
    stk_json_put_text(buf, "digest", in->text);
    stk_json_put_whole(buf, "size", size);
    stk_json_put_text(buf, "path", path);
    stk_json_close(buf, '}');
    return 0;
}

static int add_input(stk_exec *x, uint32_t task, const stk_input *in, stk_buf *buf, stk_err *err)
{
    switch (in->kind) {
    case STK_INPUT_VALUE:
        add_value(buf, in->text);
        return 0;
    case STK_INPUT_PARAM:
        add_value(buf, stk_spec_param(x->spec, in->i_param)->value);
        return 0;
    case STK_INPUT_OUTPUT:
        if (x->graph.grow != NULL) {
            return add_from(x, task, in, buf, err);
        }
        return add_artifact(x, task, &x->tasks[in->step].outputs[in->output], buf, err);
    case STK_INPUT_FILE:
        return add_file(x, task, in, buf, err);
    case STK_INPUT_ARTIFACT:
        return add_named(x, task, in, buf, err);
    case STK_INPUT_ITEM:
        return add_item(x, task, buf, err);
    case STK_INPUT_LIST:
        open_list(buf);
        for (uint32_t i = 0; i < in->n_items; i++) {
            STK_TRY(add_input(x, task, &in->items[i], buf, err));
        }
        stk_buf_text(buf, "]}");
        return 0;
    }
    return stk_err_set(err, STK_E_BUG, "unknown kind of input");
}

static void add_hooks(const stk_settings *s, stk_buf *buf)
{
    stk_json_open(buf, "hooks", '{');
    for (int i = 0; i < STK_HOOK_N; i++) {
        if (s->hooks[i].python != NULL) {
            stk_json_open(buf, hook_names[i], '{');
            stk_json_put_text(buf, "python", s->hooks[i].python);
            stk_json_close(buf, '}');
        }
    }
    stk_json_close(buf, '}');
}

static uint32_t n_ranks(const stk_exec *x, uint32_t task)
{
    stk_gang_ask gang = stk_exec_gang(x, task);
    if (gang.ranks != STK_GANG_GPUS) {
        return (uint32_t)gang.ranks;
    }
    uint32_t n_devices = stk_exec_n_devices(x, task);
    return MAX(n_devices, 1);
}

static void add_gang(const stk_exec *x, uint32_t task, stk_buf *buf)
{
    const stk_settings *s = stk_exec_step(x, task)->settings;
    stk_gang_ask gang = stk_exec_gang(x, task);
    if (gang.ranks == 0) {
        return;
    }
    int64_t ranks = n_ranks(x, task);
    stk_json_open(buf, "gang", '{');
    stk_json_put_whole(buf, "ranks", ranks);
    stk_json_put_whole(buf, "min_ranks", gang.min_ranks > 0 ? MIN(gang.min_ranks, ranks) : ranks);
    stk_json_put_whole(buf, "restarts", gang.restarts);
    stk_json_put_whole(buf, "nodes", MAX(gang.nodes, 1));
    stk_json_put_int(buf, "port", gang.port > 0 ? gang.port : -1);
    stk_json_put_whole(buf, "hang_ms", gang.hang_ms);
    stk_json_put_whole(buf, "grace_ms", s->grace_ms);
    stk_json_put_whole(buf, "notice_ms", s->timeout_ms > 0 ? s->timeout_notice_ms : 0);
    stk_json_put_whole(buf, "devices_per_rank", stk_exec_n_devices(x, task) / ranks);
    stk_json_close(buf, '}');
}

static void add_texts(stk_buf *buf, const char *key, const char *const *texts, uint32_t n)
{
    stk_json_open(buf, key, '[');
    for (uint32_t i = 0; i < n; i++) {
        stk_json_put_text(buf, NULL, texts[i]);
    }
    stk_json_close(buf, ']');
}

/* `env`: of the job, NULL-terminated. */
static int task_json(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                     const char *const *env, stk_buf *buf, stk_failure *ret_class, stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    stk_json_open(buf, NULL, '{');
    stk_json_put_whole(buf, "stoker", 1);
    stk_json_put_text(buf, "run", x->config.run);
    stk_json_put_text(buf, "pipeline", stk_spec_name(x->spec));
    stk_json_put_text(buf, "step", step->name);
    stk_json_put_whole(buf, "task", stk_exec_id(x, task));
    stk_json_put_whole(buf, "attempt", attempt);
    stk_json_put_bool(buf, "last_attempt", stk_sched_is_last_attempt(x->sched, task));
    stk_json_put_text(buf, "store", stk_store_path(x->config.store));
    stk_json_put_text(buf, "kind", step->python != NULL ? "python" : "command");
    if (step->python != NULL) {
        bool spawns = step->settings->isolation == STK_ISOLATION_SPAWN;
        stk_json_put_text(buf, "entry", step->python);
        stk_json_put_text(buf, "isolation", spawns ? "spawn" : "fork");
    } else {
        add_texts(buf, "command", step->argv, step->n_argv);
    }
    stk_json_open(buf, "inputs", '{');
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        stk_json_put_key(buf, step->inputs[i].name);
        int rc = add_input(x, task, &step->inputs[i], buf, err);
        if (rc < 0) {
            *ret_class = STK_FAIL_LOAD;
            return stk_err_context(err, "input '%s'", step->inputs[i].name);
        }
    }
    stk_json_close(buf, '}');
    stk_json_open(buf, "outputs", '[');
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        stk_json_put_text(buf, NULL, step->outputs[i].name);
    }
    stk_json_close(buf, ']');
    stk_exec_asked_json(&step->settings->resources, buf);
    stk_json_put_key(buf, "granted");
    stk_exec_granted_json(x, task, buf);
    if (step->uses != NULL) { /* an empty list is an answer too */
        add_texts(buf, "uses", step->uses, step->n_uses);
    }
    add_hooks(step->settings, buf);
    if (step->settings->n_secrets > 0) { /* by name: their values are in its environment */
        add_texts(buf, "secrets", step->settings->secrets, step->settings->n_secrets);
    }
    add_gang(x, task, buf);
    if (x->graph.grow != NULL && stk_exec_scope_json(x, task, buf, err) < 0) {
        *ret_class = STK_FAIL_LOAD;
        return err->code;
    }
    if (stk_exec_is_contained(x, task) &&
        stk_exec_container_json(x, task, attempt, dir, env, buf, err) < 0) {
        return err->code;
    }
    stk_json_put_whole(buf, "rank", 0);
    stk_json_put_whole(buf, "world", 1);
    stk_json_put_raw(buf, "extra", stk_text_or(step->settings->extra, "{}"));
    stk_json_close(buf, '}');
    return stk_buf_check(buf, err);
}

/* --- launching --- */

/* What the attempt before left in its out/ was not taken, and is room on the disk. What can't be
 * removed is no harm. */
static void drop_outputs(stk_exec *x, uint32_t task, uint32_t attempt)
{
    if (attempt <= 1) {
        return;
    }
    const char *dir = stk_exec_dir(x, task, attempt - 1, x->scratch);
    const char *out = dir == NULL ? NULL : stk_arena_printf(x->scratch, "%s/out", dir);
    if (out != NULL) {
        stk_exec_sum_remove(x, out);
    }
}

static int make_folder(const stk_exec *x, const char *dir, const char *name, stk_err *err)
{
    const char *path = stk_arena_printf(x->scratch, "%s/%s", dir, name);
    STK_TRY(stk_err_if_null(path, err));
    if (mkdir(path, 0755) < 0 && errno != EEXIST) {
        return stk_err_sys(err, STK_E_SYS, errno, "making folder %s", path);
    }
    return 0;
}

static int make_folders(const stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                        stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    uint32_t id = stk_exec_id(x, task);
    if (attempt == 1) { /* those above it are most likely new as well */
        const char *of_step = stk_arena_printf(x->scratch, "%s/%s", x->folder, step->name);
        const char *of_task = stk_arena_printf(x->scratch, "%s/%s/%u", x->folder, step->name, id);
        if (of_step == NULL || of_task == NULL) {
            return stk_err_nomem(err);
        }
        if (id == 0) {
            (void)mkdir(of_step, 0755);
        }
        (void)mkdir(of_task, 0700);
    }
    STK_TRY(stk_store_make_attempt(dir, err));
    if (step->n_outputs > 0 || step->python != NULL) {
        STK_TRY(make_folder(x, dir, "out", err));
    }
    if (step->n_inputs > 0 && step->python == NULL) {
        return make_folder(x, dir, "in", err);
    }
    return 0;
}

/* Secrets are the engine's: a task sees those it named, under their own names. */
static const char *const *job_unset(stk_arena *arena)
{
    extern char **environ;
    static const char prefix[] = "STOKER_SECRET_";
    uint32_t n = 0;
    for (char **e = environ; *e != NULL; e++) {
        n += strncmp(*e, prefix, sizeof prefix - 1) == 0;
    }
    const char **names = n == 0 ? NULL : stk_arena_array(arena, n + 1, sizeof *names);
    n = 0;
    for (char **e = environ; names != NULL && *e != NULL; e++) {
        if (strncmp(*e, prefix, sizeof prefix - 1) == 0) {
            names[n++] = stk_arena_dupn(arena, *e, strcspn(*e, "="));
        }
    }
    return names;
}

const char *stk_exec_self(const stk_exec *x)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[MAX(n, 0)] = '\0';
    return stk_arena_dup(x->scratch, access(self, X_OK) == 0 ? self : "/proc/self/exe");
}

/* A gang's command is the launcher's to run: `stoker launch --gang DIR/task.json -- ARGV`. */
static const char *const *gang_argv(const stk_exec *x, const stk_step *step, const char *task_json)
{
    const char *head[] = {stk_exec_self(x), "launch", "--gang", task_json, "--"};
    enum { N_HEAD = sizeof head / sizeof *head };
    const char **argv = stk_arena_array(x->scratch, N_HEAD + step->n_argv + 1, sizeof *argv);
    if (argv == NULL || head[0] == NULL) {
        return NULL;
    }
    memcpy(argv, head, sizeof head);
    memcpy(argv + N_HEAD, step->argv, step->n_argv * sizeof *argv);
    return argv;
}

/* *ret_class: what it is when it fails, if that is not the start itself. */
static int prepare(stk_exec *x, uint32_t task, stk_job *job, stk_failure *ret_class, stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    const stk_settings *s = step->settings;
    const stk_request *r = stk_plan_request(x->config.plan, x->tasks[task].i_step);
    exec_slot *slot = x->tasks[task].slot;
    uint32_t attempt = stk_exec_attempt(x, task);
    const char *dir = stk_exec_dir(x, task, attempt, x->scratch);
    STK_TRY(stk_err_if_null(dir, err));
    if (!x->tasks[task].attach) {
        drop_outputs(x, task, attempt);
    }
    STK_TRY(make_folders(x, task, attempt, dir, err));
    exec_env env = {.arena = x->scratch};
    STK_TRY(stk_exec_job_env(x, task, attempt, dir, false, &env, err));
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    STK_TRY(task_json(x, task, attempt, dir, env.items, &buf, ret_class, err));
    const char *path = stk_arena_printf(x->scratch, "%s/task.json", dir);
    STK_TRY(stk_err_if_null(path, err));
    /* Not by a rename: the attempt's lock is on the file (runner_attempt.c). */
    STK_TRY(stk_file_write(path, buf.data, buf.len, 0644, err));
    STK_TRY(stk_exec_checkpoints_begin(x, task, attempt, &buf, err));
    uint32_t *cpus = stk_arena_array(x->scratch, slot->n_cpus + 1, sizeof *cpus);
    for (uint32_t i = 0; cpus != NULL && i < slot->n_cpus; i++) {
        cpus[i] = x->cpu_ids[slot->cpus[i]];
    }
    bool contained = stk_exec_is_contained(x, task);
    const char *const *argv = step->argv;
    stk_gang_ask gang = stk_exec_gang(x, task);
    if (contained || (step->python == NULL && gang.ranks != 0)) {
        argv = contained ? stk_exec_contain_argv(x, path) : gang_argv(x, step, path);
        STK_TRY(stk_err_if_null(argv, err));
    }
    *job = (stk_job){.id = task,
                     .attempt = attempt,
                     .step = step->name,
                     .dir = dir,
                     .gang = gang.ranks != 0 && !contained,
                     .nodes = gang.nodes > 1 ? (uint32_t)gang.nodes : 1,
                     .argv = contained || step->python == NULL ? argv : NULL,
                     .python = contained ? NULL : step->python,
                     .spawn = s->isolation == STK_ISOLATION_SPAWN,
                     .cwd = contained                                   ? dir
                            : step->cwd != NULL || step->python != NULL ? step->cwd
                                                                        : stk_spec_folder(x->spec),
                     .env = env.items,
                     .unset = job_unset(x->scratch),
                     .hidden = stk_exec_hidden(s, x->scratch),
                     .contained = contained,
                     .unlimited = contained && !x->config.containers->limits_memory,
                     .cpus = cpus,
                     .n_cpus = contained ? 0 : slot->n_cpus,
                     .threads = slot->n_cpus,
                     .memory_bytes = stk_exec_memory_limit(x, task),
                     .cpu_milli = r->limit_cpu ? stk_exec_cpu_milli(x, task) : 0,
                     .sample_ms = s->sample_ms,
                     .reads_samples = s->gpu_profile.enabled && s->gpu_profile.include_artifacts,
                     .timeout_ms = s->timeout_ms,
                     .notice_ms = s->timeout_ms > 0 ? s->timeout_notice_ms : 0,
                     .checkpoints = stk_exec_checkpoints(x, task, x->scratch),
                     .grace_ms = s->grace_ms,
                     .readonly = stk_exec_input_mounts(&env.inputs),
                     .lease = slot->lease};
    if (!stk_exec_is_away(x, task)) {
        return 0;
    }
    int rc = stk_exec_away_job(x, task, dir, &env, job, err);
    if (rc == STK_E_RESOURCES) {
        *ret_class = STK_FAIL_RESOURCES;
    }
    return rc;
}

/* Of an attempt that an earlier engine started elsewhere: what it takes to end it. */
static int prepare_end(stk_exec *x, uint32_t task, stk_job *job, stk_err *err)
{
    uint32_t attempt = stk_exec_attempt(x, task);
    const char *dir = stk_exec_dir(x, task, attempt, x->scratch);
    STK_TRY(stk_err_if_null(dir, err));
    STK_TRY(make_folders(x, task, attempt, dir, err));
    return stk_exec_away_end(x, task, dir, job, err);
}

/* A Python task calls its own Python hooks; any other on_start hook is a job before the attempt. */
static bool has_start_job(const stk_step *step)
{
    const stk_hook *hook = &step->settings->hooks[STK_HOOK_START];
    return hook->run != NULL || (hook->python != NULL && step->python == NULL);
}

int stk_exec_launch(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_task *t = &x->tasks[task];
    stk_job job = {0};
    stk_err why = {0};
    stk_failure class = STK_FAIL_START;
    if (t->slot == NULL) { /* left to whoever resumes the run, since it was admitted */
        return 0;
    }
    if (t->stopped && !t->attach) { /* since it was admitted */
        stk_exec_release(x, task);
        return stk_exec_emit_task(x, STK_EV_TASK_CANCELLED, task, err);
    }
    bool ends = t->stopped;
    int rc = ends ? prepare_end(x, task, &job, &why) : prepare(x, task, &job, &class, &why);
    int aside = 0;
    if (stk_exec_bring_aside(x->bring, rc < 0 ? UINT32_MAX : task, err, &aside) && rc == 0) {
        return aside;
    }
    if (stk_exec_sum_aside(x, task, EXEC_ASIDE_LAUNCH, NULL, &rc, &why)) {
        return 0;
    }
    if (rc == 0 && !t->hook_started && has_start_job(stk_exec_step(x, task))) {
        bool any = false;
        t->hook_started = true;
        rc = stk_exec_launch_hook(x, task, STK_HOOK_START, &any, err);
        if (rc < 0 || any) {
            return rc; /* the end of the hook launches the task */
        }
    }
    if (rc == 0) {
        memset(&t->slot->lease, 0,
               sizeof t->slot->lease); /* the backend has it now, also on error */
        t->started_ms = stk_clock_wall_ms(x->config.clock);
        rc = x->config.backend->ops->start(x->config.backend, &job, &why);
    }
    if (rc == 0 && ends) {
        x->config.backend->ops->stop(x->config.backend, task, x->n_signals > 1 ? 0 : job.grace_ms,
                                     STK_FAIL_CANCELLED);
    }
    if (rc == STK_E_FULL || rc == STK_E_NOMEM) { /* not the step's fault: the engine can't go on */
        *err = why;
        return rc;
    }
    if (rc < 0) {
        char text[1200];
        exec_failure failure = {.class = class,
                                .text = stk_err_format(&why, text, (int)sizeof text),
                                .is_hopeless = stk_exec_is_away(x, task) && why.code == STK_E_ENV};
        return stk_exec_fail(x, task, &failure, err);
    }
    return 0;
}

const char *stk_exec_hook_mark(stk_exec *x, uint32_t task, stk_hook_when when)
{
    const char *dir = stk_exec_dir(x, task, stk_exec_attempt(x, task), x->scratch);
    return dir == NULL ? NULL : stk_arena_printf(x->scratch, "%s/%s.ended", dir, hook_names[when]);
}

static int start_hook(stk_exec *x, uint32_t task, stk_hook_when when, stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    const stk_hook *hook = &step->settings->hooks[when];
    const char *error = x->tasks[task].hook_error;
    uint32_t attempt = stk_exec_attempt(x, task);
    const char *dir = stk_exec_dir(x, task, attempt, x->scratch);
    exec_env env = {.arena = x->scratch};
    STK_TRY(stk_err_if_null(dir, err));
    STK_TRY(stk_exec_job_env(x, task, attempt, dir, true, &env, err));
    stk_exec_env_add(&env, "STOKER_HOOK", hook_names[when]);
    stk_exec_env_add(
        &env, "STOKER_ERROR",
        error == NULL ? "" : stk_arena_dupn(x->scratch, error, strnlen(error, ERROR_BYTES)));
    if (env.failed) {
        return stk_err_nomem(err);
    }
    const char *argv[] = {"/bin/sh", "-c", hook->run, NULL};
    stk_job job = {.id = task | EXEC_HOOK_BIT,
                   .attempt = attempt,
                   .step = step->name,
                   .dir = dir,
                   .argv = hook->run != NULL ? argv : NULL,
                   .python = hook->run != NULL ? NULL : stk_text_or(step->python, hook->python),
                   .cwd = step->cwd != NULL || step->python != NULL ? step->cwd
                                                                    : stk_spec_folder(x->spec),
                   .env = env.items,
                   .unset = job_unset(x->scratch),
                   .hidden = stk_exec_hidden(step->settings, x->scratch),
                   .readonly = stk_exec_input_mounts(&env.inputs),
                   .timeout_ms = HOOK_TIMEOUT_MS,
                   .grace_ms = step->settings->grace_ms,
                   .hook = hook_names[when],
                   .hook_error = error};
    return x->config.backend->ops->start(x->config.backend, &job, err);
}

int stk_exec_launch_hook(stk_exec *x, uint32_t task, stk_hook_when when, bool *ret_any,
                         stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    const stk_hook *hook = &step->settings->hooks[when];
    stk_err why = {0};
    /* after the second Ctrl-C nothing begins any more */
    *ret_any =
        x->n_signals < 2 && !x->config.cancelled && (hook->run != NULL || hook->python != NULL);
    if (!*ret_any) {
        return 0;
    }
    if (x->config.resumed && when != STK_HOOK_START) {
        const char *mark = stk_exec_hook_mark(x, task, when);
        *ret_any = mark == NULL || !stk_file_exists(mark);
        if (mark == NULL || !*ret_any) {
            return stk_err_if_null(mark, err);
        }
    }
    if (start_hook(x, task, when, &why) < 0) {
        char text[1200];
        *ret_any = false;
        const char *note =
            stk_arena_printf(x->scratch, "a hook of step '%s' could not be started: %s", step->name,
                             stk_err_format(&why, text, (int)sizeof text));
        return stk_exec_emit_note(x, note, err);
    }
    x->tasks[task].hook = (int8_t)when;
    x->n_hooks++;
    return 0;
}
