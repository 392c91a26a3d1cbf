/* The messages between the engine and an agent, as objects of the share: job.json (the order),
 * end.json (the end), and the list by which children of an array find their orders. Pure: reads and
 * writes text (docs/formats/shared-stores.md; schema/job.schema.json, schema/end.schema.json).
 */
#ifndef STK_REMOTE_ORDER_H
#define STK_REMOTE_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/digest.h"
#include "base/err.h"
#include "base/json.h"
#include "host/runner/runner.h"

enum {
    STK_REMOTE_NAME = 48, /* most bytes of a job's name; Kubernetes adds up to 15 for a pod's */
    /* Exit status of an agent without a task's status to pass on. Engines show it. */
    STK_AGENT_CLAIMED = 73,  /* another pod has begun this attempt */
    STK_AGENT_NO_SHARE = 74, /* the share couldn't be reached */
    STK_AGENT_PREEMPTED = 75,
    STK_AGENT_BUSY = 76 /* others hold the devices of the host that it shares */
};

/* The name of an attempt's job: "s-<8 hex of the run>-<step>-<task>-<attempt>", of [a-z0-9-]. A
 * step name that is too long or has other letters is cut and gets "--" and 8 hex of its digest. */
void stk_remote_name(const char *run, const char *step, uint32_t task, uint32_t attempt,
                     char ret_name[STK_REMOTE_NAME + 1]);
/* True for a path that stays inside of its folder: it has no empty, "." or ".." part. */
bool stk_remote_is_below(const char *path);
/* True for "rank-N", whatever follows, of a rank that no gang has. */
bool stk_remote_is_wild_rank(const char *part);
/* The part "runs/<run>/<step>/<task>/<attempt>" of an attempt directory below `store`; NULL:
 * another directory. Points into `dir`. */
const char *stk_remote_key(const char *store, const char *dir);

/* Calls each(arg, digest) for each value in task.json (or NULL) that has a digest, which are the
 * artifacts that the task may read. Doesn't search inside of such a value. Returns the first error.
 */
int stk_remote_each_digest(const stk_json *node,
                           int (*each)(void *arg, const char *digest, stk_err *err), void *arg,
                           stk_err *err);

typedef struct stk_remote_link {
    const char *at; /* below the attempt directory: "in/data" */
    const char *target;
} stk_remote_link;

/* job.json. Texts are NUL-terminated and never NULL unless said. */
typedef struct stk_remote_order {
    const char *run, *step;
    uint32_t task, attempt;
    const char *dir, *store; /* absolute, the same on both machines */
    const char *const *argv;
    const char *cwd;           /* or NULL: `dir` */
    const char *const *env;    /* "K=V" without secrets, NULL-terminated */
    const char *const *expand; /* names of it that refer to the image's environment
                                  (base/expand.h); NULL: none */
    const char *const *pass;   /* names of secrets, from the container's environment */
    const char *task_json;
    const stk_remote_link *links;
    uint32_t n_links;
    const char *code_digest, *code_root; /* or NULL */
    int64_t timeout_ms, notice_ms, grace_ms, sample_ms;
    bool reads_samples, gang;
    const char *checkpoints; /* or NULL */
    uint32_t nodes, threads;
    const char *device_vendor;         /* NULL: any */
    uint32_t n_devices;                /* 0: none asked */
    const char *const *device_classes; /* any one of these, NULL-terminated; NULL: any */
} stk_remote_order;

int stk_remote_order_write(const stk_remote_order *order, stk_buf *buf, stk_err *err);
/* STK_E_VERSION, STK_E_PROTOCOL: it is no order, or leads out of its folders. */
int stk_remote_order_read(const char *text, size_t len, stk_arena *arena, stk_remote_order *ret,
                          stk_err *err);

/* runs/<run>/arrays/<name>.json: the attempts of an array of jobs, by index. All belong to one
 * step:
 * {"stoker": 1, "at": "runs/<run>/<step>", "keys": ["<task>/<attempt>", …]}. */
int stk_remote_list_write(const char *const *keys, uint32_t n, stk_buf *buf, stk_err *err);
int stk_remote_list_read(const char *text, size_t len, stk_arena *arena, const char ***ret_keys,
                         uint32_t *ret_n, stk_err *err);

/* One file of the attempt directory. */
typedef struct stk_remote_file {
    const char *name; /* below it: "rank-1/stdout.log" */
    const char *data; /* its content, or NULL: */
    const char *key;  /* the share's object that has it */
    int64_t size;
} stk_remote_file;

/* end.json. */
typedef struct stk_remote_end {
    const char *host;
    uint32_t node;
    int64_t started_ms, ended_ms; /* wall clock; -1: it never started */
    stk_outcome outcome;          /* texts of its devices live as long as the arena */
    const char *granted;          /* JSON object, or NULL */
    const stk_remote_file *files;
    uint32_t n_files;
    bool has_live; /* the share has what remote_live.h put there meanwhile */
} stk_remote_end;

int stk_remote_end_write(const stk_remote_end *end, stk_buf *buf, stk_err *err);
/* STK_E_PROTOCOL: it names a file that isn't below the attempt directory. */
int stk_remote_end_read(const char *text, size_t len, stk_arena *arena, stk_remote_end *ret,
                        stk_err *err);

#endif
