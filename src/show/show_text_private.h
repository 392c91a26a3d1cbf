/* What the files that tell a run as text share. */
#ifndef STK_SHOW_TEXT_PRIVATE_H
#define STK_SHOW_TEXT_PRIVATE_H

#include "show/show_private.h"
#include "show/show_text.h"

/* Above MANY steps the table shows the notable ones only. */
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

void stk_text_put_mark(const line_ctx *c, const char *status);
/* What failed, what was skipped for it, and what to do next; nothing where all is well. */
int stk_text_put_failures(const line_ctx *c);
int stk_text_put_failure(const line_ctx *c, uint32_t i_task);
/* "3.10 s (try 2)", in `arena`. */
const char *stk_text_took(const line_ctx *c, const stk_view_task *task, stk_arena *arena);
/* The table: a line a step, of many the slowest; of a growing run a line a step with its tasks
 * counted. */
int stk_text_steps(const line_ctx *c);
/* Below the table, where it left steps out: "9,990 succeeded, 8 failed; the slowest are above". */
void stk_text_many(const line_ctx *c);

#endif
