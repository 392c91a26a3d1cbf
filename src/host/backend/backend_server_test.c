/* Fork servers: the protocol against a fake server that misbehaves on demand, and against the real
 * server where Python is installed. The fake is this program, started with --fake FD. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/testing.h"
#include "host/backend/backend.h"
#include "sys/file.h"
#include "sys/proc.h"

/* --- the fake server: the step's name says what it does with a spawn --- */

static void say(int fd, int passed, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void say(int fd, int passed, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    size_t len = (size_t)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    unsigned char head[4] = {(unsigned char)len, (unsigned char)(len >> 8),
                             (unsigned char)(len >> 16), (unsigned char)(len >> 24)};
    char room[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec parts[2] = {{head, 4}, {text, len}};
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = 2};
    if (passed >= 0) {
        m.msg_control = room;
        m.msg_controllen = sizeof room;
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        *c = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(c), &passed, sizeof passed);
    }
    if (sendmsg(fd, &m, MSG_NOSIGNAL) < 0) {
        _exit(9);
    }
}

static const stk_json *hear(int fd, int *fds, int *n_fds, stk_arena *arena)
{
    static char text[1 << 22];
    unsigned char head[4];
    char room[CMSG_SPACE(70 * sizeof(int))];
    struct iovec part = {head, 4};
    struct msghdr m = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    *n_fds = 0;
    if (recvmsg(fd, &m, MSG_WAITALL) != 4) {
        return NULL;
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
        *n_fds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), (size_t)*n_fds * sizeof(int));
    }
    size_t len = head[0] | (size_t)head[1] << 8 | (size_t)head[2] << 16 | (size_t)head[3] << 24;
    if (len >= sizeof text || recv(fd, text, len, MSG_WAITALL) != (ssize_t)len) {
        return NULL;
    }
    return stk_json_readn(arena, text, len);
}

/* The task: prints what it was given, then ends as the step's name says. */
static _Noreturn void fake_task(const char *step, const stk_json *m, int *fds, int n_fds)
{
    setsid();
    dup2(fds[0], 1);
    dup2(fds[1], 2);
    dprintf(1, "%s fds=%d cwd=%s A=%s gone=%s cpus=%d threads=%d hook=%s error=%s\n", step, n_fds,
            stk_json_get_text(m, "cwd"), stk_json_get_text(stk_json_get(m, "env"), "A"),
            stk_json_text(stk_json_item(stk_json_get(m, "unset"), 0)),
            (int)stk_json_n_items(stk_json_get(m, "cpus")),
            (int)stk_json_get_whole(m, "threads", 0), stk_json_get_text(m, "hook"),
            stk_json_get_text(m, "error"));
    if (strcmp(step, "die") == 0 || strcmp(step, "pdeath") == 0) {
        usleep(200000);
        _exit(5);
    }
    if (strcmp(step, "long") == 0) {
        sleep(300);
    }
    if (strcmp(step, "orphan") == 0 && fork() == 0) {
        sleep(300);
    }
    _exit(strcmp(step, "fail") == 0 ? 3 : 0);
}

static void fake_spawn(int fd, const stk_json *m, int *fds, int n_fds, bool clean)
{
    const char *step = stk_json_get_text(m, "step");
    int64_t id = stk_json_get_whole(m, "id", 0);
    if (strcmp(step, "gone") == 0) {
        _exit(0);
    }
    if (strcmp(step, "hang") == 0) {
        pause();
    }
    if (strcmp(step, "garbage") == 0) {
        (void)!write(fd, "\3\0\0\0{]}", 7);
        return;
    }
    if (strcmp(step, "refused") == 0) {
        say(fd, -1, "{\"op\":\"failed\",\"id\":%lld,\"error\":\"fork: no more\"}", (long long)id);
        return;
    }
    if (strcmp(step, "unfit") == 0 && !clean) {
        say(fd, -1, "{\"op\":\"unfit\",\"id\":%lld,\"why\":\"a pool is running\"}", (long long)id);
        return;
    }
    if (strcmp(step, "noted") == 0) {
        say(fd, -1, "{\"op\":\"note\",\"id\":%lld,\"text\":\"with one thread\"}", (long long)id);
    }
    fflush(NULL);
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        if (strcmp(step, "pdeath") == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        }
        close(fd);
        fake_task(step, m, fds, n_fds);
    }
    int pidfd = (int)syscall(434 /* pidfd_open */, pid, 0);
    say(fd, pidfd, "{\"op\":\"started\",\"id\":%lld,\"pid\":%d}", (long long)id, pid);
    close(pidfd);
    if (strcmp(step, "die") == 0 || strcmp(step, "pdeath") == 0) {
        usleep(50000);
        _exit(0);
    }
    if (strcmp(step, "long") == 0) { /* until the task ends or the engine closes the socket */
        struct pollfd p = {.fd = fd, .events = POLLRDHUP};
        while (waitpid(pid, &status, WNOHANG) == 0) {
            if (poll(&p, 1, 5) > 0) {
                kill(-pid, SIGKILL);
            }
        }
    } else {
        waitpid(pid, &status, 0);
    }
    say(fd, -1,
        "{\"op\":\"ended\",\"id\":%lld,\"status\":%d,\"utime_us\":1000,\"stime_us\":500,\"maxrss_"
        "kb\":4321}",
        (long long)id, status);
}

static _Noreturn void fake_server(int fd, bool clean)
{
    int fds[70];
    int n_fds;
    const stk_json *m;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    if (clean && getenv("FAKE_BROKEN") != NULL) {
        fprintf(stderr, "Traceback\nModuleNotFoundError: No module named 'stoker'\n");
        _exit(1);
    }
    say(fd, -1,
        "{\"op\":\"hello\",\"pid\":%d,\"python\":\"3.11.7\",\"main\":\"x.py\",\"version\":1}",
        getpid());
    while ((m = hear(fd, fds, &n_fds, arena)) != NULL) {
        fake_spawn(fd, m, fds, n_fds, clean);
        for (int i = 0; i < n_fds; i++) {
            close(fds[i]);
        }
        stk_arena_reset(arena);
    }
    _exit(0);
}

/* --- the tests' helpers --- */

static char root[64];
static char fake_python[128];
static int n_dirs;

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void put_task_json(const char *dir)
{
    char path[200];
    snprintf(path, sizeof path, "%s/task.json", dir);
    assert_int_equal(stk_file_write(path, "{}", 2, 0644, NULL), 0);
}

static const char *new_dir(void)
{
    static char dirs[64][128];
    char *dir = dirs[n_dirs % 64];
    snprintf(dir, sizeof dirs[0], "%s/%d", root, n_dirs++);
    assert_int_equal(mkdir(dir, 0755), 0);
    put_task_json(dir);
    return dir;
}

static int64_t server_ms; /* 0: the default */

static stk_backend *open_with(int server_fd, const char *python)
{
    static int n;
    char run[64];
    stk_err err = {0};
    stk_backend *b = NULL;
    setenv("STOKER_CGROUP", "none", 1);
    snprintf(run, sizeof run, "test-server-%d-%d", (int)getpid(), n++);
    stk_local_config config = {
        .run = run, .server_fd = server_fd, .python = python, .server_ms = server_ms};
    if (stk_backend_local_open(&config, &b, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return b;
}

/* Like the front, makes the server a child of the process that becomes the engine. */
static stk_backend *open_fake(void)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    fflush(NULL);
    if (fork() == 0) {
        close(pair[0]);
        fake_server(pair[1], false);
    }
    close(pair[1]);
    return open_with(pair[0], fake_python);
}

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

static stk_job job_of(const char *step)
{
    static const uint32_t cpus[] = {0, 1};
    static const char *const env[] = {"A=a\"b=c", "B=", NULL};
    static const char *const unset[] = {"GONE", NULL};
    return (stk_job){.id = 5,
                     .attempt = 1,
                     .step = step,
                     .dir = new_dir(),
                     .python = "mod:fn",
                     .cwd = "/usr",
                     .env = env,
                     .unset = unset,
                     .cpus = cpus,
                     .n_cpus = 2,
                     .threads = 2};
}

static stk_outcome run(stk_backend *b, stk_job *job)
{
    stk_err err = {0};
    if (b->ops->start(b, job, &err) < 0) {
        fail_msg("%s", err.text);
    }
    return wait_for(b, STK_REPORT_ENDED, job->id).outcome;
}

static char *stdout_of(const char *dir)
{
    static char *data;
    char path[256];
    size_t len;
    free(data);
    data = NULL;
    snprintf(path, sizeof path, "%s/stdout.log", dir);
    assert_int_equal(stk_file_read(path, 1 << 20, &data, &len, NULL), 0);
    return data;
}

/* --- tests --- */

static void test_ends(void **state)
{
    (void)state;
    stk_backend *b = open_fake();
    stk_job job = job_of("fine");
    stk_outcome o = run(b, &job);
    assert_true(o.ok);
    assert_int_equal(o.cpu_us, 1500);
    assert_int_equal(o.peak_memory_bytes, 4321 * 1024);
    assert_string_equal(stdout_of(job.dir),
                        "fine fds=3 cwd=/usr A=a\"b=c gone=GONE cpus=2 threads=2 hook=(null) "
                        "error=(null)\n");
    job = job_of("fail");
    o = run(b, &job);
    assert_int_equal(o.failure, STK_FAIL_EXIT);
    assert_string_equal(o.text, "exit status 3");
    job = job_of("fine"); /* a hook takes no lock, so it may run beside its attempt */
    job.hook = "on_failure";
    job.hook_error = "it \"broke\"";
    assert_true(run(b, &job).ok);
    assert_non_null(strstr(stdout_of(job.dir), "fds=2 "));
    assert_non_null(strstr(stdout_of(job.dir), "hook=on_failure error=it \"broke\"\n"));
    job = job_of("refused");
    o = run(b, &job);
    assert_int_equal(o.failure, STK_FAIL_START);
    assert_non_null(strstr(o.text, "fork: no more"));
    job = job_of("noted");
    stk_err err = {0};
    assert_int_equal(b->ops->start(b, &job, &err), 0);
    assert_string_equal(wait_for(b, STK_REPORT_NOTE, 5).text, "with one thread");
    wait_for(b, STK_REPORT_ENDED, 5);
    b->ops->close(b);
}

static void test_lease_travels(void **state)
{
    (void)state;
    stk_backend *b = open_fake();
    stk_job job = job_of("long");
    int pipes[2];
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    job.lease.n = job.lease.n_fds = 1;
    job.lease.fds[0] = pipes[1];
    stk_err err = {0};
    assert_int_equal(b->ops->start(b, &job, &err), 0);
    assert_int_equal(job.lease.n, 0);
    wait_for(b, STK_REPORT_STARTED, 5);
    assert_int_equal(fcntl(pipes[1], F_GETFD), -1); /* only the task's copy is open */
    struct pollfd p = {.fd = pipes[0]};
    usleep(20000);
    assert_int_equal(poll(&p, 1, 0), 0);
    assert_true(stk_runner_attempt_is_live(job.dir));
    b->ops->stop(b, 5, 0, STK_FAIL_CANCELLED);
    for (int i = 0; i < 12000 && stk_runner_attempt_is_live(job.dir); i++) {
        usleep(10000);
    }
    assert_int_equal(poll(&p, 1, 5000), 1);
    close(pipes[0]);
    b->ops->close(b);
}

static void test_unfit(void **state)
{
    (void)state;
    stk_backend *b = open_fake();
    for (int i = 0; i < 2; i++) {
        stk_job job = job_of("unfit");
        stk_err err = {0};
        assert_int_equal(b->ops->start(b, &job, &err), 0);
        if (i == 0) {
            assert_non_null(strstr(wait_for(b, STK_REPORT_NOTE, 5).text, "a pool is running"));
        }
        assert_true(wait_for(b, STK_REPORT_ENDED, 5).outcome.ok);
        assert_non_null(strstr(stdout_of(job.dir), "unfit fds=3"));
    }
    b->ops->close(b);
}

static void test_server_dies(void **state)
{
    (void)state;
    stk_backend *b = open_fake();
    stk_job job = job_of("die"); /* the task lives on as the engine's child: its own end counts */
    stk_err err = {0};
    assert_int_equal(b->ops->start(b, &job, &err), 0);
    stk_report said = wait_for(b, STK_REPORT_NOTE, job.id);
    assert_non_null(strstr(said.text, "the fork server (process "));
    assert_non_null(strstr(said.text, "; a new one replaces it"));
    stk_outcome o = wait_for(b, STK_REPORT_ENDED, job.id).outcome;
    assert_string_equal(o.text, "exit status 5");
    job = job_of("fine"); /* a new server runs the next task */
    assert_true(run(b, &job).ok);
    job = job_of("pdeath"); /* this task dies with its server, as with the real one */
    o = run(b, &job);
    assert_int_equal(o.failure, STK_FAIL_LOST);
    assert_non_null(strstr(o.text, "fork server"));
    job = job_of("gone"); /* the server dies before it starts the task */
    o = run(b, &job);
    assert_int_equal(o.failure, STK_FAIL_LOST);
    job = job_of("garbage");
    o = run(b, &job);
    assert_int_equal(o.failure, STK_FAIL_LOST);
    assert_non_null(strstr(o.text, "not JSON"));
    job = job_of("fine");
    assert_true(run(b, &job).ok);
    b->ops->close(b);
}

/* A server that neither answers nor ends is replaced. */
static void test_server_hangs(void **state)
{
    (void)state;
    server_ms = 200;
    stk_backend *b = open_fake();
    server_ms = 0;
    stk_job job = job_of("hang");
    stk_outcome o = run(b, &job);
    assert_int_equal(o.failure, STK_FAIL_LOST);
    assert_string_equal(o.text, "its fork server did not start it in time");
    job = job_of("fine");
    assert_true(run(b, &job).ok);
    b->ops->close(b);
}

static void test_no_python(void **state)
{
    (void)state;
    stk_backend *b = open_with(-1, "/no/such/python");
    stk_job job = job_of("fine");
    stk_err err = {0};
    assert_int_equal(b->ops->start(b, &job, &err), STK_E_SYS);
    assert_non_null(strstr(err.text, "/no/such/python"));
    b->ops->close(b);
    setenv("FAKE_BROKEN", "1", 1);
    b = open_with(-1, fake_python);
    job = job_of("fine");
    stk_outcome o = run(b, &job);
    unsetenv("FAKE_BROKEN");
    assert_int_equal(o.failure, STK_FAIL_START);
    assert_non_null(strstr(o.text, "No module named 'stoker'"));
    job = job_of("fine");
    assert_true(run(b, &job).ok);
    b->ops->close(b);
}

static void test_stop(void **state)
{
    (void)state;
    stk_backend *b = open_fake();
    stk_job job = job_of("long");
    stk_err err = {0};
    assert_int_equal(b->ops->start(b, &job, &err), 0);
    b->ops->stop(b, 5, 1000, STK_FAIL_CANCELLED); /* not sent yet: the server is still silent */
    assert_string_equal(wait_for(b, STK_REPORT_ENDED, 5).outcome.text, "cancelled");
    assert_false(stk_runner_attempt_is_live(job.dir));
    job = job_of("long");
    assert_int_equal(b->ops->start(b, &job, &err), 0);
    wait_for(b, STK_REPORT_STARTED, 5);
    b->ops->close(b);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* not even the server is left */
}

/* --- the real server --- */

static bool find_python(char *buf, size_t size)
{
    static const char below[] = "src/host/backend/backend_server_test.c";
    char path[4096];
    snprintf(path, sizeof path, "%.*spython", (int)(sizeof __FILE__ - sizeof below), __FILE__);
    char real[4096];
    if (realpath(path, real) == NULL) {
        return false;
    }
    snprintf(path, sizeof path, "%s:%s", real, root);
    setenv("PYTHONPATH", path, 1);
    FILE *p = popen(
        "python3 -c 'import sys, stoker._worker.server; print(sys.executable)' 2>/dev/null", "r");
    bool found = p != NULL && fgets(buf, (int)size, p) != NULL;
    buf[strcspn(buf, "\n")] = '\0';
    return p != NULL && pclose(p) == 0 && found;
}

static stk_job real_job(uint32_t id, const char *entry, bool spawn)
{
    static char dirs[8][160];
    char path[256];
    char text[1024];
    char *dir = dirs[n_dirs % 8];
    snprintf(dir, sizeof dirs[0], "%s/run/step/0/%d", root, n_dirs++);
    snprintf(path, sizeof path, "%s/out", dir);
    assert_int_equal(stk_file_mkdirs(path, 0755, NULL), 0);
    snprintf(path, sizeof path, "%s/task.json", dir);
    int n = snprintf(text, sizeof text,
                     "{\"stoker\": 1, \"run\": \"r\", \"pipeline\": \"p\", \"step\": \"step\", "
                     "\"task\": 0, \"attempt\": 1, \"last_attempt\": true, \"store\": \"%s\", "
                     "\"kind\": \"python\", \"entry\": \"%s\", \"isolation\": \"%s\", "
                     "\"inputs\": {\"x\": {\"value\": 20}}, \"outputs\": [\"output\"], "
                     "\"asked\": {}, \"granted\": {}, \"hooks\": {}, \"rank\": 0, \"world\": 1, "
                     "\"extra\": {}}",
                     root, entry, spawn ? "spawn" : "fork");
    assert_int_equal(stk_file_write(path, text, (size_t)n, 0644, NULL), 0);
    return (stk_job){.id = id,
                     .attempt = 1,
                     .step = "step",
                     .dir = dir,
                     .python = entry,
                     .spawn = spawn,
                     .cwd = "/tmp",
                     .grace_ms = 1000};
}

static void expect_result(const char *dir, const char *needle)
{
    char path[256];
    char *text = NULL;
    size_t len;
    snprintf(path, sizeof path, "%s/result.json", dir);
    assert_int_equal(stk_file_read(path, 1 << 20, &text, &len, NULL), 0);
    if (strstr(text, needle) == NULL) {
        fail_msg("no %s in %s", needle, text);
    }
    free(text);
}

static void test_real_python(void **state)
{
    (void)state;
    static const char module[] = "import os, time\n"
                                 "def double(x):\n    print('hi', flush=True)\n    return 2 * x\n"
                                 "def broken(x):\n    raise ValueError('no')\n"
                                 "def crash(x):\n    os.kill(os.getpid(), 11)\n"
                                 "def slow(x):\n    time.sleep(300)\n";
    char python[4096];
    char path[128];
    if (!find_python(python, sizeof python)) {
        printf("skipped: python3 can't import stoker._worker.server\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/stk_test_mod.py", root);
    assert_int_equal(stk_file_write(path, module, sizeof module - 1, 0644, NULL), 0);
    stk_backend *b = open_with(-1, python);
    for (int spawn = 0; spawn < 2; spawn++) {
        stk_job job = real_job(1, "stk_test_mod:double", spawn == 1);
        stk_outcome o = run(b, &job);
        assert_string_equal(o.text, "");
        assert_true(o.ok && o.cpu_us > 0);
        expect_result(job.dir, "40");
        assert_string_equal(stdout_of(job.dir), "hi\n");
        job = real_job(2, "stk_test_mod:broken", spawn == 1);
        assert_true(run(b, &job).ok); /* the error is in the result */
        expect_result(job.dir, "ValueError");
        job = real_job(3, "stk_test_mod:crash", spawn == 1);
        o = run(b, &job);
        assert_non_null(strstr(o.text, "killed by signal 11 (SIGSEGV) in compiled code"));
        assert_non_null(strstr(o.text, " in crash; "));
        job = real_job(4, "stk_test_mod:slow", spawn == 1);
        job.timeout_ms = 300;
        assert_int_equal(run(b, &job).failure, STK_FAIL_TIMEOUT);
    }
    b->ops->close(b);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static int setup(void **state)
{
    (void)state;
    char self[256];
    char text[400];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    snprintf(root, sizeof root, "/tmp/stk-server-XXXXXX");
    if (n <= 0 || mkdtemp(root) == NULL) {
        return -1;
    }
    self[n] = '\0';
    /* Called as `python -m stoker._worker.server --fd N`. */
    snprintf(fake_python, sizeof fake_python, "%s/python", root);
    int len = snprintf(text, sizeof text, "#!/bin/sh\nexec '%s' --fake \"$4\"\n", self);
    return stk_file_write(fake_python, text, (size_t)len, 0755, NULL);
}

static int teardown(void **state)
{
    (void)state;
    return stk_file_remove_tree(root, NULL);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--fake") == 0) {
        fake_server(atoi(argv[2]), true);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ends),         cmocka_unit_test(test_lease_travels),
        cmocka_unit_test(test_unfit),        cmocka_unit_test(test_server_dies),
        cmocka_unit_test(test_server_hangs), cmocka_unit_test(test_no_python),
        cmocka_unit_test(test_stop),         cmocka_unit_test(test_real_python),
    };
    return cmocka_run_group_tests_name("backend_server", tests, setup, teardown);
}
