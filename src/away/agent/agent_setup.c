/* What the program needs, at the paths that it has at home: a store with its inputs, the project's
 * code, the attempt directory. */
#include <errno.h>
#include <limits.h>
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
    agent_move *move;
    pthread_mutex_t lock;
    stk_err err; /* the first one's */
} mover;

static void *move_artifacts(void *arg)
{
    mover *m = arg;
    stk_store *store = NULL;
    stk_err err = {0};
    int rc = 0;
    if (m->a->is_of_pilot) { /* its threads have stores of their own, and move one by one */
        store = m->a->store;
    } else {
        rc = stk_store_open(m->a->order.store, STK_STORE_CREATE | STK_STORE_OWN, &store, &err);
    }
    for (bool more = true; more && rc == 0;) {
        pthread_mutex_lock(&m->lock);
        const char *digest = m->at < m->n && m->err.code == 0 ? m->digests[m->at++] : NULL;
        pthread_mutex_unlock(&m->lock);
        more = digest != NULL;
        if (more && (rc = m->move(m->a->share, store, digest, &err)) < 0) {
            (void)stk_err_context(&err, "artifact %.12s…", digest);
        }
    }
    if (rc < 0) {
        pthread_mutex_lock(&m->lock);
        if (m->err.code == 0) {
            m->err = err;
        }
        pthread_mutex_unlock(&m->lock);
    }
    if (!m->a->is_of_pilot) {
        stk_store_close(store);
    }
    return NULL;
}

int stk_agent_move(agent *a, const char *const *digests, uint32_t n, agent_move *move, stk_err *err)
{
    mover m = {.a = a, .digests = digests, .n = n, .move = move, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[AGENT_MOVERS];
    uint32_t n_threads = 0;
    while (!a->is_of_pilot && n_threads + 1 < AGENT_MOVERS && n_threads + 1 < n &&
           pthread_create(&threads[n_threads], NULL, move_artifacts, &m) == 0) {
        n_threads++;
    }
    if (n > 0) {
        (void)move_artifacts(&m);
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
    stk_map *seen;
    stk_arena *arena;
} digests;

static int add_digest(void *arg, const char *digest, stk_err *err)
{
    digests *d = arg;
    uint64_t value;
    if (stk_map_get(d->seen, digest, &value)) {
        return 0;
    }
    const char **items = stk_arena_grow(d->arena, d->items, d->n, sizeof *items, &d->cap);
    if (items == NULL || stk_map_put(d->seen, digest, 1) < 0) {
        return stk_err_nomem(err);
    }
    d->items = items;
    items[d->n++] = digest;
    return 0;
}

static int pull_inputs(agent *a, stk_err *err)
{
    STK_MAP_AUTO seen = {0};
    digests d = {.arena = a->arena, .seen = &seen};
    STK_TRY(stk_remote_each_digest(stk_json_get(&a->task, "inputs"), add_digest, &d, err));
    STK_TRY(stk_remote_each_digest(stk_json_get(&a->task, "flow"), add_digest, &d, err));
    bool needs_code = a->order.code_digest != NULL && !a->is_of_pilot;
    if (needs_code && strlen(a->order.code_digest) == STK_DIGEST_HEX) {
        STK_TRY(add_digest(&d, a->order.code_digest, err));
    }
    return stk_agent_move(a, d.items, d.n, stk_share_pull, err);
}

/* --- code --- */

static int move_all(const char *from_folder, const char *to_folder, stk_err *err);

/* A folder within which the node's own is kept takes the entries one by one; what is kept stays as
 * it is (agent_nest.c). */
static int move_up(const char *from, const char *to, stk_err *err)
{
    if (rename(from, to) == 0 || errno == EBUSY) {
        return 0;
    }
    if (errno == ENOTEMPTY || errno == EEXIST) {
        return move_all(from, to, err);
    }
    return stk_err_sys(err, STK_E_SYS, errno, "laying out the project's code at %s", to);
}

static int move_all(const char *from_folder, const char *to_folder, stk_err *err)
{
    STK_DIR_AUTO dir = {0};
    STK_TRY(stk_dir_read(from_folder, &dir, err));
    for (uint32_t i = 0; i < dir.n; i++) {
        char from[PATH_MAX], to[PATH_MAX];
        if (snprintf(from, sizeof from, "%s/%s", from_folder, dir.items[i].name) >= PATH_MAX ||
            snprintf(to, sizeof to, "%s/%s", to_folder, dir.items[i].name) >= PATH_MAX) {
            return stk_err_sys(err, STK_E_SYS, ENAMETOOLONG, "laying out the project's code at %s",
                               to_folder);
        }
        STK_TRY(move_up(from, to, err));
    }
    return 0;
}

/* The root is there already, and empty: a mounted volume. So the view is made within it, and its
 * entries are moved up. */
int stk_agent_lay_out_code(agent *a, stk_err *err)
{
    const char *root = a->order.code_root;
    char view[PATH_MAX];
    if (a->order.code_digest == NULL) {
        return 0;
    }
    (void)snprintf(view, sizeof view, "%s/.stoker-code.%d", root, (int)getpid());
    STK_TRY(stk_file_mkdirs(root, 0755, err));
    STK_TRY(stk_package_view(a->store, a->order.code_digest, view, err));
    (void)chmod(view, 0755);
    STK_TRY(move_all(view, root, err));
    (void)stk_file_remove_tree(view, NULL);
    return 0;
}

/* --- the attempt directory --- */

static int make_links(const agent *a, stk_err *err)
{
    for (uint32_t i = 0; i < a->order.n_links; i++) {
        const stk_remote_link *l = &a->order.links[i];
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/%s", a->order.dir, l->at);
        char *slash = strrchr(path, '/');
        *slash = '\0';
        STK_TRY(stk_file_mkdirs(path, 0755, err));
        *slash = '/';
        if (symlink(l->target, path) < 0 && errno != EEXIST) {
            return stk_err_sys(err, STK_E_SYS, errno, "linking %s", path);
        }
    }
    return 0;
}

static int make_folders(const agent *a, stk_err *err)
{
    char path[PATH_MAX];
    STK_TRY(stk_store_make_attempt(a->order.dir, err));
    (void)snprintf(path, sizeof path, "%s/out", a->order.dir);
    STK_TRY(stk_file_mkdirs(path, 0755, err));
    (void)snprintf(path, sizeof path, "%s/in", a->order.dir);
    return stk_file_mkdirs(path, 0755, err);
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
            return stk_err_set(err, STK_E_ENV,
                               "secret '%s' is missing in the container's environment",
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
    if (a->store == NULL) { /* a pilot's threads have theirs */
        STK_TRY(stk_file_mkdirs(a->order.store, 0755, err));
        STK_TRY(stk_store_open(a->order.store, STK_STORE_CREATE | STK_STORE_OWN, &a->store, err));
    }
    STK_FAILPOINT("agent.setup.store");
    STK_TRY(pull_inputs(a, err));
    if (!a->is_of_pilot) {
        STK_TRY(stk_agent_lay_out_code(a, err));
    }
    STK_TRY(make_folders(a, err));
    STK_TRY(make_links(a, err));
    return stk_agent_checkpoints_fetch(a, err);
}
