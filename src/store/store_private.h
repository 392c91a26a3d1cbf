/* Inside the store room: the open store, its statements, its locks. */
#ifndef STK_STORE_PRIVATE_H
#define STK_STORE_PRIVATE_H

#include <sqlite3.h>

#include "base/map.h"
#include "store/store.h"
#include "store/store_digest.h"

/* In place of the boot: the row of an artifact that only the origin has. */
#define STK_STORE_ELSEWHERE "elsewhere"

typedef enum {
#define X(name, sql) STK_SQL_##name,
#include "store/store_sql.def"
#undef X
    STK_SQL_N
} stk_sql;

/* What is known of an artifact: committed, or about to be. */
typedef struct stk_store_known {
    int64_t size;
    bool is_good, is_dir, is_absent;
    int64_t looked_ms;          /* monotonic; a folder was walked then, and had this stamp */
    char stamp[STK_STAMP_TEXT]; /* "": not known */
} stk_store_known;

/* An artifact in its place whose row isn't committed yet. */
typedef struct stk_store_pending {
    char digest[STK_DIGEST_HEX + 1];
    stk_store_known known;
} stk_store_pending;

struct stk_store {
    char *path;
    int flags;
    int dir_fd;
    int artifacts_fd, runs_fd, tmp_fd; /* its folders; -1 where one isn't there (read-only) */
    int lock_fd;                       /* <store>/lock; -1 when read-only */
    bool reading;                      /* inside stk_store_read_begin */
    bool in_use;                       /* we hold byte 0 of it, shared */
    char fs[24];                       /* file system, for people */
    char journal[12];
    char boot[40];
    sqlite3 *db;
    sqlite3_stmt *stmts[STK_SQL_N];

    /* The run of the last commit: its row and numbers. Its events may have others behind them since
     * (tags, metadata): the last one is looked up in each transaction. */
    char run[40];
    int64_t run_row;
    int64_t last_event;
    int64_t last_ref;

    /* A run that has its folder, and gets its row with its first commit. */
    struct stk_store_unborn {
        char run[40]; /* "": there is none */
        char *name, *pipeline;
        int64_t created_ms;
    } unborn;

    char *stage; /* tmp/<random>, made when first needed */
    int stage_fd;
    unsigned n_staged;

    stk_arena *arena; /* keys of `known` */
    stk_map known;    /* digest → stk_store_known, of what was looked at already */
    stk_store_pending *pending;
    size_t n_pending;
    uint32_t cap_pending;

    stk_store_fetch fetch; /* of the origin, or NULL */
    stk_store_has has;     /* likewise */
    void *fetch_arg;
    bool is_fetching;
};

enum { STK_STORE_FORMAT = 3, STK_STORE_BUSY_MS = 10000 };

/* store_sql.c */
/* A migration brings a store from version i to i + 1; run together in one transaction. */
int stk_store_migrate(stk_store *store, const char *const *steps, int n_steps, stk_err *err);
int stk_store_sql_open(stk_store *store, stk_err *err);
bool stk_store_has_runs(const stk_store *store); /* folders of such */
void stk_store_sql_close(stk_store *store);
/* The error of the last statement, by SQLite's code. Returns it as STK_E_…. */
int stk_store_sql_err(stk_store *store, int rc, stk_err *err, const char *doing);
/* 0 where SQLite's `rc` is OK, DONE or ROW, else that. */
int stk_store_sql_check(stk_store *store, int rc, stk_err *err, const char *doing);
int stk_store_write_pending(stk_store *store, stk_err *err); /* in a transaction of its own */
int stk_store_exec(stk_store *store, const char *sql, stk_err *err);
int stk_store_begin(stk_store *store, stk_err *err);       /* ends the reading, too */
int stk_store_end(stk_store *store, int rc, stk_err *err); /* commits if rc is 0, else rolls back */
/* Runs a statement that gives no row, and resets it. */
int stk_store_step(stk_store *store, sqlite3_stmt *stmt, stk_err *err, const char *doing);

/* A read transaction around a burst of look-ups, which halves their cost; it sees the database as
 * it is now until it ends. Only while the use lock is held, so that it is short. */
void stk_store_read_begin(stk_store *store);
void stk_store_read_end(stk_store *store);

/* store_lock.c. Kinds: F_RDLCK, F_WRLCK, F_UNLCK. 0 or errno (EAGAIN: held by somebody). */
int stk_store_lock(int fd, int kind, int64_t first, int64_t n, bool wait);
bool stk_store_is_locked(int fd);
int stk_store_write_holder(int fd);                         /* 0 or errno */
void stk_store_read_holder(int fd, char *buf, size_t size); /* "process 12 on host x" */
bool stk_store_holder_is_gone(int fd); /* a process of this host, that isn't any more */
/* From here to use_end, gc waits: we hold digests that no committed row names. */
int stk_store_use_begin(stk_store *store, stk_err *err);
void stk_store_use_end(stk_store *store);
int stk_store_gc_begin(stk_store *store, stk_err *err); /* the other side of it */
void stk_store_gc_end(stk_store *store);

/* store_plain.c. True: every reader of JSON reads an object of it. False: that is not known. */
bool stk_store_is_plain_object(const char *text);

/* store_artifact.c */
/* A new name in our own folder below tmp/, malloc'd. */
int stk_store_stage_path(stk_store *store, char **ret_path, stk_err *err);
void stk_store_stage_close(stk_store *store);
void stk_store_stage_sweep(stk_store *store); /* folders of dead processes; under gc_begin */
int stk_store_flush_pending(stk_store *store, stk_err *err); /* inside a transaction */
/* Moves a tree, ours and on our file system, to the place of `a` unless a good one is there already
 * (*ret_was_there; the tree stays then). */
int stk_store_place(stk_store *store, const stk_tree *tree, stk_artifact *a, bool *ret_was_there,
                    stk_err *err);
char *stk_store_artifact_path(const stk_store *store, const char *digest); /* malloc'd */
/* Forgets what this process knows of it: it is asked for anew. */
void stk_store_forget(stk_store *store, const char *digest);
/* Is it believed, but for its stamp? */
bool stk_store_recall(stk_store *store, const char *digest, char ret_stamp[STK_STAMP_TEXT]);
/* Its content was read and fits. */
int stk_store_believe(stk_store *store, const char *digest, const stk_tree *tree, stk_err *err);
/* … and doesn't: sets it aside. Returns STK_E_STORE. `is`: the digest of its content. */
int stk_store_refuse_damaged(stk_store *store, const char *digest, const char *is, stk_err *err);
bool stk_store_is_digest(const char *text, size_t len);

/* The document of a run, whether or not it has a row; malloc'd. STK_E_NOT_FOUND: there is none. */
int stk_store_read_spec(stk_store *store, const char *run, char **ret_text, size_t *ret_len,
                        stk_err *err);
/* Adds the row of the unborn run, inside a transaction; stk_store_born once that is committed. */
int stk_store_bear_run(stk_store *store, int64_t *ret_row, stk_err *err);
void stk_store_born(stk_store *store);
/* One that never gets its row: its folder goes, too. */
void stk_store_drop_unborn(stk_store *store);
/* Whether somebody runs it, for who removes what nobody does: 0, or errno where it can't be told.
 */
int stk_store_run_look(stk_store *store, const char *run, bool *ret_live);
/* store_event.c: calls `bad` for each event that can't be read; *ret_n: how many were looked at. */
int stk_store_verify_events(stk_store *store,
                            void (*bad)(void *arg, const char *digest, const char *what), void *arg,
                            uint64_t *ret_n, stk_err *err);
bool stk_store_is_run_id(const char *run);
/* The row number of a run, NULL if only its being there is asked for. */
int stk_store_run_row(stk_store *store, const char *run, int64_t *ret_row, stk_err *err);
int stk_store_writable(const stk_store *store, stk_err *err); /* STK_E_STORE when read-only */
/* A statement's text column as arena text (NULL stays NULL). */
const char *stk_store_column(sqlite3_stmt *stmt, int i, stk_arena *arena);

#endif
