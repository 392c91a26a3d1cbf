#include "host/runner/runner_live.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/dir.h"
#include "sys/file.h"

enum { TASKS_MAX = 4096, TASK_JSON_BYTES = 4 << 20 };

/* "/store/runs/RUN/STEP/TASK/ATTEMPT/task.json" → its parts, in `arena`; false for other paths. */
static bool parse_path(const char *path, stk_arena *arena, stk_live_task *ret)
{
    static const char tail[] = "/task.json";
    size_t n = strlen(path);
    if (n <= sizeof tail || strcmp(path + n - (sizeof tail - 1), tail) != 0) {
        return false;
    }
    char *dir = stk_arena_dupn(arena, path, n - (sizeof tail - 1));
    char *copy = stk_arena_dup(arena, dir);
    char *parts[5]; /* attempt, task, step, run, "runs" */
    for (int i = 0; copy != NULL && i < 5; i++) {
        char *slash = strrchr(copy, '/');
        if (slash == NULL) {
            return false;
        }
        *slash = '\0';
        parts[i] = slash + 1;
    }
    if (copy == NULL || strcmp(parts[4], "runs") != 0 || !isdigit((unsigned char)parts[0][0]) ||
        !isdigit((unsigned char)parts[1][0])) {
        return false;
    }
    *ret = (stk_live_task){.dir = dir,
                           .run = parts[3],
                           .step = parts[2],
                           .task = (uint32_t)strtoul(parts[1], NULL, 10),
                           .attempt = (uint32_t)strtoul(parts[0], NULL, 10)};
    return true;
}

/* Requires the lock: a process that only reads task.json is not the attempt's. */
static bool find_attempt(pid_t pid, stk_arena *arena, stk_live_task *ret)
{
    char path[64], target[PATH_MAX];
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    STK_DIR_AUTO dir = {0};
    bool found = false;
    int rc = stk_dir_read(path, &dir, NULL); /* fails for an ended process or another user's */
    for (uint32_t i = 0; rc == 0 && !found && i < dir.n; i++) {
        ssize_t n = readlinkat(dir.fd, dir.items[i].name, target, sizeof target - 1);
        if (n > 0 && target[0] == '/') {
            target[n] = '\0';
            found = parse_path(target, arena, ret) && stk_proc_has_lock(pid, dir.items[i].name);
        }
    }
    return found;
}

/* A task with a file tree of its own (a job of an agent) has its folder there. */
static void reach_folder(stk_live_task *task, stk_arena *arena)
{
    char path[64], root[PATH_MAX];
    (void)snprintf(path, sizeof path, "/proc/%d/root", (int)task->pid);
    ssize_t n = access(task->dir, F_OK) == 0 ? -1 : readlink(path, root, sizeof root - 1);
    if (n > 1 && strncmp(task->dir, root, (size_t)n) == 0 && task->dir[n] == '/') {
        task->dir = stk_text_or(stk_arena_printf(arena, "%s%s", path, task->dir + n), task->dir);
    }
}

static void read_grant(stk_live_task *task, stk_arena *arena)
{
    static const stk_json_limits limits = {TASK_JSON_BYTES, 1 << 20, STK_LIMIT_DEPTH};
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_json root;
    (void)snprintf(path, sizeof path, "%s/task.json", task->dir);
    if (stk_file_read(path, TASK_JSON_BYTES, &text, &len, NULL) < 0 ||
        stk_json_parse(text, len, path, &limits, arena, &root, NULL) < 0) {
        return; /* the attempt may have ended */
    }
    task->pipeline = stk_json_get_text(&root, "pipeline");
    const stk_json *devices = stk_json_get(stk_json_get(&root, "granted"), "devices");
    uint32_t n = stk_json_n_items(devices);
    const char **uuids = stk_arena_array(arena, (size_t)n + 1, sizeof *uuids);
    for (uint32_t i = 0; uuids != NULL && i < n; i++) {
        const char *uuid = stk_json_get_text(&devices->items[i], "uuid");
        if (uuid != NULL) {
            uuids[task->n_uuids++] = uuid;
        }
    }
    task->uuids = uuids;
}

/* Converts clock ticks since boot to wall-clock time; -1: unknown. */
static int64_t started_ms(uint64_t ticks)
{
    int64_t hz = sysconf(_SC_CLK_TCK);
    if (ticks == 0 || hz <= 0) {
        return -1;
    }
    return stk_clock_wall_ms(&stk_clock_real) - stk_clock_boot_ms() + (int64_t)ticks * 1000 / hz;
}

static int fill_live_task(stk_live_task *task, pid_t pid, stk_arena *arena, stk_err *err)
{
    char path[64];
    struct stat st;
    stk_proc_members members = {0};
    (void)snprintf(path, sizeof path, "/proc/%d", (int)pid);
    task->pid = pid;
    task->start = stk_proc_start_time(pid);
    task->uid = stat(path, &st) == 0 ? st.st_uid : (uid_t)-1;
    task->started_ms = started_ms(task->start);
    int rc = stk_proc_members_find(pid, &members);
    stk_proc_members_usage(&members, false, &task->usage);
    pid_t *pids = stk_arena_array(arena, (size_t)members.n + 1, sizeof *pids);
    for (uint32_t i = 0; pids != NULL && i < members.n; i++) {
        pids[i] = members.pids[i];
    }
    if (rc == 0 && pids != NULL) {
        task->pids = pids;
        task->n_pids = members.n;
    }
    stk_proc_members_done(&members);
    return stk_err_if_null(task->pids, err);
}

static int by_start(const void *a, const void *b)
{
    const stk_live_task *x = a, *y = b;
    int order = (x->start > y->start) - (x->start < y->start);
    return order != 0 ? order : (x->pid > y->pid) - (x->pid < y->pid);
}

static bool has_pid(const stk_live_task *task, pid_t pid)
{
    for (uint32_t i = 0; i < task->n_pids; i++) {
        if (task->pids[i] == pid) {
            return true;
        }
    }
    return false;
}

static int take_in(stk_live_task *task, const stk_live_task *more, stk_arena *arena, stk_err *err)
{
    pid_t *pids = stk_arena_array(arena, (size_t)task->n_pids + more->n_pids + 1, sizeof *pids);
    STK_TRY(stk_err_if_null(pids, err));
    memcpy(pids, task->pids, task->n_pids * sizeof *pids);
    memcpy(pids + task->n_pids, more->pids, more->n_pids * sizeof *pids);
    task->pids = pids;
    task->n_pids += more->n_pids;
    task->usage.cpu_us += more->usage.cpu_us;
    task->usage.rss_bytes += more->usage.rss_bytes;
    task->usage.n += more->usage.n;
    return 0;
}

/* Merges the sessions of one task: a task in a container has one outside, one inside, and the
 * program's. */
static int unite(stk_live_task *tasks, uint32_t *n, stk_arena *arena, stk_err *err)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < *n; i++) {
        stk_live_task *same = NULL;
        for (uint32_t k = 0; k < kept && same == NULL; k++) {
            if (strcmp(tasks[k].dir, tasks[i].dir) == 0) {
                same = &tasks[k];
            }
        }
        if (same == NULL) {
            tasks[kept++] = tasks[i];
        } else if (!has_pid(same, tasks[i].pid)) {
            STK_TRY(take_in(same, &tasks[i], arena, err));
        }
    }
    *n = kept;
    return 0;
}

int stk_live_tasks(stk_arena *arena, stk_live_task **ret_tasks, uint32_t *ret_n, stk_err *err)
{
    stk_live_task *tasks = stk_arena_array(arena, TASKS_MAX, sizeof *tasks);
    STK_DIR_AUTO proc = {0};
    uint32_t n = 0;
    STK_TRY(stk_err_if_null(tasks, err));
    STK_TRY(stk_dir_read("/proc", &proc, err));
    for (uint32_t i = 0; n < TASKS_MAX && i < proc.n; i++) {
        pid_t pid = (pid_t)atoi(proc.items[i].name);
        if (pid > 0 && getsid(pid) == pid && find_attempt(pid, arena, &tasks[n])) {
            STK_TRY(fill_live_task(&tasks[n++], pid, arena, err));
        }
    }
    qsort(tasks, n, sizeof *tasks, by_start);
    STK_TRY(unite(tasks, &n, arena, err));
    for (uint32_t i = 0; i < n; i++) {
        reach_folder(&tasks[i], arena);
        read_grant(&tasks[i], arena);
    }
    *ret_tasks = tasks;
    *ret_n = n;
    return 0;
}
