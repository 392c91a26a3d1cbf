/* Checkpoints of a task that may be ended at any moment: each goes to the share once it is
 * complete, and checkpoints.json says which there are: {name: {"digest", "attempt"}}, newest last,
 * each with the attempt that made it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/agent_private.h"
#include "base/failpoint.h"
#include "sys/file.h"

enum { LOOK_S = 2 };

/* "runs/<run>/<step>/<task>/checkpoints.json" */
static const char *object(agent *a)
{
    return stk_arena_printf(a->checkpoints.arena, "%.*s/checkpoints.json",
                            (int)(strrchr(a->key, '/') - a->key), a->key);
}

/* --- bringing --- */

static int64_t changed_ns(const struct stat *st)
{
    return (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
}

static struct agent_checkpoint *add(agent_checkpoints *c, const char *name, const char *digest,
                                    int64_t attempt, int64_t ns)
{
    struct agent_checkpoint *items =
        stk_arena_grow(c->arena, c->items, c->n, sizeof *items, &c->cap);
    if (items == NULL) {
        return NULL;
    }
    c->items = items;
    items[c->n] = (struct agent_checkpoint){.name = stk_arena_dup(c->arena, name),
                                            .digest = stk_arena_dup(c->arena, digest),
                                            .attempt = attempt,
                                            .changed_ns = ns};
    return items[c->n].name == NULL ? NULL : &items[c->n++];
}

static int bring(agent *a, const char *name, const char *digest, int64_t attempt, stk_err *err)
{
    const char *path = NULL;
    int64_t size = 0;
    struct stat st;
    const char *made = stk_arena_printf(a->arena, "%s/.%s", a->order.checkpoints, name);
    const char *to = stk_arena_printf(a->arena, "%s/%s", a->order.checkpoints, name);
    if (made == NULL || to == NULL) {
        return stk_agent_nomem(err);
    }
    int rc = stk_share_pull(a->share, a->store, digest, err);
    rc = rc < 0 ? rc : stk_store_artifact(a->store, digest, a->arena, &path, &size, err);
    rc = rc < 0 ? rc : stk_file_copy_tree(path, made, err); /* it may change what it finds */
    if (rc == 0 && (rename(made, to) < 0 || stat(to, &st) < 0)) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "making %s", to);
    }
    if (rc == 0 && add(&a->checkpoints, name, digest, attempt, changed_ns(&st)) == NULL) {
        rc = stk_agent_nomem(err);
    }
    return rc;
}

int stk_agent_checkpoints_bring(agent *a, stk_err *err)
{
    static const stk_json_limits limits = {1 << 20, 1 << 16, 8};
    agent_checkpoints *c = &a->checkpoints;
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    stk_json doc;
    if (a->order.checkpoints == NULL) {
        return 0;
    }
    c->arena = stk_arena_new(0);
    const char *key = c->arena == NULL ? NULL : object(a);
    int rc = key == NULL ? stk_agent_nomem(err) : stk_share_get(a->share, key, &text, err);
    if (rc == STK_E_NOT_FOUND) {
        return 0;
    }
    rc = rc < 0 ? rc : stk_json_parse(text.data, text.len, key, &limits, a->arena, &doc, err);
    rc = rc < 0 ? rc : stk_file_mkdirs(a->order.checkpoints, 0755, err);
    for (uint32_t i = 0; rc == 0 && doc.kind == STK_JSON_MAP && i < doc.n; i++) {
        const char *name = stk_json_key(&doc, i)->text;
        const stk_json *about = stk_json_value(&doc, i);
        const char *digest = stk_json_text(stk_json_get(about, "digest"));
        int64_t attempt = 0;
        (void)stk_json_int(stk_json_get(about, "attempt"), &attempt);
        if (digest != NULL && name[0] != '.' && strchr(name, '/') == NULL) {
            rc = bring(a, name, digest, attempt, err);
            rc = rc < 0 ? stk_err_context(err, "checkpoint '%s'", name) : 0;
        }
    }
    return rc;
}

/* --- saving --- */

static struct agent_checkpoint *find(agent_checkpoints *c, const char *name)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (strcmp(c->items[i].name, name) == 0) {
            return &c->items[i];
        }
    }
    return NULL;
}

static int by_date(const void *x, const void *y)
{
    const struct agent_checkpoint *a = x, *b = y;
    return a->changed_ns < b->changed_ns ? -1 : a->changed_ns > b->changed_ns;
}

/* A new one, or one that was replaced. What vanishes meanwhile is none any more. */
static bool push_one(agent *a, stk_store *store, const char *name, int64_t ns)
{
    agent_checkpoints *c = &a->checkpoints;
    struct agent_checkpoint *known = find(c, name);
    stk_artifact made;
    char path[PATH_MAX];
    if (known != NULL && known->changed_ns == ns) {
        known->is_there = true;
        return false;
    }
    (void)snprintf(path, sizeof path, "%s/%s", a->order.checkpoints, name);
    if (stk_store_copy_path(store, path, &made, NULL) < 0 ||
        stk_share_push(a->share, store, made.digest, NULL) < 0) {
        return false;
    }
    known = known != NULL ? known : add(c, name, made.digest, a->order.attempt, ns);
    if (known != NULL) {
        known->digest = stk_arena_dup(c->arena, made.digest);
        known->attempt = a->order.attempt;
        known->changed_ns = ns;
        known->is_there = true;
    }
    return known != NULL;
}

static void put_list(agent *a)
{
    agent_checkpoints *c = &a->checkpoints;
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    const char *key = object(a);
    stk_buf_char(&text, '{');
    for (uint32_t i = 0; i < c->n; i++) {
        stk_json_put_key(&text, c->items[i].name);
        stk_buf_char(&text, '{');
        stk_json_put_text(&text, "digest", c->items[i].digest);
        stk_json_put_int(&text, "attempt", c->items[i].attempt);
        stk_buf_char(&text, '}');
    }
    stk_buf_char(&text, '}');
    if (key != NULL && !text.failed) {
        (void)stk_share_put(a->share, key, text.data, text.len, false, NULL);
    }
    STK_FAILPOINT("agent.checkpoint.after");
}

static void look(agent *a, stk_store *store)
{
    agent_checkpoints *c = &a->checkpoints;
    DIR *dir = opendir(a->order.checkpoints);
    const struct dirent *e;
    struct stat st;
    bool changed = false;
    uint32_t n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        c->items[i].is_there = false;
    }
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (e->d_name[0] != '.' && fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            changed = push_one(a, store, e->d_name, changed_ns(&st)) || changed;
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    for (uint32_t i = 0; i < c->n; i++) {
        changed = changed || !c->items[i].is_there;
        c->items[n] = c->items[i];
        n += c->items[i].is_there ? 1 : 0;
    }
    c->n = n;
    if (changed) {
        qsort(c->items, c->n, sizeof *c->items, by_date);
        put_list(a);
    }
}

static void *run(void *arg)
{
    agent *a = arg;
    agent_checkpoints *c = &a->checkpoints;
    stk_store *store = NULL;
    pthread_mutex_lock(&c->lock);
    for (bool over = false; !over;) {
        struct timespec until;
        over = c->is_over;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_sec += LOOK_S;
        pthread_mutex_unlock(&c->lock);
        if (store != NULL || (stk_file_exists(a->order.checkpoints) &&
                              stk_store_open(a->order.store, 0, &store, NULL) == 0)) {
            look(a, store);
        }
        pthread_mutex_lock(&c->lock);
        if (!over && !c->is_over) {
            (void)pthread_cond_timedwait(&c->wake, &c->lock, &until);
        }
    }
    pthread_mutex_unlock(&c->lock);
    stk_store_close(store);
    return NULL;
}

void stk_agent_checkpoints_begin(agent *a)
{
    agent_checkpoints *c = &a->checkpoints;
    if (a->order.checkpoints == NULL || a->node > 0) {
        return;
    }
    (void)pthread_mutex_init(&c->lock, NULL);
    pthread_condattr_t attr; /* a clock that is set doesn't lengthen a wait */
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&c->wake, &attr);
    (void)pthread_condattr_destroy(&attr);
    c->is_running = pthread_create(&c->thread, NULL, run, a) == 0;
}

void stk_agent_checkpoints_end(agent *a)
{
    agent_checkpoints *c = &a->checkpoints;
    if (c->is_running) {
        pthread_mutex_lock(&c->lock);
        c->is_over = true;
        pthread_cond_signal(&c->wake);
        pthread_mutex_unlock(&c->lock);
        (void)pthread_join(c->thread, NULL);
        (void)pthread_cond_destroy(&c->wake);
        (void)pthread_mutex_destroy(&c->lock);
        c->is_running = false;
    }
    stk_arena_free(c->arena);
    c->arena = NULL;
}
