/* A view of the file system of our own, for jobs on a node's own system: the folders of the
 * project and the store are empty and the job's, and our program is at /stoker, as in a container.
 * Then this program begins again inside. It needs no right but that of a user namespace. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "base/text.h"
#include "sys/dir.h"
#include "sys/faults.h"
#include "sys/file.h"

extern char **environ;

static int write_map(const char *path, const char *text, stk_err *err)
{
    STK_FD_AUTO fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || stk_file_write_all(fd, text, strlen(text)) < 0) {
        return stk_err_sys(err, STK_E_ENV, errno, "writing %s", path);
    }
    return 0;
}

/* A mount namespace; who may not make one makes it in a user namespace, in which we keep our own
 * number. */
static int leave_mounts(stk_err *err)
{
    char map[64];
    uid_t uid = geteuid();
    gid_t gid = getegid();
    if (unshare(CLONE_NEWNS) == 0) {
        return 0;
    }
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0) {
        stk_err_sys(err, STK_E_ENV, errno, "this node gives the job no view of its own");
        stk_err_hint(err, "its kernel has to let users make user namespaces "
                          "(user.max_user_namespaces)");
        return STK_E_ENV;
    }
    STK_TRY(write_map("/proc/self/setgroups", "deny", err));
    (void)snprintf(map, sizeof map, "%u %u 1", (unsigned)uid, (unsigned)uid);
    STK_TRY(write_map("/proc/self/uid_map", map, err));
    (void)snprintf(map, sizeof map, "%u %u 1", (unsigned)gid, (unsigned)gid);
    return write_map("/proc/self/gid_map", map, err);
}

static int bind(const char *from, const char *to, stk_err *err)
{
    if (mount(from, to, NULL, MS_BIND | MS_REC, NULL) < 0) {
        return stk_err_sys(err, STK_E_ENV, errno, "mounting %s at %s", from, to);
    }
    return 0;
}

static int lay_file(const char *from, const char *to, stk_err *err)
{
    STK_TRY(stk_file_write(to, "", 0, 0644, err));
    return bind(from, to, err);
}

/* One entry of the node's folder ("" is its root). */
static int lay_entry(const char *folder, const char *name, const char *root, stk_err *err)
{
    char from[PATH_MAX], to[PATH_MAX], target[PATH_MAX];
    struct stat st;
    if (snprintf(from, sizeof from, "%s/%s", folder, name) >= PATH_MAX ||
        snprintf(to, sizeof to, "%s%s/%s", root, folder, name) >= PATH_MAX ||
        lstat(from, &st) < 0 || (*folder == '\0' && strcmp(name, "stoker") == 0)) {
        return 0;
    }
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(from, target, sizeof target - 1);
        target[n < 0 ? 0 : n] = '\0';
        return n > 0 && symlink(target, to) < 0
                   ? stk_err_sys(err, STK_E_ENV, errno, "linking %s", to)
                   : 0;
    }
    if (S_ISREG(st.st_mode) && *folder != '\0') {
        return lay_file(from, to, err);
    }
    if (!S_ISDIR(st.st_mode)) {
        return 0;
    }
    STK_TRY(stk_file_mkdirs(to, 0755, err));
    return bind(from, to, err);
}

/* The entries of a node's folder in one of our own, in which we can make others. */
static int lay_folder(const char *folder, const char *root, stk_err *err)
{
    char to[PATH_MAX];
    STK_DIR_AUTO list = {0};
    (void)snprintf(to, sizeof to, "%s%s", root, folder);
    STK_TRY(stk_dir_read(*folder == '\0' ? "/" : folder, &list, err));
    if (mount("stoker", to, "tmpfs", 0, "mode=0755,size=4m") < 0) {
        return stk_err_sys(err, STK_E_ENV, errno, "making %s", to);
    }
    for (uint32_t i = 0; i < list.n; i++) {
        STK_TRY(lay_entry(folder, list.items[i].name, root, err));
    }
    return 0;
}

static int lay_root(const char *root, stk_err *err)
{
    STK_TRY(stk_file_mkdirs(root, 0755, err));
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        return stk_err_sys(err, STK_E_ENV, errno, "making %s", root);
    }
    return lay_folder("", root, err);
}

/* The node needn't have the user's own folders, and doesn't let everybody make them: the deepest
 * one that it has is laid out anew, with what is in it. */
static int make_folder(const char *root, const char *path, stk_err *err)
{
    char to[PATH_MAX], there[PATH_MAX];
    (void)snprintf(to, sizeof to, "%s%s", root, path);
    if (stk_file_mkdirs(to, 0755, err) == 0) {
        return 0;
    }
    (void)snprintf(there, sizeof there, "%s", path);
    for (char *slash = NULL; (slash = strrchr(there, '/')) != NULL && slash > there;) {
        *slash = '\0';
        if (stk_file_exists(there)) {
            STK_TRY(lay_folder(there, root, err));
            return stk_file_mkdirs(to, 0755, err);
        }
    }
    return err->code;
}

/* Puts `from` at `path` of the new root. */
static int lay_over(const char *root, const char *from, const char *path, stk_err *err)
{
    char to[PATH_MAX];
    (void)snprintf(to, sizeof to, "%s%s", root, path);
    if (make_folder(root, path, err) < 0) {
        return stk_err_context(err, "the node has no folder %s, and the job can't make it", path);
    }
    return bind(from, to, err);
}

/* Each of the paths between colons: `at`/<number> is put over it, or with `at` NULL the node's own.
 */
static int lay_paths(const char *root, const char *at, const char *paths, stk_err *err)
{
    uint32_t n = 0;
    const char *next = NULL;
    for (const char *path = stk_text_if_any(paths); path != NULL; path = next, n++) {
        char one[PATH_MAX], from[PATH_MAX];
        size_t len = strcspn(path, ":");
        next = path[len] == ':' ? path + len + 1 : NULL;
        (void)snprintf(one, sizeof one, "%.*s", (int)len, path);
        (void)snprintf(from, sizeof from, "%s", one);
        if (at != NULL) {
            (void)snprintf(from, sizeof from, "%s/%u", at, n);
            STK_TRY(stk_file_mkdirs(from, 0755, err));
        }
        STK_TRY(lay_over(root, from, one, err));
    }
    return 0;
}

int stk_agent_nest(const char *url, const char *key, stk_err *err)
{
    static const char program[] = "/stoker/bin/stoker";
    const char *at = getenv("STOKER_NEST_AT");
    const char *const argv[] = {program, "agent", url, key, NULL};
    char root[PATH_MAX], ours[PATH_MAX];
    if (at == NULL || *at != '/') {
        return 0;
    }
    (void)snprintf(root, sizeof root, "%s/root", at);
    (void)snprintf(ours, sizeof ours, "%s/stoker", at);
    STK_TRY(leave_mounts(err));
    STK_TRY(lay_root(root, err));
    STK_TRY(lay_over(root, ours, "/stoker", err));
    STK_TRY(lay_paths(root, at, getenv("STOKER_NEST_EMPTY"), err));
    STK_TRY(lay_paths(root, NULL, getenv("STOKER_NEST_KEEP"), err));
    (void)unsetenv("STOKER_NEST_AT");
    if (chroot(root) < 0 || chdir("/") < 0) {
        return stk_err_sys(err, STK_E_ENV, errno, "entering %s", root);
    }
    (void)execve(program, (char *const *)(uintptr_t)argv, environ);
    return stk_err_sys(err, STK_E_ENV, errno, "starting %s", program);
}
