/* The end of a task on this machine: reaps it, classifies and reports its end, removes what it left
 * behind. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/failpoint.h"
#include "base/text.h"
#include "host/backend/backend_local.h"
#include "host/backend/backend_local_logs.h"
#include "host/backend/backend_local_server.h"
#include "sys/file.h"
#include "sys/proc.h"

enum {
    TAIL_BYTES = 64 << 10, /* of stderr, searched after a failure */
    STATUS_MS = 500        /* how long a task's status may stay unknown while its server dies */
};

bool stk_local_task_has_ended(const local_task *t)
{
    struct pollfd p = {.fd = t->pidfd, .events = POLLIN};
    return t->pidfd >= 0 && poll(&p, 1, 0) == 1;
}

/* Our own peak memory in kB; -1 unknown. */
static int64_t own_peak_kb(void)
{
    char text[4096];
    (void)stk_proc_read(getpid(), "status", text, sizeof text);
    const char *line = strstr(text, "VmHWM:");
    if (line == NULL) {
        return -1;
    }
    return strtoll(line + 6, NULL, 10);
}

/* A vforked child starts with our own peak as its peak, so a value says something about the child
 * only if it exceeds our peak. -1: it doesn't. */
static int64_t true_maxrss(local_backend *b, const struct rusage *used)
{
    if (used->ru_maxrss > b->own_peak_kb) {
        b->own_peak_kb = own_peak_kb();
    }
    if (b->own_peak_kb < 0 || used->ru_maxrss <= b->own_peak_kb) {
        return -1;
    }
    return used->ru_maxrss * 1024;
}

/* Kills the rest of the task's process group before we reap the task: afterwards another process
 * may get the same pid. */
static void end_group(const local_task *task)
{
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)task->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid == task->pid) {
        (void)kill(-task->pid, SIGKILL);
    }
}

void stk_local_task_reap(local_backend *b, local_task *task)
{
    int status;
    struct rusage used;
    pid_t got;
    end_group(task);
    while ((got = wait4(task->pid, &status, WNOHANG, &used)) < 0 && errno == EINTR) {
    }
    if (got == task->pid) {
        int64_t cpu = ((int64_t)used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000 +
                      used.ru_utime.tv_usec + used.ru_stime.tv_usec;
        stk_local_task_ended(b, task, status, cpu, true_maxrss(b, &used));
    } else if (got < 0 && stk_local_task_has_ended(task)) {
        /* Its server is dying, too. Once that has ended, the task becomes our child. */
        int64_t now = stk_local_now_ms();
        if (task->gone_ms < 0) {
            task->gone_ms = now;
            (void)stk_local_watch_fd(b, task->pidfd, 0, task, true);
            stk_local_due(b, now + LOCAL_TERM_AGAIN_MS);
        } else if (now - task->gone_ms > STATUS_MS) {
            stk_local_task_ended(b, task, -1, -1, -1);
        }
    }
}

static void leave(local_backend *b, local_task *t)
{
    t->state = LOCAL_DONE;
    stk_local_task_close_fds(t);
    stk_local_unwatch_fd(b, &t->pidfd);
    stk_guard_remove(b->guard, t->slot);
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        if (b->tasks[i] == t) {
            b->tasks[i] = b->tasks[--b->n_tasks];
            break;
        }
    }
    b->done[b->n_done++] = t;
}

/* The end of the task's stderr, NUL-terminated, without other NULs; NULL if it is empty. */
static char *read_tail(const local_task *t)
{
    char path[PATH_MAX];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/stderr.log", t->dir);
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    if (fd < 0 || fstat(fd, &st) < 0 || st.st_size == 0) {
        return NULL;
    }
    char *text = calloc(1, TAIL_BYTES + 1);
    if (text == NULL) {
        return NULL;
    }
    ssize_t n = pread(fd, text, TAIL_BYTES, MAX(st.st_size - TAIL_BYTES, 0));
    for (ssize_t i = 0; i < n; i++) {
        if (text[i] == '\0') {
            text[i] = ' ';
        }
    }
    return text;
}

/* The errno of writing 256 KiB more (ENOSPC, EDQUOT: the file system or a quota is full); 0: there
 * is room, or unknown. Less room may be what the end of a container has just freed: its copy of our
 * program. */
static int why_full(const char *dir)
{
    char piece[256 << 10];
    STK_FD_AUTO fd = open(dir, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    memset(piece, 1, sizeof piece);
    if (fd >= 0 && stk_file_write_all(fd, piece, sizeof piece) == 0 && fsync(fd) == 0) {
        return 0;
    }
    return errno == ENOSPC || errno == EDQUOT ? errno : 0;
}

/* For a task that failed by itself, gathers all possible evidence. */
static void classify(local_task *t, stk_ending *e, stk_outcome *o)
{
    char trouble[512];
    STK_TEXT_AUTO tail = NULL;
    stk_watch *w = &t->watch;
    e->n_devices = w->n_devices;
    if (w->n_devices > 0) {
        e->noun = stk_watch_device(w, 0)->noun;
    }
    if (t->stopped_for == STK_FAIL_GPU_SHARE) {
        e->device = stk_watch_device(w, w->over_device)->uuid;
        e->device_bytes = w->over_bytes;
        e->share_bytes = w->share_bytes;
    } else if (t->stopped_for == STK_FAIL_OTHER_DEVICE) {
        e->device = w->other_device;
    } else if (t->stopped_for == STK_FAIL_TIMEOUT) {
        tail = read_tail(t); /* a worker writes its stack there when its time is nearly over */
        e->stderr_tail = tail;
    } else if (t->stopped_for == STK_FAIL_NONE && e->wait_status != 0) {
        stk_watch_look_at_shm(w);
        e->full_errno = why_full(t->dir);
        if (e->full_errno != 0) {
            e->full = t->dir;
        }
        tail = read_tail(t);
        e->stderr_tail = tail;
        e->device_full = stk_watch_device_is_full(w);
        if (stk_watch_trouble(w, trouble, sizeof trouble)) {
            e->device_trouble = trouble;
        }
        e->shm_free_bytes = w->shm_free_bytes;
        e->shm_bytes = w->shm_bytes;
    }
    stk_runner_classify(e, o);
}

void stk_local_task_ended(local_backend *b, local_task *task, int wait_status, int64_t cpu_us,
                          int64_t maxrss_bytes)
{
    STK_FAILPOINT("backend.end.before");
    if (task->group.n > 0) {
        stk_cgroup_kill(b->groups, &task->group);
    }
    task->end = (local_end){wait_status, cpu_us, maxrss_bytes, stk_local_now_ms()};
    task->server = NULL;
    stk_local_unwatch_fd(b, &task->pidfd);
    task->state = LOCAL_WRITING;
    if (stk_local_logs_finish(b, task)) {
        stk_local_task_tell_end(b, task);
    }
}

void stk_local_task_tell_end(local_backend *b, local_task *task)
{
    const local_end *end = &task->end;
    const stk_watch *w = &task->watch;
    stk_ending ending = {.wait_status = end->wait_status,
                         .stopped_for = task->stopped_for,
                         .timeout_ms = task->timeout_ms,
                         .memory_bytes = task->memory_bytes,
                         .used_bytes = MAX(task->used_bytes, end->maxrss_bytes),
                         .lost_server = task->lost_server};
    if (task->noticed) {
        ending.notice_ms = task->notice_ms;
    }
    stk_report *r = stk_local_report(b, task, STK_REPORT_ENDED);
    if (r != NULL) {
        stk_outcome *o = &r->outcome;
        r->pid = task->pid;
        o->peak_memory_bytes = MAX(w->peak_bytes, ending.used_bytes);
        o->cpu_us = MAX(end->cpu_us, w->cpu_us);
        if (task->group.n > 0) {
            ending.cgroup_oom = task->memory_bytes > 0 && stk_cgroup_oom(b->groups, &task->group);
            int64_t cpu_us = stk_cgroup_cpu_us(b->groups, &task->group);
            o->cpu_us = MAX(o->cpu_us, cpu_us);
            if (ending.cgroup_oom) { /* otherwise the peak includes cached files */
                ending.used_bytes = stk_cgroup_peak(b->groups, &task->group);
                o->peak_memory_bytes = MAX(o->peak_memory_bytes, ending.used_bytes);
            }
        }
        if (task->contained) {
            stk_local_contained_ended(task, &ending, o);
        }
        classify(task, &ending, o);
        bool by_itself = task->stopped_for == STK_FAIL_NONE || task->stopped_for == STK_FAIL_START;
        if (task->failed[0] != '\0' && !o->ok && by_itself) {
            o->failure = STK_FAIL_START;
            (void)snprintf(o->text, sizeof o->text, "%s", task->failed);
        }
        o->wall_ms = end->at_ms - task->start_ms;
        stk_watch_report(&task->watch, end->at_ms, o);
    }
    stk_cgroup_remove(b->groups, &task->group);
    leave(b, task);
}

void stk_local_task_not_started(local_backend *b, local_task *task, stk_failure failure,
                                const char *text)
{
    stk_report *r = stk_local_report(b, task, STK_REPORT_ENDED);
    if (r != NULL) {
        r->outcome = (stk_outcome){.failure = failure,
                                   .exit_status = -1,
                                   .cpu_us = -1,
                                   .peak_memory_bytes = -1,
                                   .read_bytes = -1,
                                   .write_bytes = -1};
        (void)snprintf(r->outcome.text, sizeof r->outcome.text, "%s",
                       stk_text_or(text, stk_failure_word(failure)));
    }
    stk_cgroup_remove(b->groups, &task->group);
    leave(b, task);
}

void stk_local_task_close_fds(local_task *task)
{
    for (uint32_t i = 0; i < task->n_fds; i++) {
        stk_file_close(&task->fds[i]);
    }
    task->n_fds = 0;
}

void stk_local_task_free(local_backend *b, local_task *task)
{
    stk_local_task_close_fds(task);
    stk_local_logs_close(b, task);
    stk_local_unwatch_fd(b, &task->pidfd);
    stk_cgroup_remove(b->groups, &task->group);
    stk_watch_done(&task->watch);
    stk_buf_done(&task->message);
    free(task->dir);
    free(task);
}

/* --- orphans --- */

/* Lists our children and all tasks, also a server's: if the server dies, its tasks become our
 * children before we notice, and we need their status. False: out of memory. */
static bool known_children(local_backend *b, uint32_t *ret_n, uint32_t *ret_n_children)
{
    uint32_t want = b->n_tasks + STK_GUARD_N + 2;
    if (want > b->cap_known) {
        pid_t *known = realloc(b->known, want * 2 * sizeof *known);
        if (known == NULL) {
            return false;
        }
        b->known = known;
        b->cap_known = want * 2;
    }
    const local_server *servers[] = {b->given, b->clean};
    uint32_t n = STK_GUARD_N, n_served = 0;
    stk_guard_pids(b->guard, b->known);
    for (uint32_t i = 0; i < 2; i++) {
        if (servers[i] != NULL && servers[i]->child > 0) {
            b->known[n++] = servers[i]->child;
        }
    }
    for (uint32_t i = 0; i < b->n_tasks; i++) {
        if (b->tasks[i]->state == LOCAL_RUNNING) {
            b->known[n++] = b->tasks[i]->pid;
            n_served += !b->tasks[i]->direct;
        }
    }
    *ret_n = n;
    *ret_n_children = n - n_served;
    return true;
}

static bool is_of(pid_t pid, pid_t session, const local_task *t)
{
    char marker[PATH_MAX + 32];
    (void)snprintf(marker, sizeof marker, "STOKER_TASK_DIR=%s", t->dir);
    return session == t->pid || stk_proc_has_env(pid, marker);
}

/* Processes that a task left behind must not outlive it. Those in its group were killed just before
 * it was reaped; this function kills the others and waits until all have ended.
 *
 * A process whose parent ended becomes our child (we are a child subreaper). Apart from the
 * children that we started, our only children with other sessions are such orphans. Orphans of a
 * living task stay: a step may run a daemon. */
void stk_local_end_orphans(local_backend *b, bool all)
{
    enum { N_MAX = 256 };
    pid_t orphans[N_MAX];
    uint32_t n_known, n_children;
    if (!known_children(b, &n_known, &n_children)) {
        return;
    }
    uint32_t n = stk_proc_orphans(b->known, n_known, n_children, orphans, N_MAX);
    for (uint32_t i = 0; i < n; i++) {
        pid_t session = getsid(orphans[i]);
        bool theirs = !all && b->n_tasks > 0;
        for (uint32_t k = 0; theirs && k < b->n_done; k++) {
            theirs = !is_of(orphans[i], session, b->done[k]);
        }
        if (!theirs && session > 0) {
            (void)stk_proc_kill_session(session, NULL, LOCAL_LEFTOVER_MS);
        }
    }
    if (n > 0) {
        (void)stk_proc_orphans(b->known, n_known, n_children, orphans, N_MAX); /* reaps the dead */
    }
}
