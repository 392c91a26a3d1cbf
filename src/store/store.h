/* store: run history (SQLite) and artifacts (content-addressed files).
 *
 * Layout of a store folder (`.stoker`):
 * - store.db: runs, events, cache, artifact rows (WAL; PRAGMA user_version is the schema's).
 * - artifacts/ab/cd…: one file or folder per artifact, named by its digest. Files have mode 0444,
 *   or 0555 if they were executable; folders 0555.
 * - runs/<run>/: lock, spec.json, and the task directories (docs/formats/task-directory.md).
 * - quarantine/: damaged artifacts.
 * - tmp/<random>/: one process's files in progress; the process holds tmp/<random>/lock.
 * - lock: byte 0 is held shared by processes with digests that no committed row names yet, and
 *   exclusively for gc; byte 1 is held exclusively while the database is set up.
 *
 * Locks are open-file-description locks (F_OFD_SETLK), so testing one never takes it. Everything
 * becomes visible by rename, after its row or before it: a row without its file makes the step run
 * again, and gc collects a file without a row. Digest and formats: docs/formats/task-directory.md.
 */
#ifndef STK_STORE_H
#define STK_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/event.h"
#include "sys/clock.h"

typedef struct stk_store stk_store;

/* OWN: the caller has made the folder for this process (an agent in its container); its owner isn't
 * checked. FREES: the caller removes things, for which it may use up the store's reserve of disk
 * space until it closes the store. MIRROR: it is a copy of what a share has (away/mirror); no
 * engine of its runs holds a lock here, so a run without an end counts as live. */
enum {
    STK_STORE_CREATE = 1,
    STK_STORE_READONLY = 2,
    STK_STORE_OWN = 4,
    STK_STORE_FREES = 8,
    STK_STORE_MIRROR = 16
};

/* Finds the store: STOKER_STORE, else `.stoker` in the nearest folder from `cwd` up to the
 * project's root (sys/trust.h), else `cwd`/.stoker (for CREATE). malloc'd absolute path. */
int stk_store_find(const char *cwd, int flags, char **ret_path, stk_err *err);
/* If stk_store_find with CREATE returns a folder that doesn't exist yet: the store above the
 * project's root that it would have found without that limit. malloc'd, or NULL if there is none.
 */
char *stk_store_beyond(const char *cwd);
/* Opens a store and migrates an old one. Errors: STK_E_VERSION for a newer store, STK_E_STORE
 * damaged, STK_E_FULL, STK_E_SYS. */
/* STK_E_UNTRUSTED: the store isn't ours (sys/trust.h), and was not read. */
int stk_store_open(const char *path, int flags, stk_store **ret_store, stk_err *err);
void stk_store_close(stk_store *store); /* NULL is fine */
static inline void stk_store_close_auto(stk_store **owned)
{
    stk_store_close(*owned);
}
#define STK_STORE_AUTO __attribute__((cleanup(stk_store_close_auto))) stk_store *
const char *stk_store_path(const stk_store *store);

/* --- runs --- */

/* Makes a new run id, e.g. 20261121-130501-7f3a9c, and its folder with the spec, and takes the
 * engine's lock (see below). `now_ms` is Unix time. `name` may be NULL (then it is the id). The
 * first stk_store_commit for the run adds its row, in the same transaction. Until then nobody finds
 * the run, and its folder is removed when the store is closed or another run is made; if the
 * process was killed, the next gc removes it. */
int stk_store_new_run(stk_store *store, const char *name, const char *pipeline,
                      const char *spec_json, size_t spec_len, int64_t now_ms, char ret_id[40],
                      int *ret_lock_fd, stk_err *err);
/* The same for a run that began elsewhere: keeps its id and takes no lock; gc waits for its first
 * commit. If it exists already, does nothing (*ret_new false). STK_E_PROTOCOL: not a run id. */
int stk_store_bring_run(stk_store *store, const char *id, const char *name, const char *pipeline,
                        const char *spec_json, size_t spec_len, int64_t created_ms, bool *ret_new,
                        stk_err *err);
/* Takes the engine's lock on an existing run (on runs/<run>/lock, which holds pid, start time, boot
 * and host as text). STK_E_BUSY names the holder. The descriptor is CLOEXEC; closing it releases
 * the lock. */
int stk_store_lock_run(stk_store *store, const char *run, int *ret_lock_fd, stk_err *err);
/* True if the run has a row. False also if the database can't be read. */
bool stk_store_has_run(stk_store *store, const char *run);
bool stk_store_run_is_live(
    stk_store *store,
    const char *run); /* true if a process holds the lock, or if that is unknown */
/* True if the run's engine, on this host, is dead, but its guardian, which ends its tasks, still
 * holds the lock for a moment. */
bool stk_store_run_is_ending(stk_store *store, const char *run);
const char *stk_store_run_folder(stk_store *store, const char *run, stk_arena *arena);

/* --- checkpoints (docs/decisions/0008): entries of a task's folder; a leading dot marks incomplete
 * ones --- */

typedef struct stk_checkpoints {
    uint32_t n;        /* complete ones */
    int64_t newest_ns; /* wall clock; -1: no checkpoint */
} stk_checkpoints;

/* <store>/runs/<run>/<step>/<task>/checkpoints, which need not exist; NULL: out of memory. */
const char *stk_store_checkpoint_folder(stk_store *store, const char *run, const char *step,
                                        uint32_t task, stk_arena *arena);
void stk_store_checkpoints_look(const char *folder, stk_checkpoints *ret_found);
int64_t stk_store_checkpoints_bytes(const char *folder); /* of complete ones; -1 unknown */
/* Removes incomplete checkpoints, or all; the folder stays. A missing folder is fine. */
int stk_store_checkpoints_clean(const char *folder, bool all, stk_err *err);
/* Resolves an id, a unique prefix of one, the name of runs (the newest wins) or "latest" to an id.
 * STK_E_NOT_FOUND; STK_E_USAGE if ambiguous, with candidates. */
int stk_store_resolve_run(stk_store *store, const char *text, char ret_id[40], stk_err *err);
int stk_store_load_spec(stk_store *store, const char *run, stk_arena *arena, const char **ret_json,
                        size_t *ret_len, stk_err *err);

typedef struct stk_run_row {
    const char *id;
    const char *name;
    const char *pipeline;
    const char *status; /* "running" "succeeded" "failed" "cancelled" "interrupted" */
    int64_t created_ms;
    int64_t ended_ms; /* 0: not ended */
    int64_t now_ms;   /* of a live run, by its clock; else 0 */
    const char *tags; /* JSON array, or NULL: none */
} stk_run_row;
/* Newest first. pipeline NULL: all. tags: a JSON array, lists only runs that have all of these;
 * NULL: all runs. */
int stk_store_list_runs(stk_store *store, const char *pipeline, const char *tags, uint32_t limit,
                        stk_arena *arena, stk_run_row **ret_rows, uint32_t *ret_n, stk_err *err);
/* The clock on which the run's times continue: its last engine's if that ran in this boot, else the
 * wall clock, but never before the run's last event. */
int stk_store_run_clock(stk_store *store, const char *run, stk_clock_anchor *ret_anchor,
                        stk_err *err);
/* Replaces the tags of a run, even a live one (both JSON arrays), with an event TAGGED, and updates
 * its row. STK_E_BUSY if its tags are no longer `old_tags`: read them again. */
int stk_store_tag_run(stk_store *store, const char *run, const char *old_tags, const char *tags,
                      int64_t now_ms, stk_err *err);

/* --- events --- */

typedef struct stk_event_row {
    int64_t seq; /* from 1 within the run; set by append */
    int64_t time_ms;
    stk_event_kind kind;
    uint32_t task; /* UINT32_MAX: concerns the whole run */
    uint32_t attempt;
    const char *data; /* JSON object, or NULL */
} stk_event_row;

/* A cache entry, written in the same transaction as its TASK_SUCCEEDED. */
typedef struct stk_cache_row {
    const char *key; /* hex */
    const char *pipeline;
    const char *step;
    const char *parts; /* JSON, stk_plan_key_json */
    const char *run;
    uint32_t task;
    int64_t created_ms;
    const char *outputs;  /* JSON {name: ref} */
    const char *metadata; /* JSON or NULL */
    const char *seen;     /* JSON {path: sha256 or ""} or NULL */
} stk_cache_row;

/* Digests that an event names, so that gc keeps them. Written in the same transaction. */
typedef struct stk_ref_row {
    const char *digest;
    uint32_t task;
    const char *output;  /* name of the output */
    const char *name;    /* artifact name, or NULL: pipeline.step.output gets no name */
    const char *version; /* or NULL: the next integer */
    const char *step;    /* of a named artifact; stored with the name; may be NULL */
    const char *ref;     /* the same: the whole ref (JSON), or NULL */
} stk_ref_row;

typedef struct stk_commit {
    stk_event_row *events;
    uint32_t n_events;
    const stk_cache_row *cache;
    uint32_t n_cache;
    const stk_ref_row *refs;
    uint32_t n_refs;
} stk_commit;

/* Appends events after the run's last one, which another process may have added
 * (stk_store_tag_run). One transaction: all or nothing, including the rows of artifacts added since
 * the last commit. Once it returns 0, the events survive the death of this process (and, once
 * synced, a power cut). RUN_CREATED, RUN_STARTED, RUN_ENDED and TAGGED also update the run's row.
 * STK_E_USAGE: another artifact has this name and version. STK_E_PROTOCOL: `data` is not valid
 * JSON. */
int stk_store_commit(stk_store *store, const char *run, stk_commit *commit, stk_err *err);
/* Calls `each` for every event with seq > after, in order, until it returns non-zero; returns that
 * value. `data` is valid during the call, and may be damaged. An event of an unknown kind becomes a
 * NOTE that says so. */
int stk_store_events(stk_store *store, const char *run, int64_t after,
                     int (*each)(void *arg, const stk_event_row *row), void *arg, stk_err *err);

/* A number that changes when another process has committed something; -1: unknown. Costs
 * microseconds. */
int64_t stk_store_changes(stk_store *store);
/* Gives back what has been kept in memory of the database (up to 32 MiB) to be read again faster.
 */
void stk_store_release_memory(stk_store *store);
/* The number of the run's last event; 0: it has none, or the store can't be read. */
int64_t stk_store_last_event(stk_store *store, const char *run);

/* The most memory of one device that the last 10 succeeded attempts of a step used, in bytes; -1 if
 * none on record had a device. Searches the pipeline's last 100 runs. */
int stk_store_peak(stk_store *store, const char *pipeline, const char *step, int64_t *ret_bytes,
                   stk_err *err);

/* Makes the folder of an attempt, `…/<run>/<step>/<task>/<attempt>`. The task's folder is only for
 * its user (0700), because the files below may hold secrets of the task. They stay readable for a
 * container's other user, who gets the attempt's folder itself. */
int stk_store_make_attempt(const char *dir, stk_err *err);

/* --- cache --- */

/* STK_E_NOT_FOUND (no message) if there is no entry. Text lives in `arena`. Doesn't check that the
 * artifacts still exist. */
int stk_store_cache_get(stk_store *store, const char *key, stk_arena *arena, stk_cache_row *ret_row,
                        stk_err *err);
/* The same for display only: takes no lock, so gc may remove the artifacts it names. */
int stk_store_cache_read(stk_store *store, const char *key, stk_arena *arena,
                         stk_cache_row *ret_row, stk_err *err);
/* The parts (JSON) of the newest entry of (pipeline, step), or NULL. */
const char *stk_store_cache_last_parts(stk_store *store, const char *pipeline, const char *step,
                                       stk_arena *arena);

/* --- artifacts --- */

typedef struct stk_artifact {
    char digest[STK_DIGEST_HEX + 1];
    int64_t size;
    bool is_dir;
} stk_artifact;

/* Takes over the file or folder `path`: renames it on the same file system, else copies it. Hashes
 * on several threads unless `known_digest` is given. Refuses links; makes files read-only. If the
 * artifact exists already, removes `path`. Does not fsync now: rows record their boot, see DESIGN
 * §4.7. */
int stk_store_add_path(stk_store *store, const char *path, const char *known_digest,
                       stk_artifact *ret, stk_err *err);
/* The same, but ends with STK_E_CANCELLED, and nothing in the store, once `stop` is set. */
int stk_store_add_path_until(stk_store *store, const char *path, const char *known_digest,
                             const atomic_bool *stop, stk_artifact *ret, stk_err *err);
int stk_store_add_bytes(stk_store *store, const void *data, size_t len, stk_artifact *ret,
                        stk_err *err);
/* As add_path, but copies (reflinks if the file system can) and leaves the source alone. */
int stk_store_copy_path(stk_store *store, const char *path, stk_artifact *ret, stk_err *err);
/* The absolute path of an artifact, in `arena`. STK_E_NOT_FOUND if it isn't here. Re-hashes content
 * that may have changed: if inode, size, mtime or ctime differ from its row, or if it is unsynced
 * and from an earlier boot. STK_E_STORE if its digest differs; the artifact is then in quarantine/.
 */
int stk_store_artifact(stk_store *store, const char *digest, stk_arena *arena,
                       const char **ret_path, int64_t *ret_size, stk_err *err);
/* The same without need of the bytes now: doesn't fetch from the origin, and returns the path where
 * the artifact would be. */
int stk_store_locate(stk_store *store, const char *digest, stk_arena *arena, const char **ret_path,
                     int64_t *ret_size, stk_err *err);

/* An origin: a share that may have artifacts that aren't here. `fetch` adds one to the store
 * (stk_store_add_path with its digest); STK_E_NOT_FOUND: the origin lacks it too. */
typedef int (*stk_store_fetch)(void *arg, stk_store *store, const char *digest, stk_err *err);
/* From now on stk_store_artifact fetches missing artifacts. NULL: stops that. */
void stk_store_set_origin(stk_store *store, stk_store_fetch fetch, void *arg);
/* With `has`, stk_store_locate trusts a row without bytes only after the origin has confirmed, once
 * per process, that it still has them. Gets the same `arg`; NULL: rows are trusted. */
typedef int (*stk_store_has)(void *arg, const char *digest, bool *ret_has, stk_err *err);
void stk_store_set_origin_has(stk_store *store, stk_store_has has);
/* Notes an artifact that only the origin has: a row without bytes, written with the next commit.
 * Without an origin such an artifact counts as missing. One that is here stays. STK_E_PROTOCOL: not
 * a digest. */
int stk_store_add_absent(stk_store *store, const char *digest, int64_t size, bool is_dir,
                         stk_err *err);
/* Digest of a file or folder outside the store (uses several threads). */
int stk_store_digest_path(const char *path, char ret_hex[STK_DIGEST_HEX + 1], int64_t *ret_size,
                          stk_err *err);
bool stk_store_is_beside(const stk_store *store,
                         const char *path); /* True if `path` is on the store's file system. */

/* --- long work, done by another thread ---
 * A work holds the reading, copying and removing for one add, sum or check; it uses no database.
 * The store's thread makes it and takes its result; any one thread runs it. */

typedef struct stk_store_work stk_store_work;
/* As stk_store_add_path (`take`), or copy_path. Copies `path` and `known_digest`. */
int stk_store_work_add(stk_store *store, const char *path, const char *known_digest, bool take,
                       stk_store_work **ret_work, stk_err *err);
/* True if stk_store_artifact would have to read much of it; then use a work. */
bool stk_store_needs_sum(stk_store *store, const char *digest);
/* Makes the next use of a folder walk it even if it was walked a moment ago, since another process
 * may have changed it. */
void stk_store_look_again(stk_store *store, const char *digest);
/* Checks an artifact that is here. `verify`: reads it from the disk, slowly. */
int stk_store_work_check(stk_store *store, const char *digest, stk_store_work **ret_work,
                         stk_err *err);
int stk_store_work_verify(stk_store *store, const char *digest, stk_store_work **ret_work,
                          stk_err *err);
/* Call after its run. Returns 0 if the artifact is good from now on; STK_E_STORE if it went to
 * quarantine/. */
int stk_store_work_checked(stk_store *store, stk_store_work *work, stk_err *err);
/* As stk_store_digest_path. */
int stk_store_work_sum(const char *path, stk_store_work **ret_work, stk_err *err);
/* Removes a file or folder. */
int stk_store_work_remove(const char *path, stk_store_work **ret_work, stk_err *err);
/* Reads, sums and copies. After take, removes what is left over. STK_E_CANCELLED: stopped. */
int stk_store_work_run(stk_store_work *work, stk_err *err);
/* From any thread, at any time: makes run end within milliseconds. */
void stk_store_work_stop(stk_store_work *work);
/* Call after the run of an add: puts the artifact in its place. *ret_leaves: run once more. */
int stk_store_work_take(stk_store *store, stk_store_work *work, stk_artifact *ret, bool *ret_leaves,
                        stk_err *err);
/* Call after the run of a sum: returns the digest. */
void stk_store_work_summed(const stk_store_work *work, char ret_hex[STK_DIGEST_HEX + 1],
                           int64_t *ret_size);
void stk_store_work_free(stk_store_work *work); /* NULL is fine */

typedef struct stk_named_row {
    const char *name;
    const char *version;
    const char *digest;
    const char *run;
    const char *step;
    const char *output;
    const char *ref; /* JSON ref */
    int64_t created_ms;
} stk_named_row;
/* Named artifacts (ArtifactConfig, save_artifact). `version` NULL: newest first. */
int stk_store_add_named(stk_store *store, const stk_named_row *row, stk_err *err);
/* Checks whether a commit could give this name: STK_E_USAGE, as from the commit, if `version` (not
 * NULL) belongs to other content. Checking first makes only the step fail. */
int stk_store_check_name(stk_store *store, const char *name, const char *version,
                         const char *digest, stk_err *err);
/* name NULL: all names. */
int stk_store_list_named(stk_store *store, const char *name, const char *version, uint32_t limit,
                         stk_arena *arena, stk_named_row **ret_rows, uint32_t *ret_n, stk_err *err);
/* Replaces the ref of a name and version; STK_E_BUSY if it is no longer `old_ref`: read it again.
 */
int stk_store_set_named_ref(stk_store *store, const char *name, const char *version,
                            const char *old_ref, const char *ref, stk_err *err);
/* Removes a name; version NULL: all versions. gc removes the content later, unless something else
 * refers to it. STK_E_NOT_FOUND if there was none. */
int stk_store_remove_named(stk_store *store, const char *name, const char *version, uint32_t *ret_n,
                           stk_err *err);
/* Gives all versions of a name another one. STK_E_NOT_FOUND: there is none, or the other is taken.
 */
int stk_store_rename_named(stk_store *store, const char *name, const char *new_name, stk_err *err);

/* --- records: named JSON objects that a dialect keeps beside its runs, such as models --- */

enum { STK_RECORD_NEW = 0, STK_RECORD_ANY = -1 };

typedef struct stk_record {
    const char *kind;
    const char *name;
    const char *body; /* a JSON object; the store doesn't read it */
    int64_t revision; /* from 1; each write adds 1 */
    int64_t created_ms;
    int64_t updated_ms;
} stk_record;

/* Records of a kind in order of creation. name NULL: all. */
int stk_store_list_records(stk_store *store, const char *kind, const char *name, stk_arena *arena,
                           stk_record **ret_records, uint32_t *ret_n, stk_err *err);
/* Writes kind, name and body at the time `updated_ms`. `expected`: the revision that it replaces,
 * STK_RECORD_NEW (there is none yet) or STK_RECORD_ANY. STK_E_BUSY: it isn't so; read it again. */
int stk_store_put_record(stk_store *store, const stk_record *record, int64_t expected,
                         int64_t *ret_revision, stk_err *err);
/* STK_E_NOT_FOUND if there is none. */
int stk_store_remove_record(stk_store *store, const char *kind, const char *name, stk_err *err);

/* The named artifacts that a run made, in order of creation. */
int stk_store_run_named(stk_store *store, const char *run, stk_arena *arena,
                        stk_named_row **ret_rows, uint32_t *ret_n, stk_err *err);
/* Makes everything added so far survive a power cut (one syncfs), and notes it in the rows. For the
 * end of a run; STOKER_SYNC=0 skips it. */
int stk_store_sync(stk_store *store, stk_err *err);
/* The same, but gives up once `stop_fd` (or -1) is readable. Artifacts not noted as synced are
 * re-hashed after a reboot. */
int stk_store_sync_until(stk_store *store, int stop_fd, stk_err *err);

/* --- maintenance --- */

/* Re-reads every event and every artifact that is here. Calls `bad` for each that is missing, torn
 * or changed, with its digest, or with "store.db" or "run R, event N". */
int stk_store_verify(stk_store *store, void (*bad)(void *arg, const char *digest, const char *what),
                     void *arg, uint64_t *ret_checked, uint64_t *ret_bytes, stk_err *err);
/* Moves an artifact to quarantine/ (*ret_where: its path there, malloc'd) and removes its row, so
 * that steps that need it make it again. */
int stk_store_set_aside(stk_store *store, const char *digest, char **ret_where, stk_err *err);
/* Digests of artifacts that were last read before `before_ms`, oldest first, in `arena`. */
int stk_store_list_unverified(stk_store *store, int64_t before_ms, uint32_t limit, stk_arena *arena,
                              const char ***ret_digests, uint32_t *ret_n, stk_err *err);
typedef struct stk_gc {
    bool dry_run;
    int64_t keep_ms;    /* keeps runs that ended within this time */
    uint32_t keep_runs; /* and this many of the newest per pipeline */
    /* Overrides these rules: removes exactly these runs (ids). STK_E_BUSY if one is live,
     * STK_E_NOT_FOUND. */
    const char *const *only;
    uint32_t n_only;
    uint64_t runs_removed, artifacts_removed, bytes_freed; /* out */
} stk_gc;
/* Removes runs by these rules, then artifacts that no remaining run, cache entry or name refers to.
 * Never touches a live run. */
int stk_store_gc(stk_store *store, stk_gc *gc, int64_t now_ms, stk_err *err);
/* Describes the store for doctor: journal mode, file system, kind of sync. */
const char *stk_store_describe(stk_store *store, stk_arena *arena);

#endif
