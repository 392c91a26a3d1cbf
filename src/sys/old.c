#include "sys/old.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/param.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sys/file.h"
#include "sys/proc.h"

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif
enum { RANGE_CLOEXEC = 1 << 2, LOOK_MS = 20, THREAD_STACK = 128 << 10 };

/* A child that shares our memory runs the functions marked so: sanitizers must not touch it. */
#define IN_CHILD __attribute__((no_sanitize("address", "undefined", "thread")))

/* --- the end of a process --- */

typedef struct ending {
    pid_t pid;
    uint64_t start; /* tells a later process with the same pid apart */
    int fd;         /* ours: the caller has another descriptor of the same eventfd */
} ending;

static bool is_running(const ending *e)
{
    char text[512];
    if (stk_proc_read(e->pid, "stat", text, sizeof text) <= 0) {
        return false;
    }
    const char *state = strrchr(text, ')'); /* the name before it may hold anything */
    return state != NULL && strncmp(state, ") Z", 3) != 0 && strncmp(state, ") X", 3) != 0 &&
           stk_proc_start_time(e->pid) == e->start;
}

static void *wait_for_end(void *arg)
{
    ending *e = arg;
    siginfo_t info;
    struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
    uint64_t one = 1;
    int rc;
    while ((rc = waitid(P_PID, (id_t)e->pid, &info, WEXITED | WNOWAIT)) < 0 && errno == EINTR) {
    }
    while (rc < 0 && is_running(e)) { /* another one's child */
        (void)nanosleep(&pause, NULL);
    }
    (void)!write(e->fd, &one, sizeof one);
    (void)close(e->fd);
    free(e);
    return NULL;
}

static int start_thread(ending *e)
{
    pthread_attr_t attr;
    pthread_t thread;
    sigset_t all;
    sigset_t before;
    int rc = pthread_attr_init(&attr);
    if (rc != 0) {
        return rc;
    }
    (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    (void)pthread_attr_setstacksize(&attr, MAX((size_t)PTHREAD_STACK_MIN, (size_t)THREAD_STACK));
    sigfillset(&all); /* signals are for the thread that handles them */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, wait_for_end, e);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attr);
    return rc;
}

static int watch_by_thread(pid_t pid)
{
    STK_FD_AUTO fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    ending *e = malloc(sizeof *e);
    if (fd < 0 || e == NULL) {
        free(e);
        return -1;
    }
    *e = (ending){
        .pid = pid, .start = stk_proc_start_time(pid), .fd = fcntl(fd, F_DUPFD_CLOEXEC, 3)};
    int sys = stk_errno_if(e->fd < 0);
    if (sys == 0 && kill(pid, 0) < 0 && errno == ESRCH) {
        sys = ESRCH;
    }
    if (sys == 0) {
        sys = start_thread(e);
    }
    if (sys != 0) {
        stk_file_close(&e->fd);
        free(e);
        errno = sys;
        return -1;
    }
    int ret = fd;
    fd = -1;
    return ret;
}

int stk_sys_pidfd(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    /* Filters answer EPERM. */
    if (fd < 0 && (errno == ENOSYS || errno == EPERM)) {
        return watch_by_thread(pid);
    }
    return fd;
}

/* --- ranges of descriptors --- */

IN_CHILD static void shut(unsigned fd, bool by_exec)
{
    if (by_exec) {
        int flags = fcntl((int)fd, F_GETFD);
        (void)(flags >= 0 && fcntl((int)fd, F_SETFD, flags | FD_CLOEXEC));
    } else {
        (void)close((int)fd);
    }
}

IN_CHILD static bool read_number(const char *text, unsigned *ret)
{
    unsigned n = 0;
    for (const char *c = text; *c != '\0'; c++) {
        if (*c < '0' || *c > '9') {
            return false;
        }
        n = n * 10 + (unsigned)(*c - '0');
    }
    *ret = n;
    return *text != '\0';
}

/* By the list of our descriptors. False if there is none: /proc isn't mounted. */
IN_CHILD static bool shut_listed(unsigned first, unsigned last, bool by_exec)
{
    _Alignas(struct dirent64) char names[2048];
    int list = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (list < 0) {
        return false;
    }
    long n;
    while ((n = syscall(SYS_getdents64, list, names, sizeof names)) > 0) {
        for (long at = 0; at < n;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(names + at);
            unsigned fd;
            if (read_number(entry->d_name, &fd) && fd != (unsigned)list && fd >= first &&
                fd <= last) {
                shut(fd, by_exec);
            }
            at += entry->d_reclen;
        }
    }
    (void)close(list);
    return n == 0;
}

IN_CHILD void stk_sys_close_range(unsigned first, unsigned last, bool by_exec)
{
    struct rlimit files;
    if (first > last ||
        syscall(SYS_close_range, first, last, by_exec ? (unsigned)RANGE_CLOEXEC : 0u) == 0 ||
        shut_listed(first, last, by_exec)) {
        return;
    }
    unsigned most = 1u << 20;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_max < most) {
        most = (unsigned)files.rlim_max;
    }
    for (unsigned fd = first; fd <= last && fd < most; fd++) {
        shut(fd, by_exec);
    }
}
