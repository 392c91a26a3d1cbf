/* The engine's part: asks, commits, acts, and is killed. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static int64_t now_ms(void *arg)
{
    return ((const sim *)arg)->now_ms;
}

static void log_put(sim *s, sim_entry entry)
{
    if (s->n_log == s->cap_log) {
        s->cap_log = s->cap_log == 0 ? 256 : s->cap_log * 2;
        s->log = reallocarray(s->log, s->cap_log, sizeof *s->log);
        if (s->log == NULL) {
            abort();
        }
    }
    s->log[s->n_log++] = entry;
}

static void add_to(sim *s, stk_sched *sched, uint32_t task)
{
    const sim_task *t = &s->tasks[task];
    stk_err err = {0};
    if (stk_sched_add(sched, &t->ask, t->needs, t->n_needs, NULL, &err) != 0) {
        sim_broken(s, "adding task %u: %s", task, err.text);
    }
}

static stk_sched *new_sched(sim *s)
{
    stk_sched *sched = stk_sched_new(&s->config);
    if (sched == NULL) {
        abort();
    }
    return sched;
}

/* The state that follows from the log alone. */
stk_sched *sim_refold(sim *s)
{
    stk_sched *sched = new_sched(s);
    for (uint32_t i = 0; i < s->n_log && !s->is_broken; i++) {
        const sim_entry *e = &s->log[i];
        stk_err err = {0};
        if (e->is_add) {
            add_to(s, sched, e->task);
        } else if (stk_sched_fold(sched, &e->event, &err) != 0) {
            sim_broken(s, "folding event %u again: %s", i, err.text);
        }
    }
    return sched;
}

static void check_fold(sim *s)
{
    stk_sched *again = sim_refold(s);
    if (!s->is_broken && stk_sched_digest(again) != stk_sched_digest(s->sched)) {
        sim_broken(s, "the fold of the log is not the state");
    }
    stk_sched_free(again);
}

static const char *word(int kind)
{
    return kind == STK_SE_MISSED ? "missed"
           : kind == STK_SE_BUSY ? "busy"
                                 : stk_event_word((stk_event_kind)kind);
}

/* Checks, logs, folds; then the engine may die. */
void sim_commit(sim *s, const stk_sched_event *event)
{
    if (s->is_killed || s->is_broken) {
        return;
    }
    stk_err err = {0};
    sim_say(s, "%s task %u attempt %u%s", word(event->kind), event->task, event->attempt,
            event->is_final ? " final" : "");
    sim_check_event(s, event);
    if (stk_sched_fold(s->sched, event, &err) != 0) {
        sim_broken(s, "%s", err.text);
        return;
    }
    if (event->kind < STK_EV_N) {
        log_put(s, (sim_entry){.event = *event});
    }
    sim_record(s, event);
    sim_check_state(s);
    /* Folding everything again costs time in proportion to the log's length. */
    if (s->n_log < 150 || s->n_log % 64 == 0) {
        check_fold(s);
    }
    s->is_killed = s->n_kills < 20 && sim_one_in(s, s->kill_one_in);
}

static void add_tasks(sim *s, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t task = s->n_tasks++;
        sim_draw_task(s, task);
        log_put(s, (sim_entry){.is_add = true, .task = task});
        add_to(s, s->sched, task);
        sim_say(s, "task %u is added", task);
    }
    sim_check_state(s);
}

static void fail(sim *s, uint32_t task, stk_failure failure)
{
    stk_sched_event failed = {.kind = STK_EV_TASK_FAILED,
                              .task = task,
                              .attempt = s->tasks[task].attempt,
                              .failure = failure};
    stk_sched_retrying retrying;
    failed.is_final = !stk_sched_retry(s->sched, task, failure, false, &retrying);
    sim_commit(s, &failed);
    int64_t delay_ms = retrying.delay_ms;
    if (!failed.is_final) {
        const stk_sched_task *ask = &s->tasks[task].ask;
        double ms = retrying.is_fallback ? 0 : (double)ask->delay_ms;
        for (uint32_t i = 1; i < failed.attempt; i++) {
            ms *= ask->backoff;
        }
        if ((double)delay_ms < ms * (1 - ask->jitter) - 1 ||
            (double)delay_ms > ms * (1 + ask->jitter) + 1) {
            sim_broken(s, "task %u: %" PRId64 " ms before attempt %u, about %.0f were asked", task,
                       delay_ms, failed.attempt + 1, ms);
        }
        sim_commit(s, &(stk_sched_event){.kind = STK_EV_TASK_RETRYING,
                                         .task = task,
                                         .at_ms = s->now_ms + delay_ms,
                                         .is_fallback = retrying.is_fallback});
    }
}

/* --- acting --- */

static void start(sim *s, const stk_action *a)
{
    uint32_t task = a->task;
    if (s->tasks[task].ask.n_asks > 0 && sim_below(s, 100) < s->busy_percent) {
        int64_t at_ms = s->now_ms + 1 + sim_below(s, 40);
        sim_commit(s, &(stk_sched_event){.kind = STK_SE_BUSY, .task = task, .at_ms = at_ms});
        return;
    }
    sim_commit(s, &(stk_sched_event){.kind = STK_EV_TASK_STARTED,
                                     .task = task,
                                     .attempt = a->attempt,
                                     .i_ask = a->i_ask,
                                     .devices = a->devices});
    if (s->is_killed || s->is_broken) {
        return;
    }
    stk_job job = {.id = task, .attempt = a->attempt};
    stk_err err = {0};
    if (s->backend->ops->start(s->backend, &job, &err) != 0) {
        fail(s, task, STK_FAIL_START);
    } else {
        s->tasks[task].has_job = true;
    }
}

static void act(sim *s, const stk_action *a)
{
    stk_sched_event event = {.task = a->task};
    switch (a->kind) {
    case STK_ACT_LOOKUP:
        event.kind = sim_is_cached(s, a->task) ? (int)STK_EV_TASK_CACHED : (int)STK_SE_MISSED;
        sim_commit(s, &event);
        break;
    case STK_ACT_START:
        if (!sim_is_stopping(s)) { /* an earlier action of this answer may have failed */
            start(s, a);
        }
        break;
    case STK_ACT_STOP:
        s->backend->ops->stop(s->backend, a->task, 0, STK_FAIL_CANCELLED);
        break;
    case STK_ACT_SKIP:
        event.kind = STK_EV_TASK_SKIPPED;
        sim_commit(s, &event);
        break;
    case STK_ACT_CANCEL:
        event.kind = STK_EV_TASK_CANCELLED;
        sim_commit(s, &event);
        break;
    case STK_ACT_FAIL:
        sim_broken(s, "task %u is to fail for devices that are all there", a->task);
        break;
    case STK_ACT_END:
        sim_check_end(s, a->status);
        sim_commit(s, &(stk_sched_event){.kind = STK_EV_RUN_ENDED});
        break;
    }
}

static void report_ended(sim *s, const stk_report *report)
{
    uint32_t task = report->id;
    s->tasks[task].has_job = false;
    if (!report->outcome.ok) {
        if (report->outcome.failure == STK_FAIL_CANCELLED && sim_one_in(s, 2)) {
            sim_commit(s, &(stk_sched_event){.kind = STK_EV_TASK_CANCELLED, .task = task});
        } else {
            fail(s, task, report->outcome.failure);
        }
        return;
    }
    /* What a task adds is committed with its success, before or after it. */
    uint32_t n_new = s->n_grow > 0 && sim_one_in(s, 3) ? 1 + sim_below(s, 3) : 0;
    n_new = n_new < s->n_grow ? n_new : s->n_grow;
    n_new = s->n_tasks + n_new <= SIM_TASKS_MAX ? n_new : 0;
    s->n_grow -= n_new;
    uint32_t n_before = sim_below(s, n_new + 1);
    add_tasks(s, n_before);
    uint32_t kill_one_in = s->kill_one_in;
    s->kill_one_in = n_new > n_before ? 0 : kill_one_in;
    sim_commit(s, &(stk_sched_event){
                      .kind = STK_EV_TASK_SUCCEEDED, .task = task, .attempt = report->attempt});
    s->kill_one_in = kill_one_in;
    add_tasks(s, n_new - n_before);
}

static uint32_t drain(sim *s)
{
    stk_report report;
    uint32_t n = 0;
    while (!s->is_killed && !s->is_broken && s->backend->ops->next(s->backend, &report)) {
        n++;
        if (report.kind == STK_REPORT_ENDED) {
            report_ended(s, &report);
        }
    }
    return n;
}

/* --- life and death --- */

static void open_backend(sim *s)
{
    if (stk_backend_fake_open(sim_fate, s, now_ms, &s->backend, NULL) != 0) {
        abort();
    }
}

/* The engine and its tasks are dead; another engine takes over from the log. */
static void restart(sim *s)
{
    s->n_kills++;
    sim_say(s, "killed; a new engine folds %u events", s->n_log);
    s->backend->ops->close(s->backend);
    check_fold(s);
    stk_sched_free(s->sched);
    s->sched = sim_refold(s);
    open_backend(s);
    s->is_killed = false;
    s->now_ms += sim_below(s, 50);
    memset(s->kinds, 0, sizeof s->kinds);
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        s->tasks[i].has_job = false;
    }
    for (uint32_t i = 0; i < s->n_tasks && !s->is_broken; i++) {
        if (s->tasks[i].state == STK_TASK_RUNNING) {
            fail(s, i, STK_FAIL_LOST);
        }
    }
    if (!s->is_killed && !s->is_broken) {
        sim_check_state(s);
    }
}

/* One round: ask (twice, for the same answer) and act on most of it. False: nothing to do. */
static bool decide(sim *s, int64_t *ret_wake_ms)
{
    stk_action actions[SIM_ACTIONS_MAX], again[SIM_ACTIONS_MAX];
    uint32_t n, n_again, n_max = sim_one_in(s, 4) ? 1 + sim_below(s, 4) : SIM_ACTIONS_MAX;
    int64_t wake_again;
    bool is_progress = false;
    memset(actions, 0, sizeof actions);
    memset(again, 0, sizeof again);
    stk_sched_next(s->sched, s->now_ms, actions, n_max, &n, ret_wake_ms);
    sim_check_state(s); /* retries that came due are ready now */
    stk_sched_next(s->sched, s->now_ms, again, n_max, &n_again, &wake_again);
    if (n != n_again || *ret_wake_ms != wake_again || memcmp(actions, again, sizeof actions) != 0) {
        sim_broken(s, "asked twice, the scheduler said two things");
    }
    sim_check_actions(s, actions, n, n < n_max);
    for (uint32_t i = 0; i < n && !s->is_killed && !s->is_broken; i++) {
        bool is_put_off = sim_one_in(s, 10);
        is_progress = is_progress || actions[i].kind != STK_ACT_STOP || is_put_off;
        if (!is_put_off) {
            act(s, &actions[i]);
        }
    }
    return is_progress;
}

/* A late, repeated or foreign event. */
static void try_nonsense(sim *s, uint32_t task)
{
    static const stk_event_kind kinds[] = {STK_EV_TASK_CACHED,    STK_EV_TASK_STARTED,
                                           STK_EV_TASK_SUCCEEDED, STK_EV_TASK_FAILED,
                                           STK_EV_TASK_SKIPPED,   STK_EV_TASK_CANCELLED};
    const sim_task *t = &s->tasks[task];
    stk_sched_event event = {.kind = STK_EV_TASK_STARTED, .task = task, .attempt = t->attempt + 2};
    if (stk_state_is_final(t->state)) {
        event.kind = (int)kinds[sim_below(s, 6)];
        event.attempt = t->attempt;
    } else if (t->state == STK_TASK_WAITING && sim_one_in(s, 2)) {
        event.kind = STK_EV_TASK_SUCCEEDED;
        event.attempt = t->attempt;
    }
    uint64_t before = stk_sched_digest(s->sched);
    if (stk_sched_fold(s->sched, &event, NULL) != STK_E_PROTOCOL ||
        stk_sched_digest(s->sched) != before) {
        sim_broken(s, "%s (attempt %u) was taken for task %u, which is %s", word(event.kind),
                   event.attempt, task, stk_state_word(t->state));
    }
}

static void disturb(sim *s)
{
    if (!s->is_cancelling && sim_one_in(s, s->cancel_one_in)) {
        sim_commit(s, &(stk_sched_event){.kind = STK_EV_RUN_CANCELLING, .at_ms = s->now_ms});
    }
    uint32_t task = sim_below(s, s->n_tasks);
    bool is_unstarted = s->tasks[task].state == STK_TASK_WAITING;
    if (sim_one_in(s, 4) && !s->is_killed) {
        try_nonsense(s, task);
    }
    if (s->cancel_one_in > 0 && is_unstarted && sim_one_in(s, 100)) {
        sim_commit(s, &(stk_sched_event){.kind = STK_EV_TASK_CANCELLED, .task = task});
    }
}

static void pass_time(sim *s, int64_t wake_ms)
{
    int64_t wait_ms = s->backend->ops->wait_ms(s->backend);
    int64_t until = wait_ms < 0 ? -1 : s->now_ms + wait_ms;
    if (wake_ms >= 0 && (until < 0 || wake_ms < until)) {
        until = wake_ms;
    }
    if (until < 0) {
        sim_broken(s, "nothing runs, nothing is due, and the run has not ended");
    } else if (until > s->now_ms) {
        s->now_ms = until;
    }
}

void sim_run(sim *s)
{
    uint64_t n_most = 2000 + 400 * (uint64_t)(s->n_tasks + s->n_grow);
    s->sched = new_sched(s);
    open_backend(s);
    uint32_t n_tasks = s->n_tasks;
    for (uint32_t i = 0; i < n_tasks; i++) {
        log_put(s, (sim_entry){.is_add = true, .task = i});
        add_to(s, s->sched, i);
    }
    for (s->step = 1; !s->is_ended && !s->is_broken; s->step++) {
        int64_t wake_ms = -1;
        if (s->step > n_most) {
            sim_broken(s, "the run doesn't end: %" PRIu64 " rounds", s->step);
        }
        bool is_progress = decide(s, &wake_ms);
        is_progress = drain(s) > 0 || is_progress;
        if (!s->is_ended) {
            disturb(s);
        }
        if (s->is_broken || (s->is_ended && !s->is_killed)) {
            break;
        }
        if (s->is_killed) {
            restart(s);
        } else if (!is_progress) {
            pass_time(s, wake_ms);
        }
    }
    s->backend->ops->close(s->backend);
    stk_sched_free(s->sched);
}
