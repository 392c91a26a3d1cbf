#include "cli/cli_redraw.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "sys/clock.h"

#define SCREEN_OTHER "\x1b[?1049h\x1b[?25l" /* alternate screen, no cursor */
#define SCREEN_BACK "\x1b[?25h\x1b[?1049l"

static volatile sig_atomic_t ended;

static void on_signal(int signal)
{
    (void)signal;
    ended = 1;
}

static void catch_signals(void)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: poll returns */
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        (void)sigaction(signals[i], &action, NULL);
    }
}

/* Reads keys at once and without echo; Ctrl-C stays a signal. */
static bool make_raw(struct termios *ret_old)
{
    if (!isatty(STDIN_FILENO) || tcgetattr(STDIN_FILENO, ret_old) != 0) {
        return false;
    }
    struct termios raw = *ret_old;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    return tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
}

/* Waits until the next picture is due; returns true if the user quits. */
static bool pause_or_quit(bool keys, int64_t until_ms)
{
    for (int64_t left; !ended && (left = until_ms - stk_clock_mono_ms(&stk_clock_real)) > 0;) {
        struct pollfd in = {.fd = keys ? STDIN_FILENO : -1, .events = POLLIN};
        char key;
        if (poll(&in, 1, (int)left) > 0 &&
            (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q' || key == 4)) {
            return true;
        }
    }
    return ended;
}

static int put_picture(stk_buf *picture, bool screen)
{
    if (screen) {
        (void)fputs("\x1b[H", stdout);
        for (const char *at = picture->data; at != NULL && *at != '\0'; at++) {
            if (*at == '\n') {
                (void)fputs("\x1b[K\r", stdout); /* clears the rest of an earlier, longer line */
            }
            (void)fputc(*at, stdout);
        }
        (void)fputs("\x1b[J", stdout);
    } else {
        (void)fwrite(picture->data, 1, picture->len, stdout);
    }
    return fflush(stdout);
}

int stk_cli_redraw(const stk_cli *cli, int64_t period_ms, int64_t n_times, stk_cli_draw draw,
                   void *arg, stk_err *err)
{
    bool screen = isatty(STDOUT_FILENO) && n_times != 1 && !stk_cli_json(cli);
    struct termios old;
    bool keys = screen && make_raw(&old);
    int rc = 0;
    if (n_times != 1) {
        catch_signals();
    }
    (void)fputs(screen ? SCREEN_OTHER : "", stdout);
    for (int64_t i = 0; rc == 0 && !ended && (n_times == 0 || i < n_times); i++) {
        int64_t next_ms = stk_clock_mono_ms(&stk_clock_real) + period_ms;
        struct winsize size = {0};
        STK_BUF_AUTO picture = STK_BUF_INIT(64u << 20);
        bool known = screen && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1;
        rc = draw(arg, known ? size.ws_row - 1 : 0, &picture, err);
        if (rc == 0) {
            rc = stk_buf_check(&picture, err);
        }
        bool more = n_times == 0 || i + 1 < n_times;
        if (rc < 0 || put_picture(&picture, screen) != 0 ||
            (more && pause_or_quit(keys, next_ms))) {
            break;
        }
    }
    (void)fputs(screen ? SCREEN_BACK : "", stdout);
    (void)fflush(stdout);
    if (keys) {
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &old);
    }
    return rc;
}
