/* A pilot's threads: what an attempt needs is fetched, and what it made is saved. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "away/agent/agent_pilot.h"
#include "store/package/package.h"
#include "sys/file.h"
/* last */
#include "sys/faults.h"

static int open_store(agent *a, stk_store **store, stk_err *err)
{
    if (*store == NULL) {
        STK_TRY(stk_file_mkdirs(a->order.store, 0755, err));
        STK_TRY(stk_store_open(a->order.store, STK_STORE_CREATE | STK_STORE_OWN, store, err));
    }
    a->store = *store;
    return 0;
}

/* The project's code is the same for all attempts of a run. */
static int lay_out_code(pilot *p, agent *a, stk_err *err)
{
    int rc = 0;
    pthread_mutex_lock(&p->code_lock);
    if (!p->has_code && a->order.code_digest != NULL) {
        rc = stk_share_pull(a->share, a->store, a->order.code_digest, err);
        if (rc == 0) {
            rc = stk_agent_lay_out_code(a, err);
        }
    }
    p->has_code = p->has_code || rc == 0;
    pthread_mutex_unlock(&p->code_lock);
    return rc;
}

static int set_up_piece(piece *one, stk_store **store)
{
    agent *a = &one->a;
    stk_err *err = &one->err;
    STK_TRY(stk_agent_claim(a, err));
    int rc = open_store(a, store, err);
    if (rc == 0) {
        rc = lay_out_code(one->pilot, a, err);
    }
    if (rc == 0) {
        rc = stk_agent_setup(a, err);
    }
    if (rc == 0 && one->devices == NULL) { /* devices are leased when it starts */
        rc = stk_agent_devices(a, err);
        if (rc == 0) {
            rc = stk_agent_make_job(a, &one->job, err);
        }
    }
    if (rc < 0) { /* it is ours: end.json says why it never ran */
        char text[1400];
        stk_agent_fail(a, stk_agent_class_of(rc), stk_err_format(err, text, (int)sizeof text));
        return STK_E_CANCELLED;
    }
    return 0;
}

/* Of a program that ended before anybody looked. */
static void save_checkpoints(agent *a)
{
    if (a->order.checkpoints != NULL && !a->checkpoints.is_running &&
        stk_file_exists(a->order.checkpoints)) {
        stk_agent_checkpoints_begin(a);
    }
    stk_agent_checkpoints_end(a);
}

static void save_outputs(piece *one, stk_store **store)
{
    agent *a = &one->a;
    stk_failure class = STK_FAIL_START;
    stk_err err = {0};
    char text[1400];
    stk_agent_live_end(a);
    save_checkpoints(a);
    int rc = open_store(a, store, &err);
    if (rc == 0) {
        rc = stk_agent_outputs(a, &class, &err);
    }
    if (rc < 0 && a->outcome.ok) {
        stk_agent_fail(a, class, stk_err_format(&err, text, (int)sizeof text));
    }
}

static void save(piece *one, stk_store **store)
{
    agent *a = &one->a;
    stk_err err = {0};
    if (one->began_ms > 0) {
        save_outputs(one, store);
    }
    if (stk_agent_save_end(a, &err) < 0) {
        fprintf(stderr, "stoker agent: can't write the end of %s: %s\n", a->key, err.text);
    }
}

static piece *take_work(pilot *p)
{
    pthread_mutex_lock(&p->lock);
    while (p->todo == NULL && !p->is_closing) {
        (void)pthread_cond_wait(&p->work, &p->lock);
    }
    piece *one = p->todo;
    if (one != NULL) {
        p->todo = one->next_work;
        if (p->todo == NULL) {
            p->todo_end = &p->todo;
        }
    }
    pthread_mutex_unlock(&p->lock);
    return one;
}

static void *work_off(void *arg)
{
    pilot *p = arg;
    stk_store *store = NULL;
    for (piece *one = NULL; (one = take_work(p)) != NULL;) {
        if (one->phase == PIECE_SETUP) {
            one->rc = set_up_piece(one, &store);
        } else {
            save(one, &store);
        }
        pthread_mutex_lock(&p->lock);
        one->next_work = p->done;
        p->done = one;
        pthread_mutex_unlock(&p->lock);
        (void)!write(p->done_fd, &(uint64_t){1}, sizeof(uint64_t));
    }
    stk_store_close(store);
    return NULL;
}

void stk_pilot_give(pilot *p, piece *one)
{
    pthread_mutex_lock(&p->lock);
    one->next_work = NULL;
    *p->todo_end = one;
    p->todo_end = &one->next_work;
    (void)pthread_cond_signal(&p->work);
    pthread_mutex_unlock(&p->lock);
}

piece *stk_pilot_take_done(pilot *p)
{
    uint64_t count;
    (void)!read(p->done_fd, &count, sizeof count);
    pthread_mutex_lock(&p->lock);
    piece *list = p->done;
    p->done = NULL;
    pthread_mutex_unlock(&p->lock);
    return list;
}

int stk_pilot_workers_begin(pilot *p, stk_err *err)
{
    p->todo_end = &p->todo;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_mutex_init(&p->code_lock, NULL);
    (void)pthread_cond_init(&p->work, NULL);
    p->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    while (p->done_fd >= 0 && p->n_workers < PILOT_WORKERS &&
           pthread_create(&p->workers[p->n_workers], NULL, work_off, p) == 0) {
        p->n_workers++;
    }
    return p->n_workers > 0 ? 0 : stk_err_sys(err, STK_E_SYS, errno, "starting threads");
}

void stk_pilot_workers_end(pilot *p)
{
    pthread_mutex_lock(&p->lock);
    p->is_closing = true;
    (void)pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (uint32_t i = 0; i < p->n_workers; i++) {
        (void)pthread_join(p->workers[i], NULL);
    }
    stk_file_close(&p->done_fd);
}
