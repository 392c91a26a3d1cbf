/* Reports on a gang: a hang, what each rank waits in, how it ended. */
#ifndef STK_LAUNCH_TOLD_H
#define STK_LAUNCH_TOLD_H

#include "host/launch/launch_private.h"

/* Starts the watchdog: sets g->hang.due_ms, the time of the first look (mono ms; INT64_MAX:
 * never). */
void stk_launch_hang_begin(stk_gang *g);
/* True: nothing has moved for config->hang_ms; g->text then says so, and the stacks are written. */
bool stk_launch_hang_look(stk_gang *g, int64_t now_ms);
/* Collects the stacks of all ranks and writes g->text. */
void stk_launch_hang_tell(stk_gang *g);
void stk_launch_hang_end(stk_gang *g);

/* Reads a rank's last report on `group` (NULL: the group that it waits in). True: it is new. */
bool stk_launch_pulse_read(stk_gang *g, uint32_t rank, const char *group);
/* Whether the rank waits in a collective. An old report doesn't count: compiled code that holds
 * Python's lock (GIL) prevents new ones. */
bool stk_launch_pulse_waits(const stk_gang *g, uint32_t rank);
/* Removes the files of an earlier attempt. */
void stk_launch_pulse_forget(stk_gang *g, uint32_t rank);
/* Makes each rank report what it waits in, and save PyTorch's flight record; takes up to 3 s. */
void stk_launch_pulse_ask(stk_gang *g);
/* The rank that keeps the others waiting, by their counts of collectives; `why` continues the
 * sentence after its name. -1: none.
 */
int32_t stk_launch_pulse_missing(stk_gang *g, char *why, size_t size);
/* "ranks 0, 2-5" */
void stk_launch_add_ranks(const stk_gang *g, const bool *in, stk_buf *out);
/* Adds the Python stacks of all ranks, identical ones once. */
void stk_launch_stacks(const stk_gang *g, stk_buf *out);

int64_t stk_launch_first(const stk_gang *g); /* the number, among all nodes' ranks, of the rank that
                                                failed first; -1: none */
void stk_launch_add_member(const stk_gang *g, uint32_t rank, stk_buf *out);
/* Writes g->text for the rank that failed first. */
void stk_launch_blame(stk_gang *g);
/* The traceback in `text`, or NULL; *ret_last: its last line ("ValueError: boom"). */
const char *stk_launch_traceback(const char *text, size_t *ret_len, const char **ret_last,
                                 size_t *ret_last_len);
/* Adds a finished attempt to g->past. */
void stk_launch_remember(stk_gang *g);
void stk_launch_summary(const stk_gang *g, const stk_launch_end *end, stk_buf *out);
int stk_launch_result(const stk_gang *g, const stk_launch_end *end, stk_err *err);

/* --- launch_errors.c --- */

int stk_launch_errors_open(stk_gang *g, stk_err *err);
const char *stk_launch_errors_path(const stk_gang *g, uint32_t rank, char ret[PATH_MAX]);
void stk_launch_errors_forget(stk_gang *g); /* removes the files of an earlier attempt */
/* Reads what failed ranks wrote; where stderr has no traceback, its end gets that text. */
void stk_launch_errors_read(stk_gang *g);
/* Writes our own TORCHELASTIC_ERROR_FILE, if there is one and the gang has failed. */
void stk_launch_errors_tell(const stk_gang *g, const stk_launch_end *end);
void stk_launch_errors_close(stk_gang *g);

#endif
