/* A job on a host that hasn't the store reads and writes a folder of that host, at the same path as
 * the store's: what it reads is brought there before it starts, what it made is brought to the
 * store after its end. Each object is copied whole and what has a digest once, so that a copy that
 * was cut is simply made again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "away/remote/remote_live.h"
#include "away/remote/remote_order.h"
#include "away/ssh/ssh_driver.h"
#include "base/failpoint.h"
#include "base/map.h"
#include "base/text.h"
#include "sys/file.h"

enum { OBJECT_BYTES = 256 << 20, SMALL = 1 << 20, KEY = STK_SHARE_KEY_MAX + 96 };

typedef struct mover {
    stk_share *from, *to;
    char folder[64]; /* for files on their way */
} mover;

static int open_mover(stk_share *from, stk_share *to, mover *ret, stk_err *err)
{
    *ret = (mover){.from = from, .to = to};
    const char *tmp = stk_text_if_any(getenv("TMPDIR"));
    (void)snprintf(ret->folder, sizeof ret->folder, "%.40s/stk-mirror-XXXXXX",
                   tmp == NULL || strlen(tmp) > 40 ? "/tmp" : tmp);
    if (mkdtemp(ret->folder) == NULL) {
        ret->folder[0] = '\0';
        return stk_err_sys(err, STK_E_ENV, errno, "a folder in %s", stk_text_or(tmp, "/tmp"));
    }
    return 0;
}

static void close_mover(mover *m)
{
    if (m->folder[0] != '\0') {
        (void)stk_file_remove_tree(m->folder, NULL);
    }
}
#define MOVER_AUTO __attribute__((cleanup(close_mover))) mover

static int copy_object(const mover *m, const char *key, stk_err *err)
{
    char path[128];
    (void)snprintf(path, sizeof path, "%s/object", m->folder);
    STK_TRY(stk_share_get_file(m->from, key, path, err));
    int rc = stk_share_put_file(m->to, key, path, err);
    (void)unlink(path);
    return rc;
}

/* --- artifacts --- */

static int note_there(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    (void)key, (void)size, (void)mtime_ms;
    *(bool *)arg = true;
    return 1;
}

static int has_key(stk_share *share, const char *key, bool *ret, stk_err *err)
{
    *ret = false;
    int rc = stk_share_list(share, key, NULL, note_there, ret, err);
    if (*ret) {
        return 0;
    }
    return rc;
}

static int copy_if_missing(const mover *m, const char *key, stk_err *err)
{
    bool there = false;
    STK_TRY(has_key(m->to, key, &there, err));
    if (there) {
        return 0;
    }
    return copy_object(m, key, err);
}

/* The files of a folder: lines "DIGEST SIZE PATH" (docs/formats/shared-stores.md). */
static int copy_files(const mover *m, char *tree, stk_err *err)
{
    for (char *line = tree, *next = NULL; line != NULL; line = next) {
        char key[KEY];
        next = strchr(line, '\n');
        if (next != NULL) {
            next++;
        }
        if (strspn(line, "0123456789abcdef") == STK_DIGEST_HEX && line[STK_DIGEST_HEX] == ' ') {
            (void)snprintf(key, sizeof key, "artifacts/%.2s/%.62s", line, line + 2);
            STK_TRY(copy_if_missing(m, key, err));
        }
    }
    return 0;
}

/* The list of a folder's files goes last: where it is, all is. */
static int copy_artifact(void *arg, const char *digest, stk_err *err)
{
    const mover *m = arg;
    char key[KEY];
    bool there = false;
    STK_BUF_AUTO tree = STK_BUF_INIT(OBJECT_BYTES);
    STK_TRY(stk_share_has(m->to, digest, &there, err));
    if (there) {
        return 0;
    }
    (void)snprintf(key, sizeof key, "artifacts/%.2s/%s.tree", digest, digest + 2);
    int rc = stk_share_get(m->from, key, &tree, err);
    if (rc == STK_E_NOT_FOUND) {
        key[strlen(key) - strlen(".tree")] = '\0';
        return copy_object(m, key, err);
    }
    STK_TRY(rc);
    STK_TRY(copy_files(m, tree.data, err));
    return copy_object(m, key, err);
}

/* --- objects below a key --- */

typedef struct listed {
    stk_arena *arena;
    const char **keys;
    int64_t *sizes;
    uint32_t n, cap;
    bool failed;
} listed;

static int add_listed(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    listed *l = arg;
    (void)mtime_ms;
    const char **keys = stk_arena_grow(l->arena, l->keys, l->n, sizeof *keys, &l->cap);
    const char *copy = stk_arena_printf(l->arena, "%lld %s", (long long)size, key);
    l->failed = keys == NULL || copy == NULL;
    if (!l->failed) {
        l->keys = keys;
        l->keys[l->n++] = copy;
    }
    return l->failed;
}

static bool is_end(const char *name)
{
    return strncmp(name, "end", 3) == 0 && strstr(name, ".json") != NULL;
}

/* What only the store or only the host has a use for. */
static bool stays(const char *name)
{
    return strcmp(name, "job.json") == 0 || strcmp(name, "host") == 0;
}

/* Large objects that are there with this size already were copied by an earlier try. */
static int copy_listed(const mover *m, const char *line, const listed *there, stk_err *err)
{
    int64_t size = strtoll(line, NULL, 10);
    for (uint32_t i = 0; size > SMALL && i < there->n; i++) {
        if (strcmp(there->keys[i], line) == 0) {
            return 0;
        }
    }
    return copy_object(m, strchr(line, ' ') + 1, err);
}

static int list_below(stk_share *share, const char *below, listed *ret, stk_err *err)
{
    char prefix[KEY];
    (void)snprintf(prefix, sizeof prefix, "%s/", below);
    STK_TRY(
        stk_err_but(stk_share_list(share, prefix, NULL, add_listed, ret, err), STK_E_NOT_FOUND));
    if (ret->failed) {
        return stk_err_nomem(err);
    }
    return 0;
}

/* All below a key; ends (`ends`) in a later call, because they mean that the rest is there. */
static int copy_below(const mover *m, const char *below, bool ends, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    listed here = {.arena = arena}, there = {.arena = arena};
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(list_below(m->from, below, &here, err));
    STK_TRY(list_below(m->to, below, &there, err));
    for (uint32_t i = 0; i < here.n; i++) {
        const char *key = strchr(here.keys[i], ' ') + 1;
        const char *name = key + strlen(below) + 1;
        if (!stays(name) && is_end(name) == ends) {
            STK_TRY(stk_err_but(copy_listed(m, here.keys[i], &there, err), STK_E_NOT_FOUND));
        }
    }
    return 0;
}

/* "runs/<run>/<step>/<task>/checkpoints" */
static void checkpoints_key(const char *key, char ret[KEY])
{
    const char *attempt = stk_text_behind(key, '/');
    (void)snprintf(ret, KEY, "%.*scheckpoints", (int)(attempt - key), key);
}

/* The lists of checkpoints name what has to be there before: they are copied again, last. */
static int copy_checkpoints(const mover *m, const char *key, stk_err *err)
{
    char below[KEY];
    checkpoints_key(key, below);
    return copy_below(m, below, false, err);
}

/* --- there and back --- */

static int read_order(const mover *m, const char *key, stk_arena *arena, stk_remote_order *ret,
                      stk_err *err)
{
    char at[KEY];
    STK_BUF_AUTO text = STK_BUF_INIT(OBJECT_BYTES);
    (void)snprintf(at, sizeof at, "%s/job.json", key);
    STK_TRY(stk_share_get(m->from, at, &text, err));
    const char *kept = stk_buf_keep(&text, arena);
    STK_TRY(stk_err_if_null(kept, err));
    return stk_remote_order_read(kept, text.len, arena, ret, err);
}

int stk_ssh_mirror_in(ssh_driver *d, uint32_t host, const char *key, stk_err *err)
{
    MOVER_AUTO m = {0};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_remote_order order;
    char at[KEY];
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(open_mover(d->share, d->hosts[host].mirror, &m, err));
    STK_TRY(read_order(&m, key, arena, &order, err));
    const stk_json *task = stk_json_read(arena, order.task_json);
    STK_TRY(stk_err_if_null(task, err));
    STK_TRY(stk_remote_each_digest(stk_json_get(task, "inputs"), copy_artifact, &m, err));
    STK_TRY(stk_remote_each_digest(stk_json_get(task, "flow"), copy_artifact, &m, err));
    if (order.code_digest != NULL && strlen(order.code_digest) == STK_DIGEST_HEX) {
        STK_TRY(copy_artifact(&m, order.code_digest, err));
    }
    STK_TRY(copy_checkpoints(&m, key, err));
    (void)snprintf(at, sizeof at, "%s/job.json", key);
    return copy_object(&m, at, err);
}

static int copy_outputs_of(mover *m, const char *text, size_t n, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_json *result = stk_json_readn(arena, text, n);
    return stk_remote_each_digest(result, copy_artifact, m, err);
}

/* Artifacts that the results name. */
static int copy_outputs(mover *m, const char *end_key, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_BUF_AUTO text = STK_BUF_INIT(OBJECT_BYTES);
    stk_remote_end end;
    STK_TRY(stk_err_if_null(arena, err));
    int rc = stk_share_get(m->from, end_key, &text, err);
    if (rc == STK_E_NOT_FOUND) {
        return 0; /* it was ended before it could write one */
    }
    STK_TRY(rc);
    STK_TRY(stk_remote_end_read(text.data, text.len, arena, &end, err));
    for (uint32_t i = 0; i < end.n_files; i++) {
        const stk_remote_file *f = &end.files[i];
        STK_BUF_AUTO data = STK_BUF_INIT(OBJECT_BYTES);
        if (strcmp(stk_text_behind(f->name, '/'), "result.json") != 0) {
            continue;
        }
        if (f->data != NULL) {
            STK_TRY(copy_outputs_of(m, f->data, (size_t)f->size, err));
        } else {
            STK_TRY(stk_share_get(m->from, f->key, &data, err));
            STK_TRY(copy_outputs_of(m, data.data, data.len, err));
        }
    }
    return 0;
}

int stk_ssh_mirror_out(ssh_driver *d, uint32_t host, uint32_t node, const char *key, stk_err *err)
{
    MOVER_AUTO m = {0};
    char end[KEY];
    STK_TRY(open_mover(d->hosts[host].mirror, d->share, &m, err));
    (void)snprintf(end, sizeof end, "%s/end.json", key);
    if (node > 0) {
        (void)snprintf(end, sizeof end, "%s/end-%u.json", key, node);
    }
    STK_TRY(copy_outputs(&m, end, err));
    STK_TRY(copy_checkpoints(&m, key, err));
    STK_TRY(copy_below(&m, key, false, err));
    STK_FAILPOINT("ssh.mirror.mid");
    return copy_below(&m, key, true, err);
}

void stk_ssh_mirror_drop(ssh_driver *d, uint32_t host, const char *key)
{
    char live[STK_SHARE_KEY_MAX];
    stk_live_key(key, live);
    (void)stk_share_delete_all(d->hosts[host].mirror, live, NULL);
    (void)stk_share_delete_all(d->hosts[host].mirror, key, NULL);
}

/* --- live metrics --- */

static bool is_of_any(const ssh_work *w, const char *key)
{
    for (uint32_t i = 0; w->orders[i] != NULL; i++) {
        size_t n = strlen(w->orders[i]);
        if (strncmp(key, w->orders[i], n) == 0 && key[n] == '/') {
            return true;
        }
    }
    return false;
}

/* Those of the jobs of w->orders whose size isn't the one that the store has: they grow. */
static int copy_live(ssh_driver *d, ssh_work *w, stk_err *err)
{
    MOVER_AUTO m = {0};
    STK_MAP_AUTO known = {0};
    listed here = {.arena = w->arena}, there = {.arena = w->arena};
    stk_share *mirror = d->hosts[w->host].mirror;
    STK_TRY(list_below(mirror, w->key, &here, err));
    if (here.n == 0) {
        return 0;
    }
    STK_TRY(list_below(d->share, w->key, &there, err));
    for (uint32_t i = 0; i < there.n; i++) {
        STK_TRY(stk_map_put(&known, there.keys[i], i));
    }
    STK_TRY(open_mover(mirror, d->share, &m, err));
    for (uint32_t i = 0; i < here.n; i++) {
        const char *key = strchr(here.keys[i], ' ') + 1;
        if (is_of_any(w, key) && !stk_map_get(&known, here.keys[i], &(uint64_t){0})) {
            STK_TRY(stk_err_but(copy_object(&m, key, err), STK_E_NOT_FOUND));
        }
    }
    return 0;
}

static void run_live(ssh_driver *d, ssh_work *w)
{
    w->rc = copy_live(d, w, &w->err);
}

/* What failed is tried again with what comes next. */
static void live_done(ssh_driver *d, ssh_work *w)
{
    d->hosts[w->host].is_heard = false;
    d->hosts[w->host].next_hear_ms = stk_ssh_now_ms() + STK_LIVE_MS;
}

static bool runs_on(const ssh_task *t, uint32_t host)
{
    bool is = false;
    for (uint32_t p = 0; p < t->n_parts; p++) {
        is = is || t->parts[p].host == host;
    }
    return is && t->phase == SSH_LIVES && t->is_running && !t->spec->reads;
}

/* Of all running jobs of a host at once, as they have one run. */
static void hear_host(ssh_driver *d, uint32_t host)
{
    char live[STK_SHARE_KEY_MAX];
    ssh_work *w = stk_ssh_work_new(run_live, live_done, (int)host);
    const char **keys = NULL;
    uint32_t n = 0;
    if (w == NULL || (keys = stk_arena_array(w->arena, d->n_tasks + 1, sizeof *keys)) == NULL) {
        stk_ssh_work_free(w);
        return;
    }
    for (uint32_t i = 0; i < d->n_tasks; i++) {
        if (runs_on(d->tasks[i], host)) {
            stk_live_key(d->tasks[i]->key, live);
            keys[n] = stk_arena_dup(w->arena, live);
            n += keys[n] != NULL;
        }
    }
    keys[n] = NULL;
    w->orders = keys;
    w->key = stk_arena_printf(w->arena, "runs/%s/live", d->config.run);
    w->is_look = true;
    if (n == 0 || w->key == NULL) {
        stk_ssh_work_free(w);
        return;
    }
    d->hosts[host].is_heard = stk_ssh_work_begin(d, w);
}

int64_t stk_ssh_mirror_live(ssh_driver *d, int64_t now)
{
    int64_t next = INT64_MAX;
    for (uint32_t h = 0; h < d->n_hosts; h++) {
        bool any = false;
        for (uint32_t i = 0; i < d->n_tasks && d->hosts[h].mirror != NULL && !any; i++) {
            any = runs_on(d->tasks[i], h);
        }
        int64_t due = MAX(d->hosts[h].next_hear_ms, d->hosts[h].away_until_ms);
        if (any && !d->hosts[h].is_heard && now >= due) {
            hear_host(d, h);
        } else if (any && !d->hosts[h].is_heard) {
            next = MIN(next, due);
        }
    }
    return next;
}
