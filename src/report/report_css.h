/* The style sheet of the card, as one text. */
#ifndef STK_REPORT_CSS_H
#define STK_REPORT_CSS_H

extern const char stk_report_css[];

#endif
