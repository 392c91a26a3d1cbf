/* The style sheets of the cards. */
#ifndef STK_SHOW_CSS_H
#define STK_SHOW_CSS_H

extern const char stk_show_css[];
extern const char stk_show_alike_css[]; /* for a run's */
extern const char stk_show_task_css[];  /* a task's card has both */

#endif
