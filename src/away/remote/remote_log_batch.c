/* Batches of events and the mark, as text. */
#include <stdio.h>
#include <string.h>

#include "away/remote/remote_log_private.h"
#include "base/limits.h"
#include "base/text.h"
#include "sys/file.h"

static const stk_json_limits line_limits = {STK_LIMIT_RESULT_BYTES * 4, STK_LIMIT_RESULT_NODES,
                                            STK_LIMIT_DEPTH};

/* --- the mark --- */

static char *mark_path(stk_store *store, const char *run)
{
    char *path = NULL;
    return asprintf(&path, "%s/runs/%s/share.json", stk_store_path(store), run) < 0 ? NULL : path;
}

int stk_remote_mark_read(stk_store *store, const char *run, remote_mark *ret, stk_err *err)
{
    STK_TEXT_AUTO path = mark_path(store, run);
    STK_TEXT_AUTO text = NULL;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    size_t len = 0;
    stk_json doc;
    *ret = (remote_mark){.n = -1};
    STK_TRY(stk_err_if_null(path, err));
    int rc = stk_file_read(path, 64 << 10, &text, &len, err);
    if (rc == STK_E_NOT_FOUND) {
        return 0;
    }
    STK_TRY(rc);
    STK_TRY(stk_json_parse(text, len, path, &line_limits, arena, &doc, err));
    ret->n = stk_json_get_whole(&doc, "n", -1);
    ret->seq = stk_json_get_whole(&doc, "seq", 0);
    ret->epoch = stk_json_get_whole(&doc, "epoch", 0);
    (void)snprintf(ret->owner, sizeof ret->owner, "%s",
                   stk_text_or(stk_json_get_text(&doc, "owner"), ""));
    return 0;
}

int stk_remote_mark_write(stk_store *store, const char *run, const remote_mark *mark, stk_err *err)
{
    STK_TEXT_AUTO path = mark_path(store, run);
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 10);
    stk_json_open(&text, NULL, '{');
    stk_json_put_whole(&text, "n", mark->n);
    stk_json_put_whole(&text, "seq", mark->seq);
    stk_json_put_whole(&text, "epoch", mark->epoch);
    stk_json_put_text(&text, "owner", mark->owner);
    stk_json_close(&text, '}');
    stk_buf_char(&text, '\n');
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_buf_check(&text, err));
    return stk_file_write_atomic(path, text.data, text.len, 0644, err);
}

/* --- batches --- */

void stk_remote_log_key(const char *run, int64_t n, char ret[200])
{
    (void)snprintf(ret, 200, "runs/%s/log/%012lld.jsonl", run, (long long)n);
}

static void put_if_any(stk_buf *buf, const char *key, const char *json)
{
    if (json != NULL) {
        stk_json_put_raw(buf, key, json);
    }
}

/* Adds the cache entry to the event's line; nothing if the store has lost it. */
static int put_cache(stk_buf *buf, stk_store *store, const stk_event_row *row, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json doc;
    stk_cache_row entry;
    bool may = row->kind == STK_EV_TASK_SUCCEEDED || row->kind == STK_EV_TASK_CACHED;
    if (!may || row->data == NULL) {
        return 0;
    }
    STK_TRY(stk_json_parse(row->data, strlen(row->data), "event", &line_limits, arena, &doc, err));
    const char *key = stk_json_get_text(&doc, "key");
    if (key == NULL) {
        return 0;
    }
    int rc = stk_store_cache_read(store, key, arena, &entry, err);
    if (rc < 0) {
        return stk_err_but(rc, STK_E_NOT_FOUND);
    }
    stk_json_open(buf, "cache", '{');
    stk_json_put_text(buf, "key", key);
    stk_json_put_text(buf, "pipeline", entry.pipeline);
    stk_json_put_text(buf, "step", entry.step);
    stk_json_put_text(buf, "run", entry.run);
    stk_json_put_int(buf, "task", entry.task);
    stk_json_put_int(buf, "created_ms", entry.created_ms);
    put_if_any(buf, "parts", entry.parts);
    put_if_any(buf, "outputs", entry.outputs);
    put_if_any(buf, "metadata", entry.metadata);
    put_if_any(buf, "seen", entry.seen);
    stk_json_close(buf, '}');
    return 0;
}

int stk_remote_batch_put_event(stk_buf *buf, stk_store *store, const stk_event_row *row,
                               stk_err *err)
{
    stk_json_open(buf, NULL, '{');
    stk_json_put_int(buf, "seq", row->seq);
    stk_json_put_int(buf, "at_ms", row->time_ms);
    stk_json_put_text(buf, "event", stk_event_word(row->kind));
    if (row->task != UINT32_MAX) {
        stk_json_put_int(buf, "task", row->task);
        stk_json_put_int(buf, "attempt", row->attempt);
    }
    put_if_any(buf, "data", row->data);
    STK_TRY(put_cache(buf, store, row, err));
    stk_json_close(buf, '}');
    stk_buf_char(buf, '\n');
    return 0;
}

int stk_remote_batch_read(stk_share *share, const char *run, int64_t n, stk_arena *arena,
                          remote_batch *ret, const char **ret_lines, stk_err *err)
{
    char key[200];
    stk_json head;
    STK_BUF_AUTO text = STK_BUF_INIT(REMOTE_BATCH_BYTES);
    stk_remote_log_key(run, n, key);
    STK_TRY(stk_share_get(share, key, &text, err));
    const char *copy = stk_arena_dup(arena, stk_text_or(text.data, ""));
    STK_TRY(stk_err_if_null(copy, err));
    size_t n_head = strcspn(copy, "\n");
    STK_TRY(stk_json_parse(copy, n_head, key, &line_limits, arena, &head, err));
    *ret = (remote_batch){.owner = stk_json_get_text(&head, "owner"),
                          .host = stk_json_get_text(&head, "host"),
                          .user = stk_json_get_text(&head, "user"),
                          .epoch = stk_json_get_whole(&head, "epoch", 0)};
    if (ret->owner == NULL || strlen(ret->owner) > REMOTE_OWNER || copy[n_head] == '\0') {
        return stk_err_set(err, STK_E_PROTOCOL, "%s has no owner in its first line", key);
    }
    *ret_lines = copy + n_head + 1;
    return 0;
}

/* The number of a batch's last event; `before` for an empty batch. */
static int64_t last_seq(const char *lines, int64_t before, stk_arena *arena)
{
    size_t n = strlen(lines);
    while (n > 0 && lines[n - 1] == '\n') {
        n--;
    }
    const char *end = memrchr(lines, '\n', n);
    const char *start = end == NULL ? lines : end + 1;
    const stk_json *event = stk_json_readn(arena, start, (size_t)(lines + n - start));
    return stk_json_get_whole(event, "seq", before);
}

/* Our own engine commits every event here before it sends the batch. */
int stk_remote_log_skip_own(stk_share *share, stk_store *store, const char *run, remote_mark *mark,
                            stk_err *err)
{
    bool moved = false;
    int rc = 0;
    while (mark->owner[0] != '\0') {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        remote_batch batch;
        const char *lines = NULL;
        rc = stk_remote_batch_read(share, run, mark->n + 1, arena, &batch, &lines, err);
        if (rc < 0 || strcmp(batch.owner, mark->owner) != 0) {
            break;
        }
        mark->seq = last_seq(lines, mark->seq, arena);
        mark->n++;
        mark->epoch = batch.epoch;
        moved = true;
    }
    if (rc == STK_E_NOT_FOUND) {
        rc = 0;
    }
    if (rc == 0 && moved) {
        return stk_remote_mark_write(store, run, mark, err);
    }
    return rc;
}
