/* Tasks that were added together form a batch, which holds their common step, parents and split
 * once. A split has a frame, which collects the last task of each of its branches until all have
 * arrived. */
#include "model/grow/grow.h"

#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/text.h"

#define NONE STK_GROW_NONE

typedef struct batch {
    uint32_t first, i_step;
    const uint32_t *parents;
    uint32_t n_parents;
    uint32_t split, branch; /* branch: that of the first task */
    uint32_t ranks;
} batch;

typedef struct task {
    uint32_t batch;
    uint32_t frame; /* the frame that it opened, or NONE */
    bool is_done;
} task;

typedef struct frame {
    uint32_t width, n_in;
    uint32_t join;  /* the step in which its branches meet; NONE until one has arrived */
    uint32_t *ends; /* by branch: its last task, or NONE; NULL: closed */
} frame;

struct stk_grow {
    const stk_spec *spec;
    stk_arena *arena; /* for parents */
    batch *batches;
    task *tasks;
    frame *frames;
    uint32_t n_batches, cap_batches;
    uint32_t n_tasks, cap_tasks;
    uint32_t n_frames, cap_frames;
};

int stk_grow_new(const stk_spec *spec, stk_grow **ret_grow, stk_err *err)
{
    stk_grow *grow = calloc(1, sizeof *grow);
    if (grow != NULL) {
        grow->spec = spec;
        grow->arena = stk_arena_new(0);
    }
    if (grow == NULL || grow->arena == NULL) {
        stk_grow_free(grow);
        return stk_err_nomem(err);
    }
    *ret_grow = grow;
    return 0;
}

void stk_grow_free(stk_grow *grow)
{
    if (grow == NULL) {
        return;
    }
    for (uint32_t i = 0; i < grow->n_frames; i++) {
        free(grow->frames[i].ends);
    }
    stk_arena_free(grow->arena);
    free(grow->batches);
    free(grow->tasks);
    free(grow->frames);
    free(grow);
}

/* --- asking --- */

uint32_t stk_grow_n_tasks(const stk_grow *grow)
{
    return grow->n_tasks;
}

stk_grow_task stk_grow_get(const stk_grow *grow, uint32_t i_task)
{
    const task *t = &grow->tasks[i_task];
    const batch *b = &grow->batches[t->batch];
    return (stk_grow_task){
        .i_step = b->i_step,
        .parents = b->parents,
        .n_parents = b->n_parents,
        .split = b->split,
        .branch = b->branch + (i_task - b->first), /* only a foreach has batches of more than one */
        .ranks = b->ranks,
        .width = t->frame == NONE ? 0 : grow->frames[t->frame].width,
    };
}

int64_t stk_grow_case(const stk_spec *spec, uint32_t i_step, const char *value)
{
    const stk_step *step = stk_spec_step(spec, i_step);
    for (uint32_t i = 0; step->cases != NULL && i < step->n_next; i++) {
        if (strcmp(step->cases[i], value) == 0) {
            return i;
        }
    }
    return -1;
}

enum { TOLD = 8 }; /* at most this many names in a message */

int stk_grow_refuse_case(const stk_spec *spec, uint32_t i_step, const char *value, stk_err *err)
{
    const stk_step *step = stk_spec_step(spec, i_step);
    STK_BUF_AUTO cases = STK_BUF_INIT(1 << 12);
    for (uint32_t i = 0; i < step->n_next && i < TOLD; i++) {
        stk_buf_separate(&cases, ", ");
        stk_buf_printf(&cases, "%.40s", step->cases[i]);
    }
    if (step->n_next > TOLD) {
        stk_buf_printf(&cases, " and %u more", step->n_next - TOLD);
    }
    stk_err_set(err, STK_E_USAGE, "its switch on '%s' got '%.120s', but its cases are %s", step->on,
                value, cases.data);
    stk_err_hint(err, "add a case for that value, or set '%s' to one of these", step->on);
    return STK_E_USAGE;
}

/* Writes "a, b and 3 more": the steps of the document's `next`, each once. */
static void say_next(const stk_spec *spec, const stk_step *step, stk_buf *buf)
{
    for (uint32_t i = 0; i < step->n_next && i < TOLD; i++) {
        bool is_new = true;
        for (uint32_t k = 0; k < i; k++) {
            is_new = is_new && step->next[k] != step->next[i];
        }
        if (is_new) {
            stk_buf_separate(buf, ", ");
            stk_buf_printf(buf, "%.60s", stk_spec_step(spec, step->next[i])->name);
        }
    }
    if (step->n_next > TOLD) {
        stk_buf_printf(buf, " and %u more", step->n_next - TOLD);
    }
}

static int wrong_next(const stk_spec *spec, const stk_step *step, const char *said, stk_err *err)
{
    STK_BUF_AUTO next = STK_BUF_INIT(1 << 12);
    say_next(spec, step, &next);
    if (step->n_next == 0) {
        stk_err_set(err, STK_E_USAGE, "it named '%s' as the next step, but the graph ends here",
                    said);
    } else {
        stk_err_set(err, STK_E_USAGE, "it named '%s' as the next step, but its graph says %s%s",
                    said, stk_text_when(step->grows == STK_NEXT_SWITCH, "one of "), next.data);
    }
    stk_err_hint(err, "a step must name the next steps that its graph was compiled with");
    return STK_E_USAGE;
}

int stk_grow_read_next(const stk_spec *spec, uint32_t i_step, const char *const *names,
                       uint32_t n_names, stk_arena *arena, const uint32_t **ret_steps, stk_err *err)
{
    const stk_step *step = stk_spec_step(spec, i_step);
    uint32_t *steps = stk_arena_array(arena, (size_t)n_names + 1, sizeof *steps);
    STK_MAP_AUTO chosen = {0};
    STK_MAP_AUTO known = {0};
    STK_TRY(stk_err_if_null(steps, err));
    for (uint32_t i = 0; i < step->n_next; i++) {
        if (stk_map_put(&known, stk_spec_step(spec, step->next[i])->name, i) < 0) {
            return stk_err_nomem(err);
        }
    }
    for (uint32_t i = 0; i < n_names; i++) {
        if (!stk_map_get(&known, names[i], NULL) || stk_map_get(&chosen, names[i], NULL)) {
            return wrong_next(spec, step, names[i], err);
        }
        if (stk_map_put(&chosen, names[i], i) < 0) {
            return stk_err_nomem(err);
        }
    }
    uint32_t n = 0;
    uint32_t most = step->cases == NULL ? n_names : 1;
    for (uint32_t i = 0; i < step->n_next && n < most; i++) {
        if (stk_map_get(&chosen, stk_spec_step(spec, step->next[i])->name, NULL)) {
            steps[n++] = step->next[i];
        }
    }
    if (n < n_names) { /* several names for a switch, which takes one */
        return wrong_next(spec, step, names[n_names - 1], err);
    }
    *ret_steps = steps;
    return 0;
}

/* --- what follows --- */

static bool is_split(const stk_step *step)
{
    return step->grows == STK_NEXT_FOREACH || step->grows == STK_NEXT_PARALLEL ||
           (step->grows == STK_NEXT_ALL && step->n_next > 1);
}

static frame *frame_of(const stk_grow *grow, uint32_t split)
{
    if (split == NONE || grow->tasks[split].frame == NONE) {
        return NULL;
    }
    return &grow->frames[grow->tasks[split].frame];
}

/* Checks the chosen steps against the document's `next`. None stands for all. */
static int check_steps(const stk_grow *grow, const stk_step *step, const stk_grow_next *next,
                       stk_err *err)
{
    bool is_switch = step->grows == STK_NEXT_SWITCH;
    if (next->n_steps == 0 && !is_switch) {
        return 0;
    }
    if (is_switch && next->n_steps == 1) {
        for (uint32_t i = 0; i < step->n_next; i++) {
            if (step->next[i] == next->steps[0]) {
                return 0;
            }
        }
    }
    if (is_switch && next->n_steps == 0) {
        stk_err_set(err, STK_E_USAGE, "it didn't say which case of '%s' comes next", step->on);
        stk_err_hint(err, "set '%s' to one of the cases", step->on);
        return STK_E_USAGE;
    }
    if (!is_switch && next->n_steps == step->n_next &&
        memcmp(next->steps, step->next, step->n_next * sizeof *step->next) == 0) {
        return 0;
    }
    STK_BUF_AUTO said = STK_BUF_INIT(1 << 12);
    for (uint32_t i = 0; i < next->n_steps && i < TOLD; i++) {
        bool exists = next->steps[i] < stk_spec_n_steps(grow->spec);
        stk_buf_separate(&said, "', '");
        stk_buf_printf(&said, "%.60s",
                       exists ? stk_spec_step(grow->spec, next->steps[i])->name : "?");
    }
    return wrong_next(grow->spec, step, said.data, err);
}

/* Number of tasks or ranks in the frame that `step` opens; 0: `next` doesn't give it. */
static uint32_t width_of(const stk_step *step, const stk_grow_next *next)
{
    if (step->grows == STK_NEXT_ALL) {
        return step->n_next;
    }
    if (step->grows == STK_NEXT_PARALLEL && step->num_parallel > 0) {
        return step->num_parallel;
    }
    return next->n;
}

static int check_width(const stk_grow *grow, const stk_step *step, const stk_grow_next *next,
                       stk_err *err)
{
    uint32_t n = width_of(step, next);
    if (n == 0 && step->grows == STK_NEXT_FOREACH) {
        stk_err_set(err, STK_E_USAGE, "its foreach over '%s' has no items", step->on);
        stk_err_hint(err, "give it at least one item, or skip the foreach with a switch");
        return STK_E_USAGE;
    }
    if (step->grows == STK_NEXT_PARALLEL) {
        if (next->n > 0 && next->n != n) {
            return stk_err_set(err, STK_E_USAGE, "its num_parallel is %u, but its graph says %u",
                               next->n, n);
        }
        if (n == 0 || n > STK_LIMIT_RANKS) {
            return stk_err_set(err, STK_E_USAGE,
                               "its num_parallel is %u; it must be between 1 and %u", n,
                               (uint32_t)STK_LIMIT_RANKS);
        }
        n = 1; /* a gang is one task */
    }
    if ((uint64_t)grow->n_tasks + n > STK_LIMIT_TASKS) {
        stk_err_set(err, STK_E_LIMIT,
                    "with %u more tasks the run would have %llu, more than the limit of %d", n,
                    (unsigned long long)grow->n_tasks + n, STK_LIMIT_TASKS);
        stk_err_hint(err, "let each task do more of the work");
        return STK_E_LIMIT;
    }
    return 0;
}

/* Checks whether `i_task` may be the last of its branch before the join `i_join`. */
static int check_arrival(const stk_grow *grow, uint32_t i_task, uint32_t i_join, stk_err *err)
{
    stk_grow_task t = stk_grow_get(grow, i_task);
    const frame *f = frame_of(grow, t.split);
    const char *name = stk_spec_step(grow->spec, i_join)->name;
    if (f == NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           "it named the join '%s' as the next step, but no split is open", name);
    }
    if (f->join != NONE && f->join != i_join) {
        return stk_err_set(
            err, STK_E_USAGE,
            "its branch ends in the join '%s', but another branch of the same split ends in '%s'",
            name, stk_spec_step(grow->spec, f->join)->name);
    }
    if (f->ends == NULL || f->ends[t.branch] != NONE) {
        return stk_err_set(err, STK_E_PROTOCOL, "branch %u of task %u has ended already", t.branch,
                           t.split);
    }
    return 0;
}

int stk_grow_check(const stk_grow *grow, uint32_t i_task, const stk_grow_next *next, stk_err *err)
{
    if (i_task >= grow->n_tasks || grow->tasks[i_task].is_done) {
        return stk_err_set(err, STK_E_PROTOCOL, "task %u can't end: it %s", i_task,
                           i_task >= grow->n_tasks ? "doesn't exist" : "has ended already");
    }
    const stk_step *step =
        stk_spec_step(grow->spec, grow->batches[grow->tasks[i_task].batch].i_step);
    int rc = check_steps(grow, step, next, err);
    if (rc < 0 || step->n_next == 0) {
        return rc;
    }
    if (is_split(step)) {
        return check_width(grow, step, next, err);
    }
    uint32_t target = step->grows == STK_NEXT_SWITCH ? next->steps[0] : step->next[0];
    if (stk_spec_step(grow->spec, target)->is_join) {
        rc = check_arrival(grow, i_task, target, err);
    }
    if (rc == 0 && grow->n_tasks >= STK_LIMIT_TASKS) {
        return stk_err_set(err, STK_E_LIMIT, "the run has %u tasks, which is the limit",
                           grow->n_tasks);
    }
    return rc;
}

static const uint32_t *dup_tasks(stk_arena *arena, const uint32_t *tasks, uint32_t n)
{
    uint32_t *copy = stk_arena_array(arena, (size_t)n + 1, sizeof *copy);
    if (copy != NULL && n > 0) {
        memcpy(copy, tasks, n * sizeof *copy);
    }
    return copy;
}

/* Opens the frame of a task; all `width` branches are missing. */
static int open_frame(stk_grow *grow, uint32_t i_task, uint32_t width, stk_err *err)
{
    if (stk_array_reserve(&grow->frames, &grow->cap_frames, (uint64_t)grow->n_frames + 1,
                          sizeof *grow->frames) < 0) {
        return stk_err_nomem(err);
    }
    uint32_t *ends = reallocarray(NULL, width, sizeof *ends);
    STK_TRY(stk_err_if_null(ends, err));
    memset(ends, 0xff, width * sizeof *ends);
    grow->frames[grow->n_frames] = (frame){.width = width, .join = NONE, .ends = ends};
    grow->tasks[i_task].frame = grow->n_frames++;
    return 0;
}

static int split_up(stk_grow *grow, uint32_t i_task, const stk_step *step,
                    const stk_grow_next *next, stk_arena *arena, stk_grow_adding **ret_adding,
                    uint32_t *ret_n, stk_err *err)
{
    bool is_gang = step->grows == STK_NEXT_PARALLEL;
    uint32_t width = width_of(step, next);
    uint32_t n = step->n_next;
    stk_grow_adding *adding = stk_arena_array(arena, n, sizeof *adding);
    const uint32_t *parents = dup_tasks(arena, &i_task, 1);
    if (adding == NULL || parents == NULL) {
        return stk_err_nomem(err);
    }
    uint32_t n_each = step->grows == STK_NEXT_FOREACH ? width : 1;
    uint32_t n_ranks = is_gang ? width : 0;
    int rc = open_frame(grow, i_task, is_gang ? 1 : width, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        adding[i] = (stk_grow_adding){.first = grow->n_tasks + i,
                                      .n = n_each,
                                      .i_step = step->next[i],
                                      .parents = parents,
                                      .n_parents = 1,
                                      .split = i_task,
                                      .branch = i,
                                      .ranks = n_ranks};
    }
    *ret_adding = adding;
    *ret_n = n;
    return rc;
}

/* Records that the branch of `i_task` has arrived; the last branch adds the join. */
static int arrive(stk_grow *grow, uint32_t i_task, uint32_t i_join, stk_arena *arena,
                  stk_grow_adding *adding, uint32_t *ret_n, stk_err *err)
{
    stk_grow_task t = stk_grow_get(grow, i_task);
    frame *f = frame_of(grow, t.split);
    stk_grow_task opener = stk_grow_get(grow, t.split);
    const uint32_t *parents = NULL;
    if (f->n_in + 1 == f->width) {
        f->ends[t.branch] = i_task;
        parents = dup_tasks(arena, f->ends, f->width);
        if (parents == NULL) {
            f->ends[t.branch] = NONE;
            return stk_err_nomem(err);
        }
        free(f->ends);
        f->ends = NULL;
        *adding = (stk_grow_adding){.first = grow->n_tasks,
                                    .n = 1,
                                    .i_step = i_join,
                                    .parents = parents,
                                    .n_parents = f->width,
                                    .split = opener.split,
                                    .branch = opener.branch};
    } else {
        f->ends[t.branch] = i_task;
    }
    f->join = i_join;
    f->n_in++;
    *ret_n = parents == NULL ? 0 : 1;
    return 0;
}

/* One step follows: the next in the same branch, or the join. */
static int go_on(stk_grow *grow, uint32_t i_task, uint32_t target, stk_arena *arena,
                 stk_grow_adding **ret_adding, uint32_t *ret_n, stk_err *err)
{
    stk_grow_task t = stk_grow_get(grow, i_task);
    stk_grow_adding *adding = stk_arena_array(arena, 1, sizeof *adding);
    const uint32_t *parents = dup_tasks(arena, &i_task, 1);
    if (adding == NULL || parents == NULL) {
        return stk_err_nomem(err);
    }
    *ret_adding = adding;
    if (stk_spec_step(grow->spec, target)->is_join) {
        return arrive(grow, i_task, target, arena, adding, ret_n, err);
    }
    *adding = (stk_grow_adding){.first = grow->n_tasks,
                                .n = 1,
                                .i_step = target,
                                .parents = parents,
                                .n_parents = 1,
                                .split = t.split,
                                .branch = t.branch};
    *ret_n = 1;
    return 0;
}

int stk_grow_done(stk_grow *grow, uint32_t i_task, const stk_grow_next *next, stk_arena *arena,
                  stk_grow_adding **ret_adding, uint32_t *ret_n, stk_err *err)
{
    stk_grow_adding *adding = NULL;
    uint32_t n = 0;
    int rc = stk_grow_check(grow, i_task, next, err);
    if (rc < 0) {
        return rc;
    }
    const stk_step *step =
        stk_spec_step(grow->spec, grow->batches[grow->tasks[i_task].batch].i_step);
    if (is_split(step)) {
        rc = split_up(grow, i_task, step, next, arena, &adding, &n, err);
    } else if (step->n_next > 0) {
        uint32_t target = step->grows == STK_NEXT_SWITCH ? next->steps[0] : step->next[0];
        rc = go_on(grow, i_task, target, arena, &adding, &n, err);
    }
    if (rc < 0) {
        return rc;
    }
    grow->tasks[i_task].is_done = true;
    *ret_adding = adding;
    *ret_n = n;
    return 0;
}

/* --- taking tasks in --- */

void stk_grow_begin(const stk_grow *grow, stk_grow_adding *ret)
{
    *ret = (stk_grow_adding){.first = grow->n_tasks, .n = 1, .split = NONE};
}

/* False for what stk_grow_done can't have returned: somebody changed the log. */
static bool is_possible(const stk_grow *grow, const stk_grow_adding *a)
{
    bool ok = a->first == grow->n_tasks && a->n > 0 && a->i_step < stk_spec_n_steps(grow->spec) &&
              (a->n_parents > 0) == (a->first > 0) && a->ranks <= STK_LIMIT_RANKS;
    for (uint32_t i = 0; ok && i < a->n_parents; i++) {
        ok = a->parents[i] < grow->n_tasks && grow->tasks[a->parents[i]].is_done;
    }
    if (ok && a->split == NONE) {
        return a->n == 1;
    }
    if (!ok || a->split >= grow->n_tasks) {
        return false;
    }
    const frame *f = frame_of(grow, a->split);
    return f != NULL && a->branch < f->width && a->n <= f->width - a->branch;
}

int stk_grow_add(stk_grow *grow, const stk_grow_adding *a, stk_err *err)
{
    if (!is_possible(grow, a)) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "can't add %u tasks from %u on: the run has %u, or their step, parents "
                           "or split don't exist",
                           a->n, a->first, grow->n_tasks);
    }
    if ((uint64_t)grow->n_tasks + a->n > STK_LIMIT_TASKS) {
        return stk_err_set(err, STK_E_LIMIT, "can't add %u tasks to %u: %d is the limit", a->n,
                           grow->n_tasks, STK_LIMIT_TASKS);
    }
    const uint32_t *parents = dup_tasks(grow->arena, a->parents, a->n_parents);
    if (parents == NULL ||
        stk_array_reserve(&grow->batches, &grow->cap_batches, (uint64_t)grow->n_batches + 1,
                          sizeof *grow->batches) < 0 ||
        stk_array_reserve(&grow->tasks, &grow->cap_tasks, (uint64_t)grow->n_tasks + a->n,
                          sizeof *grow->tasks) < 0) {
        return stk_err_nomem(err);
    }
    grow->batches[grow->n_batches] = (batch){.first = a->first,
                                             .i_step = a->i_step,
                                             .parents = parents,
                                             .n_parents = a->n_parents,
                                             .split = a->split,
                                             .branch = a->branch,
                                             .ranks = a->ranks};
    for (uint32_t i = 0; i < a->n; i++) {
        grow->tasks[grow->n_tasks++] = (task){.batch = grow->n_batches, .frame = NONE};
    }
    grow->n_batches++;
    return 0;
}
