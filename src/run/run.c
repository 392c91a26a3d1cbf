/* One run from its options to its end: opens what it needs in order, and closes it. */
#include "run/run.h"

#include <stdlib.h>
#include <unistd.h>

#include "away/remote/remote_log.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "run/run_again.h"
#include "run/run_check.h"
#include "run/run_plan.h"
#include "run/run_python.h"
#include "run/run_tell.h"
#include "sys/clock.h"
#include "sys/file.h"

/* Members in the order of opening; stk_run_close goes backwards. */
struct stk_run {
    stk_run_config config;
    const stk_run_options *options;
    stk_run_plan p; /* the plan, its places and the store */
    char id[40];
    bool is_on_record; /* if not, the run leaves no trace */
    char clone[40];    /* id of the run whose tasks this run takes over */
    int lock_fd;
    stk_clock_anchor anchor;
    stk_clock clock; /* the clock of the run's times */
    stk_backend *backend;
    stk_view *view;
    stk_err trouble;      /* why the view couldn't take an event */
    stk_observe *observe; /* NULL: nobody else hears of the run */
    stk_exec *exec;
};

enum {
    FENCE_MS = 1000, /* between checks whether another machine took over the run, and of tools */
    LOG_MS = 60000   /* most time that the end waits for the share */
};

/* --- calls from exec --- */

static void on_event(void *arg, const stk_event_row *row)
{
    stk_run *e = arg;
    const stk_run_calls *calls = &e->config.calls;
    if (e->p.elsewhere.log != NULL) {
        stk_remote_log_told(e->p.elsewhere.log, row->seq);
    }
    if (e->trouble.code != 0 || stk_view_fold(e->view, row, &e->trouble) < 0) {
        return;
    }
    stk_observe_event(e->observe, row);
    if (calls->on_event != NULL) {
        calls->on_event(calls->arg, row);
    }
}

static int64_t on_tick(void *arg, int64_t now_ms)
{
    stk_run *e = arg;
    const stk_run_calls *calls = &e->config.calls;
    int64_t next = calls->on_tick == NULL ? -1 : calls->on_tick(calls->arg, now_ms);
    stk_observe_say(e->observe);
    if ((e->p.elsewhere.log != NULL || e->observe != NULL) && (next < 0 || next > FENCE_MS)) {
        return FENCE_MS;
    }
    return next;
}

static void on_started(void *arg, uint32_t task, int64_t pid)
{
    const stk_run_calls *calls = &((stk_run *)arg)->config.calls;
    if (calls->on_started != NULL) {
        calls->on_started(calls->arg, task, pid);
    }
}

static void on_signal(void *arg, uint32_t n)
{
    const stk_run_calls *calls = &((stk_run *)arg)->config.calls;
    if (calls->on_signal != NULL) {
        calls->on_signal(calls->arg, n);
    }
}

static int is_still_ours(void *arg, stk_err *err)
{
    stk_run *e = arg;
    if (e->p.elsewhere.log == NULL) {
        return 0;
    }
    return stk_remote_log_check(e->p.elsewhere.log, err);
}

static int open_old_run(stk_run *e, stk_err *err)
{
    const char *text = NULL;
    size_t len = 0;
    STK_SPEC_AUTO old = NULL;
    STK_TRY(stk_store_resolve_run(e->p.store, e->options->resume, e->id, err));
    e->is_on_record = true;
    STK_TRY(stk_store_lock_run(e->p.store, e->id, &e->lock_fd, err));
    STK_TRY(stk_store_run_clock(e->p.store, e->id, &e->anchor, err));
    STK_TRY(stk_store_load_spec(e->p.store, e->id, e->p.arena, &text, &len, err));
    STK_TRY(stk_spec_parse(text, len, &(stk_spec_place){.path = "pipeline"}, &old, err));
    return stk_run_same_steps(e->id, old, e->p.spec, e->options->use_new_code, err);
}

static int open_run(stk_run *e, stk_err *err)
{
    if (e->options->resume != NULL) {
        return open_old_run(e, err);
    }
    if (e->options->clone != NULL) { /* before this run becomes "latest" */
        STK_TRY(stk_store_resolve_run(e->p.store, e->options->clone, e->clone, err));
        if (!stk_spec_grows(e->p.spec)) {
            return stk_err_set(err, STK_E_USAGE,
                               "--clone is for growing graphs; pipeline '%s' reuses finished steps "
                               "from the cache without it",
                               stk_spec_name(e->p.spec));
        }
    }
    size_t len = 0;
    const char *text = stk_spec_text(e->p.spec, &len);
    return stk_store_new_run(e->p.store, e->options->name, stk_spec_name(e->p.spec), text, len,
                             stk_clock_wall_ms(&e->clock), e->id, &e->lock_fd, err);
}

static int open_backend(stk_run *e, stk_err *err)
{
    const char *main_file = stk_run_main_file(e->p.spec, e->p.arena);
    const stk_json *origin = stk_json_read(e->p.arena, stk_spec_origin(e->p.spec));
    if (stk_json_get_text(origin, "python") == NULL && main_file == NULL) {
        /* Python steps of a document (its origin names no Python) import from the document's
         * folder first, as those of a Python file do from the file's. */
        STK_TRY(stk_run_import_from(stk_spec_folder(e->p.spec), err));
    }
    stk_local_config config = {.run = e->id,
                               .server_fd = e->options->server_fd,
                               .python =
                                   stk_run_spec_python(e->p.spec, e->options->python, e->p.arena),
                               .main_file = main_file,
                               .accel = e->p.accel,
                               .clock = &e->clock,
                               .policy = e->p.policy};
    stk_backend *local = NULL;
    STK_TRY(stk_backend_local_open(&config, &local, err));
    return stk_run_elsewhere_open(&e->p.elsewhere, e->options->program, e->p.spec, e->p.store,
                                  e->id, local, &e->backend, err);
}

/* The view of a resumed run begins with the old events. */
static int fold_old(void *arg, const stk_event_row *row)
{
    stk_run *e = arg;
    return stk_view_fold(e->view, row, &e->trouble);
}

static int open_store(stk_run *e, stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    STK_TRY(stk_store_find(".", STK_STORE_CREATE, &path, err));
    STK_TEXT_AUTO beyond = stk_file_exists(path) ? NULL : stk_store_beyond(".");
    STK_TRY(stk_store_open(path, STK_STORE_CREATE, &e->p.store, err));
    if (e->config.calls.on_store != NULL) {
        e->config.calls.on_store(e->config.calls.arg, stk_store_path(e->p.store), beyond);
    }
    return 0;
}

/* Finds the finished steps of a resumed run: they need no place on this host, which may be a
 * smaller one. A run that is only to be ended needs no place for any step. */
static int find_settled(stk_run *e, const bool **ret_settled, stk_err *err)
{
    char run[40];
    STK_VIEW_AUTO view = NULL;
    if (!e->options->cancel) {
        STK_TRY(open_store(e, err));
        STK_TRY(stk_store_resolve_run(e->p.store, e->options->resume, run, err));
        STK_TRY(stk_view_load(e->p.store, run, &view, err));
    }
    return stk_run_settled(e->p.spec, view, e->p.arena, ret_settled, err);
}

/* Finds the steps that the cache will serve, because notes about steps aren't true of these. */
static int find_cached(stk_run *e, const bool **ret_cached, stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    uint32_t n = stk_spec_n_steps(e->p.spec);
    bool *cached = stk_arena_array(e->p.arena, n, sizeof *cached);
    stk_forecast *forecast = NULL;
    STK_TRY(stk_err_if_null(cached, err));
    STK_TRY(stk_store_find(".", STK_STORE_CREATE, &path, err));
    if (!stk_file_exists(path)) {
        return 0;
    }
    if (e->p.store == NULL) {
        STK_TRY(open_store(e, err));
    }
    int rc = stk_forecast_new(e->p.store, e->p.plan, &forecast, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const char *miss = NULL, *note = NULL;
        rc = stk_forecast_step(forecast, i, &cached[i], &miss, &note, err);
    }
    stk_forecast_free(forecast);
    *ret_cached = cached;
    return rc;
}

static int make_plan(stk_run *e, stk_err *err)
{
    const stk_run_options *o = e->options;
    stk_run_plan *p = &e->p;
    const bool *settled = NULL;
    if (o->resume != NULL) {
        STK_TRY(find_settled(e, &settled, err));
    }
    STK_TRY(stk_plan_new_rest(p->spec, &p->capacity, p->peaks, p->policy, settled, &p->plan, err));
    if (settled != NULL || stk_spec_grows(p->spec) || !o->use_cache ||
        stk_plan_n_notes(p->plan) == 0) {
        return 0;
    }
    STK_TRY(find_cached(e, &settled, err));
    if (settled == NULL) {
        return 0;
    }
    stk_plan_free(p->plan);
    p->plan = NULL;
    return stk_plan_new_rest(p->spec, &p->capacity, p->peaks, p->policy, settled, &p->plan, err);
}

static int open_images(stk_run *e, stk_err *err)
{
    const char *logs = stk_arena_printf(e->p.arena, "%s/images", stk_store_path(e->p.store));
    STK_TRY(stk_err_if_null(logs, err));
    STK_TRY(stk_run_images(&e->p.containers, e->p.spec, e->options, logs, e->p.accel, e->p.plan,
                           false, err));
    STK_TRY(stk_run_check_host(&e->p.containers, e->p.spec, e->p.accel, e->p.plan, err));
    STK_TRY(stk_run_elsewhere_images(&e->p.elsewhere, e->p.spec, e->options, logs, e->p.plan, false,
                                     err));
    return stk_run_elsewhere_check(&e->p.elsewhere, e->p.spec, e->p.plan, false, err);
}

/* At the run's end: waits until the share has the record. */
static void close_log(stk_run *e)
{
    stk_err err = {0};
    int rc = stk_remote_log_close(e->p.elsewhere.log, LOG_MS, &err);
    e->p.elsewhere.log = NULL;
    if (rc < 0 && err.code != STK_E_BUSY && e->config.calls.on_trouble != NULL) {
        stk_err_hint(&err, "'stoker resume %s' copies it there", e->id);
        e->config.calls.on_trouble(e->config.calls.arg, &err);
    }
}

/* Opens what the steps need before the first task. */
static int open_to_run(stk_run *e, stk_err *err)
{
    const stk_run_options *o = e->options;
    STK_TRY(stk_run_check_steps(e->p.spec, o, e->p.containers.places, e->p.accel, &e->p.devices,
                                e->p.plan, err));
    if (e->p.store == NULL) {
        STK_TRY(open_store(e, err));
    }
    STK_TRY(open_images(e, err));
    STK_TRY(open_run(e, err));
    STK_TRY(stk_run_code(&e->p.containers, e->p.spec, e->p.plan, e->p.store, e->id,
                         o->resume != NULL, err));
    return stk_run_elsewhere_code(&e->p.elsewhere, e->p.spec,
                                  stk_run_main_file(e->p.spec, e->p.arena), e->p.plan, e->p.store,
                                  err);
}

/* For a run that is only to be ended: no task starts. */
static int open_to_end(stk_run *e, stk_err *err)
{
    e->p.containers.n = 0;
    STK_TRY(open_store(e, err));
    STK_TRY(stk_run_elsewhere_to_end(&e->p.elsewhere, e->p.spec, e->p.store, err));
    return open_run(e, err);
}

/* If steps run on other machines, puts the record into the share, so that another machine can read
 * the run and take it over. */
static int share_log(stk_run *e, stk_err *err)
{
    if (e->p.elsewhere.n == 0) {
        return 0;
    }
    stk_remote_log_config config = {.store = e->p.store,
                                    .share_url = e->p.elsewhere.stacks[0]->store,
                                    .run = e->id,
                                    .pipeline = stk_spec_name(e->p.spec),
                                    .name = e->options->name,
                                    .stack = e->p.elsewhere.stacks[0]->name};
    STK_TRY(stk_remote_log_open(&config, &e->p.elsewhere.log, err));
    if (e->options->resume == NULL) {
        return 0;
    }
    return stk_remote_log_begin(e->p.elsewhere.log, err);
}

static int open_exec(stk_run *e, stk_err *err)
{
    const stk_run_options *o = e->options;
    stk_exec_config config = {.store = e->p.store,
                              .backend = e->backend,
                              .accel = e->p.accel,
                              .clock = &e->clock,
                              .plan = e->p.plan,
                              .capacity = &e->p.capacity,
                              .stack = o->with,
                              .front = stk_run_front(o->program, e->p.arena),
                              .run = e->id,
                              .name = stk_text_or(o->name, stk_view_get_run(e->view)->name),
                              .resumed = o->resume != NULL,
                              .cancelled = o->cancel,
                              .at_once = o->at_once,
                              .clone_until = o->clone_until,
                              .clone_only = o->clone_only,
                              .use_cache = o->use_cache,
                              .policy = e->p.policy,
                              .mode = o->mode >= 0 ? (stk_mode)o->mode : stk_spec_mode(e->p.spec),
                              .max_workers = stk_run_n_workers(o, e->p.elsewhere.n > 0),
                              .code_fd = o->code_fd,
                              .in_order = stk_run_in_order(o, e->p.elsewhere.n > 0),
                              .idle_read_ms = stk_run_idle_read_ms(),
                              .signal_fd = e->config.signal_fd,
                              .hangup_fd = e->config.hangup_fd,
                              .on_event = on_event,
                              .on_started = on_started,
                              .on_signal = on_signal,
                              .on_tick = on_tick,
                              .check = is_still_ours,
                              .arg = e};
    if (e->p.containers.n > 0) {
        config.containers = &e->p.containers.exec;
    }
    if (e->p.elsewhere.n > 0) {
        config.elsewhere = &e->p.elsewhere.exec;
    }
    if (o->clone != NULL) {
        config.clone_of = e->clone;
    }
    e->backend = NULL; /* exec owns it now */
    return stk_exec_open(&config, &e->exec, err);
}

/* Writes the run's row, its first events and its options. A new run is then announced in the
 * share. */
static int put_on_record(stk_run *e, stk_err *err)
{
    const stk_run_calls *calls = &e->config.calls;
    STK_TRY(open_exec(e, err));
    e->is_on_record = true;
    if (e->options->resume == NULL && e->p.elsewhere.log != NULL) {
        STK_TRY(stk_remote_log_begin(e->p.elsewhere.log, err));
    }
    if (calls->on_begin != NULL) {
        calls->on_begin(calls->arg, e);
    }
    return 0;
}

static int open_all(stk_run *e, stk_err *err)
{
    const stk_run_calls *calls = &e->config.calls;
    STK_TRY(stk_run_plan_prepare(&e->p, e->options, err));
    STK_TRY(make_plan(e, err));
    if (e->options->cancel) {
        STK_TRY(open_to_end(e, err));
    } else {
        STK_TRY(open_to_run(e, err));
    }
    STK_TRY(stk_view_new(e->config.spec, e->id, stk_store_path(e->p.store), &e->view, err));
    STK_TRY(share_log(e, err));
    STK_TRY(open_backend(e, err));
    if (e->options->resume != NULL) {
        STK_TRY(stk_store_events(e->p.store, e->id, 0, fold_old, e, err));
    }
    if (calls->on_open != NULL) {
        STK_TRY(calls->on_open(calls->arg, e, err));
    }
    STK_TRY(stk_run_tell(&e->p, e->options, calls, e->id, e->view, &e->observe, err));
    return put_on_record(e, err);
}

/* Adds the hint that the run keeps its results and can be resumed. */
static int say_how_on(const stk_run *e, stk_err *err)
{
    if (e->is_on_record && err->hint[0] == '\0') {
        stk_err_hint(err,
                     e->options->cancel ? "fix that, then try again with 'stoker cancel %s'"
                                        : "fix that, then continue with 'stoker resume %s'",
                     e->id);
    }
    return err->code;
}

int stk_run_open(const stk_run_config *config, stk_run **ret, stk_err *err)
{
    stk_run *e = calloc(1, sizeof *e);
    *ret = e;
    STK_TRY(stk_err_if_null(e, err));
    *e = (stk_run){.config = *config,
                   .options = config->options,
                   .p = {.spec = config->spec, .arena = stk_arena_new(0)},
                   .lock_fd = -1,
                   .anchor = stk_clock_anchor_now()};
    e->clock = stk_clock_anchored(&e->anchor);
    STK_TRY(stk_err_if_null(e->p.arena, err));
    if (open_all(e, err) < 0) {
        return say_how_on(e, err);
    }
    return 0;
}

/* --- to its end --- */

int stk_run_loop(stk_run *e, stk_run_status *ret_status, stk_err *err)
{
    int rc = stk_exec_loop(e->exec, ret_status, err);
    return rc < 0 ? say_how_on(e, err) : rc;
}

int stk_run_sync(stk_run *e, stk_err *err)
{
    int rc = stk_store_sync_until(e->p.store, e->config.signal_fd, err);
    close_log(e);
    stk_observe_end(e->observe, e->config.signal_fd);
    return rc < 0 ? say_how_on(e, err) : rc;
}

void stk_run_close(stk_run *e)
{
    if (e == NULL) {
        return;
    }
    stk_exec_close(e->exec);
    stk_observe_close(e->observe);
    stk_run_end_containers(&e->p.containers, e->view);
    if (e->backend != NULL) {
        e->backend->ops->close(e->backend);
    }
    close_log(e); /* after the backend, which waits for it */
    stk_view_free(e->view);
    stk_file_close(&e->lock_fd);
    stk_store_close(e->p.store);
    e->p.store = NULL;
    stk_run_elsewhere_close(&e->p.elsewhere);
    stk_run_plan_close(&e->p);
    free(e);
}

/* --- queries --- */

const char *stk_run_id(const stk_run *e)
{
    return e->is_on_record ? e->id : NULL;
}

stk_store *stk_run_store(const stk_run *e)
{
    return e->p.store;
}

const stk_view *stk_run_view(const stk_run *e)
{
    return e->view;
}

int stk_run_view_check(const stk_run *e, stk_err *err)
{
    if (e->trouble.code < 0) {
        *err = e->trouble;
    }
    return e->trouble.code;
}

int64_t stk_run_now_ms(const stk_run *e)
{
    return stk_clock_wall_ms(&e->clock);
}

const char *stk_run_simulated(const stk_run *e)
{
    return stk_accel_is_simulated(e->p.accel) ? stk_accel_describe(e->p.accel, e->p.arena) : NULL;
}

const char *stk_run_error(const stk_run *e)
{
    return stk_exec_error(e->exec);
}

bool stk_run_usage(const stk_run *e, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus)
{
    return e->exec != NULL && stk_exec_usage(e->exec, task, ret_memory_bytes, ret_cpus);
}
