#include "sys/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "sys/cgroup.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/proc.h"

enum {
    N_SLOTS = STK_LIMIT_WORKERS + 64,
    END_MS = 5000,
    NAME_POLL_MS = 5,
    PIPE_FD = 3,
    TABLE_FD = 4,
    NAME_FD = 5
};
#define TABLE_BYTES (N_SLOTS * sizeof(int32_t))

struct stk_guard {
    pid_t pid;
    int pipe;
    int table; /* the memory behind `sessions` */
    int name;  /* held as long as an engine of the run or its guardian lives; -1: not */
    char *run;
    uint32_t hint;
    volatile int32_t *sessions; /* shared with the guardian; 0: free */
};

/* Not its parent's terminal, pipes, sockets or locks: who waits for those to close must not wait
 * for us. */
static void keep_only(int pipe, int table, int name)
{
    int null = open("/dev/null", O_RDWR);
    int high_pipe = fcntl(pipe, F_DUPFD, 16);
    int high_table = fcntl(table, F_DUPFD, 16);
    int high_name = name < 0 ? -1 : fcntl(name, F_DUPFD, 16);
    for (int i = 0; i < 3; i++) {
        (void)dup2(null, i);
    }
    (void)dup2(high_pipe, PIPE_FD);
    (void)dup2(high_table, TABLE_FD);
    if (high_name < 0) {
        (void)close(NAME_FD);
    } else {
        (void)dup2(high_name, NAME_FD);
    }
#ifdef SYS_close_range
    if (syscall(SYS_close_range, NAME_FD + 1u, ~0u, 0u) == 0) {
        return;
    }
#endif
    STK_DIR_AUTO dir = {0};
    int rc = stk_dir_read("/proc/self/fd", &dir, NULL);
    for (uint32_t i = 0; rc == 0 && i < dir.n; i++) {
        int fd = atoi(dir.items[i].name);
        if (fd > NAME_FD && fd != dir.fd) {
            (void)close(fd);
        }
    }
}

static void end_run(const char *run)
{
    const volatile int32_t *table = mmap(NULL, TABLE_BYTES, PROT_READ, MAP_SHARED, TABLE_FD, 0);
    static pid_t sessions[N_SLOTS];
    uint32_t n = 0;
    for (uint32_t i = 0; table != MAP_FAILED && i < N_SLOTS; i++) {
        if (table[i] > 1) {
            sessions[n++] = table[i];
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)kill(-sessions[i], SIGKILL); /* at once; the careful search comes after */
    }
    if (run == NULL) {
        (void)stk_proc_kill_sessions(sessions, n, NULL, END_MS);
        return;
    }
    char marker[STK_LIMIT_NAME + 256];
    (void)snprintf(marker, sizeof marker, "STOKER_RUN=%s", run);
    (void)stk_proc_kill_sessions(sessions, n, marker, END_MS);
    stk_cgroups_close(stk_cgroups_open(run)); /* opening removes what the engine left */
}

static _Noreturn void guard_main(const char *run, int pipe, int table, int name)
{
    sigset_t all;
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL); /* all but SIGKILL: Ctrl-C isn't for us */
    (void)setsid();
    (void)prctl(PR_SET_NAME, "stoker-guard", 0, 0, 0);
    keep_only(pipe, table, name);
    if (chdir("/") != 0) {
        _exit(1);
    }
    char word;
    ssize_t n;
    while ((n = read(PIPE_FD, &word, 1)) < 0 && errno == EINTR) {
    }
    if (n == 0) {
        end_run(run);
    }
    _exit(0);
}

/* A guardian for the table as it is. -1 with errno. */
static int begin(stk_guard *g)
{
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(pipes[1]);
        guard_main(g->run, pipes[0], g->table, g->name);
    }
    int why = errno;
    (void)close(pipes[0]);
    if (pid < 0) {
        (void)close(pipes[1]);
        errno = why;
        return -1;
    }
    g->pid = pid;
    g->pipe = pipes[1];
    return 0;
}

static void guard_free(stk_guard *g)
{
    if (g->sessions != NULL) {
        (void)munmap((void *)(uintptr_t)g->sessions, TABLE_BYTES);
    }
    stk_file_close(&g->table);
    stk_file_close(&g->name);
    free(g->run);
    free(g);
}

/* The guardian of a run's former engine may still be looking for what is left of it, by the run's
 * name: it would take our tasks as well. It holds this name while it lives. -1: it can't be had. */
static int take_name(const char *run)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX}; /* abstract: gone with its last holder */
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "stoker-guard-%u-%s", getuid(), run);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int fd =
        (size_t)n >= sizeof at.sun_path - 1 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    for (int waited_ms = 0; fd >= 0; waited_ms += NAME_POLL_MS) {
        if (bind(fd, (struct sockaddr *)&at, len) == 0) {
            return fd;
        }
        if (errno != EADDRINUSE || waited_ms >= END_MS + 1000) {
            break;
        }
        (void)usleep(NAME_POLL_MS * 1000);
    }
    stk_file_close(&fd);
    return -1;
}

int stk_guard_open(const char *run, stk_guard **ret_guard, stk_err *err)
{
    stk_guard *g = calloc(1, sizeof *g);
    if (g == NULL) {
        return stk_err_sys(err, STK_E_SYS, errno, "cannot prepare the guardian process");
    }
    g->name = run == NULL ? -1 : take_name(run);
    g->run = run == NULL ? NULL : strdup(run);
    g->table = memfd_create("stoker-sessions", MFD_CLOEXEC);
    if ((run == NULL || g->run != NULL) && g->table >= 0 && ftruncate(g->table, TABLE_BYTES) == 0) {
        void *map = mmap(NULL, TABLE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, g->table, 0);
        g->sessions = map != MAP_FAILED ? map : NULL;
    }
    if (g->sessions == NULL || begin(g) < 0) {
        int sys = errno;
        guard_free(g);
        return stk_err_sys(err, STK_E_SYS, sys, "cannot start the guardian process");
    }
    *ret_guard = g;
    return 0;
}

void stk_guard_renew(stk_guard *guard)
{
    int status;
    pid_t got = waitpid(guard->pid, &status, WNOHANG);
    if (got == guard->pid || (got < 0 && errno == ECHILD)) { /* somebody killed it */
        int old = guard->pipe;
        if (begin(guard) == 0) {
            (void)close(old);
        }
    }
}

pid_t stk_guard_pid(const stk_guard *guard)
{
    return guard->pid;
}

int stk_guard_add(stk_guard *guard, pid_t session, uint32_t *ret_slot, stk_err *err)
{
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        uint32_t slot = (guard->hint + i) % N_SLOTS;
        if (guard->sessions[slot] == 0) {
            guard->sessions[slot] = (int32_t)session;
            guard->hint = slot + 1;
            *ret_slot = slot;
            return 0;
        }
    }
    return stk_err_set(err, STK_E_LIMIT, "more than %d processes to guard at once", N_SLOTS);
}

void stk_guard_remove(stk_guard *guard, uint32_t slot)
{
    if (slot < N_SLOTS) {
        guard->sessions[slot] = 0;
        guard->hint = slot;
    }
}

void stk_guard_close(stk_guard *guard)
{
    if (guard == NULL) {
        return;
    }
    while (write(guard->pipe, "q", 1) < 0 && errno == EINTR) {
    }
    (void)close(guard->pipe);
    while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR) {
    }
    guard_free(guard);
}
