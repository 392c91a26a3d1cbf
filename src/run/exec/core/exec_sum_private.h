/* Shared by exec_sum.c and exec_aside.c: the threads' work and the actions that wait for it. */
#ifndef STK_EXEC_SUM_PRIVATE_H
#define STK_EXEC_SUM_PRIVATE_H

#include <pthread.h>

#include "run/exec/core/exec_sum.h"

enum {
    EXEC_SUMMERS = 4 /* plus as many for fetches, so that other work doesn't wait for a network */
};

typedef struct exec_sum_item {
    struct exec_sum_item *next;
    enum { EXEC_SUM_WAITS, EXEC_SUM_RUNS, EXEC_SUM_DONE } state;
    uint32_t n_users; /* number of actions that wait for it */
    bool is_stopped;  /* a new request for it starts new work */
    bool removes;     /* a removal, which runs although no action waits for it */
    bool fetches;     /* a fetch, which needs no work of this store's disk */
    char *key;        /* the letter of its kind, then its path */
    stk_store_work *work;
    int rc;
    stk_err err;
} exec_sum_item;

struct exec_aside {
    struct exec_aside *next;
    uint32_t task;
    exec_aside_kind kind;
    bool is_ready;
    exec_sum_item **items;
    uint32_t n, cap;
    stk_outcome outcome; /* of an end */
};

struct exec_sum {
    const stk_exec_elsewhere *from; /* source of fetches, or NULL */
    const char *store_path;
    pthread_t threads[2 * EXEC_SUMMERS];
    uint32_t n_threads, n_idle, n_running[2]; /* files, fetched ones */
    pthread_mutex_t lock;
    pthread_cond_t work;
    exec_sum_item *first;
    int fd; /* readable when work is done */
    bool is_over;
    /* used by the engine's thread only: */
    int64_t at_once_bytes; /* bytes hashed by the engine's thread in this turn */
    exec_aside *asides;
    exec_aside wanted; /* work that the current action asked for */
};

void stk_exec_sum_free_aside(exec_aside *a);
/* Removes one user; frees what has no users. */
void stk_exec_sum_release(exec_sum *s, exec_aside *a);

#endif
