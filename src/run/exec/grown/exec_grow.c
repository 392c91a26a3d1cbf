/* Tasks that are added while the run goes on (docs/decisions/0009): what follows a finished one,
 * what it asks for, and who it is. */
#include "run/exec/grown/exec_grow.h"

#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/text.h"
#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_loop.h"
#include "run/exec/core/exec_state.h"
#include "run/exec/core/exec_sum.h"
#include "run/exec/grown/exec_grown.h"
#include "run/exec/grown/exec_said.h"
#include "run/exec/place/exec_place.h"

uint32_t stk_exec_id(const stk_exec *x, uint32_t task)
{
    return x->graph.grow == NULL ? 0 : task + 1;
}

const char *stk_exec_who(const stk_exec *x, uint32_t task, stk_arena *arena)
{
    const char *name = stk_exec_step(x, task)->name;
    return x->graph.grow == NULL ? stk_arena_printf(arena, "step '%s'", name)
                                 : stk_arena_printf(arena, "step '%s' (task %u)", name, task + 1);
}

/* --- what it asks for --- */

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
    if (ranks > 0) { /* all or none, once: the join takes in what each of them made */
        bool is_away = stk_exec_is_away(x, task); /* there each has a node of its own */
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
    if (ranks > 1 && r.place == 0) { /* elsewhere each node is asked for as one */
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
    int rc = reserve(x, adding->n, err);
    rc = rc < 0 ? rc : stk_grow_add(x->graph.grow, adding, err);
    for (uint32_t i = 0; rc == 0 && i < adding->n; i++) {
        x->tasks[x->n_tasks] = (exec_task){.i_step = adding->i_step, .hook = -1};
        x->graph.grown[x->n_tasks++] = (exec_grown){.origin = STK_GROW_NONE};
    }
    return rc;
}

/* The scheduler has refused a request. */
static const char *refusal_text(const stk_exec *x, uint32_t task, const stk_request *r,
                                const stk_err *why)
{
    uint32_t ranks = stk_exec_ranks(x, task);
    const stk_capacity *c = x->config.capacity;
    if (ranks <= 1) {
        return stk_arena_dup(x->arena, why->text);
    }
    if (r->n_asks > 0) {
        const char *there = stk_plan_inventory(c, NULL, x->scratch);
        return there == NULL ? NULL
                             : stk_arena_printf(
                                   x->arena,
                                   "its %u ranks ask for %u devices, all at once, and %s has %s; "
                                   "lower num_parallel, or what the step asks for",
                                   ranks, r->n_devices, c->where, there);
    }
    return stk_arena_printf(x->arena,
                            "its %u ranks ask for %g CPUs and %.3g GB of memory, all at once, and "
                            "%s has %g and %.3g GB; lower num_parallel, or what the step asks for",
                            ranks, (double)r->cpu_milli / 1e3, (double)r->memory_bytes / 1e9,
                            c->where, (double)c->cpu_milli / 1e3, (double)c->memory_bytes / 1e9);
}

/* Of what nobody asked for there needn't be enough; what was, there must, unless the run is to make
 * do with what there is. */
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
    int rc = r.refusal != NULL ? stk_err_set(why, STK_E_RESOURCES, "%s", r.refusal)
                               : stk_sched_add(sched, &ask, needs, n_needs, NULL, why);
    if (rc != STK_E_RESOURCES) {
        if (rc < 0 && err != NULL) {
            *err = *why;
        }
        return rc;
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
    if (rc == 1) { /* it is there, and fails when it is to begin */
        x->graph.grown[task].refusal = refusal_text(x, task, &r, &why);
        return stk_err_if_null(x->graph.grown[task].refusal, err);
    }
    return rc;
}

static const char *added_json(const stk_exec *x, const stk_grow_adding *a)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    stk_buf_text(&buf, "{\"step\":");
    stk_buf_json(&buf, stk_spec_step(x->spec, a->i_step)->name);
    stk_buf_printf(&buf, ",\"n\":%u,\"deps\":[", a->n);
    for (uint32_t i = 0; i < a->n_parents; i++) {
        stk_buf_printf(&buf, i > 0 ? ",%u" : "%u", a->parents[i]);
    }
    stk_buf_char(&buf, ']');
    if (a->split != STK_GROW_NONE) {
        stk_buf_printf(&buf, ",\"split\":%u,\"branch\":%u", a->split, a->branch);
    }
    if (a->ranks > 0) {
        stk_buf_printf(&buf, ",\"ranks\":%u", a->ranks);
    }
    stk_buf_char(&buf, '}');
    return stk_exec_event_data(x, &buf);
}

/* Policy fit gives a gang less than its ranks ask for together: said once for a step. (What one
 * rank asks for is the plan's to compare.) */
static int note_less(stk_exec *x, uint32_t i_step, uint32_t ranks, stk_err *err)
{
    stk_pack_ask asks[STK_LIMIT_ASKS];
    const stk_capacity *c = x->config.capacity;
    stk_request r = stk_exec_request(x->config.plan, i_step, ranks, asks);
    bool cpus = r.limit_cpu && r.cpu_milli > c->cpu_milli;
    bool memory = r.limit_memory && r.memory_bytes > c->memory_bytes;
    if (ranks < 2 || r.place > 0 || x->config.policy != STK_POLICY_FIT || !(cpus || memory)) {
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
    const char *asked = "", *has = "";
    if (cpus) {
        asked = stk_arena_printf(x->scratch, "%g CPUs", (double)r.cpu_milli / 1e3);
        has = stk_arena_printf(x->scratch, "%g", (double)c->cpu_milli / 1e3);
    }
    if (memory && asked != NULL && has != NULL) {
        asked = stk_arena_printf(x->scratch, "%s%s%.3g GB of memory", asked, cpus ? " and " : "",
                                 (double)r.memory_bytes / 1e9);
        has = stk_arena_printf(x->scratch, "%s%s%.3g GB", has, cpus ? " and " : "",
                               (double)c->memory_bytes / 1e9);
    }
    const char *text =
        asked == NULL || has == NULL
            ? NULL
            : stk_arena_printf(
                  x->scratch,
                  "the %u ranks of step '%s' ask for %s together: %s has %s, which they "
                  "share (policy fit)",
                  ranks, stk_spec_step(x->spec, i_step)->name, asked, c->where, has);
    return stk_exec_emit_note(x, text, err);
}

/* One row, however many tasks; the number of one is that of the first. */
static int add(stk_exec *x, const stk_grow_adding *a, stk_err *err)
{
    int rc = stk_exec_grow_tasks(x, a, err);
    for (uint32_t i = 0; rc == 0 && i < a->n; i++) {
        rc = stk_exec_grow_schedule(x, a->first + i, NULL, 0, err);
    }
    rc = rc < 0 ? rc : note_less(x, a->i_step, a->ranks, err);
    const char *data = rc < 0 ? NULL : added_json(x, a);
    if (data == NULL) {
        STK_TRY(rc);
        return stk_err_nomem(err);
    }
    return stk_exec_emit(x, &(stk_sched_event){.kind = STK_EV_TASK_ADDED, .task = a->first}, data,
                         err);
}

int stk_exec_grow_begin(stk_exec *x, stk_err *err)
{
    stk_grow_adding first;
    stk_grow_begin(x->graph.grow, &first);
    return add(x, &first, err);
}

/* It ran again since what it made was gone, and what followed it is there. */
static bool says_the_same(const stk_grow_next *a, const stk_grow_next *b)
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
    if (says_the_same(&g->next, next)) {
        return 0;
    }
    return stk_err_set(err, STK_E_USAGE,
                       "it ran again, as its artifacts are gone from the store, and chose "
                       "other steps, or another number of them, than the first time; start a "
                       "new run");
}

int stk_exec_follow(stk_exec *x, uint32_t task, const exec_said *said, stk_err *err)
{
    stk_grow_adding *adding = NULL;
    uint32_t n = 0;
    int rc = stk_exec_scope_end(x, task, said, err);
    if (rc < 0 || x->graph.grown[task].has_followed) {
        return rc;
    }
    rc = stk_grow_done(x->graph.grow, task, &said->next, x->tick, &adding, &n, err);
    x->graph.grown[task].has_followed = rc == 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        rc = add(x, &adding[i], err);
    }
    return rc;
}

/* --- taken over --- */

static int push_part(stk_exec *x, uint32_t task, const exec_part *part, stk_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < part->n_made && rc == 0; i++) {
        const exec_artifact *a = part->made[i];
        rc = stk_exec_push_ref(
            x, &(stk_ref_row){.digest = a->ref.digest, .task = task, .output = a->name}, err);
    }
    return rc;
}

/* What the task made is this run's, too. */
static int push_refs(stk_exec *x, uint32_t task, const exec_said *said, stk_err *err)
{
    int rc = 0;
    for (uint32_t i = 0; i < said->n_parts && rc == 0; i++) {
        rc = push_part(x, task, &said->parts[i], err);
    }
    if (rc == 0 && said->items != NULL) {
        exec_artifact *items[1] = {said->items};
        rc = push_part(x, task, &(exec_part){.made = items, .n_made = 1}, err);
    }
    return rc;
}

/* TASK_CACHED with what it said there; `head`: members of its data, each with a comma after it. */
static int take_over(stk_exec *x, uint32_t task, const char *head, const exec_said *said,
                     const char *metadata, stk_err *err)
{
    STK_BUF_AUTO outputs = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2);
    STK_BUF_AUTO more = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2);
    stk_exec_said_json(x, said, &outputs, &more);
    if (outputs.failed || more.failed) {
        return stk_err_nomem(err);
    }
    const char *data = stk_arena_printf(x->tick, "{%s\"outputs\":%s%s,\"metadata\":%s}", head,
                                        outputs.data, more.data, stk_text_or(metadata, "{}"));
    int rc = data == NULL ? stk_err_nomem(err) : push_refs(x, task, said, err);
    x->is_held = true;
    rc = rc < 0 ? rc
                : stk_exec_emit(x, &(stk_sched_event){.kind = STK_EV_TASK_CACHED, .task = task},
                                data, err);
    rc = rc < 0 ? rc : stk_exec_follow(x, task, said, err);
    x->is_held = false;
    return rc;
}

int stk_exec_lookup_grown(stk_exec *x, uint32_t task, stk_err *err)
{
    bool found = false;
    exec_said said;
    const char *metadata = NULL, *head = NULL;
    int rc =
        x->graph.clone == NULL ? 0 : stk_exec_clone_find(x, task, &found, &said, &metadata, err);
    if (rc == 0 && found) {
        head = stk_arena_printf(x->scratch, "\"from_run\":\"%s\",\"from_task\":%u,",
                                stk_exec_clone_run(x->graph.clone), x->graph.grown[task].origin);
        rc = head == NULL ? stk_err_nomem(err) : 0;
    } else if (rc == 0) {
        rc = stk_exec_recall(x, task, &found, &said, &head, &metadata, err);
    }
    if (stk_exec_sum_aside(x, task, EXEC_ASIDE_LOOKUP, NULL, &rc, err)) {
        stk_arena_reset(x->scratch);
        return 0;
    }
    rc = rc < 0 ? rc : stk_exec_note_damage(x, err);
    if (rc == 0 && found) {
        rc = take_over(x, task, head, &said, metadata, err);
    } else if (rc == 0) {
        rc = stk_exec_emit_task(x, STK_SE_MISSED, task, err);
    }
    stk_arena_reset(x->scratch);
    return rc;
}

int stk_exec_keep_failure(stk_exec *x, uint32_t task, const exec_failure *failure, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    const char *const members[][2] = {{"text", failure->text},
                                      {"type", failure->type},
                                      {"message", failure->message},
                                      {"traceback", failure->traceback}};
    stk_buf_printf(&buf, "{\"class\":\"%s\"", stk_failure_word(failure->class));
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        stk_json_put_text(&buf, members[i][0], members[i][1]);
    }
    stk_buf_char(&buf, '}');
    x->graph.grown[task].fallback = buf.failed ? NULL : stk_arena_dup(x->arena, buf.data);
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
        const char *name = stk_json_text(stk_json_item(list, i));
        names[i] = stk_text_or(name, "");
    }
    return stk_grow_read_next(spec, i_step, names, n, arena, &ret_next->steps, err);
}
