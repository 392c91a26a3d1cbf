/* The guardians: what they end when their engine is killed, alone or together with one of them, and
 * what they leave alone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/testing.h"
#include "sys/cgroup.h"
#include "sys/guard.h"
#include "sys/proc.h"
#include "sys/spawn.h"

enum { PATIENCE_MS = 30000 };

static char root[64];

/* Memory that a child process and the test share. */
typedef struct shared {
    volatile int32_t ready;
    bool by_lock;  /* the file is open for reading only, with a lock on it */
    bool is_early; /* it is killed before it reports its task's session */
    pid_t guards[STK_GUARD_N];
    pid_t task;
} shared;

static pid_t start(const char *text, int file, const char *const *env)
{
    const char *argv[] = {"/bin/sh", "-c", text, NULL};
    stk_err err = {0};
    pid_t pid = 0;
    stk_spawn s = {.argv = argv,
                   .env = env != NULL ? env : (const char *const *)environ,
                   .cwd = root,
                   .stdin_fd = -1,
                   .stdout_fd = -1,
                   .stderr_fd = -1,
                   .keep_fds = &file,
                   .n_keep_fds = file < 0 ? 0 : 1,
                   .die_with_parent = true,
                   .new_session = true};
    return stk_sys_spawn(&s, &pid, NULL, &err) < 0 ? -1 : pid;
}

static bool lives(pid_t pid)
{
    return stk_proc_start_time(pid) != 0;
}

static bool ends(pid_t pid)
{
    for (int i = 0; lives(pid) && i < PATIENCE_MS; i++) {
        (void)waitpid(pid, NULL, WNOHANG);
        (void)usleep(1000);
    }
    return !lives(pid);
}

static pid_t pid_in(const char *name)
{
    char path[128];
    int pid = 0;
    (void)snprintf(path, sizeof path, "%s/%s", root, name);
    for (int i = 0; i < PATIENCE_MS && pid == 0; i++) {
        FILE *f = fopen(path, "r");
        if (f == NULL || fscanf(f, "%d", &pid) != 1) {
            pid = 0;
            (void)usleep(1000);
        }
        if (f != NULL) {
            (void)fclose(f);
        }
    }
    (void)unlink(path);
    return pid;
}

/* Acts as an engine: opens a guard for `run`, starts `text` with an inherited file, waits. */
static void engine(shared *s, const char *run, const char *text)
{
    stk_guard *guard = NULL;
    uint32_t slot;
    char path[128];
    (void)snprintf(path, sizeof path, "%s/lock", root);
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    int file = open(path, O_CREAT | (s->by_lock ? O_RDONLY : O_WRONLY) | O_CLOEXEC, 0600);
    if (s->by_lock && fcntl(file, F_OFD_SETLK, &lock) < 0) {
        _exit(1);
    }
    if (stk_guard_open(run, &guard, NULL) < 0) {
        _exit(1);
    }
    if (stk_guard_expect(guard, &file, 1, &slot, NULL) < 0) {
        _exit(1);
    }
    s->task = start(text, file, NULL);
    if (!s->is_early) {
        stk_guard_begun(guard, slot, s->task);
    }
    stk_guard_pids(guard, s->guards);
    s->ready = 1;
    for (;;) {
        (void)pause();
    }
}

static pid_t fork_engine(shared *s, const char *run, const char *text)
{
    s->ready = 0;
    pid_t pid = fork();
    if (pid == 0) {
        engine(s, run, text);
    }
    for (int i = 0; i < PATIENCE_MS && !s->ready; i++) {
        (void)usleep(1000);
    }
    assert_true(s->ready);
    return pid;
}

static shared *share(void)
{
    return mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
}

/* A shell whose child survives it, and a daemon with its own session and environment that keeps its
 * inherited descriptors. */
#define LEAVES                                                                                     \
    "sleep 600 & echo $! > child; "                                                                \
    "env -i setsid sh -c 'echo $$ > daemon.new; mv daemon.new daemon; sleep 600 & wait' & wait"

static void killed_with(int which, int delay_us, bool by_lock)
{
    shared *s = share();
    char run[64];
    s->by_lock = by_lock;
    (void)snprintf(run, sizeof run, "guard-test-%d-%d", (int)getpid(), which);
    pid_t pid = fork_engine(s, run, LEAVES);
    pid_t child = pid_in("child");
    pid_t daemon = pid_in("daemon");
    pid_t reader = start("exec sleep 600 <lock", -1, NULL);
    assert_true(lives(child) && lives(daemon));
    (void)usleep((useconds_t)delay_us);
    if (which < STK_GUARD_N) {
        (void)kill(s->guards[which], SIGKILL);
    }
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ends(s->task));
    assert_true(ends(child));
    assert_true(ends(daemon));
    for (int i = 0; i < STK_GUARD_N; i++) {
        assert_true(ends(s->guards[i]));
    }
    assert_true(lives(reader));
    (void)kill(reader, SIGKILL);
    assert_int_equal(waitpid(reader, NULL, 0), reader);
    (void)munmap(s, sizeof *s);
}

/* The engine is killed before it can report the task's session. */
static void test_killed_while_a_task_starts(void **state)
{
    (void)state;
    shared *s = share();
    s->is_early = true;
    pid_t pid = fork_engine(s, "guard-test-early", LEAVES);
    pid_t child = pid_in("child");
    pid_t daemon = pid_in("daemon");
    assert_true(lives(child) && lives(daemon));
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ends(s->task));
    assert_true(ends(child));
    assert_true(ends(daemon));
    for (int i = 0; i < STK_GUARD_N; i++) {
        assert_true(ends(s->guards[i]));
    }
    (void)munmap(s, sizeof *s);
}

static void test_either_is_enough(void **state)
{
    (void)state;
    for (int which = 0; which <= STK_GUARD_N; which++) {
        killed_with(which, 0, false);
        killed_with(which, 120000, false);
    }
}

/* Without control groups, only the inherited file identifies processes: the lock does if it is open
 * for reading only. Another reader of the file stays alive. */
static void test_holders_of_the_file(void **state)
{
    (void)state;
    assert_int_equal(setenv("STOKER_CGROUP", "none", 1), 0);
    for (int which = 0; which <= STK_GUARD_N; which++) {
        killed_with(which, 0, false);
        killed_with(which, 0, true);
    }
    assert_int_equal(unsetenv("STOKER_CGROUP"), 0);
}

/* A daemon that closed all descriptors is found in the run's control group, if there is one. */
static void test_gathered(void **state)
{
    (void)state;
    char run[64];
    (void)snprintf(run, sizeof run, "guard-test-%d-all", (int)getpid());
    stk_cgroups *groups = stk_cgroups_find(run);
    bool can = stk_cgroups_can_gather(groups);
    stk_cgroups_close(groups);
    if (!can) {
        skip();
    }
    shared *s = share();
    pid_t pid = fork_engine(s, run,
                            "env -i setsid sh -c 'for i in 3 4 5 6 7 8 9; do eval \"exec $i>&-\"; "
                            "done; cd /; (exec sleep 600 >/dev/null 2>&1) & echo $! > "
                            "$0/daemon.new; mv $0/daemon.new $0/daemon; sleep 600' $PWD & wait");
    pid_t daemon = pid_in("daemon");
    char text[64];
    char line[4096] = "";
    (void)snprintf(text, sizeof text, "stoker-%s", run);
    for (int i = 0; i < PATIENCE_MS && strstr(line, text) == NULL; i++) {
        char path[64];
        (void)snprintf(path, sizeof path, "/proc/%d/cgroup", (int)daemon);
        FILE *f = fopen(path, "r");
        assert_non_null(f);
        size_t n = fread(line, 1, sizeof line - 1, f);
        line[n] = '\0';
        (void)fclose(f);
        (void)usleep(1000);
    }
    assert_non_null(strstr(line, text));
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ends(daemon));
    for (int i = 0; i < STK_GUARD_N; i++) {
        assert_true(ends(s->guards[i]));
    }
    (void)munmap(s, sizeof *s);
}

/* The lowest descriptors are other files, and the process may open only few more: the guardians
 * still watch the descriptors they were given, so they end nothing while the engine lives. */
static void test_watches_what_it_was_given(void **state)
{
    (void)state;
    shared *s = share();
    s->ready = 0;
    pid_t pid = fork();
    if (pid == 0) {
        (void)syscall(436, 3u, ~0u, 0u);        /* close_range */
        int null = open("/dev/null", O_RDONLY); /* always at its end */
        struct rlimit few = {.rlim_cur = 14, .rlim_max = 14};
        stk_guard *guard = NULL;
        uint32_t slot;
        if (null != 3 || setrlimit(RLIMIT_NOFILE, &few) != 0 ||
            stk_guard_open("guard-test-few", &guard, NULL) < 0) {
            _exit(1);
        }
        s->task = start("exec sleep 600", -1, NULL);
        if (stk_guard_add(guard, s->task, &slot, NULL) < 0) {
            _exit(2);
        }
        stk_guard_pids(guard, s->guards);
        s->ready = 1;
        (void)pause();
    }
    for (int i = 0; i < PATIENCE_MS && !s->ready && waitpid(pid, NULL, WNOHANG) == 0; i++) {
        (void)usleep(1000);
    }
    assert_true(s->ready);
    (void)usleep(200000); /* long enough for a guardian to act */
    assert_true(lives(s->task));
    for (int i = 0; i < STK_GUARD_N; i++) {
        assert_true(lives(s->guards[i]));
    }
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ends(s->task));
    (void)munmap(s, sizeof *s);
}

static void test_no_room_is_an_error(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit few = {.rlim_cur = 4, .rlim_max = 4};
        stk_guard *guard = NULL;
        stk_err err = {0};
        (void)syscall(436, 3u, ~0u, 0u);
        (void)open("/dev/null", O_RDONLY);
        bool refused = setrlimit(RLIMIT_NOFILE, &few) == 0 &&
                       stk_guard_open(NULL, &guard, &err) < 0 &&
                       strstr(err.text, "guardian") != NULL;
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_a_clean_end_ends_nothing(void **state)
{
    (void)state;
    stk_guard *guard = NULL;
    uint32_t slot;
    pid_t guards[STK_GUARD_N];
    pid_t task = start("exec sleep 600", -1, NULL);
    assert_int_equal(stk_guard_open(NULL, &guard, NULL), 0);
    assert_int_equal(stk_guard_add(guard, task, &slot, NULL), 0);
    stk_guard_pids(guard, guards);
    assert_int_equal(kill(guards[0], SIGKILL), 0); /* a dead guardian doesn't end the task */
    stk_guard_close(guard);
    assert_true(lives(task));
    assert_false(lives(guards[1]));
    (void)kill(task, SIGKILL);
    assert_int_equal(waitpid(task, NULL, 0), task);
}

static void test_a_killed_one_is_replaced(void **state)
{
    (void)state;
    stk_guard *guard = NULL;
    pid_t before[STK_GUARD_N];
    pid_t after[STK_GUARD_N];
    assert_int_equal(stk_guard_open(NULL, &guard, NULL), 0);
    stk_guard_pids(guard, before);
    for (int i = 0; i < STK_GUARD_N; i++) {
        assert_int_equal(kill(before[i], SIGKILL), 0);
    }
    for (int i = 0; i < PATIENCE_MS; i++) {
        stk_guard_renew(guard);
        stk_guard_pids(guard, after);
        if (after[0] != before[0] && after[1] != before[1]) {
            break;
        }
        (void)usleep(1000);
    }
    assert_true(after[0] != before[0] && after[1] != before[1]);
    assert_true(lives(after[0]) && lives(after[1]));
    stk_guard_close(guard);
}

static int make_root(void **state)
{
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/stoker-guard-XXXXXX");
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    return mkdtemp(root) == NULL ? -1 : 0;
}

static int remove_root(void **state)
{
    (void)state;
    char command[128];
    (void)snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_while_a_task_starts),
        cmocka_unit_test(test_either_is_enough),
        cmocka_unit_test(test_holders_of_the_file),
        cmocka_unit_test(test_gathered),
        cmocka_unit_test(test_watches_what_it_was_given),
        cmocka_unit_test(test_no_room_is_an_error),
        cmocka_unit_test(test_a_clean_end_ends_nothing),
        cmocka_unit_test(test_a_killed_one_is_replaced),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
