#include "run/exec/core/exec_loop.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/param.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/turn.h"
#include "run/exec/core/exec_devices.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_reads.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grow.h"
#include "run/exec/grown/exec_made.h"
#include "run/exec/place/exec_place.h"

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

const char *stk_exec_file_in_dir(stk_exec *x, uint32_t task, uint32_t attempt, const char *name)
{
    return stk_arena_printf(x->scratch, "%s/%s/%u/%u/%s", x->folder, stk_exec_step(x, task)->name,
                            stk_exec_id(x, task), attempt, name);
}

/* --- actions --- */

static const exec_ref *outputs_of_step(void *arg, uint32_t i_step)
{
    return ((stk_exec *)arg)->tasks[i_step].outputs;
}

int stk_exec_key_of(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_task *t = &x->tasks[task];
    exec_found found = {0};
    exec_taken taken = {.from_run = NULL};
    int rc;
    x->lookup.sum = NULL; /* the caller needs the answer now */
    if (x->graph.grow != NULL) {
        rc = stk_exec_lookup_taken(x, task, &taken, err);
    } else {
        rc = stk_exec_lookup_step(&x->lookup, t->i_step, outputs_of_step, x, false,
                                  stk_clock_wall_ms(x->config.clock), &found, err);
        t->key = found.key;
        t->parts = found.parts;
        t->inputs = found.inputs;
    }
    x->lookup.sum = x->sum;
    return rc;
}

static int emit_hit(stk_exec *x, uint32_t task, const exec_found *found, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 4);
    const stk_step *step = stk_exec_step(x, task);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, "key", found->key);
    stk_json_put_text(&buf, "from_run", found->row.run);
    stk_json_put_raw(&buf, "outputs", found->row.outputs);
    stk_json_put_raw(&buf, "metadata", stk_text_or(found->row.metadata, "{}"));
    stk_json_put_known_text(&buf, "unseen", stk_exec_reads_unseen(found->row.seen, x->scratch));
    stk_json_close(&buf, '}');
    for (uint32_t i = 0; i < step->n_outputs; i++) {
        stk_ref_row row = {
            .digest = found->outputs[i].digest, .task = task, .output = step->outputs[i].name};
        if (row.digest != NULL) {
            STK_TRY(stk_exec_push_ref(x, &row, err));
        }
    }
    return stk_exec_emit_task(x, STK_EV_TASK_CACHED, task, &buf, err);
}

static int do_lookup(stk_exec *x, uint32_t task, stk_err *err)
{
    if (x->graph.grow != NULL) {
        return stk_exec_lookup_grown(x, task, err);
    }
    exec_task *t = &x->tasks[task];
    exec_found found;
    int64_t now = stk_clock_wall_ms(x->config.clock);
    int rc = stk_exec_lookup_step(&x->lookup, t->i_step, outputs_of_step, x, x->config.use_cache,
                                  now, &found, err);
    if (rc == 0 && found.verdict == EXEC_HIT && x->pending.n_refs > 0 &&
        stk_exec_reads_names(found.row.seen)) { /* a name that it looked up may be queued */
        STK_TRY(stk_exec_flush(x, err));
        rc = stk_exec_lookup_step(&x->lookup, t->i_step, outputs_of_step, x, x->config.use_cache,
                                  now, &found, err);
    }
    if (stk_exec_sum_aside(x, task, EXEC_ASIDE_LOOKUP, NULL, &rc, err) || rc < 0) {
        return rc;
    }
    STK_TRY(stk_exec_note_damage(x, err));
    t->key = found.key;
    t->parts = found.parts;
    t->inputs = found.inputs;
    t->miss = found.miss;
    if (found.verdict == EXEC_MISS) {
        return stk_exec_emit_task(x, STK_SE_MISSED, task, NULL, err);
    }
    t->outputs = found.outputs;
    STK_TRY(stk_exec_note_origin(x, t->i_step, found.row.run, found.row.task, err));
    return emit_hit(x, task, &found, err);
}

/* Emits an event with one member. */
static int emit_member(stk_exec *x, int kind, uint32_t task, const char *key, const char *text,
                       stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 12);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, key, text);
    stk_json_close(&buf, '}');
    return stk_exec_emit_task(x, kind, task, &buf, err);
}

static int flush_and_tell(stk_exec *x, stk_err *err)
{
    stk_backend *backend = x->config.backend;
    STK_TRY(stk_exec_flush(x, err));
    if (backend != NULL && backend->ops->recorded != NULL) {
        backend->ops->recorded(backend);
    }
    return 0;
}

void stk_exec_close_backend(stk_exec *x)
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
    STK_TRY(flush_and_tell(x, err));
    stk_exec_close_backend(x);
    STK_TRY(stk_exec_note_left(x, err));
    STK_FAILPOINT("exec.end.before");
    STK_BUF_AUTO buf = STK_BUF_INIT(1 << 20);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, "status", words[status]);
    stk_json_put_text(&buf, "error", status != STK_RUN_SUCCEEDED ? x->error : NULL);
    stk_json_close(&buf, '}');
    STK_TRY(stk_buf_check(&buf, err));
    x->ended = true;
    x->status = status;
    return stk_exec_emit_task(x, STK_EV_RUN_ENDED, 0, &buf, err);
}

static int do_stop(stk_exec *x, uint32_t task, stk_err *err)
{
    int64_t grace = x->n_signals > 1 ? 0 : stk_exec_step(x, task)->settings->grace_ms;
    exec_task *t = &x->tasks[task];
    uint32_t id = t->hook == STK_HOOK_START ? task | EXEC_HOOK_BIT : task;
    exec_aside_kind kind = EXEC_ASIDE_LAUNCH;
    bool was_aside = stk_exec_sum_drop(x, task, &kind);
    if (was_aside && kind == EXEC_ASIDE_END) { /* its process has ended */
        stk_exec_release(x, task);
        return stk_exec_emit_task(x, STK_EV_TASK_CANCELLED, task, NULL, err);
    }
    if (x->is_interrupted && t->hook != STK_HOOK_START && stk_exec_is_away(x, task)) {
        return stk_exec_leave(x, task, err);
    }
    t->stopped = true;
    if (was_aside) {
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
        return emit_member(x, STK_EV_TASK_SKIPPED, a->task, "because",
                           stk_exec_step(x, a->cause)->name, err);
    case STK_ACT_CANCEL:
        (void)stk_exec_sum_drop(x, a->task, &(exec_aside_kind){0});
        return stk_exec_emit_task(x, STK_EV_TASK_CANCELLED, a->task, NULL, err);
    case STK_ACT_FAIL:
        return stk_exec_fail_gone(x, a->task, err);
    case STK_ACT_END:
        /* the run's end waits for its hooks */
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

int stk_exec_cancel(stk_exec *x, const char *why, stk_err *err)
{
    x->n_signals++;
    if (x->n_signals > 1) { /* the following STOP actions have no grace time */
        stop_hooks(x);
    }
    if (x->n_signals > 1 || stk_sched_is_cancelling(x->sched)) {
        return 0;
    }
    return emit_member(x, STK_EV_RUN_CANCELLING, 0, "why", why, err);
}

/* Does everything that the scheduler wants now. A look-up may answer at once and lead to more
 * actions, so it asks until there are none. */
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
            STK_TRY(stk_exec_cancel(x, "--clone-only: the run ends with its clones", err));
        }
    }
    return flush_and_tell(x, err);
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
    if (x->outside.n_leases > 0) { /* an Xid may be why it ended */
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
            STK_TRY(stk_exec_emit_word(x, &report, err));
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
        STK_TRY(stk_exec_cancel(x, signal_words(info.ssi_signo), err));
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
        STK_TRY(stk_exec_summed(x, err));
    }
    if (n > 0 && (fds[2].revents & (POLLHUP | POLLERR)) != 0) {
        x->hung_up = true;
        return stk_exec_cancel(x, "the program that started the run has ended", err);
    }
    return 0;
}

/* Turns until the run and its last hook have ended. */
static int run_turns(stk_exec *x, stk_err *err)
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
        /* a failed launch may have queued events: check again before sleeping */
        if (!launched || x->pending.n_events == 0) {
            STK_TRY(wait(x, wake_ms, err));
        }
    }
}

int stk_exec_loop(stk_exec *x, stk_run_status *ret_status, stk_err *err)
{
    int rc = run_turns(x, err);
    stk_exec_close_backend(x);
    *ret_status = x->status;
    STK_TRY(rc);
    stk_exec_sum_finish(x);
    return 0;
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
