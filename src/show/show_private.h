/* Shared by the files of this room. */
#ifndef STK_SHOW_PRIVATE_H
#define STK_SHOW_PRIVATE_H

#include "base/json.h"
#include "base/limits.h"
#include "store/view/view.h"

/* How long it ran, or has been running until now_ms; 0: it never started. */
static inline int64_t stk_show_took_ms(int64_t started_ms, int64_t ended_ms, int64_t now_ms)
{
    int64_t end_ms = ended_ms != 0 ? ended_ms : now_ms;
    return started_ms > 0 && end_ms > started_ms ? end_ms - started_ms : 0;
}
/* The noun for counts: "step", or "task" in a growing run. */
static inline const char *stk_show_noun(const stk_view *view)
{
    return stk_view_grows(view) ? "task" : "step";
}
/* The number of the step's tasks that have ended. */
uint32_t stk_show_n_final(const stk_view_step *step);
/* The number of the step's tasks in each state: "998 succeeded, 2 failed". */
void stk_show_counts(const stk_view_step *step, stk_buf *out);

/* --- show_json.c, show_json_grow.c --- */

/* STK_E_LIMIT: the answer didn't fit into `out`. */
int stk_show_check(const stk_buf *out, stk_err *err);
void stk_show_put_texts(stk_buf *out, const char *key, const char *const *texts, uint32_t n);
/* Adds nothing if `amount` is negative. */
void stk_show_put_amount(stk_buf *out, const char *key, double amount);

/* Adds a member whose value is JSON already; NULL: `otherwise`. */
void stk_show_raw(stk_buf *out, const char *key, const char *json, const char *otherwise);
void stk_show_asked(stk_buf *out, const stk_view_amounts *asked, const stk_step *step);
/* The error as a sentence that names the step and the number of attempts. */
void stk_show_error(stk_buf *out, const stk_view_task *task, const stk_view_details *d,
                    stk_arena *arena);
/* The members of one value of "steps", without the braces. */
int stk_show_task_members(const stk_view *view, uint32_t i_task, stk_arena *arena, stk_buf *out,
                          stk_err *err);
/* The members of "steps" of a growing run, its closing brace, and "tasks". */
int stk_show_put_grown(const stk_view *view, stk_buf *out, stk_err *err);

/* "3 checkpoints (1.2 MB)"; NULL: it has none. */
const char *stk_show_checkpoints(const stk_view_details *details, stk_arena *arena);

/* --- show_live.c: as the functions of store/view, with what running tasks have used so far --- */

int stk_show_details(const stk_view *view, uint32_t i_task, stk_arena *arena, stk_view_details *ret,
                     stk_err *err);
int stk_show_total(const stk_view *view, stk_store *store, int64_t now_ms, stk_view_totals *ret,
                   stk_err *err);

#endif
