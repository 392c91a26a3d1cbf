/* Adds tasks while the run goes on (docs/decisions/0009): decides what follows a finished task, and
 * gives each new task its request and its number. */
#include "run/exec/grown/exec_grow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_made.h"
#include "run/exec/place/exec_place.h"

uint32_t stk_exec_id(const stk_exec *x, uint32_t task)
{
    return x->graph.grow == NULL ? 0 : task + 1;
}

const char *stk_exec_who(const stk_exec *x, uint32_t task, stk_arena *arena)
{
    if (x->graph.grow == NULL) {
        return stk_arena_printf(arena, "step '%s'", stk_spec_title(x->spec, task));
    }
    return stk_arena_printf(arena, "step '%s' (task %u)", stk_exec_step(x, task)->name, task + 1);
}

/* --- a task's request --- */

uint32_t stk_exec_ranks(const stk_exec *x, uint32_t task)
{
    if (x->graph.grow == NULL) {
        return 0;
    }
    return stk_grow_get(x->graph.grow, task).ranks;
}

stk_gang_ask stk_exec_gang(const stk_exec *x, uint32_t task)
{
    stk_gang_ask gang = stk_exec_step(x, task)->settings->gang;
    uint32_t ranks = stk_exec_ranks(x, task);
    if (ranks > 0) { /* all or none, and no restarts: the join reads the outputs of each rank */
        bool is_away = stk_exec_is_away(x, task); /* there each rank has its own node */
        gang.ranks = gang.min_ranks = is_away ? 1 : ranks;
        gang.restarts = 0;
        gang.nodes = is_away ? ranks : 0;
    }
    return gang;
}

stk_request stk_exec_request(const stk_plan *plan, uint32_t i_step, uint32_t ranks,
                             stk_pack_ask *asks)
{
    stk_request r = *stk_plan_request(plan, i_step);
    if (ranks > 1 && r.place == 0) { /* on other machines the request is for one node */
        r.cpu_milli *= ranks;
        r.memory_bytes *= ranks;
        r.n_devices *= ranks;
        for (uint32_t i = 0; i < r.n_asks; i++) {
            asks[i] = r.asks[i];
            asks[i].n *= ranks;
        }
        r.asks = asks;
    }
    return r;
}

/* --- adding --- */

static int reserve(stk_exec *x, uint32_t n_more, stk_err *err)
{
    uint64_t n = (uint64_t)x->n_tasks + n_more;
    if (n <= x->cap_tasks) {
        return 0;
    }
    if (n < (uint64_t)x->cap_tasks * 2) {
        n = (uint64_t)x->cap_tasks * 2;
    }
    exec_task *tasks = reallocarray(x->tasks, n, sizeof *tasks);
    STK_TRY(stk_err_if_null(tasks, err));
    x->tasks = tasks;
    exec_grown *grown = reallocarray(x->graph.grown, n, sizeof *grown);
    STK_TRY(stk_err_if_null(grown, err));
    x->graph.grown = grown;
    x->cap_tasks = (uint32_t)n;
    return 0;
}

int stk_exec_grow_tasks(stk_exec *x, const stk_grow_adding *adding, stk_err *err)
{
    STK_TRY(reserve(x, adding->n, err));
    STK_TRY(stk_grow_add(x->graph.grow, adding, err));
    for (uint32_t i = 0; i < adding->n; i++) {
        x->tasks[x->n_tasks] = (exec_task){.i_step = adding->i_step, .hook = -1};
        x->graph.grown[x->n_tasks++] = (exec_grown){.origin = STK_GROW_NONE};
    }
    return 0;
}

static const char *refusal_text(const stk_exec *x, uint32_t task, const stk_request *r,
                                const stk_err *why)
{
    uint32_t ranks = stk_exec_ranks(x, task);
    const stk_capacity *c = x->config.capacity;
    if (ranks <= 1) {
        return stk_arena_dup(x->arena, why->text);
    }
    if (r->n_asks == 0) {
        return stk_arena_printf(x->arena,
                                "its %u ranks together ask for %g CPUs and %.3g GB of memory, but "
                                "%s has %g and %.3g GB; lower num_parallel, or the step's request",
                                ranks, (double)r->cpu_milli / 1e3, (double)r->memory_bytes / 1e9,
                                c->where, (double)c->cpu_milli / 1e3,
                                (double)c->memory_bytes / 1e9);
    }
    const char *there = stk_plan_inventory(c, NULL, x->scratch);
    if (there == NULL) {
        return NULL;
    }
    return stk_arena_printf(x->arena,
                            "its %u ranks together ask for %u devices, but %s has %s; lower "
                            "num_parallel, or the step's request",
                            ranks, r->n_devices, c->where, there);
}

/* Lowers CPUs and memory to what this machine has if they are the defaults, or if the policy is
 * `fit`. A request that the user wrote stays as it is otherwise. */
static void fit(const stk_capacity *c, stk_policy policy, stk_request *r)
{
    bool makes_do = policy == STK_POLICY_FIT;
    if (r->place > 0) {
        return;
    }
    if (r->cpu_milli > c->cpu_milli && (makes_do || !r->limit_cpu)) {
        r->cpu_milli = c->cpu_milli;
    }
    if (r->memory_bytes > c->memory_bytes && (makes_do || !r->limit_memory)) {
        r->memory_bytes = c->memory_bytes;
    }
}

int stk_exec_grow_add(stk_sched *sched, const stk_plan *plan, const stk_capacity *capacity,
                      stk_policy policy, uint32_t i_step, uint32_t ranks, const uint32_t *needs,
                      uint32_t n_needs, stk_request *ret_request, stk_err *why, stk_err *err)
{
    stk_pack_ask asks[STK_LIMIT_ASKS];
    stk_request r = stk_exec_request(plan, i_step, ranks, asks);
    fit(capacity, policy, &r);
    stk_sched_task ask = stk_exec_sched_task(plan, i_step, &r);
    *ret_request = r;
    ret_request->asks = NULL;
    if (r.refusal == NULL) {
        int rc = stk_sched_add(sched, &ask, needs, n_needs, NULL, why);
        if (rc < 0 && rc != STK_E_RESOURCES && err != NULL) {
            *err = *why;
        }
        if (rc != STK_E_RESOURCES) {
            return rc;
        }
    } else {
        stk_err_set(why, STK_E_RESOURCES, "%s", r.refusal);
    }
    ask.cpu_milli = ask.memory_bytes = 0;
    ask.n_asks = 0;
    STK_TRY(stk_sched_add(sched, &ask, needs, n_needs, NULL, err));
    return 1;
}

int stk_exec_grow_schedule(stk_exec *x, uint32_t task, const uint32_t *needs, uint32_t n_needs,
                           stk_err *err)
{
    stk_request r;
    stk_err why = {0};
    int rc = stk_exec_grow_add(x->sched, x->config.plan, x->config.capacity, x->config.policy,
                               x->tasks[task].i_step, stk_exec_ranks(x, task), needs, n_needs, &r,
                               &why, err);
    if (rc == 1) { /* the scheduler has the task; it fails when it starts */
        x->graph.grown[task].refusal = refusal_text(x, task, &r, &why);
        return stk_err_if_null(x->graph.grown[task].refusal, err);
    }
    return rc;
}

static void put_added(const stk_exec *x, const stk_grow_adding *a, stk_buf *buf)
{
    stk_json_open(buf, NULL, '{');
    stk_json_put_text(buf, "step", stk_spec_step(x->spec, a->i_step)->name);
    stk_json_put_whole(buf, "n", a->n);
    stk_json_open(buf, "deps", '[');
    for (uint32_t i = 0; i < a->n_parents; i++) {
        stk_json_put_whole(buf, NULL, a->parents[i]);
    }
    stk_json_close(buf, ']');
    if (a->split != STK_GROW_NONE) {
        stk_json_put_whole(buf, "split", a->split);
        stk_json_put_whole(buf, "branch", a->branch);
    }
    if (a->ranks > 0) {
        stk_json_put_whole(buf, "ranks", a->ranks);
    }
    stk_json_close(buf, '}');
}

int stk_exec_load_added(const stk_spec *spec, const stk_event_row *row, const stk_json *data,
                        stk_arena *arena, stk_grow_adding *ret_adding, stk_err *err)
{
    const char *name = stk_json_get_text(data, "step");
    const stk_json *deps = stk_json_get(data, "deps");
    int64_t step = name == NULL ? -1 : stk_spec_find(spec, name);
    uint32_t n = stk_json_n_items(deps);
    uint32_t *parents = stk_arena_array(arena, (size_t)n + 1, sizeof *parents);
    STK_TRY(stk_err_if_null(parents, err));
    for (uint32_t i = 0; i < n; i++) {
        parents[i] = (uint32_t)stk_json_whole(stk_json_item(deps, i), 0);
    }
    *ret_adding =
        (stk_grow_adding){.first = row->task,
                          .n = (uint32_t)stk_json_get_whole(data, "n", 0),
                          .i_step = step < 0 ? STK_GROW_NONE : (uint32_t)step,
                          .parents = parents,
                          .n_parents = n,
                          .split = (uint32_t)stk_json_get_whole(data, "split", STK_GROW_NONE),
                          .branch = (uint32_t)stk_json_get_whole(data, "branch", 0),
                          .ranks = (uint32_t)stk_json_get_whole(data, "ranks", 0)};
    return 0;
}

static int note_less(stk_exec *x, uint32_t i_step, uint32_t ranks, stk_err *err)
{
    stk_pack_ask asks[STK_LIMIT_ASKS];
    char cpus[2][40] = {"", ""}, memory[2][64] = {"", ""};
    const stk_capacity *c = x->config.capacity;
    stk_request r = stk_exec_request(x->config.plan, i_step, ranks, asks);
    bool few_cpus = r.limit_cpu && r.cpu_milli > c->cpu_milli;
    bool little_memory = r.limit_memory && r.memory_bytes > c->memory_bytes;
    if (ranks < 2 || r.place > 0 || x->config.policy != STK_POLICY_FIT ||
        !(few_cpus || little_memory)) {
        return 0;
    }
    if (x->noted_less == NULL) {
        x->noted_less = stk_arena_array(x->arena, stk_spec_n_steps(x->spec), sizeof *x->noted_less);
    }
    STK_TRY(stk_err_if_null(x->noted_less, err));
    if (x->noted_less[i_step]) {
        return 0;
    }
    x->noted_less[i_step] = true;
    const char *and = stk_text_when(few_cpus && little_memory, " and ");
    if (few_cpus) {
        (void)snprintf(cpus[0], sizeof cpus[0], "%g CPUs", (double)r.cpu_milli / 1e3);
        (void)snprintf(cpus[1], sizeof cpus[1], "%g", (double)c->cpu_milli / 1e3);
    }
    if (little_memory) {
        (void)snprintf(memory[0], sizeof memory[0], "%.3g GB of memory",
                       (double)r.memory_bytes / 1e9);
        (void)snprintf(memory[1], sizeof memory[1], "%.3g GB", (double)c->memory_bytes / 1e9);
    }
    return stk_exec_emit_note(
        x,
        stk_arena_printf(x->scratch,
                         "the %u ranks of step '%s' ask for %s%s%s together: %s has %s%s%s, which "
                         "they share (policy fit)",
                         ranks, stk_spec_step(x->spec, i_step)->name, cpus[0], and, memory[0],
                         c->where, cpus[1], and, memory[1]),
        err);
}

/* Writes one event row for all tasks of `a`; the row has the number of the first one. */
static int emit_added(stk_exec *x, const stk_grow_adding *a, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    STK_TRY(stk_exec_grow_tasks(x, a, err));
    for (uint32_t i = 0; i < a->n; i++) {
        STK_TRY(stk_exec_grow_schedule(x, a->first + i, NULL, 0, err));
    }
    STK_TRY(note_less(x, a->i_step, a->ranks, err));
    put_added(x, a, &buf);
    return stk_exec_emit_task(x, STK_EV_TASK_ADDED, a->first, &buf, err);
}

int stk_exec_grow_begin(stk_exec *x, stk_err *err)
{
    stk_grow_adding first;
    stk_grow_begin(x->graph.grow, &first);
    return emit_added(x, &first, err);
}

/* Whether both choices are the same. A task that runs again because its artifacts are missing must
 * choose the same, because its followers exist already. */
static bool chooses_the_same(const stk_grow_next *a, const stk_grow_next *b)
{
    return a->n_steps == b->n_steps && a->n == b->n &&
           (a->n_steps == 0 || memcmp(a->steps, b->steps, a->n_steps * sizeof *a->steps) == 0);
}

int stk_exec_follow_check(const stk_exec *x, uint32_t task, const stk_grow_next *next, stk_err *err)
{
    const exec_grown *g = &x->graph.grown[task];
    if (!g->has_followed) {
        return stk_grow_check(x->graph.grow, task, next, err);
    }
    if (chooses_the_same(&g->next, next)) {
        return 0;
    }
    return stk_err_set(
        err, STK_E_USAGE,
        "it ran again, because its artifacts are missing from the store, but chose other next "
        "steps, or another number of them, than the first time; start a new run");
}

int stk_exec_follow(stk_exec *x, uint32_t task, const exec_made *made, stk_err *err)
{
    stk_grow_adding *adding = NULL;
    uint32_t n = 0;
    STK_TRY(stk_exec_scope_end(x, task, made, err));
    if (x->graph.grown[task].has_followed) {
        return 0;
    }
    STK_TRY(stk_grow_done(x->graph.grow, task, &made->next, x->tick, &adding, &n, err));
    x->graph.grown[task].has_followed = true;
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(emit_added(x, &adding[i], err));
    }
    return 0;
}

/* --- results of another task --- */

static int push_artifact(stk_exec *x, uint32_t task, const exec_artifact *a, stk_err *err)
{
    return stk_exec_push_ref(
        x, &(stk_ref_row){.digest = a->ref.digest, .task = task, .output = a->name}, err);
}

/* Records that this run also refers to the artifacts. */
static int push_made(stk_exec *x, uint32_t task, const exec_made *made, stk_err *err)
{
    for (uint32_t i = 0; i < made->n_parts; i++) {
        for (uint32_t k = 0; k < made->parts[i].n_artifacts; k++) {
            STK_TRY(push_artifact(x, task, made->parts[i].artifacts[k], err));
        }
    }
    if (made->items != NULL) {
        return push_artifact(x, task, made->items, err);
    }
    return 0;
}

/* Emits TASK_CACHED with the other task's results, then adds what follows, in one transaction. */
static int take_over(stk_exec *x, uint32_t task, const exec_taken *taken, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 4);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_known_text(&buf, "key", taken->key);
    stk_json_put_text(&buf, "from_run", taken->from_run);
    stk_json_put_whole(&buf, "from_task", taken->from_task);
    stk_exec_put_made(x, &taken->made, &buf);
    stk_json_put_raw(&buf, "metadata", stk_text_or(taken->metadata, "{}"));
    stk_json_close(&buf, '}');
    STK_TRY(push_made(x, task, &taken->made, err));
    x->is_held = true;
    int rc = stk_exec_emit_task(x, STK_EV_TASK_CACHED, task, &buf, err);
    if (rc >= 0) {
        rc = stk_exec_follow(x, task, &taken->made, err);
    }
    x->is_held = false;
    return rc;
}

static int lookup_grown(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_taken taken = {.from_run = NULL};
    int rc = 0;
    if (x->graph.clone != NULL) {
        rc = stk_exec_clone_find(x, task, &taken, err);
    }
    if (rc == 0 && taken.from_run == NULL) {
        rc = stk_exec_lookup_taken(x, task, &taken, err);
    }
    if (stk_exec_sum_aside(x, task, EXEC_ASIDE_LOOKUP, NULL, &rc, err)) {
        return 0;
    }
    STK_TRY(rc);
    STK_TRY(stk_exec_note_damage(x, err));
    if (taken.from_run != NULL) {
        STK_TRY(
            stk_exec_note_origin(x, x->tasks[task].i_step, taken.from_run, taken.from_task, err));
        return take_over(x, task, &taken, err);
    }
    return stk_exec_emit_task(x, STK_SE_MISSED, task, NULL, err);
}

int stk_exec_lookup_grown(stk_exec *x, uint32_t task, stk_err *err)
{
    int rc = lookup_grown(x, task, err);
    stk_arena_reset(x->scratch);
    return rc;
}

int stk_exec_keep_failure(stk_exec *x, uint32_t task, const exec_failure *failure, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    stk_json_open(&buf, NULL, '{');
    stk_json_put_text(&buf, "class", stk_failure_word(failure->class));
    stk_json_put_text(&buf, "text", failure->text);
    stk_json_put_text(&buf, "type", failure->type);
    stk_json_put_text(&buf, "message", failure->message);
    stk_json_put_text(&buf, "raw", failure->raw);
    stk_json_put_text(&buf, "traceback", failure->traceback);
    stk_json_close(&buf, '}');
    x->graph.grown[task].fallback = stk_buf_keep(&buf, x->arena);
    return stk_err_if_null(x->graph.grown[task].fallback, err);
}

int stk_exec_fail_refused(stk_exec *x, uint32_t task, stk_err *err)
{
    exec_failure failure = {.class = STK_FAIL_RESOURCES, .text = x->graph.grown[task].refusal};
    return stk_exec_fail(x, task, &failure, err);
}

int stk_exec_next_load(const stk_spec *spec, uint32_t i_step, const stk_json *next,
                       stk_arena *arena, stk_grow_next *ret_next, stk_err *err)
{
    const stk_json *list = stk_json_get(next, "steps");
    uint32_t n = (uint32_t)stk_json_n_items(list);
    const char **names = stk_arena_array(arena, (size_t)n + 1, sizeof *names);
    *ret_next = (stk_grow_next){.n_steps = n, .n = (uint32_t)stk_json_get_whole(next, "n", 0)};
    STK_TRY(stk_err_if_null(names, err));
    for (uint32_t i = 0; i < n; i++) {
        names[i] = stk_text_or(stk_json_text(stk_json_item(list, i)), "");
    }
    return stk_grow_read_next(spec, i_step, names, n, arena, &ret_next->steps, err);
}
