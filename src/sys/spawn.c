#include "sys/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/text.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/old.h"

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif
enum { CHILD_STACK = 32 << 10 };

typedef struct failure {
    enum {
        AT_NOTHING,
        AT_SESSION,
        AT_CGROUP,
        AT_CPUS,
        AT_MOUNT,
        AT_FDS,
        AT_CWD,
        AT_PRIVS,
        AT_EXEC
    } at;
    uint32_t i; /* which cgroup file */
    int sys;
} failure;

/* The child shares our memory until its exec, and reports failures through this record. A child in
 * a batch has a copy of the memory, and writes its failure into a pipe. */
typedef struct child {
    const stk_spawn *spawn;
    const char *path;
    const char **by_shell; /* argv for a script without "#!": run by /bin/sh, as execvp does */
    pid_t parent;
    int to; /* a pipe for failures if the child has a copy of our memory; else -1 */
    failure failed;
} child;

/* ThreadSanitizer attributes a child's actions in our memory to us, and sees nothing afterwards.
 * With it, a child gets a copy and reports through a pipe. */
#ifdef __SANITIZE_THREAD__
enum { SHARES_MEMORY = false };
#else
enum { SHARES_MEMORY = true };
#endif

#define IN_CHILD __attribute__((no_sanitize("address", "undefined", "thread")))

/* Resets all signals to their defaults before unblocking them: handlers would run in memory that we
 * share with the parent, and ignored signals survive an exec (Python ignores SIGPIPE). */
IN_CHILD static void reset_signals(void)
{
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    for (int number = 1; number < NSIG; number++) {
        (void)sigaction(number, &by_default, NULL);
    }
    sigset_t none;
    sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

IN_CHILD static int join_cgroups(child *c)
{
    uint32_t *i = &c->failed.i;
    for (*i = 0; *i < c->spawn->n_cgroup_procs; ++*i) {
        int fd = open(c->spawn->cgroup_procs[*i], O_WRONLY | O_CLOEXEC);
        if (fd < 0) {
            return -1;
        }
        ssize_t n = write(fd, "0", 1);
        int sys = errno;
        (void)close(fd);
        errno = sys;
        if (n != 1) {
            return -1;
        }
    }
    return 0;
}

/* Mounts in a private mount namespace. */
IN_CHILD static int mount_readonly(child *c)
{
    const char *const *paths = c->spawn->readonly;
    if (paths == NULL) {
        return 0;
    }
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) {
        return -1;
    }
    uint32_t *i = &c->failed.i;
    for (*i = 0; paths[*i] != NULL; *i += 2) {
        const char *at = paths[*i + 1];
        if (mount(paths[*i], at, NULL, MS_BIND, NULL) < 0 ||
            mount(NULL, at, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0) {
            return -1;
        }
    }
    return 0;
}

IN_CHILD static int keep_open(int fd)
{
    int flags = fcntl(fd, F_GETFD);
    if (flags < 0) {
        return -1;
    }
    return fcntl(fd, F_SETFD, flags & ~FD_CLOEXEC);
}

IN_CHILD static int set_fds(const stk_spawn *s)
{
    int from[3] = {s->stdin_fd, s->stdout_fd, s->stderr_fd};
    int null = -1;
    for (int i = 0; i < 3; i++) {
        if (from[i] < 0) {
            if (null < 0) {
                null = open("/dev/null", O_RDWR | O_CLOEXEC);
            }
            from[i] = null;
        }
        if (from[i] < 3 && from[i] != i) { /* clear of the dup2 targets below */
            from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 3);
        }
        if (from[i] < 0) {
            return -1;
        }
    }
    for (int i = 0; i < 3; i++) {
        if ((from[i] == i ? keep_open(i) : dup2(from[i], i)) < 0) {
            return -1;
        }
    }
    /* Our descriptors are CLOEXEC; this covers inherited ones without it. */
    stk_sys_close_range(3, ~0u, true);
    for (uint32_t i = 0; i < s->n_keep_fds; i++) {
        if (keep_open(s->keep_fds[i]) < 0) {
            return -1;
        }
    }
    return 0;
}

IN_CHILD static _Noreturn void fail(child *c, int at)
{
    c->failed.at = at;
    c->failed.sys = errno;
    if (c->to >= 0) {
        (void)!write(c->to, &c->failed, sizeof c->failed);
    }
    _exit(127);
}

#define TRY(where, expression)                                                                     \
    do {                                                                                           \
        if ((expression) < 0) {                                                                    \
            fail(c, where);                                                                        \
        }                                                                                          \
    } while (0)

/* Runs in the parent's memory, but on a separate stack: no malloc, no locks. */
IN_CHILD static int run_child(void *arg)
{
    child *c = arg;
    const stk_spawn *s = c->spawn;
    if (s->new_session) {
        TRY(AT_SESSION, setsid());
    }
    if (s->new_group) {
        TRY(AT_SESSION, setpgid(0, 0));
    }
    if (s->die_with_parent) {
        TRY(AT_SESSION, prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
        if (getppid() != c->parent) {
            _exit(127); /* the parent died before the line above, so its death would never be
                           signalled */
        }
    }
    TRY(AT_CGROUP, join_cgroups(c));
    if (s->cpus != NULL) {
        TRY(AT_CPUS, sched_setaffinity(0, sizeof *s->cpus, s->cpus));
    }
    TRY(AT_MOUNT, mount_readonly(c));
    TRY(AT_FDS, set_fds(s));
    if (s->n_files != NULL) {
        TRY(AT_FDS, setrlimit(RLIMIT_NOFILE, s->n_files));
    }
    if (s->cwd != NULL) {
        TRY(AT_CWD, chdir(s->cwd));
    }
    if (s->no_new_privs) {
        TRY(AT_PRIVS, prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    }
    reset_signals();
    char *const *env = (char *const *)(uintptr_t)s->env;
    int rc = execve(c->path, (char *const *)(uintptr_t)s->argv, env);
    if (errno == ENOEXEC) {
        rc = execve(c->by_shell[0], (char *const *)(uintptr_t)c->by_shell, env);
    }
    TRY(AT_EXEC, rc);
    return 0;
}

static const char *env_value(const char *const *env, const char *name)
{
    size_t n = strlen(name);
    for (; *env != NULL; env++) {
        if (strncmp(*env, name, n) == 0 && (*env)[n] == '=') {
            return *env + n + 1;
        }
    }
    return NULL;
}

static bool is_program(const char *cwd, const char *path)
{
    char under_cwd[PATH_MAX];
    struct stat st;
    if (path[0] != '/' && cwd != NULL) {
        (void)snprintf(under_cwd, sizeof under_cwd, "%s/%s", cwd, path);
        path = under_cwd;
    }
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

/* Searches as execvp would, but before the fork, because the child must not. */
static const char *find_program(const stk_spawn *s, char *buf, size_t size)
{
    const char *name = s->argv[0];
    if (strchr(name, '/') != NULL) {
        return name;
    }
    const char *path = env_value(s->env, "PATH");
    if (path == NULL) {
        path = "/usr/local/bin:/usr/bin:/bin";
    }
    for (;;) {
        size_t n = strcspn(path, ":");
        int used = n == 0 ? snprintf(buf, size, "./%s", name)
                          : snprintf(buf, size, "%.*s/%s", (int)n, path, name);
        if (used > 0 && (size_t)used < size && is_program(s->cwd, buf)) {
            return buf;
        }
        if (path[n] == '\0') {
            return NULL;
        }
        path += n + 1;
    }
}

static int explain(const child *c, stk_err *err)
{
    const stk_spawn *s = c->spawn;
    const char *name = s->argv[0];
    int code;
    switch (c->failed.at) {
    case AT_CGROUP:
        return stk_err_sys(err, STK_E_SYS, c->failed.sys,
                           "cannot start '%s': joining control group %s", name,
                           s->cgroup_procs[c->failed.i]);
    case AT_MOUNT:
        return stk_err_sys(err, STK_E_SYS, c->failed.sys,
                           "cannot start '%s': mounting '%s' read-only for it", name,
                           stk_text_or(s->readonly[c->failed.i], "/"));
    case AT_CPUS:
        return stk_err_sys(err, STK_E_SYS, c->failed.sys,
                           "cannot start '%s' on the CPUs it was given", name);
    case AT_CWD:
        code = stk_err_sys(err, STK_E_SYS, c->failed.sys,
                           "cannot start '%s': its working directory '%s'", name, s->cwd);
        if (c->failed.sys == ENOENT) {
            stk_err_hint(err, "if the folder was moved, put it back or start a new run from where "
                              "it is now");
        }
        return code;
    case AT_EXEC:
        code = stk_err_sys(err, STK_E_SYS, c->failed.sys, "cannot start '%s'", name);
        if (c->failed.sys == ENOENT && c->path != NULL && is_program(s->cwd, c->path)) {
            stk_err_hint(err, "the file is there, so the interpreter that its first line (or its "
                              "ELF header) names is missing");
        } else if (c->failed.sys == EACCES) {
            stk_err_hint(err, "it must be an executable file: chmod +x");
        }
        return code;
    default:
        return stk_err_sys(err, STK_E_SYS, c->failed.sys,
                           "cannot start '%s': preparing its process", name);
    }
}

/* Returns whether a child with a copy of our memory reported why it didn't become its program. */
static bool hear(stk_spawn_batch *batch, failure *ret)
{
    ssize_t n;
    stk_file_close(&batch->to);
    while ((n = read(batch->from, ret, sizeof *ret)) < 0 && errno == EINTR) {
    }
    stk_file_close(&batch->from);
    return n == sizeof *ret;
}

static int start(child *c, pid_t *ret_pid, int *ret_pidfd, stk_err *err)
{
    alignas(16) char stack[CHILD_STACK];
    int pidfd = -1;
    stk_spawn_batch own = {.from = -1, .to = -1};
    if (c->to < 0 && !SHARES_MEMORY) {
        if (stk_sys_spawn_begin(&own, err) < 0) {
            return STK_E_SYS;
        }
        c->to = own.to;
    }
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, &before);
    int flags = SIGCHLD;
    if (ret_pidfd != NULL) {
        flags |= CLONE_PIDFD;
    }
    if (c->to < 0) {
        flags |= CLONE_VM | CLONE_VFORK;
    }
    pid_t pid = clone(run_child, stack + sizeof stack, flags, c, &pidfd);
    if (pid < 0 && errno == EINVAL) { /* sandboxes refuse the flag that kernels before 5.2 ignore */
        pid = clone(run_child, stack + sizeof stack, flags & ~CLONE_PIDFD, c, &pidfd);
    }
    int sys = errno;
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    if (own.from >= 0) {
        (void)hear(&own, &c->failed);
    }
    if (pid < 0) {
        return stk_err_sys(err, STK_E_SYS, sys, "cannot start '%s': clone", c->spawn->argv[0]);
    }
    if (c->failed.at == AT_NOTHING && ret_pidfd != NULL && pidfd < 0) {
        pidfd = stk_sys_pidfd(pid);
        sys = errno;
    }
    if (c->failed.at != AT_NOTHING || (ret_pidfd != NULL && pidfd < 0)) {
        if (c->failed.at == AT_NOTHING) {
            (void)kill(pid, SIGKILL);
        }
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR) {
        }
        if (pidfd >= 0) {
            (void)close(pidfd);
        }
        if (c->failed.at != AT_NOTHING) {
            return explain(c, err);
        }
        return stk_err_sys(err, STK_E_SYS, sys, "cannot watch '%s'", c->spawn->argv[0]);
    }
    *ret_pid = pid;
    if (ret_pidfd != NULL) {
        *ret_pidfd = pidfd;
    }
    return 0;
}

int stk_sys_spawn(const stk_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, stk_err *err)
{
    char found[PATH_MAX];
    const char *path = find_program(spawn, found, sizeof found);
    if (path == NULL) {
        (void)stk_err_sys(err, STK_E_SYS, ENOENT, "cannot start '%s': no such program in PATH",
                          spawn->argv[0]);
        return STK_E_SYS;
    }
    size_t n = 0;
    while (spawn->argv[n] != NULL) {
        n++;
    }
    const char **by_shell = calloc(n + 2, sizeof *by_shell);
    if (by_shell == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "cannot start '%s'", spawn->argv[0]);
    }
    by_shell[0] = "/bin/sh";
    by_shell[1] = path;
    memcpy(by_shell + 2, spawn->argv + 1, n * sizeof *by_shell); /* its NULL too */
    child c = {.spawn = spawn,
               .path = path,
               .by_shell = by_shell,
               .parent = getpid(),
               .to = spawn->batch == NULL ? -1 : spawn->batch->to};
    int rc = start(&c, ret_pid, ret_pidfd, err);
    free(by_shell);
    return rc;
}

int stk_sys_spawn_begin(stk_spawn_batch *ret_batch, stk_err *err)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "cannot make a pipe");
    }
    *ret_batch = (stk_spawn_batch){.from = ends[0], .to = ends[1]};
    return 0;
}

int stk_sys_spawn_end(stk_spawn_batch *batch, const stk_spawn *spawn, stk_err *err)
{
    char found[PATH_MAX];
    child c = {.spawn = spawn, .to = -1};
    if (!hear(batch, &c.failed)) {
        return 0;
    }
    c.path = find_program(spawn, found, sizeof found);
    return explain(&c, err);
}

uint32_t stk_sys_inherited(int *ret_fds, uint32_t n_max)
{
    STK_DIR_AUTO dir = {0};
    uint32_t n = 0;
    int rc = stk_dir_read("/proc/self/fd", &dir, NULL);
    for (uint32_t i = 0; rc == 0 && i < dir.n && n < n_max; i++) {
        int fd = atoi(dir.items[i].name);
        int flags = fcntl(fd, F_GETFD);
        if (fd > 2 && flags >= 0 &&
            (flags & FD_CLOEXEC) == 0) { /* not `dir` itself, which is CLOEXEC */
            ret_fds[n++] = fd;
        }
    }
    return n;
}
