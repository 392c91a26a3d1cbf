/* The far end of ssh:// stores: files that come in pieces. They grow below .tmp, under a name that
 * the near end gives: of a file with a digest the same at each try, so that a try goes on where the
 * last one was cut. Pieces come out of order, but never far ahead of the first that is missing
 * (share_ssh_files.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/share/share_far.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/faults.h"
#include "sys/file.h"

/* Marks a file that more than one try has written: its content is summed before it gets its key. */
enum { MARK = S_IXUSR };

typedef struct part {
    stk_share *share;
    const char *key, *name;
    int dir, fd;
    struct stat st;
} part;

static void part_done(part *p)
{
    stk_file_close(&p->fd);
    stk_file_close(&p->dir);
}
#define PART_AUTO __attribute__((cleanup(part_done))) part
#define PART_INIT ((part){.dir = -1, .fd = -1})

/* Its name, in the open .tmp. */
static int find_part(const stk_json *ask, part *p, stk_err *err)
{
    STK_TRY(stk_share_far_open(ask, &p->share, &p->key, err));
    p->name = stk_json_get_text(ask, "part");
    if (p->name == NULL || !stk_share_is_temporary(p->name)) {
        return stk_err_set(err, STK_E_PROTOCOL, "a request has no valid name of a part");
    }
    return stk_share_open_tmp(p->share, &p->dir, err);
}

static int open_part(part *p, int flags)
{
    p->fd = openat(p->dir, p->name, flags | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (p->fd < 0) {
        return -1;
    }
    return fstat(p->fd, &p->st);
}

int stk_share_far_begin(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                        stk_buf *ret_body, stk_err *err)
{
    PART_AUTO p = PART_INIT;
    (void)body, (void)n, (void)ret_body;
    STK_TRY(find_part(ask, &p, err));
    if (stk_json_is_true(stk_json_get(ask, "anew"))) {
        (void)unlinkat(p.dir, p.name, 0);
    }
    if (open_part(&p, O_WRONLY | O_CREAT | O_EXCL) < 0) {
        if (errno != EEXIST || open_part(&p, O_WRONLY) < 0) {
            return stk_share_failed("write", p.key, err);
        }
        if (fchmod(p.fd, (p.st.st_mode & 0777) | MARK) < 0) {
            return stk_share_failed("go on with", p.key, err);
        }
    }
    stk_json_put_whole(ret, "size", p.st.st_size);
    stk_json_put_whole(ret, "ino", (int64_t)p.st.st_ino);
    stk_json_put_text(ret, "boot", stk_clock_boot_id());
    return 0;
}

/* Another one has finished it, or removed it. */
static int is_gone(const part *p, stk_err *err)
{
    return stk_err_set(err, STK_E_NOT_FOUND, "what came of '%s' isn't in store '%s' any more",
                       p->key, p->share->url);
}

static int open_same(const stk_json *ask, part *p, stk_err *err)
{
    int64_t ino = stk_json_get_whole(ask, "ino", -1);
    if (open_part(p, O_RDWR) < 0) {
        if (errno == ENOENT) {
            return is_gone(p, err);
        }
        return stk_share_failed("write", p->key, err);
    }
    if ((int64_t)p->st.st_ino != ino) {
        return is_gone(p, err);
    }
    return 0;
}

static int write_at(int fd, const char *data, size_t n, int64_t at)
{
    while (n > 0) {
        ssize_t put = pwrite(fd, data, n, at);
        if (put < 0 && errno != EINTR) {
            return -1;
        }
        if (put > 0) {
            data += put;
            n -= (size_t)put;
            at += put;
        }
    }
    return 0;
}

int stk_share_far_piece(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                        stk_buf *ret_body, stk_err *err)
{
    PART_AUTO p = PART_INIT;
    (void)ret, (void)ret_body;
    STK_TRY(find_part(ask, &p, err));
    STK_TRY(open_same(ask, &p, err));
    if (write_at(p.fd, body, n, stk_json_get_whole(ask, "at", 0)) < 0) {
        int rc = stk_share_failed("write", p.key, err);
        if (rc == STK_E_FULL) { /* it is given up, and the room that it had is free */
            (void)!ftruncate(p.fd, 0);
        }
        return stk_share_name_full(p.share, p.key, stk_json_get_whole(ask, "size", 0), rc, err);
    }
    return 0;
}

/* The object is there, and it is this file: the answer to the first try was lost, or another
 * machine has sent the same content. */
static bool is_published(const part *p, int64_t ino, int64_t size, const char *digest)
{
    struct stat st;
    const char *last;
    STK_FD_AUTO at = stk_share_parent(p->share, p->key, false, &last);
    return at >= 0 && fstatat(at, last, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
           st.st_size == size && ((int64_t)st.st_ino == ino || digest != NULL);
}

/* Is all there, as it was sent? */
static int check_part(const stk_json *ask, const part *p, const char *digest, stk_err *err)
{
    char path[96];
    bool same_boot =
        stk_text_same(stk_json_get_text(ask, "boot"), stk_text_if_any(stk_clock_boot_id()));
    bool is_whole = p->st.st_size == stk_json_get_whole(ask, "size", -1);
    if (!is_whole || (!same_boot && digest == NULL)) {
        return stk_err_set(err, STK_E_STORE, "what came of '%s' in store '%s' isn't whole", p->key,
                           p->share->url);
    }
    if (digest == NULL || (same_boot && (p->st.st_mode & MARK) == 0)) {
        return 0;
    }
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d/%s", p->dir, p->name);
    return stk_share_verify(p->share, path, p->key, digest, err);
}

static int settle_mode(const stk_json *ask, const part *p, const char *digest, stk_err *err)
{
    mode_t mode = p->st.st_mode & 0777 & ~(mode_t)MARK;
    bool syncs = digest == NULL && stk_share_syncs();
    if (digest != NULL) {
        mode = stk_json_is_true(stk_json_get(ask, "x")) ? 0555 : 0444;
    }
    if (fchmod(p->fd, mode) < 0) {
        return stk_share_failed("set the mode of", p->key, err);
    }
    if (syncs && fdatasync(p->fd) < 0) {
        return stk_share_failed("sync", p->key, err);
    }
    return 0;
}

int stk_share_far_end(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                      stk_buf *ret_body, stk_err *err)
{
    PART_AUTO p = PART_INIT;
    const char *digest = stk_json_get_text(ask, "digest");
    int64_t ino = stk_json_get_whole(ask, "ino", -1), size = stk_json_get_whole(ask, "size", -1);
    bool only_new = stk_json_is_true(stk_json_get(ask, "only_new"));
    (void)body, (void)n, (void)ret, (void)ret_body;
    STK_TRY(find_part(ask, &p, err));
    int rc = open_same(ask, &p, err);
    if (rc == STK_E_NOT_FOUND && is_published(&p, ino, size, digest)) {
        return 0;
    }
    STK_TRY(rc);
    if (only_new && is_published(&p, ino, size, NULL)) {
        return 0;
    }
    STK_TRY(check_part(ask, &p, digest, err));
    STK_TRY(settle_mode(ask, &p, digest, err));
    stk_share_temporary t = {.dir = p.dir, .stays = true};
    (void)snprintf(t.name, sizeof t.name, "%s", p.name);
    return stk_share_publish(p.share, &t, p.key, only_new, digest == NULL && stk_share_syncs(),
                             err);
}

int stk_share_far_drop(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                       stk_buf *ret_body, stk_err *err)
{
    PART_AUTO p = PART_INIT;
    (void)body, (void)n, (void)ret, (void)ret_body;
    STK_TRY(find_part(ask, &p, err));
    (void)unlinkat(p.dir, p.name, 0);
    return 0;
}
