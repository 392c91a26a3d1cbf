/* The driver: what the backend calls, and the turns. */
#include "away/slurm/slurm_driver.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/slurm/slurm.h"
#include "away/slurm/slurm_pilot.h"
#include "base/text.h"
#include "sys/clock.h"

enum {
    POLL_MS = 2000,
    AGAIN_MS = 5000,
    LOG_MS = 500,
    END_SLACK_MS = 20000,
    WAITING_FIRST_MS = 100
};

int64_t stk_slurm_now_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

void stk_slurm_report(slurm_driver *d, slurm_job *job, const stk_remote_report *report)
{
    if (job->leads != NULL) {
        stk_slurm_pilot_heard(d, job, report);
    } else {
        d->base.say(d->base.say_arg, report);
    }
}

void stk_slurm_say(slurm_driver *d, slurm_job *job, stk_remote_state state, const char *text)
{
    stk_remote_report r = {
        .state = state, .id = job->spec->id, .attempt = job->spec->attempt, .exit_status = -1};
    (void)snprintf(r.text, sizeof r.text, "%s", text);
    stk_slurm_report(d, job, &r);
}

void stk_slurm_fail(slurm_driver *d, slurm_job *job, stk_failure failure, const char *fmt, ...)
{
    stk_remote_report r = {.state = STK_REMOTE_FAILED,
                           .id = job->spec->id,
                           .attempt = job->spec->attempt,
                           .exit_status = -1,
                           .failure = failure};
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(r.text, sizeof r.text, fmt, args);
    va_end(args);
    job->state = SLURM_DONE;
    stk_slurm_report(d, job, &r);
}

void stk_slurm_live(slurm_driver *d, slurm_job *job, const char *id)
{
    (void)snprintf(job->id, sizeof job->id, "%s", id);
    job->state = SLURM_LIVE;
    job->must_look = false;
    job->since_ms = stk_slurm_now_ms();
    d->next_look_ms = MIN(d->next_look_ms, job->since_ms + d->poll_ms / 2);
}

void stk_slurm_is_unanswered(slurm_driver *d, const stk_err *why)
{
    bool may_pass = stk_slurm_may_pass(why);
    if (may_pass) {
        d->again_ms = stk_slurm_now_ms() + AGAIN_MS;
    }
    for (uint32_t i = 0; i < d->n_jobs && !d->is_away; i++) {
        if (d->jobs[i]->state != SLURM_DONE && d->jobs[i]->leads == NULL) {
            char text[900];
            (void)snprintf(text, sizeof text, "Slurm's %s, and is asked again: %s",
                           may_pass ? "controller is away" : "queue can't be read", why->text);
            stk_slurm_say(d, d->jobs[i], STK_REMOTE_NOTE, text);
            d->is_away = true;
        }
    }
}

bool stk_slurm_wait_out(slurm_driver *d, const stk_err *why)
{
    if (!stk_slurm_may_pass(why)) {
        return false;
    }
    stk_slurm_is_unanswered(d, why);
    return true;
}

static slurm_job *find_job_of(slurm_driver *d, uint32_t id)
{
    for (uint32_t i = d->n_jobs; i-- > 0;) {
        if (d->jobs[i]->spec->id == id && d->jobs[i]->leads == NULL) {
            return d->jobs[i];
        }
    }
    return NULL;
}

static void free_job(slurm_driver *d, slurm_job *job)
{
    stk_slurm_without_job(d, job);
    free(job->log_at);
    free(job);
}

bool stk_slurm_is_fresh(const slurm_job *job)
{
    return job->state == SLURM_NEW && !job->must_look && job->doubt == DOUBT_NONE;
}

int stk_slurm_add_pilot_job(slurm_driver *d, slurm_pilot *p)
{
    STK_TRY(stk_array_reserve(&d->jobs, &d->cap_jobs, (uint64_t)d->n_jobs + 1, sizeof *d->jobs));
    slurm_job *job = calloc(1, sizeof *job);
    STK_TRY(stk_err_if_null(job, NULL));
    job->log_at = calloc(1, sizeof *job->log_at);
    if (job->log_at == NULL) {
        free_job(d, job);
        return STK_E_NOMEM;
    }
    job->spec = &p->spec;
    job->leads = p;
    p->job = job;
    d->jobs[d->n_jobs++] = job;
    return 0;
}

void stk_slurm_drop_pilot_job(slurm_driver *d, slurm_pilot *p)
{
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i] == p->job) {
            free_job(d, p->job);
            d->jobs[i] = d->jobs[--d->n_jobs];
            return;
        }
    }
}

/* --- what the backend calls --- */

static int submit_job(stk_driver *self, const stk_remote_job *spec, stk_err *err)
{
    slurm_driver *d = (slurm_driver *)self;
    STK_TRY(stk_array_reserve(&d->jobs, &d->cap_jobs, (uint64_t)d->n_jobs + 1, sizeof *d->jobs));
    slurm_job *job = calloc(1, sizeof *job);
    STK_TRY(stk_err_if_null(job, err));
    job->spec = spec;
    job->must_look = spec->look || spec->attach;
    job->came_ms = stk_slurm_now_ms();
    job->log_at = calloc(spec->nodes, sizeof *job->log_at);
    int rc = job->log_at == NULL ? stk_err_nomem(err) : stk_slurm_form(d, job, err);
    if (rc == 0) {
        rc = stk_slurm_pilot_form(d, job, err);
    }
    if (rc < 0) {
        free_job(d, job);
        return rc;
    }
    d->jobs[d->n_jobs++] = job;
    return 0;
}

static void stop(stk_driver *self, uint32_t id, int64_t grace_ms, stk_failure why)
{
    slurm_driver *d = (slurm_driver *)self;
    slurm_job *job = find_job_of(d, id);
    int64_t now = stk_slurm_now_ms();
    if (job == NULL || job->state == SLURM_DONE) {
        return;
    }
    if (stk_slurm_is_fresh(job)) {
        stk_slurm_fail(d, job, why, "stopped before its submission");
        return;
    }
    if (!job->is_stopped) { /* Slurm would start what waits in the place of what ends */
        job->stop_ms = job->is_running ? now + WAITING_FIRST_MS : now;
    }
    job->is_stopped = true;
    job->why = why;
    if (job->state == SLURM_FLIES) {
        stk_slurm_pilot_stop(d, job, grace_ms);
    }
    int64_t kill_ms = grace_ms <= 0 ? now : now + grace_ms + END_SLACK_MS;
    job->kill_ms = job->kill_ms == 0 ? kill_ms : MIN(job->kill_ms, kill_ms);
}

static void forget(stk_driver *self, uint32_t id)
{
    slurm_driver *d = (slurm_driver *)self;
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i]->spec->id == id && d->jobs[i]->leads == NULL) {
            if (d->jobs[i]->pilot != NULL) {
                stk_slurm_pilot_leaves(d->jobs[i]);
            }
            free_job(d, d->jobs[i]);
            d->jobs[i] = d->jobs[--d->n_jobs];
            return;
        }
    }
}

/* Returns when the next log is due; INT64_MAX: none is. */
static int64_t follow_logs(slurm_driver *d)
{
    int64_t next = INT64_MAX, now = stk_slurm_now_ms();
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        slurm_job *job = d->jobs[i];
        bool is_there = job->state == SLURM_LIVE || job->state == SLURM_FLIES;
        if (!is_there || !job->is_running || job->leads != NULL) {
            continue;
        }
        if (now >= job->log_due_ms) {
            stk_slurm_follow_logs(d, job);
            job->log_due_ms = now + LOG_MS;
        }
        next = MIN(next, job->log_due_ms);
    }
    return next;
}

bool stk_slurm_has_in(const slurm_driver *d, slurm_state state)
{
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i]->state == state) {
            return true;
        }
    }
    return false;
}

/* Asks what is most urgent; returns when something will be due if nothing is. */
static int64_t ask_next(slurm_driver *d)
{
    static int64_t (*const asks[])(slurm_driver *) = {stk_slurm_stop_due,   stk_slurm_find_jobs,
                                                      stk_slurm_ask_doubts, stk_slurm_look,
                                                      stk_slurm_ask_gpus,   stk_slurm_submit_some};
    int64_t next = INT64_MAX;
    if (stk_slurm_now_ms() < d->again_ms) {
        return stk_slurm_has_in(d, SLURM_LIVE) || stk_slurm_has_in(d, SLURM_NEW) ? d->again_ms
                                                                                 : next;
    }
    for (size_t i = 0; i < sizeof asks / sizeof *asks && !stk_slurm_is_asking(d); i++) {
        next = MIN(next, asks[i](d));
    }
    return next;
}

static int take_turn(stk_driver *self, int wake_fd, int64_t timeout_ms, stk_err *err)
{
    slurm_driver *d = (slurm_driver *)self;
    int64_t due = stk_slurm_now_ms() + timeout_ms;
    (void)err;
    due = MIN(due, stk_slurm_pilots_turn(d));
    if (!stk_slurm_is_asking(d)) {
        due = MIN(due, ask_next(d));
    }
    due = MIN(due, follow_logs(d));
    stk_slurm_await_answer(d, wake_fd, due);
    return 0;
}

static void close_driver(stk_driver *self)
{
    slurm_driver *d = (slurm_driver *)self;
    stk_slurm_ask_no_more(d);
    stk_slurm_pilots_close(d);
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        free_job(d, d->jobs[i]);
    }
    stk_map_done(&d->flown);
    free(d->jobs);
    stk_map_done(&d->children);
    stk_arena_free(d->lists_arena);
    stk_arena_free(d->gpus_arena);
    stk_arena_free(d->arena);
    free(d);
}

int stk_slurm_open(const stk_driver_config *config, stk_driver **ret, stk_err *err)
{
    static const stk_driver_ops ops = {.name = "slurm",
                                       .submit = submit_job,
                                       .stop = stop,
                                       .forget = forget,
                                       .turn = take_turn,
                                       .close = close_driver};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    static const char *const version[] = {"sbatch", "--version", NULL};
    stk_slurm_options options;
    const char *said = NULL;
    *ret = NULL;
    STK_TRY(stk_slurm_options_read(NULL, config->options, NULL, arena, &options, err));
    STK_TRY(stk_slurm_call(version, NULL, NULL, arena, &said, err));
    slurm_driver *d = calloc(1, sizeof *d);
    STK_TRY(stk_err_if_null(d, err));
    d->base.ops = &ops;
    d->config = *config;
    d->arena = stk_arena_new(0);
    if (d->arena == NULL) {
        free(d);
        return stk_err_nomem(err);
    }
    d->poll_ms = (int64_t)(stk_slurm_number(&options, "poll", POLL_MS / 1000.0) * 1000);
    d->poll_ms = MAX(d->poll_ms, 50);
    *ret = &d->base;
    return 0;
}

static int print_script(const stk_driver_config *config, const stk_remote_job *job,
                        stk_arena *arena, const char ***ret_documents, uint32_t *ret_n,
                        stk_err *err)
{
    const char **documents = stk_arena_array(arena, 2, sizeof *documents);
    STK_TRY(stk_err_if_null(documents, err));
    stk_slurm_options options;
    STK_TRY(stk_slurm_options_read(job->step, job->options, config->options, arena, &options, err));
    if (stk_slurm_may_fly(job, &options)) {
        const char *name = stk_arena_printf(arena, "%.10s-pilot-(number)", job->name);
        const char *key = stk_arena_printf(arena, "runs/%s/pilots/%s", job->run, name);
        STK_TRY(stk_err_if_null(key, err));
        uint32_t most = (uint32_t)stk_slurm_number(&options, "pilot_gpus", 0);
        bool fills = job->is_many && (stk_slurm_load_of(job).gpu_bytes == 0 || most > 0);
        uint32_t wanted = fills ? UINT32_MAX : 0;
        most = most == 0 ? UINT32_MAX : most;
        stk_slurm_flight flight = stk_slurm_flight_of(job, &options, wanted, most);
        flight.name = name;
        flight.key = key;
        STK_TRY(stk_slurm_pilot_script(config, job, &flight, arena, &documents[0], err));
    } else if (job->is_many && stk_slurm_array_min(job, &options) > 0) {
        stk_remote_array array;
        STK_TRY(stk_remote_array_preview(job->run, job->name, arena, &array, err));
        STK_TRY(stk_slurm_array_script(config, job, &array, 0, arena, &documents[0], err));
    } else {
        STK_TRY(stk_slurm_script(config, job, arena, &documents[0], err));
    }
    *ret_documents = documents;
    *ret_n = 1;
    return 0;
}

const stk_driver_kind stk_driver_slurm = {
    .name = "slurm",
    .open = stk_slurm_open,
    .manifest = print_script,
    .check = stk_slurm_check,
    .starts_in_share = true,
};
