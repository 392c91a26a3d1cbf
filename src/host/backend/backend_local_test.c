/* The local backend with real processes: commands, limits, the guardian, leftovers. Fork servers
 * are in backend_server_test.c. With --bench N it measures the cost of a quick command. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/testing.h"
#include "host/backend/backend.h"
#include "host/runner/runner_samples.h"
#include "sys/cgroup.h"
#include "sys/dir.h"
#include "sys/file.h"
#include "sys/proc.h"

static char root[64];
static int n_dirs;

/* Replaces libc's kill and counts signals to groups whose number is no longer a child of ours: by
 * then the number may belong to another process. */
static uint32_t n_too_late;

int kill(pid_t pid, int number)
{
    siginfo_t info;
    if (pid < -1 && waitid(P_PID, (id_t)-pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0) {
        n_too_late++;
    }
    return (int)syscall(SYS_kill, pid, number);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static stk_backend *open_backend(const char *cgroup)
{
    static int n;
    char run[64];
    stk_err err = {0};
    stk_backend *b = NULL;
    if (cgroup == NULL) {
        unsetenv("STOKER_CGROUP");
    } else {
        setenv("STOKER_CGROUP", cgroup, 1);
    }
    snprintf(run, sizeof run, "test-%d-%d", (int)getpid(), n++);
    stk_local_config config = {.run = run, .server_fd = -1};
    if (stk_backend_local_open(&config, &b, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return b;
}

static void put_task_json(const char *dir)
{
    char path[200];
    snprintf(path, sizeof path, "%s/task.json", dir);
    assert_int_equal(stk_file_write(path, "{}", 2, 0644, NULL), 0);
}

static char *new_dir(void)
{
    static char dir[128];
    snprintf(dir, sizeof dir, "%s/%d", root, n_dirs++);
    assert_int_equal(mkdir(dir, 0755), 0);
    put_task_json(dir);
    return dir;
}

/* Waits up to 120 s for the next report of that kind for `id`. */
static stk_report wait_for(stk_backend *b, stk_report_kind kind, uint32_t id)
{
    stk_report r;
    for (int64_t end = now_ms() + 120000; now_ms() < end;) {
        while (b->ops->next(b, &r)) {
            if (r.kind == kind && r.id == id) {
                return r;
            }
        }
        int64_t wait = b->ops->wait_ms(b);
        struct pollfd p = {.fd = b->ops->fd(b), .events = POLLIN};
        poll(&p, 1, wait < 0 || wait > 1000 ? 1000 : (int)wait);
    }
    fail_msg("no report of kind %d for job %u within 120 s", kind, id);
    return r;
}

static void start(stk_backend *b, stk_job *job)
{
    stk_err err = {0};
    if (b->ops->start(b, job, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static stk_outcome run(stk_backend *b, stk_job *job)
{
    start(b, job);
    return wait_for(b, STK_REPORT_ENDED, job->id).outcome;
}

static char *log_of(const char *dir, const char *name)
{
    static char *data;
    char path[256];
    size_t len;
    stk_err err = {0};
    free(data);
    data = NULL;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (stk_file_read(path, 1 << 20, &data, &len, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return data;
}

#define SHELL(text)                                                                                \
    (const char *const[])                                                                          \
    {                                                                                              \
        "/bin/sh", "-c", (text), NULL                                                              \
    }

static bool is_gone_within(pid_t pid, int ms)
{
    for (int64_t end = now_ms() + ms; stk_proc_start_time(pid) != 0;) {
        if (now_ms() > end) {
            return false;
        }
        usleep(2000);
    }
    return true;
}

/* --- commands --- */

static void test_ends(void **state)
{
    static const struct {
        const char *command;
        bool ok;
        stk_failure failure;
        int exit_status, signal;
        const char *text;
    } cases[] = {
        {"exit 0", true, STK_FAIL_NONE, 0, 0, ""},
        {"exit 3", false, STK_FAIL_EXIT, 3, 0, "exit status 3"},
        {"kill -SEGV $$", false, STK_FAIL_SIGNAL, -1, SIGSEGV, "killed by signal 11 (SIGSEGV)"},
        {"kill -KILL $$", false, STK_FAIL_SIGNAL, -1, SIGKILL,
         "killed by signal 9 (SIGKILL), not by Stoker: another program or the kernel's OOM killer"},
    };
    (void)state;
    stk_backend *b = open_backend("none");
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        stk_job job = {.id = i, .attempt = 2, .step = "s", .dir = new_dir()};
        job.argv = SHELL(cases[i].command);
        start(b, &job);
        stk_report started = wait_for(b, STK_REPORT_STARTED, i);
        assert_true(started.pid > 1);
        stk_report r = wait_for(b, STK_REPORT_ENDED, i);
        assert_int_equal(r.attempt, 2);
        assert_int_equal(r.pid, started.pid);
        assert_int_equal(r.outcome.ok, cases[i].ok);
        assert_int_equal(r.outcome.failure, cases[i].failure);
        assert_int_equal(r.outcome.exit_status, cases[i].exit_status);
        assert_int_equal(r.outcome.signal, cases[i].signal);
        assert_string_equal(r.outcome.text, cases[i].text);
        assert_true(r.outcome.cpu_us >= 0);
    }
    b->ops->close(b);
}

static void test_start_errors(void **state)
{
    (void)state;
    stk_backend *b = open_backend("none");
    stk_err err = {0};
    stk_job job = {.id = 1, .step = "s", .dir = new_dir()};
    job.argv = (const char *const[]){"no-such-program-here", NULL};
    assert_int_equal(b->ops->start(b, &job, &err), STK_E_SYS);
    assert_non_null(strstr(err.text, "no-such-program-here"));
    job.argv = SHELL("true");
    job.cwd = "/no/such/folder";
    assert_int_equal(b->ops->start(b, &job, &err), STK_E_SYS);
    assert_non_null(strstr(err.text, "/no/such/folder"));
    assert_false(stk_runner_attempt_is_live(job.dir)); /* nothing is left locked */
    job.cwd = NULL;
    assert_true(run(b, &job).ok);
    b->ops->close(b);
}

static void test_environment(void **state)
{
    (void)state;
    stk_backend *b = open_backend("none");
    uint32_t cpu;
    assert_int_equal(stk_proc_cpus(&cpu, 1), 1);
    setenv("STK_TEST_OLD", "old", 1);
    setenv("STK_TEST_GONE", "here", 1);
    setenv("OMP_NUM_THREADS", "77", 1);
    stk_job job = {.id = 1,
                   .step = "s",
                   .dir = new_dir(),
                   .cwd = "/usr",
                   .env = (const char *const[]){"STK_TEST_OLD=new", "MKL_NUM_THREADS=9", NULL},
                   .unset = (const char *const[]){"STK_TEST_GONE", NULL},
                   .cpus = &cpu,
                   .n_cpus = 1,
                   .threads = 3};
    job.argv = SHELL(
        "echo $STK_TEST_OLD,$STK_TEST_GONE,$OMP_NUM_THREADS,$MKL_NUM_THREADS,$PWD,"
        "$(env -u OMP_NUM_THREADS nproc); echo wrong >&2; ls /proc/self/fd | tr '\\n' ' ' >&2; "
        "read x || echo eof; grep NoNewPrivs /proc/self/status");
    assert_true(run(b, &job).ok);
    unsetenv("OMP_NUM_THREADS");
    assert_string_equal(log_of(job.dir, "stdout.log"), "new,,3,9,/usr,1\neof\nNoNewPrivs:\t1\n");
    char *text = log_of(job.dir, "stderr.log");
    /* Three standard ones, the attempt's lock, and what ls opened itself. */
    int n = 0;
    assert_true(strncmp(text, "wrong\n", 6) == 0);
    for (char *p = text + 6; *p != '\0'; p++) {
        n += *p == ' ';
    }
    assert_int_equal(n, 5);
    b->ops->close(b);
}

/* Leftover children: in the background, in their own process group or session, without a parent. */
static void test_leftovers(void **state)
{
    (void)state;
    n_too_late = 0;
    stk_backend *b = open_backend("none");
    stk_job daemon_job = {.id = 7, .step = "d", .dir = new_dir()};
    char dir7[128];
    snprintf(dir7, sizeof dir7, "%s", daemon_job.dir);
    char marker7[160];
    snprintf(marker7, sizeof marker7, "STOKER_TASK_DIR=%s", dir7);
    daemon_job.dir = dir7;
    daemon_job.env = (const char *const[]){marker7, NULL};
    daemon_job.argv = SHELL("(setsid sleep 300 & echo $! ) ; sleep 300");
    start(b, &daemon_job); /* its daemon must survive while this job lives */
    wait_for(b, STK_REPORT_STARTED, 7);
    for (int i = 0; i < 12000 && strchr(log_of(dir7, "stdout.log"), '\n') == NULL; i++) {
        usleep(10000);
    }
    pid_t daemon_pid = (pid_t)atoi(log_of(dir7, "stdout.log"));
    assert_true(stk_proc_start_time(daemon_pid) != 0);

    stk_job job = {.id = 1, .step = "s", .dir = new_dir()};
    char marker[160];
    snprintf(marker, sizeof marker, "STOKER_TASK_DIR=%s", job.dir);
    job.env = (const char *const[]){marker, NULL};
    job.argv = SHELL("sleep 300 & echo $!; (setsid sleep 301 & echo $!); (setsid sh -c 'sleep 302 "
                     "& echo $!'); set -m; sleep 303 & echo $!; exit 0");
    assert_true(run(b, &job).ok);
    int n = 0;
    char *text = log_of(job.dir, "stdout.log");
    for (char *save = NULL, *p = strtok_r(text, "\n", &save); p != NULL;
         p = strtok_r(NULL, "\n", &save), n++) {
        assert_true(is_gone_within((pid_t)atoi(p), 0)); /* gone before the end was reported */
    }
    assert_int_equal(n, 4);
    assert_int_equal(n_too_late, 0);
    assert_false(stk_runner_attempt_is_live(job.dir));
    assert_true(stk_proc_start_time(daemon_pid) != 0);
    b->ops->stop(b, 7, 0, STK_FAIL_CANCELLED);
    assert_string_equal(wait_for(b, STK_REPORT_ENDED, 7).outcome.text, "cancelled");
    assert_true(is_gone_within(daemon_pid, 0));
    b->ops->close(b);
}

static void test_stop(void **state)
{
    (void)state;
    stk_backend *b = open_backend("none");
    stk_job job = {.id = 1, .step = "s", .timeout_ms = 100, .grace_ms = 600000, .dir = new_dir()};
    job.argv = SHELL("exec sleep 300");
    stk_outcome o = run(b, &job);
    assert_int_equal(o.failure, STK_FAIL_TIMEOUT);
    assert_string_equal(o.text, "timeout: still running after 100 ms");
    assert_true(o.wall_ms >= 100 && o.wall_ms < 300000);

    job.dir = new_dir();
    job.timeout_ms = 2000; /* by then the shell ignores SIGTERM */
    job.grace_ms = 100;
    job.argv = SHELL("trap '' TERM; while :; do sleep 0.02; done");
    o = run(b, &job);
    assert_int_equal(o.failure, STK_FAIL_TIMEOUT);
    assert_true(o.wall_ms >= 2100);

    job.dir = new_dir();
    job.timeout_ms = 0; /* the task handles the signal, and its output is kept */
    job.argv = SHELL("trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.02; done");
    start(b, &job);
    for (int i = 0; i < 12000 && strstr(log_of(job.dir, "stdout.log"), "hello") == NULL; i++) {
        usleep(10000);
    }
    b->ops->stop(b, 1, 10000, STK_FAIL_CANCELLED);
    o = wait_for(b, STK_REPORT_ENDED, 1).outcome;
    assert_false(o.ok);
    assert_int_equal(o.failure, STK_FAIL_CANCELLED);
    assert_string_equal(log_of(job.dir, "stdout.log"), "hello\nbye\n");

    job.dir = new_dir(); /* the task ended before the stop: its own end counts */
    job.argv = SHELL("exit 4");
    start(b, &job);
    wait_for(b, STK_REPORT_STARTED, 1);
    for (int i = 0; i < 12000 && stk_runner_attempt_is_live(job.dir); i++) {
        usleep(10000);
    }
    b->ops->stop(b, 1, 0, STK_FAIL_CANCELLED);
    assert_string_equal(wait_for(b, STK_REPORT_ENDED, 1).outcome.text, "exit status 4");
    b->ops->stop(b, 99, 0, STK_FAIL_CANCELLED);
    b->ops->close(b);
}

/* --- memory --- */

/* ThreadSanitizer skips this function: its shadow memory is four times the size of the memory. */
__attribute__((no_sanitize("thread"))) static _Noreturn void eat(size_t mb)
{
    for (size_t i = 0; i < mb; i++) {
        volatile char *p =
            mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        for (size_t page = 0; page < 1 << 20; page += 4096) {
            p[page] = 1;
        }
        if (i > 64) { /* a watchdog on a busy machine gets its turn before all is eaten */
            usleep(10000);
        }
    }
    printf("ate %zu MB\n", mb);
    exit(0);
}

static stk_outcome run_eater(stk_backend *b, const char *mb)
{
    stk_job job = {.id = 1, .step = "s", .dir = new_dir(), .memory_bytes = 100000000};
    char self[256];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    job.argv = (const char *const[]){self, "--eat", mb, NULL};
    return run(b, &job);
}

static void check_oom(stk_backend *b)
{
    stk_outcome o = run_eater(b, "600");
    assert_false(o.ok);
    assert_int_equal(o.failure, STK_FAIL_HOST_OOM);
    assert_non_null(strstr(o.text, "host OOM: used "));
    assert_non_null(strstr(o.text, " of its 100 MB"));
    assert_true(o.peak_memory_bytes >= 90000000 && o.peak_memory_bytes < 400000000);
    o = run_eater(b, "40");
    assert_true(o.ok);
    assert_true(o.peak_memory_bytes >= 40000000 && o.peak_memory_bytes < 100000000);
}

static void test_oom_group(void **state)
{
    (void)state;
    stk_backend *b = open_backend(NULL);
    stk_cgroups *g = stk_cgroups_open("test-probe");
    bool none = stk_cgroups_kind(g) == STK_CGROUP_NONE;
    printf("control groups: %s\n", stk_cgroups_describe(g));
    stk_cgroups_close(g);
    if (none) {
        b->ops->close(b);
        skip();
    }
    check_oom(b);
    b->ops->close(b);
}

static void test_oom_watchdog(void **state)
{
    (void)state;
    stk_backend *b = open_backend("none");
    assert_non_null(strstr(stk_backend_local_describe(b), "watched"));
    check_oom(b);
    b->ops->close(b);
}

/* --- the record of what a task used --- */

static void test_samples(void **state)
{
    (void)state;
    stk_backend *b = open_backend("none");
    stk_job job = {.id = 1, .step = "s", .dir = new_dir()};
    job.argv = SHELL("end=$(($(date +%s%N) + 700000000)); while [ $(date +%s%N) -lt $end ]; do :; "
                     "done");
    start(b, &job);
    int64_t memory = 0;
    double cpus = 0;
    bool known = false;
    stk_report r;
    for (bool ended = false; !ended;) {
        known = known || (b->ops->usage(b, 1, &memory, &cpus) && memory > 0);
        while (b->ops->next(b, &r)) {
            ended = r.kind == STK_REPORT_ENDED;
        }
        usleep(5000);
    }
    assert_true(known);
    char path[256];
    snprintf(path, sizeof path, "%s/samples.bin", job.dir);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_samples s;
    stk_err err = {0};
    assert_int_equal(stk_samples_load(path, arena, &s, &err), 0);
    assert_true(s.n >= 3 && s.n <= 12);
    assert_int_equal(s.n_devices, 0);
    for (uint32_t i = 0; i < s.n; i++) {
        assert_true(s.samples[i].rss_bytes > 100000);
        assert_true(i == 0 || (s.samples[i].time_ms > s.samples[i - 1].time_ms &&
                               s.samples[i].cpu_us >= s.samples[i - 1].cpu_us));
    }
    assert_true(r.outcome.cpu_us > 50000);
    assert_true(r.outcome.cpu_us >= s.samples[s.n - 1].cpu_us);
    b->ops->close(b);
}

/* --- after a crash --- */

static void test_attempt_kill(void **state)
{
    (void)state;
    stk_backend *b = open_backend("none");
    stk_job job = {.id = 1, .step = "s", .dir = new_dir()};
    char marker[160];
    snprintf(marker, sizeof marker, "STOKER_TASK_DIR=%s", job.dir);
    job.env = (const char *const[]){marker, NULL};
    assert_false(stk_runner_attempt_is_live(job.dir));
    job.argv = SHELL(
        "setsid sleep 300 & echo $!; env -u STOKER_TASK_DIR setsid sleep 301 & echo $!; wait");
    start(b, &job);
    pid_t pid = (pid_t)wait_for(b, STK_REPORT_STARTED, 1).pid;
    pid_t children[2] = {0, 0};
    for (int i = 0; i < 12000 && children[1] == 0; i++) {
        usleep(10000);
        (void)sscanf(log_of(job.dir, "stdout.log"), "%d %d", &children[0], &children[1]);
    }
    assert_true(stk_runner_attempt_is_live(job.dir));
    stk_err err = {0};
    stk_job twice = job; /* a second start of a live attempt is refused and does no harm */
    twice.id = 2;
    assert_int_equal(b->ops->start(b, &twice, &err), STK_E_BUSY);
    kill(pid, SIGKILL); /* only the leader: its children live on */
    assert_true(stk_runner_attempt_is_live(job.dir));
    assert_int_equal(stk_runner_attempt_kill(job.dir, "run", 5000), 0);
    assert_false(stk_runner_attempt_is_live(job.dir));
    assert_true(is_gone_within(children[0], 0) && is_gone_within(children[1], 0));
    assert_int_equal(stk_runner_attempt_kill(job.dir, "run", 5000), 0); /* again: harmless */
    wait_for(b, STK_REPORT_ENDED, 1);
    b->ops->close(b);
}

/* The number of entries in a folder. */
static uint32_t n_entries(const char *dir)
{
    stk_err err = {0};
    STK_DIR_AUTO entries = {0};
    assert_int_equal(stk_dir_read(dir, &entries, &err), 0);
    return entries.n;
}

/* Starts a process that opens `path` itself and keeps it open until it is killed. */
static pid_t open_elsewhere(const char *path, int flags)
{
    int pipes[2];
    char word = 0;
    assert_int_equal(pipe(pipes), 0);
    pid_t pid = fork();
    if (pid == 0) {
        (void)setsid();
        word = open(path, flags) >= 0 ? 'y' : 'n';
        (void)!write(pipes[1], &word, 1);
        for (;;) {
            pause();
        }
    }
    assert_int_equal(read(pipes[0], &word, 1), 1);
    assert_int_equal(word, 'y');
    close(pipes[0]);
    close(pipes[1]);
    return pid;
}

/* The attempt's lock is on task.json: it needs no file of its own, and the task can't write it. A
 * process that merely opens task.json neither belongs to the attempt nor holds its lock. */
static void test_the_lock_is_on_task_json(void **state)
{
    (void)state;
    stk_backend *b = open_backend("none");
    stk_job job = {.id = 1, .step = "s", .dir = new_dir()};
    /* A daemon that drops its logs and environment, but keeps the lock that it inherited. */
    job.argv = SHELL("env -i setsid sh -c 'echo $$; exec sleep 300 >/dev/null 2>&1' & wait");
    start(b, &job);
    pid_t leader = (pid_t)wait_for(b, STK_REPORT_STARTED, 1).pid;
    pid_t daemon = 0;
    for (int i = 0; i < 12000 && daemon == 0; i++) {
        usleep(10000);
        (void)sscanf(log_of(job.dir, "stdout.log"), "%d", &daemon);
    }
    assert_int_equal(n_entries(job.dir), 3); /* the logs and task.json */
    pid_t found[4];
    char path[200];
    snprintf(path, sizeof path, "%s/task.json", job.dir);
    assert_int_equal(stk_proc_writers(path, found, 4), 0);
    pid_t reader = open_elsewhere(path, O_RDONLY);
    pid_t writer = open_elsewhere(path, O_RDWR);
    siginfo_t info;
    kill(leader, SIGKILL);
    assert_int_equal(waitid(P_PID, (id_t)leader, &info, WEXITED | WNOWAIT), 0);
    assert_true(stk_runner_attempt_is_live(job.dir)); /* only the daemon lives */
    assert_int_equal(stk_proc_lockers(path, found, 4), 1);
    assert_int_equal(found[0], daemon);
    assert_int_equal(stk_runner_attempt_kill(job.dir, "run", 60000), 0);
    assert_false(stk_runner_attempt_is_live(job.dir));
    assert_true(is_gone_within(daemon, 60000));
    assert_int_equal(waitpid(reader, NULL, WNOHANG), 0);
    assert_int_equal(waitpid(writer, NULL, WNOHANG), 0);
    wait_for(b, STK_REPORT_ENDED, 1);
    kill(reader, SIGKILL);
    kill(writer, SIGKILL);
    waitpid(reader, NULL, 0);
    waitpid(writer, NULL, 0);
    b->ops->close(b);
}

/* An attempt of an earlier version has its lock on a separate file. */
static void test_an_attempt_of_an_earlier_version(void **state)
{
    (void)state;
    const char *dir = new_dir();
    char path[200];
    snprintf(path, sizeof path, "%s/alive", dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    assert_int_equal(fcntl(fd, F_OFD_SETLK, &lock), 0);
    pid_t task = fork();
    if (task == 0) {
        (void)setsid();
        for (;;) {
            pause();
        }
    }
    close(fd);
    assert_true(stk_runner_attempt_is_live(dir));
    assert_int_equal(stk_runner_attempt_kill(dir, "run", 60000), 0);
    assert_false(stk_runner_attempt_is_live(dir));
    assert_int_equal(waitpid(task, NULL, 0), task);
}

static void test_guardian(void **state)
{
    (void)state;
    int pipes[2];
    assert_int_equal(pipe(pipes), 0);
    const char *dir = new_dir();
    fflush(NULL);
    pid_t engine = fork();
    if (engine == 0) {
        close(pipes[0]);
        stk_backend *b = NULL;
        stk_err err = {0};
        unsetenv("STOKER_CGROUP");
        stk_local_config config = {.run = "test-guardian", .server_fd = -1};
        /* The first child has its own session and no parent: only its environment identifies it. */
        stk_job job = {.id = 1, .step = "s", .dir = dir, .memory_bytes = 1 << 30};
        job.argv = SHELL("(setsid sleep 300 & echo $!); sleep 301 & echo $!; echo $$; wait");
        job.env = (const char *const[]){"STOKER_RUN=test-guardian", NULL};
        if (stk_backend_local_open(&config, &b, &err) < 0 || b->ops->start(b, &job, &err) < 0) {
            _exit(1);
        }
        char text[64] = "";
        char path[200];
        snprintf(path, sizeof path, "%s/stdout.log", dir);
        int pids[3] = {0};
        for (int i = 0; i < 12000 && pids[2] == 0; i++) {
            usleep(10000);
            FILE *f = fopen(path, "r");
            (void)fscanf(f, "%d %d %d", &pids[0], &pids[1], &pids[2]);
            fclose(f);
        }
        snprintf(text, sizeof text, "%d %d %d\n", pids[0], pids[1], pids[2]);
        (void)!write(pipes[1], text, strlen(text));
        pause();
        _exit(0);
    }
    close(pipes[1]);
    FILE *f = fdopen(pipes[0], "r");
    int pids[3] = {0};
    assert_int_equal(fscanf(f, "%d %d %d", &pids[0], &pids[1], &pids[2]), 3);
    for (int i = 0; i < 3; i++) {
        assert_true(stk_proc_start_time(pids[i]) != 0);
    }
    kill(engine, SIGKILL);
    waitpid(engine, NULL, 0);
    for (int i = 0; i < 3; i++) {
        assert_true(is_gone_within(pids[i], 10000));
    }
    int c;
    while ((c = fgetc(f)) == '\n') {
    }
    assert_int_equal(c, EOF); /* no process holds the engine's pipe now, not even the guardian */
    fclose(f);
    assert_int_equal(stk_runner_attempt_kill(dir, "test-guardian", 10000), 0);
    /* A moment later, the guardian also removes the run's control groups. */
    char mine[4096];
    size_t mount;
    if (stk_cgroup_find("memory", mine, sizeof mine, &mount) == 0) {
        char path[4200];
        snprintf(path, sizeof path, "%s/stoker-test-guardian", mine);
        for (int i = 0; i < 12000 && stk_file_exists(path); i++) {
            usleep(10000);
        }
        assert_false(stk_file_exists(path));
    }
}

static void test_close_ends_all(void **state)
{
    (void)state;
    stk_backend *b = open_backend(NULL);
    pid_t pids[5];
    for (uint32_t i = 0; i < 5; i++) {
        stk_job job = {
            .id = i, .step = "s", .dir = new_dir(), .memory_bytes = i == 4 ? 1 << 28 : 0};
        job.argv = SHELL("trap '' TERM INT HUP; while :; do sleep 0.05; done");
        start(b, &job);
        pids[i] = (pid_t)wait_for(b, STK_REPORT_STARTED, i).pid;
    }
    b->ops->close(b);
    for (int i = 0; i < 5; i++) {
        assert_true(is_gone_within(pids[i], 0));
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left, not even the guardian */
}

static void test_many(void **state)
{
    (void)state;
    stk_backend *b = open_backend("none");
    uint32_t started = 0;
    uint32_t ended = 0;
    stk_report r;
    while (ended < 200) {
        for (; started < 200 && started - ended < 40; started++) {
            stk_job job = {.id = started, .step = "s", .dir = new_dir()};
            job.argv = SHELL("exit $(( $$ % 2 ))");
            start(b, &job);
        }
        struct pollfd p = {.fd = b->ops->fd(b), .events = POLLIN};
        int64_t wait = b->ops->wait_ms(b);
        poll(&p, 1, wait < 0 ? 1000 : (int)wait);
        while (b->ops->next(b, &r)) {
            if (r.kind == STK_REPORT_ENDED) {
                assert_int_equal(r.outcome.exit_status, r.pid % 2);
                ended++;
            }
        }
    }
    assert_int_equal(b->ops->wait_ms(b) == -1 || b->ops->wait_ms(b) >= 0, 1);
    assert_false(b->ops->next(b, &r));
    b->ops->close(b);
}

/* --- the cost of a quick command --- */

static double cpu_us(void)
{
    struct rusage self;
    struct rusage children;
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    struct timeval t[4] = {self.ru_utime, self.ru_stime, children.ru_utime, children.ru_stime};
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        sum += (double)t[i].tv_sec * 1e6 + (double)t[i].tv_usec;
    }
    return sum;
}

static int bench(int n)
{
    const char *const argv[] = {"/bin/true", NULL};
    snprintf(root, sizeof root, "/dev/shm/stk-bench-XXXXXX");
    if (mkdtemp(root) == NULL) {
        return 1;
    }
    for (int i = 0; i < n; i++) {
        (void)new_dir();
    }
    double begin = cpu_us();
    for (int i = 0; i < n; i++) {
        pid_t pid = vfork();
        if (pid == 0) {
            execve(argv[0], (char *const *)(uintptr_t)argv, environ);
            _exit(127);
        }
        waitpid(pid, NULL, 0);
    }
    double bare = (cpu_us() - begin) / n;
    stk_backend *b = open_backend("none");
    begin = cpu_us();
    int64_t wall = now_ms();
    char dir[128];
    for (int i = 0; i < n; i++) {
        snprintf(dir, sizeof dir, "%s/%d", root, i);
        stk_job job = {.id = (uint32_t)i, .step = "s", .dir = dir, .argv = argv};
        (void)run(b, &job);
    }
    double ours = (cpu_us() - begin) / n;
    printf("%d commands: bare vfork+exec %.0f us CPU each, backend %.0f us (+%.0f), %.2f ms wall\n",
           n, bare, ours, ours - bare, (double)(now_ms() - wall) / n);
    stk_job job = {.id = 1, .step = "s", .dir = new_dir()};
    struct rusage before;
    struct rusage after;
    job.argv = SHELL("sleep 8");
    getrusage(RUSAGE_SELF, &before);
    (void)run(b, &job);
    getrusage(RUSAGE_SELF, &after);
    double us = (double)(after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec -
                         before.ru_stime.tv_sec) *
                    1e6 +
                (double)(after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec -
                         before.ru_stime.tv_usec);
    printf("watching one task at 10 Hz for 8 s: %.0f us CPU a second\n", us / 8);
    b->ops->close(b);
    return stk_file_remove_tree(root, NULL);
}

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof root, "/tmp/stk-local-XXXXXX");
    return mkdtemp(root) == NULL ? -1 : 0;
}

static int remove_root(void **state)
{
    (void)state;
    return stk_file_remove_tree(root, NULL);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--eat") == 0) {
        eat((size_t)atoi(argv[2]));
    }
    if (argc == 3 && strcmp(argv[1], "--bench") == 0) {
        return bench(atoi(argv[2]));
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_start_errors),
        cmocka_unit_test(test_environment),
        cmocka_unit_test(test_leftovers),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_oom_group),
        cmocka_unit_test(test_oom_watchdog),
        cmocka_unit_test(test_samples),
        cmocka_unit_test(test_attempt_kill),
        cmocka_unit_test(test_the_lock_is_on_task_json),
        cmocka_unit_test(test_an_attempt_of_an_earlier_version),
        cmocka_unit_test(test_guardian),
        cmocka_unit_test(test_close_ends_all),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests_name("backend_local", tests, make_root, remove_root);
}
