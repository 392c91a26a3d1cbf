/* What the program needs, at the paths that it has at home: a store with its inputs, the project's
 * code, the attempt directory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "base/failpoint.h"
#include "store/package/package.h"
#include "sys/dir.h"
#include "sys/file.h"

/* --- moving artifacts --- */

typedef struct mover {
    agent *a;
    const char *const *digests;
    uint32_t n, at;
    bool push;
    pthread_mutex_t lock;
    stk_err err; /* the first one's */
} mover;

static void *move(void *arg)
{
    mover *m = arg;
    stk_store *store = NULL;
    stk_err err = {0};
    int rc = stk_store_open(m->a->order.store, STK_STORE_CREATE | STK_STORE_OWN, &store, &err);
    for (bool more = true; more && rc == 0;) {
        pthread_mutex_lock(&m->lock);
        const char *digest = m->at < m->n && m->err.code == 0 ? m->digests[m->at++] : NULL;
        pthread_mutex_unlock(&m->lock);
        more = digest != NULL;
        if (more) {
            rc = m->push ? stk_share_push(m->a->share, store, digest, &err)
                         : stk_share_pull(m->a->share, store, digest, &err);
            rc = rc < 0 ? stk_err_context(&err, "artifact %.12s…", digest) : 0;
        }
    }
    if (rc < 0) {
        pthread_mutex_lock(&m->lock);
        if (m->err.code == 0) {
            m->err = err;
        }
        pthread_mutex_unlock(&m->lock);
    }
    stk_store_close(store);
    return NULL;
}

int stk_agent_move(agent *a, const char *const *digests, uint32_t n, bool push, stk_err *err)
{
    mover m = {.a = a, .digests = digests, .n = n, .push = push, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[AGENT_MOVERS];
    uint32_t n_threads = 0;
    while (n_threads + 1 < AGENT_MOVERS && n_threads + 1 < n &&
           pthread_create(&threads[n_threads], NULL, move, &m) == 0) {
        n_threads++;
    }
    if (n > 0) {
        (void)move(&m);
    }
    for (uint32_t i = 0; i < n_threads; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    (void)pthread_mutex_destroy(&m.lock);
    if (m.err.code < 0) {
        *err = m.err;
    }
    return m.err.code;
}

/* --- inputs --- */

typedef struct digests {
    const char **items;
    uint32_t n, cap;
    stk_map seen;
    stk_arena *arena;
    bool failed;
} digests;

static void add_digest(digests *d, const char *digest)
{
    uint64_t value;
    if (digest == NULL || strlen(digest) != STK_DIGEST_HEX ||
        stk_map_get(&d->seen, digest, &value)) {
        return;
    }
    const char **items = stk_arena_grow(d->arena, d->items, d->n, sizeof *items, &d->cap);
    d->failed = d->failed || items == NULL || stk_map_put(&d->seen, digest, 1) < 0;
    if (items != NULL) {
        d->items = items;
        items[d->n++] = digest;
    }
}

/* As the engine looked for them (remote_stage.c): whatever has a digest. */
static void find_digests(digests *d, const stk_json *node)
{
    if (node->kind == STK_JSON_LIST) {
        for (uint32_t i = 0; i < node->n; i++) {
            find_digests(d, &node->items[i]);
        }
    } else if (node->kind == STK_JSON_MAP) {
        add_digest(d, stk_json_text(stk_json_get(node, "digest")));
        for (uint32_t i = 0; i < node->n; i++) {
            find_digests(d, stk_json_value(node, i));
        }
    }
}

static int pull_inputs(agent *a, stk_err *err)
{
    static const char *const parts[] = {"inputs", "flow"};
    digests d = {.arena = a->arena};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const stk_json *node = stk_json_get(&a->task, parts[i]);
        if (node != NULL) {
            find_digests(&d, node);
        }
    }
    add_digest(&d, a->order.code_digest);
    int rc = d.failed ? stk_err_nomem(err) : stk_agent_move(a, d.items, d.n, false, err);
    stk_map_done(&d.seen);
    return rc;
}

/* --- code --- */

/* The root is there already, and empty: a mounted volume. So the view is made within it, and its
 * entries are moved up. */
static int lay_out_code(agent *a, stk_err *err)
{
    const char *root = a->order.code_root;
    if (a->order.code_digest == NULL) {
        return 0;
    }
    const char *view = stk_arena_printf(a->arena, "%s/.stoker-code.%d", root, (int)getpid());
    int rc = view == NULL ? stk_err_nomem(err) : stk_file_mkdirs(root, 0755, err);
    rc = rc < 0 ? rc : stk_package_view(a->store, a->order.code_digest, view, err);
    STK_DIR_AUTO dir = {0};
    rc = rc < 0 ? rc : stk_dir_read(view, &dir, err);
    (void)chmod(view, 0755);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        char from[4096], to[4096];
        (void)snprintf(from, sizeof from, "%s/%s", view, dir.items[i].name);
        (void)snprintf(to, sizeof to, "%s/%s", root, dir.items[i].name);
        if (rename(from, to) < 0) {
            rc = stk_err_sys(err, STK_E_SYS, errno, "laying out the project's code at %s", to);
        }
    }
    (void)rmdir(view);
    return rc;
}

/* --- the attempt directory --- */

static int make_links(agent *a, stk_err *err)
{
    for (uint32_t i = 0; i < a->order.n_links; i++) {
        const stk_remote_link *l = &a->order.links[i];
        char *path = stk_arena_printf(a->arena, "%s/%s", a->order.dir, l->at);
        if (path == NULL) {
            return stk_err_nomem(err);
        }
        char *slash = strrchr(path, '/');
        *slash = '\0';
        int rc = stk_file_mkdirs(path, 0755, err);
        *slash = '/';
        if (rc == 0 && symlink(l->target, path) < 0 && errno != EEXIST) {
            rc = stk_err_sys(err, STK_E_SYS, errno, "linking %s", path);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

static int make_folder(agent *a, stk_err *err)
{
    static const char *const names[] = {"out", "in"};
    int rc = stk_store_make_attempt(a->order.dir, err);
    for (size_t i = 0; i < sizeof names / sizeof *names && rc == 0; i++) {
        const char *path = stk_arena_printf(a->arena, "%s/%s", a->order.dir, names[i]);
        rc = path == NULL ? stk_err_nomem(err) : stk_file_mkdirs(path, 0755, err);
    }
    return rc;
}

static int find_secrets(agent *a, stk_err *err)
{
    uint32_t n = 0;
    while (a->order.pass[n] != NULL) {
        n++;
    }
    a->secrets = stk_arena_array(a->arena, (size_t)n + 1, sizeof *a->secrets);
    for (uint32_t i = 0; i < n && a->secrets != NULL; i++) {
        const char *value = getenv(a->order.pass[i]);
        if (value == NULL) {
            return stk_err_set(err, STK_E_ENV, "secret '%s' is not in the container's environment",
                               a->order.pass[i]);
        }
        a->secrets[a->n_secrets++] = value;
    }
    STK_TRY(stk_err_if_null(a->secrets, err));
    return stk_mask_new(a->secrets, &a->mask, err);
}

int stk_agent_setup(agent *a, stk_err *err)
{
    STK_TRY(find_secrets(a, err));
    STK_TRY(stk_file_mkdirs(a->order.store, 0755, err));
    STK_TRY(stk_store_open(a->order.store, STK_STORE_CREATE | STK_STORE_OWN, &a->store, err));
    STK_FAILPOINT("agent.setup.store");
    STK_TRY(pull_inputs(a, err));
    STK_TRY(lay_out_code(a, err));
    STK_TRY(make_folder(a, err));
    STK_TRY(make_links(a, err));
    return stk_agent_checkpoints_bring(a, err);
}
