/* Two fake backends behind one interface. */
#include <poll.h>
#include <string.h>

#include "base/testing.h"
#include "host/backend/backend.h"

typedef struct world {
    int64_t now_ms;
    uint32_t n_started;
} world;

static int64_t now_ms(void *arg)
{
    return ((world *)arg)->now_ms;
}

/* Job n lasts 10 × n ms; 9 can't be started. */
static stk_fake_fate fate_of(void *arg, const stk_job *job)
{
    ((world *)arg)->n_started++;
    return (stk_fake_fate){.after_ms = 10 * (int64_t)job->id,
                           .outcome = {.ok = true},
                           .start_error = job->id == 9 ? STK_E_SYS : 0};
}

static bool is_readable(stk_backend *b)
{
    struct pollfd p = {.fd = b->ops->fd(b), .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

static int start(stk_backend *b, uint32_t id, int backend, stk_err *err)
{
    stk_job_elsewhere place = {.backend = (uint32_t)backend};
    stk_job job = {.id = id, .attempt = 1, .elsewhere = backend < 0 ? NULL : &place};
    return b->ops->start(b, &job, err);
}

static void expect(stk_backend *b, stk_report_kind kind, uint32_t id, stk_failure failure)
{
    stk_report report;
    assert_true(b->ops->next(b, &report));
    assert_int_equal(report.kind, kind);
    assert_int_equal(report.id, id);
    if (kind == STK_REPORT_ENDED) {
        assert_int_equal(report.outcome.failure, failure);
    }
}

static stk_backend *two(world *here, world *there)
{
    stk_backend *both[2] = {NULL}, *mux = NULL;
    assert_int_equal(stk_backend_fake_open(fate_of, here, now_ms, &both[0], NULL), 0);
    assert_int_equal(stk_backend_fake_open(fate_of, there, now_ms, &both[1], NULL), 0);
    assert_int_equal(stk_backend_mux_open(both, 2, &mux, NULL), 0);
    return mux;
}

static void test_routes(void **state)
{
    (void)state;
    world here = {.now_ms = 1000}, there = {.now_ms = 1000};
    stk_backend *b = two(&here, &there);
    stk_err err = {0};
    stk_report report;
    assert_false(is_readable(b));
    assert_int_equal(b->ops->wait_ms(b), -1);
    assert_int_equal(start(b, 5, -1, &err), 0);
    assert_int_equal(start(b, 2, 1, &err), 0);
    assert_int_equal(start(b, 3, 0, &err), 0);
    assert_int_equal(here.n_started, 2);
    assert_int_equal(there.n_started, 1);
    assert_true(is_readable(b));
    assert_int_equal(start(b, 9, 1, &err), STK_E_SYS);
    assert_int_equal(start(b, 4, 2, &err), STK_E_BUG);
    assert_non_null(strstr(err.text, "backend 2 of 2"));

    expect(b, STK_REPORT_STARTED, 5, 0); /* the backends take turns */
    expect(b, STK_REPORT_STARTED, 2, 0);
    expect(b, STK_REPORT_STARTED, 3, 0);
    assert_false(b->ops->next(b, &report));
    assert_false(is_readable(b));
    assert_int_equal(b->ops->wait_ms(b), 20); /* until job 2, the first to end */
    here.now_ms = there.now_ms = 1025;
    assert_int_equal(b->ops->wait_ms(b), 0);
    expect(b, STK_REPORT_ENDED, 2, STK_FAIL_NONE);
    assert_int_equal(b->ops->wait_ms(b), 5);

    assert_int_equal(start(b, 7, 1, &err), 0);
    expect(b, STK_REPORT_STARTED, 7, 0);
    b->ops->stop(b, 7, 0, STK_FAIL_TIMEOUT); /* reaches the backend that runs job 7 */
    b->ops->stop(b, 5, 0, STK_FAIL_CANCELLED);
    b->ops->stop(b, 77, 0, STK_FAIL_CANCELLED);
    assert_true(is_readable(b));
    expect(b, STK_REPORT_ENDED, 5, STK_FAIL_CANCELLED);
    expect(b, STK_REPORT_ENDED, 7, STK_FAIL_TIMEOUT);
    assert_false(b->ops->next(b, &report));
    b->ops->close(b);
}

/* A backend that always has a report doesn't hold back the other's reports. */
static void test_fair(void **state)
{
    (void)state;
    world here = {.now_ms = 1000}, there = {.now_ms = 1000};
    stk_backend *b = two(&here, &there);
    stk_err err = {0};
    stk_report report;
    uint32_t n_before = 0;
    for (uint32_t id = 10; id < 20; id++) {
        assert_int_equal(start(b, id, 0, &err), 0);
    }
    assert_int_equal(start(b, 1, 1, &err), 0);
    while (b->ops->next(b, &report) && report.id != 1) {
        n_before++;
    }
    assert_int_equal(report.id, 1);
    assert_in_range(n_before, 0, 1);
    int64_t memory;
    double cpus;
    assert_false(b->ops->usage(b, 1, &memory, &cpus)); /* a fake measures no usage */
    b->ops->close(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_routes),
        cmocka_unit_test(test_fair),
    };
    return cmocka_run_group_tests_name("backend_mux", tests, NULL, NULL);
}
