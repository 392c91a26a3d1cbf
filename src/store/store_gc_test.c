/* Maintenance: verify finds damage, and gc removes only artifacts that nothing refers to. */
#include <fcntl.h>
#include <signal.h>

#include "base/failpoint.h"
#include "store/store_testing.h"

typedef struct found {
    int n;
    char text[8][200];
} found;

static void note_bad(void *arg, const char *digest, const char *what)
{
    found *b = arg;
    if (b->n < 8) {
        (void)snprintf(b->text[b->n], sizeof b->text[0], "%.12s %s", digest, what);
    }
    b->n++;
}

static const char *add(fixture *f, const char *text)
{
    stk_artifact a;
    OK(stk_store_add_bytes(f->store, text, strlen(text), &a, &f->err));
    return stk_arena_dup(f->arena, a.digest);
}

static bool is_there(fixture *f, const char *digest)
{
    STK_TEXT_AUTO path = stk_store_artifact_path(f->store, digest);
    return stk_file_exists(path);
}

static void end_run(fixture *f, const char *run, int64_t ms)
{
    OK(commit_one(f, run, STK_EV_RUN_ENDED, ms, "{\"status\":\"succeeded\"}"));
}

static void test_verify(void **state)
{
    fixture *f = *state;
    found b = {0};
    uint64_t n = 0;
    uint64_t bytes = 0;
    const char *good = add(f, "good");
    const char *changed = add(f, "will change");
    const char *gone = add(f, "will go");
    commit_ref(f, new_run(f, NULL, "p", 0), good);
    OK(stk_store_verify(f->store, note_bad, &b, &n, &bytes, &f->err));
    assert_int_equal(b.n, 0);
    assert_int_equal(n, 3);
    assert_int_equal(bytes, 4 + 11 + 7);
    STK_TEXT_AUTO path = stk_store_artifact_path(f->store, changed);
    STK_TEXT_AUTO gone_path = stk_store_artifact_path(f->store, gone);
    assert_int_equal(chmod(path, 0644), 0);
    OK(stk_file_write(path, "has changed", 11, 0444, &f->err));
    assert_int_equal(unlink(gone_path), 0);
    OK(stk_store_verify(f->store, note_bad, &b, &n, &bytes, &f->err));
    assert_int_equal(b.n, 2);
    int i_changed = strncmp(b.text[0], changed, 12) != 0;
    assert_memory_equal(b.text[i_changed], changed, 12);
    assert_non_null(strstr(b.text[i_changed], "changed"));
    assert_memory_equal(b.text[!i_changed], gone, 12);
    assert_non_null(strstr(b.text[!i_changed], "missing"));
    STK_TEXT_AUTO aside = NULL;
    OK(stk_store_set_aside(f->store, changed, &aside, &f->err));
    STK_TEXT_AUTO nothing = NULL;
    OK(stk_store_set_aside(f->store, gone, &nothing, &f->err));
    b.n = 0;
    OK(stk_store_verify(f->store, note_bad, &b, &n, &bytes, &f->err));
    assert_int_equal(b.n, 0);
    assert_int_equal(n, 1);
    assert_false(is_there(f, changed));
}

static stk_gc collect(fixture *f, int64_t keep_ms, uint32_t keep_runs, bool dry, int64_t now)
{
    stk_gc gc = {.dry_run = dry, .keep_ms = keep_ms, .keep_runs = keep_runs};
    OK(stk_store_gc(f->store, &gc, now, &f->err));
    return gc;
}

static void test_keep_rules(void **state)
{
    fixture *f = *state;
    const char *runs[6];
    for (int i = 0; i < 6; i++) { /* three of p, three of q, ended at 100, 200 … 600 */
        runs[i] = new_run(f, NULL, i < 3 ? "p" : "q", i);
        end_run(f, runs[i], 100 * (i + 1));
    }
    static const struct {
        int64_t keep_ms, now;
        uint32_t keep_runs;
        uint64_t removed;
    } cases[] = {{10000, 700, 0, 0}, {0, 700, 3, 0},   {0, 700, 2, 2},
                 {150, 700, 1, 4},   {350, 700, 0, 3}, {0, 700, 0, 6}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_gc gc = collect(f, cases[i].keep_ms, cases[i].keep_runs, true, cases[i].now);
        assert_int_equal(gc.runs_removed, cases[i].removed);
    }
    assert_int_equal(number(f, "SELECT count(*) FROM runs"), 6); /* dry runs remove nothing */
    int fd = -1;
    OK(stk_store_lock_run(f->store, runs[0], &fd, &f->err)); /* live, so it is kept */
    stk_gc gc = collect(f, 0, 1, false, 700);
    assert_int_equal(gc.runs_removed, 3);
    stk_file_close(&fd);
    assert_int_equal(number(f, "SELECT count(*) FROM runs"), 3);
    assert_int_equal(number(f, "SELECT count(*) FROM events"), 3);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(stk_file_exists(stk_store_run_folder(f->store, runs[i], f->arena)),
                         i == 0 || i == 2 || i == 5);
    }
}

/* Each kind of reference alone keeps an artifact. */
static void test_referred(void **state)
{
    fixture *f = *state;
    const char *by_event = add(f, "by an event");
    const char *by_ref = add(f, "by a ref");
    const char *by_cache = add(f, "by a cache entry");
    const char *by_hit = add(f, "by a cache entry of a removed run, hit by a kept one");
    const char *by_name = add(f, "by a name");
    const char *by_named_ref = add(f, "inside a name's ref");
    const char *by_spec = add(f, "by a spec");
    const char *by_old = add(f, "by a removed run only");
    const char *by_old_cache = add(f, "by a cache entry of a removed run");
    const char *by_none = add(f, "by nothing");
    const char *old = new_run(f, NULL, "p", 0);
    char kept[40];
    int fd = -1;
    const char *spec = stk_arena_printf(f->arena, "{\"artifact\":\"%s\"}", by_spec);
    OK(stk_store_new_run(f->store, NULL, "p", spec, strlen(spec), 1, kept, &fd, &f->err));
    stk_file_close(&fd);

#define OUT(d) stk_arena_printf(f->arena, "{\"o\":{\"digest\":\"%s\"}}", d)
    stk_cache_row caches[] = {
        {.key = "a", .pipeline = "p", .step = "s", .run = kept, .outputs = OUT(by_cache)},
        {.key = "b", .pipeline = "p", .step = "s", .run = old, .outputs = OUT(by_hit)},
        {.key = "c", .pipeline = "p", .step = "s", .run = old, .outputs = OUT(by_old_cache)}};
    stk_event_row e = {.kind = STK_EV_TASK_SUCCEEDED, .data = OUT(by_event)};
    stk_event_row hit = {.kind = STK_EV_TASK_CACHED, .task = 1, .data = "{\"key\":\"b\"}"};
    stk_event_row gone = {.kind = STK_EV_TASK_SUCCEEDED, .data = OUT(by_old)};
    stk_ref_row ref = {.digest = by_ref, .output = "o"};
    stk_commit commits[] = {{.events = &e, .n_events = 1, .refs = &ref, .n_refs = 1},
                            {.events = &hit, .n_events = 1, .cache = caches, .n_cache = 3}};
    stk_commit of_old = {.events = &gone, .n_events = 1};
    OK(stk_store_commit(f->store, kept, &commits[0], &f->err));
    OK(stk_store_commit(f->store, kept, &commits[1], &f->err));
    OK(stk_store_commit(f->store, old, &of_old, &f->err));
    stk_named_row name = {.name = "n", .digest = by_name, .run = old, .ref = OUT(by_named_ref)};
    OK(stk_store_add_named(f->store, &name, &f->err));
    end_run(f, old, 5);
    end_run(f, kept, 6);
    /* "by nothing" has a file but no row, as when its engine died before the commit */
    OK(stk_store_exec(f->store, "DELETE FROM artifacts WHERE size = 10", &f->err));

    static const char log[] = "what the removed run has said";
    const char *folder = stk_store_run_folder(f->store, old, f->arena);
    stk_gc without = collect(f, 0, 1, true, 100);
    OK(stk_file_write(stk_arena_printf(f->arena, "%s/log", folder), log, strlen(log), 0644,
                      &f->err));

    stk_gc dry = collect(f, 0, 1, true, 100);
    assert_true(is_there(f, by_none));
    stk_gc gc = collect(f, 0, 1, false, 100);
    assert_int_equal(gc.runs_removed, 1);
    assert_int_equal(gc.artifacts_removed, 3);
    assert_int_equal(dry.artifacts_removed, gc.artifacts_removed);
    assert_int_equal(dry.bytes_freed, gc.bytes_freed);
    assert_int_equal(gc.bytes_freed, without.bytes_freed + strlen(log));
    assert_true(without.bytes_freed > strlen("by nothing"
                                             "by a removed run only"
                                             "by a cache entry of a removed run"));
    const char *there[] = {by_event, by_ref, by_cache, by_hit, by_name, by_named_ref, by_spec};
    for (size_t i = 0; i < sizeof there / sizeof there[0]; i++) {
        if (!is_there(f, there[i])) {
            fail_msg("artifact %zu is gone", i);
        }
    }
    assert_false(is_there(f, by_old));
    assert_false(is_there(f, by_old_cache));
    assert_false(is_there(f, by_none));
    assert_int_equal(number(f, "SELECT count(*) FROM cache"), 2);
    found b = {0};
    uint64_t n;
    uint64_t bytes;
    OK(stk_store_verify(f->store, note_bad, &b, &n, &bytes, &f->err));
    assert_int_equal(b.n, 0);
    assert_int_equal(n, 7);
}

/* gc waits while another process has added artifacts but not committed their rows. */
static void test_waits(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 0);
    const char *digest = add(f, "not yet committed");
    pid_t pid = fork();
    if (pid == 0) { /* its gc waits for the parent's commit */
        stk_gc gc = {.keep_runs = 10};
        stk_store *other = NULL;
        _exit(stk_store_open(f->path, 0, &other, &f->err) != 0 ||
              stk_store_gc(other, &gc, 10, &f->err) != 0 || gc.artifacts_removed != 0);
    }
    (void)usleep(100000);
    assert_true(is_there(f, digest));
    commit_ref(f, run, digest);
    int status = 1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(is_there(f, digest));
}

static const char *old_run;

static void collect_all(fixture *f)
{
    stk_gc gc = {0};
    (void)stk_store_gc(f->store, &gc, 1000, &f->err);
}

static void test_killed(void **state)
{
    fixture *f = *state;
    static const char *const points[] = {"store.gc.rows:1:kill", "store.gc.mid:1:kill",
                                         "store.gc.mid:2:kill"};
    for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
        old_run = new_run(f, NULL, "p", 0);
        const char *a = add(f, "one");
        const char *b = add(f, "two");
        const char *kept = add(f, "kept");
        commit_ref(f, old_run, a);
        stk_named_row name = {.name = "n", .version = "1", .digest = kept};
        OK(stk_store_add_named(f->store, &name, &f->err));
        end_run(f, old_run, 5);
        int status = in_child(f, points[i], collect_all);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        found bad = {0};
        uint64_t n;
        uint64_t bytes;
        OK(stk_store_verify(f->store, note_bad, &bad, &n, &bytes, &f->err));
        assert_int_equal(bad.n, 0);
        collect_all(f);
        assert_false(is_there(f, a));
        assert_false(is_there(f, b));
        assert_true(is_there(f, kept));
        assert_false(stk_file_exists(stk_store_run_folder(f->store, old_run, f->arena)));
        assert_int_equal(number(f, "SELECT count(*) FROM runs"), 0);
    }
}

/* Checkpoints: complete ones count, with their last change; incomplete ones can be cleaned up. */
static void test_checkpoints(void **state)
{
    fixture *f = *state;
    const char *folder =
        stk_store_checkpoint_folder(f->store, "20200101-000000-abcdef", "a", 0, f->arena);
    stk_checkpoints seen;
    stk_store_checkpoints_look(folder, &seen);
    assert_int_equal(seen.n, 0);
    assert_int_equal(seen.newest_ns, -1);
    assert_int_equal(stk_store_checkpoints_bytes(folder), -1);
    OK(stk_store_checkpoints_clean(folder, true, &f->err));
    OK(stk_file_mkdirs(stk_arena_printf(f->arena, "%s/one/sub", folder), 0755, &f->err));
    OK(stk_file_mkdirs(stk_arena_printf(f->arena, "%s/.two/sub", folder), 0755, &f->err));
    static const char *const files[] = {"one/sub/file", ".two/sub/file", ".three", "four"};
    for (size_t i = 0; i < 4; i++) {
        const char *path = stk_arena_printf(f->arena, "%s/%s", folder, files[i]);
        OK(stk_file_write(path, "12345", 5, 0444, &f->err));
    }
    stk_store_checkpoints_look(folder, &seen);
    assert_int_equal(seen.n, 2);
    assert_true(seen.newest_ns > 0);
    assert_int_equal(stk_store_checkpoints_bytes(folder), 10);
    int64_t before = seen.newest_ns;
    OK(rename(stk_arena_printf(f->arena, "%s/.three", folder),
              stk_arena_printf(f->arena, "%s/three", folder)));
    stk_store_checkpoints_look(folder, &seen);
    assert_int_equal(seen.n, 3);
    assert_true(seen.newest_ns >= before);
    OK(stk_store_checkpoints_clean(folder, false, &f->err));
    assert_false(stk_file_exists(stk_arena_printf(f->arena, "%s/.two", folder)));
    assert_true(stk_file_exists(stk_arena_printf(f->arena, "%s/one/sub/file", folder)));
    OK(stk_store_checkpoints_clean(folder, true, &f->err));
    stk_store_checkpoints_look(folder, &seen);
    assert_int_equal(seen.n, 0);
    assert_true(stk_file_exists(folder));
}

/* gc removes the runs in `only`, all or none, and artifacts that only those runs refer to. */
static void test_named_runs(void **state)
{
    fixture *f = *state;
    const char *shared = add(f, "of both");
    const char *own = add(f, "of one");
    const char *one = stk_arena_dup(f->arena, new_run(f, NULL, "p", 1));
    commit_ref(f, one, shared);
    commit_ref(f, one, own);
    end_run(f, one, 2);
    const char *two = stk_arena_dup(f->arena, new_run(f, NULL, "p", 3));
    commit_ref(f, two, shared);
    end_run(f, two, 4);

    stk_gc gc = {.only = (const char *const[]){one, "20200101-000000-abcdef"}, .n_only = 2};
    assert_int_equal(stk_store_gc(f->store, &gc, 5, &f->err), STK_E_NOT_FOUND);
    int lock = -1;
    OK(stk_store_lock_run(f->store, two, &lock, &f->err));
    gc.only = (const char *const[]){one, two};
    assert_int_equal(stk_store_gc(f->store, &gc, 5, &f->err), STK_E_BUSY);
    assert_non_null(strstr(f->err.text, two));
    close(lock);
    assert_int_equal(number(f, "SELECT count(*) FROM runs"), 2);
    assert_true(is_there(f, own));

    gc.only = (const char *const[]){one, one};
    OK(stk_store_gc(f->store, &gc, 5, &f->err));
    assert_int_equal(gc.runs_removed, 1);
    assert_int_equal(gc.artifacts_removed, 1);
    assert_false(is_there(f, own));
    assert_true(is_there(f, shared));
    assert_false(stk_file_exists(stk_store_run_folder(f->store, one, f->arena)));
    found bad = {0};
    uint64_t n;
    uint64_t bytes;
    OK(stk_store_verify(f->store, note_bad, &bad, &n, &bytes, &f->err));
    assert_int_equal(bad.n, 0);
    assert_int_equal(n, 1);
}

/* A name changes only if it is still as the caller read it; gc removes content without a name. */
static void test_names(void **state)
{
    fixture *f = *state;
    const char *digest = add(f, "named");
    stk_named_row row = {.name = "model", .version = "1", .digest = digest, .ref = "{}"};
    OK(stk_store_add_named(f->store, &row, &f->err));
    row.version = "2";
    OK(stk_store_add_named(f->store, &row, &f->err));
    assert_int_equal(stk_store_set_named_ref(f->store, "model", "1", "{\"a\":1}", "{}", &f->err),
                     STK_E_BUSY);
    OK(stk_store_set_named_ref(f->store, "model", "1", "{}", "{\"a\":1}", &f->err));
    assert_int_equal(number(f, "SELECT count(*) FROM named WHERE ref = '{\"a\":1}'"), 1);
    uint32_t n = 0;
    assert_int_equal(stk_store_remove_named(f->store, "model", "3", &n, &f->err), STK_E_NOT_FOUND);
    OK(stk_store_remove_named(f->store, "model", "1", &n, &f->err));
    assert_int_equal(n, 1);
    collect_all(f);
    assert_true(is_there(f, digest)); /* version 2 still names it */
    OK(stk_store_remove_named(f->store, "model", NULL, &n, &f->err));
    collect_all(f);
    assert_false(is_there(f, digest));
}

/* gc doesn't remove things in runs/ that no store has made. */
static void test_strangers(void **state)
{
    fixture *f = *state;
    const char *mine = stk_arena_printf(f->arena, "%s/runs/my notes", f->path);
    const char *dead = stk_arena_printf(f->arena, "%s/runs/20200101-000000-abcdef", f->path);
    OK(stk_file_mkdirs(mine, 0755, &f->err));
    OK(stk_file_mkdirs(dead, 0755, &f->err));
    (void)collect(f, 0, 0, false, 100);
    assert_true(stk_file_exists(mine));
    assert_false(stk_file_exists(dead));
}

/* If anything can't be read while gc looks for what to keep, gc removes nothing. */
static void test_unreadable(void **state)
{
    fixture *f = *state;
    const char *old = new_run(f, NULL, "p", 0);
    const char *run = new_run(f, NULL, "p", 1000);
    const char *kept = add(f, "named by a document");
    const char *gone = add(f, "named by nothing");
    STK_TEXT_AUTO spec = NULL;
    char text[128];
    commit_ref(f, run, add(f, "an output"));
    end_run(f, run, 2000);
    end_run(f, old, 2000);
    (void)snprintf(text, sizeof text, "{\"code\":\"%s\"}", kept);
    assert_true(asprintf(&spec, "%s/runs/%s/spec.json", f->path, run) > 0);
    OK(stk_file_write(spec, text, strlen(text), 0644, &f->err));
    static const char *const points[] = {"store.gc.spec", "store.run.look", "sys.dir.open",
                                         "sys.dir.read"};
    static const char *const faults[] = {"eio", "emfile", "enomem", "eacces"};
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
            char rule[80];
            stk_gc gc = {.keep_runs = 1};
            (void)snprintf(rule, sizeof rule, "%s:1:%s", points[i], faults[k]);
            (void)setenv("STOKER_FAILPOINTS", rule, 1);
            stk_failpoint_reload();
            int rc = stk_store_gc(f->store, &gc, 5000, &f->err);
            (void)unsetenv("STOKER_FAILPOINTS");
            stk_failpoint_reload();
            if (rc >= 0 || strstr(f->err.text, "nothing is removed") == NULL) {
                fail_msg("%s: %d, %s", rule, rc, f->err.text);
            }
            assert_true(is_there(f, kept));
            assert_true(is_there(f, gone));
            OK(stk_store_run_row(f->store, old, NULL, &f->err));
        }
    }
    (void)unlink(spec);
    assert_int_equal(mkdir(spec, 0700), 0); /* root can't read it either */
    stk_gc gc = {.keep_runs = 1};
    assert_true(stk_store_gc(f->store, &gc, 5000, &f->err) < 0);
    assert_true(is_there(f, kept));
    (void)rmdir(spec);
    OK(stk_file_write(spec, text, strlen(text), 0644, &f->err));
    OK(stk_store_gc(f->store, &gc, 5000, &f->err));
    assert_true(is_there(f, kept));
    assert_false(is_there(f, gone));
    assert_int_equal(gc.runs_removed, 1);
}

/* gc shrinks a database that is mostly free pages. */
static void test_shrinks(void **state)
{
    fixture *f = *state;
    char *note = stk_arena_alloc(f->arena, 100001);
    memset(note, 'n', 100000);
    memcpy(note, "{\"text\":\"", 9);
    memcpy(note + 99998, "\"}", 3);
    const char *run = new_run(f, NULL, "p", 0);
    for (int i = 0; i < 40; i++) {
        OK(commit_one(f, run, STK_EV_NOTE, i, note));
    }
    end_run(f, run, 50);
    int64_t before = number(f, "PRAGMA page_count");
    stk_gc gc = collect(f, 0, 0, false, 100);
    assert_int_equal(gc.runs_removed, 1);
    assert_true(number(f, "PRAGMA page_count") < before / 4);
    OK(commit_one(f, new_run(f, NULL, "p", 0), STK_EV_NOTE, 1, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_verify),    TEST(test_keep_rules),  TEST(test_referred),   TEST(test_waits),
        TEST(test_killed),    TEST(test_checkpoints), TEST(test_unreadable), TEST(test_shrinks),
        TEST(test_strangers), TEST(test_named_runs),  TEST(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
