/* The style sheet of the cards, as texts. */
#ifndef STK_SHOW_CSS_H
#define STK_SHOW_CSS_H

extern const char stk_show_css[];
extern const char stk_show_task_css[]; /* besides, for a task's card */

#endif
