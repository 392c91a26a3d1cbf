#include "sys/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/text.h"
#include "sys/dir.h"
#include "sys/faults.h"

void stk_file_close(int *fd)
{
    if (*fd >= 0) {
        (void)close(*fd); /* Linux frees the descriptor even on EINTR: never close twice */
        *fd = -1;
    }
}

/* --- whole files --- */

int stk_file_read_fd(int fd, const char *name, size_t max, char **ret_data, size_t *ret_len,
                     stk_err *err)
{
    struct stat st;
    size_t cap = 4096;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        if ((uint64_t)st.st_size > max) {
            return stk_err_set(err, STK_E_LIMIT, "'%s' has %lld bytes, more than the %zu allowed",
                               name, (long long)st.st_size, max);
        }
        cap = (size_t)st.st_size + 1; /* the next read sees the end without growing the buffer */
    }
    char *data = malloc(cap + 1);
    size_t len = 0;
    for (;;) {
        if (data == NULL) {
            return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "can't read '%s'", name);
        }
        ssize_t n = read(fd, data + len, cap - len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            int sys = errno;
            free(data);
            return stk_err_sys(err, STK_E_SYS, sys, "can't read '%s'", name);
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
        if (len > max) {
            free(data);
            return stk_err_set(err, STK_E_LIMIT, "'%s' has more than the %zu bytes allowed", name,
                               max);
        }
        if (len == cap) {
            cap *= 2;
            char *more = realloc(data, cap + 1);
            if (more == NULL) {
                free(data);
            }
            data = more;
        }
    }
    data[len] = '\0';
    *ret_data = data;
    if (ret_len != NULL) {
        *ret_len = len;
    }
    return 0;
}

int stk_file_open_regular(const char *path, int flags, mode_t mode)
{
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, mode);
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        (void)close(fd);
        errno = EINVAL;
        return -1;
    }
    if (fd >= 0) { /* clears O_NONBLOCK, which a program that inherits it would not expect */
        (void)fcntl(fd, F_SETFL, flags & ~(O_CREAT | O_EXCL | O_TRUNC));
    }
    return fd;
}

static int open_error(int sys, const char *path, stk_err *err)
{
    return stk_err_sys(err, stk_file_code(sys), sys, "can't open '%s'", path);
}

static bool is_of_system(const char *path)
{
    return strncmp(path, "/dev/", 5) == 0 || strncmp(path, "/proc/", 6) == 0;
}

int stk_file_read(const char *path, size_t max, char **ret_data, size_t *ret_len, stk_err *err)
{
    /* Opening a pipe that somebody put there must not wait for its writer. Files from the shell or
     * the system (/dev/fd/63, /dev/stdin, /dev/null) are what the user meant, so those may wait. */
    int flags = is_of_system(path) ? O_NOCTTY : O_NONBLOCK | O_NOCTTY;
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    struct stat st;
    bool is_socket = fd < 0 && errno == ENXIO;
    if (fd < 0 && !is_socket) {
        return open_error(errno, path, err);
    }
    bool is_plain =
        !is_socket && fstat(fd, &st) == 0 && (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
    if (!is_plain && !is_of_system(path)) {
        return stk_err_set(err, STK_E_USAGE, "'%s' is not a regular file", path);
    }
    return stk_file_read_fd(fd, path, max, ret_data, ret_len, err);
}

int stk_file_read_untrusted(const char *path, size_t max, char **ret_data, size_t *ret_len,
                            stk_err *err)
{
    /* NONBLOCK: opening a FIFO must not wait for its writer. */
    STK_FD_AUTO fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        if (errno == ELOOP) {
            return stk_err_set(err, STK_E_PROTOCOL, "'%s' is a symbolic link; a file is needed",
                               path);
        }
        return open_error(errno, path, err);
    }
    struct stat st;
    if (fstat(fd, &st) < 0) {
        return open_error(errno, path, err);
    }
    if (!S_ISREG(st.st_mode)) {
        return stk_err_set(err, STK_E_PROTOCOL, "'%s' is not a regular file", path);
    }
    if (st.st_uid != geteuid() && st.st_uid != 0) {
        return stk_err_set(err, STK_E_PROTOCOL,
                           "'%s' belongs to user %u, not to the user who runs Stoker", path,
                           (unsigned)st.st_uid);
    }
    return stk_file_read_fd(fd, path, max, ret_data, ret_len, err);
}

int stk_file_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;
    while (len > 0) {
        ssize_t n = write(fd, p, len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -1;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

/* Returns 0 or errno. The file exists afterwards either whole, with exactly `mode`, or not at all.
 */
static int create(const char *path, int flags, const void *data, size_t len, mode_t mode)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, mode);
    if (fd < 0) {
        return errno;
    }
    int sys = stk_errno_if(stk_file_write_all(fd, data, len) < 0 || fchmod(fd, mode) < 0);
    if (close(fd) < 0 && sys == 0) { /* NFS reports a full disk here */
        sys = errno;
    }
    if (sys != 0) {
        (void)unlink(path);
    }
    return sys;
}

int stk_file_write(const char *path, const void *data, size_t len, mode_t mode, stk_err *err)
{
    int sys = create(path, O_TRUNC, data, len, mode);
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "can't write '%s'", path);
    }
    return 0;
}

int stk_file_write_atomic(const char *path, const void *data, size_t len, mode_t mode, stk_err *err)
{
    static atomic_uint counter;
    const char *slash = strrchr(path, '/');
    int n_dir = slash == NULL ? 0 : (int)(slash + 1 - path);
    STK_TEXT_AUTO tmp = NULL;
    int sys;
    do { /* EEXIST: left by a dead process of our pid */
        free(tmp);
        if (asprintf(&tmp, "%.*s.%s.%d.%u.tmp", n_dir, path, path + n_dir, (int)getpid(),
                     atomic_fetch_add(&counter, 1)) < 0) {
            tmp = NULL;
            return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "can't write '%s'", path);
        }
        sys = create(tmp, O_EXCL, data, len, mode);
    } while (sys == EEXIST);
    if (sys == 0 && rename(tmp, path) < 0) {
        sys = errno;
        (void)unlink(tmp);
    }
    if (sys != 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "can't write '%s'", path);
    }
    return 0;
}

/* --- folders --- */

/* Returns where the walk down begins: after the deepest folder that exists or can be made, since
 * usually only the last few are missing. */
static char *first_missing(char *part, size_t len, mode_t mode)
{
    for (char *p = part + len; p > part + 1; p--) {
        if (*p != '/') {
            continue;
        }
        *p = '\0';
        int rc = mkdir(part, mode);
        int sys = errno;
        *p = '/';
        if (rc == 0) {
            return p + 1;
        }
        if (sys != ENOENT) { /* it exists, or the walk from the top reports the error */
            return sys == EEXIST ? p : part + 1;
        }
    }
    return part + 1;
}

int stk_file_mkdirs(const char *path, mode_t mode, stk_err *err)
{
    if (mkdir(path, mode) == 0) {
        return 0;
    }
    STK_TEXT_AUTO part = strdup(path);
    if (part == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "can't make folder '%s'", path);
    }
    size_t len = strlen(part);
    while (len > 1 && part[len - 1] == '/') {
        part[--len] = '\0';
    }
    for (char *p = first_missing(part, len, mode); p <= part + len; p++) {
        if ((*p != '/' && *p != '\0') || p[-1] == '/') {
            continue;
        }
        char keep = *p;
        *p = '\0';
        if (mkdir(part, mode) < 0) {
            int sys = errno;
            struct stat st;
            /* A parent that exists may answer EACCES or EROFS instead of EEXIST. */
            bool there = stat(part, &st) == 0;
            if (!there || !S_ISDIR(st.st_mode)) {
                return stk_err_sys(err, STK_E_SYS, there ? ENOTDIR : sys, "can't make folder '%s'",
                                   part);
            }
        }
        *p = keep;
    }
    return 0;
}

/* Deeper trees are flattened during removal, so that neither the stack nor the descriptors limit
 * what a task may leave behind. */
enum { REMOVE_DEPTH = 48 };

typedef struct remover {
    int root_fd;
    unsigned n_moved;
    int sys; /* first failure */
    char where[256];
} remover;

static void remover_failed(remover *r, const char *name)
{
    if (r->sys == 0) {
        r->sys = errno;
        (void)snprintf(r->where, sizeof r->where, "%s", name);
    }
}

static int open_folder(int at, const char *name)
{
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(at, name, flags);
    if (fd < 0 && errno == EACCES && fchmodat(at, name, 0700, 0) == 0) {
        fd = openat(at, name, flags);
    }
    return fd;
}

static void remove_children(remover *r, int fd, int depth);

static void remove_entry(remover *r, int at, const char *name, int depth)
{
    if (unlinkat(at, name, 0) == 0 || errno == ENOENT) {
        return;
    }
    if (errno != EISDIR && errno != EPERM) {
        remover_failed(r, name);
        return;
    }
    if (depth == REMOVE_DEPTH) {
        char moved[40];
        (void)snprintf(moved, sizeof moved, ".removing-%u", r->n_moved++);
        (void)fchmodat(at, name, 0700, 0); /* moving a folder writes its ".." */
        if (renameat(at, name, r->root_fd, moved) < 0) {
            remover_failed(r, name);
        }
        return;
    }
    STK_FD_AUTO fd = open_folder(at, name);
    if (fd < 0) {
        remover_failed(r, name);
        return;
    }
    remove_children(r, fd, depth + 1);
    if (unlinkat(at, name, AT_REMOVEDIR) < 0 && errno != ENOENT) {
        remover_failed(r, name);
    }
}

static void remove_children(remover *r, int fd, int depth)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && (st.st_mode & 0700) != 0700) {
        (void)fchmod(fd, 0700); /* artifacts are read-only folders */
    }
    STK_DIR_AUTO dir = {0};
    if (stk_dir_read_fd(fd, ".", &dir, NULL) < 0) {
        remover_failed(r, ".");
        return;
    }
    for (uint32_t i = 0; i < dir.n; i++) {
        remove_entry(r, fd, dir.items[i].name, depth);
    }
}

int stk_file_remove_tree_at(int at, const char *path, stk_err *err)
{
    if (unlinkat(at, path, 0) == 0 || errno == ENOENT || errno == ENOTDIR) {
        return 0;
    }
    if (errno != EISDIR && errno != EPERM) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't remove '%s'", path);
    }
    STK_FD_AUTO fd = open_folder(at, path);
    if (fd < 0) {
        if (errno != ENOENT) {
            return stk_err_sys(err, STK_E_SYS, errno, "can't remove '%s'", path);
        }
        return 0;
    }
    remover r = {.root_fd = fd};
    for (;;) {
        unsigned n_moved = r.n_moved;
        remove_children(&r, fd, 1);
        if (r.sys != 0) {
            return stk_err_sys(err, STK_E_SYS, r.sys, "can't remove '%s' in '%s'", r.where, path);
        }
        if (unlinkat(at, path, AT_REMOVEDIR) == 0 || errno == ENOENT) {
            return 0;
        }
        /* Not empty: this pass moved folders up here, or another process still writes. */
        if (errno != ENOTEMPTY || n_moved == r.n_moved) {
            return stk_err_sys(err, STK_E_SYS, errno, "can't remove '%s'", path);
        }
    }
}

int stk_file_remove_tree(const char *path, stk_err *err)
{
    return stk_file_remove_tree_at(AT_FDCWD, path, err);
}

bool stk_file_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

/* --- names --- */

char *stk_file_printf(const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    return n < 0 ? NULL : text;
}

char *stk_file_join(const char *a, const char *b)
{
    size_t n = strlen(a);
    while (n > 0 && a[n - 1] == '/') {
        n--;
    }
    return stk_file_printf("%.*s/%s", (int)n, a, b);
}

char *stk_file_join_any(const char *a, const char *b)
{
    if (*a == '\0' || *b == '\0') {
        return strdup(*a == '\0' ? b : a);
    }
    return stk_file_join(a, b);
}

int stk_file_code(int sys)
{
    return sys == ENOENT || sys == ENOTDIR ? STK_E_NOT_FOUND : STK_E_SYS;
}

char *stk_file_below(const char *folder, const char *path)
{
    return *path == '/' ? strdup(path) : stk_file_join(stk_text_or(folder, "."), path);
}

static char *file_of_user(const char *variable, const char *otherwise, const char *name)
{
    const char *folder = getenv(variable), *home = getenv("HOME");
    if (folder != NULL && *folder == '/') {
        return stk_file_printf("%s/stoker/%s", folder, name);
    }
    if (home == NULL || *home != '/') {
        return NULL;
    }
    return stk_file_printf("%s/%s/stoker/%s", home, otherwise, name);
}

char *stk_file_cache(const char *name)
{
    return file_of_user("XDG_CACHE_HOME", ".cache", name);
}

char *stk_file_state(const char *name)
{
    return file_of_user("XDG_STATE_HOME", ".local/state", name);
}

char *stk_file_absolute(const char *path)
{
    STK_TEXT_AUTO cwd = NULL;
    if (path[0] != '/' && (cwd = getcwd(NULL, 0)) == NULL) {
        return NULL;
    }
    char *full = stk_file_join_any(stk_text_or(cwd, ""), path);
    if (full == NULL) {
        return NULL;
    }
    char *out = full; /* the write position never overtakes the read position */
    for (const char *in = full; *in != '\0';) {
        in += strspn(in, "/");
        size_t n = strcspn(in, "/");
        if (n == 2 && in[0] == '.' && in[1] == '.') {
            while (out > full && *--out != '/') {
            }
        } else if (n > 0 && !(n == 1 && in[0] == '.')) {
            *out++ = '/';
            memmove(out, in, n);
            out += n;
        }
        in += n;
    }
    if (out == full) {
        *out++ = '/';
    }
    *out = '\0';
    return full;
}
