/* Starting an attempt: what it is given, its directory with task.json, its environment, its job. */
#include "run/exec/core/exec_start.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/failpoint.h"
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

/* --- task.json --- */

static int add_artifact(stk_exec *x, uint32_t task, const exec_ref *ref, stk_buf *buf, stk_err *err)
{
    const char *path = NULL;
    int64_t size = 0;
    int rc =
        stk_exec_artifact(x, stk_exec_is_away(x, task), ref->digest, x->scratch, &path, &size, err);
    if (rc == 0) { /* the ref's object, with the path added */
        stk_buf_add(buf, ref->json, strlen(ref->json) - 1);
        stk_buf_text(buf, ",\"path\":");
        stk_buf_json(buf, path);
        stk_buf_char(buf, '}');
    }
    return rc;
}

/* Of a graph that grows: the parent's, or of a join all that its inputs have. */
static int add_from(stk_exec *x, uint32_t task, const stk_input *in, stk_buf *buf, stk_err *err)
{
    const exec_artifact **found = NULL;
    uint32_t n = 0;
    bool many = stk_exec_step(x, task)->is_join;
    int rc = stk_exec_scope_from(x, task, in, &found, &n, err);
    stk_buf_text(buf, many ? "{\"list\":[" : "");
    for (uint32_t i = 0; i < (many ? n : 1) && rc == 0; i++) {
        stk_buf_text(buf, i > 0 ? "," : "");
        rc = add_artifact(x, task, &found[i]->ref, buf, err);
    }
    stk_buf_text(buf, many ? "]}" : "");
    return rc;
}

static int add_item(stk_exec *x, uint32_t task, stk_buf *buf, stk_err *err)
{
    const char *item = NULL;
    uint32_t index = 0;
    int rc = stk_exec_scope_item(x, task, &item, &index, err);
    if (rc == 0) {
        stk_buf_text(buf, "{\"value\":");
        stk_buf_text(buf, item);
        stk_buf_char(buf, '}');
    }
    return rc;
}

static int add_input(stk_exec *x, uint32_t task, const stk_input *in, stk_buf *buf, stk_err *err)
{
    const char *path = NULL;
    int64_t size = 0;
    int rc = 0;
    switch (in->kind) {
    case STK_INPUT_VALUE:
    case STK_INPUT_PARAM:
        stk_buf_text(buf, "{\"value\":");
        stk_buf_text(buf, in->kind == STK_INPUT_VALUE
                              ? in->text
                              : stk_spec_param(x->spec, in->i_param)->value);
        return stk_buf_char(buf, '}');
    case STK_INPUT_OUTPUT:
        return x->graph.grow != NULL
                   ? add_from(x, task, in, buf, err)
                   : add_artifact(x, task, &x->tasks[in->step].outputs[in->output], buf, err);
    case STK_INPUT_FILE: {
        const char *at = NULL, *digest = NULL;
        rc = stk_exec_file(x, task, stk_exec_is_away(x, task), in->text, &at, &digest, err);
        if (rc < 0) {
            return rc;
        }
        stk_buf_printf(
            buf, "{\"digest\":\"%s\",\"format\":\"file\",\"type\":\"file\",\"meta\":{},\"path\":",
            digest);
        stk_buf_json(buf, at);
        return stk_buf_char(buf, '}');
    }
    case STK_INPUT_ARTIFACT:
        rc = stk_exec_artifact(x, stk_exec_is_away(x, task), in->text, x->scratch, &path, &size,
                               err);
        if (rc == 0) {
            const char *about = stk_text_or(in->about, "{");
            stk_buf_add(buf, about, strlen(about) - (in->about != NULL));
            stk_buf_printf(buf, "%s\"digest\":\"%s\",\"size\":%lld,\"path\":",
                           in->about == NULL ? "" : ",", in->text, (long long)size);
            stk_buf_json(buf, path);
            stk_buf_char(buf, '}');
        }
        return rc;
    case STK_INPUT_ITEM:
        return add_item(x, task, buf, err);
    case STK_INPUT_LIST:
        stk_buf_text(buf, "{\"list\":[");
        for (uint32_t i = 0; i < in->n_items && rc >= 0; i++) {
            stk_buf_text(buf, i > 0 ? "," : "");
            rc = add_input(x, task, &in->items[i], buf, err);
        }
        stk_buf_text(buf, "]}");
        return rc;
    }
    return stk_err_set(err, STK_E_BUG, "unknown kind of input");
}

static void add_hooks(const stk_settings *s, stk_buf *buf)
{
    static const char *const names[] = {"on_start", "on_success", "on_failure", "on_end"};
    const char *comma = "";
    stk_buf_text(buf, ",\"hooks\":{");
    for (int i = 0; i < STK_HOOK_N; i++) {
        if (s->hooks[i].python != NULL) {
            stk_buf_printf(buf, "%s\"%s\":{\"python\":", comma, names[i]);
            stk_buf_json(buf, s->hooks[i].python);
            stk_buf_char(buf, '}');
            comma = ",";
        }
    }
    stk_buf_char(buf, '}');
}

static uint32_t n_ranks(const stk_exec *x, uint32_t task)
{
    stk_gang_ask gang = stk_exec_gang(x, task);
    uint32_t n_devices = stk_exec_n_devices(x, task);
    return gang.ranks != STK_GANG_GPUS ? (uint32_t)gang.ranks : n_devices > 0 ? n_devices : 1;
}

static void add_gang(const stk_exec *x, uint32_t task, stk_buf *buf)
{
    const stk_settings *s = stk_exec_step(x, task)->settings;
    stk_gang_ask gang = stk_exec_gang(x, task);
    if (gang.ranks == 0) {
        return;
    }
    int64_t ranks = n_ranks(x, task);
    int64_t min = gang.min_ranks > 0 && gang.min_ranks < ranks ? gang.min_ranks : ranks;
    stk_buf_printf(buf,
                   ",\"gang\":{\"ranks\":%lld,\"min_ranks\":%lld,\"restarts\":%lld,"
                   "\"nodes\":%lld,\"port\":",
                   (long long)ranks, (long long)min, (long long)gang.restarts,
                   gang.nodes > 1 ? (long long)gang.nodes : 1LL);
    stk_buf_printf(buf, gang.port > 0 ? "%lld" : "null", (long long)gang.port);
    stk_buf_printf(
        buf, ",\"hang_ms\":%lld,\"grace_ms\":%lld,\"notice_ms\":%lld,\"devices_per_rank\":%lld}",
        (long long)gang.hang_ms, (long long)s->grace_ms,
        (long long)(s->timeout_ms > 0 ? s->timeout_notice_ms : 0),
        (long long)stk_exec_n_devices(x, task) / (long long)ranks);
}

static void add_texts(const char *head, const char *const *texts, uint32_t n, stk_buf *buf)
{
    stk_buf_text(buf, head);
    for (uint32_t i = 0; i < n; i++) {
        stk_buf_text(buf, i > 0 ? "," : "");
        stk_buf_json(buf, texts[i]);
    }
    stk_buf_char(buf, ']');
}

/* `env`: of the job, NULL-terminated. */
static int task_json(stk_exec *x, uint32_t task, uint32_t attempt, const char *dir,
                     const char *const *env, stk_buf *buf, stk_failure *ret_class, stk_err *err)
{
    const stk_step *step = stk_exec_step(x, task);
    stk_buf_printf(buf, "{\"stoker\":1,\"run\":\"%s\",\"pipeline\":", x->config.run);
    stk_buf_json(buf, stk_spec_name(x->spec));
    stk_buf_printf(buf,
                   ",\"step\":\"%s\",\"task\":%u,\"attempt\":%u,\"last_attempt\":%s,\"store\":",
                   step->name, stk_exec_id(x, task), attempt,
                   stk_sched_is_last_attempt(x->sched, task) ? "true" : "false");
    stk_buf_json(buf, stk_store_path(x->config.store));
    if (step->python != NULL) {
        stk_buf_text(buf, ",\"kind\":\"python\",\"entry\":");
        stk_buf_json(buf, step->python);
        stk_buf_printf(buf, ",\"isolation\":\"%s\"",
                       step->settings->isolation == STK_ISOLATION_SPAWN ? "spawn" : "fork");
    } else {
        add_texts(",\"kind\":\"command\",\"command\":[", step->argv, step->n_argv, buf);
    }
    stk_buf_text(buf, ",\"inputs\":{");
    for (uint32_t i = 0; i < step->n_inputs; i++) {
        stk_buf_text(buf, i > 0 ? "," : "");
        stk_buf_json(buf, step->inputs[i].name);
        stk_buf_char(buf, ':');
        int rc = add_input(x, task, &step->inputs[i], buf, err);
        if (rc < 0) {
            *ret_class = STK_FAIL_LOAD;
            return stk_err_context(err, "input '%s'", step->inputs[i].name);
        }
    }
    stk_buf_text(buf, "},\"outputs\":[");
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        stk_buf_text(buf, i > 0 ? "," : "");
        stk_buf_json(buf, step->outputs[i].name);
    }
    stk_buf_char(buf, ']');
    stk_exec_asked_json(&step->settings->resources, buf);
    stk_buf_text(buf, ",\"granted\":");
    stk_exec_granted_json(x, task, buf);
    if (step->uses != NULL) { /* an empty list is an answer too */
        add_texts(",\"uses\":[", step->uses, step->n_uses, buf);
    }
    add_hooks(step->settings, buf);
    if (step->settings->n_secrets > 0) { /* by name: their values are in its environment */
        add_texts(",\"secrets\":[", step->settings->secrets, step->settings->n_secrets, buf);
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
    stk_buf_text(buf, ",\"rank\":0,\"world\":1,\"extra\":");
    stk_buf_text(buf, stk_text_or(step->settings->extra, "{}"));
    stk_buf_char(buf, '}');
    return stk_buf_check(buf, err);
}

/* --- launching --- */

/* What the attempt before left in its out/ was not taken, and is room on the disk. What can't be
 * removed is no harm. */
static void drop_outputs(stk_exec *x, uint32_t task, uint32_t attempt)
{
    const char *dir = attempt <= 1 ? NULL : stk_exec_dir(x, task, attempt - 1, x->scratch);
    const char *out = dir == NULL ? NULL : stk_arena_printf(x->scratch, "%s/out", dir);
    if (out != NULL) {
        stk_exec_sum_remove(x, out);
    }
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
    int rc = stk_store_make_attempt(dir, err);
    errno = 0;
    const char *names[2] = {step->n_outputs > 0 || step->python != NULL ? "out" : NULL,
                            step->n_inputs > 0 && step->python == NULL ? "in" : NULL};
    for (int i = 0; i < 2 && rc == 0; i++) {
        if (names[i] != NULL) {
            const char *path = stk_arena_printf(x->scratch, "%s/%s", dir, names[i]);
            STK_TRY(stk_err_if_null(path, err));
            if (mkdir(path, 0755) < 0 && errno != EEXIST) {
                rc = stk_err_sys(err, STK_E_SYS, errno, "making folder %s", path);
            }
        }
    }
    return rc;
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
    int rc = make_folders(x, task, attempt, dir, err);
    exec_env env = {.arena = x->scratch};
    rc = rc < 0 ? rc : stk_exec_job_env(x, task, attempt, dir, false, &env, err);
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    rc = rc < 0 ? rc : task_json(x, task, attempt, dir, env.items, &buf, ret_class, err);
    const char *path = stk_arena_printf(x->scratch, "%s/task.json", dir);
    /* Not by a rename: the attempt's lock is on the file (runner_attempt.c). */
    rc = rc < 0         ? rc
         : path == NULL ? stk_err_nomem(err)
                        : stk_file_write(path, buf.data, buf.len, 0644, err);
    rc = rc < 0 ? rc : stk_exec_checkpoints_begin(x, task, attempt, &buf, err);
    if (rc < 0) {
        return rc;
    }
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
    rc = stk_exec_is_away(x, task) ? stk_exec_away_job(x, task, dir, &env, job, err) : 0;
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
        return stk_exec_emit(x, &(stk_sched_event){.kind = STK_EV_TASK_CANCELLED, .task = task},
                             NULL, err);
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

static const char *const hook_names[] = {"on_start", "on_success", "on_failure", "on_end"};

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
    int rc =
        dir == NULL ? stk_err_nomem(err) : stk_exec_job_env(x, task, attempt, dir, true, &env, err);
    stk_exec_env_add(&env, "STOKER_HOOK", hook_names[when]);
    stk_exec_env_add(
        &env, "STOKER_ERROR",
        error == NULL ? "" : stk_arena_dupn(x->scratch, error, strnlen(error, ERROR_BYTES)));
    STK_TRY(rc);
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
        return note == NULL ? stk_err_nomem(err) : stk_exec_emit_note(x, note, err);
    }
    x->tasks[task].hook = (int8_t)when;
    x->n_hooks++;
    return 0;
}
