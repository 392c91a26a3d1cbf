/* growing: a run of a graph that grows, killed at any moment.
 *
 *     growing [--seeds A..B] [-v]        without seeds: as many as STOKER_SIM_SEEDS says, or 1000
 *
 * Events that are committed together are in the log together or not at all. After a kill, the log
 * is folded into a new graph and a new scheduler; tasks that ran are lost and tried again. Rules:
 *
 *   - folding the log again gives the same new tasks;
 *   - a task is added when all of its inputs have succeeded;
 *   - at the end the tasks are those that a walk of the graph gives: none lost, none twice; a run
 *     that failed has a part of them;
 *   - the fold of the log is the state. */
#include "growing.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "model/grow/grow.h"
#include "model/sched/sched.h"
#include "sim.h"

typedef struct entry {
    bool is_add;
    stk_grow_adding adding; /* its parents are in the run's arena */
    stk_sched_event event;
} entry;

typedef struct run {
    g_world world;
    stk_spec *spec;
    stk_arena *arena;
    uint32_t step_of[G_STEPS]; /* of the document → of the world */
    stk_sched_config config;
    uint32_t kill_one_in, fail_percent, cached_percent, max_retries;
    int64_t now_ms;
    entry *log;
    uint32_t n_log, cap_log, n_kills;
    stk_grow *grow;
    stk_sched *sched;
    uint64_t identities[G_TASKS]; /* by task */
    bool is_broken, is_killed, is_verbose;
    char why[300];
} run;

static void broken(run *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void broken(run *r, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (!r->is_broken) {
        (void)vsnprintf(r->why, sizeof r->why, fmt, ap);
    }
    va_end(ap);
    r->is_broken = true;
}

static bool one_in(run *r, uint32_t n)
{
    return n > 0 && g_below(&r->world, n) == 0;
}

/* --- the fold --- */

typedef struct due { /* what the last finished task adds, not added yet */
    stk_grow_adding *adding;
    uint32_t n;
} due;

static stk_grow_next next_of(const run *r, uint32_t task)
{
    stk_grow_task t = stk_grow_get(r->grow, task);
    const stk_step *step = stk_spec_step(r->spec, t.i_step);
    uint64_t identity = r->identities[task];
    stk_grow_next next = {.steps = step->next, .n_steps = step->n_next};
    if (step->grows == STK_NEXT_FOREACH) {
        next.n = g_width(&r->world, identity);
    } else if (step->grows == STK_NEXT_SWITCH) {
        next.steps += g_choice(&r->world, r->step_of[t.i_step], identity);
        next.n_steps = 1;
    }
    return next;
}

static bool is_ok(const run *r, uint32_t task)
{
    stk_task_state state = stk_sched_state(r->sched, task);
    return state == STK_TASK_SUCCEEDED || state == STK_TASK_CACHED;
}

static void fold_add(run *r, const stk_grow_adding *a)
{
    stk_err err = {0};
    uint64_t parents[G_WIDTH];
    for (uint32_t i = 0; i < a->n_parents; i++) {
        if (!is_ok(r, a->parents[i])) {
            broken(r, "task %u is added before task %u, which it follows, is done", a->first,
                   a->parents[i]);
            return;
        }
        parents[i] = r->identities[a->parents[i]];
    }
    if (stk_grow_add(r->grow, a, &err) < 0) {
        broken(r, "%s", err.text);
        return;
    }
    stk_sched_task ask = {.cpu_milli = 1000,
                          .max_retries = r->max_retries,
                          .lookup = r->cached_percent > 0,
                          .fallback = stk_spec_step(r->spec, a->i_step)->is_join};
    for (uint32_t i = 0; i < a->n && !r->is_broken; i++) {
        uint32_t task = a->first + i;
        stk_grow_task t = stk_grow_get(r->grow, task);
        if (task >= G_TASKS || stk_sched_add(r->sched, &ask, NULL, 0, NULL, &err) < 0) {
            broken(r, "task %u: %s", task, task >= G_TASKS ? "too many" : err.text);
            return;
        }
        r->identities[task] =
            g_identity(r->step_of[t.i_step], parents, t.n_parents,
                       t.split == STK_GROW_NONE ? 0 : r->identities[t.split], t.branch);
    }
}

/* Folds an event of the log or a new one; what a success adds goes into *ret_due. */
static void fold(run *r, const entry *e, due *ret_due)
{
    stk_err err = {0};
    if (e->is_add) {
        fold_add(r, &e->adding);
        return;
    }
    int rc = stk_sched_fold(r->sched, &e->event, &err);
    if (rc == 0 &&
        (e->event.kind == STK_EV_TASK_SUCCEEDED || e->event.kind == STK_EV_TASK_CACHED)) {
        stk_grow_next next = next_of(r, e->event.task);
        rc = stk_grow_done(r->grow, e->event.task, &next, r->arena, &ret_due->adding, &ret_due->n,
                           &err);
    }
    if (rc < 0) {
        broken(r, "%s", err.text);
    }
}

static bool is_same(const stk_grow_adding *a, const stk_grow_adding *b)
{
    return a->first == b->first && a->n == b->n && a->i_step == b->i_step &&
           a->n_parents == b->n_parents && a->split == b->split && a->branch == b->branch &&
           a->ranks == b->ranks &&
           (a->n_parents == 0 ||
            memcmp(a->parents, b->parents, a->n_parents * sizeof *a->parents) == 0);
}

static void refold(run *r)
{
    due brought = {0};
    stk_err err = {0};
    r->sched = stk_sched_new(&r->config);
    if (r->sched == NULL || stk_grow_new(r->spec, &r->grow, &err) < 0) {
        abort();
    }
    stk_grow_adding first;
    stk_grow_begin(r->grow, &first);
    for (uint32_t i = 0; i < r->n_log && !r->is_broken; i++) {
        const entry *e = &r->log[i];
        const stk_grow_adding *expected = i == 0 ? &first : brought.adding;
        if (e->is_add && (i > 0 && brought.n == 0)) {
            broken(r, "entry %u of the log adds what nobody brought", i);
        } else if (e->is_add && !is_same(expected, &e->adding)) {
            broken(r, "entry %u of the log is not what its task brings now", i);
        } else if (!e->is_add && brought.n > 0) {
            broken(r, "before entry %u of the log %u additions are missing", i, brought.n);
        }
        if (e->is_add && i > 0) {
            brought.adding++;
            brought.n--;
        }
        fold(r, e, &brought);
    }
}

static void check_fold(run *r)
{
    stk_grow *grow = r->grow;
    stk_sched *sched = r->sched;
    uint64_t identities[G_TASKS];
    memcpy(identities, r->identities, sizeof identities);
    refold(r);
    uint32_t n = stk_grow_n_tasks(grow);
    if (!r->is_broken &&
        (n != stk_grow_n_tasks(r->grow) || stk_sched_digest(sched) != stk_sched_digest(r->sched) ||
         memcmp(identities, r->identities, n * sizeof *identities) != 0)) {
        broken(r, "the fold of the log is not the state");
    }
    for (uint32_t i = 0; i < n && !r->is_broken; i++) {
        if (stk_grow_get(grow, i).width != stk_grow_get(r->grow, i).width) {
            broken(r, "task %u has opened another split when folded again", i);
        }
    }
    stk_grow_free(r->grow);
    stk_sched_free(r->sched);
    r->grow = grow;
    r->sched = sched;
}

/* --- committing --- */

static void put(run *r, const entry *e)
{
    if (r->n_log == r->cap_log) {
        r->cap_log = r->cap_log == 0 ? 256 : r->cap_log * 2;
        r->log = reallocarray(r->log, r->cap_log, sizeof *r->log);
        if (r->log == NULL) {
            abort();
        }
    }
    r->log[r->n_log++] = *e;
}

/* Commits events that belong together, and what the last one adds. If it is killed on the way,
 * nothing of them is in the log, and the state of the dying engine doesn't matter. */
static void commit(run *r, const stk_sched_event *events, uint32_t n)
{
    uint32_t before = r->n_log;
    due brought = {0};
    for (uint32_t i = 0; i < n && !r->is_broken && !r->is_killed; i++) {
        entry e = {.event = events[i]};
        r->is_killed = one_in(r, r->kill_one_in);
        put(r, &e);
        fold(r, &e, &brought);
    }
    for (uint32_t i = 0; i < brought.n && !r->is_broken && !r->is_killed; i++) {
        entry e = {.is_add = true, .adding = brought.adding[i]};
        r->is_killed = one_in(r, r->kill_one_in);
        put(r, &e);
        fold(r, &e, &brought);
    }
    r->n_log = r->is_killed ? before : r->n_log;
}

static void fail(run *r, uint32_t task, stk_failure failure)
{
    stk_sched_retrying next;
    stk_sched_event both[2] = {{.kind = STK_EV_TASK_FAILED, .task = task, .failure = failure},
                               {.kind = STK_EV_TASK_RETRYING, .task = task, .at_ms = r->now_ms}};
    both[0].is_final = !stk_sched_retry(r->sched, task, failure, false, &next);
    both[1].is_fallback = next.is_fallback;
    commit(r, both, both[0].is_final ? 1 : 2);
}

static void act(run *r, const stk_action *a)
{
    stk_sched_event event = {.task = a->task, .i_ask = STK_SCHED_NO_ASK};
    switch (a->kind) {
    case STK_ACT_LOOKUP:
        event.kind = g_below(&r->world, 100) < r->cached_percent ? (int)STK_EV_TASK_CACHED
                                                                 : (int)STK_SE_MISSED;
        break;
    case STK_ACT_START:
        event.kind = STK_EV_TASK_STARTED;
        event.attempt = a->attempt;
        break;
    case STK_ACT_STOP:
    case STK_ACT_CANCEL:
        event.kind = STK_EV_TASK_CANCELLED;
        break;
    default:
        broken(r, "task %u: an action that no task here can need", a->task);
        return;
    }
    if (event.kind == STK_SE_MISSED) { /* not durable */
        due none = {0};
        fold(r, &(entry){.event = event}, &none);
    } else {
        commit(r, &event, 1);
    }
}

static bool is_running(const run *r, uint32_t task)
{
    return stk_sched_state(r->sched, task) == STK_TASK_RUNNING;
}

static void end_some(run *r)
{
    uint32_t n = stk_grow_n_tasks(r->grow);
    uint32_t from = g_below(&r->world, n);
    for (uint32_t i = 0; i < n && !r->is_killed && !r->is_broken; i++) {
        uint32_t task = (from + i) % n;
        if (!is_running(r, task) || one_in(r, 2)) {
            continue;
        }
        if (g_below(&r->world, 100) < r->fail_percent) {
            fail(r, task, one_in(r, 3) ? STK_FAIL_LOST : STK_FAIL_EXIT);
        } else {
            commit(r, &(stk_sched_event){.kind = STK_EV_TASK_SUCCEEDED, .task = task}, 1);
        }
    }
}

/* --- life and death --- */

static void restart(run *r)
{
    r->n_kills++;
    stk_grow_free(r->grow);
    stk_sched_free(r->sched);
    r->is_killed = false;
    refold(r);
    for (uint32_t i = 0; !r->is_broken && !r->is_killed && i < stk_grow_n_tasks(r->grow); i++) {
        if (is_running(r, i)) {
            fail(r, i, STK_FAIL_LOST);
        }
    }
}

static void check_end(run *r, int status)
{
    uint32_t n = stk_grow_n_tasks(r->grow);
    const g_world *w = &r->world;
    uint64_t seen[G_TASKS];
    memcpy(seen, r->identities, n * sizeof *seen);
    qsort(seen, n, sizeof *seen, g_compare);
    uint32_t k = 0;
    for (uint32_t i = 0; i < n && !r->is_broken; i++) {
        while (k < w->n_expected && w->expected[k] < seen[i]) {
            k++;
        }
        if (i > 0 && seen[i] == seen[i - 1]) {
            broken(r, "a task is there twice");
        } else if (k == w->n_expected || w->expected[k] != seen[i]) {
            broken(r, "a task is there that the graph doesn't have");
        }
    }
    if (!r->is_broken && status == 0 && n != w->n_expected) {
        broken(r, "%u tasks, and the graph has %u", n, w->n_expected);
    }
    check_fold(r);
}

static void play(run *r)
{
    enum { ACTIONS = 24, ROUNDS = 200000 };
    stk_action actions[ACTIONS];
    refold(r);
    entry first = {.is_add = true};
    stk_grow_begin(r->grow, &first.adding);
    put(r, &first);
    fold(r, &first, &(due){0});
    for (uint32_t round = 0; !r->is_broken; round++) {
        uint32_t n = 0;
        int64_t wake_ms = -1;
        if (round == ROUNDS) {
            broken(r, "the run doesn't end");
        }
        (void)stk_sched_next(r->sched, r->now_ms, actions, ACTIONS, &n, &wake_ms);
        if (n == 1 && actions[0].kind == STK_ACT_END) {
            check_end(r, actions[0].status);
            return;
        }
        for (uint32_t i = 0; i < n && !r->is_killed && !r->is_broken; i++) {
            act(r, &actions[i]);
        }
        if (!r->is_killed && !r->is_broken) {
            end_some(r);
        }
        while (r->is_killed && !r->is_broken) {
            restart(r);
        }
        if (round % 256 == 255 && !r->is_broken) {
            check_fold(r);
        }
        r->now_ms++;
    }
}

static void draw(run *r)
{
    static const uint32_t kills[] = {0, 200, 40, 12};
    static const uint32_t fails[] = {0, 5, 30};
    stk_err err = {0};
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    g_draw(&r->world, &text);
    if (r->is_verbose) {
        printf("%s\n%u tasks\n", text.data, r->world.n_expected);
    }
    if (stk_spec_parse(text.data, text.len, &(stk_spec_place){.path = "g.json"}, &r->spec, &err) <
        0) {
        broken(r, "the document is refused: %s", err.text);
        return;
    }
    for (uint32_t i = 0; i < stk_spec_n_steps(r->spec); i++) {
        r->step_of[i] = (uint32_t)strtoul(stk_spec_step(r->spec, i)->name + 1, NULL, 10);
    }
    r->config = (stk_sched_config){.cpu_milli = 1000 * (1 + (int64_t)g_below(&r->world, 8)),
                                   .memory_bytes = 1000,
                                   .mode = (stk_mode)g_below(&r->world, 3),
                                   .seed = r->world.seed};
    r->kill_one_in = kills[g_below(&r->world, 4)];
    r->fail_percent = fails[g_below(&r->world, 3)];
    r->max_retries = one_in(r, 4) ? 1 : 1000;
    r->cached_percent = one_in(r, 3) ? 50 : 0;
}

static bool run_one(uint64_t seed, bool is_verbose, uint64_t totals[3])
{
    run *r = calloc(1, sizeof *r);
    if (r == NULL) {
        abort();
    }
    r->world.seed = seed;
    r->is_verbose = is_verbose;
    r->arena = stk_arena_new(0);
    draw(r);
    if (!r->is_broken) {
        play(r);
        totals[0] += stk_grow_n_tasks(r->grow);
        totals[1] += r->n_log;
        totals[2] += r->n_kills;
    }
    bool is_broken = r->is_broken;
    if (is_broken) {
        printf("seed %" PRIu64 ": %s\n  repeat: build/tests/sim/growing --seeds %" PRIu64
               "..%" PRIu64 " -v\n",
               seed, r->why, seed, seed);
    }
    stk_grow_free(r->grow);
    stk_sched_free(r->sched);
    stk_spec_free(r->spec);
    stk_arena_free(r->arena);
    free(r->log);
    free(r);
    return is_broken;
}

int main(int argc, char **argv)
{
    const char *seeds = getenv("STOKER_SIM_SEEDS");
    uint64_t first = 1, last = seeds != NULL ? strtoull(seeds, NULL, 10) : 1000;
    uint64_t n_failed = 0, totals[3] = {0};
    bool is_verbose = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0) {
            is_verbose = true;
        } else if (strcmp(argv[i], "--seeds") != 0 || ++i == argc ||
                   sscanf(argv[i], "%" SCNu64 "..%" SCNu64, &first, &last) != 2) {
            (void)fprintf(stderr, "usage: growing [--seeds A..B] [-v]\n");
            return 2;
        }
    }
    for (uint64_t seed = first; seed <= last && n_failed < 10; seed++) {
        n_failed += run_one(seed, is_verbose, totals);
    }
    printf("%" PRIu64 " runs: %" PRIu64 " tasks, %" PRIu64 " entries, %" PRIu64 " kills\n%" PRIu64
           " failed\n",
           last - first + 1, totals[0], totals[1], totals[2], n_failed);
    return n_failed > 0 ? 1 : 0;
}
