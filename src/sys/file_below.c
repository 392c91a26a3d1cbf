/* Opens files below a folder safely, even if others replace parts of the path. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "sys/file.h"

/* Opens one part of the path at a time. */
static int open_by_parts(int at, const char *path, int flags, mode_t mode)
{
    char part[256];
    STK_FD_AUTO here = -1;
    for (;;) {
        path += strspn(path, "/");
        size_t n = strcspn(path, "/");
        if (n == 0 || n >= sizeof part) {
            errno = n == 0 ? ENOENT : ENAMETOOLONG;
            return -1;
        }
        memcpy(part, path, n);
        part[n] = '\0';
        path += n;
        path += strspn(path, "/");
        if (strcmp(part, "..") == 0) {
            errno = EXDEV;
            return -1;
        }
        bool last = *path == '\0';
        int how = last ? flags : O_PATH | O_DIRECTORY;
        int fd = openat(here < 0 ? at : here, part, how | O_NOFOLLOW | O_CLOEXEC, mode);
        if (fd < 0 || last) {
            return fd;
        }
        stk_file_close(&here);
        here = fd;
    }
}

bool stk_file_open_by_parts;

int stk_file_open_below(int at, const char *path, int flags, mode_t mode)
{
    struct open_how how = {.flags = (unsigned)(flags | O_NOFOLLOW | O_CLOEXEC),
                           .mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? mode : 0,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    if (stk_file_open_by_parts) {
        return open_by_parts(at, path, flags, mode);
    }
    int fd = (int)syscall(SYS_openat2, at, path, &how, sizeof how);
    /* An older kernel, or a system-call filter that doesn't know openat2. */
    bool is_unknown = fd < 0 && (errno == ENOSYS || errno == EPERM || errno == EINVAL);
    if (is_unknown) {
        return open_by_parts(at, path, flags, mode);
    }
    return fd;
}
