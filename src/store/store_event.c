/* Commits events, cache entries, references and names in one transaction, and reads them. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>

#include "base/buf.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "store/store_private.h"

static void bind_text(sqlite3_stmt *stmt, int i, const char *text)
{
    (void)sqlite3_bind_text(stmt, i, text, -1, SQLITE_STATIC); /* NULL binds NULL */
}

/* --- commit --- */

static void remember_run(stk_store *store, const char *run, int64_t row, int64_t event, int64_t ref)
{
    store->last_event = MAX(event, row << 32);
    store->last_ref = MAX(ref, row << 32);
    store->run_row = row;
    (void)snprintf(store->run, sizeof store->run, "%s", run);
}

/* Finds the run's row and last numbers, once per run. */
static int load_run(stk_store *store, const char *run, stk_err *err)
{
    if (strcmp(store->run, run) == 0) {
        return 0;
    }
    int64_t row = 0;
    int code = stk_store_run_row(store, run, &row, err);
    if (code != 0) {
        return code;
    }
    sqlite3_stmt *stmt = store->stmts[STK_SQL_RUN_LAST];
    (void)sqlite3_bind_int64(stmt, 1, row << 32);
    (void)sqlite3_bind_int64(stmt, 2, (row << 32) + UINT32_MAX);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) { /* NULL reads as 0 */
        remember_run(store, run, row, sqlite3_column_int64(stmt, 0), sqlite3_column_int64(stmt, 1));
    } else {
        code = stk_store_sql_err(store, rc, err, "reading a run");
    }
    (void)sqlite3_reset(stmt);
    return code;
}

static int update_run(stk_store *store, const stk_event_row *e, stk_err *err)
{
    bool ended = e->kind == STK_EV_RUN_ENDED;
    bool tags = e->kind == STK_EV_TAGGED || e->kind == STK_EV_RUN_CREATED;
    if (!ended && !tags && e->kind != STK_EV_RUN_STARTED) {
        return 0;
    }
    int which = STK_SQL_RUN_START;
    if (ended) {
        which = STK_SQL_RUN_END;
    } else if (tags) {
        which = STK_SQL_RUN_TAGS;
    }
    sqlite3_stmt *stmt = store->stmts[which];
    (void)sqlite3_bind_int64(stmt, 1, store->run_row);
    if (ended || tags) {
        bind_text(stmt, 2, e->data);
    }
    if (ended) {
        (void)sqlite3_bind_int64(stmt, 3, e->time_ms);
    }
    return stk_store_step(store, stmt, err, "updating a run");
}

/* Finds the run's last event, since other processes may have added some after our last commit. Call
 * inside a transaction, which keeps others from adding more. */
static int find_last(stk_store *store, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_EVENT_LAST];
    (void)sqlite3_bind_int64(stmt, 1, store->run_row << 32);
    (void)sqlite3_bind_int64(stmt, 2, (store->run_row << 32) + UINT32_MAX);
    int rc = sqlite3_step(stmt);
    int64_t last = 0;
    if (rc == SQLITE_ROW) {
        last = sqlite3_column_int64(stmt, 0);
    }
    int code = stk_store_sql_check(store, rc, err, "reading a run");
    (void)sqlite3_reset(stmt);
    store->last_event = MAX(last, store->last_event);
    return code;
}

/* Parses the data as every reader does; *ret_full: out of memory. */
static bool can_be_read(const char *data, bool *ret_full)
{
    *ret_full = false;
    if (data == NULL || stk_store_is_plain_object(data)) {
        return true;
    }
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    stk_json doc; /* without an arena, parsing returns STK_E_NOMEM */
    int rc = stk_json_parse(data, strlen(data), NULL, &stk_json_by_program, scratch, &doc, NULL);
    *ret_full = rc == STK_E_NOMEM;
    return rc == 0 && stk_json_is_map(&doc);
}

/* Refuses data that readers of the run would find damaged. */
static int check_event(const stk_event_row *e, stk_err *err)
{
    bool is_full;
    if (can_be_read(e->data, &is_full)) {
        return 0;
    }
    if (is_full) {
        return stk_err_set(err, STK_E_NOMEM, "out of memory while recording an event");
    }
    return stk_err_set(err, STK_E_PROTOCOL,
                       "event '%s' can't be recorded, because its data isn't valid JSON: %.200s",
                       stk_event_word(e->kind), e->data);
}

static int add_events(stk_store *store, const stk_commit *commit, int64_t last, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_EVENT_ADD];
    for (uint32_t i = 0; i < commit->n_events; i++) {
        const stk_event_row *e = &commit->events[i];
        STK_TRY(check_event(e, err));
        (void)sqlite3_bind_int64(stmt, 1, last + 1 + i);
        (void)sqlite3_bind_int64(stmt, 2, e->time_ms);
        bind_text(stmt, 3, stk_event_word(e->kind));
        if (e->task == UINT32_MAX) {
            (void)sqlite3_bind_null(stmt, 4);
        } else {
            (void)sqlite3_bind_int64(stmt, 4, e->task);
        }
        (void)sqlite3_bind_int64(stmt, 5, e->attempt);
        bind_text(stmt, 6, e->data);
        STK_TRY(stk_store_step(store, stmt, err, "adding events"));
        STK_TRY(update_run(store, e, err));
    }
    return 0;
}

static int add_cache(stk_store *store, const stk_commit *commit, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_CACHE_PUT];
    for (uint32_t i = 0; i < commit->n_cache; i++) {
        const stk_cache_row *c = &commit->cache[i];
        bind_text(stmt, 1, c->key);
        bind_text(stmt, 2, c->pipeline);
        bind_text(stmt, 3, c->step);
        bind_text(stmt, 4, c->parts);
        bind_text(stmt, 5, c->run);
        (void)sqlite3_bind_int64(stmt, 6, c->task);
        (void)sqlite3_bind_int64(stmt, 7, c->created_ms);
        bind_text(stmt, 8, c->outputs);
        bind_text(stmt, 9, c->metadata);
        bind_text(stmt, 10, c->seen);
        STK_TRY(stk_store_step(store, stmt, err, "adding cache entries"));
    }
    return 0;
}

static int name_taken(const char *name, const char *version, stk_err *err)
{
    stk_err_set(err, STK_E_USAGE, "artifact '%s' already has a version '%s' with other content",
                name, stk_text_or(version, ""));
    stk_err_hint(err, "choose another version, or leave it out to get the next number");
    return STK_E_USAGE;
}

int stk_store_check_name(stk_store *store, const char *name, const char *version,
                         const char *digest, stk_err *err)
{
    if (version == NULL) {
        return 0;
    }
    sqlite3_stmt *stmt = store->stmts[STK_SQL_NAMED_TAKEN];
    bind_text(stmt, 1, name);
    bind_text(stmt, 2, version);
    bind_text(stmt, 3, digest);
    int rc = sqlite3_step(stmt);
    int code = stk_store_sql_check(store, rc, err, "looking for a name");
    if (rc == SQLITE_ROW) {
        code = name_taken(name, version, err);
    }
    (void)sqlite3_reset(stmt);
    return code;
}

static int add_name_row(stk_store *store, const stk_named_row *row, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_NAMED_ADD];
    bind_text(stmt, 1, row->name);
    bind_text(stmt, 2, row->version);
    bind_text(stmt, 3, row->digest);
    bind_text(stmt, 4, row->run);
    bind_text(stmt, 5, row->step);
    bind_text(stmt, 6, row->output);
    bind_text(stmt, 7, row->ref);
    (void)sqlite3_bind_int64(stmt, 8, row->created_ms);
    STK_TRY(stk_store_step(store, stmt, err, "naming an artifact"));
    if (sqlite3_changes(store->db) == 0) {
        return name_taken(row->name, row->version, err);
    }
    return 0;
}

static int add_refs(stk_store *store, const stk_commit *commit, const char *run, int64_t last,
                    stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_REF_ADD];
    for (uint32_t i = 0; i < commit->n_refs; i++) {
        const stk_ref_row *r = &commit->refs[i];
        (void)sqlite3_bind_int64(stmt, 1, last + 1 + i);
        bind_text(stmt, 2, r->digest);
        (void)sqlite3_bind_int64(stmt, 3, r->task);
        bind_text(stmt, 4, r->output);
        STK_TRY(stk_store_step(store, stmt, err, "adding references"));
        if (r->name != NULL) {
            stk_named_row named = {.name = r->name,
                                   .version = r->version,
                                   .digest = r->digest,
                                   .run = run,
                                   .step = r->step,
                                   .output = r->output,
                                   .ref = r->ref};
            if (commit->n_events > 0) {
                named.created_ms = commit->events[0].time_ms;
            }
            STK_TRY(add_name_row(store, &named, err));
        }
    }
    return 0;
}

static int injected(const stk_store *store, int sys, stk_err *err)
{
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "store '%s': committing", store->path);
    }
    return 0;
}

/* Call inside the transaction. */
static int write_commit(stk_store *store, const char *run, const stk_commit *commit, bool is_birth,
                        stk_err *err)
{
    if (is_birth) {
        int64_t row = 0;
        STK_TRY(stk_store_bear_run(store, &row, err));
        remember_run(store, run, row, 0, 0);
    }
    STK_TRY(find_last(store, err));
    STK_TRY(add_events(store, commit, store->last_event, err));
    STK_TRY(stk_store_flush_pending(store, err));
    STK_TRY(add_cache(store, commit, err));
    STK_TRY(add_refs(store, commit, run, store->last_ref, err));
    return injected(store, STK_FAILPOINT_ERR("store.commit.mid"), err);
}

int stk_store_commit(stk_store *store, const char *run, stk_commit *commit, stk_err *err)
{
    bool is_birth = strcmp(store->unborn.run, run) == 0;
    STK_TRY(stk_store_writable(store, err));
    STK_TRY(injected(store, STK_FAILPOINT_ERR("store.commit.before"), err));
    if (!is_birth) {
        STK_TRY(load_run(store, run, err));
    }
    STK_TRY(stk_store_begin(store, err));
    int rc = write_commit(store, run, commit, is_birth, err);
    rc = stk_store_end(store, rc, err);
    if (rc != 0) {
        if (is_birth) {
            store->run[0] = '\0';
        }
        return rc; /* the artifacts stay pending, because they are in their place */
    }
    if (is_birth) {
        stk_store_born(store);
    }
    STK_FAILPOINT("store.commit.after");
    for (uint32_t i = 0; i < commit->n_events; i++) {
        commit->events[i].seq = ++store->last_event & UINT32_MAX;
    }
    store->last_ref += commit->n_refs;
    store->n_pending = 0;
    stk_store_use_end(store);
    return 0;
}

/* Replaces the run's tags, which must still be `old`, with those in `event`. */
static int retag(stk_store *store, const char *run, const char *old, const stk_event_row *event,
                 stk_err *err)
{
    stk_commit commit = {.events = (stk_event_row *)(uintptr_t)event, .n_events = 1};
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(store->db,
                                "SELECT coalesce(tags, '[]') IS json(?2) FROM runs WHERE run = ?1",
                                -1, &stmt, NULL);
    bind_text(stmt, 1, run);
    bind_text(stmt, 2, old);
    if (rc == SQLITE_OK) {
        rc = sqlite3_step(stmt);
    }
    bool same = rc == SQLITE_ROW && sqlite3_column_int(stmt, 0) != 0;
    int code;
    if (rc != SQLITE_ROW) {
        code = stk_store_sql_err(store, rc, err, "tagging a run");
    } else if (same) {
        code = find_last(store, err);
    } else {
        code = stk_err_set(
            err, STK_E_BUSY,
            "the tags of run %s were changed by another process at the same time; try again", run);
    }
    (void)sqlite3_finalize(stmt);
    if (code < 0) {
        return code;
    }
    return add_events(store, &commit, store->last_event, err);
}

int stk_store_tag_run(stk_store *store, const char *run, const char *old_tags, const char *tags,
                      int64_t now_ms, stk_err *err)
{
    STK_BUF_AUTO data = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    stk_json_open(&data, NULL, '{');
    stk_json_put_raw(&data, "tags", tags);
    stk_json_close(&data, '}');
    if (data.failed) {
        return stk_err_set(err, STK_E_LIMIT, "the tags are larger than %zu bytes", data.max);
    }
    stk_event_row event = {
        .time_ms = now_ms, .kind = STK_EV_TAGGED, .task = UINT32_MAX, .data = data.data};
    STK_TRY(stk_store_writable(store, err));
    STK_TRY(load_run(store, run, err));
    STK_TRY(stk_store_begin(store, err));
    STK_TRY(stk_store_end(store, retag(store, run, old_tags, &event, err), err));
    store->last_event++;
    return 0;
}

/* Reports an event of unknown kind, from damage or a newer Stoker, as a NOTE, so that it doesn't
 * hide the others. */
static int tell_unknown(int64_t seq, int64_t time_ms,
                        int (*each)(void *arg, const stk_event_row *row), void *arg)
{
    char text[128];
    STK_BUF_AUTO data = STK_BUF_INIT(sizeof text * 2);
    (void)snprintf(text, sizeof text, "event %lld of the record is damaged: its kind is unknown",
                   (long long)seq);
    stk_json_open(&data, NULL, '{');
    stk_json_put_text(&data, "text", text);
    stk_json_close(&data, '}');
    stk_event_row row = {
        .seq = seq, .time_ms = time_ms, .kind = STK_EV_NOTE, .task = UINT32_MAX, .data = data.data};
    return each(arg, &row);
}

int stk_store_verify_events(stk_store *store,
                            void (*bad)(void *arg, const char *digest, const char *what), void *arg,
                            uint64_t *ret_n, stk_err *err)
{
    sqlite3_stmt *stmt = NULL;
    uint64_t n = 0;
    int rc = sqlite3_prepare_v2(store->db,
                                "SELECT runs.run, events.id - (runs.id << 32), kind, data FROM runs"
                                " JOIN events ON events.id BETWEEN runs.id << 32"
                                " AND (runs.id << 32) + 4294967295 ORDER BY events.id",
                                -1, &stmt, NULL);
    while (rc == SQLITE_OK || rc == SQLITE_ROW) {
        rc = sqlite3_step(stmt);
        if (rc != SQLITE_ROW) {
            break;
        }
        char name[80];
        bool is_full;
        const char *run = (const char *)sqlite3_column_text(stmt, 0);
        const char *word = (const char *)sqlite3_column_text(stmt, 2);
        const char *data = (const char *)sqlite3_column_text(stmt, 3);
        (void)snprintf(name, sizeof name, "run %s, event %lld", stk_text_or(run, "?"),
                       (long long)sqlite3_column_int64(stmt, 1));
        if (word == NULL || stk_event_kind_of(word) < 0) {
            bad(arg, name, "damaged: its kind is unknown");
        } else if (!can_be_read(data, &is_full)) {
            bad(arg, name, "damaged: its data can't be read");
        }
        n++;
    }
    int code = stk_store_sql_check(store, rc, err, "reading events");
    (void)sqlite3_finalize(stmt);
    *ret_n = n;
    return code;
}

int stk_store_events(stk_store *store, const char *run, int64_t after,
                     int (*each)(void *arg, const stk_event_row *row), void *arg, stk_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int64_t base = 0;
    int code = stk_store_run_row(store, run, &base, err);
    if (code != 0) {
        return code;
    }
    base <<= 32;
    if (after < 0) {
        after = 0;
    } else {
        after = MIN(after, UINT32_MAX);
    }
    /* A separate statement, so that `each` may use the store. */
    int rc = sqlite3_prepare_v2(store->db,
                                "SELECT id, time_ms, kind, task, attempt, data FROM events"
                                " WHERE id > ?1 AND id <= ?2 ORDER BY id",
                                -1, &stmt, NULL);
    (void)sqlite3_bind_int64(stmt, 1, base + after);
    (void)sqlite3_bind_int64(stmt, 2, base + UINT32_MAX);
    while (code == 0 && (rc == SQLITE_OK || rc == SQLITE_ROW)) {
        rc = sqlite3_step(stmt);
        if (rc != SQLITE_ROW) {
            break;
        }
        const char *word = (const char *)sqlite3_column_text(stmt, 2);
        int kind = word == NULL ? -1 : stk_event_kind_of(word);
        if (kind < 0) {
            code = tell_unknown(sqlite3_column_int64(stmt, 0) - base, sqlite3_column_int64(stmt, 1),
                                each, arg);
            continue;
        }
        stk_event_row row = {.seq = sqlite3_column_int64(stmt, 0) - base,
                             .time_ms = sqlite3_column_int64(stmt, 1),
                             .kind = (stk_event_kind)kind,
                             .task = sqlite3_column_type(stmt, 3) == SQLITE_NULL
                                         ? UINT32_MAX
                                         : (uint32_t)sqlite3_column_int64(stmt, 3),
                             .attempt = (uint32_t)sqlite3_column_int64(stmt, 4),
                             .data = (const char *)sqlite3_column_text(stmt, 5)};
        code = each(arg, &row);
    }
    if (code == 0 && rc != SQLITE_DONE) {
        code = stk_store_sql_err(store, rc, err, "reading events");
    }
    (void)sqlite3_finalize(stmt);
    return code;
}

/* --- cache --- */

int stk_store_cache_read(stk_store *store, const char *key, stk_arena *arena,
                         stk_cache_row *ret_row, stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_CACHE_GET];
    bind_text(stmt, 1, key);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        stk_cache_row row = {.task = (uint32_t)sqlite3_column_int64(stmt, 5),
                             .created_ms = sqlite3_column_int64(stmt, 6)};
        const struct {
            const char **to;
            int column;
        } texts[] = {{&row.key, 0}, {&row.pipeline, 1}, {&row.step, 2},     {&row.parts, 3},
                     {&row.run, 4}, {&row.outputs, 7},  {&row.metadata, 8}, {&row.seen, 9}};
        for (size_t i = 0; i < sizeof texts / sizeof texts[0] && rc == SQLITE_ROW; i++) {
            *texts[i].to = stk_store_column(stmt, texts[i].column, arena);
            if (*texts[i].to == NULL && sqlite3_column_type(stmt, texts[i].column) != SQLITE_NULL) {
                rc = SQLITE_NOMEM;
            }
        }
        if (rc == SQLITE_ROW) {
            *ret_row = row;
        }
    }
    int code = stk_store_sql_check(store, rc, err, "reading the cache");
    if (rc == SQLITE_DONE) {
        code = STK_E_NOT_FOUND;
    }
    (void)sqlite3_reset(stmt);
    return code;
}

int stk_store_cache_get(stk_store *store, const char *key, stk_arena *arena, stk_cache_row *ret_row,
                        stk_err *err)
{
    /* Held from a hit until the commit that names it, so that gc doesn't remove it in between. */
    bool had_use = store->in_use;
    int code = stk_store_use_begin(store, err);
    if (code != 0) {
        return code;
    }
    stk_store_read_begin(store);
    code = stk_store_cache_read(store, key, arena, ret_row, err);
    if (code != 0 && !had_use) {
        stk_store_use_end(store);
    }
    return code;
}

const char *stk_store_cache_last_parts(stk_store *store, const char *pipeline, const char *step,
                                       stk_arena *arena)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_CACHE_LAST];
    bind_text(stmt, 1, pipeline);
    bind_text(stmt, 2, step);
    const char *parts = NULL;
    if (sqlite3_step(stmt) == SQLITE_ROW) {
        parts = stk_store_column(stmt, 0, arena);
    }
    (void)sqlite3_reset(stmt);
    return parts;
}

/* --- names --- */

int stk_store_add_named(stk_store *store, const stk_named_row *row, stk_err *err)
{
    STK_TRY(stk_store_writable(store, err));
    STK_TRY(stk_store_begin(store, err));
    int rc = stk_store_flush_pending(store, err);
    if (rc == 0) {
        rc = add_name_row(store, row, err);
    }
    STK_TRY(stk_store_end(store, rc, err));
    store->n_pending = 0;
    stk_store_use_end(store);
    return 0;
}

/* Runs a separate statement on `named`; *ret_n: rows changed. */
static int change_named(stk_store *store, const char *sql, const char *const texts[4],
                        uint32_t *ret_n, stk_err *err)
{
    sqlite3_stmt *stmt = NULL;
    STK_TRY(stk_store_writable(store, err));
    STK_TRY(stk_store_begin(store, err));
    int code = sqlite3_prepare_v2(store->db, sql, -1, &stmt, NULL);
    for (int i = 0; i < 4 && i < sqlite3_bind_parameter_count(stmt); i++) {
        bind_text(stmt, i + 1, texts[i]);
    }
    if (code == SQLITE_OK) {
        code = sqlite3_step(stmt);
    }
    int rc = stk_store_sql_check(store, code, err, "changing a name");
    *ret_n = 0;
    if (rc == 0) {
        *ret_n = (uint32_t)sqlite3_changes(store->db);
    }
    (void)sqlite3_finalize(stmt);
    return stk_store_end(store, rc, err);
}

int stk_store_set_named_ref(stk_store *store, const char *name, const char *version,
                            const char *old_ref, const char *ref, stk_err *err)
{
    uint32_t n = 0;
    int rc = change_named(
        store, "UPDATE named SET ref = ?4 WHERE name = ?1 AND version = ?2 AND ref IS ?3",
        (const char *const[4]){name, version, old_ref, ref}, &n, err);
    if (rc == 0 && n == 0) {
        return stk_err_set(err, STK_E_BUSY,
                           "artifact '%s:%s' was changed or removed by another process at the same "
                           "time; try again",
                           name, version);
    }
    return rc;
}

int stk_store_remove_named(stk_store *store, const char *name, const char *version, uint32_t *ret_n,
                           stk_err *err)
{
    int rc =
        change_named(store, "DELETE FROM named WHERE name = ?1 AND (?2 IS NULL OR version = ?2)",
                     (const char *const[4]){name, version}, ret_n, err);
    if (rc == 0 && *ret_n == 0) {
        return stk_err_set(err, STK_E_NOT_FOUND, "no artifact is named '%s%s%s'", name,
                           stk_text_when(version != NULL, ":"), stk_text_or(version, ""));
    }
    return rc;
}

int stk_store_rename_named(stk_store *store, const char *name, const char *new_name, stk_err *err)
{
    static const char sql[] = "UPDATE named SET name = ?2 WHERE name = ?1"
                              " AND NOT EXISTS (SELECT 1 FROM named WHERE name = ?2)";
    uint32_t n = 0;
    STK_TRY(change_named(store, sql, (const char *const[4]){name, new_name}, &n, err));
    if (n == 0) {
        return stk_err_set(err, STK_E_NOT_FOUND,
                           "no artifact is named '%s', or there is one named '%s' already", name,
                           new_name);
    }
    return 0;
}

/* Reads all rows of a query on `named` whose parameters are bound. Finalizes the statement. */
static int read_named(stk_store *store, sqlite3_stmt *stmt, stk_arena *arena,
                      stk_named_row **ret_rows, uint32_t *ret_n, stk_err *err)
{
    uint32_t n = 0;
    uint32_t cap = 0;
    stk_named_row *rows = NULL;
    int rc;
    while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
        rows = stk_arena_grow(arena, rows, n, sizeof *rows, &cap);
        if (rows == NULL) {
            rc = SQLITE_NOMEM;
            break;
        }
        rows[n++] = (stk_named_row){.name = stk_store_column(stmt, 0, arena),
                                    .version = stk_store_column(stmt, 1, arena),
                                    .digest = stk_store_column(stmt, 2, arena),
                                    .run = stk_store_column(stmt, 3, arena),
                                    .step = stk_store_column(stmt, 4, arena),
                                    .output = stk_store_column(stmt, 5, arena),
                                    .ref = stk_store_column(stmt, 6, arena),
                                    .created_ms = sqlite3_column_int64(stmt, 7)};
        if (rows[n - 1].name == NULL || rows[n - 1].version == NULL || rows[n - 1].digest == NULL) {
            rc = SQLITE_NOMEM;
            break;
        }
    }
    int code = stk_store_sql_check(store, rc, err, "listing artifacts");
    (void)sqlite3_finalize(stmt);
    if (code == 0) {
        *ret_rows = rows;
        *ret_n = n;
    }
    return code;
}

#define NAMED_COLUMNS "SELECT name, version, digest, run, step, output, ref, created_ms FROM named"

int stk_store_list_named(stk_store *store, const char *name, const char *version, uint32_t limit,
                         stk_arena *arena, stk_named_row **ret_rows, uint32_t *ret_n, stk_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc = sqlite3_prepare_v2(store->db,
                                NAMED_COLUMNS " WHERE (?1 IS NULL OR name = ?1)"
                                              " AND (?2 IS NULL OR version = ?2)"
                                              " ORDER BY id DESC LIMIT ?3",
                                -1, &stmt, NULL);
    if (rc != SQLITE_OK) {
        return stk_store_sql_err(store, rc, err, "listing artifacts");
    }
    bind_text(stmt, 1, name);
    bind_text(stmt, 2, version);
    (void)sqlite3_bind_int64(stmt, 3, limit);
    return read_named(store, stmt, arena, ret_rows, ret_n, err);
}

int stk_store_run_named(stk_store *store, const char *run, stk_arena *arena,
                        stk_named_row **ret_rows, uint32_t *ret_n, stk_err *err)
{
    sqlite3_stmt *stmt = NULL;
    int rc =
        sqlite3_prepare_v2(store->db, NAMED_COLUMNS " WHERE run = ?1 ORDER BY id", -1, &stmt, NULL);
    if (rc != SQLITE_OK) {
        return stk_store_sql_err(store, rc, err, "listing artifacts");
    }
    bind_text(stmt, 1, run);
    return read_named(store, stmt, arena, ret_rows, ret_n, err);
}

int stk_store_peak(stk_store *store, const char *pipeline, const char *step, int64_t *ret_bytes,
                   stk_err *err)
{
    sqlite3_stmt *stmt = store->stmts[STK_SQL_PEAK];
    bind_text(stmt, 1, pipeline);
    bind_text(stmt, 2, step);
    int rc = sqlite3_step(stmt);
    if (rc == SQLITE_ROW) {
        bool known = sqlite3_column_type(stmt, 0) == SQLITE_INTEGER;
        *ret_bytes = known ? sqlite3_column_int64(stmt, 0) : -1;
    }
    int code = stk_store_sql_check(store, rc, err, "reading the peak memory of earlier runs");
    (void)sqlite3_reset(stmt);
    return code;
}
