/* exec and devices: which devices an attempt gets, which task waits for which, more memory after an
 * attempt ran out of it, and devices that break. */
#include "run/exec/exec_testing.h"

/* Makes fake devices of 8 GiB each. `more` goes into the first one's JSON object. */
static void have_devices(fixture *f, uint32_t n, const char *more)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 16);
    for (uint32_t i = 0; i < n; i++) {
        stk_buf_printf(&text, "%s{\"uuid\":\"GPU-%u\",\"memory_bytes\":8589934592%s}",
                       i > 0 ? "," : "[", i, i == 0 ? more : "");
    }
    stk_buf_char(&text, ']');
    const char *path = stk_arena_printf(f->arena, "%s/devices.json", f->dir);
    OK(stk_file_write(path, text.data, text.len, 0644, &f->err));
    (void)setenv("STOKER_LEASE_DIR", stk_arena_printf(f->arena, "%s/leases", f->dir), 1);
    if (f->accel == NULL) {
        OK(stk_accel_open(stk_arena_printf(f->arena, "fake:%s", path), &f->accel, &f->err));
    }
}

#define GPU(step, more)                                                                            \
    "\"" step "\":{\"run\":\"true\",\"resources\":{\"cpu_count\":0.1,\"gpu_count\":1" more "}}"

static uint32_t given(const fixture *f, uint32_t i_start)
{
    return (uint32_t)f->given[i_start].words[0];
}

static void test_devices(void **state)
{
    fixture *f = *state;
    have_devices(f, 2, "");
    assert_int_equal(run(f, "{" GPU("a", "") "," GPU("b", "") "," GPU("c", "") "}"),
                     STK_RUN_SUCCEEDED);
    started(f, "a1 b1 c1");
    assert_int_equal(given(f, 0), 1);
    assert_int_equal(given(f, 1), 2);
    assert_int_equal(given(f, 2), 1);
}

static void test_shares(void **state)
{
    fixture *f = *state;
    have_devices(f, 2, "");
#define HALF ",\"gpu_memory\":\"4GiB\""
    assert_int_equal(run(f, "{" GPU("a", HALF) "," GPU("b", "") "," GPU("c", HALF) "}"),
                     STK_RUN_SUCCEEDED);
    assert_int_equal(given(f, 0), 1);
    assert_int_equal(given(f, 1), 2);
    assert_int_equal(given(f, 2), 1);
}

static stk_lease others; /* what another run holds */

static int let_go_after_a_second(fixture *f)
{
    if (f->now_ms < 1001000) {
        return 0;
    }
    stk_lease_drop(&others);
    return 1;
}

/* Another run holds the first device: step a gets the second one, and step b, which needs both,
 * waits until the first one is free. */
static void test_others(void **state)
{
    fixture *f = *state;
    have_devices(f, 2, "");
    OK(stk_lease_take(f->accel, &(stk_devset){{1}}, 0, "run other step s", &others, NULL, &f->err));
    f->on_tick = let_go_after_a_second;
    assert_int_equal(
        run(f, "{" GPU("a", "") ",\"b\":{\"run\":\"true\",\"resources\":{\"gpu_count\":2}}}"),
        STK_RUN_SUCCEEDED);
    started(f, "a1 b1");
    assert_int_equal(given(f, 0), 2);
    assert_int_equal(given(f, 1), 3);
    assert_in_range(f->now_ms, 1001000, 1001000 + 2000);
    assert_int_equal(committed(f, STK_EV_NOTE, UINT32_MAX, 0).n, 1); /* tells what b waits for */
}

/* What another run sees of this run's claim, and when that changed. */
typedef struct claim_log {
    stk_accel *other;
    bool was;
    uint32_t n;
    int64_t changed_s[16];
} claim_log;

static claim_log claims;

static int watch_claim(fixture *f)
{
    f->now_ms += 999; /* skip ahead: the test covers an hour */
    const char *who = stk_lease_claimant(claims.other, 1, f->arena);
    if ((who != NULL) != claims.was && claims.n < 16) {
        claims.was = who != NULL;
        claims.changed_s[claims.n++] = (f->now_ms - 1000000) / 1000;
        assert_true(who == NULL || strstr(who, " step a (user ") != NULL);
    }
    if (f->now_ms > 1000000 + 4000 * 1000) {
        stk_lease_drop(&others);
        return 1;
    }
    return 0;
}

/* A task that waits for two devices claims both after 10 s. While the claim keeps one of them idle,
 * the engine gives it up after 10 min for 10 min, then after 20 min for 20 min. The claim ends when
 * the task starts. */
static void test_claims(void **state)
{
    fixture *f = *state;
    static const int64_t expected[] = {10, 610, 1210, 2410, 3610};
    const stk_devset first = {{1}};
    have_devices(f, 2, "");
    claims = (claim_log){.n = 0};
    OK(stk_accel_open(stk_arena_printf(f->arena, "fake:%s/devices.json", f->dir), &claims.other,
                      &f->err));
    OK(stk_lease_take(claims.other, &first, 0, "run of others", &others, NULL, &f->err));
    f->on_tick = watch_claim;
    assert_int_equal(run(f, "{\"a\":{\"run\":\"true\",\"resources\":{\"cpu_count\":0.1,"
                            "\"gpu_count\":2}}}"),
                     STK_RUN_SUCCEEDED);
    assert_int_equal(given(f, 0), 3);
    assert_int_equal(claims.n, 5);
    for (uint32_t i = 0; i < 5; i++) {
        assert_in_range(claims.changed_s[i], expected[i], expected[i] + 8);
    }
    assert_null(stk_lease_claimant(claims.other, 1, f->arena));
    stk_accel_close(claims.other);
}

static void test_more_memory(void **state)
{
    fixture *f = *state;
    f->n_failures = 2;
    f->failure = STK_FAIL_HOST_OOM;
    assert_int_equal(run(f, "{\"bad\":{\"run\":\"true\",\"resources\":{\"memory\":\"200MiB\"},"
                            "\"on_oom\":{\"memory\":2,\"max_retries\":2}}}"),
                     STK_RUN_SUCCEEDED);
    started(f, "bad1 bad2 bad3");
    assert_int_equal(f->memory[0], 200 << 20);
    assert_int_equal(f->memory[1], 400 << 20);
    assert_int_equal(f->memory[2], 800 << 20);
}

/* Fills the disk once the retry is on record, so that the engine stops there. */
static int stop_when_failed(fixture *f)
{
    if (committed(f, STK_EV_TASK_RETRYING, 0, 0).n == 0) {
        return 0;
    }
    arm("store.commit.before:1+:enospc");
    return 1;
}

/* An engine that resumes a run still gives the next attempt the larger amount of memory. */
static void test_more_memory_after_a_crash(void **state)
{
    fixture *f = *state;
    stk_run_status status = STK_RUN_FAILED;
    f->n_failures = 1;
    f->failure = STK_FAIL_HOST_OOM;
    OK(open_exec(f,
                 "{\"bad\":{\"run\":\"true\",\"resources\":{\"memory\":\"200MiB\"},"
                 "\"on_oom\":{\"memory\":2},\"retry\":{\"max_retries\":0,\"delay\":1}}}",
                 false));
    f->on_tick = stop_when_failed;
    (void)stk_exec_loop(f->exec, &status, &f->err);
    arm("");
    assert_int_equal(committed(f, STK_EV_TASK_RETRYING, 0, 0).n, 1);
    stk_exec_close(f->exec);
    f->exec = NULL;
    OK(open_exec(f, NULL, true));
    OK(stk_exec_loop(f->exec, &status, &f->err));
    assert_int_equal(status, STK_RUN_SUCCEEDED);
    started(f, "bad1 bad2");
    assert_int_equal(f->memory[1], 400 << 20);
}

static void test_too_much_memory(void **state)
{
    fixture *f = *state;
    f->n_failures = 9;
    f->failure = STK_FAIL_HOST_OOM;
    assert_int_equal(run(f, "{\"bad\":{\"run\":\"true\",\"resources\":{\"memory\":\"400MiB\"},"
                            "\"retry\":{\"max_retries\":5},"
                            "\"on_oom\":{\"memory\":2,\"max_retries\":2}}}"),
                     STK_RUN_FAILED);
    started(f, "bad1 bad2");
    assert_non_null(strstr(stk_exec_error(f->exec),
                           "on_oom would ask for 1.68 GB of memory next, but this test has less"));
}

static int break_first(fixture *f)
{
    have_devices(f, 2, ",\"events\":[{\"xid\":79}]");
    return 1;
}

/* After an Xid that asks for a reset, the attempt costs no retry, the device leaves the pool, and a
 * step that needs that device fails. */
static void test_broken_device(void **state)
{
    fixture *f = *state;
    have_devices(f, 2, ",\"model\":\"Tesla T4\"");
    f->n_failures = 1;
    f->on_tick = break_first;
    assert_int_equal(
        run(f, "{" GPU("bad", "") ",\"b\":{\"run\":\"true\",\"after\":[\"bad\"],"
                                  "\"resources\":{\"gpu_count\":1,\"gpu_class\":\"T4\"}}}"),
        STK_RUN_FAILED);
    started(f, "bad1 bad2");
    assert_int_equal(given(f, 0), 1);
    assert_int_equal(given(f, 1), 2);
    assert_non_null(strstr(stk_exec_error(f->exec), "out of the pool"));
    assert_int_equal(committed(f, STK_EV_TASK_FAILED, 1, 0).n, 1);
}

/* Starts a process that, with `is_part`, has the first device's lock file open, as a task of
 * another run does. */
static pid_t some_process(const fixture *f, bool is_part)
{
    char path[96];
    int pipes[2];
    char said;
    (void)snprintf(path, sizeof path, "%s/leases", f->dir);
    (void)mkdir(path, 0777);
    (void)strcat(path, "/nvidia-GPU-0");
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)setsid();
        if (is_part && open(path, O_RDWR | O_CREAT, 0666) < 0) {
            _exit(1);
        }
        (void)!write(pipes[1], "x", 1);
        for (;;) {
            (void)pause();
        }
    }
    (void)close(pipes[1]);
    assert_int_equal(read(pipes[0], &said, 1), 1);
    (void)close(pipes[0]);
    return pid;
}

static pid_t named; /* the process in the driver's report */

static int name_one(fixture *f)
{
    char event[80];
    (void)snprintf(event, sizeof event, ",\"events\":[{\"xid\":31,\"pid\":%d}]", (int)named);
    have_devices(f, 1, event);
    return 1;
}

/* An Xid names one process on a shared device. If that process is another run's, our step's failure
 * counts; if the process is unknown, it may be our step's, so the attempt costs no retry. */
static void xid_of(fixture *f, bool is_part, stk_run_status status, const char *starts)
{
    have_devices(f, 1, "");
    f->n_failures = 1;
    f->on_tick = name_one;
    named = some_process(f, is_part);
    assert_int_equal(run(f, "{" GPU("bad", HALF) "}"), status);
    (void)kill(named, SIGKILL);
    assert_int_equal(waitpid(named, NULL, 0), named);
    started(f, starts);
}

static void test_xid_of_anybody(void **state)
{
    xid_of(*state, false, STK_RUN_SUCCEEDED, "bad1 bad2");
}

static void test_xid_of_another_run(void **state)
{
    xid_of(*state, true, STK_RUN_FAILED, "bad1");
}

/* on_oom multiplies a share of a device; a step that had whole devices can't get more memory. */
static void test_oom_of_a_whole_device(void **state)
{
    fixture *f = *state;
    have_devices(f, 1, "");
    f->n_failures = 9;
    f->failure = STK_FAIL_DEVICE_OOM;
    assert_int_equal(run(f, "{\"bad\":{\"run\":\"true\",\"resources\":{\"gpu_count\":1},"
                            "\"on_oom\":{\"gpu_memory\":2}}}"),
                     STK_RUN_FAILED);
    started(f, "bad1");
    assert_non_null(strstr(stk_exec_error(f->exec),
                           "; it had whole devices, so on_oom can't give it more memory"));
}

/* What a reader sees during the run: the scheduler's state, from the record alone. */
static int look_on(fixture *f)
{
    stk_sched *sched = NULL;
    stk_sched_counts counts;
    if (f->n_starts < 2) {
        return 0;
    }
    OK(stk_exec_refold(f->store, f->run, f->plan, &f->capacity, f->accel, &sched, &f->err));
    stk_sched_count(sched, &counts);
    assert_int_equal(counts.running, 2);
    assert_int_equal(counts.devices_used, 2);
    assert_int_equal(stk_sched_held(sched, 0), 4096);
    assert_int_equal(stk_sched_held(sched, 1), STK_SCHED_ALL);
    stk_sched_why why = stk_sched_explain(sched, 2);
    assert_int_equal(why.what, STK_WHY_DEVICES);
    assert_int_equal(why.held.words[0], 3);
    assert_int_equal(why.other, 0);
    stk_sched_free(sched);
    f->looked = true;
    return 1;
}

static void test_refold(void **state)
{
    fixture *f = *state;
    have_devices(f, 2, "");
    f->on_tick = look_on;
    assert_int_equal(run(f, "{" GPU("a", HALF) "," GPU("b", "") "," GPU("c", "") "}"),
                     STK_RUN_SUCCEEDED);
    assert_true(f->looked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_devices),
                                       TEST(test_shares),
                                       TEST(test_others),
                                       TEST(test_claims),
                                       TEST(test_more_memory),
                                       TEST(test_more_memory_after_a_crash),
                                       TEST(test_too_much_memory),
                                       TEST(test_broken_device),
                                       TEST(test_xid_of_anybody),
                                       TEST(test_xid_of_another_run),
                                       TEST(test_oom_of_a_whole_device),
                                       TEST(test_refold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
