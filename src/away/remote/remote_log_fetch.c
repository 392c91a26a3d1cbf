/* Reads the log: copies a run of another machine into this store. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/remote/remote_log_private.h"
#include "away/remote/remote_private.h"
#include "base/limits.h"
#include "base/text.h"
#include "sys/file.h"

enum { SPEC_BYTES = 512 << 20, KEY = 1200 };

/* --- its events --- */

typedef struct fetcher {
    stk_store *store;
    stk_share *share;
    const char *run;
    stk_arena *arena; /* of one batch */
    stk_event_row *events;
    uint32_t n, cap;
    stk_ref_row *refs;
    uint32_t n_refs, cap_refs;
    bool with_cache;
    const stk_remote_run *about;
    bool is_here; /* the run has its row in this store */
    stk_cache_row *cache;
    uint32_t n_cache, cap_cache;
    int64_t seq; /* the previous event's number at its writer */
    stk_err *err;
} fetcher;

static int add_ref(fetcher *f, uint32_t task, const char *output, const stk_json *ref)
{
    const char *digest = stk_json_get_text(ref, "digest");
    const char *format = stk_json_get_text(ref, "format");
    int64_t size = 0;
    if (digest == NULL || !stk_json_int(stk_json_get(ref, "size"), &size)) {
        return 0;
    }
    stk_ref_row *refs = stk_arena_grow(f->arena, f->refs, f->n_refs, sizeof *refs, &f->cap_refs);
    STK_TRY(stk_err_if_null(refs, f->err));
    f->refs = refs;
    refs[f->n_refs++] = (stk_ref_row){.digest = digest,
                                      .task = task,
                                      .output = output,
                                      .name = stk_json_get_text(ref, "name"),
                                      .version = stk_json_get_text(ref, "version"),
                                      .ref = stk_json_dump_in(ref, f->arena)};
    bool is_dir = format != NULL && strcmp(format, "dir") == 0;
    return stk_store_add_absent(f->store, digest, size, is_dir, f->err);
}

/* Adds the outputs of a task's end; in a graph that grows also those of its ranks, and its items.
 */
static int add_refs(fetcher *f, uint32_t task, const stk_json *data)
{
    const stk_json *outputs = stk_json_get(data, "outputs");
    const stk_json *ranks = stk_json_get(data, "ranks");
    for (uint32_t i = 0; i < stk_json_n_members(outputs); i++) {
        STK_TRY(add_ref(f, task, stk_json_key(outputs, i)->text, stk_json_value(outputs, i)));
    }
    for (uint32_t i = 0; i < stk_json_n_items(ranks); i++) {
        STK_TRY(add_refs(f, task, &ranks->items[i]));
    }
    return add_ref(f, task, "next.items", stk_json_get(stk_json_get(data, "next"), "items"));
}

/* Adds the cache entry, as if the step had run here. */
static int add_cache(fetcher *f, const stk_json *doc)
{
    stk_cache_row row = {.key = stk_json_get_text(doc, "key"),
                         .pipeline = stk_json_get_text(doc, "pipeline"),
                         .step = stk_json_get_text(doc, "step"),
                         .run = stk_json_get_text(doc, "run"),
                         .task = (uint32_t)stk_json_get_whole(doc, "task", 0),
                         .created_ms = stk_json_get_whole(doc, "created_ms", 0),
                         .parts = stk_json_dump_in(stk_json_get(doc, "parts"), f->arena),
                         .outputs = stk_json_dump_in(stk_json_get(doc, "outputs"), f->arena),
                         .metadata = stk_json_dump_in(stk_json_get(doc, "metadata"), f->arena),
                         .seen = stk_json_dump_in(stk_json_get(doc, "seen"), f->arena)};
    if (!f->with_cache || row.key == NULL || row.pipeline == NULL || row.step == NULL ||
        row.run == NULL || row.parts == NULL || row.outputs == NULL) {
        return 0;
    }
    stk_cache_row *rows =
        stk_arena_grow(f->arena, f->cache, f->n_cache, sizeof *rows, &f->cap_cache);
    STK_TRY(stk_err_if_null(rows, f->err));
    f->cache = rows;
    rows[f->n_cache++] = row;
    return 0;
}

static int add_event(fetcher *f, const char *line, size_t len)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES * 4, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    stk_json doc;
    STK_TRY(stk_json_parse(line, len, "log", &limits, f->arena, &doc, f->err));
    const char *word = stk_text_or(stk_json_get_text(&doc, "event"), "");
    int kind = stk_event_kind_of(word);
    if (kind < 0) {
        return stk_err_set(f->err, STK_E_VERSION,
                           "run %s has an event '%s' of a newer Stoker; upgrade Stoker", f->run,
                           word);
    }
    stk_event_row *events = stk_arena_grow(f->arena, f->events, f->n, sizeof *events, &f->cap);
    STK_TRY(stk_err_if_null(events, f->err));
    f->events = events;
    stk_event_row *row = &events[f->n++];
    int64_t task = UINT32_MAX;
    int64_t attempt = stk_json_get_whole(&doc, "attempt", 0);
    int64_t seq = stk_json_get_whole(&doc, "seq", 0);
    const stk_json *data = stk_json_get(&doc, "data");
    bool has_task = stk_json_int(stk_json_get(&doc, "task"), &task);
    if ((has_task && (task < 0 || task >= STK_LIMIT_TASKS)) || attempt < 0 ||
        attempt > UINT32_MAX || seq <= f->seq) {
        return stk_err_set(
            f->err, STK_E_PROTOCOL,
            "event %lld follows event %lld, with task %lld, attempt %lld, which isn't possible",
            (long long)seq, (long long)f->seq, (long long)task, (long long)attempt);
    }
    f->seq = seq;
    *row = (stk_event_row){.kind = (stk_event_kind)kind,
                           .task = (uint32_t)task,
                           .attempt = (uint32_t)attempt,
                           .time_ms = stk_json_get_whole(&doc, "at_ms", 0),
                           .data = stk_json_dump_in(data, f->arena)};
    if (kind == STK_EV_TASK_SUCCEEDED || kind == STK_EV_TASK_CACHED) {
        STK_TRY(add_refs(f, row->task, data));
    }
    return add_cache(f, stk_json_get(&doc, "cache"));
}

/* Adds the run's row with its first events. */
static int fetch_row(fetcher *f)
{
    bool is_new = false;
    char key[200];
    STK_BUF_AUTO spec = STK_BUF_INIT(SPEC_BYTES);
    if (f->is_here) {
        return 0;
    }
    (void)snprintf(key, sizeof key, "runs/%s/spec.json", f->run);
    STK_TRY(stk_share_get(f->share, key, &spec, f->err));
    STK_TRY(stk_store_bring_run(f->store, f->run, f->about->name, f->about->pipeline,
                                stk_text_or(spec.data, ""), spec.len, f->about->created_ms, &is_new,
                                f->err));
    f->is_here = true;
    return 0;
}

static int commit_batch(fetcher *f, int64_t *seq)
{
    stk_commit c = {.events = f->events,
                    .n_events = f->n,
                    .refs = f->refs,
                    .n_refs = f->n_refs,
                    .cache = f->cache,
                    .n_cache = f->n_cache};
    if (f->n == 0) {
        return 0;
    }
    STK_TRY(fetch_row(f));
    STK_TRY(stk_store_commit(f->store, f->run, &c, f->err));
    *seq = f->events[f->n - 1].seq;
    return 0;
}

static int last_event(void *arg, const stk_event_row *row)
{
    *(int64_t *)arg = row->seq;
    return 0;
}

/* Stores one batch, then the mark. After a crash between the two, the store has events that the
 * mark lacks, which the next try notices. */
static int fetch_batch(fetcher *f, remote_mark *mark)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    remote_batch batch;
    const char *lines = NULL;
    int64_t here = mark->seq;
    char key[200];
    *f = (fetcher){.store = f->store,
                   .share = f->share,
                   .run = f->run,
                   .arena = arena,
                   .with_cache = f->with_cache,
                   .about = f->about,
                   .is_here = f->is_here,
                   .err = f->err};
    STK_TRY(stk_remote_batch_read(f->share, f->run, mark->n + 1, arena, &batch, &lines, f->err));
    if (batch.epoch < mark->epoch) {
        return stk_err_set(
            f->err, STK_E_PROTOCOL,
            "run %s: batch %lld of its log has epoch %lld, but the one before has %lld", f->run,
            (long long)mark->n + 1, (long long)batch.epoch, (long long)mark->epoch);
    }
    if (f->is_here) {
        STK_TRY(stk_store_events(f->store, f->run, mark->seq, last_event, &here, f->err));
    }
    for (const char *p = lines; *p != '\0';) {
        size_t n = strcspn(p, "\n");
        if (add_event(f, p, n) < 0) {
            stk_remote_log_key(f->run, mark->n + 1, key);
            return stk_err_context(f->err, "%s", key);
        }
        p += n + (p[n] != '\0');
    }
    bool is_half_done = here > mark->seq && (int64_t)f->n == here - mark->seq;
    bool is_bare = mark->n < 0 && f->n == 0; /* the log of an older engine begins so */
    if (here > mark->seq && !is_half_done && !is_bare) {
        stk_err_set(f->err, STK_E_BUSY,
                    "run %s was taken over by %s on %s, but this store has events of it that the "
                    "shared store lacks",
                    f->run, stk_text_or(batch.user, "somebody"),
                    stk_text_or(batch.host, "another machine"));
        stk_err_hint(f->err,
                     "'stoker store rm %s' removes it here, so that it can be fetched again",
                     f->run);
        return STK_E_BUSY;
    }
    if (is_half_done) {
        mark->seq = here;
    } else {
        STK_TRY(commit_batch(f, &mark->seq));
    }
    mark->n++;
    mark->epoch = batch.epoch;
    mark->owner[0] = '\0';
    if (!f->is_here) {
        return 0;
    }
    return stk_remote_mark_write(f->store, f->run, mark, f->err);
}

static int find_later_batch(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    const char *name = strrchr(key, '/') + 1;
    (void)size;
    (void)mtime_ms;
    (void)snprintf(arg, KEY, "%s", name);
    return strspn(name, "0123456789") == 12 && strcmp(name + 12, ".jsonl") == 0;
}

/* Checks that no batch follows the missing one. Returns 0, or 1: the missing batch came meanwhile.
 */
static int check_gap(const fetcher *f, const remote_mark *mark)
{
    char prefix[200], next[200], other[KEY] = "";
    STK_BUF_AUTO byte = STK_BUF_INIT(1);
    (void)snprintf(prefix, sizeof prefix, "runs/%s/log/", f->run);
    stk_remote_log_key(f->run, mark->n + 1, next);
    int rc = stk_share_list(f->share, prefix, next, find_later_batch, other, f->err);
    if (rc <= 0) {
        return rc;
    }
    rc = stk_share_get_range(f->share, next, 0, &byte, f->err);
    if (rc == 0) {
        return 1;
    }
    if (rc != STK_E_NOT_FOUND) {
        return rc;
    }
    return stk_err_set(
        f->err, STK_E_PROTOCOL,
        "the log of run %s has a gap: %s exists, but %s doesn't, so the rest can't be read", f->run,
        other, next);
}

/* A run whose engine ended before its first record; today's engines share none of these. */
static int fetch_empty(fetcher *f)
{
    STK_TRY(fetch_row(f));
    return stk_store_commit(f->store, f->run, &(stk_commit){0}, f->err);
}

int stk_remote_log_fetch_known(stk_share *share, const stk_remote_run *run, stk_store *store,
                               bool with_cache, bool checks_gap, stk_err *err)
{
    remote_mark mark;
    fetcher f = {.store = store,
                 .share = share,
                 .run = run->id,
                 .with_cache = with_cache,
                 .about = run,
                 .is_here = stk_store_has_run(store, run->id),
                 .err = err};
    STK_TRY(stk_remote_mark_read(store, run->id, &mark, err));
    if (!f.is_here) { /* left by a run without a row */
        mark = (remote_mark){.n = -1};
    }
    int rc = stk_remote_log_skip_own(share, store, run->id, &mark, err);
    while (rc == 0) {
        rc = fetch_batch(&f, &mark);
        if (rc == STK_E_NOT_FOUND && !checks_gap) {
            rc = 0;
            break;
        }
        if (rc == STK_E_NOT_FOUND && (rc = check_gap(&f, &mark)) == 0) {
            break;
        }
        rc = MIN(rc, 0);
    }
    if (rc < 0 || f.is_here) {
        return rc;
    }
    return fetch_empty(&f);
}

int stk_remote_log_fetch(const char *share_url, const char *run, stk_store *store, bool with_cache,
                         char ret_id[40], stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    stk_remote_run found;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_share_open(share_url, &share, err));
    STK_TRY(stk_remote_run_find(share, run, arena, &found, err));
    STK_TRY(stk_remote_log_fetch_known(share, &found, store, with_cache, true, err));
    (void)snprintf(ret_id, 40, "%s", found.id);
    return 0;
}
