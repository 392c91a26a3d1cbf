/* The style sheet of the cards, as texts. */
#ifndef STK_REPORT_CSS_H
#define STK_REPORT_CSS_H

extern const char stk_report_css[];
extern const char stk_report_task_css[]; /* besides, for a task's card */

#endif
