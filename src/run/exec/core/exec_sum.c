/* Threads do slow work on files (hashing, copying, removing), so that the engine's loop isn't
 * blocked. An action that needs such work is put aside: it requests the work, has no other effect,
 * and is repeated when all requested work is done. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/turn.h"
#include "run/exec/core/exec_sum_private.h"
#include "sys/file.h"

enum {
    AT_ONCE_BYTES = 1 << 20, /* up to this size a file takes milliseconds */
    TURN_BYTES = 4 << 20,    /* most bytes of all files between two checks for signals */
    FILE_BYTES = 4 << 10     /* an empty file counts as so many */
};

/* --- the threads --- */

static void free_item(exec_sum_item *i)
{
    stk_store_work_free(i->work);
    free(i->key);
    free(i);
}

/* Call it with the lock. The thread of running work frees it. */
static void let_go_of(exec_sum *s, exec_sum_item *i)
{
    if (i->n_users > 0 || (i->removes && i->state != EXEC_SUM_DONE)) {
        return;
    }
    if (i->state == EXEC_SUM_RUNS) {
        if (!i->fetches) {
            stk_store_work_stop(i->work);
            i->is_stopped = true;
        }
        return;
    }
    exec_sum_item **at = &s->first;
    while (*at != i) {
        at = &(*at)->next;
    }
    *at = i->next;
    free_item(i);
}

static exec_sum_item *next_item(exec_sum *s)
{
    exec_sum_item *i = s->first;
    while (i != NULL && (i->state != EXEC_SUM_WAITS || s->n_running[i->fetches] == EXEC_SUMMERS)) {
        i = i->next;
    }
    return i;
}

/* Closing the store records the digest, so that readers needn't hash it again. */
static int fetch_artifact(const exec_sum *s, const char *digest, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *path;
    STK_TRY(stk_store_open(s->store_path, 0, &store, err));
    STK_TRY(s->from->fetch(s->from->fetch_arg, store, digest, err));
    return stk_store_artifact(store, digest, arena, &path, NULL, err); /* or who waits for it would
                                                                          ask for ever */
}

static int run_item(const exec_sum *s, const exec_sum_item *i, stk_err *err)
{
    if (i->fetches) {
        return fetch_artifact(s, i->key + 1, err);
    }
    return stk_store_work_run(i->work, err);
}

static void *sum(void *arg)
{
    exec_sum *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->is_over) {
        exec_sum_item *i = next_item(s);
        if (i == NULL) {
            s->n_idle++;
            (void)pthread_cond_wait(&s->work, &s->lock);
            s->n_idle--;
            continue;
        }
        bool fetches = i->fetches;
        i->state = EXEC_SUM_RUNS;
        s->n_running[fetches]++;
        pthread_mutex_unlock(&s->lock);
        stk_err err = {0};
        int rc = run_item(s, i, &err);
        pthread_mutex_lock(&s->lock);
        s->n_running[fetches]--;
        i->state = EXEC_SUM_DONE;
        i->rc = rc;
        i->err = err;
        let_go_of(s, i);
        (void)!write(s->fd, &(uint64_t){1}, sizeof(uint64_t));
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

void stk_exec_sum_release(exec_sum *s, exec_aside *a)
{
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < a->n; i++) {
        a->items[i]->n_users--;
        let_go_of(s, a->items[i]);
    }
    pthread_mutex_unlock(&s->lock);
    a->n = 0;
}

int stk_exec_sum_open(const stk_exec_elsewhere *from, const char *store_path, exec_sum **ret,
                      stk_err *err)
{
    exec_sum *s = calloc(1, sizeof *s);
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s == NULL || fd < 0) {
        stk_file_close(&fd);
        free(s);
        return stk_err_sys(err, STK_E_SYS, errno, "summing artifacts");
    }
    s->from = from != NULL && from->fetch != NULL ? from : NULL;
    s->store_path = store_path;
    s->fd = fd;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->work, NULL);
    *ret = s;
    return 0;
}

void stk_exec_sum_free_aside(exec_aside *a)
{
    free(a->items);
    free(a);
}

void stk_exec_sum_close(exec_sum *s)
{
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->is_over = true;
    for (exec_sum_item *i = s->first; i != NULL; i = i->next) {
        if (!i->fetches) {
            stk_store_work_stop(i->work);
        }
        i->n_users = 1; /* freed below */
    }
    bool is_fetching = s->n_running[true] > 0;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    if (is_fetching) {
        s->from->fetch_cancel(s->from->fetch_arg);
    }
    for (uint32_t i = 0; i < s->n_threads; i++) {
        (void)pthread_join(s->threads[i], NULL);
    }
    for (exec_sum_item *i = s->first, *next; i != NULL; i = next) {
        next = i->next;
        free_item(i);
    }
    for (exec_aside *a = s->asides, *next; a != NULL; a = next) {
        next = a->next;
        stk_exec_sum_free_aside(a);
    }
    (void)pthread_cond_destroy(&s->work);
    (void)pthread_mutex_destroy(&s->lock);
    stk_file_close(&s->fd);
    free(s->wanted.items);
    free(s);
}

/* --- asking --- */

/* Call it with the lock. Gives the work to a thread, or does it at once if there can't be one. */
static void set_going(exec_sum *s, exec_sum_item *i)
{
    if (s->n_idle == 0 && s->n_threads < 2 * EXEC_SUMMERS &&
        pthread_create(&s->threads[s->n_threads], NULL, sum, s) == 0) {
        s->n_threads++;
    }
    if (s->n_threads == 0) {
        i->rc = i->fetches ? stk_err_set(&i->err, STK_E_SYS, "no thread to bring artifacts")
                           : stk_store_work_run(i->work, &i->err);
        i->state = EXEC_SUM_DONE;
        (void)!write(s->fd, &(uint64_t){1}, sizeof(uint64_t));
    }
    pthread_cond_signal(&s->work);
}

static exec_sum_item *find_item(exec_sum *s, char what, const char *path)
{
    exec_sum_item *i = s->first;
    while (i != NULL && (i->is_stopped || i->key[0] != what || strcmp(i->key + 1, path) != 0)) {
        i = i->next;
    }
    return i;
}

static int want(exec_sum *s, exec_sum_item *i, stk_err *err)
{
    exec_aside *a = &s->wanted;
    if (a->n == a->cap) {
        uint32_t cap = MAX(8, a->cap * 2);
        exec_sum_item **more = reallocarray(a->items, cap, sizeof *more);
        STK_TRY(stk_err_if_null(more, err));
        a->items = more;
        a->cap = cap;
    }
    a->items[a->n++] = i;
    i->n_users++;
    return 0;
}

static exec_sum_item *new_item(exec_sum *s, char what, const char *path, stk_store_work *work)
{
    exec_sum_item *i = calloc(1, sizeof *i);
    if (i == NULL || asprintf(&i->key, "%c%s", what, path) < 0) {
        stk_store_work_free(work);
        free(i);
        return NULL;
    }
    i->work = work;
    i->next = s->first;
    s->first = i;
    return i;
}

static int make_work(stk_store *store, char what, const char *path, const char *known,
                     stk_store_work **ret, stk_err *err)
{
    if (what == EXEC_SUM_CHECK) {
        return stk_store_work_check(store, path, ret, err);
    }
    if (what == EXEC_SUM_FILE) {
        return stk_store_work_sum(path, ret, err);
    }
    return stk_store_work_add(store, path, known, what == EXEC_SUM_OUTPUT, ret, err);
}

/* Under the lock. */
static int ask_for_item(exec_sum *s, stk_store *store, exec_sum_kind what, const char *path,
                        const char *known, stk_store_work **ret_work, stk_err *err)
{
    exec_sum_item *i = find_item(s, (char)what, path);
    if (i != NULL && i->state == EXEC_SUM_DONE) {
        if (i->rc < 0 && err != NULL) {
            *err = i->err;
        }
        *ret_work = i->work;
        return i->rc;
    }
    if (i == NULL) {
        stk_store_work *work = NULL;
        STK_TRY(make_work(store, (char)what, path, known, &work, err));
        i = new_item(s, (char)what, path, work);
        STK_TRY(stk_err_if_null(i, err));
        set_going(s, i);
    }
    return want(s, i, err);
}

int stk_exec_sum_ask(exec_sum *s, stk_store *store, exec_sum_kind what, const char *path,
                     const char *known, stk_store_work **ret_work, stk_err *err)
{
    *ret_work = NULL;
    pthread_mutex_lock(&s->lock);
    int rc = ask_for_item(s, store, what, path, known, ret_work, err);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

/* Under the lock. */
static int ask_for_fetch(exec_sum *s, const char *digest, bool *ret_comes, stk_err *err)
{
    char path[PATH_MAX];
    exec_sum_item *i = find_item(s, EXEC_SUM_FETCH, digest);
    if (i != NULL && i->state == EXEC_SUM_DONE) {
        if (i->rc < 0) {
            *err = i->err;
        }
        return i->rc;
    }
    if (i == NULL) {
        (void)snprintf(path, sizeof path, "%s/artifacts/%.2s/%s", s->store_path, digest,
                       digest + 2);
        if (stk_file_exists(path)) {
            return 0;
        }
        i = new_item(s, EXEC_SUM_FETCH, digest, NULL);
        STK_TRY(stk_err_if_null(i, err));
        i->fetches = true;
        set_going(s, i);
    }
    *ret_comes = true;
    return want(s, i, err);
}

int stk_exec_sum_fetch(exec_sum *s, const char *digest, bool *ret_comes, stk_err *err)
{
    *ret_comes = false;
    if (s->from == NULL) {
        return 0;
    }
    pthread_mutex_lock(&s->lock);
    int rc = ask_for_fetch(s, digest, ret_comes, err);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

int stk_exec_sum_artifact(exec_sum *s, stk_store *store, const char *digest, bool *ret_comes,
                          stk_err *err)
{
    stk_store_work *work = NULL;
    *ret_comes = false;
    if (s == NULL || !stk_store_needs_sum(store, digest)) {
        return 0;
    }
    stk_err why = {0};
    int rc = stk_exec_sum_ask(s, store, EXEC_SUM_CHECK, digest, NULL, &work, &why);
    if (rc < 0) {
        *err = why;
        return stk_err_but(rc, STK_E_NOT_FOUND); /* its user sees that it is missing */
    }
    *ret_comes = work == NULL;
    if (work == NULL) {
        return 0;
    }
    return stk_store_work_checked(store, work, err);
}

int stk_exec_sum_ask_all(stk_exec *x, const char *json, stk_err *err)
{
    static const char key[] = "\"digest\":\"";
    int rc = 0;
    for (const char *at = strstr(json, key); at != NULL && rc != STK_E_NOMEM;
         at = strstr(at, key)) {
        char digest[STK_DIGEST_HEX + 1] = "";
        bool comes;
        stk_err ignored;
        at += sizeof key - 1;
        (void)snprintf(digest, sizeof digest, "%.*s", (int)strnlen(at, STK_DIGEST_HEX), at);
        rc = stk_exec_sum_artifact(x->sum, x->config.store, digest, &comes, &ignored);
    }
    if (rc != STK_E_NOMEM) {
        return 0;
    }
    return stk_err_nomem(err);
}

void stk_exec_sum_turn(exec_sum *s)
{
    s->at_once_bytes = 0;
}

bool stk_exec_sum_is_long(exec_sum *s, const stk_store *store, exec_sum_kind what, const char *path,
                          const char *known)
{
    struct stat st;
    if (lstat(path, &st) < 0 || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) {
        return false; /* reported at once */
    }
    bool is_moved = what == EXEC_SUM_OUTPUT && known != NULL && st.st_nlink == 1 &&
                    (st.st_uid == geteuid() || geteuid() == 0) && stk_store_is_beside(store, path);
    if (S_ISDIR(st.st_mode) || (st.st_size > AT_ONCE_BYTES && !is_moved)) {
        return true;
    }
    /* Of too many small files in a turn the rest goes to a thread. */
    int64_t bytes = is_moved ? FILE_BYTES : FILE_BYTES + st.st_size;
    if (s->at_once_bytes + bytes > TURN_BYTES) {
        return true;
    }
    s->at_once_bytes += bytes;
    return false;
}

static void remove_work(exec_sum *s, exec_sum_item *i)
{
    i->removes = true;
    i->state = EXEC_SUM_WAITS;
    set_going(s, i);
}

int stk_exec_sum_take(stk_exec *x, const char *path, const char *known, stk_artifact *ret,
                      stk_err *err)
{
    exec_sum *s = x->sum;
    pthread_mutex_lock(&s->lock);
    exec_sum_item *i = find_item(s, EXEC_SUM_OUTPUT, path);
    if (i == NULL || i->state != EXEC_SUM_DONE || i->removes) {
        i = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    if (i == NULL) {
        return stk_store_add_path(x->config.store, path, known, ret, err);
    }
    bool leaves = false;
    if (i->rc < 0) {
        *err = i->err;
        return i->rc;
    }
    int rc = stk_store_work_take(x->config.store, i->work, ret, &leaves, err);
    if (rc == 0 && leaves) {
        pthread_mutex_lock(&s->lock);
        remove_work(s, i);
        pthread_mutex_unlock(&s->lock);
    }
    return rc;
}

void stk_exec_sum_remove(stk_exec *x, const char *path)
{
    exec_sum *s = x->sum;
    stk_store_work *work = NULL;
    if (!stk_file_exists(path)) {
        return;
    }
    if (stk_store_work_remove(path, &work, NULL) < 0) {
        (void)stk_file_remove_tree(path, NULL);
        return;
    }
    pthread_mutex_lock(&s->lock);
    exec_sum_item *i = new_item(s, EXEC_SUM_REMOVE, path, work);
    if (i != NULL) {
        remove_work(s, i);
    }
    pthread_mutex_unlock(&s->lock);
}

void stk_exec_sum_wake(exec_sum *s)
{
    (void)!write(s->fd, &(uint64_t){1}, sizeof(uint64_t));
}

static bool is_removing(exec_sum *s)
{
    bool is = false;
    pthread_mutex_lock(&s->lock);
    for (exec_sum_item *i = s->first; i != NULL && !is; i = i->next) {
        is = i->removes && i->state != EXEC_SUM_DONE;
    }
    pthread_mutex_unlock(&s->lock);
    return is;
}

void stk_exec_sum_finish(stk_exec *x)
{
    struct pollfd fds[2] = {{.fd = x->sum->fd, .events = POLLIN},
                            {.fd = x->config.signal_fd, .events = POLLIN}};
    uint64_t count;
    while (x->n_signals == 0 && is_removing(x->sum) && fds[1].revents == 0) {
        stk_turn_begin();
        (void)poll(fds, 2, -1);
        (void)!read(x->sum->fd, &count, sizeof count);
    }
}
