/* Reading the log: a run that another machine runs, or ran, becomes one of this store. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>

#include "away/remote/remote_log_private.h"
#include "away/remote/remote_private.h"
#include "base/limits.h"
#include "base/text.h"
#include "sys/file.h"

enum { RUNS = 100000, RUN_ID = 39, SPEC_BYTES = 512 << 20, KEY = 1200 };

bool stk_remote_log_is_damage(int code)
{
    return code == STK_E_PROTOCOL || code == STK_E_SPEC || code == STK_E_VERSION ||
           code == STK_E_LIMIT || code == STK_E_STORE || code == STK_E_USAGE;
}

/* --- which runs there are --- */

static int first_key(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    (void)size;
    (void)mtime_ms;
    (void)snprintf(arg, KEY, "%.*s", (int)strcspn(key + 5, "/"), key + 5);
    return 1;
}

static int read_run(stk_share *share, const char *id, stk_arena *arena, stk_remote_run *ret,
                    stk_err *err)
{
    static const stk_json_limits limits = {64 << 10, 1000, 8};
    STK_BUF_AUTO text = STK_BUF_INIT(64 << 10);
    stk_json doc;
    char key[200];
    (void)snprintf(key, sizeof key, "runs/%s/run.json", id);
    STK_TRY(stk_share_get(share, key, &text, err));
    STK_TRY(stk_json_parse(text.data, text.len, key, &limits, arena, &doc, err));
    *ret = (stk_remote_run){.id = stk_arena_dup(arena, id),
                            .name = stk_json_text(stk_json_get(&doc, "name")),
                            .pipeline = stk_json_text(stk_json_get(&doc, "pipeline")),
                            .host = stk_json_text(stk_json_get(&doc, "host")),
                            .user = stk_json_text(stk_json_get(&doc, "user")),
                            .stack = stk_json_text(stk_json_get(&doc, "stack")),
                            .created_ms = -1};
    (void)stk_json_int(stk_json_get(&doc, "epoch"), &ret->epoch);
    (void)stk_json_int(stk_json_get(&doc, "at_ms"), &ret->created_ms);
    ret->name = stk_text_or(ret->name, ret->id);
    ret->pipeline = stk_text_or(ret->pipeline, "");
    return stk_err_if_null(ret->id, err);
}

/* A run has thousands of objects: the list is asked for the first one behind each run's. */
static int find_runs(stk_share *share, stk_arena *arena, stk_remote_run **ret, uint32_t *ret_n,
                     stk_err *err)
{
    stk_remote_run *runs = NULL;
    uint32_t n = 0, cap = 0;
    char after[KEY + 8] = "";
    for (;;) {
        char id[KEY] = "";
        int rc =
            stk_share_list(share, "runs/", after[0] != '\0' ? after : NULL, first_key, id, err);
        if (rc < 0) {
            return rc;
        }
        if (id[0] == '\0' || n == RUNS) {
            break;
        }
        (void)snprintf(after, sizeof after, "runs/%s0", id); /* '0' follows '/' */
        if (strlen(id) > RUN_ID) {                           /* no run's */
            continue;
        }
        stk_remote_run *grown = stk_arena_grow(arena, runs, n, sizeof *runs, &cap);
        if (grown == NULL) {
            return stk_err_nomem(err);
        }
        runs = grown;
        rc = read_run(share, id, arena, &runs[n], err);
        if (rc < 0 && stk_remote_log_is_damage(rc)) { /* who asks for it is told */
            runs[n] = (stk_remote_run){.id = stk_arena_dup(arena, id), .pipeline = ""};
            runs[n].name = runs[n].id;
            rc = runs[n].id == NULL ? stk_err_nomem(err) : 0;
        }
        if (rc < 0 && rc != STK_E_NOT_FOUND) {
            return rc;
        }
        n += rc == 0; /* one that is just beginning has none yet */
    }
    *ret = runs;
    *ret_n = n;
    return 0;
}

int stk_remote_log_runs(const char *share_url, stk_arena *arena, stk_remote_run **ret,
                        uint32_t *ret_n, stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    STK_TRY(stk_share_open(share_url, &share, err));
    return find_runs(share, arena, ret, ret_n, err);
}

/* An id that is whole needs no list. */
static int resolve(stk_share *share, const char *text, stk_arena *arena, stk_remote_run *ret,
                   stk_err *err)
{
    stk_remote_run *runs = NULL;
    uint32_t n = 0, n_found = 0;
    int rc = strchr(text, '/') != NULL ? STK_E_NOT_FOUND : read_run(share, text, arena, ret, err);
    if (rc != STK_E_NOT_FOUND) {
        return rc;
    }
    rc = find_runs(share, arena, &runs, &n, err);
    for (uint32_t i = n; rc == 0 && i-- > 0;) {
        bool is_name = strcmp(runs[i].name, text) == 0;
        if (is_name || strncmp(runs[i].id, text, strlen(text)) == 0 ||
            (strcmp(text, "latest") == 0 && i + 1 == n)) {
            if (n_found++ == 0) {
                *ret = runs[i];
            }
            if (is_name || strcmp(text, "latest") == 0) {
                return 0; /* the newest of that name */
            }
        }
    }
    STK_TRY(rc);
    if (n_found == 1) {
        return 0;
    }
    if (n_found == 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "no run '%s' in %s", text, stk_share_url(share));
    }
    return stk_err_set(err, STK_E_USAGE, "'%s' is the beginning of %u runs in %s", text, n_found,
                       stk_share_url(share));
}

/* --- its events --- */

typedef struct bringer {
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
    const stk_buf *spec;
    bool is_here; /* the run has its row in this store */
    stk_cache_row *cache;
    uint32_t n_cache, cap_cache;
    int64_t seq; /* its writer's, of the event before */
    stk_err *err;
} bringer;

static int add_ref(bringer *b, uint32_t task, const char *output, const stk_json *ref)
{
    const char *digest = stk_json_text(stk_json_get(ref, "digest"));
    const char *format = stk_json_text(stk_json_get(ref, "format"));
    int64_t size = 0;
    if (digest == NULL || !stk_json_int(stk_json_get(ref, "size"), &size)) {
        return 0;
    }
    stk_ref_row *refs = stk_arena_grow(b->arena, b->refs, b->n_refs, sizeof *refs, &b->cap_refs);
    if (refs == NULL) {
        return stk_err_nomem(b->err);
    }
    b->refs = refs;
    refs[b->n_refs++] = (stk_ref_row){.digest = digest,
                                      .task = task,
                                      .output = output,
                                      .name = stk_json_text(stk_json_get(ref, "name")),
                                      .version = stk_json_text(stk_json_get(ref, "version")),
                                      .ref = stk_json_dump_in(ref, b->arena)};
    bool is_dir = format != NULL && strcmp(format, "dir") == 0;
    return stk_store_add_absent(b->store, digest, size, is_dir, b->err);
}

/* Outputs of a task's end; of a graph that grows those of its ranks, and its items, as well. */
static int add_refs(bringer *b, uint32_t task, const stk_json *data)
{
    const stk_json *outputs = stk_json_get(data, "outputs");
    const stk_json *ranks = stk_json_get(data, "ranks");
    const stk_json *items = stk_json_get(stk_json_get(data, "next"), "items");
    int rc = 0;
    for (uint32_t i = 0;
         outputs != NULL && outputs->kind == STK_JSON_MAP && i < outputs->n && rc == 0; i++) {
        rc = add_ref(b, task, stk_json_key(outputs, i)->text, stk_json_value(outputs, i));
    }
    for (uint32_t i = 0; ranks != NULL && ranks->kind == STK_JSON_LIST && i < ranks->n && rc == 0;
         i++) {
        rc = add_refs(b, task, &ranks->items[i]);
    }
    if (rc == 0 && items != NULL) {
        return add_ref(b, task, "next.items", items);
    }
    return rc;
}

static const char *dump(const stk_json *doc, const char *key, stk_arena *arena)
{
    const stk_json *value = stk_json_get(doc, key);
    return value == NULL ? NULL : stk_json_dump_in(value, arena);
}

/* As if the step had run here. */
static int add_cache(bringer *b, const stk_json *doc)
{
    int64_t task = 0;
    stk_cache_row row = {.key = stk_json_text(stk_json_get(doc, "key")),
                         .pipeline = stk_json_text(stk_json_get(doc, "pipeline")),
                         .step = stk_json_text(stk_json_get(doc, "step")),
                         .run = stk_json_text(stk_json_get(doc, "run")),
                         .parts = dump(doc, "parts", b->arena),
                         .outputs = dump(doc, "outputs", b->arena),
                         .metadata = dump(doc, "metadata", b->arena),
                         .seen = dump(doc, "seen", b->arena)};
    (void)stk_json_int(stk_json_get(doc, "task"), &task);
    (void)stk_json_int(stk_json_get(doc, "created_ms"), &row.created_ms);
    row.task = (uint32_t)task;
    if (!b->with_cache || row.key == NULL || row.pipeline == NULL || row.step == NULL ||
        row.run == NULL || row.parts == NULL || row.outputs == NULL) {
        return 0;
    }
    stk_cache_row *rows =
        stk_arena_grow(b->arena, b->cache, b->n_cache, sizeof *rows, &b->cap_cache);
    if (rows == NULL) {
        return stk_err_nomem(b->err);
    }
    b->cache = rows;
    rows[b->n_cache++] = row;
    return 0;
}

static int add_event(bringer *b, const char *line, size_t len)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES * 4, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    stk_json doc;
    int rc = stk_json_parse(line, len, "log", &limits, b->arena, &doc, b->err);
    const char *word = rc < 0 ? NULL : stk_json_text(stk_json_get(&doc, "event"));
    int kind = word == NULL ? -1 : stk_event_kind_of(word);
    if (rc < 0 || kind < 0) {
        STK_TRY(rc);
        return stk_err_set(b->err, STK_E_VERSION,
                           "run %s has an event '%s' that this Stoker doesn't know; it "
                           "was written by a newer one",
                           b->run, stk_text_or(word, ""));
    }
    stk_event_row *events = stk_arena_grow(b->arena, b->events, b->n, sizeof *events, &b->cap);
    if (events == NULL) {
        return stk_err_nomem(b->err);
    }
    b->events = events;
    stk_event_row *row = &events[b->n++];
    int64_t task = UINT32_MAX, attempt = 0;
    int64_t seq = 0;
    const stk_json *data = stk_json_get(&doc, "data");
    bool has_task = stk_json_int(stk_json_get(&doc, "task"), &task);
    (void)stk_json_int(stk_json_get(&doc, "attempt"), &attempt);
    (void)stk_json_int(stk_json_get(&doc, "seq"), &seq);
    if ((has_task && (task < 0 || task >= STK_LIMIT_TASKS)) || attempt < 0 ||
        attempt > UINT32_MAX || seq <= b->seq) {
        return stk_err_set(b->err, STK_E_PROTOCOL,
                           "it has event %lld behind %lld, of task %lld, attempt %lld: no engine "
                           "writes that",
                           (long long)seq, (long long)b->seq, (long long)task, (long long)attempt);
    }
    b->seq = seq;
    *row = (stk_event_row){.kind = (stk_event_kind)kind,
                           .task = (uint32_t)task,
                           .attempt = (uint32_t)attempt,
                           .data = data == NULL ? NULL : stk_json_dump_in(data, b->arena)};
    (void)stk_json_int(stk_json_get(&doc, "at_ms"), &row->time_ms);
    bool has_outputs = kind == STK_EV_TASK_SUCCEEDED || kind == STK_EV_TASK_CACHED;
    if (has_outputs && data != NULL) {
        STK_TRY(add_refs(b, row->task, data));
    }
    return add_cache(b, stk_json_get(&doc, "cache"));
}

/* The run comes with its first events. */
static int bring_row(bringer *b)
{
    bool is_new = false;
    int rc = b->is_here ? 0
                        : stk_store_bring_run(b->store, b->run, b->about->name, b->about->pipeline,
                                              b->spec->data, b->spec->len, b->about->created_ms,
                                              &is_new, b->err);
    b->is_here = rc == 0;
    return rc;
}

static int commit(bringer *b, int64_t *seq)
{
    stk_commit c = {.events = b->events,
                    .n_events = b->n,
                    .refs = b->refs,
                    .n_refs = b->n_refs,
                    .cache = b->cache,
                    .n_cache = b->n_cache};
    if (b->n == 0) {
        return 0;
    }
    STK_TRY(bring_row(b));
    STK_TRY(stk_store_commit(b->store, b->run, &c, b->err));
    *seq = b->events[b->n - 1].seq;
    return 0;
}

static int last_event(void *arg, const stk_event_row *row)
{
    *(int64_t *)arg = row->seq;
    return 0;
}

/* One batch, and where the log stands now. A crash between the two leaves events here that the mark
 * doesn't know: the next try sees as much. */
static int bring_batch(bringer *b, remote_mark *mark)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    remote_batch batch;
    const char *lines = NULL;
    int64_t here = mark->seq;
    char key[200];
    *b = (bringer){.store = b->store,
                   .share = b->share,
                   .run = b->run,
                   .arena = arena,
                   .with_cache = b->with_cache,
                   .about = b->about,
                   .spec = b->spec,
                   .is_here = b->is_here,
                   .err = b->err};
    int rc = arena == NULL ? stk_err_nomem(b->err)
                           : stk_remote_batch_read(b->share, b->run, mark->n + 1, arena, &batch,
                                                   &lines, b->err);
    if (rc == 0 && batch.epoch < mark->epoch) {
        rc = stk_err_set(b->err, STK_E_PROTOCOL,
                         "run %s: batch %lld of its log is of epoch %lld, the one before of %lld",
                         b->run, (long long)mark->n + 1, (long long)batch.epoch,
                         (long long)mark->epoch);
    }
    rc = rc < 0 || !b->is_here
             ? rc
             : stk_store_events(b->store, b->run, mark->seq, last_event, &here, b->err);
    if (rc < 0) {
        return rc;
    }
    for (const char *p = lines; *p != '\0' && rc == 0;) {
        size_t n = strcspn(p, "\n");
        if ((rc = add_event(b, p, n)) < 0) {
            stk_remote_log_key(b->run, mark->n + 1, key);
            return stk_err_context(b->err, "%s", key);
        }
        p += n + (p[n] != '\0');
    }
    bool is_half_done = here > mark->seq && (int64_t)b->n == here - mark->seq;
    bool is_bare = mark->n < 0 && b->n == 0; /* as an older engine begins a log */
    if (rc == 0 && here > mark->seq && !is_half_done && !is_bare) {
        rc = stk_err_set(b->err, STK_E_BUSY,
                         "run %s was taken over by %s on %s, and this store has events of it that "
                         "the other one never saw",
                         b->run, stk_text_or(batch.user, "somebody"),
                         stk_text_or(batch.host, "another machine"));
        stk_err_hint(b->err, "'stoker store rm %s' removes it here; then it can be brought again",
                     b->run);
    }
    if (is_half_done) {
        mark->seq = here;
    }
    rc = rc < 0 || is_half_done ? rc : commit(b, &mark->seq);
    mark->n++;
    if (rc >= 0) {
        mark->epoch = batch.epoch;
    }
    mark->owner[0] = '\0';
    if (rc < 0 || !b->is_here) {
        return rc;
    }
    return stk_remote_mark_write(b->store, b->run, mark, b->err);
}

static int later(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    const char *name = strrchr(key, '/') + 1;
    (void)size;
    (void)mtime_ms;
    (void)snprintf(arg, KEY, "%s", name);
    return strspn(name, "0123456789") == 12 && strcmp(name + 12, ".jsonl") == 0;
}

/* Nothing stands behind the number that isn't there: 0. 1: it came while we looked. */
static int check_end(const bringer *b, const remote_mark *mark)
{
    char prefix[200], next[200], other[KEY] = "";
    STK_BUF_AUTO byte = STK_BUF_INIT(1);
    (void)snprintf(prefix, sizeof prefix, "runs/%s/log/", b->run);
    stk_remote_log_key(b->run, mark->n + 1, next);
    int rc = stk_share_list(b->share, prefix, next, later, other, b->err);
    if (rc <= 0) {
        return rc;
    }
    rc = stk_share_get_range(b->share, next, 0, &byte, b->err);
    if (rc != STK_E_NOT_FOUND) {
        if (rc == 0) {
            return 1;
        }
        return rc;
    }
    return stk_err_set(b->err, STK_E_PROTOCOL,
                       "the log of run %s has a gap: %s is there, and %s is not; what is "
                       "behind it can't be told",
                       b->run, other, next);
}

/* One whose engine ended before anything was on record: an engine of today shares none such. */
static int bring_empty(bringer *b)
{
    STK_TRY(bring_row(b));
    return stk_store_commit(b->store, b->run, &(stk_commit){0}, b->err);
}

static int bring(stk_share *share, const stk_remote_run *run, stk_store *store, bool with_cache,
                 stk_err *err)
{
    char key[200];
    remote_mark mark;
    STK_BUF_AUTO spec = STK_BUF_INIT(SPEC_BYTES);
    bringer b = {.store = store,
                 .share = share,
                 .run = run->id,
                 .with_cache = with_cache,
                 .about = run,
                 .spec = &spec,
                 .is_here = stk_store_has_run(store, run->id),
                 .err = err};
    (void)snprintf(key, sizeof key, "runs/%s/spec.json", run->id);
    STK_TRY(stk_share_get(share, key, &spec, err));
    STK_TRY(stk_remote_mark_read(store, run->id, &mark, err));
    if (!b.is_here) { /* left by one whose row never came */
        mark = (remote_mark){.n = -1};
    }
    int rc = stk_remote_log_skip_own(share, store, run->id, &mark, err);
    while (rc == 0) {
        rc = bring_batch(&b, &mark);
        if (rc == STK_E_NOT_FOUND && (rc = check_end(&b, &mark)) == 0) {
            return b.is_here ? 0 : bring_empty(&b);
        }
        rc = MIN(rc, 0);
    }
    return rc;
}

int stk_remote_log_bring(const char *share_url, const char *run, stk_store *store, bool with_cache,
                         char ret_id[40], stk_err *err)
{
    STK_SHARE_AUTO share = NULL;
    stk_remote_run found;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_share_open(share_url, &share, err));
    STK_TRY(resolve(share, run, arena, &found, err));
    STK_TRY(bring(share, &found, store, with_cache, err));
    (void)snprintf(ret_id, 40, "%s", found.id);
    return 0;
}

/* --- its attempts' files --- */

typedef struct ends {
    stk_share *share;
    stk_store *store;
    stk_err *err;
    int rc;
    char at[STK_SHARE_KEY_MAX]; /* the attempt whose further nodes came last … */
    uint32_t last;              /* … the highest of them, */
    bool is_new;                /* and whether any wasn't here yet */
} ends;

static int no_room(ends *e)
{
    e->rc = stk_err_nomem(e->err);
    return 1;
}

/* end-K.json. */
static int see_node(ends *e, const char *key, int n_at, const char *dir, uint32_t node)
{
    STK_TEXT_AUTO log = NULL;
    if (strncmp(e->at, key, (size_t)n_at) != 0 || e->at[n_at] != '\0') {
        (void)snprintf(e->at, sizeof e->at, "%.*s", n_at, key);
        e->last = 0;
        e->is_new = false;
    }
    e->last = MAX(node, e->last);
    if (asprintf(&log, "%s/node-%u/stderr.log", dir, node) < 0) {
        log = NULL;
        return no_room(e);
    }
    if (!stk_file_exists(log)) {
        e->is_new = true;
        e->rc = stk_remote_bring_end(e->share, key, dir, NULL, NULL, e->err);
    }
    return e->rc < 0 ? 1 : 0;
}

/* runs/<run>/<step>/<task>/<attempt>/end.json, end-K.json: in this order '-' stands before '.', so
 * node 0's comes last, and the others' output is put behind its own. */
static int see_key(void *arg, const char *key, int64_t size, int64_t mtime_ms)
{
    ends *e = arg;
    const char *name = strrchr(key, '/') + 1;
    int n_at = (int)(name - key - 1);
    size_t n = strlen(name);
    uint32_t n_slashes = 0;
    (void)size;
    (void)mtime_ms;
    for (const char *p = key; *p != '\0'; p++) {
        n_slashes += *p == '/';
    }
    if (n_slashes != 5 || n < 8 || strncmp(name, "end", 3) != 0 ||
        (name[3] != '.' && name[3] != '-') || strcmp(name + n - 5, ".json") != 0 ||
        (name[3] == '-' && strtoul(name + 4, NULL, 10) >= STK_LIMIT_RANKS)) {
        return 0; /* files/end.json is the program's */
    }
    STK_TEXT_AUTO dir = NULL;
    if (asprintf(&dir, "%s/%.*s", stk_store_path(e->store), n_at, key) < 0) {
        dir = NULL;
        return no_room(e);
    }
    if (strcmp(name, "end.json") != 0) {
        return see_node(e, key, n_at, dir, (uint32_t)strtoul(name + 4, NULL, 10));
    }
    STK_TEXT_AUTO log = stk_file_join(dir, "stderr.log"); /* then they came before */
    bool has_nodes = strncmp(e->at, key, (size_t)n_at) == 0 && e->at[n_at] == '\0';
    if (log != NULL && stk_file_exists(log) && !(has_nodes && e->is_new)) {
        return 0;
    }
    e->rc = stk_remote_bring_end(e->share, key, dir, NULL, NULL, e->err);
    if (e->rc == 0 && has_nodes) {
        e->rc = stk_remote_add_nodes(dir, e->last, e->err);
    }
    return e->rc < 0 ? 1 : 0;
}

int stk_remote_log_bring_files(const char *share_url, const char *run, stk_store *store,
                               stk_err *err)
{
    ends e = {.store = store, .err = err};
    char prefix[64];
    (void)snprintf(prefix, sizeof prefix, "runs/%s/", run);
    int rc = stk_share_open(share_url, &e.share, err);
    rc = rc < 0 ? rc : stk_share_list(e.share, prefix, NULL, see_key, &e, err);
    stk_share_close(e.share);
    return e.rc < 0 ? e.rc : MIN(rc, 0);
}
