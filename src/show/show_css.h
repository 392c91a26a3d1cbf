/* The style sheets of the cards. */
#ifndef STK_SHOW_CSS_H
#define STK_SHOW_CSS_H

extern const char stk_show_css[];
extern const char stk_show_alike_css[]; /* for a run's */
extern const char stk_show_parts_css[]; /* of components, artifacts and narrow screens */
extern const char stk_show_plot_css[];  /* of comparisons, steps over runs and device hours */
extern const char stk_show_lanes_css[]; /* of what devices and CPUs did */

#endif
