/* The program: started, watched and ended by the same backend as at home, while its output goes to
 * the container's own. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "away/agent/agent_private.h"
#include "base/expand.h"
#include "base/failpoint.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/turn.h"
#include "base/units.h"
#include "sys/clock.h"
#include "sys/faults.h"
#include "sys/file.h"
#include "sys/guard.h"
#include "sys/proc.h"

enum { LOOK_MS = 100, REAP_MS = 1000, AT_ONCE = 64 << 10, ORPHANS = 64 };

/* --- its directory --- */

/* task.json as it came, with what this container has; not by a rename, for the attempt's lock is on
 * the file. */
static int write_task(agent *a, stk_err *err)
{
    STK_BUF_AUTO buf = STK_BUF_INIT(STK_LIMIT_RESULT_BYTES);
    char path[PATH_MAX];
    stk_json_open(&buf, NULL, '{');
    for (uint32_t i = 0; i < a->task.n; i++) {
        const char *key = stk_json_key(&a->task, i)->text;
        if (strcmp(key, "granted") == 0) {
            stk_json_put_raw(&buf, key, a->granted);
        } else {
            stk_json_put(&buf, key, stk_json_value(&a->task, i));
        }
    }
    stk_json_close(&buf, '}');
    STK_TRY(stk_buf_check(&buf, err));
    (void)snprintf(path, sizeof path, "%s/task.json", a->order.dir);
    return stk_file_write(path, buf.data, buf.len, 0644, err);
}

/* --- its output --- */

typedef struct tail {
    char path[PATH_MAX];
    int fd, to;
    off_t at;
} tail;

/* False: there was no more. */
static bool copy_some(tail *t)
{
    char data[AT_ONCE];
    if (t->fd < 0) {
        t->fd = stk_file_open_regular(t->path, O_RDONLY, 0);
    }
    ssize_t n = pread(t->fd, data, sizeof data, t->at);
    if (n <= 0) {
        return false;
    }
    t->at += n;
    (void)stk_file_write_all(t->to, data, (size_t)n);
    return true;
}

static void copy_all(tail tails[2])
{
    for (int i = 0; i < 2; i++) {
        while (copy_some(&tails[i])) {
        }
    }
}

static void name_tails(const agent *a, tail tails[2])
{
    tails[0] = (tail){.fd = -1, .to = STDOUT_FILENO};
    tails[1] = (tail){.fd = -1, .to = STDERR_FILENO};
    (void)snprintf(tails[0].path, sizeof tails[0].path, "%s/stdout.log", a->order.dir);
    (void)snprintf(tails[1].path, sizeof tails[1].path, "%s/stderr.log", a->order.dir);
}

/* --- memory --- */

/* How often the kernel ended a process of this container for its memory; -1 unknown. */
static int64_t count_oom(void)
{
    const char *file = "/sys/fs/cgroup/memory/memory.oom_control";
    char path[PATH_MAX];
    STK_TEXT_AUTO own = NULL;
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (stk_file_read("/proc/self/cgroup", 64 << 10, &own, &len, NULL) < 0) {
        return -1;
    }
    const char *unified = strncmp(own, "0::", 3) == 0 ? own : strstr(own, "\n0::");
    if (unified != NULL && (unified = strchr(unified, '/')) != NULL) {
        (void)snprintf(path, sizeof path, "/sys/fs/cgroup%.*s/memory.events",
                       (int)strcspn(unified, "\n"), unified);
        if (stk_file_exists(path)) {
            file = path;
        }
    }
    if (stk_file_read(file, 64 << 10, &text, &len, NULL) < 0) {
        return -1;
    }
    const char *line = strstr(text, "oom_kill ");
    if (line == NULL) {
        return -1;
    }
    return strtoll(line + strlen("oom_kill "), NULL, 10);
}

/* A process that the kernel ended for the container's memory looks like any other that was killed.
 */
static void blame_memory(agent *a)
{
    int64_t n = count_oom();
    stk_outcome *o = &a->outcome;
    bool killed = !o->ok && (o->signal == 9 || o->exit_status == 137) &&
                  o->failure != STK_FAIL_TIMEOUT && o->failure != STK_FAIL_PREEMPTED;
    if (killed && a->n_oom >= 0 && n > a->n_oom) {
        char limit[32];
        (void)stk_units_format_memory(stk_proc_memory_bytes(), limit, sizeof limit);
        o->failure = STK_FAIL_HOST_OOM;
        (void)snprintf(o->text, sizeof o->text, "host OOM: its container used all of its %s%s",
                       limit, stk_runner_way_out(STK_FAIL_HOST_OOM));
    }
}

/* --- the program --- */

/* What a Dockerfile's ENV would see: what stands before it in the order, else the image's. */
typedef struct before {
    const char *const *env;
    uint32_t n;
} before;

static const char *value_before(void *arg, const char *name)
{
    const before *b = arg;
    size_t len = strlen(name);
    for (uint32_t i = b->n; i-- > 0;) {
        if (strncmp(b->env[i], name, len) == 0 && b->env[i][len] == '=') {
            return b->env[i] + len + 1;
        }
    }
    return getenv(name);
}

static bool expands(const agent *a, const char *pair)
{
    size_t len = strcspn(pair, "=");
    for (const char *const *e = a->order.expand; e != NULL && *e != NULL; e++) {
        if (strncmp(*e, pair, len) == 0 && (*e)[len] == '\0') {
            return true;
        }
    }
    return false;
}

/* The order's variables, as the program sees them. */
static int put_ordered(agent *a, const char **env, uint32_t *n, stk_err *err)
{
    before b = {.env = env + *n};
    for (uint32_t i = 0; a->order.env[i] != NULL; i++, b.n++) {
        const char *pair = a->order.env[i];
        if (expands(a, pair)) {
            STK_TEXT_AUTO value = stk_expand(strchr(pair, '=') + 1, value_before, &b);
            int n_name = (int)strcspn(pair, "=");
            if (value == NULL) {
                return stk_err_sys(err, STK_E_LIMIT, errno, "environment variable '%.*s'", n_name,
                                   pair);
            }
            pair = stk_arena_printf(a->arena, "%.*s=%s", n_name, pair, value);
            STK_TRY(stk_err_if_null(pair, err));
        }
        env[(*n)++] = pair;
    }
    return 0;
}

static int make_env(agent *a, const char ***ret, stk_err *err)
{
    const char *pairs[64][2];
    uint32_t n = 0, n_pairs = 0;
    while (a->order.env[n] != NULL) {
        n++;
    }
    const char **env = stk_arena_array(a->arena, (size_t)n + 80, sizeof *env);
    STK_TRY(stk_err_if_null(env, err));
    n = 0;
    if (a->lease.n > 0) { /* the step's own variables win: they come behind */
        n_pairs = stk_lease_env(a->accel, &a->lease, a->arena, pairs, 64);
    }
    for (uint32_t i = 0; i < n_pairs; i++) {
        env[n++] = stk_arena_printf(a->arena, "%s=%s", pairs[i][0], pairs[i][1]);
    }
    env[n++] = "STOKER_AGENT=1";
    if (a->order.nodes > 1) {
        env[n++] = stk_arena_printf(a->arena, "STOKER_GANG_NODE=%u", a->node);
    }
    *ret = env;
    return put_ordered(a, env, &n, err);
}

int stk_agent_make_job(agent *a, stk_job *ret, stk_err *err)
{
    const char **env = NULL;
    const stk_remote_order *o = &a->order;
    STK_TRY(write_task(a, err));
    STK_TRY(make_env(a, &env, err));
    *ret = (stk_job){.attempt = o->attempt,
                     .step = o->step,
                     .gang = o->gang,
                     .nodes = 1,
                     .dir = o->dir,
                     .argv = o->argv,
                     .cwd = stk_text_or(o->cwd, stk_text_or(o->code_root, o->dir)),
                     .env = env,
                     .sample_ms = o->sample_ms,
                     .reads_samples = o->reads_samples,
                     .timeout_ms = o->timeout_ms,
                     .notice_ms = o->notice_ms,
                     .grace_ms = o->grace_ms,
                     .checkpoints = o->checkpoints,
                     .hidden = a->n_secrets > 0 ? (const char *const *)a->secrets : NULL,
                     .memory_bytes = a->limits.memory_bytes,
                     .cpu_milli = a->limits.cpu_milli,
                     .cpus = a->limits.cpus,
                     .n_cpus = a->limits.n_cpus,
                     .threads = a->limits.n_cpus,
                     .lease = a->lease};
    memset(&a->lease, 0, sizeof a->lease); /* the job has it now */
    return 0;
}

static int start_program(agent *a, stk_job *job, stk_backend **ret, stk_err *err)
{
    const stk_remote_order *o = &a->order;
    /* Not the run's own name: the engine of a run that is on this machine as well (tests) would end
     * what carries it. */
    stk_local_config config = {.run = stk_arena_printf(a->arena, "%s-%s-%u-%u-%u", o->run, o->step,
                                                       o->task, o->attempt, a->node),
                               .server_fd = -1,
                               .accel = a->accel,
                               .sample_ms = o->sample_ms};
    STK_TRY(stk_err_if_null(config.run, err));
    STK_TRY(stk_backend_local_open(&config, ret, err));
    int rc = (*ret)->ops->start(*ret, job, err);
    if (rc < 0 && err->sys == ENOENT && stk_text_same(o->argv[1], "-m") &&
        stk_text_same(o->argv[2], "stoker._worker")) {
        stk_err_hint(err, "Python steps need Python 3.7 or newer there: name it by the option "
                          "`executable` (Slurm, SSH: `python`), or use another image");
    }
    return rc;
}

/* Orphans come to the first process of a container, and stay as zombies until it looks at them.
 * `task`: the program's, which is the backend's to reap; the other children of ours are its
 * guardians. */
static void reap_orphans(pid_t task)
{
    pid_t orphans[ORPHANS];
    if (task > 0) {
        (void)stk_proc_orphans(&task, 1, 1 + STK_GUARD_N, orphans, ORPHANS);
    }
}

static bool take_reports(agent *a, stk_backend *backend, pid_t *ret_task)
{
    stk_report report;
    bool ended = false;
    while (backend->ops->next(backend, &report)) {
        if (report.kind == STK_REPORT_ENDED) {
            a->outcome = report.outcome;
            ended = true;
        } else if (report.kind == STK_REPORT_STARTED) {
            *ret_task = (pid_t)report.pid;
        } else if (report.kind == STK_REPORT_NOTE) {
            fprintf(stderr, "stoker agent: %s\n", report.text);
        }
    }
    return ended;
}

static void watch_program(agent *a, stk_backend *backend, tail tails[2])
{
    bool is_stopping = false;
    pid_t task = -1;
    int64_t reap_ms = 0;
    while (!take_reports(a, backend, &task)) {
        stk_turn_begin();
        int64_t wait = backend->ops->wait_ms(backend);
        struct pollfd fds[2] = {{.fd = backend->ops->fd(backend), .events = POLLIN},
                                {.fd = a->signal_fd, .events = POLLIN}};
        (void)poll(fds, 2, wait < 0 || wait > LOOK_MS ? LOOK_MS : (int)wait);
        copy_all(tails);
        int64_t now = stk_clock_mono_ms(&stk_clock_real);
        if (now >= reap_ms) {
            reap_orphans(task);
            reap_ms = now + REAP_MS;
        }
        if (stk_agent_hear(a) && !is_stopping) {
            is_stopping = true;
            backend->ops->stop(backend, 0, a->order.grace_ms, STK_FAIL_PREEMPTED);
        }
    }
}

int stk_agent_task(agent *a, stk_err *err)
{
    stk_backend *backend = NULL;
    tail tails[2];
    stk_job job;
    STK_TRY(stk_agent_make_job(a, &job, err));
    name_tails(a, tails);
    a->n_oom = a->is_shared ? -1 : count_oom(); /* others' processes count as well there */
    STK_FAILPOINT("agent.task.before");
    int64_t began_ms = stk_clock_mono_ms(&stk_clock_real);
    a->started_ms = stk_clock_wall_ms(&stk_clock_real);
    int rc = start_program(a, &job, &backend, err);
    if (rc == 0) {
        watch_program(a, backend, tails);
        a->ended_ms = a->started_ms + stk_clock_mono_ms(&stk_clock_real) - began_ms;
        blame_memory(a);
    }
    STK_FAILPOINT("agent.task.after");
    if (backend != NULL) {
        backend->ops->close(backend);
    }
    if (rc == 0) {
        copy_all(tails);
        stk_file_close(&tails[0].fd);
        stk_file_close(&tails[1].fd);
    }
    return rc;
}
