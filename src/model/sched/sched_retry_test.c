/* Whether and when a failed attempt is retried, and which allowance it uses up. */
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/testing.h"
#include "model/sched/sched.h"

/* Devices of 100 MiB each; most tests use the first two. */
static const stk_pack_device devices[] = {
    {100, 100, 0, false}, {100, 100, 0, false}, {100, 100, 1, false}, {100, 100, 1, false}};
#define CONFIG(n, of_mode)                                                                         \
    {                                                                                              \
        .cpu_milli = 4000, .memory_bytes = 1000, .host = {devices, n, NULL}, .max_workers = 3,     \
        .max_away = {2}, .mode = of_mode, .seed = 7                                                \
    }
static const stk_sched_config config_small = CONFIG(2, STK_MODE_CONTINUE);

static void fold_ok(stk_sched *sched, int kind, uint32_t task, uint32_t attempt)
{
    stk_sched_event event = {.kind = kind, .task = task, .attempt = attempt, .is_final = true};
    stk_err err = {0};
    if (stk_sched_fold(sched, &event, &err) != 0) {
        fail_msg("%s", err.text);
    }
}

static void test_retries(void **state)
{
    (void)state;
    static const struct {
        uint32_t max_retries, n_charged, n_free; /* n_free: LOST, with two free retries */
        stk_failure failure;
        bool again;
    } cases[] = {
        {0, 0, 0, STK_FAIL_EXIT, false},    {1, 0, 0, STK_FAIL_EXIT, true},
        {1, 1, 0, STK_FAIL_EXIT, false},    {0, 0, 1, STK_FAIL_LOST, true},
        {0, 0, 2, STK_FAIL_LOST, false},    {1, 0, 2, STK_FAIL_LOST, true},
        {1, 1, 2, STK_FAIL_LOST, false},    {1, 1, 1, STK_FAIL_LOST, true},
        {0, 0, 2, STK_FAIL_ECC, true},      {1, 0, 2, STK_FAIL_TIMEOUT, true},
        {1, 0, 3, STK_FAIL_TIMEOUT, false}, {9, 0, 0, STK_FAIL_CANCELLED, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_sched *sched = stk_sched_new(&config_small);
        stk_sched_task task = {.max_retries = cases[i].max_retries};
        uint32_t t, attempt = 0;
        stk_sched_add(sched, &task, NULL, 0, &t, NULL);
        for (uint32_t k = 0; k < cases[i].n_charged + cases[i].n_free; k++) {
            stk_sched_event failed = {.kind = STK_EV_TASK_FAILED,
                                      .task = t,
                                      .failure =
                                          k < cases[i].n_charged ? STK_FAIL_EXIT : STK_FAIL_LOST};
            fold_ok(sched, STK_EV_TASK_STARTED, t, ++attempt);
            assert_int_equal(stk_sched_fold(sched, &failed, NULL), 0);
        }
        bool is_last = stk_sched_is_last_attempt(sched, t);
        fold_ok(sched, STK_EV_TASK_STARTED, t, ++attempt);
        assert_int_equal(stk_sched_attempt(sched, t), attempt);
        assert_int_equal(stk_sched_is_last_attempt(sched, t), is_last);
        stk_sched_retrying delay;
        assert_int_equal(stk_sched_retry(sched, t, cases[i].failure, false, &delay),
                         cases[i].again);
        if (cases[i].failure == STK_FAIL_EXIT || cases[i].failure == STK_FAIL_TIMEOUT) {
            assert_int_equal(is_last, !cases[i].again);
        }
        stk_sched_event cancelling = {.kind = STK_EV_RUN_CANCELLING};
        assert_int_equal(stk_sched_fold(sched, &cancelling, NULL), 0);
        assert_false(stk_sched_retry(sched, t, cases[i].failure, false, &delay));
        stk_sched_free(sched);
    }
}

/* A preemption is free while each attempt saves progress; otherwise it uses up ten retries of its
 * own, then max_retries. */
static void test_preemptions(void **state)
{
    (void)state;
    static const struct {
        stk_failure failure;
        bool saved;
        uint32_t n_attempts; /* until the final one, with one retry */
    } cases[] = {{STK_FAIL_PREEMPTED, true, STK_LIMIT_PREEMPTIONS + 12},
                 {STK_FAIL_PREEMPTED, false, 12},
                 {STK_FAIL_TIMEOUT, true, STK_LIMIT_PREEMPTIONS + 2},
                 {STK_FAIL_TIMEOUT, false, 2},
                 {STK_FAIL_EXIT, true, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_sched *sched = stk_sched_new(&config_small);
        stk_sched_task task = {.max_retries = 1, .delay_ms = 100, .backoff = 2};
        stk_sched_retrying next;
        uint32_t n = 0;
        bool again = true;
        stk_sched_add(sched, &task, NULL, 0, NULL, NULL);
        while (again && n < 2000) {
            fold_ok(sched, STK_EV_TASK_STARTED, 0, ++n);
            again = stk_sched_retry(sched, 0, cases[i].failure, cases[i].saved, &next);
            if (n == 5 && cases[i].saved) {
                assert_int_equal(next.delay_ms, 100); /* no backoff: a long run has many */
            }
            stk_sched_event failed = {.kind = STK_EV_TASK_FAILED,
                                      .failure = cases[i].failure,
                                      .saved = cases[i].saved,
                                      .is_final = !again};
            assert_int_equal(stk_sched_fold(sched, &failed, NULL), 0);
        }
        assert_int_equal(n, cases[i].n_attempts);
        stk_sched_free(sched);
    }
}

/* What on_oom does: in which cases, how much, how often, and when it can't. */
static void test_on_oom(void **state)
{
    (void)state;
    static const struct {
        int64_t memory;
        int32_t share; /* -1: no device, 0: a whole one */
        double factor;
        uint32_t oom_retries;
        stk_failure failure;
        bool again;
        stk_grows grows;
        int64_t amount;
        bool is_too_much;
    } cases[] = {
        {400, -1, 2, 1, STK_FAIL_HOST_OOM, true, STK_GROWS_MEMORY, 800, false},
        {400, -1, 2.6, 1, STK_FAIL_HOST_OOM, false, STK_GROWS_MEMORY, 1040, true},
        {0, -1, 2, 1, STK_FAIL_HOST_OOM, false, STK_GROWS_NOTHING, 0, false},
        {400, -1, 2, 0, STK_FAIL_HOST_OOM, false, STK_GROWS_NOTHING, 0, false},
        {400, -1, 0, 1, STK_FAIL_HOST_OOM, false, STK_GROWS_NOTHING, 0, false},
        {400, -1, 2, 1, STK_FAIL_EXIT, false, STK_GROWS_NOTHING, 0, false},
        {400, 30, 1.5, 1, STK_FAIL_DEVICE_OOM, true, STK_GROWS_SHARE, 45, false},
        {400, 30, 3, 1, STK_FAIL_GPU_SHARE, true, STK_GROWS_SHARE, 90, false},
        {400, 60, 2, 1, STK_FAIL_GPU_SHARE, false, STK_GROWS_SHARE, 120, true},
        {400, 0, 2, 1, STK_FAIL_DEVICE_OOM, false, STK_GROWS_NOTHING, 0, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stk_sched *sched = stk_sched_new(&config_small);
        stk_pack_ask ask = {1, cases[i].share, {{3}}, false};
        stk_sched_task task = {.memory_bytes = cases[i].memory,
                               .asks = &ask,
                               .n_asks = cases[i].share >= 0,
                               .oom_memory = cases[i].factor,
                               .oom_share = cases[i].factor,
                               .oom_retries = cases[i].oom_retries};
        stk_sched_event started = {
            .kind = STK_EV_TASK_STARTED, .attempt = 1, .devices = {{cases[i].share >= 0}}};
        stk_sched_retrying seen;
        assert_int_equal(stk_sched_add(sched, &task, NULL, 0, NULL, NULL), 0);
        assert_int_equal(stk_sched_fold(sched, &started, NULL), 0);
        assert_int_equal(stk_sched_retry(sched, 0, cases[i].failure, false, &seen), cases[i].again);
        assert_int_equal(seen.grows, cases[i].grows);
        assert_int_equal(seen.amount, cases[i].amount);
        assert_int_equal(seen.is_too_much, cases[i].is_too_much);
        stk_sched_free(sched);
    }
}

/* When the retries are used up, a fallback gets one attempt, with any failure class and mode. */
static void test_fallback(void **state)
{
    (void)state;
    static const struct {
        stk_failure before[4]; /* of the earlier attempts */
        stk_failure failure;   /* of the current attempt */
        bool again, is_fallback;
    } cases[] = {
        {{STK_FAIL_NONE}, STK_FAIL_EXIT, true, false},                 /* its only retry */
        {{STK_FAIL_EXIT}, STK_FAIL_EXIT, true, true},                  /* no retries left */
        {{STK_FAIL_EXIT}, STK_FAIL_LOST, true, false},                 /* LOST has retries left */
        {{STK_FAIL_EXIT, STK_FAIL_EXIT}, STK_FAIL_EXIT, false, false}, /* the fallback failed */
        {{STK_FAIL_EXIT, STK_FAIL_EXIT}, STK_FAIL_LOST, true, true},   /* LOST is free here, too */
        {{STK_FAIL_EXIT, STK_FAIL_EXIT, STK_FAIL_LOST}, STK_FAIL_LOST, true, true},
        {{STK_FAIL_EXIT, STK_FAIL_EXIT, STK_FAIL_LOST, STK_FAIL_LOST}, STK_FAIL_LOST, false, false},
        {{STK_FAIL_EXIT}, STK_FAIL_CANCELLED, false, false},
        {{STK_FAIL_EXIT}, STK_FAIL_HOST_OOM, true, true}, /* more memory than there is */
    };
    static const stk_mode modes[] = {STK_MODE_CONTINUE, STK_MODE_STOP, STK_MODE_FAIL_FAST};
    for (size_t i = 0; i < 3 * (sizeof cases / sizeof *cases); i++) {
        stk_sched_config config = config_small;
        config.mode = modes[i % 3];
        stk_sched *sched = stk_sched_new(&config);
        stk_sched_task task = {.memory_bytes = 600,
                               .max_retries = 1,
                               .delay_ms = 500,
                               .backoff = 1,
                               .oom_memory = 2,
                               .oom_retries = 1,
                               .fallback = true};
        stk_sched_retrying next;
        uint32_t attempt = 0;
        assert_int_equal(stk_sched_add(sched, &task, NULL, 0, NULL, NULL), 0);
        for (int k = 0; k < 4 && cases[i / 3].before[k] != STK_FAIL_NONE; k++) {
            stk_failure failure = cases[i / 3].before[k];
            fold_ok(sched, STK_EV_TASK_STARTED, 0, ++attempt);
            assert_true(stk_sched_retry(sched, 0, failure, false, &next));
            stk_sched_event failed = {.kind = STK_EV_TASK_FAILED, .failure = failure};
            stk_sched_event retrying = {.kind = STK_EV_TASK_RETRYING,
                                        .is_fallback = next.is_fallback};
            assert_int_equal(stk_sched_fold(sched, &failed, NULL), 0);
            assert_int_equal(stk_sched_fold(sched, &retrying, NULL), 0);
            assert_int_equal(next.is_fallback, k > 0);
            assert_int_equal(next.delay_ms, k > 0 ? 0 : 500);
            assert_int_equal(stk_sched_is_fallback(sched, 0), k > 0);
        }
        fold_ok(sched, STK_EV_TASK_STARTED, 0, ++attempt);
        assert_int_equal(stk_sched_retry(sched, 0, cases[i / 3].failure, false, &next),
                         cases[i / 3].again);
        assert_int_equal(next.is_fallback, cases[i / 3].is_fallback);
        assert_int_equal(next.grows, STK_GROWS_NOTHING);
        stk_sched_free(sched);
    }
}

static void test_delays(void **state)
{
    (void)state;
    static const struct {
        int64_t delay_ms;
        double backoff, jitter;
        uint32_t attempt;
        int64_t low, high;
    } cases[] = {
        {1000, 1, 0, 1, 1000, 1000},
        {1000, 1, 0, 5, 1000, 1000},
        {1000, 2, 0, 1, 1000, 1000},
        {1000, 2, 0, 4, 8000, 8000},
        {1000, 0, 0, 1, 1000, 1000},
        {1000, 0, 0, 2, 0, 0},
        {1000, 1, 0.5, 1, 500, 1500},
        {1000, 2, 0.25, 3, 3000, 5000},
        {0, 3, 1, 3, 0, 0},
        {1000, 10, 0, 99, STK_LIMIT_TIMEOUT_MS, STK_LIMIT_TIMEOUT_MS},
        {1000, 1e308, 1, 9, 0, STK_LIMIT_TIMEOUT_MS},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t seen[2] = {-1, -1};
        bool has_varied = false;
        for (uint64_t seed = 0; seed < 40; seed++) {
            stk_sched_config config = config_small;
            config.seed = seed / 2;
            stk_sched *sched = stk_sched_new(&config);
            stk_sched_task task = {.max_retries = 100,
                                   .delay_ms = cases[i].delay_ms,
                                   .backoff = cases[i].backoff,
                                   .jitter = cases[i].jitter};
            stk_sched_add(sched, &task, NULL, 0, NULL, NULL);
            for (uint32_t a = 1; a <= cases[i].attempt; a++) {
                stk_sched_event failed = {.kind = STK_EV_TASK_FAILED, .failure = STK_FAIL_EXIT};
                fold_ok(sched, STK_EV_TASK_STARTED, 0, a);
                if (a < cases[i].attempt) {
                    assert_int_equal(stk_sched_fold(sched, &failed, NULL), 0);
                }
            }
            stk_sched_retrying delay;
            assert_true(stk_sched_retry(sched, 0, STK_FAIL_EXIT, false, &delay));
            assert_in_range(delay.delay_ms, cases[i].low, cases[i].high);
            has_varied = has_varied || (seen[0] >= 0 && delay.delay_ms != seen[0]);
            seen[seed % 2] = delay.delay_ms;
            assert_true(seed % 2 == 0 || seen[0] == seen[1]); /* same seed, same delay */
            stk_sched_free(sched);
        }
        assert_int_equal(has_varied, cases[i].jitter > 0 && cases[i].delay_ms > 0 && i != 10);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_retries), cmocka_unit_test(test_preemptions),
        cmocka_unit_test(test_on_oom),  cmocka_unit_test(test_fallback),
        cmocka_unit_test(test_delays),
    };
    return cmocka_run_group_tests_name("sched_retry", tests, NULL, NULL);
}
