/* Private to the store room: the open store, its statements, its locks. */
#ifndef STK_STORE_PRIVATE_H
#define STK_STORE_PRIVATE_H

#include <sqlite3.h>

#include "base/map.h"
#include "store/store.h"
#include "store/store_digest.h"

/* In the boot column: only the origin has this artifact. */
#define STK_STORE_ELSEWHERE "elsewhere"

typedef enum {
#define X(name, sql) STK_SQL_##name,
#include "store/store_sql.def"
#undef X
    STK_SQL_N
} stk_sql;

/* An artifact that is committed, or about to be. */
typedef struct stk_store_known {
    int64_t size;
    bool is_good, is_dir, is_absent;
    int64_t looked_ms; /* monotonic time of the last walk of a folder, which then had this stamp */
    char stamp[STK_STAMP_TEXT]; /* "": unknown */
} stk_store_known;

/* An artifact in its place whose row isn't committed yet. */
typedef struct stk_store_pending {
    char digest[STK_DIGEST_HEX + 1];
    stk_store_known known;
} stk_store_pending;

struct stk_store {
    char *path;
    int flags;
    bool is_reserve_given_up; /* closing makes it again */
    int dir_fd;
    int artifacts_fd, runs_fd, tmp_fd; /* -1: doesn't exist (read-only) */
    int lock_fd;                       /* <store>/lock; -1 when read-only */
    bool reading;                      /* inside stk_store_read_begin */
    bool in_use;                       /* we hold byte 0 of <store>/lock, shared */
    char fs[24];                       /* name of the file system, for messages */
    char journal[12];
    char boot[40];
    sqlite3 *db;
    sqlite3_stmt *stmts[STK_SQL_N];

    /* The run of the last commit: its row and numbers. Other processes may add events after ours
     * (tags, metadata), so each transaction looks up the last one. */
    char run[40];
    int64_t run_row;
    int64_t last_event;
    int64_t last_ref;

    /* A run that has a folder, but gets its row with its first commit. */
    struct stk_store_unborn {
        char run[40]; /* "": there is none */
        char *name, *pipeline;
        int64_t created_ms;
    } unborn;

    char *stage; /* tmp/<random>; made on first use */
    int stage_fd;
    unsigned n_staged;

    stk_arena *arena; /* for the keys of `known` */
    stk_map known;    /* digest → stk_store_known, for digests already looked up */
    stk_store_pending *pending;
    size_t n_pending;
    uint32_t cap_pending;

    stk_store_fetch fetch; /* the origin's, or NULL */
    stk_store_has has;     /* the origin's, or NULL */
    void *fetch_arg;
    bool is_fetching;
};

enum { STK_STORE_FORMAT = 4, STK_STORE_BUSY_MS = 10000 };

/* store_sql.c */
/* Migrates a store. Step i brings it from version i to i + 1; all steps run in one transaction. */
int stk_store_migrate(stk_store *store, const char *const *steps, int n_steps, stk_err *err);
int stk_store_sql_open(stk_store *store, stk_err *err);
bool stk_store_has_runs(const stk_store *store); /* true if there are folders of runs */
void stk_store_sql_close(stk_store *store);
/* Converts SQLite's last error. Returns its STK_E_ code. */
int stk_store_sql_err(stk_store *store, int rc, stk_err *err, const char *doing);
/* 0 if SQLite's `rc` is OK, DONE or ROW, else as stk_store_sql_err. */
int stk_store_sql_check(stk_store *store, int rc, stk_err *err, const char *doing);
int stk_store_write_pending(stk_store *store, stk_err *err); /* in a separate transaction */
int stk_store_exec(stk_store *store, const char *sql, stk_err *err);
int stk_store_begin(stk_store *store, stk_err *err);       /* also ends a read transaction */
int stk_store_end(stk_store *store, int rc, stk_err *err); /* commits if rc is 0, else rolls back */
/* Runs a statement that returns no row, and resets it. */
int stk_store_step(stk_store *store, sqlite3_stmt *stmt, stk_err *err, const char *doing);

/* A read transaction around a burst of look-ups, which halves their cost. It sees a snapshot of the
 * database. Use it only under the use lock, which keeps it short. */
void stk_store_read_begin(stk_store *store);
void stk_store_read_end(stk_store *store);

/* store_lock.c. Kinds: F_RDLCK, F_WRLCK, F_UNLCK. Returns 0 or errno (EAGAIN: held by another
 * process). */
int stk_store_lock(int fd, int kind, int64_t first, int64_t n, bool wait);
bool stk_store_is_locked(int fd);
int stk_store_write_holder(int fd); /* 0 or errno */
/* Returns `code`, with a hint unless the file system is full. */
int stk_store_no_lock(int code, stk_err *err);
void stk_store_read_holder(int fd, char *buf, size_t size); /* "process 12 on host x" */
bool stk_store_holder_is_gone(int fd); /* a process of this host that has ended */
/* gc waits from here to use_end, because we hold digests that no committed row names. */
int stk_store_use_begin(stk_store *store, stk_err *err);
void stk_store_use_end(stk_store *store);
int stk_store_gc_begin(stk_store *store, stk_err *err); /* the exclusive side of that lock */
void stk_store_gc_end(stk_store *store);

/* store_plain.c. True: the text is an object that every JSON reader accepts. False: unknown. */
bool stk_store_is_plain_object(const char *text);

/* store_artifact.c */
/* A new path in our folder below tmp/, malloc'd. */
int stk_store_stage_path(stk_store *store, char **ret_path, stk_err *err);
void stk_store_stage_close(stk_store *store);
void stk_store_stage_sweep(
    stk_store *store); /* removes folders of dead processes; call under gc_begin */
int stk_store_flush_pending(stk_store *store, stk_err *err); /* call inside a transaction */
/* Moves a tree of ours on this file system to the place of `a`, unless a good artifact is already
 * there (*ret_was_there; the tree then stays). */
int stk_store_place(stk_store *store, const stk_tree *tree, stk_artifact *a, bool *ret_was_there,
                    stk_err *err);
char *stk_store_artifact_path(const stk_store *store, const char *digest); /* malloc'd */
/* Drops this process's knowledge of the digest; the next use looks it up again. */
void stk_store_forget(stk_store *store, const char *digest);
/* True if the artifact counts as good, its stamp aside. */
bool stk_store_recall(stk_store *store, const char *digest, char ret_stamp[STK_STAMP_TEXT]);
/* Records that its content was read and matches. */
int stk_store_believe(stk_store *store, const char *digest, const stk_tree *tree, stk_err *err);
/* Records that its content doesn't match, and sets it aside. Returns STK_E_STORE. `is`: the digest
 * of its content. */
int stk_store_refuse_damaged(stk_store *store, const char *digest, const char *is, stk_err *err);
bool stk_store_is_digest(const char *text, size_t len);

/* The document of a run, with or without a row; malloc'd. STK_E_NOT_FOUND: there is none. */
int stk_store_read_spec(stk_store *store, const char *run, char **ret_text, size_t *ret_len,
                        stk_err *err);
/* Adds the row of the unborn run, inside a transaction; call stk_store_born once that is committed.
 */
int stk_store_bear_run(stk_store *store, int64_t *ret_row, stk_err *err);
void stk_store_born(stk_store *store);
/* Removes the folder of a run that never gets its row. */
void stk_store_drop_unborn(stk_store *store);
/* Finds out whether a process runs it, so that only abandoned runs are removed. Returns 0, or errno
 * if unknown. */
int stk_store_run_look(stk_store *store, const char *run, bool *ret_live);
/* store_event.c: calls `bad` for each unreadable event; *ret_n: how many were checked. */
int stk_store_verify_events(stk_store *store,
                            void (*bad)(void *arg, const char *digest, const char *what), void *arg,
                            uint64_t *ret_n, stk_err *err);
bool stk_store_is_run_id(const char *run);
/* The row number of a run; ret_row NULL: only checks that it exists. */
int stk_store_run_row(stk_store *store, const char *run, int64_t *ret_row, stk_err *err);
int stk_store_writable(const stk_store *store, stk_err *err); /* STK_E_STORE when read-only */
/* Copies a statement's text column into the arena (NULL stays NULL). */
const char *stk_store_column(sqlite3_stmt *stmt, int i, stk_arena *arena);

#endif
