/* The lock of an attempt: who comes after a crash learns from it whether the task still lives.
 *
 * It is on stderr.log, because that exists anyway: a lock file of its own would cost each step one
 * more file. Open-file-description locks live as long as any copy of the descriptor in any process,
 * and can be asked for without being taken. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runner/runner.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/proc.h"

enum { MAX_HOLDERS = 1024 };

static struct flock whole(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

int stk_runner_attempt_lock(const char *dir, int stderr_fd, stk_err *err)
{
    struct flock lock = whole();
    if (fcntl(stderr_fd, F_OFD_SETLK, &lock) == 0) {
        return 0;
    }
    return errno == EAGAIN || errno == EACCES
               ? stk_err_set(err, STK_E_BUSY, "%s: a process of this attempt still lives", dir)
               : stk_err_sys(err, STK_E_SYS, errno, "cannot lock %s/stderr.log", dir);
}

bool stk_runner_attempt_is_live(const char *dir)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof path, "%s/stderr.log", dir) >= sizeof path) {
        return false;
    }
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    struct flock lock = whole();
    return fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* Who holds the lock can write the log; who only reads it (tail -f) is somebody else. Of a holder
 * that leads no session only itself and its descendants are taken: a fork server that is about to
 * end may still have a copy, and its session is the user's shell. */
static void kill_holders(const char *log)
{
    pid_t pids[MAX_HOLDERS];
    pid_t leaders[MAX_HOLDERS];
    uint32_t n_leaders = 0;
    uint32_t n = stk_proc_writers(log, pids, MAX_HOLDERS);
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
    char real[PATH_MAX];
    char log[PATH_MAX + 16];
    char marker[PATH_MAX + 32];
    if (realpath(dir, real) == NULL) {
        return 0; /* no such attempt */
    }
    (void)snprintf(log, sizeof log, "%s/stderr.log", real);
    (void)snprintf(marker, sizeof marker, "STOKER_TASK_DIR=%s", dir);
    int64_t end = stk_clock_mono_ms(&stk_clock_real) + timeout_ms;
    for (;;) {
        bool live = stk_runner_attempt_is_live(dir);
        if (live) {
            kill_holders(log);
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
