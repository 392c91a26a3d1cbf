#include "show/eta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

enum {
    BEGIN_MS = 2000,  /* a shorter run costs nothing */
    EVERY_MS = 1000,  /* between two computations */
    LISTED = 20,      /* runs … */
    READ = 5,         /* … of which so many are read, if they … */
    EVENTS_MAX = 5000 /* … have no more events in all */
};

/* What earlier runs say of a step. */
typedef struct step_past {
    int64_t took_ms[READ]; /* of its tasks in one run each: their mean */
    uint32_t n;
    int64_t median_ms; /* -1: unknown */
    uint32_t n_tasks;  /* in the newest run */
} step_past;

struct stk_eta {
    const stk_view *view;
    stk_store *store;
    step_past *steps; /* by step of the run; NULL: nothing was read */
    uint32_t n_runs;
    uint32_t width; /* tasks that ran at once, at most */
    bool has_read;
    int64_t asked_ms, left_ms;
};

stk_eta *stk_eta_new(const stk_view *view, stk_store *store)
{
    stk_eta *eta = calloc(1, sizeof *eta);
    if (eta != NULL) {
        *eta = (stk_eta){.view = view, .store = store, .width = 1, .left_ms = -1};
    }
    return eta;
}

void stk_eta_free(stk_eta *eta)
{
    if (eta != NULL) {
        free(eta->steps);
        free(eta);
    }
}

/* --- earlier runs --- */

typedef struct instant {
    int64_t ms;
    int change; /* of the number of tasks that run */
} instant;

static int compare_instants(const void *a, const void *b)
{
    const instant *x = a, *y = b;
    int order = (x->ms > y->ms) - (x->ms < y->ms);
    return order != 0 ? order : x->change - y->change; /* an end before a start */
}

/* How many tasks of the run ran at once, at most. */
static uint32_t width_of(const stk_view *view, stk_arena *arena)
{
    uint32_t n = stk_view_n_tasks(view), n_instants = 0;
    instant *instants = stk_arena_array(arena, 2 * (size_t)n + 1, sizeof *instants);
    for (uint32_t i = 0; instants != NULL && i < n; i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        if (task->first_ms > 0 && task->ended_ms >= task->first_ms) {
            instants[n_instants++] = (instant){task->first_ms, 1};
            instants[n_instants++] = (instant){task->ended_ms, -1};
        }
    }
    int now = 0, most = 1;
    if (n_instants > 0) {
        qsort(instants, n_instants, sizeof *instants, compare_instants);
    }
    for (uint32_t i = 0; i < n_instants; i++) {
        now += instants[i].change;
        most = MAX(most, now);
    }
    return (uint32_t)most;
}

/* `near`: where it probably is. */
static bool find_step(const stk_spec *spec, const char *name, uint32_t near, uint32_t *ret)
{
    uint32_t n = stk_spec_n_steps(spec);
    for (uint32_t i = 0; i < n; i++) {
        *ret = (near + i) % n;
        if (strcmp(stk_spec_step(spec, *ret)->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Adds the mean time of each step's tasks that ran and succeeded. */
static int add_past(stk_eta *eta, const stk_view *view, stk_arena *arena)
{
    const stk_spec *spec = stk_view_spec(eta->view);
    uint32_t n = stk_spec_n_steps(stk_view_spec(view));
    int64_t *sums = stk_arena_array(arena, n + 1, sizeof *sums);
    uint32_t *counts = stk_arena_array(arena, n + 1, sizeof *counts);
    if (sums == NULL || counts == NULL) {
        return STK_E_NOMEM;
    }
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        if (task->state == STK_TASK_SUCCEEDED && task->first_ms > 0) {
            sums[task->i_step] += MAX(task->ended_ms - task->first_ms, 0);
            counts[task->i_step]++;
        }
    }
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        uint32_t its = 0;
        if (find_step(stk_view_spec(view), stk_spec_step(spec, i)->name, i, &its)) {
            step_past *past = &eta->steps[i];
            if (counts[its] > 0) {
                past->took_ms[past->n++] = sums[its] / counts[its];
            }
            if (eta->n_runs == 0) {
                past->n_tasks = stk_view_get_step(view, its)->n;
            }
        }
    }
    eta->width = MAX(eta->width, width_of(view, arena));
    eta->n_runs++;
    return 0;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int read_past(stk_eta *eta, stk_arena *arena)
{
    const stk_view_run *run = stk_view_get_run(eta->view);
    stk_run_row *rows = NULL;
    uint32_t n = 0, n_steps = stk_spec_n_steps(stk_view_spec(eta->view));
    int64_t n_events = 0;
    eta->steps = calloc((size_t)n_steps + 1, sizeof *eta->steps);
    STK_TRY(stk_err_if_null(eta->steps, NULL));
    STK_TRY(stk_store_list_runs(eta->store, run->pipeline, NULL, LISTED, arena, &rows, &n, NULL));
    for (uint32_t i = 0; i < n && eta->n_runs < READ; i++) {
        STK_VIEW_AUTO view = NULL;
        if (strcmp(rows[i].status, "succeeded") != 0 || strcmp(rows[i].id, run->id) == 0) {
            continue;
        }
        n_events += stk_store_last_event(eta->store, rows[i].id);
        if (n_events > EVENTS_MAX) {
            break;
        }
        if (stk_view_load(eta->store, rows[i].id, &view, NULL) == 0) { /* else it has gone */
            STK_TRY(add_past(eta, view, arena));
        }
    }
    for (uint32_t i = 0; i < n_steps; i++) {
        step_past *past = &eta->steps[i];
        past->median_ms = -1;
        if (past->n > 0) {
            qsort(past->took_ms, past->n, sizeof *past->took_ms, compare_times);
            past->median_ms = past->took_ms[past->n / 2];
        }
    }
    return 0;
}

/* --- this run --- */

/* What a step has still to do. */
typedef struct todo {
    uint32_t n;         /* tasks that haven't ended */
    int64_t work_ms;    /* of all of them */
    int64_t longest_ms; /* of one of them */
    int64_t end_ms;     /* from now, if nothing but the graph held it up */
} todo;

static void add_task_todo(const stk_eta *eta, const stk_view_task *task, int64_t now_ms, todo *ret)
{
    int64_t left_ms = eta->steps[task->i_step].median_ms;
    if (stk_state_is_final(task->state)) {
        return;
    }
    if (task->state == STK_TASK_RUNNING && task->first_ms > 0) {
        left_ms = MAX(left_ms - (now_ms - task->first_ms), 0);
    }
    ret->n++;
    ret->work_ms += left_ms;
    ret->longest_ms = MAX(ret->longest_ms, left_ms);
}

/* False if the time of a step that is still to run is unknown. */
static bool find_todo(const stk_eta *eta, int64_t now_ms, todo *ret)
{
    const stk_view *view = eta->view;
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        add_task_todo(eta, task, now_ms, &ret[task->i_step]);
    }
    for (uint32_t i = 0; i < stk_spec_n_steps(stk_view_spec(view)); i++) {
        const step_past *past = &eta->steps[i];
        uint32_t n = stk_view_get_step(view, i)->n;
        if (n < past->n_tasks) { /* a growing run, as far as the newest one grew */
            uint32_t more = past->n_tasks - n;
            ret[i].n += more;
            ret[i].work_ms += (int64_t)more * past->median_ms;
            ret[i].longest_ms = MAX(ret[i].longest_ms, past->median_ms);
        }
        if (ret[i].n > 0 && past->median_ms < 0) {
            return false;
        }
    }
    return true;
}

static bool raise_end(todo *all, uint32_t to, uint32_t from, int64_t span_ms)
{
    int64_t end_ms = all[from].end_ms + span_ms;
    if (end_ms <= all[to].end_ms) {
        return false;
    }
    all[to].end_ms = end_ms;
    return true;
}

static bool raise_by_inputs(todo *all, uint32_t step, const stk_input *inputs, uint32_t n,
                            int64_t span_ms)
{
    bool has_risen = false;
    for (uint32_t i = 0; i < n; i++) {
        if (inputs[i].kind == STK_INPUT_OUTPUT) {
            has_risen = raise_end(all, step, inputs[i].step, span_ms) || has_risen;
        }
        has_risen =
            raise_by_inputs(all, step, inputs[i].items, inputs[i].n_items, span_ms) || has_risen;
    }
    return has_risen;
}

/* One pass over the graph; true if an end has moved. */
static bool raise_ends(const stk_spec *spec, const int64_t *spans, todo *all)
{
    bool has_risen = false;
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const stk_step *step = stk_spec_step(spec, i);
        if (raise_by_inputs(all, i, step->inputs, step->n_inputs, spans[i])) {
            has_risen = true;
        }
        for (uint32_t k = 0; k < step->n_after; k++) {
            has_risen = raise_end(all, i, step->after[k], spans[i]) || has_risen;
        }
        for (uint32_t k = 0; k < step->n_next; k++) {
            has_risen = raise_end(all, step->next[k], i, spans[step->next[k]]) || has_risen;
        }
    }
    return has_risen;
}

/* At least the longest way through the graph, and all work shared by as many tasks as ever ran at
 * once. */
static int64_t compute_left(const stk_eta *eta, int64_t now_ms, stk_arena *arena)
{
    const stk_spec *spec = stk_view_spec(eta->view);
    uint32_t n = stk_spec_n_steps(spec), n_passes = 0;
    todo *all = stk_arena_array(arena, n + 1, sizeof *all);
    int64_t *spans = stk_arena_array(arena, n + 1, sizeof *spans);
    int64_t work_ms = 0, left_ms = 0;
    if (all == NULL || spans == NULL || eta->n_runs == 0 || !find_todo(eta, now_ms, all)) {
        return -1;
    }
    for (uint32_t i = 0; i < n; i++) {
        spans[i] = MAX(all[i].longest_ms, all[i].work_ms / eta->width);
        all[i].end_ms = spans[i];
        work_ms += all[i].work_ms;
    }
    while (raise_ends(spec, spans, all)) {
        if (++n_passes > n) {
            return -1; /* a loop: nobody knows how often */
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        left_ms = MAX(left_ms, all[i].end_ms);
    }
    left_ms = MAX(left_ms, work_ms / eta->width);
    return left_ms > 0 ? left_ms : -1; /* it takes longer than ever before */
}

int64_t stk_eta_left_ms(stk_eta *eta, int64_t now_ms)
{
    if (eta == NULL) {
        return -1;
    }
    const stk_view_run *run = stk_view_get_run(eta->view);
    int64_t begin_ms = run->started_ms != 0 ? run->started_ms : run->created_ms;
    STK_ARENA_AUTO arena = stk_arena_new(64u << 20);
    if (arena == NULL || begin_ms == 0 || now_ms < begin_ms + BEGIN_MS) {
        return -1;
    }
    if (!eta->has_read) {
        eta->has_read = true;
        if (read_past(eta, arena) < 0) {
            eta->n_runs = 0;
        }
    }
    if (now_ms - eta->asked_ms >= EVERY_MS) {
        eta->asked_ms = now_ms;
        eta->left_ms = compute_left(eta, now_ms, arena);
    }
    return eta->left_ms;
}

const char *stk_eta_text(int64_t left_ms, char *buf, size_t size)
{
    int s = (int)MIN((left_ms + 999) / 1000, INT32_MAX - 60), min = (s + 30) / 60;
    if (s <= 55) {
        (void)snprintf(buf, size, "about %d s left", ((s + 4) / 5 * 5));
    } else if (min < 60) {
        (void)snprintf(buf, size, "about %d min left", MAX(min, 1));
    } else {
        (void)snprintf(buf, size, "about %d h %d min left", (min / 60), (min % 60 / 10 * 10));
    }
    return buf;
}
