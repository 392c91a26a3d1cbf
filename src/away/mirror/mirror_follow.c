/* The thread that follows a share: it lists the runs, and looks first at those that are looked at,
 * then at the newest that live, at those that aren't here, and in turn at all others. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "away/mirror/mirror_private.h"
#include "base/text.h"
#include "sys/clock.h"

enum {
    TURN_MS = 3000,   /* from one turn to the next, and the time in which one brings new runs */
    PAUSES = 4,       /* a turn that takes long is followed by so many times its time */
    AGAIN_MS = 5000,  /* after a failure */
    LEAST_MS = 300,   /* before a turn that somebody asks for */
    HOT = 8,          /* live runs that each turn looks at */
    IN_TURN = 32,     /* most other runs that each turn looks at … */
    IN_TURN_MS = 500, /* … in about so long */
    FIRST_MS = 3000   /* the beginning waits so long for the first answer */
};

/* --- one turn --- */

static int look_at_run(stk_mirror *m, mirror_run *run, bool in_turn, stk_err *err)
{
    bool was_here = run->is_here, was_damaged = run->damage != NULL;
    if (run->turn == m->turn || !run->is_listed) {
        return 0;
    }
    run->turn = m->turn;
    STK_TRY(stk_mirror_follow_run(m, run, in_turn && !run->is_ended, err));
    if (was_here != run->is_here || was_damaged != (run->damage != NULL)) {
        stk_mirror_note_counts(m);
    }
    return 0;
}

static int look_at_wanted(stk_mirror *m, stk_err *err)
{
    char ids[MIRROR_RUNS][40];
    bool more = false;
    uint32_t n = stk_mirror_wanted_runs(m, ids, &more);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = 0;
        if (stk_map_get(&m->by_id, ids[i], &at)) {
            mirror_run *run = (mirror_run *)(uintptr_t)at;
            run->is_ended = run->is_ended && !more; /* files that were left may be wanted */
            STK_TRY(look_at_run(m, run, false, err));
        }
    }
    return 0;
}

static int look_at_hot(stk_mirror *m, stk_err *err)
{
    uint32_t n = 0;
    for (uint32_t i = m->n; i-- > 0 && n < HOT;) {
        mirror_run *run = m->runs[i];
        if (run->is_listed && run->is_here && !run->is_ended && !run->is_damaged) {
            STK_TRY(look_at_run(m, run, false, err));
            n++;
        }
    }
    return 0;
}

static int look_at_new(stk_mirror *m, stk_err *err)
{
    for (uint32_t i = m->n; i-- > 0;) {
        mirror_run *run = m->runs[i];
        if (!run->is_listed || run->is_here || run->is_damaged) {
            continue;
        }
        if (stk_mirror_now_ms() >= m->end_ms) {
            m->has_more = true;
            return 0;
        }
        STK_TRY(look_at_run(m, run, false, err));
    }
    return 0;
}

static int look_in_turn(stk_mirror *m, stk_err *err)
{
    int64_t end = stk_mirror_now_ms() + IN_TURN_MS;
    for (uint32_t k = 0; k < MIN(IN_TURN, m->n) && stk_mirror_now_ms() < end; k++) {
        m->at = (m->at + 1) % m->n;
        STK_TRY(look_at_run(m, m->runs[m->at], true, err));
    }
    return 0;
}

static int look_at_share(stk_mirror *m, bool *ret_is_listed, stk_err *err)
{
    m->turn++;
    m->has_more = false;
    m->end_ms = stk_mirror_now_ms() + TURN_MS;
    STK_TRY(stk_mirror_list_runs(m, ret_is_listed, err));
    STK_TRY(look_at_wanted(m, err));
    STK_TRY(stk_mirror_serve_wants(m, err));
    STK_TRY(look_at_hot(m, err));
    STK_TRY(look_at_new(m, err));
    return look_in_turn(m, err);
}

/* --- the thread --- */

/* The caller has the lock. */
static void note_turn(stk_mirror *m, int rc, const stk_err *err, int64_t began_ms)
{
    stk_mirror_state *s = &m->state;
    bool had_trouble = s->trouble.code != 0;
    s->asked_ms = 0;
    if (rc == 0) {
        s->fresh_ms = began_ms;
        s->trouble = (stk_err){0};
    } else {
        s->trouble = *err;
        s->trouble.code = rc;
    }
    s->version += had_trouble != (rc != 0);
    pthread_cond_broadcast(&m->told);
}

/* Waits until it is time, and somebody looks; the caller has the lock. */
static void wait_for_turn(stk_mirror *m, int64_t pause_ms)
{
    int64_t ended_ms = stk_mirror_now_ms();
    while (!atomic_load(&m->is_over)) {
        int64_t now = stk_mirror_now_ms(), due_ms = ended_ms + pause_ms;
        if (m->is_asked) {
            due_ms = MIN(due_ms, ended_ms + LEAST_MS);
        }
        bool is_watched = m->is_asked || now - m->wants.look_ms < MIRROR_LOOK_MS;
        if (is_watched && now >= due_ms) {
            return;
        }
        if (is_watched) {
            struct timespec until = stk_clock_after(due_ms - now);
            (void)pthread_cond_timedwait(&m->wake, &m->lock, &until);
        } else {
            (void)pthread_cond_wait(&m->wake, &m->lock);
        }
    }
}

static void *follow_share(void *arg)
{
    stk_mirror *m = arg;
    stk_err err = {0};
    pthread_mutex_lock(&m->lock);
    while (!atomic_load(&m->is_over)) {
        int64_t began = stk_mirror_now_ms(), began_ms = stk_clock_wall_ms(&stk_clock_real);
        m->is_asked = false;
        m->state.asked_ms = began_ms;
        pthread_mutex_unlock(&m->lock);
        err = (stk_err){0};
        bool is_listed = false;
        int rc = look_at_share(m, &is_listed, &err);
        stk_store_release_memory(m->store);
        pthread_mutex_lock(&m->lock);
        m->is_refused = rc < 0 && !is_listed && !stk_share_may_pass(&err);
        note_turn(m, rc, &err, began_ms);
        int64_t pause = MAX(TURN_MS, PAUSES * (stk_mirror_now_ms() - began));
        if (rc < 0) {
            pause = AGAIN_MS;
        } else if (m->has_more) {
            pause = 0;
        }
        wait_for_turn(m, pause);
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

int stk_mirror_follow(stk_mirror *m, stk_err *err)
{
    struct timespec until = stk_clock_after(FIRST_MS);
    stk_mirror_look(m, NULL);
    int sys = pthread_create(&m->thread, NULL, follow_share, m);
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "following '%s'", stk_share_url(m->share));
    }
    m->is_following = true;
    pthread_mutex_lock(&m->lock);
    while (m->state.fresh_ms == 0 && m->state.trouble.code == 0 && sys == 0) {
        sys = pthread_cond_timedwait(&m->told, &m->lock, &until);
    }
    stk_err trouble = m->state.trouble;
    bool is_refused = m->is_refused;
    pthread_mutex_unlock(&m->lock);
    if (is_refused) {
        *err = trouble;
        return trouble.code;
    }
    return 0;
}

void stk_mirror_get_state(stk_mirror *m, stk_mirror_state *ret)
{
    pthread_mutex_lock(&m->lock);
    *ret = m->state;
    pthread_mutex_unlock(&m->lock);
}
