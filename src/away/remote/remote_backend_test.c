/* The remote backend's queues when memory runs out: no submit and no end is lost. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "away/remote/remote_private.h"
#include "base/testing.h"

static bool is_short; /* whether malloc fails */

#if !defined __SANITIZE_ADDRESS__ && !defined __SANITIZE_THREAD__ /* they replace malloc too */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);

void *malloc(size_t size)
{
    return is_short ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return is_short ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
    return is_short ? NULL : __libc_realloc(p, size);
}

void *reallocarray(void *p, size_t n, size_t size)
{
    return is_short ? NULL : __libc_realloc(p, n * size);
}
#endif

enum { TASKS = 40 };

static uint32_t n_submitted, n_stopped, n_forgotten;
static uint64_t grace_ms;

static int submit(stk_driver *self, const stk_remote_job *job, stk_err *err)
{
    (void)err;
    stk_remote_report r = {
        .state = STK_REMOTE_QUEUED, .id = job->id, .attempt = job->attempt, .exit_status = -1};
    self->say(self->say_arg, &r);
    n_submitted++;
    return 0;
}

static void stop(stk_driver *self, uint32_t id, int64_t grace, stk_failure why)
{
    (void)self;
    (void)id;
    (void)why;
    grace_ms += (uint64_t)grace;
    n_stopped++;
}

static void forget(stk_driver *self, uint32_t id)
{
    (void)self;
    (void)id;
    n_forgotten++;
}

static int turn(stk_driver *self, int wake_fd, int64_t timeout_ms, stk_err *err)
{
    (void)self;
    (void)wake_fd;
    (void)timeout_ms;
    return stk_err_set(err, STK_E_ENV, "one turn is enough");
}

static void close_driver(stk_driver *self)
{
    (void)self;
}

static const stk_driver_ops driver_ops = {.name = "counts",
                                          .submit = submit,
                                          .stop = stop,
                                          .forget = forget,
                                          .turn = turn,
                                          .close = close_driver};
static stk_driver driver = {.ops = &driver_ops};

static int open_driver(const stk_driver_config *config, stk_driver **ret, stk_err *err)
{
    (void)config;
    (void)err;
    *ret = &driver;
    return 0;
}

static remote_backend *open_backend(void)
{
    static const stk_driver_kind kind = {.name = "counts", .open = open_driver};
    stk_remote_config config = {.kind = &kind,
                                .driver = {.stack = "s", .run = "r"},
                                .store_path = "/tmp/absent/.stoker",
                                .share_url = "/tmp/absent/share",
                                .run = "r",
                                .pipeline = "p"};
    stk_backend *base = NULL;
    stk_err err = {0};
    assert_int_equal(stk_remote_open(&config, &base, &err), 0);
    return (remote_backend *)base;
}

/* Adds a task as start() does, but without a thread that processes it. */
static remote_task *add_task(remote_backend *b, uint32_t id)
{
    remote_task *t = calloc(1, sizeof *t);
    t->arena = stk_arena_new(0);
    t->job = (stk_remote_job){.id = id, .attempt = 1, .step = "train", .nodes = 1};
    t->same_slot = b->table[id % b->n_slots];
    b->table[id % b->n_slots] = t;
    b->n_tasks++;
    assert_true(stk_remote_expect_end(b));
    return t;
}

static void test_nothing_is_lost(void **state)
{
    (void)state;
    remote_backend *b = open_backend();
    remote_task *tasks[TASKS];
    for (uint32_t i = 0; i < TASKS; i++) {
        tasks[i] = add_task(b, i);
    }
    stk_outcome gone = {.failure = STK_FAIL_LOST, .exit_status = -1};
    is_short = true;
    for (uint32_t i = 0; i < TASKS; i++) {
        stk_remote_give(b, tasks[i]);
        for (int64_t grace = 3; grace > 0; grace--) { /* the last of several stops counts */
            b->base.ops->stop(&b->base, i, grace, STK_FAIL_CANCELLED);
        }
        stk_remote_tell_note(b, tasks[i], "notes may be lost");
        stk_remote_tell_end(b, tasks[i], &gone);
    }
    uint32_t n_ends = 0;
    for (stk_report r; b->base.ops->next(&b->base, &r);) {
        n_ends += r.kind == STK_REPORT_ENDED;
    }
    b->base.ops->recorded(&b->base);
    is_short = false;
    assert_int_equal(n_ends, TASKS);
    b->driver = &driver;
    b->is_closing = true; /* the thread handles all requests, then ends */
    (void)stk_remote_drive(b);
    assert_int_equal(n_submitted, TASKS);
    assert_int_equal(n_stopped, TASKS);
    assert_int_equal(grace_ms, TASKS);
    assert_int_equal(n_forgotten, TASKS);
    b->base.ops->close(&b->base);
}

/* Closing the backend also frees requests that the driver never received. */
static void test_closed_before_it_was_obeyed(void **state)
{
    (void)state;
    remote_backend *b = open_backend();
    stk_outcome gone = {.failure = STK_FAIL_LOST, .exit_status = -1};
    for (uint32_t i = 0; i < 3; i++) {
        remote_task *t = add_task(b, i);
        stk_remote_give(b, t);
        if (i > 0) {
            stk_remote_tell_end(b, t, &gone);
        }
    }
    for (stk_report r; b->base.ops->next(&b->base, &r);) {
        if (r.id == 1) {
            b->base.ops->recorded(&b->base);
        }
    }
    b->base.ops->close(&b->base);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_is_lost),
                                       cmocka_unit_test(test_closed_before_it_was_obeyed)};
    return cmocka_run_group_tests_name("remote_backend", tests, NULL, NULL);
}
