/* What the files of this room share. */
#ifndef STK_SHOW_PRIVATE_H
#define STK_SHOW_PRIVATE_H

#include "base/json.h"
#include "base/limits.h"
#include "store/view/view.h"

/* "998 succeeded, 2 failed": the step's tasks by state. */
void stk_show_counts(const stk_view_step *step, stk_buf *out);

/* --- show_json.c, show_json_grow.c --- */

/* A member that is JSON already. */
void stk_show_raw(stk_buf *out, const char *key, const char *json, const char *otherwise);
void stk_show_asked(stk_buf *out, const stk_view_amounts *asked, const stk_step *step);
/* The sentence that stands alone: who, what, how often tried. */
void stk_show_error(stk_buf *out, const stk_view_task *task, const stk_view_details *d,
                    stk_arena *arena);
/* The members of one value of "steps", without the braces. */
int stk_show_task_members(const stk_view *view, uint32_t i_task, stk_arena *arena, stk_buf *out,
                          stk_err *err);
/* The members of "steps" of a growing run, its closing brace, and "tasks". */
int stk_show_put_grown(const stk_view *view, stk_buf *out, stk_err *err);

/* "3 checkpoints (1.2 MB)"; NULL: it has none. */
const char *stk_show_checkpoints(const stk_view_details *details, stk_arena *arena);

#endif
