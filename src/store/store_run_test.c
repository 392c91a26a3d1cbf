/* Runs, events, cache and names: the store has what was committed, and nothing else. */
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/store_testing.h"
#include "sys/dir.h"

typedef struct seen {
    int64_t n;
    int64_t last;
    int64_t stop_at;
    stk_event_row rows[8];
    char data[8][64];
} seen;

static int collect(void *arg, const stk_event_row *row)
{
    seen *s = arg;
    assert_int_equal(row->seq, s->last + 1);
    s->last = row->seq;
    if (s->n < 8) {
        s->rows[s->n] = *row;
        (void)snprintf(s->data[s->n], sizeof s->data[0], "%s", row->data ? row->data : "(null)");
    }
    s->n++;
    return s->stop_at == row->seq ? 77 : 0;
}

static int64_t count(fixture *f, const char *run)
{
    seen s = {0};
    OK(stk_store_events(f->store, run, 0, collect, &s, &f->err));
    return s.n;
}

static void test_events(void **state)
{
    fixture *f = *state;
    const char *a = new_run(f, NULL, "p", 1000);
    const char *b = new_run(f, NULL, "p", 2000);
    stk_event_row rows[] = {
        {.time_ms = 5, .kind = STK_EV_RUN_CREATED, .task = UINT32_MAX, .data = "{\"a\":1}"},
        {.time_ms = 6, .kind = STK_EV_TASK_STARTED, .task = 0, .attempt = 2},
        {.time_ms = 7, .kind = STK_EV_TASK_SUCCEEDED, .task = 4000000, .attempt = 1, .data = "{}"}};
    stk_commit c = {.events = rows, .n_events = 3};
    OK(stk_store_commit(f->store, a, &c, &f->err));
    assert_int_equal(rows[2].seq, 3);
    OK(stk_store_commit(f->store, b, &c, &f->err));
    assert_int_equal(rows[2].seq, 3);
    OK(stk_store_commit(f->store, a, &c, &f->err));
    assert_int_equal(rows[0].seq, 4);
    reopen(f, 0); /* numbering goes on after a reopen */
    OK(commit_one(f, a, STK_EV_NOTE, 8, NULL));
    assert_int_equal(count(f, a), 7);
    assert_int_equal(count(f, b), 3);

    seen s = {.last = 3};
    OK(stk_store_events(f->store, a, 3, collect, &s, &f->err));
    assert_int_equal(s.n, 4);
    assert_int_equal(s.rows[1].task, 0);
    assert_int_equal(s.rows[1].attempt, 2);
    assert_int_equal(s.rows[2].task, 4000000);
    assert_int_equal(s.rows[0].task, UINT32_MAX);
    assert_int_equal(s.rows[0].kind, STK_EV_RUN_CREATED);
    assert_string_equal(s.data[0], "{\"a\":1}");
    assert_string_equal(s.data[1], "(null)");
    seen stopped = {.stop_at = 2};
    assert_int_equal(stk_store_events(f->store, a, 0, collect, &stopped, &f->err), 77);
    assert_int_equal(stopped.n, 2);
    assert_int_equal(stk_store_events(f->store, "00-00", 0, collect, &s, &f->err), STK_E_NOT_FOUND);
    assert_int_equal(commit_one(f, "00-00", STK_EV_NOTE, 8, NULL), STK_E_NOT_FOUND);
}

static void test_lock(void **state)
{
    fixture *f = *state;
    char id[40];
    int fd = -1;
    int other = -1;
    OK(stk_store_new_run(f->store, NULL, "p", "{}", 2, 0, id, &fd, &f->err));
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_true(stk_store_run_is_live(f->store, id));
    OK(stk_store_commit(f->store, id, &(stk_commit){0}, &f->err));
    assert_int_equal(stk_store_lock_run(f->store, id, &other, &f->err), STK_E_BUSY);
    char pid[40];
    (void)snprintf(pid, sizeof pid, "process %d", (int)getpid());
    assert_non_null(strstr(f->err.text, pid));
    assert_int_equal(other, -1);
    stk_file_close(&fd);
    assert_false(stk_store_run_is_live(f->store, id));
    OK(stk_store_lock_run(f->store, id, &other, &f->err));
    assert_true(stk_store_run_is_live(f->store, id));
    stk_file_close(&other);
    assert_int_equal(stk_store_lock_run(f->store, "20200101-000000-aaaaaa", &other, &f->err),
                     STK_E_NOT_FOUND);
    assert_int_equal(stk_store_lock_run(f->store, "../x", &other, &f->err), STK_E_NOT_FOUND);
}

/* The engine is dead, but a process that it left still has the lock's descriptor open. */
static void test_lock_of_the_dead(void **state)
{
    fixture *f = *state;
    char id[40] = "";
    int hold[2], told[2], fd = -1;
    char byte = 0;
    assert_int_equal(pipe(hold) + pipe(told), 0);
    pid_t engine = fork();
    if (engine == 0) {
        stk_store *own = NULL;
        bool made = stk_store_open(f->path, 0, &own, &f->err) == 0 &&
                    stk_store_new_run(own, NULL, "p", "{}", 2, 0, id, &fd, &f->err) == 0 &&
                    stk_store_commit(own, id, &(stk_commit){0}, &f->err) == 0;
        pid_t left = made ? fork() : -1;
        if (left == 0) { /* lives until the test closes the pipe */
            close(hold[1]);
            close(told[0]);
            close(told[1]);
            _exit(read(hold[0], &byte, 1) < 0);
        }
        _exit(left < 0 || write(told[1], id, sizeof id) != (ssize_t)sizeof id);
    }
    assert_int_equal(read(told[0], id, sizeof id), sizeof id);
    int status = -1;
    assert_int_equal(waitpid(engine, &status, 0), engine);
    assert_int_equal(status, 0);
    assert_true(stk_store_run_is_live(f->store, id));
    assert_true(stk_store_run_is_ending(f->store, id));
    close(hold[1]);
    for (int i = 0; i < 12000 && stk_store_run_is_live(f->store, id); i++) {
        (void)usleep(10000);
    }
    assert_false(stk_store_run_is_live(f->store, id));
    assert_false(stk_store_run_is_ending(f->store, id));
    OK(stk_store_lock_run(f->store, id, &fd, &f->err));
    assert_false(stk_store_run_is_ending(f->store, id)); /* this live process has the lock */
    stk_file_close(&fd);
    close(hold[0]);
    close(told[0]);
    close(told[1]);
}

static void test_status(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *data, *status;
    } cases[] = {{"{\"status\":\"succeeded\"}", "succeeded"},
                 {"{\"status\":\"failed\",\"error\":\"x\"}", "failed"},
                 {"{\"status\":\"cancelled\"}", "cancelled"},
                 {"{}", "failed"},
                 {NULL, "failed"}};
    enum { N = sizeof cases / sizeof cases[0] };
    for (size_t i = 0; i < N; i++) {
        OK(commit_one(f, new_run(f, NULL, "p", 1), STK_EV_RUN_ENDED, 50 + (int64_t)i,
                      cases[i].data));
    }
    const char *open = new_run(f, "mine", "q", 9);
    stk_run_row *rows;
    uint32_t n;
    OK(stk_store_list_runs(f->store, NULL, NULL, 100, f->arena, &rows, &n, &f->err));
    assert_int_equal(n, N + 1);
    assert_string_equal(rows[0].status, "interrupted");
    assert_string_equal(rows[0].name, "mine");
    assert_int_equal(rows[0].ended_ms, 0);
    for (size_t i = 0; i < N; i++) {
        assert_string_equal(rows[N - i].status, cases[i].status);
        assert_int_equal(rows[N - i].ended_ms, 50 + i);
        assert_string_equal(rows[N - i].name, rows[N - i].id);
    }
    int fd = -1;
    OK(stk_store_lock_run(f->store, open, &fd, &f->err));
    OK(stk_store_list_runs(f->store, "q", NULL, 100, f->arena, &rows, &n, &f->err));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].status, "running");
    OK(stk_store_list_runs(f->store, NULL, NULL, 2, f->arena, &rows, &n, &f->err));
    assert_int_equal(n, 2);
    /* A resumed run no longer has an end. */
    const char *ended = rows[1].id;
    OK(commit_one(f, ended, STK_EV_RUN_STARTED, 99, "{\"resumed\":true}"));
    stk_file_close(&fd);
    OK(stk_store_list_runs(f->store, "p", NULL, 1, f->arena, &rows, &n, &f->err));
    assert_string_equal(rows[0].status, "interrupted");
    assert_int_equal(rows[0].ended_ms, 0);
}

static int count_row(void *arg, const stk_event_row *row)
{
    int64_t *seq = arg;
    assert_int_equal(row->seq, *seq + 1); /* no event twice, none left out */
    *seq = row->seq;
    return 0;
}

/* Another process tags the run between two commits of the run's engine: both can go on. */
static void test_tags(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 1);
    stk_run_row *rows;
    uint32_t n;
    int64_t seq = 0;
    OK(commit_one(f, run, STK_EV_RUN_CREATED, 1, "{\"tags\":[\"a\",\"b c\"]}"));
    OK(commit_one(f, run, STK_EV_RUN_STARTED, 2, "{}"));
    stk_store *other = NULL;
    OK(stk_store_open(stk_store_path(f->store), 0, &other, &f->err));
    OK(stk_store_tag_run(other, run, "[\"a\",\"b c\"]", "[\"b c\",\"x\"]", 3, &f->err));
    assert_int_equal(stk_store_tag_run(other, run, "[\"a\",\"b c\"]", "[]", 3, &f->err),
                     STK_E_BUSY);
    OK(commit_one(f, run, STK_EV_NOTE, 4, "{\"text\":\"engine\"}"));
    OK(stk_store_tag_run(other, run, "[\"b c\",\"x\"]", "[\"x\"]", 5, &f->err));
    OK(commit_one(f, run, STK_EV_RUN_ENDED, 6, "{\"status\":\"succeeded\"}"));
    OK(stk_store_events(f->store, run, 0, count_row, &seq, &f->err));
    assert_int_equal(seq, 6);
    stk_store_close(other);
    OK(stk_store_list_runs(f->store, NULL, "[\"x\"]", 9, f->arena, &rows, &n, &f->err));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].tags, "[\"x\"]");
    OK(stk_store_list_runs(f->store, NULL, "[\"x\",\"a\"]", 9, f->arena, &rows, &n, &f->err));
    assert_int_equal(n, 0);
}

static void test_resolve(void **state)
{
    fixture *f = *state;
    char id[40];
    assert_int_equal(stk_store_resolve_run(f->store, "latest", id, &f->err), STK_E_NOT_FOUND);
    assert_non_null(strstr(f->err.text, "no runs yet"));
    const char *a = new_run(f, "first", "p", 1600000000000);
    const char *b = new_run(f, "first", "p", 1700000000000);
    const char *c = new_run(f, NULL, "p", 1700000000000);
    const char *unique = stk_arena_dupn(f->arena, a, 5);
    const struct {
        const char *text, *id;
    } cases[] = {{"latest", c}, {a, a}, {"first", b}, {unique, a}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        OK(stk_store_resolve_run(f->store, cases[i].text, id, &f->err));
        assert_string_equal(id, cases[i].id);
    }
    assert_int_equal(stk_store_resolve_run(f->store, "202311", id, &f->err), STK_E_USAGE);
    assert_non_null(strstr(f->err.text, b));
    assert_non_null(strstr(f->err.text, c));
    static const char *const none[] = {"", "nope", "2023%", "_", "../../etc"};
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        assert_int_equal(stk_store_resolve_run(f->store, none[i], id, &f->err), STK_E_NOT_FOUND);
    }
}

static void test_spec(void **state)
{
    fixture *f = *state;
    char id[40];
    int fd = -1;
    OK(stk_store_new_run(f->store, NULL, "p", "{\"x\": \"y\"}", 10, 0, id, &fd, &f->err));
    OK(stk_store_commit(f->store, id, &(stk_commit){0}, &f->err));
    stk_file_close(&fd);
    const char *json = NULL;
    size_t len = 0;
    OK(stk_store_load_spec(f->store, id, f->arena, &json, &len, &f->err));
    assert_int_equal(len, 10);
    assert_string_equal(json, "{\"x\": \"y\"}");
    assert_int_equal(stk_store_load_spec(f->store, "00-00", f->arena, &json, &len, &f->err),
                     STK_E_NOT_FOUND);
}

static void test_cache(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 0);
    stk_cache_row rows[] = {{.key = "k1",
                             .pipeline = "p",
                             .step = "s",
                             .parts = "{\"code\":1}",
                             .run = run,
                             .task = 3,
                             .created_ms = 10,
                             .outputs = "{}"},
                            {.key = "k2",
                             .pipeline = "p",
                             .step = "s",
                             .parts = "{\"code\":2}",
                             .run = run,
                             .created_ms = 11,
                             .metadata = "{}",
                             .seen = "{\"f\":\"\"}"}};
    stk_commit c = {.cache = rows, .n_cache = 2};
    OK(stk_store_commit(f->store, run, &c, &f->err));
    stk_cache_row got = {0};
    OK(stk_store_cache_get(f->store, "k1", f->arena, &got, &f->err));
    assert_string_equal(got.parts, "{\"code\":1}");
    assert_string_equal(got.run, run);
    assert_int_equal(got.task, 3);
    assert_int_equal(got.created_ms, 10);
    assert_null(got.metadata);
    OK(stk_store_cache_get(f->store, "k2", f->arena, &got, &f->err));
    assert_string_equal(got.seen, "{\"f\":\"\"}");
    assert_int_equal(stk_store_cache_get(f->store, "k3", f->arena, &got, &f->err), STK_E_NOT_FOUND);
    assert_string_equal(stk_store_cache_last_parts(f->store, "p", "s", f->arena), "{\"code\":2}");
    assert_null(stk_store_cache_last_parts(f->store, "p", "t", f->arena));
    rows[0].parts = "{\"code\":3}"; /* made again, so it is the newest */
    c.n_cache = 1;
    OK(stk_store_commit(f->store, run, &c, &f->err));
    assert_string_equal(stk_store_cache_last_parts(f->store, "p", "s", f->arena), "{\"code\":3}");
    /* A row that doesn't fit the arena is an error, not a row with holes. */
    STK_ARENA_AUTO small = stk_arena_new(64);
    assert_int_equal(stk_store_cache_get(f->store, "k1", small, &got, &f->err), STK_E_NOMEM);
}

static void test_named(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 0);
    static const struct {
        const char *version, *digest, *want;
        int rc;
    } cases[] = {{NULL, "d1", "1", 0},    {NULL, "d2", "2", 0},
                 {"v7", "d3", "v7", 0},   {NULL, "d4", "3", 0},
                 {"41", "d5", "41", 0},   {NULL, "d6", "42", 0},
                 {"41", "d5", "42", 0},   {"41", "dX", "42", STK_E_USAGE},
                 {"10x", "d7", "10x", 0}, {NULL, "d8", "43", 0}};
    stk_named_row *rows;
    uint32_t n;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_named_row row = {.name = "net",
                             .version = cases[i].version,
                             .digest = cases[i].digest,
                             .run = run,
                             .step = "train"};
        assert_int_equal(stk_store_check_name(f->store, row.name, row.version, row.digest, &f->err),
                         cases[i].rc);
        assert_int_equal(stk_store_add_named(f->store, &row, &f->err), cases[i].rc);
        OK(stk_store_list_named(f->store, "net", NULL, 1, f->arena, &rows, &n, &f->err));
        assert_string_equal(rows[0].version, cases[i].want);
    }
    OK(stk_store_list_named(f->store, "net", "41", 9, f->arena, &rows, &n, &f->err));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].digest, "d5");
    assert_string_equal(rows[0].step, "train");
    /* A commit adds all its names or none. */
    stk_ref_row refs[] = {{.digest = "e1", .output = "o", .name = "other", .step = "s"},
                          {.digest = "e2", .output = "o", .name = "net", .version = "41"}};
    stk_event_row e = {.time_ms = 123, .kind = STK_EV_NOTE, .task = 0};
    stk_commit c = {.events = &e, .n_events = 1, .refs = refs, .n_refs = 2};
    assert_int_equal(stk_store_commit(f->store, run, &c, &f->err), STK_E_USAGE);
    assert_non_null(strstr(f->err.text, "'net'"));
    assert_int_equal(count(f, run), 0);
    OK(stk_store_list_named(f->store, "other", NULL, 9, f->arena, &rows, &n, &f->err));
    assert_int_equal(n, 0);
    c.n_refs = 1;
    OK(stk_store_commit(f->store, run, &c, &f->err));
    OK(stk_store_run_named(f->store, run, f->arena, &rows, &n, &f->err));
    assert_int_equal(n, 9);
    assert_string_equal(rows[8].name, "other");
    assert_string_equal(rows[8].version, "1");
    assert_int_equal(rows[8].created_ms, 123);
    OK(stk_store_list_named(f->store, NULL, NULL, 100, f->arena, &rows, &n, &f->err));
    assert_int_equal(n, 9);
}

static const char *crash_run;

static void commit_two(fixture *f)
{
    for (int i = 0; i < 2; i++) {
        if (commit_one(f, crash_run, STK_EV_NOTE, i, "{}") != 0) {
            _exit(8);
        }
    }
}

static void make_run(fixture *f)
{
    char id[40];
    int fd;
    (void)stk_store_new_run(f->store, NULL, "p", "{}", 2, 0, id, &fd, &f->err);
    (void)commit_one(f, id, STK_EV_RUN_CREATED, 0, "{}");
}

static void test_killed(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *failpoint;
        void (*body)(fixture *f);
        int events, runs;
    } cases[] = {{"store.commit.before:2:kill", commit_two, 1, 0},
                 {"store.commit.mid:1:kill", commit_two, 0, 0},
                 {"store.commit.mid:2:kill", commit_two, 1, 0},
                 {"store.commit.after:1:kill", commit_two, 1, 0},
                 {"store.commit.after:2:kill", commit_two, 2, 0},
                 {"store.run.folder:1:kill", make_run, 0, 0},
                 {"store.run.made:1:kill", make_run, 0, 0},
                 {"store.commit.before:1:kill", make_run, 0, 0},
                 {"store.commit.mid:1:kill", make_run, 0, 0},
                 {"store.commit.after:1:kill", make_run, 0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_run_row *rows;
        uint32_t before;
        uint32_t after;
        crash_run = new_run(f, NULL, "p", 0);
        OK(stk_store_list_runs(f->store, NULL, NULL, 100, f->arena, &rows, &before, &f->err));
        int status = in_child(f, cases[i].failpoint, cases[i].body);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_int_equal(count(f, crash_run), cases[i].events);
        OK(stk_store_list_runs(f->store, NULL, NULL, 100, f->arena, &rows, &after, &f->err));
        assert_int_equal(after - before, cases[i].runs);
        assert_string_equal(rows[0].status, "interrupted");
        OK(commit_one(f, crash_run, STK_EV_NOTE, 5, "{}"));
        assert_int_equal(count(f, crash_run), cases[i].events + 1);
    }
}

/* A run appears together with its first events. Until then only its maker knows of it, and gc keeps
 * its folder. Closing the store removes the folder of a run without events; after a kill, the next
 * gc does. */
static void test_unborn(void **state)
{
    fixture *f = *state;
    char id[40];
    int fd = -1;
    stk_run_row *rows;
    uint32_t n;
    stk_gc gc = {0};
    stk_store *other = NULL;
    OK(stk_store_new_run(f->store, "named", "p", "{}", 2, 7, id, &fd, &f->err));
    const char *folder = stk_store_run_folder(f->store, id, f->arena);
    OK(stk_store_open(f->path, 0, &other, &f->err));
    for (int i = 0; i < 2; i++) {
        assert_false(stk_store_has_run(other, id));
        OK(stk_store_list_runs(other, NULL, NULL, 10, f->arena, &rows, &n, &f->err));
        assert_int_equal(n, 0);
        OK(stk_store_gc(other, &gc, 1000, &f->err));
        assert_true(stk_file_exists(folder));
        arm("store.commit.mid:1:enospc");
        assert_int_equal(commit_one(f, id, STK_EV_RUN_CREATED, 8, "{}"), STK_E_FULL);
        disarm();
    }
    OK(commit_one(f, id, STK_EV_RUN_CREATED, 8, "{}"));
    OK(stk_store_list_runs(other, NULL, NULL, 10, f->arena, &rows, &n, &f->err));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].name, "named");
    assert_int_equal(rows[0].created_ms, 7);
    assert_int_equal(count(f, id), 1);
    stk_file_close(&fd);
    stk_store_close(other);

    OK(stk_store_new_run(f->store, NULL, "p", "{}", 2, 0, id, &fd, &f->err));
    stk_file_close(&fd);
    reopen(f, 0);
    assert_false(stk_file_exists(stk_store_run_folder(f->store, id, f->arena)));
    assert_true(stk_file_exists(folder));

    int status = in_child(f, "store.run.made:1:kill", make_run);
    assert_true(WIFSIGNALED(status));
    STK_DIR_AUTO runs = {0};
    OK(stk_dir_read(stk_arena_printf(f->arena, "%s/runs", f->path), &runs, &f->err));
    assert_int_equal(runs.n, 2);
    gc.keep_runs = 1;
    OK(stk_store_gc(f->store, &gc, 1000, &f->err));
    stk_dir_done(&runs);
    OK(stk_dir_read(stk_arena_printf(f->arena, "%s/runs", f->path), &runs, &f->err));
    assert_int_equal(runs.n, 1);
}

/* A commit that fails leaves nothing in the store, and the next one works. */
static void test_failed_commit(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *failpoint;
        int rc;
    } cases[] = {{"store.commit.before:1:enospc", STK_E_FULL},
                 {"store.commit.mid:1:enospc", STK_E_FULL},
                 {"store.commit.mid:1:enomem", STK_E_NOMEM},
                 {"store.commit.mid:1:eio", STK_E_SYS}};
    const char *run = new_run(f, NULL, "p", 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        arm(cases[i].failpoint);
        assert_int_equal(commit_one(f, run, STK_EV_NOTE, 1, NULL), cases[i].rc);
        assert_non_null(strstr(f->err.text, f->path));
        assert_int_equal(count(f, run), i);
        disarm();
        OK(commit_one(f, run, STK_EV_NOTE, 1, NULL));
    }
    arm("store.run.folder:1:enospc");
    char id[40];
    int fd = -1;
    assert_int_equal(stk_store_new_run(f->store, NULL, "p", "{}", 2, 0, id, &fd, &f->err),
                     STK_E_FULL);
    disarm();
}

/* SQLite itself runs out of memory, at many different places. */
static void test_no_memory(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 0);
    char *big = stk_arena_alloc(f->arena, 300001);
    memset(big, 'x', 300000);
    memcpy(big, "{\"text\":\"", 9);
    memcpy(big + 299998, "\"}", 3);
    int64_t n_ok = 0;
    int n_failed = 0;
    for (int i = 0; i < 40; i++) {
        (void)sqlite3_hard_heap_limit64(sqlite3_memory_used() + 20000ll * i);
        int rc = commit_one(f, run, STK_EV_NOTE, 1, big);
        (void)sqlite3_hard_heap_limit64(0);
        if (rc != 0) {
            assert_int_equal(rc, STK_E_NOMEM);
            n_failed++;
        }
        n_ok += rc == 0;
        assert_int_equal(count(f, run), n_ok);
    }
    assert_true(n_failed > 0 && n_ok > 0);
}

static void used(fixture *f, const char *pipeline, stk_event_kind kind, const char *step,
                 const char *devices)
{
    const char *data =
        stk_arena_printf(f->arena, "{\"used\":{\"devices\":[%s]},\"step\":\"%s\"}", devices, step);
    const char *run = new_run(f, "r", pipeline, 1000);
    OK(commit_one(f, run, STK_EV_TASK_SUCCEEDED, 1, "{}"));
    OK(stk_store_exec(f->store, "UPDATE events SET data = 'not JSON' WHERE data = '{}'", &f->err));
    OK(commit_one(f, run, STK_EV_TASK_SUCCEEDED, 1, NULL));
    OK(commit_one(f, run, kind, 1, data));
}

static int64_t peak_of(fixture *f, const char *pipeline, const char *step)
{
    int64_t bytes = -7;
    OK(stk_store_peak(f->store, pipeline, step, &bytes, &f->err));
    return bytes;
}

/* A step's peak memory: the most on one device, in the last ten attempts that succeeded. */
static void test_peak(void **state)
{
    fixture *f = *state;
    assert_int_equal(peak_of(f, "p", "train"), -1);
    used(f, "p", STK_EV_TASK_SUCCEEDED, "train", "{\"peak_memory_bytes\":900}");
    used(f, "p", STK_EV_TASK_SUCCEEDED, "train", "");                     /* had no device */
    used(f, "p", STK_EV_TASK_SUCCEEDED, "train", "{\"uuid\":\"GPU-a\"}"); /* unknown peak */
    used(f, "p", STK_EV_TASK_SUCCEEDED, "test", "{\"peak_memory_bytes\":5000}");
    used(f, "q", STK_EV_TASK_SUCCEEDED, "train", "{\"peak_memory_bytes\":6000}");
    used(f, "p", STK_EV_TASK_FAILED, "train", "{\"peak_memory_bytes\":7000}");
    assert_int_equal(peak_of(f, "p", "train"), 900);
    used(f, "p", STK_EV_TASK_SUCCEEDED, "train",
         "{\"peak_memory_bytes\":300},{\"peak_memory_bytes\":8000000000}");
    assert_int_equal(peak_of(f, "p", "train"), 8000000000);
    for (int i = 0; i < 9; i++) {
        used(f, "p", STK_EV_TASK_SUCCEEDED, "train", "{\"peak_memory_bytes\":10}");
    }
    assert_int_equal(peak_of(f, "p", "train"), 8000000000);
    used(f, "p", STK_EV_TASK_SUCCEEDED, "train", "{\"peak_memory_bytes\":20}");
    assert_int_equal(peak_of(f, "p", "train"), 20);
    assert_int_equal(peak_of(f, "p", "test"), 5000);
    assert_int_equal(peak_of(f, "q", "train"), 6000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_peak),          TEST(test_events),
        TEST(test_lock),          TEST(test_lock_of_the_dead),
        TEST(test_status),        TEST(test_tags),
        TEST(test_resolve),       TEST(test_spec),
        TEST(test_cache),         TEST(test_named),
        TEST(test_killed),        TEST(test_unborn),
        TEST(test_failed_commit), TEST(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
