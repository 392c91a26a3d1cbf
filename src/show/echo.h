/* echo: what tasks write, as lines on our own stdout and stderr while a run goes on
 * (`stoker run --echo`).
 *
 * Each line as a whole with "[RUN/STEP/ID (pid P)] " before it, within a tenth of a second, and all
 * of a task's lines before its end is told. Nothing is looked at while no task runs. Secrets are
 * stars: the logs have them so.
 */
#ifndef STK_SHOW_ECHO_H
#define STK_SHOW_ECHO_H

#include "store/view/view.h"

typedef struct stk_echo stk_echo;

stk_echo *stk_echo_new(const stk_view *view); /* borrowed; NULL: out of memory */
/* A row that the view has folded already. */
void stk_echo_event(stk_echo *echo, const stk_event_row *row);
/* The current attempt of `task` has a process. */
void stk_echo_started(stk_echo *echo, uint32_t task, int64_t pid);
/* Copies what is new, if it is time. Milliseconds until it wants to be called again; -1: only after
 * the next event. now_ms: any clock. */
int64_t stk_echo_tick(stk_echo *echo, int64_t now_ms);
void stk_echo_free(stk_echo *echo); /* NULL is fine */

#endif
