/* Ends jobs: first they are told, then Slurm ends them. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "away/slurm/slurm_driver.h"
#include "base/text.h"

enum { AGAIN_MS = 10000 };

/* A job that waits has nobody to tell: plain scancel ends it. A plain job's script passes the
 * signal on to our agent; a gang's agents get it from srun's step. */
static bool cancel(slurm_driver *d, slurm_job *job, bool at_once)
{
    const char *const now[] = {"scancel", job->id, NULL};
    const char *const told[] = {"scancel", "--signal=TERM", "--batch", job->id, NULL};
    const char *const gang[] = {"scancel", "--signal=TERM", job->id, NULL};
    const char *const *argv = job->spec->nodes > 1 ? gang : told;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *out = NULL;
    stk_err err = {0};
    if (at_once || !job->is_running) {
        argv = now;
    }
    if (stk_slurm_call(argv, NULL, NULL, arena, &out, &err) == 0 ||
        strstr(err.text, "Invalid job id") != NULL || strstr(err.text, "already") != NULL) {
        d->next_look_ms = MIN(d->next_look_ms, stk_slurm_now_ms() + d->poll_ms / 4);
        return true;
    }
    if (!stk_slurm_wait_out(d, &err)) {
        char text[900];
        (void)snprintf(text, sizeof text, "can't cancel job %s: %s", job->id, err.text);
        stk_slurm_say(d, job, STK_REMOTE_NOTE, text);
    }
    return false;
}

/* Tells it again if Slurm wasn't reached; plain scancel is repeated until Slurm says that the job
 * has ended. */
static void stop_one(slurm_driver *d, slurm_job *job, int64_t now)
{
    if (job->kill_ms <= now) {
        (void)cancel(d, job, true);
        job->stop_ms = INT64_MAX;
        job->kill_ms = now + AGAIN_MS;
    } else if (job->stop_ms <= now) {
        job->stop_ms = cancel(d, job, false) ? INT64_MAX : now + AGAIN_MS / 10;
    }
}

int64_t stk_slurm_stop_due(slurm_driver *d)
{
    int64_t next = INT64_MAX, now = stk_slurm_now_ms();
    for (uint32_t i = 0; i < d->n_jobs; i++) {
        slurm_job *job = d->jobs[i];
        if (job->state == SLURM_LIVE && job->is_stopped) {
            stop_one(d, job, now);
            next = MIN(next, MIN(job->stop_ms, job->kill_ms));
        }
    }
    return next;
}
