#include "cli/cli_screen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/param.h>
#include <termios.h>
#include <unistd.h>

#include "base/text.h"
#include "show/top/top.h"
#include "sys/file.h"

/* The alternate screen, no cursor, and no wrapping of a line that is too long. */
#define SCREEN_TAKE "\x1b[?1049h\x1b[?25l\x1b[?7l"
#define SCREEN_GIVE "\x1b[?7h\x1b[?25h\x1b[?1049l"

static volatile sig_atomic_t ended, stopping;
static int wakes[2] = {-1, -1}; /* a pipe: signals write to it */

static struct {
    bool is_taken, has_keys;
    struct termios before;
} tty;

static void on_signal(int signal)
{
    int before = errno;
    if (signal == SIGTSTP) {
        stopping = 1;
    } else if (signal != SIGWINCH && signal != SIGCHLD) {
        ended = 1;
    }
    (void)!write(wakes[1], "", 1);
    errno = before;
}

static void catch_signal(int signal, int flags)
{
    const struct sigaction action = {.sa_handler = on_signal, .sa_flags = flags};
    (void)sigaction(signal, &action, NULL);
}

static void write_all(const char *text, size_t n)
{
    while (n > 0 && !ended) {
        ssize_t done = write(STDOUT_FILENO, text, n);
        if (done < 0 && errno != EINTR) {
            ended = 1;
            return;
        }
        if (done > 0) {
            text += done;
            n -= (size_t)done;
        }
    }
}

/* Reads keys at once and without echo; Ctrl-C and Ctrl-Z stay signals. */
static void take_terminal(void)
{
    tty.has_keys = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &tty.before) == 0;
    if (tty.has_keys) {
        struct termios raw = tty.before;
        raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        raw.c_iflag &= ~(tcflag_t)(ICRNL);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    tty.is_taken = true;
    write_all(SCREEN_TAKE, sizeof SCREEN_TAKE - 1);
}

static void give_terminal(void)
{
    if (!tty.is_taken) {
        return;
    }
    tty.is_taken = false;
    (void)!write(STDOUT_FILENO, SCREEN_GIVE, sizeof SCREEN_GIVE - 1);
    if (tty.has_keys) {
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &tty.before);
    }
}

void stk_cli_screen_open(bool all)
{
    static const int endings[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    (void)pipe2(wakes, O_CLOEXEC | O_NONBLOCK);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        catch_signal(endings[i], 0); /* no SA_RESTART: a write that hangs ends */
    }
    if (all) {
        catch_signal(SIGWINCH, SA_RESTART);
        catch_signal(SIGCHLD, SA_RESTART);
        catch_signal(SIGTSTP, SA_RESTART);
        (void)fflush(stdout);
        take_terminal();
    }
}

void stk_cli_screen_close(void)
{
    give_terminal();
}

bool stk_cli_screen_has_ended(void)
{
    return ended;
}

/* Ctrl-Z: the shell gets its terminal, and we get it again when we go on. */
static void stop_for_a_while(void)
{
    stopping = 0;
    give_terminal();
    (void)signal(SIGTSTP, SIG_DFL);
    (void)raise(SIGTSTP);
    catch_signal(SIGTSTP, SA_RESTART);
    take_terminal();
}

/* --- keys --- */

/* The key of the escape sequence at `text`, of *ret_n bytes. */
static int escape_key(const char *text, size_t n, size_t *ret_n)
{
    static const struct {
        const char *text;
        int key;
    } keys[] = {{"[A", STK_KEY_UP},   {"[B", STK_KEY_DOWN},     {"OA", STK_KEY_UP},
                {"OB", STK_KEY_DOWN}, {"[5~", STK_KEY_PAGE_UP}, {"[6~", STK_KEY_PAGE_DOWN},
                {"[H", STK_KEY_HOME}, {"[F", STK_KEY_END},      {"OH", STK_KEY_HOME},
                {"OF", STK_KEY_END},  {"[1~", STK_KEY_HOME},    {"[4~", STK_KEY_END},
                {"[D", STK_KEY_LEFT}, {"[C", STK_KEY_RIGHT},    {"OD", STK_KEY_LEFT},
                {"OC", STK_KEY_RIGHT}};
    *ret_n = 1;
    if (n < 2 || (text[1] != '[' && text[1] != 'O')) {
        return STK_KEY_ESCAPE;
    }
    size_t end = 2; /* the last byte of a sequence is a letter or ~ */
    while (end < n && (text[end] < '@' || text[end] > '~')) {
        end++;
    }
    *ret_n = end + (end < n);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strlen(keys[i].text) == *ret_n - 1 &&
            strncmp(text + 1, keys[i].text, *ret_n - 1) == 0) {
            return keys[i].key;
        }
    }
    return STK_KEY_NONE;
}

static int read_keys(int *ret, int n_max)
{
    char text[64];
    ssize_t len = read(STDIN_FILENO, text, sizeof text);
    if (len <= 0) {
        ended = ended || len == 0 || (errno != EINTR && errno != EAGAIN);
        return 0;
    }
    int n = 0;
    for (size_t i = 0, used = 1; i < (size_t)len && n < n_max; i += used) {
        used = 1;
        ret[n] = (unsigned char)text[i];
        if (text[i] == '\x1b') {
            ret[n] = escape_key(text + i, (size_t)len - i, &used);
        }
        n++;
    }
    return n;
}

int stk_cli_screen_wait(int64_t timeout_ms, int *ret_keys, int n_max)
{
    struct pollfd in[] = {
        {.fd = wakes[0], .events = POLLIN},
        {.fd = tty.is_taken && tty.has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
    char bytes[64];
    if (ended || poll(in, 2, (int)MIN(timeout_ms, INT32_MAX)) == 0) {
        return 0;
    }
    while (read(wakes[0], bytes, sizeof bytes) > 0) { /* also if a signal ended the wait */
    }
    if (stopping && tty.is_taken) {
        stop_for_a_while();
    }
    if (ended || in[1].revents == 0) {
        return 0;
    }
    return read_keys(ret_keys, n_max);
}

void stk_cli_screen_put(const stk_buf *picture, int rows)
{
    STK_BUF_AUTO all = STK_BUF_INIT(64u << 20);
    const char *at = stk_text_or(picture->data, "");
    for (int row = 1; row <= rows;
         row++) { /* cleared first: behind a full line, that clears a cell of it */
        size_t n = strcspn(at, "\n");
        stk_buf_printf(&all, "\x1b[%d;1H\x1b[K", row);
        stk_buf_add(&all, at, n);
        at += n + (at[n] == '\n');
    }
    write_all(all.data, all.len);
}
