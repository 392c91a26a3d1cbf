/* One run from plan to summary, as it appears on the terminal or to a front end. */
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/cli_early.h"
#include "cli/cli_run.h"
#include "show/echo.h"
#include "show/report_html.h"
#include "show/report_json.h"
#include "show/report_progress.h"
#include "show/report_text.h"
#include "sys/file.h"

typedef struct watcher {
    const stk_cli *cli;
    const stk_cli_run *how;
    stk_run *run;
    stk_progress *progress;
    stk_echo *echo; /* or NULL */
    stk_cli_early early;
} watcher;

/* --- to the front end --- */

static void tell_front(const watcher *w, json_t *doc)
{
    char *text = w->how->front_fd < 0 ? NULL : json_dumps(doc, JSON_COMPACT);
    if (text != NULL) {
        (void)stk_file_write_all(w->how->front_fd, text, strlen(text));
        (void)stk_file_write_all(w->how->front_fd, "\n", 1);
    }
    free(text);
    json_decref(doc);
}

static void on_begin(void *arg, stk_run *run)
{
    const watcher *w = arg;
    const char *id = stk_run_id(run);
    tell_front(w, json_pack("{s:s,s:s,s:s}", "event", "run", "run", id, "store",
                            stk_store_path(stk_run_store(run))));
    const char *detach = getenv("STOKER_DETACH_FD");
    if (detach != NULL && atoi(detach) > 2) {
        dprintf(atoi(detach), "%s\n", id);
        close(atoi(detach));
        unsetenv("STOKER_DETACH_FD");
    }
}

static void tell_end(const watcher *w, const char *status, const char *error)
{
    tell_front(w, json_pack("{s:s,s:s?,s:s,s:s?}", "event", "end", "run",
                            w->run == NULL ? NULL : stk_run_id(w->run), "status", status, "error",
                            error));
}

/* --- what the run calls --- */

/* A store that isn't in the current folder; and, when a new one is made, the one that was looked
 * for above the project in vain. */
static void on_store(void *arg, const char *path, const char *beyond)
{
    const watcher *w = arg;
    STK_TEXT_AUTO here = stk_file_absolute(".stoker");
    if (w->how->quiet || stk_cli_json(w->cli) || here == NULL) {
        return;
    }
    if (strcmp(here, path) != 0) {
        fprintf(stderr, "stoker: store %s\n", path);
    }
    if (beyond != NULL) {
        fprintf(stderr,
                "stoker: a new store is made here; %s lies above this project and is used only "
                "where STOKER_STORE names it\n",
                beyond);
    }
}

static bool usage(void *arg, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus)
{
    const watcher *w = arg;
    return stk_run_usage(w->run, task, ret_memory_bytes, ret_cpus);
}

static int on_open(void *arg, stk_run *run, stk_err *err)
{
    watcher *w = arg;
    bool json = stk_cli_json(w->cli);
    stk_style style = stk_style_of(stderr, stk_cli_colour(w->cli, 2));
    stk_progress_config config = {.out = stderr,
                                  .tty = isatty(2) && !json,
                                  .colour = style.colour,
                                  .utf8 = style.utf8,
                                  .quiet = w->how->quiet || w->how->echo || json,
                                  .usage = usage,
                                  .usage_arg = w};
    w->run = run;
    w->progress = stk_progress_new(&config, stk_run_view(run));
    w->echo = w->how->echo ? stk_echo_new(stk_run_view(run)) : NULL;
    if (w->progress == NULL || (w->how->echo && w->echo == NULL)) {
        return stk_err_nomem(err);
    }
    stk_cli_early_end(&w->early);
    return 0;
}

static void on_event(void *arg, const stk_event_row *row)
{
    const watcher *w = arg;
    stk_progress_event(w->progress, row);
    if (w->echo != NULL) {
        stk_echo_event(w->echo, row);
    }
}

static void on_started(void *arg, uint32_t task, int64_t pid)
{
    const watcher *w = arg;
    if (w->echo != NULL) {
        stk_echo_started(w->echo, task, pid);
    }
}

static void on_signal(void *arg, uint32_t n)
{
    tell_front(arg, json_pack("{s:s,s:i}", "event", "interrupted", "times", (int)n));
}

static int64_t on_tick(void *arg, int64_t now_ms)
{
    const watcher *w = arg;
    int64_t echo = w->echo == NULL ? -1 : stk_echo_tick(w->echo, now_ms);
    int64_t progress = stk_progress_tick(w->progress, now_ms);
    return echo >= 0 && (progress < 0 || echo < progress) ? echo : progress;
}

static void on_trouble(void *arg, const stk_err *err)
{
    (void)arg;
    fprintf(stderr, "stoker: %s; %s\n", err->text, err->hint);
}

static void say_line(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "stoker: %s\n", line);
}

/* --- signals --- */

/* Nothing runs yet, so nothing is lost. */
static void tell_early(void *arg, int number)
{
    const watcher *w = arg;
    const char *resume = w->how->options.resume;
    const char *word = number == SIGINT ? "cancelled" : "interrupted";
    char text[256];
    (void)snprintf(text, sizeof text, "%s before the first task%s%s", word,
                   resume != NULL ? "; 'stoker resume' goes on: " : "",
                   resume != NULL ? resume : "");
    if (w->how->front_fd < 0) {
        dprintf(STDERR_FILENO, "stoker: %s\n", text);
    }
    tell_end(w, word, text);
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

/* --- the end --- */

static int summary(const watcher *w, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(256u << 20);
    STK_TEXT_AUTO card = NULL;
    const stk_view *view = stk_run_view(w->run);
    stk_store *store = stk_run_store(w->run);
    int64_t now = stk_run_now_ms(w->run);
    stk_progress_clear(w->progress);
    if (w->echo != NULL) {
        (void)stk_echo_tick(w->echo, now);
    }
    stk_style style = stk_style_of(stderr, stk_cli_colour(w->cli, 2));
    STK_TRY(stk_run_view_check(w->run, err));
    STK_TRY(stk_html_write_card(view, store, now, &card, err));
    if (stk_cli_json(w->cli)) {
        int rc = stk_report_json_run(view, &buf, err);
        (void)fwrite(buf.data, 1, buf.len, stdout);
        return rc;
    }
    STK_TRY(w->how->quiet ? stk_text_failures(view, &style, &buf, err)
                          : stk_text_summary(view, store, card, now, &style, &buf, err));
    if (buf.len > 0) {
        (void)fwrite(buf.data, 1, buf.len, stderr);
        fflush(stderr);
    }
    return 0;
}

static void tell_cancelled(const watcher *w, const char *word)
{
    stk_progress_clear(w->progress);
    printf(stk_cli_json(w->cli) ? "{\"run\":\"%s\",\"status\":\"%s\"}\n" : "run %s: %s\n",
           stk_run_id(w->run), word);
}

/* The run can't begin, or can't go on. A front end raises the sentence as its own error; without
 * one it is printed. */
static int give_up(const watcher *w, const stk_err *err)
{
    char text[1400];
    if (w->progress != NULL) {
        stk_progress_clear(w->progress);
    }
    if (w->how->front_fd < 0) {
        return stk_cli_fail(w->cli, err);
    }
    tell_end(w, "failed", stk_err_format(err, text, (int)sizeof text));
    return stk_err_exit_status(err->code);
}

int stk_cli_run_refused(const stk_cli *cli, const stk_cli_run *how, stk_err *err)
{
    watcher w = {.cli = cli, .how = how};
    return give_up(&w, err);
}

static const char *const words[] = {"succeeded", "failed", "cancelled", "interrupted"};

/* From its first task on. */
static int watch(watcher *w, stk_run_status *ret_status, stk_err *err)
{
    if (!w->how->quiet && stk_run_simulated(w->run) != NULL) {
        fprintf(stderr, "stoker: %s: steps are told of them, and nothing uses a real one\n",
                stk_run_simulated(w->run));
    }
    STK_TRY(stk_run_loop(w->run, ret_status, err));
    if (w->how->options.cancel) {
        tell_cancelled(w, words[*ret_status]);
    } else if (summary(w, err) < 0) { /* the run itself is over and recorded */
        fprintf(stderr, "stoker: run %s %s, but its summary could not be made: %s\n",
                stk_run_id(w->run), words[*ret_status], err->text);
        *err = (stk_err){0};
    }
    return stk_run_sync(w->run, err);
}

static int tell_over(const watcher *w, stk_run_status status)
{
    static const int exits[] = {[STK_RUN_SUCCEEDED] = 0,
                                [STK_RUN_FAILED] = 1,
                                [STK_RUN_CANCELLED] = 130,
                                [STK_RUN_INTERRUPTED] = 143};
    const stk_run_options *o = &w->how->options;
    if (status == STK_RUN_CANCELLED && !o->cancel && !stk_cli_json(w->cli)) {
        fprintf(stderr, "stoker: 'stoker resume %s' takes the run up where it was ended\n",
                stk_run_id(w->run));
    }
    tell_end(w, words[status], stk_run_error(w->run));
    bool is_wanted = o->cancel || (o->clone_only && status == STK_RUN_INTERRUPTED);
    return is_wanted ? 0 : exits[status];
}

int stk_cli_run_spec(const stk_cli *cli, stk_spec *spec, const stk_cli_run *how)
{
    stk_cli_run mine = *how;
    watcher w = {.cli = cli, .how = &mine};
    stk_err err = {0};
    stk_run_status status = STK_RUN_FAILED;
    mine.options.say = how->quiet ? NULL : say_line;
    if (how->front_fd >= 0) {
        (void)fcntl(how->front_fd, F_SETFD, FD_CLOEXEC);
    }
    if (how->options.server_fd >= 0) {
        (void)fcntl(how->options.server_fd, F_SETFD, FD_CLOEXEC);
    }
    stk_run_config config = {.spec = spec,
                             .options = &mine.options,
                             .calls = {.on_store = on_store,
                                       .on_open = on_open,
                                       .on_begin = on_begin,
                                       .on_event = on_event,
                                       .on_started = on_started,
                                       .on_signal = on_signal,
                                       .on_tick = on_tick,
                                       .on_trouble = on_trouble,
                                       .arg = &w},
                             .signal_fd = block_signals(),
                             .hangup_fd = how->front_fd};
    stk_cli_early_begin(&w.early, config.signal_fd, tell_early, &w);
    int rc = stk_run_open(&config, &w.run, &err);
    stk_cli_early_end(&w.early);
    if (rc == 0) {
        rc = watch(&w, &status, &err);
    }
    int code = rc < 0 ? give_up(&w, &err) : tell_over(&w, status);
    stk_progress_done(w.progress);
    stk_echo_free(w.echo);
    stk_run_close(w.run);
    stk_file_close(&config.signal_fd);
    return code;
}
