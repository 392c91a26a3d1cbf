#include "run/exec/core/exec_loop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/turn.h"
#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_devices.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_resume.h"
#include "run/exec/core/exec_start.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_grown.h"
#include "run/exec/grown/exec_said.h"
#include "run/exec/place/exec_bring.h"
#include "run/exec/place/exec_place.h"
#include "sys/proc.h"

enum { ACTIONS_AT_ONCE = 1024 };

uint32_t stk_exec_attempt(const stk_exec *x, uint32_t task)
{
    return x->tasks[task].attempt_base + stk_sched_attempt(x->sched, task);
}

const stk_step *stk_exec_step(const stk_exec *x, uint32_t task)
{
    return stk_spec_step(x->spec, x->tasks[task].i_step);
}

const char *stk_exec_dir(const stk_exec *x, uint32_t task, uint32_t attempt, stk_arena *arena)
{
    return stk_arena_printf(arena, "%s/%s/%u/%u", x->folder, stk_exec_step(x, task)->name,
                            stk_exec_id(x, task), attempt);
}

/* --- actions --- */

static const exec_ref *outputs_of(void *arg, uint32_t i_step)
{
    return ((stk_exec *)arg)->tasks[i_step].outputs;
}

int stk_exec_key_of(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_task *t = &x->tasks[task];
    exec_found found = {0};
    exec_said said;
    bool any = false;
    const char *head = NULL, *metadata = NULL;
    x->lookup.sum = NULL; /* the answer is wanted now */
    int rc = x->graph.grow != NULL
                 ? stk_exec_recall(x, task, &any, &said, &head, &metadata, err)
                 : stk_exec_lookup_step(&x->lookup, t->i_step, outputs_of, x, false,
                                        stk_clock_wall_ms(x->config.clock), &found, err);
    x->lookup.sum = x->sum;
    if (rc == 0 && x->graph.grow == NULL) {
        t->key = found.key;
        t->parts = found.parts;
        t->inputs = found.inputs;
    }
    return rc;
}

static int do_lookup(stk_exec *x, uint32_t task, stk_err *err)
{
    if (x->graph.grow != NULL) {
        return stk_exec_lookup_grown(x, task, err);
    }
    exec_task *t = &x->tasks[task];
    exec_found found;
    int64_t now = stk_clock_wall_ms(x->config.clock);
    int rc = stk_exec_lookup_step(&x->lookup, t->i_step, outputs_of, x, x->config.use_cache, now,
                                  &found, err);
    if (stk_exec_sum_aside(x, task, EXEC_ASIDE_LOOKUP, NULL, &rc, err) || rc < 0) {
        return rc;
    }
    STK_TRY(stk_exec_note_damage(x, err));
    t->key = found.key;
    t->parts = found.parts;
    t->inputs = found.inputs;
    t->miss = found.miss;
    if (found.verdict == EXEC_MISS) {
        return stk_exec_emit_task(x, STK_SE_MISSED, task, err);
    }
    t->outputs = found.outputs;
    const stk_step *step = stk_exec_step(x, task);
    const char *data = stk_arena_printf(
        x->tick, "{\"key\":\"%s\",\"from_run\":\"%s\",\"outputs\":%s,\"metadata\":%s}", found.key,
        found.row.run, found.row.outputs, found.row.metadata ? found.row.metadata : "{}");
    STK_TRY(stk_err_if_null(data, err));
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        if (t->outputs[i].digest != NULL) {
            STK_TRY(stk_exec_push_ref(x,
                                      &(stk_ref_row){.digest = t->outputs[i].digest,
                                                     .task = task,
                                                     .output = step->outputs[i].name},
                                      err));
        }
    }
    return stk_exec_emit(x, &(stk_sched_event){.kind = STK_EV_TASK_CACHED, .task = task}, data,
                         err);
}

static int do_skip(stk_exec *x, const stk_action *a, stk_err *err)
{
    const char *data =
        stk_arena_printf(x->tick, "{\"because\":\"%s\"}", stk_exec_step(x, a->cause)->name);
    STK_TRY(stk_err_if_null(data, err));
    return stk_exec_emit(x, &(stk_sched_event){.kind = STK_EV_TASK_SKIPPED, .task = a->task}, data,
                         err);
}

static int flush_told(stk_exec *x, stk_err *err)
{
    stk_backend *backend = x->config.backend;
    STK_TRY(stk_exec_flush(x, err));
    if (backend != NULL && backend->ops->recorded != NULL) {
        backend->ops->recorded(backend);
    }
    return 0;
}

/* What the run holds on this host is given back before its end is on record: a run that says that
 * it has ended leaves no control group, no server and no guardian, whoever kills the engine next.
 */
static void let_go(stk_exec *x)
{
    if (x->config.backend != NULL) {
        x->config.backend->ops->close(x->config.backend);
        x->config.backend = NULL;
    }
}

static int do_end(stk_exec *x, const stk_action *a, stk_err *err)
{
    static const char *const words[] = {"succeeded", "failed", "cancelled", "interrupted"};
    stk_run_status status = (stk_run_status)a->status;
    if (status == STK_RUN_CANCELLED && x->is_interrupted) {
        status = STK_RUN_INTERRUPTED;
    }
    STK_TRY(flush_told(x, err));
    let_go(x);
    STK_TRY(stk_exec_note_left(x, err));
    STK_FAILPOINT("exec.end.before");
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, "status", words[status]);
    stk_json_put_text(&buf, "error", status != STK_RUN_SUCCEEDED ? x->error : NULL);
    stk_json_close(&buf, '}');
    const char *data = stk_exec_event_data(x, &buf);
    STK_TRY(stk_err_if_null(data, err));
    x->ended = true;
    x->status = status;
    return stk_exec_emit(x, &(stk_sched_event){.kind = STK_EV_RUN_ENDED}, data, err);
}

static int do_stop(stk_exec *x, uint32_t task, stk_err *err)
{
    int64_t grace = x->n_signals > 1 ? 0 : stk_exec_step(x, task)->settings->grace_ms;
    exec_task *t = &x->tasks[task];
    uint32_t id = task | (t->hook == STK_HOOK_START ? EXEC_HOOK_BIT : 0);
    exec_aside_kind kind = EXEC_ASIDE_LAUNCH;
    bool was_aside = stk_exec_sum_drop(x, task, &kind);
    if (was_aside && kind == EXEC_ASIDE_END) { /* its process is gone */
        stk_exec_release(x, task);
        return stk_exec_emit_task(x, STK_EV_TASK_CANCELLED, task, err);
    }
    if (x->is_interrupted && t->hook != STK_HOOK_START && stk_exec_is_away(x, task)) {
        return stk_exec_leave(x, task, err);
    }
    t->stopped = true;
    if (stk_exec_bring_stop(x, task) || was_aside) {
        return stk_exec_push_launch(x, task, err);
    }
    x->config.backend->ops->stop(x->config.backend, id, grace, STK_FAIL_CANCELLED);
    return 0;
}

static int act(stk_exec *x, const stk_action *a, stk_err *err)
{
    bool begins = a->kind == STK_ACT_LOOKUP || a->kind == STK_ACT_START;
    if (begins && x->graph.grow != NULL && x->graph.grown[a->task].refusal != NULL) {
        return stk_exec_fail_refused(x, a->task, err);
    }
    switch (a->kind) {
    case STK_ACT_LOOKUP:
        if (stk_exec_sum_waits(x, a->task)) {
            return 0;
        }
        return do_lookup(x, a->task, err);
    case STK_ACT_START:
        x->is_waiting = x->config.clone_only;
        if (x->is_waiting) {
            return 0;
        }
        return stk_exec_admit(x, a, err);
    case STK_ACT_STOP:
        return do_stop(x, a->task, err);
    case STK_ACT_SKIP:
        return do_skip(x, a, err);
    case STK_ACT_CANCEL:
        (void)stk_exec_sum_drop(x, a->task, &(exec_aside_kind){0});
        return stk_exec_emit_task(x, STK_EV_TASK_CANCELLED, a->task, err);
    case STK_ACT_FAIL:
        return stk_exec_fail_gone(x, a->task, err);
    case STK_ACT_END:
        /* the end waits for hooks: they belong to the run */
        if (x->n_hooks > 0) {
            return 0;
        }
        return do_end(x, a, err);
    }
    return stk_err_set(err, STK_E_BUG, "unknown action %d", (int)a->kind);
}

static void stop_hooks(stk_exec *x)
{
    for (uint32_t i = 0; i < x->n_tasks && x->n_hooks > 0; i++) {
        if (x->tasks[i].hook >= 0) {
            x->config.backend->ops->stop(x->config.backend, i | EXEC_HOOK_BIT, 0,
                                         STK_FAIL_CANCELLED);
        }
    }
}

static int cancel(stk_exec *x, const char *why, stk_err *err)
{
    x->n_signals++;
    if (x->n_signals > 1) { /* the STOP actions that follow have no grace any more */
        stop_hooks(x);
    }
    if (x->n_signals > 1 || stk_sched_is_cancelling(x->sched)) {
        return 0;
    }
    const char *data = stk_arena_printf(x->tick, "{\"why\":\"%s\"}", why);
    STK_TRY(stk_err_if_null(data, err));
    return stk_exec_emit(x, &(stk_sched_event){.kind = STK_EV_RUN_CANCELLING}, data, err);
}

/* Everything the scheduler wants now. Lookups may answer at once and lead to more, so it is asked
 * until it is content. */
static int decide(stk_exec *x, int64_t *ret_wake_ms, stk_err *err)
{
    stk_action actions[ACTIONS_AT_ONCE];
    for (bool again = true; again && !x->ended;) {
        uint32_t n = 0;
        int64_t now = stk_clock_mono_ms(x->config.clock);
        STK_TRY(stk_exec_look(x, err));
        STK_TRY(stk_sched_next(x->sched, now, actions, ACTIONS_AT_ONCE, &n, ret_wake_ms));
        again = false;
        for (uint32_t i = 0; i < n; i++) {
            STK_TRY(act(x, &actions[i], err));
            again =
                again ||
                (actions[i].kind != STK_ACT_STOP && actions[i].kind != STK_ACT_END &&
                 !(x->is_waiting && actions[i].kind == STK_ACT_START) &&
                 !(actions[i].kind == STK_ACT_LOOKUP && stk_exec_sum_waits(x, actions[i].task)));
        }
        if (x->is_waiting && !again && !stk_sched_is_cancelling(x->sched)) {
            x->is_interrupted = again = true; /* `stoker resume` goes on */
            STK_TRY(cancel(x, "only what could be cloned was asked for", err));
        }
    }
    return flush_told(x, err);
}

static int launch_all(stk_exec *x, bool *ret_any, stk_err *err)
{
    *ret_any = x->pending.n_launches > 0;
    for (uint32_t i = 0; i < x->pending.n_launches; i++) {
        STK_FAILPOINT("exec.launch.before");
        int rc = stk_exec_launch(x, x->pending.launches[i], err);
        stk_arena_reset(x->scratch);
        STK_TRY(rc);
    }
    x->pending.n_launches = 0;
    return 0;
}

static int take_end(stk_exec *x, const stk_report *report, stk_err *err)
{
    STK_FAILPOINT("exec.settle.before");
    if (x->outside.n_leases > 0) { /* it may have ended of one */
        STK_TRY(stk_exec_device_events(x, err));
    }
    int rc = stk_exec_ended(x, report, err);
    stk_arena_reset(x->scratch);
    STK_FAILPOINT("exec.settle.after");
    return rc;
}

static int drain(stk_exec *x, stk_err *err)
{
    stk_report report;
    while (x->config.backend->ops->next(x->config.backend, &report)) {
        if (report.kind == STK_REPORT_ENDED) {
            STK_TRY(take_end(x, &report, err));
        } else if (report.kind == STK_REPORT_NOTE) {
            STK_TRY(stk_exec_emit_note(x, report.text, err));
        } else if (report.id < x->n_tasks && x->tasks[report.id].slot != NULL) {
            x->tasks[report.id].slot->pid = report.pid;
            if (x->config.on_started != NULL) {
                x->config.on_started(x->config.arg, report.id, report.pid);
            }
        }
    }
    return 0;
}

static const char *signal_words(uint32_t signo)
{
    switch (signo) {
    case SIGINT:
        return "Ctrl-C";
    case SIGTERM:
        return "asked to end (SIGTERM)";
    case SIGHUP:
        return "the terminal was closed (SIGHUP)";
    default:
        return "asked to end at once";
    }
}

static int read_signals(stk_exec *x, stk_err *err)
{
    struct signalfd_siginfo info;
    while (read(x->config.signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        bool is_notice = info.ssi_signo == SIGTERM && info.ssi_int != STK_EXEC_CANCEL;
        if (x->n_signals == 0) {
            x->is_interrupted = is_notice;
        }
        STK_TRY(cancel(x, signal_words(info.ssi_signo), err));
        if (x->config.on_signal != NULL) {
            x->config.on_signal(x->config.arg, x->n_signals);
        }
    }
    return 0;
}

static int64_t sooner(int64_t timeout_ms, int64_t other_ms)
{
    return timeout_ms < 0 ? other_ms : MIN(timeout_ms, other_ms);
}

/* Sleeps until something happens, at most until `wake_ms` (-1: no limit). */
static int wait(stk_exec *x, int64_t wake_ms, stk_err *err)
{
    int64_t now = stk_clock_mono_ms(x->config.clock);
    int64_t timeout = x->config.backend->ops->wait_ms(x->config.backend);
    if (wake_ms >= 0) {
        timeout = sooner(timeout, MAX(wake_ms - now, 0));
    }
    if (x->config.on_tick != NULL) {
        int64_t tick = x->config.on_tick(x->config.arg, stk_clock_wall_ms(x->config.clock));
        if (tick >= 0) {
            timeout = sooner(timeout, tick);
        }
    }
    struct pollfd fds[] = {{.fd = x->config.backend->ops->fd(x->config.backend), .events = POLLIN},
                           {.fd = x->config.signal_fd, .events = POLLIN},
                           {.fd = x->hung_up ? -1 : x->config.hangup_fd, .events = 0},
                           {.fd = stk_exec_bring_fd(x->bring), .events = POLLIN},
                           {.fd = stk_exec_sum_fd(x->sum), .events = POLLIN}};
    stk_turn_begin();
    stk_exec_sum_turn(x->sum);
    int n = poll(fds, sizeof fds / sizeof *fds, (int)MIN(MAX(timeout, -1), 3600000));
    if (n < 0 && errno != EINTR) {
        return stk_err_sys(err, STK_E_SYS, errno, "waiting for tasks");
    }
    if (n > 0 && fds[1].revents != 0) {
        STK_TRY(read_signals(x, err));
    }
    if (n > 0 && fds[3].revents != 0) {
        STK_TRY(stk_exec_brought(x, err));
    }
    if (n > 0 && fds[4].revents != 0) {
        STK_TRY(stk_exec_summed(x, err));
    }
    if (n > 0 && (fds[2].revents & (POLLHUP | POLLERR)) != 0) {
        x->hung_up = true;
        return cancel(x, "the program that started the run has ended", err);
    }
    return 0;
}

/* Until the run and its last hook have ended. */
static int loop(stk_exec *x, stk_err *err)
{
    for (;;) {
        bool launched = false;
        int64_t wake_ms = -1;
        if (x->config.check != NULL) {
            STK_TRY(x->config.check(x->config.arg, err));
        }
        STK_TRY(drain(x, err));
        if (x->outside.n_leases > 0) {
            STK_TRY(stk_exec_device_events(x, err));
        }
        STK_TRY(decide(x, &wake_ms, err));
        STK_TRY(stk_exec_wait_devices(x, &wake_ms, err));
        STK_TRY(launch_all(x, &launched, err));
        if (!x->ended) {
            STK_TRY(stk_exec_idle(x, &wake_ms, err));
        } else if (x->n_hooks == 0) {
            return stk_exec_flush(x, err);
        }
        /* a launch may have failed and queued events: look again before sleeping */
        if (!launched || x->pending.n_events == 0) {
            STK_TRY(wait(x, wake_ms, err));
        }
    }
}

int stk_exec_loop(stk_exec *x, stk_run_status *ret_status, stk_err *err)
{
    int rc = loop(x, err);
    let_go(x);
    *ret_status = x->status;
    STK_TRY(rc);
    stk_exec_sum_finish(x);
    return 0;
}

/* --- opening --- */

static void add_host(stk_buf *buf, const stk_exec_config *config)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    stk_json_open(buf, "host", '{');
    stk_json_put_text(buf, "name", name);
    stk_json_put_real(buf, "cpus", (double)config->capacity->cpu_milli / 1000);
    stk_json_put_whole(buf, "memory_bytes", config->capacity->memory_bytes);
    stk_json_open(buf, "devices", '[');
    for (uint32_t i = 0; i < config->capacity->n_devices; i++) {
        const stk_capacity_device *d = &config->capacity->devices[i];
        if (d->usable) {
            stk_json_put_text(buf, NULL, stk_text_or(d->model, d->noun));
        }
    }
    stk_json_close(buf, ']');
    if (config->accel != NULL && stk_accel_is_simulated(config->accel)) {
        /* who asks about the run later asks about that machine */
        stk_json_put_text(buf, "accel", getenv("STOKER_ACCEL"));
    }
    if (config->stack != NULL) { /* who resumes it puts the steps where they were */
        stk_json_put_text(buf, "stack", config->stack);
    }
    stk_json_close(buf, '}');
}

static int emit_created(stk_exec *x, stk_err *err)
{
    const stk_exec_config *c = &x->config;
    const stk_settings *settings = stk_spec_settings(x->spec);
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_SPEC_BYTES);
    char digest[STK_DIGEST_HEX + 1];
    size_t len = 0;
    const char *text = stk_spec_text(x->spec, &len);
    stk_digest_of(text, len, digest);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, "name", stk_text_or(c->name, c->run));
    stk_json_put_text(&buf, "pipeline", stk_spec_name(x->spec));
    stk_json_put_text(&buf, "spec", digest);
    stk_json_put_text(&buf, "mode", stk_mode_word(c->mode));
    stk_json_put_text(&buf, "policy", c->policy == STK_POLICY_STRICT ? "strict" : "fit");
    stk_json_put_whole(&buf, "max_workers", c->max_workers);
    stk_json_open(&buf, "parameters", '{');
    for (uint32_t i = 0; i < stk_spec_n_params(x->spec); i++) {
        const stk_param *p = stk_spec_param(x->spec, i);
        stk_json_put_raw(&buf, p->name, p->value);
    }
    stk_json_close(&buf, '}');
    if (!c->use_cache) { /* who resumes it is told */
        stk_json_put_bool(&buf, "no_cache", true);
    }
    stk_json_open(&buf, "tags", '[');
    for (uint32_t i = 0; i < settings->n_tags; i++) {
        stk_json_put_text(&buf, NULL, settings->tags[i]);
    }
    stk_json_close(&buf, ']');
    stk_json_put_raw(&buf, "origin", stk_text_or(stk_spec_origin(x->spec), "{}"));
    add_host(&buf, c);
    stk_json_open(&buf, "notes", '[');
    for (uint32_t i = 0; i < stk_plan_n_notes(c->plan); i++) {
        stk_json_put_text(&buf, NULL, stk_plan_note(c->plan, i));
    }
    stk_json_close(&buf, ']');
    stk_exec_clone_json(x->graph.clone, &buf);
    stk_json_close(&buf, '}');
    const char *data = stk_exec_event_data(x, &buf);
    STK_TRY(stk_err_if_null(data, err));
    return stk_exec_emit_plain(x, STK_EV_RUN_CREATED, data, err);
}

static int emit_started(stk_exec *x, stk_err *err)
{
    const stk_accel *accel = x->config.accel;
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_whole(&buf, "pid", getpid());
    stk_json_put_text(&buf, "boot", stk_clock_boot_id());
    stk_json_put_whole(&buf, "boot_ms", stk_clock_boot_ms());
    stk_json_put_bool(&buf, "resumed", x->config.resumed);
    stk_json_open(&buf, "devices", '[');
    for (uint32_t i = 0; accel != NULL && i < stk_accel_n_devices(accel); i++) {
        const stk_device *d = stk_accel_device(accel, i);
        if (d->usable && d->uuid != NULL) {
            stk_json_put_text(&buf, NULL, d->uuid);
        }
    }
    stk_buf_text(&buf, "]}");
    const char *data = stk_exec_event_data(x, &buf);
    STK_TRY(stk_err_if_null(data, err));
    return stk_exec_emit_plain(x, STK_EV_RUN_STARTED, data, err);
}

/* A flow's own limit, which its front has put beside the document's settings. */
static int64_t max_splits_of(const stk_spec *spec)
{
    enum { DEFAULT_SPLITS = 100 };
    const char *extra = stk_spec_settings(spec)->extra;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, extra);
    const stk_json *splits = stk_json_get(doc, "max_splits");
    int64_t n = stk_json_is_kind(splits, STK_JSON_INT) ? stk_json_whole(splits, 0) : DEFAULT_SPLITS;
    return n;
}

static int init_tasks(stk_exec *x, stk_err *err)
{
    x->tasks = calloc((size_t)stk_spec_n_steps(x->spec) + 1, sizeof *x->tasks);
    STK_TRY(stk_err_if_null(x->tasks, err));
    for (; x->n_tasks < stk_spec_n_steps(x->spec); x->n_tasks++) {
        x->tasks[x->n_tasks] = (exec_task){.i_step = x->n_tasks, .hook = -1};
    }
    return 0;
}

static int init(stk_exec *x, stk_err *err)
{
    const stk_exec_config *c = &x->config;
    x->arena = stk_arena_new(0);
    x->tick = stk_arena_new(0);
    x->scratch = stk_arena_new(0);
    if (x->arena == NULL || x->tick == NULL || x->scratch == NULL) {
        return stk_err_nomem(err);
    }
    x->folder = stk_arena_dup(x->arena, stk_store_run_folder(c->store, c->run, x->arena));
    x->graph.max_splits = max_splits_of(x->spec);
    x->n_cpus = stk_proc_n_cpus();
    x->cpu_ids = stk_arena_array(x->arena, 4096, sizeof *x->cpu_ids);
    x->cpu_load = stk_arena_array(x->arena, 4096, sizeof *x->cpu_load);
    if (x->folder == NULL || x->cpu_ids == NULL || x->cpu_load == NULL) {
        return stk_err_nomem(err);
    }
    x->n_cpus = stk_proc_cpus(x->cpu_ids, 4096);
    STK_TRY(stk_exec_sum_open(&x->sum, err));
    if (stk_spec_grows(x->spec)) {
        STK_TRY(stk_grow_new(x->spec, &x->graph.grow, err));
    } else {
        STK_TRY(init_tasks(x, err));
    }
    STK_TRY(stk_exec_lookup_init(&x->lookup, c->store, c->plan, x->arena));
    x->lookup.sum = x->sum;
    return stk_exec_schedule(c->plan, c->capacity, c->mode, c->max_workers, c->run, &x->sched, err);
}

/* What stands before the first turn of the loop. */
static int begin(stk_exec *x, stk_err *err)
{
    const stk_exec_config *config = &x->config;
    STK_TRY(init(x, err));
    if (config->elsewhere != NULL && config->elsewhere->fetch != NULL) {
        STK_TRY(stk_exec_bring_open(config->elsewhere, config->store, &x->bring, err));
    }
    if (config->clone_of != NULL) {
        STK_TRY(stk_exec_clone_open(x, config->clone_of, config->clone_until, err));
    }
    if (!config->resumed) {
        STK_TRY(emit_created(x, err));
    }
    if (!config->resumed && x->graph.grow != NULL) {
        STK_TRY(stk_exec_grow_begin(x, err));
    }
    STK_TRY(emit_started(x, err));
    if (config->resumed) {
        STK_TRY(stk_exec_replay(x, err));
    }
    if (config->cancelled) {
        STK_TRY(cancel(x, "'stoker cancel', after its engine's end", err));
        x->n_signals += config->at_once;
    }
    STK_TRY(stk_exec_flush(x, err));
    for (uint32_t i = 0; i < x->n_tasks && !config->cancelled; i++) {
        if (x->tasks[i].owes_hooks) {
            STK_TRY(stk_exec_catch_up(x, i, err));
        }
        stk_arena_reset(x->scratch);
    }
    return 0;
}

int stk_exec_open(const stk_exec_config *config, stk_exec **ret_exec, stk_err *err)
{
    stk_exec *x = calloc(1, sizeof *x);
    if (x == NULL) {
        config->backend->ops->close(config->backend);
        return stk_err_nomem(err);
    }
    x->config = *config;
    x->spec = stk_plan_spec(config->plan);
    int rc = begin(x, err);
    if (rc < 0) {
        stk_exec_close(x);
        return rc;
    }
    *ret_exec = x;
    return 0;
}

void stk_exec_close(stk_exec *x)
{
    if (x == NULL) {
        return;
    }
    let_go(x);
    stk_exec_bring_close(x->bring);
    stk_exec_idle_close(x->idle);
    stk_exec_sum_close(x->sum);
    for (uint32_t i = 0; i < x->n_tasks && x->tasks != NULL; i++) {
        if (x->tasks[i].slot != NULL) {
            stk_exec_release(x, i);
        }
    }
    while (x->free_slots != NULL) {
        exec_slot *next = x->free_slots->next_free;
        free(x->free_slots);
        x->free_slots = next;
    }
    stk_exec_lookup_done(&x->lookup);
    stk_exec_clone_close(x->graph.clone);
    stk_arena_free(x->graph.items.arena);
    stk_grow_free(x->graph.grow);
    free(x->graph.grown);
    stk_sched_free(x->sched);
    stk_arena_free(x->arena);
    stk_arena_free(x->tick);
    stk_arena_free(x->scratch);
    free(x->tasks);
    free(x->pending.events);
    free(x->pending.cache);
    free(x->pending.refs);
    free(x->pending.launches);
    free(x);
}

bool stk_exec_usage(stk_exec *x, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus)
{
    stk_backend *b = x->config.backend;
    return b != NULL && b->ops->usage != NULL && b->ops->usage(b, task, ret_memory_bytes, ret_cpus);
}

const char *stk_exec_error(const stk_exec *x)
{
    return x->error;
}
