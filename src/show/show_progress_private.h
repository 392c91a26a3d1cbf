/* Shared by the files that show a run's progress. */
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
    stk_buf pending; /* plain lines still to be written */
    stk_buf frame;
    int *widths; /* widths in columns of the live lines on the screen */
    int n_widths;
    int cap_widths;
    int rows;
    int64_t drawn_ms;
    uint32_t cached_unreported;
    uint32_t *n_reported; /* by step of a growing run: how many tasks the lines so far cover */
    char *wait;           /* what a job waits for, as said last */
    bool dirty;
};

/* "work ×1,000", in `out`. */
const char *stk_progress_wide_name(const stk_progress *p, uint32_t i_step, stk_buf *out);
/* Adds a line to the pending ones with the number of steps cached since the last such line. */
void stk_progress_add_cached(stk_progress *p);
void stk_progress_erase_live(stk_progress *p);
/* Writes the pending lines and, if `live`, the live lines below them, in one write. */
void stk_progress_draw(stk_progress *p, bool live, int64_t now_ms);

#endif
