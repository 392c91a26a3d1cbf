/* exec with the fake backend and simulated time: what is done, in which order, and what is durable
 * when. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/failpoint.h"
#include "base/testing.h"
#include "exec/exec.h"
#include "sys/file.h"

enum { MAX_STARTS = 64 };

typedef struct fixture {
    char dir[40];
    stk_store *store;
    stk_spec *spec;
    stk_plan *plan;
    stk_exec *exec;
    stk_clock clock;
    stk_arena *arena;
    stk_err err;
    stk_capacity capacity;
    char run[40];
    int lock_fd;
    int64_t now_ms;
    int64_t set_back_ms; /* of the wall clock, once a task has started */
    stk_mode mode;
    int hangup_fd;
    bool no_cache;
    /* what was started: "a1" is attempt 1 of step a, "a1.on_end" a hook of it */
    const char *starts[MAX_STARTS];
    uint32_t n_starts;
    int n_failures;                    /* the first attempts of step "bad" that fail */
    int64_t took_ms;                   /* how long a task runs */
    int start_error;                   /* of step "bad" */
    int close_on_start;                /* descriptor to be closed by the first start, or -1 */
    stk_accel *accel;                  /* or NULL */
    int64_t memory[MAX_STARTS];        /* of each start: its limit */
    stk_devset given[MAX_STARTS];      /* and its devices */
    stk_failure failure;               /* of the failures; NONE: EXIT */
    uint32_t n_saves;                  /* the first attempts that leave a checkpoint */
    uint32_t seen[MAX_STARTS];         /* of each start: the checkpoints that it found */
    int (*on_tick)(struct fixture *f); /* once; or NULL */
    bool looked;                       /* on_tick did */
    bool finished_early;               /* something was started whose start was not in the store */
} fixture;

#define OK(call)                                                                                   \
    do {                                                                                           \
        int ok_rc = (call);                                                                        \
        if (ok_rc != 0) {                                                                          \
            fail_msg("%s: %d: %s", #call, ok_rc, f->err.text);                                     \
        }                                                                                          \
    } while (0)

static int64_t now_ms(void *arg)
{
    return ((fixture *)arg)->now_ms;
}

static int64_t wall_ms(void *arg)
{
    fixture *f = arg;
    return f->now_ms - (f->n_starts > 0 ? f->set_back_ms : 0);
}

/* Simulated time passes whenever the engine would sleep. */
static int64_t tick(void *arg, int64_t wall)
{
    fixture *f = arg;
    (void)wall;
    f->now_ms++;
    if (f->on_tick != NULL && f->on_tick(f) != 0) {
        f->on_tick = NULL;
    }
    return 0;
}

typedef struct counting {
    stk_event_kind kind;
    uint32_t task; /* UINT32_MAX: any */
    uint32_t attempt;
    uint32_t n;
    int64_t last_ms;
} counting;

static int count_row(void *arg, const stk_event_row *row)
{
    counting *c = arg;
    if (row->kind == c->kind && (c->task == UINT32_MAX || row->task == c->task) &&
        (c->attempt == 0 || row->attempt == c->attempt)) {
        c->n++;
        c->last_ms = row->time_ms;
    }
    return 0;
}

/* By another handle than the engine's: only what is committed. */
static counting committed(fixture *f, stk_event_kind kind, uint32_t task, uint32_t attempt)
{
    counting c = {.kind = kind, .task = task, .attempt = attempt};
    stk_store *other = NULL;
    char path[64];
    (void)snprintf(path, sizeof path, "%s/.stoker", f->dir);
    OK(stk_store_open(path, STK_STORE_READONLY, &other, &f->err));
    OK(stk_store_events(other, f->run, 0, count_row, &c, &f->err));
    stk_store_close(other);
    return c;
}

/* What a task does: sees those of earlier attempts, leaves one, and half of another. */
static void checkpoint(fixture *f, const stk_job *job)
{
    stk_checkpoints found;
    if (job->checkpoints == NULL) {
        return; /* a hook */
    }
    stk_store_checkpoints_look(job->checkpoints, &found);
    f->seen[f->n_starts] = found.n;
    assert_false(stk_file_exists(stk_arena_printf(f->arena, "%s/.half/of it", job->checkpoints)));
    if (f->n_saves > 0) {
        f->n_saves--;
        OK(stk_file_mkdirs(stk_arena_printf(f->arena, "%s/.half/of it", job->checkpoints), 0755,
                           &f->err));
        OK(stk_file_write(stk_arena_printf(f->arena, "%s/%u", job->checkpoints, job->attempt), "x",
                          1, 0644, &f->err));
    }
}

static stk_fake_fate fate(void *arg, const stk_job *job)
{
    fixture *f = arg;
    assert_true(f->n_starts < MAX_STARTS);
    const char *dot = job->hook != NULL ? "." : "";
    f->memory[f->n_starts] = job->memory_bytes;
    checkpoint(f, job);
    for (uint32_t i = 0; i < job->lease.n; i++) {
        stk_devset_add(&f->given[f->n_starts], job->lease.devices[i]);
    }
    f->starts[f->n_starts++] = stk_arena_printf(f->arena, "%s%u%s%s", job->step, job->attempt, dot,
                                                job->hook != NULL ? job->hook : "");
    stk_fake_fate out = {.after_ms = f->took_ms,
                         .outcome = {.ok = true, .cpu_us = -1, .peak_memory_bytes = -1}};
    uint32_t task = job->id & 0x7fffffffu;
    if (committed(f, STK_EV_TASK_STARTED, task, job->attempt).n != 1) {
        f->finished_early = true;
    }
    if (f->close_on_start >= 0) {
        stk_file_close(&f->close_on_start);
    }
    if (strcmp(job->step, "bad") == 0 && job->hook == NULL) {
        out.start_error = f->start_error;
        if (f->n_failures-- > 0) {
            out.outcome.ok = false;
            out.outcome.failure = f->failure == STK_FAIL_NONE ? STK_FAIL_EXIT : f->failure;
            out.outcome.exit_status = 3;
            (void)strcpy(out.outcome.text, "exit status 3");
        }
    }
    return out;
}

static int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    (void)strcpy(f->dir, "/tmp/stk_exec_XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->arena = stk_arena_new(0);
    f->lock_fd = f->hangup_fd = f->close_on_start = -1;
    f->now_ms = 1000000;
    f->took_ms = 5;
    f->clock = (stk_clock){.wall_ms = wall_ms, .mono_ms = now_ms, .self = f};
    (void)setenv("STOKER_SYNC", "0", 1);
    char path[64];
    (void)snprintf(path, sizeof path, "%s/.stoker", f->dir);
    OK(stk_store_open(path, STK_STORE_CREATE, &f->store, &f->err));
    *state = f;
    return 0;
}

static void arm(const char *failpoints)
{
    (void)setenv("STOKER_FAILPOINTS", failpoints, 1);
    stk_failpoint_reload();
}

static int teardown(void **state)
{
    fixture *f = *state;
    arm("");
    stk_exec_close(f->exec);
    stk_plan_free(f->plan);
    stk_spec_free(f->spec);
    stk_file_close(&f->lock_fd);
    stk_store_close(f->store);
    stk_arena_free(f->arena);
    stk_accel_close(f->accel);
    (void)unsetenv("STOKER_LEASE_DIR");
    int rc = stk_file_remove_tree(f->dir, &f->err);
    free(f);
    return rc;
}

/* Opens the engine on a pipeline of these steps (JSON), or on the same run again. */
static int open_exec(fixture *f, const char *steps, bool resumed)
{
    if (f->accel != NULL) {
        OK(stk_exec_capacity(f->accel, f->arena, &f->capacity, &f->err));
    }
    f->capacity.where = "this test";
    f->capacity.backend = "fake";
    f->capacity.cpu_milli = 2000;
    f->capacity.memory_bytes = 1 << 30;
    if (!resumed) {
        char *text =
            stk_arena_printf(f->arena, "{\"stoker\":1,\"name\":\"p\",\"steps\":%s}", steps);
        OK(stk_spec_parse(text, strlen(text), "p.json", &f->spec, &f->err));
        OK(stk_plan_new(f->spec, &f->capacity, NULL, STK_POLICY_FIT, &f->plan, &f->err));
        OK(stk_store_new_run(f->store, NULL, "p", text, strlen(text), f->now_ms, f->run,
                             &f->lock_fd, &f->err));
    }
    stk_backend *backend = NULL;
    OK(stk_backend_fake_open(fate, f, now_ms, &backend, &f->err));
    stk_exec_config config = {.store = f->store,
                              .backend = backend,
                              .clock = &f->clock,
                              .plan = f->plan,
                              .accel = f->accel,
                              .capacity = &f->capacity,
                              .run = f->run,
                              .resumed = resumed,
                              .use_cache = !f->no_cache,
                              .mode = f->mode,
                              .signal_fd = -1,
                              .hangup_fd = f->hangup_fd,
                              .on_tick = tick,
                              .arg = f};
    return stk_exec_open(&config, &f->exec, &f->err);
}

static stk_run_status run(fixture *f, const char *steps)
{
    stk_run_status status = STK_RUN_FAILED;
    OK(open_exec(f, steps, false));
    OK(stk_exec_loop(f->exec, &status, &f->err));
    assert_false(f->finished_early);
    assert_int_equal(committed(f, STK_EV_RUN_ENDED, UINT32_MAX, 0).n, 1);
    return status;
}

static void started(fixture *f, const char *expected)
{
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    for (uint32_t i = 0; i < f->n_starts; i++) {
        stk_buf_printf(&text, "%s%s", i > 0 ? " " : "", f->starts[i]);
    }
    assert_string_equal(text.len > 0 ? text.data : "", expected);
}

#define A "\"a\":{\"run\":\"true\"}"
#define AFTER(step, need) "\"" step "\":{\"run\":\"true\",\"after\":[\"" need "\"]}"

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
    f->start_error = STK_E_SYS; /* fails at once, while the other runs */
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
    f->close_on_start = pipes[0]; /* its front dies while the first step runs */
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

/* Whichever commit finds the disk full: what was started is in the store, the run can be taken up
 * again, and what had succeeded durably is not run twice. */
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
                OK(open_exec(f, NULL, true));
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

/* --- devices --- */

/* Fake ones, 8 GiB each. `more` is put into the first one's object. */
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

/* Others hold the first device: the second one is chosen. Then they hold both. */
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
    assert_int_equal(committed(f, STK_EV_NOTE, UINT32_MAX, 0).n, 1); /* that b waits, for whom */
}

/* What another run sees of this one's claim, and when that changed. */
typedef struct claim_log {
    stk_accel *other;
    bool was;
    uint32_t n;
    int64_t changed_s[16];
} claim_log;

static claim_log claims;

static int watch_claim(fixture *f)
{
    f->now_ms += 999; /* an hour is long */
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

/* Who waits for two devices claims both after 10 s. As long as that keeps one idle it is given up
 * after 10 min for as long, then for twice as long; with its start it is over. */
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

/* The disk is full once the retry is on record: the engine stops there. */
static int stop_when_failed(fixture *f)
{
    if (committed(f, STK_EV_TASK_RETRYING, 0, 0).n == 0) {
        return 0;
    }
    arm("store.commit.before:1+:enospc");
    return 1;
}

/* What an attempt was to get is not forgotten by the engine that takes the run up. */
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
                           "on_oom would give it 1.68 GB of memory next, which this test hasn't"));
}

static int break_first(fixture *f)
{
    have_devices(f, 2, ",\"events\":[{\"xid\":79}]");
    return 1;
}

/* An Xid that asks for a reset: the attempt is free, the device is gone, who needs it fails. */
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

/* A process that has the first device's lock file open, as a task of another run does, or not. */
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

static pid_t named; /* by the driver */

static int name_one(fixture *f)
{
    char event[80];
    (void)snprintf(event, sizeof event, ",\"events\":[{\"xid\":31,\"pid\":%d}]", (int)named);
    have_devices(f, 1, event);
    return 1;
}

/* An Xid of one process on a shared device: another run's is no excuse for our step's failure; one
 * that nobody knows may be ours. */
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

/* on_oom multiplies a share; who had the device whole is told that there is no more. */
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
                           "; its devices were all its own, so on_oom has no more memory to give"));
}

/* What a reader sees while it runs: the scheduler's state, from the record alone. */
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

/* The backend's word is enough: no retries are asked for, none are charged. */
static void test_preempted(void **state)
{
    fixture *f = *state;
    f->failure = STK_FAIL_PREEMPTED;
    f->n_failures = 14; /* four got further, ten are its own */
    f->n_saves = 4;
    assert_int_equal(run(f, "{\"bad\":{\"run\":\"true\"}}"), STK_RUN_SUCCEEDED);
    assert_int_equal(f->n_starts, 15);
    for (uint32_t i = 0; i < f->n_starts; i++) {
        assert_int_equal(f->seen[i], i < 4 ? i : 4);
    }
    assert_int_equal(committed(f, STK_EV_TASK_FAILED, 0, 0).n, 14);
    const char *folder = stk_store_checkpoint_folder(f->store, f->run, "bad", 0, f->arena);
    assert_false(stk_file_exists(folder)); /* it has succeeded */
}

static void test_preempted_for_good(void **state)
{
    fixture *f = *state;
    f->failure = STK_FAIL_PREEMPTED;
    f->n_failures = 99;
    f->n_saves = 1;
    assert_int_equal(run(f, "{\"bad\":{\"run\":\"true\"}}"), STK_RUN_FAILED);
    assert_int_equal(f->n_starts, 12); /* one, ten, and the one that it fails by */
    stk_checkpoints kept;
    stk_store_checkpoints_look(stk_store_checkpoint_folder(f->store, f->run, "bad", 0, f->arena),
                               &kept);
    assert_int_equal(kept.n, 1); /* for who resumes it */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {TEST(test_preempted),
                                       TEST(test_preempted_for_good),
                                       TEST(test_success),
                                       TEST(test_retry),
                                       TEST(test_wall_clock_set_back),
                                       TEST(test_failure),
                                       TEST(test_fail_fast),
                                       TEST(test_cancel),
                                       TEST(test_hooks),
                                       TEST(test_cached),
                                       TEST(test_full_disk),
                                       TEST(test_devices),
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
