/* ssh as a child process, and what it says until our program there has answered. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away/link/link_private.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/spawn.h"

enum {
    SILENCE_MS = 60000, /* of a host that is to start our program */
    END_MS = 3000,      /* for ssh to end when it is asked to */
    LINE_BYTES = 4096,
    GREETING_BYTES = 1 << 20, /* of what a host's shell prints before our program's line */
    PIPE_BYTES = 1 << 20,
    WORDS_MAX = 40 /* of ssh's command line */
};

extern char **environ;

static stk_link_program get_program;

void stk_link_set_program(stk_link_program program)
{
    get_program = program;
}

/* --- its standard error --- */

void stk_link_ssh_listen(link_ssh *ssh)
{
    char data[LINK_WORDS / 2];
    for (;;) {
        ssize_t n = ssh->wrong < 0 ? -1 : read(ssh->wrong, data, sizeof data);
        if (n < 0) {
            return;
        }
        if (n == 0) {
            stk_file_close(&ssh->wrong);
            return;
        }
        size_t room = sizeof ssh->words - 1 - ssh->n_words;
        if ((size_t)n > room) { /* the older half goes */
            size_t drop = MIN(ssh->n_words, sizeof ssh->words / 2);
            memmove(ssh->words, ssh->words + drop, ssh->n_words - drop);
            ssh->n_words -= drop;
        }
        memcpy(ssh->words + ssh->n_words, data, (size_t)n);
        ssh->n_words += (size_t)n;
        ssh->words[ssh->n_words] = '\0';
    }
}

/* --- start and end --- */

static int make_pipes(int fds[6], stk_err *err)
{
    for (int i = 0; i < 3; i++) {
        if (pipe2(&fds[2 * i], O_CLOEXEC) < 0) {
            return stk_err_sys(err, STK_E_SYS, errno, "a pipe to ssh");
        }
    }
    return 0;
}

/* Options of the command line win over the user's files. Left to those are the user, keys, ports,
 * jumps and the list of known hosts. */
static const char **make_argv(const char *program, const char *host, const char *script,
                              stk_arena *arena)
{
    static const char *const options[] = {"-T",
                                          "-x",
                                          "-a",
                                          "-oBatchMode=yes",
                                          "-oConnectTimeout=10",
                                          "-oServerAliveInterval=5",
                                          "-oServerAliveCountMax=3",
                                          "-oControlMaster=no",
                                          "-oClearAllForwardings=yes",
                                          "-oPermitLocalCommand=no",
                                          "-oRemoteCommand=none",
                                          "-oNoHostAuthenticationForLocalhost=no",
                                          "-oLogLevel=ERROR"};
    const char **argv = stk_arena_array(arena, WORDS_MAX, sizeof *argv);
    size_t n = 0;
    if (argv == NULL || script == NULL) {
        return NULL;
    }
    argv[n++] = program;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        argv[n++] = options[i];
    }
    stk_link_ssh_strict(program, host, arena, argv, &n);
    argv[n++] = "--";
    argv[n++] = host;
    argv[n++] = script;
    return argv;
}

static int spawn(const char *const *argv, link_ssh *ssh, stk_err *err)
{
    int fds[6] = {-1, -1, -1, -1, -1, -1};
    int rc = make_pipes(fds, err);
    stk_err why = {0};
    stk_spawn how = {.argv = argv,
                     .env = (const char *const *)environ,
                     .stdin_fd = fds[0],
                     .stdout_fd = fds[3],
                     .stderr_fd = fds[5],
                     .die_with_parent = true,
                     .new_group = true}; /* a Ctrl-C at the terminal is for us */
    if (rc == 0 && (rc = stk_sys_spawn(&how, &ssh->pid, NULL, &why)) < 0) {
        rc = stk_link_env(err, ENOEXEC, "can't start '%s': %s", argv[0], strerror(why.sys));
        stk_err_hint(err, "install OpenSSH's client (openssh-client)");
    }
    stk_file_close(&fds[0]);
    stk_file_close(&fds[3]);
    stk_file_close(&fds[5]);
    ssh->to = fds[1];
    ssh->from = fds[2];
    ssh->wrong = fds[4];
    if (rc < 0) {
        ssh->pid = 0;
        return rc;
    }
    for (int i = 1; i < 6; i++) { /* ours; the others are closed */
        (void)fcntl(fds[i], F_SETFL, O_NONBLOCK);
    }
    (void)fcntl(ssh->to, F_SETPIPE_SZ, PIPE_BYTES);
    (void)fcntl(ssh->from, F_SETPIPE_SZ, PIPE_BYTES);
    return 0;
}

/* Waits for its end as long as it may take. */
static bool await_end(pid_t pid, int *ret_status, int64_t ms)
{
    static const struct timespec moment = {.tv_nsec = 2000000};
    int64_t until = stk_clock_mono_ms(&stk_clock_real) + ms;
    for (;;) {
        pid_t got = waitpid(pid, ret_status, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR)) {
            return true;
        }
        if (stk_clock_mono_ms(&stk_clock_real) >= until) {
            return false;
        }
        (void)nanosleep(&moment, NULL);
    }
}

int stk_link_ssh_end(link_ssh *ssh)
{
    int status = 0;
    if (ssh->pid > 0) {
        stk_file_close(&ssh->to);
        /* Where its output has ended, it is ending, and its status says why. */
        bool has_ended = ssh->from < 0 && await_end(ssh->pid, &status, END_MS);
        if (!has_ended) {
            (void)kill(ssh->pid, SIGTERM);
            has_ended = await_end(ssh->pid, &status, END_MS);
        }
        if (!has_ended) {
            (void)kill(ssh->pid, SIGKILL);
            while (waitpid(ssh->pid, &status, 0) < 0 && errno == EINTR) {
            }
        }
        ssh->pid = 0;
    }
    stk_link_ssh_listen(ssh);
    stk_file_close(&ssh->to);
    stk_file_close(&ssh->from);
    stk_file_close(&ssh->wrong);
    return status;
}

/* --- the talk before the first request --- */

typedef struct talk {
    link_ssh *ssh;
    const char *host;
    int stop_fd;
    int64_t until_ms; /* for its next word */
    char line[LINE_BYTES];
} talk;

static void note_life(talk *t)
{
    t->until_ms = stk_clock_mono_ms(&stk_clock_real) + SILENCE_MS;
}

/* Waits until `fd` is ready, and hears meanwhile what ssh says. */
static int await_ready(talk *t, int fd, short events, stk_err *err)
{
    for (;;) {
        int64_t left = t->until_ms - stk_clock_mono_ms(&stk_clock_real);
        struct pollfd fds[3] = {{.fd = fd, .events = events},
                                {.fd = t->ssh->wrong, .events = POLLIN},
                                {.fd = t->stop_fd, .events = POLLIN}};
        if (left <= 0) {
            return stk_link_env(err, ENOTCONN, "'%s' said nothing for %d s after ssh was started",
                                t->host, SILENCE_MS / 1000);
        }
        (void)poll(fds, 3, (int)left);
        if (fds[1].revents != 0) {
            stk_link_ssh_listen(t->ssh);
        }
        if (fds[2].revents != 0) {
            return stk_err_set(err, STK_E_CANCELLED, "'%s': cancelled", t->host);
        }
        if (fds[0].revents != 0) {
            return 0;
        }
    }
}

/* A line of its output; bytes over its size are dropped. Read byte by byte, because what follows
 * our program's line isn't for here. */
static int read_line(talk *t, stk_err *err)
{
    size_t n = 0;
    for (;;) {
        char c;
        ssize_t got = read(t->ssh->from, &c, 1);
        if (got == 1 && c == '\n') {
            t->line[n] = '\0';
            return 0;
        }
        if (got == 1 && n < sizeof t->line - 1) {
            t->line[n++] = c;
        } else if (got == 0) {
            stk_file_close(&t->ssh->from);
            return stk_err_set(err, STK_E_NOT_FOUND, "'%s' has ended the connection", t->host);
        } else if (got < 0) {
            STK_TRY(await_ready(t, t->ssh->from, POLLIN, err));
        }
    }
}

static int send_bytes(talk *t, const char *data, size_t n, stk_err *err)
{
    while (n > 0) {
        ssize_t sent = write(t->ssh->to, data, n);
        if (sent > 0) {
            data += sent;
            n -= (size_t)sent;
            note_life(t);
        } else if (errno == EAGAIN) {
            STK_TRY(await_ready(t, t->ssh->to, POLLOUT, err));
        } else if (errno != EINTR) { /* why is in its last words */
            return stk_err_set(err, STK_E_NOT_FOUND, "'%s' has ended the connection", t->host);
        }
    }
    return 0;
}

static int send_program(talk *t, const char *tar, int64_t bytes, stk_err *err)
{
    char data[64 << 10];
    STK_FD_AUTO fd = open(tar, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && bytes > 0) {
        ssize_t n = read(fd, data, (size_t)MIN(bytes, (int64_t)sizeof data));
        if (n == 0) {
            return stk_err_set(err, STK_E_ENV, "'%s' was cut while it was sent to '%s'", tar,
                               t->host);
        }
        if (n < 0 && errno != EINTR) {
            break;
        }
        STK_TRY(send_bytes(t, data, (size_t)MAX(n, 0), err));
        bytes -= MAX(n, 0);
    }
    if (fd < 0 || bytes > 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "reading our program's archive '%s'", tar);
    }
    return 0;
}

static int refuse_machine(const talk *t, const char *machine, stk_err *err)
{
    return stk_link_env(err, ENOEXEC,
                        "'%s' is a machine of another kind (%s): this Stoker can't run there",
                        t->host, machine);
}

static int refuse_lack(const talk *t, const char *command, stk_err *err)
{
    (void)stk_link_env(err, ENOEXEC, "'%s' has no '%s', which is needed to unpack Stoker there",
                       t->host, command);
    stk_err_hint(err, "install it there");
    return STK_E_ENV;
}

/* The other version can only be that of a program which somebody put there by hand. */
static int check_version(const talk *t, const char *version, stk_err *err)
{
    if (atoi(version) == LINK_VERSION) {
        return 0;
    }
    stk_err_set(err, STK_E_VERSION,
                "the Stoker on '%s' speaks version %.20s of the protocol, not %d", t->host, version,
                LINK_VERSION);
    stk_err_hint(err, "remove ~/.cache/stoker/far there; it is made again");
    return STK_E_VERSION;
}

/* The rest of the line behind `word`; NULL: it isn't there. A shell's greeting may stand before it
 * on the same line. */
static const char *said(const talk *t, const char *word)
{
    const char *at = strstr(t->line, word);
    return at == NULL ? NULL : at + strlen(word);
}

static int talk_until_up(talk *t, const char *tar, int64_t bytes, stk_err *err)
{
    int64_t greeting = 0;
    const char *rest;
    note_life(t);
    while (greeting < GREETING_BYTES) {
        STK_TRY(read_line(t, err));
        if ((rest = said(t, LINK_HELLO)) != NULL) {
            return check_version(t, rest, err);
        }
        if ((rest = said(t, "stoker-is ")) != NULL) {
            return refuse_machine(t, rest, err);
        }
        if ((rest = said(t, "stoker-lacks ")) != NULL) {
            return refuse_lack(t, rest, err);
        }
        if (said(t, "stoker-wants") != NULL) {
            STK_TRY(send_program(t, tar, bytes, err));
        } else if (said(t, "stoker-got") != NULL) {
            STK_TRY(send_bytes(t, "stoker-all\n", strlen("stoker-all\n"), err));
        } else {
            greeting += (int64_t)strlen(t->line) + 1;
        }
        note_life(t);
    }
    return stk_link_env(err, ENOEXEC, "the shell of '%s' prints without end before Stoker starts",
                        t->host);
}

int stk_link_ssh_start(const char *host, int stop_fd, link_ssh *ret, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const char *tar = NULL, *digest = NULL;
    struct stat st;
    *ret = (link_ssh){.to = -1, .from = -1, .wrong = -1};
    if (get_program == NULL) {
        return stk_link_env(err, ENOEXEC, "this program can't be brought to '%s'", host);
    }
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(get_program(arena, &tar, &digest, err));
    if (stat(tar, &st) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "reading our program's archive '%s'", tar);
    }
    const char *program = stk_text_or(stk_text_if_any(getenv("STOKER_SSH")), "ssh");
    const char *script = stk_link_script(digest, st.st_size, arena);
    const char **argv = make_argv(program, host, script, arena);
    STK_TRY(stk_err_if_null(argv, err));
    STK_TRY(spawn(argv, ret, err));
    talk t = {.ssh = ret, .host = host, .stop_fd = stop_fd};
    int rc = talk_until_up(&t, tar, st.st_size, err);
    if (rc == 0) {
        return 0;
    }
    int status = stk_link_ssh_end(ret);
    if (rc == STK_E_NOT_FOUND) {
        return stk_link_ssh_explain(ret, host, false, status, err);
    }
    return rc;
}
