#include "image/contain/stk_runner_user.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MAX = 1000 };

static bool read_number(const char *text, unsigned *ret)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    *ret = (unsigned)n;
    return *text >= '0' && *text <= '9' && *end == '\0' && n < 0xffffffffUL;
}

/* Reads the image's own file: no name service is used. */
static void find_passwd(const char *name, unsigned uid, bool by_uid, runner_user *u, bool *ret)
{
    FILE *f = fopen("/etc/passwd", "re");
    struct passwd *p;
    while (f != NULL && !*ret && (p = fgetpwent(f)) != NULL) {
        if (by_uid ? p->pw_uid == uid : strcmp(p->pw_name, name) == 0) {
            u->uid = p->pw_uid;
            u->gid = p->pw_gid;
            (void)snprintf(u->home, sizeof u->home, "%s", p->pw_dir);
            *ret = true;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
}

static void add_group(runner_user *u, gid_t gid)
{
    bool there = gid == u->gid;
    for (int i = 0; i < u->n_groups; i++) {
        there = there || u->groups[i] == gid;
    }
    if (!there && u->n_groups < RUNNER_GROUPS_MAX) {
        u->groups[u->n_groups++] = gid;
    }
}

/* Finds the group of this name (NULL: none wanted), and those that `member` is in. */
static bool find_groups(const char *name, const char *member, runner_user *u)
{
    FILE *f = fopen("/etc/group", "re");
    struct group *g;
    bool found = false;
    while (f != NULL && (g = fgetgrent(f)) != NULL) {
        if (name != NULL && strcmp(g->gr_name, name) == 0) {
            u->gid = g->gr_gid;
            found = true;
        }
        for (char **m = g->gr_mem; name == NULL && *m != NULL; m++) {
            if (strcmp(*m, member) == 0) {
                add_group(u, g->gr_gid);
            }
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return found;
}

bool runner_user_find(const char *user, const char *owner, runner_user *ret)
{
    char name[256];
    gid_t own[RUNNER_GROUPS_MAX];
    unsigned number = 0;
    bool known = false;
    *ret = (runner_user){0};
    if (*user == '\0') {
        return true;
    }
    const char *colon = strchr(user, ':');
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(user, ":"), user);
    bool by_uid = read_number(name, &number);
    ret->uid = number;
    find_passwd(name, number, by_uid, ret, &known);
    if (!known && !by_uid && strcmp(name, "root") != 0) { /* root exists without any file */
        return false;
    }
    if (colon != NULL && colon[1] != '\0') {
        if (read_number(colon + 1, &number)) {
            ret->gid = number;
        } else if (!find_groups(colon + 1, NULL, ret)) {
            return false;
        }
    } else if (!by_uid) {
        (void)find_groups(NULL, name, ret);
    }
    int n = getgroups(RUNNER_GROUPS_MAX, own); /* the devices' groups */
    for (int i = 0; i < n; i++) {
        if (own[i] != 0) {
            add_group(ret, own[i]);
        }
    }
    unsigned uid = 0, gid = 0;
    ret->is_set = sscanf(owner, "%u:%u", &uid, &gid) == 2;
    ret->owner_uid = uid;
    ret->owner_gid = gid;
    return ret->is_set;
}

/* --- the task's folders --- */

typedef struct handing {
    uid_t uid;
    gid_t gid; /* -1: unchanged */
    mode_t add;
    bool as_owner; /* gives the group the owner's rights: our starter is in it */
    bool failed;
} handing;

static void hand_one(handing *h, int at, const char *name, const struct stat *st)
{
    if (!S_ISREG(st->st_mode) && !S_ISDIR(st->st_mode) && !S_ISLNK(st->st_mode)) {
        return; /* devices and pipes keep their owner */
    }
    h->failed |= fchownat(at, name, h->uid, h->gid, AT_SYMLINK_NOFOLLOW) != 0;
    if (!S_ISLNK(st->st_mode)) {
        mode_t mode = st->st_mode & 0777;
        if (h->as_owner) {
            mode |= (mode & 0700) >> 3;
        }
        if (S_ISDIR(st->st_mode)) {
            mode |= h->add;
        }
        if (mode != (st->st_mode & 07777)) {
            h->failed |= fchmodat(at, name, mode, 0) != 0;
        }
    }
}

/* Hands a tree over; doesn't follow links or enter other file systems. */
static void hand_tree(handing *h, int fd, dev_t dev, int depth)
{
    DIR *dir = depth < DEPTH_MAX ? fdopendir(fd) : NULL;
    struct dirent *e;
    if (dir == NULL) {
        (void)close(fd);
        h->failed = true;
        return;
    }
    for (errno = 0; (e = readdir(dir)) != NULL; errno = 0) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || st.st_dev != dev) {
            continue;
        }
        hand_one(h, dirfd(dir), e->d_name, &st);
        if (S_ISDIR(st.st_mode)) {
            int below =
                openat(dirfd(dir), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (below >= 0) {
                hand_tree(h, below, dev, depth + 1);
            } else {
                h->failed = true;
            }
        }
    }
    h->failed |= errno != 0;
    (void)closedir(dir);
}

static void hand_all(handing *h, char *const *mounts)
{
    for (; *mounts != NULL; mounts++) {
        struct stat st;
        const char *path = *mounts + 1;
        int fd = **mounts == 'w' ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW) : -1;
        if (fd < 0) {
            continue;
        }
        if (fstat(fd, &st) == 0 && (S_ISDIR(st.st_mode) || S_ISREG(st.st_mode))) {
            hand_one(h, AT_FDCWD, path, &st);
        }
        if (S_ISDIR(st.st_mode)) {
            hand_tree(h, fd, st.st_dev, 0);
        } else {
            (void)close(fd);
        }
    }
}

/* Makes the container's own folders above a mount (an image's /root) passable for the program. */
static void let_pass(const char *path, dev_t root)
{
    char at[4096];
    struct stat st;
    size_t n = strlen(path);
    if (n >= sizeof at) {
        return;
    }
    memcpy(at, path, n + 1);
    for (size_t i = 1; i < n; i++) {
        if (at[i] != '/') {
            continue;
        }
        at[i] = '\0';
        if (stat(at, &st) == 0 && st.st_dev == root && (st.st_mode & 0001) == 0) {
            (void)chmod(at, (st.st_mode & 07777) | 0011);
        }
        at[i] = '/';
    }
}

void runner_user_give(const runner_user *user, char *const *mounts)
{
    struct stat root;
    handing h = {.uid = user->uid, .gid = (gid_t)-1, .as_owner = true};
    if (!user->is_set || user->uid == 0) {
        return; /* root needs no rights */
    }
    for (char *const *m = mounts; stat("/", &root) == 0 && *m != NULL; m++) {
        let_pass(*m + 1, root.st_dev);
    }
    hand_all(&h, mounts);
}

bool runner_user_take_back(const runner_user *user, char *const *mounts)
{
    handing h = {.uid = user->owner_uid, .gid = user->owner_gid, .add = 0700};
    if (user->is_set) {
        hand_all(&h, mounts);
    }
    return !h.failed;
}

int runner_user_become(const runner_user *user)
{
    struct stat st;
    const char *now = getenv("HOME");
    if (!user->is_set) {
        return 0;
    }
    /* Replaces the HOME of root that the engine set; keeps an image's own. */
    if (now == NULL || strcmp(now, "/root") == 0 || strcmp(now, "/") == 0) {
        bool has_home = user->home[0] == '/' && stat(user->home, &st) == 0 && S_ISDIR(st.st_mode);
        (void)setenv("HOME", has_home ? user->home : "/tmp", 1);
    }
    (void)fchown(STDOUT_FILENO, user->uid, (gid_t)-1); /* a pipe may be reopened by its name */
    (void)fchown(STDERR_FILENO, user->uid, (gid_t)-1);
    bool has_groups = user->n_groups > 0 || getgroups(0, NULL) > 0;
    if (setgroups((size_t)user->n_groups, user->groups) != 0 && has_groups) {
        return errno;
    }
    return setgid(user->gid) != 0 || setuid(user->uid) != 0 ? errno : 0;
}
