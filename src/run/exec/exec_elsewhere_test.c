/* Steps on other machines: what the engine asks their backend for, that they take no resources of
 * this machine, and what outlives an engine. Like a cluster, the cloud of these tests goes on when
 * the engine is gone. */
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <sys/signalfd.h>

#include "base/json.h"
#include "run/exec/exec_testing.h"

enum { MAX_JOBS = 32 };

/* One job of the cloud; it stays when no engine watches it. */
typedef struct cloud_job {
    uint32_t id, attempt, nodes;
    int64_t end_ms;
    stk_outcome outcome;
    bool is_watched, is_over;
    char step[32];
} cloud_job;

static struct {
    cloud_job jobs[MAX_JOBS];
    uint32_t n_jobs, n_running, most_running, n_attached, n_stopped, n_submitted;
    int64_t took_ms;
    bool always_fails;        /* all attempts end with `failure`, not only the first */
    bool is_waiting;          /* no job is submitted yet */
    bool forgets;             /* doesn't know the jobs that the engine attaches to */
    stk_failure failure;      /* how first attempts fail; NONE: they succeed */
    int64_t memory[MAX_JOBS]; /* by submission: the memory asked for */
    void (*does)(fixture *f, const stk_job *job);
} cloud;

typedef struct watcher {
    stk_backend base;
    fixture *f;
    int fd;
} watcher;

/* With `attempt` 0, finds the job that runs. */
static cloud_job *find_job(uint32_t id, uint32_t attempt)
{
    for (uint32_t i = 0; i < cloud.n_jobs; i++) {
        cloud_job *job = &cloud.jobs[i];
        if (job->id == id && (attempt == 0 ? !job->is_over : job->attempt == attempt)) {
            return job;
        }
    }
    return NULL;
}

static int cloud_start(stk_backend *base, stk_job *job, stk_err *err)
{
    watcher *w = (watcher *)base;
    (void)err;
    assert_non_null(job->elsewhere);
    assert_int_equal(job->lease.n, 0);
    cloud_job *known = find_job(job->id, job->attempt);
    cloud.n_attached += job->elsewhere->attach;
    if (known != NULL && !cloud.forgets) { /* its end can be reported twice */
        cloud.n_running += known->is_over;
        known->is_watched = true;
        known->is_over = false;
        return 0;
    }
    assert_true(cloud.n_jobs < MAX_JOBS);
    cloud_job *made = &cloud.jobs[cloud.n_jobs++];
    *made = (cloud_job){.id = job->id,
                        .attempt = job->attempt,
                        .nodes = job->nodes,
                        .end_ms = w->f->now_ms + cloud.took_ms,
                        .is_watched = true,
                        .outcome = {.ok = true, .cpu_us = -1, .peak_memory_bytes = -1}};
    (void)snprintf(made->step, sizeof made->step, "%s", job->step);
    if (job->elsewhere->attach) { /* the job is gone */
        made->outcome = (stk_outcome){.failure = STK_FAIL_LOST, .exit_status = -1};
        (void)strcpy(made->outcome.text, "its pod disappeared");
        made->end_ms = w->f->now_ms;
        return 0;
    }
    cloud.memory[cloud.n_submitted++] = job->elsewhere->resources->memory_bytes;
    if (cloud.failure != STK_FAIL_NONE && (job->attempt == 1 || cloud.always_fails)) {
        made->outcome.ok = false;
        made->outcome.failure = cloud.failure;
        (void)strcpy(made->outcome.text, "as it was told");
    }
    if (cloud.does != NULL) {
        cloud.does(w->f, job);
    }
    cloud.n_running++;
    cloud.most_running = MAX(cloud.n_running, cloud.most_running);
    return 0;
}

static void cloud_stop(stk_backend *base, uint32_t id, int64_t grace_ms, stk_failure why)
{
    cloud_job *job = find_job(id, 0);
    (void)grace_ms;
    if (job != NULL && job->outcome.failure != why) {
        cloud.n_stopped++;
        job->end_ms = ((watcher *)base)->f->now_ms;
        job->outcome = (stk_outcome){.failure = why, .exit_status = -1};
        (void)strcpy(job->outcome.text, "stopped");
    }
}

static bool cloud_leave(stk_backend *base, uint32_t id)
{
    (void)base;
    return !cloud.is_waiting && find_job(id, 0) != NULL;
}

static bool cloud_next(stk_backend *base, stk_report *ret_report)
{
    watcher *w = (watcher *)base;
    for (uint32_t i = 0; i < cloud.n_jobs; i++) {
        cloud_job *job = &cloud.jobs[i];
        if (job->is_watched && !job->is_over && job->end_ms <= w->f->now_ms) {
            job->is_over = true;
            cloud.n_running--;
            *ret_report = (stk_report){.kind = STK_REPORT_ENDED,
                                       .id = job->id,
                                       .attempt = job->attempt,
                                       .pid = -1,
                                       .outcome = job->outcome};
            return true;
        }
    }
    return false;
}

static int cloud_fd(const stk_backend *base)
{
    return ((const watcher *)base)->fd;
}

static int64_t cloud_wait_ms(const stk_backend *base)
{
    (void)base;
    return 0;
}

/* Stops watching the jobs, which go on. */
static void cloud_close(stk_backend *base)
{
    for (uint32_t i = 0; i < cloud.n_jobs; i++) {
        cloud.jobs[i].is_watched = false;
    }
    (void)close(((watcher *)base)->fd);
    free(base);
}

static const stk_backend_ops cloud_ops = {.name = "cloud",
                                          .start = cloud_start,
                                          .stop = cloud_stop,
                                          .leave = cloud_leave,
                                          .next = cloud_next,
                                          .fd = cloud_fd,
                                          .wait_ms = cloud_wait_ms,
                                          .close = cloud_close};

static stk_backend *open_cloud(fixture *f)
{
    watcher *w = calloc(1, sizeof *w);
    w->base.ops = &cloud_ops;
    w->f = f;
    w->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return &w->base;
}

/* Where the steps of the document run: {1} is in the cloud, {0} on this machine. */
static const stk_capacity_away all_away[8] = {{1, NULL}, {1, NULL}, {1, NULL}, {1, NULL},
                                              {1, NULL}, {1, NULL}, {1, NULL}, {1, NULL}};
static const stk_capacity_away first_away[8] = {{1, NULL}};
static const char *const images[8] = {"img:1", "img:1", "img:1", "img:1",
                                      "img:1", "img:1", "img:1", "img:1"};

static void elsewhere(fixture *f, const stk_capacity_away *away)
{
    static const stk_place places[8]; /* no settings */
    memset(&cloud, 0, sizeof cloud);
    cloud.took_ms = 5;
    f->away = away;
    f->open_away = open_cloud;
    f->places[0] = (stk_capacity_place){"kubernetes", "prod", 0};
    f->elsewhere = (stk_exec_elsewhere){
        .places = places, .images = images, .carry_at = "/stoker", .root = "/proj"};
}

/* The data of the last committed event of this kind and task. */
typedef struct finding {
    stk_event_kind kind;
    uint32_t task;
    stk_arena *arena;
    const stk_json *data;
} finding;

static int find_row(void *arg, const stk_event_row *row)
{
    finding *f = arg;
    if (row->kind == f->kind && row->task == f->task) {
        f->data = stk_json_read(f->arena, row->data);
    }
    return 0;
}

static const stk_json *data_of(fixture *f, stk_event_kind kind, uint32_t task)
{
    finding found = {.kind = kind, .task = task, .arena = f->arena};
    OK(stk_store_events(f->store, f->run, 0, find_row, &found, &f->err));
    return found.data;
}

/* --- what the engine asks for --- */

static const char *env_of(const stk_job *job, const char *name)
{
    size_t n = strlen(name);
    for (uint32_t i = 0; job->env[i] != NULL; i++) {
        if (strncmp(job->env[i], name, n) == 0 && job->env[i][n] == '=') {
            return job->env[i] + n + 1;
        }
    }
    return NULL;
}

static void check_job(fixture *f, const stk_job *job)
{
    const stk_job_elsewhere *e = job->elsewhere;
    const char *artifacts = stk_arena_printf(f->arena, "%s/.stoker/artifacts/", f->dir);
    const char *table = env_of(job, "STOKER_INPUT_table");
    f->looked = true;
    assert_int_equal(e->backend, 1);
    assert_string_equal(e->image, "img:1");
    assert_string_equal(e->options, "{}");
    assert_int_equal(e->resources->base.gpu_count, 8);
    assert_int_equal(e->resources->cpu_milli, 96000);
    assert_string_equal(e->secrets[0], "token");
    assert_null(e->secrets[1]);
    assert_false(e->attach);
    assert_string_equal(job->argv[0], "/stoker/bin/stoker");
    assert_string_equal(job->argv[1], "launch");
    assert_string_equal(job->argv[2], "--gang");
    assert_string_equal(job->argv[5], "./train");
    assert_null(job->argv[6]);
    assert_int_equal(job->nodes, 2);
    assert_int_equal(job->threads, 96);
    assert_string_equal(env_of(job, "token"), "s3cret");
    assert_string_equal(env_of(job, "KEY"), "v");
    assert_string_equal(env_of(job, "STOKER_BIN"), "/stoker/bin/stoker");
    assert_non_null(table);
    assert_int_equal(strncmp(table, artifacts, strlen(artifacts)), 0);
    assert_true(stk_file_exists(table)); /* the backend pushes it from here */
    STK_TEXT_AUTO text = NULL;
    OK(stk_file_read(stk_arena_printf(f->arena, "%s/task.json", job->dir), 1 << 20, &text, NULL,
                     &f->err));
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, text);
    assert_string_equal(
        stk_json_get_text(stk_json_get(stk_json_get(doc, "inputs"), "table"), "path"), table);
    const stk_json *granted = stk_json_get(doc, "granted");
    assert_string_equal(stk_json_get_text(granted, "backend"), "kubernetes");
    assert_string_equal(stk_json_get_text(granted, "stack"), "prod");
    assert_int_equal(stk_json_get_whole(granted, "nodes", 1), 2);
    assert_int_equal(stk_json_n_items(stk_json_get(granted, "devices")), 0);
    assert_int_equal(stk_json_get_whole(stk_json_get(doc, "gang"), "ranks", 0), 8);
}

/* The step asks for far more than this machine has, under policy strict. */
static void test_job(void **state)
{
    fixture *f = *state;
    elsewhere(f, first_away);
    cloud.does = check_job;
    f->policy = STK_POLICY_STRICT;
    OK(stk_file_write(stk_arena_printf(f->arena, "%s/t.csv", f->dir), "1,2", 3, 0644, &f->err));
    (void)setenv("STOKER_SECRET_token", "s3cret", 1);
    const char *steps = stk_arena_printf(
        f->arena,
        "{\"train\":{\"run\":[\"./train\"],\"inputs\":{\"table\":{\"file\":\"%s/t.csv\"}},"
        "\"environment\":{\"KEY\":\"v\"},\"secrets\":[\"token\"],\"gang\":{\"ranks\":\"gpus\","
        "\"nodes\":2},\"resources\":{\"cpu_count\":96,\"memory\":\"2TB\",\"gpu_count\":8}},"
        "\"here\":{\"run\":\"true\",\"after\":[\"train\"]}}",
        f->dir);
    assert_int_equal(run(f, steps), STK_RUN_SUCCEEDED);
    assert_true(f->looked);
    assert_int_equal(cloud.n_submitted, 1);
    started(f, "here1");
    (void)unsetenv("STOKER_SECRET_token");
}

static void check_python(fixture *f, const stk_job *job)
{
    f->looked = true;
    assert_null(job->python);
    assert_string_equal(job->argv[0], "python3");
    assert_string_equal(job->argv[1], "-m");
    assert_string_equal(job->argv[2], "stoker._worker");
    assert_string_equal(job->argv[3], job->dir);
    assert_null(job->argv[4]);
    assert_int_equal(strncmp(env_of(job, "PYTHONPATH"), "/stoker/python:", 15), 0);
    OK(stk_file_write(stk_arena_printf(f->arena, "%s/result.json", job->dir),
                      "{\"stoker\":1,\"status\":\"ok\"}", 26, 0644, &f->err));
}

static void test_python(void **state)
{
    fixture *f = *state;
    elsewhere(f, first_away);
    cloud.does = check_python;
    assert_int_equal(run(f, "{\"a\":{\"python\":\"m:f\",\"hooks\":{\"on_end\":{\"run\":\"e\"}}}}"),
                     STK_RUN_SUCCEEDED);
    assert_true(f->looked);
    started(f, "a1.on_end"); /* the hook runs on this machine */
}

static void test_max_jobs(void **state)
{
    fixture *f = *state;
    elsewhere(f, all_away);
    f->places[0].max_jobs = 2;
    assert_int_equal(run(f, "{\"a\":{\"run\":\"x\"},\"b\":{\"run\":\"x\"},\"c\":{\"run\":\"x\"},"
                            "\"d\":{\"run\":\"x\"},\"e\":{\"run\":\"x\"}}"),
                     STK_RUN_SUCCEEDED);
    assert_int_equal(cloud.n_submitted, 5);
    assert_int_equal(cloud.most_running, 2);
}

static void test_more_memory(void **state)
{
    fixture *f = *state;
    elsewhere(f, first_away);
    cloud.failure = STK_FAIL_HOST_OOM;
    assert_int_equal(run(f, "{\"a\":{\"run\":\"x\",\"on_oom\":{\"memory\":2},"
                            "\"resources\":{\"memory\":\"40GB\"}}}"),
                     STK_RUN_SUCCEEDED);
    assert_int_equal(cloud.memory[0], 40000000000);
    assert_int_equal(cloud.memory[1], 80000000000);
}

static void check_pool(fixture *f, const stk_job *job)
{
    const char *pool = job->attempt == 1 ? "\"pool\":\"small\"" : "\"pool\":\"large\"";
    assert_non_null(strstr(job->elsewhere->options, pool));
    cloud.failure = STK_FAIL_HOST_OOM;
    (void)f;
}

/* A retry that needs more memory goes to a larger pool, with that pool's options. When even the
 * largest pool has too little, the step fails with an error that says so. */
static void test_more_than_a_pool(void **state)
{
    fixture *f = *state;
    const stk_pool pools[] = {
        {"small", -1, {-1, 64000000000, {-1, -1, NULL, NULL}, NULL, 0}, 1, "{\"pool\":\"small\"}"},
        {"large",
         -1,
         {-1, 100000000000, {-1, -1, NULL, NULL}, NULL, 0},
         2,
         "{\"pool\":\"large\"}"}};
    const stk_stack stack = {.name = "prod",
                             .kind = STK_PLACE_KUBERNETES,
                             .default_image = "img:1",
                             .store = "/share",
                             .pools = pools,
                             .n_pools = 2,
                             .is_chosen = true};
    const char *steps = "{\"a\":{\"run\":\"x\",\"on_oom\":{\"memory\":2,\"max_retries\":3},"
                        "\"resources\":{\"memory\":\"40GB\"}}}";
    stk_place place;
    stk_spec *spec = NULL;
    char *text = stk_arena_printf(f->arena, "{\"stoker\":1,\"name\":\"p\",\"steps\":%s}", steps);
    OK(stk_spec_parse(text, strlen(text), &(stk_spec_place){.path = "p.json"}, &spec, &f->err));
    OK(stk_stack_place(&stack, "a", stk_spec_step(spec, 0)->settings, f->arena, &place, &f->err));
    elsewhere(f, first_away);
    f->elsewhere.places = &place;
    cloud.does = check_pool;
    cloud.always_fails = true;
    cloud.failure = STK_FAIL_HOST_OOM;
    assert_int_equal(run(f, steps), STK_RUN_FAILED);
    assert_int_equal(cloud.n_submitted, 2);
    assert_int_equal(cloud.memory[1], 80000000000);
    const stk_json *data = data_of(f, STK_EV_TASK_FAILED, 0);
    assert_string_equal(stk_json_get_text(data, "class"), "resources");
    assert_non_null(strstr(stk_json_get_text(data, "text"), "fits on no node of stack 'prod'"));
    assert_non_null(strstr(stk_json_get_text(data, "text"), "160 GB of memory"));
    stk_spec_free(spec);
}

/* --- what comes back --- */

static const char hello_digest[] =
    "a8c0ca0cb4b3c9fb9d1bb5c46a5ca5dc2bb1c8c5f3b9a0f8fb1e0b6a5d4c3b2a"; /* arbitrary */
static const char *left_digest = hello_digest;

static void leave_result(fixture *f, const stk_job *job)
{
    const char *result = stk_arena_printf(
        f->arena,
        "{\"stoker\":1,\"status\":\"ok\",\"outputs\":{\"m\":{\"path\":\"out/m\",\"format\":"
        "\"bytes\",\"digest\":\"%s\",\"size\":77}}}",
        left_digest);
    const char *granted =
        "{\"cpus\":4,\"devices\":[{\"vendor\":\"nvidia\",\"index\":0,\"uuid\":\"GPU-1\"}]}";
    if (strcmp(job->step, "a") == 0) {
        OK(stk_file_write(stk_arena_printf(f->arena, "%s/result.json", job->dir), result,
                          strlen(result), 0644, &f->err));
        OK(stk_file_write(stk_arena_printf(f->arena, "%s/granted.json", job->dir), granted,
                          strlen(granted), 0644, &f->err));
    } else {
        f->looked = strstr(env_of(job, "STOKER_INPUT_m"), hello_digest + 2) != NULL;
    }
}

static int fetch(void *arg, stk_store *store, const char *digest, stk_err *err)
{
    (void)store;
    (void)digest;
    ++*(int *)arg;
    return stk_err_set(err, STK_E_NOT_FOUND, "not there");
}

/* An output in the share goes to a step on another machine without being fetched here. */
static void test_output_stays(void **state)
{
    fixture *f = *state;
    int n_fetched = 0;
    elsewhere(f, all_away);
    cloud.does = leave_result;
    stk_store_set_origin(f->store, fetch, &n_fetched);
    assert_int_equal(run(f, "{\"a\":{\"run\":\"x\",\"outputs\":[\"m\"]},\"b\":{\"run\":\"x\","
                            "\"inputs\":{\"m\":{\"from\":\"a.m\"}}}}"),
                     STK_RUN_SUCCEEDED);
    assert_true(f->looked);
    assert_int_equal(n_fetched, 0);
    const stk_json *data = data_of(f, STK_EV_TASK_SUCCEEDED, 0);
    const stk_json *m = stk_json_get(stk_json_get(data, "outputs"), "m");
    assert_string_equal(stk_json_get_text(m, "digest"), hello_digest);
    assert_int_equal(stk_json_get_whole(m, "size", 0), 77);
    const stk_json *granted = stk_json_get(data, "granted");
    assert_int_equal(stk_json_n_items(stk_json_get(granted, "devices")), 1);
}

/* The engine fetches an output that a step on this machine reads; if it can't, the step fails. */
static void test_output_comes(void **state)
{
    fixture *f = *state;
    int n_fetched = 0;
    elsewhere(f, first_away);
    cloud.does = leave_result;
    stk_store_set_origin(f->store, fetch, &n_fetched);
    assert_int_equal(run(f, "{\"a\":{\"run\":\"x\",\"outputs\":[\"m\"]},\"b\":{\"run\":\"x\","
                            "\"inputs\":{\"m\":{\"from\":\"a.m\"}}}}"),
                     STK_RUN_FAILED);
    assert_true(n_fetched > 0);
    assert_non_null(strstr(stk_exec_error(f->exec), "nor in its share"));
}

/* A network that answers only once another step has begun on this machine. */
static _Atomic bool others_go_on;
static _Atomic uint32_t n_asked, n_gave_up;

static void see_other(fixture *f, const stk_job *job)
{
    (void)f;
    others_go_on = others_go_on || strcmp(job->step, "c") == 0;
}

static int fetch_slowly(void *arg, stk_store *store, const char *digest, stk_err *err)
{
    stk_artifact artifact;
    n_asked++;
    for (int i = 0; i < 120000 && !others_go_on; i++) {
        (void)poll(NULL, 0, 1);
    }
    int rc = stk_store_add_bytes(store, "hello", 5, &artifact, err);
    n_gave_up += !others_go_on;
    return strcmp(digest, arg) == 0 ? rc : STK_E_BUG;
}

/* The engine never waits for the network: steps that don't need it begin meanwhile. */
static void test_output_comes_meanwhile(void **state)
{
    fixture *f = *state;
    char digest[STK_DIGEST_HEX + 1];
    const char *path = stk_arena_printf(f->arena, "%s/hello", f->dir);
    OK(stk_file_write(path, "hello", 5, 0644, &f->err));
    OK(stk_store_digest_path(path, digest, NULL, &f->err));
    elsewhere(f, first_away);
    cloud.does = leave_result;
    left_digest = digest;
    others_go_on = false;
    n_asked = n_gave_up = 0;
    f->does = see_other;
    f->elsewhere.fetch = fetch_slowly;
    f->elsewhere.fetch_arg = digest;
    assert_int_equal(run(f, "{\"a\":{\"run\":\"x\",\"outputs\":[\"m\"]},\"b\":{\"run\":\"x\","
                            "\"inputs\":{\"m\":{\"from\":\"a.m\"}}},"
                            "\"c\":{\"run\":\"x\",\"after\":[\"a\"]}}"),
                     STK_RUN_SUCCEEDED);
    assert_int_equal(n_asked, 1);
    assert_int_equal(n_gave_up, 0);
    assert_int_equal(f->n_starts, 2);
    assert_string_equal(f->starts[0], "c1");
    left_digest = hello_digest;
}

static void leave_checkpoint(fixture *f, const stk_job *job)
{
    const char *granted = "{\"devices\":[],\"checkpoints\":{\"n\":1,\"saved\":true}}";
    OK(stk_file_write(stk_arena_printf(f->arena, "%s/granted.json", job->dir), granted,
                      strlen(granted), 0644, &f->err));
}

/* Checkpoints are in the share: a preempted attempt that saved one costs no retry. */
static void test_preempted(void **state)
{
    fixture *f = *state;
    elsewhere(f, first_away);
    cloud.does = leave_checkpoint;
    cloud.failure = STK_FAIL_PREEMPTED;
    assert_int_equal(run(f, "{\"a\":{\"run\":\"x\"}}"), STK_RUN_SUCCEEDED);
    const stk_json *data = data_of(f, STK_EV_TASK_FAILED, 0);
    assert_true(stk_json_is_true(stk_json_get(data, "saved")));
    assert_non_null(stk_json_get(data, "granted"));
}

/* --- what outlives an engine --- */

/* A plain SIGTERM or, with `is_cancel`, one with the value that `stoker cancel` sends. */
static int signal_pipe[2];
static bool is_cancel;

static int send_term(fixture *f)
{
    struct signalfd_siginfo info = {.ssi_signo = SIGTERM,
                                    .ssi_int = is_cancel ? STK_EXEC_CANCEL : 0};
    if (cloud.n_running == 0) {
        return 0;
    }
    (void)f;
    assert_int_equal(write(signal_pipe[1], &info, sizeof info), (ssize_t)sizeof info);
    return 1;
}

static stk_run_status interrupted(fixture *f, const char *steps, bool cancels)
{
    stk_run_status status = STK_RUN_FAILED;
    assert_int_equal(pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK), 0);
    f->signal_fd = signal_pipe[0];
    f->on_tick = send_term;
    is_cancel = cancels;
    cloud.took_ms = 1000;
    OK(open_exec(f, steps, false));
    OK(stk_exec_loop(f->exec, &status, &f->err));
    stk_exec_close(f->exec);
    f->exec = NULL;
    (void)close(signal_pipe[0]);
    (void)close(signal_pipe[1]);
    f->signal_fd = -1;
    return status;
}

static stk_run_status resume(fixture *f)
{
    stk_run_status status = STK_RUN_FAILED;
    OK(go_on(f));
    OK(stk_exec_loop(f->exec, &status, &f->err));
    return status;
}

#define TWO "{\"a\":{\"run\":\"x\"},\"b\":{\"run\":\"x\",\"after\":[\"a\"]}}"

/* A step that waited for the share has no job: the engine doesn't say that it goes on running. */
static void test_interrupted_unborn(void **state)
{
    fixture *f = *state;
    elsewhere(f, first_away);
    cloud.is_waiting = true;
    assert_int_equal(interrupted(f, TWO, false), STK_RUN_INTERRUPTED);
    const stk_json *note = data_of(f, STK_EV_NOTE, UINT32_MAX);
    const char *text = stk_json_get_text(note, "text");
    assert_non_null(
        strstr(text, "step 'a' was not started on kubernetes (stack 'prod'): 'stoker resume"));
    assert_string_equal(strstr(text, "' starts"), "' starts it");
    cloud.is_waiting = false; /* the resuming engine doesn't say so either */
    assert_int_equal(resume(f), STK_RUN_SUCCEEDED);
    note = data_of(f, STK_EV_NOTE, UINT32_MAX);
    assert_string_equal(stk_json_get_text(note, "text"),
                        "step 'a' is picked up again on kubernetes (stack 'prod')");
}

static void test_interrupted(void **state)
{
    fixture *f = *state;
    elsewhere(f, first_away);
    assert_int_equal(interrupted(f, TWO, false), STK_RUN_INTERRUPTED);
    assert_int_equal(cloud.n_stopped, 0);
    assert_int_equal(cloud.n_running, 1);
    assert_int_equal(committed(f, STK_EV_TASK_CANCELLED, 0, 0).n, 0);
    const stk_json *note = data_of(f, STK_EV_NOTE, UINT32_MAX);
    assert_non_null(
        strstr(stk_json_get_text(note, "text"),
               "step 'a' goes on running on kubernetes (stack 'prod'): 'stoker resume"));
    assert_int_equal(resume(f), STK_RUN_SUCCEEDED);
    note = data_of(f, STK_EV_NOTE, UINT32_MAX);
    assert_string_equal(stk_json_get_text(note, "text"),
                        "step 'a' is picked up again on kubernetes (stack 'prod')");
    assert_int_equal(cloud.n_attached, 1);
    assert_int_equal(cloud.n_submitted, 1);
    assert_int_equal(committed(f, STK_EV_TASK_STARTED, 0, 0).n, 1);
    assert_int_equal(committed(f, STK_EV_TASK_SUCCEEDED, 0, 1).n, 1);
    started(f, "b1");
}

/* The job ends while no engine watches it. */
static void test_collected(void **state)
{
    fixture *f = *state;
    elsewhere(f, first_away);
    assert_int_equal(interrupted(f, TWO, false), STK_RUN_INTERRUPTED);
    f->now_ms += 50000;
    assert_int_equal(resume(f), STK_RUN_SUCCEEDED);
    assert_int_equal(cloud.n_submitted, 1);
    assert_int_equal(committed(f, STK_EV_TASK_STARTED, 0, 0).n, 1);
}

/* A step that may still run in one place isn't picked up in another: it would run twice. */
static void test_other_place(void **state)
{
    fixture *f = *state;
    static const stk_capacity_away nowhere[8] = {{0}};
    elsewhere(f, first_away);
    assert_int_equal(interrupted(f, TWO, false), STK_RUN_INTERRUPTED);
    stk_plan_free(f->plan);
    f->capacity.away = nowhere;
    f->away = nowhere;
    OK(stk_plan_new(f->spec, &f->capacity, NULL, f->policy, &f->plan, &f->err));
    assert_int_equal(open_exec(f, NULL, true), STK_E_USAGE);
    assert_non_null(strstr(f->err.text, "on the machines of stack 'prod' and may still run there"));
    assert_int_equal(cloud.n_running, 1);
    f->exec = NULL;
}

/* The job vanished: the step gets another attempt, which costs no retry. */
static void test_lost(void **state)
{
    fixture *f = *state;
    elsewhere(f, first_away);
    assert_int_equal(interrupted(f, TWO, false), STK_RUN_INTERRUPTED);
    cloud.forgets = true;
    assert_int_equal(resume(f), STK_RUN_SUCCEEDED);
    assert_int_equal(cloud.n_submitted, 2);
    assert_int_equal(committed(f, STK_EV_TASK_FAILED, 0, 1).n, 1);
    assert_int_equal(committed(f, STK_EV_TASK_STARTED, 0, 2).n, 1);
}

static void test_cancel(void **state)
{
    fixture *f = *state;
    elsewhere(f, first_away);
    assert_int_equal(interrupted(f, TWO, true), STK_RUN_CANCELLED);
    assert_int_equal(cloud.n_stopped, 1);
    assert_int_equal(cloud.n_running, 0);
    assert_int_equal(committed(f, STK_EV_TASK_CANCELLED, 0, 0).n, 1);
}

/* Whichever commit breaks the engine, no job is submitted twice and none is lost. */
static void test_broken(void **state)
{
    fixture *f = *state;
    bool broke = true;
    uint32_t n_attached = 0;
    f->no_cache = true;
    for (int n = 1; broke; n++) {
        char rule[64];
        stk_run_status status = STK_RUN_FAILED;
        elsewhere(f, first_away);
        f->n_starts = 0;
        (void)snprintf(rule, sizeof rule, "store.commit.before:%d+:enospc", n);
        arm(rule);
        int rc = open_exec(f, TWO, false);
        rc = rc < 0 ? rc : stk_exec_loop(f->exec, &status, &f->err);
        arm("");
        broke = rc < 0;
        if (broke) {
            stk_exec_close(f->exec);
            f->exec = NULL;
            f->now_ms += n % 2 == 0 ? 1000 : 0; /* the job ends meanwhile, or not */
            status = resume(f);
        }
        assert_int_equal(status, STK_RUN_SUCCEEDED);
        assert_int_equal(cloud.n_submitted, 1);
        assert_int_equal(committed(f, STK_EV_TASK_STARTED, 0, 0).n, 1);
        n_attached += cloud.n_attached;
        stk_exec_close(f->exec);
        stk_plan_free(f->plan);
        stk_spec_free(f->spec);
        f->exec = NULL;
        f->plan = NULL;
        f->spec = NULL;
        stk_file_close(&f->lock_fd);
        assert_true(n < 50);
    }
    assert_true(n_attached >= 1);
}

/* Readers see an attempt that was picked up again as running. */
static void test_refold(void **state)
{
    fixture *f = *state;
    stk_sched *sched = NULL;
    elsewhere(f, first_away);
    assert_int_equal(interrupted(f, TWO, false), STK_RUN_INTERRUPTED);
    OK(open_exec(f, NULL, true));
    OK(stk_exec_refold(f->store, f->run, f->plan, &f->capacity, NULL, &sched, &f->err));
    assert_int_equal(stk_sched_state(sched, 0), STK_TASK_RUNNING);
    stk_sched_free(sched);
    stk_run_status status;
    OK(stk_exec_loop(f->exec, &status, &f->err));
    assert_int_equal(status, STK_RUN_SUCCEEDED);
}

static void check_gang(fixture *f, const stk_job *job)
{
    f->looked = job->nodes == 64 && job->elsewhere->resources->cpu_milli == 2000;
}

/* Each rank of a num_parallel gang gets a node, however small this machine is. A gang that an
 * engine left running is picked up again in a graph that grew, too. */
static void test_grown(void **state)
{
    static const stk_capacity_away second_away[8] = {{0}, {1, NULL}};
    static const char steps[] =
        "{\"a\":{\"run\":\"x\",\"next\":\"w\",\"num_parallel\":64},\"w\":{\"run\":\"x\",\"next\":"
        "\"j\",\"resources\":{\"cpu_count\":2}},\"j\":{\"run\":\"x\",\"join\":true}}";
    fixture *f = *state;
    elsewhere(f, second_away);
    cloud.does = check_gang;
    f->policy = STK_POLICY_STRICT;
    assert_int_equal(interrupted(f, steps, false), STK_RUN_INTERRUPTED);
    assert_true(f->looked);
    assert_int_equal(resume(f), STK_RUN_SUCCEEDED);
    assert_int_equal(cloud.n_attached, 1);
    assert_int_equal(cloud.n_submitted, 1);
    assert_int_equal(committed(f, STK_EV_TASK_STARTED, 1, 0).n, 1);
    started(f, "a1 j1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_job),
        TEST(test_python),
        TEST(test_max_jobs),
        TEST(test_more_memory),
        TEST(test_output_stays),
        TEST(test_output_comes),
        TEST(test_output_comes_meanwhile),
        TEST(test_preempted),
        TEST(test_interrupted),
        TEST(test_interrupted_unborn),
        TEST(test_collected),
        TEST(test_lost),
        TEST(test_cancel),
        TEST(test_broken),
        TEST(test_refold),
        TEST(test_grown),
        TEST(test_more_than_a_pool),
        TEST(test_other_place),
    };
    return cmocka_run_group_tests_name("exec_elsewhere", tests, NULL, NULL);
}
