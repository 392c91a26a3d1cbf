/* Writes the log: a thread sends the events that were committed since its last batch. */
#include "away/remote/remote_log.h"

#include <errno.h>
#include <pthread.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "away/remote/remote_log_private.h"
#include "away/remote/remote_order.h"
#include "base/failpoint.h"
#include "base/limits.h"
#include "base/map.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"

enum {
    AGAIN_MS = 2000,
    LOOK_MS = 10000, /* how often an engine without news checks that it still owns the run */
    END_MS = 3000    /* most time that the end waits for a failing share */
};

struct stk_remote_log {
    stk_remote_log_config config; /* used until the log begins */
    stk_share *share;
    stk_store *store; /* the thread's */
    stk_arena *arena; /* the thread's: digests that the share has */
    stk_map known;
    char run[40], user[64], host[256];
    remote_mark mark; /* the thread's */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake, idle;
    int64_t seq_told,
        seq_there; /* the newest event that the engine announced, and that the share has */
    bool has_begun, is_working, is_ending, is_done, is_over;
    stk_err trouble; /* of the last try */
    stk_err fence;   /* code ≠ 0: another engine took over */
};

/* --- who we are --- */

static void find_names(stk_remote_log *log)
{
    char text[4096];
    struct passwd pw, *found = NULL;
    (void)getpwuid_r(geteuid(), &pw, text, sizeof text, &found);
    (void)snprintf(log->user, sizeof log->user, "%s", found != NULL ? pw.pw_name : "");
    (void)gethostname(log->host, sizeof log->host - 1);
}

static void put_owner(stk_buf *buf, const stk_remote_log *log)
{
    stk_json_put_int(buf, "epoch", log->mark.epoch);
    stk_json_put_text(buf, "owner", log->mark.owner);
    stk_json_put_text(buf, "host", log->host);
    stk_json_put_text(buf, "user", log->user);
    stk_json_put_int(buf, "pid", getpid());
    stk_json_put_int(buf, "at_ms", stk_clock_wall_ms(&stk_clock_real));
}

static int new_owner(remote_mark *mark, stk_err *err)
{
    unsigned char random[STK_DIGEST_BYTES];
    char hex[STK_DIGEST_HEX + 1];
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        return stk_err_sys(err, STK_E_SYS, errno, "random numbers");
    }
    stk_digest_hex(random, hex);
    (void)snprintf(mark->owner, sizeof mark->owner, "%.*s", REMOTE_OWNER, hex);
    return 0;
}

/* --- one batch --- */

/* Another engine owns the run: the batch in our place names it. */
static int set_taken_over(const stk_remote_log *log, const remote_batch *other, stk_err *err)
{
    stk_err_set(err, STK_E_BUSY, "run %s was taken over by %s on %s", log->run,
                stk_text_or(other->user, "somebody"), stk_text_or(other->host, "another machine"));
    stk_err_hint(err, "its jobs continue there; follow it with 'stoker logs --stack'");
    return STK_E_BUSY;
}

/* Reads the batch after the mark; false: there is none, or it can't be read. */
static bool read_next(stk_remote_log *log, stk_arena *arena, remote_batch *ret)
{
    const char *lines = NULL;
    *ret = (remote_batch){0};
    return stk_remote_batch_read(log->share, log->run, log->mark.n + 1, arena, ret, &lines, NULL) ==
           0;
}

static bool is_own_batch(const stk_remote_log *log, const remote_batch *batch)
{
    return batch->owner != NULL && strcmp(batch->owner, log->mark.owner) == 0;
}

static int put_batch(stk_remote_log *log, const stk_buf *text, int64_t seq, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    remote_batch there;
    char key[200];
    stk_remote_log_key(log->run, log->mark.n + 1, key);
    STK_FAILPOINT("remote.log.before");
    int rc = stk_share_put(log->share, key, text->data, text->len, true, err);
    STK_FAILPOINT("remote.log.after");
    if (rc == STK_E_BUSY) { /* our own batch, if its answer was lost, has our name */
        (void)read_next(log, arena, &there);
        if (!is_own_batch(log, &there)) {
            return set_taken_over(log, &there, err);
        }
        rc = 0;
    }
    STK_TRY(rc);
    log->mark.n++;
    log->mark.seq = seq;
    return stk_remote_mark_write(log->store, log->run, &log->mark, err);
}

/* Without own events: checks that no other engine wrote a batch. */
static int check_taken(stk_remote_log *log, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    remote_batch other;
    if (read_next(log, arena, &other) && !is_own_batch(log, &other)) {
        return set_taken_over(log, &other, err);
    }
    return 0;
}

/* Sends an artifact that the event names, if it is here and not in the share. One that is in
 * neither is missing for readers. */
static int push_digest(void *arg, const char *digest, stk_err *err)
{
    stk_remote_log *log = arg;
    uint64_t value;
    bool there = false;
    const char *path = NULL;
    int64_t size = 0;
    if (stk_map_get(&log->known, digest, &value)) {
        return 0;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    STK_TRY(stk_share_has(log->share, digest, &there, err));
    if (!there && stk_store_artifact(log->store, digest, scratch, &path, &size, NULL) == 0) {
        STK_TRY(stk_share_push(log->share, log->store, digest, err));
    }
    const char *key = stk_arena_dup(log->arena, digest);
    if (key == NULL || stk_map_put(&log->known, key, 1) < 0) {
        return stk_err_nomem(err);
    }
    return 0;
}

static int push_artifacts_of(stk_remote_log *log, const stk_event_row *row, stk_err *err)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES * 4, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    stk_json doc;
    if (row->data == NULL ||
        (row->kind != STK_EV_TASK_SUCCEEDED && row->kind != STK_EV_TASK_CACHED)) {
        return 0;
    }
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_json_parse(row->data, strlen(row->data), "event", &limits, arena, &doc, err));
    return stk_remote_each_digest(&doc, push_digest, log, err);
}

static void put_first_line(const stk_remote_log *log, stk_buf *text)
{
    stk_json_open(text, NULL, '{');
    stk_json_put_int(text, "stoker", 1);
    put_owner(text, log);
    stk_json_close(text, '}');
    stk_buf_char(text, '\n');
}

/* The store's events for one batch. */
typedef struct taken {
    stk_arena *arena;
    stk_event_row *rows;
    uint32_t n, cap;
    size_t bytes;
} taken;

static int take_event(void *arg, const stk_event_row *row)
{
    taken *t = arg;
    stk_event_row *rows = stk_arena_grow(t->arena, t->rows, t->n, sizeof *rows, &t->cap);
    const char *data = stk_arena_dup(t->arena, row->data);
    if (rows == NULL || (row->data != NULL && data == NULL)) {
        return STK_E_NOMEM;
    }
    t->rows = rows;
    rows[t->n] = *row;
    rows[t->n++].data = data;
    t->bytes += strlen(stk_text_or(row->data, ""));
    return t->bytes >= REMOTE_BATCH_BYTES / 8;
}

/* Sends the next batch: the store's events after the mark, whoever wrote them. `must`: also an
 * empty batch. *ret_put: it sent one; *ret_more: there are more events. */
static int put_next(stk_remote_log *log, bool must, bool *ret_put, bool *ret_more, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(REMOTE_BATCH_BYTES);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    taken t = {.arena = arena};
    *ret_put = false;
    int rc = stk_store_events(log->store, log->run, log->mark.seq, take_event, &t, err);
    *ret_more = rc > 0;
    if (rc == STK_E_NOMEM) {
        return stk_err_nomem(err);
    }
    STK_TRY(rc);
    if (t.n == 0 && !must) {
        return 0;
    }
    put_first_line(log, &text);
    int64_t seq = log->mark.seq;
    for (uint32_t i = 0; i < t.n; i++) {
        STK_TRY(push_artifacts_of(log, &t.rows[i], err));
        STK_TRY(stk_remote_batch_put_event(&text, log->store, &t.rows[i], err));
        seq = t.rows[i].seq;
    }
    STK_TRY(stk_buf_check(&text, err));
    STK_TRY(put_batch(log, &text, seq, err));
    *ret_put = true;
    return 0;
}

/* --- the thread --- */

static int wait_some(stk_remote_log *log, int64_t ms)
{
    struct timespec until = stk_clock_after(ms);
    return pthread_cond_timedwait(&log->wake, &log->lock, &until);
}

static void *write_log(void *arg)
{
    stk_remote_log *log = arg;
    pthread_mutex_lock(&log->lock);
    while (log->fence.code == 0 && !log->is_done && !log->is_over) {
        bool is_last = log->is_ending, is_due = is_last || log->seq_told > log->seq_there;
        bool any = false, more = false;
        stk_err err = {0};
        if (!is_due && wait_some(log, LOOK_MS) != ETIMEDOUT) {
            continue;
        }
        log->is_working = true;
        pthread_mutex_unlock(&log->lock);
        int rc = put_next(log, false, &any, &more, &err);
        if (rc == 0 && !any && !is_due) {
            rc = check_taken(log, &err);
        }
        pthread_mutex_lock(&log->lock);
        log->is_working = false;
        log->seq_there = log->mark.seq;
        log->trouble = err;
        log->trouble.code = rc;
        if (rc == STK_E_BUSY) {
            log->fence = err;
        }
        log->is_done = is_last && rc == 0 && !more;
        pthread_cond_broadcast(&log->idle);
        if (rc < 0 && rc != STK_E_BUSY && !log->is_over) {
            (void)wait_some(log, AGAIN_MS);
        }
    }
    pthread_mutex_unlock(&log->lock);
    return NULL;
}

/* --- for the engine --- */

void stk_remote_log_told(stk_remote_log *log, int64_t seq)
{
    pthread_mutex_lock(&log->lock);
    log->seq_told = MAX(seq, log->seq_told);
    pthread_cond_signal(&log->wake);
    pthread_mutex_unlock(&log->lock);
}

/* The caller has the lock. */
static const stk_err *trouble_of(const stk_remote_log *log)
{
    return log->fence.code != 0 ? &log->fence : &log->trouble;
}

int stk_remote_log_wait(stk_remote_log *log, int64_t most_ms, stk_err *err)
{
    struct timespec until = stk_clock_after(most_ms);
    int sys = 0;
    pthread_mutex_lock(&log->lock);
    int64_t all = log->seq_told;
    while (log->seq_there < all && log->fence.code == 0 && log->trouble.code == 0 &&
           !log->is_over && sys == 0) {
        sys = pthread_cond_timedwait(&log->idle, &log->lock, &until);
    }
    bool is_there = log->seq_there >= all;
    stk_err trouble = *trouble_of(log);
    pthread_mutex_unlock(&log->lock);
    if (trouble.code == STK_E_BUSY) {
        *err = trouble;
        return trouble.code;
    }
    if (is_there) {
        return 0;
    }
    if (trouble.code == 0) {
        return stk_err_set(err, STK_E_BUSY, "the record of run %s isn't in %s yet", log->run,
                           stk_share_url(log->share));
    }
    if (trouble.code == STK_E_FULL) { /* its text already names the store */
        return stk_err_set(err, STK_E_FULL, "%s", trouble.text);
    }
    return stk_err_set(err, STK_E_ENV, "can't write the record of run %s to %s: %s", log->run,
                       stk_share_url(log->share), trouble.text);
}

int stk_remote_log_check(stk_remote_log *log, stk_err *err)
{
    pthread_mutex_lock(&log->lock);
    int rc = log->fence.code;
    if (rc < 0) {
        *err = log->fence;
    }
    pthread_mutex_unlock(&log->lock);
    return rc;
}

static void free_log(stk_remote_log *log)
{
    if (log == NULL) {
        return;
    }
    (void)pthread_cond_destroy(&log->wake);
    (void)pthread_cond_destroy(&log->idle);
    (void)pthread_mutex_destroy(&log->lock);
    stk_map_done(&log->known);
    stk_arena_free(log->arena);
    stk_store_close(log->store);
    stk_share_close(log->share);
    free(log);
}

int stk_remote_log_close(stk_remote_log *log, int64_t timeout_ms, stk_err *err)
{
    int rc = 0;
    if (log == NULL || !log->has_begun) {
        free_log(log);
        return 0;
    }
    struct timespec until = stk_clock_after(timeout_ms);
    struct timespec soon = stk_clock_after(MIN(timeout_ms, END_MS));
    pthread_mutex_lock(&log->lock);
    log->is_ending = true;
    pthread_cond_signal(&log->wake);
    while (!log->is_done && log->fence.code == 0 && rc == 0) {
        const struct timespec *end = log->trouble.code < 0 ? &soon : &until;
        rc = pthread_cond_timedwait(&log->idle, &log->lock, end);
    }
    log->is_over = true;
    if (log->is_working) {
        stk_share_cancel(log->share);
    }
    pthread_cond_signal(&log->wake);
    bool is_late = log->seq_told > log->seq_there || (!log->is_done && log->fence.code == 0);
    stk_err trouble = *trouble_of(log);
    pthread_mutex_unlock(&log->lock);
    (void)pthread_join(log->thread, NULL);
    rc = 0;
    if (is_late) {
        if (trouble.code == 0) {
            (void)stk_err_set(&trouble, STK_E_ENV, "the store didn't answer in time");
        }
        rc = stk_err_set(err, trouble.code == STK_E_BUSY ? STK_E_BUSY : STK_E_ENV,
                         "the end of run %s isn't in %s: %s", log->run, stk_share_url(log->share),
                         trouble.text);
    }
    free_log(log);
    return rc;
}

/* --- opening --- */

static int put_run(const stk_remote_log *log, const stk_remote_log_config *c, stk_err *err)
{
    char key[200];
    STK_BUF_AUTO text = STK_BUF_INIT(64 << 10);
    stk_json_open(&text, NULL, '{');
    stk_json_put_int(&text, "stoker", 1);
    stk_json_put_text(&text, "run", c->run);
    stk_json_put_text(&text, "name", c->name);
    stk_json_put_text(&text, "pipeline", c->pipeline);
    stk_json_put_text(&text, "stack", c->stack);
    put_owner(&text, log);
    stk_json_close(&text, '}');
    stk_buf_char(&text, '\n');
    (void)snprintf(key, sizeof key, "runs/%s/run.json", c->run);
    STK_TRY(stk_buf_check(&text, err));
    return stk_share_put(log->share, key, text.data, text.len, false, err);
}

static int put_spec(const stk_remote_log *log, const stk_remote_log_config *c, stk_err *err)
{
    char key[200];
    const char *json = NULL;
    size_t len = 0;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_store_load_spec(log->store, c->run, arena, &json, &len, err));
    (void)snprintf(key, sizeof key, "runs/%s/spec.json", c->run);
    return stk_share_put(log->share, key, json, len, false, err);
}

/* Writes the batch that takes the run, with all events that the log lacks. */
static int take_log(stk_remote_log *log, const stk_remote_log_config *c, stk_err *err)
{
    bool any = false, more = true;
    STK_TRY(stk_remote_mark_read(log->store, c->run, &log->mark, err));
    STK_TRY(stk_remote_log_skip_own(log->share, log->store, c->run, &log->mark, err));
    bool is_new = log->mark.n < 0;
    STK_TRY(new_owner(&log->mark, err));
    if (is_new) {
        STK_TRY(put_spec(log, c, err));
    }
    /* If we are killed between batch and mark, the batch's owner shows that it is ours. */
    STK_TRY(stk_remote_mark_write(log->store, c->run, &log->mark, err));
    log->mark.epoch++;
    for (bool is_first = true; more; is_first = false) {
        STK_TRY(put_next(log, is_first, &any, &more, err));
    }
    return put_run(log, c, err);
}

int stk_remote_log_open(const stk_remote_log_config *config, stk_remote_log **ret, stk_err *err)
{
    stk_remote_log *log = calloc(1, sizeof *log);
    STK_TRY(stk_err_if_null(log, err));
    log->config = *config;
    log->arena = stk_arena_new(0);
    (void)pthread_mutex_init(&log->lock, NULL);
    stk_clock_cond_init(&log->wake);
    stk_clock_cond_init(&log->idle);
    find_names(log);
    (void)snprintf(log->run, sizeof log->run, "%s", config->run);
    int rc = stk_err_if_null(log->arena, err);
    if (rc == 0) {
        rc = stk_share_open(config->share_url, &log->share, err);
    }
    if (rc == 0) {
        rc = stk_store_open(stk_store_path(config->store), 0, &log->store, err);
    }
    if (rc < 0) {
        free_log(log);
        return rc;
    }
    *ret = log;
    return 0;
}

int stk_remote_log_begin(stk_remote_log *log, stk_err *err)
{
    STK_TRY(take_log(log, &log->config, err));
    log->seq_told = log->seq_there = log->mark.seq;
    int sys = pthread_create(&log->thread, NULL, write_log, log);
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "starting a thread");
    }
    log->has_begun = true;
    return 0;
}

/* --- without an engine --- */

static int is_it_over(void *arg, const stk_event_row *row)
{
    bool *over = arg;
    *over = row->kind == STK_EV_RUN_ENDED || (*over && row->kind != STK_EV_RUN_STARTED);
    return 0;
}

bool stk_remote_log_is_shared(stk_store *store, const char *run)
{
    remote_mark mark;
    return stk_remote_mark_read(store, run, &mark, NULL) < 0 || mark.n >= 0;
}

int stk_remote_log_may_add(stk_store *store, const char *run, stk_err *err)
{
    remote_mark mark;
    bool over = false;
    int rc = stk_remote_mark_read(store, run, &mark, err);
    if (rc < 0 || mark.n < 0 || mark.owner[0] != '\0') { /* not shared, or ours */
        return rc;
    }
    rc = stk_store_events(store, run, 0, is_it_over, &over, err);
    if (rc < 0 || over) {
        return rc;
    }
    stk_err_set(err, STK_E_BUSY, "run %s belongs to another machine, and hasn't ended", run);
    stk_err_hint(err, "use the machine that runs it, or take the run over with 'stoker resume'");
    return STK_E_BUSY;
}

int stk_remote_log_taker(const char *share_url, stk_store *store, const char *run, char ret[300],
                         stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    remote_mark mark;
    ret[0] = '\0';
    STK_TRY(stk_remote_mark_read(store, run, &mark, err));
    if (mark.n < 0) {
        return 0;
    }
    STK_TRY(stk_share_open(share_url, &share, err));
    stk_share_hurry(share);              /* whoever only looks goes on without its answer */
    bool is_own = mark.owner[0] != '\0'; /* else the batch at the mark is another engine's */
    for (int64_t n = mark.n + is_own;; n++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        remote_batch batch = {0};
        const char *lines = NULL;
        int rc = stk_remote_batch_read(share, run, n, arena, &batch, &lines, err);
        if (rc == STK_E_NOT_FOUND) {
            *err = (stk_err){0};
            return 0;
        }
        STK_TRY(rc);
        if (!is_own || strcmp(stk_text_or(batch.owner, ""), mark.owner) != 0) {
            (void)snprintf(ret, 300, "%s on %s", stk_text_or(batch.user, "somebody"),
                           stk_text_or(batch.host, "another machine"));
            return 0;
        }
    }
}

static int put_added(stk_remote_log *log, bool *ret_told, stk_err *err)
{
    bool any = false, more = true;
    STK_TRY(stk_remote_mark_read(log->store, log->run, &log->mark, err));
    if (log->mark.n < 0) {
        return 0;
    }
    STK_TRY(stk_remote_log_skip_own(log->share, log->store, log->run, &log->mark, err));
    if (log->mark.owner[0] == '\0') {
        STK_TRY(new_owner(&log->mark, err));
    }
    while (more) {
        STK_TRY(put_next(log, false, &any, &more, err));
        if (any && ret_told != NULL) {
            *ret_told = true;
        }
    }
    return 0;
}

int stk_remote_log_publish(const stk_remote_log_config *config, bool *ret_told, stk_err *err)
{
    stk_remote_log *log = NULL;
    STK_FD_AUTO lock = -1;
    int rc = stk_store_lock_run(config->store, config->run, &lock, err);
    if (rc == STK_E_BUSY) { /* its engine is here, and adds events of others itself */
        return 0;
    }
    STK_TRY(rc);
    STK_TRY(stk_remote_log_may_add(config->store, config->run, err));
    STK_TRY(stk_remote_log_open(config, &log, err));
    rc = put_added(log, ret_told, err);
    free_log(log);
    return rc;
}
