#include "sys/cgroup.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "sys/cgroup_bpf.h"
#include "sys/spawn.h"

/* v1: one folder a controller. v2: only the first. */
enum { MEMORY, CPU, DEVICES, N_TREES };

enum { TASK_WAIT_MS = 20, END_WAIT_MS = 2000 };

struct stk_cgroups {
    stk_cgroup_kind kind;
    char parents[N_TREES][PATH_MAX]; /* "…/stoker-<run>", "" where we have none */
    char name[300];                  /* "stoker-<run>" */
    char leaf[PATH_MAX]; /* V2 inside our own group: where its processes must move first, else "" */
    bool made;
    bool broken; /* making the parents failed: don't try for every task */
    stk_err why;
    char text[512];
};

/* --- small files --- */

static int read_at(const char *dir, const char *file, char *buf, size_t size)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t n = read(fd, buf, size - 1);
    (void)close(fd);
    if (n < 0) {
        return -1;
    }
    buf[n] = '\0';
    return 0;
}

static int write_at(const char *dir, const char *file, const char *text)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    ssize_t n = write(fd, text, strlen(text));
    int sys = errno;
    (void)close(fd);
    errno = sys;
    return n < 0 ? -1 : 0;
}

static int64_t number_at(const char *dir, const char *file)
{
    char text[64];
    if (read_at(dir, file, text, sizeof text) < 0 || !isdigit((unsigned char)text[0])) {
        return -1;
    }
    return strtoll(text, NULL, 10);
}

/* The value after "key " in a file of "key value" lines, -1 if absent. */
static int64_t field_at(const char *dir, const char *file, const char *key)
{
    char text[1024];
    size_t n = strlen(key);
    if (read_at(dir, file, text, sizeof text) < 0) {
        return -1;
    }
    for (char *p = text; p != NULL && *p != '\0';) {
        if (strncmp(p, key, n) == 0 && p[n] == ' ') {
            return strtoll(p + n + 1, NULL, 10);
        }
        p = strchr(p, '\n');
        p = p == NULL ? NULL : p + 1;
    }
    return -1;
}

static bool lists(const char *dir, const char *file, const char *word)
{
    char text[1024];
    if (read_at(dir, file, text, sizeof text) < 0) {
        return false;
    }
    for (char *save = NULL, *p = strtok_r(text, " \n", &save); p != NULL;
         p = strtok_r(NULL, " \n", &save)) {
        if (strcmp(p, word) == 0) {
            return true;
        }
    }
    return false;
}

static bool can_write(const char *dir, const char *file)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, file);
    return access(path, W_OK) == 0;
}

static void pause_ms(long ms)
{
    struct timespec wait = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&wait, NULL);
}

/* --- ending and removing --- */

/* SIGKILL to all members; true when there were none. */
static bool kill_members(const char *dir)
{
    char path[PATH_MAX + 64];
    (void)snprintf(path, sizeof path, "%s/cgroup.procs", dir);
    FILE *f = fopen(path, "re");
    int pid;
    bool none = true;
    while (f != NULL && fscanf(f, "%d", &pid) == 1) {
        if (pid > 0 && pid != getpid()) {
            (void)kill(pid, SIGKILL);
            none = false;
        }
    }
    if (f != NULL) {
        (void)fclose(f);
    }
    return none;
}

static void end_dir(const char *dir)
{
    (void)write_at(dir, "cgroup.kill", "1"); /* v2 from Linux 5.14 */
    for (int i = 0; i < 200 && !kill_members(dir); i++) {
        pause_ms(i < 10 ? 1 : 10);
    }
}

/* Its last process may be on its way out. */
static void remove_dir(const char *dir, int wait_ms)
{
    for (int i = 0; i < wait_ms && rmdir(dir) != 0 && errno == EBUSY; i++) {
        pause_ms(1);
    }
}

/* A group, its children (one level: we make no deeper ones) and every process in them. */
static void end_tree(const char *parent)
{
    DIR *dir = opendir(parent);
    struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
            char path[PATH_MAX + 260];
            (void)snprintf(path, sizeof path, "%s/%s", parent, entry->d_name);
            end_dir(path);
            remove_dir(path, END_WAIT_MS);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
        end_dir(parent);
        remove_dir(parent, END_WAIT_MS);
    }
}

/* --- probing --- */

static bool probe_v1(stk_cgroups *g, char *why, size_t why_size)
{
    static const char *const controllers[N_TREES] = {"memory", "cpu", "devices"};
    static const char *const limits[N_TREES] = {"memory.limit_in_bytes", "cpu.cfs_quota_us",
                                                "devices.deny"};
    char dirs[N_TREES][PATH_MAX];
    for (int i = 0; i < N_TREES; i++) {
        size_t mount;
        char limit[PATH_MAX + 64];
        if (stk_cgroup_find(controllers[i], dirs[i], sizeof dirs[i], &mount) < 0) {
            dirs[i][0] = '\0';
            continue;
        }
        (void)snprintf(limit, sizeof limit, "%s/%s", dirs[i], limits[i]);
        if (access(dirs[i], W_OK) != 0) {
            (void)snprintf(why, why_size, "%s is not ours to write", dirs[i]);
            dirs[i][0] = '\0';
        } else if (access(limit, F_OK) != 0 && i != CPU) {
            (void)snprintf(why, why_size, "%s has no limits", dirs[i]);
            dirs[i][0] = '\0';
        }
    }
    if (dirs[MEMORY][0] == '\0') {
        return false;
    }
    g->kind = STK_CGROUP_V1;
    for (int i = 0; i < N_TREES; i++) {
        if (dirs[i][0] != '\0') {
            (void)snprintf(g->parents[i], sizeof g->parents[i], "%.3000s/%s", dirs[i], g->name);
        }
    }
    (void)snprintf(
        g->text, sizeof g->text, "memory%s limited by control groups v1 under %.300s; %s",
        g->parents[CPU][0] != '\0' ? " and CPU" : "", dirs[MEMORY],
        g->parents[DEVICES][0] != '\0' ? "accelerators that a step was not given are closed to it"
                                       : "accelerators are hidden by variables only");
    return true;
}

static bool is_delegated(const char *dir)
{
    char value[8] = "";
    return (getxattr(dir, "user.delegate", value, sizeof value - 1) > 0 ||
            getxattr(dir, "trusted.delegate", value, sizeof value - 1) > 0) &&
           value[0] == '1';
}

/* Asks the user's service manager for a group of our own. busctl, because linking libdbus for one
 * call isn't worth it. Every child we have (the fork server) comes along. */
static bool can_ask_systemd(void)
{
    char path[PATH_MAX];
    const char *dir = getenv("XDG_RUNTIME_DIR");
    (void)snprintf(path, sizeof path, "%s/systemd/private", dir == NULL ? "" : dir);
    return dir != NULL && getuid() != 0 && access(path, F_OK) == 0 &&
           access("/usr/bin/busctl", X_OK) == 0;
}

static const char *v2_devices(void)
{
    return stk_cgroup_bpf_can_close() ? "accelerators that a step was not given are closed to it"
                                      : "accelerators are hidden by variables only (closing them "
                                        "there takes root)";
}

static bool probe_v2(stk_cgroups *g, char *why, size_t why_size)
{
    char own[PATH_MAX];
    size_t mount;
    if (stk_cgroup_find("", own, sizeof own, &mount) < 0) {
        (void)snprintf(why, why_size, "no control groups v2 are mounted");
        return false;
    }
    char dir[PATH_MAX];
    (void)snprintf(dir, sizeof dir, "%s", own);
    if (!lists(dir, "cgroup.controllers", "memory")) {
        (void)snprintf(why, why_size, "the memory controller isn't on v2 in %.200s", own);
        return false;
    }
    g->kind = STK_CGROUP_V2;
    /* A group above ours that is ours to write and already hands memory down: beside our own. */
    for (char *slash; strlen(dir) > mount && (slash = strrchr(dir, '/')) != NULL;) {
        *slash = '\0';
        if (strlen(dir) >= mount && access(dir, W_OK) == 0 && can_write(dir, "cgroup.procs") &&
            lists(dir, "cgroup.subtree_control", "memory")) {
            (void)snprintf(g->parents[0], sizeof g->parents[0], "%.3000s/%s", dir, g->name);
            (void)snprintf(g->text, sizeof g->text,
                           "memory and CPU limited by control groups v2 under %.300s; %s", dir,
                           v2_devices());
            return true;
        }
    }
    /* Inside our own group: its processes must move to a leaf first, so it has to be all ours. */
    if (access(own, W_OK) == 0 && can_write(own, "cgroup.subtree_control") &&
        (is_delegated(own) || strlen(own) == mount)) {
        (void)snprintf(g->parents[0], sizeof g->parents[0], "%.3000s/%s", own, g->name);
        (void)snprintf(g->leaf, sizeof g->leaf, "%.3000s/stoker-leaf", own);
        (void)snprintf(g->text, sizeof g->text,
                       "memory and CPU limited by control groups v2 in %.300s (delegated); %s", own,
                       v2_devices());
        return true;
    }
    if (can_ask_systemd()) {
        g->kind = STK_CGROUP_V2_SCOPE;
        (void)snprintf(g->text, sizeof g->text,
                       "memory and CPU limited by control groups v2 in a scope of the user's "
                       "service manager; %s",
                       v2_devices());
        return true;
    }
    (void)snprintf(why, why_size,
                   "%.200s is not delegated to this user and no user manager answers", own);
    g->kind = STK_CGROUP_NONE;
    return false;
}

stk_cgroups *stk_cgroups_open(const char *run)
{
    stk_cgroups *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return NULL;
    }
    (void)snprintf(g->name, sizeof g->name, "stoker-%.200s", run);
    const char *forced = getenv("STOKER_CGROUP");
    forced = forced == NULL ? "" : forced;
    char why2[300] = "v2 was not asked for";
    char why1[300] = "no control groups v1 for memory are mounted";
    bool found = strcmp(forced, "none") != 0 &&
                 ((strcmp(forced, "v1") != 0 && probe_v2(g, why2, sizeof why2)) ||
                  (strcmp(forced, "v2") != 0 && probe_v1(g, why1, sizeof why1)));
    if (!found) {
        g->kind = STK_CGROUP_NONE;
        if (strcmp(forced, "none") == 0) {
            (void)snprintf(g->text, sizeof g->text,
                           "memory is watched, not limited: STOKER_CGROUP=none");
        } else {
            (void)snprintf(g->text, sizeof g->text,
                           "memory is watched, not limited: %.200s; %.200s", why2, why1);
        }
    }
    for (int i = 0; i < N_TREES; i++) {
        if (g->parents[i][0] != '\0') {
            end_tree(g->parents[i]); /* of an engine that died in this run */
        }
    }
    return g;
}

void stk_cgroups_close(stk_cgroups *groups)
{
    if (groups == NULL) {
        return;
    }
    for (int i = 0; groups->made && i < N_TREES; i++) {
        if (groups->parents[i][0] != '\0') {
            end_tree(groups->parents[i]);
        }
    }
    free(groups);
}

stk_cgroup_kind stk_cgroups_kind(const stk_cgroups *groups)
{
    return groups->kind;
}

const char *stk_cgroups_describe(const stk_cgroups *groups)
{
    return groups->text;
}

/* --- the parent groups --- */

/* StartTransientUnit with our processes; it answers before the scope is there, so we look. */
static int ask_systemd(stk_cgroups *g, stk_err *err)
{
    char unit[320];
    char pids[512];
    char count[16];
    (void)snprintf(unit, sizeof unit, "%s.scope", g->name);
    const char *argv[64] = {"/usr/bin/busctl",
                            "--user",
                            "--quiet",
                            "call",
                            "org.freedesktop.systemd1",
                            "/org/freedesktop/systemd1",
                            "org.freedesktop.systemd1.Manager",
                            "StartTransientUnit",
                            "ssa(sv)a(sa(sv))",
                            unit,
                            "fail",
                            "2",
                            "Delegate",
                            "b",
                            "true",
                            "PIDs",
                            "au",
                            count};
    uint32_t n = 18;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    pids[0] = '\0';
    (void)read_at("/proc/self", path + strlen("/proc/self/"), pids, sizeof pids);
    char self[16];
    (void)snprintf(self, sizeof self, "%d", (int)getpid());
    uint32_t first = n;
    argv[n++] = self;
    for (char *save = NULL, *p = strtok_r(pids, " ", &save); p != NULL && n < 60;
         p = strtok_r(NULL, " ", &save)) {
        argv[n++] = p;
    }
    (void)snprintf(count, sizeof count, "%u", n - first);
    argv[n] = "0"; /* no auxiliary units */
    extern char **environ;
    stk_spawn spawn = {.argv = argv,
                       .env = (const char *const *)environ,
                       .stdin_fd = -1,
                       .stdout_fd = -1,
                       .stderr_fd = -1};
    pid_t pid;
    int rc = stk_sys_spawn(&spawn, &pid, NULL, err);
    if (rc < 0) {
        return rc;
    }
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    for (int i = 0; status == 0 && i < 100; i++) {
        char own[PATH_MAX];
        size_t mount;
        if (stk_cgroup_find("", own, sizeof own, &mount) == 0 && strstr(own, unit) != NULL) {
            (void)snprintf(g->parents[0], sizeof g->parents[0], "%.3000s/%s", own, g->name);
            (void)snprintf(g->leaf, sizeof g->leaf, "%.3000s/stoker-leaf", own);
            return 0;
        }
        pause_ms(10);
    }
    return stk_err_set(err, STK_E_ENV,
                       "the user's service manager did not give us the group %s (busctl ended with "
                       "%d); STOKER_CGROUP=none does without",
                       unit, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* v2: a group that hands controllers down may have no processes of its own. */
static int move_to_leaf(const char *own, const char *leaf, stk_err *err)
{
    if (mkdir(leaf, 0755) != 0 && errno != EEXIST) {
        return stk_err_sys(err, STK_E_ENV, errno, "cannot make the control group %s", leaf);
    }
    for (int round = 0; round < 100; round++) {
        char path[PATH_MAX + 64];
        (void)snprintf(path, sizeof path, "%s/cgroup.procs", own);
        FILE *f = fopen(path, "re");
        int pid;
        bool any = false;
        while (f != NULL && fscanf(f, "%d", &pid) == 1) {
            char text[16];
            (void)snprintf(text, sizeof text, "%d", pid);
            any = true;
            if (write_at(leaf, "cgroup.procs", text) < 0 && errno != ESRCH) {
                int sys = errno;
                (void)fclose(f);
                return stk_err_sys(err, STK_E_ENV, sys, "cannot move process %d into %s", pid,
                                   leaf);
            }
        }
        if (f != NULL) {
            (void)fclose(f);
        }
        if (!any) {
            return 0;
        }
    }
    return stk_err_set(err, STK_E_ENV, "processes keep appearing in %s", own);
}

static void enable(const char *dir)
{
    (void)write_at(dir, "cgroup.subtree_control", "+memory");
    (void)write_at(dir, "cgroup.subtree_control", "+cpu");
}

static int make_parents(stk_cgroups *g, stk_err *err)
{
    if (g->kind == STK_CGROUP_V2_SCOPE) {
        int rc = ask_systemd(g, err);
        if (rc < 0) {
            return rc;
        }
    }
    if (g->leaf[0] != '\0') {
        char own[PATH_MAX];
        (void)snprintf(own, sizeof own, "%s", g->leaf);
        *strrchr(own, '/') = '\0';
        int rc = move_to_leaf(own, g->leaf, err);
        if (rc < 0) {
            return rc;
        }
        enable(own);
    }
    for (int i = 0; i < N_TREES; i++) {
        if (g->parents[i][0] == '\0') {
            continue;
        }
        if (mkdir(g->parents[i], 0755) != 0 && errno != EEXIST) {
            return stk_err_sys(err, STK_E_ENV, errno, "cannot make the control group %s",
                               g->parents[i]);
        }
        g->made = true;
        if (g->kind == STK_CGROUP_V1) {
            (void)write_at(g->parents[i], "memory.use_hierarchy", "1"); /* always so since 5.11 */
        } else {
            enable(g->parents[i]);
        }
    }
    return 0;
}

/* --- one group --- */

static int add_dir(stk_cgroup *group, const char *parent, const char *name, stk_err *err)
{
    char path[PATH_MAX + 300];
    (void)snprintf(path, sizeof path, "%s/%s", parent, name);
    if (mkdir(path, 0755) != 0) {
        if (errno == EEXIST) {
            end_dir(path); /* of an earlier start of the same attempt */
        } else {
            return stk_err_sys(err, STK_E_ENV, errno, "cannot make the control group %s", path);
        }
    }
    char procs[PATH_MAX + 320];
    (void)snprintf(procs, sizeof procs, "%s/cgroup.procs", path);
    group->paths[group->n] = strdup(path);
    group->procs[group->n] = strdup(procs);
    group->n++;
    return group->paths[group->n - 1] == NULL || group->procs[group->n - 1] == NULL
               ? stk_err_sys(err, STK_E_NOMEM, ENOMEM, "control group %s", name)
               : 0;
}

static int set_limit(const char *dir, const char *file, const char *value, bool optional,
                     stk_err *err)
{
    if (write_at(dir, file, value) < 0 && !(optional && (errno == ENOENT || errno == EOPNOTSUPP))) {
        return stk_err_sys(err, STK_E_ENV, errno, "cannot set %s/%s to %s", dir, file, value);
    }
    return 0;
}

static int close_devices(stk_cgroups *g, const char *name, const stk_cgroup_limits *l,
                         stk_cgroup *ret, stk_err *err)
{
    if (l->n_closed == 0 || g->parents[DEVICES][0] == '\0') {
        return 0;
    }
    int rc = add_dir(ret, g->parents[DEVICES], name, err);
    for (uint32_t i = 0; i < l->n_closed && rc == 0; i++) {
        char node[48];
        (void)snprintf(node, sizeof node, "c %u:%u rwm", major(l->closed[i]), minor(l->closed[i]));
        rc = set_limit(ret->paths[ret->n - 1], "devices.deny", node, false, err);
    }
    return rc;
}

/* The CPU's folder is the last one: stk_cgroup_cpu_us counts on it. */
static int limit_v1(stk_cgroups *g, const char *name, const stk_cgroup_limits *l, stk_cgroup *ret,
                    stk_err *err)
{
    int64_t memory = l->memory_bytes;
    int64_t milli = l->cpu_milli;
    char value[32];
    int rc = 0;
    if (memory > 0) {
        (void)snprintf(value, sizeof value, "%lld", (long long)memory);
        rc = add_dir(ret, g->parents[MEMORY], name, err);
        const char *dir = ret->paths[ret->n - 1];
        rc = rc < 0 ? rc : set_limit(dir, "memory.limit_in_bytes", value, false, err);
        /* Memory and swap together; absent where the kernel doesn't count swap. */
        rc = rc < 0 ? rc : set_limit(dir, "memory.memsw.limit_in_bytes", value, true, err);
    }
    rc = rc < 0 ? rc : close_devices(g, name, l, ret, err);
    if (rc == 0 && milli > 0 && g->parents[CPU][0] != '\0') {
        (void)snprintf(value, sizeof value, "%lld", (long long)milli * 100);
        rc = add_dir(ret, g->parents[CPU], name, err);
        const char *dir = ret->paths[ret->n - 1];
        rc = rc < 0 ? rc : set_limit(dir, "cpu.cfs_period_us", "100000", true, err);
        rc = rc < 0 ? rc : set_limit(dir, "cpu.cfs_quota_us", value, true, err);
    }
    return rc;
}

static int limit_v2(stk_cgroups *g, const char *name, const stk_cgroup_limits *l, stk_cgroup *ret,
                    stk_err *err)
{
    int64_t memory = l->memory_bytes;
    int64_t milli = l->cpu_milli;
    char value[48];
    int rc = add_dir(ret, g->parents[0], name, err);
    const char *dir = ret->paths[0];
    if (rc == 0 && memory > 0) {
        (void)snprintf(value, sizeof value, "%lld", (long long)memory);
        rc = set_limit(dir, "memory.max", value, false, err);
        rc = rc < 0 ? rc : set_limit(dir, "memory.swap.max", "0", true, err);
        rc = rc < 0 ? rc : set_limit(dir, "memory.oom.group", "1", true, err);
    }
    if (rc == 0 && milli > 0) {
        (void)snprintf(value, sizeof value, "%lld 100000", (long long)milli * 100);
        rc = set_limit(dir, "cpu.max", value, true, err); /* no cpu controller: shares decide */
    }
    return rc < 0 ? rc : stk_cgroup_bpf_close(dir, l->closed, l->n_closed, err);
}

bool stk_cgroups_can_close(const stk_cgroups *groups)
{
    return groups->kind == STK_CGROUP_V1     ? groups->parents[DEVICES][0] != '\0'
           : groups->kind == STK_CGROUP_NONE ? false
                                             : stk_cgroup_bpf_can_close();
}

int stk_cgroup_new(stk_cgroups *groups, const char *name, const stk_cgroup_limits *limits,
                   stk_cgroup *ret, stk_err *err)
{
    *ret = (stk_cgroup){0};
    if (groups->kind == STK_CGROUP_NONE) {
        return stk_err_set(err, STK_E_ENV, "%s", groups->text);
    }
    if (!groups->made && !groups->broken) {
        groups->broken = make_parents(groups, &groups->why) < 0;
    }
    if (groups->broken) {
        if (err != NULL) {
            *err = groups->why;
        }
        return groups->why.code;
    }
    int rc = groups->kind == STK_CGROUP_V1 ? limit_v1(groups, name, limits, ret, err)
                                           : limit_v2(groups, name, limits, ret, err);
    if (rc < 0) {
        stk_cgroup_remove(groups, ret);
    }
    return rc;
}

/* The folder with the memory files, or NULL: this group has no memory limit. */
static const char *memory_dir(const stk_cgroups *groups, const stk_cgroup *group)
{
    bool v1 = groups->kind == STK_CGROUP_V1;
    size_t n = strlen(groups->parents[MEMORY]);
    if (group->n == 0 || (v1 && strncmp(group->paths[0], groups->parents[MEMORY], n) != 0)) {
        return NULL;
    }
    return group->paths[0];
}

bool stk_cgroup_oom(const stk_cgroups *groups, const stk_cgroup *group)
{
    const char *dir = memory_dir(groups, group);
    const char *file = groups->kind == STK_CGROUP_V1 ? "memory.oom_control" : "memory.events";
    return dir != NULL && field_at(dir, file, "oom_kill") > 0; /* not failcnt: v1 leaves it 0 */
}

int64_t stk_cgroup_peak(const stk_cgroups *groups, const stk_cgroup *group)
{
    const char *dir = memory_dir(groups, group);
    bool v1 = groups->kind == STK_CGROUP_V1;
    return dir == NULL ? -1 : number_at(dir, v1 ? "memory.max_usage_in_bytes" : "memory.peak");
}

int64_t stk_cgroup_memory(const stk_cgroups *groups, const stk_cgroup *group)
{
    const char *dir = memory_dir(groups, group);
    bool v1 = groups->kind == STK_CGROUP_V1;
    return dir == NULL ? -1 : number_at(dir, v1 ? "memory.usage_in_bytes" : "memory.current");
}

int64_t stk_cgroup_cpu_us(const stk_cgroups *groups, const stk_cgroup *group)
{
    if (group->n == 0) {
        return -1;
    }
    if (groups->kind != STK_CGROUP_V1) {
        return field_at(group->paths[0], "cpu.stat", "usage_usec");
    }
    /* Only where cpu and cpuacct are mounted together. */
    int64_t ns = number_at(group->paths[group->n - 1], "cpuacct.usage");
    return ns < 0 ? -1 : ns / 1000;
}

void stk_cgroup_kill(const stk_cgroups *groups, const stk_cgroup *group)
{
    (void)groups;
    for (uint32_t i = 0; i < group->n; i++) {
        end_dir(group->paths[i]);
    }
}

void stk_cgroup_remove(stk_cgroups *groups, stk_cgroup *group)
{
    (void)groups;
    for (uint32_t i = 0; i < group->n; i++) {
        if (group->paths[i] != NULL) {
            remove_dir(group->paths[i], TASK_WAIT_MS); /* else with its parent */
        }
        free(group->paths[i]);
        free(group->procs[i]);
    }
    *group = (stk_cgroup){0};
}
