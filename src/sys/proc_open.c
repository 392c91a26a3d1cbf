/* Finds processes that have a file open: for writing, or with a lock on it. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "sys/dir.h"
#include "sys/file.h"
#include "sys/proc.h"
#include "sys/proc_private.h"

/* True if a descriptor is open for writing: the mode of its link in /proc tells. */
static bool is_writer(const stk_dir *fds, const char *fd)
{
    struct stat link;
    return fstatat(fds->fd, fd, &link, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(link.st_mode) &&
           (link.st_mode & S_IWUSR) != 0;
}

bool stk_proc_has_lock(pid_t pid, const char *fd)
{
    char path[64], text[4096];
    (void)snprintf(path, sizeof path, "/proc/%d/fdinfo/%.16s", (int)pid, fd);
    STK_FD_AUTO info = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;
    if (info >= 0) {
        n = read(info, text, sizeof text - 1);
    }
    text[MAX(n, 0)] = '\0';
    return strstr(text, "OFDLCK") != NULL;
}

/* Identifies a file without contacting a server that may be dead. */
static stk_proc_file file_at(int folder, const char *name)
{
    struct statx file;
    stk_proc_file ret = {0};
    if (statx(folder, name, AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_BTIME, &file) <
        0) {
        return ret;
    }
    ret.device = makedev(file.stx_dev_major, file.stx_dev_minor);
    ret.inode = file.stx_ino;
    if ((file.stx_mask & STATX_BTIME) != 0) {
        ret.born_ns = file.stx_btime.tv_sec * 1000000000 + file.stx_btime.tv_nsec;
    }
    return ret;
}

static bool is_same_file(const stk_proc_file *a, const stk_proc_file *b)
{
    return a->inode == b->inode && a->device == b->device &&
           (a->born_ns == b->born_ns || a->born_ns == 0 || b->born_ns == 0);
}

bool stk_process_has_file(pid_t pid, const stk_proc_ours *ours)
{
    char path[64];
    STK_DIR_AUTO fds = {0};
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    if (ours->n_files == 0 || stk_dir_read(path, &fds, NULL) < 0) {
        return false;
    }
    for (uint32_t i = 0; i < fds.n; i++) {
        const char *fd = fds.items[i].name;
        stk_proc_file file = file_at(fds.fd, fd);
        for (uint32_t k = 0; file.inode != 0 && k < ours->n_files; k++) {
            const stk_proc_file *f = &ours->files[k];
            if (is_same_file(f, &file) &&
                (f->by_lock ? stk_proc_has_lock(pid, fd) : is_writer(&fds, fd))) {
                return true;
            }
        }
    }
    return false;
}

stk_proc_file stk_proc_file_of(int fd)
{
    int flags = -1;
    if (fd >= 0) {
        flags = fcntl(fd, F_GETFL);
    }
    stk_proc_file file = flags < 0 ? (stk_proc_file){0} : file_at(fd, "");
    file.by_lock = flags >= 0 && (flags & O_ACCMODE) == O_RDONLY;
    return file;
}

static bool has_open(pid_t pid, const stk_dir *fds, const char *path, bool by_lock)
{
    size_t len = strlen(path);
    for (uint32_t i = 0; i < fds->n; i++) {
        char target[PATH_MAX];
        const char *fd = fds->items[i].name;
        ssize_t n = readlinkat(fds->fd, fd, target, sizeof target);
        if (n > 0 && len == (size_t)n && memcmp(path, target, len) == 0 &&
            (by_lock ? stk_proc_has_lock(pid, fd) : is_writer(fds, fd))) {
            return true;
        }
    }
    return false;
}

static uint32_t find_who_has(const char *path, bool by_lock, pid_t *ret_pids, uint32_t n_max)
{
    STK_DIR_AUTO all = {0};
    uint32_t n = 0;
    int rc = stk_dir_read("/proc", &all, NULL);
    for (uint32_t i = 0; rc == 0 && n < n_max && i < all.n; i++) {
        pid_t pid = (pid_t)atoi(all.items[i].name);
        char name[64];
        STK_DIR_AUTO fds = {0};
        (void)snprintf(name, sizeof name, "/proc/%d/fd", (int)pid);
        if (pid > 1 && pid != getpid() && stk_dir_read(name, &fds, NULL) == 0 &&
            has_open(pid, &fds, path, by_lock)) {
            ret_pids[n++] = pid;
        }
    }
    return n;
}

uint32_t stk_proc_writers(const char *path, pid_t *ret_pids, uint32_t n_max)
{
    return find_who_has(path, false, ret_pids, n_max);
}

uint32_t stk_proc_lockers(const char *path, pid_t *ret_pids, uint32_t n_max)
{
    return find_who_has(path, true, ret_pids, n_max);
}
