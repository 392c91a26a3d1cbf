/* why: one sentence per step that says why it ran, failed, was skipped or waits. */
#ifndef STK_SHOW_WHY_H
#define STK_SHOW_WHY_H

#include "base/buf.h"
#include "store/view/view.h"

int stk_show_why_task(stk_store *store, const stk_view *view, uint32_t i_task, stk_arena *arena,
                      stk_buf *out, stk_err *err);
/* For a step of a growing run: its failed tasks, else all of them, or why it has none. */
int stk_show_why_step(stk_store *store, const stk_view *view, uint32_t i_step, stk_arena *arena,
                      stk_buf *out, stk_err *err);
/* Why the run ended as it did: its failed steps, else why each step ran. */
int stk_show_why_run(stk_store *store, const stk_view *view, stk_arena *arena, stk_buf *out,
                     stk_err *err);

#endif
