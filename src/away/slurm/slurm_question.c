/* What is asked of Slurm: one command at a time, beside the turns. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/slurm/slurm_driver.h"

enum { SILENT_MS = 1000, CLOSE_MS = 2000 };

bool stk_slurm_is_asking(const slurm_driver *d)
{
    return d->asked.take != NULL;
}

bool stk_slurm_is_silent(const slurm_driver *d, int64_t now_ms)
{
    return d->silent_since_ms != 0 && now_ms >= d->silent_since_ms + SILENT_MS;
}

void stk_slurm_ask(slurm_driver *d, const char *const *argv, const char *const *more,
                   const char *input, slurm_job *const *jobs, uint32_t n_jobs, slurm_take take)
{
    slurm_question *q = &d->asked;
    *q = (slurm_question){.take = take, .n_jobs = n_jobs};
    q->jobs = n_jobs == 0 ? NULL : calloc(n_jobs, sizeof(slurm_job *));
    if (n_jobs > 0 && q->jobs == NULL) {
        (void)stk_err_nomem(&q->failed);
        q->n_jobs = 0;
        return;
    }
    for (uint32_t i = 0; i < n_jobs; i++) {
        q->jobs[i] = jobs[i];
    }
    if (d->silent_since_ms == 0) {
        d->silent_since_ms = stk_slurm_now_ms();
    }
    (void)stk_slurm_command_begin(argv, more, input, &q->command, &q->failed);
}

void stk_slurm_without_job(slurm_driver *d, const slurm_job *job)
{
    for (uint32_t i = 0; i < d->asked.n_jobs; i++) {
        if (d->asked.jobs[i] == job) {
            d->asked.jobs[i] = NULL;
        }
    }
}

static void take_answer(slurm_driver *d)
{
    slurm_question *q = &d->asked;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_err err = q->failed;
    const char *out = "";
    int rc = err.code;
    if (q->command != NULL) {
        rc = stk_slurm_command_end(q->command, arena, &out, &err);
        q->command = NULL;
    }
    if (rc == 0 || !stk_slurm_may_pass(&err)) {
        d->silent_since_ms = 0;
    }
    q->take(d, out, rc < 0 ? &err : NULL);
    free(q->jobs);
    *q = (slurm_question){0};
}

void stk_slurm_await_answer(slurm_driver *d, int wake_fd, int64_t until_ms)
{
    int64_t left = until_ms - stk_slurm_now_ms();
    struct pollfd fd = {.fd = wake_fd, .events = POLLIN};
    if (!stk_slurm_is_asking(d)) {
        (void)poll(&fd, 1, (int)MAX(left, 0));
    } else if (d->asked.command == NULL ||
               stk_slurm_command_await(d->asked.command, wake_fd, until_ms)) {
        take_answer(d);
    }
}

void stk_slurm_ask_no_more(slurm_driver *d)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *out = NULL;
    if (d->asked.command != NULL) {
        (void)stk_slurm_command_await(d->asked.command, -1, stk_slurm_now_ms() + CLOSE_MS);
        (void)stk_slurm_command_end(d->asked.command, arena, &out, NULL);
    }
    free(d->asked.jobs);
    d->asked = (slurm_question){0};
}
