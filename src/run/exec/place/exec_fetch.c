/* Artifacts that only a share has, for steps here: fetched by threads of their own, before the step
 * begins, so that nobody else waits for the network. A launch that needs one is put aside, and made
 * anew once nothing is on its way any more. */
#include "run/exec/place/exec_fetch.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <unistd.h>

#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_state.h"
#include "sys/file.h"

enum { FETCHERS = 4 };

/* Asked for; once it came, kept until the engine's thread has seen that, and once it failed until
 * somebody asks again. */
typedef struct wanted {
    struct wanted *next;
    char digest[STK_DIGEST_HEX + 1];
    enum { WAITS, COMES, CAME, FAILED } state;
    stk_err err;
} wanted;

struct exec_fetcher {
    const stk_exec_elsewhere *from;
    const char *store_path;
    pthread_t threads[FETCHERS];
    uint32_t n_threads, n_idle;
    pthread_mutex_t lock;
    pthread_cond_t work;
    wanted *first, **end;
    int fd; /* readable once something has come */
    bool is_over;
    /* the engine's thread's; by digest: what is wanted goes as soon as one was told of it */
    struct aside {
        uint32_t task;
        char missing[STK_DIGEST_HEX + 1];
    } * aside;
    uint32_t n_aside, cap_aside;
    char
        missing[STK_DIGEST_HEX + 1]; /* of the launch that is being prepared: the last one, or "" */
};

static wanted *find_wanted(exec_fetcher *b, const char *digest)
{
    wanted *w = b->first;
    while (w != NULL && strcmp(w->digest, digest) != 0) {
        w = w->next;
    }
    return w;
}

static wanted *next_wanted(exec_fetcher *b)
{
    wanted *w = b->first;
    while (w != NULL && w->state != WAITS) {
        w = w->next;
    }
    return w;
}

static void take_out(exec_fetcher *b, wanted *w)
{
    wanted **at = &b->first;
    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
    if (b->end == &w->next) {
        b->end = at;
    }
    free(w);
}

/* Closing the store puts it on record, so that whoever reads it needn't sum it. */
static int fetch_one(const exec_fetcher *b, const char *digest, stk_err *err)
{
    STK_STORE_AUTO store = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *path;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_store_open(b->store_path, 0, &store, err));
    STK_TRY(b->from->fetch(b->from->fetch_arg, store, digest, err));
    return stk_store_artifact(store, digest, arena, &path, NULL, err); /* or who waits for it would
                                                                          ask for ever */
}

static void *run_fetches(void *arg)
{
    exec_fetcher *b = arg;
    pthread_mutex_lock(&b->lock);
    while (!b->is_over) {
        wanted *w = next_wanted(b);
        stk_err err = {0};
        if (w == NULL) {
            b->n_idle++;
            (void)pthread_cond_wait(&b->work, &b->lock);
            b->n_idle--;
            continue;
        }
        w->state = COMES;
        pthread_mutex_unlock(&b->lock);
        int rc = fetch_one(b, w->digest, &err);
        pthread_mutex_lock(&b->lock);
        w->state = rc < 0 ? FAILED : CAME;
        w->err = err;
        w->err.code = rc;
        (void)!write(b->fd, &(uint64_t){1}, sizeof(uint64_t));
    }
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

int stk_exec_fetch_open(const stk_exec_elsewhere *from, stk_store *store, exec_fetcher **ret,
                        stk_err *err)
{
    exec_fetcher *b = calloc(1, sizeof *b);
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (b == NULL || fd < 0) {
        stk_file_close(&fd);
        free(b);
        return stk_err_sys(err, STK_E_SYS, errno, "bringing artifacts");
    }
    b->from = from;
    b->store_path = stk_store_path(store);
    b->fd = fd;
    b->end = &b->first;
    (void)pthread_mutex_init(&b->lock, NULL);
    (void)pthread_cond_init(&b->work, NULL);
    *ret = b;
    return 0;
}

void stk_exec_fetch_close(exec_fetcher *b)
{
    if (b == NULL) {
        return;
    }
    pthread_mutex_lock(&b->lock);
    b->is_over = true;
    bool is_under_way = b->n_idle < b->n_threads;
    pthread_cond_broadcast(&b->work);
    pthread_mutex_unlock(&b->lock);
    if (is_under_way) {
        b->from->fetch_cancel(b->from->fetch_arg);
    }
    for (uint32_t i = 0; i < b->n_threads; i++) {
        (void)pthread_join(b->threads[i], NULL);
    }
    while (b->first != NULL) {
        take_out(b, b->first);
    }
    (void)pthread_cond_destroy(&b->work);
    (void)pthread_mutex_destroy(&b->lock);
    stk_file_close(&b->fd);
    free(b->aside);
    free(b);
}

/* --- asking --- */

static int ask_locked(exec_fetcher *b, const char *digest, const char *path, bool *ret_comes,
                      stk_err *err)
{
    wanted *w = find_wanted(b, digest);
    if (w != NULL && w->state == FAILED) { /* told once; another attempt may fare better */
        int rc = w->err.code;
        *err = w->err;
        take_out(b, w);
        return rc;
    }
    *ret_comes = w == NULL ? !stk_file_exists(path) : w->state != CAME;
    if (w == NULL && *ret_comes) {
        w = calloc(1, sizeof *w);
        STK_TRY(stk_err_if_null(w, err));
        (void)strcpy(w->digest, digest);
        *b->end = w;
        b->end = &w->next;
        if (b->n_idle == 0 && b->n_threads < FETCHERS &&
            pthread_create(&b->threads[b->n_threads], NULL, run_fetches, b) == 0) {
            b->n_threads++;
        }
        pthread_cond_signal(&b->work);
    }
    if (*ret_comes) {
        (void)strcpy(b->missing, w->digest);
    }
    if (b->n_threads > 0 || !*ret_comes) {
        return 0;
    }
    return stk_err_set(err, STK_E_SYS, "no thread to bring artifacts");
}

int stk_exec_fetch_ask(exec_fetcher *b, const char *digest, const char *path, bool *ret_comes,
                       stk_err *err)
{
    pthread_mutex_lock(&b->lock);
    int rc = ask_locked(b, digest, path, ret_comes, err);
    pthread_mutex_unlock(&b->lock);
    return rc;
}

bool stk_exec_fetch_aside(exec_fetcher *b, uint32_t task, stk_err *err, int *ret_rc)
{
    *ret_rc = 0;
    struct aside a = {.task = task};
    if (b == NULL || b->missing[0] == '\0') {
        return false;
    }
    (void)strcpy(a.missing, b->missing);
    b->missing[0] = '\0';
    if (task == UINT32_MAX) {
        return true;
    }
    if (b->n_aside == b->cap_aside) {
        uint32_t cap = MAX(16, b->cap_aside * 2);
        struct aside *more = reallocarray(b->aside, cap, sizeof *more);
        if (more == NULL) {
            *ret_rc = stk_err_nomem(err);
            return true;
        }
        b->aside = more;
        b->cap_aside = cap;
    }
    b->aside[b->n_aside++] = a;
    return true;
}

/* --- the loop --- */

int stk_exec_fetch_fd(const exec_fetcher *b)
{
    return b == NULL ? -1 : b->fd;
}

int stk_exec_fetched(stk_exec *x, stk_err *err)
{
    exec_fetcher *b = x->fetcher;
    uint64_t count;
    uint32_t n = 0;
    int rc = 0;
    (void)!read(b->fd, &count, sizeof count);
    pthread_mutex_lock(&b->lock);
    for (uint32_t i = 0; i < b->n_aside; i++) {
        const wanted *w = find_wanted(b, b->aside[i].missing);
        if (w != NULL && (w->state == WAITS || w->state == COMES)) {
            b->aside[n++] = b->aside[i];
        } else if (rc == 0) {
            rc = stk_exec_push_launch(x, b->aside[i].task, err);
        }
    }
    b->n_aside = n;
    for (wanted *w = b->first, *next; w != NULL; w = next) {
        next = w->next;
        if (w->state == CAME) {
            take_out(b, w);
        }
    }
    pthread_mutex_unlock(&b->lock);
    return rc;
}

bool stk_exec_fetch_stop(stk_exec *x, uint32_t task)
{
    exec_fetcher *b = x->fetcher;
    for (uint32_t i = 0; b != NULL && i < b->n_aside; i++) {
        if (b->aside[i].task == task) {
            b->aside[i] = b->aside[--b->n_aside];
            return true;
        }
    }
    return false;
}
