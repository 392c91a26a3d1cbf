/* cli_run: what `run`, `resume`, `plan`, `build` and `cancel` share: the command line's options as
 * a run's, and a run with its progress and summary on the terminal or for a front end. */
#ifndef STK_CLI_RUN_H
#define STK_CLI_RUN_H

#include "cli/cli.h"
#include "run/run.h"

/* Options that decide how a run goes, of the command line or of STOKER_RUN_OPTIONS, and what is
 * shown of it. */
typedef struct stk_cli_run {
    stk_run_options options;
    bool quiet;
    bool echo;    /* what steps write appears on our stdout and stderr */
    bool plan;    /* only show what would be done */
    bool build;   /* with plan: make the images ready, too */
    int front_fd; /* JSON lines for the front, or -1 */
} stk_cli_run;

/* "file.py" or "file.py:name": the words after it are the file's own. */
bool stk_cli_is_python(const char *word);
/* A file that is run as a program: what follows it on the command line is its own. */
bool stk_cli_is_program(const char *word);
/* What a run has that nothing was said of. */
stk_cli_run stk_cli_run_plain(const stk_cli *cli);
/* Reads the options that these commands have. */
int stk_cli_run_options(const stk_cli *cli, stk_cli_run *ret, stk_err *err);
/* A run that can't begin: told to the front end, or printed where there is none. */
int stk_cli_run_refused(const stk_cli *cli, const stk_cli_run *how, stk_err *err);
/* Runs (or resumes) a pipeline to its end; returns the exit status. Prints errors itself. */
int stk_cli_run_spec(const stk_cli *cli, stk_spec *spec, const stk_cli_run *how);
/* The document that --spec, --spec-fd or the first argument names. */
int stk_cli_load_spec(const stk_cli *cli, stk_spec **ret_spec, stk_err *err);
/* --simulate SPEC: this process and those that it starts see that machine's devices. */
int stk_cli_simulate(const stk_cli *cli, stk_err *err);
/* Applies every --param and checks that none is missing. */
int stk_cli_params(const stk_cli *cli, stk_spec *spec, stk_err *err);
/* Replaces this process by `python file args…` with the options in STOKER_RUN_OPTIONS; returns only
 * on failure. */
int stk_cli_exec_python(const stk_cli *cli, const stk_cli_run *how, const char *file, char **args,
                        stk_err *err);
/* Forks. In the child: a new session, stdin from nowhere, output to a log in the store; the run's
 * id is to be written to STOKER_DETACH_FD. The parent waits for that, prints it and exits. Returns
 * only in the child (0) or on failure. */
int stk_cli_detach(const stk_cli *cli, stk_err *err);
/* A pipeline document by its ending. */
bool stk_cli_is_document(const char *word);
/* The Dockerfiles of the steps (`only`: of this one) that need an image built. */
int stk_cli_put_dockerfiles(const stk_cli *cli, const stk_spec *spec, const char *only,
                            stk_buf *out, stk_err *err);
/* The engines that runs may send their steps to (stk_driver_find). Where STOKER_REMOTE_FAKE is set
 * (tests), the fake whatever the name. */
const stk_driver_kind *stk_cli_driver(const char *name);

#endif
