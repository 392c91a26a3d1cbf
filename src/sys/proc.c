#include "sys/proc.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/arena.h"
#include "sys/cgroup.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/proc_private.h"

enum { MAX_CPUS = 8192, MAX_PROCESSES = 4 << 20 };

/* --- small reads --- */

/* Reads up to size - 1 bytes; -1 if it can't be opened or read. */
static ssize_t read_text(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    size_t used = 0;
    while (used < size - 1) {
        size_t room = size - 1 - used;
        ssize_t n = read(fd, buf + used, room);
        if (n < 0 && used == 0) {
            (void)close(fd);
            return -1;
        }
        if (n > 0) {
            used += (size_t)n;
        }
        if (n < (ssize_t)room && n < 1024) {
            break; /* the kernel fills the buffer if it can, so a short read is the last */
        }
    }
    (void)close(fd);
    buf[used] = '\0';
    return (ssize_t)used;
}

ssize_t stk_proc_read(pid_t pid, const char *name, char *ret, size_t size)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    ret[0] = '\0';
    return read_text(path, ret, size);
}

const char *stk_proc_name(pid_t pid, char *ret, size_t size)
{
    (void)stk_proc_read(pid, "comm", ret, size);
    ret[strcspn(ret, "\n")] = '\0';
    return ret;
}

const char *stk_proc_user(uid_t uid, char ret[48])
{
    const struct passwd *user = getpwuid(uid);
    (void)snprintf(ret, 48, "%u", (unsigned)uid);
    if (user != NULL) {
        (void)snprintf(ret, 48, "%.40s", user->pw_name);
    }
    return ret;
}

/* Bytes of a "Key:   123 kB" line of a /proc file, -1 if absent. */
static int64_t kb_line(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (const char *p = text; p != NULL; p = strchr(p, '\n')) {
        p += *p == '\n';
        if (strncmp(p, key, n) == 0 && p[n] == ':') {
            return strtoll(p + n + 1, NULL, 10) * 1024;
        }
    }
    return -1;
}

/* --- this host --- */

static size_t affinity(cpu_set_t **ret_set)
{
    size_t size = CPU_ALLOC_SIZE(MAX_CPUS);
    *ret_set = CPU_ALLOC(MAX_CPUS);
    if (*ret_set == NULL) {
        return 0;
    }
    CPU_ZERO_S(size, *ret_set);
    if (sched_getaffinity(0, size, *ret_set) != 0) {
        CPU_FREE(*ret_set);
        *ret_set = NULL;
        return 0;
    }
    return size;
}

/* The lowest value over our group and all groups above it; `read_one` returns -1 for "no limit". */
static int64_t lowest_limit(const char *controller, int64_t (*read_one)(const char *dir))
{
    char dir[PATH_MAX];
    size_t mount = 0;
    if (stk_cgroup_find(controller, dir, sizeof dir, &mount) < 0) {
        return -1;
    }
    int64_t lowest = -1;
    for (;;) {
        int64_t value = read_one(dir);
        if (value >= 0 && (lowest < 0 || value < lowest)) {
            lowest = value;
        }
        char *slash = strrchr(dir, '/');
        if (slash == NULL || (size_t)(slash - dir) < mount) {
            return lowest;
        }
        *slash = '\0';
    }
}

static int64_t number_in(const char *dir, const char *name)
{
    char path[PATH_MAX + 64];
    char text[64];
    (void)snprintf(path, sizeof path, "%s/%s", dir, name);
    if (read_text(path, text, sizeof text) <= 0 || !isdigit((unsigned char)text[0])) {
        return -1;
    }
    int64_t value = strtoll(text, NULL, 10);
    return value >= (INT64_C(1) << 60) ? -1 : value; /* v1 writes "no limit" as a huge number */
}

static int64_t v1_milli(const char *dir)
{
    int64_t quota = number_in(dir, "cpu.cfs_quota_us");
    int64_t period = number_in(dir, "cpu.cfs_period_us");
    return quota > 0 && period > 0 ? quota * 1000 / period : -1;
}

static int64_t v2_milli(const char *dir)
{
    char path[PATH_MAX + 64];
    char text[64];
    long long quota;
    long long period;
    (void)snprintf(path, sizeof path, "%s/cpu.max", dir);
    if (read_text(path, text, sizeof text) <= 0 ||
        sscanf(text, "%lld %lld", &quota, &period) != 2) {
        return -1;
    }
    return quota > 0 && period > 0 ? quota * 1000 / period : -1;
}

static int64_t v1_memory(const char *dir)
{
    return number_in(dir, "memory.limit_in_bytes");
}

static int64_t v2_memory(const char *dir)
{
    return number_in(dir, "memory.max");
}

/* The part of `limit` that is still free according to the counter `file`; -1: no limit or no
 * counter. */
static int64_t left_of(int64_t limit, const char *dir, const char *file)
{
    int64_t used = number_in(dir, file);
    if (limit < 0 || used < 0) {
        return -1;
    }
    return MAX(limit - used, 0);
}

static int64_t v1_memory_left(const char *dir)
{
    return left_of(v1_memory(dir), dir, "memory.usage_in_bytes");
}

static int64_t v2_memory_left(const char *dir)
{
    return left_of(v2_memory(dir), dir, "memory.current");
}

static int64_t lower(int64_t a, int64_t b)
{
    if (a < 0 || b < 0) {
        return MAX(a, b);
    }
    return MIN(a, b);
}

int64_t stk_proc_cpu_milli(void)
{
    cpu_set_t *set = NULL;
    size_t size = affinity(&set);
    int64_t n = size > 0 ? CPU_COUNT_S(size, set) : sysconf(_SC_NPROCESSORS_ONLN);
    if (set != NULL) {
        CPU_FREE(set);
    }
    return lower(MAX(n, 1) * 1000,
                 lower(lowest_limit("cpu", v1_milli), lowest_limit("", v2_milli)));
}

uint32_t stk_proc_n_cpus(void)
{
    return (uint32_t)MAX(stk_proc_cpu_milli() / 1000, 1);
}

uint32_t stk_proc_cpus(uint32_t *ret_cpus, uint32_t n_max)
{
    cpu_set_t *set = NULL;
    size_t size = affinity(&set);
    uint32_t n = 0;
    for (uint32_t i = 0; size > 0 && i < MAX_CPUS && n < n_max; i++) {
        if (CPU_ISSET_S(i, size, set)) {
            ret_cpus[n++] = i;
        }
    }
    if (set != NULL) {
        CPU_FREE(set);
    }
    return n;
}

int64_t stk_proc_memory_bytes(void)
{
    struct sysinfo info;
    int64_t ram = sysinfo(&info) == 0 ? (int64_t)info.totalram * (int64_t)info.mem_unit : -1;
    return lower(ram, lower(lowest_limit("memory", v1_memory), lowest_limit("", v2_memory)));
}

int64_t stk_proc_available_bytes(void)
{
    char text[4096];
    int64_t free_bytes = -1;
    if (read_text("/proc/meminfo", text, sizeof text) > 0) {
        free_bytes = kb_line(text, "MemAvailable");
    }
    return lower(free_bytes,
                 lower(lowest_limit("memory", v1_memory_left), lowest_limit("", v2_memory_left)));
}

/* --- one process --- */

typedef stk_process process;

/* The name may hold anything, so fields are counted from its last ')'. */
bool stk_proc_parse(const char *text, pid_t pid, stk_process *ret)
{
    const char *p = strrchr(text, ')');
    if (p == NULL || p[1] != ' ') {
        return false;
    }
    *ret = (stk_process){.pid = pid, .state = p[2]};
    p += 3;
    for (int field = 4; field <= 24 && *p != '\0'; field++) {
        char *end;
        unsigned long long value = strtoull(p, &end, 10); /* negative values wrap; we use none */
        if (end == p) {
            return false;
        }
        p = end;
        switch (field) {
        case 4:
            ret->parent = (pid_t)value;
            break;
        case 6:
            ret->session = (pid_t)value;
            break;
        case 14:
        case 15:
        case 16:
        case 17:
            ret->cpu_ticks += (int64_t)value;
            break;
        case 20:
            ret->n_threads = (int64_t)value;
            break;
        case 22:
            ret->start = value;
            break;
        case 24:
            ret->rss_pages = (int64_t)value;
            return true;
        default:
            break;
        }
    }
    return false;
}

static bool read_process(pid_t pid, process *ret)
{
    char path[64];
    char text[1024];
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    return read_text(path, text, sizeof text) > 0 && stk_proc_parse(text, pid, ret);
}

uint64_t stk_proc_start_time(pid_t pid)
{
    process p;
    return read_process(pid, &p) && !stk_process_is_dead(&p) ? p.start : 0;
}

bool stk_proc_has_env(pid_t pid, const char *text)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return false;
    }
    size_t want = strlen(text);
    char buf[4096];
    size_t matched =
        0; /* bytes of `text` that match the current entry so far; SIZE_MAX: mismatch */
    bool found = false;
    ssize_t n;
    while (!found && (n = read(fd, buf, sizeof buf)) > 0) {
        for (ssize_t i = 0; i < n && !found; i++) {
            if (buf[i] == '\0') {
                found = matched == want;
                matched = 0;
            } else if (matched != SIZE_MAX) {
                matched = matched < want && buf[i] == text[matched] ? matched + 1 : SIZE_MAX;
            }
        }
    }
    (void)close(fd);
    return found;
}

/* --- lists of processes --- */

static int add_pid(stk_proc_members *list, pid_t pid)
{
    if (list->n == MAX_PROCESSES) {
        return STK_E_NOMEM;
    }
    STK_TRY(stk_array_reserve(&list->pids, &list->cap, list->n + 1, sizeof *list->pids));
    list->pids[list->n++] = pid;
    return 0;
}

/* Lists the children of one thread. -1: this kernel does not list them, or the thread has ended. */
static int add_children_of(pid_t pid, pid_t tid, stk_proc_members *list)
{
    char path[80];
    char buf[4096];
    (void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }
    pid_t number = 0;
    ssize_t n;
    int rc = 0;
    while (rc == 0 && (n = read(fd, buf, sizeof buf)) > 0) {
        for (ssize_t i = 0; i < n && rc == 0; i++) {
            if (isdigit((unsigned char)buf[i])) {
                number = number * 10 + (buf[i] - '0');
            } else if (number != 0) {
                rc = add_pid(list, number);
                number = 0;
            }
        }
    }
    (void)close(fd);
    return rc;
}

static int add_children(pid_t pid, int64_t n_threads, stk_proc_members *list)
{
    if (n_threads <= 1) {
        return add_children_of(pid, pid, list);
    }
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    STK_DIR_AUTO dir = {0};
    if (stk_dir_read(path, &dir, NULL) < 0) {
        return -1;
    }
    int rc = 0;
    for (uint32_t i = 0; rc != STK_E_NOMEM && i < dir.n; i++) {
        rc = add_children_of(pid, (pid_t)atoi(dir.items[i].name), list);
    }
    return rc == STK_E_NOMEM ? rc : 0;
}

/* --- every process --- */

typedef struct table {
    process *all; /* sorted by pid */
    bool *ours;
    uint32_t n, cap;
} table;

static void table_done(table *t)
{
    free(t->all);
    free(t->ours);
}

static int by_pid(const void *a, const void *b)
{
    pid_t x = ((const process *)a)->pid;
    pid_t y = ((const process *)b)->pid;
    return (x > y) - (x < y);
}

static int table_read(table *t)
{
    STK_DIR_AUTO dir = {0};
    STK_TRY(stk_dir_read("/proc", &dir, NULL));
    for (uint32_t i = 0; i < dir.n; i++) {
        if (!isdigit((unsigned char)dir.items[i].name[0])) {
            continue;
        }
        if (t->n == MAX_PROCESSES) {
            return STK_E_NOMEM;
        }
        STK_TRY(stk_array_reserve(&t->all, &t->cap, t->n + 1, sizeof *t->all));
        if (read_process((pid_t)atoi(dir.items[i].name), &t->all[t->n])) {
            t->n++;
        }
    }
    t->ours = calloc(t->n + 1u, sizeof *t->ours);
    if (t->ours == NULL) {
        return STK_E_NOMEM;
    }
    qsort(t->all, t->n, sizeof *t->all, by_pid);
    return 0;
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

/* An agent ends its own processes, even if it runs on this machine for a run of ours. Exception: we
 * belong to an agent ourselves. */
static bool has_marker(pid_t pid, const char *marker)
{
    return stk_proc_has_env(pid, marker) &&
           (getenv("STOKER_AGENT") != NULL || !stk_proc_has_env(pid, "STOKER_AGENT=1"));
}

/* Only root can read other users' processes, and trying may wait for as long as such a process is
 * busy with its memory. */
static bool is_readable(pid_t pid)
{
    char path[32];
    struct stat st;
    (void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
    return geteuid() == 0 || (stat(path, &st) == 0 && st.st_uid == geteuid());
}

static bool is_own_process(pid_t pid, const stk_proc_ours *ours)
{
    return is_readable(pid) && ((ours->marker != NULL && has_marker(pid, ours->marker)) ||
                                stk_process_has_file(pid, ours));
}

static bool may_be_ours(const process *p)
{
    return p->pid != getpid() && p->pid > 1;
}

/* Marks the members of `sessions`, adding the sessions that members lead, and the descendants of
 * marked processes. */
static int mark_relatives(table *t, stk_proc_members *sessions)
{
    for (bool again = true; again;) {
        again = false;
        for (uint32_t i = 0; i < t->n; i++) {
            process *p = &t->all[i];
            if (!may_be_ours(p)) {
                continue;
            }
            if (!t->ours[i]) {
                process *parent =
                    bsearch(&(process){.pid = p->parent}, t->all, t->n, sizeof *t->all, by_pid);
                t->ours[i] = has_pid(sessions->pids, sessions->n, p->session) ||
                             (parent != NULL && t->ours[parent - t->all]);
                again = again || t->ours[i];
            }
            if (t->ours[i] && p->pid == p->session &&
                !has_pid(sessions->pids, sessions->n, p->pid)) {
                if (add_pid(sessions, p->pid) < 0) {
                    return STK_E_NOMEM;
                }
                again = true;
            }
        }
    }
    return 0;
}

/* Marks our processes by session, marker or file, and all their descendants; never ourselves or
 * init. Starts with relatives, because finding them needs no read of each process. */
static int table_mark(table *t, stk_proc_members *sessions, const stk_proc_ours *ours)
{
    STK_TRY(mark_relatives(t, sessions));
    for (uint32_t i = 0; i < t->n; i++) {
        process *p = &t->all[i];
        /* Kernel threads have no memory and nothing to read. */
        t->ours[i] = t->ours[i] || (may_be_ours(p) && !stk_process_is_dead(p) && p->rss_pages > 0 &&
                                    is_own_process(p->pid, ours));
    }
    return mark_relatives(t, sessions);
}

static void pause_ms(long ms)
{
    struct timespec wait = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&wait, NULL);
}

static int64_t now_ms(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* One round: kills the living members found. Returns their number, or -1 when out of memory. */
static int kill_round(stk_proc_members *sessions, const stk_proc_ours *ours)
{
    table t = {0};
    int found = 0;
    if (table_read(&t) < 0 || table_mark(&t, sessions, ours) < 0) {
        found = -1;
    }
    for (uint32_t i = 0; found >= 0 && i < t.n; i++) {
        if (t.ours[i] && !stk_process_is_dead(&t.all[i])) {
            (void)kill(t.all[i].pid, SIGKILL);
            found++;
        }
    }
    table_done(&t);
    return found;
}

int stk_proc_kill(const stk_proc_ours *ours, int timeout_ms)
{
    stk_proc_members sessions = {0};
    pid_t own = getsid(0);
    for (uint32_t i = 0; i < ours->n_sids; i++) {
        pid_t sid = ours->sids[i];
        if (sid > 1 && sid != own && add_pid(&sessions, sid) < 0) {
            break;
        }
    }
    /* On a busy machine one round may exceed the time limit, so the search never ends before its
     * third round. */
    int64_t end = now_ms() + timeout_ms;
    int n_rounds = timeout_ms > 0 ? 3 : 1;
    int found;
    int quiet = 0; /* rounds without a find: a process in the middle of exec shows no marker */
    for (long wait = 1;; wait = wait < 16 ? wait * 2 : wait) {
        found = kill_round(&sessions, ours);
        quiet = found == 0 ? quiet + 1 : 0;
        n_rounds -= n_rounds > 0;
        if (quiet == (ours->marker == NULL ? 1 : 3) || (n_rounds == 0 && now_ms() >= end)) {
            break;
        }
        pause_ms(wait);
    }
    stk_proc_members_done(&sessions);
    return found;
}

int stk_proc_kill_sessions(const pid_t *sids, uint32_t n, const char *marker, int timeout_ms)
{
    return stk_proc_kill(&(stk_proc_ours){.sids = sids, .n_sids = n, .marker = marker}, timeout_ms);
}

int stk_proc_kill_session(pid_t sid, const char *marker, int timeout_ms)
{
    return stk_proc_kill_sessions(&sid, 1, marker, timeout_ms);
}

/* --- members and their use --- */

static int find_by_table(pid_t sid, stk_proc_members *members)
{
    table t = {0};
    stk_proc_members sessions = {0};
    int rc = add_pid(&sessions, sid);
    if (rc == 0) {
        rc = table_read(&t);
    }
    if (rc == 0) {
        rc = table_mark(&t, &sessions, &(stk_proc_ours){0});
    }
    for (uint32_t i = 0; rc == 0 && i < t.n; i++) {
        if (t.ours[i]) {
            rc = add_pid(members, t.all[i].pid);
        }
    }
    table_done(&t);
    stk_proc_members_done(&sessions);
    return rc;
}

static int add_below(stk_proc_members *members)
{
    int rc = 0;
    process p;
    for (uint32_t i = 0; rc == 0 && i < members->n && members->n < MAX_PROCESSES / 2; i++) {
        if (read_process(members->pids[i], &p)) {
            rc = add_children(p.pid, p.n_threads, members);
            if (rc != STK_E_NOMEM) {
                rc = 0;
            }
        }
    }
    return rc;
}

int stk_proc_descendants(pid_t pid, stk_proc_members *members)
{
    members->n = 0;
    STK_TRY(add_children(pid, 2, members));
    return add_below(members);
}

int stk_proc_members_find(pid_t sid, stk_proc_members *members)
{
    members->n = 0;
    stk_proc_members ours = {0};
    if (add_children(getpid(), 2, &ours) < 0) {
        stk_proc_members_done(&ours);
        return find_by_table(sid, members);
    }
    int rc = add_pid(members, sid);
    /* Orphans of the session become our children if we are the subreaper. */
    for (uint32_t i = 0; rc == 0 && i < ours.n; i++) {
        if (ours.pids[i] != sid && getsid(ours.pids[i]) == sid) {
            rc = add_pid(members, ours.pids[i]);
        }
    }
    stk_proc_members_done(&ours);
    STK_TRY(rc);
    return add_below(members);
}

int stk_proc_sessions(const pid_t *sids, uint32_t n, stk_proc_usage *ret_usages)
{
    stk_proc_members members = {0};
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        rc = stk_proc_members_find(sids[i], &members);
        stk_proc_members_usage(&members, true, &ret_usages[i]);
    }
    stk_proc_members_done(&members);
    return rc;
}

static int64_t pss_of(pid_t pid)
{
    char path[64];
    char text[4096];
    (void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    if (read_text(path, text, sizeof text) <= 0) {
        return -1;
    }
    int64_t anon = kb_line(text, "Pss_Anon");
    int64_t shared = kb_line(text, "Pss_Shmem");
    int64_t swap = kb_line(text, "SwapPss");
    if (anon < 0 || shared < 0) { /* kernels before Linux 5.4 don't report them separately */
        return kb_line(text, "Pss");
    }
    return anon + shared + MAX(swap, 0);
}

int64_t stk_proc_session_pss(pid_t sid)
{
    stk_proc_members members = {0};
    int64_t sum = -1;
    if (stk_proc_members_find(sid, &members) == 0) {
        for (uint32_t i = 0; i < members.n; i++) {
            process p;
            int64_t one = pss_of(members.pids[i]);
            bool read = one >= 0 && read_process(members.pids[i], &p);
            if (read && !stk_process_is_in(p.pid, p.parent)) {
                sum = MAX(sum, 0) + one;
            }
        }
    }
    stk_proc_members_done(&members);
    return sum;
}

uint32_t stk_proc_orphans(const pid_t *known, uint32_t n_known, uint32_t n_expected,
                          pid_t *ret_pids, uint32_t n_max)
{
    stk_proc_members children = {0};
    uint32_t n = 0;
    if (add_children_of(getpid(), getpid(), &children) < 0 || children.n <= n_expected) {
        stk_proc_members_done(&children);
        return 0;
    }
    pid_t own = getsid(0);
    for (uint32_t i = 0; i < children.n && n < n_max; i++) {
        pid_t pid = children.pids[i];
        process p;
        /* Our helpers share our session; a task and its descendants don't. */
        if (has_pid(known, n_known, pid) || !read_process(pid, &p) || p.session == own) {
            continue;
        }
        if (stk_process_is_dead(&p)) {
            (void)waitpid(pid, NULL, WNOHANG);
        } else {
            ret_pids[n++] = pid;
        }
    }
    stk_proc_members_done(&children);
    return n;
}
