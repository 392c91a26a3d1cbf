/* Reports a run to the front end (the Python of the user's program) as JSON lines. Private to the
 * cli room. */
#ifndef STK_CLI_FRONT_H
#define STK_CLI_FRONT_H

#include "run/run.h"

/* `fd` is the front end's, or -1: there is none. */
void stk_cli_front_begin(int fd, const stk_run *run);
void stk_cli_front_signal(int fd, uint32_t n);
/* `run` NULL: it didn't begin; `error` NULL: no error. */
void stk_cli_front_end(int fd, const stk_run *run, const char *status, const char *error);
/* The run can't begin or go on. */
void stk_cli_front_refuse(int fd, const stk_run *run, const stk_err *err);

#endif
