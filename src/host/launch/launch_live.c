/* On a terminal, the lines that ranks redraw (progress bars) stand below the others: one line a
 * rank, redrawn in place. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "host/launch/launch_private.h"
#include "host/launch/launch_ranks.h"

enum { LIVE_MS = 100, LIVE_ROWS = 16, SINK_ERR = 1 };

void stk_launch_live_open(stk_gang *g)
{
    const char *term = getenv("TERM");
    struct stat out, err;
    launch_live *v = &g->live;
    v->due_ms = INT64_MAX;
    v->on = !g->config->is_task && isatty(g->config->err_fd) && term != NULL &&
            strcmp(term, "dumb") != 0;
    v->both = v->on && fstat(g->config->out_fd, &out) == 0 && fstat(g->config->err_fd, &err) == 0 &&
              S_ISCHR(out.st_mode) && out.st_rdev == err.st_rdev;
}

uint32_t stk_launch_live_sink(const stk_gang *g, uint32_t i_stream)
{
    return g->live.both ? SINK_ERR : i_stream % 2;
}

static void measure_terminal(const stk_gang *g, size_t *ret_columns, uint32_t *ret_rows)
{
    struct winsize size = {0};
    *ret_columns = 80;
    *ret_rows = 24;
    if (ioctl(g->config->err_fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0) {
        *ret_columns = size.ws_col;
        *ret_rows = size.ws_row;
    }
}

/* Adds what a person would see of the line, up to `columns`: no escapes, no control characters. */
static void add_visible(stk_buf *out, const char *text, size_t n, size_t columns)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c == 0x1b && i + 1 < n && text[i + 1] == '[') { /* to its final letter */
            for (i += 2; i < n && (text[i] < '@' || text[i] > '~');) {
                i++;
            }
            continue;
        }
        bool begins = (c & 0xc0) != 0x80; /* a character, not a later byte of one */
        if (begins && columns == 0) {
            return;
        }
        if (c >= ' ' && c != 0x7f) {
            columns -= begins;
            stk_buf_char(out, text[i]);
        }
    }
}

/* The unfinished line of the rank's stderr, else of its stdout: its last state. */
static const char *unfinished(const stk_gang *g, uint32_t rank, size_t *ret_len)
{
    for (int i = 1; i >= 0; i--) {
        const launch_stream *s = &g->ranks[rank].streams[i];
        const char *text = stk_text_or(s->line.data, "");
        size_t n = s->line.len;
        n -= n > 0 && text[n - 1] == '\r';
        const char *from = memrchr(text, '\r', n);
        from = from == NULL ? text : from + 1;
        *ret_len = (size_t)(text + n - from);
        if (*ret_len > 0 && stk_launch_is_shown(g, 2 * rank + (uint32_t)i)) {
            return from;
        }
    }
    return NULL;
}

void stk_launch_live_erase(stk_gang *g)
{
    launch_live *v = &g->live;
    if (v->n_drawn > 0) {
        stk_buf_printf(&g->sinks[SINK_ERR].pending, "\r\033[%uA\033[J", v->n_drawn);
        v->n_drawn = 0;
        v->erased = true;
    }
}

void stk_launch_live_changed(stk_gang *g)
{
    if (g->live.on && g->live.due_ms == INT64_MAX) {
        g->live.due_ms = MAX(stk_launch_now_ms(), g->live.drawn_ms + LIVE_MS);
    }
}

void stk_launch_live_draw(stk_gang *g)
{
    launch_live *v = &g->live;
    stk_buf *out = &g->sinks[SINK_ERR].pending;
    size_t columns;
    uint32_t rows;
    v->due_ms = INT64_MAX;
    if (!v->on || (out->len > 0 && g->sinks[SINK_ERR].waiting)) {
        return; /* a terminal that is stopped gets only lines */
    }
    measure_terminal(g, &columns, &rows);
    rows = MAX(1, MIN(rows - 1, LIVE_ROWS));
    stk_launch_live_erase(g);
    size_t n = 0;
    uint32_t total = 0;
    for (uint32_t rank = 0; rank < g->n; rank++) {
        total += unfinished(g, rank, &n) != NULL;
    }
    uint32_t room = total > rows ? rows - 1 : total;
    for (uint32_t rank = 0; rank < g->n && v->n_drawn < room; rank++) {
        char head[16] = "";
        const char *text = unfinished(g, rank, &n);
        if (text == NULL) {
            continue;
        }
        if (!g->config->no_prefix) {
            (void)snprintf(head, sizeof head, "[%u] ", stk_launch_number(g, rank));
        }
        stk_buf_text(out, head);
        add_visible(out, text, n, columns - MIN(columns, strlen(head) + 1));
        stk_buf_char(out, '\n');
        v->n_drawn++;
    }
    if (total > room) {
        stk_buf_printf(out, "and of %u more ranks\n", total - room);
        v->n_drawn++;
    }
    v->erased = false;
    v->drawn_ms = stk_launch_now_ms();
}

void stk_launch_live_tick(stk_gang *g, int64_t now_ms)
{
    if (now_ms >= g->live.due_ms) {
        stk_launch_live_draw(g);
        stk_launch_sink_write(g, SINK_ERR);
    }
}
