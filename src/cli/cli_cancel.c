/* `stoker cancel`: asks a live engine to end its run, or ends what a dead one left elsewhere. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "run/run_again.h"
#include "run/run_shared.h"
#include "store/view/view.h"
#include "sys/file.h"
#include "sys/proc.h"

/* The pid of the engine that holds the run's lock, whose file has "pid start_time …". 0: no process
 * holds it, or the pid now belongs to another process. */
static pid_t engine_of(stk_store *store, const char *run, stk_arena *arena)
{
    const char *folder = stk_store_run_folder(store, run, arena);
    const char *path = folder == NULL ? NULL : stk_arena_printf(arena, "%s/lock", folder);
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    int pid = 0;
    unsigned long long start = 0;
    if (path == NULL || !stk_store_run_is_live(store, run) ||
        stk_file_read(path, 4096, &text, &len, NULL) < 0 ||
        sscanf(text, "%d %llu", &pid, &start) != 2 || pid <= 1 ||
        stk_proc_start_time(pid) != start) {
        return 0;
    }
    return pid;
}

/* --- without an engine --- */

/* What the engine left running on other machines, by the record: the backend and stack, the first
 * step, and the number of steps. Texts live as long as the view. */
typedef struct left {
    const char *step;
    char where[200];
    uint32_t n;
} left;

static void find_left(const stk_view *view, left *ret)
{
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        const stk_view_task *t = stk_view_get_task(view, i);
        if (t->state != STK_TASK_RUNNING) {
            continue;
        }
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *granted = stk_json_get(stk_json_read(scratch, t->start_data), "granted");
        const char *stack = stk_json_get_text(granted, "stack");
        const char *backend = stk_json_get_text(granted, "backend");
        if (stack != NULL && backend != NULL && ret->n++ == 0) {
            ret->step = t->title;
            (void)snprintf(ret->where, sizeof ret->where, "%s (stack '%s')", backend, stack);
        }
    }
}

static void say_left(const left *l, const char *run)
{
    char more[40] = "";
    if (l->n > 1) {
        (void)snprintf(more, sizeof more, " and %u more", l->n - 1);
    }
    fprintf(stderr,
            "stoker: the engine of run %s has ended: ending what it left on %s: step '%s'%s\n", run,
            l->where, l->step, more);
}

/* Stacks are those of the folder in which the run began. */
static void enter_folder(const stk_json *origin)
{
    const char *cwd = stk_json_get_text(origin, "cwd");
    if (cwd != NULL && chdir(cwd) < 0) {
        return; /* the run is another machine's: use the stacks found from here */
    }
}

/* Takes the run over as `stoker resume` does, from its record alone, and ends it. */
static int end_left(const stk_cli *cli, stk_store *store, const char *run, const stk_view *view,
                    stk_arena *arena, stk_err *err)
{
    stk_cli_run how = stk_cli_run_plain(cli);
    how.options.has_policy = true;
    how.options.with = stk_cli_value(cli, "stack");
    how.options.resume = run;
    how.options.cancel = true;
    how.options.at_once = stk_cli_flag(cli, "now");
    STK_SPEC_AUTO spec = NULL;
    const char *text = NULL;
    size_t len = 0;
    stk_run_same_place(view, &how.options, arena);
    STK_TRY(stk_store_load_spec(store, run, arena, &text, &len, err));
    const stk_json *origin = stk_json_read(arena, stk_view_get_run(view)->origin);
    const char *file = stk_json_get_text(origin, "file");
    bool is_document = stk_json_get(origin, "argv") == NULL && file != NULL;
    const char *name = is_document && stk_file_exists(file) ? file : "pipeline";
    STK_TRY(stk_spec_parse(text, len, &(stk_spec_place){.path = name}, &spec, err));
    STK_TRY(stk_run_same_params(spec, view, err));
    if (setenv("STOKER_STORE", stk_store_path(store), 1) == 0) {
        enter_folder(origin);
    }
    return stk_cli_run_spec(cli, spec, &how);
}

/* No engine runs it here. Jobs on other machines go on without an engine, and cost money. */
static int cancel_left(const stk_cli *cli, stk_store *store, const char *text, stk_arena *arena,
                       stk_err *err)
{
    STK_VIEW_AUTO view = NULL;
    left l = {0};
    char run[40] = "";
    STK_TRY(stk_run_shared_bring(store, stk_cli_value(cli, "stack"), text, run, err));
    stk_run_await_end(store, run);
    STK_TRY(stk_view_load(store, run, &view, err));
    const char *status = stk_view_get_run(view)->status;
    bool is_over = strcmp(status, "succeeded") == 0 || strcmp(status, "failed") == 0 ||
                   strcmp(status, "cancelled") == 0;
    if (!is_over) {
        find_left(view, &l);
    }
    if (l.n == 0) {
        return stk_err_set(err, STK_E_NOT_FOUND,
                           "run %s is not running: there is nothing to cancel", run);
    }
    say_left(&l, run);
    return end_left(cli, store, run, view, arena, err);
}

static int ask_engine(const stk_cli *cli, pid_t pid, const char *run, stk_buf *out, stk_err *err)
{
    if (sigqueue(pid, SIGTERM, (union sigval){.sival_int = STK_EXEC_CANCEL}) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "signalling the engine of run %s (pid %d)", run,
                           (int)pid);
    }
    if (stk_cli_flag(cli, "now")) {
        (void)kill(pid, SIGUSR1); /* the kernel would merge a second SIGTERM with the first */
    }
    if (stk_cli_json(cli)) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "run", run);
        stk_json_put_whole(out, "pid", pid);
        stk_json_put_bool(out, "cancelling", true);
        stk_json_close(out, '}');
    } else {
        stk_buf_printf(out, "run %s is ending its steps", run);
    }
    return 0;
}

/* Who names a stack and no run may mean this folder's newest run or the stack's: to end the wrong
 * one is worse than to ask. */
static int refuse_doubt(const char *stack, const char *here, stk_err *err)
{
    char there[40];
    stk_err ignored = {0};
    if (stk_run_shared_newest(stack, there, &ignored) < 0 || strcmp(here, there) == 0) {
        return 0;
    }
    stk_err_set(err, STK_E_USAGE, "the newest run of this folder is %s, that of stack '%s' is %s",
                here, stack, there);
    stk_err_hint(err, "name the one to cancel");
    return STK_E_USAGE;
}

static int run_cancel(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    char run[40];
    const char *text = stk_text_or(stk_cli_arg(cli, 0), "latest");
    const char *stack = stk_cli_value(cli, "stack");
    int flags = stack != NULL ? STK_STORE_CREATE : 0;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_cli_store(flags, &store, err));
    if (stk_store_resolve_run(store, text, run, NULL) == 0) {
        if (stack != NULL && strcmp(text, "latest") == 0) {
            STK_TRY(refuse_doubt(stack, run, err));
        }
        pid_t pid = engine_of(store, run, arena);
        if (pid > 0) {
            return ask_engine(cli, pid, run, out, err);
        }
    }
    return cancel_left(cli, store, text, arena, err);
}

static const stk_option options_of_cancel[] = {
    {"now", 0, NULL, "end the steps at once, without their grace time"},
    {"stack", 0, "STACK", "cancel a run that only this stack's share has"},
    {NULL}};

const stk_command stk_cmd_cancel = {
    .name = "cancel",
    .summary = "end a run",
    .usage = "[options] [RUN]",
    .text = "Running steps get SIGTERM and, after their grace time, SIGKILL. The run can be "
            "resumed: steps with checkpoints continue from these.\n\n"
            "If the run's engine has ended but steps still run on other machines, this command "
            "takes the run over as 'stoker resume' does, ends those steps, and records the run as "
            "cancelled once they are gone. It submits nothing. --stack NAME does so for a run of "
            "another machine.",
    .options = options_of_cancel,
    .max_args = 1,
    .run = run_cancel};
