/* One run from plan to summary, on the terminal or for a front end. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "cli/cli_front.h"
#include "cli/cli_read.h"
#include "cli/cli_watch.h"
#include "show/show_html.h"
#include "show/show_json.h"
#include "show/show_text.h"
#include "sys/file.h"

/* --- signals --- */

/* Reports a signal before the first task: nothing runs yet, so nothing is lost. */
static void report_signal(void *arg, int number)
{
    const stk_cli_watcher *w = arg;
    const char *resume = w->how->options.resume;
    const char *word = number == SIGINT ? "cancelled" : "interrupted";
    char text[256];
    (void)snprintf(text, sizeof text, "%s before the first task%s%s", word,
                   stk_text_when(resume != NULL, "; 'stoker resume' goes on: "),
                   stk_text_or(resume, ""));
    if (w->how->front_fd < 0) {
        dprintf(STDERR_FILENO, "stoker: %s\n", text);
    }
    stk_cli_front_end(w->how->front_fd, w->run, word, text);
}

/* --- the end --- */

static int put_summary(const stk_cli_watcher *w, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(256u << 20);
    STK_TEXT_AUTO card = NULL;
    const stk_view *view = stk_run_view(w->run);
    stk_store *store = stk_run_store(w->run);
    int64_t now = stk_run_now_ms(w->run);
    stk_style style = stk_cli_style(stderr);
    STK_TRY(stk_run_view_check(w->run, err));
    STK_TRY(stk_html_write_card(view, store, now, &card, err));
    if (stk_cli_json(w->cli)) {
        int rc = stk_show_json_run(view, &buf, err);
        (void)fwrite(buf.data, 1, buf.len, stdout);
        return rc;
    }
    if (w->how->quiet) {
        STK_TRY(stk_text_failures(view, store, &style, &buf, err));
    } else {
        STK_TRY(stk_text_summary(view, store, card, now, &style, &buf, err));
    }
    if (buf.len > 0) {
        (void)fwrite(buf.data, 1, buf.len, stderr);
        fflush(stderr);
    }
    return 0;
}

static void print_cancelled(const stk_cli_watcher *w, const char *word)
{
    if (!stk_cli_json(w->cli)) {
        printf("run %s: %s\n", stk_run_id(w->run), word);
        return;
    }
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "run", stk_run_id(w->run));
    stk_json_put_text(&out, "status", word);
    stk_json_close(&out, '}');
    puts(stk_text_or(out.data, "{}"));
}

/* The run can't begin or go on. A front end raises the error's text as its own error; without a
 * front end we print it. */
static int give_up(const stk_cli_watcher *w, const stk_err *err)
{
    if (w->how->front_fd < 0) {
        return stk_cli_fail(w->cli, err);
    }
    stk_cli_front_refuse(w->how->front_fd, w->run, err);
    return stk_err_exit_status(err->code);
}

int stk_cli_run_refused(const stk_cli *cli, const stk_cli_run *how, stk_err *err)
{
    stk_cli_watcher w = {.cli = cli, .how = how};
    return give_up(&w, err);
}

static const char *const words[] = {"succeeded", "failed", "cancelled", "interrupted"};

/* Drives the run from its first task on. */
static int watch(stk_cli_watcher *w, int signal_fd, stk_run_status *ret_status, stk_err *err)
{
    if (!w->how->quiet && stk_run_simulated(w->run) != NULL) {
        fprintf(stderr,
                "stoker: %s: steps see these devices, and nothing uses a real one; "
                "what steps with such devices give is not cached\n",
                stk_run_simulated(w->run));
    }
    int rc = stk_run_loop(w->run, ret_status, err);
    stk_cli_watch_end(w, signal_fd);
    STK_TRY(rc);
    if (w->how->options.cancel) {
        print_cancelled(w, words[*ret_status]);
    } else if (put_summary(w, err) < 0) { /* the run itself has ended and is recorded */
        fprintf(stderr, "stoker: run %s %s, but writing its summary failed: %s\n",
                stk_run_id(w->run), words[*ret_status], err->text);
        *err = (stk_err){0};
    }
    return stk_run_sync(w->run, err);
}

static int report_end(const stk_cli_watcher *w, stk_run_status status)
{
    static const int exits[] = {[STK_RUN_SUCCEEDED] = 0,
                                [STK_RUN_FAILED] = 1,
                                [STK_RUN_CANCELLED] = 130,
                                [STK_RUN_INTERRUPTED] = 143};
    const stk_run_options *o = &w->how->options;
    if (status == STK_RUN_CANCELLED && !o->cancel && !stk_cli_json(w->cli)) {
        fprintf(stderr, "stoker: 'stoker resume %s' continues the run where it ended\n",
                stk_run_id(w->run));
    }
    stk_cli_front_end(w->how->front_fd, w->run, words[status], stk_run_error(w->run));
    bool is_wanted = o->cancel || (o->clone_only && status == STK_RUN_INTERRUPTED);
    return is_wanted ? 0 : exits[status];
}

int stk_cli_run_spec(const stk_cli *cli, stk_spec *spec, const stk_cli_run *how)
{
    stk_cli_watcher w = {.cli = cli, .how = how};
    stk_err err = {0};
    stk_run_status status = STK_RUN_FAILED;
    if (how->front_fd >= 0) {
        (void)fcntl(how->front_fd, F_SETFD, FD_CLOEXEC);
    }
    if (how->options.server_fd >= 0) {
        (void)fcntl(how->options.server_fd, F_SETFD, FD_CLOEXEC);
    }
    stk_run_config config = {.spec = spec,
                             .options = &how->options,
                             .calls = stk_cli_watch_calls(&w),
                             .signal_fd = stk_cli_block_signals(),
                             .hangup_fd = how->front_fd};
    stk_cli_early_begin(&w.early, config.signal_fd, report_signal, &w);
    int rc = stk_run_open(&config, &w.run, &err);
    stk_cli_early_end(&w.early);
    if (rc == 0) {
        rc = watch(&w, config.signal_fd, &status, &err);
    } else {
        stk_cli_watch_end(&w, config.signal_fd);
    }
    int code = rc < 0 ? give_up(&w, &err) : report_end(&w, status);
    stk_cli_watch_free(&w);
    stk_run_close(w.run);
    stk_file_close(&config.signal_fd);
    return code;
}
