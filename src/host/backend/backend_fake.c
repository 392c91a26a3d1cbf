/* A backend that runs nothing: one function supplies the fates, another the time.
 *
 * Only a few jobs run at once, so a linear search through an array is enough. A stopped job ends at
 * once with the failure that stop() names. A lease is released when its job is forgotten.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/grow.h"
#include "host/backend/backend.h"

typedef struct fake_job {
    uint32_t id;
    uint32_t attempt;
    bool is_reported; /* its start was reported */
    int64_t end_ms;
    uint64_t order; /* order of starts: jobs that end at the same time end in this order */
    stk_outcome outcome;
    stk_lease lease;
} fake_job;

typedef struct fake {
    stk_backend base;
    stk_fake_fn fate;
    void *arg;
    int64_t (*now_ms)(void *arg);
    fake_job *jobs;
    uint32_t n_jobs, cap_jobs;
    uint64_t n_starts;
    int fd; /* an eventfd: readable while next() has a report */
} fake;

static fake_job *find_job(fake *self, uint32_t id)
{
    for (uint32_t i = 0; i < self->n_jobs; i++) {
        if (self->jobs[i].id == id) {
            return &self->jobs[i];
        }
    }
    return NULL;
}

static void wake(fake *self)
{
    uint64_t one = 1;
    (void)!write(self->fd, &one, sizeof one); /* full means readable already */
}

static int fake_start(stk_backend *base, stk_job *job, stk_err *err)
{
    fake *self = (fake *)base;
    const fake_job *same = find_job(self, job->id);
    if (same != NULL) { /* a repeated start is harmless; another attempt is a bug */
        stk_lease_drop(&job->lease);
        if (same->attempt == job->attempt) {
            return 0;
        }
        return stk_err_set(err, STK_E_BUG, "job %u was started while its attempt %u ran", job->id,
                           same->attempt);
    }
    stk_fake_fate fate = self->fate(self->arg, job);
    if (fate.start_error != 0) {
        stk_lease_drop(&job->lease);
        return stk_err_set(err, fate.start_error, "job %u could not be started: its fate", job->id);
    }
    fake_job *jobs = stk_grow(self->jobs, self->n_jobs, sizeof *jobs, &self->cap_jobs);
    if (jobs == NULL) {
        stk_lease_drop(&job->lease);
        return stk_err_set(err, STK_E_NOMEM, "out of memory for job %u", job->id);
    }
    self->jobs = jobs;
    fake_job *made = &jobs[self->n_jobs++];
    *made = (fake_job){.id = job->id,
                       .attempt = job->attempt,
                       .end_ms = self->now_ms(self->arg) + fate.after_ms,
                       .order = self->n_starts++,
                       .outcome = fate.outcome,
                       .lease = job->lease};
    made->outcome.wall_ms = fate.after_ms;
    job->lease.n = 0;
    wake(self);
    return 0;
}

static void fake_stop(stk_backend *base, uint32_t id, int64_t grace_ms, stk_failure why)
{
    fake *self = (fake *)base;
    fake_job *job = find_job(self, id);
    int64_t now_ms = self->now_ms(self->arg);
    (void)grace_ms; /* a fake job ends at the first signal */
    if (job == NULL || job->end_ms <= now_ms) {
        return;
    }
    job->outcome.wall_ms -= job->end_ms - now_ms;
    job->end_ms = now_ms;
    job->outcome.ok = false;
    job->outcome.failure = why;
    job->outcome.exit_status = -1;
    job->outcome.signal = 15;
    (void)snprintf(job->outcome.text, sizeof job->outcome.text, "ended by signal 15 (SIGTERM)");
    wake(self);
}

static bool fake_next(stk_backend *base, stk_report *ret_report)
{
    fake *self = (fake *)base;
    int64_t now_ms = self->now_ms(self->arg);
    fake_job *first = NULL;
    for (uint32_t i = 0; i < self->n_jobs; i++) {
        fake_job *job = &self->jobs[i];
        if (!job->is_reported) {
            job->is_reported = true;
            *ret_report = (stk_report){.kind = STK_REPORT_STARTED,
                                       .id = job->id,
                                       .attempt = job->attempt,
                                       .pid = -1,
                                       .time_ms = now_ms};
            return true;
        }
        if (job->end_ms <= now_ms &&
            (first == NULL || job->end_ms < first->end_ms ||
             (job->end_ms == first->end_ms && job->order < first->order))) {
            first = job;
        }
    }
    if (first == NULL) {
        uint64_t n;
        (void)!read(self->fd, &n, sizeof n);
        return false;
    }
    *ret_report = (stk_report){.kind = STK_REPORT_ENDED,
                               .id = first->id,
                               .attempt = first->attempt,
                               .pid = -1,
                               .time_ms = first->end_ms,
                               .outcome = first->outcome};
    stk_lease_drop(&first->lease);
    *first = self->jobs[--self->n_jobs];
    return true;
}

static int fake_fd(const stk_backend *base)
{
    return ((const fake *)base)->fd;
}

static int64_t fake_wait_ms(const stk_backend *base)
{
    const fake *self = (const fake *)base;
    int64_t now_ms = self->now_ms(self->arg);
    int64_t wait_ms = -1;
    for (uint32_t i = 0; i < self->n_jobs; i++) {
        const fake_job *job = &self->jobs[i];
        int64_t ms = job->is_reported && job->end_ms > now_ms ? job->end_ms - now_ms : 0;
        if (wait_ms < 0 || ms < wait_ms) {
            wait_ms = ms;
        }
    }
    return wait_ms;
}

static void fake_close(stk_backend *base)
{
    fake *self = (fake *)base;
    for (uint32_t i = 0; i < self->n_jobs; i++) {
        stk_lease_drop(&self->jobs[i].lease);
    }
    (void)close(self->fd);
    free(self->jobs);
    free(self);
}

static const stk_backend_ops fake_ops = {
    .name = "fake",
    .start = fake_start,
    .stop = fake_stop,
    .next = fake_next,
    .fd = fake_fd,
    .wait_ms = fake_wait_ms,
    .close = fake_close,
};

int stk_backend_fake_open(stk_fake_fn fate, void *arg, int64_t (*now_ms)(void *arg),
                          stk_backend **ret_backend, stk_err *err)
{
    *ret_backend = NULL;
    fake *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory for the fake backend");
    }
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0) {
        free(self);
        return stk_err_set(err, STK_E_SYS, "the fake backend got no eventfd");
    }
    *self = (fake){.base.ops = &fake_ops, .fate = fate, .arg = arg, .now_ms = now_ms, .fd = fd};
    *ret_backend = &self->base;
    return 0;
}
