#include "show/eta_past.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/json.h"
#include "base/text.h"
#include "sys/clock.h"

enum {
    LISTED = 20,     /* runs, of which … */
    ENOUGH = 100000, /* … no further ones are read after so many events */
    PIECE = 500,     /* events that are read at least … */
    PIECE_MS = 4     /* … and the time after which a look ends */
};

/* A task of the run that is read. */
typedef struct past_task {
    int64_t first_ms;
    uint32_t i_step;
    bool is_running;
} past_task;

typedef struct past_step {
    int64_t sum_ms;
    uint32_t n, n_tasks; /* that ran; all of them */
} past_step;

struct stk_eta_past {
    const stk_view *view;
    stk_store *store;
    stk_arena *arena;
    const stk_run_row *rows;
    uint32_t n_rows, i_row;
    bool is_over;
    int64_t n_events;
    /* the run that is read */
    stk_spec *owned;
    const stk_spec *spec; /* NULL: none is */
    int64_t seq;
    past_task *tasks;
    uint32_t n_tasks, cap_tasks;
    past_step *past;
    uint32_t n_running, most;
    uint32_t n_piece;
    int64_t until_ms;
    /* what is known */
    stk_eta_step *steps; /* by step of `view` */
    uint32_t n_runs, width;
};

static void close_run(stk_eta_past *p)
{
    stk_spec_free(p->owned);
    free(p->tasks);
    free(p->past);
    p->owned = NULL;
    p->spec = NULL;
    p->tasks = NULL;
    p->past = NULL;
    p->n_tasks = p->cap_tasks = p->n_running = p->most = 0;
    p->seq = 0;
}

stk_eta_past *stk_eta_past_new(const stk_view *view, stk_store *store)
{
    stk_eta_past *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return NULL;
    }
    *p = (stk_eta_past){.view = view, .store = store, .width = 1};
    p->arena = stk_arena_new(0);
    p->steps = calloc((size_t)stk_spec_n_steps(stk_view_spec(view)) + 1, sizeof *p->steps);
    stk_run_row *rows = NULL;
    if (p->arena == NULL || p->steps == NULL) {
        stk_eta_past_free(p);
        return NULL;
    }
    p->is_over = stk_store_list_runs(store, stk_view_get_run(view)->pipeline, NULL, LISTED,
                                     p->arena, &rows, &p->n_rows, NULL) < 0;
    p->rows = rows;
    return p;
}

void stk_eta_past_free(stk_eta_past *p)
{
    if (p != NULL) {
        close_run(p);
        stk_arena_free(p->arena);
        free(p->steps);
        free(p);
    }
}

const stk_eta_step *stk_eta_past_steps(const stk_eta_past *p)
{
    return p->n_runs > 0 ? p->steps : NULL;
}

uint32_t stk_eta_past_width(const stk_eta_past *p)
{
    return p->width;
}

/* --- one run --- */

static int add_tasks(stk_eta_past *p, uint32_t i_step, int64_t n)
{
    if (n < 1 || n > STK_LIMIT_TASKS - (int64_t)p->n_tasks ||
        stk_array_reserve(&p->tasks, &p->cap_tasks, p->n_tasks + (uint64_t)n, sizeof *p->tasks) <
            0) {
        return STK_E_NOMEM;
    }
    for (int64_t i = 0; i < n; i++) {
        p->tasks[p->n_tasks++] = (past_task){.i_step = i_step};
    }
    p->past[i_step].n_tasks += (uint32_t)n;
    return 0;
}

static int open_spec(stk_eta_past *p, const char *run)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const char *text = NULL;
    size_t len = 0;
    STK_TRY(stk_err_if_null(scratch, NULL));
    STK_TRY(stk_store_load_spec(p->store, run, scratch, &text, &len, NULL));
    const stk_spec_place place = {.path = run, .folder = "/"};
    STK_TRY(stk_spec_parse(text, len, &place, &p->owned, NULL));
    p->spec = p->owned;
    return 0;
}

/* Begins with the next run; a run that can't be read is passed over. */
static int open_past_run(stk_eta_past *p, const char *run)
{
    STK_TRY(open_spec(p, run));
    uint32_t n = stk_spec_n_steps(p->spec);
    p->past = calloc((size_t)n + 1, sizeof *p->past);
    STK_TRY(stk_err_if_null(p->past, NULL));
    for (uint32_t i = 0; i < n && !stk_view_grows(p->view); i++) {
        STK_TRY(add_tasks(p, i, 1));
    }
    return 0;
}

static int add_grown(stk_eta_past *p, const stk_event_row *row)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *data = stk_json_read(scratch, row->data);
    const char *name = stk_json_get_text(data, "step");
    int64_t i_step = name == NULL ? -1 : stk_spec_find(p->spec, name);
    if (i_step < 0 || row->task != p->n_tasks) {
        return 0; /* damaged, or repeated */
    }
    return add_tasks(p, (uint32_t)i_step, stk_json_get_whole(data, "n", 1));
}

static void end_task(stk_eta_past *p, past_task *task, const stk_event_row *row)
{
    p->n_running -= task->is_running;
    task->is_running = false;
    if (row->kind == STK_EV_TASK_SUCCEEDED && task->first_ms > 0) {
        past_step *step = &p->past[task->i_step];
        step->sum_ms += MAX(row->time_ms - task->first_ms, 0);
        step->n++;
    }
}

/* Returns 1 when the look has taken long enough. */
static int read_past_event(void *arg, const stk_event_row *row)
{
    stk_eta_past *p = arg;
    p->seq = row->seq;
    p->n_events++;
    if (row->kind == STK_EV_TASK_ADDED) {
        STK_TRY(add_grown(p, row));
    } else if (row->task < p->n_tasks) {
        past_task *task = &p->tasks[row->task];
        if (row->kind == STK_EV_TASK_STARTED) {
            p->n_running += !task->is_running;
            task->is_running = true;
            task->first_ms = task->first_ms > 0 ? task->first_ms : row->time_ms;
            p->most = MAX(p->most, p->n_running);
        } else if (row->kind == STK_EV_TASK_SUCCEEDED || row->kind == STK_EV_TASK_FAILED ||
                   row->kind == STK_EV_TASK_CANCELLED) {
            end_task(p, task, row);
        }
    }
    return ++p->n_piece % PIECE == 0 && stk_clock_mono_ms(&stk_clock_real) >= p->until_ms;
}

/* --- all runs --- */

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Adds what the run that has been read says of the steps. `near`: where a step probably is. */
static void keep_run(stk_eta_past *p)
{
    const stk_spec *spec = stk_view_spec(p->view);
    uint32_t n_its = stk_spec_n_steps(p->spec);
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        const char *name = stk_spec_step(spec, i)->name;
        int64_t its = i;
        if (i >= n_its || strcmp(stk_spec_step(p->spec, i)->name, name) != 0) {
            its = stk_spec_find(p->spec, name);
        }
        stk_eta_step *step = &p->steps[i];
        if (its >= 0 && p->past[its].n > 0) {
            step->took_ms[step->n++] = p->past[its].sum_ms / p->past[its].n;
        }
        if (its >= 0 && p->n_runs == 0) {
            step->n_tasks = p->past[its].n_tasks;
        }
        step->median_ms = -1;
        if (step->n > 0) {
            qsort(step->took_ms, step->n, sizeof *step->took_ms, compare_times);
            step->median_ms = step->took_ms[step->n / 2];
        }
    }
    p->width = MAX(p->width, p->most);
    p->n_runs++;
}

/* The next run that can tell something; false: there is none. */
static bool open_next(stk_eta_past *p)
{
    const char *own = stk_view_get_run(p->view)->id;
    while (p->i_row < p->n_rows && p->n_runs < STK_ETA_RUNS && p->n_events < ENOUGH) {
        const stk_run_row *row = &p->rows[p->i_row++];
        if (strcmp(row->status, "succeeded") == 0 && strcmp(row->id, own) != 0) {
            if (open_past_run(p, row->id) == 0) {
                return true;
            }
            close_run(p);
        }
    }
    return false;
}

bool stk_eta_past_read(stk_eta_past *p)
{
    p->until_ms = stk_clock_mono_ms(&stk_clock_real) + PIECE_MS;
    p->n_piece = 0;
    while (!p->is_over) {
        if (p->spec == NULL && !open_next(p)) {
            p->is_over = true;
            break;
        }
        const char *run = p->rows[p->i_row - 1].id;
        int rc = stk_store_events(p->store, run, p->seq, read_past_event, p, NULL);
        if (rc > 0) {
            return false;
        }
        if (rc == 0) {
            keep_run(p);
        }
        close_run(p);
    }
    return true;
}
