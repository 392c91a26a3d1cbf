/* What the files that tell of a run's progress share. */
#ifndef STK_SHOW_PROGRESS_PRIVATE_H
#define STK_SHOW_PROGRESS_PRIVATE_H

#include "show/show_progress.h"
#include "show/show_text.h"

enum { STK_PROGRESS_NAME = 28 }; /* columns */

struct stk_progress {
    stk_progress_config config;
    stk_style style;
    const stk_view *view;
    uint32_t *running; /* tasks with a live line, in the order they started */
    uint32_t n_running;
    uint32_t cap_running;
    stk_buf pending; /* plain lines to be written */
    stk_buf frame;
    int *widths; /* columns of the live lines that are on the screen now */
    int n_widths;
    int cap_widths;
    int rows;
    int64_t drawn_ms;
    uint32_t cached_unsaid;
    uint32_t *n_said; /* of each step of a growing run: tasks whose lines, or line, were said */
    bool dirty;
};

/* "work ×1,000", in `out`. */
const char *stk_progress_wide_name(const stk_progress *p, uint32_t i_step, stk_buf *out);
/* Adds what came from the cache since, counted, to the pending lines. */
void stk_progress_say_cached(stk_progress *p);
/* What is above the live lines, then, if `live`, the live lines, in one write. */
void stk_progress_draw(stk_progress *p, bool live, int64_t now_ms);

#endif
