/* Collecting, on a worker's thread: fetches the attempt's results from the share to its directory
 * here, and merges the reports of agent and engine into one outcome. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/remote/remote_live.h"
#include "away/remote/remote_private.h"
#include "base/failpoint.h"
#include "base/json.h"
#include "base/text.h"
#include "base/units.h"
#include "store/metrics/metrics.h"
#include "sys/file.h"

enum {
    WAIT_MS = 15000, /* wait for an end.json that should exist */
    AGAIN_MS = 250,
    WORD_BYTES = 300 /* of a log's last line in a sentence */
};

/* --- files --- */

/* A file of at most so many bytes, whatever the end says of its size. STK_E_LIMIT: it has more. */
static int fetch_small(stk_share *share, const char *key, const char *path, int64_t most,
                       stk_err *err)
{
    STK_BUF_AUTO data = STK_BUF_INIT((size_t)most);
    STK_TRY(stk_share_get(share, key, &data, err));
    return stk_file_write_atomic(path, stk_text_or(data.data, ""), data.len, 0644, err);
}

/* Fetches a file to the attempt's directory and renames it there, so that readers see the old or
 * the new file. Node 0's files are the attempt's own, those of node K are below node-K; ranks count
 * over all nodes. */
static int fetch_file(stk_share *share, const char *dir, uint32_t node, const stk_remote_file *f,
                      int64_t most, stk_err *err)
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
    if (most < INT64_MAX) {
        return fetch_small(share, f->key, path, most, err);
    }
    return stk_share_get_file(share, f->key, path, err);
}

static bool is_metrics(const char *name)
{
    const char *slash = strrchr(name, '/');
    return strcmp(slash == NULL ? name : slash + 1, STK_METRICS_FILE) == 0;
}

static int fetch_or_leave(stk_share *share, const char *dir, uint32_t node,
                          const stk_remote_file *f, int64_t most, bool *left, stk_err *err)
{
    if (is_metrics(f->name)) {
        most = MAX(most, STK_LIVE_BYTES);
    }
    bool is_large = f->data == NULL && f->size > most;
    int rc = is_large ? STK_E_LIMIT : fetch_file(share, dir, node, f, most, err);
    *left = *left || rc == STK_E_LIMIT;
    return stk_err_but(rc, STK_E_LIMIT);
}

/* result.json comes last, because it means that the other files are there. */
static int fetch_files(stk_share *share, const char *dir, const stk_remote_end *end, int64_t most,
                       bool *left, stk_err *err)
{
    const stk_remote_file *result = NULL;
    for (uint32_t i = 0; i < end->n_files; i++) {
        const stk_remote_file *f = &end->files[i];
        if (strcmp(f->name, "result.json") == 0) {
            result = f;
        } else {
            STK_TRY(fetch_or_leave(share, dir, end->node, f, most, left, err));
        }
    }
    if (result == NULL) {
        return 0;
    }
    return fetch_or_leave(share, dir, end->node, result, most, left, err);
}

/* Checks that the end names only objects of its attempt and node, because anybody who can write to
 * the share can write an end.json. */
static int check_end(const char *key, uint32_t node, const stk_remote_end *end, stk_err *err)
{
    size_t n = (size_t)(strrchr(key, '/') - key) + 1;
    for (uint32_t i = 0; i < end->n_files; i++) {
        const stk_remote_file *f = &end->files[i];
        if (f->data == NULL &&
            (strncmp(f->key, key, n) != 0 || strncmp(f->key + n, "files", 5) != 0)) {
            return stk_err_set(err, STK_E_PROTOCOL,
                               "%s: its file '%s' isn't an object of the attempt: %s", key, f->name,
                               f->key);
        }
    }
    if (end->node != node) {
        return stk_err_set(err, STK_E_PROTOCOL, "%s belongs to node %u", key, end->node);
    }
    return 0;
}

int stk_remote_fetch_end(stk_share *share, const char *key, const char *dir, int64_t most,
                         stk_arena *arena, stk_remote_end *ret, bool *ret_left, stk_err *err)
{
    bool left = false;
    const char *number = stk_text_behind(key, '/'); /* end.json, end-K.json */
    uint32_t node = 0;
    STK_BUF_AUTO text = STK_BUF_INIT(REMOTE_OBJECT_BYTES);
    stk_remote_end end;
    if (strncmp(number, "end-", 4) == 0) {
        node = (uint32_t)strtoul(number + 4, NULL, 10);
    }
    STK_TRY(stk_share_get(share, key, &text, err));
    int rc = stk_remote_end_read(text.data, text.len, arena, &end, err);
    if (rc < 0) {
        return stk_err_context(err, "%s", key);
    }
    STK_TRY(check_end(key, node, &end, err));
    rc = fetch_files(share, dir, &end, most, ret_left == NULL ? &left : ret_left, err);
    if (rc == STK_E_NOT_FOUND) { /* the end exists */
        (void)stk_err_context(err, "%s", key);
        err->code = rc = STK_E_STORE;
    }
    STK_TRY(rc);
    if (ret != NULL) {
        *ret = end;
    }
    return 0;
}

/* --- the output of all nodes --- */

/* Records the size of node 0's own log before appending, so that appending can be repeated. */
static int own_bytes(const char *dir, const char *name, off_t size, off_t *ret, stk_err *err)
{
    char path[PATH_MAX], text[32];
    STK_TEXT_AUTO known = NULL;
    size_t len = 0;
    (void)snprintf(path, sizeof path, "%s/.own-%s", dir, name);
    int rc = stk_file_read(path, sizeof text, &known, &len, err);
    *ret = size;
    if (rc == STK_E_NOT_FOUND) {
        int n = snprintf(text, sizeof text, "%lld\n", (long long)size);
        return stk_file_write_atomic(path, text, (size_t)n, 0644, err);
    }
    STK_TRY(rc);
    long long own = strtoll(known, NULL, 10);
    if (own >= 0 && own < size) {
        *ret = (off_t)own;
    }
    return 0;
}

/* Returns 0 or an errno. */
static int append_log(int to, const char *path)
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

/* Appends the log of node K to node 0's; its lines have their ranks' numbers, as on this machine.
 */
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
    int sys = 0;
    if (to < 0 || fstat(to, &st) < 0) {
        sys = errno;
    } else {
        STK_TRY(own_bytes(dir, name, st.st_size, &own, err));
        sys = ftruncate(to, own) < 0 ? errno : 0;
    }
    for (uint32_t node = 1; sys == 0 && node <= last; node++) {
        (void)snprintf(path, sizeof path, "%s/node-%u/%s", dir, node, name);
        sys = append_log(to, path);
    }
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "writing the nodes' %s in '%s'", name, dir);
    }
    return 0;
}

int stk_remote_add_nodes(const char *dir, uint32_t last, stk_err *err)
{
    STK_TRY(add_logs(dir, last, "stdout.log", err));
    return add_logs(dir, last, "stderr.log", err);
}

/* --- grant and checkpoints --- */

/* Counts the checkpoints of all attempts of the task; this attempt's are newer than its first one.
 */
static int count_checkpoints(remote_worker *w, remote_task *t, uint32_t *ret_n, bool *ret_saved,
                             stk_err *err)
{
    static const stk_json_limits limits = {1 << 20, 1 << 16, 8};
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json doc;
    const char *key = stk_arena_printf(t->arena, "%.*s/checkpoints.json",
                                       (int)(strrchr(t->key, '/') - t->key), t->key);
    int rc = stk_share_get(w->b->share, key, &text, err);
    if (rc == STK_E_NOT_FOUND) {
        return 0;
    }
    STK_TRY(rc);
    STK_TRY(stk_json_parse(text.data, text.len, key, &limits, arena, &doc, err));
    *ret_n = stk_json_n_members(&doc);
    for (uint32_t i = 0; i < *ret_n && !*ret_saved; i++) {
        *ret_saved = stk_json_get_whole(stk_json_value(&doc, i), "attempt", 0) == t->order.attempt;
    }
    return 0;
}

/* Writes granted.json: the agent's report, and the checkpoints in the share. */
static int write_granted(remote_worker *w, remote_task *t, const char *granted, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(1 << 20);
    uint32_t n = 0;
    bool saved = false;
    int rc = count_checkpoints(w, t, &n, &saved, err);
    t->has_checkpoints = n > 0;
    STK_TRY(rc);
    stk_json_open(&text, NULL, '{');
    if (granted != NULL) { /* its members */
        text.len = 0;
        stk_buf_add(&text, granted, strlen(granted) - 1);
    }
    stk_json_open(&text, "checkpoints", '{');
    stk_json_put_int(&text, "n", n);
    stk_json_put_bool(&text, "saved", saved);
    stk_json_close(&text, '}');
    stk_json_close(&text, '}');
    STK_TRY(stk_buf_check(&text, err));
    stk_remote_file f = {.name = "granted.json", .data = text.data, .size = (int64_t)text.len};
    return fetch_file(w->b->share, t->order.dir, 0, &f, INT64_MAX, err);
}

/* --- the outcome --- */

/* Finds the last line of the program's output that arrived here. */
static void find_last_line(const remote_task *t, char *ret, size_t size)
{
    char path[PATH_MAX], tail[WORD_BYTES + 1];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/stdout.log", t->order.dir);
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    if (fd < 0 || fstat(fd, &st) < 0) {
        return;
    }
    ssize_t n = pread(fd, tail, WORD_BYTES, MAX(st.st_size - WORD_BYTES, 0));
    while (n > 0 && (tail[n - 1] == '\n' || tail[n - 1] == ' ')) {
        n--;
    }
    if (n > 0) {
        tail[n] = '\0';
        (void)snprintf(ret, size, "; its last line: %s", stk_text_behind(tail, '\n'));
    }
}

static void set_failure(stk_outcome *o, stk_failure failure, const char *text)
{
    o->ok = false;
    o->failure = failure;
    if (text != NULL) { /* NULL: keeps the text */
        (void)snprintf(o->text, sizeof o->text, "%s", text);
    }
}

/* Writes the same sentence as on this machine: its use, its limit and a remedy. */
static void set_oom(const remote_task *t, stk_outcome *o)
{
    char used[32], had[32];
    int64_t limit = t->job.resources->memory_bytes;
    STK_BUF_AUTO text = STK_BUF_INIT(4096);
    stk_buf_text(&text, "host OOM");
    if (o->peak_memory_bytes > 0 && limit > 0) {
        stk_buf_printf(&text, ": used %s of its %s",
                       stk_units_format_memory(o->peak_memory_bytes, used, sizeof used),
                       stk_units_format_memory(limit, had, sizeof had));
    }
    if (t->end.text[0] != '\0') {
        stk_buf_printf(&text, " (%s)", t->end.text);
    }
    stk_buf_text(&text, stk_runner_way_out(STK_FAIL_HOST_OOM));
    set_failure(o, STK_FAIL_HOST_OOM, text.data);
}

/* Without an end.json: takes the driver's report. */
static void take_driver_report(const remote_task *t, bool has_begun, stk_outcome *o)
{
    const stk_remote_report *r = &t->end;
    const char *text = stk_text_if_any(r->text);
    char line[WORD_BYTES + 32] = "";
    STK_BUF_AUTO sentence = STK_BUF_INIT(4096);
    stk_failure failure = STK_FAIL_LOST;
    bool is_out_of_reach = t->only_to_end && r->failure == STK_FAIL_START;
    *o = STK_OUTCOME_UNKNOWN;
    o->exit_status = r->exit_status;
    o->signal = r->signal;
    if (t->stop_wanted && !is_out_of_reach) {
        set_failure(o, t->stop_why, stk_text_or(text, "ended on request"));
        return;
    }
    if (r->oom) {
        set_oom(t, o);
        return;
    }
    if (r->state == STK_REMOTE_FAILED) {
        if (r->failure != STK_FAIL_NONE) {
            failure = r->failure;
        }
        set_failure(o, failure, stk_text_or(text, "it disappeared without a reason"));
        o->is_hopeless = r->is_hopeless;
        return;
    }
    if (r->exit_status == STK_AGENT_CLAIMED) {
        stk_buf_text(&sentence, "another pod started this attempt, and its end is unknown");
    } else if (r->signal != 0 || r->exit_status == 128 + 9 || r->exit_status == 128 + 15) {
        stk_buf_text(&sentence, "its pod or job was killed before it could report its end");
    } else {
        stk_buf_printf(&sentence,
                       "it ended with exit status %d and without an end.json in the share",
                       r->exit_status);
        find_last_line(t, line, sizeof line);
        if (!has_begun && r->exit_status != STK_AGENT_NO_SHARE && r->exit_status != 0) {
            failure = STK_FAIL_START;
        }
    }
    if (text != NULL) {
        stk_buf_printf(&sentence, "; %s", text);
    }
    stk_buf_text(&sentence, line);
    set_failure(o, failure, sentence.data);
}

/* Keeps the agent's measurements; the engine knows better why the container was ended. */
static void merge_outcomes(const remote_task *t, stk_outcome *o)
{
    const stk_remote_report *r = &t->end;
    bool ended = o->failure == STK_FAIL_SIGNAL || o->failure == STK_FAIL_EXIT ||
                 o->failure == STK_FAIL_PREEMPTED || o->failure == STK_FAIL_LOST;
    if (o->ok || !ended) {
        return;
    }
    if (t->stop_wanted) {
        set_failure(o, t->stop_why, NULL);
    } else if (r->oom && o->failure != STK_FAIL_PREEMPTED) {
        set_oom(t, o);
    } else if (r->state == STK_REMOTE_FAILED && r->failure != STK_FAIL_NONE &&
               r->failure != STK_FAIL_START) {
        set_failure(o, r->failure, stk_text_if_any(r->text));
    }
}

/* --- the whole --- */

static int take_end(remote_worker *w, remote_task *t, uint32_t node, stk_outcome *ret, stk_err *err)
{
    char name[32] = "end.json";
    stk_remote_end end;
    if (node > 0) {
        (void)snprintf(name, sizeof name, "end-%u.json", node);
    }
    STK_TRY(stk_remote_fetch_end(w->b->share, stk_remote_object(t, name), t->order.dir, INT64_MAX,
                                 t->arena, &end, NULL, err));
    t->has_live = t->has_live || end.has_live;
    if (node == 0) {
        STK_TRY(write_granted(w, t, end.granted, err));
        *ret = end.outcome;
    }
    return 0;
}

/* Checks for an object that we wrote: without it the folder is another one, because its file system
 * isn't mounted now. */
static int check_share(remote_worker *w, remote_task *t, stk_err *err)
{
    STK_BUF_AUTO order = STK_BUF_INIT(1 << 10);
    const char *key = stk_remote_object(t, "job.json");
    int rc = stk_share_get_range(w->b->share, key, 0, &order, err);
    if (rc != STK_E_NOT_FOUND || t->job.attach) {
        return stk_err_but(rc, STK_E_NOT_FOUND);
    }
    return stk_err_set(err, STK_E_ENV, "store '%s' no longer has %s; is it mounted?",
                       stk_share_url(w->b->share), key);
}

/* True if an agent claimed the attempt, so a missing end means that the agent didn't finish. */
static bool has_claim(remote_worker *w, remote_task *t)
{
    STK_BUF_AUTO claim = STK_BUF_INIT(64 << 10);
    return stk_share_get(w->b->share, stk_remote_object(t, "claim"), &claim, NULL) == 0;
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
        bool has_begun = has_claim(w, t);
        stk_live_task live = {.key = t->key, .dir = t->order.dir};
        if (has_begun) { /* what it sent is all that there is of it */
            (void)stk_live_fetch(w->b->share, &live, 1, NULL);
        }
        t->has_live = t->has_live || live.has_any;
        take_driver_report(t, has_begun, ret);
        return write_granted(w, t, NULL, err);
    }
    STK_TRY(rc);
    for (uint32_t i = 1; i < t->order.nodes; i++) {
        rc = take_end(w, t, i, ret, err);
        if (rc < 0 && rc != STK_E_NOT_FOUND) { /* a lost node has none */
            return rc;
        }
    }
    if (t->order.nodes > 1) {
        STK_TRY(stk_remote_add_nodes(t->order.dir, t->order.nodes - 1, err));
    }
    merge_outcomes(t, ret);
    STK_FAILPOINT("remote.collect.after");
    return 0;
}
