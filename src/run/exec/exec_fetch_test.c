/* Artifacts that threads bring: who waits for one, and who is told that it can't be had. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>

#include "run/exec/core/exec_state.h"
#include "run/exec/exec_testing.h"
#include "run/exec/place/exec_fetch.h"

static const char digest[] = "5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef";

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* held: nothing is fetched */

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

static void wait_for(const exec_fetcher *b)
{
    struct pollfd fd = {.fd = stk_exec_fetch_fd(b), .events = POLLIN};
    assert_int_equal(poll(&fd, 1, 60000), 1);
}

static const char *place(const fixture *f)
{
    return stk_arena_printf(f->arena, "%s/absent", f->dir);
}

static void open_fetcher(fixture *f, stk_exec *x, _Atomic uint32_t *n_fetched)
{
    f->elsewhere = (stk_exec_elsewhere){
        .fetch = fetch_nothing, .fetch_cancel = cancel, .fetch_arg = (void *)n_fetched};
    OK(stk_exec_fetch_open(&f->elsewhere, f->store, &x->fetcher, &f->err));
}

static void close_fetcher(stk_exec *x)
{
    stk_exec_fetch_close(x->fetcher);
    free(x->pending.launches);
}

/* Asks as a launch of this task does: it is put aside. */
static void put_aside(fixture *f, exec_fetcher *b, uint32_t task)
{
    bool comes = false;
    int rc = 0;
    OK(stk_exec_fetch_ask(b, digest, place(f), &comes, &f->err));
    assert_true(comes);
    assert_true(stk_exec_fetch_aside(b, task, &f->err, &rc));
    assert_int_equal(rc, 0);
}

/* One task is told of the failure while two wait for the same artifact: theirs is told next. */
static void test_told_while_others_wait(void **state)
{
    fixture *f = *state;
    _Atomic uint32_t n_fetched = 0;
    stk_exec x = {0};
    bool comes = false;
    int rc = 0;
    open_fetcher(f, &x, &n_fetched);
    put_aside(f, x.fetcher, 1);
    wait_for(x.fetcher); /* it has failed, and nobody has looked */
    assert_int_equal(stk_exec_fetch_ask(x.fetcher, digest, place(f), &comes, &f->err), STK_E_SYS);
    assert_false(stk_exec_fetch_aside(x.fetcher, 2, &f->err, &rc));
    OK(stk_exec_fetched(&x, &f->err));
    assert_int_equal(x.pending.n_launches, 1);
    assert_int_equal(x.pending.launches[0], 1);

    (void)pthread_mutex_lock(&gate);
    put_aside(f, x.fetcher, 1); /* it asks anew */
    put_aside(f, x.fetcher, 3);
    (void)pthread_mutex_unlock(&gate);
    wait_for(x.fetcher);
    OK(stk_exec_fetched(&x, &f->err));
    assert_int_equal(x.pending.n_launches, 3);
    assert_int_equal(n_fetched, 2);
    close_fetcher(&x);
}

/* A launch that asks twice for what fails in between waits for nothing. */
static void test_asked_twice(void **state)
{
    fixture *f = *state;
    _Atomic uint32_t n_fetched = 0;
    stk_exec x = {0};
    bool comes = false;
    int rc = 0;
    open_fetcher(f, &x, &n_fetched);
    OK(stk_exec_fetch_ask(x.fetcher, digest, place(f), &comes, &f->err));
    assert_true(comes);
    wait_for(x.fetcher);
    assert_int_equal(stk_exec_fetch_ask(x.fetcher, digest, place(f), &comes, &f->err), STK_E_SYS);
    assert_true(stk_exec_fetch_aside(x.fetcher, 4, &f->err, &rc)); /* as if it had not failed */
    assert_int_equal(rc, 0);
    OK(stk_exec_fetched(&x, &f->err));
    assert_int_equal(x.pending.n_launches, 1); /* nothing is on its way: it is made anew */
    assert_int_equal(x.pending.launches[0], 4);
    close_fetcher(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_told_while_others_wait), TEST(test_asked_twice)};
    return cmocka_run_group_tests_name("exec_fetch", tests, NULL, NULL);
}
