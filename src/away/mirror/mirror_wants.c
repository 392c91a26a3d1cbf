/* What pages want to see, and what is found of it. */
#include <stdio.h>
#include <string.h>

#include "away/mirror/mirror_private.h"
#include "away/remote/remote_log.h"
#include "base/text.h"

int stk_mirror_wants_open(mirror_wants *w, stk_err *err)
{
    w->arena = stk_arena_new(0);
    return stk_err_if_null(w->arena, err);
}

void stk_mirror_wants_done(mirror_wants *w)
{
    stk_map_done(&w->found);
    stk_arena_free(w->arena);
}

/* The thread has something to do; the caller has the lock. */
static void wake_thread(stk_mirror *m)
{
    m->is_asked = true;
    pthread_cond_signal(&m->wake);
}

/* Notes that this is looked at; true: it is new. */
static bool note_want(mirror_want *ring, uint32_t size, uint32_t *n, const char *key)
{
    int64_t now = stk_mirror_now_ms();
    mirror_want *found = NULL;
    for (uint32_t i = 0; i < size && found == NULL; i++) {
        if (strcmp(ring[i].key, key) == 0) {
            found = &ring[i];
        }
    }
    bool is_new = found == NULL || now - found->asked_ms >= MIRROR_LOOK_MS;
    if (found == NULL) {
        found = &ring[(*n)++ % size];
        (void)snprintf(found->key, sizeof found->key, "%s", key);
    }
    found->is_done = found->is_done && !is_new;
    found->asked_ms = now;
    return is_new;
}

void stk_mirror_look(stk_mirror *m, const char *run)
{
    mirror_wants *w = &m->wants;
    pthread_mutex_lock(&m->lock);
    int64_t now = stk_mirror_now_ms();
    bool is_new = now - w->look_ms >= MIRROR_LOOK_MS;
    w->look_ms = now;
    if (run != NULL) {
        is_new = note_want(w->runs, MIRROR_RUNS, &w->n_runs, run) || is_new;
    }
    if (is_new) {
        wake_thread(m);
    }
    pthread_mutex_unlock(&m->lock);
}

void stk_mirror_want_attempt(stk_mirror *m, const char *key)
{
    mirror_wants *w = &m->wants;
    pthread_mutex_lock(&m->lock);
    if (note_want(w->attempts, MIRROR_WANTS, &w->n_attempts, key)) {
        wake_thread(m);
    }
    pthread_mutex_unlock(&m->lock);
}

static bool is_asked(const mirror_want *want)
{
    return want->key[0] != '\0' && stk_mirror_now_ms() - want->asked_ms < MIRROR_LOOK_MS;
}

bool stk_mirror_is_wanted(stk_mirror *m, const char *attempt)
{
    const mirror_wants *w = &m->wants;
    bool is_wanted = false;
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < MIRROR_WANTS && !is_wanted; i++) {
        is_wanted = strcmp(w->attempts[i].key, attempt) == 0 && is_asked(&w->attempts[i]);
    }
    pthread_mutex_unlock(&m->lock);
    return is_wanted;
}

uint32_t stk_mirror_wanted_runs(stk_mirror *m, char ret[MIRROR_RUNS][40], bool *ret_more)
{
    mirror_wants *w = &m->wants;
    uint32_t n = 0;
    *ret_more = false;
    pthread_mutex_lock(&m->lock);
    for (size_t i = 0; i < MIRROR_RUNS; i++) {
        if (is_asked(&w->runs[i])) {
            (void)snprintf(ret[n++], 40, "%.39s", w->runs[i].key);
        }
    }
    for (size_t i = 0; i < MIRROR_WANTS; i++) {
        *ret_more = *ret_more || (w->attempts[i].key[0] != '\0' && !w->attempts[i].is_done);
        w->attempts[i].is_done = true;
    }
    pthread_mutex_unlock(&m->lock);
    return n;
}

/* --- artifacts --- */

static bool waits(const mirror_wants *w, const char *digest)
{
    for (uint32_t i = 0; i < w->n_digests; i++) {
        if (strcmp(w->digests[i], digest) == 0) {
            return true;
        }
    }
    return false;
}

stk_mirror_found stk_mirror_want_artifact(stk_mirror *m, const char *digest)
{
    mirror_wants *w = &m->wants;
    uint64_t found = STK_MIRROR_COMING;
    pthread_mutex_lock(&m->lock);
    bool is_known = stk_map_get(&w->found, digest, &found);
    if (!is_known && w->n_digests < MIRROR_WANTS && stk_digest_is_hex(digest) &&
        !waits(w, digest)) {
        (void)snprintf(w->digests[w->n_digests++], sizeof w->digests[0], "%s", digest);
        wake_thread(m);
    }
    pthread_mutex_unlock(&m->lock);
    return (stk_mirror_found)found;
}

static int bring_artifact(stk_mirror *m, const char *digest, stk_mirror_found *ret, stk_err *err)
{
    int64_t size = 0;
    int rc = stk_share_size(m->share, digest, &size, err);
    if (rc == 0 && size < 0) {
        *ret = STK_MIRROR_ABSENT;
        return 0;
    }
    if (rc == 0 && size > STK_MIRROR_ARTIFACT) {
        *ret = STK_MIRROR_TOO_LARGE;
        return 0;
    }
    if (rc == 0) {
        rc = stk_share_pull(m->share, m->store, digest, err);
    }
    if (rc == STK_E_NOT_FOUND || (rc < 0 && stk_remote_log_is_damage(err))) {
        /* it isn't what its name says, can't be read, or just went: others may be there */
        *ret = STK_MIRROR_ABSENT;
        return 0;
    }
    STK_TRY(rc);
    *ret = STK_MIRROR_HERE;
    return 0;
}

/* Of one that is COMING nothing is known: who still looks at it asks again. The caller has the
 * lock.
 */
static void take_found(stk_mirror *m, const char *digest, stk_mirror_found found)
{
    mirror_wants *w = &m->wants;
    const char *key = stk_arena_dup(w->arena, digest);
    if (key != NULL && found != STK_MIRROR_COMING) {
        (void)stk_map_put(&w->found, key, found);
    }
    for (uint32_t i = 0; i < w->n_digests; i++) {
        if (strcmp(w->digests[i], digest) == 0) {
            w->n_digests--;
            memmove(&w->digests[i], &w->digests[i] + 1, (w->n_digests - i) * sizeof w->digests[0]);
            break;
        }
    }
    m->state.version++;
}

int stk_mirror_serve_wants(stk_mirror *m, stk_err *err)
{
    for (;;) {
        char digest[STK_DIGEST_HEX + 1] = "";
        stk_mirror_found found = STK_MIRROR_COMING;
        pthread_mutex_lock(&m->lock);
        if (m->wants.n_digests > 0) {
            (void)snprintf(digest, sizeof digest, "%s", m->wants.digests[0]);
        }
        pthread_mutex_unlock(&m->lock);
        if (digest[0] == '\0') {
            return 0;
        }
        stk_err why = {0};
        STK_TRY(stk_mirror_begin_write(m, err));
        int rc = bring_artifact(m, digest, &found, &why);
        stk_mirror_end_write(m);
        pthread_mutex_lock(&m->lock);
        take_found(m, digest, found);
        pthread_mutex_unlock(&m->lock);
        if (rc < 0) {
            *err = why;
            return rc;
        }
    }
}
