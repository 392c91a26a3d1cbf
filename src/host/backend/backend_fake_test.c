#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/backend/backend.h"

typedef struct world {
    int64_t now_ms;
    uint32_t n_fates;
} world;

static int64_t now_ms(void *arg)
{
    return ((world *)arg)->now_ms;
}

/* Job n lasts 10 × n ms; odd ones fail; 9 can't be started. */
static stk_fake_fate fate_of(void *arg, const stk_job *job)
{
    ((world *)arg)->n_fates++;
    stk_fake_fate fate = {.after_ms = 10 * (int64_t)job->id, .outcome = {.ok = job->id % 2 == 0}};
    fate.outcome.failure = fate.outcome.ok ? STK_FAIL_NONE : STK_FAIL_EXIT;
    fate.start_error = job->id == 9 ? STK_E_SYS : 0;
    return fate;
}

static bool is_readable(stk_backend *b)
{
    struct pollfd p = {.fd = b->ops->fd(b), .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static void expect(stk_backend *b, stk_report_kind kind, uint32_t id, stk_failure failure)
{
    stk_report report;
    assert_true(b->ops->next(b, &report));
    assert_int_equal(report.kind, kind);
    assert_int_equal(report.id, id);
    assert_int_equal(report.attempt, 1);
    if (kind == STK_REPORT_ENDED) {
        assert_int_equal(report.outcome.ok, failure == STK_FAIL_NONE);
        assert_int_equal(report.outcome.failure, failure);
    }
}

static int start(stk_backend *b, uint32_t id, uint32_t attempt, int *ret_fd)
{
    stk_job job = {.id = id, .attempt = attempt};
    int fds[2];
    stk_err err = {0};
    assert_int_equal(pipe(fds), 0);
    job.lease.n = job.lease.n_fds = 1;
    job.lease.fds[0] = fds[1];
    *ret_fd = fds[0]; /* reads end of file once the lease is dropped */
    int r = b->ops->start(b, &job, &err);
    assert_int_equal(r, err.code);
    return r;
}

static bool is_dropped(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

static void test_fates(void **state)
{
    (void)state;
    world w = {.now_ms = 1000};
    stk_backend *b;
    stk_report report;
    int lease[6];
    assert_int_equal(stk_backend_fake_open(fate_of, &w, now_ms, &b, NULL), 0);
    assert_false(is_readable(b));
    assert_int_equal(b->ops->wait_ms(b), -1);

    assert_int_equal(start(b, 2, 1, &lease[0]), 0);
    assert_int_equal(start(b, 1, 1, &lease[1]), 0);
    assert_true(is_readable(b));
    assert_int_equal(b->ops->wait_ms(b), 0);
    expect(b, STK_REPORT_STARTED, 2, 0);
    expect(b, STK_REPORT_STARTED, 1, 0);
    assert_false(b->ops->next(b, &report));
    assert_false(is_readable(b));
    assert_int_equal(b->ops->wait_ms(b), 10);

    /* the same attempt again: nothing new starts, and the second lease is dropped */
    assert_int_equal(start(b, 2, 1, &lease[2]), 0);
    assert_int_equal(w.n_fates, 2);
    assert_true(is_dropped(lease[2]));
    assert_int_equal(start(b, 2, 2, &lease[3]), STK_E_BUG);
    assert_true(is_dropped(lease[3]));
    assert_int_equal(start(b, 9, 1, &lease[4]), STK_E_SYS);
    assert_true(is_dropped(lease[4]));

    w.now_ms = 1020;
    assert_int_equal(b->ops->wait_ms(b), 0);
    expect(b, STK_REPORT_ENDED, 1, STK_FAIL_EXIT);
    assert_true(is_dropped(lease[1]));
    assert_false(is_dropped(lease[0]));
    expect(b, STK_REPORT_ENDED, 2, STK_FAIL_NONE);
    assert_true(is_dropped(lease[0]));
    assert_false(b->ops->next(b, &report));

    assert_int_equal(start(b, 4, 1, &lease[5]), 0);
    expect(b, STK_REPORT_STARTED, 4, 0);
    b->ops->stop(b, 77, 0, STK_FAIL_TIMEOUT);
    b->ops->stop(b, 4, 100, STK_FAIL_TIMEOUT);
    b->ops->stop(b, 4, 0, STK_FAIL_CANCELLED); /* the first reason stays */
    expect(b, STK_REPORT_ENDED, 4, STK_FAIL_TIMEOUT);
    assert_true(is_dropped(lease[5]));
    for (int i = 0; i < 6; i++) {
        close(lease[i]);
    }
    b->ops->close(b);
}

static void test_close_drops_leases(void **state)
{
    (void)state;
    world w = {0};
    stk_backend *b;
    int lease;
    assert_int_equal(stk_backend_fake_open(fate_of, &w, now_ms, &b, NULL), 0);
    assert_int_equal(start(b, 2, 1, &lease), 0);
    assert_false(is_dropped(lease));
    b->ops->close(b);
    assert_true(is_dropped(lease));
    close(lease);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fates),
        cmocka_unit_test(test_close_drops_leases),
    };
    return cmocka_run_group_tests_name("backend_fake", tests, NULL, NULL);
}
