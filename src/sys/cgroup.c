#include "sys/cgroup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/cgroup_bpf.h"
#include "sys/cgroup_private.h"

stk_cgroups *stk_cgroups_find(const char *run)
{
    stk_cgroups *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return NULL;
    }
    (void)snprintf(g->name, sizeof g->name, "stoker-%.200s", run);
    const char *forced = getenv("STOKER_CGROUP");
    forced = stk_text_or(forced, "");
    char why2[300] = "STOKER_CGROUP excludes v2";
    char why1[300] = "no control groups v1 for memory are mounted";
    bool found = strcmp(forced, "none") != 0 &&
                 ((strcmp(forced, "v1") != 0 && stk_cgroup_probe_v2(g, why2, sizeof why2)) ||
                  (strcmp(forced, "v2") != 0 && stk_cgroup_probe_v1(g, why1, sizeof why1)));
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
    if (strcmp(forced, "none") != 0) {
        stk_cgroup_probe_gathering(g);
    }
    return g;
}

static void end_trees(const stk_cgroups *g)
{
    if (g->gathering[0] != '\0') {
        stk_cgroup_end_tree(g->gathering);
    }
    for (int i = 0; i < STK_CG_N_TREES; i++) {
        if (g->parents[i][0] != '\0') {
            stk_cgroup_end_tree(g->parents[i]);
        }
    }
}

stk_cgroups *stk_cgroups_open(const char *run)
{
    stk_cgroups *g = stk_cgroups_find(run);
    if (g != NULL) {
        end_trees(g); /* left by an engine that died in this run */
    }
    return g;
}

void stk_cgroups_close(stk_cgroups *groups)
{
    if (groups == NULL) {
        return;
    }
    end_trees(groups);
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

/* --- one group --- */

static int add_dir(stk_cgroup *group, const char *parent, const char *name, stk_err *err)
{
    char path[PATH_MAX + 300];
    (void)snprintf(path, sizeof path, "%s/%s", parent, name);
    if (mkdir(path, 0755) != 0) {
        if (errno == EEXIST) {
            stk_cgroup_end_members(path); /* left by an earlier start of the same attempt */
        } else {
            return stk_err_sys(err, STK_E_ENV, errno, "cannot make the control group %s", path);
        }
    }
    char procs[PATH_MAX + 320];
    (void)snprintf(procs, sizeof procs, "%s/cgroup.procs", path);
    group->paths[group->n] = strdup(path);
    group->procs[group->n] = strdup(procs);
    group->n++;
    if (group->paths[group->n - 1] == NULL || group->procs[group->n - 1] == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "control group %s", name);
    }
    return 0;
}

static int set_limit(const char *dir, const char *file, const char *value, bool optional,
                     stk_err *err)
{
    if (stk_cgroup_file_write(dir, file, value) < 0 &&
        !(optional && (errno == ENOENT || errno == EOPNOTSUPP))) {
        return stk_err_sys(err, STK_E_ENV, errno, "cannot set %s/%s to %s", dir, file, value);
    }
    return 0;
}

static int close_devices(stk_cgroups *g, const char *name, const stk_cgroup_limits *l,
                         stk_cgroup *ret, stk_err *err)
{
    if (l->n_closed == 0 || g->parents[STK_CG_DEVICES][0] == '\0') {
        return 0;
    }
    int rc = add_dir(ret, g->parents[STK_CG_DEVICES], name, err);
    for (uint32_t i = 0; i < l->n_closed && rc == 0; i++) {
        char node[48];
        (void)snprintf(node, sizeof node, "c %u:%u rwm", major(l->closed[i]), minor(l->closed[i]));
        rc = set_limit(ret->paths[ret->n - 1], "devices.deny", node, false, err);
    }
    return rc;
}

/* The CPU folder comes last; stk_cgroup_cpu_us relies on that. */
static int limit_v1(stk_cgroups *g, const char *name, const stk_cgroup_limits *l, stk_cgroup *ret,
                    stk_err *err)
{
    int64_t memory = l->memory_bytes;
    int64_t milli = l->cpu_milli;
    char value[32];
    int rc = 0;
    if (memory > 0) {
        (void)snprintf(value, sizeof value, "%lld", (long long)memory);
        rc = add_dir(ret, g->parents[STK_CG_MEMORY], name, err);
        const char *dir = ret->paths[ret->n - 1];
        if (rc == 0) {
            rc = set_limit(dir, "memory.limit_in_bytes", value, false, err);
        }
        /* Memory and swap together; the file is absent if the kernel doesn't count swap. */
        if (rc == 0) {
            rc = set_limit(dir, "memory.memsw.limit_in_bytes", value, true, err);
        }
    }
    STK_TRY(rc);
    rc = close_devices(g, name, l, ret, err);
    if (rc == 0 && milli > 0 && g->parents[STK_CG_CPU][0] != '\0') {
        (void)snprintf(value, sizeof value, "%lld", (long long)milli * 100);
        rc = add_dir(ret, g->parents[STK_CG_CPU], name, err);
        const char *dir = ret->paths[ret->n - 1];
        if (rc == 0) {
            rc = set_limit(dir, "cpu.cfs_period_us", "100000", true, err);
        }
        if (rc == 0) {
            rc = set_limit(dir, "cpu.cfs_quota_us", value, true, err);
        }
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
    if (rc == 0) { /* a run that the task starts makes its groups in this one */
        (void)setxattr(dir, "user.delegate", "1", 1, 0);
    }
    if (rc == 0 && memory > 0) {
        (void)snprintf(value, sizeof value, "%lld", (long long)memory);
        rc = set_limit(dir, "memory.max", value, false, err);
        if (rc == 0) {
            rc = set_limit(dir, "memory.swap.max", "0", true, err);
        }
        if (rc == 0) {
            rc = set_limit(dir, "memory.oom.group", l->one_by_one ? "0" : "1", true, err);
        }
    }
    if (rc == 0 && milli > 0) {
        (void)snprintf(value, sizeof value, "%lld 100000", (long long)milli * 100);
        rc = set_limit(dir, "cpu.max", value, true,
                       err); /* without a cpu controller, shares decide */
    }
    STK_TRY(rc);
    return stk_cgroup_bpf_close(dir, l->closed, l->n_closed, err);
}

bool stk_cgroups_can_close(const stk_cgroups *groups)
{
    if (groups->kind == STK_CGROUP_V1) {
        return groups->parents[STK_CG_DEVICES][0] != '\0';
    }
    return groups->kind != STK_CGROUP_NONE && stk_cgroup_bpf_can_close();
}

int stk_cgroup_new(stk_cgroups *groups, const char *name, const stk_cgroup_limits *limits,
                   stk_cgroup *ret, stk_err *err)
{
    *ret = (stk_cgroup){0};
    if (groups->kind == STK_CGROUP_NONE) {
        return stk_err_set(err, STK_E_ENV, "%s", groups->text);
    }
    if (!groups->made && !groups->broken) {
        groups->broken = stk_cgroup_make_parents(groups, &groups->why) < 0;
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

/* The folder with the memory files, or NULL if this group has no memory limit. */
static const char *memory_dir(const stk_cgroups *groups, const stk_cgroup *group)
{
    bool v1 = groups->kind == STK_CGROUP_V1;
    size_t n = strlen(groups->parents[STK_CG_MEMORY]);
    if (group->n == 0 || (v1 && strncmp(group->paths[0], groups->parents[STK_CG_MEMORY], n) != 0)) {
        return NULL;
    }
    return group->paths[0];
}

bool stk_cgroup_oom(const stk_cgroups *groups, const stk_cgroup *group)
{
    const char *dir = memory_dir(groups, group);
    const char *file = groups->kind == STK_CGROUP_V1 ? "memory.oom_control" : "memory.events";
    return dir != NULL &&
           stk_cgroup_file_field(dir, file, "oom_kill") > 0; /* not failcnt, which stays 0 in v1 */
}

static int64_t memory_number(const stk_cgroups *groups, const stk_cgroup *group, const char *v1,
                             const char *v2)
{
    const char *dir = memory_dir(groups, group);
    if (dir == NULL) {
        return -1;
    }
    return stk_cgroup_file_number(dir, groups->kind == STK_CGROUP_V1 ? v1 : v2);
}

int64_t stk_cgroup_peak(const stk_cgroups *groups, const stk_cgroup *group)
{
    return memory_number(groups, group, "memory.max_usage_in_bytes", "memory.peak");
}

int64_t stk_cgroup_memory(const stk_cgroups *groups, const stk_cgroup *group)
{
    return memory_number(groups, group, "memory.usage_in_bytes", "memory.current");
}

int64_t stk_cgroup_cpu_us(const stk_cgroups *groups, const stk_cgroup *group)
{
    if (group->n == 0) {
        return -1;
    }
    if (groups->kind != STK_CGROUP_V1) {
        return stk_cgroup_file_field(group->paths[0], "cpu.stat", "usage_usec");
    }
    /* Only where cpu and cpuacct are mounted together. */
    int64_t ns = stk_cgroup_file_number(group->paths[group->n - 1], "cpuacct.usage");
    return ns < 0 ? -1 : ns / 1000;
}

void stk_cgroup_kill(const stk_cgroups *groups, const stk_cgroup *group)
{
    (void)groups;
    for (uint32_t i = 0; i < group->n; i++) {
        stk_cgroup_end_members(group->paths[i]);
    }
}

void stk_cgroup_remove(stk_cgroups *groups, stk_cgroup *group)
{
    (void)groups;
    for (uint32_t i = 0; i < group->n; i++) {
        if (group->paths[i] != NULL) {
            stk_cgroup_remove_dir(group->paths[i]);
        }
        free(group->paths[i]);
        free(group->procs[i]);
    }
    *group = (stk_cgroup){0};
}
