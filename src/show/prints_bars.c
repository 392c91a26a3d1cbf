/* The lines that tasks redraw: progress bars. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/text.h"
#include "show/prints_line.h"
#include "sys/file.h"

enum { END_BYTES = 4096, MAX_RANKS = 1024 };

void stk_line_bar(const char *text, size_t len, char ret[STK_LINE_BAR])
{
    STK_BUF_AUTO clean = STK_BUF_INIT(1u << 20);
    text = stk_line_last_state(text, &len);
    stk_line_put(&clean, text, len, true, true);
    (void)snprintf(ret, STK_LINE_BAR, "%s", stk_text_or(clean.data, ""));
    if (ret[strspn(ret, " ")] == '\0') {
        ret[0] = '\0';
    }
}

/* The unfinished line at the end of a log; "": none. */
static void read_bar(const char *path, char ret[STK_LINE_BAR])
{
    char data[END_BYTES];
    struct stat st;
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    ret[0] = '\0';
    if (fd < 0 || fstat(fd, &st) < 0) {
        return;
    }
    off_t from = st.st_size > END_BYTES ? st.st_size - END_BYTES : 0;
    ssize_t n = pread(fd, data, sizeof data, from);
    if (n <= 0) {
        return;
    }
    const char *line = memrchr(data, '\n', (size_t)n);
    line = line == NULL ? data : line + 1;
    stk_line_bar(line, (size_t)(data + n - line), ret);
}

void stk_line_read_bars(const char *dir, stk_line_bars *ret)
{
    ret->n = 0;
    for (uint32_t rank = 0; rank < MAX_RANKS && ret->n < STK_LINE_RANKS; rank++) {
        char path[PATH_MAX], bar[STK_LINE_BAR];
        if ((size_t)snprintf(path, sizeof path, "%s/rank-%u", dir, rank) + 16 >= sizeof path ||
            access(path, F_OK) < 0) {
            return; /* that was the last rank */
        }
        size_t len = strlen(path);
        (void)snprintf(path + len, sizeof path - len, "/stderr.log");
        read_bar(path, bar);
        if (bar[0] == '\0') {
            (void)snprintf(path + len, sizeof path - len, "/stdout.log");
            read_bar(path, bar);
        }
        if (bar[0] != '\0') {
            (void)snprintf(ret->lines[ret->n++], STK_LINE_BAR, "[%u] %.*s", rank, STK_LINE_BAR - 16,
                           bar);
        }
    }
}
