/* echo: copies what tasks write to our own stdout and stderr while a run goes on (`stoker run
 * --echo`).
 *
 * Prints whole lines, each after "[RUN/STEP/ID (pid P)] ", within a tenth of a second, and all
 * lines of a task before it reports the task's end. Reads nothing while no task runs. Secrets
 * appear as stars because the logs have them so.
 */
#ifndef STK_SHOW_ECHO_H
#define STK_SHOW_ECHO_H

#include "store/view/view.h"

typedef struct stk_echo stk_echo;

stk_echo *stk_echo_new(const stk_view *view); /* borrows the view; NULL: out of memory */
/* Call it after the view has folded the row. */
void stk_echo_event(stk_echo *echo, const stk_event_row *row);
/* Call it when the current attempt of `task` has a process. */
void stk_echo_started(stk_echo *echo, uint32_t task, int64_t pid);
/* Copies new lines if it is time. Returns the milliseconds until the next call, or -1: none is
 * needed before the next event. now_ms: any clock. */
int64_t stk_echo_tick(stk_echo *echo, int64_t now_ms);
void stk_echo_free(stk_echo *echo); /* NULL is fine */

#endif
