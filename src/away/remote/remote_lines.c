#include "away/remote/remote_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/file.h"

enum { AT_ONCE = 256 << 10, MOST = 16 << 20 };

static int read_bytes(const char *path, int64_t at, stk_buf *ret, stk_err *err)
{
    char data[AT_ONCE];
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    if (fd < 0) {
        return errno == ENOENT ? 0 : stk_err_sys(err, STK_E_ENV, errno, "opening %s", path);
    }
    while (ret->len + sizeof data <= MOST) {
        ssize_t n = pread(fd, data, sizeof data, at + (int64_t)ret->len);
        if (n < 0) {
            return stk_err_sys(err, STK_E_ENV, errno, "reading %s", path);
        }
        if (n == 0) {
            break;
        }
        (void)stk_buf_add(ret, data, (size_t)n);
    }
    return stk_buf_check(ret, err);
}

int stk_remote_lines_read(const char *path, int64_t *at, stk_arena *arena,
                          int (*each)(void *arg, const stk_json *line, int64_t end, stk_err *err),
                          void *arg, stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(MOST + 1);
    STK_TRY(read_bytes(path, *at, &text, err));
    const char *line = text.data;
    size_t left = text.len;
    for (const char *end = NULL; left > 0 && (end = memchr(line, '\n', left)) != NULL;) {
        size_t n = (size_t)(end - line);
        const stk_json *object = n == 0 ? NULL : stk_json_readn(arena, line, n);
        *at += (int64_t)n + 1;
        line += n + 1;
        left -= n + 1;
        if (stk_json_is_map(object)) {
            STK_TRY(each(arg, object, *at, err));
        }
    }
    return 0;
}

/* Does the file end within a line? */
static bool is_mid_line(int fd)
{
    struct stat st;
    char last = '\n';
    return fstat(fd, &st) == 0 && st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1 &&
           last != '\n';
}

int stk_remote_lines_add(const char *path, const stk_buf *lines, stk_err *err)
{
    STK_TRY(stk_buf_check(lines, err));
    if (lines->len == 0) {
        return 0;
    }
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDWR | O_APPEND | O_CREAT, 0644);
    bool is_good = fd >= 0 && (!is_mid_line(fd) || stk_file_write_all(fd, "\n", 1) == 0) &&
                   stk_file_write_all(fd, lines->data, lines->len) == 0;
    return is_good ? 0 : stk_err_sys(err, STK_E_ENV, errno, "writing %s", path);
}
