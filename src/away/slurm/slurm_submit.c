/* Submits jobs. Those that differ only in their attempt gather for a moment, so that the tasks of a
 * wide step become arrays: one sbatch, and a list in the share that names each child's attempt. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "away/slurm/slurm_pilot.h"
#include "base/failpoint.h"
#include "base/text.h"

enum {
    QUIET_MS = 100,  /* time without a new job of its kind, after which a job goes */
    LINGER_MS = 500, /* … and the most time for which it gathers */
    ARRAY_MIN = 8
};

/* Jobs of one sbatch. */
typedef struct group {
    slurm_job **jobs;
    uint32_t n;
    const stk_remote_array *array; /* NULL: one job */
} group;

uint32_t stk_slurm_array_min(const stk_remote_job *job, const stk_slurm_options *options)
{
    double n = stk_slurm_number(options, "array_min", ARRAY_MIN);
    if (job->nodes > 1 || job->key == NULL || n <= 0) {
        return 0;
    }
    return (uint32_t)MAX(n, 2);
}

static uint32_t array_min(const slurm_driver *d, const slurm_job *job)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_slurm_options options;
    if (stk_slurm_options_read(job->spec->step, job->spec->options, d->config.options, arena,
                               &options, NULL) < 0) {
        return 0;
    }
    return stk_slurm_array_min(job->spec, &options);
}

int stk_slurm_form(const slurm_driver *d, slurm_job *job, stk_err *err)
{
    static const stk_remote_array none = {.name = "", .key = ""};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO all = STK_BUF_INIT(16 << 20);
    const char *script = NULL;
    if (array_min(d, job) == 0) {
        return stk_slurm_script(&d->config, job->spec, arena, &script, err);
    }
    STK_TRY(stk_slurm_array_script(&d->config, job->spec, &none, 0, arena, &script, err));
    stk_buf_text(&all, script);
    for (const char *const *pair = job->spec->secret; pair != NULL && *pair != NULL; pair++) {
        (void)stk_buf_add(&all, *pair, strlen(*pair) + 1);
    }
    STK_TRY(stk_buf_check(&all, err));
    stk_digest_of(all.data, all.len, job->form);
    return 0;
}

/* --- one sbatch --- */

static void refused(slurm_driver *d, slurm_job *job, const stk_err *why)
{
    stk_remote_report r = {.state = STK_REMOTE_FAILED,
                           .id = job->spec->id,
                           .attempt = job->spec->attempt,
                           .exit_status = -1,
                           .is_hopeless = true,
                           .failure = STK_FAIL_START};
    if (job->is_stopped) { /* meanwhile */
        r.failure = job->why;
    } else if (strstr(why->text, "configuration is not available") != NULL ||
               strstr(why->text, "generic resource") != NULL) {
        r.failure = STK_FAIL_RESOURCES;
    }
    (void)snprintf(r.text, sizeof r.text, "Slurm refuses its %s: %s",
                   job->leads == NULL ? "job" : "pilot", why->text);
    job->state = SLURM_DONE;
    stk_slurm_report(d, job, &r);
}

static void is_there(slurm_driver *d, slurm_job *job, const char *id)
{
    char text[48];
    (void)snprintf(text, sizeof text, job->array == NULL ? "%s" : "%s_%u", id, job->index);
    stk_slurm_live(d, job, text);
}

static void take_sbatch(slurm_driver *d, const char *out, const stk_err *why)
{
    const slurm_question *q = &d->asked;
    char id[32];
    stk_err err = {0};
    STK_FAILPOINT("slurm.submit.after");
    (void)snprintf(id, sizeof id, "%.*s", (int)strspn(out, "0123456789"), out);
    if (why == NULL && id[0] == '\0') {
        (void)stk_err_set(&err, STK_E_ENV, "sbatch said '%.100s' instead of a number", out);
        why = &err;
    }
    bool waits = why != NULL && stk_slurm_wait_out(d, why);
    for (uint32_t i = 0; i < q->n_jobs; i++) {
        slurm_job *job = q->jobs[i];
        if (job != NULL && why == NULL) {
            is_there(d, job, id);
        } else if (job != NULL && !waits) { /* else the answer may be lost, and the job not */
            refused(d, job, why);
        }
    }
}

/* Its secrets are variables of sbatch, which passes them on by their names. */
static int ask_sbatch(slurm_driver *d, const group *g, stk_err *err)
{
    static const char *const argv[] = {"sbatch", "--parsable", NULL};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_remote_job *spec = g->jobs[0]->spec;
    const slurm_pilot *pilot = g->jobs[0]->leads;
    const char *const *secret = spec->secret;
    const char *script = NULL;
    if (pilot != NULL) {
        script = pilot->script;
        secret = pilot->secret;
    } else if (g->array == NULL) {
        STK_TRY(stk_slurm_script(&d->config, spec, arena, &script, err));
    } else {
        STK_TRY(stk_slurm_array_script(&d->config, spec, g->array, g->n, arena, &script, err));
    }
    for (uint32_t i = 0; i < g->n; i++) {
        g->jobs[i]->must_look = true;
    }
    STK_FAILPOINT("slurm.submit.before");
    stk_slurm_ask(d, argv, secret, script, g->jobs, g->n, take_sbatch);
    return 0;
}

static void submit_group(slurm_driver *d, const group *g)
{
    stk_err err = {0};
    if (ask_sbatch(d, g, &err) < 0) {
        for (uint32_t i = 0; i < g->n; i++) {
            refused(d, g->jobs[i], &err);
        }
    }
}

/* --- arrays --- */

/* The list is in the share before the array is there. */
static int make_array(slurm_driver *d, group *g, stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const char **keys = stk_arena_array(scratch, g->n, sizeof *keys);
    stk_remote_array *array = stk_arena_alloc(d->arena, sizeof *array);
    if (keys == NULL || array == NULL) {
        return stk_err_nomem(err);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        keys[i] = g->jobs[i]->spec->key;
    }
    STK_TRY(stk_remote_array_make(d->config.run, g->jobs[0]->spec->name, keys, g->n, d->arena,
                                  array, err));
    STK_TRY(stk_share_open(d->config.share_url, &share, err));
    STK_TRY(stk_remote_array_put(share, array, err));
    for (uint32_t i = 0; i < g->n; i++) {
        g->jobs[i]->array = array;
        g->jobs[i]->index = i;
    }
    g->array = array;
    return 0;
}

static void submit_array(slurm_driver *d, group *g)
{
    stk_err err = {0};
    if (make_array(d, g, &err) < 0) {
        for (uint32_t i = 0; i < g->n; i++) {
            stk_slurm_fail(d, g->jobs[i], STK_FAIL_STORE,
                           "can't put the list of an array job into the share: %s", err.text);
        }
        return;
    }
    submit_group(d, g);
}

static void take_config(slurm_driver *d, const char *out, const stk_err *why)
{
    if (why == NULL || !stk_slurm_wait_out(d, why)) {
        d->array_max = stk_slurm_array_max(out);
        d->knows_array_max = true;
    }
}

/* --- gathering --- */

static bool is_due(const slurm_job *job)
{
    return stk_slurm_is_fresh(job) && job->pilot_form[0] == '\0';
}

/* The jobs that are like the first one, and when they go. */
static int64_t gather(slurm_driver *d, slurm_job *first, group *g)
{
    int64_t came_ms = first->came_ms, last_ms = first->came_ms;
    g->n = 0;
    g->jobs[g->n++] = first;
    if (first->form[0] == '\0') {
        return 0;
    }
    for (uint32_t i = 0; i < d->n_jobs && g->n < d->array_max; i++) {
        slurm_job *job = d->jobs[i];
        if (job != first && is_due(job) && strcmp(job->form, first->form) == 0) {
            g->jobs[g->n++] = job;
            came_ms = MIN(came_ms, job->came_ms);
            last_ms = MAX(last_ms, job->came_ms);
        }
    }
    return g->n >= d->array_max ? 0 : MIN(last_ms + QUIET_MS, came_ms + LINGER_MS);
}

static void send_group(slurm_driver *d, group *g)
{
    if (g->n > 1 && g->n >= array_min(d, g->jobs[0])) {
        submit_array(d, g);
        return;
    }
    g->n = 1;
    submit_group(d, g);
}

int64_t stk_slurm_submit_some(slurm_driver *d)
{
    static const char *const config[] = {"scontrol", "show", "config", NULL};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    int64_t next = INT64_MAX, now = stk_slurm_now_ms();
    group g = {.jobs = stk_arena_array(arena, (size_t)d->n_jobs + 1, sizeof *g.jobs)};
    for (uint32_t i = 0; g.jobs != NULL && i < d->n_jobs && !stk_slurm_is_asking(d); i++) {
        slurm_job *job = d->jobs[i];
        if (!is_due(job)) {
            continue;
        }
        if (!d->knows_array_max) {
            stk_slurm_ask(d, config, NULL, NULL, NULL, 0, take_config);
            break;
        }
        g.array = NULL;
        int64_t due = gather(d, job, &g);
        if (due <= now) {
            send_group(d, &g);
        } else {
            next = MIN(next, due);
        }
    }
    return next;
}
