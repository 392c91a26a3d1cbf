/* Shared by exec's tests: an engine on the fake backend in simulated time, with a fresh store in a
 * separate folder for each test, and queries for what the engine has committed. */
#ifndef STK_EXEC_TESTING_H
#define STK_EXEC_TESTING_H

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
#include "host/fit/fit.h"
#include "run/exec/exec.h"
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
    int64_t set_back_ms; /* how far the wall clock goes back once a task starts */
    stk_mode mode;
    int hangup_fd;
    bool no_cache;
    /* the starts so far: "a1" is attempt 1 of step a, "a1.on_end" its hook on_end */
    const char *starts[MAX_STARTS];
    uint32_t n_starts;
    int n_failures;               /* how many attempts of step "bad" fail, from the first on */
    int64_t took_ms;              /* how long a task runs */
    int start_error;              /* of step "bad" */
    int close_on_start;           /* descriptor that the first start closes, or -1 */
    stk_accel *accel;             /* or NULL */
    int64_t memory[MAX_STARTS];   /* each start's limit */
    stk_devset given[MAX_STARTS]; /* each start's devices */
    stk_failure failure;          /* kind of the failures; NONE means EXIT */
    uint32_t n_saves;             /* how many attempts leave a checkpoint, from the first on */
    uint32_t seen[MAX_STARTS];    /* how many checkpoints each start found */
    void (*does)(struct fixture *f, const stk_job *job); /* what a task does; or NULL */
    int (*on_tick)(struct fixture *f);                   /* called until it returns 1; or NULL */
    bool looked;                                         /* a callback has made its checks */
    /* the place of each step, or NULL if all run here. Steps that run elsewhere go to `open_away`'s
     * backend, behind a mux. */
    const stk_capacity_away *away;
    stk_capacity_place places[2];
    stk_exec_elsewhere elsewhere;
    stk_backend *(*open_away)(struct fixture *f);
    stk_policy policy;
    int signal_fd;
    bool finished_early; /* a task began before its start was in the store */
} fixture;

#define OK(call)                                                                                   \
    do {                                                                                           \
        int ok_rc = (call);                                                                        \
        if (ok_rc != 0) {                                                                          \
            fail_msg("%s: %d: %s", #call, ok_rc, f->err.text);                                     \
        }                                                                                          \
    } while (0)

static inline int64_t now_ms(void *arg)
{
    return ((fixture *)arg)->now_ms;
}

static inline int64_t wall_ms(void *arg)
{
    fixture *f = arg;
    return f->now_ms - (f->n_starts > 0 ? f->set_back_ms : 0);
}

/* Simulated time passes whenever the engine would sleep. */
static inline int64_t tick(void *arg, int64_t wall)
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

static inline int count_row(void *arg, const stk_event_row *row)
{
    counting *c = arg;
    if (row->kind == c->kind && (c->task == UINT32_MAX || row->task == c->task) &&
        (c->attempt == 0 || row->attempt == c->attempt)) {
        c->n++;
        c->last_ms = row->time_ms;
    }
    return 0;
}

/* Counts events through another handle than the engine's, which sees only what is committed. */
static inline counting committed(fixture *f, stk_event_kind kind, uint32_t task, uint32_t attempt)
{
    counting c = {.kind = kind, .task = task, .attempt = attempt};
    stk_store *other = NULL;
    char path[64];
    (void)snprintf(path, sizeof path, "%s/.stoker", f->dir);
    OK(stk_store_open(path, STK_STORE_READONLY, &other, &f->err));
    if (stk_store_has_run(other, f->run)) {
        OK(stk_store_events(other, f->run, 0, count_row, &c, &f->err));
    }
    stk_store_close(other);
    return c;
}

/* A task's checkpoints: it sees those of earlier attempts, leaves one, and half of another. */
static inline void checkpoint(fixture *f, const stk_job *job)
{
    stk_checkpoints found;
    if (job->checkpoints == NULL) {
        return; /* hooks have none */
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

static inline stk_fake_fate fate(void *arg, const stk_job *job)
{
    fixture *f = arg;
    assert_true(f->n_starts < MAX_STARTS);
    const char *dot = job->hook != NULL ? "." : "";
    f->memory[f->n_starts] = job->memory_bytes;
    checkpoint(f, job);
    if (f->does != NULL) {
        f->does(f, job);
    }
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

static inline int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    (void)strcpy(f->dir, "/tmp/stk_exec_XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->arena = stk_arena_new(0);
    f->lock_fd = f->hangup_fd = f->close_on_start = f->signal_fd = -1;
    f->policy = STK_POLICY_FIT;
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

static inline void arm(const char *failpoints)
{
    (void)setenv("STOKER_FAILPOINTS", failpoints, 1);
    stk_failpoint_reload();
}

static inline int teardown(void **state)
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

/* Opens the engine on a pipeline of these steps (JSON) or, with NULL, on the same run again. */
static inline int open_exec(fixture *f, const char *steps, bool resumed)
{
    if (f->accel != NULL) {
        OK(stk_fit_capacity(f->accel, "this machine", f->arena, &f->capacity, &f->err));
    }
    f->capacity.where = "this test";
    f->capacity.backend = "fake";
    f->capacity.cpu_milli = 2000;
    f->capacity.memory_bytes = 1 << 30;
    f->capacity.places = f->places;
    f->capacity.n_places = f->away != NULL ? 2 : 0;
    f->capacity.away = f->away;
    if (steps != NULL) {
        char *text =
            stk_arena_printf(f->arena, "{\"stoker\":1,\"name\":\"p\",\"steps\":%s}", steps);
        OK(stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "p.json"}, &f->spec,
                          &f->err));
        OK(stk_plan_new(f->spec, &f->capacity, NULL, f->policy, &f->plan, &f->err));
        OK(stk_store_new_run(f->store, NULL, "p", text, strlen(text), f->now_ms, f->run,
                             &f->lock_fd, &f->err));
    }
    stk_backend *backend = NULL;
    OK(stk_backend_fake_open(fate, f, now_ms, &backend, &f->err));
    if (f->away != NULL) {
        stk_backend *both[2] = {backend, f->open_away(f)};
        OK(stk_backend_mux_open(both, 2, &backend, &f->err));
    }
    stk_exec_config config = {.store = f->store,
                              .code_fd = -1,
                              .backend = backend,
                              .clock = &f->clock,
                              .plan = f->plan,
                              .accel = f->accel,
                              .capacity = &f->capacity,
                              .run = f->run,
                              .resumed = resumed,
                              .use_cache = !f->no_cache,
                              .mode = f->mode,
                              .elsewhere = f->away != NULL ? &f->elsewhere : NULL,
                              .policy = f->policy,
                              .signal_fd = f->signal_fd,
                              .hangup_fd = f->hangup_fd,
                              .on_tick = tick,
                              .arg = f};
    return stk_exec_open(&config, &f->exec, &f->err);
}

/* Opens the engine again on a run that broke: resumes the run, or begins it if nothing of it is on
 * record. */
static inline int go_on(fixture *f)
{
    return open_exec(f, NULL, stk_store_has_run(f->store, f->run));
}

static inline stk_run_status run(fixture *f, const char *steps)
{
    stk_run_status status = STK_RUN_FAILED;
    OK(open_exec(f, steps, false));
    OK(stk_exec_loop(f->exec, &status, &f->err));
    assert_false(f->finished_early);
    assert_int_equal(committed(f, STK_EV_RUN_ENDED, UINT32_MAX, 0).n, 1);
    return status;
}

static inline void started(fixture *f, const char *expected)
{
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    for (uint32_t i = 0; i < f->n_starts; i++) {
        stk_buf_printf(&text, "%s%s", i > 0 ? " " : "", f->starts[i]);
    }
    assert_string_equal(text.len > 0 ? text.data : "", expected);
}

#define A "\"a\":{\"run\":\"true\"}"
#define AFTER(step, need) "\"" step "\":{\"run\":\"true\",\"after\":[\"" need "\"]}"

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
