/* Replacements for system calls that older kernels lack, under a filter that fails those calls. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/testing.h"
#include "sys/old.h"
#include "sys/spawn.h"

enum { FIRST_NEW = 424, PIDFD_FLAG = 0x1000, PATIENCE_MS = 30000 };

/* Makes this process see Linux 4.18: system calls above 423 fail, and clone returns no pidfd. */
static void become_old(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, FIRST_NEW, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PIDFD_FLAG, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
    errno = 0;
    assert_int_equal(syscall(434, getpid(), 0), -1);
    assert_int_equal(errno, ENOSYS);
}

static bool is_readable(int fd, int timeout_ms)
{
    struct pollfd on = {.fd = fd, .events = POLLIN};
    return poll(&on, 1, timeout_ms) == 1 && (on.revents & POLLIN) != 0;
}

static void test_child_seen(void **state)
{
    (void)state;
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    int fd = stk_sys_pidfd(pid);
    assert_true(fd >= 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_false(is_readable(fd, 0));
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_true(is_readable(fd, PATIENCE_MS));
    int late = stk_sys_pidfd(pid); /* works for a zombie, too */
    assert_true(late >= 0);
    assert_true(is_readable(late, PATIENCE_MS));
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid); /* its status is kept */
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_true(is_readable(fd, 0));
    (void)close(fd);
    (void)close(late);
    assert_int_equal(stk_sys_pidfd(pid), -1);
    assert_int_equal(errno, ESRCH);
}

static void test_grandchild_seen(void **state)
{
    (void)state;
    int line[2];
    pid_t grandchild = 0;
    assert_int_equal(pipe2(line, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        pid_t own = fork();
        if (own == 0) {
            pause();
            _exit(0);
        }
        (void)!write(line[1], &own, sizeof own);
        (void)waitpid(own, NULL, 0);
        _exit(0);
    }
    assert_int_equal(read(line[0], &grandchild, sizeof grandchild), sizeof grandchild);
    int fd = stk_sys_pidfd(grandchild);
    assert_true(fd >= 0);
    assert_false(is_readable(fd, 0));
    assert_int_equal(kill(grandchild, SIGKILL), 0);
    assert_true(is_readable(fd, PATIENCE_MS));
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    (void)close(fd);
    (void)close(line[0]);
    (void)close(line[1]);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void test_ranges(void **state)
{
    (void)state;
    enum { LOW = 200, MANY = 150 }; /* more than one read of the folder returns */
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(dup2(null, LOW + i), LOW + i);
    }
    stk_sys_close_range(LOW + 1, LOW + MANY - 2, true);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(fcntl(LOW + i, F_GETFD), i > 0 && i < MANY - 1 ? FD_CLOEXEC : 0);
    }
    stk_sys_close_range(LOW + 1, LOW + MANY - 2, false);
    for (int i = 0; i < MANY; i++) {
        assert_int_equal(is_open(LOW + i), i == 0 || i == MANY - 1);
    }
    stk_sys_close_range(LOW, ~0u, false);
    assert_false(is_open(LOW));
    assert_false(is_open(LOW + MANY - 1));
    assert_true(is_open(null));
    (void)close(null);
}

/* The program inherits none of our descriptors, and we notice its end. */
static void test_spawn(void **state)
{
    (void)state;
    const char *argv[] = {"/bin/sh", "-c", "! [ -e /proc/self/fd/77 ]", NULL};
    const char *env[] = {NULL};
    stk_err err = {0};
    pid_t pid = 0;
    int fd = -1;
    int status = -1;
    stk_spawn s = {.argv = argv,
                   .env = env,
                   .stdin_fd = -1,
                   .stdout_fd = -1,
                   .stderr_fd = -1,
                   .new_session = true};
    assert_int_equal(dup2(2, 77), 77);
    assert_int_equal(stk_sys_spawn(&s, &pid, &fd, &err), 0);
    assert_true(is_readable(fd, PATIENCE_MS));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    argv[0] = "/nowhere/program"; /* a failed exec is still reported by the call */
    assert_true(stk_sys_spawn(&s, &pid, &fd, &err) < 0);
    (void)close(fd);
    (void)close(77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_child_seen),
        cmocka_unit_test(test_grandchild_seen),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_spawn),
    };
    int n_new = cmocka_run_group_tests_name("new kernel", tests, NULL, NULL);
    become_old();
    return n_new + cmocka_run_group_tests_name("old kernel", tests, NULL, NULL);
}
