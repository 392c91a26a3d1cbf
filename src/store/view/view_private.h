/* Private to the view room. */
#ifndef STK_STORE_VIEW_PRIVATE_H
#define STK_STORE_VIEW_PRIVATE_H

#include "base/json.h"
#include "base/map.h"
#include "store/view/view.h"

struct stk_view {
    const stk_spec *spec;
    stk_spec *owned_spec;
    stk_arena *arena; /* for everything that lives as long as the view */
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
    stk_map logged; /* from METADATA events: "TASK OUTPUT" → stk_json, a map */
    int64_t last_seq;
    int64_t stopped_ms; /* the last event of the engine before this one */
    int64_t last_ms;    /* latest time among the events of run and tasks */
    bool ended;         /* the last event of the run was RUN_ENDED */
    /* The outputs of the task that was looked up last as the source of an input: neighbours in the
     * graph look up the same one again and again. */
    struct stk_view_memo {
        const char *data;
        stk_arena *arena; /* only for these outputs */
        const stk_json *json;
        const stk_view_scope *
            *scopes; /* scopes of tasks that are parents, filled on demand; or NULL */
        uint32_t n_scopes;
    } * memo;
};

/* Metadata that METADATA events set for a task (UINT32_MAX: the run) and its output ("": itself).
 * NULL: none. */
const stk_json *stk_view_logged(const stk_view *view, uint32_t task, const char *output);

/* Folds the TASK_ADDED of a growing run. */
int stk_view_fold_added(stk_view *view, const stk_event_row *row, const stk_json *data,
                        stk_err *err);
/* Makes room for n tasks; view->tasks may move. */
int stk_view_grow_tasks(stk_view *view, uint32_t n, stk_err *err);
void stk_view_set_state(stk_view *view, stk_view_task *task, stk_task_state state);

#endif
