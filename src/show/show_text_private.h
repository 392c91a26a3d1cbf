/* Shared by the files that show a run as text. */
#ifndef STK_SHOW_TEXT_PRIVATE_H
#define STK_SHOW_TEXT_PRIVATE_H

#include "show/show_private.h"
#include "show/show_text.h"

/* With more than MANY steps, the table shows only the slowest. */
enum { MANY = 40, SLOWEST = 8, FAILURES = 10, TAIL = 8, NAMES = 6, NAMED = 60, LABEL = 11 };

typedef struct line_ctx {
    const stk_view *view;
    const stk_style *style;
    stk_arena *arena; /* scratch: reset after each task */
    int64_t now_ms;
    stk_buf *out;
    stk_err *err;
} line_ctx;

static inline const char *dot(const stk_style *style)
{
    return style->utf8 ? " · " : ", ";
}

/* "  totals     ": the word before a line below the table. */
void stk_text_put_label(const line_ctx *c, const char *word);
void stk_text_put_mark(const line_ctx *c, const char *status);
/* What failed, what was skipped because of it, and what to do next. Nothing if nothing failed. */
int stk_text_put_failures(const line_ctx *c);
/* After a failure, the commands that help: a line. `store` as in stk_text_summary. */
void stk_text_put_next(const line_ctx *c, stk_store *store);
int stk_text_put_failure(const line_ctx *c, uint32_t i_task);
/* "3.10 s (try 2)", in `arena`. */
const char *stk_text_took(const line_ctx *c, const stk_view_task *task, stk_arena *arena);
/* The table: one line per step, or only the slowest of many. In a growing run each line counts the
 * step's tasks. */
int stk_text_steps(const line_ctx *c);
/* A line below a table that leaves steps out: "9,990 succeeded, 8 failed; the slowest are
 * above". */
void stk_text_many(const line_ctx *c);

#endif
