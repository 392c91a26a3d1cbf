/* The rules. The model sees committed events only and has the rules in their plainest form: it adds
 * everything up again each time. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "sim.h"

void sim_broken(sim *s, const char *fmt, ...)
{
    if (!s->is_broken) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(s->why, sizeof s->why, fmt, ap);
        va_end(ap);
        s->is_broken = true;
    }
}

void sim_say(const sim *s, const char *fmt, ...)
{
    if (s->is_verbose) {
        printf("%8" PRId64 " ms  ", s->now_ms);
        va_list ap;
        va_start(ap, fmt);
        (void)vprintf(fmt, ap);
        va_end(ap);
        printf("\n");
    }
}

static bool is_ok(stk_task_state state)
{
    return state == STK_TASK_SUCCEEDED || state == STK_TASK_CACHED;
}

static uint32_t count(const sim *s, stk_task_state state)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        n += s->tasks[i].state == state;
    }
    return n;
}

bool sim_is_stopping(const sim *s)
{
    return s->is_cancelling ||
           (s->config.mode != STK_MODE_CONTINUE && count(s, STK_TASK_FAILED) > 0);
}

uint32_t sim_kind_of(const sim *s, uint32_t task)
{
    const stk_sched_task *a = &s->tasks[task].ask;
    for (uint32_t i = 0;; i++) {
        const stk_sched_task *b = &s->tasks[i].ask;
        if (a->cpu_milli == b->cpu_milli && a->memory_bytes == b->memory_bytes &&
            a->place == b->place && sim_n_devices(&s->tasks[task]) == sim_n_devices(&s->tasks[i])) {
            return i;
        }
    }
}

/* --- resources, added up from what runs --- */

enum { PLACE = 4, N_AMOUNTS = PLACE + STK_SCHED_PLACES };

typedef struct amounts {
    int64_t v[N_AMOUNTS]; /* CPU, memory, devices, workers, places elsewhere */
} amounts;

static amounts asked(const sim *s, uint32_t task)
{
    const stk_sched_task *a = &s->tasks[task].ask;
    amounts all = {{a->cpu_milli, a->memory_bytes, sim_n_devices(&s->tasks[task]), 1}};
    if (a->place > 0) {
        all = (amounts){{0, 0, 0, 1}};
        all.v[PLACE + a->place - 1] = 1;
    }
    return all;
}

static amounts free_now(const sim *s)
{
    const stk_sched_config *c = &s->config;
    amounts left = {{c->cpu_milli, c->memory_bytes, c->host.n,
                     c->max_workers == 0 ? SIM_TASKS_MAX : c->max_workers}};
    for (int i = 0; i < STK_SCHED_PLACES; i++) {
        left.v[PLACE + i] = c->max_away[i] == 0 ? SIM_TASKS_MAX : c->max_away[i];
    }
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        amounts a = asked(s, i);
        for (int d = 0; d < N_AMOUNTS && s->tasks[i].state == STK_TASK_RUNNING; d++) {
            left.v[d] -= a.v[d];
        }
    }
    return left;
}

static bool fits(amounts ask, amounts left)
{
    for (int d = 0; d < N_AMOUNTS; d++) {
        if (ask.v[d] > left.v[d]) {
            return false;
        }
    }
    return true;
}

/* Whether starting `ask` leaves too little of something for `other`. Never so if `other` waits for
 * a place elsewhere, which nothing here gives it. */
static bool is_in_the_way(amounts ask, amounts left, amounts other)
{
    for (int d = PLACE; d < N_AMOUNTS; d++) {
        if (other.v[d] > left.v[d]) {
            return false;
        }
    }
    for (int d = 0; d < N_AMOUNTS; d++) {
        if (ask.v[d] > 0 && left.v[d] - ask.v[d] < other.v[d]) {
            return true;
        }
    }
    return false;
}

/* --- an event, before it is folded --- */

static bool has_failed_ancestor(const sim *s, uint32_t task, uint32_t cause)
{
    bool seen[SIM_TASKS_MAX] = {false};
    seen[task] = true;
    for (uint32_t i = task + 1; i-- > 0;) { /* a task's needs come before it */
        for (uint32_t k = 0; seen[i] && k < s->tasks[i].n_needs; k++) {
            seen[s->tasks[i].needs[k]] = true;
        }
    }
    stk_task_state state = s->tasks[cause].state;
    return cause != task && seen[cause] &&
           (state == STK_TASK_FAILED || state == STK_TASK_CANCELLED);
}

static void check_started(sim *s, const stk_sched_event *event)
{
    uint32_t task = event->task;
    const sim_task *t = &s->tasks[task];
    if (t->state != STK_TASK_WAITING || t->has_job) {
        sim_broken(s, "task %u was started while %s", task, stk_state_word(t->state));
    } else if (event->attempt != t->attempt + 1) {
        sim_broken(s, "task %u: attempt %u after %u", task, event->attempt, t->attempt);
    } else if (!fits(asked(s, task), free_now(s))) {
        sim_broken(s, "task %u was started over capacity", task);
    } else if (s->now_ms < t->not_before_ms) {
        sim_broken(s, "task %u was retried at %" PRId64 ", before %" PRId64, task, s->now_ms,
                   t->not_before_ms);
    } else if (sim_is_stopping(s)) {
        sim_broken(s, "task %u was started while the run stops", task);
    }
    for (uint32_t k = 0; k < t->n_needs; k++) {
        if (!is_ok(s->tasks[t->needs[k]].state)) {
            sim_broken(s, "task %u was started before task %u, which it needs", task, t->needs[k]);
        }
    }
}

static void check_failed(sim *s, const stk_sched_event *event)
{
    const sim_task *t = &s->tasks[event->task];
    uint32_t n_charged = 0;
    for (int i = 0; i < STK_FAIL_N; i++) {
        uint32_t n_own = stk_failure_own_retries((stk_failure)i);
        uint32_t n = t->n_failed[i] + (i == (int)event->failure);
        n_charged += n > n_own ? n - n_own : 0;
    }
    bool is_spent = n_charged > t->ask.max_retries;
    if (t->ask.fallback && is_spent) { /* once, and again if the machine is at fault */
        is_spent = t->is_fallback &&
                   t->n_failed[event->failure] >= stk_failure_own_retries(event->failure);
    }
    bool is_final = is_spent || sim_is_stopping(s) || event->failure == STK_FAIL_CANCELLED;
    if (is_final != event->is_final) {
        sim_broken(s, "task %u: failure %u (%u charged) is %s, it should %s", event->task,
                   t->attempt, n_charged, event->is_final ? "final" : "retried",
                   is_final ? "be final" : "be retried");
    }
}

void sim_check_event(sim *s, const stk_sched_event *event)
{
    const sim_task *t = &s->tasks[event->task];
    switch (event->kind) {
    case STK_EV_TASK_STARTED:
        check_started(s, event);
        break;
    case STK_EV_TASK_FAILED:
        check_failed(s, event);
        break;
    case STK_EV_TASK_SKIPPED:
        if (t->state != STK_TASK_WAITING || t->attempt > 0) {
            sim_broken(s, "task %u was skipped while %s", event->task, stk_state_word(t->state));
        }
        break;
    case STK_EV_TASK_CANCELLED:
        if (stk_state_is_final(t->state)) {
            sim_broken(s, "task %u was cancelled while %s", event->task, stk_state_word(t->state));
        }
        break;
    default:
        break;
    }
}

/* --- and after --- */

static void record_passed(sim *s, uint32_t task, amounts left)
{
    amounts ask = asked(s, task);
    uint32_t own = sim_kind_of(s, task);
    uint64_t ready_at = s->tasks[task].ready_at;
    /* One answer may pass the bound by what it decides itself. */
    uint32_t bound =
        STK_SCHED_PATIENCE + (s->config.max_workers > 0 ? s->config.max_workers : SIM_ACTIONS_MAX);
    bool counted[SIM_TASKS_MAX] = {false};
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        const sim_task *other = &s->tasks[i];
        if (other->ready_at == 0 || other->ready_at >= ready_at) {
            continue;
        }
        uint32_t kind = sim_kind_of(s, i);
        if (kind == own || counted[kind] || !is_in_the_way(ask, left, asked(s, i))) {
            continue;
        }
        counted[kind] = true;
        if (++s->kinds[kind].n_passed > bound) {
            sim_broken(s, "task %u starves: %u later ones in its way were started", i,
                       s->kinds[kind].n_passed);
        }
    }
}

void sim_record(sim *s, const stk_sched_event *event)
{
    sim_task *t = &s->tasks[event->task];
    amounts left = free_now(s);
    switch (event->kind) {
    case STK_EV_TASK_STARTED:
        t->attempt++;
        t->not_before_ms = 0;
        s->n_starts++;
        record_passed(s, event->task, left);
        t->state = STK_TASK_RUNNING;
        break;
    case STK_EV_TASK_SUCCEEDED:
        t->state = STK_TASK_SUCCEEDED;
        break;
    case STK_EV_TASK_CACHED:
        t->state = STK_TASK_CACHED;
        break;
    case STK_EV_TASK_FAILED:
        t->n_failed[event->failure]++;
        t->state = event->is_final ? STK_TASK_FAILED : STK_TASK_WAITING;
        break;
    case STK_EV_TASK_RETRYING:
        t->not_before_ms = event->at_ms;
        if (event->is_fallback && !t->ask.fallback) {
            sim_broken(s, "task %u has no fallback", event->task);
        }
        t->is_fallback = t->is_fallback || event->is_fallback;
        break;
    case STK_EV_TASK_SKIPPED:
        t->state = STK_TASK_SKIPPED;
        break;
    case STK_EV_TASK_CANCELLED:
        t->state = STK_TASK_CANCELLED;
        break;
    case STK_SE_BUSY:
        s->kinds[sim_kind_of(s, event->task)] = (sim_kind){0, event->at_ms};
        break;
    case STK_EV_RUN_CANCELLING:
        s->is_cancelling = true;
        break;
    case STK_EV_RUN_ENDED:
        s->is_ended = true;
        break;
    default:
        break;
    }
}

void sim_check_state(sim *s)
{
    stk_sched_counts c;
    stk_sched_count(s->sched, &c);
    amounts left = free_now(s);
    const stk_sched_config *g = &s->config;
    if (c.cpu_used != g->cpu_milli - left.v[0] || c.memory_used != g->memory_bytes - left.v[1] ||
        c.devices_used != g->host.n - left.v[2] || c.running != count(s, STK_TASK_RUNNING)) {
        sim_broken(s, "resources: %" PRId64 " CPU, %" PRId64 " memory, %u devices, %u running",
                   c.cpu_used, c.memory_used, c.devices_used, c.running);
    }
    uint64_t n[STK_TASK_N] = {0};
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        sim_task *t = &s->tasks[i];
        stk_task_state state = stk_sched_state(s->sched, i);
        n[state]++;
        stk_task_state known =
            stk_state_is_final(state) || state == STK_TASK_RUNNING ? state : STK_TASK_WAITING;
        if (known != t->state || stk_sched_attempt(s->sched, i) != t->attempt) {
            sim_broken(s, "task %u is %s (attempt %u), but by its events %s (attempt %u)", i,
                       stk_state_word(state), stk_sched_attempt(s->sched, i),
                       stk_state_word(t->state), t->attempt);
        }
        if (stk_sched_is_fallback(s->sched, i) != t->is_fallback) {
            sim_broken(s, "task %u: is its attempt the fallback?", i);
        }
        if (state != STK_TASK_READY && t->ready_at != 0) {
            t->ready_at = 0;
            s->kinds[sim_kind_of(s, i)].n_passed = 0;
        } else if (state == STK_TASK_READY && t->ready_at == 0) {
            t->ready_at = s->step;
            t->ready_starts = s->n_starts;
        }
    }
    if (memcmp(n, c.n, sizeof n) != 0 || c.n_tasks != s->n_tasks) {
        sim_broken(s, "the counts by state are wrong");
    }
}

/* --- actions --- */

static void check_start(sim *s, const stk_action *actions, uint32_t i_action)
{
    uint32_t task = actions[i_action].task, kind = sim_kind_of(s, task);
    const sim_task *t = &s->tasks[task];
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        const sim_task *other = &s->tasks[i];
        if (other->ready_at == 0 || other->ready_at >= t->ready_at || sim_kind_of(s, i) != kind) {
            continue;
        }
        bool is_before = false;
        for (uint32_t k = 0; k < i_action; k++) {
            is_before = is_before || actions[k].task == i;
        }
        if (!is_before) {
            sim_broken(s, "task %u is to start before task %u, which was ready earlier", task, i);
        }
    }
    if (s->kinds[kind].busy_until_ms > s->now_ms) {
        sim_broken(s, "task %u is to start although its devices are busy", task);
    }
}

/* Whether a task that could start was left out although no other has waited so long. */
static void check_no_idling(sim *s, amounts left, const bool *is_given)
{
    bool is_anyone_starved = false;
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        const sim_task *t = &s->tasks[i];
        is_anyone_starved =
            is_anyone_starved ||
            (t->ready_at != 0 && s->n_starts - t->ready_starts >= STK_SCHED_PATIENCE);
    }
    for (uint32_t i = 0; i < s->n_tasks && !is_anyone_starved; i++) {
        if (s->tasks[i].ready_at != 0 && !is_given[i] && fits(asked(s, i), left) &&
            s->kinds[sim_kind_of(s, i)].busy_until_ms <= s->now_ms) {
            sim_broken(s, "task %u is ready and fits, but isn't to start", i);
        }
    }
}

/* Running tasks are ended, unless they may finish. */
static void check_stops(sim *s, const stk_action *actions, uint32_t n, bool is_all)
{
    bool is_given[SIM_TASKS_MAX] = {false};
    bool may_finish = !s->is_cancelling &&
                      (s->config.mode != STK_MODE_FAIL_FAST || count(s, STK_TASK_FAILED) == 0);
    for (uint32_t k = 0; k < n; k++) {
        if (actions[k].kind != STK_ACT_STOP) {
            continue;
        }
        is_given[actions[k].task] = true;
        if (may_finish || s->tasks[actions[k].task].state != STK_TASK_RUNNING) {
            sim_broken(s, "task %u is to be stopped, but %s", actions[k].task,
                       may_finish ? "may finish" : "doesn't run");
        }
    }
    for (uint32_t i = 0; is_all && !may_finish && i < s->n_tasks; i++) {
        if (s->tasks[i].state == STK_TASK_RUNNING && !is_given[i]) {
            sim_broken(s, "task %u runs on although the run stops", i);
        }
    }
}

void sim_check_actions(sim *s, const stk_action *actions, uint32_t n, bool is_all)
{
    amounts left = free_now(s);
    bool is_given[SIM_TASKS_MAX] = {false};
    check_stops(s, actions, n, is_all);
    for (uint32_t k = 0; k < n; k++) {
        const stk_action *a = &actions[k];
        if (a->kind == STK_ACT_END) {
            continue;
        }
        if (is_given[a->task]) {
            sim_broken(s, "two actions for task %u in one answer", a->task);
        }
        is_given[a->task] = true;
        if (a->kind == STK_ACT_SKIP && !has_failed_ancestor(s, a->task, a->cause)) {
            sim_broken(s,
                       "task %u is to be skipped because of task %u, which is not a failed one "
                       "that it needs",
                       a->task, a->cause);
        } else if (a->kind == STK_ACT_START) {
            check_start(s, actions, k);
            amounts ask = asked(s, a->task);
            if (!fits(ask, left)) {
                sim_broken(s, "task %u is to start over capacity", a->task);
            }
            for (int d = 0; d < N_AMOUNTS; d++) {
                left.v[d] -= ask.v[d];
            }
        }
    }
    if (is_all && !sim_is_stopping(s)) {
        check_no_idling(s, left, is_given);
    }
}

/* --- the end --- */

void sim_check_end(sim *s, int status)
{
    uint32_t n_ok = count(s, STK_TASK_SUCCEEDED) + count(s, STK_TASK_CACHED);
    int expected = n_ok == s->n_tasks                                   ? 0
                   : s->is_cancelling || count(s, STK_TASK_FAILED) == 0 ? 2
                                                                        : 1;
    if (status != expected) {
        sim_broken(s, "the run ends with status %d, it should be %d", status, expected);
    }
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        const sim_task *t = &s->tasks[i];
        bool are_needs_ok = true;
        for (uint32_t k = 0; k < t->n_needs; k++) {
            are_needs_ok = are_needs_ok && is_ok(s->tasks[t->needs[k]].state);
        }
        if (!stk_state_is_final(t->state) || t->has_job) {
            sim_broken(s, "the run ends, but task %u is %s", i, stk_state_word(t->state));
        } else if (t->state == STK_TASK_SKIPPED && are_needs_ok) {
            sim_broken(s, "task %u was skipped, but all that it needs succeeded", i);
        } else if (is_ok(t->state) && !are_needs_ok) {
            sim_broken(s, "task %u succeeded without what it needs", i);
        }
    }
}
