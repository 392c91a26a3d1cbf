/* The check of host keys stays on, whatever the user's configuration of ssh says. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away/link/link_private.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/spawn.h"

enum { CONFIG_BYTES = 256 << 10, CONFIG_MS = 5000 };

extern char **environ;

/* Everything that it prints within the time. */
static void hear_all(int fd, stk_buf *out)
{
    char data[4096];
    int64_t until = stk_clock_mono_ms(&stk_clock_real) + CONFIG_MS;
    struct pollfd in = {.fd = fd, .events = POLLIN};
    for (;;) {
        int64_t left = until - stk_clock_mono_ms(&stk_clock_real);
        ssize_t n = left > 0 && poll(&in, 1, (int)left) > 0 ? read(fd, data, sizeof data) : 0;
        if (n <= 0) {
            return;
        }
        (void)stk_buf_add(out, data, (size_t)n);
    }
}

/* ssh's own configuration for this host: "key value" lines. Empty: unknown. */
static void ask_config(const char *program, const char *host, stk_buf *out)
{
    const char *argv[] = {program, "-G", "--", host, NULL};
    int pipe_fds[2];
    pid_t pid = 0;
    int status;
    if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
        return;
    }
    stk_spawn spawn = {.argv = argv,
                       .env = (const char *const *)environ,
                       .stdin_fd = -1,
                       .stdout_fd = pipe_fds[1],
                       .stderr_fd = -1,
                       .die_with_parent = true};
    int rc = stk_sys_spawn(&spawn, &pid, NULL, NULL);
    stk_file_close(&pipe_fds[1]);
    if (rc == 0) {
        hear_all(pipe_fds[0], out);
        (void)kill(pid, SIGKILL);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
    }
    stk_file_close(&pipe_fds[0]);
}

static bool has_line(const char *config, const char *line)
{
    size_t n = strlen(line);
    for (; config != NULL; config = stk_text_next_line(config)) {
        if (strncmp(config, line, n) == 0 && (config[n] == '\n' || config[n] == '\0')) {
            return true;
        }
    }
    return false;
}

void stk_link_ssh_strict(const char *program, const char *host, stk_arena *arena, const char **argv,
                         size_t *n)
{
    STK_BUF_AUTO config = STK_BUF_INIT(CONFIG_BYTES);
    ask_config(program, host, &config);
    bool is_off = has_line(config.data, "stricthostkeychecking false") ||
                  has_line(config.data, "stricthostkeychecking no") ||
                  has_line(config.data, "stricthostkeychecking off");
    if (is_off) {
        argv[(*n)++] = "-oStrictHostKeyChecking=accept-new";
    }
    /* A list of keys that forgets each of them checks nothing. */
    if (has_line(config.data, "userknownhostsfile /dev/null")) {
        const struct passwd *user = getpwuid(getuid());
        const char *home = user == NULL ? getenv("HOME") : user->pw_dir;
        const char *option = stk_arena_printf(arena, "-oUserKnownHostsFile=%s/.ssh/known_hosts",
                                              stk_text_or(home, ""));
        if (option != NULL) {
            argv[(*n)++] = option;
        }
    }
}
