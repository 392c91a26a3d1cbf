/* Where a key lies in the folder that is shared: opened part by part from that folder on, so that
 * what was looked at is what is used. Links in it lead nowhere: whoever made one may have made it
 * to a file that only we can read, or to a folder that isn't for anybody's words. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/share/share_private.h"
#include "sys/faults.h"
#include "sys/file.h"

int stk_share_behind_link(const stk_share *share, const char *key, stk_err *err)
{
    return stk_err_set(
        err, STK_E_STORE,
        "'%s' in store '%s' is behind a link; Stoker doesn't follow links in a store", key,
        share->url);
}

static bool is_link(int at, const char *name)
{
    struct stat st;
    return fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode);
}

/* One folder further; closes `at`. -1 with errno: ELOOP where it is a link. */
static int enter_folder(int at, const char *name, bool make)
{
    int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(at, name, flags);
    if (fd < 0 && errno == ENOENT && make && (mkdirat(at, name, 0777) == 0 || errno == EEXIST)) {
        fd = openat(at, name, flags);
    }
    int sys = errno;
    if (fd < 0 && sys == ENOTDIR && is_link(at, name)) {
        sys = ELOOP;
    }
    (void)close(at);
    errno = sys;
    return fd;
}

int stk_share_parent(const stk_share *share, const char *key, bool make, const char **ret_last)
{
    char part[NAME_MAX + 1];
    int fd = open(share->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    for (const char *slash; fd >= 0 && (slash = strchr(key, '/')) != NULL; key = slash + 1) {
        size_t n = (size_t)(slash - key);
        if (n > NAME_MAX) {
            (void)close(fd);
            errno = ENAMETOOLONG;
            return -1;
        }
        memcpy(part, key, n);
        part[n] = '\0';
        fd = enter_folder(fd, part, make);
    }
    *ret_last = key;
    return fd;
}

int stk_share_open_object(const stk_share *share, const char *key, struct stat *ret_st)
{
    const char *last;
    STK_FD_AUTO at = stk_share_parent(share, key, false, &last);
    if (at < 0) {
        return -1;
    }
    int fd = openat(at, last, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (fd < 0) {
        return -1;
    }
    int sys = stk_errno_if(fstat(fd, ret_st) < 0);
    if (sys == 0 && !S_ISREG(ret_st->st_mode)) {
        sys = ENOENT;
    }
    if (sys == 0) {
        return fd;
    }
    (void)close(fd);
    errno = sys;
    return -1;
}
