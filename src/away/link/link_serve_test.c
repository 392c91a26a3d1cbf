/* The far end by itself: when it ends. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away/link/link_private.h"
#include "base/testing.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/spawn.h"

extern char **environ;

enum { LONG_MS = 60000 };

/* Waits for the end of the connection. */
static int await_end(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                     stk_buf *ret_body, stk_err *err)
{
    struct pollfd fd = {.fd = stk_link_end_fd(), .events = POLLIN};
    (void)ask, (void)body, (void)n, (void)ret, (void)ret_body, (void)err;
    (void)poll(&fd, 1, 2 * LONG_MS);
    return 0;
}

/* Makes the file `path`, and hears of nothing. */
static int hang(const stk_json *ask, const void *body, size_t n, stk_buf *ret, stk_buf *ret_body,
                stk_err *err)
{
    (void)body, (void)n, (void)ret, (void)ret_body;
    (void)stk_file_write(stk_json_get_text(ask, "path"), "", 0, 0600, err);
    (void)poll(NULL, 0, 2 * LONG_MS);
    return 0;
}

static int serve_far(void)
{
    static const stk_link_op ops[] = {{"await", await_end}, {"hang", hang}, {NULL, NULL}};
    static const stk_link_op *const tables[] = {ops, NULL};
    stk_err err = {0};
    int rc = stk_link_serve(STDIN_FILENO, STDOUT_FILENO, tables, &err);
    _exit(rc == STK_E_CANCELLED ? 7 : rc < 0);
}

/* --- the near end --- */

typedef struct far_end {
    pid_t pid;
    int to, from;
} far_end;

static far_end start_far(void)
{
    static char self[256];
    int in[2], out[2];
    far_end far = {0};
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const char *const argv[] = {self, "--far", NULL};
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    const stk_spawn spawn = {.argv = argv,
                             .env = (const char *const *)environ,
                             .stdin_fd = in[0],
                             .stdout_fd = out[1],
                             .stderr_fd = STDERR_FILENO,
                             .die_with_parent = true};
    assert_int_equal(stk_sys_spawn(&spawn, &far.pid, NULL, NULL), 0);
    close(in[0]);
    close(out[1]);
    far.to = in[1];
    far.from = out[0];
    char c = '\0';
    while (c != '\n') {
        assert_int_equal(read(far.from, &c, 1), 1);
    }
    return far;
}

static void ask(const far_end *far, uint64_t id, const char *head)
{
    size_t n = 0;
    char *frame = stk_link_frame_make(id, head, strlen(head), NULL, 0, &n);
    assert_int_equal(write(far->to, frame, n), n);
    free(frame);
}

/* A sign of life comes behind what was asked for before, so that has begun to be read. */
static void ping(const far_end *far)
{
    char answer[LINK_PREFIX + 2];
    ask(far, 0, "");
    for (size_t n = 0; n < sizeof answer;) {
        ssize_t got = read(far->from, answer + n, sizeof answer - n);
        assert_true(got > 0);
        n += (size_t)got;
    }
}

/* Its exit status; it ends long before its handlers would. */
static int end_of(far_end *far)
{
    int status = -1;
    int64_t until = stk_clock_mono_ms(&stk_clock_real) + LONG_MS;
    pid_t got = 0;
    while (got == 0 && stk_clock_mono_ms(&stk_clock_real) < until) {
        got = waitpid(far->pid, &status, WNOHANG);
        (void)poll(NULL, 0, 5);
    }
    if (got == 0) {
        (void)kill(far->pid, SIGKILL);
        (void)waitpid(far->pid, NULL, 0);
        return -1;
    }
    close(far->to);
    close(far->from);
    return WEXITSTATUS(status);
}

static void test_waiting_handlers_hear_of_it(void **state)
{
    (void)state;
    far_end far = start_far();
    for (uint64_t i = 1; i < 9; i++) {
        ask(&far, i, "{\"op\":\"await\"}");
    }
    ping(&far);
    close(far.to);
    far.to = -1;
    assert_int_equal(end_of(&far), 0);
}

static void test_others_are_left(void **state)
{
    (void)state;
    (void)setenv("STOKER_FAR_LEAVE_MS", "300", 1);
    far_end far = start_far();
    char path[64], head[128];
    (void)snprintf(path, sizeof path, "/tmp/stk-hang-%d", (int)getpid());
    (void)snprintf(head, sizeof head, "{\"op\":\"hang\",\"path\":\"%s\"}", path);
    ask(&far, 1, head);
    for (int i = 0; i < LONG_MS && !stk_file_exists(path); i++) {
        (void)poll(NULL, 0, 1);
    }
    (void)unlink(path);
    close(far.to);
    far.to = -1;
    assert_int_equal(end_of(&far), 7);
}

/* The way to it is cut, and nobody says so. */
static void test_silence(void **state)
{
    (void)state;
    (void)setenv("STOKER_FAR_SILENCE_MS", "300", 1);
    far_end far = start_far();
    ping(&far);
    assert_int_equal(end_of(&far), 0);
    far = start_far();
    assert_int_equal(write(far.to, "half of a fr", 12), 12);
    assert_int_equal(end_of(&far), 0);
    (void)unsetenv("STOKER_FAR_SILENCE_MS");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_waiting_handlers_hear_of_it),
        cmocka_unit_test(test_others_are_left),
        cmocka_unit_test(test_silence),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && strcmp(argv[1], "--far") == 0) {
        return serve_far();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
