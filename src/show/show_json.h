/* show_json: a run as JSON. docs/formats/engine-command-line.md describes it. */
#ifndef STK_SHOW_JSON_H
#define STK_SHOW_JSON_H

#include "base/buf.h"
#include "show/runs.h"
#include "store/view/view.h"

/* `stoker show RUN --json`: one object and a newline. */
int stk_show_json_run(const stk_view *view, stk_buf *out, stk_err *err);
/* One value of "steps", for `stoker show RUN STEP --json`. */
int stk_show_json_task(const stk_view *view, uint32_t i_task, stk_buf *out, stk_err *err);
/* `stoker show RUN/STEP[/ID] --json` of a growing run: {"run", "step", "tasks": […]}, each task
 * with the artifacts that it sees. i_task UINT32_MAX: all tasks of the step. by_number: the
 * document has a list "refs" of all artifacts, and the tasks hold numbers into it. */
int stk_show_json_step(const stk_view *view, uint32_t i_step, uint32_t i_task, bool by_number,
                       stk_buf *out, stk_err *err);
/* `stoker runs --json`: an array of {"run","name","pipeline","status","created_ms","ended_ms",
 * "tags"}; with_values also "parameters" and "metrics", objects of name and value. */
int stk_show_json_runs(const stk_run_values *runs, uint32_t n, const char *currency,
                       bool with_values, stk_buf *out, stk_err *err);

#endif
