#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away/remote/remote_log.h"
#include "away/share/share.h"
#include "base/failpoint.h"
#include "base/testing.h"
#include "sys/file.h"

/* Two machines: each has its own store, and they use one share. */
typedef struct fixture {
    char root[64], share[80], run[40];
    stk_store *stores[2];
    int lock;
} fixture;

#define OK(rc) assert_int_equal(rc, 0)

static int setup(void **state)
{
    static const char spec[] = "{\"stoker\":1,\"name\":\"p\",\"steps\":{}}";
    fixture *f = calloc(1, sizeof *f);
    char path[100];
    stk_err err = {0};
    (void)snprintf(f->root, sizeof f->root, "/tmp/stk-log-XXXXXX");
    assert_non_null(mkdtemp(f->root));
    (void)snprintf(f->share, sizeof f->share, "%s/share", f->root);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path, sizeof path, "%s/store%d", f->root, i);
        OK(stk_store_open(path, STK_STORE_CREATE, &f->stores[i], &err));
    }
    OK(stk_store_new_run(f->stores[0], "mine", "p", spec, strlen(spec), 1000, f->run, &f->lock,
                         &err));
    OK(stk_store_commit(f->stores[0], f->run, &(stk_commit){0}, &err));
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    close(f->lock);
    stk_store_close(f->stores[0]);
    stk_store_close(f->stores[1]);
    (void)stk_file_remove_tree(f->root, NULL);
    free(f);
    return 0;
}

static stk_remote_log *open_log(fixture *f, int i)
{
    stk_err err = {0};
    stk_remote_log *log = NULL;
    stk_remote_log_config config = {.store = f->stores[i],
                                    .share_url = f->share,
                                    .run = f->run,
                                    .name = "mine",
                                    .pipeline = "p"};
    int rc = stk_remote_log_open(&config, &log, &err);
    rc = rc < 0 ? rc : stk_remote_log_begin(log, &err);
    if (rc < 0) {
        fail_msg("%s", err.text);
    }
    return log;
}

/* Records an event as exec does: first in the local store, then in the log on the share. */
static void happen(fixture *f, int i, stk_remote_log *log, stk_event_kind kind, uint32_t task,
                   const char *data)
{
    stk_err err = {0};
    stk_event_row row = {.time_ms = 5,
                         .kind = kind,
                         .task = task,
                         .attempt = task == UINT32_MAX ? 0 : 1,
                         .data = data};
    stk_commit commit = {.events = &row, .n_events = 1};
    OK(stk_store_commit(f->stores[i], f->run, &commit, &err));
    if (log != NULL) {
        stk_remote_log_told(log, row.seq);
    }
}

typedef struct seen {
    char text[4096];
    uint32_t n;
} seen;

static int see(void *arg, const stk_event_row *row)
{
    seen *s = arg;
    size_t n = strlen(s->text);
    (void)snprintf(s->text + n, sizeof s->text - n, "%s/%d/%u/%s\n", stk_event_word(row->kind),
                   (int)row->task, row->attempt, row->data != NULL ? row->data : "-");
    s->n++;
    return 0;
}

static seen events_of(fixture *f, int i)
{
    seen s = {0};
    stk_err err = {0};
    OK(stk_store_events(f->stores[i], f->run, 0, see, &s, &err));
    return s;
}

static void fetch(fixture *f, int i, const char *name)
{
    stk_err err = {0};
    char id[40];
    int rc = stk_remote_log_fetch(f->share, name, f->stores[i], true, id, &err);
    if (rc < 0) {
        fail_msg("%s", err.text);
    }
    assert_string_equal(id, f->run);
}

static void close_log(stk_remote_log *log)
{
    stk_err err = {0};
    int rc = stk_remote_log_close(log, 20000, &err);
    if (rc < 0) {
        fail_msg("%s", err.text);
    }
}

static void begin(fixture *f, stk_remote_log *log)
{
    happen(f, 0, log, STK_EV_RUN_CREATED, UINT32_MAX, "{\"host\":{\"n\":1.50}}");
    happen(f, 0, log, STK_EV_RUN_STARTED, UINT32_MAX, NULL);
    happen(f, 0, log, STK_EV_TASK_STARTED, 0, "{\"granted\":{}}");
}

/* Another machine reads the same events, and the artifacts through the share. */
static void test_read(void **state)
{
    fixture *f = *state;
    stk_err err = {0};
    stk_artifact a;
    char data[400];
    stk_share *share = NULL;
    bool there = false;
    stk_remote_log *log = open_log(f, 0);
    begin(f, log);
    OK(stk_store_add_bytes(f->stores[0], "model", 5, &a, &err));
    (void)snprintf(data, sizeof data,
                   "{\"outputs\":{\"m\":{\"digest\":\"%s\",\"size\":5,\"format\":\"file\",\"type\":"
                   "\"file\",\"meta\":{},\"name\":\"best\",\"version\":\"1\"}}}",
                   a.digest);
    happen(f, 0, log, STK_EV_TASK_SUCCEEDED, 0, data);
    close_log(log);
    OK(stk_share_open(f->share, &share, &err));
    OK(stk_share_has(share, a.digest, &there, &err));
    stk_share_close(share);
    assert_true(there);
    fetch(f, 1, "mine");
    seen here = events_of(f, 0), other = events_of(f, 1);
    assert_string_equal(here.text, other.text);
    assert_int_equal(other.n, 4);
    fetch(f, 1, f->run); /* a second fetch finds nothing new */
    assert_int_equal(events_of(f, 1).n, 4);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_named_row *named = NULL;
    uint32_t n = 0;
    OK(stk_store_list_named(f->stores[1], "best", NULL, 10, arena, &named, &n, &err));
    assert_int_equal(n, 1);
    assert_string_equal(named[0].digest, a.digest);
    stk_run_row *rows = NULL;
    OK(stk_store_list_runs(f->stores[1], NULL, NULL, 10, arena, &rows, &n, &err));
    assert_int_equal(n, 1);
    assert_string_equal(rows[0].name, "mine");
    stk_remote_run *runs = NULL;
    OK(stk_remote_log_runs(f->share, arena, &runs, &n, &err));
    assert_int_equal(n, 1);
    assert_string_equal(runs[0].pipeline, "p");
    char id[40];
    assert_int_equal(stk_remote_log_fetch(f->share, "nobody", f->stores[1], true, id, &err),
                     STK_E_NOT_FOUND);
}

static void bring_killed(fixture *f, const char *failpoint)
{
    stk_err err = {0};
    char id[40];
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        stk_store *own = NULL;
        (void)setenv("STOKER_FAILPOINTS", failpoint, 1);
        stk_failpoint_reload();
        _exit(stk_store_open(stk_store_path(f->stores[1]), 0, &own, &err) < 0 ||
              stk_remote_log_fetch(f->share, f->run, own, true, id, &err) < 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* A kill while a run is fetched leaves the run with its beginning, or no run at all. An older
 * engine's log starts with a batch that has no events. */
static void test_brought_whole(void **state)
{
    fixture *f = *state;
    stk_remote_log *log = NULL;
    for (int is_old = 0; is_old < 2; is_old++) {
        log = is_old ? open_log(f, 0) : NULL;
        begin(f, log);
        close_log(is_old ? log : open_log(f, 0));
        static const char *const points[] = {"store.commit.before", "store.commit.mid",
                                             "store.commit.after"};
        for (int i = 0; i < 3; i++) {
            char rule[64];
            (void)snprintf(rule, sizeof rule, "%s:1:kill", points[i]);
            bring_killed(f, rule);
            assert_int_equal(stk_store_has_run(f->stores[1], f->run), i == 2);
        }
        assert_true(events_of(f, 1).n > 0);
        fetch(f, 1, f->run);
        seen here = events_of(f, 0), other = events_of(f, 1);
        assert_string_equal(here.text, other.text);
        assert_int_equal(other.n, 3);
        if (!is_old) {
            assert_int_equal(teardown(state), 0);
            assert_int_equal(setup(state), 0);
            f = *state;
        }
    }
}

/* The engine that takes a run over continues. The old engine gets an error, and its later events
 * never reach the share. */
static void test_fence(void **state)
{
    fixture *f = *state;
    stk_err err = {0};
    stk_remote_log *old = open_log(f, 0);
    begin(f, old);
    fetch(f, 1, "latest");
    for (int i = 0; i < 6000 && events_of(f, 1).n < 3; i++) {
        usleep(20000);
        fetch(f, 1, "latest");
    }
    stk_remote_log *new = open_log(f, 1);
    OK(stk_remote_log_check(old, &err));
    happen(f, 0, old, STK_EV_NOTE, UINT32_MAX, "{\"text\":\"too late\"}");
    happen(f, 1, new, STK_EV_NOTE, UINT32_MAX, "{\"text\":\"in time\"}");
    for (int i = 0; i < 12000 && stk_remote_log_check(old, &err) == 0; i++) {
        usleep(10000);
    }
    assert_int_equal(stk_remote_log_check(old, &err), STK_E_BUSY);
    assert_non_null(strstr(err.text, "was taken over by"));
    assert_int_equal(stk_remote_log_close(old, 1000, &err), STK_E_BUSY);
    OK(stk_remote_log_check(new, &err));
    happen(f, 1, new, STK_EV_RUN_ENDED, UINT32_MAX, "{\"status\":\"succeeded\"}");
    close_log(new);
    /* The first machine notices that its own record of the run is no longer the valid one. */
    char id[40];
    assert_int_equal(stk_remote_log_fetch(f->share, f->run, f->stores[0], true, id, &err),
                     STK_E_BUSY);
    assert_non_null(strstr(err.text, "the shared store lacks"));
}

/* A kill keeps events from the share: the next engine on the same machine uploads them. */
static void test_same_machine(void **state)
{
    fixture *f = *state;
    stk_remote_log *log = open_log(f, 0);
    begin(f, log);
    close_log(log);
    happen(f, 0, NULL, STK_EV_NOTE, UINT32_MAX, "{\"text\":\"not told\"}");
    fetch(f, 0, f->run); /* resume fetches first */
    assert_int_equal(events_of(f, 0).n, 4);
    log = open_log(f, 0);
    happen(f, 0, log, STK_EV_RUN_ENDED, UINT32_MAX, "{\"status\":\"succeeded\"}");
    close_log(log);
    fetch(f, 1, f->run);
    seen here = events_of(f, 0), other = events_of(f, 1);
    assert_string_equal(here.text, other.text);
    assert_int_equal(other.n, 5);
}

/* Each row: how a batch is damaged → what the error says. The number in it is the batch's. */
static void test_damage(void **state)
{
    static const char head[] = "{\"epoch\":1,\"owner\":\"x\",\"host\":\"h\",\"user\":\"u\"}\n";
    static const char next[] =
        "{\"seq\":8,\"at_ms\":1,\"event\":\"note\",\"data\":{\"text\":\"t\"}}\n";
    static const struct {
        const char *with_head, *lines, *said;
    } cases[] = {
        {"", "\1\2\3", "not valid JSON"},
        {"", "{}\n", "has no owner in its first line"},
        {"", "{\"epoch\":0,\"owner\":\"x\"}\n", "has epoch 0, but the one before has 1"},
        {head, "{\"seq\":7,\"event\":\"no", "not valid JSON"},
        {head, "{\"seq\":7,\"event\":\"of_tomorrow\"}\n", "event 'of_tomorrow'"},
        {head, "{\"seq\":7,\"event\":\"task_started\",\"task\":-1}\n", "with task -1"},
        {head, "{\"seq\":7,\"event\":\"task_started\",\"task\":4000000000}\n",
         "with task 4000000000"},
        {head, "{\"seq\":7,\"event\":\"task_started\",\"task\":0,\"attempt\":-9}\n", "attempt -9"},
        {next, "{\"seq\":7,\"event\":\"note\"}\n", "event 7 follows event 8"}};
    fixture *f = *state;
    stk_share *share = NULL;
    stk_err err = {0};
    char key[200], gap[200], id[40], text[1000];
    int64_t n = 0;
    stk_remote_log *log = open_log(f, 0);
    begin(f, log);
    close_log(log);
    OK(stk_share_open(f->share, &share, &err));
    for (int rc = 0; rc == 0; n += rc == 0) { /* up to the first batch that doesn't exist */
        STK_BUF_AUTO batch = STK_BUF_INIT(1 << 20);
        (void)snprintf(key, sizeof key, "runs/%s/log/%012lld.jsonl", f->run, (long long)n);
        rc = stk_share_get(share, key, &batch, NULL);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        (void)snprintf(text, sizeof text, "%s%s%s", cases[i].with_head == next ? head : "",
                       cases[i].with_head, cases[i].lines);
        OK(stk_share_put(share, key, text, strlen(text), false, &err));
        int rc = stk_remote_log_fetch(f->share, f->run, f->stores[1], false, id, &err);
        if (rc == 0 || !stk_remote_log_is_damage(&err) || strstr(err.text, cases[i].said) == NULL) {
            fail_msg("%s: %d %s", text, rc, err.text);
        }
        assert_int_equal(events_of(f, 1).n, 3); /* nothing from the damaged batch */
    }
    OK(stk_share_delete(share, key, &err));
    (void)snprintf(gap, sizeof gap, "runs/%s/log/%012lld.jsonl", f->run, (long long)n + 1);
    OK(stk_share_put(share, gap, text, strlen(text), false, &err));
    assert_int_equal(stk_remote_log_fetch(f->share, f->run, f->stores[1], false, id, &err),
                     STK_E_PROTOCOL);
    assert_non_null(strstr(err.text, "has a gap"));
    stk_share_close(share);
}

/* Strange names next to the runs and an invalid run.json don't hide the other runs. */
static void test_strange_runs(void **state)
{
    fixture *f = *state;
    stk_share *share = NULL;
    stk_err err = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_remote_run *runs = NULL;
    uint32_t n = 0;
    char id[40];
    stk_remote_log *log = open_log(f, 0);
    begin(f, log);
    close_log(log);
    OK(stk_share_open(f->share, &share, &err));
    OK(stk_share_put(share, "runs/a-name-that-is-much-longer-than-those-of-runs-are/x", "", 0,
                     false, &err));
    OK(stk_share_put(share, "runs/file", "", 0, false, &err));
    OK(stk_share_put(share, "runs/20200101-000000-aaaaaa/run.json", "{\"name\":", 9, false, &err));
    OK(stk_remote_log_runs(f->share, arena, &runs, &n, &err));
    assert_int_equal(n, 2);
    assert_string_equal(runs[1].name, "20200101-000000-aaaaaa");
    fetch(f, 1, "mine");
    assert_true(stk_remote_log_fetch(f->share, "20200101-000000-aaaaaa", f->stores[1], false, id,
                                     &err) < 0);
    assert_true(stk_remote_log_is_damage(&err));
    assert_true(err.text[0] != '\0');
    stk_share_close(share);
}

/* An engine whose share.json is out of date still recognizes the batches that carry its name. */
static void test_lost_mark(void **state)
{
    fixture *f = *state;
    char path[200];
    STK_TEXT_AUTO mark = NULL;
    size_t len = 0;
    stk_err err = {0};
    stk_remote_log *log = open_log(f, 0);
    (void)snprintf(path, sizeof path, "%s/store0/runs/%s/share.json", f->root, f->run);
    OK(stk_file_read(path, 4096, &mark, &len, &err));
    begin(f, log);
    close_log(log);
    OK(stk_file_write_atomic(path, mark, len, 0644, &err));
    fetch(f, 0, f->run);
    assert_int_equal(events_of(f, 0).n, 3);
    log = open_log(f, 0);
    happen(f, 0, log, STK_EV_RUN_ENDED, UINT32_MAX, "{\"status\":\"succeeded\"}");
    close_log(log);
    fetch(f, 1, f->run);
    seen here = events_of(f, 0), other = events_of(f, 1);
    assert_string_equal(here.text, other.text);
}

/* Two machines take the run over in turn: each one gets the events of the other. */
static void test_back(void **state)
{
    fixture *f = *state;
    stk_remote_log *log = open_log(f, 0);
    begin(f, log);
    close_log(log);
    for (int round = 1; round < 5; round++) {
        int i = round % 2;
        fetch(f, i, f->run);
        log = open_log(f, i);
        happen(f, i, log, STK_EV_NOTE, UINT32_MAX, "{\"text\":\"another round\"}");
        close_log(log);
    }
    fetch(f, 1, f->run);
    fetch(f, 0, f->run);
    seen here = events_of(f, 0), other = events_of(f, 1);
    assert_string_equal(here.text, other.text);
    assert_int_equal(here.n, 7);
}

/* Tags set outside the engine reach the share: during the run, at its end, and later. */
static void test_added(void **state)
{
    fixture *f = *state;
    stk_err err = {0};
    stk_remote_log_config config = {.store = f->stores[0], .share_url = f->share, .run = f->run};
    stk_remote_log *log = open_log(f, 0);
    begin(f, log);
    OK(stk_store_tag_run(f->stores[0], f->run, "[]", "[\"during\"]", 7, &err));
    happen(f, 0, log, STK_EV_RUN_ENDED, UINT32_MAX, "{\"status\":\"succeeded\"}");
    OK(stk_store_tag_run(f->stores[0], f->run, "[\"during\"]", "[\"end\"]", 8, &err));
    OK(stk_remote_log_publish(&config, NULL, &err)); /* the run's engine does this itself */
    close_log(log);
    fetch(f, 1, f->run);
    seen here = events_of(f, 0), other = events_of(f, 1);
    assert_string_equal(here.text, other.text);
    assert_int_equal(other.n, 6);
    close(f->lock);
    f->lock = -1;
    OK(stk_store_tag_run(f->stores[0], f->run, "[\"end\"]", "[\"after\"]", 9, &err));
    OK(stk_remote_log_may_add(f->stores[0], f->run, &err));
    OK(stk_remote_log_publish(&config, NULL, &err));
    OK(stk_remote_log_publish(&config, NULL, &err)); /* nothing new to publish */
    fetch(f, 1, f->run);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_run_row *rows = NULL;
    uint32_t n = 0;
    OK(stk_store_list_runs(f->stores[1], NULL, "[\"after\"]", 10, arena, &rows, &n, &err));
    assert_int_equal(n, 1);
    /* the run has ended, so the other machine may publish too; then the first one is out of date */
    config.store = f->stores[1];
    OK(stk_store_tag_run(f->stores[1], f->run, "[\"after\"]", "[\"there\"]", 10, &err));
    OK(stk_remote_log_publish(&config, NULL, &err));
    config.store = f->stores[0];
    OK(stk_store_tag_run(f->stores[0], f->run, "[\"after\"]", "[\"late\"]", 10, &err));
    assert_int_equal(stk_remote_log_publish(&config, NULL, &err), STK_E_BUSY);
}

/* Tagging a run must not fence the engine that runs it on another machine. */
static void test_not_added(void **state)
{
    fixture *f = *state;
    stk_err err = {0};
    stk_remote_log *log = open_log(f, 0);
    begin(f, log);
    stk_err wait = {0};
    OK(stk_remote_log_wait(log, 20000, &wait));
    fetch(f, 1, f->run);
    assert_int_equal(stk_remote_log_may_add(f->stores[1], f->run, &err), STK_E_BUSY);
    stk_remote_log_config config = {.store = f->stores[1], .share_url = f->share, .run = f->run};
    assert_int_equal(stk_remote_log_publish(&config, NULL, &err), STK_E_BUSY);
    OK(stk_remote_log_check(log, &err));
    close_log(log);
}

/* Taking a run over also fetches its cache entries; fetching it only to read doesn't. */
static void test_cache(void **state)
{
    fixture *f = *state;
    stk_err err = {0};
    stk_cache_row got, row = {.key = "aa11",
                              .pipeline = "p",
                              .step = "s",
                              .parts = "{\"code\":\"1\"}",
                              .run = f->run,
                              .task = 3,
                              .created_ms = 77,
                              .outputs = "{\"m\":1.50}",
                              .seen = "{\"/a.py\":\"\"}"};
    stk_event_row event = {.kind = STK_EV_TASK_SUCCEEDED,
                           .task = 3,
                           .attempt = 1,
                           .data = "{\"outputs\":{},\"key\":\"aa11\"}"};
    stk_commit commit = {.events = &event, .n_events = 1, .cache = &row, .n_cache = 1};
    stk_remote_log *log = open_log(f, 0);
    OK(stk_store_commit(f->stores[0], f->run, &commit, &err));
    stk_remote_log_told(log, event.seq);
    close_log(log);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    char id[40], path[100];
    stk_store *reader = NULL;
    (void)snprintf(path, sizeof path, "%s/reader", f->root);
    OK(stk_store_open(path, STK_STORE_CREATE, &reader, &err));
    OK(stk_remote_log_fetch(f->share, f->run, reader, false, id, &err));
    assert_int_equal(stk_store_cache_read(reader, "aa11", arena, &got, &err), STK_E_NOT_FOUND);
    stk_store_close(reader);
    fetch(f, 1, f->run);
    OK(stk_store_cache_read(f->stores[1], "aa11", arena, &got, &err));
    assert_string_equal(got.run, f->run);
    assert_string_equal(got.pipeline, "p");
    assert_string_equal(got.step, "s");
    assert_string_equal(got.parts, row.parts);
    assert_string_equal(got.outputs, row.outputs);
    assert_null(got.metadata);
    assert_string_equal(got.seen, row.seen);
    assert_int_equal(got.task, 3);
    assert_int_equal(got.created_ms, 77);
}

typedef struct racer {
    fixture *f;
    int i, rc;
    stk_remote_log *log;
    pthread_barrier_t *start;
} racer;

static void *race(void *arg)
{
    racer *r = arg;
    stk_err err = {0};
    stk_remote_log_config config = {.store = r->f->stores[r->i],
                                    .share_url = r->f->share,
                                    .run = r->f->run,
                                    .name = "mine",
                                    .pipeline = "p"};
    (void)pthread_barrier_wait(r->start);
    r->rc = stk_remote_log_open(&config, &r->log, &err);
    r->rc = r->rc < 0 ? r->rc : stk_remote_log_begin(r->log, &err);
    return NULL;
}

/* Two engines open the run at once: only one of them ends up with it. */
static void test_race(void **state)
{
    fixture *f = *state;
    stk_remote_log *log = open_log(f, 0);
    begin(f, log);
    close_log(log);
    for (int round = 0; round < 20; round++) {
        pthread_barrier_t start;
        pthread_t threads[2];
        racer racers[2];
        (void)pthread_barrier_init(&start, NULL, 2);
        for (int i = 0; i < 2; i++) {
            fetch(f, i, f->run);
            racers[i] = (racer){.f = f, .i = i, .start = &start};
            (void)pthread_create(&threads[i], NULL, race, &racers[i]);
        }
        for (int i = 0; i < 2; i++) {
            (void)pthread_join(threads[i], NULL);
            assert_true(racers[i].rc == 0 || racers[i].rc == STK_E_BUSY);
        }
        (void)pthread_barrier_destroy(&start);
        /* both succeed only if one opened after the other; the first one is then fenced */
        assert_true(racers[0].rc == 0 || racers[1].rc == 0);
        for (int i = 0; i < 2; i++) {
            close_log(racers[i].log); /* the slower one's, too */
        }
    }
    fetch(f, 0, f->run);
    fetch(f, 1, f->run);
    seen here = events_of(f, 0), other = events_of(f, 1);
    assert_string_equal(here.text, other.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_brought_whole, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_same_machine, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost_mark, setup, teardown),
        cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
        cmocka_unit_test_setup_teardown(test_strange_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_added, setup, teardown),
        cmocka_unit_test_setup_teardown(test_not_added, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cache, setup, teardown),
        cmocka_unit_test_setup_teardown(test_race, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
