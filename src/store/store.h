/* store: run history (SQLite) and artifacts (content-addressed files). What happened, and where is
 * the data?
 *
 * Layout of a store folder (`.stoker`):
 * - store.db: runs, events, cache, artifact rows (WAL; PRAGMA user_version is the schema's).
 * - artifacts/ab/cd…: one file or folder an artifact, named by its digest. Files have mode 0444, or
 *   0555 if they were executable; folders 0555.
 * - runs/<run>/: lock, spec.json, and the task directories (docs/formats/task-directory.md).
 * - quarantine/: artifacts that were damaged.
 * - tmp/<random>/: being written by one process, which holds tmp/<random>/lock.
 * - lock: byte 0 is shared by whoever holds digests that no committed row names yet, and exclusive
 *   for gc; byte 1 is exclusive while the database is set up.
 *
 * Locks are open-file-description locks (F_OFD_SETLK), so looking at one never takes it. Everything
 * becomes visible by rename, after its row or before it: a row without its file makes the step run
 * again, a file without a row is collected by gc. Digest and formats:
 * docs/formats/task-directory.md.
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

/* OWN: whoever asks has made the folder for this process (an agent in its container); whose it is
 * isn't asked. */
enum { STK_STORE_CREATE = 1, STK_STORE_READONLY = 2, STK_STORE_OWN = 4 };

/* STOKER_STORE, else `.stoker` in the nearest folder from `cwd` up to the project's root
 * (sys/trust.h), else `cwd`/.stoker (for CREATE). malloc'd absolute path. */
int stk_store_find(const char *cwd, int flags, char **ret_path, stk_err *err);
/* The store above the project's root that would have been found without it, where stk_store_find
 * with CREATE answers with a folder that isn't there yet; NULL: there is none. malloc'd. */
char *stk_store_beyond(const char *cwd);
/* Errors: STK_E_VERSION for a newer store, STK_E_STORE damaged, STK_E_FULL, STK_E_SYS. Old ones are
 * migrated. */
/* STK_E_UNTRUSTED: the store isn't ours (sys/trust.h); nothing of it was read. */
int stk_store_open(const char *path, int flags, stk_store **ret_store, stk_err *err);
void stk_store_close(stk_store *store); /* NULL is fine */
static inline void stk_store_close_auto(stk_store **owned)
{
    stk_store_close(*owned);
}
#define STK_STORE_AUTO __attribute__((cleanup(stk_store_close_auto))) stk_store *
const char *stk_store_path(const stk_store *store);

/* --- runs --- */

/* A new run id, e.g. 20261121-130501-7f3a9c, and its folder with the spec; the engine's lock is
 * taken (see below). `now_ms` is Unix time. name may be NULL (then it is the id). The run itself
 * (its row) comes with the first stk_store_commit for it, in the same transaction: until then
 * nobody finds it, and its folder goes when the store is closed or another run is made; that of a
 * process that was killed goes with the next gc. */
int stk_store_new_run(stk_store *store, const char *name, const char *pipeline,
                      const char *spec_json, size_t spec_len, int64_t now_ms, char ret_id[40],
                      int *ret_lock_fd, stk_err *err);
/* A run that began elsewhere: the same with its own id, and without a lock; gc waits for its first
 * commit. There already: nothing (*ret_new false). STK_E_PROTOCOL: no run id. */
int stk_store_bring_run(stk_store *store, const char *id, const char *name, const char *pipeline,
                        const char *spec_json, size_t spec_len, int64_t created_ms, bool *ret_new,
                        stk_err *err);
/* The engine's lock on an existing run (on runs/<run>/lock, which holds pid, start time, boot and
 * host as text). STK_E_BUSY names the holder. The descriptor is CLOEXEC; closing it releases the
 * lock. */
int stk_store_lock_run(stk_store *store, const char *run, int *ret_lock_fd, stk_err *err);
/* Has it a row? False also where that can't be told. */
bool stk_store_has_run(stk_store *store, const char *run);
bool stk_store_run_is_live(stk_store *store,
                           const char *run); /* somebody holds the lock, or it can't be told */
/* Its engine, on this host, is dead, and what ends its tasks still holds the lock, for a moment. */
bool stk_store_run_is_ending(stk_store *store, const char *run);
const char *stk_store_run_folder(stk_store *store, const char *run, stk_arena *arena);

/* --- checkpoints (docs/decisions/0008): entries of a task's folder, those with a leading dot are
 * not complete --- */

typedef struct stk_checkpoints {
    uint32_t n;        /* complete ones */
    int64_t newest_ns; /* wall clock; -1: there is none */
} stk_checkpoints;

/* <store>/runs/<run>/<step>/<task>/checkpoints, which need not exist; NULL: out of memory. */
const char *stk_store_checkpoint_folder(stk_store *store, const char *run, const char *step,
                                        uint32_t task, stk_arena *arena);
void stk_store_checkpoints_look(const char *folder, stk_checkpoints *ret_found);
int64_t stk_store_checkpoints_bytes(const char *folder); /* of complete ones; -1 unknown */
/* Removes what isn't complete, or all; the folder stays. Absent is fine. */
int stk_store_checkpoints_clean(const char *folder, bool all, stk_err *err);
/* id, unique prefix of an id, newest run of that name, or "latest" → id. STK_E_NOT_FOUND / USAGE
 * (ambiguous, with candidates). */
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
    int64_t now_ms;   /* by the run's clock, of one that runs; else 0 */
    const char *tags; /* JSON array, or NULL: none */
} stk_run_row;
/* Newest first. pipeline NULL: all. tags: a JSON array, only runs that have all of these; NULL: all
 * runs. */
int stk_store_list_runs(stk_store *store, const char *pipeline, const char *tags, uint32_t limit,
                        stk_arena *arena, stk_run_row **ret_rows, uint32_t *ret_n, stk_err *err);
/* The clock by which the run's times go on: that of its last engine where that was in this boot,
 * else the wall's, but never before its last event. */
int stk_store_run_clock(stk_store *store, const char *run, stk_clock_anchor *ret_anchor,
                        stk_err *err);
/* Gives a run, also one that runs, other tags (both JSON arrays): the event TAGGED, and its row.
 * STK_E_BUSY if its tags aren't `old_tags` any more: read them again. */
int stk_store_tag_run(stk_store *store, const char *run, const char *old_tags, const char *tags,
                      int64_t now_ms, stk_err *err);

/* --- events --- */

typedef struct stk_event_row {
    int64_t seq; /* from 1 within the run; set by append */
    int64_t time_ms;
    stk_event_kind kind;
    uint32_t task; /* UINT32_MAX: of the run */
    uint32_t attempt;
    const char *data; /* JSON object, or NULL */
} stk_event_row;

/* A cache entry written in the same transaction as its TASK_SUCCEEDED. */
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

/* Digests that an event names, so that gc keeps them; written in the same transaction. */
typedef struct stk_ref_row {
    const char *digest;
    uint32_t task;
    const char *output;  /* name of the output */
    const char *name;    /* artifact name, or NULL: pipeline.step.output is not given a name */
    const char *version; /* or NULL: next integer */
    const char *step;    /* of a named one: kept with the name; may be NULL */
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

/* Events come behind whatever the run has by then: its engine is not the only one who adds some
 * (stk_store_tag_run). One transaction: all or nothing, rows of the artifacts added since the last
 * commit included. When it returns 0 the events survive the death of this process (and, once
 * synced, a power cut). RUN_CREATED, RUN_STARTED, RUN_ENDED and TAGGED also update the run's row.
 * STK_E_USAGE: a name and version that another artifact has. STK_E_PROTOCOL: data that no reader
 * could read (as JSON). */
int stk_store_commit(stk_store *store, const char *run, stk_commit *commit, stk_err *err);
/* Calls `each` for every event with seq > after, in order; stops when it returns non-zero and
 * returns that. `data` is valid during the call, and may be damaged. One of an unknown kind comes
 * as a NOTE that says so. */
int stk_store_events(stk_store *store, const char *run, int64_t after,
                     int (*each)(void *arg, const stk_event_row *row), void *arg, stk_err *err);

/* The most memory of one device that the last 10 succeeded attempts of a step used, in bytes; -1
 * where none that is on record had a device. Looks at the pipeline's last 100 runs. */
int stk_store_peak(stk_store *store, const char *pipeline, const char *step, int64_t *ret_bytes,
                   stk_err *err);

/* The folder of an attempt, `…/<run>/<step>/<task>/<attempt>`. That of its task is for its user
 * alone (0700): what is below may hold what only the task should know, and stays readable for a
 * container's other user, who is given the folder itself. */
int stk_store_make_attempt(const char *dir, stk_err *err);

/* --- cache --- */

/* STK_E_NOT_FOUND (no message) when there is none. Text lives in `arena`. Doesn't check that
 * artifacts still exist. */
int stk_store_cache_get(stk_store *store, const char *key, stk_arena *arena, stk_cache_row *ret_row,
                        stk_err *err);
/* The same for who only tells of it: gc may take what it names. */
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

/* Takes over the file or folder `path` (same file system: rename; else copy), hashing it on several
 * threads unless `known_digest` is given. Links are refused, files are made read-only. Already
 * there: `path` is removed. Not fsynced now: rows know their boot, see DESIGN §4.7. */
int stk_store_add_path(stk_store *store, const char *path, const char *known_digest,
                       stk_artifact *ret, stk_err *err);
/* The same until `stop` is set: STK_E_CANCELLED, and nothing is in the store. */
int stk_store_add_path_until(stk_store *store, const char *path, const char *known_digest,
                             const atomic_bool *stop, stk_artifact *ret, stk_err *err);
int stk_store_add_bytes(stk_store *store, const void *data, size_t len, stk_artifact *ret,
                        stk_err *err);
/* As add_path but leaves the source alone (copies; reflink where the file system can). */
int stk_store_copy_path(stk_store *store, const char *path, stk_artifact *ret, stk_err *err);
/* Absolute path in `arena`. STK_E_NOT_FOUND if it isn't there. It is summed first where it isn't
 * known to be what was stored: where its inode, size, mtime or ctime are not those of its row, and
 * where it is unsynced and of an earlier boot. STK_E_STORE if its digest doesn't fit: it is then in
 * quarantine/. */
int stk_store_artifact(stk_store *store, const char *digest, stk_arena *arena,
                       const char **ret_path, int64_t *ret_size, stk_err *err);
/* The same where the bytes aren't wanted now: what only the origin has stays there, the path is
 * where it would be. */
int stk_store_locate(stk_store *store, const char *digest, stk_arena *arena, const char **ret_path,
                     int64_t *ret_size, stk_err *err);

/* Where artifacts may be that aren't here: a share. `fetch` adds the one to the store
 * (stk_store_add_path with its digest); STK_E_NOT_FOUND: the origin has it neither. */
typedef int (*stk_store_fetch)(void *arg, stk_store *store, const char *digest, stk_err *err);
/* From now on stk_store_artifact fetches what isn't here. NULL: no more. */
void stk_store_set_origin(stk_store *store, stk_store_fetch fetch, void *arg);
/* And stk_store_locate believes a row without bytes only once the origin has said that it has these
 * still: asked once a process. With the same `arg`; NULL: rows are believed. */
typedef int (*stk_store_has)(void *arg, const char *digest, bool *ret_has, stk_err *err);
void stk_store_set_origin_has(stk_store *store, stk_store_has has);
/* Notes an artifact that the origin has, and this folder doesn't need to: a row without bytes,
 * written with the next commit. Without an origin such an artifact isn't there. Already here: stays
 * as it is. STK_E_PROTOCOL: no digest. */
int stk_store_add_absent(stk_store *store, const char *digest, int64_t size, bool is_dir,
                         stk_err *err);
/* Digest of a file or folder that is not in the store (several threads). */
int stk_store_digest_path(const char *path, char ret_hex[STK_DIGEST_HEX + 1], int64_t *ret_size,
                          stk_err *err);
bool stk_store_is_beside(const stk_store *store, const char *path); /* on the same file system */

/* --- what takes long, done by another thread ---
 * A work is what adding, summing or checking reads, copies and removes; it touches no database.
 * Made and taken by the store's thread, run by any one. */

typedef struct stk_store_work stk_store_work;
/* As stk_store_add_path (`take`), or copy_path. `path` and `known_digest` are copied. */
int stk_store_work_add(stk_store *store, const char *path, const char *known_digest, bool take,
                       stk_store_work **ret_work, stk_err *err);
/* Would stk_store_artifact read more of it than takes no time? Then a work does that. */
bool stk_store_needs_sum(stk_store *store, const char *digest);
/* The next use of a folder walks it, also where that was done a moment ago: somebody may have
 * changed it since. */
void stk_store_look_again(stk_store *store, const char *digest);
/* Reads an artifact that is here; verify: from the disk, slowly. */
int stk_store_work_check(stk_store *store, const char *digest, stk_store_work **ret_work,
                         stk_err *err);
int stk_store_work_verify(stk_store *store, const char *digest, stk_store_work **ret_work,
                          stk_err *err);
/* After its run: it is believed from now on; or STK_E_STORE, and it is in quarantine/. */
int stk_store_work_checked(stk_store *store, stk_store_work *work, stk_err *err);
/* As stk_store_digest_path. */
int stk_store_work_sum(const char *path, stk_store_work **ret_work, stk_err *err);
/* Removes a file or folder. */
int stk_store_work_remove(const char *path, stk_store_work **ret_work, stk_err *err);
/* Reads, sums, copies; after it was taken: removes what it leaves. STK_E_CANCELLED: stopped. */
int stk_store_work_run(stk_store_work *work, stk_err *err);
/* From any thread, at any time: run ends within milliseconds. */
void stk_store_work_stop(stk_store_work *work);
/* After its run, of what is added: the artifact is in its place. *ret_leaves: run once more. */
int stk_store_work_take(stk_store *store, stk_store_work *work, stk_artifact *ret, bool *ret_leaves,
                        stk_err *err);
/* After its run: what was summed. */
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
/* Named artifacts (ArtifactConfig, save_artifact); version NULL: newest first. */
int stk_store_add_named(stk_store *store, const stk_named_row *row, stk_err *err);
/* Whether a commit could give this name: STK_E_USAGE, as the commit would, when `version` (not
 * NULL) belongs to other content. Ask before, and only the step fails. */
int stk_store_check_name(stk_store *store, const char *name, const char *version,
                         const char *digest, stk_err *err);
/* name NULL: all names. */
int stk_store_list_named(stk_store *store, const char *name, const char *version, uint32_t limit,
                         stk_arena *arena, stk_named_row **ret_rows, uint32_t *ret_n, stk_err *err);
/* Replaces what is known of a name and version; STK_E_BUSY if that isn't `old_ref` any more: read
 * it again. */
int stk_store_set_named_ref(stk_store *store, const char *name, const char *version,
                            const char *old_ref, const char *ref, stk_err *err);
/* Forgets a name; version NULL: all of them. The content stays until gc, where nothing else refers
 * to it. STK_E_NOT_FOUND when there was none. */
int stk_store_remove_named(stk_store *store, const char *name, const char *version, uint32_t *ret_n,
                           stk_err *err);
/* The named artifacts that a run made, in the order of their making. */
int stk_store_run_named(stk_store *store, const char *run, stk_arena *arena,
                        stk_named_row **ret_rows, uint32_t *ret_n, stk_err *err);
/* Makes all that was added survive a power cut (one syncfs) and notes it in the rows. For the end
 * of a run; STOKER_SYNC=0 skips it. */
int stk_store_sync(stk_store *store, stk_err *err);
/* The same, given up once `stop_fd` (or -1) is readable: what isn't known to be synced is summed
 * after a power cut. */
int stk_store_sync_until(stk_store *store, int stop_fd, stk_err *err);

/* --- care --- */

/* Re-reads every event and every artifact that is here; `bad` is called for each that is missing,
 * torn or changed, with its digest, or with "store.db" or "run R, event N". */
int stk_store_verify(stk_store *store, void (*bad)(void *arg, const char *digest, const char *what),
                     void *arg, uint64_t *ret_checked, uint64_t *ret_bytes, stk_err *err);
/* Moves an artifact to quarantine/ (*ret_where: its path there, malloc'd) and forgets its row:
 * whatever needs it finds it missing and makes it again. */
int stk_store_set_aside(stk_store *store, const char *digest, char **ret_where, stk_err *err);
/* Artifacts (digests, in `arena`) that were last read before `before_ms`, the longest ago first. */
int stk_store_list_unverified(stk_store *store, int64_t before_ms, uint32_t limit, stk_arena *arena,
                              const char ***ret_digests, uint32_t *ret_n, stk_err *err);
typedef struct stk_gc {
    bool dry_run;
    int64_t keep_ms;    /* runs that ended within this time are kept */
    uint32_t keep_runs; /* and this many newest per pipeline */
    /* Not by these rules: exactly these runs (ids). STK_E_BUSY if one is live, STK_E_NOT_FOUND. */
    const char *const *only;
    uint32_t n_only;
    uint64_t runs_removed, artifacts_removed, bytes_freed; /* out */
} stk_gc;
/* Removes runs outside the keep rules, then artifacts that no kept run, cache entry or name refers
 * to. Never touches a live run. */
int stk_store_gc(stk_store *store, stk_gc *gc, int64_t now_ms, stk_err *err);
/* Words for doctor: journal mode, file system, synced how. */
const char *stk_store_describe(stk_store *store, stk_arena *arena);

#endif
