/* For LD_PRELOAD: while the file $QUOTA_USED exists, what lies below the folder $QUOTA_FOLDER takes
 * no byte and no new file more, as when a user's quota is used up (EDQUOT). A real quota needs a
 * kernel and a file system that have them, and a user who isn't root. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int is_used_up(int fd, const char *path)
{
    const char *folder = getenv("QUOTA_FOLDER"), *used = getenv("QUOTA_USED");
    char link[64], at[PATH_MAX] = "";
    if (folder == NULL || used == NULL || access(used, F_OK) < 0) {
        return 0;
    }
    if (path == NULL || path[0] != '/') {
        snprintf(link, sizeof link, fd == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", fd);
        if (readlink(link, at, sizeof at - 1) < 0) {
            return 0;
        }
        path = at;
    }
    if (strncmp(path, folder, strlen(folder)) != 0) {
        return 0;
    }
    errno = EDQUOT;
    return 1;
}

ssize_t write(int fd, const void *data, size_t n)
{
    return is_used_up(fd, NULL) ? -1 : NEXT(write)(fd, data, n);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t at)
{
    return is_used_up(fd, NULL) ? -1 : NEXT(pwrite64)(fd, data, n, at);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    return is_used_up(fd, NULL) ? -1 : NEXT(pwrite)(fd, data, n, at);
}

int mkdirat(int fd, const char *path, mode_t mode)
{
    return is_used_up(fd, path) ? -1 : NEXT(mkdirat)(fd, path, mode);
}

int mkdir(const char *path, mode_t mode)
{
    return is_used_up(AT_FDCWD, path) ? -1 : NEXT(mkdir)(path, mode);
}

int openat64(int fd, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    if ((flags & O_CREAT) != 0 && faccessat(fd, path, F_OK, 0) < 0 && is_used_up(fd, path)) {
        return -1;
    }
    return NEXT(openat64)(fd, path, flags, mode);
}

int openat(int fd, const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return openat64(fd, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return openat64(AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    mode_t mode = va_arg(args, mode_t);
    va_end(args);
    return openat64(AT_FDCWD, path, flags, mode);
}
