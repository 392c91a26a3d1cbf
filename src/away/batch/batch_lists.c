/* Lists of arrays in the share: the attempt of each child (away/remote/remote_order.h). Each
 * request has its own thread, because an unreachable share is retried for minutes while the
 * driver's thread watches jobs. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "away/batch/batch_find.h"

struct batch_errand {
    pthread_t thread;
    atomic_bool is_over;
    batch_driver *driver;
    stk_share *share;
    stk_remote_array array; /* in `arena`; key NULL: reads all lists */
    int rc;
    stk_err err;
    stk_arena *arena;
    stk_map children;
};

static int read_lists(batch_errand *e, stk_err *err)
{
    return stk_remote_arrays_read(e->share, e->driver->config.run, e->arena, &e->children, err);
}

static void *run_errand(void *arg)
{
    batch_errand *e = arg;
    if (e->array.key == NULL) {
        e->rc = read_lists(e, &e->err);
    } else {
        e->rc = stk_remote_array_put(e->share, &e->array, &e->err);
    }
    atomic_store(&e->is_over, true);
    return NULL;
}

static void free_errand(batch_errand *e)
{
    stk_share_close(e->share);
    stk_map_done(&e->children);
    stk_arena_free(e->arena);
    free(e);
}

static batch_errand *new_errand(const stk_remote_array *array)
{
    batch_errand *e = calloc(1, sizeof *e);
    stk_arena *arena = stk_arena_new(0);
    if (e == NULL || arena == NULL) {
        free(e);
        stk_arena_free(arena);
        return NULL;
    }
    e->arena = arena;
    if (array != NULL) {
        e->array = (stk_remote_array){.name = stk_arena_dup(arena, array->name),
                                      .key = stk_arena_dup(arena, array->key),
                                      .text = stk_arena_dup(arena, array->text)};
        if (e->array.name == NULL || e->array.key == NULL || e->array.text == NULL) {
            free_errand(e);
            return NULL;
        }
    }
    return e;
}

batch_errand *stk_batch_errand_begin(batch_driver *d, const stk_remote_array *array, stk_err *err)
{
    batch_errand *e = new_errand(array);
    if (e == NULL) {
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
    } else if (e->array.key == NULL) {
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
