/* Artifacts that threads fetch: which tasks wait for one, and which learn that it can't be had. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>

#include "run/exec/core/exec_sum.h"
#include "run/exec/exec_testing.h"

static const char digest[] = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* while held, no fetch ends */

static int fetch_nothing(void *arg, stk_store *store, const char *wanted, stk_err *err)
{
    (void)store;
    (void)wanted;
    (void)pthread_mutex_lock(&gate);
    ++*(_Atomic uint32_t *)arg;
    (void)pthread_mutex_unlock(&gate);
    return stk_err_set(err, STK_E_SYS, "the share is away");
}

static void cancel(void *arg)
{
    (void)arg;
}

static void wait_for(const stk_exec *x)
{
    struct pollfd fd = {.fd = stk_exec_sum_fd(x->sum), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 60000), 1);
}

static void open_sum(fixture *f, stk_exec *x, _Atomic uint32_t *n_fetched)
{
    f->elsewhere = (stk_exec_elsewhere){
        .fetch = fetch_nothing, .fetch_cancel = cancel, .fetch_arg = (void *)n_fetched};
    x->tasks = calloc(8, sizeof *x->tasks);
    assert_non_null(x->tasks);
    OK(stk_exec_sum_open(&f->elsewhere, stk_store_path(f->store), &x->sum, &f->err));
}

static void close_sum(stk_exec *x)
{
    stk_exec_sum_close(x->sum);
    free(x->pending.launches);
    free(x->tasks);
}

static int ask(fixture *f, stk_exec *x, bool *ret_comes)
{
    return stk_exec_sum_fetch(x->sum, digest, ret_comes, &f->err);
}

/* Asks for the artifact as a launch of this task does; the launch is put aside. */
static void put_aside(fixture *f, stk_exec *x, uint32_t task)
{
    bool comes = false;
    int rc = 0;
    OK(ask(f, x, &comes));
    assert_true(comes);
    assert_true(stk_exec_sum_aside(x, task, EXEC_ASIDE_LAUNCH, NULL, &rc, &f->err));
    assert_int_equal(rc, 0);
}

/* Launches the task again, which learns that its artifact can't be had. */
static void is_told(fixture *f, stk_exec *x, uint32_t task)
{
    bool comes = true;
    int rc = ask(f, x, &comes);
    assert_int_equal(rc, STK_E_SYS);
    assert_string_equal(f->err.text, "the share is away");
    assert_false(comes);
    assert_false(stk_exec_sum_aside(x, task, EXEC_ASIDE_LAUNCH, NULL, &rc, &f->err));
}

/* All tasks that wait for an artifact learn that its fetch failed; a later one asks again. */
static void test_told_while_others_wait(void **state)
{
    fixture *f = *state;
    _Atomic uint32_t n_fetched = 0;
    stk_exec x = {0};
    open_sum(f, &x, &n_fetched);
    (void)pthread_mutex_lock(&gate);
    put_aside(f, &x, 1);
    put_aside(f, &x, 3);
    (void)pthread_mutex_unlock(&gate);
    wait_for(&x); /* it has failed, and the engine hasn't looked */
    is_told(f, &x, 2);
    OK(stk_exec_summed(&x, &f->err));
    assert_int_equal(x.pending.n_launches, 2);
    is_told(f, &x, 1);
    is_told(f, &x, 3);
    assert_int_equal(n_fetched, 1);

    put_aside(f, &x, 1); /* no task waits any more: it is fetched again */
    wait_for(&x);
    OK(stk_exec_summed(&x, &f->err));
    assert_int_equal(x.pending.n_launches, 3);
    assert_int_equal(x.pending.launches[2], 1);
    assert_int_equal(n_fetched, 2);
    close_sum(&x);
}

/* A launch that asks twice, with a failed fetch in between, waits for nothing. */
static void test_asked_twice(void **state)
{
    fixture *f = *state;
    _Atomic uint32_t n_fetched = 0;
    stk_exec x = {0};
    bool comes = false;
    int rc = 0;
    open_sum(f, &x, &n_fetched);
    OK(ask(f, &x, &comes));
    assert_true(comes);
    wait_for(&x);
    assert_int_equal(ask(f, &x, &comes), STK_E_SYS);
    /* as if the fetch hadn't failed */
    assert_true(stk_exec_sum_aside(&x, 4, EXEC_ASIDE_LAUNCH, NULL, &rc, &f->err));
    assert_int_equal(rc, 0);
    OK(stk_exec_summed(&x, &f->err));
    assert_int_equal(x.pending.n_launches, 1); /* no fetch is under way: it is launched again */
    assert_int_equal(x.pending.launches[0], 4);
    close_sum(&x);
}

/* When one of two tasks is stopped during a fetch, the other one still gets the artifact. */
static void test_stopped(void **state)
{
    fixture *f = *state;
    _Atomic uint32_t n_fetched = 0;
    stk_exec x = {0};
    exec_aside_kind kind = EXEC_ASIDE_END;
    open_sum(f, &x, &n_fetched);
    (void)pthread_mutex_lock(&gate);
    put_aside(f, &x, 1);
    assert_true(stk_exec_sum_drop(&x, 1, &kind));
    assert_int_equal(kind, EXEC_ASIDE_LAUNCH);
    put_aside(f, &x, 5);
    (void)pthread_mutex_unlock(&gate);
    wait_for(&x);
    OK(stk_exec_summed(&x, &f->err));
    assert_int_equal(x.pending.n_launches, 1);
    assert_int_equal(x.pending.launches[0], 5);
    assert_int_equal(n_fetched, 1);
    close_sum(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_told_while_others_wait), TEST(test_asked_twice),
                                       TEST(test_stopped)};
    return cmocka_run_group_tests_name("exec_fetch", tests, NULL, NULL);
}
