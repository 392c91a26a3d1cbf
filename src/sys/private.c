#include "sys/private.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "sys/file.h"

enum { LOOK_BYTES = 64 << 10 };

typedef enum kind { NEVER, ALWAYS, KEY } kind;

static const struct {
    const char *pattern;
    kind kind;
} names[] = {
#define X(pattern, kind) {pattern, kind},
#include "tbl/private_files.def"
#undef X
};

/* The last parts of a path, as many as the pattern has. */
static const char *tail(const char *path, const char *pattern)
{
    const char *at = path + strlen(path);
    for (const char *p = strchr(pattern, '/');; p = strchr(p + 1, '/')) {
        while (at > path && at[-1] != '/') {
            at--;
        }
        if (p == NULL) {
            return at;
        }
        at -= at > path;
    }
}

static bool holds_key(const char *path)
{
    static const char mark[] = "PRIVATE KEY";
    char text[LOOK_BYTES];
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    size_t n = 0;
    ssize_t got = 0;
    while (fd >= 0 && n < sizeof text && (got = read(fd, text + n, sizeof text - n)) > 0) {
        n += (size_t)got;
    }
    return fd < 0 || got < 0 || memmem(text, n, mark, sizeof mark - 1) != NULL;
}

bool stk_private_by_name(const char *path, const struct stat *st)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *pattern = names[i].pattern;
        const char *last = tail(path, pattern);
        bool may_fit = *pattern == '*' || *pattern == *last; /* fnmatch() is slow */
        if (may_fit && fnmatch(pattern, last, FNM_PATHNAME) == 0) {
            return names[i].kind == ALWAYS ||
                   (names[i].kind == KEY && S_ISREG(st->st_mode) && holds_key(path));
        }
    }
    return false;
}

bool stk_private_is_shut(mode_t mode)
{
    return (mode & 0044) == 0;
}

bool stk_private_by_mode(const struct stat *folder, const struct stat *st)
{
    return stk_private_is_shut(st->st_mode) && !stk_private_is_shut(folder->st_mode);
}
