/* Submits jobs, or finds those that an earlier engine submitted. */
#include <stdio.h>
#include <string.h>

#include "away/slurm/slurm_driver.h"
#include "base/failpoint.h"
#include "base/map.h"
#include "base/text.h"

enum { AT_ONCE = 16 /* so that commands of the engine don't wait for long */ };

/* All of our jobs by name: what Slurm still knows, ended ones too. The youngest of a name wins. */
static int find_by_name(slurm_driver *d, stk_arena *arena, stk_map *ids, stk_err *err)
{
    static const char *const argv[] = {
        "squeue", "--me", "--states=all", "--noheader", "-o", stk_slurm_look_format, NULL};
    const char *out = NULL;
    (void)d;
    STK_TRY(stk_slurm_call(argv, NULL, NULL, arena, &out, err));
    char *text = stk_arena_dup(arena, out);
    STK_TRY(stk_err_if_null(text, err));
    for (char *line = strtok_r(text, "\n", &text); line != NULL;
         line = strtok_r(NULL, "\n", &text)) {
        stk_slurm_seen seen;
        uint64_t before = 0, id = 0;
        if (!stk_slurm_seen_read(line, &seen) || sscanf(seen.id, "%lu", &id) != 1) {
            continue;
        }
        if (!stk_map_get(ids, seen.name, &before) || before < id) {
            STK_TRY(stk_map_put(ids, seen.name, id) < 0 ? stk_err_nomem(err) : 0);
        }
    }
    return 0;
}

static void found_or_not(slurm_driver *d, slurm_job *job, const stk_map *ids)
{
    uint64_t id = 0;
    char text[32];
    job->must_look = false;
    if (stk_map_get(ids, job->spec->name, &id)) {
        (void)snprintf(text, sizeof text, "%lu", (unsigned long)id);
        stk_slurm_live(d, job, text);
    } else if (job->is_stopped) {
        stk_slurm_fail(d, job, job->why, "stopped before its submission");
    } else if (job->spec->attach || job->spec->reads) {
        stk_slurm_fail(d, job, STK_FAIL_LOST, "Slurm has no job %s", job->spec->name);
    }
}

static bool look_for(slurm_driver *d)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_MAP_AUTO ids = {0};
    stk_err err = {0};
    bool any = false;
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        any = any || (d->jobs[i]->state == SLURM_NEW && d->jobs[i]->must_look);
    }
    if (!any) {
        return true;
    }
    if (find_by_name(d, arena, &ids, &err) < 0) {
        bool waits = stk_slurm_wait_out(d, &err);
        for (uint32_t i = 0; i < d->n_jobs && !waits; i++) {
            if (d->jobs[i]->state == SLURM_NEW && d->jobs[i]->must_look) {
                stk_slurm_fail(d, d->jobs[i], STK_FAIL_START, "%s", err.text);
            }
        }
        return false;
    }
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        if (d->jobs[i]->state == SLURM_NEW && d->jobs[i]->must_look) {
            found_or_not(d, d->jobs[i], &ids);
        }
    }
    return true;
}

static void refused(slurm_driver *d, slurm_job *job, const stk_err *why)
{
    stk_remote_report r = {.state = STK_REMOTE_FAILED,
                           .id = job->spec->id,
                           .attempt = job->spec->attempt,
                           .exit_status = -1,
                           .is_hopeless = true,
                           .failure = STK_FAIL_START};
    if (strstr(why->text, "configuration is not available") != NULL ||
        strstr(why->text, "generic resource") != NULL) {
        r.failure = STK_FAIL_RESOURCES;
    }
    (void)snprintf(r.text, sizeof r.text, "Slurm refuses its job: %s", why->text);
    job->state = SLURM_DONE;
    d->base.say(d->base.say_arg, &r);
}

/* Its secrets are variables of sbatch, which passes them on by their names. */
static bool submit_one(slurm_driver *d, slurm_job *job)
{
    static const char *const argv[] = {"sbatch", "--parsable", NULL};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *script = NULL, *out = NULL;
    char id[32];
    stk_err err = {0};
    int rc = stk_slurm_script(&d->config, job->spec, arena, &script, &err);
    STK_FAILPOINT("slurm.submit.before");
    if (rc == 0) {
        rc = stk_slurm_call(argv, job->spec->secret, script, arena, &out, &err);
    }
    STK_FAILPOINT("slurm.submit.after");
    if (rc < 0 && stk_slurm_wait_out(d, &err)) {
        job->must_look = true; /* the answer may be lost, the job not */
        return false;
    }
    out = stk_text_or(out, "");
    (void)snprintf(id, sizeof id, "%.*s", (int)strspn(out, "0123456789"), out);
    if (rc == 0 && id[0] == '\0') {
        rc = stk_err_set(&err, STK_E_ENV, "sbatch said '%.100s' instead of a number", out);
    }
    if (rc < 0) {
        refused(d, job, &err);
    } else {
        stk_slurm_live(d, job, id);
    }
    return true;
}

void stk_slurm_submit_some(slurm_driver *d)
{
    uint32_t n = 0;
    if (!look_for(d)) {
        return;
    }
    for (uint32_t i = 0; i < d->n_jobs && n < AT_ONCE; i++) {
        slurm_job *job = d->jobs[i];
        if (job->state == SLURM_NEW && !job->must_look) {
            n++;
            if (!submit_one(d, job)) {
                return;
            }
        }
    }
}
