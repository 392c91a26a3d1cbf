/* stoker why: why did a step run, fail, not run, or why does it wait? */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli_read.h"
#include "cli/cli_run.h"
#include "run/exec/exec.h"
#include "run/run_again.h"
#include "run/run_check.h"
#include "run/run_containers.h"
#include "run/run_elsewhere.h"
#include "sys/clock.h"

/* The first thing that `task` waits for: a step before it that isn't done. */
static const stk_view_task *waits_for(const stk_view *view, const stk_input *inputs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const stk_view_task *found = NULL;
        if (inputs[i].kind == STK_INPUT_OUTPUT) {
            const stk_view_task *task = stk_view_get_task(view, inputs[i].step);
            found = stk_state_is_final(task->state) ? NULL : task;
        } else if (inputs[i].kind == STK_INPUT_LIST) {
            found = waits_for(view, inputs[i].items, inputs[i].n_items);
        }
        if (found != NULL) {
            return found;
        }
    }
    return NULL;
}

/* --- waiting for room --- */

/* The run's scheduler as its record leaves it, on this host. */
typedef struct standing {
    stk_accel *accel;
    stk_capacity capacity;
    stk_run_containers containers; /* where its steps run, as far as that can be told */
    stk_run_elsewhere elsewhere;
    stk_plan *plan;
    stk_sched *sched;
} standing;

static void standing_done(standing *s)
{
    stk_sched_free(s->sched);
    stk_plan_free(s->plan);
    stk_accel_close(s->accel);
}

/* The devices that the run may use: not those that our masks leave, but those that its own left,
 * without what it found broken at its start. */
static int open_pool(const stk_view_run *run, stk_accel **ret_accel, stk_err *err)
{
    static const char *const masks[] = {
#define X(id, shown, variable, numbers) variable,
#include "tbl/vendors.def"
    };
    json_t *host = run->host == NULL ? NULL : json_loads(run->host, 0, NULL);
    json_t *pool = run->pool == NULL ? NULL : json_loads(run->pool, 0, NULL);
    const char *simulated = json_string_value(json_object_get(host, "accel"));
    for (size_t i = 0; pool != NULL && i < sizeof masks / sizeof masks[0]; i++) {
        (void)unsetenv(masks[i]);
    }
    int rc = stk_accel_open(simulated != NULL ? simulated : getenv("STOKER_ACCEL"), ret_accel, err);
    for (uint32_t i = 0; rc == 0 && pool != NULL && i < stk_accel_n_devices(*ret_accel); i++) {
        const char *uuid = stk_accel_device(*ret_accel, i)->uuid;
        bool in = false;
        for (size_t k = 0; uuid != NULL && k < json_array_size(pool) && !in; k++) {
            const char *one = json_string_value(json_array_get(pool, k));
            in = one != NULL && strcmp(one, uuid) == 0;
        }
        if (!in && stk_accel_device(*ret_accel, i)->n_slices == 0) {
            stk_accel_exclude(*ret_accel, i, "it is not in the pool of the run");
        }
    }
    json_decref(host);
    json_decref(pool);
    return rc;
}

/* By the stack that it was begun with, as that is written now; one that is gone says nothing. */
static void find_places(const stk_view_run *run, const stk_spec *spec, stk_arena *arena,
                        standing *s)
{
    json_t *host = run->host == NULL ? NULL : json_loads(run->host, 0, NULL);
    const stk_run_options options = {
        .with = stk_arena_dup(arena, json_string_value(json_object_get(host, "stack")))};
    stk_err ignored = {0};
    json_decref(host);
    if (stk_run_places(spec, &options, arena, &s->containers, &ignored) == 0 &&
        stk_run_elsewhere_find(spec, s->containers.places, NULL, arena, &s->elsewhere, &ignored) ==
            0) {
        stk_run_elsewhere_tell(&s->elsewhere, &s->capacity);
    }
}

static int standing_open(stk_store *store, const stk_view *view, stk_arena *arena, standing *s,
                         stk_err *err)
{
    const stk_view_run *run = stk_view_get_run(view);
    const stk_spec *spec = stk_view_spec(view);
    stk_policy policy = run->policy != NULL && strcmp(run->policy, "strict") == 0
                            ? STK_POLICY_STRICT
                            : STK_POLICY_FIT;
    const int64_t *peaks = NULL;
    const bool *settled = NULL;
    int rc = open_pool(run, &s->accel, err);
    rc = rc < 0 ? rc : stk_exec_capacity(s->accel, arena, &s->capacity, err);
    if (rc == 0) {
        find_places(run, spec, arena, s);
    }
    rc = rc < 0 ? rc : stk_run_gpu_peaks(spec, arena, &peaks, err);
    rc = rc < 0 ? rc : stk_run_settled(spec, view, arena, &settled, err);
    rc = rc < 0 ? rc : stk_plan_new_rest(spec, &s->capacity, peaks, policy, settled, &s->plan, err);
    rc = rc < 0 ? rc
                : stk_exec_refold(store, run->id, s->plan, &s->capacity, s->accel, &s->sched, err);
    bool any = false;
    bool is_new = false;
    rc = rc < 0 ? rc : stk_exec_fold_outside(s->accel, s->sched, &any, &is_new, err);
    if (rc == 0) { /* what its engine was told last: retries that are due, reservations */
        stk_action actions[64];
        uint32_t n = 0;
        int64_t wake_ms = -1;
        rc =
            stk_sched_next(s->sched, stk_clock_wall_ms(&stk_clock_real), actions, 64, &n, &wake_ms);
    }
    return rc;
}

static bool is_of_this_host(const stk_view_run *run)
{
    char name[256] = "";
    (void)gethostname(name, sizeof name - 1);
    json_t *host = run->host == NULL ? NULL : json_loads(run->host, 0, NULL);
    const char *its = json_string_value(json_object_get(host, "name"));
    bool same = its == NULL || strcmp(its, name) == 0;
    json_decref(host);
    return same;
}

/* Devices: by whom of this run each is held, then who else has some. */
static void say_devices(const stk_view *view, standing *s, const stk_sched_why *why,
                        stk_arena *arena, stk_buf *out)
{
    const char *comma = "";
    for (uint32_t i = 0; i < stk_accel_n_devices(s->accel); i++) {
        const stk_device *d = stk_accel_device(s->accel, i);
        uint32_t holder =
            stk_devset_has(&why->held, i) ? stk_sched_holder(s->sched, i) : UINT32_MAX;
        if (holder != UINT32_MAX) {
            stk_buf_printf(out, "%s%s %d: step '%s' of this run", comma,
                           d->noun != NULL ? d->noun : "device", d->index,
                           stk_view_get_task(view, holder)->label);
            comma = "; ";
        }
    }
    if (stk_devset_count(&why->outside) > 0) {
        const char *who = stk_exec_holders(s->accel, &why->outside, arena);
        stk_buf_printf(out, "%s%s", comma, who != NULL ? who : "others hold some");
    }
}

/* What a step with all its inputs waits for. */
static void why_ready(const stk_view *view, standing *s, uint32_t i_task, stk_arena *arena,
                      stk_buf *out)
{
    static const char *const whats[] = {[STK_WHY_CPU] = "CPUs",
                                        [STK_WHY_MEMORY] = "memory",
                                        [STK_WHY_DEVICES] = "devices",
                                        [STK_WHY_WORKERS] = "a free worker (--max-workers)",
                                        [STK_WHY_PLACE] = "a place"};
    stk_sched_why why = stk_sched_explain(s->sched, i_task);
    const char *name = stk_view_get_task(view, i_task)->label;
    const char *what = why.what < sizeof whats / sizeof *whats ? whats[why.what] : NULL;
    if (what == NULL) {
        stk_buf_printf(out, "step '%s' has all its inputs and is about to start", name);
        return;
    }
    stk_buf_printf(out, "step '%s' has all its inputs and waits for %s", name, what);
    uint32_t place = stk_plan_request(s->plan, stk_view_get_task(view, i_task)->i_step)->place;
    if (why.what == STK_WHY_PLACE && place > 0) {
        const stk_capacity_place *p = &s->capacity.places[place - 1];
        stk_buf_printf(out, " on %s (stack '%s' has at most %u jobs at once)", p->backend, p->stack,
                       p->max_jobs);
    }
    if (why.is_queue) {
        stk_buf_printf(out, "; step '%s' has waited for these longer and comes first",
                       stk_view_get_task(view, why.other)->label);
    } else if (why.what == STK_WHY_DEVICES) {
        stk_buf_text(out, ": ");
        say_devices(view, s, &why, arena, out);
    } else if (why.other != UINT32_MAX) {
        stk_buf_printf(
            out, ", which step '%s' of this run holds%s", stk_view_get_task(view, why.other)->label,
            why.what == STK_WHY_WORKERS || why.what == STK_WHY_PLACE ? ", among others" : "");
    }
}

static int why_waiting(stk_store *store, const stk_view *view, uint32_t i_task, stk_arena *arena,
                       stk_buf *out, stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    /* A task of a growing run is added when it could start: it waits for no other step. */
    bool grows = stk_view_grows(view);
    const stk_view_task *other =
        grows ? NULL : waits_for(view, task->step->inputs, task->step->n_inputs);
    for (uint32_t i = 0; other == NULL && !grows && i < task->step->n_after; i++) {
        const stk_view_task *after = stk_view_get_task(view, task->step->after[i]);
        other = stk_state_is_final(after->state) ? NULL : after;
    }
    if (!stk_view_is_live(view)) {
        stk_buf_printf(out, "step '%s' never ran: the run was %s before its turn came", task->label,
                       stk_view_get_run(view)->status);
    } else if (other != NULL) {
        stk_buf_printf(out, "step '%s' waits for step '%s', which is %s", task->name, other->name,
                       stk_state_word(other->state));
    } else if (grows) {
        /* Its scheduler can't be made again from the record alone: its tasks' requests are, but not
         * which of them would come first. */
        uint32_t n = stk_view_get_run(view)->n[STK_TASK_RUNNING];
        stk_buf_printf(out,
                       "step '%s' has all its inputs and waits for CPUs, memory, devices or a free "
                       "worker (--max-workers); %u %s of its run %s running",
                       task->label, n, n == 1 ? "task" : "tasks", n == 1 ? "is" : "are");
    } else if (!is_of_this_host(stk_view_get_run(view))) {
        stk_buf_printf(out,
                       "step '%s' has all its inputs and waits for CPUs, memory, devices or a free "
                       "worker; ask on the host of its run for which",
                       task->label);
    } else {
        standing s = {0};
        int rc = standing_open(store, view, arena, &s, err);
        if (rc == 0) {
            why_ready(view, &s, i_task, arena, out);
        }
        standing_done(&s);
        return rc;
    }
    return 0;
}

/* Of a step elsewhere: where. */
static void say_place(const stk_view_details *d, bool runs, stk_buf *out)
{
    json_t *granted = d->granted_json == NULL ? NULL : json_loads(d->granted_json, 0, NULL);
    const char *backend = json_string_value(json_object_get(granted, "backend"));
    const char *stack = json_string_value(json_object_get(granted, "stack"));
    if (backend != NULL && stack != NULL) {
        stk_buf_printf(out, "; it %s on %s (stack '%s')", runs ? "runs" : "ran", backend, stack);
    }
    json_decref(granted);
}

/* One sentence. */
static int why_task(stk_store *store, const stk_view *view, uint32_t i_task, stk_arena *arena,
                    stk_buf *out, stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    const char *name = stk_view_who(view, i_task, arena);
    stk_view_details d;
    uint32_t *roots;
    int rc = stk_view_get_details(view, i_task, arena, &d, err);
    rc = rc < 0 ? rc : stk_view_roots(view, arena, &roots, err);
    if (rc < 0) {
        return rc;
    }
    const char *miss = d.miss ? d.miss : "it was not cached";
    switch (task->state) {
    case STK_TASK_CACHED:
        if (d.from_task >= 0) {
            stk_buf_printf(out, "step '%s' did not run: it was cloned from %s/%s/%lld", name,
                           d.cached_from ? d.cached_from : "?", task->name,
                           (long long)d.from_task + 1);
            break;
        }
        stk_buf_printf(out,
                       "step '%s' did not run: nothing that its result depends on has changed "
                       "since run %s",
                       name, d.cached_from ? d.cached_from : "before");
        break;
    case STK_TASK_FAILED:
    case STK_TASK_BACKOFF:
        stk_buf_printf(out, "step '%s' failed: %s [%s]%s", name, d.error_text ? d.error_text : "?",
                       d.error_class ? d.error_class : "?",
                       task->state == STK_TASK_FAILED ? "" : "; it will be tried again");
        break;
    case STK_TASK_SKIPPED:
        stk_buf_printf(out, "step '%s' was skipped: it needs '%s'", name,
                       d.because ? d.because : "?");
        if (roots[i_task] != UINT32_MAX) {
            const stk_view_task *root = stk_view_get_task(view, roots[i_task]);
            stk_buf_printf(out, "; it all began with '%s', which %s %s", root->name,
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
        stk_buf_printf(out, "step '%s' ran: %s", name, miss);
        say_place(&d, task->state == STK_TASK_RUNNING, out);
        break;
    default:
        return why_waiting(store, view, i_task, arena, out, err);
    }
    return 0;
}

/* A step of a growing run: its tasks that failed, else all, or why it has none. */
static int why_step(stk_store *store, const stk_view *view, uint32_t i_step, stk_arena *arena,
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
        int rc = why_task(store, view, i, arena, out, err);
        if (rc < 0) {
            return rc;
        }
        stk_buf_char(out, '\n');
        shown++;
    }
    if (n > shown) {
        stk_buf_printf(out, "… and %u more\n", n - shown);
    }
    return 0;
}

/* Without a step: why the run ended as it did, by its failed steps or else what made steps run. */
static int why_run(stk_store *store, const stk_view *view, stk_arena *arena, stk_buf *out,
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
        int rc = why_task(store, view, i, arena, out, err);
        if (rc < 0) {
            return rc;
        }
        stk_buf_char(out, '\n');
        shown++;
        stk_arena_reset(arena);
    }
    if (shown == 0) {
        stk_buf_printf(out, "no step of run %s had to run: all were cached\n", run->id);
    } else if (more > 0) {
        stk_buf_printf(out, "… and %u more\n", more);
    }
    return 0;
}

static int run_why(stk_cli *cli)
{
    STK_CLI_READ_AUTO read = {0};
    stk_err err = {0};
    int status = stk_cli_at_most(cli, 2);
    if (status != 0 || (status = stk_cli_read_open(cli, 0, &read)) != 0) {
        return status;
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO text = STK_BUF_INIT(1u << 24);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 26);
    int rc = arena == NULL   ? stk_err_nomem(&err)
             : read.has_task ? why_task(read.store, read.view, read.task, arena, &text, &err)
             : read.has_step ? why_step(read.store, read.view, read.i_step, arena, &text, &err)
                             : why_run(read.store, read.view, arena, &text, &err);
    while (text.len > 0 && text.data[text.len - 1] == '\n') {
        text.data[--text.len] = '\0';
    }
    if (rc == 0 && stk_cli_json(cli)) {
        stk_buf_text(&out, "{\"run\":");
        stk_buf_json(&out, stk_view_get_run(read.view)->id);
        stk_buf_text(&out, ",\"step\":");
        if (read.has_step) {
            stk_buf_json(&out, read.has_task
                                   ? stk_view_get_task(read.view, read.task)->label
                                   : stk_spec_step(stk_view_spec(read.view), read.i_step)->name);
        } else {
            stk_buf_text(&out, "null");
        }
        stk_buf_text(&out, ",\"why\":");
        stk_buf_json(&out, text.data ? text.data : "");
        stk_buf_text(&out, "}\n");
    } else if (rc == 0) {
        stk_text_safe(&out, text.data ? text.data : "", "");
        stk_buf_char(&out, '\n');
    }
    return stk_cli_answer(cli, rc, &out, &err);
}

const stk_command stk_cmd_why = {
    .name = "why",
    .summary = "why a step ran, failed, was skipped or waits",
    .usage = "[options] [RUN[/STEP[/ID]]]",
    .text = "One true sentence a step; of one that waits: for what, and who has it (a step of this "
            "run, another run, a program outside of Stoker). Without STEP: the failed steps, or "
            "what made the others run "
            "instead of being taken from the cache. RUN as in 'stoker show'.",
    .run = run_why};
