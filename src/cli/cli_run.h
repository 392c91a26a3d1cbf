/* cli_run: shared by `run`, `resume`, `plan`, `build` and `cancel`: turns the command line into a
 * run's options, and drives a run with progress and summary on the terminal or for a front end. */
#ifndef STK_CLI_RUN_H
#define STK_CLI_RUN_H

#include "cli/cli.h"
#include "run/run.h"

/* The options of a run, from the command line or STOKER_RUN_OPTIONS, and what to show of it. */
typedef struct stk_cli_run {
    stk_run_options options;
    bool quiet;
    bool echo;      /* print what steps write in the style of flows */
    bool plan;      /* only show the plan */
    bool build;     /* with plan: also make the images ready */
    const char *to; /* with plan: write batch scripts into this folder instead; or NULL */
    int front_fd;   /* the front end's, for JSON lines, or -1 */
} stk_cli_run;

/* "file.py" or "file.py:name". */
bool stk_cli_is_python(const char *word);
/* The defaults, without any option. */
stk_cli_run stk_cli_run_plain(const stk_cli *cli);
/* Reads the options that these commands share. */
int stk_cli_run_options(const stk_cli *cli, stk_cli_run *ret, stk_err *err);
/* Reports that a run can't begin: to the front end, else on stderr. Returns the exit status. */
int stk_cli_run_refused(const stk_cli *cli, const stk_cli_run *how, stk_err *err);
/* Runs (or resumes) a pipeline to its end; returns the exit status. Prints errors itself. */
int stk_cli_run_spec(const stk_cli *cli, stk_spec *spec, const stk_cli_run *how);
/* Loads the document that --spec, --spec-fd or the first argument names. */
int stk_cli_load_spec(const stk_cli *cli, stk_spec **ret_spec, stk_err *err);
/* --simulate SPEC: makes this process and its children see the devices of that machine. */
int stk_cli_simulate(const stk_cli *cli, stk_err *err);
/* Applies every --param and checks that every parameter has a value. */
int stk_cli_params(const stk_cli *cli, stk_spec *spec, stk_err *err);
/* Replaces this process by `python file args…` with the options in STOKER_RUN_OPTIONS; returns only
 * on failure. */
int stk_cli_exec_python(const stk_cli *cli, const stk_cli_run *how, const char *file, char **args,
                        stk_err *err);
/* Forks. The child gets a new session, no stdin, and a log in the store for its output; it must
 * write the run's id to STOKER_DETACH_FD. The parent waits for the id, prints it and exits. Returns
 * only in the child (0) or on failure. */
int stk_cli_detach(const stk_cli *cli, stk_err *err);
/* True for the file endings of pipeline documents, and for "-". */
bool stk_cli_is_document(const char *word);
/* Adds the Dockerfiles of the steps (`only`: of this step) whose image has to be built. */
int stk_cli_put_dockerfiles(const stk_cli *cli, const stk_spec *spec, const char *only,
                            stk_buf *out, stk_err *err);
/* Finds the driver of a backend on other machines by name (stk_driver_find). If STOKER_REMOTE_FAKE
 * is set, for tests, returns the fake for every name. */
const stk_driver_kind *stk_cli_driver(const char *name);

#endif
