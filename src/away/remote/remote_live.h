/* remote_live: what a task on another machine measures and prints, while it runs. Its agent puts
 * what its metrics files (store/metrics) and its logs have got into objects of the share. The
 * engine appends the metrics to the same files of the attempt here; logs it hears from its driver,
 * so those in the share are for who follows the share alone (away/mirror).
 *
 * runs/<run>/live/<step>/<task>/<attempt>/<file>/<offset, 12 digits> has the file's bytes from that
 * offset on. The last object of a file grows, by being put again, until it has STK_LIVE_SEAL
 * bytes. So how far the file here goes is all that an engine needs to know, be it the first one,
 * one that resumes, or one on another machine. The end brings the whole files. */
#ifndef STK_REMOTE_LIVE_H
#define STK_REMOTE_LIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "away/share/share.h"

enum {
    STK_LIVE_MS = 3000,           /* between two looks, of the agent and of the engine */
    STK_LIVE_PIECE = 256 << 10,   /* most bytes of an object */
    STK_LIVE_SEAL = 32 << 10,     /* an object of so many bytes grows no more */
    STK_LIVE_BYTES = 64 << 20,    /* of a file of metrics; what is behind comes with the end */
    STK_LIVE_LOG_BYTES = 16 << 20 /* of a log */
};

/* One attempt, and its directory on this machine. */
typedef struct stk_live_task {
    const char *key, *dir; /* "runs/<run>/<step>/<task>/<attempt>" */
    uint32_t id, attempt;  /* the caller's */
    bool wants_logs;       /* else metrics alone are fetched */
    bool has_any;          /* set if the share has something of it */
} stk_live_task;

/* "runs/<run>/live/<step>/<task>/<attempt>", by the attempt's key. */
void stk_live_key(const char *key, char ret[STK_SHARE_KEY_MAX]);
/* Appends what is new to the files of these attempts, all of one run. A single one costs no more
 * than its own objects. What can't be read or written stays for the next call. */
int stk_live_fetch(stk_share *share, stk_live_task *tasks, uint32_t n, stk_err *err);

/* The same for a backend's running tasks. The caller has its lock, which is free meanwhile. */
struct remote_backend;
void stk_remote_look_live(struct remote_backend *b);

/* One file of an agent, on its way. */
typedef struct stk_live_file {
    const char *name; /* "metrics.jsonl", "rank-1/metrics.jsonl", "tensorboard/…", "stdout.log" */
    int64_t most;     /* bytes of it that are sent */
    int64_t from, until; /* the last object's first byte, and the first that isn't sent */
} stk_live_file;

/* Puts what is new in <dir>/<name>, at most some pieces. Failures stay for the next call. Returns
 * true if there was something new, which the share may have got. */
bool stk_live_send(stk_share *share, const char *key, const char *dir, stk_live_file *file);

#endif
