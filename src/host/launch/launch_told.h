/* What is told of a gang: a hang, what each rank waits in, how it ended. */
#ifndef STK_LAUNCH_TOLD_H
#define STK_LAUNCH_TOLD_H

#include "host/launch/launch_private.h"

/* When to look next (mono ms), INT64_MAX: never. */
void stk_launch_hang_begin(stk_gang *g);
/* True: nothing has moved for config->hang_ms; g->text says so, stacks are written. */
bool stk_launch_hang_look(stk_gang *g, int64_t now_ms);
/* Stacks of all ranks, and g->text. */
void stk_launch_hang_tell(stk_gang *g);
void stk_launch_hang_end(stk_gang *g);

/* Reads what rank told last; `group` NULL: of the group that it waits in. True: it is new. */
bool stk_launch_pulse_read(stk_gang *g, uint32_t rank, const char *group);
/* Does the rank wait in a collective? What it told long ago counts for nothing: whoever holds
 * Python's lock (GIL) in compiled code can't tell any more. */
bool stk_launch_pulse_waits(const stk_gang *g, uint32_t rank);
/* Files of an earlier attempt. */
void stk_launch_pulse_forget(stk_gang *g, uint32_t rank);
/* Has each rank name what it waits in, and keep PyTorch's account of it; takes up to 3 s. */
void stk_launch_pulse_ask(stk_gang *g);
/* The rank that keeps the others waiting, by their counts; `why` goes after its name. -1: nobody.
 */
int32_t stk_launch_pulse_missing(stk_gang *g, char *why, size_t size);
/* "ranks 0, 2-5" */
void stk_launch_add_ranks(const stk_gang *g, const bool *in, stk_buf *out);
/* Where all stand: their Python stacks, alike ones once. */
void stk_launch_stacks(const stk_gang *g, stk_buf *out);

int64_t stk_launch_first(const stk_gang *g); /* its number in the world; -1: none */
void stk_launch_add_member(const stk_gang *g, uint32_t rank, stk_buf *out);
/* g->text for the rank that failed first. */
void stk_launch_blame(stk_gang *g);
/* The traceback in `text`, or NULL; *ret_last: its last line ("ValueError: boom"). */
const char *stk_launch_traceback(const char *text, size_t *ret_len, const char **ret_last,
                                 size_t *ret_last_len);
/* Into g->past, when an attempt is over. */
void stk_launch_remember(stk_gang *g);
void stk_launch_summary(const stk_gang *g, const stk_launch_end *end, stk_buf *out);
int stk_launch_result(const stk_gang *g, const stk_launch_end *end, stk_err *err);

#endif
