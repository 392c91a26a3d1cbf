#include "cli/cli_watch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "cli/cli_front.h"
#include "cli/cli_read.h"
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

static int on_open(void *arg, stk_run *run, stk_err *err)
{
    stk_cli_watcher *w = arg;
    bool json = stk_cli_json(w->cli);
    stk_style style = stk_cli_style(stderr);
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
    const stk_cli_watcher *w = arg;
    stk_progress_event(w->progress, row);
    if (w->echo != NULL) {
        stk_echo_event(w->echo, row);
    }
}

static void on_started(void *arg, uint32_t task, int64_t pid)
{
    const stk_cli_watcher *w = arg;
    if (w->echo != NULL) {
        stk_echo_started(w->echo, task, pid);
    }
}

static void on_signal(void *arg, uint32_t n)
{
    const stk_cli_watcher *w = arg;
    stk_cli_front_signal(w->how->front_fd, n);
}

static int64_t on_tick(void *arg, int64_t now_ms)
{
    const stk_cli_watcher *w = arg;
    int64_t echo = w->echo == NULL ? -1 : stk_echo_tick(w->echo, now_ms);
    int64_t progress = stk_progress_tick(w->progress, now_ms);
    if (echo < 0 || progress < 0) {
        return MAX(echo, progress);
    }
    return MIN(echo, progress);
}

static void on_trouble(void *arg, const stk_err *err)
{
    (void)arg;
    fprintf(stderr, "stoker: %s; %s\n", err->text, err->hint);
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
