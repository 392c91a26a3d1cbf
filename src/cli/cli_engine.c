/* One run from plan to summary: what `run` and `resume` share. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "accel/accel.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/units.h"
#include "cli/cli_containers.h"
#include "cli/cli_early.h"
#include "cli/cli_echo.h"
#include "cli/cli_elsewhere.h"
#include "cli/cli_run.h"
#include "exec/exec.h"
#include "remote/remote_log.h"
#include "report/report_html.h"
#include "report/report_json.h"
#include "report/report_progress.h"
#include "report/report_text.h"
#include "report/report_view.h"
#include "sys/clock.h"
#include "sys/file.h"

/* Everything a run needs, closed in reverse order. */
typedef struct engine {
    const stk_cli *cli;
    const stk_run_options *options;
    stk_spec *spec;
    stk_cli_containers containers;
    stk_cli_elsewhere elsewhere;
    stk_policy policy;
    stk_arena *arena;
    stk_accel *accel;
    stk_plan *plan;
    stk_capacity capacity;
    stk_findings devices; /* what speaks against them */
    stk_store *store;
    char run[40];
    bool is_on_record; /* else nobody finds it, and nothing of it stays */
    char clone[40];    /* run whose tasks are taken over */
    int lock_fd;
    int signal_fd;
    stk_clock_anchor anchor;
    stk_clock clock; /* by which the run's times go on */
    stk_backend *backend;
    stk_view *view;
    stk_progress *progress;
    stk_cli_echo *echo; /* or NULL */
    stk_exec *exec;
    stk_cli_early early;
    stk_err trouble; /* of a callback */
} engine;

static void tell_front(const engine *e, json_t *doc)
{
    char *text = e->options->front_fd < 0 ? NULL : json_dumps(doc, JSON_COMPACT);
    if (text != NULL) {
        (void)stk_file_write_all(e->options->front_fd, text, strlen(text));
        (void)stk_file_write_all(e->options->front_fd, "\n", 1);
    }
    free(text);
    json_decref(doc);
}

static void tell_begin(const engine *e)
{
    tell_front(e, json_pack("{s:s,s:s,s:s}", "event", "run", "run", e->run, "store",
                            stk_store_path(e->store)));
    const char *detach = getenv("STOKER_DETACH_FD");
    if (detach != NULL && atoi(detach) > 2) {
        dprintf(atoi(detach), "%s\n", e->run);
        close(atoi(detach));
        unsetenv("STOKER_DETACH_FD");
    }
}

static void tell_end(const engine *e, const char *status, const char *error)
{
    const char *run = e->is_on_record ? e->run : NULL;
    tell_front(e, json_pack("{s:s,s:s?,s:s,s:s?}", "event", "end", "run", run, "status", status,
                            "error", error));
}

/* --- callbacks --- */

enum {
    FENCE_MS = 1000, /* how often to look whether another machine took the run over */
    LOG_MS = 60000   /* how long the end waits for the share */
};

static void on_signal(void *arg, uint32_t n)
{
    tell_front(arg, json_pack("{s:s,s:i}", "event", "interrupted", "times", (int)n));
}

static void on_event(void *arg, const stk_event_row *row)
{
    engine *e = arg;
    if (e->elsewhere.log != NULL) {
        stk_remote_log_told(e->elsewhere.log, row->seq);
    }
    if (e->trouble.code == 0 && stk_view_fold(e->view, row, &e->trouble) == 0 &&
        e->progress != NULL) {
        stk_progress_event(e->progress, row);
        if (e->echo != NULL) {
            stk_cli_echo_event(e->echo, row);
        }
    }
}

static void on_started(void *arg, uint32_t task, int64_t pid)
{
    engine *e = arg;
    if (e->echo != NULL) {
        stk_cli_echo_started(e->echo, task, pid);
    }
}

static int64_t on_tick(void *arg, int64_t now_ms)
{
    engine *e = arg;
    int64_t echo = e->echo == NULL ? -1 : stk_cli_echo_tick(e->echo, now_ms);
    int64_t progress = e->progress == NULL ? -1 : stk_progress_tick(e->progress, now_ms);
    int64_t next = echo >= 0 && (progress < 0 || echo < progress) ? echo : progress;
    return e->elsewhere.log != NULL && (next < 0 || next > FENCE_MS) ? FENCE_MS : next;
}

static int is_ours(void *arg, stk_err *err)
{
    engine *e = arg;
    return e->elsewhere.log == NULL ? 0 : stk_remote_log_check(e->elsewhere.log, err);
}

static bool usage(void *arg, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus)
{
    engine *e = arg;
    return e->exec != NULL && stk_exec_usage(e->exec, task, ret_memory_bytes, ret_cpus);
}

/* --- opening --- */

/* Nothing runs yet, so nothing is lost. */
static void tell_early(void *arg, int number)
{
    const engine *e = arg;
    const char *word = number == SIGINT ? "cancelled" : "interrupted";
    char text[256];
    (void)snprintf(text, sizeof text, "%s before the first task%s%s", word,
                   e->options->resume != NULL ? "; 'stoker resume' goes on: " : "",
                   e->options->resume != NULL ? e->options->resume : "");
    if (e->options->front_fd < 0) {
        dprintf(STDERR_FILENO, "stoker: %s\n", text);
    }
    tell_end(e, word, text);
}

/* The signals we answer, before any thread or child exists. Ctrl-C reaches the whole foreground
 * group: we decide for all. What whoever started us ignores (nohup, a shell's background) stays so:
 * a blocked signal would be kept for us even then. */
static int block_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) < 0 || now.sa_handler != SIG_IGN) {
            sigaddset(&set, numbers[i]);
        }
    }
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* An existing run: its lock, and whether what is to go on is what began. */
static int open_old_run(engine *e, stk_err *err)
{
    int rc = stk_store_resolve_run(e->store, e->options->resume, e->run, err);
    e->is_on_record = rc == 0;
    rc = rc < 0 ? rc : stk_store_lock_run(e->store, e->run, &e->lock_fd, err);
    rc = rc < 0 ? rc : stk_store_run_clock(e->store, e->run, &e->anchor, err);
    const char *text = NULL;
    size_t len = 0;
    rc = rc < 0 ? rc : stk_store_load_spec(e->store, e->run, e->arena, &text, &len, err);
    if (rc < 0) {
        return rc;
    }
    stk_spec *old = NULL;
    rc = stk_spec_parse(text, len, "pipeline", &old, err);
    uint32_t n = rc < 0 ? 0 : stk_spec_n_steps(old);
    if (rc == 0 && n != stk_spec_n_steps(e->spec)) {
        rc = stk_err_set(err, STK_E_USAGE, "run %s has %u steps, the pipeline now has %u", e->run,
                         n, stk_spec_n_steps(e->spec));
        stk_err_hint(err, "start a new run: finished steps are reused from the cache");
    }
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const stk_step *a = stk_spec_step(old, i);
        const stk_step *b = stk_spec_step(e->spec, i);
        if (strcmp(a->name, b->name) != 0) {
            rc = stk_err_set(err, STK_E_USAGE,
                             "run %s has step '%s' where the pipeline now has '%s'", e->run,
                             a->name, b->name);
            stk_err_hint(err, "start a new run: finished steps are reused from the cache");
            break;
        }
        bool same = a->n_code == b->n_code && a->n_argv == b->n_argv;
        for (uint32_t k = 0; same && k < a->n_code; k++) {
            same = strcmp(a->code[k].key, b->code[k].key) == 0 &&
                   strcmp(a->code[k].value, b->code[k].value) == 0;
        }
        for (uint32_t k = 0; same && k < a->n_argv; k++) {
            same = strcmp(a->argv[k], b->argv[k]) == 0;
        }
        if (!same && !e->options->use_new_code) {
            rc = stk_err_set(err, STK_E_USAGE, "the code of step '%s' changed since run %s began",
                             a->name, e->run);
            stk_err_hint(err, "say --use-new-code to go on with the new code, or start a new run");
        }
    }
    stk_spec_free(old);
    return rc;
}

static int open_run(engine *e, stk_err *err)
{
    if (e->options->resume != NULL) {
        return open_old_run(e, err);
    }
    if (e->options->clone != NULL) { /* before there is a newer one that "latest" would name */
        int rc = stk_store_resolve_run(e->store, e->options->clone, e->clone, err);
        rc = rc < 0 || stk_spec_grows(e->spec)
                 ? rc
                 : stk_err_set(err, STK_E_USAGE,
                               "--clone is for graphs that grow; finished steps of pipeline '%s' "
                               "are reused from the cache, without being told so",
                               stk_spec_name(e->spec));
        if (rc < 0) {
            return rc;
        }
    }
    size_t len = 0;
    const char *text = stk_spec_text(e->spec, &len);
    return stk_store_new_run(e->store, e->options->name, stk_spec_name(e->spec), text, len,
                             stk_clock_wall_ms(&e->clock), e->run, &e->lock_fd, err);
}

/* Python steps of a document (its origin names no Python) import from its folder first, as a
 * Python file's do from theirs. */
static int import_from(const char *folder, stk_err *err)
{
    const char *before = getenv("PYTHONPATH");
    bool more = before != NULL && *before != '\0';
    STK_TEXT_AUTO path = NULL;
    if (asprintf(&path, "%s%s%s", folder, more ? ":" : "", more ? before : "") < 0 ||
        setenv("PYTHONPATH", path, 1) < 0) {
        return stk_err_set(err, STK_E_NOMEM, "no memory for the environment");
    }
    return 0;
}

static int open_backend(engine *e, stk_err *err)
{
    json_t *origin =
        stk_spec_origin(e->spec) == NULL ? NULL : json_loads(stk_spec_origin(e->spec), 0, NULL);
    bool by_python = json_object_get(origin, "argv") != NULL;
    const char *main_file = by_python ? json_string_value(json_object_get(origin, "file")) : NULL;
    const char *python = json_string_value(json_object_get(origin, "python"));
    if (python == NULL && main_file == NULL && import_from(stk_spec_folder(e->spec), err) < 0) {
        json_decref(origin);
        return STK_E_NOMEM;
    }
    char venv[4096];
    if (e->options->python != NULL || python == NULL) {
        python = stk_cli_python(e->options->python, venv, sizeof venv);
    }
    stk_local_config config = {.run = e->run,
                               .server_fd = e->options->server_fd,
                               .python = python,
                               .main_file = main_file,
                               .accel = e->accel,
                               .clock = &e->clock,
                               .policy = e->policy};
    stk_backend *local = NULL;
    int rc = stk_backend_local_open(&config, &local, err);
    json_decref(origin);
    return rc < 0 ? rc
                  : stk_cli_elsewhere_open(e->cli, &e->elsewhere, e->spec, e->store, e->run, local,
                                           &e->backend, err);
}

static int open_progress(engine *e, stk_err *err)
{
    int rc = stk_view_new(e->spec, e->run, stk_store_path(e->store), &e->view, err);
    if (rc < 0) {
        return rc;
    }
    stk_style style = stk_style_of(stderr, stk_cli_colour(e->cli, 2));
    stk_progress_config config = {.out = stderr,
                                  .tty = isatty(2) && !stk_cli_json(e->cli),
                                  .colour = style.colour,
                                  .utf8 = style.utf8,
                                  .quiet =
                                      e->options->quiet || e->options->echo || stk_cli_json(e->cli),
                                  .usage = usage,
                                  .usage_arg = e};
    e->progress = stk_progress_new(&config, e->view);
    e->echo = e->options->echo ? stk_cli_echo_new(e->view) : NULL;
    return e->progress == NULL || (e->options->echo && e->echo == NULL)
               ? stk_err_set(err, STK_E_NOMEM, "out of memory")
               : 0;
}

/* A resumed run's view begins with what was. */
static int fold_old(void *arg, const stk_event_row *row)
{
    engine *e = arg;
    return stk_view_fold(e->view, row, &e->trouble);
}

/* A store that isn't in the current folder; and, when a new one is made, the one that was looked
 * for above the project in vain. */
static void say_store(const engine *e, const char *beyond)
{
    STK_TEXT_AUTO here = stk_file_absolute(".stoker");
    if (e->options->quiet || stk_cli_json(e->cli) || here == NULL) {
        return;
    }
    if (strcmp(here, stk_store_path(e->store)) != 0) {
        fprintf(stderr, "stoker: store %s\n", stk_store_path(e->store));
    }
    if (beyond != NULL) {
        fprintf(stderr,
                "stoker: a new store is made here; %s lies above this project and is used only "
                "where STOKER_STORE names it\n",
                beyond);
    }
}

static int open_store(engine *e, stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    int rc = stk_store_find(".", STK_STORE_CREATE, &path, err);
    bool is_new = rc == 0 && !stk_file_exists(path);
    STK_TEXT_AUTO beyond = is_new ? stk_store_beyond(".") : NULL;
    rc = rc < 0 ? rc : stk_store_open(path, STK_STORE_CREATE, &e->store, err);
    if (rc == 0) {
        say_store(e, beyond);
    }
    return rc;
}

/* What the run that is taken up has needs no place here any more: this host may be a smaller one.
 * Nothing of one that is only to be ended does. */
static int find_settled(engine *e, const bool **ret_settled, stk_err *err)
{
    uint32_t n = stk_spec_n_steps(e->spec);
    bool *all = e->options->cancel ? stk_arena_array(e->arena, (size_t)n + 1, sizeof *all) : NULL;
    for (uint32_t i = 0; all != NULL && i < n; i++) {
        all[i] = true;
    }
    if (e->options->cancel) {
        *ret_settled = all;
        return all == NULL ? stk_err_set(err, STK_E_NOMEM, "out of memory") : 0;
    }
    char run[40];
    stk_view *view = NULL;
    int rc = open_store(e, err);
    rc = rc < 0 ? rc : stk_store_resolve_run(e->store, e->options->resume, run, err);
    rc = rc < 0 ? rc : stk_view_load(e->store, run, &view, err);
    rc = rc < 0 ? rc : stk_cli_settled(e->spec, view, e->arena, ret_settled, err);
    stk_view_free(view);
    return rc;
}

/* Which steps the cache will serve, where a note is about some step: it isn't true of these. */
static int find_cached(engine *e, const bool **ret_cached, stk_err *err)
{
    char *path = NULL;
    uint32_t n = stk_spec_n_steps(e->spec);
    bool *cached = stk_arena_array(e->arena, n, sizeof *cached);
    stk_forecast *forecast = NULL;
    int rc = cached == NULL ? stk_err_set(err, STK_E_NOMEM, "out of memory")
                            : stk_store_find(".", STK_STORE_CREATE, &path, err);
    bool is_there = rc == 0 && stk_file_exists(path);
    free(path);
    if (rc < 0 || !is_there) {
        return rc;
    }
    rc = e->store != NULL ? 0 : open_store(e, err);
    rc = rc < 0 ? rc : stk_forecast_new(e->store, e->plan, &forecast, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        const char *miss = NULL;
        rc = stk_forecast_step(forecast, i, &cached[i], &miss, err);
    }
    stk_forecast_free(forecast);
    *ret_cached = cached;
    return rc;
}

static int make_plan(engine *e, const int64_t *peaks, stk_err *err)
{
    const stk_run_options *o = e->options;
    const bool *settled = NULL;
    int rc = o->resume == NULL ? 0 : find_settled(e, &settled, err);
    rc = rc < 0
             ? rc
             : stk_plan_new_rest(e->spec, &e->capacity, peaks, e->policy, settled, &e->plan, err);
    bool is_static = !stk_spec_grows(e->spec);
    if (rc == 0 && settled == NULL && is_static && o->use_cache && stk_plan_n_notes(e->plan) > 0) {
        rc = find_cached(e, &settled, err);
        if (rc == 0 && settled != NULL) {
            stk_plan_free(e->plan);
            e->plan = NULL;
            rc = stk_plan_new_rest(e->spec, &e->capacity, peaks, e->policy, settled, &e->plan, err);
        }
    }
    return rc;
}

static int open_images(engine *e, stk_err *err)
{
    const char *logs = stk_arena_printf(e->arena, "%s/images", stk_store_path(e->store));
    int rc = logs == NULL ? stk_err_set(err, STK_E_NOMEM, "out of memory")
                          : stk_cli_images(&e->containers, e->spec, e->options, logs, e->accel,
                                           e->plan, false, err);
    rc = rc < 0 ? rc
                : stk_cli_elsewhere_images(&e->elsewhere, e->spec, e->options, logs, e->plan, false,
                                           err);
    return rc < 0 ? rc : stk_cli_elsewhere_check(&e->elsewhere, e->spec, e->plan, false, err);
}

/* Where steps go to other machines, these can read the run, and take it up after us. */
static int open_log(engine *e, stk_err *err)
{
    if (e->elsewhere.n == 0) {
        return 0;
    }
    stk_remote_log_config config = {.store = e->store,
                                    .share_url = e->elsewhere.stacks[0]->store,
                                    .run = e->run,
                                    .pipeline = stk_spec_name(e->spec),
                                    .name = e->options->name,
                                    .stack = e->elsewhere.stacks[0]->name};
    int rc = stk_remote_log_open(&config, &e->elsewhere.log, err);
    return rc < 0 || e->options->resume == NULL ? rc : stk_remote_log_begin(e->elsewhere.log, err);
}

/* From here on the run is on record: with its row its first events, and what it was begun with. A
 * new one is told of in the share after that. */
static int begin_run(engine *e, const stk_exec_config *config, stk_err *err)
{
    bool is_new = e->options->resume == NULL;
    int rc = stk_exec_open(config, &e->exec, err);
    e->is_on_record = e->is_on_record || rc == 0;
    rc = rc < 0 || !is_new || e->elsewhere.log == NULL
             ? rc
             : stk_remote_log_begin(e->elsewhere.log, err);
    if (rc == 0) {
        tell_begin(e);
    }
    return rc;
}

/* The run is over, or left: what is on record here is to be in the share. */
static void close_log(engine *e)
{
    stk_err err = {0};
    if (stk_remote_log_close(e->elsewhere.log, LOG_MS, &err) < 0 && err.code != STK_E_BUSY) {
        fprintf(stderr, "stoker: %s; 'stoker resume %s' brings it there\n", err.text, e->run);
    }
    e->elsewhere.log = NULL;
}

/* What steps need before the first task. */
static int open_to_run(engine *e, stk_err *err)
{
    const stk_run_options *o = e->options;
    int rc =
        stk_cli_check_steps(e->spec, o, e->containers.places, e->accel, &e->devices, e->plan, err);
    rc = rc < 0 || e->store != NULL ? rc : open_store(e, err);
    rc = rc < 0 ? rc : open_images(e, err);
    rc = rc < 0 ? rc : open_run(e, err);
    rc = rc < 0 ? rc
                : stk_cli_code(e->cli, &e->containers, e->spec, e->plan, e->store, e->run,
                               o->resume != NULL, err);
    return rc < 0 ? rc
                  : stk_cli_elsewhere_code(&e->elsewhere, e->spec,
                                           stk_cli_main_file(e->spec, e->arena), e->plan, e->store,
                                           err);
}

/* None begins any more. */
static int open_to_end(engine *e, stk_err *err)
{
    e->containers.n = 0;
    int rc = open_store(e, err);
    rc = rc < 0 ? rc : stk_cli_elsewhere_to_end(&e->elsewhere, e->spec, e->store, err);
    return rc < 0 ? rc : open_run(e, err);
}

/* STOKER_IDLE_READ: after how long an artifact is read again; 0 turns it off. */
static int64_t idle_read_ms(void)
{
    const char *text = getenv("STOKER_IDLE_READ");
    int64_t ms = 0;
    if (text == NULL || text[0] == '\0') {
        return STK_LIMIT_IDLE_READ_AGE_MS;
    }
    return stk_units_parse_duration(text, &ms, NULL) == 0 ? ms : 0;
}

static int open_all(engine *e, stk_err *err)
{
    const stk_run_options *o = e->options;
    const int64_t *peaks = NULL;
    e->arena = stk_arena_new(0);
    int rc = e->arena == NULL ? stk_err_set(err, STK_E_NOMEM, "out of memory") : 0;
    rc = rc < 0 ? rc : stk_cli_places(e->spec, o, e->arena, &e->containers, err);
    rc = rc < 0
             ? rc
             : stk_cli_elsewhere_find(e->spec, e->containers.places, e->arena, &e->elsewhere, err);
    e->policy = stk_cli_elsewhere_policy(&e->elsewhere, o);
    rc = rc < 0 ? rc : stk_accel_open(getenv("STOKER_ACCEL"), &e->accel, err);
    e->devices.arena = e->arena;
    rc = rc < 0 ? rc : stk_cli_check_devices(e->spec, e->accel, &e->devices, err);
    rc = rc < 0 ? rc : stk_exec_capacity(e->accel, e->arena, &e->capacity, err);
    stk_cli_elsewhere_tell(&e->elsewhere, &e->capacity);
    rc = rc < 0 ? rc : stk_cli_gpu_peaks(e->spec, e->arena, &peaks, err);
    rc = rc < 0 ? rc : make_plan(e, peaks, err);
    rc = rc < 0 ? rc : o->cancel ? open_to_end(e, err) : open_to_run(e, err);
    rc = rc < 0 ? rc : open_progress(e, err);
    rc = rc < 0 ? rc : open_log(e, err);
    rc = rc < 0 ? rc : open_backend(e, err);
    if (rc == 0 && o->resume != NULL) {
        rc = stk_store_events(e->store, e->run, 0, fold_old, e, err);
    }
    if (rc < 0) {
        return rc;
    }
    stk_exec_config config = {.store = e->store,
                              .backend = e->backend,
                              .accel = e->accel,
                              .clock = &e->clock,
                              .plan = e->plan,
                              .capacity = &e->capacity,
                              .containers = e->containers.n > 0 ? &e->containers.exec : NULL,
                              .elsewhere = e->elsewhere.n > 0 ? &e->elsewhere.exec : NULL,
                              .stack = o->with,
                              .run = e->run,
                              .name = o->name,
                              .resumed = o->resume != NULL,
                              .cancelled = o->cancel,
                              .at_once = o->at_once,
                              .clone_of = o->clone != NULL ? e->clone : NULL,
                              .clone_until = o->clone_until,
                              .clone_only = o->clone_only,
                              .use_cache = o->use_cache,
                              .policy = e->policy,
                              .mode = o->mode >= 0 ? (stk_mode)o->mode : stk_spec_mode(e->spec),
                              .max_workers = o->max_workers,
                              .idle_read_ms = idle_read_ms(),
                              .signal_fd = e->signal_fd,
                              .hangup_fd = o->front_fd,
                              .on_event = on_event,
                              .on_started = on_started,
                              .on_signal = on_signal,
                              .on_tick = on_tick,
                              .check = is_ours,
                              .arg = e};
    stk_cli_early_end(&e->early);
    e->backend = NULL; /* exec's from here on */
    return begin_run(e, &config, err);
}

static void close_all(engine *e)
{
    stk_progress_done(e->progress);
    stk_cli_echo_free(e->echo);
    stk_exec_close(e->exec);
    stk_cli_end_containers(&e->containers, e->view);
    if (e->backend != NULL) {
        e->backend->ops->close(e->backend);
    }
    close_log(e); /* the backend waited for it */
    stk_view_free(e->view);
    if (e->lock_fd >= 0) {
        close(e->lock_fd);
    }
    stk_store_close(e->store);
    stk_cli_elsewhere_close(&e->elsewhere);
    stk_plan_free(e->plan);
    stk_accel_close(e->accel);
    stk_arena_free(e->arena);
    if (e->signal_fd >= 0) {
        close(e->signal_fd);
    }
}

/* --- the end --- */

static int summary(engine *e, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(256u << 20);
    STK_TEXT_AUTO card = NULL;
    int64_t now = stk_clock_wall_ms(&e->clock);
    stk_progress_clear(e->progress);
    if (e->echo != NULL) {
        (void)stk_cli_echo_tick(e->echo, now);
    }
    stk_style style = stk_style_of(stderr, stk_cli_colour(e->cli, 2));
    int rc = e->trouble.code; /* then the view lacks something */
    if (rc < 0) {
        *err = e->trouble;
    }
    rc = rc < 0 ? rc : stk_html_write_card(e->view, e->store, now, &card, err);
    if (rc == 0 && stk_cli_json(e->cli)) {
        rc = stk_report_json_run(e->view, &buf, err);
        (void)fwrite(buf.data, 1, buf.len, stdout);
        return rc;
    }
    if (rc == 0) {
        rc = e->options->quiet ? stk_text_failures(e->view, &style, &buf, err)
                               : stk_text_summary(e->view, e->store, card, now, &style, &buf, err);
    }
    if (rc == 0 && buf.len > 0) {
        (void)fwrite(buf.data, 1, buf.len, stderr);
        fflush(stderr);
    }
    return rc;
}

static void tell_cancelled(const engine *e, const char *word)
{
    stk_progress_clear(e->progress);
    printf(stk_cli_json(e->cli) ? "{\"run\":\"%s\",\"status\":\"%s\"}\n" : "run %s: %s\n", e->run,
           word);
}

/* The run can't begin, or can't go on. A front end raises the sentence as its own error; without
 * one it is printed. */
static int give_up(engine *e, stk_err *err)
{
    char text[1400];
    if (e->progress != NULL) {
        stk_progress_clear(e->progress);
    }
    if (e->is_on_record && err->hint[0] == '\0') {
        stk_err_hint(err,
                     e->options->cancel ? "'stoker cancel %s' tries again once that is mended"
                                        : "'stoker resume %s' goes on once that is mended",
                     e->run);
    }
    if (e->options->front_fd < 0) {
        return stk_cli_fail(e->cli, err);
    }
    tell_end(e, "failed", stk_err_format(err, text, (int)sizeof text));
    return stk_err_exit_status(err->code);
}

int stk_cli_run_refused(const stk_cli *cli, const stk_run_options *options, stk_err *err)
{
    engine e = {.cli = cli, .options = options, .lock_fd = -1};
    return give_up(&e, err);
}

int stk_cli_run_spec(const stk_cli *cli, stk_spec *spec, const stk_run_options *options)
{
    static const int exits[] = {[STK_RUN_SUCCEEDED] = 0,
                                [STK_RUN_FAILED] = 1,
                                [STK_RUN_CANCELLED] = 130,
                                [STK_RUN_INTERRUPTED] = 143};
    static const char *const words[] = {"succeeded", "failed", "cancelled", "interrupted"};
    engine e = {.cli = cli, .options = options, .spec = spec, .lock_fd = -1};
    stk_err err = {0};
    stk_run_status status = STK_RUN_FAILED;
    if (options->front_fd >= 0) {
        (void)fcntl(options->front_fd, F_SETFD, FD_CLOEXEC);
    }
    if (options->server_fd >= 0) {
        (void)fcntl(options->server_fd, F_SETFD, FD_CLOEXEC);
    }
    e.signal_fd = block_signals();
    stk_cli_early_begin(&e.early, e.signal_fd, tell_early, &e);
    e.anchor = stk_clock_anchor_now();
    e.clock = stk_clock_anchored(&e.anchor);
    int rc = open_all(&e, &err);
    stk_cli_early_end(&e.early);
    if (rc == 0 && !options->quiet && stk_accel_is_simulated(e.accel)) {
        fprintf(stderr, "stoker: %s: steps are told of them, and nothing uses a real one\n",
                stk_accel_describe(e.accel, e.arena));
    }
    rc = rc < 0 ? rc : stk_exec_loop(e.exec, &status, &err);
    if (rc == 0 && options->cancel) {
        tell_cancelled(&e, words[status]);
    } else if (rc == 0 && summary(&e, &err) < 0) { /* the run itself is over and recorded */
        fprintf(stderr, "stoker: run %s %s, but its summary could not be made: %s\n", e.run,
                words[status], err.text);
        err = (stk_err){0};
    }
    rc = rc < 0 ? rc : stk_store_sync_until(e.store, e.signal_fd, &err);
    close_log(&e);
    if (rc < 0) {
        int code = give_up(&e, &err);
        close_all(&e);
        return code;
    }
    if (status == STK_RUN_CANCELLED && !options->cancel && !stk_cli_json(cli)) {
        fprintf(stderr, "stoker: 'stoker resume %s' takes the run up where it was ended\n", e.run);
    }
    tell_end(&e, words[status], stk_exec_error(e.exec));
    close_all(&e);
    bool is_wanted = options->cancel || (options->clone_only && status == STK_RUN_INTERRUPTED);
    return is_wanted ? 0 : exits[status];
}
