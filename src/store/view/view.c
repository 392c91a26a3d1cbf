#include "store/view/view.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "store/view/view_private.h"

static int add_note(stk_view *view, const char *text, stk_err *err)
{
    if (text == NULL || stk_map_get(&view->notes_seen, text, NULL)) {
        return 0;
    }
    stk_view_run *run = &view->run;
    if (run->n_notes == view->cap_notes) {
        uint32_t cap = view->cap_notes < 8 ? 8 : view->cap_notes * 2;
        const char **notes = realloc(view->notes, cap * sizeof *notes);
        if (notes == NULL) {
            return stk_err_nomem(err);
        }
        view->notes = notes;
        view->cap_notes = cap;
    }
    const char *own = stk_arena_dup(view->arena, text);
    if (own == NULL || stk_map_put(&view->notes_seen, own, 1) < 0) {
        return stk_err_nomem(err);
    }
    view->notes[run->n_notes++] = own;
    run->notes = view->notes;
    return 0;
}

int stk_view_new(const stk_spec *spec, const char *run, const char *store_path, stk_view **ret_view,
                 stk_err *err)
{
    stk_view *view = calloc(1, sizeof *view);
    if (view == NULL || (view->arena = stk_arena_new(0)) == NULL ||
        (view->memo = calloc(1, sizeof *view->memo)) == NULL) {
        stk_view_free(view);
        return stk_err_nomem(err);
    }
    view->spec = spec;
    view->grows = stk_spec_grows(spec);
    view->run.id = stk_arena_dup(view->arena, run);
    view->run.name = view->run.id;
    view->run.pipeline = stk_spec_name(spec);
    view->run.store = stk_arena_dup(view->arena, store_path);
    view->run.status = "running";
    view->run.mode = stk_mode_word(stk_spec_mode(spec));
    view->run.policy = "fit";
    uint32_t n = stk_spec_n_steps(spec), n_tasks = view->grows ? 0 : n;
    view->steps = stk_arena_array(view->arena, (size_t)n + 1, sizeof *view->steps);
    if (view->steps == NULL || stk_view_grow_tasks(view, n_tasks, err) < 0) {
        stk_view_free(view);
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        const stk_step *step = stk_spec_step(spec, i);
        view->steps[i] = (stk_view_step){.first = UINT32_MAX};
        if (!view->grows) {
            view->tasks[i] = (stk_view_task){.name = step->name,
                                             .label = step->name,
                                             .step = step,
                                             .i_step = i,
                                             .split = UINT32_MAX};
            view->steps[i] = (stk_view_step){.n = 1, .by_state[STK_TASK_WAITING] = 1, .first = i};
        }
    }
    view->n_tasks = n_tasks;
    view->run.n[STK_TASK_WAITING] = n_tasks;
    *ret_view = view;
    return 0;
}

void stk_view_free(stk_view *view)
{
    if (view == NULL) {
        return;
    }
    if (view->memo != NULL) {
        json_decref(view->memo->json);
        free(view->memo->scopes);
        free(view->memo);
    }
    json_decref(view->parameters);
    json_decref(view->logged);
    stk_map_done(&view->notes_seen);
    free(view->notes);
    free(view->tasks);
    stk_arena_free(view->arena);
    stk_spec_free(view->owned_spec);
    free(view);
}

/* --- folding --- */

static int fold_created(stk_view *view, const stk_event_row *row, const json_t *data, stk_err *err)
{
    stk_view_run *run = &view->run;
    stk_arena *arena = view->arena;
    run->created_ms = row->time_ms;
    const char *name = stk_doc_text(data, "name");
    run->name = name ? stk_arena_dup(arena, name) : run->id;
    const char *pipeline = stk_doc_text(data, "pipeline");
    if (pipeline) {
        run->pipeline = stk_arena_dup(arena, pipeline);
    }
    const char *mode = stk_doc_text(data, "mode");
    if (mode) {
        run->mode = stk_arena_dup(arena, mode);
    }
    const char *policy = stk_doc_text(data, "policy");
    if (policy) {
        run->policy = stk_arena_dup(arena, policy);
    }
    run->spec_digest = stk_arena_dup(arena, stk_doc_text(data, "spec"));
    run->parameters = stk_doc_dup(arena, json_object_get(data, "parameters"));
    run->tags = stk_doc_dup(arena, json_object_get(data, "tags"));
    run->origin = stk_doc_dup(arena, json_object_get(data, "origin"));
    run->host = stk_doc_dup(arena, json_object_get(data, "host"));
    run->max_workers = (uint32_t)stk_doc_integer(data, "max_workers", 0);
    json_decref(view->parameters);
    view->parameters = json_incref(json_object_get(data, "parameters"));
    size_t i;
    const json_t *note;
    json_array_foreach(json_object_get(data, "notes"), i, note)
    {
        if (add_note(view, json_string_value(note), err) < 0) {
            return err->code;
        }
    }
    return 0;
}

static void fold_started(stk_view *view, const stk_event_row *row, const json_t *data)
{
    stk_view_run *run = &view->run;
    if (run->started_ms == 0) {
        run->started_ms = row->time_ms;
    }
    run->n_resumed += json_is_true(json_object_get(data, "resumed"));
    run->pool = stk_doc_dup(view->arena, json_object_get(data, "devices"));
    run->status = "running";
    run->error = NULL;
    run->ended_ms = 0;
    view->ended = false;
}

static int fold_ended(stk_view *view, const stk_event_row *row, const json_t *data, stk_err *err)
{
    const char *status = stk_doc_text(data, "status");
    view->run.status = stk_arena_dup(view->arena, status ? status : "failed");
    view->run.error = stk_arena_dup(view->arena, stk_doc_text(data, "error"));
    view->run.ended_ms = row->time_ms;
    view->ended = true;
    return view->run.status == NULL ? stk_err_nomem(err) : 0;
}

/* What can't be read costs what it told and nothing else: the events around it are good. */
static int note_damaged(stk_view *view, const stk_event_row *row, stk_err *err)
{
    const char *text = stk_arena_printf(
        view->arena, "event %lld (%s) of the record is damaged: what it told is not known",
        (long long)row->seq, stk_event_word(row->kind));
    return text == NULL ? stk_err_nomem(err) : add_note(view, text, err);
}

/* By its ends only: it is read when somebody asks for the task. */
static bool looks_damaged(const char *data)
{
    size_t n = data == NULL ? 0 : strlen(data);
    return data != NULL &&
           (n < 2 || data[0] != '{' || data[n - 1] != '}' || !stk_json_is_utf8(data, n));
}

/* Payloads of tasks are kept as text; only what decides the state is read here. */
static int fold_task(stk_view *view, const stk_event_row *row, stk_err *err)
{
    if (row->task >= view->n_tasks) {
        return note_damaged(view, row, err);
    }
    bool is_damaged = looks_damaged(row->data);
    if (is_damaged && note_damaged(view, row, err) < 0) {
        return err->code;
    }
    stk_view_task *task = &view->tasks[row->task];
    stk_view_step *step = &view->steps[task->i_step];
    if (row->kind == STK_EV_TASK_RETRYING) {
        STK_DOC_AUTO data = stk_doc_read(row->data);
        task->retry_at_ms = stk_doc_integer(data, "at_ms", row->time_ms);
        stk_view_set_state(view, task, STK_TASK_BACKOFF);
        return 0;
    }
    const char *text = stk_arena_dup(view->arena, row->data && !is_damaged ? row->data : "{}");
    if (text == NULL) {
        return stk_err_nomem(err);
    }
    if (row->kind == STK_EV_TASK_STARTED) {
        view->run.n_attempts_extra += row->attempt > 1;
        step->n_extra += row->attempt > 1;
        step->most_attempts = MAX(row->attempt, step->most_attempts);
        if (!step->started_ms) {
            step->started_ms = row->time_ms;
        }
        task->attempt = row->attempt;
        task->started_ms = row->time_ms;
        if (!task->first_ms) {
            task->first_ms = row->time_ms;
        }
        task->ended_ms = 0;
        task->start_data = text;
        task->end_data = NULL;
        stk_view_set_state(view, task, STK_TASK_RUNNING);
        return 0;
    }
    /* Also where the event of its start is damaged. */
    task->attempt = MAX(row->attempt, task->attempt);
    task->ended_ms = row->time_ms;
    step->ended_ms = MAX(row->time_ms, step->ended_ms);
    task->end_data = text;
    stk_task_state state = row->kind == STK_EV_TASK_SUCCEEDED ? STK_TASK_SUCCEEDED
                           : row->kind == STK_EV_TASK_CACHED  ? STK_TASK_CACHED
                           : row->kind == STK_EV_TASK_SKIPPED ? STK_TASK_SKIPPED
                           : row->kind == STK_EV_TASK_FAILED  ? STK_TASK_FAILED
                                                              : STK_TASK_CANCELLED;
    if (state == STK_TASK_FAILED) {
        STK_DOC_AUTO data = stk_doc_read(text);
        state = json_is_true(json_object_get(data, "final")) ? STK_TASK_FAILED : STK_TASK_BACKOFF;
    }
    stk_view_set_state(view, task, state);
    return 0;
}

/* The member of an object that is one, too; made if needed. NULL: out of memory. */
static json_t *object_in(json_t *object, const char *key)
{
    json_t *found = json_object_get(object, key);
    if (found == NULL && json_object_set_new(object, key, json_object()) == 0) {
        found = json_object_get(object, key);
    }
    return found;
}

static const char *key_of(uint32_t task, char buf[16])
{
    (void)snprintf(buf, 16, task == UINT32_MAX ? "" : "%u", task);
    return buf;
}

const json_t *stk_view_logged(const stk_view *view, uint32_t task, const char *output)
{
    char key[16];
    return json_object_get(json_object_get(view->logged, key_of(task, key)), output);
}

static int fold_metadata(stk_view *view, const stk_event_row *row, const json_t *data, stk_err *err)
{
    char key[16];
    const char *output = stk_doc_text(data, "output");
    view->logged = view->logged != NULL ? view->logged : json_object();
    json_t *of_task = object_in(view->logged, key_of(row->task, key));
    json_t *known = object_in(of_task, stk_text_or(output, ""));
    json_t *more = json_object_get(data, "metadata");
    if (known == NULL || (json_is_object(more) && json_object_update(known, more) != 0)) {
        return stk_err_nomem(err);
    }
    if (row->task == UINT32_MAX) {
        view->run.metadata = stk_doc_dup(view->arena, known);
    }
    return 0;
}

/* What comes later in the record is not earlier, whatever the clock of the machine that went on
 * with the run: no duration is below 0. */
static stk_event_row in_order(stk_view *view, const stk_event_row *row)
{
    stk_event_row copy = *row;
    bool is_told_outside = row->kind == STK_EV_METADATA || row->kind == STK_EV_TAGGED;
    copy.time_ms = MAX(copy.time_ms, view->last_ms);
    if (!is_told_outside) {
        view->last_ms = copy.time_ms;
    }
    return copy;
}

int stk_view_fold(stk_view *view, const stk_event_row *given, stk_err *err)
{
    stk_err ignored;
    if (err == NULL) {
        err = &ignored;
    }
    if (given->seq != 0 && given->seq <= view->last_seq) {
        return 0;
    }
    const stk_event_row copy = in_order(view, given), *row = &copy;
    int rc = 0;
    switch (row->kind) {
    case STK_EV_TASK_CACHED:
    case STK_EV_TASK_STARTED:
    case STK_EV_TASK_SUCCEEDED:
    case STK_EV_TASK_FAILED:
    case STK_EV_TASK_RETRYING:
    case STK_EV_TASK_SKIPPED:
    case STK_EV_TASK_CANCELLED:
        rc = fold_task(view, row, err);
        break;
    default: {
        STK_DOC_AUTO data = stk_doc_read(row->data);
        if (row->data != NULL && !json_is_object(data)) {
            rc = note_damaged(view, row, err);
        }
        if (rc < 0) {
            break;
        }
        if (row->kind == STK_EV_RUN_CREATED) {
            rc = fold_created(view, row, data, err);
        } else if (row->kind == STK_EV_RUN_STARTED) {
            fold_started(view, row, data);
        } else if (row->kind == STK_EV_RUN_ENDED) {
            rc = fold_ended(view, row, data, err);
        } else if (row->kind == STK_EV_TASK_ADDED) {
            rc = stk_view_fold_added(view, row, data, err);
        } else if (row->kind == STK_EV_NOTE) {
            rc = add_note(view, stk_doc_text(data, "text"), err);
        } else if (row->kind == STK_EV_METADATA) {
            rc = fold_metadata(view, row, data, err);
        } else if (row->kind == STK_EV_TAGGED) {
            view->run.tags = stk_doc_dup(view->arena, json_object_get(data, "tags"));
        }
    }
    }
    if (rc == 0 && row->seq != 0) {
        view->last_seq = row->seq;
    }
    return rc;
}

/* --- out of the store --- */

struct refresh {
    stk_view *view;
    stk_err *err;
    uint32_t n;
};

static int fold_one(void *arg, const stk_event_row *row)
{
    struct refresh *refresh = arg;
    refresh->n++;
    return stk_view_fold(refresh->view, row, refresh->err);
}

int stk_view_refresh(stk_view *view, stk_store *store, uint32_t *ret_new, stk_err *err)
{
    stk_err own = {0};
    struct refresh refresh = {view, err ? err : &own, 0};
    /* The lock is asked for first: an engine that ends between the two leaves its RUN_ENDED behind,
     * so a run is never called interrupted for having ended just now. */
    bool live = stk_store_run_is_live(store, view->run.id);
    int rc = stk_store_events(store, view->run.id, view->last_seq, fold_one, &refresh, refresh.err);
    if (rc == 0 && !view->ended) {
        view->run.status = live ? "running" : "interrupted";
    }
    if (ret_new != NULL) {
        *ret_new = refresh.n;
    }
    return rc;
}

int stk_view_load(stk_store *store, const char *run, stk_view **ret_view, stk_err *err)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const char *text;
    size_t len;
    if (scratch == NULL) {
        return stk_err_nomem(err);
    }
    int rc = stk_store_load_spec(store, run, scratch, &text, &len, err);
    if (rc < 0) {
        return rc;
    }
    char *path =
        stk_arena_printf(scratch, "%s/spec.json", stk_store_run_folder(store, run, scratch));
    stk_spec *spec = NULL;
    rc = stk_spec_parse(text, len, path, &spec, err);
    if (rc < 0) {
        return rc;
    }
    stk_view *view = NULL;
    rc = stk_view_new(spec, run, stk_store_path(store), &view, err);
    if (rc < 0) {
        stk_spec_free(spec);
        return rc;
    }
    view->owned_spec = spec;
    rc = stk_view_refresh(view, store, NULL, err);
    if (rc < 0) {
        stk_view_free(view);
        return rc;
    }
    *ret_view = view;
    return 0;
}

/* --- reading --- */

const stk_spec *stk_view_spec(const stk_view *view)
{
    return view->spec;
}

const stk_view_run *stk_view_get_run(const stk_view *view)
{
    return &view->run;
}

uint32_t stk_view_n_tasks(const stk_view *view)
{
    return view->n_tasks;
}

const stk_view_task *stk_view_get_task(const stk_view *view, uint32_t i_task)
{
    return &view->tasks[i_task];
}

bool stk_view_is_live(const stk_view *view)
{
    return strcmp(view->run.status, "running") == 0;
}

bool stk_view_grows(const stk_view *view)
{
    return view->grows;
}

const stk_view_step *stk_view_get_step(const stk_view *view, uint32_t i_step)
{
    return &view->steps[i_step];
}

bool stk_view_find(const stk_view *view, const char *name, uint32_t *ret_task)
{
    if (!view->grows) {
        int64_t i_step = stk_spec_find(view->spec, name);
        if (i_step >= 0) {
            *ret_task = (uint32_t)i_step;
        }
        return i_step >= 0;
    }
    const char *slash = strrchr(name, '/');
    int64_t only = slash == NULL ? stk_spec_find(view->spec, name) : -1;
    if (only >= 0 && view->steps[only].n == 1) {
        *ret_task = view->steps[only].first;
        return true;
    }
    char *end = NULL;
    unsigned long id = slash != NULL ? strtoul(slash + 1, &end, 10) : 0;
    if (id == 0 || id > view->n_tasks || *end != '\0' ||
        strcmp(view->tasks[id - 1].label, name) != 0) {
        return false;
    }
    *ret_task = (uint32_t)(id - 1);
    return true;
}

static uint32_t skipped_because(const stk_view *view, const stk_view_task *task)
{
    STK_DOC_AUTO data = stk_doc_read(task->end_data);
    const char *name = stk_doc_text(data, "because");
    uint32_t cause;
    return name != NULL && stk_view_find(view, name, &cause) ? cause : UINT32_MAX;
}

int stk_view_roots(const stk_view *view, stk_arena *arena, uint32_t **ret_roots, stk_err *err)
{
    uint32_t n = view->n_tasks;
    uint32_t *roots = stk_arena_array(arena, n + 1, sizeof *roots);
    unsigned char *known = stk_arena_array(arena, n + 1, 1);
    if (roots == NULL || known == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        roots[i] = view->tasks[i].state == STK_TASK_SKIPPED ? skipped_because(view, &view->tasks[i])
                                                            : UINT32_MAX;
        known[i] = roots[i] == UINT32_MAX || view->tasks[roots[i]].state != STK_TASK_SKIPPED;
    }
    /* Walk each chain to a known end, then write that end along it: every edge is walked twice. A
     * damaged store may hold a circle; it ends after n steps. */
    for (uint32_t i = 0; i < n; i++) {
        uint32_t end = i;
        for (uint32_t k = 0; !known[end] && k < n; k++) {
            end = roots[end];
        }
        uint32_t root = roots[end] == UINT32_MAX ? end : roots[end];
        for (uint32_t at = i; !known[at];) {
            uint32_t next = roots[at];
            roots[at] = root;
            known[at] = 1;
            at = next;
        }
    }
    *ret_roots = roots;
    return 0;
}

const char *stk_view_status(const stk_view *view, const stk_view_task *task, bool truly)
{
    if (truly && task->state == STK_TASK_RUNNING && strcmp(view->run.status, "interrupted") == 0) {
        return "interrupted";
    }
    return stk_state_word(task->state);
}
