/* Checkpoints of a task that may be ended at any moment: each goes to the share once it is
 * complete, below checkpoints/<digest>, and then checkpoints.json says which there are: {name:
 * {"digest", "attempt"}}, newest last, each with the attempt that made it. What has vanished here
 * is removed there once that list is without it: who is killed in between leaves too much. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "base/failpoint.h"
#include "store/store_digest.h"
#include "sys/clock.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { LOOK_MS = 2000, LAST_TRIES = 10, LAST_MS = 500 };

/* "runs/<run>/<step>/<task>/checkpoints.json" */
static const char *list_key(agent *a)
{
    return stk_arena_printf(a->checkpoints.arena, "%.*s/checkpoints.json",
                            (int)(strrchr(a->key, '/') - a->key), a->key);
}

/* "runs/<run>/<step>/<task>/checkpoints/<digest>" */
static void key_of_content(const agent *a, const char *digest, char ret[STK_SHARE_KEY_MAX])
{
    (void)snprintf(ret, STK_SHARE_KEY_MAX, "%.*s/checkpoints/%s",
                   (int)(strrchr(a->key, '/') - a->key), a->key, digest);
}

/* --- fetching --- */

static int64_t changed_ns(const struct stat *st)
{
    return (int64_t)st->st_ctim.tv_sec * 1000000000 + st->st_ctim.tv_nsec;
}

static struct agent_checkpoint *add_known(agent_checkpoints *c, const char *name,
                                          const char *digest, int64_t attempt, int64_t ns)
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

/* One that isn't there any more was removed by an attempt that nobody knew to be alive: there are
 * others. */
static int fetch_checkpoint(agent *a, const char *name, const char *digest, int64_t attempt,
                            stk_err *err)
{
    STK_TEXT_AUTO path = NULL;
    struct stat st;
    char under[STK_SHARE_KEY_MAX], stage[PATH_MAX], to[PATH_MAX];
    (void)snprintf(stage, sizeof stage, "%s/.fetched", a->order.checkpoints);
    (void)snprintf(to, sizeof to, "%s/%s", a->order.checkpoints, name);
    key_of_content(a, digest, under);
    STK_TRY(stk_file_mkdirs(stage, 0755, err));
    int rc = stk_share_pull_path(a->share, under, digest, stage, &path, err);
    if (rc == STK_E_NOT_FOUND) {
        return stk_file_remove_tree(stage, err);
    }
    STK_TRY(rc);
    if (rename(path, to) < 0 || stat(to, &st) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "making %s", to);
    }
    STK_TRY(stk_file_remove_tree(stage, err));
    return stk_err_if_null(add_known(&a->checkpoints, name, digest, attempt, changed_ns(&st)), err);
}

int stk_agent_checkpoints_fetch(agent *a, stk_err *err)
{
    static const stk_json_limits limits = {1 << 20, 1 << 16, 8};
    agent_checkpoints *c = &a->checkpoints;
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    stk_json doc;
    if (a->order.checkpoints == NULL) {
        return 0;
    }
    c->arena = stk_arena_new(0);
    const char *key = list_key(a);
    int rc = stk_share_get(a->share, key, &text, err);
    if (rc == STK_E_NOT_FOUND) {
        return 0;
    }
    STK_TRY(rc);
    STK_TRY(stk_json_parse(text.data, text.len, key, &limits, a->arena, &doc, err));
    STK_TRY(stk_file_mkdirs(a->order.checkpoints, 0755, err));
    for (uint32_t i = 0; i < stk_json_n_members(&doc); i++) {
        const char *name = stk_json_key(&doc, i)->text;
        const stk_json *about = stk_json_value(&doc, i);
        const char *digest = stk_json_get_text(about, "digest");
        int64_t attempt = stk_json_get_whole(about, "attempt", 0);
        if (digest != NULL && name[0] != '.' && strchr(name, '/') == NULL &&
            fetch_checkpoint(a, name, digest, attempt, err) < 0) {
            return stk_err_context(err, "checkpoint '%s'", name);
        }
    }
    return 0;
}

/* --- saving --- */

static struct agent_checkpoint *find_known(agent_checkpoints *c, const char *name)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (strcmp(c->items[i].name, name) == 0) {
            return &c->items[i];
        }
    }
    return NULL;
}

static void keep_known(agent_checkpoints *c, const char *name)
{
    struct agent_checkpoint *known = find_known(c, name);
    if (known != NULL) {
        known->is_there = true;
    }
}

static int by_date(const void *x, const void *y)
{
    const struct agent_checkpoint *a = x, *b = y;
    return (a->changed_ns > b->changed_ns) - (a->changed_ns < b->changed_ns);
}

/* As it is now, whatever its program does to it meanwhile. With links in it it isn't whole. */
static int push_copy(agent *a, const char *name, char digest[STK_DIGEST_HEX + 1], stk_err *err)
{
    STK_TREE_AUTO tree = {0};
    char path[PATH_MAX], folder[PATH_MAX], copy[PATH_MAX + 8], under[STK_SHARE_KEY_MAX];
    (void)snprintf(path, sizeof path, "%s/%s", a->order.checkpoints, name);
    (void)snprintf(folder, sizeof folder, "%s/tmp/checkpoint-XXXXXX", a->order.store);
    STK_TRY(stk_tree_walk_until(path, false, &a->is_stopped, &tree, err));
    if (mkdtemp(folder) == NULL) {
        return stk_err_sys(err, STK_E_SYS, errno, "making %s", folder);
    }
    (void)snprintf(copy, sizeof copy, "%s/copy", folder);
    int rc = stk_tree_copy(&tree, copy, err);
    if (rc == 0) {
        rc = stk_tree_digest_until(copy, &a->is_stopped, digest, err);
    }
    if (rc == 0) {
        key_of_content(a, digest, under);
        rc = stk_share_push_path(a->share, under, copy, digest, err);
    }
    (void)stk_file_remove_tree(folder, NULL);
    return rc;
}

/* A new one, or one that was replaced. What vanishes meanwhile is none any more. */
static bool push_one(agent *a, const char *name, int64_t ns)
{
    agent_checkpoints *c = &a->checkpoints;
    struct agent_checkpoint *known = find_known(c, name);
    char digest[STK_DIGEST_HEX + 1];
    if (known != NULL && known->changed_ns == ns) {
        known->is_there = true;
        return false;
    }
    stk_err err = {0};
    if (push_copy(a, name, digest, &err) < 0) {
        /* or it was changed meanwhile */
        c->owes_push = c->owes_push || stk_share_may_pass(&err) || err.code == STK_E_STORE;
        keep_known(c, name); /* the one before is better than none */
        return false;
    }
    if (known != NULL && strcmp(known->digest, digest) != 0 && c->n_gone < AGENT_GONE) {
        c->gone[c->n_gone++] = known->digest;
    }
    if (known == NULL) {
        known = add_known(c, name, digest, a->order.attempt, ns);
    }
    if (known != NULL) {
        known->digest = stk_arena_dup(c->arena, digest);
        known->attempt = a->order.attempt;
        known->changed_ns = ns;
        known->is_there = true;
    }
    return known != NULL;
}

static int put_checkpoint_list(agent *a)
{
    const agent_checkpoints *c = &a->checkpoints;
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    stk_json_open(&text, NULL, '{');
    for (uint32_t i = 0; i < c->n; i++) {
        stk_json_open(&text, c->items[i].name, '{');
        stk_json_put_text(&text, "digest", c->items[i].digest);
        stk_json_put_int(&text, "attempt", c->items[i].attempt);
        stk_json_close(&text, '}');
    }
    stk_json_close(&text, '}');
    STK_TRY(stk_buf_check(&text, NULL));
    int rc = stk_share_put(a->share, list_key(a), text.data, text.len, false, NULL);
    STK_FAILPOINT("agent.checkpoint.after");
    return rc;
}

/* A later attempt was begun: this one's node was given up, and what there is is the other's. */
static bool is_superseded(const agent *a)
{
    char key[STK_SHARE_KEY_MAX];
    STK_BUF_AUTO byte = STK_BUF_INIT(1);
    (void)snprintf(key, sizeof key, "%.*s/%lld/job.json", (int)(strrchr(a->key, '/') - a->key),
                   a->key, (long long)a->order.attempt + 1);
    return stk_share_get_range(a->share, key, 0, &byte, NULL) == 0;
}

/* The list doesn't name them any more. Two of the same content are one. */
static void remove_gone(agent *a)
{
    agent_checkpoints *c = &a->checkpoints;
    char under[STK_SHARE_KEY_MAX];
    for (uint32_t i = 0; i < c->n_gone; i++) {
        bool is_named = false;
        for (uint32_t k = 0; k < c->n; k++) {
            is_named = is_named || strcmp(c->items[k].digest, c->gone[i]) == 0;
        }
        key_of_content(a, c->gone[i], under);
        if (!is_named) {
            (void)stk_share_delete_all(a->share, under, NULL);
        }
    }
    c->n_gone = 0;
}

static void save_changes(agent *a)
{
    agent_checkpoints *c = &a->checkpoints;
    STK_DIR_AUTO dir = {0};
    struct stat st;
    bool changed = c->owes_list;
    uint32_t n = 0;
    c->owes_push = stk_dir_read(a->order.checkpoints, &dir, NULL) < 0;
    if (c->owes_push) {
        return; /* what can't be seen isn't gone; looked at again */
    }
    for (uint32_t i = 0; i < c->n; i++) {
        c->items[i].is_there = false;
    }
    for (uint32_t i = 0; i < dir.n; i++) {
        const char *name = dir.items[i].name;
        if (name[0] == '.') {
            continue;
        }
        if (fstatat(dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            changed = push_one(a, name, changed_ns(&st)) || changed;
        } else if (errno != ENOENT) {
            keep_known(c, name);
        }
    }
    for (uint32_t i = 0; i < c->n; i++) {
        if (!c->items[i].is_there) {
            changed = true;
            if (c->n_gone < AGENT_GONE) { /* the others go with the run */
                c->gone[c->n_gone++] = c->items[i].digest;
            }
        }
        c->items[n] = c->items[i];
        n += c->items[i].is_there;
    }
    c->n = n;
    if (changed) {
        qsort(c->items, c->n, sizeof *c->items, by_date);
        bool is_ours = !is_superseded(a);
        c->owes_list = is_ours && put_checkpoint_list(a) < 0;
        if (is_ours && !c->owes_list) {
            remove_gone(a);
        }
    }
}

static void *watch_checkpoints(void *arg)
{
    agent *a = arg;
    agent_checkpoints *c = &a->checkpoints;
    pthread_mutex_lock(&c->lock);
    for (bool over = false; !over && !atomic_load(&a->is_stopped);) {
        struct timespec until = stk_clock_after(LOOK_MS);
        over = c->is_over;
        pthread_mutex_unlock(&c->lock);
        if (stk_file_exists(a->order.checkpoints)) {
            save_changes(a);
        }
        struct pollfd stop = {.fd = a->stop_fd, .events = POLLIN};
        for (int i = 0; over && (c->owes_push || c->owes_list) && i < LAST_TRIES &&
                        poll(&stop, 1, LAST_MS) == 0;
             i++) {
            save_changes(a); /* the last word: nobody looks again */
        }
        pthread_mutex_lock(&c->lock);
        if (!over && !c->is_over) {
            (void)pthread_cond_timedwait(&c->wake, &c->lock, &until);
        }
    }
    pthread_mutex_unlock(&c->lock);
    (void)!write(c->done_fd, &(uint64_t){1}, sizeof(uint64_t));
    return NULL;
}

void stk_agent_checkpoints_begin(agent *a)
{
    agent_checkpoints *c = &a->checkpoints;
    if (a->order.checkpoints == NULL || a->node > 0) {
        return;
    }
    (void)pthread_mutex_init(&c->lock, NULL);
    stk_clock_cond_init(&c->wake);
    c->done_fd = eventfd(0, EFD_CLOEXEC);
    c->is_running = c->done_fd >= 0 && pthread_create(&c->thread, NULL, watch_checkpoints, a) == 0;
}

void stk_agent_checkpoints_end(agent *a)
{
    agent_checkpoints *c = &a->checkpoints;
    if (c->is_running) {
        pthread_mutex_lock(&c->lock);
        c->is_over = true;
        pthread_cond_signal(&c->wake);
        pthread_mutex_unlock(&c->lock);
        stk_agent_await(a, c->done_fd, AGENT_SHORTLY);
        (void)pthread_join(c->thread, NULL);
        (void)stk_agent_go_on(a, NULL);
        (void)pthread_cond_destroy(&c->wake);
        (void)pthread_mutex_destroy(&c->lock);
        c->is_running = false;
    }
    stk_file_close(&c->done_fd);
    stk_arena_free(c->arena);
    c->arena = NULL;
}
