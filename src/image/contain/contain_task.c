/* A task's container from its creation to its end. The engine is asked twice, to create and to
 * start; from then on the runner inside speaks to us itself, so an engine that goes away changes
 * nothing. Whoever dies first, the other side of the socket ends the container, and the engine
 * removes what has ended (AutoRemove). */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/text.h"
#include "image/contain/contain_private.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/spawn.h"

enum { TICK_MS = 500, REACH_MS = 30000, LINE_MAX_BYTES = 512, LOGS_MAX = 400 };
enum { REMOVE_MS = 30000, AGAIN_MS = 200 };
enum { LEAVE_MS = 2000 /* for an engine that we are about to leave */ };

typedef struct task {
    contain_spec spec;
    stk_engine engine;
    contain_files files;
    stk_arena *arena;
    const char *id;
    const char *const *entrypoint; /* the image's, to be kept */
    int fds[CONTAIN_MAX_FDS];
    uint32_t n_fds;
    int signals, conn;
    int ends;       /* readable: we are told to end; never read */
    pid_t pid;      /* of the runner, on this host */
    int monitor_fd; /* of its parent, the engine's: readable when that is gone; -1 unknown */
    pid_t monitor;
    char monitor_name[64];
    char cgroup[4096]; /* "" unknown */
    char line[LINE_MAX_BYTES];
    size_t n_line;
    bool ended, closed, knows_oom;
    bool was_reached;       /* the runner was there */
    bool is_lost;           /* the monitor is gone */
    sigset_t ending;        /* signals by which we are told to end */
    int told;               /* the first of them before there was a program … */
    int64_t told_ms;        /* … and when; -1 none */
    unsigned char early[8]; /* signals that came before there was a program */
    uint32_t n_early;
    int64_t begin_ms, create_ms, started_ms, runner_ms;
    stk_contain_end *end;
    /* What makes it and starts it, a thread: signals are heard meanwhile, and the program runs
     * before the engine has answered. The lock is for `engine`, `id` and what follows. */
    pthread_t thread;
    pthread_mutex_t lock;
    bool asked; /* there is an engine, which may have made it */
    int started_fd;
    int stop_fd; /* readable: it is to give up */
    int start_rc;
    stk_err start_err;
} task;

static int64_t mono_ms(void)
{
    return stk_clock_mono_ms(&stk_clock_real);
}

__attribute__((format(printf, 3, 4))) static void never(task *t, int status, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(t->end->text, sizeof t->end->text, fmt, ap);
    va_end(ap);
    t->end->exit_status = status;
    t->end->signal = 0;
}

/* runtimes tell a ulimit by its number only; it need not be one that was asked for, since an engine
 * has defaults */
static bool is_ulimit(task *t, const char *text)
{
    static const char *const names[] = {
        "cpu",     "fsize", "data",  "stack",      "core",     "rss",  "nproc",  "nofile",
        "memlock", "as",    "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime"};
    const char *at = strstr(text, "rlimit type ");
    if (at == NULL) {
        return false;
    }
    int number = atoi(at + strlen("rlimit type "));
    if (number < 0 || number >= (int)(sizeof names / sizeof *names)) {
        return false;
    }
    never(t, CONTAIN_NEVER_RAN,
          "%s can't set the container's ulimit %s: it is above the engine's own; say a lower one "
          "(backend: {docker: {ulimits: {%s: …}}})",
          t->engine.name, names[number], names[number]);
    return true;
}

static void never_for(task *t, const stk_err *err)
{
    if (is_ulimit(t, err->text)) {
        return;
    }
    if (strcasestr(err->text, "no space left") != NULL ||
        strcasestr(err->text, "quota exceeded") != NULL) {
        never(
            t, CONTAIN_NEVER_RAN,
            "%s; make room there: in the storage of %s by `%s system prune`, in a store by `stoker "
            "store gc`",
            err->text, stk_text_or(t->engine.name, "the container engine"),
            t->engine.is_podman ? "podman" : "docker");
        return;
    }
    never(t, CONTAIN_NEVER_RAN, "%s%s%s", err->text, err->hint[0] != '\0' ? "; " : "", err->hint);
}

/* --- container.json --- */

static void write_state(const task *t, bool at_end)
{
    char path[4200];
    STK_BUF_AUTO out = STK_BUF_INIT(64 << 10);
    const stk_contain_end *e = t->end;
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "id", t->id);
    stk_json_put_text(&out, "name", t->spec.name);
    stk_json_put_text(&out, "image", t->spec.shown);
    stk_json_put_text(&out, "engine", t->engine.name);
    stk_json_put_text(&out, "socket", t->engine.socket);
    stk_json_put_int(&out, "pid", t->pid > 0 ? t->pid : -1);
    stk_json_put_text(&out, "cgroup", stk_text_if_any(t->cgroup));
    stk_json_put_int(&out, "created", stk_clock_wall_ms(&stk_clock_real) - mono_ms() + t->begin_ms);
    stk_json_open(&out, "start_ms", '{');
    stk_json_put_int(&out, "create", t->create_ms);
    stk_json_put_int(&out, "start", t->started_ms);
    stk_json_put_int(&out, "runner", t->runner_ms);
    stk_json_close(&out, '}');
    if (at_end) {
        stk_json_put_bool(&out, "oom", e->oom);
        stk_json_put_int(&out, "peak_bytes", e->peak_bytes);
        stk_json_put_int(&out, "shm_bytes", e->shm_bytes);
        stk_json_put_int(&out, "shm_free_bytes", e->shm_free_bytes);
        stk_json_put_int(&out, "exit", e->exit_status);
        stk_json_put_int(&out, "signal", e->signal);
        stk_json_put_int(&out, "cpu_us", e->cpu_us);
        stk_json_put_text(&out, "ended_by", stk_text_if_any(e->by));
        stk_json_put_text(&out, "failed", stk_text_if_any(e->text));
    }
    stk_buf_text(&out, "}\n");
    (void)snprintf(path, sizeof path, "%s/container.json", t->spec.dir);
    if (!out.failed) { /* who watches makes do without it */
        (void)stk_file_write_atomic(path, out.data, out.len, 0644, NULL);
    }
}

/* --- the engine's part --- */

static const stk_json *image_of(task *t, const stk_engine *engine, stk_json *root)
{
    const char *name = stk_engine_escape(t->spec.image, t->arena);
    if (name == NULL) {
        return NULL;
    }
    const char *path = stk_arena_printf(t->arena, "/images/%s/json", name);
    if (path == NULL || stk_engine_get(engine, path, t->arena, root, NULL) < 0) {
        return NULL;
    }
    return root;
}

static void find_entrypoint(task *t, const stk_engine *engine)
{
    stk_json root = {0};
    const stk_json *config = stk_json_get(image_of(t, engine, &root), "Config");
    const stk_json *list = stk_json_get(config, "Entrypoint");
    uint32_t n = stk_json_n_items(list);
    const char **words = stk_arena_array(t->arena, (size_t)n + 1, sizeof *words);
    for (uint32_t i = 0; words != NULL && i < n; i++) {
        words[i] = stk_json_text(&list->items[i]);
    }
    t->entrypoint = words;
}

/* Everything that the engine is asked for before the program runs. */
static int create_and_start(task *t, stk_err *err)
{
    char path[256];
    const char *id = NULL;
    stk_engine engine = {0};
    int rc = stk_engine_open(t->spec.socket, t->stop_fd, t->arena, &engine, err);
    (void)pthread_mutex_lock(&t->lock);
    t->engine = engine;
    t->engine.cancel_fd = 0;
    (void)pthread_mutex_unlock(&t->lock);
    if (rc == 0 && t->spec.keep_entrypoint) {
        find_entrypoint(t, &engine);
    }
    int64_t begin_ms = mono_ms();
    if (rc == 0) {
        rc = stk_contain_create(&t->spec, &engine, &t->files, t->arena, &id, err);
    }
    (void)pthread_mutex_lock(&t->lock);
    t->id = rc < 0 ? NULL : id;
    t->begin_ms = begin_ms;
    t->create_ms = mono_ms() - begin_ms;
    t->asked = engine.socket != NULL && engine.api != NULL;
    (void)pthread_mutex_unlock(&t->lock);
    STK_TRY(rc);
    (void)snprintf(path, sizeof path, "/containers/%s/start", id);
    return stk_engine_call(&engine, "POST", path, NULL, NULL, NULL, err);
}

static void *start_thread(void *arg)
{
    task *t = arg;
    uint64_t one = 1;
    t->start_rc = create_and_start(t, &t->start_err);
    (void)!write(t->started_fd, &one, sizeof one);
    return NULL;
}

/* What the container wrote before its runner reached us: frames of Docker's stream. */
static void read_logs(const stk_engine *engine, const char *id, char *ret, size_t size)
{
    char path[256];
    STK_BUF_AUTO body = STK_BUF_INIT(1 << 20);
    size_t n = 0;
    ret[0] = '\0';
    (void)snprintf(path, sizeof path, "/containers/%s/logs?stdout=true&stderr=true", id);
    if (stk_engine_call(engine, "GET", path, NULL, NULL, &body, NULL) < 0) {
        return;
    }
    for (size_t at = 0; at + 8 <= body.len;) {
        const unsigned char *h = (const unsigned char *)body.data + at;
        size_t len = (size_t)h[4] << 24 | (size_t)h[5] << 16 | (size_t)h[6] << 8 | h[7];
        if (len > body.len - at - 8) {
            len = body.len - at - 8;
        }
        for (size_t i = 0; i < len && n + 1 < size; i++) {
            ret[n++] = body.data[at + 8 + i];
            if (ret[n - 1] == '\n') {
                ret[n - 1] = ' ';
            }
        }
        at += 8 + len;
    }
    ret[n] = '\0';
}

/* It was started, and nobody speaks to us: is it still there, and what does it say? True: no more
 * is to be hoped for. */
static bool given_up(task *t, int64_t since_ms)
{
    char path[256];
    stk_engine engine = t->engine;
    engine.cancel_fd = t->ends;
    char logs[LOGS_MAX];
    stk_json root = {0};
    stk_err err = {0};
    (void)snprintf(path, sizeof path, "/containers/%s/json", t->id);
    int rc = stk_engine_get(&engine, path, t->arena, &root, &err);
    bool gone = rc == STK_E_NOT_FOUND ||
                stk_json_is_false(stk_json_get(stk_json_get(&root, "State"), "Running"));
    read_logs(&engine, t->id, logs, sizeof logs);
    if (!gone && logs[0] == '\0' && mono_ms() - since_ms < REACH_MS) {
        return false;
    }
    const char *what = gone ? "ended" : "didn't reach us";
    never(t, CONTAIN_NEVER_RAN, "container %s of image '%s' %s before the program began%s%s",
          t->spec.name, t->spec.shown, what, logs[0] != '\0' ? ": " : "", logs);
    return true;
}

/* --- the runner's part --- */

static void send_signal(task *t, int number)
{
    unsigned char bytes[] = {'s', (unsigned char)number};
    if (t->conn >= 0) {
        (void)send(t->conn, bytes, sizeof bytes, MSG_NOSIGNAL);
    } else if (t->n_early < sizeof t->early) {
        t->early[t->n_early++] = (unsigned char)number;
    }
}

static int greet(task *t, stk_err *err)
{
    struct ucred who = {0};
    socklen_t len = sizeof who;
    t->conn = accept4(t->files.listen_fd, NULL, NULL, SOCK_CLOEXEC);
    if (t->conn < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "%s", t->files.socket);
    }
    (void)pthread_mutex_lock(&t->lock);
    t->runner_ms = mono_ms() - t->begin_ms - t->create_ms;
    (void)pthread_mutex_unlock(&t->lock); /* and `id` is there */
    t->was_reached = true;
    if (getsockopt(t->conn, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.pid > 0) {
        t->pid = who.pid;
        if (!stk_contain_cgroup(t->pid, t->id, t->cgroup, sizeof t->cgroup)) {
            t->cgroup[0] = '\0';
        }
        t->monitor_fd =
            stk_contain_monitor(t->pid, &t->monitor, t->monitor_name, sizeof t->monitor_name);
    }
    stk_contain_files_remove(&t->files);
    int rc = stk_contain_send(t->conn, &t->spec, t->entrypoint, t->fds, t->n_fds, err);
    for (uint32_t i = 0; rc == 0 && i < t->n_early; i++) {
        send_signal(t, t->early[i]);
    }
    write_state(t, false);
    return rc;
}

static const char *program_of(const task *t)
{
    if (t->entrypoint != NULL && t->entrypoint[0] != NULL) {
        return t->entrypoint[0];
    }
    return stk_text_or(t->spec.argv[0], "");
}

/* The program couldn't be started in there: why, in a sentence. */
static void explain_failed_start(task *t, const char *what, int sys)
{
    const char *program = program_of(t);
    const char *image = t->spec.shown;
    stk_json root = {0};
    const char *arch = NULL;
    if (strcmp(what, "cwd") == 0) {
        never(t, CONTAIN_CANT_RUN, "folder %s can't be entered in image '%s': %s", t->spec.cwd,
              image, strerror(sys));
    } else if (strcmp(what, "user") == 0 && sys == 0) {
        never(t, CONTAIN_CANT_RUN,
              "image '%s' has no user '%s': name one of its /etc/passwd, or a "
              "number",
              image, t->spec.user);
    } else if (strcmp(what, "user") == 0) {
        never(t, CONTAIN_CANT_RUN,
              "user '%s' of image '%s' can't be had in a container of %s: %s; "
              "a user's own engine has those of /etc/subuid and /etc/subgid only",
              t->spec.user, image, t->engine.name, strerror(sys));
    } else if (strcmp(what, "env") == 0) {
        never(t, CONTAIN_CANT_RUN,
              "the variables of docker: environment can't be made in image "
              "'%s': %s",
              image, strerror(sys));
    } else if (strcmp(what, "exec") == 0 && sys == ENOENT && strchr(program, '/') != NULL) {
        never(t, CONTAIN_NO_PROGRAM,
              "image '%s' has no program '%s', or not the interpreter or loader that it names",
              image, program);
    } else if (strcmp(what, "exec") == 0 && sys == ENOENT) {
        never(t, CONTAIN_NO_PROGRAM,
              "image '%s' has no program '%s' in its PATH; name one that it has, with its whole "
              "path, or another image",
              image, program);
    } else if (strcmp(what, "exec") == 0 && sys == ENOEXEC) {
        arch = stk_json_get_text(image_of(t, &t->engine, &root), "Architecture");
        never(t, CONTAIN_CANT_RUN,
              "'%s' of image '%s' can't be executed here (exec format error): the image is for %s",
              program, image, stk_text_or(arch, "another architecture"));
    } else {
        never(t, CONTAIN_CANT_RUN, "'%s' of image '%s' can't be started: %s", program, image,
              strerror(sys));
    }
}

static void look_at_group(task *t)
{
    if (t->cgroup[0] != '\0') {
        t->end->oom = stk_contain_oom(t->cgroup, &t->knows_oom);
        t->end->peak_bytes = stk_contain_peak(t->cgroup);
    }
}

/* Its processes can't be seen from here: the engine has measured them. */
static void look_by_engine(task *t)
{
    contain_stats stats;
    if (t->pid <= 0) {
        stk_contain_stats(&t->engine, t->id, t->arena, &stats);
        t->end->cpu_us = stats.cpu_us;
        t->end->peak_bytes = stats.peak_bytes;
    }
}

/* Who ended it, as its engine knows. Signals of ours go to the runner itself, so those that the
 * engine tells of are others'. */
static void hear_runner(task *t, int told)
{
    contain_ending ending = {0};
    const char *name = t->spec.name;
    int64_t since_ms = stk_clock_wall_ms(&stk_clock_real) - mono_ms() + t->begin_ms;
    bool heard = stk_contain_ending(&t->engine, t->id, since_ms, &ending);
    t->end->oom |= !t->knows_oom && ending.oom;
    if (ending.how[0] != '\0') {
        (void)snprintf(t->end->by, sizeof t->end->by,
                       "container %s was ended by another client of %s (%s)", name, t->engine.name,
                       ending.how);
    } else if (heard && !t->ended && !t->engine.is_podman && !t->end->oom) { /* `rm -f` of Podman */
        (void)snprintf(t->end->by, sizeof t->end->by,
                       "the first process of container %s was killed on this host, by no client of "
                       "%s",
                       name, t->engine.name);
    } else if (told > 0) {
        (void)snprintf(t->end->by, sizeof t->end->by,
                       "container %s was told to end from outside (signal %d)", name, told);
    } else if (!t->ended) {
        (void)snprintf(t->end->by, sizeof t->end->by, "container %s was ended from outside", name);
    }
}

/* While the runner waits for our answer its mounts are still there. */
static void look_at_shm(task *t)
{
    char path[64];
    struct statvfs fs;
    (void)snprintf(path, sizeof path, "/proc/%d/root/dev/shm", (int)t->pid);
    if (t->pid > 0 && statvfs(path, &fs) == 0) {
        t->end->shm_bytes = (int64_t)fs.f_blocks * (int64_t)fs.f_frsize;
        t->end->shm_free_bytes = (int64_t)fs.f_bavail * (int64_t)fs.f_frsize;
    }
}

static void on_line(task *t, const char *line, size_t n)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json root = {0};
    int64_t number = 0;
    int64_t told = 0; /* a signal that the engine sent: another client's, we use the socket */
    if (arena == NULL ||
        stk_json_parse(line, n, "stk-runner", &stk_engine_limits, arena, &root, NULL) < 0) {
        return;
    }
    const char *failed = stk_json_get_text(&root, "failed");
    if (failed != NULL) {
        (void)stk_json_int(stk_json_get(&root, "errno"), &number);
        explain_failed_start(t, failed, (int)number);
        t->ended = true;
    } else if (stk_json_int(stk_json_get(&root, "ended"), &number)) {
        int64_t signal_number = 0;
        int64_t rss_kb = -1;
        (void)stk_json_int(stk_json_get(&root, "signal"), &signal_number);
        (void)stk_json_int(stk_json_get(&root, "rss_kb"), &rss_kb);
        (void)stk_json_int(stk_json_get(&root, "told"), &told);
        t->end->exit_status = (int)number;
        t->end->signal = (int)signal_number;
        t->ended = true;
        look_at_group(t);
        look_at_shm(t);
        look_by_engine(t);
        if (t->end->peak_bytes < 0 && rss_kb > 0) {
            t->end->peak_bytes = rss_kb * 1024;
        }
    }
    if (t->ended) {
        (void)send(t->conn, "a", 1, MSG_NOSIGNAL);
        (void)shutdown(t->conn, SHUT_WR);
    }
    if (told > 0 || (!t->knows_oom && t->end->signal == SIGKILL && t->spec.memory_bytes > 0)) {
        hear_runner(t, (int)told);
    }
}

/* The engine's own process is gone: nobody would tell the container's end, or remove it. So it ends
 * now, and clean_up() removes it. */
static void lose_monitor(task *t)
{
    t->is_lost = true;
    t->end->signal = SIGKILL;
    look_at_group(t);
    (void)snprintf(
        t->end->by, sizeof t->end->by,
        "container %s was ended: the process of %s that watches over it (%s, pid %d) was "
        "killed",
        t->spec.name, t->engine.name, t->monitor_name, (int)t->monitor);
    (void)snprintf(t->end->text, sizeof t->end->text, "%s", t->end->by);
}

/* At the end of the container: conmon ends with it, a shim goes only later. */
static bool has_lost_monitor(const task *t)
{
    struct pollfd on = {.fd = t->monitor_fd, .events = POLLIN};
    return !t->engine.is_podman && t->monitor_fd >= 0 && poll(&on, 1, 0) > 0;
}

static void on_conn(task *t)
{
    ssize_t n = recv(t->conn, t->line + t->n_line, sizeof t->line - t->n_line, 0);
    if (n < 0 && errno == EINTR) {
        return;
    }
    if (n <= 0) {
        t->closed = true;
        if (!t->ended && has_lost_monitor(t)) { /* its engine has seen to that */
            lose_monitor(t);
        } else if (!t->ended) { /* PID 1 is gone, and so is everything */
            t->end->signal = SIGKILL;
            look_at_group(t);
            hear_runner(t, 0);
            (void)snprintf(t->end->text, sizeof t->end->text, "%s, with all that ran in it",
                           t->end->by);
        }
        return;
    }
    t->n_line += (size_t)n;
    char *end;
    while ((end = memchr(t->line, '\n', t->n_line)) != NULL) {
        size_t len = (size_t)(end - t->line);
        on_line(t, t->line, len);
        t->n_line -= len + 1;
        memmove(t->line, end + 1, t->n_line);
    }
    if (t->n_line == sizeof t->line) { /* no line of ours */
        t->n_line = 0;
    }
}

/* --- the whole --- */

static void pass_signal_on(task *t)
{
    struct signalfd_siginfo info;
    if (read(t->signals, &info, sizeof info) != sizeof info) {
        return;
    }
    send_signal(t, (int)info.ssi_signo);
    if (sigismember(&t->ending, (int)info.ssi_signo) == 1 && t->conn < 0 && t->told_ms < 0) {
        t->told = (int)info.ssi_signo;
        t->told_ms = mono_ms();
    }
}

/* Told to end, and there is no program that could hear of it, nor will there be one soon. */
static bool leaves(task *t)
{
    if (t->told_ms < 0 || t->conn >= 0 || mono_ms() - t->told_ms < LEAVE_MS) {
        return false;
    }
    t->end->signal = t->told;
    return true;
}

/* Until its end is known and its last process is gone, or it never came to that. */
static int watch_container(task *t, stk_err *err)
{
    int64_t since_ms = -1; /* the engine says that it runs */
    for (;;) {
        struct pollfd on[] = {{.fd = t->signals, .events = POLLIN},
                              {.fd = t->conn, .events = POLLIN},
                              {.fd = since_ms < 0 ? t->started_fd : -1, .events = POLLIN},
                              {.fd = t->ended ? -1 : t->monitor_fd, .events = POLLIN}};
        if (t->conn < 0) {
            on[1].fd = t->files.listen_fd;
        }
        bool waits = t->conn < 0 && (since_ms >= 0 || t->told_ms >= 0);
        int n = poll(on, 4, waits ? TICK_MS : -1);
        if (n < 0 && errno != EINTR) {
            return stk_err_sys(err, STK_E_SYS, errno, "waiting for container %s", t->spec.name);
        }
        if (n > 0 && on[0].revents != 0) {
            pass_signal_on(t);
        }
        if (n > 0 && on[1].revents != 0) {
            int rc = 0;
            if (t->conn < 0) {
                rc = greet(t, err);
            } else {
                on_conn(t);
            }
            if (rc < 0 || t->closed) {
                return rc;
            }
        }
        if (n > 0 && on[2].revents != 0) {
            uint64_t count; /* read, not only seen: what the thread wrote before it is ours now */
            (void)!read(t->started_fd, &count, sizeof count);
            since_ms = mono_ms();
            t->started_ms = since_ms - t->begin_ms - t->create_ms;
            if (t->start_rc < 0 && t->conn < 0) {
                never_for(t, &t->start_err);
                return 0;
            }
            if (t->conn >= 0) {
                write_state(t, false);
            }
        }
        if (n > 0 && on[3].revents != 0 && !t->ended) {
            lose_monitor(t);
            return 0;
        }
        if (leaves(t) || (n == 0 && since_ms >= 0 && given_up(t, since_ms))) {
            return 0;
        }
    }
}

/* It has answered, but where the container never came to run. */
static void join_start(task *t)
{
    uint64_t one = 1;
    if (t->conn < 0) {
        (void)!write(t->stop_fd, &one, sizeof one);
    }
    stk_file_close(&t->conn); /* the runner, if it lives, ends with this */
    (void)pthread_join(t->thread, NULL);
}

/* Without its monitor an engine sees only after a while that nothing runs in it any more. */
static int remove_it(task *t, const stk_engine *engine, stk_err *err)
{
    int64_t until_ms = mono_ms() + t->is_lost * REMOVE_MS;
    int rc = stk_contain_delete(engine, t->id, err);
    while (rc < 0 && rc != STK_E_CANCELLED && mono_ms() < until_ms) {
        struct pollfd cancel = {.fd = t->ends, .events = POLLIN};
        (void)poll(&cancel, 1, AGAIN_MS);
        rc = stk_contain_delete(engine, t->id, err);
    }
    return rc;
}

/* Removes the container if the engine hasn't. A signal still ends the wait. */
static void clean_up(task *t)
{
    stk_err why = {0};
    stk_engine engine = t->engine;
    engine.cancel_fd = t->ends;
    if (t->id == NULL) { /* the engine may make it all the same */
        engine.idle_ms = LEAVE_MS;
        if (t->asked && t->told_ms >= 0) {
            (void)stk_contain_delete(&engine, t->spec.name, NULL);
        }
    } else if ((!t->closed || t->is_lost) && remove_it(t, &engine, &why) < 0) {
        fprintf(stderr, "stoker contain: container %s may be left behind: %s\n", t->spec.name,
                why.text);
    }
    if (t->was_reached && !t->ended && stk_contain_switches(&t->spec) &&
        stk_contain_take_back(&t->spec, &engine, t->arena, &why) < 0) {
        fprintf(stderr, "stoker contain: files of user %s in %s may be left behind: %s\n",
                t->spec.user, t->spec.dir, why.text);
    }
}

static int run_container(task *t, stk_err *err)
{
    stk_err why = {0};
    if (stk_contain_files_make(t->spec.dir, &t->files, &why) < 0) {
        never_for(t, &why);
        return 0;
    }
    t->begin_ms = mono_ms();
    t->started_fd = eventfd(0, EFD_CLOEXEC);
    t->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (t->started_fd < 0 || t->stop_fd < 0 || pthread_mutex_init(&t->lock, NULL) != 0 ||
        pthread_create(&t->thread, NULL, start_thread, t) != 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "starting container %s", t->spec.name);
    }
    int rc = watch_container(t, err);
    join_start(t);
    clean_up(t);
    (void)pthread_mutex_destroy(&t->lock);
    return rc;
}

int stk_contain_run(const char *task_json, stk_contain_end *ret_end, stk_err *err)
{
    static const int passed_on[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    enum { N_ENDING = 4 };
    sigset_t mask;
    sigset_t before;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    task *t = calloc(1, sizeof *t);
    *ret_end = (stk_contain_end){
        .exit_status = -1, .peak_bytes = -1, .shm_bytes = -1, .shm_free_bytes = -1, .cpu_us = -1};
    if (arena == NULL || t == NULL) {
        free(t);
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%s", task_json);
    }
    *t = (task){.arena = arena,
                .conn = -1,
                .signals = -1,
                .ends = -1,
                .started_fd = -1,
                .stop_fd = -1,
                .monitor_fd = -1,
                .told_ms = -1,
                .end = ret_end};
    t->create_ms = t->started_ms = t->runner_ms = -1;
    t->files.listen_fd = -1;
    t->n_fds = stk_sys_inherited(t->fds, CONTAIN_MAX_FDS); /* a lock, leases */
    int rc = stk_contain_read(task_json, arena, &t->spec, err);
    if (rc == 0) {
        sigemptyset(&mask);
        sigemptyset(&t->ending);
        for (size_t i = 0; i < sizeof passed_on / sizeof *passed_on; i++) {
            sigaddset(&mask, passed_on[i]);
            if (i < N_ENDING) {
                sigaddset(&t->ending, passed_on[i]);
            }
        }
        (void)pthread_sigmask(SIG_BLOCK, &mask, &before);
        t->signals = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
        t->ends = signalfd(-1, &t->ending, SFD_CLOEXEC);
        rc = run_container(t, err);
        stk_contain_files_remove(&t->files);
        if (rc == 0) {
            write_state(t, true);
        }
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    stk_file_close(&t->signals);
    stk_file_close(&t->ends);
    stk_file_close(&t->started_fd);
    stk_file_close(&t->stop_fd);
    stk_file_close(&t->monitor_fd);
    stk_file_close(&t->conn);
    free(t);
    return rc;
}

int stk_contain_remove(const stk_engine *engine, const char *const *labels, uint32_t *ret_n,
                       stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_json list = {0};
    *ret_n = 0;
    const char *query = stk_engine_filter("label", labels, arena);
    STK_TRY(stk_err_if_null(query, err));
    const char *path = stk_arena_printf(arena, "/containers/json?all=true&filters=%s", query);
    STK_TRY(stk_err_if_null(path, err));
    STK_TRY(stk_engine_get(engine, path, arena, &list, err));
    for (uint32_t i = 0; i < stk_json_n_items(&list); i++) {
        const char *id = stk_json_get_text(&list.items[i], "Id");
        if (id != NULL) {
            STK_TRY(stk_contain_delete(engine, id, err));
            (*ret_n)++;
        }
    }
    return 0;
}
