/* stoker why: why did a step run, fail, not run, or why does it wait? */
#include <string.h>

#include "accel/accel.h"
#include "base/limits.h"
#include "cli/cli_read.h"
#include "plan/plan.h"

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

/* Would a device of this kind do, by one of the alternatives? */
static bool would_do(const stk_resources *asked, const stk_device *d)
{
    const stk_capacity_device device = {.vendor = d->vendor,
                                        .noun = d->noun,
                                        .model = d->model,
                                        .profile = d->profile,
                                        .memory_bytes = d->memory_bytes};
    bool fits =
        asked->n_any_of == 0 && stk_plan_device_fits(asked->gpu_class, asked->gpu_vendor, &device);
    for (uint32_t i = 0; !fits && i < asked->n_any_of; i++) {
        const stk_alternative *a = &asked->any_of[i];
        fits = stk_plan_device_fits(a->gpu_class ? a->gpu_class : asked->gpu_class,
                                    a->gpu_vendor ? a->gpu_vendor : asked->gpu_vendor, &device);
    }
    return fits;
}

/* Who has the devices that this step could use, as the locks say now: "GPU 0: run r step s (user
 * ann, pid 7)", joined by commas. Nothing where it asks for none, or none is held. */
static void add_holders(const stk_resources *asked, stk_arena *arena, stk_buf *out)
{
    bool wants = asked->gpu_count > 0 || asked->gpu_class != NULL || asked->gpu_vendor != NULL ||
                 asked->gpu_memory_bytes != -1 || asked->n_any_of > 0;
    stk_accel *accel = NULL;
    if (!wants || asked->gpu_count == 0 || stk_accel_open(NULL, &accel, NULL) < 0) {
        return;
    }
    int64_t free_bytes[STK_LIMIT_DEVICES];
    const char *outside[STK_LIMIT_DEVICES];
    (void)stk_lease_free(accel, arena, free_bytes, outside, NULL);
    for (uint32_t i = 0; i < stk_accel_n_devices(accel); i++) {
        const stk_device *device = stk_accel_device(accel, i);
        const char *who = outside[i] != NULL ? outside[i] : stk_lease_holder(accel, i, arena);
        if (who != NULL && device->n_slices <= 0 && would_do(asked, device)) {
            stk_buf_printf(out, "%s%s %d: %s", out->len > 0 ? ", " : "", device->noun,
                           device->index, who);
        }
    }
    stk_accel_close(accel);
}

static void why_waiting(const stk_view *view, const stk_view_task *task, stk_arena *arena,
                        stk_buf *out)
{
    STK_BUF_AUTO holders = STK_BUF_INIT(1u << 20);
    const stk_view_task *other =
        task->step ? waits_for(view, task->step->inputs, task->step->n_inputs) : NULL;
    for (uint32_t i = 0; other == NULL && task->step && i < task->step->n_after; i++) {
        const stk_view_task *after = stk_view_get_task(view, task->step->after[i]);
        other = stk_state_is_final(after->state) ? NULL : after;
    }
    if (!stk_view_is_live(view)) {
        stk_buf_printf(out, "step '%s' never ran: the run was %s before its turn came", task->name,
                       stk_view_get_run(view)->status);
        return;
    }
    if (other != NULL) {
        stk_buf_printf(out, "step '%s' waits for step '%s', which is %s", task->name, other->name,
                       stk_state_word(other->state));
        return;
    }
    if (task->step != NULL) {
        add_holders(&task->step->settings->resources, arena, &holders);
    }
    stk_buf_printf(out, "step '%s' has all its inputs and waits for %s%s", task->name,
                   holders.len > 0 ? "devices: " : "CPUs, memory, devices or a free worker",
                   holders.len > 0 ? holders.data : "");
}

/* One sentence. */
static int why_task(const stk_view *view, uint32_t i_task, stk_arena *arena, stk_buf *out,
                    stk_err *err)
{
    const stk_view_task *task = stk_view_get_task(view, i_task);
    const char *name = task->name;
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
        stk_buf_printf(out, "step '%s' was cancelled: %s", name, d.error_text);
        break;
    case STK_TASK_SUCCEEDED:
    case STK_TASK_RUNNING:
        stk_buf_printf(out, "step '%s' ran: %s", name, miss);
        break;
    default:
        why_waiting(view, task, arena, out);
    }
    return 0;
}

/* Without a step: why the run ended as it did, by its failed steps or else what made steps run. */
static int why_run(const stk_view *view, stk_arena *arena, stk_buf *out, stk_err *err)
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
        int rc = why_task(view, i, arena, out, err);
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
    int rc = arena == NULL   ? stk_err_set(&err, STK_E_NOMEM, "out of memory")
             : read.has_task ? why_task(read.view, read.task, arena, &text, &err)
                             : why_run(read.view, arena, &text, &err);
    while (text.len > 0 && text.data[text.len - 1] == '\n') {
        text.data[--text.len] = '\0';
    }
    if (rc == 0 && stk_cli_json(cli)) {
        stk_buf_text(&out, "{\"run\":");
        stk_buf_json(&out, stk_view_get_run(read.view)->id);
        stk_buf_text(&out, ",\"step\":");
        if (read.has_task) {
            stk_buf_json(&out, stk_view_get_task(read.view, read.task)->name);
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
    .usage = "[options] [RUN[/STEP]]",
    .text = "One true sentence a step. Without STEP: the failed steps, or what made the others run "
            "instead of being taken from the cache. RUN as in 'stoker show'.",
    .run = run_why};
