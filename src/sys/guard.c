#include "sys/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/limits.h"
#include "sys/cgroup.h"
#include "sys/file.h"
#include "sys/old.h"
#include "sys/proc.h"

enum {
    N_SLOTS = STK_LIMIT_WORKERS + 64,
    N_GUARDS = STK_GUARD_N,
    END_MS = 5000,
    NAME_POLL_MS = 5,
    GATHER_MS = 200,
    N_PASSES = 16,
    FREE = 0,
    NOT_BEGUN = -1 /* its files are known, but not its session */
};

/* Shared memory between the engine and the guardians. */
typedef struct guard_table {
    _Atomic int32_t sessions[N_SLOTS]; /* or FREE, NOT_BEGUN */
    stk_proc_file files[N_SLOTS]
                       [STK_GUARD_FILES]; /* files that the session's processes have open */
    _Atomic int32_t guards[N_GUARDS];     /* process ids of the guardians */
    _Atomic int32_t n_added;              /* number of sessions ever added */
    _Atomic int32_t asleep;               /* the gathering guardian waits for news of a session */
    _Atomic int32_t closed;               /* clean end */
} guard_table;

/* Two names, because a command that kills the engine by name or size may also hit one of the
 * guardians. */
static const char *const names[N_GUARDS] = {"stoker-guard", "stk-guard"};

typedef struct guardian {
    pid_t pid;
    int socket; /* its end tells the guardian that the engine has ended */
} guardian;

struct stk_guard {
    guardian guards[N_GUARDS];
    int name; /* held while an engine of the run or its guardians live; -1: not held */
    char *run;
    uint32_t hint;
    guard_table *table;
};

/* --- the guardian's side --- */

/* Closes the parent's terminal, pipes, sockets and locks: processes that wait for those to close
 * must not wait for a guardian. The two descriptors keep their numbers, so that nothing can be
 * mistaken for them. `b` may be -1. */
static void keep_only(int a, int b)
{
    int low = MIN(a, b);
    int high = MAX(a, b);
    const int ends[] = {-1, low, high, INT_MAX};
    for (int i = 0; i < 3; i++) {
        if (ends[i] + 1 < ends[i + 1]) {
            stk_sys_close_range((unsigned)(ends[i] + 1), (unsigned)(ends[i + 1] - 1), false);
        }
    }
}

static void end_run(const char *run, const guard_table *table)
{
    static pid_t sessions[N_SLOTS];
    static stk_proc_file files[N_SLOTS * STK_GUARD_FILES];
    stk_proc_ours ours = {.sids = sessions, .files = files};
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        int32_t session = table->sessions[i];
        for (uint32_t k = 0; session != FREE && k < STK_GUARD_FILES; k++) {
            files[ours.n_files] = table->files[i][k];
            ours.n_files += table->files[i][k].inode != 0;
        }
        if (session > 1) {
            sessions[ours.n_sids++] = session;
        }
    }
    for (uint32_t i = 0; i < ours.n_sids; i++) {
        (void)kill(-sessions[i], SIGKILL); /* immediately; a thorough search follows */
    }
    if (run == NULL) {
        (void)stk_proc_kill(&ours, END_MS);
        return;
    }
    char marker[STK_LIMIT_NAME + 256];
    (void)snprintf(marker, sizeof marker, "STOKER_RUN=%s", run);
    ours.marker = marker;
    (void)stk_proc_kill(&ours, END_MS);
    stk_cgroups_close(stk_cgroups_open(run)); /* opening removes what the engine left */
}

/* Moves what the engine starts into the run's control group, which also identifies a daemon that
 * closed, cleared and left everything else. Waits a moment after each start, because joining a
 * group may take longer than a short step runs. Looks for processes forked meanwhile at once, or in
 * the next round if one follows anyway. Returns when the engine has died or is done. */
static void gather_until_end(stk_cgroups *groups, pid_t engine, int socket, guard_table *table)
{
    int32_t seen = 0;
    for (;;) {
        bool more = table->n_added != seen;
        if (!more) {
            table->asleep = 1;
            more = table->n_added != seen;
        }
        char word;
        struct pollfd p = {.fd = socket, .events = POLLIN};
        int ready = poll(&p, 1, more ? GATHER_MS : -1);
        if (ready == 0) {
            pid_t others[N_GUARDS];
            for (uint32_t i = 0; i < N_GUARDS; i++) {
                others[i] = table->guards[i];
            }
            seen = table->n_added;
            for (int pass = 0; pass < N_PASSES && (pass == 0 || table->n_added == seen); pass++) {
                if (!stk_cgroups_gather(groups, engine, others, N_GUARDS)) {
                    break;
                }
            }
        } else if (ready > 0 && read(socket, &word, 1) == 0) {
            return;
        }
    }
}

static void wait_for_end(int socket)
{
    char word;
    ssize_t n;
    while ((n = read(socket, &word, 1)) > 0 || (n < 0 && errno == EINTR)) {
    }
}

static _Noreturn void guard_main(stk_guard *g, uint32_t i, int socket, pid_t engine)
{
    sigset_t all;
    g->table->guards[i] = getpid();
    sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL); /* all but SIGKILL: a guardian must survive Ctrl-C */
    (void)setsid();
    (void)prctl(PR_SET_NAME, names[i], 0, 0, 0);
    keep_only(socket, g->name);
    if (chdir("/") != 0) {
        _exit(1);
    }
    stk_cgroups *groups = NULL;
    if (i <= 0 && g->run != NULL) {
        groups = stk_cgroups_find(g->run);
    }
    if (stk_cgroups_can_gather(groups)) {
        gather_until_end(groups, engine, socket, g->table);
    } else {
        wait_for_end(socket);
    }
    if (!g->table->closed) {
        end_run(g->run, g->table);
    }
    _exit(0);
}

/* --- the engine's side --- */

/* Starts a guardian for the current table. -1 with errno. */
static int start_guardian(stk_guard *g, uint32_t i)
{
    int pair[2];
    pid_t engine = getpid();
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
        return -1;
    }
    pid_t pid = fork();
    if (pid == 0) {
        guard_main(g, i, pair[0], engine);
    }
    int why = errno;
    (void)close(pair[0]);
    if (pid < 0) {
        (void)close(pair[1]);
        errno = why;
        return -1;
    }
    g->table->guards[i] = pid;
    g->guards[i] = (guardian){.pid = pid, .socket = pair[1]};
    return 0;
}

static void guard_free(stk_guard *g)
{
    if (g->table != NULL) {
        g->table->closed = 1;
    }
    for (uint32_t i = 0; i < N_GUARDS; i++) {
        guardian *one = &g->guards[i];
        if (one->pid > 0) {
            (void)close(one->socket);
            while (waitpid(one->pid, NULL, 0) < 0 && errno == EINTR) {
            }
        }
    }
    if (g->table != NULL) {
        (void)munmap(g->table, sizeof *g->table);
    }
    stk_file_close(&g->name);
    free(g->run);
    free(g);
}

/* Takes the run's guardian name. The guardian of the run's previous engine holds this name while it
 * lives: it may still be killing that engine's processes by the run's name, and would kill our
 * tasks too. -1: the name can't be taken. */
static int take_name(const char *run)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX}; /* abstract: disappears with its last holder */
    int n = snprintf(at.sun_path + 1, sizeof at.sun_path - 1, "stoker-guard-%u-%s", getuid(), run);
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    int fd = -1;
    if ((size_t)n < sizeof at.sun_path - 1) {
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    }
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
    void *map =
        mmap(NULL, sizeof *g->table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    g->table = map != MAP_FAILED ? map : NULL;
    bool begun = g->table != NULL && (run == NULL || g->run != NULL);
    for (uint32_t i = 0; begun && i < N_GUARDS; i++) {
        begun = start_guardian(g, i) == 0;
    }
    if (!begun) {
        int sys = errno;
        guard_free(g);
        return stk_err_sys(err, STK_E_SYS, sys, "cannot start the guardian process");
    }
    *ret_guard = g;
    return 0;
}

void stk_guard_renew(stk_guard *guard)
{
    for (uint32_t i = 0; i < N_GUARDS; i++) {
        int status;
        pid_t old = guard->guards[i].pid;
        int socket = guard->guards[i].socket;
        pid_t got = waitpid(old, &status, WNOHANG);
        if (got == old || (got < 0 && errno == ECHILD)) { /* somebody killed it */
            if (start_guardian(guard, i) == 0) {
                (void)close(socket);
            }
        }
    }
}

void stk_guard_pids(const stk_guard *guard, pid_t *ret_pids)
{
    for (uint32_t i = 0; i < N_GUARDS; i++) {
        ret_pids[i] = guard->guards[i].pid;
    }
}

int stk_guard_expect(stk_guard *guard, const int *files, uint32_t n_files, uint32_t *ret_slot,
                     stk_err *err)
{
    guard_table *t = guard->table;
    for (uint32_t i = 0; i < N_SLOTS; i++) {
        uint32_t slot = (guard->hint + i) % N_SLOTS;
        if (t->sessions[slot] == FREE) {
            for (uint32_t k = 0; k < STK_GUARD_FILES; k++) {
                t->files[slot][k] = stk_proc_file_of(k < n_files ? files[k] : -1);
            }
            t->sessions[slot] = NOT_BEGUN;
            guard->hint = slot + 1;
            *ret_slot = slot;
            return 0;
        }
    }
    return stk_err_set(err, STK_E_LIMIT, "more than %d processes to guard at once", N_SLOTS);
}

void stk_guard_begun(stk_guard *guard, uint32_t slot, pid_t session)
{
    guard_table *t = guard->table;
    t->sessions[slot] = (int32_t)session;
    t->n_added++;
    if (t->asleep) {
        t->asleep = 0;
        (void)send(guard->guards[0].socket, "a", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

int stk_guard_add(stk_guard *guard, pid_t session, uint32_t *ret_slot, stk_err *err)
{
    STK_TRY(stk_guard_expect(guard, NULL, 0, ret_slot, err));
    stk_guard_begun(guard, *ret_slot, session);
    return 0;
}

void stk_guard_remove(stk_guard *guard, uint32_t slot)
{
    if (slot < N_SLOTS) {
        guard->table->sessions[slot] = FREE;
        guard->hint = slot;
    }
}

void stk_guard_close(stk_guard *guard)
{
    if (guard != NULL) {
        guard_free(guard);
    }
}
