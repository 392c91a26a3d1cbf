/* A program of the user's, run for what it prints. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/param.h>
#include <sys/wait.h>
#include <unistd.h>

#include "image/image_private.h"
#include "sys/clock.h"
#include "sys/file.h"

/* To the end, which must come within `timeout_ms` (-1: any time). */
static int read_output(int fd, const char *program, int64_t timeout_ms, stk_buf *out, stk_err *err)
{
    int64_t end_ms = stk_clock_mono_ms(&stk_clock_real) + timeout_ms;
    for (;;) {
        char data[4096];
        int64_t left = -1;
        if (timeout_ms >= 0) {
            left = MAX(end_ms - stk_clock_mono_ms(&stk_clock_real), 0);
        }
        struct pollfd p = {.fd = fd, .events = POLLIN};
        int ready = poll(&p, 1, (int)left);
        if (ready == 0 || left == 0) {
            return stk_err_set(err, STK_E_ENV, "%s hasn't answered for %d s", program,
                               (int)(timeout_ms / 1000));
        }
        ssize_t n = -1;
        if (ready > 0) {
            n = read(fd, data, sizeof data);
        }
        if (n == 0 || (n < 0 && errno != EINTR)) {
            return 0;
        }
        if (n > 0 && stk_buf_add(out, data, (size_t)n) < 0) {
            return stk_err_set(err, STK_E_ENV, "the answer of %s has more than %zu bytes", program,
                               out->max);
        }
    }
}

int stk_image_capture(const stk_spawn *spawn, int64_t timeout_ms, stk_buf *out, int *ret_status,
                      stk_err *err)
{
    extern char **environ;
    int pipes[2];
    pid_t pid = 0;
    stk_spawn with_pipe = *spawn;
    if (pipe2(pipes, O_CLOEXEC) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "running %s", spawn->argv[0]);
    }
    with_pipe.env = (const char *const *)environ;
    with_pipe.stdout_fd = pipes[1];
    with_pipe.die_with_parent = true;
    int rc = stk_sys_spawn(&with_pipe, &pid, NULL, err);
    stk_file_close(&pipes[1]);
    if (rc == 0) {
        rc = read_output(pipes[0], spawn->argv[0], timeout_ms, out, err);
        if (rc < 0) {
            (void)kill(pid, SIGKILL);
        }
        while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR) {
        }
    }
    stk_file_close(&pipes[0]);
    return rc;
}
