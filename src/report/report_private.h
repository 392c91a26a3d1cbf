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
    stk_view_task *tasks;
    uint32_t n_tasks;
    uint32_t cap_tasks;
    const char **notes;
    uint32_t cap_notes;
    stk_map notes_seen;
    json_t *parameters;
    json_t *logged; /* METADATA events: {"task" or "": {"output" or "": {…}}}; NULL: none */
    int64_t last_seq;
    bool ended; /* RUN_ENDED came last */
    /* The outputs of the task that was last asked for as somebody's input: neighbours in the graph
     * ask for the same one again and again. */
    struct stk_view_memo {
        const char *data;
        json_t *json;
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

/* "3 checkpoints (1.2 MB)"; NULL: it has none. */
const char *stk_report_checkpoints(const stk_view_details *details, stk_arena *arena);

#endif
