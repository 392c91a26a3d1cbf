#include "run/run_environments.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sys/clock.h"
#include "sys/dir.h"
#include "sys/file.h"

extern int flock(int fd, int operation); /* the system's sys/file.h has the name of ours */

#define REMOVED "removed-" /* in front of the name of an environment that is being removed */
enum { NAME_LENGTH = 32 }; /* of the digest with which a folder's name begins */

/* Locks an environment that nobody has used since `before_s`; -1: it stays. */
static int lock_unused(const stk_dir *root, const char *name, int64_t before_s)
{
    char facts[PATH_MAX], making[PATH_MAX];
    struct stat st;
    (void)snprintf(facts, sizeof facts, "%s/stoker.json", name);
    (void)snprintf(making, sizeof making, "%.*s.lock", NAME_LENGTH, name);
    int fd = openat(root->fd, facts, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool finished = fd >= 0;
    if (!finished) {
        fd = openat(root->fd, making, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    }
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &st) == 0 &&
        st.st_mtime <= before_s && (finished || faccessat(root->fd, facts, F_OK, 0) < 0)) {
        return fd;
    }
    stk_file_close(&fd);
    return -1;
}

static int add_size(void *arg, const stk_dir_seen *seen, stk_err *err)
{
    (void)err;
    if (seen->st->st_nlink == 1) {
        *(int64_t *)arg += (int64_t)seen->st->st_blocks * 512;
    }
    return 0;
}

/* Gives it another name first, so that who asks for it meanwhile makes it anew. False: another `gc`
 * was faster, or the folder isn't ours. */
static bool hide(const stk_dir *root, const char *name, char ret[PATH_MAX])
{
    (void)snprintf(ret, PATH_MAX, REMOVED "%s", name);
    return renameat(root->fd, name, root->fd, ret) == 0;
}

/* One that can't be removed holds up no other. */
static void remove_hidden(const stk_dir *root, const char *name, int *ret_rc, stk_err *err)
{
    stk_err one = {0};
    int rc = stk_file_remove_tree_at(root->fd, name, &one);
    if (rc < 0 && *ret_rc == 0) { /* the first is told */
        *err = one;
        *ret_rc = rc;
    }
}

int stk_run_drop_environments(bool dry_run, stk_run_environments *environments, stk_err *err)
{
    STK_TEXT_AUTO folder = stk_file_cache("environments");
    STK_DIR_AUTO root = {0};
    int64_t before_s = (stk_clock_wall_ms(&stk_clock_real) - environments->keep_ms) / 1000;
    char hidden[PATH_MAX];
    int rc = 0;
    if (folder == NULL) {
        return 0;
    }
    STK_TRY(stk_dir_read_if(folder, &root, err));
    for (uint32_t i = 0; i < root.n; i++) {
        const char *name = root.items[i].name;
        if (strncmp(name, REMOVED, strlen(REMOVED)) == 0 && !dry_run) {
            remove_hidden(&root, name, &rc, err);
        }
        if (strspn(name, "0123456789abcdef") < NAME_LENGTH ||
            !stk_dir_is_folder(&root, &root.items[i])) {
            continue;
        }
        STK_FD_AUTO lock = lock_unused(&root, name, before_s);
        STK_TEXT_AUTO path = stk_file_join(folder, name);
        if (lock < 0 || path == NULL) {
            continue;
        }
        int64_t bytes = 0;
        if (stk_dir_walk(path, add_size, &bytes, NULL) < 0) {
            bytes = 0; /* a part can't be read */
        }
        if (!dry_run && !hide(&root, name, hidden)) {
            continue;
        }
        environments->n++;
        environments->bytes += bytes;
        if (!dry_run) {
            remove_hidden(&root, hidden, &rc, err);
        }
    }
    return rc;
}
