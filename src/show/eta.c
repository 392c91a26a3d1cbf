#include "show/eta.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "show/eta_past.h"

enum {
    BEGIN_MS = 2000, /* a shorter run costs nothing */
    EVERY_MS = 1000, /* between two computations */
    PASSES = 100     /* over the graph, at most */
};

struct stk_eta {
    const stk_view *view;
    stk_store *store;
    stk_eta_past *past; /* NULL: nothing was read */
    const stk_eta_step *steps;
    bool has_read; /* all that there is */
    int64_t asked_ms, left_ms;
};

stk_eta *stk_eta_new(const stk_view *view, stk_store *store)
{
    stk_eta *eta = calloc(1, sizeof *eta);
    if (eta != NULL) {
        *eta = (stk_eta){.view = view, .store = store, .left_ms = -1};
    }
    return eta;
}

void stk_eta_free(stk_eta *eta)
{
    if (eta != NULL) {
        stk_eta_past_free(eta->past);
        free(eta);
    }
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
        const stk_eta_step *past = &eta->steps[i];
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

/* One pass over the graph, against the order of its steps in each second one; true if an end has
 * moved. */
static bool raise_ends(const stk_spec *spec, const int64_t *spans, bool backwards, todo *all)
{
    bool has_risen = false;
    uint32_t n = stk_spec_n_steps(spec);
    for (uint32_t at = 0; at < n; at++) {
        uint32_t i = backwards ? n - 1 - at : at;
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
    uint32_t n = stk_spec_n_steps(spec), n_passes = 0, width = stk_eta_past_width(eta->past);
    todo *all = stk_arena_array(arena, n + 1, sizeof *all);
    int64_t *spans = stk_arena_array(arena, n + 1, sizeof *spans);
    int64_t work_ms = 0, left_ms = 0;
    if (all == NULL || spans == NULL || !find_todo(eta, now_ms, all)) {
        return -1;
    }
    for (uint32_t i = 0; i < n; i++) {
        spans[i] = MAX(all[i].longest_ms, all[i].work_ms / width);
        all[i].end_ms = spans[i];
        work_ms += all[i].work_ms;
    }
    while (raise_ends(spec, spans, n_passes % 2 == 1, all)) {
        if (++n_passes > MIN(n, PASSES)) {
            return -1; /* a loop: nobody knows how often; or a graph that costs too much */
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        left_ms = MAX(left_ms, all[i].end_ms);
    }
    left_ms = MAX(left_ms, work_ms / width);
    return left_ms > 0 ? left_ms : -1; /* it takes longer than ever before */
}

int64_t stk_eta_left_ms(stk_eta *eta, int64_t now_ms)
{
    if (eta == NULL) {
        return -1;
    }
    const stk_view_run *run = stk_view_get_run(eta->view);
    int64_t begin_ms = run->started_ms != 0 ? run->started_ms : run->created_ms;
    if (begin_ms == 0 || now_ms < begin_ms + BEGIN_MS) {
        return -1;
    }
    if (eta->past == NULL && !eta->has_read) {
        eta->past = stk_eta_past_new(eta->view, eta->store);
        eta->has_read = eta->past == NULL;
    }
    if (eta->past != NULL && !eta->has_read) {
        eta->has_read = stk_eta_past_read(eta->past);
        eta->steps = stk_eta_past_steps(eta->past);
    }
    STK_ARENA_AUTO arena = stk_arena_new(64u << 20);
    if (arena != NULL && eta->steps != NULL && now_ms - eta->asked_ms >= EVERY_MS) {
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
