#include "show/why.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "host/fit/fit.h"
#include "run/run_standing.h"

/* The first unfinished step among those whose outputs `inputs` take, or NULL. */
static const stk_view_task *waits_for(const stk_view *view, const stk_input *inputs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const stk_view_task *found = NULL;
        if (inputs[i].kind == STK_INPUT_OUTPUT) {
            const stk_view_task *task = stk_view_get_task(view, inputs[i].step);
            if (!stk_state_is_final(task->state)) {
                found = task;
            }
        } else if (inputs[i].kind == STK_INPUT_LIST) {
            found = waits_for(view, inputs[i].items, inputs[i].n_items);
        }
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

/* The devices that steps of this run hold, then other holders. */
static void say_devices(const stk_view *view, stk_run_standing *s, const stk_sched_why *why,
                        stk_arena *arena, stk_buf *out)
{
    const char *comma = "";
    for (uint32_t i = 0; i < stk_accel_n_devices(s->accel); i++) {
        const stk_device *d = stk_accel_device(s->accel, i);
        uint32_t holder = stk_sched_holder(s->sched, i);
        if (stk_devset_has(&why->held, i) && holder != UINT32_MAX) {
            stk_buf_printf(out, "%s%s %d: step '%s' of this run", comma,
                           stk_text_or(d->noun, "device"), d->index,
                           stk_view_get_task(view, holder)->title);
            comma = "; ";
        }
    }
    if (stk_devset_count(&why->outside) > 0) {
        const char *who = stk_fit_holders(s->accel, &why->outside, arena);
        stk_buf_printf(out, "%s%s", comma, stk_text_or(who, "others hold some of them"));
    }
}

/* What a step that has all its inputs waits for. */
static void why_ready(const stk_view *view, stk_run_standing *s, uint32_t i_task, stk_arena *arena,
                      stk_buf *out)
{
    static const char *const resources[] = {[STK_WHY_CPU] = "CPUs",
                                            [STK_WHY_MEMORY] = "memory",
                                            [STK_WHY_DEVICES] = "devices",
                                            [STK_WHY_WORKERS] = "a free worker (--max-workers)",
                                            [STK_WHY_PLACE] = "a place"};
    stk_sched_why why = stk_sched_explain(s->sched, i_task);
    const char *name = stk_view_get_task(view, i_task)->title;
    const char *resource = NULL;
    if (why.what < sizeof resources / sizeof *resources) {
        resource = resources[why.what];
    }
    if (resource == NULL) {
        stk_buf_printf(out, "step '%s' has all its inputs and is about to start", name);
        return;
    }
    stk_buf_printf(out, "step '%s' has all its inputs and waits for %s", name, resource);
    uint32_t place = stk_plan_request(s->plan, stk_view_get_task(view, i_task)->i_step)->place;
    if (why.what == STK_WHY_PLACE && place > 0) {
        const stk_capacity_place *p = &s->capacity.places[place - 1];
        stk_buf_printf(out, " on %s (stack '%s' has at most %u jobs at once)", p->backend, p->stack,
                       p->max_jobs);
    }
    if (why.is_queue) {
        stk_buf_printf(out, "; step '%s' has waited for them longer and comes first",
                       stk_view_get_task(view, why.other)->title);
    } else if (why.what == STK_WHY_DEVICES) {
        stk_buf_text(out, ": ");
        say_devices(view, s, &why, arena, out);
    } else if (why.other != UINT32_MAX) {
        stk_buf_printf(out, ", which step '%s' of this run holds",
                       stk_view_get_task(view, why.other)->title);
        if (why.what == STK_WHY_WORKERS || why.what == STK_WHY_PLACE) {
            stk_buf_text(out, ", among others");
        }
    }
}

static int why_waiting(stk_store *store, const stk_view *view, uint32_t i_task, stk_arena *arena,
                       stk_buf *out, stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    /* A growing run adds a task only when it could start: the task waits for no other step. */
    bool grows = stk_view_grows(view);
    const stk_view_task *other = NULL;
    if (!grows) {
        other = waits_for(view, task->step->inputs, task->step->n_inputs);
    }
    for (uint32_t i = 0; other == NULL && !grows && i < task->step->n_after; i++) {
        const stk_view_task *after = stk_view_get_task(view, task->step->after[i]);
        if (!stk_state_is_final(after->state)) {
            other = after;
        }
    }
    if (!stk_view_is_live(view)) {
        stk_buf_printf(out, "step '%s' never ran: the run was %s before its turn came", task->title,
                       stk_view_get_run(view)->status);
    } else if (other != NULL) {
        stk_buf_printf(out, "step '%s' waits for step '%s', which ", task->title, other->title);
        if (other->state == STK_TASK_RUNNING && other->waits != NULL) {
            stk_buf_printf(out, "waits itself: %s", other->waits);
        } else {
            stk_buf_printf(out, "is %s", stk_state_word(other->state));
        }
    } else if (grows) {
        /* The record has the tasks' requests, but not the order in which the scheduler would serve
         * them, so this can't say which one comes first. */
        uint32_t n = stk_view_get_run(view)->n[STK_TASK_RUNNING];
        stk_buf_printf(out,
                       "step '%s' has all its inputs and waits for CPUs, memory, devices or a free "
                       "worker (--max-workers); %u task%s of its run %s running",
                       task->title, n, stk_text_plural(n), stk_text_noun(n, "is", "are"));
    } else if (!stk_run_is_of_this_host(stk_view_get_run(view), arena)) {
        stk_buf_printf(out,
                       "step '%s' has all its inputs and waits for CPUs, memory, devices or a free "
                       "worker; 'stoker why' on the run's own host says which",
                       task->title);
    } else {
        STK_RUN_STANDING_AUTO standing = {0};
        STK_TRY(stk_run_standing_open(store, view, arena, &standing, err));
        why_ready(view, &standing, i_task, arena, out);
    }
    return 0;
}

/* Says where a step on another machine runs or ran. */
static void say_place(const stk_view_details *d, bool runs, stk_arena *arena, stk_buf *out)
{
    const stk_json *granted = stk_json_read(arena, d->granted_json);
    const char *backend = stk_json_get_text(granted, "backend");
    const char *stack = stk_json_get_text(granted, "stack");
    if (backend != NULL && stack != NULL) {
        stk_buf_printf(out, "; it %s on %s (stack '%s')", runs ? "runs" : "ran", backend, stack);
    }
}

/* The run ended without an end of it: its engine is gone, and a job may go on. */
static void say_left(const stk_view *view, const char *name, const stk_view_details *d,
                     stk_arena *arena, stk_buf *out)
{
    stk_buf_printf(out, "step '%s' was under way when the run's engine ended", name);
    say_place(d, true, arena, out);
    stk_buf_printf(out, "; 'stoker resume %s' goes on with it", stk_view_get_run(view)->id);
}

/* What was given to other machines, and waits there. */
static void say_wait(const stk_view_task *task, const char *name, const stk_view_details *d,
                     stk_arena *arena, stk_buf *out)
{
    const stk_json *granted = stk_json_read(arena, d->granted_json);
    stk_buf_printf(out, "step '%s' waits on %s (stack '%s'): %s", name,
                   stk_text_or(stk_json_get_text(granted, "backend"), "other machines"),
                   stk_text_or(stk_json_get_text(granted, "stack"), "?"), task->waits);
}

/* Of a step that wasn't looked up. */
static const char *why_uncached(const stk_view *view, const stk_view_task *task)
{
    if (stk_spec_grows(stk_view_spec(view)) && !task->step->settings->cache.is_asked) {
        return "caching is off for steps of flows, unless @cache, --cache or 'cache: true' asks "
               "for it";
    }
    return "it was not cached";
}

int stk_show_why_task(stk_store *store, const stk_view *view, uint32_t i_task, stk_arena *arena,
                      stk_buf *out, stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    const char *name = stk_view_who(view, i_task, arena);
    stk_view_details d;
    uint32_t *roots;
    STK_TRY(stk_view_get_details(view, i_task, arena, &d, err));
    STK_TRY(stk_view_roots(view, arena, &roots, err));
    switch (task->state) {
    case STK_TASK_CACHED:
        if (d.from_task >= 0) {
            stk_buf_printf(out, "step '%s' did not run: it was cloned from %s/%s/%lld", name,
                           stk_text_or(d.cached_from, "?"), task->name, (long long)d.from_task + 1);
            break;
        }
        stk_buf_printf(out,
                       "step '%s' did not run: nothing that its result depends on has changed "
                       "since run %s",
                       name, stk_text_or(d.cached_from, "before"));
        if (d.unseen != NULL) {
            stk_buf_printf(out, "; Stoker can't see %s", d.unseen);
        }
        break;
    case STK_TASK_FAILED:
    case STK_TASK_BACKOFF:
        stk_buf_printf(out, "step '%s' failed: %s [%s]", name, stk_text_or(d.error_text, "?"),
                       stk_text_or(d.error_class, "?"));
        if (task->state == STK_TASK_BACKOFF) {
            stk_buf_text(out, "; it will be tried again");
        }
        break;
    case STK_TASK_SKIPPED:
        stk_buf_printf(out, "step '%s' was skipped: it needs '%s'", name,
                       stk_text_or(d.because, "?"));
        if (roots[i_task] != UINT32_MAX) {
            const stk_view_task *root = stk_view_get_task(view, roots[i_task]);
            stk_buf_printf(out, "; the first cause is '%s', which %s %s", root->title,
                           root->state == STK_TASK_CANCELLED ? "was" : "has",
                           stk_state_word(root->state));
        }
        break;
    case STK_TASK_CANCELLED:
        stk_buf_printf(out, "step '%s' was cancelled", name);
        if (d.error_text != NULL && strcmp(d.error_text, "cancelled") != 0) {
            stk_buf_printf(out, ": %s", d.error_text);
        }
        break;
    case STK_TASK_SUCCEEDED:
    case STK_TASK_RUNNING:
        if (task->state == STK_TASK_RUNNING && task->waits != NULL && stk_view_is_live(view)) {
            say_wait(task, name, &d, arena, out);
            break;
        }
        if (task->state == STK_TASK_RUNNING && !stk_view_is_live(view)) {
            say_left(view, name, &d, arena, out);
            break;
        }
        stk_buf_printf(out, "step '%s' ran: %s", name,
                       stk_text_or(d.miss, why_uncached(view, task)));
        say_place(&d, task->state == STK_TASK_RUNNING, arena, out);
        break;
    default:
        return why_waiting(store, view, i_task, arena, out, err);
    }
    return 0;
}

int stk_show_why_step(stk_store *store, const stk_view *view, uint32_t i_step, stk_arena *arena,
                      stk_buf *out, stk_err *err)
{
    enum { MAX_TASKS = 20 };
    const stk_view_step *step = stk_view_get_step(view, i_step);
    const char *name = stk_spec_step(stk_view_spec(view), i_step)->name;
    bool failed = step->by_state[STK_TASK_FAILED] > 0;
    uint32_t n = failed ? step->by_state[STK_TASK_FAILED] : step->n, shown = 0;
    if (n == 0) {
        const char *when = stk_view_is_live(view) ? "yet" : "before the run ended";
        stk_buf_printf(
            out, "no task of step '%s' was added %s: none of those before it has come to it\n",
            name, when);
    }
    for (uint32_t i = 0; i < stk_view_n_tasks(view) && shown < n && shown < MAX_TASKS; i++) {
        const stk_view_task *task = stk_view_get_task(view, i);
        if (task->i_step != i_step || (failed && task->state != STK_TASK_FAILED)) {
            continue;
        }
        STK_TRY(stk_show_why_task(store, view, i, arena, out, err));
        stk_buf_char(out, '\n');
        shown++;
    }
    if (n > shown) {
        stk_buf_printf(out, "… and %u more\n", n - shown);
    }
    return 0;
}

/* Whose results, of those that came from the cache, may be stale. */
static int say_unseen(const stk_view *view, stk_arena *arena, stk_buf *out, stk_err *err)
{
    const char *first = NULL;
    uint32_t n = 0;
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        stk_view_details d;
        STK_TRY(stk_view_get_details(view, i, arena, &d, err));
        n += d.unseen != NULL ? 1 : 0;
        first = first == NULL && d.unseen != NULL ? stk_view_get_task(view, i)->label : first;
    }
    if (n == 1) {
        stk_buf_printf(out, "Stoker can't see all that '%s' reads: stoker why %s\n", first, first);
    } else if (n > 1) {
        stk_buf_printf(out, "Stoker can't see all that '%s' and %u more read: stoker why %s\n",
                       first, n - 1, first);
    }
    return 0;
}

int stk_show_why_run(stk_store *store, const stk_view *view, stk_arena *arena, stk_buf *out,
                     stk_err *err)
{
    enum { MAX_LINES = 20 };
    const stk_view_run *run = stk_view_get_run(view);
    bool failed = run->n[STK_TASK_FAILED] > 0;
    uint32_t shown = 0, more = 0;
    for (uint32_t i = 0; i < stk_view_n_tasks(view); i++) {
        stk_task_state state = stk_view_get_task(view, i)->state;
        if (failed ? state != STK_TASK_FAILED : state == STK_TASK_CACHED) {
            continue;
        }
        if (shown == MAX_LINES) {
            more++;
            continue;
        }
        STK_TRY(stk_show_why_task(store, view, i, arena, out, err));
        stk_buf_char(out, '\n');
        shown++;
        stk_arena_reset(arena);
    }
    if (shown == 0) {
        stk_buf_printf(out, "no step of run %s had to run: all were cached\n", run->id);
        return say_unseen(view, arena, out, err);
    }
    if (more > 0) {
        stk_buf_printf(out, "… and %u more\n", more);
    }
    return 0;
}
