/* exec with the fake backend and simulated time: what it does, in which order, and when that is
 * durable. */

#include <sys/param.h>

#include "run/exec/exec_testing.h"

static void test_success(void **state)
{
    fixture *f = *state;
    assert_int_equal(run(f, "{" A "," AFTER("b", "a") "," AFTER("c", "b") "}"), STK_RUN_SUCCEEDED);
    started(f, "a1 b1 c1");
    assert_int_equal(committed(f, STK_EV_TASK_SUCCEEDED, UINT32_MAX, 0).n, 3);
    assert_null(stk_exec_error(f->exec));
}

static void test_retry(void **state)
{
    fixture *f = *state;
    f->n_failures = 2;
    assert_int_equal(run(f, "{\"bad\":{\"run\":\"true\",\"retry\":{\"max_retries\":2,\"delay\":10,"
                            "\"backoff\":3}}}"),
                     STK_RUN_SUCCEEDED);
    started(f, "bad1 bad2 bad3");
    assert_int_equal(committed(f, STK_EV_TASK_RETRYING, 0, 0).n, 2);
    int64_t first = committed(f, STK_EV_TASK_FAILED, 0, 1).last_ms;
    int64_t second = committed(f, STK_EV_TASK_STARTED, 0, 2).last_ms;
    int64_t again = committed(f, STK_EV_TASK_FAILED, 0, 2).last_ms;
    int64_t third = committed(f, STK_EV_TASK_STARTED, 0, 3).last_ms;
    assert_in_range(second - first, 10000, 10010);
    assert_in_range(third - again, 30000, 30010);
}

static void test_wall_clock_set_back(void **state)
{
    fixture *f = *state;
    f->n_failures = 1;
    f->set_back_ms = 500000;
    int64_t began = f->now_ms;
    assert_int_equal(
        run(f, "{\"bad\":{\"run\":\"true\",\"retry\":{\"max_retries\":1,\"delay\":10}}}"),
        STK_RUN_SUCCEEDED);
    assert_in_range(f->now_ms - began, 10000, 10100);
    assert_true(committed(f, STK_EV_TASK_FAILED, 0, 1).last_ms < began);
}

static void test_failure(void **state)
{
    fixture *f = *state;
    f->n_failures = 1;
    assert_int_equal(run(f, "{\"bad\":{\"run\":\"true\"}," AFTER("b", "bad") "," A "}"),
                     STK_RUN_FAILED);
    started(f, "bad1 a1");
    assert_int_equal(committed(f, STK_EV_TASK_SKIPPED, 1, 0).n, 1);
    assert_string_equal(stk_exec_error(f->exec), "step 'bad' failed: exit status 3");
}

static void test_fail_fast(void **state)
{
    fixture *f = *state;
    f->mode = STK_MODE_FAIL_FAST;
    f->start_error = STK_E_SYS; /* fails at once, while the other step runs */
    f->took_ms = 100000;
    int64_t began = f->now_ms;
    assert_int_equal(run(f, "{" A ",\"bad\":{\"run\":\"true\"}," AFTER("c", "a") "}"),
                     STK_RUN_FAILED);
    assert_true(f->now_ms - began < 1000);
    assert_int_equal(committed(f, STK_EV_TASK_CANCELLED, UINT32_MAX, 0).n, 2);
}

static void test_cancel(void **state)
{
    fixture *f = *state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    f->took_ms = 100000;
    f->hangup_fd = pipes[1];
    f->close_on_start = pipes[0]; /* the front end dies while the first step runs */
    assert_int_equal(run(f, "{" A "," AFTER("b", "a") "}"), STK_RUN_CANCELLED);
    started(f, "a1");
    assert_int_equal(committed(f, STK_EV_RUN_CANCELLING, UINT32_MAX, 0).n, 1);
    assert_int_equal(committed(f, STK_EV_TASK_CANCELLED, UINT32_MAX, 0).n, 2);
    (void)close(pipes[1]);
}

static void test_hooks(void **state)
{
    fixture *f = *state;
    f->n_failures = 2;
    assert_int_equal(run(f,
                         "{\"bad\":{\"run\":\"true\",\"retry\":{\"max_retries\":1,\"delay\":0},"
                         "\"hooks\":{\"on_start\":{\"run\":\"s\"},\"on_success\":{\"run\":\"o\"},"
                         "\"on_failure\":{\"run\":\"f\"},\"on_end\":{\"python\":\"m:e\"}}}}"),
                     STK_RUN_FAILED);
    started(f, "bad1.on_start bad1 bad2.on_start bad2 bad2.on_failure bad2.on_end");
}

static void test_cached(void **state)
{
    fixture *f = *state;
    assert_int_equal(run(f, "{" A "," AFTER("b", "a") "}"), STK_RUN_SUCCEEDED);
    fixture first = *f;
    f->exec = NULL;
    f->plan = NULL;
    f->spec = NULL;
    stk_file_close(&f->lock_fd);
    f->n_starts = 0;
    assert_int_equal(run(f, "{" A "," AFTER("b", "a") "}"), STK_RUN_SUCCEEDED);
    started(f, "");
    assert_int_equal(committed(f, STK_EV_TASK_CACHED, UINT32_MAX, 0).n, 2);
    stk_exec_close(first.exec);
    stk_plan_free(first.plan);
    stk_spec_free(first.spec);
}

/* Whichever commit finds the disk full, starts are in the store, the run can be resumed, and a task
 * whose success is durable doesn't run twice. */
static void test_full_disk(void **state)
{
    fixture *f = *state;
    static const char steps[] = "{" A "," AFTER("b", "a") "," AFTER("c", "b") "}";
    static const char *const points[] = {"store.commit.before", "store.commit.mid"};
    bool broke = true;
    f->no_cache = true;
    for (int n = 1; broke; n++) {
        for (int i = 0; i < 2; i++) {
            char rule[64];
            stk_run_status status = STK_RUN_FAILED;
            f->n_starts = 0;
            f->took_ms = 5;
            (void)snprintf(rule, sizeof rule, "%s:%d+:enospc", points[i], n);
            arm(rule);
            int rc = open_exec(f, steps, false);
            rc = rc < 0 ? rc : stk_exec_loop(f->exec, &status, &f->err);
            arm("");
            assert_false(f->finished_early);
            broke = rc < 0;
            if (broke) {
                assert_int_equal(rc, STK_E_FULL);
                uint32_t n_done = committed(f, STK_EV_TASK_SUCCEEDED, UINT32_MAX, 0).n;
                stk_exec_close(f->exec);
                f->exec = NULL;
                f->n_starts = 0;
                OK(go_on(f));
                OK(stk_exec_loop(f->exec, &status, &f->err));
                assert_int_equal(f->n_starts + n_done, 3);
            }
            assert_int_equal(status, STK_RUN_SUCCEEDED);
            stk_exec_close(f->exec);
            stk_plan_free(f->plan);
            stk_spec_free(f->spec);
            f->exec = NULL;
            f->plan = NULL;
            f->spec = NULL;
            stk_file_close(&f->lock_fd);
        }
        assert_true(n < 50);
    }
}

/* A preemption that the backend reports costs no retry: the step asks for none and still runs
 * again. */
static void test_preempted(void **state)
{
    fixture *f = *state;
    f->failure = STK_FAIL_PREEMPTED;
    f->n_failures = 14; /* four make progress, ten more are free */
    f->n_saves = 4;
    assert_int_equal(run(f, "{\"bad\":{\"run\":\"true\"}}"), STK_RUN_SUCCEEDED);
    assert_int_equal(f->n_starts, 15);
    for (uint32_t i = 0; i < f->n_starts; i++) {
        assert_int_equal(f->seen[i], MIN(i, 4));
    }
    assert_int_equal(committed(f, STK_EV_TASK_FAILED, 0, 0).n, 14);
    const char *folder = stk_store_checkpoint_folder(f->store, f->run, "bad", 0, f->arena);
    assert_false(stk_file_exists(folder)); /* removed on success */
}

static void test_preempted_for_good(void **state)
{
    fixture *f = *state;
    f->failure = STK_FAIL_PREEMPTED;
    f->n_failures = 99;
    f->n_saves = 1;
    assert_int_equal(run(f, "{\"bad\":{\"run\":\"true\"}}"), STK_RUN_FAILED);
    assert_int_equal(f->n_starts, 12); /* one with progress, ten free ones, the last */
    stk_checkpoints kept;
    stk_store_checkpoints_look(stk_store_checkpoint_folder(f->store, f->run, "bad", 0, f->arena),
                               &kept);
    assert_int_equal(kept.n, 1); /* for a later resume */
}

/* A resume of a run that began with --no-cache doesn't need that option again. */
static void test_resumed_without_cache(void **state)
{
    fixture *f = *state;
    stk_run_status status = STK_RUN_FAILED;
    assert_int_equal(run(f, "{" A "}"), STK_RUN_SUCCEEDED);
    stk_exec_close(f->exec);
    f->exec = NULL;
    stk_plan_free(f->plan);
    stk_spec_free(f->spec);
    stk_file_close(&f->lock_fd);
    f->no_cache = true;
    f->n_starts = 0;
    OK(open_exec(f, "{" A "}", false));
    stk_exec_close(f->exec);
    f->no_cache = false;
    OK(open_exec(f, NULL, true));
    OK(stk_exec_loop(f->exec, &status, &f->err));
    assert_int_equal(status, STK_RUN_SUCCEEDED);
    started(f, "a1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_resumed_without_cache),
                                       TEST(test_success),
                                       TEST(test_retry),
                                       TEST(test_wall_clock_set_back),
                                       TEST(test_failure),
                                       TEST(test_fail_fast),
                                       TEST(test_cancel),
                                       TEST(test_hooks),
                                       TEST(test_cached),
                                       TEST(test_full_disk),
                                       TEST(test_preempted),
                                       TEST(test_preempted_for_good)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
