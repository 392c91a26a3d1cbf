/* stream: a scheduler that always gets new work, on a host with devices.
 *
 *     stream [--seeds A..B] [-v]         without seeds: as many as STOKER_SIM_SEEDS says, or 1000
 *
 * The seed gives devices (split by memory or not, near or far), a few kinds of requests (whole
 * devices, shares, several, neighbours, alternatives), and a stream of tasks that make them. Tasks
 * last at most LONGEST ms; some fail, some of them for memory. Up to a certain time, other users
 * take and give back parts of devices; sometimes a device is lost for good. The model adds up
 * independently who holds what. Rules:
 *
 *   - no device exceeds its capacity, and no task gets what it didn't ask for;
 *   - the task that is ready for longest starts within LONGEST ms after STK_SCHED_PATIENCE tasks
 *     started before it, unless other users hold devices;
 *   - for a ready task that isn't started, there is a reason that it waits for;
 *   - everything ends after the other users are gone;
 *   - the fold of the record is the state. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/sched/sched.h"

enum { TASKS = 600, SORTS = 6, DEVICES = 8, LONGEST = 24, ACTIONS = 32, LOG = TASKS * 12 };

typedef struct sort {
    stk_pack_ask asks[3];
    stk_sched_task task;
} sort;

typedef struct job {
    uint32_t i_sort;
    stk_pack_ask asks[3]; /* as grown */
    int64_t memory;
    stk_task_state state;
    uint32_t attempt;
    uint64_t ready_at; /* round in which it was first seen ready; 0: not ready */
    int64_t end_ms;
    stk_devset devices;
    int32_t share_mib;
} job;

typedef struct stream {
    uint64_t seed, random;
    bool is_verbose, is_broken;
    char why[300];
    stk_sched_config config;
    stk_pack_device all[DEVICES], devices[DEVICES]; /* at first; without the lost ones */
    uint8_t links[DEVICES * DEVICES];
    sort sorts[SORTS];
    bool is_hungry;
    uint32_t n_sorts, n_most, n_tasks, n_running, backlog, busy_percent, fail_percent;
    int64_t now_ms, quiet_ms; /* from quiet_ms on there are no other users */
    int32_t outside[DEVICES];
    stk_sched *sched;
    job jobs[TASKS];
    uint64_t round, n_starts;
    uint32_t oldest;        /* ready for longest */
    uint64_t oldest_starts; /* starts when it became so */
    int64_t starved_ms;     /* when it had waited long enough; -1: not yet */
    stk_sched_event log[LOG];
    uint32_t n_log;
    uint64_t n_passed;
} stream;

static void broken(stream *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void broken(stream *s, const char *fmt, ...)
{
    if (!s->is_broken) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(s->why, sizeof s->why, fmt, ap);
        va_end(ap);
        s->is_broken = true;
    }
}

static uint32_t below(stream *s, uint32_t n)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((s->random >> 33) % n);
}

static bool one_in(stream *s, uint32_t n)
{
    return below(s, n) == 0;
}

/* --- the world --- */

static void draw_ask(stream *s, stk_pack_ask *ask)
{
    uint32_t n = s->config.host.n;
    *ask = (stk_pack_ask){.n = one_in(s, 3) ? 1 + below(s, n) : 1};
    if (one_in(s, 2)) {
        ask->share_mib = 1 + (int32_t)below(s, 100);
    }
    ask->wanted.words[0] = one_in(s, 2) ? ~(uint64_t)0 : 1 + below(s, 255);
    if (one_in(s, 6)) {
        ask->n = one_in(s, 2) ? 2 : 4;
        ask->contiguous = true;
    }
}

static void draw_sort(stream *s, sort *r)
{
    stk_pack_host host = s->config.host;
    bool is_possible = false;
    uint32_t n_cpus = (uint32_t)(s->config.cpu_milli / 1000);
    r->task = (stk_sched_task){.cpu_milli = 1000 * (int64_t)below(s, one_in(s, 4) ? n_cpus + 1 : 2),
                               .memory_bytes = one_in(s, 3) ? 1 + below(s, 500) : 0,
                               .max_retries = 2,
                               .backoff = 1,
                               .delay_ms = below(s, 4),
                               .oom_memory = one_in(s, 2) ? 1.5 : 0,
                               .oom_share = one_in(s, 2) ? 1.5 : 0,
                               .oom_retries = 2};
    while (!is_possible) {
        r->task.n_asks = below(s, 4);
        is_possible = r->task.n_asks == 0;
        for (uint32_t i = 0; i < r->task.n_asks; i++) {
            draw_ask(s, &r->asks[i]);
            is_possible = is_possible || stk_pack_is_possible(&host, &r->asks[i]);
        }
    }
    r->task.asks = r->asks;
    if (s->config.max_away[0] > 0 && one_in(s, 3)) {
        r->task.place = 1;
        r->task.cpu_milli = 0;
        r->task.n_asks = 0;
        r->task.memory_bytes *= 5; /* more than there is here */
    }
}

/* Many small tasks, and sometimes one that needs (nearly) everything and could wait for ever. */
static void draw_hungry(stream *s)
{
    uint32_t n_usable = 0;
    s->is_hungry = true;
    for (uint32_t i = 0; i < s->config.host.n; i++) {
        n_usable += !s->devices[i].taken;
    }
    for (uint32_t i = 0; i < s->n_sorts; i++) {
        sort *r = &s->sorts[i];
        bool is_big = i == 0;
        bool is_shared = s->devices[0].total_mib > 0 && (is_big ? one_in(s, 3) : !one_in(s, 4));
        r->task.place = 0;
        r->task.n_asks = 1;
        r->task.cpu_milli = is_big && one_in(s, 3) ? s->config.cpu_milli : 100;
        r->task.memory_bytes = is_big && one_in(s, 3) ? 900 : below(s, 20);
        r->asks[0] =
            (stk_pack_ask){.n = is_big && n_usable > 1 ? n_usable - below(s, 2) : 1,
                           .share_mib = is_shared ? (is_big ? 60 : 1) + (int32_t)below(s, 40) : 0};
        memset(&r->asks[0].wanted, 0xff, sizeof r->asks[0].wanted);
    }
    s->backlog = 6 + below(s, 20);
}

static void draw(stream *s)
{
    uint32_t n = 1 + below(s, DEVICES);
    bool has_memory = !one_in(s, 6);
    for (uint32_t i = 0; i < n; i++) {
        s->devices[i] = (stk_pack_device){.total_mib = has_memory ? 100 : 0,
                                          .free_mib = has_memory ? 100 : 0,
                                          .numa = (int32_t)below(s, 3) - 1,
                                          .taken = n > 2 && one_in(s, 12)};
        for (uint32_t j = 0; j <= i; j++) {
            s->links[i * n + j] = s->links[j * n + i] = (uint8_t)below(s, 6);
        }
    }
    memcpy(s->all, s->devices, sizeof s->all);
    s->config = (stk_sched_config){.cpu_milli = 1000 * (int64_t)(2 + below(s, 9)),
                                   .memory_bytes = 1000,
                                   .host = {s->all, n, one_in(s, 2) ? s->links : NULL},
                                   .max_workers = one_in(s, 2) ? 0 : 2 + below(s, 8),
                                   .max_away = {one_in(s, 2) ? 0 : 1 + below(s, 4)},
                                   .seed = s->seed};
    s->n_sorts = 2 + below(s, SORTS - 1);
    for (uint32_t i = 0; i < s->n_sorts; i++) {
        draw_sort(s, &s->sorts[i]);
    }
    s->n_most = 200 + below(s, TASKS - 200);
    s->backlog = 2 + below(s, 14);
    s->busy_percent = one_in(s, 4) ? 20 : 0;
    s->fail_percent = one_in(s, 2) ? 8 : 0;
    s->quiet_ms = one_in(s, 2) ? 0 : 200 + below(s, 800);
    if (one_in(s, 2)) {
        draw_hungry(s);
    }
}

/* --- the model --- */

static int32_t held(const stream *s, uint32_t device, bool *ret_whole)
{
    int32_t mib = 0;
    *ret_whole = false;
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        const job *j = &s->jobs[i];
        if (j->state == STK_TASK_RUNNING && stk_devset_has(&j->devices, device)) {
            mib += j->share_mib;
            *ret_whole = *ret_whole || j->share_mib == 0;
        }
    }
    return mib;
}

static void check_devices(stream *s, uint32_t task, const stk_action *a)
{
    const job *j = &s->jobs[task];
    const stk_pack_ask *ask = &j->asks[a->i_ask];
    uint32_t first = UINT32_MAX;
    if (a->i_ask >= s->sorts[j->i_sort].task.n_asks || stk_devset_count(&a->devices) != ask->n) {
        broken(s, "task %u: %u devices by alternative %u", task, stk_devset_count(&a->devices),
               a->i_ask);
        return;
    }
    for (uint32_t i = 0; i < STK_LIMIT_DEVICES; i++) {
        bool is_whole;
        if (!stk_devset_has(&a->devices, i)) {
            continue;
        }
        first = first == UINT32_MAX ? i : first;
        if (i >= s->config.host.n || s->devices[i].taken || !stk_devset_has(&ask->wanted, i)) {
            broken(s, "task %u got device %u, which it can't have", task, i);
            return;
        }
        int32_t mib = held(s, i, &is_whole) + s->outside[i];
        if (is_whole ||
            (ask->share_mib == 0 ? mib > 0 || stk_sched_holder(s->sched, i) != UINT32_MAX
                                 : mib + ask->share_mib > s->devices[i].total_mib)) {
            broken(s, "task %u got %d MiB of device %u over its capacity (%d taken)", task,
                   ask->share_mib, i, mib);
        }
    }
    if (ask->contiguous &&
        (first % ask->n != 0 || !stk_devset_has(&a->devices, first + ask->n - 1))) {
        broken(s, "task %u got no block of %u neighbours", task, ask->n);
    }
}

static void check_amounts(stream *s)
{
    int64_t cpu = 0, memory = 0;
    uint32_t n = 0, n_away = 0;
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        if (s->jobs[i].state == STK_TASK_RUNNING) {
            const stk_sched_task *task = &s->sorts[s->jobs[i].i_sort].task;
            cpu += task->cpu_milli;
            memory += task->place > 0 ? 0 : s->jobs[i].memory;
            n_away += task->place;
            n++;
        }
    }
    stk_sched_counts c;
    stk_sched_count(s->sched, &c);
    if (cpu > s->config.cpu_milli || memory > s->config.memory_bytes ||
        (s->config.max_workers > 0 && n > s->config.max_workers) ||
        (s->config.max_away[0] > 0 && n_away > s->config.max_away[0]) || n != s->n_running ||
        c.cpu_used != cpu || c.memory_used != memory || c.running != n) {
        broken(s, "%" PRId64 " CPU, %" PRId64 " memory, %u running, %u of them elsewhere", cpu,
               memory, n, n_away);
    }
}

/* --- the record --- */

static void fold_into(stream *s, stk_sched *sched, const stk_sched_event *event)
{
    stk_err err = {0};
    if (stk_sched_fold(sched, event, &err) != 0) {
        broken(s, "%s", err.text);
    }
}

/* kind TASK_ADDED: `attempt` is the sort. */
static void commit(stream *s, stk_sched_event event)
{
    if (s->is_verbose) {
        printf("%6" PRId64 " ms  event %d task %u attempt %u devices %" PRIx64 " outside %u:%d\n",
               s->now_ms, event.kind, event.task, event.attempt, event.devices.words[0],
               event.device, event.mib);
    }
    if (event.kind == STK_EV_TASK_ADDED) {
        stk_err err = {0};
        if (stk_sched_add(s->sched, &s->sorts[event.attempt].task, NULL, 0, NULL, &err) != 0) {
            broken(s, "%s", err.text);
        }
    } else {
        fold_into(s, s->sched, &event);
    }
    if (event.kind < STK_EV_N) {
        if (s->n_log == LOG) {
            broken(s, "the record is too long");
            return;
        }
        s->log[s->n_log++] = event;
    }
}

static void check_fold(stream *s)
{
    stk_sched *again = stk_sched_new(&s->config);
    for (uint32_t i = 0; i < s->n_log && !s->is_broken; i++) {
        const stk_sched_event *e = &s->log[i];
        if (e->kind == STK_EV_TASK_ADDED) {
            (void)stk_sched_add(again, &s->sorts[e->attempt].task, NULL, 0, NULL, NULL);
        } else {
            fold_into(s, again, e);
        }
    }
    if (!s->is_broken && stk_sched_digest(again) != stk_sched_digest(s->sched)) {
        broken(s, "the fold of the record is not the state");
    }
    stk_sched_free(again);
}

/* --- what happens --- */

static uint32_t draw_i_sort(stream *s)
{
    return !s->is_hungry ? below(s, s->n_sorts) : one_in(s, 25) ? 0 : 1 + below(s, s->n_sorts - 1);
}

static void add_work(stream *s)
{
    uint32_t n_ready = 0;
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        n_ready += s->jobs[i].state == STK_TASK_READY;
    }
    while (n_ready++ < s->backlog && s->n_tasks < s->n_most) {
        job *j = &s->jobs[s->n_tasks];
        *j = (job){.i_sort = draw_i_sort(s), .state = STK_TASK_READY};
        memcpy(j->asks, s->sorts[j->i_sort].asks, sizeof j->asks);
        j->memory = s->sorts[j->i_sort].task.memory_bytes;
        commit(s, (stk_sched_event){
                      .kind = STK_EV_TASK_ADDED, .task = s->n_tasks++, .attempt = j->i_sort});
    }
}

/* Waiting times start again: the world has changed. */
static void disturbed(stream *s)
{
    s->starved_ms = s->starved_ms < 0 ? -1 : s->now_ms;
}

static void change_outside(stream *s)
{
    uint32_t n = s->config.host.n, i = below(s, n);
    bool is_whole;
    if (s->now_ms >= s->quiet_ms) {
        for (i = 0; i < n; i++) {
            if (s->outside[i] != 0) {
                s->outside[i] = 0;
                commit(s, (stk_sched_event){.kind = STK_SE_OUTSIDE, .device = i});
                disturbed(s);
            }
        }
        return;
    }
    int32_t own = held(s, i, &is_whole), left = s->devices[i].total_mib - own;
    bool is_free = stk_sched_holder(s->sched, i) == UINT32_MAX;
    int32_t mib = one_in(s, 2)              ? 0
                  : is_free && one_in(s, 2) ? STK_SCHED_ALL
                  : is_whole || left <= 0   ? 0
                                            : (int32_t)below(s, (uint32_t)left + 1);
    if (one_in(s, 4) && mib != s->outside[i]) {
        s->outside[i] = mib;
        commit(s, (stk_sched_event){.kind = STK_SE_OUTSIDE, .device = i, .mib = mib});
        disturbed(s);
    }
}

/* At most one device per run, and never a simulated host's last one. */
static void lose_device(stream *s)
{
    uint32_t i = below(s, s->config.host.n);
    if (s->config.host.n > 1 && one_in(s, 2000) && !s->devices[i].taken) {
        s->devices[i].taken = true;
        commit(s, (stk_sched_event){.kind = STK_SE_GONE, .device = i});
        disturbed(s);
    }
}

static void start(stream *s, const stk_action *a)
{
    job *j = &s->jobs[a->task];
    bool asks = a->i_ask != STK_SCHED_NO_ASK;
    if (asks != (s->sorts[j->i_sort].task.n_asks > 0)) {
        broken(s, "task %u: devices or not?", a->task);
        return;
    }
    if (asks && below(s, 100) < s->busy_percent) {
        commit(s, (stk_sched_event){
                      .kind = STK_SE_BUSY, .task = a->task, .at_ms = s->now_ms + 1 + below(s, 5)});
        disturbed(s);
        return;
    }
    if (asks) {
        check_devices(s, a->task, a);
    }
    commit(s, (stk_sched_event){.kind = STK_EV_TASK_STARTED,
                                .task = a->task,
                                .attempt = a->attempt,
                                .i_ask = a->i_ask,
                                .devices = a->devices});
    j->state = STK_TASK_RUNNING;
    j->attempt = a->attempt;
    j->ready_at = 0;
    j->devices = asks ? a->devices : (stk_devset){0};
    j->share_mib = asks ? j->asks[a->i_ask].share_mib : 0;
    j->end_ms = s->now_ms + 1 + below(s, LONGEST);
    s->n_running++;
    s->n_starts++;
    check_amounts(s);
}

static void act(stream *s, const stk_action *a)
{
    if (a->kind == STK_ACT_START) {
        start(s, a);
    } else if (a->kind == STK_ACT_FAIL) {
        const sort *r = &s->sorts[s->jobs[a->task].i_sort];
        for (uint32_t i = 0; i < r->task.n_asks; i++) {
            stk_pack_host left = {s->devices, s->config.host.n, s->config.host.links};
            if (stk_pack_is_possible(&left, &s->jobs[a->task].asks[i])) {
                broken(s, "task %u is to fail, but alternative %u is there", a->task, i);
            }
        }
        s->jobs[a->task].state = STK_TASK_FAILED;
        commit(s, (stk_sched_event){.kind = STK_EV_TASK_FAILED,
                                    .task = a->task,
                                    .failure = STK_FAIL_RESOURCES,
                                    .is_final = true});
    } else {
        broken(s, "action %d", (int)a->kind);
    }
}

static void grow(job *j, uint32_t n_asks, const stk_sched_retrying *next)
{
    if (next->grows == STK_GROWS_MEMORY) {
        j->memory = next->amount;
    }
    for (uint32_t i = 0; next->grows == STK_GROWS_SHARE && i < n_asks; i++) {
        j->asks[i].share_mib = (j->asks[i].share_mib * 3 + 1) / 2;
    }
}

static void end(stream *s, uint32_t task)
{
    static const stk_failure failures[] = {STK_FAIL_EXIT, STK_FAIL_HOST_OOM, STK_FAIL_DEVICE_OOM,
                                           STK_FAIL_GPU_SHARE, STK_FAIL_LOST};
    job *j = &s->jobs[task];
    s->n_running--;
    if (below(s, 100) >= s->fail_percent) {
        j->state = STK_TASK_SUCCEEDED;
        commit(s, (stk_sched_event){.kind = STK_EV_TASK_SUCCEEDED, .task = task});
        return;
    }
    stk_failure failure = failures[below(s, 5)];
    stk_sched_retrying next;
    bool again = stk_sched_retry(s->sched, task, failure, false, &next);
    commit(s,
           (stk_sched_event){
               .kind = STK_EV_TASK_FAILED, .task = task, .failure = failure, .is_final = !again});
    j->state = again ? STK_TASK_READY : STK_TASK_FAILED;
    if (again) {
        grow(j, s->sorts[j->i_sort].task.n_asks, &next);
        commit(s, (stk_sched_event){.kind = STK_EV_TASK_RETRYING,
                                    .task = task,
                                    .at_ms = s->now_ms + next.delay_ms,
                                    .grows = next.grows});
    }
}

/* --- fairness --- */

/* Which task is ready for longest, and whether that is too long. */
static void check_fairness(stream *s)
{
    uint32_t oldest = UINT32_MAX, n_as_old = 0;
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        job *j = &s->jobs[i];
        bool is_ready = stk_sched_state(s->sched, i) == STK_TASK_READY;
        j->ready_at = !is_ready ? 0 : j->ready_at == 0 ? s->round : j->ready_at;
        if (is_ready && (oldest == UINT32_MAX || j->ready_at < s->jobs[oldest].ready_at)) {
            oldest = i;
            n_as_old = 0;
        }
        n_as_old += is_ready && j->ready_at == s->jobs[oldest].ready_at;
    }
    if (oldest == UINT32_MAX || n_as_old > 1 || oldest != s->oldest) {
        s->oldest = n_as_old == 1 ? oldest : UINT32_MAX;
        s->oldest_starts = s->n_starts;
        s->starved_ms = -1;
        return;
    }
    if (s->n_starts - s->oldest_starts >= STK_SCHED_PATIENCE && s->starved_ms < 0) {
        s->starved_ms = s->now_ms;
        s->n_passed++;
    }
    bool is_quiet = s->now_ms >= s->quiet_ms && s->busy_percent == 0;
    if (is_quiet && s->starved_ms >= 0 && s->now_ms > s->starved_ms + LONGEST) {
        broken(s, "task %u starves since %" PRId64 " ms", oldest, s->starved_ms);
    }
}

/* For every ready task there is a reason why it doesn't run. */
static void check_reasons(stream *s)
{
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        if (stk_sched_state(s->sched, i) == STK_TASK_READY && s->busy_percent == 0 &&
            stk_sched_explain(s->sched, i).what == STK_WHY_NONE) {
            broken(s, "task %u is ready and waits for nothing", i);
        }
    }
}

static int64_t next_end(const stream *s)
{
    int64_t at = -1;
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        const job *j = &s->jobs[i];
        at = j->state == STK_TASK_RUNNING && (at < 0 || j->end_ms < at) ? j->end_ms : at;
    }
    return at;
}

/* Asks and acts until there is nothing to do; false: the run is over. */
static bool decide(stream *s, int64_t *ret_wake_ms)
{
    stk_action actions[ACTIONS];
    uint32_t n = 1;
    while (n > 0 && !s->is_broken) {
        stk_action again[ACTIONS] = {0};
        uint32_t n_again;
        int64_t wake;
        memset(actions, 0, sizeof actions);
        (void)stk_sched_next(s->sched, s->now_ms, actions, ACTIONS, &n, ret_wake_ms);
        (void)stk_sched_next(s->sched, s->now_ms, again, ACTIONS, &n_again, &wake);
        if (n != n_again || wake != *ret_wake_ms) {
            broken(s, "asked twice, the scheduler said two things");
        }
        for (uint32_t i = 0; i < n && !s->is_broken; i++) {
            if (memcmp(&actions[i].devices, &again[i].devices, sizeof again[i].devices) != 0 ||
                actions[i].task != again[i].task) {
                broken(s, "asked twice, the scheduler said two things");
            }
            if (actions[i].kind == STK_ACT_END) {
                return s->n_tasks < s->n_most;
            }
            act(s, &actions[i]);
        }
    }
    check_reasons(s);
    return true;
}

static void run(stream *s)
{
    draw(s);
    s->sched = stk_sched_new(&s->config);
    s->oldest = UINT32_MAX;
    s->starved_ms = -1;
    bool is_going = true;
    for (s->round = 1; is_going && !s->is_broken; s->round++) {
        int64_t wake_ms = -1;
        change_outside(s);
        lose_device(s);
        add_work(s);
        is_going = decide(s, &wake_ms);
        check_fairness(s);
        if (s->round % 64 == 0) {
            check_fold(s);
        }
        int64_t at = next_end(s);
        s->now_ms = at >= 0 && at <= s->now_ms + 1 ? at : s->now_ms + 1;
        for (uint32_t i = 0; i < s->n_tasks; i++) {
            if (s->jobs[i].state == STK_TASK_RUNNING && s->jobs[i].end_ms <= s->now_ms) {
                end(s, i);
            }
        }
        if (s->round > 200000) {
            broken(s, "the run doesn't end");
        }
    }
    if (!s->is_broken) {
        check_fold(s);
    }
    stk_sched_free(s->sched);
}

int main(int argc, char **argv)
{
    const char *seeds = getenv("STOKER_SIM_SEEDS");
    uint64_t first = 1, last = seeds != NULL ? strtoull(seeds, NULL, 10) : 1000;
    uint64_t n_failed = 0, n_starts = 0, n_passed = 0;
    bool is_verbose = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0) {
            is_verbose = true;
        } else if (strcmp(argv[i], "--seeds") != 0 || ++i == argc ||
                   sscanf(argv[i], "%" SCNu64 "..%" SCNu64, &first, &last) != 2) {
            (void)fprintf(stderr, "usage: stream [--seeds A..B] [-v]\n");
            return 2;
        }
    }
    stream *s = malloc(sizeof *s);
    for (uint64_t seed = first; seed <= last && n_failed < 10 && s != NULL; seed++) {
        memset(s, 0, sizeof *s);
        s->seed = seed;
        s->random = seed * 0x9E3779B97F4A7C15u;
        s->is_verbose = is_verbose;
        run(s);
        n_starts += s->n_starts;
        n_passed += s->n_passed;
        if (s->is_broken) {
            n_failed++;
            printf("seed %" PRIu64 ": %s\n  repeat: build/tests/sim/stream --seeds %" PRIu64
                   "..%" PRIu64 " -v\n",
                   seed, s->why, seed, seed);
        }
    }
    free(s);
    printf("%" PRIu64 " streams: %" PRIu64 " starts, %" PRIu64 " tasks waited long enough to be "
           "first\n%" PRIu64 " failed\n",
           last - first + 1, n_starts, n_passed, n_failed);
    return n_failed > 0 || n_passed == 0 ? 1 : 0;
}
