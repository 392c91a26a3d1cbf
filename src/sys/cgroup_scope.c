#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sys/cgroup_private.h"
#include "sys/spawn.h"

enum { SCOPE_WAIT_MS = 3000, MAX_ARGS = 64 };

/* Calls the bus with minimal descriptors and environment. */
static int call_bus(const char *const *argv, int *ret_status, stk_err *err)
{
    stk_spawn spawn = {.argv = argv,
                       .env = (const char *const *)environ,
                       .stdin_fd = -1,
                       .stdout_fd = -1,
                       .stderr_fd = -1};
    pid_t pid;
    int rc = stk_sys_spawn(&spawn, &pid, NULL, err);
    while (rc == 0 && waitpid(pid, ret_status, 0) < 0 && errno == EINTR) {
    }
    return rc;
}

static bool is_in(const char *pid, const char *unit)
{
    char dir[64];
    char text[PATH_MAX];
    (void)snprintf(dir, sizeof dir, "/proc/%s", pid);
    return stk_cgroup_file_read(dir, "cgroup", text, sizeof text) == 0 &&
           strstr(text, unit) != NULL;
}

/* Our children (the guardian, the fork server, running tasks) outside the unit, as arguments after
 * the first `n`. `buf` holds their text. */
static uint32_t children_outside(const char *unit, char *buf, size_t size, const char **argv,
                                 uint32_t n)
{
    char file[64];
    (void)snprintf(file, sizeof file, "task/%d/children", (int)getpid());
    if (stk_cgroup_file_read("/proc/self", file, buf, size) < 0) {
        return n;
    }
    for (char *save = NULL, *p = strtok_r(buf, " ", &save); p != NULL && n < MAX_ARGS - 1;
         p = strtok_r(NULL, " ", &save)) {
        if (!is_in(p, unit)) {
            argv[n++] = p;
        }
    }
    return n;
}

#define MANAGER                                                                                    \
    "org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager"

/* Attaches the children after ourselves: systemd doesn't start a unit whose first process has just
 * ended. Children that still can't be moved are tasks without limits. */
static int attach_children(const stk_cgroups *g, const char *unit, stk_err *err)
{
    char pids[4096];
    char count[16];
    int rc = 0;
    for (int i = 0; rc == 0 && i < 5; i++) {
        const char *argv[MAX_ARGS] = {"/usr/bin/busctl",       g->bus, "--quiet", "call", MANAGER,
                                      "AttachProcessesToUnit", "ssau", unit,      "",     count};
        uint32_t first = 0;
        while (argv[first] != NULL) {
            first++;
        }
        uint32_t n = children_outside(unit, pids, sizeof pids, argv, first);
        (void)snprintf(count, sizeof count, "%u", n - first);
        int status = 0;
        if (n == first) {
            break;
        }
        rc = call_bus(argv, &status, err);
    }
    return rc;
}

/* Asks a service manager for a transient scope. Uses busctl, because linking libdbus for this isn't
 * worth it. The reply comes before the scope exists, so we poll for it. */
static int ask_systemd(stk_cgroups *g, stk_err *err)
{
    char unit[320];
    char self[16];
    (void)snprintf(unit, sizeof unit, "%s.scope", g->name);
    (void)snprintf(self, sizeof self, "%d", (int)getpid());
    const char *const argv[] = {
        "/usr/bin/busctl", g->bus, "--quiet", "call", MANAGER, "StartTransientUnit",
        "ssa(sv)a(sa(sv))", unit, "fail", "3", "Delegate", "b", "true",
        /* else an out-of-memory kill in a run leaves a failed unit behind */
        "CollectMode", "s", "inactive-or-failed", "PIDs", "au", "1", self,
        "0", /* no auxiliary units */
        NULL};
    int status = -1;
    int rc = call_bus(argv, &status, err);
    bool there = false;
    for (int i = 0; rc == 0 && status == 0 && !there && i < SCOPE_WAIT_MS / 10; i++) {
        there = is_in(self, unit);
        if (!there) {
            stk_cgroup_pause_ms(10);
        }
    }
    size_t mount;
    if (there && stk_cgroup_find("", g->base, sizeof g->base, &mount) == 0) {
        (void)snprintf(g->parents[0], sizeof g->parents[0], "%.3000s/%s", g->base, g->name);
        return attach_children(g, unit, err);
    }
    STK_TRY(rc);
    return stk_err_set(err, STK_E_ENV,
                       "the service manager did not make the group %s (busctl ended with %d); set "
                       "STOKER_CGROUP=none to run without groups",
                       unit, WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/* v2: a group that passes controllers down may have no processes of its own. */
static int move_to_leaf(const char *own, stk_err *err)
{
    char leaf[PATH_MAX + 16];
    (void)snprintf(leaf, sizeof leaf, "%s/" STK_CG_LEAF, own);
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
            if (stk_cgroup_file_write(leaf, "cgroup.procs", text) < 0 && errno != ESRCH) {
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
    (void)stk_cgroup_file_write(dir, "cgroup.subtree_control", "+memory");
    (void)stk_cgroup_file_write(dir, "cgroup.subtree_control", "+cpu");
}

int stk_cgroup_make_parents(stk_cgroups *g, stk_err *err)
{
    int rc = 0;
    if (g->kind == STK_CGROUP_V2_SCOPE) {
        rc = ask_systemd(g, err);
    }
    if (rc == 0 && g->leaf) {
        rc = move_to_leaf(g->base, err);
    }
    if (rc == 0 && g->base[0] != '\0') {
        enable(g->base);
    }
    for (int i = 0; rc == 0 && i < STK_CG_N_TREES; i++) {
        if (g->parents[i][0] == '\0') {
            continue;
        }
        if (mkdir(g->parents[i], 0755) != 0 && errno != EEXIST) {
            return stk_err_sys(err, STK_E_ENV, errno, "cannot make the control group %s",
                               g->parents[i]);
        }
        g->made = true;
        if (g->kind == STK_CGROUP_V1) { /* always so since Linux 5.11 */
            (void)stk_cgroup_file_write(g->parents[i], "memory.use_hierarchy", "1");
        } else {
            enable(g->parents[i]);
        }
    }
    return rc;
}
