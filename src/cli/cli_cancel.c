/* `stoker cancel`: ask a live engine to end its run. */
#include <errno.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli_read.h"
#include "exec/exec.h"
#include "report/report_view.h"
#include "sys/file.h"
#include "sys/proc.h"

/* The engine that holds the run's lock, by the lock's text "pid start_time …"; 0: none, or not this
 * process any more. */
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

/* No engine has it. What it sent to other machines may go on without one, and costs. */
static int refuse(stk_store *store, const char *run, stk_err *err)
{
    stk_view *view = NULL;
    uint32_t n = stk_view_load(store, run, &view, NULL) < 0 ? 0 : stk_view_n_tasks(view);
    int rc = stk_err_set(err, STK_E_NOT_FOUND, "run %s is not going on: there is nothing to cancel",
                         run);
    for (uint32_t i = 0; i < n; i++) {
        const stk_view_task *t = stk_view_get_task(view, i);
        json_t *said = t->state != STK_TASK_RUNNING || t->start_data == NULL
                           ? NULL
                           : json_loads(t->start_data, 0, NULL);
        const json_t *granted = json_object_get(said, "granted");
        const char *stack = json_string_value(json_object_get(granted, "stack"));
        const char *backend = json_string_value(json_object_get(granted, "backend"));
        bool is_away =
            backend != NULL && strcmp(backend, "local") != 0 && strcmp(backend, "docker") != 0;
        if (is_away) {
            rc = stk_err_set(err, STK_E_NOT_FOUND,
                             "no engine runs %s any more, but step '%s' may go on on %s (stack "
                             "'%s')",
                             run, t->label, backend, stack != NULL ? stack : backend);
            stk_err_hint(err, "'stoker resume %s' watches it again, and Ctrl-C then ends it", run);
            n = 0;
        }
        json_decref(said);
    }
    stk_view_free(view);
    return rc;
}

static int run_cancel(stk_cli *cli)
{
    stk_err err = {0};
    stk_store *store = NULL;
    char run[40];
    int status = stk_cli_at_most(cli, 1);
    if (status != 0 || (status = stk_cli_store(cli, STK_STORE_READONLY, &store)) != 0) {
        return status;
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    int rc = stk_store_resolve_run(
        store, stk_cli_arg(cli, 0) != NULL ? stk_cli_arg(cli, 0) : "latest", run, &err);
    pid_t pid = rc < 0 ? 0 : engine_of(store, run, arena);
    if (rc == 0 && pid <= 0) {
        rc = refuse(store, run, &err);
    } else if (rc == 0 &&
               sigqueue(pid, SIGTERM, (union sigval){.sival_int = STK_EXEC_CANCEL}) < 0) {
        rc = stk_err_sys(&err, STK_E_SYS, errno, "asking the engine of run %s (pid %d) to end", run,
                         (int)pid);
    } else if (rc == 0 && stk_cli_flag(cli, "now")) {
        (void)kill(pid, SIGUSR1); /* a second SIGTERM would melt into the first */
    }
    stk_store_close(store);
    if (rc < 0) {
        return stk_cli_fail(cli, &err);
    }
    if (stk_cli_json(cli)) {
        printf("{\"run\":\"%s\",\"pid\":%d,\"cancelling\":true}\n", run, (int)pid);
    } else {
        printf("run %s is ending its steps\n", run);
    }
    return 0;
}

static const stk_option options_of_cancel[] = {
    {"now", 0, NULL, "end the steps at once, without their grace time", false}, {NULL}};

const stk_command stk_cmd_cancel = {.name = "cancel",
                                    .summary = "end a run that is going on",
                                    .usage = "[options] [RUN]",
                                    .text = "Running steps get SIGTERM and, after their grace "
                                            "time, SIGKILL. The run can be resumed: steps "
                                            "with checkpoints go on where they were.",
                                    .options = options_of_cancel,
                                    .run = run_cancel};
