#include "cli/cli_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "cli/cli_front.h"
#include "cli/cli_read.h"
#include "cli/cli_stores.h"
#include "show/show_text.h"
#include "sys/file.h"

static void on_begin(void *arg, stk_run *run)
{
    const stk_cli_watcher *w = arg;
    const char *detach = getenv("STOKER_DETACH_FD");
    stk_cli_front_begin(w->how->front_fd, run);
    if (detach != NULL && atoi(detach) > 2) {
        dprintf(atoi(detach), "%s\n", stk_run_id(run));
        close(atoi(detach));
        unsetenv("STOKER_DETACH_FD");
    }
}

/* Names the store if it isn't in the current folder, and an unused one above the project. */
static void on_store(void *arg, const char *path, const char *beyond)
{
    const stk_cli_watcher *w = arg;
    STK_TEXT_AUTO here = stk_file_absolute(".stoker");
    stk_cli_stores_note(path);
    if (w->how->quiet || stk_cli_json(w->cli) || here == NULL) {
        return;
    }
    if (strcmp(here, path) != 0) {
        fprintf(stderr, "stoker: store %s\n", path);
    }
    if (beyond != NULL) {
        fprintf(stderr,
                "stoker: making a new store here; %s is above this project, so it is used only if "
                "STOKER_STORE names it\n",
                beyond);
    }
}

static bool usage(void *arg, uint32_t task, int64_t *ret_memory_bytes, double *ret_cpus)
{
    const stk_cli_watcher *w = arg;
    return stk_run_usage(w->run, task, ret_memory_bytes, ret_cpus);
}

static const char *bar(void *arg, uint32_t task, uint32_t i)
{
    const stk_cli_watcher *w = arg;
    if (w->prints == NULL) {
        return NULL;
    }
    return stk_prints_bar(w->prints, task, i);
}

static ssize_t write_stderr(void *arg, const char *text, size_t len)
{
    const stk_cli_watcher *w = arg;
    stk_writer_put(w->writer, STDERR_FILENO, text, len);
    return (ssize_t)len;
}

/* `--echo` prints in spite of STOKER_PRINTS, `--quiet` in spite of nothing. */
static bool prints_are_wanted(const stk_cli_run *how)
{
    const char *setting = getenv("STOKER_PRINTS");
    return how->echo || (!how->quiet && strcmp(stk_text_or(setting, "on"), "off") != 0);
}

static int open_prints(stk_cli_watcher *w, stk_err *err)
{
    stk_style out = stk_cli_style(stdout), errs = stk_cli_style(stderr);
    const stk_prints_config config = {
        .flow = w->how->echo,
        .to_stderr = stk_cli_json(w->cli),
        .utf8 = errs.utf8,
        .streams = {{isatty(1) != 0, out.colour}, {isatty(2) != 0, errs.colour}}};
    if (prints_are_wanted(w->how)) {
        w->prints = stk_prints_new(&config, stk_run_view(w->run), w->writer);
        return stk_err_if_null(w->prints, err);
    }
    return 0;
}

static int on_open(void *arg, stk_run *run, stk_err *err)
{
    stk_cli_watcher *w = arg;
    bool json = stk_cli_json(w->cli);
    stk_style style = stk_cli_style(stderr);
    w->run = run;
    w->writer = stk_writer_new();
    STK_TRY(stk_err_if_null(w->writer, err));
    w->stderr_out = fopencookie(w, "w", (cookie_io_functions_t){.write = write_stderr});
    STK_TRY(stk_err_if_null(w->stderr_out, err));
    stk_progress_config config = {.out = w->stderr_out,
                                  .tty = isatty(2) && !json,
                                  .colour = style.colour,
                                  .utf8 = style.utf8,
                                  .quiet = w->how->quiet || w->how->echo || json,
                                  .usage = usage,
                                  .usage_arg = w,
                                  .bar = bar,
                                  .bar_arg = w};
    if (config.tty && !config.quiet) {
        config.eta = w->eta = stk_eta_new(stk_run_view(run), stk_run_store(run));
    }
    w->progress = stk_progress_new(&config, stk_run_view(run));
    STK_TRY(stk_err_if_null(w->progress, err));
    STK_TRY(open_prints(w, err));
    stk_cli_early_end(&w->early);
    return 0;
}

/* Queues the lines that were read, below the progress lines that are older. The live lines are
 * erased before, and drawn again by the next tick. */
static void put_prints(stk_cli_watcher *w, bool was_behind)
{
    if (!stk_prints_has_lines(w->prints)) {
        return;
    }
    if (was_behind) { /* the line about the task's end waits for its last prints */
        stk_progress_erase(w->progress);
    } else {
        stk_progress_clear(w->progress);
    }
    stk_prints_put(w->prints);
    w->is_erased = true;
}

static void on_event(void *arg, const stk_event_row *row)
{
    stk_cli_watcher *w = arg;
    if (w->prints != NULL) {
        bool was_behind = stk_prints_is_behind(w->prints);
        stk_prints_event(w->prints, row);
        if (!was_behind && stk_prints_is_behind(w->prints)) { /* its prints come before its end */
            (void)stk_prints_tick(w->prints, stk_run_now_ms(w->run));
            put_prints(w, false);
        }
    }
    stk_progress_event(w->progress, row);
}

static void on_started(void *arg, uint32_t task, int64_t pid)
{
    const stk_cli_watcher *w = arg;
    if (w->prints != NULL) {
        stk_prints_started(w->prints, task, pid);
    }
}

static void on_signal(void *arg, uint32_t n)
{
    const stk_cli_watcher *w = arg;
    stk_cli_front_signal(w->how->front_fd, n);
}

static int64_t sooner(int64_t a_ms, int64_t b_ms) /* -1: never */
{
    return a_ms < 0 || b_ms < 0 ? MAX(a_ms, b_ms) : MIN(a_ms, b_ms);
}

static int64_t on_tick(void *arg, int64_t now_ms)
{
    stk_cli_watcher *w = arg;
    int64_t next = -1;
    bool is_behind = false;
    if (w->prints != NULL) {
        is_behind = stk_prints_is_behind(w->prints);
        next = stk_prints_tick(w->prints, now_ms);
        put_prints(w, is_behind);
        is_behind = stk_prints_is_behind(w->prints);
    }
    if (!is_behind && !stk_writer_is_busy(w->writer)) {
        if (w->is_erased) {
            stk_progress_redraw(w->progress, now_ms);
            w->is_erased = false;
        }
        next = sooner(next, stk_progress_tick(w->progress, now_ms));
    }
    stk_writer_go(w->writer);
    return next;
}

void stk_cli_watch_end(stk_cli_watcher *w, int signal_fd)
{
    bool is_on = w->writer != NULL;
    w->is_over = true;
    while (is_on && w->prints != NULL && stk_prints_is_behind(w->prints)) {
        is_on = stk_writer_wait(w->writer, signal_fd);
        (void)on_tick(w, 0);
    }
    if (w->prints != NULL) {
        put_prints(w, false);
    }
    if (w->progress != NULL) {
        stk_progress_clear(w->progress);
    }
    if (is_on) {
        (void)stk_writer_wait(w->writer, signal_fd);
    }
}

void stk_cli_watch_free(stk_cli_watcher *w)
{
    stk_progress_done(w->progress);
    stk_eta_free(w->eta);
    if (w->stderr_out != NULL) {
        (void)fclose(w->stderr_out);
    }
    stk_prints_free(w->prints);
    stk_writer_free(w->writer);
}

static void on_trouble(void *arg, const stk_err *err)
{
    stk_cli_watcher *w = arg;
    char text[1400];
    stk_err_format(err, text, (int)sizeof text);
    if (w->progress == NULL || w->is_over) {
        fprintf(stderr, "stoker: %s\n", text);
        return;
    }
    stk_progress_clear(w->progress);
    w->is_erased = true;
    fprintf(w->stderr_out, "stoker: %s\n", text);
    fflush(w->stderr_out);
    stk_writer_go(w->writer);
}

stk_run_calls stk_cli_watch_calls(stk_cli_watcher *watcher)
{
    return (stk_run_calls){.on_store = on_store,
                           .on_open = on_open,
                           .on_begin = on_begin,
                           .on_event = on_event,
                           .on_started = on_started,
                           .on_signal = on_signal,
                           .on_tick = on_tick,
                           .on_trouble = on_trouble,
                           .arg = watcher};
}
