/* What each step will ask the scheduler for, held against what the place can give at most. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/map.h"
#include "base/units.h"
#include "plan/plan_private.h"

/* Steps that get the same note share one sentence. */
typedef struct note_group {
    const char *asked; /* "1 GPU" */
    const char *has;   /* "none" */
    const char *how;   /* "on the CPU" */
    uint32_t first[3];
    uint32_t n;
} note_group;

typedef struct requester {
    stk_plan *plan;
    const stk_capacity *cap;
    stk_policy policy;
    stk_err *err;
    note_group *groups;
    uint32_t n_groups, cap_groups;
    stk_map index; /* the group's words → its index */
} requester;

/* --- devices --- */

static bool has_word(const char *text, const char *word, size_t len)
{
    const char *at = text;
    while (at != NULL && *at != '\0') {
        while (*at != '\0' && !isalnum((unsigned char)*at)) {
            at++;
        }
        size_t n = 0;
        while (isalnum((unsigned char)at[n])) {
            n++;
        }
        if (n == len && strncasecmp(at, word, len) == 0) {
            return true;
        }
        at += n;
    }
    return false;
}

bool stk_plan_device_fits(const stk_resources *asked, const char *model, const char *vendor)
{
    if (asked->gpu_vendor != NULL &&
        (vendor == NULL || strcasecmp(asked->gpu_vendor, vendor) != 0)) {
        return false;
    }
    const char *at = asked->gpu_class == NULL ? "" : asked->gpu_class;
    while (*at != '\0') {
        size_t n = 0;
        while (isalnum((unsigned char)at[n])) {
            n++;
        }
        if (n > 0 && !has_word(model, at, n) && !has_word(vendor, at, n)) {
            return false;
        }
        at += n > 0 ? n : 1;
    }
    return true;
}

/* "gpu_class A100" or the like: what the step wants beyond a number. */
static const char *kind_text(const stk_resources *res, char buf[160])
{
    if (res->gpu_class != NULL) {
        (void)snprintf(buf, 160, "gpu_class %.100s", res->gpu_class);
    } else {
        (void)snprintf(buf, 160, "gpu_vendor %.100s", res->gpu_vendor);
    }
    return buf;
}

/* --- notes --- */

static int add_note(requester *q, uint32_t i_step, const char *asked, const char *has,
                    const char *how)
{
    stk_arena *arena = q->plan->arena;
    char key[512];
    uint64_t i;
    (void)snprintf(key, sizeof key, "%s\n%s\n%s", asked, has, how);
    if (!stk_map_get(&q->index, key, &i)) {
        if (q->n_groups == q->cap_groups) {
            uint32_t cap = q->cap_groups == 0 ? 8 : q->cap_groups * 2;
            note_group *bigger = stk_arena_array(arena, cap, sizeof *bigger);
            if (bigger == NULL) {
                return stk_plan_no_memory(q->err);
            }
            if (q->n_groups > 0) {
                memcpy(bigger, q->groups, q->n_groups * sizeof *bigger);
            }
            q->groups = bigger;
            q->cap_groups = cap;
        }
        const char *kept = stk_arena_dup(arena, key);
        note_group group = {.asked = stk_arena_dup(arena, asked),
                            .has = stk_arena_dup(arena, has),
                            .how = stk_arena_dup(arena, how)};
        i = q->n_groups;
        if (kept == NULL || group.asked == NULL || group.has == NULL || group.how == NULL ||
            stk_map_put(&q->index, kept, i) < 0) {
            return stk_plan_no_memory(q->err);
        }
        q->groups[q->n_groups++] = group;
    }
    note_group *group = &q->groups[i];
    if (group->n < 3) {
        group->first[group->n] = i_step;
    }
    group->n++;
    return 0;
}

/* Image settings stay with the run, but do nothing on this machine itself. */
static bool names_an_image(const stk_spec *spec)
{
    for (uint32_t i = 0; i < stk_spec_n_steps(spec); i++) {
        if (stk_spec_step(spec, i)->settings->docker != NULL) {
            return true;
        }
    }
    return false;
}

static int write_notes(requester *q)
{
    stk_plan *plan = q->plan;
    plan->notes = stk_arena_array(plan->arena, (size_t)q->n_groups + 1, sizeof *plan->notes);
    if (plan->notes == NULL) {
        return stk_plan_no_memory(q->err);
    }
    for (uint32_t i = 0; i < q->n_groups; i++) {
        const note_group *g = &q->groups[i];
        uint32_t named = g->n <= 3 ? g->n : 2;
        STK_BUF_AUTO text = STK_BUF_INIT(4096);
        stk_buf_text(&text, g->n == 1 ? "step " : "steps ");
        for (uint32_t j = 0; j < named; j++) {
            stk_buf_printf(&text, "%s'%s'",
                           j == 0          ? ""
                           : j + 1 == g->n ? " and "
                                           : ", ",
                           stk_spec_step(plan->spec, g->first[j])->name);
        }
        if (named < g->n) {
            stk_buf_printf(&text, " and %u more", g->n - named);
        }
        stk_buf_printf(&text, " asked for %s%s: %s has %s, %s %s (policy fit)", g->asked,
                       g->n == 1 ? "" : " each", q->cap->where, g->has,
                       g->n == 1 ? "it runs" : "they run", g->how);
        plan->notes[i] = text.failed ? NULL : stk_arena_dup(plan->arena, text.data);
        if (plan->notes[i] == NULL) {
            return stk_plan_no_memory(q->err);
        }
    }
    plan->n_notes = q->n_groups;
    if (q->cap != NULL && q->cap->backend != NULL && strcmp(q->cap->backend, "local") == 0 &&
        names_an_image(plan->spec)) {
        plan->notes[plan->n_notes++] = "docker settings are kept with the run; they apply on "
                                       "container backends, this run is local";
    }
    return 0;
}

/* --- one step --- */

static int refuse(requester *q, uint32_t i_step, const char *text, const char *hint)
{
    const stk_step *step = stk_spec_step(q->plan->spec, i_step);
    stk_err_set(q->err, STK_E_RESOURCES, "step '%s': %s", step->name, text);
    stk_err_hint(q->err, "%s", hint);
    if (stk_spec_path(q->plan->spec) != NULL) {
        stk_err_at(q->err, stk_spec_path(q->plan->spec), step->line);
    } else {
        stk_err_at(q->err, step->source, 0); /* a front's: the document was never a file */
    }
    return STK_E_RESOURCES;
}

static int refuse_devices(requester *q, uint32_t i_step, const stk_resources *res,
                          uint32_t n_matching)
{
    const stk_capacity *cap = q->cap;
    const char *trouble = cap->device_trouble != NULL ? cap->device_trouble : "see stoker doctor";
    long long asked = (long long)res->gpu_count;
    bool picky = res->gpu_class != NULL || res->gpu_vendor != NULL;
    char text[512];
    char kind[160];
    if (cap->n_devices == 0 && cap->n_devices_broken == 0) {
        (void)snprintf(text, sizeof text, "gpu_count %lld: %s has no GPU", asked, cap->where);
        return refuse(q, i_step, text, "take it out, or use --policy fit to run without");
    }
    if (n_matching < res->gpu_count && cap->n_devices_broken > 0) {
        (void)snprintf(text, sizeof text,
                       "gpu_count %lld: %u of the GPUs that %s has can't be used (%.200s)", asked,
                       cap->n_devices_broken, cap->where, trouble);
        return refuse(q, i_step, text, "repair that, or take gpu_count out to run without");
    }
    if (picky && n_matching == 0) {
        (void)snprintf(text, sizeof text, "%s: %s has %.200s", kind_text(res, kind), cap->where,
                       cap->device_models[0]);
        return refuse(q, i_step, text, "name what is there, or leave the class out");
    }
    (void)snprintf(text, sizeof text, "gpu_count %lld is more than %s's %u%s%s", asked, cap->where,
                   n_matching, picky ? " of " : "", picky ? kind_text(res, kind) : "");
    return refuse(q, i_step, text, "lower it to what there is");
}

static int ask_devices(requester *q, uint32_t i_step, const stk_resources *res,
                       stk_request *request)
{
    const stk_capacity *cap = q->cap;
    if (res->gpu_count <= 0) {
        return 0;
    }
    uint32_t n_matching = 0;
    for (uint32_t i = 0; cap != NULL && i < cap->n_devices; i++) {
        bool fits =
            stk_plan_device_fits(res, cap->device_models == NULL ? NULL : cap->device_models[i],
                                 cap->device_vendors == NULL ? NULL : cap->device_vendors[i]);
        n_matching += fits ? 1 : 0;
    }
    if (cap == NULL || n_matching >= res->gpu_count) {
        request->n_devices = (uint32_t)res->gpu_count;
        return 0;
    }
    if (q->policy == STK_POLICY_STRICT || cap->n_devices > 0 || cap->n_devices_broken > 0) {
        return refuse_devices(q, i_step, res, n_matching);
    }
    char asked[200];
    char kind[160];
    bool picky = res->gpu_class != NULL || res->gpu_vendor != NULL;
    (void)snprintf(asked, sizeof asked, "%lld GPU%s%s%s%s", (long long)res->gpu_count,
                   res->gpu_count == 1 ? "" : "s", picky ? " (" : "",
                   picky ? kind_text(res, kind) : "", picky ? ")" : "");
    request->clamped = true;
    return add_note(q, i_step, asked, "none", "on the CPU");
}

static int ask_cpu(requester *q, uint32_t i_step, const stk_resources *res, stk_request *request)
{
    int64_t most = q->cap == NULL || q->cap->cpu_milli <= 0 ? INT64_MAX : q->cap->cpu_milli;
    request->limit_cpu = res->cpu_milli >= 0;
    request->cpu_milli = res->cpu_milli >= 0 ? res->cpu_milli : 1000;
    if (request->cpu_milli <= most) {
        return 0;
    }
    request->cpu_milli = most;
    if (!request->limit_cpu) {
        return 0; /* the step didn't say */
    }
    char asked[200];
    char has[64];
    char how[80];
    if (q->policy == STK_POLICY_STRICT) {
        (void)snprintf(asked, sizeof asked, "cpu_count %g is more than %s's %g",
                       (double)res->cpu_milli / 1000, q->cap->where, (double)most / 1000);
        return refuse(q, i_step, asked, "lower it, or use --policy fit to run with less");
    }
    (void)snprintf(asked, sizeof asked, "%g CPUs", (double)res->cpu_milli / 1000);
    (void)snprintf(has, sizeof has, "%g", (double)most / 1000);
    (void)snprintf(how, sizeof how, "with %g", (double)most / 1000);
    request->clamped = true;
    return add_note(q, i_step, asked, has, how);
}

static int ask_memory(requester *q, uint32_t i_step, const stk_resources *res, stk_request *request)
{
    int64_t most = q->cap == NULL || q->cap->memory_bytes <= 0 ? INT64_MAX : q->cap->memory_bytes;
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
    char how[80];
    (void)stk_units_format_memory(res->memory_bytes, want, sizeof want);
    (void)stk_units_format_memory(most, have, sizeof have);
    if (q->policy == STK_POLICY_STRICT) {
        (void)snprintf(text, sizeof text, "memory %s is more than %s's %s", want, q->cap->where,
                       have);
        return refuse(q, i_step, text, "lower it, or use --policy fit to run with less");
    }
    request->memory_bytes = most;
    request->clamped = true;
    (void)snprintf(text, sizeof text, "%s of memory", want);
    (void)snprintf(how, sizeof how, "with %s", have);
    return add_note(q, i_step, text, have, how);
}

int stk_plan_build_requests(stk_plan *plan, const stk_capacity *capacity, stk_policy policy,
                            stk_err *err)
{
    requester q = {.plan = plan, .cap = capacity, .policy = policy, .err = err};
    plan->requests = stk_arena_array(plan->arena, plan->n_steps, sizeof *plan->requests);
    int rc = plan->requests == NULL ? stk_plan_no_memory(err) : 0;
    for (uint32_t i = 0; rc == 0 && i < plan->n_steps; i++) {
        const stk_resources *res = &stk_spec_step(plan->spec, i)->settings->resources;
        rc = ask_devices(&q, i, res, &plan->requests[i]);
        rc = rc < 0 ? rc : ask_cpu(&q, i, res, &plan->requests[i]);
        rc = rc < 0 ? rc : ask_memory(&q, i, res, &plan->requests[i]);
    }
    rc = rc < 0 ? rc : write_notes(&q);
    stk_map_done(&q.index);
    return rc;
}
