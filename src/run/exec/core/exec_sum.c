/* What takes long with files (summing, copying, removing) is done by threads, so that the engine's
 * loop answers everybody else meanwhile. Whatever needs it is put aside: it asks, does no harm, and
 * is done anew once all that it asked for is there. */
#include "run/exec/core/exec_sum.h"

#include <errno.h>
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
#include "run/exec/core/exec_cache.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_start.h"
#include "run/exec/core/exec_state.h"
#include "sys/file.h"

enum {
    SUMMERS = 4,
    AT_ONCE_BYTES = 1 << 20, /* of a file: done within milliseconds */
    TURN_BYTES = 4 << 20,    /* of all files between two looks at signals */
    FILE_BYTES = 4 << 10     /* that an empty one counts for */
};

typedef struct item {
    struct item *next;
    enum { WAITS, RUNS, DONE } state;
    uint32_t n_users; /* that are put aside for it */
    bool is_stopped;  /* whoever asks for it now begins anew */
    bool removes;     /* nobody waits for it, and it is done all the same */
    char *key;        /* what it is, a letter, and its path */
    stk_store_work *work;
    int rc;
    stk_err err;
} item;

struct exec_aside {
    struct exec_aside *next;
    uint32_t task;
    exec_aside_kind kind;
    bool is_ready;
    item **items;
    uint32_t n, cap;
    stk_outcome *outcome; /* of an end */
};

struct exec_sum {
    pthread_t threads[SUMMERS];
    uint32_t n_threads, n_idle;
    pthread_mutex_t lock;
    pthread_cond_t work;
    item *first;
    int fd; /* readable once something is done */
    bool is_over;
    /* the engine's thread's: */
    int64_t at_once_bytes; /* in this turn */
    exec_aside *asides;
    exec_aside wanted; /* by what is being done now */
};

/* --- the threads --- */

static void free_item(item *i)
{
    stk_store_work_free(i->work);
    free(i->key);
    free(i);
}

/* Under the lock. What runs is freed by its thread. */
static void let_go_of(exec_sum *s, item *i)
{
    if (i->n_users > 0 || (i->removes && i->state != DONE)) {
        return;
    }
    if (i->state == RUNS) {
        stk_store_work_stop(i->work);
        i->is_stopped = true;
        return;
    }
    item **at = &s->first;
    while (*at != i) {
        at = &(*at)->next;
    }
    *at = i->next;
    free_item(i);
}

static item *next_of(exec_sum *s)
{
    item *i = s->first;
    while (i != NULL && i->state != WAITS) {
        i = i->next;
    }
    return i;
}

static void *sum(void *arg)
{
    exec_sum *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->is_over) {
        item *i = next_of(s);
        if (i == NULL) {
            s->n_idle++;
            (void)pthread_cond_wait(&s->work, &s->lock);
            s->n_idle--;
            continue;
        }
        i->state = RUNS;
        pthread_mutex_unlock(&s->lock);
        stk_err err = {0};
        int rc = stk_store_work_run(i->work, &err);
        pthread_mutex_lock(&s->lock);
        i->state = DONE;
        i->rc = rc;
        i->err = err;
        let_go_of(s, i);
        (void)!write(s->fd, &(uint64_t){1}, sizeof(uint64_t));
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

int stk_exec_sum_open(exec_sum **ret, stk_err *err)
{
    exec_sum *s = calloc(1, sizeof *s);
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s == NULL || fd < 0) {
        stk_file_close(&fd);
        free(s);
        return stk_err_sys(err, STK_E_SYS, errno, "summing artifacts");
    }
    s->fd = fd;
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->work, NULL);
    *ret = s;
    return 0;
}

static void free_aside(exec_aside *a)
{
    free(a->items);
    free(a->outcome);
    free(a);
}

void stk_exec_sum_close(exec_sum *s)
{
    if (s == NULL) {
        return;
    }
    pthread_mutex_lock(&s->lock);
    s->is_over = true;
    for (item *i = s->first; i != NULL; i = i->next) {
        stk_store_work_stop(i->work);
        i->n_users = 1; /* freed below */
    }
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    for (uint32_t i = 0; i < s->n_threads; i++) {
        (void)pthread_join(s->threads[i], NULL);
    }
    for (item *i = s->first, *next; i != NULL; i = next) {
        next = i->next;
        free_item(i);
    }
    for (exec_aside *a = s->asides, *next; a != NULL; a = next) {
        next = a->next;
        free_aside(a);
    }
    (void)pthread_cond_destroy(&s->work);
    (void)pthread_mutex_destroy(&s->lock);
    stk_file_close(&s->fd);
    free(s->wanted.items);
    free(s);
}

/* --- asking --- */

/* Under the lock. A thread for it, or, where there can be none, at once. */
static void set_going(exec_sum *s, item *i)
{
    if (s->n_idle == 0 && s->n_threads < SUMMERS &&
        pthread_create(&s->threads[s->n_threads], NULL, sum, s) == 0) {
        s->n_threads++;
    }
    if (s->n_threads == 0) {
        i->rc = stk_store_work_run(i->work, &i->err);
        i->state = DONE;
        (void)!write(s->fd, &(uint64_t){1}, sizeof(uint64_t));
    }
    pthread_cond_signal(&s->work);
}

static item *find(exec_sum *s, char what, const char *path)
{
    item *i = s->first;
    while (i != NULL && (i->is_stopped || i->key[0] != what || strcmp(i->key + 1, path) != 0)) {
        i = i->next;
    }
    return i;
}

static int want(exec_sum *s, item *i, stk_err *err)
{
    exec_aside *a = &s->wanted;
    if (a->n == a->cap) {
        uint32_t cap = MAX(8, a->cap * 2);
        item **more = reallocarray(a->items, cap, sizeof *more);
        STK_TRY(stk_err_if_null(more, err));
        a->items = more;
        a->cap = cap;
    }
    a->items[a->n++] = i;
    i->n_users++;
    return 0;
}

static item *new_item(exec_sum *s, char what, const char *path, stk_store_work *work)
{
    item *i = calloc(1, sizeof *i);
    size_t n = strlen(path);
    char *key = i == NULL ? NULL : malloc(n + 2);
    if (key == NULL) {
        stk_store_work_free(work);
        free(i);
        return NULL;
    }
    key[0] = what;
    memcpy(key + 1, path, n + 1);
    i->key = key;
    i->work = work;
    i->next = s->first;
    s->first = i;
    return i;
}

static int make_work(stk_store *store, char what, const char *path, const char *known,
                     stk_store_work **ret, stk_err *err)
{
    return what == EXEC_SUM_CHECK ? stk_store_work_check(store, path, ret, err)
           : what == EXEC_SUM_FILE
               ? stk_store_work_sum(path, ret, err)
               : stk_store_work_add(store, path, known, what == EXEC_SUM_OUTPUT, ret, err);
}

int stk_exec_sum_ask(exec_sum *s, stk_store *store, exec_sum_kind what, const char *path,
                     const char *known, stk_store_work **ret_work, stk_err *err)
{
    *ret_work = NULL;
    pthread_mutex_lock(&s->lock);
    item *i = find(s, (char)what, path);
    int rc = 0;
    if (i != NULL && i->state == DONE) {
        rc = i->rc;
        if (rc < 0 && err != NULL) {
            *err = i->err;
        }
        *ret_work = i->work;
    } else if (i == NULL) {
        stk_store_work *work = NULL;
        rc = make_work(store, (char)what, path, known, &work, err);
        i = rc < 0 ? NULL : new_item(s, (char)what, path, work);
        rc = rc == 0 && i == NULL ? stk_err_nomem(err) : rc;
        if (rc == 0) {
            set_going(s, i);
        }
    }
    rc = rc == 0 && *ret_work == NULL ? want(s, i, err) : rc;
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
        return rc == STK_E_NOT_FOUND ? 0 : rc; /* who uses it sees that it has gone */
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
    return rc == STK_E_NOMEM ? stk_err_nomem(err) : 0;
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
        return false; /* which is told at once */
    }
    bool is_moved = what == EXEC_SUM_OUTPUT && known != NULL && st.st_nlink == 1 &&
                    (st.st_uid == geteuid() || geteuid() == 0) && stk_store_is_beside(store, path);
    if (S_ISDIR(st.st_mode) || (st.st_size > AT_ONCE_BYTES && !is_moved)) {
        return true;
    }
    /* Of many small ones those that are too many: asked for, they count no more. */
    int64_t bytes = FILE_BYTES + (is_moved ? 0 : st.st_size);
    if (s->at_once_bytes + bytes > TURN_BYTES) {
        return true;
    }
    s->at_once_bytes += bytes;
    return false;
}

static void remove_work(exec_sum *s, item *i)
{
    i->removes = true;
    i->state = WAITS;
    set_going(s, i);
}

int stk_exec_sum_take(stk_exec *x, const char *path, const char *known, stk_artifact *ret,
                      stk_err *err)
{
    exec_sum *s = x->sum;
    pthread_mutex_lock(&s->lock);
    item *i = find(s, EXEC_SUM_OUTPUT, path);
    if (i == NULL || i->state != DONE || i->removes) {
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
    item *i = new_item(s, EXEC_SUM_REMOVE, path, work);
    if (i != NULL) {
        remove_work(s, i);
    }
    pthread_mutex_unlock(&s->lock);
}

/* --- aside --- */

static void release(exec_sum *s, exec_aside *a)
{
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < a->n; i++) {
        a->items[i]->n_users--;
        let_go_of(s, a->items[i]);
    }
    pthread_mutex_unlock(&s->lock);
    a->n = 0;
}

bool stk_exec_sum_drop(stk_exec *x, uint32_t task, exec_aside_kind *ret_kind)
{
    exec_aside *a = x->tasks[task].aside;
    exec_aside **at = &x->sum->asides;
    if (a == NULL) {
        return false;
    }
    while (*at != a) {
        at = &(*at)->next;
    }
    *at = a->next;
    *ret_kind = a->kind;
    release(x->sum, a);
    free_aside(a);
    x->tasks[task].aside = NULL;
    return true;
}

bool stk_exec_sum_waits(const stk_exec *x, uint32_t task)
{
    const exec_aside *a = x->tasks[task].aside;
    return a != NULL && !a->is_ready;
}

/* What it holds already, and what is new. */
static int put_aside(stk_exec *x, uint32_t task, exec_aside_kind kind, const stk_outcome *outcome,
                     stk_err *err)
{
    exec_aside *wanted = &x->sum->wanted;
    exec_aside *a = x->tasks[task].aside;
    if (a == NULL) {
        a = calloc(1, sizeof *a);
        stk_outcome *copy = a == NULL || outcome == NULL ? NULL : malloc(sizeof *copy);
        if (a == NULL || (outcome != NULL && copy == NULL)) {
            free(a);
            return stk_err_nomem(err);
        }
        if (copy != NULL) {
            *copy = *outcome;
        }
        *a = (exec_aside){.next = x->sum->asides, .task = task, .kind = kind, .outcome = copy};
        x->sum->asides = a;
        x->tasks[task].aside = a;
    }
    item **items = reallocarray(a->items, (size_t)a->n + wanted->n, sizeof *items);
    STK_TRY(stk_err_if_null(items, err));
    memcpy(items + a->n, wanted->items, wanted->n * sizeof *items);
    a->items = items;
    a->n += wanted->n;
    a->is_ready = false;
    wanted->n = 0;
    return 0;
}

bool stk_exec_sum_aside(stk_exec *x, uint32_t task, exec_aside_kind kind,
                        const stk_outcome *outcome, int *ret_rc, stk_err *err)
{
    exec_aside_kind ignored;
    if (*ret_rc == 0 && x->sum->wanted.n > 0) {
        *ret_rc = put_aside(x, task, kind, outcome, err);
        if (*ret_rc == 0) {
            return true;
        }
    }
    release(x->sum, &x->sum->wanted);
    if (kind != EXEC_ASIDE_END || *ret_rc < 0) { /* an end takes what was summed after this */
        (void)stk_exec_sum_drop(x, task, &ignored);
    }
    return false;
}

/* --- the loop --- */

int stk_exec_sum_fd(const exec_sum *s)
{
    return s->fd;
}

static bool is_all_done(exec_sum *s, const exec_aside *a)
{
    bool done = true;
    pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < a->n && done; i++) {
        done = a->items[i]->state == DONE;
    }
    pthread_mutex_unlock(&s->lock);
    return done;
}

static int go_on(stk_exec *x, exec_aside *a, stk_err *err)
{
    a->is_ready = true;
    if (a->kind == EXEC_ASIDE_LAUNCH) {
        return stk_exec_push_launch(x, a->task, err);
    }
    if (a->kind == EXEC_ASIDE_LOOKUP) {
        return 0; /* the scheduler asks for it again */
    }
    stk_outcome outcome = *a->outcome; /* the aside goes meanwhile */
    int rc = stk_exec_settle(x, a->task, &outcome, err);
    stk_arena_reset(x->scratch);
    return rc;
}

int stk_exec_summed(stk_exec *x, stk_err *err)
{
    uint64_t count;
    int rc = 0;
    (void)!read(x->sum->fd, &count, sizeof count);
    for (exec_aside *a = x->sum->asides, *next; a != NULL && rc == 0; a = next) {
        next = a->next;
        if (!a->is_ready && is_all_done(x->sum, a)) {
            rc = go_on(x, a, err);
        }
    }
    return rc;
}

int stk_exec_sum_wait(stk_exec *x, bool *ret_all, stk_err *err)
{
    exec_sum *s = x->sum;
    exec_aside *wanted = &s->wanted;
    struct pollfd fds[2] = {{.fd = s->fd, .events = POLLIN},
                            {.fd = x->config.signal_fd, .events = POLLIN}};
    uint64_t count;
    int rc = 0;
    while (!is_all_done(s, wanted) && fds[1].revents == 0) {
        stk_turn_begin();
        (void)poll(fds, 2, -1);
        (void)!read(s->fd, &count, sizeof count);
    }
    *ret_all = is_all_done(s, wanted);
    for (uint32_t i = 0; *ret_all && i < wanted->n && rc != STK_E_NOMEM; i++) {
        stk_err why = {0};
        const item *one = wanted->items[i];
        rc = one->rc < 0 ? 0 : stk_store_work_checked(x->config.store, one->work, &why);
        if (rc == STK_E_STORE) {
            x->lookup.damage = stk_arena_dup(x->arena, why.text);
            rc = stk_exec_note_damage(x, err);
        }
    }
    release(s, wanted);
    return rc == STK_E_NOMEM ? stk_err_nomem(err) : rc;
}

void stk_exec_sum_wake(exec_sum *s)
{
    (void)!write(s->fd, &(uint64_t){1}, sizeof(uint64_t));
}

static bool is_removing(exec_sum *s)
{
    bool is = false;
    pthread_mutex_lock(&s->lock);
    for (item *i = s->first; i != NULL && !is; i = i->next) {
        is = i->removes && i->state != DONE;
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
