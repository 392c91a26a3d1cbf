/* Staging, on a worker's thread: sends a task's needs to the share, then its order. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/remote/remote_log.h"
#include "away/remote/remote_private.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "base/limits.h"
#include "sys/dir.h"
#include "sys/file.h"

typedef struct stage {
    remote_worker *w;
    remote_task *t;
    stk_err *err;
    uint32_t cap_links;
} stage;

const char *stk_remote_object(remote_task *t, const char *name)
{
    return stk_arena_printf(t->arena, "%s/%s", t->key, name);
}

int stk_remote_worker_store(remote_worker *w, stk_err *err)
{
    if (w->store != NULL) {
        return 0;
    }
    return stk_store_open(w->b->store_path, 0, &w->store, err);
}

/* --- artifacts --- */

static bool is_known(remote_backend *b, const char *digest)
{
    uint64_t value;
    pthread_mutex_lock(&b->lock);
    bool known = stk_map_get(&b->known, digest, &value);
    pthread_mutex_unlock(&b->lock);
    return known;
}

static void now_known(remote_backend *b, const char *digest)
{
    pthread_mutex_lock(&b->lock);
    char *key = stk_arena_dup(b->arena, digest);
    if (key != NULL) {
        (void)stk_map_put(&b->known, key, 1);
    }
    pthread_mutex_unlock(&b->lock);
}

static int push_artifact(void *arg, const char *digest, stk_err *err)
{
    remote_worker *w = arg;
    bool there = false;
    if (is_known(w->b, digest)) {
        return 0;
    }
    int rc = stk_share_has(w->b->share, digest, &there, err);
    if (rc == 0 && !there) {
        rc = stk_share_push(w->b->share, w->store, digest, err);
    }
    if (rc < 0) {
        return stk_err_context(err, "artifact %.12s…", digest);
    }
    now_known(w->b, digest);
    return 0;
}

static int push_inputs(stage *s)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    remote_task *t = s->t;
    STK_TEXT_AUTO text = NULL;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    char path[PATH_MAX];
    size_t len = 0;
    stk_json doc;
    (void)snprintf(path, sizeof path, "%s/task.json", t->order.dir);
    STK_TRY(stk_file_read(path, STK_LIMIT_RESULT_BYTES, &text, &len, s->err));
    STK_TRY(stk_json_parse(text, len, path, &limits, scratch, &doc, s->err));
    t->order.task_json = stk_arena_dup(t->arena, text);
    t->order.gang = stk_json_get(&doc, "gang") != NULL;
    STK_TRY(stk_err_if_null(t->order.task_json, s->err));
    STK_TRY(stk_remote_each_digest(stk_json_get(&doc, "inputs"), push_artifact, s->w, s->err));
    return stk_remote_each_digest(stk_json_get(&doc, "flow"), push_artifact, s->w, s->err);
}

/* --- links --- */

static int add_link(stage *s, const char *at, const char *target)
{
    remote_task *t = s->t;
    stk_remote_link *links = stk_arena_grow(t->arena, (void *)(uintptr_t)t->order.links,
                                            t->order.n_links, sizeof *links, &s->cap_links);
    STK_TRY(stk_err_if_null(links, s->err));
    t->order.links = links;
    links[t->order.n_links++] = (stk_remote_link){.at = stk_arena_dup(t->arena, at),
                                                  .target = stk_arena_dup(t->arena, target)};
    return 0;
}

/* Finds the links in/NAME, and for lists in/NAME/0 … */
static int find_links(stage *s, const char *at, bool deeper)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", s->t->order.dir, at);
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read_if(path, &dir, s->err);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        const char *name = dir.items[i].name;
        char one[PATH_MAX], target[PATH_MAX];
        (void)snprintf(one, sizeof one, "%s/%s", at, name);
        ssize_t n = readlinkat(dir.fd, name, target, sizeof target - 1);
        if (n >= 0) {
            target[n] = '\0';
            rc = add_link(s, one, target);
        } else if (deeper) {
            rc = find_links(s, one, false);
        }
    }
    return rc;
}

/* --- the whole --- */

/* Checks for an agent's claim: a missing job that has begun is lost and must not be submitted
 * again. */
static int find_claim(stage *s)
{
    STK_BUF_AUTO claim = STK_BUF_INIT(64 << 10);
    int rc = stk_share_get(s->w->b->share, stk_remote_object(s->t, "claim"), &claim, s->err);
    s->t->is_begun = rc == 0;
    return stk_err_but(rc, STK_E_NOT_FOUND);
}

/* Keeps the order of an earlier engine, because started nodes of a gang know its key. */
static int put_order(stage *s)
{
    STK_BUF_AUTO text = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES * 2);
    STK_TRY(stk_remote_order_write(&s->t->order, &text, s->err));
    int rc = stk_share_put(s->w->b->share, stk_remote_object(s->t, "job.json"), text.data, text.len,
                           s->t->job.look, s->err);
    return rc == STK_E_BUSY ? 0 : rc;
}

int stk_remote_stage(remote_worker *w, remote_task *t, stk_err *err)
{
    stage s = {.w = w, .t = t, .err = err};
    remote_backend *b = w->b;
    t->order.n_links = 0;
    t->order.links = NULL;
    STK_TRY(stk_remote_worker_store(w, err));
    STK_FAILPOINT("remote.stage.before");
    if (t->job.look) { /* the driver may own `attach` now */
        STK_TRY(find_claim(&s));
    }
    STK_TRY(push_inputs(&s));
    STK_TRY(find_links(&s, "in", true));
    if (b->config.code_digest != NULL) {
        STK_TRY(push_artifact(w, b->config.code_digest, err));
    }
    if (b->config.log != NULL) {
        STK_TRY(stk_remote_log_wait(b->config.log, REMOTE_LOG_WAIT_MS, err));
    }
    STK_TRY(put_order(&s));
    STK_FAILPOINT("remote.stage.after");
    return 0;
}
