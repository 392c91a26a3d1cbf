/* Starts an attempt: its grant, its directory with task.json, its environment, its job. */
#include "run/exec/core/exec_start.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_hook.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/place/exec_place.h"
#include "sys/file.h"

/* Removes the unused outputs of earlier attempts to free disk space. Failing to do so is harmless.
 */
static void drop_outputs(stk_exec *x, uint32_t task, uint32_t attempt)
{
    if (attempt <= 1) {
        return;
    }
    const char *out = stk_exec_file_in_dir(x, task, attempt - 1, "out");
    if (out != NULL) {
        stk_exec_sum_remove(x, out);
    }
}

static int make_inner_folder(const stk_exec *x, const char *dir, const char *name, stk_err *err)
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
    if (attempt == 1) { /* the folders above it are most likely new, too */
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
        STK_TRY(make_inner_folder(x, dir, "out", err));
    }
    if (step->n_inputs > 0 && step->python == NULL) {
        return make_inner_folder(x, dir, "in", err);
    }
    return 0;
}

/* Removes the engine's secrets from the environment; a task gets the ones that it names. */
const char *const *stk_exec_job_unset(stk_arena *arena)
{
    extern char **environ;
    static const char prefix[] = "STOKER_SECRET_";
    const char **names = NULL;
    uint32_t n = 0, cap = 0;
    for (char **e = environ; *e != NULL; e++) {
        if (strncmp(*e, prefix, sizeof prefix - 1) == 0) {
            names = stk_arena_grow(arena, names, n > 0 ? n + 1 : 0, sizeof *names, &cap);
            if (names == NULL) {
                return NULL;
            }
            names[n++] = stk_arena_dupn(arena, *e, strcspn(*e, "="));
        }
    }
    return names;
}

const char *stk_exec_cwd(const stk_exec *x, const stk_step *step)
{
    if (step->cwd != NULL || step->python != NULL) {
        return step->cwd;
    }
    return stk_spec_folder(x->spec);
}

const char *stk_exec_self(const stk_exec *x)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[MAX(n, 0)] = '\0';
    return stk_arena_dup(x->scratch, access(self, X_OK) == 0 ? self : "/proc/self/exe");
}

/* The launcher runs a gang's command: `stoker launch --gang DIR/task.json -- ARGV`. */
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

/* Sets the program of a step on this machine: a command, or a function of the user's. */
static int set_program(const stk_exec *x, stk_job *job, const char *task_json, stk_err *err)
{
    const stk_step *step = stk_exec_step(x, job->id);
    const exec_slot *slot = x->tasks[job->id].slot;
    uint32_t *cpus = stk_arena_array(x->scratch, slot->n_cpus + 1, sizeof *cpus);
    STK_TRY(stk_err_if_null(cpus, err));
    for (uint32_t i = 0; i < slot->n_cpus; i++) {
        cpus[i] = x->cpu_ids[slot->cpus[i]];
    }
    job->cpus = cpus;
    job->n_cpus = slot->n_cpus;
    job->python = step->python;
    if (step->python != NULL) {
        return 0;
    }
    job->argv = job->gang ? gang_argv(x, step, task_json) : step->argv;
    return stk_err_if_null(job->argv, err);
}

/* *ret_class: the class of a failure other than the start itself. */
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
    STK_TRY(stk_exec_put_task(x, task, attempt, dir, env.items, &buf, ret_class, err));
    const char *path = stk_arena_printf(x->scratch, "%s/task.json", dir);
    STK_TRY(stk_err_if_null(path, err));
    /* Written in place, because the attempt's lock is on this file (runner_attempt.c). */
    STK_TRY(stk_file_write(path, buf.data, buf.len, 0644, err));
    STK_TRY(stk_exec_checkpoints_begin(x, task, attempt, &buf, err));
    stk_gang_ask gang = stk_exec_gang(x, task);
    *job = (stk_job){.id = task,
                     .attempt = attempt,
                     .step = step->name,
                     .dir = dir,
                     .gang = gang.ranks != 0,
                     .nodes = (uint32_t)MAX(gang.nodes, 1),
                     .spawn = s->isolation == STK_ISOLATION_SPAWN || step->interpreter != NULL,
                     .interpreter = step->interpreter,
                     .cwd = stk_exec_cwd(x, step),
                     .env = env.items,
                     .unset = stk_exec_job_unset(x->scratch),
                     .hidden = stk_exec_hidden(s, x->scratch),
                     .threads = slot->n_cpus,
                     .memory_bytes = stk_exec_memory_limit(x, task),
                     .sample_ms = s->sample_ms,
                     .reads_samples = s->gpu_profile.enabled && s->gpu_profile.include_artifacts,
                     .timeout_ms = s->timeout_ms,
                     .notice_ms = s->timeout_ms > 0 ? s->timeout_notice_ms : 0,
                     .checkpoints = stk_exec_checkpoints(x, task, x->scratch),
                     .grace_ms = s->grace_ms,
                     .readonly = stk_exec_input_mounts(&env.inputs),
                     .lease = slot->lease};
    if (r->limit_cpu) {
        job->cpu_milli = stk_exec_cpu_milli(x, task);
    }
    if (stk_exec_is_contained(x, task)) { /* the container limits its CPUs */
        job->argv = stk_exec_contain_argv(x, path);
        job->contained = true;
        job->unlimited = !x->config.containers->limits_memory;
        job->gang = false;
        job->cwd = dir;
        return stk_err_if_null(job->argv, err);
    }
    STK_TRY(set_program(x, job, path, err));
    if (!stk_exec_is_away(x, task)) {
        return 0;
    }
    int rc = stk_exec_away_job(x, task, dir, &env, job, err);
    if (rc == STK_E_RESOURCES) {
        *ret_class = STK_FAIL_RESOURCES;
    }
    return rc;
}

/* Prepares only what ending a remote attempt of an earlier engine needs. */
static int prepare_end(stk_exec *x, uint32_t task, stk_job *job, stk_err *err)
{
    uint32_t attempt = stk_exec_attempt(x, task);
    const char *dir = stk_exec_dir(x, task, attempt, x->scratch);
    STK_TRY(stk_err_if_null(dir, err));
    STK_TRY(make_folders(x, task, attempt, dir, err));
    return stk_exec_away_end(x, task, dir, job, err);
}

int stk_exec_launch(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_task *t = &x->tasks[task];
    stk_job job = {0};
    stk_err why = {0};
    stk_failure class = STK_FAIL_START;
    if (t->slot == NULL) { /* after its admission it was left to the resuming engine */
        return 0;
    }
    if (t->stopped && !t->attach) { /* stopped after its admission */
        stk_exec_release(x, task);
        return stk_exec_emit_task(x, STK_EV_TASK_CANCELLED, task, NULL, err);
    }
    bool ends = t->stopped;
    int rc = ends ? prepare_end(x, task, &job, &why) : prepare(x, task, &job, &class, &why);
    if (stk_exec_sum_aside(x, task, EXEC_ASIDE_LAUNCH, NULL, &rc, &why)) {
        return 0;
    }
    if (rc == 0 && !t->hook_started && stk_exec_has_start_job(stk_exec_step(x, task))) {
        bool any = false;
        t->hook_started = true;
        rc = stk_exec_launch_hook(x, task, STK_HOOK_START, &any, err);
        if (rc < 0 || any) {
            return rc; /* the hook's end launches the task */
        }
    }
    if (rc == 0) {
        memset(&t->slot->lease, 0,
               sizeof t->slot->lease); /* the backend owns it now, also on error */
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
