/* The backend's operations for exec's thread. They hold the lock only for moments; the workers and
 * the driver's thread make all requests. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <time.h>
#include <unistd.h>

#include "away/remote/remote_live.h"
#include "away/remote/remote_private.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { SLOTS = 1024, RETRY_MS = 1000 };

int64_t stk_remote_now_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

static void ring(int fd)
{
    uint64_t one = 1;
    (void)!write(fd, &one, sizeof one);
}

void stk_remote_ring(remote_backend *b)
{
    ring(b->ready_fd);
}

/* --- reports --- */

/* Makes room for `more` reports besides the room for ends. */
static bool make_report_room(remote_backend *b, size_t more)
{
    struct remote_reports *q = &b->reports;
    size_t need = q->n + b->n_untold + more, cap = MAX(q->cap, 16);
    while (cap < need) {
        cap *= 2;
    }
    stk_report *items = cap == q->cap ? q->items : reallocarray(q->items, cap, sizeof *items);
    if (items == NULL) {
        return false;
    }
    q->items = items;
    q->cap = cap;
    return true;
}

bool stk_remote_expect_end(remote_backend *b)
{
    bool has_room = make_report_room(b, 1);
    b->n_untold += has_room;
    return has_room;
}

/* NULL: out of memory, which can't happen for an end. */
static stk_report *new_report(remote_backend *b, const remote_task *t, stk_report_kind kind)
{
    struct remote_reports *q = &b->reports;
    if (kind != STK_REPORT_ENDED && !make_report_room(b, 1)) {
        return NULL;
    }
    if (q->first + q->n == q->cap) {
        memmove(q->items, q->items + q->first, q->n * sizeof *q->items);
        q->first = 0;
    }
    stk_report *r = &q->items[q->first + q->n++];
    *r = (stk_report){.kind = kind,
                      .id = t->job.id,
                      .attempt = t->job.attempt,
                      .pid = -1,
                      .time_ms = stk_clock_wall_ms(&stk_clock_real)};
    ring(b->ready_fd);
    return r;
}

void stk_remote_tell_note(remote_backend *b, const remote_task *t, const char *text)
{
    stk_report *r = new_report(b, t, STK_REPORT_NOTE);
    if (r != NULL) {
        (void)snprintf(r->text, sizeof r->text, "step '%s': %s", t->job.step, text);
    }
}

/* Why it waits, also for the record of the task itself. */
void stk_remote_tell_wait(remote_backend *b, remote_task *t, const char *lead, const char *why)
{
    stk_report *r = new_report(b, t, STK_REPORT_NOTE);
    (void)snprintf(t->reason, sizeof t->reason, "%.255s", why);
    if (r != NULL) {
        (void)snprintf(r->text, sizeof r->text, "step '%s': %s", t->job.step, lead);
        r->why_at = (uint32_t)strlen(r->text);
        (void)snprintf(r->text + r->why_at, sizeof r->text - r->why_at, "%s", why);
    }
}

/* It goes on. An earlier engine may have said why it waits. */
void stk_remote_tell_no_wait(remote_backend *b, remote_task *t)
{
    bool may_be_said = t->reason[0] != '\0' || t->job.look || t->job.attach;
    stk_report *r = may_be_said ? new_report(b, t, STK_REPORT_NOTE) : NULL;
    t->reason[0] = '\0';
    if (r != NULL) {
        r->waits_no_more = true;
    }
}

void stk_remote_tell_started(remote_backend *b, const remote_task *t)
{
    (void)new_report(b, t, STK_REPORT_STARTED);
}

/* Texts of devices outlive the task. */
static const char *keep_word(remote_backend *b, const char *word)
{
    uint64_t at = 0;
    if (word == NULL || stk_map_get(&b->words, word, &at)) {
        return (const char *)(uintptr_t)at;
    }
    char *copy = stk_arena_dup(b->arena, word);
    if (copy != NULL) {
        (void)stk_map_put(&b->words, copy, (uintptr_t)copy);
    }
    return copy;
}

void stk_remote_tell_end(remote_backend *b, remote_task *t, const stk_outcome *outcome)
{
    stk_report *r = new_report(b, t, STK_REPORT_ENDED);
    b->n_untold--;
    r->outcome = *outcome;
    for (uint32_t i = 0; i < r->outcome.n_devices; i++) {
        stk_outcome_device *d = &r->outcome.devices[i];
        d->uuid = keep_word(b, d->uuid);
        d->model = keep_word(b, d->model);
        d->noun = keep_word(b, d->noun);
    }
    r->outcome.other_device = keep_word(b, r->outcome.other_device);
    t->phase = REMOTE_TOLD;
}

/* --- tasks --- */

remote_task *stk_remote_find(remote_backend *b, uint32_t id)
{
    remote_task *t = b->table[id % b->n_slots];
    while (t != NULL && t->job.id != id) {
        t = t->same_slot;
    }
    return t;
}

static void table_remove(remote_backend *b, remote_task *t)
{
    for (remote_task **at = &b->table[t->job.id % b->n_slots]; *at != NULL;
         at = &(*at)->same_slot) {
        if (*at == t) {
            *at = t->same_slot;
            b->n_tasks--;
            return;
        }
    }
}

void stk_remote_command(remote_backend *b, remote_verb verb, remote_task *t)
{
    remote_command *c = &t->commands[verb];
    bool is_queued = c->is_queued; /* a repeated stop */
    *c = (remote_command){.next = c->next,
                          .task = t,
                          .verb = verb,
                          .is_queued = true,
                          .id = t->job.id,
                          .grace_ms = t->stop_grace_ms,
                          .why = t->stop_why};
    if (!is_queued) {
        c->next = NULL;
        *b->commands_end = c;
        b->commands_end = &c->next;
    }
    ring(b->wake_fd);
}

/* --- the workers --- */

static remote_task *take_work(remote_backend *b, int64_t *ret_due_ms)
{
    int64_t now = stk_remote_now_ms();
    *ret_due_ms = INT64_MAX;
    for (remote_task **at = &b->queue; *at != NULL; at = &(*at)->next) {
        remote_task *t = *at;
        if (t->has_worker) { /* its worker checks again */
            continue;
        }
        if (t->due_ms <= now) {
            *at = t->next;
            if (b->queue_end == &t->next) {
                b->queue_end = at;
            }
            t->next = NULL;
            t->is_queued = false;
            return t;
        }
        if (t->due_ms < *ret_due_ms) {
            *ret_due_ms = t->due_ms;
        }
    }
    return NULL;
}

static void wait_for_work(remote_backend *b, int64_t due_ms)
{
    int64_t ms = MIN(due_ms - stk_remote_now_ms(), 60000);
    struct timespec until = stk_clock_after(MAX(ms, 1));
    b->n_idle++;
    (void)pthread_cond_timedwait(&b->work, &b->lock, &until);
    b->n_idle--;
}

void stk_remote_drop(remote_task *t)
{
    if (t->has_worker) {
        t->is_dropped = true;
    } else {
        stk_remote_task_free(t);
    }
}

void stk_remote_give(remote_backend *b, remote_task *t)
{
    t->phase = REMOTE_WITH_DRIVER;
    t->was_given = true;
    stk_remote_command(b, REMOTE_SUBMIT, t);
    if (t->stop_wanted) {
        stk_remote_command(b, REMOTE_STOP, t);
    }
}

/* After staging, with the lock. */
static void staged(remote_backend *b, remote_task *t, int rc, const stk_err *err)
{
    char text[1200];
    if (b->broken.code != 0) {
        stk_remote_end_now(b, t, STK_FAIL_START,
                           stk_err_format(&b->broken, text, (int)sizeof text));
    } else if (rc == 0) {
        stk_remote_no_trouble(b, t);
        t->job.attach = (t->job.attach && t->is_begun) || t->only_to_end;
        stk_remote_give(b, t);
    } else if (!stk_remote_wait_out(b, t, err)) {
        stk_failure failure = stk_share_is_at_fault(err->code) ? STK_FAIL_STORE : STK_FAIL_START;
        (void)snprintf(text, sizeof text, "can't put its inputs into the share: %s", err->text);
        stk_remote_end_now(b, t, failure, text);
    }
}

static void collected(remote_backend *b, remote_task *t, int rc, const stk_outcome *o,
                      int64_t again_ms, const stk_err *err)
{
    char text[1200];
    if (rc == STK_E_BUSY) {
        stk_remote_queue(b, t, REMOTE_COLLECTING, stk_remote_now_ms() + again_ms);
    } else if (rc == 0) {
        stk_remote_no_trouble(b, t);
        stk_remote_tell_end(b, t, o);
    } else if (!stk_remote_wait_out(b, t, err)) {
        (void)snprintf(text, sizeof text, "can't fetch its results from the share: %s", err->text);
        stk_remote_end_now(b, t, STK_FAIL_LOST, text);
    }
}

/* Removes the list first, because a list must not name missing checkpoints. The run's removal takes
 * what an ending engine leaves. */
static void drop_next(remote_backend *b)
{
    remote_drop *d = b->drops;
    char list[STK_SHARE_KEY_MAX + 8];
    b->drops = d->next;
    pthread_mutex_unlock(&b->lock);
    (void)snprintf(list, sizeof list, "%s.json", d->at);
    if (stk_share_delete(b->share, list, NULL) == 0) {
        (void)stk_share_delete_all(b->share, d->at, NULL);
    }
    free(d);
    pthread_mutex_lock(&b->lock);
    if (--b->n_drops == 0) {
        pthread_cond_broadcast(&b->dropped);
    }
}

static void *work_off(void *arg)
{
    remote_backend *b = arg;
    remote_worker w = {.b = b};
    pthread_mutex_lock(&b->lock);
    while (!b->is_closing) {
        int64_t due_ms = INT64_MAX;
        remote_task *t = take_work(b, &due_ms);
        if (t == NULL && b->drops != NULL) {
            drop_next(b);
            continue;
        }
        if (t == NULL && stk_remote_now_ms() >= b->live_due_ms) {
            stk_remote_look_live(b);
            continue;
        }
        if (t == NULL) {
            wait_for_work(b, MIN(due_ms, b->live_due_ms));
            continue;
        }
        remote_phase phase = t->phase;
        bool needs_nothing = phase == REMOTE_STAGING && t->only_to_end;
        stk_err err = {0};
        stk_outcome o = {0};
        int64_t again_ms = RETRY_MS;
        t->has_worker = true;
        pthread_mutex_unlock(&b->lock);
        int rc = 0;
        if (!needs_nothing && phase == REMOTE_STAGING) {
            rc = stk_remote_stage(&w, t, &err);
        } else if (!needs_nothing) {
            rc = stk_remote_collect(&w, t, &o, &again_ms, &err);
        }
        pthread_mutex_lock(&b->lock);
        t->has_worker = false;
        if (t->is_dropped) {
            stk_remote_task_free(t);
        } else if (t->phase == phase && phase == REMOTE_STAGING && !t->is_left) {
            staged(b, t, rc, &err);
        } else if (t->phase == phase && phase == REMOTE_COLLECTING) {
            collected(b, t, rc, &o, again_ms, &err);
        }
    }
    pthread_mutex_unlock(&b->lock);
    stk_store_close(w.store);
    return NULL;
}

static void call_worker(remote_backend *b)
{
    if (b->n_idle == 0 && b->n_workers < REMOTE_WORKERS && !b->is_closing &&
        pthread_create(&b->workers[b->n_workers], NULL, work_off, b) == 0) {
        b->n_workers++;
    }
    pthread_cond_signal(&b->work);
}

void stk_remote_queue(remote_backend *b, remote_task *t, remote_phase phase, int64_t due_ms)
{
    t->phase = phase;
    t->due_ms = due_ms;
    t->is_queued = true;
    t->next = NULL;
    *b->queue_end = t;
    b->queue_end = &t->next;
    call_worker(b);
}

/* --- operations, on exec's thread --- */

static int start_driver(remote_backend *b, stk_err *err)
{
    if (b->has_driver_thread) {
        return 0;
    }
    if (b->share == NULL) {
        STK_TRY(stk_share_open(b->config.share_url, &b->share, err));
    }
    if (b->driver == NULL) {
        STK_TRY(b->config.kind->open(&b->config.driver, &b->driver, err));
    }
    int sys = pthread_create(&b->driver_thread, NULL, stk_remote_drive, b);
    b->has_driver_thread = sys == 0;
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "starting a thread");
    }
    return 0;
}

static int op_start(stk_backend *self, stk_job *job, stk_err *err)
{
    remote_backend *b = (remote_backend *)self;
    remote_task *t = NULL;
    stk_lease_drop(&job->lease); /* it uses no device of this machine */
    STK_TRY(start_driver(b, err));
    STK_TRY(stk_remote_task_new(b, job, &t, err));
    int rc = 0;
    pthread_mutex_lock(&b->lock);
    if (b->broken.code != 0) {
        *err = b->broken;
        rc = err->code;
    } else if (stk_remote_find(b, job->id) != NULL) {
        rc = stk_err_set(err, STK_E_BUG, "step '%s': its task %u already runs", job->step, job->id);
    } else if (!stk_remote_expect_end(b)) {
        rc = stk_err_nomem(err);
    }
    if (rc == 0) {
        t->same_slot = b->table[job->id % b->n_slots];
        b->table[job->id % b->n_slots] = t;
        b->n_tasks++;
        stk_remote_queue(b, t, REMOTE_STAGING, 0);
    }
    pthread_mutex_unlock(&b->lock);
    if (rc < 0) {
        stk_remote_task_free(t);
    }
    return rc;
}

static void op_stop(stk_backend *self, uint32_t id, int64_t grace_ms, stk_failure why)
{
    remote_backend *b = (remote_backend *)self;
    pthread_mutex_lock(&b->lock);
    remote_task *t = stk_remote_find(b, id);
    bool again = t != NULL && t->stop_wanted && grace_ms >= t->stop_grace_ms;
    if (t != NULL && t->phase != REMOTE_TOLD && !again) {
        t->stop_wanted = true;
        t->stop_why = why;
        t->stop_grace_ms = grace_ms;
        if (t->phase == REMOTE_WITH_DRIVER) {
            stk_remote_command(b, REMOTE_STOP, t);
        } else {
            stk_remote_stop_waiting(b, t);
        }
    }
    pthread_mutex_unlock(&b->lock);
}

static bool op_leave(stk_backend *self, uint32_t id)
{
    remote_backend *b = (remote_backend *)self;
    pthread_mutex_lock(&b->lock);
    remote_task *t = stk_remote_find(b, id);
    bool is_there = t != NULL && (t->was_given || t->job.look);
    if (t != NULL) {
        t->is_left = !is_there;
    }
    pthread_mutex_unlock(&b->lock);
    return is_there;
}

static bool op_next(stk_backend *self, stk_report *ret_report)
{
    remote_backend *b = (remote_backend *)self;
    pthread_mutex_lock(&b->lock);
    stk_remote_stop_due(b);
    struct remote_reports *q = &b->reports;
    bool any = q->n > 0;
    if (any) {
        *ret_report = q->items[q->first++];
        q->n--;
        if (q->n == 0) {
            q->first = 0;
        }
        remote_task *t = stk_remote_find(b, ret_report->id);
        if (t != NULL && ret_report->kind == STK_REPORT_ENDED) {
            t->next = b->told;
            b->told = t;
            table_remove(b, t);
        }
    } else {
        uint64_t count;
        (void)!read(b->ready_fd, &count, sizeof count);
    }
    pthread_mutex_unlock(&b->lock);
    return any;
}

/* Has a worker remove the objects below a key, and "<at>.json" before them. */
static void drop_later(remote_backend *b, const char *at)
{
    remote_drop *d = calloc(1, sizeof *d);
    if (d != NULL) {
        (void)snprintf(d->at, sizeof d->at, "%s", at);
        d->next = b->drops;
        b->drops = d;
        b->n_drops++;
        call_worker(b);
    }
}

/* The reported ends are on record, so the tasks aren't needed. */
static void op_recorded(stk_backend *self)
{
    remote_backend *b = (remote_backend *)self;
    pthread_mutex_lock(&b->lock);
    while (b->told != NULL) {
        remote_task *t = b->told;
        b->told = t->next;
        if (t->has_live) {
            char at[STK_SHARE_KEY_MAX];
            stk_live_key(t->key, at);
            drop_later(b, at);
        }
        if (t->was_given) {
            stk_remote_command(b, REMOTE_FORGET, t);
        } else {
            stk_remote_drop(t);
        }
    }
    pthread_mutex_unlock(&b->lock);
}

static void op_drop_checkpoints(stk_backend *self, uint32_t id)
{
    remote_backend *b = (remote_backend *)self;
    pthread_mutex_lock(&b->lock);
    const remote_task *t = b->told;
    while (t != NULL && t->job.id != id) {
        t = t->next;
    }
    if (t != NULL && t->has_checkpoints) {
        char at[STK_SHARE_KEY_MAX];
        (void)snprintf(at, sizeof at, "%.*s/checkpoints", (int)(strrchr(t->key, '/') - t->key),
                       t->key);
        drop_later(b, at);
    }
    pthread_mutex_unlock(&b->lock);
}

static int op_fd(const stk_backend *self)
{
    return ((const remote_backend *)self)->ready_fd;
}

static int64_t op_wait_ms(const stk_backend *self)
{
    remote_backend *b = (remote_backend *)(uintptr_t)self;
    pthread_mutex_lock(&b->lock);
    int64_t left = -1;
    if (b->stop_due_ms != 0) {
        left = MAX(b->stop_due_ms - stk_remote_now_ms(), 0);
    }
    pthread_mutex_unlock(&b->lock);
    return left;
}

static bool op_usage(stk_backend *self, uint32_t id, int64_t *ret_memory_bytes, double *ret_cpus)
{
    (void)self;
    (void)id;
    (void)ret_memory_bytes;
    (void)ret_cpus;
    return false;
}

static void free_tasks(remote_backend *b)
{
    for (remote_command *c = b->commands, *next; c != NULL; c = next) {
        next = c->next; /* of another task, because a task's last command is FORGET */
        if (c->verb == REMOTE_FORGET) {
            stk_remote_task_free(c->task);
        }
    }
    for (uint32_t i = 0; i < b->n_slots; i++) {
        for (remote_task *t = b->table[i], *next; t != NULL; t = next) {
            next = t->same_slot;
            stk_remote_task_free(t);
        }
    }
    for (remote_task *t = b->told, *next; t != NULL; t = next) {
        next = t->next;
        stk_remote_task_free(t);
    }
    for (remote_drop *d = b->drops, *next; d != NULL; d = next) {
        next = d->next;
        free(d);
    }
}

static void wait_for_drops(remote_backend *b)
{
    struct timespec until = stk_clock_after(REMOTE_DROP_MS);
    int sys = 0;
    while (b->n_drops > 0 && !b->has_trouble && sys == 0) {
        sys = pthread_cond_timedwait(&b->dropped, &b->lock, &until);
    }
}

/* Running jobs continue without us; `stoker resume` finds them. */
static void op_close(stk_backend *self)
{
    remote_backend *b = (remote_backend *)self;
    pthread_mutex_lock(&b->lock);
    wait_for_drops(b);
    b->is_closing = true;
    if (b->share != NULL) { /* the resuming engine begins running work again */
        stk_share_cancel(b->share);
    }
    if (b->live_share != NULL) {
        stk_share_cancel(b->live_share);
    }
    pthread_cond_broadcast(&b->work);
    ring(b->wake_fd);
    pthread_mutex_unlock(&b->lock);
    for (uint32_t i = 0; i < b->n_workers; i++) {
        (void)pthread_join(b->workers[i], NULL);
    }
    if (b->has_driver_thread) {
        (void)pthread_join(b->driver_thread, NULL);
    }
    if (b->driver != NULL) {
        b->driver->ops->close(b->driver);
    }
    free_tasks(b);
    stk_share_close(b->share);
    stk_share_close(b->live_share);
    stk_map_done(&b->known);
    stk_map_done(&b->words);
    stk_file_close(&b->ready_fd);
    stk_file_close(&b->wake_fd);
    (void)pthread_cond_destroy(&b->work);
    (void)pthread_cond_destroy(&b->dropped);
    (void)pthread_mutex_destroy(&b->lock);
    stk_arena_free(b->arena);
    free(b->reports.items);
    free(b->table);
    free(b);
}

static const stk_backend_ops ops = {.name = "remote",
                                    .start = op_start,
                                    .stop = op_stop,
                                    .leave = op_leave,
                                    .next = op_next,
                                    .recorded = op_recorded,
                                    .drop_checkpoints = op_drop_checkpoints,
                                    .fd = op_fd,
                                    .wait_ms = op_wait_ms,
                                    .close = op_close,
                                    .usage = op_usage};

typedef struct attempt {
    uint32_t id, attempt;
} attempt;

static int is_its_end(void *arg, const stk_event_row *row)
{
    const attempt *a = arg;
    bool ends = row->kind == STK_EV_TASK_SUCCEEDED || row->kind == STK_EV_TASK_FAILED ||
                row->kind == STK_EV_TASK_CANCELLED;
    return ends && row->task == a->id && row->attempt == a->attempt;
}

/* Called on the closing thread. */
static bool is_recorded(void *arg, const char *run, uint32_t id, uint32_t number)
{
    const remote_backend *b = arg;
    attempt a = {id, number};
    stk_store *store = NULL;
    bool found = stk_store_open(b->store_path, STK_STORE_READONLY, &store, NULL) == 0 &&
                 stk_store_events(store, run, 0, is_its_end, &a, NULL) > 0;
    stk_store_close(store);
    return found;
}

static void copy_config(remote_backend *b, const stk_remote_config *from)
{
    stk_remote_config *c = &b->config;
    *c = *from;
    const char **texts[] = {&c->share_url,
                            &c->run,
                            &c->pipeline,
                            &c->code_digest,
                            &c->code_root,
                            &c->carry_at,
                            &c->driver.stack,
                            &c->driver.options,
                            &c->driver.run,
                            &c->driver.carry,
                            &c->driver.runner_image,
                            &c->driver.carry_volume,
                            &c->driver.store_volume,
                            &c->driver.share_url};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        *texts[i] = stk_arena_dup(b->arena, *texts[i]);
    }
    c->driver.options = stk_text_or(c->driver.options, "{}");
    c->driver.is_recorded = is_recorded;
    c->driver.recorded_arg = b;
    c->carry_at = stk_text_or(c->carry_at, "/stoker");
    b->store_path = stk_arena_dup(b->arena, from->store_path);
}

int stk_remote_open(const stk_remote_config *config, stk_backend **ret_backend, stk_err *err)
{
    remote_backend *b = calloc(1, sizeof *b);
    remote_task **table = calloc(SLOTS, sizeof *table);
    stk_arena *arena = stk_arena_new(0);
    int ready = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (b == NULL || table == NULL || arena == NULL || ready < 0 || wake < 0) {
        int sys = errno;
        free(b);
        free(table);
        stk_arena_free(arena);
        stk_file_close(&ready);
        stk_file_close(&wake);
        return stk_err_sys(err, STK_E_SYS, sys, "opening backend %s", config->kind->name);
    }
    stk_clock_cond_init(&b->work);
    stk_clock_cond_init(&b->dropped);
    (void)pthread_mutex_init(&b->lock, NULL);
    b->base.ops = &ops;
    b->arena = arena;
    b->table = table;
    b->n_slots = SLOTS;
    b->ready_fd = ready;
    b->wake_fd = wake;
    b->queue_end = &b->queue;
    b->commands_end = &b->commands;
    copy_config(b, config);
    stk_remote_share_env(b);
    *ret_backend = &b->base;
    return 0;
}
