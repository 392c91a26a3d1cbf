/* cli_run: what `run` and `resume` share: options → a plan, a backend, an engine; progress and the
 * summary. */
#ifndef STK_CLI_RUN_H
#define STK_CLI_RUN_H

#include <jansson.h>

#include "cli/cli.h"
#include "plan/plan.h"
#include "preflight/preflight.h"
#include "report/report_view.h"
#include "spec/spec.h"
#include "stack/stack.h"

/* Options that decide how a run goes, of the command line or of STOKER_RUN_OPTIONS. */
typedef struct stk_run_options {
    stk_policy policy;
    bool has_policy;      /* the user said it */
    int mode;             /* stk_mode, or -1: the spec's */
    uint32_t max_workers; /* 0: no limit but the CPUs */
    bool use_cache;
    bool quiet;
    bool echo; /* what steps write appears on our stdout and stderr */
    bool use_new_code;
    bool plan;          /* only show what would be done */
    bool build;         /* with plan: make the images ready, too */
    const char *name;   /* of the run, or NULL */
    const char *python; /* interpreter, or NULL */
    const char *with;   /* the stack, or NULL: local */
    const char *resume; /* run to take up, or NULL */
    /* With `resume`: it is taken up to be ended (`at_once`: without grace time), no more. */
    bool cancel, at_once;
    /* Run whose finished tasks are taken over, but for those of a step; or NULL. */
    const char *clone, *clone_until;
    bool clone_only; /* and nothing else is done */
    int server_fd;   /* fork server, or -1 */
    int front_fd;    /* JSON lines for the front, or -1 */
} stk_run_options;

/* "file.py" or "file.py:name": the words after it are the file's own. */
bool stk_cli_is_python(const char *word);
/* A file that is run as a program: what follows it on the command line is its own. */
bool stk_cli_is_program(const char *word);
/* Reads the options that both commands have. */
int stk_cli_run_options(const stk_cli *cli, stk_run_options *ret, stk_err *err);
/* A run that can't begin: told to the front end, or printed where there is none. */
int stk_cli_run_refused(const stk_cli *cli, const stk_run_options *options, stk_err *err);
/* Runs (or resumes) a pipeline to its end; returns the exit status. Prints errors itself. */
int stk_cli_run_spec(const stk_cli *cli, stk_spec *spec, const stk_run_options *options);
/* Before the plan, where steps ask for devices: what isn't fit is taken out of the list; the
 * findings (with an arena) are kept. */
int stk_cli_check_devices(const stk_spec *spec, stk_accel *accel, stk_findings *findings,
                          stk_err *err);
/* After it, where steps get some: what `devices` says and what speaks against the frameworks become
 * notes of the plan; a framework that can't use the devices of a step that uses it is
 * STK_E_RESOURCES. Steps that `places` has in containers have frameworks of their own. */
int stk_cli_check_steps(const stk_spec *spec, const stk_run_options *options,
                        const stk_place *places, stk_accel *accel, const stk_findings *devices,
                        stk_plan *plan, stk_err *err);
/* STOKER_ALLOW_CPU_BUILD is on, in the step's environment or ours. */
bool stk_cli_allows_cpu_build(const stk_step *step);
/* The document that --spec, --spec-fd or the first argument names. */
int stk_cli_load_spec(const stk_cli *cli, stk_spec **ret_spec, stk_err *err);
/* --simulate SPEC: this process and those that it starts see that machine's devices. */
int stk_cli_simulate(const stk_cli *cli, stk_err *err);
/* Applies every --param and checks that none is missing. */
int stk_cli_params(const stk_cli *cli, stk_spec *spec, stk_err *err);
/* The values that the run was begun with; `params`: an object, NULL: none are on record. */
int stk_cli_same_params(stk_spec *spec, json_t *params, const char *run, stk_err *err);
/* Its stack, unless the options name one, and the machine that it simulates. In `arena`. */
void stk_cli_same_place(const stk_view *view, stk_run_options *options, stk_arena *arena);
/* Of a run whose engine was killed a moment ago: until its guard, which ends its tasks, has let go
 * of it; for 5 seconds at most. */
void stk_cli_await_end(stk_store *store, const char *run);
/* Which steps of the spec have their result in this run, for stk_plan_new_rest: in `arena`. */
int stk_cli_settled(const stk_spec *spec, const stk_view *view, stk_arena *arena,
                    const bool **ret_settled, stk_err *err);
/* What earlier runs of each step needed of a device's memory, for stk_plan_new; NULL where no step
 * says gpu_memory, or no store is there yet. Lives in `arena`. */
int stk_cli_gpu_peaks(const stk_spec *spec, stk_arena *arena, const int64_t **ret_peaks,
                      stk_err *err);
/* Replaces this process by `python file args…` with the options in STOKER_RUN_OPTIONS; returns only
 * on failure. */
int stk_cli_exec_python(const stk_cli *cli, const stk_run_options *options, const char *file,
                        char **args);

#endif
