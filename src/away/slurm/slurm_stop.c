/* Ends jobs: first they are told, then Slurm ends them. One scancel takes many jobs. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "away/slurm/slurm_driver.h"
#include "base/text.h"

enum { AGAIN_MS = 10000, AT_ONCE = 200 };

/* How a job is ended now. */
typedef enum {
    NOT_DUE,
    AT_THE_END, /* by Slurm: it waits, and there is nobody to tell, or its time is over */
    TOLD,       /* a plain job's script passes the signal on to our agent */
    TOLD_GANG,  /* a gang's agents get it from srun's step */
    N_WAYS
} way;

typedef struct cancelled {
    slurm_job *jobs[AT_ONCE];
    uint32_t n;
} cancelled;

static way way_of(const slurm_job *job, int64_t now)
{
    if (job->state != SLURM_LIVE || !job->is_stopped || MIN(job->kill_ms, job->stop_ms) > now) {
        return NOT_DUE;
    }
    if (job->kill_ms <= now || !job->is_running) {
        return AT_THE_END;
    }
    return job->spec->nodes > 1 ? TOLD_GANG : TOLD;
}

static int call_scancel(slurm_driver *d, const cancelled *c, way by, stk_err *err)
{
    const char *argv[AT_ONCE + 4] = {"scancel"}, *out = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    uint32_t n = 1;
    if (by != AT_THE_END) {
        argv[n++] = "--signal=TERM";
    }
    if (by == TOLD) {
        argv[n++] = "--batch";
    }
    for (uint32_t i = 0; i < c->n; i++) {
        argv[n++] = c->jobs[i]->id;
    }
    return stk_slurm_ask(d, argv, NULL, NULL, arena, &out, err);
}

/* Plain scancel is repeated until Slurm says that the job has ended. */
static void was_called(slurm_driver *d, slurm_job *job, way by, bool is_good)
{
    int64_t now = stk_slurm_now_ms();
    if (by == AT_THE_END && job->kill_ms <= now) {
        job->stop_ms = INT64_MAX;
        job->kill_ms = now + AGAIN_MS;
    } else {
        job->stop_ms = is_good ? INT64_MAX : now + AGAIN_MS / 10;
    }
    if (is_good) {
        d->next_look_ms = MIN(d->next_look_ms, now + d->poll_ms / 4);
    }
}

static void cancel(slurm_driver *d, const cancelled *c, way by)
{
    stk_err err = {0};
    int rc = call_scancel(d, c, by, &err);
    bool is_good = rc == 0 || (c->n == 1 && (strstr(err.text, "Invalid job id") != NULL ||
                                             strstr(err.text, "already") != NULL));
    if (!is_good && c->n > 1 && !stk_slurm_may_pass(&err)) { /* one of them has ended */
        for (uint32_t i = 0; i < c->n; i++) {
            const cancelled one = {.jobs = {c->jobs[i]}, .n = 1};
            cancel(d, &one, by);
        }
        return;
    }
    if (!is_good && !stk_slurm_wait_out(d, &err)) {
        char text[900];
        (void)snprintf(text, sizeof text, "can't cancel job %s: %s", c->jobs[0]->id, err.text);
        stk_slurm_say(d, c->jobs[0], STK_REMOTE_NOTE, text);
    }
    for (uint32_t i = 0; i < c->n; i++) {
        was_called(d, c->jobs[i], by, is_good);
    }
}

int64_t stk_slurm_stop_due(slurm_driver *d)
{
    int64_t next = INT64_MAX, now = stk_slurm_now_ms();
    for (way by = AT_THE_END; by < N_WAYS; by++) {
        cancelled c = {.n = 0};
        for (uint32_t i = 0; i < d->n_jobs; i++) {
            if (way_of(d->jobs[i], now) == by) {
                c.jobs[c.n++] = d->jobs[i];
            }
            if (c.n == AT_ONCE || (c.n > 0 && i + 1 == d->n_jobs)) {
                cancel(d, &c, by);
                c.n = 0;
            }
        }
    }
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        const slurm_job *job = d->jobs[i];
        if (job->state == SLURM_LIVE && job->is_stopped) {
            next = MIN(next, MIN(job->stop_ms, job->kill_ms));
        }
    }
    return next;
}
