/* Runs Slurm's commands. Each has a time limit of its own, because a controller that is away keeps
 * them waiting. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/wait.h>
#include <unistd.h>

#include "away/slurm/slurm_private.h"
#include "base/text.h"
#include "sys/clock.h"
#include "sys/file.h"
#include "sys/spawn.h"

enum { CALL_MS = 30000, OUT_BYTES = 64 << 20, ERR_BYTES = 64 << 10, TICK_MS = 20 };

extern char **environ;

const char *const stk_slurm_passed[] = {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TMPDIR", NULL};

/* What sbatch itself may need: its libraries, the token of clusters without munge, and the ticket
 * that a plugin of the cluster sends with the job. The script forgets the first two
 * (stk_slurm_script). */
static const char *const of_sbatch[] = {"LD_LIBRARY_PATH", "SLURM_JWT", "KRB5CCNAME", NULL};

static bool is_among(const char *const *names, const char *pair)
{
    size_t n = strcspn(pair, "=");
    for (; *names != NULL; names++) {
        if (strlen(*names) == n && strncmp(*names, pair, n) == 0) {
            return true;
        }
    }
    return false;
}

/* Variables that would win over our flags, or that belong to a job in which we run ourselves. */
static bool is_of_slurm(const char *pair)
{
    static const char *const heads[] = {"SBATCH_", "SLURM_", "SQUEUE_", "SCANCEL_", "SACCT_"};
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        if (strncmp(pair, heads[i], strlen(heads[i])) == 0) {
            return strncmp(pair, "SLURM_CONF", strlen("SLURM_CONF")) != 0 &&
                   !is_among(of_sbatch, pair);
        }
    }
    return false;
}

/* A job gets all variables of its sbatch. With a list of names (--export) Slurm would run a login
 * shell on the node for each job, to ask it for the others. */
static bool is_passed(const char *pair)
{
    return strncmp(pair, "SLURM_CONF", strlen("SLURM_CONF")) == 0 ||
           is_among(stk_slurm_passed, pair) || is_among(of_sbatch, pair);
}

static const char **environment(const char *const *more, bool is_job, stk_arena *arena)
{
    size_t n = 0, n_more = 0, k = 0;
    while (environ[n] != NULL) {
        n++;
    }
    while (more != NULL && more[n_more] != NULL) {
        n_more++;
    }
    const char **env = stk_arena_array(arena, n + n_more + 1, sizeof *env);
    for (size_t i = 0; env != NULL && i < n; i++) {
        bool is_over = is_of_slurm(environ[i]) || (is_job && !is_passed(environ[i]));
        for (size_t j = 0; j < n_more && !is_over; j++) {
            is_over = strncmp(environ[i], more[j], strcspn(more[j], "=") + 1) == 0;
        }
        if (!is_over) {
            env[k++] = environ[i];
        }
    }
    for (size_t j = 0; env != NULL && j < n_more; j++) {
        env[k++] = more[j];
    }
    return env;
}

/* An input that no pipe can block on; -1: none. */
static int open_input(const char *input, stk_err *err)
{
    int fd = memfd_create("sbatch", MFD_CLOEXEC);
    if (fd < 0 || stk_file_write_all(fd, input, strlen(input)) < 0 || lseek(fd, 0, SEEK_SET) < 0) {
        stk_file_close(&fd);
        return stk_err_sys(err, STK_E_SYS, errno, "passing the script to sbatch");
    }
    return fd;
}

typedef struct ear {
    int fd;
    stk_buf said;
} ear;

struct stk_slurm_command {
    char name[16];
    pid_t pid;
    ear ears[2];
    int64_t until_ms;
    bool is_over, is_late;
    int status;
};

/* False: the other end is closed. */
static bool listen_to(ear *e)
{
    char data[16 << 10];
    ssize_t n = e->fd < 0 ? 0 : read(e->fd, data, sizeof data);
    if (n > 0) {
        (void)stk_buf_add(&e->said, data, (size_t)n);
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return true;
    }
    stk_file_close(&e->fd);
    return false;
}

static int start(const stk_spawn *spawn, int input, ear ears[2], pid_t *ret_pid, stk_err *err)
{
    int out[2] = {-1, -1}, wrong[2] = {-1, -1};
    if (pipe2(out, O_CLOEXEC) < 0 || pipe2(wrong, O_CLOEXEC) < 0) {
        stk_file_close(&out[0]);
        stk_file_close(&out[1]);
        return stk_err_sys(err, STK_E_SYS, errno, "a pipe to %s", spawn->argv[0]);
    }
    stk_spawn whole = *spawn;
    whole.stdin_fd = input;
    whole.stdout_fd = out[1];
    whole.stderr_fd = wrong[1];
    ears[0].fd = out[0];
    ears[1].fd = wrong[0];
    int rc = stk_sys_spawn(&whole, ret_pid, NULL, err);
    stk_file_close(&out[1]);
    stk_file_close(&wrong[1]);
    for (int i = 0; i < 2; i++) {
        (void)fcntl(ears[i].fd, F_SETFL, O_NONBLOCK);
    }
    return rc;
}

/* What a line says behind "sbatch: error: " and the like. */
static const char *said_by(const char *line, const char *name)
{
    static const char *const words[] = {"error: ", "fatal: "};
    size_t n = strlen(name);
    if (strncmp(line, name, n) == 0 && strncmp(line + n, ": ", 2) == 0) {
        line += n + 2;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strncmp(line, words[i], strlen(words[i])) == 0) {
            line += strlen(words[i]);
        }
    }
    return line;
}

/* The lines of a complaint as one. */
static void put_complaint(const ear *e, const char *name, char *ret, size_t size)
{
    char text[700];
    char *rest = text;
    size_t n = 0;
    (void)snprintf(text, sizeof text, "%s", stk_text_or(e->said.data, ""));
    ret[0] = '\0';
    for (char *line = strtok_r(text, "\n", &rest); line != NULL && n < size;
         line = strtok_r(NULL, "\n", &rest)) {
        n += (size_t)snprintf(ret + n, size - n, "%s%s", stk_text_when(n > 0, "; "),
                              said_by(line, name));
    }
    stk_text_tame(ret);
}

static int judge(const char *name, bool was_in_time, int status, const ear *wrong, stk_err *err)
{
    char text[760];
    if (!was_in_time) {
        return stk_err_set(err, STK_E_ENV, "%s: Slurm didn't answer within %d s", name,
                           CALL_MS / 1000);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
        return 0;
    }
    put_complaint(wrong, name, text, sizeof text);
    stk_err_set(err, STK_E_ENV, "%s: %s", name,
                stk_text_or(stk_text_if_any(text), "it failed without a word"));
    if (strstr(text, "configuration source") != NULL) {
        stk_err_hint(err, "set SLURM_CONF to the cluster's slurm.conf, or use a submit host");
    }
    return STK_E_ENV;
}

/* --- commands --- */

int stk_slurm_command_begin(const char *const *argv, const char *const *more, const char *input,
                            stk_slurm_command **ret, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    STK_FD_AUTO fd = -1;
    stk_spawn spawn = {
        .argv = argv, .env = environment(more, input != NULL, arena), .die_with_parent = false};
    stk_slurm_command *c = calloc(1, sizeof *c);
    *ret = NULL;
    if (c == NULL || spawn.env == NULL) {
        free(c);
        return stk_err_nomem(err);
    }
    *c = (stk_slurm_command){.ears = {{-1, STK_BUF_INIT(OUT_BYTES)}, {-1, STK_BUF_INIT(ERR_BYTES)}},
                             .until_ms = stk_clock_mono_ms(&stk_clock_real) + CALL_MS};
    (void)snprintf(c->name, sizeof c->name, "%s", argv[0]);
    int rc = 0;
    if (input != NULL && (fd = open_input(input, err)) < 0) {
        rc = err->code;
    } else if (start(&spawn, fd, c->ears, &c->pid, err) < 0) {
        rc = stk_err_set(err, STK_E_NOT_FOUND,
                         "this machine has no '%s': Slurm's commands must be in the PATH", argv[0]);
    }
    if (rc < 0) {
        stk_file_close(&c->ears[0].fd);
        stk_file_close(&c->ears[1].fd);
        free(c);
        return rc;
    }
    *ret = c;
    return 0;
}

static void look_after(stk_slurm_command *c)
{
    if (waitpid(c->pid, &c->status, WNOHANG) == c->pid) {
        c->is_over = true;
    } else if (stk_clock_mono_ms(&stk_clock_real) >= c->until_ms) {
        (void)kill(c->pid, SIGKILL);
        (void)waitpid(c->pid, &c->status, 0);
        c->is_over = c->is_late = true;
    }
    for (int i = 0; c->is_over && i < 2; i++) { /* what it wrote last */
        size_t before = 0;
        do {
            before = c->ears[i].said.len;
        } while (c->ears[i].fd >= 0 && listen_to(&c->ears[i]) && c->ears[i].said.len > before);
    }
}

bool stk_slurm_command_await(stk_slurm_command *c, int wake_fd, int64_t until_ms)
{
    bool is_woken = false;
    while (!c->is_over && !is_woken) {
        int64_t left = until_ms - stk_clock_mono_ms(&stk_clock_real);
        bool is_silent = c->ears[0].fd < 0 && c->ears[1].fd < 0; /* it is about to end */
        struct pollfd fds[3] = {{.fd = c->ears[0].fd, .events = POLLIN},
                                {.fd = c->ears[1].fd, .events = POLLIN},
                                {.fd = wake_fd, .events = POLLIN}};
        (void)poll(fds, 3, (int)MAX(MIN(left, is_silent ? 1 : TICK_MS), 0));
        for (int i = 0; i < 2; i++) {
            (void)(fds[i].revents != 0 && listen_to(&c->ears[i]));
        }
        look_after(c);
        is_woken = fds[2].revents != 0 || left <= 0;
    }
    return c->is_over;
}

int stk_slurm_command_end(stk_slurm_command *c, stk_arena *arena, const char **ret_out,
                          stk_err *err)
{
    if (!c->is_over) {
        c->until_ms = 0;
        look_after(c);
    }
    int rc = judge(c->name, !c->is_late, c->status, &c->ears[1], err);
    *ret_out = "";
    if (rc == 0 && c->ears[0].said.len > 0) {
        *ret_out = stk_buf_keep(&c->ears[0].said, arena);
        rc = stk_err_if_null(*ret_out, err);
    }
    for (int i = 0; i < 2; i++) {
        stk_file_close(&c->ears[i].fd);
        stk_buf_done(&c->ears[i].said);
    }
    free(c);
    return rc;
}

int stk_slurm_call(const char *const *argv, const char *const *more, const char *input,
                   stk_arena *arena, const char **ret_out, stk_err *err)
{
    stk_slurm_command *c = NULL;
    *ret_out = "";
    STK_TRY(stk_slurm_command_begin(argv, more, input, &c, err));
    (void)stk_slurm_command_await(c, -1, INT64_MAX);
    return stk_slurm_command_end(c, arena, ret_out, err);
}

bool stk_slurm_may_pass(const stk_err *why)
{
    static const char *const words[] = {"didn't answer",
                                        "Unable to contact slurm controller",
                                        "Socket timed out",
                                        "Connection refused",
                                        "Zero Bytes were transmitted",
                                        "Resource temporarily",
                                        "Connection timed out",
                                        "temporarily unable",
                                        "Slurm backup controller",
                                        "Job violates accounting/QOS policy (job submit limit",
                                        "Transport endpoint",
                                        "Unable to establish controller",
                                        "Slurm temporarily",
                                        "Communication connection failure",
                                        "Munge",
                                        "munge"};
    for (size_t i = 0; why->code == STK_E_ENV && i < sizeof words / sizeof *words; i++) {
        if (strstr(why->text, words[i]) != NULL) {
            return true;
        }
    }
    return false;
}
