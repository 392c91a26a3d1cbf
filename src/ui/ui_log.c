/* Logs: a page with the end of one, or with the lines that hold a text, and what is new. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "show/show_text.h"
#include "sys/file.h"
#include "ui/ui_private.h"

enum { PIECE = 128 << 10, FOUND_MAX = 500, LINE_MAX_SHOWN = 500 };
#define SEARCHED ((off_t)1 << 30) /* bytes of a log that a search reads */

/* A log that a query names. */
typedef struct log_file {
    const char *run, *task, *stream;
    int fd; /* -1: there is none (yet) */
    off_t size;
    bool is_live;
    const char *why; /* it is empty, if somebody knows */
    const char *cached_from;
} log_file;

static void close_log_file(log_file *log)
{
    stk_file_close(&log->fd);
}
#define LOG_AUTO __attribute__((cleanup(close_log_file))) log_file

static int open_log_file(ui_request *r, log_file *ret, stk_err *err)
{
    STK_VIEW_AUTO view = NULL;
    uint32_t i_task = 0;
    stk_view_details d;
    STK_TRY(stk_ui_load_run(r, &view, err));
    STK_TRY(stk_ui_find_task(r, view, &i_task, err));
    STK_TRY(stk_view_get_details(view, i_task, r->arena, &d, err));
    const stk_view_task *task = stk_view_get_task(view, i_task);
    const char *path = d.stdout_path;
    ret->run = stk_arena_dup(r->arena, stk_view_get_run(view)->id);
    ret->task = stk_arena_dup(r->arena, task->label);
    ret->cached_from = stk_arena_dup(r->arena, d.cached_from);
    ret->stream = "stdout";
    if (strcmp(stk_text_or(stk_ui_get(r, "stream"), ""), "stderr") == 0) {
        ret->stream = "stderr";
        path = d.stderr_path;
    }
    ret->is_live = stk_view_is_live(view) && !stk_state_is_final(task->state);
    stk_ui_share_want_run(r, view);
    stk_ui_share_want_task(r, view, i_task);
    ret->is_live = stk_ui_share_awaits(r, view, i_task, &ret->why) || ret->is_live;
    if (path != NULL) {
        struct stat st;
        ret->fd = stk_file_open_regular(path, O_RDONLY, 0);
        if (ret->fd >= 0 && fstat(ret->fd, &st) == 0) {
            ret->size = st.st_size;
        }
    }
    return 0;
}

/* Reads up to PIECE bytes from `at`; zero bytes become '?'. NULL: none. */
static char *read_piece(const log_file *log, off_t at, stk_arena *arena, size_t *ret_len)
{
    char *text = stk_arena_alloc(arena, PIECE + 1);
    ssize_t n = text == NULL || log->fd < 0 ? -1 : pread(log->fd, text, PIECE, at);
    *ret_len = (size_t)MAX(n, 0);
    for (size_t i = 0; i < *ret_len; i++) {
        if (text[i] == '\0') {
            text[i] = '?';
        }
    }
    return n > 0 ? text : NULL;
}

/* --- searching --- */

typedef struct searching {
    ui_request *r;
    const log_file *log;
    const char *wanted;
    uint64_t line;
    uint32_t n;
} searching;

static void put_found(const searching *s, const char *line, off_t at)
{
    char where[32];
    STK_BUF_AUTO cut = STK_BUF_INIT(1u << 16);
    (void)snprintf(where, sizeof where, "%lld", (long long)at);
    const char *const pairs[] = {"run",          s->log->run, "task", s->log->task, "stream",
                                 s->log->stream, "at",        where,  NULL};
    stk_text_fit(&cut, line, LINE_MAX_SHOWN, false, true);
    stk_buf_printf(&s->r->out, "<tr><td class=\"num dim\">");
    stk_html_href(&s->r->out, "log", pairs);
    stk_buf_printf(&s->r->out, "%llu</a></td>", (unsigned long long)s->line);
    stk_html_put(&s->r->out, "<td><code>%s</code></td></tr>\n", cut.data);
}

static void search_log(searching *s)
{
    FILE *file = s->log->fd < 0 ? NULL : fdopen(dup(s->log->fd), "r");
    char *line = NULL;
    size_t cap = 0;
    off_t at = 0;
    if (file == NULL) {
        return;
    }
    rewind(file);
    for (ssize_t n; s->n < FOUND_MAX && at < SEARCHED && (n = getline(&line, &cap, file)) > 0;
         at += n) {
        s->line++;
        line[strcspn(line, "\r\n")] = '\0';
        if (strcasestr(line, s->wanted) != NULL) {
            put_found(s, line, at);
            s->n++;
        }
    }
    free(line);
    (void)fclose(file);
}

static void put_search(ui_request *r, const log_file *log, const char *wanted)
{
    searching s = {.r = r, .log = log, .wanted = wanted};
    stk_buf_text(&r->out, "<section class=\"panel\"><div class=\"scroll\"><table "
                          "class=\"found\"><tbody>\n");
    search_log(&s);
    stk_buf_text(&r->out, "</tbody></table></div>");
    stk_html_put(&r->out, "<p class=\"dim\">%s lines hold “%s”",
                 stk_arena_printf(r->arena, "%u", s.n), wanted);
    stk_buf_text(&r->out, stk_text_when(s.n == FOUND_MAX, "; further ones aren’t listed"));
    stk_buf_text(&r->out, "</p></section>\n");
}

/* --- pages --- */

static void put_log_head(ui_request *r, const log_file *log, const char *wanted)
{
    static const char *const streams[] = {"stdout", "stderr"};
    stk_html_put(&r->out,
                 "<header><div class=\"title\"><h1>%s of %s</h1></div><div class=\"meta\">",
                 log->stream, log->task);
    stk_html_href(&r->out, "task", (const char *const[]){"run", log->run, "task", log->task, NULL});
    stk_html_put(&r->out, "task %s</a> of ", log->task);
    stk_html_href(&r->out, "run", (const char *const[]){"run", log->run, NULL});
    stk_html_put(&r->out, "run %s</a>", log->run);
    for (size_t i = 0; i < 2; i++) {
        if (strcmp(streams[i], log->stream) != 0) {
            const char *const pairs[] = {"run",    log->run,   "task", log->task,
                                         "stream", streams[i], NULL};
            stk_buf_text(&r->out, " · ");
            stk_html_href(&r->out, "log", pairs);
            stk_html_put(&r->out, "%s</a>", streams[i]);
        }
    }
    stk_html_put(&r->out,
                 "</div></header>\n<form class=\"filter\" action=\"log\" role=\"search\">"
                 "<input type=\"hidden\" name=\"run\" value=\"%s\"/><input type=\"hidden\" "
                 "name=\"task\" value=\"%s\"/><input type=\"hidden\" name=\"stream\" "
                 "value=\"%s\"/><label>lines with <input name=\"q\" id=\"q\" value=\"%s\"/></label>"
                 "<button>Find</button></form>\n",
                 log->run, log->task, log->stream, wanted);
}

/* From the beginning of a line, so that the page holds the end of the log, or what is at `at`. */
static void put_piece(ui_request *r, const log_file *log)
{
    size_t len = 0;
    char number[32];
    off_t end = MAX(log->size - PIECE, 0);
    off_t at = (off_t)stk_ui_get_whole(r, "at", end, log->size);
    char *text = read_piece(log, at, r->arena, &len);
    char *begin = text;
    bool is_tail = at + (off_t)len >= log->size;
    if (text != NULL && at == end && at > 0) {
        char *line = memchr(text, '\n', len);
        begin = line == NULL ? text : line + 1;
    }
    if (at > 0) {
        (void)snprintf(number, sizeof number, "%lld", (long long)MAX(at - PIECE, 0));
        const char *const pairs[] = {"run",       log->run, "task", log->task, "stream",
                                     log->stream, "at",     number, NULL};
        stk_buf_text(&r->out, "<p class=\"pages\">");
        stk_html_href(&r->out, "log", pairs);
        stk_buf_text(&r->out, "↑ earlier</a></p>");
    }
    stk_buf_text(&r->out, "<pre class=\"log\" role=\"log\" tabindex=\"0\" aria-label=\"log\"");
    if (is_tail) { /* the script adds what comes */
        stk_html_put(&r->out, " data-text=\"run=%s&task=", log->run);
        stk_buf_percent(&r->out, log->task, strlen(log->task), "/");
        stk_html_put(&r->out, "&stream=%s\"", log->stream);
        stk_buf_printf(&r->out, " data-at=\"%lld\"", (long long)at + (long long)len);
    }
    stk_buf_text(&r->out, ">");
    if (begin != NULL) {
        begin[len - (size_t)(begin - text)] = '\0';
        stk_html_user(&r->out, begin);
    }
    stk_buf_text(&r->out, "</pre>\n");
    if (!is_tail) {
        (void)snprintf(number, sizeof number, "%lld", (long long)at + (long long)len);
        const char *const pairs[] = {"run",       log->run, "task", log->task, "stream",
                                     log->stream, "at",     number, NULL};
        stk_buf_text(&r->out, "<p class=\"pages\">");
        stk_html_href(&r->out, "log", pairs);
        stk_buf_text(&r->out, "↓ later</a></p>");
    }
}

static void put_nothing(ui_request *r, const log_file *log)
{
    stk_buf_text(&r->out, "<p class=\"dim nothing\">");
    if (log->why != NULL) {
        stk_html_put(&r->out, "%s", log->why);
    } else if (log->cached_from != NULL) {
        stk_html_put(&r->out, "%s did not run here: its result is that of ", log->task);
        stk_html_href(&r->out, "run", (const char *const[]){"run", log->cached_from, NULL});
        stk_html_put(&r->out, "run %s</a>.", log->cached_from);
    } else {
        stk_html_put(&r->out, "%s has written nothing to %s%s.", log->task, log->stream,
                     stk_text_when(log->is_live, " yet"));
    }
    stk_buf_text(&r->out, "</p>\n");
}

int stk_ui_page_log(ui_request *r, stk_err *err)
{
    LOG_AUTO log = {.fd = -1};
    const char *wanted = stk_text_if_any(stk_ui_get(r, "q"));
    STK_TRY(open_log_file(r, &log, err));
    r->title = stk_arena_printf(r->arena, "%s of %s", log.stream, log.task);
    put_log_head(r, &log, wanted);
    if (wanted != NULL) {
        put_search(r, &log, wanted);
        return 0;
    }
    put_piece(r, &log);
    if (log.size == 0) { /* goes when the script adds something */
        put_nothing(r, &log);
    }
    return 0;
}

/* The number where the next piece begins, whether more can come, a newline, and the piece. */
int stk_ui_page_text(ui_request *r, stk_err *err)
{
    LOG_AUTO log = {.fd = -1};
    size_t len = 0;
    r->type = "text/plain; charset=utf-8";
    STK_TRY(open_log_file(r, &log, err));
    off_t at = (off_t)stk_ui_get_whole(r, "at", 0, INT64_MAX);
    char *text = at < log.size ? read_piece(&log, at, r->arena, &len) : NULL;
    stk_buf_printf(&r->out, "%lld %d\n", (long long)at + (long long)len, log.is_live);
    if (text != NULL) {
        text[len] = '\0';
        stk_text_safe(&r->out, text, "");
    }
    return 0;
}
