/* Reports on a gang: the sentence, gang.json, and result.json for the engine. */
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <sys/wait.h>

#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "host/launch/launch_gang.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"
#include "host/launch/launch_told.h"
#include "host/runner/runner.h"
#include "sys/clock.h"
#include "sys/file.h"

enum { WAYS = 4 /* different failures that a sentence names */ };
enum { LAST_LINES = 10, WORDS = 240, SHOWN_BYTES = 64 << 10 };

/* --- the end of a program's output --- */

static size_t line_length(const char *text)
{
    size_t n = strcspn(text, "\n");
    return n > 0 && text[n - 1] == '\r' ? n - 1 : n;
}

static const char *last_of(const char *text, const char *word)
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, word)) != NULL; at++) {
        found = at;
    }
    return found;
}

const char *stk_launch_traceback(const char *text, size_t *ret_len, const char **ret_last,
                                 size_t *ret_last_len)
{
    const char *fatal = last_of(text, "Fatal Python error: ");
    const char *begin = last_of(text, "Traceback (most recent call last):");
    if (fatal != NULL && (begin == NULL || begin < fatal)) {
        *ret_last = fatal;
        *ret_last_len = line_length(fatal);
        *ret_len = strlen(fatal);
        return fatal;
    }
    if (begin == NULL) {
        return NULL;
    }
    /* A logger may indent the traceback; the block ends with the first line that isn't indented. */
    const char *at = begin + strcspn(begin, "\n");
    while (*at == '\n' && (at[1] == ' ' || at[1] == '\t')) {
        at += 1 + strcspn(at + 1, "\n");
    }
    if (*at == '\0' || at[1] == '\0') {
        return NULL; /* cut off */
    }
    *ret_last = at + 1;
    *ret_last_len = line_length(at + 1);
    *ret_len = (size_t)(at + 1 - begin) + *ret_last_len;
    return begin;
}

/* The last lines of `text`, at most LAST_LINES; NULL: it is empty. */
static const char *last_lines(const char *text, size_t *ret_len)
{
    size_t n = strlen(text);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r' || text[n - 1] == ' ')) {
        n--;
    }
    size_t from = n;
    for (int lines = 0; from > 0; from--) {
        if (text[from - 1] == '\n' && ++lines == LAST_LINES) {
            break;
        }
    }
    *ret_len = n - from;
    return n == 0 ? NULL : text + from;
}

/* --- the sentence --- */

static void status_words(const launch_rank *r, char *buf, size_t size)
{
    int status = r->status;
    if (status < 0) {
        (void)snprintf(buf, size, "%s", stk_text_or(stk_text_if_any(r->why), "disappeared"));
    } else if (status == 0 && r->failed) {
        (void)snprintf(buf, size, "exit status 0 before its function had returned (os._exit?)");
    } else if (WIFSIGNALED(status)) {
        (void)snprintf(buf, size, "killed by signal %d (%s)", WTERMSIG(status),
                       stk_runner_signal_name(WTERMSIG(status)));
    } else {
        (void)snprintf(buf, size, "exit status %d", WEXITSTATUS(status));
    }
}

/* The status with the last line of the rank's traceback: "exit status 1 (KeyError: 'shard')". */
static void ended_words(const launch_rank *r, char *buf, size_t size)
{
    size_t len, n_last = 0;
    const char *last = "";
    status_words(r, buf, size);
    if (stk_launch_traceback(r->tail, &len, &last, &n_last) != NULL && n_last > 0) {
        size_t n = strlen(buf);
        (void)snprintf(buf + n, size - n, " (%.*s)",
                       n_last < WORDS ? (int)n_last : stk_text_cut(last, WORDS), last);
    } else if (r->error[0] != '\0') {
        size_t n = strlen(buf);
        (void)snprintf(buf + n, size - n, " (%s)", r->error);
    }
}

static void tell_stderr(stk_gang *g, const launch_rank *r)
{
    size_t len = 0, n_last;
    const char *last;
    const char *text = stk_launch_traceback(r->tail, &len, &last, &n_last);
    if (text == NULL) {
        text = last_lines(r->tail, &len);
    }
    if (text == NULL || g->world == 1 || g->me > 0) {
        return; /* the view has no other rank's output to hide it in; or the leader reports it */
    }
    stk_launch_say(g, "the end of rank %u's stderr:", stk_launch_number(g, (uint32_t)g->first));
    for (size_t at = 0; at < len;) {
        size_t n = strcspn(text + at, "\n");
        if (at + n > len) {
            n = len - at;
        }
        char line[512];
        int used = snprintf(line, sizeof line, "    %.*s", (int)MIN(n, 480), text + at);
        stk_launch_view_line(g, line, (size_t)used);
        at += n + 1;
    }
}

/* Removes the prefix "[rank1]: " that PyTorch adds to each line of a traceback: our sentence names
 * the rank. */
static void drop_rank_marks(launch_rank *r)
{
    char *to = r->tail;
    for (const char *from = r->tail; *from != '\0';) {
        if (strncmp(from, "[rank", 5) == 0) {
            size_t digits = strspn(from + 5, "0123456789");
            if (digits > 0 && strncmp(from + 5 + digits, "]: ", 3) == 0) {
                from += digits + 8;
            }
        }
        size_t n = strcspn(from, "\n");
        n += from[n] == '\n';
        memmove(to, from, n);
        to += n;
        from += n;
    }
    *to = '\0';
    r->n_tail = (size_t)(to - r->tail);
}

/* Whether a rank failed because rank 0 ended first: rank 0's process hosts PyTorch's store, so a
 * rank that still needs it loses its connection. (In a Python step, rank 0 ends last.) */
static bool lost_rank_zero(const stk_gang *g, const launch_rank *r)
{
    static const char *const words[] = {"onnection closed", "onnection reset", "onnection refused",
                                        "onnection was likely closed", "roken pipe"};
    const launch_rank *zero = &g->ranks[0];
    if (g->me > 0 || r == zero || zero->status != 0 || zero->was_ended) {
        return false;
    }
    bool found = false;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        found = found || strstr(r->tail, words[i]) != NULL;
    }
    return found;
}

/* The `error` in the result of a Python step's rank; NULL: it left no result. */
static const stk_json *error_of(const stk_gang *g, uint32_t rank, stk_arena *arena, stk_json *ret)
{
    static const stk_json_limits limits = {STK_LIMIT_RESULT_BYTES, STK_LIMIT_RESULT_NODES,
                                           STK_LIMIT_DEPTH};
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (!g->config->is_python || g->config->dir == NULL || arena == NULL) {
        return NULL;
    }
    (void)stk_launch_path(g, rank, "result.json", path);
    if (stk_file_read_untrusted(path, STK_LIMIT_RESULT_BYTES, &text, &len, NULL) < 0 ||
        stk_json_parse(text, len, path, &limits, arena, ret, NULL) < 0) {
        return NULL;
    }
    const stk_json *error = stk_json_get(ret, "error");
    return stk_json_get(error, "message") == NULL ? NULL : error;
}

/* "KeyError: shard", or "exit status 1 (KeyError: 'shard')". */
static void failure_words(const stk_gang *g, uint32_t rank, char *buf, size_t size)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json doc;
    const stk_json *error = error_of(g, rank, arena, &doc);
    const char *type = stk_json_get_text(error, "type");
    const char *message = stk_json_get_text(error, "message");
    if (message == NULL) {
        ended_words(&g->ranks[rank], buf, size);
        return;
    }
    const char *colon = strstr(message, ": ");
    if (strncmp(message, "rank ", 5) == 0 && colon != NULL) {
        message = colon + 2;
    }
    if (type == NULL) {
        (void)snprintf(buf, size, "%.*s", stk_text_cut(message, WORDS), message);
    } else {
        (void)snprintf(buf, size, "%.80s: %.*s", type, stk_text_cut(message, WORDS), message);
    }
}

/* Adds a rank's traceback for the user. */
static void add_trace(const stk_gang *g, uint32_t rank, const bool *alike, stk_buf *out)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json doc;
    const stk_json *error = error_of(g, rank, arena, &doc);
    const char *trace = stk_json_get_text(error, "traceback");
    size_t len = strlen(stk_text_or(trace, ""));
    const char *last;
    size_t n_last;
    if (error == NULL) {
        trace = stk_launch_traceback(g->ranks[rank].tail, &len, &last, &n_last);
    }
    if (trace != NULL) {
        stk_buf_text(out, "\n\n");
        stk_launch_add_ranks(g, alike, out);
        stk_buf_text(out, ":\n");
        (void)stk_buf_add(out, trace, len);
    }
}

/* Adds the fate of the other ranks: each different failure once, and how many ranks were ended.
 * `traces` (or NULL) gets the tracebacks of ranks that failed in another way than the first. */
static void add_others(const stk_gang *g, stk_buf *out, stk_buf *traces)
{
    bool told[STK_LAUNCH_MAX_RANKS] = {false};
    char first[512] = "", words[512], other[512];
    uint32_t n_ways = 0, n_more = 0;
    if (g->first >= 0 && (uint32_t)g->first < g->n) {
        failure_words(g, (uint32_t)g->first, first, sizeof first);
        told[g->first] = true;
    }
    for (uint32_t i = 0; i < g->n && g->ending == END_FAILED; i++) {
        bool alike[STK_LAUNCH_MAX_RANKS] = {false};
        if (told[i] || !g->ranks[i].failed) {
            continue;
        }
        if (n_ways++ >= WAYS) {
            n_more++;
            continue;
        }
        failure_words(g, i, words, sizeof words);
        for (uint32_t k = i; k < g->n; k++) {
            if (!told[k] && g->ranks[k].failed) {
                failure_words(g, k, other, sizeof other);
                alike[k] = told[k] = strcmp(words, other) == 0;
            }
        }
        stk_buf_text(out, "; ");
        stk_launch_add_ranks(g, alike, out);
        if (strcmp(words, first) == 0) {
            stk_buf_text(out, " failed alike");
            continue;
        }
        stk_buf_printf(out, " failed too: %s", words);
        if (traces != NULL) {
            add_trace(g, i, alike, traces);
        }
    }
    if (n_more > 0) {
        stk_buf_printf(out, "; %u more rank%s failed too", n_more, stk_text_plural(n_more));
    }
    if (g->n_others > 0) {
        stk_buf_printf(out, "; %u other rank%s ended because of it", g->n_others,
                       stk_text_noun(g->n_others, " was", "s were"));
    }
}

static void blame_first(stk_gang *g)
{
    launch_rank *r = &g->ranks[g->first];
    drop_rank_marks(r);
    char how[512 + WORDS], where[160];
    ended_words(r, how, sizeof how);
    stk_launch_nodes_where(g, where, sizeof where);
    int n = snprintf(g->text, sizeof g->text, "rank %u%s failed: %s",
                     stk_launch_number(g, (uint32_t)g->first), where, how);
    if (lost_rank_zero(g, r) && n < (int)sizeof how) {
        n += snprintf(g->text + n, sizeof g->text - (size_t)n,
                      "; rank 0 had ended before it with exit status 0, and with it what it hosts "
                      "(PyTorch's store): it must end last, after a barrier");
    }
    STK_BUF_AUTO others = STK_BUF_INIT(64 << 10);
    add_others(g, &others, NULL);
    (void)snprintf(g->text + n, sizeof g->text - (size_t)n, "%.*s", (int)others.len,
                   stk_text_or(others.data, ""));
    tell_stderr(g, r);
}

void stk_launch_blame(stk_gang *g)
{
    if (g->ending == END_SIGNAL) {
        (void)snprintf(g->text, sizeof g->text, "ended by signal %d (%s)", g->number,
                       stk_runner_signal_name(g->number));
    } else if (g->ending == END_FAILED && g->first >= 0) {
        blame_first(g);
    }
}

/* --- gang.json --- */

void stk_launch_add_member(const stk_gang *g, uint32_t rank, stk_buf *out)
{
    const launch_rank *r = &g->ranks[rank];
    char text[512] = "";
    if (r->failed) {
        status_words(r, text, sizeof text);
    } else if (r->was_ended && g->ending == END_HANG) {
        bool missing = (int32_t)rank == g->first && !g->hang.crossed;
        int n = snprintf(text, sizeof text, missing ? "not in the collective" : "hung");
        if (r->pulse.op[0] != '\0') {
            (void)snprintf(text + n, sizeof text - (size_t)n, " in %s", r->pulse.op);
        }
    } else if (r->was_ended && g->first >= 0) {
        (void)snprintf(text, sizeof text, "ended because of rank %u",
                       stk_launch_number(g, (uint32_t)g->first));
    } else if (r->was_ended) {
        (void)snprintf(text, sizeof text, "ended with the gang");
    }
    int exit_status = -1, signal = -1, pid = -1;
    if (r->pid > 0) {
        pid = r->pid;
    }
    if (r->status >= 0 && WIFEXITED(r->status)) {
        exit_status = WEXITSTATUS(r->status);
    } else if (r->status >= 0 && WIFSIGNALED(r->status)) {
        signal = WTERMSIG(r->status);
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_int(out, "rank", stk_launch_number(g, rank));
    stk_json_put_int(out, "pid", pid);
    stk_json_put_int(out, "started_ms", r->start_ms);
    stk_json_put_int(out, "ended_ms", r->end_ms);
    stk_json_put_int(out, "exit_status", exit_status);
    stk_json_put_int(out, "signal", signal);
    stk_json_put_text(out, "text", stk_text_if_any(text));
    stk_json_close(out, '}');
}

int64_t stk_launch_first(const stk_gang *g)
{
    if (g->first < 0) {
        return -1;
    }
    return (int64_t)stk_launch_number(g, (uint32_t)g->first);
}

void stk_launch_remember(stk_gang *g)
{
    stk_buf *out = &g->past;
    stk_json_open(out, NULL, '{');
    stk_json_put_int(out, "restart", g->restart);
    stk_json_put_int(out, "ranks", g->world);
    stk_json_put_int(out, "port", g->port.number);
    stk_json_put_int(out, "first", stk_launch_first(g));
    stk_json_put_int(out, "others", g->first < 0 ? -1 : (int64_t)g->n_others);
    stk_json_put_int(out, "noticed_us", g->noticed_us);
    stk_json_put_text(out, "text", stk_text_if_any(g->text));
    stk_json_open(out, "members", '[');
    for (uint32_t i = 0; i < g->n; i++) {
        stk_launch_add_member(g, i, out);
    }
    stk_launch_nodes_members(g, out);
    stk_json_close(out, ']');
    stk_json_close(out, '}');
}

void stk_launch_summary(const stk_gang *g, const stk_launch_end *end, stk_buf *out)
{
    const char *status = "ok", *class = NULL;
    if (end->failure != STK_FAIL_NONE) {
        status = "failed";
        class = stk_failure_word(end->failure);
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_int(out, "stoker", 1);
    stk_json_put_text(out, "status", status);
    stk_json_put_int(out, "exit_status", end->exit_status);
    stk_json_put_text(out, "class", class);
    stk_json_put_text(out, "text", stk_text_if_any(end->text));
    stk_json_put_int(out, "ranks", g->config->ranks); /* per node */
    stk_launch_nodes_summary(g, out);
    stk_json_put_int(out, "restarts", g->restart);
    stk_json_put_int(out, "max_restarts", g->config->max_restarts);
    stk_json_put_int(out, "started_ms", g->clock.wall_ms);
    stk_json_put_int(out, "ended_ms", stk_clock_anchored_ms(&g->clock));
    stk_json_open(out, "attempts", '[');
    stk_buf_add(out, stk_text_or(g->past.data, ""), g->past.len);
    stk_json_close(out, ']');
    stk_json_close(out, '}');
    stk_buf_char(out, '\n');
    out->failed = out->failed || g->past.failed;
}

/* --- result.json, for the engine --- */

static int write_failure(const char *path, const stk_gang *g, const stk_launch_end *end,
                         stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(1 << 20);
    size_t len = 0, n_last;
    const char *last;
    const char *trace = NULL;
    if (g->ending == END_HANG) { /* the stacks of all ranks */
        trace = g->stacks.data;
        len = MIN(g->stacks.len, SHOWN_BYTES);
    } else if (g->first >= 0) {
        trace = stk_launch_traceback(g->ranks[g->first].tail, &len, &last, &n_last);
    }
    STK_BUF_AUTO others = STK_BUF_INIT(1 << 20);
    STK_BUF_AUTO whole = STK_BUF_INIT(1 << 20);
    add_others(g, &others, &whole);
    STK_BUF_AUTO shown = STK_BUF_INIT(2 << 20);
    (void)stk_buf_add(&shown, stk_text_or(trace, ""), len);
    (void)stk_buf_add(&shown, stk_text_or(whole.data, ""), whole.len);
    stk_json_open(&out, NULL, '{');
    stk_json_put_int(&out, "stoker", 1);
    stk_json_put_text(&out, "status", "failed");
    stk_json_open(&out, "error", '{');
    stk_json_put_text(&out, "class", stk_failure_word(end->failure));
    stk_json_put_text(&out, "message", end->text);
    stk_json_put_text(&out, "traceback", stk_text_if_any(shown.data));
    stk_buf_text(&out, "}}\n");
    if (out.failed) {
        return stk_err_set(err, STK_E_NOMEM, "%s: out of memory", path);
    }
    return stk_file_write_atomic(path, out.data, out.len, 0644, err);
}

/* Appends text to a text node of a document in `arena`. */
static void add_to(stk_arena *arena, const stk_json *text, const stk_buf *more)
{
    const char *words = stk_json_text(text);
    if (words == NULL || more->len == 0) {
        return;
    }
    const char *longer = stk_arena_printf(arena, "%s%.*s", words, (int)more->len, more->data);
    if (longer != NULL) {
        *(stk_json *)(uintptr_t)text = stk_json_of_text(longer);
    }
}

/* Copies the failing rank's result.json (Python steps) and adds the fate of the other ranks to its
 * message. False: the rank left no result. */
static bool own_account(const stk_gang *g, stk_buf *out)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json doc;
    if (g->first < 0) {
        return false;
    }
    const stk_json *error = error_of(g, (uint32_t)g->first, arena, &doc);
    if (stk_json_get_text(error, "message") == NULL) {
        return false;
    }
    STK_BUF_AUTO others = STK_BUF_INIT(64 << 10);
    STK_BUF_AUTO traces = STK_BUF_INIT(4 << 20);
    add_others(g, &others, &traces);
    add_to(arena, stk_json_get(error, "message"), &others);
    add_to(arena, stk_json_get(error, "traceback"), &traces);
    stk_json_dump(&doc, out);
    return !out->failed;
}

int stk_launch_result(const stk_gang *g, const stk_launch_end *end, stk_err *err)
{
    char path[PATH_MAX];
    STK_BUF_AUTO own = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    (void)snprintf(path, sizeof path, "%s/result.json", g->config->dir);
    if (end->failure == STK_FAIL_NONE) {
        return 0;
    }
    if (own_account(g, &own)) {
        return stk_file_write_atomic(path, own.data, own.len, 0644, err);
    }
    return write_failure(path, g, end, err);
}
