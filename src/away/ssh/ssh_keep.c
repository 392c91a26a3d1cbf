/* The keeper of one job: outlives the connection that started it, and writes down how the job
 * ended. It holds the lock of the job's folder for as long as it lives. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away/remote/remote_order.h"
#include "away/ssh/ssh_private.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/proc.h"
#include "sys/spawn.h"

enum { TICK_MS = 1000, KILL_ROUNDS = 200, KILL_MS = 20, SAID_BYTES = 2048, ORDER_BYTES = 8 << 20 };

extern char **environ;

typedef struct keeper {
    const char *folder;
    stk_arena *arena;
    const stk_json *order;
    int lock_fd, watch_fd;
    int hear_fd, tell_fd; /* the agent's gate (agent_shared.c) */
    pid_t agent;
    int status; /* as of waitpid */
    bool has_ended, is_stopped, is_let_go;
    int64_t kill_ms; /* monotonic; 0: not due */
    char said[SAID_BYTES];
    size_t n_said;
    char text[900]; /* why the agent didn't begin, or "" */
} keeper;

static bool has_file(const keeper *k, const char *name)
{
    char path[PATH_MAX];
    stk_ssh_job_path(k->folder, name, path);
    return stk_file_exists(path);
}

static const stk_json *read_json(const keeper *k, const char *name)
{
    char path[PATH_MAX];
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    stk_ssh_job_path(k->folder, name, path);
    if (stk_file_read(path, ORDER_BYTES, &text, &len, NULL) < 0) {
        return NULL;
    }
    return stk_json_readn(k->arena, text, len);
}

/* Once: the lock lets one keeper try at a time, and the name is taken for good. */
static int begin(keeper *k, stk_err *err)
{
    char made[PATH_MAX], path[PATH_MAX];
    STK_BUF_AUTO text = STK_BUF_INIT(1024);
    STK_TRY(stk_err_if_null(k->arena, err));
    STK_TRY(stk_ssh_job_lock(k->folder, &k->lock_fd, err));
    stk_ssh_job_path(k->folder, ".begun", made);
    stk_ssh_job_path(k->folder, "begun", path);
    stk_json_open(&text, NULL, '{');
    stk_json_put_text(&text, "boot", stk_clock_boot_id());
    stk_json_put_whole(&text, "pid", (int64_t)getpid());
    stk_json_close(&text, '}');
    STK_TRY(stk_buf_check(&text, err));
    STK_TRY(stk_file_write_atomic(made, text.data, text.len, 0600, err));
    if (link(made, path) < 0 && errno == EEXIST) {
        return stk_err_set(err, STK_E_BUSY, "%s: another keeper runs this job", path);
    }
    if (!stk_file_exists(path)) {
        return stk_err_sys(err, STK_E_ENV, errno, "making %s", path);
    }
    (void)unlink(made);
    return 0;
}

static int write_end(const keeper *k, int exit_status, int signal_number, const char *words,
                     stk_err *err)
{
    STK_BUF_AUTO text = STK_BUF_INIT(8192);
    char path[PATH_MAX];
    stk_json_open(&text, NULL, '{');
    stk_json_put_int(&text, "exit_status", exit_status);
    stk_json_put_whole(&text, "signal", signal_number);
    stk_json_put_text(&text, "text", words);
    stk_json_close(&text, '}');
    STK_TRY(stk_buf_check(&text, err));
    stk_ssh_job_path(k->folder, "end", path);
    int rc = stk_file_write_atomic(path, text.data, text.len, 0600, err);
    while (rc == STK_E_FULL) { /* without it the job would be lost */
        (void)poll(NULL, 0, TICK_MS);
        rc = stk_file_write_atomic(path, text.data, text.len, 0600, err);
    }
    return rc;
}

/* --- the agent --- */

/* Texts of a list, with `separator` between them. */
static const char *join(const keeper *k, const stk_json *list, const char *separator)
{
    STK_BUF_AUTO out = STK_BUF_INIT(1 << 20);
    for (uint32_t i = 0; i < stk_json_n_items(list); i++) {
        stk_buf_separate(&out, separator);
        stk_buf_text(&out, stk_text_or(stk_json_text(stk_json_item(list, i)), ""));
    }
    return stk_text_or(stk_buf_keep(&out, k->arena), "");
}

/* "~/x" is below the home; S3 and absolute paths stay. */
static const char *store_of(const keeper *k)
{
    const char *store = stk_text_or(stk_json_get_text(k->order, "store"), "");
    if (strncmp(store, "~/", 2) == 0) {
        return stk_arena_printf(k->arena, "%s/%s", stk_text_or(stk_ssh_home(), ""), store + 2);
    }
    return store;
}

/* Folders of the host that stay what they are within the job's own view: those of the option, and
 * the store, if it lies within one that is the job's. */
static const char *kept_folders(const keeper *k, const char *store)
{
    const char *keep = join(k, stk_json_get(k->order, "keep"), ":");
    const stk_json *empty = stk_json_get(k->order, "empty");
    bool is_within = false;
    for (uint32_t i = 0; i < stk_json_n_items(empty); i++) {
        const char *path = stk_text_or(stk_json_text(stk_json_item(empty, i)), "");
        size_t n = strlen(path);
        is_within = is_within || (n > 0 && strncmp(store, path, n) == 0 &&
                                  (store[n] == '/' || store[n] == '\0'));
    }
    if (!is_within || store[0] != '/') {
        return keep;
    }
    return stk_arena_printf(k->arena, "%s%s%s", keep, stk_text_when(*keep != '\0', ":"), store);
}

static int put_env(const keeper *k, const char *store, const char *nest, const char **env,
                   size_t *n, stk_err *err)
{
    const char *resources = stk_json_dump_in(stk_json_get(k->order, "resources"), k->arena);
    const char *label = stk_json_get_text(k->order, "label");
    const char *rdzv = stk_json_get_text(k->order, "rdzv");
    const char *cpus = join(k, stk_json_get(k->order, "cpus"), ",");
    const char *const pairs[][2] = {
        {"STOKER_AGENT_SHARED", stk_text_or(resources, "{}")},
        {"STOKER_AGENT_LABEL", stk_text_or(label, "a job")},
        {"STOKER_AGENT_CPUS", cpus},
        {"STOKER_AGENT_GATE", stk_arena_printf(k->arena, "%d:%d", k->hear_fd, k->tell_fd)},
        {"STOKER_NEST_AT", nest},
        {"STOKER_NEST_EMPTY", join(k, stk_json_get(k->order, "empty"), ":")},
        {"STOKER_NEST_KEEP", kept_folders(k, store)},
        {"STOKER_GANG_NODE",
         stk_arena_printf(k->arena, "%lld", (long long)stk_json_get_whole(k->order, "node", 0))},
        {"STOKER_GANG_RDZV", rdzv}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (pairs[i][1] != NULL) {
            env[*n] = stk_arena_printf(k->arena, "%s=%s", pairs[i][0], pairs[i][1]);
            STK_TRY(stk_err_if_null(env[(*n)++], err));
        }
    }
    return 0;
}

/* The folder of our program, which the job sees as /stoker. */
static int make_nest(const keeper *k, const char *at, const char **ret, stk_err *err)
{
    const char *nest = stk_arena_printf(k->arena, "%s/nest", k->folder);
    const char *program = stk_arena_printf(k->arena, "%s/stoker", stk_text_or(nest, ""));
    if (nest == NULL || program == NULL) {
        return stk_err_nomem(err);
    }
    STK_TRY(stk_file_mkdirs(nest, 0700, err));
    if (symlink(at, program) < 0 && errno != EEXIST) {
        return stk_err_sys(err, STK_E_ENV, errno, "linking %s", program);
    }
    *ret = nest;
    return 0;
}

static const char *own_folder(const keeper *k)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[MAX(n, 0)] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(self, '/');
        if (slash != NULL) {
            *slash = '\0';
        }
    }
    return stk_arena_dup(k->arena, self);
}

static int agent_argv(const keeper *k, const char *at, const char *store, const char **argv,
                      stk_err *err)
{
    const char *other = getenv("STOKER_SSH_PROGRAM");
    uint32_t n = 0;
    if (other == NULL) {
        argv[n++] = stk_arena_printf(k->arena, "%s/bin/ld.so", at);
        argv[n++] = "--library-path";
        argv[n++] = stk_arena_printf(k->arena, "%s/bin/lib", at);
        other = stk_arena_printf(k->arena, "%s/bin/stoker", at);
    }
    argv[n++] = other;
    argv[n++] = "agent";
    argv[n++] = store;
    argv[n++] = stk_json_get_text(k->order, "key");
    for (uint32_t i = 0; i < n; i++) {
        STK_TRY(stk_err_if_null(argv[i], err));
    }
    argv[n] = NULL;
    return 0;
}

/* Starts it with both ends of its gate; it ends with us. */
static int start_agent(keeper *k, stk_err *err)
{
    const char *argv[8], *nest = NULL, *at = own_folder(k), *store = store_of(k);
    int said[2] = {-1, -1}, told[2] = {-1, -1};
    size_t n = 0;
    if (at == NULL || store == NULL) {
        return stk_err_nomem(err);
    }
    if (pipe2(said, O_CLOEXEC) < 0 || pipe2(told, O_CLOEXEC) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "a pipe to the agent");
    }
    while (environ[n] != NULL) {
        n++;
    }
    const char **env = stk_arena_array(k->arena, n + 16, sizeof *env);
    STK_TRY(stk_err_if_null(env, err));
    memcpy(env, environ, n * sizeof *env);
    k->hear_fd = told[0]; /* as the agent sees it */
    k->tell_fd = said[1];
    STK_TRY(make_nest(k, at, &nest, err));
    if (getenv("STOKER_SSH_PROGRAM") != NULL) {
        nest = NULL;
    }
    STK_TRY(put_env(k, store, nest, env, &n, err));
    STK_TRY(agent_argv(k, at, store, argv, err));
    if (store[0] == '/') {
        STK_TRY(stk_file_mkdirs(store, 0755, err));
    }
    const int kept[] = {told[0], said[1]};
    const stk_spawn spawn = {.argv = argv,
                             .env = env,
                             .cwd = "/",
                             .stdin_fd = -1,
                             .stdout_fd = STDOUT_FILENO,
                             .stderr_fd = STDERR_FILENO,
                             .keep_fds = kept,
                             .n_keep_fds = 2,
                             .die_with_parent = true};
    int rc = stk_sys_spawn(&spawn, &k->agent, NULL, err);
    stk_file_close(&told[0]);
    stk_file_close(&said[1]);
    k->hear_fd = said[0]; /* as we do */
    k->tell_fd = told[1];
    (void)fcntl(k->hear_fd, F_SETFL, O_NONBLOCK);
    return rc;
}

/* --- what the agent says --- */

static void hear_line(keeper *k, char *line)
{
    char path[PATH_MAX];
    if (strcmp(line, "held") == 0) {
        stk_ssh_job_path(k->folder, "held", path);
        (void)stk_file_write_atomic(path, "", 0, 0600, NULL);
    } else if (strncmp(line, "busy ", 5) == 0) {
        (void)snprintf(k->text, sizeof k->text, "%s", line + 5);
    }
}

static void hear_agent(keeper *k)
{
    for (;;) {
        ssize_t n = k->hear_fd < 0 || k->n_said + 1 >= sizeof k->said
                        ? 0
                        : read(k->hear_fd, k->said + k->n_said, sizeof k->said - 1 - k->n_said);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            return;
        }
        if (n <= 0) {
            stk_file_close(&k->hear_fd);
            return;
        }
        k->n_said += (size_t)n;
        k->said[k->n_said] = '\0';
        for (char *end = NULL; (end = strchr(k->said, '\n')) != NULL;) {
            *end = '\0';
            hear_line(k, k->said);
            k->n_said -= (size_t)(end + 1 - k->said);
            memmove(k->said, end + 1, k->n_said + 1);
        }
    }
}

/* --- its end --- */

/* No descendant of a job outlives it: orphans are ours. */
static void kill_rest(void)
{
    for (int i = 0; i < KILL_ROUNDS; i++) {
        stk_proc_members all = {0};
        (void)stk_proc_descendants(getpid(), &all);
        for (uint32_t m = 0; m < all.n; m++) {
            (void)kill(all.pids[m], SIGKILL);
        }
        stk_proc_members_done(&all);
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
        }
        if (pid < 0 && errno == ECHILD) {
            return;
        }
        (void)poll(NULL, 0, KILL_MS);
    }
}

/* It may be told again, with a shorter grace. */
static void see_stop(keeper *k)
{
    const stk_json *stop = read_json(k, "stop");
    int64_t now = stk_clock_mono_ms(&stk_clock_real);
    if (stop == NULL) {
        return;
    }
    int64_t due = now + MAX(stk_json_get_whole(stop, "grace_ms", 0), 0);
    if (!k->is_stopped && k->agent > 0) {
        (void)kill(k->agent, SIGTERM);
    }
    if (k->kill_ms == 0 || due < k->kill_ms) {
        k->kill_ms = due;
    }
    k->is_stopped = true;
}

static void see_go(keeper *k)
{
    if (!k->is_let_go && has_file(k, "go")) {
        k->is_let_go = write(k->tell_fd, "go\n", 3) == 3;
    }
}

static void reap(keeper *k)
{
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid == k->agent) {
            k->has_ended = true;
            k->status = status;
        }
    }
}

/* Waits for the agent's words, for files in the folder, or for a child's end. */
static void await_news(keeper *k, const sigset_t *open_mask)
{
    char events[4096];
    int64_t now = stk_clock_mono_ms(&stk_clock_real);
    int64_t wait = TICK_MS;
    if (k->kill_ms > 0) {
        wait = MIN(MAX(k->kill_ms - now, 0), wait);
    }
    const struct timespec until = {.tv_sec = wait / 1000, .tv_nsec = wait % 1000 * 1000000};
    struct pollfd fds[2] = {{.fd = k->watch_fd, .events = POLLIN},
                            {.fd = k->hear_fd, .events = POLLIN}};
    if (ppoll(fds, 2, &until, open_mask) <= 0) {
        return;
    }
    if (fds[0].revents != 0) {
        (void)!read(k->watch_fd, events, sizeof events);
        see_stop(k);
        see_go(k);
    }
    if (fds[1].revents != 0) {
        hear_agent(k);
    }
}

static void watch_agent(keeper *k)
{
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD); /* comes only while we wait */
    (void)sigprocmask(SIG_BLOCK, &child, &before);
    for (reap(k); !k->has_ended; reap(k)) {
        await_news(k, &before);
        if (k->kill_ms > 0 && stk_clock_mono_ms(&stk_clock_real) >= k->kill_ms) {
            (void)kill(k->agent, SIGKILL);
        }
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    hear_agent(k);
}

static int run_job(keeper *k, stk_err *err)
{
    k->watch_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (k->watch_fd < 0 || inotify_add_watch(k->watch_fd, k->folder, IN_CREATE | IN_MOVED_TO) < 0) {
        return stk_err_sys(err, STK_E_ENV, errno, "watching %s", k->folder);
    }
    if (has_file(k, "stop")) {
        return write_end(k, -1, SIGTERM, "stopped before it began", err);
    }
    k->order = read_json(k, "order.json");
    STK_TRY(start_agent(k, err));
    STK_FAILPOINT("ssh.keep.agent");
    see_stop(k); /* what came meanwhile */
    see_go(k);
    watch_agent(k);
    kill_rest();
    STK_FAILPOINT("ssh.keep.end");
    if (WIFSIGNALED(k->status)) {
        return write_end(k, -1, WTERMSIG(k->status), k->text, err);
    }
    return write_end(k, WEXITSTATUS(k->status), 0, k->text, err);
}

/* SIGCHLD wakes poll(). */
static void wake(int number)
{
    (void)number;
}

static void tell_ready(int fd)
{
    (void)!write(fd, "begun\n", 6);
    stk_file_close(&fd);
}

int stk_ssh_keep(const char *folder, int ready_fd)
{
    keeper k = {.folder = folder,
                .arena = stk_arena_new(0),
                .lock_fd = -1,
                .watch_fd = -1,
                .hear_fd = -1,
                .tell_fd = -1,
                .agent = -1};
    const struct sigaction waking = {.sa_handler = wake, .sa_flags = SA_NOCLDSTOP};
    stk_err err = {0};
    if (fork() != 0) { /* who started us waits for this one only */
        _exit(0);
    }
    (void)fcntl(ready_fd, F_SETFD, FD_CLOEXEC);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)sigaction(SIGCHLD, &waking, NULL);
    (void)signal(SIGHUP, SIG_IGN);
    (void)signal(SIGPIPE, SIG_IGN);
    int rc = begin(&k, &err);
    if (rc == 0) {
        tell_ready(ready_fd);
        rc = run_job(&k, &err);
        if (rc < 0) {
            kill_rest();
            (void)write_end(&k, STK_AGENT_NO_SHARE, 0, err.text, NULL);
        }
    }
    if (rc < 0 && rc != STK_E_BUSY) {
        fprintf(stderr, "stoker keep: %s\n", err.text);
    }
    stk_arena_free(k.arena);
    return rc < 0 && rc != STK_E_BUSY;
}
