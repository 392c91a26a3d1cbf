/* The group of a run's processes that have no limits: a mark that they can't leave, clear or close.
 * One tree is enough, if it has no limits of its own. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sys/cgroup_private.h"
#include "sys/proc.h"

void stk_cgroup_probe_gathering(stk_cgroups *g)
{
    static const char *const trees[] = {"freezer", "pids", "devices"}; /* v1 */
    char dir[PATH_MAX];
    char procs[PATH_MAX + 64];
    size_t mount;
    if (g->kind == STK_CGROUP_V2) {
        (void)snprintf(g->gathering, sizeof g->gathering, "%.3700s/rest", g->parents[0]);
        g->gathering_tree = "";
        return;
    }
    if (g->kind == STK_CGROUP_V2_SCOPE) {
        return; /* would need a call to the service manager */
    }
    for (size_t i = 0; i < sizeof trees / sizeof trees[0]; i++) {
        if (stk_cgroup_find(trees[i], dir, sizeof dir, &mount) < 0) {
            continue;
        }
        (void)snprintf(procs, sizeof procs, "%s/cgroup.procs", dir);
        if (access(dir, W_OK) == 0 && access(procs, W_OK) == 0) {
            (void)snprintf(g->gathering, sizeof g->gathering, "%.3700s/%s", dir, g->name);
            g->gathering_tree = trees[i];
            return;
        }
    }
}

bool stk_cgroups_can_gather(const stk_cgroups *groups)
{
    return groups != NULL && groups->gathering[0] != '\0';
}

/* True if the process is in a group of this run, in the tree that gathers:
 * "6:freezer:/…/stoker-<run>". A process that has ended counts as in it. */
static bool is_in_run(const stk_cgroups *g, pid_t pid)
{
    char dir[64];
    char text[2 * PATH_MAX];
    char key[64];
    (void)snprintf(dir, sizeof dir, "/proc/%d", (int)pid);
    (void)snprintf(key, sizeof key, ":%s:/", g->gathering_tree);
    if (stk_cgroup_file_read(dir, "cgroup", text, sizeof text) < 0) {
        return true;
    }
    char *path = strstr(text, key);
    if (path == NULL) {
        return false;
    }
    path[strcspn(path, "\n")] = '\0';
    size_t n = strlen(g->name);
    for (char *part = path; (part = strstr(part, g->name)) != NULL; part += n) {
        if (part[-1] == '/' && (part[n] == '\0' || part[n] == '/')) {
            return true;
        }
    }
    return false;
}

static int make_group(const stk_cgroups *g)
{
    if (g->kind == STK_CGROUP_V2 && mkdir(g->parents[0], 0755) != 0 && errno != EEXIST) {
        return -1;
    }
    return mkdir(g->gathering, 0755);
}

static bool has_pid(const pid_t *pids, uint32_t n, pid_t pid)
{
    for (uint32_t i = 0; i < n; i++) {
        if (pids[i] == pid) {
            return true;
        }
    }
    return false;
}

bool stk_cgroups_gather(const stk_cgroups *groups, pid_t engine, const pid_t *others,
                        uint32_t n_others)
{
    stk_proc_members found = {0};
    pid_t home = getsid(engine);
    bool moved = false;
    int rc = stk_proc_descendants(engine, &found);
    for (uint32_t i = 0; rc == 0 && i < found.n; i++) {
        pid_t pid = found.pids[i];
        char number[16];
        (void)snprintf(number, sizeof number, "%d", (int)pid);
        if (pid == getpid() || has_pid(others, n_others, pid) || getsid(pid) == home ||
            is_in_run(groups, pid)) {
            continue;
        }
        int done = stk_cgroup_file_write(groups->gathering, "cgroup.procs", number);
        if (done != 0 && errno == ENOENT && make_group(groups) == 0) {
            done = stk_cgroup_file_write(groups->gathering, "cgroup.procs", number);
        }
        moved = moved || done == 0;
    }
    stk_proc_members_done(&found);
    return moved;
}
