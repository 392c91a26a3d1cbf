/* What the files of the report room share: the view's insides and small JSON helpers. */
#ifndef STK_REPORT_PRIVATE_H
#define STK_REPORT_PRIVATE_H

#include <jansson.h>

#include "base/buf.h"
#include "base/limits.h"
#include "base/map.h"
#include "report/report_view.h"

struct stk_view {
    const stk_spec *spec;
    stk_spec *owned_spec;
    stk_arena *arena; /* everything that lives as long as the view */
    stk_view_run run;
    bool grows;
    stk_view_step *steps;
    stk_view_task *tasks;
    uint32_t n_tasks;
    uint32_t cap_tasks;
    const char **notes;
    uint32_t cap_notes;
    stk_map notes_seen;
    json_t *parameters;
    json_t *logged; /* METADATA events: {"task" or "": {"output" or "": {…}}}; NULL: none */
    int64_t last_seq;
    int64_t last_ms; /* of the events of run and tasks */
    bool ended;      /* RUN_ENDED came last */
    /* The outputs of the task that was last asked for as somebody's input: neighbours in the graph
     * ask for the same one again and again. */
    struct stk_view_memo {
        const char *data;
        json_t *json;
        const stk_view_scope **scopes; /* of tasks that are parents, once asked for; or NULL */
        uint32_t n_scopes;
    } * memo;
};

static inline void stk_report_release(json_t **json)
{
    json_decref(*json);
}
#define STK_REPORT_JSON_AUTO __attribute__((cleanup(stk_report_release))) json_t *

/* A payload or NULL (absent or damaged). */
json_t *stk_report_read(const char *text);
/* Compact JSON; numbers in the shortest form that reads back the same. */
void stk_report_put(stk_buf *out, const json_t *value);
const char *stk_report_dup(stk_arena *arena, const json_t *value); /* NULL in, NULL out */
/* Members of an object; NULL / fallback when absent or of another type. */
const char *stk_report_text(const json_t *object, const char *key);
double stk_report_number(const json_t *object, const char *key, double fallback);
int64_t stk_report_integer(const json_t *object, const char *key, int64_t fallback);

/* What METADATA events say of a task (UINT32_MAX: of the run) and its output ("": of itself). NULL:
 * nothing. */
const json_t *stk_report_logged(const stk_view *view, uint32_t task, const char *output);

/* The devices of TASK_STARTED's `granted` with what `used` of the task's end says of them. */
void stk_report_read_devices(const json_t *granted, const json_t *used, stk_arena *arena,
                             stk_view_details *details);

/* Where an artifact lies in its store, without looking; "" when `store` or the digest is NULL. */
const char *stk_report_artifact_path(stk_arena *arena, const char *store, const char *digest);
/* The status word of a task; "interrupted" for what still runs in an interrupted run if `truly`. */
const char *stk_report_status(const stk_view *view, const stk_view_task *task, bool truly);

/* The directory of the task's last attempt; NULL: none yet, or the view is of no store. */
const char *stk_report_dir(const stk_view *view, const stk_view_task *task, stk_arena *arena);
/* Its last attempt was granted some, by a look that costs no parsing. */
bool stk_report_has_devices(const stk_view_task *task);

/* --- report_grow.c --- */

/* TASK_ADDED of a growing run. */
int stk_report_fold_added(stk_view *view, const stk_event_row *row, const json_t *data,
                          stk_err *err);
/* Room for n tasks; view->tasks may move. */
int stk_report_grow_tasks(stk_view *view, uint32_t n, stk_err *err);
void stk_report_set_state(stk_view *view, stk_view_task *task, stk_task_state state);
/* The tasks of the step are too many to be told one by one. */
bool stk_report_is_wide(const stk_view *view, uint32_t i_step);
/* "998 succeeded, 2 failed": the step's tasks by state. */
void stk_report_counts(const stk_view_step *step, stk_buf *out);

/* --- report_json.c, report_json_grow.c --- */

/* A member that is JSON already. */
void stk_report_raw(stk_buf *out, const char *key, const char *json, const char *otherwise);
void stk_report_asked(stk_buf *out, const stk_view_amounts *asked, const stk_step *step);
/* The sentence that stands alone: who, what, how often tried. */
void stk_report_error(stk_buf *out, const stk_view_task *task, const stk_view_details *d,
                      stk_arena *arena);
/* The members of one value of "steps", without the braces. */
int stk_report_task_members(const stk_view *view, uint32_t i_task, stk_arena *arena, stk_buf *out,
                            stk_err *err);
/* The members of "steps" of a growing run, its closing brace, and "tasks". */
int stk_report_put_grown(const stk_view *view, stk_buf *out, stk_err *err);

/* "3 checkpoints (1.2 MB)"; NULL: it has none. */
const char *stk_report_checkpoints(const stk_view_details *details, stk_arena *arena);

#endif
