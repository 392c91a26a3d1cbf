#include "sys/trust.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/text.h"
#include "sys/file.h"

enum { LIST_BYTES = 1 << 20, ACCOUNT_BYTES = 16 << 10 };

/* --- owners and groups --- */

/* The user that sudo serves; -1: none. Only root may rely on it: other users can set SUDO_UID
 * freely. */
static int64_t sudo_user(void)
{
    const char *text = NULL;
    if (geteuid() == 0) {
        text = getenv("SUDO_UID");
    }
    char *end = NULL;
    unsigned long uid = 0;
    if (text != NULL && *text >= '0' && *text <= '9') {
        uid = strtoul(text, &end, 10);
    }
    return end != NULL && *end == '\0' && uid < UINT32_MAX ? (int64_t)uid : -1;
}

bool stk_trust_owner(uid_t uid)
{
    return uid == geteuid() || uid == 0 || (int64_t)uid == sudo_user();
}

/* True if no other local account has this as its primary group. Accounts of a directory service
 * can't all be listed. */
static bool is_first_of_one(gid_t gid, uid_t uid)
{
    char buf[ACCOUNT_BYTES];
    struct passwd pw;
    struct passwd *p = NULL;
    bool found = false;
    FILE *f = fopen("/etc/passwd", "re");
    bool others = f == NULL;
    while (!others && fgetpwent_r(f, &pw, buf, sizeof buf, &p) == 0) {
        found = found || p->pw_uid == uid;
        others = p->pw_gid == gid && p->pw_uid != uid;
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return found && !others;
}

/* True if this is the user's own group: the primary one, with the user's name or without other
 * members. */
static bool is_own_group(gid_t gid, uid_t uid)
{
    char user_buf[ACCOUNT_BYTES];
    char group_buf[ACCOUNT_BYTES];
    struct passwd pw;
    struct passwd *p = NULL;
    struct group gr;
    struct group *g = NULL;
    if (gid == 0) { /* root's */
        return true;
    }
    (void)getpwuid_r(uid, &pw, user_buf, sizeof user_buf, &p);
    (void)getgrgid_r(gid, &gr, group_buf, sizeof group_buf, &g);
    if (p == NULL || g == NULL) { /* a container's user without an account */
        return p == NULL && g == NULL && gid == uid;
    }
    if (p->pw_gid != gid) {
        return false;
    }
    if (strcmp(p->pw_name, g->gr_name) == 0) {
        return true;
    }
    for (char **member = g->gr_mem; *member != NULL; member++) {
        if (strcmp(*member, p->pw_name) != 0) {
            return false;
        }
    }
    return is_first_of_one(gid, uid);
}

static bool may_group_write(const struct stat *st)
{
    if ((st->st_mode & S_IWGRP) == 0 || S_ISLNK(st->st_mode)) {
        return false;
    }
    int64_t sudo = sudo_user();
    return !is_own_group(st->st_gid, geteuid()) &&
           (sudo < 0 || !is_own_group(st->st_gid, (uid_t)sudo));
}

static bool may_all_write(const struct stat *st)
{
    return (st->st_mode & S_IWOTH) != 0 && !S_ISLNK(st->st_mode);
}

void stk_trust_make_own(int fd)
{
    struct stat st;
    if (fstat(fd, &st) == 0 && st.st_uid == geteuid() &&
        (may_group_write(&st) || may_all_write(&st))) {
        (void)fchmod(fd, 0700);
    }
}

/* --- what was named --- */

char *stk_trust_config(const char *name)
{
    const char *config = getenv("XDG_CONFIG_HOME");
    const char *home = getenv("HOME");
    char buf[ACCOUNT_BYTES];
    struct passwd pw;
    struct passwd *p = NULL;
    if (config != NULL && config[0] == '/') {
        return stk_file_printf("%s/stoker/%s", config, name);
    }
    if (home == NULL || home[0] != '/') {
        (void)getpwuid_r(geteuid(), &pw, buf, sizeof buf, &p);
        home = p == NULL ? "/" : p->pw_dir;
    }
    return stk_file_printf("%s/.config/stoker/%s", home, name);
}

/* The file system's own id if it has one, because a device number can change at a reboot. */
static uint64_t file_system_of(int fd)
{
    struct statfs fs;
    uint64_t id = 0;
    _Static_assert(sizeof fs.f_fsid == sizeof id, "an id has 64 bits");
    if (fstatfs(fd, &fs) == 0) {
        memcpy(&id, &fs.f_fsid, sizeof id);
    }
    return id;
}

static bool is_same_file(const stk_trusted *t, int fd, const struct stat *st)
{
    return t->owner == st->st_uid && t->inode == (uint64_t)st->st_ino &&
           t->file_system == file_system_of(fd) && S_ISDIR(st->st_mode);
}

/* Opens with O_PATH, so that nothing at the path is triggered. */
static int open_path(const char *path)
{
    return open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
}

void stk_trust_free(stk_trusted *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        free(list[i].path);
    }
    free(list);
}

static int add_line(const char *line, stk_trusted **list, size_t *n)
{
    stk_trusted t = {0};
    unsigned owner = 0;
    int at = 0;
    if (sscanf(line, "%u %" SCNx64 " %" SCNu64 " %n", &owner, &t.file_system, &t.inode, &at) != 3 ||
        at == 0 || line[at] != '/') {
        return 0; /* a comment */
    }
    t.owner = owner;
    t.path = strdup(line + at);
    stk_trusted *more = reallocarray(*list, *n + 1, sizeof **list);
    if (t.path == NULL || more == NULL) {
        free(t.path);
        if (more != NULL) {
            *list = more;
        }
        return -1;
    }
    struct stat st;
    STK_FD_AUTO fd = open_path(t.path);
    t.is_current = fd >= 0 && fstat(fd, &st) == 0 && is_same_file(&t, fd, &st);
    more[(*n)++] = t;
    *list = more;
    return 0;
}

int stk_trust_list(stk_trusted **ret, size_t *ret_n, stk_err *err)
{
    STK_TEXT_AUTO file = stk_trust_config("trusted");
    STK_TEXT_AUTO text = NULL;
    stk_trusted *list = NULL;
    size_t n = 0;
    STK_TRY(stk_err_if_null(file, err));
    int rc = stk_file_read_untrusted(file, LIST_BYTES, &text, NULL, err);
    if (rc < 0 && rc != STK_E_NOT_FOUND) {
        return rc;
    }
    char *rest = NULL;
    char *line = NULL;
    if (rc >= 0) {
        line = strtok_r(text, "\n", &rest);
    }
    for (; line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        if (add_line(line, &list, &n) < 0) {
            stk_trust_free(list, n);
            return stk_err_nomem(err);
        }
    }
    *ret = list;
    *ret_n = n;
    return 0;
}

static bool was_named(const char *path, int fd, const struct stat *st)
{
    stk_trusted *list = NULL;
    size_t n = 0;
    bool found = false;
    if (!S_ISDIR(st->st_mode) || stk_trust_list(&list, &n, NULL) < 0) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        found = found || (strcmp(list[i].path, path) == 0 && is_same_file(&list[i], fd, st));
    }
    stk_trust_free(list, n);
    return found;
}

static int write_list(const stk_trusted *list, size_t n, stk_err *err)
{
    STK_TEXT_AUTO file = stk_trust_config("trusted");
    STK_BUF_AUTO out = STK_BUF_INIT(LIST_BYTES);
    STK_TRY(stk_err_if_null(file, err));
    stk_buf_text(&out, "# folders that this user trusts: owner, file system, inode, path\n");
    for (size_t i = 0; i < n; i++) {
        stk_buf_printf(&out, "%u %" PRIx64 " %" PRIu64 " %s\n", (unsigned)list[i].owner,
                       list[i].file_system, list[i].inode, list[i].path);
    }
    if (out.failed) {
        return stk_err_set(err, STK_E_LIMIT, "'%s' would have more than %d bytes", file,
                           (int)LIST_BYTES);
    }
    return stk_file_write_atomic(file, out.data, out.len, 0600, err);
}

/* Serialises commands that change the list. -1: it can't be locked; then two simultaneous commands
 * may lose one name. */
static int lock_list(void)
{
    STK_TEXT_AUTO file = stk_trust_config("trusted");
    STK_TEXT_AUTO lock = NULL;
    if (file == NULL || asprintf(&lock, "%s.lock", file) < 0) {
        lock = NULL;
        return -1;
    }
    int fd = stk_file_open_regular(lock, O_RDWR | O_CREAT, 0600);
    if (fd >= 0) {
        struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        (void)fcntl(fd, F_OFD_SETLKW, &all);
    }
    return fd;
}

/* Removes `path` from the list and frees it there. */
static bool drop(stk_trusted *list, size_t *n, const char *path)
{
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++) {
        if (strcmp(list[i].path, path) == 0) {
            free(list[i].path);
        } else {
            list[kept++] = list[i];
        }
    }
    bool was = kept < *n;
    *n = kept;
    return was;
}

int stk_trust_add(const char *folder, char **ret_path, stk_err *err)
{
    stk_trusted *list = NULL;
    size_t n = 0;
    struct stat st;
    STK_TEXT_AUTO path = realpath(folder, NULL);
    STK_FD_AUTO fd = -1;
    if (path != NULL) {
        fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    }
    if (fd < 0 || fstat(fd, &st) < 0) {
        return stk_err_sys(err, errno == ENOENT ? STK_E_NOT_FOUND : STK_E_USAGE, errno,
                           "can't trust the folder '%s'", folder);
    }
    if (strchr(path, '\n') != NULL) {
        return stk_err_set(err, STK_E_USAGE,
                           "can't trust a folder whose name has a line break; rename it");
    }
    if (may_all_write(&st)) {
        stk_err_set(err, STK_E_UNTRUSTED, "can't trust '%s': everybody may write it", path);
        stk_err_hint(err, "take that right away with 'chmod o-w', or name a folder below it");
        return STK_E_UNTRUSTED;
    }
    STK_TEXT_AUTO above = stk_trust_config("trusted");
    STK_TRY(stk_err_if_null(above, err));
    *strrchr(above, '/') = '\0';
    STK_TRY(stk_file_mkdirs(above, 0700, err));
    STK_FD_AUTO lock = lock_list();
    STK_TRY(stk_trust_list(&list, &n, err));
    int rc = 0;
    (void)drop(list, &n, path);
    stk_trusted *more = reallocarray(list, n + 1, sizeof *list);
    char *copy = more == NULL ? NULL : strdup(path);
    if (more != NULL) {
        list = more;
    }
    if (copy == NULL) {
        rc = stk_err_nomem(err);
    } else {
        list[n++] = (stk_trusted){.path = copy,
                                  .owner = st.st_uid,
                                  .inode = (uint64_t)st.st_ino,
                                  .file_system = file_system_of(fd)};
        rc = write_list(list, n, err);
    }
    stk_trust_free(list, n);
    if (rc == 0) {
        *ret_path = path;
        path = NULL;
    }
    return rc;
}

int stk_trust_remove(const char *folder, char **ret_path, bool *ret_was, stk_err *err)
{
    stk_trusted *list = NULL;
    size_t n = 0;
    STK_TEXT_AUTO path = realpath(folder, NULL); /* NULL: it no longer exists */
    if (path == NULL) {
        path = stk_file_absolute(folder);
    }
    STK_FD_AUTO lock = lock_list();
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_trust_list(&list, &n, err));
    int rc = 0;
    *ret_was = drop(list, &n, path);
    if (*ret_was) {
        rc = write_list(list, n, err);
    }
    stk_trust_free(list, n);
    if (rc == 0) {
        *ret_path = path;
        path = NULL;
    }
    return rc;
}

/* --- is it ours? --- */

typedef enum { OURS, FOREIGN, GROUP, ALL, ABOVE, LINK } reason;

static void say_account(unsigned id, const char *name, char *buf, size_t size)
{
    int n = snprintf(buf, size, "%u", id);
    if (name != NULL) {
        (void)snprintf(buf + n, size - (size_t)n, " (%s)", name);
    }
}

static void user_name(uid_t uid, char *buf, size_t size)
{
    char space[ACCOUNT_BYTES];
    struct passwd pw;
    struct passwd *p = NULL;
    (void)getpwuid_r(uid, &pw, space, sizeof space, &p);
    say_account(uid, p == NULL ? NULL : p->pw_name, buf, size);
}

static void group_name(gid_t gid, char *buf, size_t size)
{
    char space[ACCOUNT_BYTES];
    struct group gr;
    struct group *g = NULL;
    (void)getgrgid_r(gid, &gr, space, sizeof space, &g);
    say_account(gid, g == NULL ? NULL : g->gr_name, buf, size);
}

/* `real`: the sentence suggests its folder for `stoker trust`. */
static int refuse_path(const char *path, const char *real, reason why, const char *where,
                       const struct stat *st, stk_err *err)
{
    char who[200];
    const char *slash = strrchr(real, '/');
    int n_folder = slash == NULL || slash == real ? 1 : (int)(slash - real);
    if (why == FOREIGN) {
        user_name(st->st_uid, who, sizeof who);
        stk_err_set(err, STK_E_UNTRUSTED, "'%s' is not used: it belongs to user %s", path, who);
    } else if (why == GROUP) {
        group_name(st->st_gid, who, sizeof who);
        stk_err_set(err, STK_E_UNTRUSTED, "'%s' is not used: everybody in group %s may write it",
                    path, who);
    } else if (why == LINK) {
        user_name(st->st_uid, who, sizeof who);
        stk_err_set(err, STK_E_UNTRUSTED,
                    "'%s' is not used: its path leads through '%s', a link of user %s", path, where,
                    who);
    } else {
        char what[PATH_MAX + 16] = "it";
        if (why != ALL) {
            (void)snprintf(what, sizeof what, "'%s' above it", where);
        }
        stk_err_set(err, STK_E_UNTRUSTED, "'%s' is not used: everybody may write %s", path, what);
        stk_err_hint(err, "take that right away with 'chmod o-w'");
        return STK_E_UNTRUSTED;
    }
    stk_err_hint(err, "if you trust everybody who may write there: stoker trust %.*s", n_folder,
                 real);
    return STK_E_UNTRUSTED;
}

/* True if the path contains another user's link in a folder that everybody may write: its owner may
 * redirect it. */
static bool has_foreign_link(const char *path, char *where, size_t size, struct stat *ret_st)
{
    STK_TEXT_AUTO at = stk_file_absolute(path);
    bool in_shared = false;
    for (char *p = at; p != NULL && *p != '\0';) {
        p += 1 + strcspn(p + 1, "/");
        char keep = *p;
        struct stat st;
        *p = '\0';
        bool there = lstat(at, &st) == 0;
        if (there && S_ISLNK(st.st_mode) && in_shared && !stk_trust_owner(st.st_uid)) {
            (void)snprintf(where, size, "%s", at);
            *ret_st = st;
            return true;
        }
        in_shared = there && may_all_write(&st);
        *p = keep;
    }
    return false;
}

/* Cuts off the last part; false: it was "/". */
static bool go_up(char *at)
{
    char *slash = strrchr(at, '/');
    if (slash == NULL || at[1] == '\0') {
        return false;
    }
    slash[slash == at] = '\0';
    return true;
}

/* True if a folder above lets everybody replace what is there. */
static bool has_open_folder(const char *real, char *where, size_t size)
{
    (void)snprintf(where, size, "%s", real);
    while (go_up(where)) {
        struct stat st;
        if (lstat(where, &st) == 0 && may_all_write(&st) && (st.st_mode & S_ISVTX) == 0) {
            return true;
        }
    }
    return false;
}

/* True if it lies in a named folder. Stops at a folder where everybody may add files. */
static bool is_in_named(const char *real)
{
    char at[PATH_MAX];
    (void)snprintf(at, sizeof at, "%s", real);
    do {
        struct stat st;
        STK_FD_AUTO fd = open_path(at);
        if (fd < 0 || fstat(fd, &st) < 0) {
            continue; /* a folder that can't be examined can't have been named */
        }
        if (was_named(at, fd, &st)) {
            return true;
        }
        if (may_all_write(&st)) {
            return false;
        }
    } while (go_up(at));
    return false;
}

int stk_trust_fd(int fd, const char *path, stk_err *err)
{
    char name[64];
    char where[PATH_MAX] = "";
    char real[PATH_MAX];
    struct stat st;
    struct stat link;
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(name, real, sizeof real - 1);
    if (n < 0 || fstat(fd, &st) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "can't tell who owns '%s'", path);
    }
    real[n] = '\0';
    if (may_all_write(&st)) {
        return refuse_path(path, real, ALL, NULL, &st, err);
    }
    if (has_foreign_link(path, where, sizeof where, &link)) {
        return refuse_path(path, real, LINK, where, &link, err);
    }
    reason why = OURS;
    if (!stk_trust_owner(st.st_uid)) {
        why = FOREIGN;
    } else if (may_group_write(&st)) {
        why = GROUP;
    } else if (has_open_folder(real, where, sizeof where)) {
        why = ABOVE;
    }
    if (why != OURS && !is_in_named(real)) {
        return refuse_path(path, real, why, where, &st, err);
    }
    return 0;
}

int stk_trust_path(const char *path, stk_err *err)
{
    STK_FD_AUTO fd = open(path, O_PATH | O_CLOEXEC);
    if (fd < 0) {
        return stk_err_sys(err, stk_file_code(errno), errno, "can't open '%s'", path);
    }
    return stk_trust_fd(fd, path, err);
}

int stk_trust_open(const char *path, stk_err *err)
{
    /* Opens nothing for reading before it is known to be a file of ours: opening a pipe waits, and
     * opening a device can have effects. */
    STK_FD_AUTO fd = open(path, O_PATH | O_CLOEXEC);
    struct stat st;
    char name[64];
    int sys = stk_errno_if(fd < 0 || fstat(fd, &st) < 0);
    if (sys != 0) {
        return stk_err_sys(err, stk_file_code(sys), sys, "can't open '%s'", path);
    }
    if (!S_ISREG(st.st_mode)) {
        return stk_err_set(err, STK_E_USAGE, "'%s' is not a regular file", path);
    }
    STK_TRY(stk_trust_fd(fd, path, err));
    (void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int ret = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (ret >= 0) {
        return ret;
    }
    return stk_err_sys(err, STK_E_SYS, errno, "can't open '%s'", path);
}

int stk_trust_read(const char *path, size_t max, char **ret_data, size_t *ret_len, stk_err *err)
{
    STK_FD_AUTO fd = stk_trust_open(path, err);
    STK_TRY(fd);
    return stk_file_read_fd(fd, path, max, ret_data, ret_len, err);
}
