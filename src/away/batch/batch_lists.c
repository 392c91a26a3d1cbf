/* Lists of arrays in the share: the attempt of each child (away/remote/remote_order.h). Each
 * request has its own thread, because an unreachable share is retried for minutes while the
 * driver's thread watches jobs. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "away/batch/batch_find.h"
#include "away/remote/remote_order.h"

enum { LIST_BYTES = 4 << 20 };

struct batch_errand {
    pthread_t thread;
    atomic_bool is_over;
    batch_driver *driver;
    stk_share *share;
    char *key, *text; /* text NULL: reads all lists */
    int rc;
    stk_err err;
    stk_arena *arena; /* for the lists read */
    stk_map children;
};

static int add_list(batch_errand *e, const char *key, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(LIST_BYTES);
    const char **keys = NULL;
    uint32_t n = 0;
    STK_TRY(stk_share_get(e->share, key, &text, err));
    STK_TRY(stk_remote_list_read(text.data, text.len, e->arena, &keys, &n, err));
    const char *name = key;
    if (strrchr(key, '/') != NULL) {
        name = strrchr(key, '/') + 1;
    }
    const char *array = stk_arena_dupn(e->arena, name, strlen(name) - strlen(".json"));
    batch_child *children = stk_arena_array(e->arena, (size_t)n + 1, sizeof *children);
    STK_TRY(stk_err_if_null(array, err));
    STK_TRY(stk_err_if_null(children, err));
    for (uint32_t i = 0; i < n; i++) {
        uint64_t other = 0;
        (void)stk_map_get(&e->children, keys[i], &other);
        children[i] = (batch_child){
            .next = (const batch_child *)(uintptr_t)other, .array = array, .index = i};
        if (stk_map_put(&e->children, keys[i], (uintptr_t)&children[i]) < 0) {
            return stk_err_nomem(err);
        }
    }
    return 0;
}

typedef struct found_keys {
    stk_arena *arena;
    const char **keys;
    uint32_t n, cap;
} found_keys;

static int each_key(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    found_keys *f = arg;
    size_t n = strlen(key);
    (void)size;
    (void)mtime_ms;
    if (n < 5 || strcmp(key + n - 5, ".json") != 0) {
        return 0;
    }
    const char **keys = stk_arena_grow(f->arena, f->keys, f->n, sizeof *keys, &f->cap);
    const char *copy = stk_arena_dup(f->arena, key);
    if (keys == NULL || copy == NULL) {
        return STK_E_NOMEM;
    }
    f->keys = keys;
    keys[f->n++] = copy;
    return 0;
}

static int read_lists(batch_errand *e, stk_err *err)
{
    e->arena = stk_arena_new(0);
    found_keys found = {.arena = e->arena};
    STK_TRY(stk_err_if_null(e->arena, err));
    STK_TRY(stk_share_list(e->share, e->key, NULL, each_key, &found, err));
    for (uint32_t i = 0; i < found.n; i++) {
        STK_TRY(add_list(e, found.keys[i], err));
    }
    return 0;
}

static void *run_errand(void *arg)
{
    batch_errand *e = arg;
    if (e->text == NULL) {
        e->rc = read_lists(e, &e->err);
    } else {
        e->rc = stk_share_put(e->share, e->key, e->text, strlen(e->text), true, &e->err);
        if (e->rc == STK_E_BUSY) {
            e->rc = 0; /* its name is its content's digest, so the share has the same object */
        }
    }
    atomic_store(&e->is_over, true);
    return NULL;
}

static void free_errand(batch_errand *e)
{
    stk_share_close(e->share);
    stk_map_done(&e->children);
    stk_arena_free(e->arena);
    free(e->key);
    free(e->text);
    free(e);
}

batch_errand *stk_batch_errand_begin(batch_driver *d, const char *key, const char *text,
                                     stk_err *err)
{
    batch_errand *e = calloc(1, sizeof *e);
    if (e == NULL || (e->key = strdup(key)) == NULL ||
        (text != NULL && (e->text = strdup(text)) == NULL)) {
        if (e != NULL) {
            free_errand(e);
        }
        (void)stk_err_nomem(err);
        return NULL;
    }
    e->driver = d;
    int rc = stk_share_open(d->config.share_url, &e->share, err);
    if (rc == 0) {
        int sys = pthread_create(&e->thread, NULL, run_errand, e);
        if (sys != 0) {
            rc = stk_err_sys(err, STK_E_SYS, sys, "starting a thread");
        }
    }
    if (rc < 0) {
        free_errand(e);
        return NULL;
    }
    d->n_errands++;
    return e;
}

bool stk_batch_errand_is_over(const batch_errand *e)
{
    return atomic_load(&e->is_over);
}

int stk_batch_errand_end(batch_errand *e, stk_err *err)
{
    batch_driver *d = e->driver;
    (void)pthread_join(e->thread, NULL);
    d->n_errands--;
    int rc = e->rc;
    if (rc < 0) {
        *err = e->err;
    } else if (e->text == NULL) {
        d->lists_arena = e->arena;
        d->children = e->children;
        e->arena = NULL;
        e->children = (stk_map){0};
    }
    free_errand(e);
    return rc;
}

void stk_batch_errand_drop(batch_errand *e)
{
    if (e != NULL) {
        stk_share_cancel(e->share);
        (void)pthread_join(e->thread, NULL);
        e->driver->n_errands--;
        free_errand(e);
    }
}
