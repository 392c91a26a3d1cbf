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

static void take_scancel(slurm_driver *d, const char *out, const stk_err *why)
{
    const slurm_question *q = &d->asked;
    slurm_job *first = q->jobs[0];
    (void)out;
    bool is_good = why == NULL || (q->n_jobs == 1 && (strstr(why->text, "Invalid job id") != NULL ||
                                                      strstr(why->text, "already") != NULL));
    bool waits = !is_good && stk_slurm_wait_out(d, why);
    if (!is_good && !waits && q->n_jobs == 1 && first != NULL) {
        char text[900];
        (void)snprintf(text, sizeof text, "can't cancel job %s: %s", first->id, why->text);
        stk_slurm_say(d, first, STK_REMOTE_NOTE, text);
    }
    for (uint32_t i = 0; i < q->n_jobs; i++) {
        if (q->jobs[i] != NULL && !is_good && !waits && q->n_jobs > 1) {
            q->jobs[i]->stops_alone = true; /* one of them has ended */
        } else if (q->jobs[i] != NULL) {
            was_called(d, q->jobs[i], (way)q->way, is_good);
        }
    }
}

static void ask_to_end(slurm_driver *d, slurm_job *const *jobs, uint32_t n_jobs, way by)
{
    const char *argv[AT_ONCE + 4] = {"scancel"};
    uint32_t n = 1;
    if (by != AT_THE_END) {
        argv[n++] = "--signal=TERM";
    }
    if (by == TOLD) {
        argv[n++] = "--batch";
    }
    for (uint32_t i = 0; i < n_jobs; i++) {
        argv[n++] = jobs[i]->id;
    }
    stk_slurm_ask(d, argv, NULL, NULL, jobs, n_jobs, take_scancel);
    d->asked.way = (int)by;
}

int64_t stk_slurm_stop_due(slurm_driver *d)
{
    int64_t next = INT64_MAX, now = stk_slurm_now_ms();
    for (way by = AT_THE_END; by < N_WAYS; by++) {
        slurm_job *jobs[AT_ONCE];
        uint32_t n = 0;
        for (uint32_t i = 0; i < d->n_jobs && n < AT_ONCE; i++) {
            if (way_of(d->jobs[i], now) == by && !(n > 0 && d->jobs[i]->stops_alone)) {
                jobs[n++] = d->jobs[i];
            }
            if (n == 1 && jobs[0]->stops_alone) {
                break;
            }
        }
        if (n > 0) {
            ask_to_end(d, jobs, n, by);
            return next;
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
