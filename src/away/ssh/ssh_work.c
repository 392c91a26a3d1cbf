/* Work that waits for hosts and the store, in threads of its own. A host that is slow gets only
 * some of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "away/ssh/ssh_driver.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { CLOSE_MS = 15000, ANSWER_BYTES = STK_LINK_BODY_MAX };

ssh_work *stk_ssh_work_new(void (*run)(ssh_driver *d, ssh_work *w),
                           void (*done)(ssh_driver *d, ssh_work *w), int host)
{
    ssh_work *w = calloc(1, sizeof *w);
    stk_arena *arena = stk_arena_new(0);
    if (w == NULL || arena == NULL) {
        free(w);
        stk_arena_free(arena);
        return NULL;
    }
    w->arena = arena;
    w->run = run;
    w->done = done;
    w->host = host;
    w->body = STK_BUF_INIT(ANSWER_BYTES);
    return w;
}

void stk_ssh_work_free(ssh_work *w)
{
    if (w != NULL) {
        stk_buf_done(&w->body);
        stk_arena_free(w->arena);
        free(w);
    }
}

/* How many of its host, or of the store, are under way. */
static uint32_t *at_work(ssh_driver *d, const ssh_work *w)
{
    uint32_t i = w->host < 0 ? d->n_hosts : (uint32_t)w->host;
    return &d->n_at_work[i];
}

/* The first whose host isn't busy; the caller has the lock. */
static ssh_work *take_work(ssh_driver *d)
{
    for (ssh_work **at = &d->queue; *at != NULL; at = &(*at)->next) {
        ssh_work *w = *at;
        if (w->host < 0 || w->is_look || d->n_at_work[w->host] < SSH_AT_ONCE) {
            *at = w->next;
            *at_work(d, w) += !w->is_look;
            return w;
        }
    }
    return NULL;
}

static void *do_work(void *driver)
{
    ssh_driver *d = driver;
    pthread_mutex_lock(&d->lock);
    while (!d->is_closing) {
        ssh_work *w = take_work(d);
        if (w == NULL) {
            d->n_idle++;
            pthread_cond_wait(&d->wake, &d->lock);
            d->n_idle--;
            continue;
        }
        pthread_mutex_unlock(&d->lock);
        w->run(d, w);
        pthread_mutex_lock(&d->lock);
        *at_work(d, w) -= !w->is_look;
        w->next = d->finished;
        d->finished = w;
        pthread_cond_broadcast(&d->wake);
        (void)eventfd_write(d->done_fd, 1);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

bool stk_ssh_work_begin(ssh_driver *d, ssh_work *w)
{
    if (w == NULL) {
        return false;
    }
    pthread_mutex_lock(&d->lock);
    ssh_work **end = &d->queue;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = w;
    w->next = NULL;
    if (d->n_idle == 0 && d->n_workers < SSH_WORKERS &&
        pthread_create(&d->workers[d->n_workers], NULL, do_work, d) == 0) {
        d->n_workers++;
    }
    pthread_cond_signal(&d->wake);
    pthread_mutex_unlock(&d->lock);
    return true;
}

/* In the order in which they came back. */
void stk_ssh_work_finished(ssh_driver *d)
{
    eventfd_t count;
    ssh_work *list = NULL;
    (void)eventfd_read(d->done_fd, &count);
    pthread_mutex_lock(&d->lock);
    while (d->finished != NULL) {
        ssh_work *w = d->finished;
        d->finished = w->next;
        w->next = list;
        list = w;
    }
    pthread_mutex_unlock(&d->lock);
    while (list != NULL) {
        ssh_work *w = list;
        list = w->next;
        w->done(d, w);
        stk_ssh_work_free(w);
    }
}

static bool is_busy(ssh_driver *d)
{
    pthread_mutex_lock(&d->lock);
    bool is = d->n_forgets > 0;
    pthread_mutex_unlock(&d->lock);
    return is;
}

/* What is being forgotten gets some seconds. */
void stk_ssh_work_close(ssh_driver *d)
{
    int64_t until = stk_ssh_now_ms() + CLOSE_MS;
    while (is_busy(d) && stk_ssh_now_ms() < until) {
        struct timespec tick = {.tv_nsec = 10 * 1000000};
        (void)nanosleep(&tick, NULL);
        stk_ssh_work_finished(d);
    }
    pthread_mutex_lock(&d->lock);
    d->is_closing = true;
    (void)eventfd_write(d->cancel_fd, 1);
    if (d->share != NULL) {
        stk_share_cancel(d->share);
    }
    for (uint32_t i = 0; i < d->n_hosts && d->hosts != NULL; i++) {
        if (d->hosts[i].mirror != NULL) {
            stk_share_cancel(d->hosts[i].mirror);
        }
    }
    pthread_cond_broadcast(&d->wake);
    pthread_mutex_unlock(&d->lock);
    for (uint32_t i = 0; i < d->n_workers; i++) {
        (void)pthread_join(d->workers[i], NULL);
    }
    for (ssh_work *w = d->queue, *next = NULL; w != NULL; w = next) {
        next = w->next;
        stk_ssh_work_free(w);
    }
    for (ssh_work *w = d->finished, *next = NULL; w != NULL; w = next) {
        next = w->next;
        stk_ssh_work_free(w);
    }
    d->queue = d->finished = NULL;
}

int stk_ssh_ask_host(ssh_driver *d, uint32_t host, const char *head, int64_t timeout_ms,
                     stk_arena *arena, stk_json *ret, stk_buf *ret_body, stk_err *err)
{
    const stk_link_ask ask = {.head = head, .cancel_fd = d->cancel_fd, .timeout_ms = timeout_ms};
    return stk_link_call(d->hosts[host].link, &ask, arena, ret, ret_body, err);
}

void stk_ssh_ask(ssh_driver *d, ssh_work *w)
{
    w->rc = stk_ssh_ask_host(d, (uint32_t)w->host, w->head, w->timeout_ms, w->arena, &w->answer,
                             &w->body, &w->err);
}
