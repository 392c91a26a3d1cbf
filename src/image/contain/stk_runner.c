/* stk-runner: PID 1 of a task's container. A static program, mounted into any image.
 *
 *     stk-runner SOCKET
 *     stk-runner --give-back UID:GID wPATH…      gives files back after another user's program
 *
 * It needs nothing of the image: no /proc, no shell, no writable file, any user. Over the socket it
 * gets one message: four bytes, its length (host order), then words that end in NUL:
 *     "2"  number of arguments, arguments …, number of variables, "K=V" …, number of names, those
 * of the variables that are made of the image's (base/expand.h) …, folder ("": stay), user and its
 *     owner ("": stay who you are; stk_runner_user.h), number of mounts, "w" or "r" and its path …
 * and with its first byte descriptors: stdout, stderr, and others to hold open for the container's
 * whole life. Then come single bytes: 's' and a signal's number to pass on; 'a': the engine knows
 * the end. It answers in lines of JSON:
 *     {"started": PID}   {"failed": "exec|cwd|fork|user|env", "errno": N}
 *     {"ended": STATUS, "signal": N, "rss_kb": N}
 * When the socket closes, the container ends with all its processes.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/expand.h"
#include "image/contain/stk_runner_user.h"

enum { MAX_FDS = 253, MAX_BYTES = 64 << 20, ACK_MS = 1000, EXPLAIN_S = 5 };
enum { NEVER_RAN = 125, CANT_RUN = 126 };

static int conn = -1;
static pid_t program;
static int program_status;
static struct rusage program_usage;
static int told; /* the last signal from outside the container */

static void say_line(const char *line)
{
    size_t n = strlen(line);
    while (n > 0) {
        ssize_t sent = send(conn, line, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EINTR) {
            return;
        }
        line += MAX(sent, 0);
        n -= (size_t)MAX(sent, 0);
    }
}

/* Kills every process but us; -1 means that only for PID 1 of a container. */
static void kill_all(void)
{
    if (getpid() == 1) {
        (void)kill(-1, SIGKILL);
    } else if (program > 0) {
        (void)kill(-program, SIGKILL);
    }
}

static void reach(const char *path)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    (void)snprintf(to.sun_path, sizeof to.sun_path, "%s", path);
    conn = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (conn >= 0 && connect(conn, (struct sockaddr *)&to, sizeof to) == 0) {
        return;
    }
    if (errno != ECONNREFUSED) { /* ECONNREFUSED: our starter has died */
        fprintf(stderr, "stk-runner: can't reach %s: %s\n", path, strerror(errno));
        sleep(EXPLAIN_S); /* gives the reader time: the log goes with the container */
    }
    exit(NEVER_RAN);
}

/* --- the message --- */

typedef struct order {
    char **argv, **env, **expand, **mounts;
    char *cwd, *user, *owner;
    int fds[MAX_FDS];
    int n_fds;
} order;

static runner_user who;
static char *const *mounts; /* of the task */

static size_t take_first(char *buf, size_t size, order *o)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
        struct cmsghdr align;
    } control;
    struct iovec part = {.iov_base = buf, .iov_len = size};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.bytes,
                       .msg_controllen = sizeof control.bytes};
    ssize_t n;
    do {
        n = recvmsg(conn, &m, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n <= 0) {
        exit(NEVER_RAN); /* our starter has died */
    }
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c != NULL; c = CMSG_NXTHDR(&m, c)) {
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            o->n_fds = (int)((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(o->fds, CMSG_DATA(c), (size_t)o->n_fds * sizeof(int));
        }
    }
    return (size_t)n;
}

static void take_rest(char *buf, size_t n)
{
    while (n > 0) {
        ssize_t got = recv(conn, buf, n, 0);
        if (got == 0 || (got < 0 && errno != EINTR)) {
            exit(NEVER_RAN);
        }
        buf += MAX(got, 0);
        n -= (size_t)MAX(got, 0);
    }
}

static char *next_word(char **at, const char *end)
{
    char *word = *at;
    char *nul = word < end ? memchr(word, '\0', (size_t)(end - word)) : NULL;
    if (nul == NULL) {
        exit(NEVER_RAN);
    }
    *at = nul + 1;
    return word;
}

static char **next_words(char **at, const char *end)
{
    unsigned long n = strtoul(next_word(at, end), NULL, 10);
    char **words = n > (size_t)(end - *at) ? NULL : calloc(n + 1, sizeof *words);
    if (words == NULL) {
        exit(NEVER_RAN);
    }
    for (unsigned long i = 0; i < n; i++) {
        words[i] = next_word(at, end);
    }
    return words;
}

static void take_order(order *o)
{
    uint32_t n = 0;
    size_t got = take_first((char *)&n, sizeof n, o);
    take_rest((char *)&n + got, sizeof n - got);
    char *text = n > MAX_BYTES ? NULL : malloc(n);
    if (text == NULL || o->n_fds < 2) {
        exit(NEVER_RAN);
    }
    take_rest(text, n);
    char *at = text;
    if (strcmp(next_word(&at, text + n), "2") != 0) {
        exit(NEVER_RAN);
    }
    o->argv = next_words(&at, text + n);
    o->env = next_words(&at, text + n);
    o->expand = next_words(&at, text + n);
    o->cwd = next_word(&at, text + n);
    o->user = next_word(&at, text + n);
    o->owner = next_word(&at, text + n);
    o->mounts = next_words(&at, text + n);
}

/* --- the program --- */

static const char *image_value(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

/* Sets the variables over the image's, which we have, in order: a later one can refer to an earlier
 * one. */
static bool set_variables(const order *o)
{
    for (char **e = o->env; *e != NULL; e++) {
        char *equals = strchr(*e, '=');
        size_t n = strcspn(*e, "=");
        bool expands = false;
        for (char **name = o->expand; *name != NULL; name++) {
            expands = expands || (strncmp(*name, *e, n) == 0 && (*name)[n] == '\0');
        }
        if (equals != NULL && expands) {
            char *value = stk_expand(equals + 1, image_value, NULL);
            *equals = '\0';
            if (value == NULL || setenv(*e, value, 1) != 0) {
                return false;
            }
            free(value);
        } else {
            (void)putenv(*e);
        }
    }
    return true;
}

static void become(const order *o, int report)
{
    char stage = 'c';
    sigset_t none;
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    for (int i = 1; i < NSIG; i++) {
        (void)sigaction(i, &by_default, NULL);
    }
    sigemptyset(&none);
    (void)setsid();
    (void)dup2(o->fds[0], STDOUT_FILENO);
    (void)dup2(o->fds[1], STDERR_FILENO);
    for (int i = 2; i < o->n_fds; i++) { /* the program's children inherit them too */
        (void)fcntl(o->fds[i], F_SETFD, 0);
    }
    int sys = runner_user_become(&who);
    if (sys != 0) {
        stage = 'u';
        errno = sys;
    } else if (o->cwd[0] == '\0' || chdir(o->cwd) == 0) {
        stage = 'e';
        if (set_variables(o)) {
            stage = 'x';
            (void)sigprocmask(SIG_SETMASK, &none, NULL);
            (void)execvp(o->argv[0], o->argv);
        }
    }
    int words[2] = {stage, errno};
    (void)!write(report, words, sizeof words);
    _exit(CANT_RUN);
}

static const char *word_of(int stage)
{
    static const struct {
        char stage;
        const char *word;
    } words[] = {{'c', "cwd"}, {'x', "exec"}, {'e', "env"}, {'u', "user"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (words[i].stage == stage) {
            return words[i].word;
        }
    }
    return "fork";
}

/* Reports why the program never ran, and exits. */
_Noreturn static void fail(const char *word, int sys)
{
    char line[128];
    (void)runner_user_take_back(&who, mounts);
    (void)snprintf(line, sizeof line, "{\"failed\":\"%s\",\"errno\":%d}\n", word, sys);
    say_line(line);
    struct pollfd end = {.fd = conn, .events = POLLIN};
    (void)poll(&end, 1, ACK_MS);
    exit(CANT_RUN);
}

/* Starts the program; reports a failure and exits. */
static void start_program(const order *o)
{
    mounts = o->mounts;
    if (!runner_user_find(o->user, o->owner, &who)) {
        fail("user", 0);
    }
    runner_user_give(&who, mounts);
    int pipe_fds[2];
    int words[2] = {'f', 0};
    char line[128];
    if (pipe2(pipe_fds, O_CLOEXEC) == 0) {
        program = fork();
        words[1] = errno;
    }
    if (program == 0) {
        become(o, pipe_fds[1]);
    }
    (void)close(pipe_fds[1]);
    ssize_t n = program < 0 ? (ssize_t)sizeof words : read(pipe_fds[0], words, sizeof words);
    (void)close(pipe_fds[0]);
    if (n == (ssize_t)sizeof words) {
        fail(word_of(words[0]), words[1]);
    }
    (void)snprintf(line, sizeof line, "{\"started\":%d}\n", (int)program);
    say_line(line);
}

/* Reaps children; returns true once the program has ended. */
static bool reap(int flags)
{
    struct rusage usage;
    int status;
    pid_t pid;
    bool ended = false;
    while ((pid = wait4(-1, &status, flags, &usage)) > 0 || (pid < 0 && errno == EINTR)) {
        if (pid == program) {
            program_status = status;
            program_usage = usage;
            ended = true;
        }
    }
    return ended;
}

static void on_bytes(void)
{
    unsigned char c[2];
    ssize_t n = recv(conn, c, 1, 0);
    if (n == 0 || (n < 0 && errno != EINTR)) {
        kill_all();
        (void)reap(0);
        (void)runner_user_take_back(&who, mounts);
        exit(128 + SIGKILL);
    }
    if (n == 1 && c[0] == 's' && recv(conn, c + 1, 1, MSG_WAITALL) == 1) {
        if (kill(-program, c[1]) < 0) { /* the program has no session yet */
            (void)kill(program, c[1]);
        }
    }
}

static void watch_program(int signals)
{
    struct pollfd on[] = {{.fd = conn, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    for (;;) {
        (void)poll(on, 2, -1);
        struct signalfd_siginfo info;
        if (on[1].revents != 0 && read(signals, &info, sizeof info) == sizeof info) {
            if (info.ssi_signo != SIGCHLD) { /* from the engine: `docker stop` */
                (void)kill(-program, (int)info.ssi_signo);
                if (info.ssi_pid == 0) { /* from outside the container */
                    told = (int)info.ssi_signo;
                }
            } else if (reap(WNOHANG)) {
                return;
            }
        }
        if (on[0].revents != 0) {
            on_bytes();
        }
    }
}

static int report_end(void)
{
    char line[128];
    int exit_status = -1, signal = 0;
    if (WIFEXITED(program_status)) {
        exit_status = WEXITSTATUS(program_status);
    } else {
        signal = WTERMSIG(program_status);
    }
    kill_all(); /* ends processes that the program left behind */
    (void)reap(0);
    (void)runner_user_take_back(&who, mounts);
    (void)snprintf(line, sizeof line, "{\"ended\":%d,\"signal\":%d,\"rss_kb\":%ld,\"told\":%d}\n",
                   exit_status, signal, program_usage.ru_maxrss, told);
    say_line(line);
    for (;;) { /* our starter reads the memory group while we are in it */
        struct pollfd on = {.fd = conn, .events = POLLIN};
        char c;
        if (poll(&on, 1, ACK_MS) <= 0 || recv(conn, &c, 1, 0) <= 0 || c == 'a') {
            break;
        }
    }
    return signal == 0 ? exit_status : 128 + signal;
}

int main(int argc, char **argv)
{
    static order o;
    sigset_t all;
    if (argc > 2 && strcmp(argv[1], "--give-back") == 0) { /* contain_back.c */
        bool found = runner_user_find("0", argv[2], &who);
        return !(found && runner_user_take_back(&who, argv + 3));
    }
    if (argc != 2) {
        fputs("stk-runner is a part of Stoker that runs as PID 1 in its containers\n", stderr);
        return 2;
    }
    sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    int signals = signalfd(-1, &all, SFD_CLOEXEC);
    reach(argv[1]);
    take_order(&o);
    start_program(&o);
    watch_program(signals);
    return report_end();
}
