/* What exec_sum.c and exec_aside.c share: the work of the threads, and who waits for it. */
#ifndef STK_EXEC_SUM_PRIVATE_H
#define STK_EXEC_SUM_PRIVATE_H

#include <pthread.h>

#include "run/exec/core/exec_sum.h"

enum { EXEC_SUMMERS = 4 /* as many again for what is fetched: nobody else waits for a network */ };

typedef struct exec_sum_item {
    struct exec_sum_item *next;
    enum { EXEC_SUM_WAITS, EXEC_SUM_RUNS, EXEC_SUM_DONE } state;
    uint32_t n_users; /* that are put aside for it */
    bool is_stopped;  /* whoever asks for it now begins anew */
    bool removes;     /* nobody waits for it, and it is done all the same */
    bool fetches;     /* an artifact that only the share has, which is no work of this store's */
    char *key;        /* what it is, a letter, and its path */
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
    const stk_exec_elsewhere *from; /* where artifacts are fetched from; NULL: they are not */
    const char *store_path;
    pthread_t threads[2 * EXEC_SUMMERS];
    uint32_t n_threads, n_idle, n_running[2]; /* files, fetched ones */
    pthread_mutex_t lock;
    pthread_cond_t work;
    exec_sum_item *first;
    int fd; /* readable once something is done */
    bool is_over;
    /* the engine's thread's: */
    int64_t at_once_bytes; /* in this turn */
    exec_aside *asides;
    exec_aside wanted; /* by what is being done now */
};

void stk_exec_sum_free_aside(exec_aside *a);
/* One of its users less; what nobody uses any more is forgotten. */
void stk_exec_sum_release(exec_sum *s, exec_aside *a);

#endif
