/* Opening: finding a store, its versions, and stores that are damaged, foreign or not writable. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/store_testing.h"
#include "sys/dir.h"

static void test_find(void **state)
{
    fixture *f = *state;
    STK_TEXT_AUTO below = NULL;
    STK_TEXT_AUTO fresh = NULL;
    STK_TEXT_AUTO env = NULL;
    char *none = NULL;
    (void)unsetenv("STOKER_STORE");
    OK(stk_file_mkdirs(at(f, "a/b"), 0755, &f->err));
    assert_int_equal(stk_store_find(at(f, "a/b"), 0, &none, &f->err), STK_E_NOT_FOUND);
    assert_non_null(strstr(f->err.hint, f->path)); /* outside of a project: named, not used */
    OK(stk_file_write(at(f, "pyproject.toml"), "", 0, 0644, &f->err));
    OK(stk_store_find(at(f, "a/b"), 0, &below, &f->err));
    assert_string_equal(below, f->path);
    OK(stk_store_find("/proc/self", STK_STORE_CREATE, &fresh, &f->err));
    assert_string_equal(fresh, "/proc/self/.stoker");
    assert_int_equal(stk_store_find("/proc/self", 0, &none, &f->err), STK_E_NOT_FOUND);
    assert_non_null(strstr(f->err.text, "/proc/self"));
    (void)setenv("STOKER_STORE", "x/../y", 1);
    OK(stk_store_find("/proc/self", 0, &env, &f->err));
    assert_string_equal(env, "/proc/self/y");
    (void)setenv("STOKER_STORE", "s3://bucket/x", 1);
    assert_int_equal(stk_store_find("/", 0, &none, &f->err), STK_E_USAGE);
    (void)unsetenv("STOKER_STORE");
    assert_int_equal(stk_store_open(at(f, "nowhere"), 0, &f->store, &f->err), STK_E_NOT_FOUND);
    assert_null(none);
}

static int open_error(fixture *f, int flags)
{
    stk_store *none = NULL;
    int rc = stk_store_open(f->path, flags, &none, &f->err);
    assert_null(none);
    return rc;
}

static void test_newer(void **state)
{
    fixture *f = *state;
    OK(stk_store_exec(f->store, "PRAGMA user_version = 9", &f->err));
    stk_store_close(f->store);
    f->store = NULL;
    static const int flags[] = {0, STK_STORE_CREATE, STK_STORE_READONLY};
    for (int i = 0; i < 3; i++) {
        char want[256];
        assert_int_equal(open_error(f, flags[i]), STK_E_VERSION);
        (void)snprintf(
            want, sizeof want,
            "store %s was written by a newer Stoker (its format is 9, this Stoker's is %d)",
            f->path, STK_STORE_FORMAT);
        assert_string_equal(f->err.text, want);
        assert_non_null(strstr(f->err.hint, "STOKER_STORE"));
    }
}

/* A made-up history: format 1 with a column that format 2 splits in two. */
static void test_migrate(void **state)
{
    fixture *f = *state;
    static const char *const history[] = {
        "CREATE TABLE t(a TEXT)",
        "ALTER TABLE t ADD COLUMN b TEXT; UPDATE t SET b = substr(a, 2), a = substr(a, 1, 1)",
        "UPDATE t SET b = 'lost'; SELECT no_such_function()"};
    sqlite3 *real = f->store->db;
    sqlite3_stmt *stmts[STK_SQL_N];
    memcpy(stmts, f->store->stmts, sizeof stmts);
    OK(sqlite3_open(at(f, "old.db"), &f->store->db));
    for (int i = STK_SQL_BEGIN; i <= STK_SQL_COMMIT; i++) {
        (void)sqlite3_prepare_v2(f->store->db, i == STK_SQL_BEGIN ? "BEGIN IMMEDIATE" : "COMMIT",
                                 -1, &f->store->stmts[i], NULL);
    }
    OK(stk_store_migrate(f->store, history, 1, &f->err));
    OK(stk_store_exec(f->store, "INSERT INTO t VALUES('xyz')", &f->err));
    OK(stk_store_migrate(f->store, history, 2, &f->err));
    assert_int_equal(number(f, "SELECT count(*) FROM t WHERE a = 'x' AND b = 'yz'"), 1);
    OK(stk_store_migrate(f->store, history, 2, &f->err)); /* nothing to do */
    /* A migration that fails leaves everything as it was. */
    assert_int_equal(stk_store_migrate(f->store, history, 3, &f->err), STK_E_STORE);
    assert_non_null(strstr(f->err.text, "from format 2 to 3"));
    assert_int_equal(number(f, "SELECT count(*) FROM t WHERE b = 'yz'"), 1);
    assert_int_equal(number(f, "PRAGMA user_version"), 2);
    f->store->flags = STK_STORE_READONLY;
    assert_int_equal(stk_store_migrate(f->store, history, 3, &f->err), STK_E_STORE);
    assert_non_null(strstr(f->err.text, "older format 2"));
    assert_int_equal(stk_store_migrate(f->store, history, 1, &f->err), STK_E_VERSION);
    f->store->flags = 0;
    for (int i = STK_SQL_BEGIN; i <= STK_SQL_COMMIT; i++) {
        (void)sqlite3_finalize(f->store->stmts[i]);
    }
    (void)sqlite3_close(f->store->db);
    f->store->db = real;
    memcpy(f->store->stmts, stmts, sizeof stmts);
}

static void count_bad(void *arg, const char *digest, const char *what)
{
    assert_string_equal(digest, "store.db");
    assert_non_null(what);
    ++*(int *)arg;
}

static void test_damaged(void **state)
{
    fixture *f = *state;
    const char *db = stk_arena_printf(f->arena, "%s/store.db", f->path);
    char *note = stk_arena_alloc(f->arena, 20001);
    memset(note, 'n', 20000);
    memcpy(note, "{\"text\":\"", 9);
    memcpy(note + 19998, "\"}", 3);
    const char *run = new_run(f, NULL, "p", 0);
    for (int i = 0; i < 20; i++) {
        OK(commit_one(f, run, STK_EV_NOTE, i, note));
    }
    stk_store_close(f->store);
    f->store = NULL;
    char *good = NULL;
    size_t len = 0;
    OK(stk_file_read(db, SIZE_MAX, &good, &len, &f->err));
    static const struct {
        const char *what;
        size_t keep; /* good bytes, then garbage up to `to` */
        size_t to;
    } cases[] = {{"garbage", 0, 5000},
                 {"truncated", 8192, 8192},
                 {"empty", 0, 0},
                 {"cut in the header", 50, 50}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *bad = calloc(1, 20000);
        memset(bad, 0x55, 20000);
        memcpy(bad, good, cases[i].keep);
        OK(stk_file_write(db, bad, cases[i].to, 0644, &f->err));
        free(bad);
        for (int k = 0; k < 2; k++) {
            int rc = open_error(f, k == 0 ? 0 : STK_STORE_READONLY);
            if (rc != STK_E_STORE || strstr(f->err.text, f->path) == NULL ||
                f->err.hint[0] == '\0') {
                fail_msg("%s: %d: %s; %s", cases[i].what, rc, f->err.text, f->err.hint);
            }
        }
        STK_TEXT_AUTO now = NULL;
        size_t now_len = 0;
        OK(stk_file_read(db, SIZE_MAX, &now, &now_len, &f->err));
        assert_int_equal(now_len, cases[i].to); /* kept for a repair */
    }
    OK(stk_file_write(db, good, len, 0644, &f->err));
    reopen(f, 0);
    assert_int_equal(number(f, "SELECT count(*) FROM events"), 20);
    stk_store_close(f->store);
    f->store = NULL;
    /* Damaged pages in the middle: a read reports them and returns no false data. */
    char *bad = malloc(len);
    memcpy(bad, good, len);
    memset(bad + len / 2, 0x55, len / 4);
    OK(stk_file_write(db, bad, len, 0644, &f->err));
    free(bad);
    free(good);
    int n_bad = 0;
    uint64_t n;
    uint64_t bytes;
    int rc = stk_store_open(f->path, 0, &f->store, &f->err);
    if (rc == 0) {
        rc = stk_store_verify(f->store, count_bad, &n_bad, &n, &bytes, &f->err);
    }
    assert_true(rc == STK_E_STORE || (rc == 0 && n_bad > 0));
}

static void test_foreign(void **state)
{
    fixture *f = *state;
    OK(stk_store_exec(f->store, "PRAGMA application_id = 1234", &f->err));
    stk_store_close(f->store);
    f->store = NULL;
    assert_int_equal(open_error(f, 0), STK_E_STORE);
    assert_non_null(strstr(f->err.text, "another program"));
}

static int no_event(void *arg, const stk_event_row *row)
{
    (void)row;
    ++*(int *)arg;
    return 0;
}

/* All reads work, all writes fail. */
static void check_readonly(fixture *f, const char *run, const char *digest)
{
    char id[40];
    int fd = -1;
    int n = 0;
    stk_artifact a;
    stk_cache_row row;
    const char *path = NULL;
    OK(stk_store_resolve_run(f->store, "latest", id, &f->err));
    assert_string_equal(id, run);
    OK(stk_store_events(f->store, id, 0, no_event, &n, &f->err));
    assert_int_equal(n, 1);
    OK(stk_store_artifact(f->store, digest, f->arena, &path, NULL, &f->err));
    assert_int_equal(stk_store_cache_get(f->store, "none", f->arena, &row, &f->err),
                     STK_E_NOT_FOUND);
    assert_int_equal(commit_one(f, run, STK_EV_NOTE, 1, NULL), STK_E_STORE);
    assert_int_equal(stk_store_add_bytes(f->store, "x", 1, &a, &f->err), STK_E_STORE);
    assert_int_equal(stk_store_new_run(f->store, NULL, "p", "{}", 2, 0, id, &fd, &f->err),
                     STK_E_STORE);
    stk_gc gc = {0};
    assert_int_equal(stk_store_gc(f->store, &gc, 0, &f->err), STK_E_STORE);
    OK(stk_store_sync(f->store, &f->err));
}

static void refused_as_lost(fixture *f, int flags)
{
    assert_int_equal(open_error(f, flags), STK_E_STORE);
    assert_non_null(strstr(f->err.text, "store.db isn't there"));
    assert_non_null(strstr(f->err.hint, "backup"));
}

/* A store's folder without a database and without runs, as a killed engine leaves it, isn't
 * damaged: it has no runs, and only an open with STK_STORE_CREATE writes to it. If there are runs
 * beside it, the database was lost. */
static void test_without_database(void **state)
{
    fixture *f = *state;
    stk_dir entries = {0};
    (void)snprintf(f->path, sizeof f->path, "%s/s", at(f, "made"));
    assert_int_equal(mkdir(at(f, "made"), 0755), 0);
    assert_int_equal(mkdir(f->path, 0755), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(open_error(f, i == 0 ? STK_STORE_READONLY : 0), STK_E_NOT_FOUND);
        assert_non_null(strstr(f->err.text, "has no run"));
    }
    OK(stk_dir_read(f->path, &entries, &f->err));
    assert_int_equal(entries.n, 0);
    stk_dir_done(&entries);
    assert_int_equal(mkdir(at(f, "made/s/runs"), 0755), 0);
    assert_int_equal(open_error(f, STK_STORE_READONLY), STK_E_NOT_FOUND);
    assert_int_equal(mkdir(at(f, "made/s/runs/20260101-000000-abcdef"), 0755), 0);
    refused_as_lost(f, STK_STORE_READONLY);
    refused_as_lost(f, 0);
    refused_as_lost(f, STK_STORE_CREATE);
    assert_int_not_equal(access(at(f, "made/s/store.db"), F_OK), 0);
    reopen(f, STK_STORE_CREATE | STK_STORE_OWN); /* an agent's store in a kept folder */
    stk_store_close(f->store);
    f->store = NULL;
    assert_int_equal(unlink(at(f, "made/s/store.db")), 0);
    assert_int_equal(rmdir(at(f, "made/s/runs/20260101-000000-abcdef")), 0);
    reopen(f, STK_STORE_CREATE); /* no runs: a new database */
}

static void test_readonly(void **state)
{
    fixture *f = *state;
    const char *disk = at(f, "disk");
    assert_int_equal(mkdir(disk, 0755), 0);
    bool mounted = mount("none", disk, "tmpfs", 0, "size=16m") == 0;
    (void)snprintf(f->path, sizeof f->path, "%s/s", disk);
    reopen(f, STK_STORE_CREATE);
    stk_artifact a;
    const char *run = new_run(f, NULL, "p", 0);
    OK(stk_store_add_bytes(f->store, "y", 1, &a, &f->err));
    OK(commit_one(f, run, STK_EV_NOTE, 1, NULL));
    /* a reader beside a writer sees the writer's changes */
    stk_store *writer = f->store;
    f->store = NULL;
    reopen(f, STK_STORE_READONLY);
    check_readonly(f, run, a.digest);
    stk_store_close(f->store);
    f->store = writer;
    reopen(f, STK_STORE_READONLY);
    check_readonly(f, run, a.digest);
    if (!mounted) {
        print_message("partly skipped: a tmpfs can't be mounted: %s\n", strerror(errno));
        return;
    }
    stk_store_close(f->store);
    f->store = NULL;
    assert_int_equal(mount("none", disk, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(open_error(f, 0), STK_E_STORE);
    assert_non_null(strstr(f->err.text, "can't be written"));
    reopen(f, STK_STORE_READONLY);
    check_readonly(f, run, a.digest);
    stk_store_close(f->store);
    f->store = NULL;
    /* changes in the write-ahead log can't be read there: open says so, and doesn't omit them */
    assert_int_equal(mount("none", disk, NULL, MS_REMOUNT, NULL), 0);
    const char *wal = stk_arena_printf(f->arena, "%s/store.db-wal", f->path);
    OK(stk_file_write(wal, "some changes", 12, 0644, &f->err));
    (void)unlink(stk_arena_printf(f->arena, "%s/store.db-shm", f->path));
    assert_int_equal(mount("none", disk, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
    assert_int_equal(open_error(f, STK_STORE_READONLY), STK_E_STORE);
    assert_non_null(strstr(f->err.text, "store.db-wal"));
}

/* Dies in the middle of a transaction, before the database has a write-ahead log: the file is half
 * changed, and the journal has its old content. */
static _Noreturn void die_in_transaction(const char *path)
{
    sqlite3 *db = NULL;
    if (sqlite3_open(path, &db) == SQLITE_OK &&
        sqlite3_exec(db,
                     "PRAGMA journal_mode = DELETE; PRAGMA cache_size = 1; BEGIN;"
                     "CREATE TABLE half AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 "
                     "FROM n WHERE i < 2000) SELECT i, randomblob(500) FROM n",
                     NULL, NULL, NULL) == SQLITE_OK) {
        (void)kill(getpid(), SIGKILL);
    }
    _exit(1);
}

/* A reader, too, finds the database as it was before the transaction. */
static void test_hot_journal(void **state)
{
    fixture *f = *state;
    int status = 0;
    const char *run = new_run(f, NULL, "p", 0);
    OK(commit_one(f, run, STK_EV_NOTE, 1, NULL));
    stk_store_close(f->store);
    f->store = NULL;
    const char *path = stk_arena_printf(f->arena, "%s/store.db", f->path);
    pid_t pid = fork();
    if (pid == 0) {
        die_in_transaction(path);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(access(stk_arena_printf(f->arena, "%s-journal", path), F_OK), 0);
    reopen(f, STK_STORE_READONLY);
    char found[40];
    OK(stk_store_resolve_run(f->store, run, found, &f->err));
}

static void test_journal(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 0);
    assert_non_null(strstr(stk_store_describe(f->store, f->arena), "write-ahead log"));
    (void)setenv("STOKER_JOURNAL", "delete", 1); /* as on a network file system */
    reopen(f, 0);
    assert_non_null(strstr(stk_store_describe(f->store, f->arena), "rollback journal"));
    assert_int_equal(number(f, "SELECT journal_mode = 'delete' FROM pragma_journal_mode"), 1);
    assert_int_equal(number(f, "PRAGMA synchronous"), 2);
    OK(commit_one(f, run, STK_EV_NOTE, 1, NULL));
    (void)unsetenv("STOKER_JOURNAL");
    reopen(f, 0);
    assert_int_equal(number(f, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"), 1);
    assert_int_equal(number(f, "SELECT count(*) FROM events"), 1);
    assert_int_equal(number(f, "PRAGMA synchronous"), 1);
}

/* Eight processes create the same store at once; each makes a run with 50 commits. */
static void test_together(void **state)
{
    fixture *f = *state;
    enum { N = 8, COMMITS = 50 };
    stk_store_close(f->store);
    f->store = NULL;
    (void)snprintf(f->path, sizeof f->path, "%s/together", f->dir);
    pid_t pids[N];
    for (int i = 0; i < N; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            char id[40];
            int fd;
            stk_artifact a;
            int rc = stk_store_open(f->path, STK_STORE_CREATE, &f->store, &f->err);
            rc =
                rc != 0 ? rc : stk_store_new_run(f->store, NULL, "p", "{}", 2, 0, id, &fd, &f->err);
            for (int k = 0; rc == 0 && k < COMMITS; k++) {
                rc = stk_store_add_bytes(f->store, &k, sizeof k, &a, &f->err);
                rc = rc != 0 ? rc : commit_one(f, id, STK_EV_NOTE, k, "{}");
            }
            if (rc != 0) {
                (void)fprintf(stderr, "%s\n", f->err.text);
            }
            stk_store_close(f->store);
            _exit(rc != 0);
        }
    }
    for (int i = 0; i < N; i++) {
        int status = 1;
        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    reopen(f, 0);
    assert_int_equal(number(f, "SELECT count(*) FROM events"), N * COMMITS);
    assert_int_equal(number(f, "SELECT count(*) FROM artifacts"), COMMITS);
    assert_int_equal(number(f, "SELECT count(DISTINCT id >> 32) FROM events"), N);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_find),        TEST(test_newer),
        TEST(test_migrate),     TEST(test_damaged),
        TEST(test_foreign),     TEST(test_readonly),
        TEST(test_hot_journal), TEST(test_journal),
        TEST(test_together),    TEST(test_without_database),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
