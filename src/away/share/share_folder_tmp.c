/* Files that are being written in a shared folder: below .tmp, on the store's own file system,
 * until they get the name of their key. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "away/share/share_private.h"
#include "base/text.h"
#include "sys/dir.h"
#include "sys/faults.h"
#include "sys/file.h"

enum { LEFTOVER_S = 7 * 86400 };

bool stk_share_syncs(void)
{
    const char *sync = getenv("STOKER_SYNC");
    return sync == NULL || strcmp(sync, "0") != 0;
}

int stk_share_failed(const char *what, const char *path, stk_err *err)
{
    int sys = errno;
    return stk_err_sys(err, sys == ENOENT ? STK_E_NOT_FOUND : STK_E_SYS, sys, "can't %s '%s'", what,
                       path);
}

/* The error of an object, by its errno; 0: none. */
int stk_share_object_failed(const stk_share *share, const char *key, const char *what, int sys,
                            stk_err *err)
{
    if (sys == 0) {
        return 0;
    }
    if (sys == EEXIST) {
        return stk_share_taken(share, key, err);
    }
    if (sys == ELOOP) {
        return stk_share_behind_link(share, key, err);
    }
    return stk_err_sys(err, STK_E_SYS, sys, "can't %s '%s/%s'", what, share->folder, key);
}

/* An empty folder in the place of one that we have seen something in: what was mounted there isn't
 * any more, and what we would write into it nobody would find. */
static int check_mounted(const stk_share *share, stk_err *err)
{
    STK_DIR_AUTO dir = {0};
    bool is_empty = share->seen && stk_dir_read_if(share->folder, &dir, NULL) == 0 && dir.n == 0;
    if (is_empty) {
        return stk_err_set(err, STK_E_ENV, "store '%s' is empty now; is it mounted?", share->url);
    }
    return 0;
}

/* What a writer that died has left: nobody writes for a week. */
static void remove_leftovers(stk_share *share, int tmp)
{
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read_fd(tmp, share->folder, &dir, NULL);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        const char *name = dir.items[i].name;
        struct stat st;
        if (name[0] != '.' && fstatat(dir.fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            st.st_mtime < time(NULL) - LEFTOVER_S) {
            (void)unlinkat(dir.fd, name, 0);
        }
    }
}

/* In a project's folder it is no code: neither git nor a code package is to have it. */
static void keep_out(stk_share *share)
{
    static const char *const names[] = {".gitignore", ".stokerignore"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        STK_TEXT_AUTO path = stk_file_join(share->folder, names[i]);
        if (path != NULL && !stk_file_exists(path)) {
            (void)stk_file_write(path, "*\n", 2, 0644, NULL);
        }
    }
}

bool stk_share_is_temporary(const char *name)
{
    return strlen(name) == 32 && strspn(name, "0123456789abcdef") == 32;
}

void stk_share_temporary_done(stk_share_temporary *t)
{
    if (t->dir >= 0 && t->name[0] != '\0' && !t->stays) {
        (void)unlinkat(t->dir, t->name, 0);
    }
    stk_file_close(&t->dir);
}

/* -1 with errno: ELOOP where it is no folder, though the share is one. */
static int open_tmp(const stk_share *share)
{
    STK_FD_AUTO root = open(share->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root < 0) {
        return -1;
    }
    int fd = openat(root, ".tmp", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOTDIR) {
        errno = ELOOP;
    }
    return fd;
}

static int make_tmp(stk_share *share, int *ret_dir, stk_err *err)
{
    STK_TEXT_AUTO tmp = stk_file_join(share->folder, ".tmp");
    if (tmp == NULL) {
        return stk_share_no_memory(share, err);
    }
    STK_TRY(check_mounted(share, err));
    STK_TRY(stk_file_mkdirs(tmp, 0777, err));
    *ret_dir = open_tmp(share);
    if (*ret_dir >= 0) {
        return 0;
    }
    return stk_share_failed("open", tmp, err);
}

int stk_share_open_tmp(stk_share *share, int *ret_dir, stk_err *err)
{
    int dir = open_tmp(share);
    if (dir < 0 && errno == ENOENT) {
        STK_TRY(make_tmp(share, &dir, err));
    } else if (dir < 0 && errno == ELOOP) {
        return stk_share_behind_link(share, ".tmp", err);
    } else if (dir < 0) {
        return stk_share_failed("open the folder for temporary files in", share->folder, err);
    }
    if (!share->swept) {
        share->swept = share->seen = true;
        keep_out(share);
        remove_leftovers(share, dir);
    }
    *ret_dir = dir;
    return 0;
}

int stk_share_new_temporary(stk_share *share, stk_share_temporary *ret, stk_err *err)
{
    uint64_t random[2] = {0};
    STK_TRY(stk_share_open_tmp(share, &ret->dir, err));
    (void)!getrandom(random, sizeof random, 0);
    (void)snprintf(ret->name, sizeof ret->name, "%016llx%016llx", (unsigned long long)random[0],
                   (unsigned long long)random[1]);
    return 0;
}

/* What was written gets the name `to` in folder `at`, which must not be there yet. 0 or errno. */
static int link_new(const stk_share_temporary *t, int at, const char *to)
{
    struct stat st;
    if (linkat(t->dir, t->name, at, to, 0) == 0) {
        return 0;
    }
    int sys = errno;
    if (sys == EEXIST && fstatat(t->dir, t->name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
        st.st_nlink == 2) {
        return 0; /* NFS: it was our own, the answer got lost and the question was repeated */
    }
    if (sys == EPERM || sys == EOPNOTSUPP || sys == ENOSYS || sys == EMLINK) { /* no hard links */
        return renameat2(t->dir, t->name, at, to, RENAME_NOREPLACE) == 0 ? 0 : errno;
    }
    return sys;
}

static int sync_folder(int at)
{
    STK_FD_AUTO fd = openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    return fsync(fd);
}

/* Gives what was written its name. */
int stk_share_publish(stk_share *share, const stk_share_temporary *t, const char *key,
                      bool only_new, bool sync, stk_err *err)
{
    const char *last;
    STK_FD_AUTO at = stk_share_parent(share, key, true, &last);
    int sys = 0;
    if (at < 0) {
        sys = errno;
    } else if (only_new) {
        sys = link_new(t, at, last);
    } else if (renameat(t->dir, t->name, at, last) < 0) {
        sys = errno;
    }
    if (sys == 0 && sync && sync_folder(at) < 0) {
        return stk_share_failed("sync the folder of", key, err);
    }
    return stk_share_object_failed(share, key, "write", sys, err);
}
