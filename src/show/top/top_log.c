/* The end of what a step writes. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/text.h"
#include "show/top/top_private.h"
#include "sys/file.h"

enum { TAIL = 1 << 18, LINE_MOST = 4096 };

/* Reads the last bytes of a log, from the beginning of a line. Returns how many. */
static size_t read_tail(const char *path, char *ret, size_t size)
{
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    if (end <= 0) {
        return 0;
    }
    off_t from = MAX(end - (off_t)size, 0);
    ssize_t n = pread(fd, ret, size, from);
    if (n <= 0) {
        return 0;
    }
    const char *line = from > 0 ? memchr(ret, '\n', (size_t)n) : NULL;
    if (line != NULL) {
        n -= line + 1 - ret;
        memmove(ret, line + 1, (size_t)n);
    }
    return (size_t)n;
}

/* The text that a line of a terminal would show at its end: without colours and the like, and
 * behind the last return to its beginning. */
static void clean_line(const char *line, size_t n, char *ret, size_t size)
{
    while (n > 0 && line[n - 1] == '\r') {
        n--;
    }
    const char *back = n > 0 ? memrchr(line, '\r', n) : NULL;
    if (back != NULL) {
        n -= (size_t)(back + 1 - line);
        line = back + 1;
    }
    size_t used = 0;
    for (size_t i = 0; i < n && used + 1 < size; i++) {
        if (line[i] == '\x1b' && i + 1 < n && line[i + 1] == '[') {
            i += 2;
            while (i < n && (line[i] < '@' || line[i] > '~')) {
                i++;
            }
        } else if (line[i] == '\t') {
            ret[used++] = ' ';
        } else {
            ret[used++] = line[i] == '\0' ? '?' : line[i];
        }
    }
    ret[used] = '\0';
}

/* The beginning of the line `back` lines above the one that ends at `end`. */
static const char *line_above(const char *text, const char *end, uint32_t back)
{
    const char *at = end;
    for (uint32_t i = 0; i <= back && at > text; i++) {
        const char *above = at - 1 > text ? memrchr(text, '\n', (size_t)(at - 1 - text)) : NULL;
        at = above == NULL ? text : above + 1;
    }
    return at;
}

static uint32_t count_lines(const char *text, const char *end)
{
    uint32_t n = 0;
    for (const char *at = text; at < end; at++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (at == NULL) {
            return n + 1;
        }
        n++;
    }
    return n;
}

void stk_top_log_put(stk_top_log *log, bool is_over, const stk_style *style, int rows, stk_buf *out)
{
    static char text[TAIL];
    char path[1100], line[LINE_MOST], head[300];
    const char *name = log->errors ? "stderr.log" : "stdout.log";
    (void)snprintf(path, sizeof path, "%s/%s", log->dir, name);
    size_t len = read_tail(path, text, sizeof text);
    const char *end = text + len;
    uint32_t n_lines = count_lines(text, end), room = (uint32_t)MAX(rows - 1, 1);
    log->back = MIN(log->back, MAX(n_lines, room) - room);
    (void)snprintf(head, sizeof head, "%s  %s%s%s", log->title, name,
                   stk_text_when(len == 0, "  (empty)"), stk_text_when(is_over, "  (ended)"));
    STK_BUF_AUTO title = STK_BUF_INIT(4096);
    stk_text_fit(&title, head, style->columns, false, style->utf8);
    stk_text_ink(out, style, STK_INK_BOLD, stk_text_or(title.data, ""));
    stk_buf_char(out, '\n');
    const char *at = len == 0 ? end : line_above(text, end, room - 1 + log->back);
    for (uint32_t i = 0; i < room; i++) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stk_text_or(stop, end);
        clean_line(at, (size_t)(stop - at), line, sizeof line);
        stk_text_fit(out, line, style->columns, false, style->utf8);
        stk_buf_char(out, '\n');
        at = stop + (stop < end);
    }
}
