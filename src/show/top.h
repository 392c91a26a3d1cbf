/* top: what runs on this host now, across all runs, and the state of its devices. */
#ifndef STK_SHOW_TOP_H
#define STK_SHOW_TOP_H

#include "show/show_text.h"

typedef struct stk_top stk_top;

/* Takes the first sample: CPU usage is the difference of two. *ret must be closed, even after an
 * error. */
int stk_top_open(stk_top **ret, stk_err *err);
/* Adds one picture of at most `max_lines` lines (0: no limit); `style` NULL: as JSON. */
int stk_top_draw(stk_top *top, const stk_style *style, int max_lines, stk_buf *out, stk_err *err);
void stk_top_close(stk_top *top); /* NULL is fine */

#endif
