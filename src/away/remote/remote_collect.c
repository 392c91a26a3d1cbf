/* Collecting: what an attempt left in the share comes into its directory here, and the agent's word
 * and the engine's become one outcome. On a worker's thread. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/remote/remote_private.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "sys/file.h"

enum {
    WAIT_MS = 15000, /* for an end.json that ought to be there */
    AGAIN_MS = 250,
    WORD_BYTES = 300 /* of the last line of a log, in a sentence */
};

/* --- files --- */

/* Into the attempt's directory, by rename: who looks meanwhile sees the one or the other. The
 * attempt's own files are node 0's, those of node K are below node-K; ranks count over all nodes.
 */
static int bring_file(stk_share *share, const char *dir, uint32_t node, const stk_remote_file *f,
                      stk_err *err)
{
    char path[PATH_MAX], of_node[24] = "";
    if (node > 0 && strncmp(f->name, "rank-", 5) != 0) {
        (void)snprintf(of_node, sizeof of_node, "node-%u/", node);
    }
    (void)snprintf(path, sizeof path, "%s/%s%s", dir, of_node, f->name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    STK_TRY(stk_store_make_attempt(dir, err));
    if (!stk_file_exists(path)) {
        STK_TRY(stk_file_mkdirs(path, 0755, err));
    }
    *slash = '/';
    if (f->data != NULL) {
        return stk_file_write_atomic(path, f->data, (size_t)f->size, 0644, err);
    }
    return stk_share_get_file(share, f->key, path, err);
}

/* result.json last: it says that the rest is there. */
static int bring_files(stk_share *share, const char *dir, const stk_remote_end *end, stk_err *err)
{
    const stk_remote_file *result = NULL;
    int rc = 0;
    for (uint32_t i = 0; i < end->n_files && rc == 0; i++) {
        if (strcmp(end->files[i].name, "result.json") == 0) {
            result = &end->files[i];
        } else {
            rc = bring_file(share, dir, end->node, &end->files[i], err);
        }
    }
    if (rc < 0 || result == NULL) {
        return rc;
    }
    return bring_file(share, dir, end->node, result, err);
}

/* Of the attempt's own objects, and of the node whose end it is: an end.json is text that anybody
 * with the share's rights has written. */
static int check_end(const char *key, uint32_t node, const stk_remote_end *end, stk_err *err)
{
    size_t n = (size_t)(strrchr(key, '/') - key) + 1;
    for (uint32_t i = 0; i < end->n_files; i++) {
        const stk_remote_file *f = &end->files[i];
        if (f->data == NULL &&
            (strncmp(f->key, key, n) != 0 || strncmp(f->key + n, "files", 5) != 0)) {
            return stk_err_set(err, STK_E_PROTOCOL,
                               "%s: its file '%s' is no object of the attempt: %s", key, f->name,
                               f->key);
        }
    }
    if (end->node != node) {
        return stk_err_set(err, STK_E_PROTOCOL, "%s says that it is of node %u", key, end->node);
    }
    return 0;
}

int stk_remote_bring_end(stk_share *share, const char *key, const char *dir, stk_arena *arena,
                         stk_remote_end *ret, stk_err *err)
{
    const char *number = strrchr(key, '-'); /* end.json, end-K.json */
    uint32_t node =
        number == NULL || strchr(number, '/') != NULL ? 0 : (uint32_t)strtoul(number + 1, NULL, 10);
    STK_BUF_AUTO text = STK_BUF_INIT(REMOTE_OBJECT_BYTES);
    STK_ARENA_AUTO own = arena == NULL ? stk_arena_new(0) : NULL;
    stk_remote_end end;
    if (arena == NULL) {
        arena = own;
    }
    int rc = arena == NULL ? stk_err_nomem(err) : stk_share_get(share, key, &text, err);
    if (rc == 0 && (rc = stk_remote_end_read(text.data, text.len, arena, &end, err)) < 0) {
        (void)stk_err_context(err, "%s", key);
    }
    rc = rc < 0 ? rc : check_end(key, node, &end, err);
    if (rc == 0 && (rc = bring_files(share, dir, &end, err)) == STK_E_NOT_FOUND) {
        rc = STK_E_STORE; /* of an end that is there */
        (void)stk_err_context(err, "%s", key);
        err->code = rc;
    }
    if (rc == 0 && ret != NULL) {
        *ret = end;
    }
    return rc;
}

/* --- the output of all nodes --- */

/* How much of a log is node 0's own: known before anything is put behind it, so that this can be
 * done again from there. */
static int own_bytes(const char *dir, const char *name, off_t size, off_t *ret, stk_err *err)
{
    char path[PATH_MAX], text[32];
    STK_TEXT_AUTO known = NULL;
    size_t len = 0;
    (void)snprintf(path, sizeof path, "%s/.own-%s", dir, name);
    int rc = stk_file_read(path, sizeof text, &known, &len, err);
    if (rc == 0) {
        long long own = strtoll(known, NULL, 10);
        *ret = own >= 0 && own < size ? (off_t)own : size;
    } else if (rc == STK_E_NOT_FOUND) {
        *ret = size;
        int n = snprintf(text, sizeof text, "%lld\n", (long long)size);
        rc = stk_file_write_atomic(path, text, (size_t)n, 0644, err);
    }
    return rc;
}

/* 0 or an errno. */
static int append(int to, const char *path)
{
    char part[64 << 10], last = '\n';
    STK_FD_AUTO from = stk_file_open_regular(path, O_RDONLY, 0);
    if (from < 0) {
        return errno == ENOENT ? 0 : errno;
    }
    off_t size = lseek(to, 0, SEEK_END);
    bool is_mid_line = size > 0 && pread(to, &last, 1, size - 1) == 1 && last != '\n';
    if (is_mid_line && stk_file_write_all(to, "\n", 1) < 0) {
        return errno;
    }
    for (ssize_t n = 1; n != 0;) {
        n = read(from, part, sizeof part);
        if ((n < 0 && errno != EINTR) || (n > 0 && stk_file_write_all(to, part, (size_t)n) < 0)) {
            return errno;
        }
    }
    return 0;
}

static bool has_log(const char *dir, uint32_t last, const char *name)
{
    char path[PATH_MAX];
    bool any = false;
    for (uint32_t node = 1; node <= last && !any; node++) {
        (void)snprintf(path, sizeof path, "%s/node-%u/%s", dir, node, name);
        any = stk_file_exists(path);
    }
    return any;
}

/* What node K wrote stands behind node 0's: its lines have their ranks' numbers, as at home. */
static int add_logs(const char *dir, uint32_t last, const char *name, stk_err *err)
{
    char path[PATH_MAX];
    struct stat st;
    off_t own = 0;
    if (!has_log(dir, last, name)) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    STK_FD_AUTO to = stk_file_open_regular(path, O_RDWR | O_APPEND | O_CREAT, 0644);
    int sys = to < 0 || fstat(to, &st) < 0 ? errno : 0;
    int rc = sys == 0 ? own_bytes(dir, name, st.st_size, &own, err) : 0;
    if (rc == 0 && sys == 0) {
        sys = ftruncate(to, own) < 0 ? errno : 0;
    }
    for (uint32_t node = 1; rc == 0 && sys == 0 && node <= last; node++) {
        (void)snprintf(path, sizeof path, "%s/node-%u/%s", dir, node, name);
        sys = append(to, path);
    }
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "writing the nodes' %s in '%s'", name, dir);
    }
    return rc;
}

int stk_remote_add_nodes(const char *dir, uint32_t last, stk_err *err)
{
    STK_TRY(add_logs(dir, last, "stdout.log", err));
    return add_logs(dir, last, "stderr.log", err);
}

/* --- what it was granted, and its checkpoints --- */

/* Of all attempts of the task; those of this one are newer than what it began with. */
static int count_checkpoints(remote_worker *w, remote_task *t, uint32_t *ret_n, bool *ret_saved,
                             stk_err *err)
{
    static const stk_json_limits limits = {1 << 20, 1 << 16, 8};
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json doc;
    const char *key = stk_arena_printf(t->arena, "%.*s/checkpoints.json",
                                       (int)(strrchr(t->key, '/') - t->key), t->key);
    int rc = key == NULL || arena == NULL ? stk_err_nomem(err)
                                          : stk_share_get(w->b->share, key, &text, err);
    rc = rc < 0 ? rc : stk_json_parse(text.data, text.len, key, &limits, arena, &doc, err);
    for (uint32_t i = 0; rc == 0 && doc.kind == STK_JSON_MAP && i < doc.n; i++) {
        int64_t attempt = 0;
        (void)stk_json_int(stk_json_get(stk_json_value(&doc, i), "attempt"), &attempt);
        *ret_saved = *ret_saved || attempt == t->order.attempt;
        (*ret_n)++;
    }
    return rc == STK_E_NOT_FOUND ? 0 : rc;
}

/* granted.json: the agent's word, and the share's on checkpoints. */
static int write_granted(remote_worker *w, remote_task *t, const char *granted, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    uint32_t n = 0;
    bool saved = false;
    int rc = count_checkpoints(w, t, &n, &saved, err);
    t->has_checkpoints = n > 0;
    stk_buf_add(&text, stk_text_or(granted, "{"), granted != NULL ? strlen(granted) - 1 : 1);
    stk_json_put_key(&text, "checkpoints");
    stk_buf_printf(&text, "{\"n\":%u,\"saved\":%s}}", n, saved ? "true" : "false");
    stk_remote_file f = {.name = "granted.json", .data = text.data, .size = (int64_t)text.len};
    STK_TRY(rc);
    STK_TRY(stk_buf_check(&text, err));
    return bring_file(w->b->share, t->order.dir, 0, &f, err);
}

/* --- the outcome --- */

/* The last line that the program wrote, as far as it came here. */
static void last_words(const remote_task *t, char *ret, size_t size)
{
    char path[PATH_MAX], tail[WORD_BYTES + 1];
    (void)snprintf(path, sizeof path, "%s/stdout.log", t->order.dir);
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    struct stat st;
    ret[0] = '\0';
    if (fd < 0 || fstat(fd, &st) < 0) {
        return;
    }
    off_t from = st.st_size > WORD_BYTES ? st.st_size - WORD_BYTES : 0;
    ssize_t n = pread(fd, tail, WORD_BYTES, from);
    while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == ' ')) {
        n--;
    }
    if (n > 0) {
        tail[n] = '\0';
        const char *line = strrchr(tail, '\n');
        (void)snprintf(ret, size, "; its last line: %s", line != NULL ? line + 1 : tail);
    }
}

static void fail(stk_outcome *o, stk_failure failure, const char *text)
{
    o->ok = false;
    o->failure = failure;
    if (text != NULL) { /* NULL: as it is */
        (void)snprintf(o->text, sizeof o->text, "%s", text);
    }
}

/* As at home: what it used of what it had, and the way out. */
static void fail_oom(const remote_task *t, stk_outcome *o)
{
    char text[sizeof o->text], used[32], had[32];
    int64_t limit = t->job.resources->memory_bytes;
    const char *said = t->end.text;
    int n = snprintf(text, sizeof text, "host OOM");
    if (o->peak_memory_bytes > 0 && limit > 0) {
        n = snprintf(text, sizeof text, "host OOM: used %s of its %s",
                     stk_units_format_memory(o->peak_memory_bytes, used, sizeof used),
                     stk_units_format_memory(limit, had, sizeof had));
    }
    (void)snprintf(text + n, sizeof text - (size_t)n, "%s%s%s%s", *said != '\0' ? " (" : "", said,
                   *said != '\0' ? ")" : "", stk_runner_way_out(STK_FAIL_HOST_OOM));
    fail(o, STK_FAIL_HOST_OOM, text);
}

/* Only the driver's word: there is no end.json. */
static void by_driver(const remote_task *t, bool has_begun, stk_outcome *o)
{
    const stk_remote_report *r = &t->end;
    char text[1600], words[WORD_BYTES + 32];
    const char *said = r->text[0] != '\0' ? r->text : NULL;
    *o = (stk_outcome){.exit_status = r->exit_status,
                       .signal = r->signal,
                       .cpu_us = -1,
                       .peak_memory_bytes = -1,
                       .read_bytes = -1,
                       .write_bytes = -1};
    bool is_out_of_reach = t->only_to_end && r->failure == STK_FAIL_START;
    if (t->stop_wanted && !is_out_of_reach) {
        fail(o, t->stop_why, stk_text_or(said, "ended as it was asked to"));
    } else if (r->oom) {
        fail_oom(t, o);
    } else if (r->state == STK_REMOTE_FAILED) {
        fail(o, r->failure != STK_FAIL_NONE ? r->failure : STK_FAIL_LOST,
             stk_text_or(said, "it is gone, and nobody says why"));
        o->is_hopeless = r->is_hopeless;
    } else if (r->exit_status == STK_AGENT_CLAIMED) {
        (void)snprintf(text, sizeof text,
                       "another pod had begun this attempt, and what became of it isn't known%s%s",
                       said != NULL ? "; " : "", stk_text_or(said, ""));
        fail(o, STK_FAIL_LOST, text);
    } else if (r->signal != 0 || r->exit_status == 128 + 9 || r->exit_status == 128 + 15) {
        (void)snprintf(text, sizeof text, "its pod was killed before it could say how it ended%s%s",
                       said != NULL ? "; " : "", stk_text_or(said, ""));
        fail(o, STK_FAIL_LOST, text);
    } else {
        last_words(t, words, sizeof words);
        (void)snprintf(text, sizeof text,
                       "it ended with exit status %d and left no end.json in the share%s%s%s",
                       r->exit_status, said != NULL ? "; " : "", stk_text_or(said, ""), words);
        bool is_lost = has_begun || r->exit_status == STK_AGENT_NO_SHARE || r->exit_status == 0;
        fail(o, is_lost ? STK_FAIL_LOST : STK_FAIL_START, text);
    }
}

/* What the agent measured stands; the engine knows better why the container was ended. */
static void merge(const remote_task *t, stk_outcome *o)
{
    const stk_remote_report *r = &t->end;
    bool ended = o->failure == STK_FAIL_SIGNAL || o->failure == STK_FAIL_EXIT ||
                 o->failure == STK_FAIL_PREEMPTED || o->failure == STK_FAIL_LOST;
    if (o->ok || !ended) {
        return;
    }
    if (t->stop_wanted) {
        fail(o, t->stop_why, NULL);
    } else if (r->oom && o->failure != STK_FAIL_PREEMPTED) {
        fail_oom(t, o);
    } else if (r->state == STK_REMOTE_FAILED && r->failure != STK_FAIL_NONE &&
               r->failure != STK_FAIL_START) {
        fail(o, r->failure, r->text[0] != '\0' ? r->text : NULL);
    }
}

/* --- all of it --- */

static int take_end(remote_worker *w, remote_task *t, uint32_t node, stk_outcome *ret, stk_err *err)
{
    char name[32] = "end.json";
    stk_remote_end end;
    if (node > 0) {
        (void)snprintf(name, sizeof name, "end-%u.json", node);
    }
    const char *key = stk_remote_object(t, name);
    STK_TRY(stk_err_if_null(key, err));
    STK_TRY(stk_remote_bring_end(w->b->share, key, t->order.dir, t->arena, &end, err));
    if (node == 0) {
        STK_TRY(write_granted(w, t, end.granted, err));
        *ret = end.outcome;
    }
    return 0;
}

/* We have put it there ourselves: a folder without it is another one, of a file system that isn't
 * mounted now. */
static int check_share(remote_worker *w, remote_task *t, stk_err *err)
{
    STK_BUF_AUTO order = STK_BUF_INIT(1 << 10);
    const char *key = stk_remote_object(t, "job.json");
    int rc =
        key == NULL ? stk_err_nomem(err) : stk_share_get_range(w->b->share, key, 0, &order, err);
    if (rc != STK_E_NOT_FOUND || t->job.attach) {
        return rc == STK_E_NOT_FOUND ? 0 : rc;
    }
    return stk_err_set(err, STK_E_ENV, "store '%s' hasn't got %s any more; is it mounted?",
                       stk_share_url(w->b->share), key);
}

/* Its agent was there, so what is missing is what it didn't come to say. */
static bool has_begun(remote_worker *w, remote_task *t)
{
    STK_BUF_AUTO claim = STK_BUF_INIT(64 << 10);
    const char *key = stk_remote_object(t, "claim");
    return key != NULL && stk_share_get(w->b->share, key, &claim, NULL) == 0;
}

int stk_remote_collect(remote_worker *w, remote_task *t, stk_outcome *ret, int64_t *ret_again_ms,
                       stk_err *err)
{
    STK_FAILPOINT("remote.collect.before");
    bool by_itself = t->end.state == STK_REMOTE_ENDED && t->end.signal == 0 && !t->end.oom &&
                     t->end.exit_status != 128 + 9 && t->end.exit_status != STK_AGENT_CLAIMED;
    int rc = take_end(w, t, 0, ret, err);
    if (rc == STK_E_NOT_FOUND && (rc = check_share(w, t, err)) == 0) {
        int64_t waited = (int64_t)t->n_looks++ * AGAIN_MS;
        int64_t most = WAIT_MS / 5;
        if (!by_itself) {
            most = AGAIN_MS * 4;
        } else if (t->end.exit_status == 0) {
            most = WAIT_MS;
        }
        if (waited < most) {
            *ret_again_ms = AGAIN_MS;
            return STK_E_BUSY;
        }
        by_driver(t, has_begun(w, t), ret);
        return write_granted(w, t, NULL, err);
    }
    for (uint32_t i = 1; i < t->order.nodes && rc == 0; i++) {
        stk_err ignored = {0}; /* a node that was lost left none */
        rc = take_end(w, t, i, ret, &ignored);
        if (rc == STK_E_NOT_FOUND) {
            rc = 0;
        } else if (rc < 0) {
            *err = ignored;
        }
    }
    if (rc == 0 && t->order.nodes > 1) {
        rc = stk_remote_add_nodes(t->order.dir, t->order.nodes - 1, err);
    }
    if (rc == 0) {
        merge(t, ret);
    }
    STK_FAILPOINT("remote.collect.after");
    return rc;
}
