/* Puts actions aside that wait for the threads of exec_sum.c, and repeats them when the work is
 * done. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/turn.h"
#include "run/exec/core/exec_end.h"
#include "run/exec/core/exec_event.h"
#include "run/exec/core/exec_sum_private.h"

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
    stk_exec_sum_release(x->sum, a);
    stk_exec_sum_free_aside(a);
    x->tasks[task].aside = NULL;
    return true;
}

bool stk_exec_sum_waits(const stk_exec *x, uint32_t task)
{
    const exec_aside *a = x->tasks[task].aside;
    return a != NULL && !a->is_ready;
}

/* Joins the work that the action already holds and the new work. */
static int put_aside(stk_exec *x, uint32_t task, exec_aside_kind kind, const stk_outcome *outcome,
                     stk_err *err)
{
    exec_aside *wanted = &x->sum->wanted;
    exec_aside *a = x->tasks[task].aside;
    if (a == NULL) {
        a = calloc(1, sizeof *a);
        STK_TRY(stk_err_if_null(a, err));
        *a = (exec_aside){.next = x->sum->asides, .task = task, .kind = kind};
        if (outcome != NULL) {
            a->outcome = *outcome;
        }
        x->sum->asides = a;
        x->tasks[task].aside = a;
    }
    exec_sum_item **items = reallocarray(a->items, (size_t)a->n + wanted->n, sizeof *items);
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
    stk_exec_sum_release(x->sum, &x->sum->wanted);
    if (kind != EXEC_ASIDE_END || *ret_rc < 0) { /* an end uses the work after this call */
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
        done = a->items[i]->state == EXEC_SUM_DONE;
    }
    pthread_mutex_unlock(&s->lock);
    return done;
}

static int do_anew(stk_exec *x, exec_aside *a, stk_err *err)
{
    a->is_ready = true;
    if (a->kind == EXEC_ASIDE_LAUNCH) {
        return stk_exec_push_launch(x, a->task, err);
    }
    if (a->kind == EXEC_ASIDE_LOOKUP) {
        return 0; /* the scheduler requests it again */
    }
    stk_outcome outcome = a->outcome; /* the aside is freed meanwhile */
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
            rc = do_anew(x, a, err);
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
        const exec_sum_item *one = wanted->items[i];
        if (one->rc < 0) {
            continue; /* its user sees the error */
        }
        rc = stk_store_work_checked(x->config.store, one->work, &why);
        if (rc == STK_E_STORE) {
            x->lookup.damage = stk_arena_dup(x->arena, why.text);
            rc = stk_exec_note_damage(x, err);
        }
    }
    stk_exec_sum_release(s, wanted);
    return rc == STK_E_NOMEM ? stk_err_nomem(err) : rc;
}
