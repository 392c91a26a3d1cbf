/* The lock of an attempt: after a crash it shows whether the task still lives.
 *
 * An open-file-description lock lasts as long as any process has a copy of the descriptor, and can
 * be queried without being taken. The lock is on task.json, which exists anyway: a separate lock
 * file would cost each step one more file, and creating files is most of the cost of a short step.
 * The task inherits a descriptor for the lock only. It is read-only, so that a program can't damage
 * task.json through a descriptor that it doesn't know; hence the lock is a shared one. Other
 * readers of task.json open it separately, which doesn't affect the lock. (Writers of task.json
 * must overwrite it in place: after a rename the lock would be on an unlinked file.) Programs that
 * a task starts often close unknown descriptors but keep stderr: so stderr.log is locked, too. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/runner/runner.h"
#include "host/runner/runner_scribe.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/proc.h"

enum { MAX_HOLDERS = 1024 };

/* The file that earlier versions locked instead of task.json; their runs may be resumed. */
#define EARLIER "alive"

static struct flock whole(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

static bool is_locked(int fd)
{
    struct flock lock = whole();
    return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

static int still_lives(const char *dir, stk_err *err)
{
    return stk_err_set(err, STK_E_BUSY, "%s: a process of this attempt still lives", dir);
}

static int lock_one(const char *dir, const char *name, int fd, short type, stk_err *err)
{
    struct flock lock = whole();
    lock.l_type = type;
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0) {
        return 0;
    }
    if (errno == EAGAIN || errno == EACCES) {
        return still_lives(dir, err);
    }
    return stk_err_sys(err, STK_E_SYS, errno, "cannot lock %s/%s", dir, name);
}

int stk_runner_attempt_lock(const char *dir, int stderr_fd, int *ret_fd, stk_err *err)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/task.json", dir) >= sizeof path) {
        return stk_err_set(err, STK_E_LIMIT, "%s: the path is too long", dir);
    }
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    if (fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "cannot open %s", path);
    }
    if (is_locked(fd)) {
        return still_lives(dir, err);
    }
    STK_TRY(lock_one(dir, "task.json", fd, F_RDLCK, err));
    if (stderr_fd >= 0) {
        STK_TRY(lock_one(dir, "stderr.log", stderr_fd, F_WRLCK, err));
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}

bool stk_runner_attempt_is_live(const char *dir)
{
    static const char *const names[] = {"task.json", "stderr.log", EARLIER};
    bool is = false;
    for (size_t i = 0; !is && i < sizeof names / sizeof *names; i++) {
        char path[PATH_MAX];
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, names[i]) < sizeof path) {
            STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
            is = fd >= 0 && is_locked(fd);
        }
    }
    return is;
}

static bool is_scribe(pid_t pid)
{
    char name[32];
    return strcmp(stk_proc_name(pid, name, sizeof name), STK_SCRIBE_NAME) == 0;
}

static uint32_t add_pids(pid_t *pids, uint32_t n, const char *path)
{
    return n + stk_proc_writers(path, pids + n, MAX_HOLDERS - n);
}

/* Adds the processes that write into a scribe's pipes. The scribe itself ends when they do. */
static uint32_t add_who_write_to(pid_t scribe, pid_t *pids, uint32_t n)
{
    for (int fd = 3; fd < 5; fd++) {
        char path[64], target[64];
        (void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)scribe, fd);
        ssize_t len = readlink(path, target, sizeof target - 1);
        if (len > 0) {
            target[len] = '\0';
            if (strncmp(target, "pipe:", 5) == 0) {
                n = add_pids(pids, n, target);
            }
        }
    }
    return n;
}

/* Finds the processes that can write the log or hold task.json's lock, but not mere readers (tail
 * -f). */
static uint32_t find_holders(const char *dir, pid_t *ret_pids)
{
    static const char *const locked[] = {"task.json", EARLIER};
    char path[PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s/stderr.log", dir);
    uint32_t n = add_pids(ret_pids, 0, path);
    for (size_t i = 0; i < sizeof locked / sizeof *locked; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", dir, locked[i]);
        n += stk_proc_lockers(path, ret_pids + n, MAX_HOLDERS - n);
    }
    return n;
}

/* For a holder that leads no session, kills only the holder and its descendants: a fork server that
 * is about to end may still have a copy, and its session is the user's shell. */
static void kill_holders(const char *dir)
{
    pid_t holders[MAX_HOLDERS], pids[MAX_HOLDERS], leaders[MAX_HOLDERS];
    uint32_t n = 0, n_leaders = 0;
    uint32_t n_holders = find_holders(dir, holders);
    for (uint32_t i = 0; i < n_holders && n < MAX_HOLDERS; i++) {
        if (is_scribe(holders[i])) {
            n = add_who_write_to(holders[i], pids, n);
        } else {
            pids[n++] = holders[i];
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (getsid(pids[i]) == pids[i]) {
            leaders[n_leaders++] = pids[i];
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)kill(pids[i], SIGKILL);
    }
    (void)stk_proc_kill_sessions(leaders, n_leaders, NULL, 0);
}

int stk_runner_attempt_kill(const char *dir, const char *run, int timeout_ms)
{
    char real[PATH_MAX], marker[PATH_MAX + 32];
    if (realpath(dir, real) == NULL) {
        return 0; /* no such attempt */
    }
    (void)snprintf(marker, sizeof marker, "STOKER_TASK_DIR=%s", dir);
    int64_t end = stk_clock_mono_ms(&stk_clock_real) + timeout_ms;
    for (;;) {
        bool live = stk_runner_attempt_is_live(dir);
        if (live) {
            kill_holders(real);
        }
        if (stk_proc_kill_sessions(NULL, 0, marker, 0) == 0 && !live) {
            return 0;
        }
        if (stk_clock_mono_ms(&stk_clock_real) >= end) {
            return stk_err_set(NULL, STK_E_BUSY, "%s of run %s still lives", dir, run);
        }
        struct timespec wait = {.tv_nsec = 2000000};
        (void)nanosleep(&wait, NULL);
    }
}
