/* What the files of this room share. */
#ifndef STK_STORE_VIEW_PRIVATE_H
#define STK_STORE_VIEW_PRIVATE_H

#include "base/json.h"
#include "base/map.h"
#include "store/view/view.h"

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
    const stk_json *parameters;
    stk_map logged; /* METADATA events: "TASK OUTPUT" → stk_json, a map */
    int64_t last_seq;
    int64_t last_ms; /* of the events of run and tasks */
    bool ended;      /* RUN_ENDED came last */
    /* The outputs of the task that was last asked for as somebody's input: neighbours in the graph
     * ask for the same one again and again. */
    struct stk_view_memo {
        const char *data;
        stk_arena *arena; /* of these outputs alone */
        const stk_json *json;
        const stk_view_scope **scopes; /* of tasks that are parents, once asked for; or NULL */
        uint32_t n_scopes;
    } * memo;
};

/* What METADATA events say of a task (UINT32_MAX: of the run) and its output ("": of itself). NULL:
 * nothing. */
const stk_json *stk_view_logged(const stk_view *view, uint32_t task, const char *output);

/* TASK_ADDED of a growing run. */
int stk_view_fold_added(stk_view *view, const stk_event_row *row, const stk_json *data,
                        stk_err *err);
/* Room for n tasks; view->tasks may move. */
int stk_view_grow_tasks(stk_view *view, uint32_t n, stk_err *err);
void stk_view_set_state(stk_view *view, stk_view_task *task, stk_task_state state);

#endif
