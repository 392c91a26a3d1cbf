/* Combines several backends: a job goes to the backend that it names, reports come from all in
 * turn. Ids are unique over all backends, so stop() and usage() can find a job's backend by its
 * id. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "host/backend/backend.h"
#include "sys/file.h"

typedef struct mux {
    stk_backend base;
    int fd; /* an epoll descriptor: readable when a backend's descriptor is */
    uint32_t n;
    uint32_t turn; /* the backend to query first, so that a busy one doesn't starve the others */
    stk_backend *backends[];
} mux;

static int mux_start(stk_backend *base, stk_job *job, stk_err *err)
{
    mux *self = (mux *)base;
    uint32_t i = 0;
    if (job->elsewhere != NULL) {
        i = job->elsewhere->backend;
    }
    if (i >= self->n) {
        stk_lease_drop(&job->lease);
        return stk_err_set(err, STK_E_BUG, "job %u is for backend %u of %u", job->id, i, self->n);
    }
    return self->backends[i]->ops->start(self->backends[i], job, err);
}

static void mux_stop(stk_backend *base, uint32_t id, int64_t grace_ms, stk_failure why)
{
    mux *self = (mux *)base;
    for (uint32_t i = 0; i < self->n; i++) {
        self->backends[i]->ops->stop(self->backends[i], id, grace_ms, why);
    }
}

static bool mux_leave(stk_backend *base, uint32_t id)
{
    mux *self = (mux *)base;
    bool goes_on = false;
    for (uint32_t i = 0; i < self->n; i++) {
        stk_backend *one = self->backends[i];
        goes_on = (one->ops->leave != NULL && one->ops->leave(one, id)) || goes_on;
    }
    return goes_on;
}

static bool mux_next(stk_backend *base, stk_report *ret_report)
{
    mux *self = (mux *)base;
    for (uint32_t k = 0; k < self->n; k++) {
        stk_backend *one = self->backends[(self->turn + k) % self->n];
        if (one->ops->next(one, ret_report)) {
            self->turn = (self->turn + k + 1) % self->n;
            return true;
        }
    }
    return false;
}

static void mux_recorded(stk_backend *base)
{
    mux *self = (mux *)base;
    for (uint32_t i = 0; i < self->n; i++) {
        if (self->backends[i]->ops->recorded != NULL) {
            self->backends[i]->ops->recorded(self->backends[i]);
        }
    }
}

static void mux_drop_checkpoints(stk_backend *base, uint32_t id)
{
    mux *self = (mux *)base;
    for (uint32_t i = 0; i < self->n; i++) {
        if (self->backends[i]->ops->drop_checkpoints != NULL) {
            self->backends[i]->ops->drop_checkpoints(self->backends[i], id);
        }
    }
}

static int mux_fd(const stk_backend *base)
{
    return ((const mux *)base)->fd;
}

static int64_t mux_wait_ms(const stk_backend *base)
{
    const mux *self = (const mux *)base;
    int64_t wait_ms = -1;
    for (uint32_t i = 0; i < self->n; i++) {
        int64_t ms = self->backends[i]->ops->wait_ms(self->backends[i]);
        if (ms >= 0 && (wait_ms < 0 || ms < wait_ms)) {
            wait_ms = ms;
        }
    }
    return wait_ms;
}

static void mux_close(stk_backend *base)
{
    mux *self = (mux *)base;
    for (uint32_t i = 0; i < self->n; i++) {
        self->backends[i]->ops->close(self->backends[i]);
    }
    stk_file_close(&self->fd);
    free(self);
}

static bool mux_usage(stk_backend *base, uint32_t id, int64_t *ret_memory_bytes, double *ret_cpus)
{
    mux *self = (mux *)base;
    bool known = false;
    for (uint32_t i = 0; i < self->n && !known; i++) {
        stk_backend *one = self->backends[i];
        known = one->ops->usage != NULL && one->ops->usage(one, id, ret_memory_bytes, ret_cpus);
    }
    return known;
}

static const stk_backend_ops mux_ops = {
    .name = "mux",
    .start = mux_start,
    .stop = mux_stop,
    .leave = mux_leave,
    .next = mux_next,
    .recorded = mux_recorded,
    .drop_checkpoints = mux_drop_checkpoints,
    .fd = mux_fd,
    .wait_ms = mux_wait_ms,
    .close = mux_close,
    .usage = mux_usage,
};

static int open_mux(mux *self, stk_backend *const *backends, uint32_t n, stk_err *err)
{
    self->fd = epoll_create1(EPOLL_CLOEXEC);
    if (self->fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "watching %u backends", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = i};
        int of_one = backends[i]->ops->fd(backends[i]);
        if (of_one >= 0 && epoll_ctl(self->fd, EPOLL_CTL_ADD, of_one, &event) < 0) {
            return stk_err_sys(err, STK_E_SYS, errno, "watching the %s backend",
                               backends[i]->ops->name);
        }
    }
    return 0;
}

int stk_backend_mux_open(stk_backend *const *backends, uint32_t n, stk_backend **ret_backend,
                         stk_err *err)
{
    mux *self = calloc(1, sizeof *self + n * sizeof *self->backends);
    if (self == NULL) {
        for (uint32_t i = 0; i < n; i++) {
            backends[i]->ops->close(backends[i]);
        }
        return stk_err_set(err, STK_E_NOMEM, "out of memory for %u backends", n);
    }
    self->base.ops = &mux_ops;
    self->n = n;
    memcpy(self->backends, backends, n * sizeof *backends);
    int rc = open_mux(self, backends, n, err);
    if (rc < 0) {
        mux_close(&self->base);
        return rc;
    }
    *ret_backend = &self->base;
    return 0;
}
