#include "store/view/view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "store/view/view_private.h"

#define LASTS UINT64_MAX /* in notes_seen: of a note that isn't about tasks that wait */

/* Adds what isn't there yet. waiting: the task that waits for what the text says, or NULL. */
static int add_note(stk_view *view, const char *text, stk_view_task *waiting, stk_err *err)
{
    uint64_t n = 0;
    if (text == NULL || (stk_map_get(&view->notes_seen, text, &n) && n == LASTS)) {
        return 0;
    }
    stk_view_run *run = &view->run;
    const char *own = stk_arena_dup(view->arena, text);
    if (own == NULL ||
        stk_array_reserve(&view->notes, &view->cap_notes, run->n_notes + 1, sizeof *view->notes) <
            0 ||
        stk_map_put(&view->notes_seen, own, waiting == NULL ? LASTS : n + 1) < 0) {
        return stk_err_nomem(err);
    }
    if (waiting != NULL) {
        waiting->wait_note = own;
    }
    if (n == 0) {
        view->notes[run->n_notes++] = own;
    }
    run->notes = view->notes;
    return 0;
}

/* Takes the note out that says why the task waits, unless another one waits for the same. */
static int end_wait(stk_view *view, stk_view_task *task, stk_err *err)
{
    const char *note = task->wait_note;
    uint64_t n = 0;
    task->wait_note = NULL;
    if (note == NULL || !stk_map_get(&view->notes_seen, note, &n) || n == 0 || n == LASTS) {
        return 0;
    }
    STK_TRY(stk_map_put(&view->notes_seen, note, n - 1) < 0 ? stk_err_nomem(err) : 0);
    uint32_t i = n > 1 ? view->run.n_notes : 0;
    while (i < view->run.n_notes && strcmp(view->notes[i], note) != 0) {
        i++;
    }
    if (i < view->run.n_notes) {
        memmove(view->notes + i, view->notes + i + 1,
                (--view->run.n_notes - i) * sizeof *view->notes);
    }
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
                                             .title = stk_spec_title(spec, i),
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
        stk_arena_free(view->memo->arena);
        free(view->memo->scopes);
        free(view->memo);
    }
    stk_map_done(&view->notes_seen);
    stk_map_done(&view->logged);
    free(view->notes);
    free(view->tasks);
    stk_arena_free(view->arena);
    stk_spec_free(view->owned_spec);
    free(view);
}

/* --- folding --- */

/* A stored document has no parameters of the command line, and titles show their values. */
static void set_parameters(stk_view *view)
{
    const stk_json *all = view->parameters;
    for (uint32_t i = 0; view->owned_spec != NULL && i < stk_json_n_members(all); i++) {
        const char *text = stk_json_dump_in(stk_json_value(all, i), view->arena);
        if (text != NULL) { /* the run had these values: its document takes them */
            (void)stk_spec_set_param_json(view->owned_spec, stk_json_key(all, i)->text, text, NULL);
        }
    }
    for (uint32_t i = 0; !view->grows && i < view->n_tasks; i++) {
        view->tasks[i].title = stk_spec_title(view->spec, i);
    }
}

static int fold_created(stk_view *view, const stk_event_row *row, const stk_json *data,
                        stk_err *err)
{
    stk_view_run *run = &view->run;
    stk_arena *arena = view->arena;
    run->created_ms = row->time_ms;
    const char *name = stk_json_get_text(data, "name");
    run->name = name ? stk_arena_dup(arena, name) : run->id;
    const char *pipeline = stk_json_get_text(data, "pipeline");
    if (pipeline) {
        run->pipeline = stk_arena_dup(arena, pipeline);
    }
    const char *mode = stk_json_get_text(data, "mode");
    if (mode) {
        run->mode = stk_arena_dup(arena, mode);
    }
    const char *policy = stk_json_get_text(data, "policy");
    if (policy) {
        run->policy = stk_arena_dup(arena, policy);
    }
    run->spec_digest = stk_arena_dup(arena, stk_json_get_text(data, "spec"));
    run->parameters = stk_json_dump_in(stk_json_get(data, "parameters"), arena);
    run->tags = stk_json_dump_in(stk_json_get(data, "tags"), arena);
    run->origin = stk_json_dump_in(stk_json_get(data, "origin"), arena);
    run->host = stk_json_dump_in(stk_json_get(data, "host"), arena);
    run->simulated = stk_json_get_text(stk_json_get(data, "host"), "accel") != NULL;
    run->max_workers = (uint32_t)stk_json_get_whole(data, "max_workers", 0);
    view->parameters = stk_json_read(arena, run->parameters);
    set_parameters(view);
    for (uint32_t i = 0; i < stk_json_n_items(stk_json_get(data, "notes")); i++) {
        const stk_json *note = stk_json_item(stk_json_get(data, "notes"), i);
        if (add_note(view, stk_json_text(note), NULL, err) < 0) {
            return err->code;
        }
    }
    return 0;
}

static void fold_started(stk_view *view, const stk_event_row *row, const stk_json *data)
{
    stk_view_run *run = &view->run;
    if (run->started_ms == 0) {
        run->started_ms = row->time_ms;
    }
    run->n_resumed += stk_json_is_true(stk_json_get(data, "resumed"));
    if (stk_json_get_text(data, "code") != NULL) {
        run->code = stk_arena_dup(view->arena, stk_json_get_text(data, "code"));
    }
    run->pool = stk_json_dump_in(stk_json_get(data, "devices"), view->arena);
    run->status = "running";
    run->error = NULL;
    run->ended_ms = 0;
    view->ended = false;
}

static int fold_ended(stk_view *view, const stk_event_row *row, const stk_json *data, stk_err *err)
{
    const char *status = stk_json_get_text(data, "status");
    view->run.status = stk_arena_dup(view->arena, stk_text_or(status, "failed"));
    view->run.error = stk_arena_dup(view->arena, stk_json_get_text(data, "error"));
    view->run.ended_ms = row->time_ms;
    view->ended = true;
    return stk_err_if_null(view->run.status, err);
}

/* Unreadable data loses only its own event: the events around it are good. */
static int note_damaged(stk_view *view, const stk_event_row *row, stk_err *err)
{
    const char *text =
        stk_arena_printf(view->arena, "event %lld (%s) of the record is damaged and left out",
                         (long long)row->seq, stk_event_word(row->kind));
    STK_TRY(stk_err_if_null(text, err));
    return add_note(view, text, NULL, err);
}

/* Checks only both ends of the text; stk_view_get_details parses it. */
static bool looks_damaged(const char *data)
{
    size_t n = data == NULL ? 0 : strlen(data);
    return data != NULL &&
           (n < 2 || data[0] != '{' || data[n - 1] != '}' || !stk_json_is_utf8(data, n));
}

static stk_task_state state_after(stk_event_kind kind)
{
    switch (kind) {
    case STK_EV_TASK_SUCCEEDED:
        return STK_TASK_SUCCEEDED;
    case STK_EV_TASK_CACHED:
        return STK_TASK_CACHED;
    case STK_EV_TASK_SKIPPED:
        return STK_TASK_SKIPPED;
    case STK_EV_TASK_FAILED:
        return STK_TASK_FAILED;
    default:
        return STK_TASK_CANCELLED;
    }
}

/* The attempt that the task made so far becomes an earlier one. If the engine was killed, it ended
 * when that engine last reported anything. */
static int keep_attempt(stk_view *view, stk_view_task *task, stk_err *err)
{
    if (task->attempt == 0 || task->started_ms == 0) {
        return 0;
    }
    stk_view_attempt *one = stk_arena_alloc(view->arena, sizeof *one);
    STK_TRY(stk_err_if_null(one, err));
    int64_t end_ms = task->ended_ms > 0 ? task->ended_ms : view->stopped_ms;
    *one = (stk_view_attempt){.number = task->attempt,
                              .started_ms = task->started_ms,
                              .ended_ms = MAX(end_ms, task->started_ms),
                              .start_data = task->start_data,
                              .end_data = task->end_data,
                              .waits = task->waits,
                              .before = task->earlier};
    task->earlier = one;
    return 0;
}

/* Keeps payloads of tasks as text; parses only what decides the state. */
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
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *data = stk_json_read(scratch, row->data);
        task->retry_at_ms = stk_json_get_whole(data, "at_ms", row->time_ms);
        stk_view_set_state(view, task, STK_TASK_BACKOFF);
        return 0;
    }
    const char *text = stk_arena_dup(view->arena, row->data && !is_damaged ? row->data : "{}");
    STK_TRY(stk_err_if_null(text, err));
    STK_TRY(end_wait(view, task, err));
    if (row->kind == STK_EV_TASK_STARTED) {
        view->run.n_attempts_extra += row->attempt > 1;
        step->n_extra += row->attempt > 1;
        step->most_attempts = MAX(row->attempt, step->most_attempts);
        if (!step->started_ms) {
            step->started_ms = row->time_ms;
        }
        STK_TRY(keep_attempt(view, task, err));
        task->attempt = row->attempt;
        task->started_ms = row->time_ms;
        if (!task->first_ms) {
            task->first_ms = row->time_ms;
        }
        task->ended_ms = 0;
        task->waits = NULL;
        task->start_data = text;
        task->end_data = NULL;
        stk_view_set_state(view, task, STK_TASK_RUNNING);
        return 0;
    }
    /* Sets these even if the event of its start is damaged. */
    task->attempt = MAX(row->attempt, task->attempt);
    task->ended_ms = row->time_ms;
    step->ended_ms = MAX(row->time_ms, step->ended_ms);
    task->end_data = text;
    stk_task_state state = state_after(row->kind);
    if (state == STK_TASK_FAILED) {
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *data = stk_json_read(scratch, text);
        state = stk_json_is_true(stk_json_get(data, "final")) ? STK_TASK_FAILED : STK_TASK_BACKOFF;
    }
    stk_view_set_state(view, task, state);
    return 0;
}

static int fold_note(stk_view *view, const stk_event_row *row, const stk_json *data, stk_err *err)
{
    const char *waits = stk_json_get_text(data, "waits");
    stk_view_task *task = NULL;
    if (waits != NULL && row->task < view->n_tasks) {
        task = &view->tasks[row->task];
        task->waits = stk_arena_dup(view->arena, stk_text_if_any(waits));
        STK_TRY(end_wait(view, task, err));
    }
    return add_note(view, stk_json_get_text(data, "text"), task, err);
}

/* The key of a task's or output's metadata in view->logged. */
static const char *logged_key(uint32_t task, const char *output, char buf[STK_LIMIT_NAME + 16])
{
    (void)snprintf(buf, STK_LIMIT_NAME + 16, "%u %s", task, output);
    return buf;
}

const stk_json *stk_view_logged(const stk_view *view, uint32_t task, const char *output)
{
    char key[STK_LIMIT_NAME + 16];
    uint64_t known;
    if (!stk_map_get(&view->logged, logged_key(task, output, key), &known)) {
        return NULL;
    }
    return (const stk_json *)(uintptr_t)known;
}

static int fold_metadata(stk_view *view, const stk_event_row *row, stk_err *err)
{
    char key[STK_LIMIT_NAME + 16];
    const stk_json *data = stk_json_read(view->arena, row->data);
    const char *output = stk_json_get_text(data, "output");
    output = stk_text_or(output, "");
    stk_json *known = (stk_json *)(uintptr_t)stk_view_logged(view, row->task, output);
    if (known == NULL) {
        const char *own = stk_arena_dup(view->arena, logged_key(row->task, output, key));
        known = stk_arena_alloc(view->arena, sizeof *known);
        if (own == NULL || known == NULL ||
            stk_map_put(&view->logged, own, (uint64_t)(uintptr_t)known) < 0) {
            return stk_err_nomem(err);
        }
        *known = stk_json_of_map();
    }
    if (!stk_json_update(view->arena, known, stk_json_get(data, "metadata"))) {
        return stk_err_nomem(err);
    }
    if (row->task == UINT32_MAX) {
        view->run.metadata = stk_json_dump_in(known, view->arena);
    }
    return 0;
}

/* A later event must not have an earlier time, even if another machine's clock differs after a
 * resume, so that no duration is below 0. */
static stk_event_row in_order(stk_view *view, const stk_event_row *row)
{
    stk_event_row copy = *row;
    bool is_told_outside = row->kind == STK_EV_METADATA || row->kind == STK_EV_TAGGED;
    copy.time_ms = MAX(copy.time_ms, view->last_ms);
    if (row->kind == STK_EV_RUN_STARTED) {
        view->stopped_ms = view->last_ms;
    }
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
        STK_ARENA_AUTO scratch = stk_arena_new(0);
        const stk_json *data = stk_json_read(scratch, row->data);
        if (row->data != NULL && !stk_json_is_map(data)) {
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
            rc = fold_note(view, row, data, err);
        } else if (row->kind == STK_EV_METADATA) {
            rc = fold_metadata(view, row, err);
        } else if (row->kind == STK_EV_TAGGED) {
            view->run.tags = stk_json_dump_in(stk_json_get(data, "tags"), view->arena);
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
    /* Checks the lock first. If the engine ends in between, its RUN_ENDED is already there, so a
     * run that has just ended is never reported as interrupted. */
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
    STK_TRY(stk_err_if_null(scratch, err));
    STK_TRY(stk_store_load_spec(store, run, scratch, &text, &len, err));
    const char *folder = stk_store_run_folder(store, run, scratch);
    const stk_spec_place place = {.path = stk_arena_printf(scratch, "%s/spec.json", folder),
                                  .folder = folder};
    stk_spec *spec = NULL;
    STK_TRY(stk_spec_parse(text, len, &place, &spec, err));
    stk_view *view = NULL;
    int rc = stk_view_new(spec, run, stk_store_path(store), &view, err);
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

int stk_view_set_taker(stk_view *view, const char *who, const char *stack, stk_err *err)
{
    view->run.taker = stk_arena_dup(view->arena, who);
    view->run.taker_stack = stk_arena_dup(view->arena, stack);
    STK_TRY(stk_err_if_null(view->run.taker, err));
    return stk_err_if_null(view->run.taker_stack, err);
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
        int64_t i_step = stk_spec_find_word(view->spec, name);
        if (i_step >= 0) {
            *ret_task = (uint32_t)i_step;
        }
        return i_step >= 0;
    }
    const char *slash = strrchr(name, '/');
    int64_t only = -1;
    if (slash == NULL) {
        only = stk_spec_find(view->spec, name);
    }
    if (only >= 0 && view->steps[only].n == 1) {
        *ret_task = view->steps[only].first;
        return true;
    }
    char *end = NULL;
    unsigned long id = 0;
    if (slash != NULL) {
        id = strtoul(slash + 1, &end, 10);
    }
    if (id == 0 || id > view->n_tasks || *end != '\0' ||
        strcmp(view->tasks[id - 1].label, name) != 0) {
        return false;
    }
    *ret_task = (uint32_t)(id - 1);
    return true;
}

static uint32_t skipped_because(const stk_view *view, const stk_view_task *task)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, task->end_data);
    const char *name = stk_json_get_text(data, "because");
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
        if (view->tasks[i].state == STK_TASK_SKIPPED) {
            roots[i] = skipped_because(view, &view->tasks[i]);
        } else {
            roots[i] = UINT32_MAX;
        }
        known[i] = roots[i] == UINT32_MAX || view->tasks[roots[i]].state != STK_TASK_SKIPPED;
    }
    /* Walks each chain to a known end, then writes that end along it, so every edge is walked
     * twice. A damaged store may hold a cycle, so a walk ends after n steps. */
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
