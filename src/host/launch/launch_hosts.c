/* Nodes that the leader starts itself, with the commands of a list (sys/nodes.h).
 *
 * `WORDS sh` reads a script from its standard input: the environment, the folder, and the launcher
 * to execute. So none of this appears in an argument, a file or a log, and the nodes need no shared
 * file system. Afterwards the pipe is a leash: when it closes, the node knows that its leader has
 * ended, even through ssh, which forwards no signals. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/param.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host/launch/launch_nodes.h"
#include "sys/file.h"
#include "sys/nodes.h"
#include "sys/spawn.h"

enum { SCRIPT_BYTES = 1 << 20, REAP_MS = 3000 };

/* The value after the name of n bytes and '='; "" if there is none. */
static const char *variable_value(const char *entry, size_t n)
{
    return entry + n + (entry[n] == '=');
}

/* Whether a variable selects devices of this machine, which mean nothing elsewhere. A variable that
 * hides all devices is passed on. */
static bool is_mask(const char *entry, size_t n)
{
    static const char *const masks[][3] = {
#define VARIABLE(vendor, name, given, none) {name, given, none},
#include "tbl/vendors.def"
    };
    if (n == strlen("STOKER_LEASE_LEVEL") && strncmp(entry, "STOKER_LEASE_LEVEL", n) == 0) {
        return true; /* it concerns leases of this machine */
    }
    for (size_t i = 0; i < sizeof masks / sizeof *masks; i++) {
        const char *const *m = masks[i];
        if (strlen(m[0]) == n && strncmp(entry, m[0], n) == 0 && m[1] != NULL &&
            strchr(m[1], '%') != NULL) {
            return m[2] == NULL || strcmp(variable_value(entry, n), m[2]) != 0;
        }
    }
    return false;
}

/* Whether a variable describes this machine or terminal, so that it is wrong elsewhere. */
static bool is_local(const char *entry)
{
    static const char *const names[] = {
        "HOSTNAME", "PWD",  "OLDPWD", "SHLVL",        "_",
        "DISPLAY",  "TERM", "TMPDIR", "STOKER_NODES", "XDG_RUNTIME_DIR"};
    static const char *const prefixes[] = {"SSH_", "STOKER_GANG_", "XDG_SESSION_", "BASH_FUNC_"};
    size_t n = strcspn(entry, "=");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strlen(names[i]) == n && strncmp(entry, names[i], n) == 0) {
            return true;
        }
    }
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return strspn(entry, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") != n;
}

static void add_quoted(stk_buf *out, const char *text)
{
    (void)stk_buf_char(out, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'') {
            (void)stk_buf_text(out, "'\\'");
        }
        (void)stk_buf_char(out, *text);
    }
    (void)stk_buf_char(out, '\'');
}

static void add_export(stk_buf *out, const char *name, size_t n, const char *value)
{
    (void)stk_buf_text(out, "export ");
    (void)stk_buf_add(out, name, n);
    (void)stk_buf_char(out, '=');
    add_quoted(out, value);
    (void)stk_buf_char(out, '\n');
}

static void write_script(const stk_gang *g, uint32_t node, stk_buf *out)
{
    extern char **environ;
    char cwd[PATH_MAX], self[PATH_MAX], number[16], rdzv[300];
    for (char **e = environ; *e != NULL; e++) {
        size_t n = strcspn(*e, "=");
        if (is_mask(*e, n)) { /* the command may have forwarded it */
            (void)stk_buf_printf(out, "unset %.*s\n", (int)n, *e);
        } else if (!is_local(*e)) {
            add_export(out, *e, n, variable_value(*e, n));
        }
    }
    const char *form = strchr(g->nodes->host, ':') != NULL ? "[%s]:%d" : "%s:%d";
    (void)snprintf(number, sizeof number, "%u", node);
    (void)snprintf(rdzv, sizeof rdzv, form, g->nodes->host, (int)g->nodes->port);
    const char *ours[][2] = {{"STOKER_GANG_NODE", number},
                             {"STOKER_GANG_RDZV", rdzv},
                             {"STOKER_GANG_KEY", g->nodes->key},
                             {"STOKER_GANG_LEASH", "1"}};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        add_export(out, ours[i][0], strlen(ours[i][0]), ours[i][1]);
    }
    if (getcwd(cwd, sizeof cwd) != NULL) {
        (void)stk_buf_text(out, "cd ");
        add_quoted(out, cwd);
        (void)stk_buf_text(out, " || exit 1\n");
    }
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[MAX(n, 0)] = '\0';
    (void)stk_buf_text(out, "stoker=");
    add_quoted(out, self);
    (void)stk_buf_text(out, "\n[ -x \"$stoker\" ] || stoker=stoker\nexec");
    const char *const *words = g->config->node_argv;
    if (g->config->devices > 0) {
        (void)stk_buf_printf(out, " \"$stoker\" launch --hold %u --", g->config->devices);
    }
    for (size_t i = 0; words[i] != NULL; i++) {
        (void)stk_buf_char(out, ' ');
        if (words[i][0] == '\0' && i == 0) {
            (void)stk_buf_text(out, "\"$stoker\"");
        } else {
            add_quoted(out, words[i]);
        }
    }
    (void)stk_buf_char(out, '\n');
}

static int start_host(stk_gang *g, launch_host *h, const stk_node *node, stk_err *err)
{
    extern char **environ;
    int pipes[2];
    const char *argv[80];
    size_t n = 0;
    STK_BUF_AUTO script = STK_BUF_INIT(SCRIPT_BYTES);
    for (; node->words[n] != NULL && n + 2 < sizeof argv / sizeof *argv; n++) {
        argv[n] = node->words[n];
    }
    argv[n] = "sh";
    argv[n + 1] = NULL;
    write_script(g, h->node, &script);
    errno = E2BIG;
    if (script.failed || pipe2(pipes, O_CLOEXEC) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "a script for node %u (%s)", h->node, h->name);
    }
    (void)fcntl(pipes[1], F_SETPIPE_SZ, SCRIPT_BYTES);
    (void)fcntl(pipes[1], F_SETFL, O_NONBLOCK);
    h->leash = pipes[1];
    stk_spawn spawn = {.argv = argv,
                       .env = (const char *const *)environ,
                       .stdin_fd = pipes[0],
                       .stdout_fd = g->config->out_fd,
                       .stderr_fd = g->config->err_fd,
                       .n_files = &g->n_files,
                       .keep_fds = g->inherited,
                       .n_keep_fds = g->n_inherited,
                       .new_session = true};
    int rc;
    if (stk_file_write_all(pipes[1], script.data, script.len) < 0) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "the environment for node %u (%s) is too large",
                         h->node, h->name);
    } else {
        rc = stk_sys_spawn(&spawn, &h->pid, &h->pidfd, err);
    }
    stk_file_close(&pipes[0]);
    if (rc == 0 && stk_launch_watch(g, h->pidfd, EPOLLIN, LAUNCH_EV_HOST, h->node - 1) < 0) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "watching node %u", h->node);
    }
    return rc;
}

int stk_launch_hosts_open(stk_gang *g, stk_err *err)
{
    launch_nodes *s = g->nodes;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_nodes list;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(stk_nodes_read(arena, &list, err));
    if (list.n_others + 1 < s->n) {
        return stk_err_set(
            err, STK_E_ENV,
            "%u nodes are requested, but %s names only %u besides this machine; add the others to "
            "it, or start stoker launch on each node with --node-rank and --rdzv",
            s->n, list.path, list.n_others);
    }
    s->hosts = calloc(s->n - 1, sizeof *s->hosts);
    if (s->hosts == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "%u nodes", s->n);
    }
    (void)snprintf(s->host, sizeof s->host, "%s", list.address);
    s->port = 0;
    STK_TRY(stk_launch_net_listen(0, &s->listener, err));
    s->port = stk_launch_net_port(s->listener);
    stk_launch_net_nonce(s->key);
    for (uint32_t i = 0; i < s->n - 1; i++) {
        s->hosts[i] = (launch_host){.node = i + 1, .pidfd = -1, .leash = -1};
        (void)snprintf(s->hosts[i].name, sizeof s->hosts[i].name, "%s", list.others[i].name);
    }
    s->n_hosts = s->n - 1;
    for (uint32_t i = 0; i < s->n_hosts; i++) {
        STK_TRY(start_host(g, &s->hosts[i], &list.others[i], err));
    }
    return 0;
}

void stk_launch_hosts_event(stk_gang *g, uint32_t i)
{
    launch_nodes *s = g->nodes;
    launch_host *h = &s->hosts[i];
    int status = 0;
    if (waitpid(h->pid, &status, WNOHANG) != h->pid) {
        return;
    }
    stk_launch_unwatch(g, h->pidfd);
    stk_file_close(&h->pidfd);
    if (!s->started && s->trouble[0] == '\0') {
        char how[64];
        if (WIFSIGNALED(status)) {
            (void)snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(status));
        } else {
            (void)snprintf(how, sizeof how, "ended with exit status %d", WEXITSTATUS(status));
        }
        (void)snprintf(s->trouble, sizeof s->trouble,
                       "node %u (%s) could not be started: its program %s before the node joined; "
                       "see its output above",
                       h->node, h->name, how);
    }
}

static uint32_t living(const launch_nodes *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_hosts; i++) {
        n += s->hosts[i].pidfd >= 0;
    }
    return n;
}

void stk_launch_hosts_close(stk_gang *g)
{
    launch_nodes *s = g->nodes;
    stk_err err = {0};
    for (uint32_t i = 0; i < s->n_hosts; i++) {
        stk_file_close(&s->hosts[i].leash);
    }
    int64_t until = stk_launch_now_ms() + g->config->grace_ms + REAP_MS;
    while (living(s) > 0 && stk_launch_now_ms() < until && stk_launch_turn(g, until, &err) == 0) {
    }
    for (uint32_t i = 0; i < s->n_hosts; i++) {
        launch_host *h = &s->hosts[i];
        if (h->pidfd >= 0) {
            (void)kill(-h->pid, SIGKILL);
            (void)waitpid(h->pid, NULL, 0);
            stk_launch_unwatch(g, h->pidfd);
            stk_file_close(&h->pidfd);
        }
    }
}
