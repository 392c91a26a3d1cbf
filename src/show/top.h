/* top: what runs on this host now, of every run, and what its devices do. */
#ifndef STK_SHOW_TOP_H
#define STK_SHOW_TOP_H

#include "show/show_text.h"

typedef struct stk_top stk_top;

/* Takes the first look: a share of the CPU is a difference of two. *ret must be closed, also after
 * an error. */
int stk_top_open(stk_top **ret, stk_err *err);
/* One picture, at most `max_lines` lines of it (0: no limit); `style` NULL: as JSON. */
int stk_top_draw(stk_top *top, const stk_style *style, int max_lines, stk_buf *out, stk_err *err);
void stk_top_close(stk_top *top); /* NULL is fine */

#endif
