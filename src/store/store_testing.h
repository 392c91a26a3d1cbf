/* Shared by the store's tests: gives every test a fresh store in a separate folder. */
#ifndef STK_STORE_TESTING_H
#define STK_STORE_TESTING_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/testing.h"
#include "store/store_private.h"
#include "sys/file.h"

typedef struct fixture {
    char dir[64];
    char path[96];
    stk_store *store;
    stk_arena *arena;
    stk_err err;
} fixture;

#define OK(call)                                                                                   \
    do {                                                                                           \
        int ok_rc = (call);                                                                        \
        if (ok_rc != 0) {                                                                          \
            fail_msg("%s: %d: %s", #call, ok_rc, f->err.text);                                     \
        }                                                                                          \
    } while (0)

static inline const char *at(fixture *f, const char *name)
{
    return stk_arena_printf(f->arena, "%s/%s", f->dir, name);
}

static inline void reopen(fixture *f, int flags)
{
    stk_store_close(f->store);
    f->store = NULL;
    OK(stk_store_open(f->path, flags, &f->store, &f->err));
}

static inline int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    (void)snprintf(f->dir, sizeof f->dir, "/tmp/stk_store_XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    (void)snprintf(f->path, sizeof f->path, "%s/.stoker", f->dir);
    f->arena = stk_arena_new(0);
    (void)setenv("STOKER_SYNC", "0", 1);
    reopen(f, STK_STORE_CREATE);
    *state = f;
    return 0;
}

static inline int teardown(void **state)
{
    fixture *f = *state;
    stk_store_close(f->store);
    (void)umount2(at(f, "disk"), MNT_DETACH); /* undoes a test's mount, if any */
    int rc = stk_file_remove_tree(f->dir, &f->err);
    stk_arena_free(f->arena);
    free(f);
    return rc;
}

static inline void arm(const char *failpoints)
{
    (void)setenv("STOKER_FAILPOINTS", failpoints, 1);
    stk_failpoint_reload();
}

static inline void disarm(void)
{
    (void)unsetenv("STOKER_FAILPOINTS");
    stk_failpoint_reload();
}

static inline int64_t number(fixture *f, const char *query)
{
    sqlite3_stmt *stmt = NULL;
    assert_int_equal(sqlite3_prepare_v2(f->store->db, query, -1, &stmt, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(stmt), SQLITE_ROW);
    int64_t n = sqlite3_column_int64(stmt, 0);
    (void)sqlite3_finalize(stmt);
    return n;
}

/* Makes a run without events and releases its lock at once; its id is in the arena. */
static inline const char *new_run(fixture *f, const char *name, const char *pipeline, int64_t ms)
{
    char *id = stk_arena_alloc(f->arena, 40);
    int fd = -1;
    OK(stk_store_new_run(f->store, name, pipeline, "{}", 2, ms, id, &fd, &f->err));
    OK(stk_store_commit(f->store, id, &(stk_commit){0}, &f->err));
    stk_file_close(&fd);
    return id;
}

static inline int commit_one(fixture *f, const char *run, stk_event_kind kind, int64_t ms,
                             const char *data)
{
    stk_event_row e = {.time_ms = ms, .kind = kind, .task = UINT32_MAX, .data = data};
    stk_commit c = {.events = &e, .n_events = 1};
    return stk_store_commit(f->store, run, &c, &f->err);
}

/* Commits a reference to a digest, which also writes the pending rows. */
static inline void commit_ref(fixture *f, const char *run, const char *digest)
{
    stk_ref_row r = {.digest = digest, .output = "out"};
    stk_commit c = {.refs = &r, .n_refs = 1};
    OK(stk_store_commit(f->store, run, &c, &f->err));
}

/* Runs `body` in a child process, which opens the store itself and may be killed by failpoints.
 * Returns the wait status. */
static inline int in_child(fixture *f, const char *failpoints, void (*body)(fixture *f))
{
    stk_store_close(f->store);
    f->store = NULL;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        arm(failpoints);
        if (stk_store_open(f->path, STK_STORE_CREATE, &f->store, &f->err) != 0) {
            _exit(9);
        }
        body(f);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    reopen(f, 0);
    return status;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
