#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/cgroup_bpf.h"
#include "sys/cgroup_private.h"

bool stk_cgroup_probe_v1(stk_cgroups *g, char *why, size_t why_size)
{
    static const char *const controllers[STK_CG_N_TREES] = {"memory", "cpu", "devices"};
    static const char *const limits[STK_CG_N_TREES] = {"memory.limit_in_bytes", "cpu.cfs_quota_us",
                                                       "devices.deny"};
    char dirs[STK_CG_N_TREES][PATH_MAX];
    for (int i = 0; i < STK_CG_N_TREES; i++) {
        size_t mount;
        char limit[PATH_MAX + 64];
        if (stk_cgroup_find(controllers[i], dirs[i], sizeof dirs[i], &mount) < 0) {
            dirs[i][0] = '\0';
            continue;
        }
        (void)snprintf(limit, sizeof limit, "%s/%s", dirs[i], limits[i]);
        if (access(dirs[i], W_OK) != 0) {
            (void)snprintf(why, why_size, "Stoker may not write %s", dirs[i]);
            dirs[i][0] = '\0';
        } else if (access(limit, F_OK) != 0 && i != STK_CG_CPU) {
            (void)snprintf(why, why_size, "%s has no file for a limit", dirs[i]);
            dirs[i][0] = '\0';
        }
    }
    if (dirs[STK_CG_MEMORY][0] == '\0') {
        return false;
    }
    g->kind = STK_CGROUP_V1;
    for (int i = 0; i < STK_CG_N_TREES; i++) {
        if (dirs[i][0] != '\0') {
            (void)snprintf(g->parents[i], sizeof g->parents[i], "%.3000s/%s", dirs[i], g->name);
        }
    }
    const char *cpu = stk_text_when(g->parents[STK_CG_CPU][0] != '\0', " and CPU");
    const char *devices = "accelerators are hidden by variables only";
    if (g->parents[STK_CG_DEVICES][0] != '\0') {
        devices = "a step can open only its own accelerators";
    }
    (void)snprintf(g->text, sizeof g->text,
                   "memory%s limited by control groups v1 under %.300s; %s", cpu,
                   dirs[STK_CG_MEMORY], devices);
    return true;
}

/* --- v2 --- */

static bool is_delegated(const char *dir)
{
    char value[8] = "";
    return (getxattr(dir, "user.delegate", value, sizeof value - 1) > 0 ||
            getxattr(dir, "trusted.delegate", value, sizeof value - 1) > 0) &&
           value[0] == '1';
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text);
    size_t n_end = strlen(end);
    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* True if this group has limits, so that leaving it would escape them. */
static bool is_limited(const char *dir)
{
    static const char *const files[] = {"memory.max", "memory.high", "cpu.max"};
    char text[64];
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (stk_cgroup_file_read(dir, files[i], text, sizeof text) == 0 &&
            strncmp(text, "max", 3) != 0) {
            return true;
        }
    }
    return false;
}

static bool is_below(const char *dir, const char *above)
{
    size_t n = strlen(above);
    return strncmp(dir, above, n) == 0 && (dir[n] == '/' || dir[n] == '\0');
}

static const char *devices_words(void)
{
    return stk_cgroup_bpf_can_close()
               ? "a step can open only its own accelerators"
               : "accelerators are hidden by environment variables only (closing them needs root)";
}

static bool can_hand_down(const char *dir)
{
    return access(dir, W_OK) == 0 && stk_cgroup_file_writable(dir, "cgroup.subtree_control") &&
           stk_cgroup_file_lists(dir, "cgroup.controllers", "memory");
}

/* `controllers`: the group whose controllers our groups will have. */
static void describe_v2(stk_cgroups *g, const char *where, const char *controllers)
{
    bool cpu = stk_cgroup_file_lists(controllers, "cgroup.controllers", "cpu");
    const char *of = "memory";
    const char *otherwise = "CPU by affinity only, the controller isn't handed down there; ";
    if (cpu) {
        of = "memory and CPU";
        otherwise = "";
    }
    (void)snprintf(g->text, sizeof g->text, "%s limited by control groups v2 %.300s; %s%s", of,
                   where, otherwise, devices_words());
}

static bool use_v2(stk_cgroups *g, const char *base, bool leaf, const char *how)
{
    char words[320];
    g->kind = STK_CGROUP_V2;
    g->leaf = leaf;
    (void)snprintf(g->base, sizeof g->base, "%s", base);
    (void)snprintf(g->parents[0], sizeof g->parents[0], "%.3000s/%s", base, g->name);
    const char *in = strcmp(how, "beside") == 0 ? "under" : "in";
    const char *delegated = stk_text_when(strcmp(how, "delegated") == 0, " (delegated)");
    (void)snprintf(words, sizeof words, "%s %.280s%s", in, base, delegated);
    describe_v2(g, words, base);
    return true;
}

/* True if moving from `own` to a place below `home` escapes no limit. */
static bool may_leave(const char *own, const char *home)
{
    char dir[PATH_MAX];
    (void)snprintf(dir, sizeof dir, "%s", own);
    while (!is_below(home, dir)) {
        char *slash = strrchr(dir, '/');
        if (slash == NULL || is_limited(dir)) {
            return false;
        }
        *slash = '\0';
    }
    return true;
}

/* True if a service manager (the user's, or root's) could give us a group. Only if our group is a
 * unit (a session, a service): other software made and watches the groups below a unit, such as a
 * batch system's jobs. */
static bool can_ask_systemd(stk_cgroups *g, const char *own, size_t mount)
{
    char home[PATH_MAX];
    char socket[PATH_MAX];
    unsigned uid = (unsigned)getuid();
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    (void)snprintf(home, sizeof home, "%.*s", (int)mount, own);
    (void)snprintf(socket, sizeof socket, "/run/dbus/system_bus_socket");
    if (uid != 0) {
        (void)snprintf(home, sizeof home, "%.*s/user.slice/user-%u.slice/user@%u.service",
                       (int)mount, own, uid, uid);
        (void)snprintf(socket, sizeof socket, "/run/user/%u/bus", uid);
    }
    if (uid != 0 && runtime != NULL) {
        (void)snprintf(socket, sizeof socket, "%.4000s/bus", runtime);
    }
    if (access(socket, W_OK) != 0 || access("/run/systemd/system", F_OK) != 0 ||
        access("/usr/bin/busctl", X_OK) != 0 ||
        !stk_cgroup_file_lists(home, "cgroup.controllers", "memory") ||
        !(ends_with(own, ".scope") || ends_with(own, ".service")) || !may_leave(own, home)) {
        return false;
    }
    g->kind = STK_CGROUP_V2_SCOPE;
    g->leaf = true;
    (void)snprintf(g->bus, sizeof g->bus, "--address=unix:path=%.4000s", socket);
    describe_v2(g,
                uid == 0 ? "in a scope of the system's service manager"
                         : "in a scope of the user's service manager",
                home);
    return true;
}

bool stk_cgroup_probe_v2(stk_cgroups *g, char *why, size_t why_size)
{
    char own[PATH_MAX];
    char dir[PATH_MAX];
    size_t mount;
    if (stk_cgroup_find("", own, sizeof own, &mount) < 0) {
        (void)snprintf(why, why_size, "no control groups v2 are mounted");
        return false;
    }
    (void)snprintf(dir, sizeof dir, "%s", own);
    if (ends_with(own, "/" STK_CG_LEAF)) { /* an engine ran here before: the group above is ours */
        *strrchr(dir, '/') = '\0';
        if (can_hand_down(dir)) {
            return use_v2(g, dir, false, "delegated");
        }
    }
    bool top = strlen(own) == mount;
    if (can_hand_down(own) && (top || is_delegated(own))) {
        /* The true root group may pass controllers down despite members; a container's root is a
         * group like others. */
        char type[32];
        bool root = stk_cgroup_file_read(own, "cgroup.type", type, sizeof type) < 0;
        return use_v2(g, own, !root, top ? "top" : "delegated");
    }
    if (can_ask_systemd(g, own, mount)) {
        return true;
    }
    /* Looks for a group above ours that we may write and that already passes memory down. */
    for (char *slash; strlen(dir) > mount && !is_limited(dir) && (slash = strrchr(dir, '/'));) {
        *slash = '\0';
        if (strlen(dir) >= mount && access(dir, W_OK) == 0 &&
            stk_cgroup_file_writable(dir, "cgroup.procs") &&
            stk_cgroup_file_lists(dir, "cgroup.subtree_control", "memory")) {
            return use_v2(g, dir, false, "beside");
        }
    }
    (void)snprintf(why, why_size, "%.200s %s", own,
                   is_limited(own)
                       ? "is limited, and not delegated to this user"
                       : "is not delegated to this user and no service manager answers");
    return false;
}
