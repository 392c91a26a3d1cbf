/* Compares each step's request with the most that the place can give. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/text.h"
#include "base/units.h"
#include "model/plan/plan_private.h"

/* --- notes --- */

int stk_plan_add_note(stk_plan_requester *q, uint32_t i_step, const char *asked, const char *why,
                      const char *many)
{
    stk_arena *arena = q->plan->arena;
    char key[640];
    uint64_t i;
    if (q->is_settled) {
        return 0;
    }
    (void)snprintf(key, sizeof key, "%s\n%s", asked, why);
    if (!stk_map_get(&q->index, key, &i)) {
        stk_plan_note_group *groups =
            stk_arena_grow(arena, q->groups, q->n_groups, sizeof *groups, &q->cap_groups);
        STK_TRY(stk_err_if_null(groups, q->err));
        q->groups = groups;
        const char *kept = stk_arena_dup(arena, key);
        stk_plan_note_group group = {.asked = stk_arena_dup(arena, asked),
                                     .why = stk_arena_dup(arena, why),
                                     .many = stk_arena_dup(arena, many)};
        i = q->n_groups;
        if (kept == NULL || group.asked == NULL || group.why == NULL || group.many == NULL ||
            stk_map_put(&q->index, kept, i) < 0) {
            return stk_err_nomem(q->err);
        }
        q->groups[q->n_groups++] = group;
    }
    stk_plan_note_group *group = &q->groups[i];
    if (group->n < 3) {
        group->first[group->n] = i_step;
    }
    group->n++;
    return 0;
}

static int write_notes(stk_plan_requester *q)
{
    stk_plan *plan = q->plan;
    plan->notes = stk_arena_array(plan->arena, (size_t)q->n_groups + 1, sizeof *plan->notes);
    STK_TRY(stk_err_if_null(plan->notes, q->err));
    for (uint32_t i = 0; i < q->n_groups; i++) {
        const stk_plan_note_group *g = &q->groups[i];
        uint32_t named = g->n <= 3 ? g->n : 2;
        STK_BUF_AUTO text = STK_BUF_INIT(4096);
        const char *before = stk_text_noun(g->n, "step ", "steps ");
        for (uint32_t j = 0; j < named; j++) {
            const char *name = stk_spec_step(plan->spec, g->first[j])->name;
            stk_buf_printf(&text, "%s'%s'", before, name);
            before = j + 2 == g->n ? " and " : ", ";
        }
        if (named < g->n) {
            stk_buf_printf(&text, " and %u more", g->n - named);
        }
        if (g->n == 1) {
            stk_buf_printf(&text, " asked for %s: %s", g->asked, g->why);
        } else {
            stk_buf_printf(&text, " asked for %s each: %s", g->asked, g->many);
        }
        plan->notes[i] = stk_buf_keep(&text, plan->arena);
        STK_TRY(stk_err_if_null(plan->notes[i], q->err));
    }
    plan->n_notes = q->n_groups;
    return 0;
}

/* --- one step --- */

int stk_plan_refuse(stk_plan_requester *q, uint32_t i_step, const char *text, const char *hint)
{
    const stk_step *step = stk_spec_step(q->plan->spec, i_step);
    stk_err_set(q->err, STK_E_RESOURCES, "step '%s': %s", step->name, text);
    stk_err_hint(q->err, "%s", hint);
    const char *path = stk_spec_path(q->plan->spec);
    if (path != NULL) {
        stk_err_at(q->err, path, step->line);
        return STK_E_RESOURCES;
    }
    /* from a front: the document was never a file, and the source is "FILE:LINE" */
    const char *colon = step->source == NULL ? NULL : strrchr(step->source, ':');
    int line = colon == NULL ? 0 : atoi(colon + 1);
    stk_err_at(q->err, step->source, line);
    if (line > 0) {
        (void)snprintf(q->err->file, sizeof q->err->file, "%.*s", (int)(colon - step->source),
                       step->source);
    }
    return STK_E_RESOURCES;
}

/* Notes that policy fit gives less than the request. */
static int note_less(stk_plan_requester *q, uint32_t i_step, const char *asked, const char *has)
{
    char why[200];
    char many[200];
    (void)snprintf(why, sizeof why, "%s has %s, so it runs with %s (policy fit)", q->cap->where,
                   has, has);
    (void)snprintf(many, sizeof many, "%s has %s, so they run with %s (policy fit)", q->cap->where,
                   has, has);
    return stk_plan_add_note(q, i_step, asked, why, many);
}

static int ask_cpu(stk_plan_requester *q, uint32_t i_step, const stk_resources *res,
                   stk_request *request)
{
    int64_t most = INT64_MAX;
    if (q->cap != NULL && q->cap->cpu_milli > 0) {
        most = q->cap->cpu_milli;
    }
    request->limit_cpu = res->cpu_milli >= 0;
    request->cpu_milli = res->cpu_milli >= 0 ? res->cpu_milli : 1000;
    if (request->cpu_milli <= most) {
        return 0;
    }
    request->cpu_milli = most;
    if (!request->limit_cpu) {
        return 0; /* not given */
    }
    char asked[200];
    char has[64];
    if (q->policy == STK_POLICY_STRICT) {
        (void)snprintf(asked, sizeof asked, "cpu_count %g is more than %s's %g",
                       (double)res->cpu_milli / 1000, q->cap->where, (double)most / 1000);
        return stk_plan_refuse(q, i_step, asked, "lower it, or use --policy fit to run with less");
    }
    (void)snprintf(asked, sizeof asked, "%g CPUs", (double)res->cpu_milli / 1000);
    (void)snprintf(has, sizeof has, "%g", (double)most / 1000);
    request->clamped = true;
    return note_less(q, i_step, asked, has);
}

static int ask_memory(stk_plan_requester *q, uint32_t i_step, const stk_resources *res,
                      stk_request *request)
{
    int64_t most = INT64_MAX;
    if (q->cap != NULL && q->cap->memory_bytes > 0) {
        most = q->cap->memory_bytes;
    }
    if (res->memory_bytes < 0) {
        return 0;
    }
    request->limit_memory = true;
    request->memory_bytes = res->memory_bytes;
    if (res->memory_bytes <= most) {
        return 0;
    }
    char want[32];
    char have[32];
    char text[200];
    (void)stk_units_format_memory(res->memory_bytes, want, sizeof want);
    (void)stk_units_format_memory(most, have, sizeof have);
    if (q->policy == STK_POLICY_STRICT) {
        (void)snprintf(text, sizeof text, "memory %s is more than %s's %s", want, q->cap->where,
                       have);
        return stk_plan_refuse(q, i_step, text, "lower it, or use --policy fit to run with less");
    }
    request->memory_bytes = most;
    request->clamped = true;
    (void)snprintf(text, sizeof text, "%s of memory", want);
    return note_less(q, i_step, text, have);
}

/* With fewer nodes the training would differ, so no policy reduces them. */
static int ask_nodes(stk_plan_requester *q, uint32_t i_step)
{
    const stk_gang_ask *gang = &stk_spec_step(q->plan->spec, i_step)->settings->gang;
    char asked[200];
    if (q->cap == NULL || q->cap->n_nodes == 0 || gang->nodes <= (int64_t)q->cap->n_nodes) {
        return 0;
    }
    (void)snprintf(asked, sizeof asked,
                   "gang.nodes %lld is more than the %u that the %s backend has",
                   (long long)gang->nodes, q->cap->n_nodes, q->cap->backend);
    return stk_plan_refuse(q, i_step, asked, stk_text_or(q->cap->how_to_nodes, "lower it"));
}

/* The step takes nothing of this place, so nothing here can be too little for it. */
static int ask_elsewhere(const stk_capacity_away *away, const stk_resources *res,
                         stk_request *request)
{
    if (away->resources != NULL) {
        res = away->resources;
    }
    *request = (stk_request){.place = away->place,
                             .cpu_milli = MAX(res->cpu_milli, 0),
                             .memory_bytes = MAX(res->memory_bytes, 0),
                             .n_devices = stk_spec_n_devices(res),
                             .limit_cpu = res->cpu_milli > 0,
                             .limit_memory = res->memory_bytes > 0};
    return 0;
}

static int ask_all(stk_plan_requester *q, uint32_t i_step)
{
    const stk_resources *res = &stk_spec_step(q->plan->spec, i_step)->settings->resources;
    stk_request *request = &q->plan->requests[i_step];
    const stk_capacity_away *away =
        q->cap == NULL || q->cap->away == NULL ? NULL : &q->cap->away[i_step];
    static const char no_pools[] =
        "Stoker has no pools, so this step reserves nothing; ask by cpu_count, memory, gpu_count";
    if (res->of_pools &&
        stk_plan_add_note(q, i_step, "resources of a pool", no_pools, no_pools) < 0) {
        return STK_E_NOMEM;
    }
    if (away != NULL && away->place > 0) {
        return ask_elsewhere(away, res, request);
    }
    STK_TRY(stk_plan_ask_devices(q, i_step, request));
    STK_TRY(ask_cpu(q, i_step, res, request));
    STK_TRY(ask_memory(q, i_step, res, request));
    return ask_nodes(q, i_step);
}

/* For a step that already has its result: computes its request, or why it couldn't run here. */
static int ask_settled(stk_plan_requester *q, uint32_t i_step)
{
    stk_err *err = q->err;
    stk_err why = {0};
    q->is_settled = true;
    q->err = &why;
    int rc = ask_all(q, i_step);
    q->is_settled = false;
    q->err = err;
    q->plan->requests[i_step].is_settled = true;
    if (rc == STK_E_RESOURCES) {
        const char *text = stk_arena_dup(q->plan->arena, why.text);
        q->plan->requests[i_step] = (stk_request){.refusal = text, .is_settled = true};
        return stk_err_if_null(text, err);
    }
    if (rc < 0 && err != NULL) {
        *err = why;
    }
    return rc;
}

int stk_plan_build_requests(stk_plan *plan, const stk_capacity *capacity, const int64_t *peaks,
                            stk_policy policy, const bool *settled, stk_err *err)
{
    stk_plan_requester q = {
        .plan = plan, .cap = capacity, .peaks = peaks, .policy = policy, .err = err};
    plan->requests = stk_arena_array(plan->arena, plan->n_steps, sizeof *plan->requests);
    int rc = stk_err_if_null(plan->requests, err);
    for (uint32_t i = 0; rc == 0 && i < plan->n_steps; i++) {
        if (settled != NULL && settled[i]) {
            rc = ask_settled(&q, i);
        } else {
            rc = ask_all(&q, i);
        }
    }
    if (rc == 0) {
        rc = write_notes(&q);
    }
    stk_map_done(&q.index);
    stk_map_done(&q.known);
    return rc;
}
